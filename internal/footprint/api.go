package footprint

// A Verdict says whether a launch may be stopped anywhere and started again.
type Verdict uint8

// The verdicts.
const (
	Unknown Verdict = iota
	Idempotent
	NotIdempotent
)

// String is the verdict as one word.
func (v Verdict) String() string {
	return [...]string{"unknown", "idempotent", "not-idempotent"}[v]
}

// A Class says for which launches of a kernel the verdict is Idempotent.
type Class uint8

// The classes.
const (
	ClassUnknown  Class = iota // no launch can be judged
	Always                     // all launches
	Conditionally              // it depends on the arguments
	Never                      // none that reaches the instruction of the cause
)

// String is the class as one word.
func (c Class) String() string {
	return [...]string{"unknown", "always", "conditionally", "never"}[c]
}

// A Range is the bytes [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// A Param is a parameter of a kernel, with its place in the parameter buffer.
type Param struct {
	Name             string
	Off, Size, Align int
}

// A Global is a variable of a module in global memory.
type Global struct {
	Name string
	Size int // bytes; 0 = not known here
}

// A Launch is what a kernel is launched with.
type Launch struct {
	Grid, Block, Cluster [3]uint32 // Cluster 0 or 1: none
	Shared               uint32    // bytes of dynamic shared memory
	Params               []byte    // the parameter buffer

	// Allocs are the allocations of the program, sorted and disjoint; nil: not known. The
	// variables of modules are not among them.
	Allocs []Range
	// Contained says that the caller vouches for the kernel: an address that is made from a pointer
	// in the parameters stays in the allocation that the pointer points into, as the language demands of
	// C and as tools that check memory accesses confirm. It bounds what has no provable bound.
	Contained bool
	// Globals are where the variables of Summary.Globals lie, in that order; nil: not known.
	Globals []Range
	// Known is memory whose contents are known, sorted and disjoint; it may be nil. Indices and pointers that are
	// loaded from it have bounds.
	Known []Known
	// Seeks makes Evaluate say what else it would be of use to know: Instance.Wanted.
	Seeks bool
}

// A Witness shows that an instance is not idempotent: the instruction at Read reads byte
// Byte as it was before the launch, and the instruction at Write overwrites it then. Both
// are lines of the source.
type Witness struct {
	Read, Write int
	Byte        uint64
}

// An Instance is what is known of one launch. It is made to be used again and again:
// Evaluate reuses its memory.
type Instance struct {
	Verdict Verdict
	Cause   Cause // why not Idempotent
	At      int   // line of the source that is the cause; 0 = none

	// Reads and Writes are the bytes that may be read and written: sorted, disjoint, not
	// adjacent. With an Unknown flag set, they are a guess: some access has no bound, and the
	// allocations that its pointer may mean are listed instead.
	Reads, Writes               []Range
	ReadsUnknown, WritesUnknown bool
	// ReadsVariables says that ReadsUnknown is set for no other reason than reads of variables of the module, none of
	// them beside its variable, when Launch.Globals is nil. Variables are in no allocation: Reads has everything else
	// that may be read.
	ReadsVariables bool

	Witness Witness // of NotIdempotent

	// Relied is the part of Launch.Known that this rests on: it holds only if that does. Wanted is where what is not
	// known was loaded from, if Launch.Seeks was set; with it known more may come to be wanted. Both are sorted and
	// disjoint.
	Relied, Wanted []Range

	unplaced bool // something is written, but not in Writes

	s *Summary
	m machine
}
