package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/pack"
)

// A load is the tenants of a simulation and its arrivals, which all policies see alike.
type load struct {
	config   *Config
	seed     uint64
	tenants  []tenant
	arrivals []arrival
	overhead int64 // ns, of a part
	span     int64 // ns in which requests arrive
}

type tenant struct {
	slo   int64
	rate  float64 // requests in a ns
	parts []part
	crit  int64
}

type part struct{ alone, w, b int64 }

type arrival struct {
	at     int64
	tenant int32
}

// newLoad has no arrivals yet. It fills in what the configuration leaves out.
func newLoad(c *Config) (*load, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &load{config: c, seed: c.Seed, tenants: tenantsOf(c), overhead: int64(c.Overhead * 1e3),
		span: int64(c.Seconds * 1e9)}, nil
}

// tenantsOf fills in what the configuration leaves out.
func tenantsOf(c *Config) []tenant {
	list := make([]tenant, len(c.Tenants))
	for i := range c.Tenants {
		t := &list[i]
		t.slo = int64(c.Tenants[i].SLO * 1e6)
		for _, p := range c.Tenants[i].Parts {
			w := p.Width
			if w == 0 {
				w = 1
			}
			b := p.Bandwidth
			if b == 0 {
				b = w
			}
			x := part{int64(p.Alone * 1e3), share(w), share(b)}
			t.parts = append(t.parts, x)
			t.crit += x.alone
		}
	}
	return list
}

func share(x float64) int64 { return max(1, int64(math.Ceil(x*one))) }

// rates says how often requests of each tenant arrive, so that what the GPUs have least of (multiprocessors or
// bandwidth) is offered times what there is of it. Each tenant has its share of that in work.
func (l *load) rates(offered float64) {
	var w, b, shares float64
	for i := range l.tenants {
		shares += l.config.Tenants[i].share()
	}
	for i := range l.tenants {
		t := &l.tenants[i]
		var tw, tb float64
		for _, p := range t.parts {
			tw += float64(p.alone) * float64(p.w) / one
			tb += float64(p.alone) * float64(p.b) / one
		}
		t.rate = l.config.Tenants[i].share() / shares / max(tw, tb)
		w, b = w+t.rate*tw, b+t.rate*tb
	}
	for i := range l.tenants {
		l.tenants[i].rate *= offered * float64(l.config.GPUs) / max(w, b)
	}
}

// random makes arrivals. Each tenant has a stream of its own, so that another tenant changes nothing of it.
func (l *load) random(bursty bool) {
	for i := range l.tenants {
		rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
		for at := 0.0; ; {
			at = next(rng, at, l.tenants[i].rate, bursty)
			if at >= float64(l.span) {
				break
			}
			l.arrivals = append(l.arrivals, arrival{int64(at), int32(i)})
		}
	}
	l.sort()
}

// Bursty arrivals come in the first fifth of periods of this length, five times as many.
const (
	burstPeriod = float64(50 * time.Millisecond)
	burstShare  = 0.2
)

// next is the arrival after at.
func next(rng *rand.Rand, at, rate float64, bursty bool) float64 {
	wait := rng.ExpFloat64() / rate
	if !bursty {
		return at + wait
	}
	// In the time of bursts put end to end, arrivals are Poisson.
	period, in := math.Floor(at/burstPeriod), math.Mod(at, burstPeriod)
	on := period*burstPeriod*burstShare + min(in, burstPeriod*burstShare) + wait*burstShare
	period = math.Floor(on / (burstPeriod * burstShare))
	return period*burstPeriod + on - period*burstPeriod*burstShare
}

func (l *load) sort() {
	slices.SortStableFunc(l.arrivals, func(a, b arrival) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.tenant, b.tenant))
	})
}

// maxArrivals keeps a simulation within memory.
const maxArrivals = 20_000_000

// read takes arrivals from a file: lines of a moment in milliseconds and a tenant's name.
func (l *load) read(r io.Reader) error {
	index := make(map[string]int32)
	for i, t := range l.config.Tenants {
		index[t.Name] = int32(i)
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		when, name, _ := strings.Cut(text, " ")
		ms, err := strconv.ParseFloat(when, 64)
		i, ok := index[strings.TrimSpace(name)]
		switch {
		case err != nil || !(ms >= 0 && ms <= 1e8):
			return fmt.Errorf("line %d: %q is no moment in milliseconds", n, when)
		case !ok:
			return fmt.Errorf("line %d: there is no tenant %q", n, strings.TrimSpace(name))
		case len(l.arrivals) == maxArrivals:
			return fmt.Errorf("line %d: more than %d arrivals", n, maxArrivals)
		}
		l.arrivals = append(l.arrivals, arrival{int64(ms * 1e6), i})
	}
	l.sort()
	if n := len(l.arrivals); n > 0 {
		l.span = l.arrivals[n-1].at + 1
	}
	return lines.Err()
}

// duration is how long a part of a request really takes alone, whoever starts it and when.
func (l *load) duration(id, tenant, part int32) int64 {
	alone := l.tenants[tenant].parts[part].alone
	if l.config.Noise == 0 {
		return alone
	}
	x := mix(mix(l.seed^uint64(id)<<32) + uint64(part))
	// Four uniform numbers make a bell: mean 2, variance 1/3.
	var sum float64
	for range 4 {
		sum += float64(x&0xffff) / 0x10000
		x >>= 16
	}
	return max(1, int64(float64(alone)*math.Exp(l.config.Noise*(sum-2)*math.Sqrt(3))))
}

// mix is splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// requests are the arrivals, for one policy.
func (l *load) requests() []request {
	list := make([]request, len(l.arrivals))
	for i, a := range l.arrivals {
		r := request{id: int32(i), tenant: a.tenant, at: a.at, lane: -1}
		if slo := l.tenants[a.tenant].slo; slo > 0 {
			r.deadline = a.at + slo
		}
		list[i] = r
	}
	return list
}

// scheduler is a pack.Scheduler that knows the tenants.
func (l *load) scheduler() (*pack.Scheduler, []pack.TenantID, error) {
	s, err := pack.New(pack.Config{Devices: l.config.GPUs, Oversubscribe: l.config.Oversubscribe,
		Surplus: l.config.Surplus, Sure: l.config.Sure})
	if err != nil {
		return nil, nil, err
	}
	var ids []pack.TenantID
	for _, t := range l.config.Tenants {
		id, err := s.Add(t.pack(len(l.config.Tenants) * l.config.GPUs))
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, id)
	}
	return s, ids, nil
}
