package summarise

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/footprint"
)

// Random kernels are written down twice: as PTX, for Summarise, and as statements of a language of
// 32-bit registers that the test itself executes, thread by thread. What the threads touch must be in
// the footprint, and a verdict must agree.

type stmt struct {
	// An instruction, or "ld", "st", "rows" (a loop that a compiler has unrolled), "table" (a load whose value is used;
	// with rel, only if that holds), "if" (skips what follows unless a rel b), "loop"
	op      string
	d, a, b int // registers
	k       uint32
	isConst bool
	rel     string
	body    []stmt
	other   []stmt // of else
	while   bool   // of loop: tested before the first iteration; of late: counts down twice; of pick: a write
	x, y    int    // of pick: the address if a rel b, and if not
	not     bool   // of pick: it is made if not a rel b

	w     int    // of statements of random_local_test.go: bytes
	mask  uint32 // of those at a place that is computed
	store bool
}

const (
	regTid = iota
	regTidY
	regCta
	regNtid
	regN // a parameter
	regM // a parameter that is not 0
	regFirst
)

// A generator makes statements. Registers that an inner block defines are not used behind it.
type generator struct {
	r     *rand.Rand
	regs  int
	known []int

	variables       bool // reads of a variable of the module
	memory, dynamic bool // statements of random_local_test.go
	wild            bool // statements of random_wild_test.go
	loops           int  // around the statement in hand
}

func (g *generator) any() int { return g.known[g.r.IntN(len(g.known))] }

func (g *generator) fresh() int {
	g.known = append(g.known, g.regs)
	g.regs++
	return g.regs - 1
}

func (g *generator) arith() stmt {
	ops := []string{"add", "add", "add", "sub", "mul", "shl", "shru", "shrs", "and", "or", "xor", "minu", "mins",
		"maxu", "maxs", "remu", "divu", "rems", "divs", "sel", "neg", "not", "mulhi"}
	s := stmt{op: ops[g.r.IntN(len(ops))], a: g.any(), b: g.any()}
	if g.r.IntN(3) > 0 {
		s.isConst = true
		s.k = [...]uint32{1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 64, 0xfffffff0, ^uint32(0)}[g.r.IntN(14)]
	}
	switch s.op {
	case "shl", "shru", "shrs":
		s.isConst, s.k = true, uint32(1+g.r.IntN(5))
	case "remu", "divu", "rems", "divs":
		s.isConst, s.k = true, uint32(1+g.r.IntN(12))
		if g.r.IntN(4) == 0 {
			s.isConst, s.b = false, regM
		}
	case "mulhi":
		s.isConst, s.k = true, [...]uint32{715827883, 0xaaaaaaab, 0x55555556, 0xcccccccd}[g.r.IntN(4)]
	case "sel":
		s.rel = rels[g.r.IntN(len(rels))]
		s.isConst = false
	}
	s.d = g.fresh()
	return s
}

// idiom makes statements that compilers write together, of which the analysis sees what they are.
func (g *generator) idiom() []stmt {
	x := g.any()
	step := func(op string, a int, k uint32) stmt { return stmt{op: op, d: g.fresh(), a: a, isConst: true, k: k} }
	m := uint32(2 + g.r.IntN(11))
	switch g.r.IntN(6) {
	case 4: // a remainder whose mask lacks what is shifted out, or some bits more
		n, low := uint32(1+g.r.IntN(16)), uint32(1+g.r.IntN(5))
		q := step("shru", x, uint32(1+g.r.IntN(4)))
		whole := step("and", q.d, (uint32(1)<<(32-n+uint32(g.r.IntN(3))-1)-1)>>low<<low)
		rest := stmt{op: "sub", d: g.fresh(), a: q.d, b: whole.d}
		up := step("shl", rest.d, n)
		return []stmt{q, whole, rest, up, step([...]string{"shru", "shrs"}[g.r.IntN(2)], up.d, n-n/2)}
	case 3: // scaled as a floating-point number
		return []stmt{step("scale", x, [...]uint32{0x3eaaaaab, 0x3f000000, 0x3f802000, 0x40d9364e}[g.r.IntN(4)])}
	case 2: // a row rolled
		rem := step("remu", x, m)
		test := stmt{op: "set", d: g.fresh(), a: rem.d, isConst: true, k: uint32(g.r.IntN(8)),
			rel: rels[g.r.IntN(len(rels))]}
		times := step("mul", test.d, m)
		sum := stmt{op: "add", d: g.fresh(), a: [...]int{x, rem.d}[g.r.IntN(2)], b: times.d}
		return []stmt{rem, test, times, sum, step("add", sum.d, -uint32(g.r.IntN(5)))}
	case 1: // bits of what may be negative
		k := uint32(1 + g.r.IntN(6))
		less := step("add", x, -uint32(g.r.IntN(20)))
		right := step([...]string{"shru", "shrs"}[g.r.IntN(2)], less.d, k)
		return []stmt{less, right, step("and", right.d, 1<<(1+g.r.IntN(32-int(k)))-1)}
	case 0: // x - k*(x%m) + m-1: what lies in a row, backwards
		rem := step("remu", x, m)
		times := step("mul", rem.d, uint32(1+g.r.IntN(4)))
		return []stmt{rem, times, {op: "sub", d: g.fresh(), a: x, b: times.d},
			step("add", g.known[len(g.known)-1], m-1)}
	default: // x / m * 2^n without the shifts
		high := step("mulhi", x, [...]uint32{715827883, 0xaaaaaaab, 0x55555556, 0xcccccccd}[g.r.IntN(4)])
		return []stmt{high,
			step("and", high.d, [...]uint32{0xfffffff8, 0x7ffffffe, 0x1ff0, 0x0fffff00, 0xfffffff6}[g.r.IntN(5)])}
	}
}

