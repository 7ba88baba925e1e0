package ir

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The two transformations, as text: a module, before.ir, its kernels with what they call inlined, and then with local
// memory promoted.
func TestTransforms(t *testing.T) {
	files, err := filepath.Glob("testdata/transform/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
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
			text := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: []txtar.File{a.Files[0],
				{Name: "inlined.ir", Data: inlined}, {Name: "promoted.ir", Data: promoted}}})
			if *update {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			have, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(have, text) {
				t.Errorf("%s differs; with -update it would be\n%s", file, text)
			}
		})
	}
}
