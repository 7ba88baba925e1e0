package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"holdfast/internal/ir"
	"holdfast/internal/ir/fromptx"
	"holdfast/internal/isa"
	"holdfast/ptx"

	"github.com/spf13/cobra"
)

const ptxLong = `Look into PTX, the assembly language in which CUDA programs carry their kernels. FILE
may be - for standard input. Errors are printed one a line as file:line:col: message; with
--json they are on standard output as well, as {"errors": [...]}.`

func (a *app) ptxVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ptx",
		Short:   "Check, format and analyse PTX",
		Long:    ptxLong,
		Example: "  holdfast ptx check kernel.ptx\n  holdfast ptx fmt kernel.ptx > tidy.ptx",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageErrorf("ptx: no verb %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.ptxCheckVerb(), a.ptxFmtVerb(), a.ptxASTVerb(), a.ptxIRVerb())
	return cmd
}

const ptxCheckLong = `Check a PTX file: its syntax, that every name is declared, and that every instruction is
one of the PTX ISA with modifiers and operands that it takes. Instructions that exist but
that holdfast does not know in detail are listed as warnings.`

func (a *app) ptxCheckVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check syntax, names and instructions",
		Long:    ptxCheckLong,
		Example: "  holdfast ptx check kernel.ptx",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.parsePTX(args[0])
			if err != nil {
				return a.ptxErrors(err)
			}
			return a.ptxCheck(m)
		},
	}
}

func (a *app) ptxFmtVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "fmt FILE",
		Short: "Print a file in the one layout",
		Long: "Print a PTX file in the one layout. Formatting what it prints changes nothing. Comments\nare not " +
			"kept; numbers and names keep their spelling.",
		Example: "  holdfast ptx fmt kernel.ptx > tidy.ptx",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.parsePTX(args[0])
			if err != nil {
				return a.ptxErrors(err)
			}
			text := ptx.Format(m)
			if a.json {
				return a.printJSON(struct {
					File string `json:"file"`
					Text string `json:"text"`
				}{m.File, string(text)})
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
}

func (a *app) ptxASTVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "ast FILE",
		Short: "Print the syntax tree",
		Long: "Print the syntax tree of a PTX file: one node a line, with its position, indented below\nthe node " +
			"that it belongs to.",
		Example: "  holdfast ptx ast kernel.ptx\n  holdfast ptx ast --json kernel.ptx | jq '.Decls[].Name'",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.parsePTX(args[0])
			if err != nil {
				return a.ptxErrors(err)
			}
			tree, err := ptx.AppendJSON(nil, m)
			if err != nil {
				return fmt.Errorf("%s: %w", m.File, err)
			}
			if a.json {
				_, err = a.stdout.Write(append(tree, '\n'))
				return err
			}
			_, err = a.stdout.Write(outline(tree))
			return err
		},
	}
}

const ptxIRLong = `Print the analysed form of every kernel and function of a PTX file: SSA form, with
dominators, loops, induction variables and trip counts, live values, and which threads
have the same value, as comments. docs/ir.md explains it.`

func (a *app) ptxIRVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "ir FILE",
		Short:   "Print kernels in SSA form with what analyses find",
		Long:    ptxIRLong,
		Example: "  holdfast ptx ir kernel.ptx\n  holdfast ptx ir --json kernel.ptx | jq '.functions[].loops'",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.checkedPTX(args[0])
			if err != nil {
				return err
			}
			return a.ptxIR(m)
		},
	}
}

// An irFunction is a function in JSON: its text, and what is known of it.
type irFunction struct {
	Name   string   `json:"name"`
	Kernel bool     `json:"kernel"`
	Blocks int      `json:"blocks"`
	Values int      `json:"values"`
	Live   int      `json:"live"` // the most 32-bit registers that live at once
	Loops  []irLoop `json:"loops"`
	Text   string   `json:"text"`
}

type irLoop struct {
	Header      int      `json:"header"`
	Depth       int      `json:"depth"`
	Blocks      int      `json:"blocks"` // inner loops not counted
	Line        int      `json:"line"`
	Irreducible bool     `json:"irreducible"`
	Inductions  []string `json:"inductions"`
	Condition   string   `json:"condition,omitempty"`
	Count       *uint64  `json:"count,omitempty"` // how often it goes back, at most
	Exact       bool     `json:"exact"`
}

