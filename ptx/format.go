package ptx

import (
	"slices"
	"strconv"
	"strings"
)

// Format prints a module as PTX text. Parsing the text gives the same tree but
// for positions, and printing that tree gives the same text.
func Format(m *Module) []byte {
	f := printer{b: make([]byte, 0, 4096), comments: m.Comments}
	f.before(m.Pos)
	f.line(".version ", strconv.Itoa(m.Version.Major), ".", strconv.Itoa(m.Version.Minor))
	if len(m.Target) > 0 {
		f.line(".target ", strings.Join(m.Target, ", "))
	}
	f.line(".address_size ", strconv.Itoa(m.AddressSize))
	for i, d := range m.Decls {
		pos := declPos(d)
		if _, ok := d.(*Func); ok {
			f.s("\n")
		}
		f.before(pos)
		switch d := d.(type) {
		case *Var:
			f.vars([]*Var{d})
		case *Func:
			f.function(d)
		case *Alias:
			f.line(".alias ", d.Name, ", ", d.Aliasee, ";")
		case *File:
			f.file(d)
		case *Pragma:
			f.pragma(d)
		case *Section:
			f.section(d)
		}
		next := end
		if i+1 < len(m.Decls) {
			next = declPos(m.Decls[i+1])
		}
		switch d := d.(type) {
		case *Section:
			continue // its lines are not statements
		case *Func:
			switch {
			case d.Body != nil:
				pos = d.Body.End
			case len(d.Params)+len(d.ABI)+len(d.Perf) > 0 || d.NoReturn:
				continue // printed on several lines
			}
		}
		f.behind(pos, next)
	}
	f.before(end)
	return f.b
}

// String is the instruction as PTX text, with its guard and without the semicolon.
func (in *Inst) String() string {
	var f printer
	f.inst(in)
	return string(f.b)
}

// Opcode is the first word and the modifiers: "ld.global.f32".
func (in *Inst) Opcode() string {
	if len(in.Mods) == 0 {
		return in.Op
	}
	return in.Op + "." + strings.Join(in.Mods, ".")
}

// OperandString is an operand as PTX text.
func OperandString(o Operand) string {
	var f printer
	f.operand(o)
	return string(f.b)
}

// String is the declaration as PTX text, without the semicolon.
func (v *Var) String() string {
	var f printer
	f.head(v)
	f.declarator(v)
	return string(f.b)
}

// A printer appends text; depth is the indentation of the current block.
type printer struct {
	b        []byte
	depth    int
	comments []Comment // that are not printed yet
}

func (f *printer) s(parts ...string) {
	for _, p := range parts {
		f.b = append(f.b, p...)
	}
}

func (f *printer) int(n int64) { f.b = strconv.AppendInt(f.b, n, 10) }

func (f *printer) indent() {
	for range f.depth {
		f.b = append(f.b, '\t')
	}
}

func (f *printer) line(parts ...string) {
	f.indent()
	f.s(parts...)
	f.b = append(f.b, '\n')
}

func (f *printer) file(d *File) {
	f.indent()
	f.s(".file ", strconv.Itoa(d.Index), ` "`, d.Name, `"`)
	if d.Time != "" {
		f.s(", ", d.Time, ", ", d.Size)
	}
	f.s("\n")
}

func (f *printer) pragma(d *Pragma) {
	f.line(`.pragma "`, strings.Join(d.Strings, `", "`), `";`)
}

func (f *printer) section(d *Section) {
	if d.Name == "@@DWARF" {
		for _, l := range d.Lines {
			if l != "" {
				l = " " + l
			}
			f.s("@@DWARF", l, "\n")
		}
		return
	}
	f.line(".section ", d.Name, " {")
	for _, l := range d.Lines {
		f.line(l)
	}
	f.line("}")
}

func (f *printer) function(d *Func) {
	f.link(d.Link)
	kind := ".func "
	if d.Entry {
		kind = ".entry "
	}
	f.s(kind)
	f.attrs(d.Attrs)
	if len(d.Ret) > 0 {
		f.s("(")
		f.params(d.Ret, "", ", ")
		f.s(") ")
	}
	f.s(d.Name, "(")
	if len(d.Params) > 0 {
		f.s("\n")
		f.depth++
		for i, v := range d.Params {
			f.before(v.Pos)
			f.indent()
			f.params(d.Params[i:i+1], "", "")
			if i+1 < len(d.Params) {
				f.s(",\n")
				f.behind(v.Pos, d.Params[i+1].Pos)
			} else {
				f.s("\n")
				f.behind(v.Pos, d.headerEnd())
			}
		}
		f.depth--
	}
	f.s(")")
	if d.NoReturn {
		f.s("\n.noreturn")
	}
	for _, list := range [][]Directive{d.ABI, d.Perf} {
		for _, x := range list {
			f.s("\n")
			f.before(x.Pos)
			f.directive(x)
		}
	}
	if d.Body == nil {
		f.s(";\n")
		return
	}
	f.s("\n")
	f.before(d.Body.Pos)
	f.block(d.Body)
}

