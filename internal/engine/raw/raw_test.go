package raw

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw/rawtest"
	"holdfast/internal/qmd"
	"holdfast/internal/rm"
	"holdfast/internal/rm/rmtest"
)

var le = binary.LittleEndian

const base = 0x7f00_0000_0000

// play opens a GPU on a played driver and ends with looking for what is left.
func play(t *testing.T, version string, o Options) (*rmtest.Driver, *Backend) {
	t.Helper()
	d := rawtest.Open(version)
	o.Files = d
	b, err := Open(o)
	if err != nil {
		t.Fatal(err, d.Errs)
	}
	d.Kernel = func(m *rmtest.Memory, at uint64) error { return rawtest.Play(m, at, nil, nil) }
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if left := d.Left(); left != "" {
			t.Error("left after Close: ", left)
		}
		for _, err := range d.Errs {
			t.Error(err)
		}
	})
	return d, b
}

// load loads the sample code and has the played GPU run some of it.
func load(t *testing.T, d *rmtest.Driver, b *Backend) *code {
	t.Helper()
	c := loadOn(t, b)
	d.Kernel = func(m *rmtest.Memory, at uint64) error { return execute(c, m, at) }
	return c
}

// execute does what kernels of the sample do, and those that move memory.
func execute(c *code, m *rmtest.Memory, at uint64) error {
	return rawtest.Play(m, at, c.image, func(l *rawtest.Launch) error {
		switch l.Name {
		case "empty":
		case "chain":
			x := m.Bytes(le.Uint64(l.Params), 4)
			if x == nil {
				return fmt.Errorf("access to %#x", le.Uint64(l.Params))
			}
			le.PutUint32(x, le.Uint32(x)*le.Uint32(l.Params[8:])+le.Uint32(l.Params[12:]))
		default:
			return fmt.Errorf("kernel %s is not played", l.Name)
		}
		return nil
	})
}

func chainOp(t testing.TB, c *code, addr uint64, mul, inc uint32) engine.Op {
	t.Helper()
	p := le.AppendUint32(le.AppendUint32(le.AppendUint64(nil, addr), mul), inc)
	return engine.Op{Launch: launchOf(t, c, "chain", p)}
}

func launchOf(t testing.TB, c *code, name string, params []byte) *engine.Launch {
	t.Helper()
	k, err := c.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: params}
}

// The calls of a bring-up, in their order.
func TestBringUp(t *testing.T) {
	for _, version := range []string{"570.86.15", "575.64.05", "580.159.04"} {
		for _, unified := range []bool{false, true} {
			d, b := play(t, version, Options{Unified: unified})
			i := b.Info()
			if i.Arch != 90 || i.Driver != version || i.Name != "Played GPU" || i.Memory != 1<<30 || !i.Cubin || i.PTX {
				t.Errorf("%+v", i)
			}
			if b.sms != 132 || b.warps != 64 {
				t.Errorf("%d multiprocessors of %d warps", b.sms, b.warps)
			}
			want := []string{"open /dev/nvidiactl", "alloc 0x41", "open /dev/nvidia0", "alloc 0x80", "alloc 0x2080",
				"alloc 0x90f1",
				"alloc 0xc661", "alloc 0xa06c", "alloc 0x9067", "alloc 0xc86f", "alloc 0xcbc0", "alloc 0xc8b5",
				"control 0x20801210",
				"control 0xa06c0101", "control 0xc36f0108"}
			if unified {
				want = slices.Insert(want, 6, "UVM_INITIALIZE_PARAMS", "UVM_REGISTER_GPU_PARAMS",
					"UVM_REGISTER_GPU_VASPACE_PARAMS")
				want = slices.Insert(want, len(want)-2, "UVM_REGISTER_CHANNEL_PARAMS")
			}
			at := 0
			for _, call := range d.Calls {
				if at < len(want) && call == want[at] {
					at++
				}
			}
			if at < len(want) {
				t.Errorf("%s, unified %v: %s does not come where it should:\n%s", version, unified, want[at],
					strings.Join(d.Calls, "\n"))
			}
		}
	}
}

