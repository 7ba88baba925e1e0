package ir

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxText bounds the text that Read takes, in bytes.
const MaxText = 32 << 20

// Read reads a function that Format wrote. Comments, from ; to the end of the line, are
// skipped. The result has passed Check; no pass has run on it, even if it is in SSA form.
func Read(text []byte) (*Func, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%d bytes of text, at most %d", len(text), MaxText)
	}
	r := &reader{f: &Func{}, limit: len(text) / 4, specials: map[string]*Register{}}
	done := false
	for line := range bytes.Lines(text) {
		r.line++
		r.rest = string(bytes.TrimRight(line, "\r\n"))
		r.skip()
		if r.rest == "" {
			continue
		}
		if done {
			return nil, fmt.Errorf("line %d: text after the end", r.line)
		}
		var err error
		done, err = r.read()
		if err == nil {
			r.skip()
			if r.rest != "" {
				err = r.expected("the end of the line")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
	}
	if !done {
		return nil, fmt.Errorf("line %d: no end", r.line)
	}
	return r.finish()
}

// ReadModule reads a module that FormatModule wrote.
func ReadModule(text []byte) (*Module, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%d bytes of text, at most %d", len(text), MaxText)
	}
	m := &Module{Vars: map[string]bool{}, Shadowed: map[string]bool{}, NoReturn: map[string]bool{}}
	sets := map[string]map[string]bool{"global": m.Vars, "shadowed": m.Shadowed, "noreturn": m.NoReturn}
	rest, ok := bytes.CutPrefix(text, []byte("module\n"))
	if !ok {
		return nil, errors.New("line 1: expected module")
	}
	line := 2
	for len(rest) > 0 {
		head, after, _ := bytes.Cut(rest, []byte("\n"))
		word, name, _ := strings.Cut(string(head), " ")
		set := sets[word]
		if set == nil {
			break
		}
		set[strings.TrimSpace(name)] = true
		rest = after
		line++
	}
	for len(rest) > 0 {
		end := len(rest)
		if i := bytes.Index(rest, []byte("\nend\n")); i >= 0 {
			end = i + len("\nend\n")
		}
		f, err := Read(rest[:end])
		if err != nil {
			return nil, fmt.Errorf("function %d, which begins in line %d: %w", len(m.Funcs), line, err)
		}
		m.Funcs = append(m.Funcs, f)
		line += bytes.Count(rest[:end], []byte("\n"))
		rest = rest[end:]
	}
	return m, nil
}

type reader struct {
	f     *Func
	line  int
	rest  string
	limit int // no number of a block or value may be larger: each takes some text
	began bool
	arcs  [][]int // by block

	specials map[string]*Register
}

func (r *reader) expected(what string) error {
	found := r.rest
	if len(found) > 24 {
		found = found[:24] + "…"
	}
	return fmt.Errorf("expected %s, found %q", what, found)
}

// skip skips spaces and a comment.
func (r *reader) skip() {
	r.rest = strings.TrimLeft(r.rest, " \t")
	if strings.HasPrefix(r.rest, ";") {
		r.rest = ""
	}
}

// take takes s if it comes next, after spaces.
func (r *reader) take(s string) bool {
	r.skip()
	rest, ok := strings.CutPrefix(r.rest, s)
	if ok {
		r.rest = rest
	}
	return ok
}

// word takes letters, digits and what names of registers and symbols may have besides.
func (r *reader) word() string {
	r.skip()
	n := 0
	for n < len(r.rest) {
		c := r.rest[n]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_$%.@", c) >= 0 {
			n++
			continue
		}
		break
	}
	w := r.rest[:n]
	r.rest = r.rest[n:]
	return w
}

// name is a word that is not empty.
func (r *reader) name() (string, error) {
	if w := r.word(); w != "" {
		return w, nil
	}
	return "", r.expected("a name")
}

