package measure

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
	"holdfast/internal/softgpu"
)

// check executes launch i, then its mutants, and compares each with its verdict.
func (w *worker) check(i int, m *module, s *footprint.Summary) error {
	l, ok := corpus.Scaled(&w.a.Launches[i], w.o.Threads)
	if !ok {
		w.skip("one cluster is too large")
		return nil
	}
	f, err := w.execute(l)
	if err != nil || f == nil {
		return err
	}
	w.count(w.r.Total, func(r *Row) {
		if l.Grid == w.a.Launches[i].Grid {
			r.Executed++
		} else {
			r.Smaller++
		}
		if len(f.Stray) > 0 {
			r.Stray++
		}
	})
	fl, err := m.foresee(w.a, l, s, w.allocs)
	if err != nil {
		return err
	}
	w.evaluate(s, fl, w.contents[i])
	w.compare(f, m, w.a, l, Mistake{Launch: i})
	d := m.digests[l.Kernel]
	limit := 1<<16 + 16*f.Stats.ThreadInstructions
	for _, x := range w.pick(corpus.Mutants(w.a, l, f), i) {
		if !w.first(x.Key(x.Launch(), string(d[:]))) {
			continue
		}
		if err := w.mutant(x, i, m, s, limit); err != nil {
			return fmt.Errorf("%s: %w", x.How, err)
		}
	}
	return nil
}

// execute runs a launch. Without a finding it could not be executed, and that is counted.
func (w *worker) execute(l *corpus.Launch) (*corpus.Finding, error) {
	f, err := w.m.Judge(w.a, l, corpus.JudgeOptions{Prefixes: w.o.Prefixes, Seed: w.o.Seed,
		MaxInstructions: w.o.Instructions, Cancel: w.ctx.Done()})
	if err == nil {
		return f, nil
	}
	fault, ok := errors.AsType[*softgpu.Fault](err)
	switch {
	case errors.Is(err, corpus.ErrUnsupported):
		w.skip("not supported")
	case !ok || fault.Kind == softgpu.FaultInternal || fault.Kind == softgpu.FaultCancelled:
		return nil, err
	case fault.Kind == softgpu.FaultLimit:
		w.skip("takes too long")
	default:
		w.skip(fault.Kind.String())
	}
	return nil, nil
}

func (w *worker) skip(why string) {
	w.count(w.r.Total, func(r *Row) { r.NotExecuted[why]++ })
}

// pick takes as many mutants as are wanted.
func (w *worker) pick(list []*corpus.Mutant, i int) []*corpus.Mutant {
	if len(list) <= w.o.Mutants {
		return list
	}
	r := rand.New(rand.NewPCG(w.o.Seed, uint64(i)))
	r.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	return list[:w.o.Mutants]
}

// mutant executes a mutant of launch i within so many thread instructions.
func (w *worker) mutant(x *corpus.Mutant, i int, m *module, s *footprint.Summary, limit uint64) error {
	fl, err := m.foresee(x.Application, x.Launch(), s, allocations(x.Application))
	if err != nil {
		return err
	}
	w.mu.Lock()
	known := w.tables.known(x.Application)
	w.mu.Unlock()
	w.evaluate(s, fl, known)
	o := corpus.JudgeOptions{Seed: w.o.Seed, MaxInstructions: limit, Cancel: w.ctx.Done()}
	if w.in.Verdict == footprint.Idempotent || w.with.Verdict == footprint.Idempotent {
		o.Prefixes = w.o.MutantPrefixes
	}
	f, err := w.m.Judge(x.Application, x.Launch(), o)
	// One that does not end, faults or leaves its buffers is no launch that a program makes.
	if fault, ok := errors.AsType[*softgpu.Fault](err); ok && fault.Kind != softgpu.FaultInternal &&
		fault.Kind != softgpu.FaultCancelled {
		return nil
	}
	if err != nil || len(f.Stray) > 0 {
		return err
	}
	w.compare(f, m, x.Application, x.Launch(), Mistake{Launch: i, Mutant: x.How})
	return nil
}

