package summarise

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/footprint"
)

// Statements that change registers again, in loops and under conditions, loops that are left from within, with steps of
// any sign, shifts by any number, and fields.

// old is a register that may be changed again; -1: none was found.
func (g *generator) old() int {
	for range 8 {
		if d := g.any(); d >= regFirst {
			return d
		}
	}
	return -1
}

func (g *generator) target() int {
	if g.r.IntN(2) == 0 {
		if d := g.old(); d >= 0 {
			return d
		}
	}
	return g.fresh()
}

var wildConsts = [...]uint32{0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64, 100, 1 << 30, 1 << 31, 1<<31 - 1, 0xfffffff0,
	^uint32(0), ^uint32(0) - 1, ^uint32(0) - 3}

func (g *generator) operandB(s *stmt) {
	s.b = g.any()
	if g.r.IntN(2) == 0 {
		s.isConst, s.k = true, wildConsts[g.r.IntN(len(wildConsts))]
	}
}

func (g *generator) wildly(depth int) []stmt {
	scoped := func(loops int) []stmt {
		known, was := len(g.known), g.loops
		g.loops += loops
		list := g.block(depth - 1)
		g.known, g.loops = g.known[:known], was
		return list
	}
	rel := rels[g.r.IntN(len(rels))]
	if g.r.IntN(20) == 0 { // a search, or what looks like one
		s := stmt{op: "search", a: g.any(), b: g.any(), rel: rel, w: g.r.IntN(4), while: g.r.IntN(2) == 0,
			not: g.r.IntN(6) == 0, store: g.r.IntN(2) == 0}
		s.x = [...]int{1, 1, 1, 1, 0, 2}[g.r.IntN(6)] // what the lower end is above the middle
		s.y = [...]int{0, 0, 0, 0, 1, -1}[g.r.IntN(6)]
		s.k = [...]uint32{0, 0, 0, 1, 2}[g.r.IntN(5)] // which test
		s.isConst = g.r.IntN(3) > 0                   // it begins with 0
		s.mask = g.r.Uint32N(2)
		s.d = g.fresh()
		g.fresh()
		g.fresh()
		g.fresh()
		g.known = g.known[:len(g.known)-3]
		return []stmt{s}
	}
	switch k := g.r.IntN(20); {
	case k < 4: // change one again
		s := g.arith()
		g.known = g.known[:len(g.known)-1]
		if d := g.old(); d >= 0 {
			s.d = d
			return []stmt{s}
		}
		g.known = append(g.known, s.d)
		return []stmt{s}
	case k < 5:
		s := stmt{op: "mov", a: g.any()}
		s.d = g.target()
		return []stmt{s}
	case k < 8:
		s := stmt{op: []string{"shlr", "shrur", "shrsr", "mulhis", "abs", "popc", "clz", "field", "insert",
			"narrow"}[g.r.IntN(10)], a: g.any(), x: g.r.IntN(32), y: g.r.IntN(2)}
		g.operandB(&s)
		switch s.op {
		case "field", "insert":
			s.isConst = s.op == "field"
			s.k = uint32(1 + g.r.IntN(32-s.x))
		case "narrow":
			s.x = g.r.IntN(4)
		case "shlr", "shrur", "shrsr":
			if s.isConst {
				s.k = uint32(g.r.IntN(40))
			}
		}
		s.d = g.target()
		return []stmt{s}
	case k < 10:
		s := stmt{op: "sets", a: g.any(), rel: rel, x: g.any(), y: g.any()}
		g.operandB(&s)
		s.d = g.target()
		return []stmt{s}
	case k < 12:
		s := stmt{op: "at", a: g.any(), b: g.r.IntN(2), x: g.r.IntN(3), store: g.r.IntN(2) == 0}
		return []stmt{s}
	case k < 14 && g.loops > 0:
		s := stmt{op: []string{"leave", "again", "leave", "again", "quit"}[g.r.IntN(5)], a: g.any(), rel: rel}
		g.operandB(&s)
		return []stmt{s}
	case k < 14:
		if g.r.IntN(4) > 0 {
			return nil
		}
		s := stmt{op: "quit", a: g.any(), rel: rel}
		g.operandB(&s)
		return []stmt{s}
	case k < 17 && depth > 0:
		s := stmt{op: "else", a: g.any(), rel: rel}
		g.operandB(&s)
		s.body = scoped(0)
		s.other = scoped(0)
		return []stmt{s}
	case depth > 0:
		// d goes from a by steps; the test is a comparison with b of d, or of anything.
		s := stmt{op: "rounds", rel: rel, a: g.any(), while: g.r.IntN(2) == 0}
		g.operandB(&s)
		s.d = g.fresh()
		s.x = -1
		if g.r.IntN(4) == 0 {
			s.x = g.any()
		}
		steps := [...]uint32{1, 1, 2, 3, ^uint32(0), ^uint32(0), ^uint32(0) - 2, 0, 7}
		s.w = int(int32(steps[g.r.IntN(len(steps))]))
		s.body = scoped(1)
		return []stmt{s}
	}
	return nil
}

