// Package process is one held program as the daemon sees it: the memory it was
// given, the conversation with its shim, frozen or not.
//
// A [Program] outlives its conversations: over RELEASE the shim closes the socket and comes
// back with a new one, and after a daemon's death with yet another. Everything
// that concerns what is held (allocations, caveats) is kept here; what a
// conversation needs is in its session.
//
// Lock order: Program.op (one operation at a time, held across many calls),
// then Program.mu (fields, never held over a send, a receive or a wait).
//
// It must not import snapshot, image or checkpoint: they use it.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// SignalWake is SIGRTMAX-1, which wakes a released program's control thread, and SignalRun is SIGRTMAX-3, which makes
// it let the other threads of a parked program run.
const (
	SignalWake = unix.Signal(64 - wire.SignalOffset)
	SignalRun  = unix.Signal(64 - wire.RunOffset)
)

// ErrGone is wrapped by every error of a program that has ended or closed its conversation.
var ErrGone = errors.New("the program is gone")

// ErrNotFrozen is wrapped by the error for a program that was to be thawed and runs already.
var ErrNotFrozen = errors.New("the program is not frozen")

// ErrFreed is wrapped by the error for memory that the program has freed meanwhile, or that was taken off the GPU.
var ErrFreed = errors.New("the memory is not held any more")

// An Alloc is physical device memory of a program. File is the descriptor that the
// program exported; it is what keeps the memory alive here. It is closed as soon as the program frees the memory:
// whoever uses it, and does not own the Alloc, takes a copy with [Program.Dup].
type Alloc struct {
	ID     uint64
	VA     uint64
	Size   uint64 // bytes
	Device uint32 // ordinal in Identity.Devices
	Kind   uint32 // wire.KindLinear …
	Used   uint64 // bytes
	File   *os.File
}

// Identity is what does not change while a program lives.
type Identity struct {
	PID        int
	StartTime  uint64 // clock ticks since boot: with PID it names one process
	ControlTID int
	GPU        uint32 // wire.GPUNative or wire.GPUSoft
	Driver     int
	Name       string
	Exe        string
	Command    []string
	Devices    [][16]byte // UUIDs in the program's order
	Token      [16]byte   // the same over all conversations and restores of the program
}

// A Program is one held program.
type Program struct {
	id    Identity // its StartTime changes with a restore: under mu
	log   *slog.Logger
	since time.Time // when it was first held

	op sync.Mutex

	mu      sync.Mutex
	s       *session
	hangsUp bool          // it is released, and from before PARK: it ends its conversation by itself
	arrived chan struct{} // closed when the next session attaches; replaced then
	ended   chan struct{} // closed when the program is known to be gone
	allocs  map[uint64]*Alloc
	caveats map[caveatKey]wire.Caveat
	last    wire.Counters // of the last shared page, once it is unmapped
	base    wire.Counters // launches counted before the page now mapped
	state   string
	image   string // directory of the last image
	whole   string // directory of the last image that holds the process too
	sum     string // of the image that it is suspended to
	missing func() uint64
	bye     bool  // it ends by itself
	shut    bool  // frozen, with memory that is not whole
	peer    *Peer // as of its last HELLO; nil: it has not said any

	leaseTime time.Duration
	renewing  *renewal // of its lease, while it is frozen
	stuck     string   // why it stays shut
	notBack   string   // why it does not come back, and will not
	forgotten bool     // the daemon has cleared up after it

	unfollowed string // why it has no tap any more
}

// Peer is what a program and the kernel said of it when it last connected.
type Peer struct {
	Self int // process ID, as the program sees it
	UID  int // effective, as the kernel tells us
}

type caveatKey struct {
	code    uint32
	subject uint64
}

type session struct {
	conn     *wire.Conn
	page     *wire.Page
	calms    bool            // the program understands CALM
	parks    bool            // and PARK and LEASE
	released bool            // it has let go of its memory: only PARK or the end can follow
	resume   bool            // the program has come back without its memory, and waits for it
	again    map[uint64]bool // of a program that came back shut: which of its allocations it has announced again
	seq      uint64
	replies  map[uint64]chan wire.Message
	adopted  chan struct{} // closed by ADOPTED
	done     chan struct{} // closed when the conversation is over
	isDone   bool
}