func (a *app) ptxIR(m *ptx.Module) error {
	list := []irFunction{}
	for _, f := range fromptx.Module(m).Funcs {
		var at *ptx.Error
		if errors.As(f.Err, &at) {
			return a.printDiagnostics([]diagnostic{diagnose(at)})
		}
		err := f.Err
		if err == nil {
			err = ir.Analyse(f, false)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.File, err)
		}
		if !a.json {
			if _, err := a.stdout.Write(append(ir.Format(f, true), '\n')); err != nil {
				return err
			}
			continue
		}
		list = append(list, describeIR(f))
	}
	if !a.json {
		return nil
	}
	return a.printJSON(struct {
		File      string       `json:"file"`
		Functions []irFunction `json:"functions"`
	}{m.File, list})
}

func describeIR(f *ir.Func) irFunction {
	out := irFunction{Name: f.Name, Kernel: f.Kernel, Blocks: len(f.Blocks), Values: len(f.Vals), Live: f.Live.Max,
		Loops: []irLoop{}, Text: string(ir.Format(f, false))}
	for _, l := range f.Loops.Loops {
		d := irLoop{Header: l.Header.Index, Depth: l.Depth, Blocks: len(l.Blocks), Irreducible: l.Irreducible,
			Inductions: []string{}}
		for _, in := range l.Header.Insts {
			if d.Line == 0 {
				d.Line = in.Pos
			}
		}
		for _, iv := range l.Inductions {
			d.Inductions = append(d.Inductions, iv.String())
		}
		if t := l.Trip; t != nil {
			d.Condition, d.Exact = t.String(), t.Exact
			if t.Known {
				d.Count = &t.Count
			}
		}
		out.Loops = append(out.Loops, d)
	}
	return out
}

// parsePTX reads and parses a file, or standard input for "-".
func (a *app) parsePTX(file string) (*ptx.Module, error) {
	r := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	// One byte above the limit makes Parse refuse; the rest need not be read for that.
	src, err := io.ReadAll(io.LimitReader(r, ptx.MaxSource+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return ptx.Parse(file, src)
}

// checkedPTX reads a PTX file in which every name is declared.
func (a *app) checkedPTX(file string) (*ptx.Module, error) {
	m, err := a.parsePTX(file)
	if err == nil {
		err = ptx.Check(m)
	}
	if err != nil {
		return nil, a.ptxErrors(err)
	}
	return m, nil
}

// A diagnostic is an error or a warning about a place in a PTX file.
type diagnostic struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Col     int    `json:"col"`
	Message string `json:"message"`
}

func (d diagnostic) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Col, d.Message)
}

func diagnose(e *ptx.Error) diagnostic {
	return diagnostic{e.File, e.Pos.Line, e.Pos.Col, e.Msg}
}

// ptxErrors prints the errors of a parse or a check; others are returned as they are.
func (a *app) ptxErrors(err error) error {
	var list ptx.ErrorList
	if !errors.As(err, &list) {
		return err
	}
	out := []diagnostic{}
	for _, e := range list {
		out = append(out, diagnose(e))
	}
	return a.printDiagnostics(out)
}

func (a *app) printDiagnostics(list []diagnostic) error {
	for _, d := range list {
		fmt.Fprintln(a.stderr, d)
	}
	if a.json {
		if err := a.printJSON(struct {
			Errors []diagnostic `json:"errors"`
		}{list}); err != nil {
			return err
		}
	}
	return &exitError{code: exitFailed}
}

// A ptxSummary says what a good file has.
type ptxSummary struct {
	File         string       `json:"file"`
	Version      string       `json:"version"`
	Target       []string     `json:"target"`
	Kernels      []string     `json:"kernels"`
	Functions    int          `json:"functions"` // with a body, kernels not counted
	Instructions int          `json:"instructions"`
	Warnings     []diagnostic `json:"warnings"`
}

