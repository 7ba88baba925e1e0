// Package cubin places the code of a cubin at a device address, and says what a launch needs of each kernel: where
// its code and constants stand, registers, barriers, shared and local memory, parameters. It reads bytes by
// internal/fatbin and makes bytes; it touches no device.
//
// Sections, attributes (EIATTR_*) and relocations (R_CUDA_*) have no public document. What is known here was read off
// what nvcc 13 and cuobjdump print, and checked by running on an H200; what is not known is refused, by kernel if it
// can be.
//
// The package must import nothing of this module but internal/fatbin.
package cubin

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"holdfast/internal/fatbin"
)

// Limits.
const (
	maxImage = 1 << 31 // bytes of a placed image
	// Room behind the code: the instruction fetch runs ahead of a branch.
	codePad = 4 << 10
)

// An Image is a cubin laid out from address 0 on. Libraries have thousands of kernels in one, of which a program runs a
// few, so kernels are looked at when they are asked for.
type Image struct {
	Arch      int
	Size      uint64   // bytes, a multiple of 4096
	Kernels   []string // names, in the order of the file
	Variables []Variable
	Data      []Span // what kernels may write: variables, named or not

	file     *fatbin.Cubin
	syms     []fatbin.Symbol
	relocs   []fatbin.Relocation
	at       []uint64 // of each section, notLoaded if it is not
	trap     uint64   // where the code stands that ends a failed assertion
	sections map[string]int
	kernels  map[string]*fatbin.Kernel
	banks    map[string][]ownBank // of each kernel
	shared   [8]Span              // banks that all kernels have
	relocsOf map[int][]int        // by section

	mu    sync.Mutex
	found map[string]*Function
}

// An ownBank is a section .nv.constantN.KERNEL.
type ownBank struct {
	number  string
	section int
}

// ReservedShared is how many bytes of a block's shared memory the system keeps on sm_90 and later.
const ReservedShared = 1024

const notLoaded = ^uint64(0)

// A Function is a kernel of an image.
type Function struct {
	Name      string
	Code      uint64 // offset in the image
	CodeSize  uint32
	Registers uint32
	Barriers  uint32
	Shared    uint32 // static, without the ReservedShared bytes that the system keeps
	Local     uint32 // bytes of stack of a thread
	Recursive bool   // how much stack it takes is not known
	ParamBase uint32 // where parameters begin in bank 0
	ParamSize uint32
	Params    []fatbin.Param
	Bank      [8]Span // of banks that are loaded
	Bank0     uint32  // bytes of bank 0
	Cluster   [3]uint32
	MaxBlock  [3]uint32
	ReqBlock  [3]uint32
	Refused   string // why it cannot be launched here; empty if it can
	Attrs     []fatbin.Attr
}

// A Span is a part of an image.
type Span struct {
	Offset uint64
	Size   uint32
}

// written says whether kernels may write a section that is loaded: which is all but code and constants.
func written(s *fatbin.Section) bool {
	return !strings.HasPrefix(s.Name, textPrefix) && !strings.HasPrefix(s.Name, bankPrefix)
}

// A Variable is one of an image: a __device__ or __constant__ variable.
type Variable struct {
	Name         string
	Offset, Size uint64
}

const (
	flagAlloc     = 2 // SHF_ALLOC
	typeNoBits    = 8
	attrBarriers  = 0x4c // EIATTR_NUM_BARRIERS
	attrExterns   = 0x0f // EIATTR_EXTERNS
	attrCluster   = 0x3d // EIATTR_CTA_PER_CLUSTER
	unknownStack  = 0xffffffff
	abiReserved   = 8
	barrierShift  = 20 // of a code section's flags
	barrierMask   = 0x7f
	assertFail    = "__assertfail"
	textPrefix    = ".text."
	bankPrefix    = ".nv.constant"
	sharedPrefix  = ".nv.shared."
	alignSections = 256
)

// refusedAttrs are attributes of kernels that need what nobody sets up here.
var refusedAttrs = map[uint8]string{0x02: usesTextures, 0x06: usesTextures, 0x0e: usesTextures, 0x14: usesTextures,
	0x15: usesTextures, 0x16: usesTextures, // EIATTR_IMAGE_SLOT, IMAGE_OFFSET, TEXID_SAMPID_MAP, BINDLESS_…
	0x1f: "it launches kernels", 0x20: "it launches kernels"} // EIATTR_NEED_CNP_WRAPPER, NEED_CNP_PATCH

const usesTextures = "it uses textures or surfaces"

