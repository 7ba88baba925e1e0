package footprint

import (
	"slices"

	"holdfast/internal/ir"
)

// A path is a kernel's code as far as one thread can be followed through it: its blocks, the
// conditions at their ends, and the accesses in them. Values are those of the first iteration of
// every loop. What cannot be computed is left out, so what is found is certain.
type path struct {
	ops    []instr // the arguments of an operation come before it; operation 0 is none
	blocks []pblock
	items  []pitem
}

type pblock struct {
	i0, i1 int32 // items
	cond   int32 // operation
	s0, s1 int32 // where it goes on if the condition holds, and if not; -1 = the thread ends
	after  int32 // the block that every way from here leads to; -1 = none
	header int32 // 1 + the loop that begins here
	leave  int32 // of a header: where every way out of the loop leads to; -1 = none
	loop   int32 // 1 + the innermost loop
}

// A pitem is an access by one instruction.
type pitem struct {
	kind   akind
	hidden bool
	addr   int32 // operation
	guard  int32 // operation; 0 = always
	off    int64
	bytes  int64
	pos    int32
	order  int32
	value  int32 // what is written or has been read, to see that a byte is written back
}

// path makes the code that a witness is looked for in.
func (k *kernel) path(list []*access) path {
	var p path
	at := map[exprID]int32{}
	p.ops = append(p.ops, instr{})
	var op func(e exprID) int32
	op = func(e exprID) int32 {
		if e == none {
			return 0
		}
		if i, ok := at[e]; ok {
			return i
		}
		x := k.exprs[e]
		in := instr{op: x.op, w: x.w, imm: x.imm}
		in.a, in.b, in.c = op(x.a), op(x.b), op(x.c)
		if x.a != none {
			in.aw = k.width(x.a)
		}
		if b := k.origin[e]; b != nil && (x.op == opHalving || x.op == opDrift) {
			in.imm = k.loopOf[k.f.Loops.Of[b.Index]]
		}
		i := int32(len(p.ops))
		p.ops = append(p.ops, in)
		at[e] = i
		return i
	}
	by := map[*ir.Block][]*access{}
	for _, a := range list {
		by[a.block] = append(by[a.block], a)
	}
	end := len(k.f.Blocks)
	for _, b := range k.f.Blocks {
		x := pblock{i0: int32(len(p.items)), s0: -1, s1: -1, after: -1, leave: -1}
		for _, a := range by[b] {
			if a.upTo {
				continue // no witness: it may read nothing
			}
			p.items = append(p.items, pitem{kind: a.kind, hidden: a.hidden, addr: op(a.addr), guard: op(a.guard), off: a.off, bytes: a.bytes,
				pos: int32(a.pos), order: int32(a.order), value: int32(a.value)})
		}
		x.i1 = int32(len(p.items))
		if d := k.f.PostDom.Parent[b.Index]; int(d) < end {
			x.after = d
		}
		k.branch(b, &x, op)
		if l := k.f.Loops.Of[b.Index]; l != nil {
			x.loop = int32(k.loopOf[l]) + 1
			if l.Header == b {
				x.header = x.loop
				d := k.f.PostDom.Parent[b.Index]
				for int(d) < end && k.f.Loops.Contains(l, k.f.Blocks[d]) {
					d = k.f.PostDom.Parent[d]
				}
				if int(d) < end {
					x.leave = d
				}
			}
		}
		p.blocks = append(p.blocks, x)
	}
	return p
}

// branch fills in how a block ends.
func (k *kernel) branch(b *ir.Block, x *pblock, op func(exprID) int32) {
	end := b.End()
	switch {
	case end == nil || end.Op == ir.Branch && !end.Guarded():
		if len(b.Succs) > 0 {
			x.s0 = int32(b.Succs[0].Block.Index)
			x.s1 = x.s0
		}
	case end.Op == ir.Branch && len(b.Succs) == 2:
		x.cond = op(k.operand(end.Guard, 1))
		x.s0, x.s1 = int32(b.Succs[0].Block.Index), int32(b.Succs[1].Block.Index)
	case end.Op.Leaves() && end.Guarded() && len(b.Succs) == 1:
		x.cond = op(k.operand(end.Guard, 1))
		x.s1 = int32(b.Succs[0].Block.Index)
	case end.Op == ir.Switch:
		x.cond = -1
	}
}

