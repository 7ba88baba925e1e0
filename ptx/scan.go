package ptx

import "strings"

// A kind is the kind of a token. Punctuation of one character is its own kind.
type kind uint8

const (
	tEOF    kind = iota
	tBad         // not a token: scanner.msg says why
	tIdent       // foo, %r1, $L__BB0_1, _x; also "_"
	tDot         // .word, with "::" inside: .shared::cta
	tNumber      // any constant without a sign
	tString      // "…", quotes included
	tDwarf       // @@DWARF and the rest of its line
)

// Operators of two characters.
const (
	tShl kind = iota + 128
	tShr
	tLE
	tGE
	tEQ
	tNE
	tLand
	tLor
)

// Character classes.
const (
	cFollow = 1 << iota // may follow in an identifier
	cStart              // starts an identifier by itself
	cMark               // starts an identifier when something follows: _ $ %
	cDigit
	cHex
	cWord // of a .word: letters, digits, _
	cBlank
)

var class = func() (t [256]uint8) {
	for c := 'a'; c <= 'z'; c++ {
		t[c] |= cFollow | cStart | cWord
		t[c-32] |= cFollow | cStart | cWord
	}
	for c := '0'; c <= '9'; c++ {
		t[c] |= cFollow | cDigit | cHex | cWord
	}
	for _, c := range "abcdefABCDEF" {
		t[c] |= cHex
	}
	t['_'] |= cFollow | cMark | cWord
	t['$'] |= cFollow | cMark
	t['%'] |= cMark
	for _, c := range " \t\r\f\v" {
		t[c] |= cBlank
	}
	return t
}()

// A scanner cuts PTX text into tokens (PTX ISA, section 4). It is a small value
// that the parser may copy to look ahead. Offsets fit an int because the source is bounded.
type scanner struct {
	src       string
	off       int // of the next byte
	line      int
	lineStart int // offset of the line's first byte

	kind  kind
	start int // of the token
	tline int // line and column base of the token
	tbase int
	msg   string // why the token is tBad

	comments *[]Comment // shared by copies: each comment is added once
}

func (s *scanner) text() string { return s.src[s.start:s.off] }

func (s *scanner) pos() Pos {
	return Pos{Offset: s.start, Line: s.tline, Col: s.start - s.tbase + 1}
}

func (s *scanner) bad(msg string) {
	s.kind, s.msg = tBad, msg
}

// blank skips white space and line markers, and keeps comments. It reports false, with
// the token set to tBad, when a comment does not end.
func (s *scanner) blank() bool {
	src, i := s.src, s.off
	for i < len(src) {
		c := src[i]
		switch {
		case class[c]&cBlank != 0:
			i++
		case c == '\n':
			i++
			s.line++
			s.lineStart = i
		case c == '/' && i+1 < len(src) && src[i+1] == '/', c == '#' && s.lineMarker(i):
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				n = len(src) - i
			}
			if c == '/' && !s.comment(i, strings.TrimRight(src[i:i+n], " \t\r\f\v")) {
				return false
			}
			i += n
		case c == '/' && i+1 < len(src) && src[i+1] == '*':
			n := strings.Index(src[i+2:], "*/")
			if n < 0 {
				s.start, s.tline, s.tbase = i, s.line, s.lineStart
				s.off = len(src)
				s.bad("comment is not terminated")
				return false
			}
			if !s.comment(i, src[i:i+n+4]) {
				return false
			}
			body := src[i : i+2+n]
			if k := strings.LastIndexByte(body, '\n'); k >= 0 {
				s.line += strings.Count(body, "\n")
				s.lineStart = i + k + 1
			}
			i += n + 4
		default:
			s.off = i
			return true
		}
	}
	s.off = i
	return true
}

// comment keeps the comment at offset i. It reports false, with the token set to tBad, when there are too many.
func (s *scanner) comment(i int, text string) bool {
	if s.comments == nil {
		return true
	}
	list := *s.comments
	if n := len(list); n > 0 && list[n-1].Pos.Offset >= i {
		return true // seen by a copy that looked ahead
	}
	if len(list) == maxComments {
		s.start, s.tline, s.tbase, s.off = i, s.line, s.lineStart, len(s.src)
		s.bad("the module has too many comments")
		return false
	}
	*s.comments = append(list, Comment{Pos: Pos{Offset: i, Line: s.line, Col: i - s.lineStart + 1}, Text: text})
	return true
}

// lineMarker reports whether the '#' at i starts a line that a preprocessor
// leaves behind (`# 1 "file"`, `#line`, `#file`): such a line is skipped.
func (s *scanner) lineMarker(i int) bool {
	if strings.TrimLeft(s.src[s.lineStart:i], " \t") != "" {
		return false
	}
	rest := strings.TrimLeft(s.src[i+1:min(len(s.src), i+64)], " \t")
	return rest != "" && class[rest[0]]&cDigit != 0 || strings.HasPrefix(rest, "line") ||
		strings.HasPrefix(rest, "file")
}

