// Package driver is the engine's backend on a CUDA driver library: the real libcuda, or the stub of the software GPU.
//
// A program is one executable graph: the pieces of work of a word are parallel nodes, and those of the next word
// depend on all of them. So a run is one call. What the driver does not tell is where in a graph a fault was; with
// Config.Step every word is a graph of its own, and the word that failed is known.
//
// Memory is mapped at fixed addresses (cuMemAddressReserve, cuMemCreate, cuMemMap). In a process of its own they are
// free unless the process itself has something there; then Map says so.
//
// The package must not import anything of this module but engine and the driver below it.
package driver

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/engine"
)

// Config says which driver to use, and how.
type Config struct {
	Library string // path of the driver library; "": native.DefaultPath
	Device  int
	PTXOnly bool // it takes no machine code (the software GPU)
	Step    bool // words one by one, so that a fault can be placed
}

// A Backend is a GPU behind a driver library.
type Backend struct {
	cfg    Config
	drv    *native.Graphs
	dev    cuda.Device
	ctx    cuda.Context
	stream cuda.Stream
	info   engine.Info
	maps   map[uint64][]part
	spans  []span // addresses that are reserved
	bounce []byte // pinned: what Write and Read copy through
	bad    error  // a fault or timeout: nothing works any more
}

type span struct{ addr, size uint64 }

// A part of a mapping lies in one reservation.
type part struct {
	span
	handle cuda.Handle
}

// Open brings up a device.
func Open(cfg Config) (*Backend, error) {
	if cfg.Library == "" {
		cfg.Library = native.DefaultPath
	}
	b := &Backend{cfg: cfg, maps: map[uint64][]part{}}
	if err := b.do(b.open); err != nil {
		return nil, err
	}
	return b, nil
}

// do runs f on a thread that has the context. To have it set each time costs a tenth of a microsecond, a thread of
// its own several.
func (b *Backend) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if b.ctx != 0 {
		if err := b.drv.SetContext(b.ctx); err != nil {
			return err
		}
	}
	return f()
}

func (b *Backend) open() (err error) {
	if b.drv, err = native.OpenGraphs(b.cfg.Library); err != nil {
		return err
	}
	if err = b.drv.Init(); err != nil {
		return err
	}
	if b.dev, err = b.drv.DeviceGet(b.cfg.Device); err != nil {
		return err
	}
	if b.ctx, err = b.drv.PrimaryContextRetain(b.dev); err != nil {
		return err
	}
	if err = b.drv.SetContext(b.ctx); err == nil {
		b.stream, err = b.drv.StreamCreate()
	}
	if err == nil {
		b.bounce, err = b.drv.HostAlloc(bounceSize)
	}
	if err == nil {
		err = b.describe()
	}
	if err != nil {
		b.drv.PrimaryContextRelease(b.dev)
	}
	return err
}

func (b *Backend) describe() error {
	name, err1 := b.drv.DeviceName(b.dev)
	major, err2 := b.drv.DeviceAttribute(cuda.AttrComputeCapabilityMajor, b.dev)
	minor, err3 := b.drv.DeviceAttribute(cuda.AttrComputeCapabilityMinor, b.dev)
	total, err4 := b.drv.DeviceTotalMem(b.dev)
	v, err5 := b.drv.DriverVersion()
	b.info = engine.Info{Name: name, Arch: 10*major + minor, Driver: "CUDA " + v.String(), Memory: total,
		PTX: true, Cubin: !b.cfg.PTXOnly, LoadsAtOnce: true}
	return errors.Join(err1, err2, err3, err4, err5)
}

// Info implements engine.Backend.
func (b *Backend) Info() engine.Info { return b.info }

// Map implements engine.Backend.
func (b *Backend) Map(addr, size uint64) error {
	if addr == 0 || size == 0 || addr%engine.Granularity != 0 || size%engine.Granularity != 0 {
		return fmt.Errorf("map %#x bytes at %#x: not in units of %d bytes", size, addr, engine.Granularity)
	}
	return b.do(func() error { return b.mapAt(addr, size) })
}

