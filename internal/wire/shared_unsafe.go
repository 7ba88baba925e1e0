package wire

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// word and long are fields of memory that a program shares with us. Offsets are constants, aligned because mappings
// are, and the slices hold them to the mapping. Both ends are of one machine: native byte order.
func word(b []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off : off+4][0])) }
func long(b []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

// The futexes are shared between processes: no FUTEX_PRIVATE_FLAG.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// The kernel reads p and ts during the call alone, and the expressions in the call's arguments keep both alive.
func futexWait(p *uint32, old uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexOpWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func futexWake(p *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexOpWake, 1<<30, 0, 0, 0)
}
