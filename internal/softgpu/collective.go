package softgpu

import "math/bits"

// A syncOp belongs to a kindSync instruction; the member mask is in inst.e.
type syncOp struct {
	meetAnywhere bool // bar.warp.sync: lanes may wait at different instructions
}

// together reports whether all lanes named by the member masks of the lanes
// of mask are here; if not, the group waits for them.
func (w *warp) together(in *inst, mask uint32) bool {
	var need uint32
	members := w.r.v32(in.e)
	for m := mask; m != 0; m &= m - 1 {
		need |= members[bits.TrailingZeros32(m)]
	}
	need &= w.alive
	if need&^mask == 0 {
		return true
	}
	g := w.detach(mask)
	g.wait, g.need = waitLanes, need
	pc, fr := g.pc, g.fr
	// Lanes that wait at the same instruction join this group.
	var joined uint32
	for i := range w.groups {
		o := &w.groups[i]
		if o.wait == waitLanes && o.pc == pc && o.fr == fr {
			joined |= o.mask
		}
	}
	if need&^joined == 0 {
		for i := range w.groups {
			o := &w.groups[i]
			if o.wait == waitLanes && o.pc == pc && o.fr == fr {
				o.wait = waitNone // pick merges them and the instruction runs again
			}
		}
		return false
	}
	w.wakeLanes()
	return false
}

// wakeLanes looks for groups that wait for lanes which have exited, or which
// wait at another bar.warp.sync for the same lanes.
func (w *warp) wakeLanes() {
	for i := range w.groups {
		g := &w.groups[i]
		if g.wait != waitLanes {
			continue
		}
		g.need &= w.alive
		in := &w.block.launch.prog.code[g.pc]
		op, _ := in.x.(*syncOp)
		var here uint32
		for j := range w.groups {
			o := &w.groups[j]
			if o.wait != waitLanes {
				continue
			}
			same := o.pc == g.pc && o.fr == g.fr
			if !same && op != nil && op.meetAnywhere {
				other, _ := w.block.launch.prog.code[o.pc].x.(*syncOp)
				same = other != nil && other.meetAnywhere && o.need == g.need
			}
			if same {
				here |= o.mask
			}
		}
		if g.need&^here != 0 {
			continue
		}
		need := g.need
		for j := range w.groups {
			o := &w.groups[j]
			if o.wait != waitLanes || o.mask&here == 0 {
				continue
			}
			o.wait = waitNone
			if op != nil && op.meetAnywhere && o.mask&need != 0 {
				o.pc++ // all have met: past the barrier
			}
		}
	}
}
