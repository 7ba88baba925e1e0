package softgpu

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"holdfast/internal/softgpu/lanes"
)

// A callSite is the operand of a call.
type callSite struct {
	callee *function // nil = indirect: address in inst.a
	in     []paramOperand
	out    []paramOperand
}

// A paramOperand is an argument or a result: .param memory of the caller, a register, or the parts of
// what is more than one register, or none of 32 or 64 bits.
type paramOperand struct {
	isReg bool
	reg   uint32
	wide  bool
	area  paramArea
	parts []paramPart
}

// A paramPart is a register that stands for the next size bytes of a parameter. A predicate is one byte, 0 or 1.
type paramPart struct {
	reg  uint32
	kind slotKind
	size uint32
}

// misfit says which operand in parts is not of the size that f's parameter has.
func (s *callSite) misfit(f *function) string {
	differs := func(ops []paramOperand, areas []paramArea) bool {
		for k := range ops {
			if ops[k].parts != nil && ops[k].bytes() != areas[k].size {
				return true
			}
		}
		return false
	}
	switch {
	case differs(s.in, f.params):
		return f.name + " has a parameter of another size"
	case differs(s.out, f.rets):
		return f.name + " has a result of another size"
	}
	return ""
}

// bytes is the size of an operand in parts.
func (op *paramOperand) bytes() uint32 {
	var n uint32
	for _, p := range op.parts {
		n += p.size
	}
	return n
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
	if why := site.misfit(callee); why != "" {
		w.fault(FaultCall, in, lane, addr, why)
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
	for k := range site.in {
		op, to := &site.in[k], f.params[k]
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

// operandBytes is the memory of lane i of an argument; of one in parts, it is a copy.
func (w *warp) operandBytes(op *paramOperand, i int) []byte {
	if op.parts != nil {
		return w.gather(op.parts, i)
	}
	if !op.isReg {
		return unsafe.Slice((*byte)(w.paramLane(op.area, i)), op.area.size)
	}
	if op.wide {
		return unsafe.Slice((*byte)(unsafe.Pointer(&w.r.v64(op.reg)[i])), 8)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w.r.v32(op.reg)[i])), 4)
}

func (w *warp) gather(parts []paramPart, lane int) []byte {
	b := make([]byte, 0, 64)
	for _, p := range parts {
		var x uint64
		if p.kind == slotPred {
			x = uint64(*w.r.p(p.reg) >> lane & 1)
		} else {
			x = w.r.get(p.reg, lane, p.kind == slot64)
		}
		b = append(b, binary.LittleEndian.AppendUint64(nil, x)[:p.size]...)
	}
	return b
}

// setOperand writes a result.
func (w *warp) setOperand(op *paramOperand, lane int, b []byte) {
	if op.parts == nil {
		copy(w.operandBytes(op, lane), b)
		return
	}
	for _, p := range op.parts {
		var x [8]byte
		b = b[copy(x[:p.size], b):]
		if p.kind == slotPred {
			w.r.putPred(p.reg, lane, x[0] != 0)
		} else {
			w.r.put(p.reg, lane, p.kind == slot64, binary.LittleEndian.Uint64(x[:]))
		}
	}
}

func (w *warp) takeArgs(ops []paramOperand, mask uint32) [][32][]byte {
	args := make([][32][]byte, len(ops))
	for k := range ops {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			args[k][i] = append([]byte(nil), w.operandBytes(&ops[k], i)...)
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
	for k := range fr.site.out {
		op, from := &fr.site.out[k], f.rets[k]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			if results != nil {
				w.setOperand(op, i, results[k][i])
			} else {
				w.setOperand(op, i, unsafe.Slice((*byte)(w.paramLane(from, i)), from.size))
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
			lanes.Blend32(unsafe.Add(w.r.base, v.off), unsafe.Add(old.base, rel), mask)
		case slot64:
			lanes.Blend64(unsafe.Add(w.r.base, v.off), unsafe.Add(old.base, rel), mask)
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
