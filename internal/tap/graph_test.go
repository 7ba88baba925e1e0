package tap_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/internal/process"
	"holdfast/internal/recorder"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// A graphs is the program graphs, and what its graph is known to consist of: the address of each piece of work.
type graphs struct {
	*program
	at  uint64
	now [7]uint64 // four kernels, the memset, two kernels of the child
	as  uint64    // what the graph is that it is made of, but for its child
}

func (g *graphs) made() { g.now = [7]uint64{g.as, g.as, g.as, g.as, g.as, g.at, g.at} }

func (g *graphs) kernel(i int, at uint64) {
	g.OK("kernel %d %d", i, at)
	g.now[i] = at
}

// change does one of the things that a program can do to its graph.
func (g *graphs) change(r *rand.Rand) {
	at := g.at + 8*r.Uint64N(4)
	switch n := r.IntN(20); {
	case n < 14:
		g.kernel(n%4, at)
	case n < 16:
		g.OK("memset %d", at)
		g.now[4] = at
	case n < 18:
		g.OK("child %d", at)
		g.now[5], g.now[6] = at, at
	case n < 19:
		g.OK("update %d", at)
		g.as = at
		g.made()
	default:
		g.OK("destroy")
		g.OK("make")
		g.made()
	}
}

// address is what a piece of a graph's work is on.
func address(r trace.Record) uint64 {
	switch r := r.(type) {
	case *trace.Launch:
		return word(r.Params)
	case *trace.Copy:
		return r.Dst
	}
	return 0
}

// Whatever a program does to its graph, a launch of it is recorded as what it was then.
func TestGraphVersions(t *testing.T) {
	t.Run("trace", func(t *testing.T) { testGraphVersions(t, nil) })
	// Its nodes are a chain; the child's stand between two joints.
	chain := []trace.Edge{}
	for i := range uint32(8) {
		chain = append(chain, trace.Edge{From: i, To: i + 1})
	}
	t.Run("range", func(t *testing.T) { testGraphVersions(t, chain, "HOLDFAST_RANGE=holdfast") })
}

// testGraphVersions wants edges of every version if there are any.
func testGraphVersions(t *testing.T, edges []trace.Edge, env ...string) {
	env = append(env, gpu(t)...)
	r := record(t)
	g := &graphs{program: startProgram(t, "graphs", append(env, "HOLDFAST_TRACE="+r.socket)...)}
	g.at = g.OK("init")[0]
	g.as = g.at
	g.OK("make")
	g.made()
	var want [][7]uint64
	launch := func() {
		g.OK("launch")
		want = append(want, g.now)
	}
	launch()
	for i := range 8 { // from one to the other and back
		for n := range 4 {
			g.kernel(n, g.at+8*uint64(i%2))
		}
		launch()
	}
	turns := len(want)
	for i := range 20 { // never the same
		g.kernel(0, g.at+8*uint64(i+2))
		launch()
	}
	fresh := len(want)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		for range rng.IntN(3) {
			g.change(rng)
		}
		launch()
	}
	g.OK("destroy")
	g.Quit()
	list, records := r.finish()
	s, launches, nodes, told, live := trace.NewState(), 0, 0, 0, map[uint32]bool{}
	for _, rec := range records[list[0].Number] {
		s.Apply(rec)
		switch rec := rec.(type) {
		case *trace.Launch:
			nodes++
		case *trace.Copy:
			if rec.Flags&trace.Node != 0 {
				nodes++
			}
		case *trace.Graph:
			told++
			live[rec.ID] = true
		case *trace.GraphVersion:
			told++
			live[rec.ID] = true
		case *trace.GraphFree:
			delete(live, rec.ID)
		case *trace.GraphLaunch:
			v := s.Graph(rec.Graph)
			if v == nil || !v.Done || v.Flags&trace.Incomplete != 0 || v.Ordered != (edges != nil) ||
				!slices.Equal(v.Edges, edges) {
				t.Fatalf("launch %d of %+v", launches, v)
			}
			var got []uint64
			for _, w := range v.Work {
				if o, ok := w.(*trace.Other); !ok || o.Flags&trace.Joint == 0 {
					got = append(got, address(w))
				}
			}
			if !slices.Equal(got, want[launches][:]) {
				t.Fatalf("launch %d is of %#x, want %#x", launches, got, want[launches])
			}
			if len(live) > 9 {
				t.Fatalf("%d versions", len(live))
			}
			launches++
			switch {
			case launches == turns && (told != 2 || nodes != 7+4):
				t.Errorf("two versions were told as %d, with %d nodes", told, nodes)
			case launches == fresh && (told != 2+20 || nodes != 7+4+20):
				t.Errorf("20 changes of one node more were told as %d, with %d nodes", told-2, nodes-7-4)
			}
		}
	}
	if launches != len(want) || len(live) > 0 {
		t.Errorf("%d launches of %d, %d versions at the end", launches, len(want), len(live))
	}
}

