package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"

	"holdfast/internal/trace"
)

// A File is a recording that is open for reading. Its methods may be called from several goroutines at once.
type File struct {
	Manifest *Manifest
	Digest   Digest // of the manifest, and so of everything
	Size     int64
	r        io.ReaderAt
	c        io.Closer
	dec      *zstd.Decoder
	// InOrder has Each give pieces in the order of blobs, by one worker.
	InOrder bool
	// Of a recording at another base (At): the one that it is of, by how much it was moved, and which words of the
	// launches of each entry are addresses.
	from     *File
	moved    *moved
	launches map[string]map[int][]int64
}

// Open opens the recording at path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	var file *File
	if err == nil {
		file, err = NewFile(f, st.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file.c = f
	return file, nil
}

// NewFile reads a recording of that size.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	var head [headerSize]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		if err == io.EOF {
			return nil, fmt.Errorf("%w: %d bytes are too few for one", ErrMalformed, n)
		}
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as one does", ErrMalformed)
	}
	le := binary.LittleEndian
	version := le.Uint32(head[8:])
	if version < 1 || version > Version || le.Uint32(head[12:]) != 0 {
		return nil, fmt.Errorf("%w: version %d, this holdfast reads 1 to %d", ErrMalformed, version, Version)
	}
	at, n := le.Uint64(head[16:]), le.Uint64(head[24:])
	if at < headerSize || at > uint64(size) || n != uint64(size)-at || n > MaxManifest {
		return nil, fmt.Errorf("%w: a manifest of %d bytes at %d in a file of %d: it is cut short or damaged",
			ErrMalformed, n, at, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, int64(at)); err != nil && err != io.EOF {
		return nil, err
	}
	sum := digestOf(text)
	if sum != Digest(head[32:]) {
		return nil, fmt.Errorf("%w: the digest of its manifest is wrong", ErrMalformed)
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, err
	}
	if m.Version != int(version) {
		return nil, fmt.Errorf("%w: a manifest of version %d in a file of version %d", ErrMalformed, m.Version, version)
	}
	if err := m.check(headerSize, int64(at)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecoderMaxMemory(ChunkSize))
	if err != nil {
		return nil, err
	}
	return &File{Manifest: m, Digest: sum, Size: size, r: r, dec: dec}, nil
}

func digestOf(b []byte) Digest { return sha256.Sum256(b) }

// Close closes the file.
func (f *File) Close() error {
	if f.from != nil {
		return nil
	}
	f.dec.Close()
	if f.c == nil {
		return nil
	}
	return f.c.Close()
}

// chunk reads chunk i and checks it. The result is good until buf is used again.
func (f *File) chunk(i int, buf *buffers) ([]byte, error) {
	c := f.Manifest.Chunks[i]
	b := buf.stored[:c.Stored]
	if n, err := f.r.ReadAt(b, c.Offset); int64(n) < c.Stored {
		return nil, fmt.Errorf("chunk %d: %w", i, err)
	}
	if c.Stored < c.Size {
		var err error
		if b, err = f.dec.DecodeAll(b, buf.plain[:0]); err != nil {
			return nil, fmt.Errorf("%w: chunk %d: %w", ErrMalformed, i, err)
		}
	}
	if int64(len(b)) != c.Size || Digest(sha256.Sum256(b)) != c.SHA256 {
		return nil, fmt.Errorf("%w: chunk %d is damaged: its digest is wrong", ErrMalformed, i)
	}
	return b, nil
}

type buffers struct{ stored, plain []byte }

func newBuffers() *buffers {
	return &buffers{stored: make([]byte, ChunkSize), plain: make([]byte, 0, ChunkSize)}
}

// Read is what a blob holds.
func (f *File) Read(b Blob) ([]byte, error) {
	var out []byte
	buf := newBuffers()
	for i, c := range b.Chunks {
		if c == Zero {
			out = append(out, make([]byte, b.size(i))...)
			continue
		}
		p, err := f.chunk(c, buf)
		if err != nil {
			return nil, err
		}
		out = append(out, p...)
	}
	return out, b.fix.apply(out, 0)
}

// ReadAt is n bytes of a blob from an offset on. Whole chunks are read, and checked.
func (f *File) ReadAt(b Blob, offset, n int64) ([]byte, error) {
	if offset < 0 || n < 0 || offset > b.Bytes || n > b.Bytes-offset {
		return nil, fmt.Errorf("bytes %d to %d of %d", offset, offset+n, b.Bytes)
	}
	if n == 0 {
		return nil, nil
	}
	first, end := offset/ChunkSize, (offset+n+ChunkSize-1)/ChunkSize
	at := first * ChunkSize
	part, err := f.Read(Blob{Bytes: min(b.Bytes, end*ChunkSize) - at, Chunks: b.Chunks[first:end]})
	if err == nil {
		err = b.fix.apply(part, at)
	}
	if err != nil {
		return nil, err
	}
	return part[offset-at:][:n], nil
}

