package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/cuda"
)

// Filling is a fill beside a program that runs already: it may use a chunk once Need has said so. Contents come in the order
// of the chunks, but those that Need waits for come first.
type Filling struct {
	f     *fill
	items []fillItem
	of    []int // of each chunk: its item, -1 if it was right from the start

	mu      sync.Mutex
	changed sync.Cond
	state   []fillState // of items
	urgent  []int       // items
	next    int         // items below have been looked at
	over    bool
	err     error

	done chan struct{} // closed when over
}

type fillState uint8

const (
	fillWaiting fillState = iota
	fillTaken
	fillReady
)

// StartFill begins what [Engine.Fill] does and returns as soon as it is known what is missing and zeros are set. Each
// chunk is verified when it has arrived, before Need gives it away; after that it is the program's. The arguments stay in
// use until Wait returns.
func (e *Engine) StartFill(ctx context.Context, regions []*Region, digests [][]Digest, fetch func(Digest, []byte) error, opts FillOptions) (*Filling, error) {
	g := &Filling{f: &fill{e: e, table: newChunkTable(regions), fetch: fetch, opts: opts}, done: make(chan struct{})}
	g.changed.L = &g.mu
	start := time.Now()
	items, err := g.f.prepare(ctx, regions, digests)
	if err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	g.items = items
	g.state = make([]fillState, len(items))
	g.of = make([]int, len(g.f.want))
	for i := range g.of {
		g.of[i] = -1
	}
	for n, it := range items {
		for _, i := range it.chunks {
			g.of[i] = n
		}
	}
	go func() {
		defer close(g.done)
		err := g.run(ctx)
		g.f.stats.FillNs = time.Since(start)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.over, g.err = true, err
		g.changed.Broadcast()
	}()
	return g, nil
}

// Wait returns when all is filled, or why it is not.
func (g *Filling) Wait() (FillStats, error) {
	<-g.done
	if g.err != nil {
		return g.f.stats, fmt.Errorf("fill: %w", g.err)
	}
	return g.f.stats, nil
}

// Missing returns how many bytes have not arrived.
func (g *Filling) Missing() (bytes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, st := range g.state {
		if st != fillReady {
			bytes += uint64(len(g.items[n].chunks)) * ChunkSize
		}
	}
	return bytes
}

// Ready reports whether Need would return at once.
func (g *Filling) Ready(spans []Span) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.f.table.chunks(spans) {
		if n := g.of[i]; n >= 0 && g.state[n] != fillReady {
			return false
		}
	}
	return true
}

// All returns when everything is filled.
func (g *Filling) All(ctx context.Context) error {
	select {
	case <-g.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := g.Wait()
	return err
}

// Need returns when the chunks that the spans touch hold what they should. An error means that they never will.
func (g *Filling) Need(ctx context.Context, spans []Span) error {
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changed.Broadcast()
	})
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := map[int]bool{}
	for {
		missing := false
		for i := range g.f.table.chunks(spans) {
			n := g.of[i]
			if n < 0 || g.state[n] == fillReady {
				continue
			}
			missing = true
			if g.state[n] == fillWaiting && !asked[n] {
				asked[n] = true
				g.urgent = append(g.urgent, n)
			}
		}
		switch {
		case !missing:
			return nil
		case g.over:
			return errors.Join(errors.New("not all of the memory could be filled"), g.err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		g.changed.Wait()
	}
}

func (g *Filling) run(ctx context.Context) error {
	t := time.Now()
	defer func() { g.f.stats.CopyNs += lap(&t) }()
	total := uint64(len(g.items)) * ChunkSize
	return g.f.e.runBatches(ctx, func() *batch {
		taken := g.take(g.f.e.batchChunks())
		if len(taken) == 0 {
			return nil
		}
		part := make([]fillItem, len(taken))
		var chunks []int
		for k, n := range taken {
			part[k] = g.items[n]
			chunks = append(chunks, part[k].chunks...)
		}
		return &batch{
			begin: func(buf []byte, st cuda.Stream) error { return g.f.fetchPart(part, buf, st) },
			end: func([]byte) error {
				if err := g.f.verifyChunks(ctx, chunks); err != nil {
					return err
				}
				g.ready(taken)
				g.f.progress(len(part), total)
				return nil
			},
		}
	})
}

// take gives a lane items: only those that somebody waits for, if there are any.
func (g *Filling) take(most int) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	var taken []int
	claim := func(n int) {
		if g.state[n] == fillWaiting {
			g.state[n] = fillTaken
			taken = append(taken, n)
		}
	}
	for len(taken) < most && len(g.urgent) > 0 {
		claim(g.urgent[0])
		g.urgent = g.urgent[1:]
	}
	if len(taken) > 0 {
		return taken
	}
	for len(taken) < most && g.next < len(g.items) {
		claim(g.next)
		g.next++
	}
	return taken
}

func (g *Filling) ready(items []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range items {
		g.state[n] = fillReady
	}
	g.changed.Broadcast()
}
