package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/softgpu/device"
	"holdfast/test/rig"
)

// TestSoftwareGPU runs the tests of native_test.go in a process whose driver library is the stub, served by a software
// GPU in this one.
func TestSoftwareGPU(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDFAST_TEST_LIBCUDA") != "" {
		t.Skip("this is the process that the test runs")
	}
	socket, stop := rig.GPU(t, device.Config{Memory: 1 << 30})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestNative", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_LIBCUDA="+filepath.Join(rig.Stub(t), "libcuda.so.1"),
		"HOLDFAST_SOFTGPU_SOCKET="+socket, "HOLDFAST_TEST_GIB=0.016")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("tests on the software GPU: %v", err)
	}
	if n := strings.Count(string(out), "--- PASS: TestNative"); err == nil && n != 3 {
		t.Errorf("%d tests passed, want 3", n)
	}
	stop()
}
