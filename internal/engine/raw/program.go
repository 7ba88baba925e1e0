package raw

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/rm"
)

// A program is words made into descriptors, constant banks and one pushbuffer.
type program struct {
	b      *Backend
	data   *memory // descriptors, constant banks, barriers of cooperative launches
	push   *memory // command words
	words  uint32
	places []engine.Place // of each word: its work if that is one piece alone
	begins []begin        // how the launches of each word begin
	counts bool           // some begin by being counted down
	moved  []bool         // which words have work of the copy engine
	blocks []block        // of all launches
	codes  map[*code]bool // that they are of
	image  []byte         // of the data
	cuts   []int          // words that must be pushed
	// Where the i-th launch of a run's last word writes that it is complete; nil: the channel waits for it.
	ended func(i int) uint64
}

// Prepare makes everything that a run needs.
func (b *Backend) Prepare(words []engine.Word) (engine.Program, error) {
	if b.dead != nil {
		return nil, b.dead
	}
	p := &program{b: b, codes: map[*code]bool{}}
	if err := p.build(words); err != nil {
		return nil, errors.Join(fmt.Errorf("raw: prepare: %w", err), p.Close())
	}
	return p, nil
}

// build lays out data and writes it, and then the pushbuffer.
func (p *program) build(words []engine.Word) error {
	of, err := p.layOut(words)
	if err != nil {
		return err
	}
	return p.fillPush(words, of)
}

// layOut lays out data and writes it; it returns the launches of each word.
func (p *program) layOut(words []engine.Word) (of [][]*block, err error) {
	of = make([][]*block, len(words))
	n := 0
	for w := range words {
		n += len(words[w].Ops)
	}
	p.blocks = make([]block, 0, n) // pointers into it stay good
	var size uint64
	var stack uint32
	for w := range words {
		place := engine.Place{Word: w, Op: -1}
		for o := range words[w].Ops {
			at, err := p.op(&words[w].Ops[o], engine.Place{Word: w, Op: o}, &size)
			if err != nil {
				return nil, err
			}
			if at == nil {
				continue
			}
			of[w] = append(of[w], at)
			stack = max(stack, at.stack())
		}
		if len(words[w].Ops) == 1 {
			place.Op = 0
			if len(of[w]) == 1 {
				place = of[w][0].place
			}
		}
		p.places = append(p.places, place)
		p.moved = append(p.moved, len(of[w]) < len(words[w].Ops))
	}
	if err := p.b.needLocal(stack); err != nil {
		return nil, err
	}
	p.decide(of)
	if size > 0 {
		if err := p.fillData(of, size); err != nil {
			return nil, err
		}
	}
	p.b.programs[p] = true
	return of, nil
}

// op checks one piece of work and gives a launch its place in the data. It is nil for the copy engine's.
func (p *program) op(op *engine.Op, place engine.Place, size *uint64) (*block, error) {
	l := op.Launch
	var err error
	switch {
	case op.Launch != nil && op.Copy == nil && op.Set == nil:
		if l.Kernel != nil {
			place.Kernel = l.Kernel.Name()
		}
	case op.Copy != nil && op.Launch == nil && op.Set == nil:
		if err = checkCopy(op.Copy); err == nil {
			l, err = p.b.asLaunch(op)
		}
	case op.Set != nil && op.Launch == nil && op.Copy == nil:
		if err = checkSet(op.Set); err == nil {
			l, err = p.b.asLaunch(op)
		}
	default:
		err = errors.New("it must be one launch, copy or set")
	}
	var bl block
	if err == nil && l != nil {
		bl, err = p.b.block(l)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", place, err)
	}
	if l == nil {
		return nil, nil
	}
	bl.place = place
	if c := bl.k.c; !p.codes[c] {
		p.codes[c] = true
		c.users++
	}
	bl.layOut(size, uint64(p.b.gen.descriptor.Size))
	p.blocks = append(p.blocks, bl)
	return &p.blocks[len(p.blocks)-1], nil
}

