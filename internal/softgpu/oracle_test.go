package softgpu

// Every instruction with every type and rounding modifier is run as PTX and
// compared with an expectation that is computed another way: integers with
// math/big, floating point as exact rationals rounded once, bit by bit. Each runs
// with all lanes active and again with every other lane, which takes other paths.

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/softgpu/number"
)

// An expectation is one instruction and its meaning.
type expectation struct {
	inst string   // "add.rn.f32"
	dst  string   // type of the result register
	src  []string // types of the operands: b16, b32, b64, pred
	want func(x []uint64) uint64
	ok   func(x []uint64, got uint64) string // instead of want: "" if got will do
	tail string                              // more operands
}

func width(t string) int {
	switch t {
	case "pred":
		return 1
	case "b16", "f16", "bf16", "u16", "s16":
		return 16
	case "b64", "f64", "u64", "s64":
		return 64
	}
	return 32
}

func regType(t string) string {
	if t == "pred" {
		return "pred"
	}
	return fmt.Sprintf("b%d", width(t))
}

// kernelFor runs an instruction on inputs at p, three 8-byte words a thread, and
// writes two words a thread to q.
func kernelFor(name string, e expectation) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 p, .param .u64 q)\n{\n\t.reg .b32 %%r<5>;\n\t.reg .b64 %%rd<9>;\n"+
		"\t.reg .pred %%p<5>;\n", name)
	for i, t := range append([]string{e.dst, e.dst}, e.src...) {
		fmt.Fprintf(&b, "\t.reg .%s %%x%d;\n", regType(t), i)
	}
	b.WriteString("\tld.param.u64 %rd1, [p];\n\tld.param.u64 %rd2, [q];\n\tmov.u32 %r1, %tid.x;\n" +
		"\tmov.u32 %r2, %ctaid.x;\n\tmov.u32 %r3, %ntid.x;\n\tmad.lo.u32 %r1, %r2, %r3, %r1;\n")
	b.WriteString("\tmul.wide.u32 %rd3, %r1, 32;\n\tadd.u64 %rd3, %rd1, %rd3;\n\tmul.wide.u32 %rd4, %r1, 16;\n" +
		"\tadd.u64 %rd4, %rd2, %rd4;\n\tand.b32 %r2, %r1, 1;\n\tsetp.ne.u32 %p1, %r2, 0;\n")
	args := ""
	for i, t := range e.src {
		if t == "pred" {
			fmt.Fprintf(&b, "\tld.global.u32 %%r3, [%%rd3+%d];\n\tsetp.ne.u32 %%x%d, %%r3, 0;\n", 8*i, i+2)
		} else {
			fmt.Fprintf(&b, "\tld.global.b%d %%x%d, [%%rd3+%d];\n", width(t), i+2, 8*i)
		}
		args += fmt.Sprintf(", %%x%d", i+2)
	}
	args += e.tail
	if e.dst == "pred" {
		b.WriteString("\tsetp.ne.u32 %x1, 0, 0;\n")
	} else {
		fmt.Fprintf(&b, "\tmov.b%d %%x1, 0x5a5a;\n", width(e.dst))
	}
	fmt.Fprintf(&b, "\t%s %%x0%s;\n\t@%%p1 %s %%x1%s;\n", e.inst, args, e.inst, args)
	for i := range 2 {
		if e.dst == "pred" {
			fmt.Fprintf(&b, "\tselp.u32 %%r3, 1, 0, %%x%d;\n\tst.global.u32 [%%rd4+%d], %%r3;\n", i, 8*i)
		} else {
			fmt.Fprintf(&b, "\tst.global.b%d [%%rd4+%d], %%x%d;\n", width(e.dst), 8*i, i)
		}
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

const oracleThreads = 512

// check runs all of es on inputs made by gen.
func check(t *testing.T, es []expectation, gen func(r *rand.Rand, e expectation) []uint64) {
	t.Helper()
	var src strings.Builder
	src.WriteString(header)
	for i, e := range es {
		src.WriteString(kernelFor(fmt.Sprintf("k%d", i), e))
	}
	d := newDevice(t, 2)
	in := d.load(src.String())
	r := rand.New(rand.NewPCG(1, 2))
	type input [4]uint64
	p, q := upload(d, make([]input, oracleThreads)), upload(d, make([][2]uint64, oracleThreads))
	for i, e := range es {
		xs := view[input](d, p, oracleThreads)
		out := view[[2]uint64](d, q, oracleThreads)
		for j := range xs {
			xs[j] = input{}
			copy(xs[j][:], gen(r, e))
			for k, t := range e.src {
				xs[j][k] &= ^uint64(0) >> (64 - width(t))
			}
			out[j] = [2]uint64{}
		}
		d.run(in, fmt.Sprintf("k%d", i),
			LaunchConfig{Grid: dims(oracleThreads / 128), Block: dims(128), Params: params(p, q), Workers: 1})
		for j := range xs {
			x := xs[j][:len(e.src)]
			for k, got := range out[j] {
				if k == 1 && j&1 == 0 {
					want := uint64(0x5a5a)
					if e.dst == "pred" {
						want = 0
					}
					if got != want {
						t.Fatalf("%s: an inactive lane was written: %#x", e.inst, got)
					}
					continue
				}
				if e.ok != nil {
					if why := e.ok(x, got); why != "" {
						t.Fatalf("%s%s %#x (masked %v) = %#x: %s", e.inst, e.tail, x, k == 1, got, why)
					}
				} else if want := e.want(x); got != want {
					t.Fatalf("%s%s %#x (masked %v) = %#x, want %#x", e.inst, e.tail, x, k == 1, got, want)
				}
			}
		}
	}
	t.Logf("%d instructions", len(es))
}

// intInput mixes edges and random numbers.
func intInput(r *rand.Rand, w int) uint64 {
	edges := []uint64{0, 1, 2, 3, ^uint64(0), 1 << (w - 1), 1<<(w-1) - 1, 1<<(w-1) + 1, 31, 32, 33, 63, 64, 65, 7, 8,
		15, 16, 24, 0x80, 0x7f, 0xff, 1 << (w / 2), 1<<(w/2) - 1}
	switch r.IntN(3) {
	case 0:
		return edges[r.IntN(len(edges))]
	case 1:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64()
}

func genInt(r *rand.Rand, e expectation) []uint64 {
	x := make([]uint64, len(e.src))
	for i, t := range e.src {
		x[i] = intInput(r, max(8, width(t)))
	}
	return x
}

func bigOf(x uint64, w int, signed bool) *big.Int {
	v := new(big.Int).SetUint64(x & (^uint64(0) >> (64 - w)))
	if signed && v.Bit(w-1) != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(w)))
	}
	return v
}

