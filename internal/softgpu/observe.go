package softgpu

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
)

// An Access is what a launch did to a byte of global memory.
type Access uint8

// The bits of an Access. An atomic operation counts as a read and then a
// write, whether or not it changed anything.
const (
	// Read: a thread read the byte.
	Read Access = 1 << iota
	// Written: a thread wrote it.
	Written
	// WrittenFirst: of all accesses of the launch, the first was a write, in
	// the order in which this run executed. With Deterministic that order is
	// always the same; without, blocks race.
	WrittenFirst
	// Exposed: a thread read the byte and no write was ordered before that
	// read inside the block: none of the same thread, and none of another
	// thread of the block before a barrier that both have passed. This does not depend on
	// the order in which blocks and warps happened to run. A byte that is
	// Exposed and Written holds something else when the launch is run again.
	Exposed
)

// A Range is Len bytes from Addr on.
type Range struct{ Addr, Len uint64 }

// An Observer records which bytes of global memory a launch accesses: device
// memory, constants and module variables, and aliased host memory; not
// shared, local or parameter memory. Put it in a LaunchConfig; the
// record is complete when Launch returns, and is that of the last launch. Use
// one for one launch at a time.
//
// Order is recorded as far as Access says: exactly for the accesses of one
// thread, and for threads of a block across barriers that all of its threads
// wait at. Named barriers of a part of the block, warp-level synchronisation, barriers of clusters
// and atomics order nothing here, so that Exposed errs on the side of reporting. Bytes
// of an access that faulted may be in the record.
//
// It costs nothing when LaunchConfig.Observer is nil: memory instructions are wrapped in a
// copy of the program that observed launches use. Observed, kernels that do little but
// access memory take 2 to 8 times the processor time (BenchmarkObserver prints it); arithmetic
// costs what it did. Memory: half a byte for each byte of the 64 KiB pieces touched, and for each
// running block 16 KiB for each 4 KiB piece that it wrote.
type Observer struct {
	// Focus, sorted and disjoint, asks which instructions accessed these ranges: Sites tells. Set it before the launch.
	Focus []Range

	mu    sync.Mutex
	parts map[uint64]*shadow // by address / shadowSpan
	sites []map[Site]struct{}
}

// A Site is an instruction that accessed a range of Observer.Focus.
type Site struct {
	Inst   *isa.Inst // nil = an asynchronous copy
	Access Access    // Read, Written or both
}

const (
	shadowShift = 16
	shadowSpan  = 1 << shadowShift
	nibbles     = 16 // accesses in a word of a shadow
)

// A shadow has four bits for each of shadowSpan bytes.
type shadow struct {
	key   uint64
	words [shadowSpan / nibbles]atomic.Uint64
}

func (o *Observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = map[uint64]*shadow{}
	o.sites = make([]map[Site]struct{}, len(o.Focus))
}

// Sites lists the instructions that accessed a byte of Focus[i], in source order.
func (o *Observer) Sites(i int) []Site {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := func(s Site) (int, int) {
		if s.Inst == nil {
			return 0, 0
		}
		return s.Inst.Src.Pos.Line, s.Inst.Src.Pos.Col
	}
	return slices.SortedFunc(maps.Keys(o.sites[i]), func(a, b Site) int {
		la, ca := line(a)
		lb, cb := line(b)
		return cmp.Or(la-lb, ca-cb, int(a.Access)-int(b.Access))
	})
}

// note records that in accessed n bytes at addr, if they are in focus.
func (o *Observer) note(in *isa.Inst, addr, n uint64, a Access) {
	i, _ := slices.BinarySearchFunc(o.Focus, addr, func(r Range, addr uint64) int {
		if r.Addr+r.Len <= addr {
			return -1
		}
		return 1
	})
	if i == len(o.Focus) || o.Focus[i].Addr >= addr+n {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for ; i < len(o.Focus) && o.Focus[i].Addr < addr+n; i++ {
		if o.sites[i] == nil {
			o.sites[i] = map[Site]struct{}{}
		}
		o.sites[i][Site{in, a}] = struct{}{}
	}
}

func (o *Observer) shadow(key uint64) *shadow {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.parts[key]
	if s == nil {
		s = &shadow{key: key}
		o.parts[key] = s
	}
	return s
}

// Ranges lists, sorted and as long as possible, the ranges whose bytes have all bits of
// want and none of without.
func (o *Observer) Ranges(want, without Access) []Range {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]*shadow, 0, len(o.parts))
	for _, s := range o.parts {
		keys = append(keys, s)
	}
	slices.SortFunc(keys, func(a, b *shadow) int { return cmp.Compare(a.key, b.key) })
	var out []Range
	add := func(addr, n uint64) {
		if k := len(out); k > 0 && out[k-1].Addr+out[k-1].Len == addr {
			out[k-1].Len += n
		} else {
			out = append(out, Range{addr, n})
		}
	}
	for _, s := range keys {
		base := s.key << shadowShift
		for i := range s.words {
			word := s.words[i].Load()
			if word == 0 {
				continue
			}
			addr := base + uint64(i)*nibbles
			// Runs of accesses that match, as bit 0 of each nibble.
			for m := matching(word, want, without); m != 0; {
				lo := uint64(bits.TrailingZeros64(m)) / 4
				n := uint64(bits.TrailingZeros64(^(m>>(4*lo) | 0xeeeeeeeeeeeeeeee))) / 4
				add(addr+lo, n)
				m &^= ones(lo, n)
			}
		}
	}
	return out
}

