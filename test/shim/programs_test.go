package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
	"holdfast/test/rig"
)

// restless is a daemon that never leaves its programs alone: it freezes each every few milliseconds, and every other
// time takes all memory away and gives it back.
type restless struct {
	l interface {
		Accept() (*wire.Conn, error)
	}
	wg      sync.WaitGroup
	mu      sync.Mutex
	back    map[[16]byte]chan *wire.Conn // woken programs, by token
	errs    []error
	frozen  int // times
	moved   int
	refused map[string]int
	caveats map[string]bool
}

type acceptor func() (*wire.Conn, error)

func (a acceptor) Accept() (*wire.Conn, error) { return a() }

func (r *restless) serve() {
	for n := byte(1); ; n++ {
		c, err := r.l.Accept()
		if err != nil {
			r.wg.Wait()
			return
		}
		c.SetDeadline(time.Now().Add(patience))
		_, m, fds, err := c.Recv()
		wire.CloseAll(fds)
		hello, ok := m.(*wire.Hello)
		if err != nil || !ok {
			c.Close() // killed while it said hello
			continue
		}
		if hello.Flags&wire.HelloResume != 0 {
			r.mu.Lock()
			ch := r.back[hello.Token]
			r.mu.Unlock()
			if ch != nil {
				ch <- c
			}
			continue
		}
		token := [16]byte{n, 1}
		ch := make(chan *wire.Conn, 1)
		r.mu.Lock()
		r.back[token] = ch
		r.mu.Unlock()
		r.wg.Go(func() {
			if err := r.disturb(c, hello, token, ch); err != nil {
				r.mu.Lock()
				r.errs = append(r.errs, fmt.Errorf("%s (%d): %w", hello.Name, hello.PID, err))
				r.mu.Unlock()
			}
		})
	}
}

var errGone = errors.New("the program ended")

// awaitReturn is the woken program's new conversation, nil when it was killed meanwhile.
func awaitReturn(back chan *wire.Conn, pid uint32) *wire.Conn {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case c := <-back:
			return c
		case <-look.C:
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil ||
				strings.Contains(string(stat), ") Z ") {
				return nil
			}
		}
	}
}

