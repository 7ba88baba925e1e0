package softgpu

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// Bulk copies: PTX ISA 9.7.9.25 to .27. They are done when they are issued; the
// completion that an mbarrier is told about comes at once, and groups are
// complete before anybody can wait for them.

// copies translates what copies asynchronously on a GPU.
type copies struct{ *operands }

// region gives n bytes, up to a page, at addr in global or shared memory.
func (w *warp) region(in *inst, sp memSpace, lane int, addr, n, align uint64, need uint8) []byte {
	if addr%align != 0 {
		w.fault(FaultMisaligned, in, lane, addr, fmt.Sprintf("want a multiple of %d", align))
	}
	if n == 0 {
		return nil
	}
	b := w.block
	if sp == memShared {
		off := addr
		if addr >= b.sharedSize {
			if p, o := b.peer(addr); p != nil {
				b, off = p, o
			}
		}
		if off < b.sharedSize && n <= b.sharedSize-off {
			return unsafe.Slice((*byte)(unsafe.Add(b.shared, off)), n)
		}
		w.fault(FaultUnmapped, in, lane, addr, fmt.Sprintf("%d bytes, of %d bytes of shared memory", n, b.sharedSize))
	}
	if n <= PageSize {
		if p := b.launch.space.find(addr, n, need); p != nil {
			return unsafe.Slice((*byte)(p), n)
		}
	}
	w.fault(FaultUnmapped, in, lane, addr, fmt.Sprintf("%d bytes", n))
	return nil
}

// targets calls f with the rank bits to put into shared addresses: those of the blocks of a
// multicast mask, or only 0, which leaves the address alone.
func targets(mask uint32, multicast bool, f func(set func(addr uint64) uint64)) {
	if !multicast {
		f(func(addr uint64) uint64 { return addr })
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		rank := uint64(bits.TrailingZeros32(mask))
		f(func(addr uint64) uint64 { return addr&offsetMask | (rank+1)<<rankShift })
	}
}

// bulk is cp.async.bulk and cp.reduce.async.bulk.
func (cp copies) bulk(in *isa.Inst) {
	to, from := spaceOf(in.To), spaceOf(in.Space)
	dst, src := cp.addressOperand(in.Args[0].X, to), cp.addressOperand(in.Args[1].X, from)
	size := cp.read(in.Args[2].X, ptx.U32)
	var bar addressOperand
	signals := to == memShared
	if signals {
		bar = cp.addressOperand(in.Args[3].X, memShared)
	}
	multicast := in.Has(isa.Multicast)
	mask16 := cp.constBits(0, slot32)
	if multicast {
		mask16 = cp.read(in.Args[4].X, ptx.B16)
	}
	reduce := cp.reduction(in)
	cp.emit(inst{kind: kindPoll, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			n := uint64(w.r.v32(size)[i])
			if n%16 != 0 {
				w.fault(FaultMisaligned, in, i, n, "size of a bulk copy: want a multiple of 16")
			}
			sa, da := src.at(w, i), dst.at(w, i)
			data := w.region(in, from, i, sa, n, 16, pageReadOnly)
			w.observeSpace(from, i, sa, n, Read)
			targets(w.r.v32(mask16)[i]&0xffff, multicast, func(set func(uint64) uint64) {
				at := w.region(in, to, i, set(da), n, 16, pageWritable)
				if reduce == nil {
					w.observeSpace(to, i, da, n, Written)
					copy(at, data)
				} else {
					w.observeSpace(to, i, da, n, Read|Written)
					reduce(at, data)
				}
				if signals {
					w.completeTx(in, i, set(bar.at(w, i)), n)
				}
			})
		}
	}})
}

