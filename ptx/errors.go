package ptx

import (
	"fmt"
	"strings"
)

// Limits on what Parse accepts and reports.
const (
	MaxSource   = 128 << 20 // bytes of text
	MaxErrors   = 10        // errors collected before Parse gives up
	maxNodes    = 16 << 20  // declarations, statements, operands and initial values: bounds the memory of a tree
	maxComments = 4 << 20
	maxBlocks   = 200     // nested blocks
	maxExpr     = 100     // nested parentheses, conditionals and signs in a constant expression
	maxInit     = 16      // nested braces in an initializer
	maxDims     = 16      // array dimensions
	maxCount    = 1 << 24 // registers of one parameterised set
	maxLabels   = 1 << 16 // labels that one L<n> stands for
	maxObject   = 1 << 48 // elements of one variable
	maxSnippet  = 32      // bytes of source quoted in an error
)

// An Error is one thing wrong with a PTX source.
type Error struct {
	File string
	Pos  Pos
	Msg  string // "expected ';' after the operands, found ident \"x\""
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Pos.Line, e.Pos.Col, e.Msg)
}

// An ErrorList is what Parse and Check return when something is wrong: at
// least one *Error, at most MaxErrors, in source order. errors.As finds the first.
type ErrorList []*Error

// Error is the first error and how many follow; %+v prints all of them.
func (l ErrorList) Error() string {
	switch len(l) {
	case 0:
		return "no errors"
	case 1:
		return l[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", l[0], len(l)-1)
}

// Format prints every error on a line of its own for %+v.
func (l ErrorList) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('+') {
		for i, e := range l {
			if i > 0 {
				f.Write([]byte{'\n'})
			}
			f.Write([]byte(e.Error()))
		}
		return
	}
	f.Write([]byte(l.Error()))
}

// Unwrap gives the single errors to package errors.
func (l ErrorList) Unwrap() []error {
	errs := make([]error, len(l))
	for i, e := range l {
		errs[i] = e
	}
	return errs
}

// snippet shortens source text for an error message.
func snippet(s string) string {
	if len(s) > maxSnippet {
		s = s[:maxSnippet] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
