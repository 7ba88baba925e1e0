package probe

import (
	"fmt"
	"strings"

	"holdfast/internal/isa"
)

// effect makes the probes of instructions without a result: fences and hints. They stand between a store and a load of
// the same place.
func effect(spelling string) []*Probe {
	op, _, _ := strings.Cut(spelling, ".")
	switch {
	case op == "discard": // what it leaves is undefined
		return nil
	case op == "setmaxnreg", op == "brkpt", op == "trap", op == "pmevent", op == "exit", op == "ret", op == "bra",
		op == "brx", op == "call", op == "alloca", op == "stacksave", op == "stackrestore":
		return nil // see written, or they end the kernel
	case strings.Contains(spelling, "tensormap"):
		return nil // needs a tensor map
	}
	t := newText(spelling, "", "fences and hints", BlockThreads)
	t.p.Rounds = 1
	t.p.OutStride = 16
	at := t.operand("b64", 8, 1)
	t.f("ld.global.b64 %%rd10, [%%rd3+%d];\n\tst.global.b64 [%%rd4], %%rd10;", at)
	switch {
	case op == "nanosleep":
		t.f("%s 20;", spelling)
	case op == "createpolicy":
		args := "1.0"
		switch {
		case strings.Contains(spelling, ".range"):
			args = "[%rd2], 256, 1024"
		case strings.Contains(spelling, ".cvt"):
			args = "%rd10"
			return nil // takes a property of the runtime
		}
		t.f("%s %%rd11, %s;", spelling, args)
	case op == "applypriority":
		t.f("%s [%%rd2], 128;", spelling)
	case op == "prefetch", op == "prefetchu":
		address := "%rd3"
		if strings.Contains(spelling, "local") {
			t.f(".local .b32 l[4];\n\tmov.u64 %%rd12, l;")
			address = "%rd12"
		}
		if strings.Contains(spelling, "param") || strings.Contains(spelling, "const") {
			return nil
		}
		t.f("%s [%s];", spelling, address)
	case strings.HasPrefix(spelling, "cp.async.bulk.prefetch.tensor"):
		return tensorCopies(spelling)
	case strings.HasPrefix(spelling, "cp.async.bulk.prefetch.L2"):
		hint := ""
		if strings.Contains(spelling, "cache_hint") {
			t.f("createpolicy.fractional.L2::evict_last.b64 %%rd50, 1.0;")
			hint = ", %rd50"
		}
		t.f("%s [%%rd1], 1024%s;", spelling, hint)
	case op == "fence", op == "membar", op == "griddepcontrol":
		t.f("%s;", spelling)
	default:
		return nil
	}
	t.f("ld.global.b64 %%rd11, [%%rd4];\n\tst.global.b64 [%%rd4+8], %%rd11;")
	return []*Probe{t.done()}
}