// wrapTo is v modulo 2^w.
func wrapTo(v *big.Int, w int) uint64 {
	return new(big.Int).And(v, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(w)), big.NewInt(1))).Uint64()
}

func clampTo(v *big.Int, w int, signed bool) *big.Int {
	lo, hi := new(big.Int), new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(w)), big.NewInt(1))
	if signed {
		lo = new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), uint(w-1)))
		hi = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(w-1)), big.NewInt(1))
	}
	if v.Cmp(lo) < 0 {
		return lo
	}
	if v.Cmp(hi) > 0 {
		return hi
	}
	return v
}

func TestIntegerArithmetic(t *testing.T) {
	var es []expectation
	type num = *big.Int
	n := func() num { return new(big.Int) }
	for _, typ := range []string{"u16", "s16", "u32", "s32", "u64", "s64"} {
		w, signed := width(typ), typ[0] == 's'
		add := func(inst string, args int, f func(x []num) num) {
			es = append(es,
				expectation{inst: inst, dst: typ, src: []string{typ, typ, typ}[:args], want: func(x []uint64) uint64 {
					v := make([]num, len(x))
					for i := range x {
						v[i] = bigOf(x[i], w, signed)
					}
					return wrapTo(f(v), w)
				}})
		}
		hi := func(v num) num { return n().Rsh(v, uint(w)) }
		add("add."+typ, 2, func(x []num) num { return n().Add(x[0], x[1]) })
		add("sub."+typ, 2, func(x []num) num { return n().Sub(x[0], x[1]) })
		add("mul.lo."+typ, 2, func(x []num) num { return n().Mul(x[0], x[1]) })
		add("mul.hi."+typ, 2, func(x []num) num { return hi(n().Mul(x[0], x[1])) })
		add("mad.lo."+typ, 3, func(x []num) num { return n().Add(n().Mul(x[0], x[1]), x[2]) })
		add("mad.hi."+typ, 3, func(x []num) num { return n().Add(hi(n().Mul(x[0], x[1])), x[2]) })
		add("div."+typ, 2, func(x []num) num {
			if x[1].Sign() == 0 {
				return big.NewInt(-1)
			}
			return n().Quo(x[0], x[1])
		})
		add("rem."+typ, 2, func(x []num) num {
			if x[1].Sign() == 0 {
				return n().SetInt64(-1) // H200, driver 580.159, measured
			}
			return n().Rem(x[0], x[1])
		})
		add("sad."+typ, 3, func(x []num) num { return n().Add(n().Abs(n().Sub(x[0], x[1])), x[2]) })
		add("min."+typ, 2, func(x []num) num {
			if x[0].Cmp(x[1]) < 0 {
				return x[0]
			}
			return x[1]
		})
		add("max."+typ, 2, func(x []num) num {
			if x[0].Cmp(x[1]) > 0 {
				return x[0]
			}
			return x[1]
		})
		if signed {
			add("abs."+typ, 1, func(x []num) num { return n().Abs(x[0]) })
			add("neg."+typ, 1, func(x []num) num { return n().Neg(x[0]) })
		}
		if typ == "s32" {
			add("add.sat.s32", 2, func(x []num) num { return clampTo(n().Add(x[0], x[1]), 32, true) })
			add("sub.sat.s32", 2, func(x []num) num { return clampTo(n().Sub(x[0], x[1]), 32, true) })
			add("mad.hi.sat.s32", 3,
				func(x []num) num { return clampTo(n().Add(hi(n().Mul(x[0], x[1])), x[2]), 32, true) })
			add("min.relu.s32", 2, func(x []num) num {
				v := x[0]
				if x[1].Cmp(v) < 0 {
					v = x[1]
				}
				if v.Sign() < 0 {
					return n()
				}
				return v
			})
		}
		if w < 64 {
			wide := fmt.Sprintf("%c%d", typ[0], 2*w)
			for _, args := range []int{2, 3} {
				op := []string{"mul", "mad"}[args-2]
				es = append(es, expectation{inst: op + ".wide." + typ, dst: wide, src: []string{typ, typ, wide}[:args],
					want: func(x []uint64) uint64 {
						v := n().Mul(bigOf(x[0], w, signed), bigOf(x[1], w, signed))
						if args == 3 {
							v.Add(v, bigOf(x[2], 2*w, signed))
						}
						return wrapTo(v, 2*w)
					}})
			}
		}
		// Shifts: the amount is an unsigned 32-bit number, clamped.
		es = append(es,
			expectation{inst: "shr." + typ, dst: typ, src: []string{typ, "b32"}, want: func(x []uint64) uint64 {
				return wrapTo(n().Rsh(bigOf(x[0], w, signed), uint(min(x[1], 200))), w)
			}})
		if !signed {
			es = append(es, expectation{inst: fmt.Sprintf("shl.b%d", w), dst: typ, src: []string{typ, "b32"},
				want: func(x []uint64) uint64 {
					return wrapTo(n().Lsh(bigOf(x[0], w, false), uint(min(x[1], 200))), w)
				}})
			for name, f := range map[string]func(z, x, y *big.Int) *big.Int{"and": (*big.Int).And,
				"or": (*big.Int).Or, "xor": (*big.Int).Xor} {
				es = append(es, expectation{inst: fmt.Sprintf("%s.b%d", name, w), dst: typ, src: []string{typ, typ},
					want: func(x []uint64) uint64 {
						return wrapTo(f(n(), bigOf(x[0], w, false), bigOf(x[1], w, false)), w)
					}})
			}
			es = append(es, expectation{inst: fmt.Sprintf("not.b%d", w), dst: typ, src: []string{typ},
				want: func(x []uint64) uint64 {
					return wrapTo(n().Not(bigOf(x[0], w, false)), w)
				}}, expectation{inst: fmt.Sprintf("cnot.b%d", w), dst: typ, src: []string{typ},
				want: func(x []uint64) uint64 {
					if x[0] == 0 {
						return 1
					}
					return 0
				}})
		}
	}
	for _, typ := range []string{"u32", "s32"} {
		signed := typ[0] == 's'
		low := func(x uint64) num { return bigOf(x, 24, signed) }
		for _, mode := range []string{"lo", "hi"} {
			shift := map[string]uint{"lo": 0, "hi": 16}[mode]
			es = append(es, expectation{inst: "mul24." + mode + "." + typ, dst: typ, src: []string{typ, typ},
				want: func(x []uint64) uint64 {
					return wrapTo(n().Rsh(n().Mul(low(x[0]), low(x[1])), shift), 32)
				}}, expectation{inst: "mad24." + mode + "." + typ, dst: typ, src: []string{typ, typ, typ},
				want: func(x []uint64) uint64 {
					return wrapTo(n().Add(n().Rsh(n().Mul(low(x[0]), low(x[1])), shift), bigOf(x[2], 32, signed)), 32)
				}})
		}
		for _, typ2 := range []string{"u32", "s32"} {
			signed2 := typ2[0] == 's'
			es = append(es, expectation{inst: "dp4a." + typ + "." + typ2, dst: "b32",
				src: []string{"b32", "b32", "b32"}, want: func(x []uint64) uint64 {
					v := bigOf(x[2], 32, signed || signed2)
					for i := range 4 {
						v = n().Add(v, n().Mul(bigOf(x[0]>>(8*i), 8, signed), bigOf(x[1]>>(8*i), 8, signed2)))
					}
					return wrapTo(v, 32)
				}})
			for k, mode := range []string{"lo", "hi"} {
				es = append(es, expectation{inst: "dp2a." + mode + "." + typ + "." + typ2, dst: "b32",
					src: []string{"b32", "b32", "b32"}, want: func(x []uint64) uint64 {
						v := bigOf(x[2], 32, signed || signed2)
						for i := range 2 {
							v = n().Add(v,
								n().Mul(bigOf(x[0]>>(16*i), 16, signed), bigOf(x[1]>>(8*(i+2*k)), 8, signed2)))
						}
						return wrapTo(v, 32)
					}})
			}
		}
	}
	check(t, es, genInt)
}

