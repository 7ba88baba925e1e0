package native

import (
	"bytes"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"holdfast/internal/cuda"
)

// Kernels loads PTX and launches kernels of any shape: what comparing kernels needs beyond [cuda.Driver]. As there,
// methods act on the context of the calling OS thread. The calls are synchronous but for Launch.
type Kernels struct {
	cuda.Driver
	path string

	memAlloc, memFree, copyHtoD, copyDtoH, ctxSynchronize         uintptr
	moduleLoadDataEx, moduleGetGlobal, funcSetAttribute, launchEx uintptr
	tensorMapEncode                                               uintptr // 0: the library has none
}

// OpenKernels loads the driver library at path, as Open does.
func OpenKernels(path string) (*Kernels, error) {
	drv, err := Open(path)
	if err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("open driver library %s: %w", path, err)
	}
	k := &Kernels{Driver: drv, path: path}
	for name, at := range map[string]*uintptr{
		"cuMemAlloc_v2":        &k.memAlloc,
		"cuMemFree_v2":         &k.memFree,
		"cuMemcpyHtoD_v2":      &k.copyHtoD,
		"cuMemcpyDtoH_v2":      &k.copyDtoH,
		"cuCtxSynchronize":     &k.ctxSynchronize,
		"cuModuleLoadDataEx":   &k.moduleLoadDataEx,
		"cuModuleGetGlobal_v2": &k.moduleGetGlobal,
		"cuFuncSetAttribute":   &k.funcSetAttribute,
		"cuLaunchKernelEx":     &k.launchEx,
	} {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("driver library %s has no %s: older than CUDA 11.8: %w", path, name, err)
		}
	}
	k.tensorMapEncode, _ = purego.Dlsym(handle, "cuTensorMapEncodeTiled")
	return k, nil
}

// Constants of cuda.h.
const (
	jitErrorLogBuffer          = 5  // CU_JIT_ERROR_LOG_BUFFER
	jitErrorLogBufferSizeBytes = 6  // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
	funcMaxDynamicShared       = 8  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	funcNonPortableCluster     = 14 // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
	launchClusterDimension     = 4  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
)

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	Grid, Block [3]uint32
	Shared      uint32
	_           uint32
	Stream      cuda.Stream
	Attrs       *launchAttribute
	NumAttrs    uint32
	_           uint32
}

// launchAttribute is CUlaunchAttribute.
type launchAttribute struct {
	ID    int32
	_     [4]byte
	Value [16]uint32
}

// launchCall is what cuLaunchKernelEx reads through pointers.
type launchCall struct {
	params []byte
	each   []uintptr
}

// Alloc gives device memory (cuMemAlloc_v2).
func (k *Kernels) Alloc(size uint64) (cuda.DevicePtr, error) {
	var p cuda.DevicePtr
	r := call(k.memAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size))
	return p, failed(r, "cuMemAlloc(%#x bytes)", size)
}

// Free takes it back (cuMemFree_v2).
func (k *Kernels) Free(p cuda.DevicePtr) error {
	return failed(call(k.memFree, uintptr(p)), "cuMemFree(%#x)", p)
}

// Write copies to the device (cuMemcpyHtoD_v2) and waits until the bytes are there: the call itself returns for
// pageable memory when they are staged, and a kernel on a non-blocking stream could read before they land.
func (k *Kernels) Write(dst cuda.DevicePtr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	r := call(k.copyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)))
	if r == cuda.Success {
		r = call(k.ctxSynchronize)
	}
	return failed(r, "cuMemcpyHtoD(to %#x, %#x bytes)", dst, len(src))
}

// Read copies from the device (cuMemcpyDtoH_v2).
func (k *Kernels) Read(dst []byte, src cuda.DevicePtr) error {
	if len(dst) == 0 {
		return nil
	}
	r := call(k.copyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)))
	return failed(r, "cuMemcpyDtoH(from %#x, %#x bytes)", src, len(dst))
}

// Synchronize waits for the context (cuCtxSynchronize).
func (k *Kernels) Synchronize() error { return failed(call(k.ctxSynchronize), "cuCtxSynchronize") }

// Assemble loads PTX text (cuModuleLoadDataEx); the error holds what the compiler said.
func (k *Kernels) Assemble(text []byte) (cuda.Module, error) {
	z := append(bytes.Clone(text), 0)
	// One object on the heap (it escapes through call): its inner addresses stay valid until the driver returns.
	c := &jitCall{options: [2]int32{jitErrorLogBuffer, jitErrorLogBufferSizeBytes}}
	c.values = [2]uintptr{uintptr(unsafe.Pointer(&c.log)), uintptr(len(c.log))}
	var m cuda.Module
	r := call(k.moduleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(unsafe.SliceData(z))),
		uintptr(len(c.options)),
		uintptr(unsafe.Pointer(&c.options)), uintptr(unsafe.Pointer(&c.values)))
	if r == cuda.Success {
		return m, nil
	}
	err := failed(r, "cuModuleLoadDataEx(%d bytes)", len(text))
	if said := textOf(c.log[:]); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return 0, err
}

