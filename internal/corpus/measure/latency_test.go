package measure

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
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

// BenchmarkSequence makes the launches of each program in their order, with a footprint.Recent that starts empty: first
// launches find neither themselves nor their kernels where the last one has left everything.
func BenchmarkSequence(b *testing.B) {
	lists := map[string][]recorded{}
	launches(b, func(_ *Measurement, a *corpus.Application, _ string, e evaluation) {
		lists[a.Name] = append(lists[a.Name], recorded{e, a.Launches[e.launch].Count})
	})
	var l LatencyRecorded
	for b.Loop() {
		var c sequence
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			c.measure(name, lists[name])
		}
		if x := c.latency(); l.All.Launches == 0 || x.All.P99 < l.All.P99 {
			l = x // something else may have run
		}
	}
	for _, x := range []struct {
		name string
		of   Distribution
	}{{"all", l.All}, {"remembered", l.Remembered}, {"first", l.Others}} {
		b.ReportMetric(x.of.P50, x.name+"-p50-ns")
		b.ReportMetric(x.of.P99, x.name+"-p99-ns")
		b.ReportMetric(x.of.Max, x.name+"-max-ns")
		b.Logf("%s: %+v", x.name, x.of)
	}
}

// evaluations are those of all different instances in the corpus.
func evaluations(b *testing.B) []evaluation {
	var list []evaluation
	launches(b, func(m *Measurement, _ *corpus.Application, key string, e evaluation) {
		if m.first(key) {
			list = append(list, e)
		}
	})
	return list
}

// launches calls each for all launches in the corpus, in their order, with keys of their instances.
func launches(b *testing.B, each func(m *Measurement, a *corpus.Application, key string, e evaluation)) {
	apps, err := corpus.Load("../../../test/corpus")
	if err != nil {
		b.Fatal(err)
	}
	which := os.Getenv("HOLDFAST_CORPUS")
	m := New(Defaults())
	n := 0
	for _, a := range apps {
		if which != "" && which != a.Name {
			continue
		}
		j := m.newJob(b.Context(), a)
		for x, e := range j.foreseen(b) {
			l := &a.Launches[e.launch]
			d := x.digests[l.Kernel]
			each(m, a, a.Key(l, string(d[:])), e)
			n++
		}
		a.Release()
	}
	if n == 0 {
		b.Fatal("no launches")
	}
}
