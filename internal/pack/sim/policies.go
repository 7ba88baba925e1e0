package sim

import (
	"time"

	"holdfast/internal/pack"
)

// packed is the scheduler of package pack.
type packed struct {
	s      *pack.Scheduler
	ids    []pack.TenantID
	under  map[pack.RequestID]*request
	names  map[*request]pack.RequestID
	starts []pack.Start
	slow   []pack.RequestID
	look   int64
}

func newPacked(l *load) (*packed, error) {
	s, ids, err := l.scheduler()
	return &packed{s: s, ids: ids, under: make(map[pack.RequestID]*request),
		names: make(map[*request]pack.RequestID), look: never}, err
}

func (p *packed) arrive(m *machine, r *request) {
	id, refusal := p.s.Arrive(time.Duration(m.now), p.ids[r.tenant], time.Duration(r.deadline))
	if refusal != pack.Admitted {
		r.dropped = true
		return
	}
	p.under[id], p.names[r] = r, id
	p.issue(m)
}

func (p *packed) done(m *machine, r *request, took time.Duration) {
	id := p.names[r]
	if p.s.Done(time.Duration(m.now), id, took) != pack.Going {
		delete(p.under, id)
		delete(p.names, r)
	}
	p.issue(m)
}

func (p *packed) issue(m *machine) {
	p.starts = p.s.Issue(time.Duration(m.now), p.starts[:0])
	for _, x := range p.starts {
		m.start(p.under[x.Request], x.Device)
	}
	switch {
	case len(p.under) == 0:
		p.look = never
	case p.look == never:
		p.look = m.now + int64(time.Millisecond)
	}
}

func (p *packed) wake() int64 { return p.look }

func (p *packed) tick(m *machine) {
	p.slow = p.s.Overdue(time.Duration(m.now), p.slow[:0])
	p.look = m.now + int64(time.Millisecond)
	p.issue(m)
}

// queues is what the policies without admission control share: queues on each GPU, and requests that are dropped
// when they are too late before they have begun.
type queues struct {
	shed bool
	load []int32 // outstanding requests of each GPU
}

func newQueues(l *load) queues {
	return queues{shed: !l.config.KeepLate, load: make([]int32, l.config.GPUs)}
}

// place takes the emptiest of some GPUs.
func (q *queues) place(m *machine) int32 {
	const look = 8
	n := int32(len(q.load))
	best := m.probe
	for i := range min(look, n) {
		if c := (m.probe + i) % n; q.load[c] < q.load[best] {
			best = c
		}
	}
	m.probe = (m.probe + look) % n
	q.load[best]++
	return best
}

// pop takes the first request of a queue that is still worth beginning.
func (q *queues) pop(m *machine, on int32, list []*request) (*request, []*request) {
	for len(list) > 0 {
		r := list[0]
		list = list[1:]
		if !q.shed || r.deadline == 0 || r.begun || m.now <= r.deadline {
			return r, list
		}
		r.dropped = true
		q.load[on]--
	}
	return nil, list
}

// fifo runs one request at a time on each GPU, in the order of arrival.
type fifo struct {
	queues
	waiting [][]*request
	busy    []bool
}

func newFIFO(l *load) *fifo {
	return &fifo{newQueues(l), make([][]*request, l.config.GPUs), make([]bool, l.config.GPUs)}
}

func (f *fifo) arrive(m *machine, r *request) {
	on := f.place(m)
	f.waiting[on] = append(f.waiting[on], r)
	f.next(m, on)
}

func (f *fifo) done(m *machine, r *request, _ time.Duration) {
	if r.end == 0 {
		m.start(r, r.gpu)
		return
	}
	f.load[r.gpu]--
	f.busy[r.gpu] = false
	f.next(m, r.gpu)
}

func (f *fifo) next(m *machine, on int32) {
	if f.busy[on] {
		return
	}
	var r *request
	if r, f.waiting[on] = f.pop(m, on, f.waiting[on]); r != nil {
		f.busy[on] = true
		m.start(r, on)
	}
}

func (f *fifo) wake() int64   { return never }
func (f *fifo) tick(*machine) {}

// spatial runs everything at once: each tenant has as many streams on each GPU as it has instances.
type spatial struct {
	queues
	waiting [][]*request // by GPU and tenant
	busy    []int
}

