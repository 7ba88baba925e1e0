package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/daemon/api"
)

// The first cycle: run, checkpoint while it runs, kill, restore, and nobody can tell.
func TestCycle(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 600, "--pad", "16")
	r.reach(100)
	p := s.process("train")
	if p == nil || p.GPU != "soft" || p.State != api.StateRunning || p.Launches == 0 || p.ResidentBytes < 16<<20 {
		t.Fatalf("ps: %+v", p)
	}
	c := into[api.CheckpointResult](s, "checkpoint", "train", "-o", s.path("img"), "--leave-running")
	if c.StallMS <= 0 || c.Bytes < 16<<20 || c.ChunksNew == 0 || c.Digest == "" || c.Kind != "full" || c.Mode == "" ||
		len(c.Steps) == 0 {
		t.Fatalf("checkpoint: %+v", c)
	}
	r.runOn(20)
	s.ok("images", "verify", s.path("img"))
	r.kill()
	again := r.restored(s.path("img"))
	again.done()
	again.mustEqualReference("--pad", "16")
}

// A PID serves as well as a name, and a program that runs on after a checkpoint ends as it
// would have.
func TestLeaveRunning(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400)
	for i, name := range []string{"a", "b", "c"} {
		r.reach(80 * (i + 1))
		s.ok("checkpoint", s.pid("train"), "-o", s.path(name), "--leave-running", "--json")
	}
	r.done()
	r.mustEqualReference()
	for line := range strings.Lines(s.log()) { // who asked for what, and what came of it
		if strings.Contains(line, "msg=checkpoint") && !(strings.Contains(line, " client=") &&
			strings.Contains(line, " uid=0 ") && strings.Contains(line, " outcome=done ")) {
			t.Errorf("the log says: %s", line)
		}
	}
	if n := strings.Count(s.log(), "msg=checkpoint"); n != 3 {
		t.Errorf("the log has %d lines of 3 checkpoints", n)
	}
}

// The memory of a program that came to its own end is free at once; that of a killed one is
// kept for a warm restore.
func TestOwnEnd(t *testing.T) {
	s := newSite(t)
	dead := func() bool {
		return slices.ContainsFunc(s.ps(), func(p api.Process) bool { return p.State == api.StateDead })
	}
	r := s.teller("teller")
	r.tell("alloc 2")
	s.ok("checkpoint", "teller", "-o", s.path("img"), "--leave-running")
	r.send("exit 0")
	r.done()
	s.until("the end of the program", func() bool { return s.process("teller") == nil })
	if dead() {
		t.Error("the memory of a program that ended is kept")
	}
	k := s.teller("killed")
	k.tell("alloc 2")
	s.ok("checkpoint", "killed", "-o", s.path("other"), "--leave-running")
	k.kill()
	s.until("the end of the program", func() bool { return s.process("killed") == nil })
	if !dead() {
		t.Error("the memory of a program that was killed is not kept")
	}
}

// Memory that is only kept for a warm restore goes to the first program that finds none.
func TestRoom(t *testing.T) {
	s := newSite(t, "HOLDFAST_SOFTGPU_MEM="+strconv.Itoa(64<<20))
	dead := func() bool {
		return slices.ContainsFunc(s.ps(), func(p api.Process) bool { return p.State == api.StateDead })
	}
	r := s.teller("teller")
	r.tell("alloc 24")
	r.tell("fill 3")
	sum := r.tell("sum")
	s.ok("checkpoint", "teller", "-o", s.path("img"), "--leave-running")
	r.kill()
	s.until("the end of the program", func() bool { return s.process("teller") == nil })
	o := s.teller("other")
	o.tell("try 8")
	if !dead() {
		t.Fatal("the memory of the killed program is not kept")
	}
	o.tell("try 48") // there is as much when the dead one's is let go of
	if dead() {
		t.Error("a program needed more memory than was free, but that of a dead one is still kept")
	}
	if got := o.ask("try 100"); got != "error 2" {
		t.Errorf("more than there is: %s", got)
	}
	// The image is all that is needed.
	if got := r.restored(s.path("img")).tell("sum"); got != sum {
		t.Errorf("sum %s after the restore, want %s", got, sum)
	}
}

