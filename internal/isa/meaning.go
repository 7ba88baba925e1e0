package isa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"holdfast/ptx"
)

// meanings says what instructions do, beyond what their class says (Class.Effects). One line is one opcode, or with
// a * at its end a family of them:
//
//	opcode | operation | memory | more
//
// An operation is one of operationNames; "hi:mulhigh" is that only if the mode is hi; "-" is none that has a name.
//
// Memory has one word for each operand in brackets, in their order: "rw:shared*8".
//
//   - r is read, w written, n neither;
//   - the space: ss is that of the instruction's modifier, to the destination's; "" is generic. Where neither is
//     written it is
//     generic;
//   - the bytes: t is those of a value of the first type, times the vector; row the 16 of a matrix row; tile a matrix
//     in rows;
//     #0 the constant in the first operand that is read, if it is one; a number; without any they are not known;
//   - ! if the access may happen some time after the instruction; ? if a second operand that is read may say that it
//     is of fewer
//     bytes.
//
// More is words:
//
//   - plain: nothing but its registers and memory operands, whatever its class says; keeps: no memory is read or
//     written;
//   - inside: none of its forms touches memory other than shared memory, also those that this package does not know;
//   - warp, warpgroup, block, cluster: who takes part; agree: all of them have the same result (if all take part:
//     Meaning.Agrees);
//   - carry: it reads the carry flag;
//   - return, exit, trap, branch, switch, call: how it leaves;
//   - textures, tensormaps, devices, grids: what else it touches; lost: what it writes is not defined.
const meanings = `
add   | add
sub   | sub
addc  | addcarry | - | carry
subc  | subborrow | - | carry
madc  | - | - | carry
mul   | mul hi:mulhigh wide:mulwide
mad   | - lo:mad wide:madwide
fma   | fma
div   | div
rem   | rem
min   | min
max   | max
neg   | neg
abs   | abs
and   | and
or    | or
xor   | xor
not   | not
shl   | shl
shr   | shr
popc  | popcount
clz   | leadingzeros
brev  | reverse
bfi   | insert
bfe   | extract
lop3  | logic3
shf   | - l:funnelleft r:funnelright
prmt  | permute
selp  | select
mov   | move
cvt   | convert
cvta  | convertaddress
setp  | compare
ld                 | - | r:ss*t
ldu                | - | r:ss*t
st                 | - | w:ss*t
prefetch           | - | n:ss
prefetchu          | - | n
applypriority      | - | n:ss
discard            | - | w:ss*#0 | plain lost
createpolicy       | - | n
atom               | - | rw:ss*t
red                | - | rw:ss*t
bar                | - | - | block agree
barrier            | - | - | block agree
barrier.cluster    | - | - | cluster keeps
bar.warp           | - | - | warp
vote               | - | - | warp
vote.sync          | - | - | warp agree
match              | - | - | warp
shfl               | - | - | warp
shfl.sync          | - | - | warp
activemask         | - | - | warp
redux              | - | - | warp agree
elect              | - | - | warp
bra                | - | - | branch
brx.idx            | - | - | switch
call               | - | - | call
ret                | - | - | return
exit               | - | - | exit
trap               | - | - | trap
griddepcontrol     | - | - | grids
getctarank         | - | - | plain keeps
mapa               | - | - | plain keeps
cp.async           | - | w:shared*#0! r:global*#0!?
cp.async.commit_group      | - | - | keeps
cp.async.wait_group        | - | - | keeps
cp.async.wait_all          | - | - | keeps
cp.async.bulk.commit_group | - | - | keeps
cp.async.bulk.wait_group   | - | - | keeps
cp.async.mbarrier.arrive   | - | rw:shared*8 | inside
cp.async.bulk              | - | w:to*#0! r:ss*#0! rw:shared*8
cp.async.bulk.prefetch     | - | n:ss
cp.async.bulk.prefetch.tensor | - | n:ss
cp.async.bulk.tensor       | - | - | tensormaps
cp.reduce.async.bulk       | - | rw:to*#0! r:ss*#0! rw:shared*8
cp.reduce.async.bulk.tensor | - | - | tensormaps
st.async           | - | w:shared::cluster*t! rw:shared*8
red.async          | - | rw:shared::cluster*t! rw:shared*8
st.bulk            | - | w:shared*#0!
mma                | - | - | warp keeps
mma.sp             | - | - | warp keeps
mma.sp::ordered_metadata | - | - | warp keeps
wmma.mma           | - | - | warp keeps
wmma.load.a        | - | r:ss*tile | warp
wmma.load.b        | - | r:ss*tile | warp
wmma.load.c        | - | r:ss*tile | warp
wmma.store.d       | - | w:ss*tile | warp
ldmatrix           | - | r:ss*row | warp
stmatrix           | - | w:ss*row | warp
movmatrix          | - | - | warp keeps
wgmma.*            | - | - | warpgroup keeps inside
mbarrier.*         | - | rw:shared*8 | inside
fence.proxy        | - | n | keeps
tensormap.replace      | - | rw:ss*128 | tensormaps
tensormap.cp_fenceproxy | - | w:to*128 r:ss*128 | tensormaps
tensormap.*        | - | - | tensormaps
multimem.*         | - | rw:ss | devices
tex                | - | r | textures
tld4               | - | r | textures
suld               | - | r | textures
sust               | - | rw | textures
sured              | - | rw | textures
txq                | - | n | textures
suq                | - | n | textures
istypep            | - | - | textures
`

