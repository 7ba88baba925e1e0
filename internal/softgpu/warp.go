package softgpu

import (
	"math/bits"
	"unsafe"

	"holdfast/internal/softgpu/lanes"
)

const fullMask = ^uint32(0)

// How long a group may run before others get their turn, in instructions.
const (
	warpSlice   = 32 << 10 // a warp, before the next warp of the block
	groupLease  = 16 << 10 // a group, while others of its warp could run
	fairLease   = 4 << 10  // a group that runs out of turn
	pollCost    = 256      // what an atomic or volatile access counts: spinning ends early
	maxDepth    = 1 << 10  // call frames
	groupsPlace = 4        // groups a warp has place for from the start
)

// The reasons for which a group waits.
const (
	waitNone uint8 = iota
	waitBarrier
	waitLanes // for the other lanes of a member mask
	waitCluster
)

// A frame is what a call pushed. Lanes that called together share it.
type frame struct {
	parent *frame
	ret    int32
	depth  int32
	local  uint32    // start of the callee's local variables, of a recursive function
	top    uint32    // end of them
	saved  []uint64  // registers of the callee before the call, of a recursive function
	fn     *function // the callee
	site   *callSite // nil in the kernel itself
}

// A group is a set of lanes that run in step.
type group struct {
	pc    int32
	mask  uint32
	fr    *frame
	wait  uint8
	bar   uint8
	need  uint32 // the lanes a waitLanes group waits for
	stamp uint64 // when it last ran
}

// A warp is 32 threads. All its state belongs to the goroutine that runs its block.
type warp struct {
	r           regs
	block       *block
	id          int
	exist       uint32 // lanes that are threads
	alive       uint32 // lanes that have not exited
	groups      []group
	cur         int
	fair        bool // the current group runs out of turn
	expire      bool // the last lease ended
	rest        bool // the warp asked for others to run
	spins       int  // polls in this slice
	lease       int
	clusterIn   uint32 // lanes that have arrived at the cluster's barrier
	clusterPast uint32 // lanes whose phase of it has ended, and that have not waited for that

	missed bool // a kindWait instruction found that it has to wait
	tick   uint64
	matrix *matrixScratch // of tensor instructions; nil until one runs

	local      unsafe.Pointer // local memory of lane 0
	localSpan  uint64         // bytes a lane
	frameLimit uint64         // of them, for variables; the stack of alloca is behind

	file   []uint64 // keeps r alive
	frame0 frame
}

func (w *warp) start(pc int32) {
	w.alive = w.exist
	w.clusterIn, w.clusterPast = 0, 0
	w.frame0 = frame{ret: -1, top: w.block.launch.prog.localStatic}
	w.groups = append(w.groups[:0], group{pc: pc, mask: w.exist, fr: &w.frame0})
	w.cur, w.fair, w.expire, w.lease = 0, false, false, 0
}

func (w *warp) runnable() bool {
	for i := range w.groups {
		if w.groups[i].wait == waitNone {
			return true
		}
	}
	return false
}

// merge joins groups that meet and drops empty ones.
func (w *warp) merge() {
	gs := w.groups
	n := 0
	for i := range gs {
		g := gs[i]
		if g.mask == 0 {
			continue
		}
		joined := false
		if g.wait == waitNone {
			for j := range n {
				if gs[j].pc == g.pc && gs[j].fr == g.fr && gs[j].wait == waitNone {
					gs[j].mask |= g.mask
					gs[j].stamp = min(gs[j].stamp, g.stamp)
					joined = true
					break
				}
			}
		}
		if !joined {
			gs[n] = g
			n++
		}
	}
	w.groups = gs[:n]
}

