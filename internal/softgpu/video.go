package softgpu

import (
	"math/bits"
	"strings"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// The video instructions: PTX ISA 9.7.17 (scalar) and 9.7.18 (SIMD). Operands
// select bytes or half-words by the component of a register, %r1.b2, %r1.h0, %r1.h10.

// A videoOperand is a source: its register, the part of it, and how to read it.
type videoOperand struct {
	reg    uint32
	comp   string
	signed bool
}

// value is the selected part, extended.
func (o videoOperand) value(x uint32) int64 {
	n, shift := uint(32), uint(0)
	if len(o.comp) == 2 {
		k := uint(o.comp[1] - '0')
		n = 8
		if o.comp[0] == 'h' {
			n = 16
		}
		shift = k * n
	}
	if o.signed {
		return number.SignExtend(uint64(x>>shift), n)
	}
	return int64(number.ZeroExtend(uint64(x>>shift), n))
}

// split takes the component off an operand.
func splitComponent(x ptx.Operand) (ptx.Operand, string) {
	if r, ok := x.(*ptx.Ref); ok && r.Comp != "" {
		one := *r
		one.Comp = ""
		return &one, r.Comp
	}
	return x, ""
}

func (ar arithmetic) videoSource(a isa.Arg, t ptx.Type) videoOperand {
	x, comp := splitComponent(a.X)
	return videoOperand{reg: ar.read(x, ptx.B32), comp: comp, signed: isa.Signed(t)}
}

func videoOp(in *isa.Inst, name string) func(a, b int64) int64 {
	switch name {
	case "vadd":
		return func(a, b int64) int64 { return a + b }
	case "vsub":
		return func(a, b int64) int64 { return a - b }
	case "vabsdiff":
		return func(a, b int64) int64 { return max(a-b, b-a) }
	case "vavrg":
		// Rounded away from zero for sums that are not negative.
		return func(a, b int64) int64 {
			if s := a + b; s >= 0 {
				return (s + 1) >> 1
			} else {
				return s >> 1
			}
		}
	case "vmin":
		return func(a, b int64) int64 { return min(a, b) }
	case "vmax":
		return func(a, b int64) int64 { return max(a, b) }
	case "vset":
		f := number.Compare(in.Cmp, ptx.S64, false)
		return func(a, b int64) int64 { return int64(number.FromBool(f(uint64(a), uint64(b)))) }
	case "vshl", "vshr":
		clamp := in.Mode2 == "clamp"
		return func(a, b int64) int64 {
			k := uint64(uint32(b))
			if clamp {
				k = min(k, 32)
			} else {
				k &= 31
			}
			if name == "vshl" {
				return a << k // a has up to 32 bits
			}
			return a >> k
		}
	}
	return nil
}

func clampBits(v int64, n uint, signed bool) int64 {
	if signed {
		return min(max(v, -1<<(n-1)), 1<<(n-1)-1)
	}
	return min(max(v, 0), 1<<n-1)
}

// multiplyAdd is vmad: PTX ISA 9.7.17.7.
func (ar arithmetic) multiplyAdd(in *isa.Inst) {
	negated := func(x ptx.Operand) (ptx.Operand, bool) {
		if n, ok := x.(*ptx.Neg); ok && !n.Not {
			return n.X, true
		}
		return x, false
	}
	args := in.Args[1:]
	x, negA := negated(args[0].X)
	y, negB := negated(args[1].X)
	z, negC := negated(args[2].X)
	d := ar.writeExact(in.Args[0].X, ptx.B32)
	a, b := ar.videoSource(isa.Arg{X: x}, in.U), ar.videoSource(isa.Arg{X: y}, in.V)
	c := ar.read(z, ptx.B32)
	// Factors and summand have a sign, whatever their types say; those matter for saturation only (H200, driver
	// 580.159, measured).
	signed := a.signed || b.signed || negA != negB || negC
	po, sat := in.Mode == "po", in.Has(isa.Sat)
	shift := map[string]uint{"shr7": 7, "shr15": 15}[in.Mode2]
	one := func(x, y, z uint32) uint32 {
		v := int64(int32(a.value(x))) * int64(int32(b.value(y)))
		c := int64(int32(z))
		switch {
		case po:
			v++
		case negA != negB:
			v = -v
		case negC:
			c = -c
		}
		v += c
		switch {
		case !sat:
			return uint32(v >> shift)
		case signed:
			return uint32(min(max(v>>shift, -1<<31), 1<<31-1))
		}
		return uint32(clampBits(int64(uint64(v)>>shift), 32, false))
	}
	ar.emit(inst{kind: kindExec, d: d, a: a.reg, b: b.reg, c: c, exec: func(w *warp, in *inst, mask uint32) {
		d, x, y, z := w.r.v32(in.d), w.r.v32(in.a), w.r.v32(in.b), w.r.v32(in.c)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = one(x[i], y[i], z[i])
		}
	}})
}

