package softgpu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/softgpu/number"
)

// small8 is an 8-bit format by its table of values.
type small8 struct {
	name  string
	e, m  int
	nan   func(code int) bool
	inf   func(code int) bool
	toNaN uint64
}

func (s small8) value(code int) *big.Rat {
	bias := 1<<(s.e-1) - 1
	exp, frac := code>>s.m&(1<<s.e-1), code&(1<<s.m-1)
	v := new(big.Rat).SetInt64(int64(frac))
	if exp > 0 {
		v.SetInt64(int64(frac + 1<<s.m))
	} else {
		exp = 1
	}
	return v.Mul(v, pow2(exp-bias-s.m))
}

// nearest looks at every code. The values are few bits, so float64 holds them
// and their differences to a float32 exactly enough: ties are exact.
func (s small8) nearest(x uint64) uint64 {
	if binary32.isNaN(x) {
		return s.toNaN
	}
	var sign uint64
	if binary32.neg(x) {
		sign = 1 << (s.e + s.m)
	}
	best, dist := -1, 0.0
	a := min(math.Abs(float64(number.F32(x))), 0x1p20)
	for code := range 1 << (s.e + s.m) {
		if s.nan(code) || s.inf(code) {
			continue
		}
		v, _ := s.value(code).Float64()
		if d := math.Abs(v - a); best < 0 || d < dist || d == dist && code&1 == 0 {
			best, dist = code, math.Abs(v-a)
		}
	}
	return sign | uint64(best)
}

func TestSmallFormats(t *testing.T) {
	none := func(int) bool { return false }
	formats := []small8{
		{"e4m3", 4, 3, func(c int) bool { return c == 0x7f }, none, 0x7f},
		{"e5m2", 5, 2, func(c int) bool { return c > 0x7c }, func(c int) bool { return c == 0x7c }, 0x7f},
		{"e2m3", 2, 3, none, none, 0x1f},
		{"e3m2", 3, 2, none, none, 0x1f},
	}
	var es []expectation
	for _, s := range formats {
		for _, relu := range []string{"", ".relu"} {
			es = append(es, expectation{inst: "cvt.rn.satfinite" + relu + "." + s.name + "x2.f32", dst: "b16",
				src: []string{"f32", "f32"}, want: func(x []uint64) uint64 {
					one := func(x uint64) uint64 {
						if relu != "" && binary32.neg(x) && !binary32.isNaN(x) {
							return 0
						}
						return s.nearest(x)
					}
					return one(x[0])<<8 | one(x[1])
				}})
		}
		es = append(es, expectation{inst: "cvt.rn.f16x2." + s.name + "x2", dst: "b32", src: []string{"b16"},
			want: func(x []uint64) uint64 {
				one := func(c int) uint64 {
					var sign uint64
					if c>>(s.e+s.m)&1 != 0 {
						sign = 0x8000
					}
					c &= 1<<(s.e+s.m) - 1
					switch {
					case s.nan(c):
						return 0x7fff
					case s.inf(c):
						return sign | 0x7c00
					case c == 0:
						return sign
					}
					return sign | binary16.round(s.value(c), "rn", false)
				}
				return one(int(x[0]&0xff)) | one(int(x[0]>>8))<<16
			}})
	}
	tf32 := floatFormat{"tf32", 8, 10, 0}
	for _, mode := range []string{"rn", "rna", "rz"} {
		es = append(es, expectation{inst: "cvt." + mode + ".tf32.f32", dst: "b32", src: []string{"f32"},
			want: func(x []uint64) uint64 {
				switch {
				case binary32.isNaN(x[0]):
					if mode == "rna" {
						return x[0] >> 13 << 13
					}
					return 0x7fffe000
				case binary32.isInf(x[0]) || binary32.zero(x[0]):
					return x[0]
				}
				return tf32.round(binary32.rat(x[0]), mode, false) << 13
			}})
	}
	for _, typ := range []string{"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"} {
		var n int
		fmt.Sscanf(typ[1:], "%d", &n)
		inst, src := "cvt.pack.sat."+typ+".s32", []string{"b32", "b32"}
		if n < 16 {
			inst, src = inst+".b32", []string{"b32", "b32", "b32"}
		}
		es = append(es, expectation{inst: inst, dst: "b32", src: src, want: func(x []uint64) uint64 {
			one := func(x uint64) uint64 { return wrapTo(clampTo(bigOf(x, 32, true), n, typ[0] == 's'), n) }
			d := one(x[0])<<n | one(x[1])
			if n < 16 {
				d |= x[2] << (2 * n)
			}
			return d & 0xffffffff
		}})
	}
	check(t, es, func(r *rand.Rand, e expectation) []uint64 {
		x := genFloat(r, e)
		for i := range x {
			switch {
			case e.src[i] == "f32" && r.IntN(2) == 0: // the range of the small formats
				x[i] = number.Bits32(float32(math.Ldexp(float64(r.IntN(256)), r.IntN(20)-12)) * float32(1-2*r.IntN(2)))
			case strings.Contains(e.inst, "pack") && r.IntN(2) == 0:
				x[i] = uint64(uint32(r.IntN(600) - 300))
			}
		}
		return x
	})
}