// An Operation is what the result of an instruction is, of the operands that it reads, in their order.
type Operation uint8

// The operations. Of those with a carry, the carry flag is the last operand and the last result.
const (
	Unsaid         Operation = iota // none of the following
	Add                             // a + b
	Sub                             // a - b
	AddCarry                        // a + b + carry
	SubBorrow                       // a - b - carry
	Mul                             // a * b, low half
	MulHigh                         // a * b, high half
	MulWide                         // a * b, twice as wide
	Mad                             // a * b + c, low half
	MadWide                         // a * b + c, c and the result twice as wide
	FMA                             // a * b + c, rounded once
	Div                             // a / b
	Rem                             // a % b
	Min                             // the smaller one
	Max                             // the larger one
	Neg                             // -a
	Absolute                        // |a|
	And                             // a & b
	Or                              // a | b
	Xor                             // a ^ b
	Not                             // ^a
	Shl                             // a << b
	Shr                             // a >> b
	PopCount                        // how many bits are set
	LeadingZeros                    // how many bits are 0 above the highest 1
	Reverse                         // the bits in the other order
	Insert                          // b, with the low d bits of a from bit c on
	Extract                         // c bits of a from bit b on
	Logic3                          // of each bit of a, b and c what the table d says
	FunnelLeft                      // the upper half of b:a << c
	FunnelRight                     // the lower half of b:a >> c
	Permute                         // bytes of b:a as c says
	Select                          // c ? a : b
	Copy                            // a, or a vector
	ConvertType                     // a as another type
	ConvertAddress                  // a as an address of another space
	CompareWith                     // whether a relation holds between a and b
	numOperations
)

var operationNames = [numOperations]string{"-", "add", "sub", "addcarry", "subborrow", "mul", "mulhigh", "mulwide",
	"mad", "madwide", "fma", "div", "rem",
	"min", "max", "neg", "abs", "and", "or", "xor", "not", "shl", "shr", "popcount", "leadingzeros", "reverse",
	"insert", "extract", "logic3",
	"funnelleft", "funnelright", "permute", "select", "move", "convert", "convertaddress", "compare"}

func (op Operation) String() string { return operationNames[op] }

// Threads says who executes an instruction together.
type Threads uint8

// Who takes part.
const (
	Alone Threads = iota // each thread for itself
	Warp
	Warpgroup // four warps
	Block
	Cluster
)

// Leaving says whether, and how, an instruction goes on anywhere but at the next one.
type Leaving uint8

// How an instruction leaves.
const (
	Stays    Leaving = iota
	Branches         // to a label
	Switches         // to one of a list of labels
	Calls            // a function; it comes back
	Returns          // from the function
	Exits            // ends the thread
	Traps            // ends the launch
)

// Beyond is what an instruction touches that is neither its registers nor at an address in its operands.
type Beyond uint8

