package panel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/pack"
	"holdfast/internal/pack/machine"
)

const ms = time.Millisecond

// Names of tenants that break what does not escape them.
var hostile = []string{
	`<script>document.title="taken"</script>`,
	`"><img src=x onerror="document.title='taken'">`,
	`</td></table><!--`,
	"a\"b\\c\nd{e=\"f\"} 1",
	"{{.}} ${1} \u202egnitide\u2066 ]]>",
	"__proto__",
}

// A fake is a machine whose counters grow faster with each look. It is down once it was asked often enough.
type fake struct {
	mu     sync.Mutex
	looks  int
	down   int // 0: never
	events []machine.Event
	last   time.Duration // what was asked for
	names  []string
}

var errDown = errors.New("the machine is <b>closed</b>")

func (f *fake) State() (machine.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looks++; f.down > 0 && f.looks > f.down {
		return machine.State{}, errDown
	}
	return stateAt(f.names, f.looks), nil
}

func (f *fake) Events(last time.Duration) ([]machine.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last = last; f.down > 0 && f.looks > f.down {
		return nil, errDown
	}
	return f.events, nil
}

// stateAt is a machine of two GPUs after so many looks.
func stateAt(names []string, looks int) machine.State {
	n := uint64(looks)
	s := machine.State{Now: time.Duration(looks) * 1250 * ms}
	s.Devices, s.Parts, s.UnderWay, s.Outstanding = 2, 5000*n*n, 3, 7
	s.Busy, s.Filled, s.Capacity = time.Duration(looks)*1500*ms, time.Duration(looks)*1000*ms, 1.25
	for i, name := range names {
		t := machine.TenantState{Name: name, Parts: []pack.Part{{Alone: 150 * time.Microsecond, Width: 0.25}}}
		t.Arrived, t.Admitted, t.Met, t.Missed = n*n*uint64(100+i), n*uint64(90+i), n*80, n*uint64(i)
		t.Complete, t.Failed, t.Repeated, t.Stragglers, t.Waiting, t.Outstanding = n, 2, 3, 4, 5, 6+i
		t.Refused[pack.TooLate], t.Refused[pack.QueueFull] = 7*n, 3*n
		t.Latency[10], t.Latency[20] = 98, 2 // 24 to 32 µs, 0.768 to 1.024 ms
		t.Slack[0], t.Slack[21] = 2, 98      // up to 1 µs, 1.024 to 1.536 ms
		if i == 1 {
			t.Faulty = errors.New("word 3: a <i>fault</i>")
			t.Latency[pack.Buckets-1] = 1000
		}
		s.Tenants = append(s.Tenants, t)
	}
	return s
}

