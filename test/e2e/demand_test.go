package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/daemon/api"
)

// Restored on demand, a program computes what it would have: launches wait for what they need, and those of which
// nothing is known for everything.
func TestRestoreOnDemand(t *testing.T) {
	s := newSite(t)
	r := s.train("train", 400, "--pad", "64")
	r.reach(100)
	s.ok("checkpoint", "train", "-o", s.path("img"), "--json")
	r.wait()
	s.ok("daemon", "stop", "--force") // so that it cannot be warm
	again := *r
	again.program = s.launch(r.name, "restore", s.path("img"), "--on-demand")
	again.done()
	again.mustEqualReference("--pad", "64")
	s.until("the daemon says that all was filled", func() bool {
		return strings.Contains(s.daemonLog(), "restored on demand")
	})
}

// The memory is right whatever is asked of it first, and a checkpoint of the program that came back so is good.
func TestRestoreOnDemandWhole(t *testing.T) {
	s := newSite(t)
	r := s.teller("teller")
	for range 3 {
		r.tell("alloc 32")
	}
	r.tell("fill 9")
	sum := r.tell("sum")
	s.ok("checkpoint", "teller", "-o", s.path("img"))
	r.wait()
	s.ok("daemon", "stop", "--force")
	again := r.restoredOnDemand(s.path("img"))
	again.tell("alloc 1") // memory that is of no image
	again.tell("free 3")
	if got := again.tell("sum"); got != sum {
		t.Fatalf("sum %s, want %s", got, sum)
	}
	s.until("the memory is there", func() bool {
		p := s.process("teller")
		return p != nil && p.State == api.StateRunning
	})
	s.ok("checkpoint", "teller", "-o", s.path("img2"))
	again.wait()
	last := again.restored(s.path("img2"))
	if got := last.tell("sum"); got != sum {
		t.Fatalf("after another checkpoint: sum %s, want %s", got, sum)
	}
}

// Restored on demand, a launch that writes to where a table says waits for no more than that: the image says what the
// table holds. When the table has changed, it waits for everything.
func TestRestoreOnDemandTables(t *testing.T) {
	for _, verb := range []string{"scatter", "shuffle"} {
		t.Run(verb, func(t *testing.T) {
			s := newSite(t)
			r := s.teller("teller")
			r.tell("alloc 128")
			r.tell("fill 3")
			r.setCells(7)
			sum := r.tell("sum")
			r.tell("table 0")
			s.ok("checkpoint", "teller", "-o", s.path("img"))
			r.wait()
			s.ok("daemon", "stop", "--force")
			tag := r.send("%s 0", verb) // so that it begins at once
			again := r.restoredOnDemand(s.path("img"))
			var line string
			s.until("the memory is there", func() bool {
				_, line, _ = strings.Cut(s.daemonLog(), "restored on demand")
				line, _, _ = strings.Cut(line, "\n")
				return line != ""
			})
			t.Log(line)
			if verb == "scatter" && !strings.Contains(line, "guesses=0 ") {
				t.Errorf("launches waited for everything:%s", line)
			}
			if verb == "shuffle" && !strings.HasSuffix(line, "known=0") {
				t.Errorf("a table that had changed was used:%s", line)
			}
			writes := again.tell("whole 0")
			if said := again.expect(tag); said != "ok "+writes {
				t.Errorf("%s writes, it said %s", writes, said)
			}
			again.setCells(7) // as they were before those writes
			if got := again.tell("sum"); got != sum {
				t.Errorf("sum %s, want %s", got, sum)
			}
		})
	}
}

// An image that was taken with copy on write says what the program touched first after it, which a restore on demand
// uses; one that was taken otherwise does not, and is an image as any other.
func TestRestoreOnDemandOrder(t *testing.T) {
	for _, mode := range []string{"cow", "stage"} {
		t.Run(mode, func(t *testing.T) {
			s := newSite(t)
			r := s.train("train", 1500, "--pad", "64")
			r.reach(100)
			var c api.CheckpointResult
			var image struct {
				Version  int
				Manifest struct {
					Regions []struct{ Size uint64 }
					Order   []struct{ Region, Chunk, Count int }
				}
			}
			img := ""
			for try := range 5 { // on a busy machine a drain may be over before the program launches anything
				img = fmt.Sprintf("img%d", try)
				c = into[api.CheckpointResult](s, "checkpoint", "train", "-o", s.path(img), "--leave-running", "--mode",
					mode)
				if c.Mode != mode || c.Mispredictions != 0 {
					t.Fatalf("%+v", c)
				}
				if err := json.Unmarshal([]byte(s.read(img+"/manifest.json")), &image); err != nil {
					t.Fatal(err)
				}
				if mode != "cow" || len(image.Manifest.Order) > 0 {
					break
				}
			}
			order, named := image.Manifest.Order, 0
			large := map[int]int{} // region: chunks
			for _, run := range order {
				named += run.Count
				if image.Manifest.Regions[run.Region].Size >= 64<<20 {
					large[run.Region] += run.Count
				}
			}
			t.Log(image.Version, order)
			switch {
			case mode != "cow" && (len(order) > 0 || image.Version != 1):
				t.Errorf("version %d, order %v", image.Version, order)
			case mode == "cow" && (len(order) == 0 || image.Version != 2 || named >= c.Chunks):
				t.Errorf("version %d, order %v of %d chunks", image.Version, order, c.Chunks)
			}
			for _, n := range large { // a step in 64 touches one chunk of it, and there are 1500
				if n > 24 {
					t.Errorf("%d chunks of padding: %v", n, order)
				}
			}
			r.kill()
			s.ok("daemon", "stop", "--force")
			again := *r
			again.program = s.launch(r.name, "restore", s.path(img), "--on-demand")
			again.done()
			again.mustEqualReference("--pad", "64")
			want := fmt.Sprintf(" ordered=%d ", uint64(named)<<21)
			s.until("the daemon says"+want, func() bool { return strings.Contains(s.daemonLog(), want) })
		})
	}
}

// A damaged image is found while the program runs already: it is ended before it has used a wrong byte, and the image
// can be restored when it is repaired.
func TestRestoreOnDemandDamage(t *testing.T) {
	s := newSite(t)
	img := s.path("img")
	r, _, sum := s.checkpointed(64, img)
	s.ok("daemon", "stop", "--force")
	chunks, err := filepath.Glob(filepath.Join(img, "chunks", "*", "*"))
	if err != nil || len(chunks) == 0 {
		t.Fatal(chunks, err)
	}
	file := chunks[len(chunks)/2]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), good...)
	bad[len(bad)/3] ^= 4
	overwrite(t, file, bad)
	again := r.restoredOnDemand(img)
	again.send("sum") // which needs all of it
	again.wait()
	if again.status == 0 {
		t.Error("a program without its memory ended well")
	}
	s.until("the daemon names the chunk", func() bool {
		_, text, _ := strings.Cut(s.daemonLog(), "restore on demand failed")
		return strings.Contains(text, filepath.Base(file))
	})
	overwrite(t, file, good)
	// What was asked of the one that ended is still asked of this one.
	last := again.restored(img)
	if got := last.tell("sum"); got != sum {
		t.Fatalf("sum %s, want %s", got, sum)
	}
}

func (r *teller) restoredOnDemand(dir string) *teller {
	r.s.t.Helper()
	n := *r
	n.program = r.s.launch(r.name, "restore", dir, "--on-demand")
	return &n
}

func (s *site) daemonLog() string {
	data, err := os.ReadFile(filepath.Join(s.dir, "daemon.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}
