package fatbin

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A Symbol of a cubin, by its number in the table. Section 0 is none: somebody else has it.
type Symbol struct {
	Name        string
	Section     int
	Value, Size uint64
	Func        bool
	Entry       bool
}

// A Relocation is a place in a section where the address of a symbol belongs.
type Relocation struct {
	Section, Symbol int
	Offset          uint64
	Type            uint32 // R_CUDA_*
	Addend          int64
}

// Section types of relocations, and the section number of what stands in none (LLVM's ELF.h).
const (
	sectionRela = 4
	sectionRel  = 9
	reserveFrom = 0xff00
)

// Link lists what placing a cubin needs: all symbols, and all relocations of sections that are loaded (SHF_ALLOC).
func (c *Cubin) Link() ([]Symbol, []Relocation, error) {
	syms, err := c.allSymbols()
	if err != nil {
		return nil, nil, fmt.Errorf("cubin: %w", err)
	}
	var relocs []Relocation
	for i := range c.Sections {
		s := &c.Sections[i]
		if s.Type != sectionRela && s.Type != sectionRel || int64(s.Info) >= int64(len(c.Sections)) ||
			c.Sections[s.Info].Flags&flagAlloc == 0 {
			continue
		}
		if relocs, err = relocations(relocs, s, c.Sections[s.Info].Size, len(syms)); err != nil {
			return nil, nil, fmt.Errorf("cubin: section %s: %w", s.Name, err)
		}
	}
	return syms, relocs, nil
}

const flagAlloc = 2 // SHF_ALLOC

// allSymbols reads the symbol table.
func (c *Cubin) allSymbols() ([]Symbol, error) {
	i := slices.IndexFunc(c.Sections, func(s Section) bool { return s.Type == sectionSymtab })
	if i < 0 {
		return nil, nil
	}
	table := c.Sections[i]
	if int64(table.Link) >= int64(len(c.Sections)) {
		return nil, fmt.Errorf("symbol names are in section %d of %d", table.Link, len(c.Sections))
	}
	if len(table.Data)/24 > maxSymbols {
		return nil, fmt.Errorf("%d symbols, the limit is %d", len(table.Data)/24, maxSymbols)
	}
	le := binary.LittleEndian
	list := make([]Symbol, 0, len(table.Data)/24)
	for sym := table.Data; len(sym) >= 24; sym = sym[24:] {
		name, err := stringAt(c.Sections[table.Link].Data, le.Uint32(sym))
		if err != nil {
			return nil, fmt.Errorf("name of symbol %d: %w", len(list), err)
		}
		s := Symbol{Name: name, Section: int(le.Uint16(sym[6:])), Value: le.Uint64(sym[8:]), Size: le.Uint64(sym[16:]),
			Func: sym[4]&15 == symbolFunc, Entry: sym[5]&otherEntry != 0}
		if s.Section >= reserveFrom {
			s.Section = 0
		}
		if s.Section >= len(c.Sections) {
			return nil, fmt.Errorf("symbol %s is in section %d of %d", name, s.Section, len(c.Sections))
		}
		list = append(list, s)
	}
	return list, nil
}

// relocations reads one section of them, for a section of size bytes.
func relocations(list []Relocation, s *Section, size uint64, symbols int) ([]Relocation, error) {
	le := binary.LittleEndian
	entry := 16
	if s.Type == sectionRela {
		entry = 24
	}
	for b := s.Data; len(b) >= entry; b = b[entry:] {
		r := Relocation{Section: int(s.Info), Offset: le.Uint64(b), Type: le.Uint32(b[8:]),
			Symbol: int(le.Uint32(b[12:]))}
		if s.Type == sectionRela {
			r.Addend = int64(le.Uint64(b[16:]))
		}
		if r.Symbol >= symbols {
			return nil, fmt.Errorf("relocation of symbol %d of %d", r.Symbol, symbols)
		}
		if r.Offset > size || size-r.Offset < 8 {
			return nil, fmt.Errorf("relocation at %#x lies outside %d bytes", r.Offset, size)
		}
		list = append(list, r)
	}
	return list, nil
}
