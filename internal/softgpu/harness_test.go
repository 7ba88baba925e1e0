package softgpu

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/ptx"
)

const testLo, testSize = 0x10_0000_0000, 1 << 30

const header = ".version 8.5\n.target sm_90\n.address_size 64\n"

// A device is a space with memory at testLo.
type device struct {
	t     testing.TB
	space *Space
	next  uint64
}

func newDevice(t testing.TB, mib int) *device {
	t.Helper()
	s, err := NewSpace(testLo, testSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	fd, err := unix.MemfdCreate("softgpu-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size := int64(alignUp(uint64(mib)<<20, PageSize))
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(testLo, fd, 0, uint64(size), true); err != nil {
		t.Fatal(err)
	}
	return &device{t: t, space: s, next: testLo}
}

func (d *device) alloc(n uint64) uint64 {
	p := d.next
	d.next += alignUp(max(n, 1), 256)
	return p
}

func upload[T any](d *device, x []T) uint64 {
	d.t.Helper()
	n := uint64(len(x)) * uint64(unsafe.Sizeof(*new(T)))
	p := d.alloc(n)
	copy(view[T](d, p, len(x)), x)
	return p
}

func view[T any](d *device, va uint64, n int) []T {
	d.t.Helper()
	b, err := d.space.Bytes(va, uint64(n)*uint64(unsafe.Sizeof(*new(T))))
	if err != nil {
		d.t.Fatal(err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

func (d *device) load(src string) *Instance {
	d.t.Helper()
	m, err := ptx.Parse(d.t.Name()+".ptx", []byte(src))
	if err != nil {
		d.t.Fatal(err)
	}
	mod, err := Load(m)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, k := range mod.Kernels() {
		if k.Unsupported != "" {
			d.t.Fatal(k.Unsupported)
		}
	}
	in, err := mod.Instantiate(d.space, d.alloc(mod.DataSize()))
	if err != nil {
		d.t.Fatal(err)
	}
	return in
}

// params lays out arguments naturally: uint32, int32, float32, uint64, float64.
func params(args ...any) []byte {
	var b []byte
	pad := func(n int) {
		for len(b)%n != 0 {
			b = append(b, 0)
		}
	}
	for _, a := range args {
		switch a := a.(type) {
		case uint32:
			pad(4)
			b = binary.LittleEndian.AppendUint32(b, a)
		case int:
			pad(4)
			b = binary.LittleEndian.AppendUint32(b, uint32(a))
		case float32:
			pad(4)
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(a))
		case uint64:
			pad(8)
			b = binary.LittleEndian.AppendUint64(b, a)
		case float64:
			pad(8)
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(a))
		default:
			panic("argument type")
		}
	}
	return b
}

func dims(n ...uint32) [3]uint32 {
	d := [3]uint32{1, 1, 1}
	copy(d[:], n)
	return d
}

func (d *device) run(in *Instance, kernel string, cfg LaunchConfig) Stats {
	d.t.Helper()
	st, err := in.Launch(kernel, cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	return st
}

// fails launches and wants a fault of kind k.
func (d *device) fails(in *Instance, kernel string, cfg LaunchConfig, k FaultKind) *Fault {
	d.t.Helper()
	_, err := in.Launch(kernel, cfg)
	var f *Fault
	if !errors.As(err, &f) {
		d.t.Fatalf("error %v, want a fault of kind %v", err, k)
	}
	if f.Kind != k {
		d.t.Fatalf("fault %v, want kind %v", f, k)
	}
	return f
}
