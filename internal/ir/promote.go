package ir

import (
	"fmt"
	"math"
	"slices"

	"holdfast/internal/interval"
)

// Promote makes registers of the bytes of local variables, and of parameters of calls that were inlined,
// that are read and written at places that are known. It works on functions before the first pass, and reports how
// many loads it has replaced. Stores stay where they are, in front of the move that does
// the same; accesses whose variable is known name it.
//
// The places come from a copy in SSA form: every value is an address of one such variable, at an offset
// within bounds, or surely none. What eight bytes of a variable may hold is found together with the places, for all
// stores at once, and from below: nothing is assumed of a value until something makes it. If
// in the end something may write the bytes at a place that is not known, everything starts again without
// them. Memory that was never written holds no address.
//
// What is lost may be anywhere, so its variable stays in memory: an address that is stored in other memory, given to an
// instruction or a function that is not looked into, computed with in ways not known here. And so do all variables of
// its space, since nobody knows how far such an address goes. A store between bounds that lie in the variable only
// keeps the bytes between them in memory.
//
// outer says that other functions know a variable; nil, that none do.
func Promote(f *Func, outer func(name string) bool) int {
	total := 0
	for range promotions {
		n := promote(f, outer)
		total += n
		if n == 0 {
			break
		}
	}
	return total
}

const (
	promotions = 2  // a load that became a move may show where other accesses go
	maxSweeps  = 64 // over the function, until places are found; and attempts
	maxParts   = 8  // slots that one element of an access may touch
	maxBlur    = 1 << 12
	maxHoles   = 1 << 8 // stores to a variable at places that are known within bounds only
	maxSteps   = 1 << 24
	anywhere   = math.MaxInt32
)

// A place is where an address points: at lo, or up to hi, in a variable.
type place struct {
	v       int32 // 1 + the variable; 0 = nothing is known yet; -1 = no address of a variable, or one that is lost
	generic bool  // a generic address, rather than one of the variable's space
	lo, hi  int64
}

var elsewhere = place{v: -1}

func (p place) exact() bool { return p.v > 0 && p.lo == p.hi }

// A cell is bytes of a variable that are read and written together.
type cell struct {
	v   int32 // as in place
	off int64
}

type promoter struct {
	f      *Func // before SSA form
	c      *Func // its copy in SSA form
	orig   map[*Inst]*Inst
	vars   []Var
	varOf  map[string]int32
	places []place
	grown  []uint8 // how often a place has changed
	cells  map[cell]place
	blur   []bool        // variables any of whose bytes may hold something that is no address
	lost   []bool        // variables
	dead   map[cell]bool // cells of which nothing is known
	change bool
	steps  int
	ranges map[rangeKey]interval.Bounds
	offs   [][]int64 // of the slots of each variable
}

func promote(f *Func, outer func(string) bool) int {
	p := &promoter{f: f, varOf: map[string]int32{}, dead: map[cell]bool{}, orig: map[*Inst]*Inst{}}
	for _, v := range f.Vars {
		if (v.Space == Local || v.Space == Param && !v.Param && !v.Result) && v.Size > 0 &&
			(outer == nil || !outer(v.Name)) {
			p.vars = append(p.vars, v)
			p.varOf[v.Name] = int32(len(p.vars))
		}
	}
	if len(p.vars) == 0 {
		return 0
	}
	p.lost = make([]bool, len(p.vars))
	p.c = Clone(f)
	for i, b := range f.Blocks {
		for k, in := range b.Insts {
			p.orig[p.c.Blocks[i].Insts[k]] = in
		}
	}
	for _, pass := range []func(*Func) error{order, dominators, ssa, loops, inductions} {
		if pass(p.c) != nil {
			return 0 // too large
		}
	}
	for range maxSweeps {
		if !p.solve() {
			return 0
		}
		slots, again := p.slots()
		if !again {
			return p.rewrite(slots)
		}
	}
	return 0
}

