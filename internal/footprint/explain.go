package footprint

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"holdfast/internal/isa"
)

// Explain writes how the range of every access of a launch was found: the line, the formula of its
// address, the guards that were used, and the numbers. Without a launch, nil, there are no numbers.
func (s *Summary) Explain(l *Launch, w io.Writer) error {
	if l == nil {
		e := &explainer{s: s, p: &s.prog, w: w}
		e.printf("%s: %v", s.Name, s.Class)
		if s.Cause != NoCause {
			e.printf(", %v (line %d)", s.Cause, s.At)
		}
		e.printf("\n")
		for i := range s.prog.ctxs {
			c := &s.prog.ctxs[i]
			for a := c.a0; a < c.a1; a++ {
				e.access(&s.prog.accs[a], nil)
			}
			e.facts(c)
		}
		return e.err
	}
	var in Instance
	s.Evaluate(l, &in)
	p := in.m.p
	e := &explainer{s: s, m: &in.m, p: p, w: w}
	e.printf("%s: %v, %s\n", s.Name, in.Verdict, in.Reason())
	if len(in.m.regs) != len(p.ops) || in.Cause == BadLaunch {
		return e.err
	}
	in.m.launch = l
	for i := range p.ctxs {
		in.m.context(i)
		c := &p.ctxs[i]
		for a := c.a0; a < c.a1; a++ {
			e.access(&p.accs[a], &in.m.results[a])
		}
		e.facts(c)
	}
	return e.err
}

type explainer struct {
	s   *Summary
	m   *machine // nil: no launch
	p   *program
	w   io.Writer
	err error
}

