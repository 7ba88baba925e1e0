package softgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// What each wmma shape and type needs: registers of a, b, c and d (PTX ISA 9.7.14.4.1).
type wmmaCase struct {
	shape, t   string // d a b c
	a, b, c, d int
	layouts    bool // more than row.col
	text       string
}

func wmmaCases() []wmmaCase {
	var cs []wmmaCase
	for _, s := range []string{"m16n16k16", "m8n32k16", "m32n8k16"} {
		for _, dc := range [][2]string{{"f16", "f16"}, {"f16", "f32"}, {"f32", "f16"}, {"f32", "f32"}} {
			n := map[string]int{"f16": 4, "f32": 8}
			cs = append(cs, wmmaCase{shape: s, t: dc[0] + " f16 f16 " + dc[1], a: 8, b: 8, c: n[dc[1]], d: n[dc[0]],
				layouts: true, text: dc[0] + "." + dc[1]})
		}
		a, b := map[string]int{"m16n16k16": 2, "m8n32k16": 1, "m32n8k16": 4}[s],
			map[string]int{"m16n16k16": 2, "m8n32k16": 4, "m32n8k16": 1}[s]
		cs = append(cs, wmmaCase{shape: s, t: "f32 bf16 bf16 f32", a: 2 * a, b: 2 * b, c: 8, d: 8, layouts: true})
		cs = append(cs, wmmaCase{shape: s, t: "s32 s8 s8 s32", a: a, b: b, c: 8, d: 8, layouts: true},
			wmmaCase{shape: s, t: "s32 u8 u8 s32", a: a, b: b, c: 8, d: 8})
	}
	return append(cs, wmmaCase{shape: "m16n16k8", t: "f32 tf32 tf32 f32", a: 4, b: 4, c: 8, d: 8, layouts: true},
		wmmaCase{shape: "m8n8k4", t: "f64 f64 f64 f64", a: 1, b: 1, c: 2, d: 2, layouts: true},
		wmmaCase{shape: "m8n8k32", t: "s32 s4 s4 s32", a: 1, b: 1, c: 2, d: 2},
		wmmaCase{shape: "m8n8k32", t: "s32 u4 u4 s32", a: 1, b: 1, c: 2, d: 2},
		wmmaCase{shape: "m8n8k128", t: "s32 b1 b1 s32", a: 1, b: 1, c: 2, d: 2})
}

// putMatrix lays a matrix out in memory: element (i, j) at i·ld + j by rows, j·ld + i by columns.
func putMatrix(mem []byte, bits []uint64, rows, cols, elem, ld int, byRows bool) {
	for i := range rows {
		for j := range cols {
			at := i*ld + j
			if !byRows {
				at = j*ld + i
			}
			for b := range elem {
				if bits[i*cols+j]>>b&1 != 0 {
					mem[(at*elem+b)/8] |= 1 << ((at*elem + b) % 8)
				}
			}
		}
	}
}

