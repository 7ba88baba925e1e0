package device

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu"
)

// imageVersion changes with every change to the types below.
const imageVersion = 4

const imageMagic = "holdfast soft GPU process"

var (
	errBadImage = errors.New("malformed process state")
	errNoMemory = errors.New("not enough device memory")
)

// A processImage is the state of one process while it is checkpointed: what gob
// writes first. The contents of memory follow as memoryPiece values, up to an empty one. Things
// refer to each other by handle, physical memory and nodes by index.
type processImage struct {
	Magic        string
	Version      int
	Initialised  bool
	Next, Serial uint64

	Contexts   []contextImage
	Primaries  []uint64
	Threads    []threadImage
	Peers      [][2]int
	Physicals  []physicalImage
	Slabs      []slabImage
	Heap       uint64          // address, or 0
	HeapUsed   []softgpu.Range // what device code has of it
	Allocs     []allocImage
	Reserved   []span
	Handles    []handleImage
	Mappings   []mappingImage
	Hosts      []hostImage
	Registered []span
	Mirrors    []uint64 // where registered memory begins that the device has a mirror of
	Pools      []poolImage
	Default    []uint64
	Current    []uint64
	Streams    []streamImage
	Events     []eventImage
	Libraries  []libraryImage
	Modules    []moduleImage
	Links      []linkImage
	Arrays     []arrayImage
	Mipmaps    []mipmapImage
	Textures   []textureImage
	Objects    []objectImage
	Graphs     []graphImage
	Nodes      []nodeImage
	Execs      []execImage
}

type contextImage struct {
	Handle, ID   uint64
	Dev, Refs    int
	Primary      bool
	Active       bool
	Flags        uint32
	Limits       numbers[uint64]
	Cache, Shmem uint64
	Sticky       int32
	LegacyID     uint64
}

type threadImage struct {
	TID         int32
	Stack       []uint64
	CaptureMode int
}

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

type streamImage struct {
	Handle, Cx, ID uint64
	Flags          uint32
	Priority       int32
	Thread         int32 // of a per-thread default stream, which has no handle
}

type eventImage struct {
	Handle, Cx uint64
	Flags      uint32
	Recorded   bool
	When       time.Time
}

type kernelImage struct {
	Handle uint64
	Name   string
	Attrs  numbers[int32]
	Kernel uint64 // of a function of a library
}

type libraryImage struct {
	Handle  uint64
	Limit   int // of registers
	Image   []byte
	Kernels []kernelImage
}

type moduleImage struct {
	Handle, Cx, Lib, Data uint64 // Data: address, or 0
	Limit                 int    // of registers
	Image                 []byte
	Functions             []kernelImage
}

type linkImage struct {
	Handle uint64
	Limit  int // of registers
	Inputs []linkInput
}

type arrayImage struct {
	Handle, Cx uint64
	Desc       arrayDesc
	Data       uint64 // address
}

type mipmapImage struct {
	Handle, Cx uint64
	Desc       arrayDesc
	Levels     []uint64
}

type textureImage struct {
	Handle, Cx               uint64
	Surface                  bool
	Resource, Sampling, View []byte
}

type objectImage struct {
	Handle, Fn, User, Refs uint64
}

type graphImage struct {
	Handle, Origin uint64
	Owned          numbers[uint64]
	Owner          int // index of a node, or -1
	Nodes          []int
}

type nodeImage struct {
	Handle   uint64 // 0: the node has been destroyed, an executable graph remembers it
	Graph    uint64
	From     int
	Deps     []int
	Kind     int
	Kernel   *kernelLaunch
	Copy     copyShape
	Fill     fill
	Fn, User uint64
	Event    uint64
	Addr     uint64
	Child    uint64
	Plan     []int
	Disabled bool
}

type execImage struct {
	Handle, Flags uint64
	Owned         numbers[uint64]
	Plan          []int
}

