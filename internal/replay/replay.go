// Package replay runs recordings (package recording) on an engine: memory at the addresses of the recording, its
// contents, the code that ran, and the work in words. Inputs are put where the recording's copies take them from,
// outputs are where they leave them.
//
// Entries of a recording that are read together share memory and code: each finds what those that ran before it have
// left, in whatever order they run. Several players may share a backend, too, if their memory does not overlap
// (recording.File.At): nothing of a backend is a player's but what it made there. What they then share is the
// goroutine, since a backend is for one at a time, and the end: a fault or timeout of one is that of the backend.
//
// A Player runs entries as a whole, a Divided part by part, so that others can have the GPU in between. A Recoverer
// does runs that failed again, with the same bits; SaveState and LoadState take what runs carry on from one process to
// the next.
//
// The package must not import anything of this module but recording, newfile, trace and engine: a replayer is small.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// A Player is a recording, or some entries of it: first what is read of it, then, on a backend, ready to run.
type Player struct {
	Entries []*Entry // those that were asked for, in that order
	Times   Times

	f      *recording.File
	images map[*recording.Image][]byte // until they are loaded
	b      engine.Backend
	mapped []uint64
	codes  []engine.Code
}

// An Entry is one of a player's.
type Entry struct {
	*recording.Entry
	p       *Player
	work    []recording.Work
	program engine.Program
}

// Times is how long the parts of a start took.
type Times struct {
	Read    time.Duration `json:"read"`    // work and code; beside whatever else the caller does
	Memory  time.Duration `json:"memory"`  // mapped and filled
	Code    time.Duration `json:"code"`    // loaded
	Prepare time.Duration `json:"prepare"` // work made ready
}

// Read reads what entries need, but for the contents of memory; none named: the only one that there is. It needs no
// backend, so that one can be opened meanwhile.
func Read(f *recording.File, entries ...string) (*Player, error) {
	begun := time.Now()
	if len(entries) == 0 {
		entries = []string{""}
	}
	p := &Player{f: f}
	for _, name := range entries {
		e := &Entry{p: p}
		var err error
		if e.Entry, err = f.Manifest.Entry(name); err != nil {
			return nil, err
		}
		if e.work, err = f.Work(e.Entry); err != nil {
			return nil, err
		}
		p.Entries = append(p.Entries, e)
	}
	err := p.readImages()
	p.Times.Read = time.Since(begun)
	return p, err
}

// readImages reads the code.
func (p *Player) readImages() error {
	p.images = map[*recording.Image][]byte{}
	var blobs []recording.Blob
	var parts [][]byte
	for _, c := range p.f.Manifest.Code {
		for i := range c.Images {
			blobs = append(blobs, c.Images[i].Contents)
			parts = append(parts, make([]byte, c.Images[i].Contents.Bytes))
			p.images[&c.Images[i]] = parts[len(parts)-1]
		}
	}
	return p.f.Each(blobs, func(i int, offset int64, b []byte) error { copy(parts[i][offset:], b); return nil })
}

// Load puts entries of a recording on a backend; closing that stays the caller's.
func Load(b engine.Backend, f *recording.File, entries ...string) (*Player, error) {
	p, err := Read(f, entries...)
	if err != nil {
		return nil, err
	}
	return p, p.Load(b)
}

// Load does so with what was read.
func (p *Player) Load(b engine.Backend) error { return p.load(b, p.prepare) }

// load does so with another way to make work ready.
func (p *Player) load(b engine.Backend, prepare func() error) error {
	p.b = b
	for _, step := range []struct {
		do   func() error
		took *time.Duration
	}{{p.memory, &p.Times.Memory}, {p.code, &p.Times.Code}, {prepare, &p.Times.Prepare}} {
		begun := time.Now()
		if err := step.do(); err != nil {
			p.Close()
			return err
		}
		*step.took = time.Since(begun)
	}
	return nil
}

// spans is the memory of a recording in units of the engine.
func spans(m *recording.Manifest) []recording.Span {
	var out []recording.Span
	add := func(addr recording.Addr, bytes int64) {
		const unit = engine.Granularity
		from := addr / unit * unit
		to := (addr + recording.Addr(bytes) + unit - 1) / unit * unit
		if n := len(out) - 1; n >= 0 && out[n].Addr+recording.Addr(out[n].Bytes) >= from {
			out[n].Bytes = max(out[n].Bytes, int64(to-out[n].Addr))
			return
		}
		out = append(out, recording.Span{Addr: from, Bytes: int64(to - from)})
	}
	list := slices.Clone(m.Memory)
	if m.Staging.Bytes > 0 {
		list = append(list, recording.Region{Addr: m.Staging.Addr, Bytes: m.Staging.Bytes})
	}
	slices.SortFunc(list, func(a, b recording.Region) int { return cmp.Compare(a.Addr, b.Addr) })
	for _, r := range list {
		add(r.Addr, r.Bytes)
	}
	return out
}

