package wire

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Layout of a tap: a memfd that its reader makes and the program maps too. The program writes records (see package
// trace) into a ring; positions count bytes from the beginning and never wrap. One side writes a field, the other only
// reads it, but for cells. Offsets in bytes; what different sides write stands in different cache lines.
const (
	TapMagic     uint32 = 0x31544648 // "HFT1"
	TapRing             = 4 << 20    // size of the ring
	TapCells            = 16384      // one for each slot of the shared page
	TapSize             = tapRing + TapRing
	tapMagic            = 0
	tapVersion          = 4
	tapHead             = 64  // u64, of the program: what is written ends here
	tapWaits            = 72  // u64, of the program: how often it found the ring full
	tapWaitNanos        = 80  // u64, of the program: how long it waited then
	tapTail             = 128 // u64, of the reader: what is read ends here
	tapReader           = 136 // u32, of the reader: 1 while it sleeps until it is woken (futex)
	tapStop             = 140 // u32, of the reader: 1 when it reads no more
	tapWriter           = 192 // u32, of the program: 1 while it waits for room (futex)
	tapCells            = 4096
	tapRing             = tapCells + 4*TapCells

	// A cell is what one thread waits on (futex). The thread takes it from idle to asks, and to sleeps when it has
	// waited for a while; the answer takes it back to idle.
	cellIdle   uint32 = 0
	cellAsks   uint32 = 1
	cellSleeps uint32 = 2
)

// A TapReader is the reading end of a tap. One goroutine may use it; Answer and Wake are for any.
type TapReader struct {
	fd int
	b  []byte
}

// NewTap makes a tap. FD goes to the program with TAP.
func NewTap() (*TapReader, error) {
	fd, err := unix.MemfdCreate("holdfast-tap", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	t := &TapReader{fd: fd}
	if err = unix.Ftruncate(fd, TapSize); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		t.b, err = unix.Mmap(fd, 0, TapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("tap: %w", err)
	}
	*t.word(tapMagic) = TapMagic
	*t.word(tapVersion) = Version
	return t, nil
}

// FD is the descriptor of the tap; it stays the reader's.
func (t *TapReader) FD() int { return t.fd }

// Close lets go of the tap. The program may still have it.
func (t *TapReader) Close() error {
	if t.b == nil {
		return nil
	}
	t.Stop()
	unix.Munmap(t.b)
	t.b = nil
	return unix.Close(t.fd)
}

// Stop tells the program that nobody reads any more: it stops writing, and does not wait for room.
func (t *TapReader) Stop() {
	atomic.StoreUint32(t.word(tapStop), 1)
	futexWake(t.word(tapWriter))
}

// Waits says how often and how long the program waited for room.
func (t *TapReader) Waits() (n uint64, total time.Duration) {
	return atomic.LoadUint64(t.long(tapWaits)), time.Duration(atomic.LoadUint64(t.long(tapWaitNanos)))
}

// Pending returns a copy of what is written and not yet taken: the program could change the original under whoever
// decodes it. An error says that the program does not keep to the rules.
func (t *TapReader) Pending() ([]byte, error) {
	head, tail := atomic.LoadUint64(t.long(tapHead)), *t.long(tapTail)
	n := head - tail
	if n > TapRing || n%8 != 0 {
		return nil, fmt.Errorf("%w: tap: %d bytes in a ring of %d", ErrMalformed, n, TapRing)
	}
	if n == 0 {
		return nil, nil
	}
	ring, at := t.b[tapRing:tapRing+TapRing], tail%TapRing
	b := make([]byte, n)
	copy(b[copy(b, ring[at:]):], ring)
	return b, nil
}

// Take frees the first n bytes of what is pending.
func (t *TapReader) Take(n int) {
	if n == 0 {
		return
	}
	tail := t.long(tapTail)
	atomic.StoreUint64(tail, *tail+uint64(n))
	if atomic.LoadUint32(t.word(tapWriter)) != 0 {
		futexWake(t.word(tapWriter))
	}
}

// Wait returns when something is pending, at the latest after limit. It polls for a while before it sleeps, because
// work that asks stands still meanwhile.
func (t *TapReader) Wait(spin, limit time.Duration) {
	some := func() bool { return atomic.LoadUint64(t.long(tapHead)) != *t.long(tapTail) }
	for begun := time.Now(); ; {
		for range 64 {
			if some() {
				return
			}
		}
		if time.Since(begun) >= spin {
			break
		}
		runtime.Gosched()
	}
	atomic.StoreUint32(t.word(tapReader), 1)
	if !some() {
		futexWait(t.word(tapReader), 1, limit)
	}
	atomic.StoreUint32(t.word(tapReader), 0)
}

// Wake ends a Wait from another goroutine.
func (t *TapReader) Wake() {
	atomic.StoreUint32(t.word(tapReader), 0)
	futexWake(t.word(tapReader))
}

// Answer lets the thread that waits on a cell go on. A cell is answered once for each time it asked.
func (t *TapReader) Answer(cell uint32) {
	if cell >= TapCells {
		return
	}
	c := t.word(tapCells + 4*int(cell))
	if atomic.SwapUint32(c, cellIdle) == cellSleeps {
		futexWake(c)
	}
}

func (t *TapReader) word(off int) *uint32 { return word(t.b, off) }
func (t *TapReader) long(off int) *uint64 { return long(t.b, off) }