func TestBitManipulation(t *testing.T) {
	var es []expectation
	for _, w := range []int{32, 64} {
		b := fmt.Sprintf("b%d", w)
		bit := func(x uint64, i int) uint64 { return x >> i & 1 }
		one := func(inst, dst string, f func(x uint64) uint64) {
			es = append(es,
				expectation{inst: inst, dst: dst, src: []string{b}, want: func(x []uint64) uint64 { return f(x[0]) }})
		}
		one("popc."+b, "b32", func(x uint64) (n uint64) {
			for i := range w {
				n += bit(x, i)
			}
			return n
		})
		one("clz."+b, "b32", func(x uint64) uint64 {
			n := 0
			for n < w && bit(x, w-1-n) == 0 {
				n++
			}
			return uint64(n)
		})
		one("brev."+b, b, func(x uint64) (r uint64) {
			for i := range w {
				r |= bit(x, i) << (w - 1 - i)
			}
			return r
		})
		for _, sign := range []string{"u", "s"} {
			typ := fmt.Sprintf("%s%d", sign, w)
			for _, shift := range []bool{false, true} {
				inst := "bfind." + typ
				if shift {
					inst = "bfind.shiftamt." + typ
				}
				one(inst, "b32", func(x uint64) uint64 {
					skip := uint64(0)
					if sign == "s" {
						skip = bit(x, w-1)
					}
					for i := w - 1; i >= 0; i-- {
						if bit(x, i) != skip {
							if shift {
								return uint64(w - 1 - i)
							}
							return uint64(i)
						}
					}
					return 0xffffffff
				})
			}
			es = append(es, expectation{inst: "bfe." + typ, dst: b, src: []string{b, "b32", "b32"},
				want: func(x []uint64) (d uint64) {
					// The ISA's own pseudocode.
					msb := w - 1
					pos, n := fieldOf(x[1], x[2], w)
					var s uint64
					if sign == "s" && n != 0 {
						s = bit(x[0], min(pos+n-1, msb))
					}
					for i := 0; i <= msb; i++ {
						v := s
						if i < n && pos+i <= msb {
							v = bit(x[0], pos+i)
						}
						d |= v << i
					}
					return d
				}})
		}
		es = append(es,
			expectation{inst: "bfi." + b, dst: b, src: []string{b, b, "b32", "b32"}, want: func(x []uint64) uint64 {
				pos, n := fieldOf(x[2], x[3], w)
				f := x[1]
				for i := 0; i < n && pos+i < w; i++ {
					f = f&^(1<<(pos+i)) | bit(x[0], i)<<(pos+i)
				}
				return f
			}})
	}
	for _, mode := range []string{"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", ""} {
		inst := "prmt.b32"
		if mode != "" {
			inst += "." + mode
		}
		es = append(es,
			expectation{inst: inst, dst: "b32", src: []string{"b32", "b32", "b32"}, want: func(x []uint64) (d uint64) {
				v := x[1]<<32 | x[0]
				for i := range 4 {
					c := int(x[2] & 3)
					var k int
					switch mode {
					case "":
						sel := int(x[2] >> (4 * i) & 15)
						by := v >> (8 * (sel & 7)) & 0xff
						if sel&8 != 0 {
							by = by >> 7 * 0xff
						}
						d |= by << (8 * i)
						continue
					case "f4e":
						k = c + i
					case "b4e":
						k = (c - i) & 7
					case "rc8":
						k = c
					case "ecl":
						k = max(c, i)
					case "ecr":
						k = min(c, i)
					case "rc16":
						k = c&1*2 + i&1
					}
					d |= v >> (8 * k) & 0xff << (8 * i)
				}
				return d
			}})
	}
	for _, dir := range []string{"l", "r"} {
		for _, mode := range []string{"clamp", "wrap"} {
			es = append(es, expectation{inst: "shf." + dir + "." + mode + ".b32", dst: "b32",
				src: []string{"b32", "b32", "b32"}, want: func(x []uint64) uint64 {
					n := x[2] & 31
					if mode == "clamp" {
						n = min(x[2], 32)
					}
					if dir == "l" {
						return (x[1]<<n | x[0]>>(32-n)) & 0xffffffff
					}
					return (x[1]<<(32-n) | x[0]>>n) & 0xffffffff
				}})
		}
	}
	for _, lut := range []int{0x00, 0xff, 0xc0, 0xfc, 0x3c, 0x96, 0xe8, 0xca, 0x1b, 0x80, 0xfe, 0x2d} {
		es = append(es, expectation{inst: "lop3.b32", dst: "b32", src: []string{"b32", "b32", "b32"},
			tail: fmt.Sprintf(", %d", lut), want: func(x []uint64) (d uint64) {
				for i := range 32 {
					k := x[0]>>i&1<<2 | x[1]>>i&1<<1 | x[2]>>i&1
					d |= uint64(lut) >> k & 1 << i
				}
				return d
			}})
	}
	es = append(es,
		expectation{inst: "fns.b32", dst: "b32", src: []string{"b32", "b32", "b32"}, want: findNthSet})
	check(t, es, genInt)
}