// Each reads blobs with several workers and gives use every piece that is not all zeros; i is the place of its blob
// in blobs. use is called by one goroutine at a time, in any order if not InOrder; b is its own only until it returns.
func (f *File) Each(blobs []Blob, use func(i int, offset int64, b []byte) error) error {
	type piece struct {
		blob, chunk int
		offset      int64
	}
	todo := make(chan piece)
	stop := make(chan struct{})
	var once sync.Once
	var first error
	var mu sync.Mutex
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), 16)
	if f.InOrder {
		workers = 1
	}
	for range workers {
		wg.Go(func() {
			buf := newBuffers()
			for p := range todo {
				b, err := f.chunk(p.chunk, buf)
				if err == nil {
					err = blobs[p.blob].fix.apply(b, p.offset)
				}
				if err == nil {
					mu.Lock()
					err = use(p.blob, p.offset, b)
					mu.Unlock()
				}
				if err != nil {
					once.Do(func() { first = err; close(stop) })
				}
			}
		})
	}
feed:
	for i, b := range blobs {
		for k, c := range b.Chunks {
			if c == Zero {
				continue
			}
			select {
			case todo <- piece{i, c, int64(k) * ChunkSize}:
			case <-stop:
				break feed
			}
		}
	}
	close(todo)
	wg.Wait()
	return first
}

// A Work is a launch, a copy or a set of an entry.
type Work struct {
	After  []uint32 // by number, all smaller than its own
	Launch *trace.Launch
	Copy   *trace.Copy
}

// Work is the work of an entry, every record of it checked against the manifest. The kernel of a launch is its place
// in Manifest.Kernels. Addresses that copies and sets name lie in regions or in staging memory; what launches do with
// the addresses that they are given is not known here.
func (f *File) Work(e *Entry) ([]Work, error) {
	b, err := f.Read(e.Work)
	if err != nil {
		return nil, err
	}
	if f.from == nil {
		return f.Manifest.work(e, b)
	}
	work, err := f.from.Manifest.work(e, b)
	if err == nil {
		err = f.moved.work(work, f.launches[e.Name])
	}
	return work, err
}

func (m *Manifest) work(e *Entry, b []byte) ([]Work, error) {
	var out []Work
	var next Work
	count := struct{ launches, copies, sets int }{}
	for len(b) > 0 {
		n, err := trace.Size(b)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%w: work %d: a record is cut short", ErrMalformed, len(out))
		}
		rec, err := trace.Decode(b[:n])
		if err != nil {
			return nil, fmt.Errorf("%w: work %d: %w", ErrMalformed, len(out), err)
		}
		if again, err := trace.Append(nil, rec); err != nil || !bytes.Equal(again, b[:n]) {
			return nil, fmt.Errorf("%w: work %d: not in its canonical form", ErrMalformed, len(out))
		}
		b = b[n:]
		switch rec := rec.(type) {
		case *trace.After:
			for i, w := range rec.Works {
				if int(w) >= len(out) || i > 0 && w <= rec.Works[i-1] {
					return nil, fmt.Errorf("%w: work %d comes after work %d", ErrMalformed, len(out), w)
				}
			}
			if next.After != nil || len(rec.Works) == 0 {
				return nil, fmt.Errorf("%w: work %d: its order is said twice or not at all", ErrMalformed, len(out))
			}
			next.After = rec.Works
			continue
		case *trace.Launch:
			next.Launch = rec
			count.launches++
			err = m.checkLaunch(rec)
		case *trace.Copy:
			next.Copy = rec
			if rec.Flags&trace.Set != 0 {
				count.sets++
			} else {
				count.copies++
			}
			err = m.checkCopy(rec)
		default:
			err = fmt.Errorf("a record of type %v", rec.Type())
		}
		if err != nil {
			return nil, fmt.Errorf("%w: work %d: %w", ErrMalformed, len(out), err)
		}
		out, next = append(out, next), Work{}
	}
	if next.After != nil || count.launches != e.Launches || count.copies != e.Copies || count.sets != e.Sets {
		return nil, fmt.Errorf("%w: %d launches, %d copies, %d sets, not as many as the manifest says", ErrMalformed,
			count.launches, count.copies, count.sets)
	}
	return out, nil
}

func (m *Manifest) checkLaunch(l *trace.Launch) error {
	if int(l.Kernel) >= len(m.Kernels) {
		return fmt.Errorf("kernel %d of %d", l.Kernel, len(m.Kernels))
	}
	k := &m.Kernels[l.Kernel]
	need := 0
	for _, p := range k.Params {
		need = max(need, p.Offset+p.Size)
	}
	threads := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	cluster := uint64(l.Cluster[0]) * uint64(l.Cluster[1]) * uint64(l.Cluster[2])
	switch {
	case l.Flags&^trace.Cooperative != 0 || l.Thread != 0 || l.Cell != 0 || l.Stream != 0:
		return fmt.Errorf("launch of %.100s: flags %#x", k.Name, l.Flags)
	case len(l.Params) != need:
		return fmt.Errorf("launch of %.100s: %d bytes of parameters, want %d", k.Name, len(l.Params), need)
	case l.Block[0] > 1024 || l.Block[1] > 1024 || l.Block[2] > 1024 || threads == 0 || threads > 1024:
		return fmt.Errorf("launch of %.100s: block %v", k.Name, l.Block)
	case l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 ||
		l.Grid[2] > 65535:
		return fmt.Errorf("launch of %.100s: grid %v", k.Name, l.Grid)
	case cluster == 0 || l.Cluster[0] > 16 || l.Cluster[1] > 16 || l.Cluster[2] > 16 || cluster > 16:
		return fmt.Errorf("launch of %.100s: cluster %v", k.Name, l.Cluster)
	case l.Shared > 1<<20:
		return fmt.Errorf("launch of %.100s: %d bytes of shared memory", k.Name, l.Shared)
	}
	return nil
}

