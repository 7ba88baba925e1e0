package softgpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// Every load type from every space, through the space's own and the generic
// address, with all lanes, one lane in two, scattered and uniform addresses.
func TestLoadsAndStores(t *testing.T) {
	type shape struct {
		typ string
		n   int // bytes
		sgn bool
	}
	shapes := []shape{{"u8", 1, false}, {"s8", 1, true}, {"b8", 1, false}, {"u16", 2, false}, {"s16", 2, true},
		{"u32", 4, false}, {"s32", 4, true}, {"f32", 4, false}, {"u64", 8, false}, {"f64", 8, false}}
	var src strings.Builder
	src.WriteString(header + ".const .align 16 .b8 cbuf[1024] = {")
	for i := range 1024 {
		if i > 0 {
			src.WriteString(",")
		}
		fmt.Fprint(&src, uint8(i*37+11))
	}
	src.WriteString("};\n")
	// in: 1024 bytes; out: 8 bytes a thread. Addresses are index*n with index from a table.
	type variation struct{ space, addr string }
	var names []string
	var meta []shape
	for _, s := range shapes {
		for _, v := range []variation{{"global", "global"}, {"global", "generic"}, {"shared", "shared"},
			{"shared", "generic"}, {"local", "local"}, {"local", "generic"}, {"const", "const"}} {
			for _, reg := range []int{32, 64} {
				if s.n*8 > reg || s.typ == "f32" && reg == 64 {
					continue
				}
				name := fmt.Sprintf("k_%s_%s_%s_%d", s.typ, v.space, v.addr, reg)
				names = append(names, name)
				meta = append(meta, s)
				fmt.Fprintf(&src,
					".visible .entry %s(.param .u64 in, .param .u64 idx, .param .u64 out, .param .u64 back)\n{\n", name)
				src.WriteString("\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<19>;\n\t.reg .pred %p<4>;\n" +
					"\t.shared .align 16 .b8 sbuf[1024];\n\t.local .align 16 .b8 lbuf[1024];\n")
				src.WriteString("\tld.param.u64 %rd1, [in];\n\tld.param.u64 %rd2, [idx];\n" +
					"\tld.param.u64 %rd3, [out];\n\tld.param.u64 %rd4, [back];\n\tmov.u32 %r1, %tid.x;\n" +
					"\tmul.wide.u32 %rd5, %r1, 4;\n\tadd.u64 %rd2, %rd2, %rd5;\n\tld.global.u32 %r2, [%rd2];\n" +
					"\tmul.wide.u32 %rd5, %r1, 8;\n\tadd.u64 %rd3, %rd3, %rd5;\n")
				// Fill the space from memory.
				switch v.space {
				case "global":
					src.WriteString("\tmov.u64 %rd6, %rd1;\n")
				case "const":
					src.WriteString("\tmov.u64 %rd6, cbuf;\n")
				default:
					fmt.Fprintf(&src, "\tmov.u64 %%rd6, %s;\n"+
						"\tmov.u32 %%r3, 0;\nFILL:\n\tcvt.u64.u32 %%rd7, %%r3;\n\tadd.u64 %%rd8, %%rd1, %%rd7;\n"+
						"\tadd.u64 %%rd9, %%rd6, %%rd7;\n\tld.global.v4.u32 {%%r4,%%r5,%%r6,%%r7}, [%%rd8];\n"+
						"\tst.%s.v4.u32 [%%rd9], {%%r4,%%r5,%%r6,%%r7};\n\tadd.u32 %%r3, %%r3, 16;\n"+
						"\tsetp.lt.u32 %%p1, %%r3, 1024;\n\t@%%p1 bra FILL;\n\tbar.sync 0;\n",
						map[string]string{"shared": "sbuf", "local": "lbuf"}[v.space], v.space)
				}
				suffix := "." + v.space
				if v.addr == "generic" {
					fmt.Fprintf(&src, "\tcvta.%s.u64 %%rd6, %%rd6;\n", v.space)
					suffix = ""
				}
				dst := "%r8"
				if reg == 64 {
					dst = "%rd10"
				}
				fmt.Fprintf(&src, "\tmul.wide.u32 %%rd7, %%r2, %d;\n\tadd.u64 %%rd9, %%rd6, %%rd7;\n"+
					"\tmov.b%d %s, -1;\n\tand.b32 %%r3, %%r1, 1;\n\tsetp.eq.u32 %%p2, %%r3, 1;\n"+
					"\tsetp.ge.u32 %%p3, %%r1, 64;\n\tor.pred %%p2, %%p2, %%p3;\n\t@%%p2 ld%s.%s %s, [%%rd9];\n"+
					"\t@!%%p2 bra SKIP;\nSKIP:\n\tst.global.b%d [%%rd3], %s;\n",
					s.n, reg, dst, suffix, s.typ, dst, reg, dst)
				// And a store of the value to a place of its own.
				fmt.Fprintf(&src, "\tmul.wide.u32 %%rd7, %%r1, %d;\n\tadd.u64 %%rd4, %%rd4, %%rd7;\n"+
					"\tst.global.%s [%%rd4], %s;\n\tret;\n}\n", s.n, s.typ, dst)
			}
		}
	}
	d := newDevice(t, 2)
	in := d.load(src.String())
	buf := make([]byte, 1024)
	for i := range buf {
		buf[i] = uint8(i*37 + 11)
	}
	const threads = 160
	p, idx, out, back := upload(d, buf), d.alloc(4*threads), d.alloc(8*threads), d.alloc(8*threads)
	r := rand.New(rand.NewPCG(5, 6))
	for k, name := range names {
		s := meta[k]
		ix := view[uint32](d, idx, threads)
		for i := range ix {
			switch i / 32 {
			case 0, 2: // a row
				ix[i] = uint32(i % 32)
			case 3: // all the same
				ix[i] = 5
			default:
				ix[i] = uint32(r.IntN(1024 / s.n))
			}
		}
		o, bk := view[uint64](d, out, threads), view[byte](d, back, 8*threads)
		clear(o)
		clear(bk)
		d.run(in, name, LaunchConfig{Grid: dims(1), Block: dims(threads), Params: params(p, idx, out, back)})
		for i := range threads {
			var x uint64
			for j := range s.n {
				x |= uint64(buf[int(ix[i])*s.n+j]) << (8 * j)
			}
			if s.sgn {
				x = uint64(number.SignExtend(x, uint(8*s.n)))
			}
			if i < 64 && i&1 == 0 {
				x = ^uint64(0)
			}
			want := x
			if strings.HasSuffix(name, "_32") {
				want &= 0xffffffff
			}
			if o[i] != want {
				t.Fatalf("%s: thread %d index %d loaded %#x, want %#x", name, i, ix[i], o[i], want)
			}
			for j := range s.n {
				if bk[i*s.n+j] != byte(x>>(8*j)) {
					t.Fatalf("%s: thread %d stored %#x, want %#x", name, i, bk[i*s.n:(i+1)*s.n], x)
				}
			}
		}
	}
}