func (p *Player) memory() error {
	m, info := p.f.Manifest, p.b.Info()
	total := uint64(0)
	list := spans(m)
	for _, s := range list {
		total += uint64(s.Bytes)
	}
	if info.Memory > 0 && total > info.Memory {
		return fmt.Errorf("the recording needs %d bytes of device memory, %s has %d", total, info.Name, info.Memory)
	}
	for _, s := range list {
		if err := p.b.Map(uint64(s.Addr), uint64(s.Bytes)); err != nil {
			return fmt.Errorf("the recording's memory at %v (%d bytes): %w", s.Addr, s.Bytes, err)
		}
		p.mapped = append(p.mapped, uint64(s.Addr))
	}
	if err := p.contents(); err != nil {
		return err
	}
	return p.recorded()
}

// contents writes what there was when the first range began.
func (p *Player) contents() error {
	var blobs []recording.Blob
	var at []uint64
	for _, r := range p.f.Manifest.Memory {
		if r.Contents != nil {
			blobs, at = append(blobs, *r.Contents), append(at, uint64(r.Addr))
		}
	}
	return p.write(blobs, at)
}

// recorded writes the inputs that came in.
func (p *Player) recorded() error {
	var blobs []recording.Blob
	var at []uint64
	for _, e := range p.Entries {
		for _, in := range e.Inputs {
			if in.Recorded != nil {
				blobs, at = append(blobs, *in.Recorded), append(at, uint64(in.Addr))
			}
		}
	}
	return p.write(blobs, at)
}

func (p *Player) write(blobs []recording.Blob, at []uint64) error {
	return p.f.Each(blobs, func(i int, offset int64, b []byte) error { return p.b.Write(at[i]+uint64(offset), b) })
}

