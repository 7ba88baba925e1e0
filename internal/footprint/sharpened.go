package footprint

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// The bounds of a guard that hold.
const (
	BothSides = iota
	OnlyLow
	OnlyHigh
)

// sharpened is the bounds of a guard's form where less of it holds, or more.
func (m *machine) sharpened(g *Guard, in interval.Bounds) (interval.Bounds, bool) {
	if g.Need != 0 {
		if m.total(&m.p.Forms[g.Need-1]).Lo < 0 {
			return in, false
		}
		switch g.Side {
		case OnlyLow:
			in.Hi = interval.Far
		case OnlyHigh:
			in.Lo = -interval.Far
		}
	}
	if g.Mod > 1 {
		if in.Hi < interval.Far/2 && in.Hi > -interval.Far/2 {
			in.Hi -= form.Modulo(interval.Bounds{Lo: in.Hi - g.Res, Hi: in.Hi - g.Res}, g.Mod).Lo
		}
		if in.Lo < interval.Far/2 && in.Lo > -interval.Far/2 {
			in.Lo += form.Modulo(interval.Bounds{Lo: g.Res - in.Lo, Hi: g.Res - in.Lo}, g.Mod).Lo
		}
	}
	return in, true
}
