package softgpu

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// vmad against arithmetic without bounds.
func TestVideoMultiplyAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	d := newDevice(t, 4)
	for _, at := range []string{"u32", "s32"} {
		for _, bt := range []string{"u32", "s32"} {
			for _, form := range []string{"", ".po", ".sat", ".sat.shr7", ".shr15", "-a", "-c.sat"} {
				if strings.Contains(form, "-a") && at == "u32" {
					continue
				}
				mods := strings.TrimPrefix(strings.TrimPrefix(form, "-a"), "-c")
				a, c := "%r1", "%r3"
				if strings.HasPrefix(form, "-a") {
					a = "-%r1"
				}
				if strings.HasPrefix(form, "-c") {
					c = "-%r3"
				}
				in := d.load(header + `.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r4, %tid.x;
	mul.wide.u32 %rd2, %r4, 16;
	add.u64 %rd1, %rd1, %rd2;
	ld.global.v2.u32 {%r1, %r2}, [%rd1];
	ld.global.u32 %r3, [%rd1+8];
	vmad.s32.` + at + "." + bt + mods + " %r5, " + a + ", %r2.h1, " + c + `;
	st.global.u32 [%rd1+12], %r5;
	ret;
}
`)
				const n = 64
				mem := make([][4]uint32, n)
				edges := []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x8000ffff, 0x7fff0000}
				for i := range mem {
					for k := range 3 {
						mem[i][k] = r.Uint32()
						if r.IntN(2) == 0 {
							mem[i][k] = edges[r.IntN(len(edges))]
						}
					}
				}
				p := upload(d, mem)
				d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(n), Params: params(p)})
				for i, got := range view[[4]uint32](d, p, n) {
					if want := referenceVmad(mem[i], at, bt, form); got[3] != want {
						t.Fatalf("vmad %s %s %s of %#x: %#x, want %#x", at, bt, form, mem[i], got[3], want)
					}
				}
			}
		}
	}
}

func referenceVmad(x [4]uint32, at, bt, form string) uint32 {
	whole := func(v uint32, t string, n uint) *big.Int {
		b := big.NewInt(int64(v))
		if t == "s32" && v>>(n-1) != 0 {
			b.Sub(b, new(big.Int).Lsh(big.NewInt(1), n))
		}
		return b
	}
	// Whole registers have a sign, whatever the types say: H200, driver 580.159, measured.
	a, b := whole(x[0], "s32", 32), whole(x[1]>>16, bt, 16)
	negA, negC := strings.HasPrefix(form, "-a"), strings.HasPrefix(form, "-c")
	signed := at == "s32" || bt == "s32" || negA || negC
	c := whole(x[2], "s32", 32)
	v := new(big.Int).Mul(a, b)
	if negA {
		v.Neg(v)
	}
	if negC {
		c.Neg(c)
	}
	v.Add(v, c)
	if strings.Contains(form, ".po") {
		v.Add(v, big.NewInt(1))
	}
	for s, n := range map[string]uint{".shr7": 7, ".shr15": 15} {
		if strings.Contains(form, s) {
			if !signed {
				v.And(v, new(big.Int).SetUint64(1<<64-1))
			}
			v.Rsh(v, n)
		}
	}
	if strings.Contains(form, ".sat") {
		lo, hi := big.NewInt(0), big.NewInt(1<<32-1)
		if signed {
			lo, hi = big.NewInt(-1<<31), big.NewInt(1<<31-1)
		}
		if v.Cmp(lo) < 0 {
			v = lo
		}
		if v.Cmp(hi) > 0 {
			v = hi
		}
	}
	return uint32(new(big.Int).And(v, big.NewInt(1<<32-1)).Uint64())
}
