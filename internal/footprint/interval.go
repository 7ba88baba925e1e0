package footprint

import "math/bits"

// bounds are the numbers lo to hi, both included. Numbers beyond ±far stand for no bound.
type bounds struct{ lo, hi int64 }

// far is beyond every number that a form may have and still be looked at.
const far = int64(1) << 62

var everything = bounds{-far, far}

func (b bounds) bounded() bool { return b.lo > -far && b.hi < far }

func (b bounds) empty() bool { return b.lo > b.hi }

func (b bounds) in(o bounds) bool { return b.lo >= o.lo && b.hi <= o.hi }

func (b bounds) meet(o bounds) bounds { return bounds{max(b.lo, o.lo), min(b.hi, o.hi)} }

func (b bounds) join(o bounds) bounds { return bounds{min(b.lo, o.lo), max(b.hi, o.hi)} }

// signedBounds and unsignedBounds are those of integers of w bits.
func signedBounds(w uint8) bounds {
	if w >= 63 {
		return everything
	}
	return bounds{-1 << (w - 1), 1<<(w-1) - 1}
}

func unsignedBounds(w uint8) bounds {
	if w >= 62 {
		return bounds{0, far}
	}
	return bounds{0, 1<<w - 1}
}

// satMul multiplies two numbers within ±far, and stops there.
func satMul(a, b int64) int64 {
	neg := a < 0 != (b < 0)
	x, y := uint64(a), uint64(b)
	if a < 0 {
		x = -x
	}
	if b < 0 {
		y = -y
	}
	hi, lo := bits.Mul64(x, y)
	if hi != 0 || lo > uint64(far) {
		lo = uint64(far)
	}
	if neg {
		return -int64(lo)
	}
	return int64(lo)
}

// plus is all sums. What has no bound keeps none.
func (b bounds) plus(o bounds) bounds {
	r := bounds{max(b.lo+o.lo, -far), min(b.hi+o.hi, far)}
	if b.lo <= -far || o.lo <= -far {
		r.lo = -far
	}
	if b.hi >= far || o.hi >= far {
		r.hi = far
	}
	return r
}

func (b bounds) minus(o bounds) bounds { return b.plus(o.times(-1)) }

// over is all quotients by k > 0, rounded towards minus infinity.
func (b bounds) over(k int64) bounds {
	r := bounds{-far, far}
	if b.lo > -far {
		r.lo = floorDiv(b.lo, k)
	}
	if b.hi < far {
		r.hi = floorDiv(b.hi, k)
	}
	return r
}

// times is b multiplied by k.
func (b bounds) times(k int64) bounds {
	if k < 0 {
		return bounds{satMul(b.hi, k), satMul(b.lo, k)}
	}
	return bounds{satMul(b.lo, k), satMul(b.hi, k)}
}

// product is all products.
func (b bounds) product(o bounds) bounds {
	return b.times(o.lo).join(b.times(o.hi))
}

// floorDiv rounds towards minus infinity; k > 0.
func floorDiv(x, k int64) int64 {
	q := x / k
	if x%k < 0 {
		q--
	}
	return q
}

func ceilDiv(x, k int64) int64 { return -floorDiv(-x, k) }

// clamp brings a number within ±far.
func clamp(x int64) int64 { return min(max(x, -far), far) }

// smear is the smallest 2^k - 1 that is not below x.
func smear(x int64) int64 {
	if x <= 0 {
		return 0
	}
	return int64(uint64(1)<<bits.Len64(uint64(x)) - 1)
}
