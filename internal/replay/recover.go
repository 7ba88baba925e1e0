package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// A Recovery says how runs that fail are done again.
type Recovery struct {
	// Retries is how often a run is tried again. What fails each time, from the same memory, is the recording's own
	// fault.
	Retries int
	// Every is how many runs there are from one copy of what they carry on to the next; 0 is 1. After a failure all
	// runs since the last copy are done again, with the inputs that they had.
	Every int
	// Known says that runs depend on nothing that they change but Carried (package verify shows it); without it that is
	// all memory but what is constant or scratch.
	Known   bool
	Carried []recording.Span
	// Reopen lets go of a backend that cannot be revived and opens another one. Without it such a failure is final.
	Reopen func() (engine.Backend, error)
}

// Recovered is what a recoverer has done, and what it cost.
type Recovered struct {
	Retries  int           `json:"retries"`           // of all runs
	Failures []string      `json:"failures"`          // the last ones
	Rerun    int           `json:"runs_again"`        // with those that were complete before the failure
	Carried  int64         `json:"carried_bytes"`     // what a copy is
	Copies   int           `json:"copies"`            // that were taken
	Where    string        `json:"copies_are"`        // "on the device", "on the host"
	CopyTime time.Duration `json:"copy_nanoseconds"`  // of all copies
	Uploaded int64         `json:"uploaded_bytes"`    // after failures, the recording's own contents not counted
	Time     time.Duration `json:"retry_nanoseconds"` // from failures to their runs being complete
}

// Places of copies.
const (
	onDevice = "on the device"
	onHost   = "on the host"
)

// A Recoverer runs a player such that a run that fails is done again, with the bits that it would have had.
//
// What a run starts from is the recording's contents, or a state that was loaded, for the first one after the load or a
// Reset; for a later one what those before it have left. So a copy is taken of what runs carry on before every run, or
// every few of them: on the device if the backend can be revived, else on the host. Inputs are kept on the host. After
// a failure the channels are made anew, or the backend is opened anew and everything is loaded; what may have changed
// since the last copy is put back, and the runs since then are done again.
//
// If code may have variables that nobody can name, no copy is taken: all runs since the load are done again.
//
// The player is the recoverer's until Close. Others may share its backend, but what they have under way is lost when it
// is revived, and all of theirs when it is opened anew. It is for one goroutine.
type Recoverer struct {
	Done    Recovered
	Entries []*RecoveredEntry // those of the player, in its order

	p     *Player
	how   Recovery
	list  []piece   // what runs carry on
	whole bool      // that is all
	copy  copier    // nil: none was taken since the load or the last Reset
	keeps [2]copier // on the device and on the host, once they are made
	from  *State    // what runs began with, in place of the recording's contents
	given []given   // inputs when the copy was taken, or at the load
	steps []step    // what was done since
	next  []given   // inputs for the next run
	gone  bool      // the backend is closed, or the recording not all on it
	lost  error
}

// A given is an input, by its address.
type given struct {
	addr uint64
	b    []byte
}

// A step is runs, after inputs were given or memory was put back.
type step struct {
	reset  bool
	inputs []given
	entry  int
	runs   int
}

// follows reports whether one more run of an entry belongs to the step.
func (s *step) follows(entry int) bool { return s.runs == 0 || s.entry == entry }

// NewRecoverer is for a player that was just loaded.
func NewRecoverer(p *Player, how Recovery) (*Recoverer, error) {
	r := &Recoverer{p: p, how: how, whole: how.Known}
	r.how.Every = max(1, how.Every)
	r.Done.Failures = []string{}
	if err := r.find(); err != nil {
		return nil, err
	}
	for i, e := range p.Entries {
		r.Entries = append(r.Entries, &RecoveredEntry{e.Entry, r, i})
	}
	for _, x := range r.list {
		r.Done.Carried += x.bytes
	}
	return r, nil
}

// find finds what runs carry on: its addresses may be others each time the recording is loaded.
func (r *Recoverer) find() (err error) {
	if !r.how.Known {
		r.list, r.whole, err = r.p.state()
		return err
	}
	r.list = nil
	for _, s := range r.how.Carried {
		r.list = append(r.list, piece{"memory " + s.Addr.String(), uint64(s.Addr), s.Bytes})
	}
	return nil
}

// LoadState puts memory to a state that was saved; the recoverer needs the state until Close. Nothing has run yet.
func (r *Recoverer) LoadState(s *State) error {
	r.from = s
	return r.p.LoadState(s)
}

// SaveState writes what later runs depend on to a file; a failure is as one of the run before.
func (r *Recoverer) SaveState(path string, runs uint64) (size int64, err error) {
	err = r.try(func() error {
		size, err = r.p.SaveState(path, runs)
		return err
	})
	return size, err
}