func (ar arithmetic) video(in *isa.Inst) {
	if in.Op == "vmad" {
		ar.multiplyAdd(in)
		return
	}
	name := strings.TrimRight(in.Op, "24")
	f := videoOp(in, name)
	if f == nil {
		ar.fail(in.Src.Pos, "not implemented")
	}
	dst, dcomp := splitComponent(in.Args[0].X)
	d := ar.writeExact(dst, ptx.B32)
	a, b := ar.videoSource(in.Args[1], in.U), ar.videoSource(in.Args[2], in.V)
	c := videoOperand{reg: ar.constBits(0, slot32)}
	if len(in.Args) > 3 {
		c.reg = ar.read(in.Args[3].X, ptx.B32)
	}
	var one func(x, y, z uint32) uint32
	switch in.Op[len(in.Op)-1] {
	case '2':
		one = videoSIMD(in, f, a, b, dcomp, 16)
	case '4':
		one = videoSIMD(in, f, a, b, dcomp, 8)
	default:
		one = videoScalar(in, f, a, b, dcomp)
	}
	ar.emit(inst{kind: kindExec, d: d, a: a.reg, b: b.reg, c: c.reg, exec: func(w *warp, in *inst, mask uint32) {
		d, x, y, z := w.r.v32(in.d), w.r.v32(in.a), w.r.v32(in.b), w.r.v32(in.c)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = one(x[i], y[i], z[i])
		}
	}})
}

func videoScalar(in *isa.Inst, f func(a, b int64) int64, a, b videoOperand, dcomp string) func(x, y, z uint32) uint32 {
	signed := isa.Signed(in.T)
	n, shift := uint(32), uint(0)
	if len(dcomp) == 2 {
		n = 8
		if dcomp[0] == 'h' {
			n = 16
		}
		shift = uint(dcomp[1]-'0') * n
	}
	sat := in.Has(isa.Sat)
	if in.Op == "vset" {
		signed = a.signed // of the secondary operation: there is no type of the result
	}
	// The ISA's intermediate result has 34 bits; what GPUs without these instructions make of them, in 64 bits, differs
	// from that in places (H200, driver 580.159, measured): a sum above the largest u32 is not saturated, and what the
	// secondary minimum or maximum is taken of is, for sums and saturated shifts, the 32-bit result with its sign, but
	// for unsigned results both are then compared as unsigned.
	return func(x, y, z uint32) uint32 {
		v := f(a.value(x), b.value(y))
		if sat {
			switch {
			case in.Op == "vshl":
				v = clampBits(v<<30>>30, n, signed)
			case signed || n < 32 || v < 0:
				v = clampBits(v, n, signed)
			}
		}
		t := uint32(v)
		if in.Op == "vadd" || in.Op == "vsub" || sat && (in.Op == "vshl" || in.Op == "vshr") {
			v = int64(int32(t))
		}
		switch in.Mode {
		case "add":
			return t + z
		case "min", "max":
			less := uint64(v) < uint64(z)
			if signed {
				less = v < int64(int32(z))
			}
			if less == (in.Mode == "min") {
				return t
			}
			return z
		}
		if n == 32 {
			return t
		}
		m := uint32(1<<n-1) << shift
		return z&^m | t<<shift&m
	}
}

// videoSIMD works on 2 or 4 parts; dcomp names those that are written, the
// source components permute the parts of both sources, b's above a's.
func videoSIMD(in *isa.Inst, f func(a, b int64) int64, a, b videoOperand,
	dcomp string, n uint) func(x, y, z uint32) uint32 {
	parts := 32 / n
	signed := isa.Signed(in.T)
	// order[k] is the part of b:a that operand takes for part k.
	order := func(comp string, first uint) []uint {
		o := make([]uint, parts)
		for k := range o {
			o[k] = first + uint(k)
			if len(comp) == int(parts)+1 {
				o[k] = uint(comp[len(comp)-1-k] - '0')
			}
		}
		return o
	}
	oa, ob := order(a.comp, 0), order(b.comp, parts)
	write := func(k uint) bool {
		return dcomp == "" || strings.IndexByte(dcomp[1:], byte('0'+k)) >= 0
	}
	pick := func(x, y uint32, k uint, signed bool) int64 {
		v := (uint64(y)<<32 | uint64(x)) >> (k * n)
		if signed {
			return number.SignExtend(v, n)
		}
		return int64(number.ZeroExtend(v, n))
	}
	return func(x, y, z uint32) uint32 {
		d, sum := z, z
		for k := range parts {
			if !write(k) {
				continue
			}
			v := f(pick(x, y, oa[k], a.signed), pick(x, y, ob[k], b.signed))
			if in.Has(isa.Sat) {
				v = clampBits(v, n, signed)
			}
			sum += uint32(v)
			m := uint32(1<<n-1) << (k * n)
			d = d&^m | uint32(v)<<(k*n)&m
		}
		if in.Mode == "add" {
			return sum
		}
		return d
	}
}