// What else is touched.
const (
	Nothing    Beyond = iota
	Textures          // textures and surfaces, by their handles
	TensorMaps        // memory that a tensor map describes, or the map
	Devices           // memory of other devices, behind a multicast address
	Grids             // the grid that was launched before, or will be after
)

// An Access is what an instruction does at one address of its operands.
type Access struct {
	Read, Write bool
	Space       string // as in modifiers: "global", "shared::cta"; "" = generic
	Bytes       int    // at most; 0 = not known
	Later       bool   // some time after the instruction
	Partly      bool   // it may be fewer bytes, or none
	Tile        *Tile
}

// A Tile is a matrix that the threads of a warp access together: Rows pieces, of Bytes each. The last operand is the
// distance from one to the next, in elements of Elem bytes.
type Tile struct{ Rows, Bytes, Elem int }

// A Rendezvous says what a thread does at a barrier.
type Rendezvous struct {
	Arrives bool // it is counted
	Waits   bool // it goes on only when all have come
	Counted bool // an operand says how many threads that is; else all that the barrier is for
}

// A Meaning is what one instruction does.
type Meaning struct {
	Operation Operation
	Memory    []Access // at the addresses of its operands, in their order
	Reads     bool     // memory at no address of its operands
	Writes    bool
	Orders    bool // memory, or threads
	Lost      bool // what it writes is not defined
	Threads   Threads
	Agrees    bool // all threads that may take part do, and have the same result
	Carry     bool // it reads the carry flag
	Barrier   Rendezvous
	Leaves    Leaving
	Beyond    Beyond
}

// A meaning is a line of the table.
type meaning struct {
	operation Operation
	byMode    map[string]Operation
	memory    []accessSpec
	plain     bool
	keeps     bool
	inside    bool
	lost      bool
	agrees    bool
	carry     bool
	threads   Threads
	leaves    Leaving
	beyond    Beyond
}

type accessSpec struct {
	read, write   bool
	space         string
	bytes         string
	later, partly bool
}

var meaningLines = sync.OnceValue(func() map[string]*meaning {
	m := map[string]*meaning{}
	for line := range strings.Lines(meanings) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		op, x, err := parseMeaning(line)
		if err != nil || m[op] != nil {
			panic(fmt.Sprintf("isa: meanings: %s: %v", line, err)) // a defect of this package, caught by its tests
		}
		m[op] = x
	}
	return m
})

// meaningOf is the line of an opcode, or of its family. Without one it is what its class says.
func meaningOf(op string) *meaning {
	m := meaningLines()
	if x := m[op]; x != nil {
		return x
	}
	family, _, _ := strings.Cut(op, ".")
	if x := m[family+".*"]; x != nil {
		return x
	}
	return &meaning{}
}

func parseMeaning(line string) (string, *meaning, error) {
	col := strings.Split(line, "|")
	for i := range col {
		col[i] = strings.TrimSpace(col[i])
	}
	if len(col) < 2 || len(col) > 4 {
		return "", nil, fmt.Errorf("%d columns", len(col))
	}
	x := &meaning{byMode: map[string]Operation{}}
	for _, w := range strings.Fields(col[1]) {
		mode, name, ok := strings.Cut(w, ":")
		if !ok {
			mode, name = "", w
		}
		i := slices.Index(operationNames[:], name)
		if i < 0 {
			return "", nil, fmt.Errorf("operation %q", name)
		}
		if ok {
			x.byMode[mode] = Operation(i)
		} else {
			x.operation = Operation(i)
		}
	}
	if len(col) > 2 && col[2] != "-" {
		for _, w := range strings.Fields(col[2]) {
			a, err := parseAccess(w)
			if err != nil {
				return "", nil, err
			}
			x.memory = append(x.memory, a)
		}
	}
	if len(col) > 3 {
		for _, w := range strings.Fields(col[3]) {
			set := words[w]
			if set == nil {
				return "", nil, fmt.Errorf("word %q", w)
			}
			set(x)
		}
	}
	return col[0], x, nil
}

