package softgpu

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/ir"
	"holdfast/internal/ir/fromptx"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// operands writes operands for a spelling of a form.
func operandsOf(f *isa.Form, spelling string) string {
	types := f.TypesOf(spelling)
	vec := 1
	for _, m := range strings.Split(spelling, ".") {
		switch m {
		case "v2", "v4", "v8":
			vec = int(m[1] - '0')
		}
	}
	var out []string
	for i, a := range f.Args {
		if a.Optional {
			continue
		}
		t := types[i]
		switch {
		case a.Role == isa.Mem && strings.Contains(spelling, ".tensor.") &&
			(i == 1) == !strings.Contains(spelling, "bulk_group") && !strings.Contains(spelling, "prefetch") && i < 2:
			dim := 0
			for _, m := range strings.Split(spelling, ".") {
				if len(m) == 2 && m[1] == 'd' {
					dim = int(m[0] - '0')
				}
			}
			out = append(out, "[%rd9, {"+strings.Join([]string{"%r1", "%r2", "%r3", "%r4", "%r5"}[:dim], ", ")+"}]")
			continue
		case a.Role == isa.Mem && imageCoordinates(spelling) > 0:
			out = append(out,
				"[%rd9, {"+strings.Join([]string{"%r1", "%r2", "%r3", "%r4"}[:imageCoordinates(spelling)], ", ")+"}]")
			continue
		case strings.HasPrefix(spelling, "tex.grad") && i > 1:
			out = append(out, "{%r1, %r2, %r3, %r4}")
			continue
		case a.Role == isa.Mem:
			out = append(out, "[%rd9]")
			continue
		case a.Role == isa.Target:
			out = append(out, "L")
			continue
		case a.Role == isa.LitList:
			out = append(out, "TS")
			continue
		}
		name := "%r"
		switch n := isa.Bits(t); {
		case t == ptx.Pred:
			name = "%p"
		case n == 128:
			name = "%q"
		case n == 64:
			name = "%rd"
		case n <= 16:
			name = "%h"
		}
		if strings.HasPrefix(spelling, "lop3") && i == 4 {
			out = append(out, "0x96")
			continue
		}
		if strings.HasPrefix(spelling, "wgmma.mma") && a.Role == isa.Src && t == ptx.S32 {
			out = append(out, "1")
			continue
		}
		if t == ptx.U16 && strings.Contains(spelling, ".im2col") {
			rank := int(spelling[strings.Index(spelling, "d.")-1] - '0')
			out = append(out, "{"+strings.Join([]string{"%h1", "%h2", "%h3"}[:rank-2], ", ")+"}")
			continue
		}
		if strings.HasPrefix(spelling, "mma.sp") && i == 5 ||
			strings.HasPrefix(spelling, "wgmma.mma_async.sp") && i == 4 {
			out = append(out, "0")
			continue
		}
		if strings.HasPrefix(spelling, "tensormap.cp") && i == 2 {
			out = append(out, "128")
			continue
		}
		if strings.HasPrefix(spelling, "tensormap.replace") && i == 1 && len(f.Args) == 3 {
			out = append(out, "2")
			continue
		}
		if strings.HasPrefix(spelling, "tex.level") && i == 2 {
			out = append(out, "%r3")
			continue
		}
		if strings.HasPrefix(spelling, "cp.async") && a.Role == isa.Src {
			out = append(out, "16")
			continue
		}
		if strings.HasPrefix(spelling, "bar") && a.Role == isa.Src && t == ptx.U32 {
			out = append(out, fmt.Sprint(32*i))
			continue
		}
		n := fragmentRegs(spelling, i)
		if strings.HasPrefix(spelling, "wgmma.mma") && i == 1 && t == ptx.B32 {
			n = 4 // A in registers
		}
		if n > 0 {
			if n == 1 && t == ptx.B32 {
				name = "%r"
			}
			var el []string
			for k := range n {
				el = append(el, fmt.Sprintf("%s%d", name, (8*i+k)%90))
			}
			out = append(out, "{"+strings.Join(el, ", ")+"}")
			continue
		}
		text := fmt.Sprintf("%s%d", name, i)
		if vec > 1 && !strings.HasPrefix(spelling, "cvt") {
			var el []string
			for k := range vec {
				el = append(el, fmt.Sprintf("%s%d", name, 8*i+k))
			}
			text = "{" + strings.Join(el, ", ") + "}"
		}
		out = append(out, text)
	}
	if strings.HasPrefix(spelling, "lop3.and") || strings.HasPrefix(spelling, "lop3.or") {
		out[0] += "|%p5"
	}
	return strings.Join(out, ", ")
}

