package main

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSecure(t *testing.T) {
	vector := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		return b
	}
	for _, c := range []struct {
		auxv []byte
		want bool
	}{
		{vector(6, 4096, atSecure, 0, 0, 0), false},
		{vector(6, 4096, atSecure, 1, 0, 0), true},
		{vector(atSecure, 1), true},
		{vector(6, atSecure, 0, 0), false},
		{vector(atSecure), false},
		{nil, false},
	} {
		if got := secure(c.auxv); got != c.want {
			t.Errorf("%x: %v", c.auxv, got)
		}
	}
}

// A holdfast with the set-user-ID bit does nothing for anybody, whatever it is asked.
func TestSetUserID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	path := filepath.Join(t.TempDir(), "holdfast")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, self); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	call := func() (string, error) {
		b, err := exec.Command(path, "version").CombinedOutput() // by this name the test binary is holdfast: script_test.go
		return string(b), err
	}
	if got, err := call(); err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if err := os.Chown(path, 54321, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOSUID != 0 {
		t.Skip("this file system does not honour the set-user-ID bit")
	}
	if got, err := call(); err == nil || !strings.Contains(got, "it has file capabilities or a set-user-ID bit") {
		t.Errorf("%v\n%s", err, got)
	}
}
