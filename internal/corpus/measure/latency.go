package measure

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"holdfast/internal/footprint"
)

// An evaluation is an instance that is evaluated again, to see how long that takes.
type evaluation struct {
	s      *footprint.Summary
	l      *footprint.Launch
	launch int
}

// A clock measures evaluations. Nothing else should run meanwhile.
type clock struct {
	times  []timed
	allocs uint64
}

type timed struct {
	ns   float64
	what string
}

func (c *clock) measure(where string, list []evaluation) {
	const batches, size = 5, 16
	var in footprint.Instance
	for _, e := range list {
		best := time.Duration(1 << 62)
		for range batches {
			start := time.Now()
			for range size {
				e.s.Evaluate(e.l, &in)
			}
			best = min(best, time.Since(start))
		}
		c.times = append(c.times, timed{float64(best) / size,
			fmt.Sprintf("%s: launch %d of %s", where, e.launch, e.s.Name)})
	}
	// Once more, with an instance that has all the memory it needs.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, e := range list {
		e.s.Evaluate(e.l, &in)
	}
	runtime.ReadMemStats(&after)
	c.allocs += after.Mallocs - before.Mallocs
}

// A recorded launch, as often as the program made it.
type recorded struct {
	evaluation
	count uint64
}

// A sequence measures launches in the order in which programs made them, by one footprint.Recent for each program. Of
// launches that are recorded once with a count, the first one and another one that follows are evaluated. Then the
// program makes all of its launches a second time.
type sequence struct {
	times  []passed // by time
	second []passed
	recent footprint.Recent
	allocs uint64
}

type passed struct {
	timed
	count      uint64
	remembered bool
}

func (c *sequence) measure(where string, list []recorded) {
	const rounds = 7
	var in footprint.Instance
	var before, after runtime.MemStats
	passes := [2][]passed{make([]passed, 0, 2*len(list)), make([]passed, 0, 2*len(list))}
	for round := range rounds {
		c.recent.Forget()
		if round == rounds-1 {
			runtime.ReadMemStats(&before)
		}
		for i := range passes {
			c.pass(where, list, &passes[i], &in)
		}
	}
	runtime.ReadMemStats(&after)
	c.allocs += after.Mallocs - before.Mallocs
	c.times, c.second = append(c.times, passes[0]...), append(c.second, passes[1]...)
}

// pass makes the launches once; the best time of each counts.
func (c *sequence) pass(where string, list []recorded, times *[]passed, in *footprint.Instance) {
	n := 0
	once := func(r *recorded, count uint64) {
		hits := c.recent.Hits
		start := time.Now()
		c.recent.Evaluate(r.s, r.l, in)
		ns := float64(time.Since(start))
		if n == len(*times) {
			what := fmt.Sprintf("%s: launch %d of %s", where, r.launch, r.s.Name)
			*times = append(*times, passed{timed{ns, what}, count, c.recent.Hits > hits})
		}
		x := &(*times)[n]
		x.ns = min(x.ns, ns)
		n++
	}
	for i := range list {
		r := &list[i]
		if r.l == nil {
			continue
		}
		once(r, 1)
		if r.count > 1 {
			once(r, r.count-1)
		}
	}
}

func (c *sequence) latency() LatencyRecorded {
	all := func(*passed) bool { return true }
	remembered := func(x *passed) bool { return x.remembered }
	others := func(x *passed) bool { return !x.remembered }
	l := LatencyRecorded{
		All: distribution(c.times, all), Remembered: distribution(c.times, remembered),
		Others: distribution(c.times, others), Second: distribution(c.second, all),
		SecondRemembered: distribution(c.second, remembered).Launches,
	}
	if n := len(c.times) + len(c.second); n > 0 {
		l.Allocations = float64(c.allocs) / float64(n)
	}
	return l
}

// distribution sorts times, and sums up some of them.
func distribution(times []passed, which func(*passed) bool) Distribution {
	slices.SortFunc(times, func(a, b passed) int { return cmp.Compare(a.ns, b.ns) })
	var d Distribution
	for i := range times {
		if x := &times[i]; which(x) {
			d.Launches += x.count
			d.Max, d.Slowest = x.ns, x.what
		}
	}
	at := func(share float64) float64 {
		left := uint64(share * float64(d.Launches))
		for i := range times {
			x := &times[i]
			switch {
			case !which(x):
			case left < x.count:
				return x.ns
			default:
				left -= x.count
			}
		}
		return 0
	}
	d.P50, d.P99 = at(0.5), at(0.99)
	return d
}

func (c *clock) latency() Latency {
	n := len(c.times)
	if n == 0 {
		return Latency{}
	}
	slices.SortFunc(c.times, func(a, b timed) int { return cmp.Compare(a.ns, b.ns) })
	at := func(share float64) float64 { return c.times[min(int(share*float64(n)), n-1)].ns }
	last := c.times[n-1]
	return Latency{Instances: n, P50: at(0.5), P99: at(0.99), Max: last.ns, Slowest: last.what,
		Allocations: float64(c.allocs) / float64(n)}
}