// New makes the record of a program that has just said hello, or of one about to be restored.
func New(id Identity, state string, log *slog.Logger) *Program {
	return &Program{
		id: id, log: log.With("pid", id.PID, "name", id.Name), since: time.Now(), state: state,
		arrived: make(chan struct{}), ended: make(chan struct{}),
		allocs: map[uint64]*Alloc{}, caveats: map[caveatKey]wire.Caveat{}, leaseTime: DefaultLease,
	}
}

// Identity returns who the program is.
func (p *Program) Identity() Identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// Restored records that the program lives in a new process with the same PID and another start time.
func (p *Program) Restored() error {
	start, err := StartTime(p.id.PID)
	if err != nil {
		return fmt.Errorf("process %d: %w", p.id.PID, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id.StartTime = start
	return nil
}

// Since returns when the program was first held by this daemon.
func (p *Program) Since() time.Time { return p.since }

// Log returns the program's logger.
func (p *Program) Log() *slog.Logger { return p.log }

// TryLock starts an operation; it reports false while another one is under way.
func (p *Program) TryLock() bool { return p.op.TryLock() }

// Unlock ends the operation.
func (p *Program) Unlock() { p.op.Unlock() }

// State returns what the program is doing, one of the api's state words.
func (p *Program) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// SetState sets what State says.
func (p *Program) SetState(s string) {
	p.mu.Lock()
	p.state = s
	p.mu.Unlock()
}

// Image returns the directory of the last image of the program, or "".
func (p *Program) Image() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.image
}

// SetImage records the directory of the last image.
func (p *Program) SetImage(dir string) {
	p.mu.Lock()
	p.image = dir
	p.mu.Unlock()
}

// Restorable returns the directory of the last image that the program can be restored from, or "". An image of device
// memory alone is of no use once the program is gone.
func (p *Program) Restorable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole
}

// SetRestorable sets it.
func (p *Program) SetRestorable(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = dir
}

// NotBack returns why a program that has let go of its memory will not come back, as far as that is known, or "".
func (p *Program) NotBack() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notBack
}

// SetNotBack sets it.
func (p *Program) SetNotBack(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notBack = why
}

// ImageSum returns the sum of the image that the program is suspended to, or "".
func (p *Program) ImageSum() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum
}

// SetImageSum records it.
func (p *Program) SetImageSum(sum string) {
	p.mu.Lock()
	p.sum = sum
	p.mu.Unlock()
}

// SetMissing records a function that says how many bytes of the running program's memory are still to come; nil:
// none.
func (p *Program) SetMissing(f func() uint64) {
	p.mu.Lock()
	p.missing = f
	p.mu.Unlock()
}

// Missing is how many bytes of its memory are still to come.
func (p *Program) Missing() uint64 {
	p.mu.Lock()
	f := p.missing
	p.mu.Unlock()
	if f == nil {
		return 0
	}
	return f()
}

// Allocs lists the memory held, by ascending ID. The Alloc values are shared: read only.
func (p *Program) Allocs() []*Alloc {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allocsLocked()
}

func (p *Program) allocsLocked() []*Alloc {
	list := make([]*Alloc, 0, len(p.allocs))
	for _, a := range p.allocs {
		list = append(list, a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// Resident returns the bytes of device memory held and the number of allocations.
func (p *Program) Resident() (bytes uint64, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.allocs {
		bytes += a.Size
	}
	return bytes, len(p.allocs)
}

// Caveats lists what of the program cannot be held, in a stable order.
func (p *Program) Caveats() []wire.Caveat {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]wire.Caveat, 0, len(p.caveats))
	for _, c := range p.caveats {
		list = append(list, c)
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Code != list[j].Code {
			return list[i].Code < list[j].Code
		}
		return list[i].Subject < list[j].Subject
	})
	return list
}

// Counters returns what the program has counted since it was first held.
func (p *Program) Counters() wire.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.last
	if p.s != nil && p.s.page != nil {
		c = p.s.page.Read()
		c.Launches += p.base.Launches
		c.Graphs += p.base.Graphs
		c.Copies += p.base.Copies
	}
	return c
}

// Adopt adds memory that the program has not announced itself: at a restore, from an image or from the keeper.
func (p *Program) Adopt(allocs []*Alloc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range allocs {
		p.allocs[a.ID] = a
	}
}

// CloseFiles lets go of the memory but remembers what there was.
func (p *Program) CloseFiles() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.allocs {
		if a.File != nil {
			a.File.Close()
			b := *a
			b.File = nil
			p.allocs[id] = &b
		}
	}
}

