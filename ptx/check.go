package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// Check resolves every name of a module: registers, variables, labels,
// functions, branch tables. It reports names that are not declared, numbers
// outside their register set, and second declarations in one scope. It knows no
// instruction: whether an operand suits its opcode is not its business. The error is
// an ErrorList of at most MaxErrors.
func Check(m *Module) error {
	c := &checker{file: m.File}
	top := &scope{names: map[string]*Var{}, plain: map[string]bool{}}
	c.scope = top
	defined := map[string]bool{}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *Var:
			// An extern declaration may come again, or before the definition.
			if d.Link == LinkExtern || d.Link == LinkCommon || d.Link == LinkWeak {
				top.add(d)
			} else if !defined[d.Name] {
				defined[d.Name] = true
				top.add(d)
			} else {
				c.fail(d.Pos, "%s is defined a second time", d.Name)
			}
		case *Func:
			if d.Body != nil {
				if defined[d.Name] {
					c.fail(d.Pos, "function %s is defined a second time", d.Name)
				}
				defined[d.Name] = true
			}
			top.plain[d.Name] = true
		case *Alias:
			top.plain[d.Name] = true
		}
	}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *Var:
			c.init(d.Init)
		case *Alias:
			c.use(d.Pos, d.Aliasee)
		case *Func:
			c.function(d)
		}
	}
	if len(c.errs) > 0 {
		return c.errs
	}
	return nil
}

// A scope is the names of a module, a function or a block.
type scope struct {
	outer *scope
	names map[string]*Var // register sets by prefix as well
	plain map[string]bool // labels, functions, tables
}

func (s *scope) add(v *Var) { s.names[v.Name] = v }

// A checker walks a module. Scopes nest as blocks do.
type checker struct {
	file  string
	scope *scope
	errs  ErrorList
}

func (c *checker) fail(pos Pos, format string, args ...any) {
	if len(c.errs) < MaxErrors {
		c.errs = append(c.errs, &Error{File: c.file, Pos: pos, Msg: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) enter() {
	c.scope = &scope{outer: c.scope, names: map[string]*Var{}, plain: map[string]bool{}}
}

func (c *checker) leave() { c.scope = c.scope.outer }

// declare adds a variable to the current scope.
func (c *checker) declare(v *Var) {
	if v.Name == "" || v.Name == "_" {
		return
	}
	if c.scope.names[v.Name] != nil || c.scope.plain[v.Name] {
		c.fail(v.Pos, "%s is declared a second time", snippet(v.Name))
	}
	c.scope.add(v)
	c.init(v.Init)
}

func (c *checker) mark(pos Pos, name string) {
	if c.scope.plain[name] {
		c.fail(pos, "label %s is defined a second time", snippet(name))
	}
	c.scope.plain[name] = true
}

func (c *checker) function(f *Func) {
	c.enter()
	defer c.leave()
	for _, v := range slices.Concat(f.Ret, f.Params) {
		c.declare(v)
	}
	if f.Body != nil {
		c.block(f.Body)
	}
}

// block checks a block. Its labels are visible from its start, and in the blocks inside.
func (c *checker) block(b *Block) {
	c.enter()
	defer c.leave()
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *Label:
			c.mark(s.Pos, s.Name)
		case *BranchTargets:
			c.mark(s.Pos, s.Name)
		case *CallTargets:
			c.mark(s.Pos, s.Name)
		case *CallPrototype:
			c.mark(s.Pos, s.Name)
		}
	}
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *Inst:
			c.inst(s)
		case *Block:
			c.block(s)
		case *VarStmt:
			for _, v := range s.Vars {
				c.declare(v)
			}
		case *BranchTargets:
			for _, l := range s.Labels {
				c.use(s.Pos, l)
			}
		case *CallTargets:
			for _, f := range s.Funcs {
				c.use(s.Pos, f)
			}
		}
	}
}

func (c *checker) inst(in *Inst) {
	if in.Guard != nil {
		c.use(in.Pos, in.Guard.Reg)
	}
	c.operands(in.Args)
	if k := in.Call; k != nil {
		c.operands(k.Ret)
		c.operand(k.Callee)
		c.operands(k.Params)
		if k.Proto != "" {
			c.use(in.Pos, k.Proto)
		}
	}
}

