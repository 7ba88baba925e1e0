package ir_test

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/internal/ir"
	"holdfast/internal/ir/fromptx"
	"holdfast/ptx"
)

func parse(t testing.TB, name string, src []byte) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse(name, src)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return m
}

const inlined = `.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 counter[4];
.func (.param .b32 ret) twice(.param .b32 x)
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	setp.eq.s32 %p1, %r1, 0;
	@%p1 ret;
	add.s32 %r2, %r1, %r1;
	st.param.b32 [ret], %r2;
	ret;
}
.func (.param .b32 ret) four(.param .b32 x)
{
	.local .align 4 .b8 frame[8];
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	st.local.u32 [frame+4], %r1;
	{
	.param .b32 p;
	st.param.b32 [p], %r1;
	.param .b32 q;
	call.uni (q), twice, (p);
	ld.param.b32 %r2, [q];
	}
	st.param.b32 [ret], %r2;
	ret;
}
.func (.param .b32 ret) self(.param .b32 x)
{
	.reg .b32 %r<3>;
	{
	.param .b32 p;
	.param .b32 q;
	call.uni (q), self, (p);
	}
	ret;
}
.func changes(.param .b32 x)
{
	st.param.u32 [x], 1;
	ret;
}
.func widens(.param .b64 x)
{
	ret;
}
.entry k(.param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u32 %r1, [n];
	setp.lt.s32 %p1, %r1, 7;
	{
	.param .b32 p;
	st.param.b32 [p], %r1;
	.param .b32 q;
	@%p1 CALL
	ld.param.b32 %r2, [q];
	}
	ret;
}
`

// What is called is put in its place, or stays a call.
func TestInline(t *testing.T) {
	for _, c := range []struct {
		name, call string
		bound      int
		calls      int // that are left
	}{
		{"plain", "call (q), twice, (p);", 1000, 0},
		{"nested", "call (q), four, (p);", 1000, 0},
		{"not enough room", "call (q), four, (p);", 8, 1},
		{"recursion", "call (q), self, (p);", 1000, 1},
		{"changes its parameter", "call changes, (p);", 1000, 1},
		{"another size", "call widens, (p);", 1000, 1},
		{"too few", "call (q), twice, ();", 1000, 1},
		{"a register", "call (q), twice, (%r1);", 1000, 1},
		{"one variable for two", "call (p), twice, (p);", 1000, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parse(t, "k.ptx", []byte(strings.Replace(inlined, "CALL", c.call, 1)))
			funcs := map[string]*ir.Func{}
			texts := map[string]string{}
			for _, f := range fromptx.Module(m).Funcs {
				err := f.Err
				if err != nil {
					t.Fatal(err)
				}
				funcs[f.Name] = f
				texts[f.Name] = string(ir.Format(f, false))
			}
			n := &ir.Inliner{Func: c.bound, Total: 10 * c.bound,
				Callee: func(name string) *ir.Func { return funcs[name] },
				Module: func(name string) bool { return name == "counter" }}
			k := funcs["k"]
			n.Inline(k)
			for name, f := range funcs {
				if name != "k" && string(ir.Format(f, false)) != texts[name] {
					t.Errorf("%s has changed", name)
				}
			}
			ir.RoundTrip(t, k)
			ir.Promote(k, nil)
			ir.RoundTrip(t, k)
			if err := ir.Analyse(k, true); err != nil {
				t.Fatal(err)
			}
			text := string(ir.Format(k, true))
			if got := strings.Count(text, " call "); got != c.calls {
				t.Errorf("%d calls\n%s", got, text)
			}
			if c.calls == 0 && strings.Contains(text, "load:b32") {
				t.Errorf("loads of parameters are left\n%s", text)
			}
		})
	}
}

