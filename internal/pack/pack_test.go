package pack

import (
	"math"
	"strings"
	"testing"
	"time"
)

const us = time.Microsecond

func scheduler(t *testing.T, c Config, tenants ...Tenant) (*Scheduler, []TenantID) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var ids []TenantID
	for _, x := range tenants {
		id, err := s.Add(x)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return s, ids
}

func admit(t *testing.T, s *Scheduler, now time.Duration, id TenantID, deadline time.Duration) RequestID {
	t.Helper()
	r, refusal := s.Arrive(now, id, deadline)
	if refusal != Admitted {
		t.Fatalf("at %v: %v", now, refusal)
	}
	return r
}

// started is which requests Issue starts.
func started(s *Scheduler, now time.Duration) (ids []RequestID) {
	for _, x := range s.Issue(now, nil) {
		ids = append(ids, x.Request)
	}
	return ids
}

func equal(a, b []RequestID) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// one part, of 100 µs.
func single(name string, width, bandwidth float64) Tenant {
	return Tenant{Name: name, SLO: 100 * time.Millisecond, Instances: 8,
		Parts: []Part{{Alone: 100 * us, Width: width, Bandwidth: bandwidth}}}
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		over  float64
		parts [][2]float64 // width and bandwidth, the most urgent first
		start int          // how many start at once
	}{
		{"narrow beside wide", -1, [][2]float64{{0.7, 0.1}, {0.2, 0.1}, {0.1, 0.1}}, 2}, // shares are rounded up
		{"memory-bound beside compute-bound", -1, [][2]float64{{0.8, 0.1}, {0.1, 0.8}}, 2},
		{"two that need bandwidth", -1, [][2]float64{{0.3, 0.8}, {0.3, 0.8}}, 1},
		{"bandwidth is not known", -1, [][2]float64{{0.6, 0}, {0.6, 0}}, 1},
		{"nothing is known", -1, [][2]float64{{0, 0}, {0.1, 0.1}}, 1},
		{"oversubscribed", 0.5, [][2]float64{{0.7, 0.1}, {0.7, 0.1}, {0.2, 0.1}}, 2},
		{"the most urgent does not fit", 0.5, [][2]float64{{0.9, 0.1}, {0.9, 0.1}, {0.1, 0.1}}, 1},
	} {
		s, _ := scheduler(t, Config{Oversubscribe: c.over})
		var want []RequestID
		for i, p := range c.parts {
			x := single(string(rune('a'+i)), p[0], p[1])
			x.SLO += time.Duration(i) * time.Millisecond
			id, err := s.Add(x)
			if err != nil {
				t.Fatal(err)
			}
			if r := admit(t, s, 0, id, 0); i < c.start {
				want = append(want, r)
			}
		}
		if got := started(s, 0); !equal(got, want) {
			t.Errorf("%s: %x start, want %x", c.name, got, want)
		}
	}
}

