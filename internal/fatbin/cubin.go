package fatbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits on cubins.
const (
	maxSections = 1 << 16
	maxSymbols  = 1 << 22
	maxParams   = 1 << 12
)

// ELF constants of cubins (LLVM's ELF.h).
const (
	elfMachineCUDA = 190
	elfABIv2       = 8 // e_ident[EI_ABIVERSION]: the architecture moved up a byte
	sectionNoBits  = 8
	sectionSymtab  = 2
	symbolObject   = 1
	symbolFunc     = 2
	otherEntry     = 0x10 // st_other of a kernel
)

// A Cubin is an ELF file for EM_CUDA.
type Cubin struct {
	Arch     int  // 90 for sm_90 and sm_90a
	Specific bool // sm_90a
	ABI      int  // 8 since toolkit 13
	Flags    uint32
	Sections []Section
	Kernels  []Kernel // entries and device functions that have a section of code, in symbol order
	Globals  []Global // in symbol order
}

// A Section of a cubin. Data is nil for those that take no place in the file.
type Section struct {
	Name string
	Type uint32
	Info uint32
	Link uint32
	Size uint64
	Data []byte

	Flags, Align uint64
}

// A Kernel is a function of a cubin: an entry, or code that others call.
type Kernel struct {
	Name       string
	Entry      bool
	Code       []byte
	Regs       int // registers a thread; 0 = unsaid
	Shared     uint64
	Frame      uint32    // bytes of stack frame
	Stack      uint32    // least bytes of stack with everything it calls
	MaxThreads [3]uint32 // .maxntid; 0 = unsaid
	ReqThreads [3]uint32 // .reqntid; 0 = unsaid
	ParamBase  uint16    // of the parameters in constant bank 0
	ParamBytes uint16
	Params     []Param // by ordinal
	Attrs      []Attr  // everything .nv.info says about it, as written
}

// A Param is a kernel parameter.
type Param struct {
	Ordinal, Offset, Size int
}

// A Global is a variable of a cubin.
type Global struct {
	Name    string
	Section string // .nv.global, .nv.global.init, .nv.constant3, …
	Offset  uint64 // in the section
	Size    uint64
	Init    []byte // nil = zeros
}

// An Attr is one attribute of .nv.info.
type Attr struct {
	ID    uint8
	Value []byte // of formats 2 and 3 the two bytes in the attribute itself
}

// Attributes of .nv.info (EIATTR_*).
const (
	attrMaxThreads  = 0x05
	attrParamCBank  = 0x0a
	attrReqThreads  = 0x10
	attrFrameSize   = 0x11
	attrMinStack    = 0x12
	attrParam       = 0x17
	attrParamBytes  = 0x19
	attrRegisters   = 0x2f
	attrParamV2     = 0x45
	infoFormatSized = 4
)

// OpenCubin reads a cubin. The result refers to b.
func OpenCubin(b []byte) (*Cubin, error) {
	r, err := readELF(b)
	if err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	c := &Cubin{ABI: int(r.abi), Flags: r.flags, Sections: r.sections}
	if r.abi >= elfABIv2 {
		c.Arch, c.Specific = int(r.flags>>8&0xff), r.flags&0x8 != 0
	} else {
		c.Arch, c.Specific = int(r.flags&0xff), r.flags&0x800 != 0
	}
	if err := c.symbols(); err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	return c, nil
}

// An elfFile is what readELF finds before symbols are looked at.
type elfFile struct {
	abi      byte
	flags    uint32
	sections []Section
}

