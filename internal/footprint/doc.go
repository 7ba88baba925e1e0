// Package footprint says, before a kernel is launched, which bytes the launch can read and
// write, and whether the launch is idempotent: whether it may be stopped anywhere and
// started again, with the same result as if it had run once.
//
// A kernel becomes a Summary once; a Summary and a Launch become an Instance, in about a
// microsecond and without allocating. docs/foresee.md explains the analysis, what it
// proves and what it assumes.
//
// The files, in the order in which a kernel passes through them:
//
//	inline.go    functions of the module put where they are called
//	effect.go    what a kernel does that cannot be foreseen at all
//	expr.go      symbolic values, hash-consed
//	build.go     from SSA values to symbolic values
//	division.go  divisions that a compiler has hidden; parts of words; comparisons of floats with 0
//	late.go      values that a loop computes one iteration early; choices that facts decide
//	scale.go     indices that are scaled as floating-point numbers
//	linear.go    symbolic values as sums of variables with coefficients
//	variable.go  the variables, and their bounds
//	bisect.go    binary searches
//	unrolled.go  loops that a compiler has unrolled
//	guard.go     what is known where an access stands
//	provenance.go  addresses of shared and local memory, whatever way they come
//	access.go    the accesses, merged where they differ by a constant
//	hidden.go    reads that see only what their own thread has written
//	scratch.go   reads that see only what their block has written before a barrier
//	table.go     values that are loaded, from memory whose contents may be known
//	program.go   the summary: flat programs that a launch evaluates
//	plan.go      the order in which a launch evaluates a program; packed_unsafe.go, its tables as one block of memory
//	eval.go      a launch: numbers for coefficients, ranges for variables
//	known.go     contents of memory, and what they say of a launch
//	overlap.go   whether two strided boxes can meet
//	verdict.go   what may be read before it is written
//	witness.go   proof that an instance is not idempotent; view.go, where one may be found
//	bases.go     pointers that a launch may be moved by; recent.go, launches that were evaluated before
//	explain.go   how a range was found, for people; condition.go, on what the verdict depends
//	codec.go     summaries as bytes; check.go, what of them is accepted; cache.go, where they are kept
//
// Everything the analysis does not understand makes it say less: an access without bounds,
// a verdict "unknown". A wrong "idempotent" is the worst defect that this package can have.
//
// The package must not import the software GPU, which is its oracle.
//
// The definition of idempotent instances and the comparison with kernel-level analyses are
// from PICKER (instance-level idempotency); the tests for overlap are those of U. Banerjee
// and of compilers for array dependences (gcd and bounds).
package footprint
