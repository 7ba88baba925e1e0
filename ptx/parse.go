package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads one PTX module. file names the source in errors. Zero bytes at the
// end, which modules embedded in programs have, are ignored. On failure the error
// is an ErrorList and the module is nil.
func Parse(file string, src []byte) (*Module, error) {
	if len(src) > MaxSource {
		return nil, ErrorList{{File: file, Pos: Pos{0, 1, 1},
			Msg: fmt.Sprintf("source has %d bytes, the limit is %d", len(src), MaxSource)}}
	}
	p := &parser{file: file}
	var comments []Comment
	p.scan = scanner{src: strings.TrimRight(string(src), "\x00"), line: 1, comments: &comments}
	m := p.module()
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	m.Comments = comments
	return m, nil
}

// A parser reads by recursive descent. After an error every token is tEOF until
// the statement that held it is given up (see recovered), so no production
// needs a special path for failure: what it built is thrown away.
type parser struct {
	file  string
	scan  scanner
	tok   kind // the current token: scan.kind, or tEOF after an error
	err   *Error
	errs  ErrorList
	depth int // nested blocks
	nest  int // nested expression
	nodes int // counted so far
	open  int // braces of vectors and initializers that are not closed yet

	// Nodes come from slabs: a module is read whole and kept whole.
	insts slab[Inst]
	refs  slab[Ref]
	imms  slab[Imm]
	addrs slab[Addr]
	ops   list[Operand]
	words list[string]
}

// A slab hands out zeroed values a block at a time.
type slab[T any] struct{ free []T }

