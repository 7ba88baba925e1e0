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
	e := &explainer{s: s, p: &s.Code}
	var pairs []string
	more := 0
	for i := range s.Code.Accs {
		w := &s.Code.Accs[i]
		if w.Kind == IsRead {
			continue
		}
		if w.Kind == IsUpdate {
			return fmt.Sprintf("not idempotent if a thread comes to line %d, where %s is changed by an atomic "+
				"operation", w.Pos, e.place(w))
		}
		for j := range s.Code.Accs {
			r := &s.Code.Accs[j]
			if r.Hidden || r.Kind == IsWrite || r.Kind == IsSettle && w.Kind == IsSettle && r.Atom == w.Atom {
				continue
			}
			text := fmt.Sprintf("%s (line %d) overlaps %s (line %d)", e.place(w), w.Pos, e.place(r), r.Pos)
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
func (e *explainer) place(a *Access) string {
	at := e.form(&e.p.Forms[a.Form])
	if a.Off != 0 {
		at += fmt.Sprintf(" + %d", a.Off)
	}
	return fmt.Sprintf("[%s, +%d)", at, max(a.Span, a.Bytes))
}
