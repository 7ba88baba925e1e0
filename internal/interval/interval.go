// Package interval has the arithmetic of intervals of integers, whose ends may be missing. It is pure, and imports the
// standard library only: whoever bounds numbers uses this one type.
package interval

import (
	"fmt"
	"math/bits"
)

// Bounds are the numbers lo to hi, both included. Numbers beyond ±Far stand for no bound.
type Bounds struct{ Lo, Hi int64 }

// Far is beyond every number that a form may have and still be looked at.
const Far = int64(1) << 62

// Everything is the bounds of what has none.
var Everything = Bounds{-Far, Far}

// Bounded reports whether b has both bounds.
func (b Bounds) Bounded() bool { return b.Lo > -Far && b.Hi < Far }

// Empty reports whether no number is in b.
func (b Bounds) Empty() bool { return b.Lo > b.Hi }

// In reports whether all of b is in o.
func (b Bounds) In(o Bounds) bool { return b.Lo >= o.Lo && b.Hi <= o.Hi }

// Meet is the numbers in both.
func (b Bounds) Meet(o Bounds) Bounds { return Bounds{max(b.Lo, o.Lo), min(b.Hi, o.Hi)} }

// Join is the smallest bounds that both are in.
func (b Bounds) Join(o Bounds) Bounds { return Bounds{min(b.Lo, o.Lo), max(b.Hi, o.Hi)} }

// SignedBounds and unsignedBounds are those of integers of w bits.
func SignedBounds(w uint8) Bounds {
	if w >= 63 {
		return Everything
	}
	return Bounds{-1 << (w - 1), 1<<(w-1) - 1}
}

// UnsignedBounds is the unsigned integers of w bits.
func UnsignedBounds(w uint8) Bounds {
	if w >= 62 {
		return Bounds{0, Far}
	}
	return Bounds{0, 1<<w - 1}
}

// SatMul multiplies two numbers within ±Far, and stops there.
func SatMul(a, b int64) int64 {
	neg := a < 0 != (b < 0)
	x, y := uint64(a), uint64(b)
	if a < 0 {
		x = -x
	}
	if b < 0 {
		y = -y
	}
	hi, lo := bits.Mul64(x, y)
	if hi != 0 || lo > uint64(Far) {
		lo = uint64(Far)
	}
	if neg {
		return -int64(lo)
	}
	return int64(lo)
}

// Plus is all sums. What has no bound keeps none.
func (b Bounds) Plus(o Bounds) Bounds {
	r := Bounds{max(b.Lo+o.Lo, -Far), min(b.Hi+o.Hi, Far)}
	if b.Lo <= -Far || o.Lo <= -Far {
		r.Lo = -Far
	}
	if b.Hi >= Far || o.Hi >= Far {
		r.Hi = Far
	}
	return r
}

// Minus is all differences.
func (b Bounds) Minus(o Bounds) Bounds { return b.Plus(o.Times(-1)) }

// Over is all quotients by k > 0, rounded towards minus infinity.
func (b Bounds) Over(k int64) Bounds {
	r := Bounds{-Far, Far}
	if b.Lo > -Far {
		r.Lo = FloorDiv(b.Lo, k)
	}
	if b.Hi < Far {
		r.Hi = FloorDiv(b.Hi, k)
	}
	return r
}

// Times is b multiplied by k.
func (b Bounds) Times(k int64) Bounds {
	if k < 0 {
		return Bounds{SatMul(b.Hi, k), SatMul(b.Lo, k)}
	}
	return Bounds{SatMul(b.Lo, k), SatMul(b.Hi, k)}
}

// Product is all products.
func (b Bounds) Product(o Bounds) Bounds {
	return b.Times(o.Lo).Join(b.Times(o.Hi))
}

// FloorDiv rounds towards minus infinity; k > 0.
func FloorDiv(x, k int64) int64 {
	q := x / k
	if x%k < 0 {
		q--
	}
	return q
}

// CeilDiv rounds towards plus infinity; k > 0.
func CeilDiv(x, k int64) int64 { return -FloorDiv(-x, k) }

// Clamp brings a number within ±Far.
func Clamp(x int64) int64 { return min(max(x, -Far), Far) }

// Smear is the smallest 2^k - 1 that is not below x.
func Smear(x int64) int64 {
	if x <= 0 {
		return 0
	}
	return int64(uint64(1)<<bits.Len64(uint64(x)) - 1)
}

// String is "[0, 5]".
func (b Bounds) String() string {
	lo, hi := "(-∞", "∞)"
	if b.Lo > -Far {
		lo = fmt.Sprintf("[%d", b.Lo)
	}
	if b.Hi < Far {
		hi = fmt.Sprintf("%d]", b.Hi)
	}
	return lo + ", " + hi
}

// Include widens b so that v is in it.
func (b *Bounds) Include(v int64) { b.Lo, b.Hi = min(b.Lo, v), max(b.Hi, v) }

// Gcd is the greatest common divisor of two numbers, not negative.
func Gcd(a, b int64) int64 {
	if a < 0 {
		a = -a
	}
	if b < 0 {
		b = -b
	}
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
