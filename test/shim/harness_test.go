package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
	"holdfast/test/rig"
)

// patience bounds every wait of a test: it is reached only when something is broken.
const patience = time.Minute

// inTime is how long a freeze may take that must succeed, in milliseconds.
const inTime = uint32(patience / time.Millisecond)

// builtEnv names a directory with everything that built makes, for machines without a compiler.
const builtEnv = "HOLDFAST_TEST_BUILT"

// build is a directory with the shim, the fake driver and the test programs.
func build(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(builtEnv); dir != "" {
		return dir
	}
	sources := []string{"shim/*.[ch]", "shim/build.sh"}
	for _, c := range []string{"fakecuda", "prog", "ckpt", "nocuda"} {
		sources = append(sources, "test/programs/helpers/"+c+".c")
	}
	return rig.Build(t, "shimtest", sources, func(dir string) error {
		lib, shim := filepath.Join(dir, "libcuda.so.1"), rig.Shim(t)
		for _, args := range [][]string{
			{"cp", "-r", filepath.Join(shim, "libholdfast.so"), filepath.Join(shim, "device"), dir},
			{"gcc", "-Wall", "-Wextra", "-O2", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
				"../programs/helpers/fakecuda.c", "-o", lib},
			{"ln", "-s", "libcuda.so.1", filepath.Join(dir, "libcuda.so")},
			{"gcc", "-Wall", "-Wextra", "-O2", "../programs/helpers/prog.c", "-o", filepath.Join(dir, "prog"),
				"-L" + dir, "-lcuda", "-lpthread"},
			{"gcc", "-Wall", "-Wextra", "-O2", "../programs/helpers/ckpt.c", "-o", filepath.Join(dir, "ckpt"),
				"-L" + dir, "-lcuda"},
			{"gcc", "-Wall", "-O2", "../programs/helpers/nocuda.c", "-o", filepath.Join(dir, "nocuda"), "-ldl"},
		} {
			if err := rig.Run(args[0], args[1:]...); err != nil {
				return err
			}
		}
		return nil
	})
}

// program is one prog under the shim, driven by lines.
type program struct {
	*rig.Driven
	t testing.TB
}

func start(t testing.TB, holdfastDir string, env ...string) *program {
	t.Helper()
	dir := build(t)
	env = append([]string{"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + filepath.Join(dir, "libholdfast.so"),
		"HOLDFAST_DIR=" + holdfastDir}, env...)
	return run(t, exec.Command(filepath.Join(dir, "prog")), env)
}

// run starts a program that is driven by lines.
func run(t testing.TB, cmd *exec.Cmd, env []string) *program {
	t.Helper()
	return &program{rig.Drive(t, cmd, 6*patience, env...), t}
}

// waits returns when the main thread waits in a futex.
func (p *program) waits() {
	p.t.Helper()
	pid := strconv.Itoa(p.Cmd.Process.Pid)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		call, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "syscall"))
		if err != nil {
			p.t.Skipf("what the program does cannot be seen: %v", err)
		}
		if strings.HasPrefix(string(call), "202 ") {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the program does not wait: %s", call)
		}
	}
}

// daemon is the other end of the socket: it keeps what it is told.
type daemon struct {
	t   testing.TB
	dir string
	l   interface {
		Close() error
	}
	accept  func() (*wire.Conn, error)
	welcome uint32 // flags of WELCOME
}