// A tap that begins when a graph has been told to another, in several versions.
func TestGraphVersionsAsk(t *testing.T) {
	w, answer := holdProgram(t, "graphs")
	g := &graphs{program: w.p, at: answer[0], as: answer[0]}
	g.OK("make")
	g.made()
	g.OK("launch")
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3 {
		g.change(rng) // while nobody listens
		tp := w.tap(process.TapConfig{})
		next(t, "the module", w.modules)
		w.ask(tp, wire.AskWrites)
		for range 40 {
			for range rng.IntN(3) {
				g.change(rng)
			}
			g.Send("launch")
			work := next(t, "the graph", w.work)
			var got []uint64
			for _, p := range work.Parts {
				if p.Launch != nil {
					got = append(got, address(p.Launch))
				} else {
					got = append(got, address(p.Copy))
				}
			}
			if work.Opaque != "" || !slices.Equal(got, g.now[:]) {
				t.Fatalf("%q: %#x, want %#x", work.Opaque, got, g.now)
			}
			work.Go()
			g.Numbers()
		}
		if err := tp.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Updated by another graph, whose nodes are not those that the program names afterwards.
	tp := w.tap(process.TapConfig{})
	w.ask(tp, wire.AskWrites)
	for _, c := range []struct{ line, opaque string }{
		{"other", ""}, {"kernel 1", "the graph was changed in a way that is not followed"}, {"update", ""},
		{"fail", "the graph was changed in a way that is not followed"}, {"update", ""},
	} {
		g.OK("%s %d", c.line, g.at+16)
		g.Send("launch")
		work := next(t, "the graph", w.work)
		if work.Opaque != c.opaque || len(work.Parts) != 7 || c.opaque == "" &&
			address(work.Parts[1].Launch) != g.at+16 {
			t.Errorf("after %s: %q, %+v", c.line, work.Opaque, work.Parts)
		}
		work.Go()
		g.Numbers()
	}
	if err := tp.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Quit()
}

// BenchmarkGraph says what launches of a graph of 200 kernels cost on a driver that does nothing when all of them get
// parameters before each, as XLA does it: ns/launch with the calls that change it, bytes/launch what is told, and
// file-bytes/launch what that is in a trace.
func BenchmarkGraph(b *testing.B) {
	const launches, rounds = 200, 20
	for _, c := range []struct {
		name  string
		turns int
	}{{"same", 1}, {"two", 2}, {"eight", 8}, {"nine", 9}, {"new", 0}} {
		args := []string{"changes", fmt.Sprint(launches), fmt.Sprint(rounds), fmt.Sprint(c.turns)}
		measure := func(b *testing.B, env ...string) {
			in, out, ready := onNull(b, args, env...)
			ready()
			b.ResetTimer()
			fmt.Fprintln(in)
			var best, mean float64
			if _, err := fmt.Fscan(out, &best, &mean); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(best, "ns/launch")
			b.ReportMetric(mean, "mean-ns")
			b.ReportMetric(0, "ns/op")
		}
		b.Run(c.name+"/plain", func(b *testing.B) { measure(b) })
		b.Run(c.name+"/recorded", func(b *testing.B) {
			l, err := wire.Listen(filepath.Join(b.TempDir(), "s"))
			if err != nil {
				b.Fatal(err)
			}
			var file bytes.Buffer
			rec, err := recorder.New(&file, func(int) []string { return nil }, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- rec.Serve(context.Background(), l) }()
			measure(b, "LD_PRELOAD="+filepath.Join(build(b), "libholdfast.so"), "HOLDFAST_TRACE="+l.Addr().String())
			l.Close()
			<-served
			list, err := rec.Finish()
			if err != nil || len(list) != 1 || list[0].Graphs != launches*rounds {
				b.Fatal(err, list)
			}
			b.ReportMetric(float64(list[0].Waits), "waits")
			b.ReportMetric(float64(file.Len())/(launches*rounds), "file-bytes/launch")
			r, err := trace.NewReader(&file)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			told := 0
			for {
				rec, err := r.Next()
				if err == io.EOF {
					break
				}
				raw, err2 := trace.Append(nil, rec)
				if err != nil || err2 != nil {
					b.Fatal(err, err2)
				}
				told += len(raw)
			}
			b.ReportMetric(float64(told)/(launches*rounds), "bytes/launch")
		})
	}
}
