package footprint

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"holdfast/internal/footprint/form"
	"holdfast/internal/isa"
)

// Explain writes how the range of every access of a launch was found: the line, the formula of its
// address, the guards that were used, and the numbers. Without a launch, nil, there are no numbers.
func (s *Summary) Explain(l *Launch, w io.Writer) error {
	if l == nil {
		e := &explainer{s: s, p: &s.Code, w: w}
		e.printf("%s: %v", s.Name, s.Class)
		if s.Cause != NoCause {
			e.printf(", %v (line %d)", s.Cause, s.At)
		}
		e.printf("\n")
		for i := range s.Code.Ctxs {
			c := &s.Code.Ctxs[i]
			for a := c.A0; a < c.A1; a++ {
				e.access(&s.Code.Accs[a], nil)
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
	if len(in.m.regs) != len(p.Ops) || in.Cause == BadLaunch {
		return e.err
	}
	in.m.launch = l
	for i := range p.Ctxs {
		in.m.context(i)
		c := &p.Ctxs[i]
		for a := c.A0; a < c.A1; a++ {
			e.access(&p.Accs[a], &in.m.results[a])
		}
		e.facts(c)
	}
	return e.err
}

type explainer struct {
	s   *Summary
	m   *machine // nil: no launch
	p   *Program
	w   io.Writer
	err error
}

func (e *explainer) printf(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

func (a *Access) verb() string {
	switch {
	case a.Kind == IsUpdate:
		return "reads and changes"
	case a.Kind == IsSettle:
		return "settles"
	case a.Kind == IsWrite:
		return "writes"
	case a.Hidden:
		return "reads what the thread itself has written"
	}
	return "reads"
}

func (e *explainer) access(a *Access, r *extent) {
	f := &e.p.Forms[a.Form]
	e.printf("line %d %s %s\n", a.Pos, a.verb(), count(a.Bytes))
	at := e.form(f)
	if a.Off != 0 {
		at += fmt.Sprintf(" + %d", a.Off)
	}
	if a.Step > 0 {
		at += fmt.Sprintf(" + %d*[0, %d]", a.Step, a.Count-1)
	} else if a.Count == 0 {
		at += fmt.Sprintf(" and on to %d bytes", a.Span)
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
		e.printf("  range    bytes %d to %d of a variable of the module\n", int64(r.lo-variableBase),
			int64(r.hi-variableBase)-1)
	default:
		e.printf("  range    [%#x, %#x)\n", r.lo, r.hi)
	}
	for _, t := range e.p.Terms[f.T0:f.T1] {
		e.printf("  with     %s in %s\n", e.variable(t.V), e.m.vars[t.V])
	}
}

// missing says why a form has no range.
func (e *explainer) missing(f *Form, a *Access) string {
	if a.Bytes == 0 {
		return "how much is accessed is not known"
	}
	for _, id := range e.p.Lists[f.K0:f.K1] {
		if !e.m.check(id) {
			c := &e.p.Checks[id]
			return fmt.Sprintf("%s is in %s, which may not fit %s", e.form(&e.p.Forms[c.Form]),
				e.m.total(&e.p.Forms[c.Form]), c.In)
		}
	}
	for _, t := range e.p.Terms[f.T0:f.T1] {
		if !e.m.vars[t.V].Bounded() {
			return e.variable(t.V) + " has no bound"
		}
	}
	return "it is too large"
}

// facts lists what was known in a context.
func (e *explainer) facts(c *Context) {
	for _, x := range e.p.Lists[c.C0:c.C1] {
		not := ""
		if x&1 != 0 {
			not = "not "
		}
		e.printf("  where    %s%s\n", not, e.value(x>>1, 0))
	}
	for _, st := range e.p.Steps[c.S0:c.S1] {
		if !st.Guard {
			continue
		}
		g := &e.p.Guards[st.Index]
		f := &e.p.Forms[g.Form]
		switch {
		case g.Exit != 0:
			e.printf("  loop     %s\n", e.form(f))
		case g.Wrap != 0:
			e.printf("  where    %s, as an unsigned number, is below %s\n", e.form(f), e.value(g.Top, 0))
		case g.Not0:
			e.printf("  where    %s is not 0\n", e.form(f))
		default:
			e.printf("  where    %s is in %s\n", e.form(f), g.In)
		}
		if e.m != nil && e.m.active[st.Index] {
			e.printf("           so its terms are in %s\n", e.m.within[st.Index])
		}
	}
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
func (e *explainer) form(f *Form) string {
	var parts []string
	if f.Sym > 0 {
		parts = append(parts, e.s.Globals[f.Sym-1].Name)
	} else if f.Sym < 0 {
		parts = append(parts, "a variable")
	}
	if in := e.p.Ops[f.C]; in.Op != form.OpConst || in.Imm != 0 {
		parts = append(parts, e.value(f.C, 0))
	}
	for _, t := range e.p.Terms[f.T0:f.T1] {
		v := e.variable(t.V)
		if in := e.p.Ops[t.Coef]; in.Op != form.OpConst || in.Imm != 1 {
			v = e.value(t.Coef, 0) + "*" + v
		}
		parts = append(parts, v)
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}

// coordinateNames and geometryNames are the special registers that hold what OpThread and OpGeometry read.
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

var vkindNames = map[form.Kind]string{form.KindDivU: "/", form.KindDivS: "/", form.KindRemU: "%", form.KindRemS: "%",
	form.KindMulHiU: "mulhi", form.KindMulHiS: "mulhi", form.KindMul: "*", form.KindMinU: "min", form.KindMinS: "min",
	form.KindMaxU: "max", form.KindMaxS: "max", form.KindAbs: "abs", form.KindAnd: "&", form.KindOr: "|",
	form.KindXor: "^", form.KindShl: "<<", form.KindShrU: ">>", form.KindShrS: ">>", form.KindOne: "one of",
	form.KindHalf: "halves of", form.KindBetween: "between"}

func (e *explainer) variable(v int32) string {
	x := &e.p.Vars[v]
	switch x.Kind {
	case form.KindThread:
		return coordinateNames()[x.Imm]
	case form.KindCounter:
		return fmt.Sprintf("rounds%d", x.Imm)
	case form.KindAny:
		return fmt.Sprintf("loaded%d", v)
	case form.KindFlag:
		return fmt.Sprintf("flag%d", v)
	case form.KindBits:
		return fmt.Sprintf("bits%d", v)
	}
	var args []string
	for _, a := range e.p.Args[x.A0:x.A1] {
		args = append(args, e.form(&e.p.Forms[a.Form]))
	}
	switch x.Kind {
	case form.KindTest:
		return fmt.Sprintf("[%s <= %d]", args[0], x.Imm)
	case form.KindFloor:
		return fmt.Sprintf("(%s)/%d", args[0], x.Imm)
	case form.KindMod:
		return fmt.Sprintf("(%s)%%%d", args[0], x.Imm)
	case form.KindExt:
		return "(" + args[0] + ")"
	case form.KindCurve:
		return "scaled(" + args[0] + ")"
	case form.KindParam:
		return "parameters(" + args[0] + ")"
	case form.KindTable:
		return "memory(" + args[0] + ")"
	}
	return vkindNames[x.Kind] + "(" + strings.Join(args, ", ") + ")"
}

var xopSigns = map[form.Op]string{form.OpAdd: "+", form.OpSub: "-", form.OpMul: "*", form.OpDivU: "/",
	form.OpDivS: "/", form.OpRemU: "%", form.OpRemS: "%", form.OpAnd: "&", form.OpOr: "|", form.OpXor: "^",
	form.OpShl: "<<", form.OpShrU: ">>", form.OpShrS: ">>", form.OpEQ: "==", form.OpNE: "!=", form.OpLTU: "<",
	form.OpLTS: "<", form.OpLEU: "<=", form.OpLES: "<="}

var xopNames = map[form.Op]string{form.OpMulHiU: "mulhi", form.OpMulHiS: "mulhi", form.OpMinU: "min",
	form.OpMinS: "min", form.OpMaxU: "max", form.OpMaxS: "max", form.OpNeg: "-", form.OpAbs: "abs",
	form.OpNot: "not", form.OpPopc: "popc", form.OpClz: "clz", form.OpSelect: "select"}

// value is the text of a uniform value.
func (e *explainer) value(r int32, depth int) string {
	in := &e.p.Ops[r]
	if depth > 12 {
		return "…"
	}
	arg := func(i int32) string { return e.value(i, depth+1) }
	switch in.Op {
	case form.OpConst:
		return fmt.Sprint(in.Imm)
	case form.OpParam:
		return e.param(in)
	case form.OpGeometry:
		return geometryNames()[in.Imm]
	case form.OpSext, form.OpZext, form.OpTrunc:
		return arg(in.A)
	}
	if sign := xopSigns[in.Op]; sign != "" {
		return "(" + arg(in.A) + " " + sign + " " + arg(in.B) + ")"
	}
	list := []string{arg(in.A)}
	if in.Op >= form.OpMulHiU && in.Op <= form.OpMaxS || in.Op == form.OpSelect {
		list = append(list, arg(in.B))
	}
	if in.Op == form.OpSelect {
		list = append(list, arg(in.C))
	}
	return xopNames[in.Op] + "(" + strings.Join(list, ", ") + ")"
}

func (e *explainer) param(in *Instr) string {
	for _, p := range e.s.Params {
		if off := in.Imm - int64(p.Off); off >= 0 && off < int64(p.Size) {
			if off == 0 && int64(p.Size) == int64(in.W/8) {
				return p.Name
			}
			return fmt.Sprintf("%s+%d", p.Name, off)
		}
	}
	return fmt.Sprintf("param+%d", in.Imm)
}
