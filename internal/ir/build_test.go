package ir

import (
	"strings"
	"testing"
)

func TestBuilder(t *testing.T) {
	u32 := Type{Unsigned, 32}
	f := &Func{Name: "k", Kernel: true, Vals: []Val{{Name: "r", Type: u32}, {Name: "p", Type: Type{Pred, 1}}}}
	b := NewBuilder(f)
	loop, out := &Block{}, &Block{}
	b.Add(&Inst{Op: Mov, Type: u32, Defs: []ValID{0}, Args: []Operand{Int(0)}})
	b.Enter(loop)
	b.Add(&Inst{Op: Add, Type: u32, Defs: []ValID{0}, Args: []Operand{Of(0), Int(1)}})
	b.Add(&Inst{Op: Compare, Rel: LT, Type: u32, Defs: []ValID{1}, Args: []Operand{Of(0), Int(9)}})
	b.Add(&Inst{Op: Branch, Guard: Of(1)})
	b.Arc(loop)
	b.Enter(out)
	b.Add(&Inst{Op: Return})
	b.End()
	if b.Here() != nil {
		t.Error("a block is in hand behind an end")
	}
	b.Add(&Inst{Op: Exit}) // nothing comes here
	b.End()
	if _, err := b.Done(); err != nil {
		t.Fatal(err)
	}
	if err := Analyse(f, true); err != nil {
		t.Fatal(err)
	}
	if l := f.Loops.Loops; len(l) != 1 || l[0].Trip == nil || l[0].Trip.Count != 8 {
		t.Errorf("%s", Format(f, true))
	}
}

// What a front end does wrong is found when it does it.
func TestBuilderRefuses(t *testing.T) {
	for want, list := range map[string][]*Inst{
		"2 arguments, want 1":          {{Op: Not, Defs: []ValID{0}, Args: []Operand{Int(1), Int(2)}}},
		"operand v7 does not exist":    {{Op: Store, Args: []Operand{Of(7)}, Mem: []Access{{Write: true}}}},
		"0 memory accesses, want 1":    {{Op: Load, Defs: []ValID{0}}},
		"behind the end of its block":  {{Op: Return}, {Op: Exit}},
		"the guard v0 is no predicate": {{Op: Exit, Guard: Of(0)}},
		"special register":             {{Op: Mov, Defs: []ValID{0}, Args: []Operand{{Kind: Special}}}},
		"distance between rows":        {{Op: Other, Mem: []Access{{Read: true, Tile: &Tile{8, 16, 2, 0}}}}},
		"with a carry":                 {{Op: AddCarry, Defs: []ValID{0}, Args: []Operand{Int(1)}}},
		"has a relation": {{Op: CompareWith, Rel: EQ, Defs: []ValID{0},
			Args: []Operand{Int(1), Int(1), Int(1)}}},
	} {
		b := NewBuilder(&Func{Name: "k", Vals: []Val{{Name: "r", Type: Type{Bits, 32}}}})
		for _, in := range list {
			b.Add(in)
		}
		if err := b.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	b := NewBuilder(&Func{Name: "k"})
	b.Add(&Inst{Op: Return})
	b.Enter(&Block{})
	b.Add(&Inst{Op: Return})
	if _, err := b.Done(); err == nil || !strings.Contains(err.Error(), "1 successors, want 0") {
		t.Errorf("an arc behind a return: %v", err)
	}
}
