package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"holdfast/internal/pack"
)

// A watched is the scheduler, with what it must never do checked at every step.
type watched struct {
	*packed
	t     *testing.T
	l     *load
	held  map[[3]int32]*request // by tenant, device and instance
	next  map[*request]int32    // the part that is to start
	where map[*request]pack.Start
	log   interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
	admitted []*request
}

func newWatched(t *testing.T, l *load) *watched {
	p, err := newPacked(l)
	if err != nil {
		t.Fatal(err)
	}
	return &watched{packed: p, t: t, l: l, held: make(map[[3]int32]*request), next: make(map[*request]int32),
		where: make(map[*request]pack.Start), log: fnv.New64a()}
}

func (w *watched) arrive(m *machine, r *request) {
	w.packed.arrive(m, r)
	if !r.dropped {
		w.admitted = append(w.admitted, r)
	}
	w.check(m)
}

func (w *watched) done(m *machine, r *request, took time.Duration) {
	if r.end > 0 {
		x := w.where[r]
		delete(w.held, [3]int32{int32(x.Tenant), x.Device, x.Instance})
	}
	w.packed.done(m, r, took)
	w.check(m)
}

func (w *watched) tick(m *machine) {
	w.packed.tick(m)
	w.check(m)
}

func (w *watched) check(m *machine) {
	for _, x := range w.starts {
		r := m.find(x.Device, func(r *request) bool { return w.names[r] == x.Request })
		if r == nil {
			w.t.Fatalf("request %#x was started and is not on device %d", x.Request, x.Device)
		}
		if w.next[r] != x.Part {
			w.t.Fatalf("request %d: part %d starts where %d should", r.id, x.Part, w.next[r])
		}
		w.next[r]++
		if before, ok := w.where[r]; ok && (before.Device != x.Device || before.Instance != x.Instance) {
			w.t.Fatalf("request %d has left device %d, instance %d", r.id, before.Device, before.Instance)
		}
		w.where[r] = x
		key := [3]int32{int32(x.Tenant), x.Device, x.Instance}
		if other := w.held[key]; other != nil && other != r {
			w.t.Fatalf("requests %d and %d have the same instance", r.id, other.id)
		}
		w.held[key] = r
		if int(x.Instance) >= w.l.config.Tenants[x.Tenant].instances() {
			w.t.Fatalf("request %d has instance %d of %d", r.id, x.Instance, w.l.config.Tenants[x.Tenant].Instances)
		}
		fmt.Fprintln(w.log, m.now, r.id, x)
	}
	for i := range m.gpus {
		if g := &m.gpus[i]; max(g.w, g.b) > one+one/2 {
			w.t.Fatalf("width %d and bandwidth %d of %d are under way on device %d", g.w, g.b, one, i)
		}
	}
	w.starts = w.starts[:0]
}

// find looks for what is under way on a GPU.
func (m *machine) find(on int32, is func(*request) bool) *request {
	for _, l := range m.gpus[on].lanes {
		if is(l.r) {
			return l.r
		}
	}
	return nil
}

// randomConfig makes tenants of every kind: narrow and wide, with one part and many, tight and without deadline.
func randomConfig(rng *rand.Rand) Config {
	c := Config{GPUs: 1 + rng.IntN(3), Seconds: 0.15, Seed: rng.Uint64(), Overhead: float64(rng.IntN(4))}
	if rng.IntN(2) == 0 {
		c.Arrivals = "bursty"
	}
	if rng.IntN(2) == 0 {
		c.Noise = 0.3 * rng.Float64()
	}
	for i := range 1 + rng.IntN(8) {
		t := Tenant{Name: fmt.Sprint("t", i), Instances: 1 + rng.IntN(3), Weight: 0.5 + rng.Float64(),
			Queue: rng.IntN(40)}
		var sum float64
		for range 1 + rng.IntN(6) {
			p := Part{Alone: 10 + 200*rng.Float64(), Width: rng.Float64(), Bandwidth: rng.Float64()}
			sum += p.Alone
			t.Parts = append(t.Parts, p)
		}
		if rng.IntN(4) > 0 {
			t.SLO = (1.2 + 8*rng.Float64()) * sum / 1000
		}
		c.Tenants = append(c.Tenants, t)
	}
	return c
}

func randomLoad(t *testing.T, c *Config, offered float64) *load {
	t.Helper()
	l, err := newLoad(c)
	if err != nil {
		t.Fatal(err)
	}
	l.rates(offered)
	l.random(c.Arrivals == "bursty")
	return l
}

