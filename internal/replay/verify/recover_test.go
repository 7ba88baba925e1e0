package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
	"holdfast/internal/replay/verify"
	"holdfast/internal/trace"
)

// A flaky is the test's GPU, whose work fails after so many pieces of it, having done some of the last one; it does
// nothing more then.
type flaky struct {
	*gpu
	fails  *[]int // how many pieces of work there are up to each failure
	hangs  bool   // it fails by taking too long
	narrow bool   // there is no room for copies
	dead   error
	loaded bool
}

func (b *flaky) fail() bool {
	if b.dead != nil {
		return true
	}
	if !b.loaded || len(*b.fails) == 0 {
		return false
	}
	if (*b.fails)[0]--; (*b.fails)[0] > 0 {
		return false
	}
	*b.fails = (*b.fails)[1:]
	place := engine.Place{Word: -1, Op: -1}
	b.dead = &engine.Fault{Place: place, Err: errors.New("injected")}
	if b.hangs {
		b.dead = &engine.Timeout{Place: place, After: time.Second}
	}
	return true
}

func (b *flaky) Map(addr, size uint64) error {
	if b.loaded && b.narrow {
		return errors.New("no room")
	}
	return b.gpu.Map(addr, size)
}

func (b *flaky) Unmap(uint64) error { return nil }

func (b *flaky) Write(addr uint64, p []byte) error {
	if b.fail() {
		return b.dead
	}
	return b.gpu.Write(addr, p)
}

func (b *flaky) Read(addr uint64, p []byte) error {
	if b.fail() {
		return b.dead
	}
	return b.gpu.Read(addr, p)
}

func (b *flaky) Prepare(words []engine.Word) (engine.Program, error) {
	b.loaded = true
	return &flakyProgram{b, words}, nil
}

type flakyProgram struct {
	b     *flaky
	words []engine.Word
}

func (p *flakyProgram) Close() error { return nil }

func (p *flakyProgram) Run(timeout time.Duration) error {
	one := func(op engine.Op) error {
		return (&gpuProgram{p.b.gpu, []engine.Word{{Ops: []engine.Op{op}}}}).Run(timeout)
	}
	for _, w := range p.words {
		for _, op := range w.Ops {
			if p.b.dead != nil {
				return p.b.dead
			}
			if p.b.fail() {
				_ = one(half(op))
				return p.b.dead
			}
			if err := one(op); err != nil {
				return err
			}
		}
	}
	return nil
}

// half is some of a piece of work.
func half(op engine.Op) engine.Op {
	switch {
	case op.Launch != nil:
		l := *op.Launch
		l.Grid[0] = (l.Grid[0] + 1) / 2
		return engine.Op{Launch: &l}
	case op.Copy != nil:
		c := *op.Copy
		c.Width = (c.Width + 1) / 2
		return engine.Op{Copy: &c}
	}
	s := *op.Set
	s.Width = (s.Width + 1) / 2
	return engine.Op{Set: &s}
}

// A phoenix is a flaky GPU that can be revived.
type phoenix struct{ *flaky }

func (b phoenix) Revive() error { b.dead = nil; return nil }

// counterText has a variable that nobody outside knows.
const counterText = head + `
.global .align 4 .u32 hits = 5;
.visible .entry bump(.param .u64 p)
{
	.reg .b32 %r<4>; .reg .b64 %d<3>;
	ld.param.u64 %d0, [p];
	mov.u64 %d1, hits;
	atom.global.add.u32 %r0, [%d1], 3;
	st.global.u32 [%d0], %r0;
	ret;
}
`

// counter is a run that counts in its code.
func counter(testing.TB) *sketch {
	return &sketch{code: []string{counterText}, kernels: []string{"bump"},
		regions: []region{{base, 256, make([]byte, 256), false}},
		work: []trace.Record{launch(0, 1, 1, uint64(base)), after(0),
			&trace.Copy{Dst: staging, Src: base, Width: 4, Height: 1, Depth: 1}},
		entry: recording.Entry{Outputs: []recording.Port{port("n", staging, 4)}}}
}

const mixText = head + `
// p[i] = p[i] * a + q[i] for i < n
.visible .entry mix(.param .u64 p, .param .u64 q, .param .u32 n, .param .u32 a)
{
	.reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %d<8>;
	ld.param.u64 %d0, [p];
	ld.param.u64 %d1, [q];
	ld.param.u32 %r0, [n];
	ld.param.u32 %r1, [a];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p0, %r5, %r0;
	@%p0 bra DONE;
	mul.wide.u32 %d2, %r5, 4;
	add.u64 %d3, %d0, %d2;
	add.u64 %d4, %d1, %d2;
	ld.global.u32 %r6, [%d3];
	ld.global.u32 %r7, [%d4];
	mad.lo.u32 %r8, %r6, %r1, %r7;
	st.global.u32 [%d3], %r8;
DONE:
	ret;
}
`

