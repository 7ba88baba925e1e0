package ptx

import (
	"math"
	"strconv"
	"strings"
)

// constant reads a constant expression and folds it (section 4.5). A single
// number keeps its spelling; so does an expression written on one line.
func (p *parser) constant(what string) *Imm {
	start := p.scan.start
	im := p.imms.alloc()
	im.Pos = p.pos()
	v, end := p.conditional(what)
	if p.err != nil {
		return im
	}
	im.Kind, im.Bits = v.kind, v.bits
	im.Text = p.scan.src[start:end]
	if strings.ContainsAny(im.Text, "\n/#\r\f\v") && strings.ContainsAny(im.Text, "\n#\r\f\v") ||
		strings.Contains(im.Text, "//") || strings.Contains(im.Text, "/*") {
		im.Text = v.text()
	}
	return im
}

// integer reads a constant expression that must lie in 0..limit.
func (p *parser) integer(what string, limit uint64) uint64 {
	return p.integerUnsigned(what, limit, false)
}

// integerUnsigned is integer; term keeps it to a number or a parenthesised
// expression, for places where '>' ends it.
func (p *parser) integerUnsigned(what string, limit uint64, term bool) uint64 {
	pos := p.pos()
	if p.tok != tNumber && p.tok != '(' && p.tok != '+' && p.tok != '-' && p.tok != '~' &&
		p.tok != '!' && p.tok != tIdent {
		p.want(what)
		return 0
	}
	var v value
	if term {
		v, _ = p.unary(what)
	} else {
		v, _ = p.conditional(what)
	}
	if p.err != nil {
		return 0
	}
	if v.float() || v.kind == ImmS64 && int64(v.bits) < 0 || v.bits > limit {
		p.failAt(pos, "expected %s from 0 to %d", what, limit)
		return 0
	}
	return v.bits
}

// integerTerm reads the constant after the sign of an offset.
func (p *parser) integerTerm(what string) uint64 {
	pos := p.pos()
	v, _ := p.binary(what, precMul)
	if p.err == nil && v.float() {
		p.failAt(pos, "expected %s, found a floating-point constant", what)
	}
	return v.bits
}

// A value is a constant while it is folded.
type value struct {
	kind ImmKind
	bits uint64
}

func (v value) float() bool { return v.kind == ImmF32 || v.kind == ImmF64 }
func (v value) f64() float64 {
	switch v.kind {
	case ImmF32:
		return float64(math.Float32frombits(uint32(v.bits)))
	case ImmF64:
		return math.Float64frombits(v.bits)
	case ImmU64:
		return float64(v.bits)
	}
	return float64(int64(v.bits))
}

// text spells a value so that it reads back as itself.
func (v value) text() string {
	switch v.kind {
	case ImmU64:
		return strconv.FormatUint(v.bits, 10) + "U"
	case ImmF32:
		return "0f" + hexDigits(v.bits, 8)
	case ImmF64:
		return "0d" + hexDigits(v.bits, 16)
	}
	if int64(v.bits) == math.MinInt64 { // its digits alone are too large for .s64
		return "(.s64)0x8000000000000000"
	}
	return strconv.FormatInt(int64(v.bits), 10)
}

func hexDigits(v uint64, n int) string {
	s := strings.ToUpper(strconv.FormatUint(v, 16))
	return strings.Repeat("0", max(0, n-len(s))) + s
}

func boolean(b bool) value {
	if b {
		return value{ImmS64, 1}
	}
	return value{ImmS64, 0}
}

func f64(f float64) value { return value{ImmF64, math.Float64bits(f)} }

// Precedences of the binary operators, as in C.
const (
	precLor = 1 + iota
	precLand
	precOr
	precXor
	precAnd
	precEq
	precRel
	precShift
	precAdd
	precMul
)

func precedence(k kind) int {
	switch k {
	case tLor:
		return precLor
	case tLand:
		return precLand
	case '|':
		return precOr
	case '^':
		return precXor
	case '&':
		return precAnd
	case tEQ, tNE:
		return precEq
	case '<', '>', tLE, tGE:
		return precRel
	case tShl, tShr:
		return precShift
	case '+', '-':
		return precAdd
	case '*', '/', '%':
		return precMul
	}
	return 0
}

