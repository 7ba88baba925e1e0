package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/daemon/api"
)

// A rolled is a program with two states: that of an image, and the one that it is in.
type rolled struct {
	*teller
	img           string
	first, second string // what its memory adds up to in the image, and now
	pid           int
}

// newRolled makes one. Its module has a variable, 41 in the image and 42 now.
func newRolled(s *site, prepare func()) *rolled {
	s.t.Helper()
	r := &rolled{teller: s.teller("teller"), img: s.path("img")}
	r.tell("alloc 48")
	r.tell("fill 1")
	r.tell("bump 1")
	prepare()
	r.first = r.tell("sum")
	r.checkpoint(r.img)
	r.change()
	r.pid = s.process("teller").PID
	return r
}

// checkpoint makes an image. A short lease may be over on a busy machine: that costs a checkpoint, which is made again.
func (r *rolled) checkpoint(img string) {
	r.s.t.Helper()
	for i := 0; ; i++ {
		_, err := r.s.try("checkpoint", "teller", "-o", img, "--gpu-only")
		if err == nil {
			return
		}
		if i == 20 || !strings.Contains(err.Error(), "as when this daemon hangs") {
			r.s.t.Fatal(err)
		}
	}
}

func (r *rolled) change() {
	r.tell("fill 2")
	r.tell("bump 1")
	r.second = r.tell("sum")
}

// cut begins rollbacks until cut is called in the middle of one, which has not ended then. What it returns ends with
// that rollback.
func (r *rolled) cut(cut func()) *exec.Cmd {
	s := r.s
	s.t.Helper()
	for range 20 {
		seen := strings.Count(s.log(), "it is being overwritten")
		cmd := s.command("rollback", "teller", r.img)
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.until("its memory is being overwritten", func() bool {
			return strings.Count(s.log(), "it is being overwritten") > seen
		})
		server := s.server("gpu.sock") // nothing is filled while it stands still
		syscall.Kill(server, syscall.SIGSTOP)
		s.until("the software GPU is stopped", func() bool { return stopped(server) })
		over := !strings.Contains(strings.Join(s.suspended(), " "), ".json")
		if !over {
			cut()
		}
		syscall.Kill(server, syscall.SIGCONT)
		if !over {
			return cmd
		}
		cmd.Wait() // it was too quick
		r.change()
	}
	s.t.Fatal("no rollback could be cut short")
	return nil
}

// isRolledBack waits until the program runs with all that the image has, and nothing is left of the rollback.
func (r *rolled) isRolledBack() {
	s := r.s
	s.t.Helper()
	s.until("the program runs", func() bool {
		if !r.running() {
			s.t.Fatalf("it has ended with %d:\n%s", r.status, r.text())
		}
		p := s.process("teller")
		return p != nil && p.State == api.StateRunning
	})
	if got := r.tell("sum"); got != r.first {
		s.t.Errorf("sum %s, want %s; it was %s before", got, r.first, r.second)
	}
	if got := r.tell("count"); got != "41" {
		s.t.Errorf("the variable is %s, want 41", got)
	}
	if left := s.suspended(); len(left) != 0 {
		s.t.Errorf("left: %v", left)
	}
	s.until("the keeper has nothing", func() bool { return s.kept() == 0 })
	// Its memory is held as before.
	r.checkpoint(s.path("after"))
}

// A rollback that is cut short is finished, variables and all, whoever dies of daemon and keeper, and also of memory
// that the program cannot export again.
func TestRollbackCutShort(t *testing.T) {
	for _, imported := range []bool{false, true} {
		for _, both := range []bool{false, true} {
			name := map[bool]string{true: "daemon and keeper", false: "daemon"}[both] +
				map[bool]string{true: ", imported memory"}[imported]
			t.Run(name, func(t *testing.T) {
				s := newSite(t)
				s.daemon("--log-level", "debug")
				r := newRolled(s, func() {
					if imported {
						s.ok("suspend", "teller", "--to", "gpu")
						s.ok("resume", "teller")
					}
				})
				cmd := r.cut(func() {
					if both { // the keeper first: without it the daemon's death wakes nobody
						for _, pid := range s.keepers() {
							syscall.Kill(pid, syscall.SIGKILL)
						}
					}
					s.killDaemon()
				})
				if cmd.Wait() == nil {
					t.Error("the rollback has succeeded without its daemon")
				}
				if both {
					s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
				}
				r.isRolledBack()
			})
		}
	}
}

