package device

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"holdfast/internal/softgpu"
)

// imageVersion changes with every change to the types below, or to the window of addresses.
const imageVersion = 5

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
		m.contexts, m.physicals, m.pools, m.allocations, m.heapAndReservations, m.handles,
		m.mappings, m.hosts, m.work, m.code, m.textures, m.graphs, m.threads, m.registered,
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

func (m *restorer) device(dev int) error {
	if dev < 0 || dev >= m.p.srv.cfg.Devices {
		return bad("device %d of %d", dev, m.p.srv.cfg.Devices)
	}
	return nil
}
