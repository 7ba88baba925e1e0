package softgpu

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// A heap is the memory that malloc gives out in device code. Like a GPU's it belongs to the address space and
// outlives launches. Which address a thread gets depends on the order in which threads ask.
type heap struct {
	mu   sync.Mutex
	free []Range // sorted by address, no two adjacent
	used map[uint64]uint64
}

// heapAlign is the alignment of what malloc gives, and the granularity of sizes.
const heapAlign = 16

// SetHeap makes size bytes at base, which must be mapped writable, the heap of device code. Whatever the heap
// before it had given out can no longer be freed. Size 0 takes the heap away.
func (s *Space) SetHeap(base, size uint64) error {
	if size == 0 {
		s.heap.Store(nil)
		return nil
	}
	if base%heapAlign != 0 || size%heapAlign != 0 {
		return &AddressError{base, fmt.Sprintf("heap of %#x bytes: want multiples of %d", size, heapAlign)}
	}
	if _, err := s.Bytes(base, size); err != nil {
		return fmt.Errorf("heap: %w", err)
	}
	s.heap.Store(&heap{free: []Range{{Addr: base, Len: size}}, used: map[uint64]uint64{}})
	return nil
}

// HeapUsed lists what malloc has given out and not got back, by address.
func (s *Space) HeapUsed() []Range {
	h := s.heap.Load()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var used []Range
	for at, n := range h.used {
		used = append(used, Range{Addr: at, Len: n})
	}
	slices.SortFunc(used, func(a, b Range) int { return cmp.Compare(a.Addr, b.Addr) })
	return used
}

// RestoreHeap is SetHeap for memory out of which used, as HeapUsed listed it, is given out already.
func (s *Space) RestoreHeap(base, size uint64, used []Range) error {
	if err := s.SetHeap(base, size); err != nil {
		return err
	}
	h := &heap{used: map[uint64]uint64{}}
	at := base
	for _, r := range used {
		if r.Addr < at || r.Len == 0 || r.Addr%heapAlign != 0 || r.Len%heapAlign != 0 || r.Addr-base > size ||
			r.Len > size-(r.Addr-base) {
			return &AddressError{r.Addr, fmt.Sprintf("%#x bytes given out of the heap", r.Len)}
		}
		if r.Addr > at {
			h.free = append(h.free, Range{Addr: at, Len: r.Addr - at})
		}
		h.used[r.Addr] = r.Len
		at = r.Addr + r.Len
	}
	if at < base+size {
		h.free = append(h.free, Range{Addr: at, Len: base + size - at})
	}
	s.heap.Store(h)
	return nil
}

// alloc gives n bytes, from the first place where there is room, or 0.
func (h *heap) alloc(n, align uint64) uint64 {
	if n == 0 || n > 1<<48 {
		return 0
	}
	n = alignUp(n, heapAlign)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range h.free {
		at := alignUp(r.Addr, align)
		if at < r.Addr || at-r.Addr > r.Len || n > r.Len-(at-r.Addr) {
			continue
		}
		var rest []Range
		if at > r.Addr {
			rest = append(rest, Range{Addr: r.Addr, Len: at - r.Addr})
		}
		if end := r.Addr + r.Len; at+n < end {
			rest = append(rest, Range{Addr: at + n, Len: end - at - n})
		}
		h.free = slices.Replace(h.free, i, i+1, rest...)
		h.used[at] = n
		return at
	}
	return 0
}

// release takes back what alloc gave; it reports false if it did not give that.
func (h *heap) release(at uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.used[at]
	if !ok {
		return false
	}
	delete(h.used, at)
	i, _ := slices.BinarySearchFunc(h.free, at, func(r Range, at uint64) int { return cmp.Compare(r.Addr, at) })
	h.free = slices.Insert(h.free, i, Range{Addr: at, Len: n})
	join := func(i int) {
		if i >= 0 && i+1 < len(h.free) && h.free[i].Addr+h.free[i].Len == h.free[i+1].Addr {
			h.free[i].Len += h.free[i+1].Len
			h.free = slices.Delete(h.free, i+1, i+2)
		}
	}
	join(i)
	join(i - 1)
	return true
}

func (w *warp) heap(in *inst, mask uint32) *heap {
	h := w.block.launch.space.heap.Load()
	if h == nil {
		w.fault(FaultUnsupported, in, bits.TrailingZeros32(mask), 0, "the address space has no heap for device code")
	}
	return h
}

// deviceMalloc is malloc(size), and __nv_aligned_device_malloc(size, alignment).
func deviceMalloc(w *warp, in *inst, site *callSite, mask uint32) {
	h := w.heap(in, mask)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		align := uint64(heapAlign)
		if len(site.in) > 1 {
			align = max(align, w.argument(in, site, 1, i))
		}
		var at uint64
		if align&(align-1) == 0 {
			at = h.alloc(w.argument(in, site, 0, i), align)
		}
		w.result(site, i, at)
	}
}

func deviceFree(w *warp, in *inst, site *callSite, mask uint32) {
	h := w.heap(in, mask)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if at := w.argument(in, site, 0, i); at != 0 && !h.release(at) {
			w.fault(FaultUnmapped, in, i, at, "free of something that malloc did not give")
		}
	}
}
