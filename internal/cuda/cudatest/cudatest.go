// Package cudatest is a cuda.Driver in Go memory, for tests of what is built on the interface.
//
// It is strict where a real driver is merely undefined: work queued on a stream runs only when the stream is
// synchronized or queried, so that host memory read too early is still empty; a copy or kernel that finds its memory
// unmapped fails; calls from a thread without a context fail; what was not released is listed by Leaks.
//
// Tests steer it with three functions: Fault fails chosen calls, Between runs at every point where a program on the
// GPU could write memory, Alter changes what a kernel or copy delivers.
//
// It knows the kernels of package digest by name and computes them with digest.Sum. It must not be imported by
// anything but tests.
package cudatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/snapshot/digest"
)

// Driver is a driver with one device. Use New.
type Driver struct {
	// Fault is asked before every call, by its cuda.h name; an error it returns is the call's result.
	// It runs on the caller's goroutine, possibly on several at once.
	Fault func(call string) error
	// Between is called while queued work runs: before each operation and within copies and kernels, between chunks and
	// in the middle of a copy. No lock is held, so it may write memory.
	Between func()
	// Alter may change the bytes that an operation ("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync" or a
	// kernel's name) has just written to its destination: hardware that does not deliver what it was given.
	Alter func(op string, written []byte)

	mu       sync.Mutex
	total    uint64
	used     uint64
	next     uint64                      // handles, addresses
	handles  map[cuda.Handle]*Memory     //
	exports  map[uint64]*Memory          // by inode of the descriptor
	reserved map[cuda.DevicePtr]uint64   // size
	mapped   map[cuda.DevicePtr]*mapping //
	host     map[*byte][]byte
	streams  map[cuda.Stream]*stream
	modules  map[cuda.Module]bool
	threads  map[int]bool // threads with a context
	context  int          // retained
}

// Memory is physical memory: what a handle names.
type Memory struct {
	drv  *Driver
	data []byte
	refs int
	pipe *os.File // the other end of what was exported, so that its inode stays taken
}

type mapping struct {
	size   uint64
	mem    *Memory
	access bool
}

type stream struct {
	queue []func() error
	busy  sync.Mutex // one at a time runs the queue
}

// New returns a driver whose device has total bytes of memory.
func New(total uint64) *Driver {
	return &Driver{
		total: total, next: 0x7f00_0000_0000,
		handles: map[cuda.Handle]*Memory{}, exports: map[uint64]*Memory{}, reserved: map[cuda.DevicePtr]uint64{},
		mapped: map[cuda.DevicePtr]*mapping{}, host: map[*byte][]byte{}, streams: map[cuda.Stream]*stream{},
		modules: map[cuda.Module]bool{}, threads: map[int]bool{},
	}
}

var _ cuda.Driver = (*Driver)(nil)

// granularity of physical memory.
const granularity = 2 << 20

