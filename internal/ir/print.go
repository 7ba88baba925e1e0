package ir

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

var opNames = [numOps]string{"other", "compute", "phi", "mov", "pack", "unpack", "add", "sub", "mul", "mulwide", "mad",
	"madwide", "div", "rem",
	"min", "max", "neg", "abs", "and", "or", "xor", "not", "shl", "shr", "convert", "compare", "comparewith",
	"select", "mulhigh", "fma", "addcarry",
	"subborrow", "popcount", "leadingzeros", "reverse", "insert", "extract", "logic3", "funnelleft", "funnelright",
	"permute", "togeneric", "fromgeneric", "load", "store",
	"atomic", "copy", "prefetch", "fence", "barrier", "collective", "call", "branch", "switch",
	"return", "exit", "trap"}

func (op Op) String() string {
	if op < numOps {
		return opNames[op]
	}
	return "?"
}

var relNames = [...]string{"", "eq", "ne", "lt", "le", "gt", "ge"}

func (r Rel) String() string { return relNames[r] }

var spaceNames = [...]string{"generic", "global", "shared", "cluster", "local", "const", "param"}

func (s Space) String() string { return spaceNames[s] }

var effectNames = [...]string{"orders", "anyread", "anywrite", "fixed", "warpwide", "blockwide"}

var levelNames = [...]string{"grid", "block", "warp", "thread"}

func (l Level) String() string { return levelNames[l] }

const kindLetters = "?pbsufxghk"

// String is "s32", "pred", "x16", or "?" for an unknown type.
func (t Type) String() string {
	switch t.Kind {
	case NoKind:
		return "?"
	case Pred:
		return "pred"
	}
	return kindLetters[t.Kind:t.Kind+1] + strconv.Itoa(int(t.Width))
}

func (x Operand) String() string {
	var s string
	switch x.Kind {
	case NoOperand:
		return "-"
	case Value:
		s = fmt.Sprintf("v%d", x.Val)
	case Constant:
		if n := int64(x.Bits); n > -1<<20 && n < 1<<20 {
			s = strconv.FormatInt(n, 10)
		} else {
			s = fmt.Sprintf("%#x", x.Bits)
		}
	case Special:
		s = "$" + x.Reg.Name
	case Symbol:
		s = "&" + x.Name
		if x.Bits != 0 {
			s += fmt.Sprintf("%+d", int64(x.Bits))
		}
	case Undef:
		s = "undef"
	}
	if x.Part != "" {
		s += ":" + x.Part
	}
	if x.Mod&Negated != 0 {
		s = "~" + s
	}
	if x.Mod&Complement != 0 {
		s = "!" + s
	}
	return s
}

// Format is the text of a function, which Read reads. With notes, comments say what the
// passes found out.
func Format(f *Func, notes bool) []byte {
	p := &printer{f: f, notes: notes}
	p.function()
	return p.out.Bytes()
}

// FormatModule is the text of a module, which ReadModule reads: what its functions know together, then those that
// could be made.
func FormatModule(m *Module) []byte {
	var out bytes.Buffer
	out.WriteString("module\n")
	for _, list := range [...]struct {
		word  string
		names map[string]bool
	}{{"global", m.Vars}, {"shadowed", m.Shadowed}, {"noreturn", m.NoReturn}} {
		for _, name := range slices.Sorted(maps.Keys(list.names)) {
			fmt.Fprintf(&out, "%s %s\n", list.word, name)
		}
	}
	for _, f := range m.Funcs {
		if f.Err == nil {
			out.Write(Format(f, false))
		}
	}
	return out.Bytes()
}

type printer struct {
	f     *Func
	notes bool
	out   bytes.Buffer
}

func (p *printer) function() {
	f := p.f
	kind := "function"
	if f.Kernel {
		kind = "kernel"
	}
	form := ""
	if f.SSA {
		form = " ssa"
	}
	fmt.Fprintf(&p.out, "%s %s%s\n", kind, f.Name, form)
	if l := f.Limits; l != (Limits{}) {
		fmt.Fprintf(&p.out, "limits threads %d %d %d cluster %d %d %d\n", l.MaxThread[0], l.MaxThread[1],
			l.MaxThread[2],
			l.Cluster[0], l.Cluster[1], l.Cluster[2])
	}
	if f.Pos != 0 {
		fmt.Fprintf(&p.out, "line %d\n", f.Pos)
	}
	for _, v := range f.Vars {
		if v.Param {
			fmt.Fprintf(&p.out, "param %s %s +%d size %d align %d\n", v.Name, v.Space, v.Off, v.Size, v.Align)
		} else if v.Result {
			fmt.Fprintf(&p.out, "result %s %s size %d align %d\n", v.Name, v.Space, v.Size, v.Align)
		} else {
			fmt.Fprintf(&p.out, "var %s %s size %d align %d\n", v.Name, v.Space, v.Size, v.Align)
		}
	}
	p.registers()
	if !f.SSA {
		for i, v := range f.Vals {
			fmt.Fprintf(&p.out, "register v%d:%s %s\n", i, v.Type, v.Name)
		}
	}
	for _, b := range f.Blocks {
		p.block(b)
	}
	p.out.WriteString("end\n")
}