var words = map[string]func(*meaning){
	"plain": func(x *meaning) { x.plain = true }, "keeps": func(x *meaning) { x.keeps = true },
	"inside": func(x *meaning) { x.inside = true },
	"lost":   func(x *meaning) { x.lost = true }, "agree": func(x *meaning) { x.agrees = true },
	"carry": func(x *meaning) { x.carry = true },
	"warp":  func(x *meaning) { x.threads = Warp }, "warpgroup": func(x *meaning) { x.threads = Warpgroup },
	"block": func(x *meaning) { x.threads = Block }, "cluster": func(x *meaning) { x.threads = Cluster },
	"return": func(x *meaning) { x.leaves = Returns }, "exit": func(x *meaning) { x.leaves = Exits },
	"trap":   func(x *meaning) { x.leaves = Traps },
	"branch": func(x *meaning) { x.leaves = Branches }, "switch": func(x *meaning) { x.leaves = Switches },
	"call":     func(x *meaning) { x.leaves = Calls },
	"textures": func(x *meaning) { x.beyond = Textures }, "tensormaps": func(x *meaning) { x.beyond = TensorMaps },
	"devices": func(x *meaning) { x.beyond = Devices }, "grids": func(x *meaning) { x.beyond = Grids },
}

func parseAccess(w string) (accessSpec, error) {
	var a accessSpec
	rest := w
	for flag := true; flag; {
		switch {
		case strings.HasSuffix(rest, "!"):
			a.later = true
		case strings.HasSuffix(rest, "?"):
			a.partly = true
		default:
			flag = false
			continue
		}
		rest = rest[:len(rest)-1]
	}
	rest, a.bytes, _ = strings.Cut(rest, "*")
	rest, a.space, _ = strings.Cut(rest, ":")
	switch rest {
	case "r":
		a.read = true
	case "w":
		a.write = true
	case "rw":
		a.read, a.write = true, true
	case "n":
	default:
		return a, fmt.Errorf("access %q", w)
	}
	return a, nil
}

// Means says what in does.
func (in *Inst) Means() Meaning {
	x := in.Form.meaning
	effects := in.Class.Effects()
	m := Meaning{Operation: in.operation(), Orders: effects&Orders != 0 && !x.plain, Lost: x.lost,
		Threads: x.threads, Carry: x.carry, Leaves: x.leaves, Beyond: x.beyond}
	switch in.Sem {
	case "", "weak":
	default:
		m.Orders = true
	}
	var mems int
	for i := range in.Args {
		if in.Args[i].Spec.Role == Mem {
			mems++
		}
	}
	for i := range mems {
		var a Access
		if i < len(x.memory) {
			a = in.access(&x.memory[i])
		}
		m.Memory = append(m.Memory, a)
	}
	if mems == 0 && !x.keeps && len(x.memory) == 0 && !x.plain {
		m.Reads, m.Writes = effects&ReadsMemory != 0, effects&WritesMemory != 0
	}
	if x.beyond != Nothing && x.beyond != Grids {
		m.Reads, m.Writes = m.Reads || effects&ReadsMemory != 0, m.Writes || effects&WritesMemory != 0
	}
	if x.threads == Block || x.threads == Cluster {
		m.Barrier = in.barrier()
	}
	if x.agrees {
		m.Agrees = in.agrees(&m)
	}
	return m
}

// operation is the operation of in, if no modifier makes it another one.
func (in *Inst) operation() Operation {
	op := in.Form.meaning.operation
	if other, ok := in.Form.meaning.byMode[in.Mode]; ok {
		op = other
	} else if len(in.Form.meaning.byMode) > 0 && in.Mode != "" && in.Mode != "lo" {
		op = Unsaid
	}
	switch {
	case op == Unsaid || in.Has(Sat) || in.Has(Relu) || in.Has(Satfinite) || in.Has(OOB):
		return Unsaid
	case op <= Permute && in.U != ptx.TypeNone: // of mixed precision
		return Unsaid
	case op == Mul && in.Mode == "" && !Float(in.T): // an old spelling of lo
		return Unsaid
	case op == Logic3 && in.Bool != "", op == Permute && in.Mode != "":
		return Unsaid
	case op == CompareWith && (in.Cmp == "num" || in.Cmp == "nan"):
		return Unsaid
	}
	return op
}

