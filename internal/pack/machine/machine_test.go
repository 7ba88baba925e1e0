package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/pack"
)

// A gpu has spaces whose parts take some time, side by side.
type gpu struct {
	engine.Sharer // what is not played here is not called
	mu            sync.Mutex
	spaces        int
	failed        error
	lost          int // counts revivals: what was started before is gone
	revive        error
}

// A space is one of its address spaces.
type space struct {
	engine.Sharer
	g *gpu
}

func (g *gpu) Beside() (engine.Sharer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spaces++
	return &space{g: g}, nil
}

func (g *gpu) Failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

func (g *gpu) Revive() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = g.revive
	g.lost++
	return g.revive
}

func (g *gpu) Start(list []engine.Start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range list {
		p := s.Parts.(*parts)
		if p.busy && p.lost == g.lost {
			panic("a part is started while the one before is under way")
		}
		p.part, p.busy, p.lost = s.Part, true, g.lost
		p.until = time.Now()
		for _, took := range p.shapes[s.Part].words {
			p.until = p.until.Add(took)
		}
	}
}

func (s *space) Start(list []engine.Start) { s.g.Start(list) }
func (s *space) Failed() error             { return s.g.Failed() }
func (s *space) Close() error {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.spaces--
	return nil
}

// A model multiplies and adds: its state is the input at first, and each word of a run changes it.
type model struct {
	words []time.Duration
	g     *gpu
	state uint64
	flags uint64 // of the last input
	loads *atomic.Int32
	parts *parts
}

// Inputs that do not give an answer.
const (
	faults = 1 << 60
	hangs  = 1 << 61
)

type shape struct {
	engine.Shape
	words []time.Duration
}

type parts struct {
	m      *model
	shapes []shape
	part   int
	busy   bool
	lost   int
	until  time.Time
}

func (m *model) Parts() engine.Parts { return m.parts }

func (m *model) Cut(cuts []int) error {
	p := &parts{m: m}
	from := 0
	for _, to := range append(slices.Clone(cuts), len(m.words)) {
		s := engine.Shape{Word: from, Words: to - from, Launches: to - from, Width: 0.3}
		p.shapes = append(p.shapes, shape{s, m.words[from:to]})
		from = to
	}
	m.parts = p
	return nil
}

func (p *parts) Shapes() (out []engine.Shape) {
	for _, s := range p.shapes {
		out = append(out, s.Shape)
	}
	return out
}

func (p *parts) Done() bool {
	g := p.m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.busy {
		return true
	}
	if p.lost != g.lost || g.failed != nil || time.Now().Before(p.until) || p.m.flags&hangs != 0 {
		return false
	}
	if p.m.flags&faults != 0 && p.part == len(p.shapes)-1 {
		g.failed = &engine.Fault{Err: errors.New("a fault")}
		return false
	}
	s := p.shapes[p.part]
	for w := s.Word; w < s.Word+s.Words; w++ {
		p.m.state = p.m.state*0x9e3779b97f4a7c15 + uint64(w)
	}
	p.busy = false
	return true
}

func (p *parts) Close() error { return nil }

func (m *model) SetInput(_ string, b []byte) error {
	in := binary.LittleEndian.Uint64(b)
	m.flags = in & (faults | hangs)
	m.state += in // state that was left shows
	return nil
}

func (m *model) Output(string) ([]byte, error) {
	b := binary.LittleEndian.AppendUint64(nil, m.state)
	m.state = 0
	return b, nil
}

func (m *model) Reset() error { m.state, m.flags = 0, 0; return nil }
func (m *model) Close() error { m.loads.Add(-1); return nil }

// want is what a model of so many words answers.
func want(in uint64, words int) uint64 {
	for w := range words {
		in = in*0x9e3779b97f4a7c15 + uint64(w)
	}
	return in
}

type bench struct {
	t     *testing.T
	g     *gpu
	m     *Machine
	loads atomic.Int32
	words sync.Map // how many each tenant has
}

func newBench(t *testing.T, c Config) *bench {
	b := &bench{t: t, g: &gpu{}}
	c.GPUs = []engine.Sharer{b.g}
	var err error
	if b.m, err = New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.m.Close(); err != nil {
			t.Error(err)
		}
		if n := b.loads.Load(); n != 0 || b.g.spaces != 0 {
			t.Errorf("%d copies and %d spaces are left", n, b.g.spaces)
		}
	})
	return b
}

