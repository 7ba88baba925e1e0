// Package peers runs other projects' suites on the software GPU, under holdfast run, and compares with what is
// expected.
//
// Numba's CUDA suite: scripts/peers.sh provides it, python/suite.py runs it, numba.txt lists the tests that fail, each
// with its reason. A test that fails without being listed, and one that is listed and passes, both fail.
package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	peersVariable = "HOLDFAST_PEERS"         // the directory that scripts/peers.sh filled
	partVariable  = "HOLDFAST_PEERS_MODULES" // a part of the modules' names; all if it is not set
	prefix        = "numba.cuda.tests."
	patience      = 3 * time.Minute // for one test
	batchModules  = 6               // modules of one program: importing Numba takes longer than most modules
)

// A line is what python/suite.py says.
type line struct {
	PID    int
	Module string
	Start  string
	End    string
	Result string
	Why    string
	Leave  string
	Status int
}

// An outcome is how one test went.
type outcome struct{ result, why string }

const (
	passed  = "ok"
	failed  = "failed"
	skipped = "skipped"
)

// A suite is a run of all modules by several workers.
type suite struct {
	t      *testing.T
	python string
	script string
	logs   string
	dir    string // of the daemon

	mu       sync.Mutex
	outcomes map[string]outcome
}

func TestNumba(t *testing.T) {
	peers := os.Getenv(peersVariable)
	if peers == "" {
		t.Skipf("%s is not set: make peers sets it", peersVariable)
	}
	want, err := readExpected("numba.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := newSuite(t, peers)
	modules := s.modules()
	if part := os.Getenv(partVariable); part != "" {
		modules = slices.DeleteFunc(modules, func(m string) bool { return !strings.Contains(m, part) })
		maps.DeleteFunc(want, func(test, _ string) bool {
			return !slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(prefix+test, m+".") })
		})
	}
	batches := make(chan []string)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for b := range batches {
				s.run(b)
			}
		})
	}
	for b := range slices.Chunk(modules, batchModules) {
		batches <- b
	}
	close(batches)
	workers.Wait()
	for _, complaint := range compare(s.outcomes, want) {
		t.Error(complaint)
	}
	count := map[string]int{}
	for _, o := range s.outcomes {
		count[o.result]++
	}
	t.Logf("Numba: %d modules, %d tests passed, %d failed (%d expected), %d skipped; what they printed is in %s",
		len(modules), count[passed], count[failed], len(want), count[skipped], s.logs)
}

func newSuite(t *testing.T, peers string) *suite {
	t.Helper()
	script, err := filepath.Abs("python/suite.py")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Abs("../../build/peers")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil { // holdfast trusts no other
		t.Fatal(err)
	}
	python := filepath.Join(peers, "python")
	return &suite{t: t, python: python, script: script, logs: logs, dir: dir, outcomes: map[string]outcome{}}
}

// command is a Python that runs the script. The tests' own Pythons inherit the path to sitecustomize.py.
func (s *suite) command(ctx context.Context, before []string, args ...string) *exec.Cmd {
	argv := slices.Concat(before, []string{s.python, s.script}, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Dir(s.script), "PYTHONDONTWRITEBYTECODE=1",
		"HOLDFAST_DIR="+s.dir)
	return cmd
}

func (s *suite) modules() []string {
	s.t.Helper()
	cmd := s.command(s.t.Context(), nil)
	cmd.Stderr = s.t.Output()
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for l, err := range lines(bytes.NewReader(out)) {
		if err != nil {
			s.t.Fatal(err)
		}
		if l.Module != "" {
			names = append(names, l.Module)
		}
	}
	if len(names) == 0 {
		s.t.Fatal("the suite has no modules")
	}
	return names
}

func lines(r io.Reader) func(yield func(line, error) bool) {
	return func(yield func(line, error) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			var l line
			err := json.Unmarshal(in.Bytes(), &l)
			if err != nil {
				err = fmt.Errorf("%q: %w", in.Text(), err)
			}
			if !yield(l, err) {
				return
			}
		}
		if err := in.Err(); err != nil {
			yield(line{}, err)
		}
	}
}

// run runs modules. A test that hangs or takes its program down has failed, and the others are run without it.
func (s *suite) run(modules []string) {
	seen := map[string]bool{}
	for len(modules) > 0 {
		left, culprit := s.attempt(modules, seen)
		if culprit == "" && len(left) == len(modules) {
			s.t.Errorf("nothing ran of %s", strings.Join(modules, ", "))
			return
		}
		modules = left
	}
}

