package raw

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/engine"
	"holdfast/internal/hfx"
	"holdfast/internal/rm"
)

// Device addresses of our own: below 2^40, which is what a descriptor's address and a pushbuffer's have room for. The
// rest is the caller's.
const (
	ownBase      = 0xa0_0000_0000
	ownEnd       = 0xc0_0000_0000
	sharedWindow = 0xc0_0000_0000 // where generic addresses of shared memory begin: 4 GiB
	localWindow  = 0xc1_0000_0000 // and of local memory
	windowsEnd   = 0xc2_0000_0000
	hugePage     = 2 << 20
	smallPage    = 4 << 10
)

// addresses hands out ranges: first what was given back, then new ones.
type addresses struct {
	next, end uint64
	free      []span // by address, none touches the next
}

type span struct{ addr, size uint64 }

// take is a range of size bytes, a multiple of 2 MiB, aligned to that.
func (a *addresses) take(size uint64) (uint64, error) {
	for i, f := range a.free {
		if f.size >= size {
			if a.free[i] = (span{f.addr + size, f.size - size}); f.size == size {
				a.free = slices.Delete(a.free, i, i+1)
			}
			return f.addr, nil
		}
	}
	if size > a.end-a.next {
		return 0, fmt.Errorf("no %d bytes of addresses left", size)
	}
	at := a.next
	a.next += size
	return at, nil
}

// give takes a range back.
func (a *addresses) give(addr, size uint64) {
	i, _ := slices.BinarySearchFunc(a.free, addr, func(s span, x uint64) int {
		if s.addr < x {
			return -1
		}
		return 1
	})
	a.free = slices.Insert(a.free, i, span{addr, size})
	if i+1 < len(a.free) && addr+size == a.free[i+1].addr {
		a.free[i].size += a.free[i+1].size
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].addr+a.free[i-1].size == addr {
		a.free[i-1].size += a.free[i].size
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// memory is a memory object, mapped at a device address.
type memory struct {
	handle     rm.Handle
	addr, size uint64
	host       []byte      // what this process sees of it; nil for none
	view       *rm.Mapping // of memory that the driver maps
	pages      []byte      // of this process
	own        bool        // the address is one of our own
	placed     bool        // it is mapped there
}

// ownSize is how many of our own addresses memory takes: whole huge pages.
func ownSize(size uint64) uint64 { return (size + hugePage - 1) &^ (hugePage - 1) }

// A kind is where memory is.
type kind uint8

const (
	device  kind = hfx.Device  // device memory
	visible kind = hfx.Visible // device memory that this process sees, written through write-combining buffers
	pinned  kind = hfx.Pinned  // pages of this process
	system  kind = hfx.System  // system memory of the driver's, contiguous
)

// newMemory makes memory. addr 0: at an address of our own.
func (b *Backend) newMemory(k kind, addr, size uint64) (m *memory, err error) {
	m = &memory{addr: addr, size: size}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.freeMemory(m))
		}
	}()
	if addr == 0 {
		if m.addr, err = b.own.take(ownSize(size)); err != nil {
			return m, err
		}
		m.own = true
	}
	if b.sheet != nil {
		b.sheet.Memory(m.addr, size, uint32(k))
	} else if err := b.allocate(m, k); err != nil {
		return m, err
	}
	m.placed = true
	b.placed = slices.Insert(b.placed, b.search(m.addr), m)
	return m, nil
}

// allocate has the driver make memory and map it.
func (b *Backend) allocate(m *memory, k kind) (err error) {
	size := m.size
	switch k {
	case pinned:
		if m.pages, err = b.files.Memory(int(size)); err != nil {
			return err
		}
		m.host = m.pages
		m.handle, err = b.rm.Pin(b.dev, b.device, m.pages)
	case system:
		m.handle, err = b.rm.Alloc(b.device, rm.NV01_MEMORY_SYSTEM, systemMemory(b.rm.Root, size))
	default:
		m.handle, err = b.rm.Alloc(b.device, rm.NV01_MEMORY_LOCAL_USER, deviceMemory(b.rm.Root, size, k == visible))
	}
	if err != nil {
		return err
	}
	if k == visible || k == system {
		if err := b.mapMemory(m, k); err != nil {
			return err
		}
	}
	return b.space.Map(m.addr, size, m.handle, k == pinned || k == system)
}

