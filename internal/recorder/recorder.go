// Package recorder records launch traces: programs whose shim finds HOLDFAST_TRACE in its environment connect to it,
// and what their taps say goes into one file. Every process that brings up the driver has a number of its own in the
// file, children included; a forked child is a process of its own, and has nothing to record before it does so.
//
// Programs are never hurt: one that breaks the rules is recorded up to there, and when the file cannot be written, all
// run on unrecorded.
//
// Lock order: Recorder.mu alone; it is held over a write.
//
// The package must not import the daemon's side of things: a recorded program is not held.
package recorder

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// A Process is what was recorded of one process.
type Process struct {
	Number   uint32
	PID      int
	Name     string
	Launches uint64 // recorded, captured ones too
	Graphs   uint64
	Copies   uint64
	Others   uint64        // work that is not known better: batches of copies, old ways to launch, …
	Counted  wire.Counters // by the program itself
	Waits    uint64        // how often it had to wait for the recorder
	Waited   time.Duration
	Clean    bool // it ended by itself
	Err      error
}

// A Recorder writes one file.
type Recorder struct {
	log    *slog.Logger
	caches func(pid int) []string
	wg     sync.WaitGroup
	stop   chan struct{}

	mu        sync.Mutex
	w         *trace.Writer
	err       error // of the file
	processes []*Process
	cubins    map[trace.Digest]uint64 // without PTX
	dirs      []string                // of caches
}

// New begins a trace in w. caches gives the directories where PTX of a process may be found (see tap.Caches).
func New(w io.Writer, caches func(pid int) []string, log *slog.Logger) (*Recorder, error) {
	tw, err := trace.NewWriter(w, time.Now)
	if err != nil {
		return nil, err
	}
	return &Recorder{log: log, caches: caches, w: tw, stop: make(chan struct{}), cubins: map[trace.Digest]uint64{}}, nil
}

// Serve takes programs on l until ctx ends or l is closed.
func (r *Recorder) Serve(ctx context.Context, l *net.UnixListener) error {
	return serve(ctx, l, &r.wg, func(conn *wire.Conn) {
		if err := r.record(conn); err != nil {
			r.log.Warn("a program is not recorded to its end", "error", err)
		}
	})
}

// Finish ends the recording of what still runs, looks for PTX that images do not hold, and ends the file. Serve has
// returned.
func (r *Recorder) Finish() ([]*Process, error) {
	close(r.stop)
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.dirs)
	found := tap.Search(slices.Compact(r.dirs), r.cubins)
	compare := func(a, b trace.Digest) int { return slices.Compare(a[:], b[:]) }
	for _, d := range slices.SortedFunc(maps.Keys(found), compare) {
		text, err := r.w.WriteText(0, found[d])
		if err == nil {
			err = r.w.Write(0, &trace.Found{Image: d, TextRef: trace.TextRef{Arch: tap.Target(found[d]), Digest: text}})
		}
		r.fail(err)
	}
	r.fail(r.w.Finish())
	slices.SortFunc(r.processes, func(a, b *Process) int { return cmp.Compare(a.Number, b.Number) })
	return r.processes, r.err
}

// Bytes is how much has been written.
func (r *Recorder) Bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Bytes()
}

// fail notes the first error of the file. With mu held.
func (r *Recorder) fail(err error) {
	if err != nil && r.err == nil {
		r.err = err
		r.log.Error("the trace cannot be written: the programs run on unrecorded", "error", err)
	}
}

// A session is one process that is being recorded.
type session struct {
	r *Recorder
	p *Process
}

// record attends one program to its end.
func (r *Recorder) record(conn *wire.Conn) error {
	var s *session
	out, err := attend(conn, r.stop, func(hello *wire.Hello, pid int) tap.Handler {
		s = &session{r: r, p: r.begin(hello, pid)}
		return s
	})
	if s == nil {
		return err
	}
	s.p.Clean, s.p.Counted, s.p.Waits, s.p.Waited, s.p.Err = out.clean, out.counted, out.waits, out.waited, err
	counted := s.p.Counted
	exit := &trace.Exit{Launches: counted.Launches, Graphs: counted.Graphs, Copies: counted.Copies,
		Waits: s.p.Waits, Waited: s.p.Waited}
	if s.p.Clean {
		exit.Flags = trace.Clean
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(r.w.Write(s.p.Number, exit))
	r.fail(r.w.Flush())
	return err
}

func (r *Recorder) begin(h *wire.Hello, pid int) *Process {
	rec := &trace.Program{Start: h.StartTime, PID: uint32(pid), PPID: h.PPID, GPU: h.GPU, Driver: h.Driver,
		Name: h.Name, Exe: h.Exe, Devices: h.Devices}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(b) < trace.MaxRecord/2 {
		rec.Args = strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	dirs := r.caches(pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &Process{Number: uint32(len(r.processes) + 1), PID: pid, Name: h.Name}
	r.processes = append(r.processes, p)
	r.dirs = append(r.dirs, dirs...)
	r.fail(r.w.Write(p.Number, rec))
	return p
}

// Record implements tap.Handler.
func (s *session) Record(rec trace.Record, raw []byte) error {
	switch rec := rec.(type) {
	case *trace.Launch:
		if rec.Flags&trace.Node == 0 {
			s.p.Launches++
		}
	case *trace.Copy:
		if rec.Flags&trace.Node == 0 {
			s.p.Copies++
		}
	case *trace.GraphLaunch:
		s.p.Graphs++
	case *trace.Other:
		if rec.Flags&trace.Node == 0 {
			s.p.Others++
		}
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.fail(s.r.w.WriteRaw(s.p.Number, raw))
	return s.r.err
}

// Module implements tap.Handler.
func (s *session) Module(m *tap.Module) error {
	if m.Err != nil {
		s.r.log.Warn("the PTX of a module cannot be read", "pid", s.p.PID, "module", m.ID, "error", m.Err)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, text := range m.PTX {
		_, err := s.r.w.WriteText(s.p.Number, text)
		s.r.fail(err)
	}
	if m.Kind == trace.CodeCubin && len(m.Texts) == 0 && m.Flags&trace.Outline == 0 && m.Digest != (trace.Digest{}) {
		s.r.cubins[m.Digest] = m.Bytes
	}
	s.r.fail(s.r.w.Write(s.p.Number, &m.Image))
	return s.r.err
}

// Environ is the environment that a process was started with.
func Environ(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
