package e2e

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// Graphs whose works do not commute: what was recorded of them is as parallel as the program's graphs are, and whatever
// order it is run in gives the program's result. HOLDFAST_GRAPHS says how many programs are tried.
func TestRecordGraphs(t *testing.T) {
	s := newSite(t)
	n := 10
	if v := os.Getenv("HOLDFAST_GRAPHS"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	for seed := range n {
		file, out := s.path(fmt.Sprintf("%d.hfr", seed)), s.path("program")
		length := 0
		text := s.ok("record", "-o", file, "--gpu=soft", "--", built.dags, fmt.Sprint(seed), out)
		if _, err := fmt.Sscan(text, &length); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		want := s.read("program")
		s.ok("replay", file, "--backend", "soft", "--out", "out0="+s.path("out"))
		if got := s.read("out"); got != want {
			t.Errorf("seed %d: replayed %x\nthe program %x", seed, got, want)
		}
		f, err := recording.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		work, err := f.Work(&f.Manifest.Entries[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := levels(work); got != length {
			t.Errorf("seed %d: %d words, the program needs %d", seed, got, length)
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		for range 20 {
			if got := shuffled(t, f, work, rng); got != want {
				t.Fatalf("seed %d: in another order %x\nthe program %x", seed, got, want)
			}
		}
		f.Close()
	}
}

// levels is how many words the work makes.
func levels(work []recording.Work) (n int) {
	level := make([]int, len(work))
	for i, w := range work {
		for _, a := range w.After {
			level[i] = max(level[i], level[a]+1)
		}
		n = max(n, level[i]+1)
	}
	return n
}

// shuffled is the output of the work of dags.c in some order that it may run in.
func shuffled(t *testing.T, f *recording.File, work []recording.Work, rng *rand.Rand) string {
	e := &f.Manifest.Entries[0]
	in, err := f.Read(*e.Inputs[0].Recorded)
	if err != nil {
		t.Fatal(err)
	}
	x := work[0].Copy.Dst
	mem := map[uint64]uint32{}
	for i := 0; i < len(in); i += 4 {
		mem[uint64(e.Inputs[0].Addr)+uint64(i)] = binary.LittleEndian.Uint32(in[i:])
	}
	word := func(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
	waits, next := make([]int, len(work)), make([][]int, len(work))
	var ready []int
	for i, w := range work {
		for _, a := range w.After {
			next[a] = append(next[a], i)
		}
		if waits[i] = len(w.After); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		k := rng.IntN(len(ready))
		i := ready[k]
		ready = slices.Delete(ready, k, k+1)
		if l := work[i].Launch; l != nil {
			dst, src := x+4*uint64(word(l.Params, 8)), x+4*uint64(word(l.Params, 12))
			mem[dst] = (mem[dst]^mem[src])*word(l.Params, 16) + word(l.Params, 20)
		} else if c := work[i].Copy; c.Flags&trace.Set != 0 {
			mem[c.Dst] = uint32(c.Src)
		} else {
			for at := uint64(0); at < c.Width; at += 4 {
				mem[c.Dst+at] = mem[c.Src+at]
			}
		}
		for _, w := range next[i] {
			if waits[w]--; waits[w] == 0 {
				ready = append(ready, w)
			}
		}
	}
	var out strings.Builder
	for at := uint64(0); at < uint64(e.Outputs[0].Bytes); at += 4 {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], mem[uint64(e.Outputs[0].Addr)+at])
		out.Write(b[:])
	}
	return out.String()
}
