package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func serve(t *testing.T) (socket string, ended chan error) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	ended = make(chan error, 1)
	go func() { ended <- Serve(l, Options{Path: socket}) }()
	return socket, ended
}

func memfd(t *testing.T, text string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), text)
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDescriptorsOutliveTheirWriter(t *testing.T) {
	socket, ended := serve(t)
	first, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	files := map[uint64]*os.File{}
	for i := range uint64(3*maxFDs + 1) {
		files[i+1] = memfd(t, fmt.Sprintf("memory %d", i+1))
	}
	if err := first.Put("p", map[string]int{"pid": 7}, files); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	// A second client stands by so that the keeper sees no moment without either.
	second, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	// An entry without a commit vanishes with its writer.
	half := memfd(t, "half")
	send(first.c, message{Op: "put", Key: "half"}, nil)
	send(first.c, message{Op: "fds", Key: "half", IDs: []uint64{1}}, []int{int(half.Fd())})
	first.Close()

	keys, err := second.List()
	if err != nil || len(keys) != 1 || keys[0] != "p" {
		t.Fatalf("List = %v, %v; want [p]", keys, err)
	}
	e, err := second.Get("p")
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]int
	if err := json.Unmarshal(e.Record, &rec); err != nil || rec["pid"] != 7 {
		t.Fatalf("record %s: %v", e.Record, err)
	}
	if len(e.Files) != len(files) {
		t.Fatalf("%d descriptors, want %d", len(e.Files), len(files))
	}
	for id, f := range e.Files {
		want := fmt.Sprintf("memory %d", id)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
			t.Fatalf("descriptor %d holds %q (%v), want %q", id, got, err, want)
		}
	}
	e.Close()
	if err := second.Delete("p"); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get("p"); err == nil {
		t.Fatal("Get after Delete succeeds")
	}
	select {
	case err := <-ended:
		t.Fatalf("the keeper ended (%v) with a client connected", err)
	default:
	}
	second.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket is left: %v", err)
	}
}

// poor is a listener whose accept fails in every way that passes before it works.
type poor struct {
	*net.UnixListener
	errs []error
}

func (l *poor) AcceptUnix() (*net.UnixConn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "unixpacket", Err: os.NewSyscallError("accept4", err)}
	}
	return l.UnixListener.AcceptUnix()
}

// A keeper that finds no free descriptor or memory when somebody calls stays, and takes the call when it can.
func TestAcceptIsTriedAgain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	errs := []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED}
	go func() { ended <- Serve(&poor{l, errs}, Options{}) }()
	k, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.List(); err != nil {
		select {
		case end := <-ended:
			t.Fatalf("the keeper ended: %v", end)
		default:
			t.Fatal(err)
		}
	}
	k.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Whatever is wrong with its socket, a keeper that holds something does not end.
func TestHoldingKeeperStays(t *testing.T) {
	s := &server{entries: map[string]*Entry{"p": {}}}
	if !s.stays(unix.EINVAL) {
		t.Error("it ends with an entry")
	}
	delete(s.entries, "p")
	if s.stays(unix.EINVAL) {
		t.Error("it stays with nothing to hold and nobody to hear")
	}
}

