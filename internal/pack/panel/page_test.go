package panel

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chromium finds a browser. Without one the test is skipped, unless HOLDFAST_CHROMIUM=required.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const why = "there is no Chromium here: make chromium installs one"
	if os.Getenv("HOLDFAST_CHROMIUM") == "required" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// browse lets a browser show a page for a while, and returns what is shown then. The time is the browser's: it stands
// while the page waits for the server. Whatever the browser complains of, such as an error in the script or something
// that the policy forbids, is returned too.
func browse(t *testing.T, url string, while time.Duration) (shown *node, complaints string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	// The sandbox is not for root, as whom CI runs; what is shown is ours.
	cmd := exec.CommandContext(ctx, chromium(t), "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--user-data-dir="+t.TempDir(),
		"--enable-logging=stderr", fmt.Sprintf("--virtual-time-budget=%d", while.Milliseconds()), "--dump-dom", url)
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			complaints += line
		}
	}
	return parse(t, out.String()), complaints
}

// A node is an element with its text and that of what is in it.
type node struct {
	name, text string
	attrs      map[string]string
	in         []*node
}

func parse(t *testing.T, html string) *node {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	root := &node{}
	open := []*node{root}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, html)
		}
		switch x := token.(type) {
		case xml.StartElement:
			n := &node{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				n.attrs[a.Name.Local] = a.Value
			}
			last := open[len(open)-1]
			last.in = append(last.in, n)
			open = append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, n := range open {
				n.text += string(x)
			}
		}
	}
}

// all are the elements of a name.
func (n *node) all(name string) (out []*node) {
	for _, c := range n.in {
		if c.name == name {
			out = append(out, c)
		}
		out = append(out, c.all(name)...)
	}
	return out
}

func (n *node) id(id string) *node {
	for _, c := range n.in {
		if c.attrs["id"] == id {
			return c
		}
		if found := c.id(id); found != nil {
			return found
		}
	}
	return nil
}

// rows are the texts of a table's cells, without its head.
func (n *node) rows() (out [][]string) {
	for _, row := range n.all("tbody")[0].all("tr") {
		var cells []string
		for _, c := range row.in {
			cells = append(cells, c.text)
		}
		out = append(out, cells)
	}
	return out
}

// A tape remembers the last answers that a panel gave to /pack/state.
type tape struct {
	panel  http.Handler
	mu     sync.Mutex
	states []state
	gone   int // how many it answers before the server breaks off connections; 0: all
}

func (p *tape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/pack/state" {
		p.panel.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone > 0 && len(p.states) == p.gone {
		panic(http.ErrAbortHandler)
	}
	a := httptest.NewRecorder()
	p.panel.ServeHTTP(a, r)
	var s state
	if err := json.Unmarshal(a.Body.Bytes(), &s); err == nil && a.Code == http.StatusOK {
		p.states = append(p.states, s)
	}
	w.WriteHeader(a.Code)
	w.Write(a.Body.Bytes())
}

// The page shows what /pack/state says, of models whose names are hostile, and lets nothing of it run.
func TestPage(t *testing.T) {
	names := append(slices.Clone(hostile), "resnet")
	p := &tape{panel: New(&fake{names: names, events: someEvents(names)})}
	h := httptest.NewServer(p)
	defer h.Close()
	shown, complaints := browse(t, h.URL+"/pack/", 3500*time.Millisecond)
	if complaints != "" {
		t.Error(complaints)
	}
	if len(p.states) < 3 {
		t.Fatalf("it has asked %d times in 3.5 s", len(p.states))
	}
	compare(t, shown, p.states[len(p.states)-2:], len(names))
	if s := shown.id("status"); s.text != "The machine is at work; refreshed each second." || s.attrs["class"] != "" {
		t.Errorf("status %q, %v", s.text, s.attrs)
	}
	if title := shown.all("title"); len(title) != 1 || title[0].text != "holdfast: pack" {
		t.Errorf("title %v", title)
	}
	if n := len(shown.all("script")); n != 1 || len(shown.all("img"))+len(shown.all("i"))+len(shown.all("b")) > 0 {
		t.Errorf("%d scripts, or other elements that are not the page's", n)
	}
}

