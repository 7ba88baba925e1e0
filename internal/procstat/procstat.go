// Package procstat reads /proc/PID/stat (proc_pid_stat(5)). It imports nothing of ours.
package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Stat is what the kernel says of a process, or of a thread.
type Stat struct {
	PID, Parent, Group, Session int
	State                       byte   // as 'R', 'S', 'T'; 'Z' and 'X': it has ended
	Start                       uint64 // clock ticks since boot
	Name                        string // of the command: up to 15 bytes, whatever they are
}

// Ended reports whether it has ended and was not waited for yet.
func (s *Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// Read reads the stat of a process. Where there is none, the error is fs.ErrNotExist or unix.ESRCH.
func Read(pid int) (Stat, error) { return ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) }

// ReadFile reads /proc/PID/stat or /proc/PID/task/TID/stat.
func ReadFile(path string) (Stat, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := parse(string(b))
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func parse(text string) (Stat, error) {
	// The name may hold anything, parentheses and spaces included: it ends at the last parenthesis.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("no command name in %q", text)
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 20 {
		return Stat{}, fmt.Errorf("%d fields behind the command name", len(f))
	}
	s := Stat{State: f[0][0], Name: text[open+1 : end]}
	var err error
	for _, x := range []struct {
		to   *int
		text string
	}{{&s.PID, strings.TrimSpace(text[:open])}, {&s.Parent, f[1]}, {&s.Group, f[2]}, {&s.Session, f[3]}} {
		if *x.to, err = strconv.Atoi(x.text); err != nil {
			return Stat{}, err
		}
	}
	s.Start, err = strconv.ParseUint(f[19], 10, 64)
	return s, err
}

// Resident is how many bytes of memory of this process are in RAM (/proc/self/statm), 0 if that cannot be told.
func Resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
