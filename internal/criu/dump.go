package criu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/internal/procstat"
)

// DumpOptions says what to dump and what becomes of the program.
type DumpOptions struct {
	PID int    // root of the process tree
	Dir string // for the images; created with mode 0700 when absent, must be empty

	// After a successful dump the tree is killed, unless LeaveRunning, or LeaveStopped: then it is stopped (SIGSTOP)
	// until Resume or Kill. Whoever wants no program lost stops it, makes the image durable, and kills it then.
	LeaveRunning bool
	LeaveStopped bool

	// TCPClose leaves the state of TCP connections out; after a restore they are closed. Without it a connection to the
	// outside is refused.
	TCPClose bool

	// Grace is how long CRIU may go on by itself after the context has ended, before it is killed: killing it can
	// cost the program's life. 0 is 20 s.
	Grace time.Duration

	// Log gets CRIU's full log, whether or not the dump succeeds.
	Log io.Writer
}

// Stats are the figures of a dump: CRIU's own (images/stats.proto) and what was measured around it.
type Stats struct {
	Freezing      time.Duration `json:"freezing_ns"` // until all threads had stopped
	Frozen        time.Duration `json:"frozen_ns"`   // how long they were
	MemDump       time.Duration `json:"memdump_ns"`  // of that, draining pages from the program
	MemWrite      time.Duration `json:"memwrite_ns"` // writing them
	PagesScanned  uint64        `json:"pages_scanned"`
	PagesWritten  uint64        `json:"pages_written"`
	SharedWritten uint64        `json:"shared_pages_written"`
	Wall          time.Duration `json:"wall_ns"` // the whole call
	Processes     int           `json:"processes"`
	Caveats       []string      `json:"caveats,omitempty"` // what will not come back as it was
}

// DumpError says why CRIU did not dump. The program runs on as before.
type DumpError struct {
	PID     int
	Reason  string // names the object
	Remedy  string // what to do; may be empty
	Log     string // the last lines of CRIU's log
	Stopped bool   // the program could not be seen running again afterwards
	Err     error  // how CRIU ended, or why it was not started
}

func (e *DumpError) Error() string {
	return reasonText("dump", e.PID, e.Reason, e.Remedy)
}

// Format prints the log too with %+v.
func (e *DumpError) Format(f fmt.State, verb rune) {
	formatError(f, verb, e, e.Log)
}

func (e *DumpError) Unwrap() error { return e.Err }

// Dump writes the process tree of opts.PID to opts.Dir. When it fails the program runs on and opts.Dir holds nothing.
func (t *Tool) Dump(ctx context.Context, opts DumpOptions) (st Stats, err error) {
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return st, err
	}
	if opts.LeaveRunning && opts.LeaveStopped {
		return st, errors.New("criu dump: both left running and left stopped")
	}
	root, pids, err := look(opts.PID)
	if err != nil {
		return st, err
	}
	x, err := findExternal(pids)
	if err != nil {
		return st, &DumpError{PID: opts.PID, Reason: err.Error(), Err: err}
	}
	made, err := emptyDir(opts.Dir)
	if err != nil {
		return st, err
	}
	work, err := os.MkdirTemp(t.work, workPrefix)
	if err != nil {
		return st, err
	}
	defer os.RemoveAll(work)
	defer func() {
		if err != nil {
			clearDir(opts.Dir, made)
		}
	}()

	shellJob := root.Session != root.PID
	args := t.dumpArgs(opts, work, shellJob, x)
	before := stoppedThreads(pids)
	t.log.Debug("criu dump", "pid", opts.PID, "processes", len(pids), "dir", opts.Dir)
	dumpCtx, stop := whileAlive(ctx, opts.PID)
	runErr := t.run(dumpCtx, args, nil, nil, opts.Grace)
	stop()
	log := copyLog(filepath.Join(work, "log"), opts.Log)
	if runErr != nil {
		// CRIU has helpers, which do not end with it if it was killed alone.
		if err := endWorkers(filepath.Base(work), 5*time.Second); err != nil {
			t.log.Warn("criu dump", "pid", opts.PID, "error", err)
		}
		unstop(pids, before)
		return st, failedDump(opts.PID, pids, log, runErr)
	}
	if !opts.LeaveRunning {
		defer func() {
			if err != nil {
				err = errors.Join(err, Resume(opts.PID, root.Start))
			}
		}()
	}
	if st, err = readDumpStats(filepath.Join(work, "stats-dump")); err != nil {
		// Figures only: never a reason to give up a dump.
		t.log.Warn("criu dump statistics", "error", err)
		st = Stats{}
	}
	caveats, processes, err := t.seal(opts, shellJob, x)
	if err != nil {
		return st, err
	}
	if !opts.LeaveRunning && !opts.LeaveStopped {
		if err := Kill(opts.PID, root.Start, 10*time.Second); err != nil {
			return st, err
		}
	}
	st.Processes, st.Caveats, st.Wall = processes, caveats, time.Since(start)
	return st, nil
}

