package corpus

import "holdfast/ptx"

// mentions counts the operands of a block that are the register name, and reports whether in is one of
// its instructions.
func mentions(b *ptx.Block, name string, in *ptx.Inst) (n int, here bool) {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Block:
			k, found := mentions(s, name, in)
			n, here = n+k, here || found
		case *ptx.Inst:
			here = here || s == in
			if s.Guard != nil && s.Guard.Reg == name {
				n++
			}
			n += occurs(s.Args, name)
			if c := s.Call; c != nil {
				n += occurs(c.Ret, name) + occurs(c.Params, name) + occurs([]ptx.Operand{c.Callee}, name)
			}
		}
	}
	return n, here
}

func occurs(list []ptx.Operand, name string) int {
	n := 0
	for _, x := range list {
		switch x := x.(type) {
		case *ptx.Ref:
			if x.Name == name {
				n++
			}
		case *ptx.Vector:
			n += occurs(x.Elems, name)
		case *ptx.Addr:
			n += occurs([]ptx.Operand{x.Base}, name) + occurs(x.Coords, name)
		case *ptx.Neg:
			n += occurs([]ptx.Operand{x.X}, name)
		case *ptx.Pair:
			n += occurs([]ptx.Operand{x.A, x.B}, name)
		}
	}
	return n
}
