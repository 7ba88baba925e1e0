package trace

import (
	"slices"
	"sort"
)

// A State is what a process has at one point of its trace. It takes the records of one process in order.
type State struct {
	images  map[uint64]*Image
	kernels map[uint32]*Kernel
	graphs  map[uint32]*GraphState
	copied  int     // nodes of graphs that are versions
	allocs  []Alloc // by address
	kept    int64   // bytes, roughly, without allocs
}

// A GraphState is an executable graph: its nodes that are work, in the driver's order.
type GraphState struct {
	Graph
	Work []Record // *Launch, *Copy, *Other
	Done bool     // all nodes were told
	// Edges says which of them come after which. It says so only if Ordered.
	Edges   []Edge
	Ordered bool

	version bool  // a GraphVersion: records of nodes have places in Work
	cost    int64 // in State.kept
}

// Version reports whether the graph was told by what differs from another: its nodes' records say their places.
func (g *GraphState) Version() bool { return g.version }

// NewState is the state of a process before its first record.
func NewState() *State {
	return &State{images: map[uint64]*Image{}, kernels: map[uint32]*Kernel{}, graphs: map[uint32]*GraphState{}}
}

// maxGraphWork bounds what a hostile trace can make a graph of.
const maxGraphWork = 1 << 20

// maxGraphEdges bounds what it can make its order of.
const maxGraphEdges = 1 << 22

// maxCopied bounds what it can do so with versions, whose records are few.
const maxCopied = 1 << 23

// Kept is how many bytes of memory the state takes, roughly, and not less: what it has from a program that may tell it
// anything. A version of a graph counts like a copy, because it outlives what it was made from.
func (s *State) Kept() int64 { return s.kept + int64(len(s.allocs))*costAlloc }

// What records take in memory, less what is of variable length.
const (
	costRecord = 256
	costAlloc  = 64
	costEdge   = 16 // twice what it has: lists grow ahead
)

func costOf(r Record) int64 {
	switch r := r.(type) {
	case *Image:
		return costRecord + 64*int64(len(r.Texts))
	case *Kernel:
		return costRecord + 16*int64(len(r.Params)) + int64(len(r.Name))
	case *Launch:
		return costRecord + int64(len(r.Params))
	}
	return costRecord
}

// keep counts an object of a map that takes the place of another.
func keep[K comparable, R Record](s *State, m map[K]R, id K, r R) {
	if old, ok := m[id]; ok {
		s.kept -= costOf(old)
	}
	m[id] = r
	s.kept += costOf(r)
}

// Apply takes note of one record. It keeps the record.
func (s *State) Apply(r Record) {
	switch r := r.(type) {
	case *Image:
		keep(s, s.images, r.ID, r)
	case *Unload:
		if old, ok := s.images[r.Module]; ok {
			s.kept -= costOf(old)
			delete(s.images, r.Module)
		}
	case *Kernel:
		keep(s, s.kernels, r.ID, r)
	case *Alloc:
		s.alloc(r)
	case *Free:
		s.free(r)
	case *Graph:
		s.drop(r.ID)
		s.graphs[r.ID] = &GraphState{Graph: *r, cost: costRecord}
		s.kept += costRecord
	case *GraphVersion:
		s.graphVersion(r)
	case *GraphEdges:
		s.edges(r)
	case *GraphEnd:
		if g := s.graphs[r.ID]; g != nil {
			g.Done = true
		}
	case *GraphFree:
		s.drop(r.ID)
	case *Launch:
		s.node(r.Flags, r.Cell, r.Thread, r)
	case *Copy:
		s.node(r.Flags, r.Cell, r.Thread, r)
	case *Other:
		s.node(r.Flags, r.Cell, r.Thread, r)
	}
}

func (s *State) drop(graph uint32) {
	if g := s.graphs[graph]; g != nil {
		s.kept -= g.cost
		if g.version {
			s.copied -= len(g.Work)
		}
	}
	delete(s.graphs, graph)
}

