package criu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
)

var targetOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "criu-target-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "target")
	out, err := exec.Command("gcc", "-O1", "-o", path, "../../test/programs/helpers/target.c",
		"-lpthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, out)
	}
	return path, nil
})

// patience bounds every wait of a test: it is reached only when something is broken.
const patience = time.Minute

// foreignSession says that the session's leader being outside of the PID namespace is what is tested.
const foreignSession = "HOLDFAST_TEST_FOREIGN_SESSION"

func TestMain(m *testing.M) {
	// What a killed root leaves comes to the test to be reaped: some inits take seconds.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	// The programs of the tests share the session of this process, and CRIU has to be able to name it.
	if sid, err := unix.Getsid(0); err != nil || sid == 0 && os.Getenv(foreignSession) == "" {
		if _, err := unix.Setsid(); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if path, err := targetOnce(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func tool(t *testing.T) *Tool {
	t.Helper()
	var nf *NotFoundError
	c, err := Find(nil)
	if errors.As(err, &nf) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Skip(err)
	}
	return c
}

// target is a running test program whose lines of output are read.
type target struct {
	t     *testing.T
	pid   int
	lines chan string
	cmd   *exec.Cmd // nil when restored
}

func start(t *testing.T, stdio [3]*os.File, args ...string) *target {
	t.Helper()
	path, err := targetOnce()
	if err != nil {
		t.Skip(err)
	}
	tg := &target{t: t}
	cmd := exec.Command(path, args...)
	var r *os.File
	if stdio[1] == nil {
		var w *os.File
		if r, w, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		stdio[1] = w
	}
	if stdio[2] == nil {
		stdio[2] = os.Stderr
	}
	if stdio[0] != nil {
		cmd.Stdin = stdio[0]
	}
	cmd.Stdout, cmd.Stderr = stdio[1], stdio[2]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tg.cmd, tg.pid = cmd, cmd.Process.Pid
	t.Cleanup(func() { tg.kill() })
	if r != nil {
		tg.read(r)
	}
	return tg
}

// read follows the output of the program.
func (tg *target) read(r *os.File) {
	tg.lines = make(chan string, 1<<16)
	go func() {
		defer r.Close()
		defer close(tg.lines)
		for sc := bufio.NewScanner(r); sc.Scan(); {
			select {
			case tg.lines <- sc.Text():
			default:
			}
		}
	}()
}

// tick waits for the next line of the main process and returns its number and memory sum.
func (tg *target) tick() (n, sum uint64) {
	tg.t.Helper()
	n, sum, ok := tg.next()
	if !ok {
		tg.t.Fatal("the program has closed its output")
	}
	return n, sum
}

// ticks waits for the next line of the main process, and returns false if the program ends instead.
func (tg *target) ticks() bool {
	tg.t.Helper()
	_, _, ok := tg.next()
	return ok
}

func (tg *target) next() (n, sum uint64, ok bool) {
	tg.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case l, ok := <-tg.lines:
			if !ok {
				return 0, 0, false
			}
			var pid int
			var c uint64
			if k, _ := fmt.Sscanf(l, "tick %d %d %d %d", &n, &pid, &sum, &c); k == 4 {
				if pid != tg.pid {
					tg.t.Fatalf("%q: pid is not %d", l, tg.pid)
				}
				return n, sum, true
			}
		case <-timeout:
			tg.t.Fatalf("no tick within %v", patience)
		}
	}
}

// drain drops what was printed so far and returns the last tick seen.
func (tg *target) drain() (last uint64) {
	for {
		select {
		case l, ok := <-tg.lines:
			if !ok {
				return last
			}
			fmt.Sscanf(l, "tick %d", &last)
		default:
			return last
		}
	}
}

func (tg *target) kill() {
	pids, err := Tree(tg.pid)
	if err != nil {
		return
	}
	if s, err := procstat.Read(tg.pid); err != nil || s.Parent != os.Getpid() {
		return
	}
	for _, p := range pids {
		syscall.Kill(p, syscall.SIGKILL)
	}
	tg.reap()
	for _, p := range pids[1:] {
		if _, err := syscall.Wait4(p, nil, 0, nil); err != nil && !errors.Is(err, syscall.ECHILD) {
			tg.t.Errorf("process %d: %v", p, err)
		}
	}
}

func (tg *target) reap() {
	if tg.cmd != nil {
		tg.cmd.Wait()
		return
	}
	if p, err := os.FindProcess(tg.pid); err == nil {
		p.Wait()
	}
}

