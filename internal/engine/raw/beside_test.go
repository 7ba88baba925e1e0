package raw

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
)

// space is an address space with words that multiply and add.
type space struct {
	b     *Backend
	parts engine.Parts
	next  int
	runs  uint32
}

// newSpaces makes spaces of the same words: three in a chain, one of five, one of one. Two parts more begin where the
// host has to start something, one at a cut.
func newSpaces(t testing.TB, b *Backend, c *code, n int) []*space {
	t.Helper()
	var out []*space
	for i := range n {
		if i > 0 {
			o, err := b.Beside()
			if err == nil {
				err = o.Map(base, 64<<20)
			}
			if err != nil {
				t.Fatal(i, err)
			}
			b = o.(*Backend)
			c = loadOn(t, b)
		}
		words := make([]engine.Word, 6)
		for w := range words {
			words[w].Ops = []engine.Op{chainOp(t, c, base, 3, uint32(i+w))}
		}
		for l := range uint64(4) {
			words[4].Ops = append(words[4].Ops, chainOp(t, c, base+256*(l+1), 5, uint32(l)))
		}
		p, err := b.Divide(words, []int{2})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Write(base, make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
		out = append(out, &space{b: b, parts: p})
	}
	want := "[{0 2 2 W} {2 2 2 W} {4 1 5 W} {5 1 1 W}]"
	got := fmt.Sprint(out[0].parts.Shapes())
	if got = strings.ReplaceAll(got, fmt.Sprint(out[0].parts.Shapes()[0].Width), "W"); got != want {
		t.Fatalf("parts %v, want %s", got, want)
	}
	return out
}

// check compares what the runs of space i have left in memory.
func (s *space) check(t *testing.T, i int) {
	t.Helper()
	want := [5]uint32{}
	for range s.runs {
		for w := range uint32(6) {
			want[0] = want[0]*3 + uint32(i) + w
		}
		for l := range uint32(4) {
			want[l+1] = want[l+1]*5 + l
		}
	}
	got := make([]byte, 2048)
	if err := s.b.Read(base, got); err != nil {
		t.Fatal(err)
	}
	for l, x := range want {
		if y := le.Uint32(got[256*l:]); y != x {
			t.Errorf("space %d, lane %d after %d runs: %#x, want %#x", i, l, s.runs, y, x)
		}
	}
}

// runSpaces runs each so many times, all at once, part by part.
func runSpaces(t *testing.T, all []*space, runs uint32) {
	t.Helper()
	var starts []engine.Start
	deadline := time.Now().Add(time.Minute)
	for i, s := range all {
		s.next, s.runs = 0, 0
		starts = append(starts, engine.Start{Parts: all[i].parts})
		if err := s.b.Write(base, make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
	}
	all[0].b.Start(starts)
	for left := len(all); left > 0; {
		starts = starts[:0]
		for _, s := range all {
			if s.runs == runs || !s.parts.Done() {
				continue
			}
			if s.next++; s.next == len(s.parts.Shapes()) {
				s.next = 0
				if s.runs++; s.runs == runs {
					left--
					continue
				}
			}
			starts = append(starts, engine.Start{Parts: s.parts, Part: s.next})
		}
		all[0].b.Start(starts)
		if err := all[0].b.Failed(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	for i, s := range all {
		s.check(t, i)
	}
}

// trySpaces runs several address spaces at once, has one of them fail, and goes on.
func trySpaces(t *testing.T, b *Backend, c *code, n int, runs uint32) {
	t.Helper()
	all := newSpaces(t, b, c, n)
	runSpaces(t, all, runs)
	stray := chainOp(t, loadOn(t, all[1].b), base+1<<36, 1, 1)
	bad, err := all[1].b.Divide([]engine.Word{{Ops: []engine.Op{stray}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Start([]engine.Start{{Parts: bad}})
	for deadline := time.Now().Add(time.Minute); ; {
		if err = all[0].b.Failed(); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it did not fail")
		}
	}
	var f *engine.Fault
	if !errors.As(err, &f) {
		t.Errorf("the failure is %v", err)
	}
	began := time.Now()
	if err := all[2].b.Revive(); err != nil {
		t.Fatal(err)
	}
	t.Log("revived after", time.Since(began))
	runSpaces(t, all, runs)
	p, err := all[2].b.Prepare([]engine.Word{{Ops: []engine.Op{chainOp(t, loadOn(t, all[2].b), base, 1, 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.Join(p.Run(time.Minute), p.Close(), bad.Close(), all[1].parts.Close(), all[1].b.Close())
	if gone != nil {
		t.Error(gone)
	}
	all = append(all[:1:1], all[2:]...)
	runSpaces(t, all[:1], runs)
	for _, s := range all {
		if err := s.parts.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Address spaces beside each other run at the same time, know nothing of each other, and can be revived.
func TestBeside(t *testing.T) {
	for _, version := range []string{"580.95.05", "570.86.16"} {
		d, b := play(t, version, Options{})
		c := load(t, d, b)
		if err := b.Map(base, 64<<20); err != nil {
			t.Fatal(err)
		}
		trySpaces(t, b, c, 4, 3)
	}
}

func TestDeviceBeside(t *testing.T) {
	b := gpu(t)
	trySpaces(t, b, loadOn(t, b), 40, 1000)
}

// Parts of several address spaces run at the same time on the GPU.
func TestDeviceAtOnce(t *testing.T) {
	b := gpu(t)
	all := newSpaces(t, b, loadOn(t, b), 8)
	var starts []engine.Start
	for i, s := range all {
		// A block is busy for as long as it is told to be, whatever the others do.
		l := launchOf(t, loadOn(t, s.b), "busy", le.AppendUint64(le.AppendUint64(nil, base+1<<20), 200_000_000))
		p, err := s.b.Divide([]engine.Word{{Ops: []engine.Op{{Launch: l}}}}, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		starts = append(starts, engine.Start{Parts: p})
	}
	began := time.Now()
	b.Start(starts[:1])
	for !starts[0].Parts.Done() {
	}
	alone := time.Since(began)
	began = time.Now()
	b.Start(starts)
	took := time.Since(began)
	for _, s := range starts {
		for !s.Parts.Done() {
		}
	}
	t.Logf("alone %v, %d at once %v, started after %v", alone, len(starts), time.Since(began), took)
	if together := time.Since(began); together > 2*alone {
		t.Errorf("alone %v, %d at once %v", alone, len(starts), together)
	}
	// What does not end by itself is ended.
	began = time.Now()
	b.Start(starts[:1])
	if err := b.Revive(); err != nil {
		t.Fatal(err)
	}
	t.Log("revived beside a busy kernel after", time.Since(began))
	for i, s := range all {
		if err := errors.Join(starts[i].Parts.Close(), s.parts.Close()); err != nil {
			t.Error(err)
		}
	}
}

// What it takes to start parts and to see that they are complete: 1, 2, 4, 8 empty ones.
func BenchmarkDeviceParts(b *testing.B) {
	g := gpu(b)
	var starts []engine.Start
	for _, s := range newSpaces(b, g, loadOn(b, g), 8) {
		l := launchOf(b, loadOn(b, s.b), "empty", nil)
		p, err := s.b.Divide([]engine.Word{{Ops: []engine.Op{{Launch: l}}}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		starts = append(starts, engine.Start{Parts: p})
		defer func() {
			if err := errors.Join(p.Close(), s.parts.Close()); err != nil {
				b.Error(err)
			}
		}()
	}
	for n := 1; n <= len(starts); n *= 2 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.Start(starts[:n])
				for _, s := range starts[:n] {
					for !s.Parts.Done() {
					}
				}
			}
		})
	}
}
