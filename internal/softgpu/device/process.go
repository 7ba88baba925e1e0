package device

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/softgpu"
	"holdfast/internal/softgpu/gpuwire"
)

// The device address window of every process. It lies above user space (47 bits on x86-64, unless a program asks for
// more): whatever address memory of a program has, it is no device memory. Runtimes place their heaps at random, Go's
// among them.
const (
	windowLo   uint64 = 1 << 47
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

// A process is the state of the driver in one client process. Its parts are types of their own, each with what stands
// before it: owner and handles, vmm, memory, mirroring, work, and what makes work of kernels, modules, textures and
// graphs.
type process struct {
	*owner
	*handles
	*vmm
	*memory
	*mirroring
	*work
	*output
	launches
	modules
	textures
	graphs

	uid      uint32
	born     time.Time
	finished chan struct{} // closed when nothing of the process is left

	parking     bool // a checkpoint is taking the state away: thread state is kept
	initialised bool
	state       int  // of the checkpoint API
	changing    bool // a transition of state is in progress
	conns       map[*gpuwire.Conn]struct{}
	threads     map[int32]*thread
	peers       map[[2]int]bool
}

// An owner is the client process, as what belongs to it knows it.
type owner struct {
	srv     *server
	key     procKey
	control *control
	dead    chan struct{} // closed when the process goes: waits and kernels end
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
		owner:    &owner{srv: s, key: key, control: newControl(), dead: make(chan struct{})},
		handles:  &handles{},
		uid:      uid,
		born:     time.Now(),
		finished: make(chan struct{}),
		conns:    make(map[*gpuwire.Conn]struct{}),
		threads:  make(map[int32]*thread),
	}
	p.vmm = &vmm{owner: p.owner, handles: p.handles, space: space}
	p.memory = &memory{vmm: p.vmm}
	p.mirroring = &mirroring{memory: p.memory}
	p.work = newWork(p.mirroring)
	p.output = &output{owner: p.owner}
	p.launches = launches{p.work, p.output}
	p.modules, p.textures, p.graphs = modules{p.work}, textures{p.memory}, graphs{p.launches}
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
