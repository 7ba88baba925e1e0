package gpuwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Limits of one message.
const (
	MaxArgs    = 64
	MaxFDs     = 8
	MaxPayload = 1 << 30
)

// Magic begins every request: "HFG1".
const Magic uint32 = 0x31474648

const headerSize = 24 // of requests and of replies

// A payload is read in steps of this size at most, so that a header alone cannot
// make the receiver allocate what it announces. Buffers up to this size are kept.
const payloadStep = 16 << 20

// ErrProtocol is wrapped by every error that means that the peer does not
// follow the protocol.
var ErrProtocol = errors.New("protocol violation")

// A Request is one request message. The receiver owns FDs.
type Request struct {
	Op      uint32
	Args    []uint64
	Payload []byte
	FDs     []int
	Lost    bool // descriptors were sent, and the receiver may have no more: there are none in FDs
}

// A Reply is one reply message. The receiver owns FDs.
type Reply struct {
	Status  int32
	Outs    []uint64
	Payload []byte
	FDs     []int
}

// A Conn frames messages on a unix stream socket. One goroutine may read and
// another write at the same time. Args, Outs and Payload of a message that was read are
// valid until the next read.
type Conn struct {
	c   *net.UnixConn
	in  []byte // read and not consumed: buf[r:w]
	r   int
	w   int
	fds []int // received and not yet claimed by a message
	// The process had no room for all the descriptors that came. The bytes are whole, so what it costs is one message.
	lost bool
	oob  []byte

	words   []uint64
	payload []byte
	out     []byte
}

// NewConn returns a Conn on c, which it owns.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, in: make([]byte, 8<<10), oob: make([]byte, unix.CmsgSpace(4*MaxFDs))}
}

// Close closes the connection; a blocked read returns. Descriptors that no message
// claimed are closed by the reader's next failing read.
func (c *Conn) Close() error { return c.c.Close() }

// Unix returns the socket, for peer credentials and deadlines.
func (c *Conn) Unix() *net.UnixConn { return c.c }

func (c *Conn) drop() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
}

// fill reads more bytes into the buffer.
func (c *Conn) fill() error {
	if c.r > 0 {
		copy(c.in, c.in[c.r:c.w])
		c.w -= c.r
		c.r = 0
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.in[c.w:], c.oob)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	if oobn > 0 {
		if err := c.claim(c.oob[:oobn]); err != nil {
			return err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		c.lost = true
	}
	if len(c.fds) > 2*MaxFDs {
		return fmt.Errorf("too many descriptors: %w", ErrProtocol)
	}
	if n == 0 {
		return io.EOF
	}
	c.w += n
	return nil
}

func (c *Conn) claim(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("control message: %w", ErrProtocol)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // other control messages carry nothing we own
		}
		c.fds = append(c.fds, fds...) // Go's ReadMsgUnix sets MSG_CMSG_CLOEXEC
	}
	return nil
}

