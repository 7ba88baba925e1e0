package softgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// A product with a sparse A is the product with the A that has zeros where nothing is.
func TestSparseMMA(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	d := newDevice(t, 4)
	for _, c := range []struct {
		ks         string
		types      string
		satfinite  bool
		group, per int // elements of a group, and elements that stand together
	}{
		{"16 32", "f16 f16 f16 f16", false, 4, 1}, {"16 32", "f32 f16 f16 f32", false, 4, 1},
		{"16 32", "f32 bf16 bf16 f32", false, 4, 1},
		{"8 16", "f32 tf32 tf32 f32", false, 2, 1}, {"64", "f32 e4m3 e5m2 f32", false, 4, 1},
		{"32 64", "s32 s8 u8 s32", false, 4, 1}, {"32 64", "s32 u8 u8 s32", true, 4, 1},
		{"64 128", "s32 s4 u4 s32", false, 8, 2},
	} {
		for _, text := range strings.Fields(c.ks) {
			var k int
			fmt.Sscan(text, &k)
			typ := strings.Fields(c.types)
			fd, fa, fb := numberFormats[typ[0]], numberFormats[typ[1]], numberFormats[typ[2]]
			// Bits of metadata in a row, and how many selectors there are.
			metaBits := k / c.group * 4
			selectors := 64 / metaBits
			for selector := range selectors {
				for _, op := range []string{"mma.sp", "mma.sp::ordered_metadata"} {
					name := op + ".sync.aligned.m16n8k" + text + ".row.col"
					if c.satfinite {
						name += ".satfinite"
					}
					name += "." + strings.Join(typ, ".")
					checkSparse(t, r, d, name, typ, fd, fa, fb, k, c.group, c.per, selector, c.satfinite)
				}
			}
		}
	}
}

// randomSparsity makes the metadata of 16 rows, a word for each lane, and says where in its row each element stands.
func randomSparsity(r *rand.Rand, bits, k, group, together, selector int) (words [32]uint64, at []int) {
	metaBits := k / group * 4
	for row := range 16 {
		var meta [2]uint64 // up to 64 bits, in halves
		for g := range k / group {
			var nibble uint64
			var places []int
			if group == 2 { // one of two: 0100 is the first, 1110 the second
				x := r.IntN(2)
				nibble, places = []uint64{4, 14}[x], []int{x}
			} else {
				x := r.IntN(3)
				y := x + 1 + r.IntN(3-x)
				nibble, places = uint64(x|y<<2), []int{x, y}
			}
			meta[g/8] |= nibble << (g % 8 * 4)
			for _, p := range places {
				for e := range together {
					at = append(at, g*group+p*together+e)
				}
			}
		}
		quad := row % 8 * 4
		switch {
		case bits >= 16 && metaBits == 16:
			words[quad+selector] |= meta[0] << (row / 8 * 16)
		case bits >= 16:
			words[quad+2*selector] |= meta[0] & 0xffff << (row / 8 * 16)
			words[quad+2*selector+1] |= meta[0] >> 16 << (row / 8 * 16)
		case metaBits == 32:
			words[quad+2*selector+row/8] = meta[0]
		default:
			words[quad+row/8], words[quad+2+row/8] = meta[0], meta[1]
		}
	}
	return words, at
}

func checkSparse(t *testing.T, r *rand.Rand, d *device, name string, typ []string, fd, fa, fb numberFormat, k, group,
	together, selector int, saturate bool) {
	t.Helper()
	const m, n = 16, 8
	kc := k / 2
	abits, avals := fill(r, fa, m*kc)
	bb, bv := fill(r, fb, k*n)
	cb, cv := fill(r, fd, m*n)
	words, at := randomSparsity(r, fa.bits, k, group, together, selector)
	dense := make([]float64, m*k)
	for i, x := range avals {
		dense[i/kc*k+at[i]] = x
	}
	regs := func(elems, bits int) int { return elems * bits / 32 / max(32, bits) }
	nd, na, nb := regs(m*n, fd.bits), regs(m*kc, fa.bits), regs(k*n, fb.bits)
	pa, pb := 32/fa.bits, 32/fb.bits
	atA := func(lane, i int) (int, int) {
		return lane/4 + 8*(i/pa%2), lane%4*pa + i%pa + 4*pa*(i/pa/2)
	}
	atB := func(lane, i int) (int, int) { return lane%4*pb + i%pb + 4*pb*(i/pb), lane / 4 }
	atC := func(lane, i int) (int, int) { return lane/4 + 8*(i/2), lane%4*2 + i%2 }
	input := packFragment(abits, kc, fa.bits, na, atA)
	input = append(input, packFragment(bb, n, fb.bits, nb, atB)...)
	input = append(input, packFragment(cb, n, fd.bits, nd, atC)...)
	input = append(input, words[:]...)
	var cRegs []string
	for i := range nd {
		cRegs = append(cRegs, fmt.Sprintf("%%r%d", na+nb+i))
	}
	in := d.load(tensorKernel(fmt.Sprintf("%s %%D, %%A, %%B, {%s}, %%r%d, %d", name, strings.Join(cRegs, ", "),
		na+nb+nd, selector), false, nd, na, nb, nd+1))
	p, q := upload(d, input), d.alloc(uint64(nd)*256)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p, q)})
	out := view[uint64](d, q, nd*32)
	per := 32 / fd.bits
	for lane := range 32 {
		for i := range nd * per {
			row, col := atC(lane, i)
			want, mag := cv[row*n+col], math.Abs(cv[row*n+col])
			for x := range k {
				want += dense[row*k+x] * bv[x*n+col]
				mag += math.Abs(dense[row*k+x] * bv[x*n+col])
			}
			tol := tolerance(typ[0], want, mag)
			if typ[0] == "s32" {
				tol = 0
				if saturate {
					want = min(max(want, math.MinInt32), math.MaxInt32)
				} else {
					want = float64(int32(int64(want)))
				}
			}
			if got := valueOf(typ[0], out[i/per*32+lane]>>(i%per*fd.bits)); math.Abs(got-want) > tol {
				t.Fatalf("%s, selector %d: row %d, column %d: %v, want %v ± %v", name,
					selector, row, col, got, want, tol)
			}
		}
	}
}
