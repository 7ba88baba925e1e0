package pack

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

type tenant struct {
	Tenant
	id          TenantID
	draining    bool
	waiting     int // requests of which no part has started
	outstanding int
	parts       []part
	rest        []rest      // what is left from each part on
	on          []instances // by device
	longest     int64       // the longest part, in ns, as estimated
	stale       bool        // estimates of parts have changed since rest was made
	inverse     int64       // 1/r of the promise, of one; and for tight requests
	inverseT    int64

	scanned uint64 // the admission test to which ahead belongs
	ahead   int64  // ns of its requests passed by that test

	account account
	stats   TenantStats
}

// A part as it is learnt.
type part struct {
	w, b   int64 // of one
	alone  int64 // ns
	beside int64 // factor on it beside others, of one, over what the model says
}

func (p *part) estimate() int64 { return mul(p.alone, p.beside) }

// A rest is what is left of a request from one part on.
type rest struct {
	crit            int64 // ns, one part after the other
	slow            int64 // the same, slowed as much as parts may be
	work            int64 // ns of the whole device
	tight           int64 // the same, as it counts for a tight request
	wider           int64 // how many parts are wider than the one before them
	widest, highest int64 // largest width and bandwidth
}

// instances are the copies of a tenant's state on one device.
type instances struct {
	busy    uint64 // a bit for each
	waiting line   // requests that have none
}

func (in *instances) count() int { return bits.OnesCount64(in.busy) }

// free reports whether a request that comes now gets one of so many at once.
func (in *instances) free(of int) bool { return len(in.waiting) == 0 && in.count() < of }

// Add takes a tenant in.
func (s *Scheduler) Add(t Tenant) (TenantID, error) {
	if err := t.complete(); err != nil {
		return -1, err
	}
	for _, other := range s.tenants {
		if other != nil && other.Name == t.Name {
			return -1, fmt.Errorf("pack: there is a tenant %q already", t.Name)
		}
	}
	t.Parts = slices.Clone(t.Parts)
	n := &tenant{Tenant: t, id: TenantID(len(s.tenants)), rest: make([]rest, len(t.Parts)+1),
		on: make([]instances, len(s.devices))}
	for _, p := range t.Parts {
		if p.Width == 0 {
			p.Width = 1
		}
		if p.Bandwidth == 0 {
			p.Bandwidth = p.Width
		}
		n.parts = append(n.parts, part{w: share(p.Width), b: share(p.Bandwidth), alone: int64(p.Alone), beside: one})
	}
	s.estimate(n)
	s.tenants = append(s.tenants, n)
	s.fair.changed(s)
	return n.id, nil
}

// Change gives a tenant another SLO, weight, number of instances and queue, for requests from now on. It keeps its
// name and parts; for another recording, add another tenant and drain this one.
func (s *Scheduler) Change(id TenantID, to Tenant) error {
	t := s.tenant(id)
	if t == nil {
		return errGone
	}
	to.Name, to.Parts = t.Name, t.Parts
	if err := to.complete(); err != nil {
		return err
	}
	t.Tenant = to
	s.fair.changed(s)
	for d := range s.devices {
		s.instances(&s.devices[d], t, &t.on[d])
		s.touch(int32(d))
	}
	return nil
}

// Drain refuses a tenant's requests from now on. Those admitted are finished.
func (s *Scheduler) Drain(id TenantID) error {
	t := s.tenant(id)
	if t == nil {
		return errGone
	}
	t.draining = true
	return nil
}

// Remove forgets a tenant that has nothing outstanding.
func (s *Scheduler) Remove(id TenantID) error {
	t := s.tenant(id)
	if t == nil {
		return errGone
	}
	if t.outstanding > 0 {
		return fmt.Errorf("pack: tenant %q has %d requests outstanding: drain it first", t.Name, t.outstanding)
	}
	s.tenants[id] = nil
	s.fair.changed(s)
	return nil
}

func (s *Scheduler) tenant(id TenantID) *tenant {
	if id < 0 || int(id) >= len(s.tenants) {
		return nil
	}
	return s.tenants[id]
}

// estimate works out what is left from each part on.
func (s *Scheduler) estimate(t *tenant) {
	t.stale, t.longest = false, 0
	for i := len(t.parts) - 1; i >= 0; i-- {
		p, after, r := &t.parts[i], &t.rest[i+1], &t.rest[i]
		time := p.estimate()
		r.widest, r.highest = max(p.w, after.widest), max(p.b, after.highest)
		r.crit = after.crit + time
		r.slow = mul(r.crit, one+s.over)
		r.work = after.work + mul(time, max(p.w, p.b))
		r.tight = after.tight + mul(time, max(r.widest, r.highest)+s.over)
		r.wider = after.wider
		if i+1 < len(t.parts) && (t.parts[i+1].w > p.w || t.parts[i+1].b > p.b) {
			r.wider++
		}
		t.longest = max(t.longest, time)
	}
	s.longest = max(s.longest, t.longest)
	widest := max(t.rest[0].widest, t.rest[0].highest)
	const least = one / 16 // who fills everything waits until nothing is under way
	t.inverse = one * one / max(least, min(one, one+s.over-widest))
	t.inverseT = one * one / max(least, one-widest)
}

// learn takes in how long a part took. A single sample moves an estimate by an eighth of it at most, however far off
// it is, so that an outlier does little and a lasting change is followed within some dozens of samples.
func (s *Scheduler) learn(dev *device, r *request, now, took int64) {
	p := &r.t.parts[r.part]
	if took <= 0 {
		return
	}
	if r.solo {
		p.alone = average(p.alone, took)
	} else if span := dev.v - r.startedV; now > r.started {
		// What it would have taken if the model were right, by the same clock as took.
		span = mul(span, one*took/(now-r.started))
		const least, most = one / 2, 8 * one
		p.beside = min(most, max(least, average(p.beside, one*span/max(1, p.alone))))
	}
	r.t.stale = true
}

// average is an exponentially weighted moving average with outliers clipped.
func average(old, sample int64) int64 {
	sample = min(sample, 2*old)
	return max(1, old+(sample-old)/8)
}

// Estimate is what has been learnt of a part: its time alone, and the factor on it beside others, over what sharing
// costs by the model.
func (s *Scheduler) Estimate(id TenantID, part int) (alone time.Duration, beside float64) {
	p := &s.tenants[id].parts[part]
	return time.Duration(p.alone), float64(p.beside) / one
}