// reduction is the operation of cp.reduce on bytes, element after element; nil = a plain copy.
func (cp copies) reduction(in *isa.Inst) func(dst, src []byte) {
	if in.Fn == "" {
		return nil
	}
	f := atomicFunc(in.Fn, in.T, everybody, false)
	if f == nil {
		cp.fail(in.Src.Pos, "no reduction .%s of this type", in.Fn)
	}
	return func(dst, src []byte) { reduceBytes(f, uint64(isa.Bits(in.T)), dst, src) }
}

func reduceBytes(f atomFunc, size uint64, dst, src []byte) {
	for o := uint64(0); o+size/8 <= uint64(len(dst)); o += size / 8 {
		f(unsafe.Pointer(&dst[o]), getBits(unsafe.Pointer(&src[o]), size), 0)
	}
}

// tensorType is the PTX type of the elements of a tensor, for reductions.
func (t TensorType) ptx(fn string) ptx.Type {
	switch t {
	case TensorU32:
		if fn == "and" || fn == "or" || fn == "xor" {
			return ptx.B32
		}
		return ptx.U32
	case TensorS32:
		return ptx.S32
	case TensorU64:
		if fn == "and" || fn == "or" || fn == "xor" {
			return ptx.B64
		}
		return ptx.U64
	case TensorS64:
		return ptx.S64
	case TensorF16:
		return ptx.F16
	case TensorBF16:
		return ptx.BF16
	case TensorF32, TensorF32Ftz:
		return ptx.F32
	case TensorF64:
		return ptx.F64
	}
	return ptx.TypeNone
}

// tensorAddress resolves [map, {c0, c1…}].
func (cp copies) tensorAddress(in *isa.Inst, x ptx.Operand) (m addressOperand, coords []uint32) {
	a, ok := x.(*ptx.Addr)
	n := int(in.Num[0] - '0')
	if !ok || len(a.Coords) != 1 {
		cp.fail(in.Src.Pos, "tensor address %s", operandText(x))
	}
	plain := *a
	plain.Coords = nil
	return cp.addressOperand(&plain, memGlobal), cp.registers(a.Coords[0], ptx.S32, n, false)
}

// tensorMap reads the tensor map at addr, which may lie in global, constant or
// parameter memory.
func (w *warp) tensorMap(in *inst, lane int, addr uint64, rank int) *TensorMap {
	if addr%64 != 0 {
		w.fault(FaultMisaligned, in, lane, addr, "tensor map: want a multiple of 64")
	}
	var b [TensorMapSize]byte
	for o := uint64(0); o < TensorMapSize; o += 16 {
		copy(b[o:], (*[16]byte)(w.pointer(in, memGlobal, lane, addr+o, 16, pageReadOnly))[:])
	}
	w.observe(lane, addr, TensorMapSize, Read)
	m, err := DecodeTensorMap(b[:])
	if err != nil {
		w.fault(FaultUnsupported, in, lane, addr, err.Error())
	}
	if m.Rank != rank {
		w.fault(FaultUnsupported, in, lane, addr, fmt.Sprintf("tensor map of %d dimensions", m.Rank))
	}
	return m
}

// A tensorBox is the place of one copy: coordinates, and the offsets that im2col adds to those of space.
type tensorBox struct {
	start  [5]int32
	offset [3]uint16
}

// counts is the number of elements of the box in each dimension.
func (m *TensorMap) counts() (n [5]uint64) {
	for i := range n {
		n[i] = 1
		if i < m.Rank && !m.Im2col {
			n[i] = uint64((m.Box[i] + m.Step[i] - 1) / m.Step[i])
		}
	}
	if m.Im2col {
		n[0], n[1] = uint64(m.Channels), uint64(m.Pixels)
	}
	return n
}

// rowBytes is the size of an innermost row of the box in shared memory, boxBytes that of all.
func (m *TensorMap) rowBytes() uint64 { return m.counts()[0] * m.Type.Size() }

func (m *TensorMap) boxBytes() uint64 {
	n := m.Type.Size()
	for _, k := range m.counts() {
		n *= k
	}
	return n
}