// textureCodes are the instructions of textures and surfaces since sm_70: the low 12 bits, with a bound handle and a
// bindless one (TEX, TLD, TLD4, TMML, TXD, TXQ; SULD, SUST, SUATOM).
var textureCodes = map[uint16]bool{0xb60: true, 0x361: true, 0xb66: true, 0x367: true, 0xb63: true, 0x364: true,
	0xb69: true, 0x36a: true, 0xb6c: true, 0x36d: true, 0xb6f: true, 0x370: true, 0x998: true, 0x99c: true, 0x394: true,
	0x396: true}

// uses says whether code has one of these instructions.
func uses(code []byte, codes map[uint16]bool) bool {
	for ; len(code) >= instruction; code = code[instruction:] {
		if codes[binary.LittleEndian.Uint16(code)&0xfff] {
			return true
		}
	}
	return false
}

const instruction = 16 // bytes, since sm_70

// trapCode ends the grid with an error: BPT.TRAP 1, EXIT, and a branch to itself.
var trapCode = []uint64{
	0x000000040000795c, 0x000fea0000300000,
	0x000000000000794d, 0x000fea0003800000,
	0xfffffffc00fc7947, 0x000fc0000383ffff,
}

// Open lays out a cubin.
func Open(b []byte) (*Image, error) {
	f, err := fatbin.OpenCubin(b)
	if err != nil {
		return nil, err
	}
	im := &Image{Arch: f.Arch, file: f}
	if im.syms, im.relocs, err = f.Link(); err != nil {
		return nil, err
	}
	if err := im.layOut(); err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	if err := im.index(); err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	for _, g := range f.Globals {
		if i, ok := im.sections[g.Section]; ok && im.at[i] != notLoaded {
			im.Variables = append(im.Variables, Variable{g.Name, im.at[i] + g.Offset, g.Size})
		}
	}
	return im, nil
}

// loaded says whether a section is part of the image. Shared memory is not, and bank 0 is made anew for each launch.
func loaded(s *fatbin.Section) bool {
	return s.Flags&flagAlloc != 0 && s.Size > 0 && !strings.HasPrefix(s.Name, sharedPrefix) &&
		!strings.HasPrefix(s.Name, bankPrefix+"0.")
}

// layOut gives every section its place: code last, with room behind it.
func (im *Image) layOut() error {
	im.at = make([]uint64, len(im.file.Sections))
	put := func(s *fatbin.Section) (uint64, error) {
		align := max(s.Align, alignSections)
		if align&(align-1) != 0 || align > 1<<20 {
			return 0, fmt.Errorf("section %s: alignment %d", s.Name, s.Align)
		}
		at := (im.Size + align - 1) &^ (align - 1)
		if s.Size > maxImage || at+s.Size > maxImage {
			return 0, fmt.Errorf("section %s: %d bytes exceed the limit", s.Name, s.Size)
		}
		im.Size = at + s.Size
		return at, nil
	}
	for _, code := range []bool{false, true} {
		for i := range im.file.Sections {
			s := &im.file.Sections[i]
			if !loaded(s) {
				im.at[i] = notLoaded
				continue
			}
			if strings.HasPrefix(s.Name, textPrefix) != code {
				continue
			}
			at, err := put(s)
			if err != nil {
				return err
			}
			im.at[i] = at
			if written(s) {
				im.Data = append(im.Data, Span{at, uint32(s.Size)})
			}
		}
	}
	im.trap = (im.Size + alignSections - 1) &^ (alignSections - 1)
	im.Size = (im.trap + uint64(8*len(trapCode)) + codePad + 4095) &^ 4095
	return nil
}

// index finds sections by name, and what belongs to which kernel.
func (im *Image) index() error {
	im.sections, im.kernels = map[string]int{}, map[string]*fatbin.Kernel{}
	im.banks, im.relocsOf, im.found = map[string][]ownBank{}, map[int][]int{}, map[string]*Function{}
	for i := range im.file.Sections {
		s := &im.file.Sections[i]
		if _, ok := im.sections[s.Name]; !ok {
			im.sections[s.Name] = i
		}
		rest, ok := strings.CutPrefix(s.Name, bankPrefix)
		if !ok || im.at[i] == notLoaded {
			continue
		}
		if number, kernel, own := strings.Cut(rest, "."); own {
			im.banks[kernel] = append(im.banks[kernel], ownBank{number, i})
		} else if err := setBank(&im.shared, rest, s, im.at[i]); err != nil {
			return err
		}
	}
	for i, r := range im.relocs {
		im.relocsOf[r.Section] = append(im.relocsOf[r.Section], i)
	}
	for i := range im.file.Kernels {
		k := &im.file.Kernels[i]
		text, ok := im.sections[textPrefix+k.Name]
		if k.Entry && ok && im.at[text] != notLoaded && im.kernels[k.Name] == nil {
			im.Kernels = append(im.Kernels, k.Name)
			im.kernels[k.Name] = k
		}
	}
	return nil
}

