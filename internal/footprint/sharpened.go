package footprint

import (
	"holdfast/internal/footprint/form"
)

// The bounds of a guard that hold.
const (
	BothSides = iota
	OnlyLow
	OnlyHigh
)

// sharpened is the bounds of a guard's form where less of it holds, or more.
func (m *machine) sharpened(g *Guard, in form.Bounds) (form.Bounds, bool) {
	if g.Need != 0 {
		if m.total(&m.p.Forms[g.Need-1]).Lo < 0 {
			return in, false
		}
		switch g.Side {
		case OnlyLow:
			in.Hi = form.Far
		case OnlyHigh:
			in.Lo = -form.Far
		}
	}
	if g.Mod > 1 {
		if in.Hi < form.Far/2 && in.Hi > -form.Far/2 {
			in.Hi -= form.Modulo(form.Bounds{Lo: in.Hi - g.Res, Hi: in.Hi - g.Res}, g.Mod).Lo
		}
		if in.Lo < form.Far/2 && in.Lo > -form.Far/2 {
			in.Lo += form.Modulo(form.Bounds{Lo: g.Res - in.Lo, Hi: g.Res - in.Lo}, g.Mod).Lo
		}
	}
	return in, true
}
