package softgpu

import (
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// collectives translates what lanes of a warp do together.
type collectives struct{ *operands }

// collective translates shfl, vote, match, redux, elect, activemask and bar.warp.sync.
func (co collectives) collective(in *isa.Inst) {
	args := in.Args
	x := &inst{kind: kindSync, x: &syncOp{}}
	switch in.Op {
	case "bar.warp":
		x.x = &syncOp{meetAnywhere: true}
		x.e = co.read(args[0].X, ptx.U32)
		x.exec = func(*warp, *inst, uint32) {}
	case "activemask":
		unsynced(x)
		x.d = co.writeExact(args[0].X, ptx.B32)
		x.exec = func(w *warp, in *inst, mask uint32) { spread32(w, in.d, mask, mask) }
	case "vote", "vote.sync":
		co.vote(in, x)
	case "match":
		co.match(in, x)
	case "redux":
		co.redux(in, x)
	case "elect":
		co.elect(in, x)
	case "shfl", "shfl.sync":
		co.shuffle(in, x)
	}
	co.emit(*x)
}

// unsynced makes the lanes that are here the members, as in the forms without .sync.
func unsynced(x *inst) { x.kind = kindExec }

func (co collectives) vote(in *isa.Inst, x *inst) {
	args := in.Args
	if in.Op == "vote" {
		unsynced(x)
		x.e = co.constBits(uint64(fullMask), slot32)
	} else {
		x.e = co.read(args[2].X, ptx.U32)
	}
	x.a = co.read(args[1].X, ptx.Pred)
	if in.Fn == "ballot" {
		x.d = co.writeExact(args[0].X, ptx.B32)
		x.exec = func(w *warp, in *inst, mask uint32) { spread32(w, in.d, *w.r.p(in.a)&mask, mask) }
		return
	}
	x.d = co.writeExact(args[0].X, ptx.Pred)
	fn := in.Fn
	x.exec = func(w *warp, in *inst, mask uint32) {
		p := *w.r.p(in.a) & mask
		yes := p == mask
		switch fn {
		case "any":
			yes = p != 0
		case "uni":
			yes = p == mask || p == 0
		}
		d := w.r.p(in.d)
		*d &^= mask
		if yes {
			*d |= mask
		}
	}
}

func (co collectives) match(in *isa.Inst, x *inst) {
	args := in.Args
	x.e = co.read(args[2].X, ptx.U32)
	x.a = co.read(args[1].X, in.T)
	wide := in.T == ptx.B64
	var p uint32 = regSinkP
	dst := args[0].X
	if pair, ok := dst.(*ptx.Pair); ok {
		p = co.writeExact(pair.B, ptx.Pred)
		dst = pair.A
	}
	x.d = co.writeExact(dst, ptx.B32)
	all := in.Fn == "all"
	x.exec = func(w *warp, in *inst, mask uint32) {
		var same [32]uint32
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			v := w.r.get(in.a, i, wide)
			for k := mask; k != 0; k &= k - 1 {
				if j := bits.TrailingZeros32(k); w.r.get(in.a, j, wide) == v {
					same[i] |= 1 << j
				}
			}
		}
		d, q := w.r.v32(in.d), w.r.p(p)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			if !all {
				d[i] = same[i]
				continue
			}
			d[i] = 0
			*q &^= 1 << i
			if same[i] == mask {
				d[i] = mask
				*q |= 1 << i
			}
		}
	}
}

func (co collectives) redux(in *isa.Inst, x *inst) {
	args := in.Args
	x.e = co.read(args[2].X, ptx.U32)
	x.a = co.read(args[1].X, in.T)
	x.d = co.writeExact(args[0].X, in.T)
	f := reduxFunc(in)
	x.exec = func(w *warp, in *inst, mask uint32) {
		a := w.r.v32(in.a)
		r := a[bits.TrailingZeros32(mask)]
		for m := mask & (mask - 1); m != 0; m &= m - 1 {
			r = f(r, a[bits.TrailingZeros32(m)])
		}
		spread32(w, in.d, r, mask)
	}
}

func (co collectives) elect(in *isa.Inst, x *inst) {
	args := in.Args
	x.e = co.read(args[1].X, ptx.U32)
	dst := args[0].X
	var p uint32 = regSinkP
	if pair, ok := dst.(*ptx.Pair); ok {
		p = co.writeExact(pair.B, ptx.Pred)
		dst = pair.A
	}
	x.d = co.writeExact(dst, ptx.B32)
	x.exec = func(w *warp, in *inst, mask uint32) {
		lead := mask & -mask
		spread32(w, in.d, uint32(bits.TrailingZeros32(mask)), mask)
		q := w.r.p(p)
		*q = *q&^mask | lead
	}
}

