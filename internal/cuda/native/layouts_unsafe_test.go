package native

import (
	"testing"
	"unsafe"
)

// TestLayouts holds the sizes and offsets of cuda.h's structures on 64-bit Linux.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUmemAllocationProp", unsafe.Sizeof(memAllocationProp{}), 32},
		{"CUmemAllocationProp.location", unsafe.Offsetof(memAllocationProp{}.Location), 8},
		{"CUmemAllocationProp.win32HandleMetaData", unsafe.Offsetof(memAllocationProp{}.Win32HandleMetaData), 16},
		{"CUmemAllocationProp.allocFlags", unsafe.Offsetof(memAllocationProp{}.AllocFlags), 24},
		{"CUmemAccessDesc", unsafe.Sizeof(memAccessDesc{}), 12},
		{"CUcheckpointLockArgs", unsafe.Sizeof(checkpointLockArgs{}), 64},
		{"CUDA_KERNEL_NODE_PARAMS_v1", unsafe.Sizeof(kernelNodeParams{}), 56},
		{"CUDA_KERNEL_NODE_PARAMS_v1.kernelParams", unsafe.Offsetof(kernelNodeParams{}.KernelParams), 40},
		{"CUDA_MEMCPY3D", unsafe.Sizeof(copyNodeParams{}), 200},
		{"CUDA_MEMCPY3D.srcDevice", unsafe.Offsetof(copyNodeParams{}.Src.Device), 48},
		{"CUDA_MEMCPY3D.dstXInBytes", unsafe.Offsetof(copyNodeParams{}.Dst), 88},
		{"CUDA_MEMSET_NODE_PARAMS_v1", unsafe.Sizeof(setNodeParams{}), 40},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, cuda.h has %d", c.name, c.got, c.want)
		}
	}
}