func dump(t *testing.T, c *Tool, o DumpOptions) Stats {
	t.Helper()
	st, err := c.Dump(context.Background(), o)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if st.Frozen <= 0 || st.Wall <= 0 {
		t.Errorf("no figures: %+v", st)
	}
	return st
}

// restored restores with a pipe as stdout.
func restored(t *testing.T, c *Tool, dir string) *target {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := c.Restore(context.Background(), RestoreOptions{Dir: dir, Stdio: [3]*os.File{nil, w, os.Stderr}})
	w.Close()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	tg := &target{t: t, pid: pid}
	t.Cleanup(func() { tg.kill() })
	tg.read(r)
	return tg
}

func TestCycle(t *testing.T) {
	c := tool(t)
	for _, args := range [][]string{
		{"memory=8"},
		{"setsid", "memory=1"},
		{"threads=8", "memory=1"},
		{"setsid", "child"},
		{"pipe", "eventfd", "memfd", "dup"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			p := start(t, [3]*os.File{}, args...)
			_, sum := p.tick()
			x, err := findExternal([]int{os.Getpid()})
			if err != nil {
				t.Fatal(err)
			}
			inherited := 2 * len(x.caveats) // what the test itself was given and hands down
			dir := filepath.Join(t.TempDir(), "criu")
			st := dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
			if len(st.Caveats) > inherited {
				t.Errorf("caveats: %q", st.Caveats)
			}
			at := p.drain()
			after, _ := p.tick() // it runs on
			if after < at {
				t.Fatalf("tick %d after %d", after, at)
			}
			if _, err := c.Restore(context.Background(), RestoreOptions{Dir: dir}); err == nil ||
				!strings.Contains(err.Error(), "in use") {
				t.Fatalf("restored over the living program: %v", err)
			}
			p.kill()
			q := restored(t, c, dir)
			if q.pid != p.pid {
				t.Fatalf("pid %d, was %d", q.pid, p.pid)
			}
			n, s := q.tick()
			if s != sum {
				t.Errorf("memory sum %d, was %d", s, sum)
			}
			if n > after {
				t.Errorf("tick %d after the restore, %d before the kill", n, after)
			}
			// A restored program can be dumped and restored again.
			dir2 := filepath.Join(t.TempDir(), "criu")
			dump(t, c, DumpOptions{PID: q.pid, Dir: dir2, LeaveStopped: true})
			stopped, err := procstat.Read(q.pid)
			for err == nil && stopped.State != 'T' { // the signal is sent, and takes effect before the program runs on
				stopped, err = procstat.Read(q.pid)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := Resume(q.pid, stopped.Start); err != nil {
				t.Fatal(err)
			}
			q.drain()
			q.tick()
			q.kill()
			restored(t, c, dir2).tick()
			for _, d := range []string{dir, dir2} {
				ents, err := os.ReadDir(d)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range ents {
					if i, err := e.Info(); err != nil || i.Mode().Perm() != 0o600 {
						t.Errorf("%s: %v %v", e.Name(), i.Mode(), err)
					}
				}
			}
		})
	}
}

// TestKilled dumps without leaving the program running.
func TestKilled(t *testing.T) {
	c := tool(t)
	p := start(t, [3]*os.File{}, "threads=2")
	p.tick()
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir})
	p.reap()
	restored(t, c, dir).tick()
}

// pty opens a pseudo terminal.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); s.Close() })
	return m, s
}

