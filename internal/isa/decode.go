package isa

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"holdfast/ptx"
)

// An UnsupportedError names an instruction that the table does not hold.
type UnsupportedError struct {
	Pos  ptx.Pos
	Inst string // opcode with modifiers
	Why  string
	// Exists says that PTX has the instruction, but the table not its forms.
	Exists bool
	// Unknown says that PTX has no instruction of this name.
	Unknown bool
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%d:%d: %s: not supported: %s", e.Pos.Line, e.Pos.Col, e.Inst, e.Why)
}

// compound opcodes: the first modifiers belong to the name, because they
// select another operand list. Longer names come first.
var compound = map[string][]string{
	"cp": {"cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all", "cp.async.mbarrier.arrive",
		"cp.async.bulk.commit_group",
		"cp.async.bulk.wait_group", "cp.async.bulk.prefetch.tensor", "cp.async.bulk.prefetch", "cp.async.bulk.tensor",
		"cp.async.bulk",
		"cp.reduce.async.bulk.tensor", "cp.reduce.async.bulk", "cp.async"},
	"wmma":  {"wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d", "wmma.mma"},
	"wgmma": {"wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "wgmma.mma_async.sp", "wgmma.mma_async"},
	"mma":   {"mma.sp::ordered_metadata", "mma.sp"},
	"mbarrier": {"mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx",
		"mbarrier.arrive.expect_tx", "mbarrier.arrive.noComplete",
		"mbarrier.arrive", "mbarrier.arrive_drop.expect_tx", "mbarrier.arrive_drop.noComplete", "mbarrier.arrive_drop",
		"mbarrier.test_wait.parity",
		"mbarrier.test_wait", "mbarrier.try_wait.parity", "mbarrier.try_wait", "mbarrier.pending_count"},
	"multimem":     {"multimem.ld_reduce", "multimem.st", "multimem.red"},
	"tensormap":    {"tensormap.replace", "tensormap.cp_fenceproxy"},
	"cvt":          {"cvt.pack"},
	"shfl":         {"shfl.sync"},
	"vote":         {"vote.sync"},
	"bar":          {"bar.warp"},
	"barrier":      {"barrier.cluster"},
	"brx":          {"brx.idx"},
	"createpolicy": {"createpolicy.cvt"},
	"membar":       {"membar.proxy"},
	"fence":        {"fence.proxy", "fence.mbarrier_init"},
	"st":           {"st.async", "st.bulk"},
	"red":          {"red.async"},
}

// split gives the table's opcode and the modifiers that remain.
func split(in *ptx.Inst) (string, []string) {
	for _, name := range compound[in.Op] {
		rest := strings.Split(name, ".")[1:]
		if len(in.Mods) >= len(rest) && slices.Equal(in.Mods[:len(rest)], rest) {
			return name, in.Mods[len(rest):]
		}
	}
	return in.Op, in.Mods
}

var forms = sync.OnceValue(func() map[string][]*Form {
	m := make(map[string][]*Form)
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f, err := parseForm(line)
		if err != nil {
			panic("isa: table: " + line + ": " + err.Error()) // a defect of this package, caught by its tests
		}
		f.meaning = meaningOf(f.Op)
		m[f.Op] = append(m[f.Op], f)
	}
	return m
})

// Forms returns every form of the table, sorted by opcode.
func Forms() []*Form {
	m := forms()
	var all []*Form
	for _, fs := range m {
		all = append(all, fs...)
	}
	slices.SortStableFunc(all, func(a, b *Form) int { return strings.Compare(a.Op, b.Op) })
	return all
}

var classOf = map[string]Class{
	"arith": Arith, "compare": Compare, "convert": Convert, "move": Move, "load": Load, "store": Store,
	"atomic": Atomic, "prefetch": Prefetch, "fence": Fence, "barrier": Barrier, "collective": Collective,
	"control": Control, "special": Special, "async": Async, "tensor": Tensor, "texture": Texture, "surface": Surface,
}