// A walker follows one thread.
type walker struct {
	vals    []int64
	state   []uint32 // stamp: known; stamp+1: cannot be known
	stamp   uint32
	visited []uint32
	turn    uint32
	in      []bool // loops whose first iteration the thread is in, or has left it from
	thread  [numCoordinates]int64
	log     []event
	looks   int   // accesses that were looked at
	tried   bool  // a witness was looked for
	shown   int32 // the base of the one that was found
}

// An event is an access that the thread surely makes.
type event struct {
	item   int32
	lo, hi uint64
}

// maxEvents and maxBlocks bound how far a thread is followed.
const (
	maxEvents = 64
	maxBlocks = 64
	maxOps    = 4096
	maxLooks  = 1024 // a launch is judged in microseconds
)

func (w *walker) grow(p *view, loops int) {
	w.vals = resize(w.vals, len(p.ops))
	if len(w.state) < len(p.ops) || len(w.visited) < len(p.blocks) || w.stamp > 1<<31 {
		w.state = make([]uint32, max(len(p.ops), len(w.state)))
		w.visited = make([]uint32, max(len(p.blocks), len(w.visited)))
		w.stamp, w.turn = 0, 0
	}
	w.in = resize(w.in, loops)
}

// value computes an operand for the thread; false if that cannot be done.
func (m *machine) value(p *view, i int32) (int64, bool) {
	if i < 0 {
		return m.regs[^i], true
	}
	w := &m.walk
	switch w.state[i] {
	case w.stamp:
		return w.vals[i], true
	case w.stamp + 1:
		return 0, false
	}
	x, ok := m.valueOf(p, &p.ops[i])
	w.vals[i], w.state[i] = x, w.stamp
	if !ok {
		w.state[i] = w.stamp + 1
	}
	return x, ok
}

func (m *machine) valueOf(p *view, in *instr) (int64, bool) {
	w := &m.walk
	switch in.op {
	case opConst:
		return in.imm, true
	case opParam:
		return m.param(in), true
	case opGeometry:
		return m.geometry(int(in.imm)), true
	case opThread:
		return w.thread[in.imm], w.thread[in.imm] >= 0
	case opCounter:
		return 0, w.in[in.imm]
	case opHalving, opDrift:
		if !w.in[in.imm] {
			return 0, false
		}
		return m.value(p, in.a)
	case opSelect:
		c, ok := m.value(p, in.a)
		if !ok {
			return 0, false
		}
		if c != 0 {
			return m.value(p, in.b)
		}
		return m.value(p, in.c)
	case opNone, opUnknown, opPhi, opSymbol, opCurve, opBetween:
		return 0, false
	}
	if in.w == 1 && (in.op == opAnd || in.op == opOr) { // one of the two may say it all
		says := in.op == opOr
		a, ok := m.value(p, in.a)
		b, known := m.value(p, in.b)
		if ok && (a != 0) == says || known && (b != 0) == says {
			return truth(says), true
		}
		return b, ok && known
	}
	// Many arguments are registers: no call for those.
	var a, b int64
	ok := true
	if in.a < 0 {
		a = m.regs[^in.a]
	} else if a, ok = m.value(p, in.a); !ok {
		return 0, false
	}
	if in.b < 0 {
		b = m.regs[^in.b]
	} else if in.b > 0 {
		if b, ok = m.value(p, in.b); !ok {
			return 0, false
		}
	}
	switch s := (64 - in.w) & 63; in.op {
	case opAdd:
		return (a + b) << s >> s, true
	case opMul:
		return a * b << s >> s, true
	case opSext:
		return a, true
	}
	return compute(in.op, in.w, in.aw, a, b, 0)
}