// headerEnd is the position of what follows the parameters.
func (d *Func) headerEnd() Pos {
	at := end
	if d.Body != nil {
		at = d.Body.Pos
	}
	for _, list := range [][]Directive{d.ABI, d.Perf} {
		for _, x := range list {
			if x.Pos.Offset < at.Offset {
				at = x.Pos
			}
		}
	}
	return at
}

func (f *printer) directive(d Directive) {
	f.s(d.Name)
	if len(d.Args) > 0 {
		f.s(" ", strings.Join(d.Args, ", "))
	}
	if d.Name == ".pragma" {
		f.s(";")
	}
}

func (f *printer) link(l Linkage) {
	if l != LinkNone {
		f.s(".", l.String(), " ")
	}
}

func (f *printer) attrs(list []Attribute) {
	if len(list) == 0 {
		return
	}
	f.s(".attribute(")
	for i, a := range list {
		if i > 0 {
			f.s(", ")
		}
		f.s(a.Name)
		if len(a.Args) > 0 {
			f.s("(", strings.Join(a.Args, ", "), ")")
		}
	}
	f.s(") ")
}

// params prints a parameter list; sep ends in the white space before indent.
func (f *printer) params(list []*Var, indent, sep string) {
	for i, v := range list {
		if i > 0 {
			f.s(sep, indent)
		}
		f.head(v)
		f.declarator(v)
		if v.Name == "" {
			f.b = f.b[:len(f.b)-1]
		}
	}
}

// head prints a declaration up to its first name, with a blank at the end.
func (f *printer) head(v *Var) {
	f.link(v.Link)
	f.s(".", v.Space.String())
	if v.Bank != 0 {
		f.s("[", strconv.Itoa(v.Bank), "]")
	}
	f.s(" ")
	f.attrs(v.Attrs)
	if v.Align != 0 {
		f.s(".align ", strconv.Itoa(v.Align), " ")
	}
	if v.Vec != 0 {
		f.s(".v", strconv.Itoa(v.Vec), " ")
	}
	f.s(".", v.Type.String(), " ")
	if v.Ptr != nil {
		f.s(".ptr ")
		if v.Ptr.Space != SpaceGeneric {
			f.s(".", v.Ptr.Space.String(), " ")
		}
		if v.Ptr.Align != 0 {
			f.s(".align ", strconv.Itoa(v.Ptr.Align), " ")
		}
	}
}

func (f *printer) declarator(v *Var) {
	f.s(v.Name)
	if v.Count > 0 {
		f.s("<", strconv.Itoa(v.Count), ">")
	}
	for _, n := range v.Dims {
		f.s("[")
		if n >= 0 {
			f.int(int64(n))
		}
		f.s("]")
	}
	if v.Init != nil {
		f.s(" = ")
		f.init(v.Init)
	}
}

// sameHead reports whether two variables can share a declaration.
func sameHead(a, b *Var) bool {
	ptr := a.Ptr == b.Ptr || a.Ptr != nil && b.Ptr != nil && *a.Ptr == *b.Ptr
	return ptr && a.Link == b.Link && a.Space == b.Space && a.Bank == b.Bank && a.Align == b.Align && a.Vec == b.Vec &&
		a.Type == b.Type && slices.EqualFunc(a.Attrs, b.Attrs, func(x, y Attribute) bool {
		return x.Name == y.Name && slices.Equal(x.Args, y.Args)
	})
}

func (f *printer) vars(list []*Var) {
	for i, v := range list {
		switch {
		case i == 0:
			f.indent()
			f.head(v)
		case sameHead(list[i-1], v):
			f.s(", ")
		default:
			f.s(";\n")
			f.indent()
			f.head(v)
		}
		f.declarator(v)
	}
	if len(list) > 0 {
		f.s(";\n")
	}
}

func (f *printer) init(in *Init) {
	if in.Field != "" {
		f.s(in.Field, " = ")
	}
	if in.Value != nil {
		f.operand(in.Value)
		return
	}
	f.s("{")
	for i, x := range in.List {
		if i > 0 {
			f.s(", ")
		}
		f.init(x)
	}
	f.s("}")
}

