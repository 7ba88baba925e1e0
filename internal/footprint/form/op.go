package form

// An Op is the operation of a symbolic value.
type Op uint8

// The operations. The numbers are integers of w bits; where it makes a difference
// whether they are signed, there are two operations. The machine (eval.go) computes the
// ones up to OpSelect.
const (
	OpNone Op = iota
	OpConst
	OpParam    // imm: offset in the parameter buffer
	OpGeometry // imm: one of the geometry of a launch
	OpAdd
	OpSub
	OpMul
	OpMulHiU
	OpMulHiS
	OpDivU
	OpDivS
	OpRemU
	OpRemS
	OpMinU
	OpMinS
	OpMaxU
	OpMaxS
	OpNeg
	OpAbs
	OpAnd
	OpOr
	OpXor
	OpNot
	OpShl
	OpShrU
	OpShrS
	OpZext
	OpSext
	OpTrunc
	OpEQ
	OpNE
	OpLTU
	OpLTS
	OpLEU
	OpLES
	OpPopc
	OpClz
	OpSelect // a ? b : c

	// What differs from thread to thread, or is not known:
	OpThread  // imm: one of the coordinates
	OpCounter // imm: a loop; how often it has gone back to its header
	OpUnknown // imm: a serial number
	OpPhi     // the value of one of graph.phis[imm]
	OpHalving // a value that begins as a and is only shifted right
	OpDrift   // a value that begins as a and changes as graph.drifts[imm] says
	OpSymbol  // imm: a variable
	OpCurve   // scaled(imm, a)
	OpBetween // between a and b, or (c = 1) from a to b-1 (bisect.go)
)

// The geometry of a launch: what OpGeometry reads.
const (
	NtidX = iota
	NtidY
	NtidZ
	NctaidX
	NctaidY
	NctaidZ
	ClusterX
	ClusterY
	ClusterZ
	NclusterX
	NclusterY
	NclusterZ
	ClusterSize
	DynamicShared
	NumGeometry
)

// The coordinates of a thread: what OpThread reads.
const (
	TidX = iota
	TidY
	TidZ
	CtaidX
	CtaidY
	CtaidZ
	LaneID
	ClusterCtaX
	ClusterCtaY
	ClusterCtaZ
	ClusterRank
	ClusterIDX
	ClusterIDY
	ClusterIDZ
	NumCoordinates
)

// Canonical is x modulo 2^w, sign-extended.
func Canonical(w uint8, x int64) int64 {
	if w >= 64 {
		return x
	}
	return x << (64 - w) >> (64 - w)
}

// Arity is how many arguments an operation may have.
func (op Op) Arity() int {
	switch op {
	case OpNone, OpConst, OpParam, OpGeometry, OpThread, OpCounter, OpUnknown, OpPhi, OpSymbol:
		return 0
	case OpNeg, OpAbs, OpNot, OpZext, OpSext, OpTrunc, OpPopc, OpClz, OpHalving, OpDrift, OpCurve:
		return 1
	case OpSelect, OpBetween:
		return 3
	}
	return 2
}
