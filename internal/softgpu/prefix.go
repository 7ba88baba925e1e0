package softgpu

import (
	"errors"
	"math/bits"
	"math/rand/v2"
)

// A Prefix says to stop a launch in the middle, as a GPU stops one that is killed: what was
// written stays written. Blocks start in a random order and run interleaved, warps of a block are picked at
// random, for a few instructions or a few thousand. The same Seed gives the same schedule.
type Prefix struct {
	Seed         uint64
	Instructions uint64 // of warps; the last slice may go a little beyond. 0: nothing runs
}

// ErrPrefix is what Launch returns when it stopped at the end of LaunchConfig.Prefix. A launch
// that was done before that returns nil.
var ErrPrefix = errors.New("stopped in the middle")

// A schedule makes the choices of a launch with a Prefix. One goroutine uses it.
type schedule struct {
	rand                  *rand.Rand
	left                  uint64 // warp instructions
	clusters, step, first uint64 // cluster number i of the schedule is (first + i*step) % clusters
}

func newSchedule(p *Prefix, clusters uint64) *schedule {
	s := &schedule{rand: rand.New(rand.NewPCG(p.Seed, 0)), left: p.Instructions, clusters: clusters, step: 1}
	s.first = s.rand.Uint64N(clusters)
	if clusters > 2 {
		for s.step = 0; gcd(s.step, clusters) != 1; {
			s.step = 1 + s.rand.Uint64N(clusters-1)
		}
	}
	return s
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// cluster is the i-th cluster to start. Every cluster is one of them, because step and clusters
// have no common divisor.
func (s *schedule) cluster(i uint64) uint64 {
	hi, lo := bits.Mul64(i, s.step)
	lo, carry := bits.Add64(lo, s.first, 0)
	return bits.Rem64(hi+carry, lo, s.clusters)
}

// most is the longest slice of a warp, as a power of two.
const most = 12

// run is block.run for a launch with a Prefix: it runs one warp for one slice.
func (s *schedule) run(b *block) bool {
	first := s.rand.IntN(len(b.warps))
	for i := range b.warps {
		w := b.warps[(first+i)%len(b.warps)]
		if !w.runnable() {
			continue
		}
		before := b.warpInsts
		b.running = w
		w.run(1 << s.rand.IntN(most+1))
		s.left -= min(s.left, b.warpInsts-before)
		b.poll()
		b.stuck = false
		if s.left == 0 {
			b.launch.fail(ErrPrefix)
		}
		return b.live == 0
	}
	b.stuck = true
	if len(b.cluster.blocks) == 1 {
		b.deadlock()
	}
	return false
}