// macros spells out the $ words of the table.
var macros = sync.OnceValue(func() *strings.Replacer {
	// Columns of wgmma: multiples of 8 up to 256; of 16 above 32 for integers.
	columns := func(k int, integer bool) string {
		var s []string
		for n := 8; n <= 256; n += 8 {
			if !integer || n <= 32 || n%16 == 0 {
				s = append(s, fmt.Sprintf("m64n%dk%d", n, k))
			}
		}
		return strings.Join(s, "|")
	}
	return strings.NewReplacer("$round", macroRound, "$int", macroInt, "$bits", macroBits, "$space", macroSpace,
		"$sem", macroSem,
		"$scope", macroScope, "$memt", macroMemT, "$cop", macroCop, "$evict1", macroEvict1, "$evict2", macroEvict2,
		"$fetch", macroFetch,
		"$cmpi", macroCmpI, "$cmpf", macroCmpF, "$cmps", macroCmpS, "$ashared", macroAShared, "$bool", macroBool,
		"$packed8", macroPacked8,
		"$shc", macroShCluster, "$sh", macroSh, "$w16", macroW16, "$dim", macroDim, "$geom", macroGeom,
		"$n16", columns(16, false), "$n8", columns(8, false), "$n32", columns(32, false), "$i32", columns(32, true),
		"$i256", columns(256, true),
		"$n64", columns(64, false), "$i64", columns(64, true))
})

func parseForm(line string) (*Form, error) {
	parts := strings.SplitN(line+" ", " | ", 4)
	if len(parts) != 4 {
		return nil, fmt.Errorf("want 4 columns, have %d", len(parts))
	}
	f := &Form{Op: strings.TrimSpace(parts[0]), Line: line}
	class, ok := classOf[strings.TrimSpace(parts[1])]
	if !ok {
		return nil, fmt.Errorf("class %q", parts[1])
	}
	f.Class = class
	for _, tok := range strings.Fields(strings.Trim(parts[2], "-")) {
		var s slot
		tok, s.optional = strings.CutSuffix(tok, "?")
		name, alts, named := strings.Cut(tok, "=")
		if !named {
			name, alts = "", tok
		}
		s.name = name
		s.alts = strings.Split(macros().Replace(alts), "|")
		f.slots = append(f.slots, s)
	}
	for _, tok := range strings.Fields(parts[3]) {
		var a ArgSpec
		tok, a.Optional = strings.CutSuffix(tok, "?")
		kind, typ, typed := strings.Cut(tok, ":")
		switch kind {
		case "d":
			a.Role = Dst
		case "a":
			a.Role = Src
		case "m":
			a.Role = Mem
		case "x":
			a.Role = InOut
		case "L":
			a.Role = Target
		case "T":
			a.Role = LitList
		default:
			return nil, fmt.Errorf("operand %q", tok)
		}
		if typed {
			switch typ {
			case "u":
				a.From = FromU
			case "v":
				a.From = FromV
			case "wide":
				a.From = TwiceT
			default:
				t, ok := typeOf[typ]
				if !ok {
					return nil, fmt.Errorf("type %q", typ)
				}
				a.From, a.Type = Fixed, t
			}
		}
		f.Args = append(f.Args, a)
		if !a.Optional {
			f.minArg++
		}
	}
	return f, nil
}

// Missing lists the instructions of PTX that the table does not hold, sorted.
func Missing() []string { return slices.Sorted(maps.Keys(opaque)) }