// number takes a decimal number with a sign or a hexadecimal one.
func (r *reader) number() (int64, error) {
	r.skip()
	n := 0
	for n < len(r.rest) && (strings.IndexByte("+-", r.rest[n]) >= 0 && n == 0 || r.rest[n] >= '0' && r.rest[n] <= '9' ||
		r.rest[n] >= 'a' && r.rest[n] <= 'f' || r.rest[n] == 'x') {
		n++
	}
	s := r.rest[:n]
	x, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		u, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return 0, r.expected("a number")
		}
		x = int64(u)
	}
	r.rest = r.rest[n:]
	return x, nil
}

// count takes a number from 0 to most.
func (r *reader) count(most int) (int, error) {
	at := r.rest
	n, err := r.number()
	if err == nil && (n < 0 || n > int64(most)) {
		r.rest = at
		err = r.expected(fmt.Sprintf("a number from 0 to %d", most))
	}
	return int(n), err
}

func (r *reader) read() (done bool, err error) {
	if !r.began {
		r.began = true
		r.f.Kernel = r.take("kernel ")
		if !r.f.Kernel && !r.take("function ") {
			return false, r.expected("kernel or function")
		}
		r.f.Name, err = r.name()
		r.f.SSA = r.take("ssa")
		return false, err
	}
	at := r.rest
	switch {
	case r.take("param "):
		return false, r.variable(Var{Param: true})
	case r.take("result "):
		return false, r.variable(Var{Result: true})
	case r.take("var "):
		return false, r.variable(Var{})
	case r.take("limits threads "):
		return false, r.limits()
	case r.take("line "):
		r.f.Pos, err = r.count(1 << 48)
		return false, err
	case r.take("special "):
		return false, r.special()
	case r.take("register v"):
		return false, r.register()
	case r.take("->"):
		return false, r.targets()
	case r.take("b"):
		if n, err := r.count(r.limit); err == nil && r.take(":") {
			if n != len(r.f.Blocks) {
				return false, fmt.Errorf("block b%d after %d blocks", n, len(r.f.Blocks))
			}
			r.f.Blocks = append(r.f.Blocks, &Block{Index: n})
			r.arcs = append(r.arcs, nil)
			return false, nil
		}
		r.rest = at
	case r.rest == "end":
		r.rest = ""
		return true, nil
	}
	if len(r.f.Blocks) == 0 {
		return false, r.expected("a block")
	}
	return false, r.inst()
}

func (r *reader) variable(v Var) error {
	var err error
	if v.Name, err = r.name(); err != nil {
		return err
	}
	if v.Space, err = r.space(); err != nil {
		return err
	}
	if v.Param {
		if v.Off, err = r.count(1 << 30); err != nil {
			return err
		}
	}
	if !r.take("size ") {
		return r.expected("size")
	}
	if v.Size, err = r.count(1 << 48); err != nil {
		return err
	}
	if !r.take("align ") {
		return r.expected("align")
	}
	if v.Align, err = r.count(1 << 30); err != nil {
		return err
	}
	r.f.Vars = append(r.f.Vars, v)
	return nil
}

func (r *reader) limits() error {
	for i := range r.f.Limits.MaxThread {
		n, err := r.count(1 << 31)
		if err != nil {
			return err
		}
		r.f.Limits.MaxThread[i] = int64(n)
	}
	if !r.take("cluster ") {
		return r.expected("cluster")
	}
	for i := range r.f.Limits.Cluster {
		n, err := r.count(1<<32 - 1)
		if err != nil {
			return err
		}
		r.f.Limits.Cluster[i] = uint32(n)
	}
	return nil
}

// special takes what Register.String writes.
func (r *reader) special() error {
	x := &Register{}
	var err error
	if x.Name, err = r.name(); err != nil {
		return err
	}
	if r.specials[x.Name] != nil {
		return fmt.Errorf("the special register %s is declared twice", x.Name)
	}
	if x.Type, err = r.typ(); err != nil {
		return err
	}
	at := r.rest
	w := r.word()
	if i := slices.Index(coordinateNames[1:], w); i >= 0 {
		x.Is = Coordinate(i + 1)
		n, err := r.count(2)
		if err != nil {
			return err
		}
		x.Dim, at = uint8(n), r.rest
		w = r.word()
	}
	level := slices.Index(levelNames[:], w)
	if level < 0 {
		r.rest = at
		return r.expected("the threads that have the same value")
	}
	x.Same, x.Fixed = Level(level), r.take("fixed")
	at = r.rest
	from := slices.Index(sourceNames[:], r.word())
	if from < 0 {
		r.rest = at
		return r.expected("what the value depends on")
	}
	x.From = Source(from)
	if r.take("max ") {
		n, err := r.count(1 << 48)
		if err != nil {
			return err
		}
		x.Max = int64(n)
	}
	r.specials[x.Name] = x
	return nil
}

