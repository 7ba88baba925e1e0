package serve

import (
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

// A Model is an entry of a recording that is ready to run.
type Model struct {
	Name    string
	Entry   *recording.Entry
	Timeout time.Duration

	state    *State
	p        Entry
	recorded map[string][]byte // inputs as they were recorded
}

// NewModel serves an entry of a file that p runs in s.
func NewModel(name string, f *recording.File, e *recording.Entry, p Entry, s *State) (*Model, error) {
	m := &Model{Name: name, Entry: e, Timeout: time.Minute, state: s, p: p, recorded: map[string][]byte{}}
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

// A BadRequest is a fault of who asks.
type BadRequest struct{ text string }

func (e *BadRequest) Error() string { return e.text }

func bad(format string, args ...any) error { return &BadRequest{fmt.Sprintf(format, args...)} }

// ErrDead is wrapped by the errors of a model that cannot run any more.
var ErrDead = errors.New("the model is not ready")

// took is how long the parts of a request took.
type took struct{ queue, input, run, output time.Duration }

// infer runs once. Inputs without a type may be constants that the program copied within its range: those that are not
// given have the bytes of the recording, never those of the request before.
func (m *Model) infer(in map[string][]byte, want []string) (out map[string][]byte, t took, err error) {
	came := time.Now()
	s := m.state
	s.mu.Lock()
	defer s.mu.Unlock()
	t.queue = time.Since(came)
	if s.dead != nil {
		return nil, t, fmt.Errorf("%w: %w", ErrDead, s.dead)
	}
	begun := time.Now()
	if err := m.give(in); err != nil {
		return nil, t, err
	}
	t.input = time.Since(begun)
	begun = time.Now()
	if err := m.p.Run(m.Timeout); err != nil {
		s.dead = err
		return nil, t, err
	}
	t.run = time.Since(begun)
	begun = time.Now()
	out = map[string][]byte{}
	for _, name := range want {
		if out[name], err = m.p.Output(name); err != nil {
			return nil, t, err
		}
	}
	t.output = time.Since(begun)
	return out, t, nil
}

// give puts memory back, if that is wanted, and all inputs in their place.
func (m *Model) give(in map[string][]byte) error {
	s := m.state
	if s.Reset && s.used {
		if err := s.reset(); err != nil {
			s.dead = err
			return err
		}
	}
	s.used = true
	for _, port := range m.Entry.Inputs {
		b, ok := in[port.Name]
		if !ok {
			if b, ok = m.recorded[port.Name]; !ok || !port.Untyped() {
				return bad("input %s is missing", port.Name)
			}
		}
		if err := m.p.SetInput(port.Name, b); err != nil {
			s.dead = err
			return err
		}
	}
	return nil
}

// ready says why a model cannot run, nil if it can. It does not wait for a request.
func (m *Model) ready() error {
	if !m.state.mu.TryLock() {
		return nil // it is running
	}
	defer m.state.mu.Unlock()
	return m.state.dead
}
