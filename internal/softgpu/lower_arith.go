package softgpu

import (
	"math/bits"
	"strings"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// arithmetic translates instructions that compute a number from numbers.
type arithmetic struct{ *operands }

// compute translates an instruction whose operands are numbers.
func (ar arithmetic) compute(in *isa.Inst) {
	switch in.Op {
	case "selp":
		ar.selp(in)
		return
	case "addc", "subc", "madc":
		ar.carry(in)
		return
	case "add", "sub", "mad":
		if in.Has(isa.CC) {
			ar.carry(in)
			return
		}
	case "lop3":
		ar.lop3(in)
		return
	case "bfi":
		ar.bfi(in)
		return
	case "min", "max":
		if len(in.Args) == 4 {
			ar.minMax3(in)
			return
		}
	}
	if strings.HasPrefix(in.Op, "v") && in.Op != "vote" {
		ar.video(in)
		return
	}
	if len(in.Args) > 4 {
		ar.fail(in.Src.Pos, "not implemented")
	}
	x := ar.operation(in)
	if in.Op == "cvt" {
		ar.cvt(in, x)
		return
	}
	ar.lanewise(in, x, ar.writeExact(in.Args[0].X, in.Args[0].Type), ar.read)
}

// operation is what an instruction does to 32 lanes at once, or else to one.
func (ar arithmetic) operation(in *isa.Inst) inst {
	x := inst{kind: kindVec}
	x.lane = laneOp(in)
	x.vec = vecOp(in, x.lane)
	if in.Op == "prmt" && in.Mode == "" {
		if f := permuteVec(in.Args[3].X); f != nil {
			x.vec = f
		}
	}
	if x.vec == nil {
		x.kind = kindLane
		if x.lane == nil {
			if in.Op == "cvt" {
				ar.fail(in.Src.Pos, "this conversion needs a device of sm_100 or later")
			}
			ar.fail(in.Src.Pos, "not implemented")
		}
	}
	return x
}

// lanewise emits x with register d as its result, and its other operands as read resolves them.
func (ar arithmetic) lanewise(in *isa.Inst, x inst, d uint32, read func(ptx.Operand, ptx.Type) uint32) {
	off := [4]uint32{d}
	if slotFor(in.Args[0].Type) == slot64 {
		x.wide |= wideD
	}
	n := len(in.Args)
	for i := 1; i < n; i++ {
		t := in.Args[i].Type
		off[i] = read(in.Args[i].X, t)
		if slotFor(t) == slot64 {
			x.wide |= wideA << (i - 1)
		}
	}
	for i := n; i < 4; i++ {
		off[i] = off[n-1]
		if n > 1 && x.wide&(wideA<<(n-2)) != 0 {
			x.wide |= wideA << (i - 1)
		}
	}
	x.d, x.a, x.b, x.c = off[0], off[1], off[2], off[3]
	ar.emit(x)
}

// cvt emits conversion x. Its registers may be wider than their types.
func (ar arithmetic) cvt(in *isa.Inst, x inst) {
	result, t := in.Args[0].X, in.Args[0].Type
	p := ar.write(result, t)
	if p.kind != slotFor(t) {
		if p.kind != slot64 {
			ar.fail(in.Src.Pos, "result %s is too narrow", operandText(result))
		}
		// The value is extended to the register.
		tmp := ar.reg(t).off
		if isa.Bits(in.U) == 64 {
			x.wide |= wideA
		}
		a := ar.readRelaxed(in.Args[1].X, in.Args[1].Type)
		x.d, x.a, x.b, x.c = tmp, a, a, a
		ar.emit(x)
		ar.emit(inst{kind: kindLane, d: p.off, a: tmp, b: tmp, c: tmp, wide: wideD, lane: extend(t)})
		return
	}
	if n := isa.Bits(t); isa.Signed(t) && n < 32 && p.bits > n {
		// The sign fills the register.
		f, ext := laneOp(in), extend(t)
		x.kind = kindLane
		x.lane = func(a, b, c uint64) uint64 { return ext(f(a, b, c), 0, 0) & 0xffffffff }
	}
	ar.lanewise(in, x, p.off, ar.readRelaxed)
}

// permuteVec is prmt with a constant selector that replicates no signs; nil = it is none.
func permuteVec(selector ptx.Operand) vecFunc {
	imm, ok := selector.(*ptx.Imm)
	if !ok || imm.Bits&0x8888 != 0 {
		return nil
	}
	var shift [4]uint // of byte k of the result in b:a
	for k := range shift {
		shift[k] = 8 * uint(imm.Bits>>(4*k)&7)
	}
	return func(d, a, b, _ unsafe.Pointer) {
		D, A, B := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b)
		for i := range D {
			x := uint64(A[i]) | uint64(B[i])<<32
			D[i] = uint32(x>>(shift[0]&63)&0xff | x>>(shift[1]&63)&0xff<<8 | x>>(shift[2]&63)&0xff<<16 |
				x>>(shift[3]&63)&0xff<<24)
		}
	}
}

