package softgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// layoutOffset is where element (mn, k) of a matrix in shared memory lies, in bytes times 8
// for 1-bit elements: the canonical layouts of PTX ISA 9.7.15.5.1 in terms of units of 16 bytes.
// swizzle is the width in bytes of the pattern, 0 = none.
func layoutOffset(bits, mn, k, swizzle int, mnMajor bool, lbo, sbo int) (bitOffset int) {
	per := 128 / bits
	var unit, inside int
	switch {
	case !mnMajor && swizzle == 0: // ((8,n),2):((1,SBO),LBO)
		unit = mn%8*16 + mn/8*sbo + k/per*lbo
		inside = k % per
	case !mnMajor: // ((8,n),2):((W,SBO),1)
		unit = mn%8*swizzle + mn/8*sbo + k/per*16
		inside = k % per
	case swizzle == 0: // ((1,n),(8,k)):((X,SBO),(1,LBO))
		unit = mn/per*sbo + k%8*16 + k/8*lbo
		inside = mn % per
	default: // ((W,n),(8,k)):((1,LBO),(W,SBO))
		w := swizzle / 16
		unit = mn/per%w*16 + mn/per/w*lbo + k%8*swizzle + k/8*sbo
		inside = mn % per
	}
	// In each 1024 bytes, unit j of line r of 128 bytes changes place with j ^ r, in as many bits as the pattern has.
	line, chunk := unit/128, unit/16%8
	if swizzle > 0 {
		chunk ^= line % 8 & (swizzle/16 - 1)
	}
	return (line*128+chunk*16)*8 + inside*bits
}

