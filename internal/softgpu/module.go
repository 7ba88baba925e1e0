package softgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// A Module is a PTX module ready to be instantiated.
type Module struct {
	file    string
	version ptx.Version
	target  int // as KernelInfo.Target
	funcs   map[string]*ptx.Func
	order   []string // of all functions with a body, for code addresses
	codeIdx map[string]int
	vars    map[string]*ptx.Var // module scope, definitions before declarations
	globals []Global
	byName  map[string]int // index in globals
	byVar   map[*ptx.Var]int
	decls   []*ptx.Var // of globals
	data    uint64
	image   []byte  // initial values
	patches []patch // addresses in it
	kernels []KernelInfo
	taken   map[string]bool // functions whose address is taken

	mu    sync.Mutex
	progs map[string]*programOrError
}

type programOrError struct {
	once sync.Once
	prog *program
	err  error
}

// A patch is an address in the data image: of a symbol plus add, or one byte of it.
type patch struct {
	at    uint64
	size  int
	sym   string
	add   int64
	shift uint
}

// A Param is one kernel parameter in the parameter buffer.
type Param struct {
	Name                string
	Offset, Size, Align uint32
}

// A KernelInfo describes an entry.
type KernelInfo struct {
	Name         string
	Params       []Param
	ParamBytes   uint32
	SharedStatic uint32    // bytes of static shared memory
	LocalBytes   uint32    // of a thread
	ConstBytes   uint32    // of the module's constants
	NumRegs      int       // virtual registers, in 32-bit units
	MaxRegs      int       // .maxnreg; 0 = any
	Target       int       // the compute capability that the PTX is for, times ten; 0 = unknown
	MaxThreads   int       // of a block: .maxntid or .reqntid, else 1024
	Cluster      [3]uint32 // .reqnctapercluster; zero = any
	MaxCluster   int       // .maxclusterrank; 0 = any
	NeedsCluster bool      // .explicitcluster without a size: every launch says one
	Unsupported  string    // why a launch will be refused; "" = it will not
}

// A Global is a module-scope .global or .const variable.
type Global struct {
	Name   string
	Offset uint64 // in the data image
	Size   uint64
	Align  uint64
	Const  bool
}

// maxData bounds the data image of a module.
const maxData = 4 << 30

// Load checks a module and lays out its data. A kernel with instructions that
// are not supported is refused when it is launched; KernelInfo says so before.
func Load(m *ptx.Module) (*Module, error) {
	if m.AddressSize == 32 {
		return nil, fmt.Errorf("%s: 32-bit addresses are not supported", m.File)
	}
	mod := &Module{
		file: m.File, version: m.Version, target: targetOf(m),
		funcs: map[string]*ptx.Func{}, codeIdx: map[string]int{}, vars: map[string]*ptx.Var{},
		byName: map[string]int{}, byVar: map[*ptx.Var]int{},
		taken: map[string]bool{}, progs: map[string]*programOrError{},
	}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *ptx.Func:
			if old := mod.funcs[d.Name]; old == nil || old.Body == nil {
				mod.funcs[d.Name] = d
			}
			if d.Body != nil {
				if _, seen := mod.codeIdx[d.Name]; !seen {
					mod.codeIdx[d.Name] = len(mod.order)
					mod.order = append(mod.order, d.Name)
				}
			}
		case *ptx.Var:
			if old := mod.vars[d.Name]; old == nil || old.Link == ptx.LinkExtern {
				mod.vars[d.Name] = d
			}
		case *ptx.Alias:
			if f := mod.funcs[d.Aliasee]; f != nil {
				mod.funcs[d.Name] = f
				if i, ok := mod.codeIdx[d.Aliasee]; ok {
					mod.codeIdx[d.Name] = i
				}
			}
		}
	}
	for _, d := range m.Decls {
		if v, ok := d.(*ptx.Var); ok && (v.Space == ptx.SpaceGlobal || v.Space == ptx.SpaceConst) &&
			v.Link != ptx.LinkExtern && mod.vars[v.Name] == v {
			if err := mod.place(v, v.Name); err != nil {
				return nil, fmt.Errorf("%s:%d:%d: %s: %w", m.File, v.Pos.Line, v.Pos.Col, v.Name, err)
			}
			mod.byName[v.Name] = mod.byVar[v]
		}
	}
	for _, name := range mod.order {
		if f := mod.funcs[name]; f.Body != nil {
			if err := mod.placeStatics(f.Body, f.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", m.File, err)
			}
		}
	}
	mod.image = make([]byte, mod.data)
	for i, g := range mod.globals {
		v := mod.decls[i]
		if v.Init == nil {
			continue
		}
		if err := mod.initialise(v, g); err != nil {
			return nil, fmt.Errorf("%s:%d:%d: %s: %w", m.File, v.Pos.Line, v.Pos.Col, v.Name, err)
		}
	}
	for _, name := range mod.order {
		f := mod.funcs[name]
		if f.Body != nil {
			mod.findTaken(f.Body)
		}
	}
	for _, name := range mod.order {
		if f := mod.funcs[name]; f.Entry {
			mod.kernels = append(mod.kernels, mod.describe(f))
		}
	}
	return mod, nil
}

