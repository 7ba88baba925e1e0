package raw

import (
	"slices"

	"holdfast/internal/qmd"
)

// A begin is how the launches of a word begin. A run is words of which only the first is pushed: the GPU goes through
// it by itself. That a launch starts the next one takes 0.55 us on an H200, to wait until the engine is idle 1.15 us. A
// kernel could start the next one too early by PREEXIT (griddepcontrol.launch_dependents), so descriptors of launches
// that do start others say that this does nothing.
type begin uint8

const (
	pushed  begin = iota // by command words, when all before is complete
	started              // by the launch of the word before, which is alone, when it is complete
	// By the launches of the word before, each of which counts it down. It must have been scheduled before the first
	// of these ends: scheduling sets the counter.
	counted
	// Counted, and counted down by a command word, too, once what is counted behind it has been scheduled: so a run
	// needs not have all of it scheduled before its first word is launched. libcuda's graphs (driver 580) do the same.
	gated
)

const (
	mostStarted = 2 // launches that one starts: a descriptor has room for so many
	mostCounted = 4 // launches that count a word down
	// How many launches are scheduled ahead before a gate, it included. 300 were not too many for an H200; how many
	// there is room for is not known.
	mostAhead = 16
)

// decide says how words begin.
func (p *program) decide(of [][]*block) {
	p.begins = make([]begin, len(of))
	ahead := 0
	for w := 1; w < len(of); w++ {
		from, to := len(of[w-1]), len(of[w])
		switch several := p.b.gen.descriptor.Has(qmd.SelfCopy); {
		case from == 0 || to == 0 || p.moved[w-1] || p.moved[w] || slices.Contains(p.cuts, w):
		case from == 1 && (to == 1 || to <= mostStarted && several):
			p.begins[w] = started
		case several && from > 1 && from <= mostCounted && to <= mostStarted:
			p.begins[w] = counted
			p.counts = true
			if ahead += to; ahead > mostAhead-mostStarted {
				p.begins[w] = gated
				ahead = 0
			}
		}
		if p.begins[w] == pushed {
			ahead = 0
		}
	}
}

// last says that word w ends its run.
func (p *program) last(w int) bool { return w+1 == len(p.begins) || p.begins[w+1] == pushed }

// countedDown says that the launches of the word before w count it down.
func (p *program) countedDown(w int) bool { return w < len(p.begins) && p.begins[w] >= counted }

// counting says that launches are counted down in the run that word w is in the end of.
func (p *program) counting(w int) bool {
	for ; p.begins[w] != pushed; w-- {
		if p.countedDown(w) {
			return true
		}
	}
	return false
}

// follow says what launch i of word w does when it is complete, and what is fetched for the next one meanwhile. The
// last launches of a run with counters say that they are complete: whether the engine looks idle in the moment in which
// a counter reaches zero is not known.
func (p *program) follow(of [][]*block, w, i int) {
	q, host := of[w][i].q, p.b.ch.host.addr
	if p.last(w) {
		if p.ended != nil {
			q.Releases = []qmd.Release{{Addr: p.ended(i), Payload: 1}}
		} else if p.counting(w) {
			q.Releases = []qmd.Release{{Addr: host + lastAt(i), Payload: 1}}
		}
		return
	}
	action := uint8(qmd.ActionSchedule)
	if p.countedDown(w + 1) {
		action = qmd.ActionDecrement
	}
	q.Whole = true
	for _, next := range of[w+1] {
		q.Dependents = append(q.Dependents, qmd.Dependent{Addr: p.data.addr + next.descriptor, Action: action})
	}
	next := of[w+1][0].q
	q.Next = &qmd.Next{Program: next.Program, Code: next.Code, Bank: next.Bank[0]}
	q.Releases = []qmd.Release{{Addr: host + progressAt, Payload: uint32(w + 1)}}
}

// launch starts the run that begins with word w, and schedules what is counted down in it.
func (p *program) launch(out *pushbuffer, of [][]*block, w int) {
	if p.ended == nil && p.ends(w) {
		for i := range mostStarted {
			out.word(p.b.ch.host.addr+lastAt(i), 0)
		}
	}
	gate := p.ahead(out, of, w)
	for _, bl := range of[w] {
		out.launch(p.data.addr + bl.descriptor)
	}
	for gate >= 0 {
		open := of[gate]
		gate = p.ahead(out, of, gate)
		for _, bl := range open {
			out.countDown(p.data.addr + bl.descriptor)
		}
	}
}

// ends says that something is counted down in the run that word w is in.
func (p *program) ends(w int) bool {
	for !p.last(w) {
		w++
	}
	return p.counting(w)
}

// ahead schedules what is counted down behind word w, up to the next gate, which it returns; -1 if there is none.
func (p *program) ahead(out *pushbuffer, of [][]*block, w int) (gate int) {
	for w++; w < len(of) && p.begins[w] != pushed; w++ {
		if p.begins[w] == started {
			continue
		}
		for _, bl := range of[w] {
			out.schedule(p.data.addr + bl.descriptor)
		}
		if p.begins[w] == gated {
			return w
		}
	}
	return -1
}
