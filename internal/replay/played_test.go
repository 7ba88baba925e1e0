package replay_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/cubin"
	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
	"holdfast/internal/engine/raw/rawtest"
	"holdfast/internal/recording"
	"holdfast/internal/recording/recordingtest"
	"holdfast/internal/replay"
	"holdfast/internal/rm/rmtest"
	"holdfast/internal/trace"
	"holdfast/test/rig"
)

var le = binary.LittleEndian

const (
	liveAt    = 0x7f00_0000_0000
	stagingAt = 0x7f10_0000_0000
	slotBytes = 64
	slots     = 8 // live regions that work is done in; the last is scratch
)

var entries = []string{"first", "second"}

func slotAt(i int) uint64 { return liveAt + 4096*uint64(i) }

// chains is a recording of two entries of random launches of the sample's kernels, copies and sets among slots, each
// ordered after those that touch the same. One kernel counts in a variable that the recording does not name.
func chains(t testing.TB, seed uint64) *recording.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprint(seed, ".hfr"))
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(rig.Path(t, "internal/cubin/testdata/sm_90.cubin"))
	if err != nil {
		t.Fatal(err)
	}
	m := &recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []recording.Variable{},
		Code: []recording.Code{{Images: []recording.Image{{Arch: 90, Kind: recording.Cubin, Contents: w.Put(image)}}}},
		Kernels: []recording.Kernel{{Name: "chain", Params: []recording.Param{{Offset: 0, Size: 8},
			{Offset: 8, Size: 4}, {Offset: 12, Size: 4}}},
			{Name: "globals", Params: []recording.Param{{Offset: 0, Size: 8}}}},
		Staging: recording.Span{Addr: stagingAt, Bytes: 2 << 20}}
	r := rand.New(rand.NewPCG(seed, 5))
	for i := range slots {
		g := recording.Region{Addr: recording.Addr(slotAt(i)), Bytes: slotBytes, Class: recording.Scratch}
		if i < slots-1 {
			b := make([]byte, slotBytes)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			contents := w.Put(b)
			g.Class, g.Contents = recording.Live, &contents
		}
		m.Memory = append(m.Memory, g)
	}
	port := func(name string, at uint64) recording.Port {
		return recording.Port{Addr: recording.Addr(at), Bytes: slotBytes, DType: "uint8", Shape: []int{slotBytes},
			Name: name}
	}
	for i, name := range entries {
		at := uint64(stagingAt + 4096*i)
		e := recording.Entry{Name: name, Inputs: []recording.Port{port("x", at)},
			Outputs: []recording.Port{port("y", at+512), port("z", at+1024)}}
		recorded := w.Put(bytes.Repeat([]byte{1, 2, 3, 4}, slotBytes/4))
		e.Inputs[0].Recorded = &recorded
		e.Work = w.Put(randomWork(t, r, &e, at))
		m.Entries = append(m.Entries, e)
	}
	return recordingtest.Finish(t, path, w, m)
}

func randomWork(t testing.TB, r *rand.Rand, e *recording.Entry, staging uint64) (work []byte) {
	t.Helper()
	type use struct{ dst, src uint64 }
	var uses []use
	add := func(rec trace.Record, u use) {
		var deps []uint32
		for i, o := range uses {
			if o.dst == u.dst || o.src == u.dst || o.dst == u.src {
				deps = append(deps, uint32(i))
			}
		}
		list := []trace.Record{rec}
		if len(deps) > 0 {
			list = []trace.Record{&trace.After{Works: deps}, rec}
		}
		for _, rec := range list {
			var err error
			if work, err = trace.Append(work, rec); err != nil {
				t.Fatal(err)
			}
		}
		uses = append(uses, u)
	}
	launch := func(kernel uint32, params []byte) *trace.Launch {
		e.Launches++
		return &trace.Launch{Kernel: kernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Cluster: [3]uint32{1, 1, 1}, Params: params}
	}
	move := func(dst, src uint64) {
		e.Copies++
		add(&trace.Copy{Dst: dst, Src: src, Width: slotBytes, Height: 1, Depth: 1}, use{dst, src})
	}
	move(slotAt(slots-1), staging)
	add(launch(1, le.AppendUint64(nil, slotAt(1))), use{slotAt(1), 0})
	for range 6 + r.IntN(20) {
		dst, src := slotAt(r.IntN(slots)), slotAt(r.IntN(slots))
		switch k := r.IntN(8); {
		case k == 0:
			e.Sets++
			add(&trace.Copy{Flags: trace.Set, Dst: dst, Src: uint64(r.Uint32()), SrcPitch: 4, Width: slotBytes / 2,
				Height: 1, Depth: 1}, use{dst, 0})
		case k < 3 && dst != src:
			move(dst, src)
		default:
			p := le.AppendUint64(nil, dst+4*uint64(r.IntN(16)))
			add(launch(0, le.AppendUint32(le.AppendUint32(p, r.Uint32()|1), r.Uint32())), use{dst, 0})
		}
	}
	move(staging+512, slotAt(1))
	move(staging+1024, slotAt(slots-1))
	return work
}

