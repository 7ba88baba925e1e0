package driver

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine/driver"
	"holdfast/internal/recording"
	"holdfast/internal/recording/recordingtest"
	"holdfast/internal/replay"
	"holdfast/internal/trace"
	"holdfast/test/rig"
)

// stubVariable names the stub to the process in which TestPlayers loads it.
const stubVariable = "HOLDFAST_TEST_STUB"

// Players of one recording, with memory at different addresses, share a backend: each has its own state, and its end
// makes room for another.
func TestPlayers(t *testing.T) {
	if stub := os.Getenv(stubVariable); stub != "" {
		players(t, stub)
		return
	}
	socket, _ := gpu(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestPlayers$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), rig.Environment(t, socket)...),
		stubVariable+"="+filepath.Join(rig.Stub(t), "libcuda.so.1"))
	if out := run(t, cmd); !strings.Contains(out, "--- PASS: TestPlayers") {
		t.Error(out)
	}
}

func players(t *testing.T, stub string) {
	b, err := driver.Open(driver.Config{Library: stub, PTXOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := counting(t)
	load := func(base recording.Addr) *replay.Player {
		t.Helper()
		g, err := f.At(base)
		if err != nil {
			t.Fatal(err)
		}
		p, err := replay.Load(b, g)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	count := func(p *replay.Player, want uint32) {
		t.Helper()
		e := p.Entries[0]
		if err := e.Run(time.Minute); err != nil {
			t.Fatal(err)
		}
		if out, err := e.Output("n"); err != nil || binary.LittleEndian.Uint32(out) != want {
			t.Errorf("%x, %v, want %d", out, err, want)
		}
	}
	here, there := load(countingBase), load(countingBase+3<<30)
	for n := range uint32(3) {
		count(here, 6+n)
	}
	count(there, 6) // whose counter is another
	count(here, 9)
	if err := here.Reset(); err != nil {
		t.Fatal(err)
	}
	count(here, 6)
	count(there, 7)
	if _, err := replay.Load(b, f); err == nil {
		t.Error("two players have the same memory")
	}
	count(here, 7) // which that has not harmed
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	again := load(countingBase)
	count(again, 6)
	count(there, 8)
	for _, p := range []*replay.Player{again, there} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

const countingBase = 1<<47 + 1<<30

// counting is a recording that can be relocated: its kernel adds 1 to what a pointer in memory points to, and to a
// variable that holds the same pointer.
func counting(t *testing.T) *recording.File {
	t.Helper()
	const text = ".version 7.0\n.target sm_70\n.address_size 64\n" +
		".visible .global .align 8 .u64 where;\n" +
		".visible .entry count(.param .u64 p)\n{\n\t.reg .b32 %r<3>;\n\t.reg .b64 %d<5>;\n" +
		"\tld.param.u64 %d1, [p];\n\tld.global.u64 %d2, [%d1];\n\tld.global.u64 %d3, [where];\n" +
		"\tld.global.u32 %r1, [%d2];\n\tadd.u32 %r2, %r1, 1;\n\tst.global.u32 [%d3], %r2;\n\tret;\n}\n"
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	pointer := binary.LittleEndian.AppendUint64(nil, countingBase+256)
	memory := make([]byte, 512)
	copy(memory, pointer)
	memory[256] = 5
	one := [3]uint32{1, 1, 1}
	const staging = countingBase + 4<<20
	var work []byte
	for _, rec := range []trace.Record{
		&trace.Launch{Grid: one, Block: one, Cluster: one, Params: binary.LittleEndian.AppendUint64(nil, countingBase)},
		&trace.After{Works: []uint32{0}},
		&trace.Copy{Dst: staging, Src: countingBase + 256, Width: 4, Height: 1, Depth: 1}} {
		if work, err = trace.Append(work, rec); err != nil {
			t.Fatal(err)
		}
	}
	live := w.Put(memory)
	table := w.Put(recording.AppendPatches(nil, []recording.Patch{{In: recording.InRegion, Offsets: []int64{0}},
		{In: recording.InVariable, Offsets: []int64{0}}, {In: recording.InLaunch, Offsets: []int64{0}}}))
	return recordingtest.Finish(t, path, w, &recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{},
		Code: []recording.Code{{Images: []recording.Image{{Arch: 70, Contents: w.Put([]byte(text)),
			Kind: recording.PTX}}}},
		Kernels:     []recording.Kernel{{Name: "count", Params: []recording.Param{{Offset: 0, Size: 8}}}},
		Variables:   []recording.Variable{{Contents: w.Put(pointer), Name: "where"}},
		Memory:      []recording.Region{{Addr: countingBase, Bytes: 512, Class: recording.Live, Contents: &live}},
		Relocations: &table, Staging: recording.Span{Addr: staging, Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Launches: 1, Copies: 1, Work: w.Put(work), Inputs: []recording.Port{},
			Outputs: []recording.Port{{Addr: staging, Bytes: 4, DType: "uint32", Name: "n", Shape: []int{1}}}}}})
}
