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
		c.times = append(c.times, timed{float64(best) / size, fmt.Sprintf("%s: launch %d of %s", where, e.launch, e.s.Name)})
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

func (c *clock) latency() Latency {
	n := len(c.times)
	if n == 0 {
		return Latency{}
	}
	slices.SortFunc(c.times, func(a, b timed) int { return cmp.Compare(a.ns, b.ns) })
	at := func(share float64) float64 { return c.times[min(int(share*float64(n)), n-1)].ns }
	last := c.times[n-1]
	return Latency{Instances: n, P50: at(0.5), P99: at(0.99), Max: last.ns, Slowest: last.what, Allocations: float64(c.allocs) / float64(n)}
}
