package ir

// A ValID names a value: before the ssa pass a register, which may be written
// many times, after it a value with one definition. It indexes Func.Vals.
type ValID int32

// None is no value: a result that is dropped.
const None ValID = -1

// A Kind is a number format.
type Kind uint8

// The kinds. Packed stands for every format that is no plain number and has no kind of its own.
const (
	NoKind Kind = iota
	Pred
	Bits
	Signed
	Unsigned
	Float
	Packed
	Brain     // bfloat16
	HalfPair  // two floats of 16 bits
	BrainPair // two bfloat16
)

// A Type is a number format with its width in bits. The zero Type is unknown.
type Type struct {
	Kind  Kind
	Width uint16
}

// Integer reports whether t holds an integer, or bits that may be one.
func (t Type) Integer() bool { return t.Kind == Bits || t.Kind == Signed || t.Kind == Unsigned }

// A Space is a memory space.
type Space uint8

// The spaces. Shared is the shared memory of the block itself, Cluster that of any block
// of its cluster.
const (
	Generic Space = iota
	Global
	Shared
	Cluster
	Local
	Const
	Param
)

// An Op says what an instruction computes. Modifiers that change it (saturation, another size of the result) are not
// among those below: such an instruction is Compute.
type Op uint8

// The operations. Argument order is that of the comment. Of those with a carry, that is the last argument and the last
// result.
const (
	Other        Op = iota // anything that touches more than its registers, or is not known
	Compute                // a function of its arguments that analyses do not look into
	Phi                    // one argument for each predecessor
	Mov                    // a
	Pack                   // a, b, … from low to high
	Unpack                 // a
	Add                    // a + b
	Sub                    // a - b
	Mul                    // a * b, low half
	MulWide                // a * b, twice as wide
	Mad                    // a * b + c, low half
	MadWide                // a * b + c, c and the result twice as wide
	Div                    // a / b
	Rem                    // a % b
	Min                    // a, b
	Max                    // a, b
	Neg                    // -a
	Abs                    // |a|
	And                    // a & b
	Or                     // a | b
	Xor                    // a ^ b
	Not                    // ^a
	Shl                    // a << b
	Shr                    // a >> b
	Convert                // a, from Type2 to Type
	Compare                // a Rel b; a second result is the opposite
	CompareWith            // (a Rel b) Logic c; a second result is (not a Rel b) Logic c
	Select                 // c ? a : b
	MulHigh                // a * b, high half
	FMA                    // a * b + c, rounded once
	AddCarry               // a + b, or a + b + carry
	SubBorrow              // a - b, or a - b - carry
	PopCount               // how many bits of a are set
	LeadingZeros           // how many bits of a are 0 above the highest 1
	Reverse                // the bits of a in the other order
	Insert                 // b with the low d bits of a from bit c on
	Extract                // c bits of a from bit b on
	Logic3                 // of each bit of a, b and c what the table d says
	FunnelLeft             // the upper half of b:a << c
	FunnelRight            // the lower half of b:a >> c
	Permute                // bytes of b:a, as c says
	ToGeneric              // a, an address of Inst.Space, as a generic one
	FromGeneric            // a, a generic address, as one of Inst.Space
	Load                   // Mem[0]
	Store                  // values; Mem[0]
	Atomic                 // values; Mem[0]
	Copy                   // Mem[0] is written, Mem[1] read
	Prefetch               // nothing that a program can see
	Fence                  // orders memory
	Barrier                // waits for threads of the block
	Collective             // exchanges values in a warp
	Call                   // callee, then arguments
	Branch                 // to Succs[0]; guarded, else to Succs[1]
	Switch                 // to Succs[a]
	Return                 // from the function; guarded, else to Succs[0]
	Exit                   // ends the thread; guarded, else to Succs[0]
	Trap                   // ends the launch; guarded, else to Succs[0]
	numOps
)

// Ends reports whether op is the last instruction of its block.
func (op Op) Ends() bool { return op >= Branch && op < numOps }

// Leaves reports whether op ends the function.
func (op Op) Leaves() bool { return op == Return || op == Exit || op == Trap }

// A Rel is a relation between two numbers. Inst.Variant says whether it also holds if one of them is no number.
type Rel uint8

// The relations.
const (
	NoRel Rel = iota
	EQ
	NE
	LT
	LE
	GT
	GE
)

// Opposite is the relation that holds when r does not.
func (r Rel) Opposite() Rel { return [...]Rel{NoRel, NE, EQ, GE, GT, LE, LT}[r] }

// Swapped is the relation between b and a that r is between a and b.
func (r Rel) Swapped() Rel { return [...]Rel{NoRel, EQ, NE, GT, GE, LT, LE}[r] }

// An OperandKind says what an operand is.
type OperandKind uint8

// The kinds of operands.
const (
	NoOperand OperandKind = iota
	Value                 // Val
	Constant              // Bits
	Special               // Reg
	Symbol                // Name, the address of a variable or a function, plus Bits
	Undef                 // a register that nothing has written
)

// A Mod changes an operand before it is used.
type Mod uint8

// The modifiers of operands.
const (
	Negated    Mod = 1 << iota // arithmetic
	Complement                 // of a predicate
)

// An Operand is what an instruction reads.
type Operand struct {
	Kind OperandKind
	Mod  Mod
	Val  ValID
	Bits uint64 // of a Constant, two's complement or IEEE; of a Symbol, the offset
	Name string // of a Symbol
	Reg  *Register
	Part string // a part of the register, of instructions that read one: "b0", "h1"
}

