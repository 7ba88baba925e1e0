package measure

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
)

// TestRecent: what is remembered of a launch is what evaluating it says. The launches of the corpus are made in their
// order, then once more with their buffers moved: each by itself, or onto each other.
func TestRecent(t *testing.T) {
	apps, err := corpus.Load("../../../test/corpus")
	if err != nil {
		t.Fatal(err)
	}
	m := New(Defaults())
	r := rand.New(rand.NewPCG(1, 1))
	var one, other footprint.Instance
	var hits, moved uint64
	for i, a := range apps {
		if testing.Short() && i%8 != 0 {
			continue
		}
		var recent footprint.Recent
		j := m.newJob(t.Context(), a)
		compare := func(l *corpus.Launch, s *footprint.Summary, fl *footprint.Launch) {
			recent.Evaluate(s, fl, &one)
			s.Evaluate(fl, &other)
			if one.Verdict != other.Verdict || one.Cause != other.Cause || one.At != other.At ||
				one.Witness != other.Witness ||
				one.ReadsUnknown != other.ReadsUnknown || one.WritesUnknown != other.WritesUnknown ||
				!slices.Equal(one.Reads, other.Reads) || !slices.Equal(one.Writes, other.Writes) {
				t.Fatalf("%s, %s, params %x: %v at %d, %x, %x, %+v; by itself %v at %d, %x, %x, %+v", a.Name, l.Kernel,
					fl.Params,
					one.Verdict, one.At, one.Reads, one.Writes, one.Witness, other.Verdict, other.At, other.Reads,
					other.Writes, other.Witness)
			}
		}
		for round := range 4 {
			for _, e := range j.foreseen(t) {
				l, fl := &a.Launches[e.launch], e.l
				for at := 0; round > 0 && at+8 <= len(fl.Params); at += 8 {
					p := binary.LittleEndian.Uint64(fl.Params[at:])
					in := slices.IndexFunc(j.allocs, func(x footprint.Range) bool { return x.Lo <= p && p < x.Hi })
					switch to := r.IntN(len(j.allocs)); {
					case in < 0:
						continue
					case round == 1:
						p += uint64(in+1) << 34
					case round == 2 && r.IntN(2) == 0:
						p = j.allocs[to].Lo
					case round == 3:
						p += uint64(r.IntN(64)) * 4
					}
					binary.LittleEndian.PutUint64(fl.Params[at:], p)
				}
				before := recent.Hits
				compare(l, e.s, fl)
				if recent.Hits > before {
					hits++
					if round > 0 {
						moved++
					}
				}
			}
		}
		a.Release()
	}
	t.Logf("%d were remembered, %d of them moved", hits, moved)
	if moved < 1000 {
		t.Errorf("only %d: the test has become weak", moved)
	}
}

// foreseen is the launches of the application as footprints see them, in their order, with their modules.
func (j *job) foreseen(t testing.TB) iter.Seq2[*module, evaluation] {
	return func(yield func(*module, evaluation) bool) {
		for i := range j.a.Launches {
			l := &j.a.Launches[i]
			if l.Module == "" {
				continue
			}
			x, err := j.module(l.Module)
			if err != nil {
				t.Fatal(err)
			}
			s := x.summaries[l.Kernel]
			if s == nil {
				continue
			}
			fl, err := x.foresee(j.a, l, s, j.allocs)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(x, evaluation{s, fl, i}) {
				return
			}
		}
	}
}
