// Package raw is the engine's backend without libcuda: it brings up a channel of its own through the device files
// (internal/rm), writes launch descriptors (internal/qmd) for code that it places itself (internal/cubin), and rings
// the doorbell. It is pure Go, needs no dynamic loader and no root: whoever may open the device files may use it.
//
// Methods of the compute class are those of classes/compute/clcbc0.h, of the copy class of classes/dma-copy/clc8b5.h
// (NVIDIA's open-gpu-doc at c8607fe576b5), of the channel of class/clc86f.h (open-gpu-kernel-modules, 580.95.05).
//
// Copies and sets are kernels of our own where those can do them (move/move.cu), so that a program that is one piece of
// work after the other is one chain of descriptors: each starts the next one, whose code and constants it has fetched.
//
// A kernel that needs what is not set up here (a device heap, printf, textures, launches from the device) is refused
// by name when a program with it is prepared.
//
// The package imports rm, qmd, cubin and engine, and nothing that knows a libcuda.
package raw
