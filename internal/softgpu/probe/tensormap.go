package probe

import (
	"fmt"
	"strings"
)

// A Map is a tensor in the input or the output of a probe, and the box that one copy moves; the third parameter is its
// encoded form, which each side makes for itself (cuTensorMapEncodeTiled). Elements are 32 bits wide.
type Map struct {
	Float   bool // of type f32, else u32
	Output  bool // the tensor is what the probe writes
	Dim     []uint64
	Box     []uint32
	Step    []uint32
	Swizzle uint8 // 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes
	FillNaN bool
}

// Strides are the bytes from an element to the next in dimension 1 and the following ones.
func (m *Map) Strides() []uint64 {
	var s []uint64
	n := uint64(4)
	for _, d := range m.Dim[:len(m.Dim)-1] {
		n *= d
		s = append(s, n)
	}
	return s
}

// tensorCopies makes the probes of copies with tensor maps: four blocks, each a box at other coordinates, some of them
// outside the tensor.
func tensorCopies(spelling string) []*Probe {
	if strings.Contains(spelling, "im2col") {
		return nil
	}
	rank := 0
	for _, m := range strings.Split(spelling, ".") {
		if len(m) == 2 && m[1] == 'd' {
			rank = int(m[0] - '0')
		}
	}
	if rank == 0 {
		return nil
	}
	load := strings.Contains(spelling, ".mbarrier::complete_tx")
	ps := []*Probe{tensorCopy(spelling, "", rank, load, 0, false)}
	if rank == 2 && !strings.Contains(spelling, "prefetch") {
		for swizzle := range uint8(3) {
			ps = append(ps,
				tensorCopy(spelling, fmt.Sprintf("swizzle of %d bytes", 32<<swizzle), rank, load, swizzle+1, false))
		}
	}
	if load && rank == 3 {
		ps = append(ps, tensorCopy(spelling, "NaN outside", rank, load, 0, true))
	}
	return ps
}

func tensorCopy(spelling, variant string, rank int, load bool, swizzle uint8, nan bool) *Probe {
	const threads, blocks = 128, 4
	t := newText(spelling, variant, "tensor copies", threads*blocks)
	t.p.Rounds = 1
	t.p.Extra = 128
	m := &Map{Dim: []uint64{24, 5, 5, 5, 5}[:rank], Box: []uint32{8, 2, 2, 2, 2}[:rank],
		Step: []uint32{1, 1, 1, 1, 1}[:rank], Output: !load, Swizzle: swizzle, FillNaN: nan, Float: nan}
	step := 8
	if swizzle > 0 {
		m.Dim, m.Box = []uint64{100, 20}, []uint32{4 << swizzle, 8}
		step = 4 << swizzle
	}
	t.p.Map = m
	bytes := 4
	for _, b := range m.Box {
		bytes *= int(b)
	}
	multicast := strings.Contains(spelling, "multicast")
	if multicast {
		t.p.Cluster = [3]uint32{2, 1, 1}
	}
	at := t.operand("b32", 4, 32)
	t.p.OutStride = 128 // the tensor, or 16 bytes a thread from shared memory
	t.f(".shared .align 1024 .b8 s[2048];\n\t.shared .align 8 .b64 m;\n\tmov.u32 %%r21, s;\n\tmov.u32 %%r30, m;\n" +
		"\tshl.b32 %%r22, %%r2, 4;\n\tadd.u32 %%r22, %%r22, %%r21;\n\tsetp.eq.u32 %%p9, %%r2, 0;")
	t.f("mov.b64 %%rd10, w;\n\tcvta.param.u64 %%rd10, %%rd10;")
	t.f("@%%p9 mbarrier.init.shared.b64 [%%r30], 1;\n\tld.global.v4.b32 {%%r70, %%r71, %%r72, %%r73}, [%%rd3+%d];\n"+
		"\tst.shared.v4.b32 [%%r22], {%%r70, %%r71, %%r72, %%r73};", at)
	// Coordinates: the first dimension in steps of the box, the others around the edge. What is read may begin outside,
	// what is written may only end there.
	var coords []string
	beyond := 1
	if load {
		beyond = -1
	}
	t.f("mul.lo.u32 %%r40, %%r3, %d;\n\tadd.s32 %%r40, %%r40, %d;", step, 4*beyond)
	coords = append(coords, "%r40")
	for i := 1; i < rank; i++ {
		t.f("add.s32 %%r%d, %%r3, %d;", 40+i, i%2*beyond)
		coords = append(coords, fmt.Sprintf("%%r%d", 40+i))
	}
	hint := ""
	if strings.Contains(spelling, "cache_hint") {
		t.f("createpolicy.fractional.L2::evict_last.b64 %%rd50, 1.0;")
		hint = ", %rd50"
	}
	t.f("fence.proxy.async;\n\tbar.sync 0;")
	tensor := "[%rd10, {" + strings.Join(coords, ", ") + "}]"
	switch {
	case strings.Contains(spelling, "prefetch"):
		t.f("@%%p9 %s %s%s;\n\tst.global.b32 [%%rd4], %%r70;", spelling, tensor, hint)
	case load:
		t.f("@%%p9 mbarrier.arrive.expect_tx.shared.b64 %%rd40, [%%r30], %d;", bytes)
		mask := ""
		t.f("mov.pred %%p10, %%p9;")
		if multicast {
			t.f("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;\n" +
				"\tmov.u32 %%r33, %%cluster_ctarank;\n\tsetp.eq.and.u32 %%p10, %%r33, 0, %%p9;\n\tmov.b16 %%h20, 3;")
			mask = ", %h20"
		}
		t.f("@%%p10 %s [%%r21], %s, [%%r30]%s%s;", spelling, tensor, mask, hint)
		t.f("WAIT:\n\tmbarrier.try_wait.parity.shared.b64 %%p11, [%%r30], 0;\n" +
			"\t@!%%p11 bra WAIT;\n\tld.shared.v4.b32 {%%r80, %%r81, %%r82, %%r83}, [%%r22];\n" +
			"\tst.global.v4.b32 [%%rd4], {%%r80, %%r81, %%r82, %%r83};")
		if multicast {
			t.f("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;")
		}
	default:
		t.f("@!%%p9 bra DONE;\n\t%s %s, [%%r21]%s;\n\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;\n"+
			"DONE:", spelling, tensor, hint)
	}
	return t.done()
}