func (r *reader) space() (Space, error) {
	at := r.rest
	if i := slices.Index(spaceNames[:], r.word()); i >= 0 {
		return Space(i), nil
	}
	r.rest = at
	return 0, r.expected("a memory space")
}

func (r *reader) register() error {
	n, err := r.count(r.limit)
	if err != nil {
		return err
	}
	if n != len(r.f.Vals) || r.f.SSA {
		return fmt.Errorf("register v%d after %d registers", n, len(r.f.Vals))
	}
	var v Val
	if v.Type, err = r.typ(); err != nil {
		return err
	}
	v.Name, err = r.name()
	r.f.Vals = append(r.f.Vals, v)
	return err
}

// typ takes a colon and a type.
func (r *reader) typ() (Type, error) {
	if !r.take(":") {
		return Type{}, r.expected("':' and a type")
	}
	return r.bareType()
}

func (r *reader) bareType() (Type, error) {
	if r.take("?") {
		return Type{}, nil
	}
	if r.take("pred") {
		return Type{Pred, 1}, nil
	}
	r.skip()
	if r.rest != "" {
		if k := strings.IndexByte(kindLetters, r.rest[0]); k >= int(Bits) {
			r.rest = r.rest[1:]
			n, err := r.count(1 << 12)
			return Type{Kind(k), uint16(n)}, err
		}
	}
	return Type{}, r.expected("a type")
}

func (r *reader) targets() error {
	if len(r.f.Blocks) == 0 {
		return r.expected("a block")
	}
	i := len(r.f.Blocks) - 1
	if r.arcs[i] != nil {
		return fmt.Errorf("successors of b%d again", i)
	}
	for r.take("b") {
		n, err := r.count(r.limit)
		if err != nil {
			return err
		}
		r.arcs[i] = append(r.arcs[i], n)
	}
	if r.arcs[i] == nil {
		return r.expected("a block")
	}
	return nil
}

// inst takes what printer.inst writes.
func (r *reader) inst() error {
	in := &Inst{}
	if err := r.results(in); err != nil {
		return err
	}
	if r.take("@") {
		x, err := r.operand()
		if err != nil {
			return err
		}
		in.Guard = x
	}
	if err := r.operation(in); err != nil {
		return err
	}
	if r.take("(") {
		for !r.take(")") {
			at := r.rest
			if !in.setAttribute(r.word()) {
				r.rest = at
				return r.expected("an attribute")
			}
		}
	}
	r.skip()
	if in.Space = Generic; r.rest != "" && r.rest[0] >= 'a' && r.rest[0] <= 'z' {
		at := r.rest
		if s, err := r.space(); err == nil && strings.HasPrefix(r.rest, " \"") || err == nil && in.Op == ToGeneric ||
			err == nil && in.Op == FromGeneric {
			in.Space = s
		} else {
			r.rest = at
		}
	}
	r.skip()
	if q, err := strconv.QuotedPrefix(r.rest); err == nil && strings.HasPrefix(q, `"`) {
		if in.Name, err = strconv.Unquote(q); err != nil {
			return err
		}
		r.rest = r.rest[len(q):]
	}
	var err error
	if in.Args, err = r.operands(); err != nil {
		return err
	}
	if r.take("else ") {
		if in.Else, err = r.operands(); err != nil {
			return err
		}
	}
	if err := r.accesses(in); err != nil {
		return err
	}
	if r.take("at ") {
		if in.Pos, err = r.count(1 << 48); err != nil {
			return err
		}
	}
	b := r.f.Blocks[len(r.f.Blocks)-1]
	b.Insts = append(b.Insts, in)
	if r.take("->") {
		return r.targets()
	}
	return nil
}