// An urgent request waits for what is under way, and for nothing that comes after it.
func TestUrgent(t *testing.T) {
	s, ids := scheduler(t, Config{}, single("narrow", 0.5, 0.5), single("wide", 1, 1))
	narrow, wide := ids[0], ids[1]
	var first []RequestID
	for range 5 {
		first = append(first, admit(t, s, 0, narrow, 0))
	}
	if got := started(s, 0); !equal(got, first[:3]) {
		t.Fatalf("%x start, want %x", got, first[:3])
	}
	urgent := admit(t, s, 10*us, wide, 5*time.Millisecond)
	for i, id := range first[:2] {
		now := time.Duration(150+i) * us
		if out := s.Done(now, id, 150*us); out != Met {
			t.Fatalf("outcome %d", out)
		}
		want := []RequestID(nil)
		if i == 1 {
			want = []RequestID{urgent}
		}
		if got := started(s, now); !equal(got, want) {
			t.Fatalf("after %d: %x start, want %x", i+1, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	tight := single("tight", 1, 1)
	tight.SLO, tight.Queue, tight.Instances = 250*us, 3, 1
	loose := single("loose", 1, 1)
	loose.SLO = 600 * us
	chain := single("chain", 0.1, 0.1)
	chain.SLO, chain.Instances = 550*us, 1
	for _, c := range []struct {
		name   string
		before []int // tenants whose requests are admitted before, and started if there is room
		window int
		tenant int
		due    time.Duration
		drain  bool
		want   Refusal
	}{
		{name: "the first", want: Admitted},
		{name: "too short for anybody", due: 99 * us, want: TooLate},
		{name: "just long enough", due: 101 * us, want: Admitted},
		{name: "behind another", before: []int{0}, want: TooLate},
		{name: "behind another with time", before: []int{0}, due: 900 * us, want: Admitted},
		{name: "before another with time", before: []int{1}, tenant: 0, due: 400 * us, want: Admitted},
		{name: "before another without", before: []int{1, 1, 1}, tenant: 0, due: 500 * us, want: Crowding},
		{name: "before one that waits for an instance", before: []int{3, 3}, tenant: 1, due: 500 * us, want: Crowding},
		{name: "the queue is full", before: []int{0, 2, 2, 2}, tenant: 2, want: QueueFull},
		{name: "the window is full", before: []int{1}, window: 1, tenant: 1, want: WindowFull},
		{name: "draining", drain: true, want: Draining},
		{name: "no tenant", tenant: 7, want: NoTenant},
	} {
		queue := single("queue", 0.1, 0.1)
		queue.Queue = 3
		s, ids := scheduler(t, Config{Window: c.window}, tight, loose, queue, chain)
		for _, x := range c.before {
			admit(t, s, 0, ids[x], 0)
			if x != 2 {
				s.Issue(0, nil)
			}
		}
		if c.drain {
			if err := s.Drain(ids[c.tenant]); err != nil {
				t.Fatal(err)
			}
		}
		if _, got := s.Arrive(0, TenantID(c.tenant), c.due); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		} else if c.tenant < len(ids) {
			if st := s.Tenant(ids[c.tenant]); got != Admitted && st.Refused[got] != 1 {
				t.Errorf("%s: the refusal is not counted: %+v", c.name, st)
			}
		}
	}
}

// Times alone are learnt from parts that were alone, the factor beside others from those that were not. An outlier
// does little.
func TestLearn(t *testing.T) {
	s, ids := scheduler(t, Config{}, single("a", 0.4, 0.1), single("b", 0.4, 0.1))
	now := time.Duration(0)
	play := func(n int, took time.Duration, with ...TenantID) {
		for range n {
			var list []RequestID
			for _, id := range with {
				list = append(list, admit(t, s, now, id, 0))
			}
			if got := started(s, now); !equal(got, list) {
				t.Fatalf("%x start, want %x", got, list)
			}
			now += took
			for _, id := range list {
				s.Done(now, id, took)
			}
		}
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %v is learnt, want %v", what, got, want)
		}
	}
	check := func(what string, alone time.Duration, beside float64) {
		t.Helper()
		a, b := s.Estimate(ids[0], 0)
		near(what, float64(a), float64(alone))
		near(what, b, beside)
	}
	play(50, 70*us, ids[0])
	check("alone", 70*us, 1)
	play(1, 20*time.Millisecond, ids[0])
	check("an outlier", 70*us*9/8, 1)
	play(50, 70*us, ids[0])
	play(60, 105*us, ids...) // the model says that they do not disturb each other
	check("beside", 70*us, 1.5)
}

// What is overdue is reported once, and gives way.
func TestOverdue(t *testing.T) {
	s, ids := scheduler(t, Config{}, Tenant{Name: "a", SLO: 10 * time.Millisecond, Instances: 2,
		Parts: []Part{{Alone: 100 * us, Width: 0.8}, {Alone: 100 * us, Width: 1}}}, single("b", 1, 1))
	slow := admit(t, s, 0, ids[0], 0)
	s.Issue(0, nil)
	for _, c := range []struct {
		at   time.Duration
		want []RequestID
	}{{399 * us, nil}, {400 * us, []RequestID{slow}}, {800 * us, nil}} {
		if got := s.Overdue(c.at, nil); !equal(got, c.want) {
			t.Errorf("at %v: %x are overdue, want %x", c.at, got, c.want)
		}
	}
	other := admit(t, s, 900*us, ids[1], 0) // due later than slow was
	if out := s.Done(1000*us, slow, 1000*us); out != Going {
		t.Fatalf("outcome %d", out)
	}
	if got := started(s, 1000*us); !equal(got, []RequestID{other}) {
		t.Errorf("%x start, want %x", got, other)
	}
	if st := s.Tenant(ids[0]); st.Stragglers != 1 {
		t.Errorf("%d stragglers", st.Stragglers)
	}
}

// A request that cannot make its deadline any more does not take others with it.
func TestHopeless(t *testing.T) {
	s, ids := scheduler(t, Config{}, single("a", 1, 1), single("b", 1, 1))
	running := admit(t, s, 0, ids[0], 0)
	s.Issue(0, nil)
	late := admit(t, s, 0, ids[0], 400*us)
	other := admit(t, s, 0, ids[1], 0)
	s.Done(350*us, running, 350*us)
	if got := started(s, 350*us); !equal(got, []RequestID{other}) {
		t.Fatalf("%x start, want %x", got, other)
	}
	s.Done(450*us, other, 100*us)
	if got := started(s, 450*us); !equal(got, []RequestID{late}) {
		t.Fatalf("%x start, want %x", got, late)
	}
	if out := s.Done(550*us, late, 100*us); out != Missed {
		t.Errorf("outcome %d", out)
	}
}

// A request without deadline gives way to others for Patience, less what it takes, and no longer, however many come.
func TestPatience(t *testing.T) {
	const patience = 5 * time.Millisecond
	batch := single("batch", 1, 1)
	batch.SLO = 0
	urgent := single("urgent", 1, 1)
	urgent.SLO = time.Millisecond
	s, ids := scheduler(t, Config{Patience: patience, Surplus: 100}, batch, urgent)
	var waiting, running RequestID
	for now := time.Duration(0); now <= 2*patience; now += 50 * us {
		if now == 500*us {
			waiting = admit(t, s, now, ids[0], 0)
		}
		s.Arrive(now, ids[1], 0) // twice what the device can do
		if now%(100*us) != 0 {
			continue
		}
		if running != 0 && s.Done(now, running, 100*us) == Complete {
			if took := now - 500*us; took > patience || took < patience/2 {
				t.Errorf("the request without deadline took %v", took)
			}
			return
		}
		if got := started(s, now); len(got) == 1 {
			running = got[0]
		} else {
			t.Fatalf("at %v, %x start", now, got)
		}
	}
	t.Errorf("request %x has not been answered", waiting)
}

func TestFailed(t *testing.T) {
	s, ids := scheduler(t, Config{}, single("a", 1, 1))
	id := admit(t, s, 0, ids[0], 0)
	if s.Failed(0, id, false) {
		t.Error("what has not started has failed")
	}
	s.Issue(0, nil)
	if !s.Failed(10*us, id, true) {
		t.Error("the part is not under way")
	}
	if got := started(s, 10*us); !equal(got, []RequestID{id}) {
		t.Errorf("%x start again, want %x", got, id)
	}
	if !s.Failed(20*us, id, false) || s.Failed(20*us, id, false) || s.Done(20*us, id, us) != Stale {
		t.Error("a request that failed is still there")
	}
	if st := s.Tenant(ids[0]); st.Repeated != 1 || st.Failed != 1 || st.Outstanding != 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
	next := admit(t, s, 30*us, ids[0], 0)
	if s.Issue(30*us, nil); s.Done(40*us, id, us) != Stale || s.Done(40*us, next, 10*us) != Met {
		t.Error("the name of a request that has ended means another one")
	}
}

func TestTenants(t *testing.T) {
	s, ids := scheduler(t, Config{}, single("a", 0.2, 0.2))
	if _, err := s.Add(single("a", 1, 1)); err == nil {
		t.Error("there are two tenants a")
	}
	one := single("a", 0.2, 0.2)
	one.Instances = 1
	if err := s.Change(ids[0], one); err != nil {
		t.Fatal(err)
	}
	x, y := admit(t, s, 0, ids[0], 0), admit(t, s, 0, ids[0], 0)
	if got := started(s, 0); !equal(got, []RequestID{x}) {
		t.Errorf("%x start with one instance, want %x", got, x)
	}
	one.Instances = 2
	if err := s.Change(ids[0], one); err != nil {
		t.Fatal(err)
	}
	if got := started(s, 0); !equal(got, []RequestID{y}) {
		t.Errorf("%x start with two instances, want %x", got, y)
	}
	if err := s.Drain(ids[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(ids[0]); err == nil || !strings.Contains(err.Error(), "2 requests outstanding") {
		t.Errorf("removed with requests outstanding: %v", err)
	}
	s.Done(100*us, x, 100*us)
	s.Done(100*us, y, 100*us)
	if err := s.Remove(ids[0]); err != nil {
		t.Error(err)
	}
	for _, err := range []error{s.Remove(ids[0]), s.Drain(ids[0]), s.Change(ids[0], one)} {
		if err == nil {
			t.Error("a tenant that was removed is still there")
		}
	}
	if _, err := s.Add(single("a", 1, 1)); err != nil {
		t.Error(err)
	}
}

func TestRefusedTenants(t *testing.T) {
	for want, change := range map[string]func(*Tenant){
		"a deadline of": func(x *Tenant) { x.SLO = -1 },
		"a weight of":   func(x *Tenant) { x.Weight = -1 },
		"65 instances":  func(x *Tenant) { x.Instances = 65 },
		"a queue of -1": func(x *Tenant) { x.Queue = -1 },
		"0 parts":       func(x *Tenant) { x.Parts = nil },
		"a time of 0s":  func(x *Tenant) { x.Parts[0].Alone = 0 },
		"width 1.5":     func(x *Tenant) { x.Parts[0].Width = 1.5 },
		"bandwidth NaN": func(x *Tenant) { x.Parts[0].Bandwidth = math.NaN() },
	} {
		x := single("a", 1, 1)
		change(&x)
		s, _ := scheduler(t, Config{})
		if _, err := s.Add(x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, c := range []Config{{Devices: -1}, {Oversubscribe: 2}, {Oversubscribe: math.NaN()}, {Surplus: math.NaN()},
		{Patience: -1}, {Window: -1}, {Overdue: 0.5}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("a histogram of nothing has a median")
	}
	for i := range Buckets - 1 {
		h = Histogram{}
		end := bucketEnd(i)
		h.add(end - 1)
		if h[i] != 1 {
			t.Errorf("%d ns are not below %v", end-1, h.End(i))
		}
		if h.add(end); h[i] != 1 || h[i+1] != 1 {
			t.Errorf("%d ns are below %v", end, h.End(i))
		}
	}
	h = Histogram{}
	for range 99 {
		h.add(100)
	}
	h.add(int64(time.Hour))
	if a, b := h.Quantile(0.99), h.Quantile(0.995); a != time.Microsecond || b != h.End(Buckets-1) {
		t.Errorf("quantiles %v and %v", a, b)
	}
}

// Devices are filled alike, and a request stays on its own.
func TestDevices(t *testing.T) {
	s, ids := scheduler(t, Config{Devices: 4}, single("a", 1, 1))
	for range 8 {
		admit(t, s, 0, ids[0], 0)
	}
	count := make([]int, 4)
	for now := time.Duration(0); now < 200*us; now += 100 * us {
		starts := s.Issue(now, nil)
		for _, x := range starts {
			count[x.Device]++
		}
		for _, x := range starts {
			s.Done(now+100*us, x.Request, 100*us)
		}
	}
	for d, n := range count {
		if n != 2 {
			t.Errorf("device %d has done %d of 8", d, n)
		}
	}
	if st := s.Stats(200 * us); st.Parts != 8 || st.Outstanding != 0 || st.Busy != 800*us {
		t.Errorf("%+v", st)
	}
}