func TestVectorsAndPacking(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 p, .param .u64 q)
{
	.reg .b16 %h<9>;
	.reg .b32 %r<19>;
	.reg .b64 %rd<19>;
	.reg .b128 %q<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 32;
	add.u64 %rd1, %rd1, %rd3;
	add.u64 %rd2, %rd2, %rd3;
	ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%rd1];
	mov.b64 %rd4, {%h4, %h3, %h2, %h1};
	mov.b64 {%r2, %r3}, %rd4;
	mov.b32 {%h5, _}, %r3;
	mov.b32 %r4, {%h5, %h5};
	st.global.v2.u32 [%rd2], {%r3, %r4};
	ld.global.v2.u64 {%rd5, %rd6}, [%rd1+16];
	mov.b128 %q1, {%rd6, %rd5};
	st.global.b128 [%rd2+16], %q1;
	ld.global.v4.u8 {%r5, %r6, %r7, %r8}, [%rd1+8];
	add.u32 %r9, %r5, %r6;
	add.u32 %r9, %r9, %r7;
	add.u32 %r9, %r9, %r8;
	st.global.v2.b16 [%rd2+8], {%h1, %h2};
	st.global.u32 [%rd2+12], %r9;
	ret;
}
`)
	x := make([]byte, 32*40)
	for i := range x {
		x[i] = byte(i * 7)
	}
	p, q := upload(d, x), d.alloc(32*40)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(40), Params: params(p, q)})
	y := view[byte](d, q, 32*40)
	for i := range 40 {
		a, b := x[32*i:32*i+32], y[32*i:32*i+32]
		sum := int(a[8]) + int(a[9]) + int(a[10]) + int(a[11])
		want := slices.Concat(a[2:4], a[0:2], a[2:4], a[2:4], a[0:4],
			[]byte{byte(sum), byte(sum >> 8), 0, 0}, a[24:32], a[16:24])
		if !slices.Equal(b, want) {
			t.Fatalf("thread %d: %x, want %x", i, b, want)
		}
	}
}

// Atomics: every operation and type, from all threads on one word, against
// what any order of them gives; old values must be those of some order.
func TestAtomics(t *testing.T) {
	type op struct {
		fn, typ string
		n       int
		start   uint64
		want    func(n uint64) uint64 // after threads 0..n-1 with operand tid+1
	}
	sum := func(n uint64) uint64 { return n * (n + 1) / 2 }
	ops := []op{
		{"add", "u32", 4, 7, func(n uint64) uint64 { return uint64(uint32(7 + sum(n))) }},
		{"add", "s32", 4, 0xffffffff, func(n uint64) uint64 { return uint64(uint32(0xffffffff + sum(n))) }},
		{"add", "u64", 8, 1 << 40, func(n uint64) uint64 { return 1<<40 + sum(n) }},
		{"add", "f32", 4, number.Bits32(0.5), func(n uint64) uint64 { return number.Bits32(float32(sum(n)) + 0.5) }},
		{"add", "f64", 8, number.Bits64(0.25), func(n uint64) uint64 { return number.Bits64(float64(sum(n)) + 0.25) }},
		{"min", "u32", 4, 0xfffffff0, func(n uint64) uint64 { return 1 }},
		{"max", "u32", 4, 0, func(n uint64) uint64 { return n }},
		{"min", "s32", 4, 0xfffffffe, func(n uint64) uint64 { return 0xfffffffe }},
		{"max", "s32", 4, 0xfffffffe, func(n uint64) uint64 { return n }},
		{"min", "u64", 8, 1 << 60, func(n uint64) uint64 { return 1 }},
		{"max", "s64", 8, ^uint64(0), func(n uint64) uint64 { return n }},
		{"and", "b32", 4, 0xffffffff, func(n uint64) uint64 { return 0 }},
		{"or", "b32", 4, 1 << 31, func(n uint64) uint64 { return 1<<31 | 511 }},
		{"xor", "b32", 4, 5, func(n uint64) uint64 {
			x := uint64(5)
			for i := range n {
				x ^= i + 1
			}
			return x
		}},
		{"or", "b64", 8, 1 << 63, func(n uint64) uint64 { return 1<<63 | 511 }},
		{"inc", "u32", 4, 0, nil},
		{"dec", "u32", 4, 0, nil},
		{"exch", "b32", 4, 12345, nil},
		{"exch", "b64", 8, 12345, nil},
	}
	var src strings.Builder
	src.WriteString(header)
	for i, o := range ops {
		for _, sp := range []string{"global", "shared", ""} {
			fmt.Fprintf(&src, ".visible .entry k%d%s(.param .u64 p, .param .u64 q)\n"+
				"{\n\t.reg .b32 %%r<9>;\n\t.reg .b64 %%rd<9>;\n\t.reg .pred %%p<3>;\n\t.shared .align 8 .b8 s[8];\n"+
				"\tld.param.u64 %%rd1, [p];\n\tld.param.u64 %%rd2, [q];\n\tmov.u32 %%r1, %%tid.x;\n"+
				"\tadd.u32 %%r2, %%r1, 1;\n\tmul.wide.u32 %%rd3, %%r1, 8;\n\tadd.u64 %%rd2, %%rd2, %%rd3;\n", i, sp)
			addr := "[%rd1]"
			if sp == "shared" {
				addr = "[s]"
				src.WriteString("\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra W;\n\tld.global.b64 %rd4, [%rd1];\n" +
					"\tst.shared.b64 [s], %rd4;\nW:\n\tbar.sync 0;\n")
			}
			v, dst := "%r2", "%r3"
			switch o.typ {
			case "f32":
				src.WriteString("\tcvt.rn.f32.u32 %r2, %r2;\n")
			case "f64":
				src.WriteString("\tcvt.rn.f64.u32 %rd5, %r2;\n")
				v, dst = "%rd5", "%rd6"
			default:
				if o.n == 8 {
					src.WriteString("\tcvt.u64.u32 %rd5, %r2;\n")
					v, dst = "%rd5", "%rd6"
				}
				if o.fn == "inc" || o.fn == "dec" {
					src.WriteString("\tmov.u32 %r2, 9;\n")
				}
			}
			if sp != "" {
				sp = "." + sp
			}
			fmt.Fprintf(&src, "\tatom%s.%s.%s %s, %s, %s;\n\tst.global.b%d [%%rd2], %s;\n", sp, o.fn,
				o.typ, dst, addr, v, 8*o.n, dst)
			if sp == ".shared" {
				src.WriteString("\tbar.sync 0;\n\tld.shared.b64 %rd4, [s];\n\tst.global.b64 [%rd1], %rd4;\n")
			}
			src.WriteString("\tret;\n}\n")
		}
	}
	d := newDevice(t, 2)
	in := d.load(src.String())
	const n = 260
	p, q := d.alloc(8), d.alloc(8*n)
	for i, o := range ops {
		for _, sp := range []string{"global", "shared", ""} {
			view[uint64](d, p, 1)[0] = o.start
			clear(view[uint64](d, q, n))
			d.run(in, fmt.Sprintf("k%d%s", i, sp), LaunchConfig{Grid: dims(1), Block: dims(n), Params: params(p, q)})
			got := view[uint64](d, p, 1)[0]
			old := slices.Clone(view[uint64](d, q, n))
			name := fmt.Sprintf("atom.%s.%s.%s", sp, o.fn, o.typ)
			switch o.fn {
			case "inc", "dec":
				// 0…9 in a cycle of ten.
				count := map[uint64]int{}
				for _, x := range old {
					count[x]++
				}
				if len(count) != 10 || count[3] != n/10 {
					t.Fatalf("%s: old values %v", name, count)
				}
			case "exch":
				all := append(old, got)
				slices.Sort(all)
				for k, x := range all {
					want := uint64(k + 1)
					if k == n {
						want = 12345
					}
					if x != want {
						t.Fatalf("%s: values %v", name, all)
					}
				}
			default:
				if want := o.want(n); got != want {
					t.Fatalf("%s: %#x, want %#x", name, got, want)
				}
			}
			if o.fn == "add" && o.typ == "u32" {
				// One chain of sums: each thread's old value plus its own is the next one's.
				slices.Sort(old)
				if old[0] != o.start || len(slices.Compact(old)) != n {
					t.Fatalf("%s: old values are no chain", name)
				}
			}
		}
	}
}

func TestAtomicsOfSmallFloats(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 p)
{
	.reg .b16 %h<4>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.b16 %h1, 0x3c00;
	mov.b32 %r1, 0x40003c00;
	atom.global.add.noftz.f16 %h2, [%rd1+2], %h1;
	atom.global.add.noftz.f16x2 %r2, [%rd1+4], %r1;
	mov.b32 %r3, 0x40003f80;
	red.global.add.noftz.bf16x2 [%rd1+8], %r3;
	atom.global.cas.b16 %h3, [%rd1+12], 7, 8;
	ret;
}
`)
	p := upload(d, []uint16{0xaaaa, 0, 0, 0, 0, 0, 7, 0xbbbb})
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(64), Params: params(p)})
	want := []uint16{0xaaaa, number.RoundF16(64, 0), number.RoundF16(64, 0), number.RoundF16(128, 0),
		number.RoundBF16(64, 0), number.RoundBF16(128, 0), 8, 0xbbbb}
	if got := view[uint16](d, p, 8); !slices.Equal(got, want) {
		t.Fatalf("%x, want %x", got, want)
	}
}

