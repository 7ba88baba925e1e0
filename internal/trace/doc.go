// Package trace is the format of launch traces: what a CUDA program had on its GPU and what it launched there, without
// the contents of memory. docs/trace-format.md describes it for readers in other languages.
//
// A trace is a sequence of records. The same records travel through a program's tap, the ring between the shim and
// whoever listens (package wire has the ring, package tap reads it): fixed layouts, little endian, so that the shim can
// write one in a few nanoseconds. [CHeader] prints them for C; the structs in layout.go are the one source.
//
// In a file ([Writer], [Reader]) records stand in blocks with a checksum, each of one process. A file grows at its end
// only, so a recorder that is killed leaves a trace that ends early ([ErrEndedEarly]), and everything before that is
// good. Code stands in it once, under its SHA-256.
//
// Files and rings are outside input: [Decode] checks every length and count, and nothing is allocated that is larger
// than what was read.
//
// The package must not import anything of this module but internal/cuda: recordings are read where nothing else of
// holdfast is.
package trace
