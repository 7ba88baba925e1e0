// Package wiretest makes the two ends of a conversation for tests of what speaks package wire: a program that has
// connected, and the shared page that its HELLO brings.
//
// It must not be imported by anything but tests.
package wiretest

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// Pair connects a program with a daemon. The program's end is closed with the test; the daemon's is the caller's.
func Pair(t testing.TB) (program, daemon *wire.Conn) {
	t.Helper()
	program, daemon, err := Connect(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, daemon
}

// Connect is Pair for any goroutine; both ends are the caller's.
func Connect(path string) (program, daemon *wire.Conn, err error) {
	l, err := wire.Listen(path)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if program, err = wire.Dial(path); err != nil {
		return nil, nil, err
	}
	u, err := l.AcceptUnix()
	if err != nil {
		program.Close()
		return nil, nil, err
	}
	return program, wire.NewConn(u), nil
}

// Page makes a shared page as a program brings it: a descriptor that is the caller's.
func Page(t testing.TB) int {
	t.Helper()
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	_, err = unix.Pwrite(fd, binary.LittleEndian.AppendUint32(nil, wire.PageMagic), 0)
	if err == nil {
		err = unix.Ftruncate(fd, wire.PageSize)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
