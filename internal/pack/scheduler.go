package pack

import (
	"math/bits"
	"time"
)

// A TenantID names a tenant of one Scheduler. It is not used again.
type TenantID int32

// A RequestID names a request. 0 is none.
type RequestID uint64

// A Start says: begin this part now.
type Start struct {
	Request  RequestID
	Tenant   TenantID
	Device   int32
	Instance int32 // which copy of the tenant's state on the device
	Part     int32
}

// An Outcome is what became of a part, and of its request if it was the last.
type Outcome uint8

const (
	Stale    Outcome = iota // no such part is under way: nothing has changed
	Going                   // the request has more parts
	Met                     // it is complete, in time
	Missed                  // it is complete, too late
	Complete                // it is complete, and had no deadline
)

// A Scheduler is the state of everything that is outstanding. It is for one goroutine.
type Scheduler struct {
	config  Config
	over    int64 // Oversubscribe, of one
	sure    int64 // Sure, of one
	overdue int64 // Overdue, of one

	tenants  []*tenant // by TenantID; nil: removed
	devices  []device
	requests []request // by slot
	free     []int32   // slots
	dirty    []int32   // devices on which something may be startable
	longest  int64     // the longest part of any tenant, in ns, as estimated
	scan     uint64    // counts admission tests: see tenant.ahead
	next     uint32    // the device from which the next request looks for one
	fair     fair
	parts    uint64
}

// States of a request.
const (
	unused  = iota
	queued  // waits for an instance
	ready   // its next part may start
	running // a part is under way
)

type request struct {
	// What an admission test reads of each request stands first.
	t         *tenant
	w, b      int64 // what the part under way counts as
	startedV  int64 // when it started, in the device's own time; ns, as all that follows
	estimate  int64 // of it
	due       int64 // what the request is ordered by
	delay     int64 // how long less urgent parts can keep it from starting
	part      int32
	device    int32
	state     uint8
	tight     bool
	late      bool // it has given way
	straggler bool // it was reported
	solo      bool // nothing has been beside the part under way
	begun     bool // its first part has started
	instance  int8

	id       RequestID
	arrived  int64
	deadline int64 // 0: none
	started  int64 // the part under way
}

type device struct {
	order   line  // outstanding requests
	ready   line  // of these, the ready ones
	queued  bool  // in Scheduler.dirty
	running int   // how many parts are under way
	solo    int32 // the slot of the only part under way, if it has been alone since it started; else -1

	w, b   int64 // sums of what is under way, as it is
	cw, cb int64 // and as it counts: tight requests take more
	at     int64 // when these began
	v      int64 // its own time: what a part would have got by now, had it always been under way

	backlog int64 // work of outstanding requests, in ns; roughly
	busy    int64 // ns with something under way
	filled  int64 // ns × width of what was under way, at most one
	seen    int64 // filled, at the end of the last epoch
	done    int64 // ns of work, since the last epoch
}

// New makes a Scheduler.
func New(c Config) (*Scheduler, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	s := &Scheduler{config: c, over: int64(c.Oversubscribe * one), sure: int64(c.Sure * one),
		overdue: int64(c.Overdue * one),
		devices: make([]device, c.Devices), dirty: make([]int32, 0, c.Devices)}
	for i := range s.devices {
		s.devices[i].solo = -1
	}
	s.fair.capacity = one
	return s, nil
}

// Arrive takes a request, or refuses it. deadline is a moment; 0: what the tenant's SLO says.
func (s *Scheduler) Arrive(now time.Duration, id TenantID, deadline time.Duration) (RequestID, Refusal) {
	t := s.tenant(id)
	if t == nil {
		return 0, NoTenant
	}
	r := s.arrive(int64(now), t, int64(deadline))
	t.stats.Arrived++
	if r.refusal != Admitted {
		t.stats.Refused[r.refusal]++
		return 0, r.refusal
	}
	t.stats.Admitted++
	return r.id, Admitted
}

type arrival struct {
	id      RequestID
	refusal Refusal
}

func (s *Scheduler) arrive(now int64, t *tenant, deadline int64) arrival {
	if t.draining {
		return arrival{refusal: Draining}
	}
	if t.stale {
		s.estimate(t)
	}
	if deadline == 0 && t.SLO > 0 {
		deadline = now + int64(t.SLO)
	}
	due := deadline
	if due == 0 {
		due = now + int64(s.config.Patience)
	}
	work := t.rest[0].work
	s.fair.offer(s, now, t, work)
	if t.waiting >= t.Queue {
		return arrival{refusal: QueueFull}
	}
	if !s.fair.has(t, work) {
		return arrival{refusal: OverShare}
	}
	o, refusal := s.place(now, t, due)
	if refusal != Admitted {
		return arrival{refusal: refusal}
	}
	s.fair.pay(t, work)
	return arrival{id: s.admit(now, t, o, deadline, due)}
}