func (a *app) ptxCheck(m *ptx.Module) error {
	if err := ptx.Check(m); err != nil {
		return a.ptxErrors(err)
	}
	sum := ptxSummary{File: m.File, Version: fmt.Sprintf("%d.%d", m.Version.Major, m.Version.Minor), Target: m.Target,
		Kernels: []string{}, Warnings: []diagnostic{}}
	var bad []diagnostic
	for _, d := range m.Decls {
		f, ok := d.(*ptx.Func)
		if !ok || f.Body == nil {
			continue
		}
		if f.Entry {
			sum.Kernels = append(sum.Kernels, f.Name)
		} else {
			sum.Functions++
		}
		eachInst(f.Body, func(in *ptx.Inst) {
			sum.Instructions++
			_, err := isa.Decode(in)
			var unknown *isa.UnsupportedError
			if !errors.As(err, &unknown) {
				return
			}
			d := diagnostic{m.File, in.Pos.Line, in.Pos.Col, unknown.Inst + ": " + unknown.Why}
			if unknown.Exists {
				d.Message = "warning: " + unknown.Inst + ": not supported: " + unknown.Why
				sum.Warnings = append(sum.Warnings, d)
			} else {
				bad = append(bad, d)
			}
		})
	}
	if len(bad) > ptx.MaxErrors {
		bad = bad[:ptx.MaxErrors]
	}
	if len(bad) > 0 {
		return a.printDiagnostics(bad)
	}
	if a.json {
		return a.printJSON(sum)
	}
	for _, d := range sum.Warnings {
		fmt.Fprintln(a.stderr, d)
	}
	_, err := fmt.Fprintf(a.stdout, "%s: PTX %s for %s: %d kernels, %d other functions, %d instructions\n",
		sum.File, sum.Version, strings.Join(sum.Target, ", "), len(sum.Kernels), sum.Functions, sum.Instructions)
	return err
}

// eachInst calls do for every instruction of a block, in source order. The parser bounds
// how deep blocks nest.
func eachInst(b *ptx.Block, do func(*ptx.Inst)) {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Inst:
			do(s)
		case *ptx.Block:
			eachInst(s, do)
		}
	}
}

// outline turns the JSON of a syntax tree into indented lines: a node is a line with its
// plain fields, and the fields that hold nodes follow below it.
func outline(tree []byte) []byte {
	o := &outliner{dec: json.NewDecoder(bytes.NewReader(tree))}
	o.dec.UseNumber()
	o.next() // the brace of the module
	o.node("", 0)
	return o.out.Bytes()
}

// An outliner reads one token after the other, so that its work is linear however deep
// the tree is.
type outliner struct {
	dec *json.Decoder
	out bytes.Buffer
}

func (o *outliner) next() json.Token {
	t, err := o.dec.Token()
	if err != nil {
		return nil // AppendJSON writes whole values only: not reached
	}
	return t
}

// node writes an object whose brace has been read.
func (o *outliner) node(label string, depth int) {
	fmt.Fprintf(&o.out, "%*s%s", 2*depth, "", label)
	open := true // the node's own line
	plain := func(key, value string) {
		if open {
			fmt.Fprintf(&o.out, " %s=%s", key, value)
		} else { // after a field that took lines
			fmt.Fprintf(&o.out, "%*s%s=%s\n", 2*depth+2, "", key, value)
		}
	}
	child := func(key string) {
		if open {
			o.out.WriteByte('\n')
			open = false
		}
		o.node(key+": ", depth+1)
	}
	for o.dec.More() {
		key, _ := o.next().(string)
		switch t := o.next(); t {
		case json.Delim('{'):
			child(key)
		case json.Delim('['):
			var words []string
			for o.dec.More() {
				if t := o.next(); t == json.Delim('{') {
					child(key)
				} else {
					words = append(words, plainText(key, t))
				}
			}
			o.next()
			if words != nil {
				plain(key, "["+strings.Join(words, " ")+"]")
			}
		default:
			if key == "node" {
				o.out.WriteString(plainText("Pos", t))
			} else {
				plain(key, plainText(key, t))
			}
		}
	}
	o.next()
	if open {
		o.out.WriteByte('\n')
	}
}

// plainText is a value as the outline shows it: text quoted, but not where it is one of a
// few words.
func plainText(key string, t json.Token) string {
	s, ok := t.(string)
	if !ok || key == "Pos" || key == "End" || key == "Type" || key == "Space" || key == "Link" || key == "Kind" ||
		key == "Bits" || key == "Version" {
		return fmt.Sprint(t)
	}
	return strconv.Quote(s)
}