// A RecoveredEntry is an entry of a recoverer's player.
type RecoveredEntry struct {
	*recording.Entry
	r  *Recoverer
	at int // in Player.Entries
}

// SetInput gives an input its bytes for the next run and those after it.
func (e *RecoveredEntry) SetInput(name string, b []byte) error {
	in, err := recording.FindInput(e.Inputs, name, len(b))
	if err != nil {
		return err
	}
	e.r.next = give(e.r.next, []given{{uint64(in.Addr), bytes.Clone(b)}})
	return nil
}

// Run does what was recorded once more, with memory as the last run of any entry has left it. After an error nothing
// runs any more.
func (e *RecoveredEntry) Run(timeout time.Duration) error { return e.r.run(e.at, timeout) }

// Output reads what the last run has left in an output.
func (e *RecoveredEntry) Output(name string) (b []byte, err error) {
	if _, err := recording.FindPort(e.Outputs, name); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	err = e.r.try(func() error {
		b, err = e.r.p.Entries[e.at].Output(name)
		return err
	})
	return b, err
}

// give is inputs with others in their place.
func give(list, more []given) []given {
	list = slices.Clone(list)
	for _, g := range more {
		if i := slices.IndexFunc(list, func(o given) bool { return o.addr == g.addr }); i >= 0 {
			list[i] = g
		} else {
			list = append(list, g)
		}
	}
	return list
}

// run runs an entry.
func (r *Recoverer) run(entry int, timeout time.Duration) error {
	if r.lost != nil {
		return r.lost
	}
	if err := r.takeCopy(timeout); err != nil {
		return err
	}
	r.steps = append(r.steps, step{inputs: r.next, entry: entry, runs: 1})
	r.next = nil
	err := r.do(r.steps[len(r.steps)-1], timeout)
	if err != nil {
		err = r.again(err, timeout)
	}
	if n := len(r.steps); n > 1 && r.steps[n-1].inputs == nil && r.steps[n-2].follows(entry) {
		r.steps[n-2].entry = entry
		r.steps[n-2].runs++
		r.steps = r.steps[:n-1]
	}
	return err
}

