package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// Libraries are not unpacked, nor used, where somebody else can swap them between our look at them and their load.
func TestUnpackForeign(t *testing.T) {
	unpack(t, t.TempDir()) // or skip
	cache := t.TempDir()
	writable := filepath.Join(cache, "writable")
	if err := os.Mkdir(writable, 0o700); err != nil {
		t.Fatal(err)
	}
	unpack(t, writable)
	if err := os.Chmod(writable, 0o777); err != nil {
		t.Fatal(err)
	}
	if l, err := Unpack(writable); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("%v %v", l, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	// A root that has the HOME of another user.
	home := filepath.Join(cache, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	l := unpack(t, home)
	if err := os.Chown(home, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(home); err == nil || !strings.Contains(err.Error(), "belongs to user 54321") {
		t.Errorf("%v", err)
	}
	if err := os.Chown(home, 0, 0); err != nil {
		t.Fatal(err)
	}
	// One file of another's is replaced, not loaded.
	if err := os.Chown(l.Stub(), 54321, 54321); err != nil {
		t.Fatal(err)
	}
	unpack(t, home)
	if st, err := os.Stat(l.Stub()); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the stub is still another user's: %v %v", st, err)
	}
}

// What is loaded into the daemon cannot be changed, through any descriptor.
func TestStubMemory(t *testing.T) {
	f, err := StubMemory()
	if errors.Is(err, ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := lib.ReadFile("lib/" + StubName)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(Path(f)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.WriteAt([]byte("evil"), 0); err == nil {
		t.Error("it can be written")
	}
	if g, err := os.OpenFile(Path(f), os.O_RDWR, 0); err == nil {
		if _, err := g.WriteAt([]byte("evil"), 0); err == nil {
			t.Error("it can be written when opened anew")
		}
		g.Close()
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it can be cut")
	}
}