// solve finds the places of all values; false if it takes too long.
func (p *promoter) solve() bool {
	p.places = make([]place, len(p.c.Vals))
	p.grown = make([]uint8, len(p.c.Vals))
	p.cells = map[cell]place{}
	p.blur = make([]bool, len(p.vars))
	p.ranges = map[rangeKey]interval.Bounds{}
	for range maxSweeps {
		p.change = false
		for _, b := range p.c.Blocks {
			for _, in := range b.Insts {
				p.inst(b, in)
			}
		}
		if p.steps += len(p.c.Vals); p.steps > maxSteps {
			return false
		}
		if !p.change {
			return true
		}
	}
	return false
}

// lose gives the variables of addresses up.
func (p *promoter) lose(list ...place) place {
	for _, x := range list {
		if x.v > 0 && !p.lost[x.v-1] {
			p.lost[x.v-1] = true
			p.change = true
		}
	}
	return elsewhere
}

// join is a place that is one of two.
func (p *promoter) join(a, b place) place {
	switch {
	case a.v == 0:
		return b
	case b.v == 0:
		return a
	case a.v != b.v || a.generic != b.generic:
		return p.lose(a, b)
	}
	a.lo, a.hi = min(a.lo, b.lo), max(a.hi, b.hi)
	return a
}

// place is where an operand points.
func (p *promoter) place(x Operand) place {
	switch x.Kind {
	case Value:
		at := p.places[x.Val]
		if x.Part != "" || x.Mod != 0 {
			return p.lose(at)
		}
		return at
	case Symbol:
		if v := p.varOf[x.Name]; v != 0 {
			off := min(max(int64(x.Bits), -anywhere), anywhere)
			return place{v: v, lo: off, hi: off}
		}
	}
	return elsewhere
}

// set raises the place of a value.
func (p *promoter) set(v ValID, at place) {
	if v == None || at.v == 0 {
		return
	}
	if t := p.c.Vals[v].Type; t.Width != 64 || t.Kind == Float {
		at = p.lose(at)
	}
	at = p.join(p.places[v], at)
	if at == p.places[v] {
		return
	}
	p.change = true
	if p.grown[v]++; p.grown[v] > 4 && at.v > 0 {
		at.lo, at.hi = -anywhere, anywhere
		p.grown[v] = 4
	}
	p.places[v] = at
}

func (p *promoter) inst(b *Block, in *Inst) {
	var at place
	switch in.Op {
	case Phi:
		for _, x := range in.Args {
			at = p.join(at, p.place(x))
		}
	case Mov:
		at = p.place(in.Args[0])
	case ToGeneric, FromGeneric:
		at = p.place(in.Args[0])
		if at.v <= 0 {
			break
		}
		if at.generic != (in.Op == FromGeneric) || in.Space != p.vars[at.v-1].Space {
			at = p.lose(at)
		}
		at.generic = !at.generic && at.v > 0
	case Select:
		for _, x := range in.Args {
			at = p.join(at, p.place(x))
		}
	case Add, Sub:
		at = p.sum(b, in)
	case Compare, Prefetch:
		at = elsewhere
	default:
		p.access(in)
		return
	}
	for _, d := range in.Defs {
		p.set(d, at)
	}
	p.former(in)
}

// former adds what results are if the guard is false.
func (p *promoter) former(in *Inst) {
	for i, x := range in.Else {
		p.set(in.Defs[i], p.place(x))
	}
}

// sum is the place of a sum or a difference.
func (p *promoter) sum(b *Block, in *Inst) place {
	x, y := p.place(in.Args[0]), p.place(in.Args[1])
	other := in.Args[1]
	if in.Op == Add && x.v <= 0 {
		x, y, other = y, x, in.Args[0]
	}
	if x.v == 0 || y.v == 0 && x.v < 0 {
		return place{}
	}
	if x.v < 0 || y.v > 0 || !in.Type.Integer() || in.Type.Width != 64 {
		return p.lose(x, y)
	}
	r := p.rangeOf(b, other, 64)
	if in.Op == Sub {
		r = r.Times(-1)
	}
	x.lo, x.hi = shifted(x.lo, r.Lo), shifted(x.hi, r.Hi)
	return x
}

