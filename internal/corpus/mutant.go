package corpus

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// A Mutant is a launch made from another one: an application with that launch alone.
type Mutant struct {
	*Application
	How string // what was changed
}

// Launch is the mutant's launch.
func (m *Mutant) Launch() *Launch { return &m.Launches[0] }

// mutantPairs bounds the pairs of buffers that are made to overlap, of one launch.
const mutantPairs = 6

// Mutants makes launches from l in which a buffer that it writes lies on one that it reads, shifted by
// nothing, by an element, by what a block covers, or by half, and launches with sizes of 0, 1 and a prime. f is
// what the launch does.
func Mutants(a *Application, l *Launch, f *Finding) []*Mutant {
	var out []*Mutant
	add := func(x *Mutant) {
		if x != nil {
			out = append(out, x)
		}
	}
	sizes := l.sizes()
	for _, p := range a.pairs(l, f) {
		for _, s := range a.shifts(l, p) {
			add(a.overlap(l, p, s))
		}
	}
	for _, i := range sizes {
		n := l.Args[i].integer()
		for _, to := range slices.Compact([]uint64{0, 1, prime(n - 1)}) {
			if to >= n {
				continue
			}
			small := a.resize(l, i, to)
			add(small)
			if to > 1 {
				for _, p := range a.pairs(l, f) {
					s := a.shifts(l, p)
					for _, s := range s[:min(3, len(s))] {
						if x := small.overlap(small.Launch(), p, s); x != nil {
							x.How = small.How + ", " + x.How
							out = append(out, x)
						}
					}
				}
			}
		}
	}
	return out
}

// A pair is two arguments, pointers to different buffers: to is written, from read.
type pair struct{ to, from int }

func (a *Application) pairs(l *Launch, f *Finding) []pair {
	does := func(i int, list []Range) bool {
		if l.Args[i].Type != "buf" {
			return false
		}
		name := l.Args[i].Patches[0].Buf
		lo := a.Address(name)
		return len(intersect([]Range{{lo, lo + a.Buffers[name].Bytes}}, list)) > 0
	}
	var out []pair
	for to := range l.Args {
		if !does(to, f.Writes) {
			continue
		}
		for from := range l.Args {
			if to != from && does(from, f.Reads) && l.Args[from].Patches[0].Buf != l.Args[to].Patches[0].Buf &&
				len(out) < mutantPairs {
				out = append(out, pair{to, from})
			}
		}
	}
	return out
}

// shifts are the distances, in bytes, by which an output lies behind the input that it is moved onto.
func (a *Application) shifts(l *Launch, p pair) []int64 {
	b := a.Buffers[l.Args[p.from].Patches[0].Buf]
	elem := b.Init.element()
	threads := int64(l.Block[0]) * int64(l.Block[1]) * int64(l.Block[2])
	half := int64(b.Bytes/2) &^ 15
	out := []int64{0, elem, -elem, 16, -16, elem * threads, -elem * threads, half, -half}
	slices.SortFunc(out, func(x, y int64) int { return cmp.Or(cmp.Compare(max(x, -x), max(y, -y)), cmp.Compare(x, y)) })
	return slices.Compact(out)
}

// element is the size of an element in bytes: 4 where nothing says otherwise.
func (in *Init) element() int64 {
	switch in.Kind {
	case "u8":
		return 1
	case "f16", "bf16":
		return 2
	case "f64", "pointers":
		return 8
	case "index", "iota":
		if in.Wide {
			return 8
		}
	}
	return 4
}

