package pack

import "time"

// fair divides the capacity of devices between tenants that offer more than it.
type fair struct {
	begun    int64 // the epoch under way, in ns
	capacity int64 // work that a device does in its time, of one, as learnt
	short    bool  // tenants offer more than there is
}

// An account is what a tenant offers and what it may have.
type account struct {
	offered int64 // ns of work in the epoch under way
	rate    int64 // the same in a ns, of one, over the last epochs
	limit   int64 // what it may have in a ns, of one; 0: everything
	tokens  int64 // ns of work that it may have at once
	filled  int64 // when tokens were last added
	settled bool  // it offers no more than its share
}

const (
	epoch = int64(20 * time.Millisecond)
	burst = 2 * epoch // of its share, that a tenant may have at once

	// flooded is what a tenant that offers more than twice its share has of it: a device that is full to the last
	// refuses others whose requests come close together.
	flooded = 0.9
)

// offer counts a request that arrives.
func (f *fair) offer(s *Scheduler, now int64, t *tenant, work int64) {
	if now-f.begun >= epoch {
		f.turn(s, now)
	}
	a := &t.account
	a.offered += work
	if a.limit > 0 {
		most := max(mul(burst, a.limit), 4*work)
		a.tokens = min(most, a.tokens+mul(min(now-a.filled, burst), a.limit))
		a.filled = now
	}
}

// has reports whether a tenant may have a request's work, pay takes it.
func (f *fair) has(t *tenant, work int64) bool {
	return t.account.limit == 0 || t.account.tokens >= work
}

func (f *fair) pay(t *tenant, work int64) { t.account.tokens -= work }

// changed begins anew with what tenants may have: weights or tenants are others.
func (f *fair) changed(s *Scheduler) { f.divide(s) }

// turn ends an epoch.
func (f *fair) turn(s *Scheduler, now int64) {
	long := now - f.begun
	f.begun = now
	s.longest = 0 // it was perhaps an outlier, or of a tenant that is gone
	for _, t := range s.tenants {
		if t == nil {
			continue
		}
		a := &t.account
		rate := a.offered / long * one
		if a.offered < 1<<46 {
			rate = a.offered * one / long
		}
		a.offered = 0
		if long > 8*epoch {
			a.rate = rate // what was before is long ago
		} else {
			a.rate += (rate - a.rate) / 4
		}
		if t.stale {
			s.estimate(t)
		}
		s.longest = max(s.longest, t.longest)
	}
	f.learn(s, long)
	f.divide(s)
}

// learn takes in how much work devices do when they are full. It can be more than one, since work of narrow and of
// memory-bound parts overlaps.
func (f *fair) learn(s *Scheduler, long int64) {
	var done, busy int64
	for i := range s.devices {
		dev := &s.devices[i]
		done += dev.done
		dev.done = 0
		busy += dev.filled - dev.seen
		dev.seen = dev.filled
	}
	if all := long * int64(len(s.devices)); busy > all/10*9 {
		f.capacity += (min(2*one, done*one/all) - f.capacity) / 8
	}
}

// divide gives each tenant its max-min fair share: who offers less than the level has what it offers, the others the
// level times their weight.
func (f *fair) divide(s *Scheduler) {
	capacity := float64(f.capacity) * float64(len(s.devices))
	var offered, weights float64
	for _, t := range s.tenants {
		if t != nil {
			t.account.settled = false
			offered += float64(t.account.rate)
			weights += t.Weight
		}
	}
	f.short = offered > capacity
	level := 0.0
	for again := f.short; again; {
		again = false
		level = max(0, capacity) / weights
		for _, t := range s.tenants {
			if t != nil && !t.account.settled && float64(t.account.rate) <= level*t.Weight {
				t.account.settled, again = true, true
				capacity -= float64(t.account.rate)
				weights -= t.Weight
			}
		}
	}
	for _, t := range s.tenants {
		if t == nil {
			continue
		}
		a := &t.account
		before := a.limit
		a.limit = 0
		if f.short && !a.settled {
			part := level * t.Weight
			if float64(a.rate) < 2*part {
				part *= 1 + s.config.Surplus
			} else {
				part *= flooded
			}
			a.limit = max(1, int64(part))
			if before == 0 {
				a.tokens, a.filled = mul(burst, a.limit), f.begun
			}
		}
	}
}
