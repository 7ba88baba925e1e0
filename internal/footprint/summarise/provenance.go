package summarise

import "holdfast/internal/ir"

// A making says what a value has been made from.
type making uint8

const (
	madeOfNothing making = iota // nothing yet
	madeOfWindow                // addresses of shared or local memory, on all ways, and numbers added to them
	madeOfAnything
)

// provenance knows what addresses have been made from.
type provenance struct {
	*values
	makings []making // of the SSA values
}

// windows finds the values that are addresses of shared or local memory on all ways that lead to
// them, where symbolic values say nothing: pointers that loops move, or exchange. As with variables, such an
// address stays in that memory whatever is added to it.
func (pv *provenance) windows() {
	pv.makings = make([]making, len(pv.f.Vals))
	of := func(x ir.Operand) making {
		switch {
		case x.Kind == ir.Value && x.Part == "" && x.Mod == 0:
			return pv.makings[x.Val]
		case x.Kind == ir.Symbol:
			if i, ok := pv.symOf[x.Name]; ok {
				if s := pv.symbols[i].space; s == ir.Shared || s == ir.Local {
					return madeOfWindow
				}
			}
		}
		return madeOfAnything
	}
	for range 32 {
		changed := false
		for _, b := range pv.f.Blocks {
			for _, in := range b.Insts {
				s := madeOfAnything
				switch in.Op {
				case ir.ToGeneric:
					if in.Space == ir.Shared || in.Space == ir.Cluster || in.Space == ir.Local {
						s = madeOfWindow
					}
				case ir.Mov:
					s = of(in.Args[0])
				case ir.Phi:
					s = madeOfNothing
					for _, x := range in.Args {
						s = max(s, of(x))
					}
				case ir.Select:
					s = max(of(in.Args[0]), of(in.Args[1]))
				case ir.Add, ir.Sub:
					x, y := of(in.Args[0]), of(in.Args[1])
					switch {
					case x == madeOfWindow && y == madeOfAnything, in.Op == ir.Add && x == madeOfAnything &&
						y == madeOfWindow:
						s = madeOfWindow
					case x == madeOfNothing || y == madeOfNothing:
						s = madeOfNothing
					}
				}
				for i, d := range in.Defs {
					if d == ir.None {
						continue
					}
					t := s
					if in.Guarded() && i < len(in.Else) {
						t = max(t, of(in.Else[i]))
					}
					if pv.f.Vals[d].Type.Width != 64 {
						t = madeOfAnything
					}
					if t > pv.makings[d] {
						pv.makings[d] = t
						changed = true
					}
				}
			}
		}
		if !changed {
			return
		}
	}
	clear(pv.makings) // too many rounds: nothing is known
}

// inWindow reports whether an address is one of shared or local memory.
func (pv *provenance) inWindow(x ir.Operand) bool {
	return x.Kind == ir.Value && x.Part == "" && x.Mod == 0 && pv.makings[x.Val] == madeOfWindow
}
