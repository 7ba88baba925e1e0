package device

import (
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

type physicalImage struct {
	Dev  int
	Size uint64
}

type slabImage struct {
	VA   uint64
	Dev  int
	Phys int
}

type allocImage struct {
	VA, Size, Extent uint64
	Kind, Dev        int
	Cx, ID           uint64
	Slab, Phys       int // index, or -1
	Pool             uint64
}

type handleImage struct {
	Handle uint64
	Phys   int
	Refs   int
	Types  uint32
}

type mappingImage struct {
	VA, Size, Off, Handle, ID uint64
	Access                    uint32
}

type hostImage struct {
	ID, VA, Size, Cx uint64
	Flags            uint32
	Kind             int
}

type poolImage struct {
	Handle     uint64
	Dev        int
	Attrs      numbers[uint64]
	Used, High uint64
	Types      uint32
	Imported   bool
}

// A memoryPiece is part of the contents of physical memory; pieces of zeros are left out.
type memoryPiece struct {
	Phys int // index, or -1 at the end
	Off  uint64
	Data []byte
}

// pieceSize is the unit in which zeros are left out.
const pieceSize = 64 << 10

func (m *imager) physical(ph *physical) int {
	i, ok := m.phys[ph]
	if !ok {
		i = len(m.list)
		m.phys[ph] = i
		m.list = append(m.list, ph)
		m.img.Physicals = append(m.img.Physicals, physicalImage{ph.dev, ph.size})
	}
	return i
}

func (m *imager) memory() {
	p, img := m.p, m.img
	slabs := make(map[*slab]int)
	for dev, list := range p.slabs {
		for _, s := range list {
			slabs[s] = len(img.Slabs)
			img.Slabs = append(img.Slabs, slabImage{s.va, dev, m.physical(s.phys)})
		}
	}
	for _, al := range p.allocs {
		if al.host != nil {
			continue
		}
		ai := allocImage{VA: al.va, Size: al.size, Extent: al.extent, Kind: al.kind, Dev: al.dev, Cx: al.cx.handle,
			ID: al.id, Slab: -1, Phys: -1}
		if al.slab != nil {
			ai.Slab = slabs[al.slab]
		} else {
			ai.Phys = m.physical(al.phys)
		}
		if al.pool != nil {
			ai.Pool = al.pool.handle
		}
		img.Allocs = append(img.Allocs, ai)
	}
	if p.heap != nil {
		img.Heap, img.HeapUsed = p.heap.va, p.space.HeapUsed()
	}
	for _, r := range p.reserved {
		img.Reserved = append(img.Reserved, span{r.va, r.va + r.size})
	}
	for _, h := range all[*memHandle](p) {
		img.Handles = append(img.Handles, handleImage{h.handle, m.physical(h.v.phys), h.v.refs, h.v.types})
	}
	for _, mp := range p.mappings {
		img.Mappings = append(img.Mappings, mappingImage{mp.va, mp.size, mp.off, mp.handle.handle, mp.id, mp.access})
	}
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[id]
		if h.alloc != nil {
			img.Hosts = append(img.Hosts, hostImage{id, h.alloc.va, h.size, h.cx.handle, h.flags, h.kind})
		}
	}
	for _, x := range all[*pool](p) {
		img.Pools = append(img.Pools, poolImage{x.handle, x.v.dev, x.v.attrs, x.v.used, x.v.high, x.v.types,
			x.v.imported})
	}
	for dev := range p.defaultPool {
		var d, c uint64
		if p.defaultPool[dev] != nil {
			d, c = p.defaultPool[dev].handle, p.currentPool[dev].handle
		}
		img.Default, img.Current = append(img.Default, d), append(img.Current, c)
	}
}

// write writes the image and the contents of its memory.
func (img *processImage) write(w io.Writer, phys []*physical) error {
	enc := gob.NewEncoder(w)
	if err := enc.Encode(img); err != nil {
		return fmt.Errorf("process state: %w", err)
	}
	buf := make([]byte, pieceSize)
	for i, ph := range phys {
		for off := int64(0); off < int64(ph.size); {
			data, err := unix.Seek(ph.fd, off, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				break // only a hole is left
			}
			if err != nil {
				return fmt.Errorf("device memory: %w", err)
			}
			off = data &^ (pieceSize - 1)
			n, err := unix.Pread(ph.fd, buf, off)
			if err != nil || n == 0 {
				return fmt.Errorf("device memory: %d bytes, %w", n, err)
			}
			if !zeros(buf[:n]) {
				if err := enc.Encode(memoryPiece{i, uint64(off), buf[:n]}); err != nil {
					return fmt.Errorf("device memory: %w", err)
				}
			}
			off += int64(n)
		}
	}
	return enc.Encode(memoryPiece{Phys: -1})
}

