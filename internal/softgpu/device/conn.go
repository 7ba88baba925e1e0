package device

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/gpuwire"
)

// A call is one operation in progress. Handlers run with process.mu held; unlock and
// lock give it up around waits.
type call struct {
	p      *process
	th     *thread
	args   []uint64
	in     []byte
	fds    []int // received; a handler that keeps one sets it to -1
	outs   []uint64
	out    []byte
	outFDs []int  // not owned
	after  func() // runs once the reply has been sent
	locked bool
}

func (c *call) unlock() { c.locked = false; c.p.mu.Unlock() }
func (c *call) lock()   { c.p.mu.Lock(); c.locked = true }

// ret appends output values.
func (c *call) ret(v ...uint64) Status {
	c.outs = append(c.outs, v...)
	return Success
}

func (c *call) retBlob(b []byte) { c.out = gpuwire.AppendBlob(c.out, b) }

func (c *call) ret32(v int32) Status { return c.ret(uint64(int64(v))) }

// blob cuts the next blob off the payload. A malformed payload ends the
// operation with InvalidValue.
func (c *call) blob() []byte {
	b, rest, err := gpuwire.TakeBlob(c.in)
	if err != nil {
		panic(InvalidValue)
	}
	c.in = rest
	return b
}

func (c *call) words() []uint64 {
	w, err := gpuwire.Words(c.blob())
	if err != nil {
		panic(InvalidValue)
	}
	return w
}

func (c *call) words32() []uint32 {
	b := c.blob()
	if len(b)%4 != 0 {
		panic(InvalidValue)
	}
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// record is a blob that holds a C struct of at least n bytes.
func (c *call) record(n int) []byte {
	b := c.blob()
	if len(b) < n {
		panic(InvalidValue)
	}
	return b
}

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
func le32(v uint32) []byte        { return binary.LittleEndian.AppendUint32(nil, v) }
func le64(v uint64) []byte        { return binary.LittleEndian.AppendUint64(nil, v) }

// helloTimeout bounds how long a connection may stay without saying who it is.
const helloTimeout = 10 * time.Second

func (s *server) serveConn(conn *gpuwire.Conn) {
	cred, err := peer(conn.Unix())
	if err != nil {
		s.log.Warn("connection refused", "err", err)
		return
	}
	_ = conn.Unix().SetReadDeadline(time.Now().Add(helloTimeout))
	var req gpuwire.Request
	if err := conn.ReadRequest(&req); err != nil {
		return
	}
	closeFDs(req.FDs)
	_ = conn.Unix().SetReadDeadline(time.Time{})
	refuse := func(st Status) { _ = conn.WriteReply(&gpuwire.Reply{Status: int32(st)}) }
	if req.Op != gpuwire.OpHello || len(req.Args) < 5 || req.Args[0] != gpuwire.ProtocolVersion {
		refuse(InvalidValue)
		return
	}
	pid, tid, nonce, flags := int32(req.Args[1]), int32(req.Args[2]), req.Args[3], req.Args[4]
	if pid != cred.Pid {
		// A pid namespace between us, or a lie: either way signals could not reach it.
		s.log.Warn("process claims another pid", "pid", cred.Pid, "claimed", pid)
		refuse(NotPermitted)
		return
	}
	hello := gpuwire.Reply{Outs: []uint64{gpuwire.ProtocolVersion, uint64(s.cfg.Devices), windowLo, windowSize,
		s.cfg.Memory}}
	if flags&gpuwire.HelloControl != 0 {
		p, err := s.newProcess(procKey{pid, nonce}, cred.Uid)
		if err != nil {
			s.log.Warn("process refused", "pid", pid, "err", err)
			refuse(OutOfMemory)
			if flags&gpuwire.HelloResume != 0 {
				s.resumed(pid, OutOfMemory) // it parks again
			}
			return
		}
		defer p.end()
		resume := flags&gpuwire.HelloResume != 0
		if resume {
			p.mu.Lock()
			p.state = stateCheckpointed
			p.mu.Unlock()
		}
		if conn.WriteReply(&hello) == nil {
			p.serveControl(conn, resume)
		}
		return
	}
	s.mu.Lock()
	p := s.procs[procKey{pid, nonce}]
	s.mu.Unlock()
	if p == nil || !p.enter(conn) {
		refuse(NotInitialized)
		return
	}
	defer p.exit(conn)
	th := p.thread(tid)
	defer p.threadGone(th)
	if conn.WriteReply(&hello) == nil {
		s.serveThread(conn, p, th)
	}
}

func (s *server) serveThread(conn *gpuwire.Conn, p *process, th *thread) {
	// Device and pinned memory are shared mappings: a fault there is the client's.
	debug.SetPanicOnFault(true)
	var req gpuwire.Request
	var rep gpuwire.Reply
	for {
		if err := conn.ReadRequest(&req); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
				s.log.Warn("connection ends", "pid", p.key.pid, "tid", th.tid, "err", err)
			}
			return
		}
		c := call{p: p, th: th, args: req.Args, in: req.Payload, fds: req.FDs, outs: rep.Outs[:0], out: rep.Payload[:0]}
		status := OperatingSystem
		if req.Lost {
			s.log.Warn("no descriptors left for a call", "pid", p.key.pid, "op", req.Op)
		} else {
			status = s.dispatch(req.Op, &c)
		}
		closeFDs(c.fds)
		rep = gpuwire.Reply{Status: int32(status), Outs: c.outs, Payload: c.out, FDs: c.outFDs}
		err := conn.WriteReply(&rep)
		if c.after != nil {
			c.after()
		}
		if err != nil {
			return
		}
		if cap(rep.Payload) > 1<<20 {
			rep.Payload = nil
		}
	}
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (s *server) dispatch(number uint32, c *call) (status Status) {
	op := s.ops[number]
	if op == nil || op.run == nil {
		s.counts.unserved(number, op)
		return NotSupported
	}
	s.counts.call(op)
	c.lock()
	defer func() {
		if r := recover(); r != nil {
			st, refused := r.(Status)
			if !refused {
				s.log.Error("operation failed", "op", op.name, "pid", c.p.key.pid, "panic", r,
					"stack", string(debug.Stack()))
				st = Unknown
			}
			status = st
		}
		if c.locked {
			c.unlock()
		}
		if status != Success && !op.outsOnError {
			c.outs, c.out, c.outFDs = nil, nil, nil
		}
	}()
	if len(c.args) < op.args {
		return InvalidValue
	}
	if c.p.gone {
		return NotInitialized
	}
	if op.need >= needInit && !c.p.initialised {
		return NotInitialized
	}
	if cx := c.th.current(); cx != nil && op.need >= needOwner {
		if !cx.active {
			return ContextIsDestroyed
		}
		if cx.sticky != Success {
			return cx.sticky
		}
	} else if op.need >= needContext {
		return InvalidContext
	}
	return op.run(c)
}
