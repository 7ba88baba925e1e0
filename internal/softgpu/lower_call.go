package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// calls translates call: what goes in, what comes out.
type calls struct{ *operands }

func (ca calls) call(in *isa.Inst) {
	c := in.Src.Call
	pos := in.Src.Pos
	if c == nil {
		ca.fail(pos, "call without operands")
	}
	ref, ok := c.Callee.(*ptx.Ref)
	if !ok {
		ca.fail(pos, "callee %s", operandText(c.Callee))
	}
	site := &callSite{}
	x := inst{kind: kindCall, x: site}
	var params, rets []*ptx.Var
	if e := ca.lookup(ref.Name); e != nil && e.kind == entReg {
		p := ca.source(ref, ptx.U64)
		x.a = p.off
		if p.wide() {
			x.wide = wideA
		}
		ca.graph.hasIndirect[ca.fn] = true
		for _, name := range ca.m.order {
			if f := ca.m.funcs[name]; ca.m.taken[name] && !f.Entry {
				ca.graph.function(f)
			}
		}
		params, rets = ca.signature(c.Proto)
	} else {
		f := ca.m.funcs[ref.Name]
		if f == nil {
			ca.fail(pos, "%s is not declared", ref.Name)
		}
		if f.Entry {
			ca.fail(pos, "call of kernel %s", f.Name)
		}
		site.callee = ca.graph.function(f)
		ca.graph.edges[ca.fn] = append(ca.graph.edges[ca.fn], site.callee)
		params, rets = f.Params, f.Ret
	}
	for k, o := range c.Params {
		site.in = append(site.in, ca.argument(o, nth(params, k), false))
	}
	for k, o := range c.Ret {
		site.out = append(site.out, ca.argument(o, nth(rets, k), true))
	}
	if f := site.callee; f != nil && f.native == nil {
		if len(f.params) != len(site.in) || len(f.rets) != len(site.out) {
			ca.fail(pos, "call of %s with %d parameters and %d results, it has %d and %d",
				f.name, len(site.in), len(site.out), len(f.params), len(f.rets))
		}
		if why := site.misfit(f); why != "" {
			ca.fail(pos, "%s", why)
		}
	}
	ca.emit(x)
}

// nth is a parameter of what is called; nil = it is not known.
func nth(list []*ptx.Var, k int) *ptx.Var {
	if k < len(list) {
		return list[k]
	}
	return nil
}

// signature is what a prototype or a list of targets says of an indirect call.
func (ca calls) signature(name string) (params, rets []*ptx.Var) {
	e := ca.lookup(name)
	if e == nil {
		return nil, nil
	}
	if e.proto != nil {
		return e.proto.Params, e.proto.Ret
	}
	if len(e.labels) > 0 {
		if f := ca.m.funcs[e.labels[0]]; f != nil {
			return f.Params, f.Ret
		}
	}
	return nil, nil
}

// argument resolves an argument, or a result, for parameter v of what is called.
func (ca calls) argument(o ptx.Operand, v *ptx.Var, result bool) paramOperand {
	if r, ok := o.(*ptx.Ref); ok {
		if e := ca.lookup(r.Name); e != nil && e.kind == entParam {
			return paramOperand{area: e.area}
		}
	}
	t := ptx.B32 // of a constant, which is as wide as the parameter
	if v != nil {
		switch size, _, _, _ := varSize(v); {
		case len(v.Dims) == 0:
			t = v.Type
		case size == 8:
			t = ptx.B64
		}
	}
	resolve := func(x ptx.Operand) place {
		if result {
			return ca.write(x, t)
		}
		return ca.source(x, t)
	}
	o = ca.spread(o)
	list, vector := []ptx.Operand{o}, false
	if x, ok := o.(*ptx.Vector); ok {
		list, vector = x.Elems, true
	} else if p := resolve(o); p.single() && placeAt(0, slotFor(t)).single() && (v == nil || v.Vec == 0) {
		return paramOperand{isReg: true, reg: p.off, wide: p.wide()}
	}
	if v == nil || vector && v.Vec != len(list) || len(v.Dims) > 0 {
		ca.fail(ca.in.Src.Pos, "operand %s does not fit the parameter", operandText(o))
	}
	op := paramOperand{}
	for _, x := range list {
		p := resolve(x)
		if p.kind != slotFor(t) {
			ca.fail(ca.in.Src.Pos, "operand %s has the wrong width for .%s", operandText(x), isa.TypeName(t))
		}
		if _, register := x.(*ptx.Ref); p.kind == slot128 && !register {
			ca.fail(ca.in.Src.Pos, "operand %s for a parameter of 128 bits", operandText(x))
		}
		op.parts = append(op.parts, p.parts(uint32(elemSize(t)))...)
	}
	return op
}

// single reports whether a place is one register of 32 or 64 bits.
func (p place) single() bool { return p.kind == slot32 || p.kind == slot64 }

// parts are the registers of a place whose value has size bytes in parameter memory.
func (p place) parts(size uint32) []paramPart {
	if p.kind == slot128 {
		return []paramPart{{p.off, slot64, 8}, {p.off + 256, slot64, 8}}
	}
	return []paramPart{{p.off, p.kind, size}}
}

// parts are the registers of a scalar or vector register whose elements have size bytes in parameter memory.
func (e *entity) parts(size uint32) []paramPart {
	if e.comps == nil {
		return placeAt(e.off, e.slot).parts(size)
	}
	var list []paramPart
	for _, off := range e.comps {
		list = append(list, placeAt(off, e.slot).parts(size)...)
	}
	return list
}
