package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/pack"
)

// A Config is what a Machine is made for. Zero values have the defaults named.
type Config struct {
	Pack pack.Config // Devices is len(GPUs)
	// GPUs are what address spaces of tenants are made beside. They stay the caller's to close, after the Machine.
	GPUs []engine.Sharer
	// Longest is what a part may take, where words are short enough. Default 200 µs.
	Longest time.Duration
	// Patience is how long a part may take before all work is stopped for its sake. Default 10 s.
	Patience time.Duration
	// Log gets failures. Default: none.
	Log *slog.Logger
}

// A Machine serves tenants. Its methods may be called by several goroutines.
type Machine struct {
	config Config
	sched  *pack.Scheduler
	begun  time.Time

	arrivals chan *request
	copied   chan *request // whose inputs or outputs were
	calls    chan func()   // run by the loop, between other things
	ended    chan struct{}
	end      sync.Once
	stopped  chan struct{}

	memory sync.RWMutex // of copies: while it is read- or write-locked they stay
	closed bool         // under memory

	// Of what is done on GPUs outside of the loop: making them anew must not come between.
	loading sync.Mutex

	// The rest is the loop's.
	tenants map[string]*tenant
	live    map[pack.RequestID]*request
	running []*request
	starts  []pack.Start
	parts   [][]engine.Start // by device
	begins  [][]*request
	slow    []pack.RequestID
	looked  time.Duration
	dead    error
	log     events
}

// A request is one that was admitted, or waits to be looked at.
type request struct {
	Request
	t        *tenant
	id       pack.RequestID
	place    *place
	part     int
	arrived  time.Duration
	first    time.Duration // its first part was started
	began    time.Duration // the part under way was
	took     time.Duration // the last part
	finished bool          // it was done while the machine recovered: what is left of it takes no time
	answer   Answer
	err      error
	under    bool      // a part is under way for the scheduler
	copying  bool      // inputs or outputs are being copied
	copies   chan bool // asks for inputs to be copied in, or (false) outputs out
	bad      error     // what copying has said
	done     chan struct{}
}

// A Request is one run of a tenant's recording.
type Request struct {
	Tenant string
	In     map[string][]byte
	Want   []string      // outputs
	Within time.Duration // its deadline, from when it is taken in; 0: the tenant's SLO
}

// An Answer is what came out.
type Answer struct {
	Out     map[string][]byte
	Queue   time.Duration // before its first part began
	Run     time.Duration // from then on
	Outcome pack.Outcome
}

// A Refused request was not taken in.
type Refused struct{ Reason pack.Refusal }

func (e *Refused) Error() string { return e.Reason.String() }

// ErrFaulty is wrapped by the errors of requests to a tenant that has failed.
var ErrFaulty = errors.New("the model has failed and takes no more requests")

// ErrLost is wrapped by the errors of requests that were cut short by a failure and cannot be done again.
var ErrLost = errors.New("cut short by a failure; the model goes on from the recording's memory")

// ErrClosed is the error of what is asked of a closed machine.
var ErrClosed = errors.New("the machine is closed")