var rels = []string{"lt.u32", "ge.u32", "lt.s32", "ge.s32", "le.s32", "gt.u32", "eq.s32", "ne.s32"}

// block makes statements; what it defines may be used in it only.
func (g *generator) block(depth int) []stmt {
	var list []stmt
	for range 2 + g.r.IntN(5) {
		list = append(list, g.arith())
	}
	for range 4 {
		if !g.wild {
			break
		}
		list = append(list, g.wildly(depth)...)
	}
	if g.r.IntN(3) == 0 {
		list = append(list, g.idiom()...)
	}
	for range 5 {
		if !g.memory {
			break
		}
		s := g.local()
		list = append(list, s)
		if s.op == "lld" && g.r.IntN(2) == 0 {
			list = append(list, stmt{op: []string{"ld", "st"}[g.r.IntN(2)], a: s.d, b: g.r.IntN(2)})
		}
	}
	if g.variables {
		s := stmt{op: "variable", a: g.any()}
		if g.r.IntN(3) > 0 {
			low := stmt{op: []string{"and", "remu"}[g.r.IntN(2)], a: s.a, isConst: true,
				k: uint32(variableWords - 2 + g.r.IntN(4)), d: g.fresh()}
			list = append(list, low)
			s.a = low.d
		}
		list = append(list, s)
	}
	for range 1 + g.r.IntN(3) {
		switch k := g.r.IntN(8); {
		case g.r.IntN(6) == 0:
			s := stmt{op: "table", a: g.any(), b: g.any()}
			if g.r.IntN(3) == 0 {
				s.rel = rels[g.r.IntN(len(rels))]
			}
			if g.r.IntN(2) == 0 {
				low := stmt{op: "and", a: s.a, isConst: true, k: 15, d: g.fresh()}
				list = append(list, low)
				s.a = low.d
			}
			s.d = g.fresh()
			list = append(list, s)
			if g.r.IntN(2) == 0 {
				list = append(list, stmt{op: []string{"ld", "ld", "st"}[g.r.IntN(3)], a: s.d, b: g.r.IntN(2)})
			}
			g.known = append(g.known, s.d, s.d) // more likely than others
		case g.r.IntN(8) == 0:
			// for j from a to below b, unrolled by 4: a word at j of memory k is read, or (while) written.
			known := len(g.known)
			s := stmt{op: "rows", a: g.any(), b: g.any(), d: g.fresh(), k: g.r.Uint32N(2), while: g.r.IntN(2) == 0}
			g.fresh()
			g.fresh()
			g.fresh()
			g.known = g.known[:known]
			list = append(list, s)
		case g.r.IntN(16) == 0:
			// for j from t[a] to below t[a+1], which is loaded anew in every iteration, or in those that have stored
			// something.
			known := len(g.known)
			s := stmt{op: "span", a: g.any(), b: g.any(), rel: rels[g.r.IntN(len(rels))], x: g.r.IntN(2),
				y: g.r.IntN(3), not: g.r.IntN(2) == 0, store: g.r.IntN(2) == 0}
			s.k = uint32(1 + g.r.IntN(5)/4)
			if g.r.IntN(4) > 0 {
				low := stmt{op: "and", a: s.a, isConst: true, k: 15, d: g.fresh()}
				list = append(list, low)
				s.a = low.d
			}
			s.d = g.fresh()
			g.fresh()
			g.fresh()
			g.known = g.known[:known]
			list = append(list, s)
		case k < 3:
			list = append(list, stmt{op: "ld", a: g.any(), b: g.r.IntN(2)})
		case k < 6:
			list = append(list, stmt{op: "st", a: g.any(), b: g.r.IntN(2)})
		case depth > 0 && k == 6:
			s := stmt{op: "if", a: g.any(), b: g.any(), rel: rels[g.r.IntN(len(rels))]}
			known := len(g.known)
			s.body = g.block(depth - 1)
			g.known = g.known[:known]
			list = append(list, s)
		case depth > 0:
			s := stmt{op: "loop", a: g.any(), b: []int{regN, g.any()}[g.r.IntN(2)], k: uint32(1 + g.r.IntN(4)),
				rel: rels[g.r.IntN(3)], while: g.r.IntN(2) == 0}
			known := len(g.known)
			s.d = g.fresh()
			s.body = g.block(depth - 1)
			g.known = g.known[:known]
			list = append(list, s)
			if g.r.IntN(2) == 0 {
				g.known = append(g.known, s.d)
			}
		case depth == 0 && k == 6:
			// A loop that is entered under a condition, as compilers cut one in two: its counter has a value behind it,
			// too.
			d := g.fresh()
			l := stmt{op: "loop", d: d, a: d, b: []int{regN, g.any()}[g.r.IntN(2)], k: uint32(1 + g.r.IntN(4)),
				rel: rels[[...]int{0, 2, 7, 7}[g.r.IntN(4)]]}
			l.body = []stmt{{op: "ld", a: d, b: g.r.IntN(2)}}
			s := stmt{op: "if", a: g.any(), b: l.b, rel: rels[g.r.IntN(len(rels))], body: []stmt{l}}
			list = append(list, stmt{op: "add", d: d, a: s.a, isConst: true}, s, stmt{op: "ld", a: d, b: g.r.IntN(2)})
		case depth == 0:
			list = append(list, g.congruent()...)
		default:
			list = append(list, g.arith())
		}
	}
	switch g.r.IntN(6) {
	case 0:
		s := stmt{op: "pick", a: g.any(), b: g.any(), rel: rels[g.r.IntN(len(rels))], x: g.any(), y: g.any(),
			not: g.r.IntN(2) == 0, while: g.r.IntN(2) == 0}
		if g.r.IntN(2) == 0 {
			s.isConst, s.k = true, uint32(g.r.IntN(20))
		}
		if g.r.IntN(2) == 0 { // one is made of what is compared
			part := stmt{op: [...]string{"shru", "shrs", "divu", "rems", "sub"}[g.r.IntN(5)], d: g.fresh(), a: s.a,
				isConst: true, k: uint32(1 + g.r.IntN(6))}
			list = append(list, part)
			s.x = part.d
			if g.r.IntN(2) == 0 {
				s.x, s.y = s.y, s.x
			}
		}
		s.d = g.fresh()
		list = append(list, s)
	case 1:
		if depth > 0 {
			s := stmt{op: "late", a: g.any(), b: g.any(), k: uint32(1 + g.r.IntN(4)), while: g.r.IntN(2) == 0}
			known := len(g.known)
			s.d = g.fresh()
			s.body = g.block(depth - 1)
			g.known = g.known[:known]
			s.x, s.y = g.fresh(), g.fresh() // the next value, and how many are left
			g.fresh()
			g.known = g.known[:known]
			list = append(list, s)
		}
	}
	return list
}

