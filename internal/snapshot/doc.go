// Package snapshot is the GPU data side of a checkpoint: it reads, names, copies and refills the device memory that
// the daemon keeps for held programs.
//
// An [Engine] serves one device through a context of its own. A [Region] is a program's allocation, mapped there.
// A [Snapshot] takes the contents of regions at one moment, the freeze, in three steps:
//
//	Precopy   the program runs   digest every chunk; copy aside (or drain) what the image does not have yet
//	Capture   it is frozen       digest every chunk again; repeat for those that changed in between
//	Drain     it runs again      what was copied aside → pinned host memory → the Sink
//
// All modes are this with other parameters: Stage copies aside in device memory, Recopy drains in Precopy and again in
// Capture, Stop drains everything in Capture. Cow captures digests alone and drains memory that is in use again; the
// caller announces what will be written ([Snapshot.BeforeWrite]), and bytes that arrive with another digest than at the
// freeze end the snapshot with a [MispredictedError].
//
// Precopy reads memory that is being written, so what it holds of a chunk may be a mixture of old and new. That is
// harmless, because a held copy is known by the digest of its own bytes (the copy kernel digests what it writes; a
// drained chunk is digested in host memory), never by that of the chunk it came from. Capture digests the frozen
// memory, and only a copy with exactly that digest stands for it. What Precopy guessed can cost time, not truth.
//
// [Engine.Fill] goes the other way and ends by comparing the digests of what is then in device memory.
//
// Threads: driver calls are made by goroutines that are locked to their OS thread, with the device's context: one
// that launches kernels and maps memory, and several lanes, each with two buffers of pinned host memory, that copy
// between device and host and run the Sink or fetch function. An Engine may serve several snapshots at once; one
// Snapshot is used by one goroutine. Lock order: Snapshot.mu only, never held over a driver call.
//
// Device memory API and kernels: CUDA driver API reference, "Virtual Memory Management"; package digest. It must not
// import anything that knows programs, images or the wire: package cuda and digest only.
package snapshot
