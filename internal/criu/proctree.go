package criu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
)

func procPath(pid int, rest string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), rest)
}

// allProcesses returns every process that can be seen.
func allProcesses() (map[int]procstat.Stat, error) {
	ents, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := make(map[int]procstat.Stat, len(ents))
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := procstat.Read(pid)
		if scarce(err) {
			return nil, err // a tree that lacks a branch is none
		}
		if err == nil {
			out[pid] = s
		}
	}
	return out, nil
}

// tree returns root and its descendants, parents first.
func tree(all map[int]procstat.Stat, root int) []int {
	children := map[int][]int{}
	for _, s := range all {
		children[s.Parent] = append(children[s.Parent], s.PID)
	}
	out := []int{root}
	for i := 0; i < len(out); i++ {
		c := children[out[i]]
		slices.Sort(c)
		out = append(out, c...)
	}
	return out
}

// threads returns the threads of a process.
func threads(pid int) []int {
	ents, err := os.ReadDir(procPath(pid, "task"))
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range ents {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out
}

// Tree returns the process and its descendants, parents first.
func Tree(pid int) ([]int, error) {
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	if _, ok := all[pid]; !ok {
		return nil, fmt.Errorf("process %d: %w", pid, syscall.ESRCH)
	}
	return tree(all, pid), nil
}

// errUnknown is a process of which only the number is known.
var errUnknown = errors.New("it is not known when it started, so it cannot be told from another one with its number")

// scarceLimit is how long we wait for a free descriptor where a process would otherwise stay stopped, or alive.
const scarceLimit = 30 * time.Second

// scarce says of an error that there is no descriptor or memory just now, which tells nothing of the process asked for.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// hold returns a pidfd of the process that got the number pid at start (clock ticks since boot), and an error that
// wraps ESRCH if that has ended, whoever has its number now. While descriptors are scarce it waits.
func hold(pid int, start uint64) (fd int, err error) {
	const first, longest = time.Millisecond, 100 * time.Millisecond
	deadline := time.Now().Add(scarceLimit)
	for wait := first; ; wait = min(2*wait, longest) {
		if fd, err = tryHold(pid, start); !scarce(err) || time.Now().After(deadline) {
			return fd, err
		}
		time.Sleep(wait)
	}
}

func tryHold(pid int, start uint64) (fd int, err error) {
	if start == 0 {
		return -1, fmt.Errorf("process %d: %w", pid, errUnknown)
	}
	if fd, err = unix.PidfdOpen(pid, 0); err != nil {
		return -1, fmt.Errorf("process %d: %w", pid, err)
	}
	// Looked at afterwards: who has the number now and started then had it when the descriptor was made.
	s, err := procstat.Read(pid)
	if err == nil && s.Start == start {
		return fd, nil
	}
	unix.Close(fd)
	if scarce(err) {
		return -1, fmt.Errorf("process %d: %w", pid, err)
	}
	if err == nil {
		err = fmt.Errorf("its number belongs to another process (%s) now", s.Name)
	}
	return -1, fmt.Errorf("process %d has ended: %w (%v)", pid, syscall.ESRCH, err)
}

// held is one process of a tree.
type held struct{ pid, fd int }

// holdTree returns pidfds of the tree of the process that got the number pid at start, parents first. The caller
// closes them. While descriptors are scarce it waits.
func holdTree(pid int, start uint64) (list []held, err error) {
	const first, longest = time.Millisecond, 100 * time.Millisecond
	deadline := time.Now().Add(scarceLimit)
	for wait := first; ; wait = min(2*wait, longest) {
		if list, err = tryHoldTree(pid, start); !scarce(err) || time.Now().After(deadline) {
			return list, err
		}
		time.Sleep(wait)
	}
}

func tryHoldTree(pid int, start uint64) (list []held, err error) {
	fd, err := tryHold(pid, start)
	if err != nil {
		return nil, err
	}
	list = append(list, held{pid, fd})
	all, err := allProcesses()
	if err != nil {
		release(list)
		return nil, err
	}
	if all[pid].Start != start {
		return list, nil // it has ended just now: whose children are left is not known
	}
	for _, p := range tree(all, pid)[1:] {
		fd, err := tryHold(p, all[p].Start)
		if scarce(err) {
			release(list)
			return nil, err
		}
		if err == nil { // else gone already
			list = append(list, held{p, fd})
		}
	}
	return list, nil
}

func release(list []held) {
	for _, h := range list {
		unix.Close(h.fd)
	}
}

// Resume lets a tree run on that was dumped with DumpOptions.LeaveStopped. Its root is the process that
// started at start; no other gets a signal.
func Resume(pid int, start uint64) error {
	list, err := holdTree(pid, start)
	if err != nil {
		return err
	}
	defer release(list)
	var first error
	for _, h := range slices.Backward(list) {
		err := unix.PidfdSendSignal(h.fd, unix.SIGCONT, nil, 0)
		if err != nil && !errors.Is(err, syscall.ESRCH) && first == nil {
			first = fmt.Errorf("resume process %d: %w", h.pid, err)
		}
	}
	return first
}

// Kill ends a whole tree, root first so that it starts nothing anew, and waits until every process is gone or a
// zombie (which its parent must reap), at most for the timeout. Its root is the process that started at start; if
// that has ended, or start is not known (0), nothing is killed and the error says so.
func Kill(pid int, start uint64, timeout time.Duration) error {
	list, err := holdTree(pid, start)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	defer release(list)
	for _, h := range list {
		if err := unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", h.pid, err)
		}
	}
	deadline := time.Now().Add(timeout)
	for _, h := range list {
		for {
			left := time.Until(deadline)
			if left <= 0 {
				return fmt.Errorf("process tree %d does not end after SIGKILL within %v", pid, timeout)
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return err
			}
			if n > 0 {
				break
			}
		}
	}
	return nil
}

// stoppedThreads returns the threads of the processes that are stopped by a signal (state T).
func stoppedThreads(pids []int) map[int]bool {
	out := map[int]bool{}
	for _, p := range pids {
		for _, t := range threads(p) {
			if s, err := procstat.ReadFile(procPath(p, "task/"+strconv.Itoa(t)+"/stat")); err == nil && s.State == 'T' {
				out[t] = true
			}
		}
	}
	return out
}

// unstop continues the processes that a dump which went wrong has left stopped. before is what was stopped beforehand.
func unstop(pids []int, before map[int]bool) {
	for _, p := range pids {
		for t := range stoppedThreads([]int{p}) {
			if !before[t] {
				syscall.Kill(p, syscall.SIGCONT)
				break
			}
		}
	}
}