// step is the distance of the elements of a row, in elements of the tensor.
func (m *TensorMap) step() uint64 {
	if m.Im2col {
		return 1
	}
	return uint64(m.Step[0])
}

// rows walks the box: one call for each innermost row, with the offset of its first byte in
// the dense box, the address of element start[0] in the tensor, and whether the outer coordinates are inside.
func (m *TensorMap) rows(box tensorBox, f func(box, global uint64, inside bool)) {
	var at [5]int64
	for i := range m.Rank {
		at[i] = int64(box.start[i])
	}
	n, row := m.counts(), m.rowBytes()
	emit := func(dense uint64) {
		addr := m.Address + uint64(at[0]*int64(m.Type.Size()))
		inside := true
		for i := 1; i < m.Rank; i++ {
			c := at[i]
			if m.Im2col && i < m.Rank-1 {
				c += int64(box.offset[i-1])
			}
			inside = inside && c >= 0 && uint64(c) < m.Dim[i]
			addr += uint64(c) * m.Stride[i-1]
		}
		f(dense, addr, inside)
	}
	if m.Im2col {
		for k := range n[1] {
			emit(k * row)
			m.nextPlace(&at)
		}
		return
	}
	var k [5]uint64
	for dense := uint64(0); ; dense += row {
		emit(dense)
		i := 1
		for ; i < 5; i++ {
			if k[i]++; k[i] < n[i] {
				at[i] += int64(m.Step[i])
				break
			}
			k[i], at[i] = 0, int64(box.start[i])
		}
		if i == 5 {
			return
		}
	}
}

// nextPlace steps through the box of im2col in space, and then to the next image.
func (m *TensorMap) nextPlace(at *[5]int64) {
	last := m.Rank - 1
	for i := 1; i < last; i++ {
		if at[i] += int64(m.Step[i]); at[i] <= int64(m.Dim[i])-1+int64(m.Upper[i-1]) {
			return
		}
		at[i] = int64(m.Lower[i-1])
	}
	at[last]++
}

// fill is what an element outside the tensor reads as. Its NaN is 0x7ff7 in each 16 bits (H200, driver 580.159,
// measured in F32).
func (m *TensorMap) fill() uint64 {
	if !m.FillNaN {
		return 0
	}
	switch m.Type {
	case TensorF16, TensorBF16:
		return number.FillNaN
	case TensorF32, TensorF32Ftz, TensorTF32, TensorTF32Ftz:
		return number.FillNaN<<16 | number.FillNaN
	case TensorF64:
		return number.FillNaN<<48 | number.FillNaN<<32 | number.FillNaN<<16 | number.FillNaN
	}
	return 0
}

// bulkTensor is cp.async.bulk.tensor and cp.reduce.async.bulk.tensor.
func (cp copies) bulkTensor(in *isa.Inst) {
	load := in.To != "global"
	multicast := in.Has(isa.Multicast)
	rank, fn := int(in.Num[0]-'0'), in.Fn
	im2col := in.Mode == "im2col" || in.Mode == "im2col_no_offs"
	mapArg, sharedArg := in.Args[0].X, in.Args[1].X
	if load {
		mapArg, sharedArg = sharedArg, mapArg
	}
	tm, coords := cp.tensorAddress(in, mapArg)
	shared := cp.addressOperand(sharedArg, memShared)
	var bar addressOperand
	var offsets []uint32
	mask16 := cp.constBits(0, slot32)
	if load {
		bar = cp.addressOperand(in.Args[2].X, memShared)
		rest := in.Args[3:]
		if in.Mode == "im2col" {
			offsets = cp.registers(rest[0].X, ptx.U16, rank-2, false)
			rest = rest[1:]
		}
		if multicast {
			mask16 = cp.read(rest[0].X, ptx.B16)
		}
	}
	cp.emit(inst{kind: kindPoll, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			t := w.tensorMap(in, i, tm.at(w, i), rank)
			if t.Im2col != im2col {
				w.fault(FaultUnsupported, in, i, tm.at(w, i), "tensor map of the other mode, tile or im2col")
			}
			var box tensorBox
			for k, c := range coords {
				box.start[k] = int32(w.r.v32(c)[i])
			}
			for k, c := range offsets {
				box.offset[k] = uint16(w.r.v32(c)[i])
			}
			sa := shared.at(w, i)
			if !load {
				w.storeTensor(in, i, t, box, sa, fn)
				continue
			}
			targets(w.r.v32(mask16)[i]&0xffff, multicast, func(set func(uint64) uint64) {
				n := w.loadTensor(in, i, t, box, set(sa))
				w.completeTx(in, i, set(bar.at(w, i)), n)
			})
		}
	}})
}

