package ptx

import "math"

// Comments are printed by position. One on the line of the statement before it stays behind that
// statement, others get lines of their own before the next one.

// end is behind every comment.
var end = Pos{Offset: math.MaxInt, Line: math.MaxInt}

// before prints the comments that stand before pos, each on its own line.
func (f *printer) before(pos Pos) {
	for len(f.comments) > 0 && f.comments[0].Pos.Offset < pos.Offset {
		f.line(f.comments[0].Text)
		f.comments = f.comments[1:]
	}
}

// behind puts the comments on the line of the statement at pos, which was printed last, behind it. next is
// where the next statement stands.
func (f *printer) behind(pos, next Pos) {
	for len(f.comments) > 0 {
		c := f.comments[0]
		if c.Pos.Line != pos.Line || c.Pos.Offset < pos.Offset ||
			c.Pos.Offset > next.Offset || f.b[len(f.b)-1] != '\n' {
			return
		}
		f.b = append(append(append(f.b[:len(f.b)-1], ' '), c.Text...), '\n')
		f.comments = f.comments[1:]
	}
}

func declPos(d Decl) Pos {
	switch d := d.(type) {
	case *Var:
		return d.Pos
	case *Func:
		return d.Pos
	case *File:
		return d.Pos
	case *Pragma:
		return d.Pos
	case *Section:
		return d.Pos
	case *Alias:
		return d.Pos
	}
	return Pos{}
}

func stmtPos(s Stmt) Pos {
	switch s := s.(type) {
	case *Inst:
		return s.Pos
	case *Label:
		return s.Pos
	case *Block:
		return s.Pos
	case *VarStmt:
		if len(s.Vars) > 0 {
			return s.Vars[0].Pos
		}
	case *Loc:
		return s.Pos
	case *Pragma:
		return s.Pos
	case *File:
		return s.Pos
	case *Section:
		return s.Pos
	case *BranchTargets:
		return s.Pos
	case *CallTargets:
		return s.Pos
	case *CallPrototype:
		return s.Pos
	}
	return Pos{}
}