// reserve makes sure that all of the addresses are reserved. libcuda (580.159) keeps to an address that it is asked
// for only if the request is too large to be served from the 32 MiB at a time that it reserves for itself: so more is
// asked for first.
func (b *Backend) reserve(addr, size uint64) error {
	for at, end := addr, addr+size; at < end; {
		if i := slices.IndexFunc(b.spans, func(s span) bool { return s.addr <= at && at < s.addr+s.size }); i >= 0 {
			at = b.spans[i].addr + b.spans[i].size
			continue
		}
		s, err := b.reserveAround(at, end)
		if err != nil {
			return err
		}
		b.spans = append(b.spans, s)
	}
	return nil
}

// reserveAround reserves addresses with at among them, none of them reserved yet.
func (b *Backend) reserveAround(at, end uint64) (s span, err error) {
	for _, unit := range []uint64{1 << 30, 64 << 20, engine.Granularity} {
		from, to := at/unit*unit, (end+unit-1)/unit*unit
		for _, s := range b.spans {
			if s.addr < at {
				from = max(from, s.addr+s.size)
			} else {
				to = min(to, s.addr)
			}
		}
		s = span{from, to - from}
		if err = b.drv.ReserveAt(cuda.DevicePtr(from), s.size); err == nil {
			return s, nil
		}
	}
	return span{}, err
}

// mapAt maps memory, in parts where it lies in several reservations.
func (b *Backend) mapAt(addr, size uint64) error {
	if _, ok := b.maps[addr]; ok {
		return fmt.Errorf("map %#x: something is mapped there", addr)
	}
	if err := b.reserve(addr, size); err != nil {
		return err
	}
	var parts []part
	for at, end := addr, addr+size; at < end; {
		i := slices.IndexFunc(b.spans, func(s span) bool { return s.addr <= at && at < s.addr+s.size })
		n := min(end, b.spans[i].addr+b.spans[i].size) - at
		h, err := b.mapPart(at, n)
		if err != nil {
			return errors.Join(fmt.Errorf("memory at %#x: %w", at, err), b.unmapParts(parts))
		}
		parts = append(parts, part{span{at, n}, h})
		at += n
	}
	b.maps[addr] = parts
	return b.drv.StreamSynchronize(b.stream)
}

func (b *Backend) mapPart(addr, size uint64) (cuda.Handle, error) {
	p := cuda.DevicePtr(addr)
	h, err := b.drv.MemCreate(b.dev, size, false)
	if err != nil {
		return 0, err
	}
	if err := b.drv.MemMap(p, size, h); err != nil {
		return 0, errors.Join(err, b.drv.MemRelease(h))
	}
	if err = b.drv.MemSetAccess(p, size, b.dev); err == nil {
		err = b.drv.SetD32(p, 0, size/4, b.stream)
	}
	if err != nil {
		return 0, errors.Join(err, b.drv.MemUnmap(p, size), b.drv.MemRelease(h))
	}
	return h, nil
}

// Unmap implements engine.Backend.
func (b *Backend) Unmap(addr uint64) error {
	return b.do(func() error {
		if b.bad != nil {
			return nil // as in Close
		}
		return b.unmap(addr)
	})
}

func (b *Backend) unmap(addr uint64) error {
	parts, ok := b.maps[addr]
	if !ok {
		return fmt.Errorf("unmap %#x: nothing is mapped there", addr)
	}
	delete(b.maps, addr)
	return b.unmapParts(parts)
}

func (b *Backend) unmapParts(parts []part) error {
	var all []error
	for _, p := range parts {
		all = append(all, b.drv.MemUnmap(cuda.DevicePtr(p.addr), p.size), b.drv.MemRelease(p.handle))
	}
	return errors.Join(all...)
}

// bounceSize is more than a chunk of a recording has.
const bounceSize = 4 << 20

// Write implements engine.Backend. It goes through memory of the driver's, which is faster than pageable memory.
func (b *Backend) Write(addr uint64, p []byte) error {
	return b.do(func() error {
		for len(p) > 0 {
			n := copy(b.bounce, p)
			if err := b.drv.CopyHtoD(cuda.DevicePtr(addr), b.bounce[:n], b.stream); err != nil {
				return err
			}
			if err := b.drv.StreamSynchronize(b.stream); err != nil {
				return err
			}
			addr, p = addr+uint64(n), p[n:]
		}
		return nil
	})
}

