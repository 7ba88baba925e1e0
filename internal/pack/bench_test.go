package pack

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLaunch measures the whole cycle of a request, Arrive, Issue and Done, for each launch of the GPU: of
// requests of 40 launches in parts of 1 and of 20, and of requests of one launch. 16 or 64 requests are outstanding.
// cpu-ns is processor time, which a busy machine changes less.
func BenchmarkLaunch(b *testing.B) {
	for _, c := range []struct{ tenants, parts, launches int }{
		{8, 1, 1}, {8, 40, 1}, {8, 2, 20}, {32, 1, 1}, {32, 40, 1}, {32, 2, 20},
	} {
		b.Run(fmt.Sprintf("tenants=%d/parts=%d/launches=%d", c.tenants, c.parts, c.launches), func(b *testing.B) {
			l := newLoop(b, c.tenants, c.parts)
			for range 10_000 {
				l.step()
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime(b)
			for range b.N {
				l.step()
			}
			used := processorTime(b) - before
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N*c.launches), "cpu-ns/launch")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.launches), "ns/launch")
			b.ReportMetric(float64(l.outstanding), "outstanding")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A loop plays a machine that has as many requests outstanding as tenants × 2, and on which parts end in the order in
// which they were started.
type loop struct {
	s           *Scheduler
	ids         []TenantID
	parts       int
	now         time.Duration
	under       []Start // a ring
	first, n    int
	starts      []Start
	next        int
	outstanding int
}

func newLoop(tb testing.TB, tenants, parts int) *loop {
	tb.Helper()
	s, err := New(Config{})
	if err != nil {
		tb.Fatal(err)
	}
	l := &loop{s: s, parts: parts, under: make([]Start, 256), starts: make([]Start, 0, 256)}
	for i := range tenants {
		t := Tenant{Name: fmt.Sprint("t", i), SLO: time.Second + time.Duration(i)*time.Millisecond, Instances: 2}
		for k := range parts {
			t.Parts = append(t.Parts, Part{Alone: 10 * time.Microsecond, Width: 0.1 + 0.1*float64((i+k)%4)})
		}
		id, err := s.Add(t)
		if err != nil {
			tb.Fatal(err)
		}
		l.ids = append(l.ids, id)
	}
	return l
}

// step ends one part, after it has begun what can be.
func (l *loop) step() {
	for l.outstanding < 2*len(l.ids) {
		if _, refusal := l.s.Arrive(l.now, l.ids[l.next%len(l.ids)], 0); refusal != Admitted {
			panic(refusal.String())
		}
		l.outstanding++
		l.next++
	}
	l.starts = l.s.Issue(l.now, l.starts[:0])
	for _, x := range l.starts {
		l.under[(l.first+l.n)%len(l.under)] = x
		l.n++
	}
	x := l.under[l.first]
	l.first = (l.first + 1) % len(l.under)
	l.n--
	l.now += 3 * time.Microsecond
	if l.s.Done(l.now, x.Request, 10*time.Microsecond) != Going {
		l.outstanding--
	}
}

// Once as many requests have been outstanding as ever will be, nothing is allocated.
func TestNoAllocation(t *testing.T) {
	for _, parts := range []int{1, 7} {
		l := newLoop(t, 8, parts)
		for range 10_000 {
			l.step()
		}
		if n := testing.AllocsPerRun(10_000, l.step); n != 0 {
			t.Errorf("parts=%d: %v allocations a part", parts, n)
		}
	}
}
