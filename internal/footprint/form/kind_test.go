package form

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/interval"
)

// evaluate's bounds hold for every operation on small numbers.
func TestVariableBounds(t *testing.T) {
	ops := map[Kind]Op{
		KindDivU: OpDivU, KindDivS: OpDivS, KindRemU: OpRemU, KindRemS: OpRemS, KindMulHiU: OpMulHiU,
		KindMulHiS: OpMulHiS, KindMul: OpMul, KindMinU: OpMinU,
		KindMinS: OpMinS, KindMaxU: OpMaxU, KindMaxS: OpMaxS, KindAbs: OpAbs, KindAnd: OpAnd, KindOr: OpOr,
		KindXor: OpXor, KindShl: OpShl, KindShrU: OpShrU, KindShrS: OpShrS}
	r := rand.New(rand.NewPCG(5, 6))
	for kind, op := range ops {
		signed := kind == KindDivS || kind == KindRemS || kind == KindMulHiS || kind == KindMinS ||
			kind == KindMaxS || kind == KindAbs || kind == KindShrS || kind == KindMul
		for range 400 {
			pick := func(signed bool) interval.Bounds {
				a, b := int64(r.IntN(256)), int64(r.IntN(256))
				if r.IntN(2) == 0 {
					b = min(a+int64(r.IntN(5)), 255)
				}
				if signed {
					a, b = a-128, b-128
				}
				return interval.Bounds{Lo: min(a, b), Hi: max(a, b)}
			}
			x, y := pick(signed), pick(signed && kind != KindShrS)
			got := Evaluate(kind, 8, 0, x, y)
			for a := x.Lo; a <= x.Hi; a++ {
				for b := y.Lo; b <= y.Hi; b++ {
					v, ok := Compute(op, 8, 8, Canonical(8, a), Canonical(8, b), 0)
					if !ok {
						continue
					}
					// The variable is congruent to the value: some number in the bounds is.
					in := got.Hi-got.Lo >= 255
					for _, k := range [...]int64{v, v + 256, v - 256} {
						in = in || got.Lo <= k && k <= got.Hi
					}
					if !in {
						for k := v - 256*128; k <= v+256*256; k += 256 {
							in = in || got.Lo <= k && k <= got.Hi
						}
					}
					if !in {
						t.Fatalf("kind %d: %d, %d gives %d, not in %v (of %v, %v)", kind, a, b, v, got, x, y)
					}
				}
			}
		}
	}
}
