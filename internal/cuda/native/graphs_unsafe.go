package native

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"holdfast/internal/cuda"
)

// Graphs is a driver library with what running prepared work needs: executable graphs, memory at fixed addresses, and
// what a kernel says of its parameters. The invariant of calls_unsafe.go holds here, too.
type Graphs struct {
	*Kernels
	addressReserve, graphCreate, graphDestroy, instantiate, graphLaunch, execDestroy uintptr
	addKernel, addCopy, addSet, addEmpty, setAttribute                               uintptr
	paramInfo                                                                        uintptr
	libraryLoad, libraryUnload, libraryKernel, libraryGlobal, kernelFunction         uintptr
}

// Handles of graphs.
type (
	Graph     uintptr // CUgraph
	GraphNode uintptr // CUgraphNode
	GraphExec uintptr // CUgraphExec
	Library   uintptr // CUlibrary
)

// OpenGraphs loads the driver library at path, as Open does.
func OpenGraphs(path string) (*Graphs, error) {
	k, err := OpenKernels(path)
	if err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("open driver library %s: %w", path, err)
	}
	g := &Graphs{Kernels: k}
	for name, at := range map[string]*uintptr{
		"cuMemAddressReserve":           &g.addressReserve,
		"cuGraphCreate":                 &g.graphCreate,
		"cuGraphDestroy":                &g.graphDestroy,
		"cuGraphInstantiateWithFlags":   &g.instantiate,
		"cuGraphLaunch":                 &g.graphLaunch,
		"cuGraphExecDestroy":            &g.execDestroy,
		"cuGraphAddKernelNode":          &g.addKernel,
		"cuGraphAddMemcpyNode":          &g.addCopy,
		"cuGraphAddMemsetNode":          &g.addSet,
		"cuGraphAddEmptyNode":           &g.addEmpty,
		"cuGraphKernelNodeSetAttribute": &g.setAttribute,
		"cuFuncGetParamInfo":            &g.paramInfo,
		"cuLibraryLoadData":             &g.libraryLoad,
		"cuLibraryUnload":               &g.libraryUnload,
		"cuLibraryGetKernel":            &g.libraryKernel,
		"cuLibraryGetGlobal":            &g.libraryGlobal,
		"cuKernelGetFunction":           &g.kernelFunction,
	} {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("driver library %s has no %s: older than CUDA 12.4: %w", path, name, err)
		}
	}
	return g, nil
}

// ReserveAt reserves addresses at addr (cuMemAddressReserve). The driver takes others if these are in use; then it is
// an error.
func (g *Graphs) ReserveAt(addr cuda.DevicePtr, size uint64) error {
	var p cuda.DevicePtr
	r := call(g.addressReserve, uintptr(unsafe.Pointer(&p)), uintptr(size), 0, uintptr(addr), 0)
	if r == cuda.Success && p != addr {
		if err := g.AddressFree(p, size); err != nil {
			return err
		}
		return fmt.Errorf("cuMemAddressReserve(%#x bytes at %#x): the addresses are in use in this process", size, addr)
	}
	return failed(r, "cuMemAddressReserve(%#x bytes at %#x)", size, addr)
}

// LibraryLoad takes a cubin or PTX text (cuLibraryLoadData). Unlike a module's, its kernels are loaded when they are
// asked for. The error holds what the compiler said.
func (g *Graphs) LibraryLoad(image []byte) (Library, error) {
	z := append(append(make([]byte, 0, len(image)+1), image...), 0)
	c := &jitCall{options: [2]int32{jitErrorLogBuffer, jitErrorLogBufferSizeBytes}} // as in Kernels.Assemble
	c.values = [2]uintptr{uintptr(unsafe.Pointer(&c.log)), uintptr(len(c.log))}
	var l Library
	r := call(g.libraryLoad, uintptr(unsafe.Pointer(&l)), uintptr(unsafe.Pointer(unsafe.SliceData(z))),
		uintptr(unsafe.Pointer(&c.options)),
		uintptr(unsafe.Pointer(&c.values)), uintptr(len(c.options)), 0, 0, 0)
	if r == cuda.Success {
		return l, nil
	}
	err := failed(r, "cuLibraryLoadData(%d bytes)", len(image))
	if said := textOf(c.log[:]); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return 0, err
}

// LibraryUnload ends it (cuLibraryUnload).
func (g *Graphs) LibraryUnload(l Library) error {
	return failed(call(g.libraryUnload, uintptr(l)), "cuLibraryUnload")
}

