package probe

import (
	"fmt"
	"slices"
	"strings"
)

// A product is what the modifiers of a matrix instruction say.
type product struct {
	m, n, k    int
	d, a, b, c string // element types
	types      int    // index of d in the modifiers
}

func productOf(spelling string) (p product, ok bool) {
	mods := strings.Split(spelling, ".")
	at := slices.IndexFunc(mods, func(m string) bool {
		k, err := fmt.Sscanf(m, "m%dn%dk%d", &p.m, &p.n, &p.k)
		return k == 3 && err == nil
	})
	if at < 0 {
		return p, false
	}
	var types []string
	for i, m := range mods[at+1:] {
		switch m {
		case "f16", "f32", "f64", "bf16", "tf32", "e4m3", "e5m2", "s32", "s8", "u8", "s4", "u4", "b1":
			if len(types) == 0 {
				p.types = at + 1 + i
			}
			types = append(types, m)
		}
	}
	switch {
	case len(types) == 4:
		p.d, p.a, p.b, p.c = types[0], types[1], types[2], types[3]
	case len(types) == 3: // wgmma
		p.d, p.a, p.b, p.c = types[0], types[1], types[2], types[0]
	case len(types) == 2: // wmma of f16: D and C
		p.d, p.a, p.b, p.c = types[0], "f16", "f16", types[1]
	case len(types) == 1:
		p.d, p.a, p.b, p.c = types[0], types[0], types[0], types[0]
	default:
		return p, false
	}
	return p, true
}

