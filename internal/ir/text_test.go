package ir

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// What Read and Check refuse, and what they say.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no end"},
		{"kernel", "line 1: expected kernel or function"},
		{"kernel k\nend", "no blocks"},
		{"kernel k\nend\nx", "line 3: text after the end"},
		{"kernel k\nb0:\nend", "0 successors, want 1"},
		{"kernel k\nb1:\nend", "line 2: block b1 after 0 blocks"},
		{"kernel kkkkkkkkkkkk\nb0:\n -> b7\nend", "no block b7"},
		{"kernel k\nb0:\n -> b0\nend", "the entry b0 has predecessors"},
		{"kernel k\nb0:\n return\n return\nend", "not the last of its block"},
		{"kernel k\nb0:\n frobnicate\nend", `line 3: expected an operation, found "frobnicate"`},
		{"kernel k\nb0:\n mov:s99999 1\nend", "a number from 0 to 4096"},
		{"kernel k\nb0:\n v0 = mov 1\n return\nend", "result v0 does not exist"},
		{"kernel k\nregister v0:b32 r\nb0:\n v0 = add v0\n return\nend", "1 arguments, want 2"},
		{"kernel k\nregister v0:b32 r\nb0:\n v0 = load\n return\nend", "0 memory accesses, want 1"},
		{"kernel k\nregister v0:b32 r\nb0:\n @v0 return\n -> b1\nb1:\n return\nend", "the guard v0 is no predicate"},
		{"kernel k\nregister v0:b32 r\nb0:\n v0 = phi 1\n return\nend", "phi before SSA form"},
		{"kernel k\nregister v0:b32 r\nb0:\n v0 = compare 1, 2\n return\nend", "a comparison has a relation"},
		{"kernel k ssa\nb0:\n v0:b32(r) = mov 1\n v0:b32(r) = mov 2\n return\nend", "v0 is defined twice"},
		{"kernel k ssa\nb0:\n v0:b32(r) = mov v1\n v1:b32(r) = mov 2\n return\nend", "v1 is not defined there"},
		{"kernel k ssa\nb0:\n v1:b32(r) = mov 2\n return\nend", "v0 has no definition"},
		{"kernel k ssa\nb0:\n return\nb1:\n return\nend", "every block can be reached"},
		{"kernel k ssa\nb0:\n switch 0 -> b1 b2\nb1:\n v0:b32(r) = mov 2\n -> b2\nb2:\n v1:b32(r) = phi v0, v0\n " +
			"return\nend", "v0 in a phi is not defined at the end of b0"},
		{"kernel k ssa\nb0:\n switch 0 -> b1 b2\nb1:\n v0:b32(r) = mov 2\n -> b2\nb2:\n v1:b32(r) = mov v0\n " +
			"return\nend", "v0 is not defined there"},
		{"kernel k ssa\nb0:\n v0:pred(p) = mov 1\n v1:b32(r) = @v0 mov 1\n return\nend",
			"0 former values for 1 results"},
	} {
		if _, err := Read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// The checker must see what a broken pass leaves behind.
func TestCheckFinds(t *testing.T) {
	const text = "kernel k\nregister v0:b32 r\nb0:\n v0 = mov:b32 1\n -> b1\nb1:\n v0 = add:b32 v0, 1\n switch v0 -> " +
		"b1 b2\nb2:\n return v0\nend\n"
	for name, damage := range map[string]func(*Func){
		"arc":       func(f *Func) { f.Blocks[2].Preds = nil },
		"number":    func(f *Func) { f.Blocks[1].Index = 2 },
		"record":    func(f *Func) { f.Vals[0].Def = nil },
		"phi":       func(f *Func) { f.Blocks[1].Insts[0].Args = f.Blocks[1].Insts[0].Args[:1] },
		"order":     func(f *Func) { in := f.Blocks[1].Insts; in[0], in[1] = in[1], in[0] },
		"operand":   func(f *Func) { f.Blocks[2].Insts[0].Args[0].Val = 99 },
		"dominance": func(f *Func) { f.Blocks[0].Insts[0].Args[0] = Of(2) },
		"tree":      func(f *Func) { f.Dom.Parent = f.Dom.Parent[:1] },
	} {
		f, err := Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := Analyse(f, true); err != nil {
			t.Fatal(err)
		}
		damage(f)
		if Check(f) == nil {
			t.Errorf("%s: nothing found", name)
		}
	}
}

func TestPassOrder(t *testing.T) {
	if err := checkOrder(passes, constraints); err != nil {
		t.Fatal(err)
	}
	// Every constraint bites: with its two passes exchanged the order is refused.
	at := func(name string) int {
		for i, p := range passes {
			if p.name == name {
				return i
			}
		}
		t.Fatalf("no pass %s", name)
		return 0
	}
	for _, c := range constraints {
		list := append([]pass(nil), passes...)
		a, b := at(c.before), at(c.after)
		list[a], list[b] = list[b], list[a]
		if err := checkOrder(list, []constraint{c}); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s after %s: %v", c.before, c.after, err)
		}
	}
	if checkOrder(append(passes[:1:1], passes[0]), nil) == nil ||
		checkOrder(passes, []constraint{{"order", "nothing", ""}}) == nil {
		t.Error("a pass that is there twice, or not at all, is accepted")
	}
}

// TestDocs wants that the text that docs/ir.md shows is what the golden files have.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/ir.md")
	if err != nil {
		t.Fatal(err)
	}
	var golden []byte
	for _, file := range []string{"testdata/reduce.txtar", "testdata/guards.txtar"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden = append(golden, text...)
	}
	shown, fenced, in := 0, false, false
	for line := range strings.Lines(string(doc)) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			in = fenced && line == "```\n"
		case in && !strings.Contains(line, "…"):
			shown++
			if !bytes.Contains(golden, []byte(strings.TrimRight(line, "\n"))) {
				t.Errorf("docs/ir.md shows %q, which is not what is printed", line)
			}
		}
	}
	if shown < 20 {
		t.Errorf("only %d lines are shown", shown)
	}
}

// FuzzRead wants that the text of what was read is a fixpoint, and can be analysed.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range a.Files[1:] {
			for text := range bytes.SplitAfterSeq(part.Data, []byte("\nend\n")) {
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fn, err := Read(text)
		if err != nil {
			return
		}
		roundTrip(t, fn)
		if fn.SSA {
			return
		}
		if err := Analyse(fn, true); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, fn)
	})
}