// barrier makes the probes of bar and barrier: what one thread writes to shared memory before, another reads behind it.
func barrier(spelling string) []*Probe {
	family := "barriers"
	exchange := func(t *text) {
		at := t.operand("b32", 4, 1)
		t.f(".shared .align 16 .b8 s[%d];\n\tld.global.b32 %%r20, [%%rd3+%d];\n"+
			"\tmov.u32 %%r21, s;\n\tshl.b32 %%r22, %%r2, 2;\n\tadd.u32 %%r23, %%r21, %%r22;\n"+
			"\tst.shared.b32 [%%r23], %%r20;", 4*BlockThreads, at)
	}
	read := func(t *text, shift int) { // of another warp
		t.f("add.u32 %%r24, %%r2, %d;\n\tand.b32 %%r24, %%r24, %d;\n"+
			"\tshl.b32 %%r24, %%r24, 2;\n\tadd.u32 %%r24, %%r24, %%r21;\n\tld.shared.b32 %%r25, [%%r24];\n"+
			"\tst.global.b32 [%%rd4], %%r25;", shift, BlockThreads-1)
	}
	var ps []*Probe
	if strings.Contains(spelling, ".arrive") {
		t := newText(spelling, "", family, Threads)
		t.p.OutStride = 8
		exchange(t)
		t.f("setp.lt.u32 %%p10, %%r2, 64;\n\t@%%p10 bra FIRST;\n\tbarrier.sync 1, %d;", BlockThreads)
		read(t, 64)
		t.f("bra MEET;\nFIRST:\n\t%s 1, %d;\n\tst.global.b32 [%%rd4], %%r20;\nMEET:", spelling, BlockThreads)
		return []*Probe{t.done()}
	}
	for _, variant := range []string{"", "count of threads", "register", "half of the block"} {
		t := newText(spelling, variant, family, Threads)
		t.p.OutStride = 16
		exchange(t)
		operands := map[string]string{"": "0", "count of threads": fmt.Sprintf("3, %d", BlockThreads),
			"register": "%r26", "half of the block": "%r26, 64"}[variant]
		t.f("mov.u32 %%r26, 5;")
		if variant == "half of the block" {
			t.f("shr.u32 %%r26, %%r2, 6;\n\tadd.u32 %%r26, %%r26, 2;")
		}
		shift := 33
		if variant == "half of the block" {
			shift = 0
		}
		if strings.Contains(spelling, ".red") {
			t.f("and.b32 %%r27, %%r20, 3;\n\tsetp.ne.u32 %%p10, %%r27, 0;")
			if variant == "register" { // of all, or of none, in some blocks
				t.f("and.b32 %%r28, %%r3, 3;\n\tsetp.eq.u32 %%p11, %%r28, 1;\n\tor.pred %%p10, %%p10, %%p11;\n" +
					"\tsetp.ne.u32 %%p11, %%r28, 2;\n\tand.pred %%p10, %%p10, %%p11;")
			}
			if strings.Contains(spelling, "popc") {
				t.f("%s %%r29, %s, %%p10;", spelling, operands)
			} else {
				t.f("%s %%p12, %s, %%p10;\n\tselp.u32 %%r29, 1, 0, %%p12;", spelling, operands)
			}
			t.f("st.global.b32 [%%rd4+4], %%r29;")
		} else {
			t.f("%s %s;", spelling, operands)
		}
		read(t, shift)
		ps = append(ps, t.done())
	}
	return ps
}

// shared gives names to a buffer of 16 bytes a thread and an mbarrier, both in shared memory: %r21, %r22 is the
// thread's place in the buffer; %r30 is the mbarrier.
func (t *text) shared(count int) {
	t.f(".shared .align 128 .b8 s[%d];\n\t.shared .align 8 .b64 m;\n\tmov.u32 %%r21, s;\n\tshl.b32 %%r22, %%r2, 4;\n"+
		"\tadd.u32 %%r22, %%r21, %%r22;\n\tmov.u32 %%r30, m;\n\tmov.u64 %%rd30, m;", 16*BlockThreads)
	t.f("setp.eq.u32 %%p9, %%r2, 0;")
	if count > 0 {
		t.f("@%%p9 mbarrier.init.shared.b64 [%%r30], %d;\n\tbar.sync 0;", count)
	}
}

// copies makes the probes of cp.async.
func copies(spelling string) []*Probe {
	sizes := []int{4, 8, 16}
	if strings.HasPrefix(spelling, "cp.async.cg") {
		sizes = []int{16}
	}
	var ps []*Probe
	for _, size := range sizes {
		for _, src := range []int{-1, size / 2, 0} {
			variant := fmt.Sprintf("%d bytes", size)
			if src >= 0 {
				variant += fmt.Sprintf(" of which %d are there", src)
			}
			t := newText(spelling, variant, "asynchronous copies", Threads)
			t.p.Rounds = 1
			t.p.OutStride = 16
			at := t.operand("b64", 8, 2)
			t.shared(0)
			t.f("mov.u64 %%rd20, 0x1122334455667788;\n\tst.shared.v2.b64 [%%r22], {%%rd20, %%rd20};")
			operands := fmt.Sprintf("[%%r22], [%%rd3+%d], %d", at, size)
			if src >= 0 {
				t.f("mov.u32 %%r23, %d;", src)
				operands += ", %r23"
			}
			if strings.Contains(spelling, "cache_hint") {
				t.f("createpolicy.fractional.L2::evict_last.b64 %%rd50, 1.0;")
				operands += ", %rd50"
			}
			t.f("%s %s;\n\tcp.async.commit_group;\n"+
				"\tcp.async.wait_group 0;\n\tbar.sync 0;\n\tld.shared.v2.b64 {%%rd21, %%rd22}, [%%r22];\n"+
				"\tst.global.v2.b64 [%%rd4], {%%rd21, %%rd22};", spelling, operands)
			ps = append(ps, t.done())
		}
	}
	return ps
}

