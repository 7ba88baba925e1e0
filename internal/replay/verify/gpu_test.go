package verify_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/engine"
	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// What a launch or a whole run may take. A run that goes on for longer is ended, as "holdfast replay --timeout" does.
const (
	maxInstructions = 1 << 21
	codeRoom        = 4 << 20 // for the variables of modules
)

// A gpu is an engine on the software GPU, without a driver, that sees every byte that work touches. Memory comes in
// units of 2 MiB, so a stray access need not fault: it is found in what was observed, and by the canaries.
type gpu struct {
	space    *softgpu.Space
	fd       int
	lo, size uint64
	next     uint64          // in the file
	maps     []softgpu.Range // that are mapped
	code     uint64          // where the next module's variables go
	allowed  []softgpu.Range // sorted, joined
	constant []softgpu.Range // of that, what nothing may write
	strays   []string        // accesses of anything else
	ended    error           // a fault or a limit
}

var errTooLong = errors.New("it goes on for too long")

// newGPU has addresses from lo on, and so many; code's variables lie at their end.
func newGPU(lo, size uint64) (*gpu, error) {
	space, err := softgpu.NewSpace(lo, size)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("holdfast-verify", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, space.Close())
	}
	g := &gpu{space: space, fd: fd, lo: lo, size: size}
	err = unix.Ftruncate(fd, int64(size))
	if err == nil {
		g.code = lo + size - codeRoom
		err = g.Map(g.code, codeRoom)
		g.maps = nil
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *gpu) Info() engine.Info {
	return engine.Info{Name: "test", Arch: 90, Driver: "none", Memory: g.size, PTX: true}
}

func (g *gpu) Map(addr, size uint64) error {
	if err := g.space.Map(addr, g.fd, int64(g.next), size, true); err != nil {
		return err
	}
	g.next += size
	g.maps = append(g.maps, softgpu.Range{Addr: addr, Len: size})
	return nil
}

func (g *gpu) Unmap(addr uint64) error { return errors.New("not needed") }

func (g *gpu) Write(addr uint64, b []byte) error {
	mem, err := g.space.Bytes(addr, uint64(len(b)))
	copy(mem, b)
	return err
}

func (g *gpu) Read(addr uint64, b []byte) error {
	mem, err := g.space.Bytes(addr, uint64(len(b)))
	copy(b, mem)
	return err
}

func (g *gpu) Close() error { return errors.Join(g.space.Close(), unix.Close(g.fd)) }

type gpuCode struct {
	g    *gpu
	m    *softgpu.Module
	in   *softgpu.Instance
	base uint64
}

func (g *gpu) Load(image []byte) (engine.Code, error) {
	source, err := ptx.Parse("", image)
	if err != nil {
		return nil, err
	}
	m, err := softgpu.Load(source)
	if err != nil {
		return nil, err
	}
	if m.DataSize() > g.lo+g.size-g.code {
		return nil, errors.New("too many variables")
	}
	in, err := m.Instantiate(g.space, g.code)
	if err != nil {
		return nil, err
	}
	c := &gpuCode{g, m, in, g.code}
	g.allowed = join(append(g.allowed, softgpu.Range{Addr: g.code, Len: m.DataSize()}))
	g.code += (m.DataSize() + 511) / 512 * 512
	return c, nil
}

func (c *gpuCode) Kernel(name string) (engine.Kernel, error) {
	for _, k := range c.m.Kernels() {
		if k.Name == name {
			if k.Unsupported != "" {
				return nil, errors.New(k.Unsupported)
			}
			return &gpuKernel{c, k}, nil
		}
	}
	return nil, fmt.Errorf("no kernel %s", name)
}

