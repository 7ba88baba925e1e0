// Package verify says of a recording, before anything of it runs, whether its work keeps to the memory that the
// recording declares: regions and staging memory. A recording is outside input, and its launches could write anywhere
// in the address space of whoever replays it.
//
// Every piece of work has a [Level]. Copies and sets are looked at exactly. A launch is proven if its code is PTX, and
// if the footprint of that (package footprint) with these arguments has bounds that lie in declared memory. Of any
// other launch only the arguments are looked at: what looks like an address must point into declared memory; that is
// no proof, and the report names the kernels that rest on it. What goes outside is refused, and so is what no
// recording needs: code that calls the host, launches kernels, or uses textures.
//
// Footprints take some things on trust that compilers keep to (docs/foresee.md, "What is assumed"). Here the code is
// outside input too, so a kernel that could break one of them is not proven, whatever its footprint (trust.go).
//
// The package touches no device. It must not import an engine, a replayer, or the software GPU, which its tests hold
// it against.
package verify

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode"

	"holdfast/internal/footprint"
	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// A Level is how much is known of a piece of work.
type Level uint8

// The levels, from the worst.
const (
	Refused     Level = iota // it may leave the memory of the recording, or asks for something that none needs
	ByArguments              // what it is given points into that memory; what it does with that is not known
	Proven                   // it touches nothing else, whatever memory holds
)

var levelNames = [...]string{"refused", "by-arguments", "proven"}