// random is a program of launches, copies and sets among a few regions, each of 64 words, ordered no more than they
// need to be. Two of them only add up.
func random(r *rand.Rand) *sketch {
	const n, regions = 64, 6
	s := &sketch{code: []string{mixText}, kernels: []string{"mix"}}
	at := func(i int) uint64 { return base + uint64(i)*4096 }
	fresh := map[int]bool{} // scratch that nothing was written to
	for i := range regions {
		g := region{addr: at(i), bytes: 4 * n, contents: noise(4 * n)}
		if g.constant = i == 0; i == 1 || i > 3 && r.IntN(2) == 0 {
			g.contents, fresh[i] = nil, true
		}
		s.regions = append(s.regions, g)
	}
	s.entry.Inputs = []recording.Port{port("x", staging, 4*n), port("y", staging+512, 4*n)}
	type use struct{ reads, writes []uint64 }
	var uses []use
	add := func(rec trace.Record, u use) {
		var deps []uint32
		meets := func(a, b []uint64) bool {
			return slices.ContainsFunc(a, func(x uint64) bool { return slices.Contains(b, x) })
		}
		for i, o := range uses {
			if meets(o.writes, u.reads) || meets(o.writes, u.writes) || meets(o.reads, u.writes) {
				deps = append(deps, uint32(i))
			}
		}
		if len(deps) > 0 {
			s.work = append(s.work, after(deps...))
		}
		s.work, uses = append(s.work, rec), append(uses, u)
	}
	for range 5 + r.IntN(10) {
		to, from := 1+r.IntN(regions-1), r.IntN(regions)
		kind := r.IntN(4)
		switch sums := to == 2 || to == 3; {
		case sums && (from == to || fresh[from]):
			continue
		case sums: // outputs come from there, so nothing that they depend on is overwritten
			kind = 0
		case fresh[to] || fresh[from] || from == to:
			kind = 2 + r.IntN(2)
		}
		dst := at(to)
		switch kind {
		case 0, 1:
			add(launch(0, 1+uint32(r.IntN(4)), 32, dst, at(from), uint32(n), r.Uint32()|1),
				use{[]uint64{dst, at(from)}, []uint64{dst}})
		case 2:
			src := staging + 512*uint64(r.IntN(2))
			if !fresh[from] && from != to && r.IntN(2) == 0 {
				src = at(from)
			}
			add(&trace.Copy{Dst: dst, Src: src, Width: 4 * n, Height: 1, Depth: 1},
				use{[]uint64{src}, []uint64{dst}})
		default:
			add(&trace.Copy{Flags: trace.Set, Dst: dst, Src: uint64(r.Uint32()), SrcPitch: 4, Width: 4 * n, Height: 1,
				Depth: 1}, use{nil, []uint64{dst}})
		}
		delete(fresh, to)
	}
	for i := range 2 {
		from := 2 + r.IntN(2)
		to := staging + 1024 + 512*uint64(i)
		add(&trace.Copy{Dst: to, Src: at(from), Width: 4 * n, Height: 1, Depth: 1},
			use{[]uint64{at(from)}, []uint64{to}})
		s.entry.Outputs = append(s.entry.Outputs, port(fmt.Sprint("z", i), to, 4*n))
	}
	return s
}

// An actor is an entry, of a player or of a recoverer.
type actor interface {
	SetInput(name string, b []byte) error
	Run(timeout time.Duration) error
	Output(name string) ([]byte, error)
}

