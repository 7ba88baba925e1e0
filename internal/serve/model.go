package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/recording"
)

// An Entry runs an entry of a recording; a replay.Entry is one.
type Entry interface {
	SetInput(name string, b []byte) error
	Run(timeout time.Duration) error
	Output(name string) ([]byte, error)
}

// A State is what the models of one recording share: its memory, and the GPU that it is on. It takes one request at a
// time.
type State struct {
	Reset bool // put memory back before each request

	mu    sync.Mutex
	reset func() error
	dead  error // why none of them can run any more
	used  bool
}

// NewState is memory that reset puts back.
func NewState(reset func() error) *State { return &State{reset: reset} }

// An Answerer runs a model.
type Answerer interface {
	// Answer runs it once on inputs, which are complete. within is how long the answer may take; 0: nobody has said.
	Answer(ctx context.Context, in map[string][]byte, want []string, within time.Duration) (map[string][]byte, Took,
		error)
	// Ready says why it cannot run, nil if it can. It does not wait for a request.
	Ready() error
}

// Took is how long the parts of a request took.
type Took struct{ Queue, Input, Run, Output time.Duration }

// A Model is an entry of a recording that is ready to run.
type Model struct {
	Name  string
	Entry *recording.Entry

	answerer Answerer
	recorded map[string][]byte // inputs as they were recorded
}

// NewModel serves an entry of a file by a.
func NewModel(name string, f *recording.File, e *recording.Entry, a Answerer) (*Model, error) {
	m := &Model{Name: name, Entry: e, answerer: a, recorded: map[string][]byte{}}
	for _, in := range e.Inputs {
		if in.Recorded == nil {
			continue
		}
		b, err := f.Read(*in.Recorded)
		if err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", name, in.Name, err)
		}
		m.recorded[in.Name] = b
	}
	return m, nil
}

// complete adds the inputs that a request has not given. Inputs without a type may be constants that the program copied
// within its range: they have the bytes of the recording then, never those of the request before.
func (m *Model) complete(in map[string][]byte) error {
	for _, port := range m.Entry.Inputs {
		if _, ok := in[port.Name]; ok {
			continue
		}
		b, ok := m.recorded[port.Name]
		if !ok || !port.Untyped() {
			return bad("input %s is missing", port.Name)
		}
		in[port.Name] = b
	}
	return nil
}

// A BadRequest is a fault of who asks.
type BadRequest struct{ text string }

func (e *BadRequest) Error() string { return e.text }

func bad(format string, args ...any) error { return &BadRequest{fmt.Sprintf(format, args...)} }

// ErrDead is wrapped by the errors of a model that cannot run any more.
var ErrDead = errors.New("the model is not ready")

// A Refused request was not taken in: whoever asks may ask again.
type Refused struct{ Why string }

func (e *Refused) Error() string { return e.Why }

// Alone runs an entry in s, for at most timeout at a time. A deadline makes nothing faster here.
func Alone(e Entry, s *State, timeout time.Duration) Answerer { return &alone{e, s, timeout} }

type alone struct {
	e       Entry
	state   *State
	timeout time.Duration
}

// Answer waits for its turn.
func (a *alone) Answer(_ context.Context, in map[string][]byte, want []string, _ time.Duration) (out map[string][]byte,
	t Took, err error) {
	came := time.Now()
	s := a.state
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Queue = time.Since(came)
	if s.dead != nil {
		return nil, t, fmt.Errorf("%w: %w", ErrDead, s.dead)
	}
	begun := time.Now()
	if err := a.give(in); err != nil {
		s.dead = err
		return nil, t, err
	}
	t.Input = time.Since(begun)
	begun = time.Now()
	if err := a.e.Run(a.timeout); err != nil {
		s.dead = err
		return nil, t, err
	}
	t.Run = time.Since(begun)
	begun = time.Now()
	out = map[string][]byte{}
	for _, name := range want {
		if out[name], err = a.e.Output(name); err != nil {
			return nil, t, err
		}
	}
	t.Output = time.Since(begun)
	return out, t, nil
}

// give puts memory back, if that is wanted, and all inputs in their place.
func (a *alone) give(in map[string][]byte) error {
	s := a.state
	if s.Reset && s.used {
		if err := s.reset(); err != nil {
			return err
		}
	}
	s.used = true
	for name, b := range in {
		if err := a.e.SetInput(name, b); err != nil {
			return err
		}
	}
	return nil
}

// Ready is the end of the memory, if that has come.
func (a *alone) Ready() error {
	if !a.state.mu.TryLock() {
		return nil // it is running
	}
	defer a.state.mu.Unlock()
	return a.state.dead
}
