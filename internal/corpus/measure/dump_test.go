package measure

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/isa"
	"holdfast/internal/softgpu/probe"
	"holdfast/ptx"
)

// TestDump writes all that footprints say to HOLDFAST_DUMP=FILE, a line for each kernel and launch: the corpus without
// and with contents of memory, the software GPU's probes, every spelling of the instruction table, and random kernels.
// A change that is to change nothing is made between two of these files that are equal.
func TestDump(t *testing.T) {
	file := os.Getenv("HOLDFAST_DUMP")
	if file == "" {
		t.Skip("HOLDFAST_DUMP=FILE is not set")
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	d := &dump{t: t, w: bufio.NewWriter(f)}
	d.modules()
	d.spellings()
	d.random()
	d.applications()
	if err := d.w.Flush(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A dump is the file that is written.
type dump struct {
	t  *testing.T
	w  *bufio.Writer
	in footprint.Instance
}

func (d *dump) line(format string, args ...any) { fmt.Fprintf(d.w, format+"\n", args...) }

// text summarises a module and judges a launch of each kernel.
func (d *dump) text(name string, text []byte) {
	m, err := ptx.Parse(name, text)
	if err != nil {
		d.line("%s: %v", name, err)
		return
	}
	list, err := summarise.Module(m)
	if err != nil {
		d.line("%s: %v", name, err)
		return
	}
	for _, s := range list {
		bytes, err := s.MarshalBinary()
		if err != nil {
			d.t.Error(err)
		}
		d.line("%s: %s: %v, %s: %x", name, s.Name, s.Class, s.Condition(), sha256.Sum256(bytes))
		l := &footprint.Launch{Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{32, 1, 1},
			Allocs: []footprint.Range{{Lo: 0x10000, Hi: 0x18000}, {Lo: 0x20000, Hi: 0x28000}}}
		for _, p := range s.Params {
			l.Params = append(l.Params, make([]byte, max(p.Off+p.Size-len(l.Params), 0))...)
			switch p.Size {
			case 4:
				l.Params[p.Off] = 40
			case 8:
				l.Params[p.Off+2] = byte(1 + p.Off/8%2)
			}
		}
		for range s.Globals {
			l.Globals = append(l.Globals, footprint.Range{Lo: 0x30000, Hi: 0x31000})
		}
		d.instance(s, l)
	}
}

func (d *dump) instance(s *footprint.Summary, l *footprint.Launch) {
	in := &d.in
	s.Evaluate(l, in)
	d.line("\t%v: %s; line %d; reads %x %v %v; writes %x %v; witness %x; relied %x; wanted %x", in.Verdict,
		in.Reason(), in.At, in.Reads, in.ReadsUnknown,
		in.ReadsVariables, in.Writes, in.WritesUnknown, in.Witness, in.Relied, in.Wanted)
}

// modules is every PTX file of the corpus.
func (d *dump) modules() {
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".ptx") && !strings.HasSuffix(path, ".ptx.gz") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(path, ".gz") {
			var z *gzip.Reader
			if z, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
				text, err = io.ReadAll(z)
			}
		}
		d.text(path, text)
		return err
	})
	if err != nil {
		d.t.Error(err)
	}
}

// spellings is the probes, and every instruction of the table in a kernel of its own: at a pointer in global memory,
// with and without a guard.
func (d *dump) spellings() {
	for _, p := range probe.All() {
		d.text(p.ID(), []byte(probe.Module([]*probe.Probe{p})))
	}
	for _, f := range isa.Forms() {
		list := f.Spellings()
		first := strings.Split(list[0], ".")
		r := rand.New(rand.NewPCG(uint64(len(list)), 1))
		for range 40 { // with several modifiers that may be left out
			sp := list[r.IntN(len(list))]
			for range r.IntN(3) {
				for _, m := range strings.Split(list[r.IntN(len(list))], ".") {
					if !slices.Contains(first, m) && !slices.Contains(strings.Split(sp, "."), m) {
						op, rest, _ := strings.Cut(sp[len(f.Op):], ".")
						sp = strings.TrimSuffix(f.Op+op+"."+m+"."+rest, ".")
					}
				}
			}
			list = append(list, sp)
		}
		slices.Sort(list)
		list = slices.Compact(list)
		for _, sp := range list {
			for k := range 1 << 3 {
				d.text(fmt.Sprintf("%s %d", sp, k), single(f, sp, k))
			}
		}
	}
	for _, name := range []string{"tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid",
		"gridid", "clusterid", "nclusterid", "cluster_ctaid",
		"cluster_nctaid", "cluster_ctarank", "cluster_nctarank", "is_explicit_cluster", "lanemask_eq", "lanemask_lt",
		"lanemask_le", "lanemask_gt", "lanemask_ge",
		"dynamic_smem_size", "total_smem_size", "aggr_smem_size", "reserved_smem_offset_0", "clock", "clock_hi",
		"clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi",
		"pm0", "pm0_64", "pm7", "envreg0", "envreg31", "current_graph_exec", "reserved_smem_offset_begin"} {
		for _, part := range []string{"", ".x", ".y", ".z", ".w"} {
			for _, w := range []string{"32 %r", "64 %rd"} {
				width, reg, _ := strings.Cut(w, " ")
				d.text(name+part+width, kernel(fmt.Sprintf("mov.u%s %s1, %%%s%s; %s", width, reg, name, part,
					map[string]string{"32": "cvt.u64.u32 %rd1, %r1;", "64": ""}[width])))
			}
		}
	}
}

