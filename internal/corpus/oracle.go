package corpus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// A Truth is what executing a launch has shown.
type Truth uint8

// A launch is not idempotent if a byte that is live into it is clobbered: some thread reads it, and it is overwritten
// after that read, or unordered with it, with a different value. The oracle is explicit about the edges of
// this definition.
//
//   - A byte is clobbered when the Observer has it as Exposed and Written. Reductions are set apart: where every
//     instruction that read the byte is an atomic min, max, and or or whose result nobody reads, all of one operation
//     and type, repetition changes nothing and the byte is not clobbered. An exch whose result nobody reads is a write.
//   - If no byte is clobbered and no re-execution differs, the launch is Idempotent.
//   - If a clobbered byte has changed at the end of the launch, or a re-execution differs, or the launch
//     prints, it is NotIdempotent. A counter that ends where it began is NotIdempotent when a launch that
//     stopped in the middle shows it.
//   - Otherwise bytes were read and overwritten, but with the values that they held, in this run: Undecided. It
//     may be luck (adding zero) or certain (copying to itself), which one run cannot tell. A verdict "idempotent"
//     is then counted as false, because nothing has confirmed it; a verdict "not idempotent" is not counted as false.
const (
	Idempotent Truth = iota + 1
	NotIdempotent
	Undecided
)

func (t Truth) String() string {
	return [...]string{"not executed", "idempotent", "not idempotent", "undecided"}[t]
}

// A Finding is what the oracle knows of a launch after executing it.
type Finding struct {
	Truth     Truth
	Why       string  // for people
	Reads     []Range // bytes read and written, sorted
	Writes    []Range
	Exposed   []Range   // read with no write before that read in the same block
	Clobbered []Clobber // exposed and written, without reductions
	Stray     []Range   // accessed, but in no buffer that the launch reaches
	Variables Range     // where the variables of the module lie
	Prefixes  int       // re-executions
	Differ    int       // of them, how many ended with other contents
	Stats     softgpu.Stats
}

// A Clobber is a range that is read, and written, with the instructions that do so.
type Clobber struct {
	Range
	Lines   []int // of the PTX; 0 = an asynchronous copy
	Changed bool  // a byte of it holds something else afterwards
}

// JudgeOptions say how much the oracle does.
type JudgeOptions struct {
	Prefixes        int    // re-executions; 0 = only the definition
	Seed            uint64 // of the prefixes
	MaxInstructions uint64 // thread instructions of the launch; 0 = DefaultInstructions
	Cancel          <-chan struct{}
}

// compareAll is how much memory of a launch is compared as a whole after every re-execution, in bytes. Of
// launches with more, what was written in either run is compared each time, and everything the last time.
const (
	compareAll  = 256 << 10
	compareLast = 64 << 20
)

// Judge executes a launch, once or more.
func (m *Machine) Judge(a *Application, l *Launch, o JudgeOptions) (*Finding, error) {
	p, err := m.prepare(a, l)
	if err != nil {
		return nil, err
	}
	j := &judge{Machine: m, p: p, o: o, f: &Finding{}}
	if err := j.observe(); err != nil {
		return nil, err
	}
	if err := j.clobbered(); err != nil {
		return nil, err
	}
	for i := range o.Prefixes {
		if err := j.again(i); err != nil {
			return nil, err
		}
	}
	j.decide()
	return j.f, nil
}

// A judge is the work on one launch.
type judge struct {
	*Machine
	p       *prepared
	o       JudgeOptions
	f       *Finding
	all     []Range // what the launch reaches
	bytes   uint64  // of all
	after   *image  // what it holds after a clean run: all of it, or what was written
	dirty   []Range // may hold something else than before the launch
	lost    bool    // nobody knows what memory holds
	printed int
}

// observe runs the launch from the beginning to its end.
func (j *judge) observe() error {
	for _, x := range j.p.memory {
		j.all = append(j.all, x.Range)
		j.bytes += x.Len()
		if x.name == "" {
			j.f.Variables = x.Range
		}
	}
	r, err := j.launch(j.p, RunOptions{Deterministic: true, Observe: true, MaxInstructions: j.o.MaxInstructions,
		Cancel: j.o.Cancel})
	if err != nil {
		return err
	}
	f, o := j.f, r.Observer
	f.Stats, j.printed = r.Stats, r.Printed
	f.Reads, f.Writes = accessed(o, softgpu.Read), accessed(o, softgpu.Written)
	f.Exposed = accessed(o, softgpu.Exposed)
	all := union(j.all)
	for _, x := range union(f.Reads, f.Writes) {
		f.Stray = append(f.Stray, x.Without(all)...)
	}
	j.dirty = j.f.Writes
	j.after, err = j.save(j.compared(r))
	return err
}