// findNthSet is fns, as the ISA's own pseudocode has it.
func findNthSet(x []uint64) uint64 {
	mask, base, offset := uint32(x[0]), int64(uint32(x[1])), int64(int32(x[2]))
	switch {
	case offset == math.MinInt32:
		return 0 // H200, driver 580.159, measured
	case base > 31:
		return 0xffffffff
	}
	inc, count, n := int64(1), offset-1, int64(0)
	if offset == 0 {
		if mask>>base&1 != 0 {
			return uint64(base)
		}
		return 0xffffffff
	}
	if offset < 0 {
		inc, count = -1, -offset-1
	}
	for pos := base; pos >= 0 && pos < 32; pos += inc {
		if mask>>pos&1 != 0 {
			if n == count {
				return uint64(pos)
			}
			n++
		}
	}
	return 0xffffffff
}

func TestIntegerCompare(t *testing.T) {
	var es []expectation
	ops := map[string]func(c int) bool{"eq": func(c int) bool { return c == 0 },
		"ne": func(c int) bool { return c != 0 }, "lt": func(c int) bool { return c < 0 },
		"le": func(c int) bool { return c <= 0 }, "gt": func(c int) bool { return c > 0 },
		"ge": func(c int) bool { return c >= 0 }}
	alias := map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
	for _, typ := range []string{"u16", "s16", "u32", "s32", "u64", "s64", "b16", "b32", "b64"} {
		w, signed := width(typ), typ[0] == 's'
		for _, op := range []string{"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"} {
			name := op
			if a, ok := alias[op]; ok {
				if typ[0] != 'u' {
					continue
				}
				name = a
			}
			if typ[0] == 'b' && op != "eq" && op != "ne" {
				continue
			}
			f := func(x []uint64) bool { return ops[name](bigOf(x[0], w, signed).Cmp(bigOf(x[1], w, signed))) }
			es = append(es, expectation{inst: "setp." + op + "." + typ, dst: "pred", src: []string{typ, typ},
				want: func(x []uint64) uint64 { return number.FromBool(f(x)) }})
			for _, c := range []string{"and", "or", "xor"} {
				g := func(x []uint64) bool {
					switch p := x[2] != 0; c {
					case "and":
						return f(x) && p
					case "or":
						return f(x) || p
					default:
						return f(x) != p
					}
				}
				es = append(es, expectation{inst: "setp." + op + "." + c + "." + typ, dst: "pred",
					src: []string{typ, typ, "pred"}, want: func(x []uint64) uint64 { return number.FromBool(g(x)) }})
				if op == "lt" {
					es = append(es, expectation{inst: "set." + op + "." + c + ".u32." + typ, dst: "b32",
						src:  []string{typ, typ, "pred"},
						want: func(x []uint64) uint64 { return number.FromBool(g(x)) * 0xffffffff }})
				}
			}
			es = append(es, expectation{inst: "set." + op + ".f32." + typ, dst: "b32", src: []string{typ, typ},
				want: func(x []uint64) uint64 { return number.FromBool(f(x)) * 0x3f800000 }})
		}
	}
	check(t, es, genInt)
}

// A floatFormat is an IEEE format; its numbers are exact rationals.
type floatFormat struct {
	name string
	e, m int
	nan  uint64
}

var (
	binary16 = floatFormat{"f16", 5, 10, 0x7fff}
	brain16  = floatFormat{"bf16", 8, 7, 0x7fff}
	binary32 = floatFormat{"f32", 8, 23, 0x7fffffff}
	binary64 = floatFormat{"f64", 11, 52, 0x7ff8000000000000}
)

func (f floatFormat) bias() int           { return 1<<(f.e-1) - 1 }
func (f floatFormat) signBit() uint64     { return 1 << (f.e + f.m) }
func (f floatFormat) inf() uint64         { return (1<<f.e - 1) << f.m }
func (f floatFormat) isNaN(x uint64) bool { return x&^f.signBit()&(f.signBit()-1) > f.inf() }
func (f floatFormat) isInf(x uint64) bool { return x&(f.signBit()-1) == f.inf() }
func (f floatFormat) neg(x uint64) bool   { return x&f.signBit() != 0 }
func (f floatFormat) zero(x uint64) bool  { return x&(f.signBit()-1) == 0 }
func (f floatFormat) subnormal(x uint64) bool {
	return x&f.inf() == 0 && !f.zero(x)
}
func (f floatFormat) flush(x uint64) uint64 {
	if f.subnormal(x) {
		return x & f.signBit()
	}
	return x
}

func pow2(n int) *big.Rat {
	if n >= 0 {
		return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(n)))
	}
	return new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(-n)))
}

// rat is the value of a finite number.
func (f floatFormat) rat(x uint64) *big.Rat {
	exp := int(x >> f.m & (1<<f.e - 1))
	frac := x & (1<<f.m - 1)
	if exp == 0 {
		exp = 1
	} else {
		frac |= 1 << f.m
	}
	r := new(big.Rat).SetInt(new(big.Int).SetUint64(frac))
	r.Mul(r, pow2(exp-f.bias()-f.m))
	if f.neg(x) {
		r.Neg(r)
	}
	return r
}

// round rounds a non-zero rational; more says that the value is a little
// larger in magnitude than r.
func (f floatFormat) round(r *big.Rat, mode string, more bool) uint64 {
	var sign uint64
	neg := r.Sign() < 0
	if neg {
		sign = f.signBit()
		r = new(big.Rat).Neg(r)
	}
	exp := r.Num().BitLen() - r.Denom().BitLen()
	if r.Cmp(pow2(exp)) < 0 {
		exp--
	}
	exp = max(exp, 1-f.bias())
	scaled := new(big.Rat).Mul(r, pow2(f.m-exp))
	q, rem := new(big.Int).QuoRem(scaled.Num(), scaled.Denom(), new(big.Int))
	half := new(big.Int).Lsh(rem, 1).Cmp(scaled.Denom()) // against one half
	exact := rem.Sign() == 0 && !more
	up := false
	switch mode {
	case "rn", "":
		up = half > 0 || half == 0 && (more || q.Bit(0) != 0)
	case "rna":
		up = half >= 0
	case "rp":
		up = !exact && !neg
	case "rm":
		up = !exact && neg
	}
	if up {
		q.Add(q, big.NewInt(1))
	}
	// q units of 2^(exp-m).
	if q.BitLen() > f.m+1 {
		q.Rsh(q, 1)
		exp++
	}
	if q.BitLen() <= f.m {
		return sign | q.Uint64()
	}
	if exp > f.bias() {
		if mode == "rz" || mode == "rm" && !neg || mode == "rp" && neg {
			return sign | (f.inf() - 1)
		}
		return sign | f.inf()
	}
	return sign | uint64(exp+f.bias())<<f.m | q.Uint64()&(1<<f.m-1)
}

