package recorder

import "slices"

// An order works out which pieces of work of a range must be complete before another begins. It is never too weak:
// what the host has waited for, what it could have read, and what the legacy stream and new memory may rest on,
// orders everything.
type order struct {
	tips    map[int]bool     // works that no other comes after
	last    map[stream]int   // the last work of each stream
	extra   map[stream][]int // what the next one of a stream waits for beside that
	events  map[uint64][]int // what an event stands for
	barrier []int            // what all new work comes after
	since   int              // works from this number on come after the barrier
	works   int
}

// A stream is a handle; that of the per-thread default stream is one for each thread.
type stream struct {
	handle uint64
	thread uint32
}

// Handles of default streams (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
const (
	legacyStream    = 1
	perThreadStream = 2
)

func newOrder() *order {
	return &order{tips: map[int]bool{}, last: map[stream]int{}, extra: map[stream][]int{}, events: map[uint64][]int{}}
}

func streamOf(handle uint64, thread uint32) stream {
	if handle == perThreadStream {
		return stream{handle, thread}
	}
	return stream{handle: handle}
}

// upTo is what a piece of work on s would come after.
func (o *order) upTo(s stream) []int {
	if s.handle <= legacyStream {
		return o.all()
	}
	after := slices.Clone(o.barrier)
	if last, ok := o.last[s]; ok && last >= o.since { // which comes after the barrier itself
		after = []int{last}
	}
	return distinct(append(after, o.extra[s]...))
}

func (o *order) all() []int {
	var after []int
	for w := range o.tips {
		after = append(after, w)
	}
	return distinct(after)
}

func distinct(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// add is a new piece of work on s: its number, and what it comes after.
func (o *order) add(s stream) (int, []int) {
	w, after := o.works, o.upTo(s)
	o.works++
	for _, a := range after {
		delete(o.tips, a)
	}
	o.tips[w] = true
	o.last[s] = w
	delete(o.extra, s)
	if s.handle <= legacyStream {
		o.everything()
	}
	return w, after
}

// everything says that all new work comes after all that there is.
func (o *order) everything() {
	o.barrier, o.since = o.all(), o.works
	clear(o.extra)
}

// recorded says that an event stands for what s has got. On the legacy stream that is an action like any other, which
// all streams wait for (CUDA programming guide, default stream); so is a wait.
func (o *order) recorded(event uint64, s stream) {
	o.events[event] = o.upTo(s)
	if s.handle <= legacyStream {
		o.everything()
	}
}

// waits says that s waits for an event. One that is not known may stand for anything.
func (o *order) waits(s stream, event uint64) {
	at, ok := o.events[event]
	if !ok {
		at = o.all()
	}
	if s.handle <= legacyStream {
		o.everything()
		return
	}
	o.extra[s] = distinct(append(o.extra[s], at...))
}
