package digest

import "golang.org/x/sys/cpu"

// absorb feeds chunk to the lanes.
func (s *states) absorb(chunk []byte) {
	if cpu.X86.HasAVX2 {
		absorbAVX2(s, &chunk[0], len(chunk)/(absorbRows*rowSize))
		return
	}
	absorbGeneric(s, chunk)
}

// absorbAVX2 is absorbGeneric for blocks × absorbRows rows at chunk.
//
//go:noescape
func absorbAVX2(s *states, chunk *byte, blocks int)