// TestStdio dumps with every kind of standard output and restores into every other.
func TestStdio(t *testing.T) {
	c := tool(t)
	kinds := map[string]func(t *testing.T) (inside *os.File, outside *os.File){
		"pipe": func(t *testing.T) (*os.File, *os.File) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return w, r
		},
		"tty": func(t *testing.T) (*os.File, *os.File) {
			m, s := pty(t)
			return s, m
		},
		"socket": func(t *testing.T) (*os.File, *os.File) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
		},
		"file": func(t *testing.T) (*os.File, *os.File) {
			path := filepath.Join(t.TempDir(), "out")
			w, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			r, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return w, r
		},
		"null": func(t *testing.T) (*os.File, *os.File) {
			w, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			return w, nil
		},
	}
	for from, open := range kinds {
		t.Run(from, func(t *testing.T) {
			in, out := open(t)
			log := filepath.Join(t.TempDir(), "log")
			p := start(t, [3]*os.File{in, in, in}, "dup", "child=1", "log="+log)
			grown(t, log, 0)
			if out != nil {
				go io.Copy(io.Discard, out)
			}
			in.Close()
			dir := filepath.Join(t.TempDir(), "criu")
			dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
			written(t, log)
			p.kill()
			for into, open := range kinds {
				in, out := open(t)
				pid, err := c.Restore(context.Background(), RestoreOptions{Dir: dir, Stdio: [3]*os.File{in, in, in}})
				if err != nil {
					t.Fatalf("%s: %+v", into, err)
				}
				in.Close()
				q := &target{t: t, pid: pid}
				written(t, log)
				if out != nil && from != "file" && from != "null" {
					// What it prints arrives: its own ticks, the child's, and those of the duplicate.
					want := map[string]bool{"tick": true, "child": true, "dup": true}
					for deadline := time.Now().Add(patience); len(want) > 0; {
						b := make([]byte, 4096)
						n, err := out.Read(b)
						if n == 0 && time.Now().After(deadline) {
							t.Fatalf("%s: nothing of %v: %v", into, want, err)
						}
						for w := range want {
							if strings.Contains(string(b[:n]), w) {
								delete(want, w)
							}
						}
					}
				}
				q.kill()
				if out != nil {
					out.Close()
				}
			}
			if out != nil {
				out.Close()
			}
		})
	}
}

func size(t *testing.T, path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// written waits until somebody writes to a log, be it to what has been written before: a restore rewinds the writer.
func written(t *testing.T, path string) {
	t.Helper()
	changed := func() time.Time {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	before := changed()
	for deadline := time.Now().Add(patience); changed().Equal(before); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody writes to %s", path)
		}
	}
}

// grown waits until a file has become longer.
func grown(t *testing.T, path string, than int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); size(t, path) <= than; {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not grow", path)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestFiles: what the program holds on disk, changed after the dump.
func TestFiles(t *testing.T) {
	c := tool(t)
	tmp := t.TempDir()
	log, stdout, data := filepath.Join(tmp, "log"), filepath.Join(tmp, "stdout"), filepath.Join(tmp, "data")
	out, err := os.OpenFile(stdout, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := start(t, [3]*os.File{nil, out, nil}, "log="+log, "flock="+filepath.Join(tmp, "lock"), "data="+data,
		"deleted="+filepath.Join(tmp, "gone"))
	grown(t, log, 0)
	dir := filepath.Join(tmp, "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
	before := size(t, stdout)
	grown(t, stdout, before)
	written(t, log)
	p.kill()
	before = size(t, stdout)
	pid, err := c.Restore(context.Background(), RestoreOptions{Dir: dir})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	q := &target{t: t, pid: pid}
	defer q.kill()
	grown(t, stdout, before) // appended
	// The lock is held again.
	f, err := os.Open(filepath.Join(tmp, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("lock: %v", err)
	}
	q.kill()
	// A file that is open for reading and writing is part of the state: it may have grown but not shrunk.
	if err := os.Truncate(data, 3); err != nil {
		t.Fatal(err)
	}
	if pid, err := c.Restore(context.Background(), RestoreOptions{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), data) {
		t.Errorf("restored process %d over a shrunk file: %v", pid, err)
	}
	if err := os.Truncate(data, 30); err != nil {
		t.Fatal(err)
	}
	if pid, err = c.Restore(context.Background(), RestoreOptions{Dir: dir}); err != nil {
		t.Fatalf("%+v", err)
	}
	(&target{t: t, pid: pid}).kill()
	// A file that was open is gone: refused, by its name.
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Restore(context.Background(), RestoreOptions{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), log) {
		t.Errorf("restored without %s: %v", log, err)
	}
}

// TestRefusals: what CRIU cannot dump is named, with a remedy, and the program runs on.
func TestRefusals(t *testing.T) {
	c := tool(t)
	tmp := t.TempDir()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go accept(l)
	path := filepath.Join(tmp, "sock")
	ul, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ul.Close()
	go accept(ul)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, test := range []struct{ arg, want, remedy string }{
		{"tcp=" + port, "TCP connection 127.0.0.1", "tcp-close"},
		{"unix=" + path, "descriptor 3", "close"},
		{"shm", "System V shared memory", ""},
		{"linked=" + filepath.Join(tmp, "linked"), "linked", ""},
		{"device=/dev/net/tun", "/dev/net/tun", ""},
		{"device=/dev/fuse", "descriptor 3 (/dev/fuse): a FUSE file system", "of its own"},
		{"device=/dev/loop-control", "descriptor 3 (/dev/loop-control): a file of a kind", "close"},
		{"io_uring", "descriptor 3 (anon_inode:[io_uring]): an io_uring (usually opened by libuv", "UV_USE_IO_URING=0"},
		{"perf io_uring", "descriptor 4 (anon_inode:[io_uring])", ""},
		{"perf", "descriptor 3 (anon_inode:[perf_event]): a performance counter", "profiling"},
		{"device=/dev/fuse perf", "; also process", "of its own"},
		{"perf-map", "(anon_inode:[perf_event]): a performance counter", "profiling"},
		{"pidfd", "descriptor 3 (anon_inode:[pidfd]): a descriptor of a process outside", ""},
		{"child=0 setsid", "session", "setsid"},
	} {
		t.Run(test.arg, func(t *testing.T) {
			if regexp.MustCompile("^(device=|io_uring|perf|pidfd)").MatchString(test.arg) {
				can(t, test.arg)
			}
			p := start(t, [3]*os.File{}, append(strings.Fields(test.arg), "threads=1")...)
			p.tick()
			dir := filepath.Join(t.TempDir(), "criu")
			var log strings.Builder
			_, err := c.Dump(context.Background(), DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true, Log: &log})
			if err == nil {
				t.Fatal("dumped")
			}
			t.Log(err)
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.remedy) {
				t.Errorf("does not name %q and %q:\n%+v", test.want, test.remedy, err)
			}
			if log.Len() == 0 && !strings.Contains(test.arg, "setsid") { // the latter is seen before CRIU starts
				t.Error("no log")
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", dir, err)
			}
			p.drain()
			p.tick()
		})
	}
	t.Run("tcp closed", func(t *testing.T) {
		p := start(t, [3]*os.File{}, "tcp="+port)
		p.tick()
		dir := filepath.Join(t.TempDir(), "criu")
		_, err := c.Dump(context.Background(), DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true, TCPClose: true})
		if err != nil && strings.Contains(err.Error(), "use CRIU 4.2") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("%+v", err)
		}
		p.drain()
		p.tick()
		p.kill()
		restored(t, c, dir).tick()
	})
}

