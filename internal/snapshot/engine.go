package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"

	"holdfast/internal/cuda"
	"holdfast/internal/snapshot/digest"
)

// ChunkSize is the unit in which memory is digested, stored and compared.
const ChunkSize = digest.ChunkSize

// Digest names the content of a chunk.
type Digest = digest.Digest

// ZeroDigest is the digest of a chunk of zeros. Such chunks are never given to a Sink and never fetched.
var ZeroDigest = digest.ZeroDigest

// EngineOptions configures an engine. The zero value suits the machine.
type EngineOptions struct {
	Logger *slog.Logger // nil: none
	// PinnedBytes is the host memory to pin for copies, which the engine keeps: pinning is slow (3 GB/s). 0: 512 MiB on
	// a host with 64 GiB or more, else 64 MiB. It is split over two buffers for each lane.
	PinnedBytes int64
	// Lanes is how many goroutines copy and run sinks and fetches. 0: the number of CPUs, at least 2, at most 16.
	Lanes int
	// Reserve is the device memory that staging leaves free. 0: 1/64 of the device, at least 256 MiB.
	Reserve uint64
}

// Engine reads and writes the memory of regions on one device.
type Engine struct {
	drv     cuda.Driver
	dev     cuda.Device
	log     *slog.Logger
	reserve uint64

	gpu        *thread // maps memory and launches kernels
	module     cuda.Module
	digestFn   cuda.Function
	copyFn     cuda.Function
	stream     cuda.Stream // of gpu
	tables     deviceMemory
	hostTables []byte // pinned; laid out as tables

	batches    chan *batch // to the lanes
	lanes      sync.WaitGroup
	batchBytes int
}

// The tables of a kernel launch, in one chunk of device memory: addresses of sources, of destinations, digests.
const (
	tableEntries = ChunkSize / (8 + 8 + digest.Size)
	sourceTable  = 0
	destTable    = sourceTable + 8*tableEntries
	digestTable  = destTable + 8*tableEntries
)

// NewEngine makes an engine for a device: it retains the device's primary context, loads the digest kernels and
// starts to pin host memory, in the background. The driver must be initialised (Init).
func NewEngine(drv cuda.Driver, dev cuda.Device, opts EngineOptions) (*Engine, error) {
	e := &Engine{drv: drv, dev: dev, log: opts.Logger, reserve: opts.Reserve}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	ctx, err := drv.PrimaryContextRetain(dev)
	if err != nil {
		return nil, fmt.Errorf("engine for device %d: %w", dev, err)
	}
	if e.gpu, err = startThread(drv, ctx); err != nil {
		return nil, fmt.Errorf("engine for device %d: %w", dev, errors.Join(err, drv.PrimaryContextRelease(dev)))
	}
	if err := e.gpu.do(e.open); err != nil {
		return nil, fmt.Errorf("engine for device %d: %w", dev, errors.Join(err, e.Close()))
	}
	lanes := opts.Lanes
	if lanes <= 0 {
		lanes = min(max(runtime.NumCPU(), 2), 16)
	}
	pinned := opts.PinnedBytes
	if pinned <= 0 {
		pinned = defaultPinned()
	}
	chunks := max(int(pinned)/(2*lanes*ChunkSize), 1)
	e.batchBytes = chunks * ChunkSize
	e.batches = make(chan *batch, lanes)
	for range lanes {
		e.lanes.Go(func() { runLane(drv, ctx, e.batchBytes, e.batches) })
	}
	e.log.Debug("engine started", "device", dev, "lanes", lanes, "pinned_bytes", 2*lanes*e.batchBytes)
	return e, nil
}

func defaultPinned() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil && uint64(info.Totalram)*uint64(info.Unit) >= 64<<30 {
		return 512 << 20
	}
	return 64 << 20
}

// open sets up what the gpu thread uses.
func (e *Engine) open() error {
	var err error
	if e.module, err = e.drv.ModuleLoad(digest.PTX); err != nil {
		return err
	}
	if e.digestFn, err = e.drv.ModuleFunction(e.module, digest.Kernel); err != nil {
		return err
	}
	if e.copyFn, err = e.drv.ModuleFunction(e.module, digest.CopyKernel); err != nil {
		return err
	}
	if e.stream, err = e.drv.StreamCreate(); err != nil {
		return err
	}
	if e.hostTables, err = e.drv.HostAlloc(ChunkSize); err != nil {
		return err
	}
	if e.tables, err = e.allocate(ChunkSize); err != nil {
		return err
	}
	if e.reserve == 0 {
		_, total, err := e.drv.MemInfo()
		if err != nil {
			return err
		}
		e.reserve = max(total/64, 256<<20)
	}
	return nil
}

// Close releases all that the engine has. Snapshots and regions must be closed before.
func (e *Engine) Close() error {
	if e.batches != nil {
		close(e.batches)
		e.lanes.Wait()
	}
	err := e.gpu.do(func() error {
		var errs []error
		errs = append(errs, e.release(e.tables))
		if e.hostTables != nil {
			errs = append(errs, e.drv.HostFree(e.hostTables))
		}
		if e.stream != 0 {
			errs = append(errs, e.drv.StreamDestroy(e.stream))
		}
		if e.module != 0 {
			errs = append(errs, e.drv.ModuleUnload(e.module))
		}
		return errors.Join(errs...)
	})
	e.gpu.stop()
	if err := errors.Join(err, e.drv.PrimaryContextRelease(e.dev)); err != nil {
		return fmt.Errorf("close engine of device %d: %w", e.dev, err)
	}
	return nil
}