// phases makes the probes of mbarrier: all threads write, arrive and wait, and read what others wrote. The spelling
// takes the place of the plain instruction of its kind.
func phases(spelling string) []*Probe {
	op := spelling
	for _, m := range []string{".shared::cluster", ".shared::cta", ".shared", ".b64", ".release", ".acquire",
		".relaxed", ".cta", ".cluster"} {
		op = strings.ReplaceAll(op, m, "")
	}
	if strings.HasSuffix(spelling, ".shared::cluster.b64") &&
		(strings.Contains(op, "test_wait") || strings.Contains(op, "try_wait")) {
		return nil
	}
	count := BlockThreads
	t := newText(spelling, "", "mbarrier", Threads)
	t.p.Rounds = 1
	t.p.OutStride = 16
	address := "%r30" // of the instruction under test
	if !strings.Contains(spelling, ".shared") {
		address = "%rd31"
	}
	noComplete := strings.Contains(op, "noComplete")
	if noComplete {
		count++
	}
	t.shared(0)
	t.f("cvta.shared.u64 %%rd31, %%rd30;")
	at := t.operand("b32", 4, 1)
	pick := func(kind, plain string) string {
		if op == kind {
			return spelling
		}
		return plain
	}
	at1 := func(kind string) string {
		if op == kind {
			return address
		}
		return "%r30"
	}
	t.f("@%%p9 %s [%s], %d;\n\tbar.sync 0;", pick("mbarrier.init", "mbarrier.init.shared.b64"),
		at1("mbarrier.init"), count)
	t.f("ld.global.b32 %%r20, [%%rd3+%d];\n\tst.shared.b32 [%%r22], %%r20;", at)
	state := "%rd32"
	if strings.Contains(spelling, "shared::cluster") && strings.HasPrefix(op, "mbarrier.arrive") {
		state = "_"
	}
	switch {
	case op == "mbarrier.expect_tx", op == "mbarrier.complete_tx":
		t.f("@%%p9 %s [%s], 64;\n\tbar.sync 0;\n\t@%%p9 %s [%s], 64;",
			pick("mbarrier.expect_tx", "mbarrier.expect_tx.relaxed.cta.shared.b64"), at1("mbarrier.expect_tx"),
			pick("mbarrier.complete_tx", "mbarrier.complete_tx.relaxed.cta.shared.b64"), at1("mbarrier.complete_tx"))
		t.f("mbarrier.arrive.shared.b64 %%rd32, [%%r30];")
	case strings.HasSuffix(op, ".expect_tx"):
		t.f("%s %s, [%s], 16;\n\tmbarrier.complete_tx.relaxed.cta.shared.b64 [%%r30], 16;", spelling, state, address)
	case noComplete:
		t.f("%s %s, [%s], 1;\n\tbar.sync 0;\n"+
			"\t@%%p9 mbarrier.arrive.shared.b64 %%rd33, [%%r30];", spelling, state, address)
	case strings.HasPrefix(op, "mbarrier.arrive"):
		t.f("%s %s, [%s];", spelling, state, address)
	default:
		t.f("mbarrier.arrive.shared.b64 %%rd32, [%%r30];")
	}
	switch {
	case op == "mbarrier.test_wait" || op == "mbarrier.try_wait":
		t.f("WAIT:\n\t%s %%p10, [%s], %%rd32;\n\t@!%%p10 bra WAIT;", spelling, address)
	case strings.HasSuffix(op, ".parity"):
		t.f("WAIT:\n\t%s %%p10, [%s], 0;\n\t@!%%p10 bra WAIT;", spelling, address)
	default:
		t.f("WAIT:\n\tmbarrier.try_wait.parity.shared.b64 %%p10, [%%r30], 0;\n\t@!%%p10 bra WAIT;")
	}
	t.f("xor.b32 %%r23, %%r2, 37;\n\tshl.b32 %%r23, %%r23, 4;\n\tadd.u32 %%r23, %%r23, %%r21;\n" +
		"\tld.shared.b32 %%r24, [%%r23];\n\tst.global.b32 [%%rd4], %%r24;")
	// Whether the next phase is complete, which it is not, and how many arrivals it wants.
	t.f("bar.sync 0;\n\tmbarrier.test_wait.parity.shared.b64 %%p11, [%%r30], 1;\n\tselp.u32 %%r25, 1, 0, %%p11;\n" +
		"\tst.global.b32 [%%rd4+4], %%r25;\n\tbar.sync 0;")
	if !strings.Contains(op, "arrive_drop") {
		t.f("@%%p9 mbarrier.arrive.noComplete.shared.b64 %%rd34, [%%r30], 7;\n"+
			"\tmov.u32 %%r26, 0;\n\t@%%p9 %s %%r26, %%rd34;\n\tst.global.b32 [%%rd4+8], %%r26;",
			pick("mbarrier.pending_count", "mbarrier.pending_count.b64"))
	}
	t.f("bar.sync 0;")
	if op == "mbarrier.inval" {
		t.f("@%%p9 %s [%s];", spelling, address)
	}
	return []*Probe{t.done()}
}