// attempt runs a program until it ends or a test takes too long. It returns the modules that are not done, and the
// test that is to blame.
func (s *suite) attempt(modules []string, seen map[string]bool) (left []string, culprit string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	name := modules[0][strings.LastIndex(modules[0], ".")+1:]
	holdfast := []string{"../../bin/holdfast", "run", "--gpu=soft", "--name", fmt.Sprint(name, len(seen)), "--"}
	cmd := s.command(ctx, holdfast, modules...)
	cmd.Stdin = strings.NewReader(strings.Join(slices.Sorted(maps.Keys(seen)), "\n"))
	log, err := os.OpenFile(filepath.Join(s.logs, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		s.t.Error(err)
		return nil, ""
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Error(err)
		return nil, ""
	}
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return nil, ""
	}
	left = modules
	current, why, pid := "", "", 0
	finish := func(o outcome) {
		s.note(current, o)
		seen[current] = true
		culprit, current = current, ""
	}
	said := make(chan line)
	go func() {
		defer close(said)
		for l, err := range lines(out) {
			if err == nil { // else a line of the program's own
				said <- l
			}
		}
	}()
	for open := true; open; {
		var l line
		select {
		case l, open = <-said:
		case <-time.After(patience):
			why = fmt.Sprintf("nothing for %v", patience)
			if pid > 0 {
				_ = unix.Kill(-pid, unix.SIGKILL) // the program, which has a session of its own
			}
			cancel()
			continue
		}
		switch {
		case l.PID != 0:
			pid = l.PID
		case l.Start != "":
			current = l.Start
		case l.End != "":
			s.note(l.End, outcome{l.Result, l.Why})
			seen[l.End] = true
			current = ""
		case l.Leave != "":
			if l.Status != 0 && current != "" {
				finish(outcome{failed, fmt.Sprintf("ended with status %d", l.Status)})
			} else {
				left = slices.DeleteFunc(slices.Clone(left), func(m string) bool { return m == l.Leave })
			}
		}
	}
	err = cmd.Wait()
	if current != "" {
		finish(outcome{failed, strings.TrimPrefix(fmt.Sprintf("%s; %v", why, err), "; ")})
	}
	return left, culprit
}

func (s *suite) note(test string, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[strings.TrimPrefix(test, prefix)] = o
}

// compare says what is not as expected, sorted by test.
func compare(got map[string]outcome, want map[string]string) []string {
	var complaints []string
	for _, test := range slices.Sorted(maps.Keys(got)) {
		o := got[test]
		_, expected := want[test]
		switch {
		case o.result == failed && !expected:
			complaints = append(complaints, fmt.Sprintf("%s fails: %s", test, o.why))
		case o.result != failed && expected:
			complaints = append(complaints, fmt.Sprintf("%s is expected to fail: %s", test, o.result))
		}
	}
	for _, test := range slices.Sorted(maps.Keys(want)) {
		if _, ran := got[test]; !ran {
			complaints = append(complaints, fmt.Sprintf("%s is expected to fail, and did not run", test))
		}
	}
	return complaints
}

// readExpected reads lines of a test and the reason why it fails.
func readExpected(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for i, l := range strings.Split(string(text), "\n") {
		if l = strings.TrimSpace(l); l == "" || l[0] == '#' {
			continue
		}
		test, reason, _ := strings.Cut(l, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason", path, i+1, test)
		}
		if want[test] != "" {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", path, i+1, test)
		}
		want[test] = reason
	}
	if len(want) == 0 {
		return nil, errors.New(path + " is empty")
	}
	return want, nil
}

func TestExpected(t *testing.T) {
	if _, err := readExpected("numba.txt"); err != nil {
		t.Fatal(err)
	}
	got := map[string]outcome{
		"a": {passed, ""}, "b": {failed, "wrong"}, "c": {failed, "known"}, "d": {passed, ""}, "e": {skipped, ""},
	}
	want := map[string]string{"c": "known", "d": "was", "e": "was", "f": "was"}
	complaints := []string{
		"b fails: wrong", "d is expected to fail: ok", "e is expected to fail: skipped",
		"f is expected to fail, and did not run",
	}
	if c := compare(got, want); !slices.Equal(c, complaints) {
		t.Errorf("%q", c)
	}
}
