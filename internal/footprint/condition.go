package footprint

import (
	"fmt"
	"slices"
	"strings"
)

// maxPairs bounds how many pairs a condition names.
const maxPairs = 8

// Condition says on what the verdict depends: in words, with the addresses that must not meet as formulas.
func (s *Summary) Condition() string {
	switch {
	case s.Class == ClassUnknown:
		return "no launch is judged: " + s.Cause.String()
	case s.Class == Always:
		return "it writes nothing"
	}
	e := &explainer{s: s, p: &s.prog}
	var pairs []string
	more := 0
	for i := range s.prog.accs {
		w := &s.prog.accs[i]
		if w.kind == isRead {
			continue
		}
		if w.kind == isUpdate {
			return fmt.Sprintf("not idempotent if a thread comes to line %d, where %s is changed by an atomic operation", w.pos, e.place(w))
		}
		for j := range s.prog.accs {
			r := &s.prog.accs[j]
			if r.hidden || r.kind == isWrite || r.kind == isSettle && w.kind == isSettle && r.atom == w.atom {
				continue
			}
			text := fmt.Sprintf("%s (line %d) overlaps %s (line %d)", e.place(w), w.pos, e.place(r), r.pos)
			switch {
			case slices.Contains(pairs, text):
			case len(pairs) < maxPairs:
				pairs = append(pairs, text)
			default:
				more++
			}
		}
	}
	if len(pairs) == 0 {
		return "idempotent if every address has a bound"
	}
	if more > 0 {
		pairs = append(pairs, fmt.Sprintf("one of %d more pairs overlaps", more))
	}
	return "idempotent unless " + strings.Join(pairs, ", or ")
}

// place is the bytes of an access as a formula.
func (e *explainer) place(a *pacc) string {
	at := e.form(&e.p.forms[a.form])
	if a.off != 0 {
		at += fmt.Sprintf(" + %d", a.off)
	}
	return fmt.Sprintf("[%s, +%d)", at, max(a.span, a.bytes))
}