// begin starts a call: asks Fault, and for a context when the call needs one.
func (d *Driver) begin(call string, needsContext bool) error {
	if d.Fault != nil {
		if err := d.Fault(call); err != nil {
			return err
		}
	}
	if needsContext {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.threads[syscall.Gettid()] {
			return &cuda.Error{Call: call + " on a thread without a context", Code: cuda.ErrInvalidContext}
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &cuda.Error{Call: fmt.Sprintf(format, args...), Code: cuda.ErrInvalidValue}
}

// unique returns a number never returned before, size apart from the next.
func (d *Driver) unique(size uint64) uint64 {
	n := d.next
	d.next += size + granularity
	return n
}

func (d *Driver) between() {
	if d.Between != nil {
		d.Between()
	}
}

func (d *Driver) alter(op string, written []byte) {
	if d.Alter != nil {
		d.Alter(op, written)
	}
}

// Allocate stands for a program's allocation: memory and a descriptor of it, which the caller closes.
func (d *Driver) Allocate(size uint64) (*Memory, *os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.create(size)
	if err != nil {
		return nil, nil, err
	}
	f, err := d.export(m)
	return m, f, err
}

func (d *Driver) create(size uint64) (*Memory, error) {
	if size == 0 || size%granularity != 0 {
		return nil, invalid("cuMemCreate(%#x bytes)", size)
	}
	if d.used+size > d.total {
		return nil, &cuda.Error{Call: fmt.Sprintf("cuMemCreate(%#x bytes)", size), Code: cuda.ErrOutOfMemory}
	}
	d.used += size
	return &Memory{drv: d, data: make([]byte, size), refs: 1}, nil
}

func (d *Driver) export(m *Memory) (*os.File, error) {
	if m.pipe != nil {
		return nil, errors.New("cudatest: exported twice")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ino, err := inode(int(r.Fd()))
	if err != nil {
		return nil, err
	}
	m.pipe = w
	d.exports[ino] = m
	return r, nil
}

func inode(fd int) (uint64, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

func (d *Driver) unref(m *Memory) {
	if m.refs--; m.refs == 0 {
		d.used -= uint64(len(m.data))
		if m.pipe != nil {
			m.pipe.Close()
			maps.DeleteFunc(d.exports, func(_ uint64, e *Memory) bool { return e == m })
		}
	}
}

// Write stores p at offset off, as the program that owns the memory would.
func (m *Memory) Write(off int, p []byte) {
	m.drv.mu.Lock()
	defer m.drv.mu.Unlock()
	copy(m.data[off:off+len(p)], p)
}

// Bytes returns a copy of the contents.
func (m *Memory) Bytes() []byte {
	m.drv.mu.Lock()
	defer m.drv.mu.Unlock()
	return slices.Clone(m.data)
}

// Free drops the program's own reference.
func (m *Memory) Free() {
	m.drv.mu.Lock()
	defer m.drv.mu.Unlock()
	m.drv.unref(m)
}

// Leaks lists what is still held: handles, addresses, mappings, host memory, streams, modules, contexts.
func (d *Driver) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var l []string
	for what, n := range map[string]int{
		"handle": len(d.handles), "address range": len(d.reserved), "mapping": len(d.mapped),
		"host memory": len(d.host),
		"stream":      len(d.streams), "module": len(d.modules), "context": d.context,
	} {
		if n != 0 {
			l = append(l, fmt.Sprintf("%d × %s", n, what))
		}
	}
	slices.Sort(l)
	return l
}

// Used returns the bytes of physical memory in use.
func (d *Driver) Used() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Devices.

func (d *Driver) Init() error { return d.begin("cuInit", false) }
func (d *Driver) DriverVersion() (cuda.Version, error) {
	return 13000, d.begin("cuDriverGetVersion", false)
}
func (d *Driver) DeviceCount() (int, error) { return 1, d.begin("cuDeviceGetCount", false) }

func (d *Driver) DeviceGet(ordinal int) (cuda.Device, error) {
	if ordinal != 0 {
		return 0, &cuda.Error{Call: "cuDeviceGet", Code: cuda.ErrInvalidDevice}
	}
	return 0, d.begin("cuDeviceGet", false)
}

func (d *Driver) DeviceName(cuda.Device) (string, error) {
	return "test device", d.begin("cuDeviceGetName", false)
}

func (d *Driver) DeviceUUID(cuda.Device) (cuda.UUID, error) {
	return cuda.UUID{0: 0xc0, 15: 1}, d.begin("cuDeviceGetUuid", false)
}

func (d *Driver) DeviceAttribute(cuda.Attribute, cuda.Device) (int, error) {
	return 1, d.begin("cuDeviceGetAttribute", false)
}

func (d *Driver) DeviceTotalMem(cuda.Device) (uint64, error) {
	return d.total, d.begin("cuDeviceTotalMem", false)
}

func (d *Driver) DevicePCIBusID(cuda.Device) (string, error) {
	return "0000:00:00.0", d.begin("cuDeviceGetPCIBusId", false)
}

func (d *Driver) PrimaryContextRetain(cuda.Device) (cuda.Context, error) {
	if err := d.begin("cuDevicePrimaryCtxRetain", false); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.context++
	return 1, nil
}

func (d *Driver) PrimaryContextRelease(cuda.Device) error {
	if err := d.begin("cuDevicePrimaryCtxRelease", false); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.context--
	return nil
}

func (d *Driver) SetContext(ctx cuda.Context) error {
	if err := d.begin("cuCtxSetCurrent", false); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx == 0 {
		delete(d.threads, syscall.Gettid())
	} else {
		d.threads[syscall.Gettid()] = true
	}
	return nil
}

// Memory.

func (d *Driver) MemInfo() (free, total uint64, err error) {
	if err := d.begin("cuMemGetInfo", true); err != nil {
		return 0, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total - d.used, d.total, nil
}

func (d *Driver) MemCreate(_ cuda.Device, size uint64, _ bool) (cuda.Handle, error) {
	if err := d.begin("cuMemCreate", true); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.create(size)
	if err != nil {
		return 0, err
	}
	h := cuda.Handle(d.unique(0))
	d.handles[h] = m
	return h, nil
}

func (d *Driver) MemRelease(h cuda.Handle) error {
	if err := d.begin("cuMemRelease", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.handles[h]
	if m == nil {
		return invalid("cuMemRelease(%#x)", h)
	}
	delete(d.handles, h)
	d.unref(m)
	return nil
}

func (d *Driver) MemExport(h cuda.Handle) (int, error) {
	if err := d.begin("cuMemExportToShareableHandle", true); err != nil {
		return -1, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.handles[h]
	if m == nil {
		return -1, invalid("cuMemExportToShareableHandle(%#x)", h)
	}
	f, err := d.export(m)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return syscall.Dup(int(f.Fd()))
}

func (d *Driver) MemImport(fd int) (cuda.Handle, error) {
	if err := d.begin("cuMemImportFromShareableHandle", true); err != nil {
		return 0, err
	}
	ino, err := inode(fd)
	if err != nil {
		return 0, invalid("cuMemImportFromShareableHandle(%d): %v", fd, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.exports[ino]
	if m == nil {
		return 0, invalid("cuMemImportFromShareableHandle(%d)", fd)
	}
	m.refs++
	h := cuda.Handle(d.unique(0))
	d.handles[h] = m
	return h, nil
}

func (d *Driver) AddressReserve(size uint64) (cuda.DevicePtr, error) {
	if err := d.begin("cuMemAddressReserve", true); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := cuda.DevicePtr(d.unique(size))
	d.reserved[p] = size
	return p, nil
}

func (d *Driver) AddressFree(p cuda.DevicePtr, size uint64) error {
	if err := d.begin("cuMemAddressFree", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved[p] != size || size == 0 {
		return invalid("cuMemAddressFree(%#x, %#x)", p, size)
	}
	if d.mapped[p] != nil {
		return invalid("cuMemAddressFree(%#x) while mapped", p)
	}
	delete(d.reserved, p)
	return nil
}

func (d *Driver) MemMap(p cuda.DevicePtr, size uint64, h cuda.Handle) error {
	if err := d.begin("cuMemMap", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.handles[h]
	if m == nil || d.reserved[p] != size || uint64(len(m.data)) != size || d.mapped[p] != nil {
		return invalid("cuMemMap(%#x, %#x, %#x)", p, size, h)
	}
	m.refs++
	d.mapped[p] = &mapping{size: size, mem: m}
	return nil
}

func (d *Driver) MemUnmap(p cuda.DevicePtr, size uint64) error {
	if err := d.begin("cuMemUnmap", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.mapped[p]
	if m == nil || m.size != size {
		return invalid("cuMemUnmap(%#x, %#x)", p, size)
	}
	delete(d.mapped, p)
	d.unref(m.mem)
	return nil
}

func (d *Driver) MemSetAccess(p cuda.DevicePtr, size uint64, _ cuda.Device) error {
	if err := d.begin("cuMemSetAccess", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.mapped[p]
	if m == nil || m.size != size {
		return invalid("cuMemSetAccess(%#x, %#x)", p, size)
	}
	m.access = true
	return nil
}

// at returns the n bytes at device address p. The caller holds mu.
func (d *Driver) at(p cuda.DevicePtr, n uint64) ([]byte, error) {
	for base, m := range d.mapped {
		if p >= base && uint64(p-base)+n <= m.size && m.access {
			off := uint64(p - base)
			return m.mem.data[off : off+n : off+n], nil
		}
	}
	return nil, &cuda.Error{Call: fmt.Sprintf("access to %#x, %#x bytes", p, n), Code: cuda.ErrIllegalAddress}
}

func (d *Driver) HostAlloc(size int) ([]byte, error) {
	if err := d.begin("cuMemHostAlloc", true); err != nil {
		return nil, err
	}
	mem := make([]byte, size)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host[start(mem)] = mem
	return mem, nil
}

func (d *Driver) HostFree(mem []byte) error {
	if err := d.begin("cuMemFreeHost", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.host[start(mem)]) != len(mem) || len(mem) == 0 {
		return invalid("cuMemFreeHost of %d bytes that were not allocated", len(mem))
	}
	delete(d.host, start(mem))
	mem[0] = 0xdb // whoever still uses it sees it
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
	return nil
}

// Execution.

func (d *Driver) StreamCreate() (cuda.Stream, error) {
	if err := d.begin("cuStreamCreate", true); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := cuda.Stream(d.unique(0))
	d.streams[s] = &stream{}
	return s, nil
}

func (d *Driver) StreamDestroy(s cuda.Stream) error {
	if err := d.begin("cuStreamDestroy", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams[s] == nil {
		return invalid("cuStreamDestroy(%#x)", s)
	}
	delete(d.streams, s)
	return nil
}

func (d *Driver) enqueue(s cuda.Stream, op func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.streams[s]
	if st == nil {
		return invalid("stream %#x", s)
	}
	st.queue = append(st.queue, op)
	return nil
}

// flush runs what is queued on s.
func (d *Driver) flush(s cuda.Stream) error {
	d.mu.Lock()
	st := d.streams[s]
	d.mu.Unlock()
	if st == nil {
		return invalid("stream %#x", s)
	}
	st.busy.Lock()
	defer st.busy.Unlock()
	for {
		d.mu.Lock()
		if len(st.queue) == 0 {
			d.mu.Unlock()
			return nil
		}
		op := st.queue[0]
		st.queue = st.queue[1:]
		d.mu.Unlock()
		d.between()
		if err := op(); err != nil {
			return err
		}
	}
}

func (d *Driver) StreamSynchronize(s cuda.Stream) error {
	if err := d.begin("cuStreamSynchronize", true); err != nil {
		return err
	}
	return d.flush(s)
}

func (d *Driver) StreamQuery(s cuda.Stream) (bool, error) {
	if err := d.begin("cuStreamQuery", true); err != nil {
		return false, err
	}
	return true, d.flush(s)
}

func (d *Driver) CopyDtoD(dst, src cuda.DevicePtr, size uint64, s cuda.Stream) error {
	if err := d.begin("cuMemcpyDtoDAsync", true); err != nil {
		return err
	}
	return d.enqueue(s, func() error { return d.copyDevice("cuMemcpyDtoDAsync", dst, src, size) })
}

func (d *Driver) copyDevice(op string, dst, src cuda.DevicePtr, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, err := d.at(src, size)
	if err != nil {
		return err
	}
	to, err := d.at(dst, size)
	if err != nil {
		return err
	}
	copy(to, from)
	d.alter(op, to)
	return nil
}

func (d *Driver) CopyDtoH(dst []byte, src cuda.DevicePtr, s cuda.Stream) error {
	if err := d.begin("cuMemcpyDtoHAsync", true); err != nil {
		return err
	}
	return d.enqueue(s, func() error {
		half := len(dst) / 2
		if err := d.copyHost(dst[:half], src, true); err != nil {
			return err
		}
		d.between() // a program that runs may write in the middle
		if err := d.copyHost(dst[half:], src+cuda.DevicePtr(half), true); err != nil {
			return err
		}
		d.alter("cuMemcpyDtoHAsync", dst)
		return nil
	})
}

func (d *Driver) CopyHtoD(dst cuda.DevicePtr, src []byte, s cuda.Stream) error {
	if err := d.begin("cuMemcpyHtoDAsync", true); err != nil {
		return err
	}
	return d.enqueue(s, func() error { return d.copyHost(src, dst, false) })
}

func (d *Driver) copyHost(host []byte, dev cuda.DevicePtr, toHost bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(host) == 0 {
		return nil
	}
	if !d.pinned(host) {
		return invalid("copy with host memory that is not pinned or was freed")
	}
	mem, err := d.at(dev, uint64(len(host)))
	if err != nil {
		return err
	}
	if toHost {
		copy(host, mem)
	} else {
		copy(mem, host)
		d.alter("cuMemcpyHtoDAsync", mem)
	}
	return nil
}

func (d *Driver) SetD32(dst cuda.DevicePtr, value uint32, count uint64, s cuda.Stream) error {
	if err := d.begin("cuMemsetD32Async", true); err != nil {
		return err
	}
	return d.enqueue(s, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		mem, err := d.at(dst, 4*count)
		if err != nil {
			return err
		}
		for i := 0; i < len(mem); i += 4 {
			binary.LittleEndian.PutUint32(mem[i:], value)
		}
		return nil
	})
}

func (d *Driver) ModuleLoad([]byte) (cuda.Module, error) {
	if err := d.begin("cuModuleLoadData", true); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := cuda.Module(d.unique(0))
	d.modules[m] = true
	return m, nil
}

func (d *Driver) ModuleUnload(m cuda.Module) error {
	if err := d.begin("cuModuleUnload", true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.modules[m] {
		return invalid("cuModuleUnload(%#x)", m)
	}
	delete(d.modules, m)
	return nil
}

// Functions are numbered.
const (
	digestFunction cuda.Function = 1
	copyFunction   cuda.Function = 2
)

func (d *Driver) ModuleFunction(_ cuda.Module, name string) (cuda.Function, error) {
	if err := d.begin("cuModuleGetFunction", true); err != nil {
		return 0, err
	}
	switch name {
	case digest.Kernel:
		return digestFunction, nil
	case digest.CopyKernel:
		return copyFunction, nil
	}
	return 0, &cuda.Error{Call: "cuModuleGetFunction(" + name + ")", Code: cuda.ErrNotFound}
}

func (d *Driver) Launch(f cuda.Function, grid, block uint32, s cuda.Stream, args ...uint64) error {
	if err := d.begin("cuLaunchKernel", true); err != nil {
		return err
	}
	wantArgs := 2
	if f == copyFunction {
		wantArgs = 3
	}
	if grid == 0 || block != digest.BlockSize || len(args) != wantArgs {
		return invalid("cuLaunchKernel(function %d, grid %d, block %d, %d parameters)", f, grid, block, len(args))
	}
	return d.enqueue(s, func() error {
		for i := range uint64(grid) {
			if err := d.runBlock(f, i, args); err != nil {
				return err
			}
			d.between()
		}
		return nil
	})
}

// runBlock is block i of a digest kernel.
func (d *Driver) runBlock(f cuda.Function, i uint64, args []uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	pointer := func(table uint64) ([]byte, error) {
		entry, err := d.at(cuda.DevicePtr(table+8*i), 8)
		if err != nil {
			return nil, err
		}
		return d.at(cuda.DevicePtr(binary.LittleEndian.Uint64(entry)), digest.ChunkSize)
	}
	src, err := pointer(args[0])
	if err != nil {
		return err
	}
	out, err := d.at(cuda.DevicePtr(args[len(args)-1]+digest.Size*i), digest.Size)
	if err != nil {
		return err
	}
	sum := digest.Sum(src)
	if f == copyFunction {
		dst, err := pointer(args[1])
		if err != nil {
			return err
		}
		copy(dst, src)
		d.alter(digest.CopyKernel, dst)
	}
	copy(out, sum[:])
	return nil
}

// Checkpointer: the test driver has none.

func (d *Driver) unsupported(call string) error {
	return &cuda.UnsupportedError{Call: call, Needs: "driver ≥ 570", Library: "the test driver"}
}

func (d *Driver) CheckpointState(int) (cuda.ProcessState, error) {
	return 0, d.unsupported("cuCheckpointProcessGetState")
}

func (d *Driver) CheckpointRestoreThread(int) (int, error) {
	return 0, d.unsupported("cuCheckpointProcessGetRestoreThreadId")
}

func (d *Driver) CheckpointLock(int, time.Duration) error {
	return d.unsupported("cuCheckpointProcessLock")
}
func (d *Driver) CheckpointSave(int) error    { return d.unsupported("cuCheckpointProcessCheckpoint") }
func (d *Driver) CheckpointRestore(int) error { return d.unsupported("cuCheckpointProcessRestore") }
func (d *Driver) CheckpointUnlock(int) error  { return d.unsupported("cuCheckpointProcessUnlock") }
