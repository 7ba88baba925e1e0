// Package api is the table of the CUDA driver API: every function that programs resolve, its symbols and their C
// parameters, what it does as far as holdfast cares, and its operation number on the wire of the software GPU. The
// table is driver.txt; the stub libcuda.so.1 and the shim's wrappers are generated from it (internal/cuda/gen).
//
// The package must not import anything but the standard library: generators and decoders build on it.
//
// Sources: the public CUDA driver API reference (CUDA 13.0), the names and signatures of cuda.h.
package api

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed driver.txt
var table string

// An Op is the number of a function on the wire of the software GPU. It never changes.
type Op uint32

// Class groups functions by what they are about.
type Class string

// The classes of driver.txt.
const (
	Query      Class = "query"
	Init       Class = "init"
	Ctx        Class = "ctx"
	Module     Class = "module"
	Alloc      Class = "alloc"   // gives device memory
	Free       Class = "free"    // takes it back
	HostMem    Class = "hostmem" // pinned host memory
	Managed    Class = "managed" // unified memory
	VMM        Class = "vmm"     // virtual memory management
	Pool       Class = "pool"
	IPC        Class = "ipc"
	Multicast  Class = "multicast"
	Copy       Class = "copy"
	Set        Class = "set"
	Launch     Class = "launch"
	MemOp      Class = "memop" // stream memory operations
	Callback   Class = "callback"
	Stream     Class = "stream"
	Sync       Class = "sync"
	Event      Class = "event"
	Capture    Class = "capture"
	Graph      Class = "graph"
	Array      Class = "array"
	Texture    Class = "texture"
	TensorMap  Class = "tensormap"
	Interop    Class = "interop"
	Debug      Class = "debug"
	Checkpoint Class = "checkpoint"
)

var classes = []Class{Query, Init, Ctx, Module, Alloc, Free, HostMem, Managed, VMM, Pool, IPC,
	Multicast, Copy, Set, Launch,
	MemOp, Callback, Stream, Sync, Event, Capture, Graph, Array, Texture, TensorMap, Interop, Debug, Checkpoint}

// A Function is one function of the driver API under its base name, without version suffix.
type Function struct {
	Op     Op
	Name   string // cuMemAlloc
	Class  Class
	Submit bool // can put work on the device that writes memory or runs code
	Gated  bool // waits at the shim's gate while the program is frozen; whatever submits work does
	Sync   bool // may wait for the device
	Calm   bool // waits for the device and does nothing else
	// Counts is the counter of the shim's page that a call increments: "launches", "graphs", "copies" or "".
	Counts string
	Local  bool // the stub answers by itself
	Hand   bool // the stub's marshalling is written by hand
	None   bool // the software GPU does not serve it
	// Symbols are its exported forms, oldest first.
	Symbols []Symbol
}

// A Symbol is one exported form of a function.
type Symbol struct {
	Name   string // cuMemAlloc_v2
	Since  int    // the CUDA version, as cuGetProcAddress counts: 12030 is 12.3
	Legacy bool   // 32-bit form of before CUDA 4: parameters not declared
	// PerThread is the suffix of the per-thread default stream's twin: "_ptsz", "_ptds" or "".
	PerThread string
	Params    []Param
	// Shim says that the shim's hand-written code answers it.
	Shim bool
	// Record is the record of its work that the shim makes, Memory what it tells a tap of memory that comes or goes.
	// Both are nil where there is none.
	Record, Memory *Clause
}

// A Clause is one clause of a symbol in driver.txt.
type Clause struct {
	Kind string // of a record: "launch", "graph", "copy", …; of memory: "gives", "takes", "maps"
	Args []string
}

// clauses are the kinds of clauses and how many arguments each takes, at least and at most.
var clauses = map[string]struct{ least, most int }{
	"other": {}, "host": {}, "launch": {0, 1}, "graph": {1, 1}, "copy": {3, 3}, "copy2d": {1, 1}, "copy3d": {1, 1},
	"set":   {6, 6},
	"gives": {3, 4}, "takes": {1, 2}, "maps": {3, 3},
}

// Pass says how a parameter travels between the stub and the software GPU.
type Pass uint8

