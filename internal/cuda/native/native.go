// Package native implements cuda.Driver with a driver library loaded at run time: the real libcuda.so.1, or the
// stub of the software GPU, which is just another path. It uses no cgo (purego calls through the dynamic loader).
//
// Functions are found by dlsym under the versioned names that cuda.h's macros give them (cuMemGetInfo_v2). Those that
// every driver since CUDA 11 has are required; the checkpoint functions are optional and answer
// *cuda.UnsupportedError where they are missing.
//
// It must not import anything of the project but package cuda. Declarations follow cuda.h of CUDA 13.0.
package native

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ebitengine/purego"

	"holdfast/internal/cuda"
)

// DefaultPath is the library that the NVIDIA driver installs, looked up the way the dynamic loader does.
const DefaultPath = "libcuda.so.1"

// Open loads the driver library at path and finds its functions. It calls none of them: call Init next. The
// library stays loaded for the life of the process, because libcuda does not survive dlclose.
func Open(path string) (cuda.Driver, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("open driver library %s: %w", path, err)
	}
	l := &library{path: path}
	required := l.required()
	for _, name := range slices.Sorted(maps.Keys(required)) {
		if *required[name], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("driver library %s has no %s: too old, or not a CUDA driver: %w", path, name, err)
		}
	}
	for name, at := range l.optional() {
		*at, _ = purego.Dlsym(handle, name) // absent: stays 0, and the method says so
	}
	return l, nil
}

// library is a loaded driver library: the address of each function.
type library struct {
	path string

	init, driverGetVersion                                             uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID            uintptr
	deviceGetAttribute, deviceTotalMem, deviceGetPCIBusID              uintptr
	primarySetFlags, primaryRetain, primaryRelease, ctxSetCurrent      uintptr
	memGetInfo, memCreate, memRelease, memExport, memImport            uintptr
	addressReserve, addressFree, memMap, memUnmap, memSetAccess        uintptr
	memHostAlloc, memFreeHost                                          uintptr
	streamCreate, streamDestroy, streamSynchronize, streamQuery        uintptr
	copyDtoD, copyDtoH, copyHtoD, setD32                               uintptr
	moduleLoadData, moduleUnload, moduleGetFunction, launchKernel      uintptr
	cpGetState, cpGetThread, cpLock, cpCheckpoint, cpRestore, cpUnlock uintptr
}

// required maps the exported names of the functions that must be there to where their addresses go.
func (l *library) required() map[string]*uintptr {
	return map[string]*uintptr{
		"cuInit":                         &l.init,
		"cuDriverGetVersion":             &l.driverGetVersion,
		"cuDeviceGetCount":               &l.deviceGetCount,
		"cuDeviceGet":                    &l.deviceGet,
		"cuDeviceGetName":                &l.deviceGetName,
		"cuDeviceGetUuid_v2":             &l.deviceGetUUID,
		"cuDeviceGetAttribute":           &l.deviceGetAttribute,
		"cuDeviceTotalMem_v2":            &l.deviceTotalMem,
		"cuDeviceGetPCIBusId":            &l.deviceGetPCIBusID,
		"cuDevicePrimaryCtxSetFlags_v2":  &l.primarySetFlags,
		"cuDevicePrimaryCtxRetain":       &l.primaryRetain,
		"cuDevicePrimaryCtxRelease_v2":   &l.primaryRelease,
		"cuCtxSetCurrent":                &l.ctxSetCurrent,
		"cuMemGetInfo_v2":                &l.memGetInfo,
		"cuMemCreate":                    &l.memCreate,
		"cuMemRelease":                   &l.memRelease,
		"cuMemExportToShareableHandle":   &l.memExport,
		"cuMemImportFromShareableHandle": &l.memImport,
		"cuMemAddressReserve":            &l.addressReserve,
		"cuMemAddressFree":               &l.addressFree,
		"cuMemMap":                       &l.memMap,
		"cuMemUnmap":                     &l.memUnmap,
		"cuMemSetAccess":                 &l.memSetAccess,
		"cuMemHostAlloc":                 &l.memHostAlloc,
		"cuMemFreeHost":                  &l.memFreeHost,
		"cuStreamCreate":                 &l.streamCreate,
		"cuStreamDestroy_v2":             &l.streamDestroy,
		"cuStreamSynchronize":            &l.streamSynchronize,
		"cuStreamQuery":                  &l.streamQuery,
		"cuMemcpyDtoDAsync_v2":           &l.copyDtoD,
		"cuMemcpyDtoHAsync_v2":           &l.copyDtoH,
		"cuMemcpyHtoDAsync_v2":           &l.copyHtoD,
		"cuMemsetD32Async":               &l.setD32,
		"cuModuleLoadData":               &l.moduleLoadData,
		"cuModuleUnload":                 &l.moduleUnload,
		"cuModuleGetFunction":            &l.moduleGetFunction,
		"cuLaunchKernel":                 &l.launchKernel,
	}
}

// optional likewise maps functions that came with driver 570 (CUDA 12.8).
func (l *library) optional() map[string]*uintptr {
	return map[string]*uintptr{
		"cuCheckpointProcessGetState":           &l.cpGetState,
		"cuCheckpointProcessGetRestoreThreadId": &l.cpGetThread,
		"cuCheckpointProcessLock":               &l.cpLock,
		"cuCheckpointProcessCheckpoint":         &l.cpCheckpoint,
		"cuCheckpointProcessRestore":            &l.cpRestore,
		"cuCheckpointProcessUnlock":             &l.cpUnlock,
	}
}
