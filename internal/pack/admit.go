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

// place finds a device that can keep what a request is promised: the emptier one of some.
func (s *Scheduler) place(now int64, t *tenant, due int64) (d int32, tight bool, _ Refusal) {
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
		if why = s.test(now, &s.devices[c], c, t, due, false); why == Admitted {
			return c, false, Admitted
		}
		if why == TooLate && s.test(now, &s.devices[c], c, t, due, true) == Admitted {
			return c, true, Admitted
		}
	}
	return 0, false, why
}

// test reports whether the promise (see the package) holds for a new request and, with it, for those that are less
// urgent.
func (s *Scheduler) test(now int64, dev *device, d int32, t *tenant, due int64, tight bool) Refusal {
	dev.advance(now)
	s.scan++
	block := mul(s.longest, one+s.over)
	work := t.rest[0].work
	if tight {
		work = t.rest[0].tight
	}
	var (
		before int64 // work of those passed
		mine   int64 // what was before the new one
		ahead  int64 // and of its tenant
		under  int64 // the longest part under way that is less urgent
		placed bool
	)
	for _, slot := range dev.order {
		r := &s.requests[slot]
		if !placed && due < r.due {
			placed, mine, ahead = true, before, t.passed(s.scan, t.rest[0].crit)
			before += work
		}
		left := &r.t.rest[r.part]
		crit, rw := left.crit, left.work
		if r.tight {
			rw = left.tight
		}
		if r.state == running {
			gone := min(r.estimate, dev.v-r.startedV)
			crit -= gone
			rw -= mul(gone, max(r.w, r.b))
			if placed {
				under = max(under, r.estimate-gone)
			}
		}
		own := r.t.passed(s.scan, crit)
		if placed && !r.late {
			need := s.need(r.t, r.tight, before, crit, block*s.blocks(r, left))
			if r.state == queued {
				need += mul(own, one+s.over) / int64(r.t.Instances)
			}
			if slack := r.due - now - need; slack < 0 && slack+mul(work, r.t.inverseOf(r.tight)) >= 0 {
				return Crowding
			}
		}
		before += rw
	}
	if !placed {
		mine, ahead = before, t.passed(s.scan, 0)
	}
	first := &t.rest[0]
	var wait int64
	if !tight {
		wait = block * first.wider
	}
	if t.on[d].free(t.Instances) {
		wait += mul(under, one+s.over)
	} else {
		wait += block + mul(ahead, one+s.over)/int64(t.Instances)
	}
	if now+s.need(t, tight, mine, first.crit, wait) > due {
		return TooLate
	}
	return Admitted
}

// need is the longest that a request can take from now on: P/r + X + s·C.
func (s *Scheduler) need(t *tenant, tight bool, before, crit, wait int64) int64 {
	if !tight {
		crit = mul(crit, one+s.over)
	}
	return mul(before, t.inverseOf(tight)) + wait + crit
}

// blocks is how often less urgent parts may still be in the way of a request.
func (s *Scheduler) blocks(r *request, left *rest) int64 {
	var n int64
	if !r.tight {
		n = left.wider
	}
	if r.state == queued {
		n++
	}
	return n
}

func (t *tenant) inverseOf(tight bool) int64 {
	if tight {
		return t.inverseT
	}
	return t.inverse
}

// passed adds a request to those of its tenant that an admission test has passed, and says how long those before it
// take.
func (t *tenant) passed(scan uint64, crit int64) int64 {
	if t.scanned != scan {
		t.scanned, t.ahead = scan, 0
	}
	before := t.ahead
	t.ahead += crit
	return before
}

func (in *instances) free(of int) bool {
	return in.queued == 0 && in.count() < of
}
