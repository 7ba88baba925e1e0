// Package observe records what a launch does to each byte of global memory: whether it was read, written, written
// before anything else, and read before any write that was ordered before it.
//
//	observer.go  the record of a launch, and what is asked of it
//	watch.go     what a running block did, from which the record is made
//
// It knows addresses, threads and barriers, and of the executor nothing; package softgpu tells it of every access.
//
// Observer.mu guards the list of its shadows and the sites; the words of shadows are atomic. A Watch belongs to the
// goroutine that runs its block.
package observe

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/isa"
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
// Memory: half a byte for each byte of the 64 KiB pieces touched, and for each running block 16 KiB for each 4 KiB
// piece that it wrote.
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

// Reset forgets what the last launch did; a launch begins with it.
func (o *Observer) Reset() {
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

// Note records that in accessed n bytes at addr, if they are in focus.
func (o *Observer) Note(in *isa.Inst, addr, n uint64, a Access) {
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
