// Package summarise works out once what a kernel says of all of its launches: a footprint.Summary.
//
// Everything the analysis does not understand makes the summary say less: an access without bounds, or a cause for
// which no launch is judged. It reads package ir's form of a kernel, and no language.
//
// The files, in the order in which a kernel passes through them:
//
//	module.go      all kernels of a module
//	inline.go      functions of the module put where they are called
//	effect.go      what a kernel does that cannot be foreseen at all
//	code.go        a kernel as it is written: control flow, and what can be said without values
//	expr.go        symbolic values, hash-consed: the graph that everything below holds
//	build.go       from SSA values to symbolic values, block after block
//	meaning.go     the values that instructions make; scale.go, of indices scaled as floating-point numbers
//	merge.go       the values of phis; unrolled.go, of loops that a compiler has unrolled
//	induction.go   how phis at the heads of loops change; bisect.go, in binary searches
//	division.go    divisions that a compiler has hidden; parts of words; comparisons of floats with 0
//	linear.go      symbolic values as sums of variables with coefficients; linearise.go, how they become that
//	bounds.go      between what numbers a form lies, and forms as numbers of a width
//	quotient.go    forms of quotients and remainders; bits.go, of masks; choice.go, of one of several values
//	identity.go    forms rewritten as equal ones that say more
//	variable.go    the variables, and their bounds
//	guard.go       what conditions say; asserted.go, what a loop's test says of everything before it
//	decision.go    what conditions decide of values
//	invariant.go   what stays the same while a loop runs, and the tests that end it
//	provenance.go  addresses of shared and local memory, whatever way they come
//	access.go      the accesses, merged where they differ by a constant
//	hidden.go      reads that see only what their own thread has written
//	scratch.go     reads that see only what their block has written before a barrier
//	loaded.go      values that are loaded, from memory whose contents may be known
//	compiler.go    the summary's programs; path.go, the path that witnesses are looked for on
//
// Each of these ideas is a type that holds the graph (conditions, decisions, identities and others), the code, or
// the values, which are both with what is known of them (meanings, merges, inductions, accesses and others).
//
// The package must not import the software GPU, which is the oracle of footprints.
package summarise