// Of is the operand that reads v.
func Of(v ValID) Operand { return Operand{Kind: Value, Val: v} }

// Int is a constant operand.
func Int(x int64) Operand { return Operand{Kind: Constant, Bits: uint64(x)} }

// An Access is memory that an instruction reads or writes.
type Access struct {
	Read, Write bool
	Space       Space
	Base        Operand
	Off         int64
	Bytes       int   // at most; 0 = not known
	Later       bool  // some time after the instruction
	Partly      bool  // it may be of fewer bytes, or of none
	Tile        *Tile // by the threads of a warp together; Bytes is 0
}

// A Tile is Rows pieces of Bytes each, which the threads of a warp access together. The distance from one to the next
// is Inst.Args[Stride] times Elem bytes.
type Tile struct{ Rows, Bytes, Elem, Stride int }

// An Effect says what an instruction does besides its results and accesses.
type Effect uint8

// The effects.
const (
	Orders    Effect = 1 << iota // orders memory, or threads
	AnyRead                      // reads memory that no Access describes
	AnyWrite                     // writes memory that no Access describes
	Fixed                        // what it reads cannot change while the kernel runs
	WarpWide                     // all threads of a warp take part and have the same result
	BlockWide                    // all threads of a block take part and have the same result
)

// An Inst is one instruction.
type Inst struct {
	Op      Op
	Name    string  // the front end's spelling, for people
	Guard   Operand // a predicate; NoOperand = always
	Defs    []ValID // results; None where one is dropped
	Else    []Operand
	Args    []Operand
	Mem     []Access
	Type    Type
	Type2   Type // of the argument of Convert
	Rel     Rel
	Logic   Logic // of CompareWith
	Round   Rounding
	Variant Variant
	Space   Space  // of ToGeneric and FromGeneric
	Update  Update // of Atomic
	Order   Order  // of accesses and fences
	Scope   Scope
	Barrier Meeting // of Barrier
	Reach   Reach
	Effect  Effect
	Pos     int // place in the front end's source: a line, an address; 0 = none

	id int32 // scratch of a pass
}

// Guarded reports whether in may do nothing.
func (in *Inst) Guarded() bool { return in.Guard.Kind != NoOperand }

// Uses calls do for every operand that in reads. Else holds, for a guarded
// instruction in SSA form, the values that the results have when the guard is false.
func (in *Inst) Uses(do func(*Operand)) {
	if in.Guard.Kind != NoOperand {
		do(&in.Guard)
	}
	for i := range in.Args {
		do(&in.Args[i])
	}
	for i := range in.Else {
		do(&in.Else[i])
	}
	for i := range in.Mem {
		do(&in.Mem[i].Base)
	}
}

// An Edge is one end of an arc between blocks: the block at the other end, and the index
// of the arc in the list there.
type Edge struct {
	Block *Block
	Index int
}

// A Block is a basic block. Only its last instruction branches; one without a
// branch at its end goes to Succs[0].
type Block struct {
	Index int // in Func.Blocks
	Insts []*Inst
	Succs []Edge
	Preds []Edge
}

// End is the instruction that decides where b goes on; nil if there is none.
func (b *Block) End() *Inst {
	if n := len(b.Insts); n > 0 && b.Insts[n-1].Op.Ends() {
		return b.Insts[n-1]
	}
	return nil
}

// Phis are the phi instructions at the beginning of b.
func (b *Block) Phis() []*Inst {
	n := 0
	for n < len(b.Insts) && b.Insts[n].Op == Phi {
		n++
	}
	return b.Insts[:n]
}

// A Val is a register or a value.
type Val struct {
	Name  string // of the register it comes from
	Type  Type
	Def   *Inst  // in SSA form
	Block *Block // of Def
}

// A Var is a parameter or a variable with an address that is known in a function.
type Var struct {
	Name  string
	Space Space
	Off   int // of a parameter, in the parameter buffer
	Size  int // bytes; 0 = open
	Align int
	Param bool // of the function itself, not of a call

	Result bool // of the function itself: what it returns
}

// A Func is one kernel or function.
type Func struct {
	Name   string
	Kernel bool
	SSA    bool
	Pos    int    // place in the front end's source
	Err    error  // why the front end could not make it; it has no blocks then
	Limits Limits // of a kernel's launches
	Vars   []Var
	Vals   []Val
	Blocks []*Block // the first is the entry

	Dom     *Tree // set by the pass dominators
	PostDom *Tree // by postdominators; the node after the last block is the end of the function
	Loops   *Nest // by loops
	Live    *Live // by liveness
	Uniform *Uniformity
}

// Limits are what a kernel says of its launches.
type Limits struct {
	MaxThread [3]int64  // the largest index of a thread in its block, in each dimension
	Cluster   [3]uint32 // blocks; 0 = not said
}

// A Module is the functions that may call each other, and what they know together.
type Module struct {
	Funcs []*Func         // with their code, in the order of the source
	Vars  map[string]bool // variables that all functions know
	// Shadowed has the names in Vars that a function has for another variable, too.
	Shadowed map[string]bool
	// NoReturn has functions that never come back to where they are called.
	NoReturn map[string]bool
}

// Connect adds an arc.
func Connect(from, to *Block) {
	from.Succs = append(from.Succs, Edge{to, len(to.Preds)})
	to.Preds = append(to.Preds, Edge{from, len(from.Succs) - 1})
}
