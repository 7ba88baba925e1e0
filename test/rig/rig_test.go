package rig

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What was built is built again when a source has changed, and only then, whoever asks at the same time.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	was := root
	root = func() (string, error) { return dir, nil }
	defer func() { root = was }()
	var times atomic.Int32
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := func() string {
		return Build(t, "x", []string{"*.c"}, func(to string) error {
			times.Add(1)
			return os.WriteFile(filepath.Join(to, "x"), nil, 0o600)
		})
	}
	write("one")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { build() })
	}
	wg.Wait()
	first := build()
	if n := times.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	write("two")
	second := build()
	if times.Load() != 2 || second == first {
		t.Errorf("another source: built %d times, in %s as in %s", times.Load(), second, first)
	}
	if _, err := os.Stat(filepath.Join(first, "x")); err != nil {
		t.Errorf("what may be in use is gone: %v", err)
	}
	past := time.Now().Add(-2 * old)
	if err := os.Chtimes(first, past, past); err != nil {
		t.Fatal(err)
	}
	write("three")
	build()
	if _, err := os.Stat(first); !os.IsNotExist(err) {
		t.Errorf("what nobody used for long is there: %v", err)
	}
}