// Read implements engine.Backend.
func (b *Backend) Read(addr uint64, p []byte) error {
	return b.do(func() error {
		for len(p) > 0 {
			n := min(len(p), len(b.bounce))
			if err := b.drv.CopyDtoH(b.bounce[:n], cuda.DevicePtr(addr), b.stream); err != nil {
				return err
			}
			if err := b.drv.StreamSynchronize(b.stream); err != nil {
				return err
			}
			copy(p, b.bounce[:n])
			addr, p = addr+uint64(n), p[n:]
		}
		return nil
	})
}

// Close implements engine.Backend.
func (b *Backend) Close() error {
	return b.do(func() error {
		var late *engine.Timeout
		switch {
		case errors.As(b.bad, &late): // calls would wait for what does not end; the end of the process frees all
			return nil
		case b.bad != nil:
			return b.abandon()
		}
		all := []error{b.drv.StreamDestroy(b.stream), b.drv.HostFree(b.bounce)}
		for addr := range b.maps {
			all = append(all, b.unmap(addr))
		}
		for _, s := range b.spans {
			all = append(all, b.drv.AddressFree(cuda.DevicePtr(s.addr), s.size))
		}
		return errors.Join(append(all, b.drv.PrimaryContextRelease(b.dev))...)
	})
}

// abandon lets go of a context that has failed, so that another one can be had. With it goes all that is the context's;
// of the rest each call may fail, as the driver likes.
func (b *Backend) abandon() error {
	err := b.drv.PrimaryContextRelease(b.dev)
	for addr := range b.maps {
		_ = b.unmap(addr)
	}
	for _, s := range b.spans {
		_ = b.drv.AddressFree(cuda.DevicePtr(s.addr), s.size)
	}
	return err
}

type code struct {
	b *Backend
	l native.Library
}