// exactSum is x*y+z with the rules for infinities, NaN and zeros; y = nil is one.
func (f floatFormat) exactSum(x, y, z uint64, product bool, mode string) uint64 {
	if f.isNaN(x) || product && f.isNaN(y) || f.isNaN(z) {
		return f.nan
	}
	neg := f.neg(x) != (product && f.neg(y))
	pInf := f.isInf(x) || product && f.isInf(y)
	if pInf && product && (f.zero(x) || f.zero(y)) {
		return f.nan
	}
	if pInf {
		if f.isInf(z) && f.neg(z) != neg {
			return f.nan
		}
		if neg {
			return f.inf() | f.signBit()
		}
		return f.inf()
	}
	if f.isInf(z) {
		return z
	}
	p := f.rat(x)
	if product {
		p.Mul(p, f.rat(y))
	}
	s := new(big.Rat).Add(p, f.rat(z))
	if s.Sign() == 0 {
		if p.Sign() == 0 && f.zero(z) && neg == f.neg(z) {
			return z
		}
		if mode == "rm" {
			return f.signBit()
		}
		return 0
	}
	return f.round(s, mode, false)
}

func (f floatFormat) product(x, y uint64, mode string) uint64 {
	neg := (x ^ y) & f.signBit()
	switch {
	case f.isNaN(x) || f.isNaN(y) || f.isInf(x) && f.zero(y) || f.zero(x) && f.isInf(y):
		return f.nan
	case f.isInf(x) || f.isInf(y):
		return f.inf() | neg
	case f.zero(x) || f.zero(y):
		return neg
	}
	return f.round(new(big.Rat).Mul(f.rat(x), f.rat(y)), mode, false)
}

func (f floatFormat) quotient(x, y uint64, mode string) uint64 {
	neg := (x ^ y) & f.signBit()
	switch {
	case f.isNaN(x) || f.isNaN(y) || f.isInf(x) && f.isInf(y) || f.zero(x) && f.zero(y):
		return f.nan
	case f.isInf(x) || f.zero(y):
		return f.inf() | neg
	case f.zero(x) || f.isInf(y):
		return neg
	}
	return f.round(new(big.Rat).Quo(f.rat(x), f.rat(y)), mode, false)
}

func (f floatFormat) root(x uint64, mode string) uint64 {
	switch {
	case f.isNaN(x) || f.neg(x) && !f.zero(x):
		return f.nan
	case f.isInf(x) || f.zero(x):
		return x
	}
	// floor(sqrt(x * 4^k)) / 2^k with k large.
	r := new(big.Rat).Mul(f.rat(x), pow2(2*1200))
	q := new(big.Int).Quo(r.Num(), r.Denom())
	s := new(big.Int).Sqrt(q)
	exact := r.IsInt() && new(big.Int).Mul(s, s).Cmp(q) == 0
	return f.round(new(big.Rat).Mul(new(big.Rat).SetInt(s), pow2(-1200)), mode, !exact)
}

func (f floatFormat) sat(x uint64) uint64 {
	one := uint64(f.bias()) << f.m
	switch {
	case f.isNaN(x) || f.neg(x):
		return 0
	case x > one:
		return one
	}
	return x
}

// floatInput mixes special numbers, numbers near each other and any bits.
func floatInput(r *rand.Rand, f floatFormat) uint64 {
	one := uint64(f.bias()) << f.m
	edges := []uint64{0, 1, 2, 1<<f.m - 1, 1 << f.m, 1<<f.m + 1, one, one - 1, one + 1, one + 1<<f.m, f.inf() - 1,
		f.inf(), f.inf() + 1, f.inf() | 1<<(f.m-1), f.inf() - 1<<f.m, one - uint64(f.m)<<f.m, one + uint64(f.m)<<f.m}
	sign := uint64(r.IntN(2)) * f.signBit()
	switch r.IntN(4) {
	case 0:
		return sign | edges[r.IntN(len(edges))]
	case 1: // few bits, moderate exponent
		return sign | (one+uint64(r.IntN(9))<<f.m-4<<f.m)&^(1<<f.m-1) |
			r.Uint64()&(1<<f.m-1)>>r.IntN(f.m)<<r.IntN(f.m)&(1<<f.m-1)
	case 2:
		return sign | (one + uint64(r.IntN(2*f.m))<<f.m - uint64(f.m)<<f.m) | r.Uint64()&(1<<f.m-1)
	}
	return r.Uint64()
}

func formatOf(t string) (floatFormat, bool) {
	for _, f := range []floatFormat{binary16, brain16, binary32, binary64} {
		if f.name == t {
			return f, true
		}
	}
	return floatFormat{}, false
}

func genFloat(r *rand.Rand, e expectation) []uint64 {
	x := make([]uint64, len(e.src))
	for i, t := range e.src {
		if f, ok := formatOf(t); ok {
			x[i] = floatInput(r, f)
		} else if strings.HasSuffix(t, "x2") {
			f, _ := formatOf(strings.TrimSuffix(t, "x2"))
			x[i] = floatInput(r, f)&0xffff | floatInput(r, f)<<16
		} else {
			x[i] = intInput(r, max(8, width(t)))
		}
	}
	return x
}

// variants lists the modifier sets of an arithmetic instruction of format f.
type variant struct {
	mode     string
	ftz, sat bool
	relu     bool
}

func (v variant) String() string {
	s := ""
	if v.mode != "" {
		s += "." + v.mode
	}
	if v.ftz {
		s += ".ftz"
	}
	if v.sat {
		s += ".sat"
	}
	if v.relu {
		s += ".relu"
	}
	return s
}

// flushed is .ftz of a result d of an operation on x: it is subnormal if it is so before its exponent is limited (H200,
// driver 580.159, measured), which computing in a format with a wider exponent shows.
func (f floatFormat) flushed(op string, d uint64, x []uint64, mode string) uint64 {
	if d&^f.signBit() != 1<<f.m {
		return f.flush(d)
	}
	w := floatFormat{name: "wide", e: f.e + 2, m: f.m}
	y := make([]uint64, len(x))
	for i := range x {
		y[i] = convertFloat(f, w, x[i], "rn")
	}
	var r uint64
	switch op {
	case "mul":
		r = w.product(y[0], y[1], mode)
	case "fma", "mad":
		r = w.exactSum(y[0], y[1], y[2], true, mode)
	case "div":
		r = w.quotient(y[0], y[1], mode)
	default:
		return d
	}
	if exact := w.rat(r); exact.Abs(exact).Cmp(f.rat(1<<f.m)) < 0 {
		return d & f.signBit()
	}
	return d
}