// code loads the code and puts its variables.
func (p *Player) code() error {
	codes := p.f.Manifest.Code
	p.codes = make([]engine.Code, len(codes))
	errs := make([]error, len(codes))
	load := func(i int) {
		g, err := p.image(&codes[i])
		if err == nil {
			p.codes[i], err = p.b.Load(p.images[g])
		}
		if err != nil {
			p.codes[i] = nil
			errs[i] = fmt.Errorf("code %d (kernel %s and others): %w", i, p.kernelOf(i), err)
		}
	}
	var wg sync.WaitGroup
	for i := range codes {
		if p.b.Info().LoadsAtOnce {
			wg.Go(func() { load(i) })
		} else if load(i); errs[i] != nil {
			break
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.images = nil
	return p.variables()
}

func (p *Player) kernelOf(code int) string {
	for _, k := range p.f.Manifest.Kernels {
		if k.Code == code {
			return k.Name
		}
	}
	return "of none"
}

// image is the image that the backend can run: machine code for its architecture, else PTX.
func (p *Player) image(c *recording.Code) (*recording.Image, error) {
	info := p.b.Info()
	var have []string
	for i := range c.Images {
		g := &c.Images[i]
		have = append(have, fmt.Sprintf("%s for sm_%d", g.Kind, g.Arch))
		switch {
		case g.Kind == recording.Cubin && info.Cubin && g.Arch/10 == info.Arch/10 && g.Arch <= info.Arch:
			return g, nil
		case g.Kind == recording.PTX && info.PTX && g.Arch <= info.Arch:
			return g, nil
		}
	}
	what := "machine code"
	switch {
	case info.PTX && info.Cubin:
		what = "machine code or PTX"
	case info.PTX:
		what = "PTX"
	}
	return nil, fmt.Errorf("%s runs %s for sm_%d, the recording has %v: record it on such a GPU, "+
		"or replay it with another backend",
		info.Name, what, info.Arch, have)
}

func (p *Player) variables() error {
	for _, v := range p.f.Manifest.Variables {
		addr, size, err := p.codes[v.Code].Symbol(v.Name)
		if err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if size != uint64(v.Contents.Bytes) {
			return fmt.Errorf("variable %s: %d bytes in the recording, %d in its code", v.Name, v.Contents.Bytes, size)
		}
		b, err := p.f.Read(v.Contents)
		if err == nil {
			err = p.b.Write(addr, b)
		}
		if err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	return nil
}

func (p *Player) prepare() error {
	kernels, err := p.kernels()
	if err != nil {
		return err
	}
	for _, e := range p.Entries {
		if e.program, err = p.b.Prepare(words(e.work, kernels)); err != nil {
			return err
		}
	}
	return nil
}

// Words is the work, for the player's backend, once there is code.
func (e *Entry) Words() ([]engine.Word, error) {
	kernels, err := e.p.kernels()
	if err != nil {
		return nil, err
	}
	return words(e.work, kernels), nil
}

// kernels are those of the manifest. What the code says of their parameters must be what the recording says.
func (p *Player) kernels() ([]engine.Kernel, error) {
	var out []engine.Kernel
	for _, k := range p.f.Manifest.Kernels {
		e, err := p.codes[k.Code].Kernel(k.Name)
		if err != nil {
			return nil, err
		}
		same := slices.EqualFunc(e.Params(), k.Params, func(a engine.Param, b recording.Param) bool {
			return int(a.Offset) == b.Offset && int(a.Size) == b.Size
		})
		if !same {
			return nil, fmt.Errorf("kernel %s: its parameters are %v in the code, %v in the recording", k.Name,
				e.Params(), k.Params)
		}
		out = append(out, e)
	}
	return out, nil
}

// words puts each piece of work into the first word in which all that it comes after is complete.
func words(work []recording.Work, kernels []engine.Kernel) []engine.Word {
	level := make([]int, len(work))
	var out []engine.Word
	for i, w := range work {
		for _, a := range w.After {
			level[i] = max(level[i], level[a]+1)
		}
		for len(out) <= level[i] {
			out = append(out, engine.Word{})
		}
		to := &out[level[i]]
		to.Ops = append(to.Ops, opOf(w, kernels))
	}
	return out
}

func opOf(w recording.Work, kernels []engine.Kernel) engine.Op {
	if l := w.Launch; l != nil {
		cluster := l.Cluster
		if cluster == [3]uint32{1, 1, 1} {
			cluster = [3]uint32{}
		}
		return engine.Op{Launch: &engine.Launch{Kernel: kernels[l.Kernel], Grid: l.Grid, Block: l.Block,
			Cluster: cluster, Shared: l.Shared,
			Params: l.Params, Cooperative: l.Flags&trace.Cooperative != 0}}
	}
	c := w.Copy
	if c.Flags&trace.Set != 0 {
		return engine.Op{Set: &engine.Set{Dst: c.Dst, Pitch: c.DstPitch, Width: c.Width / c.SrcPitch,
			Height: c.Height, Value: uint32(c.Src),
			Size: int(c.SrcPitch)}}
	}
	return engine.Op{Copy: &engine.Copy{Dst: c.Dst, Src: c.Src, DstPitch: c.DstPitch, SrcPitch: c.SrcPitch,
		Width: c.Width, Height: c.Height}}
}

// SetInput gives an input its bytes. One that is given none has those of the recording.
func (e *Entry) SetInput(name string, b []byte) error {
	in, err := recording.FindInput(e.Inputs, name, len(b))
	if err != nil {
		return err
	}
	return e.p.b.Write(uint64(in.Addr), b)
}

// Output reads what the entry's last run has left in an output.
func (e *Entry) Output(name string) ([]byte, error) {
	out, err := recording.FindPort(e.Outputs, name)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	b := make([]byte, out.Bytes)
	return b, e.p.b.Read(uint64(out.Addr), b)
}

// Run does what was recorded once more, with memory as the last run of any entry has left it.
func (e *Entry) Run(timeout time.Duration) error { return e.program.Run(timeout) }

// Reset puts memory and variables back to what they were when the first range began. Inputs stay as they are.
func (p *Player) Reset() error {
	for _, r := range p.f.Manifest.Memory {
		if r.Contents == nil {
			continue
		}
		if err := p.zero(r); err != nil {
			return err
		}
	}
	if err := p.contents(); err != nil {
		return err
	}
	return p.restoreCode()
}

// restoreCode puts variables back, also those that the recording does not name, where the backend knows them.
func (p *Player) restoreCode() error {
	for _, c := range p.codes {
		if c, ok := c.(engine.Stateful); ok {
			if err := c.Restore(); err != nil {
				return err
			}
		}
	}
	return p.variables()
}

// zero clears the chunks of a region that have no contents in the file: fill writes the others.
func (p *Player) zero(r recording.Region) error {
	for i, c := range r.Contents.Chunks {
		if c != recording.Zero {
			continue
		}
		at := int64(i) * recording.ChunkSize
		if err := p.b.Write(uint64(r.Addr)+uint64(at), make([]byte, min(recording.ChunkSize, r.Bytes-at))); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of what Load made on the backend.
func (p *Player) Close() error {
	var all []error
	for _, e := range p.Entries {
		if e.program != nil {
			all = append(all, e.program.Close())
		}
		e.program = nil
	}
	for _, c := range p.codes {
		if c != nil {
			all = append(all, c.Close())
		}
	}
	for _, at := range p.mapped {
		all = append(all, p.b.Unmap(at))
	}
	p.codes, p.mapped = nil, nil
	return errors.Join(all...)
}
