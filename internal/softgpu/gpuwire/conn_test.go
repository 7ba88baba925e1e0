package gpuwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t testing.TB) (*Conn, *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *Conn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return NewConn(c.(*net.UnixConn))
	}
	return conn(fds[0]), conn(fds[1])
}

func TestMessagesArriveAsSent(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	big := bytes.Repeat([]byte{1, 2, 3, 5, 7}, 8<<20)
	sent := []Request{
		{Op: 1},
		{Op: 2, Args: []uint64{1, ^uint64(0)}, Payload: []byte("abc")},
		{Op: 3, Args: make([]uint64, MaxArgs), Payload: big, FDs: []int{int(null.Fd())}},
		{Op: 4, Payload: []byte{}, FDs: []int{int(null.Fd()), int(null.Fd())}},
		{Op: 5, Payload: big[:20<<10]},
	}
	errs := make(chan error, 1)
	go func() { // all at once, so that messages meet in the receiver's buffer
		for i := range sent {
			if err := a.WriteRequest(&sent[i]); err != nil {
				errs <- err
				return
			}
		}
		errs <- a.Close()
	}()
	for i := range sent {
		var got Request
		if err := b.ReadRequest(&got); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if got.Op != sent[i].Op || !slices.Equal(got.Args, sent[i].Args) ||
			!bytes.Equal(got.Payload, sent[i].Payload) || len(got.FDs) != len(sent[i].FDs) {
			t.Errorf("message %d: op %d, %d args, %d bytes, %d descriptors", i, got.Op, len(got.Args),
				len(got.Payload), len(got.FDs))
		}
		for _, fd := range got.FDs {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("message %d: descriptor %d: flags %#x, %v", i, fd, flags, err)
			}
			unix.Close(fd)
		}
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if err := b.ReadRequest(new(Request)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// A process that may have no more descriptors loses those of one message. The next message is whole.
func TestLostDescriptors(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	whole := b.oob
	for i, room := range [][]byte{nil, whole[:unix.CmsgSpace(4)], whole} { // for none, for one (or two), for all
		b.oob = room
		if err := a.WriteRequest(&Request{Op: uint32(i), Payload: []byte("abc"), FDs: []int{fd, fd, fd}}); err != nil {
			t.Fatal(err)
		}
		var got Request
		if err := b.ReadRequest(&got); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		want := 3
		if i < 2 {
			want = 0
		}
		if got.Lost != (want == 0) || len(got.FDs) != want || got.Op != uint32(i) || string(got.Payload) != "abc" {
			t.Errorf("message %d: lost %t, op %d, %d descriptors, %q", i, got.Lost, got.Op, len(got.FDs), got.Payload)
		}
		if len(b.fds) > 0 {
			t.Errorf("message %d: %d descriptors left over", i, len(b.fds))
		}
		for _, f := range got.FDs {
			unix.Close(f)
		}
	}
}

func TestViolationsAreRefused(t *testing.T) {
	header := func(magic, op, nargs, nfds uint32, payload uint64) []byte {
		var b []byte
		for _, v := range []uint32{magic, op, nargs, nfds, uint32(payload), uint32(payload >> 32)} {
			b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		}
		return b
	}
	for name, m := range map[string][]byte{
		"magic":       header(1, 1, 0, 0, 0),
		"args":        header(Magic, 1, MaxArgs+1, 0, 0),
		"payload":     header(Magic, 1, 0, 0, MaxPayload+1),
		"descriptors": header(Magic, 1, 0, 1, 0),
	} {
		a, b := pair(t)
		if _, err := a.Unix().Write(m); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if err := b.ReadRequest(new(Request)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, b := pair(t)
	if _, err := a.Unix().Write(header(Magic, 1, 0, 0, MaxPayload)); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := b.ReadRequest(new(Request)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated payload: %v", err)
	}
	if cap(b.payload) > payloadStep {
		t.Errorf("a header alone allocated %d bytes", cap(b.payload))
	}
}

func FuzzBlobs(f *testing.F) {
	f.Add(AppendWords(AppendBlob(AppendBlob(nil, nil), []byte("x")), []uint64{1}))
	f.Fuzz(func(t *testing.T, p []byte) {
		var back []byte
		rest := p
		for len(rest) > 0 {
			blob, r, err := TakeBlob(rest)
			if err != nil {
				return
			}
			back, rest = AppendBlob(back, blob), r
		}
		if !bytes.Equal(back, p) {
			t.Errorf("%x became %x", p, back)
		}
	})
}

// Whatever a stream brings, it is read as requests and replies or refused, and costs no more than it is long.
func FuzzStream(f *testing.F) {
	head := func(first, op, words, fds uint32, payload uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, first)
		for _, v := range []uint32{op, words, fds} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return binary.LittleEndian.AppendUint64(b, payload)
	}
	f.Add(head(Magic, 1, 0, 0, 0), true)
	f.Add(append(head(Magic, 1, 1, 0, 3), make([]byte, 11)...), true)
	f.Add(head(0, 1, 0, 0, MaxPayload), false)
	f.Fuzz(func(t *testing.T, b []byte, requests bool) {
		if len(b) > 64<<10 {
			return // what a socket takes without a reader
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(pair[1]), "peer")
		u, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		c := NewConn(u.(*net.UnixConn))
		defer c.Close()
		if _, err := unix.Write(pair[0], b); len(b) > 0 && err != nil {
			t.Fatal(err)
		}
		unix.Close(pair[0])
		for {
			if requests {
				err = c.ReadRequest(new(Request))
			} else {
				err = c.ReadReply(new(Reply))
			}
			if err != nil {
				break
			}
		}
		if cap(c.payload) > payloadStep {
			t.Fatalf("%d bytes made it allocate %d", len(b), cap(c.payload))
		}
	})
}
