package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holdfast/internal/cuda"
)

// checkingLibrary builds capidriver.c, which checks the arguments of each call.
func checkingLibrary(t *testing.T) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	lib := filepath.Join(t.TempDir(), "libchecking.so")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", lib,
		"../../../test/programs/helpers/capidriver.c").CombinedOutput(); err != nil {
		t.Fatalf("build the checking driver: %v\n%s", err, out)
	}
	return lib
}

func checkingDriver(t *testing.T) cuda.Driver {
	t.Helper()
	drv, err := Open(checkingLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	return drv
}

// TestEveryCallPassesItsArguments calls each method once; the library returns an error for arguments it does not
// expect.
func TestEveryCallPassesItsArguments(t *testing.T) {
	d := checkingDriver(t)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	same := func(what string, got, want any, err error) {
		t.Helper()
		must(what, err)
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	must("init", d.Init())
	version, err := d.DriverVersion()
	same("version", version, cuda.Version(12040), err)
	n, err := d.DeviceCount()
	same("count", n, 3, err)
	dev, err := d.DeviceGet(2)
	same("device", dev, cuda.Device(7), err)
	name, err := d.DeviceName(dev)
	same("name", name, "checking device", err)
	bus, err := d.DevicePCIBusID(dev)
	same("bus id", bus, "0000:0a:00.0", err)
	uuid, err := d.DeviceUUID(dev)
	same("uuid", uuid.String(), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", err)
	v, err := d.DeviceAttribute(cuda.AttrComputeCapabilityMajor, dev)
	same("attribute", v, 9, err)
	v, err = d.DeviceAttribute(cuda.AttrVirtualMemory, dev)
	same("negative attribute", v, -1, err)
	total, err := d.DeviceTotalMem(dev)
	same("memory", total, uint64(150<<30), err)
	ctx, err := d.PrimaryContextRetain(dev)
	same("context", ctx, cuda.Context(0x7fffdeadbeef0), err)
	must("set context", d.SetContext(ctx))
	must("release context", d.PrimaryContextRelease(dev))
	free, total, err := d.MemInfo()
	same("free", [2]uint64{free, total}, [2]uint64{5 << 32, 9 << 32}, err)

	const size = 6 << 30
	h, err := d.MemCreate(dev, size, false)
	same("create", h, cuda.Handle(0xa000000000000000), err)
	h, err = d.MemCreate(dev, size, true)
	same("create exportable", h, cuda.Handle(0xa000000000000001), err)
	fd, err := d.MemExport(h)
	same("export", fd, 33, err)
	imported, err := d.MemImport(fd)
	same("import", imported, cuda.Handle(0xa000000000000009), err)
	must("release", d.MemRelease(h))
	p, err := d.AddressReserve(size)
	same("reserve", p, cuda.DevicePtr(0x7f1200000000), err)
	must("map", d.MemMap(p, size, imported))
	must("access", d.MemSetAccess(p, size, dev))
	must("unmap", d.MemUnmap(p, size))
	must("free address", d.AddressFree(p, size))

	s, err := d.StreamCreate()
	same("stream", s, cuda.Stream(0x55), err)
	must("synchronize", d.StreamSynchronize(s))
	done, err := d.StreamQuery(s)
	same("query of a busy stream", done, false, err)
	done, err = d.StreamQuery(0)
	same("query of an idle stream", done, true, err)
	if _, err = d.StreamQuery(0x66); !errors.Is(err, cuda.Result(719)) {
		t.Errorf("query of a failed stream: %v", err)
	}
	host, err := d.HostAlloc(4096)
	must("host memory", err)
	must("to host", d.CopyDtoH(host[:100], 0x5a, s))
	if !bytes.Equal(host[:101], append(bytes.Repeat([]byte{0x5a}, 100), 0)) {
		t.Errorf("copy of 100 bytes wrote %x", host[:102])
	}
	binary.LittleEndian.PutUint64(host, 0x7f0000001000)
	must("to device", d.CopyHtoD(0x7f0000001000, host[:8], s))
	must("free host memory", d.HostFree(host))
	if _, err := d.HostAlloc(0); err == nil {
		t.Error("host memory of no size")
	}
	must("device copy", d.CopyDtoD(0xd00000000, 0xe00000000, 1<<33, s))
	must("set", d.SetD32(0xd00000000, 0xdeadbeef, 1<<33, s))
	m, err := d.ModuleLoad([]byte(".version 7.0"))
	same("module", m, cuda.Module(0x77), err)
	f, err := d.ModuleFunction(m, "k")
	same("function", f, cuda.Function(0x88), err)
	if _, err := d.ModuleFunction(m, "nosuch"); !errors.Is(err, cuda.ErrNotFound) ||
		err.Error() != "cuModuleGetFunction(nosuch): CUDA_ERROR_NOT_FOUND (500)" {
		t.Errorf("no such function: %v", err)
	}
	must("launch", d.Launch(f, 100000, 256, s, 0x1111222233334444, 2, 3))
	must("unload", d.ModuleUnload(m))
	must("destroy", d.StreamDestroy(s))
}

func TestMissingCheckpointIsNamed(t *testing.T) {
	d := checkingDriver(t)
	_, stateErr := d.CheckpointState(1)
	_, threadErr := d.CheckpointRestoreThread(1)
	for name, err := range map[string]error{
		"cuCheckpointProcessGetState":           stateErr,
		"cuCheckpointProcessGetRestoreThreadId": threadErr,
		"cuCheckpointProcessLock":               d.CheckpointLock(1, time.Second),
		"cuCheckpointProcessCheckpoint":         d.CheckpointSave(1),
		"cuCheckpointProcessRestore":            d.CheckpointRestore(1),
		"cuCheckpointProcessUnlock":             d.CheckpointUnlock(1),
	} {
		var u *cuda.UnsupportedError
		if !errors.As(err, &u) || u.Call != name || u.Needs != "driver ≥ 570" || u.Version != 12040 ||
			!errors.Is(err, cuda.ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