// readELF reads the section table of a little-endian ELF64 file. debug/elf does
// not take cubins: they carry an e_version of their own.
func readELF(b []byte) (*elfFile, error) {
	le := binary.LittleEndian
	if len(b) < 64 || le.Uint32(b) != magicELF {
		return nil, errors.New("not an ELF file")
	}
	if b[4] != 2 || b[5] != 1 {
		return nil, errors.New("not a little-endian ELF64 file")
	}
	if m := le.Uint16(b[18:]); m != elfMachineCUDA {
		return nil, fmt.Errorf("ELF machine is %d, not CUDA's %d", m, elfMachineCUDA)
	}
	f := &elfFile{abi: b[8], flags: le.Uint32(b[48:])}
	shoff, entsize := le.Uint64(b[40:]), uint64(le.Uint16(b[58:]))
	num, names := uint64(le.Uint16(b[60:])), uint64(le.Uint16(b[62:]))
	if shoff == 0 {
		return f, nil
	}
	if entsize != 64 || shoff > uint64(len(b)) || uint64(len(b))-shoff < 64 {
		return nil, fmt.Errorf("section table at %#x with entries of %d bytes does not fit %d bytes", shoff,
			entsize, len(b))
	}
	if num == 0 { // the true number is in the first header
		num = le.Uint64(b[shoff+32:])
	}
	if names == 0xffff {
		names = uint64(le.Uint32(b[shoff+40:]))
	}
	if num > maxSections || num > (uint64(len(b))-shoff)/64 {
		return nil, fmt.Errorf("%d sections at %#x do not fit %d bytes", num, shoff, len(b))
	}
	nameAt := make([]uint32, num)
	for i := range num {
		h := b[shoff+64*i:]
		s := Section{Type: le.Uint32(h[4:]), Link: le.Uint32(h[40:]), Info: le.Uint32(h[44:]), Size: le.Uint64(h[32:]),
			Flags: le.Uint64(h[8:]), Align: le.Uint64(h[48:])}
		nameAt[i] = le.Uint32(h)
		if off := le.Uint64(h[24:]); s.Type != sectionNoBits && s.Size > 0 && i > 0 {
			if off > uint64(len(b)) || s.Size > uint64(len(b))-off {
				return nil, fmt.Errorf("section %d, %d bytes at %#x, lies outside the file of %d bytes", i, s.Size, off,
					len(b))
			}
			s.Data = b[off : off+s.Size : off+s.Size]
		}
		f.sections = append(f.sections, s)
	}
	if names >= num {
		return nil, fmt.Errorf("section names are in section %d of %d", names, num)
	}
	for i := range f.sections {
		var err error
		if f.sections[i].Name, err = stringAt(f.sections[names].Data, nameAt[i]); err != nil {
			return nil, fmt.Errorf("name of section %d: %w", i, err)
		}
	}
	return f, nil
}

func stringAt(table []byte, off uint32) (string, error) {
	if off == 0 && len(table) == 0 {
		return "", nil
	}
	if uint64(off) >= uint64(len(table)) {
		return "", fmt.Errorf("string at %d lies outside the table of %d bytes", off, len(table))
	}
	s := table[off:]
	end := slices.Index(s, 0)
	if end < 0 || end > 1<<16 {
		return "", fmt.Errorf("string at %d does not end", off)
	}
	return string(s[:end]), nil
}

func (c *Cubin) section(name string) *Section {
	for i := range c.Sections {
		if c.Sections[i].Name == name {
			return &c.Sections[i]
		}
	}
	return nil
}

// PTX is the text that ptxas assembled the cubin from, which it leaves there when it keeps line numbers (-lineinfo,
// -G); nil if there is none. Comments, .loc and the contents of debug sections are not in it.
func (c *Cubin) PTX() []byte {
	if s := c.section(".nv_debug_ptx_txt"); s != nil && len(s.Data) > 0 {
		return Lines(s.Data)
	}
	return nil
}

// Lines makes text of a section of lines, each with a zero behind it.
func Lines(section []byte) []byte {
	return bytes.ReplaceAll(section, []byte{0}, []byte{'\n'})
}

// symbols fills Kernels and Globals.
func (c *Cubin) symbols() error {
	i := slices.IndexFunc(c.Sections, func(s Section) bool { return s.Type == sectionSymtab })
	if i < 0 {
		return nil
	}
	table := c.Sections[i]
	if int64(table.Link) >= int64(len(c.Sections)) {
		return fmt.Errorf("symbol names are in section %d of %d", table.Link, len(c.Sections))
	}
	names := c.Sections[table.Link].Data
	if len(table.Data)/24 > maxSymbols {
		return fmt.Errorf("%d symbols, the limit is %d", len(table.Data)/24, maxSymbols)
	}
	bySection := map[string]int{}
	for j := range c.Sections {
		if _, ok := bySection[c.Sections[j].Name]; !ok {
			bySection[c.Sections[j].Name] = j
		}
	}
	byIndex := map[uint32]int{} // symbol to kernel
	le := binary.LittleEndian
	for n, sym := uint32(0), table.Data; len(sym) >= 24; n, sym = n+1, sym[24:] {
		in := int(le.Uint16(sym[6:]))
		kind := sym[4] & 15
		if in == 0 || in >= len(c.Sections) || kind != symbolFunc && kind != symbolObject {
			continue
		}
		name, err := stringAt(names, le.Uint32(sym))
		if err != nil {
			return fmt.Errorf("name of symbol %d: %w", n, err)
		}
		s, value, size := &c.Sections[in], le.Uint64(sym[8:]), le.Uint64(sym[16:])
		if value > s.Size || size > s.Size-value {
			return fmt.Errorf("symbol %s, %d bytes at %#x, lies outside section %s of %d bytes", name, size, value,
				s.Name, s.Size)
		}
		var data []byte
		if s.Data != nil {
			data = s.Data[value : value+size]
		}
		if kind == symbolObject {
			c.Globals = append(c.Globals, Global{Name: name, Section: s.Name, Offset: value, Size: size, Init: data})
			continue
		}
		if !strings.HasPrefix(s.Name, ".text.") {
			continue
		}
		k := Kernel{Name: name, Entry: sym[5]&otherEntry != 0, Code: data}
		if j, ok := bySection[".nv.shared."+name]; ok {
			k.Shared = c.Sections[j].Size
		}
		if j, ok := bySection[".nv.info."+name]; ok {
			if err := k.info(c.Sections[j].Data); err != nil {
				return fmt.Errorf("attributes of %s: %w", name, err)
			}
		}
		byIndex[n] = len(c.Kernels)
		c.Kernels = append(c.Kernels, k)
	}
	return c.moduleInfo(byIndex)
}

