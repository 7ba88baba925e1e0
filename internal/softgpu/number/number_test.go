package number

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"holdfast/ptx"
)

// The reference of these tests is exact: rationals and integers of any size, rounded once.

// A format is an IEEE format by exponent and fraction bits.
type format struct{ e, m uint }

var (
	half   = format{5, 10}
	brain  = format{8, 7}
	single = format{8, 23}
	double = format{11, 52}
)

// round gives the bits of x ≠ 0, found by counting units in the last place with integers.
func (f format) round(x *big.Rat, r Rounding) uint64 {
	neg := x.Sign() < 0
	bias := 1<<(f.e-1) - 1
	a := new(big.Rat).Abs(x)
	exp := a.Num().BitLen() - a.Denom().BitLen()
	if a.Cmp(power(exp)) < 0 {
		exp--
	}
	exp = max(exp, 1-bias)
	units := new(big.Rat).Mul(a, power(int(f.m)-exp))
	n, rest := new(big.Int).QuoRem(units.Num(), units.Denom(), new(big.Int))
	twice := new(big.Int).Lsh(rest, 1).Cmp(units.Denom())
	var up bool
	switch r {
	case Nearest:
		up = twice > 0 || twice == 0 && n.Bit(0) != 0
	case Away:
		up = twice >= 0
	case Down:
		up = neg && rest.Sign() != 0
	case Up:
		up = !neg && rest.Sign() != 0
	}
	if up {
		n.Add(n, big.NewInt(1))
	}
	var sign uint64
	if neg {
		sign = 1 << (f.e + f.m)
	}
	// A carry runs from the fraction into the exponent.
	v := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(int64(exp+bias-1)), f.m))
	inf := uint64(1<<f.e-1) << f.m
	if v.Cmp(new(big.Int).SetUint64(inf)) < 0 {
		return sign | v.Uint64()
	}
	if r == ToZero || r == Down && !neg || r == Up && neg {
		inf--
	}
	return sign | inf
}

func power(n int) *big.Rat {
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(-n)))
	}
	return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(n)))
}

func rat(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// finite makes numbers of which many are close to each other, to zero and to the edges of a format.
func finite(r *rand.Rand, f format) uint64 {
	top := uint64(1<<f.e-2)<<f.m | (1<<f.m - 1)
	edges := []uint64{0, 1, 2, 1<<f.m - 1, 1 << f.m, 1<<f.m + 1, top, top - 1, uint64(1<<(f.e-1)-1) << f.m}
	var x uint64
	switch r.IntN(4) {
	case 0:
		x = edges[r.IntN(len(edges))]
	case 1: // near one
		x = (uint64(1<<(f.e-1)-3)+r.Uint64N(6))<<f.m | r.Uint64N(1<<f.m)
	case 2: // few bits
		x = (r.Uint64N(1<<f.e-1) << f.m) | r.Uint64N(8)<<(f.m-3)
	default:
		x = r.Uint64N(top)
	}
	return x | r.Uint64N(2)<<(f.e+f.m)
}

var directions = []Rounding{Nearest, ToZero, Down, Up}

// TestRoundSmall rounds numbers of f16 and bf16, the middles between neighbours, and what lies just beside both.
func TestRoundSmall(t *testing.T) {
	for _, f := range []format{half, brain} {
		typ := ptx.F16
		if f == brain {
			typ = ptx.BF16
		}
		inf := uint64(1<<f.e-1) << f.m
		for h := uint64(0); h < inf; h += 1 + h%29 {
			x, next := HalfValue(h, typ), HalfValue(h+1, typ)
			if h+1 == inf {
				next = 2*x - HalfValue(h-1, typ)
			}
			mid := x + (next-x)/2
			for _, v := range []float64{x, mid, math.Nextafter(x, 0), math.Nextafter(x, math.Inf(1)),
				math.Nextafter(mid, 0), math.Nextafter(mid, math.Inf(1))} {
				if v == 0 {
					continue
				}
				for _, r := range append(directions, Away) {
					for _, v := range []float64{v, -v} {
						if got, want := RoundHalf(v, typ, r), f.round(rat(v), r); got != want {
							t.Fatalf("%v of %v, rounding %d: %#x, want %#x", typ, v, r, got, want)
						}
					}
				}
			}
		}
	}
}

// TestRound32 rounds float64 to single, and sums that were rounded to odd first.
func TestRound32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, b := float64(F32(finite(r, single))), float64(F32(finite(r, single)))
		sum := new(big.Rat).Add(rat(a), rat(b))
		if r.IntN(2) == 0 { // a rounded product and something far below it
			a *= b
			b = float64(F32(finite(r, single)))
			sum.Add(rat(a), rat(b))
		}
		if sum.Sign() == 0 {
			continue
		}
		for _, d := range append(directions, Away) {
			if got, want := Bits32(Round32(AddOdd(a, b), d)), single.round(sum, d); got != want {
				t.Fatalf("%v + %v, rounding %d: %#x, want %#x", a, b, d, got, want)
			}
		}
	}
}