// LibraryFunction is a kernel of a library, for the current context (cuLibraryGetKernel, cuKernelGetFunction).
func (g *Graphs) LibraryFunction(l Library, name string) (cuda.Function, error) {
	z := append([]byte(name), 0)
	var k uintptr
	r := call(g.libraryKernel, uintptr(unsafe.Pointer(&k)), uintptr(l), uintptr(unsafe.Pointer(unsafe.SliceData(z))))
	if r != cuda.Success {
		return 0, failed(r, "cuLibraryGetKernel(%s)", name)
	}
	var f cuda.Function
	r = call(g.kernelFunction, uintptr(unsafe.Pointer(&f)), k)
	return f, failed(r, "cuKernelGetFunction(%s)", name)
}

// LibraryGlobal is the address and size of a library's variable (cuLibraryGetGlobal).
func (g *Graphs) LibraryGlobal(l Library, name string) (cuda.DevicePtr, uint64, error) {
	z := append([]byte(name), 0)
	var p cuda.DevicePtr
	var n uint64
	r := call(g.libraryGlobal, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&n)), uintptr(l),
		uintptr(unsafe.Pointer(unsafe.SliceData(z))))
	return p, n, failed(r, "cuLibraryGetGlobal(%s)", name)
}

// ParamInfo is where parameter i of f lies (cuFuncGetParamInfo); no parameter of that number is cuda.ErrInvalidValue.
func (g *Graphs) ParamInfo(f cuda.Function, i int) (offset, size uint64, err error) {
	var at, n uint64
	r := call(g.paramInfo, uintptr(f), uintptr(i), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&n)))
	return at, n, failed(r, "cuFuncGetParamInfo(%d)", i)
}

// GraphCreate makes an empty graph (cuGraphCreate).
func (g *Graphs) GraphCreate() (Graph, error) {
	var h Graph
	r := call(g.graphCreate, uintptr(unsafe.Pointer(&h)), 0)
	return h, failed(r, "cuGraphCreate")
}

// GraphDestroy ends it (cuGraphDestroy).
func (g *Graphs) GraphDestroy(h Graph) error {
	return failed(call(g.graphDestroy, uintptr(h)), "cuGraphDestroy")
}

// Instantiate makes it executable (cuGraphInstantiateWithFlags).
func (g *Graphs) Instantiate(h Graph) (GraphExec, error) {
	var e GraphExec
	r := call(g.instantiate, uintptr(unsafe.Pointer(&e)), uintptr(h), 0)
	return e, failed(r, "cuGraphInstantiateWithFlags")
}

// GraphLaunch runs it (cuGraphLaunch).
func (g *Graphs) GraphLaunch(e GraphExec, s cuda.Stream) error {
	return failed(call(g.graphLaunch, uintptr(e), uintptr(s)), "cuGraphLaunch")
}

// ExecDestroy ends what Instantiate made (cuGraphExecDestroy).
func (g *Graphs) ExecDestroy(e GraphExec) error {
	return failed(call(g.execDestroy, uintptr(e)), "cuGraphExecDestroy")
}

// nodeParams are CUDA_KERNEL_NODE_PARAMS_v1 (cuGraphAddKernelNode), CUDA_MEMCPY3D and CUDA_MEMSET_NODE_PARAMS.
type (
	kernelNodeParams struct {
		Func                 cuda.Function
		Grid, Block          [3]uint32
		Shared               uint32
		_                    uint32
		KernelParams, Extras uintptr
	}
	copySide struct {
		X, Y, Z, LOD uint64
		MemoryType   uint32
		_            uint32
		Host         uint64
		Device       cuda.DevicePtr
		Array, _     uint64
		Pitch, Rows  uint64
	}
	copyNodeParams struct {
		Src, Dst             copySide
		Width, Height, Depth uint64
	}
	setNodeParams struct {
		Dst           cuda.DevicePtr
		Pitch         uint64
		Value, Size   uint32
		Width, Height uint64
	}
)

const (
	launchCooperative    = 2 // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
	memoryTypeDevice     = 2 // CU_MEMORYTYPE_DEVICE
	sharedWithoutAsking  = 48 << 10
	clusterWithoutAsking = 8
)