// follow logs the accesses that a thread surely makes, in their order.
func (m *machine) follow(p *view, block, tid [3]int64) {
	w := &m.walk
	l := m.launch
	for i := range w.thread {
		w.thread[i] = -1
	}
	for i := range 3 {
		w.thread[tidX+i], w.thread[ctaidX+i] = tid[i], block[i]
		w.thread[clusterCtaX+i] = block[i] % int64(m.cluster[i])
		w.thread[clusterIDX+i] = block[i] / int64(m.cluster[i])
	}
	w.thread[laneID] = (tid[0] + int64(l.Block[0])*(tid[1]+int64(l.Block[1])*tid[2])) % 32
	w.thread[clusterRank] = w.thread[clusterCtaX] + int64(m.cluster[0])*(w.thread[clusterCtaY]+int64(m.cluster[1])*w.thread[clusterCtaZ])
	w.stamp += 2
	w.turn++
	clear(w.in)
	w.log = w.log[:0]
	b := int32(0)
	for range maxBlocks {
		x := &p.blocks[b]
		if w.visited[b] == w.turn {
			// The loop goes round. Nobody knows how often: go on behind it.
			if x.header == 0 || x.leave < 0 {
				return
			}
			b = m.jump(p, x.leave)
			continue
		}
		w.visited[b] = w.turn
		if x.header != 0 {
			w.in[x.header-1] = true
		}
		if !m.events(p, x) {
			return
		}
		next := x.s0
		if x.cond != 0 || x.unclear {
			c, ok := int64(0), false
			if !x.unclear {
				c, ok = m.value(p, x.cond)
			}
			switch {
			case !ok && x.after < 0:
				return
			case !ok:
				b = m.jump(p, x.after)
				continue
			case c == 0:
				next = x.s1
			}
		}
		if next < 0 {
			return
		}
		b = next
	}
}

// jump goes on at a block that the thread surely comes to. Of the loops that it leaves on its
// way nobody knows how often they went round.
func (m *machine) jump(p *view, to int32) int32 {
	w := &m.walk
	for i := range w.in {
		if w.in[i] && int32(i) != p.blocks[to].loop-1 {
			// Whether to is in loop i is not looked up: a loop around both is given up as well.
			w.in[i] = false
		}
	}
	w.stamp += 2
	return to
}

// events logs the accesses of a block.
func (m *machine) events(p *view, x *vblock) bool {
	w := &m.walk
	for i := x.i0; i < x.i1; i++ {
		it := &p.items[i]
		if it.guard != 0 {
			if g, ok := m.value(p, it.guard); !ok || g == 0 {
				continue
			}
		}
		a, ok := m.value(p, it.addr)
		if !ok {
			continue
		}
		if len(w.log) >= maxEvents {
			return false
		}
		lo := uint64(a + it.off)
		w.log = append(w.log, event{i, lo, lo + uint64(it.bytes)})
	}
	return true
}

// witness looks for a thread that reads a byte as it was and overwrites it. It looks at two threads, and at
// those that write what they read.
func (in *Instance) witness(s *Summary, r, w int) bool {
	m := &in.m
	p := &m.plan.view
	if p.blind {
		return false
	}
	m.walk.grow(p, s.loops)
	m.walk.looks, m.walk.tried = 0, true
	l := m.launch
	var block, tid [3]int64
	for try := range 2 {
		if try == 1 {
			for i := range 3 {
				block[i], tid[i] = int64(l.Grid[i]/2), int64(l.Block[i]/2)
			}
		}
		m.follow(p, block, tid)
		if in.sameThread() || in.otherThread(r, w, block) {
			return true
		}
	}
	return false
}

// sameThread looks for a read and a later write of the same byte in the log.
func (in *Instance) sameThread() bool {
	log := in.m.walk.log
	items := in.m.plan.view.items
	for i := range log {
		e := &log[i]
		r := &items[e.item]
		if r.kind == isWrite || r.kind == isSettle {
			continue
		}
		if r.kind == isUpdate && in.live(e.lo, r.order) {
			in.found(r, r, e.lo)
			return true
		}
		if !in.unplaced && !touches(in.Writes, e.lo, e.hi) {
			continue
		}
		for j := i + 1; j < len(log); j++ {
			f := &log[j]
			if f.lo >= e.hi || e.lo >= f.hi {
				continue
			}
			w := &items[f.item]
			if w.kind == isRead || w.value != 0 && w.value == r.value {
				continue
			}
			if b := max(e.lo, f.lo); in.live(b, r.order) {
				in.found(r, w, b)
				return true
			}
		}
	}
	return false
}

