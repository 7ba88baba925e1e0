package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/cuda/api"
)

// What is committed is what the table gives.
func TestGenerated(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile("../../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make generate", path)
		}
	}
}

// The wrappers reduce every type to what the calling convention needs: the sizes must be those of the stub's
// declarations.
func TestTypes(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler")
	}
	fns, err := api.Functions()
	if err != nil {
		t.Fatal(err)
	}
	var c strings.Builder
	c.WriteString("#include \"cudaabi.h\"\ntypedef unsigned long long CUhandle;\n")
	seen := map[string]bool{}
	for _, f := range fns {
		for _, s := range f.Symbols {
			for _, p := range s.Params {
				if !p.Pointer() && !seen[p.Type] {
					seen[p.Type] = true
					fmt.Fprintf(&c, "_Static_assert(sizeof(%s) == sizeof(%s), \"%s\");\n", p.Type, ctype(p.Type),
						p.Type)
				}
			}
		}
	}
	if len(seen) < 50 {
		t.Fatalf("only %d types", len(seen))
	}
	src := filepath.Join(t.TempDir(), "types.c")
	if err := os.WriteFile(src, []byte(c.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-I../../../stub", src).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What the table says of a call fits what else it says.
func TestColumns(t *testing.T) {
	fns, err := api.Functions()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fns {
		if f.Calm && (f.Gated || !f.Sync) {
			t.Errorf("%s only waits: it cannot wait at the gate, and it is sync", f.Name)
		}
		if f.Counts != "" && !f.Submit {
			t.Errorf("%s is counted and submits nothing", f.Name)
		}
		for _, s := range f.Symbols {
			if (s.Record != nil || s.Memory != nil) && !f.Gated {
				t.Errorf("%s has a record or gives memory, and does not pass the gate", s.Name)
			}
			if f.Class == api.Launch && f.Submit && !s.Legacy && s.Record == nil {
				t.Errorf("%s runs code and has no record", s.Name)
			}
		}
	}
}
