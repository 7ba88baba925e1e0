package owned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is a user that is neither us nor root.
const stranger = 54321

// give makes a file or directory a stranger's; only root can.
func give(t *testing.T, paths ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for _, p := range paths {
		if err := os.Lchown(p, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
}

func mkdir(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t *testing.T, to, at string) string {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
	return at
}

func refused(t *testing.T, want string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("taken, want an error with %q", want)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestOpen(t *testing.T) {
	top := t.TempDir()
	mkdir(t, filepath.Join(top, "a/b"), 0o755)
	mkdir(t, filepath.Join(top, "shared"), 0o777)
	mkdir(t, filepath.Join(top, "shared/mine"), 0o700)
	mkdir(t, filepath.Join(top, "group/mine"), 0o700)
	os.Chmod(filepath.Join(top, "group"), 0o775)
	mkdir(t, filepath.Join(top, "sticky"), 0o777|fs.ModeSticky)
	mkdir(t, filepath.Join(top, "sticky/mine"), 0o700)
	symlink(t, "a/b", filepath.Join(top, "relative"))
	symlink(t, filepath.Join(top, "a"), filepath.Join(top, "absolute"))
	symlink(t, "../a", filepath.Join(top, "sticky/up"))
	symlink(t, "loop", filepath.Join(top, "loop"))
	symlink(t, "shared/mine", filepath.Join(top, "bad"))
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, leads, err string }{
		{"a/b", "a/b", ""},
		{"relative", "a/b", ""},
		{"absolute/b", "a/b", ""},
		{"sticky/mine", "sticky/mine", ""},
		{"sticky", "sticky", ""},
		{"sticky/up/b", "a/b", ""},
		{"shared/mine", "", "can be written by others"},
		{"group/mine", "", "can be written by others"},
		{"bad", "", "can be written by others"},
		{"loop", "", "too many levels"},
		{"file", "", "not a directory"},
		{"none", "", "no such file"},
	} {
		d, err := Open(filepath.Join(top, c.path))
		if c.err != "" {
			refused(t, c.err, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if want := filepath.Join(top, c.leads); d.Path() != want {
			t.Errorf("%s leads to %s, want %s", c.path, d.Path(), want)
		}
		d.Close()
	}
}

// What another user owns is refused wherever it stands on the path.
func TestStranger(t *testing.T) {
	top := t.TempDir()
	theirs := mkdir(t, filepath.Join(top, "theirs"), 0o755)
	mkdir(t, filepath.Join(theirs, "ours"), 0o700)
	mkdir(t, filepath.Join(top, "fine"), 0o700)
	sticky := mkdir(t, filepath.Join(top, "sticky"), 0o777|fs.ModeSticky)
	link := symlink(t, filepath.Join(top, "fine"), filepath.Join(sticky, "link"))
	bin := filepath.Join(top, "bin")
	if err := os.WriteFile(bin, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	toBin := symlink(t, bin, filepath.Join(top, "tobin"))
	give(t, theirs, link, bin)
	for _, path := range []string{theirs, theirs + "/ours", theirs + "/ours/new", link, link + "/new"} {
		_, err := Open(path)
		refused(t, "belongs to user 54321", err)
		_, err = Make(path, 0o755)
		refused(t, "belongs to user 54321", err)
		_, err = Private(path)
		if err == nil {
			t.Errorf("Private takes %s", path)
		}
	}
	if _, err := os.Lstat(theirs + "/ours/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made below a stranger's directory: %v", err)
	}
	refused(t, "belongs to user 54321", Check(bin))
	refused(t, "belongs to user 54321", Check(toBin))
	refused(t, "belongs to user 54321", Check(theirs+"/ours"))
}

func TestPrivate(t *testing.T) {
	top := t.TempDir()
	d, err := Private(filepath.Join(top, "a/b"))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if info, err := os.Stat(filepath.Join(top, "a/b")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	_, err = Private(mkdir(t, filepath.Join(top, "open"), 0o750))
	refused(t, "open to others", err)
	_, err = Private(symlink(t, filepath.Join(top, "a/b"), filepath.Join(top, "link")))
	refused(t, "symbolic link", err)
	_, err = Private(filepath.Join(top, "link") + "/")
	refused(t, "symbolic link", err)
}

// A directory with the sticky bit is good on the way, and not as a place of our own.
func TestMakeSticky(t *testing.T) {
	top := t.TempDir()
	_, err := Make(mkdir(t, filepath.Join(top, "sticky"), 0o777|fs.ModeSticky), 0o755)
	refused(t, "can be written by others", err)
	d, err := Make(filepath.Join(top, "sticky/x/y"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestCheckFile(t *testing.T) {
	top := t.TempDir()
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Check(symlink(t, "file", filepath.Join(top, "link"))); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o775); err != nil {
		t.Fatal(err)
	}
	refused(t, "can be written by others", Check(filepath.Join(top, "link")))
	refused(t, "too many levels", Check(symlink(t, "loop", filepath.Join(top, "loop"))))
}

// A file is opened only if it is plain and ours; where a link leads stays as it was.
func TestOpenFile(t *testing.T) {
	top := t.TempDir()
	d, err := Private(filepath.Join(top, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	victim := filepath.Join(top, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	symlink(t, victim, d.Join("link"))
	if err := os.Link(victim, d.Join("hard")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(d.Join("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	mkdir(t, d.Join("dir"), 0o700)
	for name, want := range map[string]string{
		"link": "symbolic link", "hard": "hard link", "fifo": "no regular file", "dir": "", "../victim": "invalid",
		"..": "invalid", "": "invalid",
	} {
		f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		refused(t, want, err)
		if err == nil {
			f.Close()
		}
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
	f, err := d.OpenFile("new", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if os.Geteuid() == 0 {
		give(t, d.Join("new"))
		_, err := d.OpenFile("new", os.O_RDWR, 0)
		refused(t, "belongs to user 54321", err)
	}
	if err := d.Remove("new"); err != nil {
		t.Error(err)
	}
	if err := d.Remove("new"); err != nil {
		t.Error(err)
	}
}

func TestKnowsAll(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":              true,
		"0 1000 1\n1 100000 65536\n":                      false,
		"1000 1000 1\n":                                   false,
		"0 0 1000\n1000 100000 1\n1001 1001 4294966295\n": true,
		"":           false,
		"nonsense\n": false,
	} {
		if got := knowsAll(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
