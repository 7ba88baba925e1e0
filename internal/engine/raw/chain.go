package raw

import "holdfast/internal/qmd"

// A link is how the launches of a word begin. A run is words of which only the first is pushed: the GPU goes through it
// by itself. That a launch starts the next one takes 0.55 us on an H200, to wait until the engine is idle 1.15 us. A
// kernel could start the next one too early by PREEXIT (griddepcontrol.launch_dependents), so descriptors of launches
// that do start others say that this does nothing.
type link uint8

const (
	pushed  link = iota // by command words, when all before is complete
	started             // by the launch of the word before, which is alone, when it is complete
	// By the launches of the word before, each of which counts it down. It must have been scheduled before the first of
	// these ends: scheduling sets the counter. So all of a run are, before its first word is launched.
	counted
)

const (
	mostStarted = 2 // launches that one starts: a descriptor has room for so many
	mostCounted = 4 // launches that count a word down
	// How many launches wait, scheduled ahead, at once. libcuda's graphs keep to few, too; how many there is room for is
	// not known, and the channel would stand still.
	mostAhead = 8
)

// link decides how words begin.
func (p *program) link(of [][]*block) {
	p.links = make([]link, len(of))
	ahead := 0
	for w := 1; w < len(of); w++ {
		from, to := len(of[w-1]), len(of[w])
		switch several := p.b.gen.descriptor.Has(qmd.SelfCopy); {
		case from == 0 || to == 0 || p.moved[w-1] || p.moved[w]:
		case from == 1 && (to == 1 || to <= mostStarted && several):
			p.links[w] = started
		case several && from > 1 && from <= mostCounted && to <= mostStarted && ahead+to <= mostAhead:
			p.links[w] = counted
			p.counts = true
			ahead += to
		}
		if p.links[w] == pushed {
			ahead = 0
		}
	}
}

// last says that word w ends its run.
func (p *program) last(w int) bool { return w+1 == len(p.links) || p.links[w+1] == pushed }

// counting says that launches are counted down in the run that word w is in the end of.
func (p *program) counting(w int) bool {
	for ; p.links[w] != pushed; w-- {
		if p.links[w] == counted {
			return true
		}
	}
	return false
}

// follow says what launch i of word w does when it is complete, and what is fetched for the next one meanwhile. The last
// launches of a run with counters say that they are complete: whether the engine looks idle in the moment in which a
// counter reaches zero is not known.
func (p *program) follow(q *qmd.Launch, of [][]*block, w, i int) {
	host := p.b.ch.host.addr
	if p.last(w) {
		if p.counting(w) {
			q.Releases = []qmd.Release{{Addr: host + lastAt(i), Payload: 1}}
		}
		return
	}
	action := uint8(qmd.ActionSchedule)
	if p.links[w+1] == counted {
		action = qmd.ActionDecrement
	}
	q.Whole = true
	for _, next := range of[w+1] {
		q.Dependents = append(q.Dependents, qmd.Dependent{Addr: p.data.addr + next.descriptor, Action: action})
	}
	n := of[w+1][0].describe(p.b, p.data.addr)
	q.Next = &qmd.Next{Program: n.Program, Code: n.Code, Bank: n.Bank[0]}
	q.Releases = []qmd.Release{{Addr: host + progressAt, Payload: uint32(w + 1)}}
}

// ahead schedules what is counted down in the run that begins with word w.
func (p *program) ahead(out *pushbuffer, of [][]*block, w int) {
	host, any := p.b.ch.host.addr, false
	for w++; w < len(of) && p.links[w] != pushed; w++ {
		if p.links[w] != counted {
			continue
		}
		if !any {
			any = true
			for i := range mostStarted {
				out.word(host+lastAt(i), 0)
			}
		}
		for _, bl := range of[w] {
			out.schedule(p.data.addr + bl.descriptor)
		}
	}
}
