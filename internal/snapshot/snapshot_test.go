package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/cuda"
	"holdfast/internal/snapshot/digest"
)

// TestImageIsTheFrozenState writes the memory at every moment that the driver gives a program to do so, in all modes
// and with device memory for all, some and no staging, and compares the image with the memory at the freeze.
func TestImageIsTheFrozenState(t *testing.T) {
	for _, mode := range []Mode{Auto, Stage, Recopy, Stop} {
		for _, spare := range []int{0, 3, 7, 40} {
			for seed := range uint64(1) { // more when something is suspected
				t.Run(fmt.Sprintf("%v/%d spare/%d", mode, spare, seed), func(t *testing.T) {
					p := newProgram(t, seed*100+uint64(10*int(mode)+spare), spare, 5, 1, 7)
					e, regions, done := p.engine(t)
					defer done()
					p.drv.Between = p.step
					sink := newStore()
					// Two images one after the other into one store, as incremental checkpoints are.
					for round := range 2 {
						p.run(true)
						for range 20 {
							p.step()
						}
						opts := Options{Mode: mode, Have: sink.Have, VerifyEvery: 2}
						digests, frozen, st, err := p.cycle(t.Context(), e, regions, sink, opts, true)
						if err != nil {
							t.Fatalf("round %d: %v", round, err)
						}
						if err := sink.check(digests, frozen); err != nil {
							t.Fatalf("round %d: %v (%+v)", round, err, st)
						}
						if mode == Stage && spare == 40 && st.CaptureDrain+st.Predrained != 0 {
							t.Errorf("round %d: drained before the thaw although all fits: %+v", round, st)
						}
					}
					if p.writes < 10 || mode != Stop && p.writes < 30 {
						t.Errorf("the program wrote only %d times", p.writes)
					}
				})
			}
		}
	}
}

func TestCaptureWithoutPrecopy(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		spare int
		want  Mode
	}{{Auto, 40, Stage}, {Auto, 0, Stop}, {Stage, 40, Stage}, {Stage, 3, Stage}, {Recopy, 40, Recopy},
		{Stop, 40, Stop}} {
		p := newProgram(t, 5, c.spare, 4, 4)
		e, regions, done := p.engine(t)
		p.drv.Between = p.step
		sink := newStore()
		digests, frozen, st, err := p.cycle(t.Context(), e, regions, sink, Options{Mode: c.mode}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.check(digests, frozen); err != nil {
			t.Errorf("%v with %d spare: %v", c.mode, c.spare, err)
		}
		if st.Mode != c.want {
			t.Errorf("%v with %d spare: mode %v (%s), want %v", c.mode, c.spare, st.Mode, st.Why, c.want)
		}
		done()
	}
}

func TestModeThatIsUsed(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		spare int
		want  Mode
		why   string
	}{
		{Auto, 40, Stage, "holds a copy of all"},
		{Auto, 4, Stage, "the rest is drained first"},
		{Auto, 0, Recopy, "no free device memory"},
		{Stage, 0, Recopy, "no free device memory"},
		{Recopy, 40, Recopy, "asked for"},
	} {
		p := newProgram(t, 6, c.spare, 16)
		e, regions, done := p.engine(t)
		_, _, st, err := p.cycle(t.Context(), e, regions, newStore(), Options{Mode: c.mode}, true)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode != c.want || !strings.Contains(st.Why, c.why) {
			t.Errorf("%v with %d spare: %v (%s), want %v (…%s…)", c.mode, c.spare, st.Mode, st.Why, c.want, c.why)
		}
		done()
	}
}

