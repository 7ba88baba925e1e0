package ptx

// A Pos is a place in a PTX source: byte offset from 0, line and column from 1.
type Pos struct {
	Offset int
	Line   int
	Col    int
}

// A Module is one PTX translation unit: everything after the three leading
// directives, in source order (PTX ISA 9.0, section 5.1 and chapter 11).
type Module struct {
	Pos         Pos    // of the .version directive
	File        string // name used in errors; not part of the text
	Version     Version
	Target      []string // "sm_90a", "texmode_independent", "debug", …
	AddressSize int      // 32 or 64
	Decls       []Decl
	Comments    []Comment // in source order; the printer puts them where their positions say
}

// A Comment is one comment of the source, with its slashes. Those inside a statement are printed behind it.
type Comment struct {
	Pos  Pos
	Text string
}

// A Version is the number of a .version directive.
type Version struct{ Major, Minor int }

// A Decl is one module-scope declaration: *Var, *Func, *File, *Pragma,
// *Section or *Alias.
type Decl interface{ declNode() }

// A Linkage is a linking directive before a declaration.
type Linkage uint8

// The linkages (PTX ISA, section 11.6).
const (
	LinkNone Linkage = iota
	LinkExtern
	LinkVisible
	LinkWeak
	LinkCommon
)

// A Space is a state space (PTX ISA, section 5.1). SpaceGeneric stands for no
// space named at all.
type Space uint8

// The state spaces. SpaceConst with a bank keeps the bank in Var.Bank.
const (
	SpaceGeneric Space = iota
	SpaceReg
	SpaceSreg
	SpaceConst
	SpaceGlobal
	SpaceLocal
	SpaceParam
	SpaceShared
	SpaceTex
)

// A Type is a fundamental PTX type (PTX ISA, section 5.2). Which of them an
// instruction takes is the business of the instruction table, not of this package.
type Type uint8

// The types, alternate formats and opaque types included.
const (
	TypeNone Type = iota
	S8
	S16
	S32
	S64
	U8
	U16
	U32
	U64
	F16
	F16x2
	F32
	F32x2
	F64
	B8
	B16
	B32
	B64
	B128
	BF16
	BF16x2
	TF32
	E4M3
	E5M2
	E4M3x2
	E5M2x2
	E4M3x4
	E5M2x4
	E2M1
	E2M1x2
	E2M1x4
	E2M3
	E2M3x2
	E2M3x4
	E3M2
	E3M2x2
	E3M2x4
	UE8M0
	UE8M0x2
	UE4M3
	U16x2
	S16x2
	U8x4
	S8x4
	U4
	S4
	U2
	S2
	B1
	B4x16
	B4x16P64
	B6x16P32
	B6P2x16
	Pred
	TexRef
	SamplerRef
	SurfRef
)

// A Var is a variable: at module scope, in a function, or a parameter.
// A parameterised register set, `.reg .b32 %r<8>`, has Count 8 and Name "%r".
type Var struct {
	Pos     Pos
	Link    Linkage
	Space   Space
	Bank    int // of .const[n]; 0 otherwise
	Align   int // bytes; 0 = natural alignment
	Vec     int // 2, 4 or 8 (.v2 .v4 .v8); 0 = scalar
	Type    Type
	Name    string // "" for an unnamed parameter
	Count   int    // of a parameterised set; 0 = a plain variable
	Dims    []int  // array dimensions; -1 = open ("[]")
	Init    *Init  // nil = none
	Ptr     *PtrAttr
	Attrs   []Attribute // .attribute(.managed), .attribute(.unified(…))
	Managed bool
}

// A PtrAttr is the .ptr annotation of a kernel parameter.
type PtrAttr struct {
	Space Space // what it points to; SpaceGeneric = unsaid
	Align int   // bytes; 0 = unsaid
}

// An Attribute is one entry of an .attribute directive, in source spelling.
type Attribute struct {
	Name string // with its dot
	Args []string
}

// An Init is an initializer: a list, or one value.
type Init struct {
	Pos   Pos
	Field string  // of `addr_mode_0 = wrap` in the list of a texture or sampler
	List  []*Init // non-nil for { … }, possibly empty
	Value Operand // otherwise: *Imm, *Ref, *Generic, *Mask, or an Expr folded by the parser
}

// A Func is an .entry or .func, with a body or without (a prototype).
type Func struct {
	Pos      Pos
	Link     Linkage
	Entry    bool
	Name     string
	Ret      []*Var // return parameters of a .func
	Params   []*Var
	NoReturn bool
	Attrs    []Attribute
	Perf     []Directive // .maxntid, .reqntid, .minnctapersm, .maxnreg, .reqnctapercluster, .pragma, …
	Body     *Block      // nil = declaration
	ABI      []Directive // .abi_preserve and friends
}

// A Directive is a named directive with its arguments as written.
type Directive struct {
	Pos  Pos
	Name string // with its dot
	Args []string
}

// A Block is a brace-enclosed list of statements; it opens a scope.
type Block struct {
	Pos   Pos
	Stmts []Stmt
	End   Pos
}

// A Stmt is *Inst, *Label, *Block, *VarStmt, *Loc, *Pragma, *BranchTargets,
// *CallTargets, *CallPrototype, *Section or *File.
type Stmt interface{ stmtNode() }

// A VarStmt declares variables in a function.
type VarStmt struct{ Vars []*Var }

// A Label marks the next instruction.
type Label struct {
	Pos  Pos
	Name string
}

// A Loc is a .loc directive.
type Loc struct {
	Pos             Pos
	File, Line, Col int
	FunctionName    string // of ",function_name LABEL+OFF", as written; "" = none
	InlinedAt       string
}

