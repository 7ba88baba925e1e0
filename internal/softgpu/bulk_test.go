package softgpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// bulkHead: thread 0 of each block makes an mbarrier at s+0; buf is 16 KiB of shared memory.
const bulkHead = header + `.visible .entry k(.param .u64 p, .param .u64 q, .param .align 64 .b8 map[128])
{
	.reg .b16 %h<4>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<8>;
	.shared .align 16 .b8 s[64];
	.shared .align 1024 .b8 buf[16384];
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	mov.b64 %rd3, map;
	cvta.param.u64 %rd3, %rd3;
	mov.u32 %r1, s;
	mov.u32 %r2, buf;
	mov.u32 %r3, %tid.x;
	mov.u32 %r4, %cluster_ctarank;
	mov.u32 %r5, %ctaid.x;
	setp.eq.u32 %p7, %r3, 0;
	@%p7 mbarrier.init.shared.b64 [%r1], 1;
	bar.sync 0;
	barrier.cluster.arrive;
	barrier.cluster.wait;
`

const bulkWait = `
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra WAIT;
`

// global → shared of every block of the cluster → global, and back by reduction.
func TestBulkCopy(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(bulkHead + `
	@!%p7 bra WAIT;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
	setp.ne.u32 %p2, %r4, 1;
	mov.b16 %h1, 3;
	@!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1], 256, [%r1], %h1;
` + bulkWait + `
	barrier.cluster.arrive;
	barrier.cluster.wait;
	@!%p7 bra DONE;
	mul.wide.u32 %rd4, %r5, 256;
	add.u64 %rd5, %rd2, %rd4;
	cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r2], 256;
	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2+1024], [%r2], 128;
	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd2+2048], [%r2+128], 16;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group.read 0;
	// to the other block's shared memory, which it stores
	xor.b32 %r6, %r4, 1;
	mapa.shared::cluster.u32 %r7, %r2, %r6;
	mapa.shared::cluster.u32 %r8, %r1, %r6;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 72;
	cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7+512], [%r2+64], 64, [%r8];
	st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7+600], %r5, [%r8];
	mov.u32 %r20, 5;
	red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r7+600], %r20, [%r8];
W2:	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 1;
	@!%p1 bra W2;
	ld.shared.u32 %r9, [buf+516];
	ld.shared.u32 %r10, [buf+600];
	mul.wide.u32 %rd4, %r5, 8;
	add.u64 %rd5, %rd2, %rd4;
	st.global.v2.u32 [%rd5+3072], {%r9, %r10};
DONE:
	barrier.cluster.arrive;
	barrier.cluster.wait;
	ret;
}
`)
	src := make([]uint32, 64)
	for i := range src {
		src[i] = uint32(i*i + 1)
	}
	src[32] = 0x3c00_4000 // f16 2 and 1
	p, q := upload(d, src), d.alloc(4096)
	o := &Observer{}
	d.run(in, "k", LaunchConfig{Grid: dims(2), Block: dims(64), Cluster: dims(2),
		Params: slices.Concat(params(p, q), make([]byte, 176)), MaxInstructions: 1e6, Observer: o})
	out := view[uint32](d, q, 1024)
	for b := range 2 {
		if !slices.Equal(out[64*b:64*b+64], src) {
			t.Errorf("block %d stored %v", b, out[64*b:64*b+64])
		}
		if got, want := [2]uint32(out[768+2*b:]), [2]uint32{src[17], uint32(1-b) + 5}; got != want {
			t.Errorf("block %d: %v from the other's shared memory, want %v", b, got, want)
		}
	}
	for i := range 32 {
		if out[256+i] != 2*src[i] {
			t.Errorf("sum %d: %d, want %d", i, out[256+i], 2*src[i])
		}
	}
	if out[512] != 0x4000_4400 { // 4 and 2
		t.Errorf("f16 sums %#x", out[512])
	}
	if got, want := o.Ranges(Read|Exposed, Written), []Range{{Addr: p, Len: 256}}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if got, want := o.Ranges(Written, 0), []Range{{Addr: q, Len: 512}, {Addr: q + 1024, Len: 128},
		{Addr: q + 2048, Len: 16}, {Addr: q + 3072, Len: 16}}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// Tensor copies in one to five dimensions: elements outside, strides, swizzles, and back again.
func TestBulkTensor(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	d := newDevice(t, 8)
	kernels := map[string]*Instance{}
	kernel := func(rank int, op string) *Instance {
		key := fmt.Sprint(rank, op)
		if kernels[key] != nil {
			return kernels[key]
		}
		var b strings.Builder
		b.WriteString(bulkHead + "\tadd.u64 %rd10, %rd1, 0;\n")
		coords := []string{"%r10", "%r11", "%r12", "%r13", "%r14"}[:rank]
		for i, c := range coords {
			fmt.Fprintf(&b, "\tld.global.u32 %s, [%%rd1+%d];\n", c, 4*i)
		}
		fmt.Fprintf(&b, "\tld.global.u32 %%r20, [%%rd1+20];\n")
		list := strings.Join(coords, ", ")
		switch op {
		case "load":
			fmt.Fprintf(&b, `	@!%%p7 bra WAIT;
	mbarrier.arrive.expect_tx.shared.b64 _, [%%r1], %%r20;
	cp.async.bulk.tensor.%dd.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%%r2], [%%rd3, {%s}], [%%r1];
`, rank, list)
			b.WriteString(bulkWait + `	shl.b32 %r21, %r3, 2;
C:	add.u32 %r22, %r2, %r21;
	ld.shared.u32 %r23, [%r22];
	cvt.u64.u32 %rd4, %r21;
	add.u64 %rd4, %rd4, %rd2;
	st.global.u32 [%rd4], %r23;
	add.u32 %r21, %r21, 128;
	setp.lt.u32 %p2, %r21, 16384;
	@%p2 bra C;
	ret;
}
`)
		default:
			b.WriteString(`	shl.b32 %r21, %r3, 2;
C:	add.u32 %r22, %r2, %r21;
	cvt.u64.u32 %rd4, %r21;
	add.u64 %rd4, %rd4, %rd2;
	ld.global.u32 %r23, [%rd4];
	st.shared.u32 [%r22], %r23;
	add.u32 %r21, %r21, 128;
	setp.lt.u32 %p2, %r21, 16384;
	@%p2 bra C;
	bar.sync 0;
	fence.proxy.async;
	@!%p7 ret;
`)
			name, fn := "cp", ""
			if op != "store" {
				name, fn = "cp.reduce", "."+op
			}
			fmt.Fprintf(&b, "\t%s.async.bulk.tensor.%dd.global.shared::cta%s.tile.bulk_group [%%rd3, {%s}], [%%r2];\n"+
				"\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;\n\tret;\n}\n", name, rank, fn, list)
		}
		kernels[key] = d.load(b.String())
		return kernels[key]
	}
	const args, dense, tensor, tensorBytes = testLo + 1<<20, testLo + 1<<20 + 4096, testLo + 2<<20, 2 << 20
	for round := range 120 {
		m := &TensorMap{Type: []TensorType{TensorU8, TensorU16, TensorU32, TensorU64, TensorF32}[r.IntN(5)],
			Rank: 1 + r.IntN(5), Address: tensor, Swizzle: uint8(r.IntN(4)), FillNaN: r.IntN(2) == 0}
		size := m.Type.Size()
		inner := uint64(16) << r.IntN(4)
		if m.Swizzle > 0 {
			inner = 16 << m.Swizzle
		}
		m.Box[0], m.Step[0] = uint32(inner/size), 1
		m.Dim[0] = uint64(m.Box[0]) + r.Uint64N(20)
		stride := (m.Dim[0]*size + 15) / 16 * 16
		total := inner
		for i := 1; i < m.Rank; i++ {
			m.Dim[i] = 1 + r.Uint64N(6)
			m.Step[i] = 1 + uint32(r.IntN(2))
			m.Box[i] = 1 + uint32(r.IntN(5))
			m.Stride[i-1] = stride
			stride *= m.Dim[i]
			total *= uint64((m.Box[i] + m.Step[i] - 1) / m.Step[i])
		}
		if total > 16384 || stride > tensorBytes || m.Swizzle > 0 && total%128 != 0 {
			continue
		}
		enc := m.Encode()
		if back, err := DecodeTensorMap(enc[:]); err != nil || *back != *m {
			t.Fatalf("%+v is decoded as %+v: %v", m, back, err)
		}
		mem, box := view[byte](d, tensor, tensorBytes), view[byte](d, dense, 16384)
		for i := range stride {
			mem[i] = byte(r.Uint32())
		}
		before := slices.Clone(mem)
		var start [5]int32
		op := []string{"load", "store", "add"}[round%3]
		for i := range m.Rank {
			start[i] = int32(r.IntN(int(m.Dim[i])+4)) - 2
			if op != "load" {
				start[i] = max(start[i], 0)
			}
		}
		copy(view[int32](d, args, 6), append(start[:], int32(total)))
		for i := range box {
			box[i] = byte(r.Uint32())
		}
		if op == "add" && (m.Type == TensorU8 || m.Type == TensorU16 || m.Type == TensorF32) {
			op = "store"
		}
		shared := slices.Clone(box)
		p := slices.Concat(params(uint64(args), uint64(dense)), make([]byte, 48), enc[:])
		d.run(kernel(m.Rank, op), "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: p, MaxInstructions: 1e6})
		// Element by element, over the box in order.
		var n [5]uint64
		for i := range 5 {
			n[i] = 1
			if i < m.Rank {
				n[i] = uint64((m.Box[i] + m.Step[i] - 1) / m.Step[i])
			}
		}
		number := func(b []byte) (x uint64) {
			for i := range size {
				x |= uint64(b[i]) << (8 * i)
			}
			return x
		}
		want := slices.Clone(before)
		for e := range total / size {
			rest, off, inside := e, uint64(0), true
			for i := range m.Rank {
				c := int64(start[i]) + int64(rest%n[i]*uint64(m.Step[i]))
				rest /= n[i]
				if c < 0 || c >= int64(m.Dim[i]) {
					inside = false
				} else if i == 0 {
					off += uint64(c) * size
				} else {
					off += uint64(c) * m.Stride[i-1]
				}
			}
			// Chunk j of 16 bytes in line k of 128 bytes: j ^ k%8, with fewer bits in narrower modes.
			at := e * size
			chunk, line := at/16%8, at/128%8
			bitsOf := []uint64{0, 1, 3, 7}[m.Swizzle]
			at = at/128*128 + (chunk^line&bitsOf)*16 + at%16
			switch {
			case op == "load":
				x := uint64(0)
				if inside {
					x = number(before[off:])
				} else if m.FillNaN && m.Type == TensorF32 {
					x = 0x7ff77ff7
				}
				if got := number(box[at:]); got != x {
					t.Fatalf("%+v at %v: element %d is %#x, want %#x", m, start, e, got, x)
				}
			case inside:
				x := number(shared[at:])
				if op == "add" {
					x += number(before[off:])
				}
				for i := range size {
					want[off+i] = byte(x >> (8 * i))
				}
			}
		}
		if !slices.Equal(mem, want) {
			t.Fatalf("%s %+v at %v: global memory differs", op, m, start)
		}
	}
}

func TestTensorMapRefused(t *testing.T) {
	good := TensorMap{Type: TensorF16, Rank: 2, Address: testLo, Dim: [5]uint64{64, 8}, Stride: [4]uint64{128},
		Box: [5]uint32{64, 8}, Step: [5]uint32{1, 1}, Swizzle: 3}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(m *TensorMap){
		func(m *TensorMap) { m.Type = 99 }, func(m *TensorMap) { m.Rank = 6 }, func(m *TensorMap) { m.Rank = 0 },
		func(m *TensorMap) { m.Address++ },
		func(m *TensorMap) { m.Dim[1] = 0 }, func(m *TensorMap) { m.Stride[0] = 8 },
		func(m *TensorMap) { m.Box[0] = 257 }, func(m *TensorMap) { m.Box[0] = 4 },
		func(m *TensorMap) { m.Box[0] = 128 }, func(m *TensorMap) { m.Step[1] = 9 },
		func(m *TensorMap) { m.Interleave = 1 }, func(m *TensorMap) { m.Swizzle = 4 },
	} {
		m := good
		change(&m)
		enc := m.Encode()
		if _, err := DecodeTensorMap(enc[:]); err == nil && m != good {
			t.Errorf("change %d is accepted", i)
		}
	}
	if _, err := DecodeTensorMap(make([]byte, TensorMapSize)); err == nil {
		t.Error("zeros are a tensor map")
	}
}

func TestBulkFaults(t *testing.T) {
	d := newDevice(t, 4)
	for body, kind := range map[string]FaultKind{
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2], [%rd1], 8, [%r1];\n": FaultMisaligned,
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2+8], [%rd1], 16, [%r1];\n": FaultMisaligned,
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2+16384], [%rd1], 16, [%r1];\n": FaultUnmapped,
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2], [1024], 16, [%r1];\n": FaultUnmapped,
		"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2], [%rd3, {%r3, %r3}], [%r1];\n": FaultUnsupported,
		"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes " +
			"[%r2], [%rd3+8, {%r3, %r3}], [%r1];\n": FaultMisaligned,
		"mov.b16 %h1, 4;\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster " +
			"[%r2], [%rd1], 16, [%r1], %h1;\n": FaultUnmapped,
	} {
		in := d.load(bulkHead + body + "ret;\n}\n")
		d.fails(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1),
			Params: slices.Concat(params(d.alloc(64), d.alloc(64)), make([]byte, 176))}, kind)
	}
}

