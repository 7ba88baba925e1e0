package recorder

import "slices"

// An order works out which pieces of work of a range must be complete before another begins. It is never too weak:
// what the host has waited for, what it could have read, and what the legacy stream and new memory may rest on,
// orders everything. It is stronger than it must be where lists would become long.
type order struct {
	after   [][]int          // what each work comes after
	tips    map[int]bool     // works that no other comes after
	last    map[stream]end   // of what each stream has got
	extra   map[stream][]int // what the next one of a stream waits for beside that
	events  map[uint64][]int // what an event stands for
	barrier []int            // what all new work comes after
	since   int              // works from this number on come after the barrier
}

// Limits of what works come after.
const (
	mostTogether = 1 << 12 // works in one list: a record has room for four times as many
	mostSpent    = 1 << 14 // works in all the lists that are of the same point
	mostSearched = 1 << 14 // works that are looked at to make a list shorter
)

// A stream is a handle; that of the per-thread default stream is one for each thread.
type stream struct {
	handle uint64
	thread uint32
}

// An end is the works that a stream ended with when there were so many works.
type end struct {
	list []int
	at   int
}

// A point is reached when works are complete.
type point struct {
	list  []int // ascending
	spent int   // by works that begin there
}

// A frontier is where the next piece of work goes: it begins when all points are reached.
type frontier struct {
	points []*point
	seen   bool // the host may act upon the work that is there, without any call
}

// Handles of default streams (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
const (
	legacyStream    = 1
	perThreadStream = 2
)

func newOrder() *order {
	return &order{tips: map[int]bool{}, last: map[stream]end{}, extra: map[stream][]int{}, events: map[uint64][]int{}}
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
	after := o.barrier
	if last, ok := o.last[s]; ok && last.at > o.since { // which comes after the barrier itself
		after = last.list
	}
	return o.short(slices.Concat(after, o.extra[s]))
}

func (o *order) all() []int {
	var after []int
	for w := range o.tips {
		after = append(after, w)
	}
	return o.short(after)
}

// short makes a list one whose works being complete means that all of the list are. It changes the list.
func (o *order) short(list []int) []int {
	slices.Sort(list)
	list = slices.Compact(list)
	searched := 0
	for _, w := range list {
		searched += len(o.after[w])
	}
	if len(list) > 1 && searched <= mostSearched {
		before := map[int]bool{}
		for _, w := range list {
			for _, a := range o.after[w] {
				before[a] = true
			}
		}
		list = slices.DeleteFunc(list, func(w int) bool { return before[w] })
	}
	// What is too many comes one behind the other, in so many chains.
	for i := mostTogether; i < len(list); i++ {
		w, a := list[i], list[i-mostTogether]
		o.after[w] = append(slices.Clip(o.after[w]), a)
		delete(o.tips, a)
	}
	return list[max(0, len(list)-mostTogether):]
}

// begin is where work on s goes.
func (o *order) begin(s stream) *frontier { return &frontier{points: []*point{{list: o.upTo(s)}}} }

// add is a new piece of work at a frontier: its number. What is added there next comes after it.
func (o *order) add(at *frontier) int {
	w, after := len(o.after), o.meet(at.points).list
	o.after = append(o.after, after)
	for _, a := range after {
		delete(o.tips, a)
	}
	o.tips[w] = true
	for _, p := range at.points {
		// Where many come after many, the rest of them comes after one that comes after all.
		if p.spent += len(p.list); len(p.list) > 1 && p.spent > mostSpent {
			p.list = []int{w}
		}
	}
	at.points = []*point{{list: []int{w}}}
	return w
}

// meet is the point at which all of points are reached.
func (o *order) meet(points []*point) *point {
	if len(points) == 1 {
		return points[0]
	}
	var list []int
	for _, p := range points {
		list = append(list, p.list...)
	}
	return &point{list: o.short(list)}
}

// end says that s has got what was added at its frontier, the works from that number on.
func (o *order) end(s stream, at *frontier, from int) {
	if len(o.after) > from {
		o.last[s] = end{o.meet(at.points).list, len(o.after)}
		delete(o.extra, s)
	}
	if at.seen || len(o.after) > from && s.handle <= legacyStream {
		o.everything()
	}
}

// everything says that all new work comes after all that there is.
func (o *order) everything() {
	o.barrier, o.since = o.all(), len(o.after)
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
	o.extra[s] = o.short(slices.Concat(o.extra[s], at))
}
