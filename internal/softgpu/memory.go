package softgpu

import (
	"fmt"
	"math/bits"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/ptx"
)

// A memSpace is where an access goes; generic and global and const addresses
// are resolved alike.
type memSpace uint8

const (
	memGlobal memSpace = iota
	memShared
	memLocal
	memParam // of the kernel
)

// A memOp is the rest of a memory instruction: the registers of a vector, the
// space.
type memOp struct {
	space memSpace
	elem  uint64   // bytes of one element
	bytes uint64   // of one lane's access
	regs  []uint32 // of a vector access; nil = one register in inst.d or inst.b
	wide  bool     // those registers have 64-bit lanes
	need  uint8    // page state
}

type element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64
}

type laneWord interface{ uint32 | uint64 }

func sizeof[T any]() uint64 { var x T; return uint64(unsafe.Sizeof(x)) }

// address is the address that lane uses.
func (w *warp) address(in *inst, lane int) uint64 {
	if in.wide&wideA != 0 {
		return w.r.v64(in.a)[lane&31] + in.off
	}
	return uint64(w.r.v32(in.a)[lane&31] + uint32(in.off))
}

// pointer gives the host address of n bytes at addr in the space of in, or ends the launch.
func (w *warp) pointer(in *inst, sp memSpace, lane int, addr, n uint64, need uint8) unsafe.Pointer {
	if addr&(n-1) != 0 {
		w.fault(FaultMisaligned, in, lane, addr, fmt.Sprintf("access of %d bytes", n))
	}
	b := w.block
	switch sp {
	case memShared:
		if addr < b.sharedSize && n <= b.sharedSize-addr {
			return unsafe.Add(b.shared, addr)
		}
		if p, off := b.peer(addr); p != nil && off < p.sharedSize && n <= p.sharedSize-off {
			return unsafe.Add(p.shared, off)
		}
		w.fault(FaultUnmapped, in, lane, addr, fmt.Sprintf("%d bytes of shared memory", b.sharedSize))
	case memLocal:
		if addr < w.localSpan && n <= w.localSpan-addr {
			return unsafe.Add(w.local, uint64(lane)*w.localSpan+addr)
		}
		w.fault(FaultUnmapped, in, lane, addr, fmt.Sprintf("%d bytes of local memory", w.localSpan))
	case memParam:
		if size := uint64(len(b.launch.cfg.Params)); addr < size && n <= size-addr && need != pageWritable {
			return unsafe.Add(unsafe.Pointer(&b.launch.params[0]), addr)
		}
		w.fault(FaultUnmapped, in, lane, addr, fmt.Sprintf("%d bytes of parameters", len(b.launch.cfg.Params)))
	}
	if p := b.launch.space.find(addr, n, need); p != nil {
		return p
	}
	switch {
	case addr-sharedWindow < clusterSize:
		return w.pointer(in, memShared, lane, addr-sharedWindow, n, need)
	case addr-localWindow < localSize:
		return w.pointer(in, memLocal, lane, addr-localWindow, n, need)
	case addr-paramWindow < paramSize:
		return w.pointer(in, memParam, lane, addr-paramWindow, n, need)
	}
	what := fmt.Sprintf("%d bytes read", n)
	if need == pageWritable {
		what = fmt.Sprintf("%d bytes written", n)
	}
	w.fault(FaultUnmapped, in, lane, addr, what)
	return nil
}

// rowOf looks at addresses of either width.
func rowOf[A laneWord](a *[32]A, n uint64) (row, same bool) {
	if sizeof[A]() == 8 {
		return lanes.Row64((*[32]uint64)(unsafe.Pointer(a)), n)
	}
	return lanes.Row32((*[32]uint32)(unsafe.Pointer(a)), uint32(n))
}

// hasRow reports whether 32 numbers of n bytes at addr are in shared memory, aligned.
func (b *block) hasRow(addr, n uint64) bool {
	return addr&(n-1) == 0 && addr < b.sharedSize && 32*n <= b.sharedSize-addr
}

func copyRow[D laneWord](d, s unsafe.Pointer) {
	if sizeof[D]() == 8 {
		lanes.Copy64(d, s)
	} else {
		lanes.Copy32(d, s)
	}
}