// New makes a Machine and starts it.
func New(c Config) (*Machine, error) {
	if len(c.GPUs) == 0 {
		return nil, errors.New("machine: no GPU")
	}
	if c.Longest <= 0 {
		c.Longest = 200 * time.Microsecond
	}
	if c.Patience <= 0 {
		c.Patience = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Pack.Devices = len(c.GPUs)
	sched, err := pack.New(c.Pack)
	if err != nil {
		return nil, err
	}
	const waiting = 1 << 12
	m := &Machine{config: c, sched: sched, begun: time.Now(), arrivals: make(chan *request, waiting),
		copied: make(chan *request, waiting),
		calls:  make(chan func()), ended: make(chan struct{}), stopped: make(chan struct{}),
		tenants: map[string]*tenant{}, live: map[pack.RequestID]*request{},
		parts: make([][]engine.Start, len(c.GPUs)), begins: make([][]*request, len(c.GPUs))}
	go m.loop()
	return m, nil
}

func (m *Machine) now() time.Duration { return time.Since(m.begun) }

// do has the loop run f, and waits for it.
func (m *Machine) do(f func()) error {
	done := make(chan struct{})
	select {
	case m.calls <- func() { f(); close(done) }:
		<-done
		return nil
	case <-m.stopped:
		return ErrClosed
	}
}

// Infer does a request. A context that ends does not stop what was begun, but its answer is not waited for.
func (m *Machine) Infer(ctx context.Context, q Request) (Answer, error) {
	r := &request{Request: q, copies: make(chan bool, 1), done: make(chan struct{})}
	select {
	case m.arrivals <- r:
	case <-m.stopped:
		return Answer{}, ErrClosed
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	if !m.attend(r, ctx.Done()) {
		go m.attend(r, nil) // it may be under way
		return Answer{}, ctx.Err()
	}
	select {
	case <-r.done:
		return r.answer, r.err
	default:
		return Answer{}, ErrClosed
	}
}

// Ready says why a tenant takes no requests, nil if it does.
func (m *Machine) Ready(name string) (why error) {
	err := m.do(func() {
		switch t := m.tenants[name]; {
		case m.dead != nil:
			why = m.dead
		case t == nil:
			why = &Refused{pack.NoTenant}
		default:
			why = t.faulty
		}
	})
	return errors.Join(err, why)
}

// attend copies a request's inputs and outputs when it is asked to, until the request has ended. It is done by whoever
// has made the request: the loop has no time for it. It is false if away ends first.
func (m *Machine) attend(r *request, away <-chan struct{}) bool {
	for {
		select {
		case in := <-r.copies:
			if !m.copy(r, in) {
				return true
			}
			select {
			case m.copied <- r:
			case <-m.stopped:
			}
		case <-r.done:
			return true
		case <-m.stopped:
			return true
		case <-away:
			return false
		}
	}
}

// copy copies a request's inputs, or its outputs. It is false when the machine is closed.
func (m *Machine) copy(r *request, in bool) bool {
	m.memory.RLock()
	defer m.memory.RUnlock()
	switch {
	case m.closed:
		return false
	case in:
		r.bad = r.giveInputs()
	default:
		r.bad = r.collect()
	}
	return true
}

func (r *request) giveInputs() error {
	if r.t.reset {
		if err := r.place.copy.Reset(); err != nil {
			return err
		}
	}
	return r.setInputs()
}

func (r *request) setInputs() error {
	for name, b := range r.In {
		if err := r.place.copy.SetInput(name, b); err != nil {
			return err
		}
	}
	return nil
}

// loop is the machine at work. While parts are under way it does not sleep: what it waits for are words in memory.
func (m *Machine) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(m.stopped)
	for {
		if !m.takeIn() {
			m.runOut()
			return
		}
		m.poll()
		m.issue()
		m.look()
		runtime.Gosched() // others may have to run on this processor
	}
}

// linger is how long the machine looks for new requests before it sleeps: to be woken takes longer than a short part.
const linger = 500 * time.Microsecond

// atOnce is how many requests are taken in before it is looked again what is complete.
const atOnce = 64

// takeIn takes what has come; when nothing is under way it waits. It says whether the machine goes on.
func (m *Machine) takeIn() bool {
	select {
	case <-m.ended:
		return false
	default:
	}
	for idle, n := m.now(), 0; ; n++ {
		if n >= atOnce && len(m.running) > 0 {
			return true
		}
		select {
		case r := <-m.arrivals:
			m.arrive(r)
			continue
		case r := <-m.copied:
			m.goOn(r)
			continue
		case f := <-m.calls:
			f()
			continue
		default:
		}
		if m.issue(); len(m.running) > 0 {
			return true
		}
		if m.now()-idle < linger {
			select {
			case <-m.ended:
				return false
			default:
				runtime.Gosched()
			}
			continue
		}
		select {
		case r := <-m.arrivals:
			m.arrive(r)
		case r := <-m.copied:
			m.goOn(r)
		case f := <-m.calls:
			f()
		case <-m.ended:
			return false
		}
		idle = m.now()
	}
}

// runOut waits until the GPU is done with what was started: memory must not be taken away from under it.
func (m *Machine) runOut() {
	for limit := m.now() + m.config.Patience; len(m.running) > 0 && m.now() < limit && m.dead == nil; {
		m.poll()
		m.look()
		runtime.Gosched()
	}
}

// arrive asks the scheduler to take a request.
func (m *Machine) arrive(r *request) {
	r.arrived = m.now()
	t := m.tenants[r.Tenant]
	switch {
	case m.dead != nil:
		r.end(m.dead)
		return
	case t == nil:
		r.end(&Refused{pack.NoTenant})
		return
	case t.faulty != nil:
		r.end(fmt.Errorf("%w: %w", ErrFaulty, t.faulty))
		return
	}
	deadline := time.Duration(0)
	if r.Within > 0 {
		deadline = r.arrived + r.Within
	}
	id, refusal := m.sched.Arrive(r.arrived, t.id, deadline)
	if refusal != pack.Admitted {
		r.end(&Refused{refusal})
		return
	}
	r.t, r.id = t, id
	m.live[id] = r
}

// end hands an answer, or what went wrong, to who waits.
func (r *request) end(err error) {
	r.err = err
	close(r.done)
}

// issue starts what the scheduler wants started.
func (m *Machine) issue() {
	for m.dead == nil {
		m.starts = m.sched.Issue(m.now(), m.starts[:0])
		again := false
		for _, s := range m.starts {
			again = !m.prepare(s) || again
		}
		if !again {
			break
		}
	}
	for d, list := range m.parts {
		if len(list) > 0 {
			m.begin(d)
		}
	}
}

// prepare has a part ready for its start. It is false if there is nothing to start.
func (m *Machine) prepare(s pack.Start) bool {
	r := m.live[s.Request]
	r.under = true
	if r.finished {
		m.complete(r, 0)
		return false
	}
	r.place, r.part = r.t.places[s.Device][s.Instance], int(s.Part)
	if s.Part > 0 {
		m.ready(r)
		return true
	}
	if r.t.faulty != nil {
		m.drop(r, fmt.Errorf("%w: %w", ErrFaulty, r.t.faulty))
		return false
	}
	r.place.at = r
	r.copy(true)
	return true
}

// copy asks for inputs to be copied in, or outputs out.
func (r *request) copy(in bool) {
	r.copying = true
	r.copies <- in
}

// ready adds a part to those that are started next.
func (m *Machine) ready(r *request) {
	d := r.place.device
	m.parts[d] = append(m.parts[d], engine.Start{Parts: r.place.copy.Parts(), Part: r.part})
	m.begins[d] = append(m.begins[d], r)
}

// goOn takes up a request whose inputs are there, or whose outputs have been taken.
func (m *Machine) goOn(r *request) {
	r.copying = false
	switch {
	case m.live[r.id] != r: // the machine has died meanwhile
	case r.bad != nil:
		m.drop(r, r.bad)
	case r.first == 0:
		m.ready(r)
	default:
		m.complete(r, r.took)
	}
}

// begin starts parts of a device.
func (m *Machine) begin(d int) {
	m.config.GPUs[d].Start(m.parts[d])
	now := m.now()
	for _, r := range m.begins[d] {
		if r.began = now; r.part == 0 {
			r.first = now
		}
		m.running = append(m.running, r)
	}
	m.parts[d], m.begins[d] = m.parts[d][:0], m.begins[d][:0]
}

// poll looks which parts are complete.
func (m *Machine) poll() {
	for i := 0; i < len(m.running); {
		r := m.running[i]
		if !r.place.copy.Parts().Done() {
			i++
			continue
		}
		last := len(m.running) - 1
		m.running[i], m.running[last] = m.running[last], nil
		m.running = m.running[:last]
		now := m.now()
		m.log.add(event{t: r.t, request: r.id, part: r.part, device: r.place.device, instance: r.place.instance,
			began: r.began, ended: now})
		if r.took = now - r.began; r.part < r.t.parts-1 {
			m.complete(r, r.took)
		} else {
			r.copy(false)
		}
	}
}

// complete tells the scheduler that a part is complete; took 0: it was not timed.
func (m *Machine) complete(r *request, took time.Duration) {
	now := m.now()
	o := m.sched.Done(now, r.id, took)
	r.under = false
	if r.part++; o == pack.Going {
		return
	}
	m.forget(r)
	if !r.finished {
		r.answer.Queue, r.answer.Run, r.answer.Outcome = r.first-r.arrived, now-r.first, o
		r.end(nil)
	}
}

// collect reads the outputs.
func (r *request) collect() error {
	r.answer.Out = make(map[string][]byte, len(r.Want))
	for _, name := range r.Want {
		b, err := r.place.copy.Output(name)
		if err != nil {
			return err
		}
		r.answer.Out[name] = bytes.Clone(b)
	}
	return nil
}

// drop ends a request whose part is under way for the scheduler.
func (m *Machine) drop(r *request, err error) {
	m.sched.Failed(m.now(), r.id, false)
	m.forget(r)
	r.end(err)
}

func (m *Machine) forget(r *request) {
	delete(m.live, r.id)
	if r.place != nil && r.place.at == r {
		r.place.at = nil
	}
}

// lookEvery is how often failures and stragglers are looked for.
const lookEvery = 100 * time.Microsecond

// look finds failures, and parts that do not end.
func (m *Machine) look() {
	now := m.now()
	if now-m.looked < lookEvery {
		return
	}
	m.looked = now
	for d, g := range m.config.GPUs {
		if err := g.Failed(); err != nil && m.dead == nil {
			m.recover(d, err)
			return
		}
	}
	for _, r := range m.running {
		if took := now - r.began; took > m.config.Patience {
			place := engine.Place{Word: -1, Op: -1}
			m.recover(r.place.device, fmt.Errorf("%s: %w", r.t.name, &engine.Timeout{Place: place, After: took}))
			return
		}
	}
	m.slow = m.sched.Overdue(now, m.slow[:0])
	for _, id := range m.slow {
		if r := m.live[id]; r != nil {
			m.config.Log.Warn("a part takes long", "model", r.t.name, "part", r.part, "for", now-r.began)
		}
	}
}

// Close stops the machine. Parts under way are waited for, requests are not: Drain tenants first. Copies of recordings
// are closed.
func (m *Machine) Close() error {
	m.end.Do(func() { close(m.ended) })
	<-m.stopped
	m.loading.Lock()
	defer m.loading.Unlock()
	m.memory.Lock()
	defer m.memory.Unlock()
	m.closed = true
	var errs []error
	for _, t := range m.tenants {
		errs = append(errs, t.close())
	}
	m.tenants = nil
	return errors.Join(errs...)
}
