package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"holdfast/internal/daemon/api"
)

// stormRounds is how many operations TestStorm does on its program; HOLDFAST_STORM sets another number.
const stormRounds = 14

// A program whose sixteen threads never pause outlives operations of all kinds, back to back, and comes back from an
// image: while the driver's own state is away none of its threads may run (the software GPU has holes there, as a real
// driver does).
func TestStorm(t *testing.T) {
	s := newSite(t)
	rounds := stormRounds
	if text := os.Getenv("HOLDFAST_STORM"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	stop := s.path("stop")
	p := s.start("storm", built.storm, stop)
	s.until("the storm is held", func() bool { return s.process("storm") != nil })
	last := ""
	kinds := []struct {
		name string
		do   func(dir string)
	}{
		{"whole", func(dir string) { s.ok("checkpoint", "storm", "-o", dir, "--leave-running"); last = dir }},
		{"gpu only, stage", func(dir string) {
			s.ok("checkpoint", "storm", "-o", dir, "--gpu-only", "--mode", "stage")
		}},
		{"suspended to the host", func(string) { s.ok("suspend", "storm"); s.ok("resume", "storm") }},
		{"gpu only, recopy", func(dir string) {
			s.ok("checkpoint", "storm", "-o", dir, "--gpu-only", "--mode", "recopy")
		}},
		{"whole, stop", func(dir string) {
			s.ok("checkpoint", "storm", "-o", dir, "--leave-running", "--mode", "stop")
			last = dir
		}},
		{"gpu only, cow", func(dir string) { s.ok("checkpoint", "storm", "-o", dir, "--gpu-only", "--mode", "cow") }},
		{"suspended on the GPU", func(string) { s.ok("suspend", "storm", "--to", "gpu"); s.ok("resume", "storm") }},
	}
	for i := range rounds {
		kind, image, previous := kinds[i%len(kinds)], s.path(fmt.Sprintf("images/%d", i)), last
		kind.do(image)
		// The image to restore from stays, the others would fill the disk in a thousand rounds.
		if previous != last {
			os.RemoveAll(previous)
		}
		if image != last {
			os.RemoveAll(image)
		}
		held := s.process("storm")
		if held == nil && p.running() {
			p.wait() // holdfast run ends a moment after the program
		}
		if !p.running() {
			t.Fatalf("round %d (%s): the program has ended with %d:\n%s", i, kind.name, p.status, p.text())
		}
		if held.State != api.StateRunning {
			t.Fatalf("round %d (%s): %+v", i, kind.name, held)
		}
		if rounds > stormRounds && i%50 == 49 {
			t.Logf("%d rounds", i+1)
		}
	}
	p.kill()
	r := s.launch("storm", "restore", last)
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.done()
}
