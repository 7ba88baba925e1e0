// Package relocate finds out which words of a recording are addresses of its memory: from two recordings of one
// program, of which the second has all memory elsewhere, by one and the same distance.
//
// A word of eight bytes is an address if it lies in the recording's memory, or right behind a part of it, and if the
// second recording has there the same word and the distance. A word that is equal in both is a number. What else
// differs in the parameters of a launch pins the recording to its addresses, but for addresses of the host. What else
// differs in memory is data if it is nothing that looks as if it had been made from an address (see suspicious); such
// data is taken as it was in the first recording, and counted.
//
// What is assumed: that the program would compute the same with its memory at any other distance that is a multiple of
// 2 MiB; and that whatever has an address has it as such a word, or in one of the forms that are looked for.
//
// The package is pure. It must not import anything of this module but recording and trace.
package relocate

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// A Pinned is why a recording keeps to its addresses.
type Pinned struct{ Reason string }

func (p *Pinned) Error() string { return p.Reason }

func pinned(format string, args ...any) error { return &Pinned{fmt.Sprintf(format, args...)} }

const (
	wordSize = 8
	unitBits = 21
	unit     = 1 << unitBits // in which memory is mapped, and so moves
	// Addresses of a program on the host. Libraries hand such to kernels that do not use them; package verify takes
	// them for the same.
	hostFrom, hostTo = 1 << 46, 1 << 47
)

// A Table is what is found.
type Table struct {
	Patches []recording.Patch
	Differs int64 // bytes of memory, in words, that differ and are data
}

// A comparison is of two recordings.
type comparison struct {
	a, b   *recording.File
	delta  uint64
	lo, hi uint64 // around a's memory
	table  Table
}

// Find compares two recordings. Its error is a *Pinned, or says that a file cannot be read.
func Find(a, b *recording.File) (*Table, error) {
	c := &comparison{a: a, b: b, lo: uint64(a.Manifest.Base()), hi: uint64(a.Manifest.End())}
	c.delta = uint64(b.Manifest.Base()) - c.lo
	for i := range a.Manifest.Entries {
		if err := c.entry(i); err != nil {
			return nil, err
		}
	}
	for _, step := range []func() error{c.moved, c.same, c.launches, c.contents} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.table.Patches, func(p, q recording.Patch) int { return p.Compare(&q) })
	return &c.table, nil
}

// entry compares what entry i does, but for addresses and parameters.
func (c *comparison) entry(i int) error {
	a := &c.a.Manifest.Entries[i]
	b, err := c.b.Manifest.Entry(a.Name)
	if err != nil || len(c.b.Manifest.Entries) != len(c.a.Manifest.Entries) {
		return pinned("the second run has other ranges")
	}
	was, err := c.a.Work(a)
	if err != nil {
		return err
	}
	is, err := c.b.Work(b)
	if err != nil {
		return err
	}
	for k := range min(len(was), len(is)) {
		if !c.alike(&was[k], &is[k]) {
			return pinned("entry %s, work %d: %s in the first run, %s in the second", a.Name, k,
				describe(c.a.Manifest, &was[k]), describe(c.b.Manifest, &is[k]))
		}
	}
	if len(was) != len(is) {
		return pinned("entry %s: %d pieces of work in the first run, %d in the second", a.Name, len(was), len(is))
	}
	return nil
}

// alike compares two pieces of work, but for addresses and parameters.
func (c *comparison) alike(a, b *recording.Work) bool {
	if !slices.Equal(a.After, b.After) || (a.Launch == nil) != (b.Launch == nil) {
		return false
	}
	if a.Launch == nil {
		x, y := *a.Copy, *b.Copy
		if x.Flags&trace.Set == 0 {
			x.Src, y.Src = 0, 0
		}
		x.Dst, y.Dst = 0, 0
		return x == y
	}
	x, y := *a.Launch, *b.Launch
	sameSize := len(x.Params) == len(y.Params)
	x.Params, y.Params = nil, nil
	return sameSize && c.a.Manifest.Kernels[x.Kernel].Name == c.b.Manifest.Kernels[y.Kernel].Name &&
		reflect.DeepEqual(x, y)
}