// admit puts a request on a device.
func (s *Scheduler) admit(now int64, t *tenant, o offer, deadline, due int64) RequestID {
	var slot int32
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
	} else {
		slot = int32(len(s.requests))
		s.requests = append(s.requests, request{})
	}
	r := &s.requests[slot]
	generation := uint32(r.id>>32) + 1
	*r = request{t: t, id: RequestID(generation)<<32 | RequestID(slot), state: queued, tight: o.tight, delay: o.delay,
		device: o.device, arrived: now, deadline: deadline, due: due}
	dev := &s.devices[o.device]
	dev.order.put(place{due, slot})
	dev.backlog += t.rest[0].work
	t.waiting++
	t.outstanding++
	in := &t.on[o.device]
	in.waiting.put(place{due, slot})
	s.instances(dev, t, in)
	s.touch(o.device)
	return r.id
}

// instances gives free instances to the tenant's most urgent requests on a device.
func (s *Scheduler) instances(dev *device, t *tenant, in *instances) {
	for len(in.waiting) > 0 && in.count() < t.Instances {
		p := in.waiting[0]
		in.waiting.cut(p)
		r := &s.requests[p.slot]
		r.instance = int8(bits.TrailingZeros64(^in.busy))
		in.busy |= 1 << r.instance
		s.ready(dev, p.slot)
	}
}

// ready says that a request's next part may start.
func (s *Scheduler) ready(dev *device, slot int32) {
	r := &s.requests[slot]
	r.state = ready
	dev.ready.put(place{r.due, slot})
}

// Issue appends to starts what is to be started now. What is not in it waits for room, for an instance, or for its
// own part under way; ask again after Arrive, Done and Failed.
func (s *Scheduler) Issue(now time.Duration, starts []Start) []Start {
	for _, d := range s.dirty {
		s.devices[d].queued = false
		starts = s.issue(int64(now), d, starts)
	}
	s.dirty = s.dirty[:0]
	return starts
}

func (s *Scheduler) issue(now int64, d int32, starts []Start) []Start {
	dev := &s.devices[d]
	if len(dev.ready) == 0 {
		return starts
	}
	dev.advance(now)
	for len(dev.ready) > 0 {
		slot := dev.ready[0].slot
		r := &s.requests[slot]
		if s.hopeless(now, r) {
			s.giveWay(dev, slot)
			continue
		}
		w, b := r.counts(s.over)
		if room := one + s.over; dev.cw+w > room || dev.cb+b > room {
			break
		}
		s.start(now, dev, slot, w, b)
		starts = append(starts, Start{Request: r.id, Tenant: r.t.id, Device: d, Instance: int32(r.instance),
			Part: r.part})
	}
	return starts
}

// counts is what the next part takes of the device's room.
func (r *request) counts(over int64) (w, b int64) {
	if r.tight {
		x := &r.t.rest[r.part]
		return x.widest + over, x.highest + over
	}
	p := &r.t.parts[r.part]
	return p.w, p.b
}

func (s *Scheduler) start(now int64, dev *device, slot int32, w, b int64) {
	r := &s.requests[slot]
	p := &r.t.parts[r.part]
	if !r.begun {
		r.begun = true
		r.t.waiting--
	}
	r.state, r.started, r.startedV, r.estimate = running, now, dev.v, p.estimate()
	r.w, r.b, r.straggler = w, b, false
	r.solo = dev.running == 0
	if r.solo {
		dev.solo = slot
	} else if dev.solo >= 0 {
		s.requests[dev.solo].solo = false
		dev.solo = -1
	}
	dev.ready.cut(place{r.due, slot})
	dev.running++
	dev.w, dev.b, dev.cw, dev.cb = dev.w+p.w, dev.b+p.b, dev.cw+w, dev.cb+b
}

// stop takes a part off its device.
func (s *Scheduler) stop(now int64, dev *device, slot int32) {
	r := &s.requests[slot]
	p := &r.t.parts[r.part]
	dev.advance(now)
	dev.running--
	if dev.solo == slot {
		dev.solo = -1
	}
	dev.w, dev.b, dev.cw, dev.cb = dev.w-p.w, dev.b-p.b, dev.cw-r.w, dev.cb-r.b
	s.touch(r.device)
}

