// Package e2e tests holdfast from the outside: the binary that make built, the real shim,
// daemon and CRIU, and the software GPU. Only the forms of the command line that scripts
// rely on are used.
//
// The tests need root (CRIU does) and what "make build examples criu" makes. Where that is
// missing they are skipped, and say why; with HOLDFAST_E2E=required they fail.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/daemon/api"
)

// limit is how long anything may take that a test waits for. Nothing comes near it
// unless it hangs.
const limit = 90 * time.Second

var built struct {
	once                    sync.Once
	why                     string // what is missing
	holdfast, train, teller string
	vecadd, storm, cache    string
	infer, marks, decode    string
	dags                    string
}

// inner says that a process is the one that runs the tests.
const inner = "HOLDFAST_E2E_INNER"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(inner) == "" {
		os.Exit(reap())
	}
	code := m.Run()
	if built.cache != "" {
		os.RemoveAll(built.cache)
	}
	os.Exit(code)
}

// reap runs the tests in a child and takes the status of every process that they leave behind. A program can only be
// restored when nothing has its process ID any more, not even as a zombie, and not every container has an init that
// sees to that.
func reap() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	// What the caller has left open is no file of the programs that are checkpointed.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inner+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // whose end would be the parent's death
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && pid != cmd.Process.Pid:
		case err != nil:
			panic(err)
		case ws.Signaled():
			return 128 + int(ws.Signal())
		default:
			return ws.ExitStatus()
		}
	}
}

// needs skips the test where the machine or the tree lacks something.
func needs(t *testing.T) {
	t.Helper()
	built.once.Do(func() { built.why = prepare() })
	if built.why == "" {
		return
	}
	if os.Getenv("HOLDFAST_E2E") == "required" {
		t.Fatal(built.why)
	}
	t.Skip(built.why)
}

func prepare() string {
	if os.Getuid() != 0 {
		return "CRIU needs root"
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return err.Error()
	}
	built.holdfast = filepath.Join(root, "bin/holdfast")
	built.train = filepath.Join(root, "build/examples/train")
	built.vecadd = filepath.Join(root, "build/examples/vecadd")
	built.infer = filepath.Join(root, "build/examples/infer")
	for _, f := range []string{built.holdfast, built.train, built.vecadd, built.infer, filepath.Join(root,
		"libexec/holdfast/criu")} {
		if _, err := os.Stat(f); err != nil {
			return fmt.Sprintf("%v: run make build examples criu", err)
		}
	}
	if built.cache, err = os.MkdirTemp("", "hf-cache-"); err != nil {
		return err.Error()
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	compile := func(source string) (string, error) {
		to := filepath.Join(built.cache, strings.TrimSuffix(filepath.Base(source), ".c"))
		out, err := exec.Command(cc, "-std=gnu11", "-O2", "-I", filepath.Join(root, "examples/include"), "-o", to,
			filepath.Join(root, "test/programs", source), "-L", filepath.Join(root, "internal/embedded/lib"),
			"-l:libcuda.so.1", "-ldl", "-lpthread", "-Wl,--allow-shlib-undefined").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", source, err, out)
		}
		return to, err
	}
	for source, to := range map[string]*string{"helpers/teller.c": &built.teller, "helpers/marks.c": &built.marks,
		"helpers/decode.c": &built.decode, "helpers/dags.c": &built.dags, "storm.c": &built.storm} {
		if *to, err = compile(source); err != nil {
			return err.Error()
		}
	}
	return ""
}

// A site is a runtime directory of its own, with its own daemon and software GPU, and a
// directory for what a test writes.
type site struct {
	t    *testing.T
	dir  string // runtime directory; short, because sockets are in it
	work string
	env  []string
}

// besides are the tests that run beside others.
var besides sync.Map

// newSite makes a site of its own. Tests spend most of their time waiting for processes, so those that have a site run
// beside each other.
func newSite(t *testing.T, env ...string) *site {
	needs(t)
	if _, again := besides.LoadOrStore(t, true); !again && !strings.Contains(t.Name(), "/") {
		t.Parallel()
	}
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp("", "hf-work-") // not t.TempDir: the names of images stay readable
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, work: work}
	s.env = append(os.Environ(), "HOLDFAST_DIR="+dir, "XDG_CACHE_HOME="+built.cache)
	s.env = append(s.env, env...)
	t.Cleanup(s.close)
	return s
}

