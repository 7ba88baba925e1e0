package recorder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"holdfast/internal/tap"
	"holdfast/internal/wire"
)

// How long the recorder sleeps when a tap was empty: the program never wakes it, so that a launch makes no system
// call. At full speed a ring lasts for some 20 000 launches.
const (
	shortNap = time.Millisecond
	longNap  = 16 * time.Millisecond
)

// serve takes programs on l until ctx ends or l is closed.
func serve(ctx context.Context, l *net.UnixListener, wg *sync.WaitGroup, record func(*wire.Conn)) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		wg.Go(func() { record(wire.NewConn(c)) })
	}
}

// An outcome is how a program that was attended has ended.
type outcome struct {
	clean   bool // by itself
	counted wire.Counters
	waits   uint64
	waited  time.Duration
}

// attend reads the tap of one program until it ends, or stop is closed. begin gives who takes what is read; an error
// before it was called says that no program was there.
func attend(conn *wire.Conn, stop <-chan struct{}, begin func(*wire.Hello, int) tap.Handler) (out outcome, err error) {
	defer conn.Close()
	_, m, fds, err := conn.Recv()
	if err != nil {
		return out, err
	}
	defer wire.CloseAll(fds)
	hello, ok := m.(*wire.Hello)
	if !ok || len(fds) != 1 || hello.Flags != wire.HelloTrace || hello.Proto != wire.Version {
		return out, fmt.Errorf("%v with %d descriptors, want HELLO (TRACE) of version %d", m.Type(), len(fds),
			wire.Version)
	}
	peer, err := conn.Peer()
	if err != nil {
		return out, err
	}
	page, err := wire.MapPage(fds[0])
	if err != nil {
		return out, err
	}
	defer page.Close()
	t, err := tap.New()
	if err != nil {
		return out, err
	}
	defer t.Close()
	h := begin(hello, int(peer.Pid))
	if err := conn.Send(0, &wire.Welcome{Proto: wire.Version}); err != nil {
		return out, err
	}
	if err := conn.Send(1, &wire.Tap{Flags: wire.TapRecord}, t.FD()); err != nil {
		return out, err
	}
	ended := make(chan struct{})
	go func() { // it says nothing but DONE and BYE
		defer close(ended)
		for {
			_, m, fds, err := conn.Recv()
			if err != nil {
				return
			}
			wire.CloseAll(fds)
			if _, ok := m.(*wire.Bye); ok {
				out.clean = true
			}
		}
	}()
	err = drain(t, h, ended, stop)
	t.Stop()
	// What it has said is still read: it may have ended by itself just before the recording did.
	err = errors.Join(err, conn.CloseRead())
	<-ended
	out.counted = page.Read()
	out.waits, out.waited = t.Waits()
	return out, err
}

// drain reads until the program or the recording has ended, and then what is left.
func drain(t *tap.Reader, h tap.Handler, ended, stop <-chan struct{}) error {
	nap, timer := shortNap, time.NewTimer(0)
	defer timer.Stop()
	for last := false; ; {
		n, err := t.Read(h)
		if err != nil {
			return err
		}
		if n > 0 {
			nap = shortNap
			continue
		}
		if last {
			return nil
		}
		timer.Reset(nap)
		select {
		case <-ended:
			last = true
		case <-stop:
			last = true
		case <-timer.C:
			nap = min(2*nap, longNap)
		}
	}
}
