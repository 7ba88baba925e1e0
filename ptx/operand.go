package ptx

// warpSize is the one named constant of PTX (section 4.4.1).
const warpSize = "WARP_SZ"

// inst reads an instruction after its first word (section 4.3.2).
func (p *parser) inst(pos Pos, g *Guard, op string) *Inst {
	in := p.insts.alloc()
	in.Pos, in.Guard, in.Op = pos, g, op
	mark := p.words.mark()
	for p.tok == tDot {
		p.words.push(p.lit()[1:])
		p.next()
	}
	in.Mods = p.words.cut(mark)
	if op == "call" {
		in.Call = p.call()
		p.expect(';', "',' or ';' in a call")
		return in
	}
	if p.got(';') {
		return in
	}
	mark = p.ops.mark()
	for {
		p.ops.push(p.operand())
		if !p.got(',') {
			break
		}
	}
	if p.tok != ';' {
		p.want("',' or ';' after an operand of " + snippet(op))
		return in
	}
	in.Args = p.ops.cut(mark)
	p.next()
	return in
}

// call reads the operands of a call: (ret), callee, (params), prototype, each but
// the callee optional (section 9.7.12.5).
func (p *parser) call() *Call {
	c := &Call{}
	if p.tok == '(' {
		c.Ret = p.callArgs()
		p.expect(',', "',' and the function after the return value")
	}
	pos := p.pos()
	c.Callee = &Ref{Pos: pos, Name: p.ident("a function or a register that holds its address")}
	if p.got(',') {
		if p.tok == '(' {
			c.Params = p.callArgs()
			if p.got(',') {
				c.Proto = p.ident("a list of targets or a prototype")
			}
		} else {
			c.Proto = p.ident("'(' and the arguments, or a prototype")
		}
	}
	return c
}

func (p *parser) callArgs() []Operand {
	p.expect('(', "'('")
	mark := p.ops.mark()
	for p.tok != ')' && p.tok != tEOF {
		p.ops.push(p.operand())
		if !p.got(',') {
			break
		}
	}
	p.expect(')', "',' or ')' in a call")
	if p.err != nil {
		return nil
	}
	return p.ops.cut(mark)
}

// operand reads one operand, a|b included (sections 6 and 9.7.5).
func (p *parser) operand() Operand {
	pos := p.pos()
	a := p.single()
	if p.tok == '|' && p.err == nil {
		p.next()
		return &Pair{Pos: pos, A: a, B: p.single()}
	}
	return a
}

func (p *parser) single() Operand {
	p.count()
	pos := p.pos()
	switch p.tok {
	case tIdent:
		return p.name(pos)
	case '[':
		return p.memory(pos)
	case '{':
		return p.vector(pos)
	case '-', '!':
		// A sign before a name is an operand modifier, before anything else it is
		// part of a constant.
		look := p.scan
		look.next()
		if look.kind == tIdent && look.text() != warpSize {
			not := p.tok == '!'
			p.next()
			return &Neg{Pos: pos, Not: not, X: p.name(p.pos())}
		}
	}
	return p.constant("an operand")
}

// name reads an operand that starts with a name: a reference, a sink, an
// address sum, an array element or the constant WARP_SZ.
func (p *parser) name(pos Pos) Operand {
	name := p.lit()
	switch name {
	case "_":
		p.next()
		return &Sink{Pos: pos}
	case warpSize:
		return p.constant("an operand")
	}
	p.next()
	switch p.tok {
	case tDot:
		r := p.ref(pos, name)
		r.Comp = p.lit()[1:]
		p.next()
		return r
	case '+', '-':
		if off := p.offset(); off != 0 {
			return &Generic{Pos: pos, Name: name, Off: off}
		}
	case '[':
		p.next()
		x := &Index{Pos: pos, Name: name, Index: int64(p.integer("an array index", maxObject))}
		p.expect(']', "']' after the index")
		return x
	}
	return p.ref(pos, name)
}

func (p *parser) ref(pos Pos, name string) *Ref {
	r := p.refs.alloc()
	r.Pos, r.Name = pos, name
	return r
}

// offset reads what follows the base of an address: "+" and a whole constant
// expression (so that +1<<4 is 16), or "-" and one term after another. The sum wraps to
// 64 bits.
func (p *parser) offset() int64 {
	var off uint64
	for p.tok == '+' || p.tok == '-' {
		if p.tok == '-' {
			p.next()
			off -= p.integerTerm("an offset")
			continue
		}
		p.next()
		pos := p.pos()
		v, _ := p.conditional("an offset")
		if p.err == nil && v.float() {
			p.failAt(pos, "expected an offset, found a floating-point constant")
		}
		off += v.bits
	}
	return int64(off)
}

// memory reads [base+off] with further operands after a comma: tensor and
// texture coordinates (section 6.4.1).
func (p *parser) memory(pos Pos) Operand {
	a := p.addrs.alloc()
	a.Pos = pos
	p.next()
	if p.tok == tIdent && p.lit() != warpSize {
		base := p.pos()
		name := p.lit()
		p.next()
		r := p.ref(base, name)
		if p.tok == tDot {
			r.Comp = p.lit()[1:]
			p.next()
		}
		a.Base = r
		if p.tok == '+' || p.tok == '-' {
			a.Off = p.offset()
			a.Plus0 = a.Off == 0
		} else if p.got('[') { // [arr[3]]
			a.Base = &Index{Pos: base, Name: name, Index: int64(p.integer("an array index", maxObject))}
			p.expect(']', "']' after the index")
		}
	} else {
		a.Base = p.constant("an address")
	}
	if p.got(',') {
		mark := p.ops.mark()
		for {
			if p.tok == '[' {
				p.want("coordinates or a sampler in an address")
			}
			p.ops.push(p.operand())
			if !p.got(',') {
				break
			}
		}
		if p.err == nil {
			a.Coords = p.ops.cut(mark)
		}
	}
	p.expect(']', "',' or ']' in an address")
	if p.tok == tDot && p.lit() == ".unified" {
		a.Unified = true
		p.next()
	}
	return a
}

// vector reads {a, b, …}. Vectors do not nest.
func (p *parser) vector(pos Pos) Operand {
	v := &Vector{Pos: pos}
	p.next()
	p.open++
	mark := p.ops.mark()
	for {
		if p.tok == '{' || p.tok == '[' {
			p.want("a scalar in a vector")
			return v
		}
		p.ops.push(p.single())
		if !p.got(',') {
			break
		}
	}
	p.expect('}', "',' or '}' in a vector")
	if p.err == nil {
		p.open--
		v.Elems = p.ops.cut(mark)
	}
	return v
}