// AddKernel adds a launch to a graph (cuGraphAddKernelNode), which comes after the nodes given. params and offsets
// are as for LaunchShape.
func (g *Graphs) AddKernel(h Graph, after []GraphNode, f cuda.Function, shape Shape, cooperative bool, params []byte,
	offsets []uint32) (GraphNode, error) {
	if shape.Shared > sharedWithoutAsking {
		if r := call(g.funcSetAttribute, uintptr(f), funcMaxDynamicShared, uintptr(shape.Shared)); r != cuda.Success {
			return 0, failed(r, "cuFuncSetAttribute(%d bytes of dynamic shared memory)", shape.Shared)
		}
	}
	cluster := shape.Cluster
	if cluster[0]*cluster[1]*cluster[2] > clusterWithoutAsking {
		if r := call(g.funcSetAttribute, uintptr(f), funcNonPortableCluster, 1); r != cuda.Success {
			return 0, failed(r, "cuFuncSetAttribute(cluster %v)", cluster)
		}
	}
	// As in Kernels.Assemble: everything that the driver reads through pointers is on the heap, and kept alive.
	c := &launchCall{params: append(make([]byte, 0, len(params)+1), params...), each: make([]uintptr, len(offsets)+1)}
	for i, at := range offsets {
		c.each[i] = uintptr(unsafe.Pointer(unsafe.SliceData(c.params[at:])))
	}
	p := &kernelNodeParams{Func: f, Grid: shape.Grid, Block: shape.Block, Shared: shape.Shared,
		KernelParams: uintptr(unsafe.Pointer(unsafe.SliceData(c.each)))}
	var n GraphNode
	r := call(g.addKernel, uintptr(unsafe.Pointer(&n)), uintptr(h), uintptr(unsafe.Pointer(unsafe.SliceData(after))),
		uintptr(len(after)),
		uintptr(unsafe.Pointer(p)))
	runtime.KeepAlive(c)
	if r != cuda.Success {
		return 0, failed(r, "cuGraphAddKernelNode(grid %v, block %v, %d bytes of shared memory)", shape.Grid,
			shape.Block, shape.Shared)
	}
	if cooperative {
		if err := g.attribute(n, &launchAttribute{ID: launchCooperative, Value: [16]uint32{1}}); err != nil {
			return 0, err
		}
	}
	if cluster != [3]uint32{} {
		a := &launchAttribute{ID: launchClusterDimension, Value: [16]uint32{cluster[0], cluster[1], cluster[2]}}
		if err := g.attribute(n, a); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// attribute sets an attribute of a kernel node (cuGraphKernelNodeSetAttribute).
func (g *Graphs) attribute(n GraphNode, a *launchAttribute) error {
	r := call(g.setAttribute, uintptr(n), uintptr(a.ID), uintptr(unsafe.Pointer(&a.Value)))
	return failed(r, "cuGraphKernelNodeSetAttribute(%d, %v)", a.ID, a.Value[:3])
}

// AddCopy adds a copy of rows of width bytes between device addresses (cuGraphAddMemcpyNode).
func (g *Graphs) AddCopy(h Graph, after []GraphNode, ctx cuda.Context, dst, dstPitch, src, srcPitch, width,
	height uint64) (GraphNode, error) {
	p := &copyNodeParams{
		Src: copySide{MemoryType: memoryTypeDevice, Device: cuda.DevicePtr(src), Pitch: max(srcPitch, width),
			Rows: height},
		Dst: copySide{MemoryType: memoryTypeDevice, Device: cuda.DevicePtr(dst), Pitch: max(dstPitch, width),
			Rows: height},
		Width: width, Height: height, Depth: 1,
	}
	var n GraphNode
	r := call(g.addCopy, uintptr(unsafe.Pointer(&n)), uintptr(h), uintptr(unsafe.Pointer(unsafe.SliceData(after))),
		uintptr(len(after)),
		uintptr(unsafe.Pointer(p)), uintptr(ctx))
	return n, failed(r, "cuGraphAddMemcpyNode(%#x from %#x, %d × %d bytes)", dst, src, width, height)
}

// AddSet adds a set of rows of width elements of size bytes (cuGraphAddMemsetNode).
func (g *Graphs) AddSet(h Graph, after []GraphNode, ctx cuda.Context, dst, pitch uint64, value, size uint32, width,
	height uint64) (GraphNode, error) {
	p := &setNodeParams{Dst: cuda.DevicePtr(dst), Pitch: pitch, Value: value, Size: size, Width: width, Height: height}
	var n GraphNode
	r := call(g.addSet, uintptr(unsafe.Pointer(&n)), uintptr(h), uintptr(unsafe.Pointer(unsafe.SliceData(after))),
		uintptr(len(after)),
		uintptr(unsafe.Pointer(p)), uintptr(ctx))
	return n, failed(r, "cuGraphAddMemsetNode(%#x, %d × %d elements of %d bytes)", dst, width, height, size)
}

// AddEmpty adds a node that only orders others (cuGraphAddEmptyNode).
func (g *Graphs) AddEmpty(h Graph, after []GraphNode) (GraphNode, error) {
	var n GraphNode
	r := call(g.addEmpty, uintptr(unsafe.Pointer(&n)), uintptr(h), uintptr(unsafe.Pointer(unsafe.SliceData(after))),
		uintptr(len(after)))
	return n, failed(r, "cuGraphAddEmptyNode")
}
