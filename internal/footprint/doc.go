// Package footprint says, before a kernel is launched, which bytes the launch can read and
// write, and whether the launch is idempotent: whether it may be stopped anywhere and
// started again, with the same result as if it had run once.
//
// A kernel becomes a Summary once, in package summarise; a Summary and a Launch become an Instance here, in about a
// microsecond and without allocating. docs/foresee.md explains the analysis, what it
// proves and what it assumes.
//
// This package knows no kernel and no form in which one is written: a Summary is flat programs of numbers (package
// form). The files:
//
//	api.go       launches, instances, verdicts; cause.go, reason.go, why a verdict is what it is
//	summary.go   what is known of a kernel; program.go, the programs that a launch evaluates
//	plan.go      the order in which a launch evaluates a program; packed_unsafe.go, its tables as one block of memory
//	eval.go      a launch: numbers for coefficients, ranges for variables; sharpened.go, guards of which less
//	             holds, or more
//	known.go     contents of memory, and what they say of a launch
//	overlap.go   whether two strided boxes can meet
//	covered.go   reads that see only what their block has written before a barrier
//	verdict.go   what may be read before it is written
//	witness.go   proof that an instance is not idempotent; view.go, where one may be found
//	bases.go     pointers that a launch may be moved by; recent.go, launches that were evaluated before
//	explain.go   how a range was found, for people; condition.go, on what the verdict depends; inspect.go, for tests
//	codec.go     summaries as bytes; check.go, what of them is accepted
//
// Everything that is not understood makes it say less: an access without bounds,
// a verdict "unknown". A wrong "idempotent" is the worst defect that this package can have.
//
// The package must not import the software GPU, which is its oracle, nor package summarise.
//
// The definition of idempotent instances and the comparison with kernel-level analyses are
// from PICKER (instance-level idempotency); the tests for overlap are those of U. Banerjee
// and of compilers for array dependences (gcd and bounds).
package footprint