func TestGlobalsAndInitializers(t *testing.T) {
	d := newDevice(t, 2)
	d.alloc(1) // so that the data does not start at the start
	m, err := ptx.Parse("g.ptx", []byte(header+`
.global .align 4 .u32 a[2][3] = {{1, 2, 3}, {4, 5, 6}};
.global .align 8 .u64 pa[2] = {a, generic(a)+8};
.const .align 4 .f32 c[3] = {1.5, 0f40000000, -2.0};
.global .v4 .u16 v = {1, 2, 3, 4};
.global .s8 small = -3;
.global .b8 zero[100];
.visible .entry k(.param .u64 q)
{
	.reg .b32 %r<4>;
	.reg .f32 %f<4>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [q];
	ld.global.u64 %rd2, [pa+8];
	ld.u32 %r1, [%rd2];
	st.global.u32 [%rd1], %r1;
	ld.const.f32 %f1, [c+8];
	st.global.f32 [%rd1+4], %f1;
	st.global.u32 [a+4], %r1;
	ret;
}
`))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := Load(m)
	if err != nil {
		t.Fatal(err)
	}
	base := d.alloc(mod.DataSize())
	in, err := mod.Instantiate(d.space, base)
	if err != nil {
		t.Fatal(err)
	}
	q := d.alloc(8)
	cfg := LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(q)}
	d.run(in, "k", cfg)
	got := view[uint32](d, q, 2)
	if got[0] != 3 || math.Float32frombits(got[1]) != -2 {
		t.Fatalf("read %d and %v", got[0], math.Float32frombits(got[1]))
	}
	byName := map[string]Global{}
	for _, g := range mod.Globals() {
		byName[g.Name] = g
	}
	if x := view[uint32](d, base+byName["a"].Offset, 6); !slices.Equal(x, []uint32{1, 3, 3, 4, 5, 6}) {
		t.Fatalf("a = %v", x)
	}
	if x := view[uint16](d, base+byName["v"].Offset, 4); !slices.Equal(x, []uint16{1, 2, 3, 4}) {
		t.Fatalf("v = %v", x)
	}
	if x := view[int8](d, base+byName["small"].Offset, 1); x[0] != -3 {
		t.Fatalf("small = %v", x)
	}
	if g := byName["c"]; !g.Const || g.Size != 12 {
		t.Fatalf("c: %+v", g)
	}
	// A module that is attached finds what was stored.
	d.run(mod.Attach(d.space, base), "k", cfg)
	if x := view[uint32](d, base+byName["a"].Offset, 6); x[1] != 3 {
		t.Fatalf("a = %v", x)
	}
}