func (s *site) pid(name string) string {
	s.t.Helper()
	p := s.process(name)
	if p == nil {
		s.t.Fatalf("%s is not held", name)
	}
	return itoa(p.PID)
}

// Without --leave-running a checkpoint ends the program; the daemon keeps its memory, so
// the restore is warm.
func TestCheckpointEnds(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(100)
	pid := s.process("train").PID
	s.ok("checkpoint", "train", "-o", s.path("img"), "--json")
	if status := r.wait(); status != 128+int(syscall.SIGKILL) {
		t.Fatalf("holdfast run ended with %d", status)
	}
	if !strings.Contains(r.text(), "holdfast restore "+s.path("img")) {
		t.Errorf("holdfast run does not say how to go on:\n%s", r.text())
	}
	if n := s.kept(); n != 0 {
		t.Errorf("the keeper holds %d descriptors of a program that has ended", n)
	}
	back := into[api.RestoreResult](s, "restore", s.path("img"), "--detach")
	if back.PID != pid || !back.Warm || back.Source != "warm" || len(back.Steps) == 0 {
		t.Fatalf("restore: %+v", back)
	}
	r.finish()
	s.until("the end of the restored program", func() bool { _, err := os.Stat(r.out); return err == nil })
	s.until("the end of the restored program", func() bool { return syscall.Kill(pid, 0) != nil })
	r.mustEqualReference("--pad", "8")
}

// What holdfast says of how a killed program goes on works: only images that have the process are named.
func TestKilledAfterCheckpoints(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		name  string
		kinds []string
		want  string
	}{
		{"memory", []string{"--gpu-only"}, ""},
		{"whole", []string{"--leave-running", "--gpu-only"}, "img0"},
	} {
		r := s.teller(c.name)
		r.tell("alloc 2")
		for i, kind := range c.kinds {
			s.ok("checkpoint", c.name, "-o", s.path(c.name+"/img"+strconv.Itoa(i)), kind)
		}
		r.kill()
		_, rest, named := strings.Cut(r.text(), "holdfast restore ")
		if got := strings.TrimSpace(rest); named != (c.want != "") || named && got != s.path(c.name+"/"+c.want) {
			t.Errorf("%v: it is to go on with %q", c.kinds, got)
		}
		if kept := len(s.ps()); (kept > 0) != named {
			t.Errorf("%v: the memory of %d programs is kept", c.kinds, kept)
		}
	}
}

// After a reboot neither daemon nor software GPU know anything: the image is all there is.
func TestColdRestore(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(100)
	s.ok("checkpoint", "train", "-o", s.path("img"), "--json")
	r.wait()
	s.ok("daemon", "stop", "--force")
	s.ok("softgpu", "--stop")
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	again := r.restored(s.path("img"))
	again.done()
	again.mustEqualReference("--pad", "8")
}

// Every mode of copying gives a right image of a program that writes all the time.
func TestModes(t *testing.T) {
	for _, mode := range []string{"stage", "cow", "recopy", "stop", "auto"} {
		t.Run(mode, func(t *testing.T) {
			s := newSite(t)
			r := s.train("train", 400, "--pad", "8")
			r.reach(60)
			c := into[api.CheckpointResult](s, "checkpoint", "train", "-o", s.path("img"), "--leave-running",
				"--mode", mode)
			if mode != "auto" && c.Mode != mode && c.ModeReason == "" {
				t.Errorf("asked for %s, got %s without a reason", mode, c.Mode)
			}
			r.kill()
			again := r.restored(s.path("img"))
			again.done()
			again.mustEqualReference("--pad", "8")
		})
	}
}