// congruent makes accesses at places that differ modulo a number from each other.
func (g *generator) congruent() []stmt {
	x, y, z, d, bit := g.fresh(), g.fresh(), g.fresh(), g.fresh(), g.fresh()
	m := []uint32{2, 2, 2, 4, 3}[g.r.IntN(5)]
	list := []stmt{{op: "mul", d: x, a: regTidY, isConst: true, k: uint32(g.r.IntN(4))},
		{op: "add", d: x, a: x, b: regTid}, // x + y
		{op: "mul", d: z, a: regTidY, isConst: true, k: []uint32{0, 1, 3, 8, 9, 10}[g.r.IntN(6)]},
		{op: "add", d: z, a: z, b: regTid},
		{op: "remu", d: y, a: x, isConst: true, k: m}, {op: "and", d: bit, a: regN, isConst: true, k: 1}}
	if m != 3 {
		list[4] = stmt{op: "and", d: y, a: x, isConst: true, k: m - 1}
	}
	for range 1 + g.r.IntN(2) {
		s := stmt{op: "if", a: y, b: bit, rel: rels[6+g.r.IntN(2)]}
		s.body = []stmt{{op: "ld", a: z, b: g.r.IntN(2)},
			{op: "add", d: d, a: z, isConst: true, k: uint32(g.r.IntN(5)) - 2}, {op: "st", a: d, b: g.r.IntN(2)}}
		if g.r.IntN(2) == 0 { // bounds of several coordinates together
			s = stmt{op: "if", a: z, b: regN, rel: "lt.s32", body: []stmt{s}}
		}
		list = append(list, s)
	}
	return list
}

// text writes statements as PTX.
type text struct {
	strings.Builder
	labels  int
	around  []int // labels of loops that "leave" and "again" go to
	scratch int   // a register that nothing else uses
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, "\t"+format+";\n", args...) }

func (t *text) block(list []stmt) {
	for i := range list {
		t.stmt(&list[i])
	}
}