// Clocks are asked for when wanted, and given back.
func TestBoost(t *testing.T) {
	d, _ := play(t, "580.95.05", Options{})
	if d.Boost != 0 {
		t.Errorf("boost %#x without being asked", d.Boost)
	}
	d, b := play(t, "580.95.05", Options{Boost: true})
	if d.Boost != 0x12 {
		t.Errorf("boost %#x", d.Boost)
	}
	if err := b.Close(); err != nil || d.Boost != 0x10 {
		t.Errorf("boost %#x after Close: %v", d.Boost, err)
	}
}

func TestRefusedDriver(t *testing.T) {
	d := rmtest.NewDriver("590.48.01")
	_, err := Open(Options{Files: d})
	var v *rm.VersionError
	if !errors.As(err, &v) || v.Version.Text != "590.48.01" || d.Left() != "" {
		t.Errorf("%v; left %q", err, d.Left())
	}
	if slices.ContainsFunc(d.Calls, func(s string) bool { return strings.HasPrefix(s, "alloc") }) {
		t.Errorf("something was made on a driver that is not known: %v", d.Calls)
	}
	d = rmtest.NewDriver("580.95.05")
	d.Classes = []uint32{0xcdc0}
	if _, err = Open(Options{Files: d}); err == nil || !strings.Contains(err.Error(), "Played GPU") || d.Left() != "" {
		t.Errorf("%v; left %q", err, d.Left())
	}
	if _, err = Open(Options{Files: d, Index: 1}); err == nil || d.Left() != "" {
		t.Errorf("%v; left %q", err, d.Left())
	}
}

