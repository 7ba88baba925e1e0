package driver

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"holdfast/internal/engine"
)

// A Shared is a Backend that others share the device with.
type Shared struct {
	*Backend
	open   func() (*Backend, error)
	failed *atomic.Pointer[error] // the first failure of any of them
}

var _ engine.Sharer = (*Shared)(nil)

// Share opens the first of several backends that share a device; open is called for each. A library that is loaded once
// has one context: those of libcuda must have their memory elsewhere.
func Share(open func() (*Backend, error)) (*Shared, error) {
	b, err := open()
	if err != nil {
		return nil, err
	}
	return &Shared{b, open, &atomic.Pointer[error]{}}, nil
}

// Beside opens the device once more: another stream and, if the library is another copy, another address space.
func (b *Shared) Beside() (engine.Sharer, error) {
	o, err := b.open()
	if err != nil {
		return nil, err
	}
	return &Shared{o, b.open, b.failed}, nil
}

// MapHost is not to be had: no memory of the host can be put at an address of one's choice.
func (b *Shared) MapHost(uint64, uint64) ([]byte, error) { return nil, engine.ErrNoHost }

// parts are graphs, one for each part.
type parts struct {
	program
	on     *Shared
	shapes []engine.Shape
}

// Divide makes a graph of the words of each part.
func (b *Shared) Divide(words []engine.Word, cuts []int) (engine.Parts, error) {
	p := &parts{program: program{b: b.Backend}, on: b}
	err := b.do(func() error {
		from := 0
		for i := range words {
			if i+1 < len(words) && !slices.Contains(cuts, i+1) {
				continue
			}
			part := words[from : i+1]
			if err := p.add(part, from, engine.Place{Word: -1, Op: -1}); err != nil {
				return err
			}
			s := engine.Shape{Word: from, Words: len(part)}
			for _, w := range part {
				s.Launches += len(w.Ops)
			}
			p.shapes = append(p.shapes, s)
			from = i + 1
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Shapes says what each part is. How much of the GPU it takes is not known.
func (p *parts) Shapes() []engine.Shape { return p.shapes }

// Start launches graphs, each on the stream of its backend. What goes wrong is a failure.
func (b *Shared) Start(list []engine.Start) {
	for _, s := range list {
		p := s.Parts.(*parts)
		err := p.b.do(func() error { return p.b.drv.GraphLaunch(p.execs[s.Part], p.b.stream) })
		if err != nil {
			p.on.lost(err)
		}
	}
}

// Done says whether the stream is idle.
func (p *parts) Done() bool {
	if p.on.failed.Load() != nil {
		return false
	}
	var done bool
	err := p.b.do(func() (err error) {
		done, err = p.b.drv.StreamQuery(p.b.stream)
		return err
	})
	if err != nil {
		p.on.lost(err)
	}
	return done && err == nil
}

// lost notes that a context is of no use any more.
func (b *Shared) lost(err error) {
	err = &engine.Fault{Place: engine.Place{Word: -1, Op: -1}, Err: err}
	b.failed.CompareAndSwap(nil, &err)
}

// Failed is the first failure of any of those that share the device.
func (b *Shared) Failed() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Revive is not to be had: a context that has failed cannot be used again.
func (b *Shared) Revive() error {
	return fmt.Errorf("a context of a driver library cannot be brought back: %w", errors.ErrUnsupported)
}
