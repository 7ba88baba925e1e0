package device

import (
	"cmp"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu"
)

// Values of the virtual memory management structs (cuda.h).
const (
	allocationPinned  = 1
	handleTypeFD      = 1
	locationDevice    = 1
	accessNone        = 0
	accessRead        = 1
	accessReadWrite   = 3
	sizeofProp        = 32 // CUmemAllocationProp
	sizeofAccessDesc  = 12 // CUmemAccessDesc
	sizeofLocation    = 8  // CUmemLocation
	maxAccessEntries  = 256
	maxReservations   = 1 << 16
	granularityOption = 1 // the largest CUmemAllocationGranularity_flags
)

// vmm is the address space of a process, and the physical memory that it maps there itself.
type vmm struct {
	*owner
	*handles
	space    *softgpu.Space
	reserved []*reservation
	mappings []*mapping
}

// A reservation is a range of addresses that cuMemMap may use.
type reservation struct{ va, size uint64 }

// A mapping is one cuMemMap. access is of the mapping's own device and its peers alike.
type mapping struct {
	va, size uint64
	off      uint64
	phys     *physical
	handle   *memHandle
	access   uint32
	id       uint64
}

// A memHandle is a CUmemGenericAllocationHandle. It lives on, without its handle being
// valid, while it is mapped, so that cuMemRetainAllocationHandle gives the same one.
type memHandle struct {
	handle   uint64
	phys     *physical
	refs     int
	mappings int
	types    uint32 // requested handle types
}

func (vm *vmm) reservationAt(va, size uint64) *reservation {
	i, ok := slices.BinarySearchFunc(vm.reserved, va,
		func(r *reservation, va uint64) int { return cmp.Compare(r.va, va) })
	if !ok {
		i--
	}
	if i < 0 {
		return nil
	}
	if r := vm.reserved[i]; va-r.va < r.size && size <= r.size-(va-r.va) {
		return r
	}
	return nil
}

func (vm *vmm) mappingAt(va uint64) *mapping {
	i, ok := slices.BinarySearchFunc(vm.mappings, va, func(m *mapping, va uint64) int { return cmp.Compare(m.va, va) })
	if !ok {
		i--
	}
	if i < 0 || va-vm.mappings[i].va >= vm.mappings[i].size {
		return nil
	}
	return vm.mappings[i]
}

// mappingsIn is the index range of the mappings that cover va..va+size exactly, without holes.
func (vm *vmm) mappingsIn(va, size uint64) (from, to int, ok bool) {
	from, ok = slices.BinarySearchFunc(vm.mappings, va,
		func(m *mapping, va uint64) int { return cmp.Compare(m.va, va) })
	if !ok || size == 0 {
		return 0, 0, false
	}
	at := va
	for to = from; to < len(vm.mappings) && vm.mappings[to].va == at && at < va+size; to++ {
		at += vm.mappings[to].size
	}
	return from, to, at == va+size
}

func addressReserve(c *call) Status {
	size, align, hint, flags := c.args[0], c.args[1], c.args[2], c.args[3]
	if size == 0 || size%granularity != 0 || align&(align-1) != 0 || flags != 0 ||
		len(c.p.reserved) >= maxReservations {
		return InvalidValue
	}
	align = max(align, granularity)
	va := hint
	if hint == 0 || hint%align != 0 || !c.p.free.takeAt(hint, size) {
		var ok bool
		if va, ok = c.p.free.take(size, align); !ok {
			return OutOfMemory
		}
	}
	i, _ := slices.BinarySearchFunc(c.p.reserved, va,
		func(r *reservation, va uint64) int { return cmp.Compare(r.va, va) })
	c.p.reserved = slices.Insert(c.p.reserved, i, &reservation{va, size})
	return c.ret(va)
}

func addressFree(c *call) Status {
	va, size := c.args[0], c.args[1]
	i, ok := slices.BinarySearchFunc(c.p.reserved, va,
		func(r *reservation, va uint64) int { return cmp.Compare(r.va, va) })
	if !ok || c.p.reserved[i].size != size {
		return InvalidValue
	}
	for _, m := range c.p.mappings {
		if m.va < va+size && va < m.va+m.size {
			return InvalidValue // still mapped
		}
	}
	c.p.reserved = slices.Delete(c.p.reserved, i, i+1)
	c.p.free.give(va, size)
	return Success
}

