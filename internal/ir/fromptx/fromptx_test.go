package fromptx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/ir"
	"holdfast/internal/isa"
	"holdfast/ptx"
	"holdfast/test/golden"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestCompiled analyses the compilers' output that package ptx keeps for its own tests.
func TestCompiled(t *testing.T) {
	for _, file := range []string{"nvcc", "triton"} {
		a, err := txtar.ParseFile("../../../ptx/testdata/compiled/" + file + ".txtar")
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

func parse(t testing.TB, name string, src []byte) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse(name, src)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return m
}

// analysed builds and analyses the functions of a module, with the checker after each pass.
func analysed(t testing.TB, m *ptx.Module) []*ir.Func {
	t.Helper()
	var fs []*ir.Func
	for _, f := range Module(m).Funcs {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		roundTrip(t, f)
		if err := ir.Analyse(f, true); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, f)
		fs = append(fs, f)
	}
	return fs
}

// roundTrip wants that the text of f reads back to the same text.
func roundTrip(t testing.TB, f *ir.Func) {
	t.Helper()
	text := ir.Format(f, false)
	for _, in := range [][]byte{text, ir.Format(f, true)} {
		g, err := ir.Read(in)
		if err != nil {
			t.Fatalf("%v\n%s", err, in)
		}
		if again := ir.Format(g, false); !bytes.Equal(again, text) {
			t.Fatalf("reads back as\n%s\nfrom\n%s", again, text)
		}
	}
}

// A golden file holds a kernel, input.ptx, and what is built of it.
func TestGolden(t *testing.T) {
	golden.Archives(t, "testdata/*.txtar", func(t *testing.T, _ string, a *txtar.Archive) {
		m := parse(t, "input.ptx", a.Files[0].Data)
		var built []byte
		for _, f := range Module(m).Funcs {
			if f.Err != nil {
				t.Fatal(f.Err)
			}
			built = append(built, ir.Format(f, false)...)
		}
		a.Files = []txtar.File{a.Files[0], {Name: "built.ir", Data: built}}
	})
}

