package measure

import "fmt"

// The statements of random kernels.

func (k *kernelWriter) block(n int) {
	for range n {
		if k.left <= 0 {
			return
		}
		k.left--
		k.statements[k.below(len(k.statements))]()
	}
}

func (k *kernelWriter) arithmetic() {
	d := k.register()
	switch k.below(10) {
	case 0:
		k.line("add.s32 %s, %s, %s", d, k.register(), k.operand())
	case 1:
		k.line("sub.s32 %s, %s, %s", d, k.register(), k.operand())
	case 2:
		k.line("mad.lo.s32 %s, %s, %d, %s", d, k.register(), 1+k.below(4), k.operand())
	case 3:
		k.line("and.b32 %s, %s, %d", d, k.register(), k.number(1, 3, 7, 15, 12))
	case 4:
		k.line("%s %s, %s, %d", k.one("shr.u32", "shr.s32", "rem.u32", "div.u32", "rem.s32"), d, k.register(),
			1+k.below(4))
	case 5:
		k.line("%s %s, %s, %s", k.one("min.s32", "max.s32", "min.u32"), d, k.register(), k.operand())
	case 6:
		k.line("mov.u32 %s, %s", d, k.one("%tid.x", "%tid.x", "%ctaid.x", "%r0"))
	case 7:
		guard := k.guard()
		k.line("%sadd.s32 %s, %s, 1", guard, d, d)
	case 8:
		k.compare("%q2", "lt.s32", "gt.u32", "ne.s32")
		k.line("selp.b32 %s, %s, %s, %%q2", d, k.register(), k.operand())
	case 9: // a quotient and its remainder, of what may be 0
		x, y, sign := k.register(), k.register(), k.one("u32", "s32")
		if k.below(2) == 0 {
			k.line("and.b32 %s, %s, %d", y, y, k.number(1, 3, 7))
		}
		if d == x || d == y || k.below(3) == 0 {
			k.line("rem.%s %s, %s, %s", sign, d, x, y)
			return
		}
		k.line("div.%s %s, %s, %s", sign, d, x, y)
		k.line("mul.lo.s32 %s, %s, %s", d, d, y)
		k.line("sub.s32 %s, %s, %s", d, x, d)
	}
}

func (k *kernelWriter) table() {
	k.index(k.number(1, 2, 4, 4, 4, 8))
	if k.below(12) == 0 {
		k.line("neg.s64 %%x1, %%x1")
	}
	k.line("add.s64 %%x2, %%table, %%x1")
	k.load(k.one(".global", ".global", ".global.nc", "", ".volatile.global"), "%x2", k.guard())
}

func (k *kernelWriter) global() {
	k.bufferIndex()
	k.line("add.s64 %%x2, %s, %%x1", k.one("%a", "%b", "%a", "%b", "%a", "%b", "%table"))
	k.access(k.one(".global", ""), "%x2")
}

func (k *kernelWriter) reduction() {
	k.bufferIndex()
	k.line("add.s64 %%x2, %s, %%x1", k.one("%a", "%b", "%table"))
	k.line("red.global.add.u32 [%%x2], %s", k.register())
}

func (k *kernelWriter) local() {
	switch k.below(6) {
	case 0:
		k.access(".local", "frame")
	case 1, 2:
		k.access(".local", "%local")
	default:
		k.access("", "%frame")
	}
}

func (k *kernelWriter) localIndexed() {
	k.line("and.b32 %%t1, %s, %d", k.register(), k.number(1, 3, 7))
	k.line("mul.wide.u32 %%x1, %%t1, %d", k.number(4, 8, 8))
	if k.below(2) == 0 {
		k.line("add.s64 %%x2, %%local, %%x1")
		k.access(".local", "%x2")
	} else {
		k.line("add.s64 %%x2, %%frame, %%x1")
		k.access("", "%x2")
	}
}