func TestMemory(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	for _, bad := range [][2]uint64{{base + 4096, 2 << 20}, {base, 4096}, {base, 0}, {ownBase, 2 << 20},
		{ownBase - 2<<20, 4 << 20},
		{localWindow, 2 << 20}, {1<<48 - 2<<20, 4 << 20}, {1<<64 - 2<<20, 4 << 20}} {
		if err := b.Map(bad[0], bad[1]); err == nil {
			t.Errorf("map %#x+%#x is taken", bad[0], bad[1])
		}
	}
	if err := b.Map(base, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := b.Map(base+6<<20, 4<<20); err == nil {
		t.Error("two mappings overlap")
	}
	if got := d.Space.Bytes(base, 8<<20); len(bytes.Trim(got, "\x00")) != 0 {
		t.Error("mapped memory is not zeroed")
	}
	in := make([]byte, 5<<20+13)
	for i := range in {
		in[i] = byte(i * 7 >> 3)
	}
	if err := b.Write(base+5, in); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(d.Space.Bytes(base+5, uint64(len(in))), in) {
		t.Error("what was written is not there")
	}
	out := make([]byte, len(in))
	if err := b.Read(base+5, out); err != nil || !bytes.Equal(in, out) {
		t.Errorf("read: %v", err)
	}
	if err := b.Map(base+8<<20, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(base+8<<20-10, in[:20]); err != nil {
		t.Errorf("across two mappings: %v", err)
	}
	for _, bad := range [][2]uint64{{base - 1, 2}, {base + 10<<20 - 1, 2}, {base + 12<<20, 1}, {0, 1}, {1<<64 - 1, 1}} {
		p := make([]byte, bad[1])
		if b.Write(bad[0], p) == nil || b.Read(bad[0], p) == nil {
			t.Errorf("%#x+%d is written or read", bad[0], bad[1])
		}
	}
	if err := b.Unmap(base + 8<<20); err != nil {
		t.Error(err)
	}
	if err := b.Unmap(base); err != nil {
		t.Error(err)
	}
	if err := b.Unmap(base); err == nil {
		t.Error("unmapped twice")
	}
	if d.Space.Bytes(base, 1) != nil {
		t.Error("still mapped")
	}
	if err := b.Map(base, 2<<20); err != nil {
		t.Error(err)
	}
	if err := b.Read(base, nil); err != nil {
		t.Error(err)
	}
}

// Words see what the words before them did: launches, chained ones and many at once, copies and sets.
func TestWords(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 4<<20); err != nil {
		t.Fatal(err)
	}
	const lanes = 100
	want := make([]uint32, lanes)
	words := []engine.Word{{Ops: []engine.Op{{Set: &engine.Set{Dst: base, Width: lanes * 64, Height: 1, Value: 7,
		Size: 4}}}}}
	for i := range want {
		want[i] = 7
	}
	for k := range uint32(40) {
		var w engine.Word
		count := uint32(1)
		switch k % 7 {
		case 3:
			count = lanes
		case 4:
			count = 5
		}
		for l := range count {
			at := (l + k) % lanes
			w.Ops = append(w.Ops, chainOp(t, c, base+uint64(at)*256, k*2+3, k+1))
			want[at] = want[at]*(k*2+3) + k + 1
		}
		words = append(words, w)
		if k%10 == 5 {
			words = append(words, engine.Word{Ops: []engine.Op{
				{Copy: &engine.Copy{Dst: base + 1<<20, Src: base, DstPitch: 512, SrcPitch: 256, Width: 256,
					Height: lanes}},
				{Set: &engine.Set{Dst: base + 2<<20, Pitch: 100, Width: 33, Height: 5, Value: k, Size: 1}}}},
				engine.Word{Ops: []engine.Op{{Set: &engine.Set{Dst: base, Width: lanes * 128, Height: 1, Value: 1,
					Size: 2}}}},
				engine.Word{Ops: []engine.Op{chainOp(t, c, base+3<<20, 1, 1),
					{Copy: &engine.Copy{Dst: base, Src: base + 1<<20, DstPitch: 256, SrcPitch: 512, Width: 256,
						Height: lanes}}}})
		}
	}
	p, err := b.Prepare(words)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.Methods = nil
		if err := p.Run(time.Minute); err != nil {
			t.Fatal(err, d.Methods)
		}
		for i, x := range want {
			if got := le.Uint32(d.Space.Bytes(base+uint64(i)*256, 4)); got != x {
				t.Errorf("lane %d is %#x, want %#x", i, got, x)
			}
		}
	}
	if got := d.Space.Bytes(base+2<<20, 450); got[32] != 35 || got[33] != 0 || got[400+32] != 35 || got[400+33] != 0 {
		t.Error("a set of rows is wrong")
	}
	if !slices.Contains(d.Methods, "chained") {
		t.Error("no launch was chained")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Run(time.Second); err == nil {
		t.Error("a closed program runs")
	}
}

// Copies and sets of all alignments do what they say, and nothing else, as launches or by the copy engine.
func TestMoves(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	tryMoves(t, b)
	for _, m := range []string{"launch", "set"} {
		if !slices.Contains(d.Methods, m) {
			t.Errorf("none by %s", m)
		}
	}
}

func tryMoves(t *testing.T, b *Backend) {
	t.Helper()
	const size = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	if err := b.Write(base, want); err != nil {
		t.Fatal(err)
	}
	pick := func(most uint64) uint64 { return rng.Uint64N(most) &^ (1<<rng.Uint64N(6) - 1) }
	for range 300 {
		height := 1 + rng.Uint64N(3)*rng.Uint64N(20)
		var op engine.Op
		if rng.IntN(2) == 0 {
			c := &engine.Copy{Width: 1 + pick(3000), Height: height}
			c.DstPitch, c.SrcPitch = c.Width+pick(200), c.Width+pick(200)
			c.Dst, c.Src = base+pick(size/3), base+pick(size/3)
			if rng.IntN(8) > 0 {
				c.Src += size / 2
			}
			if overlap(c) { // what comes out then is not said
				continue
			}
			op.Copy = c
			from := bytes.Clone(want)
			for y := range height {
				copy(want[c.Dst-base+y*c.DstPitch:][:c.Width], from[c.Src-base+y*c.SrcPitch:])
			}
		} else {
			s := &engine.Set{Size: 1 << rng.IntN(3), Width: 1 + pick(1000), Height: height, Value: rng.Uint32()}
			s.Pitch = s.Width*uint64(s.Size) + pick(100)
			s.Dst = base + pick(size/2)&^uint64(s.Size-1)
			op.Set = s
			for y := range height {
				for i := range s.Width * uint64(s.Size) {
					want[s.Dst-base+y*s.Pitch+i] = byte(s.Value >> (8 * (i % uint64(s.Size))))
				}
			}
		}
		p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{op}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Run(time.Minute), p.Close()); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if err := b.Read(base, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v %+v does something else", op.Copy, op.Set)
		}
	}
}

