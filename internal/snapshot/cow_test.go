package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"holdfast/internal/cuda"
)

// writer writes chunks of a program from a goroutine of its own, as launches do, after announcing them.
type writer struct {
	p        *program
	s        *Snapshot
	rng      *rand.Rand
	announce func() bool // of each write
	stop     chan struct{}
	done     sync.WaitGroup
	writes   int
	err      error
}

func (w *writer) start(ctx context.Context) {
	w.stop = make(chan struct{})
	w.done.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			if err := w.write(ctx); err != nil {
				w.err = err
				return
			}
		}
	})
}

// write writes the ends of a span of up to four chunks.
func (w *writer) write(ctx context.Context) error {
	r := w.rng.IntN(len(w.p.mems))
	from := w.rng.IntN(w.p.sizes[r])
	to := min(from+1+w.rng.IntN(4), w.p.sizes[r])
	sp := Span{Region: r, Off: uint64(from)*ChunkSize + 8, Len: uint64(to-from)*ChunkSize - 8}
	if w.announce() {
		if err := w.s.BeforeWrite(ctx, []Span{sp}); err != nil {
			return err
		}
	}
	w.writes++
	for c := from; c < to; c++ {
		w.p.mems[r].Write(c*ChunkSize+8*(1+w.rng.IntN(1000)), []byte{byte(w.rng.Uint32()), 1, 2, 3})
	}
	return nil
}

// cowCycle takes a snapshot in mode Cow while a writer runs.
func cowCycle(t *testing.T, p *program, seed uint64, announce func() bool, sink *store,
	opts Options) (digests [][]Digest, frozen [][]byte, st Stats, w *writer, err error) {
	t.Helper()
	e, regions, done := p.engine(t)
	defer done()
	opts.Mode, opts.Have = Cow, sink.Have
	s := e.Begin(regions, opts)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Precopy(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	frozen = p.contents()
	if err := s.Capture(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	w = &writer{p: p, s: s, rng: rand.New(rand.NewPCG(seed, 2)), announce: announce}
	if st := s.Stats(); st.StagingBytes > 0 {
		// One write before any lane has begun.
		if err := s.BeforeWrite(t.Context(), []Span{{Region: 2, Off: 5*ChunkSize + 1, Len: 1}}); err != nil {
			t.Fatal(err)
		}
		p.mems[2].Write(5*ChunkSize+1, []byte{byte(seed) + 1})
	}
	w.start(t.Context())
	err = s.Drain(t.Context(), sink)
	close(w.stop)
	w.done.Wait()
	if err == nil {
		for r := range regions {
			digests = append(digests, s.Digests(r))
		}
	}
	return digests, frozen, s.Stats(), w, err
}

// TestCow: with every write announced the image is the state of the freeze, however little memory there is to copy
// aside.
func TestCow(t *testing.T) {
	for _, spare := range []int{0, 3, 40} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%d spare/%d", spare, seed), func(t *testing.T) {
				p := newProgram(t, seed, spare, 9, 1, 8)
				p.mems[2].Write(5*ChunkSize, []byte("a content of its own"))
				sink := newStore()
				for round := range 2 {
					digests, frozen, st, w, err := cowCycle(t, p, seed, func() bool { return true }, sink, Options{})
					if err != nil || w.err != nil {
						t.Fatalf("round %d: %v; writer: %v", round, err, w.err)
					}
					if err := sink.check(digests, frozen); err != nil {
						t.Fatalf("round %d: %v (%+v)", round, err, st)
					}
					if st.CaptureCopied+st.CaptureDrain+st.Staged+st.Predrained != 0 {
						t.Errorf("round %d: copied before the thaw: %+v", round, st)
					}
					if st.StagingBytes > 0 && round == 0 && st.Aside == 0 {
						t.Errorf("nothing copied aside: %+v", st)
					}
					if most := uint64(18/cowShare+1) * ChunkSize; st.StagingBytes > most {
						t.Errorf("round %d: %d bytes of staging, more than %d", round, st.StagingBytes, most)
					}
				}
			})
		}
	}
}

