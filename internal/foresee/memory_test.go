package foresee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
)

// tablePTX writes where tables of indices say: anywhere, and below m.
const tablePTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry scatter(.param .u64 p_tab, .param .u64 p_out, .param .u64 p_n)
{
 .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>;
 ld.param.u64 %d0, [p_tab]; ld.param.u64 %d1, [p_out]; ld.param.u32 %r0, [p_n];
 mov.u32 %r4, %tid.x; setp.ge.s32 %p0, %r4, %r0; @%p0 bra DONE;
 mul.wide.s32 %d2, %r4, 4; add.s64 %d3, %d0, %d2; ld.global.s32 %r5, [%d3];
 mul.wide.s32 %d4, %r5, 4; add.s64 %d5, %d1, %d4; st.global.u32 [%d5], %r4;
DONE: ret;
}
.visible .entry guarded(.param .u64 p_tab, .param .u64 p_out, .param .u64 p_n, .param .u64 p_m)
{
 .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %d<8>;
 ld.param.u64 %d0, [p_tab]; ld.param.u64 %d1, [p_out]; ld.param.u32 %r0, [p_n]; ld.param.u32 %r1, [p_m];
 mov.u32 %r4, %tid.x; setp.ge.s32 %p0, %r4, %r0; @%p0 bra DONE;
 mul.wide.s32 %d2, %r4, 4; add.s64 %d3, %d0, %d2; ld.global.s32 %r5, [%d3];
 setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
 mul.wide.s32 %d4, %r5, 4; add.s64 %d5, %d1, %d4; st.global.u32 [%d5], %r4;
DONE: ret;
}
.visible .entry gather(.param .u64 p_tab, .param .u64 p_in, .param .u64 p_n, .param .u64 p_m, .param .u64 p_out)
{
 .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %d<10>;
 ld.param.u64 %d0, [p_tab]; ld.param.u64 %d1, [p_in]; ld.param.u32 %r0, [p_n]; ld.param.u32 %r1, [p_m]; ld.param.u64 %d6, [p_out];
 mov.u32 %r4, %tid.x; setp.ge.s32 %p0, %r4, %r0; @%p0 bra DONE;
 mul.wide.s32 %d2, %r4, 4; add.s64 %d3, %d0, %d2; ld.global.s32 %r5, [%d3];
 setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
 mul.wide.s32 %d4, %r5, 4; add.s64 %d5, %d1, %d4; ld.global.u32 %r6, [%d5]; add.s64 %d7, %d6, %d2; st.global.u32 [%d7], %r6;
DONE: ret;
}
.visible .entry chase(.param .u64 p_cell)
{
 .reg .b64 %d<3>;
 ld.param.u64 %d0, [p_cell]; ld.global.u64 %d1, [%d0]; st.global.u64 [%d1], %d0; ret;
}
`

const (
	kScatter = iota + 1
	kGuarded
	kChase
	kLibrary
	kGather
)

func tables(list ...trace.Record) *Program {
	p := New()
	p.Text(textDigest, []byte(tablePTX))
	three := []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8}}
	for _, r := range append([]trace.Record{
		&trace.Image{ID: 7, Kind: trace.CodePTX, Texts: []trace.TextRef{{Arch: 70, Digest: textDigest}}},
		&trace.Kernel{ID: kScatter, Module: 7, Name: "scatter", Params: three},
		&trace.Kernel{ID: kGuarded, Module: 7, Name: "guarded",
			Params: append(slices.Clone(three), trace.Param{Offset: 24, Size: 8})},
		&trace.Kernel{ID: kChase, Module: 7, Name: "chase", Params: three[:1]},
		&trace.Kernel{ID: kGather, Module: 7, Name: "gather",
			Params: append(slices.Clone(three), trace.Param{Offset: 24, Size: 8}, trace.Param{Offset: 32, Size: 8})},
		&trace.Kernel{ID: kLibrary, Module: 9, Name: "library", Params: three},
	}, list...) {
		p.Apply(r)
	}
	return p
}

// held is a table at 0x100000, which says 3, 5, 4, 3, a large allocation at 0x200000, and another one.
func held() *Program {
	p := tables(&trace.Alloc{Addr: 0x100000, Bytes: 0x1000, Block: 1},
		&trace.Alloc{Addr: 0x200000, Bytes: 0x100000, Block: 2},
		&trace.Alloc{Addr: 0x400000, Bytes: 0x1000, Block: 3, Offset: 0x2000})
	p.Remember(func(sp Span, b []byte) error {
		if sp.Block == 2 {
			return errors.New("not to be read")
		}
		all := make([]byte, 0x3000)
		for i, x := range []uint32{3, 5, 4, 3} {
			binary.LittleEndian.PutUint32(all[4*i:], x)
		}
		copy(b, all[sp.Off:])
		return nil
	}, true)
	return p
}

func (p *Program) one(l *trace.Launch, e *Effect) { p.Work("launch", []Piece{{Launch: l}}, "", nil, e) }

// TestMemory: when what a table holds bounds a launch, and when it does not any more.
func TestMemory(t *testing.T) {
	scatter := launch(kScatter, 0x100000, 0x200000, 4)
	narrow := []footprint.Range{{Lo: 0x20000c, Hi: 0x200018}}
	wide := []footprint.Range{{Lo: 0x100000, Hi: 0x101000}, {Lo: 0x200000, Hi: 0x300000}}
	set := func(at, n uint64) Piece { return Piece{Copy: &trace.Copy{Dst: at, Width: n, Flags: trace.Set}} }
	var e Effect
	for name, x := range map[string]struct {
		before func(p *Program)
		known  bool
	}{
		"nothing":               {func(*Program) {}, true},
		"a write beside":        {func(p *Program) { p.Work("memset", []Piece{set(0x100010, 8)}, "", nil, &e) }, true},
		"a write of what it is": {func(p *Program) { p.Work("memset", []Piece{set(0x10000c, 8)}, "", nil, &e) }, false},
		"a write by a launch":   {func(p *Program) { p.one(launch(kScatter, 0x100000, 0x100000, 4), &e) }, false},
		"a copy of it": {func(p *Program) {
			p.Work("copy", []Piece{{Copy: &trace.Copy{Src: 0x100000, Dst: 0x400000, Width: 64}}}, "", nil, &e)
		}, true},
		"a guess":            {func(p *Program) { p.one(launch(kLibrary, 0x400000, 0, 0), &e) }, false},
		"a kernel not known": {func(p *Program) { p.one(launch(99), &e) }, false},
		"a call":             {func(p *Program) { p.Work("call", nil, "it may do anything", nil, &e) }, false},
		"it is freed":        {func(p *Program) { p.Apply(&trace.Free{Addr: 0x100000}) }, false},
		"it is freed and back": {func(p *Program) {
			p.Apply(&trace.Free{Addr: 0x100000})
			p.Apply(&trace.Alloc{Addr: 0x100000, Bytes: 0x1000, Block: 1})
		}, false},
		"another one is freed": {func(p *Program) { p.Apply(&trace.Free{Addr: 0x400000, Bytes: 0x1000}) }, true},
		"other memory there": {func(p *Program) {
			p.Apply(&trace.Alloc{Addr: 0x100000, Bytes: 0x1000, Block: 9})
		}, false},
		"its memory elsewhere": {func(p *Program) {
			p.Apply(&trace.Alloc{Addr: 0x500000, Bytes: 0x1000, Block: 1, Kind: trace.MemMapped})
		}, false},
		"memory that is alien": {func(p *Program) {
			p.Apply(&trace.Alloc{Addr: 0x500000, Bytes: 0x1000, Kind: trace.MemMapped})
		}, false},
		"memory of the host": {func(p *Program) {
			p.Apply(&trace.Alloc{Addr: 0x500000, Bytes: 0x1000, Kind: trace.MemHost})
		}, true},
		"nobody asks any more":  {func(p *Program) { p.Forget() }, false},
		"a launch that uses it": {func(p *Program) { p.one(scatter, &e) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := held()
			x.before(p)
			p.one(scatter, &e)
			if e.Proven != x.known || x.known && (!slices.Equal(e.Writes, narrow) || len(e.Owed.Writes) != 0) {
				t.Errorf("%+v", e)
			}
			if !x.known && name[:5] != "it is" && !slices.Equal(e.Writes, wide) && name != "other memory there" {
				t.Errorf("%+v", e)
			}
		})
	}

	t.Run("changed later", func(t *testing.T) {
		p := held()
		p.one(scatter, &e)
		p.Work("memset", []Piece{set(0x400000, 64)}, "", nil, &e)
		if !e.Proven || len(e.Owed.Writes) != 0 {
			t.Errorf("elsewhere: %+v", e)
		}
		// Twice: the second one must not go before the first one may.
		for range 2 {
			p.Work("memset", []Piece{set(0x100008, 4)}, "", nil, &e)
			if want := []Span{{1, 0, 0x1000}, {2, 0, 0x100000}}; e.Proven || !slices.Equal(e.Owed.Writes, want) {
				t.Errorf("%+v", e)
			}
		}
		if p.Used() != 1 {
			t.Errorf("used %d times", p.Used())
		}
	})
	t.Run("changed by a guess", func(t *testing.T) {
		p := held()
		p.one(scatter, &e)
		if p.one(launch(kLibrary, 0x400000, 0, 0), &e); len(e.Owed.Writes) != 2 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("owed without bounds", func(t *testing.T) {
		p := held()
		p.one(scatter, &e)
		p.Work("memset", []Piece{set(0x100008, 4)}, "", nil, &e)
		// The first launch may go anywhere, to this table too.
		if p.one(launch(kScatter, 0x400000, 0x200000, 4), &e); e.Proven {
			t.Errorf("%+v", e)
		}
	})
	t.Run("it makes another one change its own", func(t *testing.T) {
		for m, known := range map[uint64]bool{0x400: false, 0: true} {
			p := held()
			p.one(launch(kGuarded, 0x100000, 0x400000, 4, max(m, 8)), &e)
			if want := []footprint.Range{{Lo: 0x40000c, Hi: 0x400018}}; !slices.Equal(e.Writes, want) {
				t.Errorf("%+v", e)
			}
			p.one(launch(kGuarded, 0x400000+0x800, 0x100000, 4, 0x400), &e)
			if len(e.Owed.Writes) == 0 || known != (e.Writes[0].Hi-e.Writes[0].Lo < 0x100) {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("by another name", func(t *testing.T) {
		for at, known := range map[uint64]bool{0x200000: false, 0x200100: true} {
			p := tables(&trace.Alloc{Addr: 0x100000, Bytes: 0x1000, Block: 1},
				&trace.Alloc{Addr: 0x200000, Bytes: 0x1000, Block: 1, Kind: trace.MemMapped})
			p.Remember(func(_ Span, b []byte) error { clear(b); return nil }, true)
			if p.one(launch(kScatter, 0x100000, at, 4), &e); e.Proven != known {
				t.Errorf("%#x: %+v", at, e)
			}
		}
	})
	t.Run("within one graph", func(t *testing.T) {
		p := held()
		p.Work("graph", []Piece{{Launch: scatter}, set(0x100010, 4)}, "", nil, &e)
		if !e.Proven {
			t.Errorf("beside: %+v", e)
		}
		p = held()
		p.Work("graph", []Piece{{Launch: scatter}, set(0x100000, 4)}, "", nil, &e)
		if e.Proven {
			t.Errorf("%+v", e)
		}
	})
	t.Run("machine code", func(t *testing.T) {
		p := held()
		p.kernels[kGuarded].exact = false
		p.one(launch(kGuarded, 0x400000, 0x400000, 4, 4), &e)
		if p.one(scatter, &e); e.Proven {
			t.Errorf("%+v", e)
		}
		p = held()
		p.memory.proofs = false
		p.kernels[kGuarded].exact = false
		p.one(launch(kGuarded, 0x400000, 0x400000, 4, 4), &e)
		if p.one(scatter, &e); e.Proven || !e.Bounded || !slices.Equal(e.Writes, narrow) {
			t.Errorf("without proofs: %+v", e)
		}
	})
	t.Run("settled", func(t *testing.T) {
		p := held()
		p.Work("launch", []Piece{{Launch: launch(kGuarded, 0x100000, 0x200000, 4, 100)}}, "", func(*Effect) bool {
			return true
		}, &e)
		if want := []footprint.Range{{Lo: 0x200000, Hi: 0x200000 + 400}}; !slices.Equal(e.Writes, want) {
			t.Errorf("%+v", e)
		}
		p.Work("launch", []Piece{{Launch: launch(kGuarded, 0x100000, 0x200000, 4, 100)}}, "", func(*Effect) bool {
			return false
		}, &e)
		if !slices.Equal(e.Writes, narrow) {
			t.Errorf("%+v", e)
		}
	})
	t.Run("limits", func(t *testing.T) {
		p := held()
		for i := range uint64(3 * maxSpans) {
			p.Work("memset", []Piece{set(0x200000+8*i, 4)}, "", nil, &e)
		}
		if p.one(scatter, &e); e.Proven || len(p.memory.written) > 0 {
			t.Errorf("%+v", e)
		}
		p = tables(&trace.Alloc{Addr: 0x10000000, Bytes: 1 << 30, Block: 1},
			&trace.Alloc{Addr: 0x80000000, Bytes: 0x1000, Block: 2})
		n := 0
		p.Remember(func(sp Span, b []byte) error { n += len(b); clear(b); return nil }, true)
		for i := range uint64(20000) {
			p.one(launch(kScatter, 0x10000000+i*2*pageBytes, 0x80000000, 4), &e)
		}
		if n > allBytes || len(p.memory.tables) > maxTables || p.Used() == 0 || p.Used() == 20000 {
			t.Errorf("%d bytes, %d tables, used %d times", n, len(p.memory.tables), p.Used())
		}
	})
}

func TestSpanSet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		var s spanSet
		var has [3][64]bool
		for range r.IntN(20) {
			sp := Span{r.Uint64N(3), r.Uint64N(60), 0}
			sp.Len = r.Uint64N(min(8, 64-sp.Off))
			s.add([]Span{sp})
			for i := range sp.Len {
				has[sp.Block][sp.Off+i] = true
			}
		}
		sp := Span{r.Uint64N(3), r.Uint64N(60), 0}
		sp.Len = r.Uint64N(64 - sp.Off)
		var want, got []uint64
		for i := range sp.Len {
			if !has[sp.Block][sp.Off+i] {
				want = append(want, sp.Off+i)
			}
		}
		for x := range s.without(sp) {
			for i := range x.Len {
				got = append(got, x.Off+i)
			}
		}
		if !slices.Equal(got, want) || s.meets([]Span{sp}) != (uint64(len(want)) < sp.Len) {
			t.Fatalf("%v without %v: %v, want %v", sp, s, got, want)
		}
		for i := 1; i < len(s); i++ {
			if s[i].Block == s[i-1].Block && s[i].Off <= s[i-1].Off+s[i-1].Len {
				t.Fatalf("%v", s)
			}
		}
	}
}

// A world is a program with its memory, whose work runs in an order of its own, a word at a time, some of it long after
// it went.
type world struct {
	r      *rand.Rand
	p      *Program
	mem    map[uint64][]byte // of blocks
	kept   spanSet
	all    bool
	going  []*going
	proofs bool
	seen   []string
}

type going struct {
	l     *trace.Launch
	c     *trace.Copy
	data  []byte
	step  int
	bound bool // what it touches must have been waited for
}

func (w *world) at(addr uint64) (block, off uint64, ok bool) {
	a := w.p.state.At(addr)
	if a == nil || a.Block == 0 {
		return 0, 0, false
	}
	return a.Block, a.Offset + addr - a.Addr, true
}

func (w *world) touch(t *testing.T, g *going, addr uint64, n int, write []byte) []byte {
	block, off, ok := w.at(addr)
	if !ok || int(off)+n > len(w.mem[block]) {
		return make([]byte, n)
	}
	b := w.mem[block][off:][:n]
	if (write != nil || w.proofs) && g.bound && !w.all {
		for range w.kept.without(Span{block, off, uint64(n)}) {
			t.Fatalf("%+v touches %#x (block %d, %#x), which nobody waited for\n%v", g.l, addr, block, off, w.seen)
		}
	}
	copy(b, write)
	return b
}

// run does a step of something; false at its end.
func (w *world) run(t *testing.T, g *going) bool {
	i := uint64(g.step)
	g.step++
	if g.c != nil {
		if i*4 >= g.c.Width {
			return false
		}
		w.touch(t, g, g.c.Dst+4*i, 4, g.data[4*i:][:4])
		return true
	}
	param := func(k int) uint64 { return binary.LittleEndian.Uint64(g.l.Params[8*k:]) }
	if g.l.Kernel == kChase {
		to := binary.LittleEndian.Uint64(w.touch(t, g, param(0), 8, nil))
		w.touch(t, g, to, 8, binary.LittleEndian.AppendUint64(nil, param(0)))
		return false
	}
	if i >= param(2) {
		return false
	}
	if g.l.Kernel == kGather {
		x := binary.LittleEndian.Uint32(w.touch(t, g, param(0)+4*i, 4, nil))
		if uint64(x) < param(3) {
			w.touch(t, g, param(4)+4*i, 4, slices.Clone(w.touch(t, g, param(1)+4*uint64(x), 4, nil)))
		}
		return true
	}
	x := binary.LittleEndian.Uint32(w.touch(t, g, param(0)+4*i, 4, nil))
	if g.l.Kernel == kScatter || uint64(x) < param(3) {
		w.touch(t, g, param(1)+4*uint64(int64(int32(x))), 4, binary.LittleEndian.AppendUint32(nil, uint32(i)))
	}
	return true
}

// TestMemoryRandom runs programs whose work overtakes other work. With proofs, all that is touched must have been
// waited for by somebody who went before; without, what is written by work whose effect is bounded whatever memory
// holds.
func TestMemoryRandom(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	used, owed := 0, 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 9))
		w := &world{r: r, p: tables(), mem: map[uint64][]byte{}, proofs: seed%3 > 0}
		guesses := seed%3 == 1
		const each = 0x3000
		base := func() uint64 { return 0x100000 * (1 + r.Uint64N(4)) }
		for b := range uint64(4) {
			w.mem[b+1] = make([]byte, each)
			w.p.Apply(&trace.Alloc{Addr: 0x100000 * (b + 1), Bytes: each, Block: b + 1})
			for i := 0; i < each; i += 4 {
				binary.LittleEndian.PutUint32(w.mem[b+1][i:], r.Uint32N(each/4))
			}
			binary.LittleEndian.PutUint64(w.mem[b+1], base()+8*r.Uint64N(each/8))
		}
		then := map[uint64][]byte{}
		for b, m := range w.mem {
			then[b] = slices.Clone(m)
		}
		w.p.Remember(func(sp Span, b []byte) error {
			from := w.mem // as it is now, which must be what it was
			if r.IntN(2) == 0 {
				from = then
			}
			if from[sp.Block] == nil || !slices.Equal(from[sp.Block][sp.Off:][:sp.Len],
				then[sp.Block][sp.Off:][:sp.Len]) {
				t.Fatalf("%x is not what it was", sp)
			}
			copy(b, from[sp.Block][sp.Off:])
			return nil
		}, w.proofs)
		var e Effect
		waits := func(list []Span, e *Effect) []Span {
			list = append(w.p.Spans(list, e.Writes), e.Owed.Writes...)
			if w.proofs {
				list = append(w.p.Spans(list, e.Reads), e.Owed.Reads...)
			}
			return list
		}
		settled := func(e *Effect) bool {
			for _, sp := range waits(nil, e) {
				for range w.kept.without(sp) {
					return false
				}
			}
			return e.Proven || !w.proofs
		}
		if r.IntN(3) == 0 {
			settled = nil
		}
		for range 4 + r.IntN(30) {
			var pieces []Piece
			var list []*going
			for range 1 + r.IntN(5)/4 {
				g := &going{bound: true}
				at := base() + 4*r.Uint64N(each/4-16)
				if r.IntN(3) > 0 {
					at = base() + 0x1000*r.Uint64N(3) // places that are used again and again
				}
				switch k := r.IntN(10); {
				case k < 3:
					g.c = &trace.Copy{Dst: at, Width: 4 * (1 + r.Uint64N(4)), Flags: trace.SrcHost}
					for range g.c.Width {
						g.data = append(g.data, byte(r.Uint32()), byte(r.Uint32N(each/4)>>8), 0, 0)
					}
					pieces = append(pieces, Piece{Copy: g.c})
				case k < 4 && guesses:
					g.l = launch(kChase, at&^7)
				case k < 6:
					g.l = launch(kGather, at, base(), 1+r.Uint64N(6), 1+r.Uint64N(each/4), base()+0x1000*r.Uint64N(3))
				case k < 8 && guesses:
					g.l = launch(kScatter, at, base(), 1+r.Uint64N(6))
				default:
					g.l = launch(kGuarded, at, base(), 1+r.Uint64N(6), 1+r.Uint64N(each/4))
				}
				if g.l != nil {
					g.l.Grid = [3]uint32{1, 1, 1}
					pieces = append(pieces, Piece{Launch: g.l})
				}
				list = append(list, g)
			}
			if r.IntN(40) == 0 {
				a := base()
				w.p.Apply(&trace.Free{Addr: a})
				w.p.Apply(&trace.Alloc{Addr: a, Bytes: each, Block: a / 0x100000})
			}
			w.p.Work("work", pieces, "", settled, &e)
			if len(e.Owed.Writes) > 0 {
				owed++
			}
			w.seen = append(w.seen, fmt.Sprintf("\n%+v: %+v", pieces, e))
			w.kept.add(waits(nil, &e))
			w.all = w.all || !e.Proven && w.proofs
			w.going = append(w.going, list...)
			for n := r.IntN(12); n > 0 && len(w.going) > 0; n-- {
				i := r.IntN(len(w.going))
				if !w.run(t, w.going[i]) {
					w.going = slices.Delete(w.going, i, i+1)
				}
			}
		}
		for len(w.going) > 0 {
			i := r.IntN(len(w.going))
			if !w.run(t, w.going[i]) {
				w.going = slices.Delete(w.going, i, i+1)
			}
		}
		used += w.p.Used()
	}
	if used < rounds || owed < rounds/10 {
		t.Errorf("in %d programs contents were used %d times, and owed for %d times", rounds, used, owed)
	}
	t.Logf("in %d programs contents were used %d times, and owed for %d times", rounds, used, owed)
}

// BenchmarkWork is what a piece of work costs the daemon while contents of memory count, and while they do not.
func BenchmarkWork(b *testing.B) {
	scatter, guarded := launch(kScatter, 0x100000, 0x200000, 4), launch(kGuarded, 0x100000, 0x200000, 4, 100)
	for _, x := range []struct {
		name     string
		memory   bool
		settled  bool
		launches *trace.Launch
	}{
		{"no contents", false, false, scatter},
		{"nothing waits", true, true, guarded},
		{"a table", true, false, scatter},
	} {
		b.Run(x.name, func(b *testing.B) {
			p := held()
			if !x.memory {
				p.memory = nil
			}
			var e Effect
			for b.Loop() {
				p.Work("launch", []Piece{{Launch: x.launches}}, "", func(*Effect) bool { return x.settled }, &e)
			}
			if x.memory != (p.Used() > 0 || x.settled) {
				b.Error(p.Used())
			}
		})
	}
}
