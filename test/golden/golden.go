// Package golden compares what tests make with the files in which it is kept; with -update it writes them anew. What
// it says of a test ends when somebody has looked at the difference.
//
// It must not import what it carries the tests of.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Updating reports whether files are written, not compared.
func Updating() bool { return *update }

// File compares text with what a file holds, or writes it there.
func File(t testing.TB, file string, text []byte) {
	t.Helper()
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
}

// Archives runs a test for each archive of a pattern and compares the archive with the one that make returns: it may
// change the one that it is given.
func Archives(t *testing.T, pattern string, make func(t *testing.T, file string, a *txtar.Archive)) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			make(t, file, a)
			File(t, file, txtar.Format(a))
		})
	}
}