// act runs an entry a few times, with other inputs and put back now and then, and returns all outputs of all runs.
func act(p actor, reset func() error, e *recording.Entry, seed uint64) (all []byte, err error) {
	r := rand.New(rand.NewPCG(seed, 3))
	for range 7 {
		if r.IntN(6) == 0 {
			if err := reset(); err != nil {
				return nil, err
			}
		}
		for _, in := range e.Inputs {
			if r.IntN(3) == 0 {
				var b []byte
				for range in.Bytes / 4 {
					b = append(b, words(r.Uint32N(512))...) // good as an index, too
				}
				if err := p.SetInput(in.Name, b); err != nil {
					return nil, err
				}
			}
		}
		if err := p.Run(time.Minute); err != nil {
			return nil, err
		}
		for _, out := range e.Outputs {
			b, err := p.Output(out.Name)
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
	}
	return all, nil
}

// live is what is in memory that runs carry on.
func live(t testing.TB, g engine.Backend, m *recording.Manifest) (all []byte) {
	t.Helper()
	for _, r := range m.Memory {
		if r.Class == recording.Live {
			b := make([]byte, r.Bytes)
			if err := g.Read(uint64(r.Addr), b); err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
	}
	return all
}

func anyGPU(t testing.TB) *gpu {
	t.Helper()
	g, err := newGPU(base-window/2, window)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tries is how a test recovers.
type tries struct {
	revive, narrow, known, hangs bool
	every                        int
}

// recovered runs a recording on a GPU that fails at random, and compares. It returns what the recoverer did.
func recovered(t *testing.T, b []byte, how tries, seed uint64) replay.Recovered {
	t.Helper()
	f := open(t, b)
	plain := anyGPU(t)
	defer plain.Close()
	p, err := replay.Load(plain, f, "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := act(p.Entries[0], p.Reset, p.Entries[0].Entry, seed)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 4))
	var fails []int
	for range 1 + r.IntN(4) {
		fails = append(fails, 1+r.IntN(60))
	}
	var current *flaky
	openOne := func() engine.Backend {
		current = &flaky{gpu: anyGPU(t), fails: &fails, hangs: how.hangs, narrow: how.narrow}
		if how.revive {
			return phoenix{current}
		}
		return current
	}
	g := openOne()
	defer func() { current.gpu.Close() }()
	if p, err = replay.Load(g, f, ""); err != nil {
		t.Fatal(err)
	}
	o := replay.Recovery{Retries: 6, Every: how.every, Reopen: func() (engine.Backend, error) {
		current.gpu.Close()
		return openOne(), nil
	}}
	if how.known {
		if o.Carried, o.Known, err = verify.Carried(f, verified(t, b)); err != nil || !o.Known {
			t.Fatal(o.Known, err)
		}
	}
	rec, err := replay.NewRecoverer(p, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := act(rec.Entries[0], rec.Reset, p.Entries[0].Entry, seed)
	if err != nil {
		t.Fatalf("%+v, seed %d: %v", how, seed, err)
	}
	current.loaded = false
	if !bytes.Equal(got, want) {
		t.Errorf("%+v, seed %d: other bits: %+v", how, seed, rec.Done)
	}
	if current.dead = nil; !how.known && !bytes.Equal(live(t, current, f.Manifest), live(t, plain, f.Manifest)) {
		t.Errorf("%+v, seed %d: other memory: %+v", how, seed, rec.Done)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	return rec.Done
}

// Whatever fails, and whenever, a recovered replay has the bits of one that nothing has disturbed.
func TestRecover(t *testing.T) {
	type model struct {
		name   string
		file   []byte
		proven bool
	}
	models := []model{{"perceptron", perceptron(t).write(t), true}, {"tables", tables(t).write(t), true},
		{"scatter", scatter(t).write(t), false}, {"counter", counter(t).write(t), false}}
	for i := range uint64(8) {
		b := random(rand.New(rand.NewPCG(i, 1))).write(t)
		models = append(models, model{fmt.Sprint("random ", i), b, true})
	}
	retries, uploads, copies := 0, int64(0), map[string]int{}
	for i, m := range models {
		for _, how := range []tries{{every: 1}, {every: 3, hangs: true}, {revive: true, every: 1},
			{revive: true, every: 2, hangs: true}, {revive: true, narrow: true, every: 1}, {known: true, every: 1},
			{known: true, revive: true, every: 3}} {
			if how.known && !m.proven {
				continue
			}
			seeds := uint64(2)
			if i >= 4 {
				seeds = 3
			}
			for seed := range seeds {
				d := recovered(t, m.file, how, seed+uint64(100*i))
				retries, uploads = retries+d.Retries, uploads+d.Uploaded
				copies[d.Where] += d.Copies
			}
		}
		if t.Failed() {
			t.Fatal(m.name)
		}
	}
	t.Logf("%d retries, %d bytes put back, copies %v", retries, uploads, copies)
	if retries < 300 || uploads == 0 || copies["on the device"] == 0 || copies["on the host"] == 0 {
		t.Error("the sample shows too little")
	}
}

// What a run may change and depend on.
func TestCarried(t *testing.T) {
	span := func(at uint64, n int64) recording.Span { return recording.Span{Addr: recording.Addr(at), Bytes: n} }
	at := func(i int) uint64 { return base + uint64(i)*4096 }
	mix := func(p, q uint64) trace.Record { return launch(0, 1, 32, p, q, uint32(16), uint32(3)) }
	set := func(to uint64, width, height, pitch uint64) trace.Record {
		return &trace.Copy{Flags: trace.Set, Dst: to, DstPitch: pitch, Src: 7, SrcPitch: 4, Width: width,
			Height: height, Depth: 1}
	}
	for _, c := range []struct {
		name    string
		work    []trace.Record
		outputs []recording.Port
		want    []recording.Span
	}{
		{"a read and a write", []trace.Record{mix(at(1), at(2))}, nil, []recording.Span{span(at(1), 64)}},
		{"written before", []trace.Record{set(at(1), 64, 1, 0), after(0), mix(at(1), at(2))}, nil, nil},
		{"in part", []trace.Record{set(at(1)+16, 16, 1, 0), after(0), mix(at(1), at(2))}, nil,
			[]recording.Span{span(at(1), 16), span(at(1)+32, 32)}},
		{"with gaps", []trace.Record{set(at(1), 16, 4, 20), after(0), mix(at(1), at(2))}, nil,
			[]recording.Span{span(at(1), 64)}},
		{"rows without gaps", []trace.Record{set(at(1), 16, 4, 16), after(0), mix(at(1), at(2))}, nil, nil},
		{"at the same time", []trace.Record{set(at(1), 64, 1, 0), mix(at(2), at(1))}, nil,
			[]recording.Span{span(at(1), 64), span(at(2), 64)}},
		{"written afterwards", []trace.Record{mix(at(1), at(2)), after(0), set(at(2), 64, 1, 0)}, nil,
			[]recording.Span{span(at(1), 64), span(at(2), 64)}},
		{"by a launch", []trace.Record{mix(at(1), at(2)), after(0), mix(at(2), at(1))}, nil,
			[]recording.Span{span(at(1), 64), span(at(2), 64)}},
		{"scratch", []trace.Record{mix(at(3), at(2))}, nil, nil},
		{"an output", []trace.Record{mix(staging, at(2)), after(0), set(staging+512, 16, 1, 0)},
			[]recording.Port{port("y", staging, 32), port("z", staging+512, 16)},
			[]recording.Span{span(staging, 64)}},
		{"an output that may stay as it was", []trace.Record{set(staging, 16, 2, 32)},
			[]recording.Port{port("y", staging, 48)}, []recording.Span{span(staging, 48)}},
	} {
		s := &sketch{code: []string{mixText}, kernels: []string{"mix"}, work: c.work,
			regions: []region{{at(1), 256, noise(256), false}, {at(2), 256, noise(256), false},
				{at(3), 256, nil, false}},
			entry: recording.Entry{Outputs: c.outputs}}
		b := s.write(t)
		got, known, err := verify.Carried(open(t, b), verified(t, b))
		if err != nil || !known || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, %v, want %v", c.name, got, known, err, c.want)
		}
	}
	// The number of passes, which an atomic operation counts, is carried on; weights are not.
	s := perceptron(t)
	b := s.write(t)
	f := open(t, b)
	got, known, err := verify.Carried(f, verified(t, b))
	if err != nil || !known || !slices.ContainsFunc(got, func(x recording.Span) bool {
		return uint64(x.Addr) == s.regions[10].addr
	}) || slices.ContainsFunc(got, func(x recording.Span) bool { return uint64(x.Addr) < s.regions[6].addr }) {
		t.Errorf("%v, %v, %v", got, known, err)
	}
	// Elsewhere it is the same memory.
	const delta = 6 << 30
	b = perceptron(t).relocatable().write(t)
	here, err := verify.Verify(open(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err = verify.Carried(open(t, b), here); err != nil || len(got) == 0 {
		t.Fatal(got, err)
	}
	moved, err := open(t, b).At(base + delta)
	if err != nil {
		t.Fatal(err)
	}
	there, err := verify.Verify(moved)
	if err != nil {
		t.Fatal(err)
	}
	far, known, err := verify.Carried(moved, there)
	for i := range got {
		got[i].Addr += delta
	}
	if err != nil || !known || !slices.Equal(far, got) {
		t.Errorf("elsewhere: %v, %v, %v, want %v", far, known, err, got)
	}
	b = scatter(t).write(t)
	if _, known, err := verify.Carried(open(t, b), verified(t, b)); known || err != nil {
		t.Error(known, err)
	}
	if _, _, err := verify.Carried(f, verified(t, tables(t).write(t))); err == nil {
		t.Error("a report of another recording is taken")
	}
}
