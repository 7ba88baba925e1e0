package footprint

import (
	"slices"
)

// A Summary is all that is known of a kernel before it is launched. It does not change, and
// may be used by several goroutines at once.
type Summary struct {
	Name    string
	Params  []Param
	Class   Class
	Cause   Cause    // why not Always
	At      int      // line of the source that is the cause
	Globals []Global // variables in global memory that it may access; Launch.Globals says where they are

	// What package summarise says to this one:

	Refused     Cause // why no instance is judged
	IsOpaque    bool  // nothing is known of what it accesses
	ParamBytes  int
	Code        Program
	HasTables   bool    // there is KnowingCode
	KnowingCode Program // Code again, for launches that know what memory holds (known.go)
	Path        Path    // on which witnesses are looked for
	Loops       int
	MaxTid      [3]int64  // the largest index of a thread
	Cluster     [3]uint32 // blocks that a cluster has, if the kernel says so

	// An instruction that is not understood may read or write anything.
	GuessReads, GuessWrites bool

	refusedAt int
}

// Opaque is the summary of a kernel without PTX: every launch may read and write the
// allocations that its parameters point into.
func Opaque(name string, params []Param) *Summary {
	s := &Summary{Name: name, Params: slices.Clone(params), Class: ClassUnknown}
	s.Refuse(NoCode, 0)
	s.IsOpaque = true
	return s
}

// Refuse says that no launch is judged, and why, unless another reason was given before.
func (s *Summary) Refuse(c Cause, at int) {
	if s.Refused == NoCause {
		s.Refused, s.refusedAt = c, at
		s.Cause, s.At = c, at
	}
}
