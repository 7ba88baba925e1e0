package verify_test

import (
	"strings"
	"testing"

	"holdfast/internal/replay/verify"
	"holdfast/internal/trace"
)

// A hostile is a kernel k(p, n), written by hand to break what compilers keep to.
type hostile struct {
	name, functions, body string
	level                 verify.Level
	reason                string
}

const head = ".version 8.0\n.target sm_90\n.address_size 64\n"

func (h *hostile) text() string {
	return head + h.functions + `
.visible .entry k(.param .u64 p, .param .u32 n)
{
	.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %d<9>;
	ld.param.u64 %d0, [p];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p0, %r1, %r0;
` + h.body + "\n\tret;\n}\n"
}

// far is farther from base than any region of the tests is large, and mapped for none of them.
const far = "0x10000000"

const (
	proven  = verify.Proven
	onArgs  = verify.ByArguments
	refused = verify.Refused
)

var hostiles = []hostile{
	{"nothing", "", "", proven, ""},
	{"inside", "", "@%p0 st.global.u32 [%d0+4092], %r1;", proven, ""},
	{"one byte too far", "", "st.global.u32 [%d0+4093], %r1;", refused,
		"it writes 0x800000000ffd to 0x800000001000"},
	{"reads too far", "", "ld.global.u32 %r2, [%d0+" + far + "]; st.global.u32 [%d0], %r2;", refused,
		"it reads"},
	{"before", "", "st.global.u32 [%d0+-4], %r1;", refused, "it writes"},
	{"a constant address", "", "mov.u64 %d1, 0x7f0000000000; st.global.u32 [%d1], %r1;", refused,
		"it writes 0x7f00"},
	{"the end of all addresses", "", "mov.u64 %d1, -2; st.global.u32 [%d1], %r1;", onArgs, ""},
	{"before a trap", "", "st.global.u32 [%d0+" + far + "], %r1; trap;", refused, "it writes"},
	{"on the way to a trap", "", "@%p0 bra OUT; st.global.u32 [%d0+" + far + "], %r1; trap; OUT:", refused,
		"it writes"},
	{"asserted later", "", `ld.global.u32 %r2, [%d0]; mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d0, %d1;
		st.global.u32 [%d1], %r1; setp.lt.u32 %p1, %r2, 4; @%p1 bra OUT; trap; OUT:`, onArgs,
		"if memory holds something else"},
	{"a null pointer", "", "ld.global.u64 %d1, [%d0]; st.global.u32 [%d1], %r1;", refused,
		"it writes 0x0 to 0x3"},
	{"a pointer from what is written", "", "ld.global.u64 %d1, [%d0]; st.global.u64 [%d0], %d1;\n" +
		"st.global.u32 [%d1], %r1;",
		onArgs, "what it writes has no provable bound"},
	{"from shared memory", ".shared .align 8 .b64 s;", `mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; add.u64 %d2, %d2,
		0x7ffb00000000; st.u32 [%d2], %r1;`, onArgs, "makes addresses in device memory"},
	{"from local memory", "", `.local .align 8 .b8 l[16]; mov.u64 %d1, l; cvta.local.u64 %d2, %d1; add.u64 %d2, %d2,
		0x7ffa00000000; st.u32 [%d2], %r1;`, onArgs, "makes addresses in device memory"},
	{"from a parameter", "", `mov.u64 %d1, p; cvta.param.u64 %d2, %d1; add.u64 %d2, %d2, 0x7ff900000000;
		st.u32 [%d2], %r1;`, onArgs, ""},
	{"from shared to global memory", ".shared .align 8 .b64 s;", `mov.u64 %d1, s; cvta.shared.u64 %d2, %d1;
		cvta.to.global.u64 %d3, %d2; add.u64 %d3, %d3, 0x7ffb00000000; st.global.u32 [%d3], %r1;`, onArgs, ""},
	{"a shared address as a global one", ".shared .align 8 .b64 s;", `mov.u64 %d1, s; add.u64 %d1, %d1, 0x7fff00000000;
		st.global.u32 [%d1], %r1;`, onArgs, ""},
	{"an atomic operation", ".shared .align 8 .b64 s;", `mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; add.u64 %d2, %d2,
		0x7ffb00000000; red.add.u32 [%d2], %r1;`, onArgs, "makes addresses in device memory"},
	{"from shared memory, in a function", `.shared .align 8 .b64 s; .func f() { .reg .b64 %d<4>; mov.u64 %d1, s;
		cvta.shared.u64 %d2, %d1; add.u64 %d2, %d2, 0x7ffb00000000; st.u32 [%d2], 1; ret; }`, "call f;",
		onArgs, "makes addresses in device memory"},
	{"in 32 bits", ".shared .align 8 .b64 s;", `mov.u32 %r3, s; cvt.u64.u32 %d1, %r3; add.u64 %d1, %d1, 0x7fff00000000;
		st.global.u32 [%d1], %r1;`, refused, "it writes"},
	{"through local memory", ".shared .align 8 .b64 s;", `.local .align 8 .b64 l; mov.u64 %d1, s; st.local.u64 [l], %d1;
		ld.local.u64 %d2, [l]; add.u64 %d2, %d2, 0x7fff00000000; st.global.u32 [%d2], %r1;`, onArgs, ""},
	{"through a function", `.shared .align 8 .b64 s; .func (.param .u64 r) f(.param .u64 q) { .reg .b64 %d<4>;
		ld.param.u64 %d0, [q]; add.u64 %d0, %d0, 0x7fff00000000; st.param.u64 [r], %d0; ret; }`, `{ .param .u64 a;
		.param .u64 b; mov.u64 %d1, s; st.param.u64 [a], %d1; call (b), f, (a); ld.param.u64 %d2, [b]; }
		st.global.u32 [%d2], %r1;`, onArgs, "makes addresses in device memory"},
	{"a stack frame", "", `.local .align 8 .b8 l[16]; mov.u64 %d1, l; cvta.local.u64 %d2, %d1; st.local.u32 [%d1+4], %r1;
		ld.local.u32 %r4, [%d1+4]; st.global.u32 [%d0], %r4;`, proven, ""},
	{"shared memory alone", ".shared .align 8 .b64 s[64];", `mov.u32 %r3, s; st.shared.u32 [%r3+8], %r1; ld.shared.u32 %r4,
		[s+8]; st.global.u32 [%d0], %r4;`, proven, ""},
	{"an address through shared memory", ".shared .align 8 .b64 s[64];", `st.shared.u64 [s], %d0; ld.shared.u64 %d1, [s];
		st.global.u32 [%d1], %r1;`, onArgs, "what it writes has no provable bound"},
	{"an asynchronous copy", ".shared .align 16 .b8 s[64];", `mov.u32 %r3, s;
		cp.async.ca.shared.global [%r3], [%d0+` + far +
		`], 16; cp.async.wait_all;`, refused, "it reads"},
	{"a register that nothing writes", "", `@%p0 bra SET; bra USE; SET: mov.u64 %d1, %d0; USE:
		st.global.u32 [%d1], %r1;`, onArgs, "what it writes has no provable bound"},
	{"a predicated move", "", "@%p0 mov.u64 %d1, %d0; st.global.u32 [%d1], %r1;", onArgs, ""},
	{"local memory that nothing writes", "", `.local .align 8 .b8 l[16]; @%p0 st.local.u64 [l], %d0;
		ld.local.u64 %d1, [l]; st.global.u32 [%d1], %r1;`, onArgs, ""},
	{"beside local memory", "", `.local .align 8 .b8 l[16]; .local .align 8 .b8 m[16]; st.local.u64 [m], %d0;
		mov.u64 %d3, 0x7f0000000000; st.local.u64 [l+16], %d3; ld.local.u64 %d1, [m]; st.global.u32 [%d1], %r1;`,
		onArgs, ""},
	{"comes back all the same", `.func away(.param .u64 q) .noreturn { .reg .b64 %d<4>; ld.param.u64 %d0, [q];
		st.global.u32 [%d0+` + far + `], 1; ret; }`, "{ .param .u64 a; st.param.u64 [a], %d0; call away, (a); }",
		onArgs, "never comes back"},
	{"an assertion of its own", ".func __assertfail(.param .u64 q) { .reg .b64 %d<4>; ld.param.u64 %d0, [q];\n" +
		"st.global.u32 [%d0+" + far + "], 1; ret; }",
		"{ .param .u64 a; st.param.u64 [a], %d0; call __assertfail, (a); }",
		onArgs, "never comes back"},
	{"like a library", `.global .align 4 .b32 t[4]; .func __internal_f(.param .u64 q) { .reg .b64 %d<4>; .reg .b32 %r<2>;
		ld.param.u64 %d0, [q]; mov.u64 %d1, t; add.u64 %d1, %d1, %d0; ld.global.u32 %r0, [%d1]; ret; }`,
		"{ .param .u64 a; st.param.u64 [a], %d0; call __internal_f, (a); }", onArgs, "taken on trust"},
	{"a function of that name twice", ".func f() { ret; }\n.func f() { .reg .b64 %d<2>;\n" +
		"mov.u64 %d0, 0x7f0000000000;\n" +
		"st.global.u32 [%d0], 1; ret; }", "call f;", onArgs, "f is defined a second time"},
	{"the same in the other order", ".func f() { .reg .b64 %d<2>; mov.u64 %d0, 0x7f0000000000;\n" +
		"st.global.u32 [%d0], 1; ret; }\n.func f() { ret; }", "call f;", onArgs, "f is defined a second time"},
	{"registers that are declared twice", "", ".reg .b64 %d<9>; st.global.u32 [%d0], %r1;", onArgs,
		"%d is declared a second time"},
	{"called through a pointer", ".func f() { ret; }", "mov.u64 %d1, f; P: .callprototype _ (); call %d1, (), P;",
		onArgs, ""},
	{"prints", ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);", `{ .param .b64 a; .param .b64 b;
		.param .b32 c; st.param.b64 [a], %d0; st.param.b64 [b], %d0; call (c), vprintf, (a, b); }`, refused,
		"it calls vprintf"},
	{"allocates", ".extern .func (.param .b64 r) malloc(.param .b64 a);", `{ .param .b64 a; .param .b64 b;
		st.param.b64 [a], %d0; call (b), malloc, (a); ld.param.b64 %d1, [b]; }`, refused, "it calls malloc"},
	{"a texture", "", "{ .reg .b32 %x<4>; tex.1d.v4.u32.s32 {%x0, %x1, %x2, %x3}, [%d0, {%r1}]; }", refused,
		"textures"},
	{"a variable of its module", ".global .align 4 .b32 t[4];", "mov.u64 %d1, t; ld.global.u32 %r2, [%d1+12];",
		proven, ""},
	{"a variable by its name", ".global .align 4 .b32 t[4];", "ld.global.u32 %r2, [t+4]; st.global.u32 [%d0], %r2;",
		proven, ""},
	{"beside a variable of its module", ".global .align 4 .b32 t[4];",
		"mov.u64 %d1, t; ld.global.u32 %r2, [%d1+16]; st.global.u32 [%d0], %r2;", onArgs, ""},
	{"writes a variable of its module", ".global .align 4 .b32 t[4];", "mov.u64 %d1, t; st.global.u32 [%d1], 1;",
		onArgs, "what it writes has no provable bound"},
}

// Whatever a kernel does, it is not called proven unless it stays in the recording's memory, as the software GPU sees.
func TestHostile(t *testing.T) {
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			s := sketch{code: []string{h.text()}, kernels: []string{"k"},
				regions: []region{{base, 4096, make([]byte, 4096), false}},
				work:    []trace.Record{launch(0, 1, 32, uint64(base), uint32(8))}}
			b := s.write(t)
			r := verified(t, b)
			x := r.Items[0]
			if x.Level != h.level || !strings.Contains(x.Reason, h.reason) {
				t.Errorf("%v (%s), want %v (%s)", x.Level, x.Reason, h.level, h.reason)
			}
			if out := played(t, open(t, b), base-window/2, window); len(out.strays) > 0 && x.Level == verify.Proven {
				t.Errorf("proven, but %v", out.strays)
			}
		})
	}
}
