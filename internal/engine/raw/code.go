package raw

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast/internal/cubin"
	"holdfast/internal/engine"
)

// A code is a cubin on the device.
type code struct {
	b      *Backend
	image  *cubin.Image
	memory *memory
	data   [][]byte // what its variables held at first
	users  int      // programs that launch it
}

var _ engine.Stateful = (*code)(nil)

// A kernel is one of a code.
type kernel struct {
	c  *code
	fn *cubin.Function
}

// Load places a cubin. What several goroutines that load have to do on the GPU they do one after the other.
func (b *Backend) Load(image []byte) (engine.Code, error) {
	im, err := cubin.Open(image)
	if err != nil {
		return nil, fmt.Errorf("raw: load: %w", err)
	}
	if im.Arch/10 != b.gen.arch/10 || im.Arch > b.gen.arch {
		return nil, fmt.Errorf("raw: load: code for sm_%d does not run on sm_%d", im.Arch, b.gen.arch)
	}
	c := &code{b: b, image: im}
	b.loading.Lock()
	if b.dead != nil {
		defer b.loading.Unlock()
		return nil, b.dead
	}
	c.memory, err = b.newMemory(device, 0, (im.Size+hugePage-1)&^(hugePage-1))
	b.loading.Unlock()
	if err != nil {
		return nil, fmt.Errorf("raw: load: %w", err)
	}
	placed, err := im.Place(c.memory.addr)
	b.loading.Lock()
	defer b.loading.Unlock()
	if err == nil {
		err = b.Write(c.memory.addr, placed)
	}
	if err == nil {
		err = b.newCode()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("raw: load: %w", err), c.Close())
	}
	for _, s := range im.Data {
		c.data = append(c.data, bytes.Clone(placed[s.Offset:][:s.Size]))
	}
	return c, nil
}

// newCode makes the GPU forget instructions and constants that it may hold of what stood there before.
func (b *Backend) newCode() error {
	var p pushbuffer
	p.method(subCompute, invalidateCaches, cacheInstruction|cacheGlobal|cacheConstant)
	p.method(subCompute, invalidateSked, 0)
	t, err := b.submit(&p)
	if err != nil {
		return err
	}
	return b.wait(t)
}

// Close frees the code's memory, which no program may use any more.
func (c *code) Close() error {
	if c.memory == nil {
		return nil
	}
	if c.users > 0 {
		return fmt.Errorf("raw: close code: %d programs still launch its kernels", c.users)
	}
	m := c.memory
	c.memory = nil
	return c.b.freeMemory(m)
}

// Kernel finds a kernel.
func (c *code) Kernel(name string) (engine.Kernel, error) {
	fn, err := c.image.Function(name)
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	return &kernel{c, fn}, nil
}

// Symbol finds a variable.
func (c *code) Symbol(name string) (addr, size uint64, err error) {
	for _, v := range c.image.Variables {
		if v.Name == name {
			return c.memory.addr + v.Offset, v.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("raw: no variable %s in the code", name)
}

// Data is where all variables lie, those without names too.
func (c *code) Data() []engine.Range {
	var out []engine.Range
	for _, s := range c.image.Data {
		out = append(out, engine.Range{Addr: c.memory.addr + s.Offset, Size: uint64(s.Size)})
	}
	return out
}

// Restore writes them anew.
func (c *code) Restore() error {
	for i, r := range c.Data() {
		if err := c.b.Write(r.Addr, c.data[i]); err != nil {
			return fmt.Errorf("raw: variables: %w", err)
		}
	}
	return nil
}

func (k *kernel) Name() string { return k.fn.Name }

func (k *kernel) Params() []engine.Param {
	params := make([]engine.Param, len(k.fn.Params))
	for i, p := range k.fn.Params {
		params[i] = engine.Param{Offset: uint32(p.Offset), Size: uint32(p.Size)}
	}
	return params
}

// localMemory is what stacks of threads live in.
type localMemory struct {
	memory *memory
	thread uint32 // bytes of a thread
}

const (
	stackTop     = 0xfffbb0         // where a stack begins, downwards
	stackReserve = 1<<24 - stackTop // bytes of a thread's local memory above it
	stackDefault = 1024             // of a kernel that recurs: libcuda's limit too
)

// needLocal makes room for stacks of so many bytes a thread. Nothing may be running.
func (b *Backend) needLocal(thread uint32) error {
	if thread <= b.local.thread {
		return nil
	}
	size := (b.localTPC(thread)*uint64(b.tpcs) + hugePage - 1) &^ (hugePage - 1)
	m, err := b.newMemory(device, 0, size)
	if err != nil {
		return fmt.Errorf("local memory of %d bytes a thread: %w", thread, err)
	}
	if err := b.setLocal(m, thread); err != nil {
		return errors.Join(err, b.freeMemory(m))
	}
	old := b.local.memory
	b.local = localMemory{m, thread}
	if old == nil {
		b.later(func() error { return b.freeMemory(b.local.memory) })
		return nil
	}
	return b.freeMemory(old)
}

// localTPC is the bytes of local memory of a multiprocessor pair.
func (b *Backend) localTPC(thread uint32) uint64 {
	warp := (uint64(thread)*32 + 0x1ff) &^ 0x1ff
	return (warp*uint64(b.warps)*uint64(b.perTPC) + 0x7fff) &^ 0x7fff
}

// setLocal tells the channel where local memory is; nil is none.
func (b *Backend) setLocal(m *memory, thread uint32) error {
	if m == nil {
		return nil
	}
	tpc := b.localTPC(thread)
	var p pushbuffer
	p.method(subCompute, waitForIdle, 0)
	p.method(subCompute, setLocalMemory, hi(m.addr), lo(m.addr))
	p.method(subCompute, setLocalNonThrottled, hi(tpc), lo(tpc), b.tpcs)
	t, err := b.submit(&p)
	if err != nil {
		return err
	}
	return b.wait(t)
}