// TestDouble has the operations of float64 in every direction.
func TestDouble(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1500 {
		a, b, c := F64(finite(r, double)), F64(finite(r, double)), F64(finite(r, double))
		if r.IntN(3) == 0 { // what cancels
			c = -a * b * (1 + 0x1p-52*float64(r.IntN(3)-1))
			if math.IsInf(c, 0) || c != c {
				c = 1
			}
		}
		product := new(big.Rat).Mul(rat(a), rat(b))
		for _, d := range directions {
			check := func(name string, got float64, want *big.Rat) {
				t.Helper()
				if want.Sign() != 0 && Bits64(got) != double.round(want, d) {
					t.Fatalf("%s of %v %v %v, rounding %d: %v, want %v", name, a, b, c, d, got,
						F64(double.round(want, d)))
				}
			}
			check("sum", Add64(a, b, d), new(big.Rat).Add(rat(a), rat(b)))
			check("product", Mul64(a, b, d), product)
			check("fma", FMA64(a, b, c, d, false), new(big.Rat).Add(product, rat(c)))
			if b != 0 {
				check("quotient", Div64(a, b, d), new(big.Rat).Quo(rat(a), rat(b)))
			}
			if s := math.Abs(a); s != 0 {
				// The root is right if its square and that of its neighbour lie around the number.
				got := Sqrt64(s, d)
				if want := sqrtBits(s, d); Bits64(got) != want {
					t.Fatalf("root of %v, rounding %d: %v, want %v", s, d, got, F64(want))
				}
			}
		}
	}
}

// sqrtBits finds the root of s by integers: floor(sqrt(s·2^2k)) with a sticky bit.
func sqrtBits(s float64, d Rounding) uint64 {
	x := new(big.Rat).Mul(rat(s), power(2*600))
	n := new(big.Int).Quo(x.Num(), x.Denom())
	root := new(big.Int).Sqrt(n)
	exact := new(big.Int).Mul(root, root).Cmp(n) == 0 && x.IsInt()
	v := new(big.Rat).SetInt(root)
	if !exact {
		v.Add(v, big.NewRat(1, 2))
	}
	return double.round(v.Mul(v, power(-600)), d)
}

// TestInteger compares with integers of any size.
func TestInteger(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		a, b := r.Uint64()>>r.IntN(64), r.Uint64()>>r.IntN(64)
		if r.IntN(2) == 0 {
			a, b = ^a, -b
		}
		for _, n := range []uint{16, 32, 64} {
			for _, signed := range []bool{false, true} {
				x, y := integer(a, n, signed), integer(b, n, signed)
				want := wrapped(new(big.Int).Rsh(new(big.Int).Mul(x, y), n), n)
				if got := ZeroExtend(MulHi(a, b, n, signed), n); got != want {
					t.Fatalf("high half of %v·%v: %#x, want %#x", x, y, got, want)
				}
			}
			pos, length := r.Uint64N(80), r.Uint64N(80)
			if n == 16 {
				continue
			}
			want := uint64(0)
			for i := range n {
				// PTX ISA 9.7.1.19: bits of the field, then its sign.
				at := pos + uint64(i)
				sign := uint64(0)
				if length > 0 {
					sign = a >> min(pos+length-1, uint64(n-1)) & 1
				}
				bit := sign
				if uint64(i) < length && at < uint64(n) {
					bit = a >> at & 1
				}
				want |= bit << i
			}
			if got := ZeroExtend(ExtractField(a, pos, length, n, true), n); got != want {
				t.Fatalf("field %d+%d of %#x, %d bits: %#x, want %#x", pos, length, a, n, got, want)
			}
			want = ZeroExtend(b, n)
			for i := uint64(0); i < length && pos+i < uint64(n); i++ {
				want = want&^(1<<(pos+i)) | (a >> i & 1 << (pos + i))
			}
			if got := InsertField(a, ZeroExtend(b, n), pos, length, n); got != want {
				t.Fatalf("%#x into field %d+%d of %#x: %#x, want %#x", a, pos, length, b, got, want)
			}
		}
	}
}

