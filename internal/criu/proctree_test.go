package criu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
)

// A process that has the number of another one, which it got later, is not killed in its place, nor continued.
func TestKillOnlyWhoIsMeant(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	s, err := procstat.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := Kill(pid, s.Start-1, time.Second); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("with the start of another process: %v", err)
	}
	if err := Kill(pid, 0, time.Second); !errors.Is(err, errUnknown) {
		t.Errorf("with no start: %v", err)
	}
	if err := Resume(pid, s.Start+1); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("resume with the start of another process: %v", err)
	}
	killOne(procstat.Stat{PID: pid, Start: s.Start - 1})
	if s, err := procstat.Read(pid); err != nil || s.State == 'Z' {
		t.Fatalf("it is not alive: %v", err)
	}
	if err := Kill(pid, s.Start, 10*time.Second); err != nil {
		t.Error(err)
	}
	if s, err := procstat.Read(pid); err != nil || s.State != 'Z' {
		t.Errorf("it is still alive: %v", err)
	}
}

// Who cannot look at a process for want of descriptors does not say that it has ended, and ends it when there are some.
func TestKillWithoutDescriptors(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	s, err := procstat.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 100, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var open []*os.File
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		open = append(open, f)
	}
	var errs []error
	_, err = tryHoldTree(s.PID, s.Start)
	errs = append(errs, err)
	if len(open) > 0 {
		open[0].Close() // enough for a pidfd, which is not enough to look at the process
		_, err = tryHoldTree(s.PID, s.Start)
		errs = append(errs, err)
		defer func() {
			for _, f := range open {
				f.Close()
			}
		}()
	}
	killed := make(chan error)
	go func() { killed <- Kill(s.PID, s.Start, 10*time.Second) }()
	time.Sleep(20 * time.Millisecond) // so that it mostly begins while they are scarce
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, err := range errs {
		if !scarce(err) || errors.Is(err, syscall.ESRCH) {
			t.Errorf("without descriptors: %v", err)
		}
	}
	if err := <-killed; err != nil {
		t.Error(err)
	}
}

// What Dump refuses is refused beforehand as well.
func TestPrecheck(t *testing.T) {
	c := tool(t)
	tg := exec.Command("setsid", "sleep", "1000")
	if err := tg.Start(); err != nil {
		t.Fatal(err)
	}
	defer tg.Wait()
	defer tg.Process.Kill()
	if err := c.Precheck(tg.Process.Pid); err != nil {
		t.Error(err)
	}
	var refused *DumpError
	own := exec.Command("unshare", "--net", "setsid", "sleep", "1000")
	if err := own.Start(); err != nil {
		t.Skip(err)
	}
	defer own.Wait()
	defer own.Process.Kill()
	for !ownNamespace(own.Process.Pid, "net") {
		if own.Process.Signal(syscall.Signal(0)) != nil {
			t.Skip("no namespaces here")
		}
		time.Sleep(time.Millisecond) // between two looks
	}
	if err := c.Precheck(own.Process.Pid); !errors.As(err, &refused) {
		t.Errorf("a process in a namespace of its own: %v", err)
	}
}

// Who restores a process knows when it started before it has come back altogether.
func TestBorn(t *testing.T) {
	c := tool(t)
	p := start(t, [3]*os.File{}, "memory=8")
	p.tick()
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
	p.kill()
	var born []uint64
	pid, err := c.Restore(t.Context(), RestoreOptions{Dir: dir, Born: func(start uint64) {
		born = append(born,
			start)
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer (&target{t: t, pid: pid}).kill()
	s, err := procstat.Read(pid)
	if err != nil || len(born) != 1 || born[0] != s.Start {
		t.Errorf("born at %v, started at %d (%v)", born, s.Start, err)
	}
}

// Whoever restores a process learns that it has ended while CRIU, whose child it is not, still waits for it.
func TestWatchRoot(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	born, died := make(chan uint64, 1), make(chan bool)
	stop := watchRoot(cmd.Process.Pid, func(start uint64) { born <- start }, func() { close(died) })
	if s, err := procstat.Read(cmd.Process.Pid); err != nil || <-born != s.Start {
		t.Error("born at another time", err)
	}
	cmd.Process.Kill() // it stays a zombie until Wait
	<-died
	stop(false)
	cmd.Wait()
}

// A program that stood still under a job control signal when it was dumped runs when it is restored.
func TestRestoreStopped(t *testing.T) {
	c := tool(t)
	p := start(t, [3]*os.File{}, "memory=8")
	p.tick()
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for s, err := procstat.Read(p.pid); s.State != 'T'; s, err = procstat.Read(p.pid) {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir})
	p.kill()
	restored(t, c, dir).tick()
}

// What CRIU says of numbers that are taken.
func TestNumberTaken(t *testing.T) {
	for text, want := range map[string]bool{
		"Unable to create a thread: -17; Restorer fail 29725": true,
		"process id 4711 is in use":                           true,
		"Pid 12 do not match expected 13":                     true,
		"Can't open file /x: No such file or directory":       false,
	} {
		if numberTaken.MatchString(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}
