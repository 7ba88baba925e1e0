package probe

import (
	"fmt"
	"strings"
)

// collective makes the probes of instructions that exchange values in a warp: with all lanes, and with the odd and
// the even lanes apart, each in a branch of its own.
func collective(spelling string) []*Probe {
	op, _, _ := strings.Cut(spelling, ".")
	switch {
	case strings.HasPrefix(spelling, "bar.warp"):
		return nil // see written
	case strings.HasPrefix(spelling, "vote.") && !strings.HasPrefix(spelling, "vote.sync"),
		strings.HasPrefix(spelling, "shfl.") && !strings.HasPrefix(spelling, "shfl.sync"):
		return nil // not on sm_70 and later
	}
	var ps []*Probe
	for _, variant := range []string{"", "odd and even lanes apart"} {
		t := newText(spelling, variant, "warp: "+op, Threads)
		width := 4
		if strings.HasSuffix(spelling, "64") {
			width = 8
		}
		reg := registerPrefix(width)
		typ := map[string]string{"match": "few", "vote": "pred", "redux": "b32", "shfl": "b32",
			"elect": "zero", "activemask": "zero"}[op]
		if op == "redux" && strings.HasSuffix(spelling, "f32") {
			typ = "f32"
		}
		at := t.operand(typ, width, 1)
		second := t.operand("b32", 4, 1)
		third := t.operand("b32", 4, 1)
		t.f("ld.global.b%d %s20, [%%rd3+%d];\n\tld.global.b32 %%r21, [%%rd3+%d];\n\tld.global.b32 %%r22, [%%rd3+%d];",
			8*width, reg, at, second, third)
		if op == "vote" {
			t.f("setp.ne.u32 %%p10, %%r20, 0;")
		}
		if op == "match" && strings.Contains(spelling, "match.all") {
			// Warps of every other block agree.
			t.f("and.b32 %%r23, %%r3, 1;\n\tsetp.eq.u32 %%p11, %%r23, 0;\n\t@%%p11 mov.b%d %s20, 7;", 8*width, reg)
		}
		t.f("mov.b32 %%r40, 0;\n\tsetp.ne.u32 %%p20, 0, 0;")
		emit := func(mask string) {
			var operands string
			switch op {
			case "shfl":
				operands = "%r40|%p20, %r20, %r21, %r22, " + mask
			case "vote":
				if strings.Contains(spelling, "ballot") {
					operands = "%r40, %p10, " + mask
				} else {
					operands = "%p20, %p10, " + mask
				}
			case "match":
				operands = "%r40, " + reg + "20, " + mask
				if strings.Contains(spelling, ".all") {
					operands = "%r40|%p20, " + reg + "20, " + mask
				}
			case "redux":
				operands = "%r40, %r20, " + mask
			case "elect":
				operands = "%r40|%p20, " + mask
			case "activemask":
				operands = "%r40"
			}
			t.f("%s %s;", spelling, operands)
		}
		if variant == "" {
			emit("0xffffffff")
		} else {
			t.f("@%%p1 bra ODD;")
			emit("0x55555555")
			t.f("bra.uni MEET;\nODD:")
			emit("0xaaaaaaaa")
			fmt.Fprintf(t, "MEET:\n")
		}
		t.f("selp.u32 %%r41, 1, 0, %%p20;\n\tst.global.v2.b32 [%%rd4], {%%r40, %%r41};")
		t.p.OutStride = 8
		ps = append(ps, t.done())
	}
	return ps
}
