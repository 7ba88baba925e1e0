package hfx

import (
	"fmt"
	"io"
)

// A Writer takes steps down in the order in which they are to be done. Errors stay until Finish.
type Writer struct {
	Header Header // what the caller knows of it

	to     io.WriterAt
	at     int64 // bytes written
	file   File
	wait   uint64 // of the next step
	stage  uint32 // what was put there for the next submission
	data   uint64
	staged uint32
	sum    uint32
	port   bool // in the group of a port: data are no part of the file
	done   uint64
	sealed bool
	err    error
}

// NewWriter writes to an empty file.
func NewWriter(to io.WriterAt) *Writer {
	return &Writer{to: to, at: Page, file: File{Groups: []Group{{}}}}
}

func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// Memory is a buffer that is needed from here on.
func (w *Writer) Memory(addr, bytes uint64, kind uint32) {
	n := uint32(len(w.file.Memory))
	w.file.Memory = append(w.file.Memory, Memory{Addr: addr, Bytes: bytes, Kind: kind})
	if kind <= Visible {
		w.Header.DeviceBytes += bytes
	}
	if n >= MemoryFixed {
		w.op(Op{Kind: OpMemory, Memory: n})
	}
	if w.port {
		w.fail("memory for a port")
	}
}

// Free says that memory is not needed any more. While steps are taken down there is no such step.
func (w *Writer) Free() {
	if !w.sealed {
		w.fail("memory is given back")
	}
}

// op adds a step.
func (w *Writer) op(o Op) {
	o.Wait, w.wait = w.wait, 0
	w.file.Ops = append(w.file.Ops, o)
	w.file.Groups[len(w.file.Groups)-1].Count++
}

// Wait has the next step wait for a ticket.
func (w *Writer) Wait(ticket uint64) { w.wait = max(w.wait, ticket) }

// Put stages bytes at an offset of the host memory: the next submission takes them.
func (w *Writer) Put(stage int, b []byte) {
	if w.staged != 0 {
		w.fail("two pieces are staged at once")
	}
	w.stage, w.staged, w.data, w.sum = uint32(stage), uint32(len(b)), w.done, 0
	w.done += uint64(len(b))
	if w.port {
		return
	}
	w.data, w.sum = uint64(w.at), Sum(b)
	if _, err := w.to.WriteAt(b, w.at); err != nil {
		w.fail("%w", err)
	}
	w.at += int64(len(b)+Page-1) / Page * Page
}

// Take has what is at an offset of the host memory be the next n bytes of an output.
func (w *Writer) Take(stage, n int) {
	if n == 0 {
		return
	}
	w.op(Op{Kind: OpTake, Stage: uint32(stage), Data: w.done, Bytes: uint32(n)})
	w.done += uint64(n)
}

// Submit has words stand at an offset of the host memory, and be submitted.
func (w *Writer) Submit(words []uint32, push uint32, ticket uint64) {
	o := Op{Kind: OpSubmit, Ticket: ticket, Word: uint32(len(w.file.Words)), Words: uint32(len(words)), Push: push}
	if w.staged > 0 {
		o.Stage, o.Data, o.Bytes, o.Sum = w.stage, w.data, w.staged, w.sum
		w.staged = 0
	}
	w.op(o)
	w.file.Words = append(w.file.Words, words...)
}

// Text adds text and is where it stands.
func (w *Writer) Text(s string) (at, n uint32) {
	at = uint32(len(w.file.Text))
	w.file.Text = append(w.file.Text, s...)
	return at, uint32(len(s))
}

// Port begins the group of an input or output. All that was begun before is complete then.
func (w *Writer) Port(p Port) {
	w.end()
	p.Group = uint32(len(w.file.Groups))
	w.file.Ports = append(w.file.Ports, p)
	w.file.Groups = append(w.file.Groups, Group{First: uint32(len(w.file.Ops))})
	w.port, w.done = true, 0
}

// end ends a group.
func (w *Writer) end() {
	if w.wait > 0 {
		w.op(Op{Kind: OpWait})
	}
	if w.staged > 0 {
		w.fail("bytes are staged that nothing takes")
	}
}

// Finish writes tables and header. What the writer has written must be a file that Open takes.
func (w *Writer) Finish() error {
	w.end()
	w.sealed = true
	if w.err != nil {
		return w.err
	}
	h := &w.Header
	f := &w.file
	tables := encode(nil, f.Memory)
	for _, t := range []any{f.Groups, f.Ops, f.Ports, f.Words, f.Text} {
		tables = encode(tables, t)
	}
	copy(h.Magic[:], Magic)
	h.Version = Version
	h.Memories, h.Groups, h.Ops = uint32(len(f.Memory)), uint32(len(f.Groups)), uint32(len(f.Ops))
	h.Ports, h.Words, h.Text = uint32(len(f.Ports)), uint32(len(f.Words)), uint32(len(f.Text))
	h.Tables, h.TablesBytes, h.TablesSum = uint64(w.at), uint64(len(tables)), Sum(tables)
	h.FileBytes = h.Tables + h.TablesBytes
	head := encode(nil, h)
	if len(head) != HeaderSize {
		return fmt.Errorf("hfx: a header of %d bytes", len(head))
	}
	h.HeaderSum = Sum(head[16:])
	le.PutUint32(head[12:], h.HeaderSum)
	_, err := w.to.WriteAt(append(head, make([]byte, Page-HeaderSize)...), 0)
	if err == nil {
		_, err = w.to.WriteAt(tables, int64(h.Tables))
	}
	if err != nil {
		return err
	}
	f.Header = *h
	if err = f.checkHeader(head, int64(h.FileBytes)); err == nil {
		err = f.check()
	}
	if err != nil {
		return fmt.Errorf("hfx: what was linked is not well formed: %w", err)
	}
	return nil
}