// close ends what is left of a site, by process ID, and shows the logs of a failed test.
func (s *site) close() {
	if r, err := s.try("ps", "--json"); err == nil {
		var list []api.Process
		if json.Unmarshal([]byte(r.stdout), &list) == nil {
			for _, p := range list {
				syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
	}
	if s.t.Failed() {
		for _, name := range []string{"daemon.log", "softgpu.log"} {
			if data, err := os.ReadFile(filepath.Join(s.dir, name)); err == nil {
				s.t.Logf("the end of %s:\n%s", name, data[max(0, len(data)-6000):])
			}
		}
	}
	s.try("daemon", "stop", "--force")
	s.try("softgpu", "--stop")
	for _, pid := range s.remains() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	os.RemoveAll(s.dir)
	os.RemoveAll(s.work)
}

// remains lists the processes that belong to this site and to no other: its directories are
// in their command lines.
func (s *site) remains() []int {
	var list []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && (bytes.Contains(line, []byte(s.dir)) || bytes.Contains(line, []byte(s.work))) {
			list = append(list, pid)
		}
	}
	return list
}

func (s *site) path(name string) string { return filepath.Join(s.work, name) }

type outcome struct {
	stdout, stderr string
	status         int
}

func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(built.holdfast, args...)
	cmd.Env = s.env
	cmd.Dir = s.work
	return cmd
}

// try runs holdfast; the error is that it did not end with 0.
func (s *site) try(args ...string) (outcome, error) {
	cmd := s.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A program that holdfast started may keep the pipes open; its end is not waited for.
	cmd.WaitDelay = limit
	if err := cmd.Start(); err != nil {
		return outcome{status: -1}, err
	}
	timer := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	r := outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if err != nil {
		err = fmt.Errorf("holdfast %s: %w\n%s%s", strings.Join(args, " "), err, r.stdout, r.stderr)
	}
	return r, err
}

// ok runs holdfast, which must succeed.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	r, err := s.try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.stdout
}

// fails runs holdfast, which must end with that status, and returns what it says.
func (s *site) fails(status int, args ...string) string {
	s.t.Helper()
	r, err := s.try(args...)
	if err == nil || r.status != status {
		s.t.Fatalf("holdfast %s ended with %d, want %d\n%s%s", strings.Join(args, " "), r.status, status,
			r.stdout, r.stderr)
	}
	return r.stdout + r.stderr
}

