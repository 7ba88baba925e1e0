package softgpu

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A list that each thread builds from nodes, adds up and frees.
const heapKernels = header + `.extern .func (.param .b64 p) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry list(.param .u64 out)
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	mov.u64 %rd3, 0;
	mov.u32 %r2, 0;
PUSH:
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra SUM;
	{
		.param .b64 n;
		.param .b64 p;
		st.param.b64 [n], 24;
		call (p), malloc, (n);
		ld.param.b64 %rd4, [p];
	}
	setp.eq.u64 %p2, %rd4, 0;
	@%p2 trap;
	st.u64 [%rd4], %rd3;
	st.u32 [%rd4+16], %r2;
	mov.u64 %rd3, %rd4;
	add.u32 %r2, %r2, 1;
	bra PUSH;
SUM:
	mov.u32 %r4, 0;
POP:
	setp.eq.u64 %p1, %rd3, 0;
	@%p1 bra DONE;
	ld.u32 %r3, [%rd3+16];
	add.u32 %r4, %r4, %r3;
	ld.u64 %rd5, [%rd3];
	{
		.param .b64 p;
		st.param.b64 [p], %rd3;
		call free, (p);
	}
	mov.u64 %rd3, %rd5;
	bra POP;
DONE:
	st.global.u32 [%rd1], %r4;
	ret;
}
.visible .entry wrong()
{
	.param .b64 p;
	st.param.b64 [p], 4096;
	call free, (p);
	ret;
}
.visible .entry toomuch(.param .u64 out)
{
	.reg .b64 %rd<9>;
	.param .b64 n;
	.param .b64 p;
	ld.param.u64 %rd1, [out];
	st.param.b64 [n], 1000000000;
	call (p), malloc, (n);
	ld.param.b64 %rd4, [p];
	st.global.u64 [%rd1], %rd4;
	st.param.b64 [p], 0;
	call free, (p);
	ret;
}
`

func TestDeviceHeap(t *testing.T) {
	d := newDevice(t, 8)
	in := d.load(heapKernels)
	out := d.alloc(4 * 64)
	one := LaunchConfig{Grid: dims(1), Block: dims(64), Params: params(out)}
	d.fails(in, "list", one, FaultUnsupported) // no heap
	const size = 1 << 20
	base := d.alloc(size)
	if err := d.space.SetHeap(base, size); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.run(in, "list", one)
		for i, x := range view[uint32](d, out, 64) {
			if want := uint32(max(0, i*(i-1)/2)); x != want {
				t.Fatalf("thread %d: %d, want %d", i, x, want)
			}
		}
	}
	if h := d.space.heap.Load(); len(h.free) != 1 || h.free[0] != (Range{Addr: base, Len: size}) || len(h.used) != 0 {
		t.Errorf("after all is freed: %v, %d in use", h.free, len(h.used))
	}
	// A heap that is carried over gives out only what was free.
	kept := []Range{{Addr: base + 16, Len: 32}, {Addr: base + 48, Len: 16}, {Addr: base + size - 16, Len: 16}}
	if err := d.space.RestoreHeap(base, size, kept); err != nil {
		t.Fatal(err)
	}
	h := d.space.heap.Load()
	if want := []Range{{Addr: base, Len: 16}, {Addr: base + 64, Len: size - 80}}; !slices.Equal(h.free, want) ||
		!slices.Equal(d.space.HeapUsed(), kept) {
		t.Errorf("restored heap: %v free, %v used", h.free, d.space.HeapUsed())
	}
	for _, bad := range [][]Range{
		{{Addr: base, Len: 8}}, {{Addr: base + 32, Len: 32}, {Addr: base + 48, Len: 16}},
		{{Addr: base + size, Len: 16}}, {{Addr: base - 16, Len: 16}},
	} {
		if d.space.RestoreHeap(base, size, bad) == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	if err := d.space.SetHeap(base, size); err != nil {
		t.Fatal(err)
	}
	view[uint64](d, out, 1)[0] = 1
	d.run(in, "toomuch", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(out)})
	if got := view[uint64](d, out, 1)[0]; got != 0 {
		t.Errorf("malloc of more than there is: %#x", got)
	}
	d.fails(in, "wrong", LaunchConfig{Grid: dims(1), Block: dims(1)}, FaultUnmapped)
	if d.space.SetHeap(testLo+8<<20, size) == nil {
		t.Error("a heap that is not mapped is accepted")
	}
}

// Blocks never overlap, lie inside and are aligned, whatever the order.
func TestHeapRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	const base, size = 1 << 20, 1 << 16
	h := &heap{free: []Range{{Addr: base, Len: size}}, used: map[uint64]uint64{}}
	owner := make([]uint64, size)
	live := map[uint64]uint64{}
	for range 5000 {
		if r.IntN(5) < 3 {
			n, align := 1+r.Uint64N(2000), uint64(16)<<r.IntN(4)
			at := h.alloc(n, align)
			if at == 0 {
				continue
			}
			if at%align != 0 || at < base || at+n > base+size {
				t.Fatalf("%d bytes at %#x, alignment %d", n, at, align)
			}
			for i := range n {
				if owner[at-base+i] != 0 {
					t.Fatalf("%#x is given out twice", at+i)
				}
				owner[at-base+i] = at
			}
			live[at] = n
			continue
		}
		for at, n := range live {
			if !h.release(at) || h.release(at) {
				t.Fatalf("release of %#x", at)
			}
			clear(owner[at-base : at-base+n])
			delete(live, at)
			break
		}
	}
	for at := range live {
		h.release(at)
	}
	if len(h.free) != 1 || h.free[0] != (Range{Addr: base, Len: size}) {
		t.Errorf("after all is freed: %v", h.free)
	}
}