func (c *Conn) need(n int) error {
	for c.w-c.r < n {
		if err := c.fill(); err != nil {
			if err == io.EOF && c.w > c.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// take fills p from the buffer, then from the socket.
func (c *Conn) take(p []byte) error {
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	p = p[n:]
	// Only once the buffer is empty may bytes be read past it; a message's descriptors
	// came with its first byte, which is consumed by now.
	if len(p) > 0 {
		if _, err := io.ReadFull(c.c, p); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// body reads nwords words, the payload, and claims nfds descriptors.
func (c *Conn) body(nwords, nfds uint32, payload uint64) ([]uint64, []byte, []int, error) {
	if nwords > MaxArgs || nfds > MaxFDs || payload > MaxPayload {
		return nil, nil, nil,
			fmt.Errorf("%d words, %d descriptors, %d bytes of payload: %w", nwords, nfds, payload, ErrProtocol)
	}
	if err := c.need(int(nwords) * 8); err != nil {
		return nil, nil, nil, unexpected(err)
	}
	c.words = c.words[:0]
	for range nwords {
		c.words = append(c.words, binary.LittleEndian.Uint64(c.in[c.r:]))
		c.r += 8
	}
	if cap(c.payload) > payloadStep {
		c.payload = nil
	}
	buf := c.payload[:0]
	for left := payload; left > 0; {
		step := int(min(left, payloadStep))
		have := len(buf)
		if cap(buf)-have < step {
			// Doubling keeps a large message's copies linear in its size.
			grown := make([]byte, have, min(int(payload), max(have+step, 2*cap(buf))))
			copy(grown, buf)
			buf = grown
		}
		buf = buf[:have+step]
		if err := c.take(buf[have:]); err != nil {
			return nil, nil, nil, err
		}
		left -= uint64(step)
	}
	c.payload = buf
	if c.lost {
		c.drop()
		return c.words, buf, nil, nil
	}
	if len(c.fds) < int(nfds) {
		return nil, nil, nil, fmt.Errorf("%d of %d descriptors: %w", len(c.fds), nfds, ErrProtocol)
	}
	var fds []int
	if nfds > 0 {
		fds = append(fds, c.fds[:nfds]...)
		c.fds = append(c.fds[:0], c.fds[nfds:]...)
	}
	return c.words, buf, fds, nil
}

// ReadRequest reads the next request. At the connection's end it returns io.EOF.
func (c *Conn) ReadRequest(req *Request) (err error) {
	defer func() {
		if err != nil {
			c.drop()
		}
	}()
	if err := c.need(headerSize); err != nil {
		return err
	}
	h := c.in[c.r : c.r+headerSize]
	if m := binary.LittleEndian.Uint32(h); m != Magic {
		return fmt.Errorf("magic %#x: %w", m, ErrProtocol)
	}
	req.Op = binary.LittleEndian.Uint32(h[4:])
	nargs, nfds, payload := binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:]),
		binary.LittleEndian.Uint64(h[16:])
	c.r += headerSize
	req.Args, req.Payload, req.FDs, err = c.body(nargs, nfds, payload)
	req.Lost, c.lost = c.lost, false
	if err != nil {
		return fmt.Errorf("request %#x: %w", req.Op, err)
	}
	return nil
}

// ReadReply reads the next reply.
func (c *Conn) ReadReply(rep *Reply) (err error) {
	defer func() {
		if err != nil {
			c.drop()
		}
	}()
	if err := c.need(headerSize); err != nil {
		return err
	}
	h := c.in[c.r : c.r+headerSize]
	rep.Status = int32(binary.LittleEndian.Uint32(h))
	nouts, nfds, payload := binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint32(h[8:]),
		binary.LittleEndian.Uint64(h[16:])
	c.r += headerSize
	rep.Outs, rep.Payload, rep.FDs, err = c.body(nouts, nfds, payload)
	c.lost = false // clients send none
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return nil
}

// WriteRequest sends a request. The caller keeps the descriptors.
func (c *Conn) WriteRequest(req *Request) error {
	b := binary.LittleEndian.AppendUint32(c.out[:0], Magic)
	b = binary.LittleEndian.AppendUint32(b, req.Op)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(req.Args)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(req.FDs)))
	return c.send(b, req.Args, req.Payload, req.FDs)
}

// WriteReply sends a reply. The caller keeps the descriptors.
func (c *Conn) WriteReply(rep *Reply) error {
	b := binary.LittleEndian.AppendUint32(c.out[:0], uint32(rep.Status))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(rep.Outs)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(rep.FDs)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return c.send(b, rep.Outs, rep.Payload, rep.FDs)
}

func (c *Conn) send(b []byte, words []uint64, payload []byte, fds []int) error {
	if len(words) > MaxArgs || len(fds) > MaxFDs || len(payload) > MaxPayload {
		return fmt.Errorf("%d words, %d descriptors, %d bytes of payload: %w", len(words), len(fds),
			len(payload), ErrProtocol)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(payload)))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	const inline = 16 << 10 // one system call for small messages
	rest := payload
	if len(payload) <= inline {
		b, rest = append(b, payload...), nil
	}
	c.out = b
	sent := 0
	if len(fds) > 0 {
		n, _, err := c.c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		sent = n
	}
	if sent < len(b) {
		if _, err := c.c.Write(b[sent:]); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		if _, err := c.c.Write(rest); err != nil {
			return err
		}
	}
	return nil
}
