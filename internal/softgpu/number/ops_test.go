package number

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// A meaning is what an operation gives for integers of any size: d is the number of bits of the result.
type meaning func(x [3]*big.Int, n, d uint) *big.Int

var meanings = map[string]meaning{
	"add":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Add(x[0], x[1]) },
	"sub":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Sub(x[0], x[1]) },
	"mul.lo":   func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Mul(x[0], x[1]) },
	"mul.wide": func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Mul(x[0], x[1]) },
	"mul.hi":   func(x [3]*big.Int, n, _ uint) *big.Int { return upper(x, n) },
	"mad.lo":   func(x [3]*big.Int, _, _ uint) *big.Int { return fused(x) },
	"mad.wide": func(x [3]*big.Int, _, _ uint) *big.Int { return fused(x) },
	"mad.hi":   func(x [3]*big.Int, n, _ uint) *big.Int { return new(big.Int).Add(upper(x, n), x[2]) },
	"mad.hi.sat": func(x [3]*big.Int, n, _ uint) *big.Int {
		return clamped(new(big.Int).Add(upper(x, n), x[2]), n)
	},
	"add.sat": func(x [3]*big.Int, n, _ uint) *big.Int { return clamped(new(big.Int).Add(x[0], x[1]), n) },
	"sub.sat": func(x [3]*big.Int, n, _ uint) *big.Int { return clamped(new(big.Int).Sub(x[0], x[1]), n) },
	"div": func(x [3]*big.Int, _, _ uint) *big.Int {
		if x[1].Sign() == 0 {
			return big.NewInt(-1)
		}
		return new(big.Int).Quo(x[0], x[1])
	},
	"rem": func(x [3]*big.Int, _, _ uint) *big.Int {
		if x[1].Sign() == 0 {
			return big.NewInt(-1)
		}
		return new(big.Int).Rem(x[0], x[1])
	},
	"sad": func(x [3]*big.Int, _, _ uint) *big.Int {
		d := new(big.Int).Sub(x[0], x[1])
		return d.Add(d.Abs(d), x[2])
	},
	"neg":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Neg(x[0]) },
	"abs":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Abs(x[0]) },
	"min":      func(x [3]*big.Int, _, _ uint) *big.Int { return lesser(x[0], x[1]) },
	"max":      func(x [3]*big.Int, _, _ uint) *big.Int { return greater(x[0], x[1]) },
	"min.relu": func(x [3]*big.Int, _, _ uint) *big.Int { return greater(lesser(x[0], x[1]), new(big.Int)) },
	"max.relu": func(x [3]*big.Int, _, _ uint) *big.Int { return greater(greater(x[0], x[1]), new(big.Int)) },
	"and":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).And(x[0], x[1]) },
	"or":       func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Or(x[0], x[1]) },
	"xor":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Xor(x[0], x[1]) },
	"not":      func(x [3]*big.Int, _, _ uint) *big.Int { return new(big.Int).Not(x[0]) },
	"cnot":     func(x [3]*big.Int, _, _ uint) *big.Int { return big.NewInt(int64(1 - x[0].CmpAbs(new(big.Int)))) },
	"shl":      func(x [3]*big.Int, n, _ uint) *big.Int { return new(big.Int).Lsh(x[0], shift(x[1], n)) },
	"shr":      func(x [3]*big.Int, n, _ uint) *big.Int { return new(big.Int).Rsh(x[0], shift(x[1], n)) },
	"popc": func(x [3]*big.Int, _, _ uint) *big.Int {
		return big.NewInt(int64(strings.Count(x[0].Text(2), "1")))
	},
	"clz": func(x [3]*big.Int, n, _ uint) *big.Int { return big.NewInt(int64(n) - int64(x[0].BitLen())) },
	"brev": func(x [3]*big.Int, n, _ uint) *big.Int {
		d := new(big.Int)
		for i := range int(n) {
			d.SetBit(d, int(n)-1-i, x[0].Bit(i))
		}
		return d
	},
	"bfind": func(x [3]*big.Int, _, _ uint) *big.Int {
		if x[0].Sign() < 0 {
			return big.NewInt(int64(new(big.Int).Not(x[0]).BitLen()) - 1)
		}
		return big.NewInt(int64(x[0].BitLen()) - 1)
	},
}

func upper(x [3]*big.Int, n uint) *big.Int { return new(big.Int).Rsh(new(big.Int).Mul(x[0], x[1]), n) }

func fused(x [3]*big.Int) *big.Int { return new(big.Int).Add(new(big.Int).Mul(x[0], x[1]), x[2]) }