// convertedNaN is what a conversion makes of a NaN: H200, driver 580.159, measured.
func convertedNaN(from, to floatFormat, a uint64, mode string, ftz bool) uint64 {
	fraction := a & (1<<from.m - 1)
	if from.m > to.m {
		fraction >>= from.m - to.m
	} else {
		fraction <<= to.m - from.m
	}
	if from.neg(a) {
		fraction |= to.signBit()
	}
	switch from.name + " " + to.name {
	case "f32 f32", "bf16 f32":
		if ftz || from.name == "f32" && mode != "" {
			return to.nan
		}
		return to.inf() | fraction
	case "f64 f64", "f64 f32", "f64 f16", "f64 bf16", "f16 f64", "bf16 f64":
		return to.inf() | 1<<(to.m-1) | fraction
	}
	return to.nan
}

// integerOfNaN is what PTX ISA 9.7.9.21 says that a NaN becomes as an integer of w bits.
func integerOfNaN(from floatFormat, w int) uint64 {
	if from.name == "f64" || w == 64 {
		return 1 << (w - 1)
	}
	return 0
}

// fieldOf are position and length of a bit field: 8 bits of them count for 32-bit numbers, all for 64-bit ones (H200,
// driver 580.159, measured).
func fieldOf(pos, n uint64, w int) (int, int) {
	if w == 32 {
		return int(pos & 0xff), int(n & 0xff)
	}
	return int(uint32(pos)), int(uint32(n))
}

func TestFloatArithmetic(t *testing.T) {
	var es []expectation
	for _, f := range []floatFormat{binary16, brain16, binary32, binary64} {
		modes := []string{"rn", "rz", "rm", "rp", ""}
		if f.m < 20 {
			modes = []string{"rn"}
		}
		bools := []bool{false}
		if f.name == "f32" || f.name == "f16" {
			bools = []bool{false, true}
		}
		for _, mode := range modes {
			for _, ftz := range bools {
				for _, sat := range bools {
					v := variant{mode: mode, ftz: ftz, sat: sat}
					add := func(op string, v variant, args int, g func(x []uint64) uint64) {
						calc := func(x []uint64) uint64 {
							y := append([]uint64(nil), x...)
							if v.ftz {
								for i := range y {
									y[i] = f.flush(y[i])
								}
							}
							d := g(y)
							if v.ftz {
								d = f.flushed(op, d, y, mode)
							}
							if v.sat {
								d = f.sat(d)
							}
							if v.relu && f.neg(d) && !f.isNaN(d) {
								d = 0
							}
							return d
						}
						e := expectation{inst: op + v.String() + "." + f.name, dst: f.name,
							src: []string{f.name, f.name, f.name}[:args]}
						if f.name == "f64" {
							// NaN payloads: any NaN will do where one is due.
							e.ok = func(x []uint64, got uint64) string {
								want := calc(x)
								if got == want || f.isNaN(want) && f.isNaN(got) {
									return ""
								}
								return fmt.Sprintf("want %#x", want)
							}
						} else {
							e.want = calc
						}
						es = append(es, e)
						if f.m < 20 { // the packed form
							es = append(es, expectation{inst: op + v.String() + "." + f.name + "x2", dst: "b32",
								src: []string{f.name + "x2", f.name + "x2", f.name + "x2"}[:args],
								want: func(x []uint64) uint64 {
									lo, hi := make([]uint64, args), make([]uint64, args)
									for i := range x {
										lo[i], hi[i] = x[i]&0xffff, x[i]>>16
									}
									return calc(lo) | calc(hi)<<16
								}})
						}
					}
					negate := func(x uint64) uint64 { return x ^ f.signBit() }
					add("add", v, 2, func(x []uint64) uint64 { return f.exactSum(x[0], 0, x[1], false, mode) })
					add("sub", v, 2, func(x []uint64) uint64 { return f.exactSum(x[0], 0, negate(x[1]), false, mode) })
					add("mul", v, 2, func(x []uint64) uint64 { return f.product(x[0], x[1], mode) })
					if mode != "" {
						add("fma", v, 3, func(x []uint64) uint64 { return f.exactSum(x[0], x[1], x[2], true, mode) })
						if f.m < 20 && !sat {
							w := v
							w.relu = true
							add("fma", w, 3,
								func(x []uint64) uint64 { return f.exactSum(x[0], x[1], x[2], true, mode) })
						}
						if f.m > 20 && !sat {
							add("div", v, 2, func(x []uint64) uint64 { return f.quotient(x[0], x[1], mode) })
							add("rcp", v, 1,
								func(x []uint64) uint64 { return f.quotient(uint64(f.bias())<<f.m, x[0], mode) })
							add("sqrt", v, 1, func(x []uint64) uint64 { return f.root(x[0], mode) })
						}
					}
				}
			}
		}
	}
	check(t, es, genFloat)
}

func TestFloatMinMax(t *testing.T) {
	var es []expectation
	for _, f := range []floatFormat{binary16, brain16, binary32, binary64} {
		for _, mods := range []string{"", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"} {
			if mods != "" && f.name == "f64" || strings.Contains(mods, "ftz") && f.name == "bf16" {
				continue
			}
			for _, op := range []string{"min", "max"} {
				want := func(x []uint64) uint64 {
					a, b := x[0], x[1]
					if strings.Contains(mods, "ftz") {
						a, b = f.flush(a), f.flush(b)
					}
					sign := (a ^ b) & f.signBit()
					if strings.Contains(mods, "abs") {
						a, b = a&^f.signBit(), b&^f.signBit()
					}
					var r uint64
					switch {
					case f.isNaN(a) && f.isNaN(b), strings.Contains(mods, "NaN") && (f.isNaN(a) || f.isNaN(b)):
						return f.nan
					case f.isNaN(a):
						r = b
					case f.isNaN(b):
						r = a
					default:
						// Order by sign and magnitude; -0 is below +0.
						key := func(x uint64) int64 {
							if f.neg(x) {
								return -int64(x&^f.signBit()) - 1
							}
							return int64(x)
						}
						r = a
						if (key(b) < key(a)) == (op == "min") {
							r = b
						}
					}
					if strings.Contains(mods, "xorsign") {
						r = r&^f.signBit() | sign
					}
					return r
				}
				e := expectation{inst: op + mods + "." + f.name, dst: f.name, src: []string{f.name, f.name}, want: want}
				if f.name == "f64" {
					e.want = nil
					e.ok = func(x []uint64, got uint64) string {
						if w := want(x); got != w && !(f.isNaN(w) && f.isNaN(got)) {
							return fmt.Sprintf("want %#x", w)
						}
						return ""
					}
				}
				es = append(es, e)
			}
		}
		for _, op := range []string{"abs", "neg"} {
			es = append(es,
				expectation{inst: op + "." + f.name, dst: f.name, src: []string{f.name}, want: func(x []uint64) uint64 {
					d := x[0] &^ f.signBit()
					if op == "neg" {
						d = x[0] ^ f.signBit()
					}
					switch {
					case f.isNaN(d) && f.name == "f64":
						return x[0] | 1<<51 // H200, driver 580.159, measured
					case f.isNaN(d):
						return f.nan
					}
					return d
				}})
		}
	}
	check(t, es, genFloat)
}

