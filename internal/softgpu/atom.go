package softgpu

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// An atomFunc changes memory in one step and returns what was there. Every one is
// sequentially consistent, which satisfies every .sem and .scope.
type atomFunc func(p unsafe.Pointer, b, c uint64) uint64

// An owner says who may touch the memory of an atomic operation.
type owner uint8

const (
	everybody owner = iota // memory of the device
	thisBlock              // shared memory: one goroutine runs all blocks that see it
)

// exchange32 and exchange64 build an operation from a function of the old value.
func exchange32(who owner, f func(old, b, c uint32) uint32) atomFunc {
	if who == thisBlock {
		return func(p unsafe.Pointer, b, c uint64) uint64 {
			q := (*uint32)(p)
			old := *q
			*q = f(old, uint32(b), uint32(c))
			return uint64(old)
		}
	}
	return func(p unsafe.Pointer, b, c uint64) uint64 {
		q := (*uint32)(p)
		for {
			old := atomic.LoadUint32(q)
			if atomic.CompareAndSwapUint32(q, old, f(old, uint32(b), uint32(c))) {
				return uint64(old)
			}
		}
	}
}

func exchange64(who owner, f func(old, b, c uint64) uint64) atomFunc {
	if who == thisBlock {
		return func(p unsafe.Pointer, b, c uint64) uint64 {
			q := (*uint64)(p)
			old := *q
			*q = f(old, b, c)
			return old
		}
	}
	return func(p unsafe.Pointer, b, c uint64) uint64 {
		q := (*uint64)(p)
		for {
			old := atomic.LoadUint64(q)
			if atomic.CompareAndSwapUint64(q, old, f(old, b, c)) {
				return old
			}
		}
	}
}

// exchange16 changes half of the aligned word around it.
func exchange16(f func(old, b, c uint16) uint16) atomFunc {
	return func(p unsafe.Pointer, b, c uint64) uint64 {
		shift := uint(uintptr(p)&2) * 8
		q := (*uint32)(unsafe.Add(p, -int(uintptr(p)&2)))
		for {
			word := atomic.LoadUint32(q)
			old := uint16(word >> shift)
			next := word&^(0xffff<<shift) | uint32(f(old, uint16(b), uint16(c)))<<shift
			if atomic.CompareAndSwapUint32(q, word, next) {
				return uint64(old)
			}
		}
	}
}

// atomicAdd64 leaves a NaN in memory as it is, even a signalling one (H200, driver 580.159, measured).
func atomicAdd64(old, b float64) float64 {
	switch {
	case b != b:
		return b
	case old != old:
		return old
	}
	return number.KeepNaN64(old+b, old, b)
}

