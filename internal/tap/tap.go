// Package tap reads what programs tell through their tap (package wire): records (package trace) of their memory, code
// and work. Code comes in pieces there; here it comes as a [Module] with the PTX that is in it.
//
// What is read is outside input: a program that breaks the rules is an error, never a panic, and what is kept of it is
// limited.
//
// The package must not import what uses it: process (which asks) and recorder (which writes files).
package tap

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"holdfast/internal/fatbin"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// ErrBroken is wrapped by errors of programs that break the rules of the tap.
var ErrBroken = errors.New("the program's tap is broken")

// A Handler gets what a tap says, in order. What it is given is its own. An error ends the reading.
type Handler interface {
	// Record gets a record and its encoded form.
	Record(rec trace.Record, raw []byte) error
	// Module gets code that was loaded. It comes instead of trace.Module and trace.Code.
	Module(m *Module) error
}

// A Module is code that was loaded.
type Module struct {
	trace.Image
	PTX [][]byte // the text of each of Image.Texts; at most maxPTX bytes in all
	// Whole is the image as it was loaded, if the program tells that; then there is no PTX here.
	Whole []byte
	// Err says why its PTX could not be read, although there may be some.
	Err error
}

// A Reader reads one tap. One goroutine may use it; Answer and Wake are for any.
type Reader struct {
	ring *wire.TapReader
	code assembly
}

// New makes a tap; FD goes to the program.
func New() (*Reader, error) {
	ring, err := wire.NewTap()
	if err != nil {
		return nil, err
	}
	return &Reader{ring: ring}, nil
}

// FD is the tap's descriptor. It stays the reader's.
func (r *Reader) FD() int { return r.ring.FD() }

// Close lets go of the tap; the program writes no more.
func (r *Reader) Close() error { return r.ring.Close() }

// Stop tells the program that nothing is read any more.
func (r *Reader) Stop() { r.ring.Stop() }

// Waits says how often and how long the program waited because it was ahead of the reader.
func (r *Reader) Waits() (n uint64, total time.Duration) { return r.ring.Waits() }

// Answer lets the work with this cell go on.
func (r *Reader) Answer(cell uint32) { r.ring.Answer(cell) }

// Wait returns when there is something to read, at the latest after limit; it sleeps only after looking for as long as
// spin.
func (r *Reader) Wait(spin, limit time.Duration) { r.ring.Wait(spin, limit) }

// Wake ends a Wait.
func (r *Reader) Wake() { r.ring.Wake() }

// Read hands over what has been told so far and returns how many bytes that was.
func (r *Reader) Read(h Handler) (int, error) {
	b, err := r.ring.Pending()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	done := 0
	for done < len(b) {
		n, err := trace.Size(b[done:])
		if err == nil && n == 0 {
			err = errors.New("a record is cut short")
		}
		if err != nil {
			return done, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		raw := b[done : done+n : done+n]
		rec, err := trace.Decode(raw)
		if err == nil && rec.Type() >= trace.TypeProgram {
			err = fmt.Errorf("a %v record is not for programs", rec.Type())
		}
		if err != nil {
			return done, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		if err := r.code.record(rec, raw, h); err != nil {
			return done, err
		}
		done += n
	}
	r.ring.Take(done)
	return done, nil
}

// An assembly puts the pieces of code together. Programs tell one module after the other.
type assembly struct {
	module *trace.Module
	code   []byte
}

func (a *assembly) record(rec trace.Record, raw []byte, h Handler) error {
	switch rec := rec.(type) {
	case *trace.Module:
		if a.module != nil {
			return fmt.Errorf("%w: module %d begins within module %d", ErrBroken, rec.ID, a.module.ID)
		}
		limit := uint64(trace.MaxText)
		if rec.Flags&trace.Whole != 0 {
			limit = maxWhole
		}
		if rec.Code > limit {
			return fmt.Errorf("%w: module %d: %d bytes of code, limit %d", ErrBroken, rec.ID, rec.Code, limit)
		}
		a.module, a.code = rec, nil
	case *trace.Code:
		if a.module == nil || rec.Module != a.module.ID || rec.Offset != uint64(len(a.code)) ||
			rec.Offset+uint64(len(rec.Bytes)) > a.module.Code {
			return fmt.Errorf("%w: %d bytes of code of module %d at %d", ErrBroken, len(rec.Bytes), rec.Module,
				rec.Offset)
		}
		a.code = append(a.code, rec.Bytes...)
	default:
		return h.Record(rec, raw)
	}
	if uint64(len(a.code)) < a.module.Code {
		return nil
	}
	m := open(a.module, a.code)
	a.module, a.code = nil, nil
	return h.Module(m)
}

// open finds the PTX in code.
func open(t *trace.Module, code []byte) *Module {
	m := &Module{Image: trace.Image{Flags: t.Flags, ID: t.ID, Handle: t.Handle, Bytes: t.Bytes,
		Kind: t.Kind, Call: t.Call}}
	if len(code) == 0 {
		m.Digest = t.Digest
		return m
	}
	if t.Flags&trace.Whole != 0 {
		m.Digest, m.Whole = sha256.Sum256(code), code
		return m
	}
	if t.Flags&trace.Assembled != 0 {
		m.Digest = t.Digest
		text := fatbin.Lines(code)
		m.add(Target(text), text)
		return m
	}
	m.Digest = sha256.Sum256(code)
	if t.Flags&trace.Outline != 0 {
		return m
	}
	switch t.Kind {
	case trace.CodePTX:
		m.add(Target(code), code)
	case trace.CodeFatbin:
		f, err := fatbin.Open(code)
		if err != nil {
			m.Err = err
			return m
		}
		for _, e := range f.Entries {
			if e.Kind != fatbin.PTX {
				continue
			}
			text, err := e.Data()
			if err != nil {
				m.Err = errors.Join(m.Err, err)
				continue
			}
			if !m.add(uint32(e.Arch), bytes.Clone(text)) {
				return m // the rest need not be unpacked
			}
		}
	}
	return m
}

// maxWhole bounds an image that is told whole. The fat binaries of libraries are some hundred megabytes.
const maxWhole = 2 << 30

// maxPTX bounds the PTX of one module. It may be compressed, and a few kilobytes stand for the largest text many times
// over.
const maxPTX = 2 * trace.MaxText

// add takes a text, if there is room for it.
func (m *Module) add(arch uint32, text []byte) bool {
	total := len(text)
	for _, have := range m.PTX {
		total += len(have)
	}
	if len(m.Texts) == trace.MaxTexts || len(text) > trace.MaxText || total > maxPTX {
		m.Err = errors.Join(m.Err, fmt.Errorf("more than %d PTX texts, or more than %d bytes in one or %d in all",
			trace.MaxTexts, trace.MaxText, maxPTX))
		return false
	}
	m.Texts = append(m.Texts, trace.TextRef{Arch: arch, Digest: sha256.Sum256(text)})
	m.PTX = append(m.PTX, text)
	return true
}

// Target is the architecture that the .target directive of a PTX text names, 90 of sm_90a; 0 if it names none.
func Target(text []byte) uint32 {
	_, rest, ok := bytes.Cut(text, []byte(".target"))
	if !ok {
		return 0
	}
	rest, _, _ = bytes.Cut(rest, []byte("\n"))
	_, rest, ok = bytes.Cut(rest, []byte("sm_"))
	n := 0
	for n < len(rest) && n < 4 && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	arch, err := strconv.Atoi(string(rest[:n]))
	if !ok || err != nil {
		return 0
	}
	return uint32(arch)
}
