package snapshot

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"holdfast/internal/cuda"
)

// FillOptions configures Fill.
type FillOptions struct {
	// Compare digests the regions first and leaves alone the chunks that are right already: for memory that
	// probably is (a rollback), not for new memory.
	Compare bool
	// Order is in which order StartFill fills; what it does not name comes afterwards. It is a hint: any spans will do.
	Order []Span
	// Progress is called after each batch, one call at a time. nil: not.
	Progress func(Progress)
}

// FillStats says what Fill did. Durations are nanoseconds in JSON.
type FillStats struct {
	Bytes   uint64 `json:"bytes"`
	Chunks  int    `json:"chunks"`
	Kept    int    `json:"chunks_kept"`    // right already
	Zero    int    `json:"chunks_zero"`    // set, not fetched
	Fetched int    `json:"chunks_fetched"` // each content once
	Copied  int    `json:"chunks_copied"`  // on the device, from another chunk with that content

	CompareNs time.Duration `json:"compare_ns"`
	CopyNs    time.Duration `json:"copy_ns"` // fetch, copy to the device, set
	VerifyNs  time.Duration `json:"verify_ns"`
	FillNs    time.Duration `json:"fill_ns"`
}

// BadChunk is a chunk whose content after Fill is not what was asked for.
type BadChunk struct {
	Region, Chunk int
	Want, Got     Digest
}

// BadChunksError lists the chunks that Fill found wrong at the end.
type BadChunksError struct{ Chunks []BadChunk }

func (e *BadChunksError) Error() string {
	const most = 4
	var b strings.Builder
	fmt.Fprintf(&b, "%d chunks are wrong in device memory: ", len(e.Chunks))
	for i, c := range e.Chunks[:min(len(e.Chunks), most)] {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "region %d chunk %d (offset %#x): digest %v, want %v", c.Region, c.Chunk,
			uint64(c.Chunk)*ChunkSize, c.Got, c.Want)
	}
	if len(e.Chunks) > most {
		b.WriteString("; …")
	}
	return b.String()
}

// fillItem is a content and where it goes.
type fillItem struct {
	digest Digest
	chunks []int
}

// Fill gives the regions the contents that digests names: digests[r][c] is chunk c of region r. fetch reads the chunk
// with a digest into a buffer of ChunkSize bytes; it is called from several goroutines, once per digest, never for
// ZeroDigest. At the end the digests of what is in device memory are compared; a difference is a [*BadChunksError].
func (e *Engine) Fill(ctx context.Context, regions []*Region, digests [][]Digest, fetch func(Digest, []byte) error,
	opts FillOptions) (FillStats, error) {
	f := &fill{e: e, table: newChunkTable(regions), fetch: fetch, opts: opts}
	start := time.Now()
	err := f.run(ctx, regions, digests)
	f.stats.FillNs = time.Since(start)
	if err != nil {
		return f.stats, fmt.Errorf("fill: %w", err)
	}
	return f.stats, nil
}

// fill is one call of Fill.
type fill struct {
	e     *Engine
	table *chunkTable
	want  []Digest
	fetch func(Digest, []byte) error
	opts  FillOptions
	stats FillStats

	mu   sync.Mutex
	done uint64
}

func (f *fill) run(ctx context.Context, regions []*Region, digests [][]Digest) error {
	items, err := f.prepare(ctx, regions, digests)
	if err != nil {
		return err
	}
	t := time.Now()
	if err := f.copy(ctx, items); err != nil {
		return err
	}
	f.stats.CopyNs += lap(&t)
	err = f.verify(ctx)
	f.stats.VerifyNs = lap(&t)
	return err
}

// prepare finds out what is to be fetched, and does the rest.
func (f *fill) prepare(ctx context.Context, regions []*Region, digests [][]Digest) ([]fillItem, error) {
	if len(digests) != len(regions) {
		return nil, fmt.Errorf("digests of %d regions for %d regions", len(digests), len(regions))
	}
	for r, d := range digests {
		if len(d) != regions[r].Chunks() {
			return nil, fmt.Errorf("region %d has %d chunks, but there are %d digests", r, regions[r].Chunks(), len(d))
		}
		f.want = append(f.want, d...)
	}
	f.stats.Chunks = len(f.want)
	f.stats.Bytes = uint64(len(f.want)) * ChunkSize
	t := time.Now()
	todo, err := f.todo(ctx)
	if err != nil {
		return nil, err
	}
	f.stats.CompareNs = lap(&t)
	zero, items := f.sort(todo)
	err = f.zero(zero)
	f.stats.CopyNs = lap(&t)
	return items, err
}

