// Package rig is what tests run programs on where there is no GPU: the shim, the stub driver and the C programs of
// test/programs, and software GPUs. Each is compiled once for all test packages, into build/test, and again when a
// source, the compiler or CFLAGS have changed.
//
// It must not import what it carries the tests of: only the software GPU, which tests serve in their own process.
package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
)

// Device is a character device that can be mapped and is everywhere: Shim's second library takes it for the GPU's.
const Device = "/dev/zero"

// Shim is a directory with libholdfast.so, and with device/libholdfast.so, which is built for Device.
func Shim(t testing.TB) string {
	t.Helper()
	return Build(t, "shim", []string{"shim/*.[ch]", "shim/build.sh"}, func(dir string) error {
		return Run("sh", Path(t, "shim/build.sh"), dir, Device)
	})
}

// Stub is a directory with the libcuda.so.1 whose devices a software GPU serves.
func Stub(t testing.TB) string {
	t.Helper()
	return Build(t, "stub", []string{"stub/*.[ch]", "stub/build.sh"}, func(dir string) error {
		return Run("sh", Path(t, "stub/build.sh"), dir)
	})
}

// Programs is the names of the programs in test/programs, which know nothing of holdfast and check their own results:
// the last line that they print is "ok NAME".
func Programs(t testing.TB) []string {
	t.Helper()
	sources, err := filepath.Glob(Path(t, "test/programs/*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatal("no programs:", err)
	}
	for i, src := range sources {
		sources[i] = strings.TrimSuffix(filepath.Base(src), ".c")
	}
	return sources
}

// Program is the executable file of a program, linked against the stub.
func Program(t testing.TB, name string) string {
	t.Helper()
	src := "test/programs/" + name + ".c"
	return filepath.Join(Build(t, name, []string{src, "test/programs/*.h"}, func(dir string) error {
		return Run(compiler(), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, name),
			Path(t, src), "-L"+Stub(t), "-l:libcuda.so.1", "-lpthread", "-ldl")
	}), name)
}

// GPU serves a software GPU until the test ends, or stop is called, and returns its socket. The programs on it need
// Environment.
func GPU(t testing.TB, c device.Config) (socket string, stop func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "gpu.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- device.Serve(ctx, l, c) }()
	stop = sync.OnceFunc(func() {
		early := ctx.Err() == nil && len(done) > 0
		cancel()
		if err := <-done; err != nil || early {
			t.Errorf("the software GPU ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return socket, stop
}

// Again runs tests of the calling test binary in a process whose driver library is the stub, served by a software GPU
// in this one: those whose names begin so, as many as want. HOLDFAST_TEST_LIBCUDA names the library there.
func Again(t *testing.T, c device.Config, prefix string, want int, env ...string) {
	t.Helper()
	if os.Getenv("HOLDFAST_TEST_LIBCUDA") != "" {
		t.Skip("this is the process that the test runs")
	}
	socket, stop := GPU(t, c)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+prefix, "-test.v", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), "HOLDFAST_TEST_LIBCUDA="+filepath.Join(Stub(t), "libcuda.so.1"),
		"HOLDFAST_SOFTGPU_SOCKET="+socket), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if n := strings.Count(string(out), "--- PASS: "+prefix); err != nil || n != want {
		t.Errorf("%d tests passed, want %d: %v", n, want, err)
	}
	stop()
}

// Environment is what makes a program run on the software GPU of a socket.
func Environment(t testing.TB, socket string) []string {
	t.Helper()
	return []string{"LD_LIBRARY_PATH=" + Stub(t), "HOLDFAST_SOFTGPU_SOCKET=" + socket}
}

// root is the directory of go.mod.
var root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err = os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
			err = nil
		}
	}
	return "", fmt.Errorf("find the sources: %w", err)
})

// Path is the absolute path of a file of the source tree.
func Path(t testing.TB, name string) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

// compilerVersion is what decides, with sources and arguments, what the compiler makes.
var compilerVersion = sync.OnceValues(func() ([]byte, error) { return exec.Command(compiler(), "--version").Output() })

// old is the age at which nobody uses what earlier sources have made any more.
const old = 24 * time.Hour

// Build returns a directory that make has filled, now or in an earlier run of any test package: sources are patterns of
// files below the root of the source tree. Tests that need it are skipped where there is no compiler.
func Build(t testing.TB, name string, sources []string, make func(dir string) error) string {
	t.Helper()
	if _, err := exec.LookPath(compiler()); err != nil {
		t.Skip("no C compiler:", err)
	}
	key, err := digest(t, name, sources)
	if err != nil {
		t.Fatal(err)
	}
	all := Path(t, "build/test")
	dir := filepath.Join(all, name+"-"+key)
	if made(dir) {
		return dir
	}
	if err := os.MkdirAll(all, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(filepath.Join(all, "."+name+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if made(dir) { // by another package, meanwhile
		return dir
	}
	if err := fill(all, dir, make); err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	forget(filepath.Join(all, name+"-*"))
	return dir
}

// digest names what a build is made of. Reading the sources also tells go test that its result depends on them.
func digest(t testing.TB, name string, sources []string) (string, error) {
	version, err := compilerVersion()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n", name, compiler(), version, os.Getenv("CFLAGS"))
	for _, pattern := range sources {
		files, err := filepath.Glob(Path(t, pattern))
		if err != nil {
			return "", err
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s", f, len(b), b)
		}
	}
	return fmt.Sprintf("%.8x", h.Sum(nil)), nil
}

// made reports whether a build is there, and notes that it is used.
func made(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// fill makes a directory beside the others and gives it its name when it is complete.
func fill(all, dir string, make func(dir string) error) error {
	tmp, err := os.MkdirTemp(all, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := make(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// forget removes builds that nobody has used for long.
func forget(pattern string) {
	dirs, _ := filepath.Glob(pattern)
	for _, d := range dirs {
		if i, err := os.Stat(d); err == nil && time.Since(i.ModTime()) > old {
			os.RemoveAll(d)
		}
	}
}

// lock waits until nobody else builds the same.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// Run runs a command; its error has what the command printed.
func Run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