// can skips a test of descriptors that cannot be had here.
func can(t *testing.T, args string) {
	t.Helper()
	path, err := targetOnce()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(path, strings.Fields(args)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var why strings.Builder
	cmd.Stderr = &why
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = bufio.NewReader(out).ReadString('\n') // its first tick
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Skip(why.String())
	}
}

// TestExplain reads logs about descriptors of this process.
func TestExplain(t *testing.T) {
	fds := [2]int{}
	for i, name := range []string{"/dev/zero", "/dev/null"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds[i] = int(f.Fd())
	}
	pid := os.Getpid()
	at := func(fd int) string { return fmt.Sprintf("(00.1) %d fdinfo %d: pos: 0 flags: 2/0\n", pid, fd) }
	const early = "(00.0) Error (criu/x.c:1): something that does not matter\n"
	refusal := func(fd int) string {
		return fmt.Sprintf("(00.2) Error (criu/files-ext.c:94): Can't dump file %d of that type [20600] (chr "+
			"195:255)\n", fd)
	}
	zero := fmt.Sprintf("descriptor %d (/dev/zero): a file of a kind", fds[0])
	null := fmt.Sprintf("descriptor %d (/dev/null): a file of a kind", fds[1])
	const gone = "process 4194305 () descriptor 3: a file of a kind"
	for _, test := range []struct{ name, log, want string }{
		{"named", at(fds[0]) + refusal(fds[0]), zero},
		{"after another error", early + at(fds[0]) + refusal(fds[0]), zero},
		{"of another number", at(fds[0]) + refusal(fds[1]), null},
		{"without a line of its own", refusal(fds[1]), null},
		{"of a process that is gone", "(00.1) 4194305 fdinfo 3: pos: 0 flags: 2/0\n" + refusal(3), gone},
		{"sockets", at(fds[0]) + "(00.2) Error (criu/sockets.c:767): sockets: BUG! Unknown socket collected (family " +
			"40)\n",
			"a socket of family 40"},
		{"nothing known", "(00.2) Error (criu/pie/parasite.c:588): send_fds failed (-22)\n",
			"a descriptor of a kind that cannot be dumped"},
		{"a mapping that is gone", "(00.2) Error (criu/x.c:1): Can't handle non-regular mapping on 4194305's map " +
			"7f00\n",
			"process 4194305: mapping at 0x7f00"},
		{"not known", at(fds[0]) + "(00.2) Error (criu/x.c:1): who knows\n",
			fmt.Sprintf("who knows (at process %d", pid)},
	} {
		reason, remedy := explain(test.log, []int{pid}, errors.New("exit status 1"))
		if !strings.Contains(reason, test.want) || remedy == "" && test.name != "not known" {
			t.Errorf("%s: %q, %q; want %q", test.name, reason, remedy, test.want)
		}
	}
}