// loadRow fills lanes with elements that lie side by side, storeRow is the way back.
func loadRow[E element, D laneWord](d *[32]D, p unsafe.Pointer) {
	if sizeof[E]() == sizeof[D]() {
		copyRow[D](unsafe.Pointer(d), p)
		return
	}
	src := (*[32]E)(p)
	for i := range d {
		d[i] = D(src[i])
	}
}

func storeRow[E element, D laneWord](p unsafe.Pointer, v *[32]D) {
	if sizeof[E]() == sizeof[D]() {
		copyRow[D](p, unsafe.Pointer(v))
		return
	}
	dst := (*[32]E)(p)
	for i := range v {
		dst[i] = E(v[i])
	}
}

func loadGlobal[E element, D laneWord](w *warp, in *inst, mask uint32) {
	s := w.block.launch.space
	a := w.r.v64(in.a)
	d := (*[32]D)(unsafe.Add(w.r.base, in.d))
	n := sizeof[E]()
	if mask == fullMask {
		row, same := lanes.Row64(a, n)
		if row {
			if addr := a[0] + in.off; addr&(n-1) == 0 {
				if p := s.find(addr, 32*n, pageReadOnly); p != nil {
					loadRow[E](d, p)
					return
				}
			}
		} else if same {
			// A generic address in the local window names 32 places; those are not found here.
			if addr := a[0] + in.off; addr&(n-1) == 0 {
				if p := s.find(addr, n, pageReadOnly); p != nil {
					x := D(*(*E)(p))
					for i := range d {
						d[i] = x
					}
					return
				}
			}
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		addr := a[i] + in.off
		o := addr - s.lo
		if o < s.size && addr&(n-1) == 0 && s.pages[o>>pageShift] != pageAbsent {
			d[i] = D(*(*E)(unsafe.Add(s.base, o)))
		} else {
			d[i] = D(*(*E)(w.pointer(in, memGlobal, i, addr, n, pageReadOnly)))
		}
	}
}

func storeGlobal[E element, D laneWord](w *warp, in *inst, mask uint32) {
	s := w.block.launch.space
	a := w.r.v64(in.a)
	v := (*[32]D)(unsafe.Add(w.r.base, in.b))
	n := sizeof[E]()
	if mask == fullMask {
		if row, _ := lanes.Row64(a, n); row {
			if addr := a[0] + in.off; addr&(n-1) == 0 {
				if p := s.find(addr, 32*n, pageWritable); p != nil {
					storeRow[E](p, v)
					return
				}
			}
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		addr := a[i] + in.off
		o := addr - s.lo
		if o < s.size && addr&(n-1) == 0 && s.pages[o>>pageShift] == pageWritable {
			*(*E)(unsafe.Add(s.base, o)) = E(v[i])
		} else {
			*(*E)(w.pointer(in, memGlobal, i, addr, n, pageWritable)) = E(v[i])
		}
	}
}

func loadShared[E element, D, A laneWord](w *warp, in *inst, mask uint32) {
	b := w.block
	a := (*[32]A)(unsafe.Add(w.r.base, in.a))
	d := (*[32]D)(unsafe.Add(w.r.base, in.d))
	n := sizeof[E]()
	off := A(in.off)
	if mask == fullMask {
		row, same := rowOf(a, n)
		if row {
			if addr := uint64(a[0] + off); b.hasRow(addr, n) {
				loadRow[E](d, unsafe.Add(b.shared, addr))
				return
			}
		} else if same {
			x := D(*(*E)(w.pointer(in, memShared, 0, uint64(a[0]+off), n, pageReadOnly)))
			for i := range d {
				d[i] = x
			}
			return
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		addr := uint64(a[i] + off)
		if addr&(n-1) == 0 && addr < b.sharedSize && n <= b.sharedSize-addr {
			d[i] = D(*(*E)(unsafe.Add(b.shared, addr)))
		} else {
			d[i] = D(*(*E)(w.pointer(in, memShared, i, addr, n, pageReadOnly)))
		}
	}
}

func storeShared[E element, D, A laneWord](w *warp, in *inst, mask uint32) {
	b := w.block
	a := (*[32]A)(unsafe.Add(w.r.base, in.a))
	v := (*[32]D)(unsafe.Add(w.r.base, in.b))
	n := sizeof[E]()
	off := A(in.off)
	if mask == fullMask {
		if row, _ := rowOf(a, n); row {
			if addr := uint64(a[0] + off); b.hasRow(addr, n) {
				storeRow[E](unsafe.Add(b.shared, addr), v)
				return
			}
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		addr := uint64(a[i] + off)
		if addr&(n-1) == 0 && addr < b.sharedSize && n <= b.sharedSize-addr {
			*(*E)(unsafe.Add(b.shared, addr)) = E(v[i])
		} else {
			*(*E)(w.pointer(in, memShared, i, addr, n, pageWritable)) = E(v[i])
		}
	}
}

// Full warps whose words lie in a row are what most accesses are. These functions do that and nothing else; what is no
// row, in another window, not mapped or misaligned goes to the general ones.

func loadGlobal32(w *warp, in *inst, mask uint32) {
	a := w.r.v64(in.a)
	p := w.block.launch.space.rowAt(a[0]+in.off, 4, pageReadOnly)
	if mask != fullMask || p == nil || !lanes.CopyRow32(unsafe.Add(w.r.base, in.d), p, a) {
		loadGlobal[uint32, uint32](w, in, mask)
	}
}

func loadGlobal64(w *warp, in *inst, mask uint32) {
	a := w.r.v64(in.a)
	p := w.block.launch.space.rowAt(a[0]+in.off, 8, pageReadOnly)
	if mask != fullMask || p == nil || !lanes.CopyRow64(unsafe.Add(w.r.base, in.d), p, a) {
		loadGlobal[uint64, uint64](w, in, mask)
	}
}

func storeGlobal32(w *warp, in *inst, mask uint32) {
	a := w.r.v64(in.a)
	p := w.block.launch.space.rowAt(a[0]+in.off, 4, pageWritable)
	if mask != fullMask || p == nil || !lanes.CopyRow32(p, unsafe.Add(w.r.base, in.b), a) {
		storeGlobal[uint32, uint32](w, in, mask)
	}
}

func storeGlobal64(w *warp, in *inst, mask uint32) {
	a := w.r.v64(in.a)
	p := w.block.launch.space.rowAt(a[0]+in.off, 8, pageWritable)
	if mask != fullMask || p == nil || !lanes.CopyRow64(p, unsafe.Add(w.r.base, in.b), a) {
		storeGlobal[uint64, uint64](w, in, mask)
	}
}

func loadShared32(w *warp, in *inst, mask uint32) {
	b, a := w.block, w.r.v32(in.a)
	addr := uint64(a[0] + uint32(in.off))
	if mask != fullMask || !b.hasRow(addr, 4) ||
		!lanes.CopyRow32Narrow(unsafe.Add(w.r.base, in.d), unsafe.Add(b.shared, addr), a) {
		loadShared[uint32, uint32, uint32](w, in, mask)
	}
}

func storeShared32(w *warp, in *inst, mask uint32) {
	b, a := w.block, w.r.v32(in.a)
	addr := uint64(a[0] + uint32(in.off))
	if mask != fullMask || !b.hasRow(addr, 4) ||
		!lanes.CopyRow32Narrow(unsafe.Add(b.shared, addr), unsafe.Add(w.r.base, in.b), a) {
		storeShared[uint32, uint32, uint32](w, in, mask)
	}
}

// loadAny and storeAny serve vectors, local memory and kernel parameters.
func loadAny[E element, D laneWord](w *warp, in *inst, mask uint32) {
	op := in.x.(*memOp)
	n := uintptr(sizeof[E]())
	size := uintptr(sizeof[D]())
	if p := w.row(in, op, mask); p != nil {
		step := uintptr(op.bytes)
		for k, off := range op.regs {
			d := (*[32]D)(unsafe.Add(w.r.base, off))
			q := unsafe.Add(p, uintptr(k)*n)
			for i := range d {
				d[i] = D(*(*E)(q))
				q = unsafe.Add(q, step)
			}
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := w.fastPointer(in, op.space, op.bytes, op.need, i)
		for k, off := range op.regs {
			*(*D)(unsafe.Add(w.r.base, uintptr(off)+uintptr(i)*size)) = D(*(*E)(unsafe.Add(p, uintptr(k)*n)))
		}
	}
}

func storeAny[E element, D laneWord](w *warp, in *inst, mask uint32) {
	op := in.x.(*memOp)
	n := uintptr(sizeof[E]())
	size := uintptr(sizeof[D]())
	if p := w.row(in, op, mask); p != nil {
		step := uintptr(op.bytes)
		for k, off := range op.regs {
			v := (*[32]D)(unsafe.Add(w.r.base, off))
			q := unsafe.Add(p, uintptr(k)*n)
			for i := range v {
				*(*E)(q) = E(v[i])
				q = unsafe.Add(q, step)
			}
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := w.fastPointer(in, op.space, op.bytes, op.need, i)
		for k, off := range op.regs {
			*(*E)(unsafe.Add(p, uintptr(k)*n)) = E(*(*D)(unsafe.Add(w.r.base, uintptr(off)+uintptr(i)*size)))
		}
	}
}

// row gives the memory of a full warp whose accesses lie side by side in
// global memory, nil for every other case.
func (w *warp) row(in *inst, op *memOp, mask uint32) unsafe.Pointer {
	if mask != fullMask || op.space != memGlobal {
		return nil
	}
	a := w.r.v64(in.a)
	if row, _ := lanes.Row64(a, op.bytes); !row {
		return nil
	}
	addr := a[0] + in.off
	if addr&(op.bytes-1) != 0 {
		return nil
	}
	return w.block.launch.space.find(addr, 32*op.bytes, op.need)
}

// fastPointer is pointer at the address of a lane, with the common cases first.
func (w *warp) fastPointer(in *inst, sp memSpace, n uint64, need uint8, lane int) unsafe.Pointer {
	addr := w.address(in, lane)
	if addr&(n-1) == 0 {
		switch sp {
		case memGlobal:
			s := w.block.launch.space
			if o := addr - s.lo; o < s.size && s.pages[o>>pageShift]&need == need {
				return unsafe.Add(s.base, o)
			}
		case memShared:
			if b := w.block; addr < b.sharedSize && n <= b.sharedSize-addr {
				return unsafe.Add(b.shared, addr)
			}
		}
	}
	return w.pointer(in, sp, lane, addr, n, need)
}

// loadFunc picks the function for elements of type t into lanes of one width.
func loadFunc(op *memOp, t ptx.Type, wide, wideAddr bool) execFunc {
	any := op.regs != nil || op.space == memLocal || op.space == memParam
	signed := isa.Signed(t)
	switch n := isa.Bits(t); {
	case n == 8 && signed:
		return pickLoad[int8](op, any, wide, wideAddr)
	case n == 8:
		return pickLoad[uint8](op, any, wide, wideAddr)
	case n == 16 && signed:
		return pickLoad[int16](op, any, wide, wideAddr)
	case n == 16:
		return pickLoad[uint16](op, any, wide, wideAddr)
	case n == 32 && signed:
		return pickLoad[int32](op, any, wide, wideAddr)
	case n == 32:
		return pickLoad[uint32](op, any, wide, wideAddr)
	}
	return pickLoad[uint64](op, any, wide, wideAddr)
}

func pickLoad[E element](op *memOp, any, wide, wideAddr bool) execFunc {
	switch n := sizeof[E](); {
	case !any && op.space == memShared && n == 4 && !wide && !wideAddr:
		return loadShared32
	case !any && op.space != memShared && n == 4 && !wide:
		return loadGlobal32
	case !any && op.space != memShared && n == 8:
		return loadGlobal64
	case any && wide:
		return loadAny[E, uint64]
	case any:
		return loadAny[E, uint32]
	case op.space == memShared && wide && wideAddr:
		return loadShared[E, uint64, uint64]
	case op.space == memShared && wide:
		return loadShared[E, uint64, uint32]
	case op.space == memShared && wideAddr:
		return loadShared[E, uint32, uint64]
	case op.space == memShared:
		return loadShared[E, uint32, uint32]
	case wide:
		return loadGlobal[E, uint64]
	}
	return loadGlobal[E, uint32]
}

func storeFunc(op *memOp, t ptx.Type, wide, wideAddr bool) execFunc {
	any := op.regs != nil || op.space == memLocal || op.space == memParam
	switch isa.Bits(t) {
	case 8:
		return pickStore[uint8](op, any, wide, wideAddr)
	case 16:
		return pickStore[uint16](op, any, wide, wideAddr)
	case 32:
		return pickStore[uint32](op, any, wide, wideAddr)
	}
	return pickStore[uint64](op, any, wide, wideAddr)
}

func pickStore[E element](op *memOp, any, wide, wideAddr bool) execFunc {
	switch n := sizeof[E](); {
	case !any && op.space == memShared && n == 4 && !wide && !wideAddr:
		return storeShared32
	case !any && op.space != memShared && n == 4 && !wide:
		return storeGlobal32
	case !any && op.space != memShared && n == 8:
		return storeGlobal64
	case any && wide:
		return storeAny[E, uint64]
	case any:
		return storeAny[E, uint32]
	case op.space == memShared && wide && wideAddr:
		return storeShared[E, uint64, uint64]
	case op.space == memShared && wide:
		return storeShared[E, uint64, uint32]
	case op.space == memShared && wideAddr:
		return storeShared[E, uint32, uint64]
	case op.space == memShared:
		return storeShared[E, uint32, uint32]
	case wide:
		return storeGlobal[E, uint64]
	}
	return storeGlobal[E, uint32]
}

// A paramMemOp is ld.param or st.param of a function's own parameter memory.
type paramMemOp struct {
	area paramArea
	off  uint32
	elem uint32
	sext bool
	regs []uint32
	wide bool
	pred bool // of a predicate, which is a byte that is 0 or 1
}

func (op *paramMemOp) load() execFunc {
	if op.pred {
		return loadAreaPred
	}
	return loadArea
}

func (op *paramMemOp) store() execFunc {
	if op.pred {
		return storeAreaPred
	}
	return storeArea
}

func loadAreaPred(w *warp, in *inst, mask uint32) {
	op := in.x.(*paramMemOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		w.r.putPred(op.regs[0], i, *(*uint8)(w.paramLane(op.area, i)) != 0)
	}
}

func storeAreaPred(w *warp, in *inst, mask uint32) {
	op := in.x.(*paramMemOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		*(*uint8)(w.paramLane(op.area, i)) = uint8(*w.r.p(op.regs[0]) >> i & 1)
	}
}

func loadArea(w *warp, in *inst, mask uint32) {
	op := in.x.(*paramMemOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := unsafe.Add(w.paramLane(op.area, i), op.off)
		for k, reg := range op.regs {
			q := unsafe.Add(p, uint32(k)*op.elem)
			var x uint64
			switch op.elem {
			case 1:
				x = uint64(*(*uint8)(q))
			case 2:
				x = uint64(*(*uint16)(q))
			case 4:
				x = uint64(*(*uint32)(q))
			default:
				x = *(*uint64)(q)
			}
			if op.sext {
				sh := 64 - 8*op.elem
				x = uint64(int64(x<<sh) >> sh)
			}
			w.r.put(reg, i, op.wide, x)
		}
	}
}

func storeArea(w *warp, in *inst, mask uint32) {
	op := in.x.(*paramMemOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := unsafe.Add(w.paramLane(op.area, i), op.off)
		for k, reg := range op.regs {
			q := unsafe.Add(p, uint32(k)*op.elem)
			x := w.r.get(reg, i, op.wide)
			switch op.elem {
			case 1:
				*(*uint8)(q) = uint8(x)
			case 2:
				*(*uint16)(q) = uint16(x)
			case 4:
				*(*uint32)(q) = uint32(x)
			default:
				*(*uint64)(q) = x
			}
		}
	}
}