func (f *printer) block(b *Block) {
	f.line("{")
	f.depth++
	if len(f.comments) == 0 {
		for _, s := range b.Stmts {
			f.stmt(s)
		}
	} else {
		for i, s := range b.Stmts {
			pos, next := stmtPos(s), b.End
			if i+1 < len(b.Stmts) {
				next = stmtPos(b.Stmts[i+1])
			}
			f.before(pos)
			f.stmt(s)
			switch s := s.(type) {
			case *Section:
				continue
			case *Block:
				pos = s.End
			}
			f.behind(pos, next)
		}
		f.before(b.End)
	}
	f.depth--
	f.line("}")
}

func (f *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Inst:
		f.indent()
		f.inst(s)
		f.s(";\n")
	case *Label:
		f.s(s.Name, ":\n")
	case *Block:
		f.block(s)
	case *VarStmt:
		f.vars(s.Vars)
	case *Loc:
		f.indent()
		f.s(".loc ", strconv.Itoa(s.File), " ", strconv.Itoa(s.Line), " ", strconv.Itoa(s.Col))
		if s.FunctionName != "" {
			f.s(", function_name ", s.FunctionName)
		}
		if s.InlinedAt != "" {
			f.s(", inlined_at ", s.InlinedAt)
		}
		f.s("\n")
	case *Pragma:
		f.pragma(s)
	case *File:
		f.file(s)
	case *Section:
		f.section(s)
	case *BranchTargets:
		f.line(s.Name, ": .branchtargets ", strings.Join(s.Labels, ", "), ";")
	case *CallTargets:
		f.line(s.Name, ": .calltargets ", strings.Join(s.Funcs, ", "), ";")
	case *CallPrototype:
		f.indent()
		f.s(s.Name, ": .callprototype ")
		if len(s.Ret) > 0 {
			f.s("(")
			f.params(s.Ret, "", ", ")
			f.s(") ")
		}
		f.s("_ (")
		f.params(s.Params, "", ", ")
		f.s(")")
		if s.NoReturn {
			f.s(" .noreturn")
		}
		for _, d := range s.ABI {
			f.s(" ")
			f.directive(d)
		}
		f.s(";\n")
	}
}

func (f *printer) inst(in *Inst) {
	if g := in.Guard; g != nil {
		f.s("@")
		if g.Not {
			f.s("!")
		}
		f.s(g.Reg, " ")
	}
	f.s(in.Op)
	for _, m := range in.Mods {
		f.s(".", m)
	}
	if in.Call != nil {
		f.call(in.Call)
		return
	}
	f.operands(" ", in.Args)
}

func (f *printer) call(c *Call) {
	f.s(" ")
	if len(c.Ret) > 0 {
		f.operands("(", c.Ret)
		f.s("), ")
	}
	f.operand(c.Callee)
	if len(c.Params) > 0 {
		f.operands(", (", c.Params)
		f.s(")")
	}
	if c.Proto != "" {
		f.s(", ", c.Proto)
	}
}

// operands prints a list with before in front of it, unless it is empty.
func (f *printer) operands(before string, list []Operand) {
	for i, o := range list {
		if i == 0 {
			f.s(before)
		} else {
			f.s(", ")
		}
		f.operand(o)
	}
}

func (f *printer) operand(o Operand) {
	switch o := o.(type) {
	case *Ref:
		f.s(o.Name)
		if o.Comp != "" {
			f.s(".", o.Comp)
		}
	case *Imm:
		f.imm(o)
	case *Vector:
		f.s("{")
		f.operands("", o.Elems)
		f.s("}")
	case *Addr:
		f.s("[")
		f.operand(o.Base)
		if o.Off != 0 || o.Plus0 {
			f.s("+")
			f.int(o.Off)
		}
		f.operands(", ", o.Coords)
		f.s("]")
		if o.Unified {
			f.s(".unified")
		}
	case *Neg:
		if o.Not {
			f.s("!")
		} else {
			f.s("-")
		}
		f.operand(o.X)
	case *Pair:
		f.operand(o.A)
		f.s("|")
		f.operand(o.B)
	case *Generic:
		f.generic(o)
	case *Index:
		f.s(o.Name, "[")
		f.int(o.Index)
		f.s("]")
	case *Mask:
		f.s("0x", strconv.FormatUint(o.Bits, 16), "(")
		if o.X != nil {
			f.generic(o.X)
		}
		f.s(")")
	case *Sink:
		f.s("_")
	}
}

func (f *printer) generic(g *Generic) {
	if g.Generic {
		f.s("generic(", g.Name, ")")
	} else {
		f.s(g.Name)
	}
	if g.Off != 0 {
		f.s("+")
		f.int(g.Off)
	}
}

// imm prints the source spelling where there is one, else the value.
func (f *printer) imm(i *Imm) {
	if i.Text != "" {
		f.s(i.Text)
		return
	}
	f.s(value{i.Kind, i.Bits}.text())
}
