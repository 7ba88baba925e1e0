package softgpu

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the granularity of Map, in bytes.
const PageSize = 2 << 20

const pageShift = 21

// The states of a page.
const (
	pageAbsent   = 0
	pageReadOnly = 1
	pageWritable = 3
)

// A Space is one client's device address space: a reserved window of host
// memory into which device addresses lo..lo+size map 1:1, and aliases of host
// memory elsewhere.
type Space struct {
	lo, size uint64
	base     unsafe.Pointer // of the host window
	pages    []uint8        // state of each page of the window

	mu      sync.Mutex
	aliases atomic.Pointer[[]alias] // sorted by address; replaced, never changed
	handles atomic.Pointer[handles]
	heap    atomic.Pointer[heap]

	wide sync.Mutex // makes 16-byte atomics one step
}

type alias struct {
	va  uint64
	mem []byte
}

// An AddressError says which address could not be used and why.
type AddressError struct {
	Addr uint64
	Why  string
}

func (e *AddressError) Error() string { return fmt.Sprintf("device address %#x: %s", e.Addr, e.Why) }

// NewSpace reserves a window for device addresses lo..lo+size, both multiples
// of PageSize. Nothing is mapped in it.
func NewSpace(lo, size uint64) (*Space, error) {
	if lo%PageSize != 0 || size%PageSize != 0 || size == 0 || lo+size < lo || lo < windowEnd {
		return nil, fmt.Errorf("device window %#x+%#x: want multiples of %#x, not empty, above %#x", lo, size,
			uint64(PageSize), uint64(windowEnd))
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %#x bytes for the device window: %w", size, err)
	}
	return &Space{lo: lo, size: size, base: p, pages: make([]uint8, size>>pageShift)}, nil
}

// Close unmaps the window. No launch may be running.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return nil
	}
	err := unix.MunmapPtr(s.base, uintptr(s.size))
	s.base, s.pages = nil, nil
	s.size = 0
	s.aliases.Store(nil)
	return err
}

func (s *Space) window(va, size uint64) (first, n uint64, err error) {
	if va%PageSize != 0 || size%PageSize != 0 || size == 0 {
		return 0, 0, &AddressError{va, fmt.Sprintf("range of %#x bytes is not a multiple of %#x", size,
			uint64(PageSize))}
	}
	if va < s.lo || va-s.lo >= s.size || size > s.size-(va-s.lo) {
		return 0, 0, &AddressError{va, fmt.Sprintf("range of %#x bytes is outside the device window", size)}
	}
	return (va - s.lo) >> pageShift, size >> pageShift, nil
}

// Map maps size bytes of the file fd from off at device address va; va and size are
// multiples of PageSize and nothing may be mapped there.
func (s *Space) Map(va uint64, fd int, off int64, size uint64, writable bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, n, err := s.window(va, size)
	if err != nil {
		return err
	}
	for i := first; i < first+n; i++ {
		if s.pages[i] != pageAbsent {
			return &AddressError{s.lo + i<<pageShift, "already mapped"}
		}
	}
	prot, state := unix.PROT_READ, uint8(pageReadOnly)
	if writable {
		prot, state = prot|unix.PROT_WRITE, pageWritable
	}
	if _, err := unix.MmapPtr(fd, off, unsafe.Add(s.base, va-s.lo), uintptr(size), prot,
		unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("map %#x bytes at device address %#x: %w", size, va, err)
	}
	for i := first; i < first+n; i++ {
		s.pages[i] = state
	}
	return nil
}

// Unmap removes whatever is mapped in va..va+size.
func (s *Space) Unmap(va, size uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, n, err := s.window(va, size)
	if err != nil {
		return err
	}
	for i := first; i < first+n; i++ {
		s.pages[i] = pageAbsent
	}
	_, err = unix.MmapPtr(-1, 0, unsafe.Add(s.base, va-s.lo), uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("unmap %#x bytes at device address %#x: %w", size, va, err)
	}
	return nil
}