// conditional reads c ? a : b and everything that binds tighter. Its second result is
// the offset where the expression ends.
func (p *parser) conditional(what string) (value, int) {
	if p.nest++; p.nest > maxExpr {
		p.fail("constant expression is nested deeper than %d", maxExpr)
		return value{}, 0
	}
	defer func() { p.nest-- }()
	c, end := p.binary(what, precLor)
	if p.tok != '?' || p.err != nil {
		return c, end
	}
	pos := p.pos()
	p.next()
	a, _ := p.conditional("a constant after '?'")
	p.expect(':', "':' of a conditional")
	b, end := p.conditional("a constant after ':'")
	if p.err != nil {
		return value{}, 0
	}
	if c.float() || a.float() != b.float() {
		p.failAt(pos, "operands of ?: have types that do not go together")
		return value{}, 0
	}
	if c.bits != 0 {
		return a, end
	}
	return b, end
}

// binary reads operators of at least the given precedence.
func (p *parser) binary(what string, prec int) (value, int) {
	a, end := p.unary(what)
	for p.err == nil {
		op := p.operator()
		n := precedence(op)
		if n == 0 || n < prec {
			break
		}
		pos := p.pos()
		p.next()
		var b value
		b, end = p.binary("a constant after an operator", n+1)
		if p.err != nil {
			break
		}
		a = p.fold(pos, op, a, b)
	}
	return a, end
}

// operator is the current token, with the name %x cut back to the operator
// % where an operator must stand: the scanner cannot know.
func (p *parser) operator() kind {
	if p.tok == tIdent && p.scan.src[p.scan.start] == '%' {
		p.scan.off = p.scan.start + 1
		p.scan.kind, p.tok = '%', '%'
	}
	return p.tok
}

// fold computes one operator. Where the table of section 4.5.6 leaves a choice, it
// does what ptxas 12.4 does (testdata/constants.txtar): shift counts are taken
// modulo 64, % is unsigned, & | ^ use the usual conversions, and ?: keeps the
// type of the operand it picks.
func (p *parser) fold(pos Pos, op kind, a, b value) value {
	if a.float() || b.float() {
		if a.float() != b.float() {
			p.failAt(pos, "operator takes two integers or two floating-point constants")
			return value{}
		}
		x, y := a.f64(), b.f64()
		switch op {
		case '+':
			return f64(x + y)
		case '-':
			return f64(x - y)
		case '*':
			return f64(x * y)
		case '/':
			return f64(x / y)
		case '<':
			return boolean(x < y)
		case '>':
			return boolean(x > y)
		case tLE:
			return boolean(x <= y)
		case tGE:
			return boolean(x >= y)
		case tEQ:
			return boolean(x == y)
		case tNE:
			return boolean(x != y)
		}
		p.failAt(pos, "operator takes integers, not floating-point constants")
		return value{}
	}
	k := ImmS64
	if a.kind == ImmU64 || b.kind == ImmU64 {
		k = ImmU64
	}
	x, y := a.bits, b.bits
	switch op {
	case '+':
		return value{k, x + y}
	case '-':
		return value{k, x - y}
	case '*':
		return value{k, x * y}
	case '/':
		if y == 0 {
			p.failAt(pos, "division by zero")
			return value{}
		}
		if k == ImmU64 {
			return value{k, x / y}
		}
		return value{k, uint64(int64(x) / int64(y))}
	case '%':
		if y == 0 {
			p.failAt(pos, "remainder of a division by zero")
			return value{}
		}
		return value{ImmU64, x % y}
	case tShl:
		return value{a.kind, x << (y & 63)}
	case tShr:
		if a.kind == ImmU64 {
			return value{a.kind, x >> (y & 63)}
		}
		return value{a.kind, uint64(int64(x) >> (y & 63))}
	case '&':
		return value{k, x & y}
	case '|':
		return value{k, x | y}
	case '^':
		return value{k, x ^ y}
	case tLand:
		return boolean(x != 0 && y != 0)
	case tLor:
		return boolean(x != 0 || y != 0)
	case tEQ:
		return boolean(x == y)
	case tNE:
		return boolean(x != y)
	}
	less, equal := x < y, x == y
	if k == ImmS64 {
		less = int64(x) < int64(y)
	}
	switch op {
	case '<':
		return boolean(less)
	case '>':
		return boolean(!less && !equal)
	case tLE:
		return boolean(less || equal)
	}
	return boolean(!less)
}