// A memoryPiece is part of the contents of physical memory; pieces of zeros are left out.
type memoryPiece struct {
	Phys int // index, or -1 at the end
	Off  uint64
	Data []byte
}

// pieceSize is the unit in which zeros are left out.
const pieceSize = 64 << 10

// An imager numbers what has no handle.
type imager struct {
	p     *process
	img   *processImage
	phys  map[*physical]int
	list  []*physical
	nodes map[*node]int
	queue []*node
}

// image describes the process, which is idle. The physical memory whose contents belong to it is
// returned by index.
func (p *process) image() (*processImage, []*physical) {
	m := &imager{p: p, phys: make(map[*physical]int), nodes: make(map[*node]int), img: &processImage{
		Magic: imageMagic, Version: imageVersion, Initialised: p.initialised, Next: p.next, Serial: p.serial,
	}}
	m.contexts()
	m.memory()
	m.work()
	m.code()
	m.textures()
	m.graphs()
	m.registered()
	return m.img, m.list
}

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

func (m *imager) contexts() {
	p, img := m.p, m.img
	for _, x := range all[*deviceContext](p) {
		cx := x.v
		img.Contexts = append(img.Contexts, contextImage{x.handle, cx.id, cx.dev, cx.refs, cx.primary, cx.active, cx.flags, cx.limits,
			cx.cache, cx.shmem, int32(cx.sticky), cx.legacy.id})
	}
	for _, cx := range p.primaries {
		var h uint64
		if cx != nil {
			h = cx.handle
		}
		img.Primaries = append(img.Primaries, h)
	}
	for _, tid := range slices.Sorted(maps.Keys(p.threads)) {
		t := p.threads[tid]
		ti := threadImage{TID: tid, CaptureMode: t.captureMode}
		for _, cx := range t.stack {
			ti.Stack = append(ti.Stack, cx.handle)
		}
		img.Threads = append(img.Threads, ti)
	}
	for pair := range p.peers {
		img.Peers = append(img.Peers, pair)
	}
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
		ai := allocImage{VA: al.va, Size: al.size, Extent: al.extent, Kind: al.kind, Dev: al.dev, Cx: al.cx.handle, ID: al.id, Slab: -1, Phys: -1}
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
		img.Pools = append(img.Pools, poolImage{x.handle, x.v.dev, x.v.attrs, x.v.used, x.v.high, x.v.types, x.v.imported})
	}
	for dev := range p.defaultPool {
		var d, c uint64
		if p.defaultPool[dev] != nil {
			d, c = p.defaultPool[dev].handle, p.currentPool[dev].handle
		}
		img.Default, img.Current = append(img.Default, d), append(img.Current, c)
	}
}

func (m *imager) work() {
	p, img := m.p, m.img
	for _, x := range all[*stream](p) {
		s := x.v
		img.Streams = append(img.Streams, streamImage{x.handle, s.cx.handle, s.id, s.flags, s.priority, 0})
	}
	for _, tid := range slices.Sorted(maps.Keys(p.threads)) {
		for cx, s := range p.threads[tid].perThread {
			img.Streams = append(img.Streams, streamImage{0, cx.handle, s.id, s.flags, s.priority, tid})
		}
	}
	for _, x := range all[*event](p) {
		e := x.v
		ei := eventImage{Handle: x.handle, Cx: e.cx.handle, Flags: e.flags}
		if e.rec != nil {
			ei.Recorded, ei.When = true, e.rec.when
		}
		img.Events = append(img.Events, ei)
	}
}

