// Package softgpu executes PTX kernels on the CPU: the address space of one
// client, the translation of a module into flat instruction arrays, and the
// executor.
//
// It must not import internal/footprint, whose oracle it is, nor anything of
// the daemon. Semantics follow the PTX ISA 9.0 for an sm_90 device.
//
// # How it runs
//
// A kernel and the functions it may reach become one array of inst. A virtual
// register is a vector of 32 lanes in the register file of a warp: 32-bit
// lanes for types up to 32 bits, 64-bit lanes for the wider ones, one bit a lane for
// predicates; a vector register of PTX is a register for each component. Constants
// and special registers are vectors too, filled when a warp is set up, so that an
// operand is always an offset into the file.
// Most instructions work on all 32 lanes, as a loop or with vector instructions
// (package lanes); where only some lanes are active the result goes to a scratch
// vector whose active lanes are then copied.
//
// A warp is a set of groups of lanes, each with a program counter and a call
// frame. The group with the deepest frame and the lowest counter runs, and
// groups that meet merge, which is reconvergence for code laid out in
// topological order. A group that ran for long while others wait, or that
// looks as if it spins, is set aside for another one: every lane makes
// progress. Warps of a block take turns in one goroutine; blocks are spread
// over Workers goroutines, and a block that spins is set aside for another one.
//
// # Addresses
//
// The generic address space holds the device window of the Space (its lo and
// size, 1:1), aliases of host memory, and these windows, which lie below it:
//
//	0x4_0000_0000 +272 MiB  shared memory: 16 MiB of the running block, then 16 MiB for each block of its cluster
//	0x5_0000_0000 +4 GiB    local memory of the running thread
//	0x6_0000_0000 +64 KiB   parameters of the running kernel (read only)
//	0x7_0000_0000 +16 B×n   functions, for indirect calls; not readable
//
// # Precision
//
// Instructions with a rounding modifier are exact: +, -, *, /, sqrt, rcp and fma
// round once, in all four directions and in all formats. A NaN result of an
// f16, bf16 or f32 instruction is the canonical NaN (0x7fff, 0x7fff,
// 0x7fffffff); f64 instructions keep payloads as an H200 does.
// The approximate instructions are computed in float64 and rounded once: their
// error is at most 0.5001 ulp, but for sin and cos, next to whose zeros it is an
// absolute one, below 2^-40. The ISA allows 2^-22 or more. The .approx.ftz.f64 forms
// have the ISA's 20 bits.
//
// # Matrices
//
// Products of mma, wmma and wgmma are summed in the order k = 0, 1, …, starting with C.
// Inputs and sums of all float formats but f64 are float64, and the result is
// rounded once, to nearest even: its error against the exact result is half an ulp of D plus 2^-52 of the
// sum of the magnitudes for each step. Hardware keeps fewer bits of the sum. f64 is a chain of fused steps. Integers
// are exact. Fragments are laid out as the PTX ISA says; those of wmma, which it leaves open, by
// numbers of elements (see fragment). Matrices in shared memory lie as descriptors of
// PTX ISA 9.7.15.5.1 say, swizzles included.
//
// # Clusters and asynchronous instructions
//
// The blocks of a cluster run in turns in one goroutine, and their shared memory lives until
// the last has ended. Copies (cp.async, cp.async.bulk, tensor copies), st.async and wgmma are
// done when they are issued: commit and wait groups wait for nothing, and a
// transaction count is complete at once. A program that forgets to wait therefore works here and not on a GPU.
// mbarrier objects and tensor maps have encodings of this package (mbarrier, TensorMap). A warp
// that finds a phase incomplete gives way to others. setmaxnreg, griddepcontrol and fence.proxy have no
// effect that a program can see.
//
// Not supported, and refused by name: everything of sm_100 and later, and what docs/softgpu.md lists.
//
// # Textures
//
// Texture and surface objects are entries of tables of the Space (SetTexture, SetSurface); an Image is texels
// in device memory, whose layout is whoever's made it. Device code's malloc takes from the Space's heap (SetHeap).
//
// # Observed launches
//
// With LaunchConfig.Observer set, the launch runs a copy of the code in which every
// access of global memory is wrapped; see Observer for what is recorded and what it costs.
//
// # Packages and files
//
//	number/    arithmetic: pure functions of bits
//	lanes/     the table of operations, and their forms for 32 lanes
//	observe/   the record of what a launch accesses
//	probe/     a kernel for each instruction of the table, for tests on GPUs and off
//	device/    the driver API over this package; gpuwire/ is its protocol
//
//	module.go, program.go                a module and what its kernels become
//	lower.go                             translation: functions, statements, which family an instruction belongs to
//	lower_layout.go, regalloc.go         where registers, parameters, constants and shared variables lie
//	lower_names.go, lower_graph.go       what a name stands for; the functions that a kernel may reach
//	lower_operand*.go                    operands become places in the register file, and code is appended
//	lower_{arith,move,mem,...}.go        families of instructions; the others stand with what executes them
//	call.go                              calls, and the parameters that they copy
//	arith*.go, cvt*.go, compare.go,      what an instruction computes: the operation in the table, or a function
//	f16.go, video.go, carry.go           made of package number
//	inst.go, warp.go, block.go,          execution: the loop over instructions, groups of lanes, warps, blocks,
//	cluster.go, launch.go, prefix.go     clusters, launches, and launches that are cut short
//	space.go, memory.go, atom.go,        the address space, and what reads and writes it
//	bulk.go, stack.go, heap.go, windows.go
//	barrier.go, mbarrier.go,             waiting for each other
//	collective.go, control.go
//	matrix.go, mma.go, wmma.go,          matrices
//	wgmma.go, sparse.go
//	image.go, texture.go, surface.go,    textures, surfaces and tensor maps
//	tensormap.go
//	observe.go, printf.go, fault.go      observed launches, output, and what went wrong
//
// # Locks
//
// Space.mu guards the page table and the aliases against concurrent Map and
// Unmap; the executor reads both without it. The caller must not unmap memory
// that a running launch may use: the launch then ends with a fault, not with
// a crash, but which of its writes happened is unknown. Package observe says what guards an Observer.
package softgpu
