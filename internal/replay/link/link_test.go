package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/cubin"
	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
	"holdfast/internal/engine/raw/rawtest"
	"holdfast/internal/hfx"
	"holdfast/internal/npy"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
	"holdfast/internal/rm"
	"holdfast/internal/rm/rmtest"
	"holdfast/internal/trace"
	"holdfast/test/rig"
)

var le = binary.LittleEndian

const (
	liveAt    = 0x7f00_0000_0000
	stagingAt = 0x7f10_0000_0000
	liveBytes = 3<<20 + 4242
	inBytes   = 4 * 250_000 // more than one half of the staging memory
)

// recorded is a recording of two inputs, launches of the sample's chain (some alone, some side by side), a cooperative
// one, copies and a set, and two outputs.
func recorded(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(rig.Path(t, "internal/cubin/testdata/sm_90.cubin"))
	if err != nil {
		t.Fatal(err)
	}
	live := pattern(liveBytes, 3)
	clear(live[1<<20 : 2<<20]) // a chunk that is not in the file
	contents, code := w.Put(live), w.Put(image)
	in, small := w.Put(pattern(inBytes, 5)), w.Put([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	work := worklist(t)
	_, err = w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{},
		Code: []recording.Code{{Images: []recording.Image{{Arch: 90, Kind: recording.Cubin, Contents: code}}}},
		Kernels: []recording.Kernel{{Name: "chain", Params: []recording.Param{{Offset: 0, Size: 8},
			{Offset: 8, Size: 4}, {Offset: 12, Size: 4}}},
			{Name: "coop", Params: []recording.Param{{Offset: 0, Size: 8}}},
			{Name: "local", Params: []recording.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 4}}}},
		Memory: []recording.Region{{Addr: liveAt, Bytes: liveBytes, Class: recording.Live, Contents: &contents},
			{Addr: liveAt + 1<<32, Bytes: 4096, Class: recording.Scratch}},
		Staging:   recording.Span{Addr: stagingAt, Bytes: 4 << 20},
		Variables: []recording.Variable{},
		Entries: []recording.Entry{{Name: "e", Launches: 8 + 5 + 100, Copies: 4, Sets: 1, Work: w.Put(work),
			Inputs: []recording.Port{
				{Addr: stagingAt, Bytes: inBytes, DType: "float32", Shape: []int{5, 50_000}, Name: "x", Recorded: &in},
				{Addr: stagingAt + 2<<20, Bytes: 8, DType: "uint8", Shape: []int{8}, Name: "flag", Recorded: &small}},
			Outputs: []recording.Port{
				{Addr: stagingAt + 1<<20, Bytes: inBytes, DType: "float32", Shape: []int{5, 50_000}, Name: "y"},
				{Addr: stagingAt + 3<<20, Bytes: 64, DType: "bfloat16", Shape: []int{32}, Name: "z"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pattern is n bytes, none of them 0.
func pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed>>24) | 1
	}
	return b
}

func worklist(t *testing.T) (work []byte) {
	t.Helper()
	launch := func(kernel uint32, flags uint16, params []byte) *trace.Launch {
		return &trace.Launch{Kernel: kernel, Flags: flags, Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{32, 1, 1},
			Cluster: [3]uint32{1, 1, 1}, Params: params}
	}
	chain := func(at uint64, mul, inc uint32) *trace.Launch {
		return launch(0, 0, le.AppendUint32(le.AppendUint32(le.AppendUint64(nil, at), mul), inc))
	}
	after := func(n ...uint32) *trace.After { return &trace.After{Works: n} }
	cp := func(dst, src, n uint64) *trace.Copy {
		return &trace.Copy{Dst: dst, Src: src, Width: n, Height: 1, Depth: 1}
	}
	list := []trace.Record{
		cp(liveAt+64, stagingAt, inBytes), cp(liveAt+2<<20, stagingAt+2<<20, 8),
		after(0, 1), chain(liveAt+64, 3, 1),
		after(2), chain(liveAt+64, 5, 7),
		after(3), chain(liveAt+64, 2, 9),
		after(3), chain(liveAt+128, 2, 9),
		after(4, 5), launch(1, trace.Cooperative, le.AppendUint64(nil, liveAt+1<<32)),
		after(6), launch(2, 0, le.AppendUint32(le.AppendUint64(nil, liveAt+1<<32), 9)),
		after(7), &trace.Copy{Flags: trace.Set, Dst: liveAt + 4096, Src: 0x3f, SrcPitch: 1, Width: 500, Height: 1,
			Depth: 1},
		after(8), chain(liveAt+4096, 3, 4),
		after(9), chain(liveAt+2<<20, 3, 4),
	}
	before, n := []uint32{10}, uint32(11)
	for i, wide := range []uint32{5, 100} { // side by side
		var word []uint32
		for k := range wide {
			list = append(list, after(before...), chain(liveAt+8192+256*uint64(k), 3+uint32(i), k))
			word, n = append(word, n), n+1
		}
		before = word
	}
	list = append(list, after(before...), cp(stagingAt+1<<20, liveAt+64, inBytes),
		after(before...), cp(stagingAt+3<<20, liveAt+2<<20, 64))
	for _, r := range list {
		var err error
		if work, err = trace.Append(work, r); err != nil {
			t.Fatal(err)
		}
	}
	return work
}

// play is a played driver that runs the sample's kernels as far as they are needed here.
func play(t *testing.T, version string) *rmtest.Driver {
	t.Helper()
	image, err := os.ReadFile(rig.Path(t, "internal/cubin/testdata/sm_90.cubin"))
	if err != nil {
		t.Fatal(err)
	}
	im, err := cubin.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	d := rawtest.Open(version)
	d.Kernel = func(m *rmtest.Memory, at uint64) error { return execute(im, m, at) }
	return d
}

// execute does what kernels of the sample do, and those that move memory.
func execute(im *cubin.Image, m *rmtest.Memory, at uint64) error {
	return rawtest.Play(m, at, im, func(l *rawtest.Launch) error {
		p := l.Params
		x := m.Bytes(le.Uint64(p), 4)
		switch {
		case x == nil:
			return fmt.Errorf("access to %#x", le.Uint64(p))
		case l.Name == "chain":
			le.PutUint32(x, le.Uint32(x)*le.Uint32(p[8:])+le.Uint32(p[12:]))
		case l.Name == "coop" || l.Name == "local":
			le.PutUint32(x, le.Uint32(x)+1)
		default:
			return fmt.Errorf("kernel %s is not played", l.Name)
		}
		return nil
	})
}

// inOrder is a backend that loads one code after the other, as linking does.
type inOrder struct{ engine.Backend }

func (b inOrder) Info() engine.Info {
	i := b.Backend.Info()
	i.LoadsAtOnce = false
	return i
}

// expected is what the raw backend does with a recording, and the outputs.
func expected(t *testing.T, file, version string, inputs map[string][]byte, runs int) (*rmtest.Driver,
	map[string][]byte) {
	t.Helper()
	d := play(t, version)
	b, err := raw.Open(raw.Options{Files: d})
	if err != nil {
		t.Fatal(err)
	}
	f, err := recording.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.InOrder = true
	p, err := replay.Load(inOrder{b}, f, "")
	if err != nil {
		t.Fatal(err, d.Errs)
	}
	for _, name := range []string{"x", "flag"} {
		if inputs[name] == nil {
			continue
		}
		if err := p.Entries[0].SetInput(name, inputs[name]); err != nil {
			t.Fatal(err)
		}
	}
	for range runs {
		if err := p.Entries[0].Run(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string][]byte{}
	for _, name := range []string{"y", "z"} {
		if out[name], err = p.Entries[0].Output(name); err != nil {
			t.Fatal(err)
		}
	}
	return d, out
}

// executable is that of the player, and linked is a recording linked for an H200.
func executable(t *testing.T) string {
	t.Helper()
	return filepath.Join(rig.Build(t, "tiny", []string{"replay/tiny/*.[ch]", "replay/tiny/build.sh"},
		func(dir string) error { return rig.Run("sh", rig.Path(t, "replay/tiny/build.sh"), dir) }), "player")
}

func linked(t *testing.T, file string) (string, *hfx.File) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "m.hfx")
	f, err := linkFile(t, file, to, raw.Known["h200"])
	if err != nil {
		t.Fatal(err)
	}
	return to, f
}

func linkFile(t *testing.T, from, to string, g raw.GPU) (*hfx.File, error) {
	t.Helper()
	f, err := recording.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return File(f, to, "", g)
}

// run runs the player on a played driver.
func run(t *testing.T, d *rmtest.Driver, args ...string) (status int, said string) {
	t.Helper()
	return runFile(t, executable(t), d, args...)
}

func runFile(t *testing.T, file string, d *rmtest.Driver, args ...string) (status int, said string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(file, args...)
	cmd.Stdout, cmd.Stderr = out, out
	status, release, err := d.Trace(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, string(b)
}

// The player asks the driver for what the raw backend asks for, in the same order and to the same bytes; it hands the
// channel the same words, and its outputs have the same bits.
func TestPlayer(t *testing.T) {
	file := recorded(t)
	model, f := linked(t, file)
	dir := t.TempDir()
	x, flag := pattern(inBytes, 77), []byte{9, 8, 7, 6, 5, 4, 3, 2}
	for _, c := range []struct {
		version string
		inputs  map[string][]byte
		runs    int
	}{{"580.159.04", nil, 1}, {"570.86.15", nil, 1}, {"575.64.05", map[string][]byte{"flag": flag}, 2},
		{"580.159.04", map[string][]byte{"x": x, "flag": flag}, 3}} {
		args := []string{"--model", model, "-n", fmt.Sprint(c.runs)}
		for name, b := range c.inputs {
			path := filepath.Join(dir, name+".bin")
			if name == "x" {
				path = filepath.Join(dir, "x.npy")
				a := &npy.Array{DType: "float32", Shape: []int{5, 50_000}, Data: b}
				if err := npy.WriteFile(path, a); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--in", name+"="+path)
		}
		y, z := filepath.Join(dir, "y.npy"), filepath.Join(dir, "z.bin")
		args = append(args, "--out", "y="+y, "--out", "z="+z)
		want, out := expected(t, file, c.version, c.inputs, c.runs)
		got := play(t, c.version)
		status, said := run(t, got, args...)
		if status != 0 || said != "" || len(got.Errs) > 0 {
			t.Fatalf("%s: status %d: %s\n%v", c.version, status, said, errors.Join(got.Errs...))
		}
		if gotY, err := npy.ReadFile(y, inBytes); err != nil || !bytes.Equal(gotY.Data, out["y"]) ||
			!slices.Equal(gotY.Shape, []int{5, 50_000}) || gotY.DType != "float32" {
			t.Errorf("%s: output y is another: %v", c.version, err)
		}
		if gotZ, err := os.ReadFile(z); err != nil || !bytes.Equal(gotZ, out["z"]) {
			t.Errorf("%s: output z is another: %v", c.version, err)
		}
		sameRequests(t, want.Requests, got.Requests)
		samePushes(t, f, want.Pushes, got.Pushes)
	}
}

// sameRequests compares what two asked the driver for. The raw backend has a debugger besides, which explains faults,
// and at its end gives back what the player leaves to the end of the process.
func sameRequests(t *testing.T, want, got []rmtest.Request) {
	t.Helper()
	want = slices.DeleteFunc(slices.Clone(want), func(r rmtest.Request) bool {
		return r.Number == rm.NV_ESC_RM_ALLOC && le.Uint32(r.Bytes[0][12:]) == rm.GT200_DEBUGGER
	})
	want, got = renumbered(want), renumbered(got)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) {
			t.Errorf("%d requests, want %d", len(got), len(want))
			return
		}
		if w, g := want[i], got[i]; w.Path != g.Path || w.Number != g.Number || !slices.EqualFunc(w.Bytes, g.Bytes,
			bytes.Equal) {
			t.Errorf("request %d of %s is %#x\n%x\nwant %#x of %s\n%x", i, g.Path, g.Number, g.Bytes, w.Number, w.Path,
				w.Bytes)
			return
		}
	}
}

// renumbered has handles that clients choose count up in the order in which they come.
func renumbered(list []rmtest.Request) []rmtest.Request {
	next := uint32(0)
	of := map[uint32]uint32{}
	for _, r := range list {
		for _, b := range r.Bytes {
			for ; len(b) >= 4; b = b[4:] {
				h := le.Uint32(b)
				if h>>16 != 0x5c00 {
					continue
				}
				if of[h] == 0 {
					next++
					of[h] = 0x5d000000 + next
				}
				le.PutUint32(b, of[h])
			}
		}
	}
	return list
}

// samePushes compares what the channel was handed. Until the recording is loaded all is the same, where it stands too.
// After that, tickets and places in the ring of small pushbuffers count on from other numbers.
func samePushes(t *testing.T, f *hfx.File, want, got []rmtest.Push) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d submissions, want %d", len(got), len(want))
	}
	loading := 0
	for _, o := range f.Ops[:f.Groups[0].Count] {
		if o.Kind == hfx.OpSubmit {
			loading++
		}
	}
	host := f.Memory[hfx.MemoryHost]
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		both := w.Addr-host.Addr < host.Bytes && g.Addr-host.Addr < host.Bytes
		if i >= loading && both && len(w.Words) == len(g.Words) {
			w.Addr = g.Addr
			ticket := len(w.Words) - 12 // of the release at its end
			copy(w.Words[ticket:][:8], g.Words[ticket:][:8])
		}
		if w.Addr != g.Addr || !bytes.Equal(w.Words, g.Words) {
			t.Errorf("submission %d is\n%x at %#x, want\n%x at %#x", i, g.Words, g.Addr, w.Words, w.Addr)
			return
		}
	}
}