func (m *imager) code() {
	p, img := m.p, m.img
	for _, x := range all[*library](p) {
		li := libraryImage{Handle: x.handle, Limit: x.v.code.limit, Image: x.v.image}
		for _, name := range sortedNames(x.v.kernels) {
			k := x.v.kernels[name]
			li.Kernels = append(li.Kernels, kernelImage{k.handle, name, k.attrs, 0})
		}
		img.Libraries = append(img.Libraries, li)
	}
	for _, x := range all[*module](p) {
		mi := moduleImage{Handle: x.handle, Cx: x.v.cx.handle, Limit: x.v.code.limit, Image: x.v.image}
		if x.v.lib != nil {
			mi.Lib = x.v.lib.handle
		}
		if x.v.data != nil {
			mi.Data = x.v.data.va
		}
		for _, name := range sortedNames(x.v.functions) {
			f := x.v.functions[name]
			ki := kernelImage{f.handle, name, f.attrs, 0}
			if f.kernel != nil {
				ki.Kernel = f.kernel.handle
			}
			mi.Functions = append(mi.Functions, ki)
		}
		img.Modules = append(img.Modules, mi)
	}
	for _, x := range all[*link](p) {
		img.Links = append(img.Links, linkImage{x.handle, x.v.limit, x.v.inputs})
	}
}

func (m *imager) textures() {
	p, img := m.p, m.img
	for _, x := range all[*array](p) {
		img.Arrays = append(img.Arrays, arrayImage{x.handle, x.v.cx.handle, x.v.desc, x.v.data.va})
	}
	for _, x := range all[*mipmap](p) {
		mi := mipmapImage{Handle: x.handle, Cx: x.v.cx.handle, Desc: x.v.desc}
		for _, a := range x.v.levels {
			mi.Levels = append(mi.Levels, a.handle)
		}
		img.Mipmaps = append(img.Mipmaps, mi)
	}
	for _, x := range all[*textureObject](p) {
		o := x.v
		img.Textures = append(img.Textures, textureImage{x.handle, o.cx.handle, o.surface, o.resource, o.sampling, o.view})
	}
}

func (m *imager) node(n *node) int {
	if n == nil {
		return -1
	}
	i, ok := m.nodes[n]
	if !ok {
		i = len(m.nodes)
		m.nodes[n] = i
		m.queue = append(m.queue, n)
	}
	return i
}

func (m *imager) nodeList(ns []*node) []int {
	var out []int
	for _, n := range ns {
		out = append(out, m.node(n))
	}
	return out
}

