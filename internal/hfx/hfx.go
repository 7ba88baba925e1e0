// Package hfx is the format of linked recordings: a recording made flat for one kind of GPU, so that whoever plays it
// has nothing to decide. Every buffer has its address, every launch descriptor and every command word is made; a file
// is a list of steps, each of which is memory to have, bytes to hand over, or words to submit. docs/hfx-format.md
// describes it; the smallest player (replay/tiny) is written after the same structures, from which its header is
// generated.
//
// A [Writer] takes steps down in their order, [Open] reads a file and checks all that it says against itself. Files
// are outside input. What the words make the GPU do is not checked: they can reach nothing but the addresses of their
// own channel.
//
// The package must not import anything of this module.
package hfx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// ErrMalformed is wrapped by the errors of files that break the format.
var ErrMalformed = errors.New("malformed linked recording")

// A Header is the first HeaderSize bytes.
type Header struct {
	Magic       [8]byte
	Version     uint32
	HeaderSum   uint32 // Sum of what follows, to the end of the header
	FileBytes   uint64
	Tables      uint64 // where the tables begin: memory, groups, steps, ports, words, text; they end the file
	TablesBytes uint64
	TablesSum   uint32

	// What the GPU must be.
	Arch                                          uint32
	ClassCompute, ClassFIFO, ClassCopy, ClassUser uint32
	GPCs, TPCsPerGPC, SMsPerTPC, Warps, TPCs      uint32
	Memories, Groups, Ops, Ports, Words, Text     uint32 // entries of each table; bytes of text
	// Inside the control memory.
	Ring, RingEntries, USERD uint32
	// Inside the host memory.
	Ticket, Begin, End, Progress uint32
	// The program.
	ProgramWords    uint32
	Name, NameBytes uint32 // of the GPU that it was linked for: text
	Reserved        uint32
	Program         uint64 // its device address
	DeviceBytes     uint64 // device memory that all needs
	Unused          [88]byte
}

// A Memory is a buffer with its device address.
type Memory struct {
	Addr, Bytes uint64
	Kind        uint32
	Reserved    uint32
}

// A Group is steps that are done together. The first makes everything ready for the program; each port has one.
type Group struct{ First, Count uint32 }

// An Op is a step. Before it the ticket in the host memory must have reached Wait.
type Op struct {
	Kind, Memory uint32
	Wait, Ticket uint64
	Word, Words  uint32 // in the table of words
	Push, Stage  uint32 // offsets in the host memory
	Data         uint64 // in the file, or in the port's data
	Bytes, Sum   uint32 // Sum of what the file has there; 0 in the group of a port
}

// A Port is an input or an output.
type Port struct {
	Addr, Bytes      uint64
	Way, Group       uint32
	Name, NameBytes  uint32 // all of these are text
	Type, TypeBytes  uint32 // for people: float32 [1 1000]
	Array, ArrayText uint32 // what an .npy file has before the data; no bytes: there is none
	Untyped          uint32 // 1: an .npy file may have any type
	Reserved         uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of the format: the CRC-32C of four numbers, which are the CRC-32C of four parts, so that a CPU
// computes them at once. Three parts have a quarter of the bytes each, rounded down to whole words of 8, the last the
// rest.
func Sum(b []byte) uint32 {
	q := len(b) / 4 &^ 7
	var parts []byte
	for i := range 4 {
		part := b[i*q:]
		if i < 3 {
			part = part[:q]
		}
		parts = le.AppendUint32(parts, crc32.Checksum(part, castagnoli))
	}
	return crc32.Checksum(parts, castagnoli)
}

var le = binary.LittleEndian

// encode is the bytes of a table.
func encode(b []byte, v any) []byte {
	b, err := binary.Append(b, le, v)
	if err != nil {
		panic(fmt.Sprintf("hfx: %T has no fixed size: %v", v, err))
	}
	return b
}

// A File is a linked recording.
type File struct {
	Header   Header
	Memory   []Memory
	Groups   []Group
	Ops      []Op
	Ports    []Port
	Words    []uint32
	Text     []byte
	contents io.ReaderAt
}

// Open reads a file of size bytes and checks its tables; Verify checks the contents.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{contents: r}
	head := make([]byte, HeaderSize)
	if n, err := r.ReadAt(head, 0); n < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: cut short", ErrMalformed)
		}
		return nil, err
	}
	h := &f.Header
	if _, err := binary.Decode(head, le, h); err != nil {
		return nil, err
	}
	if err := f.checkHeader(head, size); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	tables := make([]byte, h.TablesBytes)
	if n, err := r.ReadAt(tables, int64(h.Tables)); n < len(tables) {
		return nil, err
	}
	if Sum(tables) != h.TablesSum {
		return nil, fmt.Errorf("%w: its tables are damaged", ErrMalformed)
	}
	f.Memory, f.Groups, f.Ops = make([]Memory, h.Memories), make([]Group, h.Groups), make([]Op, h.Ops)
	f.Ports, f.Words, f.Text = make([]Port, h.Ports), make([]uint32, h.Words), make([]byte, h.Text)
	for _, t := range []any{f.Memory, f.Groups, f.Ops, f.Ports, f.Words, f.Text} {
		n, err := binary.Decode(tables, le, t)
		if err != nil {
			return nil, err
		}
		tables = tables[n:]
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return f, nil
}