func describe(m *recording.Manifest, w *recording.Work) string {
	if l := w.Launch; l != nil {
		return fmt.Sprintf("%.80s with grid %v, block %v", m.Kernels[l.Kernel].Name, l.Grid, l.Block)
	}
	if w.Copy.Flags&trace.Set != 0 {
		return fmt.Sprintf("a set of %d × %d bytes to %d", w.Copy.Width, w.Copy.Height, w.Copy.Src)
	}
	return fmt.Sprintf("a copy of %d × %d bytes", w.Copy.Width, w.Copy.Height)
}

// moved makes sure that all memory is elsewhere by one distance, which shows in both halves of a word.
func (c *comparison) moved() error {
	a, b := c.a.Manifest, c.b.Manifest
	far := c.delta
	if far>>63 != 0 {
		far = -far
	}
	if far%unit != 0 || far < c.hi-c.lo || uint32(far) == 0 || far>>32 == 0 {
		return pinned("its memory was at %v in the first run and at %v in the second: not far enough from each other "+
			"to tell addresses from numbers; the driver did not take the addresses that it was asked for", a.Base(),
			b.Base())
	}
	regions := func(m *recording.Manifest, delta uint64) (list []recording.Region) {
		list = slices.Clone(m.Memory)
		for i := range list {
			list[i].Addr, list[i].Contents = list[i].Addr+recording.Addr(delta), nil
		}
		return list
	}
	was, is := regions(a, c.delta), regions(b, 0)
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			return pinned("memory at %v (%d bytes, %s) is at %v (%d bytes, %s) in the second run, not %#x further",
				a.Memory[i].Addr, was[i].Bytes, was[i].Class, is[i].Addr, is[i].Bytes, is[i].Class, c.delta)
		}
	}
	if len(was) != len(is) || a.Staging.Bytes != b.Staging.Bytes ||
		uint64(b.Staging.Addr-a.Staging.Addr) != c.delta {
		return pinned("it has %d regions of memory in the first run, %d in the second", len(was), len(is))
	}
	return nil
}

// same compares code, kernels, inputs and outputs, and where copies go.
func (c *comparison) same() error {
	a, b := c.a.Manifest, c.b.Manifest
	if !reflect.DeepEqual(a.Kernels, b.Kernels) || len(a.Code) != len(b.Code) || a.Arch != b.Arch {
		return pinned("the second run has other kernels")
	}
	for i := range a.Code {
		x, y := a.Code[i].Images, b.Code[i].Images
		same := slices.EqualFunc(x, y, func(g, h recording.Image) bool {
			return g.Arch == h.Arch && g.Kind == h.Kind && c.equal(g.Contents, h.Contents)
		})
		if !same {
			return pinned("code %d is another in the second run: it may have addresses in it", i)
		}
	}
	for i := range a.Entries {
		x, y := &a.Entries[i], &b.Entries[i]
		if x.Name != y.Name || !c.ports(x.Inputs, y.Inputs) || !c.ports(x.Outputs, y.Outputs) {
			return pinned("entry %s has other inputs or outputs in the second run", x.Name)
		}
	}
	same := slices.EqualFunc(a.Variables, b.Variables, func(v, w recording.Variable) bool {
		return v.Code == w.Code && v.Name == w.Name && v.Contents.Bytes == w.Contents.Bytes
	})
	if !same {
		return pinned("the second run has other variables of modules")
	}
	return nil
}

func (c *comparison) ports(a, b []recording.Port) bool {
	return slices.EqualFunc(a, b, func(p, q recording.Port) bool {
		return p.Addr+recording.Addr(c.delta) == q.Addr && p.Bytes == q.Bytes && p.DType == q.DType &&
			p.Name == q.Name && slices.Equal(p.Shape, q.Shape) && (p.Recorded == nil) == (q.Recorded == nil)
	})
}

// equal compares blobs by the digests of their chunks.
func (c *comparison) equal(x, y recording.Blob) bool {
	return x.Bytes == y.Bytes && slices.EqualFunc(x.Chunks, y.Chunks, c.equalChunks)
}

func (c *comparison) equalChunks(i, k int) bool {
	if i == recording.Zero || k == recording.Zero {
		return i == k
	}
	return c.a.Manifest.Chunks[i].SHA256 == c.b.Manifest.Chunks[k].SHA256
}

