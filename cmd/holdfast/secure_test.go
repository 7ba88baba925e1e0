package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSecure(t *testing.T) {
	for _, c := range []struct {
		auxv [][2]uintptr
		want bool
	}{
		{[][2]uintptr{{6, 4096}, {atSecure, 0}, {0, 0}}, false},
		{[][2]uintptr{{6, 4096}, {atSecure, 1}, {0, 0}}, true},
		{[][2]uintptr{{6, atSecure}}, false},
		{nil, false},
	} {
		if got := secure(c.auxv); got != c.want {
			t.Errorf("%v: %v", c.auxv, got)
		}
	}
	if err := refuseSecure(); err != nil {
		t.Errorf("of this process: %v", err)
	}
}

// A holdfast with rights of its file does nothing for anybody, whatever it is asked.
func TestRightsOfTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make such files")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hf-secure-") // others have to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "holdfast") // by this name the test binary is holdfast: script_test.go
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	noNew, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOSUID != 0 || noNew != 0 {
		t.Skip("no file gives rights here")
	}
	call := func() (string, error) {
		cmd := exec.Command(path, "version")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	refused := func(what string) {
		t.Helper()
		if got, err := call(); err == nil || !strings.Contains(got, "it has file capabilities or a set-user-ID bit") {
			t.Errorf("with %s: %v\n%s", what, err, got)
		}
	}
	if got, err := call(); err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	refused("the set-user-ID bit")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	// struct vfs_cap_data, version 2, effective: CAP_SYS_PTRACE.
	caps := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	for _, word := range []uint32{1 << 19, 0, 0, 0} {
		caps = binary.LittleEndian.AppendUint32(caps, word)
	}
	if err := unix.Setxattr(path, "security.capability", caps, 0); err != nil {
		t.Skipf("no file capabilities here: %v", err)
	}
	refused("a file capability")
}
