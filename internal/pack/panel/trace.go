package panel

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"holdfast/internal/pack/machine"
)

// A lane is an instance of a tenant on a device: at most one part is under way there.
type lane struct {
	device   int
	tenant   string
	instance int
}

// lanes are those of some events, in order.
func lanes(events []machine.Event) []lane {
	seen := map[lane]bool{}
	var out []lane
	for i := range events {
		if l := laneOf(&events[i]); !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.tenant, b.tenant),
			cmp.Compare(a.instance, b.instance))
	})
	return out
}

func laneOf(e *machine.Event) lane { return lane{e.Device, e.Tenant, e.Instance} }

// writeTrace writes events in Chrome's Trace Event Format, as a JSON object: a process for each device, a thread for
// each lane, and a complete event ("X") for each part, with times in µs.
func writeTrace(w io.Writer, events []machine.Event) error {
	b := bufio.NewWriterSize(w, 64<<10)
	t := tracer{w: b}
	b.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	threads := map[lane]int{}
	last := -1
	for i, l := range lanes(events) {
		if l.device != last {
			last = l.device
			t.name("process_name", l.device, 0, fmt.Sprintf("GPU %d", l.device))
		}
		threads[l] = i + 1
		t.name("thread_name", l.device, i+1, fmt.Sprintf("%s #%d", l.tenant, l.instance))
	}
	names := map[string]string{}
	for i := range events {
		e := &events[i]
		if names[e.Tenant] == "" {
			names[e.Tenant] = quote(e.Tenant)
		}
		t.next()
		// A request is a number of 64 bits, which readers of JSON would round.
		fmt.Fprintf(b, `{"ph":"X","cat":"part","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,`+
			`"args":{"request":"%d","part":%d}}`, names[e.Tenant], e.Device, threads[laneOf(e)], micros(e.Began),
			micros(e.Ended-e.Began), e.Request, e.Part)
	}
	b.WriteString("\n]}\n")
	return b.Flush()
}

// A tracer writes the elements of a list, one a line.
type tracer struct {
	w    *bufio.Writer
	some bool
}

func (t *tracer) next() {
	if t.some {
		t.w.WriteByte(',')
	}
	t.some = true
	t.w.WriteByte('\n')
}

// name writes a metadata event.
func (t *tracer) name(what string, pid, tid int, name string) {
	t.next()
	fmt.Fprintf(t.w, `{"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":%s}}`, what, pid, tid, quote(name))
}

// quote is a string in JSON. What is no UTF-8 is replaced.
func quote(s string) string {
	b, _ := json.Marshal(s) // of a string it does not fail
	return string(b)
}

// micros is a time in µs, to the nanosecond.
func micros(d time.Duration) string { return fmt.Sprintf("%d.%03d", d/1000, d%1000) }