// A machine plays a driver, whose kernels fail or hang when they are told to.
type machine struct {
	*rmtest.Driver
	t     testing.TB
	fails []int // how many launches there are up to each failure
	hangs bool
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	image, err := os.ReadFile(rig.Path(t, "internal/cubin/testdata/sm_90.cubin"))
	if err != nil {
		t.Fatal(err)
	}
	im, err := cubin.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	d := &machine{Driver: rawtest.Open("580.95.05"), t: t}
	d.Kernel = func(m *rmtest.Memory, at uint64) error {
		if len(d.fails) > 0 {
			if d.fails[0]--; d.fails[0] <= 0 {
				d.fails = d.fails[1:]
				if !d.hangs {
					return errors.New("injected")
				}
				d.Hang = 0 // from the next launch on
			}
		}
		return rawtest.Play(m, at, im, func(l *rawtest.Launch) error { return execute(im, m, l) })
	}
	return d
}

func execute(im *cubin.Image, m *rmtest.Memory, l *rawtest.Launch) error {
	x := m.Bytes(le.Uint64(l.Params), 4)
	if x == nil {
		return fmt.Errorf("access to %#x", le.Uint64(l.Params))
	}
	if l.Name == "chain" {
		le.PutUint32(x, le.Uint32(x)*le.Uint32(l.Params[8:])+le.Uint32(l.Params[12:]))
		return nil
	}
	fn, err := im.Function("globals")
	if err != nil {
		return err
	}
	for _, v := range im.Variables {
		if v.Name == "counter" {
			n := m.Bytes(l.Program()-fn.Code+v.Offset, 4)
			le.PutUint32(n, le.Uint32(n)+1)
			copy(x, n)
		}
	}
	return nil
}

// A mended backend is one on a machine, whose hangs end with a revival.
type mended struct {
	*raw.Backend
	d      *machine
	broken int // how often a revival fails
}

func (b *mended) Revive() error {
	if b.d.Hang = -1; b.broken > 0 {
		b.broken--
		return errors.New("no")
	}
	return b.Backend.Revive()
}

func (d *machine) open() *mended {
	d.t.Helper()
	d.Hang = -1
	b, err := raw.Open(raw.Options{Files: d.Driver})
	if err != nil {
		d.t.Fatal(err, d.Errs)
	}
	return &mended{Backend: b, d: d}
}

// An actor is an entry, of a player or of a recoverer.
type actor interface {
	SetInput(name string, b []byte) error
	Run(timeout time.Duration) error
	Output(name string) ([]byte, error)
}

