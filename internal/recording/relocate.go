package recording

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/trace"
)

// A recording that can be relocated says which words of it are addresses of its memory. Words have 8 bytes.

// A Where says what a Patch is of.
type Where uint8

// What has words that are addresses.
const (
	InRegion   Where = 1 // the contents of a region
	InVariable Where = 2 // the contents of a variable
	InInput    Where = 3 // what was recorded of an input
	InLaunch   Where = 4 // the parameters of a launch
)

var whereNames = map[Where]string{InRegion: "region", InVariable: "variable", InInput: "input", InLaunch: "launch"}

// String is what it is in one word.
func (w Where) String() string {
	if s, ok := whereNames[w]; ok {
		return s
	}
	return fmt.Sprintf("Where(%d)", uint8(w))
}

// A Patch is the words of one thing that are addresses.
type Patch struct {
	In    Where
	Entry int // of an input or a launch: its place in Manifest.Entries
	// Index is its place in Manifest.Memory, in Manifest.Variables, in the entry's inputs; of a launch its number in
	// the work.
	Index   int
	Offsets []int64
}

// String names what is patched.
func (p *Patch) String() string {
	if p.In == InInput || p.In == InLaunch {
		return fmt.Sprintf("entry %d, %v %d", p.Entry, p.In, p.Index)
	}
	return fmt.Sprintf("%v %d", p.In, p.Index)
}

// Compare is the order of patches in a table.
func (p *Patch) Compare(q *Patch) int {
	return cmp.Or(cmp.Compare(p.In, q.In), cmp.Compare(p.Entry, q.Entry), cmp.Compare(p.Index, q.Index))
}

const (
	wordSize = 8
	// What a base is a multiple of: units in which memory is mapped.
	baseUnit = 2 << 20
	// MaxTable is how many bytes a table may have, and so how many words.
	MaxTable = 16 << 20
)

