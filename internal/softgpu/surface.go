package softgpu

import (
	"fmt"
	"math"
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// Surface instructions: PTX ISA 9.7.11. The x coordinate of the .b forms counts bytes, that of the .p forms texels.

// A surfaceOp is suld, sust or sured.
type surfaceOp struct {
	geom      geometry
	handle    addressOperand
	layer     uint32
	at        []uint32
	size      uint64 // bytes of the access; 0 = a texel
	outside   string // trap, clamp, zero
	formatted bool
	access    Access
}

// locate gives the address of the access, and false where there is none because it lies outside.
func (op *surfaceOp) locate(w *warp, in *inst, lane int) (*Image, uint64, bool) {
	h := op.handle.at(w, lane)
	m := w.block.launch.space.surface(h)
	if m == nil {
		w.fault(FaultUnmapped, in, lane, h, "this is no surface object")
	}
	if !op.geom.fits(m) {
		w.fault(FaultUnsupported, in, lane, h, fmt.Sprintf("the surface object has other dimensions than .%v", op.geom))
	}
	size := op.size
	if op.formatted {
		size = m.texel()
	}
	var at [3]uint64
	// Coordinates, the layer last, and how far each may go, in units of step.
	limit := [3]uint64{uint64(m.Width) * m.texel() / size, uint64(m.Height), uint64(m.Depth)}
	for k, reg := range op.at {
		at[k] = uint64(int64(int32(w.r.v32(reg)[lane])))
	}
	if op.geom.array {
		at[2], limit[2] = uint64(w.r.v32(op.layer)[lane]), uint64(m.Layers)
	}
	if !op.formatted {
		if at[0]%size != 0 {
			w.fault(FaultMisaligned, in, lane, at[0], fmt.Sprintf("x coordinate of an access of %d bytes", size))
		}
		at[0] = uint64(int64(at[0]) / int64(size))
	}
	for k := range at {
		if limit[k] == 0 && k > 0 || at[k] < limit[k] {
			continue
		}
		outside := op.outside
		if limit[k] == 0 {
			outside = "trap" // a row is shorter than the access
		}
		switch outside {
		case "trap":
			w.fault(FaultTrap, in, lane, 0,
				fmt.Sprintf("coordinates outside of the surface object: %d of %d in dimension %d",
					int64(at[k]), limit[k], k))
		case "zero":
			return m, 0, false
		}
		if int64(at[k]) < 0 {
			at[k] = 0
		} else {
			at[k] = limit[k] - 1
		}
	}
	addr := m.Address + at[0]*size + at[1]*m.Pitch + at[2]*m.Slice
	w.observe(lane, addr, size, op.access)
	return m, addr, true
}

func (tx textures) surface(in *isa.Inst) {
	op := &surfaceOp{geom: tx.geometryOf(in), outside: in.Mode2, formatted: in.Mode == "p"}
	address, data := in.Args[0].X, in.Args[1].X
	if in.Op == "suld" {
		address, data = data, address
	}
	op.handle, op.layer, op.at = tx.coordinates(in, address, op.geom, ptx.S32)
	op.size = uint64(isa.Bits(in.T)) / 8 * uint64(in.Vec)
	switch in.Op {
	case "suld":
		op.access = Read
		regs, _ := tx.elements(in, data, true)
		tx.emit(inst{kind: kindExec, exec: func(w *warp, in *inst, mask uint32) { op.load(w, in, regs, mask) }})
	case "sust":
		op.access = Written
		regs, _ := tx.elements(in, data, false)
		store := op.store
		if op.formatted {
			store = op.convert
		}
		tx.emit(inst{kind: kindExec, exec: func(w *warp, in *inst, mask uint32) { store(w, in, regs, mask) }})
	default:
		op.access = Read | Written
		tx.surfaceReduce(in, op, tx.read(data, in.T))
	}
}

func (op *surfaceOp) load(w *warp, in *inst, regs []place, mask uint32) {
	elem := op.size / uint64(len(regs))
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		_, addr, ok := op.locate(w, in, i)
		for k, r := range regs {
			var x uint64
			if ok {
				x = getBits(w.pointer(in, memGlobal, i, addr+uint64(k)*elem, elem, pageReadOnly), 8*elem)
			}
			w.r.put(r.off, i, r.wide(), x)
		}
	}
}

