package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"syscall"

	"holdfast/internal/cuda"
)

// Region is device memory, a whole number of chunks, mapped in the engine's context.
type Region struct {
	e   *Engine
	mem deviceMemory
}

// Import maps the memory of size bytes that another process exported as the descriptor fd. The descriptor stays the
// caller's and may be closed or sent on.
func (e *Engine) Import(fd int, size uint64) (*Region, error) {
	r := &Region{e: e}
	err := checkSize(size)
	if err == nil {
		err = e.gpu.do(func() error {
			h, err := e.drv.MemImport(fd)
			if err != nil {
				return err
			}
			r.mem, err = e.mapHandle(h, size)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("import descriptor %d (%#x bytes): %w", fd, size, err)
	}
	return r, nil
}

// Create makes new memory of size bytes and returns it with a descriptor for a program to import, which the caller
// closes. The content is undefined: Fill it.
func (e *Engine) Create(size uint64) (*Region, int, error) {
	r, fd := &Region{e: e}, -1
	err := checkSize(size)
	if err == nil {
		err = e.gpu.do(func() error {
			h, err := e.drv.MemCreate(e.dev, size, true)
			if err != nil {
				return err
			}
			if fd, err = e.drv.MemExport(h); err != nil {
				return errors.Join(err, e.drv.MemRelease(h))
			}
			syscall.CloseOnExec(fd)
			if r.mem, err = e.mapHandle(h, size); err != nil {
				return errors.Join(err, syscall.Close(fd))
			}
			return nil
		})
	}
	if err != nil {
		return nil, -1, fmt.Errorf("create %#x bytes on device %d: %w", size, e.dev, err)
	}
	return r, fd, nil
}

func checkSize(size uint64) error {
	if size == 0 || size%ChunkSize != 0 {
		return fmt.Errorf("size %#x is not a positive multiple of %#x", size, ChunkSize)
	}
	return nil
}

// Close unmaps the region. The memory itself lives on while a program or a descriptor holds it.
func (r *Region) Close() error {
	if r.mem.size == 0 {
		return nil
	}
	m := r.mem
	r.mem = deviceMemory{}
	if err := r.e.gpu.do(func() error { return r.e.release(m) }); err != nil {
		return fmt.Errorf("unmap region at %#x (%#x bytes): %w", m.base, m.size, err)
	}
	return nil
}

// Size returns the size in bytes.
func (r *Region) Size() uint64 { return r.mem.size }

// Chunks returns the size in chunks.
func (r *Region) Chunks() int { return int(r.mem.size / ChunkSize) }

// Read copies what the region holds from off on.
func (r *Region) Read(off uint64, b []byte) error {
	if size := r.Size(); off > size || uint64(len(b)) > size-off {
		return fmt.Errorf("read %#x bytes at %#x of a region of %#x", len(b), off, size)
	}
	e := r.e
	for len(b) > 0 {
		n := min(len(b), len(e.hostTables))
		if err := e.gpu.do(func() error {
			// Also after a failure: nothing is under way when the buffer is used again.
			err := e.drv.CopyDtoH(e.hostTables[:n], r.mem.base+cuda.DevicePtr(off), e.stream)
			err = errors.Join(err, e.wait(false))
			copy(b, e.hostTables[:n])
			return err
		}); err != nil {
			return fmt.Errorf("read %#x bytes at %#x of a region: %w", n, off, err)
		}
		b, off = b[n:], off+uint64(n)
	}
	return nil
}

// chunkTable lists the chunks of regions one after the other.
type chunkTable struct {
	addr  []cuda.DevicePtr
	first []int // of each region: its first chunk's index in addr; one more at the end
}

func newChunkTable(regions []*Region) *chunkTable {
	t := &chunkTable{}
	for _, r := range regions {
		t.first = append(t.first, len(t.addr))
		for i := range r.Chunks() {
			t.addr = append(t.addr, r.mem.base+cuda.DevicePtr(i)*ChunkSize)
		}
	}
	t.first = append(t.first, len(t.addr))
	return t
}

// where returns the region of chunk i and its index there.
func (t *chunkTable) where(i int) (region, chunk int) {
	for t.first[region+1] <= i {
		region++
	}
	return region, i - t.first[region]
}

// chunks yields the chunks that the spans touch. What is outside of a region is left out.
func (t *chunkTable) chunks(spans []Span) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, sp := range spans {
			n := uint64(t.first[sp.Region+1] - t.first[sp.Region])
			if sp.Len == 0 || sp.Off >= n*ChunkSize {
				continue
			}
			last := min((sp.Off+min(sp.Len, n*ChunkSize)-1)/ChunkSize, n-1)
			for c := sp.Off / ChunkSize; c <= last; c++ {
				if !yield(t.first[sp.Region] + int(c)) {
					return
				}
			}
		}
	}
}

// name returns chunk i as errors name it.
func (t *chunkTable) name(i int) string {
	r, c := t.where(i)
	return fmt.Sprintf("region %d chunk %d (offset %#x)", r, c, uint64(c)*ChunkSize)
}

// split returns the part of per-chunk values that belongs to region r.
func split[T any](t *chunkTable, values []T, r int) []T { return values[t.first[r]:t.first[r+1]] }

// Digest returns the digests of all chunks of the regions, computed on the device.
func (e *Engine) Digest(ctx context.Context, regions []*Region) ([][]Digest, error) {
	t := newChunkTable(regions)
	all, err := e.digestChunks(ctx, t.addr, false)
	if err != nil {
		return nil, err
	}
	out := make([][]Digest, len(regions))
	for r := range regions {
		out[r] = split(t, all, r)
	}
	return out, nil
}