// registers declares the special registers that are read, in the order in which they are.
func (p *printer) registers() {
	seen := map[*Register]bool{}
	for _, b := range p.f.Blocks {
		for _, in := range b.Insts {
			in.Uses(func(x *Operand) {
				if x.Kind == Special && !seen[x.Reg] {
					seen[x.Reg] = true
					p.out.WriteString(x.Reg.String() + "\n")
				}
			})
		}
	}
}

// String is "special tid.x:u32 threadindex 0 thread fixed launch max 1023".
func (r *Register) String() string {
	s := fmt.Sprintf("special %s:%s", r.Name, r.Type)
	if r.Is != NoCoordinate {
		s += fmt.Sprintf(" %s %d", coordinateNames[r.Is], r.Dim)
	}
	s += " " + r.Same.String()
	if r.Fixed {
		s += " fixed"
	}
	s += " " + sourceNames[r.From]
	if r.Max > 0 {
		s += fmt.Sprintf(" max %d", r.Max)
	}
	return s
}

func (p *printer) block(b *Block) {
	fmt.Fprintf(&p.out, "b%d:", b.Index)
	if p.notes {
		p.blockNotes(b)
	}
	p.out.WriteByte('\n')
	for _, in := range b.Insts {
		p.out.WriteString("  ")
		p.inst(in)
		if in == b.End() {
			p.arcs(b)
		}
		if p.notes {
			p.instNotes(in)
		}
		p.out.WriteByte('\n')
	}
	if b.End() == nil {
		p.out.WriteString(" ")
		p.arcs(b)
		p.out.WriteByte('\n')
	}
}

func (p *printer) arcs(b *Block) {
	if len(b.Succs) > 0 {
		p.out.WriteString(" ->")
	}
	for _, e := range b.Succs {
		fmt.Fprintf(&p.out, " b%d", e.Block.Index)
	}
}

// inst writes: results = @guard op.rel:type<-type2 (attributes) space "name" operands else operands accesses {effects}
// at pos
func (p *printer) inst(in *Inst) {
	w := &p.out
	for i, d := range in.Defs {
		if i > 0 {
			w.WriteString(", ")
		}
		p.def(d)
	}
	if len(in.Defs) > 0 {
		w.WriteString(" = ")
	}
	if in.Guarded() {
		fmt.Fprintf(w, "@%s ", in.Guard)
	}
	w.WriteString(in.Op.String())
	if in.Rel != NoRel {
		w.WriteString("." + in.Rel.String())
	}
	if in.Type != (Type{}) || in.Type2 != (Type{}) {
		w.WriteString(":" + in.Type.String())
	}
	if in.Type2 != (Type{}) {
		w.WriteString("<-" + in.Type2.String())
	}
	if list := in.attributes(); len(list) > 0 {
		w.WriteString(" (" + strings.Join(list, " ") + ")")
	}
	if in.Space != Generic {
		w.WriteString(" " + in.Space.String())
	}
	if in.Name != "" {
		w.WriteString(" " + strconv.Quote(in.Name))
	}
	for i, x := range in.Args {
		p.separator(i)
		w.WriteString(x.String())
	}
	if len(in.Else) > 0 {
		w.WriteString(" else")
	}
	for i, x := range in.Else {
		p.separator(i)
		w.WriteString(x.String())
	}
	for _, m := range in.Mem {
		p.access(m)
	}
	if in.Effect != 0 {
		var names []string
		for i, n := range effectNames {
			if in.Effect&(1<<i) != 0 {
				names = append(names, n)
			}
		}
		w.WriteString(" {" + strings.Join(names, " ") + "}")
	}
	if in.Pos != 0 {
		fmt.Fprintf(w, " at %d", in.Pos)
	}
}

func (p *printer) separator(i int) {
	if i > 0 {
		p.out.WriteByte(',')
	}
	p.out.WriteByte(' ')
}

