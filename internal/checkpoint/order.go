package checkpoint

import (
	"sync"

	"holdfast/internal/foresee"
	"holdfast/internal/image"
	"holdfast/internal/snapshot"
)

// An order notes which chunks of an image its programs touch first after they were captured: a restored program will
// do the same, and a restore on demand fills in that order. It is a hint, and correctness does not depend on it. Only
// proven work counts. Writes count like reads, because a restored program waits for what it may write, too.
type order struct {
	regions map[place]int // index in the manifest

	mu      sync.Mutex
	rank    [][]orderRank // of each region's chunks
	left    int           // chunks that are not orderSure
	list    []foresee.Span
	sure    []image.Run
	perhaps []image.Run
}

type orderRank uint8

const (
	_ orderRank = iota // not touched
	// orderPerhaps: touched by work whose addresses come from tables. For a gather that is everything it might read;
	// in a restore the table's contents are known, and less is needed.
	orderPerhaps
	orderSure
)

func newOrder(m *image.Manifest) *order {
	o := &order{regions: map[place]int{}}
	for i, r := range m.Regions {
		o.regions[place{r.Program, r.ID}] = i
		o.rank = append(o.rank, make([]orderRank, len(r.Digests)))
		o.left += len(r.Digests)
	}
	return o
}

// note records what a program's work touches, just before it goes. The watch is locked.
func (o *order) note(program int, w *watch, e *foresee.Effect) {
	if o == nil || !e.Proven { // nil: nothing was captured
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left == 0 {
		return
	}
	o.list = w.foreseen.Spans(w.foreseen.Spans(o.list[:0], e.Reads), e.Writes)
	if !o.each(program, func(_, _ int, r orderRank) bool { return r < orderSure }) {
		return
	}
	rank, to := orderSure, &o.sure
	if w.foreseen.Indexed(w.pieces) {
		rank, to = orderPerhaps, &o.perhaps
	}
	o.each(program, func(region, c int, r orderRank) bool {
		if r < rank {
			o.rank[region][c] = rank
			*to = addRun(*to, region, c)
			if rank == orderSure {
				o.left--
			}
		}
		return false
	})
}

// each calls f for the chunks of the spans in list until it returns true, and reports whether it did.
func (o *order) each(program int, f func(region, chunk int, r orderRank) bool) bool {
	for _, sp := range o.list {
		region, ok := o.regions[place{program, sp.Block}]
		if !ok || sp.Len == 0 {
			continue // it was allocated later
		}
		rank := o.rank[region]
		for c := sp.Off / snapshot.ChunkSize; c <= (sp.Off+sp.Len-1)/snapshot.ChunkSize && c < uint64(len(rank)); c++ {
			if f(region, int(c), rank[c]) {
				return true
			}
		}
	}
	return false
}

// addRun appends a chunk. What a manifest cannot hold is left out.
func addRun(list []image.Run, region, chunk int) []image.Run {
	if n := len(list); n > 0 && list[n-1].Region == region && list[n-1].Chunk+list[n-1].Count == chunk {
		list[n-1].Count++
	} else if n < image.MaxOrder {
		list = append(list, image.Run{Region: region, Chunk: chunk, Count: 1})
	}
	return list
}

// runs is what was noted so far.
func (o *order) runs() []image.Run {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := append([]image.Run(nil), o.sure...)
	for _, r := range o.perhaps {
		for c := range r.Count {
			if o.rank[r.Region][r.Chunk+c] == orderPerhaps {
				list = addRun(list, r.Region, r.Chunk+c)
			}
		}
	}
	return list
}