// graphVersion begins a version. What it is based on may be the graph that had its number.
func (s *State) graphVersion(r *GraphVersion) {
	g := &GraphState{Graph: Graph{Flags: r.Flags, ID: r.ID, Handle: r.Handle}, version: true, cost: costRecord}
	base := s.graphs[r.Base]
	s.drop(r.ID)
	if base == nil || !base.Done || s.copied+len(base.Work) > maxCopied {
		g.Flags |= Incomplete
	} else {
		g.Flags |= base.Flags & Incomplete
		g.Nodes, g.Work = base.Nodes, slices.Clone(base.Work)
		s.copied += len(g.Work)
		g.Edges, g.Ordered = base.Edges, base.Ordered
		g.cost = base.cost
	}
	s.graphs[r.ID] = g
	s.kept += g.cost
}

func (s *State) node(flags uint16, graph, place uint32, r Record) {
	g := s.graphs[graph]
	switch {
	case flags&Node == 0 || g == nil:
	case g.version:
		if uint64(place) >= uint64(len(g.Work)) || g.Done {
			g.Flags |= Incomplete
			return
		}
		s.count(g, costOf(r)-costOf(g.Work[place]))
		g.Work[place] = r
	case len(g.Work) == maxGraphWork:
		g.Flags |= Incomplete
	default:
		g.Work = append(g.Work, r)
		s.count(g, costOf(r))
	}
}

// edges takes some of a graph. Versions have those of their base.
func (s *State) edges(r *GraphEdges) {
	g := s.graphs[r.ID]
	if g == nil {
		return
	}
	bad := g.version || g.Done || len(r.Edges) > maxGraphEdges-len(g.Edges)
	for _, e := range r.Edges {
		bad = bad || e.From >= e.To || uint64(e.To) >= uint64(len(g.Work))
	}
	if bad {
		g.Flags |= Incomplete
		return
	}
	g.Edges, g.Ordered = append(g.Edges, r.Edges...), true
	s.count(g, costEdge*int64(len(r.Edges)))
}

// count notes by how much a graph has grown.
func (s *State) count(g *GraphState, bytes int64) {
	g.cost += bytes
	s.kept += bytes
}

// Image is the code of a module that is loaded, or nil.
func (s *State) Image(id uint64) *Image { return s.images[id] }

// Kernel is the kernel of that number, or nil.
func (s *State) Kernel(id uint32) *Kernel { return s.kernels[id] }

// Graph is the executable graph of that number, or nil.
func (s *State) Graph(id uint32) *GraphState { return s.graphs[id] }

// Allocs is the memory there is, by address; none overlap. It is valid until the next Apply.
func (s *State) Allocs() []Alloc { return s.allocs }

// At is the allocation that holds addr, or nil.
func (s *State) At(addr uint64) *Alloc {
	i := sort.Search(len(s.allocs), func(i int) bool { return s.allocs[i].Addr > addr }) - 1
	if i < 0 || addr-s.allocs[i].Addr >= s.allocs[i].Bytes {
		return nil
	}
	return &s.allocs[i]
}

func (s *State) alloc(a *Alloc) {
	if a.Bytes == 0 || a.Addr+a.Bytes < a.Addr {
		return
	}
	s.cut(a.Addr, a.Addr+a.Bytes) // what was there ended unseen
	i := sort.Search(len(s.allocs), func(i int) bool { return s.allocs[i].Addr >= a.Addr })
	s.allocs = slices.Insert(s.allocs, i, *a)
}

func (s *State) free(f *Free) {
	if f.Bytes > 0 {
		s.cut(f.Addr, f.Addr+f.Bytes)
		return
	}
	i := sort.Search(len(s.allocs), func(i int) bool { return s.allocs[i].Addr >= f.Addr })
	if i < len(s.allocs) && s.allocs[i].Addr == f.Addr {
		s.allocs = slices.Delete(s.allocs, i, i+1)
	}
}

// cut removes everything that touches [lo, hi).
func (s *State) cut(lo, hi uint64) {
	i := sort.Search(len(s.allocs), func(i int) bool { return s.allocs[i].Addr+s.allocs[i].Bytes > lo })
	j := i
	for j < len(s.allocs) && s.allocs[j].Addr < hi {
		j++
	}
	s.allocs = slices.Delete(s.allocs, i, j)
}
