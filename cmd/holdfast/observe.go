package main

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/softgpu"
)

// An access is a range of bytes and what a launch did to it.
type access struct {
	Where  string `json:"where"` // "argument 2", "variable table", "memory"
	Offset uint64 `json:"offset"`
	Bytes  uint64 `json:"bytes"`
	Kind   string `json:"kind"` // read, written, read_first
}

// A place is device memory with a name.
type place struct {
	name     string
	va, size uint64
}

// places are the buffers and the module's variables, in the order of their addresses.
func places(mod *softgpu.Module, base uint64, values []value) []place {
	var list []place
	for _, g := range mod.Globals() {
		list = append(list, place{"variable " + g.Name, base + g.Offset, g.Size})
	}
	for i, v := range values {
		if v.va != 0 {
			list = append(list, place{fmt.Sprintf("argument %d", i), v.va, v.size})
		}
	}
	slices.SortStableFunc(list, func(a, b place) int { return cmp.Compare(a.va, b.va) })
	return list
}

// observed lists what an observer saw, place by place.
func observed(o *softgpu.Observer, places []place) []access {
	out := []access{}
	for _, k := range []struct {
		name          string
		want, without softgpu.Access
	}{{"read", softgpu.Read, 0}, {"written", softgpu.Written, 0}, {"read_first", softgpu.Read, softgpu.WrittenFirst}} {
		for _, r := range o.Ranges(k.want, k.without) {
			out = split(out, r, places, k.name)
		}
	}
	return out
}

// split cuts a range at the borders of places.
func split(out []access, r softgpu.Range, places []place, kind string) []access {
	for r.Len > 0 {
		// The last place that begins at or before the range.
		i, found := slices.BinarySearchFunc(places, r.Addr, func(p place, va uint64) int {
			return cmp.Compare(p.va, va)
		})
		if !found {
			i--
		}
		a := access{Where: "memory", Offset: r.Addr, Bytes: r.Len, Kind: kind}
		if i >= 0 && r.Addr-places[i].va < places[i].size {
			a.Where, a.Offset = places[i].name, r.Addr-places[i].va
			a.Bytes = min(r.Len, places[i].size-a.Offset)
		} else if i+1 < len(places) && places[i+1].va > r.Addr {
			a.Bytes = min(r.Len, places[i+1].va-r.Addr)
		}
		out = append(out, a)
		r.Addr += a.Bytes
		r.Len -= a.Bytes
	}
	return out
}
