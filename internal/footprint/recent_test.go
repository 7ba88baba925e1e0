package footprint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/ptx"
)

// different says in what two instances of one launch differ.
func different(a, b *Instance) string {
	if a.Verdict != b.Verdict || a.Cause != b.Cause || a.At != b.At || a.Witness != b.Witness || a.ReadsUnknown != b.ReadsUnknown || a.WritesUnknown != b.WritesUnknown ||
		!slices.Equal(a.Reads, b.Reads) || !slices.Equal(a.Writes, b.Writes) {
		return fmt.Sprintf("%v, %v at %d, witness %+v, reads %x (%v), writes %x (%v); by itself %v, %v at %d, witness %+v, reads %x (%v), writes %x (%v)",
			a.Verdict, a.Cause, a.At, a.Witness, a.Reads, a.ReadsUnknown, a.Writes, a.WritesUnknown,
			b.Verdict, b.Cause, b.At, b.Witness, b.Reads, b.ReadsUnknown, b.Writes, b.WritesUnknown)
	}
	return ""
}

// What is remembered is what evaluating says: random kernels, launched with pointers that are anywhere, near each other, at the
// ends of all addresses, or as they were before.
func TestRecent(t *testing.T) {
	var recent Recent
	var one, other Instance
	hits := map[Verdict]int{}
	moved := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 21))
		g := &generator{r: r, regs: regFirst, known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}}
		list := g.block(2)
		if seed%3 == 0 {
			g.known = []int{regTid, regTidY, regN}
			list = g.congruent()
		}
		m, err := ptx.Parse("random.ptx", []byte(kernelText(list, g.regs)))
		if err != nil {
			t.Fatal(err)
		}
		sums, err := Summarise(m)
		if err != nil {
			t.Fatal(err)
		}
		s := sums[0]
		for range 3 {
			l, _ := randomLaunch(r, list, g.regs)
			if l == nil {
				continue
			}
			l.Known = nil
			places := []uint64{1 << 40, 1<<40 + 64, 1<<40 + 4, 1 << 41, 1<<41 - 128, 1 << 32, 1<<32 + 1<<12, 8}
			if r.IntN(4) == 0 {
				places = append(places, 0, 1<<63-64, 1<<63, 1<<64-16)
			}
			was := slices.Clone(l.Params)
			for try := range 24 {
				for _, b := range s.prog.plan.bases {
					x := places[r.IntN(len(places))] + uint64(r.IntN(3))*uint64(r.IntN(64))*4
					switch {
					case try == 0 || r.IntN(4) == 0:
						x = binary.LittleEndian.Uint64(was[b:])
					case r.IntN(2) == 0:
						x = uint64(1+r.IntN(8)) << 40
					}
					binary.LittleEndian.PutUint64(l.Params[b:], x)
				}
				if l.Allocs = nil; r.IntN(2) == 0 {
					l.Allocs = []Range{{1 << 32, 1<<32 + 1<<14}, {1 << 40, 1<<40 + 256}, {1 << 41, 1<<41 + 512}, {5 << 40, 6 << 40}}
				}
				before := recent.Hits
				recent.Evaluate(s, l, &one)
				s.Evaluate(l, &other)
				if bad := different(&one, &other); bad != "" {
					t.Fatalf("seed %d: %s\ngrid %v block %v params %x\n%s", seed, bad, l.Grid, l.Block, l.Params, kernelText(list, g.regs))
				}
				if recent.Hits > before {
					hits[one.Verdict]++
					if try > 0 && len(s.prog.plan.bases) > 0 {
						moved++
					}
				}
			}
		}
	}
	t.Logf("%v of %d were remembered, %d moved", hits, recent.Hits+recent.Misses, moved)
	if hits[Idempotent] < 5000 || hits[NotIdempotent] < 1000 || hits[Unknown] < 1000 || moved < 10000 {
		t.Errorf("%v, %d moved: the test has become weak", hits, moved)
	}
}
