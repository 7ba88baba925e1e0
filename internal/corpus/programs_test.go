package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/softgpu"
)

// programs loads the applications written in CUDA C.
func programs(t *testing.T) []*Application {
	t.Helper()
	apps, err := Load("../../test/corpus/cuda")
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

// Every kernel of the sources is launched, and in how many ways.
func TestProgramsLaunchEveryKernel(t *testing.T) {
	entry := regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)
	kernels, distinct := 0, map[string]bool{}
	for _, a := range programs(t) {
		text, err := a.Source(a.Name)
		if err != nil {
			t.Fatal(err)
		}
		launched := map[string]bool{}
		for i := range a.Launches {
			l := &a.Launches[i]
			launched[l.Kernel] = true
			distinct[describe(l)] = true
		}
		for _, m := range entry.FindAllSubmatch(text, -1) {
			kernels++
			if !launched[string(m[1])] {
				t.Errorf("%s: no launch of %s", a.Name, m[1])
			}
		}
	}
	if kernels < 300 || len(distinct) < 4000 {
		t.Errorf("%d kernels, %d different launches: expected at least 300 and 4000", kernels, len(distinct))
	}
}

// finish runs a launch in some mode and returns all memory that it reaches.
func finish(m *Machine, a *Application, l *Launch, cfg softgpu.LaunchConfig) (map[string][]byte, error) {
	p, err := m.prepare(a, l)
	if err != nil {
		return nil, err
	}
	cfg.Grid, cfg.Block, cfg.Cluster, cfg.SharedDynamic = l.Grid, l.Block, l.Cluster, l.Shared
	cfg.Params, cfg.MaxInstructions = p.params, 1<<28
	if _, err := p.in.Launch(l.Kernel, cfg); err != nil {
		return nil, err
	}
	memory := map[string][]byte{}
	for _, x := range p.memory {
		b, err := m.space.Bytes(x.Lo, x.Len())
		if err != nil {
			return nil, err
		}
		memory[x.name] = bytes.Clone(b)
	}
	return memory, nil
}

func describe(l *Launch) string {
	var args []string
	for _, x := range l.Args {
		if x.Type == "buf" {
			args = append(args, fmt.Sprintf("%s+%d", x.Patches[0].Buf, x.Patches[0].Offset))
		} else {
			args = append(args, fmt.Sprintf("%s:%x", x.Type, x.Bytes))
		}
	}
	return fmt.Sprintf("%s %s grid %v block %v cluster %v shared %d (%s)", l.Module, l.Kernel, l.Grid, l.Block,
		l.Cluster, l.Shared, strings.Join(args, ", "))
}