// A BranchTargets is `LABEL: .branchtargets A, B;`; the others likewise.
type BranchTargets struct {
	Pos    Pos
	Name   string
	Labels []string
}

// CallTargets lists the possible callees of an indirect call.
type CallTargets struct {
	Pos   Pos
	Name  string
	Funcs []string
}

// CallPrototype is the signature of an indirect call.
type CallPrototype struct {
	Pos      Pos
	Name     string
	Ret      []*Var
	Params   []*Var
	NoReturn bool
	ABI      []Directive
}

// An Inst is one instruction. Op is the first word of the opcode ("ld"), Mods
// are the dot-separated rest in source order without dots ("global", "v4",
// "f32"; "shared::cta" is one modifier).
type Inst struct {
	Pos   Pos
	Guard *Guard // nil = unconditional
	Op    string
	Mods  []string
	Args  []Operand
	// Call is set for `call` only; Args is then empty.
	Call *Call
}

// A Guard is @p or @!p.
type Guard struct {
	Reg string
	Not bool
}

// A Call holds the operands of `call (ret), callee, (params), list;`.
type Call struct {
	Ret    []Operand
	Callee Operand // *Ref: a function or a register
	Params []Operand
	Proto  string // name of the call targets or prototype; "" = none
}

// An Operand is *Ref, *Imm, *Vector, *Addr, *Neg, *Pair, *Generic, *Index, *Mask
// or *Sink.
type Operand interface{ operandNode() }

// A Ref names a register, special register ("%tid.x" is Name "%tid", Comp
// "x"), variable, label or function.
type Ref struct {
	Pos  Pos
	Name string
	Comp string // ".x" of a vector register or special register, or "b0"/"h1" of a video operand: without the dot
}

// An Imm is a constant. Integers wrap to 64 bits as the PTX ISA says
// (section 4.5); Text is the source spelling, which the printer keeps.
type Imm struct {
	Pos  Pos
	Kind ImmKind
	Bits uint64 // two's complement integer; IEEE bits of a float32 (0f…, low half) or float64 (0d…, decimal)
	Text string
}

// An ImmKind says how Imm.Bits is to be read.
type ImmKind uint8

// The constant kinds.
const (
	ImmS64 ImmKind = iota // integer that fits int64
	ImmU64                // integer with a U suffix, or above int64
	ImmF32                // 0fXXXXXXXX
	ImmF64                // 0dXXXXXXXXXXXXXXXX or decimal
)

// A Vector is {a, b, …}.
type Vector struct {
	Pos   Pos
	Elems []Operand
}

// An Addr is [base], [base+off], [imm] or a tensor address [base, {c0, c1}].
type Addr struct {
	Pos  Pos
	Base Operand // *Ref or *Imm
	Off  int64   // bytes
	// Further operands inside the brackets (*Vector of a tensor or texture address, *Ref…), nil for a plain address
	Coords  []Operand
	Unified bool // [a].unified
	Plus0   bool // an offset of 0 was written out: unoptimised code of ptxas differs
}

// An Index is arr[3], the address of an element: Index counts elements of arr,
// as a variable operand or as the address of a load or store.
type Index struct {
	Pos   Pos
	Name  string
	Index int64
}

// A Neg is -reg or !pred as an operand.
type Neg struct {
	Pos Pos
	Not bool // "!" rather than "-"
	X   Operand
}

// A Pair is a|b, the two destinations of setp, shfl, match…
type Pair struct {
	Pos  Pos
	A, B Operand
}

// A Generic is generic(sym) or sym+off, in an initializer or as an operand
// (`mov.u64 %rd1, arr+8;`). A bare sym is a *Ref.
type Generic struct {
	Pos     Pos
	Name    string
	Off     int64
	Generic bool // inside generic(…)
}

// A Mask is mask(sym) of an initializer: byte Shift/8 of the address.
type Mask struct {
	Pos  Pos
	Bits uint64
	X    *Generic
}

// A Sink is the underscore: a result that is dropped.
type Sink struct{ Pos Pos }

// A File is a .file directive.
type File struct {
	Pos   Pos
	Index int
	Name  string
	Time  string // "" = unsaid
	Size  string
}

// A Pragma is a .pragma directive, at module scope or in a body.
type Pragma struct {
	Pos     Pos
	Strings []string
}

// A Section is a .section with its raw lines (DWARF), or an @@DWARF line.
type Section struct {
	Pos   Pos
	Name  string
	Lines []string
}

// An Alias is `.alias A, B;`.
type Alias struct {
	Pos           Pos
	Name, Aliasee string
}

func (*Var) declNode()     {}
func (*Func) declNode()    {}
func (*File) declNode()    {}
func (*Pragma) declNode()  {}
func (*Section) declNode() {}
func (*Alias) declNode()   {}

func (*Inst) stmtNode()          {}
func (*Label) stmtNode()         {}
func (*Block) stmtNode()         {}
func (*VarStmt) stmtNode()       {}
func (*Loc) stmtNode()           {}
func (*Pragma) stmtNode()        {}
func (*BranchTargets) stmtNode() {}
func (*CallTargets) stmtNode()   {}
func (*CallPrototype) stmtNode() {}
func (*Section) stmtNode()       {}
func (*File) stmtNode()          {}

func (*Ref) operandNode()     {}
func (*Imm) operandNode()     {}
func (*Vector) operandNode()  {}
func (*Addr) operandNode()    {}
func (*Neg) operandNode()     {}
func (*Pair) operandNode()    {}
func (*Generic) operandNode() {}
func (*Index) operandNode()   {}
func (*Mask) operandNode()    {}
func (*Sink) operandNode()    {}
