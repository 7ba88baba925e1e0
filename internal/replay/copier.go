package replay

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// A copier keeps what memory held.
type copier interface {
	// save copies memory. If it fails, what restore gives may be lost.
	save(list []piece, timeout time.Duration) error
	restore(list []piece, timeout time.Duration) error
	close() error
}

// Places in Recoverer.keeps.
const (
	device = iota
	host
)

// takeCopy takes a copy if it is time for one.
func (r *Recoverer) takeCopy(timeout time.Duration) error {
	runs := 0
	for _, s := range r.steps {
		runs += s.runs
	}
	switch {
	case r.how.Retries == 0 || !r.whole || runs < r.how.Every:
		return nil
	case len(r.list) == 0: // a run can be done again at any time
		r.given, r.steps = r.now(), nil
		return nil
	}
	begun := time.Now()
	err := r.save(timeout)
	if err != nil {
		return err
	}
	r.given, r.steps = r.now(), nil
	r.Done.Copies++
	r.Done.CopyTime += time.Since(begun)
	return nil
}

// save has the copy hold what memory holds. If that fails and the backend can be revived, memory still holds it, and it
// is copied again. If the backend is opened anew, the copy before, which is on the host and whole, and the runs since
// then bring it back.
func (r *Recoverer) save(timeout time.Duration) error {
	for try := 0; ; try++ {
		c, err := r.copierFor()
		if err == nil {
			err = c.save(r.list, timeout)
		}
		if err == nil {
			r.copy = c
			return nil
		}
		if try == r.how.Retries {
			r.lost = fmt.Errorf("copy of what runs carry on: %w", err)
			return r.lost
		}
		if b, ok := r.p.b.(engine.Reviver); ok && !r.gone {
			r.failed(err)
			gone := b.Revive()
			if gone == nil {
				continue
			}
			if r.copy != nil && r.copy == c && c == r.keeps[device] { // it is half overwritten
				r.lost = errors.Join(errors.New("the copy of what runs carry on is half overwritten"), err, gone)
				return r.lost
			}
		}
		if err := r.again(err, timeout); err != nil {
			return err
		}
	}
}

// copierFor is where the next copy goes.
func (r *Recoverer) copierFor() (copier, error) {
	if _, ok := r.p.b.(engine.Reviver); ok && r.keeps[device] == nil && r.keeps[host] == nil {
		if c, err := newDeviceCopy(r.p, r.list); err == nil {
			r.keeps[device], r.Done.Where = c, onDevice
		}
	}
	if c := r.keeps[device]; c != nil {
		return c, nil
	}
	if r.keeps[host] == nil {
		r.keeps[host], r.Done.Where = &hostCopy{b: func() engine.Backend { return r.p.b }}, onHost
	}
	return r.keeps[host], nil
}

// A hostCopy is in memory of the host: two copies take turns, so that the last one stays whole while the next is taken.
type hostCopy struct {
	b           func() engine.Backend
	last, spare [][]byte
}

func (c *hostCopy) save(list []piece, _ time.Duration) error {
	if c.spare == nil {
		for _, x := range list {
			c.spare = append(c.spare, make([]byte, x.bytes))
		}
	}
	for i, x := range list {
		if err := c.b().Read(x.addr, c.spare[i]); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	c.last, c.spare = c.spare, c.last
	return nil
}

func (c *hostCopy) restore(list []piece, _ time.Duration) error {
	for i, x := range list {
		if err := c.b().Write(x.addr, c.last[i]); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func (c *hostCopy) close() error { return nil }

// A deviceCopy is in device memory: programs copy there and back, and what was revived still has it.
type deviceCopy struct {
	b           engine.Backend
	at          uint64
	there, back engine.Program
}

// newDeviceCopy makes room at addresses that are free.
func newDeviceCopy(p *Player, list []piece) (*deviceCopy, error) {
	// Each piece has its place on a line of its own, as far from the line's start as it is from one itself: aligned as
	// well as it is there.
	const line = 512
	offsets, size := make([]uint64, len(list)), uint64(0)
	for i, x := range list {
		offsets[i] = size + x.addr%line
		size = (offsets[i] + uint64(x.bytes) + line - 1) / line * line
	}
	size = (size + engine.Granularity - 1) / engine.Granularity * engine.Granularity
	c := &deviceCopy{b: p.b}
	var err error
	for _, c.at = range free(p.f.Manifest, size) {
		if err = p.b.Map(c.at, size); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	var there, back engine.Word
	for i, x := range list {
		to, n := c.at+offsets[i], uint64(x.bytes)
		there.Ops = append(there.Ops, engine.Op{Copy: &engine.Copy{Dst: to, Src: x.addr, Width: n, Height: 1}})
		back.Ops = append(back.Ops, engine.Op{Copy: &engine.Copy{Dst: x.addr, Src: to, Width: n, Height: 1}})
	}
	c.there, err = p.b.Prepare([]engine.Word{there})
	if err == nil {
		c.back, err = p.b.Prepare([]engine.Word{back})
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// free are addresses at which there may be nothing: behind the recording's memory, further away, and before it.
func free(m *recording.Manifest, size uint64) (list []uint64) {
	const gap = 1 << 30
	all := spans(m)
	if len(all) == 0 {
		all = []recording.Span{{Addr: 1 << 44}}
	}
	first, last := all[0], all[len(all)-1]
	for room := uint64(gap); room <= 1<<44; room <<= 2 {
		list = append(list, (uint64(last.Addr)+uint64(last.Bytes)+room)/gap*gap)
		if need := size + room + gap; need < uint64(first.Addr) {
			list = append(list, (uint64(first.Addr)-need)/gap*gap)
		}
	}
	return list
}

func (c *deviceCopy) save(_ []piece, timeout time.Duration) error    { return c.there.Run(timeout) }
func (c *deviceCopy) restore(_ []piece, timeout time.Duration) error { return c.back.Run(timeout) }

func (c *deviceCopy) close() error {
	var errs []error
	for _, p := range []engine.Program{c.there, c.back} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, c.b.Unmap(c.at))...)
}