// search is where memory at addr stands, or would stand, among what is placed.
func (b *Backend) search(addr uint64) int {
	i, _ := slices.BinarySearchFunc(b.placed, addr, func(m *memory, a uint64) int { return cmp.Compare(m.addr, a) })
	return i
}

// covered says that n bytes from addr on are mapped: a copy elsewhere would end the channel.
func (b *Backend) covered(addr, n uint64) error {
	at, left := addr, n
	i := b.search(addr + 1)
	for i--; left > 0; i++ {
		if i < 0 || i >= len(b.placed) || at < b.placed[i].addr || at-b.placed[i].addr >= b.placed[i].size {
			return fmt.Errorf("%#x+%#x is not mapped", addr, n)
		}
		take := min(left, b.placed[i].size-(at-b.placed[i].addr))
		at, left = at+take, left-take
	}
	return nil
}

// mapMemory makes memory visible to this process.
func (b *Backend) mapMemory(m *memory, k kind) (err error) {
	var via rm.File
	flags := uint32(rm.NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED)
	if k == system {
		flags = 0
		via, err = b.rm.OpenControl()
	} else {
		via, err = b.rm.OpenDevice(b.minor)
	}
	if err != nil {
		return err
	}
	if m.view, err = b.rm.Map(b.device, m.handle, via, int(m.size), flags); err != nil {
		return err
	}
	m.host = m.view.Bytes
	return nil
}

func deviceMemory(root rm.Handle, size uint64, contiguous bool) *rm.NV_MEMORY_ALLOCATION_PARAMS {
	where := uint32(rm.NVOS32_ATTR_PHYSICALITY_ANY)
	if contiguous {
		where = rm.NVOS32_ATTR_PHYSICALITY_CONTIGUOUS
	}
	return &rm.NV_MEMORY_ALLOCATION_PARAMS{Owner: uint32(root), Type: rm.NVOS32_TYPE_IMAGE, Size: size,
		Alignment: hugePage,
		Limit:     size - 1, Format: 6, Attr: where | rm.NVOS32_ATTR_PAGE_SIZE_HUGE,
		Attr2: rm.NVOS32_ATTR2_GPU_CACHEABLE_YES | rm.NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB |
			rm.NVOS32_ATTR2_ZBC_PREFER_NO_ZBC,
		Flags: rm.NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED | rm.NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE |
			rm.NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT | rm.NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM}
}

func systemMemory(root rm.Handle, size uint64) *rm.NV_MEMORY_ALLOCATION_PARAMS {
	return &rm.NV_MEMORY_ALLOCATION_PARAMS{Owner: uint32(root), Type: rm.NVOS32_TYPE_NOTIFIER, Size: size,
		Alignment: smallPage,
		Limit:     size - 1, Format: 6, Attr: rm.NVOS32_ATTR_PHYSICALITY_ANY | rm.NVOS32_ATTR_LOCATION_PCI,
		Attr2: rm.NVOS32_ATTR2_GPU_CACHEABLE_NO | rm.NVOS32_ATTR2_ZBC_PREFER_NO_ZBC,
		Flags: rm.NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED | rm.NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE |
			rm.NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT}
}

// freeMemory undoes newMemory, as far as it came.
func (b *Backend) freeMemory(m *memory) error {
	var errs []error
	if m.placed {
		if i := b.search(m.addr); i < len(b.placed) && b.placed[i] == m {
			b.placed = slices.Delete(b.placed, i, i+1)
		}
		if b.sheet != nil {
			b.sheet.Free()
		} else {
			errs = append(errs, b.space.Unmap(m.addr, m.size, m.handle))
		}
	}
	if m.handle != 0 {
		errs = append(errs, b.rm.Free(b.device, m.handle))
	}
	if m.view != nil {
		errs = append(errs, m.view.Close())
	}
	if m.pages != nil {
		errs = append(errs, b.files.Unmap(m.pages))
	}
	if m.own {
		b.own.give(m.addr, ownSize(m.size))
	}
	*m = memory{}
	return errors.Join(errs...)
}

// Map puts zeroed device memory at a fixed address.
func (b *Backend) Map(addr, size uint64) error {
	if _, err := b.mapAt(device, addr, size); err != nil {
		return err
	}
	return b.zero(addr, size)
}

// MapHost puts pages of this process at a fixed address.
func (b *Backend) MapHost(addr, size uint64) ([]byte, error) {
	m, err := b.mapAt(pinned, addr, size)
	if err != nil {
		return nil, err
	}
	return m.host, nil
}

