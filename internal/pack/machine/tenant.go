package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/pack"
)

// A Copy is a recording on an address space, for one request at a time.
type Copy interface {
	// Cut has parts begin at these words. At first they begin only where they must.
	Cut(cuts []int) error
	Parts() engine.Parts
	SetInput(name string, b []byte) error
	// Output is what the last run has left, until the next.
	Output(name string) ([]byte, error)
	// Reset puts memory back to what the recording says.
	Reset() error
	Close() error
}

// A Spec is a tenant to be added.
type Spec struct {
	pack.Tenant // its Parts are found out
	// Keep says that requests build on what earlier ones left in memory.
	Keep bool
	// Reset puts memory back before each request. It is work beside that of others.
	Reset bool
	// Load puts a copy of the recording on an address space.
	Load func(on engine.Sharer) (Copy, error)
}

// A tenant is a model that is served.
type tenant struct {
	name   string
	id     pack.TenantID
	keep   bool
	reset  bool
	parts  int
	places [][]*place // by device and instance
	faulty error
}

// A place is an instance: a copy on an address space.
type place struct {
	device, instance int
	space            engine.Sharer
	copy             Copy
	at               *request // that runs there
}

// Add takes a tenant in: it loads its copies, times its words and cuts them into parts, and then serves it. Others are
// served meanwhile.
func (m *Machine) Add(s Spec) (err error) {
	if s.Instances == 0 {
		s.Instances = 1
	}
	t := &tenant{name: s.Name, keep: s.Keep, reset: s.Reset}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", s.Name, err), m.unload(t))
		}
	}()
	if err := m.prepareTenant(t, &s); err != nil {
		return err
	}
	down := m.do(func() {
		if t.id, err = m.sched.Add(s.Tenant); err == nil {
			m.tenants[s.Name] = t
		}
	})
	return errors.Join(down, err)
}

// prepareTenant loads and measures.
func (m *Machine) prepareTenant(t *tenant, s *Spec) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	var cuts []int
	for d := range m.config.GPUs {
		t.places = append(t.places, nil)
		for i := range s.Instances {
			p := &place{device: d, instance: i}
			t.places[d] = append(t.places[d], p)
			err := m.load(p, s.Load)
			if err == nil && d == 0 && i == 0 {
				cuts, err = m.cut(p)
			}
			if err == nil {
				err = p.copy.Cut(cuts)
			}
			if err != nil {
				return err
			}
		}
	}
	first := t.places[0][0]
	var err error
	if s.Tenant.Parts, err = m.measure(first); err != nil {
		return err
	}
	t.parts = len(s.Tenant.Parts)
	return first.copy.Reset()
}

// load makes an address space and puts a copy there.
func (m *Machine) load(p *place, load func(engine.Sharer) (Copy, error)) error {
	var err error
	if p.space, err = m.config.GPUs[p.device].Beside(); err != nil {
		return err
	}
	p.copy, err = load(p.space)
	return err
}

// Rounds of measuring: of the words one by one, and of the parts. The least counts, since others may be at work.
const rounds = 5

// cut says where parts begin such that none takes longer than Longest if it is of more than one word.
func (m *Machine) cut(p *place) (cuts []int, err error) {
	shapes := p.copy.Parts().Shapes()
	if len(shapes) == 0 {
		return nil, errors.New("there is nothing to run")
	}
	last := shapes[len(shapes)-1]
	for w := 1; w < last.Word+last.Words; w++ {
		cuts = append(cuts, w)
	}
	if err := p.copy.Cut(cuts); err != nil {
		return nil, err
	}
	took, err := m.time(p)
	if err != nil {
		return nil, err
	}
	cuts = cuts[:0]
	sum := time.Duration(0)
	for i, s := range p.copy.Parts().Shapes() {
		if sum += took[i]; sum > m.config.Longest && sum > took[i] {
			cuts = append(cuts, s.Word)
			sum = took[i]
		}
	}
	return cuts, nil
}

// measure says what the parts of a place are.
func (m *Machine) measure(p *place) ([]pack.Part, error) {
	took, err := m.time(p)
	if err != nil {
		return nil, err
	}
	var parts []pack.Part
	for i, s := range p.copy.Parts().Shapes() {
		parts = append(parts, pack.Part{Alone: took[i], Width: s.Width})
	}
	return parts, nil
}

// warm is how long a GPU is kept busy before it is measured: its clocks rise with work.
const warm = 20 * time.Millisecond

// time runs all parts some times and returns the least that each took.
func (m *Machine) time(p *place) ([]time.Duration, error) {
	least := make([]time.Duration, len(p.copy.Parts().Shapes()))
	begun := time.Now()
	for n := 0; n < rounds || time.Since(begun) < warm; n++ {
		for i := range least {
			took, err := m.runPart(p, i)
			if err != nil {
				return nil, err
			}
			if n == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	return least, nil
}

// runPart runs a part and waits for it. p is not the scheduler's at that time.
func (m *Machine) runPart(p *place, i int) (time.Duration, error) {
	begun := time.Now()
	parts := p.copy.Parts()
	p.space.Start([]engine.Start{{Parts: parts, Part: i}})
	for n := 1; !parts.Done(); n++ {
		if n%1024 != 0 {
			continue
		}
		if err := p.space.Failed(); err != nil {
			return 0, fmt.Errorf("part %d: %w", i, err)
		}
		if took := time.Since(begun); took > m.config.Patience {
			return 0, fmt.Errorf("part %d: %w", i, &engine.Timeout{Place: engine.Place{Word: -1, Op: -1}, After: took})
		}
	}
	return time.Since(begun), nil
}

// Drain has a tenant take no more requests, waits until its last one is answered, and removes it.
func (m *Machine) Drain(name string) error {
	for first := true; ; first = false {
		var t *tenant
		var err error
		gone := false
		down := m.do(func() {
			if t = m.tenants[name]; t == nil {
				err = fmt.Errorf("no model %s", name)
				return
			}
			if first {
				err = m.sched.Drain(t.id)
			}
			if gone = m.sched.Remove(t.id) == nil; gone {
				delete(m.tenants, name)
			}
		})
		if err := errors.Join(down, err); err != nil {
			return err
		}
		if gone {
			return m.unload(t)
		}
		time.Sleep(time.Millisecond)
	}
}

// unload closes a tenant that nobody serves.
func (m *Machine) unload(t *tenant) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	return t.close()
}

// close lets go of all copies.
func (t *tenant) close() error {
	var errs []error
	for _, p := range slices.Concat(t.places...) {
		if p.copy != nil {
			errs = append(errs, p.copy.Close())
		}
		if p.space != nil {
			errs = append(errs, p.space.Close())
		}
	}
	t.places = nil
	return errors.Join(errs...)
}