func zeros(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// mapAt maps physical memory at the address it had, which must be free.
func (m *restorer) mapAt(va, size uint64, index int) (*physical, error) {
	if index < 0 || index >= len(m.phys) {
		return nil, bad("physical memory %d", index)
	}
	ph := m.phys[index]
	if ph.size != size || va%granularity != 0 || !m.p.free.takeAt(va, size) {
		return nil, bad("%d bytes at %#x", size, va)
	}
	if err := m.p.space.Map(va, ph.fd, 0, size, true); err != nil {
		return nil, err
	}
	m.p.srv.hold(ph)
	return ph, nil
}

func (m *restorer) physicals() error {
	p := m.p
	for _, pi := range m.img.Physicals {
		if err := m.device(pi.Dev); err != nil {
			return err
		}
		if pi.Size == 0 || pi.Size%granularity != 0 {
			return bad("%d bytes of physical memory", pi.Size)
		}
		ph, err := p.srv.newPhysical(pi.Dev, pi.Size)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoMemory, err)
		}
		m.phys = append(m.phys, ph)
	}
	return nil
}

func (m *restorer) pools() error {
	p := m.p
	for _, x := range m.img.Pools {
		if err := m.device(x.Dev); err != nil {
			return err
		}
		po := &pool{handle: x.Handle, dev: x.Dev, attrs: x.Attrs, used: x.Used, high: x.High, types: x.Types,
			imported: x.Imported}
		if po.attrs == nil {
			po.attrs = make(map[uint64]uint64)
		}
		if err := m.put(x.Handle, po); err != nil {
			return err
		}
	}
	for dev := range min(len(m.img.Default), len(m.img.Current), p.srv.cfg.Devices) {
		if m.img.Default[dev] == 0 {
			continue
		}
		d, ok1 := get[*pool](p, m.img.Default[dev])
		c, ok2 := get[*pool](p, m.img.Current[dev])
		if !ok1 || !ok2 {
			return bad("pools of device %d", dev)
		}
		d.isDefault = true
		p.defaultPool[dev], p.currentPool[dev] = d, c
	}
	return nil
}

func (m *restorer) allocations() error {
	p := m.p
	for _, si := range m.img.Slabs {
		if err := m.device(si.Dev); err != nil {
			return err
		}
		ph, err := m.mapAt(si.VA, granularity, si.Phys)
		if err != nil {
			return err
		}
		s := &slab{va: si.VA, phys: ph, free: spans{{si.VA, si.VA + granularity}}}
		m.slabs = append(m.slabs, s)
		p.slabs[si.Dev] = append(p.slabs[si.Dev], s)
	}
	for _, ai := range m.img.Allocs {
		if err := m.allocation(&ai); err != nil {
			return err
		}
	}
	return nil
}

func (m *restorer) heapAndReservations() error {
	p := m.p
	if va := m.img.Heap; va != 0 {
		al := p.allocs.find(va)
		if al == nil || al.va != va || al.kind != allocHeap {
			return bad("heap of device code at %#x", va)
		}
		if err := p.space.RestoreHeap(va, al.size, m.img.HeapUsed); err != nil {
			return fmt.Errorf("%w: %w", err, errBadImage)
		}
		p.heap = al
	}
	for _, r := range m.img.Reserved {
		if r.Hi <= r.Lo || r.Lo%granularity != 0 || r.Hi%granularity != 0 || !p.free.takeAt(r.Lo, r.Hi-r.Lo) {
			return bad("reservation at %#x", r.Lo)
		}
		p.reserved = append(p.reserved, &reservation{r.Lo, r.Hi - r.Lo})
	}
	slices.SortFunc(p.reserved, func(a, b *reservation) int { return cmp.Compare(a.va, b.va) })
	return nil
}