// Whatever arrives: parts of a request run in order and once, on one device, within the instances and the room there
// are; every admitted request is answered; and the same input gives the same starts.
func TestProperties(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := randomConfig(rng)
		offered := 0.1 + 2*rng.Float64()
		var logs []uint64
		for range 2 {
			l := randomLoad(t, &c, offered)
			w := newWatched(t, l)
			requests := l.requests()
			m := newMachine(l, w)
			m.run(requests)
			for _, r := range w.admitted {
				if r.end == 0 || int(w.next[r]) != len(l.tenants[r.tenant].parts) {
					t.Fatalf("seed %d: request %d was admitted, and %d parts of it were done", seed, r.id, w.next[r])
				}
			}
			var ended, admitted uint64
			for _, id := range w.ids {
				st := w.s.Tenant(id)
				ended, admitted = ended+st.Met+st.Missed+st.Complete, admitted+st.Admitted
			}
			if st := w.s.Stats(time.Duration(m.now)); st.Outstanding != 0 || ended != admitted ||
				int(ended) != len(w.admitted) {
				t.Fatalf("seed %d: %d admitted, %d ended, %d outstanding", seed, admitted, ended, st.Outstanding)
			}
			logs = append(logs, w.log.Sum64())
		}
		if logs[0] != logs[1] {
			t.Fatalf("seed %d: two runs differ", seed)
		}
	}
}

// The promise, as the package states it: parts take what is estimated, and nothing more urgent is admitted to the
// device afterwards. Those that are overtaken are promised nothing, and nearly all of them make it.
func TestPromise(t *testing.T) {
	const rounding = 1000 // ns: times are whole, and shares are fractions of 65536
	var promised, overtaken, missed int
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := randomConfig(rng)
		c.Noise, c.Overhead = 0, 0
		l := randomLoad(t, &c, 0.3+1.5*rng.Float64())
		w := newWatched(t, l)
		newMachine(l, w).run(l.requests())
		due := func(r *request) int64 {
			if r.deadline == 0 {
				return r.at + int64(time.Second)
			}
			return r.deadline
		}
		for i, r := range w.admitted {
			over := false
			for _, later := range w.admitted[i+1:] {
				if later.at > r.end {
					break
				}
				over = over || due(later) < due(r) && w.where[later].Device == w.where[r].Device
			}
			switch late := r.end > due(r)+rounding; {
			case over:
				overtaken++
				if late {
					missed++
				}
			case late:
				t.Errorf("seed %d: request %d of tenant %d was due at %d and answered at %d", seed, r.id, r.tenant,
					due(r), r.end)
			default:
				promised++
			}
		}
	}
	t.Logf("%d kept; of %d overtaken %d late", promised, overtaken, missed)
	if promised < 10_000 || overtaken < 1000 {
		t.Errorf("only %d promises and %d overtaken requests were seen", promised, overtaken)
	}
	if missed*10_000 > overtaken {
		t.Errorf("%d of %d overtaken requests were late", missed, overtaken)
	}
}

// However much work with deadlines is offered, requests without one are admitted and answered within Patience.
func TestStarvation(t *testing.T) {
	c := Default()
	c.Seconds, c.Noise, c.Overhead = 2, 0, 0
	c.Tenants = append(c.Tenants, Tenant{Name: "batch", Share: 0.5, Instances: 2, Parts: stages(10, 300, 0.7, 0.5)})
	l := randomLoad(t, &c, 2.5)
	w := newWatched(t, l)
	newMachine(l, w).run(l.requests())
	var answered int
	for _, r := range w.admitted {
		if r.deadline == 0 {
			answered++
			if took := time.Duration(r.end - r.at); took > time.Second {
				t.Errorf("request %d took %v", r.id, took)
			}
		}
	}
	if answered < 50 {
		t.Errorf("%d requests without deadline were admitted", answered)
	}
}

// A tenant that offers twenty times its share, with whatever deadline, costs others a few requests in a hundred, and
// none of those that are admitted.
func TestFlood(t *testing.T) {
	for _, slo := range []float64{0, 3, 30} {
		before, after := flooded(t, slo, 1), flooded(t, slo, 20)
		var met, metAfter uint64
		for i := range before {
			a, b := before[i], after[i]
			if a.Arrived != b.Arrived {
				t.Fatal("the flood has changed what others offer")
			}
			met, metAfter = met+a.Met, metAfter+b.Met
			if float64(b.Met) < 0.75*float64(a.Met) {
				t.Errorf("slo %v, tenant %d: %d in time, with the flood %d", slo, i, a.Met, b.Met)
			}
			if b.Missed > 0 {
				t.Errorf("slo %v, tenant %d: %d are late with the flood", slo, i, b.Missed)
			}
		}
		if float64(metAfter) < 0.95*float64(met) {
			t.Errorf("slo %v: %d in time, with the flood %d", slo, met, metAfter)
		}
	}
}

// flooded is what becomes of the default tenants beside one that offers some times its share.
func flooded(t *testing.T, slo, times float64) (others []pack.TenantStats) {
	t.Helper()
	c := Default()
	c.Tenants = append(c.Tenants, Tenant{Name: "flood", SLO: slo, Instances: 4, Parts: stages(2, 100, 0.5, 0.4)})
	l, err := newLoad(&c)
	if err != nil {
		t.Fatal(err)
	}
	l.rates(0.6)
	last := len(l.tenants) - 1
	l.tenants[last].rate *= times
	l.random(false)
	w := newWatched(t, l)
	newMachine(l, w).run(l.requests())
	for _, id := range w.ids[:last] {
		others = append(others, w.s.Tenant(id))
	}
	return others
}