// SetFile gives an allocation memory again.
func (p *Program) SetFile(id uint64, f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := *p.allocs[id]
	a.File = f
	p.allocs[id] = &a
}

// Dup returns a descriptor of a's memory, which the caller closes. a is one of Allocs; if it is freed meanwhile, the
// error wraps ErrFreed. The descriptor's number is reused once it is closed, so it is never used without the lock.
func (p *Program) Dup(a *Alloc) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allocs[a.ID] != a {
		return nil, fmt.Errorf("process %d: %d bytes at %#x: %w", p.id.PID, a.Size, a.VA, ErrFreed)
	}
	return p.dupLocked(a)
}

func (p *Program) dupLocked(a *Alloc) (*os.File, error) {
	if a.File == nil {
		return nil, fmt.Errorf("process %d: %d bytes at %#x: %w", p.id.PID, a.Size, a.VA, ErrFreed)
	}
	fd, err := unix.FcntlInt(a.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %d bytes at %#x: %w", p.id.PID, a.Size, a.VA,
			os.NewSyscallError("dup", err))
	}
	return os.NewFile(uintptr(fd), a.File.Name()), nil
}

// Take gives all memory away to the caller.
func (p *Program) Take() []*Alloc {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.allocsLocked()
	clear(p.allocs)
	return list
}

// Drop closes the descriptors of all memory: unless the program still maps it, the memory is free.
func (p *Program) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.allocs {
		if a.File != nil {
			a.File.Close()
		}
		delete(p.allocs, id)
	}
}

// Peer returns who has connected last.
func (p *Program) Peer() (Peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peer == nil {
		return Peer{}, false
	}
	return *p.peer, true
}

// SaidBye reports whether the program has said that it ends by itself.
func (p *Program) SaidBye() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bye
}

// Conversing reports whether the program's shim is connected.
func (p *Program) Conversing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s != nil
}

// Ended is closed when the program has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Forget claims clearing up after the program, which must happen once; it reports false if somebody has claimed it.
func (p *Program) Forget() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.forgotten
	p.forgotten = true
	return first
}

// Forgotten reports whether Forget has been called.
func (p *Program) Forgotten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forgotten
}

// MarkEnded says that the program is known to have ended.
func (p *Program) MarkEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
}

