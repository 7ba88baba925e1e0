package replay

import (
	"errors"
	"fmt"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// A Divided is a recording that runs part by part: whoever starts the parts of an entry, with engine.Sharer.Start and
// in their order, may let any time pass between two of them, in which other work has the GPU. What a part has left in
// memory is what the next one finds, so a stop between two takes nothing but not to start the next.
//
// Inputs and outputs are memory of the host, which the GPU reads and writes: to give and to take them is no work of the
// channel. A run is SetInput, all parts from the first to the last, and Output, and allocates nothing. Where the
// backend has no such memory (engine.ErrNoHost) they are copied.
//
// It is for one goroutine, that of its address space.
type Divided struct {
	Entries []*DividedEntry // those that were read, in their order; they share memory
	p       *Player
	staging *staging
}

// A DividedEntry is an entry of a Divided.
type DividedEntry struct {
	*recording.Entry
	e       *Entry
	b       engine.Sharer
	parts   engine.Parts
	inputs  map[string][]byte // memory of the host
	outputs map[string][]byte
}

// Divide puts what was read on an address space of its own, in place of Load. A part begins at each word that cuts says
// of an entry, and where else the backend has to start something. Closing the backend stays the caller's.
func (p *Player) Divide(b engine.Sharer, cuts func(e *Entry) []int) (*Divided, error) {
	d := &Divided{p: p, staging: newStaging(b, p.f.Manifest.Staging)}
	err := p.load(d.staging, func() error { return d.prepare(b, cuts) })
	if err != nil {
		return nil, errors.Join(err, d.closeParts())
	}
	return d, nil
}

func (d *Divided) prepare(b engine.Sharer, cuts func(e *Entry) []int) error {
	for _, e := range d.p.Entries {
		x := &DividedEntry{Entry: e.Entry, e: e, b: b, inputs: d.staging.ports(e.Inputs),
			outputs: d.staging.ports(e.Outputs)}
		if err := x.Cut(cuts(e)); err != nil {
			return errors.Join(err, d.closeParts())
		}
		d.Entries = append(d.Entries, x)
	}
	return nil
}

// Cut makes the parts anew. None may be under way.
func (e *DividedEntry) Cut(cuts []int) error {
	words, err := e.e.Words()
	if err != nil {
		return err
	}
	parts, err := e.b.Divide(words, cuts)
	if err != nil {
		return err
	}
	old := e.parts
	if e.parts = parts; old != nil {
		return old.Close()
	}
	return nil
}

// Parts is the work. It belongs to the backend that Divide was given.
func (e *DividedEntry) Parts() engine.Parts { return e.parts }

// SetInput gives an input its bytes. One that is given none keeps those that it has, at first those of the recording.
// No part may be under way.
func (e *DividedEntry) SetInput(name string, b []byte) error {
	if e.inputs == nil {
		return e.e.SetInput(name, b)
	}
	to, ok := e.inputs[name]
	if !ok || len(b) != len(to) {
		_, err := recording.FindInput(e.Inputs, name, len(b))
		return err
	}
	copy(to, b)
	return nil
}

// Output is what the last part has left in an output. It is the memory itself: the next run writes it.
func (e *DividedEntry) Output(name string) ([]byte, error) {
	if e.outputs == nil {
		return e.e.Output(name)
	}
	b, ok := e.outputs[name]
	if !ok {
		_, err := recording.FindPort(e.Outputs, name)
		return nil, fmt.Errorf("output: %w", err)
	}
	return b, nil
}

// Reset puts memory and variables back to what they were when the first range began, also what work that was cut short
// has left half changed. Inputs stay as they are. It is work of the channel.
func (d *Divided) Reset() error { return d.p.Reset() }

// Close lets go of what Divide has made on the backend.
func (d *Divided) Close() error { return errors.Join(d.closeParts(), d.p.Close()) }

func (d *Divided) closeParts() error {
	var errs []error
	for _, e := range d.Entries {
		errs = append(errs, e.parts.Close())
	}
	d.Entries = nil
	return errors.Join(errs...)
}

// A Single is a Divided of one entry.
type Single struct {
	*DividedEntry
	*Divided
}

// DivideOne puts an entry of a recording on an address space of its own. Parts begin only where they must, until they
// are cut.
func DivideOne(b engine.Sharer, f *recording.File, entry string) (*Single, error) {
	p, err := Read(f, entry)
	if err != nil {
		return nil, err
	}
	d, err := p.Divide(b, func(*Entry) []int { return nil })
	if err != nil {
		return nil, err
	}
	return &Single{d.Entries[0], d}, nil
}

// staging is an address space whose staging memory is memory of the host.
type staging struct {
	engine.Sharer
	at, end uint64 // whole units
	host    []byte
	maps    map[uint64][]uint64 // what Map made of each address
}

func newStaging(b engine.Sharer, s recording.Span) *staging {
	const unit = engine.Granularity
	at := uint64(s.Addr) / unit * unit
	end := at
	if s.Bytes > 0 {
		end = (uint64(s.Addr) + uint64(s.Bytes) + unit - 1) / unit * unit
	}
	return &staging{Sharer: b, at: at, end: end, maps: map[uint64][]uint64{}}
}

// pieces are what lies before staging memory, in it, and behind it.
func (s *staging) pieces(addr, size uint64) [3]engine.Range {
	a, b := min(max(s.at, addr), addr+size), min(max(s.end, addr), addr+size)
	return [3]engine.Range{{Addr: addr, Size: a - addr}, {Addr: a, Size: b - a}, {Addr: b, Size: addr + size - b}}
}

// Map maps device memory, and where staging memory is, memory of the host.
func (s *staging) Map(addr, size uint64) (err error) {
	for i, r := range s.pieces(addr, size) {
		if r.Size == 0 {
			continue
		}
		err = engine.ErrNoHost
		if i == 1 {
			s.host, err = s.MapHost(r.Addr, r.Size)
		}
		if errors.Is(err, engine.ErrNoHost) {
			err = s.Sharer.Map(r.Addr, r.Size)
		}
		if err != nil {
			return errors.Join(err, s.Unmap(addr))
		}
		s.maps[addr] = append(s.maps[addr], r.Addr)
	}
	return nil
}

// Unmap takes away what Map put at an address.
func (s *staging) Unmap(addr uint64) error {
	var errs []error
	for _, at := range s.maps[addr] {
		errs = append(errs, s.Sharer.Unmap(at))
	}
	delete(s.maps, addr)
	return errors.Join(errs...)
}

func (s *staging) ports(list []recording.Port) map[string][]byte {
	out := map[string][]byte{}
	if s.host == nil {
		return nil
	}
	for _, p := range list {
		out[p.Name] = s.host[uint64(p.Addr)-s.at:][:p.Bytes:p.Bytes]
	}
	return out
}
