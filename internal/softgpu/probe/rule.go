package probe

import "strings"

// A Rule says how results are compared. The zero Rule is bit for bit.
type Rule struct {
	Elem  string  // format of the results that are compared with a bound: f16, bf16, f32, f64; "" = bit for bit
	Elems int     // how many of them each thread writes, at the start of its output; the rest is compared bit for bit
	Rel   float64 // bound of the difference relative to the result
	Abs   float64 // bound of the absolute difference; the larger one holds
	// Scale is the bound of the difference as a part of the sum of the magnitudes of the products and the
	// accumulator: matrix instructions. The sums come from the same kernel run on the magnitudes of its inputs.
	Scale float64
	// ExactRounds are rounds, from the first, in which every sum is exact and results are compared bit for bit.
	ExactRounds int
	// Warp says that the elements of a warp lie together before what else its threads write.
	Warp bool
	// AnyNaN says that PTX leaves open which NaN the result is.
	AnyNaN bool
	Why    string // where the bound comes from
}

func elemBytes(elem string) int {
	return map[string]int{"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[elem]
}

// ruleOf gives the bounds that the PTX ISA 9.0 (9.7.3–9.7.4) states for approximate instructions, to which half a unit
// in the last place of the software GPU's own result is added.
func ruleOf(spelling string) Rule {
	mods := strings.Split(spelling, ".")
	op, last := mods[0], mods[len(mods)-1]
	elem := strings.TrimSuffix(last, "x2")
	has := func(m string) bool { return strings.Contains("."+spelling+".", "."+m+".") }
	const ulp = 0x1p-23 // of f32, relative
	r := Rule{Elem: elem}
	switch {
	case (op == "abs" || op == "neg") && elem == "f32":
		r.Elem, r.AnyNaN, r.Why = "", true, "abs, neg.f32: NaN inputs yield unspecified NaN (9.7.3.9, 9.7.3.10)"
	case op == "tanh":
		switch elem {
		case "f32":
			r.Rel, r.Why = 0x1p-11+ulp, "tanh.approx.f32: relative error 2^-11"
		case "f16":
			r.Abs, r.Why = 0x1p-10, "tanh.approx.f16: absolute error 2^-10.987, and half a unit (2^-12)"
		case "bf16":
			r.Abs, r.Why = 0x1p-8+0x1p-9, "tanh.approx.bf16: absolute error 2^-8, and half a unit (2^-9)"
		}
	case op == "ex2":
		switch elem {
		case "f32":
			r.Rel, r.Abs, r.Why = 2*ulp+ulp, 0x1p-149, "ex2.approx.f32: 2 units in the last place"
		case "f16":
			r.Rel, r.Abs, r.Why = 0x1p-9, 0x1p-24, "ex2.approx.f16: relative error 2^-9.9, and half a unit (2^-11)"
		case "bf16":
			r.Rel, r.Abs, r.Why = 0x1p-7+0x1p-8, 0x1p-133,
				"ex2.approx.bf16: relative error 2^-7, and half a unit (2^-8)"
		}
	case op == "sin", op == "cos":
		r.Abs, r.Why = 0x1p-20, "sin, cos.approx.f32: absolute error 2^-20.5 within [-2π, 2π]"
	case op == "lg2":
		r.Rel, r.Abs, r.Why = 0x1p-22+ulp, 0x1p-22+ulp,
			"lg2.approx.f32: absolute error 2^-22 for inputs in (0.5, 2), else relative error 2^-22"
	case op == "rsqrt" && elem == "f32":
		r.Rel, r.Why = 0x1p-22+ulp, "rsqrt.approx.f32: relative error 2^-22.9"
	case op == "sqrt" && has("approx"), op == "sqrt" && elem == "f32" && len(mods) == 2:
		r.Rel, r.Abs, r.Why = ulp+ulp, 0x1p-149, "sqrt.approx.f32: relative error 2^-23"
	case op == "rcp" && has("approx") && elem == "f32":
		r.Rel, r.Abs, r.Why = ulp+ulp, 0x1p-149, "rcp.approx.f32: 1 unit in the last place"
	case op == "div" && elem == "f32" && (has("approx") || has("full")):
		r.Rel, r.Abs, r.Why = 2*ulp+ulp, 0x1p-148, "div.approx, div.full.f32: 2 units in the last place"
	case (op == "rcp" || op == "rsqrt") && has("approx") && elem == "f64":
		r.Rel, r.Why = 0x1p-19,
			"rcp, rsqrt.approx.ftz.f64: gross approximation, the upper word of the result: 2^-20 each"
	default:
		return Rule{}
	}
	return r
}
