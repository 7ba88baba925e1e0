package observe

import "holdfast/internal/isa"

// A Watch is the part of an Observer that belongs to one running block.
type Watch struct {
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

// NewWatch is the part of o for the blocks that run in one place, one after the other.
func NewWatch(o *Observer) *Watch {
	return &Watch{o: o, wrote: map[uint64]*writers{}, more: map[uint64]struct{}{}}
}

// Begin forgets the writes of the block before.
func (c *Watch) Begin() {
	for k, w := range c.wrote {
		*w = writers{}
		c.free = append(c.free, w)
		delete(c.wrote, k)
	}
	clear(c.more)
	c.last = nil
	c.epoch = 1
}

// Barrier: all threads of the block have met.
func (c *Watch) Barrier() {
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

func (c *Watch) writers(addr uint64, make bool) *writers {
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

func (c *Watch) shadow(addr uint64) *shadow {
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

// Touched reports whether all of addr..addr+n have the bits of a.
func (c *Watch) Touched(addr, n uint64, a Access) bool {
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

// Read records that a thread reads n bytes at addr.
func (c *Watch) Read(thread int, addr, n uint64) {
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
					if by == 0 || by>>threadBits == c.epoch &&
						by&(1<<threadBits-1) != uint32(thread) && !c.also(addr+i, thread) {
						set |= uint64(Exposed) << (4 * (lo + i))
					}
				}
			}
			word.Or(set)
		}
		addr, n = addr+k, n-k
	}
}

func (c *Watch) also(addr uint64, thread int) bool {
	_, ok := c.more[addr<<threadBits|uint64(thread)]
	return ok
}

// Write records that a thread writes n bytes at addr.
func (c *Watch) Write(thread int, addr, n uint64) {
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

// Focused reports whether instructions are to be noted.
func (c *Watch) Focused() bool { return len(c.o.Focus) > 0 }

// Note is Observer.Note.
func (c *Watch) Note(in *isa.Inst, addr, n uint64, a Access) { c.o.Note(in, addr, n, a) }
