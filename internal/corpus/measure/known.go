package measure

import (
	"slices"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
)

// A tables is what is known of the memory of an application: the buffers that the program has filled with indices,
// pointers or numbers of its own. What it computes (random numbers, zeros) is not counted as known.
type tables struct {
	a    *corpus.Application
	made map[string]*footprint.Contents
}

func newTables(a *corpus.Application) *tables {
	return &tables{a, map[string]*footprint.Contents{}}
}

// given reports whether the contents of a buffer come from the program.
func given(in corpus.Init) bool {
	switch in.Kind {
	case "index", "iota", "data", "pointers":
		return true
	}
	return false
}

// known is what is known of the buffers of x, the application or a mutant of it, before anything is launched.
func (t *tables) known(x *corpus.Application) []footprint.Known {
	var out []footprint.Known
	for name, b := range x.Buffers {
		if !given(b.Init) || b.Bytes == 0 {
			continue
		}
		at := x.Address(name)
		out = append(out, footprint.Known{Range: footprint.Range{Lo: at, Hi: at + b.Bytes},
			Contents: t.contents(x, name)})
	}
	slices.SortFunc(out, func(a, b footprint.Known) int {
		if a.Lo < b.Lo {
			return -1
		}
		return 1
	})
	return out
}

func (t *tables) contents(x *corpus.Application, name string) *footprint.Contents {
	b := x.Buffers[name]
	was, same := t.a.Buffers[name]
	// Pointers lie elsewhere in a mutant, and a buffer that two became is new.
	same = same && b.Init.Kind != "pointers" && was.Bytes == b.Bytes && was.Init.Kind == b.Init.Kind || x == t.a
	if c := t.made[name]; same && c != nil {
		return c
	}
	c := footprint.NewContents(x.Contents(name), b.Bytes)
	if same {
		t.made[name] = c
	}
	return c
}

// known is what is known before each launch of the application: a buffer is until a launch may have written it, as its
// footprint says. A launch whose footprint has no bound, or one that is wider than what it may mean, writes no other
// buffers than those that it has pointers to, directly or through buffers of pointers: the oracle counts launches that
// leave them.
func (j *job) known(t *tables) ([][]footprint.Known, error) {
	var in footprint.Instance
	now := t.known(j.a)
	list := make([][]footprint.Known, len(j.a.Launches))
	for i := range j.a.Launches {
		list[i] = now
		if len(now) == 0 || j.ctx.Err() != nil {
			continue
		}
		l := &j.a.Launches[i]
		all, err := j.writes(l, now, &in)
		if err != nil {
			return nil, err
		}
		lost := func(k footprint.Known) bool {
			return (all || overlaps(in.Writes, k.Range)) && slices.ContainsFunc(j.a.Reached(l), func(name string) bool {
				return j.a.Address(name) == k.Lo
			})
		}
		if slices.ContainsFunc(now, lost) {
			now = slices.DeleteFunc(slices.Clone(now), lost)
		}
	}
	return list, nil
}

// writes finds what a launch may write, or says that it may be anything.
func (j *job) writes(l *corpus.Launch, known []footprint.Known, in *footprint.Instance) (all bool, err error) {
	if l.Module == "" {
		return true, nil
	}
	m, err := j.module(l.Module)
	if err != nil {
		return false, err
	}
	s := m.summaries[l.Kernel]
	if s == nil {
		return true, nil
	}
	fl, err := m.foresee(j.a, l, s, j.allocs)
	if err != nil {
		return false, err
	}
	fl.Known = known
	s.Evaluate(fl, in)
	return in.WritesUnknown, nil
}

func overlaps(list []footprint.Range, r footprint.Range) bool {
	return slices.ContainsFunc(list, func(x footprint.Range) bool { return x.Lo < r.Hi && r.Lo < x.Hi })
}
