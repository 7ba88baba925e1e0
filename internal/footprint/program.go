package footprint

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A Program is a summary's code: what a launch computes, in flat tables that refer to each
// other by index.
type Program struct {
	plan plan // made of the rest

	Ops    []Instr // uniform values; each writes the register of its own number
	Vars   []Var
	Args   []Arg
	Forms  []Form
	Terms  []Term
	Lists  []int32 // checks of forms, conditions of contexts, positions of terms
	Cands  []Candidate
	Checks []Check
	Guards []Guard
	Exits  []Exit
	Ctxs   []Context
	Steps  []Step
	Accs   []Access
	Congs  []Congruence
}

// An Instr computes a uniform value of w bits from registers; aw is the width of a.
type Instr struct {
	Op      form.Op
	W, Aw   uint8
	A, B, C int32
	Imm     int64
}

// A Var is a variable: A0 to A1 are its arguments.
type Var struct {
	Kind   form.Kind
	W      uint8
	Imm    int64
	A0, A1 int32 // args; of KindCounter: exits
}

// An Arg is a form, to be read as a number of W bits, if the conditions C0 to C1 hold.
type Arg struct {
	Form   int32
	W      uint8
	Signed bool
	C0, C1 int32 // lists: conditions
}

// A Term is register Coef times variable V.
type Term struct{ V, Coef int32 }

// A Form is register C, the address of variable Sym (1 + its number), and terms.
type Form struct {
	T0, T1 int32 // terms
	C      int32 // register
	Sym    int32
	K0, K1 int32 // lists: checks
	D0, D1 int32 // cands
}

// A cand is a guard with more than one term, all of whose variables a form has too, at these
// positions.
type Candidate struct {
	Guard int32
	Pos   int32 // lists
}

// A Check holds if a form lies in In.
type Check struct {
	Form int32
	In   interval.Bounds
}

// A Guard says that a form lies in In, where it holds.
type Guard struct {
	Form int32
	In   interval.Bounds
	Not0 bool
	Wrap uint8
	Top  int32
	Exit int32 // 1 + exit
	Rest int32 // 1 + form; in is for the sum of both
	Need int32 // 1 + form; if it is not negative, the guard holds, but for one side (unrolled.go)
	Side uint8
	Load int32 // 1 + a loaded value: it holds only where what is loaded is known; 0 = always
	Mod  int64 // of several terms: what is bounded is res modulo mod; 0 = not known
	Res  int64
}

// An Exit bounds how often a loop goes round: it goes on while the form lies in In.
type Exit struct {
	V    int32 // the counter
	Form int32
	Rest int32
	Step int32
	In   interval.Bounds
	Not0 bool
	Wrap uint8 // instead of in: form modulo 2^wrap is below register top
	Top  int32
	Load int32 // 1 + a loaded value: the test says something only if what is loaded is known; 0 = none
}

// A Context is the facts that hold at some accesses: steps are done in order, then the accesses
// looked at.
type Context struct {
	C0, C1 int32 // lists: conditions, as 2*register + (1: it must not hold)
	S0, S1 int32 // steps
	A0, A1 int32 // accesses
	Rounds int32 // 1 + the counter that is bounded here for all contexts that follow; 0 = none
	Home   int32 // 1 + the loaded value whose bounds where it is loaded are found here; 0 = none
}

// A Step evaluates a variable, or (guard) applies a guard.
type Step struct {
	Guard bool
	Index int32
}

// An Access is a place that is read or written, or several at the same distance.
type Access struct {
	Kind   AccessKind
	Hidden bool
	Atom   int32 // equal for operations that may meet
	Form   int32
	Off    int64
	Bytes  int64
	Span   int64
	Step   int64
	Count  int64
	Pos    int32
	Order  int32
	Cong   int32 // 1 + a congruence that holds for its terms
	Cover  int32 // of a write and what it may cover: the same number; 0 = none
	Lone   bool  // of such a write: only threads whose tid.x is 0 make it
	Base   int32 // 1 + the register of the pointer that the address is made from; 0 = not known
}

// A Congruence says that a form is congruent to a register modulo m; or (not, of m = 2) that it is not.
type Congruence struct {
	Form, R int32
	M       int64
	Not     bool
}

// MaxModulus bounds the numbers modulo which congruences are kept.
const MaxModulus = 1 << 20

// Positions is where the variables of g are in f; nil if one is not.
func Positions(g, f []Term) []int32 {
	var pos []int32
	for _, t := range g {
		i := slices.IndexFunc(f, func(u Term) bool { return u.V == t.V })
		if i < 0 {
			return nil
		}
		pos = append(pos, int32(i))
	}
	return pos
}

// An AccessKind says what an access does.
type AccessKind uint8

const (
	IsRead   AccessKind = 1 << iota
	IsWrite             // plain: the byte's new value does not depend on the old one
	IsUpdate            // an atomic operation whose result depends on the old value
	IsSettle            // an atomic operation that changes nothing when it is repeated, and whose result is not used
)
