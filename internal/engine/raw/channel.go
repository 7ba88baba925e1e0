package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/rm"
)

// Inside the host memory, which the GPU reads and writes as this process does.
const (
	ticketAt   = 0x00 // the last small submission that is complete
	movesAt    = 0x10 // written by the copy engine
	beginAt    = 0x40 // of a program: when it began,
	endAt      = 0x50 // when it ended,
	progressAt = 0x60 // which word was last begun,
	runAt      = 0x70 // that launches that end a run are complete
	pushAt     = 0x1000
	pushSize   = 0x7f000 // small pushbuffers, one after the other, round and round
	stageAt    = 0x80000
	stageHalf  = 0xc0000 // two of them: for Write and Read
	hostSize   = hugePage
)

// lastAt is where the i-th launch of a run's last word says that it is complete.
func lastAt(i int) uint64 { return runAt + 16*uint64(i) }

// Inside a channel's control memory.
const (
	ringEntries = 1024
	ringAt      = 0
	userdAt     = 0x4000
	controlSize = hugePage
)

// A channel is a channel of the GPU, with a compute and a copy object.
type channel struct {
	group, handle, share rm.Handle
	compute, debugger    rm.Handle
	control              *memory // ring and USERD
	host                 *memory // semaphores, small pushbuffers, staging
	notifier             *memory // where the driver reports an error
	base                 uint64  // addresses of the engine's own buffers
	token                uint32
	put, rang            uint32 // entries written, and those that the GPU was told of
	push                 uint32 // offset of the next small pushbuffer
	ticket               uint64 // last one given out
	rung                 uint64 // last one in the ring
}

// openChannel brings up the channel and its objects.
func (b *Backend) openChannel(Options) error {
	if err := b.doorbell(); err != nil {
		return err
	}
	c := &channel{}
	b.ch = c
	if err := b.channelMemory(c); err != nil {
		return err
	}
	b.later(func() error { return b.closeChannel(c) })
	if err := b.newChannel(c); err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	return b.startChannel()
}

// doorbell maps the registers by which the GPU is told of work.
func (b *Backend) doorbell() error {
	if b.user != nil {
		return nil
	}
	user, err := b.rm.Alloc(b.sub, b.usermode(), nil)
	if err != nil {
		return fmt.Errorf("doorbell: %w", err)
	}
	via, err := b.rm.OpenDevice(b.minor)
	if err != nil {
		return err
	}
	if b.user, err = b.rm.Map(b.device, user, via, rm.UsermodeSize, 0); err != nil {
		return fmt.Errorf("doorbell: %w", err)
	}
	b.later(b.user.Close)
	return nil
}

// channelMemory makes what a channel has before there is one.
func (b *Backend) channelMemory(c *channel) (err error) {
	for _, m := range []struct {
		to   **memory
		kind kind
		size uint64
		what string
	}{{&c.control, visible, controlSize, "ring"}, {&c.host, pinned, hostSize, "host memory"},
		{&c.notifier, system, smallPage, "error notifier"}} {
		if *m.to, err = b.newMemory(m.kind, 0, m.size); err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		b.later(func() error { return b.freeMemory(*m.to) })
	}
	return nil
}

func (b *Backend) usermode() uint32 { return b.gen.usermode() }

func (g *generation) usermode() uint32 {
	if g.fifo == rm.HOPPER_CHANNEL_GPFIFO_A {
		return rm.HOPPER_USERMODE_A
	}
	return rm.AMPERE_USERMODE_A
}

// newChannel makes channel group, channel and objects.
func (b *Backend) newChannel(c *channel) (err error) {
	if b.beside != nil {
		c.group = b.beside.ch.group
	} else if c.group, err = b.newGroup(); err != nil {
		return err
	}
	c.share, err = b.rm.Alloc(c.group, rm.FERMI_CONTEXT_SHARE_A,
		&rm.NV_CTXSHARE_ALLOCATION_PARAMETERS{HVASpace: uint32(b.space.Handle()),
			Flags: rm.NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC})
	if err != nil {
		return err
	}
	p := rm.NV_CHANNEL_ALLOC_PARAMS{HObjectError: uint32(c.notifier.handle), GpFifoOffset: c.control.addr + ringAt,
		GpFifoEntries: ringEntries, HContextShare: uint32(c.share)}
	p.HUserdMemory[0], p.UserdOffset[0] = uint32(c.control.handle), userdAt
	if c.handle, err = b.rm.Alloc(c.group, b.gen.fifo, &p); err != nil {
		return err
	}
	if c.compute, err = b.rm.Alloc(c.handle, b.gen.compute, nil); err != nil {
		return err
	}
	if _, err = b.rm.Alloc(c.handle, b.gen.copying, nil); err != nil {
		return err
	}
	if b.beside != nil {
		return b.scheduleChannel(c) // the rest is the group's
	}
	// Without a debugger a fault is not explained; nothing else needs it.
	c.debugger, _ = b.rm.Alloc(b.device, rm.GT200_DEBUGGER,
		&rm.NV83DE_ALLOC_PARAMETERS{HAppClient: uint32(b.rm.Root), HClass3dObject: uint32(c.compute)})
	// Other channels get the GPU between the blocks of a grid. At any instruction, as with libcuda, would take a trap
	// handler: the mode alone changes nothing (tried: the driver waits for a running grid to end before it frees the
	// channel).
	err = b.rm.Control(b.sub, rm.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE,
		&rm.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS{
			Flags: rm.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET, HChannel: uint32(c.handle),
			CilpPreemptMode: rm.NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA})
	if err != nil {
		return err
	}
	return b.scheduleChannel(c)
}

