package daemon

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// poor is a listener whose accept fails in every way that passes before it works.
type poor struct {
	net.Listener
	errs []error
}

func (l *poor) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	return l.Listener.Accept()
}

// A daemon that finds no free descriptor or memory when somebody calls takes the call when it can.
func TestPatient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	errs := []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED}
	l := patient{&poor{inner, errs}, slog.New(slog.DiscardHandler)}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	inner.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A daemon at its limit of open files loses neither of its sockets.
func TestDaemonWithoutDescriptors(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{cfg: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	l, err := d.listen(APISocket, "unix")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	failed := make(chan error, 100)
	p := patient{&watched{l, failed}, d.log}
	c, err := net.Dial("unix", filepath.Join(d.cfg.Dir, APISocket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		a, err := p.Accept()
		if err == nil {
			a.Close()
		}
		got <- err
	}()
	first := <-failed
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(first, unix.EMFILE) {
		t.Errorf("accept at the limit: %v", first)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// watched tells of every accept that fails.
type watched struct {
	net.Listener
	failed chan error
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		select {
		case l.failed <- err:
		default:
		}
	}
	return c, err
}
