package probe

import (
	"fmt"
	"strings"

	"holdfast/internal/isa"
)

// An access is what the modifiers of a memory instruction say.
type access struct {
	space string // "" = generic
	vec   int
	typ   string
	bytes int // of one element
	hint  bool
}

func accessOf(spelling string) access {
	a := access{vec: 1}
	mods := strings.Split(spelling, ".")
	for _, m := range mods[1:] {
		switch m {
		case "global", "local", "const", "param", "param::entry", "param::func", "shared",
			"shared::cta", "shared::cluster":
			a.space = m
		case "v2", "v4", "v8":
			a.vec = int(m[1] - '0')
		case "L2::cache_hint":
			a.hint = true
		}
	}
	a.typ = mods[len(mods)-1]
	a.bytes = map[string]int{"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}[strings.TrimLeft(a.typ, "bfusx")]
	switch a.typ {
	case "f16x2", "bf16x2":
		a.bytes = 4
	case "bf16", "f16":
		a.bytes = 2
	}
	return a
}

// policy adds the operand of L2::cache_hint.
func (t *text) policy(a access) string {
	if !a.hint {
		return ""
	}
	t.f("createpolicy.fractional.L2::evict_last.b64 %%rd50, 1.0;")
	return ", %rd50"
}

// registersFor names n registers that hold elements, as an operand.
func registersFor(bytes, first, n int) string {
	prefix := map[int]string{1: "%r", 2: "%h", 4: "%r", 8: "%rd", 16: "%q"}[bytes]
	if bytes == 16 {
		first = 1
	}
	var el []string
	for i := range n {
		el = append(el, fmt.Sprintf("%s%d", prefix, first+i))
	}
	if n == 1 {
		return el[0]
	}
	return "{" + strings.Join(el, ", ") + "}"
}

const slotBytes = 32 // what a load or store moves at most

// place makes a slot of 32 bytes of a space hold what the thread reads and gives its address as an operand.
func (t *text) place(space string) string {
	at := t.operand("b64", 8, 4)
	copyTo := func(space, base string) {
		for i := range 4 {
			t.f("ld.global.b64 %%rd%d, [%%rd3+%d];\n\tst.%s.b64 [%s+%d], %%rd%d;", 60+i, at+8*i, space, base, 8*i, 60+i)
		}
	}
	switch space {
	case "global":
		return fmt.Sprintf("[%%rd3+%d]", at)
	case "":
		return fmt.Sprintf("[%%rd3+%d]", at)
	case "local":
		t.f(".local .align 32 .b8 l[64];\n\tmov.u64 %%rd51, l;")
		copyTo("local", "%rd51")
		return "[%rd51]"
	case "const":
		fmt.Fprintf(&t.vars, ".const .align 32 .b8 %s_c[256] = {%s};\n", t.p.Name,
			strings.Trim(strings.Repeat("131, 7, 250, 65, 129, 3, 17, 200, ", 32), ", "))
		t.f("mov.u64 %%rd51, %s_c;\n\tand.b32 %%r50, %%r2, 3;\n\tmul.wide.u32 %%rd52, %%r50, 32;\n"+
			"\tadd.u64 %%rd51, %%rd51, %%rd52;", t.p.Name)
		return "[%rd51]"
	case "param", "param::entry":
		t.p.Extra = 64
		return "[w+32]"
	case "shared", "shared::cta", "shared::cluster":
		t.f(".shared .align 32 .b8 s[%d];\n\tmov.u64 %%rd51, s;\n\tmul.wide.u32 %%rd52, %%r2, %d;\n"+
			"\tadd.u64 %%rd51, %%rd51, %%rd52;", BlockThreads*slotBytes, slotBytes)
		copyTo("shared", "%rd51")
		return "[%rd51]"
	}
	return ""
}

// put stores elements from registers to the thread's output.
func (t *text) put(bytes, first, n, at int) {
	for i := range n {
		switch bytes {
		case 16:
			t.f("mov.b128 {%%rd53, %%rd54}, %%q%d;\n\tst.global.b64 [%%rd4+%d], %%rd53;\n"+
				"\tst.global.b64 [%%rd4+%d], %%rd54;", 1+i, at+16*i, at+16*i+8)
		case 1:
			t.f("st.global.b32 [%%rd4+%d], %%r%d;", at+4*i, first+i) // with the extension to 32 bits
		default:
			t.f("st.global.b%d [%%rd4+%d], %s%d;", 8*bytes, at+bytes*i, registerPrefix(bytes), first+i)
		}
	}
}

func load(spelling string) []*Probe {
	a := accessOf(spelling)
	if a.space == "param::func" || strings.HasPrefix(spelling, "ldu") && a.space != "" && a.space != "global" {
		return nil // parameters of functions: see written
	}
	if a.vec == 8 && a.bytes != 4 {
		// PTX has 8 elements of 32 bits only; the driver's assembler (580.159) crashes on others or makes what it likes
		// of them.
		return nil
	}
	make1 := func(spelling, variant string, operand func(t *text) string) *Probe {
		t := newText(spelling, variant, "loads", Threads)
		t.p.Rounds = 1
		op := operand(t)
		hint := t.policy(a)
		t.f("%s %s, %s%s;", spelling, registersFor(a.bytes, 70, a.vec), op, hint)
		t.put(a.bytes, 70, a.vec, 0)
		t.p.OutStride = 64
		return t.done()
	}
	ps := []*Probe{make1(spelling, "", func(t *text) string { return t.place(a.space) })}
	if a.space == "" && !strings.Contains(spelling, ".nc") {
		for _, space := range []string{"shared", "local", "const"} {
			ps = append(ps, make1(spelling, "generic address of "+space, func(t *text) string {
				t.place(space)
				t.f("cvta.%s.u64 %%rd51, %%rd51;", space)
				return "[%rd51]"
			}))
		}
	}
	return ps
}

func store(spelling string) []*Probe {
	a := accessOf(spelling)
	if strings.HasPrefix(a.space, "param") {
		return nil // parameters of calls: see written
	}
	if a.vec == 8 && a.bytes != 4 {
		return nil // as in load
	}
	t := newText(spelling, "", "stores", Threads)
	t.p.Rounds = 1
	at := t.operand("b64", 8, 4)
	n := max(a.bytes, 1)
	for i := range a.vec {
		if n == 16 {
			t.f("ld.global.v2.b64 {%%rd53, %%rd54}, [%%rd3+%d];\n\tmov.b128 %%q%d, {%%rd53, %%rd54};", at+16*i, 1+i)
			continue
		}
		if n == 1 {
			t.f("ld.global.b32 %%r%d, [%%rd3+%d];", 70+i, at+4*i%32) // more bits than are stored
			continue
		}
		t.f("ld.global.b%d %s%d, [%%rd3+%d];", 8*n, registerPrefix(n), 70+i, at+n*i%32)
	}
	hint := t.policy(a)
	value := registersFor(a.bytes, 70, a.vec)
	switch {
	case a.space == "" || a.space == "global":
		t.f("%s [%%rd4], %s%s;", spelling, value, hint)
	default:
		t.place(strings.Replace(a.space, "shared::cluster", "shared", 1))
		t.f("%s [%%rd51], %s%s;", spelling, value, hint)
		space := a.space
		for i := range 4 {
			t.f("ld.%s.b64 %%rd60, [%%rd51+%d];\n\tst.global.b64 [%%rd4+%d], %%rd60;", space, 8*i, 8*i)
		}
	}
	t.p.OutStride = 64
	return []*Probe{t.done()}
}

// atomic makes the probes of atom and red: each thread on a place of its own, and, where the result does not depend
// on the order, many threads on one place.
func atomic(f *isa.Form, spelling string) []*Probe {
	a := accessOf(spelling)
	mods := strings.Split(spelling, ".")
	fn := ""
	for _, m := range mods[1:] {
		switch m {
		case "and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas":
			fn = m
		}
	}
	total := a.bytes * a.vec
	input := a.typ
	if f, ok := formats[strings.TrimSuffix(a.typ, "x2")]; !ok || f.m == 0 {
		input = fmt.Sprintf("b%d", min(64, 8*a.bytes))
	}
	operands := 1
	if fn == "cas" {
		operands = 2
	}
	inputs := func(t *text) (initial int, args string) {
		step := min(8, a.bytes)
		per := a.bytes / step
		initial = t.operand(input, step, per*a.vec)
		for k := range operands {
			at := t.operand(input, step, per*a.vec)
			for i := range a.vec {
				if a.bytes == 16 {
					t.f("ld.global.b64 %%rd53, [%%rd3+%d];\n\tld.global.b64 %%rd54, [%%rd3+%d];\n"+
						"\tmov.b128 %%q%d, {%%rd53, %%rd54};", at, at+8, 4+k)
				} else {
					t.f("ld.global.b%d %s%d, [%%rd3+%d];", 8*a.bytes, registerPrefix(a.bytes), 80+10*k+i, at+a.bytes*i)
				}
			}
			if fn == "cas" && k == 0 { // half of the comparisons succeed
				if a.bytes == 16 {
					t.f("@%%p1 ld.global.b64 %%rd53, [%%rd3+%d];\n\t@%%p1 ld.global.b64 %%rd54, [%%rd3+%d];\n"+
						"\t@%%p1 mov.b128 %%q4, {%%rd53, %%rd54};", initial, initial+8)
				} else {
					t.f("@%%p1 ld.global.b%d %s80, [%%rd3+%d];", 8*a.bytes, registerPrefix(a.bytes), initial)
				}
			}
			if a.bytes == 16 {
				args += fmt.Sprintf(", %%q%d", 4+k)
			} else {
				args += ", " + registersFor(a.bytes, 80+10*k, a.vec)
			}
		}
		return initial, args
	}
	t := newText(spelling, "", "atomics", Threads)
	initial, args := inputs(t)
	hint := t.policy(a)
	t.p.OutStride = max(16, 2*total)
	address, back := "%rd4", "global"
	if strings.HasPrefix(a.space, "shared") {
		t.f(".shared .align 32 .b8 s[%d];\n\tmov.u64 %%rd51, s;\n\tmul.wide.u32 %%rd52, %%r2, 16;\n"+
			"\tadd.u64 %%rd51, %%rd51, %%rd52;", 16*BlockThreads)
		address, back = "%rd51", "shared"
	}
	move := func(from, fromAddr, to, toAddr string) {
		for i := 0; i < total; {
			n := min(8, total-i)
			reg := fmt.Sprintf("%s69", registerPrefix(n))
			t.f("ld.%s.b%d %s, [%s+%d];\n\tst.%s.b%d [%s+%d], %s;", from, 8*n, reg, fromAddr,
				i, to, 8*n, toAddr, i, reg)
			i += n
		}
	}
	move("global", fmt.Sprintf("%%rd3+%d", initial), back, address)
	old := registersFor(a.bytes, 70, a.vec)
	if f.Op == "red" {
		t.f("%s [%s]%s%s;", spelling, address, args, hint)
	} else {
		t.f("%s %s, [%s]%s%s;", spelling, old, address, args, hint)
		t.put(a.bytes, 70, a.vec, total)
	}
	if back == "shared" {
		move("shared", address, "global", "%rd4")
	}
	ps := []*Probe{t.done()}

	integer := !strings.Contains(a.typ, "f")
	if !integer || fn == "exch" || fn == "cas" || f.Op == "atom" && !strings.Contains(fn, "add") {
		return ps
	}
	if fn == "inc" || fn == "dec" {
		return ps // the order matters
	}
	t = newText(spelling, "many threads on one place", "atomics", Threads)
	_, args = inputs(t)
	hint = t.policy(a)
	t.p.OutStride = 8
	t.p.OutShared = 64
	t.f("and.b32 %%r50, %%r2, 3;\n\tmul.wide.u32 %%rd52, %%r50, 8;")
	if strings.HasPrefix(a.space, "shared") {
		t.f(".shared .align 32 .b8 s[32];\n\tmov.u64 %%rd51, s;\n\tmov.u64 %%rd56, 0x0123456789abcdef;\n" +
			"\tadd.u64 %%rd51, %%rd51, %%rd52;\n\tst.shared.b64 [%%rd51], %%rd56;\n\tbar.sync 0;")
	} else {
		t.f("add.u64 %%rd51, %%rd2, %d;\n\tadd.u64 %%rd51, %%rd51, %%rd52;", t.p.OutStride*t.p.NumThreads())
	}
	if f.Op == "red" {
		t.f("%s [%%rd51]%s%s;", spelling, args, hint)
	} else {
		t.f("%s %s, [%%rd51]%s%s;", spelling, old, args, hint)
	}
	if strings.HasPrefix(a.space, "shared") {
		t.f("bar.sync 0;\n\tld.shared.b64 %%rd57, [%%rd51];\n\tst.global.b64 [%%rd4], %%rd57;")
	}
	return append(ps, t.done())
}

// ordered makes probes of memory instructions with the combinations of order and scope that Spellings, which
// adds one optional modifier at a time, does not make.
func ordered() []*Probe {
	var ps []*Probe
	for _, scope := range []string{"cta", "cluster", "gpu", "sys"} {
		for _, space := range []string{"", ".global", ".shared"} {
			for _, typ := range []string{"u8", "s16", "u32", "b64", "f64"} {
				for _, sem := range []string{"relaxed", "acquire"} {
					ps = append(ps, load("ld."+sem+"."+scope+space+"."+typ)...)
				}
				for _, sem := range []string{"relaxed", "release"} {
					ps = append(ps, store("st."+sem+"."+scope+space+"."+typ)...)
				}
			}
			for _, sem := range []string{"relaxed", "acquire", "release", "acq_rel"} {
				for _, op := range []string{"add.u32", "exch.b64", "cas.b32", "max.s64", "add.f32"} {
					ps = append(ps, atomic(&isa.Form{Op: "atom"}, "atom."+sem+"."+scope+space+"."+op)...)
				}
				if sem == "relaxed" || sem == "release" {
					ps = append(ps, atomic(&isa.Form{Op: "red"}, "red."+sem+"."+scope+space+".add.u32")...)
				}
			}
		}
	}
	ps = append(ps, load("ld.mmio.relaxed.sys.global.u32")...)
	ps = append(ps, store("st.mmio.relaxed.sys.global.u32")...)
	for _, sp := range []string{"ld.global.nc.v4.f32", "ld.global.L1::evict_last.v2.f64",
		"ld.global.nc.L1::no_allocate.L2::128B.v4.u32", "ld.volatile.shared.v4.u32", "ld.global.cg.v2.u64"} {
		ps = append(ps, load(sp)...)
	}
	return ps
}