func TestVideo(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 q)
{
	.reg .b32 %r<20>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [q];
	mov.u32 %r1, 0x80ff7f01;
	mov.u32 %r2, 0x01020304;
	mov.u32 %r3, 100;
	vadd.s32.s32.s32 %r4, %r1.b3, %r2.b0;
	st.global.u32 [%rd1], %r4;
	vsub.u32.u32.u32.sat %r4, %r2.h0, %r1.h0;
	st.global.u32 [%rd1+4], %r4;
	vabsdiff.u32.s32.s32.add %r4, %r1.b2, %r2.b2, %r3;
	st.global.u32 [%rd1+8], %r4;
	vmax.s32.s32.s32 %r4.b1, %r1.b0, %r2.b3, %r1;
	st.global.u32 [%rd1+12], %r4;
	vadd4.s32.s32.s32.sat %r4, %r1, %r2, %r3;
	st.global.u32 [%rd1+16], %r4;
	vabsdiff4.u32.u32.u32.add %r4, %r1, %r2, %r3;
	st.global.u32 [%rd1+20], %r4;
	vmin2.s32.s32.s32 %r4, %r1, %r2, %r3;
	st.global.u32 [%rd1+24], %r4;
	vshl.u32.u32.u32.clamp %r4, %r3, %r2.b0;
	st.global.u32 [%rd1+28], %r4;
	vset.s32.s32.lt %r4, %r1.b3, %r2.b0;
	st.global.u32 [%rd1+32], %r4;
	ret;
}
`)
	q := d.alloc(64)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(q)})
	want := [9]uint32{
		0xffffff84, // -128 + 4
		0,          // 0x0304 - 0x7f01 < 0
		3 + 100,    // |-1 - 2| + 100
		0x80ff0101,
		0x81017f05,
		uint32(0x80-1+0xff-2+0x7f-3+(4-1)) + 100,
		0x80ff0304,
		1600,
		1,
	}
	if got := [9]uint32(view[uint32](d, q, 9)); got != want {
		t.Fatalf("%x, want %x", got, want)
	}
}

// Several launches of one module at a time, as streams do.
func TestConcurrentLaunches(t *testing.T) {
	d := newDevice(t, 8)
	in := d.load(blockSum)
	var wg sync.WaitGroup
	type job struct {
		p, q uint64
		want float32
	}
	var jobs []job
	for k := range 6 {
		x := make([]float32, 256*8)
		j := job{}
		for i := range x {
			x[i] = float32((i + k) % 5)
			j.want += x[i]
		}
		j.p, j.q = upload(d, x), upload(d, []float32{0})
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		wg.Go(func() {
			if _, err := in.Launch("sum",
				LaunchConfig{Grid: dims(8), Block: dims(256), Params: params(j.p, j.q)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, j := range jobs {
		if got := view[float32](d, j.q, 1)[0]; got != j.want {
			t.Errorf("sum %v, want %v", got, j.want)
		}
	}
}

func TestSpecialRegisters(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 q)
{
	.reg .b32 %r<30>;
	.reg .b64 %rd<9>;
	.reg .pred %p<3>;
	ld.param.u64 %rd1, [q];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	mov.u32 %r3, %tid.z;
	mov.u32 %r4, %ntid.x;
	mov.u32 %r5, %ntid.y;
	mad.lo.u32 %r6, %r3, %r5, %r2;
	mad.lo.u32 %r6, %r6, %r4, %r1;
	mul.wide.u32 %rd2, %r6, 64;
	add.u64 %rd3, %rd1, %rd2;
	mov.u64 %rd4, %clock64;
	mov.u64 %rd5, %globaltimer;
	nanosleep.u32 100;
	mov.u64 %rd6, %clock64;
	setp.gt.u64 %p1, %rd6, %rd4;
	selp.u32 %r7, 1, 0, %p1;
	st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r7};
	mov.u32 %r8, %laneid;
	mov.u32 %r9, %warpid;
	mov.u32 %r10, %lanemask_lt;
	mov.u32 %r11, %lanemask_ge;
	st.global.v4.u32 [%rd3+16], {%r8, %r9, %r10, %r11};
	mov.u32 %r12, %nctaid.x;
	mov.u32 %r13, %ctaid.x;
	mov.u32 %r14, %ntid.z;
	cvt.u32.u16 %r15, %tid.y;
	st.global.v4.u32 [%rd3+32], {%r12, %r13, %r14, %r15};
	mov.u32 %r16, WARP_SZ;
	st.global.u32 [%rd3+48], %r16;
	ret;
}
`)
	const n = 5 * 7 * 3
	q := d.alloc(64 * n)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(5, 7, 3), Params: params(q)})
	for i := range uint32(n) {
		got := view[[16]uint32](d, q, n)[i]
		lane := i % 32
		want := [16]uint32{i % 5, i / 5 % 7, i / 35, 1, lane, i / 32, 1<<lane - 1,
			^uint32(1<<lane - 1), 1, 0, 3, i / 5 % 7, 32}
		if got != want {
			t.Fatalf("thread %d: %v, want %v", i, got, want)
		}
	}
}