// Where a GPU has no memory for a copy of everything, a checkpoint that leaves its program running copies on write.
func TestAutoWithoutRoom(t *testing.T) {
	s := newSite(t, "HOLDFAST_SOFTGPU_MEM="+strconv.Itoa(96<<20))
	r := s.train("train", 600, "--pad", "64")
	r.reach(30)
	c := into[api.CheckpointResult](s, "checkpoint", "train", "-o", s.path("img"), "--leave-running")
	if c.Mode != "cow" || c.ModeReason == "" {
		t.Errorf("mode %s (%s)", c.Mode, c.ModeReason)
	}
	r.kill()
	again := r.restored(s.path("img"))
	again.done()
	again.mustEqualReference("--pad", "64")
}

// Copy on write, of a program that writes to all of its memory all the time: the image is one moment of it. Writes that
// nobody can foresee are noticed, and cost another copy but nothing else.
func TestCow(t *testing.T) {
	for _, verb := range []string{"stir", "hide"} {
		for _, kind := range []string{"--gpu-only", "--leave-running"} {
			t.Run(verb+" "+kind, func(t *testing.T) {
				s := newSite(t)
				r := s.teller("teller")
				r.tell("alloc 128")
				tag := r.send("%s 0", verb)
				c := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("img"), kind, "--mode", "cow")
				if verb == "stir" && (c.Mode != "cow" || c.Mispredictions != 0) {
					t.Errorf("mode %s (%s), %d mispredictions, %d waits: %v", c.Mode, c.ModeReason, c.Mispredictions,
						c.Waits, c.Warnings)
				}
				// On a busy machine all may have drained before the program wrote again.
				if missed := verb == "hide" && c.Mispredictions > 0; missed != (c.Mode == "recopy") ||
					missed && !strings.Contains(strings.Join(c.Warnings, "\n"), "chase") {
					t.Errorf("mode %s (%s), %d mispredictions: %v", c.Mode, c.ModeReason, c.Mispredictions, c.Warnings)
				}
				r.tell("whole 0")
				said := r.expect(tag)
				all, err := strconv.Atoi(strings.TrimPrefix(said, "ok "))
				if err != nil {
					t.Fatal(said)
				}
				s.ok("rollback", "teller", s.path("img"))
				then, err := strconv.Atoi(r.tell("whole 0"))
				if err != nil || then >= all {
					t.Errorf("the image has %d writes of %d: %v", then, all, err)
				}
			})
		}
	}
}

// A table of indices says where a program writes. As long as it is as it was in the stall, all that launches write is
// known, and they wait for no more than that; when it changes all the time, they wait for all that they might write,
// and the image is right too.
func TestCowTables(t *testing.T) {
	for _, verb := range []string{"scatter", "shuffle"} {
		for _, kind := range []string{"--gpu-only", "--leave-running"} {
			t.Run(verb+" "+kind, func(t *testing.T) {
				s := newSite(t)
				r := s.teller("teller")
				r.tell("alloc 128")
				r.tell("fill 3")
				r.setCells(0)
				r.tell("table 0")
				tag := r.send("%s 0", verb)
				c := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("img"), kind, "--mode", "cow")
				t.Logf("%d guesses, %d known; %d waits, %.1f ms; %d chunks aside", c.Guesses, c.Known, c.Waits,
					c.WaitedMS, c.ChunksAside)
				if c.Mode != "cow" || c.Mispredictions != 0 {
					t.Errorf("mode %s (%s), %d mispredictions: %v", c.Mode, c.ModeReason, c.Mispredictions, c.Warnings)
				}
				// On a busy machine all may have drained before the program wrote again. The stall may lie between a
				// change of the table and the launch that uses it.
				if verb == "scatter" && c.Guesses > 0 || verb == "shuffle" && c.Known > 1 {
					t.Errorf("%d guesses, %d known", c.Guesses, c.Known)
				}
				r.tell("whole 0")
				all, err := strconv.Atoi(strings.TrimPrefix(r.expect(tag), "ok "))
				if err != nil {
					t.Fatal(err)
				}
				s.ok("rollback", "teller", s.path("img"))
				then, err := strconv.Atoi(r.tell("whole 0"))
				if err != nil || then >= all {
					t.Errorf("the image has %d writes of %d: %v", then, all, err)
				}
			})
		}
	}
}

