package criu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procStat is what /proc/PID/stat says (proc_pid_stat(5)).
type procStat struct {
	pid, ppid, pgrp, session int
	state                    byte
	start                    uint64 // clock ticks since boot
	comm                     string
}

func readStat(path string) (procStat, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return procStat{}, err
	}
	// The name may hold anything, parentheses and spaces included: it ends at the last parenthesis.
	open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if open < 1 || end < open || end+2 > len(b) {
		return procStat{}, fmt.Errorf("%s: not understood", path)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return procStat{}, fmt.Errorf("%s: not understood", path)
	}
	s := procStat{state: f[0][0], comm: string(b[open+1 : end])}
	for _, x := range []struct {
		to   *int
		text string
	}{{&s.pid, strings.TrimSpace(string(b[:open]))}, {&s.ppid, f[1]}, {&s.pgrp, f[2]}, {&s.session, f[3]}} {
		if *x.to, err = strconv.Atoi(x.text); err != nil {
			return procStat{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	if s.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return procStat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func procPath(pid int, rest string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), rest)
}

// allProcesses returns every process that can be seen.
func allProcesses() (map[int]procStat, error) {
	ents, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := make(map[int]procStat, len(ents))
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(procPath(pid, "stat")); err == nil {
			out[pid] = s
		}
	}
	return out, nil
}

// tree returns root and its descendants, parents first.
func tree(all map[int]procStat, root int) []int {
	children := map[int][]int{}
	for _, s := range all {
		children[s.ppid] = append(children[s.ppid], s.pid)
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

// Resume lets a tree run on that was dumped with DumpOptions.LeaveStopped.
func Resume(pid int) error {
	pids, err := Tree(pid)
	if err != nil {
		return err
	}
	var first error
	for _, p := range slices.Backward(pids) {
		if err := syscall.Kill(p, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) && first == nil {
			first = fmt.Errorf("resume process %d: %w", p, err)
		}
	}
	return first
}

// Kill ends a whole tree, root first so that it starts nothing anew, and waits until every process is gone or a
// zombie (which its parent must reap), at most for the timeout.
func Kill(pid int, timeout time.Duration) error {
	pids, err := Tree(pid)
	if err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, p := range pids {
		fd, err := unix.PidfdOpen(p, 0)
		if err != nil {
			continue // gone already
		}
		fds = append(fds, fd)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", p, err)
		}
	}
	deadline := time.Now().Add(timeout)
	for _, fd := range fds {
		for {
			left := time.Until(deadline)
			if left <= 0 {
				return fmt.Errorf("process tree %d does not end after SIGKILL within %v", pid, timeout)
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
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
			if s, err := readStat(procPath(p, "task/"+strconv.Itoa(t)+"/stat")); err == nil && s.state == 'T' {
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