func (t *text) stmt(s *stmt) {
	b := fmt.Sprintf("%%r%d", s.b)
	if s.isConst {
		b = fmt.Sprint(int32(s.k))
	}
	names := map[string]string{"add": "add.s32", "sub": "sub.s32", "mul": "mul.lo.s32", "shl": "shl.b32",
		"shru": "shr.u32", "shrs": "shr.s32", "and": "and.b32", "or": "or.b32", "xor": "xor.b32", "minu": "min.u32",
		"mins": "min.s32", "maxu": "max.u32", "maxs": "max.s32", "remu": "rem.u32", "divu": "div.u32",
		"rems": "rem.s32", "divs": "div.s32", "mulhi": "mul.hi.u32"}
	switch s.op {
	case "lst", "lpst", "lld", "ltab", "call", "bump", "put", "get":
		t.local(s)
	case "mov", "shlr", "shrur", "shrsr", "mulhis", "abs", "popc", "clz", "field", "insert", "narrow", "sets", "else",
		"rounds", "leave", "again", "at", "quit", "search":
		t.wild(s, b)
	case "neg":
		t.line("neg.s32 %%r%d, %%r%d", s.d, s.a)
	case "not":
		t.line("not.b32 %%r%d, %%r%d", s.d, s.a)
	case "sel":
		t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, s.a, s.b)
		t.line("selp.b32 %%r%d, %%r%d, %%r%d, %%p1", s.d, s.a, s.b)
	case "variable":
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.a)
		t.line("mov.u64 %%rd4, variable")
		t.line("add.s64 %%rd4, %%rd4, %%rd3")
		t.line("ld.global.u32 %%r0, [%%rd4]")
	case "ld", "st":
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.a)
		t.line("add.s64 %%rd4, %%rd%d, %%rd3", 1+s.b)
		if s.op == "ld" {
			t.line("ld.global.u32 %%r0, [%%rd4]")
		} else {
			t.line("st.global.u32 [%%rd4], %%r%d", regN)
		}
	case "rows":
		t.labels += 3
		top, four, end := t.labels-2, t.labels-1, t.labels
		j, n, hi, m := s.d, s.d+1, s.d+2, s.d+3
		t.line("setp.ge.s32 %%p1, %%r%d, %%r%d", s.a, s.b)
		t.line("@%%p1 bra L%d", end)
		t.line("add.s32 %%r%d, %%r%d, 1", n, s.a)
		t.line("max.s32 %%r%d, %%r%d, %%r%d", hi, s.b, n)
		t.line("sub.s32 %%r%d, %%r%d, %%r%d", n, hi, s.a)
		t.line("and.b32 %%r%d, %%r%d, 3", m, n)
		t.line("mov.u32 %%r%d, %%r%d", j, s.a)
		t.line("setp.eq.s32 %%p1, %%r%d, 0", m)
		t.line("@%%p1 bra L%d", four)
		fmt.Fprintf(t, "L%d:\n", top)
		t.word(s, 0)
		t.line("add.s32 %%r%d, %%r%d, 1", j, j)
		t.line("add.s32 %%r%d, %%r%d, -1", m, m)
		t.line("setp.ne.s32 %%p1, %%r%d, 0", m)
		t.line("@%%p1 bra L%d", top)
		fmt.Fprintf(t, "L%d:\n", four)
		t.line("not.b32 %%r%d, %%r%d", n, s.a)
		t.line("add.s32 %%r%d, %%r%d, %%r%d", n, hi, n)
		t.line("setp.lt.u32 %%p1, %%r%d, 3", n)
		t.line("@%%p1 bra L%d", end)
		t.labels++
		fmt.Fprintf(t, "L%d:\n", t.labels)
		loop := t.labels
		for i := range 4 {
			t.word(s, 4*i)
		}
		t.line("add.s32 %%r%d, %%r%d, 4", j, j)
		t.line("setp.lt.s32 %%p1, %%r%d, %%r%d", j, s.b)
		t.line("@%%p1 bra L%d", loop)
		fmt.Fprintf(t, "L%d:\n", end)
	case "span":
		t.labels += 3
		top, on, end := t.labels-2, t.labels-1, t.labels
		j, hi, v := s.d, s.d+1, s.d+2
		at := func() {
			t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.a)
			t.line("add.s64 %%rd4, %%rd5, %%rd3")
		}
		at()
		t.line("ld.global.u32 %%r%d, [%%rd4]", j)
		t.line("ld.global.u32 %%r%d, [%%rd4+4]", hi)
		t.line("setp.ge.s32 %%p1, %%r%d, %%r%d", j, hi)
		t.line("@%%p1 bra L%d", end)
		fmt.Fprintf(t, "L%d:\n", top)
		t.line("mov.u32 %%r%d, %%r%d", v, j)
		if s.not {
			t.line("mul.wide.s32 %%rd3, %%r%d, 4", j)
			t.line("add.s64 %%rd4, %%rd5, %%rd3")
			t.line("ld.global.u32 %%r%d, [%%rd4]", v)
		}
		touch := func(buffer, index int, store bool) {
			t.line("mul.wide.s32 %%rd3, %%r%d, 4", index)
			t.line("add.s64 %%rd4, %%rd%d, %%rd3", 1+buffer)
			if store {
				t.line("st.global.u32 [%%rd4], %%r%d", regN)
			} else {
				t.line("ld.global.u32 %%r0, [%%rd4]")
			}
		}
		touch(s.x, v, s.store)
		if s.y > 0 {
			t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, j, s.b)
			t.line("@!%%p1 bra L%d", on)
			touch(s.y-1, s.b, true)
		}
		at()
		t.line("ld.global.u32 %%r%d, [%%rd4+%d]", hi, 4*s.k)
		fmt.Fprintf(t, "L%d:\n", on)
		t.line("add.s32 %%r%d, %%r%d, 1", j, j)
		t.line("setp.lt.s32 %%p1, %%r%d, %%r%d", j, hi)
		t.line("@%%p1 bra L%d", top)
		fmt.Fprintf(t, "L%d:\n", end)
	case "table":
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.a)
		t.line("add.s64 %%rd4, %%rd5, %%rd3")
		if s.rel == "" {
			t.line("ld.global.s32 %%r%d, [%%rd4]", s.d)
		} else {
			t.line("mov.u32 %%r%d, %%r%d", s.d, s.b)
			t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, s.a, s.b)
			t.line("@%%p1 ld.global.s32 %%r%d, [%%rd4]", s.d)
		}
	case "set":
		t.line("setp.%s %%p1, %%r%d, %s", s.rel, s.a, b)
		t.line("selp.b32 %%r%d, 1, 0, %%p1", s.d)
	case "scale":
		t.line("cvt.rn.f32.u32 %%f0, %%r%d", s.a)
		t.line("mul.f32 %%f1, %%f0, 0f%08X", s.k)
		t.line("cvt.rzi.s32.f32 %%r%d, %%f1", s.d)
	case "pick":
		t.line("setp.%s %%p1, %%r%d, %s", s.rel, s.a, b)
		t.line("selp.b32 %%r%d, %%r%d, %%r%d, %%p1", s.d, s.x, s.y)
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.d)
		t.line("add.s64 %%rd4, %%rd1, %%rd3")
		p := "%p1"
		if s.not {
			p = "!%p1"
		}
		if s.while {
			t.line("@%s st.global.u32 [%%rd4], %%r%d", p, regN)
		} else {
			t.line("@%s ld.global.u32 %%r0, [%%rd4]", p)
		}
	case "late":
		t.labels++
		top := t.labels
		t.line("mov.u32 %%r%d, %%r%d", s.d, s.a)
		t.line("add.s32 %%r%d, %%r%d, %d", s.x, s.a, s.k)
		t.line("mov.u32 %%r%d, %%r%d", s.y, s.b)
		fmt.Fprintf(t, "L%d:\n", top)
		t.block(s.body)
		down := func() {
			t.line("setp.gt.s32 %%p1, %%r%d, 0", s.y)
			t.line("selp.b32 %%r%d, -1, 0, %%p1", s.y+1)
			t.line("add.s32 %%r%d, %%r%d, %%r%d", s.y, s.y, s.y+1)
		}
		if s.while {
			down()
		}
		down()
		t.line("selp.b32 %%r%d, %%r%d, 0, %%p1", s.d, s.x)
		t.line("add.s32 %%r%d, %%r%d, %d", s.x, s.x, s.k)
		t.line("@%%p1 bra L%d", top)
	case "if":
		t.labels++
		l := t.labels
		t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, s.a, s.b)
		t.line("@!%%p1 bra L%d", l)
		t.block(s.body)
		fmt.Fprintf(t, "L%d:\n", l)
	case "loop":
		t.labels += 2
		top, end := t.labels-1, t.labels
		t.line("mov.u32 %%r%d, %%r%d", s.d, s.a)
		fmt.Fprintf(t, "L%d:\n", top)
		if s.while {
			t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, s.d, s.b)
			t.line("@!%%p1 bra L%d", end)
		}
		t.block(s.body)
		t.line("add.s32 %%r%d, %%r%d, %d", s.d, s.d, s.k)
		if s.while {
			t.line("bra L%d", top)
		} else {
			t.line("setp.%s %%p1, %%r%d, %%r%d", s.rel, s.d, s.b)
			t.line("@%%p1 bra L%d", top)
		}
		fmt.Fprintf(t, "L%d:\n", end)
	default:
		t.line("%s %%r%d, %%r%d, %s", names[s.op], s.d, s.a, b)
	}
}

