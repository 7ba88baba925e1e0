// Command compare finds where two backends of the engine part: it runs a recording word by word without a CUDA library
// and by libcuda, both from the same memory, and compares all memory after each word.
//
//	compare [-chain | -times N] [-entry E] MODEL.hfr
//
// Without -chain each word is a program of its own. With it the words up to each one are, from the beginning: what
// only goes wrong between two words shows there. The status is 1 if anything differs. With -times nothing is compared:
// it prints what each word adds to the time of those before it, the least of N runs, on both.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/driver"
	"holdfast/internal/engine/raw"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
)

func main() {
	chain := flag.Bool("chain", false, "run all words up to each one")
	times := flag.Int("times", 0, "measure: how many runs of the words up to each one")
	entry := flag.String("entry", "", "entry of the recording")
	flag.Parse()
	if flag.NArg() != 1 || *chain && *times > 0 {
		flag.Usage()
		os.Exit(2)
	}
	n, err := work(flag.Arg(0), *entry, *chain, *times)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	if n > 0 {
		os.Exit(1)
	}
}

// A side is a recording on one backend.
type side struct {
	name  string
	b     engine.Backend
	p     *replay.Player
	words []engine.Word
}

func open(name string, f *recording.File, entry string) (*side, error) {
	var b engine.Backend
	var err error
	if name == "raw" {
		b, err = raw.Open(raw.Options{})
	} else {
		b, err = driver.Open(driver.Config{})
	}
	if err != nil {
		return nil, err
	}
	p, err := replay.Load(b, f, entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &side{name: name, b: b, p: p}
	s.words, err = p.Entries[0].Words()
	return s, err
}

// run runs words once.
func (s *side) run(words []engine.Word) error {
	p, err := s.b.Prepare(words)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if err := p.Run(20 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return p.Close()
}

// work brings up both sides, and compares or measures.
func work(path, entry string, chain bool, times int) (differ int, err error) {
	f, err := recording.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sides [2]*side
	for i, name := range []string{"raw", "libcuda"} {
		if sides[i], err = open(name, f, entry); err != nil {
			return 0, err
		}
		defer sides[i].b.Close()
	}
	if times > 0 {
		return 0, measure(sides, times)
	}
	return compare(f, sides, chain)
}

func compare(f *recording.File, sides [2]*side, chain bool) (differ int, err error) {
	for w := range sides[0].words {
		for _, s := range sides {
			words := s.words[w : w+1]
			if chain {
				words = s.words[:w+1]
				if err := s.p.Reset(); err != nil {
					return differ, err
				}
			}
			if err := s.run(words); err != nil {
				return differ, fmt.Errorf("word %d: %w", w, errors.Join(err, describe(w, s.words[w])))
			}
		}
		same, err := check(f.Manifest, w, sides)
		if err != nil {
			return differ, err
		}
		if !same {
			differ++
			fmt.Println(describe(w, sides[0].words[w]))
		}
	}
	fmt.Printf("%d of %d words differ\n", differ, len(sides[0].words))
	return differ, nil
}

// check compares all memory, says what differs and makes it equal.
func check(m *recording.Manifest, w int, sides [2]*side) (same bool, err error) {
	same = true
	regions := slices.Clone(m.Memory)
	if m.Staging.Bytes > 0 {
		regions = append(regions, recording.Region{Addr: m.Staging.Addr, Bytes: m.Staging.Bytes, Class: "staging"})
	}
	for _, r := range regions {
		var got [2][]byte
		for i, s := range sides {
			got[i] = make([]byte, r.Bytes)
			if err := s.b.Read(uint64(r.Addr), got[i]); err != nil {
				return false, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if bytes.Equal(got[0], got[1]) {
			continue
		}
		same = false
		n, first, last := 0, -1, 0
		for i := range got[0] {
			if got[0][i] != got[1][i] {
				if n++; first < 0 {
					first = i
				}
				last = i
			}
		}
		at := first &^ 3
		to := min(at+16, len(got[0]))
		fmt.Printf("word %d: %d bytes of %v (%d bytes, %s) differ, from +%#x to +%#x: raw % x, libcuda % x\n", w, n,
			r.Addr, r.Bytes, r.Class, first, last, got[0][at:to], got[1][at:to])
		if err := sides[0].b.Write(uint64(r.Addr), got[1]); err != nil {
			return false, err
		}
	}
	return same, nil
}

// describe says what a word does.
func describe(w int, word engine.Word) error {
	var all []error
	for i, op := range word.Ops {
		switch {
		case op.Launch != nil:
			l := op.Launch
			all = append(all, fmt.Errorf("word %d, op %d: %s, grid %v, block %v, cluster %v, shared %d, "+
				"cooperative %v, parameters %x", w, i, l.Kernel.Name(), l.Grid, l.Block, l.Cluster, l.Shared,
				l.Cooperative, l.Params))
		case op.Copy != nil:
			all = append(all, fmt.Errorf("word %d, op %d: copy %+v", w, i, *op.Copy))
		default:
			all = append(all, fmt.Errorf("word %d, op %d: set %+v", w, i, *op.Set))
		}
	}
	return errors.Join(all...)
}