func (in *Inst) access(s *accessSpec) Access {
	a := Access{Read: s.read, Write: s.write, Space: s.space, Later: s.later, Partly: s.partly && in.sources() > 1}
	switch s.space {
	case "ss":
		a.Space = in.Space
	case "to":
		a.Space = in.To
	}
	switch {
	case s.bytes == "":
	case s.bytes == "t":
		a.Bytes = Bits(in.T) / 8 * max(1, in.Vec)
	case s.bytes == "row":
		a.Bytes = matrixRow
	case s.bytes == "tile":
		a.Tile = in.tile()
	case strings.HasPrefix(s.bytes, "#"):
		a.Bytes = in.count()
	default:
		a.Bytes, _ = strconv.Atoi(s.bytes)
	}
	return a
}

// matrixRow is the bytes that a thread's address means to ldmatrix and stmatrix.
const matrixRow = 16

// sources is how many operands are read.
func (in *Inst) sources() int {
	n := 0
	for i := range in.Args {
		if in.Args[i].Spec.Role == Src {
			n++
		}
	}
	return n
}

// integer is the value of a constant operand.
func integer(x ptx.Operand) (uint64, bool) {
	switch x := x.(type) {
	case *ptx.Imm:
		return x.Bits, x.Kind == ptx.ImmS64 || x.Kind == ptx.ImmU64
	case *ptx.Neg:
		n, ok := integer(x.X)
		return -n, ok && !x.Not
	}
	return 0, false
}

// count is the constant in the first operand that is read: the bytes of a copy. 0 is any other operand.
func (in *Inst) count() int {
	for i := range in.Args {
		if a := &in.Args[i]; a.Spec.Role == Src {
			if n, ok := integer(a.X); ok && n < 1<<30 {
				return int(n)
			}
			return 0
		}
	}
	return 0
}

// tile is what wmma.load and wmma.store access. Without a stride, and for elements of less than a byte, it is not
// known.
func (in *Inst) tile() *Tile {
	shape, ok := map[string][3]int{"m16n16k16": {16, 16, 16}, "m8n32k16": {8, 32, 16}, "m32n8k16": {32, 8,
		16}}[in.Shape]
	size := Bits(in.T) / 8
	if !ok || size == 0 || len(in.Args) < len(in.Form.Args) || in.LA == "" {
		return nil
	}
	rows, columns := shape[0], shape[1]
	switch {
	case strings.HasSuffix(in.Op, ".a"):
		columns = shape[2]
	case strings.HasSuffix(in.Op, ".b"):
		rows = shape[2]
	}
	if in.LA == "col" {
		rows, columns = columns, rows
	}
	return &Tile{Rows: rows, Bytes: columns * size, Elem: size}
}

// barrier says who waits: a number of threads comes after that of the barrier.
func (in *Inst) barrier() Rendezvous {
	numbers := 0
	for i := range in.Args {
		if s := in.Args[i].Spec; s.Role == Src && s.Type == ptx.U32 {
			numbers++
		}
	}
	return Rendezvous{Arrives: in.Mode != "wait", Waits: in.Mode != "arrive", Counted: numbers > 1}
}

// agrees reports whether all threads that may take part do, so that all have one result.
func (in *Inst) agrees(m *Meaning) bool {
	if m.Threads == Block {
		return in.Mode == "red" && !m.Barrier.Counted
	}
	mask, ok := integer(in.Args[len(in.Args)-1].X)
	return ok && uint32(mask) == 1<<32-1
}

// LeavingOf says whether and how an instruction leaves, whatever its form.
func LeavingOf(in *ptx.Inst) Leaving { return leavings()[in.Op] }

var leavings = sync.OnceValue(func() map[string]Leaving {
	m := map[string]Leaving{}
	for op, x := range meaningLines() {
		if x.leaves != Stays {
			op, _, _ = strings.Cut(op, ".")
			m[op] = x.leaves
		}
	}
	return m
})

// Outline is what is known of an instruction whose form the table does not hold: what its opcode says.
type Outline struct {
	Inside bool // it touches no memory but shared memory
	Beyond Beyond
}

// OutlineOf gives the outline of an instruction.
func OutlineOf(in *ptx.Inst) Outline {
	op, _ := split(in)
	x := meaningOf(op)
	return Outline{Inside: x.inside, Beyond: x.beyond}
}
