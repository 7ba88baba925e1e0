package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one end of a conversation. Send may be called from several goroutines, Recv from one at a time.
type Conn struct {
	c  *net.UnixConn
	mu sync.Mutex // one packet at a time: guards out
	in []byte
	// oob holds the control messages of one packet; one more descriptor than allowed, so that too many are noticed.
	oob []byte
	out []byte
}

// NewConn takes over a connected SOCK_SEQPACKET ("unixpacket") socket.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, in: make([]byte, MaxPacket+1), oob: make([]byte, unix.CmsgSpace(4*(MaxFDs+1)))}
}

// Listen makes the socket at path (which must not exist), for the same user only. Accept with AcceptUnix and NewConn.
func Listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	if err := unix.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Dial connects to the socket at path; the shim does the same in C.
func Dial(path string) (*Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// Send writes one packet with copies of the descriptors fds; the caller keeps its own.
func (c *Conn) Send(seq uint64, m Message, fds ...int) error {
	if len(fds) > MaxFDs {
		return fmt.Errorf("%v: %d descriptors, limit %d", m.Type(), len(fds), MaxFDs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := Encode(c.out[:0], seq, m)
	if err != nil {
		return err
	}
	c.out = b
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("send %v: %w", m.Type(), err)
	}
	return nil
}

// Recv reads one packet. The descriptors are close-on-exec and belong to the caller; on error there are none.
// A peer that has gone is io.EOF.
func (c *Conn) Recv() (seq uint64, m Message, fds []int, err error) {
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.in, c.oob)
	if err != nil {
		// An empty packet looks like the end of the conversation, and may have brought descriptors all the same.
		if fds, _ := descriptors(c.oob[:oobn]); len(fds) > 0 {
			CloseAll(fds)
			return 0, nil, nil, fmt.Errorf("%w: descriptors in an empty packet", ErrMalformed)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return 0, nil, nil, io.EOF
		}
		return 0, nil, nil, err
	}
	fds, err = descriptors(c.oob[:oobn])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) > MaxFDs:
		err = fmt.Errorf("%w: packet or descriptors cut off", ErrMalformed)
	default:
		seq, m, err = Decode(c.in[:n])
	}
	if err != nil {
		CloseAll(fds)
		return 0, nil, nil, err
	}
	return seq, m, fds, nil
}

func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrMalformed, err)
	}
	var fds []int
	for _, cm := range msgs {
		if cm.Header.Level != unix.SOL_SOCKET || cm.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, err := unix.ParseUnixRights(&cm)
		if err != nil {
			return fds, fmt.Errorf("%w: descriptors: %w", ErrMalformed, err)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// CloseAll closes received descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Peer returns the credentials of the process at the other end, from the kernel.
func (c *Conn) Peer() (*unix.Ucred, error) {
	rc, err := c.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := rc.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, cerr
}

// SetDeadline bounds pending and future Send and Recv.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// CloseWrite says that nothing more will be sent: the peer reads the end.
func (c *Conn) CloseWrite() error { return c.c.CloseWrite() }

// CloseRead has the other side say no more: Recv returns what it has said before, and then io.EOF.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }

// Close ends the conversation; a pending Recv returns.
func (c *Conn) Close() error { return c.c.Close() }