func TestSpace(t *testing.T) {
	d := newDevice(t, 4)
	s := d.space
	var ae *AddressError
	if _, err := s.Bytes(testLo+4<<20-8, 16); !errors.As(err, &ae) || ae.Addr != testLo+4<<20 {
		t.Errorf("range over the end: %v", err)
	}
	if _, err := s.Bytes(testLo-1, 1); err == nil {
		t.Error("address below the window was accepted")
	}
	fd, err := unix.MemfdCreate("softgpu-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(testLo, fd, 0, PageSize, true); err == nil {
		t.Error("mapped twice")
	}
	at := uint64(testLo + 8<<20)
	for _, bad := range [][2]uint64{{at + 1, PageSize}, {at, PageSize + 4096}, {at, 0}, {testLo + testSize, PageSize},
		{testLo + testSize - PageSize, 2 * PageSize}, {0, PageSize}} {
		if err := s.Map(bad[0], fd, 0, bad[1], true); err == nil {
			t.Errorf("mapped %#x+%#x", bad[0], bad[1])
		}
	}
	// The second half, read-only, and writable at another address: the same bytes.
	if err := s.Map(at, fd, PageSize, PageSize, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(at+PageSize, fd, PageSize, PageSize, true); err != nil {
		t.Fatal(err)
	}
	in := d.load(header + `
.visible .entry k(.param .u64 p, .param .u64 q)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	ld.global.u32 %r1, [%rd1];
	add.u32 %r1, %r1, 1;
	st.global.u32 [%rd2], %r1;
	ret;
}
`)
	cfg := LaunchConfig{Grid: dims(1), Block: dims(1)}
	cfg.Params = params(at, at+PageSize)
	d.run(in, "k", cfg)
	d.run(in, "k", cfg)
	if b, _ := s.Bytes(at, 4); b[0] != 2 {
		t.Errorf("read %v through the other mapping", b)
	}
	cfg.Params = params(at, at)
	if f := d.fails(in, "k", cfg, FaultUnmapped); f.Addr != at {
		t.Errorf("write to read-only memory: %v", f)
	}
	host := make([]byte, 4096)
	host[100] = 41
	const va = 0x7f00_0000_0000
	if err := s.Alias(va, host); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(va+4095, host); err == nil {
		t.Error("overlapping alias")
	}
	if err := s.Alias(testLo+PageSize, host); err == nil {
		t.Error("alias inside the window")
	}
	cfg.Params = params(uint64(va+100), uint64(va+4092))
	d.run(in, "k", cfg)
	if host[4092] != 42 {
		t.Errorf("host memory %v", host[4092:])
	}
	cfg.Params = params(uint64(va+100), uint64(va+4096))
	d.fails(in, "k", cfg, FaultUnmapped)
	if err := s.Unalias(va); err != nil {
		t.Fatal(err)
	}
	d.fails(in, "k", cfg, FaultUnmapped)
	if err := s.Unmap(at, 2*PageSize); err != nil {
		t.Fatal(err)
	}
	cfg.Params = params(at, at+PageSize)
	d.fails(in, "k", cfg, FaultUnmapped)
}

func TestDynamicShared(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 q)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<6>;
	.shared .align 4 .b8 stat[12];
	ld.param.u64 %rd1, [q];
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, dyn;
	add.u32 %r4, %r3, %r2;
	st.shared.u32 [%r4], %r1;
	st.shared.u32 [stat], 99;
	bar.sync 0;
	mov.u32 %r5, %ntid.x;
	sub.u32 %r5, %r5, %r1;
	shl.b32 %r5, %r5, 2;
	add.u32 %r5, %r5, %r3;
	ld.shared.u32 %r6, [%r5+-4];
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r6;
	ret;
}
`)
	const n = 70
	q := d.alloc(4 * n)
	cfg := LaunchConfig{Grid: dims(1), Block: dims(n), Params: params(q), SharedDynamic: 4 * n}
	d.run(in, "k", cfg)
	for i, x := range view[uint32](d, q, n) {
		if x != uint32(n-1-i) {
			t.Fatalf("thread %d read %d", i, x)
		}
	}
	cfg.SharedDynamic = 4*n - 4
	d.fails(in, "k", cfg, FaultUnmapped)
}

func TestAtomicAddFlushes(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	.shared .align 4 .b8 s[4];
	ld.param.u64 %rd1, [p];
	mov.b32 %r1, 5;
	st.shared.u32 [s], %r1;
	red.global.add.f32 [%rd1], %r1;
	red.shared.add.f32 [s], %r1;
	ld.shared.u32 %r2, [s];
	st.global.u32 [%rd1+4], %r2;
	ret;
}
`)
	p := upload(d, []uint32{7, 0})
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p)})
	if got := view[uint32](d, p, 2); got[0] != 0 || got[1] != 10 {
		t.Fatalf("%x, want 0 and a", got)
	}
}