// String is the level as one word.
func (l Level) String() string { return levelNames[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// An Item is one piece of work.
type Item struct {
	Entry  int    `json:"entry"`  // in Manifest.Entries
	Work   int    `json:"work"`   // its number in the entry
	Kind   string `json:"kind"`   // launch, copy, set
	Kernel int    `json:"kernel"` // of a launch: in Manifest.Kernels; else -1
	Level  Level  `json:"level"`
	Reason string `json:"reason"` // why it is not proven

	// Reads and Writes are the bytes that it may touch, [lo, hi), sorted and disjoint, if it is proven.
	Reads  []footprint.Range `json:"-"`
	Writes []footprint.Range `json:"-"`
	// Relied is memory that the proof takes to hold what the recording says; nothing of the recording writes it.
	Relied []footprint.Range `json:"-"`

	launch *trace.Launch
}

// A Kernel sums up the launches of one kernel.
type Kernel struct {
	Name     string `json:"name"`
	Launches int    `json:"launches"`
	Proven   int    `json:"proven"`
	Refused  int    `json:"refused"`
	Reason   string `json:"reason"` // why launches are not proven: that of the first
}

// A Region is a region of the recording's memory.
type Region struct {
	Addr  recording.Addr `json:"addr"`
	Bytes int64          `json:"bytes"`
	Class string         `json:"class"`
	// Written says whether any work writes it: "never", "perhaps", or "unknown" if launches rest on their arguments.
	Written string `json:"written"`
}

// The values of Region.Written.
const (
	Never   = "never"
	Perhaps = "perhaps"
	Unknown = "unknown"
)

// A Report is what is known of a recording.
type Report struct {
	Digest      recording.Digest `json:"manifest"` // of what this is about
	Launches    int              `json:"launches"`
	Copies      int              `json:"copies"` // and sets
	Proven      int              `json:"proven"` // launches
	ByArguments int              `json:"by_arguments"`
	Refused     int              `json:"refused"` // launches, copies and sets
	Memory      int64            `json:"memory_bytes"`
	Kernels     []Kernel         `json:"kernels"` // in the order of the manifest
	Regions     []Region         `json:"regions"`
	Items       []Item           `json:"items"` // all work, in its order
}

// ErrRefused is wrapped by the error of a recording that is whole and must not be replayed.
var ErrRefused = errors.New("the recording is refused")

// Err is nil if the recording may be replayed; strict asks that all of its launches are proven.
func (r *Report) Err(strict bool) error {
	worst := Refused
	if strict {
		worst = ByArguments
	}
	n := r.Refused
	if strict {
		n += r.ByArguments
	}
	if n == 0 {
		return nil
	}
	i := slices.IndexFunc(r.Items, func(x Item) bool { return x.Level <= worst })
	x := &r.Items[i]
	more := ""
	if n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return fmt.Errorf("%w: %s%s", ErrRefused, r.Describe(x), more)
}

// Describe names a piece of work, and says why it is not proven.
func (r *Report) Describe(x *Item) string {
	s := fmt.Sprintf("work %d", x.Work)
	if x.Entry > 0 {
		s += fmt.Sprintf(" of entry %d", x.Entry)
	}
	if x.Kernel >= 0 {
		s += ", kernel " + Shorten(r.Kernels[x.Kernel].Name)
	} else {
		s += ", a " + x.Kind
	}
	return s + ": " + x.Reason
}

// Shorten is the name of a kernel for a message: names may have thousands of bytes, and may come from anybody.
func Shorten(name string) string {
	const most = 120
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name[:min(len(name), most)])
	if len(name) > most {
		text += "…"
	}
	return text
}

// A checker looks at one recording.
type checker struct {
	f       *recording.File
	m       *recording.Manifest
	memory  []footprint.Range // regions and staging: sorted, disjoint, joined where they touch
	fixed   []footprint.Range // of that, what the recording says nothing writes
	window  footprint.Range   // addresses that a word is taken for one in (args.go)
	kernels []*kernel
	report  *Report
	inst    footprint.Instance
}

// Verify looks at every piece of work of a recording. Its error says that the file is damaged, or larger than any
// recording is; what is wrong with a piece of work is in the report.
func Verify(f *recording.File) (*Report, error) {
	if err := bounded(f.Manifest); err != nil {
		return nil, err
	}
	if err := f.Verify(); err != nil {
		return nil, err
	}
	if f.Manifest.Relocations == nil || f.Moved() {
		return check(f)
	}
	return checkBoth(f)
}

// checkBoth looks at a recording that can be relocated where it was recorded and at other addresses, so far away that
// an address which was forgotten points nowhere. What is known of a piece of work is the less of both.
func checkBoth(f *recording.File) (*Report, error) {
	c, err := look(f)
	if err != nil {
		return nil, err
	}
	m := f.Manifest
	const more = 0x12_3460_0000 // in no word an address turns into a number by it, or back
	far := (m.End() - m.Base() + more) / engineUnit * engineUnit
	at := m.Base() + far
	if m.End()+far > topAddress {
		at = m.Base() - far
	}
	there, err := f.At(at)
	if err != nil {
		return nil, err
	}
	if err := bounded(there.Manifest); err != nil {
		return nil, err
	}
	other, err := look(there)
	if err != nil {
		return nil, err
	}
	for i := range c.report.Items {
		x, y := &c.report.Items[i], &other.report.Items[i]
		if y.Level < x.Level {
			x.Level, x.Reason = y.Level, fmt.Sprintf("with its memory from %v on: %s", at, y.Reason)
			x.Reads, x.Writes, x.Relied = nil, nil, nil
		}
	}
	c.sum()
	return c.report, nil
}

// Constants are the live regions, by their places in the manifest, that no work of a recording writes: those that
// whoever records it may declare to be constant. There are none unless every launch is proven.
func Constants(f *recording.File) (list []int) {
	for _, k := range f.Manifest.Kernels {
		if slices.ContainsFunc(f.Manifest.Code[k.Code].Images, func(g recording.Image) bool {
			return g.Kind != recording.PTX
		}) {
			return nil
		}
	}
	if bounded(f.Manifest) != nil {
		return nil
	}
	r, err := check(f)
	if err != nil || r.Err(true) != nil {
		return nil
	}
	for i, g := range r.Regions {
		if g.Class == recording.Live && g.Written == Never {
			list = append(list, i)
		}
	}
	return list
}

// check looks at the work of a recording whose chunks are good.
func check(f *recording.File) (*Report, error) {
	c, err := look(f)
	if err != nil {
		return nil, err
	}
	c.sum()
	return c.report, nil
}

// look is check without the sums.
func look(f *recording.File) (*checker, error) {
	c := &checker{f: f, m: f.Manifest, report: &Report{Digest: f.Digest, Kernels: []Kernel{}, Regions: []Region{},
		Items: []Item{}}}
	c.declare()
	if err := c.code(); err != nil {
		return nil, err
	}
	for i := range c.m.Entries {
		work, err := f.Work(&c.m.Entries[i])
		if err != nil {
			return nil, err
		}
		if len(c.report.Items)+len(work) > maxWork {
			return nil, fmt.Errorf("entry %s: more than %d pieces of work", c.m.Entries[i].Name, maxWork)
		}
		for k := range work {
			c.add(i, k, &work[k])
		}
	}
	return c, c.know()
}

// declare notes where the recording's memory is.
func (c *checker) declare() {
	add := func(addr recording.Addr, n int64) {
		if n > 0 {
			c.memory = append(c.memory, footprint.Range{Lo: uint64(addr), Hi: uint64(addr) + uint64(n)})
		}
	}
	for _, r := range c.m.Memory {
		if r.Class == recording.Constant {
			add(r.Addr, r.Bytes)
		}
	}
	c.fixed, c.memory = footprint.Merge(c.memory), nil
	for _, r := range c.m.Memory {
		add(r.Addr, r.Bytes)
	}
	add(c.m.Staging.Addr, c.m.Staging.Bytes)
	c.memory = footprint.Merge(c.memory)
	c.window = window(c.memory)
}

// holds reports whether all of a range is the recording's memory.
func (c *checker) holds(r footprint.Range) bool { return inside(c.memory, r) }

func (c *checker) add(entry, number int, w *recording.Work) {
	x := Item{Entry: entry, Work: number, Kernel: -1, Level: Proven}
	if w.Launch != nil {
		x.Kind, x.Kernel, x.launch = "launch", int(w.Launch.Kernel), w.Launch
		c.launch(&x, nil)
	} else {
		c.copied(&x, w.Copy)
	}
	c.report.Items = append(c.report.Items, x)
}

// copied looks at a copy or a set. The reader has held its rows against the manifest; this is the same question asked
// in another way.
func (c *checker) copied(x *Item, t *trace.Copy) {
	x.Kind = "copy"
	if t.Flags&trace.Set != 0 {
		x.Kind = "set"
	} else {
		x.Reads = []footprint.Range{hull(t.Src, t.SrcPitch, t)}
	}
	x.Writes = []footprint.Range{hull(t.Dst, t.DstPitch, t)}
	if why := c.outside(x.Reads, x.Writes); why != "" {
		x.refuse("%s", why)
	}
}

// hull is the range around all rows of a copy: to the end of all addresses if it does not fit.
func hull(at, pitch uint64, t *trace.Copy) footprint.Range {
	high, low := bits.Mul64(t.Height-1, pitch)
	end, carry := bits.Add64(at, t.Width, high)
	end, carry2 := bits.Add64(end, low, carry)
	if high|carry|carry2 != 0 {
		end = ^uint64(0)
	}
	return footprint.Range{Lo: at, Hi: end}
}

// outside says what of a piece of work goes outside of the recording's memory, or writes what is constant; "" if
// nothing does.
func (c *checker) outside(reads, writes []footprint.Range) string {
	for _, r := range writes {
		if meets(c.fixed, r) {
			return fmt.Sprintf("it writes %s, some of which the recording says is constant", text(r))
		}
		if !c.holds(r) {
			return fmt.Sprintf("it writes %s, which is not all memory of the recording", text(r))
		}
	}
	for _, r := range reads {
		if !c.holds(r) {
			return fmt.Sprintf("it reads %s, which is not all memory of the recording", text(r))
		}
	}
	return ""
}

func (x *Item) refuse(format string, args ...any) {
	x.Level, x.Reason = Refused, fmt.Sprintf(format, args...)
	x.Reads, x.Writes, x.Relied = nil, nil, nil
}

func text(r footprint.Range) string { return fmt.Sprintf("%#x to %#x", r.Lo, r.Hi-1) }

// sum counts, and says of each region whether it is written.
func (c *checker) sum() {
	r := c.report
	for _, k := range c.m.Kernels {
		r.Kernels = append(r.Kernels, Kernel{Name: k.Name})
	}
	var writes []footprint.Range
	unknown := false
	for i := range r.Items {
		x := &r.Items[i]
		writes = append(writes, x.Writes...)
		unknown = unknown || x.Level != Proven
		if x.Level == Refused {
			r.Refused++
		}
		if x.Kernel < 0 {
			r.Copies++
			continue
		}
		k := &r.Kernels[x.Kernel]
		r.Launches++
		k.Launches++
		switch x.Level {
		case Proven:
			r.Proven++
			k.Proven++
			continue
		case ByArguments:
			r.ByArguments++
		default:
			k.Refused++
		}
		if k.Reason == "" {
			k.Reason = x.Reason
		}
	}
	writes = footprint.Merge(writes)
	for _, g := range c.m.Memory {
		written := Never
		switch {
		case meets(writes, footprint.Range{Lo: uint64(g.Addr), Hi: uint64(g.Addr) + uint64(g.Bytes)}):
			written = Perhaps
		case unknown:
			written = Unknown
		}
		r.Regions = append(r.Regions, Region{Addr: g.Addr, Bytes: g.Bytes, Class: g.Class, Written: written})
		r.Memory += g.Bytes
	}
	r.Memory += c.m.Staging.Bytes
}