// Load, multiply and store in all layouts and strides: only memory counts, since fragments are opaque.
func TestWMMA(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	d := newDevice(t, 4)
	for _, c := range wmmaCases() {
		typ := strings.Fields(c.t)
		var m, n, k int
		fmt.Sscanf(c.shape, "m%dn%dk%d", &m, &n, &k)
		layouts := [][4]string{{"row", "col", "row", "row"}}
		if c.layouts {
			layouts = append(layouts, [4]string{"col", "row", "col", "col"}, [4]string{"row", "row", "col", "row"},
				[4]string{"col", "col", "row", "col"})
		}
		for li, l := range layouts {
			for _, shared := range []bool{false, true} {
				ld := func(rows, cols int, layout string) int {
					pad := 0
					if li > 0 {
						pad = 16
					}
					if layout == "row" {
						return cols + pad
					}
					return rows + pad
				}
				lda, ldb, ldc, ldd := ld(m, k, l[0]), ld(k, n, l[1]), ld(m, n, l[2]), ld(m, n, l[3])
				reg := map[bool]string{true: "%rd", false: "%r"}[typ[0] == "f64"]
				list := func(from, n int) string {
					var el []string
					for i := range n {
						el = append(el, fmt.Sprint(reg, from+i))
					}
					return "{" + strings.Join(el, ",") + "}"
				}
				types := c.text
				if types == "" {
					types = strings.ReplaceAll(c.t, " ", ".")
				}
				op, space, addr := "", "global", "%rd90"
				if typ[1] == "b1" {
					op = ".xor.popc"
				}
				if shared {
					space, addr = "shared", "%r90"
				}
				var b strings.Builder
				fmt.Fprintf(&b, "%s.visible .entry k(.param .u64 p)\n{\n.reg .b32 %%r<100>; .reg .b64 %%rd<100>; "+
					".shared .align 32 .b8 s[32768];\nld.param.u64 %%rd90, [p];\nmov.u32 %%r90, s;\n", header)
				if shared { // copy 24 KiB in
					b.WriteString("mov.u32 %r91, %laneid; shl.b32 %r91, %r91, 2; cvt.u64.u32 %rd91, %r91; " +
						"add.u64 %rd92, %rd90, %rd91; add.u32 %r92, %r90, %r91; mov.u32 %r93, 0;\n.reg .pred %p;\n" +
						"COPY: ld.global.u32 %r94, [%rd92]; st.shared.u32 [%r92], %r94; add.u64 %rd92, %rd92, 128; " +
						"add.u32 %r92, %r92, 128; add.u32 %r93, %r93, 1; setp.lt.u32 %p, %r93, 192; " +
						"@%p bra COPY; bar.warp.sync -1;\n")
				}
				fmt.Fprintf(&b, "wmma.load.a.sync.aligned.%s.%s.%s.%s %s, [%s], %d;\n", l[0], c.shape, space,
					typ[1], list(0, c.a), addr, lda)
				fmt.Fprintf(&b, "wmma.load.b.sync.aligned.%s.%s.%s.%s %s, [%s+8192], %d;\n", l[1], c.shape, space,
					typ[2], list(10, c.b), addr, ldb)
				fmt.Fprintf(&b, "wmma.load.c.sync.aligned.%s.%s.%s.%s %s, [%s+16384], %d;\n", l[2], c.shape, space,
					typ[3], list(20, c.c), addr, ldc)
				fmt.Fprintf(&b, "wmma.mma%s.sync.aligned.%s.%s.%s.%s %s, %s, %s, %s;\n", op, l[0], l[1], c.shape, types,
					list(30, c.d), list(0, c.a), list(10, c.b), list(20, c.c))
				fmt.Fprintf(&b, "wmma.store.d.sync.aligned.%s.%s.global.%s [%%rd90+24576], %s, %d;\nret;\n}\n", l[3],
					c.shape, typ[0], list(30, c.d), ldd)
				in := d.load(b.String())
				fa, fb, fc, fd := numberFormats[typ[1]], numberFormats[typ[2]],
					numberFormats[typ[3]], numberFormats[typ[0]]
				ab, av := fill(r, fa, m*k)
				bb, bv := fill(r, fb, k*n)
				cb, cv := fill(r, fc, m*n)
				p := upload(d, make([]byte, 40960))
				d.next = p // use the place again
				mem := view[byte](d, p, 40960)
				putMatrix(mem, ab, m, k, fa.bits, lda, l[0] == "row")
				putMatrix(mem[8192:], bb, k, n, fb.bits, ldb, l[1] == "row")
				putMatrix(mem[16384:], cb, m, n, fc.bits, ldc, l[2] == "row")
				d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p)})
				for i := range m {
					for j := range n {
						want := cv[i*n+j]
						mag := math.Abs(want)
						for x := range k {
							v := av[i*k+x] * bv[x*n+j]
							if typ[1] == "b1" {
								v = math.Abs(av[i*k+x] - bv[x*n+j])
							}
							want += v
							mag += math.Abs(v)
						}
						at := i*ldd + j
						if l[3] == "col" {
							at = j*ldd + i
						}
						var word uint64
						for b := range fd.bits / 8 {
							word |= uint64(mem[24576+at*fd.bits/8+b]) << (8 * b)
						}
						tol := tolerance(typ[0], want, mag)
						if typ[0] == "s32" {
							want, tol = float64(int32(int64(want))), 0
						}
						if got := valueOf(typ[0], word); math.Abs(got-want) > tol {
							t.Fatalf("%s %s %v shared=%v: (%d,%d) %v, want %v", c.shape, c.t,
								l, shared, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// ldmatrix, stmatrix and movmatrix: where each 16-bit element goes.
func TestMatrixMemory(t *testing.T) {
	d := newDevice(t, 4)
	for _, num := range []int{1, 2, 4} {
		for _, trans := range []bool{false, true} {
			mod := ""
			if trans {
				mod = ".trans"
			}
			list := strings.Join([]string{"%r10", "%r11", "%r12", "%r13"}[:num], ",")
			var store strings.Builder
			for j := range num {
				fmt.Fprintf(&store, "st.global.u32 [%%rd2+%d], %%r%d;\n", 2048+128*j, 10+j)
			}
			// 32 rows of 16 bytes, row i at 48·((5i)%32), so that rows are in no order.
			in := d.load(fmt.Sprintf(`%s.visible .entry k(.param .u64 p)
{
	.reg .b32 %%r<20>; .reg .b64 %%rd<9>; .reg .pred %%p;
	.shared .align 16 .b8 s[4096];
	ld.param.u64 %%rd1, [p];
	mov.u32 %%r1, %%laneid;
	mul.wide.u32 %%rd3, %%r1, 4;
	add.u64 %%rd2, %%rd1, %%rd3;
	mov.u32 %%r2, 0;
	shl.b32 %%r3, %%r1, 2;
	mov.u32 %%r5, s;
	add.u32 %%r3, %%r3, %%r5;
	mov.u64 %%rd4, %%rd2;
C:	ld.global.u32 %%r4, [%%rd4];
	st.shared.u32 [%%r3], %%r4;
	add.u64 %%rd4, %%rd4, 128;
	add.u32 %%r3, %%r3, 128;
	add.u32 %%r2, %%r2, 1;
	setp.lt.u32 %%p, %%r2, 16;
	@%%p bra C;
	bar.warp.sync -1;
	mul.lo.u32 %%r6, %%r1, 5;
	and.b32 %%r6, %%r6, 31;
	mad.lo.u32 %%r6, %%r6, 48, %%r5;
	ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 {%s}, [%%r6];
	%s
	mad.lo.u32 %%r7, %%r1, 16, %%r5;
	stmatrix.sync.aligned.m8n8.x%d%s.shared.b16 [%%r7+2048], {%s};
	bar.warp.sync -1;
	shl.b32 %%r8, %%r1, 2;
	add.u32 %%r8, %%r8, %%r5;
	ld.shared.u32 %%r9, [%%r8+2048];
	st.global.u32 [%%rd2+4096], %%r9;
	movmatrix.sync.aligned.m8n8.trans.b16 %%r14, %%r10;
	st.global.u32 [%%rd2+5120], %%r14;
	ret;
}
`, header, num, mod, list, store.String(), num, mod, list))
			buf := make([]uint16, 4096)
			for i := range 1024 {
				buf[i] = uint16(i*7 + 3)
			}
			p := upload(d, buf)
			d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p)})
			out := view[uint16](d, p, 4096)
			elem := func(j, row, col int) uint16 { return buf[48/2*((8*j+row)*5%32)+col] }
			for j := range num {
				for lane := range 32 {
					for e := range 2 {
						row, col := lane/4, 2*(lane%4)+e
						if trans {
							row, col = col, row
						}
						if got, want := out[1024+64*j+2*lane+e], elem(j, row, col); got != want {
							t.Fatalf("ldmatrix.x%d%s: matrix %d lane %d element %d: %d, want %d", num,
								mod, j, lane, e, got, want)
						}
					}
				}
			}
			// What stmatrix wrote: rows of 16 bytes in order, as loaded. Only the first 128 bytes are read back.
			for i := range 64 {
				if got, want := out[2048+i], elem(0, i/8, i%8); got != want {
					t.Fatalf("stmatrix.x%d%s: element %d: %d, want %d", num, mod, i, got, want)
				}
			}
			for lane := range 32 {
				for e := range 2 {
					// The matrix whose row-wise fragment is register 0, transposed.
					row, col := 2*(lane%4)+e, lane/4
					want := out[1024+2*(row*4+col/2)+col%2]
					if got := out[2560+2*lane+e]; got != want {
						t.Fatalf("movmatrix: lane %d element %d: %d, want %d", lane, e, got, want)
					}
				}
			}
		}
	}
}