// Load implements engine.Backend.
func (b *Backend) Load(image []byte) (engine.Code, error) {
	c := &code{b: b}
	err := b.do(func() (err error) {
		c.l, err = b.drv.LibraryLoad(image)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Kernel implements engine.Code.
func (c *code) Kernel(name string) (engine.Kernel, error) {
	k := &kernel{b: c.b, name: name}
	err := c.b.do(func() (err error) {
		if k.f, err = c.b.drv.LibraryFunction(c.l, name); err != nil {
			return err
		}
		for i := 0; ; i++ {
			at, n, err := c.b.drv.ParamInfo(k.f, i)
			if errors.Is(err, cuda.ErrInvalidValue) {
				return nil // that was the last
			}
			if err != nil {
				return err
			}
			k.params = append(k.params, engine.Param{Offset: uint32(at), Size: uint32(n)})
			k.offsets = append(k.offsets, uint32(at))
			k.bytes = max(k.bytes, int(at+n))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

// Symbol implements engine.Code.
func (c *code) Symbol(name string) (addr, size uint64, err error) {
	err = c.b.do(func() error {
		p, n, err := c.b.drv.LibraryGlobal(c.l, name)
		addr, size = uint64(p), n
		return err
	})
	return addr, size, err
}

// Close implements engine.Code.
func (c *code) Close() error {
	return c.b.do(func() error {
		if c.b.bad != nil {
			return nil
		}
		return c.b.drv.LibraryUnload(c.l)
	})
}

type kernel struct {
	b       *Backend
	name    string
	f       cuda.Function
	params  []engine.Param
	offsets []uint32
	bytes   int
}

// Name implements engine.Kernel.
func (k *kernel) Name() string { return k.name }

// Params implements engine.Kernel.
func (k *kernel) Params() []engine.Param { return k.params }

// A program is graphs that run one after the other: one, or with Step one for each word.
type program struct {
	b     *Backend
	execs []native.GraphExec
	place []engine.Place
}

// Prepare implements engine.Backend.
func (b *Backend) Prepare(words []engine.Word) (engine.Program, error) {
	p := &program{b: b}
	err := b.do(func() error {
		if !b.cfg.Step {
			return p.add(words, 0, engine.Place{Word: -1, Op: -1})
		}
		for i := range words {
			place := engine.Place{Word: i, Op: -1}
			if ops := words[i].Ops; len(ops) == 1 {
				place.Op = 0
				if l := ops[0].Launch; l != nil {
					place.Kernel = l.Kernel.Name()
				}
			}
			if err := p.add(words[i:i+1], i, place); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// add makes a graph of words, the first of which has that number.
func (p *program) add(words []engine.Word, first int, place engine.Place) error {
	d := p.b.drv
	g, err := d.GraphCreate()
	if err != nil {
		return err
	}
	defer d.GraphDestroy(g)
	var last []native.GraphNode
	for i, w := range words {
		var nodes []native.GraphNode
		for k, op := range w.Ops {
			n, err := p.b.node(g, last, op)
			if err != nil {
				return fmt.Errorf("word %d, op %d: %w", first+i, k, err)
			}
			nodes = append(nodes, n)
		}
		if last, err = p.b.join(g, last, nodes); err != nil {
			return err
		}
	}
	e, err := d.Instantiate(g)
	if err != nil {
		return err
	}
	p.execs, p.place = append(p.execs, e), append(p.place, place)
	return nil
}

// join is what the next word depends on: the nodes of this one, or if they are many, an empty node that does so.
func (b *Backend) join(g native.Graph, last, nodes []native.GraphNode) ([]native.GraphNode, error) {
	const many = 8 // edges from each node to each of the next word are a square
	switch {
	case len(nodes) == 0:
		return last, nil
	case len(nodes) <= many:
		return nodes, nil
	}
	n, err := b.drv.AddEmpty(g, nodes)
	return []native.GraphNode{n}, err
}

func (b *Backend) node(g native.Graph, after []native.GraphNode, op engine.Op) (native.GraphNode, error) {
	switch {
	case op.Launch != nil && op.Copy == nil && op.Set == nil:
		l := op.Launch
		k, ok := l.Kernel.(*kernel)
		if !ok || k.b != b {
			return 0, fmt.Errorf("kernel %s is another backend's", l.Kernel.Name())
		}
		if len(l.Params) < k.bytes {
			return 0, fmt.Errorf("kernel %s: %d bytes of parameters, it has %d", k.name, len(l.Params), k.bytes)
		}
		shape := native.Shape{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared}
		n, err := b.drv.AddKernel(g, after, k.f, shape, l.Cooperative, l.Params, k.offsets)
		if err != nil {
			return 0, fmt.Errorf("kernel %s: %w", k.name, err)
		}
		return n, nil
	case op.Copy != nil && op.Launch == nil && op.Set == nil:
		c := op.Copy
		return b.drv.AddCopy(g, after, b.ctx, c.Dst, c.DstPitch, c.Src, c.SrcPitch, c.Width, c.Height)
	case op.Set != nil && op.Launch == nil && op.Copy == nil:
		s := op.Set
		if s.Size != 1 && s.Size != 2 && s.Size != 4 {
			return 0, errors.New("a set of elements of " + strconv.Itoa(s.Size) + " bytes")
		}
		return b.drv.AddSet(g, after, b.ctx, s.Dst, s.Pitch, s.Value, uint32(s.Size), s.Width, s.Height)
	}
	return 0, errors.New("not exactly one of launch, copy and set")
}

// Run implements engine.Program.
func (p *program) Run(timeout time.Duration) error {
	return p.b.do(func() error {
		if p.b.bad != nil {
			return p.b.bad
		}
		deadline := time.Now().Add(timeout)
		for i, e := range p.execs {
			err := p.b.drv.GraphLaunch(e, p.b.stream)
			if err == nil {
				err = p.b.await(deadline, timeout, p.place[i])
			}
			if err != nil {
				var late *engine.Timeout
				if !errors.As(err, &late) {
					err = &engine.Fault{Place: p.place[i], Err: err}
				}
				p.b.bad = err
				return err
			}
		}
		return nil
	})
}

// await looks often at first: most programs are short.
func (b *Backend) await(deadline time.Time, timeout time.Duration, place engine.Place) error {
	const spin = 2 * time.Millisecond
	nap := 20 * time.Microsecond
	for begun := time.Now(); ; {
		done, err := b.drv.StreamQuery(b.stream)
		if done || err != nil {
			return err
		}
		now := time.Now()
		switch {
		case now.After(deadline):
			return &engine.Timeout{Place: place, After: timeout}
		case now.Sub(begun) < spin:
			runtime.Gosched()
		default:
			time.Sleep(nap)
			nap = min(2*nap, time.Millisecond)
		}
	}
}

// Close implements engine.Program.
func (p *program) Close() error {
	return p.b.do(func() error {
		var all []error
		for _, e := range p.execs {
			if p.b.bad == nil {
				all = append(all, p.b.drv.ExecDestroy(e))
			}
		}
		p.execs = nil
		return errors.Join(all...)
	})
}
