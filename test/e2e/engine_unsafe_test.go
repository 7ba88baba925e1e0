package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/internal/engine/driver"
)

// engineStub is the library that TestEngineWindow loads: it runs in a process of its own, because the library reads
// the environment that its process was started with.
const engineStub = "HOLDFAST_TEST_STUB"

// The engine copies from and to host memory wherever that is: Go's heap begins at a random address, and that may be
// one that the software GPU gives to its own memory.
func TestEngineHostMemory(t *testing.T) {
	s := newSite(t)
	s.ok("replay", s.faulty(0x1000000000, 1), "--backend", "soft") // starts the software GPU
	stub, err := filepath.Abs("../../internal/embedded/lib/libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestEngineWindow$", "-test.v")
	cmd.Env = append(s.env, inner+"=1", engineStub+"="+stub)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestEngineWindow")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEngineWindow is the process of TestEngineHostMemory.
func TestEngineWindow(t *testing.T) {
	stub := os.Getenv(engineStub)
	if stub == "" {
		t.Skip("TestEngineHostMemory runs it")
	}
	b, err := driver.Open(driver.Config{Library: stub, PTXOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	const window, device, size = 0x2000000000, 0x1000000000, 4096
	p, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, window), size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		t.Fatal(err)
	}
	host := unsafe.Slice((*byte)(p), size)
	for i := range host {
		host[i] = byte(i * 7)
	}
	if err := b.Map(device, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(device+100, host); err != nil {
		t.Error(err)
	}
	want := bytes.Clone(host)
	clear(host)
	if err := b.Read(device+100, host); err != nil || !bytes.Equal(host, want) {
		t.Errorf("%v; it reads something else than was written: %t", err, !bytes.Equal(host, want))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