// Attach starts a conversation whose HELLO has been read, and answers it.
// pageFD is closed. The caller then runs Serve.
func (p *Program) Attach(conn *wire.Conn, h *wire.Hello, pageFD int) error {
	page, err := wire.MapPage(pageFD)
	unix.Close(pageFD)
	if err != nil {
		return err
	}
	cred, err := conn.Peer()
	if err != nil {
		page.Close()
		return err
	}
	s := &session{conn: conn, page: page, resume: h.Flags&wire.HelloResume != 0, calms: h.Flags&wire.HelloCalm != 0,
		parks: h.Flags&wire.HelloPark != 0, replies: map[uint64]chan wire.Message{},
		adopted: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	if p.s != nil {
		p.mu.Unlock()
		page.Close()
		return fmt.Errorf("process %d already has a conversation", p.id.PID)
	}
	p.shut = h.Flags&wire.HelloFrozen != 0
	w := &wire.Welcome{Proto: wire.Version, Token: p.id.Token}
	switch {
	case p.shut:
		// What it announces again replaces what we have, and what it cannot export again we keep.
		s.again = map[uint64]bool{}
		if len(p.allocs) == 0 {
			w.Flags = wire.WelcomeMove
		}
	case h.Flags&wire.HelloReadopt != 0:
		p.closeAllocsLocked() // told anew, with fresh descriptors
	}
	p.s = s
	p.peer = &Peer{Self: int(h.PID), UID: int(cred.Uid)}
	p.mu.Unlock()
	if err := conn.Send(0, w); err != nil {
		p.finish(s)
		return err
	}
	p.mu.Lock()
	close(p.arrived)
	p.arrived = make(chan struct{})
	p.mu.Unlock()
	return nil
}

func (p *Program) closeAllocsLocked() {
	for id, a := range p.allocs {
		if a.File != nil {
			a.File.Close()
		}
		delete(p.allocs, id)
	}
}

// Serve reads the current conversation until it ends. It returns nil at its end. room frees
// device memory that is only kept, for a program that has found none, and returns the bytes.
func (p *Program) Serve(room func(*Program, *wire.Room) uint64) error {
	s := p.current()
	if s == nil {
		return nil
	}
	defer p.finish(s)
	for {
		seq, m, fds, err := s.conn.Recv()
		if err != nil {
			if isEOF(err) {
				return nil
			}
			return err
		}
		if m, ok := m.(*wire.Room); ok && len(fds) == 0 {
			if err := s.conn.Send(0, &wire.RoomMade{ID: m.ID, Bytes: room(p, m)}); err != nil && !isEOF(err) {
				return err
			}
			continue
		}
		if m, ok := m.(*wire.Share); ok && len(fds) == 0 {
			if err := p.share(s, m); err != nil && !isEOF(err) {
				return err
			}
			continue
		}
		if err := p.receive(s, seq, m, fds); err != nil {
			wire.CloseAll(fds)
			return err
		}
	}
}

// share gives the program a descriptor of memory of its own, which it wants to export.
func (p *Program) share(s *session, m *wire.Share) error {
	var fds []int
	p.mu.Lock()
	if a := p.allocs[m.Alloc]; a != nil {
		if f, err := p.dupLocked(a); err == nil {
			defer f.Close()
			fds = append(fds, int(f.Fd()))
		}
	}
	p.mu.Unlock()
	return s.conn.Send(0, &wire.Shared{ID: m.ID}, fds...)
}

func (p *Program) finish(s *session) {
	s.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.isDone {
		return
	}
	s.isDone = true
	c := s.page.Read()
	c.Launches += p.base.Launches
	c.Graphs += p.base.Graphs
	c.Copies += p.base.Copies
	c.Bytes, c.Allocations = p.last.Bytes, p.last.Allocations
	p.last, p.base = c, c
	s.page.Close()
	s.page = nil
	if p.s == s {
		p.s = nil
	}
	close(s.done)
}

// receive takes one message. On error the conversation ends and fds are closed by the caller.
func (p *Program) receive(s *session, seq uint64, m wire.Message, fds []int) error {
	want := 0
	switch m := m.(type) {
	case *wire.Alloc:
		want = 1
		if len(fds) != 1 {
			return fmt.Errorf("ALLOC %d: %d descriptors, want 1", m.ID, len(fds))
		}
		return p.alloc(s, m, fds[0])
	case *wire.Module:
		wire.CloseAll(fds) // the image is not needed here
		return nil
	}
	if len(fds) != want {
		return fmt.Errorf("message %v: %d descriptors, want %d", m.Type(), len(fds), want)
	}
	switch m := m.(type) {
	case *wire.Free:
		p.mu.Lock()
		if a := p.allocs[m.ID]; a != nil {
			a.File.Close()
			delete(p.allocs, m.ID)
		}
		p.mu.Unlock()
	case *wire.Caveat:
		p.mu.Lock()
		k := caveatKey{m.Code, m.Subject}
		if m.Count == 0 {
			delete(p.caveats, k)
		} else if len(p.caveats) < maxCaveats {
			p.caveats[k] = *m
		}
		p.mu.Unlock()
	case *wire.Adopted:
		p.mu.Lock()
		select {
		case <-s.adopted:
		default:
			close(s.adopted)
		}
		p.mu.Unlock()
	case *wire.Bye:
		p.mu.Lock()
		p.bye = true
		p.mu.Unlock()
	case *wire.Mapping, *wire.Context:
	case *wire.Frozen, *wire.Thawed, *wire.Released, *wire.Mapped, *wire.Failed, *wire.Done, *wire.Parked:
		p.mu.Lock()
		ch := s.replies[seq]
		delete(s.replies, seq)
		p.mu.Unlock()
		if ch == nil {
			if f, ok := m.(*wire.Failed); ok {
				p.log.Warn("the program reports a failure", "text", f.Text)
				return nil
			}
			return fmt.Errorf("reply %v to no command (seq %d)", m.Type(), seq)
		}
		ch <- m
	default:
		return fmt.Errorf("message %v is not for the daemon", m.Type())
	}
	return nil
}

const (
	maxAllocs  = 1 << 20
	maxCaveats = 4096
)

func (p *Program) alloc(s *session, m *wire.Alloc, fd int) error {
	if m.ID == 0 || m.Size == 0 || m.Size > 1<<46 || int(m.Device) >= len(p.id.Devices) {
		return fmt.Errorf("ALLOC %d: %d bytes on device %d of %d", m.ID, m.Size, m.Device, len(p.id.Devices))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.allocs[m.ID]; old != nil {
		if s.again == nil || s.again[m.ID] {
			return fmt.Errorf("ALLOC %d: announced twice", m.ID)
		}
		if old.File != nil {
			old.File.Close()
		}
		delete(p.allocs, m.ID)
	}
	if s.again != nil {
		s.again[m.ID] = true
	}
	if len(p.allocs) >= maxAllocs {
		return fmt.Errorf("ALLOC %d: more than %d allocations", m.ID, maxAllocs)
	}
	p.allocs[m.ID] = &Alloc{ID: m.ID, VA: m.VA, Size: m.Size, Device: m.Device, Kind: m.Kind, Used: m.Used,
		File: os.NewFile(uintptr(fd), fmt.Sprintf("device memory %d of process %d", m.ID, p.id.PID))}
	return nil
}

// call sends a command, with copies of fds, and waits for its reply.
func (p *Program) call(ctx context.Context, m wire.Message, fds ...int) (wire.Message, error) {
	p.mu.Lock()
	s := p.s
	if s == nil {
		p.mu.Unlock()
		return nil, fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	}
	s.seq++
	seq := s.seq
	ch := make(chan wire.Message, 1)
	s.replies[seq] = ch
	p.mu.Unlock()
	if err := s.conn.Send(seq, m, fds...); err != nil {
		return nil, fmt.Errorf("process %d: %w: %v", p.id.PID, ErrGone, err)
	}
	select {
	case r := <-ch:
		if f, ok := r.(*wire.Failed); ok {
			return nil, &Refusal{PID: p.id.PID, Command: m.Type(), Failed: *f}
		}
		return r, nil
	case <-s.done:
		select {
		case r := <-ch: // the reply came just before the end
			return r, nil
		default:
		}
		return nil, fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	case <-ctx.Done():
		return nil, fmt.Errorf("process %d does not answer: %w", p.id.PID, ctx.Err())
	}
}

// A Refusal is a command that the program could not carry out. It runs on as before.
type Refusal struct {
	PID     int
	Command wire.Type
	Failed  wire.Failed
}

func (r *Refusal) Error() string { return fmt.Sprintf("process %d: %s", r.PID, r.Failed.Text) }

// notFrozen reports whether the program refused because its gate is open, and not because it has no memory yet.
func (r *Refusal) notFrozen() bool {
	f := r.Failed
	return f.Code == wire.FailedOpen || f.Code == wire.FailedState && (f.Text == "THAW: the program is not frozen" ||
		f.Text == "the program is ending") // what shims older than FailedOpen say
}

// Freeze closes the gate, waits for the calls inside and synchronises the program's contexts. A program that cannot be
// frozen within timeout runs on. Before the gate closes, the program may run on for calm until it has just waited for
// the device.
func (p *Program) Freeze(ctx context.Context, timeout, calm time.Duration) (wire.Frozen, error) {
	s := p.current()
	if calm > 0 && s != nil && s.calms {
		s.conn.Send(0, &wire.Calm{Millis: uint32(calm.Milliseconds())}) // FREEZE finds the same error
	}
	p.lease(false)
	r, err := p.call(ctx, &wire.Freeze{TimeoutMillis: uint32(timeout.Milliseconds())})
	if err != nil {
		return wire.Frozen{}, err
	}
	f, ok := r.(*wire.Frozen)
	if !ok {
		return wire.Frozen{}, fmt.Errorf("process %d answered FREEZE with %v", p.id.PID, r.Type())
	}
	p.renew()
	return *f, nil
}

// Thaw opens the gate; flags are wire.Thaw…. If the gate is open the error wraps ErrNotFrozen.
func (p *Program) Thaw(ctx context.Context, flags uint32) error {
	p.letGo()
	_, err := p.call(ctx, &wire.Thaw{Flags: flags})
	var r *Refusal
	open := errors.As(err, &r) && r.notFrozen()
	if open {
		err = fmt.Errorf("%w: %w", ErrNotFrozen, err)
	}
	if err == nil || open {
		p.setShut(false)
	}
	return err
}

// Wake makes a released program come back: it sends the signal that its control
// thread waits for, and waits for the conversation.
func (p *Program) Wake(ctx context.Context) error {
	p.mu.Lock()
	arrived, have := p.arrived, p.s != nil
	p.mu.Unlock()
	if have {
		return nil
	}
	begun, sent := time.Now(), false
	signal := func() (err error) {
		// A control thread that does not wait is stopped, or about to wait, or on its way back.
		if !sent {
			sent, err = wake(p.Identity(), time.Since(begun) > wakeForce)
		}
		if errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
		}
		if err != nil {
			return fmt.Errorf("wake thread %d of process %d: %w", p.id.ControlTID, p.id.PID, err)
		}
		return nil
	}
	if err := signal(); err != nil {
		return err
	}
	// If the program is killed before it says hello, no conversation ends that would tell us.
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-arrived:
			return nil
		case <-p.ended:
			return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
		case <-ctx.Done():
			return fmt.Errorf("process %d does not come back: %w", p.id.PID, ctx.Err())
		case <-look.C:
			if !Alive(p.id.PID, 0) {
				return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
			}
			if err := signal(); err != nil {
				return err
			}
		}
	}
}