// atomicFunc is the operation fn on type t. Additions of f32 flush subnormal
// numbers in global memory and keep them in shared memory.
func atomicFunc(fn string, t ptx.Type, who owner, flush bool) atomFunc {
	n := isa.Bits(t)
	type key struct {
		fn string
		n  int
	}
	switch (key{fn, n}) {
	case key{"exch", 32}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return uint64(atomic.SwapUint32((*uint32)(p), uint32(b))) }
	case key{"exch", 64}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return atomic.SwapUint64((*uint64)(p), b) }
	case key{"exch", 16}:
		return exchange16(func(_, b, _ uint16) uint16 { return b })
	case key{"cas", 32}:
		return exchange32(who, func(old, b, c uint32) uint32 {
			if old == b {
				return c
			}
			return old
		})
	case key{"cas", 64}:
		return exchange64(who, func(old, b, c uint64) uint64 {
			if old == b {
				return c
			}
			return old
		})
	case key{"cas", 16}:
		return exchange16(func(old, b, c uint16) uint16 {
			if old == b {
				return c
			}
			return old
		})
	case key{"and", 32}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return uint64(atomic.AndUint32((*uint32)(p), uint32(b))) }
	case key{"and", 64}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return atomic.AndUint64((*uint64)(p), b) }
	case key{"or", 32}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return uint64(atomic.OrUint32((*uint32)(p), uint32(b))) }
	case key{"or", 64}:
		return func(p unsafe.Pointer, b, _ uint64) uint64 { return atomic.OrUint64((*uint64)(p), b) }
	case key{"xor", 32}:
		return exchange32(who, func(old, b, _ uint32) uint32 { return old ^ b })
	case key{"xor", 64}:
		return exchange64(who, func(old, b, _ uint64) uint64 { return old ^ b })
	}
	switch fn {
	case "inc":
		if t == ptx.U32 {
			return exchange32(who, func(old, b, _ uint32) uint32 {
				if old >= b {
					return 0
				}
				return old + 1
			})
		}
	case "dec":
		if t == ptx.U32 {
			return exchange32(who, func(old, b, _ uint32) uint32 {
				if old == 0 || old > b {
					return b
				}
				return old - 1
			})
		}
	case "add":
		switch t {
		case ptx.U32, ptx.S32:
			return func(p unsafe.Pointer, b, _ uint64) uint64 {
				return uint64(atomic.AddUint32((*uint32)(p), uint32(b)) - uint32(b))
			}
		case ptx.U64, ptx.S64:
			return func(p unsafe.Pointer, b, _ uint64) uint64 { return atomic.AddUint64((*uint64)(p), b) - b }
		case ptx.F32:
			if flush {
				return exchange32(who, func(old, b, _ uint32) uint32 {
					return math.Float32bits(number.Flush32(number.Canon32(number.Flush32(math.Float32frombits(old)) +
						number.Flush32(math.Float32frombits(b)))))
				})
			}
			return exchange32(who, func(old, b, _ uint32) uint32 {
				return math.Float32bits(number.Canon32(math.Float32frombits(old) + math.Float32frombits(b)))
			})
		case ptx.F64:
			return exchange64(who, func(old, b, _ uint64) uint64 {
				return number.Bits64(atomicAdd64(number.F64(old), number.F64(b)))
			})
		}
		if f := packed16(fn, t, who); f != nil {
			return f
		}
	case "min", "max":
		isMin := fn == "min"
		switch t {
		case ptx.U32:
			return exchange32(who, func(old, b, _ uint32) uint32 {
				if (b < old) == isMin {
					return b
				}
				return old
			})
		case ptx.S32:
			return exchange32(who, func(old, b, _ uint32) uint32 {
				if (int32(b) < int32(old)) == isMin {
					return b
				}
				return old
			})
		case ptx.U64:
			return exchange64(who, func(old, b, _ uint64) uint64 {
				if (b < old) == isMin {
					return b
				}
				return old
			})
		case ptx.S64:
			return exchange64(who, func(old, b, _ uint64) uint64 {
				if (int64(b) < int64(old)) == isMin {
					return b
				}
				return old
			})
		}
		return packed16(fn, t, who)
	}
	return nil
}

// packed16 is add, min and max of the 16-bit formats, two at a time in a word.
func packed16(fn string, t ptx.Type, who owner) atomFunc {
	half := t
	switch t {
	case ptx.F16x2:
		half = ptx.F16
	case ptx.BF16x2:
		half = ptx.BF16
	case ptx.F16, ptx.BF16:
	default:
		return nil
	}
	op := laneOp(&isa.Inst{Op: fn, T: half})
	if op == nil {
		return nil
	}
	if half == t {
		return exchange16(func(old, b, _ uint16) uint16 { return uint16(op(uint64(old), uint64(b), 0)) })
	}
	return exchange32(who, func(old, b, _ uint32) uint32 {
		lo := op(uint64(old&0xffff), uint64(b&0xffff), 0) & 0xffff
		hi := op(uint64(old>>16), uint64(b>>16), 0) & 0xffff
		return uint32(lo | hi<<16)
	})
}

// An atomExec is the operand list of atom and red.
type atomExec struct {
	dst   []place // nil = red
	b, c  []place
	space memSpace
	size  uint64
	f     atomFunc
}