// into runs holdfast with --json and decodes what it prints.
func into[T any](s *site, args ...string) T {
	s.t.Helper()
	var v T
	out := s.ok(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.t.Fatalf("holdfast %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

func (s *site) ps() []api.Process { s.t.Helper(); return into[[]api.Process](s, "ps") }

// process returns the process of that name, or nil. Of one that has ended, and whose memory
// is kept for a restore, it knows nothing.
func (s *site) process(name string) *api.Process {
	s.t.Helper()
	for _, p := range s.live() {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// live lists the programs that have not ended.
func (s *site) live() []api.Process {
	s.t.Helper()
	return slices.DeleteFunc(s.ps(), func(p api.Process) bool { return p.State == api.StateDead })
}

// until waits for a condition.
func (s *site) until(what string, cond func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(limit)
	for !cond() {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %v for: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// kept counts the descriptors of memory that the keeper of a site holds.
func (s *site) kept() (n int) {
	s.t.Helper()
	for _, pid := range s.keepers() {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, "/memfd:") {
				n++
			}
		}
	}
	return n
}

// keepers lists the keepers of a site: one, or none.
func (s *site) keepers() (list []int) {
	for _, pid := range s.remains() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte("\x00keeper\x00")) {
			list = append(list, pid)
		}
	}
	return list
}

// killDaemon ends the daemon as nobody can prevent, and waits until it is gone.
func (s *site) killDaemon() {
	s.t.Helper()
	pid := s.server("daemon.sock")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill the daemon (PID %d): %v", pid, err)
	}
	s.until("the end of the daemon", func() bool { return !alive(pid) })
}

// A program runs under holdfast.
type program struct {
	s      *site
	name   string
	cmd    *exec.Cmd // holdfast run, or holdfast restore
	output string    // file
	ended  chan struct{}
	status int
}

// start runs a program in the background, its output appended to a file as a user's
// would be.
func (s *site) start(name string, args ...string) *program {
	s.t.Helper()
	return s.launch(name, append([]string{"run", "--gpu=soft", "--name", name, "--"}, args...)...)
}

// launch starts a holdfast that stays in the foreground of a program.
func (s *site) launch(name string, args ...string) *program {
	s.t.Helper()
	p := &program{s: s, name: name, output: s.path(name + ".log"), ended: make(chan struct{})}
	out, err := os.OpenFile(p.output, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = s.command(args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		p.status = p.cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *program) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *program) text() string {
	data, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// wait returns the status with which the program's holdfast ended.
func (p *program) wait() int {
	p.s.t.Helper()
	select {
	case <-p.ended:
		return p.status
	case <-time.After(limit):
		p.s.t.Fatalf("%s has not ended after %v; its output:\n%s", p.name, limit, p.text())
		return -1
	}
}

// done waits until the program has ended well.
func (p *program) done() {
	p.s.t.Helper()
	if status := p.wait(); status != 0 {
		p.s.t.Fatalf("%s ended with %d; its output:\n%s", p.name, status, p.text())
	}
}

// kill ends the program as nobody can prevent, and waits until it is gone.
func (p *program) kill() {
	p.s.t.Helper()
	held := p.s.process(p.name)
	if held == nil {
		p.s.t.Fatalf("%s is not held; its output:\n%s", p.name, p.text())
	}
	if err := syscall.Kill(held.PID, syscall.SIGKILL); err != nil {
		p.s.t.Fatalf("kill %s (PID %d): %v", p.name, held.PID, err)
	}
	p.wait()
	p.s.until("the end of "+p.name, func() bool { return errors.Is(syscall.Kill(held.PID, 0), syscall.ESRCH) })
}

// A trainer is the example program train.
type trainer struct {
	*program
	steps    int
	log, out string
	over     string // a file; its last step waits for it, so that it cannot end too soon, however busy the machine is
}

// train starts the example program, to train so many steps.
func (s *site) train(name string, steps int, args ...string) *trainer {
	s.t.Helper()
	r := &trainer{steps: steps, log: s.path(name + ".steps"), out: s.path(name + ".bin"), over: s.path(name + ".over")}
	os.Remove(r.over)
	r.program = s.start(name, append([]string{built.train, "--steps", strconv.Itoa(steps), "--every", "50",
		"--step-log", r.log, "--out", r.out, "--until", r.over}, args...)...)
	return r
}

// finish lets it do its last step.
func (r *trainer) finish() {
	r.s.t.Helper()
	if err := os.WriteFile(r.over, nil, 0o600); err != nil {
		r.s.t.Fatal(err)
	}
}

// done lets it do its last step, and waits until it has ended well.
func (r *trainer) done() {
	r.s.t.Helper()
	r.finish()
	r.program.done()
}

// runOn waits until it has done n more steps, or all that it does before done is called: it says so of a step when the
// next is on its way.
func (r *trainer) runOn(n int) {
	r.s.t.Helper()
	r.reach(min(r.step()+n, r.steps-3))
}

// step returns the step that the program has done last; -1: none yet.
func (r *trainer) step() int {
	data, _ := os.ReadFile(r.log)
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		last := data[bytes.LastIndexByte(data[:i], '\n')+1 : i]
		number, _, _ := strings.Cut(string(last), " ")
		if n, err := strconv.Atoi(number); err == nil {
			return n
		}
	}
	return -1
}

func (r *trainer) reach(step int) {
	r.s.t.Helper()
	r.s.until(fmt.Sprintf("step %d of %s", step, r.name), func() bool {
		if !r.running() && r.step() < step {
			r.s.t.Fatalf("%s ended at step %d with %d:\n%s", r.name, r.step(), r.status, r.text())
		}
		return r.step() >= step
	})
}

// restored is the same program as a foreground restore brings it back.
func (r *trainer) restored(dir string) *trainer {
	r.s.t.Helper()
	n := *r
	n.program = r.s.launch(r.name, "restore", dir)
	return &n
}

// references are the results of uninterrupted runs, by their arguments.
var references sync.Map

// mustEqualReference compares what a trainer wrote with an uninterrupted run.
func (r *trainer) mustEqualReference(args ...string) {
	r.s.t.Helper()
	key := fmt.Sprint(r.steps, args)
	want, ok := references.Load(key)
	if !ok {
		ref := r.s.train("reference", r.steps, args...)
		ref.done()
		data, err := os.ReadFile(ref.out)
		if err != nil {
			r.s.t.Fatal(err)
		}
		os.Remove(ref.log)
		want = data
		references.Store(key, want)
	}
	got, err := os.ReadFile(r.out)
	if err != nil {
		r.s.t.Fatal(err)
	}
	if !bytes.Equal(got, want.([]byte)) {
		r.s.t.Fatalf("%s: %d bytes that differ from those of an uninterrupted run", r.name, len(got))
	}
}

// A teller is the program of test/programs/helpers/teller.c: it does what it is told.
type teller struct {
	*program
	commands, answers string
	// commands; open all the time, so that what is in it waits for a program that is being restored
	pipe *os.File
	said int
}

func (s *site) teller(name string) *teller {
	s.t.Helper()
	r := s.tellerLater(name)
	r.expect("ready")
	return r
}

// checkpointed is a teller with so many MiB that ended with its checkpoint, its process ID, and the sum of its memory.
func (s *site) checkpointed(mib int, img string) (r *teller, pid int, sum string) {
	s.t.Helper()
	r = s.teller("teller")
	r.tell("alloc %d", mib)
	r.tell("fill 6")
	sum = r.tell("sum")
	pid = s.process("teller").PID
	s.ok("checkpoint", "teller", "-o", img)
	r.wait()
	return r, pid, sum
}

// tellerLater does not wait until it is ready.
func (s *site) tellerLater(name string) *teller {
	s.t.Helper()
	return s.tellerBy(name, nil)
}

// tellerBy starts it by way of another program, if one is named, and with arguments of its own.
func (s *site) tellerBy(name string, by []string, args ...string) *teller {
	s.t.Helper()
	r := &teller{commands: s.path(name + ".in"), answers: s.path(name + ".out")}
	if err := syscall.Mkfifo(r.commands, 0o600); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if r.pipe, err = os.OpenFile(r.commands, os.O_RDWR, 0); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.pipe.Close() })
	r.program = s.start(name, append(append(by, built.teller, r.commands, r.answers), args...)...)
	return r
}

// expect waits for a line that starts so, and returns the rest of it.
func (r *teller) expect(start string) string {
	r.s.t.Helper()
	re := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(start) + `(?: (.*))?$`)
	rest := ""
	r.s.until(r.name+" says "+start, func() bool {
		data, _ := os.ReadFile(r.answers)
		m := re.FindSubmatch(data)
		if m == nil && !r.running() {
			r.s.t.Fatalf("%s ended with %d before it said %q:\n%s", r.name, r.status, start, r.text())
		}
		if m != nil {
			rest = string(m[1])
		}
		return m != nil
	})
	return rest
}

