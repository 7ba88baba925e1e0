package softgpu

import (
	"fmt"
	"math/bits"
	"strings"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// A FaultKind says what went wrong on the device.
type FaultKind uint8

// The kinds of faults.
const (
	FaultUnmapped    FaultKind = iota + 1 // no memory at the address, or not for writing
	FaultMisaligned                       // address not a multiple of the access size
	FaultTrap                             // trap
	FaultAssert                           // __assertfail
	FaultBarrier                          // misuse of barriers, or every thread waits
	FaultStack                            // call depth or local memory exhausted
	FaultLimit                            // MaxInstructions
	FaultCancelled                        // Cancel was closed
	FaultUnsupported                      // an instruction that is not implemented
	FaultCall                             // indirect call of something that is no function
	FaultInternal                         // a defect of the executor
)

func (k FaultKind) String() string {
	switch k {
	case FaultUnmapped:
		return "illegal address"
	case FaultMisaligned:
		return "misaligned address"
	case FaultTrap:
		return "trap"
	case FaultAssert:
		return "assertion failed"
	case FaultBarrier:
		return "barrier misuse"
	case FaultStack:
		return "stack overflow"
	case FaultLimit:
		return "instruction limit reached"
	case FaultCancelled:
		return "cancelled"
	case FaultUnsupported:
		return "not supported"
	case FaultCall:
		return "bad function address"
	case FaultInternal:
		return "internal error"
	}
	return "fault"
}

// A Fault ends a launch. The place is that of the instruction to blame; of a launch that was
// stopped, where one of its threads was, or its kernel where that is not known.
type Fault struct {
	Kind   FaultKind
	Kernel string
	Inst   string // as in the source; "" = none
	File   string
	Pos    ptx.Pos
	Block  [3]uint32 // of a launch that had begun
	Thread [3]uint32
	Addr   uint64 // of memory faults
	Detail string

	began bool // a block was running
}

func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kernel %s: %s", f.Kernel, f.Kind)
	if f.Kind == FaultUnmapped || f.Kind == FaultMisaligned || f.Kind == FaultCall {
		fmt.Fprintf(&b, " %#x", f.Addr)
	}
	if f.Detail != "" {
		fmt.Fprintf(&b, ": %s", f.Detail)
	}
	if f.File != "" {
		fmt.Fprintf(&b, ": %s:%d:%d", f.File, f.Pos.Line, f.Pos.Col)
	}
	if f.Inst != "" {
		fmt.Fprintf(&b, ": %s", f.Inst)
	}
	if f.began {
		fmt.Fprintf(&b, ": block (%d,%d,%d) thread (%d,%d,%d)",
			f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2])
	}
	return b.String()
}

// fault ends the launch: the worker recovers the panic.
func (w *warp) fault(k FaultKind, in *inst, lane int, addr uint64, detail string) {
	f := &Fault{Kind: k, Kernel: w.block.launch.prog.name, Block: w.block.idx, Addr: addr, Detail: detail}
	w.place(f, in, lane)
	panic(f)
}

// place names an instruction and a lane in a fault.
func (w *warp) place(f *Fault, in *inst, lane int) {
	p := w.block.launch.prog
	f.began = true
	dim := w.block.launch.cfg.Block
	t := uint32(w.id*32 + lane)
	f.Thread = [3]uint32{t % dim[0], t / dim[0] % dim[1], t / dim[0] / dim[1]}
	f.File, f.Pos = p.file, p.pos
	if in != nil && in.src != nil {
		f.Inst, f.Pos = instText(in.src), in.src.Src.Pos
	}
}

// locate is place for the instruction at which w is, or its kernel if it has ended.
func (w *warp) locate(f *Fault) {
	if len(w.groups) == 0 {
		w.place(f, nil, 0)
		return
	}
	g := &w.groups[min(w.cur, len(w.groups)-1)]
	code := w.block.launch.code
	// Instructions that the translation adds have no place of their own.
	pc := min(int(g.pc), len(code)-1)
	for pc > 0 && code[pc].src == nil {
		pc--
	}
	w.place(f, &code[pc], bits.TrailingZeros32(g.mask)&31)
}

func instText(in *isa.Inst) string {
	var b strings.Builder
	if g := in.Src.Guard; g != nil {
		b.WriteString("@")
		if g.Not {
			b.WriteString("!")
		}
		b.WriteString(g.Reg + " ")
	}
	b.WriteString(isa.Text(in.Src))
	for i, x := range in.Src.Args {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + operandText(x))
	}
	if c := in.Src.Call; c != nil {
		b.WriteString(" " + operandText(c.Callee))
	}
	return b.String()
}

func operandText(x ptx.Operand) string {
	switch x := x.(type) {
	case *ptx.Ref:
		if x.Comp != "" {
			return x.Name + "." + x.Comp
		}
		return x.Name
	case *ptx.Imm:
		return x.Text
	case *ptx.Vector:
		var el []string
		for _, e := range x.Elems {
			el = append(el, operandText(e))
		}
		return "{" + strings.Join(el, ", ") + "}"
	case *ptx.Addr:
		if x.Off != 0 {
			return fmt.Sprintf("[%s%+d]", operandText(x.Base), x.Off)
		}
		return "[" + operandText(x.Base) + "]"
	case *ptx.Neg:
		if x.Not {
			return "!" + operandText(x.X)
		}
		return "-" + operandText(x.X)
	case *ptx.Pair:
		return operandText(x.A) + "|" + operandText(x.B)
	case *ptx.Sink:
		return "_"
	}
	return "?"
}