// imageCoordinates is the number of coordinates of a texture or surface instruction.
func imageCoordinates(spelling string) int {
	op, rest, _ := strings.Cut(spelling, ".")
	if op != "tex" && op != "tld4" && op != "suld" && op != "sust" && op != "sured" {
		return 0
	}
	n := map[string]int{"1d": 1, "2d": 2, "a1d": 2, "3d": 4, "a2d": 4, "cube": 4, "acube": 4}
	for _, m := range strings.Split(rest, ".") {
		if n[m] > 0 {
			return n[m]
		}
	}
	return 0
}

// fragmentRegs is the number of registers of operand i of a tensor instruction, as the
// tables of the PTX ISA give it (9.7.14); 0 = not a fragment.
func fragmentRegs(spelling string, i int) int {
	mods := strings.Split(spelling, ".")
	has := func(m string) bool { return slices.Contains(mods, m) }
	shape := func() string {
		for _, m := range mods {
			if strings.HasPrefix(m, "m") && strings.Contains(m, "n") && strings.Contains(m, "k") {
				return m
			}
		}
		return ""
	}
	last := mods[len(mods)-1]
	switch {
	case mods[0] == "ldmatrix" && i == 0 || mods[0] == "stmatrix" && i == 1:
		return map[bool]int{has("x1"): 1, has("x2"): 2, has("x4"): 4}[true]
	case mods[0] == "mma" && i > 3:
		return 0
	case mods[0] == "mma":
		types := slices.Index(mods, shape()) + 3
		if r := mods[types]; len(r) == 2 && r[0] == 'r' || r == "satfinite" {
			types++
		}
		operand := []int{types, types + 1, types + 2, types + 3}[i]
		typ := mods[operand]
		if shape() == "m8n8k4" && mods[types+1] == "f16" {
			return map[bool]int{i == 1 || i == 2: 2, typ == "f32" && (i == 0 || i == 3): 8,
				typ == "f16" && (i == 0 || i == 3): 4}[true]
		}
		var m, n, k int
		fmt.Sscanf(shape(), "m%dn%dk%d", &m, &n, &k)
		bits := map[string]int{"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
			"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[typ]
		elems := []int{m * n, m * k, k * n, m * n}[i]
		if i == 1 && strings.HasPrefix(mods[1], "sp") {
			elems /= 2
		}
		return max(1, elems*bits/32/max(32, bits))
	case mods[0] == "wgmma" && mods[1] == "mma_async" && i == 0:
		var n int
		fmt.Sscanf(shape(), "m64n%d", &n)
		if mods[slices.Index(mods, shape())+1] == "f16" {
			return n / 4
		}
		return n / 2
	case mods[0] == "wmma" && mods[1] == "mma":
		a := map[string]int{"m16n16k16": 2, "m8n32k16": 1, "m32n8k16": 4}[shape()]
		b := map[string]int{"m16n16k16": 2, "m8n32k16": 4, "m32n8k16": 1}[shape()]
		cd := 8
		switch {
		case has("bf16"):
			a, b = 2*a, 2*b
		case has("tf32"):
			a, b = 4, 4
		case has("f64"), has("s4"), has("u4"), has("b1"):
			a, b, cd = 1, 1, 2
		case has("s8"), has("u8"):
		default: // f16; D's type, then C's
			a, b = 8, 8
			if i == 0 && mods[len(mods)-2] == "f16" || i == 3 && last == "f16" {
				cd = 4
			}
		}
		return []int{cd, a, b, cd}[i]
	case mods[0] == "wmma":
		if mods[1] == "store" && i != 1 || mods[1] == "load" && i != 0 {
			return 0
		}
		s := shape()
		switch which := mods[2]; {
		case which == "c" || which == "d":
			if last == "f16" {
				return 4
			}
			if s == "m8n8k4" || s == "m8n8k32" || s == "m8n8k128" {
				return 2
			}
			return 8
		case last == "f16":
			return 8
		case last == "tf32":
			return 4
		case last == "f64" || last == "s4" || last == "u4" || last == "b1":
			return 1
		default:
			n := map[string]int{"a m16n16k16": 2, "b m16n16k16": 2, "a m8n32k16": 1, "b m8n32k16": 4, "a m32n8k16": 4,
				"b m32n8k16": 1}[which+" "+s]
			if last == "bf16" {
				n *= 2
			}
			return n
		}
	}
	return 0
}

// knownGaps are the instructions of the table of which some spellings are refused: formats and roundings of
// sm_100, parameters at computed addresses in functions, gradients of cube maps.
const knownGaps = `cvt ld st tex`

var update = flag.Bool("update", false, "write the list of refusals to docs/softgpu.md")

// Every spelling of the table is parsed, printed, analysed, and translated or refused by name: nothing
// falls through. What is refused, and why, stands in the documentation, so that a new gap is seen.
func TestTableCoverage(t *testing.T) {
	type refusal struct{ op, why string }
	refused := map[refusal][]string{}
	total, gaps := 0, 0
	for _, f := range isa.Forms() {
		if f.Op == "call" {
			continue // its operands have a syntax of their own; see control_test.go
		}
		for _, sp := range f.Spellings() {
			total++
			src := header + ".visible .entry k()\n{\n\t.reg .pred %p<9>;\n\t.reg .b16 %h<99>;\n\t.reg .b32 %r<99>;\n" +
				"\t.reg .b64 %rd<99>;\n\t.reg .b128 %q<99>;\n\tTS: .branchtargets L;\n\t" + sp + " " +
				operandsOf(f, sp) + ";\nL:\n\tret;\n}\n"
			m, err := ptx.Parse("c.ptx", []byte(src))
			if err != nil {
				t.Errorf("%s %s: does not parse: %v", sp, operandsOf(f, sp), err)
				continue
			}
			printed := ptx.Format(m)
			again, err := ptx.Parse("c.ptx", printed)
			if err != nil || !bytes.Equal(ptx.Format(again), printed) || !bytes.Contains(printed, []byte("\t"+sp)) {
				t.Errorf("%s: printed as %s: %v", sp, printed, err)
			}
			for _, fn := range fromptx.Module(m).Funcs {
				err := fn.Err
				if err == nil {
					err = ir.Analyse(fn, true)
				}
				if err != nil {
					t.Errorf("%s %s: not analysed: %v", sp, operandsOf(f, sp), err)
				}
			}
			mod, err := Load(m)
			if err != nil {
				t.Errorf("%s: %v", sp, err)
				continue
			}
			if why := mod.Kernels()[0].Unsupported; why != "" {
				if !slices.Contains(strings.Fields(knownGaps), f.Op) {
					t.Errorf("%s is refused and not listed as a gap: %s", sp, why)
				}
				_, reason, named := strings.Cut(why, sp+": ")
				if !named {
					t.Errorf("%s: refused without its name: %s", sp, why)
				}
				gaps++
				key := refusal{f.Op, reason}
				refused[key] = append(refused[key], sp)
			}
		}
	}
	t.Logf("%d spellings, %d executed, %d refused", total, total-gaps, gaps)
	lines := []string{"| instruction | for example | why |", "|---|---|---|"}
	for key, list := range refused {
		lines = append(lines, fmt.Sprintf("| `%s` | `%s` | %s |", key.op, list[0], key.why))
	}
	for _, op := range isa.Missing() {
		lines = append(lines, fmt.Sprintf("| `%s` | all | not in the table: needs a device of sm_100 or later |", op))
	}
	slices.Sort(lines[2:])
	checkRefusals(t, strings.Join(lines, "\n"))
}

// checkRefusals compares the list with the one in the documentation.
func checkRefusals(t *testing.T, list string) {
	const path, from, to = "../../docs/softgpu.md", "<!-- refusals -->\n", "\n<!-- end -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(doc), from)
	have, tail, ok2 := strings.Cut(rest, to)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the list", path)
	}
	if have == list {
		return
	}
	if !*update {
		t.Errorf("%s lists other refusals; -update writes these:\n%s", path, list)
		return
	}
	if err := os.WriteFile(path, []byte(head+from+list+to+tail), 0o666); err != nil {
		t.Fatal(err)
	}
}