// dumpArgs is CRIU's command line for a dump, with work for its log and its figures.
func (t *Tool) dumpArgs(opts DumpOptions, work string, shellJob bool, x *external) []string {
	args := t.args(dumpAction, treeOption, strconv.Itoa(opts.PID), "--images-dir", opts.Dir, workOption, work,
		"--log-file", "log", "-v3", "--manage-cgroups=ignore", "--file-locks", "--ghost-limit", "1G",
		// No plugins: the CUDA plugin of a system's CRIU would do the driver checkpoint a second time.
		"--libdir", work)
	// Where the tree is to end, CRIU only stops it: it ends when the dump is known to be good.
	if opts.LeaveRunning {
		args = append(args, "--leave-running")
	} else {
		args = append(args, "--leave-stopped")
	}
	if shellJob {
		args = append(args, "--shell-job")
	}
	if opts.TCPClose {
		args = append(args, "--tcp-close")
	}
	for tty := range x.ttys {
		args = append(args, "--external", tty)
	}
	for ino := range x.sockets {
		args = append(args, "--external", fmt.Sprintf("unix[%d]", ino))
	}
	return args
}

// failedDump says why CRIU did not dump, and what became of the program.
func failedDump(pid int, pids []int, log criuLog, runErr error) error {
	e := &DumpError{PID: pid, Log: log.tail, Err: runErr}
	e.Reason, e.Remedy = explain(log.text, pids, runErr)
	if s, err := procstat.Read(pid); err != nil || s.State == 'Z' {
		e.Stopped = true
		e.Reason += "; the process has ended"
	}
	return e
}

// seal makes the images of a dump ready for a restore: it rewrites them, and puts the record beside them.
func (t *Tool) seal(opts DumpOptions, shellJob bool, x *external) (caveats []string, processes int, err error) {
	refuse := func(reason string, err error) error { return &DumpError{PID: opts.PID, Reason: reason, Err: err} }
	rec, err := adopt(opts.Dir, x)
	if err != nil {
		return nil, 0, refuse("rewrite images: "+err.Error(), err)
	}
	items, err := readPstree(opts.Dir)
	if err != nil {
		return nil, 0, refuse(err.Error(), err)
	}
	rec.Version, rec.CRIU, rec.Root = recordVersion, t.version, opts.PID
	rec.ShellJob, rec.TCPClose = shellJob, opts.TCPClose
	if err := writeRecord(opts.Dir, rec); err != nil {
		return nil, 0, err
	}
	return rec.Caveats, len(items), ownerOnly(opts.Dir)
}

// Precheck refuses a tree that Dump is known to refuse, with the same error, so that it is known before anything is
// taken apart. It also asks, until that has succeeded once, whether CRIU works here at all.
func (t *Tool) Precheck(pid int) error {
	if _, _, err := look(pid); err != nil {
		return err
	}
	t.checking.Lock()
	defer t.checking.Unlock()
	if t.checked {
		return nil
	}
	if err := t.Check(); err != nil {
		return err
	}
	t.checked = true
	return nil
}

// look returns the processes of a tree that may be dumped, parents first, and what is known of its root.
func look(pid int) (root procstat.Stat, pids []int, err error) {
	refuse := func(reason, remedy string, err error) (procstat.Stat, []int, error) {
		return root, nil, &DumpError{PID: pid, Reason: reason, Remedy: remedy, Err: err}
	}
	if err := privileged(); err != nil {
		return refuse(err.Error(), "", err)
	}
	all, err := allProcesses()
	if err != nil {
		return root, nil, err
	}
	root, ok := all[pid]
	if !ok {
		return refuse("no such process", "", syscall.ESRCH)
	}
	pids = tree(all, pid)
	for _, p := range pids {
		if err := checkProcess(p, all[p], p == pid); err != nil {
			return refuse(err.Error(), "", err)
		}
		// CRIU would dump it, and then want to make a process with the id of that session's leader.
		if sid := all[p].Session; sid != root.Session && !slices.Contains(pids, sid) {
			return refuse(fmt.Sprintf("process %d (%s) belongs to session %d, its root process %d to session %d",
				p, all[p].Name, sid, root.PID, root.Session), "call setsid before starting others", nil)
		}
	}
	if root.Session == 0 { // as /proc has it; CRIU cannot dump a session it cannot name
		return refuse("the leader of its session is outside of this PID namespace",
			"start it with holdfast run, or with setsid", nil)
	}
	return root, pids, nil
}