// What linking gives does not depend on when or where.
func TestPure(t *testing.T) {
	file := recorded(t)
	a, _ := linked(t, file)
	b, _ := linked(t, file)
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := os.ReadFile(b); err != nil || !bytes.Equal(x, y) {
		t.Error("the same recording gives two files: ", err)
	}
	file2, err := os.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer file2.Close()
	f, err := hfx.Open(file2, int64(len(x)))
	if err == nil {
		err = f.Verify()
	}
	if err != nil {
		t.Error(err)
	}
}

// The player is small: that is what it is for.
func TestSize(t *testing.T) {
	st, err := os.Stat(executable(t))
	if err != nil || st.Size() > 50_000 {
		t.Errorf("the player has %d bytes: %v", st.Size(), err)
	}
}

func TestGPU(t *testing.T) {
	want := raw.Known["h200"]
	for _, name := range []string{"h200", "sm_90", "sm_90:8,9,2,64,66"} {
		g, err := GPU(name)
		g.Name = want.Name
		if err != nil || g != want {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	for _, bad := range []string{"", "h9000", "sm_91", "sm_90:1,2", "sm_90:8,9,2,64,x", "sm_x:8,9,2,64,66"} {
		if _, err := GPU(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := raw.Link(raw.GPU{Arch: 120}, hfx.NewWriter(nil)); err == nil {
		t.Error("an architecture that nobody knows is linked for")
	}
}
