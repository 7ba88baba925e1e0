package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/daemon/api"
)

// chownAll gives a tree to a user.
func chownAll(t *testing.T, dir string, uid int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(p, uid, uid)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Root does not run what another user has put into an image, unless it is told to trust that user.
func TestForeignImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(50)
	img := s.path("img")
	s.ok("checkpoint", "train", "-o", img, "--gpu-only")
	chownAll(t, img, 54321)
	if out := s.fails(1, "rollback", "train", img); !strings.Contains(out, "another user") || !strings.Contains(out,
		"--trust") {
		t.Errorf("rollback of another user's image:\n%s", out)
	}
	s.ok("images", "inspect", img) // looking does no harm
	s.ok("rollback", "train", img, "--trust")
	r.done()
}

func TestForeignImageRestore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(50)
	img := s.path("img")
	s.ok("checkpoint", "train", "-o", img)
	r.wait()
	chownAll(t, img, 54321)
	if out := s.fails(1, "restore", "--detach", img); !strings.Contains(out, "another user") || !strings.Contains(out,
		"--trust") {
		t.Errorf("restore of another user's image:\n%s", out)
	}
	again := *r
	again.program = s.launch(r.name, "restore", "--trust", img)
	again.done()
	again.mustEqualReference("--pad", "8")
}

// A program that is suspended goes on with its own image or not at all: another good one of the same program does not
// do.
func TestResumeSwapped(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400, "--pad", "8")
	r.reach(50)
	other, img := s.path("other"), s.path("img")
	s.ok("checkpoint", "train", "-o", other, "--gpu-only")
	r.reach(100)
	s.ok("suspend", "train", "--to", "disk", "-o", img)
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	rename(img, s.path("away"))
	rename(other, img)
	for _, restart := range []bool{false, true} { // what the daemon knows, and what the keeper's record says
		if restart {
			s.killDaemon()
		}
		if out := s.fails(1, "resume", "train"); !strings.Contains(out, "another image") {
			t.Errorf("resume from another image (new daemon: %v):\n%s", restart, out)
		}
		if p := s.process("train"); p == nil || p.State != api.StateSuspended {
			t.Fatalf("ps: %+v", p)
		}
	}
	rename(img, other)
	rename(s.path("away"), img)
	s.ok("resume", "train")
	r.done()
	r.mustEqualReference("--pad", "8")
}