// checkProcess refuses what is known beforehand to fail.
func checkProcess(pid int, s procstat.Stat, root bool) error {
	if pid == os.Getpid() {
		return fmt.Errorf("the tree holds process %d, which is asked to dump it", pid)
	}
	if s.Ended() && root {
		return fmt.Errorf("process %d (%s) has ended already", pid, s.Name)
	}
	b, err := os.ReadFile(procPath(pid, "status"))
	if errors.Is(err, os.ErrNotExist) && !root {
		return nil // a child that ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			if v = strings.TrimSpace(v); v != "0" {
				return fmt.Errorf("process %d (%s) is traced by process %s: end the debugger first", pid, s.Name, v)
			}
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "user"} {
		if ownNamespace(pid, ns) {
			return fmt.Errorf("process %d (%s) has a %s namespace of its own (a container or sandbox): "+
				"run holdfast inside it", pid, s.Name, ns)
		}
	}
	return nil
}

// ownNamespace reports whether a process is in another namespace of this kind than we are.
func ownNamespace(pid int, kind string) bool {
	ours, err1 := os.Readlink("/proc/self/ns/" + kind)
	its, err2 := os.Readlink(procPath(pid, "ns/"+kind))
	return err1 == nil && err2 == nil && ours != its
}

// whileAlive returns a context that ends some time after the process has. CRIU waits for ever for a process with
// several threads that is killed while it traces them: the kernel does not report the end of the first thread before
// that of the others, which CRIU does not ask for.
func whileAlive(ctx context.Context, pid int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var dead time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				s, err := procstat.Read(pid)
				if err == nil && s.State != 'Z' {
					continue
				}
				if dead.IsZero() {
					dead = now
				} else if now.Sub(dead) > endGrace {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

// run starts CRIU and waits for it. It is shielded from the terminal's signals, and a context that ends gives it some
// time to finish by itself.
func (t *Tool) run(ctx context.Context, args []string, extra []*os.File, onStart func(), grace time.Duration) error {
	if grace <= 0 {
		grace = 20 * time.Second
	}
	cmd := t.command(context.Background(), args...)
	cmd.ExtraFiles = extra
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	// Restored processes may keep a pipe for the output open: do not wait for its end.
	cmd.WaitDelay = 2 * time.Second
	switch args[0] {
	case dumpAction:
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	case "restore":
		// A restore does not outlive us: nobody would know what it brings back, nor end it. The signal
		// comes with the end of the thread that started CRIU, so that is held on to.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if onStart != nil {
		onStart()
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case err = <-done:
		case <-timer.C:
			cmd.Process.Kill()
			err = errors.Join(<-done, ctx.Err())
		}
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		if s := strings.TrimSpace(out.String()); s != "" {
			return fmt.Errorf("criu %s: %w: %s", args[0], err, s)
		}
		return fmt.Errorf("criu %s: %w", args[0], err)
	}
	return nil
}

// criuLog is a log that CRIU wrote.
type criuLog struct{ text, tail string }

func copyLog(path string, to io.Writer) criuLog {
	const most = 64 << 20
	f, err := os.Open(path)
	if err != nil {
		return criuLog{}
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, most))
	if to != nil {
		to.Write(b)
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return criuLog{text: string(b), tail: strings.Join(lines[max(0, len(lines)-40):], "\n")}
}

// readDumpStats reads dump_stats_entry of images/stats.proto; times there are microseconds.
func readDumpStats(path string) (st Stats, err error) {
	ms, err := readImage(path, magicService, magicStats)
	if err != nil {
		return st, err
	}
	if len(ms) == 0 {
		return st, fmt.Errorf("%s: empty", path)
	}
	m, err := parseMessage(ms[0])
	if err != nil {
		return st, fmt.Errorf("%s: %w", path, err)
	}
	d, err := m.sub(1)
	if err != nil {
		return st, fmt.Errorf("%s: %w", path, err)
	}
	us := func(n uint32) time.Duration { return time.Duration(d.uint(n)) * time.Microsecond }
	return Stats{Freezing: us(1), Frozen: us(2), MemDump: us(3), MemWrite: us(4),
		PagesScanned: d.uint(5), PagesWritten: d.uint(7), SharedWritten: d.uint(14)}, nil
}

// emptyDir makes sure that dir is an empty directory, and says whether it made it.
func emptyDir(dir string) (made bool, err error) {
	if err := os.Mkdir(dir, 0o700); err == nil {
		return true, nil
	} else if !errors.Is(err, os.ErrExist) {
		return false, err
	}
	ents, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if len(ents) > 0 {
		return false, fmt.Errorf("%s is not empty", dir)
	}
	return false, nil
}

func clearDir(dir string, remove bool) {
	ents, _ := os.ReadDir(dir)
	for _, e := range ents {
		os.RemoveAll(filepath.Join(dir, e.Name()))
	}
	if remove {
		os.Remove(dir)
	}
}

// ownerOnly takes the group's and the others' rights from the images: they hold the program's memory.
func ownerOnly(dir string) error {
	ents, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(ents))
	for _, e := range ents {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if err := os.Chmod(filepath.Join(dir, n), 0o600); err != nil {
			return err
		}
	}
	return nil
}