// TestKinds: what is opened beside CUDA is known by its name, the more special name first.
func TestKinds(t *testing.T) {
	for link, want := range map[string]string{
		"/dev/nvidiactl": "NVML or NCCL", "/dev/nvidia0": "NVML or NCCL",
		"/dev/nvidia-caps/nvidia-cap2": "NVML or NCCL (MIG",
		"/dev/nvidia-uvm":              "a CUDA context", "/dev/dri/renderD128": "EGL",
		"/dev/infiniband/uverbs0": "NCCL, UCX",
		"anon_inode:[io_uring]":   "TCPStore", "anon_inode:bpf-map": "a tracer", "/dmabuf:": "RDMA",
	} {
		k, known := kindOf(link)
		if !known || !strings.Contains(k.is(), want) || k.remedy == "" {
			t.Errorf("%s: %s, %s; want %s", link, k.is(), k.remedy, want)
		}
	}
	if k, known := kindOf("/home/me/file"); known || k.remedy == "" {
		t.Errorf("an ordinary file is %s: %s", k.is(), k.remedy)
	}
	for i, k := range kinds {
		if first, _ := kindOf(k.prefix); first.what != k.what {
			t.Errorf("kind %d (%s) is never found: %s comes first", i, k.prefix, first.prefix)
		}
	}
}

// TestForeignSession: in a container a program may belong to a session whose leader is outside.
func TestForeignSession(t *testing.T) {
	c := tool(t)
	if os.Getenv(foreignSession) == "" {
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.v",
			"-test.run=^TestForeignSession$")
		cmd.Env = append(os.Environ(), foreignSession+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestForeignSession") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	p := start(t, [3]*os.File{})
	p.tick()
	_, err := c.Dump(context.Background(), DumpOptions{PID: p.pid, Dir: filepath.Join(t.TempDir(), "criu"),
		LeaveRunning: true})
	if err == nil || !strings.Contains(err.Error(), "session") || !strings.Contains(err.Error(), "holdfast run") {
		t.Errorf("%+v", err)
	}
	p.drain()
	p.tick()
}

func TestWorkIn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "criu")
	for name, age := range map[string]time.Duration{workPrefix + "1": 2 * time.Hour, workPrefix + "2": 0,
		"other": 2 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, "log"), nil, 0o600),
			os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Tool{}).WorkIn(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != workPrefix+"2" || left[1].Name() != "other" {
		t.Errorf("%v, %v", left, err)
	}
}

func accept(l net.Listener) {
	var held []net.Conn
	for {
		conn, err := l.Accept()
		if err != nil {
			for _, c := range held {
				c.Close()
			}
			return
		}
		held = append(held, conn)
	}
}

// TestKillDump kills CRIU with SIGKILL at random points of a dump: the program has to run on.
func TestKillDump(t *testing.T) {
	c := tool(t)
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	if s := os.Getenv("HOLDFAST_ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	p := start(t, [3]*os.File{}, "threads=4", "memory=32", "setsid")
	p.tick()
	killed, lost := 0, 0
	for range rounds {
		dir := filepath.Join(t.TempDir(), "criu")
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(120000))*time.Microsecond)
		_, err := c.Dump(ctx, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true, Grace: 1})
		cancel()
		if err != nil {
			killed++
		}
		p.drain()
		if !p.ticks() {
			lost++
			t.Logf("lost: %v", p.cmd.Wait())
			p = start(t, [3]*os.File{}, "threads=4", "memory=32", "setsid")
			p.tick()
		}
	}
	t.Logf("%d rounds, %d killed, %d programs lost", rounds, killed, lost)
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true}) // and it can still be dumped
}