// pick chooses the group to run and says at which counter it meets another
// one. It reports false when none can run.
func (w *warp) pick() (stop int32, ok bool) {
	if len(w.groups) > 1 || len(w.groups) == 1 && w.groups[0].mask == 0 {
		w.merge()
	}
	gs := w.groups
	if len(gs) == 1 {
		w.cur, w.fair, w.expire = 0, false, false
		w.lease = warpSlice
		return -1, gs[0].wait == waitNone
	}
	best := -1
	for i := range gs {
		if gs[i].wait != waitNone {
			continue
		}
		switch {
		case best < 0:
			best = i
		case w.expire:
			if gs[i].stamp < gs[best].stamp {
				best = i
			}
		case gs[i].fr.depth != gs[best].fr.depth:
			if gs[i].fr.depth > gs[best].fr.depth {
				best = i
			}
		case gs[i].pc < gs[best].pc:
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	w.fair = w.expire
	if w.fair {
		w.lease = fairLease
	} else if best != w.cur || w.lease <= 0 {
		w.lease = groupLease
	}
	w.expire = false
	w.cur = best
	w.tick++
	gs[best].stamp = w.tick
	return w.meeting(gs[best].pc), true
}

// meeting is the lowest counter from pc on where the current group meets another.
func (w *warp) meeting(pc int32) int32 {
	stop := int32(-1)
	depth := w.groups[w.cur].fr.depth
	for i := range w.groups {
		g := &w.groups[i]
		if i != w.cur && g.wait == waitNone && g.fr.depth == depth && g.pc > pc && (stop < 0 || g.pc < stop) {
			stop = g.pc
		}
	}
	return stop
}

// run executes at most about budget instructions of the warp. It returns when
// nothing in it can run, or the budget is used.
func (w *warp) run(budget int) {
	w.spins, w.rest = 0, false
	for budget > 0 && !w.rest {
		stop, ok := w.pick()
		if !ok {
			return
		}
		budget -= w.runGroup(stop, budget)
	}
}

// runGroup runs the current group until it meets another one, splits, waits,
// ends, or has run for its lease; it returns the number of instructions, polls weighted.
func (w *warp) runGroup(stop int32, budget int) int {
	code := w.block.launch.code
	base := w.r.base
	r := w.r
	g := &w.groups[w.cur]
	pc, active := g.pc, g.mask
	dead := ^w.alive
	lease := min(w.lease, budget)
	n := lease
	polls := 0
	start := pc

loop:
	for n > 0 {
		if pc == stop && pc != start {
			break
		}
		in := &code[pc]
		n--
		mask := active
		if in.guard != 0 {
			p := *(*uint32)(unsafe.Add(base, in.guard))
			if in.guardNot {
				p = ^p
			}
			mask &= p
			if mask == 0 {
				pc++
				continue
			}
		}
		switch in.kind {
		case kindVec:
			d, a, b, c := unsafe.Add(base, in.d), unsafe.Add(base, in.a), unsafe.Add(base, in.b), unsafe.Add(base, in.c)
			if mask|dead == fullMask {
				in.vec(d, a, b, c)
			} else {
				t := unsafe.Add(base, regTmp)
				in.vec(t, a, b, c)
				if in.wide&wideD != 0 {
					lanes.Blend64(d, t, mask)
				} else {
					lanes.Blend32(d, t, mask)
				}
			}
			pc++
		case kindCmp:
			x := in.cmp(unsafe.Add(base, in.a), unsafe.Add(base, in.b))
			setPreds(base, in, x, mask)
			pc++
		case kindExec:
			g.pc = pc // for faults
			in.exec(w, in, mask)
			pc++
		case kindLane:
			w.runLane(in, mask)
			pc++
		case kindBranch:
			if mask == active {
				if w.fair {
					g.pc = in.target
					stop = w.meeting(in.target - 1)
					start = -1
				} else if stop >= 0 && in.target >= stop {
					pc = in.target
					break loop
				}
				pc = in.target
				continue
			}
			g.mask = mask
			g.pc = in.target
			w.groups = append(w.groups, group{pc: pc + 1, mask: active &^ mask, fr: g.fr, stamp: g.stamp})
			w.count(lease-n-polls*pollCost, active)
			w.lease -= lease - n
			return lease - n
		case kindLaneCmp:
			var x uint32
			for m := mask; m != 0; m &= m - 1 {
				i := bits.TrailingZeros32(m)
				x |= uint32(in.lane(r.get(in.a, i, in.wide&wideA != 0), r.get(in.b, i, in.wide&wideB != 0), 0)) << i
			}
			setPreds(base, in, x, mask)
			pc++
		case kindPoll:
			g.pc = pc
			in.exec(w, in, mask)
			n -= pollCost
			polls++
			pc++
		default:
			// Everything that changes the set of groups.
			g.pc = pc
			w.count(lease-n-polls*pollCost, active)
			w.spins += polls
			w.lease -= lease - n
			w.control(in, mask)
			return lease - n
		}
	}
	g.pc = pc
	w.count(lease-n-polls*pollCost, active)
	w.spins += polls
	w.lease -= lease - n
	if w.lease <= 0 {
		w.expire = !w.fair
	}
	return lease - n
}

func (w *warp) count(n int, active uint32) {
	w.block.threadInsts += uint64(n) * uint64(bits.OnesCount32(active))
	w.block.warpInsts += uint64(n)
}

// runLane runs an instruction that has only a scalar form.
func (w *warp) runLane(in *inst, mask uint32) {
	r := w.r
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		x := in.lane(r.get(in.a, i, in.wide&wideA != 0), r.get(in.b, i, in.wide&wideB != 0),
			r.get(in.c, i, in.wide&wideC != 0))
		r.put(in.d, i, in.wide&wideD != 0, x)
	}
}

// The values of inst.boolOp.
const (
	boolNone = iota
	boolAnd
	boolOr
	boolXor
)

// setPreds writes the result x of a comparison, combined with predicate c, to
// predicate d, and that of its opposite to e.
func setPreds(base unsafe.Pointer, in *inst, x, mask uint32) {
	p, q := x, ^x
	if in.boolOp != boolNone {
		c := *(*uint32)(unsafe.Add(base, in.c))
		switch in.boolOp {
		case boolAnd:
			p, q = p&c, q&c
		case boolOr:
			p, q = p|c, q|c
		default:
			p, q = p^c, q^c
		}
	}
	d := (*uint32)(unsafe.Add(base, in.d))
	*d = *d&^mask | p&mask
	if in.e != 0 {
		e := (*uint32)(unsafe.Add(base, in.e))
		*e = *e&^mask | q&mask
	}
}