// AppendPatches encodes patches, which are sorted, with ascending offsets: for each its kind, entry, index, the number
// of its words, and how many bytes lie between them (before the first one, from the beginning), as LEB128.
func AppendPatches(b []byte, list []Patch) []byte {
	for i := range list {
		p := &list[i]
		for _, n := range []int{int(p.In), p.Entry, p.Index, len(p.Offsets)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		at := int64(0)
		for _, o := range p.Offsets {
			b = binary.AppendUvarint(b, uint64(o-at))
			at = o + wordSize
		}
	}
	return b
}

// DecodePatches reads what AppendPatches has written: only what that would write so, sorted, without overlap.
func DecodePatches(b []byte) ([]Patch, error) {
	const most = 1 << 48 // of any number: sums of two have room
	rest, cut := b, false
	next := func() int64 {
		n, k := binary.Uvarint(rest)
		if k <= 0 || n > most {
			cut = true
			return 0
		}
		rest = rest[k:]
		return int64(n)
	}
	var out []Patch
	for len(rest) > 0 && !cut {
		p := Patch{In: Where(min(next(), 255)), Entry: int(next()), Index: int(next())}
		n, at := next(), int64(0)
		if n == 0 || n > int64(len(rest)) {
			return nil, fmt.Errorf("%v: %d words", &p, n)
		}
		p.Offsets = make([]int64, 0, n)
		for range n {
			if at += next(); at > most {
				cut = true
			}
			p.Offsets = append(p.Offsets, at)
			at += wordSize
		}
		if k := len(out); k > 0 && out[k-1].Compare(&p) >= 0 {
			return nil, fmt.Errorf("%v comes after %v", &p, &out[k-1])
		}
		out = append(out, p)
	}
	if cut {
		return nil, errors.New("it is cut short")
	}
	if !bytes.Equal(AppendPatches(nil, out), b) {
		return nil, errors.New("it is not in its canonical form")
	}
	return out, nil
}

// Patches is the words that are addresses, checked against what has them. There are none if the recording is pinned to
// its addresses (Manifest.Relocations is nil). That they are addresses of the recording's memory is checked as they are
// changed.
func (f *File) Patches() ([]Patch, error) {
	if f.from != nil {
		return f.from.Patches()
	}
	list, _, err := f.patches()
	return list, err
}

// patches is Patches, and the work of the entries that have any.
func (f *File) patches() ([]Patch, map[int][]Work, error) {
	if f.Manifest.Relocations == nil {
		return nil, nil, nil
	}
	b, err := f.Read(*f.Manifest.Relocations)
	if err != nil {
		return nil, nil, err
	}
	list, err := DecodePatches(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: relocations: %w", ErrMalformed, err)
	}
	works := map[int][]Work{}
	for i := range list {
		p := &list[i]
		if e := p.Entry; p.In == InLaunch && works[e] == nil && e < len(f.Manifest.Entries) {
			if works[e], err = f.Work(&f.Manifest.Entries[e]); err != nil {
				return nil, nil, err
			}
		}
		if err := f.Manifest.checkPatch(p, works[p.Entry]); err != nil {
			return nil, nil, fmt.Errorf("%w: relocations: %v: %w", ErrMalformed, p, err)
		}
	}
	return list, works, nil
}

// checkPatch holds a patch against what it is of. work is that of its entry, for launches.
func (m *Manifest) checkPatch(p *Patch, work []Work) error {
	switch {
	case p.Entry != 0 && p.In != InInput && p.In != InLaunch:
		return errors.New("it is of no entry")
	case p.In == InRegion && p.Index < len(m.Memory):
		r := &m.Memory[p.Index]
		if r.Contents == nil || r.Addr%wordSize != 0 {
			return errors.New("it has no contents, or is not aligned")
		}
		return r.Contents.checkWords(p.Offsets)
	case p.In == InVariable && p.Index < len(m.Variables):
		return m.Variables[p.Index].Contents.checkWords(p.Offsets)
	case p.In == InInput && p.Entry < len(m.Entries) && p.Index < len(m.Entries[p.Entry].Inputs):
		in := &m.Entries[p.Entry].Inputs[p.Index]
		if in.Recorded == nil {
			return errors.New("nothing was recorded of it")
		}
		return in.Recorded.checkWords(p.Offsets)
	case p.In == InLaunch && p.Index < len(work) && work[p.Index].Launch != nil:
		params := m.Kernels[work[p.Index].Launch.Kernel].Params
		for _, at := range p.Offsets {
			if !slices.ContainsFunc(params, func(q Param) bool { return q.hasWord(at) }) {
				return fmt.Errorf("byte %d of its parameters begins no word of one", at)
			}
		}
		return nil
	}
	return errors.New("there is no such thing")
}

// hasWord reports whether a word of the parameter begins at that byte of all parameters.
func (p *Param) hasWord(at int64) bool {
	in := at - int64(p.Offset)
	return in >= 0 && in%wordSize == 0 && in+wordSize <= int64(p.Size)
}

// checkWords makes sure that aligned words at ascending offsets lie in a blob, and not in its zeros.
func (b *Blob) checkWords(at []int64) error {
	for _, o := range at {
		if o%wordSize != 0 || o+wordSize > b.Bytes || b.Chunks[o/ChunkSize] == Zero {
			return fmt.Errorf("byte %d of %d begins no word, or one of zeros", o, b.Bytes)
		}
	}
	return nil
}

// A fixup adds to words of a blob.
type fixup struct {
	at    []int64
	moved *moved
}

// moved is how the memory of a recording was moved.
type moved struct {
	from  *Manifest // where it was
	delta uint64
}

// apply changes the words in b, which begins at an offset of the blob.
func (x *fixup) apply(b []byte, offset int64) error {
	if x == nil {
		return nil
	}
	i, _ := slices.BinarySearch(x.at, offset)
	for _, at := range x.at[i:] {
		if at >= offset+int64(len(b)) {
			break
		}
		if err := x.moved.word(b[at-offset:]); err != nil {
			return fmt.Errorf("%w: byte %d: %w", ErrMalformed, at, err)
		}
	}
	return nil
}

// word changes one word, which must be an address of the recording's memory, or the one behind its end.
func (x *moved) word(b []byte) error {
	v := binary.LittleEndian.Uint64(b)
	if !x.from.Points(v) {
		return fmt.Errorf("%#x is to be relocated, but is no address of the recording", v)
	}
	binary.LittleEndian.PutUint64(b, v+x.delta)
	return nil
}

// Points reports whether v is an address of the recording's memory, or the one behind the end of a region or of staging
// memory.
func (m *Manifest) Points(v uint64) bool {
	if s := m.Staging; s.Bytes > 0 && v >= uint64(s.Addr) && v-uint64(s.Addr) <= uint64(s.Bytes) {
		return true
	}
	i := m.behind(v) - 1
	return i >= 0 && v-uint64(m.Memory[i].Addr) <= uint64(m.Memory[i].Bytes)
}

// Base is where the recording's memory begins, in the units in which it is mapped, and End where it ends.
func (m *Manifest) Base() Addr {
	lo := m.Staging.Addr
	if len(m.Memory) > 0 {
		lo = min(lo, m.Memory[0].Addr)
	}
	return lo / baseUnit * baseUnit
}

// End is behind the last byte of the recording's memory.
func (m *Manifest) End() Addr {
	hi := m.Staging.Addr + Addr(m.Staging.Bytes)
	if n := len(m.Memory); n > 0 {
		hi = max(hi, m.Memory[n-1].Addr+Addr(m.Memory[n-1].Bytes))
	}
	return hi
}

// At is the recording with its memory at another base: all addresses of the manifest, and all words that are addresses
// of what is read of it, are other ones. It is good until f is closed; to close it does nothing.
//
// What a recording says of its words is believed if each of them is an address of its memory. That there are no others
// is what whoever recorded it has shown.
func (f *File) At(base Addr) (*File, error) {
	if f.from != nil {
		return f.from.At(base)
	}
	m := f.Manifest
	view := &File{Digest: f.Digest, Size: f.Size, InOrder: f.InOrder, r: f.r, dec: f.dec, from: f,
		moved: &moved{m, uint64(base) - uint64(m.Base())}}
	switch {
	case base == m.Base():
		view.Manifest = m
		return view, nil
	case m.Relocations == nil:
		return nil, fmt.Errorf("the recording is pinned to its addresses (from %v on): record it with --relocatable",
			m.Base())
	case base == 0 || base%baseUnit != 0 || base+(m.End()-m.Base()) < base:
		return nil, fmt.Errorf("memory cannot begin at %v: not a multiple of %#x, or there are too few addresses "+
			"behind it", base, baseUnit)
	}
	list, works, err := f.patches()
	if err != nil {
		return nil, err
	}
	view.Manifest = m.moveBy(view.moved, list)
	view.launches = map[string]map[int][]int64{}
	for _, p := range list {
		if p.In != InLaunch {
			continue
		}
		name := m.Entries[p.Entry].Name
		if view.launches[name] == nil {
			view.launches[name] = map[int][]int64{}
		}
		view.launches[name][p.Index] = p.Offsets
	}
	for e, work := range works { // so that it is known now
		if err := view.moved.work(work, view.launches[m.Entries[e].Name]); err != nil {
			return nil, err
		}
	}
	return view, nil
}

// Moved reports whether f is a recording at other addresses than those that it was recorded with.
func (f *File) Moved() bool { return f.moved != nil && f.moved.delta != 0 }

// checkAddresses makes sure that every word of the table is an address of the recording: it moves them nowhere.
func (f *File) checkAddresses() error {
	list, works, err := f.patches()
	if err != nil {
		return err
	}
	stay := &moved{f.Manifest, 0}
	m := f.Manifest.moveBy(stay, list)
	var blobs []Blob
	for _, p := range list {
		switch p.In {
		case InRegion:
			blobs = append(blobs, *m.Memory[p.Index].Contents)
		case InVariable:
			blobs = append(blobs, m.Variables[p.Index].Contents)
		case InInput:
			blobs = append(blobs, *m.Entries[p.Entry].Inputs[p.Index].Recorded)
		case InLaunch:
			if err := stay.work(works[p.Entry], map[int][]int64{p.Index: p.Offsets}); err != nil {
				return err
			}
		}
	}
	return f.Each(blobs, func(int, int64, []byte) error { return nil })
}

// moveBy is the manifest with other addresses. What it shares with m nobody writes.
func (m *Manifest) moveBy(x *moved, list []Patch) *Manifest {
	out := *m
	out.Memory, out.Variables = slices.Clone(m.Memory), slices.Clone(m.Variables)
	out.Staging.Addr += Addr(x.delta)
	out.Entries = slices.Clone(m.Entries)
	for i := range out.Memory {
		out.Memory[i].Addr += Addr(x.delta)
	}
	ports := func(list []Port) []Port {
		list = slices.Clone(list)
		for i := range list {
			list[i].Addr += Addr(x.delta)
		}
		return list
	}
	for i := range out.Entries {
		e := &out.Entries[i]
		e.Inputs, e.Outputs = ports(e.Inputs), ports(e.Outputs)
	}
	fixed := func(b *Blob, p Patch) *Blob {
		c := *b
		c.fix = &fixup{p.Offsets, x}
		return &c
	}
	for _, p := range list {
		switch p.In {
		case InRegion:
			r := &out.Memory[p.Index]
			r.Contents = fixed(r.Contents, p)
		case InVariable:
			v := &out.Variables[p.Index]
			v.Contents = *fixed(&v.Contents, p)
		case InInput:
			in := &out.Entries[p.Entry].Inputs[p.Index]
			in.Recorded = fixed(in.Recorded, p)
		}
	}
	return &out
}

// work changes the addresses of an entry's work; launches says which words of parameters are some.
func (x *moved) work(list []Work, launches map[int][]int64) error {
	for i := range list {
		c := list[i].Copy
		if c == nil {
			continue
		}
		c.Dst += x.delta
		if c.Flags&trace.Set == 0 {
			c.Src += x.delta
		}
	}
	for _, i := range slices.Sorted(maps.Keys(launches)) {
		for _, at := range launches[i] {
			if err := x.word(list[i].Launch.Params[at:]); err != nil {
				return fmt.Errorf("%w: work %d, byte %d of the parameters: %w", ErrMalformed, i, at, err)
			}
		}
	}
	return nil
}
