package ir

// Live says which values live at the ends of blocks: will be read on some path
// before the function ends. Both lists are ascending. The argument of a phi is read
// at the end of the predecessor it belongs to, and its result begins in its block.
type Live struct {
	In, Out [][]ValID // by block
	Max     int       // the most that live at once, in 32-bit units; predicates count nothing
}

// liveness walks from every use up to the definition. B. Boissinot et al., "Revisiting
// out-of-SSA translation", CGO 2009, section 4: the work is the size of the result.
func liveness(f *Func) error {
	type use struct {
		b   *Block
		out bool // at the end of b
	}
	uses := make([][]use, len(f.Vals))
	note := func(v ValID, b *Block, out bool) {
		if n := len(uses[v]); n > 0 && uses[v][n-1] == (use{b, out}) {
			return
		}
		uses[v] = append(uses[v], use{b, out})
	}
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if in.Op == Phi {
				for i, x := range in.Args {
					if x.Kind == Value {
						note(x.Val, b.Preds[i].Block, true)
					}
				}
				continue
			}
			in.Uses(func(x *Operand) {
				if x.Kind == Value && f.Vals[x.Val].Block != b {
					note(x.Val, b, false)
				} else if x.Kind == Value && f.Vals[x.Val].Def == in {
					note(x.Val, b, false) // not reached in checked code
				}
			})
		}
	}
	l := &Live{In: make([][]ValID, len(f.Blocks)), Out: make([][]ValID, len(f.Blocks))}
	ends := func(list []ValID, v ValID) bool { return len(list) > 0 && list[len(list)-1] == v }
	work := 0
	var up []*Block
	for v := range ValID(len(f.Vals)) {
		def := f.Vals[v].Block
		enter := func(b *Block) { // v is read in b or after it
			if b != def && !ends(l.In[b.Index], v) {
				l.In[b.Index] = append(l.In[b.Index], v)
				up = append(up, b)
			}
		}
		leave := func(b *Block) {
			if !ends(l.Out[b.Index], v) {
				l.Out[b.Index] = append(l.Out[b.Index], v)
				enter(b)
			}
		}
		for _, u := range uses[v] {
			if u.out {
				leave(u.b)
			} else {
				enter(u.b)
			}
			for len(up) > 0 {
				b := up[len(up)-1]
				up = up[:len(up)-1]
				for _, e := range b.Preds {
					if work++; work > maxWork {
						return &TooLargeError{f.Name, "liveness"}
					}
					leave(e.Block)
				}
			}
		}
	}
	f.Live = l
	l.Max = pressure(f)
	return nil
}

// pressure walks every block backwards and counts what lives between instructions.
func pressure(f *Func) int {
	units := func(v ValID) int { return (int(f.Vals[v].Type.Width) + 31) / 32 * b2i(f.Vals[v].Type.Kind != Pred) }
	most := 0
	live := make([]int32, len(f.Vals)) // the block in which a value is known to live below, plus one
	for _, b := range f.Blocks {
		stamp := int32(b.Index) + 1
		n := 0
		for _, v := range f.Live.Out[b.Index] {
			live[v] = stamp
			n += units(v)
		}
		most = max(most, n)
		for i := len(b.Insts) - 1; i >= 0; i-- {
			in := b.Insts[i]
			for _, d := range in.Defs {
				if d != None && live[d] == stamp {
					live[d] = 0
					n -= units(d)
				}
			}
			if in.Op == Phi {
				continue
			}
			in.Uses(func(x *Operand) {
				if x.Kind == Value && live[x.Val] != stamp {
					live[x.Val] = stamp
					n += units(x.Val)
				}
			})
			most = max(most, n)
		}
	}
	return most
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