// next reads a token.
func (s *scanner) next() {
	if !s.blank() {
		return
	}
	src, i := s.src, s.off
	s.start, s.tline, s.tbase = i, s.line, s.lineStart
	if i >= len(src) {
		s.kind = tEOF
		return
	}
	c := src[i]
	switch cl := class[c]; {
	case cl&cStart != 0:
		i++
		for i < len(src) && class[src[i]]&cFollow != 0 {
			i++
		}
		s.kind, s.off = tIdent, i
		return
	case cl&cMark != 0:
		i++
		for i < len(src) && class[src[i]]&cFollow != 0 {
			i++
		}
		s.kind, s.off = tIdent, i
		if i == s.start+1 && c != '_' {
			s.kind = kind(c)
			if c == '$' {
				s.bad("'$' alone is not a name")
			}
		}
		return
	case cl&cDigit != 0:
		s.number()
		return
	}
	i++
	second := byte(0)
	if i < len(src) {
		second = src[i]
	}
	s.kind = kind(c)
	switch c {
	case '.':
		if class[second]&cWord == 0 {
			s.off = i
			s.bad("'.' without a name after it")
			return
		}
		for i < len(src) {
			if class[src[i]]&cWord != 0 {
				i++
			} else if src[i] == ':' && i+2 < len(src) && src[i+1] == ':' && class[src[i+2]]&cWord != 0 {
				i += 2
			} else {
				break
			}
		}
		s.kind, s.off = tDot, i
		return
	case '"':
		s.str()
		return
	case '@':
		if second == '@' {
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				n = len(src) - i
			}
			s.kind, s.off = tDwarf, i+n
			return
		}
	case '<':
		if second == '<' {
			s.kind, i = tShl, i+1
		} else if second == '=' {
			s.kind, i = tLE, i+1
		}
	case '>':
		if second == '>' {
			s.kind, i = tShr, i+1
		} else if second == '=' {
			s.kind, i = tGE, i+1
		}
	case '=':
		if second == '=' {
			s.kind, i = tEQ, i+1
		}
	case '!':
		if second == '=' {
			s.kind, i = tNE, i+1
		}
	case '&':
		if second == '&' {
			s.kind, i = tLand, i+1
		}
	case '|':
		if second == '|' {
			s.kind, i = tLor, i+1
		}
	case ',', ';', ':', '{', '}', '(', ')', '[', ']', '~', '+', '-', '*', '/', '^', '?':
	default:
		s.off = i
		s.bad("this character cannot appear here")
		return
	}
	s.off = i
}

// str reads a string. A backslash keeps the next character from ending it.
func (s *scanner) str() {
	src, i := s.src, s.start+1
	for i < len(src) && src[i] != '"' && src[i] != '\n' {
		if src[i] == '\\' && i+1 < len(src) && src[i+1] != '\n' {
			i++
		}
		i++
	}
	if i >= len(src) || src[i] == '\n' {
		s.off = min(i, len(src))
		s.bad("string is not terminated on its line")
		return
	}
	s.kind, s.off = tString, i+1
}

// number finds the end of a constant; the parser gives it its value.
func (s *scanner) number() {
	src, i := s.src, s.start
	s.kind = tNumber
	if src[i] == '0' && i+1 < len(src) {
		switch src[i+1] {
		case 'x', 'X', 'f', 'F', 'd', 'D':
			i += 2
			for i < len(src) && class[src[i]]&cHex != 0 {
				i++
			}
			if i < len(src) && src[i] == 'U' && (src[s.start+1]|32) == 'x' {
				i++
			}
			s.numberEnd(i)
			return
		}
	}
	for i < len(src) && class[src[i]]&cDigit != 0 {
		i++
	}
	if i < len(src) && (src[i] == 'b' || src[i] == 'B') && i == s.start+1 && src[s.start] == '0' {
		for i++; i < len(src) && class[src[i]]&cDigit != 0; i++ {
		}
	}
	float := false
	if i < len(src) && src[i] == '.' {
		float = true
		for i++; i < len(src) && class[src[i]]&cDigit != 0; i++ {
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		j := i + 1
		if j < len(src) && (src[j] == '+' || src[j] == '-') {
			j++
		}
		if j < len(src) && class[src[j]]&cDigit != 0 {
			for i = j; i < len(src) && class[src[i]]&cDigit != 0; i++ {
			}
			float = true
		}
	}
	if !float && i < len(src) && src[i] == 'U' {
		i++
	}
	s.numberEnd(i)
}

func (s *scanner) numberEnd(i int) {
	bad := i < len(s.src) && class[s.src[i]]&cFollow != 0
	for i < len(s.src) && class[s.src[i]]&cFollow != 0 {
		i++
	}
	s.off = i
	if bad {
		s.bad("malformed number")
	}
}

// fraction reads the current .word again as a number that starts with its point.
func (s *scanner) fraction() {
	src, i := s.src, s.start+1
	for i < len(src) && class[src[i]]&cDigit != 0 {
		i++
	}
	if i < len(src) && src[i]|32 == 'e' {
		j := i + 1
		if j < len(src) && (src[j] == '+' || src[j] == '-') {
			j++
		}
		for i = j; i < len(src) && class[src[i]]&cDigit != 0; i++ {
		}
	}
	s.kind = tNumber
	s.numberEnd(i)
}