// tablesBytes is what the tables of a header take.
func (h *Header) tablesBytes() uint64 {
	size := func(n uint32, v any) uint64 { return uint64(n) * uint64(binary.Size(v)) }
	return size(h.Memories, Memory{}) + size(h.Groups, Group{}) + size(h.Ops, Op{}) + size(h.Ports, Port{}) +
		4*uint64(h.Words) + uint64(h.Text)
}

func (f *File) checkHeader(head []byte, size int64) error {
	h := &f.Header
	switch {
	case string(h.Magic[:]) != Magic:
		return errors.New("it is not one")
	case h.Version != Version:
		return fmt.Errorf("version %d, this reads %d", h.Version, Version)
	case h.HeaderSum != Sum(head[16:]):
		return errors.New("its header is damaged")
	case size < 0 || h.FileBytes != uint64(size):
		return fmt.Errorf("%d bytes, its header says %d", size, h.FileBytes)
	case h.TablesBytes != h.tablesBytes() || h.TablesBytes > MaxTables || h.Tables%Page != 0 || h.Tables < Page ||
		h.Tables > h.FileBytes || h.FileBytes-h.Tables != h.TablesBytes:
		return errors.New("its tables have no place")
	case h.Memories < MemoryFixed || h.Groups < 1 || h.Ports > MaxPorts || h.Groups != h.Ports+1:
		return errors.New("it lacks tables")
	case h.Reserved != 0 || h.Unused != [88]byte{}:
		return errors.New("its header has bytes that nothing is known of")
	}
	return nil
}