func (c *checker) operands(list []Operand) {
	for _, o := range list {
		c.operand(o)
	}
}

func (c *checker) operand(o Operand) {
	switch o := o.(type) {
	case *Ref:
		c.use(o.Pos, o.Name)
	case *Vector:
		c.operands(o.Elems)
	case *Addr:
		c.operand(o.Base)
		c.operands(o.Coords)
	case *Neg:
		c.operand(o.X)
	case *Pair:
		c.operand(o.A)
		c.operand(o.B)
	case *Generic:
		c.use(o.Pos, o.Name)
	case *Index:
		c.use(o.Pos, o.Name)
	case *Mask:
		c.use(o.Pos, o.X.Name)
	}
}

// init checks the addresses in an initializer. The value of a sampler's field is a
// word of the language.
func (c *checker) init(in *Init) {
	if in == nil || in.Field != "" {
		return
	}
	for _, x := range in.List {
		c.init(x)
	}
	if in.Value != nil {
		c.operand(in.Value)
	}
}

// use looks a name up from the inside out.
func (c *checker) use(pos Pos, name string) {
	digits := len(name)
	for digits > 0 && class[name[digits-1]]&cDigit != 0 {
		digits--
	}
	outside := (*Var)(nil)
	for s := c.scope; s != nil; s = s.outer {
		if v := s.names[name]; v != nil && v.Count == 0 || s.plain[name] {
			return
		}
		// %r12 may belong to %r<13>, or to %r1<3>: a set's name can end in a digit.
		for cut := max(digits, len(name)-8); cut < len(name); cut++ {
			v := s.names[name[:cut]]
			if v == nil || v.Count == 0 || name[cut] == '0' && cut+1 < len(name) {
				continue
			}
			if n := atoi(name[cut:]); n < v.Count {
				return
			}
			outside = v
		}
	}
	switch {
	case SpecialRegister(name):
	case outside != nil:
		c.fail(pos, "%s is outside %s<%d>", snippet(name), snippet(outside.Name), outside.Count)
	default:
		c.fail(pos, "%s is not declared", snippet(name))
	}
}

// atoi reads at most eight digits.
func atoi(s string) int {
	n := 0
	for i := range len(s) {
		n = 10*n + int(s[i]-'0')
	}
	return n
}

// SpecialRegisters lists the predefined special registers (section 10) that have no number in their name, and the
// first of those that have.
func SpecialRegisters() []string { return append(specialRegisters[:], "%envreg0", "%pm0", "%pm0_64") }

var specialRegisters = [...]string{
	"%tid", "%ntid", "%laneid", "%warpid", "%nwarpid", "%ctaid", "%nctaid", "%smid", "%nsmid", "%gridid",
	"%is_explicit_cluster", "%clusterid", "%nclusterid",
	"%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank",
	"%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
	"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi",
	"%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
	"%reserved_smem_offset_0", "%reserved_smem_offset_1",
	"%total_smem_size", "%aggr_smem_size", "%dynamic_smem_size", "%current_graph_exec",
}

// SpecialRegister reports whether a name is one of the predefined special
// registers (section 10), numbered ones included.
func SpecialRegister(name string) bool {
	if len(name) == 0 || name[0] != '%' {
		return false
	}
	if slices.Contains(specialRegisters[:], name) {
		return true
	}
	if n, ok := strings.CutPrefix(name, "%envreg"); ok {
		return n == "0" || len(n) <= 2 && n != "" && n[0] != '0' && digitsOnly(n) && atoi(n) < 32
	}
	if n, ok := strings.CutPrefix(name, "%pm"); ok {
		n = strings.TrimSuffix(n, "_64")
		return len(n) == 1 && n[0] >= '0' && n[0] <= '7'
	}
	return false
}

func digitsOnly(s string) bool {
	for i := range len(s) {
		if class[s[i]]&cDigit == 0 {
			return false
		}
	}
	return true
}