func TestFloatCompare(t *testing.T) {
	var es []expectation
	for _, f := range []floatFormat{binary16, brain16, binary32, binary64} {
		for _, ftz := range []bool{false, true} {
			if ftz && (f.name == "f64" || f.name == "bf16") {
				continue
			}
			for _, op := range []string{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu",
				"gtu", "geu", "num", "nan"} {
				want := func(x []uint64) bool {
					a, b := x[0], x[1]
					if ftz {
						a, b = f.flush(a), f.flush(b)
					}
					nan := f.isNaN(a) || f.isNaN(b)
					switch op {
					case "num":
						return !nan
					case "nan":
						return nan
					}
					if nan {
						return len(op) == 3
					}
					value := func(x uint64) *big.Rat {
						if f.isInf(x) {
							r := pow2(5000)
							if f.neg(x) {
								r.Neg(r)
							}
							return r
						}
						return f.rat(x)
					}
					c := value(a).Cmp(value(b))
					switch op[:2] {
					case "eq":
						return c == 0
					case "ne":
						return c != 0
					case "lt":
						return c < 0
					case "le":
						return c <= 0
					case "gt":
						return c > 0
					}
					return c >= 0
				}
				mod := "." + op
				if ftz {
					mod += ".ftz"
				}
				es = append(es, expectation{inst: "setp" + mod + "." + f.name, dst: "pred",
					src: []string{f.name, f.name}, want: func(x []uint64) uint64 { return number.FromBool(want(x)) }},
					expectation{inst: "set" + mod + ".u32." + f.name, dst: "b32", src: []string{f.name, f.name},
						want: func(x []uint64) uint64 { return number.FromBool(want(x)) * 0xffffffff }})
			}
		}
	}
	check(t, es, func(r *rand.Rand, e expectation) []uint64 {
		x := genFloat(r, e)
		if r.IntN(3) == 0 {
			x[1] = x[0] // equal operands are rare otherwise
		}
		return x
	})
}

func TestConvert(t *testing.T) {
	var es []expectation
	ints := []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}
	bitsOf := func(t string) int {
		var n int
		fmt.Sscanf(t[1:], "%d", &n)
		return n
	}
	holder := func(t string) string { return fmt.Sprintf("b%d", max(16, bitsOf(t))) }
	for _, from := range ints {
		for _, to := range ints {
			for _, sat := range []string{"", ".sat"} {
				es = append(es, expectation{inst: "cvt" + sat + "." + to + "." + from, dst: holder(to),
					src: []string{holder(from)}, ok: func(x []uint64, got uint64) string {
						v := bigOf(x[0], bitsOf(from), from[0] == 's')
						if sat != "" {
							v = clampTo(v, bitsOf(to), to[0] == 's')
						}
						if want := wrapTo(v, bitsOf(to)); got&(^uint64(0)>>(64-bitsOf(to))) != want {
							return fmt.Sprintf("want %#x", want)
						}
						return ""
					}})
			}
		}
		for _, f := range []floatFormat{binary16, brain16, binary32, binary64} {
			for _, mode := range []string{"rn", "rz", "rm", "rp"} {
				es = append(es, expectation{inst: "cvt." + mode + "." + f.name + "." + from, dst: f.name,
					src: []string{holder(from)}, want: func(x []uint64) uint64 {
						v := bigOf(x[0], bitsOf(from), from[0] == 's')
						if v.Sign() == 0 {
							return 0
						}
						return f.round(new(big.Rat).SetInt(v), mode, false)
					}})
				for _, ftz := range []string{"", ".ftz"} {
					if ftz != "" && f.name != "f32" {
						continue
					}
					es = append(es, expectation{inst: "cvt." + mode + "i" + ftz + "." + from + "." + f.name,
						dst: holder(from), src: []string{f.name}, ok: func(x []uint64, got uint64) string {
							w, signed := bitsOf(from), from[0] == 's'
							a := x[0]
							if ftz != "" {
								a = f.flush(a)
							}
							v := new(big.Int)
							switch {
							case f.isNaN(a):
							case f.isInf(a):
								v.Lsh(big.NewInt(1), 100)
								if f.neg(a) {
									v.Neg(v)
								}
							default:
								v = roundRat(f.rat(a), mode)
							}
							want := wrapTo(clampTo(v, w, signed), w)
							if f.isNaN(a) {
								want = integerOfNaN(f, w)
							}
							if got&(^uint64(0)>>(64-w)) != want {
								return fmt.Sprintf("want %#x", want)
							}
							return ""
						}})
				}
			}
		}
	}
	for _, from := range []floatFormat{binary16, brain16, binary32, binary64} {
		for _, to := range []floatFormat{binary16, brain16, binary32, binary64} {
			modes := []string{"rn", "rz", "rm", "rp"}
			if from.m < to.m && from.e <= to.e {
				modes = []string{""}
			}
			if from.name == to.name {
				modes = []string{"rni", "rzi", "rmi", "rpi"}
			}
			for _, mode := range modes {
				for _, sat := range []string{"", ".sat"} {
					for _, ftz := range []string{"", ".ftz"} {
						if ftz != "" && from.name != "f32" && to.name != "f32" {
							continue
						}
						if from.name == "bf16" && mode == "" && to.name == "f32" && sat != "" {
							continue
						}
						m := ""
						if mode != "" {
							m = "." + mode
						}
						want := func(x []uint64) uint64 {
							a := x[0]
							if ftz != "" && from.name == "f32" && to.name != "f16" { // H200, driver 580.159, measured
								a = from.flush(a)
							}
							var d uint64
							switch {
							case from.isNaN(a):
								d = convertedNaN(from, to, a, mode, ftz != "")
							case from.isInf(a):
								d = to.inf()
								if from.neg(a) {
									d |= to.signBit()
								}
							case from.zero(a):
								d = 0
								if from.neg(a) {
									d = to.signBit()
								}
							case len(mode) == 3:
								v := roundRat(from.rat(a), mode[:2])
								switch {
								case v.Sign() != 0:
									d = to.round(new(big.Rat).SetInt(v), "rn", false)
								case from.neg(a):
									d = to.signBit()
								}
							default:
								d = to.round(from.rat(a), mode, false)
							}
							if ftz != "" && to.name == "f32" {
								d = to.flush(d)
							}
							if sat != "" {
								d = to.sat(d)
							}
							return d
						}
						es = append(es, expectation{inst: "cvt" + m + ftz + sat + "." + to.name + "." + from.name,
							dst: to.name, src: []string{from.name}, ok: func(x []uint64, got uint64) string {
								if w := want(x); got != w && !(to.name == "f64" && to.isNaN(w) && to.isNaN(got)) {
									return fmt.Sprintf("want %#x", w)
								}
								return ""
							}})
					}
				}
			}
		}
	}
	for _, f := range []floatFormat{binary16, brain16} {
		for _, mode := range []string{"rn", "rz"} {
			for _, relu := range []string{"", ".relu"} {
				es = append(es, expectation{inst: "cvt." + mode + relu + "." + f.name + "x2.f32", dst: "b32",
					src: []string{"f32", "f32"}, want: func(x []uint64) uint64 {
						one := func(a uint64) uint64 {
							var d uint64
							switch {
							case binary32.isNaN(a):
								return f.nan
							case binary32.isInf(a):
								d = f.inf()
							case !binary32.zero(a):
								d = f.round(new(big.Rat).Abs(binary32.rat(a)), mode, false)
							}
							if binary32.neg(a) {
								if relu != "" {
									return 0
								}
								d |= f.signBit()
							}
							return d
						}
						return one(x[0])<<16 | one(x[1])
					}})
			}
		}
	}
	check(t, es, genFloat)
}

