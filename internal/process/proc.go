package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/procstat"
	"holdfast/internal/wire"
)

// isEOF reports whether a conversation ended in the ordinary way.
func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, unix.ECONNRESET)
}

// Identify completes a HELLO with what the kernel says of the process. pid is that of the peer's credentials. The time
// at which the process started is read here: CRIU may have restored it into a time namespace, where it would read
// another one.
func Identify(h *wire.Hello, pid int, token [16]byte) (Identity, error) {
	start, err := StartTime(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("process %d: %w", pid, err)
	}
	id := Identity{
		PID: pid, StartTime: start, ControlTID: int(h.ControlTID), GPU: h.GPU, Driver: int(h.Driver),
		Name: h.Name, Exe: h.Exe, Devices: h.Devices, Token: token,
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		id.Command = strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	return id, nil
}

// wake sends the signal that a released program waits for, and reports whether it did. A thread that does not wait
// must not get the signal: it would stay pending and end the wait of the next release. So without force the signal is
// sent only if the control thread is seen waiting, and in no case while an earlier one is pending.
func wake(id Identity, force bool) (sent bool, err error) {
	if id.StartTime != 0 && !Alive(id.PID, id.StartTime) {
		return false, unix.ESRCH
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", id.PID, id.ControlTID))
	if err == nil {
		status := string(b)
		if hasSignal(status, "SigPnd:", SignalWake) {
			return true, nil
		}
		// The thread blocks all signals, and the kernel unblocks this one for as long as the thread waits for it.
		if !force && hasSignal(status, "SigBlk:", SignalWake) {
			return false, nil
		}
	}
	return true, unix.Tgkill(id.PID, id.ControlTID, SignalWake)
}

// hasSignal reports whether a set of /proc/PID/task/TID/status has a signal.
func hasSignal(status, set string, sig unix.Signal) bool {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, set); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && bits&(1<<(sig-1)) != 0
		}
	}
	return false
}

// End gives what AwaitEnd says. It says nothing more that matters once ctx has ended.
func End(ctx context.Context, id Identity) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- AwaitEnd(ctx, id) }()
	return ended
}

// AwaitEnd returns nil when the process that id names has ended, or an error when ctx ends before. Meanwhile it
// occupies no thread. While descriptors are scarce it waits for one.
func AwaitEnd(ctx context.Context, id Identity) error {
	const again = 100 * time.Millisecond
	f, err := openProcess(id)
	for errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(again): // no event tells when one becomes free
			f, err = openProcess(id)
		}
	}
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// openProcess returns a pidfd of the process that id names; nil if that has ended.
func openProcess(id Identity) (*os.File, error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", id.PID, err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("process %d", id.PID))
	// If the process with this PID started at that time, it had the PID when the descriptor was made.
	start, err := StartTime(id.PID)
	if err == nil && start == id.StartTime {
		return f, nil
	}
	f.Close()
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	return nil, fmt.Errorf("process %d: %w", id.PID, err)
}

// MayReturn reports whether the program still has the thread that would begin its next conversation: after an exec,
// or once it was told that it is held no longer, it has not.
func (p *Program) MayReturn() bool {
	if peer, ok := p.Peer(); ok && peer.Self != p.id.PID {
		return true // its IDs are of another PID namespace
	}
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", p.id.PID, p.id.ControlTID))
	return !errors.Is(err, os.ErrNotExist)
}

// StartTime returns when a process started, in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	s, err := procstat.Read(pid)
	return s.Start, err
}

// Alive reports whether process pid is the one that started at start (0 = any), and not a zombie. While nobody can look
// (no descriptor is free, say) a process that there is counts as the one that is meant.
func Alive(pid int, start uint64) bool {
	s, err := procstat.Read(pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	if err != nil || s.Ended() {
		return false
	}
	return start == 0 || s.Start == start
}
