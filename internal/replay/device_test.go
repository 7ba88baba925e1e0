package replay_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
	"holdfast/internal/replay"
)

// A failing GPU does some words of a run, now and then, and then a kernel that faults or takes too long.
type failing struct {
	*raw.Backend
	stray, busy *engine.Launch
	runs        []int // how many there are up to each failure
	r           *rand.Rand
}

func (b *failing) Load(image []byte) (engine.Code, error) {
	c, err := b.Backend.Load(image)
	if err != nil {
		return nil, err
	}
	launch := func(kernel string, params []byte) *engine.Launch {
		k, err2 := c.Kernel(kernel)
		err = errors.Join(err, err2)
		one := [3]uint32{1, 1, 1}
		return &engine.Launch{Kernel: k, Grid: one, Block: one, Params: params}
	}
	b.stray = launch("stray", le.AppendUint64(nil, 0x1234_5678_9000))
	b.busy = launch("busy", le.AppendUint64(le.AppendUint64(nil, stagingAt+1<<20), 1_000_000_000))
	return c, err
}

func (b *failing) Prepare(words []engine.Word) (engine.Program, error) {
	p, err := b.Backend.Prepare(words)
	return &failingProgram{p, b, words}, err
}

type failingProgram struct {
	engine.Program
	b     *failing
	words []engine.Word
}

func (p *failingProgram) Run(timeout time.Duration) error {
	b := p.b
	if len(b.runs) == 0 {
		return p.Program.Run(timeout)
	}
	if b.runs[0]--; b.runs[0] > 0 {
		return p.Program.Run(timeout)
	}
	b.runs = b.runs[1:]
	bad := b.stray
	if len(b.runs)%2 == 0 {
		bad = b.busy
	}
	words := append(slices.Clone(p.words[:b.r.IntN(len(p.words)+1)]), engine.Word{Ops: []engine.Op{{Launch: bad}}})
	q, err := b.Backend.Prepare(words)
	if err != nil {
		return err
	}
	return errors.Join(q.Run(100*time.Millisecond), q.Close())
}

// On a GPU of sm_90 kernels fault and take too long beside a recording's words, and when copies are taken and put
// back: the bits are as without.
func TestDeviceRecover(t *testing.T) {
	if os.Getenv("HOLDFAST_RAW") != "required" {
		t.Skip("HOLDFAST_RAW is not set: the faults would stand in the machine's log")
	}
	for seed := range uint64(6) {
		f := chains(t, seed)
		b, err := raw.Open(raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := replay.Load(b, f, entries...)
		if err != nil {
			t.Fatal(err)
		}
		want := run(t, p.Entries, p.Reset, time.Minute, seed)
		if err := errors.Join(p.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		if b, err = raw.Open(raw.Options{}); err != nil {
			t.Fatal(err)
		}
		bad := &failing{Backend: b, r: rand.New(rand.NewPCG(seed, 8))}
		if p, err = replay.Load(bad, f, entries...); err != nil {
			t.Fatal(err)
		}
		rec, err := replay.NewRecoverer(p, replay.Recovery{Retries: 4})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			bad.runs = append(bad.runs, 1+bad.r.IntN(5))
		}
		if got := run(t, rec.Entries, rec.Reset, time.Minute, seed); !bytes.Equal(got, want) {
			t.Errorf("seed %d: other bits", seed)
		}
		t.Logf("%+v", rec.Done)
		if rec.Done.Retries == 0 {
			t.Error("nothing failed")
		}
		if err := errors.Join(rec.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}
