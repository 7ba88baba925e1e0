package probe

import (
	_ "embed"
	"strings"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// refusedText lists what ptxas 12.4 does not assemble for sm_90a, one probe a line: PTX that is newer than
// the tool, for another GPU, or a combination of modifiers that the table allows and PTX does not.
//
//go:embed refused.txt
var refusedText string

// Refused are the IDs of the probes that ptxas 12.4 refuses, with its reason.
func Refused() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(refusedText) {
		if id, why, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok && !strings.HasPrefix(line, "#") {
			m[id] = why
		}
	}
	return m
}

// Newer tells a refusal that a newer tool or another GPU may not share from a combination that PTX does not have.
func Newer(why string) bool {
	if strings.Contains(why, "'set'") {
		return false // mixtures of f16 and bf16
	}
	for _, s := range []string{"Unknown modifier", "Not a name of any known instruction",
		"Unexpected instruction types", "Illegal vector size", "Parsing error",
		"Incorrect instruction type", "State space incorrect"} {
		if strings.Contains(why, s) {
			return true
		}
	}
	return false
}

// All makes every probe, in the order of the families.
func All() []*Probe {
	var ps []*Probe
	for _, f := range isa.Forms() {
		spellings := f.Spellings()
		if f.Class <= isa.Move {
			spellings = f.Every()
		}
		for _, sp := range spellings {
			switch f.Class {
			case isa.Arith, isa.Compare, isa.Convert, isa.Move:
				ps = append(ps, registers(f, sp)...)
			case isa.Load:
				ps = append(ps, load(sp)...)
			case isa.Store:
				ps = append(ps, store(sp)...)
			case isa.Atomic:
				ps = append(ps, atomic(f, sp)...)
			case isa.Collective:
				ps = append(ps, collective(sp)...)
			case isa.Tensor:
				ps = append(ps, tensor(sp)...)
			case isa.Barrier:
				ps = append(ps, barrier(sp)...)
			case isa.Fence, isa.Prefetch, isa.Special:
				ps = append(ps, effect(sp)...)
			case isa.Async:
				ps = append(ps, asynchronous(f, sp)...)
			}
		}
	}
	ps = append(ps, carries()...)
	ps = append(ps, ordered()...)
	ps = append(ps, written()...)
	// One spelling may have several lines of the table.
	seen := map[string]bool{}
	unique := ps[:0]
	for _, p := range ps {
		if !seen[p.ID()] {
			seen[p.ID()] = true
			unique = append(unique, p)
		}
	}
	return unique
}

// familyOf groups the probes of instructions on registers.
func familyOf(f *isa.Form, spelling string) string {
	mods := strings.Split(spelling, ".")
	last := mods[len(mods)-1]
	switch f.Class {
	case isa.Compare:
		return "comparison: " + kind(f, spelling)
	case isa.Convert:
		return "conversion"
	case isa.Move:
		return "moves and selection"
	}
	switch f.Op {
	case "and", "or", "xor", "not", "cnot", "lop3", "shl", "shr", "shf":
		return "logic and shift"
	case "prmt", "bfe", "bfi", "bfind", "bmsk", "szext", "brev", "clz", "popc", "fns":
		return "bit fields"
	case "sin", "cos", "lg2", "ex2", "tanh", "rsqrt":
		return "approximate functions"
	case "dp4a", "dp2a":
		return "integer"
	}
	if ruleOf(spelling).Elem != "" {
		return "approximate functions"
	}
	if f.Op[0] == 'v' {
		return "video"
	}
	return kind(f, last)
}

// kind is the number format of an instruction, in words.
func kind(f *isa.Form, spelling string) string {
	types := f.TypesOf(spelling)
	if !strings.Contains(spelling, ".") {
		types = f.TypesOf(f.Op + "." + spelling)
	}
	for _, t := range types {
		switch t {
		case ptx.F16, ptx.F16x2:
			return "f16"
		case ptx.BF16, ptx.BF16x2:
			return "bf16"
		case ptx.F32, ptx.F32x2:
			return "f32"
		case ptx.F64:
			return "f64"
		}
	}
	return "integer"
}
