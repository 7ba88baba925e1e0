package ir

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"holdfast/test/golden"
)

// roundTrip wants that the text of f reads back to the same text.
func roundTrip(t testing.TB, f *Func) {
	t.Helper()
	text := Format(f, false)
	for _, in := range [][]byte{text, Format(f, true)} {
		g, err := Read(in)
		if err != nil {
			t.Fatalf("%v\n%s", err, in)
		}
		if again := Format(g, false); !bytes.Equal(again, text) {
			t.Fatalf("reads back as\n%s\nfrom\n%s", again, text)
		}
	}
}

// A golden file holds functions as they were built, built.ir, and what the passes make of them, with the checker after
// each.
func TestGolden(t *testing.T) {
	golden.Archives(t, "testdata/*.txtar", func(t *testing.T, file string, a *txtar.Archive) {
		if golden.Updating() { // what the front end builds may be new
			b, err := txtar.ParseFile(filepath.Join("fromptx", file))
			if err != nil {
				t.Fatal(err)
			}
			a.Files[0] = b.Files[1]
		}
		var done []byte
		for text := range bytes.SplitAfterSeq(a.Files[0].Data, []byte("\nend\n")) {
			if len(text) == 0 {
				continue
			}
			f, err := Read(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := Analyse(f, true); err != nil {
				t.Fatal(err)
			}
			roundTrip(t, f)
			done = append(done, Format(f, true)...)
		}
		a.Files = []txtar.File{a.Files[0], {Name: "analysed.ir", Data: done}}
	})
}