// shifted is a sum that does not leave what is known.
func shifted(a, b int64) int64 {
	if a <= -anywhere || b <= -anywhere {
		return -anywhere
	}
	if a >= anywhere || b >= anywhere {
		return anywhere
	}
	return min(max(a+b, -anywhere), anywhere)
}

// at is where an access goes; false if its instruction and its variable do not fit.
func (p *promoter) at(m *Access) (place, bool) {
	x := p.place(m.Base)
	if x.v <= 0 {
		return x, true
	}
	if m.Space != p.vars[x.v-1].Space && m.Space != Generic || (m.Space == Generic) != x.generic {
		return x, false
	}
	x.lo, x.hi = shifted(x.lo, m.Off), shifted(x.hi, m.Off)
	return x, true
}

// elements are the bytes of an element of a load or a store, and how many there are; 0 if that is not known.
func elements(in *Inst) (width, n int64) {
	n = int64(len(in.Args))
	if in.Op == Load {
		n = int64(len(in.Defs))
	}
	width = int64(in.Type.Width) / 8
	if len(in.Mem) != 1 || n == 0 || width*n != int64(in.Mem[0].Bytes) || width > 8 || in.Type.Width%8 != 0 {
		return 0, 0
	}
	return width, n
}

// access is an instruction that may touch memory, or that is not looked into.
func (p *promoter) access(in *Inst) {
	width, n := elements(in)
	for i := range in.Mem {
		if x, ok := p.at(&in.Mem[i]); !ok {
			p.lose(x)
		}
	}
	switch {
	case in.Op == Load && width > 0:
		p.loads(in, width, n)
	case in.Op == Store && width > 0:
		p.stores(in, width, n)
	default:
		for _, d := range in.Defs {
			p.set(d, elsewhere)
		}
		for _, a := range in.Args {
			p.lose(p.place(a))
		}
		for i := range in.Mem {
			m := &in.Mem[i]
			x, _ := p.at(m)
			if x.v <= 0 {
				continue
			}
			switch {
			case !m.Write:
			case in.Op == Call && wholly(m):
				p.blurred(x.v, 0, int64(p.vars[x.v-1].Size))
			case in.Op != Other || in.Effect != 0 || !wholly(m):
				p.lose(x)
			}
			if m.Read {
				p.read(x, 0, false)
			}
		}
	}
	p.former(in)
}

// wholly reports whether an access is to a variable by its name. Calls, and the beginning and the end
// of inlined ones, write their variables so.
func wholly(m *Access) bool { return m.Base.Kind == Symbol && m.Base.Bits == 0 && m.Off == 0 }

func (p *promoter) loads(in *Inst, width, n int64) {
	x, _ := p.at(&in.Mem[0])
	whole := x.exact() && width == 8
	for i, d := range in.Defs {
		switch {
		case x.v == 0: // not yet
		case whole:
			p.set(d, p.held(cell{x.v, x.lo + int64(i)*8}))
		default:
			p.set(d, elsewhere)
		}
	}
	if x.v > 0 {
		p.read(x, width*n, whole)
	}
}

func (p *promoter) stores(in *Inst, width, n int64) {
	x, _ := p.at(&in.Mem[0])
	if x.v == 0 {
		return // not yet
	}
	whole := x.exact() && width == 8
	for i, a := range in.Args {
		v := p.place(a)
		if !whole {
			p.lose(v)
			continue
		}
		c := cell{x.v, x.lo + int64(i)*8}
		if v.v > 0 && (p.lost[x.v-1] || p.dead[c]) {
			p.lose(v)
		}
		was := p.cells[c]
		now := p.join(was, v)
		if now != was {
			if was.v > 0 && now.v > 0 { // two addresses: anywhere between them
				now.lo, now.hi = -anywhere, anywhere
			}
			if now != was {
				p.cells[c] = now
				p.change = true
			}
		}
		p.blurred(x.v, c.off-7, c.off) // what overlaps
		p.blurred(x.v, c.off+1, c.off+8)
	}
	if !whole && x.v > 0 {
		p.blurred(x.v, x.lo-7, x.hi+width*n)
	}
}