// Loads of local memory become moves, or stay.
func TestPromote(t *testing.T) {
	const head = `.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 n)
{
	.local .align 8 .b8 a[32];
	.local .align 8 .b8 other[8];
	.reg .pred %p<2>;
	.reg .f32 %f<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	mov.u64 %rd1, a;
	cvta.local.u64 %rd2, %rd1;
	mov.u64 %rd5, other;
	cvta.local.u64 %rd6, %rd5;
	ld.param.u64 %rd3, [n];
	cvt.u32.u64 %r1, %rd3;
	st.local.u32 [%rd1+8], %r1;
`
	for _, c := range []struct {
		name, text string
		loads      int // of local memory that are left
	}{
		{"plain", "ld.local.u32 %r2, [%rd1+8];", 0},
		{"generic", "ld.u32 %r2, [%rd2+8];", 0},
		{"computed", "add.s64 %rd4, %rd2, 12;\nadd.s64 %rd4, %rd4, -4;\nld.u32 %r2, [%rd4];", 0},
		{"a float", "ld.f32 %f1, [%rd2+8];", 0},
		{"a part", "ld.u8 %r2, [%rd2+9];", 0},
		{"two of one store", "st.u64 [%rd2+8], %rd3;\nld.u32 %r2, [%rd2+12];", 0},
		{"across", "st.u32 [%rd2+10], %r1;\nld.u32 %r2, [%rd2+8];", 1},
		{"through an address in memory", "st.u64 [%rd2], %rd2;\nld.u64 %rd4, [%rd2];\nld.u32 %r2, [%rd4+8];", 0},
		{"through half of an address", "st.u64 [%rd2], %rd2;\nst.u32 [%rd2+4], 0;\nld.u64 %rd4, [%rd2];\nld.u32 %r2, " +
			"[%rd4+8];", 2},
		{"an address that escapes", "st.global.u64 [%rd3], %rd2;\nld.u32 %r2, [%rd2+8];", 1},
		{"another one that escapes", "st.global.u64 [%rd3], %rd6;\nld.u32 %r2, [%rd2+8];", 1},
		{"one of two", "setp.eq.u64 %p1, %rd3, 0;\nselp.b64 %rd4, %rd2, %rd3, %p1;\nst.u32 [%rd4+8], 0;\nld.u32 %r2, " +
			"[%rd2+8];", 1},
		{"an index without bounds", "add.s64 %rd4, %rd2, %rd3;\nst.u32 [%rd4], 0;\nld.u32 %r2, [%rd2+8];", 1},
		{"an index elsewhere", "and.b64 %rd4, %rd3, 7;\nadd.s64 %rd4, %rd2, %rd4;\nst.u8 [%rd4], 0;\nld.u32 %r2, " +
			"[%rd2+8];", 0},
		{"an index that may come here", "and.b64 %rd4, %rd3, 15;\nadd.s64 %rd4, %rd2, %rd4;\nst.u8 [%rd4], " +
			"0;\nld.u32 %r2, [%rd2+8];", 1},
		{"an index beyond", "and.b64 %rd4, %rd3, 7;\nadd.s64 %rd4, %rd2, %rd4;\nst.u8 [%rd4+26], 0;\nld.u32 %r2, " +
			"[%rd2+8];", 1},
		{"an index that is read", "add.s64 %rd4, %rd2, %rd3;\nld.u32 %r3, [%rd4];\nld.u32 %r2, [%rd2+8];", 1},
		{"a counter", "mov.u64 %rd7, 0;\nL:\nadd.s64 %rd4, %rd2, %rd7;\nst.u8 [%rd4+12], 0;\nadd.s64 %rd7, %rd7, " +
			"1;\nsetp.lt.s64 %p1, %rd7, 20;\n@%p1 bra L;\nld.u32 %r2, [%rd2+8];", 0},
		{"a counter that goes too far", "mov.u64 %rd7, 0;\nL:\nadd.s64 %rd4, %rd2, %rd7;\nst.u8 [%rd4+12], " +
			"0;\nadd.s64 %rd7, %rd7, 1;\nsetp.lt.s64 %p1, %rd7, 21;\n@%p1 bra L;\nld.u32 %r2, [%rd2+8];", 1},
		{"an atomic", "atom.add.u32 %r3, [%rd2+8], 1;\nld.u32 %r2, [%rd2+8];", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parse(t, "k.ptx", []byte(head+c.text+"\nret;\n}\n"))
			for _, f := range fromptx.Module(m).Funcs {
				err := f.Err
				if err != nil {
					t.Fatal(err)
				}
				ir.Promote(f, nil)
				ir.RoundTrip(t, f)
				if err := ir.Analyse(f, true); err != nil {
					t.Fatal(err)
				}
				text := string(ir.Format(f, false))
				if got := strings.Count(text, "= load") - 1; got != c.loads { // one is of a parameter
					t.Errorf("%d loads are left\n%s", got, text)
				}
			}
		})
	}
}

// A tower of functions, each calling the next one four times, would make 4^14 copies: the bounds hold for
// everything that is copied.
func TestInlineTower(t *testing.T) {
	var src strings.Builder
	src.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
	for i := range 14 {
		fmt.Fprintf(&src, ".func f%d(.param .b64 x)\n{\n.local .align 8 .b8 frame[64];\n.reg .b64 "+
			"%%rd<2>;\nld.param.u64 %%rd1, [x];\nst.local.u64 [frame], %%rd1;\n", i)
		for range 4 {
			if i > 0 {
				fmt.Fprintf(&src, "{ .param .b64 q; st.param.b64 [q], %%rd1; call f%d, (q); }\n", i-1)
			}
		}
		src.WriteString("ret;\n}\n")
	}
	src.WriteString(".entry k()\n{\n{ .param .b64 q; st.param.b64 [q], 1; call f13, (q); }\nret;\n}\n")
	funcs := map[string]*ir.Func{}
	for _, f := range fromptx.Module(parse(t, "tower.ptx", []byte(src.String()))).Funcs {
		err := f.Err
		if err != nil {
			t.Fatal(err)
		}
		funcs[f.Name] = f
	}
	const bound = 2000
	n := &ir.Inliner{Func: bound, Total: 4 * bound, Callee: func(name string) *ir.Func { return funcs[name] },
		Module: func(string) bool { return false }}
	k := funcs["k"]
	before := ir.Size(k)
	n.Inline(k)
	if n.Total < 0 || ir.Size(k)-before > 2*bound { // a call adds a few instructions of its own
		t.Errorf("%d were copied into the kernel, %d are left for others", ir.Size(k)-before, n.Total)
	}
	if ir.Serial(n) > 4*bound {
		t.Errorf("%d calls were looked at closely", ir.Serial(n))
	}
}
