package panel

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"holdfast/internal/pack"
	"holdfast/internal/pack/machine"
)

// A family is metrics of one name, one for each tenant.
type family struct {
	name, kind, help string
	value            func(*machine.TenantState) float64
}

func counter(name, help string, value func(*machine.TenantState) uint64) family {
	return family{name, "counter", help, func(t *machine.TenantState) float64 { return float64(value(t)) }}
}

func gauge(name, help string, value func(*machine.TenantState) int) family {
	return family{name, "gauge", help, func(t *machine.TenantState) float64 { return float64(value(t)) }}
}

func families() []family {
	return []family{
		counter("requests_arrived_total", "Requests that came in.",
			func(t *machine.TenantState) uint64 { return t.Arrived }),
		counter("requests_admitted_total", "Requests that were taken in.",
			func(t *machine.TenantState) uint64 { return t.Admitted }),
		counter("requests_met_total", "Requests answered within their deadline.",
			func(t *machine.TenantState) uint64 { return t.Met }),
		counter("requests_missed_total", "Requests answered after their deadline.",
			func(t *machine.TenantState) uint64 { return t.Missed }),
		counter("requests_complete_total", "Requests answered that had no deadline.",
			func(t *machine.TenantState) uint64 { return t.Complete }),
		counter("requests_failed_total", "Requests that ended with an error.",
			func(t *machine.TenantState) uint64 { return t.Failed }),
		counter("parts_repeated_total", "Parts that were done again after a failure.",
			func(t *machine.TenantState) uint64 { return t.Repeated }),
		counter("stragglers_total", "Parts that took much longer than was learnt.",
			func(t *machine.TenantState) uint64 { return t.Stragglers }),
		gauge("requests_waiting", "Requests of which no part has started.",
			func(t *machine.TenantState) int { return t.Waiting }),
		gauge("requests_outstanding", "Requests that were taken in and have no answer yet.",
			func(t *machine.TenantState) int { return t.Outstanding }),
		gauge("faulty", "1 if the model has failed and takes no more requests.", func(t *machine.TenantState) int {
			if t.Faulty != nil {
				return 1
			}
			return 0
		}),
	}
}

const prefix = "holdfast_pack_"

// WriteMetrics writes what a machine is doing in Prometheus' text exposition format. The metrics of a tenant have the
// label "tenant". Histograms have no _sum, since no sum is kept.
func WriteMetrics(w io.Writer, s machine.State) error {
	b := bufio.NewWriter(w)
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"gpus", "gauge", "GPUs of the machine.", float64(s.Devices)},
		{"parts_total", "counter", "Parts that are complete.", float64(s.Stats.Parts)},
		{"parts_under_way", "gauge", "Parts under way.", float64(s.UnderWay)},
		{"busy_seconds_total", "counter", "Time with something under way, over all GPUs.", s.Busy.Seconds()},
		{"filled_seconds_total", "counter", "The same, times the share that was filled.", s.Filled.Seconds()},
		{"capacity", "gauge", "Work that a full GPU does in its time, as learnt.", s.Capacity},
	} {
		head(b, m.name, m.kind, m.help)
		sample(b, m.name, "", m.value)
	}
	tenants := byName(s.Tenants)
	for _, f := range families() {
		head(b, f.name, f.kind, f.help)
		for i := range tenants {
			sample(b, f.name, label("tenant", tenants[i].Name), f.value(&tenants[i]))
		}
	}
	head(b, "requests_refused_total", "counter", "Requests that were not taken in, by reason.")
	for i := range tenants {
		for r := range refusals {
			sample(b, "requests_refused_total", label("tenant", tenants[i].Name)+","+label("reason", r.String()),
				float64(tenants[i].Refused[r]))
		}
	}
	head(b, "latency_seconds", "histogram", "From a request's arrival to its answer.")
	for i := range tenants {
		histogram(b, "latency_seconds", label("tenant", tenants[i].Name), &tenants[i].Latency)
	}
	head(b, "slack_seconds", "histogram", "What was left until the deadline, of requests that met theirs.")
	for i := range tenants {
		histogram(b, "slack_seconds", label("tenant", tenants[i].Name), &tenants[i].Slack)
	}
	return b.Flush()
}

func head(b *bufio.Writer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s%s %s\n# TYPE %[1]s%[2]s %[4]s\n", prefix, name, help, kind)
}

func sample(b *bufio.Writer, name, labels string, value float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(b, "%s%s%s %s\n", prefix, name, labels, number(value))
}

// histogram writes buckets, which count everything below their ends.
func histogram(b *bufio.Writer, name, labels string, h *pack.Histogram) {
	sum := uint64(0)
	for i, n := range h {
		end := "+Inf"
		if i < pack.Buckets-1 {
			end = number(h.End(i).Seconds())
		}
		sum += n
		sample(b, name+"_bucket", labels+","+label("le", end), float64(sum))
	}
	sample(b, name+"_count", labels, float64(sum))
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// label is a label and its value. What is no UTF-8 is replaced.
func label(name, value string) string {
	return name + `="` + escape.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}