func (op *surfaceOp) store(w *warp, in *inst, regs []place, mask uint32) {
	elem := op.size / uint64(len(regs))
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		_, addr, ok := op.locate(w, in, i)
		if !ok {
			continue
		}
		for k, r := range regs {
			putBits(w.pointer(in, memGlobal, i, addr+uint64(k)*elem, elem, pageWritable), w.r.get(r.off, i, r.wide()),
				8*elem)
		}
	}
}

// convert is sust.p: each element of 32 bits becomes a channel. Integers are clamped to its range.
func (op *surfaceOp) convert(w *warp, in *inst, regs []place, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		image, addr, ok := op.locate(w, in, i)
		if !ok {
			continue
		}
		size := image.Format.Size()
		for c := range min(image.Channels, len(regs)) {
			x := encodeChannel(image.Format, uint32(w.r.get(regs[c].off, i, regs[c].wide())))
			putBits(w.pointer(in, memGlobal, i, addr+uint64(c)*size, size, pageWritable), x, 8*size)
		}
	}
}

func encodeChannel(f TexelFormat, x uint32) uint64 {
	signed := func(n uint) uint64 { return uint64(min(max(int32(x), -1<<(n-1)), 1<<(n-1)-1)) }
	switch f {
	case TexelF16:
		return uint64(number.RoundF16(float64(math.Float32frombits(x)), number.Nearest))
	case TexelU8:
		return uint64(min(x, 0xff))
	case TexelU16:
		return uint64(min(x, 0xffff))
	case TexelS8:
		return signed(8)
	case TexelS16:
		return signed(16)
	}
	return uint64(x)
}

func (tx textures) surfaceReduce(in *isa.Inst, op *surfaceOp, data uint32) {
	wide := slotFor(in.T) == slot64
	plain, asU32, asS32 := atomicFunc(in.Fn, in.T, everybody, false), atomicFunc(in.Fn, ptx.U32, everybody, false),
		atomicFunc(in.Fn, ptx.S32, everybody, false)
	if op.formatted && (in.Fn == "and" || in.Fn == "or") {
		asU32, asS32 = atomicFunc(in.Fn, ptx.B32, everybody, false), atomicFunc(in.Fn, ptx.B32, everybody, false)
	}
	if !op.formatted && plain == nil || asU32 == nil || asS32 == nil {
		tx.fail(in.Src.Pos, "no reduction .%s of this type", in.Fn)
	}
	tx.emit(inst{kind: kindPoll, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			image, addr, ok := op.locate(w, in, i)
			if !ok {
				continue
			}
			f, size := plain, op.size
			if op.formatted {
				// The format says what the bits are.
				f, size = asU32, 4
				if image.Format == TexelS32 {
					f = asS32
				} else if image.Format != TexelU32 || image.Channels != 1 {
					w.fault(FaultUnsupported, in, i, addr,
						"a reduction of a surface whose texels are no 32-bit integers")
				}
			}
			f(w.pointer(in, memGlobal, i, addr, size, pageWritable), w.r.get(data, i, wide), 0)
		}
	}})
}

func (tx textures) surfaceQuery(in *isa.Inst) {
	d := tx.writeExact(in.Args[0].X, ptx.B32)
	handle, what := tx.handle(in.Args[1].X.(*ptx.Addr)), in.Fn
	tx.emit(inst{kind: kindExec, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			h := handle.at(w, i)
			s := w.block.launch.space.surface(h)
			if s == nil {
				w.fault(FaultUnmapped, in, i, h, "this is no surface object")
			}
			x, ok := imageAnswer(s, what, false)
			if !ok { // memory_layout: 1 = linear
				x = uint32(number.FromBool(s.Linear))
			}
			w.r.v32(d)[i] = x
		}
	}})
}
