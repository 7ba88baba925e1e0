package machine

import (
	"slices"
	"sort"
	"time"

	"holdfast/internal/pack"
)

// kept is how many parts are remembered.
const kept = 1 << 16

// An event is a part that was under way.
type event struct {
	t                      *tenant
	request                pack.RequestID
	part, device, instance int
	began, ended           time.Duration
}

// events are the last parts, written round and round.
type events struct {
	list []event
	next int
}

func (e *events) add(x event) {
	if len(e.list) < kept {
		e.list = append(e.list, x)
		return
	}
	e.list[e.next] = x
	e.next = (e.next + 1) % kept
}

// An Event is a part that a GPU has done.
type Event struct {
	Tenant                 string
	Request                pack.RequestID
	Part, Device, Instance int
	Began, Ended           time.Duration // since the machine was made
}

// Events are the parts of the last while that are remembered, in the order in which they were seen complete. The
// machine stands still only while they are copied.
func (m *Machine) Events(last time.Duration) ([]Event, error) {
	var list []event
	var since time.Duration
	err := m.do(func() {
		since = m.now() - last
		list = m.log.since(since)
	})
	var out []Event
	for i := range list {
		x := &list[i]
		out = append(out, Event{x.t.name, x.request, x.part, x.device, x.instance, x.began, x.ended})
	}
	return out, err
}

// since copies what has ended from a moment on.
func (e *events) since(at time.Duration) []event {
	n := sort.Search(len(e.list), func(i int) bool { return e.list[(e.next+i)%len(e.list)].ended >= at })
	if n == len(e.list) {
		return nil
	}
	from := (e.next + n) % len(e.list)
	if from >= e.next {
		return append(slices.Clone(e.list[from:]), e.list[:e.next]...)
	}
	return slices.Clone(e.list[from:e.next])
}

// A State is what the machine is doing.
type State struct {
	pack.Stats
	Now     time.Duration // since the machine was made
	Tenants []TenantState
}

// A TenantState is one tenant's.
type TenantState struct {
	pack.TenantStats
	Name   string
	Parts  []pack.Part // as they are by what was learnt
	Faulty error       // why it takes no more requests
}

// State says what the machine is doing.
func (m *Machine) State() (s State, err error) {
	err = m.do(func() {
		s.Now = m.now()
		s.Stats = m.sched.Stats(s.Now)
		for _, t := range m.tenants {
			x := TenantState{TenantStats: m.sched.Tenant(t.id), Name: t.name, Faulty: t.faulty, Parts: t.shapes()}
			for i := range x.Parts {
				x.Parts[i].Alone, _ = m.sched.Estimate(t.id, i)
			}
			s.Tenants = append(s.Tenants, x)
		}
	})
	return s, err
}

func (t *tenant) shapes() []pack.Part {
	var out []pack.Part
	for _, s := range t.places[0][0].copy.Parts().Shapes() {
		out = append(out, pack.Part{Width: s.Width})
	}
	return out
}