// word accesses the word of a rows statement, off bytes behind it.
func (t *text) word(s *stmt, off int) {
	t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.d)
	t.line("add.s64 %%rd4, %%rd%d, %%rd3", 1+s.k)
	if s.while {
		t.line("st.global.u32 [%%rd4+%d], %%r%d", off, regN)
	} else {
		t.line("ld.global.u32 %%r0, [%%rd4+%d]", off)
	}
}

func kernelText(list []stmt, regs int) string { return kernelTextOf(list, regs, false) }

func kernelTextOf(list []stmt, regs int, memory bool) string {
	t := &text{}
	wide := 6
	if memory {
		wide = 11
	}
	t.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
	fmt.Fprintf(t, ".global .align 4 .b32 variable[%d];\n", variableWords)
	t.WriteString(".visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .u32 m, .param .u64 t)\n{\n")
	fmt.Fprintf(t,
		"\t.reg .pred %%p<2>;\n\t.reg .f32 %%f<2>;\n\t.reg .b32 %%r<%d>;\n\t.reg .b64 %%rd<%d>;\n", regs+2, wide)
	t.line("ld.param.u64 %%rd1, [a]")
	t.line("ld.param.u64 %%rd2, [b]")
	t.line("ld.param.u64 %%rd5, [t]")
	// %r0 takes what is loaded: register numbers begin at 1 in the text.
	u := &text{scratch: regs}
	u.block(list)
	body := shift(u.String())
	t.line("ld.param.u32 %%r%d, [n]", regN+1)
	t.line("ld.param.u32 %%r%d, [m]", regM+1)
	t.line("mov.u32 %%r%d, %%tid.x", regTid+1)
	t.line("mov.u32 %%r%d, %%tid.y", regTidY+1)
	t.line("mov.u32 %%r%d, %%ctaid.x", regCta+1)
	t.line("mov.u32 %%r%d, %%ntid.x", regNtid+1)
	t.WriteString(body)
	t.WriteString("\tret;\n}\n")
	return t.String()
}

// shift adds one to the numbers of registers but for the destination of loads.
func shift(body string) string {
	lines := strings.Split(body, "\n")
	for i, l := range lines {
		load := strings.HasPrefix(l, "\tld.global.u32 %r0,")
		var out strings.Builder
		for j := 0; j < len(l); j++ {
			if !strings.HasPrefix(l[j:], "%r") || strings.HasPrefix(l[j:], "%rd") {
				out.WriteByte(l[j])
				continue
			}
			n := 0
			for j += 2; j < len(l) && l[j] >= '0' && l[j] <= '9'; j++ {
				n = 10*n + int(l[j]-'0')
			}
			j--
			if !load {
				n++
			}
			fmt.Fprintf(&out, "%%r%d", n)
		}
		lines[i] = out.String()
	}
	return strings.Join(lines, "\n")
}

