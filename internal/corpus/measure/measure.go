// Package measure compares what footprints say of kernel launches with what executing them shows, and counts. Neither
// side knows of the other: package footprint never executes anything, and package corpus, the oracle, knows nothing of
// footprints.
package measure

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
)

// Options say what is measured.
type Options struct {
	Oracle         bool   // execute launches, and mutants of them, and compare
	Prefixes       int    // re-executions of a launch
	MutantPrefixes int    // re-executions of a mutant that is said to be idempotent
	Mutants        int    // of one launch, at most; picked at random if there are more
	Threads        uint64 // launches of more threads are executed with fewer blocks
	Instructions   uint64 // thread instructions that a launch may take
	Seed           uint64
	Workers        int

	// Progress is told of finished launches of an application. It may be called from any goroutine, but from one at a
	// time.
	Progress func(application string, done, total int)
}

// Defaults are the options of the figures in the documentation.
func Defaults() Options {
	return Options{Prefixes: 20, MutantPrefixes: 2, Mutants: 12, Threads: 4096, Instructions: 64 << 20,
		Seed: 1, Workers: 1}
}

// A Measurement collects what was measured. Its methods must not run at the same time.
type Measurement struct {
	o     Options
	mu    sync.Mutex
	r     *Report
	keys  map[string]bool     // of instances and mutants
	shown map[string]*Mistake // false negatives, by application, kernel and reason
	clock clock

	knowing  clock // of evaluations with contents of memory
	recorded sequence
}

// New begins a measurement.
func New(o Options) *Measurement {
	return &Measurement{o: o, r: &Report{Total: newRow("total", ""), Opaque: newRow("without PTX", ""),
		Applications: []*Row{}, FalsePositives: []*Mistake{}, FalseNegatives: []*Mistake{},
		FalseNegativesKnown: []*Mistake{}, Refuted: []*Mistake{}, Missed: []*Mistake{}}, keys: map[string]bool{},
		shown: map[string]*Mistake{}}
}

// Report is what was measured until now.
func (m *Measurement) Report() *Report {
	m.r.Total.finish()
	m.r.Opaque.finish()
	m.r.Latency, m.r.LatencyKnown = m.clock.latency(), m.knowing.latency()
	m.r.LatencyRecorded = m.recorded.latency()
	return m.r
}

// first reports whether a key is new.
func (m *Measurement) first(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys[key] {
		return false
	}
	m.keys[key] = true
	return true
}

// Application measures every launch of an application.
func (m *Measurement) Application(ctx context.Context, a *corpus.Application) error {
	j := m.newJob(ctx, a)
	j.recorded = make([]recorded, len(a.Launches))
	j.tables = newTables(a)
	if j.contents, j.err = j.known(j.tables); j.err != nil {
		return fmt.Errorf("%s: %w", a.Name, j.err)
	}
	var wg sync.WaitGroup
	for range max(m.o.Workers, 1) {
		wg.Go(j.work)
	}
	wg.Wait()
	a.Release()
	// What was going on when it was interrupted is no error of the application.
	if err := cmp.Or(ctx.Err(), j.err); err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	j.row.finish()
	m.r.Applications = append(m.r.Applications, j.row)
	m.clock.measure(a.Name, j.evaluations)
	m.knowing.measure(a.Name, j.knowing)
	m.recorded.measure(a.Name, j.recorded)
	return nil
}

// A job is the launches of one application, which workers share.
type job struct {
	*Measurement
	ctx    context.Context
	a      *corpus.Application
	allocs []footprint.Range
	lib    corpus.Library
	next   atomic.Int64

	contents [][]footprint.Known // before each launch

	// Measurement.mu guards what follows.
	row         *Row
	modules     map[string]*module
	evaluations []evaluation
	knowing     []evaluation // with contents
	recorded    []recorded   // by their numbers; those of kernels without PTX are none
	tables      *tables
	done        int
	err         error
}

func (m *Measurement) newJob(ctx context.Context, a *corpus.Application) *job {
	return &job{Measurement: m, ctx: ctx, a: a, row: newRow(a.Name, a.Family), allocs: allocations(a),
		modules: map[string]*module{}}
}

func (j *job) work() {
	m, err := j.lib.NewMachine()
	if err == nil {
		defer m.Close()
	}
	w := &worker{job: j, m: m}
	for err == nil && j.ctx.Err() == nil {
		i := int(j.next.Add(1) - 1)
		if i >= len(j.a.Launches) {
			return
		}
		if err = w.launch(i); err != nil {
			err = fmt.Errorf("launch %d of %s: %w", i, j.a.Launches[i].Kernel, err)
		}
		j.mu.Lock()
		j.done++
		if j.o.Progress != nil {
			j.o.Progress(j.a.Name, j.done, len(j.a.Launches))
		}
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = cmp.Or(j.err, err)
}

// module reads and analyses a module of the application.
func (j *job) module(name string) (*module, error) {
	m, err := j.lib.Module(j.a, name)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if x := j.modules[name]; x != nil {
		return x, nil
	}
	c, err := analyse(m.Source, m.Text)
	if err != nil {
		return nil, err
	}
	x := &module{c, m}
	j.modules[name] = x
	return x, nil
}

// count changes the row of the application and that of all.
func (j *job) count(total *Row, change func(*Row)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(j.row)
	change(total)
}

// A worker measures one launch after the other.
type worker struct {
	*job
	m  *corpus.Machine
	in footprint.Instance

	with footprint.Instance // what in is, with contents of memory known
}

// evaluate judges a launch twice: without contents of memory, and with them.
func (w *worker) evaluate(s *footprint.Summary, l *footprint.Launch, known []footprint.Known) {
	s.Evaluate(l, &w.in)
	with := *l
	with.Known = known
	s.Evaluate(&with, &w.with)
}

// launch measures launch i of the application.
func (w *worker) launch(i int) error {
	l := &w.a.Launches[i]
	if l.Module == "" {
		w.opaque(l)
		return nil
	}
	m, err := w.module(l.Module)
	if err != nil {
		return err
	}
	s := m.summaries[l.Kernel]
	if s == nil {
		return errors.New("the module has no such kernel")
	}
	fl, err := m.foresee(w.a, l, s, w.allocs)
	if err != nil {
		return err
	}
	d := m.digests[l.Kernel]
	fresh := w.first(w.a.Key(l, string(d[:])))
	s.Evaluate(fl, &w.in)
	w.count(w.r.Total, func(r *Row) { r.instance(d, s.Class, l.Count, &w.in, fresh) })
	w.recorded[i] = recorded{evaluation{s, fl, i}, l.Count}
	if !fresh {
		return nil
	}
	w.mu.Lock()
	w.evaluations = append(w.evaluations, evaluation{s, fl, i})
	if known := w.contents[i]; len(known) > 0 {
		with := *fl
		with.Known = known
		w.knowing = append(w.knowing, evaluation{s, &with, i})
	}
	w.mu.Unlock()
	if !w.o.Oracle {
		return nil
	}
	return w.check(i, m, s)
}

// opaque is launch for a kernel without PTX.
func (w *worker) opaque(l *corpus.Launch) {
	params, bytes := natural(w.a, l)
	s := footprint.Opaque(l.Kernel, params)
	s.Evaluate(&footprint.Launch{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared, Params: bytes,
		Allocs: w.allocs}, &w.in)
	fresh := w.first(w.a.Key(l, ""))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.r.Opaque.instance(sha256.Sum256([]byte(l.Kernel)), s.Class, l.Count, &w.in, fresh)
}