// disturb holds one program until it ends.
func (r *restless) disturb(c *wire.Conn, hello *wire.Hello, token [16]byte, back chan *wire.Conn) error {
	type held struct {
		a  *wire.Alloc
		fd int
	}
	allocs := map[uint64]held{}
	defer func() {
		if c != nil {
			c.Close()
		}
		for _, h := range allocs {
			unix.Close(h.fd)
		}
	}()
	seq := uint64(0)
	ask := func(m wire.Message) (wire.Message, error) {
		if m != nil {
			seq++
			if c.Send(seq, m) != nil {
				return nil, errGone
			}
		}
		for {
			c.SetDeadline(time.Now().Add(patience))
			got, m, fds, err := c.Recv()
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return nil, fmt.Errorf("no answer: %w", err)
				}
				return nil, errGone
			}
			switch m := m.(type) {
			case *wire.Alloc:
				if _, ok := allocs[m.ID]; ok || len(fds) != 1 {
					return nil, fmt.Errorf("allocation %d twice, or with %d descriptors", m.ID, len(fds))
				}
				allocs[m.ID] = held{m, fds[0]}
				continue
			case *wire.Free:
				h, ok := allocs[m.ID]
				if !ok {
					return nil, fmt.Errorf("unknown allocation %d freed", m.ID)
				}
				unix.Close(h.fd)
				delete(allocs, m.ID)
			case *wire.Share:
				h, ok := allocs[m.Alloc]
				if !ok {
					return nil, fmt.Errorf("unknown allocation %d is to be shared", m.Alloc)
				}
				if c.Send(0, &wire.Shared{ID: m.ID}, h.fd) != nil {
					return nil, errGone
				}
			case *wire.Caveat:
				r.mu.Lock()
				r.caveats[m.Text] = true
				r.mu.Unlock()
			}
			wire.CloseAll(fds)
			if got == seq && seq > 0 {
				return m, nil
			}
		}
	}
	err := func() error {
		if c.Send(0, &wire.Welcome{Proto: wire.Version, Token: token}) != nil {
			return errGone
		}
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ; round++ {
			<-tick.C // the program needs a moment of its own
			m, err := ask(&wire.Freeze{TimeoutMillis: 100})
			if err != nil {
				return err
			}
			if f, ok := m.(*wire.Failed); ok {
				if f.Code != wire.FailedCapture && f.Code != wire.FailedInside && f.Code != wire.FailedSync &&
					!strings.Contains(f.Text, "ending") {
					return fmt.Errorf("FREEZE: %+v", f)
				}
				r.mu.Lock()
				r.refused[f.Text]++
				r.mu.Unlock()
				continue
			}
			r.mu.Lock()
			r.frozen++
			r.mu.Unlock()
			if round%2 == 1 {
				if m, err = ask(&wire.Release{}); err != nil {
					return err
				}
				if f, ok := m.(*wire.Failed); ok {
					return fmt.Errorf("RELEASE: %+v", f)
				}
				if m, err = ask(&wire.Park{}); err != nil {
					return err
				}
				if _, ok := m.(*wire.Parked); !ok {
					return fmt.Errorf("PARK: %+v", m)
				}
				if _, _, _, err := c.Recv(); err == nil {
					return errors.New("a message after PARKED")
				}
				c.Close()
				if unix.Tgkill(int(hello.PID), int(hello.ControlTID), unix.Signal(64-wire.SignalOffset)) != nil {
					return errGone
				}
				if c = awaitReturn(back, hello.PID); c == nil {
					return errGone
				}
				if c.Send(0, &wire.Welcome{Proto: wire.Version, Token: token}) != nil {
					return errGone
				}
				for id, h := range allocs {
					if c.Send(0, &wire.Map{ID: id, VA: h.a.VA, Size: h.a.Size, Device: h.a.Device, Access: 3},
						h.fd) != nil {
						return errGone
					}
				}
				if m, err = ask(&wire.MapEnd{Count: uint64(len(allocs))}); err != nil {
					return err
				}
				if _, ok := m.(*wire.Mapped); !ok {
					return fmt.Errorf("MAPEND: %+v", m)
				}
				r.mu.Lock()
				r.moved++
				r.mu.Unlock()
			}
			if m, err = ask(&wire.Thaw{}); err != nil {
				return err
			}
			if f, ok := m.(*wire.Failed); ok {
				return fmt.Errorf("THAW: %+v", f)
			}
		}
	}()
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// TestPrograms runs the C programs of the driver API, which check their own results, under a restless daemon.
func TestPrograms(t *testing.T) {
	dir := build(t)
	env, soft := driver(t)
	if !soft {
		t.Skip("the programs run on the software GPU")
	}
	for _, name := range rig.Programs(t) {
		var args []string
		switch name {
		case "gone", "checkpoint", "ipc", "starved":
			continue // lose their GPU; drive the driver's checkpoint themselves; share memory in a way that held memory
			// cannot be; need every descriptor to be their own
		case "shortlived":
			args = []string{"40"}
		}
		t.Run(name, func(t *testing.T) {
			d := listen(t, t.TempDir())
			r := &restless{l: acceptor(d.accept), back: map[[16]byte]chan *wire.Conn{}, refused: map[string]int{},
				caveats: map[string]bool{}}
			done := make(chan struct{})
			go func() { r.serve(); close(done) }()
			cmd := exec.CommandContext(t.Context(), rig.Program(t, name), args...)
			cmd.Env = append(append(os.Environ(), env...), "LD_PRELOAD="+filepath.Join(dir, "libholdfast.so"),
				"HOLDFAST_DIR="+d.dir)
			timer := time.AfterFunc(6*patience, func() { cmd.Process.Kill() })
			out, err := cmd.CombinedOutput()
			timer.Stop()
			if want := "ok " + name + "\n"; err != nil || !strings.HasSuffix(string(out), want) {
				t.Errorf("%v, printed %q, want %q at the end", err, out, want)
			}
			d.l.Close()
			<-done
			for _, err := range r.errs {
				t.Error(err)
			}
			t.Logf("frozen %d times, moved %d times; refused %v; caveats %v", r.frozen, r.moved, r.refused, r.caveats)
		})
	}
}
