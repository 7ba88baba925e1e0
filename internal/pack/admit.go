package pack

// A Refusal says why a request was not taken.
type Refusal uint8

const (
	Admitted   Refusal = iota
	NoTenant           // there is no such tenant
	Draining           // the tenant takes no more
	QueueFull          // as many of its requests wait as may
	OverShare          // devices cannot do everything, and the tenant has had its share
	WindowFull         // the device has as many requests as it may
	TooLate            // it could not be sure to make its deadline
	Crowding           // it could make others miss theirs
	Refusals           // how many there are
)

var refusalTexts = [Refusals]string{"admitted", "no such tenant", "the tenant is being drained",
	"the tenant's queue is full", "the tenant has had its share", "too many requests are outstanding",
	"the deadline cannot be met", "requests admitted before would be late"}

func (r Refusal) String() string {
	if r < Refusals {
		return refusalTexts[r]
	}
	return "unknown"
}

// An offer is a place for a request.
type offer struct {
	device int32
	tight  bool
	delay  int64 // ns: how long less urgent parts can keep it from starting
}

// place finds a device that can keep what a request is promised: the emptier one of some.
func (s *Scheduler) place(now int64, t *tenant, due int64) (offer, Refusal) {
	const look, try = 8, 2
	n := uint32(len(s.devices))
	var best [try]int32
	found := 0
	for i := range min(look, n) {
		c := int32((s.next + i) % n)
		at := found
		for at > 0 && s.devices[c].backlog < s.devices[best[at-1]].backlog {
			at--
		}
		if at == try {
			continue
		}
		found = min(found+1, try)
		copy(best[at+1:found], best[at:])
		best[at] = c
	}
	s.next = (s.next + look) % n
	why := WindowFull
	for _, c := range best[:found] {
		if len(s.devices[c].order) >= s.config.Window {
			continue
		}
		var delay int64
		if delay, why = s.test(now, c, t, due, false); why == Admitted {
			return offer{c, false, delay}, Admitted
		}
		if why == TooLate {
			if delay, again := s.test(now, c, t, due, true); again == Admitted {
				return offer{c, true, delay}, Admitted
			}
		}
	}
	return offer{}, why
}

// test reports whether the promise (see the package) holds for a new request on a device and, with it, for those that
// are less urgent. delay is the new one's part of X before its start.
func (s *Scheduler) test(now int64, d int32, t *tenant, due int64, tight bool) (delay int64, _ Refusal) {
	dev := &s.devices[d]
	dev.advance(now)
	s.scan++
	first := &t.rest[0]
	block := mul(mul(s.longest, one+s.over), s.sure)
	work := first.work
	own := s.slowed(first) + block*first.wider
	if tight {
		work, own = first.tight, first.crit
	}
	var (
		before int64 // work of those passed
		mine   int64 // what was before the new one
		ahead  int64 // and of its tenant
		under  int64 // the longest part under way that is less urgent
		placed bool
	)
	for _, p := range dev.order {
		r := &s.requests[p.slot]
		if !placed && due < p.due {
			placed, mine, ahead = true, before, t.passed(s.scan, own+block)
			before += work
		}
		left := &r.t.rest[r.part]
		rw, ro := left.work, s.slowed(left)+block*left.wider
		if r.tight {
			rw, ro = left.tight, left.crit
		}
		switch {
		case r.state == running:
			gone := min(r.estimate, dev.v-r.startedV)
			ro -= gone
			rw -= mul(gone, max(r.w, r.b))
			if placed {
				under = max(under, r.estimate-gone)
			}
		case !r.begun:
			ro += r.delay
		}
		chain := r.t.passed(s.scan, ro)
		if placed && !r.late {
			need := s.wait(r.t, before, r.tight) + ro
			if r.state == queued {
				need += chain / int64(r.t.Instances)
			}
			if now+need > p.due && now+left.crit <= p.due {
				return 0, Crowding
			}
		}
		before += rw
	}
	if !placed {
		mine, ahead = before, t.passed(s.scan, 0)
	}
	need := s.wait(t, mine, tight) + own
	if t.on[d].free(t.Instances) {
		delay = mul(mul(under, one+s.over), s.sure)
	} else {
		delay = block
		need += ahead / int64(t.Instances)
	}
	if now+need+delay > due {
		return 0, TooLate
	}
	return delay, Admitted
}

// slowed is how long what is left takes at most.
func (s *Scheduler) slowed(left *rest) int64 { return left.crit + mul(left.slow-left.crit, s.sure) }

// wait is how long a request waits for so much work at most.
func (s *Scheduler) wait(t *tenant, work int64, tight bool) int64 {
	inverse := t.inverse
	if tight {
		inverse = t.inverseT
	}
	if inverse == one {
		return work
	}
	return work + mul(mul(work, inverse-one), s.sure)
}

// passed adds a request to those of its tenant that an admission test has passed, and says how long those before it
// take.
func (t *tenant) passed(scan uint64, own int64) int64 {
	if t.scanned != scan {
		t.scanned, t.ahead = scan, 0
	}
	before := t.ahead
	t.ahead += own
	return before
}
