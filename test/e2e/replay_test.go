package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// An inspected is what the tests look at in "holdfast inspect --json".
type inspected struct {
	Arch    int `json:"arch"`
	Entries []struct {
		Launches int `json:"launches"`
		Inputs   []struct {
			Name  string `json:"name"`
			DType string `json:"dtype"`
			Shape []int  `json:"shape"`
		} `json:"inputs"`
		Outputs []struct {
			Name string `json:"name"`
		} `json:"outputs"`
	} `json:"entries"`
}

// input writes 64 numbers that depend on seed.
func (s *site) input(name string, seed int) string {
	var b []byte
	for i := range 64 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((i*37+seed*101)%97)/50-1))
	}
	if err := os.WriteFile(s.path(name), b, 0o666); err != nil {
		s.t.Fatal(err)
	}
	return s.path(name)
}

// replayed is what infer's two outputs are, one behind the other, in a replay.
func (s *site) replayed(file string, args ...string) string {
	s.t.Helper()
	s.ok(append([]string{"replay", file, "--backend", "soft", "--out", "y=" + s.path("y"), "--out", "count=" +
		s.path("count")}, args...)...)
	return s.read("y") + s.read("count")
}

func (s *site) recordInfer(file string, args ...string) string {
	s.t.Helper()
	return s.ok(append([]string{"record", "-o", file, "--gpu=soft", "--in", "x:float32:64", "--out", "y", "--out",
		"count:uint32:1", "--nth", "2", "--",
		built.infer, "--passes", "2", "--out", s.path("recorded")}, args...)...)
}

// A replay gives what the program gave, and on other input what the program gives for that, however the work was
// submitted.
func TestReplay(t *testing.T) {
	for _, how := range []string{"stream", "streams", "graph", "whole"} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			file := s.path("m.hfr")
			s.recordInfer(file, "--how", how)
			m := into[inspected](s, "inspect", file)
			if e := m.Entries[0]; e.Launches != 4 || len(e.Inputs) != 1 || e.Inputs[0].Name != "x" ||
				e.Inputs[0].DType != "float32" || len(e.Outputs) != 2 {
				t.Errorf("%+v", e)
			}
			if got := s.replayed(file); got != s.read("recorded") {
				t.Errorf("replayed %x\nrecorded %x", got, s.read("recorded"))
			}
			for seed := range 3 {
				x := s.input("x.bin", seed)
				s.ok("run", "--gpu=soft", "--", built.infer, "--passes", "2", "--how", how, "--in", x, "--out",
					s.path("plain"))
				if got := s.replayed(file, "--in", "x="+x); got != s.read("plain") {
					t.Errorf("input %d: replayed %x\nthe program %x", seed, got, s.read("plain"))
				}
			}
		})
	}
}

// Runs go on from each other's memory, or each from the recording's.
func TestReplayRuns(t *testing.T) {
	s := newSite(t)
	file := s.path("m.hfr")
	s.recordInfer(file)
	count := func(args ...string) uint32 {
		out := s.replayed(file, args...)
		return binary.LittleEndian.Uint32([]byte(out[len(out)-4:]))
	}
	if n := count(); n != 42 { // the second pass counts from 41
		t.Errorf("once: %d", n)
	}
	if n := count("-n", "5"); n != 46 {
		t.Errorf("five times: %d", n)
	}
	if n := count("-n", "5", "--reset", "--same"); n != 42 {
		t.Errorf("five times from the start: %d", n)
	}
	// Without --reset the count goes on, so outputs are not the same.
	if out := s.fails(1, "replay", file, "--backend", "soft", "-n", "5", "--same"); !strings.Contains(out,
		"run 2 left other bits") {
		t.Error(out)
	}
	s.ok("replay", file, "--backend", "soft", "--out", "y="+s.path("y.npy"))
	if npy := s.read("y.npy"); !strings.Contains(npy, "'descr': '|u1', 'fortran_order': False, 'shape': (64,)") ||
		len(npy)%64 != 0 {
		t.Errorf("%q", npy)
	}
}

