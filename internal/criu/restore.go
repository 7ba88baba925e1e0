package criu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
)

// RestoreOptions says what to restore.
type RestoreOptions struct {
	Dir string // as Dump left it; not written to

	// Stdio takes the place of the pipes, terminals and sockets that led outside of the tree when it was dumped, as
	// descriptors 0, 1 and 2 and wherever else they were. nil is /dev/null. They are shared with the caller as with any
	// child. Descriptors that were files are restored as files and need nothing here.
	Stdio [3]*os.File

	// Born, if not nil, is called while CRIU works, as soon as the root process exists: with the time at which it
	// started (clock ticks since boot), which tells it from others that get its number later. When CRIU has to begin
	// again it is called again, for another process.
	Born func(start uint64)

	// Mark, if not empty, is in CRIU's arguments: [EndMarked] finds it when the caller is dead. It is letters and
	// digits.
	Mark string

	// Log gets CRIU's full log, whether or not the restore succeeds.
	Log io.Writer
}

// RestoreError says why CRIU did not restore. Nothing of the program runs.
type RestoreError struct {
	PID    int
	Reason string
	Remedy string
	Log    string
	Err    error
}

func (e *RestoreError) Error() string {
	return reasonText("restore", e.PID, e.Reason, e.Remedy)
}

// Format prints the log too with %+v.
func (e *RestoreError) Format(f fmt.State, verb rune) {
	formatError(f, verb, e, e.Log)
}

func (e *RestoreError) Unwrap() error { return e.Err }

// Restore starts the process tree of a dump again, with the process ids it had. The root is a child of the calling
// process, which has to wait for it (os.FindProcess, Wait). When Restore fails nothing of the tree is left. All of the
// tree runs, also what was stopped (SIGSTOP) when it was dumped.
func (t *Tool) Restore(ctx context.Context, opts RestoreOptions) (pid int, err error) {
	for attempt := 1; ; attempt++ {
		pid, err = t.restore(ctx, opts)
		var e *RestoreError
		if !errors.As(err, &e) || attempt == maxRestores || e.Log == "" || !numberTaken.MatchString(e.Reason) {
			return pid, err // without a log it is our own look that refused: CRIU did not run
		}
		t.log.Warn("a number that the program needs was taken meanwhile; once more", "pid", e.PID, "reason", e.Reason)
		select {
		case <-ctx.Done():
			return pid, err
		case <-time.After(100 * time.Millisecond): // whoever took it may be short-lived
		}
	}
}

const maxRestores = 4

// numberTaken is what CRIU says when somebody started a process or a thread with a number that it needs, between our
// look and its own turn. -17 is EEXIST.
var numberTaken = regexp.MustCompile(`Unable to create a thread: -17|process id \d+ is in use|` +
	`Pid \d+ do(es)? not match expected`)

func (t *Tool) restore(ctx context.Context, opts RestoreOptions) (pid int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	rec, err := readRecord(opts.Dir)
	if err != nil {
		return 0, err
	}
	items, err := readPstree(opts.Dir)
	if err != nil {
		return 0, err
	}
	root := items[0].pid
	refuse := func(err error) error { return &RestoreError{PID: root, Reason: err.Error(), Err: err} }
	if root != rec.Root {
		return 0, refuse(fmt.Errorf("%s says process %d, pstree.img %d", RecordFile, rec.Root, root))
	}
	if err := privileged(); err != nil {
		return 0, refuse(err)
	}
	if err := free(ctx, items); err != nil {
		return 0, refuse(err)
	}
	if err := checkWritable(rec.Writable); err != nil {
		return 0, refuse(err)
	}
	pattern := workPrefix
	if opts.Mark != "" {
		pattern += opts.Mark + "-"
	}
	work, err := os.MkdirTemp(t.work, pattern)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)

	args := t.args("restore", "--images-dir", opts.Dir, workOption, work, "--log-file", "log", "-v4",
		"--restore-detached", "--restore-sibling", "--manage-cgroups=ignore", "--file-locks", "--libdir", work)
	if rec.ShellJob {
		args = append(args, "--shell-job")
	}
	if rec.TCPClose {
		args = append(args, "--tcp-close")
	}
	var extra []*os.File
	for _, s := range rec.Stdio {
		f := opts.Stdio[s.Slot]
		if f == nil {
			if f, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
				return 0, err
			}
			defer f.Close()
		}
		args = append(args, "--inherit-fd", fmt.Sprintf("fd[%d]:%s", 3+len(extra), s.Key)) // exec.Cmd.ExtraFiles
		extra = append(extra, f)
	}
	t.log.Debug("criu restore", "pid", root, "processes", len(items), "dir", opts.Dir)
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	stop := watchRoot(root, opts.Born, func() {
		giveUp(errors.New("the process ended while it was restored"))
	})
	// Given up on, it is killed at once: what it has started so far goes too.
	runErr := t.run(ctx, args, extra, nil, time.Nanosecond)
	if cause := context.Cause(ctx); runErr != nil && cause != nil {
		runErr = cause
	}
	stop(runErr == nil)
	log := copyLog(filepath.Join(work, "log"), opts.Log)
	if runErr == nil {
		// Whoever was stopped when it was dumped would stand still for ever: who stopped it knows another process. CRIU
		// has sent the SIGSTOP, but it need not have taken effect, so it cannot be seen; whoever runs does not notice.
		if err := resumeChild(root); err != nil {
			t.log.Warn("what was stopped when it was dumped may stand still", "pid", root, "err", err)
		}
		return root, nil
	}
	// CRIU has helpers beside the tree, which do not end with it if it was killed alone.
	remains := errors.Join(endWorkers(filepath.Base(work), 5*time.Second), sweep(items))
	e := &RestoreError{PID: root, Log: log.tail, Err: runErr}
	e.Reason, e.Remedy = explain(log.text, nil, runErr)
	if remains != nil {
		e.Reason += "; " + remains.Error()
	}
	return 0, e
}