// blurred says of the eight bytes at each offset from lo to below hi that they may hold something that is
// no address.
func (p *promoter) blurred(v int32, lo, hi int64) {
	lo, hi = max(lo, 0), min(hi, int64(p.vars[v-1].Size))
	if p.blur[v-1] || lo >= hi {
		return
	}
	if hi-lo > maxBlur {
		p.blur[v-1] = true
		p.change = true
		return
	}
	p.steps += int(hi - lo)
	for at := lo; at < hi; at++ {
		c := cell{v, at}
		if was := p.cells[c]; was.v >= 0 {
			p.cells[c] = p.lose(was)
			p.change = true
		}
	}
}

// held is what a cell holds.
func (p *promoter) held(c cell) place {
	if p.lost[c.v-1] || p.dead[c] || p.blur[c.v-1] {
		return elsewhere
	}
	return p.cells[c]
}

// read gives up the addresses that a read takes from memory, unless it reads whole cells: then
// only those of cells that overlap the ones read. n = 0: all of the variable.
func (p *promoter) read(x place, n int64, whole bool) {
	p.steps += len(p.cells) / 16
	for c, v := range p.cells {
		if c.v != x.v || v.v <= 0 {
			continue
		}
		if whole && c.off >= x.lo && (c.off-x.lo)%8 == 0 && !p.lost[c.v-1] && !p.dead[c] && !p.blur[c.v-1] {
			continue
		}
		if n == 0 || c.off < x.hi+n && x.lo < c.off+8 {
			p.lose(v)
		}
	}
}

// A slot is a register for bytes of a variable.
type slot struct {
	width int64
	reg   ValID
}

// slots finds the cells that become registers: those that loads and stores touch as wholes. It
// reports whether places must be found again, because cells died that an address was in.
func (p *promoter) slots() (map[cell]*slot, bool) {
	type span struct{ lo, hi, width int64 }
	spans := make([][]span, len(p.vars))
	killed := map[Space]bool{}
	holes := make([][]span, len(p.vars))
	for i, v := range p.vars {
		if p.lost[i] {
			killed[v.Space] = true
		}
	}
	for _, b := range p.c.Blocks {
		for _, in := range b.Insts {
			if in.Op != Load && in.Op != Store {
				continue
			}
			width, n := elements(in)
			x, _ := p.at(&in.Mem[0])
			if x.v <= 0 {
				continue
			}
			v := &p.vars[x.v-1]
			bytes := width * n
			if x.exact() && width > 0 && x.lo >= 0 && x.lo+bytes <= int64(v.Size) {
				spans[x.v-1] = append(spans[x.v-1], span{x.lo, x.lo + bytes, width})
				continue
			}
			if in.Op == Load {
				continue
			}
			if bytes == 0 || x.lo < 0 || x.hi+bytes > int64(v.Size) {
				killed[v.Space] = true
				continue
			}
			holes[x.v-1] = append(holes[x.v-1], span{x.lo, x.hi + bytes, 0})
			if len(holes[x.v-1]) > maxHoles {
				killed[v.Space] = true
			}
		}
	}
	slots := map[cell]*slot{}
	for i, list := range spans {
		if killed[p.vars[i].Space] {
			continue
		}
		slices.SortFunc(list, func(a, b span) int { return int(a.lo - b.lo) })
		for len(list) > 0 { // those that overlap
			n, hi, g := 1, list[0].hi, list[0].width
			for n < len(list) && list[n].lo < hi {
				hi, g = max(hi, list[n].hi), min(g, list[n].width)
				n++
			}
			lo := list[0].lo
			ok := true
			for _, s := range list[:n] {
				ok = ok && (s.lo-lo)%g == 0 && s.width%g == 0 && s.width/g <= maxParts
			}
			for _, h := range holes[i] {
				ok = ok && (h.hi <= lo || hi <= h.lo)
			}
			if ok {
				for at := lo; at < hi; at += g {
					slots[cell{int32(i + 1), at}] = &slot{width: g, reg: None}
				}
			}
			list = list[n:]
		}
	}
	again := false
	for c, v := range p.cells {
		if s := slots[c]; v.v > 0 && (s == nil || s.width != 8) && !p.dead[c] {
			p.dead[c] = true
			again = true
		}
	}
	return slots, again
}