func (t *text) wild(s *stmt, b string) {
	switch s.op {
	case "mov":
		t.line("mov.u32 %%r%d, %%r%d", s.d, s.a)
	case "shlr":
		t.line("shl.b32 %%r%d, %%r%d, %s", s.d, s.a, b)
	case "shrur":
		t.line("shr.u32 %%r%d, %%r%d, %s", s.d, s.a, b)
	case "shrsr":
		t.line("shr.s32 %%r%d, %%r%d, %s", s.d, s.a, b)
	case "mulhis":
		t.line("mul.hi.s32 %%r%d, %%r%d, %s", s.d, s.a, b)
	case "abs":
		t.line("abs.s32 %%r%d, %%r%d", s.d, s.a)
	case "popc", "clz":
		t.line("%s.b32 %%r%d, %%r%d", s.op, s.d, s.a)
	case "field":
		t.line("bfe.%s32 %%r%d, %%r%d, %d, %d", []string{"u", "s"}[s.y], s.d, s.a, s.x, s.k)
	case "insert":
		t.line("bfi.b32 %%r%d, %%r%d, %%r%d, %d, %d", s.d, s.a, s.b, s.x, s.k)
	case "narrow":
		t.line("cvt.%s %%r%d, %%r%d", []string{"s32.s8", "u32.u8", "s32.s16", "u32.u16"}[s.x], s.d, s.a)
	case "sets":
		t.line("setp.%s %%p1, %%r%d, %s", s.rel, s.a, b)
		t.line("selp.b32 %%r%d, %%r%d, %%r%d, %%p1", s.d, s.x, s.y)
	case "at":
		switch s.x {
		case 0:
			t.line("mul.wide.u32 %%rd3, %%r%d, 4", s.a)
		case 1:
			t.line("cvt.s64.s32 %%rd3, %%r%d", s.a)
			t.line("shl.b64 %%rd3, %%rd3, 2")
		default:
			t.line("shl.b32 %%r%d, %%r%d, 2", t.scratch, s.a)
			t.line("cvt.u64.u32 %%rd3, %%r%d", t.scratch)
		}
		t.line("add.s64 %%rd4, %%rd%d, %%rd3", 1+s.b)
		if s.store {
			t.line("st.global.u32 [%%rd4], %%r%d", regN)
		} else {
			t.line("ld.global.u32 %%r0, [%%rd4]")
		}
	case "leave", "again", "quit":
		t.line("setp.%s %%p1, %%r%d, %s", s.rel, s.a, b)
		if s.op == "quit" {
			t.line("@%%p1 ret")
			return
		}
		top := t.around[len(t.around)-1]
		if s.op == "again" {
			top++
		} else {
			top += 2
		}
		t.line("@%%p1 bra L%d", top)
	case "search":
		t.labels += 2
		top, end := t.labels-1, t.labels
		p, q, m, x := s.d, s.d+1, s.d+2, s.d+3
		test := func(to string, out bool) {
			less, l := []string{"lt.s32", "le.s32", "gt.s32"}[s.k], fmt.Sprintf("%%r%d, %%r%d", p, q)
			if s.k == 2 {
				t.line("sub.s32 %%r%d, %%r%d, %%r%d", x, q, p)
				l = fmt.Sprintf("%%r%d, 1", x)
			}
			not := ""
			if out {
				not = "!"
			}
			t.line("setp.%s %%p1, %s", less, l)
			t.line("@%s%%p1 bra %s", not, to)
		}
		t.line("mov.u32 %%r%d, %%r%d", p, s.a)
		if s.isConst {
			t.line("mov.u32 %%r%d, 0", p)
		}
		t.line("mov.u32 %%r%d, %%r%d", q, s.b)
		if !s.while && !s.not {
			test(fmt.Sprintf("L%d", end), true)
		}
		fmt.Fprintf(t, "L%d:\n", top)
		if s.while {
			test(fmt.Sprintf("L%d", end), true)
		}
		switch s.w {
		case 0, 1:
			t.line("add.s32 %%r%d, %%r%d, %%r%d", m, p, q)
			if s.w == 0 {
				t.line("shr.u32 %%r%d, %%r%d, 31", x, m)
				t.line("add.s32 %%r%d, %%r%d, %%r%d", m, m, x)
				t.line("shr.s32 %%r%d, %%r%d, 1", m, m)
			} else {
				t.line("shr.u32 %%r%d, %%r%d, 1", m, m)
			}
		default:
			t.line("sub.s32 %%r%d, %%r%d, %%r%d", x, q, p)
			if s.w == 2 {
				t.line("shr.s32 %%r%d, %%r%d, 1", x, x)
			} else {
				t.line("div.s32 %%r%d, %%r%d, 2", x, x)
			}
			t.line("add.s32 %%r%d, %%r%d, %%r%d", m, p, x)
		}
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", m)
		t.line("add.s64 %%rd4, %%rd1, %%rd3")
		t.line("ld.global.u32 %%r0, [%%rd4]")
		t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, m, regM)
		t.line("add.s32 %%r%d, %%r%d, %d", x, m, s.x)
		t.line("selp.b32 %%r%d, %%r%d, %%r%d, %%p1", p, x, p)
		t.line("add.s32 %%r%d, %%r%d, %d", x, m, s.y)
		t.line("selp.b32 %%r%d, %%r%d, %%r%d, %%p1", q, q, x)
		if s.while {
			t.line("bra L%d", top)
		} else {
			test(fmt.Sprintf("L%d", top), false)
		}
		fmt.Fprintf(t, "L%d:\n", end)
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", p)
		t.line("add.s64 %%rd4, %%rd%d, %%rd3", 1+s.mask)
		if s.store {
			t.line("st.global.u32 [%%rd4], %%r%d", regN)
		} else {
			t.line("ld.global.u32 %%r0, [%%rd4]")
		}
	case "else":
		t.labels += 2
		no, end := t.labels-1, t.labels
		t.line("setp.%s %%p1, %%r%d, %s", s.rel, s.a, b)
		t.line("@!%%p1 bra L%d", no)
		t.block(s.body)
		t.line("bra L%d", end)
		fmt.Fprintf(t, "L%d:\n", no)
		t.block(s.other)
		fmt.Fprintf(t, "L%d:\n", end)
	case "rounds":
		top := t.labels + 1
		t.labels += 3
		t.line("mov.u32 %%r%d, %%r%d", s.d, s.a)
		fmt.Fprintf(t, "L%d:\n", top)
		x := s.d
		if s.x >= 0 {
			x = s.x
		}
		if s.while {
			t.line("setp.%s %%p1, %%r%d, %s", s.rel, x, b)
			t.line("@!%%p1 bra L%d", top+2)
		}
		t.around = append(t.around, top)
		t.block(s.body)
		t.around = t.around[:len(t.around)-1]
		fmt.Fprintf(t, "L%d:\n", top+1)
		t.line("add.s32 %%r%d, %%r%d, %d", s.d, s.d, s.w)
		if s.while {
			t.line("bra L%d", top)
		} else {
			t.line("setp.%s %%p1, %%r%d, %s", s.rel, x, b)
			t.line("@%%p1 bra L%d", top)
		}
		fmt.Fprintf(t, "L%d:\n", top+2)
	}
}