func (s *slab[T]) alloc() *T {
	if len(s.free) == 0 {
		s.free = make([]T, 128)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// A list builds slices on a scratch stack and copies them into shared blocks.
// Each result has no spare capacity, so that appending to it cannot write into its neighbour.
type list[T any] struct {
	stack []T
	free  []T
}

func (l *list[T]) push(v T)  { l.stack = append(l.stack, v) }
func (l *list[T]) mark() int { return len(l.stack) }

func (l *list[T]) cut(mark int) []T {
	n := len(l.stack) - mark
	if n == 0 {
		return nil
	}
	if len(l.free) < n {
		l.free = make([]T, max(512, n))
	}
	v := l.free[:n:n]
	l.free = l.free[n:]
	copy(v, l.stack[mark:])
	clear(l.stack[mark:])
	l.stack = l.stack[:mark]
	return v
}

func (p *parser) next() {
	if p.err != nil {
		return
	}
	p.scan.next()
	p.tok = p.scan.kind
	if p.tok == tBad {
		p.fail("%s: %q", p.scan.msg, snippet(p.scan.text()))
	}
}

// count keeps the number of nodes within bounds: a source of two-byte statements
// would take a hundred times its size.
func (p *parser) count() {
	if p.nodes++; p.nodes > maxNodes {
		p.fail("the module has more than %d statements and operands", maxNodes)
	}
}

func (p *parser) lit() string { return p.scan.text() }
func (p *parser) pos() Pos    { return p.scan.pos() }

// fail records an error at the current token, unless there is one already.
func (p *parser) fail(format string, args ...any) {
	p.failAt(p.pos(), format, args...)
}

func (p *parser) failAt(pos Pos, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{File: p.file, Pos: pos, Msg: fmt.Sprintf(format, args...)}
	}
	p.tok = tEOF
}

// want fails with what was expected and what is there.
func (p *parser) want(what string) {
	if p.err == nil {
		p.fail("expected %s, found %s", what, p.found())
	}
}

func (p *parser) found() string {
	switch p.tok {
	case tEOF:
		return "the end of the source"
	case tIdent:
		return fmt.Sprintf("name %q", snippet(p.lit()))
	case tDot:
		return fmt.Sprintf("%q", snippet(p.lit()))
	case tNumber:
		return fmt.Sprintf("number %q", snippet(p.lit()))
	case tString:
		return "string " + snippet(p.lit())
	}
	return fmt.Sprintf("%q", snippet(p.lit()))
}

// got consumes the token if it is k.
func (p *parser) got(k kind) bool {
	if p.tok != k {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(k kind, what string) {
	if !p.got(k) {
		p.want(what)
	}
}

func (p *parser) ident(what string) string {
	if p.tok != tIdent {
		p.want(what)
		return ""
	}
	s := p.lit()
	p.next()
	return s
}

// recovered says whether an error is pending; it records the error and skips to
// the end of the statement, after which parsing can go on. In a body the
// closing brace is left for the block; at module scope a body is skipped with its header.
func (p *parser) recovered(inBody bool) bool {
	if p.err == nil {
		return false
	}
	if len(p.errs) < MaxErrors {
		p.errs = append(p.errs, p.err)
	}
	if len(p.errs) >= MaxErrors {
		return true // err stays set: everything is at its end
	}
	p.err = nil
	p.ops.stack, p.words.stack = p.ops.stack[:0], p.words.stack[:0]
	depth := p.open
	p.nest, p.open = 0, 0
	p.tok = p.scan.kind
	for ; ; p.skip() {
		switch p.tok {
		case tEOF:
			return true
		case '{':
			depth++
		case '}':
			if depth == 0 && inBody {
				return true
			}
			if depth--; depth <= 0 && !inBody {
				p.skip()
				return true
			}
		case ';':
			if depth == 0 {
				p.skip()
				return true
			}
		}
	}
}

// skip is next for tokens that nobody reads: bad ones are passed over.
func (p *parser) skip() {
	p.scan.next()
	p.tok = p.scan.kind
}

// module reads the whole source (PTX ISA, section 11.1).
func (p *parser) module() *Module {
	m := &Module{File: p.file, AddressSize: 32}
	p.next()
	m.Pos = p.pos()
	if p.tok != tDot || p.lit() != ".version" {
		p.want("the .version directive, which starts every module")
		p.errs = append(p.errs, p.err)
		return nil
	}
	p.version(m)
	p.recovered(false)
	for p.tok != tEOF {
		p.decl(m)
		if p.recovered(false) && p.err != nil {
			return nil
		}
	}
	if p.err == nil && len(p.errs) == 0 && len(m.Target) == 0 {
		p.fail("the module has no .target directive")
	}
	if p.err != nil && len(p.errs) < MaxErrors {
		p.errs = append(p.errs, p.err)
	}
	return m
}

func (p *parser) version(m *Module) {
	p.next()
	major, minor, ok := strings.Cut(p.lit(), ".")
	a, err1 := strconv.ParseUint(major, 10, 8)
	b, err2 := strconv.ParseUint(minor, 10, 8)
	if p.tok != tNumber || !ok || err1 != nil || err2 != nil {
		p.want("a version such as 8.4")
		return
	}
	m.Version = Version{int(a), int(b)}
	p.next()
}

// decl reads one declaration at module scope and appends it.
func (p *parser) decl(m *Module) {
	switch p.tok {
	case ';':
		p.next()
		return
	case tDwarf:
		s := p.dwarf()
		if n := len(m.Decls); n > 0 {
			if before, ok := m.Decls[n-1].(*Section); ok && before.merge(s) {
				return
			}
		}
		m.Decls = append(m.Decls, s)
		return
	case tDot:
	default:
		p.want("a directive")
		return
	}
	pos := p.pos()
	switch p.lit() {
	case ".version":
		p.fail("second .version directive")
	case ".target":
		p.next()
		for {
			name := p.ident("a target such as sm_90")
			if p.err != nil {
				return
			}
			m.Target = append(m.Target, name)
			if !p.got(',') {
				return
			}
		}
	case ".address_size":
		p.next()
		n := p.integer("32 or 64", 64)
		if n != 32 && n != 64 {
			p.failAt(pos, "address size is 32 or 64, not %d", n)
		}
		m.AddressSize = int(n)
	case ".file":
		m.Decls = append(m.Decls, p.fileDirective())
	case ".pragma":
		m.Decls = append(m.Decls, p.pragma())
	case ".section":
		m.Decls = append(m.Decls, p.section())
	case ".alias":
		p.next()
		a := &Alias{Pos: pos, Name: p.ident("a function name")}
		p.expect(',', "','")
		a.Aliasee = p.ident("a function name")
		p.expect(';', "';'")
		m.Decls = append(m.Decls, a)
	default:
		link := p.linkage()
		switch {
		case p.tok == tDot && (p.lit() == ".entry" || p.lit() == ".func"):
			if f := p.function(pos, link); p.err == nil {
				m.Decls = append(m.Decls, f)
			}
		default:
			for _, v := range p.vars(pos, link) {
				m.Decls = append(m.Decls, v)
			}
		}
	}
}

func (p *parser) linkage() Linkage {
	if p.tok == tDot {
		if l, ok := lookupLink(p.lit()[1:]); ok {
			p.next()
			return l
		}
	}
	return LinkNone
}

// fileDirective reads .file (section 11.5.3); it has no terminator.
func (p *parser) fileDirective() *File {
	f := &File{Pos: p.pos()}
	p.next()
	f.Index = p.plain("a file number")
	f.Name = p.str("a file name")
	if p.got(',') {
		f.Time = p.numberText("a time stamp")
		p.expect(',', "',' and a file size")
		f.Size = p.numberText("a file size")
	}
	return f
}

func (p *parser) str(what string) string {
	if p.tok != tString {
		p.want(what)
		return ""
	}
	s := p.lit()
	p.next()
	return s[1 : len(s)-1]
}

// plain reads a number of a directive that has no terminator: an expression
// could run into the next statement.
func (p *parser) plain(what string) int {
	pos := p.pos()
	v, err := strconv.ParseUint(p.numberText(what), 0, 31)
	if err != nil && p.err == nil {
		p.failAt(pos, "expected %s below 2147483648", what)
	}
	return int(v)
}

func (p *parser) numberText(what string) string {
	if p.tok != tNumber {
		p.want(what)
		return ""
	}
	s := p.lit()
	p.next()
	return s
}

func (p *parser) pragma() *Pragma {
	d := &Pragma{Pos: p.pos()}
	p.next()
	for {
		d.Strings = append(d.Strings, p.str("a string"))
		if !p.got(',') {
			break
		}
	}
	p.expect(';', "';' after the pragma")
	return d
}

// dwarf gathers consecutive @@DWARF lines (section 11.5.1, deprecated).
func (p *parser) dwarf() *Section {
	s := &Section{Pos: p.pos(), Name: "@@DWARF"}
	for p.tok == tDwarf {
		line, ok := strings.CutPrefix(p.lit(), "@@DWARF")
		if !ok || line != "" && class[line[0]]&cBlank == 0 {
			p.fail("expected @@DWARF, found %q", snippet(p.lit()))
			return s
		}
		s.Lines = append(s.Lines, strings.TrimSpace(line))
		p.next()
	}
	return s
}

// merge appends s to before when both are runs of @@DWARF lines: printed one after
// the other they are one.
func (before *Section) merge(s *Section) bool {
	if s == nil || before.Name != "@@DWARF" || s.Name != "@@DWARF" {
		return false
	}
	before.Lines = append(before.Lines, s.Lines...)
	return true
}

// section reads a debug section (section 11.5.2): a label or a data line a
// line. Data lines keep their spelling.
func (p *parser) section() *Section {
	s := &Section{Pos: p.pos()}
	p.next()
	if p.tok != tDot && p.tok != tIdent {
		p.want("a section name")
		return s
	}
	s.Name = p.lit()
	p.next()
	p.expect('{', "'{' after the section name")
	for p.tok != '}' && p.tok != tEOF {
		s.Lines = append(s.Lines, p.sectionLine())
	}
	p.expect('}', "'}' at the end of the section")
	return s
}

func (p *parser) sectionLine() string {
	start, mark := p.scan.start, p.words.mark()
	end := start
	take := func() {
		p.words.push(p.lit())
		end = p.scan.off
		p.next()
	}
	switch p.tok {
	case tIdent:
		take()
		if p.tok != ':' {
			p.want("':' after a label of a section")
		}
		take()
	case tDot:
		switch p.lit() {
		case ".b8", ".b16", ".b32", ".b64":
		default:
			p.want(".b8, .b16, .b32, .b64 or a label")
		}
		take()
		for {
			if p.tok == '-' {
				take()
			}
			if p.tok != tNumber && p.tok != tIdent && p.tok != tDot {
				p.want("a number, a label or a section name")
			}
			take()
			if p.tok == '+' || p.tok == '-' {
				take()
				if p.tok != tNumber && p.tok != tIdent {
					p.want("a number or a label")
				}
				take()
			}
			if p.tok != ',' {
				break
			}
			take()
		}
	default:
		p.want(".b8, .b16, .b32, .b64 or a label")
	}
	if p.err != nil {
		return ""
	}
	words := p.words.stack[mark:]
	line := p.scan.src[start:end]
	if strings.ContainsAny(line, "\n/#\r\f\v") {
		line = words[0] + " " + strings.Join(words[1:], "")
		if words[len(words)-1] == ":" {
			line = words[0] + ":"
		}
	}
	clear(words)
	p.words.stack = p.words.stack[:mark]
	return line
}

// function reads an .entry or .func (sections 11.2.1 and 11.2.2).
func (p *parser) function(pos Pos, link Linkage) *Func {
	f := &Func{Pos: pos, Link: link, Entry: p.lit() == ".entry"}
	p.next()
	for p.tok == tDot && p.lit() == ".attribute" {
		f.Attrs = append(f.Attrs, p.attributes()...)
	}
	if !f.Entry && p.tok == '(' {
		f.Ret = p.params()
	}
	f.Name = p.ident("a function name")
	if p.tok == '(' {
		f.Params = p.params()
	}
	for p.tok == tDot && !p.startsDecl() {
		switch p.lit() {
		case ".noreturn":
			f.NoReturn = true
			p.next()
		case ".abi_preserve", ".abi_preserve_control":
			f.ABI = append(f.ABI, p.directive())
		case ".attribute":
			f.Attrs = append(f.Attrs, p.attributes()...)
		default:
			f.Perf = append(f.Perf, p.directive())
		}
	}
	switch {
	case p.tok == ';':
		p.next()
	case p.tok == '{':
		f.Body = p.block()
	case !f.Entry && p.startsDecl(): // nvcc 3 ended forward declarations with nothing, and ptxas takes them
	default:
		p.want("a function body, ';' or a directive")
	}
	return f
}

// startsDecl reports whether the current token begins a declaration at module scope that cannot be
// part of a function header. A .pragma can, and belongs to the header.
func (p *parser) startsDecl() bool {
	if p.tok == tDwarf {
		return true
	}
	if p.tok != tDot {
		return false
	}
	word := p.lit()[1:]
	switch word {
	case "entry", "func", "file", "section", "alias", "target", "address_size", "version":
		return true
	}
	_, link := lookupLink(word)
	_, space := LookupSpace(word)
	return link || space
}

// directive reads a directive of a function header with its arguments, which
// keep their spelling.
func (p *parser) directive() Directive {
	d := Directive{Pos: p.pos(), Name: p.lit()}
	p.next()
	if d.Name == ".pragma" {
		for {
			d.Args = append(d.Args, `"`+p.str("a string")+`"`)
			if !p.got(',') {
				break
			}
		}
		p.expect(';', "';' after the pragma")
		return d
	}
	for p.tok == tNumber || p.tok == tIdent || p.tok == tString || p.tok == '(' {
		if p.tok == tNumber || p.tok == '(' {
			d.Args = append(d.Args, p.constant("a number").Text)
		} else {
			d.Args = append(d.Args, p.lit())
			p.next()
		}
		if !p.got(',') {
			break
		}
		if p.tok != tNumber && p.tok != tIdent && p.tok != tString && p.tok != '(' {
			p.want("an argument of " + d.Name)
		}
	}
	return d
}

// attributes reads .attribute(.managed, .unified(1, 2)) (section 5.4.8).
func (p *parser) attributes() []Attribute {
	p.next()
	p.expect('(', "'(' after .attribute")
	var list []Attribute
	for {
		if p.tok != tDot {
			p.want("an attribute such as .managed")
			return list
		}
		a := Attribute{Name: p.lit()}
		p.next()
		if p.got('(') {
			for {
				a.Args = append(a.Args, p.constant("a number").Text)
				if !p.got(',') {
					break
				}
			}
			p.expect(')', "')'")
		}
		list = append(list, a)
		if !p.got(',') {
			break
		}
	}
	p.expect(')', "')' at the end of the attributes")
	return list
}

// params reads a parenthesised parameter list.
func (p *parser) params() []*Var {
	p.expect('(', "'('")
	var list []*Var
	for p.tok != ')' && p.err == nil {
		v := p.varHead(p.pos(), LinkNone)
		if p.err != nil {
			return nil
		}
		if p.tok == tIdent {
			p.declarator(v)
		} else if p.tok != ',' && p.tok != ')' {
			p.want("a parameter name")
		}
		list = append(list, v)
		if !p.got(',') {
			break
		}
		if p.tok == ')' {
			p.want("a parameter after ','")
		}
	}
	p.expect(')', "',' or ')' after a parameter")
	return list
}

// varHead reads a declaration up to its first name (section 5.4.1).
func (p *parser) varHead(pos Pos, link Linkage) *Var {
	v := &Var{Pos: pos, Link: link}
	for p.tok == tDot && p.lit() == ".attribute" {
		v.Attrs = append(v.Attrs, p.attributes()...)
	}
	if p.tok != tDot {
		p.want("a state space")
		return v
	}
	space, ok := LookupSpace(p.lit()[1:])
	if !ok {
		p.want("a directive or a state space")
		return v
	}
	v.Space = space
	p.next()
	if space == SpaceConst && p.got('[') {
		v.Bank = int(p.integer("a constant bank", 10))
		p.expect(']', "']' after the bank")
	}
	for p.tok == tDot {
		word := p.lit()[1:]
		switch word {
		case "align":
			n := p.align()
			if v.Ptr != nil {
				v.Ptr.Align = n
			} else {
				v.Align = n
			}
			continue
		case "v2", "v4", "v8":
			v.Vec = int(word[1] - '0')
		case "ptr":
			v.Ptr = &PtrAttr{}
		case "attribute":
			v.Attrs = append(v.Attrs, p.attributes()...)
			continue
		default:
			if t, ok := LookupType(word); ok {
				if v.Type != TypeNone {
					p.fail("second type %q in a declaration", snippet(p.lit()))
				}
				v.Type = t
				break
			}
			if v.Ptr != nil && v.Ptr.Space == SpaceGeneric {
				s, _ := LookupSpace(word)
				if s == SpaceConst || s == SpaceGlobal || s == SpaceLocal || s == SpaceShared {
					v.Ptr.Space = s
					break
				}
			}
			p.fail("unknown type or attribute %q in a declaration", snippet(p.lit()))
		}
		p.next()
	}
	if v.Type == TypeNone {
		p.want("a type such as .b32")
	}
	for _, a := range v.Attrs {
		v.Managed = v.Managed || a.Name == ".managed"
	}
	return v
}

func (p *parser) align() int {
	pos := p.pos()
	p.next()
	n := p.integer("an alignment", 1<<30)
	if p.err == nil && (n == 0 || n&(n-1) != 0) {
		p.failAt(pos, "alignment %d is not a power of two", n)
	}
	return int(n)
}

// declarator reads a name with its register count or array dimensions.
func (p *parser) declarator(v *Var) {
	p.count()
	v.Name = p.ident("a name")
	if p.got('<') {
		n := p.integerUnsigned("a register count", maxCount, true)
		if n == 0 {
			p.fail("register set %s is empty", snippet(v.Name))
		}
		v.Count = int(n)
		p.expect('>', "'>' after the register count")
	}
	total := uint64(1)
	for p.tok == '[' {
		pos := p.pos()
		p.next()
		n := -1
		if p.tok != ']' {
			n = int(p.integer("an array dimension", maxObject))
			total *= max(uint64(n), 1)
		}
		if total > maxObject || len(v.Dims) >= maxDims {
			p.failAt(pos, "array %s is too large", snippet(v.Name))
		}
		v.Dims = append(v.Dims, n)
		p.expect(']', "']' after the dimension")
	}
}

// vars reads a declaration of one or more variables up to its semicolon.
func (p *parser) vars(pos Pos, link Linkage) []*Var {
	head := p.varHead(pos, link)
	var list []*Var
	for p.err == nil {
		v := *head
		v.Pos = pos
		if len(list) > 0 {
			v.Pos = p.pos()
		}
		p.declarator(&v)
		if p.got('=') {
			v.Init = p.initializer()
		}
		list = append(list, &v)
		if !p.got(',') {
			break
		}
	}
	p.expect(';', "',' or ';' after a declaration")
	if p.err != nil {
		return nil
	}
	return list
}

// initializer reads what follows '=' (section 5.4.4).
func (p *parser) initializer() *Init {
	p.count()
	in := &Init{Pos: p.pos()}
	if p.tok != '{' {
		in.Value = p.initValue()
		if r, ok := in.Value.(*Ref); ok && p.nest > 0 && p.got('=') { // addr_mode_0 = wrap (section 5.3)
			in.Field = r.Name
			in.Value = p.initValue()
		}
		return in
	}
	if p.nest++; p.nest > maxInit {
		p.fail("initializer is nested deeper than %d", maxInit)
	}
	p.next()
	p.open++
	in.List = []*Init{}
	for p.tok != '}' && p.tok != tEOF {
		in.List = append(in.List, p.initializer())
		if !p.got(',') {
			break
		}
	}
	p.nest--
	p.expect('}', "',' or '}' in an initializer")
	if p.err == nil {
		p.open--
	}
	return in
}

func (p *parser) initValue() Operand {
	pos := p.pos()
	if p.tok == tIdent && p.lit() != warpSize {
		return p.address()
	}
	v := p.constant("a constant or an address")
	if p.tok == '(' && p.err == nil { // 0xff00(sym): a byte of an address
		p.next()
		m := &Mask{Pos: pos, Bits: v.Bits}
		switch x := p.address().(type) {
		case *Ref:
			m.X = &Generic{Pos: x.Pos, Name: x.Name}
		case *Generic:
			m.X = x
		}
		p.expect(')', "')'")
		return m
	}
	return v
}

// address reads sym, sym+off, generic(sym) or generic(sym)+off.
func (p *parser) address() Operand {
	pos := p.pos()
	name := p.ident("a variable or function")
	if name == "generic" && p.got('(') {
		g := &Generic{Pos: pos, Name: p.ident("a variable or function"), Generic: true}
		g.Off = p.offset()
		p.expect(')', "')'")
		g.Off += p.offset()
		return g
	}
	if p.tok == '+' || p.tok == '-' {
		if off := p.offset(); off != 0 {
			return &Generic{Pos: pos, Name: name, Off: off}
		}
	}
	return &Ref{Pos: pos, Name: name}
}

// block reads { … }.
func (p *parser) block() *Block {
	b := &Block{Pos: p.pos()}
	if p.depth++; p.depth > maxBlocks {
		p.fail("blocks are nested deeper than %d", maxBlocks)
		return b
	}
	p.next()
	for p.tok != '}' && p.tok != tEOF {
		s := p.stmt()
		if p.recovered(true) {
			if p.err != nil {
				break
			}
			continue
		}
		if n := len(b.Stmts); n > 0 {
			after, _ := s.(*Section)
			if before, ok := b.Stmts[n-1].(*Section); ok && before.merge(after) {
				continue
			}
		}
		if s != nil {
			b.Stmts = append(b.Stmts, s)
		}
	}
	p.depth--
	b.End = p.pos()
	p.expect('}', "'}'")
	return b
}

// stmt reads one statement; nil stands for an empty one.
func (p *parser) stmt() Stmt {
	p.count()
	pos := p.pos()
	switch p.tok {
	case tIdent:
		name := p.lit()
		p.next()
		if p.got(':') {
			return p.label(pos, name)
		}
		return p.inst(pos, nil, name)
	case '@':
		p.next()
		g := &Guard{Not: p.got('!'), Reg: p.ident("a predicate")}
		return p.inst(pos, g, p.ident("an instruction"))
	case '{':
		return p.block()
	case ';':
		p.next()
		return nil
	case tDwarf:
		return p.dwarf()
	case tDot:
		switch p.lit() {
		case ".loc":
			return p.loc()
		case ".pragma":
			return p.pragma()
		case ".file":
			return p.fileDirective()
		case ".section":
			return p.section()
		case ".branchtargets", ".calltargets", ".callprototype":
			p.fail("%s needs a label before it", p.lit())
			return nil
		}
		return &VarStmt{Vars: p.vars(pos, p.linkage())}
	}
	p.want("a statement")
	return nil
}

// label reads what may follow NAME: (section 11.3).
func (p *parser) label(pos Pos, name string) Stmt {
	if p.tok == tDot {
		switch p.lit() {
		case ".branchtargets":
			return &BranchTargets{Pos: pos, Name: name, Labels: p.names()}
		case ".calltargets":
			return &CallTargets{Pos: pos, Name: name, Funcs: p.names()}
		case ".callprototype":
			return p.prototype(pos, name)
		}
	}
	return &Label{Pos: pos, Name: name}
}

func (p *parser) names() []string {
	p.next()
	mark := p.words.mark()
	for {
		name := p.ident("a name")
		if p.got('<') { // L<3> stands for L0, L1, L2
			n := p.integerUnsigned("a number of labels", maxLabels, true)
			p.expect('>', "'>' after the number of labels")
			for i := range n {
				p.count()
				p.words.push(name + strconv.FormatUint(i, 10))
			}
		} else {
			p.count()
			p.words.push(name)
		}
		if !p.got(',') {
			break
		}
	}
	p.expect(';', "',' or ';'")
	return p.words.cut(mark)
}

// prototype reads `.callprototype (ret) _ (params) .noreturn;` (section 11.3.3).
func (p *parser) prototype(pos Pos, name string) *CallPrototype {
	c := &CallPrototype{Pos: pos, Name: name}
	p.next()
	if p.tok == '(' {
		c.Ret = p.params()
	}
	if p.ident("'_'") != "_" {
		p.failAt(pos, "a call prototype has '_' in place of the function name")
	}
	if p.tok == '(' {
		c.Params = p.params()
	}
	for p.tok == tDot {
		if p.lit() == ".noreturn" {
			c.NoReturn = true
			p.next()
			continue
		}
		c.ABI = append(c.ABI, p.directive())
	}
	p.expect(';', "';' after the prototype")
	return c
}

// loc reads .loc (section 11.5.4); it has no terminator.
func (p *parser) loc() *Loc {
	l := &Loc{Pos: p.pos()}
	p.next()
	l.File = p.plain("a file number")
	l.Line = p.plain("a line")
	if p.tok == tNumber {
		l.Col = p.plain("a column")
	}
	for p.tok == ',' {
		p.next()
		switch what := p.ident("function_name or inlined_at"); what {
		case "function_name":
			l.FunctionName = p.ident("a label")
			if p.got('+') {
				l.FunctionName += "+" + p.numberText("an offset")
			}
		case "inlined_at":
			a := p.numberText("a file number")
			b := p.numberText("a line")
			c := p.numberText("a column")
			l.InlinedAt = a + " " + b + " " + c
		default:
			p.want("function_name or inlined_at")
		}
	}
	return l
}