func (p *parser) unary(what string) (value, int) {
	pos := p.pos()
	switch op := p.tok; op {
	case '+', '-', '~', '!':
		if p.nest++; p.nest > maxExpr {
			p.fail("constant expression is nested deeper than %d", maxExpr)
			return value{}, 0
		}
		p.next()
		v, end := p.unary("a constant after a sign")
		p.nest--
		if p.err != nil {
			return value{}, 0
		}
		switch {
		case op == '+':
		case op == '-' && v.kind == ImmF32:
			v.bits ^= 1 << 31
		case op == '-' && v.kind == ImmF64:
			v.bits ^= 1 << 63
		case op == '-':
			v.bits = -v.bits
		case v.float():
			p.failAt(pos, "operator takes an integer")
		case op == '~':
			v = value{ImmU64, ^v.bits}
		default:
			v = boolean(v.bits == 0)
		}
		return v, end
	case '(':
		p.next()
		cast, isCast := ImmS64, p.tok == tDot
		if isCast {
			switch p.lit() {
			case ".s64":
			case ".u64":
				cast = ImmU64
			default:
				p.want("a constant, .s64 or .u64")
			}
			p.next()
			p.expect(')', "')' after the type of a cast")
			if p.nest++; p.nest > maxExpr {
				p.fail("constant expression is nested deeper than %d", maxExpr)
				return value{}, 0
			}
			v, end := p.unary("a constant after a cast")
			p.nest--
			if p.err == nil && v.float() {
				p.failAt(pos, "cast takes an integer")
			}
			return value{cast, v.bits}, end
		}
		v, _ := p.conditional(what)
		end := p.scan.off
		p.expect(')', "')' in a constant expression")
		return v, end
	case tIdent:
		if p.lit() == warpSize {
			end := p.scan.off
			p.next()
			return value{ImmS64, 32}, end
		}
	case tNumber:
		v, ok := literal(p.lit())
		if !ok {
			p.fail("malformed number %q", snippet(p.lit()))
			return value{}, 0
		}
		end := p.scan.off
		p.next()
		return v, end
	case tDot: // .5: the scanner takes it for a word
		if p.scan.src[p.scan.start+1]-'0' <= 9 {
			p.scan.fraction()
			if p.tok = p.scan.kind; p.tok == tNumber {
				return p.unary(what)
			}
		}
	}
	p.want(what)
	return value{}, 0
}

// literal gives a number its value (sections 4.5.1 and 4.5.2).
func literal(s string) (value, bool) {
	if len(s) > 2 && s[0] == '0' {
		switch s[1] {
		case 'f', 'F':
			v, err := strconv.ParseUint(s[2:], 16, 32)
			return value{ImmF32, v}, err == nil && len(s) == 10
		case 'd', 'D':
			v, err := strconv.ParseUint(s[2:], 16, 64)
			return value{ImmF64, v}, err == nil && len(s) == 18
		}
	}
	if !isHexOrBinary(s) && strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return value{}, false
		}
		return f64(f), true
	}
	k := ImmS64
	if n := len(s) - 1; s[n] == 'U' {
		k, s = ImmU64, s[:n]
	}
	base := 10
	switch {
	case len(s) > 1 && s[0] == '0' && s[1]|32 == 'x':
		base, s = 16, s[2:]
	case len(s) > 1 && s[0] == '0' && s[1]|32 == 'b':
		base, s = 2, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	v, err := strconv.ParseUint(s, base, 64)
	if v > math.MaxInt64 {
		k = ImmU64
	}
	return value{k, v}, err == nil
}

func isHexOrBinary(s string) bool {
	return len(s) > 1 && s[0] == '0' && (s[1]|32 == 'x' || s[1]|32 == 'b')
}
