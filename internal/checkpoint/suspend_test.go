package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/process"
	"holdfast/internal/store"
)

// The place for host memory is not taken from another user, however it is offered.
func TestHostDir(t *testing.T) {
	p := process.New(process.Identity{PID: 1, Token: [16]byte{1, 2}}, "running", slog.New(slog.DiscardHandler))
	root := t.TempDir()
	if err := os.Chmod(root, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(root, fmt.Sprintf("holdfast-%d", os.Getuid()))
	dir, err := hostDir(root, p)
	if err != nil || filepath.Dir(dir) != mine {
		t.Fatalf("%s %v", dir, err)
	}
	if st, err := os.Stat(mine); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
	refuse := func(want string) {
		t.Helper()
		dir, err := hostDir(root, p)
		var r *Refused
		if !errors.As(err, &r) || !strings.Contains(r.Reason, want) || r.Remedy == "" {
			t.Errorf("%s %v, want %q", dir, err, want)
		}
	}
	if err := os.Chmod(mine, 0o750); err != nil {
		t.Fatal(err)
	}
	refuse("open to others")
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), mine); err != nil {
		t.Fatal(err)
	}
	refuse("symbolic link")
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mine, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	refuse("belongs to user 54321")
}

// A daemon that died while it wrote to host memory left what nobody needs. What another one writes stays.
func TestCleanHost(t *testing.T) {
	root := t.TempDir()
	if err := cleanHost(root); err != nil { // there is nothing
		t.Fatal(err)
	}
	if err := os.Mkdir(hostPlace(root), 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := store.NewPartial(filepath.Join(hostPlace(root), "dead"))
	if err != nil {
		t.Fatal(err)
	}
	dead.File.Close() // as the death of its writer does
	alive, err := store.NewPartial(filepath.Join(hostPlace(root), "alive"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cleanHost(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dead.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a writer that died there is still: %v", err)
	}
	if _, err := os.Stat(alive.Path); err != nil {
		t.Error(err)
	}
	if err := alive.Discard(); err != nil {
		t.Error(err)
	}
}
