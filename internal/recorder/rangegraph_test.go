package recorder

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// graphOf tells a graph: k is a kernel, j a joint, z a copy of nothing. Edges are "0>1 0>2"; "-" stands for none,
// and "" for those that are not told.
func graphOf(id uint32, nodes, edges string) []trace.Record {
	list := []trace.Record{&trace.Graph{ID: id, Nodes: uint32(len(nodes))}}
	for i, kind := range nodes {
		var rec trace.Record
		switch kind {
		case 'k':
			l := launch(0, trace.Node)
			l.Cell, l.Thread = id, uint32(i)
			rec = l
		case 'j':
			rec = &trace.Other{Flags: trace.Node | trace.Joint, Cell: id, Thread: uint32(i)}
		case 'z':
			rec = &trace.Copy{Flags: trace.Node, Cell: id, Thread: uint32(i)}
		}
		list = append(list, rec)
	}
	if edges != "" {
		list = append(list, &trace.GraphEdges{ID: id, Edges: edgeList(edges)})
	}
	return append(list, &trace.GraphEnd{ID: id})
}

func edgeList(text string) (edges []trace.Edge) {
	for _, word := range strings.Fields(strings.TrimPrefix(text, "-")) {
		var e trace.Edge
		fmt.Sscanf(word, "%d>%d", &e.From, &e.To)
		edges = append(edges, e)
	}
	return edges
}