func (b *bench) spec(name string, instances int, words ...time.Duration) Spec {
	b.words.Store(name, len(words))
	return Spec{Tenant: pack.Tenant{Name: name, Instances: instances, Queue: 1000},
		Load: func(on engine.Sharer) (Copy, error) {
			b.loads.Add(1)
			m := &model{words: words, g: b.g, loads: &b.loads}
			return m, m.Cut(nil)
		}}
}

func (b *bench) add(s Spec) {
	b.t.Helper()
	if err := b.m.Add(s); err != nil {
		b.t.Fatal(err)
	}
}

// ask makes a request; right says whether the answer is.
func (b *bench) ask(name string, in uint64) (right bool, err error) {
	a, err := b.m.Infer(b.t.Context(), Request{Tenant: name, Want: []string{"y"},
		In: map[string][]byte{"x": binary.LittleEndian.AppendUint64(nil, in)}})
	if err != nil {
		return false, err
	}
	n, _ := b.words.Load(name)
	return binary.LittleEndian.Uint64(a.Out["y"]) == want(in, n.(int)), nil
}

const us = time.Microsecond

// Requests of several tenants get their own answers, whatever runs beside them.
func TestAnswers(t *testing.T) {
	b := newBench(t, Config{})
	b.add(b.spec("one", 1, 30*us))
	b.add(b.spec("many", 3, 20*us, 150*us, 150*us, 10*us, 90*us))
	b.add(b.spec("long", 2, 700*us, 10*us))
	var wg sync.WaitGroup
	var answers atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range 50 {
				name := []string{"one", "many", "long"}[rng.IntN(3)]
				if right, err := b.ask(name, rng.Uint64()>>20); err != nil || !right {
					t.Errorf("%s: right %v, %v", name, right, err)
				}
				answers.Add(1)
			}
		})
	}
	wg.Wait()
	s, err := b.m.State()
	if err != nil || answers.Load() != 400 {
		t.Fatal(answers.Load(), err)
	}
	var complete uint64
	for _, x := range s.Tenants {
		complete += x.Complete
	}
	if complete != 400 || s.UnderWay != 0 || s.Outstanding != 0 {
		t.Errorf("%d complete, %d under way, %d outstanding", complete, s.UnderWay, s.Outstanding)
	}
	if ev, err := b.m.Events(time.Hour); err != nil || len(ev) < 400 {
		t.Errorf("%d events, %v", len(ev), err)
	}
}

// Parts are of as many words as take no longer together than they may.
func TestCut(t *testing.T) {
	b := newBench(t, Config{Longest: 5 * time.Millisecond})
	ms := time.Millisecond
	b.add(b.spec("m", 1, 2*ms, 2*ms, 2*ms, 9*ms, ms, 3*ms))
	s, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	// Looking takes some time, too, so a part may be shorter than it might.
	p := s.Tenants[0].Parts
	if len(p) < 4 || len(p) > 6 {
		t.Errorf("parts %+v", p)
	}
	for _, x := range p {
		if x.Alone < ms || x.Width != 0.3 {
			t.Errorf("part %+v", x)
		}
	}
}

// A request that fails ends its tenant; others that were under way are done again.
func TestFault(t *testing.T) {
	for _, kind := range []uint64{faults, hangs} {
		t.Run(fmt.Sprintf("%#x", kind), func(t *testing.T) {
			b := newBench(t, Config{Patience: 100 * time.Millisecond})
			b.add(b.spec("good", 4, 50*us, 60*us, 70*us))
			b.add(b.spec("bad", 1, 50*us, 60*us))
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for i := range 4 {
				wg.Go(func() {
					<-begin
					for n := range 100 {
						if right, err := b.ask("good", uint64(1000*i+n)); err != nil || !right {
							t.Errorf("a good one: right %v, %v", right, err)
							return
						}
					}
				})
			}
			close(begin)
			var fault *engine.Fault
			var late *engine.Timeout
			if _, err := b.ask("bad", kind|7); !errors.As(err, &fault) && !errors.As(err, &late) {
				t.Errorf("the bad one: %v", err)
			}
			if _, err := b.ask("bad", 7); !errors.Is(err, ErrFaulty) {
				t.Errorf("after it: %v", err)
			}
			if good, bad, none := b.m.Ready("good"), b.m.Ready("bad"), b.m.Ready("none"); good != nil || bad == nil ||
				none == nil {
				t.Errorf("ready: %v, %v, %v", good, bad, none)
			}
			wg.Wait()
			// Loaded anew it works.
			if err := b.m.Drain("bad"); err != nil {
				t.Fatal(err)
			}
			b.add(b.spec("bad", 1, 50*us))
			if right, err := b.ask("bad", 7); err != nil || !right {
				t.Errorf("loaded anew: right %v, %v", right, err)
			}
		})
	}
}