func (m *Manifest) checkCopy(c *trace.Copy) error {
	if c.Flags&^trace.Set != 0 || c.Thread != 0 || c.Cell != 0 || c.Stream != 0 || c.Call != 0 || c.Depth != 1 ||
		c.DstSlice != 0 || c.SrcSlice != 0 {
		return fmt.Errorf("copy with flags %#x and depth %d", c.Flags, c.Depth)
	}
	n, ok := m.rows(c.Dst, c.DstPitch, c.Width, c.Height)
	if !ok {
		return fmt.Errorf("%d × %d bytes to %#x are not in the recording's memory", c.Width, c.Height, c.Dst)
	}
	if r := m.constant(c.Dst, n); r != nil {
		return fmt.Errorf("%d × %d bytes to %#x: the region at %v is constant", c.Width, c.Height, c.Dst, r.Addr)
	}
	if c.Flags&trace.Set == 0 {
		if _, ok := m.rows(c.Src, c.SrcPitch, c.Width, c.Height); !ok {
			return fmt.Errorf("%d × %d bytes from %#x are not in the recording's memory", c.Width, c.Height, c.Src)
		}
		return nil
	}
	if size := c.SrcPitch; (size != 1 && size != 2 && size != 4) || c.Width%size != 0 || c.Dst%size != 0 ||
		c.Src > 1<<32-1 {
		return fmt.Errorf("set of %d bytes in elements of %d to %#x", c.Width, c.SrcPitch, c.Src)
	}
	return nil
}

// rows reports whether all rows lie in the recording's memory, each in what is mapped for it, and how many bytes it is
// from the first to the last.
func (m *Manifest) rows(addr, pitch, width, height uint64) (n uint64, ok bool) {
	if width == 0 || height == 0 || height > 1 && (pitch < width || (height-1) > (1<<62)/pitch) {
		return 0, false
	}
	n = width
	if height > 1 {
		n += (height - 1) * pitch
	}
	return n, n >= width && m.holds(addr, n)
}

// behind is the place of the first region that begins above an address.
func (m *Manifest) behind(addr uint64) int {
	return sort.Search(len(m.Memory), func(i int) bool { return uint64(m.Memory[i].Addr) > addr })
}

// constant is the first constant region that has a byte of [addr, addr+n), which is memory of the recording.
func (m *Manifest) constant(addr, n uint64) *Region {
	for i := max(0, m.behind(addr)-1); i < len(m.Memory) && uint64(m.Memory[i].Addr) < addr+n; i++ {
		if r := &m.Memory[i]; r.Class == Constant && uint64(r.Addr)+uint64(r.Bytes) > addr {
			return r
		}
	}
	return nil
}

// holds reports whether [addr, addr+n) lies in staging memory or in regions that follow each other without a gap.
func (m *Manifest) holds(addr, n uint64) bool {
	if m.Staging.holds(addr, n) {
		return true
	}
	for i := m.behind(addr) - 1; i >= 0 && i < len(m.Memory); i++ {
		r := Span{m.Memory[i].Addr, m.Memory[i].Bytes}
		if addr < uint64(r.Addr) || addr-uint64(r.Addr) >= uint64(r.Bytes) {
			return false
		}
		room := uint64(r.Bytes) - (addr - uint64(r.Addr))
		if n <= room {
			return true
		}
		addr, n = addr+room, n-room
	}
	return false
}

// Verify checks every chunk against its digest, the work of every entry, and that all words that are to be relocated
// are addresses of the recording.
func (f *File) Verify() error {
	all := Blob{Bytes: int64(len(f.Manifest.Chunks)) * ChunkSize}
	for i := range f.Manifest.Chunks {
		all.Chunks = append(all.Chunks, i)
	}
	if err := f.Each([]Blob{all}, func(int, int64, []byte) error { return nil }); err != nil {
		return err
	}
	for i := range f.Manifest.Entries {
		if _, err := f.Work(&f.Manifest.Entries[i]); err != nil {
			return err
		}
	}
	if f.from != nil {
		f = f.from
	}
	return f.checkAddresses()
}

// Words is in how many steps work can be done if all that may is done at once.
func Words(work []Work) int {
	level := make([]int, len(work))
	words := 0
	for i, w := range work {
		level[i] = 1
		for _, a := range w.After {
			level[i] = max(level[i], level[a]+1)
		}
		words = max(words, level[i])
	}
	return words
}
