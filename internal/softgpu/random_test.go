package softgpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Random structured programs with divergent branches and loops: what the
// executor makes of them, a thread at a time, against an interpreter that
// knows no warps, registers shared by liveness, nor reconvergence.

const numVars = 10

type randomProgram struct {
	r      *rand.Rand
	src    strings.Builder
	labels int
	temps  int
}

// A step changes the variables of one thread.
type step func(v *[numVars]uint32)

// statements makes n statements: their PTX goes to p.src.
func (p *randomProgram) statements(n, depth int) step {
	var steps []step
	for range n {
		steps = append(steps, p.statement(depth))
	}
	return func(v *[numVars]uint32) {
		for _, s := range steps {
			s(v)
		}
	}
}

func (p *randomProgram) statement(depth int) step {
	d, a, b := p.r.IntN(numVars), p.r.IntN(numVars), p.r.IntN(numVars)
	k := p.r.Uint32()
	kind := p.r.IntN(10)
	if depth == 0 {
		kind %= 6
	}
	emit := func(format string, args ...any) { fmt.Fprintf(&p.src, "\t"+format+"\n", args...) }
	p.temps += 2
	t := p.temps
	switch kind {
	case 0, 1:
		emit("add.u32 %%t%d, %%v%d, %%v%d;", t, a, b)
		emit("xor.b32 %%v%d, %%t%d, %d;", d, t, k)
		return func(v *[numVars]uint32) { v[d] = (v[a] + v[b]) ^ k }
	case 2:
		emit("mul.lo.u32 %%t%d, %%v%d, %d;", t, a, k|1)
		emit("shr.u32 %%t%d, %%t%d, 7;", t+1, t)
		emit("sub.u32 %%v%d, %%t%d, %%v%d;", d, t+1, b)
		return func(v *[numVars]uint32) { v[d] = v[a]*(k|1)>>7 - v[b] }
	case 3:
		emit("setp.lt.u32 %%p%d, %%v%d, %%v%d;", t, a, b)
		emit("@%%p%d add.u32 %%v%d, %%v%d, %d;", t, d, d, k)
		return func(v *[numVars]uint32) {
			if v[a] < v[b] {
				v[d] += k
			}
		}
	case 4:
		emit("mul.wide.u32 %%w%d, %%v%d, %%v%d;", t, a, b)
		emit("mov.b64 {%%t%d, %%t%d}, %%w%d;", t, t+1, t)
		emit("add.u32 %%v%d, %%t%d, %%t%d;", d, t, t+1)
		return func(v *[numVars]uint32) { x := uint64(v[a]) * uint64(v[b]); v[d] = uint32(x) + uint32(x>>32) }
	case 5:
		emit("setp.ge.s32 %%p%d|%%p%d, %%v%d, %%v%d;", t, t+1, a, b)
		emit("selp.u32 %%v%d, %%v%d, %d, %%p%d;", d, a, k, t+1)
		return func(v *[numVars]uint32) {
			if int32(v[a]) < int32(v[b]) {
				v[d] = v[a]
			} else {
				v[d] = k
			}
		}
	case 6, 7: // if, else
		p.labels++
		l := p.labels
		m := uint32(1) << p.r.IntN(5)
		emit("and.b32 %%t%d, %%v%d, %d;", t, a, m)
		emit("setp.eq.u32 %%p%d, %%t%d, 0;", t, t)
		emit("@%%p%d bra ELSE%d;", t, l)
		yes := p.statements(1+p.r.IntN(3), depth-1)
		emit("bra END%d;", l)
		fmt.Fprintf(&p.src, "ELSE%d:\n", l)
		no := p.statements(1+p.r.IntN(3), depth-1)
		fmt.Fprintf(&p.src, "END%d:\n", l)
		return func(v *[numVars]uint32) {
			if v[a]&m != 0 {
				yes(v)
			} else {
				no(v)
			}
		}
	case 8: // a loop, each thread its own number of times, with a way out in the middle
		p.labels++
		l := p.labels
		emit("and.b32 %%c%d, %%v%d, 7;", t, a)
		fmt.Fprintf(&p.src, "LOOP%d:\n", l)
		emit("setp.eq.u32 %%p%d, %%c%d, 0;", t, t)
		emit("@%%p%d bra OUT%d;", t, l)
		emit("sub.u32 %%c%d, %%c%d, 1;", t, t)
		first := p.statements(1+p.r.IntN(2), depth-1)
		emit("setp.gt.u32 %%p%d, %%v%d, %d;", t+1, b, 0xf0000000)
		emit("@%%p%d bra OUT%d;", t+1, l)
		second := p.statements(1+p.r.IntN(2), depth-1)
		emit("bra LOOP%d;", l)
		fmt.Fprintf(&p.src, "OUT%d:\n", l)
		return func(v *[numVars]uint32) {
			for n := v[a] & 7; n > 0; n-- {
				first(v)
				if v[b] > 0xf0000000 {
					break
				}
				second(v)
			}
		}
	}
	// A barrier that all threads reach only at the outermost level is not
	// here; a vote of whoever came along must not change anything.
	emit("activemask.b32 %%t%d;", t)
	emit("and.b32 %%t%d, %%t%d, 0;", t+1, t)
	emit("add.u32 %%v%d, %%v%d, %%t%d;", d, a, t+1)
	return func(v *[numVars]uint32) { v[d] = v[a] }
}