// bulk makes the probes of bulk copies and reductions without tensor maps, in clusters of two blocks.
func bulk(spelling string) []*Probe {
	if strings.Contains(spelling, "tensor") || strings.Contains(spelling, "prefetch") ||
		strings.Contains(spelling, "_group") && !strings.Contains(spelling, "bulk_group") {
		return nil
	}
	mods := strings.Split(spelling, ".")
	elem := mods[len(mods)-1]
	reduce := strings.HasPrefix(spelling, "cp.reduce")
	fromGlobal := strings.Contains(spelling, ".global.mbarrier") || strings.Contains(spelling, "cluster.global") ||
		strings.Contains(spelling, "cta.global")
	toGlobal := strings.Contains(spelling, "bulk_group")
	multicast := strings.Contains(spelling, "multicast")
	input := "b32"
	size := 4
	if reduce {
		switch elem {
		case "f16", "bf16":
			size, input = 2, elem
		case "f32":
			input = elem
		case "f64":
			size, input = 8, elem
		case "b64", "u64", "s64":
			size, input = 8, "b64"
		}
	}
	const bytes = 16 * 64
	t := newText(spelling, "", "bulk copies", 256)
	t.p.Grid, t.p.Block, t.p.Cluster = [3]uint32{4, 1, 1}, [3]uint32{64, 1, 1}, [3]uint32{2, 1, 1}
	t.p.OutStride = 16
	at := t.operand(input, size, 16/size)
	second := t.operand(input, size, 16/size)
	t.shared(1)
	t.f("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;")
	// What the block starts with, in shared memory and, for reductions of global memory, in the output.
	t.f("ld.global.v2.b64 {%%rd20, %%rd21}, [%%rd3+%d];\n\tld.global.v2.b64 {%%rd22, %%rd23}, [%%rd3+%d];\n"+
		"\tst.shared.v2.b64 [%%r22], {%%rd20, %%rd21};\n\t.shared .align 128 .b8 z[%d];\n\tmov.u32 %%r31, z;\n"+
		"\tshl.b32 %%r32, %%r2, 4;\n\tadd.u32 %%r32, %%r32, %%r31;\n\tst.shared.v2.b64 [%%r32], {%%rd22, %%rd23};\n"+
		"\tst.global.v2.b64 [%%rd4], {%%rd22, %%rd23};", at, second, bytes)
	hint := ""
	if strings.Contains(spelling, "cache_hint") {
		t.f("createpolicy.fractional.L2::evict_last.b64 %%rd50, 1.0;")
		hint = ", %rd50"
	}
	t.f("fence.proxy.async;\n\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;")
	// The block's part of input and output.
	t.f("mul.wide.u32 %%rd24, %%r3, %d;\n\tadd.u64 %%rd24, %%rd24, %%rd2;\n\tmov.u32 %%r33, %%cluster_ctarank;", bytes)
	final := "%r31"
	switch {
	case toGlobal:
		t.f("@!%%p9 bra DONE;\n\t%s [%%rd24], [%%r21], %d%s;\n\tcp.async.bulk.commit_group;\n"+
			"\tcp.async.bulk.wait_group 0;\nDONE:", spelling, bytes, hint)
		return []*Probe{t.done()}
	case fromGlobal:
		mask := ""
		guard := "@!%p9"
		if multicast {
			t.f("mov.b16 %%h20, 3;\n\tsetp.eq.u32 %%p12, %%r33, 1;\n\tand.pred %%p12, %%p12, %%p9;")
			mask = ", %h20"
			guard = "@!%p12"
		}
		t.f("@%%p9 mbarrier.arrive.expect_tx.shared.b64 %%rd40, [%%r30], %d;\n\tbarrier.cluster.arrive.aligned;\n"+
			"\tbarrier.cluster.wait.aligned;", bytes)
		t.f("%s bra WAIT;\n\tmul.wide.u32 %%rd25, %%r3, %d;\n\tadd.u64 %%rd25, %%rd25, %%rd1;\n"+
			"\t%s [%%r31], [%%rd25], %d, [%%r30]%s%s;", guard, bytes, spelling, bytes, mask, hint)
	default: // to the other block
		t.f("xor.b32 %%r34, %%r33, 1;\n\tmapa.shared::cluster.u32 %%r35, %%r31, %%r34;\n" +
			"\tmapa.shared::cluster.u32 %%r36, %%r30, %%r34;")
		t.f("@!%%p9 bra WAIT;\n\tmbarrier.arrive.expect_tx.shared.b64 %%rd40, [%%r30], %d;\n"+
			"\t%s [%%r35], [%%r21], %d, [%%r36];", bytes, spelling, bytes)
	}
	t.f("WAIT:\n\tmbarrier.try_wait.parity.shared.b64 %%p10, [%%r30], 0;\n\t@!%%p10 bra WAIT;\n"+
		"\tadd.u32 %%r37, %s, 0;\n\tshl.b32 %%r38, %%r2, 4;\n\tadd.u32 %%r37, %%r37, %%r38;\n"+
		"\tld.shared.v2.b64 {%%rd26, %%rd27}, [%%r37];\n\tst.global.v2.b64 [%%rd4], {%%rd26, %%rd27};\n"+
		"\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;", final)
	return []*Probe{t.done()}
}

