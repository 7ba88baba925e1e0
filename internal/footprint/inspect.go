package footprint

import (
	"slices"
)

// An Inspection is how a summary is evaluated: tests want to see that work is shared, and that launches are remembered.
type Inspection struct {
	Bases []int32 // offsets of parameters: pointers that a launch may be moved by
	Steps int     // of the program
	Blind bool    // no witness is looked for
}

// Inspect says how s is evaluated.
func (s *Summary) Inspect() Inspection {
	p := &s.Code.plan
	return Inspection{Bases: slices.Clone(p.bases), Steps: len(p.code), Blind: p.view.blind}
}

// Apart is a copy of s in which no two contexts share a step: it says the same, and takes longer.
func (s *Summary) Apart() *Summary {
	apart := *s
	apart.Code.arrange(&apart.Path, false)
	apart.KnowingCode.arrange(&apart.Path, false)
	return &apart
}

// RecentDistances is how many distances between the buffers of one kernel, with the same numbers, a Recent remembers.
const RecentDistances = recentWays * recentMore

// Written is how many words a Recent has written, and how many it has room for.
func (r *Recent) Written() (words, room uint32) { return uint32(r.next), recentWords }
