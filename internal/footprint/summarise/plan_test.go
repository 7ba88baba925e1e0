package summarise

import (
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/footprint"
)

// What contexts share must not change what is said of a launch: random kernels, whose contexts are evaluated together
// and each by itself.
func TestPlan(t *testing.T) {
	shared, alone := 0, 0
	var one, other footprint.Instance
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := &generator{r: r, regs: regFirst,
			known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}}
		list := g.block(2)
		src := kernelText(list, g.regs)
		s := summarised(t, "random", src)
		apart := s.Apart()
		shared += s.Inspect().Steps
		alone += apart.Inspect().Steps
		for range 4 {
			l, _, _, _ := randomArguments(r)
			s.Evaluate(l, &one)
			apart.Evaluate(l, &other)
			same := one.Verdict == other.Verdict && one.Cause == other.Cause && one.At == other.At &&
				one.Witness == other.Witness
			if !same || !slices.Equal(one.Reads, other.Reads) || !slices.Equal(one.Writes, other.Writes) {
				t.Fatalf("seed %d: %v, %v and %v; by itself %v, %v and %v\n%s", seed, one.Verdict, one.Reads,
					one.Writes, other.Verdict, other.Reads, other.Writes, src)
			}
		}
	}
	t.Logf("%d steps instead of %d", shared, alone)
	if shared > alone*9/10 {
		t.Errorf("%d steps instead of %d: little is shared", shared, alone)
	}
}