// launches compares parameters, and addresses of copies.
func (c *comparison) launches() error {
	for e := range c.a.Manifest.Entries {
		name := c.a.Manifest.Entries[e].Name
		was, err := c.a.Work(&c.a.Manifest.Entries[e])
		if err != nil {
			return err
		}
		is, err := c.b.Work(&c.b.Manifest.Entries[e])
		if err != nil {
			return err
		}
		for i := range was {
			if l := was[i].Launch; l != nil {
				at, err := c.params(l, is[i].Launch.Params)
				if err != nil {
					return pinned("entry %s, work %d, kernel %.80s: %v", name, i,
						c.a.Manifest.Kernels[l.Kernel].Name, err)
				}
				c.add(recording.Patch{In: recording.InLaunch, Entry: e, Index: i, Offsets: at})
				continue
			}
			x, y := was[i].Copy, is[i].Copy
			if x.Dst+c.delta != y.Dst || x.Flags&trace.Set == 0 && x.Src+c.delta != y.Src {
				return pinned("entry %s, work %d: a copy from %#x to %#x is one from %#x to %#x in the second run",
					name, i, x.Src, x.Dst, y.Src, y.Dst)
			}
		}
	}
	return nil
}

func (c *comparison) add(p recording.Patch) {
	if len(p.Offsets) > 0 {
		c.table.Patches = append(c.table.Patches, p)
	}
}

// params finds the addresses in parameters, by their layout. All else must be equal.
func (c *comparison) params(l *trace.Launch, is []byte) (at []int64, err error) {
	le := binary.LittleEndian
	rest := slices.Clone(l.Params) // what the words that were dealt with have in the second run, too
	for _, p := range c.a.Manifest.Kernels[l.Kernel].Params {
		for k := p.Offset; k+wordSize <= p.Offset+p.Size; k += wordSize {
			x, y := le.Uint64(l.Params[k:]), le.Uint64(is[k:])
			switch {
			case x == y:
				continue
			case y-x == c.delta && c.a.Manifest.Points(x):
				at = append(at, int64(k))
			case !host(x) || !host(y):
				return nil, fmt.Errorf("byte %d of its parameters is %#x in the first run, %#x in the second, "+
					"which is no address that was moved", k, x, y)
			}
			le.PutUint64(rest[k:], y)
		}
	}
	for i := range rest {
		if rest[i] != is[i] {
			return nil, fmt.Errorf("byte %d of its parameters is %#x in the first run, %#x in the second", i, rest[i],
				is[i])
		}
	}
	slices.Sort(at)
	return at, nil
}

func host(v uint64) bool { return v >= hostFrom && v < hostTo }

// contents compares what regions, variables and inputs hold.
func (c *comparison) contents() error {
	a, b := c.a.Manifest, c.b.Manifest
	for i := range a.Memory {
		x, y := a.Memory[i].Contents, b.Memory[i].Contents
		if x == nil {
			continue
		}
		at, err := c.blobs(*x, *y, uint64(a.Memory[i].Addr)%wordSize == 0)
		if err != nil {
			return named(err, fmt.Sprintf("memory at %v", a.Memory[i].Addr))
		}
		c.add(recording.Patch{In: recording.InRegion, Index: i, Offsets: at})
	}
	for i := range a.Variables {
		at, err := c.blobs(a.Variables[i].Contents, b.Variables[i].Contents, true)
		if err != nil {
			return named(err, "variable "+a.Variables[i].Name)
		}
		c.add(recording.Patch{In: recording.InVariable, Index: i, Offsets: at})
	}
	for e := range a.Entries {
		for i := range a.Entries[e].Inputs {
			x, y := &a.Entries[e].Inputs[i], &b.Entries[e].Inputs[i]
			if x.Recorded == nil {
				continue
			}
			at, err := c.blobs(*x.Recorded, *y.Recorded, true)
			if err != nil {
				return named(err, "entry "+a.Entries[e].Name+", input "+x.Name)
			}
			c.add(recording.Patch{In: recording.InInput, Entry: e, Index: i, Offsets: at})
		}
	}
	return nil
}