// loadTensor copies a box to shared memory and returns its size.
func (w *warp) loadTensor(in *inst, lane int, t *TensorMap, box tensorBox, shared uint64) uint64 {
	total, size := t.boxBytes(), t.Type.Size()
	dst := w.region(in, memShared, lane, shared, total, 128, pageWritable)
	step, fill, n := t.step(), t.fill(), t.rowBytes()
	off := shared & offsetMask
	t.rows(box, func(dense, global uint64, inside bool) {
		for o := uint64(0); o < n; o += size {
			c := int64(box.start[0]) + int64(o/size*step)
			x := fill
			if inside && c >= 0 && uint64(c) < t.Dim[0] {
				a := global + o*step
				w.observe(lane, a, size, Read)
				x = getBits(w.pointer(in, memGlobal, lane, a, size, pageReadOnly), 8*size)
			}
			// The pattern is one of addresses, not of offsets in the box.
			at := swizzled(off+dense+o, t.Swizzle) - off
			if at+size > total {
				w.fault(FaultMisaligned, in, lane, shared, "swizzled box: address in shared memory")
			}
			putBits(unsafe.Pointer(&dst[at]), x, 8*size)
		}
	})
	return total
}

// storeTensor copies or reduces a box from shared memory; elements outside the tensor are dropped.
func (w *warp) storeTensor(in *inst, lane int, t *TensorMap, box tensorBox, shared uint64, fn string) {
	total, size := t.boxBytes(), t.Type.Size()
	for i := range t.Rank {
		// A box to be written may end outside, not begin there (H200: illegal instruction).
		if !t.Im2col && box.start[i] < 0 {
			w.fault(FaultUnsupported, in, lane, shared,
				fmt.Sprintf("a tensor is written from coordinate %d of dimension %d on", box.start[i], i))
		}
	}
	src := w.region(in, memShared, lane, shared, total, 128, pageReadOnly)
	var reduce atomFunc
	access := Written
	if fn != "" {
		if reduce = atomicFunc(fn, t.Type.ptx(fn), everybody, false); reduce == nil {
			w.fault(FaultUnsupported, in, lane, shared, fmt.Sprintf("reduction .%s of tensor type %d", fn, t.Type))
		}
		access |= Read
	}
	step, n := t.step(), t.rowBytes()
	off := shared & offsetMask
	t.rows(box, func(dense, global uint64, inside bool) {
		if !inside {
			return
		}
		for o := uint64(0); o < n; o += size {
			if c := int64(box.start[0]) + int64(o/size*step); c < 0 || uint64(c) >= t.Dim[0] {
				continue
			}
			at := swizzled(off+dense+o, t.Swizzle) - off
			if at+size > total {
				w.fault(FaultMisaligned, in, lane, shared, "swizzled box: address in shared memory")
			}
			x := getBits(unsafe.Pointer(&src[at]), 8*size)
			a := global + o*step
			p := w.pointer(in, memGlobal, lane, a, size, pageWritable)
			w.observe(lane, a, size, access)
			if reduce != nil {
				reduce(p, x, 0)
			} else {
				putBits(p, x, 8*size)
			}
		}
	})
}