// Device returns the device that the engine serves.
func (e *Engine) Device() cuda.Device { return e.dev }

// Room is how many bytes of free device memory there are to stage in.
func (e *Engine) Room() (uint64, error) {
	var free uint64
	err := e.gpu.do(func() (err error) {
		free, _, err = e.drv.MemInfo()
		return err
	})
	return free - min(free, e.reserve), err
}

// batchChunks is how many chunks a lane's buffer holds.
func (e *Engine) batchChunks() int { return e.batchBytes / ChunkSize }

// deviceMemory is physical memory mapped in the engine's context. The zero value is none.
type deviceMemory struct {
	handle cuda.Handle
	base   cuda.DevicePtr
	size   uint64
}

// allocate creates device memory of our own. On the gpu thread.
func (e *Engine) allocate(size uint64) (deviceMemory, error) {
	h, err := e.drv.MemCreate(e.dev, size, false)
	if err != nil {
		return deviceMemory{}, err
	}
	return e.mapHandle(h, size)
}

// mapHandle maps h, of size bytes, and takes it over: on failure it is released. On the gpu thread.
func (e *Engine) mapHandle(h cuda.Handle, size uint64) (deviceMemory, error) {
	base, err := e.drv.AddressReserve(size)
	if err != nil {
		return deviceMemory{}, errors.Join(err, e.drv.MemRelease(h))
	}
	if err := e.drv.MemMap(base, size, h); err != nil {
		return deviceMemory{}, errors.Join(err, e.drv.AddressFree(base, size), e.drv.MemRelease(h))
	}
	m := deviceMemory{h, base, size}
	if err := e.drv.MemSetAccess(base, size, e.dev); err != nil {
		return deviceMemory{}, errors.Join(err, e.release(m))
	}
	return m, nil
}

// release unmaps and releases m. On the gpu thread.
func (e *Engine) release(m deviceMemory) error {
	if m.size == 0 {
		return nil
	}
	return errors.Join(e.drv.MemUnmap(m.base, m.size), e.drv.AddressFree(m.base, m.size), e.drv.MemRelease(m.handle))
}

// wait waits for the gpu thread's stream. In a stall it polls, because waking up from a sleep in the driver
// takes some 50 µs; otherwise it sleeps there.
func (e *Engine) wait(stall bool) error {
	for stall {
		done, err := e.drv.StreamQuery(e.stream)
		if done || err != nil {
			return err
		}
		runtime.Gosched()
	}
	return e.drv.StreamSynchronize(e.stream)
}

// digestChunks returns the digests of the chunks at the addresses src.
func (e *Engine) digestChunks(ctx context.Context, src []cuda.DevicePtr, stall bool) ([]Digest, error) {
	return e.launchTables(ctx, src, nil, stall)
}

// copyChunks copies the chunk at each src to its dst, which must not overlap one another, and returns the digests of
// the bytes copied.
func (e *Engine) copyChunks(ctx context.Context, src, dst []cuda.DevicePtr, stall bool) ([]Digest, error) {
	return e.launchTables(ctx, src, dst, stall)
}

// launchTables runs the copy kernel, or with no dst the digest kernel, over src.
func (e *Engine) launchTables(ctx context.Context, src, dst []cuda.DevicePtr, stall bool) ([]Digest, error) {
	digests := make([]Digest, len(src))
	for at := 0; at < len(src); at += tableEntries {
		n := min(len(src)-at, tableEntries)
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		var to []cuda.DevicePtr
		if dst != nil {
			to = dst[at : at+n]
		}
		err := e.gpu.do(func() error { return e.launch(src[at:at+n], to, digests[at:at+n], stall) })
		if err != nil {
			return nil, fmt.Errorf("digest %d chunks: %w", n, err)
		}
	}
	return digests, nil
}

// launch runs one kernel over at most tableEntries chunks. On the gpu thread.
func (e *Engine) launch(src, dst []cuda.DevicePtr, digests []Digest, stall bool) error {
	base := uint64(e.tables.base)
	put := func(table int, p []cuda.DevicePtr) error {
		for i, a := range p {
			binary.LittleEndian.PutUint64(e.hostTables[table+8*i:], uint64(a))
		}
		return e.drv.CopyHtoD(e.tables.base+cuda.DevicePtr(table), e.hostTables[table:table+8*len(p)], e.stream)
	}
	queue := func() error {
		if err := put(sourceTable, src); err != nil {
			return err
		}
		kernel, args := e.digestFn, []uint64{base + sourceTable, base + digestTable}
		if dst != nil {
			if err := put(destTable, dst); err != nil {
				return err
			}
			kernel, args = e.copyFn, []uint64{base + sourceTable, base + destTable, base + digestTable}
		}
		if err := e.drv.Launch(kernel, uint32(len(src)), digest.BlockSize, e.stream, args...); err != nil {
			return err
		}
		out := e.hostTables[digestTable : digestTable+digest.Size*len(src)]
		return e.drv.CopyDtoH(out, e.tables.base+digestTable, e.stream)
	}
	queued := queue()
	// Even after a failure: what was queued still reads and writes the tables.
	if err := errors.Join(queued, e.wait(stall)); err != nil {
		return err
	}
	for i := range digests {
		copy(digests[i][:], e.hostTables[digestTable+digest.Size*i:])
	}
	return nil
}