// A run is what the threads of a launch did, one after the other. All that they access is aligned words.
type run struct {
	base   [3]uint64        // the last one: of the table
	pages  map[uint64]*page // by number
	recent *page            // that was accessed last, and its number
	number uint64
	thread uint16 // the one that runs, from 1
	beyond bool   // something beside the variable was read
	steps  int
}

const pageBytes = 256

type page [pageBytes / 4]word

type word struct {
	value   uint32
	filled  bool   // with value; others hold a number that their address makes
	writer  uint16 // the thread that wrote it last
	read    bool
	live    bool // read by a thread that had not written it before
	written bool
}

func (x *run) word(at uint64) *word {
	n := at / pageBytes
	if x.recent == nil || x.number != n {
		p := x.pages[n]
		if p == nil {
			p = new(page)
			x.pages[n] = p
		}
		x.recent, x.number = p, n
	}
	return &x.recent[at%pageBytes/4]
}

// load reads a word.
func (x *run) load(at uint64) uint32 {
	w := x.word(at)
	w.read = true
	w.live = w.live || w.writer != x.thread
	if !w.filled {
		return uint32(at) * 2654435761
	}
	return w.value
}

func (x *run) store(at uint64, v uint32) {
	w := x.word(at)
	w.value, w.filled, w.writer, w.written = v, true, x.thread, true
}

const variableWords = 12

type lane struct {
	*run
	regs []uint32
	jump string // "leave" or "again": on the way out of a loop's body; "quit": of the kernel
	mem  [localBytes]byte
}

const maxSteps = 200_000

func holds(rel string, a, b uint32) bool {
	signed := strings.HasSuffix(rel, "s32")
	less := a < b
	if signed {
		less = int32(a) < int32(b)
	}
	switch rel[:2] {
	case "lt":
		return less
	case "ge":
		return !less
	case "le":
		return less || a == b
	case "gt":
		return !less && a != b
	case "eq":
		return a == b
	}
	return a != b
}

// do executes statements; false if it takes too long.
func (x *lane) do(list []stmt) bool {
	for i := range list {
		if x.jump != "" {
			return true
		}
		s := &list[i]
		if x.steps++; x.steps > maxSteps {
			return false
		}
		a := x.regs[s.a]
		b := s.k
		if !s.isConst {
			b = x.regs[s.b]
		}
		switch s.op {
		case "lst", "lpst", "lld", "ltab", "call", "bump", "put", "get":
			x.local(s)
		case "mov", "shlr", "shrur", "shrsr", "mulhis", "abs", "popc", "clz", "field", "insert", "narrow", "sets",
			"else", "rounds", "leave", "again", "at", "quit", "search":
			if !x.wild(s, a, b) {
				return false
			}
		case "variable":
			x.beyond = x.beyond || a >= variableWords
		case "ld", "st":
			x.touch(s.b, a, s.op == "st")
		case "rows":
			lo, hi := int32(a), int32(b)
			if lo >= hi {
				break
			}
			j := lo
			for range uint32(hi-lo) & 3 {
				x.row(s, j, 0)
				j++
			}
			if uint32(hi-lo-1) < 3 {
				break
			}
			for first := true; first || j < hi; first = false {
				for i := range uint64(4) {
					x.row(s, j, 4*i)
				}
				j += 4
				if x.steps += 200; x.steps > maxSteps {
					return false
				}
			}
		case "table":
			if s.rel != "" && !holds(s.rel, a, b) {
				x.regs[s.d] = b
				break
			}
			x.regs[s.d] = x.fetch(int64(int32(a)))
		case "span":
			at := int64(int32(a))
			j, hi := x.fetch(at), x.fetch(at+1)
			for int32(j) < int32(hi) {
				v := j
				if s.not {
					v = x.fetch(int64(int32(j)))
				}
				x.touch(s.x, v, s.store)
				if s.y == 0 || holds(s.rel, j, b) {
					if s.y > 0 {
						x.touch(s.y-1, b, true)
					}
					hi = x.fetch(at + int64(s.k))
				}
				j++
				if x.steps += 50; x.steps > maxSteps {
					return false
				}
			}
		case "pick":
			yes := holds(s.rel, a, b)
			x.regs[s.d] = x.regs[s.y]
			if yes {
				x.regs[s.d] = x.regs[s.x]
			}
			if yes == !s.not {
				x.touch(0, x.regs[s.d], s.while)
			}
		case "late":
			next, left := a+s.k, b
			for x.regs[s.d] = a; ; {
				if !x.do(s.body) {
					return false
				}
				if x.jump == "quit" {
					break
				}
				if s.while && int32(left) > 0 {
					left--
				}
				if int32(left) <= 0 {
					break
				}
				x.regs[s.d] = next
				next += s.k
				left--
				if x.steps++; x.steps > maxSteps {
					return false
				}
			}
		case "if":
			if holds(s.rel, a, b) && !x.do(s.body) {
				return false
			}
		case "loop":
			x.regs[s.d] = a
			for first := true; ; first = false {
				b := x.regs[s.b]
				if (s.while || !first) && !holds(s.rel, x.regs[s.d], b) {
					break
				}
				if !x.do(s.body) {
					return false
				}
				if x.jump == "quit" {
					break
				}
				x.regs[s.d] += s.k
				if x.steps++; x.steps > maxSteps {
					return false
				}
			}
		default:
			x.regs[s.d] = calculate(s, a, b)
		}
	}
	return true
}