// named says what an error is of.
func named(err error, what string) error {
	if p, ok := err.(*Pinned); ok {
		return pinned("%s: %s", what, p.Reason)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// blobs finds the addresses in what two blobs hold. In one that is not aligned there may be none.
func (c *comparison) blobs(x, y recording.Blob, aligned bool) (at []int64, err error) {
	for i := range x.Chunks {
		if c.equalChunks(x.Chunks[i], y.Chunks[i]) {
			continue
		}
		// With what surrounds it, so that what lies across the border is seen.
		from := int64(i) * recording.ChunkSize
		lo, hi := max(0, from-wordSize), min(x.Bytes, from+recording.ChunkSize+wordSize)
		was, err := c.a.ReadAt(x, lo, hi-lo)
		if err != nil {
			return nil, err
		}
		is, err := c.b.ReadAt(y, lo, hi-lo)
		if err != nil {
			return nil, err
		}
		for k := from - lo; k < min(from+recording.ChunkSize, x.Bytes)-lo; k += wordSize {
			found, err := c.word(was, is, int(k))
			if err == nil && found && !aligned {
				err = pinned("it is not aligned, and has an address at byte %d", lo+k)
			}
			if err != nil {
				return nil, named(err, fmt.Sprintf("byte %d", lo+k))
			}
			if found {
				at = append(at, lo+k)
			}
		}
	}
	return at, nil
}

// word compares the word at byte k, which may be cut short by the end. It reports whether it is an address.
func (c *comparison) word(was, is []byte, k int) (bool, error) {
	end := min(k+wordSize, len(was))
	if slices.Equal(was[k:end], is[k:end]) {
		return false, nil
	}
	if end-k == wordSize {
		x, y := binary.LittleEndian.Uint64(was[k:]), binary.LittleEndian.Uint64(is[k:])
		if y-x == c.delta && c.a.Manifest.Points(x) {
			return true, nil
		}
	}
	if what := c.suspicious(was, is, k); what != "" {
		return false, pinned("%s", what)
	}
	c.table.Differs += int64(end - k)
	return false, nil
}

// suspicious says why the word at byte k, which differs, may have been made from an address; "" if nothing speaks for
// it. Eight bytes from any byte on that has a part in the word may be an address of either run, or be moved by the
// distance; the word may be an address in larger units, or one of its halves half of an address.
func (c *comparison) suspicious(was, is []byte, k int) string {
	le := binary.LittleEndian
	for at := max(0, k-wordSize+1); at < k+wordSize && at+wordSize <= len(was); at++ {
		x, y := le.Uint64(was[at:]), le.Uint64(is[at:])
		if c.near(x) || c.near(y-c.delta) || y-x == c.delta {
			return fmt.Sprintf("it may have an address, which is not one of the recording's memory or not a word of "+
				"its own (%#x in the first run, %#x in the second)", x, y)
		}
	}
	if k+wordSize <= len(was) {
		x, y := le.Uint64(was[k:]), le.Uint64(is[k:])
		for shift := 1; shift <= unitBits; shift++ {
			if d := int64(c.delta) >> shift; y-x == uint64(d) {
				return fmt.Sprintf("it may have an address in units of %d bytes (%#x in the first run, %#x in the "+
					"second)", 1<<shift, x, y)
			}
		}
	}
	for at := k; at < k+wordSize && at+4 <= len(was); at += 4 {
		x, y := le.Uint32(was[at:]), le.Uint32(is[at:])
		high := uint64(x)<<32 >= c.lo>>32<<32 && uint64(x)<<32 <= c.hi
		if d := y - x; d == uint32(c.delta) || high && (d == uint32(c.delta>>32) || d == uint32(c.delta>>32)+1) {
			return fmt.Sprintf("it may have half of an address (%#x in the first run, %#x in the second)", x, y)
		}
		for shift := 1; shift <= unitBits; shift++ {
			if y-x == uint32(int64(c.delta)>>shift) {
				return fmt.Sprintf("it may have part of an address in units of %d bytes (%#x in the first run, %#x in "+
					"the second)", 1<<shift, x, y)
			}
		}
	}
	return ""
}

// near reports whether v lies between the first and the last address of the first run.
func (c *comparison) near(v uint64) bool { return v >= c.lo && v <= c.hi }