func (x *lane) wild(s *stmt, a, b uint32) bool {
	switch s.op {
	case "mov":
		x.regs[s.d] = a
	case "shlr":
		x.regs[s.d] = 0
		if b < 32 {
			x.regs[s.d] = a << b
		}
	case "shrur":
		x.regs[s.d] = 0
		if b < 32 {
			x.regs[s.d] = a >> b
		}
	case "shrsr":
		x.regs[s.d] = uint32(int32(a) >> min(b, 31))
	case "mulhis":
		x.regs[s.d] = uint32(int64(int32(a)) * int64(int32(b)) >> 32)
	case "abs":
		if int32(a) < 0 {
			a = -a
		}
		x.regs[s.d] = a
	case "popc":
		x.regs[s.d] = uint32(bits.OnesCount32(a))
	case "clz":
		x.regs[s.d] = uint32(bits.LeadingZeros32(a))
	case "field":
		v := a << (32 - uint32(s.x) - s.k)
		if s.y == 0 {
			x.regs[s.d] = v >> (32 - s.k)
		} else {
			x.regs[s.d] = uint32(int32(v) >> (32 - s.k))
		}
	case "insert":
		m := uint32((uint64(1)<<s.k - 1) << s.x)
		x.regs[s.d] = a<<s.x&m | x.regs[s.b]&^m
	case "narrow":
		x.regs[s.d] = [...]uint32{uint32(int32(int8(a))), uint32(uint8(a)),
			uint32(int32(int16(a))), uint32(uint16(a))}[s.x]
	case "sets":
		v := x.regs[s.y]
		if holds(s.rel, a, b) {
			v = x.regs[s.x]
		}
		x.regs[s.d] = v
	case "at":
		base := x.base[s.b]
		at := base + uint64(a)*4
		if s.x == 1 {
			at = base + uint64(int64(int32(a)))*4
		} else if s.x == 2 {
			at = base + uint64(a<<2)
		}
		x.at(at, s.store)
	case "leave", "again", "quit":
		if holds(s.rel, a, b) {
			x.jump = s.op
		}
	case "search":
		p, q := int32(a), int32(b)
		if s.isConst {
			p, q = 0, int32(x.regs[s.b])
		}
		less := func() bool {
			return s.k == 0 && p < q || s.k == 1 && p <= q || s.k == 2 && q-p > 1
		}
		for first := true; first && !s.while && s.not || less(); first = false {
			var m int32
			switch s.w {
			case 0:
				m = (p + q) / 2
			case 1:
				m = int32(uint32(p+q) >> 1)
			case 2:
				m = p + (q-p)>>1
			default:
				m = p + (q-p)/2
			}
			x.touch(0, uint32(m), false)
			if holds(s.rel, uint32(m), x.regs[regM]) {
				p = m + int32(s.x)
			} else {
				q = m + int32(s.y)
			}
			if x.steps++; x.steps > maxSteps {
				return false
			}
		}
		x.regs[s.d] = uint32(p)
		x.touch(int(s.mask), uint32(p), s.store)
	case "else":
		if holds(s.rel, a, b) {
			return x.do(s.body)
		}
		return x.do(s.other)
	case "rounds":
		x.regs[s.d] = a
		for first := true; ; first = false {
			v, b := x.regs[s.d], s.k
			if s.x >= 0 {
				v = x.regs[s.x]
			}
			if !s.isConst {
				b = x.regs[s.b]
			}
			if (s.while || !first) && !holds(s.rel, v, b) {
				return true
			}
			if !x.do(s.body) {
				return false
			}
			switch x.jump {
			case "quit":
				return true
			case "leave":
				x.jump = ""
				return true
			case "again":
				x.jump = ""
			}
			x.regs[s.d] += uint32(s.w)
			if x.steps++; x.steps > maxSteps {
				return false
			}
		}
	}
	return true
}

