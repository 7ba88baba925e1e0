package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"holdfast/internal/cuda/api"
	"holdfast/internal/recording"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// A Hint names an input or an output and says what it is. Without a type it is bytes.
type Hint struct {
	Name, DType string
	Shape       []int
}

// A Wanted is a range that is to be recorded, with hints for its inputs and outputs in their order.
type Wanted struct {
	Name    string
	In, Out []Hint
}

// Ranges makes a recording of ranges of a program (package recording), each of which becomes an entry: programs whose
// shim finds HOLDFAST_TRACE and HOLDFAST_RANGE in its environment connect to it. What cannot be recorded is refused by
// name; the programs run on in any case.
//
// Memory of the recording is what it was when the first range began. The others find what those before them have
// left, in the program and in a replay; so whatever else writes memory between them is refused.
//
// Lock order: Ranges.mu alone.
type Ranges struct {
	log    *slog.Logger
	w      *recording.Writer
	wanted []Wanted
	calls  map[uint32]string
	spill  *os.File
	wg     sync.WaitGroup
	stop   chan struct{}

	mu      sync.Mutex
	spilled int64
	taker   *rangeSession // whose ranges are recorded
	seen    int           // programs
	errs    []error
}

// NewRanges records into w. Code goes through spill, an empty file.
func NewRanges(w *recording.Writer, spill *os.File, wanted []Wanted, log *slog.Logger) (*Ranges, error) {
	fns, err := api.Functions()
	if err != nil {
		return nil, err
	}
	calls := map[uint32]string{}
	for _, fn := range fns {
		calls[uint32(fn.Op)] = fn.Name
	}
	return &Ranges{log: log, w: w, wanted: wanted, calls: calls, spill: spill, stop: make(chan struct{})}, nil
}

// Serve takes programs on l until ctx ends or l is closed.
func (r *Ranges) Serve(ctx context.Context, l *net.UnixListener) error {
	return serve(ctx, l, &r.wg, func(conn *wire.Conn) {
		var s *rangeSession
		_, err := attend(conn, r.stop, func(hello *wire.Hello, pid int) tap.Handler {
			s = newRangeSession(r, hello, pid)
			r.mu.Lock()
			r.seen++
			r.mu.Unlock()
			return s
		})
		if err != nil {
			r.refuse(err)
		} else if s != nil && (s.phase == contents || s.phase == inside) && s.err == nil {
			r.refuse(fmt.Errorf("the program (PID %d) ended within its range", s.pid))
		}
	})
}

func (r *Ranges) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// ErrNoRange is wrapped by the error that says that a wanted range was not seen.
var ErrNoRange = errors.New("no such range came")

// Finish ends the recording. Serve has returned. The manifest is complete but for what the writer adds.
func (r *Ranges) Finish() (*recording.Manifest, error) {
	close(r.stop)
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.errs) > 0:
		return nil, errors.Join(r.errs...)
	case r.seen == 0:
		return nil, errors.New("no program came that uses CUDA")
	case r.taker == nil:
		return nil, fmt.Errorf("range %q: %w", r.wanted[0].Name, ErrNoRange)
	case r.taker.manifest == nil:
		return nil, fmt.Errorf("range %q: %w after range %q", r.taker.missing(), ErrNoRange, r.taker.ranges[0].Name)
	}
	return r.taker.manifest, nil
}

// A phase is how far a session has come.
type phase int

const (
	before   phase = iota // no range yet
	contents              // the first range has begun; memory is being told
	inside                // a range
	between               // two ranges
	complete
)

// An image is code in the spill file.
type image struct{ at, size int64 }

// A rangeSession is one program.
type rangeSession struct {
	r         *Ranges
	hello     *wire.Hello
	pid       int
	args      []string
	state     *trace.State
	images    map[uint64]spilledImage
	functions map[uint32]*trace.Function
	phase     phase
	err       error
	manifest  *recording.Manifest

	live        []liveMemory // what there was at the beginning, by address
	made        []madeMemory // what came later
	freed       []recording.Span
	next        *liveMemory // whose contents come
	variables   []*rangeVariable
	ranges      []*rangeEntry           // that have begun
	*rangeEntry                         // the last of them
	latest      map[uint32][]*rangeWork // the last piece of work of each thread
	pending     map[uint32][][]byte     // what copies of a thread will take from the host
	warned      map[string]bool
	warnings    []string
}

// A rangeEntry is one range.
type rangeEntry struct {
	*Wanted
	order   *order
	works   []*rangeWork
	outputs []hostSpan // where copies to the host went
}

// madeMemory came after the first range had begun.
type madeMemory struct {
	recording.Span
	ranges int // that had ended then
}

// A hostSpan is memory of the host, from its first byte to the one behind its last.
type hostSpan struct{ from, to uint64 }

type spilledImage struct {
	image
	kind uint32
}

type liveMemory struct {
	trace.Alloc
	w *recording.BlobWriter
	n uint64 // bytes told
}

type rangeVariable struct {
	*trace.Variable
	b []byte
}

