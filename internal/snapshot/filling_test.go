package snapshot

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fresh makes new memory for an image, and returns regions and what a program would map.
func fresh(t *testing.T, e *Engine, frozen [][]byte) []*Region {
	t.Helper()
	var regions []*Region
	for r, want := range frozen {
		region, fd, err := e.Create(uint64(len(want)))
		if err := errors.Join(err, syscall.Close(fd)); err != nil {
			t.Fatalf("region %d: %v", r, err)
		}
		regions = append(regions, region)
	}
	return regions
}

// TestFillOnDemand: what is asked for is right when Need returns, and all of it in the end.
func TestFillOnDemand(t *testing.T) {
	p := newProgram(t, 23, 80, 24, 1, 9)
	p.mems[2].Write(8*ChunkSize, []byte("a content of its own"))
	e, regions, done := p.engine(t)
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	to := fresh(t, e, frozen)
	g, err := e.StartFill(t.Context(), to, digests, sink.fetch, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spans := []Span{{Region: 2, Off: 8*ChunkSize + 5, Len: 100}}
	if err := g.Need(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	if got, err := e.digestChunks(t.Context(), newChunkTable(to).addr[24+1+8:][:1], false); err != nil ||
		got[0] != digests[2][8] {
		t.Errorf("digest %v, want %v (%v)", got, digests[2][8], err)
	}
	st, err := g.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if st.Zero+st.Fetched+st.Copied != st.Chunks || g.Missing() != 0 {
		t.Errorf("%d bytes missing: %+v", g.Missing(), st)
	}
	if err := g.Need(t.Context(), []Span{{Region: 0, Len: 24 * ChunkSize}}); err != nil {
		t.Error(err)
	}
	all, err := e.Digest(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	for r := range all {
		for c, d := range all[r] {
			if d != digests[r][c] {
				t.Errorf("region %d chunk %d: %v, want %v", r, c, d, digests[r][c])
			}
		}
		if err := to[r].Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFillOnDemandFirst: with everything else held back, what Need asks for is the next that is fetched.
func TestFillOnDemandFirst(t *testing.T) {
	p := newProgram(t, 24, 60, 20)
	for c := range 20 {
		p.mems[0].Write(c*ChunkSize, bytes.Repeat([]byte{byte(c + 1)}, 64))
	}
	e, regions, done := p.engine(t)
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	to := fresh(t, e, frozen)
	began, goOn := make(chan Digest, 64), make(chan struct{})
	g, err := e.StartFill(t.Context(), to, digests, func(d Digest, buf []byte) error {
		began <- d
		<-goOn
		return sink.fetch(d, buf)
	}, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each of two lanes is at work
		<-began
	}
	needed := make(chan error, 1)
	go func() { needed <- g.Need(t.Context(), []Span{{Region: 0, Off: 19 * ChunkSize, Len: 1}}) }()
	for asked := false; !asked; {
		g.mu.Lock()
		asked = len(g.urgent) > 0
		g.mu.Unlock()
	}
	goOn <- struct{}{} // one of them goes on
	if d := <-began; d != digests[0][19] {
		t.Error("another chunk was fetched next")
	}
	close(goOn)
	if err := <-needed; err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, r := range to {
		r.Close()
	}
}

// TestFillOrder: what the order names comes first, in that order, and the rest in the order of the chunks; whatever is
// no memory is left out. Without an order (the near miss) chunk follows chunk.
func TestFillOrder(t *testing.T) {
	p := newProgram(t, 26, 60, 8, 6)
	for r, m := range p.mems {
		for c := range p.sizes[r] {
			m.Write(c*ChunkSize, bytes.Repeat([]byte{byte(8*r + c + 1)}, 64))
		}
	}
	p.mems[1].Write(5*ChunkSize, make([]byte, ChunkSize)) // is not fetched
	e, regions, done := p.engineOf(t, EngineOptions{PinnedBytes: 4 * ChunkSize, Lanes: 1, Reserve: 1})
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	name := map[Digest]int{}
	for r := range digests {
		for c, d := range digests[r] {
			name[d] = 8*r + c
		}
	}
	for what, x := range map[string]struct {
		order []Span
		want  []int
	}{
		"none": {nil, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		"order": {[]Span{
			{Region: 1, Off: 2 * ChunkSize, Len: 2 * ChunkSize}, {Region: 0, Off: 7*ChunkSize + 9, Len: 1},
			{Region: 1, Off: 3 * ChunkSize, Len: 3 * ChunkSize}, {Region: 0, Off: ChunkSize - 1, Len: 2},
		}, []int{10, 11, 7, 12, 0, 1, 2, 3, 4, 5, 6, 8, 9}},
		"hostile": {[]Span{
			{Region: 2, Len: ChunkSize}, {Region: -1, Len: ChunkSize}, {Region: 1, Off: 99 * ChunkSize, Len: ChunkSize},
			{Region: 1, Off: 4 * ChunkSize, Len: ^uint64(0)}, {Region: 0, Off: ^uint64(0), Len: ^uint64(0)},
		}, []int{12, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		t.Run(what, func(t *testing.T) {
			to := fresh(t, e, frozen)
			var got []int
			g, err := e.StartFill(t.Context(), to, digests, func(d Digest, buf []byte) error {
				got = append(got, name[d]) // there is one lane
				return sink.fetch(d, buf)
			}, FillOptions{Order: x.order})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("fetched %v, want %v", got, x.want)
			}
			all, err := e.Digest(t.Context(), to)
			if err != nil || !reflect.DeepEqual(all, digests) {
				t.Errorf("not what it should hold (%v)", err)
			}
			for _, r := range to {
				r.Close()
			}
		})
	}
}

// TestFillUrgent: what Need waits for is delivered as soon as it is there, and fetched by as many lanes as there are.
func TestFillUrgent(t *testing.T) {
	p := newProgram(t, 27, 60, 24)
	for c := range 24 {
		p.mems[0].Write(c*ChunkSize, bytes.Repeat([]byte{byte(c + 1)}, 64))
	}
	e, regions, done := p.engineOf(t, EngineOptions{PinnedBytes: 32 * ChunkSize, Lanes: 2, Reserve: 1}) // batches of 8
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	to := fresh(t, e, frozen)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	wait := func(c <-chan struct{}) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return errors.New("waited in vain")
		}
	}
	asked, over, both := make(chan struct{}), make(chan struct{}), make(chan struct{})
	began := make(chan struct{}, 64)
	var urgent atomic.Int32
	g, err := e.StartFill(t.Context(), to, digests, func(d Digest, buf []byte) error {
		switch d {
		case digests[0][0], digests[0][1]: // the lanes are at these
			began <- struct{}{}
			if err := wait(asked); err != nil {
				return err
			}
		case digests[0][20], digests[0][22]: // one lane alone would wait for the other for ever
			if urgent.Add(1) == 2 {
				close(both)
			}
			if err := wait(both); err != nil {
				return err
			}
		default: // not before Need has returned
			if err := wait(over); err != nil {
				return err
			}
		}
		return sink.fetch(d, buf)
	}, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := wait(began); err != nil {
			t.Fatal(err)
		}
	}
	needed := make(chan error, 1)
	go func() {
		needed <- g.Need(ctx, []Span{{Region: 0, Off: 20 * ChunkSize, Len: 1},
			{Region: 0, Off: 22 * ChunkSize, Len: 1}})
	}()
	for waits := 0; waits < 2; {
		g.mu.Lock()
		waits = g.waits
		g.mu.Unlock()
	}
	close(asked)
	if err := <-needed; err != nil {
		t.Fatal(err)
	}
	if left := g.Missing(); left != 20*ChunkSize {
		t.Errorf("%d bytes were missing then", left)
	}
	close(over)
	if _, err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, r := range to {
		r.Close()
	}
}

// TestFillOnDemandFails: whoever waits is told.
func TestFillOnDemandFails(t *testing.T) {
	p := newProgram(t, 25, 60, 12)
	p.mems[0].Write(11*ChunkSize, []byte("a content of its own"))
	e, regions, done := p.engine(t)
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	to := fresh(t, e, frozen)
	broken := errors.New("unreadable")
	g, err := e.StartFill(t.Context(), to, digests, func(d Digest, buf []byte) error {
		if d == digests[0][11] {
			return broken
		}
		return sink.fetch(d, buf)
	}, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Need(t.Context(), []Span{{Region: 0, Off: 11 * ChunkSize, Len: 1}}); !errors.Is(err, broken) {
		t.Errorf("need: %v", err)
	}
	if _, err := g.Wait(); !errors.Is(err, broken) {
		t.Errorf("wait: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Need(ctx, []Span{{Region: 0, Off: 11 * ChunkSize, Len: 1}}); err == nil {
		t.Error("need of a failed fill")
	}
	for _, r := range to {
		r.Close()
	}
}