// remote makes the probes of st.async and red.async: each thread to the same place of the other block of its cluster.
func remote(f *isa.Form, spelling string) []*Probe {
	a := accessOf(spelling)
	total := a.bytes * a.vec
	t := newText(spelling, "", "clusters", 256)
	t.p.Grid, t.p.Block, t.p.Cluster = [3]uint32{4, 1, 1}, [3]uint32{64, 1, 1}, [3]uint32{2, 1, 1}
	t.p.OutStride = 16
	at := t.operand("b64", 8, 2)
	second := t.operand("b64", 8, 2)
	t.shared(1)
	t.f("ld.global.v2.b64 {%%rd20, %%rd21}, [%%rd3+%d];\n\tst.shared.v2.b64 [%%r22], {%%rd20, %%rd21};\n"+
		"\t@%%p9 mbarrier.arrive.expect_tx.shared.b64 %%rd40, [%%r30], %d;", second, 64*total)
	for i := range a.vec {
		t.f("ld.global.b%d %s%d, [%%rd3+%d];", 8*a.bytes, registerPrefix(a.bytes), 70+i, at+a.bytes*i)
	}
	t.f("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;\n\tmov.u32 %%r33, %%cluster_ctarank;\n" +
		"\txor.b32 %%r34, %%r33, 1;\n\tmapa.shared::cluster.u32 %%r35, %%r22, %%r34;\n" +
		"\tmapa.shared::cluster.u32 %%r36, %%r30, %%r34;")
	address, bar := "%r35", "%r36"
	if !strings.Contains(spelling, "shared") {
		t.f("mov.u64 %%rd41, s;\n\tcvta.shared.u64 %%rd41, %%rd41;\n" +
			"\tmul.wide.u32 %%rd42, %%r2, 16;\n\tadd.u64 %%rd41, %%rd41, %%rd42;\n\tcvta.shared.u64 %%rd43, %%rd30;\n" +
			"\tmapa.u64 %%rd44, %%rd41, %%r34;\n\tmapa.u64 %%rd45, %%rd43, %%r34;")
		address, bar = "%rd44", "%rd45"
	}
	t.f("%s [%s], %s, [%s];", spelling, address, registersFor(a.bytes, 70, a.vec), bar)
	t.f("WAIT:\n\tmbarrier.try_wait.parity.acquire.cluster.shared.b64 %%p10, [%%r30], 0;\n\t@!%%p10 bra WAIT;\n" +
		"\tld.shared.v2.b64 {%%rd26, %%rd27}, [%%r22];\n\tst.global.v2.b64 [%%rd4], {%%rd26, %%rd27};\n" +
		"\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;")
	return []*Probe{t.done()}
}