// A second image stores only what changed.
func TestIncremental(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 32")
	r.tell("fill 7")
	first := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("images/1"), "--leave-running")
	if first.ChunksNew < 16 {
		t.Fatalf("the first image stored %d chunks", first.ChunksNew)
	}
	same := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("images/2"), "--leave-running")
	if same.ChunksNew != 0 || same.Digest != first.Digest {
		t.Errorf("nothing changed, but %d chunks are new (digest %s, then %s)", same.ChunksNew, first.Digest,
			same.Digest)
	}
	r.tell("poke 0 %d 99", 5<<20)
	one := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("images/3"), "--leave-running")
	if one.ChunksNew != 1 || one.Digest == first.Digest {
		t.Errorf("one word changed, but %d chunks are new (digest %s, then %s)", one.ChunksNew,
			first.Digest, one.Digest)
	}
	var stored int
	filepath.WalkDir(s.path("images/.holdfast-chunks"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			stored++
		}
		return nil
	})
	if want := first.ChunksNew + 1; stored != want {
		t.Errorf("the pool has %d chunks, want %d", stored, want)
	}
}

// Data of a live program, and back into it.
func TestRollback(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 8")
	r.tell("alloc 3")
	r.tell("fill 1")
	sum := r.tell("sum")
	r.tell("bump 2")
	c := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("img"), "--gpu-only")
	if c.Kind != "gpu-only" {
		t.Errorf("kind %q", c.Kind)
	}
	r.tell("fill 2")
	r.tell("bump 100")
	if r.tell("sum") == sum {
		t.Fatal("another pattern has the same sum: the test shows nothing")
	}
	back := into[api.RollbackResult](s, "rollback", "teller", s.path("img"))
	if back.BytesFilled < 11<<20 {
		t.Errorf("everything had changed, but only %d bytes were filled", back.BytesFilled)
	}
	if got := r.tell("sum"); got != sum {
		t.Fatalf("sum %s after the rollback, want %s", got, sum)
	}
	// A variable of its module too, which is no allocation.
	if got := r.tell("count"); got != "42" {
		t.Errorf("the variable is %s after the rollback, want 42", got)
	}
	if !slices.ContainsFunc(back.Warnings, func(w string) bool { return strings.Contains(w, "never asks for") }) {
		t.Errorf("rollback does not say what it leaves: %q", back.Warnings)
	}
	r.tell("bump 1")
	r.tell("poke 0 0 5")
	if back = into[api.RollbackResult](s, "rollback", "teller", s.path("img")); back.BytesFilled > 4<<20 {
		t.Errorf("one word had changed, but %d bytes were filled", back.BytesFilled)
	}
	if got := r.tell("sum"); got != sum {
		t.Fatalf("sum %s after the second rollback, want %s", got, sum)
	}
	if got := r.tell("count"); got != "42" {
		t.Errorf("the variable is %s after the second rollback, want 42", got)
	}

	// A gpu-only image is no process.
	if text := s.fails(1, "restore", s.path("img"), "--detach"); !strings.Contains(text, "gpu-only") {
		t.Errorf("restore of a gpu-only image says:\n%s", text)
	}
	// Memory that is new since is left alone. Where memory is missing: refused, nothing touched.
	r.tell("alloc 2")
	r.tell("poke 2 0 77")
	with := r.tell("sum")
	s.ok("rollback", "teller", s.path("img"))
	if got := r.tell("sum"); got != with {
		t.Errorf("rollback touched memory that is newer than the image")
	}
	r.tell("fill 3")
	r.tell("free 1")
	before := r.tell("sum")
	s.fails(1, "rollback", "teller", s.path("img"))
	if got := r.tell("sum"); got != before {
		t.Errorf("a refused rollback changed memory")
	}
	// Another program's image: refused.
	o := s.teller("other")
	s.fails(1, "rollback", "other", s.path("img"))
	o.tell("sum")
}