// Done says that a part is complete, and how long it took. It says what became of the request.
func (s *Scheduler) Done(now time.Duration, id RequestID, took time.Duration) Outcome {
	slot, r := s.underWay(id)
	if r == nil {
		return Stale
	}
	dev := &s.devices[r.device]
	s.stop(int64(now), dev, slot)
	s.learn(dev, r, int64(now), int64(took))
	p := &r.t.parts[r.part]
	work := mul(p.estimate(), max(p.w, p.b))
	dev.done += work
	dev.backlog -= work
	s.parts++
	if r.part++; int(r.part) < len(r.t.parts) {
		s.ready(dev, slot)
		return Going
	}
	r.t.stats.answered(int64(now)-r.arrived, r.deadline-int64(now), r.deadline != 0)
	outcome := Complete
	switch {
	case r.deadline != 0 && int64(now) <= r.deadline:
		outcome = Met
	case r.deadline != 0:
		outcome = Missed
	}
	s.end(dev, slot)
	return outcome
}

// Failed says that a part under way did not do its work. again: it is to be started once more; otherwise its request
// has ended. It reports whether such a part was under way.
func (s *Scheduler) Failed(now time.Duration, id RequestID, again bool) bool {
	slot, r := s.underWay(id)
	if r == nil {
		return false
	}
	dev := &s.devices[r.device]
	s.stop(int64(now), dev, slot)
	if again {
		r.t.stats.Repeated++
		s.ready(dev, slot)
		return true
	}
	r.t.stats.Failed++
	dev.backlog -= r.t.rest[r.part].work
	s.end(dev, slot)
	return true
}

// end forgets a request that holds an instance and has nothing under way.
func (s *Scheduler) end(dev *device, slot int32) {
	r := &s.requests[slot]
	t := r.t
	dev.order.cut(place{r.due, slot})
	if len(dev.order) == 0 {
		dev.backlog = 0
	}
	in := &t.on[r.device]
	in.busy &^= 1 << r.instance
	r.state, r.t = unused, nil
	s.free = append(s.free, slot)
	t.outstanding--
	s.instances(dev, t, in)
}

// underWay finds the request of a part that is under way.
func (s *Scheduler) underWay(id RequestID) (int32, *request) {
	slot := uint32(id)
	if uint64(slot) >= uint64(len(s.requests)) || s.requests[slot].id != id || s.requests[slot].state != running {
		return 0, nil
	}
	return int32(slot), &s.requests[slot]
}

// hopeless reports whether a request that has not given way cannot make its deadline any more.
func (s *Scheduler) hopeless(now int64, r *request) bool {
	return !r.late && r.deadline != 0 && now+r.t.rest[r.part].crit > r.due
}

// giveWay orders a request that holds an instance as if it were due Patience later.
func (s *Scheduler) giveWay(dev *device, slot int32) {
	r := &s.requests[slot]
	before := place{r.due, slot}
	r.late, r.due = true, r.due+int64(s.config.Patience)
	dev.order.cut(before)
	dev.order.put(place{r.due, slot})
	if r.state == ready {
		dev.ready.cut(before)
		dev.ready.put(place{r.due, slot})
	}
}

// Overdue appends to slow the requests whose part under way has taken Config.Overdue times its estimate or more, each
// part once. They give way to others from now on. Whether they are to be ended is the caller's to say: by Failed.
func (s *Scheduler) Overdue(now time.Duration, slow []RequestID) []RequestID {
	const least = int64(50 * time.Microsecond) // below, lateness says more of who looked than of the part
	for i := range s.devices {
		dev := &s.devices[i]
		if dev.running == 0 {
			continue
		}
		dev.advance(int64(now))
		from := len(slow)
		for _, p := range dev.order {
			r := &s.requests[p.slot]
			if r.state == running && !r.straggler && dev.v-r.startedV >= max(least, mul(r.estimate, s.overdue)) {
				r.straggler = true
				slow = append(slow, r.id)
			}
		}
		for _, id := range slow[from:] {
			r := &s.requests[uint32(id)]
			r.t.stats.Stragglers++
			if !r.late {
				s.giveWay(dev, int32(uint32(id)))
			}
		}
	}
	return slow
}

func (s *Scheduler) touch(d int32) {
	if dev := &s.devices[d]; !dev.queued {
		dev.queued = true
		s.dirty = append(s.dirty, d)
	}
}

// advance brings a device's own time to now.
func (dev *device) advance(now int64) {
	dt := now - dev.at
	dev.at = now
	if dev.running == 0 || dt <= 0 {
		return
	}
	dev.busy += dt
	dev.filled += mul(dt, min(one, max(dev.w, dev.b)))
	if m := max(dev.w, dev.b); m > one {
		dt = dt/m*one + dt%m*one/m
	}
	dev.v += dt
}

// mul is x × f / one, without overflow for every x and every f up to 2^40.
func mul(x, f int64) int64 { return x>>16*f + x&(one-1)*f>>16 }