// Words of several launches begin when all of the word before are complete, however they are started.
func TestCounted(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	tryCounted(t, b, c, 20, 2)
	for _, m := range []string{"counted", "chained", "ahead", "idle"} {
		if !slices.Contains(d.Methods, m) {
			t.Errorf("never %s", m)
		}
	}
}

// What an earlier, longer program has left as its progress names no word of this one.
func TestBlameBeforeBegin(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{chainOp(t, c, base, 3, 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []int{1, 99} {
		f := &engine.Fault{Place: engine.Place{Word: word, Op: -1}}
		if p.(*program).blameCode(f, c.memory.addr) || f.Word != word {
			t.Errorf("word %d: %+v", word, f)
		}
	}
}

// tryCounted runs random words whose order shows in what they compute.
func tryCounted(t *testing.T, b *Backend, c *code, programs, runs int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	const lanes = 8
	seen := map[begin]int{}
	for i := range programs {
		var words []engine.Word
		want := make([]uint32, lanes)
		if err := b.Write(base, make([]byte, lanes*256)); err != nil {
			t.Fatal(err)
		}
		type step struct{ lane, mul, inc uint32 }
		var steps []step
		for range 60 {
			var w engine.Word
			// Mostly runs of words of one or two.
			for _, lane := range rng.Perm(lanes)[:[]int{1, 1, 2, 2, 2, 2, 2, 2, 1, 3, 4, 5}[rng.IntN(8+i%5)]] {
				s := step{uint32(lane), rng.Uint32() | 1, rng.Uint32()}
				steps = append(steps, s)
				w.Ops = append(w.Ops, chainOp(t, c, base+uint64(lane)*256, s.mul, s.inc))
			}
			words = append(words, w)
		}
		p, err := b.Prepare(words)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.(*program).begins {
			seen[l]++
		}
		for run := range runs {
			for _, s := range steps {
				want[s.lane] = want[s.lane]*s.mul + s.inc
			}
			if err := p.Run(time.Minute); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, lanes*256)
			if err := b.Read(base, got); err != nil {
				t.Fatal(err)
			}
			for lane, x := range want {
				if y := le.Uint32(got[lane*256:]); y != x {
					t.Fatalf("program %d, run %d, lane %d: %#x, want %#x", i, run, lane, y, x)
				}
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if seen[pushed] == 0 || seen[started] == 0 || seen[counted] == 0 || seen[gated] == 0 {
		t.Errorf("words that are pushed, started, counted, gated: %v", seen)
	}
}

// A launch that starts the next one does so when it is complete, whatever its code says (PREEXIT).
func TestChainedIsWhole(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	word := func(name string) engine.Word {
		l := launchOf(t, c, name, nil)
		fn, err := c.image.Function(name)
		if err != nil {
			t.Fatal(err)
		}
		l.Params = make([]byte, fn.ParamSize)
		return engine.Word{Ops: []engine.Op{{Launch: l}}}
	}
	p, err := b.Prepare([]engine.Word{word("chain"), word("dependent"), word("chain")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	data := p.(*program).data
	for i, bl := range p.(*program).blocks {
		q := qmd.Descriptor{V: &qmd.V4, B: d.Space.Bytes(data.addr+bl.descriptor, uint64(qmd.V4.Size))}
		next, early := q.Get(qmd.DependentEnable, 0) == 1, q.Get(qmd.EnableProgramPreExit, 0) == 1
		if next != (i < 2) || early == next {
			t.Errorf("launch %d starts the next one: %v; PREEXIT counts: %v", i, next, early)
		}
	}
}

// The boundary between two words that are not chained: idle, then caches; copies are joined.
func TestBoundaries(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(d.Methods, "new code") {
		t.Error("the GPU is not told that there is new code")
	}
	one := chainOp(t, c, base, 3, 1)
	engines := engine.Op{Copy: &engine.Copy{Dst: base + 4, Src: base, Width: 8, Height: 1}} // it overlaps
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{one, one}}, {Ops: []engine.Op{one}}, {Ops: []engine.Op{one}},
		{Ops: []engine.Op{engines, one}}, {Ops: []engine.Op{one}}, {}, {Ops: []engine.Op{engines}}})
	if err != nil {
		t.Fatal(err)
	}
	d.Methods = nil
	var invalidates []uint64
	execute := d.Kernel
	d.Kernel = func(m *rmtest.Memory, at uint64) error {
		q := qmd.Descriptor{V: &qmd.V4, B: m.Bytes(at, uint64(qmd.V4.Size))}
		invalidates = append(invalidates, q.Get(qmd.InvalidateShaderData, 0))
		return execute(m, at)
	}
	if err := p.Run(time.Minute); err != nil {
		t.Fatal(err)
	}
	want := "invalidate ahead launch launch counted launch chained launch acquire idle " +
		"invalidate copy launch joined acquire idle invalidate launch idle invalidate invalidate copy joined acquire " +
		"release"
	if got := strings.Join(d.Methods, " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// Launches that others start begin without a method that invalidates: their descriptors say it.
	if want := []uint64{0, 0, 1, 1, 0, 0}; !slices.Equal(invalidates, want) {
		t.Errorf("descriptors invalidate: %v, want %v", invalidates, want)
	}
}

// A fault names word, kernel and address, ends the channel, and leaves everything closable.
func TestFault(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	good, bad := chainOp(t, c, base, 1, 1), chainOp(t, c, 0x1234_5678_9000, 1, 1)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{good}}, {Ops: []engine.Op{good}}, {Ops: []engine.Op{bad}},
		{Ops: []engine.Op{good}}})
	if err != nil {
		t.Fatal(err)
	}
	d.FaultAt = 0x1234_5678_9000
	err = p.Run(time.Minute)
	var f *engine.Fault
	if !errors.As(err, &f) || f.Word != 2 || f.Op != 0 || f.Kernel != "chain" || f.Addr != d.FaultAt {
		t.Fatalf("%v", err)
	}
	if err := p.Run(time.Second); err == nil || !strings.Contains(err.Error(), "chain") {
		t.Errorf("next run: %v", err)
	}
	for what, err := range map[string]error{"map": b.Map(base+4<<20, 2<<20), "write": b.Write(base, []byte{1}),
		"read": b.Read(base, []byte{1})} {
		if err == nil {
			t.Errorf("%s goes on", what)
		}
	}
	if err := errors.Join(p.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// Of several launches at once the one is named in whose code the fault is; of two of one kernel, the kernel.
func TestFaultAmongMany(t *testing.T) {
	for _, twice := range []bool{false, true} {
		d, b := play(t, "580.95.05", Options{})
		c := load(t, d, b)
		if err := b.Map(base, 2<<20); err != nil {
			t.Fatal(err)
		}
		good, bad := engine.Op{Launch: launchOf(t, c, "empty", nil)}, chainOp(t, c, 0x1234_5678_9000, 1, 1)
		word := engine.Word{Ops: []engine.Op{good, good, bad}}
		want := engine.Place{Word: 1, Op: 2, Kernel: "chain"}
		if twice {
			word.Ops = append(word.Ops, bad)
			want.Op = -1
		}
		// The same kernel in another word is not meant.
		p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{chainOp(t, c, base, 1, 1), good}}, word})
		if err != nil {
			t.Fatal(err)
		}
		k, err := c.Kernel("chain")
		if err != nil {
			t.Fatal(err)
		}
		d.FaultPC = c.memory.addr + k.(*kernel).fn.Code + 0x40
		var f *engine.Fault
		if err := p.Run(time.Minute); !errors.As(err, &f) || f.Place != want {
			t.Errorf("%v, want %v", err, want)
		}
		if err := c.Close(); err == nil {
			t.Error("code is closed while a program has it")
		}
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Work that does not end is given up, by name.
func TestTimeout(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	if err := b.Map(base, 2<<20); err != nil {
		t.Fatal(err)
	}
	one := chainOp(t, c, base, 1, 1)
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{one, one}}, {Ops: []engine.Op{one, one}}})
	if err != nil {
		t.Fatal(err)
	}
	d.Hang = 3
	err = p.Run(time.Millisecond)
	var out *engine.Timeout
	if !errors.As(err, &out) || out.Word != 1 || out.Op != -1 {
		t.Errorf("%v", err)
	}
}