// TestCowMisprediction: a write that nobody announced is never taken for the state of the freeze.
func TestCowMisprediction(t *testing.T) {
	for seed := range uint64(12) {
		p := newProgram(t, seed, 3, 9, 1, 8)
		rng := rand.New(rand.NewPCG(seed, 3))
		sink := newStore()
		digests, frozen, _, w, err := cowCycle(t, p, seed, func() bool { return rng.IntN(3) > 0 }, sink, Options{})
		var bad *MispredictedError
		switch {
		case errors.As(err, &bad):
			if bad.Want == bad.Got || bad.Off%ChunkSize != 0 {
				t.Errorf("seed %d: %v", seed, bad)
			}
		case err != nil:
			t.Errorf("seed %d: %v", seed, err)
		default:
			if err := sink.check(digests, frozen); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
		if w.err != nil && !errors.As(w.err, &bad) {
			t.Errorf("seed %d: writer: %v", seed, w.err)
		}
	}
}

// TestCowSurprise: what one write that nobody announced destroyed is named.
func TestCowSurprise(t *testing.T) {
	p := newProgram(t, 1, 3, 4, 6)
	p.mems[1].Write(2*ChunkSize, []byte("a content of its own"))
	e, regions, done := p.engine(t)
	defer done()
	sink := newStore()
	s := e.Begin(regions, Options{Mode: Cow})
	defer s.Close()
	if err := s.Precopy(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	if err := s.Capture(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	p.mems[1].Write(2*ChunkSize, []byte("another"))
	err := s.Drain(t.Context(), sink)
	var bad *MispredictedError
	if !errors.As(err, &bad) || bad.Region != 1 || bad.Off != 2*ChunkSize {
		t.Errorf("drain: %v", err)
	}
	if err := s.BeforeWrite(t.Context(), []Span{{Region: 1, Len: 1}}); !errors.As(err, &bad) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestCowGivenUp: whoever waits in BeforeWrite is let go when the snapshot fails or is closed.
func TestCowGivenUp(t *testing.T) {
	for name, drain := range map[string]bool{"closed": false, "sink failed": true} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, 1, 0, 20)
			e, regions, done := p.engine(t)
			defer done()
			sink := newStore()
			sink.fail = errors.New("no space")
			s := e.Begin(regions, Options{Mode: Cow})
			if err := s.Precopy(t.Context(), sink); err != nil {
				t.Fatal(err)
			}
			if err := s.Capture(t.Context(), sink); err != nil {
				t.Fatal(err)
			}
			waited := make(chan error)
			go func() { waited <- s.BeforeWrite(t.Context(), []Span{{Region: 0, Len: 20 * ChunkSize}}) }()
			if drain {
				if err := s.Drain(t.Context(), sink); !errors.Is(err, sink.fail) {
					t.Errorf("drain: %v", err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-waited; err == nil {
				t.Error("BeforeWrite says that all is kept")
			}
		})
	}
}

// TestCowRescue: a launch does not wait for a lane that has a chunk under way if there is a slot for it, and what the
// lane brings then counts only if it is good.
func TestCowRescue(t *testing.T) {
	table := &chunkTable{addr: make([]cuda.DevicePtr, 3), first: []int{0, 3}}
	span := []Span{{Region: 0, Off: 0, Len: 1}}
	begin := func() (*cow, []int, []int) {
		c := newCow(3, []int{0, 1, 2}, []int{7})
		if got := c.take(1); !slices.Equal(got, []int{0}) {
			t.Fatalf("taken: %v", got)
		}
		take, slots, _ := c.claim(table, span)
		if !slices.Equal(take, []int{0}) || !slices.Equal(slots, []int{7}) || !c.state[0].open() {
			t.Fatalf("claimed: %v into %v", take, slots)
		}
		if take, _, wait := c.claim(table, span); len(take) > 0 || !wait {
			t.Fatalf("somebody else: %v, waits %v", take, wait)
		}
		return c, take, slots
	}
	for _, tc := range []struct {
		name        string
		first, good bool // the lane is first; what it brings is good
		state       cowState
	}{
		{"lane first", true, true, cowKept}, {"lane last", false, true, cowKept},
		{"written meanwhile", false, false, cowAside},
	} {
		c, chunks, slots := begin()
		if tc.first {
			c.arrived(chunks)
		}
		c.moved(chunks, slots)
		if c.state[0].open() {
			t.Errorf("%s: the launch still waits", tc.name)
		}
		if !tc.first {
			c.arrived(chunks)
		}
		again := c.checked(0, tc.good)
		if c.state[0] != tc.state || again == tc.good || len(c.free) == 1 != tc.good || len(c.aside) == 1 == tc.good {
			t.Errorf("%s: state %d, again %v, %d slots free, aside %v", tc.name, c.state[0], again, len(c.free),
				c.aside)
		}
	}
}

// TestCowInterleavings steps lanes and launches through what they share, in random orders: every chunk is stored once
// with what it held at the freeze, whatever is written as soon as it may be, no slot is used twice or lost, and all of
// it ends.
func TestCowInterleavings(t *testing.T) {
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n, slots := 1+rng.IntN(5), rng.IntN(4)
		table := &chunkTable{addr: make([]cuda.DevicePtr, n), first: []int{0, n}}
		memory, aside, stored := make([]int, n), make([]int, slots), make([]int, n)
		all, names := make([]int, n), make([]int, slots)
		for i := range all {
			all[i] = i
		}
		for i := range names {
			names[i] = i
		}
		c := newCow(n, all, names)
		lane := func() func() bool { // a step; whether it found nothing to do
			var chunks, got, from []int
			phase := 0
			return func() bool {
				switch {
				case phase == 0:
					if chunks = c.take(1 + rng.IntN(3)); len(chunks) == 0 {
						return true
					}
					got, from = nil, nil
					for _, i := range chunks {
						slot := -1
						if c.state[i] == cowAside {
							slot = c.slot[i]
						}
						from = append(from, slot)
					}
					phase = 1
				case len(got) < len(chunks):
					k := len(got)
					if from[k] >= 0 {
						got = append(got, aside[from[k]])
					} else {
						got = append(got, memory[chunks[k]])
					}
				case phase == 1:
					c.arrived(chunks)
					phase = 2
				case phase-2 < len(chunks):
					k := phase - 2
					phase++
					if c.checked(chunks[k], got[k] == 0) {
						break
					}
					if got[k] != 0 {
						t.Fatalf("seed %d: chunk %d was written before it was kept", seed, chunks[k])
					}
					stored[chunks[k]]++
				default:
					phase = 0
				}
				return false
			}
		}
		writes := 0
		writer := func() func() {
			var spans []Span
			var chunks, to, got []int
			return func() {
				switch {
				case spans == nil:
					at := rng.IntN(n)
					spans = []Span{{Off: uint64(at) * ChunkSize, Len: uint64(1+rng.IntN(n-at)) * ChunkSize}}
				case len(got) < len(chunks):
					k := len(got)
					got = append(got, memory[chunks[k]])
					aside[to[k]] = got[k]
				case len(chunks) > 0: // as moveAside ends
					c.moving -= len(chunks)
					for k, i := range chunks {
						if c.state[i] != cowKept && got[k] != 0 {
							t.Fatalf("seed %d: chunk %d was written before it was aside", seed, i)
						}
					}
					c.moved(chunks, to)
					chunks, got = nil, nil
				default:
					var wait bool
					if chunks, to, wait = c.claim(table, spans); len(chunks) == 0 && !wait {
						writes++
						for i := range table.chunks(spans) {
							memory[i] = writes
						}
						spans = nil
					}
				}
			}
		}
		lanes, writers := []func() bool{lane(), lane()}, []func(){writer(), writer(), writer()}
		idle := 0 // lanes in a row
		for step := 0; !c.finished; step++ {
			if step == 100000 {
				t.Fatalf("seed %d: no end: states %v, aside %v, free %v, %d moving", seed, c.state, c.aside, c.free,
					c.moving)
			}
			if rng.IntN(2) == 0 {
				writers[rng.IntN(len(writers))]()
			} else if k := rng.IntN(len(lanes)); !lanes[k]() {
				idle = 0
			} else if idle |= 1 << k; idle == 1<<len(lanes)-1 && c.moving == 0 {
				if _, err := c.settle(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, s := range c.state {
			if s != cowKept || stored[i] != 1 {
				t.Fatalf("seed %d: chunk %d: state %d, stored %d times", seed, i, s, stored[i])
			}
		}
		if slices.Sort(c.free); !slices.Equal(c.free, names) || len(c.slot) > 0 {
			t.Fatalf("seed %d: %d slots, free %v, %v in use", seed, slots, c.free, c.slot)
		}
	}
}