func (m *restorer) allocation(ai *allocImage) error {
	cx, err := m.context(ai.Cx)
	if err != nil {
		return err
	}
	if err := m.device(ai.Dev); err != nil {
		return err
	}
	al := &allocation{va: ai.VA, size: ai.Size, extent: ai.Extent, kind: ai.Kind, dev: ai.Dev, cx: cx, id: ai.ID}
	if ai.Size > ai.Extent || ai.Kind == allocHost || ai.Kind == allocManaged {
		return bad("allocation at %#x", ai.VA)
	}
	if ai.Pool != 0 {
		al.pool, _ = get[*pool](m.p, ai.Pool)
	}
	if ai.Slab >= 0 {
		if ai.Slab >= len(m.slabs) || ai.Extent%slabAlign != 0 || !m.slabs[ai.Slab].free.takeAt(ai.VA, ai.Extent) {
			return bad("allocation at %#x", ai.VA)
		}
		al.slab = m.slabs[ai.Slab]
		al.slab.used++
	} else if al.phys, err = m.mapAt(ai.VA, ai.Extent, ai.Phys); err != nil {
		return err
	}
	m.p.allocs.insert(al)
	return nil
}

func (m *restorer) handles() error {
	p := m.p
	for _, hi := range m.img.Handles {
		if hi.Phys < 0 || hi.Phys >= len(m.phys) || hi.Refs < 0 {
			return bad("memory handle %#x", hi.Handle)
		}
		h := &memHandle{handle: hi.Handle, phys: m.phys[hi.Phys], refs: hi.Refs, types: hi.Types}
		if err := m.put(hi.Handle, h); err != nil {
			return err
		}
		p.srv.hold(h.phys)
	}
	return nil
}

func (m *restorer) mappings() error {
	p := m.p
	for _, x := range m.img.Mappings {
		h, ok := get[*memHandle](p, x.Handle)
		if !ok || x.VA%granularity != 0 || x.Size == 0 || x.Size%granularity != 0 || x.Off%granularity != 0 ||
			x.Off > h.phys.size || x.Size > h.phys.size-x.Off || p.reservationAt(x.VA, x.Size) == nil {
			return bad("mapping at %#x", x.VA)
		}
		if n := len(p.mappings); n > 0 && p.mappings[n-1].va+p.mappings[n-1].size > x.VA {
			return bad("mapping at %#x", x.VA)
		}
		mp := &mapping{va: x.VA, size: x.Size, off: x.Off, phys: h.phys, handle: h, id: x.ID}
		if x.Access != accessNone && x.Access != accessRead && x.Access != accessReadWrite {
			return bad("access %d to the mapping at %#x", x.Access, x.VA)
		}
		p.srv.hold(h.phys)
		h.mappings++
		p.mappings = append(p.mappings, mp)
		if st := p.setAccess(mp, x.Access); st != Success {
			return fmt.Errorf("mapping at %#x: %v", x.VA, st)
		}
	}
	for _, h := range all[*memHandle](p) {
		if h.v.refs == 0 && h.v.mappings == 0 {
			return bad("memory handle %#x", h.handle)
		}
	}
	return nil
}

func (m *restorer) hosts() error {
	p := m.p
	for _, hi := range m.img.Hosts {
		cx, err := m.context(hi.Cx)
		if err != nil {
			return err
		}
		if hi.Size == 0 || p.hosts[hi.ID] != nil || hi.Kind != allocHost && hi.Kind != allocManaged {
			return bad("pinned memory at %#x", hi.VA)
		}
		h, err := newHostMemory(hi.ID, hi.Size)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoMemory, err)
		}
		h.flags, h.kind, h.cx, h.at = hi.Flags, hi.Kind, cx, hi.VA
		p.hosts[hi.ID] = h
	}
	return nil
}

// contents reads what was in the memory.
func (m *restorer) contents(dec *gob.Decoder) error {
	for {
		var piece memoryPiece
		if err := dec.Decode(&piece); err != nil {
			return fmt.Errorf("device memory: %w: %w", errBadImage, err)
		}
		if piece.Phys < 0 {
			return nil
		}
		if piece.Phys >= len(m.phys) || piece.Off > m.phys[piece.Phys].size ||
			uint64(len(piece.Data)) > m.phys[piece.Phys].size-piece.Off {
			return bad("%d bytes at %d of memory %d", len(piece.Data), piece.Off, piece.Phys)
		}
		for at := 0; at < len(piece.Data); {
			n, err := unix.Pwrite(m.phys[piece.Phys].fd, piece.Data[at:], int64(piece.Off)+int64(at))
			if err != nil {
				return fmt.Errorf("device memory: %w", err)
			}
			at += n
		}
	}
}
