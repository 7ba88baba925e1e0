package layout

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how long a line may be; a tab counts as four.
const columns = 120

// exempt are files whose lines are as long as they are.
var exempt = []struct{ name, why string }{
	{"internal/isa/table.go", "one row a form of an instruction: a row on two lines reads worse"},
	{"test/corpus/", "programs whose PTX lies beside them and names their lines"},
}

// TestColumns: lines of code and comments have at most 120 columns. Generated files have what their generators write,
// and raw strings in Go are texts of another language.
func TestColumns(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(name, ".") && name != "." && name != ".ci"
			if hidden || slices.Contains([]string{"bin", "build", "libexec"}, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".c", ".h", ".sh", ".py"}, filepath.Ext(name)) || generated(name) {
			return nil
		}
		for _, x := range exempt {
			if strings.HasPrefix(name, x.name) {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range longLines(name, text) {
			t.Errorf("%s:%d has more than %d columns", name, n, columns)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLongLines(t *testing.T) {
	wide := strings.Repeat("ä", columns)
	for _, x := range []struct {
		name, text string
		want       []int
	}{
		{"a.c", wide + "\n", nil},
		{"a.c", "x\n" + wide + "x\n", []int{2}},
		{"a.py", "\t" + wide[:2*(columns-4)] + "\n\t" + wide[:2*(columns-3)] + "\n", []int{2}},
		{"a.go", "package a\n\nvar x = `\n" + wide + "x\n`\n\n// " + wide + "\n", []int{7}},
		{"a.go", "package a\n\nvar x = `" + wide + "`\n", []int{3}},
	} {
		if got := longLines(x.name, []byte(x.text)); !slices.Equal(got, x.want) {
			t.Errorf("%s %q: %v, want %v", x.name, x.text, got, x.want)
		}
	}
}

// generated reports whether a file has the name of one that a generator writes.
func generated(name string) bool { return strings.HasPrefix(filepath.Base(name), "z") }

// longLines are the numbers of lines with too many columns, but for those in raw strings of several lines.
func longLines(name string, text []byte) (list []int) {
	var raw map[int]bool
	if filepath.Ext(name) == ".go" {
		raw = rawLines(text)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > columns && !raw[n] {
			list = append(list, n)
		}
	}
	return list
}

// rawLines are the numbers of lines in raw strings of several lines.
func rawLines(text []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, func(token.Position, string) {}, 0)
	for {
		at, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if n := strings.Count(lit, "\n"); tok == token.STRING && n > 0 {
			for i := range n + 1 {
				lines[file.Line(at)+i] = true
			}
		}
	}
}