func integer(x uint64, n uint, signed bool) *big.Int {
	v := new(big.Int).SetUint64(x << (64 - n) >> (64 - n))
	if signed && v.Bit(int(n-1)) != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), n))
	}
	return v
}

func wrapped(v *big.Int, n uint) uint64 {
	m := new(big.Int).Lsh(big.NewInt(1), n)
	return new(big.Int).And(v, m.Sub(m, big.NewInt(1))).Uint64()
}

// TestIntegerConversions goes from every integer type to every float and back.
func TestIntegerConversions(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	formats := map[ptx.Type]format{ptx.F16: half, ptx.BF16: brain, ptx.F32: single, ptx.F64: double}
	ints := map[ptx.Type]uint{ptx.U8: 8, ptx.S8: 8, ptx.U16: 16, ptx.S16: 16, ptx.U32: 32,
		ptx.S32: 32, ptx.U64: 64, ptx.S64: 64}
	for range 100 {
		for from, n := range ints {
			signed := from == ptx.S8 || from == ptx.S16 || from == ptx.S32 || from == ptx.S64
			x := r.Uint64() >> r.IntN(64)
			if r.IntN(2) == 0 {
				x = -x
			}
			v := integer(x, n, signed)
			for to, f := range formats {
				for _, d := range directions {
					if v.Sign() != 0 {
						want := f.round(new(big.Rat).SetInt(v), d)
						if got := Narrow(FromInt(x, from, to, d), to, d, false, false); got != want {
							t.Fatalf("%v to %v, rounding %d: %#x, want %#x", v, to, d, got, want)
						}
					}
					y := Widen(finite(r, f), to, false)
					if got, want := ToInt(y, from, d), nearestInt(y, n, signed, d); got != want {
						t.Fatalf("%v to %v, rounding %d: %#x, want %#x", y, from, d, got, want)
					}
				}
			}
		}
	}
}

// nearestInt rounds y to an integer in direction d and clamps it.
func nearestInt(y float64, n uint, signed bool, d Rounding) uint64 {
	x := rat(y)
	lo := new(big.Int).Div(x.Num(), x.Denom()) // towards -∞: the denominator is positive
	v := new(big.Int).Set(lo)
	rest := new(big.Rat).Sub(x, new(big.Rat).SetInt(lo))
	half := rest.Cmp(big.NewRat(1, 2))
	if rest.Sign() != 0 &&
		(d == Up || d == ToZero && y < 0 || d == Nearest && (half > 0 || half == 0 && lo.Bit(0) != 0)) {
		v.Add(v, big.NewInt(1))
	}
	least, most := new(big.Int), new(big.Int).Lsh(big.NewInt(1), n)
	if signed {
		most.Rsh(most, 1)
		least.Neg(most)
	}
	if most.Sub(most, big.NewInt(1)); v.Cmp(most) > 0 {
		v = most
	}
	if v.Cmp(least) < 0 {
		v = least
	}
	return wrapped(v, n)
}

// TestNaN has the payloads of f64, which go by their own rules.
func TestNaN(t *testing.T) {
	p := func(x uint64) float64 { return F64(0x7ff0000000000000 | x) }
	quiet := uint64(0x7ff8000000000000)
	for _, c := range []struct {
		name string
		got  float64
		want uint64
	}{
		{"the second operand", KeepNaN64(math.NaN(), p(1), p(2)), quiet | 2},
		{"the first operand", KeepNaN64(math.NaN(), p(1), 1), quiet | 1},
		{"none", KeepNaN64(math.NaN(), 1, 1), NaN64},
		{"fma: the second before the third", KeepNaN64FMA(math.NaN(), p(1), p(2), p(3)), quiet | 2},
		{"fma: the third before the first", KeepNaN64FMA(math.NaN(), p(1), 1, p(3)), quiet | 3},
		{"a number wins", Min64(p(1), 3), Bits64(3)},
		{"and on the other side", Max64(3, p(1)), Bits64(3)},
		{"two", Max64(p(1), p(2)), quiet | 2},
		{"zeros", Min64(0, math.Copysign(0, -1)), 1 << 63},
	} {
		if Bits64(c.got) != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, Bits64(c.got), c.want)
		}
	}
	if got := Bits32(Canon32(float32(math.NaN()))); got != NaN32 {
		t.Errorf("the one NaN of f32 is %#x", got)
	}
}