// What cannot be replayed is refused by name, leaves no file, and does not disturb the program.
func TestRecordRefuses(t *testing.T) {
	s := newSite(t)
	refused := func(want string, args ...string) {
		t.Helper()
		text := s.fails(125, append([]string{"record", "-o", s.path("m.hfr"), "--gpu=soft"}, args...)...)
		if !strings.Contains(text, want) {
			t.Errorf("want something about %q:\n%s", want, text)
		}
	}
	for how, want := range map[string]string{
		"managed": "managed memory at 0x", "host": "kernel spin is given host memory", "function": "cuLaunchHostFunc",
	} {
		refused(want, "--", built.infer, "--how", how, "--out", s.path(how))
		if len(s.read(how)) != 68 {
			t.Errorf("%s: the program did not run to its end", how)
		}
	}
	refused("no NVTX range", "--range", "other", "--", built.infer)
	refused("no NVTX range", "--nth", "2", "--", built.infer)
	refused("2 inputs are named, the range has 1", "--in", "a", "--in", "b", "--", built.infer)
	refused("the range has 2 outputs (64, 4 bytes)", "--out", "y:float32:17", "--", built.infer)
	refused("no program came", "--", "true")
	s.onlyFiles("managed", "host", "function")
}

// onlyFiles fails the test if there is anything else in the directory of what the test writes.
func (s *site) onlyFiles(names ...string) {
	s.t.Helper()
	list, err := os.ReadDir(s.work)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list {
		known := false
		for _, n := range names {
			known = known || n == e.Name()
		}
		if !known {
			s.t.Errorf("%s is left", e.Name())
		}
	}
}

// A range may be marked in every way that NVTX has for ranges of the default domain.
func TestRecordMarks(t *testing.T) {
	s := newSite(t)
	for mode, want := range map[string]string{
		"before": "beforeit", "start": "startend", "attributes": "attribut", "nested": "nestedin",
		"registered": "register", "domain": "twodomai",
		// Graphs: of one node, which has no edges; with memory that was allocated and freed while it was captured.
		"single": "twohtwoh", "memory": "alfstwoh",
	} {
		file := s.path(mode + ".hfr")
		s.ok("record", "-o", file, "--gpu=soft", "--", built.marks, mode)
		s.ok("replay", file, "--backend", "soft", "--out", "out0="+s.path("out"))
		if got := s.read("out"); got != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
		if m := into[inspected](s, "inspect", file); len(m.Entries[0].Inputs) != 1 || len(m.Entries[0].Outputs) != 1 {
			t.Errorf("%s: %+v", mode, m.Entries[0])
		}
	}
	for mode, want := range map[string]string{
		"other": "no NVTX range", "open": "ended within its range", "texture": "texture or surface objects",
		"texture within": "cuTexObjectCreate",
	} {
		if text := s.fails(125, "record", "-o", s.path("none"), "--gpu=soft", "--", built.marks,
			mode); !strings.Contains(text, want) {
			t.Errorf("%s: %s", mode, text)
		}
	}
}

// Who interrupts the recording has nothing, not even parts of it.
func TestRecordInterrupted(t *testing.T) {
	s := newSite(t)
	p := s.launch("interrupted", "record", "-o", s.path("m.hfr"), "--gpu=soft", "--", built.infer, "--wait")
	s.until("the range", func() bool { return strings.Contains(p.text(), "in the range") })
	if list, err := filepath.Glob(s.path(".m.hfr.*.partial")); err != nil || len(list) != 1 {
		t.Errorf("%v, %v: the test looks at the wrong time", list, err)
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	if status := p.wait(); status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d\n%s", status, p.text())
	}
	list, err := filepath.Glob(s.path("*m.hfr*"))
	hidden, err2 := filepath.Glob(s.path(".*"))
	if err != nil || err2 != nil || len(list)+len(hidden) > 0 {
		t.Errorf("left: %v %v", list, hidden)
	}
}

