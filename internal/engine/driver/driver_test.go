package driver

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/recording/recordingtest"
	"holdfast/internal/replay"
	"holdfast/internal/softgpu/device"
	"holdfast/internal/trace"
	"holdfast/test/rig"
)

// TestSoftwareGPU runs the other tests in a process whose driver library is the stub, served by a software GPU in this
// one. On a GPU: HOLDFAST_TEST_LIBCUDA=libcuda.so.1.
func TestSoftwareGPU(t *testing.T) {
	rig.Again(t, device.Config{Memory: 1 << 30}, "TestNative", 2)
}

const addText = `.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n)
{
	.reg .b32 %r<4>; .reg .b64 %d<3>;
	ld.param.u64 %d0, [p];
	ld.param.u32 %r0, [n];
	cvta.to.global.u64 %d1, %d0;
	ld.global.u32 %r1, [%d1];
	add.u32 %r2, %r1, %r0;
	st.global.u32 [%d1], %r2;
	ret;
}
`

// libcuda is the driver library that the tests are for, and an address where it maps memory.
func libcuda(t *testing.T) (library string, at uint64) {
	t.Helper()
	library = os.Getenv("HOLDFAST_TEST_LIBCUDA")
	switch {
	case library == "":
		t.Skip("TestSoftwareGPU runs it")
	case strings.HasPrefix(library, "/"):
		return library, 1 << 47 // where the software GPU has its memory
	}
	return library, 1 << 44
}

// After a fault a backend can be closed and another one opened in the same process, with memory where it was.
func TestNativeReopen(t *testing.T) {
	library, at := libcuda(t)
	for round := range 4 {
		b, err := Open(Config{Library: library})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := b.Map(at, 2<<20); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c, err := b.Load([]byte(addText))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		k, err := c.Kernel("add")
		if err != nil {
			t.Fatal(err)
		}
		run := func(p uint64) error {
			params := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, p), 5)
			one := [3]uint32{1, 1, 1}
			program, err := b.Prepare([]engine.Word{{Ops: []engine.Op{{Launch: &engine.Launch{Kernel: k, Grid: one,
				Block: one, Params: params}}}}})
			if err != nil {
				return err
			}
			return errors.Join(program.Run(time.Minute), program.Close())
		}
		got := make([]byte, 4)
		if err := errors.Join(run(at), run(at), b.Read(at, got)); err != nil || got[0] != 10 {
			t.Fatalf("round %d: %v, %v", round, got, err)
		}
		var f *engine.Fault
		if err := run(at + 1<<40); !errors.As(err, &f) {
			t.Errorf("round %d: %v", round, err)
		} else {
			t.Log(err)
		}
		if err := b.Write(at, got); err == nil {
			t.Error("it goes on after a fault")
		}
		if err := errors.Join(c.Close(), b.Close()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// A breaking backend is one whose programs fault at a run, after some of their words.
type breaking struct {
	*Backend
	stray engine.Op
	left  *int
}

func (b *breaking) Load(image []byte) (engine.Code, error) {
	c, err := b.Backend.Load(image)
	if err != nil {
		return nil, err
	}
	k, err := c.Kernel("add")
	one := [3]uint32{1, 1, 1}
	b.stray = engine.Op{Launch: &engine.Launch{Kernel: k, Grid: one, Block: one, Params: make([]byte, 12)}}
	return c, err
}

func (b *breaking) Prepare(words []engine.Word) (engine.Program, error) {
	p, err := b.Backend.Prepare(words)
	return &breakingProgram{p, b, words}, err
}

type breakingProgram struct {
	engine.Program
	b     *breaking
	words []engine.Word
}

func (p *breakingProgram) Run(timeout time.Duration) error {
	if *p.b.left--; *p.b.left%3 != 0 {
		return p.Program.Run(timeout)
	}
	words := append(slices.Clone(p.words[:len(p.words)/2]), engine.Word{Ops: []engine.Op{p.b.stray}})
	bad, err := p.b.Backend.Prepare(words)
	if err != nil {
		return err
	}
	return bad.Run(timeout)
}

// sums is a recording of a few additions to a number that runs carry on, which goes out.
func sums(t *testing.T, at uint64) *recording.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sums.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	staging := at + 8<<20
	var work []byte
	for i := range uint32(4) {
		params := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, at), 10*i+1)
		one := [3]uint32{1, 1, 1}
		list := []trace.Record{&trace.After{Works: []uint32{i - 1}},
			&trace.Launch{Grid: one, Block: one, Cluster: one, Params: params}}
		if i == 0 {
			list = list[1:]
		}
		if i == 3 {
			list[1] = &trace.Copy{Dst: staging, Src: at, Width: 4, Height: 1, Depth: 1}
		}
		for _, r := range list {
			if work, err = trace.Append(work, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	live := w.Put([]byte{7, 0, 0, 0})
	return recordingtest.Finish(t, path, w, &recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{},
		Variables: []recording.Variable{}, Code: []recording.Code{{Images: []recording.Image{{Arch: 70,
			Kind: recording.PTX, Contents: w.Put([]byte(addText))}}}},
		Kernels: []recording.Kernel{{Name: "add", Params: []recording.Param{{Size: 8}, {Offset: 8, Size: 4}}}},
		Memory:  []recording.Region{{Addr: recording.Addr(at), Bytes: 4, Class: recording.Live, Contents: &live}},
		Staging: recording.Span{Addr: recording.Addr(staging), Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Launches: 3, Copies: 1, Work: w.Put(work), Inputs: []recording.Port{},
			Outputs: []recording.Port{{Addr: recording.Addr(staging), Bytes: 4, DType: "uint8", Name: "sum",
				Shape: []int{4}}}}}})
}

// A replay whose context fails goes on in another one, with the same bits.
func TestNativeRecover(t *testing.T) {
	library, at := libcuda(t)
	left := 5
	var b *breaking
	reopen := func() (engine.Backend, error) {
		if b != nil {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		o, err := Open(Config{Library: library})
		b = &breaking{Backend: o, left: &left}
		return b, err
	}
	if _, err := reopen(); err != nil {
		t.Fatal(err)
	}
	p, err := replay.Load(b, sums(t, at), "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.NewRecoverer(p, replay.Recovery{Retries: 2, Reopen: reopen})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint32(10) {
		if err := r.Entries[0].Run(time.Minute); err != nil {
			t.Fatal(err)
		}
		out, err := r.Entries[0].Output("sum")
		if want := 7 + 33*(n+1); err != nil || binary.LittleEndian.Uint32(out) != want {
			t.Errorf("%v, %v, want %d", out, err, want)
		}
	}
	t.Logf("%+v", r.Done)
	if r.Done.Retries < 3 || r.Done.Copies == 0 {
		t.Errorf("%+v", r.Done)
	}
	if err := errors.Join(r.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}
