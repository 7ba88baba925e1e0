package checkpoint

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/cudatest"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

// oneGPU is a GPU of the test driver.
type oneGPU struct {
	drv *cudatest.Driver
	e   *snapshot.Engine
}

func (g oneGPU) Driver(uint32) (cuda.Driver, error)                { return g.drv, nil }
func (g oneGPU) Engine(uint32, [16]byte) (*snapshot.Engine, error) { return g.e, nil }

func (g oneGPU) checkpoint(t *testing.T, h *held, o Options) (*api.CheckpointResult, error) {
	o.GPUOnly, o.LeaveRunning = true, true
	env := &Env{GPUs: g, Log: slog.New(slog.DiscardHandler)}
	return env.Checkpoint(t.Context(), []*process.Program{h.p}, o)
}

func newGPU(t *testing.T, chunks uint64) oneGPU {
	t.Helper()
	drv := cudatest.New(chunks * snapshot.ChunkSize)
	e, err := snapshot.NewEngine(drv, 0, snapshot.EngineOptions{PinnedBytes: 8 * snapshot.ChunkSize,
		Lanes: 2, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if l := drv.Leaks(); l != nil {
			t.Errorf("left behind: %v", l)
		}
	})
	return oneGPU{drv, e}
}

// held is a program that the test plays: its memory, and its end of the conversation.
type held struct {
	t       *testing.T
	g       oneGPU
	p       *process.Program
	c       *wire.Conn
	memory  map[uint64]*cudatest.Memory
	shared  chan wire.Message // answers to SHARE
	thawed  chan struct{}
	freezes func() // runs before FROZEN is said
	thaws   func() // runs before THAWED is said
	ran     bool   // it has gone on by itself before THAW
}

func newHeld(t *testing.T, g oneGPU) *held {
	t.Helper()
	h := &held{t: t, g: g, memory: map[uint64]*cudatest.Memory{}, shared: make(chan wire.Message, 1)}
	h.thawed = make(chan struct{}, 1)
	var daemon *wire.Conn
	h.c, daemon = wiretest.Pair(t)
	id := process.Identity{PID: os.Getpid(), Devices: make([][16]byte, 1), Token: [16]byte{1}}
	h.p = process.New(id, "running", slog.New(slog.DiscardHandler))
	if err := h.p.Attach(daemon, &wire.Hello{}, wiretest.Page(t)); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { h.p.Serve(func(*process.Program, *wire.Room) uint64 { return 0 }) })
	running.Go(h.obey)
	t.Cleanup(func() {
		h.c.Close()
		running.Wait()
		h.p.Drop()
		for _, m := range h.memory {
			m.Free()
		}
	})
	return h
}

// obey does what the daemon says, as the shim would.
func (h *held) obey() {
	for {
		seq, m, fds, err := h.c.Recv()
		wire.CloseAll(fds)
		if err != nil {
			return
		}
		switch m.(type) {
		case *wire.Freeze:
			if h.freezes != nil {
				h.freezes()
			}
			h.c.Send(seq, &wire.Frozen{})
		case *wire.Thaw:
			if h.thaws != nil {
				h.thaws()
			}
			if h.ran {
				h.c.Send(seq, &wire.Failed{Code: wire.FailedOpen, Text: "THAW: the program is not frozen"})
			} else {
				h.c.Send(seq, &wire.Thawed{})
			}
			h.thawed <- struct{}{}
		case *wire.Shared:
			h.shared <- m
		}
	}
}

// heard returns when the daemon has read everything that was sent. obey must run.
func (h *held) heard() {
	h.c.Send(0, &wire.Share{ID: 1, Alloc: 1 << 40})
	<-h.shared
}

// alloc makes memory of so many chunks, each with other contents.
func (h *held) alloc(id uint64, chunks int) {
	m, f, err := h.g.drv.Allocate(uint64(chunks) * snapshot.ChunkSize)
	if err != nil {
		h.t.Error(err)
		return
	}
	defer f.Close()
	for c := range chunks {
		m.Write(c*snapshot.ChunkSize, bytes.Repeat([]byte{byte(id), byte(c + 1)}, 64))
	}
	h.memory[id] = m
	a := &wire.Alloc{ID: id, VA: id << 32, Size: uint64(chunks) * snapshot.ChunkSize, Kind: wire.KindLinear}
	h.c.Send(0, a, int(f.Fd()))
}

func (h *held) free(id uint64) {
	h.c.Send(0, &wire.Free{ID: id})
	h.memory[id].Free()
	delete(h.memory, id)
}

