package device

import "slices"

// A span is the half-open range [lo, hi).
type span struct{ Lo, Hi uint64 }

// spans is a set of free ranges, sorted, neighbours joined.
type spans []span

// take removes and returns the lowest place for size bytes at a multiple of
// align (a power of two).
func (s *spans) take(size, align uint64) (uint64, bool) {
	for _, f := range *s {
		at := (f.Lo + align - 1) &^ (align - 1)
		if at >= f.Lo && at < f.Hi && f.Hi-at >= size {
			return at, s.takeAt(at, size)
		}
	}
	return 0, false
}

// takeAt removes [at, at+size), which must be free.
func (s *spans) takeAt(at, size uint64) bool {
	if size == 0 || at+size < at {
		return false
	}
	i, _ := slices.BinarySearchFunc(*s, at, func(f span, at uint64) int {
		if f.Hi <= at {
			return -1
		}
		return 1
	})
	if i == len(*s) {
		return false
	}
	f := (*s)[i]
	if at < f.Lo || at+size > f.Hi {
		return false
	}
	var rest []span
	if f.Lo < at {
		rest = append(rest, span{f.Lo, at})
	}
	if at+size < f.Hi {
		rest = append(rest, span{at + size, f.Hi})
	}
	*s = slices.Replace(*s, i, i+1, rest...)
	return true
}

// give returns [at, at+size), which must not be free.
func (s *spans) give(at, size uint64) {
	i, _ := slices.BinarySearchFunc(*s, at, func(f span, at uint64) int {
		if f.Lo < at {
			return -1
		}
		return 1
	})
	*s = slices.Insert(*s, i, span{at, at + size})
	if i+1 < len(*s) && (*s)[i].Hi == (*s)[i+1].Lo {
		(*s)[i].Hi = (*s)[i+1].Hi
		*s = slices.Delete(*s, i+1, i+2)
	}
	if i > 0 && (*s)[i-1].Hi == (*s)[i].Lo {
		(*s)[i-1].Hi = (*s)[i].Hi
		*s = slices.Delete(*s, i, i+1)
	}
}
