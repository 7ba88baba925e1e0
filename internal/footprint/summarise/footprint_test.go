package summarise

import (
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"

	"holdfast/internal/footprint"
	"holdfast/ptx"
)

// summarised is the summary of the one kernel in a text.
func summarised(tb testing.TB, what, src string) *footprint.Summary {
	tb.Helper()
	m, err := ptx.Parse("kernel.ptx", []byte(src))
	if err != nil {
		tb.Fatalf("%s: %v\n%s", what, err, src)
	}
	list, err := Module(m)
	if err != nil || len(list) != 1 {
		tb.Fatalf("%s: %d kernels, %v\n%s", what, len(list), err, src)
	}
	return list[0]
}

func TestOpaque(t *testing.T) {
	s := footprint.Opaque("gemm", []footprint.Param{{Name: "p", Size: 40, Align: 8}})
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Allocs: []footprint.Range{{Lo: 0x1000, Hi: 0x2000}, {Lo: 0x3000, Hi: 0x3100}, {Lo: 0x5000, Hi: 0x6000}}}
	// A pointer inside a struct, at a multiple of 4 only; one that is null; one behind an allocation.
	l.Params = appendUint(nil, 0, 4)
	l.Params = appendUint(l.Params, 0x1234, 8)
	l.Params = appendUint(l.Params, 0, 8)
	l.Params = appendUint(l.Params, 0x3100, 8)
	l.Params = appendUint(l.Params, 0, 12)
	var in footprint.Instance
	s.Evaluate(l, &in)
	want := []footprint.Range{{Lo: 0x1000, Hi: 0x2000}}
	if in.Verdict != footprint.Unknown || in.Cause != footprint.NoCode || !in.ReadsUnknown || !in.WritesUnknown ||
		!reflect.DeepEqual(in.Reads, want) || !reflect.DeepEqual(in.Writes, want) {
		t.Errorf("%+v", in)
	}
	// Every launch is looked at anew.
	copy(l.Params[12:], appendUint(nil, 0x5fff, 8))
	s.Evaluate(l, &in)
	if want = append(want, footprint.Range{Lo: 0x5000, Hi: 0x6000}); !reflect.DeepEqual(in.Writes, want) {
		t.Errorf("%x, want %x", in.Writes, want)
	}
}

// TestEvaluateAllocatesNothing: not even if kernels take turns with one Instance.
func TestEvaluateAllocatesNothing(t *testing.T) {
	var list []func(*footprint.Instance)
	for _, name := range []string{"axpy", "gridstride", "scratch", "interleaved", "atomics", "zerofill"} {
		s := summaryOf(t, name)
		_, line := kernelIn(t, name)
		l := launchOf(t, line)
		list = append(list, func(in *footprint.Instance) { s.Evaluate(l, in) })
	}
	var in footprint.Instance
	all := func() {
		for _, evaluate := range list {
			evaluate(&in)
		}
	}
	all()
	if n := testing.AllocsPerRun(100, all); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	for _, name := range []string{"axpy", "gridstride", "scratch", "interleaved", "atomics"} {
		b.Run(name, func(b *testing.B) {
			s := summaryOf(b, name)
			t := &testing.T{}
			_, line := kernelIn(b, name)
			l := launchOf(t, line)
			var in footprint.Instance
			b.ReportAllocs()
			for b.Loop() {
				s.Evaluate(l, &in)
			}
		})
	}
}

