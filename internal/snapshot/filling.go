package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/cuda"
)

// Filling is a fill beside a program that runs already: it may use a chunk once Need has said so. What Need waits for
// comes first, then what FillOptions.Order names, then the rest in the order of the chunks.
type Filling struct {
	f     *fill
	items []fillItem
	of    []int // of each chunk: its item, -1 if it was right from the start
	order []int // items

	mu      sync.Mutex
	changed sync.Cond
	state   []fillState // of items
	wanted  []bool      // of items: Need waits for it, or has
	waits   int         // items that are wanted and not ready
	urgent  []int       // items that are wanted; those that nobody has claimed yet are all in here
	next    int         // everything before it in order has been looked at
	left    int         // items that nobody has claimed
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
// chunk is verified when it has arrived, before Need gives it away; after that it belongs to the program. The
// arguments stay in use until Wait returns.
func (e *Engine) StartFill(ctx context.Context, regions []*Region, digests [][]Digest, fetch func(Digest, []byte) error,
	opts FillOptions) (*Filling, error) {
	g := &Filling{f: &fill{e: e, table: newChunkTable(regions), fetch: fetch, opts: opts}, done: make(chan struct{})}
	g.changed.L = &g.mu
	start := time.Now()
	items, err := g.f.prepare(ctx, regions, digests)
	if err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	g.items = items
	g.state, g.wanted, g.left = make([]fillState, len(items)), make([]bool, len(items)), len(items)
	g.of = make([]int, len(g.f.want))
	for i := range g.of {
		g.of[i] = -1
	}
	for n, it := range items {
		for _, i := range it.chunks {
			g.of[i] = n
		}
	}
	g.arrange(opts.Order)
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

// arrange puts the items in order: first those that the spans touch.
func (g *Filling) arrange(first []Span) {
	placed := make([]bool, len(g.items))
	place := func(n int) {
		if n >= 0 && !placed[n] {
			placed[n] = true
			g.order = append(g.order, n)
		}
	}
	for _, sp := range first {
		if sp.Region < 0 || sp.Region >= len(g.f.table.first)-1 {
			continue
		}
		for i := range g.f.table.chunks([]Span{sp}) {
			place(g.of[i])
		}
	}
	for n := range g.items {
		place(n)
	}
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
	for {
		missing := false
		for i := range g.f.table.chunks(spans) {
			n := g.of[i]
			if n < 0 || g.state[n] == fillReady {
				continue
			}
			missing = true
			if g.wanted[n] {
				continue
			}
			g.wanted[n] = true
			g.waits++
			if g.state[n] == fillWaiting {
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
	return g.f.e.runBatches(ctx, func() *batch {
		if g.unclaimed() {
			return g.batch(ctx)
		}
		return nil
	})
}

// batch is one whose items a lane claims one by one, when it comes to it: what has become urgent meanwhile is among
// them.
func (g *Filling) batch(ctx context.Context) *batch {
	var items, chunks []int
	b := &batch{}
	b.begin = func(buf []byte, st cuda.Stream) error {
		for len(items) < g.f.e.batchChunks() {
			n := g.claim(items)
			if n < 0 {
				break
			}
			at := len(items) * ChunkSize
			items, chunks = append(items, n), append(chunks, g.items[n].chunks...)
			if err := g.f.fetchItem(g.items[n], buf[at:at+ChunkSize:at+ChunkSize], st); err != nil {
				return err
			}
		}
		b.soon = g.wants(items)
		return nil
	}
	b.end = func([]byte) error {
		if err := g.f.verifyChunks(ctx, chunks); err != nil {
			return err
		}
		g.ready(items)
		g.f.progress(len(items), uint64(len(g.items))*ChunkSize)
		return nil
	}
	return b
}

// hurried is how many items a batch has while somebody waits, if none of them is wanted: a lane delivers them together,
// and begins nothing else before it has fetched them.
const hurried = 2

// claim gives a lane another item for a batch that has some; -1 if there is none, or if it is to be delivered now.
func (g *Filling) claim(have []int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.urgent) > 0 {
		n := g.urgent[0]
		g.urgent = g.urgent[1:]
		if g.take(n) {
			return n
		}
	}
	if g.waits > 0 && (len(have) >= hurried || g.anyWanted(have)) {
		return -1
	}
	for g.next < len(g.order) {
		n := g.order[g.next]
		g.next++
		if g.take(n) {
			return n
		}
	}
	return -1
}

// take claims an item, with the lock held; false if it was claimed already.
func (g *Filling) take(n int) bool {
	if g.state[n] != fillWaiting {
		return false
	}
	g.state[n] = fillTaken
	g.left--
	return true
}

func (g *Filling) unclaimed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left > 0
}

// wants reports whether somebody waits for one of the items, which are not ready.
func (g *Filling) wants(items []int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.anyWanted(items)
}

func (g *Filling) anyWanted(items []int) bool {
	return slices.ContainsFunc(items, func(n int) bool { return g.wanted[n] })
}

func (g *Filling) ready(items []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range items {
		g.state[n] = fillReady
		if g.wanted[n] {
			g.waits--
		}
	}
	g.changed.Broadcast()
}