func (b *Backend) mapAt(k kind, addr, size uint64) (*memory, error) {
	switch {
	case b.dead != nil:
		return nil, b.dead
	case size == 0 || addr%engine.Granularity != 0 || size%engine.Granularity != 0 || addr+size < addr ||
		addr+size > 1<<48:
		return nil, fmt.Errorf("raw: map %#x+%#x: not a range of whole 2 MiB pages", addr, size)
	case addr < windowsEnd && addr+size > ownBase:
		return nil, fmt.Errorf("raw: map %#x+%#x: addresses %#x to %#x are the engine's own", addr, size,
			uint64(ownBase), uint64(windowsEnd))
	}
	m, err := b.newMemory(k, addr, size)
	if err != nil {
		return nil, fmt.Errorf("raw: map %#x+%#x: %w", addr, size, err)
	}
	b.mapped[addr] = m
	return m, nil
}

// Unmap takes away what Map put at addr.
func (b *Backend) Unmap(addr uint64) error {
	m, ok := b.mapped[addr]
	if !ok {
		return fmt.Errorf("raw: unmap %#x: nothing was mapped there", addr)
	}
	delete(b.mapped, addr)
	if err := b.freeMemory(m); err != nil {
		return fmt.Errorf("raw: unmap %#x: %w", addr, err)
	}
	return nil
}

// lineMax is how many bytes of one line the copy engine gets at once.
const lineMax = 1 << 30

// Write copies b to the device. Two halves of the staging memory take turns.
func (b *Backend) Write(addr uint64, p []byte) error {
	const half = stageHalf
	stage := b.ch.host
	var ticket [2]uint64
	if err := b.covered(addr, uint64(len(p))); err != nil {
		return fmt.Errorf("raw: write: %w", err)
	}
	for i := 0; len(p) > 0; i ^= 1 {
		n := min(len(p), half)
		if err := b.wait(ticket[i]); err != nil {
			return err
		}
		b.put(stageAt+i*half, p[:n])
		var err error
		if ticket[i], err = b.move(addr, stage.addr+stageAt+uint64(i*half), uint64(n)); err != nil {
			return err
		}
		addr, p = addr+uint64(n), p[n:]
	}
	return errors.Join(b.wait(ticket[0]), b.wait(ticket[1]))
}

// Read copies from the device to p.
func (b *Backend) Read(addr uint64, p []byte) error {
	const half = stageHalf
	stage := b.ch.host
	var ticket [2]uint64
	var to [2][]byte
	if err := b.covered(addr, uint64(len(p))); err != nil {
		return fmt.Errorf("raw: read: %w", err)
	}
	take := func(i int) error {
		if err := b.wait(ticket[i]); err != nil {
			return err
		}
		b.take(stageAt+i*half, to[i])
		to[i] = nil
		return nil
	}
	i := 0
	for ; len(p) > 0; i ^= 1 {
		n := min(len(p), half)
		if err := take(i); err != nil {
			return err
		}
		var err error
		if ticket[i], err = b.move(stage.addr+stageAt+uint64(i*half), addr, uint64(n)); err != nil {
			return err
		}
		to[i], addr, p = p[:n], addr+uint64(n), p[n:]
	}
	return errors.Join(take(i), take(i^1))
}

// put leaves bytes in the host memory for the next submission.
func (b *Backend) put(at int, p []byte) {
	if b.sheet != nil {
		b.sheet.Put(at, p)
		return
	}
	copy(b.ch.host.host[at:], p)
}

// take gets bytes that the GPU has left in the host memory.
func (b *Backend) take(at int, p []byte) {
	if b.sheet != nil {
		b.sheet.Take(at, len(p))
		return
	}
	copy(p, b.ch.host.host[at:])
}

// move submits one copy.
func (b *Backend) move(dst, src, n uint64) (uint64, error) {
	var p pushbuffer
	p.copy(dst, src, 0, 0, uint32(n), 1)
	return b.submitCopies(&p)
}

// zero fills with zeros.
func (b *Backend) zero(addr, size uint64) error {
	var p pushbuffer
	for size > 0 {
		n := min(size, lineMax)
		p.fill(addr, 0, uint32(n/4), 1, 0, 4)
		addr, size = addr+n, size-n
	}
	t, err := b.submitCopies(&p)
	if err != nil {
		return err
	}
	return b.wait(t)
}
