package snapshot

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
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
	if got, err := e.digestChunks(t.Context(), newChunkTable(to).addr[24+1+8:][:1], false); err != nil || got[0] != digests[2][8] {
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
	began := make(chan Digest, 64)
	hold := make(chan struct{})
	g, err := e.StartFill(t.Context(), to, digests, func(d Digest, buf []byte) error {
		began <- d
		<-hold
		return sink.fetch(d, buf)
	}, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := digests[0][19]
	<-began // a lane is at work
	needed := make(chan error, 1)
	go func() { needed <- g.Need(t.Context(), []Span{{Region: 0, Off: 19 * ChunkSize, Len: 1}}) }()
	for asked := false; !asked; {
		g.mu.Lock()
		asked = len(g.urgent) > 0 || g.state[g.of[19]] != fillWaiting
		g.mu.Unlock()
	}
	close(hold)
	if err := <-needed; err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	close(began)
	at, n := -1, 1
	for d := range began {
		if d == last {
			at = n
		}
		n++
	}
	// Two lanes with two buffers of two chunks each, and as many batches again in the queue, were filled before.
	if at < 0 || at > 14 {
		t.Errorf("fetched as number %d of %d", at, n)
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