// The ways. Names in brackets are the marks in driver.txt.
const (
	In       Pass = iota // a scalar, a handle or a structure by value
	InString             // a NUL-terminated string
	InOne                // pointer to one constant T
	InArray              // [in N]
	Out                  // pointer to one T written
	OutArray             // [out N]
	OutStr               // [str N]
	OutList              // [list N]: an array whose room is *N on entry
	InOut                // [inout]
	Raw                  // [raw]: the pointer's value, if anything
)

// A Param is one parameter of a Symbol.
type Param struct {
	Type  string // C type, pointer stars included: "const CUmemLocation *"
	Name  string
	Pass  Pass
	Count string // of InArray, OutArray, OutStr, OutList: a parameter's name or a number
}

// Elem is the type pointed to, without const: "CUmemLocation" of "const CUmemLocation *"; the type itself of a value.
func (p Param) Elem() string {
	t := strings.TrimSpace(strings.TrimPrefix(p.Type, "const "))
	return strings.TrimSpace(strings.TrimSuffix(t, "*"))
}

// Pointer reports whether p is a pointer in C.
func (p Param) Pointer() bool { return strings.HasSuffix(p.Type, "*") }

// Stream is the index of the stream parameter, the one that a null value makes the default stream; -1 if there is none.
func (s Symbol) Stream() int {
	for i, p := range s.Params {
		if p.Type == "CUstream" {
			return i
		}
	}
	return -1
}

// C is the parameter list as C: "CUdeviceptr *dptr, size_t bytesize", or "void".
func (s Symbol) C() string {
	if len(s.Params) == 0 {
		return "void"
	}
	var b strings.Builder
	for i, p := range s.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.Type)
		if !p.Pointer() {
			b.WriteByte(' ')
		}
		b.WriteString(p.Name)
	}
	return b.String()
}

// Canonical is the symbol whose parameters the function's message carries: the newest declared one. It is nil if
// there is none.
func (f *Function) Canonical() *Symbol {
	for i := len(f.Symbols) - 1; i >= 0; i-- {
		if s := &f.Symbols[i]; !s.Legacy {
			return s
		}
	}
	return nil
}

// Resolve is the symbol that cuGetProcAddress gives for the function's base name and a CUDA version: the newest one
// that is not newer than version. It is nil if the function is newer than that.
func (f *Function) Resolve(version int) *Symbol {
	for i := len(f.Symbols) - 1; i >= 0; i-- {
		if f.Symbols[i].Since <= version {
			return &f.Symbols[i]
		}
	}
	return nil
}

// ID is the name of the constant of the function's operation: "MemAlloc" of cuMemAlloc.
func (f *Function) ID() string { return strings.TrimPrefix(f.Name, "cu") }

// Functions is the table, in the order of operation numbers. The caller owns it.
func Functions() ([]Function, error) { return Parse(table) }