// Memory whose file shrinks under a launch is a fault of the launch, not of the process.
func TestMemoryThatGoesAway(t *testing.T) {
	s, err := NewSpace(testLo, testSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.MemfdCreate("softgpu-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, PageSize); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(testLo, fd, 0, PageSize, true); err != nil {
		t.Fatal(err)
	}
	m, err := ptx.Parse("gone.ptx", []byte(vecAdd))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := Load(m)
	if err != nil {
		t.Fatal(err)
	}
	in := mod.Attach(s, testLo)
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	p := uint64(testLo)
	_, err = in.Launch("vecadd", LaunchConfig{Grid: dims(4), Block: dims(64), Params: params(p, p, p, 256), Workers: 2})
	var f *Fault
	if !errors.As(err, &f) || f.Kind != FaultUnmapped || f.Addr-testLo >= PageSize ||
		!strings.HasPrefix(f.Inst, "ld.global") || f.Pos.Line == 0 {
		t.Fatalf("error %v", err)
	}
}

// A full warp reads one generic address of the local window: 32 different variables.
func TestGenericLocalIsEachLanesOwn(t *testing.T) {
	d := newDevice(t, 2)
	out := upload(d, make([]uint32, 32))
	in := d.load(header + `
.visible .entry k(.param .u64 out)
{
	.local .align 4 .b8 depot[8];
	.reg .b32 %r<3>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, depot;
	cvta.local.u64 %rd2, %rd2;
	mov.u32 %r1, %tid.x;
	st.u32 [%rd2+4], %r1;
	ld.u32 %r2, [%rd2+4];
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd3, %rd1, %rd3;
	st.global.u32 [%rd3], %r2;
	ret;
}`)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(out)})
	for i, x := range view[uint32](d, out, 32) {
		if x != uint32(i) {
			t.Fatalf("lane %d reads %d", i, x)
		}
	}
}
