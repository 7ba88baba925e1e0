package softgpu

import (
	"fmt"
	"sync"
	"time"

	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// A slotKind is the shape of a place in a register file.
type slotKind uint8

const (
	slotPred slotKind = iota
	slot32
	slot64
	slot128
	slotParam
)

// A vector is a place in the register file.
type vector struct {
	off    uint32
	kind   slotKind
	stride uint32 // of slotParam
}

// A function is a translated PTX function.
type function struct {
	name       string
	src        *ptx.Func
	entry      int32
	params     []paramArea
	rets       []paramArea
	regLo      uint32 // its part of the register file
	regHi      uint32
	vectors    []vector
	localBytes uint32
	localBase  uint32 // of a function that is not recursive
	recursive  bool
	native     func(w *warp, in *inst, site *callSite, mask uint32)
}

// A constFill is a vector that is set before the kernel starts: a constant,
// the address of a symbol, a parameter, a special register.
type constFill struct {
	off   uint32
	kind  slotKind
	value func(l *launch, w *warp, lane int) uint64
}

func (c *constFill) fill(l *launch, w *warp) {
	switch c.kind {
	case slotPred:
		var m uint32
		for i := range 32 {
			m |= uint32(c.value(l, w, i)&1) << i
		}
		*w.r.p(c.off) = m
	case slot64, slot128:
		v := w.r.v64(c.off)
		for i := range v {
			v[i] = c.value(l, w, i)
		}
	default:
		v := w.r.v32(c.off)
		for i := range v {
			v[i] = uint32(c.value(l, w, i))
		}
	}
}

// A program is a kernel with all functions it can reach, as one array.
type program struct {
	name         string
	file         string
	pos          ptx.Pos // of the kernel
	mod          *Module
	code         []inst
	entry        int32
	regBytes     uint32
	numRegs      int
	consts       []*constFill // once for a warp
	blockConsts  []*constFill // once for a block
	params       []Param
	paramBytes   uint32
	sharedStatic uint32
	dynAlign     uint32
	localStatic  uint32
	recursive    bool
	alloca       bool // has a stack pointer
	maxThreads   int
	cluster      [3]uint32 // .reqnctapercluster; zero = none
	maxCluster   int       // .maxclusterrank; 0 = none

	explicitCluster bool
	funcs           map[string]*function

	touches      []touch
	observeOnce  sync.Once
	observedCode []inst
}

// functionAt finds the function with a code address.
func (p *program) functionAt(addr uint64) *function {
	i := addr - codeWindow
	if i%codeStep != 0 || i/codeStep >= uint64(len(p.mod.order)) {
		return nil
	}
	return p.funcs[p.mod.order[i/codeStep]]
}

func (p *program) alloc(k slotKind) uint32 {
	var size, align uint32
	switch k {
	case slotPred:
		size, align = 8, 8
	case slot32:
		size, align = 128, 64
	case slot64:
		size, align = 256, 64
	default:
		size, align = 512, 64
	}
	off := alignUp(p.regBytes, align)
	p.regBytes = off + size
	return off
}

// maxRegBytes bounds the register file of a warp.
const maxRegBytes = 16 << 20

// A special register: its value in a lane, and when it is known.
type sreg struct {
	wide     bool
	perBlock bool
	dynamic  bool // changes while the kernel runs
	value    func(l *launch, w *warp, lane int) uint64
}

func specialRegister(name, comp string) (sreg, error) {
	axis := map[string]int{"x": 0, "y": 1, "z": 2, "w": 3}
	dim := func(f func(l *launch, w *warp, lane, k int) uint32, perBlock bool) (sreg, error) {
		k, ok := axis[comp]
		if !ok {
			return sreg{}, fmt.Errorf("%s needs a component", name)
		}
		return sreg{perBlock: perBlock, value: func(l *launch, w *warp, lane int) uint64 {
			if k == 3 {
				return 0
			}
			return uint64(f(l, w, lane, k))
		}}, nil
	}
	plain := func(f func(l *launch, w *warp, lane int) uint64) (sreg, error) { return sreg{value: f}, nil }
	constant := func(x uint64) (sreg, error) {
		return sreg{value: func(*launch, *warp, int) uint64 { return x }}, nil
	}
	switch name {
	case "%tid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 {
			t := uint32(w.id*32 + lane)
			b := l.cfg.Block
			return [3]uint32{t % b[0], t / b[0] % b[1], t / b[0] / b[1]}[k]
		}, false)
	case "%ntid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return l.cfg.Block[k] }, false)
	case "%ctaid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return w.block.idx[k] }, true)
	case "%nctaid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return l.cfg.Grid[k] }, false)
	case "%clusterid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return w.block.idx[k] / l.cluster[k] }, true)
	case "%nclusterid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return l.cfg.Grid[k] / l.cluster[k] }, false)
	case "%cluster_ctaid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return w.block.idx[k] % l.cluster[k] }, true)
	case "%cluster_nctaid":
		return dim(func(l *launch, w *warp, lane, k int) uint32 { return l.cluster[k] }, false)
	case "%cluster_ctarank":
		return sreg{perBlock: true,
			value: func(l *launch, w *warp, lane int) uint64 { return uint64(w.block.rank) }}, nil
	case "%cluster_nctarank":
		return plain(func(l *launch, w *warp, lane int) uint64 { return uint64(l.perCluster) })
	case "%is_explicit_cluster":
		return plain(func(l *launch, w *warp, lane int) uint64 { return number.FromBool(l.explicitCluster) })
	case "%laneid":
		return plain(func(l *launch, w *warp, lane int) uint64 { return uint64(lane) })
	case "%warpid":
		return plain(func(l *launch, w *warp, lane int) uint64 { return uint64(w.id) })
	case "%nwarpid":
		return constant(MaxBlockThreads / 32)
	case "%smid":
		return sreg{perBlock: true,
			value: func(l *launch, w *warp, lane int) uint64 { return w.block.number % numSMs }}, nil
	case "%nsmid":
		return constant(numSMs)
	case "%gridid":
		return sreg{wide: true, value: func(l *launch, w *warp, lane int) uint64 { return l.gridID }}, nil
	case "%lanemask_eq":
		return plain(func(l *launch, w *warp, lane int) uint64 { return 1 << lane })
	case "%lanemask_lt":
		return plain(func(l *launch, w *warp, lane int) uint64 { return 1<<lane - 1 })
	case "%lanemask_le":
		return plain(func(l *launch, w *warp, lane int) uint64 { return 2<<lane - 1 })
	case "%lanemask_gt":
		return plain(func(l *launch, w *warp, lane int) uint64 {
			return uint64(uint32(0xffffffff) &^ uint32(2<<lane-1))
		})
	case "%lanemask_ge":
		return plain(func(l *launch, w *warp, lane int) uint64 {
			return uint64(uint32(0xffffffff) &^ uint32(1<<lane-1))
		})
	case "%dynamic_smem_size":
		return plain(func(l *launch, w *warp, lane int) uint64 { return uint64(l.cfg.SharedDynamic) })
	case "%total_smem_size", "%aggr_smem_size":
		return plain(func(l *launch, w *warp, lane int) uint64 { return l.sharedBytes })
	case "%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap":
		return constant(0)
	case "%current_graph_exec":
		return sreg{wide: true, value: func(*launch, *warp, int) uint64 { return 0 }}, nil
	case "%clock":
		return sreg{dynamic: true,
			value: func(l *launch, w *warp, lane int) uint64 { return uint64(uint32(w.clock())) }}, nil
	case "%clock_hi":
		return sreg{dynamic: true, value: func(l *launch, w *warp, lane int) uint64 { return w.clock() >> 32 }}, nil
	case "%clock64":
		return sreg{dynamic: true, wide: true,
			value: func(l *launch, w *warp, lane int) uint64 { return w.clock() }}, nil
	case "%globaltimer":
		return sreg{dynamic: true, wide: true,
			value: func(l *launch, w *warp, lane int) uint64 { return l.timer() }}, nil
	case "%globaltimer_lo":
		return sreg{dynamic: true,
			value: func(l *launch, w *warp, lane int) uint64 { return uint64(uint32(l.timer())) }}, nil
	case "%globaltimer_hi":
		return sreg{dynamic: true, value: func(l *launch, w *warp, lane int) uint64 { return l.timer() >> 32 }}, nil
	}
	if len(name) > 7 && name[:7] == "%envreg" {
		return constant(0)
	}
	if len(name) > 3 && name[:3] == "%pm" {
		return sreg{wide: len(name) > 4, value: func(*launch, *warp, int) uint64 { return 0 }}, nil
	}
	return sreg{}, fmt.Errorf("%s is not a register that is declared or known", name)
}

// numSMs is what %nsmid says: multiprocessors of an H200.
const numSMs = 132

// clock counts warp instructions of the block, in deterministic mode, else nanoseconds:
// it never goes back, and differs over work done.
func (w *warp) clock() uint64 {
	w.tick++
	l := w.block.launch
	if l.cfg.Deterministic {
		return l.warpInsts.Load() + w.block.warpInsts + w.tick
	}
	return uint64(time.Since(l.start).Nanoseconds()) + w.tick
}

func (l *launch) timer() uint64 {
	if l.cfg.Deterministic {
		return l.warpInsts.Load()
	}
	return uint64(time.Now().UnixNano())
}