func elemSize(t ptx.Type) uint64 { return uint64(max(8, isa.Bits(t))) / 8 }

// varSize is the size and alignment of a variable; open dimensions count as open.
func varSize(v *ptx.Var) (size, align uint64, open bool, err error) {
	size = elemSize(v.Type)
	if v.Vec > 1 {
		size *= uint64(v.Vec)
	}
	align = size
	for i, n := range v.Dims {
		if n < 0 {
			if i == 0 && v.Init != nil {
				n = len(v.Init.List)
			} else {
				open = true
				n = 0
			}
		}
		size *= uint64(n)
		if size > maxData {
			return 0, 0, false, fmt.Errorf("larger than %d bytes", uint64(maxData))
		}
	}
	if v.Count > 0 {
		size *= uint64(v.Count)
	}
	if v.Align > 0 {
		align = uint64(v.Align)
	}
	if align&(align-1) != 0 || align > PageSize {
		return 0, 0, false, fmt.Errorf("alignment %d", align)
	}
	return size, align, open, nil
}

func alignUp[T uint32 | uint64](x, n T) T { return (x + n - 1) &^ (n - 1) }

// placeStatics lays out the global and constant variables inside a function.
func (m *Module) placeStatics(b *ptx.Block, fn string) error {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Block:
			if err := m.placeStatics(s, fn); err != nil {
				return err
			}
		case *ptx.VarStmt:
			for _, v := range s.Vars {
				if v.Space == ptx.SpaceGlobal || v.Space == ptx.SpaceConst {
					if err := m.place(v, fn+"$"+v.Name); err != nil {
						return fmt.Errorf("%d:%d: %s: %w", v.Pos.Line, v.Pos.Col, v.Name, err)
					}
				}
			}
		}
	}
	return nil
}

func (m *Module) place(v *ptx.Var, name string) error {
	size, align, _, err := varSize(v)
	if err != nil {
		return err
	}
	off := alignUp(m.data, align)
	if off+size > maxData {
		return fmt.Errorf("the data of the module exceeds %d bytes", uint64(maxData))
	}
	m.data = off + size
	m.byVar[v] = len(m.globals)
	m.decls = append(m.decls, v)
	m.globals = append(m.globals, Global{Name: name, Offset: off, Size: size, Align: align,
		Const: v.Space == ptx.SpaceConst})
	return nil
}

// initialise writes the initial value of v.
func (m *Module) initialise(v *ptx.Var, g Global) error {
	dims := slices.Clone(v.Dims)
	if v.Vec > 1 {
		dims = append(dims, v.Vec)
	}
	if len(dims) > 0 && dims[0] < 0 {
		dims[0] = len(v.Init.List)
	}
	elem := elemSize(v.Type)
	var fill func(in *ptx.Init, dims []int, at uint64) error
	fill = func(in *ptx.Init, dims []int, at uint64) error {
		if at+elem > g.Offset+g.Size {
			return fmt.Errorf("initializer is longer than the variable")
		}
		if in.Value != nil {
			return m.initValue(in.Value, v.Type, at, int(elem))
		}
		step := elem
		rest := dims
		if len(dims) > 0 {
			rest = dims[1:]
			for _, n := range rest {
				step *= uint64(n)
			}
		}
		for i, x := range in.List {
			if err := fill(x, rest, at+uint64(i)*step); err != nil {
				return err
			}
		}
		return nil
	}
	return fill(v.Init, dims, g.Offset)
}

func (m *Module) initValue(x ptx.Operand, t ptx.Type, at uint64, size int) error {
	switch x := x.(type) {
	case *ptx.Imm:
		m.putImage(at, size, immBits(x, t))
	case *ptx.Ref:
		return m.addPatch(patch{at: at, size: size, sym: x.Name})
	case *ptx.Generic:
		return m.addPatch(patch{at: at, size: size, sym: x.Name, add: x.Off})
	case *ptx.Mask:
		shift := uint(0)
		for b := x.Bits; b > 0xff; b >>= 8 {
			shift += 8
		}
		return m.addPatch(patch{at: at, size: size, sym: x.X.Name, add: x.X.Off, shift: shift})
	default:
		return fmt.Errorf("initializer of kind %T", x)
	}
	return nil
}

func (m *Module) addPatch(p patch) error {
	if _, ok := m.byName[p.sym]; !ok {
		f, isFunc := m.funcs[p.sym]
		if !isFunc {
			return fmt.Errorf("initializer names %s, which is not defined here", p.sym)
		}
		m.taken[f.Name] = true
	}
	m.patches = append(m.patches, p)
	return nil
}

func (m *Module) putImage(at uint64, size int, x uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], x)
	copy(m.image[at:at+uint64(min(size, 8))], b[:])
}

// findTaken notes functions that occur as operands.
func (m *Module) findTaken(b *ptx.Block) {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Block:
			m.findTaken(s)
		case *ptx.Inst:
			for _, x := range s.Args {
				if r, ok := x.(*ptx.Ref); ok {
					if f := m.funcs[r.Name]; f != nil && f.Body != nil {
						m.taken[f.Name] = true
					}
				}
			}
		}
	}
}

