// Package sim runs package pack and other policies on GPUs in simulated time, and computes what no policy can beat.
//
// # The model
//
// A GPU shares itself between the parts under way (processor sharing): while their widths add up to one at most, and
// their bandwidths too, each proceeds as alone; otherwise all are slowed by the larger sum. Starting a part and
// noticing its end costs Overhead, during which it takes its room. Times of parts scatter by Noise around those of
// the configuration, the same for every policy. Time counts in nanoseconds.
//
// What the model leaves out: caches and the memory system beyond a share of bandwidth, the granularity of blocks
// (waves, and wide kernels that keep multiprocessors until their blocks end), clocks and power, copies, state that
// moves between GPUs. Time slicing switches for nothing. It compares decisions; it does not predict a GPU.
//
// # The policies
//
//	pack          package pack
//	time slicing  one request at a time on a GPU, tenants in turn, for a quantum
//	spatial       everything at once, each tenant's requests in order of arrival; no admission
//	fifo          one request at a time, in the order of arrival
//	bound         at most so many can be answered in time: see load.bound
//
// The three in the middle drop a request that is past its deadline before it has begun, unless the configuration says
// KeepLate: without that, a queue once late stays late, and they answer nothing in time under overload. They give an
// arrival to the emptiest of eight GPUs.
//
// Same configuration and seed, same result. The package imports pack alone.
package sim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"holdfast/internal/pack"
)

// A Config describes a simulation; it is read from JSON.
type Config struct {
	GPUs    int     `json:"gpus,omitempty"`    // default 1
	Seconds float64 `json:"seconds,omitempty"` // in which requests arrive; default 2
	Seed    uint64  `json:"seed,omitempty"`
	// Arrivals is "poisson" (the default) or "bursty": all in the first fifth of every 50 ms.
	Arrivals      string   `json:"arrivals,omitempty"`
	Noise         float64  `json:"noise,omitempty"`         // standard deviation of a part's time, of its logarithm
	Overhead      float64  `json:"overhead_us,omitempty"`   // of a part
	Quantum       float64  `json:"quantum_ms,omitempty"`    // of time slicing; default 2
	Oversubscribe float64  `json:"oversubscribe,omitempty"` // see pack.Config
	Surplus       float64  `json:"surplus,omitempty"`       // see pack.Config
	Sure          float64  `json:"sure,omitempty"`          // see pack.Config
	KeepLate      bool     `json:"keep_late,omitempty"`
	Tenants       []Tenant `json:"tenants"`
}

// A Tenant is one model. Instances, Queue and Weight are those of pack.Tenant.
type Tenant struct {
	Name      string  `json:"name"`
	SLO       float64 `json:"slo_ms,omitempty"` // 0: no deadline
	Weight    float64 `json:"weight,omitempty"`
	Instances int     `json:"instances,omitempty"`
	Queue     int     `json:"queue,omitempty"`
	Share     float64 `json:"share,omitempty"` // of the work that all tenants offer; default 1, as much as others
	Parts     []Part  `json:"parts"`
}

// A Part is a part of a request. Width and bandwidth are shares of a GPU; 0: see pack.Part.
type Part struct {
	Alone     float64 `json:"us"` // µs alone
	Width     float64 `json:"width,omitempty"`
	Bandwidth float64 `json:"bandwidth,omitempty"`
}

func (t *Tenant) share() float64 { return cmp.Or(t.Share, 1) }
func (t *Tenant) instances() int { return cmp.Or(t.Instances, 1) }

// pack is the tenant as the scheduler has it. The queue is bounded by what can be admitted.
func (t *Tenant) pack(room int) pack.Tenant {
	p := pack.Tenant{Name: t.Name, SLO: ms(t.SLO), Weight: t.Weight, Instances: t.Instances, Queue: t.Queue}
	if p.Queue == 0 {
		p.Queue = min(64*max(1, room), 1<<20)
	}
	for _, x := range t.Parts {
		p.Parts = append(p.Parts, pack.Part{Alone: time.Duration(x.Alone * 1e3), Width: x.Width,
			Bandwidth: x.Bandwidth})
	}
	return p
}

func ms(x float64) time.Duration { return time.Duration(x * 1e6) }

