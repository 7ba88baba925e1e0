// Package panel shows the machine of Pack to those outside: its state as JSON, what its GPUs did as a trace, metrics
// for Prometheus, and a web page made of the first two.
//
// Everything is read-only. Names of tenants come from outside and may be anything: they are escaped for JSON and for
// metrics, and the page sets them as text only; its Content-Security-Policy allows nothing but its own two files.
//
// Quantiles are made of histograms whose buckets are half an octave wide, and are rounded to the worse side: latencies
// up, slack down.
//
// Formats: the Trace Event Format of Chrome, which Perfetto reads; Prometheus text exposition format 0.0.4. The package
// must not import anything of this module but pack and machine.
package panel

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"holdfast/internal/pack/machine"
)

// A Machine is what is shown: *machine.Machine. Both methods may be called by several goroutines.
type Machine interface {
	State() (machine.State, error)
	Events(last time.Duration) ([]machine.Event, error)
}

var _ Machine = (*machine.Machine)(nil)

//go:embed page
var page embed.FS

// files are those of the page, and their types, by path.
var files = map[string]struct{ name, kind string }{
	"/pack/{$}":       {"page/index.html", "text/html; charset=utf-8"},
	"/pack/panel.js":  {"page/panel.js", "text/javascript; charset=utf-8"},
	"/pack/panel.css": {"page/panel.css", "text/css; charset=utf-8"},
}

// policy is all that the page may do: load its own files, ask its own server. The icon of a page is an image.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type panel struct {
	machine Machine
	// The machine answers between parts, and what it answers costs it time: one question at once.
	asking sync.Mutex
}

// New returns the handler of everything at and below /pack/.
func New(m Machine) http.Handler {
	p := &panel{machine: m}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pack/state", p.state)
	mux.HandleFunc("GET /pack/trace", p.trace)
	for path, f := range files {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			http.ServeFileFS(w, r, page, f.name)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

func (p *panel) state(w http.ResponseWriter, _ *http.Request) {
	p.asking.Lock()
	s, err := p.machine.State()
	p.asking.Unlock()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, describe(&s))
}

// Of a trace: how long it is unless told otherwise, and at most.
const (
	usual   = time.Second
	longest = time.Minute
)

func (p *panel) trace(w http.ResponseWriter, r *http.Request) {
	last := usual
	if text := r.URL.Query().Get("last"); text != "" {
		var err error
		if last, err = time.ParseDuration(text); err != nil || last <= 0 || last > longest {
			refuse(w, http.StatusBadRequest, fmt.Errorf("last=%q: a time such as 500ms, %v at most", text, longest))
			return
		}
	}
	p.asking.Lock()
	events, err := p.machine.Events(last)
	p.asking.Unlock()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeTrace(w, events) // who has gone away needs no error
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