// What the works of graphs come after. Work 0 is a copy to the device, on stream 16; what follows is on that stream if
// it is not said otherwise.
func TestGraphOrder(t *testing.T) {
	run := func(id uint32, stream uint64) trace.Record {
		return &trace.GraphLaunch{Graph: id, Thread: 1, Stream: stream}
	}
	version := []trace.Record{&trace.GraphVersion{ID: 2, Base: 1}, func() trace.Record {
		l := launch(0, trace.Node)
		l.Cell, l.Thread = 2, 1
		return l
	}(), &trace.GraphEnd{ID: 2}, run(2, 16)}
	type after = [][]uint32
	for _, c := range []struct {
		name, nodes, edges string
		then               []trace.Record // after one launch of it
		want               after
	}{
		{"a diamond", "kkkk", "0>1 0>2 1>3 2>3", []trace.Record{launch(16, 0)}, after{nil, {0}, {1}, {1}, {2, 3}, {4}}},
		{"a forest", "kkkk", "0>2 1>3", []trace.Record{launch(16, 0)}, after{nil, {0}, {0}, {1}, {2}, {3, 4}}},
		{"no edges", "kkk", "-", []trace.Record{launch(16, 0)}, after{nil, {0}, {0}, {0}, {1, 2, 3}}},
		{"edges that were not told", "kkk", "", []trace.Record{launch(16, 0)}, after{nil, {0}, {1}, {2}, {3}}},
		{"an edge that others imply", "kkk", "0>1 0>2 1>2", nil, after{nil, {0}, {1}, {2}}},
		{"an edge twice", "kk", "0>1 0>1", nil, after{nil, {0}, {1}}},
		{"a joint", "kkjkk", "0>2 1>2 2>3 2>4", nil, after{nil, {0}, {0}, {1, 2}, {1, 2}}},
		{"a joint at the beginning and one at the end", "jkkj", "0>1 0>2 1>3 2>3", []trace.Record{launch(16, 0)},
			after{nil, {0}, {0}, {1, 2}}},
		{"a joint beside", "kj", "-", []trace.Record{launch(16, 0)}, after{nil, {0}, {1}}},
		{"joints alone", "jj", "0>1", []trace.Record{launch(16, 0)}, after{nil, {0}}},
		{"no nodes", "", "-", []trace.Record{launch(16, 0)}, after{nil, {0}}},
		{"joints behind each other", "kjjk", "0>1 1>2 2>3", nil, after{nil, {0}, {1}}},
		{"a child", "kjkkjk", "0>1 1>2 1>3 2>4 3>4 4>5", nil, after{nil, {0}, {1}, {1}, {2, 3}}},
		{"a node that copies nothing", "kzk", "0>1 1>2", nil, after{nil, {0}, {1}}},
		{"again", "kk", "-", []trace.Record{run(1, 16)}, after{nil, {0}, {0}, {1, 2}, {1, 2}}},
		{"a version", "kk", "-", version, after{nil, {0}, {0}, {1, 2}, {1, 2}}},
		{"on another stream", "kk", "-", []trace.Record{run(1, 32), launch(32, 0), launch(16, 0)},
			after{nil, {0}, {0}, nil, nil, {3, 4}, {1, 2}}},
		{"an event", "kk", "-", []trace.Record{
			&trace.Order{Kind: trace.EventRecorded, Stream: 16, Event: 1},
			&trace.Order{Kind: trace.StreamWaits, Stream: 32, Event: 1}, launch(32, 0)},
			after{nil, {0}, {0}, {1, 2}}},
		{"the legacy stream", "kk", "-", []trace.Record{launch(32, 0), run(1, 1), launch(32, 0)},
			after{nil, {0}, {0}, nil, {1, 2, 3}, {1, 2, 3}, {4, 5}}},
		{"what the host has waited for", "kk", "-", []trace.Record{&trace.Order{Kind: trace.HostSynced},
			launch(32, 0), launch(16, 0)}, after{nil, {0}, {0}, {1, 2}, {1, 2}}},
		{"a launch that failed", "kkk", "0>1 0>2", []trace.Record{&trace.Failed{Thread: 1}, launch(16, 0)},
			after{nil, {0}}},
	} {
		tl := tell(t, begins()...)
		tl.tell(input(0x200000, "input")...)
		tl.tell(graphOf(1, c.nodes, c.edges)...)
		tl.tell(run(1, 16))
		tl.tell(c.then...)
		tl.tell(&trace.RangeEnd{Thread: 1})
		_, work := tl.finish()
		var got after
		for _, w := range work {
			got = append(got, w.After)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A copy to the host anywhere in a graph: what comes after the graph's launch comes after everything. Copies of several
// slices are several works, one behind the other.
func TestGraphCopies(t *testing.T) {
	out := &trace.Copy{Flags: trace.Node | trace.DstHost, Call: 150, Thread: 0, Cell: 1, Dst: 0x7f0000000000,
		Src: 0x200000, Width: 4, Height: 1, Depth: 1}
	slab := &trace.Copy{Flags: trace.Node, Call: 150, Thread: 1, Cell: 1, Dst: 0x200000, DstSlice: 8, Src: 0x201000,
		SrcSlice: 8, Width: 4, Height: 1, Depth: 2}
	k := launch(0, trace.Node)
	k.Cell, k.Thread = 1, 2
	tl := tell(t, begins()...)
	tl.tell(launch(48, 0), &trace.Graph{ID: 1}, out, slab, k, &trace.GraphEdges{ID: 1, Edges: edgeList("1>2")},
		&trace.GraphEnd{ID: 1}, &trace.GraphLaunch{Graph: 1, Thread: 1, Stream: 16}, launch(16, 0), launch(32, 0),
		&trace.RangeEnd{Thread: 1})
	_, work := tl.finish()
	var got [][]uint32
	for _, w := range work {
		got = append(got, w.After)
	}
	all := []uint32{0, 1, 4}
	if want := [][]uint32{nil, nil, nil, {2}, {3}, all, all}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// reaches says which works are complete before each, from what they come after.
func reaches(after [][]int) [][]bool {
	out := make([][]bool, len(after))
	for w, list := range after {
		out[w] = make([]bool, len(after))
		for _, a := range list {
			out[w][a] = true
			for i, r := range out[a] {
				out[w][i] = out[w][i] || r
			}
		}
	}
	return out
}

// However wide graphs are, what works come after has room in a record, and no order is lost.
func TestWideGraphs(t *testing.T) {
	const wide = 2*mostTogether + 5
	for name, shape := range map[string]string{
		"roots":           strings.Repeat("k", wide),
		"before a joint":  strings.Repeat("k", wide) + "jkkk",
		"between joints":  "k" + "j" + strings.Repeat("k", wide) + "j" + "kkk",
		"two joints":      strings.Repeat("k", wide) + "j" + strings.Repeat("k", wide),
		"a single one":    "k",
		"of a single one": "kj" + strings.Repeat("k", wide),
	} {
		tl := tell(t, begins()...)
		tl.tell(input(0x200000, "input")...)
		g := graphOf(1, shape, "-")
		var edges []trace.Edge
		joint, last := -1, 0 // where nodes begin that come after the last joint
		for i, kind := range shape {
			if kind == 'j' {
				for k := last; k < i; k++ {
					edges = append(edges, trace.Edge{From: uint32(k), To: uint32(i)})
				}
				joint, last = i, i+1
			} else if joint >= 0 {
				edges = append(edges, trace.Edge{From: uint32(joint), To: uint32(i)})
			}
		}
		end := g[len(g)-1]
		g = g[:len(g)-2]
		for piece := range slices.Chunk(edges, 4000) {
			g = append(g, &trace.GraphEdges{ID: 1, Edges: piece})
		}
		if len(edges) == 0 {
			g = append(g, &trace.GraphEdges{ID: 1})
		}
		tl.tell(append(g, end)...)
		for range 2 {
			tl.tell(&trace.GraphLaunch{Graph: 1, Thread: 1, Stream: 16})
		}
		tl.tell(launch(16, 0), &trace.RangeEnd{Thread: 1})
		_, work := tl.finish()
		checkWide(t, name, shape, work)
	}
}

// checkWide holds the work of two launches of a graph of TestWideGraphs against its shape: nodes behind a joint come
// after all before it.
func checkWide(t *testing.T, name, shape string, work []recording.Work) {
	t.Helper()
	total := 0
	// A number for each work: all works below that are complete before it.
	complete := make([]int, len(work))
	covered := map[int]bool{}
	for i, w := range work {
		total += len(w.After)
		if len(w.After) > mostTogether+4 {
			t.Fatalf("%s: work %d comes after %d", name, i, len(w.After))
		}
		for _, a := range w.After {
			complete[i] = max(complete[i], complete[a])
		}
		// Works from there on are complete if going back from this one meets them.
		clear(covered)
		todo := slices.Clone(w.After)
		for len(todo) > 0 {
			a := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if int(a) < complete[i] || covered[int(a)] {
				continue
			}
			covered[int(a)] = true
			todo = append(todo, work[a].After...)
		}
		for covered[complete[i]] {
			complete[i]++
		}
	}
	if limit := 16 * len(work); total > limit+8*mostSpent {
		t.Errorf("%s: %d works come after %d in all", name, len(work), total)
	}
	at := 1
	for range 2 {
		first := at // of what stands between two joints
		for _, kind := range shape {
			if kind == 'j' {
				first = at
				continue
			}
			if complete[at] < first {
				t.Fatalf("%s: work %d comes after the first %d, want %d", name, at, complete[at], first)
			}
			at++
		}
	}
	if complete[at] != at {
		t.Errorf("%s: the work behind the graphs comes after the first %d of %d", name, complete[at], at)
	}
}

// Random graphs: a work comes after another if and only if edges say so.
func TestRandomGraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 120 {
		n := 1 + rng.IntN(12)
		kinds, want := make([]byte, n), make([]map[int]bool, n)
		var edges []string
		for i := range n {
			kinds[i] = "kkj"[rng.IntN(3)]
			want[i] = map[int]bool{}
			for k := range i {
				if rng.IntN(4) > 0 {
					continue
				}
				edges = append(edges, fmt.Sprintf("%d>%d", k, i))
				want[i][k] = true
				for a := range want[k] {
					want[i][a] = true
				}
			}
		}
		rng.Shuffle(len(edges), func(i, k int) { edges[i], edges[k] = edges[k], edges[i] })
		tl := tell(t, begins()...)
		tl.tell(input(0x200000, "input")...)
		tl.tell(graphOf(1, string(kinds), "-"+strings.Join(edges, " "))...)
		tl.tell(&trace.GraphLaunch{Graph: 1, Thread: 1, Stream: 16}, launch(16, 0), &trace.RangeEnd{Thread: 1})
		_, work := tl.finish()
		after := make([][]int, len(work))
		for i, w := range work {
			for _, a := range w.After {
				after[i] = append(after[i], int(a))
			}
		}
		got := reaches(after)
		var works []int // node of each work but the first and the last
		for i, kind := range kinds {
			if kind == 'k' {
				works = append(works, i)
			}
		}
		for i, node := range works {
			for k, other := range works {
				if got[i+1][k+1] != want[node][other] {
					t.Fatalf("%s %v: node %d comes after node %d: %v", kinds, edges, node, other, got[i+1][k+1])
				}
			}
			if !got[i+1][0] || !got[len(works)+1][i+1] {
				t.Fatalf("%s %v: node %d, the stream around it", kinds, edges, node)
			}
		}
	}
}