// Decode finds the form that in has, or says what about it is not known.
func Decode(in *ptx.Inst) (*Inst, error) {
	op, mods := split(in)
	fs := forms()[op]
	if len(fs) == 0 {
		why := "no such instruction"
		class, ok := opaque[op]
		if !ok {
			class, ok = opaque[in.Op]
		}
		if ok {
			why = map[Class]string{Tensor: "matrix instructions", Async: "asynchronous copies, mbarriers and clusters",
				Texture: "textures and surfaces", Arith: "video instructions of this kind"}[class]
		}
		return nil, &UnsupportedError{Pos: in.Pos, Inst: Text(in), Why: why, Exists: ok, Unknown: !ok}
	}
	why := ""
	for _, f := range fs {
		out := &Inst{Src: in, Form: f, Op: op, Class: f.Class, Vec: 1}
		w := f.match(out, mods)
		if w == "" {
			w = f.args(out, in)
		}
		if w == "" {
			return out, nil
		}
		if why == "" || len(fs) == 1 {
			why = w
		}
	}
	if len(fs) > 1 {
		why = fmt.Sprintf("none of the %d forms of %s has these modifiers and operands", len(fs), op)
	}
	return nil, &UnsupportedError{Pos: in.Pos, Inst: Text(in), Why: why}
}

// match fills the slots of f from mods; it returns what does not fit.
func (f *Form) match(out *Inst, mods []string) string {
	var filled uint64
	for _, m := range mods {
		hit := false
		for i := range f.slots {
			s := &f.slots[i]
			if filled&(1<<i) != 0 {
				continue
			}
			if slices.Contains(s.alts, m) {
				filled |= 1 << i
				out.set(s.name, m)
				hit = true
				break
			}
			if _, isType := typeOf[m]; isType && !s.optional && (s.name == "t" || s.name == "u" || s.name == "v") {
				break // types come in order
			}
		}
		if !hit {
			return "modifier ." + m
		}
	}
	for i := range f.slots {
		if filled&(1<<i) == 0 && !f.slots[i].optional {
			return "modifier ." + strings.Join(f.slots[i].alts, " or .") + " is missing"
		}
	}
	return ""
}

func (in *Inst) set(name, m string) {
	switch name {
	case "", "flag":
		in.Flags |= flagOf[m]
	case "t":
		in.T = typeOf[m]
	case "u":
		in.U = typeOf[m]
	case "v":
		in.V = typeOf[m]
	case "w":
		in.W = typeOf[m]
	case "shape":
		in.Shape = m
	case "num":
		in.Num = m
	case "la":
		in.LA = m
	case "lb":
		in.LB = m
	case "to":
		in.To = m
	case "rnd":
		in.Rnd = m
	case "cmp":
		in.Cmp = m
	case "bool":
		in.Bool = m
	case "fn":
		in.Fn = m
	case "mode":
		in.Mode = m
	case "mode2":
		in.Mode2 = m
	case "ss":
		in.Space = m
	case "vec":
		in.Vec = int(m[1] - '0')
	case "sem":
		in.Sem = m
	case "scope":
		in.Scope = m
	}
}

// typeOf is the type of an operand.
func (in *Inst) typeOf(spec *ArgSpec) ptx.Type {
	switch spec.From {
	case FromT:
		return in.T
	case FromU:
		return in.U
	case FromV:
		return in.V
	case TwiceT:
		return twice[in.T]
	}
	return spec.Type
}

// twice is the integer types that have one twice as wide.
var twice = map[ptx.Type]ptx.Type{ptx.U16: ptx.U32, ptx.S16: ptx.S32, ptx.U32: ptx.U64, ptx.S32: ptx.S64}

// args binds the operands; it returns what does not fit.
func (f *Form) args(out *Inst, in *ptx.Inst) string {
	if n := len(in.Args); n < f.minArg || n > len(f.Args) {
		return fmt.Sprintf("%d operands", n)
	}
	if len(in.Args) == 0 {
		return ""
	}
	out.Args = make([]Arg, len(in.Args))
	optional := len(in.Args) - f.minArg // how many optional ones are there
	k := 0
	for i := range f.Args {
		spec := &f.Args[i]
		if spec.Optional {
			if optional == 0 {
				continue
			}
			optional--
		}
		x := in.Args[k]
		_, isAddr := x.(*ptx.Addr)
		if isAddr != (spec.Role == Mem) {
			return fmt.Sprintf("operand %d", k+1)
		}
		out.Args[k] = Arg{Spec: spec, Type: out.typeOf(spec), X: x}
		k++
	}
	return ""
}
