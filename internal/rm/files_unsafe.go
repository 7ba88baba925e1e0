package rm

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the device files of this machine.
type OS struct{}

type osFile struct{ f *os.File }

// Open opens a device file.
func (OS) Open(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return osFile{os.NewFile(uintptr(fd), path)}, nil
}

// Memory is anonymous memory, shared with children, so that a fork never moves it from under the GPU.
func (OS) Memory(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
}

// Unmap ends a mapping.
func (OS) Unmap(b []byte) error { return unix.Munmap(b) }

// Ring rings a doorbell.
func (OS) Ring(doorbell []byte, token uint32) {
	Fence()
	Store32(doorbell, token)
	Fence()
}

func (f osFile) Fd() int32    { return int32(f.f.Fd()) }
func (f osFile) Close() error { return f.f.Close() }

func (f osFile) Map(size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Ioctl pins everything that the driver is given the address of until it has answered.
func (f osFile) Ioctl(request uint32, arg []byte, in ...Pointer) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	if err := fill(&pins, arg, in); err != nil {
		return err
	}
	pins.Pin(&arg[0])
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.f.Fd(), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
		if errno == unix.EINTR || errno == unix.EAGAIN {
			continue
		}
		if errno != 0 {
			return os.NewSyscallError("ioctl", errno)
		}
		return nil
	}
}

// fill writes addresses where in says. They are of pinned objects, or of memory outside Go's.
func fill(pins *runtime.Pinner, b []byte, in []Pointer) error {
	for _, p := range in {
		if p.At < 0 || p.At+8 > len(b) {
			return fmt.Errorf("address at byte %d of %d", p.At, len(b))
		}
		if err := fill(pins, p.To, p.In); err != nil {
			return err
		}
		if len(p.To) == 0 {
			continue
		}
		pins.Pin(&p.To[0])
		binary.LittleEndian.PutUint64(b[p.At:], uint64(uintptr(unsafe.Pointer(&p.To[0]))))
	}
	return nil
}

// fence is what Fence exchanges. It holds nothing.
var fence atomic.Uint32

// Fence puts all writes before it in front of all writes after it, those to write-combined memory of a device too: on
// x86-64 an exchange empties the write-combining buffers.
func Fence() { fence.Swap(0) }

// Store32 writes one word that a device reads, by one plain store: a device's memory takes no locked one. b is
// aligned to four bytes.
//
//go:noinline
func Store32(b []byte, v uint32) { *(*uint32)(unsafe.Pointer(&b[:4][0])) = v }

// Store64 is Store32 for eight bytes. b is aligned to eight.
//
//go:noinline
func Store64(b []byte, v uint64) { *(*uint64)(unsafe.Pointer(&b[:8][0])) = v }

// Load32 reads a word that a device writes: what is read after it is not older. b is aligned to four bytes.
func Load32(b []byte) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[:4][0]))) }

// Load64 is Load32 for eight bytes. b is aligned to eight.
func Load64(b []byte) uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[:8][0]))) }