// divisorOf claims that x*m >> s is x / c for every x below 2^n.
func TestDivisorOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20000 {
		c := 1 + r.Int64N(5000)
		s, n := 32+r.Int64N(16), 31+r.Int64N(2)
		m := new(big.Int).Lsh(big.NewInt(1), uint(s))
		m.Div(m, big.NewInt(c)).Add(m, big.NewInt(r.Int64N(3)))
		got, ok := divisorOf(m, s, n)
		if !ok {
			continue
		}
		found++
		for range 8 {
			x := r.Int64N(1 << n)
			if r.IntN(2) == 0 { // near a multiple, where it goes wrong first
				x = min(max(x/got*got-1+r.Int64N(3), 0), 1<<n-1)
			}
			q := new(big.Int).Mul(big.NewInt(x), m)
			if q.Rsh(q, uint(s)); q.Int64() != x/got {
				t.Fatalf("%d * %v >> %d = %v, not %d / %d", x, m, s, q, x, got)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d divisors found", found)
	}
}

const dividerKernel = `.version 8.4
.target sm_90
.address_size 64
.visible .entry divider(.param .u64 a, .param .u32 from, .param .u32 d, .param .u32 m, .param .u32 s)
{
	.reg .b32 %r<12>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [a];
	ld.param.u32 %r1, [from];
	ld.param.u32 %r2, [d];
	ld.param.u32 %r3, [m];
	ld.param.u32 %r4, [s];
	mov.u32 %r5, %tid.x;
	add.s32 %r5, %r5, %r1;
	mul.hi.u32 %r6, %r5, %r3;
	add.s32 %r7, %r6, %r5;
	shr.u32 %r8, %r7, %r4;
	mul.lo.s32 %r9, %r8, %r2;
	sub.s32 %r10, %r5, %r9;
	mul.wide.u32 %rd2, %r10, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r11, [%rd3];
	ret;
}
`

// A divider that comes with the parameters is believed only if it is one.
func TestDividers(t *testing.T) {
	kernel := summarised(t, "divider", dividerKernel)
	r := rand.New(rand.NewPCG(11, 12))
	exact, wrong := 0, 0
	var in footprint.Instance
	for i := range 6000 {
		d := uint32(1 + r.Int64N(1<<(1+r.IntN(31))))
		s := uint32(0)
		for s < 31 && uint64(1)<<s < uint64(d) {
			s++
		}
		k := uint32((uint64(1)<<32*(uint64(1)<<s-uint64(d)))/uint64(d) + 1)
		right := d < 1<<31
		switch i % 4 {
		case 1: // too large, or too small
			k += uint32(r.Int32N(9)) - 4
			right = false
		case 2:
			d, s, k = r.Uint32N(1<<r.IntN(31)+1), r.Uint32N(36), r.Uint32()
			right = false
		}
		from := r.Uint32() >> r.IntN(32)
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Params: appendUint(nil, 1<<40, 8)}
		for _, x := range [...]uint32{from, d, k, s} {
			l.Params = appendUint(l.Params, uint64(x), 4)
		}
		kernel.Evaluate(l, &in)
		for tid := range uint32(64) {
			x := from + tid
			q := (uint32(uint64(x)*uint64(k)>>32) + x) >> s
			at := 1<<40 + 4*uint64(x-q*d)
			if !in.ReadsUnknown && !inside(in.Reads, at) {
				t.Fatalf("d %d, m %d, s %d, x %d: reads %#x, foreseen %x", d, k, s, x, at, in.Reads)
			}
			if x < 1<<31 && d > 0 && q != x/d {
				wrong++
			}
		}
		if right && from < 1<<31-64 {
			if exact++; in.ReadsUnknown || in.Reads[0].Hi > 1<<40+4*uint64(d) {
				t.Fatalf("d %d, m %d, s %d, from %d: reads %x", d, k, s, from, in.Reads)
			}
		}
	}
	if exact < 1000 || wrong < 1000 {
		t.Errorf("%d dividers were right, %d quotients wrong", exact, wrong)
	}
}

// TestNegativeBits: of -1 - tid nothing is known of the bits, and two numbers without bounds have no bounded sum.
func TestNegativeBits(t *testing.T) {
	s := tableKernel(t, `
	not.b32 %r3, %r1;
	xor.b32 %r4, %r3, 7;
	mul.wide.s32 %rd8, %r4, 4;
	add.s64 %rd8, %rd1, %rd8;
	st.global.u32 [%rd8], %r1;`)
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{5, 1, 1}}
	l.Params = appendUint(appendUint(appendUint(appendUint(nil, 0x1000, 8), 0, 8), 0, 8), 0, 4)
	var in footprint.Instance
	s.Evaluate(l, &in)
	if want := []footprint.Range{{Lo: 0x1000 - 32, Hi: 0x1000 - 12}}; !in.WritesUnknown &&
		!reflect.DeepEqual(in.Writes, want) {
		t.Errorf("writes %x, want %x", in.Writes, want)
	}
}