// wakeForce is how long Wake looks for a control thread that waits, before it sends the signal regardless.
const wakeForce = 2 * time.Second

// NeedsMemory reports whether the program has come back from a RELEASE and was not given its memory yet.
func (p *Program) NeedsMemory() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s != nil && p.s.resume
}

// Remap gives all memory back to a program that Wake has brought back. The gate stays closed; with filling set it
// stays closed even if we die, because the memory is not filled yet.
func (p *Program) Remap(ctx context.Context, filling bool) (wire.Mapped, error) {
	list := p.Allocs()
	s := p.current()
	if s == nil {
		return wire.Mapped{}, fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	}
	for _, a := range list {
		if err := p.giveBack(s, a); err != nil {
			return wire.Mapped{}, fmt.Errorf("give back %d bytes at %#x: %w", a.Size, a.VA, err)
		}
	}
	p.lease(filling)
	r, err := p.call(ctx, &wire.MapEnd{Count: uint64(len(list))})
	if err != nil {
		return wire.Mapped{}, err
	}
	m, ok := r.(*wire.Mapped)
	if !ok {
		return wire.Mapped{}, fmt.Errorf("process %d answered MAPEND with %v", p.id.PID, r.Type())
	}
	p.mu.Lock()
	s.resume = false
	p.shut = filling
	p.mu.Unlock()
	if !filling {
		p.renew()
	}
	return *m, nil
}