func (me memory) atomic(in *isa.Inst) {
	op := &atomExec{size: uint64(isa.Bits(in.T)) / 8}
	args := in.Args
	if in.Op == "atom" {
		if _, sink := args[0].X.(*ptx.Sink); !sink {
			op.dst, _ = me.elements(in, args[0].X, true)
		}
		args = args[1:]
	}
	op.space = me.accessSpace(in, args[0].X)
	if in.T == ptx.B128 {
		me.atomic128(in, op, args)
		return
	}
	op.b, _ = me.elements(in, args[1].X, false)
	if in.Fn == "cas" {
		op.c, _ = me.elements(in, args[2].X, false)
	}
	who := everybody
	if op.space == memShared {
		who = thisBlock
	}
	if op.f = atomicFunc(in.Fn, in.T, who, op.space == memGlobal); op.f == nil {
		me.fail(in.Src.Pos, "no atomic .%s of this type", in.Fn)
	}
	x := inst{kind: kindPoll, x: op, exec: execAtom}
	var wide bool
	x.a, x.off, wide = me.address(args[0].X, op.space)
	if wide {
		x.wide = wideA
	}
	me.emit(x)
	me.touches(op.space, op.size*uint64(len(op.b)), Read|Written)
}

func execAtom(w *warp, in *inst, mask uint32) {
	op := in.x.(*atomExec)
	all := op.size * uint64(len(op.b))
	if len(op.b) == 1 && op.c == nil {
		// The common case: one operand, one result.
		b, wide := op.b[0].off, op.b[0].wide()
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			old := op.f(w.fastPointer(in, op.space, all, pageWritable, i), w.r.get(b, i, wide), 0)
			if op.dst != nil {
				w.r.put(op.dst[0].off, i, op.dst[0].wide(), old)
			}
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := w.fastPointer(in, op.space, all, pageWritable, i)
		var results [8]uint64 // operands are all read before a result is written
		for k, b := range op.b {
			var c uint64
			if op.c != nil {
				c = w.r.get(op.c[k].off, i, op.c[k].wide())
			}
			results[k&7] = op.f(unsafe.Add(p, uint64(k)*op.size), w.r.get(b.off, i, b.wide()), c)
		}
		for k, d := range op.dst {
			w.r.put(d.off, i, d.wide(), results[k&7])
		}
	}
}

// atomic128 is exch and cas of 16 bytes: one at a time in a space.
func (me memory) atomic128(in *isa.Inst, op *atomExec, args []isa.Arg) {
	b := me.source(args[1].X, ptx.B128)
	c := b
	if in.Fn == "cas" {
		c = me.source(args[2].X, ptx.B128)
	} else if in.Fn != "exch" {
		me.fail(in.Src.Pos, "no atomic .%s of this type", in.Fn)
	}
	if b.kind != slot128 || c.kind != slot128 {
		me.fail(in.Src.Pos, "operands must be .b128")
	}
	x := inst{kind: kindPoll}
	var wide bool
	x.a, x.off, wide = me.address(args[0].X, op.space)
	if wide {
		x.wide = wideA
	}
	cas := in.Fn == "cas"
	x.exec = func(w *warp, in *inst, mask uint32) {
		s := w.block.launch.space
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			p := (*[2]uint64)(w.pointer(in, op.space, i, w.address(in, i), 16, pageWritable))
			s.wide.Lock()
			old := *p
			next := [2]uint64{w.r.v64(b.off)[i], w.r.v64(b.off + 256)[i]}
			if cas {
				if old == next {
					*p = [2]uint64{w.r.v64(c.off)[i], w.r.v64(c.off + 256)[i]}
				}
			} else {
				*p = next
			}
			s.wide.Unlock()
			for _, d := range op.dst {
				w.r.v64(d.off)[i], w.r.v64(d.off + 256)[i] = old[0], old[1]
			}
		}
	}
	me.emit(x)
	me.touches(op.space, 16, Read|Written)
}
