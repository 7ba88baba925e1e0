package recorder

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// What staging memory is aligned to, and its parts.
const (
	stagingAlign = 2 << 20
	portAlign    = 512
)

// finish makes the manifest. All ranges are over.
func (s *rangeSession) finish() {
	s.phase = complete
	m := &recording.Manifest{
		Arch: s.arch(), Code: []recording.Code{}, Driver: int(s.hello.Driver), Kernels: []recording.Kernel{},
		Program:  s.args,
		Software: s.hello.GPU != 0, Variables: []recording.Variable{}, Warnings: []string{},
	}
	m.Memory = s.regions()
	s.r.mu.Lock() // the writer's
	defer s.r.mu.Unlock()
	if err := s.entries(m); err != nil {
		s.err = err
		s.r.errs = append(s.r.errs, err)
		return
	}
	m.Warnings = append(m.Warnings, s.warnings...)
	s.manifest = m
}

// regions is the memory of the recording: what was there, and what came where nothing was.
func (s *rangeSession) regions() []recording.Region {
	out := []recording.Region{}
	for i := range s.live {
		l := &s.live[i]
		b := l.w.Finish()
		out = append(out, recording.Region{Addr: recording.Addr(l.Addr), Bytes: int64(l.Bytes), Class: recording.Live,
			Contents: &b})
	}
	slices.SortFunc(s.made, func(a, b madeMemory) int { return cmp.Compare(a.Addr, b.Addr) })
	at := recording.Addr(0) // up to here made memory is dealt with
	for _, m := range s.made {
		from, to := max(m.Addr, at), m.Addr+recording.Addr(m.Bytes)
		at = max(at, to)
		for i := range s.live {
			lo, hi := recording.Addr(s.live[i].Addr), recording.Addr(s.live[i].Addr+s.live[i].Bytes)
			if hi <= from || lo >= to {
				continue
			}
			if lo > from {
				out = append(out, recording.Region{Addr: from, Bytes: int64(lo - from), Class: recording.Scratch})
			}
			from = min(max(from, hi), to)
		}
		if from < to {
			out = append(out, recording.Region{Addr: from, Bytes: int64(to - from), Class: recording.Scratch})
		}
	}
	slices.SortFunc(out, func(a, b recording.Region) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}

// entries makes an entry of each range, in their order.
func (s *rangeSession) entries(m *recording.Manifest) error {
	m.Staging.Addr = stagingAlign
	if n := len(m.Memory); n > 0 {
		last := m.Memory[n-1]
		m.Staging.Addr = (last.Addr + recording.Addr(last.Bytes) + 2*stagingAlign - 1) / stagingAlign * stagingAlign
	}
	c := &coder{s: s, m: m, modules: map[uint64]*module{}, kernels: map[uint32]int{}}
	for _, e := range s.ranges {
		if err := s.entry(m, c, e); err != nil {
			return err
		}
	}
	if m.Staging.Bytes == 0 {
		return fmt.Errorf("range %q: no copy brings anything to the device or from it: "+
			"have the range around the copies, too", s.ranges[0].Name)
	}
	m.Staging.Bytes = (m.Staging.Bytes + stagingAlign - 1) / stagingAlign * stagingAlign
	return c.variables()
}

// entry makes the entry of a range.
func (s *rangeSession) entry(m *recording.Manifest, c *coder, r *rangeEntry) error {
	e := recording.Entry{Name: r.Name, Inputs: []recording.Port{}, Outputs: []recording.Port{}}
	number := r.numbers()
	var out []byte
	var err error
	for i, w := range r.works {
		if w.dropped {
			continue
		}
		if after := r.after(number, i); len(after) > 0 {
			if out, err = trace.Append(out, &trace.After{Works: after}); err != nil {
				return fmt.Errorf("work %d comes after %d others: %w", number[i], len(after), err)
			}
		}
		var rec trace.Record
		if rec, err = s.encode(m, &e, c, w); err != nil {
			return err
		}
		if out, err = trace.Append(out, rec); err != nil {
			return err
		}
	}
	if len(out) == 0 && len(s.ranges) > 1 {
		return fmt.Errorf("range %q: nothing is done on the device", r.Name)
	}
	if err := name(e.Inputs, r.In, "in", "input"); err != nil {
		return fmt.Errorf("range %q: %w", r.Name, err)
	}
	if err := name(e.Outputs, r.Out, "out", "output"); err != nil {
		return fmt.Errorf("range %q: %w", r.Name, err)
	}
	e.Work = s.r.w.Put(out)
	m.Entries = append(m.Entries, e)
	return nil
}

// numbers gives the work that ran its numbers.
func (r *rangeEntry) numbers() []uint32 {
	out := make([]uint32, len(r.works))
	n := uint32(0)
	for i, w := range r.works {
		out[i] = n
		if !w.dropped {
			n++
		}
	}
	return out
}

// after is what work i comes after, by its numbers. What did not run is replaced by what it came after.
func (r *rangeEntry) after(number []uint32, i int) []uint32 {
	var out []uint32
	seen := map[int]bool{}
	for todo := slices.Clone(r.order.after[i]); len(todo) > 0; {
		a := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case seen[a]:
		case r.works[a].dropped:
			todo = append(todo, r.order.after[a]...)
		default:
			out = append(out, number[a])
		}
		seen[a] = true
	}
	slices.Sort(out)
	return out
}

// encode is a piece of work as it stands in the recording.
func (s *rangeSession) encode(m *recording.Manifest, e *recording.Entry, c *coder, w *rangeWork) (trace.Record, error) {
	if w.launch != nil {
		e.Launches++
		k, err := c.kernel(w.kernel)
		if err != nil {
			return nil, err
		}
		need := uint32(0)
		for _, p := range w.kernel.Params {
			need = max(need, p.Offset+p.Size)
		}
		params := w.launch.Params
		if uint32(len(params)) < need {
			return nil, fmt.Errorf("kernel %s: %d bytes of parameters, it has %d", w.kernel.Name, len(params), need)
		}
		cluster := w.launch.Cluster
		if cluster == [3]uint32{} {
			cluster = [3]uint32{1, 1, 1}
		}
		return &trace.Launch{Flags: w.launch.Flags & trace.Cooperative, Kernel: k, Shared: w.launch.Shared,
			Grid:  w.launch.Grid,
			Block: w.launch.Block, Cluster: cluster, Params: params[:need]}, nil
	}
	t := &trace.Copy{Flags: w.copy.Flags & trace.Set, Dst: w.copy.Dst, DstPitch: w.copy.DstPitch, Src: w.copy.Src,
		SrcPitch: w.copy.SrcPitch,
		Width:    w.copy.Width, Height: w.copy.Height, Depth: 1}
	switch {
	case w.input != nil:
		p := port(m, t)
		b := s.r.w.Put(w.input)
		p.Recorded = &b
		e.Inputs = append(e.Inputs, p)
		t.Src, t.SrcPitch = uint64(p.Addr), t.Width
	case w.output:
		p := port(m, t)
		e.Outputs = append(e.Outputs, p)
		t.Dst, t.DstPitch = uint64(p.Addr), t.Width
	}
	if t.Flags&trace.Set != 0 {
		e.Sets++
	} else {
		e.Copies++
	}
	return t, nil
}

// port gives an input or output its place in staging memory.
func port(m *recording.Manifest, t *trace.Copy) recording.Port {
	p := recording.Port{Addr: m.Staging.Addr + recording.Addr(m.Staging.Bytes), Bytes: int64(t.Width * t.Height)}
	m.Staging.Bytes += (p.Bytes + portAlign - 1) / portAlign * portAlign
	return p
}