// compare holds what is shown to the last of two states.
func compare(t *testing.T, shown *node, states []state, lanes int) {
	t.Helper()
	before, now := states[0], states[1]
	per := func(a, b float64) float64 { return (b - a) / (now.Now - before.Now) }
	gpus := float64(now.GPUs)
	want := []string{fmt.Sprint(now.GPUs),
		fmt.Sprintf("%.1f %%", 100*per(before.Filled, now.Filled)/gpus),
		fmt.Sprintf("%.1f %%", 100*per(before.Busy, now.Busy)/gpus),
		fmt.Sprintf("%.1f", per(float64(before.Parts), float64(now.Parts))), fmt.Sprint(now.UnderWay),
		fmt.Sprint(now.Outstanding), fmt.Sprintf("%.2f", now.Capacity), fmt.Sprintf("%.1f s", now.Now)}
	var got []string
	for _, d := range shown.id("machine").all("dd") {
		got = append(got, d.text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("machine %q, want %q", got, want)
	}
	rows := shown.id("tenants").rows()
	if len(rows) != len(now.Tenants) {
		t.Fatalf("%d rows, %d models", len(rows), len(now.Tenants))
	}
	for i := range rows {
		x := &now.Tenants[i]
		want := wantRow(x, per(float64(before.Tenants[i].Arrived), float64(x.Arrived)))
		if !slices.Equal(rows[i], want) {
			t.Errorf("row %q\nwant %q", rows[i], want)
		}
	}
	if n := len(shown.id("lanes-table").rows()); n != 2*lanes {
		t.Errorf("%d lanes", n)
	}
	parts := fmt.Sprintf("%d parts in %d lanes ended in the last 250 ms.", 3*lanes, 2*lanes)
	if text := shown.id("lanes-text").text; text != parts {
		t.Errorf("%q, want %q", text, parts)
	}
}

func wantRow(x *tenant, arrivals float64) []string {
	ms := func(s *float64) string {
		if s == nil {
			return "–"
		}
		return fmt.Sprintf("%.3f ms", 1000**s)
	}
	latency := func(s *float64) string {
		if s == nil && x.Latency.Count > 0 {
			return "> " + ms(&x.Latency.UpTo)
		}
		return ms(s)
	}
	full, late := x.Refused["the tenant's queue is full"], x.Refused["the deadline cannot be met"]
	condition := "serving"
	if x.Faulty != "" {
		condition = "failed: " + x.Faulty
	}
	return []string{x.Name, fmt.Sprintf("%.1f", arrivals), fmt.Sprint(x.Met), fmt.Sprint(x.Missed),
		fmt.Sprint(x.Complete), fmt.Sprintf("%d%d: the deadline cannot be met%d: the tenant's queue is full", full+late,
			late, full), fmt.Sprint(x.Failed), fmt.Sprint(x.Waiting), fmt.Sprint(x.Outstanding), latency(x.Latency.P50),
		latency(x.Latency.P99), ms(x.Slack.P1), ms(x.Slack.P50), condition}
}

// When the server is gone, or its machine is, the page says so, and goes on to show what it knew.
func TestPageOfTheGone(t *testing.T) {
	names := []string{"resnet", "bert"}
	for what, c := range map[string]struct {
		down, gone int
		say        string
	}{
		"server":  {gone: 2, say: "The server does not answer (Failed to fetch). What is shown is of "},
		"machine": {down: 2, say: "The server does not answer (" + errDown.Error() + "). What is shown is of "},
	} {
		t.Run(what, func(t *testing.T) {
			p := &tape{panel: New(&fake{names: names, events: someEvents(names), down: c.down}), gone: c.gone}
			h := httptest.NewServer(p)
			defer h.Close()
			shown, _ := browse(t, h.URL+"/pack/", 3500*time.Millisecond)
			if s := shown.id("status"); !strings.HasPrefix(s.text, c.say) || s.attrs["class"] != "gone" {
				t.Errorf("status %q, %v; want %q", s.text, s.attrs, c.say)
			}
			if len(p.states) != 2 {
				t.Fatalf("%d states", len(p.states))
			}
			compare(t, shown, p.states, len(names))
		})
	}
}
