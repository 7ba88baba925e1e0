package sim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// atOnce starts every request when it arrives.
type atOnce struct{}

func (*atOnce) arrive(m *machine, r *request)          { m.start(r, 0) }
func (*atOnce) done(*machine, *request, time.Duration) {}
func (*atOnce) wake() int64                            { return never }
func (*atOnce) tick(*machine)                          {}

// Processor sharing: what is under way is slowed by the larger sum, and only while it is above one.
func TestMachine(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []part // one request each
		at    []int64
		end   []int64
	}{
		{"alone", []part{{1000, one, one}}, []int64{5}, []int64{1005}},
		{"beside", []part{{1000, one / 2, 1}, {500, one / 2, 1}}, []int64{0, 0}, []int64{1000, 500}},
		{"slowed", []part{{1000, one, 1}, {1000, one, 1}}, []int64{0, 0}, []int64{2000, 2000}},
		{"for a while", []part{{1000, one, 1}, {1000, one, 1}}, []int64{0, 500}, []int64{1500, 2000}},
		{"bandwidth", []part{{1000, 1, one}, {1000, 1, one / 2}}, []int64{0, 0}, []int64{1500, 1500}},
		{"different needs", []part{{1000, one, 1}, {700, 0, one - 1}}, []int64{0, 100}, []int64{1000, 800}},
	} {
		l := &load{config: &Config{GPUs: 1}}
		for i, p := range c.parts {
			l.tenants = append(l.tenants, tenant{parts: []part{p}})
			l.arrivals = append(l.arrivals, arrival{c.at[i], int32(i)})
		}
		requests := l.requests()
		newMachine(l, &atOnce{}).run(requests)
		for i, r := range requests {
			if d := r.end - c.end[i]; d < 0 || d > 2 {
				t.Errorf("%s: request %d ends at %d, want %d", c.name, i, r.end, c.end[i])
			}
		}
	}
}

// fluid against the largest matching of unit jobs and moments, found by augmenting paths.
func TestFluid(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var jobs []window
		var slots [][]int64 // of each unit of work: the moments at which it can be done
		at := int64(0)
		for range 1 + rng.IntN(7) {
			at += rng.Int64N(4)
			w := window{at: at, deadline: at + 1 + rng.Int64N(8), work: 1 + rng.Int64N(5)}
			jobs = append(jobs, w)
			for range w.work {
				var list []int64
				for x := w.at; x < w.deadline; x++ {
					list = append(list, x)
				}
				slots = append(slots, list)
			}
		}
		if got, want := fluid(jobs), matching(slots); got != want {
			t.Fatalf("seed %d: %v: %d can be done, fluid says %d", seed, jobs, want, got)
		}
	}
}

func matching(slots [][]int64) (n int64) {
	taken := map[int64]int{}
	var place func(i int, seen map[int64]bool) bool
	place = func(i int, seen map[int64]bool) bool {
		for _, x := range slots[i] {
			if seen[x] {
				continue
			}
			seen[x] = true
			other, ok := taken[x]
			if !ok || place(other, seen) {
				taken[x] = i
				return true
			}
		}
		return false
	}
	for i := range slots {
		if place(i, map[int64]bool{}) {
			n++
		}
	}
	return n
}

// The bound is not below what a schedule that knows everything can do: the largest set of requests whose work fits
// between arrivals and deadlines, found by trying all sets. And it is not far above it.
func TestBoundAgainstAllSets(t *testing.T) {
	var best, bounds float64
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := randomConfig(rng)
		for i := range c.Tenants {
			if c.Tenants[i].SLO == 0 {
				c.Tenants[i].SLO = 1
			}
		}
		l, err := newLoad(&c)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); len(l.arrivals) < 9; at += rng.Int64N(60_000) {
			l.arrivals = append(l.arrivals, arrival{at, int32(rng.IntN(len(l.tenants)))})
		}
		bound := l.bound()
		most := math.MaxInt
		for mixture := range int64(5) {
			most = min(most, largestSet(l.windows(mixture*one/4)))
		}
		if bound < float64(most)-1e-9 {
			t.Fatalf("seed %d: %d requests can be done, the bound is %v", seed, most, bound)
		}
		best, bounds = best+float64(most), bounds+bound
	}
	if bounds > 1.15*best {
		t.Errorf("the bound is %.0f where %.0f can be done", bounds, best)
	}
}

// largestSet tries all sets. A set can be done if fluid earliest deadline first does all of it.
func largestSet(jobs []window) (most int) {
	for set := range 1 << len(jobs) {
		var pick []window
		var work int64
		for i, j := range jobs {
			if set>>i&1 == 1 {
				pick = append(pick, j)
				work += j.work
			}
		}
		if len(pick) > most && fluid(pick) == work {
			most = len(pick)
		}
	}
	return most
}

// No policy beats the bound, and all account for every request.
func TestBoundHolds(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		c := randomConfig(rng)
		c.Seconds = 0.05
		c.KeepLate = seed%3 == 0
		res, err := Run(c, 0.1+2.5*rng.Float64())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range res.Policies {
			if float64(p.Met) > res.Bound+1e-6 {
				t.Errorf("seed %d: %s answers %d in time, the bound is %v", seed, p.Name, p.Met, res.Bound)
			}
			if p.Met+p.Missed+p.Refused+p.Other != res.Requests {
				t.Errorf("seed %d: %s: %+v of %d requests", seed, p.Name, p, res.Requests)
			}
		}
	}
}