// do does a step.
func (r *Recoverer) do(s step, timeout time.Duration) error {
	if s.reset {
		if err := r.reset(); err != nil {
			return err
		}
	}
	if err := r.write(s.inputs); err != nil {
		return err
	}
	for range s.runs {
		if err := r.p.Entries[s.entry].Run(timeout); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recoverer) write(list []given) error {
	for _, g := range list {
		if err := r.p.b.Write(g.addr, g.b); err != nil {
			return err
		}
	}
	return nil
}

// patience is for what is done again where the caller gave no limit.
const patience = time.Minute

// try does what reads memory between two runs. If that fails, the runs are done again first.
func (r *Recoverer) try(do func() error) error {
	if r.lost != nil {
		return r.lost
	}
	err := do()
	for try := 0; err != nil && try < r.how.Retries && r.lost == nil; try++ {
		if err = r.again(err, patience); err == nil {
			err = do()
		}
	}
	return err
}

// Reset puts memory and variables back to what they were when the first range began, and clears what staging memory
// holds but inputs. Inputs stay as they are.
func (r *Recoverer) Reset() error {
	if r.lost != nil {
		return r.lost
	}
	r.next = give(r.now(), r.next)
	if r.whole {
		r.copy, r.from, r.given, r.steps = nil, nil, nil, nil
	} else {
		r.steps = append(r.steps, step{reset: true})
	}
	err := r.reset()
	if err != nil {
		err = r.again(err, patience)
	}
	return err
}

// now is the inputs that were given.
func (r *Recoverer) now() []given {
	list := r.given
	for _, s := range r.steps {
		list = give(list, s.inputs)
	}
	return list
}

// reset puts everything back but what was given.
func (r *Recoverer) reset() error {
	s := r.p.f.Manifest.Staging
	if err := r.p.Reset(); err != nil {
		return err
	}
	if _, err := r.p.original(uint64(s.Addr), s.Bytes); err != nil {
		return err
	}
	return r.p.recorded()
}

// putBack does so with no more than what may have changed and is carried on.
func (r *Recoverer) putBack() error {
	list := slices.Clone(r.list)
	for _, e := range r.p.Entries {
		for _, in := range e.Inputs {
			list = append(list, piece{in.Name, uint64(in.Addr), in.Bytes})
		}
	}
	for _, x := range list {
		n, err := r.p.original(x.addr, x.bytes)
		if r.Done.Uploaded += n; err != nil {
			return err
		}
	}
	if !r.how.Known {
		if err := r.p.restoreCode(); err != nil {
			return err
		}
	}
	return r.p.recorded()
}

// original writes what memory held when the range began: staging memory nothing. It returns how many bytes that were.
func (p *Player) original(addr uint64, bytes int64) (written int64, err error) {
	list := append(slices.Clone(p.f.Manifest.Memory), recording.Region{Addr: p.f.Manifest.Staging.Addr,
		Bytes: p.f.Manifest.Staging.Bytes})
	for _, g := range list {
		at := max(addr, uint64(g.Addr))
		end := min(addr+uint64(bytes), uint64(g.Addr)+uint64(g.Bytes))
		for at < end {
			n := min(end-at, recording.ChunkSize)
			b := make([]byte, n)
			if g.Contents != nil {
				b, err = p.f.ReadAt(*g.Contents, int64(at-uint64(g.Addr)), int64(n))
			}
			if err == nil {
				err = p.b.Write(at, b)
			}
			if err != nil {
				return written, err
			}
			at, written = at+n, written+int64(n)
		}
	}
	return written, nil
}

// Close lets go of the player and the copies.
func (r *Recoverer) Close() error {
	var errs []error
	for _, c := range r.keeps {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	r.keeps, r.copy = [2]copier{}, nil
	if r.lost == nil {
		r.lost = errors.New("the recoverer is closed")
	}
	return errors.Join(append(errs, r.p.Close())...)
}

// again does everything since the last copy again, with the failed run, as often as it may.
func (r *Recoverer) again(err error, timeout time.Duration) error {
	if r.how.Retries == 0 {
		r.lost = err
		return err
	}
	begun := time.Now()
	defer func() { r.Done.Time += time.Since(begun) }()
	for range r.how.Retries {
		r.failed(err)
		cause := err
		if err = r.back(timeout); err == nil {
			err = r.rerun(timeout)
		}
		if r.lost != nil {
			r.lost = errors.Join(cause, r.lost)
			return r.lost
		}
		if err == nil {
			return nil
		}
	}
	r.lost = fmt.Errorf("after %d retries: %w", r.how.Retries, err)
	return r.lost
}

// mostFailures is how many are kept.
const mostFailures = 16

func (r *Recoverer) failed(err error) {
	r.Done.Retries++
	r.Done.Failures = append(r.Done.Failures, err.Error())
	if n := len(r.Done.Failures); n > mostFailures {
		r.Done.Failures = slices.Delete(r.Done.Failures, 0, n-mostFailures)
	}
}

func (r *Recoverer) rerun(timeout time.Duration) error {
	for _, s := range r.steps {
		r.Done.Rerun += s.runs
		if err := r.do(s, timeout); err != nil {
			return err
		}
	}
	return nil
}

// back makes work possible again and memory what it was at the last copy, or at the load.
func (r *Recoverer) back(timeout time.Duration) error {
	fresh, err := r.revive()
	if err != nil {
		return err
	}
	switch {
	case r.copy != nil:
		if err := r.upload(r.given); err != nil {
			return err
		}
		r.Done.Uploaded += r.Done.Carried
		return r.copy.restore(r.list, timeout)
	case !fresh:
		if err := r.putBack(); err != nil {
			return err
		}
	}
	if r.from != nil {
		if err := r.p.LoadState(r.from); err != nil {
			return err
		}
	}
	return r.upload(r.given)
}

func (r *Recoverer) upload(list []given) error {
	for _, g := range list {
		r.Done.Uploaded += int64(len(g.b))
	}
	return r.write(list)
}

// revive makes work possible again: with memory as it is, or fresh, as the recording says.
func (r *Recoverer) revive() (fresh bool, err error) {
	if b, ok := r.p.b.(engine.Reviver); ok && r.whole && !r.gone {
		if err = b.Revive(); err == nil {
			return false, nil
		}
	}
	if r.how.Reopen == nil {
		r.lost = errors.Join(errors.New("the backend cannot be opened anew"), err)
		return false, r.lost
	}
	if c := r.keeps[device]; c != nil {
		r.keeps[device] = nil
		if r.copy == c {
			r.lost = errors.Join(errors.New("what runs carry on was on the device, which had to be opened anew"), err)
			return false, r.lost
		}
	}
	r.gone = true
	b, err := r.how.Reopen()
	if err == nil {
		err = r.p.reload(b)
	}
	if err == nil {
		err = r.find()
	}
	r.gone = err != nil
	return true, err
}

// reload puts the recording on another backend; what it had on the one before went with that.
func (p *Player) reload(b engine.Backend) error {
	p.codes, p.mapped = nil, nil
	for _, e := range p.Entries {
		e.program = nil
	}
	if err := p.readImages(); err != nil {
		return err
	}
	times := p.Times
	err := p.Load(b)
	p.Times = times
	return err
}
