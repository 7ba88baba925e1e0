package snapshot

import (
	"testing"

	"holdfast/internal/softgpu/device"
	"holdfast/test/rig"
)

// TestSoftwareGPU runs the tests of native_test.go in a process whose driver library is the stub, served by a software
// GPU in this one.
func TestSoftwareGPU(t *testing.T) {
	t.Parallel()
	rig.Again(t, device.Config{Memory: 1 << 30}, "TestNative", 3, "HOLDFAST_TEST_GIB=0.016")
}
