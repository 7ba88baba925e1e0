package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/daemon/api"
)

// serve answers on the daemon's socket of a new runtime directory.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, DaemonSocket))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return &Client{Dir: dir}
}

func TestNoDaemon(t *testing.T) {
	c := Client{Dir: t.TempDir()}
	if _, err := c.Version(context.Background()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.Listen("unix", filepath.Join(c.Dir, DaemonSocket))
	if err != nil {
		t.Skip(err) // the path is too long here
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := c.Version(context.Background()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("a dead daemon's socket: %v", err)
	}
	if _, err := Daemon.PID(context.Background(), c.Dir); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("PID with a dead daemon's socket: %v", err)
	}
}

// A daemon that is killed after it was called and before it answers is as one that is not there, for a request that
// changes nothing. Of another request nobody knows whether it was carried out, and a daemon that serves on is there.
func TestDaemonDies(t *testing.T) {
	get := func(c *Client) error { _, err := c.Processes(t.Context()); return err }
	post := func(c *Client) error { return c.Shutdown(t.Context(), api.ShutdownRequest{}) }
	for _, x := range []struct {
		name        string
		call        func(*Client) error
		read, serve bool // it reads the request first; its socket stays
		answer      string
		want        bool // no daemon
	}{
		{name: "request not read", call: get, want: true},
		{name: "request read", call: get, read: true, want: true},
		{name: "answer begun", call: get, read: true, answer: "HTTP/1.1 200"},
		{name: "it serves on", call: get, serve: true},
		{name: "a request that changes something", call: post, read: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "hf") // t.TempDir may be too long for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, DaemonSocket), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			l.SetUnlinkOnClose(false) // as one that was killed leaves it
			done := make(chan error, 1)
			go func() { done <- x.call(&Client{Dir: dir}) }()
			conn, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			arrived(t, conn)
			if !x.serve {
				l.Close()
			}
			if x.read {
				if _, err := conn.Read(make([]byte, 4096)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.Write([]byte(x.answer)); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			if err := <-done; err == nil || errors.Is(err, ErrNoDaemon) != x.want {
				t.Errorf("%v; no daemon: want %v", err, x.want)
			}
		})
	}
}

// arrived waits until there is something to read, and leaves it there.
func arrived(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		_, _, peekErr = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(peekErr, unix.EAGAIN)
	})
	if err := errors.Join(err, peekErr); err != nil {
		t.Fatal(err)
	}
}

func TestStream(t *testing.T) {
	for _, c := range []struct {
		name, body, want string // want: part of the error; "" is success
	}{
		{"result", `{"progress":{"phase":"drain","done":1,"total":2}}` + "\n" + `{"result":{"pid":7}}` + "\n", ""},
		{"result without newline", `{"result":{"pid":7}}`, ""},
		{"error", `{"error":{"code":"failed","message":"no"}}`, "no"},
		{"cut", `{"progress":{"phase":"drain"}}` + "\n", "went away"},
		{"empty", "", "went away"},
		{"garbage", "{]", "answer of the daemon"},
		{"result of another type", `{"result":{"pid":"seven"}}`, "answer of the daemon"},
		{"endless line", strings.Repeat("x", maxLine+1), "token too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(c.body)) })
			var seen []api.Progress
			res, err := cl.Resume(context.Background(), api.ResumeRequest{Target: "x"}, func(p api.Progress) {
				seen = append(seen, p)
			})
			switch {
			case c.want == "" && (err != nil || res.PID != 7):
				t.Errorf("%+v, %v", res, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			if c.name == "result" && (len(seen) != 1 || seen[0].Done != 1) {
				t.Errorf("progress %+v", seen)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"code":"busy","message":"a checkpoint is under way","remedy":"wait for it"}`))
	})
	_, err := cl.Processes(context.Background())
	var e *api.Error
	if !errors.As(err, &e) || e.Code != "busy" || e.Remedy != "wait for it" {
		t.Errorf("%#v", err)
	}
}

func TestCancel(t *testing.T) {
	reached := make(chan struct{})
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		close(reached)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-reached
		cancel()
	}()
	if _, err := cl.Suspend(ctx, api.SuspendRequest{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestRuntimeDir(t *testing.T) {
	open := func(dir string) error {
		d, err := OpenRuntimeDir(dir)
		if err == nil {
			d.Close()
		}
		return err
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := open(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := open(dir); err == nil {
		t.Error("a directory that others can enter is taken")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := open(link); err == nil {
		t.Error("a symbolic link is taken")
	}
	// Its own owner and mode do not help where another user can rename it away.
	above := filepath.Join(t.TempDir(), "above")
	if err := os.Mkdir(above, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := open(filepath.Join(above, "run")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := open(filepath.Join(above, "run")); err == nil {
		t.Error("a directory is taken that others can put another in the place of")
	}
}

// A link in the place of the lock or the log is not followed.
func TestStartFollowsNoLink(t *testing.T) {
	for _, name := range []string{"daemon.lock", "daemon.log"} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, err := Daemon.Start(context.Background(), dir)
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(victim); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the link was followed: %v", name, err)
		}
	}
}

// A root that has kept the XDG_RUNTIME_DIR of a user does not put its sockets there.
func TestForeignRuntimeDir(t *testing.T) {
	t.Setenv("HOLDFAST_DIR", "")
	dir := filepath.Join(t.TempDir(), "user")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if got := RuntimeDir(); got != filepath.Join(dir, "holdfast") {
		t.Errorf("%s", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := os.Chown(dir, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	if got := RuntimeDir(); got != "/run/holdfast" {
		t.Errorf("%s", got)
	}
}

func TestServerEnv(t *testing.T) {
	env := serverEnv([]string{"PATH=/bin", "LD_PRELOAD=x", "HOLDFAST_NAME=n", "HOLDFAST_DIR=/old",
		"CUDA_VISIBLE_DEVICES=1", "HOLDFAST_SOFTGPU_MEM=5"}, "/new")
	got := strings.Join(env, " ")
	if want := "HOLDFAST_DIR=/new PATH=/bin HOLDFAST_SOFTGPU_MEM=5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A server whose lock somebody has waits while that one cannot be called: it is dying. One that serves is not waited
// for.
func TestOwn(t *testing.T) {
	dir, err := os.MkdirTemp("", "hf") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	open := func() *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "softgpu.pid"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	dying, next := open(), open()
	if err := SoftGPU.Own(t.Context(), dying, dir); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, SoftSocket))
	if err != nil {
		t.Fatal(err)
	}
	if err := SoftGPU.Own(t.Context(), next, dir); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("beside one that serves: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as one that was killed leaves it
	l.Close()
	owned := make(chan error, 1)
	go func() { owned <- SoftGPU.Own(t.Context(), next, dir) }()
	select {
	case err := <-owned:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	dying.Close()
	if err := <-owned; err != nil {
		t.Error(err)
	}
}