// A rangeWork is one piece of work. Exactly one of launch, copy, input and output is there.
type rangeWork struct {
	launch  *trace.Launch
	kernel  *trace.Kernel
	copy    *trace.Copy // also of an input or output: one side is to become staging memory
	input   []byte
	output  bool
	dropped bool
}

func newRangeSession(r *Ranges, hello *wire.Hello, pid int) *rangeSession {
	return &rangeSession{r: r, hello: hello, pid: pid, args: append([]string{hello.Exe}, commandLine(pid)...),
		state:  trace.NewState(),
		images: map[uint64]spilledImage{}, functions: map[uint32]*trace.Function{},
		latest:  map[uint32][]*rangeWork{},
		pending: map[uint32][][]byte{}, warned: map[string]bool{}}
}

// missing is the name of the first wanted range that has not come.
func (s *rangeSession) missing() string {
	for i := range s.r.wanted {
		if !s.has(s.r.wanted[i].Name) {
			return s.r.wanted[i].Name
		}
	}
	return ""
}

func (s *rangeSession) has(name string) bool {
	return slices.ContainsFunc(s.ranges, func(e *rangeEntry) bool { return e.Name == name })
}

// commandLine is the arguments of a process, without its name.
func commandLine(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 || len(b) >= trace.MaxRecord/2 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")[1:]
}

// fail refuses the range; what the program tells from now on is not kept.
func (s *rangeSession) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
		s.r.refuse(s.err)
	}
}

func (s *rangeSession) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !s.warned[text] {
		s.warned[text] = true
		s.warnings = append(s.warnings, text)
	}
}

// Module implements tap.Handler.
func (s *rangeSession) Module(m *tap.Module) error {
	if s.err != nil || s.phase == complete {
		return nil
	}
	s.state.Apply(&m.Image)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	at := s.r.spilled
	if _, err := s.r.spill.WriteAt(m.Whole, at); err != nil {
		return fmt.Errorf("code cannot be kept: %w", err)
	}
	s.r.spilled += int64(len(m.Whole))
	s.images[m.ID] = spilledImage{image{at, int64(len(m.Whole))}, m.Kind}
	return nil
}

// whole is the code of a module.
func (s *rangeSession) whole(id uint64) ([]byte, uint32, error) {
	i, ok := s.images[id]
	if !ok || i.size == 0 {
		return nil, 0, errors.New("the program did not tell it: it was loaded in a way that is not followed")
	}
	b := make([]byte, i.size)
	_, err := io.ReadFull(io.NewSectionReader(s.r.spill, i.at, i.size), b)
	return b, i.kind, err
}

// Record implements tap.Handler. Nothing that is wrong with the range is an error of the tap: the program runs on.
func (s *rangeSession) Record(rec trace.Record, _ []byte) error {
	if s.err != nil || s.phase == complete {
		return nil
	}
	switch rec := rec.(type) {
	case *trace.Range:
		s.begin(rec)
	case *trace.RangeEnd:
		if s.phase == contents {
			s.enter()
		}
		if s.phase == inside && s.err == nil {
			s.phase = between
			if s.missing() == "" {
				s.finish()
			}
		}
	case *trace.Data:
		s.data(rec)
	case *trace.Variable:
		if s.phase == contents {
			s.variables = append(s.variables, &rangeVariable{Variable: rec})
		}
	case *trace.Function:
		s.functions[rec.Kernel] = rec
	case *trace.Order:
		s.ordered(rec)
	default:
		s.work(rec)
	}
	return nil
}

const managedMemory = "managed memory at %#x (%d bytes): what the host does with it is not seen; " +
	"use device memory and copies"

// begin begins a range: of the first it takes note of the memory that there is.
func (s *rangeSession) begin(rec *trace.Range) {
	i := slices.IndexFunc(s.r.wanted, func(w Wanted) bool { return w.Name == rec.Name })
	switch {
	case i < 0 || s.has(rec.Name):
		s.fail("range %q comes, which nobody has asked for", rec.Name)
	case rec.Reason != "":
		s.fail("range %q cannot be recorded: %s", rec.Name, rec.Reason)
	case s.phase == contents || s.phase == inside:
		s.fail("range %q begins before range %q has ended", rec.Name, s.Name)
	case s.phase == before && !s.take(rec.Name):
	default:
		s.rangeEntry = &rangeEntry{Wanted: &s.r.wanted[i], order: newOrder()}
		s.ranges = append(s.ranges, s.rangeEntry)
		clear(s.latest)
		clear(s.pending)
		if s.phase == before {
			s.phase = contents
			s.declare()
			return
		}
		s.phase = inside
		s.goesOn()
	}
}

// take makes this program the one that is recorded.
func (s *rangeSession) take(name string) bool {
	s.r.mu.Lock()
	other := s.r.taker
	if other == nil {
		s.r.taker = s
	}
	s.r.mu.Unlock()
	if other != nil {
		s.fail("range %q comes in two processes (PID %d and %d): record one of them", name, other.pid, s.pid)
	}
	return other == nil
}