func newSpatial(l *load) *spatial {
	n := l.config.GPUs * len(l.tenants)
	return &spatial{newQueues(l), make([][]*request, n), make([]int, n)}
}

func (s *spatial) arrive(m *machine, r *request) {
	r.gpu = s.place(m)
	i := int(r.gpu)*len(m.load.tenants) + int(r.tenant)
	s.waiting[i] = append(s.waiting[i], r)
	s.next(m, r.gpu, r.tenant)
}

func (s *spatial) done(m *machine, r *request, _ time.Duration) {
	if r.end == 0 {
		m.start(r, r.gpu)
		return
	}
	s.load[r.gpu]--
	s.busy[int(r.gpu)*len(m.load.tenants)+int(r.tenant)]--
	s.next(m, r.gpu, r.tenant)
}

func (s *spatial) next(m *machine, on, tenant int32) {
	i := int(on)*len(m.load.tenants) + int(tenant)
	if s.busy[i] == m.load.config.Tenants[tenant].instances() {
		return
	}
	var r *request
	if r, s.waiting[i] = s.pop(m, on, s.waiting[i]); r != nil {
		s.busy[i]++
		m.start(r, on)
	}
}

func (s *spatial) wake() int64   { return never }
func (s *spatial) tick(*machine) {}

// sliced gives each GPU to one tenant at a time, round robin: until it has nothing to do, or for a quantum if others
// have. Each tenant has its requests done in the order of arrival.
type sliced struct {
	queues
	quantum int64
	gpus    []turns
	ends    []ending // when turns end, in order; those of turns that ended before are passed over
}

type turns struct {
	waiting [][]*request // by tenant
	turn    int32
	since   int64 // when the turn began
	running *request
	number  uint32 // of the turn
}

type ending struct {
	at     int64
	gpu    int32
	number uint32
}

func newSliced(l *load) *sliced {
	s := &sliced{queues: newQueues(l), quantum: int64(l.config.Quantum * 1e6), gpus: make([]turns, l.config.GPUs)}
	for i := range s.gpus {
		s.gpus[i].waiting = make([][]*request, len(l.tenants))
	}
	return s
}

func (s *sliced) arrive(m *machine, r *request) {
	r.gpu = s.place(m)
	g := &s.gpus[r.gpu]
	g.waiting[r.tenant] = append(g.waiting[r.tenant], r)
	if g.running == nil {
		s.next(m, r.gpu, r.tenant)
	}
}

func (s *sliced) done(m *machine, r *request, _ time.Duration) {
	g := &s.gpus[r.gpu]
	if r.end == 0 {
		m.start(r, r.gpu)
		return
	}
	s.load[r.gpu]--
	g.running = nil
	g.waiting[g.turn] = g.waiting[g.turn][1:]
	if m.now-g.since < s.quantum && s.begin(m, r.gpu) {
		return
	}
	s.next(m, r.gpu, g.turn+1)
}

// begin has the tenant whose turn it is go on.
func (s *sliced) begin(m *machine, on int32) bool {
	g := &s.gpus[on]
	r, rest := s.pop(m, on, g.waiting[g.turn])
	if r == nil {
		g.waiting[g.turn] = rest
		return false
	}
	list := g.waiting[g.turn]
	g.waiting[g.turn] = list[len(list)-len(rest)-1:] // it stays the first until it is answered
	g.running = r
	m.start(r, on)
	return true
}

// next gives the GPU to the first tenant from one on that has something to do.
func (s *sliced) next(m *machine, on, from int32) {
	g := &s.gpus[on]
	n := int32(len(g.waiting))
	for i := range n {
		g.turn, g.since = (from+i)%n, m.now
		if s.begin(m, on) {
			g.number++
			s.ends = append(s.ends, ending{m.now + s.quantum, on, g.number})
			return
		}
	}
}

func (s *sliced) wake() int64 {
	for len(s.ends) > 0 {
		e := s.ends[0]
		if g := &s.gpus[e.gpu]; g.number == e.number && g.running != nil {
			return e.at
		}
		s.ends = s.ends[1:]
	}
	return never
}

func (s *sliced) tick(m *machine) {
	e := s.ends[0]
	s.ends = s.ends[1:]
	g := &s.gpus[e.gpu]
	m.pause(g.running)
	g.running = nil
	s.next(m, e.gpu, g.turn+1)
}