func TestRandomPrograms(t *testing.T) {
	const n = 96
	r := rand.New(rand.NewPCG(7, 8))
	for round := range 60 {
		p := &randomProgram{r: r}
		run := p.statements(10, 4)
		var src strings.Builder
		fmt.Fprintf(&src, "%s.visible .entry k(.param .u64 p)\n{\n\t.reg .b32 %%v<%d>;\n\t.reg .b32 %%t<%d>;\n"+
			"\t.reg .b32 %%c<%d>;\n\t.reg .b64 %%w<%d>;\n\t.reg .pred %%p<%d>;\n\t.reg .b64 %%rd<4>;\n"+
			"\t.reg .b32 %%r<4>;\n", header, numVars, p.temps+9, p.temps+9, p.temps+9, p.temps+9)
		fmt.Fprintf(&src, "\tld.param.u64 %%rd1, [p];\n\tmov.u32 %%r1, %%tid.x;\n\tmul.wide.u32 %%rd2, %%r1, %d;\n"+
			"\tadd.u64 %%rd3, %%rd1, %%rd2;\n", 4*numVars)
		for i := range numVars {
			fmt.Fprintf(&src, "\tld.global.u32 %%v%d, [%%rd3+%d];\n", i, 4*i)
		}
		src.WriteString(p.src.String())
		for i := range numVars {
			fmt.Fprintf(&src, "\tst.global.u32 [%%rd3+%d], %%v%d;\n", 4*i, i)
		}
		src.WriteString("\tret;\n}\n")
		d := newDevice(t, 2)
		in := d.load(src.String())
		xs := make([][numVars]uint32, n)
		for i := range xs {
			for k := range xs[i] {
				xs[i][k] = r.Uint32()
			}
		}
		q := upload(d, xs)
		d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(n), Params: params(q)})
		got := slices.Clone(view[[numVars]uint32](d, q, n))
		for i := range xs {
			run(&xs[i])
			if got[i] != xs[i] {
				t.Fatalf("round %d thread %d: %x, want %x\n%s", round, i, got[i], xs[i], src.String())
			}
		}
		d.space.Close()
	}
}

// Registers that do not live at once share places.
func TestRegistersAreShared(t *testing.T) {
	var b strings.Builder
	b.WriteString(header + ".visible .entry k(.param .u64 p)\n{\n\t.reg .b32 %r<2000>;\n\t.reg .b64 %rd<2>;\n" +
		"\tld.param.u64 %rd1, [p];\n\tmov.u32 %r0, %tid.x;\n")
	for i := range 1999 {
		fmt.Fprintf(&b, "\tadd.u32 %%r%d, %%r%d, %d;\n", i+1, i, i)
	}
	b.WriteString("\tst.global.u32 [%rd1], %r1999;\n\tret;\n}\n")
	d := newDevice(t, 2)
	in := d.load(b.String())
	if k := in.mod.Kernels()[0]; k.NumRegs > 10 {
		t.Errorf("%d registers", k.NumRegs)
	}
	p := upload(d, []uint32{0})
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p)})
	if got := view[uint32](d, p, 1)[0]; got != 1998*1999/2 {
		t.Errorf("sum %d", got)
	}
}