func accessed(o *softgpu.Observer, a softgpu.Access) []Range {
	var out []Range
	for _, r := range o.Ranges(a, 0) {
		out = append(out, Range{r.Addr, r.Addr + r.Len})
	}
	return out
}

// compared is what is saved and compared of memory: everything if it is small, or what the runs wrote.
func (j *judge) compared(runs ...*Result) []Range {
	if j.bytes <= compareAll {
		return union(j.all, j.f.Writes)
	}
	var written []Range
	for _, r := range runs {
		written = union(written, accessed(r.Observer, softgpu.Written))
	}
	return written
}

// clobbered finds the bytes that are exposed and written, and who did it.
func (j *judge) clobbered() error {
	var list []Range
	for _, x := range intersect(j.f.Exposed, j.f.Writes) {
		// Buffers may lie side by side: each is looked at for itself.
		list = append(list, split(x, j.all)...)
	}
	sites, err := j.sites(list)
	if err != nil {
		return err
	}
	// Different reductions may lie side by side too.
	var words []Range
	for i, x := range list {
		if j.p.merge(sites[i]) {
			continue
		}
		if x.Len() > maxWords*word || !slices.ContainsFunc(sites[i], reduction) {
			if err := j.clobber(x, sites[i]); err != nil {
				return err
			}
			continue
		}
		for at := x.Lo; at < x.Hi; {
			next := min((at+word)&^(word-1), x.Hi)
			words = append(words, Range{at, next})
			at = next
		}
	}
	if sites, err = j.sites(words); err != nil {
		return err
	}
	for i, x := range words {
		if j.p.merge(sites[i]) {
			continue
		}
		if err := j.clobber(x, sites[i]); err != nil {
			return err
		}
	}
	return nil
}

// clobber notes that x is clobbered. Memory holds what it does at the end of the launch.
func (j *judge) clobber(x Range, sites []softgpu.Site) error {
	same, err := j.unchanged(x)
	if err != nil {
		return err
	}
	j.f.Clobbered = append(j.f.Clobbered, Clobber{x, lines(sites), !same})
	return nil
}

// Ranges with reductions in them are looked at by the word.
const (
	word     = 4
	maxWords = 1 << 16
)

func reduction(s softgpu.Site) bool {
	return s.Inst != nil && (s.Inst.Op == "red" || s.Inst.Op == "atom")
}

// lines are those of some instructions; 0 = an asynchronous copy.
func lines(sites []softgpu.Site) []int {
	var out []int
	for _, s := range sites {
		line := 0
		if s.Inst != nil {
			line = s.Inst.Src.Pos.Line
		}
		out = append(out, line)
	}
	return slices.Compact(out)
}

// sites runs the launch from the beginning and lists for each range the instructions that accessed it.
func (j *judge) sites(list []Range) ([][]softgpu.Site, error) {
	if len(list) == 0 {
		return nil, nil
	}
	o := &softgpu.Observer{}
	for _, x := range list {
		o.Focus = append(o.Focus, softgpu.Range{Addr: x.Lo, Len: x.Len()})
	}
	if err := j.reset(); err != nil {
		return nil, err
	}
	if _, err := j.launchObserved(j.p, RunOptions{Deterministic: true, MaxInstructions: j.o.MaxInstructions,
		Cancel: j.o.Cancel}, o); err != nil {
		return nil, err
	}
	out := make([][]softgpu.Site, len(list))
	for i := range list {
		out[i] = o.Sites(i)
	}
	return out, nil
}