// run runs entries a few times, with other inputs now and then, and returns all outputs.
func run[A actor](t testing.TB, list []A, reset func() error, limit time.Duration,
	seed uint64) (all []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 6))
	for range 6 {
		var errs []error
		p := list[r.IntN(len(list))]
		if r.IntN(5) == 0 {
			errs = append(errs, reset())
		}
		if r.IntN(2) == 0 {
			errs = append(errs, p.SetInput("x", bytes.Repeat(le.AppendUint32(nil, r.Uint32()), slotBytes/4)))
		}
		errs = append(errs, p.Run(limit))
		for _, name := range []string{"y", "z"} {
			b, err := p.Output(name)
			all, errs = append(all, b...), append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Faults and hangs of a GPU behind the device files, also while copies are taken and put back, change no bits.
func TestRecoverRaw(t *testing.T) {
	retries, copies := 0, 0
	for seed := range uint64(20) {
		f := chains(t, seed)
		b := newMachine(t).open()
		p, err := replay.Load(b, f, entries...)
		if err != nil {
			t.Fatal(err)
		}
		want := run(t, p.Entries, p.Reset, time.Second, seed)
		if err := errors.Join(p.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		d := newMachine(t)
		b = d.open()
		if p, err = replay.Load(b, f, entries...); err != nil {
			t.Fatal(err)
		}
		rec, err := replay.NewRecoverer(p, replay.Recovery{Retries: 5, Every: 1 + int(seed%3)})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 7))
		d.hangs = seed%2 == 1
		for range 1 + r.IntN(4) {
			d.fails = append(d.fails, 1+r.IntN(80))
		}
		if got := run(t, rec.Entries, rec.Reset, time.Millisecond, seed); !bytes.Equal(got, want) {
			t.Errorf("seed %d: other bits: %+v", seed, rec.Done)
		}
		retries, copies = retries+rec.Done.Retries, copies+rec.Done.Copies
		if err := errors.Join(rec.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		if left := d.Left(); left != "" || len(d.Errs) > 0 {
			t.Errorf("left: %s, %v", left, d.Errs)
		}
	}
	if t.Logf("%d retries, %d copies", retries, copies); retries < 30 || copies < 30 {
		t.Error("the sample shows too little")
	}
}

// What fails each time is the recording's own fault; what cannot be brought back is not gone on with.
func TestRecoverGivesUp(t *testing.T) {
	f := chains(t, 1)
	for _, c := range []struct {
		name    string
		before  int // runs without a failure
		fails   []int
		broken  int
		reopens bool
		want    string // "" if it recovers
	}{
		{"always", 0, []int{3, 3, 3, 3}, 0, false, "after 2 retries: word"},
		{"twice", 0, []int{3, 3}, 0, false, ""},
		{"a revival fails", 0, []int{3}, 1, false, "cannot be opened anew"},
		{"a revival fails, all is opened anew", 0, []int{3}, 1, true, ""},
		{"so that the copy is gone", 2, []int{16}, 1, true, "was on the device"},
		{"while a copy is taken", 2, []int{5}, 1, true, "half overwritten"},
	} {
		d := newMachine(t)
		b := d.open()
		p, err := replay.Load(b, f, entries...)
		if err != nil {
			t.Fatal(err)
		}
		how := replay.Recovery{Retries: 2}
		if c.reopens {
			how.Reopen = func() (engine.Backend, error) {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				b = d.open()
				return b, nil
			}
		}
		rec, err := replay.NewRecoverer(p, how)
		if err != nil {
			t.Fatal(err)
		}
		for range c.before {
			if err := rec.Entries[0].Run(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		d.fails, b.broken = c.fails, c.broken
		err = rec.Entries[0].Run(time.Second)
		var fault *engine.Fault
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &fault)):
			t.Errorf("%s: %v, want something about %q", c.name, err, c.want)
		case c.want != "":
			if again := rec.Entries[0].Run(time.Second); !errors.Is(again, err) {
				t.Errorf("%s: then %v", c.name, again)
			}
		case rec.Done.Retries == 0 || len(rec.Done.Failures) != rec.Done.Retries:
			t.Errorf("%s: %+v", c.name, rec.Done)
		}
		if err := errors.Join(rec.Close(), b.Close()); err != nil && c.want == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// plain is what runs of a recording give on the device files, each on one of the inputs.
func plain(t testing.TB, f *recording.File, inputs [][]byte) (out []string) {
	t.Helper()
	b := newMachine(t).open()
	p, err := replay.Load(b, f, entries...)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		y, z := []byte(nil), []byte(nil)
		err := errors.Join(p.Entries[0].SetInput("x", in), p.Entries[0].Run(time.Second))
		if err == nil {
			y, err = p.Entries[0].Output("y")
		}
		if err == nil {
			z, err = p.Entries[0].Output("z")
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(y)+string(z))
	}
	if err := errors.Join(p.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}

// A tenant is a recording that is divided, on an address space of its own.
type tenant struct {
	*replay.DividedEntry
	d    *replay.Divided
	b    engine.Sharer
	next int
}

// divide puts recordings beside each other, with a part for each word.
func divide(t testing.TB, d *machine, files ...*recording.File) (list []*tenant) {
	t.Helper()
	var b engine.Sharer = d.open()
	for i, f := range files {
		if i > 0 {
			o, err := b.Beside()
			if err != nil {
				t.Fatal(err)
			}
			b = o
		}
		p, err := replay.Read(f, entries...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Divide(b, func(e *replay.Entry) (cuts []int) {
			words, err := e.Words()
			if err != nil {
				t.Fatal(err)
			}
			for w := range words {
				cuts = append(cuts, w)
			}
			return cuts
		})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &tenant{DividedEntry: r.Entries[0], d: r, b: b})
	}
	return list
}

// step starts the next part and waits for it; false after the last one.
func (x *tenant) step(t testing.TB) bool {
	t.Helper()
	x.b.Start([]engine.Start{{Parts: x.Parts(), Part: x.next}})
	for !x.Parts().Done() {
		if err := x.b.Failed(); err != nil {
			t.Fatal(err)
		}
	}
	x.next = (x.next + 1) % len(x.Parts().Shapes())
	return x.next > 0
}

func (x *tenant) outputs(t testing.TB) string {
	t.Helper()
	y, err := x.Output("y")
	z, err2 := x.Output("z")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return string(y) + string(z)
}

// One recording is stopped between any two of its parts for another one, and goes on: both give their bits.
func TestHandOff(t *testing.T) {
	var inputs [][]byte
	for i := range 40 {
		b := make([]byte, slotBytes)
		for k := range b {
			b[k] = byte(i*k + k)
		}
		inputs = append(inputs, b)
	}
	for seed := range uint64(4) {
		fa, fb := chains(t, seed), chains(t, seed+100)
		wantA, wantB := plain(t, fa, inputs), plain(t, fb, inputs)
		list := divide(t, newMachine(t), fa, fb)
		a, b := list[0], list[1]
		if n := len(a.Parts().Shapes()); n < 3 || n > len(inputs) {
			t.Fatalf("%d parts", n)
		}
		for stop := range a.Parts().Shapes() {
			if err := errors.Join(a.SetInput("x", inputs[stop]), b.SetInput("x", inputs[stop])); err != nil {
				t.Fatal(err)
			}
			for range stop {
				a.step(t)
			}
			for b.step(t) {
			}
			for a.step(t) {
			}
			if got := a.outputs(t); got != wantA[stop] {
				t.Errorf("seed %d, stopped before part %d: %x, want %x", seed, stop, got, wantA[stop])
			}
			if got := b.outputs(t); got != wantB[stop] {
				t.Errorf("seed %d, between: %x, want %x", seed, got, wantB[stop])
			}
		}
		if n := testing.AllocsPerRun(10, func() {
			err1 := a.SetInput("x", inputs[0])
			_, err2 := a.Output("y")
			if err1 != nil || err2 != nil {
				t.Error(err1, err2)
			}
		}); n != 0 {
			t.Errorf("input and output allocate %v times", n)
		}
		if err := errors.Join(b.d.Close(), a.d.Close(), a.b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// After a failure of one, all spaces are revived and put back, and run as at first.
func TestDividedReset(t *testing.T) {
	d := newMachine(t)
	fa, fb := chains(t, 7), chains(t, 8)
	in := [][]byte{bytes.Repeat([]byte{9}, slotBytes)}
	wantA, wantB := plain(t, fa, in), plain(t, fb, in)
	list := divide(t, d, fa, fb)
	for round := range 5 {
		for i, x := range list {
			if err := x.SetInput("x", in[0]); err != nil {
				t.Fatal(err)
			}
			for x.next = 0; x.step(t); {
			}
			if got, want := x.outputs(t), []string{wantA[0], wantB[0]}[i]; got != want {
				t.Errorf("round %d, %d: %x, want %x", round, i, got, want)
			}
		}
		d.fails = []int{1 + round}
		for x := list[round%2]; x.b.Failed() == nil; {
			x.b.Start([]engine.Start{{Parts: x.Parts(), Part: x.next}})
			x.next = (x.next + 1) % len(x.Parts().Shapes())
		}
		if err := list[0].b.(engine.Reviver).Revive(); err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if err := x.d.Reset(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := list[0].SetInput("x", in[0][1:]); err == nil || !strings.Contains(err.Error(), "63 bytes, it has 64") {
		t.Error(err)
	}
	if err := list[0].SetInput("w", nil); err == nil || !strings.Contains(err.Error(), `no "w"`) {
		t.Error(err)
	}
	if _, err := list[0].Output("w"); err == nil {
		t.Error("an output that is not there was read")
	}
	if slices.Contains([]bool{list[0].d.Close() == nil, list[1].d.Close() == nil, list[0].b.Close() == nil}, false) {
		t.Error("it does not close")
	}
	if left := d.Left(); left != "" || len(d.Errs) > 0 {
		t.Errorf("left: %s, %v", left, d.Errs)
	}
}
