// Package digest names the content of a 2 MiB chunk of device memory with 128 bits.
//
// The same function exists twice: [Sum] on the CPU and the kernels of [PTX] on the GPU. The GPU computes it at memory
// speed over live memory, and what it says decides which bytes go into an image; the CPU computes it over what was read
// back from disk. They must agree bit for bit, so a change of either is a change of the image format.
//
// # The function
//
// A chunk is 131072 vectors of 16 bytes (x, y: two little-endian 64-bit words). Vector v belongs to lane v mod 256, so
// that the 256 threads of a block read consecutive vectors. A lane has two 64-bit words of state (a, b), seeded from
// its number, and absorbs its 512 vectors in order:
//
//	a ^= x; b ^= y
//	b += lo32(a)·hi32(a)
//	a += lo32(b)·hi32(b)
//	b += lo32(a)·hi32(a)
//
// which is three rounds of a Feistel network whose round function multiplies the state by itself. Each step is a
// permutation of the state for every input and of the input for every state, so chunks that differ in one lane's one
// vector always leave that lane with another state. A difference spread over several vectors has to cancel, and the
// products make the difference it would have to cancel depend on 64 bits of the state: there is no pair of changes
// (sign bits of floats, the top bits of words) that cancels always, as there is when a state is only multiplied by
// constants. On the GPU a product is one instruction (IMAD.WIDE), on the CPU one vector instruction (PMULULQ).
//
// The 256 states are then combined in a tree, lane i taking in lane i+s for s = 128, 64, … 1: a step with constants,
// so that the two sides are not interchangeable, then a step with the other's (a, b) as input. Closing steps and a
// 64-bit avalanche on each word give the digest, a then b, little-endian.
//
// It guards against accidents (torn copies, bad disks, wrong predictions), not against somebody who constructs
// collisions: whoever may write an image may also write its manifest.
//
// The package is pure and imports nothing of the project. Sum reads 7 GB/s a core in portable Go; on amd64 with AVX2
// it takes four lanes an instruction and is as fast as memory is read.
package digest
