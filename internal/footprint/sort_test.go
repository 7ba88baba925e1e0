package footprint

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Lists of all lengths, sorted, reversed and random ones, near 0 and far up.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m machine
	for n := range 300 {
		for kind := range 4 {
			var list []Range
			for i := range n {
				lo := uint64(r.IntN(8 * n))
				switch kind {
				case 1:
					lo = uint64(3 * i)
				case 2:
					lo = uint64(3 * (n - i))
				case 3:
					lo |= 1 << 62
				}
				list = append(list, Range{lo, lo + 1 + uint64(r.IntN(4))})
			}
			covered := map[uint64]bool{}
			for _, x := range list {
				for b := x.Lo; b < x.Hi; b++ {
					covered[b] = true
				}
			}
			got := m.merge(slices.Clone(list))
			if want := Merge(list); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			bytes := 0
			for i, x := range got {
				if i > 0 && got[i-1].Hi >= x.Lo {
					t.Fatalf("%v touch", got)
				}
				for b := x.Lo; b < x.Hi; b++ {
					bytes++
					if !covered[b] {
						t.Fatalf("%v has byte %d", got, b)
					}
				}
			}
			if bytes != len(covered) {
				t.Fatalf("%v has %d of %d bytes", got, bytes, len(covered))
			}
		}
	}
}
