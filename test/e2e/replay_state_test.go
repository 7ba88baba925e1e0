package e2e

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// step makes a recording of one training step of examples/train, which has all of its state on the device: weights,
// momentum, gradients, statistics.
func (s *site) step() string {
	s.t.Helper()
	const batch, in, hidden, out, slices = 64, 16, 64, 4, 4
	const w1, b1, w2 = 0, hidden * in, hidden*in + hidden
	const b2 = w2 + out*hidden
	const params = b2 + out
	ptx, err := os.ReadFile("../../examples/train/train.ptx")
	if err != nil {
		s.t.Fatal(err)
	}
	file := s.path("step.hfr")
	w, err := recording.Create(file)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []recording.Variable{},
		Code:    []recording.Code{{Images: []recording.Image{{Arch: 70, Contents: w.Put(ptx), Kind: recording.PTX}}}},
		Staging: recording.Span{Addr: softMemory + 64<<20, Bytes: 2 << 20}}
	var work []byte
	e := recording.Entry{Name: "step", Inputs: []recording.Port{}, Outputs: []recording.Port{}}
	add := func(rec trace.Record) {
		if n := uint32(e.Launches + e.Copies); n > 0 {
			if work, err = trace.Append(work, &trace.After{Works: []uint32{n - 1}}); err != nil {
				s.t.Fatal(err)
			}
		}
		if work, err = trace.Append(work, rec); err != nil {
			s.t.Fatal(err)
		}
	}
	kernels := map[string]uint32{}
	launch := func(name string, grid, block [3]uint32, shared uint32, args ...any) {
		var b []byte
		var where []recording.Param
		for _, a := range args {
			at := len(b)
			switch a := a.(type) {
			case uint64:
				b = binary.LittleEndian.AppendUint64(b, a)
			case float32:
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(a))
			case int:
				b = binary.LittleEndian.AppendUint32(b, uint32(a))
			}
			where = append(where, recording.Param{Offset: at, Size: len(b) - at})
		}
		if _, ok := kernels[name]; !ok {
			kernels[name] = uint32(len(m.Kernels))
			m.Kernels = append(m.Kernels, recording.Kernel{Name: name, Params: where})
		}
		add(&trace.Launch{Kernel: kernels[name], Grid: grid, Block: block, Cluster: [3]uint32{1, 1, 1}, Shared: shared,
			Params: b})
		e.Launches++
	}
	live := func(n int, number func(i int) uint32) uint64 {
		var b []byte
		for i := range n {
			b = binary.LittleEndian.AppendUint32(b, number(i))
		}
		contents := w.Put(b)
		at := softMemory + uint64(len(m.Memory))<<20
		m.Memory = append(m.Memory, recording.Region{Addr: recording.Addr(at), Bytes: int64(4 * n),
			Class: recording.Live, Contents: &contents})
		return at
	}
	small := func(i int) uint32 { return math.Float32bits(float32((i*37)%101-50) / 100) }
	zero := func(int) uint32 { return 0 }
	x, label := live(batch*in, small), live(batch, func(i int) uint32 { return uint32(i*7) % out })
	p, v, g, stats := live(params, small), live(params, zero), live(2*params, zero), live(6, zero)
	h, y, dy, dh := live(batch*hidden, zero), live(batch*out, zero), live(batch*out, zero), live(batch*hidden, zero)

	launch("layer", [3]uint32{batch / 4, 1, 1}, [3]uint32{hidden, 4, 1}, 4*in*4, x, p+4*w1, p+4*b1, h, in, hidden, 1)
	launch("layer", [3]uint32{batch / 16, 1, 1}, [3]uint32{out, 16, 1}, 16*hidden*4, h, p+4*w2, p+4*b2, y, hidden,
		out, 0)
	launch("loss", [3]uint32{batch / 32, 1, 1}, [3]uint32{32, 1, 1}, 0, y, label, dy, stats)
	launch("back", [3]uint32{batch / 4, 1, 1}, [3]uint32{hidden, 4, 1}, 0, dy, p+4*w2, h, dh, hidden, out)
	launch("grad", [3]uint32{1, slices, 1}, [3]uint32{hidden, out, 1}, 0, h, dy, g+8*w2, g+8*b2, hidden, out,
		batch/slices)
	launch("grad", [3]uint32{hidden / 16, slices, 1}, [3]uint32{in, 16, 1}, 0, x, dh, g+8*w1, g+8*b1, in, hidden,
		batch/slices)
	launch("apply", [3]uint32{(params + 127) / 128, 1, 1}, [3]uint32{128, 1, 1}, 0, p, v, g, params, float32(0.0625),
		float32(0.875))
	to := m.Staging.Addr
	add(&trace.Copy{Dst: uint64(to), Src: p, Width: 4 * params, Height: 1, Depth: 1})
	e.Copies++
	e.Outputs = []recording.Port{{Addr: to, Bytes: 4 * params, DType: "float32", Name: "weights", Shape: []int{params}}}
	e.Work = w.Put(work)
	m.Entries = []recording.Entry{e}
	if _, err := w.Finish(m); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// A replay of training steps that is killed goes on from the last state that it has saved, and ends with the same bits
// as one that nobody has killed: weights, and all other state. One that takes copies to recover has them, too.
func TestReplayState(t *testing.T) {
	const runs = "1000"
	s := newSite(t)
	file := s.step()
	s.ok("verify", file)
	replay := func(name string, args ...string) []string {
		return append([]string{"replay", file, "--backend", "soft", "-n", runs, "--out", "weights=" + s.path(name+".w"),
			"--save-state", s.path(name)}, args...)
	}
	s.ok(replay("whole")...)
	s.ok("replay", file, "--backend", "soft", "--out", "weights="+s.path("first.w"))
	if s.read("first.w") == s.read("whole.w") || strings.Trim(s.read("first.w"), "\x00") == "" {
		t.Error("the steps change nothing")
	}
	s.ok(replay("kept", "--retries", "2")...)
	killed := replay("killed", "--save-every", "20")
	p := s.launch("killed-log", killed...)
	s.until("a state", func() bool { _, err := os.Stat(s.path("killed")); return err == nil })
	p.cmd.Process.Kill() // in the middle of a step, or of the next state
	if p.wait(); p.status == 0 {
		t.Fatal("it had ended: too few runs for this machine")
	}
	r := into[struct {
		Before uint64 `json:"runs_before"`
	}](s, append(killed, "--load-state", s.path("killed"))...)
	if r.Before == 0 || r.Before >= 1000 || r.Before%20 != 0 {
		t.Errorf("it goes on after %d runs", r.Before)
	}
	for _, name := range []string{"killed", "kept"} {
		if s.read(name+".w") != s.read("whole.w") {
			t.Errorf("%s: other weights", name)
		}
		if s.read(name) != s.read("whole") {
			t.Errorf("%s: other state", name)
		}
	}
	if left, err := filepath.Glob(s.path(".killed.*.partial")); err != nil || len(left) > 1 {
		t.Errorf("%v, %v", left, err) // what the killed one was writing
	}
	if text := s.fails(1, "replay", s.recordedInfer(), "--backend", "soft", "--load-state",
		s.path("whole")); !strings.Contains(text, "another recording") {
		t.Error(text)
	}
	s.fails(2, replay("x", "--reset", "--load-state", s.path("whole"))...)
	s.fails(2, "replay", file, "--copy-every", "3")
}

func (s *site) recordedInfer() string {
	s.t.Helper()
	file := s.path("infer.hfr")
	s.recordInfer(file)
	return file
}
