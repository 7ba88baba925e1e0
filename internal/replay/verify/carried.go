package verify

import (
	"fmt"

	"holdfast/internal/footprint"
	"holdfast/internal/recording"
)

// Carried is the memory that a run of the recording may both change and depend on: what must be as it was for the run
// to be done again. Everything else a run leaves as it is, or writes before it reads it, or is scratch. A run ends with
// its outputs being read. known is false if there is work that is not proven; then it may be any memory.
//
// What is surely written before a read are the copies and sets of the words before (recording.Words: a replay runs one
// after the other); of what launches write only an upper bound is known.
func Carried(f *recording.File, r *Report) (list []recording.Span, known bool, err error) {
	if r.Digest != f.Digest {
		return nil, false, fmt.Errorf("the report is of another recording")
	}
	var reads, writes []footprint.Range
	items := r.Items
	for i := range f.Manifest.Entries {
		e := &f.Manifest.Entries[i]
		work, err := f.Work(e)
		if err != nil {
			return nil, false, err
		}
		for k := range work {
			if items[k].Level != Proven {
				return nil, false, nil
			}
			writes = append(writes, items[k].Writes...)
		}
		reads = append(reads, exposed(work, items[:len(work)], e.Outputs)...)
		items = items[len(work):]
	}
	writes = footprint.Merge(writes)
	var kept []footprint.Range
	for _, g := range f.Manifest.Memory {
		if g.Class != recording.Scratch {
			kept = append(kept, footprint.Range{Lo: uint64(g.Addr), Hi: uint64(g.Addr) + uint64(g.Bytes)})
		}
	}
	s := f.Manifest.Staging
	kept = footprint.Merge(append(kept, footprint.Range{Lo: uint64(s.Addr), Hi: uint64(s.Addr) + uint64(s.Bytes)}))
	for _, r := range both(both(footprint.Merge(reads), writes), kept) {
		list = append(list, recording.Span{Addr: recording.Addr(r.Lo), Bytes: int64(r.Hi - r.Lo)})
	}
	return list, true, nil
}

// exposed is what work may read of what was there before it.
func exposed(work []recording.Work, items []Item, outputs []recording.Port) (reads []footprint.Range) {
	level, words := make([]int, len(work)), 0
	for i, w := range work {
		for _, a := range w.After {
			level[i] = max(level[i], level[a]+1)
		}
		words = max(words, level[i]+1)
	}
	of := make([][]int, words)
	for i, l := range level {
		of[l] = append(of[l], i)
	}
	var sure []footprint.Range // disjoint, sorted
	see := func(list []footprint.Range) {
		for _, r := range list {
			reads = append(reads, without(r, sure)...)
		}
	}
	for _, word := range of {
		for _, i := range word {
			see(items[i].Reads)
		}
		was := len(sure)
		for _, i := range word {
			if c := work[i].Copy; c != nil && (c.Height == 1 || c.DstPitch == c.Width) {
				sure = append(sure, items[i].Writes...)
			}
		}
		if len(sure) > was {
			sure = footprint.Merge(sure)
		}
	}
	for _, p := range outputs {
		see([]footprint.Range{{Lo: uint64(p.Addr), Hi: uint64(p.Addr) + uint64(p.Bytes)}})
	}
	return reads
}

// both is what two sorted lists of disjoint ranges have in common.
func both(a, b []footprint.Range) (out []footprint.Range) {
	for _, r := range a {
		for i := after(b, r.Lo); i < len(b) && b[i].Lo < r.Hi; i++ {
			out = append(out, footprint.Range{Lo: max(r.Lo, b[i].Lo), Hi: min(r.Hi, b[i].Hi)})
		}
	}
	return out
}
