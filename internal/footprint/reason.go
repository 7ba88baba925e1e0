package footprint

import (
	"fmt"
)

// Reason says in one sentence why the verdict is what it is.
func (in *Instance) Reason() string {
	switch in.Verdict {
	case Idempotent:
		if len(in.Writes) == 0 && !in.WritesUnknown {
			return "it writes nothing"
		}
		return "no byte is overwritten that may have been read as it was before"
	case NotIdempotent:
		return fmt.Sprintf("line %d reads byte %#x as it was before, and line %d overwrites it", in.Witness.Read,
			in.Witness.Byte, in.Witness.Write)
	}
	if in.At > 0 {
		return fmt.Sprintf("%v (line %d)", in.Cause, in.At)
	}
	return in.Cause.String()
}
