package softgpu

import (
	"fmt"
	"math/bits"
)

// control runs an instruction that may change the set of groups. The current
// group's pc is that of the instruction.
func (w *warp) control(in *inst, mask uint32) {
	g := &w.groups[w.cur]
	if in.kind == kindSync {
		if w.together(in, mask) {
			in.exec(w, in, mask)
			// Lanes of the group outside mask have it predicated off.
			w.groups[w.cur].pc++
		}
		return
	}
	switch in.kind {
	case kindTable:
		w.branchTable(in, mask)
	case kindCall:
		w.call(in, mask)
	case kindReturn:
		w.ret(mask)
	case kindExit:
		w.exit(mask)
	case kindBarrier:
		w.barrier(in, mask)
	case kindSleep:
		g.pc++
		w.spins += warpSlice / pollCost
		w.expire = len(w.groups) > 1
		w.rest = true
	case kindCluster:
		w.clusterBarrier(in, mask)
	case kindWait:
		w.missed = false
		in.exec(w, in, mask)
		g.pc++
		if w.missed {
			w.spins += warpSlice / pollCost
			w.expire = len(w.groups) > 1
			w.rest = true
		}
	case kindTrap:
		w.fault(FaultTrap, in, bits.TrailingZeros32(mask), 0, "")
	}
}

// detach splits the lanes of mask off the current group and returns their
// group; what remains goes on with the next instruction.
func (w *warp) detach(mask uint32) *group {
	g := &w.groups[w.cur]
	if g.mask == mask {
		return g
	}
	w.groups = append(w.groups, group{pc: g.pc + 1, mask: g.mask &^ mask, fr: g.fr, stamp: g.stamp})
	g = &w.groups[w.cur]
	g.mask = mask
	return g
}

func (w *warp) branchTable(in *inst, mask uint32) {
	g := w.detach(mask)
	targets := in.x.([]*label)
	idx := w.r.v32(in.a)
	fr, stamp := g.fr, g.stamp
	g.mask = 0
	for mask != 0 {
		i := bits.TrailingZeros32(mask)
		k := idx[i]
		var same uint32
		for m := mask; m != 0; m &= m - 1 {
			if j := bits.TrailingZeros32(m); idx[j] == k {
				same |= 1 << j
			}
		}
		if uint64(k) >= uint64(len(targets)) {
			w.fault(FaultTrap, in, i, 0, fmt.Sprintf("brx.idx index %d of %d targets", k, len(targets)))
		}
		w.groups = append(w.groups, group{pc: targets[k].pc, mask: same, fr: fr, stamp: stamp})
		mask &^= same
	}
}

// exit ends the lanes of mask.
func (w *warp) exit(mask uint32) {
	g := &w.groups[w.cur]
	g.mask &^= mask
	g.pc++
	w.alive &^= mask
	b := w.block
	b.live -= bits.OnesCount32(mask)
	b.cluster.exited(w, mask)
	if g.mask == 0 {
		w.groups[w.cur] = w.groups[len(w.groups)-1]
		w.groups = w.groups[:len(w.groups)-1]
	}
	if b.live > 0 {
		b.exited()
	}
	w.wakeLanes()
}