// attributes cuts a .nv.info section: a format byte, an attribute, and two bytes
// that are the value or the size of what follows.
func attributes(b []byte) ([]Attr, error) {
	var list []Attr
	for off := 0; off < len(b); {
		if len(b)-off < 4 {
			return nil, fmt.Errorf("attribute at %d is cut short", off)
		}
		format, id, n := b[off], b[off+1], int(binary.LittleEndian.Uint16(b[off+2:]))
		value := b[off+2 : off+4]
		off += 4
		if format == infoFormatSized {
			if n > len(b)-off {
				return nil, fmt.Errorf("attribute %#x at %d claims %d bytes, there are %d", id, off-4, n, len(b)-off)
			}
			value = b[off : off+n]
			off += n
		}
		list = append(list, Attr{id, value})
	}
	return list, nil
}

// info reads the attributes of one function.
func (k *Kernel) info(b []byte) error {
	var err error
	if k.Attrs, err = attributes(b); err != nil {
		return err
	}
	le := binary.LittleEndian
	for _, a := range k.Attrs {
		v := a.Value
		switch {
		case a.ID == attrMaxThreads && len(v) >= 12:
			k.MaxThreads = [3]uint32{le.Uint32(v), le.Uint32(v[4:]), le.Uint32(v[8:])}
		case a.ID == attrReqThreads && len(v) >= 12:
			k.ReqThreads = [3]uint32{le.Uint32(v), le.Uint32(v[4:]), le.Uint32(v[8:])}
		case a.ID == attrParamBytes && len(v) >= 2:
			k.ParamBytes = le.Uint16(v)
		case a.ID == attrParamCBank && len(v) >= 8:
			k.ParamBase, k.ParamBytes = le.Uint16(v[4:]), le.Uint16(v[6:])
		case (a.ID == attrParam || a.ID == attrParamV2) && len(v) >= 12:
			if len(k.Params) == maxParams {
				return fmt.Errorf("more than %d parameters", maxParams)
			}
			size := le.Uint32(v[8:]) >> 18
			if a.ID == attrParamV2 { // written where a size does not fit 14 bits
				size = le.Uint32(v[8:]) & 0xffff
			}
			k.Params = append(k.Params, Param{int(le.Uint16(v[4:])), int(le.Uint16(v[6:])), int(size)})
		}
	}
	slices.SortFunc(k.Params, func(a, b Param) int { return a.Ordinal - b.Ordinal })
	return nil
}

// moduleInfo reads .nv.info, whose attributes name their function by symbol.
func (c *Cubin) moduleInfo(byIndex map[uint32]int) error {
	s := c.section(".nv.info")
	if s == nil {
		return nil
	}
	list, err := attributes(s.Data)
	if err != nil {
		return fmt.Errorf("attributes of the module: %w", err)
	}
	for _, a := range list {
		if len(a.Value) < 8 {
			continue
		}
		i, ok := byIndex[binary.LittleEndian.Uint32(a.Value)]
		if !ok {
			continue
		}
		n := binary.LittleEndian.Uint32(a.Value[4:])
		switch k := &c.Kernels[i]; a.ID {
		case attrRegisters:
			k.Regs = int(n)
		case attrFrameSize:
			k.Frame = n
		case attrMinStack:
			k.Stack = max(k.Stack, n)
		}
	}
	return nil
}

// ELFSize is how long an ELF file is by its header and section table, for
// images that are known by their address only. b is the first 64 bytes.
func ELFSize(b []byte) (int64, error) {
	le := binary.LittleEndian
	if len(b) < 64 || le.Uint32(b) != magicELF || b[4] != 2 || b[5] != 1 {
		return 0, errors.New("not a little-endian ELF64 file")
	}
	sections := le.Uint64(b[40:]) + uint64(le.Uint16(b[58:]))*uint64(le.Uint16(b[60:]))
	segments := le.Uint64(b[32:]) + uint64(le.Uint16(b[54:]))*uint64(le.Uint16(b[56:]))
	n := max(sections, segments, 64)
	if n > 1<<40 {
		return 0, fmt.Errorf("ELF file claims %d bytes", n)
	}
	return int64(n), nil
}