// TestRecopySkipsWhatChangesAllTheTime: draining that before the stall would be in vain.
func TestRecopySkipsWhatChangesAllTheTime(t *testing.T) {
	p := newProgram(t, 8, 0, 12)
	for c := range 12 {
		p.mems[0].Write(c*ChunkSize, bytes.Repeat([]byte{byte(c + 1)}, 64))
	}
	e, regions, done := p.engine(t)
	defer done()
	n := byte(0)
	p.drv.Between = func() { // chunks 3 and 7 are written all the time
		n++
		p.mems[0].Write(3*ChunkSize+8, []byte{n})
		p.mems[0].Write(7*ChunkSize+8, []byte{n})
	}
	s := e.Begin(regions, Options{Mode: Recopy})
	defer s.Close()
	sink := newStore()
	if err := s.Precopy(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	p.drv.Between = nil
	frozen := p.contents()
	if err := s.Capture(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(t.Context(), sink); err != nil {
		t.Fatal(err)
	}
	if err := sink.check([][]Digest{s.Digests(0)}, frozen); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Predrained != 10 || st.Skipped != 2 || st.CaptureDrain != 2 {
		t.Errorf("%+v", st)
	}
}

// TestIdleProgramCostsNothingInTheStall: what did not change is neither copied nor drained again.
func TestIdleProgramCostsNothingInTheStall(t *testing.T) {
	p := newProgram(t, 7, 40, 5, 8)
	e, regions, done := p.engine(t)
	defer done()
	sink := newStore()
	_, _, first, err := p.cycle(t.Context(), e, regions, sink, Options{Mode: Stage, Have: sink.Have}, true)
	if err != nil {
		t.Fatal(err)
	}
	if first.CaptureCopied != 0 || first.CaptureDrain != 0 || first.Changed != 0 || first.New == 0 {
		t.Errorf("first image: %+v", first)
	}
	if first.New >= first.Chunks-first.Zero {
		t.Errorf("equal chunks were stored apart: %+v", first)
	}
	_, _, second, err := p.cycle(t.Context(), e, regions, sink, Options{Mode: Stage, Have: sink.Have}, true)
	if err != nil {
		t.Fatal(err)
	}
	if second.New != 0 || second.Staged != 0 || second.Had != second.Chunks-second.Zero {
		t.Errorf("second image of the same memory: %+v", second)
	}
	if used := p.drv.Used(); used != 14*ChunkSize {
		t.Errorf("device memory in use afterwards: %d chunks, want 14", used/ChunkSize)
	}
}

func TestMaxStaging(t *testing.T) {
	p := newProgram(t, 8, 40, 12)
	e, regions, done := p.engine(t)
	defer done()
	_, _, st, err := p.cycle(t.Context(), e, regions, newStore(),
		Options{Mode: Stage, MaxStaging: 3*ChunkSize + 5}, true)
	if err != nil || st.StagingBytes != 3*ChunkSize {
		t.Errorf("%d bytes staged, %v", st.StagingBytes, err)
	}
}

// TestWriteDuringTheStallIsFound: a program that is not really frozen must not yield an image.
func TestWriteDuringTheStallIsFound(t *testing.T) {
	p := newProgram(t, 9, 40, 4)
	for c := range 4 {
		chunk := make([]byte, ChunkSize)
		p.fill(chunk)
		p.mems[0].Write(c*ChunkSize, chunk)
	}
	e, regions, done := p.engine(t)
	defer done()
	s := e.Begin(regions, Options{Mode: Stage})
	defer s.Close()
	n := byte(0)
	p.drv.Between = func() { n++; p.mems[0].Write(2*ChunkSize+77, []byte{n}) }
	err := s.Capture(t.Context(), newStore())
	if err == nil || !strings.Contains(err.Error(),
		"region 0 chunk 2 (offset 0x400000) changed while the program was frozen") {
		t.Errorf("got %v", err)
	}
}

// TestDamageOnTheWayIsFound alters what copies deliver.
func TestDamageOnTheWayIsFound(t *testing.T) {
	for _, c := range []struct {
		op   string
		mode Mode
		want string
	}{
		{digest.CopyKernel, Stage, "the staged copy at"},
		{"cuMemcpyDtoHAsync", Stage, "digest of the bytes that arrived"},
		{"cuMemcpyDtoHAsync", Stop, "digest of the bytes that arrived"},
	} {
		p := newProgram(t, 10, 40, 6)
		e, regions, done := p.engine(t)
		var once sync.Once
		p.drv.Alter = func(op string, written []byte) {
			if op == c.op && len(written) >= ChunkSize {
				once.Do(func() { written[ChunkSize/3] ^= 4 })
			}
		}
		_, _, _, err := p.cycle(t.Context(), e, regions, newStore(), Options{Mode: c.mode, VerifyEvery: 1}, true)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "region 0 chunk ") {
			t.Errorf("%v with a bad %s: %v", c.mode, c.op, err)
		}
		done()
	}
}

func TestSinkErrorEndsTheStep(t *testing.T) {
	full := errors.New("disk full")
	for _, mode := range []Mode{Stage, Recopy, Stop} {
		p := newProgram(t, 11, 40, 20)
		e, regions, done := p.engine(t)
		sink := newStore()
		sink.fail = full
		_, _, _, err := p.cycle(t.Context(), e, regions, sink, Options{Mode: mode}, true)
		if !errors.Is(err, full) || !strings.Contains(err.Error(), "region 0 chunk ") {
			t.Errorf("%v: %v", mode, err)
		}
		// The engine is as good as before.
		good := newStore()
		digests, frozen, _, err := p.cycle(t.Context(), e, regions, good, Options{Mode: mode}, true)
		if err := errors.Join(err, good.check(digests, frozen)); err != nil {
			t.Errorf("%v afterwards: %v", mode, err)
		}
		done()
	}
}

// TestFailedPrecopyIsNotBuiltUpon: chunks whose storing failed must not count as stored.
func TestFailedPrecopyIsNotBuiltUpon(t *testing.T) {
	p := newProgram(t, 18, 40, 8)
	e, regions, done := p.engine(t)
	defer done()
	sink := newStore()
	sink.fail = errors.New("for a moment")
	s := e.Begin(regions, Options{Mode: Recopy})
	defer s.Close()
	if err := s.Precopy(t.Context(), sink); !errors.Is(err, sink.fail) {
		t.Errorf("precopy: %v", err)
	}
	was := sink.fail
	sink.fail = nil
	if err := s.Capture(t.Context(), sink); !errors.Is(err, was) {
		t.Errorf("capture after it: %v", err)
	}
	if err := s.Drain(t.Context(), sink); !errors.Is(err, was) {
		t.Errorf("drain after it: %v", err)
	}
}

func TestDrainWithoutCapture(t *testing.T) {
	p := newProgram(t, 19, 40, 2)
	e, regions, done := p.engine(t)
	defer done()
	s := e.Begin(regions, Options{})
	defer s.Close()
	if err := s.Drain(t.Context(), newStore()); err == nil {
		t.Error("drained what was never captured")
	}
}

func TestCancelledContextEndsTheStep(t *testing.T) {
	p := newProgram(t, 12, 40, 20)
	e, regions, done := p.engine(t)
	defer done()
	why := errors.New("the user changed his mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	sink := newStore()
	s := e.Begin(regions, Options{Mode: Recopy, Progress: func(Progress) { cancel(why) }})
	defer s.Close()
	if err := s.Precopy(ctx, sink); !errors.Is(err, why) {
		t.Errorf("precopy: %v", err)
	}
	if err := s.Capture(ctx, sink); !errors.Is(err, why) {
		t.Errorf("capture: %v", err)
	}
	if err := s.Drain(ctx, sink); err == nil {
		t.Error("drain of what was not captured succeeded")
	}
}

func TestTwoSnapshotsAtOnce(t *testing.T) {
	p := newProgram(t, 13, 60, 6, 8)
	e, regions, done := p.engine(t)
	defer done()
	frozen := p.contents()
	var wg sync.WaitGroup
	for i, r := range regions {
		wg.Go(func() {
			sink := newStore()
			s := e.Begin([]*Region{r}, Options{})
			defer s.Close()
			for _, step := range []func(context.Context, Sink) error{s.Precopy, s.Capture, s.Drain} {
				if err := step(t.Context(), sink); err != nil {
					t.Error(err)
				}
			}
			if err := sink.check([][]Digest{s.Digests(0)}, frozen[i:i+1]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestProgressReachesItsTotal(t *testing.T) {
	p := newProgram(t, 14, 40, 15)
	e, regions, done := p.engine(t)
	defer done()
	var last Progress
	_, _, st, err := p.cycle(t.Context(), e, regions, newStore(), Options{Mode: Stage, Progress: func(pr Progress) {
		if pr.Done < last.Done {
			t.Errorf("%+v after %+v", pr, last)
		}
		last = pr
	}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Progress{"drain", uint64(st.New) * ChunkSize, uint64(st.New) * ChunkSize}); last != want {
		t.Errorf("last progress %+v, want %+v", last, want)
	}
}

func TestEmptySnapshot(t *testing.T) {
	p := newProgram(t, 15, 40, 1)
	e, _, done := p.engine(t)
	_ = done
	for _, mode := range []Mode{Auto, Stage, Recopy, Stop} {
		s := e.Begin(nil, Options{Mode: mode})
		for _, step := range []func(context.Context, Sink) error{s.Precopy, s.Capture, s.Drain} {
			if err := step(t.Context(), newStore()); err != nil {
				t.Errorf("%v: %v", mode, err)
			}
		}
	}
	done()
}

func TestRegionsRefuseOddSizes(t *testing.T) {
	p := newProgram(t, 16, 4, 1)
	e, _, done := p.engine(t)
	defer done()
	for _, size := range []uint64{0, 1, ChunkSize - 1, ChunkSize + 4096} {
		if r, err := e.Import(p.fds[0], size); err == nil {
			t.Errorf("imported %#x bytes as %d chunks", size, r.Chunks())
		}
		if r, _, err := e.Create(size); err == nil {
			t.Errorf("created %#x bytes as %d chunks", size, r.Chunks())
		}
	}
	if _, err := e.Import(p.fds[0], 2*ChunkSize); err == nil {
		t.Error("imported more than there is")
	}
	if _, err := e.Import(-1, ChunkSize); err == nil {
		t.Error("imported no descriptor")
	}
	if _, _, err := e.Create(1000 * ChunkSize); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Errorf("created more than the device has: %v", err)
	}
}

func TestDigestOfRegions(t *testing.T) {
	p := newProgram(t, 17, 4, 3, 2)
	e, regions, done := p.engine(t)
	defer done()
	got, err := e.Digest(t.Context(), regions)
	if err != nil {
		t.Fatal(err)
	}
	for r, data := range p.contents() {
		for c := range len(data) / ChunkSize {
			if want := digest.Sum(data[c*ChunkSize : (c+1)*ChunkSize]); got[r][c] != want {
				t.Errorf("region %d chunk %d: %v, want %v", r, c, got[r][c], want)
			}
		}
	}
}

func TestModeText(t *testing.T) {
	for _, m := range []Mode{Auto, Stage, Recopy, Stop, Cow} {
		text, err := json.Marshal(m)
		var back Mode
		if err2 := json.Unmarshal(text, &back); err != nil || err2 != nil || back != m ||
			!bytes.Contains(text, []byte(m.String())) {
			t.Errorf("%v → %s → %v, %v, %v", m, text, back, err, err2)
		}
	}
	var m Mode
	if err := m.UnmarshalText([]byte("live")); err == nil {
		t.Error("mode live was accepted")
	}
}

// TestRegionRead reads parts of a region, across the end of the buffer for that too.
func TestRegionRead(t *testing.T) {
	p := newProgram(t, 3, 4, 1, 3)
	_, regions, done := p.engine(t)
	defer done()
	want := p.contents()[1]
	for _, x := range [][2]uint64{{0, 8}, {ChunkSize - 4, 8}, {12, 2*ChunkSize + 5}, {3*ChunkSize - 1, 1},
		{3 * ChunkSize, 0}} {
		got := make([]byte, x[1])
		if err := regions[1].Read(x[0], got); err != nil || !bytes.Equal(got, want[x[0]:][:x[1]]) {
			t.Errorf("%d bytes at %#x: %v, or they differ", x[1], x[0], err)
		}
	}
	for _, x := range [][2]uint64{{3*ChunkSize - 1, 2}, {3*ChunkSize + 1, 0}, {1<<64 - 1, 8}} {
		if err := regions[1].Read(x[0], make([]byte, x[1])); err == nil {
			t.Errorf("%d bytes at %#x: no error", x[1], x[0])
		}
	}
}

// A lane that finds no memory to pin fails what it is given, not what comes when there is memory again.
func TestLanesRecover(t *testing.T) {
	p := newProgram(t, 7, 40, 4, 4)
	var scarce atomic.Bool
	var pinned atomic.Int32
	scarce.Store(true)
	p.drv.Fault = func(call string) error {
		if call == "cuMemHostAlloc" && pinned.Add(1) > 1 && scarce.Load() { // the first is the engine's own
			return &cuda.Error{Call: call, Code: cuda.ErrOutOfMemory}
		}
		return nil
	}
	e, regions, done := p.engine(t)
	sink := newStore()
	if _, _, _, err := p.cycle(t.Context(), e, regions, sink, Options{}, false); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatalf("without memory to pin: %v", err)
	}
	scarce.Store(false)
	digests, frozen, _, err := p.cycle(t.Context(), e, regions, sink, Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.check(digests, frozen); err != nil {
		t.Error(err)
	}
	done()
}