// newGroup makes a channel group: its channels run at the same time, each in its context share's address space.
func (b *Backend) newGroup() (rm.Handle, error) {
	return b.rm.Alloc(b.device, rm.KEPLER_CHANNEL_GROUP_A,
		&rm.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{EngineType: rm.NV2080_ENGINE_TYPE_GRAPHICS})
}

// scheduleChannel lets a channel run. Its own buffers must have addresses before that.
func (b *Backend) scheduleChannel(c *channel) (err error) {
	if err := b.channelAddresses(c); err != nil {
		return err
	}
	if err := b.space.Bind(c.handle, c.base); err != nil {
		return err
	}
	err = b.rm.Control(c.group, rm.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &rm.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS{BEnable: 1})
	if err != nil {
		return err
	}
	var token rm.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS
	if err := b.rm.Control(c.handle, rm.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, &token); err != nil {
		return err
	}
	c.token = token.WorkSubmitToken
	return nil
}

// channelAddresses sets addresses aside for the engine's own buffers.
func (b *Backend) channelAddresses(c *channel) (err error) {
	c.base, err = b.own.take(rm.BuffersSize)
	return err
}

// closeChannel ends a channel, whatever it is doing.
func (b *Backend) closeChannel(c *channel) error {
	var errs []error
	if c.base != 0 {
		errs = append(errs, b.space.Unbind(c.handle))
		b.own.give(c.base, rm.BuffersSize)
		c.base = 0
	}
	switch {
	case b.beside == nil && c.group != 0:
		errs = append(errs, b.rm.Free(b.device, c.group))
	case b.beside != nil:
		for _, h := range []rm.Handle{c.handle, c.share} {
			if h != 0 {
				errs = append(errs, b.rm.Free(c.group, h))
			}
		}
	}
	c.group, c.handle, c.share = 0, 0, 0
	return errors.Join(errs...)
}

// startChannel gives the objects what holds for all work.
func (b *Backend) startChannel() error {
	var p pushbuffer
	p.method(subCompute, setObject, b.gen.compute)
	p.method(subCopy, setObject, b.gen.copying)
	p.method(subCompute, setSharedWindow, hi(sharedWindow), lo(sharedWindow))
	p.method(subCompute, setLocalWindow, hi(localWindow), lo(localWindow))
	if b.gen.arch == 90 { // as libcuda does
		p.method(subCompute, setSPAVersion, 0x900)
		p.method(subCompute, setQMDVersion, 0x10040)
	}
	t, err := b.submit(&p)
	if err != nil {
		return err
	}
	if err := b.wait(t); err != nil {
		return fmt.Errorf("channel does not start: %w", err)
	}
	return nil
}

func hi(a uint64) uint32 { return uint32(a >> 32) }
func lo(a uint64) uint32 { return uint32(a) }

// submit runs a pushbuffer and then writes the ticket that it returns.
func (b *Backend) submit(p *pushbuffer) (uint64, error) {
	if b.dead != nil {
		return 0, b.dead
	}
	c := b.ch
	c.ticket++
	p.release(c.host.addr+ticketAt, c.ticket)
	return c.ticket, b.ring(p)
}

// submitCopies runs a pushbuffer of copies; the copy engine says itself when it is done.
func (b *Backend) submitCopies(p *pushbuffer) (uint64, error) {
	if b.dead != nil {
		return 0, b.dead
	}
	b.joinMoves(p)
	return b.submit(p)
}