// copyLocal copies as compilers copy structs.
func (k *kernelWriter) copyLocal() {
	k.line("ld.local.v2.u64 {%%x6, %%x7}, [%%local+%d]", 16*k.below(5))
	k.line("st.local.v2.u64 [%%local+%d], {%%x6, %%x7}", 16*k.below(5))
}

func (k *kernelWriter) movePointer() {
	guard, d := k.guard(), k.pointer()
	switch k.below(6) {
	case 0:
		k.line("%smov.u64 %s, %s", guard, d, k.one("%a", "%b", "%frame", "%table"))
	case 1:
		k.bufferIndex()
		k.line("add.s64 %s, %s, %%x1", d, d)
	case 2:
		k.line("%smov.u64 %s, %s", guard, d, k.pointer())
	case 3:
		k.line("%sadd.s64 %s, %s, %d", guard, d, k.one("%frame", "%a", "%b"), 8*k.below(4))
	case 4:
		k.compare("%q2", "lt.s32")
		k.line("selp.b64 %s, %s, %s, %%q2", d, k.pointer(), k.pointer())
	case 5:
		k.line("%sadd.s64 %s, %s, 8", guard, d, d)
	}
}

func (k *kernelWriter) throughPointer() { k.access("", k.pointer()) }

func (k *kernelWriter) keepPointer() {
	space, frame := "", "%frame"
	if k.below(3) == 0 {
		space, frame = ".local", "frame"
	}
	guard, at := k.guard(), pointersAt+8*k.below(3)
	if k.below(2) == 0 {
		k.line("%sst%s.u64 [%s+%d], %s", guard, space, frame, at, k.pointer())
	} else {
		k.line("%sld%s.u64 %s, [%s+%d]", guard, space, k.pointer(), frame, at)
	}
}

func (k *kernelWriter) pointerTable() {
	k.line("and.b32 %%t1, %s, %d", k.register(), k.number(0, 1, 3))
	k.line("mul.wide.u32 %%x1, %%t1, 8")
	k.line("add.s64 %%x2, %%pointers, %%x1")
	k.line("ld.global.u64 %s, [%%x2]", k.pointer())
}

func (k *kernelWriter) parameterArray() {
	k.line("and.b32 %%t1, %s, %d", k.register(), k.number(1, 3, 7))
	scale := k.number(8, 8, 2, 4)
	k.line("mul.wide.u32 %%x1, %%t1, %d", scale)
	k.line("add.s64 %%x2, %%array, %%x1")
	if scale == 8 {
		k.line("ld.param.u64 %s, [%%x2]", k.pointer())
	} else {
		k.line("ld.param.%s %s, [%%x2+64]", k.one("u16", "u16", "s16"), k.register())
	}
}

func (k *kernelWriter) shared() {
	k.bufferIndex()
	k.line("and.b64 %%x1, %%x1, 248")
	k.line("add.s64 %%x2, %s, %%x1", k.one("%shared", "%s0", "%s0", "%s1"))
	switch k.below(5) {
	case 0:
		k.load("", "%x2", k.guard())
	case 1:
		k.store("", "%x2", k.guard())
	case 2:
		guard := k.guard()
		k.line("%smov.u64 %s, %s", guard, k.one("%s0", "%s1"), k.one("%shared", "%s0", "%s1", "%x2", "%x2"))
	case 3: // they change places
		k.line("mov.u64 %%x3, %%s0")
		k.line("mov.u64 %%s0, %%s1")
		k.line("mov.u64 %%s1, %%x3")
	case 4:
		guard := k.guard()
		k.line("%smov.u64 %s, %s", guard, k.pointer(), k.one("%s0", "%s1"))
	}
}

func (k *kernelWriter) condition() {
	if k.depth > 2 {
		return
	}
	k.depth++
	end := k.newLabel()
	k.compare("%q1", "lt.s32", "ge.s32", "lt.u32", "eq.s32")
	k.line("@%%q1 bra L%d", end)
	k.block(1 + k.below(4))
	if k.below(2) == 0 {
		other := end
		end = k.newLabel()
		k.line("bra L%d", end)
		k.label(other)
		k.block(1 + k.below(3))
	}
	k.label(end)
	k.depth--
}

