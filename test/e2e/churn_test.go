package e2e

import (
	"fmt"
	"strconv"
	"testing"
)

// A program that frees and allocates without pause can be checkpointed at any moment, its memory alone and as a
// whole, and each block keeps what it holds.
func TestCheckpointBesideFrees(t *testing.T) {
	s := newSite(t)
	r := s.teller("churn")
	tag := r.send("churn 40")
	for i := range 5 {
		args := []string{"checkpoint", "churn", "-o", s.path(fmt.Sprintf("image-%d", i)), "--leave-running"}
		if i%4 != 3 {
			args = append(args, "--gpu-only")
		}
		s.ok(args...)
	}
	s.ok("images", "verify", s.path("image-4"))
	r.send("sum") // ends it
	if n, err := strconv.Atoi(r.expect(tag)[len("ok "):]); err != nil || n <= 80 {
		t.Errorf("%d blocks allocated beside the checkpoints: %v", n, err)
	}
}