// has checks that an image has what the program holds, no more and no less.
func (h *held) has(dir string) {
	h.t.Helper()
	im, err := image.Open(dir)
	if err != nil {
		h.t.Fatal(err)
	}
	defer im.Close()
	var ids []uint64
	buf := make([]byte, snapshot.ChunkSize)
	for _, r := range im.Manifest.Regions {
		ids = append(ids, r.ID)
		m := h.memory[r.ID]
		if m == nil {
			h.t.Errorf("the image has allocation %d, which the program has freed", r.ID)
			continue
		}
		want := m.Bytes()
		for c, d := range r.Digests {
			if err := im.ReadChunk(d, buf); err != nil {
				h.t.Fatal(err)
			}
			if !bytes.Equal(buf, want[c*snapshot.ChunkSize:(c+1)*snapshot.ChunkSize]) {
				h.t.Errorf("chunk %d of allocation %d is not what the program has", c, r.ID)
			}
		}
	}
	if len(ids) != len(h.memory) {
		h.t.Errorf("the image has allocations %v, the program %d", ids, len(h.memory))
	}
	files, err := filepath.Glob(filepath.Join(dir, "chunks", "*", "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	if want := len(im.Manifest.Chunks()); len(files) != want {
		h.t.Errorf("%d chunks in the image, %d of the memory that it describes", len(files), want)
	}
}

var allModes = []snapshot.Mode{snapshot.Auto, snapshot.Stage, snapshot.Recopy, snapshot.Stop}

// A program that frees memory while it is being listed and imported loses no checkpoint, and nothing else is taken
// for that memory: what it allocates next gets the descriptor's number.
func TestFreedWhileImported(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			g := newGPU(t, 200)
			h := newHeld(t, g)
			for id := range uint64(40) {
				h.alloc(id+1, 1)
			}
			h.heard()
			imports := uint64(0)
			g.drv.Fault = func(call string) error {
				if call != "cuMemImportFromShareableHandle" {
					return nil
				}
				if imports++; imports <= 12 {
					h.free(40 - imports) // whose turn is still to come
					h.alloc(100+imports, 2)
					h.heard()
				}
				return nil
			}
			dir := filepath.Join(t.TempDir(), "image")
			res, err := g.checkpoint(t, h, Options{Dir: dir, Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			<-h.thawed
			h.has(dir)
			if n := uint64(res.Chunks) * snapshot.ChunkSize; n != res.Bytes {
				t.Errorf("%d bytes in chunks, the image has %d", n, res.Bytes)
			}
		})
	}
}

// What is freed between its import and the freeze is neither in the image nor counted, and its memory is free
// before the image is written.
func TestFreedBeforeTheFreeze(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			g := newGPU(t, 200)
			h := newHeld(t, g)
			for id := range uint64(8) {
				h.alloc(id+1, 3)
			}
			h.heard()
			h.freezes = func() {
				for id := range uint64(4) {
					h.free(2*id + 1)
				}
			}
			var closed atomic.Int64
			g.drv.Fault = func(call string) error {
				if call == "cuMemUnmap" {
					closed.Add(1)
				}
				return nil
			}
			progress := func(phase string, _, _ uint64) {
				if n := closed.Load(); phase == "drain" && n < 4 {
					t.Errorf("%d regions are closed while the image is written; the program has freed 4", n)
				}
			}
			dir := filepath.Join(t.TempDir(), "image")
			res, err := g.checkpoint(t, h, Options{Dir: dir, Mode: mode, Progress: progress})
			if err != nil {
				t.Fatal(err)
			}
			<-h.thawed
			h.has(dir)
			if res.Chunks != 12 || res.Bytes != 12*snapshot.ChunkSize {
				t.Errorf("%d chunks, %d bytes; want 12 chunks", res.Chunks, res.Bytes)
			}
			id := h.p.Identity()
			if res.PID != id.PID || res.Name != id.Name || res.Dir != dir || res.Kind != image.KindGPUOnly ||
				!res.LeaveRunning || res.Mode == "" || res.Digest == "" || len(res.Steps) == 0 || res.StallMS <= 0 ||
				res.DataStallMS > res.StallMS || res.DrainMS <= 0 || res.TotalMS < res.StallMS+res.DrainMS {
				t.Errorf("the result: %+v", res)
			}
		})
	}
}

// An image of a program that has gone on before its memory was captured is none.
func TestRanWhileFrozen(t *testing.T) {
	for _, mode := range allModes {
		g := newGPU(t, 100)
		h := newHeld(t, g)
		h.ran = true
		h.alloc(1, 1)
		h.heard()
		dir := filepath.Join(t.TempDir(), "image")
		if _, err := g.checkpoint(t, h, Options{Dir: dir, Mode: mode}); !errors.Is(err, process.ErrNotFrozen) {
			t.Errorf("%v: checkpoint = %v, want ErrNotFrozen", mode, err)
		}
		<-h.thawed
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: the image of a failed checkpoint: %v", mode, err)
		}
	}
}

// What a program frees although it is frozen cannot be captured: that is an error, and the program runs on.
func TestFreedWhileFrozen(t *testing.T) {
	g := newGPU(t, 100)
	h := newHeld(t, g)
	h.alloc(1, 1)
	h.heard()
	frozen := false
	h.freezes = func() {
		h.alloc(2, 1)
		h.alloc(3, 1)
		frozen = true
	}
	g.drv.Fault = func(call string) error {
		if frozen && call == "cuMemImportFromShareableHandle" && h.memory[3] != nil {
			h.free(3)
			h.heard()
		}
		return nil
	}
	dir := filepath.Join(t.TempDir(), "image")
	if _, err := g.checkpoint(t, h, Options{Dir: dir}); !errors.Is(err, process.ErrFreed) {
		t.Errorf("checkpoint = %v, want ErrFreed", err)
	}
	<-h.thawed
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image of a failed checkpoint: %v", err)
	}
}
