package softgpu

import (
	"math/bits"
	"unsafe"
)

// A callSite is the operand of a call.
type callSite struct {
	callee *function // nil = indirect: address in inst.a
	in     []paramOperand
	out    []paramOperand
}

// A paramOperand is an argument or a result: .param memory of the caller, or a register.
type paramOperand struct {
	isReg bool
	reg   uint32
	wide  bool
	area  paramArea
}

// A paramArea is a .param variable of a function: size bytes for each lane,
// lane after lane, in the register file.
type paramArea struct {
	off    uint32
	stride uint32 // bytes a lane, a multiple of 8 so that every access is aligned
	size   uint32
}

func (w *warp) paramLane(a paramArea, lane int) unsafe.Pointer {
	return unsafe.Add(w.r.base, uintptr(a.off)+uintptr(lane)*uintptr(a.stride))
}

func (w *warp) call(in *inst, mask uint32) {
	site := in.x.(*callSite)
	if site.callee != nil {
		w.enter(in, site, site.callee, mask)
		return
	}
	// Indirect: one group for each callee.
	target := func(lane int) uint64 { return w.r.get(in.a, lane, in.wide&wideA != 0) }
	lane := bits.TrailingZeros32(mask)
	addr := target(lane)
	var same uint32
	for m := mask; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); target(i) == addr {
			same |= 1 << i
		}
	}
	callee := w.block.launch.prog.functionAt(addr)
	if callee == nil {
		w.fault(FaultCall, in, lane, addr, "")
	}
	if len(callee.params) != len(site.in) || len(callee.rets) != len(site.out) {
		w.fault(FaultCall, in, lane, addr, callee.name+" has another number of parameters")
	}
	if rest := mask &^ same; rest != 0 {
		g := &w.groups[w.cur]
		w.groups = append(w.groups, group{pc: g.pc, mask: g.mask &^ same, fr: g.fr, stamp: g.stamp})
		w.groups[w.cur].mask = same
	}
	w.enter(in, site, callee, same)
}

func (w *warp) enter(in *inst, site *callSite, f *function, mask uint32) {
	lane := bits.TrailingZeros32(mask)
	if f.native != nil {
		f.native(w, in, site, mask)
		w.groups[w.cur].pc++
		return
	}
	g := w.detach(mask)
	if g.fr.depth >= maxDepth {
		w.fault(FaultStack, in, lane, 0, "too many nested calls")
	}
	fr := &frame{parent: g.fr, ret: g.pc + 1, depth: g.fr.depth + 1, local: g.fr.top, top: g.fr.top, fn: f, site: site}
	// Arguments are read before the callee's registers are saved: in a
	// recursive call both are the same registers.
	var args [][32][]byte
	if f.recursive {
		fr.top += f.localBytes
		if uint64(fr.top) > w.frameLimit {
			w.fault(FaultStack, in, lane, 0, "local memory is used up")
		}
		args = w.takeArgs(site.in, mask)
		lo, hi := f.regLo/8, f.regHi/8
		fr.saved = append(fr.saved, w.file[lo:hi]...)
	}
	for k, op := range site.in {
		to := f.params[k]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			dst := unsafe.Slice((*byte)(w.paramLane(to, i)), to.stride)
			if args != nil {
				copy(dst, args[k][i])
			} else {
				copy(dst, w.operandBytes(op, i))
			}
		}
	}
	g.fr = fr
	g.pc = f.entry
}

// operandBytes is the memory of lane i of an argument.
func (w *warp) operandBytes(op paramOperand, i int) []byte {
	if !op.isReg {
		return unsafe.Slice((*byte)(w.paramLane(op.area, i)), op.area.size)
	}
	if op.wide {
		return unsafe.Slice((*byte)(unsafe.Pointer(&w.r.v64(op.reg)[i])), 8)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w.r.v32(op.reg)[i])), 4)
}

func (w *warp) takeArgs(ops []paramOperand, mask uint32) [][32][]byte {
	args := make([][32][]byte, len(ops))
	for k, op := range ops {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			args[k][i] = append([]byte(nil), w.operandBytes(op, i)...)
		}
	}
	return args
}

// ret leaves the function, or the kernel.
func (w *warp) ret(mask uint32) {
	g := &w.groups[w.cur]
	fr := g.fr
	if fr.parent == nil {
		w.exit(mask)
		return
	}
	g = w.detach(mask)
	f := fr.fn
	var results [][32][]byte
	if fr.saved != nil {
		ops := make([]paramOperand, len(f.rets))
		for k, area := range f.rets {
			ops[k].area = area
		}
		results = w.takeArgs(ops, mask)
		restoreLanes(w, f, fr.saved, mask)
	}
	for k, op := range fr.site.out {
		from := f.rets[k]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			dst := w.operandBytes(op, i)
			if results != nil {
				copy(dst, results[k][i])
			} else {
				copy(dst, unsafe.Slice((*byte)(w.paramLane(from, i)), from.size))
			}
		}
	}
	g.pc, g.fr = fr.ret, fr.parent
}

// restoreLanes puts the registers of f back for the lanes of mask.
func restoreLanes(w *warp, f *function, saved []uint64, mask uint32) {
	old := regs{unsafe.Pointer(&saved[0])}
	for _, v := range f.vectors {
		rel := v.off - f.regLo
		switch v.kind {
		case slotPred:
			d := w.r.p(v.off)
			*d = *d&^mask | *old.p(rel)&mask
		case slot32:
			blend32(unsafe.Add(w.r.base, v.off), unsafe.Add(old.base, rel), mask)
		case slot64:
			blend64(unsafe.Add(w.r.base, v.off), unsafe.Add(old.base, rel), mask)
		case slotParam:
			for m := mask; m != 0; m &= m - 1 {
				i := uintptr(bits.TrailingZeros32(m))
				n := uintptr(v.stride)
				copy(unsafe.Slice((*byte)(unsafe.Add(w.r.base, uintptr(v.off)+i*n)), n),
					unsafe.Slice((*byte)(unsafe.Add(old.base, uintptr(rel)+i*n)), n))
			}
		}
	}
}