// FuzzTensorMap: whatever bytes stand for a tensor map, they are refused, or mean something that encodes to the same.
func FuzzTensorMap(f *testing.F) {
	m := TensorMap{Type: TensorF16, Rank: 2, Address: testLo, Dim: [5]uint64{64, 8}, Stride: [4]uint64{128},
		Box: [5]uint32{64, 8}, Step: [5]uint32{1, 1}, Swizzle: 3}
	enc := m.Encode()
	f.Add(enc[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeTensorMap(b)
		if err != nil {
			return
		}
		enc := m.Encode()
		if back, err := DecodeTensorMap(enc[:]); err != nil || *back != *m {
			t.Fatalf("%+v comes back as %+v: %v", m, back, err)
		}
		if n := m.boxBytes(); n == 0 || n > 256*256*256*256*256*8 {
			t.Fatalf("%+v: a box of %d bytes", m, n)
		}
	})
}

// A map that is made on the device, from zeros, is the one that the host would make.
func TestTensorMapReplace(t *testing.T) {
	d := newDevice(t, 4)
	m := &TensorMap{Type: TensorBF16, Rank: 2, Address: testLo + 1<<20, Dim: [5]uint64{100, 50}, Stride: [4]uint64{256},
		Box: [5]uint32{64, 8}, Step: [5]uint32{1, 2}, Swizzle: 3, FillNaN: true}
	for version, stride := range map[string]string{"8.5": "256", "8.4": "16"} {
		in := d.load(strings.Replace(strings.Replace(header, "8.5", version, 1), "sm_90", "sm_90a", 1) + `.visible .entry k(.param .u64 p, .param .u64 base)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<5>;
	.shared .align 128 .b8 map[128];
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [base];
	tensormap.replace.tile.global_address.shared::cta.b1024.b64 [map], %rd2;
	tensormap.replace.tile.rank.shared::cta.b1024.b32 [map], 1;
	tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 0, 64;
	tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, 8;
	tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [map], 0, 100;
	tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [map], 1, 50;
	tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [map], 0, ` + stride + `;
	tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [map], 0, 1;
	tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [map], 1, 2;
	tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [map], 10;
	tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [map], 0;
	tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [map], 3;
	tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [map], 128;
	tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd1], 1;
	fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
	prefetch.tensormap [%rd1];
	ret;
}
`)
		p := d.alloc(TensorMapSize)
		d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p, m.Address)})
		got, err := DecodeTensorMap(view[byte](d, p, TensorMapSize))
		if err != nil || *got != *m {
			t.Errorf("PTX %s: %+v, %v; want %+v", version, got, err, m)
		}
		view[byte](d, p, TensorMapSize)[0] = 2
		in2 := d.load(header + ".visible .entry k(.param .u64 p)\n{\n\t.reg .b64 %rd<3>;\n\tld.param.u64 %rd1, [p];\n" +
			"\ttensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;\n\tret;\n}\n")
		d.fails(in2, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p)}, FaultUnsupported)
	}
}

// Multicast memory of one device is memory.
func TestMultimem(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + `.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	multimem.red.relaxed.gpu.global.add.u32 [%rd1], 5;
	multimem.ld_reduce.relaxed.gpu.global.add.u32 %r1, [%rd1];
	multimem.st.relaxed.gpu.global.u32 [%rd1+4], %r1;
	multimem.red.relaxed.gpu.global.add.v2.f16x2 [%rd1+8], {%r2, %r3};
	multimem.ld_reduce.global.add.acc::f32.v2.f16x2 {%r4, %r5}, [%rd1+8];
	multimem.st.global.v2.f16x2 [%rd1+16], {%r5, %r4};
	ret;
}
`)
	p := upload(d, []uint32{7, 0, 0x3c003c00, 0x40004000, 0, 0})
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p)})
	want := [6]uint32{12, 12, 0x3c003c00, 0x40004000, 0x40004000, 0x3c003c00}
	if got := view[[6]uint32](d, p, 1)[0]; got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}