// What cannot be right is refused before anything reaches the GPU, with its place and the kernel's name.
func TestRefusedWork(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	_, other := play(t, "580.95.05", Options{})
	with := func(name string, params int, change func(*engine.Launch)) engine.Op {
		l := launchOf(t, c, name, make([]byte, params))
		change(l)
		return engine.Op{Launch: l}
	}
	nothing := func(*engine.Launch) {}
	for _, w := range []struct {
		what string
		op   engine.Op
		says string
	}{
		{"printf", with("print", 4, nothing), "print): it cannot run without libcuda: it calls vprintf"},
		{"malloc", with("heap", 8, nothing), "heap): it cannot run without libcuda: it calls malloc"},
		{"parameters", with("chain", 15, nothing), "15 bytes of parameters, it takes 16"},
		{"grid", with("empty", 0, func(l *engine.Launch) { l.Grid[1] = 65536 }), "grid of"},
		{"block", with("empty", 0, func(l *engine.Launch) { l.Block = [3]uint32{32, 33, 1} }), "block of"},
		{"block depth", with("empty", 0, func(l *engine.Launch) { l.Block[2] = 65 }), "block of"},
		{"launch bounds", with("regs", 8, func(l *engine.Launch) { l.Block[0] = 129 }), "the kernel takes 128"},
		{"shared memory", with("dsmem", 12, func(l *engine.Launch) { l.Shared = 228 << 10 }), "a block may have"},
		{"cluster", with("clusterany", 8, func(l *engine.Launch) { l.Cluster = [3]uint32{2, 1, 1} }),
			"not of whole clusters"},
		{"cooperative", with("coop", 8, func(l *engine.Launch) {
			l.Cooperative, l.Grid[0], l.Block[0] = true, 265,
				1024
		}), "can run at once"},
		{"nothing", engine.Op{}, "must be one"},
		{"two things", engine.Op{Set: &engine.Set{}, Copy: &engine.Copy{}}, "must be one"},
		{"rows closer than long", engine.Op{Copy: &engine.Copy{Dst: base, Src: base, DstPitch: 10, SrcPitch: 0,
			Width: 10, Height: 2}}, "apart"},
		{"no bytes", engine.Op{Copy: &engine.Copy{}}, "copy of"},
		{"odd elements", engine.Op{Set: &engine.Set{Dst: base, Width: 1, Height: 1, Size: 3}}, "elements of 3"},
		{"odd address", engine.Op{Set: &engine.Set{Dst: base + 2, Width: 1, Height: 1, Size: 4}}, "elements of 4"},
	} {
		_, err := b.Prepare([]engine.Word{{}, {Ops: []engine.Op{w.op}}})
		if err == nil || !strings.Contains(err.Error(), w.says) || !strings.Contains(err.Error(), "word 1, op 0") {
			t.Errorf("%s: %v", w.what, err)
		}
	}
	if _, err := other.Prepare([]engine.Word{{Ops: []engine.Op{with("empty", 0, nothing)}}}); err == nil {
		t.Error("another GPU's kernel is taken")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Prepare([]engine.Word{{Ops: []engine.Op{with("empty", 0, nothing)}}}); err == nil {
		t.Error("a kernel of closed code is taken")
	}
	if _, err := b.Load([]byte("not a cubin")); err == nil {
		t.Error("a text is code")
	}
}

// Constant bank 0 is libcuda's, word for word, but for addresses: read there by a kernel (bank<<<(8,4), 256, 5000>>>,
// cluster 4,2).
func TestBank0(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	l := launchOf(t, c, "bank", make([]byte, 268))
	l.Grid, l.Block, l.Cluster, l.Shared, l.Cooperative = [3]uint32{8, 4, 1}, [3]uint32{256, 1, 1}, [3]uint32{4, 2,
		1}, 5000, true
	bl, err := b.block(l)
	if err != nil {
		t.Fatal(err)
	}
	var size uint64
	bl.layOut(&size, uint64(qmd.V4.Size))
	bank := make([]byte, bl.bankSize)
	const at = 0xa0_0500_0000
	bl.fillBank0(b, at, bank)
	want := map[int]uint32{0x0: 0x100, 0x4: 1, 0x8: 1, 0xc: 8, 0x10: 4, 0x14: 1, 0x1c: sharedWindow >> 32,
		0x24: localWindow >> 32,
		0x28: 0xfffbb0, 0x2c: 0x1388, 0x30: 1, 0x44: 0xa0, 0x48: uint32(at + bl.barrier), 0x58: 1, 0xc0: uint32(at +
			bl.bank), 0xc4: 0xa0,
		0x10c: 132, 0x110: 1, 0x114: 0x400, 0x13c: 0x1788, 0x140: 1, 0x144: 4, 0x148: 2, 0x14c: 1, 0x150: 0x3e800000,
		0x154: 0x3f000000,
		0x158: 0x3f800000, 0x15c: 2, 0x160: 2, 0x164: 1, 0x16c: 1 << 24, 0x174: sharedWindow >> 32, 0x188: 8,
		0x198: uint32(at + bl.bank + 0x210), 0x19c: 0xa0, 0x1a0: uint32(at + bl.bank + 0x31c), 0x1a4: 0xa0}
	for i := 0; i < 0x210; i += 4 {
		if got := le.Uint32(bank[i:]); got != want[i] {
			t.Errorf("bank 0, %#x is %#x, want %#x", i, got, want[i])
		}
	}
}

// A multiprocessor's shared memory is divided as libcuda does it (internal/qmd/testdata/libcuda.txt).
func TestCarve(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	for _, w := range []struct {
		kernel  string
		threads uint32
		dynamic uint32
		params  int
		least   uint32
		wish    uint32
	}{{"empty", 198, 0, 0, 16, 32}, {"smem", 111, 0, 8, 100, 132}, {"dsmem", 117, 5 << 10, 12, 100, 132},
		{"dsmem", 117, 20 << 10, 12, 228, 228}, {"regs", 53, 0, 8, 8, 32}, {"local", 123, 0, 12, 16, 32}} {
		l := launchOf(t, c, w.kernel, make([]byte, w.params))
		l.Block[0], l.Shared = w.threads, w.dynamic
		bl, err := b.block(l)
		if err != nil {
			t.Fatal(err)
		}
		if got := bl.carve(b); got != [3]uint32{w.least << 10, w.wish << 10, 228 << 10} {
			t.Errorf("%+v: %v", w, got)
		}
	}
}

// A program with a stack has local memory for all of the GPU, once.
func TestLocalMemory(t *testing.T) {
	d, b := play(t, "580.95.05", Options{})
	c := load(t, d, b)
	d.Kernel = func(*rmtest.Memory, uint64) error { return nil }
	d.Methods = nil
	for range 2 {
		p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{{Launch: launchOf(t, c, "local", make([]byte, 12))}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Run(time.Minute), p.Close()); err != nil {
			t.Error(err)
		}
	}
	n := 0
	for _, m := range d.Methods {
		if m == "local memory" {
			n++
		}
	}
	if n != 1 || b.local.thread != (800+stackReserve+31)&^31 {
		t.Errorf("local memory was set %d times, to %d bytes a thread", n, b.local.thread)
	}
}

func TestAddresses(t *testing.T) {
	a := addresses{next: 0, end: 100}
	take := func(n uint64, want uint64) {
		t.Helper()
		if got, err := a.take(n); err != nil || got != want {
			t.Errorf("take %d: %d, %v, want %d", n, got, err, want)
		}
	}
	take(10, 0)
	take(20, 10)
	take(30, 30)
	a.give(0, 10)
	a.give(30, 30)
	take(30, 30)
	a.give(10, 20)
	take(30, 0) // the two that touch became one
	a.give(30, 30)
	a.give(0, 30)
	if len(a.free) != 1 || a.free[0] != (span{0, 60}) {
		t.Errorf("%v", a.free)
	}
	take(40, 0)
	take(40, 60)
	if _, err := a.take(30); err == nil {
		t.Error("more than there is")
	}
}