// matching has bit 0 set of each nibble of word that is not 0 and has all bits of want and none of without.
func matching(word uint64, want, without Access) uint64 {
	const first = 0x1111111111111111
	var any uint64
	all := uint64(first)
	for i := range 4 {
		bit := word >> i & first
		any |= bit
		if want>>i&1 != 0 {
			all &= bit
		}
		if without>>i&1 != 0 {
			all &^= bit
		}
	}
	return all & any
}

// At is what happened to the byte at addr.
func (o *Observer) At(addr uint64) Access {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.parts[addr>>shadowShift]
	if s == nil {
		return 0
	}
	off := addr & (shadowSpan - 1)
	return Access(s.words[off/nibbles].Load() >> (4 * (off % nibbles)) & 0xf)
}

// A watch is the part of an Observer that belongs to one running block.
type watch struct {
	o     *Observer
	cache [8]*shadow
	// wrote has for each byte the first write of the latest epoch that counts: epoch<<threadBits | thread.
	wrote map[uint64]*writers
	last  *writers
	free  []*writers
	epoch uint32
	// more holds further writers of a byte in this epoch: address<<threadBits | thread.
	more map[uint64]struct{}
}

const (
	threadBits   = 10
	writersShift = 12
	maxEpoch     = 1<<(32-threadBits) - 1
)

type writers struct {
	key uint64
	by  [1 << writersShift]uint32
}

func newWatch(o *Observer) *watch {
	return &watch{o: o, wrote: map[uint64]*writers{}, more: map[uint64]struct{}{}}
}

// begin forgets the writes of the block before.
func (c *watch) begin() {
	for k, w := range c.wrote {
		*w = writers{}
		c.free = append(c.free, w)
		delete(c.wrote, k)
	}
	clear(c.more)
	c.last = nil
	c.epoch = 1
}

// barrier: all threads of the block have met.
func (c *watch) barrier() {
	clear(c.more)
	if c.epoch++; c.epoch <= maxEpoch {
		return
	}
	// Only "earlier" and "now" matter.
	for _, w := range c.wrote {
		for i := range w.by {
			if w.by[i] != 0 {
				w.by[i] = 1<<threadBits | w.by[i]&(1<<threadBits-1)
			}
		}
	}
	c.epoch = 2
}

func (c *watch) writers(addr uint64, make bool) *writers {
	key := addr >> writersShift
	if c.last != nil && c.last.key == key {
		return c.last
	}
	w := c.wrote[key]
	if w == nil {
		if !make {
			return nil
		}
		if n := len(c.free); n > 0 {
			w, c.free = c.free[n-1], c.free[:n-1]
		} else {
			w = &writers{}
		}
		w.key = key
		c.wrote[key] = w
	}
	c.last = w
	return w
}

func (c *watch) shadow(addr uint64) *shadow {
	key := addr >> shadowShift
	slot := &c.cache[key%uint64(len(c.cache))]
	if s := *slot; s != nil && s.key == key {
		return s
	}
	s := c.o.shadow(key)
	*slot = s
	return s
}

// ones has bit 0 of the nibbles lo..lo+n set.
func ones(lo, n uint64) uint64 {
	return (0x1111111111111111 >> (4 * (nibbles - n))) << (4 * lo)
}

// touched reports whether all of addr..addr+n have the bits of a.
func (c *watch) touched(addr, n uint64, a Access) bool {
	for n > 0 {
		s := c.shadow(addr)
		off := addr & (shadowSpan - 1)
		for n > 0 && off < shadowSpan {
			lo := off % nibbles
			k := min(n, nibbles-lo)
			want := ones(lo, k) * uint64(a)
			if s.words[off/nibbles].Load()&want != want {
				return false
			}
			addr, off, n = addr+k, off+k, n-k
		}
	}
	return true
}

// isWindow: shared, local, parameter memory and functions.
func isWindow(addr uint64) bool { return addr-windowStart < windowEnd-windowStart }

