package newfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file appears when it is finished, with the permissions of the umask; one that is given up leaves nothing.
func TestFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		finish bool
		want   string
	}{{false, "before"}, {true, "after"}} {
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("after"); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "before" {
			t.Errorf("while it is written: %q, %v", b, err)
		}
		if c.finish {
			if err := f.Finish(0o777); err != nil {
				t.Fatal(err)
			}
		}
		f.Abort()
		if b, err := os.ReadFile(path); err != nil || string(b) != c.want {
			t.Errorf("%q, %v, want %q", b, err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o750 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}