// results takes "v1:s32(%r1), _ =" if it is there.
func (r *reader) results(in *Inst) error {
	at := r.rest
	for {
		if r.take("_") {
			in.Defs = append(in.Defs, None)
		} else if d, ok, err := r.result(in); err != nil {
			return err
		} else if ok {
			in.Defs = append(in.Defs, d)
		} else if len(in.Defs) == 0 {
			r.rest = at
			return nil
		} else {
			return r.expected("a result")
		}
		if r.take("=") {
			return nil
		}
		if !r.take(",") {
			return r.expected("'=' or ','")
		}
	}
}

func (r *reader) result(in *Inst) (ValID, bool, error) {
	at := r.rest
	if !r.take("v") || r.rest == "" || r.rest[0] < '0' || r.rest[0] > '9' {
		r.rest = at
		return 0, false, nil
	}
	n, err := r.count(r.limit)
	if err != nil || !r.f.SSA {
		return ValID(n), true, err
	}
	for len(r.f.Vals) <= n {
		r.f.Vals = append(r.f.Vals, Val{})
	}
	v := &r.f.Vals[n]
	if v.Def != nil {
		return 0, true, fmt.Errorf("v%d is defined twice", n)
	}
	v.Def, v.Block = in, r.f.Blocks[len(r.f.Blocks)-1]
	if v.Type, err = r.typ(); err != nil {
		return 0, true, err
	}
	if !r.take("(") {
		return 0, true, r.expected("'('")
	}
	v.Name = r.word()
	if !r.take(")") {
		return 0, true, r.expected("')'")
	}
	return ValID(n), true, nil
}

// operation takes "compare.lt:s32<-b32".
func (r *reader) operation(in *Inst) error {
	at := r.rest
	op, rel, related := strings.Cut(r.word(), ".")
	i := slices.Index(opNames[:], op)
	if i < 0 {
		r.rest = at
		return r.expected("an operation")
	}
	in.Op = Op(i)
	if related {
		k := slices.Index(relNames[1:], rel)
		if k < 0 {
			r.rest = at
			return r.expected("a relation")
		}
		in.Rel = Rel(k + 1)
	}
	var err error
	if strings.HasPrefix(r.rest, ":") {
		if in.Type, err = r.typ(); err != nil {
			return err
		}
	}
	if strings.HasPrefix(r.rest, "<-") {
		r.take("<-")
		in.Type2, err = r.bareType()
	}
	return err
}

// operands takes a list of operands, perhaps an empty one.
func (r *reader) operands() ([]Operand, error) {
	var list []Operand
	for {
		at := r.rest
		x, err := r.operand()
		if err != nil {
			if len(list) > 0 {
				return nil, err
			}
			r.rest = at
			return nil, nil
		}
		list = append(list, x)
		if !r.take(",") {
			return list, nil
		}
	}
}

func (r *reader) operand() (Operand, error) {
	var x Operand
	if r.take("!") {
		x.Mod |= Complement
	}
	if r.take("~") {
		x.Mod |= Negated
	}
	r.skip()
	at := r.rest
	var err error
	switch {
	case r.take("undef"):
		x.Kind = Undef
	case r.take("v"):
		x.Kind = Value
		var n int
		n, err = r.count(r.limit)
		x.Val = ValID(n)
	case r.take("$"):
		x.Kind = Special
		var name string
		if name, err = r.name(); err == nil && r.specials[name] == nil {
			err = fmt.Errorf("the special register %s is not declared", name)
		}
		x.Reg = r.specials[name]
	case r.take("&"):
		x.Kind = Symbol
		if x.Name, err = r.name(); err == nil && r.rest != "" && (r.rest[0] == '+' || r.rest[0] == '-') {
			var n int64
			n, err = r.number()
			x.Bits = uint64(n)
		}
	case at != "" && (at[0] == '-' || at[0] >= '0' && at[0] <= '9'):
		if strings.HasPrefix(at, "->") {
			return x, r.expected("an operand")
		}
		if len(at) == 1 || at[0] == '-' && (at[1] < '0' || at[1] > '9') {
			if at[0] == '-' { // the operand that is none
				r.rest = at[1:]
				return x, nil
			}
		}
		x.Kind = Constant
		var n int64
		n, err = r.number()
		x.Bits = uint64(n)
	default:
		return x, r.expected("an operand")
	}
	if err == nil && strings.HasPrefix(r.rest, ":") {
		r.rest = r.rest[1:]
		x.Part, err = r.name()
	}
	return x, err
}

