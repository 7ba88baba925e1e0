package recorder

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/recording"
)

// name gives inputs or outputs (what) the names and types that the user has hinted at. A hint for each: in their
// order. Fewer hints, because the program copies more than what the user thinks of: all of them must have types, and
// there must be one way alone to find them, in their order, among the ports by their bytes.
func name(ports []recording.Port, hints []Hint, prefix, what string) error {
	for i := range ports {
		p := &ports[i]
		p.Name, p.DType, p.Shape = fmt.Sprintf("%s%d", prefix, i), "uint8", []int{int(p.Bytes)}
	}
	if len(hints) == 0 {
		return nil
	}
	if len(hints) > len(ports) {
		return fmt.Errorf("%d %ss are named, the range has %s", len(hints), what, listed(ports, what))
	}
	at, err := place(ports, hints, what)
	if err != nil {
		return err
	}
	for i, h := range hints {
		p := &ports[at[i]]
		p.Name = h.Name
		if h.DType != "" {
			p.DType, p.Shape = h.DType, h.Shape
		}
	}
	return nil
}

// place is which port each hint is of.
func place(ports []recording.Port, hints []Hint, what string) ([]int, error) {
	if len(hints) == len(ports) {
		at := make([]int, len(hints))
		for i, h := range hints {
			if at[i] = i; !h.fits(&ports[i]) {
				return nil, fmt.Errorf("%s %s: %d bytes were copied, not an array of %s %v; the range has %s", what,
					h.Name, ports[i].Bytes, h.DType, h.Shape, listed(ports, what))
			}
		}
		return at, nil
	}
	for _, h := range hints {
		if h.DType == "" {
			return nil, fmt.Errorf("%d %ss are named, the range has %s: name all of them in their order, "+
				"or say type and shape of those that you name (--%s %s:float32:1,3,224,224)", len(hints), what,
				listed(ports, what), what[:len(what)-len("put")], h.Name)
		}
	}
	first := make([]int, 0, len(hints))
	for i := range ports {
		if n := len(first); n < len(hints) && hints[n].fits(&ports[i]) {
			first = append(first, i)
		}
	}
	var last []int // as late as can be, from the end on
	for i := len(ports) - 1; i >= 0; i-- {
		if n := len(hints) - len(last) - 1; n >= 0 && hints[n].fits(&ports[i]) {
			last = append(last, i)
		}
	}
	slices.Reverse(last)
	switch {
	case len(first) < len(hints):
		h := hints[len(first)]
		return nil, fmt.Errorf("%s %s: no array of %s %v was copied where it would stand; the range has %s", what,
			h.Name, h.DType, h.Shape, listed(ports, what))
	case !slices.Equal(first, last):
		return nil, fmt.Errorf("the %ss that are named can be more than one of the range's: it has %s; "+
			"name all of them in their order", what, listed(ports, what))
	}
	return first, nil
}

// fits says whether a port can be what the hint says.
func (h *Hint) fits(p *recording.Port) bool {
	if h.DType == "" {
		return true
	}
	n, err := recording.ArrayBytes(h.DType, h.Shape)
	return err == nil && n == p.Bytes
}

// listed says how many bytes the ports have.
func listed(ports []recording.Port, what string) string {
	const most = 8
	var sizes []string
	for i := range ports {
		if i == most {
			sizes = append(sizes, "…")
			break
		}
		sizes = append(sizes, fmt.Sprint(ports[i].Bytes))
	}
	if len(ports) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d %ss (%s bytes)", len(ports), what, strings.Join(sizes, ", "))
}
