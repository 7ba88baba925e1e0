package interval

import (
	"math/big"
	"testing"
)

// All small intervals: sums, differences, products and quotients hold what their numbers make, and no more than they
// must.
func TestSmall(t *testing.T) {
	for lo := int64(-4); lo <= 4; lo++ {
		for hi := lo; hi <= 4; hi++ {
			a := Bounds{lo, hi}
			for k := int64(-3); k <= 3; k++ {
				least, most := min(lo*k, hi*k), max(lo*k, hi*k)
				if got := a.Times(k); got != (Bounds{least, most}) {
					t.Errorf("%v times %d is %v", a, k, got)
				}
				if k > 0 {
					if got := a.Over(k); got != (Bounds{FloorDiv(lo, k), FloorDiv(hi, k)}) || FloorDiv(lo,
						k)*k > lo || FloorDiv(lo, k)*k+k <= lo {
						t.Errorf("%v over %d is %v", a, k, got)
					}
				}
			}
			for lo2 := int64(-4); lo2 <= 4; lo2++ {
				for hi2 := lo2; hi2 <= 4; hi2++ {
					b := Bounds{lo2, hi2}
					p := Bounds{Far, -Far}
					for x := lo; x <= hi; x++ {
						for y := lo2; y <= hi2; y++ {
							p.Include(x * y)
						}
					}
					if a.Product(b) != p || a.Plus(b) != (Bounds{lo + lo2, hi + hi2}) ||
						a.Minus(b) != (Bounds{lo - hi2, hi - lo2}) {
						t.Errorf("%v and %v: %v, %v, %v", a, b, a.Product(b), a.Plus(b), a.Minus(b))
					}
				}
			}
		}
	}
}

// What goes beyond Far has no bound, and nothing overflows.
func TestFar(t *testing.T) {
	far := big.NewInt(Far)
	list := []int64{0, 1, -1, 3, 1 << 31, -1 << 31, 1<<61 + 5, Far - 1, 1 - Far, Far, -Far}
	for _, x := range list {
		for _, y := range list {
			want := new(big.Int).Mul(big.NewInt(x), big.NewInt(y))
			if want.CmpAbs(far) > 0 {
				want.Mul(far, big.NewInt(int64(want.Sign())))
			}
			if got := SatMul(x, y); got != want.Int64() {
				t.Errorf("%d * %d is %d, want %v", x, y, got, want)
			}
			s := Bounds{x, x}.Plus(Bounds{y, y})
			sum := new(big.Int).Add(big.NewInt(x), big.NewInt(y))
			if s.Bounded() && (big.NewInt(s.Lo).Cmp(sum) != 0 || s.Lo != s.Hi) || sum.CmpAbs(far) >= 0 && s.Bounded() {
				t.Errorf("%d + %d is %v", x, y, s)
			}
		}
	}
	if Everything.Bounded() || Everything.Plus(Bounds{-5, 5}) != Everything || Everything.Times(-1) != Everything {
		t.Error("what has no bound gets one")
	}
}
