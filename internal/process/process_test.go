package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

// shim is the other end of a conversation, played by the test.
type shim struct {
	t *testing.T
	c *wire.Conn
}

func (s shim) send(seq uint64, m wire.Message, fds ...int) {
	s.t.Helper()
	if err := s.c.Send(seq, m, fds...); err != nil {
		s.t.Fatal(err)
	}
}

func (s shim) expect(want wire.Type) uint64 {
	s.t.Helper()
	seq, m, fds, err := s.c.Recv()
	wire.CloseAll(fds)
	if err != nil || m.Type() != want {
		s.t.Fatalf("received %v, %v; want message %v", m, err, want)
	}
	return seq
}

func memfd(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	return fd
}

func newProgram() *Program {
	return New(Identity{PID: os.Getpid(), Devices: make([][16]byte, 1), Token: [16]byte{1}}, "running",
		slog.New(slog.DiscardHandler))
}

// talk begins a conversation of p; served gets the result of Serve.
func talk(t *testing.T, p *Program, flags uint32) (s shim, served chan error) {
	t.Helper()
	s = hello(t, p, flags)
	s.expect(wire.TypeWelcome)
	served = make(chan error, 1)
	go func() { served <- p.Serve(func(*Program, *wire.Room) uint64 { return 0 }) }()
	return s, served
}

// hello attaches a program, which has not read its WELCOME.
func hello(t *testing.T, p *Program, flags uint32) shim {
	t.Helper()
	c, daemon := wiretest.Pair(t)
	if err := p.Attach(daemon, &wire.Hello{Flags: flags}, wiretest.Page(t)); err != nil {
		t.Fatal(err)
	}
	return shim{t, c}
}