// ring puts a small pushbuffer into the ring of those, and rings the doorbell.
func (b *Backend) ring(p *pushbuffer) error {
	c := b.ch
	n := uint32(4 * len(p.w))
	if n > pushSize/4 {
		return fmt.Errorf("pushbuffer of %d bytes", n)
	}
	if c.push+n > pushSize { // what stands at the start must have been read
		if err := b.wait(c.rung); err != nil {
			return err
		}
		c.push = 0
	}
	c.rung = c.ticket
	if b.sheet != nil {
		b.sheet.Submit(p.w, pushAt+c.push, c.ticket)
	} else {
		copy(c.host.host[pushAt+c.push:], p.bytes())
		b.kick(c.host.addr+pushAt+uint64(c.push), uint32(len(p.w)))
	}
	c.push += (n + 63) &^ 63
	return nil
}

// kick hands words at a device address to the channel.
func (b *Backend) kick(addr uint64, words uint32) {
	b.enter(addr, words)
	b.settle()
	b.knock()
}

// enter puts words into the ring.
func (b *Backend) enter(addr uint64, words uint32) {
	c := b.ch
	entry := addr&^3 | uint64(words)<<42
	rm.Store64(c.control.host[ringAt+8*(c.put%ringEntries):], entry)
	c.put++
	rm.Fence()
	rm.Store32(c.control.host[userdAt+rm.UserdGPPut:], c.put%ringEntries)
}

// settle waits until what was entered has reached the GPU's memory, where the ring lies. A write there can be overtaken
// by the doorbell's, which finds nothing new then and is lost: beside nine other processes in one run of 25. A read
// waits for the writes before it, those of all channels.
func (b *Backend) settle() {
	rm.Fence()
	rm.Load32(b.ch.control.host[userdAt+rm.UserdGPPut:])
}

// knock tells the GPU that there is something in the ring.
func (b *Backend) knock() {
	b.ch.rang = b.ch.put
	b.files.Ring(b.user.Bytes[rm.UsermodeDoorbell:], b.ch.token)
}

// patience is how long a copy or the like may take.
const patience = 30 * time.Second

// wait waits for a ticket; 0 is none.
func (b *Backend) wait(ticket uint64) error {
	if b.sheet != nil {
		b.sheet.Wait(ticket)
		return nil
	}
	err := b.waitUntil(ticket, time.Now().Add(patience))
	if err != nil && b.dead == nil {
		b.dead = fmt.Errorf("raw: the channel is gone: %w", err)
	}
	return err
}

// errTimeout is a wait that took too long.
var errTimeout = errors.New("not complete in time")

func (b *Backend) waitUntil(ticket uint64, deadline time.Time) error {
	return b.waitFor(b.ch.host.host[ticketAt:], ticket, deadline)
}

// waitFor polls until a word has reached a value: at first without a pause, since most work is short, then sleeping.
func (b *Backend) waitFor(word []byte, value uint64, deadline time.Time) error {
	begin := time.Now()
	for n := 1; ; n++ {
		if rm.Load64(word) >= value {
			return nil
		}
		if n%256 != 0 {
			continue
		}
		if err := b.notified(); err != nil {
			return err
		}
		now := time.Now()
		if now.After(deadline) {
			return errTimeout
		}
		if now.Sub(begin) > 5*time.Millisecond {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// notified is the error that the driver has reported for the channel, if any. It is the first entry of the notifier
// (NV_CHANNELGPFIFO_NOTIFICATION_TYPE_ERROR); the second is the channel's token.
func (b *Backend) notified() error {
	n := b.ch.notifier.host
	if status := binary.LittleEndian.Uint16(n[14:]); status != 0 {
		return &channelError{code: binary.LittleEndian.Uint32(n[8:])}
	}
	return nil
}

// Errors of a channel that are a kernel's.
const (
	channelKernel = 13 // ROBUST_CHANNEL_GR_EXCEPTION
	channelMMU    = 31 // ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
)

// A channelError is an error of the channel (nverror.h, ROBUST_CHANNEL_*): what the kernel's log calls Xid.
type channelError struct{ code uint32 }

var channelErrors = map[uint32]string{8: "time slice ran out", 13: "the kernel failed",
	31: "access to an address that is not mapped",
	32: "bad pushbuffer", 43: "reset", 45: "removed", 48: "memory error", 69: "bad method",
	94:  "contained memory error",
	109: "context switch timed out"}

func (e *channelError) Error() string {
	if s, ok := channelErrors[e.code]; ok {
		return fmt.Sprintf("channel error %d: %s", e.code, s)
	}
	return fmt.Sprintf("channel error %d", e.code)
}
