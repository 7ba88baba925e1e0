package isa

import (
	"strings"

	"holdfast/ptx"
)

// Spellings lists opcodes with modifiers that the form allows, in the order
// of the PTX ISA: every combination of the required modifiers, and each
// optional one added to the first of them. Tests walk the table with it.
func (f *Form) Spellings() []string {
	combos := [][]string{nil}
	for _, s := range f.slots {
		if s.optional {
			for i := range combos {
				combos[i] = append(combos[i], "")
			}
			continue
		}
		var next [][]string
		for _, c := range combos {
			for _, a := range s.alts {
				next = append(next, append(append([]string(nil), c...), a))
			}
		}
		combos = next
	}
	first := combos[0]
	for i, s := range f.slots {
		if s.optional {
			for _, a := range s.alts {
				c := append([]string(nil), first...)
				c[i] = a
				combos = append(combos, c)
			}
		}
	}
	var out []string
	for _, c := range combos {
		var b strings.Builder
		b.WriteString(f.Op)
		for _, m := range c {
			if m != "" {
				b.WriteString("." + m)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// TypesOf gives the types that the modifiers of a spelling select for the
// operands of the form, optional ones included.
func (f *Form) TypesOf(spelling string) []ptx.Type {
	in := &Inst{}
	rest := strings.TrimPrefix(strings.TrimPrefix(spelling, f.Op), ".")
	var mods []string
	if rest != "" {
		mods = strings.Split(rest, ".")
	}
	f.match(in, mods)
	var out []ptx.Type
	for i := range f.Args {
		out = append(out, in.typeOf(&f.Args[i]))
	}
	return out
}

// Every lists all opcodes with modifiers that the form allows: Spellings, and the
// combinations of optional modifiers too. It may be long, and not all of it is
// PTX: the form does not say which modifiers exclude each other.
func (f *Form) Every() []string {
	all := []string{f.Op}
	for _, s := range f.slots {
		alts := s.alts
		if s.optional {
			alts = append([]string{""}, alts...)
		}
		next := make([]string, 0, len(all)*len(alts))
		for _, sp := range all {
			for _, m := range alts {
				if m != "" {
					m = "." + m
				}
				next = append(next, sp+m)
			}
		}
		all = next
	}
	return all
}
