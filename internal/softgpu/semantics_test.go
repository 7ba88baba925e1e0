package softgpu

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/probe"
	"holdfast/ptx"
)

// Every spelling of the table that computes, compares, converts or moves has a meaning that is stated a second time
// (meaningOf), and the executor agrees with it on the inputs of package probe. A spelling without one fails the test,
// unless ptxas says that it is not PTX or the executor refuses it.

// tested are opcodes of these classes whose probes show another thing than a function of their operands; the tests
// beside them check them.
var tested = map[string]string{
	"cvta":     "TestProbesOfAddresses",
	"isspacep": "TestProbesOfAddresses",
	"istypep":  "the tests of textures",
	"mov.b128": "TestWideMove",
}

func TestSemantics(t *testing.T) {
	refused := probe.Refused()
	byForm := map[string]*isa.Form{}
	spellings := 0
	for _, f := range isa.Forms() {
		if f.Class > isa.Move {
			continue
		}
		for _, sp := range f.Every() {
			if byForm[sp] == nil {
				byForm[sp] = f
				spellings++
			}
		}
	}
	// Probes by module, so that translating them is quick.
	var todo []*probe.Probe
	have := map[string]bool{}
	notPTX := 0
	for _, p := range probe.All() {
		f := byForm[p.Spelling]
		if f == nil {
			continue
		}
		have[p.Spelling] = true
		if why, no := refused[p.ID()]; no && !probe.Newer(why) {
			notPTX++
			continue
		}
		// TestVectorMoves has the moves of vectors.
		if tested[f.Op] == "" && tested[p.Spelling] == "" && !strings.HasPrefix(p.Spelling, "mov.v") {
			p.Grid[0] = 4 // a quarter of the threads
			todo = append(todo, p)
		}
	}
	for sp, f := range byForm {
		if !have[sp] && tested[f.Op] == "" {
			t.Errorf("%s: there is no probe", sp)
		}
	}
	var mu sync.Mutex
	checked, gaps := 0, map[string]int{}
	var wg sync.WaitGroup
	chunks := make(chan []*probe.Probe)
	for range min(4, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			d := newDevice(t, 4)
			at := d.alloc(3 << 20)
			for ps := range chunks {
				n, refused := checkProbes(t, d, at, ps)
				mu.Lock()
				checked += n
				for _, op := range refused {
					gaps[op]++
				}
				mu.Unlock()
			}
		})
	}
	for c := range slices.Chunk(todo, 50) {
		chunks <- c
	}
	close(chunks)
	wg.Wait()
	t.Logf("%d spellings, %d probes checked, %d are not PTX, refused by the executor: %v",
		spellings, checked, notPTX, gaps)
	known := strings.Fields(knownGaps)
	for op := range gaps {
		if !slices.Contains(known, op) {
			t.Errorf("%s is refused and not listed as a gap", op)
		}
	}
}

// samples is how many threads of a probe are compared: their expectations are exact rationals, which take time.
const samples = 24

func checkProbes(t *testing.T, d *device, at uint64, ps []*probe.Probe) (checked int, refused []string) {
	m, err := ptx.Parse("semantics.ptx", []byte(probe.Module(ps)))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	mod, err := Load(m)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	in, err := mod.Instantiate(d.space, at+2<<20)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	for i, k := range mod.Kernels() {
		p := ps[i]
		if k.Unsupported != "" {
			refused = append(refused, strings.Split(p.Spelling, ".")[0])
			continue
		}
		inst, lut := find(m, k.Name, p.Spelling)
		if inst == nil {
			t.Errorf("%s: not found in its own kernel", p.ID())
			continue
		}
		want, ok := meaningOf(inst, lut)
		if !ok {
			t.Errorf("%s: no expectation", p.ID())
			continue
		}
		checked++
		for round := range p.Rounds {
			if err := checkProbe(d, at, in, p, want, round); err != nil {
				t.Errorf("%s: %v", p.ID(), err)
				break
			}
		}
	}
	return checked, refused
}

// find gives the instruction of a spelling in a kernel, and the table of lop3.
func find(m *ptx.Module, kernel, spelling string) (*isa.Inst, uint64) {
	for _, d := range m.Decls {
		f, ok := d.(*ptx.Func)
		if !ok || f.Name != kernel {
			continue
		}
		for _, s := range f.Body.Stmts {
			if in, ok := s.(*ptx.Inst); ok && isa.Text(in) == spelling && in.Guard == nil {
				out, err := isa.Decode(in)
				if err != nil {
					return nil, 0
				}
				var lut uint64
				if in.Op == "lop3" {
					if c, ok := out.Args[4].X.(*ptx.Imm); ok {
						lut = c.Bits
					}
				}
				return out, lut
			}
		}
	}
	return nil, 0
}

