package e2e

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/daemon/api"
)

func itoa(n int) string { return strconv.Itoa(n) }

// imageFiles lists the files of an image.
func imageFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 3 {
		t.Fatalf("%s has %d files (%v)", dir, len(files), err)
	}
	return files
}

// A flipped bit, wherever it is, and a file cut short are found, by verify and by restore,
// and named; nothing is brought back from such an image.
func TestDamage(t *testing.T) {
	s := newSite(t)
	img := s.path("img")
	r, _, sum := s.checkpointed(8, img)
	s.ok("daemon", "stop", "--force") // so that a restore cannot be warm

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, file := range imageFiles(t, img) {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(good) == 0 {
			continue
		}
		rel, _ := filepath.Rel(img, file)
		damaged := map[string][]byte{"cut short": good[:rng.IntN(len(good))]}
		for range 2 {
			at := rng.IntN(len(good))
			flipped := append([]byte(nil), good...)
			flipped[at] ^= 1 << rng.IntN(8)
			damaged["a bit flipped at "+itoa(at)] = flipped
		}
		for what, data := range damaged {
			overwrite(t, file, data)
			text := s.fails(1, "images", "verify", img)
			if !strings.Contains(text, filepath.Base(file)) {
				t.Errorf("%s, %s: verify does not name the file:\n%s", rel, what, text)
			}
		}
		overwrite(t, file, good)
	}
	s.ok("images", "verify", img)

	// Restore checks for itself: one file of each kind.
	seen := map[string]bool{}
	for _, file := range imageFiles(t, img) {
		rel, _ := filepath.Rel(img, file)
		kind, _, _ := strings.Cut(rel, string(filepath.Separator))
		if seen[kind] {
			continue
		}
		seen[kind] = true
		good, err := os.ReadFile(file)
		if err != nil || len(good) == 0 {
			continue
		}
		bad := append([]byte(nil), good...)
		bad[len(bad)/2] ^= 0x10
		overwrite(t, file, bad)
		s.fails(1, "restore", img, "--detach")
		if list := s.live(); len(list) != 0 {
			t.Fatalf("%s damaged: a refused restore left %+v", rel, list)
		}
		overwrite(t, file, good)
	}
	again := r.restored(img)
	if got := again.tell("sum"); got != sum {
		t.Fatalf("sum %s, want %s", got, sum)
	}
}

// overwrite changes a file in place: chunks are hard links, and all their names must show
// the damage.
func overwrite(t *testing.T, file string, data []byte) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, info.Mode()); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 16")
	r.tell("fill 4")
	for i := range 3 {
		r.tell("poke 0 %d 1", i*(2<<20))
		s.ok("checkpoint", "teller", "-o", s.path("images/"+itoa(i)), "--gpu-only")
	}
	sum := r.tell("sum")
	text := s.ok("images", "ls", s.path("images"))
	for i := range 3 {
		if !strings.Contains(text, s.path("images/"+itoa(i))) && !strings.Contains(text, "\n"+itoa(i)+" ") {
			t.Errorf("ls does not list image %d:\n%s", i, text)
		}
	}
	s.ok("images", "inspect", s.path("images/0"))
	s.ok("images", "diff", s.path("images/0"), s.path("images/1"))
	tar := s.path("img.tar")
	s.ok("export", s.path("images/2"), "-o", tar)

	// gc takes what no image refers to, and nothing else.
	pool := s.path("images/.holdfast-chunks")
	before := len(imageFiles(t, pool))
	s.ok("images", "gc", s.path("images"))
	if after := len(imageFiles(t, pool)); after != before {
		t.Errorf("gc took %d chunks that are referred to", before-after)
	}
	s.ok("images", "rm", s.path("images/0"))
	s.ok("images", "gc", s.path("images"))
	if after := len(imageFiles(t, pool)); after >= before {
		t.Errorf("gc left the chunks of a removed image: %d of %d", after, before)
	}
	s.ok("images", "verify", s.path("images/1"))
	s.ok("images", "verify", s.path("images/2"))

	s.ok("import", tar, s.path("elsewhere/2"))
	s.ok("images", "verify", s.path("elsewhere/2"))
	r.tell("fill 9")
	s.ok("rollback", "teller", s.path("elsewhere/2"))
	if got := r.tell("sum"); got != sum {
		t.Errorf("sum %s from an imported image, want %s", got, sum)
	}

	// A damaged archive is no image.
	data, err := os.ReadFile(tar)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"cut": data[:len(data)/2],
		"flip": append(append(append([]byte(nil), data[:len(data)/2]...), data[len(data)/2]^4),
			data[len(data)/2+1:]...),
	} {
		if err := os.WriteFile(tar, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s.fails(1, "import", tar, s.path("bad/"+name))
		if _, err := os.Stat(s.path("bad/" + name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("import of a damaged archive (%s) left a directory", name)
		}
	}
}

// An image that exists is not written over.
func TestNoOverwrite(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	s.ok("checkpoint", "teller", "-o", s.path("img"), "--gpu-only")
	s.fails(1, "checkpoint", "teller", "-o", s.path("img"), "--gpu-only")
	s.ok("images", "verify", s.path("img"))
	r.tell("sum")
}

// A full disk costs the image and nothing else.
func TestDiskFull(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	r.tell("alloc 32")
	r.tell("fill 5")
	sum := r.tell("sum")
	small := mountSmall(t, s.path("small"), "24m")
	for _, extra := range [][]string{{"--gpu-only"}, {"--leave-running"}, {}} {
		args := append([]string{"checkpoint", "teller", "-o", filepath.Join(small, "img"), "--json"}, extra...)
		text := s.fails(1, args...)
		if !strings.Contains(text, "space") {
			t.Errorf("%v: the refusal does not speak of space:\n%s", extra, text)
		}
		if _, err := os.Stat(filepath.Join(small, "img")); err == nil {
			t.Errorf("%v: an image was left", extra)
		}
		if got := r.tell("sum"); got != sum {
			t.Fatalf("%v: sum %s, want %s", extra, got, sum)
		}
	}
	if c := into[api.CheckpointResult](s, "checkpoint", "teller", "-o", s.path("img"),
		"--leave-running"); c.Bytes < 32<<20 {
		t.Errorf("%+v", c)
	}
}