// read records that a thread reads n bytes at addr.
func (c *watch) read(thread int, addr, n uint64) {
	if isWindow(addr) {
		return
	}
	for n > 0 {
		s := c.shadow(addr)
		off := addr & (shadowSpan - 1)
		lo := off % nibbles
		k := min(n, nibbles-lo)
		word := &s.words[off/nibbles]
		all := ones(lo, k)
		old := word.Load()
		if want := all * uint64(Read|Exposed); old&want != want {
			set := all * uint64(Read)
			if w := c.writers(addr, false); w == nil {
				set |= all * uint64(Exposed)
			} else {
				for i := range k {
					by := w.by[(addr+i)&(1<<writersShift-1)]
					if by == 0 || by>>threadBits == c.epoch && by&(1<<threadBits-1) != uint32(thread) && !c.also(addr+i, thread) {
						set |= uint64(Exposed) << (4 * (lo + i))
					}
				}
			}
			word.Or(set)
		}
		addr, n = addr+k, n-k
	}
}

func (c *watch) also(addr uint64, thread int) bool {
	_, ok := c.more[addr<<threadBits|uint64(thread)]
	return ok
}

// write records that a thread writes n bytes at addr.
func (c *watch) write(thread int, addr, n uint64) {
	if isWindow(addr) {
		return
	}
	for n > 0 {
		s := c.shadow(addr)
		off := addr & (shadowSpan - 1)
		lo := off % nibbles
		k := min(n, nibbles-lo)
		word := &s.words[off/nibbles]
		all := ones(lo, k)
		for {
			old := word.Load()
			fresh := all &^ (old | old>>1) // neither read nor written
			next := old | all*uint64(Written) | fresh*uint64(WrittenFirst)
			if next == old || word.CompareAndSwap(old, next) {
				break
			}
		}
		// Who wrote matters for reads that are not known to be exposed.
		w := c.writers(addr, true)
		for i := range k {
			by := &w.by[(addr+i)&(1<<writersShift-1)]
			switch {
			case *by == 0:
				*by = c.epoch<<threadBits | uint32(thread)
			case *by>>threadBits == c.epoch && *by&(1<<threadBits-1) != uint32(thread):
				if s.words[off/nibbles].Load()>>(4*(lo+i))&uint64(Exposed) == 0 {
					c.more[(addr+i)<<threadBits|uint64(thread)] = struct{}{}
				}
			}
		}
		addr, n = addr+k, n-k
	}
}

// access records one access of each lane of mask: size bytes at the address
// that the instruction names.
func (w *warp) access(in *inst, mask uint32, size uint64, a Access) {
	c := w.block.watch
	focus := len(c.o.Focus) > 0
	if mask == fullMask && !focus && in.wide&wideA != 0 {
		// A row that is known to be exposed, to which this was done before: who wrote it last does not matter.
		at := w.r.v64(in.a)
		if row, _ := lanes.Row64(at, size); row && c.touched(at[0]+in.off, 32*size, a|Exposed) {
			return
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		addr := w.address(in, i)
		if focus {
			c.o.note(in.src, addr, size, a)
		}
		w.record(i, addr, size, a)
	}
}

// observe records one access of a lane that is no instruction's own, if the launch is observed.
func (w *warp) observe(lane int, addr, n uint64, a Access) {
	c := w.block.watch
	if c == nil || n == 0 {
		return
	}
	if len(c.o.Focus) > 0 {
		c.o.note(nil, addr, n, a)
	}
	w.record(lane, addr, n, a)
}

func (w *warp) record(lane int, addr, n uint64, a Access) {
	c := w.block.watch
	if a&Read != 0 {
		c.read(w.id*32+lane, addr, n)
	}
	if a&Written != 0 {
		c.write(w.id*32+lane, addr, n)
	}
}

// watched is an instruction of global memory as observed launches run it.
func watched(run execFunc, size uint64, a Access) execFunc {
	return func(w *warp, in *inst, mask uint32) {
		w.access(in, mask, size, a)
		run(w, in, mask)
	}
}

// observed is the code with every access of global memory wrapped. It is made once.
func (p *program) observed() []inst {
	p.observeOnce.Do(func() {
		p.observedCode = slices.Clone(p.code)
		for _, t := range p.touches {
			in := &p.observedCode[t.inst]
			in.exec = watched(in.exec, t.size, t.access)
		}
	})
	return p.observedCode
}

// A touch is an instruction that accesses size bytes of global memory in each lane.
type touch struct {
	inst   int
	size   uint64
	access Access
}

// touches notes that the last instruction emitted accesses memory.
func (l *lowering) touches(sp memSpace, size uint64, a Access) {
	if sp == memGlobal {
		l.p.touches = append(l.p.touches, touch{len(l.p.code) - 1, size, a})
	}
}
