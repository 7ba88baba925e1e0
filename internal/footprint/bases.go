package footprint

import (
	"slices"

	"holdfast/internal/footprint/form"
)

// A keyWord is 8 bytes of the parameters at a multiple of 8: those of mask say what a launch does.
type keyWord struct {
	off  int32
	mask uint64
}

// maxKey bounds the bytes of parameters on which a launch that is remembered may depend.
const maxKey = 1 << 13

// A base is a pointer in the parameters of which nothing depends but where accesses lie: it is added to what they are
// made from, and used in no other way. If all bases of two launches lie so that the same ranges meet, and everything
// else in the parameters is the same, then one launch is the other one moved (recent.go).

// movable finds the bases of a program and of the path that witnesses are looked for on, and what else of the
// parameters either depends on. It returns the bases of the path's operations, if launches can be remembered.
func (b *planner) movable(way *Path) []int32 {
	f := &flow{p: b.p, way: way, at: map[int32]int32{}}
	if !f.parameters() {
		return nil
	}
	for f.again = true; f.again; {
		f.again = false
		f.run()
	}
	index := make([]int32, len(f.offs)+1) // 1 + its number among those that are bases
	for i, off := range f.offs {
		if f.ok[i] {
			b.bases = append(b.bases, off)
			index[i+1] = int32(len(b.bases))
			for j := range 8 {
				f.used[int(off)+j] = false
			}
		}
	}
	for i := range b.p.Accs {
		b.baseOf = append(b.baseOf, index[f.regs[b.p.Forms[b.p.Accs[i].Form].C]])
	}
	for i, k := range f.ways {
		f.ways[i] = index[k]
	}
	for at := 0; at < len(f.used); at += 8 {
		w := keyWord{off: int32(at)}
		for j := range 8 {
			if f.used[at+j] {
				w.mask |= 0xff << (8 * j)
			}
		}
		if w.mask != 0 {
			b.key = append(b.key, w)
		}
	}
	b.least = int32(f.least)
	b.repeats = true
	return f.ways
}

// A flow follows pointers from the parameters to where they are used. What is followed is 0: no pointer; else 1 + the
// number of the one that it is the sum of, and something else.
type flow struct {
	p     *Program
	way   *Path
	offs  []int32 // of parameters of 64 bits
	at    map[int32]int32
	ok    []bool // they may be bases
	again bool
	regs  []int32
	ways  []int32 // of operations of the path
	used  []bool  // bytes
	least int     // bytes that there must be
}

// parameters lists the pointers that may be bases: nothing else reads some of their bytes. False if that is too much.
func (f *flow) parameters() bool {
	type read struct{ off, n int64 }
	var reads []read
	for _, ops := range [...][]Instr{f.p.Ops, f.way.Ops} {
		for _, in := range ops {
			if in.Op == form.OpParam {
				reads = append(reads, read{in.Imm, max(1, int64(in.W/8))})
			}
		}
	}
	for _, v := range f.p.Vars {
		if v.Kind == form.KindParam {
			t := paramTable(v.Imm)
			reads = append(reads, read{t.lo(), t.hi() - t.lo()})
		}
	}
	for _, r := range reads {
		if r.off < 0 || r.n < 0 || r.off > maxKey || r.n > maxKey || r.off+r.n > maxKey {
			return false
		}
		f.least = max(f.least, int(r.off+r.n))
	}
	f.used = make([]bool, (f.least+7)/8*8)
	for _, r := range reads {
		for i := r.off; i < r.off+r.n; i++ {
			f.used[i] = true
		}
	}
	for _, r := range reads {
		if _, ok := f.at[int32(r.off)]; r.n == 8 && !ok {
			f.at[int32(r.off)] = int32(len(f.offs))
			f.offs = append(f.offs, int32(r.off))
		}
	}
	f.ok = slices.Repeat([]bool{true}, len(f.offs))
	cover := make([]int32, len(f.used)) // 1 + the parameter that a byte is of
	for i, off := range f.offs {
		for j := range int32(8) {
			if c := cover[off+j]; c != 0 {
				f.ok[i], f.ok[c-1] = false, false
			}
			cover[off+j] = int32(i) + 1
		}
	}
	for _, r := range reads {
		for i := r.off; i < r.off+r.n; i++ {
			if c := cover[i]; c != 0 && (r.n != 8 || int64(f.offs[c-1]) != r.off) {
				f.ok[c-1] = false
			}
		}
	}
	for _, v := range f.p.Vars {
		if v.Kind != form.KindParam {
			continue
		}
		for i := paramTable(v.Imm).lo(); i < paramTable(v.Imm).hi(); i++ {
			if c := cover[i]; c != 0 {
				f.ok[c-1] = false
			}
		}
	}
	return true
}

