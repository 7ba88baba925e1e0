// Package summarise works out once what a kernel says of all of its launches: a footprint.Summary.
//
// Everything the analysis does not understand makes the summary say less: an access without bounds, or a cause for
// which no launch is judged. It reads package ir's form of a kernel, and no language.
//
// The files, in the order in which a kernel passes through them:
//
//	module.go    all kernels of a module
//	inline.go    functions of the module put where they are called
//	effect.go    what a kernel does that cannot be foreseen at all
//	expr.go      symbolic values, hash-consed
//	build.go     from SSA values to symbolic values
//	division.go  divisions that a compiler has hidden; parts of words; comparisons of floats with 0
//	carried.go   values that a loop computes one iteration early; choices that facts decide
//	scale.go     indices that are scaled as floating-point numbers
//	linear.go    symbolic values as sums of variables with coefficients
//	variable.go  the variables, and their bounds
//	bisect.go    binary searches
//	unrolled.go  loops that a compiler has unrolled
//	guard.go     what is known where an access stands; asserted.go, what a loop's test says of everything before it
//	provenance.go  addresses of shared and local memory, whatever way they come
//	access.go    the accesses, merged where they differ by a constant
//	hidden.go    reads that see only what their own thread has written
//	scratch.go   reads that see only what their block has written before a barrier
//	loaded.go    values that are loaded, from memory whose contents may be known
//	compiler.go  the summary's programs; path.go, the path that witnesses are looked for on
//
// The package must not import the software GPU, which is the oracle of footprints.
package summarise