// A recording that is cut short or changed is refused before anything runs.
func TestReplayDamaged(t *testing.T) {
	s := newSite(t)
	file := s.path("m.hfr")
	s.recordInfer(file)
	good := []byte(s.read("m.hfr"))
	bad := func(name string, b []byte, want string) {
		t.Helper()
		if err := os.WriteFile(s.path(name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		if text := s.fails(1, "replay", s.path(name), "--backend", "soft"); !strings.Contains(text, want) {
			t.Errorf("%s: %s", name, text)
		}
		s.fails(1, "inspect", s.path(name))
	}
	bad("short", good[:len(good)-1], "cut short")
	bad("header", good[:20], "too few")
	bad("other", []byte(strings.Repeat("x", 100)), "does not begin")
	flipped := bytes.Clone(good)
	flipped[100] ^= 1 // of the first chunk
	bad("chunk", flipped, "chunk 0")
	flipped = bytes.Clone(good)
	flipped[len(flipped)-10] ^= 1
	bad("manifest", flipped, "digest of its manifest")
	for _, args := range [][]string{
		{"--in", "x=" + s.path("short")}, // of another size
	} {
		s.fails(1, append([]string{"replay", file, "--backend", "soft"}, args...)...)
	}
	s.fails(2, "replay", file, "--backend", "soft", "--in", "nothing="+file)
	s.fails(2, "replay", file, "--backend", "soft", "--out", "y")
}

// resealed is a recording with another manifest, whose digest is right.
func resealed(b []byte, change func(manifest string) string) []byte {
	at := binary.LittleEndian.Uint64(b[16:])
	text := change(string(b[at:]))
	out := append(bytes.Clone(b[:at]), text...)
	binary.LittleEndian.PutUint64(out[24:], uint64(len(text)))
	sum := sha256.Sum256([]byte(text))
	copy(out[32:], sum[:])
	return out
}

// What a program does is proven to stay in its memory, whose weights are known to be constant; what was changed such
// that it does not is refused.
func TestVerify(t *testing.T) {
	s := newSite(t)
	file := s.path("m.hfr")
	s.recordInfer(file, "--how", "streams")
	if text := s.ok("verify", file, "--strict"); !strings.Contains(text, "4 launches: 4 proven") ||
		!strings.Contains(text, "6 (3.05 MiB) that nothing writes") {
		t.Error(text)
	}
	r := into[struct {
		Verified bool
		Regions  []struct{ Class, Written string }
	}](s, "verify", file)
	constant := 0
	for _, g := range r.Regions {
		if (g.Class == recording.Constant) != (g.Written == "never") {
			t.Errorf("%+v", g)
		}
		if g.Class == recording.Constant {
			constant++
		}
	}
	if !r.Verified || constant != 6 {
		t.Errorf("%+v", r)
	}
	refused := func(file, want string, args ...string) {
		t.Helper()
		if text := s.fails(1, append([]string{"verify", file}, args...)...); !strings.Contains(text, want) {
			t.Errorf("%s, want something about %q", text, want)
		}
	}
	good := []byte(s.read("m.hfr"))
	put := func(name string, b []byte) string {
		if err := os.WriteFile(s.path(name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		return s.path(name)
	}
	refused(put("short", good[:len(good)-1]), "cut short")
	refused(put("constant", resealed(good, func(m string) string {
		return strings.Replace(m, `"bytes":64,"class":"live"`, `"bytes":64,"class":"constant"`, 1)
	})), "is constant")
	refused(put("unknown", resealed(good, func(m string) string {
		return strings.Replace(m, `"arch":90`, `"arch":90,"autorun":true`, 1)
	})), "unknown field")
	refused(s.faulty(softMemory+64<<30, 10), "kernel spin: it writes 0x801000000000")
	s.ok("verify", s.faulty(softMemory, 10), "--strict")
}

// softMemory is where device memory of the software GPU begins.
const softMemory = 1 << 47

// Work of every kind does what it says, in a word of many pieces, too.
func TestReplayWork(t *testing.T) {
	s := newSite(t)
	const base, staging, size = softMemory, softMemory + 4<<20, 4096
	file := s.path("work.hfr")
	w, err := recording.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	start := make([]byte, size)
	for i := range start {
		start[i] = byte(i)
	}
	want := bytes.Clone(start)
	var work []byte
	add := func(after []uint32, c *trace.Copy) {
		c.Depth = 1
		if len(after) > 0 {
			if work, err = trace.Append(work, &trace.After{Works: after}); err != nil {
				t.Fatal(err)
			}
		}
		if work, err = trace.Append(work, c); err != nil {
			t.Fatal(err)
		}
	}
	var first []uint32
	for i := range uint32(20) { // rows 32 bytes apart, of elements of 1, 2 and 4 bytes
		element := uint64(1) << (i % 3)
		at := uint64(i) * 128
		add(nil, &trace.Copy{Flags: trace.Set, Dst: base + at, DstPitch: 32, Src: 0x04030201, SrcPitch: element,
			Width: 8, Height: 3})
		for row := range uint64(3) {
			for k := range uint64(8) {
				want[at+32*row+k] = byte(k%element + 1)
			}
		}
		first = append(first, i)
	}
	add(first, &trace.Copy{Dst: base + 3000, DstPitch: 40, Src: base, SrcPitch: 128, Width: 20, Height: 10})
	for row := range 10 {
		copy(want[3000+40*row:][:20], bytes.Clone(want[128*row:][:20]))
	}
	add([]uint32{20}, &trace.Copy{Dst: staging, Src: base, Width: size, Height: 1})
	live := w.Put(start)
	_, err = w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []recording.Variable{},
		Code: []recording.Code{}, Kernels: []recording.Kernel{},
		Memory:  []recording.Region{{Addr: base, Bytes: size, Class: recording.Live, Contents: &live}},
		Staging: recording.Span{Addr: staging, Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Copies: 2, Sets: 20, Inputs: []recording.Port{}, Work: w.Put(work),
			Outputs: []recording.Port{{Addr: staging, Bytes: size, DType: "uint8", Name: "out0", Shape: []int{size}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range [][]string{nil, {"--step"}, {"-n", "2", "--reset"}} {
		s.ok(append([]string{"replay", file, "--backend", "soft", "--out", "out0=" + s.path("out")}, how...)...)
		if got := []byte(s.read("out")); !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%v: byte %d is %d, want %d", how, i, got[i], want[i])
				}
			}
			t.Fatalf("%v: %d bytes", how, len(got))
		}
	}
}

// faulty makes a recording of one launch of infer's kernel spin.
func (s *site) faulty(addr uint64, times uint32) string {
	s.t.Helper()
	ptx, err := os.ReadFile("../../examples/infer/infer.ptx")
	if err != nil {
		s.t.Fatal(err)
	}
	file := s.path("faulty.hfr")
	w, err := recording.Create(file)
	if err != nil {
		s.t.Fatal(err)
	}
	params := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, addr), times)
	work, err := trace.Append(nil, &trace.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Cluster: [3]uint32{1, 1, 1}, Params: params})
	if err != nil {
		s.t.Fatal(err)
	}
	zero := w.Put(make([]byte, 4096))
	_, err = w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []recording.Variable{},
		Code: []recording.Code{{Images: []recording.Image{{Arch: 70, Contents: w.Put(ptx), Kind: recording.PTX}}}},
		Kernels: []recording.Kernel{{Name: "spin", Params: []recording.Param{{Offset: 0, Size: 8}, {Offset: 8,
			Size: 4}}}},
		Memory:  []recording.Region{{Addr: softMemory, Bytes: 4096, Class: recording.Live, Contents: &zero}},
		Staging: recording.Span{Addr: softMemory + 4<<20},
		Entries: []recording.Entry{{Name: "e", Launches: 1, Inputs: []recording.Port{}, Outputs: []recording.Port{},
			Work: w.Put(work)}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return file
}

// A fault, or work that does not end, is an error that names the kernel, and harms no other replay.
func TestReplayFault(t *testing.T) {
	s := newSite(t)
	s.ok("replay", s.faulty(softMemory, 10), "--backend", "soft")
	file := s.faulty(softMemory+64<<30, 10)
	if text := s.fails(1, "replay", file, "--backend", "soft"); !strings.Contains(text, "--step says where") {
		t.Error(text)
	}
	if text := s.fails(1, "replay", file, "--backend", "soft", "--step"); !strings.Contains(text,
		"word 0, op 0 (spin)") {
		t.Error(text)
	}
	endless := s.faulty(softMemory, 1<<32-1)
	if text := s.fails(1, "replay", endless, "--backend", "soft", "--step", "--timeout",
		"100ms"); !strings.Contains(text, "(spin): not complete after 100ms") {
		t.Error(text)
	}
	s.ok("replay", s.faulty(softMemory, 10), "--backend", "soft")
}

// The replayer without a CUDA library is one static file of 4 MB at most.
func TestReplayerIsSmall(t *testing.T) {
	st, err := os.Stat("../../bin/hfreplay")
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() > 4_000_000 {
		t.Errorf("hfreplay has %d bytes", st.Size())
	}
}