// not says that something else depends on what is followed.
func (f *flow) not(list ...int32) {
	for _, k := range list {
		if k != 0 && f.ok[k-1] {
			f.ok[k-1] = false
			f.again = true
		}
	}
}

// run follows all pointers that may still be bases.
func (f *flow) run() {
	p := f.p
	f.regs = f.values(f.regs[:0], p.Ops, 0)
	f.ways = f.values(f.ways[:0], f.way.Ops, 1)
	reg := func(r int32) int32 { return f.regs[r] }
	number := func(form int32) { f.not(reg(p.Forms[form].C)) } // a form that is not an address
	conditions := func(list []int32) {
		for _, c := range list {
			f.not(reg(c >> 1))
		}
	}
	for _, t := range p.Terms {
		f.not(reg(t.Coef))
	}
	for i := range p.Args {
		a := &p.Args[i]
		number(a.Form)
		conditions(p.Lists[a.C0:a.C1])
	}
	for i := range p.Checks {
		number(p.Checks[i].Form)
	}
	for i := range p.Guards {
		g := &p.Guards[i]
		number(g.Form)
		if g.Rest != 0 {
			number(g.Rest - 1)
		}
		if g.Need != 0 {
			number(g.Need - 1)
		}
		if g.Wrap != 0 {
			f.not(reg(g.Top))
		}
	}
	for i := range p.Exits {
		x := &p.Exits[i]
		number(x.Form)
		number(x.Rest)
		f.not(reg(x.Step))
		if x.Wrap != 0 {
			f.not(reg(x.Top))
		}
	}
	for i := range p.Congs {
		number(p.Congs[i].Form)
		f.not(reg(p.Congs[i].R))
	}
	for i := range p.Ctxs {
		conditions(p.Lists[p.Ctxs[i].C0:p.Ctxs[i].C1])
	}
	for i := range f.way.Blocks {
		if c := f.way.Blocks[i].Cond; c > 0 {
			f.not(f.ways[c])
		}
	}
	for i := range f.way.Items {
		f.not(f.ways[f.way.Items[i].Guard])
	}
}

// values follows pointers through operations; those before first are none.
func (f *flow) values(to []int32, ops []Instr, first int) []int32 {
	for i := range ops {
		in := &ops[i]
		var a, b, c int32
		if n := in.Op.Arity(); i >= max(first, 1) {
			if n > 0 {
				a = to[in.A]
			}
			if n > 1 {
				b = to[in.B]
			}
			if n > 2 {
				c = to[in.C]
			}
		}
		k := int32(0)
		switch {
		case in.Op == form.OpParam && in.W == 64:
			if j := f.at[int32(in.Imm)]; f.ok[j] {
				k = j + 1
			}
		case in.Op == form.OpAdd && in.W == 64 && (a == 0 || b == 0):
			k = a + b
		case in.Op == form.OpSub && in.W == 64 && b == 0:
			k = a
		case in.Op == form.OpSelect && in.W == 64 && a == 0 && b == c:
			k = b
		case in.Op == form.OpHalving || in.Op == form.OpDrift: // it begins as a, and nobody knows how it goes on
			k = a
		default:
			f.not(a, b, c)
		}
		to = append(to, k)
	}
	return to
}