// todo returns the chunks that need filling.
func (f *fill) todo(ctx context.Context) ([]int, error) {
	var todo []int
	if !f.opts.Compare {
		for i := range f.want {
			todo = append(todo, i)
		}
		return todo, nil
	}
	now, err := f.e.digestChunks(ctx, f.table.addr, false)
	if err != nil {
		return nil, err
	}
	for i, d := range f.want {
		if now[i] != d {
			todo = append(todo, i)
		}
	}
	f.stats.Kept = len(f.want) - len(todo)
	return todo, nil
}

// sort divides the chunks into those to be zeroed and the others by content, in the order of first use.
func (f *fill) sort(todo []int) (zero []int, items []fillItem) {
	at := map[Digest]int{}
	for _, i := range todo {
		d := f.want[i]
		if d.IsZero() {
			zero = append(zero, i)
			continue
		}
		n, ok := at[d]
		if !ok {
			n = len(items)
			at[d] = n
			items = append(items, fillItem{digest: d})
		}
		items[n].chunks = append(items[n].chunks, i)
	}
	f.stats.Zero = len(zero)
	f.stats.Fetched = len(items)
	f.stats.Copied = len(todo) - len(zero) - len(items)
	return zero, items
}

// zero sets chunks to zero, a run of neighbours at a time.
func (f *fill) zero(chunks []int) error {
	return f.e.gpu.do(func() error {
		for len(chunks) > 0 {
			n := 1
			for n < len(chunks) && f.table.addr[chunks[n]] == f.table.addr[chunks[n-1]]+ChunkSize {
				n++
			}
			if err := f.e.drv.SetD32(f.table.addr[chunks[0]], 0, uint64(n)*ChunkSize/4, f.e.stream); err != nil {
				return err
			}
			chunks = chunks[n:]
		}
		return f.e.wait(false)
	})
}

// copy fetches the items and copies them to the device.
func (f *fill) copy(ctx context.Context, items []fillItem) error {
	total := uint64(len(items)) * ChunkSize
	return f.e.runBatches(ctx, func() *batch {
		if len(items) == 0 {
			return nil
		}
		part := items[:min(f.e.batchChunks(), len(items))]
		items = items[len(part):]
		return &batch{
			begin: func(buf []byte, st cuda.Stream) error { return f.fetchPart(part, buf, st) },
			end: func([]byte) error {
				f.progress(len(part), total)
				return nil
			},
		}
	})
}

func (f *fill) progress(items int, total uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done += uint64(items) * ChunkSize
	if f.opts.Progress != nil {
		f.opts.Progress(Progress{"fill", f.done, total})
	}
}

// fetchPart fetches items into buf, each with its copies queued as soon as it is there.
func (f *fill) fetchPart(items []fillItem, buf []byte, st cuda.Stream) error {
	for n, it := range items {
		if err := f.fetchItem(it, buf[n*ChunkSize:(n+1)*ChunkSize:(n+1)*ChunkSize], st); err != nil {
			return err
		}
	}
	return nil
}

func (f *fill) fetchItem(it fillItem, data []byte, st cuda.Stream) error {
	first := it.chunks[0]
	if err := f.fetch(it.digest, data); err != nil {
		return fmt.Errorf("%s: fetch %v: %w", f.table.name(first), it.digest, err)
	}
	if err := f.e.drv.CopyHtoD(f.table.addr[first], data, st); err != nil {
		return fmt.Errorf("%s: %w", f.table.name(first), err)
	}
	for _, i := range it.chunks[1:] {
		if err := f.e.drv.CopyDtoD(f.table.addr[i], f.table.addr[first], ChunkSize, st); err != nil {
			return fmt.Errorf("%s: %w", f.table.name(i), err)
		}
	}
	return nil
}

// verify compares what is in device memory with what was asked for.
func (f *fill) verify(ctx context.Context) error {
	all := make([]int, len(f.want))
	for i := range all {
		all[i] = i
	}
	return f.verifyChunks(ctx, all)
}

func (f *fill) verifyChunks(ctx context.Context, chunks []int) error {
	addr := make([]cuda.DevicePtr, len(chunks))
	for n, i := range chunks {
		addr[n] = f.table.addr[i]
	}
	now, err := f.e.digestChunks(ctx, addr, false)
	if err != nil {
		return err
	}
	bad := &BadChunksError{}
	for n, i := range chunks {
		if now[n] != f.want[i] {
			r, c := f.table.where(i)
			bad.Chunks = append(bad.Chunks, BadChunk{r, c, f.want[i], now[n]})
		}
	}
	if len(bad.Chunks) > 0 {
		return bad
	}
	return nil
}
