package measure

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Random kernels k(a, b, table, pointers, n, array) for differential_test.go: two buffers, a table of numbers and one
// of four pointers, a number, and an array of eight pointers and 16 short numbers. They read and write through pointers
// to any space that were kept in registers, in local memory and in tables, call functions, and jump.

//go:embed testdata/functions.ptx
var functions string

const (
	kernelRegisters = 10 // %r, of 32 bits
	kernelPointers  = 3  // %p
	frameBytes      = 128
	pointersAt      = frameBytes / 2 // there are pointers in the frame from here
)

// A kernelWriter writes statements. %q1 and %q2, %t, %x and %h hold values within a statement; %c counts loops and
// %jumps jumps.
type kernelWriter struct {
	r          *rand.Rand
	text       strings.Builder
	statements []func() // that this kernel is made of, some more than once
	left       int      // statements that may be written
	labels     int
	depth      int // of ifs and loops
	jumps      int
}

func randomKernel(r *rand.Rand) string {
	k := &kernelWriter{r: r, left: 90}
	k.choose()
	k.block(8 + k.below(30))
	k.line("st.global.b32 [%%a+4096], %%r1")
	return functions + k.prologue() + k.text.String() + "\tret;\n}\n"
}

// choose takes a few kinds of statements, so that each is met alone, and with few others.
func (k *kernelWriter) choose() {
	type kind struct {
		often     int
		statement func()
		rare      bool
		pointers  bool // it makes pointers: they are also to be used
	}
	kinds := []kind{
		{often: 1, statement: k.arithmetic}, {often: 2, statement: k.table, pointers: true},
		{often: 2, statement: k.global},
		{often: 2, statement: k.local}, {often: 1, statement: k.localIndexed},
		{often: 1, statement: k.movePointer, pointers: true},
		{often: 1, statement: k.throughPointer}, {often: 1, statement: k.keepPointer, pointers: true},
		{often: 1, statement: k.pointerTable, pointers: true},
		{often: 1, statement: k.call}, {often: 2, statement: k.condition}, {often: 1, statement: k.loop},
		{often: 1, statement: k.reduction, rare: true},
		{often: 1, statement: k.copyLocal}, {often: 2, statement: k.shared}, {often: 2, statement: k.parameterArray},
		{often: 2, statement: k.jump},
	}
	k.statements = []func(){k.arithmetic, k.arithmetic, k.global, k.condition}
	for range 3 + k.below(4) {
		x := kinds[k.below(len(kinds))]
		if x.rare && k.below(4) != 0 {
			continue
		}
		for range x.often {
			k.statements = append(k.statements, x.statement)
		}
		if x.pointers {
			k.statements = append(k.statements, k.throughPointer, x.statement)
		}
	}
}

func (k *kernelWriter) prologue() string {
	var b strings.Builder
	fmt.Fprintf(&b, `.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 table, .param .u64 pointers, .param .u32 n, .param .align 8 .b8 array[96])
{
	.local .align 16 .b8 frame[%d];
	.shared .align 16 .b8 shared[2048];
	.reg .pred %%q<3>;
	.reg .b16 %%h<3>;
	.reg .b32 %%r<%d>, %%t<3>, %%c<8>, %%jumps;
	.reg .b64 %%x<10>, %%p<%d>, %%a, %%b, %%table, %%pointers, %%local, %%frame, %%shared, %%s0, %%s1, %%array;
	ld.param.u64 %%a, [a];
	ld.param.u64 %%b, [b];
	ld.param.u64 %%table, [table];
	ld.param.u64 %%pointers, [pointers];
	ld.param.u32 %%r0, [n];
	mov.u64 %%local, frame;
	cvta.local.u64 %%frame, %%local;
	mov.u64 %%array, array;
	mov.u64 %%shared, shared;
	cvta.shared.u64 %%shared, %%shared;
	add.s64 %%s0, %%shared, 256;
	add.s64 %%s1, %%shared, 512;
	mov.u32 %%jumps, 0;
	mov.u16 %%h1, 1;
	mov.u16 %%h2, 2;
	mov.u64 %%p0, %%a;
	mov.u64 %%p1, %%frame;
	mov.u64 %%p2, %%b;
	mov.u32 %%r1, %%tid.x;
	mov.u32 %%r2, %%tid.x;
	mov.u32 %%r3, %%ctaid.x;
`, frameBytes, kernelRegisters, kernelPointers)
	for i := 4; i < kernelRegisters; i++ {
		fmt.Fprintf(&b, "\tmov.u32 %%r%d, %d;\n", i, k.below(6))
	}
	for i := 0; i < frameBytes; i += 8 {
		word := "0"
		if i >= pointersAt {
			word = k.one("%a", "%b", "%frame", "%table")
		}
		fmt.Fprintf(&b, "\tst.local.u64 [%%local+%d], %s;\n", i, word)
	}
	return b.String()
}

