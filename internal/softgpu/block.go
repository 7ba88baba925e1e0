package softgpu

import (
	"unsafe"

	"holdfast/internal/softgpu/observe"
)

// A block is a CTA, with the place for its warps. It is used again for other
// blocks of the same launch.
type block struct {
	launch  *launch
	cluster *cluster
	rank    uint32 // in the cluster
	stuck   bool   // nothing could run in the last turn
	warps   []*warp
	running *warp // whose turn it is, or was last
	bars    [numBarriers]barrier
	idx     [3]uint32
	number  uint64
	live    int // threads that have not exited

	shared     unsafe.Pointer
	sharedSize uint64
	sharedMem  []uint64
	localMem   []uint64

	watch *observe.Watch // nil = not observed

	threadInsts, warpInsts uint64
	passes                 int
}

func (l *launch) newBlock() *block {
	p := l.prog
	n := (l.threads + 31) / 32
	b := &block{launch: l, warps: make([]*warp, n)}
	if l.cfg.Observer != nil {
		b.watch = observe.NewWatch(l.cfg.Observer)
	}
	// One more line than asked for, so that an empty one has an address too.
	b.sharedMem = make([]uint64, (l.sharedBytes+16)/8+2)
	b.shared = alignPointer(unsafe.Pointer(&b.sharedMem[0]), 16)
	b.sharedSize = l.sharedBytes
	span := uint64(p.localStatic)
	if p.recursive {
		span += stackBytes
	}
	span = (span + 15) &^ 15
	limit := span
	if p.alloca {
		span += allocaBytes
	}
	if span > 0 {
		b.localMem = make([]uint64, uint64(n)*32*span/8+2)
	}
	files := make([]uint64, n*int(p.regBytes/8))
	for i := range b.warps {
		w := &warp{block: b, id: i, file: files[i*int(p.regBytes/8) : (i+1)*int(p.regBytes/8)], localSpan: span,
			frameLimit: limit}
		w.r = regs{unsafe.Pointer(&w.file[0])}
		w.groups = make([]group, 0, groupsPlace)
		w.exist = fullMask
		if left := l.threads - i*32; left < 32 {
			w.exist = 1<<left - 1
		}
		if span > 0 {
			w.local = unsafe.Add(alignPointer(unsafe.Pointer(&b.localMem[0]), 16), uint64(i)*32*span)
		}
		b.warps[i] = w
		for _, c := range p.consts {
			c.fill(l, w)
		}
	}
	return b
}

// stackBytes is the local memory of a thread for the frames of recursive functions.
const stackBytes = 16 << 10

func alignPointer(p unsafe.Pointer, n uintptr) unsafe.Pointer {
	return unsafe.Add(p, -uintptr(p)&(n-1))
}

func (b *block) bytes() int {
	return len(b.warps)*int(b.launch.prog.regBytes) + 8*len(b.sharedMem) + 8*len(b.localMem)
}

// begin makes b the block at idx in the grid.
func (b *block) begin(idx [3]uint32) {
	g := b.launch.cfg.Grid
	b.number = uint64(idx[0]) + uint64(g[0])*(uint64(idx[1])+uint64(g[1])*uint64(idx[2]))
	b.idx = idx
	b.live = b.launch.threads
	b.bars = [numBarriers]barrier{}
	b.passes = 0
	if b.watch != nil {
		b.watch.Begin()
	}
	clear(b.sharedMem)
	for _, w := range b.warps {
		for _, c := range b.launch.prog.blockConsts {
			c.fill(b.launch, w)
		}
		w.start(b.launch.prog.entry)
	}
}

// passesBeforeYield bounds how long a block that does not spin keeps its worker.
const passesBeforeYield = 256

// run runs the warps in turn until the block has ended, and reports true, or
// until it should give way to another block.
func (b *block) run() bool {
	if s := b.launch.schedule; s != nil {
		return s.run(b)
	}
	b.stuck = true
	for {
		moved, spun := false, true
		for _, w := range b.warps {
			if !w.runnable() {
				continue
			}
			moved = true
			before := b.warpInsts
			b.running = w
			w.run(warpSlice)
			if uint64(w.spins)*pollCost < warpSlice/2 || b.warpInsts-before == 0 {
				spun = false
			}
			if b.launch.stop.Load() {
				return false
			}
		}
		b.poll()
		if b.live == 0 {
			b.stuck = false
			return true
		}
		if !moved {
			if len(b.cluster.blocks) == 1 {
				b.deadlock()
			}
			return false // others of the cluster may help
		}
		b.stuck = false
		b.passes++
		if spun || b.passes%passesBeforeYield == 0 {
			return false
		}
	}
}
