package corpus

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// window is the device memory of a Machine: address space only, what is not touched costs nothing.
const window = 1 << 40

// heapSize is what malloc can give to a kernel, in bytes.
const heapSize = 8 << 20

// DefaultInstructions bounds a launch, in thread instructions.
const DefaultInstructions = 1 << 30

// A Machine executes launches, one after the other, on the software GPU. Its memory begins as the
// application says for every launch.
type Machine struct {
	space   *softgpu.Space
	fd      int
	library *Library
	dirty   []Range // may hold something else than zeros
}

// NewMachine makes a machine with a library of its own. It holds address space and a descriptor until Close.
func NewMachine() (*Machine, error) { return new(Library).NewMachine() }

// NewMachine makes a machine that takes its modules from a library.
func (lib *Library) NewMachine() (*Machine, error) {
	space, err := softgpu.NewSpace(base, window)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("holdfast-corpus", unix.MFD_CLOEXEC)
	if err != nil {
		space.Close()
		return nil, fmt.Errorf("device memory: %w", err)
	}
	m := &Machine{space: space, fd: fd, library: lib}
	if err := unix.Ftruncate(fd, window); err != nil {
		m.Close()
		return nil, fmt.Errorf("device memory: %w", err)
	}
	if err := space.Map(base, fd, 0, window, true); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close gives everything back. No launch may be running.
func (m *Machine) Close() error {
	return errors.Join(m.space.Close(), unix.Close(m.fd))
}

// RunOptions say how to execute a launch. Blocks run in order, in one goroutine.
type RunOptions struct {
	Deterministic   bool            // clocks count instructions, and do not show time
	Observe         bool            // record accesses
	Prefix          *softgpu.Prefix // stop in the middle
	MaxInstructions uint64          // 0 = DefaultInstructions
	Cancel          <-chan struct{}
}

// A Result is what a launch did.
type Result struct {
	Stats    softgpu.Stats
	Observer *softgpu.Observer // nil unless observed
	Printed  int               // bytes of printf
	Stopped  bool              // by RunOptions.Prefix, before the end

	m *Machine
	p *prepared
}

// Buffer is what a buffer that the launch reaches holds now. It is valid until the machine runs something else.
func (r *Result) Buffer(name string) ([]byte, error) {
	a := r.p.app
	return r.m.space.Bytes(a.Address(name), a.Buffers[name].Bytes)
}

// Run executes a launch of an application on a machine of its own and hands its result to use.
func Run(a *Application, l *Launch, o RunOptions, use func(*Result) error) error {
	m, err := NewMachine()
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := m.Run(a, l, o)
	if err != nil {
		return err
	}
	return use(r)
}

// Run executes a launch from the beginning: memory as the application says, then the kernel. An error is
// a *softgpu.Fault if the kernel is to blame.
func (m *Machine) Run(a *Application, l *Launch, o RunOptions) (*Result, error) {
	p, err := m.prepare(a, l)
	if err != nil {
		return nil, err
	}
	return m.launch(p, o)
}

// prepared is a launch with its memory filled.
type prepared struct {
	app    *Application
	l      *Launch
	source *ptx.Module
	in     *softgpu.Instance
	kernel softgpu.KernelInfo
	params []byte
	memory []place // what the launch reaches, by address: buffers, the module's variables, the heap
	heap   Range   // of malloc; empty if the module does not call it
}

// A place is a piece of memory and what it holds in the beginning, without zeros at the end.
type place struct {
	Range
	name  string // of the buffer; "" = the module's variables
	begin []byte
}

// ErrUnsupported is wrapped by the error of a kernel that the software GPU refuses.
var ErrUnsupported = errors.New("not supported")

// prepare zeroes the machine's memory and fills it for a launch.
func (m *Machine) prepare(a *Application, l *Launch) (*prepared, error) {
	if l.Module == "" {
		return nil, fmt.Errorf("kernel %s has no PTX", l.Kernel)
	}
	mod, err := m.library.Module(a, l.Module)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mod.Kernels(), func(k softgpu.KernelInfo) bool { return k.Name == l.Kernel })
	if i < 0 {
		return nil, fmt.Errorf("%s has no kernel %s", a.Modules[l.Module], l.Kernel)
	}
	p := &prepared{app: a, l: l, source: mod.Source, kernel: mod.Kernels()[i]}
	if p.kernel.Unsupported != "" {
		return nil, fmt.Errorf("kernel %s: %w: %s", l.Kernel, ErrUnsupported, p.kernel.Unsupported)
	}
	if p.params, err = l.Params(p.kernel.Params, a.Address); err != nil {
		return nil, err
	}
	if err := m.wipe(); err != nil {
		return nil, err
	}
	data := a.Variables(mod.Module)
	end := data.Hi + 2*softgpu.PageSize + heapSize
	if end > base+window {
		return nil, fmt.Errorf("the buffers take more than %d bytes", uint64(window))
	}
	for _, name := range a.Reached(l) {
		at := a.Address(name)
		p.memory = append(p.memory, place{Range: Range{at, at + a.Buffers[name].Bytes}, name: name,
			begin: a.Contents(name)})
	}
	if p.in, err = mod.Instantiate(m.space, data.Lo); err != nil {
		return nil, err
	}
	if data.Len() > 0 {
		mem, err := m.space.Bytes(data.Lo, data.Len())
		if err != nil {
			return nil, err
		}
		p.memory = append(p.memory, place{Range: data, begin: slices.Clone(mem)})
	}
	if mod.mallocs() {
		lo := (data.Hi + 2*softgpu.PageSize - 1) &^ (softgpu.PageSize - 1)
		p.heap = Range{lo, lo + heapSize}
		p.memory = append(p.memory, place{Range: p.heap, name: "malloc"})
	}
	if err := m.space.SetHeap(p.heap.Lo, p.heap.Len()); err != nil {
		return nil, err
	}
	m.dirty = append(m.dirty, Range{base, end})
	for _, x := range p.memory {
		if err := m.write(x.Lo, x.begin); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Params lays out the arguments of a launch as the parameters of its kernel say, when buffers lie where at says.
func (l *Launch) Params(parameters []softgpu.Param, at func(buffer string) uint64) ([]byte, error) {
	if len(l.Args) != len(parameters) {
		return nil, fmt.Errorf("kernel %s has %d parameters, the launch %d arguments", l.Kernel, len(parameters),
			len(l.Args))
	}
	var out []byte
	for i, p := range parameters {
		b := l.Args[i].Encode(at)
		if len(b) != int(p.Size) {
			return nil, fmt.Errorf("kernel %s: argument %d has %d bytes, parameter %s has %d", l.Kernel, i, len(b),
				p.Name, p.Size)
		}
		out = append(out, make([]byte, int(p.Offset)-len(out))...)
		out = append(out, b...)
	}
	return out, nil
}

func (m *Machine) write(at uint64, b []byte) error {
	mem, err := m.space.Bytes(at, uint64(len(b)))
	copy(mem, b)
	return err
}

// wipe makes all memory zero, and gives it back to the system.
func (m *Machine) wipe() error {
	for _, r := range m.dirty {
		if err := unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(r.Lo-base),
			int64(r.Len())); err != nil {
			return fmt.Errorf("device memory: %w", err)
		}
	}
	m.dirty = m.dirty[:0]
	return nil
}

// launch runs the kernel on memory as it is.
func (m *Machine) launch(p *prepared, o RunOptions) (*Result, error) {
	var ob *softgpu.Observer
	if o.Observe {
		ob = &softgpu.Observer{}
	}
	return m.launchObserved(p, o, ob)
}

// launchObserved is launch with an observer, or nil.
func (m *Machine) launchObserved(p *prepared, o RunOptions, ob *softgpu.Observer) (*Result, error) {
	r := &Result{m: m, p: p, Observer: ob}
	cfg := softgpu.LaunchConfig{Grid: p.l.Grid, Block: p.l.Block, Cluster: p.l.Cluster, SharedDynamic: p.l.Shared,
		Params: p.params, Workers: 1,
		Deterministic: o.Deterministic, Prefix: o.Prefix, MaxInstructions: o.MaxInstructions,
		Printf: counter{&r.Printed}, Cancel: o.Cancel}
	if cfg.MaxInstructions == 0 {
		cfg.MaxInstructions = DefaultInstructions
	}
	cfg.Observer = ob
	var err error
	r.Stats, err = p.in.Launch(p.l.Kernel, cfg)
	if errors.Is(err, softgpu.ErrPrefix) {
		r.Stopped, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// A counter counts what is written to it.
type counter struct{ n *int }

func (c counter) Write(b []byte) (int, error) {
	*c.n += len(b)
	return io.Discard.Write(b)
}
