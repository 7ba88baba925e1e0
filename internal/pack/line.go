package pack

import (
	"fmt"
	"slices"
)

// A line is requests in order of urgency; those that are due at the same moment in the order in which they came.
type line []place

type place struct {
	due  int64
	slot int32
}

func (l *line) put(p place) {
	i := len(*l)
	for i > 0 && (*l)[i-1].due > p.due {
		i--
	}
	*l = slices.Insert(*l, i, p)
}

// cut takes out a request that is there.
func (l *line) cut(p place) {
	for i := l.from(p.due); i < len(*l); i++ {
		if (*l)[i].slot == p.slot {
			*l = slices.Delete(*l, i, i+1)
			return
		}
	}
	panic(fmt.Sprintf("pack: no request in slot %d is due at %d", p.slot, p.due))
}

// from is the place of the first that is due then or later.
func (l *line) from(due int64) int {
	lo, hi := 0, len(*l)
	for lo < hi {
		if mid := (lo + hi) / 2; (*l)[mid].due < due {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
