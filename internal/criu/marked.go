package criu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// EndMarked ends the CRIU of a restore with that mark ([RestoreOptions]), and what it has forked, as long as that has
// not become the program yet. It returns when there is none any more.
func EndMarked(mark string, timeout time.Duration) error {
	if mark == "" {
		return nil
	}
	return endWorkers(workPrefix+mark+"-", timeout)
}

// endWorkers ends every CRIU whose work directory has that name, or one that begins so if it ends with a dash.
func endWorkers(name string, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) { // between two looks
		all, err := allProcesses()
		if err != nil {
			return err
		}
		left := 0
		for _, s := range all {
			// It is the one that was looked at only if it is still there then.
			fd, err := hold(s.PID, s.Start)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil {
				return err
			}
			if s.State != 'Z' && marked(s.PID, name) {
				left++
				err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
			unix.Close(fd)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of a restore: %w", s.PID, err)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of a restore do not end after SIGKILL within %v", left, timeout)
		}
	}
}

// marked reports whether a process is of a CRIU with such a work directory: it has the arguments of that CRIU, or, once
// it has let go of CRIU's memory and while it fills its own, still CRIU's executable and its log.
func marked(pid int, name string) bool {
	is := func(dir string) bool {
		base := filepath.Base(dir)
		return base == name || strings.HasSuffix(name, "-") && strings.HasPrefix(base, name)
	}
	b, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(b, []byte{0})
	for i := 1; i+1 < len(args); i++ {
		if string(args[i]) == workOption && is(string(args[i+1])) {
			return true
		}
	}
	exe, err := os.Readlink(procPath(pid, "exe"))
	if err != nil || strings.TrimSuffix(filepath.Base(exe), " (deleted)") != "criu" {
		return false
	}
	open, err := filepath.Glob(procPath(pid, "fd/*"))
	if err != nil {
		return false
	}
	for _, fd := range open {
		file, err := os.Readlink(fd)
		if err == nil && is(filepath.Dir(file)) {
			return true
		}
	}
	return false
}

const workOption = "--work-dir"