// declare takes note of the memory that there is.
func (s *rangeSession) declare() {
	for _, a := range s.state.Allocs() {
		if a.Device != 0 && a.Kind != trace.MemHost {
			s.fail("memory at %#x is on device %d: "+
				"only programs that use one GPU can be recorded (CUDA_VISIBLE_DEVICES)", a.Addr, a.Device)
			return
		}
		switch a.Kind {
		case trace.MemHost, trace.MemGlobal:
		case trace.MemManaged:
			s.fail(managedMemory, a.Addr, a.Bytes)
			return
		default:
			s.live = append(s.live, liveMemory{Alloc: a})
		}
	}
}

// goesOn refuses a range that may go on from memory of which the recording cannot say what it held when the first
// range began, since it was not there then, or was another's.
func (s *rangeSession) goesOn() {
	first := s.ranges[0].Name
	if a := meeting(s.state.Allocs(), s.freed); a != nil {
		s.fail("memory at %#x (%d bytes) was freed after range %q had begun and is in use again when range %q begins: "+
			"a replay would find there what it held before; keep it, or let the program warm up (--nth)",
			a.Addr, a.Bytes, first, s.Name)
		return
	}
	var came []recording.Span
	for _, m := range s.made {
		if m.ranges < len(s.ranges)-1 {
			came = append(came, m.Span)
		}
	}
	if a := meeting(s.state.Allocs(), came); a != nil {
		s.fail("memory at %#x (%d bytes) came after range %q had begun and is still there when range %q begins, which "+
			"may go on from what it holds: allocate it before range %q, or let the program warm up (--nth)",
			a.Addr, a.Bytes, first, s.Name, first)
	}
}

// meeting is the first piece of device memory that has a byte in common with spans; nil if none has. It sorts spans.
func meeting(allocs []trace.Alloc, spans []recording.Span) *trace.Alloc {
	slices.SortFunc(spans, func(a, b recording.Span) int { return cmp.Compare(a.Addr, b.Addr) })
	reach := uint64(0) // of the spans that begin before the piece's end
	for i := range allocs {
		a := &allocs[i]
		for len(spans) > 0 && uint64(spans[0].Addr) < a.Addr+a.Bytes {
			reach = max(reach, uint64(spans[0].Addr)+uint64(spans[0].Bytes))
			spans = spans[1:]
		}
		if reach > a.Addr && a.Kind != trace.MemHost && a.Kind != trace.MemGlobal {
			return a
		}
	}
	return nil
}

// data takes contents: of memory or of a variable while those are told, of the host before a copy.
func (s *rangeSession) data(d *trace.Data) {
	switch {
	case d.Flags&trace.HostData != 0:
		list := s.pending[d.Thread]
		if d.Addr == 0 {
			list = append(list, nil)
		}
		if i := len(list) - 1; i >= 0 && uint64(len(list[i])) == d.Addr {
			list[i] = append(list[i], d.Bytes...)
		}
		s.pending[d.Thread] = list
	case s.phase != contents:
	case len(s.variables) > 0:
		v := s.variables[len(s.variables)-1]
		if d.Addr == v.Addr+uint64(len(v.b)) && uint64(len(v.b)+len(d.Bytes)) <= v.Variable.Bytes {
			v.b = append(v.b, d.Bytes...)
		}
	default:
		s.memory(d)
	}
}

func (s *rangeSession) memory(d *trace.Data) {
	if s.next == nil || s.next.n == s.next.Bytes || s.next.Addr+s.next.n != d.Addr {
		i, ok := slices.BinarySearchFunc(s.live, d.Addr, func(l liveMemory, addr uint64) int {
			switch {
			case l.Addr < addr:
				return -1
			case l.Addr > addr:
				return 1
			}
			return 0
		})
		if !ok || s.live[i].w != nil {
			return // enter finds what is missing
		}
		s.next = &s.live[i]
		s.next.w = s.r.w.Blob()
	}
	if s.next.n+uint64(len(d.Bytes)) > s.next.Bytes {
		return
	}
	s.next.n += uint64(len(d.Bytes))
	if _, err := s.next.w.Write(d.Bytes); err != nil {
		s.fail("%w", err)
	}
}

// enter begins the range proper: all contents have been told.
func (s *rangeSession) enter() {
	s.phase = inside
	for i := range s.live {
		if l := &s.live[i]; l.n != l.Bytes {
			s.fail("memory at %#x (%d bytes): its contents could not be read: the program made it in a way that is "+
				"not followed", l.Addr, l.Bytes)
			return
		}
	}
}

func (s *rangeSession) ordered(o *trace.Order) {
	if s.phase != contents && s.phase != inside || o.Flags&trace.Captured != 0 {
		return
	}
	switch o.Kind {
	case trace.EventRecorded:
		s.order.recorded(o.Event, streamOf(o.Stream, o.Thread))
	case trace.StreamWaits:
		s.order.waits(streamOf(o.Stream, o.Thread), o.Event)
	default:
		s.order.everything()
	}
}