// row accesses word j of a rows statement, off bytes behind it.
func (x *lane) row(s *stmt, j int32, off uint64) {
	x.at(x.base[s.k]+uint64(int64(j)*4)+off, s.while)
}

// fetch is word i of the table.
func (x *lane) fetch(i int64) uint32 { return x.load(x.base[2] + uint64(i*4)) }

// touch accesses a word of a buffer.
func (x *lane) touch(buffer int, index uint32, store bool) {
	x.at(x.base[buffer]+uint64(int64(int32(index))*4), store)
}

// at reads a word, or stores what kernels store.
func (x *lane) at(addr uint64, store bool) {
	if store {
		x.store(addr, x.regs[regN])
	} else {
		x.load(addr)
	}
}

func calculate(s *stmt, a, b uint32) uint32 {
	pick := func(first bool) uint32 {
		if first {
			return a
		}
		return b
	}
	switch s.op {
	case "scale":
		return uint32(int32(min(float64(float32(float32(a)*math.Float32frombits(b))), math.MaxInt32)))
	case "set":
		if holds(s.rel, a, b) {
			return 1
		}
		return 0
	case "add":
		return a + b
	case "sub":
		return a - b
	case "mul":
		return a * b
	case "shl":
		return a << b
	case "shru":
		return a >> b
	case "shrs":
		return uint32(int32(a) >> b)
	case "and":
		return a & b
	case "or":
		return a | b
	case "xor":
		return a ^ b
	case "minu":
		return pick(a < b)
	case "mins":
		return pick(int32(a) < int32(b))
	case "maxu":
		return pick(a > b)
	case "maxs":
		return pick(int32(a) > int32(b))
	case "remu":
		return a % b
	case "divu":
		return a / b
	case "rems":
		return uint32(int32(a) % int32(b))
	case "divs":
		return uint32(int32(a) / int32(b))
	case "mulhi":
		return uint32(uint64(a) * uint64(b) >> 32)
	case "neg":
		return -a
	case "not":
		return ^a
	}
	return pick(holds(s.rel, a, b)) // sel
}

func TestRandomKernels(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 300
	}
	counts := map[footprint.Verdict]int{}
	bounded := 0
	gained := 0 // verdicts that rest on what is known
	var in, without, sought footprint.Instance
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := &generator{r: r, regs: regFirst,
			known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}}
		list := g.block(2)
		src := kernelText(list, g.regs)
		s := summarised(t, fmt.Sprintf("seed %d", seed), src)
		for range 4 {
			l, x := randomLaunch(r, list, g.regs)
			if x == nil {
				continue
			}
			plain := *l
			plain.Known = nil
			s.Evaluate(&plain, &without)
			if bad := disagrees(&without, x); bad != "" {
				t.Fatalf("seed %d, nothing known: %s\n%s", seed, bad, src)
			}
			s.Evaluate(l, &in)
			seeking := *l
			seeking.Seeks = true
			s.Evaluate(&seeking, &sought)
			if bad := different(&sought, &in); bad != "" {
				t.Fatalf("seed %d: asked for what it wants: %s", seed, bad)
			}
			for _, r := range in.Relied {
				if k := l.Known[0]; r.Lo < k.Lo || r.Hi > k.Hi {
					t.Fatalf("seed %d: relies on %x, which nobody knows", seed, r)
				}
			}
			if in.Verdict == footprint.Idempotent && without.Verdict == footprint.Unknown {
				gained++
			}
			if in.Verdict == footprint.Unknown && without.Verdict != footprint.Unknown {
				t.Errorf("seed %d: what is known makes it %v instead of %v", seed, in.Verdict, without.Verdict)
			}
			counts[in.Verdict]++
			if !in.ReadsUnknown && !in.WritesUnknown {
				bounded++
			}
			mustAgree(t, seed, src, s, l, &in, x)
		}
	}
	t.Logf("%v, %d with all bounds, %d because contents are known", counts, bounded, gained)
	if counts[footprint.Idempotent] < n/4 || counts[footprint.NotIdempotent] < n/16 || bounded < n || gained < n/50 {
		t.Errorf("%v, %d with all bounds: the test has become weak", counts, bounded)
	}
}

// TestCongruences judges kernels whose threads are told apart by what remains of their coordinates. Accesses that would
// meet otherwise must be found apart in many of them.
func TestCongruences(t *testing.T) {
	apart := 0
	var in footprint.Instance
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		g := &generator{r: r, regs: regFirst, known: []int{regTid, regTidY, regN}}
		list := g.congruent()
		src := kernelText(list, g.regs)
		s := summarised(t, fmt.Sprintf("seed %d", seed), src)
		for range 4 {
			l, x := randomLaunch(r, list, g.regs)
			if x == nil {
				continue
			}
			s.Evaluate(l, &in)
			mustAgree(t, seed, src, s, l, &in, x)
			if in.Verdict != footprint.Idempotent {
				continue
			}
			for i := range s.Code.Congs { // no number is congruent to it: nothing is told apart
				s.Code.Congs[i].M = -s.Code.Congs[i].M
			}
			var without footprint.Instance
			s.Evaluate(l, &without)
			for i := range s.Code.Congs {
				s.Code.Congs[i].M = -s.Code.Congs[i].M
			}
			if without.Verdict != footprint.Idempotent {
				apart++
			}
		}
	}
	t.Logf("%d are idempotent because of congruences", apart)
	if apart < 200 {
		t.Errorf("only %d are idempotent because of congruences", apart)
	}
}