// compare counts what the verdicts in w.in and w.with on launch l of a are worth. Reads of constants need not be
// foreseen: they are no device memory of the program's. x says where the launch comes from.
func (w *worker) compare(f *corpus.Finding, m *module, a *corpus.Application, l *corpus.Launch, x Mistake) {
	excluded := ""
	if f.Truth == corpus.Idempotent {
		excluded = m.m.Excluded(l)
	}
	x.Application, x.Kernel, x.Truth, x.Why = w.a.Name, l.Kernel, f.Truth.String(), f.Why
	constants := m.constants(a)
	plain, with := wrong(&w.in, f, excluded, constants), wrong(&w.with, f, excluded, constants)
	w.count(w.r.Total, func(r *Row) {
		t := &r.Truth
		if x.Mutant != "" {
			t = &r.Mutants
		}
		if excluded != "" {
			t.Excluded++
			r.Excluded[excluded]++
		} else {
			t.add(f.Truth)
		}
		t.Reexecutions += f.Prefixes
		t.FalsePositives += one(plain.positive || with.positive)
		t.FalseNegatives += one(plain.negative)
		t.FalseNegativesKnown += one(with.negative)
		t.Refuted += one(plain.refuted || with.refuted)
		t.Missed += one(plain.missed != "" || with.missed != "")
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mistakes(plain, &w.in, x, &w.r.FalseNegatives)
	x.Known = true
	w.mistakes(with, &w.with, x, &w.r.FalseNegativesKnown)
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// A fault is what is wrong with an instance.
type fault struct {
	positive, negative, refuted bool
	missed                      string
}

func wrong(in *footprint.Instance, f *corpus.Finding, excluded string, constants []corpus.Range) fault {
	return fault{
		positive: in.Verdict == footprint.Idempotent && f.Truth != corpus.Idempotent,
		negative: in.Verdict != footprint.Idempotent && f.Truth == corpus.Idempotent && excluded == "",
		refuted:  in.Verdict == footprint.NotIdempotent && f.Truth == corpus.Idempotent,
		missed:   unforeseen(in, f, constants),
	}
}

// mistakes lists what is wrong with an instance. Measurement.mu is held.
func (w *worker) mistakes(y fault, in *footprint.Instance, x Mistake, negatives *[]*Mistake) {
	x.Verdict, x.Cause, x.Reason = in.Verdict.String(), in.Cause.Key(), in.Reason()
	if y.positive {
		w.r.FalsePositives = append(w.r.FalsePositives, &x)
	}
	if y.refuted {
		w.r.Refuted = append(w.r.Refuted, &x)
	}
	if y.negative && x.Mutant == "" {
		key := fmt.Sprint(x.Known) + "\n" + x.Application + "\n" + x.Kernel + "\n" + x.Reason
		if w.shown[key] == nil {
			w.shown[key] = &x
			*negatives = append(*negatives, &x)
		}
		w.shown[key].Instances++
	}
	if y.missed != "" {
		z := x
		z.Why = y.missed
		w.r.Missed = append(w.r.Missed, &z)
	}
}

func (c *Checked) add(t corpus.Truth) {
	switch t {
	case corpus.Idempotent:
		c.Idempotent++
	case corpus.NotIdempotent:
		c.NotIdempotent++
	default:
		c.Undecided++
	}
}

// unforeseen names an access that in does not have; "" = there is none.
func unforeseen(in *footprint.Instance, f *corpus.Finding, constants []corpus.Range) string {
	if x := uncovered(in.Writes, f.Writes, nil); !in.WritesUnknown && x != nil {
		return fmt.Sprintf("writes %#x to %#x", x.Lo, x.Hi)
	}
	if x := uncovered(in.Reads, f.Reads, constants); !in.ReadsUnknown && x != nil {
		return fmt.Sprintf("reads %#x to %#x", x.Lo, x.Hi)
	}
	return ""
}

// uncovered is a part of got that is neither foreseen nor in except; nil = there is none.
func uncovered(foreseen []footprint.Range, got, except []corpus.Range) *corpus.Range {
	var list []corpus.Range
	for _, r := range foreseen {
		list = append(list, corpus.Range(r))
	}
	for _, r := range got {
		for _, x := range r.Without(list) {
			if rest := x.Without(except); len(rest) > 0 {
				return &rest[0]
			}
		}
	}
	return nil
}