// What cannot be done again ends with an error, and the tenant goes on.
func TestKeep(t *testing.T) {
	b := newBench(t, Config{Patience: 50 * time.Millisecond})
	s := b.spec("keeps", 1, 20*time.Millisecond, 20*time.Millisecond)
	s.Keep = true
	b.add(s)
	b.add(b.spec("bad", 1, 50*us))
	lost := make(chan error)
	go func() {
		_, err := b.ask("keeps", 1)
		lost <- err
	}()
	for {
		s, err := b.m.State()
		if err != nil {
			t.Fatal(err)
		}
		if s.UnderWay == 1 {
			break
		}
	}
	if _, err := b.ask("bad", faults); err == nil {
		t.Error("the bad one was answered")
	}
	if err := <-lost; !errors.Is(err, ErrLost) {
		t.Errorf("the one that was cut short: %v", err)
	}
	if right, err := b.ask("keeps", 3); err != nil || !right {
		t.Errorf("the next: right %v, %v", right, err)
	}
}

// A machine that cannot be brought back says so to everybody, also to those whose turn had not come.
func TestDead(t *testing.T) {
	b := newBench(t, Config{})
	b.add(b.spec("bad", 1, 50*us))
	b.add(b.spec("good", 1, 5*time.Millisecond, 5*time.Millisecond))
	b.g.revive = errors.New("the GPU has fallen off the bus")
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for range 20 {
				if _, err := b.ask("good", 1); err != nil && !errors.Is(err, b.g.revive) {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		if _, err := b.ask("bad", faults); !errors.Is(err, b.g.revive) {
			t.Error(err)
		}
	}
	all.Wait()
}

// A machine can be closed whatever it is doing, and nobody waits for ever.
func TestCloseBusy(t *testing.T) {
	for n := range 20 {
		b := newBench(t, Config{})
		b.add(b.spec("m", 3, 50*us, 70*us))
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for {
					right, err := b.ask("m", 1)
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil || !right {
						t.Errorf("right %v, %v", right, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(n) * 100 * us)
		if err := b.m.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// Draining loses no request that was taken in; tenants come and go beside others.
func TestDrain(t *testing.T) {
	b := newBench(t, Config{})
	b.add(b.spec("stays", 2, 50*us))
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if right, err := b.ask("stays", n); err != nil || !right {
				t.Errorf("right %v, %v", right, err)
			}
		}
	})
	for range 5 {
		b.add(b.spec("goes", 2, 50*us, 300*us))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range uint64(1000) {
					right, err := b.ask("goes", uint64(i)<<32|n)
					var refused *Refused
					if errors.As(err, &refused) {
						return // drained, or gone
					}
					if err != nil || !right {
						t.Errorf("right %v, %v", right, err)
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		if err := b.m.Drain("goes"); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	close(stop)
	others.Wait()
	var refused *Refused
	if _, err := b.ask("goes", 1); !errors.As(err, &refused) || refused.Reason != pack.NoTenant {
		t.Error(err)
	}
	if err := b.m.Drain("goes"); err == nil {
		t.Error("what is gone was drained")
	}
}

// A closed machine answers nobody.
func TestClose(t *testing.T) {
	b := newBench(t, Config{})
	b.add(b.spec("m", 1, time.Millisecond))
	if err := b.m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ask("m", 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := b.m.Add(b.spec("n", 1, time.Millisecond)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// What is remembered is the last of it, in order, whichever place it is written to next.
func TestEvents(t *testing.T) {
	for _, n := range []int{0, 1, 5, kept - 1, kept, kept + 1, 2*kept + 7} {
		var e events
		for i := range n {
			e.add(event{part: i, ended: time.Duration(i)})
		}
		for _, since := range []int{-1, 0, n - kept, n - 3, n - 1, n} {
			got := e.since(time.Duration(since))
			first := max(since, n-kept, 0)
			if len(got) != n-first {
				t.Errorf("%d events, since %d: %d, want %d", n, since, len(got), n-first)
				continue
			}
			for i, x := range got {
				if x.part != first+i {
					t.Fatalf("%d events, since %d: number %d is %d", n, since, i, x.part)
				}
			}
		}
	}
}