// parts are the slots of an element; nil if it is not made of slots.
func (p *promoter) parts(slots map[cell]*slot, x place, off, width int64) []*slot {
	var list []*slot
	for at := off; at < off+width; {
		s := slots[cell{x.v, at}]
		if s == nil || at+s.width > off+width {
			return nil
		}
		if s.reg == None {
			s.reg = p.temp(s.width, fmt.Sprintf("%s.%d", p.vars[x.v-1].Name, at))
		}
		list = append(list, s)
		at += s.width
	}
	return list
}

func (p *promoter) temp(width int64, name string) ValID {
	p.f.Vals = append(p.f.Vals, Val{Name: name, Type: Type{Bits, uint16(8 * width)}})
	return ValID(len(p.f.Vals) - 1)
}

// rewrite replaces loads, and adds moves behind stores.
func (p *promoter) rewrite(slots map[cell]*slot) int {
	read := make([]bool, len(p.vars))
	for _, b := range p.c.Blocks {
		for _, in := range b.Insts {
			if in.Op == Load {
				if x, _ := p.at(&in.Mem[0]); x.exact() {
					read[x.v-1] = true
				}
			}
		}
	}
	p.offs = make([][]int64, len(p.vars))
	for c := range slots {
		if !read[c.v-1] { // all has been replaced, in the first round
			delete(slots, c)
			continue
		}
		p.offs[c.v-1] = append(p.offs[c.v-1], c.off)
	}
	for _, list := range p.offs {
		slices.Sort(list)
	}
	count := 0
	type edit struct {
		in   []*Inst
		drop bool
	}
	edits := map[*Inst]edit{}
	for _, b := range p.c.Blocks {
		for _, in := range b.Insts {
			o := p.orig[in]
			if o == nil {
				continue
			}
			switch in.Op {
			case Load:
				if list := p.load(slots, in, o); list != nil {
					edits[o] = edit{list, true}
					count++
				}
			case Store:
				if list := p.store(slots, in, o); list != nil {
					edits[o] = edit{list, false}
				}
			default:
				if list := p.wholes(slots, in, o); list != nil {
					edits[o] = edit{list, false}
				}
			}
		}
	}
	if p.steps > maxSteps {
		return 0
	}
	for _, b := range p.c.Blocks {
		for _, in := range b.Insts {
			if o := p.orig[in]; o != nil && (in.Op == Load || in.Op == Store) {
				p.name(in, o)
			}
		}
	}
	for _, b := range p.f.Blocks {
		var list []*Inst
		for _, o := range b.Insts {
			e := edits[o]
			if !e.drop {
				list = append(list, o)
			}
			list = append(list, e.in...)
		}
		b.Insts = list
	}
	return count
}

// name writes the variable of an access, where it is known, into the instruction.
func (p *promoter) name(in, o *Inst) {
	x, ok := p.at(&in.Mem[0])
	if x.v <= 0 || !ok {
		return
	}
	m := &o.Mem[0]
	m.Space = p.vars[x.v-1].Space
	if x.exact() {
		m.Base = Operand{Kind: Symbol, Name: p.vars[x.v-1].Name}
		m.Off = x.lo
	}
}