// live reports that nothing writes a byte before the instruction of this order.
func (in *Instance) live(b uint64, order int32) bool {
	if in.m.walk.looks += len(in.m.p.accs); in.m.walk.looks > maxLooks {
		return false
	}
	for _, i := range in.m.plan.writes {
		x := &in.m.results[i]
		if x.state == never || in.m.p.accs[i].order >= order {
			continue
		}
		if x.state == boundless || x.region != 0 || x.lo <= b && b < x.hi {
			return false
		}
	}
	return true
}

// otherThread looks for a thread of another block, or a later instruction in this one, that writes
// what a logged read of bundle r has read.
func (in *Instance) otherThread(r, w int, block [3]int64) bool {
	m := &in.m
	items := in.m.plan.view.items
	ra, wa := &in.m.p.accs[r], &in.m.p.accs[w]
	if ra.kind == isWrite || wa.kind == isRead || m.results[w].state != boxed || m.results[w].whole || m.results[w].region != 0 {
		return false
	}
	wr := &m.results[w]
	for _, e := range m.walk.log {
		it := &items[e.item]
		if it.kind != isRead || e.lo < wr.lo || e.lo >= wr.hi || !in.live(e.lo, it.order) {
			continue
		}
		other, tid, ok := m.solve(w, e.lo)
		if !ok {
			continue
		}
		m.follow(&m.plan.view, other, tid)
		for _, f := range m.walk.log {
			x := &items[f.item]
			if x.kind == isRead || f.lo > e.lo || e.lo >= f.hi || other == block && x.order <= it.order || x.value != 0 && x.value == it.value {
				continue
			}
			in.found(it, x, e.lo)
			return true
		}
		return false
	}
	return false
}

// solve finds a thread for which access i touches an address: it gives the coordinates with the
// largest strides as much of the distance as they take.
func (m *machine) solve(i int, addr uint64) (block, tid [3]int64, ok bool) {
	a := &m.p.accs[i]
	f := &m.p.forms[a.form]
	rest := int64(addr) - m.regs[f.c] - a.off
	terms := m.p.terms[f.t0:f.t1]
	vars := m.snap[m.plan.sites[m.plan.siteOf[i]].snap:]
	var order [maxTerms]int
	n := 0
	for t := range terms {
		v := &m.p.vars[terms[t].v]
		rest -= m.regs[terms[t].coef] * vars[t].lo
		if v.kind == vThread && m.regs[terms[t].coef] > 0 {
			order[n] = t
			n++
		}
	}
	slices.SortFunc(order[:n], func(x, y int) int { return int(clamp(m.regs[terms[y].coef]-m.regs[terms[x].coef]) >> 32) })
	for t := range terms { // what is not in order is at its smallest
		v := &m.p.vars[terms[t].v]
		if v.kind == vThread && v.imm <= ctaidZ {
			m.coordinateOf(&block, &tid, v.imm, vars[t].lo)
		}
	}
	for _, t := range order[:n] {
		k, b := m.regs[terms[t].coef], vars[t]
		x := min(max(rest/k, 0), b.hi-b.lo)
		rest -= x * k
		if v := &m.p.vars[terms[t].v]; v.imm <= ctaidZ {
			m.coordinateOf(&block, &tid, v.imm, b.lo+x)
		}
	}
	return block, tid, rest >= 0 && rest < max(a.span, a.bytes)
}

func (m *machine) coordinateOf(block, tid *[3]int64, coordinate, x int64) {
	if coordinate <= tidZ {
		tid[coordinate-tidX] = x
	} else {
		block[coordinate-ctaidX] = x
	}
}

func (in *Instance) found(r, w *vitem, b uint64) {
	in.Verdict, in.Cause, in.At = NotIdempotent, ReadThenWrite, int(w.pos)
	if r == w {
		in.Cause = ReadModifyWrite
	}
	in.m.walk.shown = r.base
	in.Witness = Witness{Read: int(r.pos), Write: int(w.pos), Byte: b}
}