// extend widens a value of type t to 64 bits.
func extend(t ptx.Type) laneFunc {
	n := uint(isa.Bits(t))
	if isa.Signed(t) {
		return func(a, _, _ uint64) uint64 { return uint64(int64(a<<(64-n)) >> (64 - n)) }
	}
	return func(a, _, _ uint64) uint64 { return a << (64 - n) >> (64 - n) }
}

func (ar arithmetic) bfi(in *isa.Inst) {
	n := uint(isa.Bits(in.T))
	wide := n == 64
	d := ar.writeExact(in.Args[0].X, in.T)
	a, b := ar.read(in.Args[1].X, in.T), ar.read(in.Args[2].X, in.T)
	c, k := ar.read(in.Args[3].X, ptx.U32), ar.read(in.Args[4].X, ptx.U32)
	ar.emit(inst{kind: kindExec, d: d, a: a, b: b, c: c, e: k, exec: func(w *warp, in *inst, mask uint32) {
		pos, length := w.r.v32(in.c), w.r.v32(in.e)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			x, y := w.r.get(in.a, i, wide), w.r.get(in.b, i, wide)
			w.r.put(in.d, i, wide, number.InsertField(x, y, uint64(pos[i]), uint64(length[i]), n))
		}
	}})
}

func (ar arithmetic) selp(in *isa.Inst) {
	d := ar.writeExact(in.Args[0].X, in.T)
	a, b := ar.read(in.Args[1].X, in.T), ar.read(in.Args[2].X, in.T)
	c := ar.read(in.Args[3].X, ptx.Pred)
	if slotFor(in.T) == slot64 {
		ar.emit(inst{kind: kindVec, wide: wideD, d: d, a: a, b: b, c: c, vec: lanes.Select64})
	} else {
		ar.emit(inst{kind: kindVec, d: d, a: a, b: b, c: c, vec: lanes.Select32})
	}
}

// lop3 compiles the lookup table into the few operations most tables are.
func (ar arithmetic) lop3(in *isa.Inst) {
	lutArg := in.Args[4]
	imm, ok := lutArg.X.(*ptx.Imm)
	if !ok {
		ar.fail(in.Src.Pos, "the table must be a constant")
	}
	lut := uint8(imm.Bits)
	var d, p uint32
	dst := in.Args[0].X
	if pair, ok := dst.(*ptx.Pair); ok {
		d = ar.writeExact(pair.A, ptx.B32)
		p = ar.writeExact(pair.B, ptx.Pred)
	} else {
		d = ar.writeExact(dst, ptx.B32)
	}
	a, b, c := ar.read(in.Args[1].X, ptx.B32), ar.read(in.Args[2].X, ptx.B32), ar.read(in.Args[3].X, ptx.B32)
	var q uint32
	if in.Bool != "" {
		q = ar.read(in.Args[5].X, ptx.Pred)
	}
	ar.emit(inst{kind: kindVec, d: d, a: a, b: b, c: c, vec: lop3Func(lut)})
	if p != 0 {
		or := in.Bool == "or"
		ar.emit(inst{kind: kindExec, d: p, a: d, b: q, exec: func(w *warp, in *inst, mask uint32) {
			var x uint32
			v := w.r.v32(in.a)
			for i := range v {
				if v[i] != 0 {
					x |= 1 << i
				}
			}
			if or {
				x |= *w.r.p(in.b)
			} else {
				x &= *w.r.p(in.b)
			}
			r := w.r.p(in.d)
			*r = *r&^mask | x&mask
		}})
	}
}

func lop3Func(lut uint8) vecFunc {
	switch lut {
	case 0xc0:
		return lanes.Op("and.b32")
	case 0xfc:
		return lanes.Op("or.b32")
	case 0x3c:
		return lanes.Op("xor.b32")
	case 0x96:
		return func(d, a, b, c unsafe.Pointer) {
			D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
			for i := range D {
				D[i] = A[i] ^ B[i] ^ C[i]
			}
		}
	}
	// Eight minterms, each all ones or zero.
	var k [8]uint32
	for i := range k {
		k[i] = -uint32(lut >> i & 1)
	}
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
		for i := range D {
			D[i] = lop3(A[i], B[i], C[i], &k)
		}
	}
}

// lop3 selects minterm k[abc] bit by bit.
func lop3(a, b, c uint32, k *[8]uint32) uint32 {
	n := b&(k[2]&^c|k[3]&c) | ^b&(k[0]&^c|k[1]&c)
	y := b&(k[6]&^c|k[7]&c) | ^b&(k[4]&^c|k[5]&c)
	return a&y | ^a&n
}