func (e *explainer) printf(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

func (a *pacc) verb() string {
	switch {
	case a.kind == isUpdate:
		return "reads and changes"
	case a.kind == isSettle:
		return "settles"
	case a.kind == isWrite:
		return "writes"
	case a.hidden:
		return "reads what the thread itself has written"
	}
	return "reads"
}

func (e *explainer) access(a *pacc, r *extent) {
	f := &e.p.forms[a.form]
	e.printf("line %d %s %s\n", a.pos, a.verb(), count(a.bytes))
	at := e.form(f)
	if a.off != 0 {
		at += fmt.Sprintf(" + %d", a.off)
	}
	if a.step > 0 {
		at += fmt.Sprintf(" + %d*[0, %d]", a.step, a.count-1)
	} else if a.count == 0 {
		at += fmt.Sprintf(" and on to %d bytes", a.span)
	}
	e.printf("  address  %s\n", at)
	if e.m == nil {
		return
	}
	switch {
	case r.state == never:
		e.printf("  range    no thread comes here\n")
	case r.state == boundless:
		e.printf("  range    none: %s\n", e.missing(f, a))
	case r.region != 0:
		e.printf("  range    bytes %d to %d of a variable of the module\n", int64(r.lo-variableBase), int64(r.hi-variableBase)-1)
	default:
		e.printf("  range    [%#x, %#x)\n", r.lo, r.hi)
	}
	for _, t := range e.p.terms[f.t0:f.t1] {
		e.printf("  with     %s in %s\n", e.variable(t.v), e.m.vars[t.v])
	}
}

// missing says why a form has no range.
func (e *explainer) missing(f *pform, a *pacc) string {
	if a.bytes == 0 {
		return "how much is accessed is not known"
	}
	for _, id := range e.p.lists[f.k0:f.k1] {
		if !e.m.check(id) {
			c := &e.p.checks[id]
			return fmt.Sprintf("%s is in %s, which may not fit %s", e.form(&e.p.forms[c.form]), e.m.total(&e.p.forms[c.form]), c.in)
		}
	}
	for _, t := range e.p.terms[f.t0:f.t1] {
		if !e.m.vars[t.v].bounded() {
			return e.variable(t.v) + " has no bound"
		}
	}
	return "it is too large"
}

// facts lists what was known in a context.
func (e *explainer) facts(c *pctx) {
	for _, x := range e.p.lists[c.c0:c.c1] {
		not := ""
		if x&1 != 0 {
			not = "not "
		}
		e.printf("  where    %s%s\n", not, e.value(x>>1, 0))
	}
	for _, st := range e.p.steps[c.s0:c.s1] {
		if !st.guard {
			continue
		}
		g := &e.p.guards[st.index]
		f := &e.p.forms[g.form]
		switch {
		case g.exit != 0:
			e.printf("  loop     %s\n", e.form(f))
		case g.wrap != 0:
			e.printf("  where    %s, as an unsigned number, is below %s\n", e.form(f), e.value(g.top, 0))
		case g.not0:
			e.printf("  where    %s is not 0\n", e.form(f))
		default:
			e.printf("  where    %s is in %s\n", e.form(f), g.in)
		}
		if e.m != nil && e.m.active[st.index] {
			e.printf("           so its terms are in %s\n", e.m.within[st.index])
		}
	}
}

// String is "[0, 5]".
func (b bounds) String() string {
	lo, hi := "(-∞", "∞)"
	if b.lo > -far {
		lo = fmt.Sprintf("[%d", b.lo)
	}
	if b.hi < far {
		hi = fmt.Sprintf("%d]", b.hi)
	}
	return lo + ", " + hi
}

func count(n int64) string {
	switch n {
	case 0:
		return "some bytes"
	case 1:
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// form is the text of a linear form.
func (e *explainer) form(f *pform) string {
	var parts []string
	if f.sym > 0 {
		parts = append(parts, e.s.Globals[f.sym-1].Name)
	} else if f.sym < 0 {
		parts = append(parts, "a variable")
	}
	if in := e.p.ops[f.c]; in.op != opConst || in.imm != 0 {
		parts = append(parts, e.value(f.c, 0))
	}
	for _, t := range e.p.terms[f.t0:f.t1] {
		v := e.variable(t.v)
		if in := e.p.ops[t.coef]; in.op != opConst || in.imm != 1 {
			v = e.value(t.coef, 0) + "*" + v
		}
		parts = append(parts, v)
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}

// coordinateNames and geometryNames are the special registers that hold what opThread and opGeometry read.
var (
	coordinateNames = sync.OnceValue(func() []string {
		return registerNames(isa.ThreadIndex, 3, isa.BlockIndex, 3, isa.Lane, 1, isa.IndexInCluster, 3,
			isa.RankInCluster, 1,
			isa.ClusterIndex, 3)
	})
	geometryNames = sync.OnceValue(func() []string {
		return registerNames(isa.BlockSize, 3, isa.GridSize, 3, isa.ClusterSize, 3, isa.GridClusters, 3,
			isa.ClusterBlocks, 1,
			isa.DynamicShared, 1)
	})
)

// registerNames takes coordinates, each with its dimensions.
func registerNames(list ...isa.Coordinate) []string {
	var names []string
	for i := 0; i < len(list); i += 2 {
		for dim := range int(list[i+1]) {
			names = append(names, isa.RegisterOf(list[i], dim).Name)
		}
	}
	return names
}

var vkindNames = map[vkind]string{vDivU: "/", vDivS: "/", vRemU: "%", vRemS: "%", vMulHiU: "mulhi", vMulHiS: "mulhi", vMul: "*", vMinU: "min", vMinS: "min",
	vMaxU: "max", vMaxS: "max", vAbs: "abs", vAnd: "&", vOr: "|", vXor: "^", vShl: "<<", vShrU: ">>", vShrS: ">>", vOne: "one of", vHalf: "halves of", vBetween: "between"}

func (e *explainer) variable(v int32) string {
	x := &e.p.vars[v]
	switch x.kind {
	case vThread:
		return coordinateNames()[x.imm]
	case vCounter:
		return fmt.Sprintf("rounds%d", x.imm)
	case vAny:
		return fmt.Sprintf("loaded%d", v)
	case vFlag:
		return fmt.Sprintf("flag%d", v)
	case vBits:
		return fmt.Sprintf("bits%d", v)
	}
	var args []string
	for _, a := range e.p.args[x.a0:x.a1] {
		args = append(args, e.form(&e.p.forms[a.form]))
	}
	switch x.kind {
	case vTest:
		return fmt.Sprintf("[%s <= %d]", args[0], x.imm)
	case vFloor:
		return fmt.Sprintf("(%s)/%d", args[0], x.imm)
	case vMod:
		return fmt.Sprintf("(%s)%%%d", args[0], x.imm)
	case vExt:
		return "(" + args[0] + ")"
	case vCurve:
		return "scaled(" + args[0] + ")"
	case vParam:
		return "parameters(" + args[0] + ")"
	case vTable:
		return "memory(" + args[0] + ")"
	}
	return vkindNames[x.kind] + "(" + strings.Join(args, ", ") + ")"
}

var xopSigns = map[xop]string{opAdd: "+", opSub: "-", opMul: "*", opDivU: "/", opDivS: "/", opRemU: "%", opRemS: "%", opAnd: "&", opOr: "|", opXor: "^", opShl: "<<",
	opShrU: ">>", opShrS: ">>", opEQ: "==", opNE: "!=", opLTU: "<", opLTS: "<", opLEU: "<=", opLES: "<="}

var xopNames = map[xop]string{opMulHiU: "mulhi", opMulHiS: "mulhi", opMinU: "min", opMinS: "min", opMaxU: "max", opMaxS: "max", opNeg: "-", opAbs: "abs",
	opNot: "not", opPopc: "popc", opClz: "clz", opSelect: "select"}

// value is the text of a uniform value.
func (e *explainer) value(r int32, depth int) string {
	in := &e.p.ops[r]
	if depth > 12 {
		return "…"
	}
	arg := func(i int32) string { return e.value(i, depth+1) }
	switch in.op {
	case opConst:
		return fmt.Sprint(in.imm)
	case opParam:
		return e.param(in)
	case opGeometry:
		return geometryNames()[in.imm]
	case opSext, opZext, opTrunc:
		return arg(in.a)
	}
	if sign := xopSigns[in.op]; sign != "" {
		return "(" + arg(in.a) + " " + sign + " " + arg(in.b) + ")"
	}
	list := []string{arg(in.a)}
	if in.op >= opMulHiU && in.op <= opMaxS || in.op == opSelect {
		list = append(list, arg(in.b))
	}
	if in.op == opSelect {
		list = append(list, arg(in.c))
	}
	return xopNames[in.op] + "(" + strings.Join(list, ", ") + ")"
}

func (e *explainer) param(in *instr) string {
	for _, p := range e.s.Params {
		if off := in.imm - int64(p.Off); off >= 0 && off < int64(p.Size) {
			if off == 0 && int64(p.Size) == int64(in.w/8) {
				return p.Name
			}
			return fmt.Sprintf("%s+%d", p.Name, off)
		}
	}
	return fmt.Sprintf("param+%d", in.imm)
}