// giveBack sends one allocation with its memory.
func (p *Program) giveBack(s *session, a *Alloc) error {
	f, err := p.Dup(a)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.conn.Send(0, &wire.Map{ID: a.ID, VA: a.VA, Size: a.Size, Device: a.Device, Access: 3}, int(f.Fd()))
}

// Arrived is closed when the program begins its next conversation.
func (p *Program) Arrived() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrived
}

// ToldAll reports whether the program itself has announced all memory that we hold of it. It would not send FREE for
// memory that it could not export again.
func (p *Program) ToldAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.s == nil || p.s.again == nil {
		return true
	}
	for id := range p.allocs {
		if !p.s.again[id] {
			return false
		}
	}
	return true
}

// HoldsUntold reports whether we hold memory, with a subject as in wire.Caveat, that a program which came back shut
// has not announced.
func (p *Program) HoldsUntold(subject uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.s == nil || p.s.again == nil {
		return false
	}
	for id, a := range p.allocs {
		if !p.s.again[id] && a.File != nil && (a.VA == subject || a.VA == 0 && id == subject) {
			return true
		}
	}
	return false
}

// Reconnect ends the conversation with a running program, which then moves what it cannot export and announces its
// memory again.
func (p *Program) Reconnect() {
	if s := p.current(); s != nil {
		s.conn.Close()
	}
}

// Detach ends the conversation for good: the program runs on unheld.
func (p *Program) Detach() {
	s := p.current()
	if s != nil {
		s.conn.Send(0, &wire.Quit{}) // best effort: the program may be gone
		s.conn.Close()
	}
}

// WaitAdopted waits until the program has announced everything it had when the conversation began.
func (p *Program) WaitAdopted(ctx context.Context) error {
	s := p.current()
	if s == nil {
		return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	}
	select {
	case <-s.adopted:
		return nil
	case <-s.done:
		return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	case <-ctx.Done():
		return fmt.Errorf("process %d does not tell its memory: %w", p.id.PID, ctx.Err())
	}
}
