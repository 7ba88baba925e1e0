package ir

import (
	"bytes"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"holdfast/test/golden"
)

// The two transformations, as text: a module, before.ir, its kernels with what they call inlined, and then with local
// memory promoted.
func TestTransforms(t *testing.T) {
	golden.Archives(t, "testdata/transform/*.txtar", func(t *testing.T, _ string, a *txtar.Archive) {
		m, err := ReadModule(a.Files[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		if again := FormatModule(m); !bytes.Equal(again, a.Files[0].Data) {
			t.Fatalf("reads back as\n%s", again)
		}
		funcs := map[string]*Func{}
		for _, f := range m.Funcs {
			funcs[f.Name] = f
		}
		n := &Inliner{Func: 1000, Total: 1000, Callee: func(name string) *Func { return funcs[name] },
			Module: func(name string) bool { return m.Vars[name] }}
		var inlined, promoted []byte
		for _, f := range m.Funcs {
			if !f.Kernel {
				continue
			}
			n.Inline(f)
			inlined = append(inlined, Format(f, false)...)
			roundTrip(t, f)
			Promote(f, n.Module)
			promoted = append(promoted, Format(f, false)...)
			roundTrip(t, f)
			if err := Analyse(f, true); err != nil {
				t.Fatal(err)
			}
		}
		a.Files = []txtar.File{a.Files[0], {Name: "inlined.ir", Data: inlined}, {Name: "promoted.ir", Data: promoted}}
	})
}
