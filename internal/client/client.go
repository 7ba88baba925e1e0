// Package client talks to the holdfast daemon: HTTP and JSON over the unix socket of
// its runtime directory. The zero Client talks to the daemon of this user.
//
// It also knows how to bring the daemon and the software GPU up on demand
// (start.go). It must not import the daemon itself, only the types of its
// interface.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"holdfast/internal/daemon/api"

	"golang.org/x/sys/unix"
)

// The names of the sockets in a runtime directory.
const (
	DaemonSocket = "daemon.sock"
	SoftSocket   = "gpu.sock"
)

// maxLine bounds one event and one error that the daemon may send.
const maxLine = 16 << 20

// ErrNoDaemon is wrapped by the error of a call when no daemon listens, and by that of a call that changes nothing when
// the daemon died before it answered.
var ErrNoDaemon = errors.New("no holdfast daemon runs here")

// RuntimeDir returns the runtime directory of this user: $HOLDFAST_DIR, else
// $XDG_RUNTIME_DIR/holdfast, else /run/holdfast for root and /tmp/holdfast-UID for
// others. An XDG_RUNTIME_DIR of another user (sudo may keep it) does not count.
func RuntimeDir() string {
	if dir := os.Getenv("HOLDFAST_DIR"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && filepath.IsAbs(dir) && !foreign(dir) {
		return filepath.Join(dir, "holdfast")
	}
	if os.Getuid() == 0 {
		return "/run/holdfast"
	}
	return filepath.Join("/tmp", "holdfast-"+strconv.Itoa(os.Getuid()))
}

// foreign says whether a directory is there and another user's.
func foreign(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) != os.Geteuid()
}

// A Client calls one daemon. Its zero value calls the one of [RuntimeDir].
type Client struct {
	Dir string // runtime directory; "" = RuntimeDir()
}

func (c *Client) dir() string {
	if c.Dir != "" {
		return c.Dir
	}
	return RuntimeDir()
}

// A Progress function is told how far a long call is.
type Progress func(api.Progress)

// Version asks the daemon who it is.
func (c *Client) Version(ctx context.Context) (v api.Version, err error) {
	return v, c.call(ctx, http.MethodGet, api.PathVersion, nil, &v)
}

// Processes lists the held programs.
func (c *Client) Processes(ctx context.Context) (list []api.Process, err error) {
	return list, c.call(ctx, http.MethodGet, api.PathProcesses, nil, &list)
}

// Shutdown ends the daemon.
func (c *Client) Shutdown(ctx context.Context, r api.ShutdownRequest) error {
	return c.call(ctx, http.MethodPost, api.PathShutdown, r, &struct{}{})
}

// Checkpoint writes an image of a running program.
func (c *Client) Checkpoint(ctx context.Context, r api.CheckpointRequest,
	p Progress) (res api.CheckpointResult, err error) {
	return res, c.stream(ctx, api.PathCheckpoint, r, p, &res)
}

// Restore brings a program back from an image.
func (c *Client) Restore(ctx context.Context, r api.RestoreRequest, p Progress) (res api.RestoreResult, err error) {
	return res, c.stream(ctx, api.PathRestore, r, p, &res)
}

// Rollback puts device memory of an image back into the live program.
func (c *Client) Rollback(ctx context.Context, r api.RollbackRequest, p Progress) (res api.RollbackResult, err error) {
	return res, c.stream(ctx, api.PathRollback, r, p, &res)
}

// Suspend takes a program off the GPU.
func (c *Client) Suspend(ctx context.Context, r api.SuspendRequest, p Progress) (res api.SuspendResult, err error) {
	return res, c.stream(ctx, api.PathSuspend, r, p, &res)
}

// Resume lets a suspended program go on.
func (c *Client) Resume(ctx context.Context, r api.ResumeRequest, p Progress) (res api.ResumeResult, err error) {
	return res, c.stream(ctx, api.PathResume, r, p, &res)
}

// Wait returns when a program that the daemon restored has ended.
func (c *Client) Wait(ctx context.Context, r api.WaitRequest) (res api.WaitResult, err error) {
	return res, c.stream(ctx, api.PathWait, r, nil, &res)
}

// do sends one request. The caller closes the body of the answer.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://holdfast"+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// A transport per call: a CLI makes one or two, and nothing is left open behind it.
	socket := filepath.Join(c.dir(), DaemonSocket)
	var lost loss
	t := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, socket, &lost)
		},
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Only where the request changes nothing: another one may have been carried out.
		if method == http.MethodGet && lost.unanswered() && c.gone(ctx, int(lost.pid.Load())) {
			err = fmt.Errorf("%w (%w)", ErrNoDaemon, err)
		}
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e api.Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLine)).Decode(&e); err != nil || e.Message == "" {
		return nil, fmt.Errorf("%s: %s: the daemon answered %s", socket, path, resp.Status)
	}
	return nil, &e
}

func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLine)).Decode(out); err != nil {
		return fmt.Errorf("%s: answer of the daemon: %w", path, err)
	}
	return nil
}

func (c *Client) stream(ctx context.Context, path string, body any, progress Progress, out any) error {
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s := bufio.NewScanner(resp.Body)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	for s.Scan() {
		var e api.Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: answer of the daemon: %w", path, err)
		}
		switch {
		case e.Error != nil:
			return e.Error
		case e.Result != nil:
			if err := json.Unmarshal(e.Result, out); err != nil {
				return fmt.Errorf("%s: answer of the daemon: %w", path, err)
			}
			return nil
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = s.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	// The daemon died or was told to go. What it had begun is undone by itself: the
	// program runs on, and an image without a manifest is none.
	return fmt.Errorf("%s: the daemon went away before it answered: %w", path, err)
}

// gone reports whether the daemon that was process pid serves no longer. One that serves and still ends a connection
// without an answer is broken, which is not the same as having none.
func (c *Client) gone(ctx context.Context, pid int) bool {
	now, err := Daemon.PID(ctx, c.dir())
	return errors.Is(err, ErrNoDaemon) || err == nil && now != pid
}

// A loss says how the connection of one request ended.
type loss struct {
	pid      atomic.Int32 // of the other end
	answered atomic.Bool  // with a byte at least
	ended    atomic.Bool  // by the other end
}

func (l *loss) unanswered() bool { return l.ended.Load() && !l.answered.Load() }

// A lossConn records in a loss what becomes of it. The errors of net/http do not tell all of that.
type lossConn struct {
	*net.UnixConn
	loss *loss
}

func (c lossConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if n > 0 {
		c.loss.answered.Store(true)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		c.loss.ended.Store(true)
	}
	return n, err
}

func (c lossConn) Write(b []byte) (int, error) {
	n, err := c.UnixConn.Write(b)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		c.loss.ended.Store(true)
	}
	return n, err
}

// dial connects to a socket of a runtime directory and makes sure that the same
// user, or root, listens there.
func dial(ctx context.Context, socket string, l *loss) (net.Conn, error) {
	conn, err := dialUnix(ctx, socket)
	if err != nil {
		return nil, err
	}
	cred, err := peer(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	l.pid.Store(cred.Pid)
	return lossConn{conn, l}, nil
}

func dialUnix(ctx context.Context, socket string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("%w (%w)", ErrNoDaemon, err)
		}
		return nil, err
	}
	conn := c.(*net.UnixConn)
	cred, err := peer(conn)
	if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		err = fmt.Errorf("user %d listens there, not you (%d) or root", cred.Uid, os.Getuid())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}