// The PTX of the tree that other packages have, written by compilers and by hand, can be built and analysed.
func TestSources(t *testing.T) {
	n := 0
	for _, glob := range []string{"../../../examples/train/train.ptx", "../../snapshot/digest/digest.ptx",
		"testdata/*.ptx"} {
		files, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n += len(analysed(t, parse(t, file, src)))
		}
	}
	if n < 10 {
		t.Errorf("only %d functions", n)
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
		for _, f := range Module(m).Funcs {
			err := f.Err
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
			b.WriteString(header + ".entry k(.param .u64 p) {\n.reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 " +
				"%rd<2>;\nmov.u32 %r1, %tid.x; mov.u32 %r2, 1; setp.lt.u32 %p1, %r1, 3;\n")
			for i := range n {
				shape(&b, i)
			}
			b.WriteString("E: ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], %r1; st.global.u32 [%rd1], %r2; }\n")
			for _, f := range Module(parse(t, name, []byte(b.String()))).Funcs {
				err := f.Err
				if err != nil {
					t.Fatal(err)
				}
				var large *ir.TooLargeError
				err = ir.Analyse(f, false)
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
	for _, file := range []string{"testdata/loops.ptx", "../../../examples/train/train.ptx"} {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(header + ".func (.reg .v2 .u32 o) f(.reg .v2 .u32 a, .reg .pred p) { mov.v2.u32 o, a; call (o), f, " +
		"({a.y, 1}, !p); ret; }\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := ptx.Parse("fuzz.ptx", src)
		if err != nil {
			return
		}
		for _, fn := range Module(m).Funcs {
			err := fn.Err
			if err != nil {
				continue
			}
			roundTrip(t, fn)
			if err := ir.Analyse(fn, true); err != nil {
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
	for _, f := range Module(m).Funcs {
		err := f.Err
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

func names(f *ir.Func, list []ir.ValID) []string {
	var s []string
	for _, v := range list {
		s = append(s, f.Vals[v].Name)
	}
	return s
}

// operandNames are the registers of operands; others are "?".
func operandNames(f *ir.Func, list []ir.Operand) []string {
	var s []string
	for _, x := range list {
		if x.Kind == ir.Value {
			s = append(s, f.Vals[x.Val].Name)
		} else {
			s = append(s, "?")
		}
	}
	return s
}

// The instruction table's lists and those of package ir are in the same order, where one is converted to the other.
func TestListsMatch(t *testing.T) {
	for c, want := range map[isa.Coordinate]ir.Coordinate{isa.ThreadIndex: ir.ThreadIndex, isa.BlockSize: ir.BlockSize,
		isa.BlockIndex: ir.BlockIndex, isa.GridSize: ir.GridSize, isa.ClusterIndex: ir.ClusterIndex,
		isa.GridClusters: ir.GridClusters, isa.IndexInCluster: ir.IndexInCluster, isa.ClusterSize: ir.ClusterSize,
		isa.Lane:          ir.Lane,
		isa.RankInCluster: ir.RankInCluster, isa.ClusterBlocks: ir.ClusterBlocks, isa.DynamicShared: ir.DynamicShared} {
		if ir.Coordinate(c) != want {
			t.Errorf("%v and %v", c, want)
		}
	}
	if ir.Level(isa.InGrid) != ir.SameGrid || ir.Level(isa.InBlock) != ir.SameBlock ||
		ir.Level(isa.InWarp) != ir.SameWarp ||
		ir.Level(isa.InThread) != ir.Varies || ir.Source(isa.TheMachine) != ir.FromMachine ||
		ir.Source(isa.TheDriver) != ir.FromDriver {
		t.Error("who has the same value, or what it depends on")
	}
}

// What is made of instructions: their operation and attributes.
func TestInstructions(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"add.cc.u32 %r1, %r2, %r3;", `v0, v3 = addcarry:u32 "add.cc.u32" v1, v2`},
		{"addc.u32 %r1, %r2, %r3;", `v0 = addcarry:u32 "addc.u32" v1, v2, v3`},
		{"add.sat.s32 %r1, %r2, %r3;", `v0 = compute:s32 "add.sat.s32" v1, v2`},
		{"mul.hi.u32 %r1, %r2, %r3;", `v0 = mulhigh:u32 "mul.hi.u32" v1, v2`},
		{"mad.hi.cc.u32 %r1, %r2, %r3, %r1;", `v0, v3 = compute:u32 "mad.hi.cc.u32" v1, v2, v0`},
		{"fma.rn.ftz.f32 %r1, %r2, %r3, %r1;",
			`v0 = fma:f32 (nearest flushes) "fma.rn.ftz.f32" v1, v2, v0`},
		{"max.NaN.f32 %r1, %r2, %r3;", `v0 = max:f32 (keepsnan) "max.NaN.f32" v1, v2`},
		{"setp.neu.f32 %p1, %r2, %r3;",
			`v0 = compare.ne:f32 (unordered) "setp.neu.f32" v1, v2`},
		{"setp.lt.and.s32 %p1|%p2, %r2, %r3, %p3;",
			`v0, v1 = comparewith.lt:s32 (both) "setp.lt.and.s32" v2, v3, v4`},
		{"setp.num.f32 %p1, %r2, %r3;", `v0 = compute:f32 "setp.num.f32" v1, v2`},
		{"shf.r.wrap.b32 %r1, %r2, %r3, 5;",
			`v0 = funnelright:b32 (wraps) "shf.r.wrap.b32" v1, v2, 5`},
		{"bfe.u32 %r1, %r2, 3, 4;", `v0 = extract:u32 "bfe.u32" v1, 3, 4`},
		{"lop3.b32 %r1, %r2, %r3, %r1, 0x96;", `v0 = logic3:b32 "lop3.b32" v1, v2, v0, 150`},
		{"bar.arrive 1, 64;",
			`barrier (ofblock arrives counted) "bar.arrive" 1, 64 {orders}`},
		{"barrier.cluster.wait;",
			`barrier (ofcluster waits) "barrier.cluster.wait" {orders}`},
		{"membar.sys;", `fence (insystem) "membar.sys" {orders}`},
		{"ld.volatile.global.u32 %r1, [%rd1];",
			`v0 = load:u32 (volatile) "ld.volatile.global.u32" r global[v1+0]*4 {orders}`},
		{"red.relaxed.sys.global.max.u32 [%rd1], %r1;",
			`atomic:u32 (greatest relaxed insystem) "red.relaxed.sys.global.max.u32" v0 rw global[v1+0]*4 {orders}`},
		{"discard.global.L2 [%rd1], 128;",
			`other "discard.global.L2" 128 w global[v0+0]*128 {anywrite}`},
		{"cp.async.ca.shared.global [%r1], [%rd1], 8;",
			`copy "cp.async.ca.shared.global" 8 w shared[v0+0]*8 later r global[v1+0]*8 later {orders}`},
		{"tex.2d.v2.f16x2.f32 {%r1,%r2}, [%rd1, {%r1,%r2}];",
			`v0, v1 = other:h32 (textures) "tex.2d.v2.f16x2.f32" v0, v1 r generic[v2+0]*0 {anyread}`},
		{"frobnicate.u32 %r1;",
			`v0 = other "frobnicate.u32" v0 {orders anyread anywrite}`},
	} {
		m := parse(t, "i.ptx",
			[]byte(header+".entry k() { .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;\n"+x.text+"\n}\n"))
		f := Module(m).Funcs[0]
		if f.Err != nil {
			t.Errorf("%s: %v", x.text, f.Err)
			continue
		}
		_, got, _ := strings.Cut(string(ir.Format(f, false)), "b0:\n  ")
		got, _, _ = strings.Cut(got, " at 5\n")
		if got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", x.text, got, x.want)
		}
	}
}
