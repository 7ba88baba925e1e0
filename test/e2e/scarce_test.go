package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/daemon/api"
)

// newFilled starts a program with memory, and returns what that adds up to.
func newFilled(s *site) (r *teller, sum string) {
	s.t.Helper()
	r = s.teller("teller")
	r.tell("alloc 6")
	r.tell("fill 3")
	return r, r.tell("sum")
}

// isBack waits until the program runs, and checks its memory.
func (r *teller) isBack(sum string) {
	r.s.t.Helper()
	r.s.until("the program runs", func() bool {
		p := r.s.process(r.name)
		return p != nil && p.State == api.StateRunning
	})
	if got := r.tell("sum"); got != sum {
		r.s.t.Errorf("sum %s, want %s", got, sum)
	}
}

// A program that may have no descriptors cannot come back. Once it may, it is back soon.
func TestResumeOfAStarvedProgram(t *testing.T) {
	s := newSite(t)
	s.daemon("--patience", "1s")
	r, sum := newFilled(s)
	pid := s.process("teller").PID
	s.ok("suspend", "teller")
	feed := starve([]int{pid})
	if _, err := s.try("resume", "teller"); err == nil {
		t.Error("it was resumed without descriptors")
	}
	feed()
	begun := time.Now()
	r.isBack(sum)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it was back %v after it had descriptors again", took)
	}
}

// A daemon that runs out of descriptors somewhere in an operation loses that operation, and not its software GPU.
func TestStarvedDaemon(t *testing.T) {
	s := newSite(t)
	s.daemon("--patience", "1s")
	r, sum := newFilled(s)
	daemon := s.server("daemon.sock")
	failed := 0
	for spare := range 16 {
		s.ok("suspend", "teller")
		feed := leave(t, daemon, spare+1)
		if _, err := s.try("resume", "teller"); err != nil {
			failed++
		}
		feed()
		if p := s.process("teller"); p != nil && p.State == api.StateSuspended {
			// On a busy machine it may take more than the daemon's patience.
			if _, err := s.try("resume", "teller"); err != nil && !strings.Contains(err.Error(), "not come back yet") {
				t.Fatal(err)
			}
		}
		r.isBack(sum)
	}
	if failed == 0 {
		t.Error("it never lacked descriptors")
	}
	if now := s.server("daemon.sock"); now != daemon {
		t.Error("another daemon serves")
	}
}

// leave lets a process have only so many descriptors more.
func leave(t *testing.T, pid, spare int) (feed func()) {
	t.Helper()
	open := map[string]bool{}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		open[e.Name()] = true
	}
	limit := uint64(0)
	for ; spare > 0 || open[fmt.Sprint(limit)]; limit++ {
		if !open[fmt.Sprint(limit)] {
			spare--
		}
	}
	var had unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &l, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: limit, Max: had.Max})
	return func() { set(had) }
}

// The software GPU dies while a program is suspended: nothing of the program is in it, and the next one takes it.
func TestSoftwareGPUDiesUnderSuspended(t *testing.T) {
	for _, to := range [][]string{{"host"}, {"disk", "-o", "image"}, {"gpu"}} {
		t.Run(to[0], func(t *testing.T) {
			s := newSite(t)
			s.daemon("--patience", "1m")
			r, sum := newFilled(s)
			s.ok(append([]string{"suspend", "teller", "--to"}, to...)...)
			s.killSoftwareGPU()
			s.ok("resume", "teller")
			r.isBack(sum)
			s.ok("checkpoint", "teller", "-o", s.path("after"), "--gpu-only")
		})
	}
}

// killSoftwareGPU returns when it is gone.
func (s *site) killSoftwareGPU() {
	s.t.Helper()
	pid := s.server("gpu.sock")
	syscall.Kill(pid, syscall.SIGKILL)
	s.until("the end of the software GPU", func() bool { return !alive(pid) })
}

// The software GPU dies when a program has its contexts there again and not yet its memory: that cannot come back. It
// is said, and nothing is left when the program is ended.
func TestSoftwareGPUDiesUnderComeback(t *testing.T) {
	s := newSite(t)
	s.daemon("--patience", "1s")
	newFilled(s)
	pid := s.process("teller").PID
	s.ok("suspend", "teller")
	feed := leave(t, pid, 1) // enough for its driver, too little for the daemon
	if _, err := s.try("resume", "teller"); err == nil {
		t.Fatal("it was resumed without descriptors")
	}
	s.until("its driver is restored", func() bool {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		return slices.ContainsFunc(names, func(name string) bool {
			comm, _ := os.ReadFile(name)
			return string(comm) == "cuda-softgpu\n"
		})
	})
	s.killSoftwareGPU()
	feed()
	s.until("ps says that it does not come back", func() bool {
		p := s.process("teller")
		return p != nil && slices.ContainsFunc(p.Caveats, func(c api.Caveat) bool { return c.Code == "not-back" })
	})
	if says := s.fails(1, "resume", "teller"); !strings.Contains(says, fmt.Sprintf("kill -9 %d", pid)) {
		t.Errorf("resume says: %s", says)
	}
	s.endProgram(pid)
	s.until("nothing is held any more", func() bool {
		return len(s.live()) == 0 && s.kept() == 0 && len(s.suspended()) == 0
	})
}
