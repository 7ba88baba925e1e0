package softgpu

import (
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
)

// carry translates the extended-precision instructions; the carry flag is a
// predicate of the register file.
func (ar arithmetic) carry(in *isa.Inst) {
	n := uint(isa.Bits(in.T))
	op := in.Op
	var off [4]uint32
	off[0] = ar.writeExact(in.Args[0].X, in.T)
	for i := 1; i < len(in.Args); i++ {
		off[i] = ar.read(in.Args[i].X, in.T)
	}
	wide := n == 64
	setCC := in.Has(isa.CC)
	useCC := op == "addc" || op == "subc" || op == "madc"
	mul := op == "mad" || op == "madc"
	hi := in.Mode == "hi"
	signed := isa.Signed(in.T)
	sub := op == "sub" || op == "subc"
	// A subtraction adds the complement, so the flag it leaves is 0 after a
	// borrow; programs that use one family of instructions in a chain see what
	// the ISA says either way.
	var borrow uint64
	if op == "subc" {
		borrow = 1
	}
	exec := func(w *warp, in *inst, mask uint32) {
		cc := w.r.p(regCC)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			x, y := w.r.get(in.a, i, wide), w.r.get(in.b, i, wide)
			if mul {
				p := x * y
				if hi {
					p = number.MulHi(x, y, n, signed)
				}
				x, y = number.ZeroExtend(p, n), w.r.get(in.c, i, wide)
			}
			var carry uint64
			if useCC {
				carry = uint64(*cc >> i & 1)
			}
			var d, out uint64
			switch {
			case sub && wide:
				d, out = bits.Sub64(x, y, carry^borrow)
				out ^= 1
			case sub:
				d = x - y - (carry ^ borrow)
				out = d>>32&1 ^ 1
			case wide:
				d, out = bits.Add64(x, y, carry)
			default:
				d = x + y + carry
				out = d >> 32 & 1
			}
			w.r.put(in.d, i, wide, d)
			if setCC {
				*cc = *cc&^(1<<i) | uint32(out)<<i
			}
		}
	}
	ar.emit(inst{kind: kindExec, d: off[0], a: off[1], b: off[2], c: off[3], exec: exec})
}