// Parse reads a table in the form of driver.txt.
func Parse(text string) ([]Function, error) {
	var fns []Function
	names, ops := map[string]bool{}, map[Op]bool{}
	for i, line := range strings.Split(text, "\n") {
		if t := strings.TrimSpace(line); t == "" || t[0] == '#' {
			continue
		}
		if line[0] != ' ' {
			f, err := parseFunction(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			if names[f.Name] || ops[f.Op] {
				return nil, fmt.Errorf("line %d: %s or number %d declared twice", i+1, f.Name, f.Op)
			}
			names[f.Name], ops[f.Op] = true, true
			fns = append(fns, f)
			continue
		}
		if len(fns) == 0 {
			return nil, fmt.Errorf("line %d: symbol without a function", i+1)
		}
		s, err := parseSymbol(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		f := &fns[len(fns)-1]
		if n := len(f.Symbols); n > 0 && f.Symbols[n-1].Since > s.Since {
			return nil, fmt.Errorf("line %d: %s is older than the symbol before it", i+1, s.Name)
		}
		f.Symbols = append(f.Symbols, s)
	}
	return fns, nil
}

func parseFunction(line string) (Function, error) {
	w := strings.Fields(line)
	if len(w) < 3 {
		return Function{}, fmt.Errorf("want NUMBER NAME CLASS, have %q", line)
	}
	n, err := strconv.ParseUint(w[0], 10, 16)
	if err != nil || n == 0 {
		return Function{}, fmt.Errorf("bad number %q", w[0])
	}
	f := Function{Op: Op(n), Name: w[1], Class: Class(w[2])}
	known := false
	for _, c := range classes {
		known = known || c == f.Class
	}
	if !known {
		return f, fmt.Errorf("%s: unknown class %q", f.Name, w[2])
	}
	for _, flag := range w[3:] {
		switch flag {
		case "submit":
			f.Submit, f.Gated = true, true
		case "gate":
			f.Gated = true
		case "calm":
			f.Calm = true
		case "counts=launches", "counts=graphs", "counts=copies":
			f.Counts = strings.TrimPrefix(flag, "counts=")
		case "sync":
			f.Sync = true
		case "local":
			f.Local = true
		case "hand":
			f.Hand = true
		case "none":
			f.None = true
		default:
			return f, fmt.Errorf("%s: unknown flag %q", f.Name, flag)
		}
	}
	return f, nil
}

func parseSymbol(line string) (Symbol, error) {
	w := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(w) < 3 {
		return Symbol{}, fmt.Errorf("want SINCE SYMBOL (PARAMETERS), have %q", line)
	}
	since, err := strconv.Atoi(w[0])
	if err != nil {
		return Symbol{}, fmt.Errorf("bad version %q", w[0])
	}
	s := Symbol{Since: since}
	name, per, found := strings.Cut(w[1], "+")
	if s.Name = name; found {
		if per != "ptsz" && per != "ptds" {
			return s, fmt.Errorf("%s: unknown suffix %q", name, per)
		}
		s.PerThread = "_" + per
	}
	if w[2] == "legacy" {
		s.Legacy = true
		return s, nil
	}
	list, rest, closed := strings.Cut(w[2], ")")
	if list[0] != '(' || !closed {
		return s, fmt.Errorf("%s: parameters want parentheses: %q", name, w[2])
	}
	if s.Params, err = parseParams(list[1:]); err == nil {
		err = s.parseClauses(rest)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// parseClauses reads what follows the parameters.
func (s *Symbol) parseClauses(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for _, clause := range strings.Split(text, ";") {
		w := strings.Fields(clause)
		kind, place := "", &s.Memory
		switch {
		case len(w) == 1 && w[0] == "shim":
			s.Shim = true
			continue
		case len(w) > 1 && w[0] == "record":
			w, place = w[1:], &s.Record
			kind = w[0]
		case len(w) > 0 && (w[0] == "gives" || w[0] == "takes" || w[0] == "maps"):
			kind = w[0]
		}
		want, known := clauses[kind]
		if n := len(w) - 1; !known || n < want.least || n > want.most || *place != nil {
			return fmt.Errorf("bad clause %q", clause)
		}
		*place = &Clause{kind, w[1:]}
	}
	return nil
}

func parseParams(list string) ([]Param, error) {
	if list == "void" {
		return nil, nil
	}
	var ps []Param
	for _, decl := range strings.Split(list, ",") {
		p, err := parseParam(strings.TrimSpace(decl))
		if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}

func parseParam(decl string) (Param, error) {
	mark := ""
	if rest, ok := strings.CutPrefix(decl, "["); ok {
		var found bool
		if mark, decl, found = strings.Cut(rest, "] "); !found {
			return Param{}, fmt.Errorf("unclosed mark in %q", decl)
		}
	}
	at := strings.LastIndexAny(decl, " *")
	if at < 0 {
		return Param{}, fmt.Errorf("no type in %q", decl)
	}
	p := Param{Type: strings.TrimSpace(decl[:at+1]), Name: decl[at+1:]}
	kind, count, _ := strings.Cut(mark, " ")
	p.Count = count
	switch {
	case kind == "raw":
		p.Pass = Raw
	case kind == "in":
		p.Pass = InArray
	case kind == "out":
		p.Pass = OutArray
	case kind == "str":
		p.Pass = OutStr
	case kind == "list":
		p.Pass = OutList
	case kind == "inout":
		p.Pass = InOut
	case kind != "":
		return p, fmt.Errorf("unknown mark %q", mark)
	case p.Type == "const char *":
		p.Pass = InString
	case p.Pointer() && strings.HasPrefix(p.Type, "const ") && !strings.HasSuffix(p.Type, "**"):
		p.Pass = InOne
	case p.Pointer():
		p.Pass = Out
	}
	return p, nil
}