// clusters makes the probes of addresses and barriers of clusters, of two and of four blocks.
func clusters(spelling string) []*Probe {
	var ps []*Probe
	for _, n := range []uint32{2, 4} {
		t := newText(spelling, fmt.Sprintf("%d blocks", n), "clusters", 256)
		t.p.Grid, t.p.Block, t.p.Cluster = [3]uint32{8, 1, 1}, [3]uint32{32, 1, 1}, [3]uint32{n, 1, 1}
		t.p.OutStride = 16
		at := t.operand("b32", 4, 1)
		t.shared(0)
		t.f("ld.global.b32 %%r20, [%%rd3+%d];\n\tst.shared.b32 [%%r22], %%r20;\n\tmov.u32 %%r33, %%cluster_ctarank;\n"+
			"\tadd.u32 %%r34, %%r33, 1;\n\tand.b32 %%r34, %%r34, %d;", at, n-1)
		arrive, wait := "barrier.cluster.arrive", "barrier.cluster.wait"
		if strings.HasPrefix(spelling, "barrier.cluster.arrive") {
			arrive = spelling
		}
		if strings.HasPrefix(spelling, "barrier.cluster.wait") {
			wait = spelling
		}
		if strings.Contains(arrive, "relaxed") {
			t.f("fence.acq_rel.cluster;")
		}
		t.f("%s;\n\t%s;", arrive, wait)
		op, _, _ := strings.Cut(spelling, ".")
		t.f("mapa.shared::cluster.u32 %%r35, %%r22, %%r34;\n\tmov.u64 %%rd41, s;\n\tcvta.shared.u64 %%rd42, %%rd41;\n" +
			"\tmapa.u64 %%rd43, %%rd42, %%r34;\n\tmov.u32 %%r40, 0;")
		switch {
		case op == "mapa" && strings.Contains(spelling, "u32"):
			t.f("%s %%r36, %%r22, %%r34;\n\tld.shared::cluster.u32 %%r37, [%%r36];", spelling)
		case op == "mapa" && strings.Contains(spelling, "shared"):
			t.f("%s %%rd44, %%rd41, %%r34;\n\tmul.wide.u32 %%rd45, %%r2, 16;\n\tadd.u64 %%rd44, %%rd44, %%rd45;\n"+
				"\tld.shared::cluster.u32 %%r37, [%%rd44];", spelling)
		case op == "mapa":
			t.f("%s %%rd44, %%rd42, %%r34;\n\tmul.wide.u32 %%rd45, %%r2, 16;\n\tadd.u64 %%rd44, %%rd44, %%rd45;\n"+
				"\tld.u32 %%r37, [%%rd44];", spelling)
		case op == "getctarank" && strings.Contains(spelling, "u32"):
			t.f("%s %%r40, %%r35;\n\tld.shared::cluster.u32 %%r37, [%%r35];", spelling)
		case op == "getctarank" && strings.Contains(spelling, "shared"):
			t.f("mapa.shared::cluster.u64 %%rd44, %%rd41, %%r34;\n\t%s %%r40, %%rd44;\n"+
				"\tld.shared::cluster.u32 %%r37, [%%r35];", spelling)
		case op == "getctarank":
			t.f("%s %%r40, %%rd43;\n\tld.shared::cluster.u32 %%r37, [%%r35];", spelling)
		default:
			t.f("ld.shared::cluster.u32 %%r37, [%%r35];")
		}
		// And a store to the neighbour, and an atomic in the first block.
		t.f("st.shared::cluster.u32 [%%r35+4], %%r37;\n\tmapa.shared::cluster.u32 %%r38, %%r22, 0;\n" +
			"\tmov.u32 %%r41, 0;\n\tsetp.eq.u32 %%p12, %%r33, 0;\n\t@%%p12 st.shared.u32 [%%r22+8], 5;\n" +
			"\tbarrier.cluster.arrive;\n\tbarrier.cluster.wait;\n\tred.shared::cluster.add.u32 [%%r38+8], %%r37;\n" +
			"\tbarrier.cluster.arrive;\n\tbarrier.cluster.wait;\n\tld.shared.u32 %%r39, [%%r22+4];\n" +
			"\tld.shared::cluster.u32 %%r42, [%%r38+8];")
		t.f("st.global.v4.b32 [%%rd4], {%%r37, %%r39, %%r40, %%r42};\n\tbarrier.cluster.arrive;\n" +
			"\tbarrier.cluster.wait;")
		ps = append(ps, t.done())
	}
	return ps
}