// overlap moves the buffer of p.to onto that of p.from, shift bytes behind it.
func (a *Application) overlap(l *Launch, p pair, shift int64) *Mutant {
	to, from := l.Args[p.to].Patches[0], l.Args[p.from].Patches[0]
	target, source := a.Buffers[to.Buf], a.Buffers[from.Buf]
	if source.Init.Kind == "pointers" || target.Init.Kind == "pointers" {
		return nil
	}
	// Place on both sides for what the output has, and for an input that is shorter.
	before := int64((uint64(max(-shift, 0)) + uint64(to.Offset) + alignment - 1) &^ (alignment - 1))
	merged := Buffer{Bytes: uint64(before+max(shift, 0)) + source.Bytes + target.Bytes, Init: source.Init}
	if merged.Init.Kind == "data" {
		merged.Init.Data = append(make([]byte, before), source.Init.Data...)
	}
	const name = "overlap"
	x := a.only(l)
	x.Buffers[name] = merged
	m := &x.Launches[0]
	for i, arg := range m.Args {
		m.Args[i].Patches = slices.Clone(arg.Patches)
		for k, q := range arg.Patches {
			if q.Buf == from.Buf {
				m.Args[i].Patches[k].Pointer = Pointer{name, before + q.Offset}
			}
		}
	}
	m.Args[p.to].Patches[0].Pointer = Pointer{name, before + from.Offset + shift}
	return &Mutant{x, fmt.Sprintf("argument %d %+d bytes from argument %d", p.to, shift, p.from)}
}

// resize sets an integer argument.
func (a *Application) resize(l *Launch, i int, n uint64) *Mutant {
	x := a.only(l)
	b := make([]byte, 8)
	binary.LittleEndian.PutUint64(b, n)
	x.Launches[0].Args[i].Bytes = b[:len(l.Args[i].Bytes)]
	return &Mutant{x, fmt.Sprintf("argument %d is %d", i, n)}
}

// only is an application with one launch and the buffers that it reaches.
func (a *Application) only(l *Launch) *Application {
	x := &Application{Name: a.Name, Family: a.Family, Target: a.Target, Made: a.Made, Modules: a.Modules, File: a.File,
		Buffers: map[string]Buffer{}, filled: a.filled}
	for _, name := range a.Reached(l) {
		x.Buffers[name] = a.Buffers[name]
	}
	m := *l
	m.Args = slices.Clone(l.Args)
	x.Launches = []Launch{m}
	return x
}

// sizes lists the arguments that may be numbers of elements: integers from 1 to as many as there is memory.
func (l *Launch) sizes() []int {
	var out []int
	for i, x := range l.Args {
		if (x.Type == "s32" || x.Type == "u32" || x.Type == "s64" || x.Type == "u64") && x.integer() >= 1 &&
			x.integer() < 1<<31 && len(out) < 4 {
			out = append(out, i)
		}
	}
	return out
}

// integer is the value of an argument of 4 or 8 bytes.
func (x Arg) integer() uint64 {
	var b [8]byte
	copy(b[:], x.Bytes)
	return binary.LittleEndian.Uint64(b[:])
}

// prime is the largest prime up to n, or 0.
func prime(n uint64) uint64 {
next:
	for ; n >= 2; n-- {
		for d := uint64(2); d*d <= n; d++ {
			if n%d == 0 {
				continue next
			}
		}
		return n
	}
	return 0
}

// Key identifies what a launch is: two launches with one key are the same instance of the same kernel, but for
// which random numbers its buffers hold. code is the kernel's code.
func (a *Application) Key(l *Launch, code string) string {
	h := sha256.New()
	fmt.Fprintln(h, code, l.Kernel, l.Grid, l.Block, l.Cluster, l.Shared)
	var order []string // buffers, as they are met
	number := func(p Pointer) string {
		i := slices.Index(order, p.Buf)
		if i < 0 {
			i = len(order)
			order = append(order, p.Buf)
		}
		return fmt.Sprint(" ", i, "+", p.Offset)
	}
	for _, x := range l.Args {
		fmt.Fprintf(h, "%x", x.Bytes)
		for _, p := range x.Patches {
			fmt.Fprint(h, p.At, number(p.Pointer))
		}
		fmt.Fprintln(h)
	}
	for i := 0; i < len(order); i++ {
		b := a.Buffers[order[i]]
		fmt.Fprintf(h, "%d %s %v %d %x", b.Bytes, b.Init.Kind, b.Init.Wide, b.Init.Below, b.Init.Data)
		for _, p := range b.Init.Pointers {
			if p != nil {
				fmt.Fprint(h, number(*p))
			} else {
				fmt.Fprint(h, " null")
			}
		}
		fmt.Fprintln(h)
	}
	return string(h.Sum(nil))
}