// Function is what a launch needs of a kernel. Several goroutines may ask at once.
func (im *Image) Function(name string) (*Function, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if fn := im.found[name]; fn != nil {
		return fn, nil
	}
	k := im.kernels[name]
	if k == nil {
		return nil, fmt.Errorf("cubin: no kernel %s", name)
	}
	fn, err := im.function(k)
	if err != nil {
		return nil, fmt.Errorf("cubin: kernel %s: %w", name, err)
	}
	im.found[name] = fn
	return fn, nil
}

func (im *Image) function(k *fatbin.Kernel) (*Function, error) {
	sections := im.file.Sections
	text := im.sections[textPrefix+k.Name]
	fn := &Function{Name: k.Name, Code: im.at[text], CodeSize: uint32(sections[text].Size), Registers: uint32(k.Regs),
		Barriers: uint32(sections[text].Flags >> barrierShift & barrierMask), Shared: uint32(k.Shared), Local: k.Stack,
		ParamBase: uint32(k.ParamBase), ParamSize: uint32(k.ParamBytes), Params: k.Params, MaxBlock: k.MaxThreads,
		ReqBlock: k.ReqThreads, Bank: im.shared, Attrs: k.Attrs}
	if k.Shared > 1<<20 {
		return nil, fmt.Errorf("%d bytes of shared memory", k.Shared)
	}
	// The section counts what the system keeps since toolkit 13 (ELF ABI 8), before that it does not.
	if im.file.ABI >= abiReserved && fn.Shared >= ReservedShared {
		fn.Shared -= ReservedShared
	}
	if k.Stack == unknownStack {
		fn.Local, fn.Recursive = 0, true
	}
	fn.Local = max(fn.Local, k.Frame)
	if i, ok := im.sections[bankPrefix+"0."+k.Name]; ok {
		fn.Bank0 = uint32(sections[i].Size)
	}
	for _, b := range im.banks[k.Name] {
		if err := setBank(&fn.Bank, b.number, &sections[b.section], im.at[b.section]); err != nil {
			return nil, err
		}
	}
	if err := fn.attributes(im.syms); err != nil {
		return nil, err
	}
	im.refuse(fn, text)
	return fn, nil
}

func setBank(banks *[8]Span, number string, s *fatbin.Section, at uint64) error {
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 || n >= len(banks) {
		return fmt.Errorf("section %s: no such constant bank", s.Name)
	}
	if s.Size > 64<<10 {
		return fmt.Errorf("section %s: %d bytes do not fit a constant bank", s.Name, s.Size)
	}
	banks[n] = Span{at, uint32(s.Size)}
	return nil
}

// attributes reads those that internal/fatbin leaves as bytes.
func (fn *Function) attributes(syms []fatbin.Symbol) error {
	le := binary.LittleEndian
	for _, a := range fn.Attrs {
		switch v := a.Value; {
		case a.ID == attrBarriers && len(v) >= 1:
			fn.Barriers = max(fn.Barriers, uint32(v[0]))
		case a.ID == attrCluster && len(v) >= 12:
			fn.Cluster = [3]uint32{le.Uint32(v), le.Uint32(v[4:]), le.Uint32(v[8:])}
		case refusedAttrs[a.ID] != "":
			fn.Refused = refusedAttrs[a.ID]
		case a.ID == attrExterns:
			for ; len(v) >= 4; v = v[4:] {
				i := le.Uint32(v)
				if int64(i) >= int64(len(syms)) {
					return fmt.Errorf("external symbol %d of %d", i, len(syms))
				}
				if n := syms[i].Name; n != assertFail {
					fn.Refused = "it calls " + n
				}
			}
		}
	}
	return nil
}

// refuse looks through the code that a kernel reaches for what cannot be placed.
func (im *Image) refuse(fn *Function, text int) {
	seen := map[int]bool{text: true}
	for todo := []int{text}; len(todo) > 0; todo = todo[1:] {
		code := im.file.Sections[todo[0]].Data
		if uses(code, textureCodes) {
			fn.Refused = usesTextures
		}
		for _, i := range im.relocsOf[todo[0]] {
			r := im.relocs[i]
			s := im.syms[r.Symbol]
			switch _, known := relocKinds[r.Type]; {
			case !known:
				fn.Refused = fmt.Sprintf("its code needs relocation %#x of %s", r.Type, s.Name)
			case s.Section == 0 && s.Name != assertFail:
				fn.Refused = "it calls " + s.Name
			case s.Section != 0 && s.Func && !seen[s.Section]:
				seen[s.Section] = true
				todo = append(todo, s.Section)
			}
		}
	}
}