// TestKillRestore kills CRIU at random points of a restore: nothing is left, and a restore after it works.
func TestKillRestore(t *testing.T) {
	c := tool(t)
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	p := start(t, [3]*os.File{}, "threads=4", "memory=16", "child")
	p.tick()
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
	items, err := readPstree(dir)
	if err != nil {
		t.Fatal(err)
	}
	p.kill()
	killed := 0
	for range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(50000))*time.Microsecond)
		pid, err := c.Restore(ctx, RestoreOptions{Dir: dir})
		cancel()
		if err == nil {
			(&target{t: t, pid: pid}).kill()
			continue
		}
		killed++
		for _, it := range items {
			syscall.Wait4(it.pid, nil, 0, nil)
			if s, err := procstat.Read(it.pid); err == nil && s.Parent == os.Getpid() {
				t.Errorf("process %d is left, state %c", it.pid, s.State)
			}
		}
	}
	t.Logf("%d of %d killed", killed, rounds)
	restored(t, c, dir).tick()
}

// TestHelpersEnd has a CRIU that fails and leaves a process, as one that is killed may.
func TestHelpersEnd(t *testing.T) {
	c := tool(t)
	p := start(t, [3]*os.File{}, "threads=1", "memory=1")
	p.tick()
	// In the place of CRIU: one that ends and leaves a process with its arguments.
	bin := t.TempDir()
	script, said := filepath.Join(bin, "criu"), filepath.Join(bin, "helper")
	text := "#!/bin/sh\nsh -c 'echo $$ >" + said + "; while sleep 1; do :; done' helper \"$@\" &\n" +
		"while ! [ -s " + said + " ]; do sleep 0.01; done\nexit 1\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	broken := &Tool{path: script, log: c.log, work: c.work}
	ended := func(after string) {
		t.Helper()
		b, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { exec.Command("kill", "-9", strings.TrimSpace(string(b))).Run() })
		helper, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := procstat.Read(helper); err == nil && s.State != 'Z' {
			t.Errorf("after a failed %s the helper, process %d, is left in state %c", after, helper, s.State)
		}
		os.Remove(said)
	}
	dir := filepath.Join(t.TempDir(), "criu")
	if _, err := broken.Dump(t.Context(), DumpOptions{PID: p.pid, Dir: dir}); err == nil {
		t.Fatal("it was dumped")
	}
	ended("dump")
	p.drain()
	p.tick()
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
	p.kill()
	if _, err := broken.Restore(t.Context(), RestoreOptions{Dir: dir}); err == nil {
		t.Fatal("it was restored")
	}
	ended("restore")
}

// TestRestoredKilled kills the process that comes back at random points of a restore: CRIU, whose child it is not, may
// wait for it for ever, but the restore ends and leaves nothing.
func TestRestoredKilled(t *testing.T) {
	c := tool(t)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	p := start(t, [3]*os.File{}, "threads=4", "memory=16")
	p.tick()
	dir := filepath.Join(t.TempDir(), "criu")
	dump(t, c, DumpOptions{PID: p.pid, Dir: dir, LeaveRunning: true})
	p.kill()
	for range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		pid, err := c.Restore(ctx, RestoreOptions{Dir: dir, Born: func(uint64) {
			time.Sleep(time.Duration(rand.IntN(40000)) * time.Microsecond) // the random point
			syscall.Kill(p.pid, syscall.SIGKILL)
		}})
		if ctx.Err() != nil {
			t.Errorf("the restore stood still: %v", err)
		}
		cancel()
		if err == nil {
			(&target{t: t, pid: pid}).kill()
		}
		if s, err := procstat.Read(p.pid); err == nil && s.Parent == os.Getpid() {
			t.Errorf("process %d is left, state %c", p.pid, s.State)
		}
	}
	restored(t, c, dir).tick()
}

func FuzzImages(f *testing.F) {
	f.Add([]byte("\x19\x43\x56\x54\x38\x31\x30\x56"))
	f.Add(append([]byte("\x19\x43\x56\x54\x38\x31\x30\x56\x40\x00\x00\x00"), slotEntry(3, slotInode)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := parseImage(b, magicCommon, magicFiles)
		if err != nil {
			return
		}
		for _, raw := range ms {
			m, err := parseMessage(raw)
			if err != nil {
				continue
			}
			if got := m.without(1 << 28); string(got) != string(raw) {
				t.Fatalf("%x written as %x", raw, got)
			}
			m.uints(5)
			m.sub(fileReg)
		}
	})
}
