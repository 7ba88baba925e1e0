package verify

import (
	"encoding/binary"

	"holdfast/internal/footprint"
	"holdfast/internal/recording"
)

const (
	// windowUnit is what the addresses of a recording are rounded to, to tell addresses from numbers: two numbers of 32
	// bits side by side are hardly ever one.
	windowUnit = 4 << 30
	// From here on a parameter of eight bytes is an address wherever it points: a recording's memory begins at 2^44,
	// and few sizes or counts are as large.
	surelyAddress = 1 << 44
	// From hostFrom to hostTo it is one of the program's own, on the host. Libraries (cuBLAS: where alpha and beta
	// are) hand such to kernels that do not use them; one that did would fault, as when it was recorded.
	hostFrom, hostTo = 1 << 46, 1 << 47
)

// window is the addresses around the recording's memory that hardly anything but an address has.
func window(memory []footprint.Range) footprint.Range {
	if len(memory) == 0 {
		return footprint.Range{}
	}
	lo, hi := memory[0].Lo, memory[len(memory)-1].Hi
	return footprint.Range{Lo: lo / windowUnit * windowUnit, Hi: (hi + windowUnit) / windowUnit * windowUnit}
}

// stray finds the first word of a launch's parameters that looks like an address and points outside; ok is false if
// there is none. One that points behind the end of memory is good: loops end there.
func (c *checker) stray(params []byte, layout []recording.Param) (at int, value uint64, ok bool) {
	for _, p := range layout {
		for k := 0; k+8 <= p.Size; k++ {
			if at := p.Offset + k; k == 0 || at%8 == 0 {
				v := binary.LittleEndian.Uint64(params[at:])
				if c.addresses(v, p.Size == 8) && !c.points(v) {
					return at, v, true
				}
			}
		}
	}
	return 0, 0, false
}

// addresses reports whether a word looks like an address. Alone says that it is a parameter of its own, not part of
// a structure that may have anything in it.
func (c *checker) addresses(v uint64, alone bool) bool {
	return v >= c.window.Lo && v < c.window.Hi ||
		alone && v >= surelyAddress && v < topAddress && (v < hostFrom || v >= hostTo)
}

func (c *checker) points(v uint64) bool {
	i := after(c.memory, v)
	return i < len(c.memory) && c.memory[i].Lo <= v || i > 0 && c.memory[i-1].Hi == v
}
