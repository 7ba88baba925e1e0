package device

import (
	"maps"
	"slices"
	"time"
)

type contextImage struct {
	Handle, ID   uint64
	Dev, Refs    int
	Primary      bool
	Active       bool
	Flags        uint32
	Limits       numbers[uint64]
	Cache, Shmem uint64
	Sticky       int32
	LegacyID     uint64
}

type threadImage struct {
	TID         int32
	Stack       []uint64
	CaptureMode int
}

type streamImage struct {
	Handle, Cx, ID uint64
	Flags          uint32
	Priority       int32
	Thread         int32 // of a per-thread default stream, which has no handle
}

type eventImage struct {
	Handle, Cx uint64
	Flags      uint32
	Recorded   bool
	When       time.Time
}

func (m *imager) contexts() {
	p, img := m.p, m.img
	for _, x := range all[*deviceContext](p) {
		cx := x.v
		img.Contexts = append(img.Contexts, contextImage{x.handle, cx.id, cx.dev, cx.refs, cx.primary, cx.active,
			cx.flags, cx.limits, cx.cache, cx.shmem, int32(cx.sticky), cx.legacy.id})
	}
	for _, cx := range p.primaries {
		var h uint64
		if cx != nil {
			h = cx.handle
		}
		img.Primaries = append(img.Primaries, h)
	}
	for _, tid := range slices.Sorted(maps.Keys(p.threads)) {
		t := p.threads[tid]
		ti := threadImage{TID: tid, CaptureMode: t.captureMode}
		for _, cx := range t.stack {
			ti.Stack = append(ti.Stack, cx.handle)
		}
		img.Threads = append(img.Threads, ti)
	}
	for pair := range p.peers {
		img.Peers = append(img.Peers, pair)
	}
}

func (m *imager) work() {
	p, img := m.p, m.img
	for _, x := range all[*stream](p) {
		s := x.v
		img.Streams = append(img.Streams, streamImage{x.handle, s.cx.handle, s.id, s.flags, s.priority, 0})
	}
	for _, tid := range slices.Sorted(maps.Keys(p.threads)) {
		for cx, s := range p.threads[tid].perThread {
			img.Streams = append(img.Streams, streamImage{0, cx.handle, s.id, s.flags, s.priority, tid})
		}
	}
	for _, x := range all[*event](p) {
		e := x.v
		ei := eventImage{Handle: x.handle, Cx: e.cx.handle, Flags: e.flags}
		if e.rec != nil {
			ei.Recorded, ei.When = true, e.rec.when
		}
		img.Events = append(img.Events, ei)
	}
}

func (m *restorer) context(h uint64) (*deviceContext, error) {
	cx, ok := get[*deviceContext](m.p, h)
	if !ok {
		return nil, bad("context %#x", h)
	}
	return cx, nil
}

func (m *restorer) contexts() error {
	p := m.p
	for _, ci := range m.img.Contexts {
		if err := m.device(ci.Dev); err != nil {
			return err
		}
		cx := &deviceContext{handle: ci.Handle, id: ci.ID, dev: ci.Dev, primary: ci.Primary, refs: ci.Refs,
			flags: ci.Flags, active: ci.Active, limits: ci.Limits,
			cache: ci.Cache, shmem: ci.Shmem, sticky: Status(ci.Sticky)}
		if cx.limits == nil {
			cx.limits = make(map[uint64]uint64)
		}
		cx.legacy = p.newStream(cx, 0, 0)
		cx.legacy.legacy, cx.legacy.id = true, ci.LegacyID
		if err := m.put(ci.Handle, cx); err != nil {
			return err
		}
		p.contexts = append(p.contexts, cx)
	}
	for dev, h := range m.img.Primaries {
		if err := m.device(dev); err != nil {
			return err
		}
		if h != 0 {
			cx, err := m.context(h)
			if err != nil {
				return err
			}
			p.primaries[dev] = cx
		}
	}
	for _, pair := range m.img.Peers {
		p.peers[pair] = true
	}
	return nil
}

// thread is the state that a thread gets back when it connects again.
func (m *restorer) thread(tid int32) *thread {
	t := m.p.threads[tid]
	if t == nil {
		t = &thread{tid: tid, p: m.p, perThread: make(map[*deviceContext]*stream)}
		m.p.threads[tid] = t
	}
	return t
}

func (m *restorer) threads() error {
	for _, ti := range m.img.Threads {
		t := m.thread(ti.TID)
		t.captureMode = ti.CaptureMode
		for _, h := range ti.Stack {
			cx, err := m.context(h)
			if err != nil {
				return err
			}
			t.stack = append(t.stack, cx)
		}
	}
	return nil
}

func (m *restorer) work() error {
	p := m.p
	for _, si := range m.img.Streams {
		cx, err := m.context(si.Cx)
		if err != nil {
			return err
		}
		s := p.newStream(cx, si.Flags, si.Priority)
		s.id, s.handle = si.ID, si.Handle
		if si.Handle != 0 {
			if err := m.put(si.Handle, s); err != nil {
				return err
			}
			continue
		}
		s.thread = si.Thread
		m.thread(si.Thread).perThread[cx] = s
	}
	for _, ei := range m.img.Events {
		cx, err := m.context(ei.Cx)
		if err != nil {
			return err
		}
		e := &event{handle: ei.Handle, cx: cx, flags: ei.Flags}
		if ei.Recorded {
			done := make(chan struct{})
			close(done)
			e.rec = &record{task: &task{done: done, cx: cx}, when: ei.When}
		}
		if err := m.put(ei.Handle, e); err != nil {
			return err
		}
	}
	return nil
}