// answered returns the answer to what was sent with a tag, or "".
func (r *teller) answered(tag string) string {
	data, _ := os.ReadFile(r.answers)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, tag+" "); ok {
			return rest
		}
	}
	return ""
}

// tell gives a command and returns the answer behind "ok".
func (r *teller) tell(format string, args ...any) string {
	r.s.t.Helper()
	answer := r.ask(format, args...)
	rest, ok := strings.CutPrefix(answer, "ok")
	if !ok {
		r.s.t.Fatalf("%s: %s: %s", r.name, fmt.Sprintf(format, args...), answer)
	}
	return strings.TrimSpace(rest)
}

func (r *teller) ask(format string, args ...any) string {
	r.s.t.Helper()
	tag := r.send(format, args...)
	return r.expect(tag)
}

// setCells writes where stir, scatter and shuffle write, to 128 MiB of allocation 0.
func (r *teller) setCells(value int) {
	r.s.t.Helper()
	for at := 2 << 20; at <= 128<<20; at += 2 << 20 {
		r.tell("poke 0 %d %d", at-4, value)
	}
}

// send gives a command and returns its tag.
func (r *teller) send(format string, args ...any) string {
	r.s.t.Helper()
	r.said++
	tag := fmt.Sprintf("t%d", r.said)
	if _, err := fmt.Fprintf(r.pipe, tag+" "+format+"\n", args...); err != nil {
		r.s.t.Fatal(err)
	}
	return tag
}

func (r *teller) restored(dir string) *teller {
	r.s.t.Helper()
	n := *r
	n.program = r.s.launch(r.name, "restore", dir)
	return &n
}
