package probe

import (
	"fmt"
	"strings"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// registerBytes is the size of the register that holds a value of type t.
func registerBytes(t ptx.Type) int {
	switch n := isa.Bits(t); {
	case n <= 16:
		return 2
	case n == 32:
		return 4
	}
	return 8
}

func registerPrefix(bytes int) string {
	return map[int]string{1: "%c", 2: "%h", 4: "%r", 8: "%rd"}[bytes]
}

// registers makes the probes of a form that reads and writes registers only. Each executes the instruction
// twice, the second time for odd threads alone.
func registers(f *isa.Form, spelling string) []*Probe {
	switch {
	case strings.HasPrefix(spelling, "isspacep"), strings.HasPrefix(spelling, "cvta"):
		return addresses(f.Op, spelling)
	case strings.HasPrefix(spelling, "istypep"):
		return nil // needs texture references
	case spelling == "mov.b128":
		return wideMove()
	case strings.HasPrefix(spelling, "mov.v"):
		return []*Probe{vectorMove(f, spelling)}
	case spelling == "lop3.b32", strings.HasPrefix(spelling, "lop3."):
		var ps []*Probe
		for _, lut := range []int{0x00, 0xff, 0xc0, 0xfc, 0x96, 0xe8, 0xca, 0x1b, 0x80, 0x2d, 0x7e} {
			ps = append(ps, register(f, spelling, fmt.Sprintf("table %#02x", lut), lut))
		}
		return ps
	}
	return []*Probe{register(f, spelling, "", 0)}
}

func register(f *isa.Form, spelling, variant string, lut int) *Probe {
	t := newText(spelling, variant, familyOf(f, spelling), Threads)
	types := f.TypesOf(spelling)
	mods := strings.Split(spelling, ".")
	// ptxas wants 8-bit registers in conversions between bf16 and 8-bit integers, and only there.
	narrow := f.Op == "cvt" && strings.Contains(spelling, ".bf16") &&
		(strings.Contains(spelling, "u8") || strings.Contains(spelling, "s8"))
	carryIn := f.Op == "addc" || f.Op == "subc" || f.Op == "madc"
	carryOut := carryIn && mods[len(mods)-2] == "cc" || len(mods) > 2 && mods[len(mods)-2] == "cc"

	var operands []string
	for i, a := range f.Args[1:] {
		typ := types[i+1]
		if a.Optional && !hasMode(spelling) && !strings.Contains(spelling, ".rs.") {
			continue
		}
		switch {
		case f.Op == "lop3" && i == 3:
			operands = append(operands, fmt.Sprint(lut))
			continue
		case typ == ptx.Pred:
			at := t.operand("pred", 4, 1)
			t.f("ld.global.u32 %%r10, [%%rd3+%d];\n\tsetp.ne.u32 %%p%d, %%r10, 0;", at, 10+i)
			operands = append(operands, fmt.Sprintf("%%p%d", 10+i))
			continue
		}
		n := registerBytes(typ)
		if narrow && isa.Bits(typ) == 8 {
			n = 1
		}
		values := inputType(f.Op, typ, n)
		if strings.Contains(spelling, ".oob") {
			values = "oob:" + values
		}
		at := t.operand(values, n, 1)
		t.f("ld.global.b%d %s%d, [%%rd3+%d];", 8*n, registerPrefix(n), 20+i, at)
		operands = append(operands, fmt.Sprintf("%s%d", registerPrefix(n), 20+i))
	}

	dst, second := "", ""
	size := 4
	if types[0] == ptx.Pred {
		dst = "%p"
		t.p.Pred = true
		if f.Op == "setp" && !strings.HasSuffix(spelling, "f16") {
			second = "|%p"
		}
		t.f("setp.ne.u32 %%p21, 0, 0; setp.ne.u32 %%p23, 0, 0;")
	} else {
		size = registerBytes(types[0])
		if narrow && isa.Bits(types[0]) == 8 {
			size = 1
		}
		dst = registerPrefix(size)
		if size == 1 {
			t.f("ld.global.b8 %%c41, [%%rd4];")
		} else {
			t.f("mov.b%d %s41, 0x5a5a;", 8*size, dst)
		}
		if f.Op == "lop3" && len(mods) > 2 {
			second = "|%p"
			t.f("setp.ne.u32 %%p23, 0, 0;")
		}
	}
	out := 0
	store := func(name, reg string, n, k int) {
		out = (out + n - 1) / n * n
		t.p.Out = append(t.p.Out, Part{name, k == 1, out, n})
		if strings.HasPrefix(reg, "%p") {
			t.f("selp.u32 %%r12, 1, 0, %s;\n\tst.global.u32 [%%rd4+%d], %%r12;", reg, out)
		} else {
			t.f("st.global.b%d [%%rd4+%d], %s;", 8*n, out, reg)
		}
		out += n
	}
	for k, guard := range []string{"", "@%p1 "} {
		d := fmt.Sprintf("%s%d", dst, 40+k)
		if dst == "%p" {
			d = fmt.Sprintf("%%p%d", 20+k)
		}
		if second != "" {
			d += fmt.Sprintf("%s%d", second, 22+k)
		}
		if carryIn {
			// The carry comes from an addition of the first two operands.
			w := 8 * size
			t.f("add.cc.u%d %s60, %s, %s;", w, dst, operands[0], operands[1])
		}
		if k == 1 && unguarded(f.Op, spelling, types[0]) {
			if dst == "%p" {
				t.f("%s %%p24, %s;\n\t@%%p1 mov.pred %s, %%p24;", spelling, strings.Join(operands, ", "), d)
			} else {
				t.f("%s %s42, %s;\n\t@%%p1 mov.b%d %s, %s42;", spelling, dst,
					strings.Join(operands, ", "), 8*size, d, dst)
			}
			continue
		}
		t.f("%s%s %s, %s;", guard, spelling, d, strings.Join(operands, ", "))
		if carryOut {
			t.f("addc.u32 %%r%d, 0, 0;", 62+k)
		}
	}
	for k := range 2 {
		if dst == "%p" {
			store("result", fmt.Sprintf("%%p%d", 20+k), 4, k)
		} else {
			store("result", fmt.Sprintf("%s%d", dst, 40+k), size, k)
		}
		if second != "" {
			store("second", fmt.Sprintf("%%p%d", 22+k), 4, k)
		}
		if carryOut {
			store("carry", fmt.Sprintf("%%r%d", 62+k), 4, k)
		}
	}
	t.p.OutStride = (out + 7) &^ 7
	if isa.Float(types[0]) {
		t.p.Result = strings.TrimSuffix(isa.TypeName(types[0]), "x2")
	}
	t.p.Rule = ruleOf(spelling)
	if t.p.Rule.Elem != "" {
		t.p.Rule.Elems = 2 * size / elemBytes(t.p.Rule.Elem)
	}
	return t.done()
}

// unguarded reports instructions that are never executed under a guard, because ptxas (12.4, and that of driver
// 580.159) translates the guard wrongly: `@p set.….f32 d, …` converts the old value of d to a float where p is false;
// `@p testp`, `@p vadd4.….add` and `@p vsub4.….add` ignore p.
func unguarded(op, spelling string, result ptx.Type) bool {
	return op == "testp" || op == "set" && isa.Float(result) ||
		(op == "vadd4" || op == "vsub4") && strings.HasSuffix(spelling, ".add")
}

// hasMode reports whether an instruction that may carry a secondary operation does: its last operand is then there.
func hasMode(spelling string) bool {
	mods := strings.Split(spelling, ".")
	if mods[0][0] != 'v' {
		return strings.HasPrefix(spelling, "cvt.pack.sat.") && len(mods) == 5
	}
	switch mods[len(mods)-1] {
	case "add", "min", "max":
		return true
	}
	return false
}

// inputType names the values that suit an operand.
func inputType(op string, t ptx.Type, bytes int) string {
	switch op {
	case "sin", "cos":
		return "angle"
	}
	name := isa.TypeName(t)
	if 8*bytes > max(16, isa.Bits(t)) {
		return fmt.Sprintf("b%d", 8*bytes)
	}
	if _, ok := formats[name]; ok && name != "tf32" && name != "e4m3" && name != "e5m2" {
		return name
	}
	switch name {
	case "f16x2", "bf16x2", "f32x2", "u16x2", "s16x2":
		return name
	case "b32":
		if op[0] == 'v' || strings.HasPrefix(op, "dp") {
			return "u8x4"
		}
	}
	return fmt.Sprintf("b%d", 8*bytes)
}

// addresses makes the probes of isspacep and cvta: addresses of every space go in, and what comes out is
// independent of where the spaces lie.
func addresses(op, spelling string) []*Probe {
	t := newText(spelling, "", "addresses", BlockThreads)
	t.p.Rounds = 1
	t.f(".shared .align 16 .b8 s[256];\n\t.local .align 16 .b8 l[256];")
	fmt.Fprintf(&t.vars, ".const .align 16 .b8 %s_c[64] = {1,2,3,4};\n", t.p.Name)
	t.p.Extra = 64
	t.f("mov.u64 %%rd10, s;\n\tmov.u64 %%rd11, l;\n\tmov.u64 %%rd12, %s_c;\n\tmov.b64 %%rd13, w;", t.p.Name)
	t.f("cvta.shared.u64 %%rd20, %%rd10;\n\tcvta.local.u64 %%rd21, %%rd11;\n\tcvta.const.u64 %%rd22, %%rd12;\n" +
		"\tcvta.param.u64 %%rd23, %%rd13;\n\tmov.u64 %%rd24, %%rd2;")
	if op == "isspacep" {
		for i := range 5 {
			t.f("%s %%p10, %%rd%d;\n\tselp.u32 %%r10, 1, 0, %%p10;\n"+
				"\tst.global.u32 [%%rd4+%d], %%r10;", spelling, 20+i, 4*i)
		}
		t.p.OutStride = 24
		return []*Probe{t.done()}
	}
	mods := strings.Split(spelling, ".")
	typ := mods[len(mods)-1]
	if typ == "u32" {
		return nil // for 32-bit addresses
	}
	space := strings.TrimPrefix(mods[len(mods)-2], "to")
	from := map[string]int{"shared": 10, "shared::cta": 10, "shared::cluster": 10, "local": 11, "const": 12,
		"param": 13, "param::entry": 13, "global": 2}[space]
	if from == 0 {
		return nil
	}
	// There and back, and what memory holds at the generic address.
	t.f("cvta.%s.u64 %%rd30, %%rd%d;\n\tcvta.to.%s.u64 %%rd31, %%rd30;\n"+
		"\tsub.u64 %%rd32, %%rd31, %%rd%d;", space, from, space, from)
	if space != "const" && !strings.HasPrefix(space, "param") && space != "global" {
		t.f("st.u32 [%%rd30+16], %%r2;\n\tbar.sync 0;")
	}
	if strings.HasPrefix(space, "shared") {
		t.f("mov.u32 %%r10, 0;") // many threads wrote it
	} else if space == "global" {
		t.f("ld.u32 %%r10, [%%rd30+%d];", BlockThreads*16)
		t.p.OutShared = 16
	} else {
		t.f("ld.u32 %%r10, [%%rd30+16];")
	}
	t.f("st.global.u64 [%%rd4], %%rd32;\n\tst.global.u32 [%%rd4+8], %%r10;")
	t.p.OutStride = 16
	return []*Probe{t.done()}
}

func wideMove() []*Probe {
	t := newText("mov.b128", "", "moves", Threads)
	at := t.operand("b64", 8, 2)
	t.f("ld.global.v2.b64 {%%rd20, %%rd21}, [%%rd3+%d];\n\tmov.b128 %%q1, {%%rd20, %%rd21};\n\tmov.b128 %%q2, %%q1;\n"+
		"\tmov.b128 {%%rd22, %%rd23}, %%q2;\n\tst.global.v2.b64 [%%rd4], {%%rd23, %%rd22};", at)
	t.p.OutStride = 16
	return []*Probe{t.done()}
}

// vectorMove copies a whole vector register and stores its elements, the last one first.
func vectorMove(f *isa.Form, spelling string) *Probe {
	t := newText(spelling, "", "moves", Threads)
	size, n := registerBytes(f.TypesOf(spelling)[0]), int(spelling[len("mov.v")]-'0')
	at := t.operand(fmt.Sprintf("b%d", 8*size), size, n)
	last := []string{"%v2.w", "%v2.z", "%v2.y", "%v2.x"}[4-n:]
	t.f(".reg .v%d .b%d %%v1, %%v2;\n\tld.global.v%d.b%d %%v1, [%%rd3+%d];\n\t%s %%v2, %%v1;\n"+
		"\tst.global.v%d.b%d [%%rd4], {%s};",
		n, 8*size, n, 8*size, at, spelling, n, 8*size, strings.Join(last, ", "))
	t.p.OutStride = n * size
	return t.done()
}

// carries makes the probes of chains through the carry flag. The first instruction sets it, the second reads it;
// pairs of a subtraction and an addition show how a borrow is stored.
func carries() []*Probe {
	var ps []*Probe
	setters := []string{"add.cc", "addc.cc", "sub.cc", "subc.cc", "mad.lo.cc", "mad.hi.cc", "madc.lo.cc", "madc.hi.cc"}
	readers := []string{"addc", "subc", "madc.lo", "madc.hi", "addc.cc", "subc.cc"}
	for _, w := range []int{32, 64} {
		n := w / 8
		reg := registerPrefix(n)
		for _, set := range setters {
			for _, read := range readers {
				t := newText(fmt.Sprintf("%s → %s .u%d", set, read, w), "", "carry chains", Threads)
				if strings.HasPrefix(set, "sub") != strings.HasPrefix(read, "sub") {
					t.p.Family = "carry chains: borrow convention"
				}
				at := t.operand(fmt.Sprintf("u%d", w), n, 4)
				for i := range 4 {
					t.f("ld.global.b%d %s%d, [%%rd3+%d];", w, reg, 20+i, at+n*i)
				}
				args := func(op string, d, a, b, c int) string {
					if strings.HasPrefix(op, "mad") {
						return fmt.Sprintf("%s%d, %s%d, %s%d, %s%d", reg, d, reg, a, reg, b, reg, c)
					}
					return fmt.Sprintf("%s%d, %s%d, %s%d", reg, d, reg, a, reg, b)
				}
				if strings.Contains(set, "c.") && !strings.HasPrefix(set, "add.") && !strings.HasPrefix(set, "sub.") &&
					!strings.HasPrefix(set, "mad.") {
					t.f("add.cc.u%d %s30, %s22, %s23;", w, reg, reg, reg)
				}
				t.f("%s.u%d %s;", set, w, args(set, 40, 20, 21, 22))
				t.f("%s.u%d %s;", read, w, args(read, 41, 22, 23, 20))
				t.f("addc.u%d %s42, 0, 0;", w, reg)
				for i := range 3 {
					t.f("st.global.b%d [%%rd4+%d], %s%d;", w, n*i, reg, 40+i)
				}
				t.p.OutStride = 4 * n
				ps = append(ps, t.done())
			}
		}
	}
	return ps
}