func (m *imager) graphs() {
	p, img := m.p, m.img
	for _, x := range all[*userObject](p) {
		img.Objects = append(img.Objects, objectImage{x.handle, x.v.fn, x.v.user, x.v.refs})
	}
	for _, x := range all[*graph](p) {
		gi := graphImage{Handle: x.handle, Owned: x.v.owned.handles(), Owner: m.node(x.v.owner), Nodes: m.nodeList(x.v.nodes)}
		if o := x.v.origin; o != nil && p.objects[o.handle] == o {
			gi.Origin = o.handle
		}
		img.Graphs = append(img.Graphs, gi)
	}
	for _, x := range all[*graphExec](p) {
		img.Execs = append(img.Execs, execImage{x.handle, x.v.flags, x.v.owned.handles(), m.nodeList(x.v.plan)})
	}
	for i := 0; i < len(m.queue); i++ { // grows while it is worked on
		n := m.queue[i]
		ni := nodeImage{Kind: n.Kind, Kernel: n.Kernel, Copy: n.Copy, Fill: n.Fill, Fn: n.Fn, User: n.User, Event: n.Event, Addr: n.Addr,
			Disabled: n.disabled, From: m.node(n.from), Deps: m.nodeList(n.deps), Plan: m.nodeList(n.plan)}
		if p.objects[n.handle] == n {
			ni.Handle, ni.Graph = n.handle, n.graph.handle
			if n.child != nil {
				ni.Child = n.child.handle
			}
		}
		img.Nodes = append(img.Nodes, ni)
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

// A restorer rebuilds a process from its image. It does not trust the image: the client
// could have written it.
type restorer struct {
	p     *process
	img   *processImage
	phys  []*physical
	slabs []*slab
	nodes []*node
}

// readImage rebuilds the process. If it fails the process is unusable and has to end.
func (p *process) readImage(r io.Reader) (err error) {
	defer func() {
		if x := recover(); x != nil {
			if _, refused := x.(Status); !refused {
				p.srv.log.Error("restore failed", "pid", p.key.pid, "panic", x, "stack", string(debug.Stack()))
			}
			err = fmt.Errorf("%v: %w", x, errBadImage)
		}
	}()
	dec := gob.NewDecoder(r)
	img := new(processImage)
	if err := dec.Decode(img); err != nil {
		return fmt.Errorf("%w: %w", errBadImage, err)
	}
	if img.Magic != imageMagic || img.Version != imageVersion {
		return fmt.Errorf("state of version %d, this is version %d: %w", img.Version, imageVersion, errBadImage)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &restorer{p: p, img: img}
	defer m.release()
	steps := []func() error{
		m.contexts, m.memory, m.handles, m.work, m.code, m.textures, m.graphs, m.threads, m.registered,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	p.initialised, p.next, p.serial = img.Initialised, max(img.Next, firstHandle), img.Serial
	for h := range p.objects {
		if h >= p.next {
			return fmt.Errorf("handle %#x beyond the last: %w", h, errBadImage)
		}
	}
	return m.contents(dec)
}

// release gives up the restorer's own references to the physical memory.
func (m *restorer) release() {
	for _, ph := range m.phys {
		m.p.srv.release(ph)
	}
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errBadImage)
}

// put enters an object under the handle it had.
func (m *restorer) put(h uint64, v any) error {
	if _, taken := m.p.objects[h]; taken || h == 0 || len(m.p.objects) >= maxObjects {
		return bad("handle %#x", h)
	}
	m.p.objects[h] = v
	return nil
}

func (m *restorer) context(h uint64) (*deviceContext, error) {
	cx, ok := get[*deviceContext](m.p, h)
	if !ok {
		return nil, bad("context %#x", h)
	}
	return cx, nil
}

func (m *restorer) device(dev int) error {
	if dev < 0 || dev >= m.p.srv.cfg.Devices {
		return bad("device %d of %d", dev, m.p.srv.cfg.Devices)
	}
	return nil
}

func (m *restorer) contexts() error {
	p := m.p
	for _, ci := range m.img.Contexts {
		if err := m.device(ci.Dev); err != nil {
			return err
		}
		cx := &deviceContext{handle: ci.Handle, id: ci.ID, dev: ci.Dev, primary: ci.Primary, refs: ci.Refs, flags: ci.Flags, active: ci.Active,
			limits: ci.Limits, cache: ci.Cache, shmem: ci.Shmem, sticky: Status(ci.Sticky)}
		if cx.limits == nil {
			cx.limits = make(map[uint64]uint64)
		}
		cx.legacy = p.newStream(cx, 0, 0)
		cx.legacy.legacy, cx.legacy.id = true, ci.LegacyID
		if err := m.put(ci.Handle, cx); err != nil {
			return err
		}
		p.contexts = append(p.contexts, cx)
	}
	for dev, h := range m.img.Primaries {
		if err := m.device(dev); err != nil {
			return err
		}
		if h != 0 {
			cx, err := m.context(h)
			if err != nil {
				return err
			}
			p.primaries[dev] = cx
		}
	}
	for _, pair := range m.img.Peers {
		p.peers[pair] = true
	}
	return nil
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

func (m *restorer) memory() error {
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
	for _, x := range m.img.Pools {
		if err := m.device(x.Dev); err != nil {
			return err
		}
		po := &pool{handle: x.Handle, dev: x.Dev, attrs: x.Attrs, used: x.Used, high: x.High, types: x.Types, imported: x.Imported}
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
	slices.SortFunc(p.reserved, func(a, b *reservation) int { return compare(a.va, b.va) })
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

func (m *restorer) work() error {
	p := m.p
	for _, si := range m.img.Streams {
		cx, err := m.context(si.Cx)
		if err != nil {
			return err
		}
		s := p.newStream(cx, si.Flags, si.Priority)
		s.id, s.handle = si.ID, si.Handle
		if si.Handle != 0 {
			if err := m.put(si.Handle, s); err != nil {
				return err
			}
			continue
		}
		s.thread = si.Thread
		m.thread(si.Thread).perThread[cx] = s
	}
	for _, ei := range m.img.Events {
		cx, err := m.context(ei.Cx)
		if err != nil {
			return err
		}
		e := &event{handle: ei.Handle, cx: cx, flags: ei.Flags}
		if ei.Recorded {
			done := make(chan struct{})
			close(done)
			e.rec = &record{task: &task{done: done, cx: cx}, when: ei.When}
		}
		if err := m.put(ei.Handle, e); err != nil {
			return err
		}
	}
	return nil
}

// thread is the state that a thread gets back when it connects again.
func (m *restorer) thread(tid int32) *thread {
	t := m.p.threads[tid]
	if t == nil {
		t = &thread{tid: tid, p: m.p, perThread: make(map[*deviceContext]*stream)}
		m.p.threads[tid] = t
	}
	return t
}

func (m *restorer) threads() error {
	for _, ti := range m.img.Threads {
		t := m.thread(ti.TID)
		t.captureMode = ti.CaptureMode
		for _, h := range ti.Stack {
			cx, err := m.context(h)
			if err != nil {
				return err
			}
			t.stack = append(t.stack, cx)
		}
	}
	return nil
}

func attributes(m map[uint64]int32) map[uint64]int32 {
	if m == nil {
		return make(map[uint64]int32)
	}
	return m
}

func (m *restorer) code() error {
	p := m.p
	for _, li := range m.img.Libraries {
		cd, _, err := p.srv.translate(li.Image, li.Limit)
		if err != nil {
			return fmt.Errorf("library %#x: %w: %w", li.Handle, errBadImage, err)
		}
		l := &library{handle: li.Handle, image: li.Image, code: cd, modules: make(map[*deviceContext]*module), kernels: make(map[string]*kernel)}
		if err := m.put(li.Handle, l); err != nil {
			return err
		}
		for _, ki := range li.Kernels {
			if _, ok := cd.kernels[ki.Name]; !ok {
				return bad("kernel %q", ki.Name)
			}
			k := &kernel{handle: ki.Handle, lib: l, name: ki.Name, attrs: attributes(ki.Attrs)}
			if err := m.put(ki.Handle, k); err != nil {
				return err
			}
			l.kernels[ki.Name] = k
		}
	}
	for _, li := range m.img.Links {
		l := &link{handle: li.Handle, limit: li.Limit, inputs: li.Inputs}
		for _, in := range li.Inputs {
			l.bytes += len(in.Text)
		}
		if err := m.put(li.Handle, l); err != nil {
			return err
		}
	}
	used := make(map[*allocation]bool) // as data of a module
	for _, mi := range m.img.Modules {
		if err := m.module(&mi, used); err != nil {
			return err
		}
	}
	return nil
}

func (m *restorer) module(mi *moduleImage, used map[*allocation]bool) error {
	p := m.p
	cx, err := m.context(mi.Cx)
	if err != nil {
		return err
	}
	mod := &module{handle: mi.Handle, cx: cx, image: mi.Image, functions: make(map[string]*function)}
	if mi.Lib != 0 {
		l, ok := get[*library](p, mi.Lib)
		if !ok || l.modules[cx] != nil {
			return bad("library %#x", mi.Lib)
		}
		mod.lib, mod.code = l, l.code
		l.modules[cx] = mod
	} else if mod.code, _, err = p.srv.translate(mi.Image, mi.Limit); err != nil {
		return fmt.Errorf("module %#x: %w: %w", mi.Handle, errBadImage, err)
	}
	if n := mod.code.sm.DataSize(); n > 0 {
		al := p.allocs.find(mi.Data)
		if al == nil || al.va != mi.Data || al.kind != allocModule || al.size < n || used[al] {
			return bad("data of module %#x", mi.Handle)
		}
		mod.data, used[al] = al, true
	}
	// The data are as the program left them, not as the module initialises them.
	mod.inst = mod.code.sm.Attach(p.space, mi.Data)
	if err := m.put(mi.Handle, mod); err != nil {
		return err
	}
	for _, fi := range mi.Functions {
		info, ok := mod.code.kernels[fi.Name]
		if !ok {
			return bad("function %q", fi.Name)
		}
		f := &function{handle: fi.Handle, mod: mod, name: fi.Name, info: info, attrs: attributes(fi.Attrs)}
		f.kernel, _ = get[*kernel](p, fi.Kernel)
		if err := m.put(fi.Handle, f); err != nil {
			return err
		}
		mod.functions[fi.Name] = f
	}
	return nil
}

func (m *restorer) textures() error {
	p := m.p
	used := make(map[*allocation]bool)
	for _, ai := range m.img.Arrays {
		cx, err := m.context(ai.Cx)
		if err != nil {
			return err
		}
		al := p.allocs.find(ai.Data)
		if ai.Desc.valid() != Success || al == nil || al.va != ai.Data || al.kind != allocArray || al.size < ai.Desc.bytes() || used[al] {
			return bad("array %#x", ai.Handle)
		}
		used[al] = true
		if err := m.put(ai.Handle, &array{handle: ai.Handle, cx: cx, desc: ai.Desc, data: al}); err != nil {
			return err
		}
	}
	for _, mi := range m.img.Mipmaps {
		cx, err := m.context(mi.Cx)
		if err != nil {
			return err
		}
		mm := &mipmap{handle: mi.Handle, cx: cx, desc: mi.Desc}
		for _, h := range mi.Levels {
			a, ok := get[*array](p, h)
			if !ok || a.mipmap != nil {
				return bad("mipmapped array %#x", mi.Handle)
			}
			a.mipmap = mm
			mm.levels = append(mm.levels, a)
		}
		if len(mm.levels) == 0 {
			return bad("mipmapped array %#x", mi.Handle)
		}
		if err := m.put(mi.Handle, mm); err != nil {
			return err
		}
	}
	for _, ti := range m.img.Textures {
		cx, err := m.context(ti.Cx)
		if err != nil {
			return err
		}
		o := &textureObject{handle: ti.Handle, cx: cx, surface: ti.Surface, resource: ti.Resource, sampling: ti.Sampling, view: ti.View}
		if len(o.resource) < sizeofResourceDesc || !o.surface && len(o.sampling) < sizeofTextureDesc || len(o.view) > 0 && len(o.view) < sizeofViewDesc {
			return bad("texture %#x", ti.Handle)
		}
		if err := m.put(ti.Handle, o); err != nil {
			return err
		}
		// An object whose memory is gone stays a name for nothing, as it was.
		_ = p.bind(o)
	}
	return nil
}

func (m *restorer) node(i int) *node {
	if i < 0 {
		return nil
	}
	return m.nodes[i] // out of range panics, which is errBadImage
}

func (m *restorer) nodeList(is []int) []*node {
	var out []*node
	for _, i := range is {
		out = append(out, m.nodes[i])
	}
	return out
}

func (m *restorer) graphs() error {
	p := m.p
	m.nodes = make([]*node, len(m.img.Nodes))
	for i := range m.nodes {
		m.nodes[i] = new(node)
	}
	for _, oi := range m.img.Objects {
		if err := m.put(oi.Handle, &userObject{oi.Handle, oi.Fn, oi.User, oi.Refs}); err != nil {
			return err
		}
	}
	for _, gi := range m.img.Graphs {
		g := &graph{handle: gi.Handle, owned: m.owned(gi.Owned), owner: m.node(gi.Owner), nodes: m.nodeList(gi.Nodes)}
		if err := m.put(gi.Handle, g); err != nil {
			return err
		}
	}
	for _, gi := range m.img.Graphs {
		if gi.Origin != 0 {
			p.objects[gi.Handle].(*graph).origin, _ = get[*graph](p, gi.Origin)
		}
	}
	for i, ni := range m.img.Nodes {
		n := m.nodes[i]
		*n = node{handle: ni.Handle, from: m.node(ni.From), deps: m.nodeList(ni.Deps), Kind: ni.Kind, Kernel: ni.Kernel, Copy: ni.Copy, Fill: ni.Fill,
			Fn: ni.Fn, User: ni.User, Event: ni.Event, Addr: ni.Addr, plan: m.nodeList(ni.Plan), disabled: ni.Disabled}
		if !n.Copy.valid() || n.Fill.Element != 0 && !n.Fill.valid() || (n.Kind == nodeKernel) != (n.Kernel != nil) {
			return bad("node %d", i)
		}
		if n.Kernel != nil {
			// A function whose module has been unloaded stays away: the node cannot run.
			n.Kernel.fn, _ = get[*function](p, n.Kernel.Func)
		}
		if n.Kind == nodeMemAlloc {
			if n.mem = p.allocs.find(n.Addr); n.mem == nil || n.mem.va != n.Addr || n.mem.kind != allocGraph {
				return bad("graph memory at %#x", n.Addr)
			}
		}
		if n.handle == 0 {
			continue
		}
		if n.mem != nil {
			n.mem.hold()
		}
		g, ok := get[*graph](p, ni.Graph)
		if !ok {
			return bad("graph %#x", ni.Graph)
		}
		n.graph = g
		if ni.Child != 0 {
			if n.child, ok = get[*graph](p, ni.Child); !ok {
				return bad("graph %#x", ni.Child)
			}
		}
		if err := m.put(n.handle, n); err != nil {
			return err
		}
	}
	for _, g := range all[*graph](p) {
		for _, n := range g.v.nodes {
			if n.graph != g.v || (n.Kind == nodeChild) != (n.child != nil) || n.child != nil && n.child.owner != n {
				return bad("graph %#x", g.handle)
			}
			for _, d := range n.deps {
				if d.graph != g.v {
					return bad("graph %#x", g.handle)
				}
			}
		}
	}
	for _, g := range all[*graph](p) {
		const deepest = 32
		depth := 0
		for up := g.v; up.owner != nil && up.owner.graph != nil; up = up.owner.graph {
			if depth++; depth > deepest {
				return bad("graph %#x is inside itself", g.handle)
			}
		}
	}
	seen := make(map[*node]bool)
	for _, ei := range m.img.Execs {
		e := &graphExec{handle: ei.Handle, flags: ei.Flags, owned: m.owned(ei.Owned), plan: m.nodeList(ei.Plan)}
		if !sound(e.plan, seen) {
			return bad("executable graph %#x", ei.Handle)
		}
		if err := m.put(ei.Handle, e); err != nil {
			return err
		}
		eachAllocation(e.plan, (*allocation).hold)
	}
	return nil
}

func (w owned) handles() map[uint64]uint64 {
	m := make(map[uint64]uint64, len(w))
	for o, n := range w {
		m[o.handle] = n
	}
	return m
}

// owned is the references of a graph, as far as the objects have so many.
func (m *restorer) owned(refs map[uint64]uint64) owned {
	w := make(owned, len(refs))
	for h, n := range refs {
		if o, ok := get[*userObject](m.p, h); ok && n > 0 && n <= o.refs {
			w[o] = n
		}
	}
	return w
}

// sound reports whether a plan's nodes know where they come from and no plan holds
// itself. seen is false for a node in progress.
func sound(plan []*node, seen map[*node]bool) bool {
	for _, n := range plan {
		done, known := seen[n]
		if known && !done || n.from == nil {
			return false
		}
		if known {
			continue
		}
		seen[n] = false
		if !sound(n.plan, seen) {
			return false
		}
		seen[n] = true
	}
	return true
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
		if piece.Phys >= len(m.phys) || piece.Off > m.phys[piece.Phys].size || uint64(len(piece.Data)) > m.phys[piece.Phys].size-piece.Off {
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