func (k *kernelWriter) line(format string, a ...any) {
	fmt.Fprintf(&k.text, "\t"+format+";\n", a...)
}

func (k *kernelWriter) label(i int) { fmt.Fprintf(&k.text, "L%d:\n", i) }

func (k *kernelWriter) newLabel() int {
	k.labels++
	return k.labels
}

func (k *kernelWriter) below(n int) int         { return k.r.IntN(n) }
func (k *kernelWriter) one(of ...string) string { return of[k.below(len(of))] }
func (k *kernelWriter) number(of ...int) int    { return of[k.below(len(of))] }
func (k *kernelWriter) register() string        { return fmt.Sprintf("%%r%d", k.below(kernelRegisters)) }
func (k *kernelWriter) pointer() string         { return fmt.Sprintf("%%p%d", k.below(kernelPointers)) }
func (k *kernelWriter) compare(q string, rel ...string) {
	k.line("setp.%s %s, %s, %s", k.one(rel...), q, k.register(), k.operand())
}

func (k *kernelWriter) operand() string {
	if k.below(2) == 0 {
		return fmt.Sprint(k.below(9))
	}
	return k.register()
}

// guard is the start of an instruction that some threads do not execute; mostly it is empty.
func (k *kernelWriter) guard() string {
	if k.below(5) != 0 {
		return ""
	}
	k.compare("%q1", "lt.s32", "ge.s32", "lt.u32", "eq.s32", "ne.s32")
	return k.one("@%q1 ", "@!%q1 ")
}

// index leaves a small number, times scale, in %x1.
func (k *kernelWriter) index(scale int) {
	switch k.below(5) {
	case 0:
		k.line("and.b32 %%t1, %s, %d", k.register(), k.number(1, 3, 7, 15))
	case 1:
		k.line("mov.u32 %%t1, %%tid.x")
	case 2:
		k.line("rem.u32 %%t1, %s, %d", k.register(), 2+k.below(9))
	case 3:
		k.line("min.u32 %%t1, %s, %d", k.register(), 3+k.below(20))
	case 4:
		k.line("mov.u32 %%t1, %s", k.register())
	}
	k.line("mul.wide.%s %%x1, %%t1, %d", k.one("s32", "u32"), scale)
}

// bufferIndex is an index whose scale is also that of vectors and words of 8 bytes.
func (k *kernelWriter) bufferIndex() { k.index(k.number(4, 8, 8, 8)) }

func (k *kernelWriter) access(space, at string) {
	if k.below(2) == 0 {
		k.load(space, at, k.guard())
	} else {
		k.store(space, at, k.guard())
	}
}

func (k *kernelWriter) load(space, at, guard string) {
	first := k.below(kernelRegisters)
	second := (first + 1 + k.below(kernelRegisters-1)) % kernelRegisters
	switch k.below(9) {
	case 0, 1:
		k.line("%sld%s.%s %s, [%s+%d]", guard, space, k.one("u8", "s8"), k.register(), at, k.below(8))
	case 2:
		k.line("%sld%s.%s %s, [%s+%d]", guard, space, k.one("u16", "s16", "b16"), k.register(), at, 2*k.below(4))
	case 3:
		k.line("%sld%s.v2.%s {%%r%d, %%r%d}, [%s+%d]", guard, space, k.one("u32", "b32"), first, second, at,
			8*k.below(3))
	case 4:
		k.line("%sld%s.v2.u8 {%%r%d, %%r%d}, [%s+%d]", guard, space, first, second, at, 2*k.below(3))
	default:
		k.line("%sld%s.%s %s, [%s+%d]", guard, space, k.one("u32", "s32", "b32"), k.register(), at, 4*k.below(4))
	}
}

func (k *kernelWriter) store(space, at, guard string) {
	switch k.below(9) {
	case 0:
		k.line("%sst%s.u8 [%s+%d], %s", guard, space, at, k.below(8), k.register())
	case 1:
		k.line("%sst%s.b16 [%s+%d], %s", guard, space, at, 2*k.below(4), k.register())
	case 2:
		k.line("%sst%s.v2.b32 [%s+%d], {%s, %s}", guard, space, at, 8*k.below(3), k.register(), k.register())
	case 3:
		k.line("%sst%s.v2.u16 [%s+%d], {%%h1, %%h2}", guard, space, at, 4*k.below(3))
	case 4:
		k.line("cvt.u64.u32 %%x5, %s", k.register())
		k.line("%sst%s.u64 [%s+%d], %%x5", guard, space, at, 8*k.below(3))
	default:
		k.line("%sst%s.b32 [%s+%d], %s", guard, space, at, 4*k.below(4), k.register())
	}
}
