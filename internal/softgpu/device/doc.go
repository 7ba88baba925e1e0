// Package device is the software GPU as a process: it plays the hardware and the
// kernel driver for the stub libcuda.so.1 of CUDA programs on the same machine. It
// keeps the state of the driver API per client process (contexts, memory, streams,
// events, modules, graphs), runs submitted work in stream order, and serves the protocol
// of package gpuwire. Kernels run in package softgpu.
//
// It follows the CUDA Driver API reference (13.0); struct layouts are those of cuda.h
// on x86-64. It must not import the footprint analysis, whose oracle it is, nor the daemon.
//
// # What differs from hardware
//
// All devices of a process share one address space and may access each other's
// memory. Managed memory is pinned host memory. Sparse arrays, events of other processes and multicast are
// refused with CUDA_ERROR_NOT_SUPPORTED.
//
// # A process and its parts
//
// process is made of parts that hold what stands before them and no more, so that code of one cannot reach the
// state of another by accident. Operations (call) see the whole.
//
//	handles.go                  handles: objects by their names
//	vmm.go                      vmm: the address space, and what the program maps there itself
//	memory.go, pool.go,         memory: what is allocated on devices, in pools and on the host; arrays; copies;
//	array.go, copy.go           physical.go is the memory behind it, which belongs to the server
//	registered.go               mirroring: memory of the program that it has registered
//	work.go, stream.go,         work: contexts, streams, events, and tasks in their order
//	context.go, capture.go
//	launch.go, output.go        launches runs kernels, which print to output
//	module.go, link.go          modules: code in contexts
//	texture.go                  textures: objects that kernels sample
//	graph*.go, planrun.go,      graphs: made, instantiated and run
//	userobject.go
//	checkpoint.go, image*.go    the state of a process given to its client, and taken back
//	conn.go, operations.go      the protocol's operations; server.go is the process as a whole
//
// # Locks
//
// server.mu (table of processes, physical memory) is innermost: no other lock is taken while
// it is held. process.mu (work.mu) guards everything of one process; operations hold it except while they
// wait. A stream's work runs without it. control.mu is taken without process.mu.
// mirroring.mirrorMu is never taken with process.mu, nor process.mu with it.
// Memory is unmapped only while none of the process's work runs (work.quiesce).
//
// Clients are hostile: every operation checks its arguments, a panic in an operation or
// in a stream's work is caught and hurts its own process only.
package device