// merge reports whether sites, all that access some bytes, read them only for reductions that may be repeated.
func (p *prepared) merge(sites []softgpu.Site) bool {
	var op, kind string
	stores := false
	for _, s := range sites {
		if s.Access&softgpu.Read == 0 {
			stores = true
			continue
		}
		in := s.Inst
		if in == nil || in.Op != "red" && (in.Op != "atom" || !p.unused(in.Src)) || in.Vec > 1 {
			return false
		}
		switch in.Fn {
		case "exch":
			stores = true
			continue
		case "min", "max", "and", "or":
		default:
			return false
		}
		switch in.T {
		case ptx.B32, ptx.U32, ptx.S32, ptx.B64, ptx.U64, ptx.S64:
		default:
			return false
		}
		if k := fmt.Sprint(in.T); op != "" && (op != in.Fn || kind != k) {
			return false
		} else {
			op, kind = in.Fn, k
		}
	}
	return op == "" || !stores
}

// unused reports whether the first operand of in, a register, occurs nowhere else in its function.
func (p *prepared) unused(in *ptx.Inst) bool {
	r, ok := in.Args[0].(*ptx.Ref)
	if !ok {
		_, sink := in.Args[0].(*ptx.Sink)
		return sink
	}
	for _, d := range p.source.Decls {
		if f, ok := d.(*ptx.Func); ok && f.Body != nil {
			if n, here := mentions(f.Body, r.Name, in); here {
				return n == 1
			}
		}
	}
	return false
}

// again stops the launch in the middle, runs it from its start, and compares memory with that of a clean run.
func (j *judge) again(i int) error {
	rng := rand.New(rand.NewPCG(j.o.Seed, uint64(i)))
	at := 1 + rng.Uint64N(max(j.f.Stats.WarpInstructions, 1))
	if i == 0 {
		at = 1 << 62 // to the end, and then once more
	}
	if err := j.reset(); err != nil {
		return err
	}
	j.f.Prefixes++
	small := j.bytes <= compareAll
	// What the first leaves behind may send the second into the wilderness, or into a loop without end.
	// Time goes on, so that what depends on clocks differs.
	o := RunOptions{Observe: !small, MaxInstructions: 1<<16 + 16*j.f.Stats.ThreadInstructions, Cancel: j.o.Cancel}
	second := o
	o.Prefix = &softgpu.Prefix{Seed: rng.Uint64(), Instructions: at}
	var runs [2]*Result
	for k, o := range [...]RunOptions{o, second} {
		var err error
		runs[k], err = j.launch(j.p, o)
		if fault, ok := errors.AsType[*softgpu.Fault](err); ok && fault.Kind != softgpu.FaultCancelled &&
			fault.Kind != softgpu.FaultInternal && fault.Kind != softgpu.FaultUnsupported {
			j.f.Differ++
			j.lost = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	ranges := j.after.ranges
	if !small {
		ranges = union(j.compared(runs[:]...), ranges)
	}
	j.dirty = ranges
	same, err := j.same(ranges)
	if err != nil {
		return err
	}
	if same && !small && i == j.o.Prefixes-1 && j.bytes <= compareLast {
		if same, err = j.same(j.all); err != nil {
			return err
		}
	}
	if !same {
		j.f.Differ++
	}
	return nil
}

// decide says what all of it means.
func (j *judge) decide() {
	f := j.f
	changed := slices.IndexFunc(f.Clobbered, func(c Clobber) bool { return c.Changed })
	switch {
	case changed >= 0:
		f.Truth, f.Why = NotIdempotent, "reads and then changes "+j.p.text(f.Clobbered[changed])
	case f.Differ > 0:
		f.Truth, f.Why = NotIdempotent, fmt.Sprintf("%d of %d re-executions end with other contents",
			f.Differ, f.Prefixes)
	case j.printed > 0:
		f.Truth, f.Why = NotIdempotent, "prints"
	case len(f.Clobbered) > 0:
		f.Truth, f.Why = Undecided, "overwrites with the same values "+j.p.text(f.Clobbered[0])
	default:
		f.Truth, f.Why = Idempotent, "clobbers nothing"
	}
}

// text names a clobbered range.
func (p *prepared) text(c Clobber) string {
	name, off := fmt.Sprintf("memory at %#x", c.Lo), uint64(0)
	for _, x := range p.memory {
		if x.Lo <= c.Lo && c.Lo < x.Hi {
			name, off = "buffer "+x.name, c.Lo-x.Lo
			if x.name == "" {
				name = "the module's variables"
			}
		}
	}
	return fmt.Sprintf("%s, bytes %d to %d (lines %v)", name, off, off+c.Len()-1, c.Lines)
}