// single is a kernel with one instruction: variant&1 with a guard, &2 whose first address is shared memory, &4 with
// constants.
func single(f *isa.Form, spelling string, variant int) []byte {
	types := f.TypesOf(spelling)
	mods := strings.Split(spelling, ".")
	var out []string
	for i, a := range f.Args {
		if a.Optional && variant&4 == 0 {
			continue
		}
		n, w := 1, isa.Bits(types[i])
		for _, m := range mods {
			if len(m) == 2 && m[0] == 'v' && (a.Role == isa.Dst || a.Role == isa.Src) {
				n = int(m[1] - '0')
			}
		}
		name := "%r"
		switch {
		case types[i] == ptx.Pred:
			name = "%p"
		case w > 64:
			name = "%q"
		case w > 32:
			name = "%rd"
		case w <= 16 && w > 0:
			name = "%h"
		}
		switch {
		case a.Role == isa.Mem && variant&2 != 0 && i == 0:
			out = append(out, "[%rd6+8]")
		case a.Role == isa.Mem:
			out = append(out, fmt.Sprintf("[%%rd%d+16]", 4+i%2))
		case a.Role == isa.Target:
			out = append(out, "L")
		case a.Role == isa.LitList:
			out = append(out, "TS")
		case a.Role == isa.Src && variant&4 != 0 && types[i] != ptx.Pred && n == 1 && i > 0:
			out = append(out, map[bool]string{true: "0f00000000", false: "16"}[isa.Float(types[i])])
		case n > 1 || strings.HasPrefix(spelling, "wmma.store") && a.Role == isa.Src && i == 1:
			var list []string
			for k := range max(n, 8) {
				if k < n || n == 1 {
					list = append(list, fmt.Sprintf("%s%d", name, k))
				}
			}
			out = append(out, "{"+strings.Join(list, ", ")+"}")
		default:
			out = append(out, fmt.Sprintf("%s%d", name, i))
		}
	}
	guard := map[bool]string{true: "@%p7 "}[variant&1 != 0]
	return kernel(fmt.Sprintf("%s%s %s;", guard, spelling, strings.Join(out, ", ")))
}

func kernel(body string) []byte {
	return []byte(`.version 9.0
.target sm_90a
.address_size 64
.global .align 8 .b8 g[4096];
.visible .entry k(.param .u64 p, .param .u64 q, .param .u32 n) {
	.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b128 %q<9>; .shared .align 16 .b8 s[1024];
	ld.param.u64 %rd4, [p]; ld.param.u64 %rd5, [q]; ld.param.u32 %r0, [n]; mov.u64 %rd6, s; mov.u32 %r7, %tid.x;
	mov.u32 %r1, 3; mov.u32 %r2, %r7; mov.u32 %r3, 1; cvt.u64.u32 %rd0, %r0; mov.u64 %rd1, %rd0; mov.u64 %rd2, 5; mov.u64 %rd3, %rd0; cvt.u16.u32 %h1, %r7; mov.u16 %h2, %h1;
	setp.lt.u32 %p7, %r7, %r0; setp.eq.u32 %p1, %r7, 0; setp.ne.u32 %p2, %r7, 0; mov.pred %p3, %p1;
	mul.wide.u32 %rd8, %r7, 4; add.u64 %rd7, %rd4, %rd8;
	TS: .branchtargets L, M;
	st.global.u32 [%rd7], %r7; bar.sync 0; ` + body + `
L:
	ld.global.u32 %r8, [%rd7]; cvt.u64.u32 %rd7, %r1; @%p1 st.global.u32 [%rd5+64], %r8; shl.b64 %rd7, %rd7, 2; add.u64 %rd7, %rd7, %rd5; st.global.u32 [%rd7], %r0;
	shl.b64 %rd8, %rd1, 2; add.u64 %rd8, %rd8, %rd5; st.global.u32 [%rd8], %r0; @%p0 st.global.u32 [%rd5], %r0;
M:
	ret;
}
`)
}

// random is kernels of TestDifferential.
func (d *dump) random() {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 77))
		d.text(fmt.Sprint("seed ", seed), []byte(randomKernel(r)))
	}
}

// applications is the launches of the corpus.
func (d *dump) applications() {
	apps, err := corpus.Load("../../../test/corpus")
	if err != nil {
		d.t.Fatal(err)
	}
	m := New(Defaults())
	for _, a := range apps {
		j := m.newJob(d.t.Context(), a)
		contents, err := j.known(newTables(a))
		if err != nil {
			d.t.Error(err)
			continue
		}
		for _, e := range j.foreseen(d.t) {
			d.line("%s launch %d: %s", a.Name, e.launch, a.Launches[e.launch].Kernel)
			d.instance(e.s, e.l)
			if len(contents[e.launch]) > 0 {
				e.l.Known, e.l.Seeks = contents[e.launch], true
				d.instance(e.s, e.l)
			}
		}
		a.Release()
	}
}