func lesser(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func greater(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func clamped(v *big.Int, n uint) *big.Int {
	top := new(big.Int).Lsh(big.NewInt(1), n-1)
	return greater(lesser(v, new(big.Int).Sub(top, big.NewInt(1))), new(big.Int).Neg(top))
}

// shift is an amount; beyond the width all are alike.
func shift(x *big.Int, n uint) uint { return uint(lesser(x, big.NewInt(int64(n)+1)).Uint64()) }

// TestIntegerOperations compares the operations of integers with what they say for numbers of any size.
func TestIntegerOperations(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	seen := map[string]bool{}
	Ops(func(name string, op Func) {
		dot := strings.LastIndexByte(name, '.')
		mnemonic, typ := name[:dot], name[dot+1:]
		f := meanings[mnemonic]
		if f == nil {
			return
		}
		bits, err := strconv.Atoi(typ[1:])
		if err != nil || typ[0] == 'f' {
			return
		}
		seen[mnemonic] = true
		n, signed := uint(bits), typ[0] == 's'
		d := n
		switch {
		case strings.HasSuffix(mnemonic, ".wide"):
			d = 2 * n
		case mnemonic == "popc", mnemonic == "clz", mnemonic == "bfind":
			d = 32
		}
		for range 300 {
			var raw [3]uint64
			var x [3]*big.Int
			for k := range raw {
				w, s := n, signed
				if k == 2 {
					w = d
				}
				if k == 1 && (mnemonic == "shl" || mnemonic == "shr") {
					w, s = 32, false
				}
				raw[k] = someInteger(r, w)
				x[k] = integer(raw[k], w, s)
			}
			if got, want := op(raw[0], raw[1], raw[2]), wrapped(f(x, n, d), d); got != want {
				t.Fatalf("%s of %v: %#x, want %#x", name, x, got, want)
			}
		}
	})
	for mnemonic := range meanings {
		if !seen[mnemonic] {
			t.Errorf("no operation %s", mnemonic)
		}
	}
}

func someInteger(r *rand.Rand, n uint) uint64 {
	edges := []uint64{0, 1, 2, 31, 32, 33, 63, 64, ^uint64(0), ^uint64(1), 1 << (n - 1), 1<<(n-1) - 1, 1<<(n-1) + 1}
	x := r.Uint64()
	switch r.IntN(3) {
	case 0:
		x = edges[r.IntN(len(edges))]
	case 1:
		x >>= r.IntN(64)
	}
	return x << (64 - n) >> (64 - n)
}

// TestFloatOperations compares arithmetic in all directions with exact rationals, rounded once.
func TestFloatOperations(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	directions := map[string]Rounding{"": Nearest, ".rz": ToZero, ".rm": Down, ".rp": Up}
	for _, f := range []format{single, double} {
		suffix, value := ".f32", func(x uint64) float64 { return float64(F32(x)) }
		if f == double {
			suffix, value = ".f64", F64
		}
		for range 400 {
			raw := [3]uint64{finite(r, f), finite(r, f), finite(r, f)}
			a, b, c := rat(value(raw[0])), rat(value(raw[1])), rat(value(raw[2]))
			exact := map[string]*big.Rat{
				"add": new(big.Rat).Add(a, b), "sub": new(big.Rat).Sub(a, b), "mul": new(big.Rat).Mul(a, b),
				"fma": new(big.Rat).Add(new(big.Rat).Mul(a, b), c),
			}
			if b.Sign() != 0 {
				exact["div"] = new(big.Rat).Quo(a, b)
			}
			if a.Sign() != 0 {
				exact["rcp"] = new(big.Rat).Inv(a)
			}
			for op, want := range exact {
				if want.Sign() == 0 {
					continue // the sign of a zero is another rule
				}
				for mode, d := range directions {
					if got, want := Op(op+mode+suffix)(raw[0], raw[1], raw[2]), f.round(want, d); got != want {
						t.Fatalf("%s of %#x: %#x, want %#x", op+mode+suffix, raw, got, want)
					}
				}
			}
		}
	}
}

// TestZeroSums has the signs of sums that are zero, and what becomes of NaN and infinities.
func TestZeroSums(t *testing.T) {
	minus, one, inf := uint64(1<<31), uint64(0x3f800000), uint64(0x7f800000)
	for _, c := range []struct {
		op      string
		a, b, c uint64
		want    uint64
	}{
		{"add.f32", one, one | minus, 0, 0},
		{"add.rm.f32", one, one | minus, 0, minus},
		{"add.rm.f32", 0, 0, 0, 0},
		{"add.f32", minus, minus, 0, minus},
		{"fma.rm.f32", one, one, one | minus, minus},
		{"fma.f32", one, minus, minus, minus},
		{"sub.f32", inf, inf, 0, NaN32},
		{"mul.f32", inf, 0, 0, NaN32},
		{"div.f32", one, minus, 0, inf | minus},
		{"min.f32", NaN32, one, 0, one},
		{"max.f32", minus, 0, 0, 0},
		{"sqrt.f32", minus, 0, 0, minus},
		{"sqrt.f32", one | minus, 0, 0, NaN32},
	} {
		if got := Op(c.op)(c.a, c.b, c.c); got != c.want {
			t.Errorf("%s of %#x %#x %#x: %#x, want %#x", c.op, c.a, c.b, c.c, got, c.want)
		}
	}
	if got := Op("div.approx.f32")(one, math.MaxUint32&0x7f000001, 0); got != 0 {
		t.Errorf("div.approx by more than 2^126: %#x", got)
	}
}
