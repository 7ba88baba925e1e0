package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"
)

// daemon starts a daemon with flags of its own, before anybody else does.
func (s *site) daemon(flags ...string) {
	s.t.Helper()
	cmd := s.command(append([]string{"daemon", "--dir", s.dir}, flags...)...)
	log, err := os.OpenFile(filepath.Join(s.dir, "daemon.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go cmd.Wait()
	daemon := client.Client{Dir: s.dir} // which starts none, as commands do: it might come first
	s.until("the daemon answers", func() bool {
		_, err := daemon.Processes(s.t.Context())
		return err == nil
	})
}

func (s *site) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "daemon.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// status returns a field of /proc/PID/status, or of one of its threads.
func status(path, field string) string {
	text, err := os.ReadFile(filepath.Join("/proc", path, "status"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func stopped(pid int) bool { return strings.HasPrefix(status(strconv.Itoa(pid), "State"), "T") }

// signalled says whether a thread of a process has the signal that wakes it and cannot take it yet.
func signalled(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, t := range tasks {
		set, _ := strconv.ParseUint(status(strings.TrimPrefix(t, "/proc/"), "SigPnd"), 16, 64)
		if set&(1<<62) != 0 { // SIGRTMAX-1
			return true
		}
	}
	return false
}

// What could not come back is refused before anything is taken from it.
func TestNoWayBack(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 2")
	r.tell("fill 1")
	sum := r.tell("sum")
	r.tell("user 65534")
	for _, args := range [][]string{
		{"checkpoint", "teller", "-o", s.path("img"), "--leave-running"},
		{"suspend", "teller"},
		{"suspend", "teller", "--to", "gpu"},
	} {
		if text := s.fails(1, args...); !strings.Contains(text, "is user 65534 now") {
			t.Errorf("%v does not say why:\n%s", args, text)
		}
		if p := s.process("teller"); p == nil || p.State != api.StateRunning {
			t.Fatalf("after %v: %+v", args, p)
		}
		if got := r.tell("sum"); got != sum {
			t.Fatalf("after %v: sum %s, want %s", args, got, sum)
		}
	}
	if !strings.Contains(s.log(), "level=WARN msg=suspend") {
		t.Errorf("the log does not say that it was refused:\n%s", s.log())
	}
}

// A program in a mount namespace of its own cannot be dumped, which is known before it is frozen. It can be
// suspended: it sees our socket.
func TestOwnMounts(t *testing.T) {
	s := newSite(t)
	r := s.tellerBy("teller", []string{"unshare", "--mount"})
	r.expect("ready")
	r.tell("alloc 2")
	r.tell("fill 1")
	sum := r.tell("sum")
	if text := s.fails(1, "checkpoint", "teller", "-o", s.path("img"), "--leave-running"); !strings.Contains(text,
		"mnt namespace") {
		t.Errorf("it does not say why:\n%s", text)
	}
	if !strings.Contains(s.log(), "outcome=refused") {
		t.Errorf("it was not refused but begun:\n%s", s.log())
	}
	s.ok("suspend", "teller")
	s.ok("resume", "teller")
	if got := r.tell("sum"); got != sum {
		t.Fatalf("sum %s, want %s", got, sum)
	}
}

// A program that cannot come back because it is stopped is not given up: whoever asked hears of it in time, ps shows
// it, and when it is continued it has its memory.
func TestStoppedOnItsWayBack(t *testing.T) {
	s := newSite(t)
	s.daemon("--patience", "3s")
	r := s.teller("teller")
	r.tell("alloc 4")
	r.tell("fill 3")
	sum := r.tell("sum")
	pid := s.process("teller").PID
	for _, to := range []string{"gpu", "host"} {
		s.ok("suspend", "teller", "--to", to)
		syscall.Kill(pid, syscall.SIGSTOP)
		s.until("the program is stopped", func() bool { return stopped(pid) })
		if text := s.fails(1, "resume", "teller"); !strings.Contains(text, "restoring") {
			t.Errorf("resume says:\n%s", text)
		}
		if p := s.process("teller"); p == nil || p.State != api.StateRestoring {
			t.Fatalf("ps: %+v", p)
		}
		if text := s.fails(1, "resume", "teller"); !strings.Contains(text, "busy") && !strings.Contains(text,
			"is restoring") {
			t.Errorf("another resume says:\n%s", text)
		}
		syscall.Kill(pid, syscall.SIGCONT)
		s.until("the program runs", func() bool {
			p := s.process("teller")
			return p != nil && p.State == api.StateRunning
		})
		if got := r.tell("sum"); got != sum {
			t.Fatalf("sum %s, want %s", got, sum)
		}
		if signalled(pid) {
			t.Error("it has been woken more often than it slept")
		}
		if left := s.suspended(); len(left) != 0 {
			t.Errorf("it is not suspended any more, but there is %v", left)
		}
	}
	s.ok("checkpoint", "teller", "-o", s.path("img"), "--leave-running")
}

// A daemon that dies with a program released is followed by another one, although nobody runs any command.
func TestKeeperStartsDaemon(t *testing.T) {
	s := newSite(t)
	s.daemon("--log-level", "debug")
	r := s.teller("teller")
	r.tell("alloc 4")
	r.tell("fill 3")
	sum := r.tell("sum")
	pid := s.process("teller").PID
	s.ok("suspend", "teller", "--to", "gpu")
	syscall.Kill(pid, syscall.SIGSTOP)
	s.until("the program is stopped", func() bool { return stopped(pid) })
	cmd := s.command("resume", "teller")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.until("the program is being brought back", func() bool { return strings.Contains(s.log(), "coming back") })
	s.killDaemon()
	cmd.Wait()
	syscall.Kill(pid, syscall.SIGCONT)
	if got := r.tell("sum"); got != sum { // it answers
		t.Fatalf("sum %s, want %s", got, sum)
	}
	s.until("ps says that it runs", func() bool { // a moment after it does
		p := s.process("teller")
		return p != nil && p.State == api.StateRunning
	})
}

// A program that is suspended to an image outlives the death of both daemon and keeper.
func TestSuspendOutlivesBoth(t *testing.T) {
	for _, to := range []string{"host", "disk"} {
		t.Run(to, func(t *testing.T) {
			s := newSite(t)
			r := s.teller("teller")
			r.tell("alloc 4")
			r.tell("fill 3")
			sum := r.tell("sum")
			args := []string{"suspend", "teller", "--to", to}
			if to == "disk" {
				args = append(args, "-o", s.path("img"))
			}
			s.ok(args...)
			// The keeper first: without it the daemon's death wakes nobody.
			for _, pid := range s.keepers() {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			s.killDaemon()
			s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
			if p := s.process("teller"); p == nil || p.State != api.StateSuspended {
				t.Fatalf("ps: %+v", p)
			}
			s.ok("resume", "teller")
			if got := r.tell("sum"); got != sum {
				t.Fatalf("sum %s, want %s", got, sum)
			}
			if left := s.suspended(); len(left) != 0 {
				t.Errorf("it is not suspended any more, but there is %v", left)
			}
		})
	}
}

// A program whose memory only daemon and keeper had does not stand still for ever when both are killed.
func TestLostWithBoth(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 4")
	runs := s.teller("runs")
	s.ok("suspend", "teller", "--to", "gpu")
	for _, pid := range s.keepers() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	s.killDaemon()
	s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
	r.wait()
	s.until("only the other one is held", func() bool {
		list := s.live()
		return len(list) == 1 && list[0].Name == "runs" && list[0].State == api.StateRunning
	})
	runs.tell("sum")
	if left, _ := filepath.Glob(filepath.Join(s.dir, "underway", "*")); len(left) > 0 {
		t.Errorf("records: %v", left)
	}
}

// suspended lists the records of programs that are suspended, or being rolled back.
func (s *site) suspended() []string {
	left, _ := filepath.Glob(filepath.Join(s.dir, "records", "*"))
	return left
}

// Of a program that dies while it is suspended nothing is left, whether a daemon saw it die or not.
func TestSuspendedDies(t *testing.T) {
	for _, c := range []struct {
		to     string
		unseen bool
	}{{"gpu", false}, {"host", false}, {"host", true}, {"gpu", true}} {
		t.Run(fmt.Sprintf("%s/unseen=%t", c.to, c.unseen), func(t *testing.T) {
			s := newSite(t)
			r := s.teller("teller")
			r.tell("alloc 4")
			r.tell("fill 3")
			pid := s.process("teller").PID
			s.ok("suspend", "teller", "--to", c.to)
			image := s.imageOf(t, c.to)
			if c.unseen {
				s.killDaemon()
			}
			syscall.Kill(pid, syscall.SIGKILL)
			r.wait()
			if c.unseen {
				s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
			}
			s.until("nothing is left", func() bool {
				_, err := os.Stat(image)
				return s.kept() == 0 && errors.Is(err, fs.ErrNotExist) && len(s.suspended()) == 0 && len(s.live()) == 0
			})
		})
	}
}

// imageOf returns the image of the one suspended program, or the name of a file that does not exist.
func (s *site) imageOf(t *testing.T, to string) string {
	if to == "gpu" {
		if s.kept() == 0 {
			t.Fatal("the keeper keeps nothing")
		}
		return s.path("none")
	}
	files := s.suspended()
	if len(files) != 1 {
		t.Fatalf("records: %v", files)
	}
	text, err := os.ReadFile(files[0])
	var rec struct{ Image string }
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err == nil {
		_, err = os.Stat(rec.Image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec.Image
}
