package footprint

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/interval"
)

// Two boxes that apart keeps apart have no byte in common.
func TestApart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	random := func() *box {
		b := &box{width: 1 + r.Int64N(6)}
		for range r.IntN(3) {
			b.add([...]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 28, -4, 40}[r.IntN(15)],
				interval.Bounds{Lo: r.Int64N(4) - 2, Hi: 2 + r.Int64N(4)})
		}
		return b
	}
	bytes := func(b *box, at int64) map[int64]bool {
		places := []int64{at + b.base}
		for _, d := range b.dims[:b.n] {
			var next []int64
			for _, p := range places {
				for i := range d.n + 1 {
					next = append(next, p+i*d.stride)
				}
			}
			places = next
		}
		set := map[int64]bool{}
		for _, p := range places {
			for i := range b.width {
				set[p+i] = true
			}
		}
		return set
	}
	said := 0
	// One row further and one column back is on the same diagonal; on the next one it is not.
	diagonal, back := &box{width: 4}, &box{width: 4}
	diagonal.add(28, interval.Bounds{Lo: 0, Hi: 5})
	back.add(28, interval.Bounds{Lo: 0, Hi: 5})
	back.add(24, interval.Bounds{Lo: 1, Hi: 3})
	if !apart(diagonal, back, 8-24*3) || !apart(diagonal, back, 16) || apart(diagonal, back, 12) {
		t.Error("diagonals")
	}
	for range 20000 {
		a, b, delta := random(), random(), r.Int64N(60)-30
		if !apart(a, b, delta) {
			continue
		}
		said++
		other := bytes(b, delta)
		for x := range bytes(a, 0) {
			if other[x] {
				t.Fatalf("%+v and %+v at %d meet at %d", a, b, delta, x)
			}
		}
	}
	if said < 2000 {
		t.Errorf("only %d pairs are apart", said)
	}
}