func (c *gpuCode) Symbol(name string) (addr, size uint64, err error) {
	for _, v := range c.m.Globals() {
		if v.Name == name {
			return c.base + v.Offset, v.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("no variable %s", name)
}

func (c *gpuCode) Close() error { return nil }

type gpuKernel struct {
	c *gpuCode
	k softgpu.KernelInfo
}

func (k *gpuKernel) Name() string { return k.k.Name }

func (k *gpuKernel) Params() (out []engine.Param) {
	for _, p := range k.k.Params {
		out = append(out, engine.Param{Offset: p.Offset, Size: p.Size})
	}
	return out
}

type gpuProgram struct {
	g     *gpu
	words []engine.Word
}

func (g *gpu) Prepare(words []engine.Word) (engine.Program, error) { return &gpuProgram{g, words}, nil }
func (p *gpuProgram) Close() error                                 { return nil }

func (p *gpuProgram) Run(time.Duration) error {
	for i, w := range p.words {
		for k, op := range w.Ops {
			var err error
			switch {
			case op.Launch != nil:
				err = p.g.launch(op.Launch)
			case op.Copy != nil:
				err = p.g.copy(op.Copy)
			default:
				err = p.g.set(op.Set)
			}
			if err != nil {
				p.g.ended = err
				return &engine.Fault{Place: engine.Place{Word: i, Op: k}, Err: err}
			}
		}
	}
	return nil
}

func (g *gpu) launch(l *engine.Launch) error {
	k := l.Kernel.(*gpuKernel)
	ob := &softgpu.Observer{}
	_, err := k.c.in.Launch(k.k.Name, softgpu.LaunchConfig{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster,
		SharedDynamic: l.Shared, Params: l.Params, Deterministic: true, MaxInstructions: maxInstructions, Observer: ob})
	for _, r := range ob.Ranges(0, 0) {
		g.touched(k.k.Name, r)
	}
	for _, r := range ob.Ranges(softgpu.Written, 0) {
		g.written(k.k.Name, r)
	}
	var fault *softgpu.Fault
	switch {
	case !errors.As(err, &fault):
	case fault.Kind == softgpu.FaultUnmapped && ofDevice(fault.Inst):
		g.strays = append(g.strays, fault.Error())
	case fault.Kind == softgpu.FaultLimit:
		return errTooLong
	}
	return err
}

// ofDevice reports whether an instruction may reach device memory. One of another space may miss that space, and then
// ends the launch; here that is a fault at whatever address it had.
func ofDevice(inst string) bool {
	for _, space := range []string{".param", ".shared", ".local", ".const"} {
		if strings.Contains(inst, space) {
			return strings.Contains(inst, ".global")
		}
	}
	return true
}

// touched notes what is not allowed.
func (g *gpu) touched(by string, r softgpu.Range) {
	for _, a := range g.allowed {
		if r.Addr >= a.Addr && r.Addr+r.Len <= a.Addr+a.Len {
			return
		}
	}
	g.strays = append(g.strays, fmt.Sprintf("%s touches %#x to %#x", by, r.Addr, r.Addr+r.Len-1))
}

// written notes what may only be read.
func (g *gpu) written(by string, r softgpu.Range) {
	for _, c := range g.constant {
		if r.Addr < c.Addr+c.Len && c.Addr < r.Addr+r.Len {
			g.strays = append(g.strays, fmt.Sprintf("%s writes %#x to %#x, which is constant", by, r.Addr,
				r.Addr+r.Len-1))
		}
	}
}

func (g *gpu) copy(c *engine.Copy) error {
	for y := range c.Height {
		src, err := g.space.Bytes(c.Src+y*c.SrcPitch, c.Width)
		if err != nil {
			return err
		}
		dst, err := g.space.Bytes(c.Dst+y*c.DstPitch, c.Width)
		if err != nil {
			return err
		}
		g.touched("copy", softgpu.Range{Addr: c.Src + y*c.SrcPitch, Len: c.Width})
		g.touched("copy", softgpu.Range{Addr: c.Dst + y*c.DstPitch, Len: c.Width})
		g.written("copy", softgpu.Range{Addr: c.Dst + y*c.DstPitch, Len: c.Width})
		copy(dst, src)
	}
	return nil
}

func (g *gpu) set(s *engine.Set) error {
	n := s.Width * uint64(s.Size)
	for y := range s.Height {
		at := s.Dst + y*s.Pitch
		dst, err := g.space.Bytes(at, n)
		if err != nil {
			return err
		}
		g.touched("set", softgpu.Range{Addr: at, Len: n})
		g.written("set", softgpu.Range{Addr: at, Len: n})
		for i := range dst {
			dst[i] = byte(s.Value >> (8 * (i % s.Size)))
		}
	}
	return nil
}

// join sorts ranges and joins those that touch.
func join(list []softgpu.Range) []softgpu.Range {
	slices.SortFunc(list, func(a, b softgpu.Range) int {
		switch {
		case a.Addr < b.Addr:
			return -1
		case a.Addr > b.Addr:
			return 1
		}
		return 0
	})
	var out []softgpu.Range
	for _, r := range list {
		if n := len(out) - 1; n >= 0 && out[n].Addr+out[n].Len >= r.Addr {
			out[n].Len = max(out[n].Len, r.Addr+r.Len-out[n].Addr)
		} else if r.Len > 0 {
			out = append(out, r)
		}
	}
	return out
}

// canaries fills all that is mapped and not allowed, and returns what finds out whether it is as it was.
func (g *gpu) canaries(t testing.TB) (check func() error) {
	t.Helper()
	var gaps []softgpu.Range
	for _, m := range join(slices.Clone(g.maps)) { // and a unit on each side, unless something is there
		_ = g.Map(m.Addr-engine.Granularity, engine.Granularity)
		_ = g.Map(m.Addr+m.Len, engine.Granularity)
	}
	for _, m := range join(slices.Clone(g.maps)) {
		at, end := m.Addr, m.Addr+m.Len
		for _, a := range g.allowed {
			if a.Addr >= end || a.Addr+a.Len <= at {
				continue
			}
			if a.Addr > at {
				gaps = append(gaps, softgpu.Range{Addr: at, Len: a.Addr - at})
			}
			at = a.Addr + a.Len
		}
		if at < end {
			gaps = append(gaps, softgpu.Range{Addr: at, Len: end - at})
		}
	}
	each := func(do func(addr uint64, b []byte) error) error {
		for _, r := range gaps {
			b, err := g.space.Bytes(r.Addr, r.Len)
			if err == nil {
				err = do(r.Addr, b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	const canary = 0xc5
	if err := each(func(_ uint64, b []byte) error {
		for i := range b {
			b[i] = canary
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return func() error {
		return each(func(addr uint64, b []byte) error {
			if i := slices.IndexFunc(b, func(x byte) bool { return x != canary }); i >= 0 {
				return fmt.Errorf("the byte at %#x was overwritten", addr+uint64(i))
			}
			return nil
		})
	}
}
