package native

import (
	"errors"
	"strings"
	"testing"

	"holdfast/internal/cuda"
)

func TestKernelsPassTheirArguments(t *testing.T) {
	k, err := OpenKernels(checkingLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	p, err := k.Alloc(5 << 32)
	if err != nil || p != 0x7f3300000000 {
		t.Errorf("memory at %#x: %v", p, err)
	}
	if err := k.Write(p, []byte("abc")); err != nil {
		t.Error(err)
	}
	b := make([]byte, 4)
	if err := k.Read(b[:3], p); err != nil || string(b) != "kkk\x00" {
		t.Errorf("read %q: %v", b, err)
	}
	if err := k.Free(p); err != nil {
		t.Error(err)
	}
	if err := k.Synchronize(); err != nil {
		t.Error(err)
	}
	if _, err := k.Assemble([]byte("bad")); !errors.Is(err, cuda.Result(218)) ||
		!strings.HasSuffix(err.Error(), ": line 1: no") {
		t.Errorf("bad PTX: %v", err)
	}
	m, err := k.Assemble([]byte("good"))
	if err != nil || m != 0x99 {
		t.Errorf("module %#x: %v", m, err)
	}
	if g, n, err := k.Global(m, "g"); err != nil || g != 0x7f4400000000 || n != 40 {
		t.Errorf("variable at %#x of %d bytes: %v", g, n, err)
	}
	shape := Shape{Grid: [3]uint32{16, 2, 3}, Block: [3]uint32{64, 4, 1}, Cluster: [3]uint32{16, 1, 1}, Shared: 100000}
	if err := k.LaunchShape(0x88, shape, 0x55, []byte("hello"), []uint32{0, 3}); err != nil {
		t.Error(err)
	}
	enc, err := k.EncodeTensor(Tensor{DataType: 7, Address: 0x7f3300000000, Dim: []uint64{64, 9},
		Strides: []uint64{256}, Box: []uint32{32, 4}, Step: []uint32{1, 2}, Swizzle: 3, Fill: 1})
	if err != nil || enc[0] != 0x7d || enc[127] != 0x7d {
		t.Errorf("tensor map %x: %v", enc, err)
	}
}
