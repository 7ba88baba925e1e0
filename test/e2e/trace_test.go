package e2e

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A traceList is what "holdfast trace ls --json" says.
type traceList struct {
	EndedEarly bool `json:"ended_early"`
	Processes  []struct {
		PID      int    `json:"pid"`
		Launches uint64 `json:"launches"`
		Counted  uint64 `json:"counted"`
		Ended    string `json:"ended"`
	} `json:"processes"`
	Kernels []struct {
		Kernel   string `json:"kernel"`
		Launches uint64 `json:"launches"`
		PTX      string `json:"ptx"`
	} `json:"kernels"`
}

// A trace has every launch that the program has made, with its arguments, and the program computes what it computes
// untraced.
func TestTrace(t *testing.T) {
	s := newSite(t)
	const steps = 40
	train := []string{built.train, "--steps", strconv.Itoa(steps), "--out"}
	s.ok(append(append([]string{"trace", "-o", s.path("t"), "--gpu=soft", "--"}, train...), s.path("traced"))...)
	s.ok(append(append([]string{"run", "--gpu=soft", "--"}, train...), s.path("plain"))...)
	traced, err := os.ReadFile(s.path("traced"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := os.ReadFile(s.path("plain")); err != nil || string(plain) != string(traced) {
		t.Errorf("the traced program computed something else (%v)", err)
	}
	list := into[traceList](s, "trace", "ls", s.path("t"))
	if len(list.Processes) != 1 || list.EndedEarly {
		t.Fatalf("%+v", list)
	}
	if p := list.Processes[0]; p.Launches != 7*steps || p.Counted != 7*steps || p.Ended != "itself" {
		t.Errorf("%+v", p)
	}
	want := map[string]uint64{"layer": 2 * steps, "grad": 2 * steps, "loss": steps, "back": steps, "apply": steps}
	for _, k := range list.Kernels {
		if want[k.Kernel] != k.Launches || len(k.PTX) != 64 {
			t.Errorf("%+v", k)
		}
		delete(want, k.Kernel)
	}
	if len(want) > 0 {
		t.Errorf("kernels without a launch: %v", want)
	}

	// Pointers among the arguments name memory that there was.
	type record struct {
		Record string   `json:"record"`
		Kernel any      `json:"kernel"`
		Addr   string   `json:"addr"`
		Bytes  uint64   `json:"bytes"`
		Args   []string `json:"args"`
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	memory := map[uint64]uint64{}
	launches := 0
	for line := range strings.Lines(s.ok("trace", "show", "--json", s.path("t"))) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch r.Record {
		case "alloc":
			memory[number(r.Addr)] = r.Bytes
		case "launch":
			launches++
			pointers := map[any]int{"layer": 4, "grad": 4, "loss": 4, "back": 4, "apply": 3}[r.Kernel]
			for _, a := range r.Args[:pointers] {
				p, held := number(a), false
				for base, n := range memory {
					held = held || p-base < n
				}
				if !held {
					t.Fatalf("argument %s of %v is no memory", a, r.Kernel)
				}
			}
		}
	}
	if launches != 7*steps {
		t.Errorf("%d launches are shown", launches)
	}
}

// Whatever happens to the program or to the recorder: the program is as it would be, and what is in the file is good.
func TestTraceCutShort(t *testing.T) {
	s := newSite(t)
	long := []string{"--", built.train, "--steps", "1000000000", "--every", "0", "--step-log", s.path("steps")}
	begun := func() bool { return len(s.read("steps")) > 0 }

	p := s.launch("interrupted", append([]string{"trace", "-o", s.path("i"), "--gpu=soft"}, long...)...)
	s.until("some steps", begun)
	p.cmd.Process.Signal(syscall.SIGINT)
	if status := p.wait(); status != 128+int(syscall.SIGINT) {
		t.Errorf("interrupted: status %d\n%s", status, p.text())
	}
	list := into[traceList](s, "trace", "ls", s.path("i"))
	if len(list.Processes) != 1 || list.EndedEarly || list.Processes[0].Ended != "killed" ||
		list.Processes[0].Launches == 0 {
		t.Errorf("interrupted: %+v", list)
	}

	os.Remove(s.path("steps"))
	p = s.launch("recorder", append([]string{"trace", "-o", s.path("k"), "--gpu=soft"}, long...)...)
	s.until("some blocks", func() bool { return len(s.read("k")) > 10000 })
	p.cmd.Process.Kill()
	<-p.ended
	lines := len(s.read("steps"))
	s.until("the program to go on", func() bool { return len(s.read("steps")) > lines })
	list = into[traceList](s, "trace", "ls", s.path("k"))
	if !list.EndedEarly || len(list.Processes) != 1 || list.Processes[0].Launches == 0 {
		t.Errorf("recorder killed: %+v", list)
	}
	if pid := list.Processes[0].PID; pid > 1 {
		syscall.Kill(pid, syscall.SIGKILL)
	}

	s.fails(125, "trace", "-o", "/dev/full", "--gpu=soft", "--", built.train)
	small := s.path("small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", small, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(small, 0)
	out := s.fails(125, "trace", "-o", small+"/t", "--gpu=soft", "--", built.train, "--steps", "2000",
		"--out", s.path("full"))
	if !strings.Contains(out, "no space") || len(s.read("full")) == 0 {
		t.Errorf("no space: %s", out)
	}
	if list := into[traceList](s, "trace", "ls", small+"/t"); !list.EndedEarly {
		t.Errorf("no space: %+v", list)
	}
	s.fails(3, "trace", "-o", s.path("x"), "--gpu=soft", "--", "sh", "-c", "exit 3")
	s.fails(127, "trace", "-o", s.path("x"), "--", "no-such-program")
}

// read is what a file of the site holds, nothing if there is none.
func (s *site) read(name string) string {
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		return ""
	}
	return string(b)
}
