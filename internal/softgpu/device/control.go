package device

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/gpuwire"
)

// A control is the connection on which the server asks the client process to do
// something: run a callback, read its memory, stop for a checkpoint.
type control struct {
	mu      sync.Mutex    // one request at a time
	conn    *gpuwire.Conn // once ready
	ready   chan struct{}
	replies chan gpuwire.Reply
	read    chan struct{} // the reply's buffer may be used again
	once    sync.Once
	ended   chan struct{}
}

var errControlEnded = errors.New("the client process is gone")

func newControl() *control {
	return &control{ready: make(chan struct{}), replies: make(chan gpuwire.Reply), read: make(chan struct{}),
		ended: make(chan struct{})}
}

func (k *control) end() { k.once.Do(func() { close(k.ended) }) }

// serve lets calls use conn and hands them its replies until it ends.
func (k *control) serve(conn *gpuwire.Conn) error {
	k.conn = conn
	close(k.ready)
	defer k.end()
	for {
		var rep gpuwire.Reply
		if err := conn.ReadReply(&rep); err != nil {
			return err
		}
		closeFDs(rep.FDs)
		select {
		case k.replies <- rep:
			<-k.read
		case <-k.ended:
			return errControlEnded
		}
	}
}

// call sends one request and waits for its reply; the reply is the caller's.
func (k *control) call(op uint32, args []uint64, payload []byte) (gpuwire.Reply, error) {
	select {
	case <-k.ready:
	case <-k.ended:
		return gpuwire.Reply{}, errControlEnded
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.ended:
		return gpuwire.Reply{}, errControlEnded
	default:
	}
	if err := k.conn.WriteRequest(&gpuwire.Request{Op: op, Args: args, Payload: payload}); err != nil {
		return gpuwire.Reply{}, err
	}
	select {
	case rep := <-k.replies:
		rep.Payload, rep.Outs = bytes.Clone(rep.Payload), slices.Clone(rep.Outs)
		k.read <- struct{}{}
		return rep, nil
	case <-k.ended:
		return gpuwire.Reply{}, errControlEnded
	}
}

// serveControl is a control connection after HELLO: the restore exchange if the
// process resumes, then the server's own requests until the connection ends.
func (p *process) serveControl(conn *gpuwire.Conn, resume bool) {
	if resume {
		if err := p.resume(conn); err != nil {
			return
		}
		p.srv.resumed(p.key.pid, Success)
	}
	err := p.control.serve(conn)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
		p.srv.log.Warn("control connection ends", "pid", p.key.pid, "err", err)
	}
}