// Alias makes mem, which must stay valid, appear at va outside the window.
// Accesses there are slower.
func (s *Space) Alias(va uint64, mem []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := va + uint64(len(mem))
	if len(mem) == 0 || end < va || va < s.lo+s.size && end > s.lo || va < windowEnd && end > windowStart {
		return &AddressError{va, fmt.Sprintf("%d bytes of host memory cannot appear there", len(mem))}
	}
	var list []alias
	if old := s.aliases.Load(); old != nil {
		list = slices.Clone(*old)
	}
	i, _ := slices.BinarySearchFunc(list, va, func(a alias, va uint64) int { return cmp.Compare(a.va, va) })
	if i < len(list) && list[i].va < end || i > 0 && list[i-1].va+uint64(len(list[i-1].mem)) > va {
		return &AddressError{va, "other host memory appears there"}
	}
	list = slices.Insert(list, i, alias{va, mem})
	s.aliases.Store(&list)
	return nil
}

// Unalias removes the alias that starts at va.
func (s *Space) Unalias(va uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.aliases.Load(); old != nil {
		for i, a := range *old {
			if a.va == va {
				list := slices.Delete(slices.Clone(*old), i, i+1)
				s.aliases.Store(&list)
				return nil
			}
		}
	}
	return &AddressError{va, "no host memory appears there"}
}

// Bytes gives the memory at va..va+n, every page of which must be mapped. A
// slice of memory mapped read-only must not be written.
func (s *Space) Bytes(va, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if va < s.lo || va-s.lo >= s.size {
		if p := s.aliased(va, n); p != nil {
			return unsafe.Slice((*byte)(p), n), nil
		}
		return nil, &AddressError{va, "not mapped"}
	}
	off := va - s.lo
	if n > s.size-off {
		return nil, &AddressError{s.lo + s.size, "not mapped"}
	}
	for i := off >> pageShift; i <= (off+n-1)>>pageShift; i++ {
		if s.pages[i] == pageAbsent {
			return nil, &AddressError{max(va, s.lo+i<<pageShift), "not mapped"}
		}
	}
	return unsafe.Slice((*byte)(unsafe.Add(s.base, off)), n), nil
}

// deviceAddress is the device address of a host address of the window, or of an alias; another one stays what it is.
func (s *Space) deviceAddress(host uintptr) uint64 {
	if off := uint64(host - uintptr(s.base)); off < s.size {
		return s.lo + off
	}
	if list := s.aliases.Load(); list != nil {
		for _, a := range *list {
			if off := uint64(host - uintptr(unsafe.Pointer(&a.mem[0]))); off < uint64(len(a.mem)) {
				return a.va + off
			}
		}
	}
	return uint64(host)
}

func (s *Space) aliased(va, n uint64) unsafe.Pointer {
	list := s.aliases.Load()
	if list == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(*list, va, func(a alias, va uint64) int { return cmp.Compare(a.va, va) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	a := (*list)[i]
	if off := va - a.va; off < uint64(len(a.mem)) && n <= uint64(len(a.mem))-off {
		return unsafe.Pointer(&a.mem[off])
	}
	return nil
}

// find gives the host address of n ≤ PageSize bytes at va, or nil. The caller
// knows that the range does not cross a page, or that n is small and the page after is checked too.
func (s *Space) find(va, n uint64, state uint8) unsafe.Pointer {
	off := va - s.lo
	if off < s.size {
		if n > s.size-off || s.pages[off>>pageShift]&state != state || s.pages[(off+n-1)>>pageShift]&state != state {
			return nil
		}
		return unsafe.Add(s.base, off)
	}
	return s.aliased(va, n)
}

// rowAt is the memory of a row of 32 numbers of size bytes at va, aligned and in the device window, else nil.
func (s *Space) rowAt(va, size uint64, state uint8) unsafe.Pointer {
	off := va - s.lo
	last := off + 32*size - 1
	if off < s.size && last < s.size && va&(size-1) == 0 &&
		s.pages[off>>pageShift]&s.pages[last>>pageShift]&state == state {
		return unsafe.Add(s.base, off)
	}
	return nil
}