// What is asked of the scheduler on the default configuration. The figures of others are in docs/results/pack.md.
func TestGoodput(t *testing.T) {
	for _, c := range []struct{ offered, ofBound, overSlicing float64 }{
		{0.2, 0.99, 1.05}, {0.5, 0.99, 2}, {0.9, 0.95, 5}, {1.2, 0.8, 7},
	} {
		res, err := Run(Default(), c.offered)
		if err != nil {
			t.Fatal(err)
		}
		pack, sliced := res.Policies[0], res.Policies[1]
		if pack.OfBound < c.ofBound {
			t.Errorf("load %v: %.3f of the bound, want %v", c.offered, pack.OfBound, c.ofBound)
		}
		if x := pack.Goodput / sliced.Goodput; x < c.overSlicing {
			t.Errorf("load %v: %.2f times what time slicing does, want %v", c.offered, x, c.overSlicing)
		}
		if pack.Missed*1000 > pack.Met {
			t.Errorf("load %v: %d were admitted and late", c.offered, pack.Missed)
		}
	}
}

// Many GPUs are no special case.
func TestManyGPUs(t *testing.T) {
	c := Default()
	c.GPUs, c.Seconds = 200, 0.01
	a, err := Run(c, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	if p := a.Policies[0]; p.OfBound < 0.95 {
		t.Errorf("%+v of a bound of %v", p, a.Bound)
	}
	b, err := Run(c, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%+v\n%+v", a, b)
	}
}

func TestArrivals(t *testing.T) {
	for _, bursty := range []bool{false, true} {
		c := Default()
		c.Seconds = 20
		l, err := newLoad(&c)
		if err != nil {
			t.Fatal(err)
		}
		l.rates(0.7)
		l.random(bursty)
		var w, b float64
		for _, a := range l.arrivals {
			for _, p := range l.tenants[a.tenant].parts {
				w, b = w+float64(p.alone)*float64(p.w)/one, b+float64(p.alone)*float64(p.b)/one
			}
			if in := math.Mod(float64(a.at), burstPeriod); bursty && in > burstPeriod*burstShare+1 {
				t.Fatalf("an arrival at %d is outside of bursts", a.at)
			}
		}
		if got := max(w, b) / float64(l.span); math.Abs(got-0.7) > 0.03 {
			t.Errorf("bursty %v: a load of %.3f, want 0.7", bursty, got)
		}
	}
}

func TestReplay(t *testing.T) {
	c := Config{Tenants: []Tenant{{Name: "a b", SLO: 1, Parts: stages(1, 600, 1, 1)}}}
	res, err := Replay(c, strings.NewReader("# two at once, of which one must be late\n0.5 a b\n\n0.5  a b\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := res.Policies[0]; res.Requests != 2 || p.Met != 1 || p.Refused != 1 {
		t.Errorf("%+v", res)
	}
	for text, want := range map[string]string{
		"x a b":     `line 1: "x" is no moment`,
		"\n-1 a b":  `line 2: "-1" is no moment`,
		"NaN a b":   "no moment",
		"1 c":       `there is no tenant "c"`,
		"1":         `there is no tenant ""`,
		"1e300 a b": "no moment",
	} {
		if _, err := Replay(c, strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestRefusedConfigs(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"10001 GPUs":        func(c *Config) { c.GPUs = 10_001 },
		"NaN seconds":       func(c *Config) { c.Seconds = math.NaN() },
		`arrivals "x"`:      func(c *Config) { c.Arrivals = "x" },
		"noise of -1":       func(c *Config) { c.Noise = -1 },
		"overhead of -1":    func(c *Config) { c.Overhead = -1 },
		"quantum of -1":     func(c *Config) { c.Quantum = -1 },
		"0 tenants":         func(c *Config) { c.Tenants = nil },
		"a share of -1":     func(c *Config) { c.Tenants[0].Share = -1 },
		"0 parts":           func(c *Config) { c.Tenants[0].Parts = nil },
		"a time of 0s":      func(c *Config) { c.Tenants[0].Parts[0].Alone = 0 },
		"width 2":           func(c *Config) { c.Tenants[0].Parts[0].Width = 2 },
		"already":           func(c *Config) { c.Tenants[0].Name = c.Tenants[1].Name },
		"oversubscription":  func(c *Config) { c.Oversubscribe = 2 },
		"simulate fewer":    func(c *Config) { c.Seconds = 3600 },
		"a deadline of":     func(c *Config) { c.Tenants[0].SLO = -1 },
		"65 instances":      func(c *Config) { c.Tenants[0].Instances = 65 },
		"a weight of NaN":   func(c *Config) { c.Tenants[0].Weight = math.NaN() },
		"a surplus of +Inf": func(c *Config) { c.Surplus = math.Inf(1) },
	} {
		c := Default()
		change(&c)
		if _, err := Run(c, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, x := range []float64{0, -1, 101, math.NaN()} {
		if _, err := Run(Default(), x); err == nil {
			t.Errorf("a load of %v is taken", x)
		}
	}
}