func (c *call) allocationProp(b []byte) (dev int, types uint32, st Status) {
	if u32(b, 0) != allocationPinned {
		return 0, 0, InvalidValue
	}
	if u32(b, 8) != locationDevice {
		return 0, 0, NotSupported // host memory through the VMM
	}
	types = u32(b, 4)
	if types&^handleTypeFD != 0 {
		return 0, 0, NotSupported
	}
	return c.device(uint64(u32(b, 12))), types, Success
}

func memCreate(c *call) Status {
	size, flags := c.args[0], c.args[len(c.args)-1]
	dev, types, st := c.allocationProp(c.record(sizeofProp))
	if st != Success {
		return st
	}
	if size == 0 || size%granularity != 0 || flags != 0 {
		return InvalidValue
	}
	h := &memHandle{refs: 1, types: types}
	if st := c.fit(func() (err error) { h.phys, err = c.p.srv.newPhysical(dev, size); return }); st != Success {
		return st
	}
	h.handle = c.p.add(h)
	return c.ret(h.handle)
}

func memRelease(c *call) Status {
	h, ok := get[*memHandle](c.p, c.args[0])
	if !ok || h.refs == 0 {
		return InvalidValue
	}
	h.refs--
	c.p.dropHandle(h)
	return Success
}

// dropHandle forgets a handle that has neither references nor mappings.
func (vm *vmm) dropHandle(h *memHandle) {
	if h.refs == 0 && h.mappings == 0 {
		delete(vm.objects, h.handle)
		vm.srv.release(h.phys)
	}
}

func memMap(c *call) Status {
	va, size, off, flags := c.args[0], c.args[1], c.args[2], c.args[4]
	h, ok := get[*memHandle](c.p, c.args[3])
	if !ok || h.refs == 0 {
		return InvalidValue
	}
	if va%granularity != 0 || size%granularity != 0 || size == 0 || off%granularity != 0 || flags != 0 ||
		off > h.phys.size || size > h.phys.size-off || c.p.reservationAt(va, size) == nil {
		return InvalidValue
	}
	i, found := slices.BinarySearchFunc(c.p.mappings, va,
		func(m *mapping, va uint64) int { return cmp.Compare(m.va, va) })
	if found || i > 0 && c.p.mappings[i-1].va+c.p.mappings[i-1].size > va ||
		i < len(c.p.mappings) && c.p.mappings[i].va < va+size {
		return InvalidValue
	}
	c.p.srv.hold(h.phys)
	h.mappings++
	c.p.serial++
	c.p.mappings = slices.Insert(c.p.mappings, i, &mapping{va: va, size: size, off: off, phys: h.phys, handle: h,
		id: c.p.serial})
	return Success
}

func memUnmap(c *call) Status {
	va, size := c.args[0], c.args[1]
	if _, _, ok := c.p.mappingsIn(va, size); !ok {
		return InvalidValue
	}
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	st := InvalidValue
	c.p.quiesce(func() {
		from, to, ok := c.p.mappingsIn(va, size) // others ran while this call waited
		if !ok {
			return
		}
		for _, m := range c.p.mappings[from:to] {
			c.p.dropMapping(m)
		}
		c.p.mappings = slices.Delete(c.p.mappings, from, to)
		st = Success
	})
	return st
}

// dropMapping undoes a mapping but for its entry in the table.
func (vm *vmm) dropMapping(m *mapping) {
	if m.access != accessNone {
		if err := vm.space.Unmap(m.va, m.size); err != nil {
			vm.srv.log.Error("unmapping", "pid", vm.key.pid, "err", err)
		}
	}
	m.handle.mappings--
	vm.srv.release(m.phys)
	vm.dropHandle(m.handle)
}

func memSetAccess(c *call) Status {
	va, size, count := c.args[0], c.args[1], c.args[2]
	descs := c.blob()
	if count == 0 || count > maxAccessEntries || uint64(len(descs)) < count*sizeofAccessDesc {
		return InvalidValue
	}
	from, to, ok := c.p.mappingsIn(va, size)
	if !ok {
		return InvalidValue
	}
	var access uint32
	for i := range int(count) {
		d := descs[i*sizeofAccessDesc:]
		if u32(d, 0) != locationDevice {
			continue // access from the host: memory of a device has none
		}
		c.device(uint64(u32(d, 4)))
		if a := u32(d, 8); a == accessRead || a == accessReadWrite {
			access |= a
		} else if a != accessNone {
			return InvalidValue
		}
	}
	st := Success
	set := func() {
		for _, m := range c.p.mappings[from:to] {
			if st = c.p.setAccess(m, access); st != Success {
				return
			}
		}
	}
	// Only taking access away disturbs running work.
	for _, m := range c.p.mappings[from:to] {
		if m.access != accessNone && m.access != access {
			c.p.quiesce(func() {
				if from, to, ok = c.p.mappingsIn(va, size); ok {
					set()
				} else {
					st = InvalidValue
				}
			})
			return st
		}
	}
	set()
	return st
}

