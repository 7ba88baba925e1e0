package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/cudatest"
	"holdfast/internal/snapshot/digest"
)

// program stands for a held program: allocations on the test driver, written at random while it runs.
type program struct {
	drv   *cudatest.Driver
	mems  []*cudatest.Memory
	sizes []int // in chunks
	fds   []int
	close func()

	mu      sync.Mutex
	rng     *rand.Rand
	running bool
	writes  int // since the start
	hot     int // chunks from the first on that are written most
}

// newProgram makes a program with allocations of the given numbers of chunks and a mixture of contents: zeros, random
// bytes, and the same bytes in several chunks. The device has spare chunks of free memory beyond the allocations and
// what an engine needs.
func newProgram(t *testing.T, seed uint64, spare int, sizes ...int) *program {
	t.Helper()
	total := spare + 1 // one for the engine's tables
	for _, n := range sizes {
		total += n
	}
	p := &program{drv: cudatest.New(uint64(total) * ChunkSize), sizes: sizes,
		rng: rand.New(rand.NewPCG(seed, 1)), hot: 4}
	var closers []func()
	p.close = func() {
		for _, f := range closers {
			f()
		}
	}
	t.Cleanup(p.close)
	twin := make([]byte, ChunkSize)
	p.fill(twin)
	for _, n := range sizes {
		m, f, err := p.drv.Allocate(uint64(n) * ChunkSize)
		if err != nil {
			t.Fatal(err)
		}
		closers = append(closers, func() { f.Close() })
		p.mems, p.fds = append(p.mems, m), append(p.fds, int(f.Fd()))
		chunk := make([]byte, ChunkSize)
		for c := range n {
			switch p.rng.IntN(4) {
			case 0:
			case 1:
				m.Write(c*ChunkSize, twin)
			default:
				p.fill(chunk)
				m.Write(c*ChunkSize, chunk)
			}
		}
	}
	return p
}

func (p *program) fill(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], p.rng.Uint64())
	}
}

// step is what the program does between two moments of the device: a write of a word, rarely of a chunk.
func (p *program) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return
	}
	if p.rng.IntN(2) == 0 {
		return
	}
	p.writes++
	r := p.rng.IntN(len(p.mems))
	c := p.rng.IntN(p.sizes[r])
	if p.rng.IntN(3) > 0 {
		r, c = 0, p.rng.IntN(min(p.hot, p.sizes[0]))
	}
	data := binary.LittleEndian.AppendUint64(nil, p.rng.Uint64())
	off := p.rng.IntN(ChunkSize/8) * 8
	switch p.rng.IntN(12) {
	case 0:
		data, off = make([]byte, ChunkSize), 0
	case 1: // the content of another chunk
		data, off = p.mems[0].Bytes()[:ChunkSize], 0
	}
	p.mems[r].Write(c*ChunkSize+off, data)
}

func (p *program) run(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = on
}

func (p *program) contents() [][]byte {
	var all [][]byte
	for _, m := range p.mems {
		all = append(all, m.Bytes())
	}
	return all
}

// engine starts an engine and imports the program's memory. What it opens is closed by the returned function, which
// reports leaks.
func (p *program) engine(t *testing.T) (*Engine, []*Region, func()) {
	t.Helper()
	return p.engineOf(t, testEngine)
}

// testEngine has two lanes with buffers of two chunks.
var testEngine = EngineOptions{PinnedBytes: 8 * ChunkSize, Lanes: 2, Reserve: 1}

func (p *program) engineOf(t *testing.T, opts EngineOptions) (*Engine, []*Region, func()) {
	t.Helper()
	e, regions, err := p.tryEngineOf(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e, regions, func() {
		t.Helper()
		for _, r := range regions {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if l := p.drv.Leaks(); l != nil {
			t.Errorf("left behind: %v", l)
		}
	}
}

func (p *program) tryEngine() (*Engine, []*Region, error) { return p.tryEngineOf(testEngine) }

func (p *program) tryEngineOf(opts EngineOptions) (*Engine, []*Region, error) {
	e, err := NewEngine(p.drv, 0, opts)
	if err != nil {
		return nil, nil, err
	}
	var regions []*Region
	for i, fd := range p.fds {
		r, err := e.Import(fd, uint64(p.sizes[i])*ChunkSize)
		if err != nil {
			for _, r := range regions {
				err = errors.Join(err, r.Close())
			}
			return nil, nil, errors.Join(err, e.Close())
		}
		regions = append(regions, r)
	}
	return e, regions, nil
}

// store is a Sink that checks what it is given.
type store struct {
	mu     sync.Mutex
	chunks map[Digest][]byte
	puts   int
	fail   error
}

func newStore() *store { return &store{chunks: map[Digest][]byte{}} }

func (s *store) PutChunk(d Digest, data []byte) error {
	if len(data) != ChunkSize {
		return fmt.Errorf("chunk of %d bytes", len(data))
	}
	if sum := digest.Sum(data); sum != d {
		return fmt.Errorf("bytes with the digest %v put as %v", sum, d)
	}
	if d.IsZero() {
		return errors.New("zero chunk put")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	if s.fail != nil {
		return s.fail
	}
	if _, dup := s.chunks[d]; dup {
		return fmt.Errorf("%v put twice", d)
	}
	s.chunks[d] = bytes.Clone(data)
	return nil
}

func (s *store) Have(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.chunks[d]
	return ok
}

func (s *store) fetch(d Digest, buf []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.chunks[d]
	if !ok {
		return fmt.Errorf("no chunk %v", d)
	}
	copy(buf, data)
	return nil
}

// check compares an image with the bytes it must hold.
func (s *store) check(digests [][]Digest, want [][]byte) error {
	for r, w := range want {
		if len(digests[r]) != len(w)/ChunkSize {
			return fmt.Errorf("region %d: %d digests for %d bytes", r, len(digests[r]), len(w))
		}
		for c, d := range digests[r] {
			data := make([]byte, ChunkSize)
			if !d.IsZero() {
				if err := s.fetch(d, data); err != nil {
					return fmt.Errorf("region %d chunk %d: %w", r, c, err)
				}
			}
			if !bytes.Equal(data, w[c*ChunkSize:(c+1)*ChunkSize]) {
				return fmt.Errorf("region %d chunk %d is not what it was at the freeze", r, c)
			}
		}
	}
	return nil
}

// cycle takes a snapshot of the running program and returns the digests, and the bytes at the freeze.
func (p *program) cycle(ctx context.Context, e *Engine, regions []*Region, sink Sink, opts Options,
	precopy bool) (digests [][]Digest, frozen [][]byte, st Stats, err error) {
	s := e.Begin(regions, opts)
	defer func() { err = errors.Join(err, s.Close()) }()
	p.run(true)
	if precopy {
		if err := s.Precopy(ctx, sink); err != nil {
			return nil, nil, s.Stats(), err
		}
	}
	p.run(false)
	frozen = p.contents()
	if err := s.Capture(ctx, sink); err != nil {
		return nil, nil, s.Stats(), err
	}
	p.run(true)
	if err := s.Drain(ctx, sink); err != nil {
		return nil, nil, s.Stats(), err
	}
	p.run(false)
	for r := range regions {
		digests = append(digests, s.Digests(r))
	}
	return digests, frozen, s.Stats(), nil
}

var _ cuda.Driver = (*cudatest.Driver)(nil)