// A program of whose rollback nothing is known any more stays shut, says so, and can be rolled back.
func TestRollbackForgotten(t *testing.T) {
	s := newSite(t)
	s.daemon("--log-level", "debug")
	r := newRolled(s, func() {})
	r.cut(func() {
		for _, pid := range s.keepers() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		s.killDaemon()
		for _, f := range s.suspended() {
			if err := syscall.Unlink(f); err != nil {
				t.Fatal(err)
			}
		}
	}).Wait()
	s.ok("run", "--gpu=soft", "--", "true") // brings a daemon up
	s.until("it is held again, and does not run", func() bool {
		p := s.process("teller")
		return p != nil && p.State == api.StateRestoring && len(p.Caveats) > 0
	})
	sum := r.send("sum")
	if text := s.ok("ps"); !strings.Contains(text, "rollback") {
		t.Errorf("ps does not say what to do:\n%s", text)
	}
	if text := s.fails(1, "checkpoint", "teller", "-o", s.path("half"), "--gpu-only"); !strings.Contains(text,
		"rollback") {
		t.Errorf("checkpoint does not say what to do:\n%s", text)
	}
	s.ok("rollback", "teller", r.img)
	if got := strings.TrimPrefix(r.expect(sum), "ok "); got != r.first {
		t.Errorf("what waited behind the gate: sum %s, want %s", got, r.first)
	}
	r.isRolledBack()
}

// A daemon that hangs in a rollback does not make the program run with half of its memory, however long it hangs.
func TestRollbackHangs(t *testing.T) {
	s := newSite(t)
	const lease = 2 * time.Second // checkpoints must not lose theirs on a busy machine
	s.daemon("--log-level", "debug", "--lease", lease.String())
	r := newRolled(s, func() {})
	server := s.server("daemon.sock")
	cmd := r.cut(func() {
		syscall.Kill(server, syscall.SIGSTOP)
		s.until("the daemon is stopped", func() bool { return stopped(server) })
	})
	tag := r.send("sum")
	time.Sleep(2 * lease) // that nothing happens can only be seen by waiting
	if got := r.answered(tag); got != "" {
		t.Errorf("it runs: %s", got)
	}
	syscall.Kill(server, syscall.SIGCONT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("rollback: %v", err)
	}
	if got := strings.TrimPrefix(r.expect(tag), "ok "); got != r.first {
		t.Errorf("sum %s, want %s", got, r.first)
	}
	r.isRolledBack()
}

// A daemon that hangs in a checkpoint costs the checkpoint, and the program only the time of its lease.
func TestCheckpointHangs(t *testing.T) {
	s := newSite(t)
	s.daemon("--log-level", "debug", "--lease", "2s")
	r := s.teller("teller")
	r.tell("alloc 48")
	r.tell("fill 1")
	server := s.server("daemon.sock")
	gpu := s.server("gpu.sock")
	img := s.path("img")
	for range 20 {
		seen := strings.Count(s.log(), "it stands still")
		cmd := s.command("checkpoint", "teller", "-o", img, "--gpu-only", "--mode", "stop")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.until("it stands still", func() bool { return strings.Count(s.log(), "it stands still") > seen })
		syscall.Kill(gpu, syscall.SIGSTOP) // nothing is captured meanwhile
		syscall.Kill(server, syscall.SIGSTOP)
		s.until("the daemon is stopped", func() bool { return stopped(server) })
		syscall.Kill(gpu, syscall.SIGCONT)
		r.tell("fill 3") // it runs: by itself, or because the checkpoint was quicker
		alone := strings.Contains(r.text(), "it goes on")
		syscall.Kill(server, syscall.SIGCONT)
		err := cmd.Wait()
		if !alone {
			s.ok("images", "rm", img)
			continue
		}
		if err == nil {
			t.Error("the checkpoint of a program that ran meanwhile has succeeded")
		}
		if left := listDir(t, s.work); strings.Contains(left, "img") {
			t.Errorf("left: %s", left)
		}
		s.until("it is held again", func() bool {
			p := s.process("teller")
			return p != nil && p.State == api.StateRunning
		})
		s.ok("checkpoint", "teller", "-o", img, "--gpu-only")
		return
	}
	t.Error("the daemon could not be stopped in the middle of a checkpoint")
}
