package panel

import (
	"cmp"
	"slices"
	"time"

	"holdfast/internal/pack"
	"holdfast/internal/pack/machine"
)

// docs/howto-pack.md describes these fields. Times are in seconds, since the machine was made.
type state struct {
	Now         float64  `json:"now_seconds"`
	GPUs        int      `json:"gpus"`
	Parts       uint64   `json:"parts"`
	UnderWay    int      `json:"parts_under_way"`
	Outstanding int      `json:"outstanding"`
	Busy        float64  `json:"busy_seconds"`
	Filled      float64  `json:"filled_seconds"`
	Capacity    float64  `json:"capacity"`
	Tenants     []tenant `json:"tenants"`
}

type tenant struct {
	Name        string            `json:"name"`
	Arrived     uint64            `json:"arrived"`
	Admitted    uint64            `json:"admitted"`
	Refused     map[string]uint64 `json:"refused"`
	Met         uint64            `json:"met"`
	Missed      uint64            `json:"missed"`
	Complete    uint64            `json:"complete"`
	Failed      uint64            `json:"failed"`
	Repeated    uint64            `json:"parts_repeated"`
	Stragglers  uint64            `json:"stragglers"`
	Waiting     int               `json:"waiting"`
	Outstanding int               `json:"outstanding"`
	Limit       *float64          `json:"limit_gpus"`
	Latency     latency           `json:"latency_seconds"`
	Slack       slack             `json:"slack_seconds"`
	Parts       []part            `json:"parts"`
	Faulty      string            `json:"faulty"`
}

type part struct {
	Alone float64 `json:"alone_seconds"`
	Width float64 `json:"width"`
}

// A latency's quantiles are upper bounds; nil if nothing was counted, or if none is known.
type latency struct {
	Count uint64   `json:"count"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
	UpTo  float64  `json:"up_to"` // longer ones are only known to be longer
}

// A slack's quantiles are lower bounds; nil if nothing was counted.
type slack struct {
	Count uint64   `json:"count"`
	P1    *float64 `json:"p1"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
}

func describe(s *machine.State) state {
	out := state{Now: s.Now.Seconds(), GPUs: s.Devices, Parts: s.Stats.Parts, UnderWay: s.UnderWay,
		Outstanding: s.Outstanding, Busy: s.Busy.Seconds(), Filled: s.Filled.Seconds(), Capacity: s.Capacity,
		Tenants: []tenant{}}
	for _, t := range byName(s.Tenants) {
		out.Tenants = append(out.Tenants, describeTenant(&t))
	}
	return out
}

// byName brings tenants into an order that does not change from one look to the next.
func byName(list []machine.TenantState) []machine.TenantState {
	return slices.SortedFunc(slices.Values(list), func(a, b machine.TenantState) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

func describeTenant(t *machine.TenantState) tenant {
	out := tenant{Name: t.Name, Arrived: t.Arrived, Admitted: t.Admitted, Refused: map[string]uint64{}, Met: t.Met,
		Missed: t.Missed, Complete: t.Complete, Failed: t.Failed, Repeated: t.Repeated, Stragglers: t.Stragglers,
		Waiting: t.Waiting, Outstanding: t.Outstanding, Parts: []part{}, Faulty: faulty(t),
		Latency: latency{Count: count(&t.Latency), P50: atMost(&t.Latency, 0.5), P99: atMost(&t.Latency, 0.99),
			UpTo: t.Latency.End(pack.Buckets - 2).Seconds()},
		Slack: slack{Count: count(&t.Slack), P1: atLeast(&t.Slack, 0.01), P50: atLeast(&t.Slack, 0.5),
			P99: atLeast(&t.Slack, 0.99)}}
	if t.Limit > 0 {
		out.Limit = &t.Limit
	}
	for r := range refusals {
		out.Refused[r.String()] = t.Refused[r]
	}
	for _, p := range t.Parts {
		out.Parts = append(out.Parts, part{p.Alone.Seconds(), p.Width})
	}
	return out
}

// refusals goes through the reasons for which a tenant's request may be refused.
func refusals(yield func(pack.Refusal) bool) {
	for r := pack.Draining; r < pack.Refusals; r++ {
		if !yield(r) {
			return
		}
	}
}

func faulty(t *machine.TenantState) string {
	if t.Faulty == nil {
		return ""
	}
	return t.Faulty.Error()
}

func count(h *pack.Histogram) (n uint64) {
	for _, c := range h {
		n += c
	}
	return n
}

// bucket is the one in which a quantile lies; -1 if nothing was counted.
func bucket(h *pack.Histogram, q float64) int {
	all, sum := count(h), uint64(0)
	for i, n := range h {
		if sum += n; n > 0 && float64(sum) >= q*float64(all) {
			return i
		}
	}
	return -1
}

// atMost is what a share q of those counted did not exceed, in seconds; nil if nothing was counted, or if the quantile
// lies in the last bucket, which has no end.
func atMost(h *pack.Histogram, q float64) *float64 {
	i := bucket(h, q)
	if i < 0 || i == pack.Buckets-1 {
		return nil
	}
	return seconds(h.End(i))
}

// atLeast is what all but a share q of those counted reached, in seconds; nil if nothing was counted.
func atLeast(h *pack.Histogram, q float64) *float64 {
	switch i := bucket(h, q); i {
	case -1:
		return nil
	case 0:
		return new(float64)
	default:
		return seconds(h.End(i - 1))
	}
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
