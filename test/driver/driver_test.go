// Package driver runs C programs of the CUDA driver API through the stub libcuda.so.1 on a software GPU. The programs
// know nothing of it: they run on a real driver as well (cc test/programs/X.c -lcuda -lpthread).
package driver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/device"
	"holdfast/test/rig"
)

// serveVariable makes this test binary the software GPU on the socket that it names.
const serveVariable = "HOLDFAST_TEST_SERVE"

func TestMain(m *testing.M) {
	if path := os.Getenv(serveVariable); path != "" {
		if err := serve(context.Background(), path, device.Config{Idle: 2 * time.Second}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(ctx context.Context, path string, cfg device.Config) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	return device.Serve(ctx, l, cfg)
}

// gpu starts a software GPU of the test's own and returns its socket and what stops it.
func gpu(t *testing.T) (socket string, stop func()) {
	t.Helper()
	cfg := device.Config{Memory: 1 << 30}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return rig.GPU(t, cfg)
}

func command(t *testing.T, socket, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rig.Program(t, name), args...)
	cmd.Env = append(os.Environ(), rig.Environment(t, socket)...)
	cmd.WaitDelay = time.Minute // for children that keep the pipes open
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(cmd.Path), err, out)
	}
	return string(out)
}

func TestPrograms(t *testing.T) {
	socket, _ := gpu(t)
	t.Run("all", func(t *testing.T) { // ends when the parallel ones have
		for _, name := range rig.Programs(t) {
			var args []string
			switch name {
			case "gone": // has a test of its own
				continue
			case "shortlived":
				args = []string{"150"}
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				out := run(t, command(t, socket, name, args...))
				want := "ok " + name + "\n"
				if name == "print" {
					want = "hello 0 1.50\nhello 1 1.50\nhello 2 1.50\nand then\n" + want
				}
				if out != want {
					t.Errorf("printed %q, want %q", out, want)
				}
			})
		}
	})
}

// The device dies under a program that waits for a kernel: one line on stderr, errors, no crash.
func TestServerGone(t *testing.T) {
	socket, stop := gpu(t)
	cmd := command(t, socket, "gone")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stdout)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		t.Fatalf("printed %q, %v", line, err)
	}
	stop()
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || string(rest) != "ok gone\n" {
		t.Errorf("%v, printed %q\n%s", err, rest, stderr.String())
	}
	if n := strings.Count(stderr.String(), "\n"); n != 1 || !strings.Contains(stderr.String(), "lost its server") {
		t.Errorf("stderr: %q, want one line", stderr.String())
	}
}

func TestNoServer(t *testing.T) {
	out, err := command(t, filepath.Join(t.TempDir(), "none.sock"), "vecadd").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no server at") || !strings.Contains(string(out), "802") {
		t.Errorf("%v: %s", err, out)
	}
}

// A program may start its GPU by itself, and several may at once.
func TestStartsServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A path that is too long for a socket address goes through a descriptor of its directory; the server gets it
	// relative.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		cmd := command(t, filepath.Join(dir, "gpu.sock"), "vecadd")
		wg.Go(func() {
			cmd.Env = append(cmd.Env, "HOLDFAST_SOFTGPU_EXEC=cd '"+dir+"' && "+serveVariable+"=gpu.sock '"+self+"'")
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok vecadd\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
}

// A device without descriptors fails the call that sends one, and serves on.
func TestServerStarves(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gpu.sock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(self)
	server.Env = append(os.Environ(), serveVariable+"="+socket)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { server.Process.Kill(); server.Wait() }()
	waitFor(t, socket)
	cmd := command(t, socket, "starved", "both")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var had unix.Rlimit
	if err := unix.Prlimit(server.Process.Pid, unix.RLIMIT_NOFILE, nil, &had); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewScanner(stdout)
	for _, step := range []struct {
		want  string
		limit unix.Rlimit
	}{{"starve", unix.Rlimit{Cur: 3, Max: had.Max}}, {"feed", had}} {
		if !r.Scan() || r.Text() != step.want {
			t.Fatalf("printed %q, want %s\n%s", r.Text(), step.want, stderr.String())
		}
		if err := unix.Prlimit(server.Process.Pid, unix.RLIMIT_NOFILE, &step.limit, nil); err != nil {
			t.Fatal(err)
		}
		io.WriteString(stdin, "done\n")
	}
	if !r.Scan() || r.Text() != "ok starved" {
		t.Errorf("printed %q\n%s", r.Text(), stderr.String())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// waitFor returns when somebody listens on a socket.
func waitFor(t *testing.T, socket string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // between two looks
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