func bitsOf(elem string) int {
	return map[string]int{"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
		"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[elem]
}

// fragmentRegisters is the number of registers a thread of lanes threads holds of a matrix of elems elements.
func fragmentRegisters(elem string, elems, lanes int) int {
	bits := bitsOf(elem)
	return max(1, elems*bits/lanes/max(32, bits))
}

// productRule bounds the difference of two sums of products. PTX leaves precision and order of the accumulation
// open (9.7.14). The products of the narrow formats are exact in float32; hardware aligns the summands of a step to the
// largest and cuts off the rest. With b bits kept behind the leading one, each of the at most k+1 summands loses less
// than 2^-b of the largest, and so does each of the additions of the software GPU's result to D's format:
// (k+2)·2^-b·Σ|a·b|. b is 23 (f16, bf16, tf32 into f32), 13 for 8-bit floats, whose accumulators on sm_90 are narrower,
// 10 where D is f16, 52 for f64.
func (p product) rule() Rule {
	b := 23
	switch {
	case p.d == "s32":
		return Rule{}
	case p.d == "f64":
		b = 51
	case p.d == "f16" || p.c == "f16":
		b = 10
	case strings.HasPrefix(p.a, "e"):
		b = 13
	}
	scale := float64(p.k + 2)
	for range b {
		scale /= 2
	}
	return Rule{Elem: p.d, Scale: scale, ExactRounds: 1,
		Why: fmt.Sprintf("matrix product: (k+2)·2^-%d of the sum of magnitudes", b)}
}

// metadata is the type of the operand that says where the elements of a sparse A are.
func (p product) metadata() string {
	if p.a == "tf32" {
		return "sparse 1:2"
	}
	return "sparse 2:4"
}

func tensor(spelling string) []*Probe {
	op, _, _ := strings.Cut(spelling, ".")
	switch op {
	case "mma":
		return mma(spelling)
	case "wmma":
		return wmma(spelling)
	case "wgmma":
		if strings.HasPrefix(spelling, "wgmma.mma_async") {
			return wgmma(spelling)
		}
	case "ldmatrix", "stmatrix", "movmatrix":
		return matrixMove(op, spelling)
	}
	return nil
}

// loadRegisters loads a fragment from the thread's input.
func (t *text) loadRegisters(elem string, first, n int) string {
	size := 4
	if elem == "f64" {
		size = 8
	}
	at := t.operand("m:"+elem, size, n)
	for i := range n {
		t.f("ld.global.b%d %s%d, [%%rd3+%d];", 8*size, registerPrefix(size), first+i, at+size*i)
	}
	return t.registerList(elem, first, n)
}

func (t *text) registerList(elem string, first, n int) string {
	var el []string
	for i := range n {
		el = append(el, fmt.Sprintf("%s%d", map[bool]string{true: "%rd", false: "%r"}[elem == "f64"], first+i))
	}
	return "{" + strings.Join(el, ", ") + "}"
}

func (t *text) storeRegisters(elem string, first, n int) {
	size := 4
	if elem == "f64" {
		size = 8
	}
	for i := range n {
		t.f("st.global.b%d [%%rd4+%d], %s%d;", 8*size, size*i, registerPrefix(size), first+i)
	}
	t.p.OutStride = (size*n + 15) &^ 15
}

// results completes the rule of a matrix probe, D being n registers of each thread.
func (t *text) results(p product, n int) {
	t.p.Rule = p.rule()
	if t.p.Rule.Elem == "" {
		t.p.Rounds = 2
		return
	}
	size := 4
	if p.d == "f64" {
		size = 8
	}
	t.p.Rule.Elems = n * size / elemBytes(p.d)
	t.p.Rounds = 3
}

func mma(spelling string) []*Probe {
	p, ok := productOf(spelling)
	if !ok {
		return nil
	}
	t := newText(spelling, "", "matrix: mma", 512)
	lanes := 32
	if p.m == 8 && p.n == 8 && p.k == 4 && p.a == "f16" {
		lanes = 8 // four products, one for each quad pair
	}
	rd := fragmentRegisters(p.d, p.m*p.n, lanes)
	dense, tail := 1, ""
	if strings.HasPrefix(spelling, "mma.sp") {
		dense, tail = 2, ", %r99, 0"
		t.f("ld.global.b32 %%r99, [%%rd3+%d];", t.operand(p.metadata(), 4, 1))
	}
	a := t.loadRegisters(p.a, 20, fragmentRegisters(p.a, p.m*p.k/dense, lanes))
	b := t.loadRegisters(p.b, 40, fragmentRegisters(p.b, p.k*p.n, lanes))
	c := t.loadRegisters(p.c, 60, fragmentRegisters(p.c, p.m*p.n, lanes))
	t.f("%s %s, %s, %s, %s%s;", spelling, t.registerList(p.d, 80, rd), a, b, c, tail)
	t.storeRegisters(p.d, 80, rd)
	t.results(p, rd)
	return []*Probe{t.done()}
}

// wmmaRegisters is the number of registers of a wmma fragment (9.7.14.2, tables of fragments).
func wmmaRegisters(which byte, p product) int {
	switch which {
	case 'd', 'c':
		elem := p.d
		if which == 'c' {
			elem = p.c
		}
		if p.m*p.n == 64 {
			return 2
		}
		if elem == "f16" {
			return 4
		}
		return 8
	}
	switch p.a {
	case "f16":
		return 8
	case "tf32":
		return 4
	case "f64", "s4", "u4", "b1":
		return 1
	}
	rows := p.m
	if which == 'b' {
		rows = p.n
	}
	n := map[int]int{8: 1, 16: 2, 32: 4}[rows]
	if p.a == "bf16" {
		n *= 2
	}
	return n
}

// wmma makes the probes of fragments, whose layout PTX leaves open: whole products, from memory to memory.
func wmma(spelling string) []*Probe {
	p, ok := productOf(spelling)
	if !ok {
		return nil
	}
	mods := strings.Split(spelling, ".")
	shape := fmt.Sprintf("m%dn%dk%d", p.m, p.n, p.k)
	multiply := spelling
	la, lb := "row", "col"
	layout := func() string {
		for _, m := range mods {
			if m == "row" || m == "col" {
				return m
			}
		}
		return "row"
	}
	space := ""
	loadA, loadB, loadC, storeD := "", "", "", ""
	if mods[1] != "mma" {
		for _, m := range mods {
			if m == "global" || strings.HasPrefix(m, "shared") {
				space = "." + m
			}
		}
		elem := mods[len(mods)-1]
		switch mods[2] {
		case "a", "b":
			p.a, p.b = elem, elem
		}
		if mods[2] == "c" || mods[2] == "d" { // a product that has this accumulator
			switch {
			case elem == "f16":
				p.a = "f16"
			case elem == "f32" && p.k == 8:
				p.a = "tf32"
			case elem == "f32":
				p.a = "f16"
			case elem == "s32":
				p.a = map[int]string{16: "s8", 32: "s4", 128: "b1"}[p.k]
			}
			p.b, p.c, p.d = p.a, elem, elem
		}
		if mods[2] == "a" || mods[2] == "b" {
			p.c = map[string]string{"f16": "f32", "bf16": "f32", "tf32": "f32", "f64": "f64"}[elem]
			if p.c == "" {
				p.c = "s32"
			}
			p.d = p.c
		}
		switch mods[2] {
		case "a":
			la, loadA = layout(), spelling
		case "b":
			lb, loadB = layout(), spelling
		case "c":
			loadC = spelling
		case "d":
			storeD = spelling
		}
		types := "." + p.d + "." + p.a + "." + p.b + "." + p.c
		if p.a == "f16" {
			types = "." + p.d + "." + p.c
		}
		multiply = "wmma.mma.sync.aligned." + la + "." + lb + "." + shape + types
		if p.a == "b1" {
			multiply = "wmma.mma.xor.popc.sync.aligned.row.col." + shape + types
		}
		if p.a == "f64" {
			multiply = "wmma.mma.sync.aligned." + la + "." + lb + "." + shape + ".rn" + types
		}
	} else {
		at := slices.Index(mods, shape)
		la, lb = mods[at-2], mods[at-1]
	}
	layoutC := "row"
	if mods[1] != "mma" && (mods[2] == "c" || mods[2] == "d") {
		layoutC = layout()
	}
	def := func(current, which, l, elem string) string {
		if current != "" {
			return current
		}
		return fmt.Sprintf("wmma.%s.sync.aligned.%s.%s.global.%s", which, l, shape, elem)
	}
	loadA, loadB = def(loadA, "load.a", la, p.a), def(loadB, "load.b", lb, p.b)
	loadC, storeD = def(loadC, "load.c", layoutC, p.c), def(storeD, "store.d", layoutC, p.d)

	// Each warp reads three matrices, spread over what its threads read.
	t := newText(spelling, "", "matrix: wmma", 512)
	bytes := func(elem string, n int) int { return (n*bitsOf(elem)/8/32 + 15) &^ 15 } // of each of 32 threads
	field := func(elem string, n int) int {
		size := map[bool]int{true: 8, false: 4}[elem == "f64"]
		return t.operand("m:"+elem, size, bytes(elem, n)/size)
	}
	na, nb, nc := bytes(p.a, p.m*p.k), bytes(p.b, p.k*p.n), bytes(p.c, p.m*p.n)
	field(p.a, p.m*p.k)
	field(p.b, p.k*p.n)
	field(p.c, p.m*p.n)
	const perWarp = 8192
	nd := bytes(p.d, p.m*p.n)
	// The warp gathers them in shared memory: all of A, all of B, all of C, room for D.
	t.f(".shared .align 128 .b8 s[%d];\n\tand.b32 %%r10, %%r2, 31;\n"+
		"\tshr.u32 %%r11, %%r2, 5;\n\tmul.wide.u32 %%rd10, %%r11, %d;\n\tmov.u64 %%rd11, s;\n"+
		"\tadd.u64 %%rd11, %%rd11, %%rd10;", 4*perWarp, perWarp)
	base := map[byte]int{'a': 0, 'b': 1024, 'c': 2048, 'd': 4096}
	offset := 0
	for _, x := range []struct {
		which byte
		n     int
	}{{'a', na}, {'b', nb}, {'c', nc}} {
		t.f("mul.wide.u32 %%rd12, %%r10, %d;\n\tadd.u64 %%rd13, %%rd11, %%rd12;", x.n)
		for i := 0; i < x.n; i += 8 {
			t.f("ld.global.b64 %%rd14, [%%rd3+%d];\n\tst.shared.b64 [%%rd13+%d], %%rd14;", offset+i, base[x.which]+i)
		}
		offset += x.n
	}
	t.f("bar.sync 0;")
	// A load from global memory takes a copy that the warp writes at its output's end.
	t.p.OutStride = nd + na + nb + nc
	t.f("and.b32 %%r12, %%r1, -32;\n\tmul.wide.u32 %%rd20, %%r12, %d;\n\tadd.u64 %%rd20, %%rd2, %%rd20;", t.p.OutStride)
	global := map[byte]int{'d': 0, 'a': 32 * nd, 'b': 32 * (nd + na), 'c': 32 * (nd + na + nb)}
	for _, x := range []struct {
		which byte
		n     int
	}{{'a', na}, {'b', nb}, {'c', nc}} {
		t.f("mul.wide.u32 %%rd12, %%r10, %d;\n\tadd.u64 %%rd13, %%rd11, %%rd12;\n"+
			"\tadd.u64 %%rd15, %%rd20, %%rd12;", x.n)
		for i := 0; i < x.n; i += 8 {
			t.f("ld.shared.b64 %%rd14, [%%rd13+%d];\n\tst.global.b64 [%%rd15+%d], %%rd14;",
				base[x.which]+i, global[x.which]+i)
		}
	}
	t.f("bar.sync 0;")
	stride := func(which byte, l string) int {
		rows, cols := p.m, p.k
		switch which {
		case 'b':
			rows, cols = p.k, p.n
		case 'c', 'd':
			rows, cols = p.m, p.n
		}
		if l == "row" {
			return cols
		}
		return rows
	}
	_ = space
	address := func(spelling string, which byte) string {
		if strings.Contains(spelling, ".shared") {
			return fmt.Sprintf("[%%rd11+%d]", base[which])
		}
		return fmt.Sprintf("[%%rd20+%d]", global[which])
	}
	ra, rb, rc, rd := wmmaRegisters('a', p), wmmaRegisters('b', p), wmmaRegisters('c', p), wmmaRegisters('d', p)
	fa, fb, fc, fd := t.registerList(p.a, 30, ra), t.registerList(p.b, 50, rb), t.registerList(p.c, 70, rc),
		t.registerList(p.d, 90, rd)
	t.f("%s %s, %s, %d;", loadA, fa, address(loadA, 'a'), stride('a', la))
	t.f("%s %s, %s, %d;", loadB, fb, address(loadB, 'b'), stride('b', lb))
	t.f("%s %s, %s, %d;", loadC, fc, address(loadC, 'c'), stride('c', layoutC))
	t.f("%s %s, %s, %s, %s;", multiply, fd, fa, fb, fc)
	t.f("%s %s, %s, %d;", storeD, address(storeD, 'd'), fd, stride('d', layoutC))
	if strings.Contains(storeD, ".shared") {
		t.f("bar.sync 0;\n\tmul.wide.u32 %%rd12, %%r10, %d;\n\tadd.u64 %%rd13, %%rd11, %%rd12;\n"+
			"\tadd.u64 %%rd15, %%rd20, %%rd12;", nd)
		for i := 0; i < nd; i += 8 {
			t.f("ld.shared.b64 %%rd14, [%%rd13+%d];\n\tst.global.b64 [%%rd15+%d], %%rd14;", base['d']+i, global['d']+i)
		}
	}
	t.p.Rule = p.rule()
	t.p.Rounds = 3
	if t.p.Rule.Elem == "" {
		t.p.Rounds = 2
	} else {
		// The warp's D comes first, then its copies of A, B and C.
		t.p.Rule.Elems = nd / elemBytes(p.d)
		t.p.Rule.Warp = true
	}
	return []*Probe{t.done()}
}

// matrixMove makes the probes of ldmatrix, stmatrix and movmatrix.
func matrixMove(op, spelling string) []*Probe {
	t := newText(spelling, "", "matrix: loads and stores", 512)
	t.p.Rounds = 1
	n := 1
	for _, m := range strings.Split(spelling, ".") {
		switch m {
		case "x2":
			n = 2
		case "x4":
			n = 4
		}
	}
	at := t.operand("b32", 4, 8)
	if op == "movmatrix" {
		t.f("ld.global.b32 %%r20, [%%rd3+%d];\n\t%s %%r21, %%r20;\n\tst.global.b32 [%%rd4], %%r21;", at, spelling)
		t.p.OutStride = 8
		return []*Probe{t.done()}
	}
	// Each thread owns a row of 16 bytes of its warp's 512.
	t.f(".shared .align 128 .b8 s[%d];\n\tmov.u64 %%rd10, s;\n\tmul.wide.u32 %%rd11, %%r2, 16;\n"+
		"\tadd.u64 %%rd10, %%rd10, %%rd11;", 16*BlockThreads)
	for i := range 4 {
		t.f("ld.global.b32 %%r%d, [%%rd3+%d];\n\tst.shared.b32 [%%rd10+%d], %%r%d;", 20+i, at+4*i, 4*i, 20+i)
	}
	t.f("bar.sync 0;")
	// The rows' addresses, in another order: lane i gives row i^5 of the warp.
	t.f("xor.b32 %%r10, %%r2, 5;\n\tmul.wide.u32 %%rd11, %%r10, 16;\n\tmov.u64 %%rd12, s;\n" +
		"\tadd.u64 %%rd12, %%rd12, %%rd11;")
	address := "[%rd12]"
	if !strings.Contains(spelling, "shared") {
		t.f("cvta.shared.u64 %%rd12, %%rd12;")
	}
	if op == "ldmatrix" {
		t.f("%s %s, %s;", spelling, t.registerList("b32", 40, n), address)
		for i := range n {
			t.f("st.global.b32 [%%rd4+%d], %%r%d;", 4*i, 40+i)
		}
	} else {
		for i := range n {
			t.f("ld.global.b32 %%r%d, [%%rd3+%d];", 40+i, at+16+4*i)
		}
		t.f("%s %s, %s;\n\tbar.sync 0;", spelling, address, t.registerList("b32", 40, n))
		for i := range 4 {
			t.f("ld.shared.b32 %%r%d, [%%rd10+%d];\n\tst.global.b32 [%%rd4+%d], %%r%d;", 50+i, 4*i, 4*i, 50+i)
		}
	}
	t.p.OutStride = 16
	return []*Probe{t.done()}
}

// wgmma makes the probes of products of a warpgroup: A and B in shared memory, K the major dimension, no swizzle; or A
// in registers.
func wgmma(spelling string) []*Probe {
	p, ok := productOf(spelling)
	if !ok {
		return nil
	}
	integer := p.d == "s32"
	forms := []string{"", "A in registers"}
	if integer || p.a == "tf32" || strings.HasPrefix(p.a, "e") {
		forms = []string{""}
	}
	var ps []*Probe
	for _, variant := range forms {
		t := newText(spelling, variant, "matrix: wgmma", 256)
		t.p.Target = "sm_90a"
		sparse := strings.HasPrefix(spelling, "wgmma.mma_async.sp")
		rowB := 32 // bytes along K
		if sparse {
			rowB = 64
		}
		t.f(".shared .align 1024 .b8 sa[2048];\n\t.shared .align 1024 .b8 sb[%d];", 256*rowB)
		fill := func(elem, name string, bytes int) {
			at := t.operand("m:"+elem, 4, bytes/BlockThreads/4)
			t.f("mov.u64 %%rd10, %s;\n\tmul.wide.u32 %%rd11, %%r2, %d;\n"+
				"\tadd.u64 %%rd10, %%rd10, %%rd11;", name, bytes/BlockThreads)
			for i := 0; i < bytes/BlockThreads; i += 4 {
				t.f("ld.global.b32 %%r10, [%%rd3+%d];\n\tst.shared.b32 [%%rd10+%d], %%r10;", at+i, i)
			}
		}
		fill(p.a, "sa", 2048)
		fill(p.b, "sb", 256*rowB)
		n := p.n / 2
		if p.d == "f16" {
			n = p.n / 4
		}
		d := t.loadRegisters(p.d, 100, n)
		a := "%rd20"
		if variant != "" {
			a = t.loadRegisters(p.a, 20, 4)
		}
		// Core matrices of 8 rows by 16 bytes: the next along K is 128 bytes on, the next 8 rows come behind those.
		descriptor := func(reg int, name string, rows int) {
			t.f("mov.u64 %%rd10, %s;\n\tshr.u64 %%rd10, %%rd10, 4;\n\tand.b64 %%rd10, %%rd10, 0x3fff;\n"+
				"\tor.b64 %%rd%d, %%rd10, %d;", name, reg, uint64(128>>4)<<16|uint64(rows>>4)<<32)
		}
		descriptor(20, "sa", 256)
		descriptor(21, "sb", 8*rowB)
		t.f("bar.sync 0;\n\tfence.proxy.async;\n\tsetp.ne.u32 %%p10, 1, 0;\n\twgmma.fence.sync.aligned;")
		tail, meta := "", ""
		if sparse {
			t.f("ld.global.b32 %%r99, [%%rd3+%d];", t.operand(p.metadata(), 4, 1))
			meta = ", %r99, 0"
		}
		switch {
		case integer:
		case p.a == "f16" || p.a == "bf16":
			tail = ", 1, 1, 0, 0"
			if variant != "" {
				tail = ", 1, 1, 0"
			}
		default:
			tail = ", 1, 1"
		}
		t.f("%s %s, %s, %%rd21%s, %%p10%s;", spelling, d, a, meta, tail)
		t.f("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;")
		t.storeRegisters(p.d, 100, n)
		t.results(p, n)
		ps = append(ps, t.done())
	}
	return ps
}
