package device

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/gpuwire"
)

// States of a process (CUprocessState).
const (
	stateRunning      = 0
	stateLocked       = 1
	stateCheckpointed = 2
)

const (
	// lockSlice is how long the client's control thread waits for its call lock at a time: a
	// call that is inside may need that very thread, for a callback.
	lockSlice = 20 * time.Millisecond
	// restoreTimeout bounds how long a client that was woken may take.
	restoreTimeout = 60 * time.Second
	// wakeSignal is SIGRTMAX-2 as glibc counts.
	wakeSignal = unix.Signal(62)
)

// target finds the process a checkpoint call is about. parked is true if that process has been
// checkpointed and waits.
func (c *call) target() (p *process, tid int, parked bool) {
	pid := int32(c.args[0])
	if pid <= 0 || pid == c.p.key.pid {
		panic(InvalidValue)
	}
	if p := c.p.srv.byPID(pid); p != nil {
		return p, 0, false
	}
	if tid := threadNamed(pid, gpuwire.ParkedThreadName); tid != 0 {
		return nil, tid, true
	}
	panic(InvalidValue)
}

// threadNamed finds a thread of a process by its name; 0 if there is none.
func threadNamed(pid int32, name string) int {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return 0
	}
	for _, path := range paths {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		if tid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			return tid
		}
	}
	return 0
}

// transition moves a process from one state to the next while f, which does it, runs without
// any lock. Only one transition is in progress at a time.
func (p *process) transition(from, to int, f func() Status) Status {
	p.mu.Lock()
	if p.gone || p.changing || p.state != from {
		p.mu.Unlock()
		return IllegalState
	}
	p.changing = true
	p.mu.Unlock()
	st := f()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changing = false
	if st == Success {
		p.state = to
	}
	return st
}

func checkpointLock(c *call) Status {
	p, _, parked := c.target()
	if parked {
		return IllegalState
	}
	timeout := time.Duration(min(c.args[1], 1<<31)) * time.Millisecond
	c.unlock()
	defer c.lock()
	return p.transition(stateRunning, stateLocked, func() Status {
		start := time.Now()
		for {
			slice := lockSlice
			if timeout > 0 {
				slice = min(slice, max(timeout-time.Since(start), time.Millisecond))
			}
			rep, err := p.control.call(gpuwire.OpLock, []uint64{uint64(max(slice.Milliseconds(), 1))}, nil)
			if err != nil {
				return InvalidValue
			}
			if st := Status(rep.Status); st != NotReady || timeout > 0 && time.Since(start) >= timeout {
				return st
			}
			select {
			case <-c.p.dead: // the caller is gone
				return NotReady
			default:
			}
		}
	})
}

func checkpointUnlock(c *call) Status {
	p, _, parked := c.target()
	if parked {
		return IllegalState
	}
	c.unlock()
	defer c.lock()
	return p.transition(stateLocked, stateRunning, func() Status {
		rep, err := p.control.call(gpuwire.OpUnlock, nil, nil)
		if err != nil {
			return InvalidValue
		}
		return Status(rep.Status)
	})
}

func checkpointTake(c *call) Status {
	p, _, parked := c.target()
	if parked {
		return IllegalState
	}
	c.unlock()
	defer c.lock()
	st := p.transition(stateLocked, stateCheckpointed, p.park)
	if st == Success {
		<-p.finished
	}
	return st
}

// park hands the state to the client and lets it go.
func (p *process) park() Status {
	p.mu.Lock()
	for p.pending > 0 && !p.gone {
		p.cond.Wait()
	}
	if p.gone {
		p.mu.Unlock()
		return InvalidValue
	}
	if len(p.captures) > 0 {
		p.mu.Unlock()
		p.srv.log.Warn("no checkpoint while a stream is being captured", "pid", p.key.pid)
		return CaptureUnsupported
	}
	if p.sharesMemory() {
		p.mu.Unlock()
		p.srv.log.Warn("no checkpoint of a process that shares memory with others", "pid", p.key.pid)
		return NotSupported
	}
	img, phys := p.image()
	for _, ph := range phys {
		p.srv.hold(ph)
	}
	p.parking = true
	p.mu.Unlock()
	p.flush()

	w := bufio.NewWriterSize(partWriter{p}, 16<<20)
	err := img.write(w, phys)
	for _, ph := range phys {
		p.srv.release(ph)
	}
	if err == nil {
		err = w.Flush()
	}
	st := OperatingSystem
	if err == nil {
		var rep gpuwire.Reply
		if rep, err = p.control.call(gpuwire.OpCheckpointCommit, nil, nil); err == nil {
			st = Status(rep.Status)
		}
	}
	if err != nil {
		p.srv.log.Error("checkpoint failed", "pid", p.key.pid, "err", err)
	}
	if st != Success {
		p.mu.Lock()
		p.parking = false
		p.mu.Unlock()
	}
	return st
}

// A partWriter sends what is written to the client.
type partWriter struct{ p *process }