// roundRat rounds to an integer.
func roundRat(r *big.Rat, mode string) *big.Int {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int)) // floor
	if m.Sign() == 0 {
		return q
	}
	up := false
	switch mode {
	case "rn":
		c := new(big.Int).Lsh(m, 1).Cmp(r.Denom())
		up = c > 0 || c == 0 && q.Bit(0) != 0
	case "rz":
		up = r.Sign() < 0
	case "rp":
		up = true
	}
	if up {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// The approximate instructions: relative error against math/big or float64
// functions, at most what the ISA allows.
func TestApproximate(t *testing.T) {
	var es []expectation
	add := func(inst string, rel, abs float64, f func(a, b float64) float64, args int) {
		es = append(es, expectation{inst: inst, dst: "f32", src: []string{"f32", "f32"}[:args],
			ok: func(x []uint64, got uint64) string {
				a := float64(number.F32(x[0]))
				b := 0.0
				if args > 1 {
					b = float64(number.F32(x[1]))
				}
				want := float64(float32(f(a, b)))
				g := float64(number.F32(got))
				if want == g || want != want && got == number.NaN32 {
					return ""
				}
				if math.Abs(g-want) <= math.Abs(want)*rel+abs {
					return ""
				}
				return fmt.Sprintf("%v(%v) = %v, want %v", inst, a, g, want)
			}})
	}
	const u = 0x1p-23
	add("rcp.approx.f32", u, 0, func(a, _ float64) float64 { return 1 / a }, 1)
	add("sqrt.approx.f32", u, 0, func(a, _ float64) float64 { return math.Sqrt(a) }, 1)
	add("rsqrt.approx.f32", 2*u, 0, func(a, _ float64) float64 { return 1 / math.Sqrt(a) }, 1)
	add("ex2.approx.f32", 2*u, 0x1p-149, func(a, _ float64) float64 { return math.Pow(2, a) }, 1)
	add("lg2.approx.f32", u, 0x1p-22, func(a, _ float64) float64 { return math.Log(a) / math.Ln2 }, 1)
	add("sin.approx.f32", u, 0x1p-21, func(a, _ float64) float64 { return math.Sin(a) }, 1)
	add("cos.approx.f32", u, 0x1p-21, func(a, _ float64) float64 { return math.Sin(a + math.Pi/2) }, 1)
	add("tanh.approx.f32", 0x1p-11, 0, func(a, _ float64) float64 { return math.Tanh(a) }, 1)
	add("div.full.f32", 2*u, 0, func(a, b float64) float64 { return a / b }, 2)
	add("div.approx.f32", 2*u, 0x1p-149, func(a, b float64) float64 {
		if math.Abs(b) > 0x1p126 && !math.IsInf(b, 0) {
			if math.IsInf(a, 0) {
				return math.NaN()
			}
			if a == a {
				return 0
			}
		}
		return a / b
	}, 2)
	check(t, es, func(r *rand.Rand, e expectation) []uint64 {
		x := genFloat(r, e)
		if strings.HasPrefix(e.inst, "sin") || strings.HasPrefix(e.inst, "cos") {
			x[0] = number.Bits32((r.Float32() - 0.5) * 200)
		}
		return x
	})
}

func TestCarryChain(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 p, .param .u64 q)
{
	.reg .b32 %r<30>;
	.reg .b64 %rd<20>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 32;
	add.u64 %rd1, %rd1, %rd3;
	add.u64 %rd2, %rd2, %rd3;
	ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];
	ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd1+16];
	// 64-bit sum and difference out of 32-bit words
	add.cc.u32 %r10, %r2, %r6;
	addc.u32 %r11, %r3, %r7;
	sub.cc.u32 %r12, %r2, %r6;
	subc.u32 %r13, %r3, %r7;
	st.global.v4.u32 [%rd2], {%r10, %r11, %r12, %r13};
	// 64-bit product + 64-bit addend, low 64 bits
	mad.lo.cc.u32 %r14, %r2, %r6, %r4;
	madc.hi.u32 %r15, %r2, %r6, %r5;
	ld.global.v2.u64 {%rd4, %rd5}, [%rd1];
	ld.global.v2.u64 {%rd6, %rd7}, [%rd1+16];
	st.global.v2.u32 [%rd2+16], {%r14, %r15};
	add.cc.u64 %rd8, %rd4, %rd6;
	addc.cc.u64 %rd9, %rd5, %rd7;
	addc.u32 %r16, 0, 0;
	st.global.u32 [%rd2+24], %r16;
	ret;
}
`)
	r := rand.New(rand.NewPCG(3, 4))
	xs := make([][4]uint64, 128)
	for i := range xs {
		for k := range xs[i] {
			xs[i][k] = intInput(r, 64)
		}
	}
	p, q := upload(d, xs), upload(d, make([][4]uint64, len(xs)))
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(uint32(len(xs))), Params: params(p, q)})
	for i, got := range view[[4]uint64](d, q, len(xs)) {
		x := xs[i]
		sum := new(big.Int).Add(new(big.Int).Add(new(big.Int).SetUint64(x[0]),
			new(big.Int).Lsh(new(big.Int).SetUint64(x[1]), 64)),
			new(big.Int).Add(new(big.Int).SetUint64(x[2]), new(big.Int).Lsh(new(big.Int).SetUint64(x[3]), 64)))
		want := [4]uint64{x[0] + x[2], x[0] - x[2],
			uint64(uint32(x[0]))*uint64(uint32(x[2])) + x[1], uint64(sum.Bit(128))}
		if got != want {
			t.Fatalf("%#x: %#x, want %#x", x, got, want)
		}
	}
}
