package summarise

import (
	"encoding/binary"
	"math"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A varID names a variable: it indexes graph.vars.
type varID int32

// An argument of a variable is a form, to be read as a number of w bits: unsigned,
// signed, or (w = 0) as the integer that it is.
type argument struct {
	f      *linear
	w      uint8
	signed bool
	conds  []fact // of KindOne: uniform ones, without which it is not this argument
}

// A variable is something that differs from thread to thread.
type variable struct {
	kind form.Kind
	w    uint8
	imm  int64
	from exprID // what it stands for, if it is not made of its arguments
	args []argument

	bounds interval.Bounds // in every launch
}

// keyOf is what tells a variable from others.
func (g *graph) keyOf(v *variable) []byte {
	key := binary.AppendVarint([]byte{byte(v.kind), v.w}, v.imm)
	key = binary.AppendVarint(key, int64(v.from))
	for _, a := range v.args {
		key = binary.AppendVarint(key, int64(a.f.id))
		key = append(key, a.w, byte(form.Truth(a.signed)&1))
	}
	return key
}

// variable finds or makes a variable.
func (g *graph) variable(v variable) varID {
	if v.kind == form.KindFloor || v.kind == form.KindMod {
		v.w = 64 // they are numbers, whatever the width of the instruction that made them
	}
	key := g.keyOf(&v)
	if id, ok := g.varOf[string(key)]; ok {
		return id
	}
	id := varID(len(g.vars))
	if v.kind == form.KindThread {
		v.bounds = g.coordinate(int(v.imm))
	} else {
		var ab [2]interval.Bounds
		for i, a := range v.args {
			b := a.read(g.formBounds(a.f), len(a.f.checks) == 0 && (a.w < 63 || g.whole(a)))
			switch {
			case v.kind == form.KindOne && i > 0:
				ab[0] = ab[0].Join(b)
			case i < len(ab):
				ab[i] = b
			}
		}
		v.bounds = form.Evaluate(v.kind, v.w, v.imm, ab[0], ab[1])
	}
	g.vars = append(g.vars, v)
	g.varOf[string(key)] = id
	return id
}

// coordinate is the bounds of a coordinate in every launch.
func (g *graph) coordinate(i int) interval.Bounds {
	switch i {
	case form.TidX, form.TidY, form.TidZ:
		return interval.Bounds{Lo: 0, Hi: g.maxTid[i-form.TidX]}
	case form.CtaidX, form.ClusterIDX, form.ClusterIDY, form.ClusterIDZ:
		return interval.Bounds{Lo: 0, Hi: math.MaxInt32 - 1}
	case form.CtaidY, form.CtaidZ:
		return interval.Bounds{Lo: 0, Hi: 65535 - 1}
	case form.LaneID:
		return interval.Bounds{Lo: 0, Hi: 31}
	}
	return interval.Bounds{Lo: 0, Hi: 1023}
}

// read is the bounds of an argument whose form lies in b; sound says that the checks of the form
// hold.
func (a argument) read(b interval.Bounds, sound bool) interval.Bounds {
	return form.ReadBounds(a.w, a.signed, b, sound)
}

// whole reports whether a number of 64 bits is what its form is: the form is bounded, or a variable that is such a
// number. A sum without bounds may have overflowed: then it is any number.
func (g *graph) whole(a argument) bool {
	if g.formBounds(a.f).Bounded() {
		return true
	}
	f := a.f
	if len(f.terms) != 1 || !g.isZero(f.c) || f.sym != 0 {
		return false
	}
	k, ok := g.constant(f.terms[0].coef)
	v := &g.vars[f.terms[0].v]
	return ok && k == 1 && form.IsNumber(v.kind, v.w, v.imm, a.signed)
}
