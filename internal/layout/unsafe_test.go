package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unsafeYet are folders whose files are still to be divided. Nothing is to be added.
var unsafeYet = []string{"internal/softgpu"}

// What the compiler does not check stands in files that say so by their name.
func TestUnsafe(t *testing.T) {
	const root = "../.."
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	found := unsafeFiles(t, os.DirFS(root))
	if len(found) == 0 {
		t.Fatal("no file imports unsafe: the search is broken")
	}
	misnamed, done := judgeUnsafe(found, unsafeYet)
	for _, file := range misnamed {
		t.Errorf("%s imports unsafe: that is for files named *_unsafe.go or *_unsafe_test.go", file)
	}
	for _, dir := range done {
		t.Errorf("%s has no such file any more: take it out of unsafeYet", dir)
	}
}

func TestUnsafeBites(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/word_unsafe.go":      `import "unsafe"`,
		"a/word_unsafe_test.go": `import "unsafe"`,
		"a/b/word.go":           "import (\n\t\"fmt\"\n\tu \"unsafe\"\n)",
		"a/word_test.go":        `import _ "unsafe"`,
		"a/unsafe.go":           `import "unsafe"`,
		"a/fmt.go":              "import \"fmt\" // not \"unsafe\"",
		"late/x.go":             `import "unsafe"`,
		"lately/x.go":           `import "unsafe"`,
		"node/testdata/x.go":    `import "unsafe"`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("package p\n\n"+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	misnamed, done := judgeUnsafe(unsafeFiles(t, os.DirFS(dir)), []string{"late", "clean"})
	if want := []string{"a/b/word.go", "a/unsafe.go", "a/word_test.go", "lately/x.go"}; !slices.Equal(misnamed, want) {
		t.Errorf("misnamed: %v, want %v", misnamed, want)
	}
	if !slices.Equal(done, []string{"clean"}) {
		t.Errorf("exceptions that nobody needs: %v", done)
	}
}

// unsafeFiles lists the Go files of a tree that import unsafe, tests too, which go:linkname needs as well.
func unsafeFiles(t *testing.T, tree fs.FS) (files []string) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" ||
			name == "build"):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			if i.Path.Value == `"unsafe"` {
				files = append(files, name)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// judgeUnsafe says which files are named wrongly, and which exceptions hold for none.
func judgeUnsafe(files, yet []string) (misnamed, done []string) {
	used := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(file), ".go"), "_test")
		if strings.HasSuffix(name, "_unsafe") {
			continue
		}
		i := slices.IndexFunc(yet, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
		if i < 0 {
			misnamed = append(misnamed, file)
			continue
		}
		used[yet[i]] = true
	}
	for _, dir := range yet {
		if !used[dir] {
			done = append(done, dir)
		}
	}
	return misnamed, done
}