func TestReleaseAndReturn(t *testing.T) {
	p := newProgram()
	s, served := talk(t, p, 0)
	s.send(0, &wire.Alloc{ID: 7, VA: 1 << 36, Size: 2 << 20}, memfd(t, 2<<20))
	s.send(0, &wire.Adopted{Allocations: 1})
	if err := p.WaitAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bytes, n := p.Resident(); bytes != 2<<20 || n != 1 {
		t.Fatalf("%d bytes in %d allocations", bytes, n)
	}
	done := make(chan error, 1)
	go func() { _, err := p.Freeze(t.Context(), time.Second, 0); done <- err }()
	s.send(s.expect(wire.TypeFreeze), &wire.Frozen{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { _, err := p.Release(t.Context()); done <- err }()
	s.send(s.expect(wire.TypeRelease), &wire.Released{Count: 1})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { done <- p.HangUp(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("HangUp returned (%v) before the program had closed everything", err)
	default:
	}
	s.c.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if p.Conversing() || p.NeedsMemory() {
		t.Fatal("a released program has a conversation")
	}
	s, _ = talk(t, p, wire.HelloResume)
	if !p.NeedsMemory() {
		t.Fatal("a program that came back from a release needs no memory")
	}
	go func() { _, err := p.Remap(t.Context(), false); done <- err }()
	s.expect(wire.TypeMap)
	s.send(s.expect(wire.TypeMapEnd), &wire.Mapped{Count: 1})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if p.NeedsMemory() {
		t.Fatal("it has its memory and needs it")
	}
}

func TestReadoptTellsAnew(t *testing.T) {
	p := newProgram()
	s, served := talk(t, p, 0)
	s.send(0, &wire.Alloc{ID: 1, Size: 2 << 20}, memfd(t, 2<<20))
	s.send(0, &wire.Adopted{})
	if err := p.WaitAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.c.Close()
	<-served
	talk(t, p, wire.HelloReadopt)
	if _, n := p.Resident(); n != 0 {
		t.Fatalf("%d allocations before the program has told any", n)
	}
	if p.NeedsMemory() {
		t.Fatal("a program that was never released needs memory")
	}
}

// A program that does not know of CALM is frozen as it always was.
func TestFreezeCalm(t *testing.T) {
	for _, c := range []struct {
		flags uint32
		calm  time.Duration
		sends []wire.Type
	}{
		{0, time.Second, []wire.Type{wire.TypeFreeze}},
		{wire.HelloCalm, 0, []wire.Type{wire.TypeFreeze}},
		{wire.HelloCalm, time.Second, []wire.Type{wire.TypeCalm, wire.TypeFreeze}},
	} {
		p := newProgram()
		s, _ := talk(t, p, c.flags)
		done := make(chan error, 1)
		go func() { _, err := p.Freeze(t.Context(), time.Second, c.calm); done <- err }()
		var seq uint64
		for _, want := range c.sends {
			seq = s.expect(want)
		}
		s.send(seq, &wire.Frozen{})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A program gets a descriptor of its own memory, and none of what is not there.
func TestShare(t *testing.T) {
	p := newProgram()
	s, _ := talk(t, p, 0)
	memory := memfd(t, 2<<20)
	s.send(0, &wire.Alloc{ID: 7, VA: 0, Size: 2 << 20, Kind: wire.KindVMM}, memory)
	ask := func(q wire.Share) []int {
		t.Helper()
		s.send(0, &q)
		_, m, fds, err := s.c.Recv()
		t.Cleanup(func() { wire.CloseAll(fds) })
		if got, ok := m.(*wire.Shared); err != nil || !ok || got.ID != q.ID {
			t.Fatalf("received %+v, %v", m, err)
		}
		return fds
	}
	fds := ask(wire.Share{ID: 3, Alloc: 7})
	var want, got unix.Stat_t
	if len(fds) != 1 || unix.Fstat(memory, &want) != nil || unix.Fstat(fds[0], &got) != nil || got.Ino != want.Ino {
		t.Fatalf("%d descriptors, of file %d, want %d", len(fds), got.Ino, want.Ino)
	}
	if fds := ask(wire.Share{ID: 4, Alloc: 8}); len(fds) != 0 {
		t.Error("memory that nobody announced was shared")
	}
	p.CloseFiles()
	if fds := ask(wire.Share{ID: 5, Alloc: 7}); len(fds) != 0 {
		t.Error("memory that nobody holds was shared")
	}
}

// A copy of a descriptor is of that memory or of none: not of what has its number now, or its ID.
func TestDup(t *testing.T) {
	p := newProgram()
	s, _ := talk(t, p, 0)
	announce := func(id uint64) int {
		fd := memfd(t, 2<<20)
		s.send(0, &wire.Alloc{ID: id, Size: 2 << 20}, fd)
		return fd
	}
	heard := func() {
		t.Helper()
		s.send(0, &wire.Share{})
		s.expect(wire.TypeShared)
	}
	memory := announce(7)
	heard()
	a := p.Allocs()[0]
	f, err := p.Dup(a)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want, got unix.Stat_t
	if unix.Fstat(memory, &want) != nil || unix.Fstat(int(f.Fd()), &got) != nil || got.Ino != want.Ino {
		t.Errorf("a copy of file %d, want %d", got.Ino, want.Ino)
	}
	s.send(0, &wire.Free{ID: 7})
	announce(8)
	announce(7)
	heard()
	if f, err := p.Dup(a); !errors.Is(err, ErrFreed) {
		t.Errorf("a copy of memory that was freed: %v, %v", f, err)
	}
	p.CloseFiles()
	if f, err := p.Dup(p.Allocs()[0]); !errors.Is(err, ErrFreed) {
		t.Errorf("a copy of memory that is off the GPU: %v, %v", f, err)
	}
}

func TestRefusalAndEnd(t *testing.T) {
	p := newProgram()
	s, _ := talk(t, p, 0)
	done := make(chan error, 1)
	go func() { _, err := p.Freeze(t.Context(), time.Second, 0); done <- err }()
	s.send(s.expect(wire.TypeFreeze), &wire.Failed{Code: wire.FailedCapture, Text: "a stream capture stayed open"})
	var r *Refusal
	if err := <-done; !errors.As(err, &r) || r.Failed.Code != wire.FailedCapture {
		t.Fatalf("Freeze = %v, want the refusal", err)
	}
	go func() { done <- p.Thaw(t.Context(), 0) }()
	s.expect(wire.TypeThaw)
	s.c.Close()
	if err := <-done; !errors.Is(err, ErrGone) {
		t.Fatalf("Thaw of a program that hangs up = %v, want ErrGone", err)
	}
}

// What does not belong into a conversation ends it, and its descriptors are not kept.
func TestHostilePrograms(t *testing.T) {
	for name, send := range map[string]func(s shim){
		"no descriptor":    func(s shim) { s.send(0, &wire.Alloc{ID: 1, Size: 2 << 20}) },
		"no such device":   func(s shim) { s.send(0, &wire.Alloc{ID: 1, Size: 2 << 20, Device: 9}, memfd(t, 1)) },
		"no id":            func(s shim) { s.send(0, &wire.Alloc{Size: 2 << 20}, memfd(t, 1)) },
		"unasked reply":    func(s shim) { s.send(5, &wire.Mapped{}) },
		"daemon's message": func(s shim) { s.send(0, &wire.Thaw{}) },
		"told twice": func(s shim) {
			s.send(0, &wire.Alloc{ID: 1, Size: 2 << 20}, memfd(t, 1))
			s.send(0, &wire.Alloc{ID: 1, Size: 2 << 20}, memfd(t, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram()
			s, served := talk(t, p, 0)
			send(s)
			if err := <-served; err == nil {
				t.Fatal("the conversation ended as if nothing were wrong")
			}
		})
	}
}

func TestWakeOfTheDead(t *testing.T) {
	p := New(Identity{PID: 1 << 22, ControlTID: 1 << 22}, "running", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := p.Wake(ctx); !errors.Is(err, ErrGone) {
		t.Fatalf("Wake = %v, want ErrGone", err)
	}
}

// TestWakeOfTheDying: a program that ends between the signal and its first word is not waited for.
func TestWakeOfTheDying(t *testing.T) {
	cmd := exec.Command("sleep", "1000") // which the signal ends
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p := New(Identity{PID: cmd.Process.Pid, ControlTID: cmd.Process.Pid}, "restoring", slog.New(slog.DiscardHandler))
	if err := p.Wake(t.Context()); !errors.Is(err, ErrGone) {
		t.Fatalf("Wake = %v, want ErrGone", err)
	}
}

// A thread gets no signal to wake it that it does not wait for: it would wake it from its next sleep.
func TestWakeOnlyWhoWaits(t *testing.T) {
	cmd := exec.Command("sleep", "1000") // which the signal would end
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	start, err := StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{PID: cmd.Process.Pid, StartTime: start - 1, ControlTID: cmd.Process.Pid}
	if _, err := wake(id, true); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process with its number: %v", err)
	}
	status := "Name:\tx\nSigPnd:\t0000000000000000\nSigBlk:\tfffffffe7ffbfeff\n"
	if hasSignal(status, "SigPnd:", SignalWake) || !hasSignal(status, "SigBlk:", SignalWake) {
		t.Errorf("signal %d in %q", SignalWake, status)
	}
	if !Alive(id.PID, start) {
		t.Error("it has been signalled")
	}
}

// The end of a process is noticed, without being its parent; and that of one whose number is another's is known.
func TestAwaitEnd(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	start, err := StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := AwaitEnd(t.Context(), Identity{PID: cmd.Process.Pid, StartTime: start - 1}); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- AwaitEnd(t.Context(), Identity{PID: cmd.Process.Pid, StartTime: start}) }()
	select {
	case err := <-ended:
		t.Fatalf("it lives, but: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitEnd(ctx, Identity{PID: cmd.Process.Pid, StartTime: start}); err == nil {
		t.Error("it lives, but nobody waits any longer, and that is its end")
	}
	cmd.Process.Kill()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Whatever a program says in whatever order, the daemon takes it or breaks off, and keeps no descriptor that it
// refused.
func FuzzReceive(f *testing.F) {
	var seed []byte
	for i, m := range []wire.Message{&wire.Alloc{ID: 1, VA: 1 << 36, Size: 2 << 20}, &wire.Free{ID: 1},
		&wire.Caveat{Code: 1, Count: 1}, &wire.Adopted{},
		&wire.Frozen{}, &wire.Bye{}} {
		b, err := wire.Encode(nil, uint64(i), m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte{byte(len(b)), byte(len(b) >> 8), 1}, b...))
		seed = append(append(seed, byte(len(b)), byte(len(b)>>8), byte(i)), b...)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		p := newProgram()
		s := &session{replies: map[uint64]chan wire.Message{3: make(chan wire.Message, 1)},
			adopted: make(chan struct{}), done: make(chan struct{})}
		for len(in) > 3 { // length, length, descriptors, packet
			n := min(int(in[0])|int(in[1])<<8, len(in)-3)
			seq, m, err := wire.Decode(in[3 : 3+n])
			if err == nil {
				var fds []int
				for range in[2] % 4 {
					fd, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_DUPFD_CLOEXEC, 0)
					if err != nil {
						t.Fatal(err)
					}
					fds = append(fds, fd)
				}
				if err := p.receive(s, seq, m, fds); err != nil {
					wire.CloseAll(fds) // as Serve does
					break
				}
			}
			in = in[3+n:]
		}
		p.Resident()
		p.Caveats()
		p.Drop()
		unix.Close(pipe[1])
		if k, err := unix.Read(pipe[0], make([]byte, 1)); k != 0 || err != nil {
			t.Fatalf("a descriptor is left: %d, %v", k, err)
		}
	})
}