// fillData makes descriptors and constant banks.
func (p *program) fillData(of [][]*block, size uint64) (err error) {
	if p.data, err = p.b.newMemory(device, 0, (size+hugePage-1)&^(hugePage-1)); err != nil {
		return err
	}
	data := make([]byte, size)
	for i := range p.blocks {
		p.blocks[i].q = p.blocks[i].describe(p.b, p.data.addr)
	}
	for w, word := range of {
		for i, bl := range word {
			bl.fillBank0(p.b, p.data.addr, data[bl.bank:])
			bl.q.Invalidate = p.begins[w] != pushed
			bl.q.Counted = p.counts
			switch p.begins[w] {
			case counted:
				bl.q.Counter = uint32(len(of[w-1]))
			case gated:
				bl.q.Counter = uint32(len(of[w-1])) + 1
			}
			p.follow(of, w, i)
			d, err := p.b.gen.descriptor.Build(bl.q)
			if err != nil {
				return fmt.Errorf("%v: %w", bl.place, err)
			}
			copy(data[bl.descriptor:], d)
		}
	}
	p.image = data
	return p.restore()
}

// restore writes descriptors and constant banks, also those that work which was cut short has left half changed.
func (p *program) restore() error {
	if p.data == nil {
		return nil
	}
	if err := p.b.Write(p.data.addr, p.image); err != nil {
		return err
	}
	return p.b.newCode()
}

// fillPush makes the command words.
func (p *program) fillPush(words []engine.Word, of [][]*block) (err error) {
	var out pushbuffer
	host := p.b.ch.host.addr
	out.stamp(host+beginAt, 0)
	for w := range words {
		if p.begins[w] != pushed {
			continue // it is started by the one before
		}
		if w > 0 {
			p.await(&out, of, w-1)
		}
		out.invalidate()
		out.stamp(host+progressAt, uint64(w))
		p.moves(&out, words[w], of[w])
		p.launch(&out, of, w)
	}
	if last := len(words) - 1; last >= 0 {
		p.await(&out, of, last)
	}
	out.release(host+endAt, 1)
	return p.place(&out)
}

// await makes the channel wait for a word.
func (p *program) await(out *pushbuffer, of [][]*block, w int) {
	if p.moved[w] {
		p.b.joinMoves(out)
	}
	if p.counting(w) {
		for i := range of[w] {
			out.acquire(p.b.ch.host.addr+lastAt(i), 1)
		}
	}
	if len(of[w]) > 0 {
		out.method(subCompute, waitForIdle, 0)
	}
}

// place puts the command words where the GPU reads them.
func (p *program) place(out *pushbuffer) (err error) {
	if len(out.w) >= maxWords {
		return fmt.Errorf("%d command words, one submission takes %d", len(out.w), maxWords)
	}
	if p.push, err = p.b.newMemory(device, 0, (uint64(4*len(out.w))+hugePage-1)&^(hugePage-1)); err != nil {
		return err
	}
	if err := p.b.Write(p.push.addr, out.bytes()); err != nil {
		return err
	}
	p.words = uint32(len(out.w))
	if s := p.b.sheet; s != nil {
		s.Header.Program, s.Header.ProgramWords = p.push.addr, p.words
	}
	return nil
}

// maxWords is how many command words an entry of the ring takes (NVC86F_GP_ENTRY1_LENGTH).
const maxWords = 1 << 21

// Run runs all words.
func (p *program) Run(timeout time.Duration) error {
	b := p.b
	if b.dead != nil {
		return b.dead
	}
	if p.push == nil {
		return errors.New("raw: the program is closed")
	}
	if b.sheet != nil {
		return errors.New("raw: it is linked, there is no GPU")
	}
	end := b.ch.host.host[endAt:]
	rm.Store64(end, 0)
	b.kick(p.push.addr, p.words)
	err := b.waitFor(end, 1, time.Now().Add(timeout))
	if err == nil {
		return nil
	}
	return b.fail(p, err, timeout)
}

// Took is the time between the begin and the end of the last run, by the GPU's clock.
func (p *program) Took() time.Duration {
	s := p.b.ch.host.host
	return time.Duration(rm.Load64(s[endAt+8:]) - rm.Load64(s[beginAt+8:]))
}

// Close frees what Prepare has made.
func (p *program) Close() error {
	var errs []error
	for _, m := range []*memory{p.data, p.push} {
		if m != nil {
			errs = append(errs, p.b.freeMemory(m))
		}
	}
	for c := range p.codes {
		c.users--
	}
	delete(p.b.programs, p)
	p.data, p.push, p.codes = nil, nil, nil
	return errors.Join(errs...)
}
