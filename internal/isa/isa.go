package isa

import (
	"strings"

	"holdfast/ptx"
)

// A Class groups instructions by what they do to the world.
type Class uint8

// The classes.
const (
	Arith      Class = iota // registers to registers, any number format
	Compare                 // writes predicates or masks
	Convert                 // cvt, cvt.pack
	Move                    // mov, selp, cvta, …
	Load                    // reads memory
	Store                   // writes memory
	Atomic                  // reads and writes memory in one step
	Prefetch                // no visible effect
	Fence                   // orders memory
	Barrier                 // waits for other threads of the block
	Collective              // exchanges values in a warp
	Control                 // changes the program counter
	Special                 // clock, sleep, debugger…
	Async                   // copies that complete later
	Tensor                  // matrix instructions
	Texture                 // reads textures and surfaces
	Surface                 // writes surfaces
)

// An Effect says what an instruction touches besides its registers.
type Effect uint8

// The effects.
const (
	ReadsMemory Effect = 1 << iota
	WritesMemory
	Orders // memory order or thread synchronisation
	Jumps  // may not continue with the next instruction
)

// Effects derives the effects of a class.
func (c Class) Effects() Effect {
	switch c {
	case Load, Texture:
		return ReadsMemory
	case Store:
		return WritesMemory
	case Surface:
		return ReadsMemory | WritesMemory
	case Atomic, Async, Tensor:
		return ReadsMemory | WritesMemory | Orders
	case Fence, Barrier, Collective:
		return Orders
	case Control:
		return Jumps
	}
	return 0
}

// A Flag is a modifier that is present or absent.
type Flag uint32

// The flags. The names are those of the modifiers.
const (
	Ftz Flag = 1 << iota
	Sat
	Satfinite
	Approx
	Full
	CC
	Abs
	NaN
	XorSign
	Relu
	Uni
	Sync
	Aligned
	To
	Nc
	Unified
	Noftz
	OOB
	Scaled
	Noinc
	Trans
	Multicast // multicast::cluster
	ReadOnly  // read: only the sources of bulk copies must be done
)

// A Role says what an operand is for.
type Role uint8

// The roles.
const (
	Dst     Role = iota // register written; may be a vector or a pair d|p
	Src                 // register, constant or symbol read; may be a vector
	Mem                 // address in brackets
	Target              // label
	LitList             // name of a branch target list
	InOut               // register read and written: accumulators of wgmma
)

// A TypeRef says where the type of an operand comes from.
type TypeRef uint8

// The sources of an operand's type.
const (
	FromT TypeRef = iota
	FromU
	FromV
	Fixed
	TwiceT // the first type, twice as wide
)

// An ArgSpec describes one operand of a form.
type ArgSpec struct {
	Role     Role
	From     TypeRef
	Type     ptx.Type // when From is Fixed
	Optional bool
}

// A Form is one line of the table.
type Form struct {
	Op     string
	Class  Class
	Line   string // as in the table
	Args   []ArgSpec
	slots  []slot
	minArg int

	meaning *meaning
}

type slot struct {
	name     string // "" = a flag that stands for itself
	alts     []string
	optional bool
}

// An Arg is an operand with its type.
type Arg struct {
	Spec *ArgSpec
	Type ptx.Type
	X    ptx.Operand
}

// An Inst is a decoded instruction. Empty strings mean that the modifier is absent.
type Inst struct {
	Src   *ptx.Inst
	Form  *Form
	Op    string
	Class Class
	T     ptx.Type // first type: of the result, or the only one
	U     ptx.Type // second type: of the source (cvt, set, slct…)
	V     ptx.Type // third type
	W     ptx.Type // fourth type: of mma, t is D, u is A, v is B, w is C
	Flags Flag
	Rnd   string // rn rz rm rp rna rs rni rzi rmi rpi
	Cmp   string // eq ne lt … num nan
	Bool  string // and or xor
	Fn    string // operation of atom, red, vote, redux, barrier.red
	Mode  string // lo hi wide; l r; up down bfly idx; wrap clamp …
	Mode2 string // second mode: wrap clamp shiftamt
	Space string // as written: "global", "shared::cta", … "" = generic
	Vec   int    // 1, 2, 4 or 8
	Sem   string // weak volatile relaxed acquire release acq_rel sc
	Scope string // cta cluster gpu sys
	Shape string // m16n8k16, m8n8, 16x256b…
	Num   string // x1 x2 x4; 1d … 5d
	LA    string // layout of the first matrix, row or col
	LB    string // of the second
	To    string // destination space of a bulk copy, "" = there is none
	Args  []Arg
}

// Has reports whether all of flags are set.
func (in *Inst) Has(f Flag) bool { return in.Flags&f == f }

// Text is the opcode with its modifiers, as written.
func Text(in *ptx.Inst) string {
	if len(in.Mods) == 0 {
		return in.Op
	}
	return in.Op + "." + strings.Join(in.Mods, ".")
}

// Bits is the width of one value of type t, 1 for a predicate, 0 for opaque
// types and none.
func Bits(t ptx.Type) int {
	switch t {
	case ptx.Pred, ptx.B1:
		return 1
	case ptx.U2, ptx.S2:
		return 2
	case ptx.U4, ptx.S4:
		return 4
	case ptx.S8, ptx.U8, ptx.B8, ptx.E4M3, ptx.E5M2, ptx.E2M1, ptx.E2M3, ptx.E3M2, ptx.UE8M0, ptx.UE4M3, ptx.E2M1x2:
		return 8
	case ptx.S16, ptx.U16, ptx.B16, ptx.F16, ptx.BF16, ptx.E4M3x2, ptx.E5M2x2, ptx.E2M3x2, ptx.E3M2x2,
		ptx.UE8M0x2, ptx.E2M1x4:
		return 16
	case ptx.S32, ptx.U32, ptx.B32, ptx.F32, ptx.F16x2, ptx.BF16x2, ptx.TF32, ptx.U16x2, ptx.S16x2, ptx.U8x4, ptx.S8x4,
		ptx.E4M3x4, ptx.E5M2x4, ptx.E2M3x4, ptx.E3M2x4:
		return 32
	case ptx.S64, ptx.U64, ptx.B64, ptx.F64, ptx.F32x2, ptx.TexRef, ptx.SamplerRef, ptx.SurfRef:
		return 64
	case ptx.B128:
		return 128
	}
	return 0
}

// Signed reports whether t is a signed integer type.
func Signed(t ptx.Type) bool {
	switch t {
	case ptx.S2, ptx.S4, ptx.S8, ptx.S16, ptx.S32, ptx.S64, ptx.S16x2, ptx.S8x4:
		return true
	}
	return false
}

// Float reports whether t is a scalar or packed floating-point type.
func Float(t ptx.Type) bool {
	switch t {
	case ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F32x2, ptx.F64, ptx.TF32:
		return true
	}
	return false
}