func TestSuspend(t *testing.T) {
	for _, to := range []string{"host", "disk", "gpu"} {
		t.Run(to, func(t *testing.T) {
			s := newSite(t)
			r := s.train("train", 400, "--pad", "8")
			r.reach(100)
			args := []string{"suspend", "train", "--to", to}
			if to == "disk" {
				args = append(args, "-o", s.path("img"))
			}
			res := into[api.SuspendResult](s, args...)
			if to != "gpu" && res.BytesFreed < 8<<20 {
				t.Errorf("freed %d bytes", res.BytesFreed)
			}
			if p := s.process("train"); p == nil || p.State != api.StateSuspended {
				t.Fatalf("ps: %+v", p)
			}
			at := r.step()
			s.fails(1, "checkpoint", "train", "-o", s.path("no"), "--gpu-only")
			if now := r.step(); now != at {
				t.Errorf("it went from step %d to %d while suspended", at, now)
			}
			s.ok("resume", "train")
			r.done()
			r.mustEqualReference("--pad", "8")
		})
	}
}

func TestExitStatus(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		script string
		status int
	}{
		{"exit 0", 0}, {"exit 7", 7}, {"kill -TERM $$", 128 + 15}, {"kill -SEGV $$", 128 + 11},
	} {
		r, _ := s.try("run", "--gpu=soft", "--", "sh", "-c", c.script)
		if r.status != c.status {
			t.Errorf("sh -c %q ended with %d, want %d: %s", c.script, r.status, c.status, r.stderr)
		}
	}
	s.fails(127, "run", "--gpu=soft", "--", "/no/such/program")
	s.fails(126, "run", "--gpu=soft", "--", s.work)

	// Input, output and signals are the program's.
	cmd := s.command("run", "--gpu=soft", "--name", "sh", "--", "sh", "-c",
		`trap 'echo got; exit 9' USR1; echo ready; while :; do read -r _ || :; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	read := func() string {
		buf := make([]byte, 64)
		n, _ := out.Read(buf)
		return string(buf[:n])
	}
	if got := read(); got != "ready\n" {
		t.Fatalf("it says %q", got)
	}
	cmd.Process.Signal(syscall.SIGUSR1)
	in.Write([]byte("x\n"))
	if got := read(); got != "got\n" {
		t.Errorf("after the signal it says %q", got)
	}
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 9 {
		t.Errorf("it ended with %d, want 9", status)
	}
}

// What cannot be held is named in ps and when a checkpoint is asked for, before anything
// is stopped.
func TestCaveat(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	if answer := r.ask("managed"); !strings.HasPrefix(answer, "ok") {
		t.Skipf("the software GPU has no managed memory: %s", answer)
	}
	s.until("ps names managed memory", func() bool { // the program does not wait until it is known
		p := s.process("teller")
		return p != nil && slices.ContainsFunc(p.Caveats, func(c api.Caveat) bool {
			return strings.Contains(strings.ToLower(c.Text), "managed")
		})
	})
	if text := s.fails(1, "checkpoint", "teller", "-o", s.path("img"),
		"--leave-running"); !strings.Contains(strings.ToLower(text), "managed") {
		t.Errorf("the refusal does not name managed memory:\n%s", text)
	}
	if _, err := os.Stat(s.path("img")); err == nil {
		t.Error("a refused checkpoint left a directory")
	}
	r.tell("sum")
}

func TestNames(t *testing.T) {
	s := newSite(t)
	s.teller("one")
	if text := s.fails(125, "run", "--gpu=soft", "--name", "one", "--", "true"); !strings.Contains(text, "one") {
		t.Errorf("a name taken: %s", text)
	}
	if text := s.fails(1, "checkpoint", "nobody", "-o", s.path("img")); !strings.Contains(text, "nobody") {
		t.Errorf("no such program: %s", text)
	}
}
