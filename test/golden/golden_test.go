package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// A recorder is a test that notes that it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// A file that differs is an error, and is written with -update.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golden")
	if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		text       string
		update, ok bool
	}{{"before", false, true}, {"after", false, false}, {"after", true, true}, {"after", false, true},
		{"before", false, false}} {
		r := &recorder{TB: t}
		*update = x.update
		File(r, file, []byte(x.text))
		*update = false
		if r.failed == x.ok {
			t.Errorf("%+v: failed %v", x, r.failed)
		}
	}
}
