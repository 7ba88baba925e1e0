package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every field has an encoding and every string and slice a limit, or the codec would lose it silently.
func TestTags(t *testing.T) {
	seen := map[Type]bool{}
	for _, m := range messages() {
		if seen[m.Type()] {
			t.Errorf("type %d is used twice", m.Type())
		}
		seen[m.Type()] = true
		for f := range fields(reflect.TypeOf(m).Elem()) {
			switch f.Type.Kind() {
			case reflect.Uint32, reflect.Uint64:
			case reflect.Array:
				if f.Type != reflect.TypeFor[[16]byte]() {
					t.Errorf("%v.%s: %v", m.Type(), f.Name, f.Type)
				}
			case reflect.String, reflect.Slice:
				if maxOf(f) == 0 || maxOf(f) > 4096 {
					t.Errorf("%v.%s has no limit", m.Type(), f.Name)
				}
			default:
				t.Errorf("%v.%s: %v has no encoding", m.Type(), f.Name, f.Type)
			}
		}
	}
}

// fill gives every field a value of its own.
func fill(m Message) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Uint32, reflect.Uint64:
			f.SetUint(0xa0b0c0d0 + uint64(i))
		case reflect.Array:
			f.Set(reflect.ValueOf([16]byte{byte(i), 1, 2, 3, 15: 9}))
		case reflect.String:
			f.SetString(strings.Repeat("x", maxOf(v.Type().Field(i))))
		case reflect.Slice:
			f.Set(reflect.ValueOf([][16]byte{{1}, {2, 15: 7}}))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, m := range messages() {
		fill(m)
		b, err := Encode(nil, 7, m)
		if err != nil {
			t.Fatal(err)
		}
		seq, got, err := Decode(b)
		if err != nil || seq != 7 || !reflect.DeepEqual(got, m) {
			t.Fatalf("%v: seq %d, got %+v, err %v", m.Type(), seq, got, err)
		}
		for n := range len(b) {
			if _, _, err := Decode(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v cut to %d bytes: %v", m.Type(), n, err)
			}
			// The same with a header that agrees with the shorter length.
			if n >= HeaderSize {
				c := bytes.Clone(b[:n])
				c[4], c[5], c[6], c[7] = byte(n-HeaderSize), byte((n-HeaderSize)>>8), 0, 0
				if _, _, err := Decode(c); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%v with a body of %d bytes: %v", m.Type(), n-HeaderSize, err)
				}
			}
		}
		if _, _, err := Decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%v with a byte too many: %v", m.Type(), err)
		}
	}
	if _, err := Encode(nil, 0, &Caveat{Text: strings.Repeat("x", 512)}); err == nil {
		t.Error("a text beyond its limit was encoded")
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range messages() {
		fill(m)
		b, err := Encode(nil, 3, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		seq, m, err := Decode(p)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		b, err := Encode(nil, seq, m)
		if err != nil || !bytes.Equal(b, p) {
			t.Fatalf("%v does not encode to the same bytes: %v", m.Type(), err)
		}
	})
}

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	b := NewConn(c)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestConn(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send(9, &Alloc{ID: 4, Size: 2 << 20}, int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	seq, m, fds, err := b.Recv()
	if err != nil || seq != 9 || len(fds) != 1 || *m.(*Alloc) != (Alloc{ID: 4, Size: 2 << 20}) {
		t.Fatal(seq, m, fds, err)
	}
	if fl, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
		t.Fatalf("descriptor flags %#x, %v", fl, err)
	}
	if _, err := unix.Write(fds[0], []byte("hi")); err != nil {
		t.Fatal(err)
	}
	CloseAll(fds)
	if got, err := io.ReadAll(r); err != nil || string(got) != "hi" {
		t.Fatalf("%q, %v", got, err)
	}
	if cred, err := b.Peer(); err != nil || int(cred.Pid) != os.Getpid() {
		t.Fatal(cred, err)
	}
	a.Close()
	if _, _, _, err := b.Recv(); err != io.EOF {
		t.Fatalf("after close: %v", err)
	}
}

// Packets that break the rules leave no descriptor behind.
func TestConnHostile(t *testing.T) {
	good, err := Encode(nil, 0, &Thaw{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		packet []byte
		fds    int
	}{
		"empty":                {nil, 1},
		"empty, many":          {nil, MaxFDs + 1},
		"garbage":              {[]byte("hello, is this a web server?"), 1},
		"too long":             {make([]byte, MaxPacket+1), 1},
		"too many descriptors": {good, MaxFDs + 1},
		"many descriptors":     {good, 200},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fds := make([]int, tt.fds)
			for i := range fds {
				fds[i] = int(w.Fd())
			}
			if _, _, err := a.c.WriteMsgUnix(tt.packet, unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, _, _, err := b.Recv(); !errors.Is(err, ErrMalformed) {
				t.Fatalf("accepted: %v", err)
			}
			// All writers are closed, so this ends.
			if _, err := io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPageRefuses(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(PageSize); err != nil {
		t.Fatal(err)
	}
	if _, err := MapPage(int(f.Fd())); !errors.Is(err, ErrMalformed) {
		t.Errorf("a plain file was mapped: %v", err)
	}
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, PageSize); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	if _, err := MapPage(fd); !errors.Is(err, ErrMalformed) {
		t.Errorf("a page without magic was mapped: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte{0x48, 0x46, 0x50, 0x31}, offMagic); err != nil {
		t.Fatal(err)
	}
	// 2 launches of slot 1, which is one more than the header says; and a slot count beyond the page.
	if _, err := unix.Pwrite(fd, []byte{2}, PageSlots+SlotSize+slotLaunches); err != nil {
		t.Fatal(err)
	}
	p, err := MapPage(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.Read().Launches; got != 0 {
		t.Errorf("launches %d", got)
	}
	if _, err := unix.Pwrite(fd, []byte{0xff, 0xff, 0xff, 0xff}, offSlots); err != nil {
		t.Fatal(err)
	}
	if got := p.Read().Launches; got != 2 {
		t.Errorf("launches %d", got)
	}
}

// Whatever packets come, with or without descriptors, they are messages or errors, and no descriptor is left behind.
func FuzzRecv(f *testing.F) {
	for _, m := range []Message{&Thaw{}, &Alloc{ID: 1, Size: 2 << 20}, &Hello{Proto: Version, Name: "n"}} {
		b, err := Encode(nil, 1, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, byte(1))
	}
	f.Add([]byte{}, byte(1))
	f.Add([]byte("x"), byte(MaxFDs+1))
	f.Fuzz(func(t *testing.T, b []byte, n byte) {
		if len(b) > MaxPacket+1 {
			return
		}
		s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(s[0])
		file := os.NewFile(uintptr(s[1]), "peer")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		conn := NewConn(c.(*net.UnixConn))
		defer conn.Close()
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(p[0])
		fds := make([]int, min(int(n), 32))
		for i := range fds {
			fds[i] = p[1]
		}
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		err = unix.Sendmsg(s[0], b, oob, nil, 0)
		unix.Close(p[1])
		if err != nil {
			t.Fatal(err)
		}
		_, _, got, err := conn.Recv()
		if err != nil && len(got) > 0 {
			t.Fatalf("%d descriptors with %v", len(got), err)
		}
		CloseAll(got)
		// The end of the pipe shows that nobody has its other end any more.
		if k, err := unix.Read(p[0], make([]byte, 1)); k != 0 || err != nil {
			t.Fatalf("a descriptor is left (%d, %v) after %v", k, err, got)
		}
	})
}
