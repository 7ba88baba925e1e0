// Package rmtest plays NVIDIA's driver for tests: device files on which a channel can be brought up and work
// submitted. It checks the size of every structure that it is given against what a C compiler makes of the vendor's
// headers (layout.txt), and that every handle is one that was made. A channel's pushbuffers are read as the hardware
// reads them; kernels are functions of the test.
package rmtest

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"holdfast/internal/rm"
)

//go:embed layout.txt
var layout string

// A Completion is what a launch does when it is complete: it starts the launches of other descriptors, or counts down
// those that were scheduled ahead, and writes what Release writes, if that is not nil.
type Completion struct {
	Start, Count []uint64 // descriptors
	Release      func(m *Memory)
}

// A Driver is a machine with one GPU. What the code under test asks may come from several goroutines.
type Driver struct {
	Version string   // that it tells
	Classes []uint32 // of the GPU
	// Kernel runs a grid: at is the descriptor's device address.
	Kernel func(m *Memory, at uint64) error
	// Next is what a launch does when it is complete.
	Next func(descriptor []byte) Completion
	// Counter is how many launches must be complete before one that is scheduled ahead begins.
	Counter func(descriptor []byte) int
	// Hang has the channel do nothing from the n-th launch on.
	Hang int
	// Boost is what was last asked about clocks (NV2080_CTRL_PERF_BOOST_FLAGS).
	Boost uint32
	// FaultAt is the address that the debugger tells, FaultPC where multiprocessor 120 was in its code.
	FaultAt, FaultPC uint64

	Space    *Memory   // of the address space that was made first
	Calls    []string  // what was asked, in order
	Requests []Request // the same in bytes
	Pushes   []Push    // what the channel was handed, in order
	Methods  []string  // what the channel did, in order
	Errs     []error   // what was wrong with it

	size     map[string]int
	objects  map[uint32]object
	open     map[int32]*file
	last     int32
	bells    map[*byte][]byte    // words of doorbells
	spaces   map[uint32]*Memory  // by their objects
	managed  *Memory             // that unified memory keeps
	bound    uint32              // the channel that unified memory has
	channels map[uint32]*channel // by their objects
	tokens   uint32              // that were given out
	mu       sync.Mutex
	live     int    // memory of this process that was not unmapped
	arena    *arena // where memory comes from that another process sees too; nil: there is none
}

// A Request is what the driver was asked, but for addresses and descriptors, which are 0.
type Request struct {
	Path   string // of the file
	Number uint32
	Bytes  [][]byte // the structure, and what it points to
}

// A Push is words that the channel was handed.
type Push struct {
	Addr  uint64
	Words []byte
}

type object struct {
	class, parent uint32
	bytes         []byte // of memory
	space         uint32 // of a context share and virtual memory
}

// NewDriver is an H200 on a driver of a version.
func NewDriver(version string) *Driver {
	d := &Driver{Version: version, size: map[string]int{}, objects: map[uint32]object{}, open: map[int32]*file{},
		Hang: -1, Space: &Memory{}, spaces: map[uint32]*Memory{}, channels: map[uint32]*channel{},
		bells: map[*byte][]byte{}, Classes: []uint32{rm.HOPPER_COMPUTE_A, rm.HOPPER_CHANNEL_GPFIFO_A,
			rm.HOPPER_DMA_COPY_A,
			rm.HOPPER_USERMODE_A}}
	d.sizes(version)
	return d
}

// sizes reads those of a version: the newest in the list, changed by the part of the one with the same first number.
func (d *Driver) sizes(version string) {
	major, _, _ := strings.Cut(version, ".")
	for i, part := range strings.Split(layout, "version ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if i > 0 && !strings.HasPrefix(name, major+".") {
			continue
		}
		for line := range strings.Lines(body) {
			var s string
			var n int
			if line[0] == ' ' {
				continue
			}
			if _, err := fmt.Sscan(line, &s, &n); err == nil {
				d.size[s] = n
			}
		}
	}
}

// Left is what was not given back: open files, objects, mappings.
func (d *Driver) Left() string {
	mapped := 0
	for _, m := range d.spaces {
		mapped += len(m.maps)
	}
	if len(d.open) == 0 && len(d.objects) == 0 && mapped == 0 && d.live == 0 {
		return ""
	}
	return fmt.Sprintf("%d files, %d objects, %d mappings on the device, %d here", len(d.open), len(d.objects),
		mapped, d.live)
}

func (d *Driver) wrong(format string, args ...any) {
	d.Errs = append(d.Errs, fmt.Errorf(format, args...))
}

// Open opens a device file.
func (d *Driver) Open(path string) (rm.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch path {
	case "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm":
	default:
		return nil, fmt.Errorf("open %s: no such file", path)
	}
	d.Calls = append(d.Calls, "open "+path)
	d.last++
	f := &file{d: d, path: path, fd: 100 + d.last}
	d.open[f.fd] = f
	return f, nil
}

// Memory is memory of the test.
func (d *Driver) Memory(size int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live++
	return d.room(size), nil
}

// Unmap ends a mapping.
func (d *Driver) Unmap([]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live--
	return nil
}

// Ring runs what the channel has been given.
func (d *Driver) Ring(doorbell []byte, token uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bells[&doorbell[0]] == nil {
		d.wrong("the doorbell is not there")
	}
	d.ring(token)
}

func (d *Driver) ring(token uint32) {
	for _, c := range d.channels {
		if c.token == token && c.scheduled {
			c.run(d)
			return
		}
	}
	d.wrong("token %d is no channel's that runs", token)
}

