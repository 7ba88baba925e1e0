package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// arg is a value as an argument of a variable.
func (g *graph) arg(e exprID, signed bool) argument {
	return argument{f: g.linear[e], w: g.width(e), signed: signed}
}

// linearise is the form of a value whose arguments have theirs.
func (g *graph) linearise(e exprID) *linear {
	x := g.exprs[e]
	if g.uniform[e] {
		if x.w == 64 {
			return g.uniformForm(e)
		}
		return g.uniformForm(g.of64(e))
	}
	if f := g.lineariseOp(e, x); f != nil {
		if x.op == form.OpAdd || x.op == form.OpSub || x.op == form.OpMul {
			return identities{g}.lifted(f, x.w)
		}
		return f
	}
	return g.opaque(e)
}

func (g *graph) lineariseOp(e exprID, x expr) *linear {
	var fa, fb *linear
	if x.a != noExpr {
		fa = g.linear[x.a]
	}
	if x.b != noExpr {
		fb = g.linear[x.b]
	}
	one := g.num(1)
	switch x.op {
	case form.OpThread:
		return g.atom(variable{kind: form.KindThread, w: x.w, imm: x.imm})
	case form.OpCounter:
		return g.atom(variable{kind: form.KindCounter, w: x.w, imm: x.imm})
	case form.OpUnknown:
		if l, ok := g.loads[x.imm]; ok {
			return g.atom(variable{kind: l.kind, w: x.w, imm: l.imm, from: e, args: []argument{{f: l.at}}})
		}
	case form.OpSymbol:
		return g.form(linear{c: g.num(0), sym: int32(x.imm) + 1})
	case form.OpAdd:
		if f, ok := g.add(fa, fb, one); ok {
			return f
		}
	case form.OpSub:
		f, ok := g.add(fa, fb, g.num(-1))
		if ok {
			if r := (quotientForms{g}).dividerRemainder(e, x, f); r != nil {
				return r
			}
			return f
		}
	case form.OpNot:
		if f, ok := g.add(g.uniformForm(g.num(-1)), fa, g.num(-1)); ok {
			return f
		}
	case form.OpMul:
		switch {
		case g.uniform[x.b]:
			if f, ok := g.scaled(fa, fb.c); ok {
				return f
			}
		case g.uniform[x.a]:
			if f, ok := g.scaled(fb, fa.c); ok {
				return f
			}
		default:
			return g.atom(variable{kind: form.KindMul, w: x.w, args: []argument{{f: fa}, {f: fb}}})
		}
	case form.OpTrunc:
		if fa.sym == 0 {
			return fa
		}
	case form.OpZext, form.OpSext:
		if g.width(x.a) == 1 {
			break
		}
		return g.read(fa, g.width(x.a), x.op == form.OpSext)
	case form.OpShrU, form.OpShrS:
		if f := (quotientForms{g}).halfDivision(x); f != nil {
			return f
		}
		if k, ok := g.constant(x.b); ok && k > 0 && k < int64(x.w) && k < 62 {
			return quotientForms{g}.shifted(fa, x.w, x.op == form.OpShrS, int64(1)<<k)
		}
		if k, ok := g.constant(x.b); ok && k >= 62 && k < int64(x.w) && fa.sym == 0 &&
			g.formBounds(fa).In(interval.Bounds{Lo: 0, Hi: interval.Far - 1}) {
			return g.withChecks(g.uniformForm(g.num(0)), fa) // the sign of an index
		}
		kind := form.KindShrU
		if x.op == form.OpShrS {
			kind = form.KindShrS
		}
		return g.atom(variable{kind: kind, w: x.w, args: []argument{g.arg(x.a, x.op == form.OpShrS), g.arg(x.b,
			false)}})
	case form.OpShl:
		return g.atom(variable{kind: form.KindShl, w: x.w, args: []argument{g.arg(x.a, false), g.arg(x.b, false)}})
	case form.OpDivU, form.OpDivS, form.OpRemU, form.OpRemS:
		return quotientForms{g}.divide(x)
	case form.OpAnd:
		return bitForms{g}.and(x, fa, fb)
	case form.OpOr, form.OpXor:
		if f := (bitForms{g}).orConstant(x, fa); f != nil {
			return f
		}
		ones := bitForms{g}.ones(fb)
		if k, ok := g.constant(x.b); ok {
			ones = form.Unsigned(x.w, k) // of the bits, whatever the sign
		}
		if (bitForms{g}).ones(fa)&ones == 0 && fa.sym == 0 && fb.sym == 0 {
			if f, ok := g.add(fa, fb, one); ok {
				return f
			}
		}
		return g.atom(variable{kind: form.KindOr + form.Kind(x.op-form.OpOr), w: x.w, args: []argument{g.arg(x.a,
			false), g.arg(x.b, false)}})
	case form.OpMulHiU, form.OpMulHiS:
		if f := (quotientForms{g}).halfDivision(expr{op: form.OpShrU, w: x.w, a: e, b: g.number(32, 0)}); f != nil {
			return f
		}
		args := []argument{g.arg(x.a, x.op == form.OpMulHiS), g.arg(x.b, x.op == form.OpMulHiS)}
		for i, y := range [...]exprID{x.a, x.b} {
			if x.op == form.OpMulHiU && g.uniform[y] && x.w == 32 { // most often above 2^31
				args[i].f = g.uniformForm(g.unary(form.OpZext, 64, y))
			}
		}
		return g.atom(variable{kind: form.KindMulHiU + form.Kind(x.op-form.OpMulHiU), w: x.w, args: args})
	case form.OpMinU, form.OpMinS, form.OpMaxU, form.OpMaxS:
		signed := x.op == form.OpMinS || x.op == form.OpMaxS
		args := []argument{g.arg(x.a, signed), g.arg(x.b, signed)}
		if args[0].f.id > args[1].f.id { // the same one, whichever way round
			args[0], args[1] = args[1], args[0]
		}
		return g.atom(variable{kind: form.KindMinU + form.Kind(x.op-form.OpMinU), w: x.w, args: args})
	case form.OpAbs:
		return g.atom(variable{kind: form.KindAbs, w: x.w, args: []argument{g.arg(x.a, true)}})
	case form.OpPopc, form.OpClz:
		return g.atom(variable{kind: form.KindBits, w: x.w, imm: int64(g.width(x.a)), from: e})
	case form.OpSelect:
		return choiceForms{g}.choose(e, x, fb, g.linear[x.c])
	case form.OpPhi:
		return choiceForms{g}.merge(e, x)
	case form.OpDrift:
		return choiceForms{g}.drift(e, x, fa)
	case form.OpCurve:
		return g.atom(variable{kind: form.KindCurve, w: x.w, imm: x.imm, args: []argument{g.arg(x.a, false)}})
	case form.OpBetween:
		less, _ := g.constant(x.c)
		return g.atom(variable{kind: form.KindBetween, w: x.w, imm: less, from: e, args: []argument{g.arg(x.a, true),
			g.arg(x.b, true)}})
	case form.OpHalving:
		return g.atom(variable{kind: form.KindHalf, w: x.w, from: e, args: []argument{g.arg(x.a, x.imm&1 == 1)}})
	}
	return nil
}