// jitCall is what cuModuleLoadDataEx reads and writes through pointers.
type jitCall struct {
	log     [4096]byte
	options [2]int32
	values  [2]uintptr
}

func textOf(buf []byte) string { return string(bytes.TrimSpace([]byte(text(buf)))) }

// Global is the address and size of a module's variable (cuModuleGetGlobal_v2).
func (k *Kernels) Global(m cuda.Module, name string) (cuda.DevicePtr, uint64, error) {
	z := append([]byte(name), 0)
	var p cuda.DevicePtr
	var n uint64
	r := call(k.moduleGetGlobal, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&n)), uintptr(m),
		uintptr(unsafe.Pointer(unsafe.SliceData(z))))
	return p, n, failed(r, "cuModuleGetGlobal(%s)", name)
}

// A Shape is how a kernel is launched.
type Shape struct {
	Grid, Block, Cluster [3]uint32 // Cluster zero: what the kernel says
	Shared               uint32    // bytes of dynamic shared memory
}

// LaunchShape launches f (cuLaunchKernelEx; before it cuFuncSetAttribute, when it needs more shared memory than 48 KiB
// or a cluster of more than 8 blocks). offsets say where each parameter begins in params. The driver is given one
// pointer for each: where they lie in its own buffer is the assembler's choice, which for an alignment of more than 16
// bytes is not that of a C structure (ptxas aligns the address in the constant bank, which begins at 0x210).
func (k *Kernels) LaunchShape(f cuda.Function, shape Shape, s cuda.Stream, params []byte, offsets []uint32) error {
	if shape.Shared > 48<<10 {
		if r := call(k.funcSetAttribute, uintptr(f), funcMaxDynamicShared, uintptr(shape.Shared)); r != cuda.Success {
			return failed(r, "cuFuncSetAttribute(%d bytes of dynamic shared memory)", shape.Shared)
		}
	}
	cfg := &launchConfig{Grid: shape.Grid, Block: shape.Block, Shared: shape.Shared, Stream: s}
	if c := shape.Cluster; c != [3]uint32{} {
		if c[0]*c[1]*c[2] > 8 {
			if r := call(k.funcSetAttribute, uintptr(f), funcNonPortableCluster, 1); r != cuda.Success {
				return failed(r, "cuFuncSetAttribute(cluster %v)", c)
			}
		}
		cfg.Attrs, cfg.NumAttrs = &launchAttribute{ID: launchClusterDimension, Value: [16]uint32{c[0], c[1], c[2]}}, 1
	}
	// As in Assemble: one object on the heap, and a slice of unknown length, which is there too.
	c := &launchCall{params: append(make([]byte, 0, len(params)+1), params...), each: make([]uintptr, len(offsets)+1)}
	for i, at := range offsets {
		c.each[i] = uintptr(unsafe.Pointer(unsafe.SliceData(c.params[at:])))
	}
	r := call(k.launchEx, uintptr(unsafe.Pointer(cfg)), uintptr(f),
		uintptr(unsafe.Pointer(unsafe.SliceData(c.each))), 0)
	runtime.KeepAlive(c)
	return failed(r, "cuLaunchKernelEx(grid %v, block %v, cluster %v, %d bytes of shared memory)", shape.Grid,
		shape.Block, shape.Cluster, shape.Shared)
}

// A Tensor is what cuTensorMapEncodeTiled takes; the fields are named as its parameters are.
type Tensor struct {
	DataType      int32
	Address       cuda.DevicePtr
	Dim           []uint64 // elements, the innermost first
	Strides       []uint64 // bytes, of all but the first
	Box, Step     []uint32
	Swizzle, Fill int32
}

// EncodeTensor makes a CUtensorMap.
func (k *Kernels) EncodeTensor(t Tensor) ([128]byte, error) {
	if k.tensorMapEncode == 0 {
		return [128]byte{}, &cuda.UnsupportedError{Call: "cuTensorMapEncodeTiled", Needs: "driver ≥ 525",
			Library: k.path}
	}
	room := make([]byte, 192) // the result is aligned to 64 bytes
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & 63
	out := room[at : at+128]
	strides := append(append([]uint64(nil), t.Strides...), 0)
	r := call(k.tensorMapEncode, uintptr(unsafe.Pointer(unsafe.SliceData(out))), uintptr(t.DataType),
		uintptr(len(t.Dim)), uintptr(t.Address),
		uintptr(unsafe.Pointer(unsafe.SliceData(t.Dim))), uintptr(unsafe.Pointer(unsafe.SliceData(strides))),
		uintptr(unsafe.Pointer(unsafe.SliceData(t.Box))), uintptr(unsafe.Pointer(unsafe.SliceData(t.Step))), 0,
		uintptr(t.Swizzle), 0, uintptr(t.Fill))
	return [128]byte(out), failed(r, "cuTensorMapEncodeTiled(%v)", t.Dim)
}
