package corpus

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"holdfast/internal/param"
)

// Where the buffers of an application lie.
const (
	base      = 0x7000_0000_0000 // like an address that a driver gives out
	alignment = 512
)

// How much of a buffer gets contents, in bytes; the rest is zero. Buffers of indices and pointers stay valid with
// zeros, and a buffer of many gigabytes costs nothing.
const (
	maxRandom  = 256 << 10
	maxIndices = 1 << 20
)

// A Range is the bytes [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// Len is the number of bytes.
func (r Range) Len() uint64 { return r.Hi - r.Lo }

// Without is what is left of r without the ranges of a sorted, disjoint list.
func (r Range) Without(list []Range) []Range {
	var out []Range
	for _, x := range list {
		if x.Hi <= r.Lo {
			continue
		}
		if x.Lo >= r.Hi {
			break
		}
		if r.Lo < x.Lo {
			out = append(out, Range{r.Lo, x.Lo})
		}
		r.Lo = max(r.Lo, x.Hi)
	}
	if r.Lo < r.Hi {
		out = append(out, r)
	}
	return out
}

// A layout is where everything lies: buffers one behind the other in the order of their names.
type layout struct {
	names  []string
	at     map[string]uint64
	allocs []Range // sorted
	end    uint64
}

type layoutOnce struct {
	once sync.Once
	layout
}

// contents are random contents that were made. Mutants share those of their application.
type contents struct {
	mu   sync.Mutex
	made map[string][]byte
}

// Release lets go of the random contents that were made. They are made again if they are wanted.
func (a *Application) Release() {
	a.filled.mu.Lock()
	defer a.filled.mu.Unlock()
	clear(a.filled.made)
}

// random makes n bytes of the contents of a buffer, once. Nobody may change them.
func (c *contents) random(key string, n uint64, in Init) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Two buffers of one name differ in more.
	full := fmt.Sprint(key, n, in.Kind, in.Wide, in.Below)
	if b, ok := c.made[full]; ok {
		return b
	}
	seed := fnv.New64a()
	seed.Write([]byte(key))
	b := make([]byte, n, n+8)
	fill(b[:cap(b)], in, rand.NewPCG(seed.Sum64(), 1))
	if c.made == nil {
		c.made = map[string][]byte{}
	}
	c.made[full] = b
	return b
}

func (a *Application) layout() *layout {
	a.placed.once.Do(func() {
		l := &a.placed.layout
		l.at = map[string]uint64{}
		l.end = base
		for name := range a.Buffers {
			l.names = append(l.names, name)
		}
		slices.Sort(l.names)
		for _, name := range l.names {
			n := max(a.Buffers[name].Bytes, 1)
			l.at[name] = l.end
			l.allocs = append(l.allocs, Range{l.end, l.end + n})
			l.end = (l.end + n + alignment - 1) &^ (alignment - 1)
		}
	})
	return &a.placed.layout
}

// Address is where a buffer lies.
func (a *Application) Address(buffer string) uint64 { return a.layout().at[buffer] }

// Allocations lists the buffers, by address.
func (a *Application) Allocations() []Range { return a.layout().allocs }

// Encode is argument x as a kernel gets it, when buffers lie where at says.
func (x Arg) Encode(at func(buffer string) uint64) []byte {
	b := slices.Clone(x.Bytes)
	for _, p := range x.Patches {
		binary.LittleEndian.PutUint64(b[p.At:], at(p.Buf)+uint64(p.Offset))
	}
	return b
}

// Reached lists the buffers that a launch has pointers to, through buffers of pointers as well,
// by address.
func (a *Application) Reached(l *Launch) []string {
	found := map[string]bool{}
	var todo []string
	reach := func(name string) {
		if !found[name] {
			found[name] = true
			todo = append(todo, name)
		}
	}
	for _, x := range l.Args {
		for _, p := range x.Patches {
			reach(p.Buf)
		}
	}
	for len(todo) > 0 {
		b := a.Buffers[todo[0]]
		todo = todo[1:]
		for _, p := range b.Init.Pointers {
			if p != nil {
				reach(p.Buf)
			}
		}
	}
	var names []string
	for _, name := range a.layout().names {
		if found[name] {
			names = append(names, name)
		}
	}
	return names
}

// Contents is what a buffer holds in the beginning, without zeros at the end. It must not be changed.
func (a *Application) Contents(name string) []byte { return a.ContentsAt(name, a.Address) }

// ContentsAt is Contents when buffers lie where at says: it matters for buffers of pointers.
func (a *Application) ContentsAt(name string, at func(buffer string) uint64) []byte {
	b := a.Buffers[name]
	in := b.Init
	n := min(b.Bytes, maxRandom)
	if in.Kind == "index" || in.Kind == "iota" {
		n = min(b.Bytes, maxIndices)
	}
	switch in.Kind {
	case "", "zero":
		return nil
	case "data":
		return in.Data
	case "pointers":
		out := make([]byte, 8*len(in.Pointers))
		for i, p := range in.Pointers {
			if p != nil {
				binary.LittleEndian.PutUint64(out[8*i:], at(p.Buf)+uint64(p.Offset))
			}
		}
		return out
	}
	return a.filled.random(a.Name+"\x00"+name+"\x00", n, in)
}

// fill writes elements of a kind. The last one may be cut off: b has place for it.
func fill(b []byte, in Init, r *rand.PCG) {
	le := binary.LittleEndian
	switch in.Kind {
	case "u8", "u32":
		for ; len(b) >= 8; b = b[8:] {
			le.PutUint64(b, r.Uint64())
		}
	case "f32":
		for ; len(b) >= 4; b = b[4:] {
			le.PutUint32(b, math.Float32bits(float32(unit(r))))
		}
	case "f64":
		for ; len(b) >= 8; b = b[8:] {
			le.PutUint64(b, math.Float64bits(unit(r)))
		}
	case "f16":
		for ; len(b) >= 2; b = b[2:] {
			le.PutUint16(b, param.Float16(unit(r)))
		}
	case "bf16":
		for ; len(b) >= 2; b = b[2:] {
			le.PutUint16(b, uint16(math.Float32bits(float32(unit(r)))>>16))
		}
	case "index", "iota":
		width := 4
		if in.Wide {
			width = 8
		}
		for i := uint64(0); len(b) >= width; i++ {
			x := i
			if in.Kind == "index" {
				x = r.Uint64() % max(in.Below, 1)
			}
			if in.Wide {
				le.PutUint64(b, x)
			} else {
				le.PutUint32(b, uint32(x))
			}
			b = b[width:]
		}
	}
}

// unit is uniform in [-1, 1), in steps of 2^-23 so that it is exact as a float.
func unit(r *rand.PCG) float64 { return float64(int64(r.Uint64()>>40)-1<<23) / (1 << 23) }