func (vm *vmm) setAccess(m *mapping, access uint32) Status {
	if m.access == access {
		return Success
	}
	if m.access != accessNone {
		if err := vm.space.Unmap(m.va, m.size); err != nil {
			vm.srv.log.Error("changing access", "pid", vm.key.pid, "err", err)
			return Unknown
		}
		m.access = accessNone
	}
	if access != accessNone {
		if err := vm.space.Map(m.va, m.phys.fd, int64(m.off), m.size, access == accessReadWrite); err != nil {
			vm.srv.log.Error("mapping", "pid", vm.key.pid, "err", err)
			return OutOfMemory
		}
	}
	m.access = access
	return Success
}

func memGetAccess(c *call) Status {
	loc := c.record(sizeofLocation)
	m := c.p.mappingAt(c.args[len(c.args)-1])
	if m == nil || u32(loc, 0) != locationDevice {
		return InvalidValue
	}
	return c.ret(uint64(m.access))
}

func memExport(c *call) Status {
	h, ok := get[*memHandle](c.p, c.args[0])
	if !ok || h.refs == 0 || h.types&handleTypeFD == 0 || c.args[1] != handleTypeFD {
		return InvalidValue
	}
	fd, err := c.p.srv.export(h.phys)
	if err != nil {
		c.p.srv.log.Error("export failed", "pid", c.p.key.pid, "err", err)
		return OperatingSystem
	}
	c.outFDs = []int{fd}
	// The reply is sent without the lock; the memory must outlive it.
	ph := h.phys
	c.p.srv.hold(ph)
	c.after = func() {
		_ = unix.Close(fd)
		c.p.srv.release(ph)
	}
	return Success
}

func memImport(c *call) Status {
	if c.args[0] != handleTypeFD || len(c.fds) != 1 {
		return InvalidValue
	}
	ph, err := c.p.srv.importPhysical(c.fds[0])
	if err != nil {
		c.p.srv.log.Warn("import refused", "pid", c.p.key.pid, "err", err)
		return InvalidValue
	}
	// As on the real driver, an imported handle cannot be exported again.
	h := &memHandle{phys: ph, refs: 1}
	h.handle = c.p.add(h)
	return c.ret(h.handle)
}

func memRetain(c *call) Status {
	m := c.p.mappingAt(c.args[0])
	if m == nil {
		return InvalidValue
	}
	m.handle.refs++
	return c.ret(m.handle.handle)
}

func memGranularity(c *call) Status {
	if c.args[0] > granularityOption {
		return InvalidValue
	}
	if _, _, st := c.allocationProp(c.record(sizeofProp)); st != Success {
		return st
	}
	return c.ret(granularity)
}

func memProperties(c *call) Status {
	h, ok := get[*memHandle](c.p, c.args[0])
	if !ok || h.refs == 0 {
		return InvalidValue
	}
	b := make([]byte, sizeofProp)
	binary.LittleEndian.PutUint32(b[0:], allocationPinned)
	binary.LittleEndian.PutUint32(b[4:], h.types)
	binary.LittleEndian.PutUint32(b[8:], locationDevice)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.phys.dev))
	c.retBlob(b)
	return Success
}

// bytes is device or pinned memory, as submitted work sees it when it runs.
func (vm *vmm) bytes(va, n uint64) ([]byte, Status) {
	b, err := vm.space.Bytes(va, n)
	if err != nil {
		vm.srv.log.Warn("invalid device address", "pid", vm.key.pid, "bytes", n, "err", err)
		return nil, IllegalAddress
	}
	return b, Success
}

// mapped reports whether an address range can be used, and is not known only for
// its first byte: the check that a call makes when it is issued.
func (vm *vmm) mapped(va, n uint64) bool {
	_, err := vm.space.Bytes(va, n)
	return err == nil
}
