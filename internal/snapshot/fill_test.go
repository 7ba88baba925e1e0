package snapshot

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/internal/cuda/cudatest"
	"holdfast/internal/snapshot/digest"
)

// image takes an image of a still program.
func image(t *testing.T, p *program, e *Engine, regions []*Region) (*store, [][]Digest, [][]byte) {
	t.Helper()
	sink := newStore()
	digests, frozen, _, err := p.cycle(t.Context(), e, regions, sink, Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	return sink, digests, frozen
}

func TestFillNewMemory(t *testing.T) {
	p := newProgram(t, 20, 60, 7, 1, 9)
	e, regions, done := p.engine(t)
	sink, digests, frozen := image(t, p, e, regions)
	var fresh []*Region
	for r, want := range frozen {
		created, fd, err := e.Create(uint64(len(want)))
		if err != nil {
			t.Fatal(err)
		}
		// Through the descriptor, as a restored program gets it.
		mapped, err := e.Import(fd, uint64(len(want)))
		if err := errors.Join(err, syscall.Close(fd), created.Close()); err != nil {
			t.Fatalf("region %d: %v", r, err)
		}
		fresh = append(fresh, mapped)
	}
	st, err := e.Fill(t.Context(), fresh, digests, sink.fetch, FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if st.Fetched != len(sink.chunks) || st.Zero+st.Fetched+st.Copied != st.Chunks || st.Kept != 0 {
		t.Errorf("%d contents: %+v", len(sink.chunks), st)
	}
	// Read it back through another image.
	_, back, _ := image(t, p, e, regions)
	got, err := e.Digest(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	for r := range back {
		for c := range back[r] {
			if got[r][c] != back[r][c] {
				t.Errorf("region %d chunk %d: %v, want %v", r, c, got[r][c], back[r][c])
			}
		}
		if err := fresh[r].Close(); err != nil {
			t.Error(err)
		}
	}
	done()
	if used := p.drv.Used(); used != 17*ChunkSize {
		t.Errorf("%d chunks in use, want the program's 17", used/ChunkSize)
	}
}

// TestRollback writes to the memory of a live program and puts the image back.
func TestRollback(t *testing.T) {
	p := newProgram(t, 21, 60, 7, 9)
	e, regions, done := p.engine(t)
	defer done()
	sink, digests, frozen := image(t, p, e, regions)
	p.mems[0].Write(3*ChunkSize+100, []byte("scribble"))
	p.mems[1].Write(8*ChunkSize, bytes.Repeat([]byte{1}, ChunkSize))
	st, err := e.Fill(t.Context(), regions, digests, sink.fetch, FillOptions{Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	if st.Kept != 14 || st.Zero+st.Fetched+st.Copied != 2 {
		t.Errorf("two chunks were written: %+v", st)
	}
	for r, now := range p.contents() {
		if !bytes.Equal(now, frozen[r]) {
			t.Errorf("region %d is not as in the image", r)
		}
	}
}

func TestFillFindsWhatArrivedWrong(t *testing.T) {
	p := newProgram(t, 22, 60, 7, 9)
	e, regions, done := p.engine(t)
	defer done()
	p.mems[1].Write(4*ChunkSize, []byte("content of its own"))
	sink, digests, _ := image(t, p, e, regions)

	bad := digests[1][4]
	_, err := e.Fill(t.Context(), regions, digests, func(d Digest, buf []byte) error {
		err := sink.fetch(d, buf)
		if d == bad {
			buf[12345] ^= 1
		}
		return err
	}, FillOptions{})
	var list *BadChunksError
	if !errors.As(err, &list) || !strings.Contains(err.Error(), "region 1 chunk 4 (offset 0x800000): digest") {
		t.Errorf("a bad fetch: %v", err)
	}

	var once sync.Once
	p.drv.Alter = func(op string, written []byte) {
		if op == "cuMemcpyHtoDAsync" && len(written) >= ChunkSize {
			once.Do(func() { written[0] ^= 1 })
		}
	}
	if _, err = e.Fill(t.Context(), regions, digests, sink.fetch, FillOptions{}); !errors.As(err, &list) ||
		len(list.Chunks) == 0 {
		t.Errorf("a bad copy: %v", err)
	}
	p.drv.Alter = nil

	gone := errors.New("gone")
	_, err = e.Fill(t.Context(), regions, digests, func(d Digest, buf []byte) error {
		if d == bad {
			return gone
		}
		return sink.fetch(d, buf)
	}, FillOptions{})
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "region 1 chunk 4") ||
		!strings.Contains(err.Error(), bad.String()) {
		t.Errorf("a failed fetch: %v", err)
	}
	if _, err := e.Fill(t.Context(), regions, digests, sink.fetch, FillOptions{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestFillRefusesAnotherShape(t *testing.T) {
	p := newProgram(t, 23, 4, 2)
	e, regions, done := p.engine(t)
	defer done()
	before := p.contents()
	for _, digests := range [][][]Digest{nil, {}, {make([]Digest, 1)}, {make([]Digest, 3)}, {make([]Digest, 2), nil}} {
		if _, err := e.Fill(t.Context(), regions, digests, nil, FillOptions{}); err == nil {
			t.Errorf("filled from %d regions", len(digests))
		}
	}
	if !bytes.Equal(before[0], p.contents()[0]) {
		t.Error("memory was touched")
	}
}

// TestEveryDriverFailure fails each kind of driver call at its first, second, … use in a whole cycle: it ends with an
// error that names the call, or with a right image, and leaves nothing behind.
func TestEveryDriverFailure(t *testing.T) {
	calls := map[string]int{}
	var mu sync.Mutex
	cycle := func(fault func(call string) error) (drv *cudatest.Driver, err error) {
		p := newProgram(t, 30, 9, 3, 4)
		defer p.close()
		p.drv.Fault = fault
		p.drv.Between = p.step
		e, regions, err := p.tryEngine()
		if err != nil {
			return p.drv, err
		}
		defer func() {
			for _, r := range regions {
				err = errors.Join(err, r.Close())
			}
			err = errors.Join(err, e.Close())
		}()
		sink := newStore()
		digests, frozen, _, err := p.cycle(t.Context(), e, regions, sink, Options{Mode: Stage}, true)
		if err != nil {
			return p.drv, err
		}
		if err := sink.check(digests, frozen); err != nil {
			t.Error(err)
		}
		if _, err := e.Fill(t.Context(), regions, digests, sink.fetch, FillOptions{}); err != nil {
			return p.drv, err
		}
		for r, now := range p.contents() {
			if !bytes.Equal(now, frozen[r]) {
				t.Errorf("region %d is not as in the image", r)
			}
		}
		return p.drv, nil
	}
	if _, err := cycle(func(call string) error {
		mu.Lock()
		defer mu.Unlock()
		calls[call]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	injected := errors.New("injected")
	for call, uses := range calls {
		for n := 1; n <= uses; n += max(1, uses/3) {
			count := 0
			drv, err := cycle(func(c string) error {
				mu.Lock()
				defer mu.Unlock()
				if c == call {
					if count++; count == n {
						return injected
					}
				}
				return nil
			})
			releases := map[string]bool{
				"cuMemUnmap": true, "cuMemAddressFree": true, "cuMemRelease": true, "cuMemFreeHost": true,
				"cuStreamDestroy": true, "cuModuleUnload": true, "cuDevicePrimaryCtxRelease": true,
				"cuCtxSetCurrent": true,
			}
			if err != nil && !errors.Is(err, injected) {
				t.Errorf("%s failing at use %d became: %v", call, n, err)
			}
			again := call == "cuStreamCreate" || call == "cuMemHostAlloc" // lanes try again
			if err == nil && !releases[call] && !again {
				// Which thread comes to which use varies, but a failure that was delivered must be told.
				mu.Lock()
				if count >= n {
					t.Errorf("%s failing at use %d went unnoticed", call, n)
				}
				mu.Unlock()
			}
			if l := drv.Leaks(); l != nil && !releases[call] {
				t.Errorf("%s failing at use %d left behind: %v", call, n, l)
			}
		}
	}
}

// TestDigestOfRestoredChunk makes sure that the driver of the tests is not the one that decides: the digest of what
// Fill wrote is that of the bytes.
func TestDigestOfRestoredChunk(t *testing.T) {
	p := newProgram(t, 24, 4, 1)
	e, regions, done := p.engine(t)
	defer done()
	want := bytes.Repeat([]byte{0xa5}, ChunkSize)
	d := digest.Sum(want)
	if _, err := e.Fill(t.Context(), regions, [][]Digest{{d}}, func(_ Digest, buf []byte) error {
		copy(buf, want)
		return nil
	}, FillOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.contents()[0], want) {
		t.Error("the bytes did not arrive")
	}
}
