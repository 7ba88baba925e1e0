package criu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
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
				return fmt.Errorf("kill process %d of CRIU: %w", s.PID, err)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of CRIU do not end after SIGKILL within %v", left, timeout)
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

// Parts of CRIU's command line that its processes are known by.
const (
	dumpAction = "dump"
	treeOption = "--tree"
	workOption = "--work-dir"
)

// abandonedFor is how long the dumps of a process that died are watched: all that is normal has ended by then.
const abandonedFor = time.Minute

// endAbandoned ends what cannot end by itself of the dumps with those work directories, whose starter died: a CRIU
// whose program has ended ([whileAlive] says why it may wait for ever), and helpers of a CRIU that was killed. A CRIU
// at work is left to it: it gives the program back.
func (t *Tool) endAbandoned(names []string, limit time.Duration) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Second) {
		all, err := allProcesses()
		if err != nil {
			t.log.Warn("processes that CRIU may have left", "error", err)
			return
		}
		var there, stuck []string
		for _, name := range names {
			switch found, atWork := dumpAt(all, name); {
			case atWork:
				there = append(there, name)
			case found:
				stuck = append(stuck, name)
			}
		}
		if len(stuck) > 0 {
			time.Sleep(endGrace) // for CRIU to notice by itself
		}
		for _, name := range stuck {
			if err := endWorkers(name, 5*time.Second); err != nil {
				t.log.Warn("a dump that nobody waits for", "error", err)
			} else {
				t.log.Info("a dump that nobody waits for and that could not end was ended", "work", name)
			}
		}
		if names = there; len(names) == 0 {
			return
		}
	}
}

// dumpAt looks for processes of a dump with that work directory, and whether CRIU itself is among them and its program
// too. CRIU leads its process group, its helpers do not.
func dumpAt(all map[int]procstat.Stat, name string) (found, atWork bool) {
	for _, s := range all {
		if s.State == 'Z' || !marked(s.PID, name) {
			continue
		}
		b, err := os.ReadFile(procPath(s.PID, "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(b), "\x00")
		at := slices.Index(args, treeOption)
		if !slices.Contains(args, dumpAction) || at < 0 || at+1 == len(args) {
			continue // of a restore, which a mark finds
		}
		found = true
		root, err := strconv.Atoi(args[at+1])
		if p, ok := all[root]; err == nil && s.Group == s.PID && ok && p.State != 'Z' {
			atWork = true
		}
	}
	return found, atWork
}
