package raw

import (
	"errors"
	"fmt"

	"holdfast/internal/engine"
	"holdfast/internal/rm"
)

// parts is a program whose words run part by part. Nothing in it waits until the engine is idle: that would wait for
// what all channels of the group have launched, and keep them from launching more. The last launches of a part write
// that they are complete, and the host looks.
type parts struct {
	program
	done *memory // what they write: doneSize bytes each
	list []part
	at   int // the part that was started last; -1: none
}

// A part is a run of words.
type part struct {
	from, words uint32 // of the pushbuffer
	ends        int    // launches of its last word
}

// doneSize is what a launch writes that ends a part.
const doneSize = 16

// Divide prepares words for being run part by part.
func (b *Backend) Divide(words []engine.Word, cuts []int) (engine.Parts, error) {
	if b.dead != nil {
		return nil, b.dead
	}
	p := &parts{at: -1}
	p.program = program{b: b, codes: map[*code]bool{}, cuts: cuts}
	if err := p.build(words); err != nil {
		return nil, errors.Join(fmt.Errorf("raw: divide: %w", err), p.Close())
	}
	return p, nil
}

// build lays out and writes everything.
func (p *parts) build(words []engine.Word) (err error) {
	widest := 1
	for _, w := range words {
		widest = max(widest, len(w.Ops))
	}
	if p.done, err = p.b.newMemory(pinned, 0, ownSize(uint64(widest)*doneSize)); err != nil {
		return err
	}
	p.ended = func(i int) uint64 { return p.done.addr + doneSize*uint64(i) }
	of, err := p.layOut(words)
	if err != nil {
		return err
	}
	for w := range p.moved {
		if p.moved[w] {
			return fmt.Errorf("word %d: the copy engine would do some of it, and that cannot be waited for", w)
		}
	}
	return p.fillPush(of)
}

// fillPush makes the command words of all parts.
func (p *parts) fillPush(of [][]*block) error {
	var out pushbuffer
	for w := range of {
		if p.begins[w] != pushed || len(of[w]) == 0 {
			continue
		}
		from, end := len(out.w), w
		for !p.last(end) {
			end++
		}
		out.invalidate()
		p.launch(&out, of, w)
		p.list = append(p.list, part{uint32(from), uint32(len(out.w) - from), len(of[end])})
	}
	return p.place(&out)
}

// Shapes says what the parts are.
func (p *parts) Shapes() []engine.Shape {
	out := make([]engine.Shape, 0, len(p.list))
	for i := range p.blocks {
		bl := &p.blocks[i]
		w := bl.place.Word
		if p.begins[w] == pushed && (len(out) == 0 || out[len(out)-1].Word != w) {
			out = append(out, engine.Shape{Word: w})
		}
		s := &out[len(out)-1]
		s.Words = w + 1 - s.Word
		s.Width += (bl.width(p.b) - s.Width) / float64(s.Launches+1)
		s.Launches++
	}
	return out
}

// busyWarps is how many warps keep a multiprocessor about as busy as it can be. More of them fit, and hide more, but
// what computes does not go much faster.
const busyWarps = 16

// width is the share of the GPU that a launch takes: of its room for such blocks, or of what its multiprocessors do.
func (bl *block) width(b *Backend) float64 {
	l := bl.launch
	blocks := float64(l.Grid[0]) * float64(l.Grid[1]) * float64(l.Grid[2])
	warps := float64((l.Block[0]*l.Block[1]*l.Block[2] + 31) / 32)
	room, work := float64(max(1, bl.perSM(b)*b.sms)), float64(b.sms)*busyWarps
	return min(1, max(blocks/room, blocks*warps/work))
}

// Start begins parts. The rings of their channels lie in the GPU's memory; one read of it waits for all that was
// written there.
func (b *Backend) Start(list []engine.Start) {
	var last *Backend
	for _, s := range list {
		p := s.Parts.(*parts)
		x := &p.list[s.Part]
		for e := range x.ends {
			rm.Store64(p.done.host[doneSize*e:], 0)
		}
		p.at, last = s.Part, p.b
		p.b.enter(p.push.addr+4*uint64(x.from), x.words)
	}
	if last == nil {
		return
	}
	last.settle()
	for _, s := range list {
		if o := s.Parts.(*parts).b; o.ch.rang != o.ch.put {
			o.knock()
		}
	}
}

// Done says whether the part that was started last is complete.
func (p *parts) Done() bool {
	for e := range p.list[p.at].ends {
		if rm.Load64(p.done.host[doneSize*e:]) == 0 {
			return false
		}
	}
	return true
}

// Close frees everything.
func (p *parts) Close() error {
	err := p.program.Close()
	if p.done != nil {
		err = errors.Join(err, p.b.freeMemory(p.done))
		p.done = nil
	}
	return err
}