// load is a load as moves from registers; nil if not all of it is in them.
func (p *promoter) load(slots map[cell]*slot, in, o *Inst) []*Inst {
	x, ok := p.at(&in.Mem[0])
	width, n := elements(in)
	if x.v <= 0 || !ok || !x.exact() || n == 0 {
		return nil
	}
	var list []*Inst
	for i, d := range o.Defs {
		if d == None {
			continue
		}
		parts := p.parts(slots, x, x.lo+int64(i)*width, width)
		have := p.f.Vals[d].Type
		if parts == nil || have.Kind == Pred || int64(have.Width) < 8*width || int64(have.Width) > 8*width &&
			!in.Type.Integer() {
			return nil
		}
		from := parts[0].reg
		if len(parts) > 1 {
			pack := &Inst{Op: Pack, Type: Type{Bits, uint16(8 * width)}, Defs: []ValID{p.temp(width, "packed")}}
			for _, s := range parts {
				if s.width != parts[0].width {
					return nil
				}
				pack.Args = append(pack.Args, Of(s.reg))
			}
			list = append(list, pack)
			from = pack.Defs[0]
		}
		m := &Inst{Op: Mov, Type: in.Type, Defs: []ValID{d}, Args: []Operand{Of(from)}}
		if int64(have.Width) > 8*width {
			m.Op, m.Type, m.Type2 = Convert, Type{in.Type.Kind, have.Width}, in.Type
		}
		list = append(list, m)
	}
	return alike(list, o)
}

// store is what a store does to registers.
func (p *promoter) store(slots map[cell]*slot, in, o *Inst) []*Inst {
	x, ok := p.at(&in.Mem[0])
	width, n := elements(in)
	if x.v <= 0 || !ok || !x.exact() || n == 0 {
		return nil
	}
	var list []*Inst
	for i, a := range o.Args {
		off := x.lo + int64(i)*width
		parts := p.parts(slots, x, off, width)
		if parts == nil {
			// Registers for some of it only: what they hold is not known any more.
			list = append(list, p.unknown(slots, x.v, off, width)...)
			continue
		}
		from := a
		have := uint16(8 * width)
		if a.Kind == Value {
			have = p.f.Vals[a.Val].Type.Width
		}
		if a.Part != "" || a.Mod != 0 || int64(have) < 8*width || a.Kind == Value && p.f.Vals[a.Val].Type.Kind == Pred {
			list = append(list, p.unknown(slots, x.v, off, width)...)
			continue
		}
		to := parts[0].reg
		if len(parts) > 1 {
			to = p.temp(width, "stored")
		}
		t := Type{Bits, uint16(8 * width)}
		m := &Inst{Op: Mov, Type: t, Defs: []ValID{to}, Args: []Operand{from}}
		if int64(have) > 8*width {
			m.Op, m.Type2 = Convert, Type{Bits, have}
		}
		list = append(list, m)
		if len(parts) > 1 {
			u := &Inst{Op: Unpack, Type: t, Args: []Operand{Of(to)}}
			for _, s := range parts {
				u.Defs = append(u.Defs, s.reg)
			}
			list = append(list, u)
		}
	}
	return alike(list, o)
}

// unknown writes the registers of bytes whose new value is not known.
func (p *promoter) unknown(slots map[cell]*slot, v int32, off, n int64) []*Inst {
	in := &Inst{Op: Other, Name: "unknown"}
	list := p.offs[v-1]
	k, _ := slices.BinarySearch(list, off-maxParts)
	for ; k < len(list) && list[k] < off+n; k++ {
		s := slots[cell{v, list[k]}]
		p.steps++
		if list[k]+s.width <= off {
			continue
		}
		if s.reg == None {
			s.reg = p.temp(s.width, fmt.Sprintf("%s.%d", p.vars[v-1].Name, list[k]))
		}
		in.Defs = append(in.Defs, s.reg)
	}
	if len(in.Defs) == 0 || p.steps > maxSteps {
		return nil
	}
	return []*Inst{in}
}

// wholes is what a call, and the beginning and end of inlined code, does to registers.
func (p *promoter) wholes(slots map[cell]*slot, in, o *Inst) []*Inst {
	var list []*Inst
	for i := range in.Mem {
		if x, _ := p.at(&in.Mem[i]); x.v > 0 && in.Mem[i].Write {
			list = append(list, p.unknown(slots, x.v, 0, int64(p.vars[x.v-1].Size))...)
		}
	}
	return alike(list, o)
}

// alike gives instructions the guard and the position of another one.
func alike(list []*Inst, o *Inst) []*Inst {
	for _, in := range list {
		in.Guard, in.Pos = o.Guard, o.Pos
	}
	return list
}
