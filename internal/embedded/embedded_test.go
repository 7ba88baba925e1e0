package embedded

import (
	"errors"
	"os"
	"sync"
	"testing"
)

func unpack(t *testing.T, cache string) Libraries {
	t.Helper()
	l, err := Unpack(cache)
	if errors.Is(err, ErrNotBuilt) {
		t.Skip("the C libraries are not built: run make")
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestUnpackRepairs(t *testing.T) {
	cache := t.TempDir()
	l := unpack(t, cache)
	want, err := os.ReadFile(l.Shim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Shim, []byte("damaged"), 0o755); err != nil {
		t.Fatal(err)
	}
	if again := unpack(t, cache); again != l {
		t.Fatalf("unpacked to %v, then to %v", l, again)
	}
	got, err := os.ReadFile(l.Shim)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("a damaged %s was kept", l.Shim)
	}
}

func TestUnpackAtOnce(t *testing.T) {
	cache := t.TempDir()
	want := unpack(t, t.TempDir())
	shim, err := os.ReadFile(want.Shim)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			l, err := Unpack(cache)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(l.Shim); err != nil || string(got) != string(shim) {
				t.Errorf("%s: incomplete when Unpack returned (%v)", l.Shim, err)
			}
		})
	}
	wg.Wait()
	left, err := os.ReadDir(cache + "/holdfast/lib")
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Fatalf("16 at once left %d directories, want 1: %v", len(left), left)
	}
}
