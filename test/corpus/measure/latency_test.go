package measure

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"holdfast/internal/footprint"
	"holdfast/test/corpus"
)

// BenchmarkEvaluate evaluates launches of the corpus: the slowest percent of all, and a sample of the rest. With
// HOLDFAST_CORPUS=NAME it takes one application. Of the slowest, -v names the ones that it found.
func BenchmarkEvaluate(b *testing.B) {
	list := evaluations(b)
	best := make([]time.Duration, len(list))
	var in footprint.Instance
	for i, e := range list {
		best[i] = 1 << 62
		for range 5 {
			start := time.Now()
			for range 8 {
				e.s.Evaluate(e.l, &in)
			}
			best[i] = min(best[i], time.Since(start)/8)
		}
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(best[y], best[x]) })
	n := max(len(order)/100, 1)
	var sample []int
	for i := n; i < len(order); i += 16 {
		sample = append(sample, order[i])
	}
	for _, part := range []struct {
		name string
		of   []int
	}{{"slowest", order[:n]}, {"rest", sample}} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e := &list[part.of[i%len(part.of)]]
				e.s.Evaluate(e.l, &in)
			}
		})
	}
	for _, i := range order[:min(n, 10)] {
		b.Logf("%v: launch %d of %s", best[i], list[i].launch, list[i].s.Name)
	}
}

// evaluations are those of all different instances in the corpus.
func evaluations(b *testing.B) []evaluation {
	apps, err := corpus.Load("..")
	if err != nil {
		b.Fatal(err)
	}
	which := os.Getenv("HOLDFAST_CORPUS")
	m := New(Defaults())
	var list []evaluation
	for _, a := range apps {
		if which != "" && which != a.Name {
			continue
		}
		j := m.newJob(b.Context(), a)
		for i := range a.Launches {
			l := &a.Launches[i]
			if l.Module == "" {
				continue
			}
			x, err := j.module(l.Module)
			if err != nil {
				b.Fatal(err)
			}
			s, d := x.summaries[l.Kernel], x.digests[l.Kernel]
			if s == nil || !m.first(a.Key(l, string(d[:]))) {
				continue
			}
			fl, err := x.foresee(a, l, s, j.allocs)
			if err != nil {
				b.Fatal(err)
			}
			list = append(list, evaluation{s, fl, i})
		}
		a.Release()
	}
	if len(list) == 0 {
		b.Fatal("no instances")
	}
	return list
}
