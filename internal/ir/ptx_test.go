package ir

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/ptx"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestCompiled analyses the compilers' output that package ptx keeps for its own tests.
func TestCompiled(t *testing.T) {
	for _, file := range []string{"nvcc", "triton"} {
		a, err := txtar.ParseFile("../../ptx/testdata/compiled/" + file + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range a.Files {
			if strings.HasSuffix(f.Name, ".ptx") {
				n += len(analysed(t, parse(t, f.Name, f.Data)))
			}
		}
		if n == 0 {
			t.Errorf("%s: no functions", file)
		}
	}
}

func line(b *strings.Builder, format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }

const header = ".version 8.5\n.target sm_90\n.address_size 64\n"

// What cannot be built is an error with a position.
func TestBuildErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"bra nowhere;", "4:13: label nowhere is not defined"},
		{"add.u32 %r1, %r1, 1;", "4:13: %r1 is not declared"},
		{".reg .b32 %r<2>; @%r1 ret;", "the guard %r1 is no predicate"},
		{".reg .b32 %r<2>; brx.idx %r1, t;", "t is no list of branch targets"},
		{".reg .b32 %r<2>; bra %r1;", "label %r1 is not defined"},
		{".shared .b32 s; mov.u32 s, 1;", "a result is no register"},
		{"bra 7;", "the target is no label"},
		{".reg .v2 .u32 %v; mov.u32 %v.z, 1;", "%v has no component z"},
	} {
		m := parse(t, "x.ptx", []byte(header+".entry k() {"+c.body+"}\n"))
		for _, err := range FromPTX(m) {
			var at *ptx.Error
			if !errors.As(err, &at) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.body, err, c.want)
			}
		}
	}
}

// TestLarge wants that time grows as the function does: many thousand blocks of the shapes that
// make quadratic algorithms slow must be done within the test's time.
func TestLarge(t *testing.T) {
	const n = 20000
	shapes := map[string]func(b *strings.Builder, i int){
		"ladder": func(b *strings.Builder, i int) { line(b, "L%d: add.u32 %%r1, %%r1, %d; @%%p1 bra L%d;", i, i, i/2) },
		"diamonds": func(b *strings.Builder, i int) {
			line(b, "@%%p1 bra A%d; mov.u32 %%r1, %d; A%d: add.u32 %%r2, %%r1, %%r2;", i, i, i)
		},
		"loops": func(b *strings.Builder, i int) {
			line(b, "B%d: add.u32 %%r1, %%r1, 1; setp.lt.u32 %%p1, %%r1, %d; @%%p1 bra B%d;", i, i, i)
		},
		"forward": func(b *strings.Builder, i int) { line(b, "@%%p1 bra E; add.u32 %%r1, %%r2, %d;", i) },
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString(header + ".entry k(.param .u64 p) {\n.reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %rd<2>;\nmov.u32 %r1, %tid.x; mov.u32 %r2, 1; setp.lt.u32 %p1, %r1, 3;\n")
			for i := range n {
				shape(&b, i)
			}
			b.WriteString("E: ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], %r1; st.global.u32 [%rd1], %r2; }\n")
			for f, err := range FromPTX(parse(t, name, []byte(b.String()))) {
				if err != nil {
					t.Fatal(err)
				}
				var large *TooLargeError
				err := Analyse(f, false)
				if err != nil && !errors.As(err, &large) {
					t.Fatal(err)
				}
				t.Log(err)
			}
		})
	}
}

// FuzzPTX wants that whatever parses can be built and analysed, or is refused, and that
// the text form reads back.
func FuzzPTX(f *testing.F) {
	for _, file := range []string{"testdata/guards.txtar", "testdata/reduce.txtar", "testdata/collatz.txtar"} {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	for _, file := range []string{"testdata/loops.ptx", "../../examples/train/train.ptx"} {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(header + ".func (.reg .v2 .u32 o) f(.reg .v2 .u32 a, .reg .pred p) { mov.v2.u32 o, a; call (o), f, ({a.y, 1}, !p); ret; }\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := ptx.Parse("fuzz.ptx", src)
		if err != nil {
			return
		}
		for fn, err := range FromPTX(m) {
			if err != nil {
				continue
			}
			roundTrip(t, fn)
			if err := Analyse(fn, true); err != nil {
				t.Fatal(err)
			}
			roundTrip(t, fn)
		}
	})
}

// TestVectorRegisters wants a value for each component: of parameters, results, moves.
func TestVectorRegisters(t *testing.T) {
	m := parse(t, "v.ptx", []byte(header+`.func (.reg .v2 .u32 o, .reg .pred p) f(.reg .v2 .u32 a, .reg .b128 b)
{
	.reg .v2 .u32 %v<2>;
	mov.v2.u32 %v1, a;
	mov.v2.u32 {o.y, o.x}, %v1;
	mov.v2.u32 o, {o.y, 7};
	call (o, p), f, (%v1, b);
}
`))
	for f, err := range FromPTX(m) {
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, b := range f.Blocks {
			for _, in := range b.Insts {
				line(&got, "%v %v %v", in.Op, names(f, in.Defs), operandNames(f, in.Args))
			}
		}
		want := `other [a.x a.y b] []
mov [%v1.x] [a.x]
mov [%v1.y] [a.y]
mov [o.y] [%v1.x]
mov [o.x] [%v1.y]
compute [o.x o.y] [o.y ?]
call [o.x o.y p] [? %v1.x %v1.y b]
return [] [o.x o.y p]
`
		if got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	}
}

func names(f *Func, list []ValID) []string {
	var s []string
	for _, v := range list {
		s = append(s, f.Vals[v].Name)
	}
	return s
}

// operandNames are the registers of operands; others are "?".
func operandNames(f *Func, list []Operand) []string {
	var s []string
	for _, x := range list {
		if x.Kind == Value {
			s = append(s, f.Vals[x.Val].Name)
		} else {
			s = append(s, "?")
		}
	}
	return s
}