// resumeChild is Resume for a child of the caller that has not been waited for: its number is still its own.
func resumeChild(pid int) error {
	s, err := procstat.Read(pid)
	if err != nil {
		return err
	}
	return Resume(pid, s.Start)
}

// endGrace is how long CRIU has, when the root process has ended, to notice or to be done.
const endGrace = 2 * time.Second

// watchRoot calls born as soon as the root process of a restore is there, and died when it has ended again and CRIU
// still works endGrace later. CRIU itself may wait for ever then: the process is no child of CRIU but of the caller, so
// nothing tells it. The function that watchRoot returns ends the watch; it is told whether the restore succeeded.
func watchRoot(pid int, born func(start uint64), died func()) (stop func(there bool)) {
	var start uint64
	look := func() (there, ended bool) {
		s, err := procstat.Read(pid)
		ours := err == nil && s.Parent == os.Getpid() && (start == 0 || s.Start == start)
		if ours && start == 0 {
			if start = s.Start; born != nil {
				born(start)
			}
		}
		return ours, start != 0 && (!ours || s.State == 'Z')
	}
	end, ended := make(chan bool), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		var grace <-chan time.Time
		for {
			select {
			case there := <-end:
				if there {
					look()
				}
				return
			case <-grace:
				died()
				<-end
				return
			case <-tick.C:
			}
			there, over := look()
			if there {
				tick.Reset(20 * time.Millisecond) // born: its end is not urgent
			}
			if over && grace == nil {
				grace = time.After(endGrace)
			}
		}
	}()
	return func(there bool) { end <- there; <-ended }
}

// errZombie is a process that has ended and has only to be reaped.
var errZombie = errors.New("has ended but its parent has not taken its status (a zombie)")

// free refuses when a process id that the tree needs is in use: as a process, a thread, a process group or a session.
// Zombies of others get some time: an init reaps what it inherits, but not always at once.
func free(ctx context.Context, items []pstreeItem) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := inUse(items)
		if !errors.Is(err, errZombie) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func inUse(items []pstreeItem) error {
	all, err := allProcesses()
	if err != nil {
		return err
	}
	need := map[int]bool{}
	for _, it := range items {
		need[it.pid] = true
		for _, t := range it.threads {
			need[t] = true
		}
	}
	for id := range need {
		if s, ok := all[id]; ok {
			if s.State == 'Z' {
				return fmt.Errorf("process %d (%s) %w: end the parent, process %d (%s), or have it wait",
					id, s.Name, errZombie, s.Parent, all[s.Parent].Name)
			}
			return fmt.Errorf("process id %d is in use (%s): end that process first, or restore after it has ended",
				id, s.Name)
		}
		// Threads do not show up in /proc's listing but do under their own id.
		if s, err := procstat.Read(id); err == nil {
			return fmt.Errorf("process id %d is in use by a thread (%s): restore after it has ended", id, s.Name)
		}
	}
	for _, s := range all {
		for what, id := range map[string]int{"process group": s.Group, "session": s.Session} {
			if need[id] {
				if s.State == 'Z' {
					return fmt.Errorf("process %d (%s) of %s %d %w", s.PID, s.Name, what, id, errZombie)
				}
				return fmt.Errorf("%s %d still has a member, process %d (%s): end it first", what, id, s.PID, s.Name)
			}
		}
	}
	return nil
}

// checkWritable refuses when a file that was open for reading and writing is gone or shorter than it was: its content
// is part of the program's state, and a shared mapping of it would fault.
func checkWritable(files []writableFile) error {
	for _, f := range files {
		if !f.Update || !filepath.IsAbs(f.Path) {
			continue
		}
		st, err := os.Stat(f.Path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a deleted file lives in the dump; CRIU names any other
		}
		if err != nil {
			return err
		}
		if st.Mode().IsRegular() && uint64(st.Size()) < f.Size {
			return fmt.Errorf("%s was %d bytes long when it was dumped, open for reading and writing, and has only "+
				"%d now: "+
				"put it back", f.Path, f.Size, st.Size())
		}
	}
	return nil
}

// sweep ends what a failed restore has left of the tree, and reaps its root. CRIU does it itself unless it was killed.
// All the ids were free before, so a process that has one of them and hangs below us, or below one that does, is ours.
func sweep(items []pstreeItem) error {
	need := map[int]bool{}
	for _, it := range items {
		need[it.pid] = true
	}
	root := items[0].pid
	deadline := time.Now().Add(5 * time.Second)
	for {
		all, err := allProcesses()
		if err != nil {
			return err
		}
		var left []string
		for _, it := range items {
			s, ok := all[it.pid]
			if !ok || !(s.Parent == os.Getpid() || need[s.Parent] || s.Parent == 1) {
				continue
			}
			if s.Parent == os.Getpid() && it.pid == root {
				killOne(s)
				syscall.Wait4(root, nil, syscall.WNOHANG, nil)
			} else if s.State != 'Z' {
				killOne(s)
			} else {
				continue // init's to reap
			}
			left = append(left, strconv.Itoa(it.pid))
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %s are left and do not end", strings.Join(left, ", "))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// killOne ends the process that s was read of, if it has not ended yet: by now somebody else may have its number.
func killOne(s procstat.Stat) {
	if fd, err := hold(s.PID, s.Start); err == nil {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
}