// Kernels without races leave the same bytes whether blocks run one after the other or on several
// processors; those with one that launches do not list as such would show here.
func TestProgramsDeterministicAndParallelAgree(t *testing.T) {
	kernels := map[string]bool{}
	for _, a := range programs(t) {
		t.Run(a.Name, func(t *testing.T) {
			m, err := NewMachine()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for i := range a.Launches {
				l := &a.Launches[i]
				one, err := finish(m, a, l, softgpu.LaunchConfig{Deterministic: true})
				if err != nil {
					t.Fatalf("%s: %v", describe(l), err)
				}
				several, err := finish(m, a, l, softgpu.LaunchConfig{Workers: 4})
				if err != nil {
					t.Fatalf("%s, parallel: %v", describe(l), err)
				}
				if l.Order == "any" {
					continue
				}
				if l.Grid != [3]uint32{1, 1, 1} {
					kernels[l.Kernel] = true
				}
				for name, b := range one {
					if k := firstDifference(b, several[name]); k >= 0 {
						t.Errorf("%s: buffer %q differs at byte %d", describe(l), name, k)
					}
				}
			}
		})
	}
	if len(kernels) < 150 {
		t.Errorf("%d kernels were launched with several blocks and no races, expected at least 150", len(kernels))
	}
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// What a launch does depends on the bytes that the observer calls exposed, and on no others: with everything
// else replaced by noise, the same bytes are written, with the same contents. And nothing changes that it does
// not call written. This is what the oracle stands on.
func TestProgramsDependOnExposedBytesOnly(t *testing.T) {
	for _, a := range programs(t) {
		t.Run(a.Name, func(t *testing.T) {
			m, err := NewMachine()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			noise := rand.NewPCG(1, 2)
			for i := range a.Launches {
				l := &a.Launches[i]
				if l.Threads() > 1<<12 {
					continue
				}
				if err := onlyExposed(m, a, l, noise); err != nil {
					t.Errorf("%s: %v", describe(l), err)
				}
			}
		})
	}
}

func onlyExposed(m *Machine, a *Application, l *Launch, noise *rand.PCG) error {
	run := func(before func(*prepared) error) (*prepared, *softgpu.Observer, error) {
		p, err := m.prepare(a, l)
		if err != nil {
			return nil, nil, err
		}
		if err := before(p); err != nil {
			return nil, nil, err
		}
		r, err := m.launch(p, RunOptions{Deterministic: true, Observe: true})
		if err != nil {
			return nil, nil, err
		}
		return p, r.Observer, nil
	}
	p, first, err := run(func(*prepared) error { return nil })
	if err != nil {
		return err
	}
	exposed, written := accessed(first, softgpu.Exposed), accessed(first, softgpu.Written)
	wanted, err := m.save(written)
	if err != nil {
		return err
	}
	var unwritten, unexposed []Range
	for _, x := range p.memory {
		unwritten = append(unwritten, x.Without(written)...)
		unexposed = append(unexposed, x.Without(exposed)...)
	}
	for _, r := range unwritten {
		now, err := m.space.Bytes(r.Lo, r.Len())
		if err != nil {
			return err
		}
		if k := firstDifference(now, p.initial(r)); k >= 0 {
			return fmt.Errorf("byte %#x has changed, but the observer has not seen it written", r.Lo+uint64(k))
		}
	}
	_, second, err := run(func(*prepared) error {
		for _, r := range unexposed {
			b, err := m.space.Bytes(r.Lo, r.Len())
			if err != nil {
				return err
			}
			for k := range b {
				b[k] = byte(noise.Uint64() >> 56)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("with noise: %w", err)
	}
	if !slices.Equal(exposed, accessed(second, softgpu.Exposed)) ||
		!slices.Equal(written, accessed(second, softgpu.Written)) {
		return fmt.Errorf("with noise in what is not exposed, other bytes are accessed")
	}
	got, err := m.save(written)
	if err != nil {
		return err
	}
	for i, r := range written {
		if k := firstDifference(wanted.data[i], got.data[i]); k >= 0 {
			return fmt.Errorf("with noise in what is not exposed, byte %#x is another", r.Lo+uint64(k))
		}
	}
	return nil
}

// A call is a launch as a reference sees it: arguments, and a copy of the memory that it changes.
type call struct {
	app    *Application
	l      *Launch
	memory map[string][]byte
}

// int is argument i, an integer.
func (c *call) int(i int) int {
	x := c.l.Args[i]
	var b [8]byte
	copy(b[:], x.Bytes)
	if x.Type == "s32" {
		return int(int32(binary.LittleEndian.Uint32(b[:])))
	}
	return int(binary.LittleEndian.Uint64(b[:]))
}

// float is argument i, an f32.
func (c *call) float(i int) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(c.l.Args[i].Bytes)))
}

// blocks and threads are the sizes of the grid and of a block along x.
func (c *call) blocks() int  { return int(c.l.Grid[0]) }
func (c *call) threads() int { return int(c.l.Block[0]) }

// buf is what pointer argument i points to, up to the end of the buffer.
func buf[T any](c *call, i int) []T { return deref[T](c, c.l.Args[i].Patches[0].Pointer) }

func i32(c *call, i int) []int32   { return buf[int32](c, i) }
func f32(c *call, i int) []float32 { return buf[float32](c, i) }

// A reference is what a kernel should do, said in Go, as directly as can be.
type reference struct {
	kernel string
	near   floats
	run    func(c *call)
}

// floats are the arguments whose floats may differ by 1e-5 of themselves plus 1e-5.
type floats []int

// Every launch of every kernel that has a reference gives what the reference does.
func TestProgramsAgainstReferences(t *testing.T) {
	byName := map[string]*reference{}
	for i := range references {
		byName[references[i].kernel] = &references[i]
	}
	if len(byName) != len(references) {
		t.Fatal("a kernel has two references")
	}
	ran := map[string]int{}
	for _, a := range programs(t) {
		t.Run(a.Name, func(t *testing.T) {
			m, err := NewMachine()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for i := range a.Launches {
				l := &a.Launches[i]
				ref := byName[l.Kernel]
				if ref == nil || l.Order == "any" {
					continue
				}
				got, err := finish(m, a, l, softgpu.LaunchConfig{Workers: 2})
				if err != nil {
					t.Fatalf("%s: %v", describe(l), err)
				}
				want := newCall(a, l)
				ref.run(want)
				ran[l.Kernel]++
				if err := ref.compare(want, got); err != nil {
					t.Errorf("%s: %v", describe(l), err)
				}
			}
		})
	}
	for _, r := range references {
		if ran[r.kernel] == 0 {
			t.Errorf("no launch of %s, which has a reference", r.kernel)
		}
	}
}

func (r *reference) compare(want *call, got map[string][]byte) error {
	near := map[string]bool{}
	for _, i := range r.near {
		near[want.l.Args[i].Patches[0].Buf] = true
	}
	tolerance := 1e-5
	if strings.HasSuffix(want.l.Module, ".fast") {
		tolerance = 1e-3 // approximate functions, no denormals
	}
	for _, name := range slices.Sorted(maps.Keys(want.memory)) {
		w, g := want.memory[name], got[name]
		if !near[name] {
			if k := firstDifference(w, g); k >= 0 {
				k &^= 3
				return fmt.Errorf("buffer %s, byte %d: %x, expected %x", name, k, g[k:min(k+4, len(g))],
					w[k:min(k+4, len(w))])
			}
			continue
		}
		for k := 0; k+4 <= len(w); k += 4 {
			x, y := bits32(w[k:]), bits32(g[k:])
			if !(math.Abs(x-y) <= tolerance*(1+math.Abs(x))) {
				return fmt.Errorf("buffer %s, element %d: %g, expected %g", name, k/4, y, x)
			}
		}
	}
	return nil
}

func bits32(b []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// initial is what r holds before the launch.
func (p *prepared) initial(r Range) []byte {
	out := make([]byte, r.Len())
	p.fillInitial(r, out)
	return out
}