// wildRun judges a kernel at one launch; what is wrong, and its text.
func wildRun(t *testing.T, list []stmt, regs int, seed uint64, counts map[footprint.Verdict]int) (bad, src string) {
	src = kernelText(list, regs)
	if len(src) > 12000 {
		return "", src
	}
	s := summarised(t, fmt.Sprintf("seed %d", seed), src)
	r := rand.New(rand.NewPCG(seed, 12))
	var in, without footprint.Instance
	for range 6 {
		l, x := randomLaunch(r, list, regs)
		if x == nil {
			continue
		}
		plain := *l
		plain.Known = nil
		s.Evaluate(&plain, &without)
		s.Evaluate(l, &in)
		counts[without.Verdict]++
		bad := disagrees(&without, x)
		if bad == "" {
			if bad = disagrees(&in, x); bad != "" {
				bad = "with what is known, " + bad
			}
		}
		if bad != "" {
			var why strings.Builder
			s.Explain(l, &why)
			return fmt.Sprintf("%s\ngrid %v block %v params %x", bad, l.Grid, l.Block, l.Params),
				src + "\n" + why.String()
		}
	}
	return "", src
}

// smaller tries to leave statements out as long as a kernel stays wrong.
func smaller(list []stmt, wrong func([]stmt) bool) []stmt {
	var walk func(get func() []stmt, set func([]stmt))
	root := list
	walk = func(get func() []stmt, set func([]stmt)) {
		for i := 0; i < len(get()); {
			old := get()
			cut := append(append([]stmt{}, old[:i]...), old[i+1:]...)
			if set(cut); wrong(root) {
				continue
			}
			if b := old[i].body; len(b) > 0 && old[i].op != "rounds" && old[i].op != "loop" && old[i].op != "late" {
				in := append(append(append([]stmt{}, old[:i]...), b...), old[i+1:]...)
				if set(in); wrong(root) {
					continue
				}
			}
			set(append([]stmt{}, old...))
			cur := get()
			walk(func() []stmt { return cur[i].body }, func(x []stmt) { cur[i].body = x })
			walk(func() []stmt { return cur[i].other }, func(x []stmt) { cur[i].other = x })
			i++
		}
	}
	walk(func() []stmt { return root }, func(x []stmt) { root = x })
	return root
}

func TestRandomWild(t *testing.T) {
	first, n := uint64(0), uint64(150)
	if testing.Short() {
		n = 80
	}
	counts, none := map[footprint.Verdict]int{}, map[footprint.Verdict]int{}
	for seed := first; seed < first+n; seed++ {
		r := rand.New(rand.NewPCG(seed, 11))
		g := &generator{r: r, regs: regFirst,
			known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}, wild: true}
		list := g.block(1 + r.IntN(2))
		bad, _ := wildRun(t, list, g.regs, seed, counts)
		if bad == "" {
			continue
		}
		list = smaller(list, func(l []stmt) bool { b, _ := wildRun(t, l, g.regs, seed, none); return b != "" })
		bad, src := wildRun(t, list, g.regs, seed, none)
		t.Errorf("seed %d: %s\n%s", seed, bad, src)
	}
	t.Logf("%v", counts)
	if uint64(counts[footprint.Idempotent]) < n/3 || uint64(counts[footprint.NotIdempotent]) < n/8 {
		t.Errorf("%v: the test has become weak", counts)
	}
}