// accesses takes "r global[v3+4]*4" and "{orders}".
func (r *reader) accesses(in *Inst) error {
	for {
		var m Access
		switch {
		case r.take("rw "):
			m.Read, m.Write = true, true
		case r.take("r "):
			m.Read = true
		case r.take("w "):
			m.Write = true
		case r.take("n "):
		case r.take("{"):
			return r.effects(in)
		default:
			return nil
		}
		var err error
		if m.Space, err = r.space(); err != nil {
			return err
		}
		if !r.take("[") {
			return r.expected("'['")
		}
		if m.Base, err = r.operand(); err != nil {
			return err
		}
		// The offset of a symbol that stands alone belongs to the access.
		if strings.HasPrefix(r.rest, "]") && m.Base.Kind == Symbol {
			m.Off, m.Base.Bits = int64(m.Base.Bits), 0
		} else if m.Off, err = r.number(); err != nil {
			return err
		}
		if !r.take("]*") {
			return r.expected("']*'")
		}
		if m.Bytes, err = r.count(1 << 30); err != nil {
			return err
		}
		m.Later, m.Partly = r.take("later"), r.take("partly")
		if r.take("tile ") {
			if m.Tile, err = r.tile(); err != nil {
				return err
			}
		}
		in.Mem = append(in.Mem, m)
	}
}

// tile takes "16*32 step 8*2".
func (r *reader) tile() (*Tile, error) {
	t := &Tile{}
	for i, n := range []*int{&t.Rows, &t.Bytes, &t.Stride, &t.Elem} {
		if i == 2 && !r.take("step ") || i%2 == 1 && !r.take("*") {
			return nil, r.expected("a tile")
		}
		var err error
		if *n, err = r.count(1 << 16); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (r *reader) effects(in *Inst) error {
	for !r.take("}") {
		at := r.rest
		i := slices.Index(effectNames[:], r.word())
		if i < 0 {
			r.rest = at
			return r.expected("an effect")
		}
		in.Effect |= 1 << i
	}
	return nil
}

// finish connects the blocks and checks the function.
func (r *reader) finish() (*Func, error) {
	for i, list := range r.arcs {
		for _, j := range list {
			if j >= len(r.f.Blocks) {
				return nil, fmt.Errorf("b%d: no block b%d", i, j)
			}
			Connect(r.f.Blocks[i], r.f.Blocks[j])
		}
	}
	for i := range r.f.Vals {
		if r.f.SSA && r.f.Vals[i].Def == nil {
			return nil, fmt.Errorf("v%d has no definition", i)
		}
	}
	if r.f.SSA { // what dominates what is only defined for blocks that can be reached
		seen := 0
		for _, b := range reachable(r.f) {
			if b {
				seen++
			}
		}
		if seen != len(r.f.Blocks) {
			return nil, fmt.Errorf("function %s: in SSA form every block can be reached", r.f.Name)
		}
	}
	if err := Check(r.f); err != nil {
		return nil, fmt.Errorf("function %s: %w", r.f.Name, err)
	}
	return r.f, nil
}

func reachable(f *Func) []bool {
	seen := make([]bool, len(f.Blocks))
	if len(seen) == 0 {
		return seen
	}
	seen[0] = true
	for list := []*Block{f.Blocks[0]}; len(list) > 0; {
		b := list[len(list)-1]
		list = list[:len(list)-1]
		for _, e := range b.Succs {
			if !seen[e.Block.Index] {
				seen[e.Block.Index] = true
				list = append(list, e.Block)
			}
		}
	}
	return seen
}
