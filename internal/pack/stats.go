package pack

import (
	"math/bits"
	"time"
)

// Buckets is how many there are in a Histogram.
const Buckets = 40

// A Histogram counts times: bucket i those below 1 µs × 2^(i/2), rounded down to whole steps of half an octave, that
// belong to none before.
type Histogram [Buckets]uint64

// bucketEnd is where a bucket ends, in ns.
func bucketEnd(i int) int64 {
	end := int64(1000) << (i / 2)
	if i%2 == 1 {
		end += end / 2
	}
	return end
}

// End is the time at which a bucket ends. The last one has no end: its own is where it begins to be inexact.
func (h *Histogram) End(i int) time.Duration { return time.Duration(bucketEnd(i)) }

func (h *Histogram) add(ns int64) {
	i := 0
	if ns >= 1000 {
		octave := bits.Len64(uint64(ns/1000)) - 1
		i = 2*octave + 1
		if i < Buckets && ns >= bucketEnd(i) {
			i++
		}
	}
	h[min(i, Buckets-1)]++
}

// Quantile is an upper bound of the time that a share q of those counted did not take longer than; 0 if none was.
func (h *Histogram) Quantile(q float64) time.Duration {
	var all, sum uint64
	for _, n := range h {
		all += n
	}
	for i, n := range h {
		if sum += n; sum > 0 && float64(sum) >= q*float64(all) {
			return h.End(i)
		}
	}
	return 0
}

// TenantStats is what became of a tenant's requests.
type TenantStats struct {
	Arrived, Admitted uint64
	Refused           [Refusals]uint64 // by reason
	Met, Missed       uint64           // requests with a deadline
	Complete          uint64           // requests without
	Failed            uint64           // requests that ended by Failed
	Repeated          uint64           // parts that are done again
	Stragglers        uint64           // parts
	Latency           Histogram        // from Arrive to the last Done
	Slack             Histogram        // what was left until the deadline, of those met

	// As it is now:
	Waiting, Outstanding int
	Limit                float64 // devices that it may fill; 0: as many as there are
}

func (t *TenantStats) answered(latency, left int64, deadline bool) {
	t.Latency.add(latency)
	switch {
	case !deadline:
		t.Complete++
	case left >= 0:
		t.Met++
		t.Slack.add(left)
	default:
		t.Missed++
	}
}

// Stats is what devices did.
type Stats struct {
	Devices     int           // how many there are
	Parts       uint64        // that are complete
	UnderWay    int           // parts
	Outstanding int           // requests
	Busy        time.Duration // with something under way, over all devices
	Filled      time.Duration // the same, times the share that was filled
	Capacity    float64       // work that a full device does in its time, as learnt
}

// Tenant says what became of a tenant's requests so far.
func (s *Scheduler) Tenant(id TenantID) TenantStats {
	t := s.tenant(id)
	if t == nil {
		return TenantStats{}
	}
	st := t.stats
	st.Waiting, st.Outstanding, st.Limit = t.waiting, t.outstanding, float64(t.account.limit)/one
	return st
}

// Stats says what devices did until now.
func (s *Scheduler) Stats(now time.Duration) Stats {
	st := Stats{Devices: len(s.devices), Parts: s.parts, Capacity: float64(s.fair.capacity) / one}
	for i := range s.devices {
		dev := &s.devices[i]
		dev.advance(int64(now))
		st.UnderWay += dev.running
		st.Outstanding += len(dev.order)
		st.Busy += time.Duration(dev.busy)
		st.Filled += time.Duration(dev.filled)
	}
	return st
}
