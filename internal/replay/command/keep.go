package command

import (
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
)

// Keeping is what a user wants done against failures.
type Keeping struct {
	Retries   int // how often a run that fails is done again
	CopyEvery int // with Retries: runs from one copy of what they carry on to the next; 0 is 1
	// Carried says what memory runs both change and depend on, if that is known. nil: it is not.
	Carried   func(f *recording.File) (list []recording.Span, known bool, err error)
	SaveState string // file that state goes to, after the last run
	SaveEvery int    // and after every so many; 0: not
	LoadState string // file of the state that the first run begins with
}

// Saved is what --save-state has written.
type Saved struct {
	Files int     `json:"files"` // one after the other
	Bytes int64   `json:"bytes"` // of the last
	Took  float64 `json:"seconds"`
}

// An actor is what runs: a player, or a recoverer of one.
type actor struct {
	player
	entries []entry // as they stand in the job
}

type player interface {
	Reset() error
	SaveState(path string, runs uint64) (int64, error)
	LoadState(s *replay.State) error
	Close() error
}

type entry interface {
	SetInput(name string, b []byte) error
	Run(timeout time.Duration) error
	Output(name string) ([]byte, error)
}

// open checks what was asked for and opens the state that is to be loaded; nil if there is none.
func (o *Options) open(f *recording.File) (*replay.State, error) {
	switch {
	case o.Retries < 0 || o.CopyEvery < 0 || o.SaveEvery < 0:
		return nil, usage("--retries, --copy-every and --save-every count from 0")
	case o.CopyEvery > 0 && o.Retries == 0:
		return nil, usage("--copy-every is for --retries")
	case o.SaveEvery > 0 && o.SaveState == "":
		return nil, usage("--save-every: where to? Say --save-state FILE")
	case o.LoadState == "":
		return nil, nil
	case o.Reset:
		return nil, usage("--load-state begins where other runs have ended, --reset puts memory back")
	}
	s, err := replay.OpenState(o.LoadState)
	if err == nil && s.Recording != f.Digest {
		err = errors.Join(fmt.Errorf("%s: %w: it is another recording's", o.LoadState, replay.ErrState), s.Close())
	}
	return s, err
}

// actor is what runs the recording. closing closes the backend that it has at the end.
func (j *job) actor(p *replay.Player, b engine.Backend, way Way) (a *actor, closing func() error, err error) {
	closing = func() error { return b.Close() }
	if j.Retries == 0 {
		a = &actor{player: p}
		for _, e := range p.Entries {
			a.entries = append(a.entries, e)
		}
		return a, closing, nil
	}
	how := replay.Recovery{Retries: j.Retries, Every: j.CopyEvery, Reopen: func() (engine.Backend, error) {
		if err := b.Close(); err != nil {
			return nil, err
		}
		again, _, err := way()
		if err != nil {
			b = closed{b}
			return nil, err
		}
		b = again
		return b, nil
	}}
	if j.Carried != nil {
		if how.Carried, how.Known, err = j.Carried(j.file); err != nil {
			return nil, closing, errors.Join(err, p.Close())
		}
	}
	r, err := replay.NewRecoverer(p, how)
	if err != nil {
		return nil, closing, errors.Join(err, p.Close())
	}
	a = &actor{player: r}
	for _, e := range r.Entries {
		a.entries = append(a.entries, e)
	}
	return a, closing, nil
}

// A closed backend needs no closing.
type closed struct{ engine.Backend }

func (closed) Close() error { return nil }

// save writes the state after so many runs, if it is time.
func (o *Options) save(p player, runs int, report *Report) error {
	if o.SaveState == "" || runs < o.Runs && (o.SaveEvery == 0 || runs%o.SaveEvery != 0) {
		return nil
	}
	if report.Saved == nil {
		report.Saved = &Saved{}
	}
	begun := time.Now()
	n, err := p.SaveState(o.SaveState, uint64(runs))
	report.Saved.Files++
	report.Saved.Bytes = n
	report.Saved.Took += time.Since(begun).Seconds()
	return err
}

// printKept says what was done for and after failures.
func (r *Report) printKept(w io.Writer, program string) (err error) {
	if r.Before > 0 {
		_, err = fmt.Fprintf(w, "%s: %d of the runs were done before\n", program, r.Before)
	}
	if d := r.Recovery; err == nil && d != nil && d.Retries > 0 {
		_, err = fmt.Fprintf(w, "%s: %d retries, %d runs done again, %d bytes put back in %v; the last failure: %s\n",
			program, d.Retries, d.Rerun, d.Uploaded, d.Time.Round(time.Microsecond), d.Failures[len(d.Failures)-1])
	}
	return err
}