func TestWGMMA(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	d := newDevice(t, 8)
	type variant struct {
		types   string // d a b
		k       int
		trans   bool
		integer bool
	}
	variants := []variant{{"f32 f16 f16", 16, true, false}, {"f16 f16 f16", 16, true, false},
		{"f32 bf16 bf16", 16, true, false}, {"f32 tf32 tf32", 8, false, false},
		{"f32 e4m3 e5m2", 32, false, false}, {"f16 e5m2 e4m3", 32, false, false}, {"s32 s8 u8", 32, false, true},
		{"s32 u8 s8", 32, false, true}, {"s32 b1 b1", 256, false, true}}
	for round := range 150 {
		v := variants[round%len(variants)]
		typ := strings.Fields(v.types)
		n := 8 * (1 + r.IntN(32))
		if v.integer && n > 32 && n%16 != 0 {
			n -= 8
		}
		const m = 64
		fd, fa, fb := numberFormats[typ[0]], numberFormats[typ[1]], numberFormats[typ[2]]
		aRegs := r.IntN(3) == 0
		scaleD := r.IntN(3) > 0
		negA, negB := r.IntN(2) == 0, r.IntN(2) == 0
		ta, tb := v.trans && r.IntN(2) == 0 && !aRegs, v.trans && r.IntN(2) == 0
		satfinite := v.integer && typ[1] != "b1" && r.IntN(2) == 0
		if v.integer {
			negA, negB = false, false
		}
		// With a sparse A, k is that of the instruction that takes as many of its elements.
		sparse, kb := typ[1] != "b1" && r.IntN(3) == 0, v.k
		if sparse {
			kb = 2 * v.k
		}
		// Place both matrices in 96 KiB.
		const aBytes, bBytes = 32 << 10, 64 << 10
		place := func(rows, columns int, f numberFormat, mnMajor bool, bits []uint64, mem []byte, at int) uint64 {
			swizzle := []int{0, 32, 64, 128}[r.IntN(4)]
			if !mnMajor && swizzle < columns*f.bits/8 {
				swizzle = 0 // a row has to fit
			}
			// Offsets that leave gaps between the groups of units.
			var lbo, sbo int
			switch {
			case !mnMajor && swizzle == 0:
				sbo, lbo = 512+16*8, 128
			case !mnMajor:
				sbo = swizzle * 8
			case swizzle == 0:
				sbo, lbo = 512, 128
			default:
				sbo = swizzle * 8
				lbo = 4 * sbo
			}
			for i := range rows {
				for k := range columns {
					off := at*8 + layoutOffset(f.bits, i, k, swizzle, mnMajor, lbo, sbo)
					for b := range f.bits {
						if bits[i*columns+k]>>b&1 != 0 {
							mem[(off+b)/8] |= 1 << ((off + b) % 8)
						}
					}
				}
			}
			mode := map[int]uint64{0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
			return uint64(at)>>4 | uint64(lbo)>>4<<16 | uint64(sbo)>>4<<32 | mode<<62
		}
		mem := make([]byte, aBytes+bBytes)
		ab, av := fill(r, fa, m*v.k)
		bb, bv := fill(r, fb, n*kb) // by columns
		db, dv := fill(r, fd, m*n)
		descA := place(m, v.k, fa, ta, ab, mem, 0)
		descB := place(n, kb, fb, tb, bb, mem, aBytes)
		regs := n / 2
		if typ[0] == "f16" {
			regs = n / 4
		}
		// p: 4 words of A for each thread, then the registers of D; the shared memory; descriptors.
		var words []uint32
		dRow := func(th, i int) (int, int) {
			return 16*(th/32) + th%32/4 + 8*(i/2%2), i/4*8 + th%4*2 + i%2
		}
		per := 32 / fa.bits
		for reg := range 4 {
			for th := range 128 {
				var x uint32
				for e := range per {
					row := 16*(th/32) + th%32/4 + 8*(reg%2)
					col := th%4*per + e + 4*per*(reg/2)
					x |= uint32(ab[row*v.k+col]) << (e * fa.bits)
				}
				words = append(words, x)
			}
		}
		// Metadata of each warp.
		dense := av
		selector := 0
		meta := make([]uint32, 128)
		if sparse {
			dense = make([]float64, m*kb)
			group := 4
			if typ[1] == "tf32" {
				group = 2
			}
			if fa.bits >= 16 {
				selector = r.IntN(2)
			}
			for warp := range 4 {
				list, at := randomSparsity(r, fa.bits, kb, group, 1, selector)
				for lane, x := range list {
					meta[32*warp+lane] = uint32(x)
				}
				for i, x := range at {
					dense[(16*warp+i/v.k)*kb+x] = av[16*warp*v.k+i]
				}
			}
		}
		words = append(words, meta...)
		dper := 32 / fd.bits
		for reg := range regs {
			for th := range 128 {
				var x uint32
				for e := range dper {
					row, col := dRow(th, reg*dper+e)
					x |= uint32(db[row*n+col]) << (e * fd.bits)
				}
				words = append(words, x)
			}
		}
		for o := 0; o < len(mem); o += 4 {
			words = append(words, binary.LittleEndian.Uint32(mem[o:]))
		}
		// The kernel.
		var b strings.Builder
		fmt.Fprintf(&b, "%s.visible .entry k(.param .u64 p, .param .u64 da, .param .u64 db)\n"+
			"{\n.reg .b32 %%r<200>; .reg .b64 %%rd<20>; .reg .pred %%p<3>;\n.extern .shared .align 1024 .b8 s[];\n",
			strings.Replace(header, "sm_90", "sm_90a", 1))
		b.WriteString("ld.param.u64 %rd1, [p]; ld.param.u64 %rd5, [da]; ld.param.u64 %rd6, [db]; " +
			"mov.u32 %r180, %tid.x; mul.wide.u32 %rd2, %r180, 4; add.u64 %rd1, %rd1, %rd2;\n")
		for i := range 4 {
			fmt.Fprintf(&b, "ld.global.u32 %%r%d, [%%rd1+%d];\n", 160+i, 512*i)
		}
		b.WriteString("ld.global.u32 %r184, [%rd1+2048];\n")
		for i := range regs {
			fmt.Fprintf(&b, "ld.global.u32 %%r%d, [%%rd1+%d];\n", i, 512*(5+i))
		}
		fmt.Fprintf(&b, "mov.u32 %%r181, 0; mov.u64 %%rd3, %%rd1; shl.b32 %%r182, %%r180, 2;\n"+
			"C: ld.global.u32 %%r183, [%%rd3+%d]; st.shared.u32 [%%r182], %%r183; add.u64 %%rd3, %%rd3, 512; "+
			"add.u32 %%r182, %%r182, 512; add.u32 %%r181, %%r181, 1; setp.lt.u32 %%p1, %%r181, %d; @%%p1 bra C;\n"+
			"bar.sync 0;\nfence.proxy.async;\nwgmma.fence.sync.aligned;\n",
			512*(5+regs), len(mem)/512)
		list := make([]string, regs)
		for i := range list {
			list[i] = fmt.Sprintf("%%r%d", i)
		}
		sign := func(neg bool) int {
			if neg {
				return -1
			}
			return 1
		}
		flag := func(x bool) int {
			if x {
				return 1
			}
			return 0
		}
		fmt.Fprintf(&b, "setp.ne.u32 %%p2, %d, 0;\n", flag(scaleD))
		name := fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n%dk%d.%s", n, v.k, strings.Join(typ, "."))
		if satfinite {
			name += ".satfinite"
		}
		if typ[1] == "b1" {
			name += ".and.popc"
		}
		matrices := "%rd5, %rd6"
		if aRegs {
			matrices = "{%r160, %r161, %r162, %r163}, %rd6"
		}
		if sparse {
			name = strings.Replace(name, "mma_async", "mma_async.sp", 1)
			name = strings.Replace(name, fmt.Sprintf("k%d.", v.k), fmt.Sprintf("k%d.", kb), 1)
			matrices += fmt.Sprintf(", %%r184, %d", selector)
		}
		text := fmt.Sprintf("%s {%s}, %s, %%p2", name, strings.Join(list, ", "), matrices)
		if !v.integer {
			text += fmt.Sprintf(", %d, %d", sign(negA), sign(negB))
		}
		if v.trans {
			if !aRegs {
				text += fmt.Sprintf(", %d", flag(ta))
			}
			text += fmt.Sprintf(", %d", flag(tb))
		}
		b.WriteString(text + ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n")
		for i := range regs {
			fmt.Fprintf(&b, "st.global.u32 [%%rd1+%d], %%r%d;\n", 512*(5+i), i)
		}
		b.WriteString("ret;\n}\n")
		d.next = testLo
		in := d.load(b.String())
		p := upload(d, words)
		d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(128), SharedDynamic: uint32(len(mem)),
			Params: params(p, descA, descB)})
		out := view[uint32](d, p+2560, regs*128)
		for th := range 128 {
			for i := range regs * dper {
				row, col := dRow(th, i)
				var want, mag float64
				if scaleD {
					want = dv[row*n+col]
					mag = math.Abs(want)
				}
				for x := range kb {
					q := dense[row*kb+x] * bv[col*kb+x]
					if negA != negB {
						q = -q
					}
					want += q
					mag += math.Abs(q)
				}
				tol := tolerance(typ[0], want, mag)
				if v.integer {
					tol = 0
					if satfinite {
						want = min(max(want, math.MinInt32), math.MaxInt32)
					} else {
						want = float64(int32(int64(want)))
					}
				}
				got := valueOf(typ[0], uint64(out[i/dper*128+th]>>(i%dper*fd.bits)))
				if math.Abs(got-want) > tol {
					t.Fatalf("%s A in registers %v, transposed %v %v, scale %v %v %v, descriptors %#x %#x: "+
						"row %d column %d: %v, want %v", name, aRegs, ta, tb, scaleD, negA, negB, descA,
						descB, row, col, got, want)
				}
			}
		}
	}
}

// BenchmarkMatrix is the rate of matrix instructions.
func BenchmarkMatrix(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"mma.f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r20,%r21,%r22,%r23}, " +
			"{%r24,%r25}, {%f1,%f2,%f3,%f4};\n"},
		{"mma.s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r30,%r31,%r32,%r33}, {%r20,%r21,%r22,%r23}, " +
			"{%r24,%r25}, {%r30,%r31,%r32,%r33};\n"},
		{"ldmatrix", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20,%r21,%r22,%r23}, [buf];\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := newDevice(b, 16)
			in := d.load(loopKernel("", c.text))
			n := 0
			for b.Loop() {
				if _, err := in.Launch("k",
					LaunchConfig{Grid: dims(4), Block: dims(128), Params: params(uint64(testLo + 1<<20))}); err != nil {
					b.Fatal(err)
				}
				n += 4 * 4 * 256
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(n), "ns/inst")
		})
	}
}
