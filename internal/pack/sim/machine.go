package sim

import (
	"math"
	"math/bits"
	"time"
)

// one is the whole of a GPU, as package pack counts it.
const one = 1 << 16

const never = math.MaxInt64

// A request is one arrival, as one policy sees it. Times are in ns since the start.
type request struct {
	id       int32
	tenant   int32
	at       int64
	deadline int64 // 0: none
	part     int32
	left     int64 // ns of the part that it would take alone; 0: it has not begun
	gpu      int32
	begun    bool
	lane     int32 // index in its GPU's lanes; -1: not under way
	started  int64
	end      int64 // when it was answered; 0: not
	dropped  bool  // refused, or dropped before it began
}

// A gpu shares itself between what is under way. Its own time v runs as fast as a part under way proceeds.
type gpu struct {
	lanes []lane
	w, b  int64
	at, v int64
	next  int64 // when the first lane ends
	place int32 // in machine.heap
}

type lane struct {
	r    *request
	ends int64 // of the GPU's own time
	w, b int64
}

// A machine is GPUs in simulated time, and what runs on them.
type machine struct {
	load   *load
	now    int64
	gpus   []gpu
	heap   []int32 // of GPUs, by next
	policy policy
	probe  int32 // where the next look for the emptiest GPU begins
}

// A policy decides what runs. It is told of arrivals and ends, and calls machine.start and machine.pause.
type policy interface {
	arrive(m *machine, r *request)
	// done: r's part has ended. It has begun its next one already, or has been answered.
	done(m *machine, r *request, took time.Duration)
	// wake is when tick is to be called, if nothing happens before.
	wake() int64
	tick(m *machine)
}

func newMachine(l *load, p policy) *machine {
	m := &machine{load: l, gpus: make([]gpu, l.config.GPUs), heap: make([]int32, l.config.GPUs), policy: p}
	for i := range m.gpus {
		m.gpus[i].next, m.gpus[i].place, m.heap[i] = never, int32(i), int32(i)
	}
	return m
}

// run goes through all arrivals, and on until nothing is left.
func (m *machine) run(requests []request) {
	for i := 0; ; {
		next, wake := m.gpus[m.heap[0]].next, m.policy.wake()
		switch {
		case i < len(requests) && requests[i].at <= min(next, wake):
			m.now = requests[i].at
			m.policy.arrive(m, &requests[i])
			i++
		case next == never && wake == never:
			return
		case next <= wake:
			m.now = next
			m.finish(m.heap[0])
		default:
			m.now = wake
			m.policy.tick(m)
		}
	}
}

// start puts r's part on a GPU, from where it was left.
func (m *machine) start(r *request, on int32) {
	g := &m.gpus[on]
	g.advance(m.now)
	p := &m.load.tenants[r.tenant].parts[r.part]
	if r.left == 0 {
		r.left = m.load.duration(r.id, r.tenant, r.part) + m.load.overhead
	}
	r.gpu, r.begun, r.started, r.lane = on, true, m.now, int32(len(g.lanes))
	g.lanes = append(g.lanes, lane{r, g.v + r.left, p.w, p.b})
	g.w, g.b = g.w+p.w, g.b+p.b
	m.plan(on)
}

// pause takes r's part off its GPU; start goes on with it.
func (m *machine) pause(r *request) {
	g := &m.gpus[r.gpu]
	g.advance(m.now)
	r.left = max(1, g.lanes[r.lane].ends-g.v)
	g.take(r.lane)
	m.plan(r.gpu)
}

// finish ends the first lane of a GPU.
func (m *machine) finish(on int32) {
	g := &m.gpus[on]
	g.advance(m.now)
	first := 0
	for i := range g.lanes {
		if g.lanes[i].ends < g.lanes[first].ends {
			first = i
		}
	}
	r := g.lanes[first].r
	g.take(int32(first))
	m.plan(on)
	r.left = 0
	r.part++
	if int(r.part) == len(m.load.tenants[r.tenant].parts) {
		r.end = m.now
	}
	m.policy.done(m, r, time.Duration(m.now-r.started))
}

func (g *gpu) take(at int32) {
	l := g.lanes[at]
	g.w, g.b = g.w-l.w, g.b-l.b
	l.r.lane = -1
	last := len(g.lanes) - 1
	g.lanes[at] = g.lanes[last]
	g.lanes[at].r.lane = at
	l.r.lane = -1
	g.lanes = g.lanes[:last]
}

// slow is how much longer everything under way takes, of one.
func (g *gpu) slow() int64 { return max(one, g.w, g.b) }

func (g *gpu) advance(now int64) {
	dt := now - g.at
	g.at = now
	if len(g.lanes) > 0 {
		g.v += scale(dt, one, g.slow())
	}
}

// scale is x × up / down, rounded down: a GPU never does more than it can.
func scale(x, up, down int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(up))
	q, _ := bits.Div64(hi, lo, uint64(down))
	return int64(q)
}

// plan works out when the first lane of a GPU ends, and puts the GPU where it belongs in the heap.
func (m *machine) plan(on int32) {
	g := &m.gpus[on]
	g.next = never
	for i := range g.lanes {
		g.next = min(g.next, g.lanes[i].ends)
	}
	if g.next != never {
		g.next = m.now + scale(max(0, g.next-g.v), g.slow(), one)
		if g.slow() > one {
			g.next++ // upwards
		}
	}
	m.fix(g.place)
}

// fix restores the heap after the time at i has changed.
func (m *machine) fix(i int32) {
	for i > 0 && m.less(i, (i-1)/2) {
		m.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for n := int32(len(m.heap)); ; {
		c := 2*i + 1
		if c+1 < n && m.less(c+1, c) {
			c++
		}
		if c >= n || !m.less(c, i) {
			return
		}
		m.swap(i, c)
		i = c
	}
}

func (m *machine) less(i, j int32) bool {
	a, b := m.heap[i], m.heap[j]
	if x, y := m.gpus[a].next, m.gpus[b].next; x != y {
		return x < y
	}
	return a < b
}

func (m *machine) swap(i, j int32) {
	m.heap[i], m.heap[j] = m.heap[j], m.heap[i]
	m.gpus[m.heap[i]].place, m.gpus[m.heap[j]].place = i, j
}
