// Command coalesce runs recordings of small independent work for bench/pack/sgemm.py.
//
//	coalesce word [-rounds N] MODEL.hfr             the recording's words, without a CUDA library
//	coalesce tenants -n R [-rounds N] MODEL.hfr     R address spaces with the recording in each, all started at once
//	coalesce loop -for D MODEL.hfr                  the recording by libcuda, again and again for a while
//
// word and tenants print the least and the median time of a round in us, from before the start until the host has seen
// that all is complete, without words of copies, and a hash of the memory at "ADDRESS BYTES" lines on standard input:
// of each tenant's. loop waits for a line on standard input, runs, and prints how often.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
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
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "coalesce:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("word, tenants or loop")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	n := flags.Int("n", 1, "tenants")
	rounds := flags.Int("rounds", 200, "how often")
	long := flags.Duration("for", time.Second, "how long")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	f, err := recording.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer f.Close()
	if args[0] == "loop" {
		return loop(f, *long)
	}
	return together(f, *n, *rounds)
}

// A tenant is a recording on an address space.
type tenant struct {
	b     engine.Sharer
	p     *replay.Player
	parts engine.Parts
	n     int // parts
}

func together(f *recording.File, n, rounds int) (err error) {
	b, err := raw.Open(raw.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var tenants []tenant
	for i := range n {
		on := engine.Sharer(b)
		if i > 0 {
			if on, err = b.Beside(); err != nil {
				return err
			}
		}
		t, err := load(on, f)
		if err != nil {
			return err
		}
		tenants = append(tenants, t)
	}
	took, err := measure(b, tenants, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("host %.1f %.1f", us(took[0]), us(took[len(took)/2]))
	hash := fnv.New64a()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var addr, size uint64
		if _, err := fmt.Sscanf(in.Text(), "at %v %d", &addr, &size); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		for i, t := range tenants {
			mem := make([]byte, size)
			if err := t.b.Read(addr, mem); err != nil {
				return fmt.Errorf("tenant %d: %w", i, err)
			}
			hash.Write(mem)
		}
	}
	fmt.Printf(" hash %016x\n", hash.Sum64())
	for _, t := range tenants {
		err = errors.Join(err, t.parts.Close(), t.p.Close())
	}
	return err
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func load(on engine.Sharer, f *recording.File) (t tenant, err error) {
	t.b = on
	if t.p, err = replay.Load(on, f); err != nil {
		return t, err
	}
	words, err := t.p.Entries[0].Words()
	words = slices.DeleteFunc(words, func(w engine.Word) bool { return w.Ops[0].Launch == nil })
	if err == nil {
		t.parts, err = on.Divide(words, nil)
	}
	if err == nil {
		t.n = len(t.parts.Shapes())
	}
	return t, err
}

// measure runs all tenants at once, each part by part.
func measure(b engine.Sharer, tenants []tenant, rounds int) ([]time.Duration, error) {
	const warm = 100 * time.Millisecond // until the GPU's clocks are up
	var took []time.Duration
	next := make([]int, len(tenants))
	var starts []engine.Start
	for begun := time.Now(); len(took) < rounds; {
		starts = starts[:0]
		for i, t := range tenants {
			next[i] = 0
			starts = append(starts, engine.Start{Parts: t.parts})
		}
		at := time.Now()
		b.Start(starts)
		for left := len(tenants); left > 0; {
			starts = starts[:0]
			for i, t := range tenants {
				if next[i] == t.n || !t.parts.Done() {
					continue
				}
				if next[i]++; next[i] == t.n {
					left--
				} else {
					starts = append(starts, engine.Start{Parts: t.parts, Part: next[i]})
				}
			}
			if len(starts) > 0 {
				b.Start(starts)
			}
			if time.Since(at) > 10*time.Second {
				return nil, errors.Join(errors.New("it does not end"), b.Failed())
			}
		}
		if d := time.Since(at); time.Since(begun) > warm {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	return took, nil
}

func loop(f *recording.File, long time.Duration) (err error) {
	b, err := driver.Open(driver.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	p, err := replay.Load(b, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Entries[0].Run(10 * time.Second); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	n := 0
	for begun := time.Now(); time.Since(begun) < long; n++ {
		if err := p.Entries[0].Run(10 * time.Second); err != nil {
			return err
		}
	}
	fmt.Println(n)
	return nil
}