// A keeper that ends leaves the socket alone that another one has put in the place of its own.
func TestSuccessorsSocketStays(t *testing.T) {
	socket, ended := serve(t)
	k, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.List(); err != nil { // it serves, so it knows its socket
		t.Fatal(err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	next, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	k.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socket); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
}

// The death of a daemon that has left something urgent brings the next one up, and that of one that has not does not.
func TestNext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	calls, results := make(chan bool), make(chan error)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(l, Options{Pause: time.Millisecond, Next: func() error { calls <- true; return <-results }})
	}()
	first, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Put("calm", 1, nil); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := Dial(socket) // is taken after the first has been missed, or not missed
	if err != nil {
		t.Fatal(err)
	}
	if err := second.PutUrgent("urgent", 1, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-calls:
		t.Fatal("a daemon was started for what is not urgent, or beside one that is connected")
	default:
	}
	second.Close()
	<-calls
	results <- errors.New("it does not start") // and is tried again
	<-calls
	third, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"calm", "urgent"} {
		if err := third.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	results <- nil
	third.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestPutReplaces(t *testing.T) {
	socket, _ := serve(t)
	k, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, text := range []string{"old", "new"} {
		if err := k.Put("p", text, map[uint64]*os.File{1: memfd(t, text)}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := k.Get("p")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if string(e.Record) != `"new"` || len(e.Files) != 1 {
		t.Fatalf("got %s and %d descriptors", e.Record, len(e.Files))
	}
}

// Of a Put that fails in the middle the keeper holds nothing, although the client stays.
func TestPutThatFails(t *testing.T) {
	socket, _ := serve(t)
	k, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	shut := memfd(t, "shut")
	shut.Close()
	files := map[uint64]*os.File{1: shut}
	for i := range uint64(4 * maxFDs) {
		files[i+2] = w
	}
	for range 20 { // the bad one is mostly not among the first, which are on their way before it is noticed
		if err := k.Put("p", 1, files); err == nil {
			t.Fatal("a closed file was put")
		}
	}
	if keys, err := k.List(); err != nil || len(keys) > 0 {
		t.Fatalf("%v, %v", keys, err)
	}
	w.Close()
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
		t.Errorf("%q, %v: a descriptor is left open", b, err)
	}
}

// Whatever a packet is, descriptors that came with it and are not kept are closed.
func TestRefusedDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		packet string
		fds    int
	}{
		"empty":                  {"", 1},
		"empty, many":            {"", maxFDs + 1},
		"garbage":                {"hello", 1},
		"no ids":                 {`{"op":"fds"}`, 1},
		"fds of nothing":         {`{"op":"fds","ids":[7]}`, 1},
		"too many":               {`{"op":"put"}`, maxFDs + 1},
		"with another operation": {`{"op":"list","ids":[7]}`, 1},
		"with a commit":          {`{"op":"commit","ids":[7]}`, 1},
		"with a get":             {`{"op":"get","ids":[7]}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			socket, ended := serve(t)
			k, err := Dial(socket)
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fds := make([]int, c.fds)
			for i := range fds {
				fds[i] = int(w.Fd())
			}
			if _, _, err := k.c.WriteMsgUnix([]byte(c.packet), unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			w.Close()
			k.Close()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			// The conversation is over and nothing is kept: a writer that is left was leaked. The process lives, so
			// nothing else closes it.
			if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
				t.Errorf("%q, %v: a descriptor is left open", b, err)
			}
		})
	}
}

// Whatever a client sends, the keeper goes on, keeps what others gave it, and leaves no descriptor open.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{"", `{"op":"put","key":"k"}`, `{"op":"fds","ids":[0]}`, `{"op":"commit"}`,
		`{"op":"get","key":"kept"}`,
		`{"op":"list"}`, `{"op":"del","key":"k"}`, `{"op":"put","key":"k"}` + "\n" + `{"op":"fds","ids":[0]}` + "\n" +
			`{"op":"commit"}`} {
		f.Add(s, byte(1))
	}
	f.Fuzz(func(t *testing.T, packets string, n byte) {
		s := &server{entries: map[string]*Entry{}, name: -1}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(pair[1]), "peer")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			s.serve(c.(*net.UnixConn))
			c.Close()
			close(done)
		}()
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(p[0])
		for i, packet := range strings.Split(packets, "\n") {
			if i == 8 || len(packet) > maxPacket {
				break
			}
			fds := make([]int, int(n)%(maxFDs+2))
			for i := range fds {
				fds[i] = p[1]
			}
			var oob []byte
			if len(fds) > 0 {
				oob = unix.UnixRights(fds...)
			}
			if unix.Sendmsg(pair[0], []byte(packet), oob, nil, unix.MSG_NOSIGNAL) != nil {
				break // it has hung up
			}
		}
		unix.Close(p[1])
		unix.Close(pair[0])
		<-done
		for _, e := range s.entries {
			e.Close()
		}
		if k, err := unix.Read(p[0], make([]byte, 1)); k != 0 || err != nil {
			t.Fatalf("a descriptor is left: %d, %v", k, err)
		}
	})
}
