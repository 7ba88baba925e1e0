package verify

import (
	"sort"

	"holdfast/internal/footprint"
)

// after is the place of the first of sorted, disjoint ranges that ends above an address.
func after(list []footprint.Range, at uint64) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Hi > at })
}

// inside reports whether all of a range is in one of the list, which is sorted and joined.
func inside(list []footprint.Range, r footprint.Range) bool {
	i := after(list, r.Lo)
	return r.Lo < r.Hi && i < len(list) && list[i].Lo <= r.Lo && r.Hi <= list[i].Hi
}

// meets reports whether a range has a byte in common with the list.
func meets(list []footprint.Range, r footprint.Range) bool {
	i := after(list, r.Lo)
	return i < len(list) && list[i].Lo < r.Hi
}

// common reports whether two lists have a byte in common.
func common(a, b []footprint.Range) bool {
	for _, r := range a {
		if meets(b, r) {
			return true
		}
	}
	return false
}

// without is what of a range is not in the list.
func without(r footprint.Range, list []footprint.Range) (out []footprint.Range) {
	at := r.Lo
	for i := after(list, r.Lo); i < len(list) && list[i].Lo < r.Hi; i++ {
		if list[i].Lo > at {
			out = append(out, footprint.Range{Lo: at, Hi: list[i].Lo})
		}
		at = list[i].Hi
	}
	if at < r.Hi {
		out = append(out, footprint.Range{Lo: at, Hi: r.Hi})
	}
	return out
}