type file struct {
	d      *Driver
	path   string
	fd     int32
	tied   bool
	mapped []byte // what the next Map gives
}

func (f *file) Fd() int32 { return f.fd }

func (f *file) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.open[f.fd] != f {
		f.d.wrong("%s is closed twice", f.path)
	}
	delete(f.d.open, f.fd)
	return nil
}

func (f *file) Map(size int) ([]byte, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if len(f.mapped) < size {
		return nil, fmt.Errorf("%s: nothing of %d bytes to map", f.path, size)
	}
	f.d.live++
	return f.mapped[:size], nil
}

// Ioctl answers.
func (f *file) Ioctl(request uint32, arg []byte, in ...rm.Pointer) error {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.path == "/dev/nvidia-uvm" {
		return d.unified(request, arg)
	}
	nr := request & 0xff
	if request>>30 != 3 || request>>8&0xff != 'F' || int(request>>16&0x3fff) != len(arg) {
		return fmt.Errorf("request %#x with %d bytes", request, len(arg))
	}
	name := map[uint32]string{rm.NV_ESC_REGISTER_FD: "nv_ioctl_register_fd_t",
		rm.NV_ESC_CHECK_VERSION_STR: "nv_ioctl_rm_api_version_t",
		rm.NV_ESC_RM_ALLOC_MEMORY:   "nv_ioctl_nvos02_parameters_with_fd", rm.NV_ESC_RM_FREE: "NVOS00_PARAMETERS",
		rm.NV_ESC_RM_CONTROL: "NVOS54_PARAMETERS", rm.NV_ESC_RM_ALLOC: "NVOS21_PARAMETERS",
		rm.NV_ESC_RM_MAP_MEMORY: "nv_ioctl_nvos33_parameters_with_fd", rm.NV_ESC_RM_MAP_MEMORY_DMA: "NVOS46_PARAMETERS",
		rm.NV_ESC_RM_UNMAP_MEMORY_DMA: "NVOS47_PARAMETERS"}[nr]
	d.keep(f, nr, arg, in)
	if nr == rm.NV_ESC_CARD_INFO {
		d.expect("nv_ioctl_card_info_t", len(arg)/32)
		arg[0] = 1
		return nil
	}
	if !d.expect(name, len(arg)) {
		return fmt.Errorf("request %#x is not known", request)
	}
	var to []byte
	var deeper []rm.Pointer
	if len(in) > 0 {
		to, deeper = in[0].To, in[0].In
	}
	le := binary.LittleEndian
	switch nr {
	case rm.NV_ESC_REGISTER_FD:
		f.tied = d.open[int32(le.Uint32(arg))] != nil
	case rm.NV_ESC_CHECK_VERSION_STR:
		copy(arg[8:], d.Version)
	case rm.NV_ESC_RM_ALLOC:
		le.PutUint32(arg[28:], d.alloc(arg, in, to))
	case rm.NV_ESC_RM_CONTROL:
		le.PutUint32(arg[28:], d.control(arg, to, deeper))
	case rm.NV_ESC_RM_FREE:
		le.PutUint32(arg[12:], d.free(le.Uint32(arg[8:])))
	case rm.NV_ESC_RM_ALLOC_MEMORY:
		le.PutUint32(arg[40:], d.pin(f, arg, to))
	case rm.NV_ESC_RM_MAP_MEMORY:
		le.PutUint32(arg[40:], d.mapHere(arg))
	case rm.NV_ESC_RM_MAP_MEMORY_DMA:
		d.mapThere(arg)
	case rm.NV_ESC_RM_UNMAP_MEMORY_DMA:
		le.PutUint32(arg[40:], d.spaces[d.objects[le.Uint32(arg[8:])].space].unmap(le.Uint64(arg[24:])))
	}
	return nil
}

// keep notes a request.
func (d *Driver) keep(f *file, nr uint32, arg []byte, in []rm.Pointer) {
	r := Request{Path: f.path, Number: nr}
	var add func(b []byte, in []rm.Pointer)
	add = func(b []byte, in []rm.Pointer) {
		b = bytes.Clone(b)
		r.Bytes = append(r.Bytes, b)
		for _, p := range in {
			clear(b[p.At:][:8])
			if nr != rm.NV_ESC_RM_ALLOC_MEMORY { // there it points to memory, not to a structure
				add(p.To, p.In)
			}
		}
	}
	add(arg, in)
	switch b := r.Bytes[0]; nr {
	case rm.NV_ESC_REGISTER_FD:
		clear(b)
	case rm.NV_ESC_RM_MAP_MEMORY:
		clear(b[48:52])
	}
	d.Requests = append(d.Requests, r)
}

// room is zeroed memory of an object.
func (d *Driver) room(n int) []byte {
	if d.arena != nil {
		return d.arena.take(n)
	}
	return make([]byte, n)
}

// expect compares a size with the vendor's.
func (d *Driver) expect(name string, n int) bool {
	want, ok := d.size[name]
	if !ok {
		d.wrong("structure %q is not known", name)
		return false
	}
	if n != want {
		d.wrong("%s of %d bytes, it has %d", name, n, want)
	}
	return true
}

// Statuses that the driver answers with.
const (
	okay          = 0
	invalidObject = 0x31
	invalidArg    = 0x1f
	addressInUse  = 0x68
)

func (d *Driver) known(handles ...uint32) bool {
	for _, h := range handles {
		if _, ok := d.objects[h]; !ok {
			d.wrong("handle %#x is no object", h)
			return false
		}
	}
	return true
}