// check compares the tables with each other.
func (f *File) check() error {
	for i := range f.Memory {
		if err := f.checkMemory(i); err != nil {
			return fmt.Errorf("memory %d: %w", i, err)
		}
	}
	if err := f.checkPlaces(); err != nil {
		return err
	}
	had := uint32(MemoryFixed)
	next := uint32(0)
	for g, group := range f.Groups {
		if group.First != next || group.Count > uint32(len(f.Ops))-next {
			return fmt.Errorf("group %d has steps that are not its own", g)
		}
		next += group.Count
		for i := group.First; i < next; i++ {
			if err := f.checkOp(&f.Ops[i], g, &had); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
	}
	if next != uint32(len(f.Ops)) || had != uint32(len(f.Memory)) {
		return errors.New("some steps or memory are of no group")
	}
	for i := range f.Ports {
		if err := f.checkPort(i); err != nil {
			return fmt.Errorf("port %d: %w", i, err)
		}
	}
	return nil
}

func (f *File) checkMemory(i int) error {
	m := &f.Memory[i]
	fixed := map[int]uint32{MemoryControl: Visible, MemoryHost: Pinned, MemoryNotifier: System}
	want, ok := fixed[i]
	unit := uint64(HugePage)
	if m.Kind == System {
		unit = Page
	}
	switch {
	case ok && m.Kind != want || !ok && m.Kind != Device:
		return fmt.Errorf("of kind %d", m.Kind)
	case m.Bytes == 0 || m.Bytes%unit != 0 || m.Addr%HugePage != 0 || m.Addr == 0 || m.Bytes > 1<<48 ||
		m.Addr > 1<<48-m.Bytes || m.Reserved != 0:
		return fmt.Errorf("%#x+%#x is not a range of whole pages", m.Addr, m.Bytes)
	case ok && m.Bytes > 64<<20:
		return fmt.Errorf("%d bytes", m.Bytes)
	}
	return nil
}

// checkPlaces looks at what the header says is inside memory.
func (f *File) checkPlaces() error {
	h := &f.Header
	control, host := f.Memory[MemoryControl].Bytes, f.Memory[MemoryHost].Bytes
	const userd, semaphore = 512, 16
	ring := uint64(h.Ring) + 8*uint64(h.RingEntries)
	if h.RingEntries < 2 || h.RingEntries > 1<<16 || h.RingEntries&(h.RingEntries-1) != 0 || h.Ring%8 != 0 ||
		ring > control || h.USERD%userd != 0 || uint64(h.USERD) < ring || uint64(h.USERD)+userd > control {
		return errors.New("its ring has no place")
	}
	for _, at := range []uint32{h.Ticket, h.Begin, h.End, h.Progress} {
		if at%semaphore != 0 || uint64(at)+semaphore > host {
			return errors.New("its semaphores have no place")
		}
	}
	if h.Program == 0 || h.Program%4 != 0 || h.Program > 1<<40 || h.ProgramWords == 0 || h.ProgramWords > MaxRing {
		return errors.New("it has no program")
	}
	var total uint64
	for _, m := range f.Memory {
		if m.Kind <= Visible {
			total += m.Bytes
		}
		if total > 1<<48 {
			return errors.New("its memory is larger than any GPU's")
		}
	}
	if total != h.DeviceBytes {
		return fmt.Errorf("%d bytes of device memory, its header says %d", total, h.DeviceBytes)
	}
	return f.text(h.Name, h.NameBytes)
}

func (f *File) text(at, n uint32) error {
	if uint64(at)+uint64(n) > uint64(len(f.Text)) {
		return errors.New("text beyond the end")
	}
	return nil
}

// checkOp checks a step of a group; had is how much memory there is before it.
func (f *File) checkOp(o *Op, group int, had *uint32) error {
	host := f.Memory[MemoryHost].Bytes
	// What is read, and where it is put.
	room := f.Header.Tables
	least := uint64(Page)
	if group > 0 {
		if group > len(f.Ports) {
			return errors.New("of no port")
		}
		room, least = f.Ports[group-1].Bytes, 0
	}
	if o.Bytes > 0 && (o.Data < least || o.Data > room || uint64(o.Bytes) > room-o.Data ||
		uint64(o.Stage)+uint64(o.Bytes) > host) {
		return errors.New("its data have no place")
	}
	out := group > 0 && f.Ports[group-1].Way == Out
	words := o.Words > 0
	switch o.Kind {
	case OpMemory:
		if group > 0 || o.Memory != *had || *had >= uint32(len(f.Memory)) || o.Bytes > 0 || words {
			return errors.New("memory out of its order")
		}
		*had++
	case OpSubmit:
		if !words || uint64(o.Word)+uint64(o.Words) > uint64(len(f.Words)) || o.Words > MaxRing || o.Push%4 != 0 ||
			uint64(o.Push)+4*uint64(o.Words) > host || o.Ticket == 0 || o.Ticket == math.MaxUint64 ||
			out && o.Bytes > 0 {
			return errors.New("its words have no place")
		}
	case OpTake:
		if !out || words {
			return errors.New("output of no output")
		}
	case OpWait:
		if o.Bytes > 0 || words {
			return errors.New("a wait that does more")
		}
	default:
		return fmt.Errorf("of kind %d", o.Kind)
	}
	return nil
}

func (f *File) checkPort(i int) error {
	p := &f.Ports[i]
	if p.Way > Out || p.Group != uint32(i)+1 || p.Bytes > 1<<40 || p.NameBytes == 0 || p.Untyped > 1 ||
		p.Reserved != 0 {
		return errors.New("of no kind")
	}
	for _, x := range [][2]uint32{{p.Name, p.NameBytes}, {p.Type, p.TypeBytes}, {p.Array, p.ArrayText}} {
		if err := f.text(x[0], x[1]); err != nil {
			return err
		}
	}
	if bytes.ContainsAny(f.Text[p.Name:][:p.NameBytes], "=\x00\n") {
		return errors.New("its name cannot be given")
	}
	return nil
}

// String is a piece of the text.
func (f *File) String(at, n uint32) string { return string(f.Text[at : at+n]) }

// Data reads the bytes of a step of the first group and checks them.
func (f *File) Data(o *Op) ([]byte, error) {
	b := make([]byte, o.Bytes)
	if n, err := f.contents.ReadAt(b, int64(o.Data)); n < len(b) {
		return nil, err
	}
	if Sum(b) != o.Sum {
		return nil, fmt.Errorf("%w: the contents at %d are damaged", ErrMalformed, o.Data)
	}
	return b, nil
}

// Verify checks all contents.
func (f *File) Verify() error {
	for i := range f.Ops[:f.Groups[0].Count] {
		if o := &f.Ops[i]; o.Bytes > 0 {
			if _, err := f.Data(o); err != nil {
				return err
			}
		}
	}
	return nil
}