func (k *kernelWriter) loop() {
	if k.depth > 2 {
		return
	}
	k.depth++
	end, start, limit := k.newLabel(), k.newLabel(), k.operand()
	counter := fmt.Sprintf("%%c%d", k.depth)
	test := func() {
		k.line("setp.%s %%q1, %s, %s", k.one("lt.s32", "lt.s32", "lt.u32", "ne.s32"), counter, limit)
	}
	k.line("mov.u32 %s, %s", counter, k.operand())
	k.label(start)
	first := k.below(2) == 0 // it is tested before it is entered
	if first {
		test()
		k.line("@!%%q1 bra L%d", end)
	}
	k.line("mov.u32 %s, %s", k.register(), counter)
	k.block(1 + k.below(4))
	k.line("add.s32 %s, %s, %d", counter, counter, 1+k.below(2))
	if first {
		k.line("bra L%d", start)
	} else {
		test()
		k.line("@%%q1 bra L%d", start)
	}
	k.label(end)
	k.depth--
}

// jump goes to any label so far, also into loops and conditions, a few times.
func (k *kernelWriter) jump() {
	if k.labels == 0 || k.jumps > 3 {
		return
	}
	k.jumps++
	k.line("add.s32 %%jumps, %%jumps, 1")
	k.line("setp.lt.s32 %%q1, %%jumps, %d", 2+k.below(8))
	if k.below(2) == 0 {
		k.compare("%q2", "lt.s32")
		k.line("and.pred %%q1, %%q1, %%q2")
	}
	k.line("@%%q1 bra L%d", 1+k.below(k.labels))
}

// call calls one of testdata/functions.ptx.
func (k *kernelWriter) call() {
	guard := k.guard()
	fmt.Fprintf(&k.text, "\t{\n")
	defer fmt.Fprintf(&k.text, "\t}\n")
	argument := func(i int, kind, value string) {
		k.line(".param .%s a%d", kind, i)
		k.line("st.param.%s [a%d], %s", kind, i, value)
	}
	switch k.below(5) {
	case 0:
		argument(0, "b32", k.register())
		argument(1, "b32", k.register())
		k.line(".param .b32 result")
		k.line("%scall (result), pick, (a0, a1)", guard)
		k.line("%sld.param.b32 %s, [result]", guard, k.register())
	case 1:
		argument(0, "b64", k.one("%a", "%b", "%frame", "%p0", "%p1"))
		argument(1, "b32", k.register())
		k.line("%scall add_or_set, (a0, a1)", guard)
	case 2: // a struct of a pointer and two numbers
		k.line(".param .align 8 .b8 a0[16]")
		k.line("st.param.b64 [a0+0], %s", k.one("%a", "%b", "%frame", "%p0", "%p1"))
		k.line("st.param.b32 [a0+8], %s", k.register())
		k.line("st.param.b32 [a0+12], %s", k.register())
		k.line(".param .align 8 .b8 result[16]")
		k.line("%scall (result), element, (a0)", guard)
		k.line("%sld.param.b64 %s, [result+0]", guard, k.pointer())
		k.line("%sld.param.b32 %s, [result+8]", guard, k.register())
	case 3:
		argument(0, "b64", k.one("%frame", "%frame", "%p0", "%a"))
		argument(1, "b32", k.register())
		k.line(".param .b64 result")
		k.line("%scall (result), fill, (a0, a1)", guard)
		k.line("%sld.param.b64 %s, [result]", guard, k.pointer())
	case 4:
		argument(0, "b32", k.register())
		k.line(".param .b32 result")
		k.line("%scall (result), pick_twice, (a0)", guard)
		k.line("%sld.param.b32 %s, [result]", guard, k.register())
	}
}