// complete fills in defaults and refuses what cannot be simulated.
func (c *Config) complete() error {
	c.GPUs, c.Seconds = cmp.Or(c.GPUs, 1), cmp.Or(c.Seconds, 2)
	c.Quantum, c.Arrivals = cmp.Or(c.Quantum, 2), cmp.Or(c.Arrivals, "poisson")
	switch {
	case c.GPUs < 1 || c.GPUs > 10_000:
		return fmt.Errorf("%d GPUs: 1 to 10,000", c.GPUs)
	case !(c.Seconds > 0 && c.Seconds <= 3600):
		return fmt.Errorf("%v seconds: above 0, at most 3600", c.Seconds)
	case c.Arrivals != "poisson" && c.Arrivals != "bursty":
		return fmt.Errorf("arrivals %q: poisson or bursty", c.Arrivals)
	case !(c.Noise >= 0 && c.Noise <= 2):
		return fmt.Errorf("noise of %v: 0 to 2", c.Noise)
	case !(c.Overhead >= 0 && c.Overhead <= 1e6):
		return fmt.Errorf("overhead of %v µs: 0 to 1,000,000", c.Overhead)
	case !(c.Quantum > 0 && c.Quantum <= 1e6):
		return fmt.Errorf("a quantum of %v ms: above 0, at most 1,000,000", c.Quantum)
	case len(c.Tenants) == 0 || len(c.Tenants) > 10_000:
		return fmt.Errorf("%d tenants: 1 to 10,000", len(c.Tenants))
	}
	for _, t := range c.Tenants {
		if !(t.Share >= 0 && t.Share <= 1e6) {
			return fmt.Errorf("tenant %q: a share of %v: 0 to 1e6", t.Name, t.Share)
		}
	}
	_, _, err := (&load{config: c}).scheduler()
	return err
}

// A Result is what policies did with one load.
type Result struct {
	Offered  float64  `json:"load"`      // of what the GPUs can do; 0: arrivals of a file
	Requests int      `json:"requests"`  // that arrived
	Deadline int      `json:"deadlines"` // of these, with a deadline
	Bound    float64  `json:"bound"`     // requests that can be answered in time at most
	Policies []Policy `json:"policies"`
	Seconds  float64  `json:"seconds"` // in which they arrived
}

// A Policy is what one policy did.
type Policy struct {
	Name    string  `json:"policy"`
	Met     int     `json:"met"`     // answered in time
	Missed  int     `json:"missed"`  // answered too late
	Refused int     `json:"refused"` // not answered: refused when they came, or dropped
	Other   int     `json:"other"`   // answered, without deadline
	Goodput float64 `json:"goodput"` // answered in time in a second
	OfBound float64 `json:"of_bound"`
	P50     float64 `json:"p50_ms"` // of those answered
	P99     float64 `json:"p99_ms"`
}

// Run simulates random arrivals: offered is the share of what the GPUs can do.
func Run(c Config, offered float64) (*Result, error) {
	l, err := newLoad(&c)
	if err != nil {
		return nil, err
	}
	if !(offered > 0 && offered <= 100) {
		return nil, fmt.Errorf("load %v: above 0, at most 100", offered)
	}
	l.rates(offered)
	var expected float64
	for _, t := range l.tenants {
		expected += t.rate * float64(l.span)
	}
	if expected > maxArrivals {
		return nil, fmt.Errorf("about %.0f requests are more than %d: simulate fewer seconds", expected, maxArrivals)
	}
	l.random(c.Arrivals == "bursty")
	return l.run(offered)
}

// Replay simulates arrivals that are read: lines of a moment in milliseconds and the name of a tenant. Empty lines and
// those that begin with # are passed over.
func Replay(c Config, arrivals io.Reader) (*Result, error) {
	l, err := newLoad(&c)
	if err != nil {
		return nil, err
	}
	if err := l.read(arrivals); err != nil {
		return nil, err
	}
	return l.run(0)
}

func (l *load) run(offered float64) (*Result, error) {
	res := &Result{Offered: offered, Requests: len(l.arrivals), Bound: l.bound(), Seconds: float64(l.span) / 1e9}
	for _, a := range l.arrivals {
		if l.tenants[a.tenant].slo > 0 {
			res.Deadline++
		}
	}
	p, err := newPacked(l)
	if err != nil {
		return nil, err
	}
	for _, x := range []struct {
		name string
		policy
	}{{"pack", p}, {"time slicing", newSliced(l)}, {"spatial", newSpatial(l)}, {"fifo", newFIFO(l)}} {
		requests := l.requests()
		newMachine(l, x.policy).run(requests)
		res.Policies = append(res.Policies, l.judge(x.name, requests, res.Bound))
	}
	return res, nil
}

// judge counts what became of requests.
func (l *load) judge(name string, requests []request, bound float64) Policy {
	p := Policy{Name: name}
	var took []int64
	for i := range requests {
		r := &requests[i]
		switch {
		case r.dropped:
			p.Refused++
		case r.deadline == 0:
			p.Other++
		case r.end <= r.deadline:
			p.Met++
		default:
			p.Missed++
		}
		if r.end > 0 {
			took = append(took, r.end-r.at)
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		p.P50, p.P99 = float64(took[n/2])/1e6, float64(took[n*99/100])/1e6
	}
	if l.span > 0 {
		p.Goodput = float64(p.Met) / (float64(l.span) / 1e9)
	}
	if bound > 0 {
		p.OfBound = float64(p.Met) / bound
	}
	return p
}
