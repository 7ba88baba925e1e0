package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// isEOF reports whether a conversation ended as conversations do.
func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// Identify completes a HELLO with what the kernel says of the process. pid is that of the peer's credentials. The time at
// which the process started is read here: CRIU may have restored it into a time namespace, where it would read another one.
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

// StartTime returns field 22 of /proc/PID/stat, in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	f, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// Alive reports whether process pid is the one that started at start (0 = any), and not a zombie.
func Alive(pid int, start uint64) bool {
	f, err := statFields(pid)
	if err != nil || f[0] == "Z" || f[0] == "X" {
		return false
	}
	return start == 0 || f[19] == strconv.FormatUint(start, 10)
}

// statFields returns the fields of /proc/PID/stat from the third on (state).
func statFields(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return nil, fmt.Errorf("/proc/%d/stat: no command name", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	return f, nil
}
