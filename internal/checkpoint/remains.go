package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/process"
)

// What a restore leaves whose daemon died. Its record says when the root process started, as soon as that is known.
// If the daemon died before that, it may have left a CRIU that works on, or a child of it; both are known by the mark
// of this very restore ([criu.EndMarked]). Or it left the program, with its memory and its process ID. But any
// process may have that ID: it was free when the restore began, and nobody has looked since. So the program is known
// by its token, 16 random bytes that its shim has in memory. A wrong kill is worse than a leftover.

// endRestore ends the process of a restore that was cut short. Its memory may not be whole, but the image is: it can
// be restored again.
func endRestore(r *Record, log *slog.Logger) error {
	const limit = 10 * time.Second
	log = log.With("pid", r.Root, "image", r.Image)
	start, err := r.recognise(limit)
	if errors.Is(err, unix.ESRCH) {
		log.Info("a restore was cut short; nothing is left of it")
		return nil
	}
	if err != nil {
		return err
	}
	if start == 0 {
		log.Error("a restore was cut short, and the process that has its number does not seem to be of it: " +
			"it is left alone; restore the image again once it has ended")
		return nil
	}
	log.Warn("a restore was cut short: its process is ended; restore the image again")
	err = criu.Kill(r.Root, start, limit)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// recognise ends the CRIU of a restore and returns when the root that it has made started; 0 if another process has
// its ID, or if that cannot be told. The error is ESRCH when no process has it.
func (r *Record) recognise(limit time.Duration) (start uint64, err error) {
	// On its way from a child of CRIU to the program a process is neither for a moment: it has let go of CRIU's
	// memory and has not got its own. It does not wait there, so it is looked at again.
	const moment = 3 * time.Second
	for deadline := time.Now().Add(moment); ; time.Sleep(5 * time.Millisecond) {
		if err := criu.EndMarked(r.Mark, limit); err != nil {
			return 0, err
		}
		if !process.Alive(r.Root, r.RootStart) {
			return 0, unix.ESRCH
		}
		if r.RootStart != 0 {
			return r.RootStart, nil
		}
		start, err := process.StartTime(r.Root)
		if err != nil || r.Begun == 0 || start < r.Begun || r.Identity.Token == [16]byte{} {
			return 0, nil
		}
		if r.isProgram() {
			return start, nil
		}
		if time.Now().After(deadline) {
			return 0, nil
		}
	}
}

// isProgram reports whether the process that has the root's ID, or a descendant of it, is the program of a restore.
func (r *Record) isProgram() bool {
	tree, err := criu.Tree(r.Root)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(tree, func(pid int) bool {
		return pid == r.Identity.PID && hasToken(pid, r.Identity.Token)
	})
}

// ticks is the time since boot as /proc/PID/stat says it.
func ticks() uint64 {
	const perSecond = 100 // USER_HZ of x86-64
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(t.Nano()) / uint64(time.Second/perSecond)
}

// shimName is the file name of the shim, wherever it was unpacked.
const shimName = "libholdfast.so"

// hasToken reports whether the shim of a process has that token, in its variables: writable memory of the shim's file,
// and what follows that without a gap. A running program shares a part of them with the daemon, so they are several
// mappings; one that CRIU still works on has them in one.
func hasToken(pid int, token [16]byte) bool {
	const largest = 16 << 20
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false
	}
	defer mem.Close()
	end := uint64(0) // of the shim so far
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var access, offset, dev, inode, name string
		fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &from, &to, &access, &offset, &dev, &inode, &name)
		if path.Base(name) != shimName && (from != end || end == 0) {
			continue
		}
		end = to
		if !strings.HasPrefix(access, "rw") || to <= from || to-from > largest {
			continue
		}
		b := make([]byte, to-from)
		n, _ := mem.ReadAt(b, int64(from))
		if bytes.Contains(b[:n], token[:]) {
			return true
		}
	}
	return false
}