func paramLayout(f *ptx.Func) (ps []Param, total uint32, err error) {
	var off uint64
	for _, v := range f.Params {
		size, align, open, err := varSize(v)
		if err != nil || open {
			return nil, 0, fmt.Errorf("parameter %s: size is not known", v.Name)
		}
		off = alignUp(off, align)
		ps = append(ps, Param{Name: v.Name, Offset: uint32(off), Size: uint32(size), Align: uint32(align)})
		off += size
		if off > MaxParams {
			return nil, 0, fmt.Errorf("more than %d bytes of parameters", MaxParams)
		}
	}
	return ps, uint32(off), nil
}

func (m *Module) describe(f *ptx.Func) KernelInfo {
	k := KernelInfo{Name: f.Name, MaxThreads: maxThreads(f), MaxRegs: maxRegisters(f)}
	k.ConstBytes, k.Target = m.constants(), m.target
	if k.MaxThreads == 0 {
		k.MaxThreads = MaxBlockThreads
	}
	var err error
	if k.Params, k.ParamBytes, err = paramLayout(f); err != nil {
		k.Unsupported = err.Error()
		return k
	}
	p, err := m.program(f.Name)
	if err != nil {
		k.Unsupported = err.Error()
		return k
	}
	k.SharedStatic, k.LocalBytes, k.NumRegs = p.sharedStatic, p.localStatic, p.numRegs
	k.Cluster, k.MaxCluster = p.cluster, p.maxCluster
	k.NeedsCluster = p.explicitCluster && p.cluster == [3]uint32{}
	return k
}

// constants is the size of the module's constants when they lie in memory of their own.
func (m *Module) constants() uint32 {
	var n uint64
	for _, g := range m.globals {
		if g.Const {
			n = alignUp(n, max(g.Align, 1)) + g.Size
		}
	}
	return uint32(min(n, math.MaxInt32))
}

// targetOf is the number of a target: 90 of sm_90a.
func targetOf(m *ptx.Module) int {
	for _, t := range m.Target {
		if digits, ok := strings.CutPrefix(t, "sm_"); ok {
			if n, err := strconv.Atoi(strings.TrimRight(digits, "af")); err == nil {
				return n
			}
		}
	}
	return 0
}

func maxRegisters(f *ptx.Func) int {
	for _, d := range f.Perf {
		if d.Name == ".maxnreg" && len(d.Args) == 1 {
			if n, err := strconv.Atoi(d.Args[0]); err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

func maxThreads(f *ptx.Func) int {
	for _, d := range f.Perf {
		if d.Name == ".maxntid" || d.Name == ".reqntid" {
			n := 1
			for _, a := range d.Args {
				if x, err := strconv.Atoi(a); err == nil && x > 0 && x <= MaxBlockThreads {
					n *= x
				}
			}
			return n
		}
	}
	return 0
}

// Kernels lists the entries in source order.
func (m *Module) Kernels() []KernelInfo { return m.kernels }

// Globals lists the variables with an address, in the order of their offsets.
func (m *Module) Globals() []Global { return m.globals }

// DataSize is the size in bytes of the data image.
func (m *Module) DataSize() uint64 { return m.data }

// program translates a kernel once.
func (m *Module) program(kernel string) (*program, error) {
	m.mu.Lock()
	pe := m.progs[kernel]
	if pe == nil {
		pe = &programOrError{}
		m.progs[kernel] = pe
	}
	m.mu.Unlock()
	pe.once.Do(func() { pe.prog, pe.err = m.translate(kernel) })
	return pe.prog, pe.err
}

// An Instance is a module whose data lies at an address of a space.
type Instance struct {
	mod      *Module
	space    *Space
	base     uint64
	launches atomic.Uint64
}

// Instantiate writes the initial values of the module's variables to
// base..base+DataSize, which must be mapped writable. base must be a multiple of the
// largest alignment of the globals; 256 always is.
func (m *Module) Instantiate(s *Space, base uint64) (*Instance, error) {
	mem, err := s.Bytes(base, m.data)
	if err != nil {
		return nil, fmt.Errorf("data of %s: %w", m.file, err)
	}
	copy(mem, m.image)
	for _, p := range m.patches {
		x := (m.address(p.sym, base) + uint64(p.add)) >> p.shift
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], x)
		copy(mem[p.at:p.at+uint64(min(p.size, 8))], b[:])
	}
	return m.Attach(s, base), nil
}

// Attach is Instantiate for memory that holds the variables already.
func (m *Module) Attach(s *Space, base uint64) *Instance {
	return &Instance{mod: m, space: s, base: base}
}

// address is where symbol sym lies when the data is at base.
func (m *Module) address(sym string, base uint64) uint64 {
	if i, ok := m.byName[sym]; ok {
		return base + m.globals[i].Offset
	}
	return codeWindow + uint64(m.codeIdx[m.funcs[sym].Name])*codeStep
}