func listen(t testing.TB, dir string) *daemon {
	t.Helper()
	l, err := wire.Listen(filepath.Join(dir, "shim.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, l: l}
	d.accept = func() (*wire.Conn, error) {
		l.SetDeadline(time.Now().Add(patience))
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		return wire.NewConn(c), nil
	}
	t.Cleanup(func() { l.Close() })
	return d
}

// held is one conversation and what it taught.
type held struct {
	t        testing.TB
	c        *wire.Conn
	hello    *wire.Hello
	page     *wire.Page
	allocs   map[uint64]*wire.Alloc
	fds      map[uint64]int
	mappings []wire.Mapping
	caveats  []*wire.Caveat
	modules  []*wire.Module
	contexts []*wire.Context
	adopted  *wire.Adopted
	bye      bool
	rooms    []*wire.Room
	shares   []*wire.Share
	seq      uint64
}

// can is what every program of this shim understands.
const can = wire.HelloCalm | wire.HelloPark

var token = [16]byte{'t', 'o', 'k', 'e', 'n'}

// take accepts the next program and welcomes it.
func (d *daemon) take() *held {
	d.t.Helper()
	c, err := d.accept()
	if err != nil {
		d.t.Fatal(err)
	}
	h := &held{t: d.t, c: c, allocs: map[uint64]*wire.Alloc{}, fds: map[uint64]int{}}
	c.SetDeadline(time.Now().Add(patience))
	_, m, fds, err := c.Recv()
	if err != nil {
		d.t.Fatal(err)
	}
	h.hello, _ = m.(*wire.Hello)
	if h.hello == nil || len(fds) != 1 {
		d.t.Fatalf("%v with %d descriptors instead of HELLO", m.Type(), len(fds))
	}
	if h.page, err = wire.MapPage(fds[0]); err != nil {
		d.t.Fatal(err)
	}
	wire.CloseAll(fds)
	d.t.Cleanup(h.drop)
	if err := c.Send(0, &wire.Welcome{Proto: wire.Version, Flags: d.welcome, Token: token}); err != nil {
		d.t.Fatal(err)
	}
	return h
}

// drop forgets everything, as death does.
func (h *held) drop() {
	h.c.Close()
	h.page.Close()
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	h.fds = nil
}

// next takes note of one message; it returns those that answer a command.
func (h *held) next() (uint64, wire.Message, error) {
	h.c.SetDeadline(time.Now().Add(patience))
	seq, m, fds, err := h.c.Recv()
	if err != nil {
		return 0, nil, err
	}
	switch m := m.(type) {
	case *wire.Alloc:
		if len(fds) != 1 {
			return 0, nil, fmt.Errorf("ALLOC with %d descriptors", len(fds))
		}
		if h.allocs[m.ID] != nil {
			return 0, nil, fmt.Errorf("allocation %d twice", m.ID)
		}
		h.allocs[m.ID] = m
		h.fds[m.ID] = fds[0]
		return 0, m, nil
	case *wire.Free:
		if h.allocs[m.ID] == nil {
			return 0, nil, fmt.Errorf("unknown allocation %d freed", m.ID)
		}
		unix.Close(h.fds[m.ID])
		delete(h.allocs, m.ID)
		delete(h.fds, m.ID)
	case *wire.Mapping:
		h.mappings = append(h.mappings, *m)
	case *wire.Caveat:
		h.caveats = append(h.caveats, m)
	case *wire.Module:
		h.modules = append(h.modules, m)
	case *wire.Context:
		h.contexts = append(h.contexts, m)
	case *wire.Adopted:
		h.adopted = m
	case *wire.Room:
		h.rooms = append(h.rooms, m)
	case *wire.Share:
		h.shares = append(h.shares, m)
	case *wire.Bye:
		h.bye = true
	}
	wire.CloseAll(fds)
	return seq, m, nil
}

// until reads messages until ok.
func (h *held) until(what string, ok func() bool) {
	h.t.Helper()
	for !ok() {
		if _, _, err := h.next(); err != nil {
			h.t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// eventually waits for something that sends no message: it looks after each round trip to the program's control thread.
func (h *held) eventually(what string, ok func() bool) {
	h.t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			h.t.Fatalf("waited in vain for %s", what)
		}
		must[*wire.Failed](h.t, h.ask(&wire.Thaw{})) // not frozen: refused
	}
}

// ended reads to the end of the conversation.
func (h *held) ended() {
	h.t.Helper()
	for {
		if _, _, err := h.next(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			h.t.Fatal(err)
		}
	}
}

// ask sends a command and returns its answer.
func (h *held) ask(m wire.Message, fds ...int) wire.Message {
	h.t.Helper()
	h.seq++
	if err := h.c.Send(h.seq, m, fds...); err != nil {
		h.t.Fatal(err)
	}
	return h.answer(h.seq)
}

// answer reads to the answer to a message.
func (h *held) answer(to uint64) wire.Message {
	h.t.Helper()
	for {
		seq, got, err := h.next()
		if err != nil {
			h.t.Fatal(err)
		}
		if seq == to {
			return got
		}
	}
}

func must[T wire.Message](t testing.TB, m wire.Message) T {
	t.Helper()
	got, ok := m.(T)
	if !ok {
		t.Fatalf("%v: %+v", m.Type(), m)
	}
	return got
}

// release freezes and lets go, up to the end of the conversation; the threads of the program run on.
func (h *held) release() {
	h.t.Helper()
	h.letGo()
	h.hangUp()
}

// hangUp ends the conversation with a released program.
func (h *held) hangUp() {
	h.t.Helper()
	if err := h.c.CloseWrite(); err != nil {
		h.t.Fatal(err)
	}
	if _, m, err := h.next(); !errors.Is(err, io.EOF) {
		h.t.Fatalf("after RELEASED: %v, %v", m, err)
	}
}

// park makes the threads of a released program stand still but one, up to the end of the conversation.
func (h *held) park(except int) *wire.Parked {
	h.t.Helper()
	p := must[*wire.Parked](h.t, h.ask(&wire.Park{Except: uint32(except), TimeoutMillis: inTime}))
	if _, m, err := h.next(); !errors.Is(err, io.EOF) {
		h.t.Fatalf("after PARKED: %v, %v", m, err)
	}
	return p
}

// letGo freezes and lets go.
func (h *held) letGo() {
	h.t.Helper()
	must[*wire.Frozen](h.t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	r := must[*wire.Released](h.t, h.ask(&wire.Release{}))
	if r.Count != uint64(len(h.allocs)) {
		h.t.Fatalf("%d allocations released of %d", r.Count, len(h.allocs))
	}
}

// giveBack wakes the program and hands everything back; the program is frozen then.
func (d *daemon) giveBack(old *held) *held {
	d.t.Helper()
	wake(d.t, old)
	h := d.take()
	if h.hello.Flags != wire.HelloResume|can || h.hello.Token != token || h.hello.PID != old.hello.PID {
		d.t.Fatalf("HELLO after release: %+v", h.hello)
	}
	for id, a := range old.allocs {
		if err := h.c.Send(0, &wire.Map{ID: id, VA: a.VA, Size: a.Size, Device: a.Device, Access: 3},
			old.fds[id]); err != nil {
			d.t.Fatal(err)
		}
	}
	m := must[*wire.Mapped](d.t, h.ask(&wire.MapEnd{Count: uint64(len(old.allocs))}))
	if m.Count != uint64(len(old.allocs)) {
		d.t.Fatalf("%d allocations mapped of %d", m.Count, len(old.allocs))
	}
	h.allocs, h.fds = old.allocs, old.fds
	old.fds = nil
	return h
}

func wake(t testing.TB, h *held) {
	t.Helper()
	const sigrtmax = 64
	if err := unix.Tgkill(int(h.hello.PID), int(h.hello.ControlTID),
		unix.Signal(sigrtmax-wire.SignalOffset)); err != nil {
		t.Fatal(err)
	}
}

// word reads 8 bytes of the program's memory through the daemon's descriptor.
func (h *held) word(va uint64) uint64 {
	h.t.Helper()
	for id, a := range h.allocs {
		if va >= a.VA && va-a.VA < a.Size {
			var b [8]byte
			if _, err := unix.Pread(h.fds[id], b[:], int64(va-a.VA)); err != nil {
				h.t.Fatal(err)
			}
			return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 |
				uint64(b[5])<<40 |
				uint64(b[6])<<48 | uint64(b[7])<<56
		}
	}
	h.t.Fatalf("nobody holds %#x", va)
	return 0
}

func (h *held) holds(va uint64) bool {
	for _, a := range h.allocs {
		if va >= a.VA && va-a.VA < a.Size {
			return true
		}
	}
	return false
}