// randomLaunch makes a launch and runs it; nil if that takes too long.
func randomLaunch(r *rand.Rand, list []stmt, regs int) (*footprint.Launch, *run) {
	l, x, n, m := randomArguments(r)
	for cta := range l.Grid[0] {
		for ty := range l.Block[1] {
			for tx := range l.Block[0] {
				x.thread++
				ln := &lane{run: x, regs: make([]uint32, regs)}
				copy(ln.regs, []uint32{tx, ty, cta, l.Block[0], n, m})
				if !ln.do(list) {
					return nil, nil
				}
			}
		}
	}
	return l, x
}

// randomArguments makes a launch, and the memory and the numbers that it begins with.
func randomArguments(r *rand.Rand) (l *footprint.Launch, x *run, n, m uint32) {
	l = &footprint.Launch{
		Grid:  [3]uint32{1 + r.Uint32N(3), 1, 1},
		Block: [3]uint32{1 + r.Uint32N(9), 1 + r.Uint32N(2), 1},
	}
	n, m = r.Uint32N(40), 1+r.Uint32N(9)
	if r.IntN(8) == 0 {
		n = r.Uint32()
	}
	base := [3]uint64{1 << 40, 1 << 40, 1 << 41}
	switch r.IntN(3) {
	case 0:
		base[1] += uint64(r.IntN(64)) * 4
	case 1:
		base[1] += 1 << 36
	}
	if r.IntN(6) == 0 {
		base[2] = base[r.IntN(2)] + uint64(r.IntN(128))*4 // perhaps the launch writes it
	}
	table := randomTable(r)
	l.Known = []footprint.Known{{
		Range:    footprint.Range{Lo: base[2], Hi: base[2] + uint64(len(table))},
		Contents: footprint.NewContents(table, uint64(len(table))),
	}}
	for _, v := range base[:2] {
		l.Params = appendUint(l.Params, v, 8)
	}
	l.Params = appendUint(appendUint(l.Params, uint64(n), 4), uint64(m), 4)
	l.Params = appendUint(l.Params, base[2], 8)
	x = &run{base: base, pages: map[uint64]*page{}}
	for i := 0; i < len(table); i += 4 {
		*x.word(base[2] + uint64(i)) = word{value: binary.LittleEndian.Uint32(table[i:]), filled: true}
	}
	return l, x, n, m
}

// randomTable is small numbers, or ascending ones, with a few others among them.
func randomTable(r *rand.Rand) []byte {
	var b []byte
	n, up := 1+r.IntN(60), r.IntN(2) == 0
	last := uint32(0)
	for range n {
		v := r.Uint32N(24)
		if last += r.Uint32N(3); up {
			v = last
		}
		if r.IntN(60) == 0 {
			v = -v
		}
		b = appendUint(b, uint64(v), 4)
	}
	return b
}

func appendUint(b []byte, v uint64, n int) []byte {
	for i := range n {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// mustAgree ends the test if what is said of a launch of the kernel of a seed is not what was seen.
func mustAgree(t *testing.T, seed uint64, src string, s *footprint.Summary, l *footprint.Launch,
	in *footprint.Instance, x *run) {
	t.Helper()
	if bad := disagrees(in, x); bad != "" {
		var why strings.Builder
		s.Explain(l, &why)
		t.Fatalf("seed %d: %s\ngrid %v block %v params %x\n%s\n%s", seed, bad, l.Grid, l.Block, l.Params, src,
			why.String())
	}
}

// disagrees says what is wrong with an instance.
func disagrees(in *footprint.Instance, x *run) string {
	reads, writes := !in.ReadsUnknown || in.ReadsVariables, !in.WritesUnknown
	if x.beyond && reads {
		return "reads beside the variable, which is not foreseen"
	}
	clash := false
	for n, p := range x.pages {
		for i := range p {
			w, at := &p[i], n*pageBytes+uint64(i)*4
			clash = clash || w.live && w.written
			for a := at; a < at+4; a++ {
				if w.read && reads && !inside(in.Reads, a) {
					return fmt.Sprintf("reads %#x, which is not foreseen", a)
				}
				if w.written && writes && !inside(in.Writes, a) {
					return fmt.Sprintf("writes %#x, which is not foreseen", a)
				}
			}
		}
	}
	if clash && in.Verdict == footprint.Idempotent || !clash && in.Verdict == footprint.NotIdempotent {
		return fmt.Sprintf("is %v", in.Verdict)
	}
	if in.Verdict == footprint.NotIdempotent {
		if w := x.word(in.Witness.Byte); !w.live || !w.written {
			return fmt.Sprintf("byte %#x is no witness", in.Witness.Byte)
		}
	}
	return ""
}

func inside(list []footprint.Range, a uint64) bool {
	for _, r := range list {
		if r.Lo <= a && a < r.Hi {
			return true
		}
	}
	return false
}
