package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/internal/daemon/api"
)

func mountSmall(t *testing.T, dir, size string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("holdfast-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	})
	return dir
}

// 64 programs at once under one daemon.
func TestMany(t *testing.T) {
	s := newSite(t)
	const n = 64
	var programs [n]*teller
	var wg sync.WaitGroup
	for i := range n {
		programs[i] = s.tellerLater(fmt.Sprintf("t%d", i))
	}
	for _, r := range programs {
		r.expect("ready")
	}
	var sums [n]string
	for i, r := range programs {
		r.tell("alloc 2")
		r.tell("fill %d", i)
		sums[i] = r.tell("sum")
	}
	list := s.ps()
	if len(list) != n {
		t.Fatalf("ps lists %d programs", len(list))
	}
	names := map[string]bool{}
	for _, p := range list {
		names[p.Name] = true
	}
	if len(names) != n {
		t.Errorf("%d names for %d programs", len(names), n)
	}
	// Several checkpoints at once, of different programs.
	errs := make(chan error, 8)
	for i := range 8 {
		wg.Go(func() {
			_, err := s.try("checkpoint", fmt.Sprintf("t%d", i), "-o", s.path(fmt.Sprintf("images/%d", i)),
				"--leave-running", "--json")
			errs <- err
		})
	}
	wg.Wait()
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range 8 {
		s.ok("images", "verify", s.path(fmt.Sprintf("images/%d", i)))
	}
	for i, r := range programs {
		if got := r.tell("sum"); got != sums[i] {
			t.Errorf("%s: sum %s, want %s", r.name, got, sums[i])
		}
	}
	for _, r := range programs {
		r.send("exit 0")
	}
	for _, r := range programs {
		r.done()
	}
	s.until("an empty list", func() bool { return len(s.live()) == 0 })
}

// server returns who listens on a socket of the site.
func (s *site) server(socket string) int {
	s.t.Helper()
	c, err := net.Dial("unix", filepath.Join(s.dir, socket))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	cred, err := syscall.GetsockoptUcred(int(f.Fd()), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		s.t.Fatal(err)
	}
	return int(cred.Pid)
}

// usage is what a process holds that could leak.
type usage struct {
	descriptors, maps, threads int
}

func usageOf(t *testing.T, pid int) usage {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir(filepath.Join(proc, "task"))
	if err != nil {
		t.Fatal(err)
	}
	return usage{len(fds), bytes.Count(maps, []byte("memfd")), len(threads)}
}

// 1000 programs that come and go leave nothing behind.
func TestShortLived(t *testing.T) {
	s := newSite(t)
	s.teller("stays") // keeps daemon and software GPU up, so that both can be looked at
	run := func(n int) {
		work := make(chan struct{}, n)
		for range n {
			work <- struct{}{}
		}
		close(work)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range work {
					if _, err := s.try("run", "--gpu=soft", "--", built.vecadd, "256"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	settled := func() { s.until("a list of one", func() bool { return len(s.live()) == 1 }) }
	run(40) // what is opened once is opened
	settled()
	servers := map[string]int{"daemon": s.server("daemon.sock"), "softgpu": s.server("gpu.sock")}
	before := map[string]usage{}
	for name, pid := range servers {
		before[name] = usageOf(t, pid)
	}
	files := listDir(t, s.dir)
	n := 1000
	if testing.Short() {
		n = 100
	}
	run(n)
	settled()
	for name, pid := range servers {
		now := usageOf(t, pid)
		was := before[name]
		// A few threads and descriptors come and go with the Go runtime and with open requests.
		if now.descriptors > was.descriptors+8 || now.maps > was.maps+4 || now.threads > was.threads+16 {
			t.Errorf("%s: %+v before, %+v after %d programs", name, was, now, n)
		}
	}
	if now := listDir(t, s.dir); now != files {
		t.Errorf("the runtime directory had\n%s\nand now has\n%s", files, now)
	}
}

func listDir(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, "\n")
}

// Another user can neither list nor checkpoint, whether the directory is closed to them or
// the sockets were opened by mistake.
func TestOtherUser(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	const nobody = 65534
	as := func(args ...string) (string, error) {
		cmd := s.command(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
		// The binary itself may lie where another user cannot reach it.
		cmd.Path = publicCopy(t)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := as("ps"); err == nil {
		t.Errorf("another user lists programs:\n%s", out)
	}
	for _, name := range []string{"", "daemon.sock", "shim.sock", "gpu.sock"} {
		if err := os.Chmod(filepath.Join(s.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	out, err := as("ps", "--json")
	if err == nil || !strings.Contains(out, `"denied"`) {
		t.Errorf("with open sockets another user's ps ends with %v:\n%s", err, out)
	}
	if out, err := as("checkpoint", "teller", "-o", "/tmp/hf-nobody", "--gpu-only"); err == nil {
		t.Errorf("another user checkpoints:\n%s", out)
	}
	os.Chmod(s.dir, 0o700)
	r.tell("sum")
}

func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-public-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("cp", built.holdfast, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// The daemon's death takes no program with it, and the next one takes over.
func TestDaemonDeath(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(100)
	for range 3 {
		s.killDaemon()
		r.runOn(10)
		s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
		s.until("the program is held again", func() bool {
			p := s.process("train")
			return p != nil && p.State == api.StateRunning && p.ResidentBytes >= 8<<20
		})
	}
	// A verb that means a program finds a daemon to ask.
	s.killDaemon()
	s.ok("checkpoint", "train", "-o", s.path("img"), "--leave-running")
	r.kill()
	again := r.restored(s.path("img"))
	again.done()
	again.mustEqualReference("--pad", "8")
}