// asynchronous makes the probes of the class of the same name.
func asynchronous(f *isa.Form, spelling string) []*Probe {
	switch {
	case strings.HasPrefix(spelling, "barrier.cluster"), f.Op == "mapa", f.Op == "getctarank":
		return clusters(spelling)
	case f.Op == "cp.async":
		return copies(spelling)
	case strings.HasPrefix(spelling, "mbarrier"):
		return phases(spelling)
	case strings.Contains(spelling, "async.bulk.tensor"):
		return tensorCopies(spelling)
	case strings.HasPrefix(spelling, "cp.async.bulk"), strings.HasPrefix(spelling, "cp.reduce.async.bulk"):
		return bulk(spelling)
	case f.Op == "st.async", f.Op == "red.async":
		return remote(f, spelling)
	}
	return nil
}

// written makes the probes that have a kernel of their own: control flow, and instructions that only work together.
func written() []*Probe {
	var ps []*Probe
	for _, scope := range []string{"cta", "cluster"} {
		for _, space := range []string{"", ".shared", ".shared::cta", ".shared::cluster"} {
			for _, op := range []string{"expect_tx.relaxed", "complete_tx.relaxed", "arrive.release",
				"arrive.expect_tx.release", "arrive_drop.release", "arrive_drop.expect_tx.release", "test_wait.acquire",
				"test_wait.parity.acquire", "try_wait.acquire", "try_wait.parity.acquire"} {
				ps = append(ps, phases("mbarrier."+op+"."+scope+space+".b64")...)
			}
		}
	}
	for _, op := range []string{"add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32", "min.s32", "max.s32", "min.u32",
		"max.u32", "and.b32", "or.b32", "xor.b32"} {
		for _, space := range []string{"", ".shared::cluster"} {
			ps = append(ps, remote(&isa.Form{Op: "red.async"},
				"red.async.relaxed.cluster"+space+".mbarrier::complete_tx::bytes."+op)...)
		}
	}
	for _, sp := range []string{"createpolicy.fractional.L2::evict_first.b64",
		"createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64", "fence.sc.gpu", "fence.acq_rel.cta",
		"fence.acq_rel.cluster", "fence.sc.sys"} {
		ps = append(ps, effect(sp)...)
	}
	control := func(spelling, variant, vars string, body func(t *text)) {
		t := newText(spelling, variant, "control flow", Threads)
		t.p.OutStride = 16
		at := t.operand("b32", 4, 4)
		t.vars.WriteString(vars)
		t.f("ld.global.v4.b32 {%%r20, %%r21, %%r22, %%r23}, [%%rd3+%d];\n\tmov.b32 %%r40, 0;\n\tmov.b32 %%r41, 0;", at)
		body(t)
		t.f("st.global.v2.b32 [%%rd4], {%%r40, %%r41};")
		ps = append(ps, t.done())
	}
	control("bra", "nested divergence", "", func(t *text) {
		t.f("and.b32 %%r24, %%r20, 7;\n\tmov.u32 %%r25, 0;\nLOOP:\n\tsetp.ge.u32 %%p10, %%r25, %%r24;\n" +
			"\t@%%p10 bra OUT;\n\tand.b32 %%r26, %%r21, 1;\n\tsetp.eq.u32 %%p11, %%r26, 0;\n\t@%%p11 bra EVEN;\n" +
			"\tmad.lo.u32 %%r40, %%r40, 31, %%r22;\n\tbra NEXT;\nEVEN:\n\txor.b32 %%r40, %%r40, %%r23;\nNEXT:\n" +
			"\tshr.u32 %%r21, %%r21, 1;\n\tadd.u32 %%r25, %%r25, 1;\n\tbra LOOP;\nOUT:")
	})
	control("bra.uni", "", "", func(t *text) {
		t.f("setp.lt.u32 %%p10, %%r3, 4;\n\t@%%p10 bra.uni LOW;\n\tadd.u32 %%r40, %%r20, 1;\n\tbra.uni END;\nLOW:\n" +
			"\tadd.u32 %%r40, %%r20, 2;\nEND:")
	})
	control("brx.idx", "", "", func(t *text) {
		t.f("TABLE: .branchtargets A, B, C, D;\n\tand.b32 %%r24, %%r20, 3;\n\tbrx.idx %%r24, TABLE;\n" +
			"A:\n\tadd.u32 %%r40, %%r21, 1;\n\tbra END;\nB:\n\tadd.u32 %%r40, %%r21, 20;\n\tbra END;\nC:\n" +
			"\tadd.u32 %%r40, %%r21, 300;\nD:\n\txor.b32 %%r40, %%r40, %%r22;\nEND:")
	})
	function := ".func (.param .b32 r) probe_collatz(.param .b32 a, .param .b32 b)\n{\n\t.reg .b32 %r<9>; " +
		".reg .pred %p<4>;\n\tld.param.b32 %r1, [a];\n\tld.param.b32 %r2, [b];\n\tmov.b32 %r3, 0;\n" +
		"L:\n\tsetp.ge.u32 %p1, %r3, %r2;\n\t@%p1 bra E;\n\tand.b32 %r4, %r1, 1;\n\tsetp.eq.u32 %p2, %r4, 0;\n" +
		"\t@%p2 shr.u32 %r1, %r1, 1;\n\t@!%p2 mad.lo.u32 %r1, %r1, 3, 1;\n\tadd.u32 %r3, %r3, 1;\n\tbra L;\nE:\n" +
		"\tst.param.b32 [r], %r1;\n\tret;\n}\n"
	call := func(name, how string) string {
		return fmt.Sprintf("{\n\t.param .b32 x; .param .b32 y; .param .b32 z;\n\tst.param.b32 [x], %%%%r20;\n"+
			"\tand.b32 %%%%r24, %%%%r21, 15;\n\tst.param.b32 [y], %%%%r24;\n\t%s (z), %s, (x, y)%s;\n"+
			"\tld.param.b32 %%%%r40, [z];\n\t}", "call", name, how)
	}
	control("call", "direct", strings.ReplaceAll(function, "probe_collatz", "probe_collatz1"),
		func(t *text) { t.f(call("probe_collatz1", "")) })
	control("call", "divergent", strings.ReplaceAll(function, "probe_collatz", "probe_collatz2"), func(t *text) {
		t.f("@%%p1 bra SKIP;\n\t" + call("probe_collatz2", "") + "\nSKIP:")
	})
	control("call", "through a pointer",
		strings.ReplaceAll(function, "probe_collatz", "probe_collatz3"), func(t *text) {
			t.f("PROTO: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n" +
				"\tmov.u64 %%rd20, probe_collatz3;\n\t" + call("%%rd20", ", PROTO"))
		})
	control("exit", "some threads", "", func(t *text) {
		t.f("add.u32 %%r40, %%r20, 9;\n\t@%%p1 exit;")
	})
	control("bar.warp.sync", "", "", func(t *text) {
		t.f(".shared .align 16 .b8 s[%d];\n\tmov.u32 %%r25, s;\n"+
			"\tshl.b32 %%r26, %%r2, 2;\n\tadd.u32 %%r27, %%r25, %%r26;\n\tst.shared.b32 [%%r27], %%r20;\n"+
			"\tbar.warp.sync 0xffffffff;\n\txor.b32 %%r28, %%r26, 20;\n\tadd.u32 %%r28, %%r28, %%r25;\n"+
			"\tld.shared.b32 %%r40, [%%r28];", 4*BlockThreads)
	})
	return ps
}
