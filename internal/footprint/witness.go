package footprint

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A Path is a kernel's code as far as one thread can be followed through it: its blocks, the
// conditions at their ends, and the accesses in them. Values are those of the first iteration of
// every loop. What cannot be computed is left out, so what is found is certain.
type Path struct {
	Ops    []Instr // the arguments of an operation come before it; operation 0 is none
	Blocks []PathBlock
	Items  []PathItem
}

// A PathBlock is a basic block of a path.
type PathBlock struct {
	I0, I1 int32 // items
	Cond   int32 // operation
	S0, S1 int32 // where it goes on if the condition holds, and if not; -1 = the thread ends
	After  int32 // the block that every way from here leads to; -1 = none
	Header int32 // 1 + the loop that begins here
	Leave  int32 // of a header: where every way out of the loop leads to; -1 = none
	Loop   int32 // 1 + the innermost loop
}

// A PathItem is an access by one instruction.
type PathItem struct {
	Kind   AccessKind
	Hidden bool
	Addr   int32 // operation
	Guard  int32 // operation; 0 = always
	Off    int64
	Bytes  int64
	Pos    int32
	Order  int32
	Value  int32 // what is written or has been read, to see that a byte is written back
}

// A walker follows one thread.
type walker struct {
	vals    []int64
	state   []uint32 // stamp: known; stamp+1: cannot be known
	stamp   uint32
	visited []uint32
	turn    uint32
	in      []bool // loops whose first iteration the thread is in, or has left it from
	thread  [form.NumCoordinates]int64
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

func (m *machine) valueOf(p *view, in *Instr) (int64, bool) {
	w := &m.walk
	switch in.Op {
	case form.OpConst:
		return in.Imm, true
	case form.OpParam:
		return m.param(in), true
	case form.OpGeometry:
		return m.geometry(int(in.Imm)), true
	case form.OpThread:
		return w.thread[in.Imm], w.thread[in.Imm] >= 0
	case form.OpCounter:
		return 0, w.in[in.Imm]
	case form.OpHalving, form.OpDrift:
		if !w.in[in.Imm] {
			return 0, false
		}
		return m.value(p, in.A)
	case form.OpSelect:
		c, ok := m.value(p, in.A)
		if !ok {
			return 0, false
		}
		if c != 0 {
			return m.value(p, in.B)
		}
		return m.value(p, in.C)
	case form.OpNone, form.OpUnknown, form.OpPhi, form.OpSymbol, form.OpCurve, form.OpBetween:
		return 0, false
	}
	if in.W == 1 && (in.Op == form.OpAnd || in.Op == form.OpOr) { // one of the two may say it all
		says := in.Op == form.OpOr
		a, ok := m.value(p, in.A)
		b, known := m.value(p, in.B)
		if ok && (a != 0) == says || known && (b != 0) == says {
			return form.Truth(says), true
		}
		return b, ok && known
	}
	// Many arguments are registers: no call for those.
	var a, b int64
	ok := true
	if in.A < 0 {
		a = m.regs[^in.A]
	} else if a, ok = m.value(p, in.A); !ok {
		return 0, false
	}
	if in.B < 0 {
		b = m.regs[^in.B]
	} else if in.B > 0 {
		if b, ok = m.value(p, in.B); !ok {
			return 0, false
		}
	}
	switch s := (64 - in.W) & 63; in.Op {
	case form.OpAdd:
		return (a + b) << s >> s, true
	case form.OpMul:
		return a * b << s >> s, true
	case form.OpSext:
		return a, true
	}
	return form.Compute(in.Op, in.W, in.Aw, a, b, 0)
}

// follow logs the accesses that a thread surely makes, in their order.
func (m *machine) follow(p *view, block, tid [3]int64) {
	w := &m.walk
	l := m.launch
	for i := range w.thread {
		w.thread[i] = -1
	}
	for i := range 3 {
		w.thread[form.TidX+i], w.thread[form.CtaidX+i] = tid[i], block[i]
		w.thread[form.ClusterCtaX+i] = block[i] % int64(m.cluster[i])
		w.thread[form.ClusterIDX+i] = block[i] / int64(m.cluster[i])
	}
	w.thread[form.LaneID] = (tid[0] + int64(l.Block[0])*(tid[1]+int64(l.Block[1])*tid[2])) % 32
	w.thread[form.ClusterRank] = w.thread[form.ClusterCtaX] +
		int64(m.cluster[0])*(w.thread[form.ClusterCtaY]+int64(m.cluster[1])*w.thread[form.ClusterCtaZ])
	w.stamp += 2
	w.turn++
	clear(w.in)
	w.log = w.log[:0]
	b := int32(0)
	for range maxBlocks {
		x := &p.blocks[b]
		if w.visited[b] == w.turn {
			// The loop goes round. Nobody knows how often: go on behind it.
			if x.Header == 0 || x.Leave < 0 {
				return
			}
			b = m.jump(p, x.Leave)
			continue
		}
		w.visited[b] = w.turn
		if x.Header != 0 {
			w.in[x.Header-1] = true
		}
		if !m.events(p, x) {
			return
		}
		next := x.S0
		if x.Cond != 0 || x.unclear {
			c, ok := int64(0), false
			if !x.unclear {
				c, ok = m.value(p, x.Cond)
			}
			switch {
			case !ok && x.After < 0:
				return
			case !ok:
				b = m.jump(p, x.After)
				continue
			case c == 0:
				next = x.S1
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
		if w.in[i] && int32(i) != p.blocks[to].Loop-1 {
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
	for i := x.I0; i < x.I1; i++ {
		it := &p.items[i]
		if it.Guard != 0 {
			if g, ok := m.value(p, it.Guard); !ok || g == 0 {
				continue
			}
		}
		a, ok := m.value(p, it.Addr)
		if !ok {
			continue
		}
		if len(w.log) >= maxEvents {
			return false
		}
		lo := uint64(a + it.Off)
		w.log = append(w.log, event{i, lo, lo + uint64(it.Bytes)})
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
	m.walk.grow(p, s.Loops)
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
		if r.Kind == IsWrite || r.Kind == IsSettle {
			continue
		}
		if r.Kind == IsUpdate && in.live(e.lo, r.Order) {
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
			if w.Kind == IsRead || w.Value != 0 && w.Value == r.Value {
				continue
			}
			if b := max(e.lo, f.lo); in.live(b, r.Order) {
				in.found(r, w, b)
				return true
			}
		}
	}
	return false
}

// live reports that nothing writes a byte before the instruction of this order.
func (in *Instance) live(b uint64, order int32) bool {
	if in.m.walk.looks += len(in.m.p.Accs); in.m.walk.looks > maxLooks {
		return false
	}
	for _, i := range in.m.plan.writes {
		x := &in.m.results[i]
		if x.state == never || in.m.p.Accs[i].Order >= order {
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
	ra, wa := &in.m.p.Accs[r], &in.m.p.Accs[w]
	if ra.Kind == IsWrite || wa.Kind == IsRead || m.results[w].state != boxed || m.results[w].whole ||
		m.results[w].region != 0 {
		return false
	}
	wr := &m.results[w]
	for _, e := range m.walk.log {
		it := &items[e.item]
		if it.Kind != IsRead || e.lo < wr.lo || e.lo >= wr.hi || !in.live(e.lo, it.Order) {
			continue
		}
		other, tid, ok := m.solve(w, e.lo)
		if !ok {
			continue
		}
		m.follow(&m.plan.view, other, tid)
		for _, f := range m.walk.log {
			x := &items[f.item]
			if x.Kind == IsRead || f.lo > e.lo || e.lo >= f.hi || other == block && x.Order <= it.Order ||
				x.Value != 0 && x.Value == it.Value {
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
	a := &m.p.Accs[i]
	f := &m.p.Forms[a.Form]
	rest := int64(addr) - m.regs[f.C] - a.Off
	terms := m.p.Terms[f.T0:f.T1]
	vars := m.snap[m.plan.sites[m.plan.siteOf[i]].snap:]
	var order [form.MaxTerms]int
	n := 0
	for t := range terms {
		v := &m.p.Vars[terms[t].V]
		rest -= m.regs[terms[t].Coef] * vars[t].Lo
		if v.Kind == form.KindThread && m.regs[terms[t].Coef] > 0 {
			order[n] = t
			n++
		}
	}
	slices.SortFunc(order[:n], func(x,
		y int) int {
		return int(interval.Clamp(m.regs[terms[y].Coef]-m.regs[terms[x].Coef]) >> 32)
	})
	for t := range terms { // what is not in order is at its smallest
		v := &m.p.Vars[terms[t].V]
		if v.Kind == form.KindThread && v.Imm <= form.CtaidZ {
			m.coordinateOf(&block, &tid, v.Imm, vars[t].Lo)
		}
	}
	for _, t := range order[:n] {
		k, b := m.regs[terms[t].Coef], vars[t]
		x := min(max(rest/k, 0), b.Hi-b.Lo)
		rest -= x * k
		if v := &m.p.Vars[terms[t].V]; v.Imm <= form.CtaidZ {
			m.coordinateOf(&block, &tid, v.Imm, b.Lo+x)
		}
	}
	return block, tid, rest >= 0 && rest < max(a.Span, a.Bytes)
}

func (m *machine) coordinateOf(block, tid *[3]int64, coordinate, x int64) {
	if coordinate <= form.TidZ {
		tid[coordinate-form.TidX] = x
	} else {
		block[coordinate-form.CtaidX] = x
	}
}

func (in *Instance) found(r, w *vitem, b uint64) {
	in.Verdict, in.Cause, in.At = NotIdempotent, ReadThenWrite, int(w.Pos)
	if r == w {
		in.Cause = ReadModifyWrite
	}
	in.m.walk.shown = r.base
	in.Witness = Witness{Read: int(r.Pos), Write: int(w.Pos), Byte: b}
}
