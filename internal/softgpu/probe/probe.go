package probe

import (
	"fmt"
	"strings"
)

// Threads is how many threads most probes run, in blocks of BlockThreads.
const (
	Threads      = 2048
	BlockThreads = 128
)

// A Probe is a kernel around one instruction. Its parameters are the address of the input, the address
// of the output, and Extra bytes of contents that Params gives.
type Probe struct {
	Spelling string // the instruction with its modifiers; what the results are reported under
	Variant  string // what distinguishes probes of one spelling; "" = there is one
	Family   string
	Name     string // of the kernel
	Source   string // the entry and the variables that only it uses
	Target   string // "sm_90" or "sm_90a"
	Version  string // of PTX

	Grid, Block, Cluster [3]uint32
	In                   []Field // what one thread reads, in order
	OutStride            int     // bytes that one thread writes
	Out                  []Part  // of them, for instructions on registers
	Pred                 bool    // the result is a predicate
	OutShared            int     // bytes after those of the threads that several write
	Extra                int     // bytes of the third parameter
	Map                  *Map    // it is this tensor map; nil = what Params gives
	Rule                 Rule
	Result               string // format of a floating-point result: what a difference is explained with
	Rounds               int    // how many inputs there are
}

// A Part is one value of what a thread writes.
type Part struct {
	Name   string // "result", "second" (the other predicate), "carry"
	Masked bool   // of the second execution, by odd threads alone; others leave it as it was
	At     int
	Bytes  int
}

// A Field is a run of input values of one thread.
type Field struct {
	Type  string // "f32", "s16", "f16x2", "pred", …: see value
	Bytes int    // of one value
	Count int
}

// NumThreads is the number of threads of the launch.
func (p *Probe) NumThreads() int {
	n := 1
	for i := range 3 {
		n *= int(p.Grid[i] * p.Block[i])
	}
	return n
}

// InStride is the number of bytes that one thread reads.
func (p *Probe) InStride() int {
	n := 0
	for _, f := range p.In {
		n += f.Bytes * f.Count
	}
	return (n + 15) &^ 15
}

// InBytes and OutBytes are the sizes of the two arrays.
func (p *Probe) InBytes() int  { return max(16, p.InStride()*p.NumThreads()) }
func (p *Probe) OutBytes() int { return p.OutStride*p.NumThreads() + p.OutShared }

// ID names the probe in reports: the spelling and the variant.
func (p *Probe) ID() string {
	if p.Variant == "" {
		return p.Spelling
	}
	return p.Spelling + " (" + p.Variant + ")"
}

// kernelName makes an identifier of a spelling.
func kernelName(id string) string {
	return "k_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, id)
}

// Module is the PTX of some probes of one target.
func Module(ps []*Probe) string {
	var b strings.Builder
	version, target := "8.4", "sm_90"
	for _, p := range ps {
		if p.Version > version {
			version = p.Version
		}
		if p.Target > target {
			target = p.Target
		}
	}
	fmt.Fprintf(&b, ".version %s\n.target %s\n.address_size 64\n", version, target)
	for _, p := range ps {
		b.WriteString(p.Source)
	}
	return b.String()
}

// A text is a kernel being written.
type text struct {
	strings.Builder
	p    *Probe
	vars strings.Builder // at module level
}

func (t *text) f(format string, args ...any) { fmt.Fprintf(&t.Builder, "\t"+format+"\n", args...) }

// newText starts a probe of n threads. Registers %rd3 and %rd4 hold the addresses of
// what the thread reads and writes, %r1 its number in the grid, %r2 in the block, %p1 whether that is odd.
func newText(spelling, variant, family string, threads int) *text {
	p := &Probe{Spelling: spelling, Variant: variant, Family: family, Target: "sm_90", Version: "8.4", Rounds: 2,
		Grid:  [3]uint32{uint32(max(1, threads/BlockThreads)), 1, 1},
		Block: [3]uint32{uint32(min(threads, BlockThreads)), 1, 1}}
	p.Name = kernelName(p.ID())
	return &text{p: p}
}

// operand declares n values that the thread reads and gives the offset of the first.
func (t *text) operand(typ string, bytes, n int) int {
	at := 0
	for _, f := range t.p.In {
		at += f.Bytes * f.Count
	}
	if at%bytes != 0 {
		t.p.In = append(t.p.In, Field{"zero", 1, bytes - at%bytes})
		at += bytes - at%bytes
	}
	t.p.In = append(t.p.In, Field{typ, bytes, n})
	return at
}

// done completes the source.
func (t *text) done() *Probe {
	p := t.p
	var b strings.Builder
	b.WriteString(t.vars.String())
	third := ""
	if p.Extra > 0 {
		third = fmt.Sprintf(", .param .align 64 .b8 w[%d]", p.Extra)
	}
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 p, .param .u64 q%s)\n", p.Name, third)
	if p.Cluster != [3]uint32{} {
		fmt.Fprintf(&b, ".reqnctapercluster %d, %d, %d\n", p.Cluster[0], p.Cluster[1], p.Cluster[2])
	}
	b.WriteString("{\n\t.reg .b8 %c<64>; .reg .b16 %h<128>; .reg .b32 %r<300>; .reg .b64 %rd<300>; " +
		".reg .b128 %q<8>; .reg .pred %p<32>;\n")
	b.WriteString("\tld.param.u64 %rd1, [p];\n\tld.param.u64 %rd2, [q];\n\tmov.u32 %r2, %tid.x;\n" +
		"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmad.lo.u32 %r1, %r3, %r4, %r2;\n")
	fmt.Fprintf(&b, "\tmul.wide.u32 %%rd3, %%r1, %d;\n\tadd.u64 %%rd3, %%rd1, %%rd3;\n"+
		"\tmul.wide.u32 %%rd4, %%r1, %d;\n\tadd.u64 %%rd4, %%rd2, %%rd4;\n", p.InStride(), p.OutStride)
	b.WriteString("\tand.b32 %r5, %r2, 1;\n\tsetp.ne.u32 %p1, %r5, 0;\n")
	b.WriteString(t.String())
	b.WriteString("\tret;\n}\n")
	p.Source = b.String()
	return p
}

// Magnitudes clears the signs of the values in an input of a matrix probe: what its kernel makes of it is the sum of
// the magnitudes.
func (p *Probe) Magnitudes(in []byte) []byte {
	out := append([]byte(nil), in...)
	stride := p.InStride()
	for th := range p.NumThreads() {
		at := th * stride
		for _, f := range p.In {
			elem, _ := strings.CutPrefix(f.Type, "m:")
			step := bitsOf(elem) / 8
			for i := step - 1; step > 0 && i < f.Bytes*f.Count; i += step {
				out[at+i] &= 0x7f
			}
			at += f.Bytes * f.Count
		}
	}
	return out
}