// def writes v12:s32(%r5): where a value is defined its type and register are said.
func (p *printer) def(d ValID) {
	if d == None {
		p.out.WriteByte('_')
		return
	}
	fmt.Fprintf(&p.out, "v%d", d)
	if p.f.SSA {
		fmt.Fprintf(&p.out, ":%s(%s)", p.f.Vals[d].Type, p.f.Vals[d].Name)
	}
}

func (p *printer) access(m Access) {
	p.out.WriteByte(' ')
	if m.Read {
		p.out.WriteByte('r')
	}
	if m.Write {
		p.out.WriteByte('w')
	}
	if !m.Read && !m.Write {
		p.out.WriteByte('n')
	}
	fmt.Fprintf(&p.out, " %s[%s%+d]*%d", m.Space, m.Base, m.Off, m.Bytes)
	if m.Later {
		p.out.WriteString(" later")
	}
	if m.Partly {
		p.out.WriteString(" partly")
	}
	if t := m.Tile; t != nil {
		fmt.Fprintf(&p.out, " tile %d*%d step %d*%d", t.Rows, t.Bytes, t.Stride, t.Elem)
	}
}

func (p *printer) blockNotes(b *Block) {
	var notes []string
	f := p.f
	if f.Dom != nil && b.Index > 0 {
		notes = append(notes, fmt.Sprintf("dom b%d", f.Dom.Parent[b.Index]))
	}
	if f.PostDom != nil {
		if d := f.PostDom.Parent[b.Index]; d == f.PostDom.Root {
			notes = append(notes, "pdom end")
		} else {
			notes = append(notes, fmt.Sprintf("pdom b%d", d))
		}
	}
	if f.Uniform != nil && f.Uniform.Control[b.Index] != SameGrid {
		if level := f.Uniform.Control[b.Index]; level == Varies {
			notes = append(notes, "some threads")
		} else {
			notes = append(notes, fmt.Sprintf("whole %ss", level))
		}
	}
	if f.Live != nil && len(f.Live.In[b.Index]) > 0 {
		notes = append(notes, fmt.Sprintf("live %s", valueList(f.Live.In[b.Index])))
	}
	if f.Loops != nil {
		if l := f.Loops.Of[b.Index]; l != nil {
			notes = append(notes, fmt.Sprintf("loop b%d", l.Header.Index))
			if l.Header == b {
				notes = append(notes, l.notes()...)
			}
		}
	}
	if len(notes) > 0 {
		p.out.WriteString(" ; " + strings.Join(notes, "; "))
	}
}

// maxListed bounds how many values a note lists.
const maxListed = 12

func valueList(vs []ValID) string {
	var words []string
	for _, v := range vs[:min(len(vs), maxListed)] {
		words = append(words, fmt.Sprintf("v%d", v))
	}
	if len(vs) > maxListed {
		words = append(words, fmt.Sprintf("and %d more", len(vs)-maxListed))
	}
	return strings.Join(words, " ")
}

// notes says what is known of a loop.
func (l *Loop) notes() []string {
	notes := []string{fmt.Sprintf("depth %d", l.Depth)}
	if l.Irreducible {
		notes = append(notes, "irreducible")
	}
	for _, iv := range l.Inductions {
		notes = append(notes, iv.String())
	}
	if l.Trip != nil {
		notes = append(notes, l.Trip.String())
	}
	return notes
}

// String is "v3 = 0, then add 4".
func (iv Induction) String() string {
	return fmt.Sprintf("v%d = %s, then %s %s", iv.Phi, iv.Init, iv.Op, iv.Step)
}

// String is "goes on while v3+1 lt:s32 v7", and how often if that is known.
func (t *Trip) String() string {
	v := t.Phi
	if t.Ahead {
		v = t.Next
	}
	s := fmt.Sprintf("goes on while v%d", v)
	if t.Off != 0 {
		s += fmt.Sprintf("%+d", t.Off)
	}
	s += fmt.Sprintf(" %s:%s %s", t.While, t.Type, t.Bound)
	switch {
	case t.Known && t.Exact:
		s += fmt.Sprintf(", %d times", t.Count)
	case t.Known:
		s += fmt.Sprintf(", at most %d times", t.Count)
	case !t.Exact:
		s += ", at most"
	}
	return s
}

func (p *printer) instNotes(in *Inst) {
	if p.f.Uniform == nil || len(in.Defs) == 0 || in.Defs[0] == None {
		return
	}
	if level := p.f.Uniform.Val[in.Defs[0]]; level == Varies {
		p.out.WriteString(" ; varies")
	} else {
		fmt.Fprintf(&p.out, " ; same in the %s", level)
	}
}