// someEvents are parts of each tenant on two devices.
func someEvents(names []string) (out []machine.Event) {
	for i, name := range names {
		for part := range 3 {
			began := time.Duration(4900+10*part)*ms + time.Duration(i)
			out = append(out, machine.Event{Tenant: name, Request: 1<<63 + pack.RequestID(i), Part: part,
				Device: i % 2, Instance: part / 2, Began: began, Ended: began + 2*ms + 345*time.Nanosecond})
		}
	}
	return out
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestState(t *testing.T) {
	w := get(t, New(&fake{names: []string{"b", "a"}}), "/pack/state")
	want := `{"now_seconds":1.25,"gpus":2,"parts":5000,"parts_under_way":3,"outstanding":7,"busy_seconds":1.5,` +
		`"filled_seconds":1,"capacity":1.25,"tenants":[` +
		`{"name":"a","arrived":101,"admitted":91,` + refusedJSON + `,"met":80,"missed":1,"complete":1,"failed":2,` +
		`"parts_repeated":3,"stragglers":4,"waiting":5,"outstanding":7,"limit_gpus":null,` +
		`"latency_seconds":{"count":1100,"p50":null,"p99":null,"up_to":0.524288},` + slackJSON +
		`,"faulty":"word 3: a \u003ci\u003efault\u003c/i\u003e"},` +
		`{"name":"b","arrived":100,"admitted":90,` + refusedJSON + `,"met":80,"missed":0,"complete":1,"failed":2,` +
		`"parts_repeated":3,"stragglers":4,"waiting":5,"outstanding":6,"limit_gpus":null,` +
		`"latency_seconds":{"count":100,"p50":0.000032,"p99":0.001024,"up_to":0.524288},` + slackJSON +
		`,"faulty":""}]}`
	got := strings.TrimSpace(w.Body.String())
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || got != want {
		t.Errorf("%d %v\n%s\nwant\n%s", w.Code, w.Header(), got, want)
	}
}

const (
	refusedJSON = `"refused":{"requests admitted before would be late":0,"the deadline cannot be met":7,` +
		`"the tenant has had its share":0,"the tenant is being drained":0,"the tenant's queue is full":3,` +
		`"too many requests are outstanding":0}`
	slackJSON = `"slack_seconds":{"count":100,"p1":0,"p50":0.001024,"p99":0.001024},` +
		`"parts":[{"alone_seconds":0.00015,"width":0.25}]`
)

// Quantiles are never better than the truth, whatever was counted.
func TestQuantiles(t *testing.T) {
	last := pack.Buckets - 1
	for name, c := range map[string]struct {
		counts        map[int]uint64
		q             float64
		atMost, least float64 // negative: nil
	}{
		"nothing":              {nil, 0.5, -1, -1},
		"the first bucket":     {map[int]uint64{0: 1}, 0.99, 1e-6, 0},
		"empty ones before":    {map[int]uint64{3: 5}, 0, 3e-6, 2e-6},
		"up to half":           {map[int]uint64{2: 5, 4: 5}, 0.5, 2e-6, 1.5e-6},
		"over half":            {map[int]uint64{2: 5, 4: 6}, 0.5, 4e-6, 3e-6},
		"the last":             {map[int]uint64{2: 5, last: 6}, 0.5, -1, 0.524288},
		"the last with an end": {map[int]uint64{last - 1: 1}, 0.5, 0.524288, 0.393216},
	} {
		var h pack.Histogram
		for i, n := range c.counts {
			h[i] = n
		}
		for what, x := range map[string]struct {
			got  *float64
			want float64
		}{"at most": {atMost(&h, c.q), c.atMost}, "at least": {atLeast(&h, c.q), c.least}} {
			if x.got == nil && x.want < 0 || x.got != nil && *x.got == x.want {
				continue
			}
			t.Errorf("%s: %s %v, want %v", name, what, x.got, x.want)
		}
	}
}

// A traceEvent has every field that the format's events may have here.
type traceEvent struct {
	Phase    string  `json:"ph"`
	Category string  `json:"cat"`
	Name     string  `json:"name"`
	PID      int     `json:"pid"`
	TID      int     `json:"tid"`
	TS       float64 `json:"ts"`
	Dur      float64 `json:"dur"`
	Args     struct {
		Name    string `json:"name"`
		Request string `json:"request"`
		Part    int    `json:"part"`
	} `json:"args"`
}

func readTrace(t *testing.T, body []byte) []traceEvent {
	t.Helper()
	var trace struct {
		Unit   string       `json:"displayTimeUnit"`
		Events []traceEvent `json:"traceEvents"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&trace); err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	if trace.Unit != "ms" || trace.Events == nil {
		t.Fatalf("unit %q, events %v", trace.Unit, trace.Events)
	}
	return trace.Events
}

// What is read from a trace is what was done: each part once, in a lane that is named after its tenant and in which no
// two overlap.
func TestTrace(t *testing.T) {
	f := &fake{events: someEvents(hostile)}
	w := get(t, New(f), "/pack/trace?last=3s")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || f.last != 3*time.Second {
		t.Fatalf("%d %v, asked for %v", w.Code, w.Header(), f.last)
	}
	type place struct{ pid, tid int }
	threads, processes := map[place]string{}, map[int]string{}
	var parts []traceEvent
	for _, e := range readTrace(t, w.Body.Bytes()) {
		switch {
		case e.Phase == "M" && e.Name == "process_name":
			processes[e.PID] = e.Args.Name
		case e.Phase == "M" && e.Name == "thread_name":
			threads[place{e.PID, e.TID}] = e.Args.Name
		case e.Phase == "X":
			parts = append(parts, e)
		default:
			t.Errorf("an event %+v", e)
		}
	}
	if len(processes) != 2 || len(threads) != 2*len(hostile) || len(parts) != len(f.events) {
		t.Fatalf("%d processes, %d threads, %d parts", len(processes), len(threads), len(parts))
	}
	ends := map[place]float64{}
	for i, e := range f.events {
		p := parts[i]
		at := place{p.PID, p.TID}
		if p.Name != e.Tenant || p.PID != e.Device || p.Args.Part != e.Part ||
			p.Args.Request != strconv.FormatUint(uint64(e.Request), 10) ||
			p.TS != float64(e.Began)/1e3 || p.Dur != 2000.345 || p.Category != "part" {
			t.Errorf("%+v of %+v", p, e)
		}
		if want := fmt.Sprintf("%s #%d", e.Tenant, e.Instance); threads[at] != want {
			t.Errorf("lane %q, want %q", threads[at], want)
		}
		if processes[p.PID] != fmt.Sprintf("GPU %d", e.Device) {
			t.Errorf("process %q of %+v", processes[p.PID], e)
		}
		if p.TS < ends[at] {
			t.Errorf("%+v overlaps in its lane", p)
		}
		ends[at] = p.TS + p.Dur
	}
}

func TestTraceEmpty(t *testing.T) {
	f := &fake{}
	if events := readTrace(t, get(t, New(f), "/pack/trace").Body.Bytes()); len(events) != 0 || f.last != time.Second {
		t.Errorf("%v of the last %v", events, f.last)
	}
}

func TestRefusals(t *testing.T) {
	closed := New(&fake{down: 1, looks: 2})
	for path, c := range map[string]struct {
		status int
		say    string
	}{
		"/pack/trace?last=0s":       {400, "1m0s at most"},
		"/pack/trace?last=-1s":      {400, "1m0s at most"},
		"/pack/trace?last=60.001s":  {400, "1m0s at most"},
		"/pack/trace?last=<script>": {400, "1m0s at most"},
		"/pack/trace?last=1m":       {503, errDown.Error()},
		"/pack/state":               {503, errDown.Error()},
	} {
		w := get(t, closed, path)
		var body struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status ||
			!strings.Contains(body.Error, c.say) {
			t.Errorf("%s: %d %s (%v)", path, w.Code, w.Body, err)
		}
	}
	for path, status := range map[string]int{"/pack/nothing": 404, "/pack/page/index.html": 404, "/": 404} {
		if w := get(t, closed, path); w.Code != status {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	closed.ServeHTTP(w, httptest.NewRequest("POST", "/pack/state", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// The page and all that it loads are there, and nothing may be loaded from elsewhere.
func TestFiles(t *testing.T) {
	h := New(&fake{})
	for path, kind := range map[string]string{"/pack/": "text/html", "/pack/panel.js": "text/javascript",
		"/pack/panel.css": "text/css"} {
		w := get(t, h, path)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		h := w.Header()
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, h)
		}
	}
	var loads []string
	for _, m := range regexp.MustCompile(`(?:src|rel="stylesheet" href)="([^"]*)"`).FindAllStringSubmatch(
		get(t, h, "/pack/").Body.String(), -1) {
		loads = append(loads, m[1])
	}
	if slices.Sort(loads); !slices.Equal(loads, []string{"panel.css", "panel.js"}) {
		t.Errorf("the page loads %q", loads)
	}
}