func (w partWriter) Write(b []byte) (int, error) {
	rep, err := w.p.control.call(gpuwire.OpCheckpointPart, nil, b)
	if err == nil && rep.Status != 0 {
		err = fmt.Errorf("the client keeps no more of its state: %v", Status(rep.Status))
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func checkpointRestore(c *call) Status {
	p, tid, parked := c.target()
	if p != nil || !parked {
		return IllegalState
	}
	s, pid := c.p.srv, int32(c.args[0])
	done := make(chan Status, 1)
	s.mu.Lock()
	busy := s.resuming[pid] != nil
	if !busy {
		s.resuming[pid] = done
	}
	s.mu.Unlock()
	if busy {
		return IllegalState
	}
	defer func() {
		s.mu.Lock()
		delete(s.resuming, pid)
		s.mu.Unlock()
	}()
	c.unlock()
	defer c.lock()
	process, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		s.log.Error("watching a checkpointed process", "pid", pid, "err", err)
		return OperatingSystem
	}
	defer unix.Close(process)
	if err := unix.Tgkill(int(pid), tid, wakeSignal); err != nil {
		s.log.Error("waking a checkpointed process", "pid", pid, "tid", tid, "err", err)
		return OperatingSystem
	}
	timer := time.NewTimer(restoreTimeout)
	defer timer.Stop()
	look := time.NewTicker(100 * time.Millisecond) // nothing here tells of the end of a process without connections
	defer look.Stop()
	for {
		select {
		case st := <-done:
			return st
		case <-look.C:
			ended := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
			if n, err := unix.Poll(ended, 0); err == nil && n > 0 {
				return InvalidValue
			}
		case <-timer.C:
			s.log.Error("a checkpointed process does not come back", "pid", pid, "tid", tid)
			return NotReady
		case <-c.p.dead:
			return NotInitialized
		}
	}
}

// resumed tells whoever asked for the restore of a process how it went.
func (s *server) resumed(pid int32, st Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done := s.resuming[pid]; done != nil {
		select {
		case done <- st:
		default:
		}
	}
}

func checkpointState(c *call) Status {
	p, _, parked := c.target()
	if parked {
		return c.ret(stateCheckpointed)
	}
	c.unlock() // one process's lock is never taken inside another's
	p.mu.Lock()
	state := p.state
	p.mu.Unlock()
	c.lock()
	return c.ret(uint64(state))
}

func checkpointThread(c *call) Status {
	_, tid, _ := c.target()
	if tid == 0 {
		tid = threadNamed(int32(c.args[0]), gpuwire.ControlThreadName)
	}
	if tid == 0 {
		return InvalidValue
	}
	return c.ret(uint64(tid))
}

// A resumption is the restore exchange on a new control connection: the saved state arrives in
// parts and is decoded as it comes.
type resumption struct {
	p         *process
	in        *io.PipeWriter
	decoded   chan error
	committed bool
}

var errRestoreEnded = errors.New("no more of the state is wanted")

// resume serves the exchange. When it returns nil the process is as it was, and locked.
func (p *process) resume(conn *gpuwire.Conn) (err error) {
	r, w := io.Pipe()
	m := &resumption{p: p, in: w, decoded: make(chan error, 1)}
	go func() {
		err := p.readImage(r)
		r.CloseWithError(errRestoreEnded) // a client that sends on gets an answer
		m.decoded <- err
	}()
	defer func() {
		if !m.committed {
			w.CloseWithError(io.ErrUnexpectedEOF)
			<-m.decoded
		}
		if err != nil {
			p.srv.log.Error("restore failed", "pid", p.key.pid, "err", err)
			p.srv.resumed(p.key.pid, restoreStatus(err))
		}
	}()
	var req gpuwire.Request
	for {
		if err := conn.ReadRequest(&req); err != nil {
			return err
		}
		closeFDs(req.FDs)
		var rep gpuwire.Reply
		done, err := m.serve(&req, &rep)
		if err != nil {
			rep.Status = int32(restoreStatus(err))
		}
		if werr := conn.WriteReply(&rep); err == nil {
			err = werr
		}
		if done || err != nil {
			return err
		}
	}
}

// serve does one operation of the exchange; done is true after the last one.
func (m *resumption) serve(req *gpuwire.Request, rep *gpuwire.Reply) (done bool, err error) {
	p := m.p
	switch {
	case req.Op == gpuwire.OpRestorePart && !m.committed:
		if _, err := m.in.Write(req.Payload); err != nil {
			m.committed = true // in vain: the reason is the decoder's
			return false, cmp.Or(<-m.decoded, err)
		}
		return false, nil
	case req.Op == gpuwire.OpRestoreCommit && !m.committed:
		m.committed = true
		m.in.Close()
		return false, <-m.decoded
	case req.Op == gpuwire.OpHostRefetch && m.committed && len(req.Args) > 0:
		p.mu.Lock()
		defer p.mu.Unlock()
		h := p.hosts[req.Args[0]]
		if h == nil || h.fd < 0 {
			rep.Status = int32(NotFound)
			return false, nil
		}
		rep.Outs, rep.FDs = []uint64{uint64(len(h.mem))}, []int{h.fd}
		return false, nil
	case req.Op == gpuwire.OpRestoreDone && m.committed:
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, h := range p.hosts {
			if st := p.place(h, h.at); st != Success {
				return false, fmt.Errorf("pinned memory at %#x: %v", h.at, st)
			}
		}
		p.state = stateLocked
		return true, nil
	}
	return false, fmt.Errorf("operation %#x during a restore: %w", req.Op, gpuwire.ErrProtocol)
}

func restoreStatus(err error) Status {
	switch {
	case errors.Is(err, errNoMemory):
		return OutOfMemory
	case errors.Is(err, errBadImage), errors.Is(err, gpuwire.ErrProtocol), errors.Is(err, errRestoreEnded):
		return InvalidValue
	}
	return OperatingSystem
}