// storeAsync is st.async and red.async: to another block's shared memory, whose mbarrier is told.
func (cp copies) storeAsync(in *isa.Inst) {
	regs, t := cp.elements(in, in.Args[1].X, false)
	// Without a state space the addresses are generic, and must be of shared memory.
	offset := func(x ptx.Operand) func(w *warp, lane int) uint64 {
		sp := cp.accessSpace(in, x)
		a := cp.addressOperand(x, sp)
		if sp == memGlobal {
			return func(w *warp, lane int) uint64 { return a.at(w, lane) - sharedWindow }
		}
		return a.at
	}
	dst, bar := offset(in.Args[0].X), offset(in.Args[2].X)
	size := uint64(isa.Bits(t)) / 8
	n := size * uint64(len(regs))
	var f atomFunc
	if in.Fn != "" {
		if f = atomicFunc(in.Fn, t, everybody, false); f == nil {
			cp.fail(in.Src.Pos, "no reduction .%s of this type", in.Fn)
		}
	}
	cp.emit(inst{kind: kindPoll, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			p := w.pointer(in, memShared, i, dst(w, i), n, pageWritable)
			for k, reg := range regs {
				x := w.r.get(reg.off, i, reg.wide())
				if q := unsafe.Add(p, uint64(k)*size); f != nil {
					f(q, x, 0)
				} else {
					putBits(q, x, 8*size)
				}
			}
			w.completeTx(in, i, bar(w, i), n)
		}
	}})
}

// storeBulk is st.bulk: zeros.
func (cp copies) storeBulk(in *isa.Inst) {
	sp := cp.accessSpace(in, in.Args[0].X)
	dst := cp.addressOperand(in.Args[0].X, sp)
	size := cp.read(in.Args[1].X, ptx.B64)
	generic := sp == memGlobal
	cp.emit(inst{kind: kindPoll, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			addr := dst.at(w, i)
			if generic {
				addr -= sharedWindow // only shared memory is allowed
			}
			n := w.r.v64(size)[i]
			if n%8 != 0 {
				w.fault(FaultMisaligned, in, i, n, "size of st.bulk: want a multiple of 8")
			}
			clear(w.region(in, memShared, i, addr, n, 8, pageWritable))
		}
	}})
}

// cpAsync copies at once. Waiting for it later then waits for nothing.
func (cp copies) cpAsync(in *isa.Inst) {
	size, ok := in.Args[2].X.(*ptx.Imm)
	if !ok || size.Bits != 4 && size.Bits != 8 && size.Bits != 16 {
		cp.fail(in.Src.Pos, "copy size %s", operandText(in.Args[2].X))
	}
	n := size.Bits
	x := inst{kind: kindExec}
	var dw, sw bool
	var dOff, sOff uint64
	var dReg, sReg uint32
	dReg, dOff, dw = cp.address(in.Args[0].X, memShared)
	sReg, sOff, sw = cp.address(in.Args[1].X, memGlobal)
	srcSize := cp.constBits(n, slot32)
	policies := 0
	if slices.Contains(in.Src.Mods, "L2::cache_hint") {
		policies = 1 // the last operand
	}
	if len(in.Args) > 3+policies {
		srcSize = cp.read(in.Args[3].X, ptx.U32)
	}
	x.exec = func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			da := w.r.get(dReg, i, dw) + dOff
			sa := w.r.get(sReg, i, sw) + sOff
			dst := unsafe.Slice((*byte)(w.pointer(in, memShared, i, da, n, pageWritable)), n)
			k := min(uint64(w.r.v32(srcSize)[i]), n)
			if k > 0 {
				w.observe(i, sa, k, Read)
				copy(dst, unsafe.Slice((*byte)(w.pointer(in, memGlobal, i, sa, n, pageReadOnly)), k))
			}
			clear(dst[k:])
		}
	}
	cp.emit(x)
}
