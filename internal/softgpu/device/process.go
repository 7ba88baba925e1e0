package device

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu"
	"holdfast/internal/softgpu/gpuwire"
)

// The device address window of every process.
const (
	windowLo   uint64 = 0x10_0000_0000
	windowSize uint64 = 256 << 30
)

const granularity uint64 = softgpu.PageSize

// firstHandle keeps handles apart from small integers such as stream 0, 1, 2 and
// device ordinals.
const (
	firstHandle uint64 = 0x5000_0000
	handleStep  uint64 = 16
	maxObjects         = 1 << 20
)

// A process is the state of the driver in one client process.
type process struct {
	srv  *server
	key  procKey
	uid  uint32
	born time.Time
	dead chan struct{} // closed when the process goes: waits and kernels end

	control  *control
	finished chan struct{} // closed when nothing of the process is left

	mu          sync.Mutex
	cond        *sync.Cond // signalled when running or conns shrink, or quiescing ends
	gone        bool
	parking     bool // a checkpoint is taking the state away: thread state is kept
	initialised bool
	state       int  // of the checkpoint API
	changing    bool // a transition of state is in progress
	conns       map[*gpuwire.Conn]struct{}
	threads     map[int32]*thread

	space       *softgpu.Space
	objects     map[uint64]any // everything that has a handle
	next        uint64
	serial      uint64 // buffer and capture ids
	contexts    []*deviceContext
	primaries   []*deviceContext
	free        spans // of the window
	allocs      allocTable
	slabs       [][]*slab   // by device
	heap        *allocation // of device code; nil until a kernel may need it
	reserved    []*reservation
	mappings    []*mapping
	hosts       map[uint64]*hostMemory // by id
	registered  []*registration
	defaultPool []*pool // by device
	currentPool []*pool
	peers       map[[2]int]bool
	captures    map[uint64]*capture

	pending   int // tasks submitted and not finished
	running   int // tasks that run at this moment
	quiescing int // while positive, no task starts
	zombies   []*allocation

	mirrorMu sync.Mutex // of what mirrors hold; never taken with mu, nor mu with it
	mirrors  atomic.Pointer[[]*registration]

	printMu sync.Mutex
	printed bytes.Buffer
}

// A thread is the driver's state of one client thread.
type thread struct {
	tid         int32
	p           *process
	stack       []*deviceContext
	captureMode int
	perThread   map[*deviceContext]*stream
	refs        int
}

func (t *thread) current() *deviceContext {
	if len(t.stack) == 0 {
		return nil
	}
	return t.stack[len(t.stack)-1]
}

func (s *server) newProcess(key procKey, uid uint32) (*process, error) {
	space, err := softgpu.NewSpace(windowLo, windowSize)
	if err != nil {
		return nil, fmt.Errorf("address space of process %d: %w", key.pid, err)
	}
	p := &process{
		srv: s, key: key, uid: uid, born: time.Now(), dead: make(chan struct{}),
		conns: make(map[*gpuwire.Conn]struct{}), threads: make(map[int32]*thread),
		space: space, control: newControl(), finished: make(chan struct{}),
	}
	p.cond = sync.NewCond(&p.mu)
	p.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.procs[key] != nil || len(s.procs) >= maxProcesses || s.closed {
		_ = space.Close()
		return nil, errors.New("it is connected already, or there are too many processes")
	}
	s.procs[key] = p
	s.counts.processes++
	s.collect() // memory of those that have ended is not to outlast whoever kept it for long
	return p, nil
}

// clear sets the state of a process that has just started.
func (p *process) clear() {
	n := p.srv.cfg.Devices
	p.objects = make(map[uint64]any)
	p.next = firstHandle
	p.contexts = nil
	p.primaries = make([]*deviceContext, n)
	p.free = spans{{windowLo, windowLo + windowSize}}
	p.slabs = make([][]*slab, n)
	p.hosts = make(map[uint64]*hostMemory)
	p.heap = nil
	p.peers = make(map[[2]int]bool)
	p.captures = make(map[uint64]*capture)
	p.defaultPool = make([]*pool, n)
	p.currentPool = make([]*pool, n)
}

// end takes the process away: its client is gone, or parked.
func (p *process) end() {
	close(p.dead)
	p.control.end()
	p.mu.Lock()
	p.gone = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.cond.Broadcast()
	for len(p.conns) > 0 || p.pending > 0 {
		p.cond.Wait()
	}
	p.releaseMemory()
	p.mu.Unlock()
	if err := p.space.Close(); err != nil {
		p.srv.log.Error("closing an address space", "pid", p.key.pid, "err", err)
	}
	p.srv.mu.Lock()
	delete(p.srv.procs, p.key)
	p.srv.mu.Unlock()
	close(p.finished)
}

func (p *process) enter(conn *gpuwire.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *process) exit(conn *gpuwire.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	p.cond.Broadcast()
}

func (p *process) thread(tid int32) *thread {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.threads[tid]
	if t == nil {
		t = &thread{tid: tid, p: p, perThread: make(map[*deviceContext]*stream)}
		p.threads[tid] = t
	}
	t.refs++
	return t
}

func (p *process) threadGone(t *thread) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.refs--
	if t.refs == 0 && !p.parking && !p.gone {
		delete(p.threads, t.tid)
		for _, s := range t.perThread {
			p.retire(s)
		}
	}
}

// add gives v a handle.
func (p *process) add(v any) uint64 {
	if len(p.objects) >= maxObjects {
		panic(OutOfMemory)
	}
	h := p.next
	p.next += handleStep
	p.objects[h] = v
	return h
}

// get finds the object with handle h; one of another kind is not found.
func get[T any](p *process, h uint64) (T, bool) {
	v, ok := p.objects[h].(T)
	return v, ok
}

// must is get for handles whose absence ends the operation with InvalidHandle.
func must[T any](c *call, h uint64) T {
	v, ok := c.p.objects[h].(T)
	if !ok {
		panic(InvalidHandle)
	}
	return v
}

// all lists the objects of one kind by handle.
func all[T any](p *process) []handled[T] {
	var out []handled[T]
	for h, v := range p.objects {
		if t, ok := v.(T); ok {
			out = append(out, handled[T]{h, t})
		}
	}
	slices.SortFunc(out, func(a, b handled[T]) int {
		if a.handle < b.handle {
			return -1
		}
		return 1
	})
	return out
}

type handled[T any] struct {
	handle uint64
	v      T
}

// quiesce runs f while no task of the process runs. p.mu is held before, during f,
// and after, but not while it waits.
func (p *process) quiesce(f func()) {
	p.quiescing++
	for p.running > 0 {
		p.cond.Wait()
	}
	f()
	p.quiescing--
	p.cond.Broadcast()
}

// Write takes kernel printf output; beyond a limit it is dropped, as the
// device's buffer would overflow.
func (p *process) Write(b []byte) (int, error) {
	const printLimit = 1 << 20
	p.printMu.Lock()
	defer p.printMu.Unlock()
	if room := printLimit - p.printed.Len(); room < len(b) {
		p.printed.Write(b[:max(room, 0)])
	} else {
		p.printed.Write(b)
	}
	return len(b), nil
}

// flush hands printf output to the program. Called without p.mu.
func (p *process) flush() {
	p.printMu.Lock()
	text := bytes.Clone(p.printed.Bytes())
	p.printed.Reset()
	p.printMu.Unlock()
	if len(text) > 0 {
		_, _ = p.control.call(gpuwire.OpPrint, nil, text)
	}
}

func memfd(name string, size uint64) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("sealing memfd %s: %w", name, err)
	}
	return fd, nil
}

const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
