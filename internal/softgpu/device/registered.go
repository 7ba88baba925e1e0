package device

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/softgpu/gpuwire"
)

// A registration is memory of the program's own that it has registered (cuMemHostRegister). Its pages stay the
// program's. Once the program has asked for its device address, the device has a mirror of it there: before each piece
// of submitted work what the program has written is copied into the mirror, and after it what the device has written
// is copied to the program. So what one of them writes while a piece of work runs reaches the other at its end.
type registration struct {
	span
	mem   []byte // the mirror, nil without one
	known []byte // what both sides had when they were last compared
}

// mirroring keeps mirrors of registered memory as the program has it.
type mirroring struct {
	*memory
	mirrorMu sync.Mutex // of what mirrors hold; never taken with mu, nor mu with it
	mirrors  atomic.Pointer[[]*registration]
}

// mirrorPiece is how many bytes travel in one message.
const mirrorPiece = 1 << 20

func hostRegister(c *call) Status {
	lo, size := c.args[0], c.args[1]
	if lo == 0 || size == 0 || lo+size < lo || len(c.p.registered) >= maxObjects {
		return InvalidValue
	}
	for _, r := range c.p.registered {
		if lo < r.Hi && r.Lo < lo+size {
			return HostMemoryAlready
		}
	}
	c.p.registered = append(c.p.registered, &registration{span: span{lo, lo + size}})
	return Success
}

func hostUnregister(c *call) Status {
	i := slices.IndexFunc(c.p.registered, func(r *registration) bool { return r.Lo == c.args[0] })
	if i < 0 {
		if c.p.registration(c.args[0]) != nil {
			return InvalidValue // not its start
		}
		return HostMemoryNotRegistered
	}
	r := c.p.registered[i]
	if r.mem != nil {
		if st := c.wait(c.p.lasts(nil)...); st != Success {
			return st
		}
		if i = slices.Index(c.p.registered, r); i < 0 {
			return HostMemoryNotRegistered // another thread was quicker
		}
	}
	c.p.registered = slices.Delete(c.p.registered, i, i+1)
	if r.mem != nil {
		c.p.quiesce(func() { c.p.hide(r) })
	}
	return Success
}

// registration finds the registered memory that an address lies in.
func (me *memory) registration(va uint64) *registration {
	for _, r := range me.registered {
		if va >= r.Lo && va < r.Hi {
			return r
		}
	}
	return nil
}

// show gives registered memory a mirror. p.mu is held.
func (mi *mirroring) show(r *registration) error {
	n := r.Hi - r.Lo
	list := mi.mirrorList()
	total := n
	for _, o := range list {
		total += o.Hi - o.Lo
	}
	if n > mi.srv.cfg.Memory || total > mi.srv.cfg.Memory {
		return fmt.Errorf("%d bytes of registered memory are more than the device has", total)
	}
	mem := make([]byte, n)
	if err := mi.space.Alias(r.Lo, mem); err != nil {
		return err
	}
	r.mem, r.known = mem, make([]byte, n)
	list = append(list, r)
	mi.mirrors.Store(&list)
	return nil
}

// hide takes the mirror away. Nothing of the process may be running.
func (mi *mirroring) hide(r *registration) {
	if err := mi.space.Unalias(r.Lo); err != nil {
		mi.srv.log.Error("registered memory", "pid", mi.key.pid, "err", err)
	}
	list := slices.DeleteFunc(mi.mirrorList(), func(o *registration) bool { return o == r })
	mi.mirrors.Store(&list)
}

// mirrorList is a copy of the list of mirrors.
func (mi *mirroring) mirrorList() []*registration {
	if list := mi.mirrors.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// mirrored runs work between the copies into the mirrors and out of them. Called without p.mu.
func (mi *mirroring) mirrored(work func() Status) Status {
	mi.compare(false)
	st := work()
	mi.compare(true) // also what a kernel wrote before its fault
	return st
}

// compare takes over what the program has written since it was last called and, with out, gives it what the device
// has written.
func (mi *mirroring) compare(out bool) {
	list := mi.mirrors.Load()
	if list == nil || len(*list) == 0 {
		return
	}
	mi.mirrorMu.Lock()
	defer mi.mirrorMu.Unlock()
	for _, r := range *list {
		for at := uint64(0); at < uint64(len(r.mem)); at += mirrorPiece {
			n := min(mirrorPiece, uint64(len(r.mem))-at)
			if err := mi.comparePiece(r.Lo+at, r.mem[at:at+n], r.known[at:at+n], out); err != nil {
				mi.srv.log.Warn("registered memory", "pid", mi.key.pid, "addr", r.Lo+at, "bytes", n, "err", err)
				break // the program has unmapped it
			}
		}
	}
}

func (mi *mirroring) comparePiece(va uint64, mem, known []byte, out bool) error {
	host, err := mi.askHost(gpuwire.OpHostRead, []uint64{va, uint64(len(mem))}, nil)
	if err == nil && len(host) != len(mem) {
		err = fmt.Errorf("the program answers %d bytes", len(host))
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(host, known) {
		for i, b := range host {
			if b != known[i] {
				mem[i], known[i] = b, b
			}
		}
	}
	if !out || bytes.Equal(mem, known) {
		return nil
	}
	for i := 0; i < len(mem); {
		if mem[i] == known[i] {
			i++
			continue
		}
		end := changedUntil(mem, known, i)
		if _, err := mi.askHost(gpuwire.OpHostWrite, []uint64{va + uint64(i)}, mem[i:end]); err != nil {
			return err
		}
		copy(known[i:end], mem[i:end])
		i = end
	}
	return nil
}

// changedUntil is where a run of changes that begins at i ends. Gaps within it are written as the program had them a
// moment ago: a message for each changed byte of an array of small numbers would take too long.
func changedUntil(mem, known []byte, i int) int {
	const gap = 16
	end := i + 1
	for j := end; j < len(mem) && j-end < gap; j++ {
		if mem[j] != known[j] {
			end = j + 1
		}
	}
	return end
}

func (mi *mirroring) askHost(op uint32, args []uint64, payload []byte) ([]byte, error) {
	rep, err := mi.control.call(op, args, payload)
	if err == nil && rep.Status != 0 {
		err = Status(rep.Status)
	}
	return rep.Payload, err
}

func (m *imager) registered() {
	for _, r := range m.p.registered {
		m.img.Registered = append(m.img.Registered, r.span)
		if r.mem != nil {
			m.img.Mirrors = append(m.img.Mirrors, r.Lo)
		}
	}
}

func (m *restorer) registered() error {
	p := m.p
	for _, s := range m.img.Registered {
		p.registered = append(p.registered, &registration{span: s})
	}
	for _, lo := range m.img.Mirrors {
		r := p.registration(lo)
		if r == nil || r.Lo != lo || r.mem != nil {
			return bad("a mirror of memory at %#x", lo)
		}
		if err := p.show(r); err != nil {
			return fmt.Errorf("registered memory at %#x: %w", lo, err)
		}
	}
	return nil
}
