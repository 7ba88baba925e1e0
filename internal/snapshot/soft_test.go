package snapshot

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/softgpu/device"
)

// TestSoftwareGPU runs the tests of native_test.go in a process whose driver library is the stub, served by a software
// GPU in this one.
func TestSoftwareGPU(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDFAST_TEST_LIBCUDA") != "" {
		t.Skip("this is the process that the test runs")
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler to build the stub driver: %v", err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("../../stub/build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("build the stub driver: %v\n%s", err, out)
	}
	socket := filepath.Join(dir, "gpu.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- device.Serve(ctx, l, device.Config{Memory: 1 << 30}) }()

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestNative", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_LIBCUDA="+filepath.Join(dir, "libcuda.so.1"), "HOLDFAST_SOFTGPU_SOCKET="+socket,
		"HOLDFAST_TEST_GIB=0.016")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("tests on the software GPU: %v", err)
	}
	if n := strings.Count(string(out), "--- PASS: TestNative"); err == nil && n != 3 {
		t.Errorf("%d tests passed, want 3", n)
	}
	cancel()
	if err := <-served; err != nil && ctx.Err() == nil {
		t.Errorf("software GPU: %v", err)
	}
}