func spread32(w *warp, off, v, mask uint32) {
	d := w.r.v32(off)
	for m := mask; m != 0; m &= m - 1 {
		d[bits.TrailingZeros32(m)&31] = v
	}
}

func reduxFunc(in *isa.Inst) func(a, b uint32) uint32 {
	switch in.Fn {
	case "add":
		return func(a, b uint32) uint32 { return a + b }
	case "and":
		return func(a, b uint32) uint32 { return a & b }
	case "or":
		return func(a, b uint32) uint32 { return a | b }
	case "xor":
		return func(a, b uint32) uint32 { return a ^ b }
	}
	isMin := in.Fn == "min"
	switch in.T {
	case ptx.U32:
		return func(a, b uint32) uint32 {
			if (b < a) == isMin {
				return b
			}
			return a
		}
	case ptx.S32:
		return func(a, b uint32) uint32 {
			if (int32(b) < int32(a)) == isMin {
				return b
			}
			return a
		}
	}
	f := laneOp(&isa.Inst{Op: in.Fn, T: ptx.F32, Flags: in.Flags})
	return func(a, b uint32) uint32 { return uint32(f(uint64(a), uint64(b), 0)) }
}

// A shuffleOp is shfl: PTX ISA 9.7.9.6.
type shuffleOp struct {
	mode  string
	p     uint32 // predicate: the source lane was in range
	synch bool

	// With constants for the distance and the segment, what they mean.
	fixed bool
	from  [32]uint8
	ok    uint32
}

// source is the lane from which a lane takes its value, and whether it is in range.
func (op *shuffleOp) source(i int, b, c uint32) (int32, bool) {
	lane := int32(i)
	bval := int32(b & 31)
	cval := int32(c & 31)
	seg := int32(c >> 8 & 31)
	maxLane := lane&seg | cval&^seg
	minLane := lane & seg
	var j int32
	var in bool
	switch op.mode {
	case "up":
		j = lane - bval
		in = j >= maxLane
	case "down":
		j = lane + bval
		in = j <= maxLane
	case "bfly":
		j = lane ^ bval
		in = j <= maxLane
	default:
		j = minLane | bval&^seg
		in = j <= maxLane
	}
	if !in {
		j = lane
	}
	return j & 31, in
}

func (co collectives) shuffle(in *isa.Inst, x *inst) {
	op := &shuffleOp{mode: in.Mode, p: regSinkP, synch: in.Op == "shfl.sync"}
	args := in.Args
	dst := args[0].X
	if pair, ok := dst.(*ptx.Pair); ok {
		op.p = co.writeExact(pair.B, ptx.Pred)
		dst = pair.A
	}
	x.d = co.writeExact(dst, ptx.B32)
	x.a, x.b, x.c = co.read(args[1].X, ptx.B32), co.read(args[2].X, ptx.U32), co.read(args[3].X, ptx.U32)
	if op.synch {
		x.e = co.read(args[4].X, ptx.U32)
	} else {
		unsynced(x)
	}
	b, okB := args[2].X.(*ptx.Imm)
	c, okC := args[3].X.(*ptx.Imm)
	if op.fixed = okB && okC; op.fixed {
		for i := range op.from {
			j, in := op.source(i, uint32(b.Bits), uint32(c.Bits))
			op.from[i] = uint8(j)
			op.ok |= uint32(number.FromBool(in)) << i
		}
	}
	x.x = nil
	x.exec = func(w *warp, in *inst, mask uint32) { execShuffle(w, in, op, mask) }
}

// execShuffle gives 0 where the source lane does not take part: PTX leaves that open (H200, driver 580.159, measured).
func execShuffle(w *warp, in *inst, op *shuffleOp, mask uint32) {
	a := *w.r.v32(in.a)
	d := w.r.v32(in.d)
	ok := op.ok
	if mask != fullMask {
		for i := range a {
			a[i] &= -(mask >> i & 1)
		}
	}
	switch {
	case op.fixed && mask == fullMask:
		for i, j := range op.from {
			d[i] = a[j&31]
		}
	case op.fixed:
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = a[op.from[i]&31]
		}
	default:
		b, c := *w.r.v32(in.b), *w.r.v32(in.c)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			j, in := op.source(i, b[i], c[i])
			d[i] = a[j&31]
			ok |= uint32(number.FromBool(in)) << i
		}
	}
	q := w.r.p(op.p)
	*q = *q&^mask | ok&mask
}