func checkProbe(d *device, at uint64, in *Instance, p *probe.Probe, want meaning, round int) error {
	h := fnv.New64a()
	h.Write([]byte(p.ID()))
	r := rand.New(rand.NewPCG(h.Sum64(), uint64(round)))
	input, output := p.Input(5, round), p.Output(5, round)
	mem, err := d.space.Bytes(at, 2<<20)
	if err != nil {
		return err
	}
	outAt := (len(input) + 255) &^ 255
	copy(mem, input)
	copy(mem[outAt:], output)
	cfg := LaunchConfig{Grid: p.Grid, Block: p.Block, Params: params(at, at+uint64(outAt)), Workers: 1}
	if _, err := in.Launch(p.Name, cfg); err != nil {
		return err
	}
	stride := p.InStride()
	for range samples {
		th := r.IntN(p.NumThreads())
		var x []uint64
		for o, f := th*stride, 0; f < len(p.In); f++ {
			if p.In[f].Type != "zero" {
				x = append(x, word(input[o:o+p.In[f].Bytes]))
			}
			o += p.In[f].Bytes * p.In[f].Count
		}
		for _, part := range p.Out {
			lo := outAt + th*p.OutStride + part.At
			got := word(mem[lo : lo+part.Bytes])
			if part.Masked && th&1 == 0 {
				initial := uint64(0x5a5a)
				switch {
				case part.Name == "carry":
					continue // of the instruction before
				case part.Name == "second" || p.Pred:
					initial = 0
				case part.Bytes == 1:
					initial = uint64(output[th*p.OutStride])
				}
				if got != initial {
					return fmt.Errorf("input %d, thread %d: an inactive lane was written: %#x", round, th, got)
				}
				continue
			}
			var why string
			switch part.Name {
			case "second":
				why = same(want.second(x), got)
			case "carry":
				why = same(want.carry(x), got)
			default:
				if want.near != nil {
					why = want.near(x, got)
				} else {
					why = same(want.value(x)&(^uint64(0)>>(64-8*part.Bytes)), got)
				}
			}
			if why != "" {
				return fmt.Errorf("input %d, thread %d, %s of %#x (masked %v) is %#x: %s", round, th,
					part.Name, x, part.Masked, got, why)
			}
		}
	}
	return nil
}

func same(want, got uint64) string {
	if want != got {
		return fmt.Sprintf("want %#x", want)
	}
	return ""
}

func word(b []byte) uint64 {
	var x [8]byte
	copy(x[:], b)
	return binary.LittleEndian.Uint64(x[:])
}

// Addresses of all spaces: what isspacep says of each, and that cvta leads there and back.
func TestProbesOfAddresses(t *testing.T) {
	d := newDevice(t, 4)
	at := d.alloc(2 << 20)
	// The order of the addresses: shared, local, const, param, global.
	is := map[string][5]uint32{"shared": {1}, "shared::cta": {1}, "shared::cluster": {1}, "local": {0, 1},
		"const": {0, 0, 1}, "param": {0, 0, 0, 1}, "param::entry": {0, 0, 0, 1}, "global": {0, 0, 0, 1, 1}}
	n := 0
	refused := probe.Refused()
	for _, p := range probe.All() {
		if p.Family != "addresses" || refused[p.ID()] != "" {
			continue
		}
		n++
		in := d.load(probe.Module([]*probe.Probe{p}))
		mem, err := d.space.Bytes(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		clear(mem)
		d.run(in, p.Name, LaunchConfig{Grid: p.Grid, Block: p.Block,
			Params: slices.Concat(params(at, at+4096), make([]byte, 48), p.Params())})
		out := mem[4096:]
		space := p.Spelling[strings.Index(p.Spelling, ".")+1:]
		for th := range p.NumThreads() {
			row := out[th*p.OutStride:]
			if want, ok := is[space]; ok && strings.HasPrefix(p.Spelling, "isspacep") {
				for i, w := range want {
					if got := binary.LittleEndian.Uint32(row[4*i:]); got != w {
						t.Fatalf("%s: thread %d, address %d: %d, want %d", p.ID(), th, i, got, w)
					}
				}
				continue
			}
			if there := word(row[:8]); there != 0 {
				t.Fatalf("%s: there and back is %#x away", p.ID(), there)
			}
		}
	}
	if n < 15 {
		t.Errorf("%d probes", n)
	}
}

func TestWideMove(t *testing.T) {
	d := newDevice(t, 4)
	at := d.alloc(2 << 20)
	for _, p := range probe.All() {
		if p.Spelling != "mov.b128" {
			continue
		}
		in := d.load(probe.Module([]*probe.Probe{p}))
		x := p.Input(1, 0)
		mem, err := d.space.Bytes(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		copy(mem, x)
		d.run(in, p.Name, LaunchConfig{Grid: p.Grid, Block: p.Block, Params: params(at, at+1<<19)})
		for i := 0; i < len(x); i += 16 { // the probe stores the upper half first
			if lo, hi := word(x[i:i+8]), word(x[i+8:i+16]); word(mem[1<<19+i:][:8]) != hi ||
				word(mem[1<<19+i+8:][:8]) != lo {
				t.Fatalf("%#x %#x is moved as %x", hi, lo, mem[1<<19+i:][:16])
			}
		}
		return
	}
	t.Error("no probe")
}
