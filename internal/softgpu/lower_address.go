package softgpu

import (
	"math/bits"
	"slices"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// addresses translates what takes addresses from one state space to another, and asks where one lies.
type addresses struct{ *operands }

// windowOf is the start of a state space in the generic address space.
func windowOf(space string) (uint64, bool) {
	switch space {
	case "shared", "shared::cta", "shared::cluster":
		return sharedWindow, true
	case "local":
		return localWindow, true
	case "param", "param::entry":
		return paramWindow, true
	}
	return 0, false
}

func (ad addresses) cvta(in *isa.Inst) {
	src := ad.source(in.Args[1].X, in.T)
	base, ok := windowOf(in.Space)
	if !ok || in.T != ptx.U64 {
		ad.move(in.Args[0].X, src, in.T)
		return
	}
	if in.Has(isa.To) {
		base = -base
	}
	if src.kind != slot64 {
		src = placeAt(ad.resize(src, slot64), slot64)
	}
	d := ad.writeExact(in.Args[0].X, in.T)
	c := ad.constBits(base, slot64)
	ad.emit(inst{kind: kindVec, wide: wideD | wideA | wideB, d: d, a: src.off, b: c, c: c, vec: lanes.Op("add.u64")})
}

// isspacep asks whether a generic address lies in the window of a space. Constants lie among the module's
// variables; what is in no window is global.
func (ad addresses) isspacep(in *isa.Inst) {
	d := ad.writeExact(in.Args[0].X, ptx.Pred)
	a := ad.read(in.Args[1].X, ptx.B64)
	base, ok := windowOf(in.Space)
	if !ok {
		ad.isConst(d, a, in.Space == "const")
		return
	}
	size := uint64(sharedSize)
	switch in.Space {
	case "shared::cluster":
		size = clusterSize
	case "local":
		size = localSize
	case "param", "param::entry":
		size = paramSize
	}
	f := func(a, _, _ uint64) uint64 { return number.FromBool(a-base < size) }
	ad.emit(inst{kind: kindLaneCmp, wide: wideA | wideB, d: d, a: a, b: a, lane: f})
}

// isConst sets d where the address lies in a variable of the const space, or, if not want, in neither that nor a window
// but that of parameters (H200: they are global, too).
func (ad addresses) isConst(d, a uint32, want bool) {
	var consts []Range
	for _, g := range ad.m.globals {
		if g.Const {
			consts = append(consts, Range{Addr: g.Offset, Len: g.Size})
		}
	}
	ad.emit(inst{kind: kindExec, d: d, a: a, exec: func(w *warp, in *inst, mask uint32) {
		p, addr := w.r.p(in.d), w.r.v64(in.a)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			off := addr[i] - w.block.launch.in.base
			yes := slices.ContainsFunc(consts, func(r Range) bool { return off-r.Addr < r.Len })
			if !want {
				yes = !yes && (!isWindow(addr[i]) || addr[i]-paramWindow < paramSize)
			}
			*p &^= 1 << i
			if yes {
				*p |= 1 << i
			}
		}
	}})
}

// mapa gives the address of a shared variable in another block of the cluster.
func (ad addresses) mapa(in *isa.Inst) {
	wide := in.T == ptx.U64
	generic := in.Space == ""
	d := ad.writeExact(in.Args[0].X, in.T)
	a := ad.read(in.Args[1].X, in.T)
	rank := ad.read(in.Args[2].X, ptx.U32)
	ad.emit(inst{kind: kindExec, exec: func(w *warp, _ *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			x := w.r.get(a, i, wide)
			if generic {
				x -= sharedWindow
			}
			x &= offsetMask
			if r := w.r.v32(rank)[i]; r != w.block.rank {
				x |= uint64(r+1) << rankShift
			}
			if generic {
				x += sharedWindow
			}
			w.r.put(d, i, wide, x)
		}
	}})
}

func (ad addresses) getctarank(in *isa.Inst) {
	wide := in.T == ptx.U64
	generic := in.Space == ""
	d := ad.writeExact(in.Args[0].X, ptx.U32)
	a := ad.read(in.Args[1].X, in.T)
	ad.emit(inst{kind: kindExec, exec: func(w *warp, _ *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			x := w.r.get(a, i, wide)
			if generic && wide { // 32 bits are those within the window
				x -= sharedWindow
			}
			r := uint32(x >> rankShift)
			if r == 0 {
				r = w.block.rank + 1
			}
			w.r.v32(d)[i] = r - 1
		}
	}})
}
