package ir

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"holdfast/ptx"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The PTX of the tree that other packages have: written by compilers and by hand.
var sources = []string{"../../examples/train/train.ptx", "../../internal/snapshot/digest/digest.ptx", "testdata/*.ptx"}

func parse(t testing.TB, name string, src []byte) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse(name, src)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return m
}

// analysed builds and analyses the functions of a module, with the checker after each pass.
func analysed(t testing.TB, m *ptx.Module) []*Func {
	t.Helper()
	var fs []*Func
	for f, err := range FromPTX(m) {
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, f)
		if err := Analyse(f, true); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, f)
		fs = append(fs, f)
	}
	return fs
}

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

// A golden file holds a kernel, input.ptx, and what is made of it: built and analysed.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m := parse(t, "input.ptx", a.Files[0].Data)
			var built, done []byte
			for f, err := range FromPTX(m) {
				if err != nil {
					t.Fatal(err)
				}
				built = append(built, Format(f, false)...)
			}
			for _, f := range analysed(t, m) {
				done = append(done, Format(f, true)...)
			}
			want := &txtar.Archive{Comment: a.Comment, Files: []txtar.File{a.Files[0], {Name: "built.ir", Data: built}, {Name: "analysed.ir", Data: done}}}
			text := txtar.Format(want)
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

func TestSources(t *testing.T) {
	n := 0
	for _, glob := range sources {
		files, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n += len(analysed(t, parse(t, file, src)))
		}
	}
	if n < 10 {
		t.Errorf("only %d functions", n)
	}
}
