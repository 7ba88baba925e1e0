package softgpu

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// TensorMapSize is the size in bytes of a CUtensorMap, and its alignment is 64.
const TensorMapSize = 128

// A TensorMap says how a tensor lies in global memory and which box of it one
// copy moves: what cuTensorMapEncodeTiled takes. The encoded form is opaque to programs; this package's
// is its own.
type TensorMap struct {
	Type       TensorType
	Rank       int       // 1 to 5
	Address    uint64    // of element 0, a multiple of 16
	Dim        [5]uint64 // elements; dimension 0 is the innermost
	Stride     [4]uint64 // bytes from one to the next element of dimension 1…, multiples of 16
	Box        [5]uint32 // elements, up to 256
	Step       [5]uint32 // one of Step elements is taken; 1 to 8
	Interleave uint8     // 0 = none; others are not supported
	Swizzle    uint8     // 0 = none, 1 = 32 bytes, 2 = 64 bytes, 3 = 128 bytes
	FillNaN    bool      // elements outside are NaN, not zero

	// What cuTensorMapEncodeIm2col takes instead of Box. Dimension 0 is the channels, the last one the images,
	// those between are space: a copy walks through a box of space, image after image, in steps of Step, and takes
	// Channels elements of each of Pixels places.
	Im2col       bool
	Lower, Upper [3]int16 // corners of the box, from the first and from the last place of each dimension of space
	Channels     uint16   // 1 to 256
	Pixels       uint16   // 1 to 1024
}

// A TensorType is a CUtensorMapDataType (cuda.h, CUDA 12.4).
type TensorType uint8

// The types of tensor elements.
const (
	TensorU8 TensorType = iota
	TensorU16
	TensorU32
	TensorS32
	TensorU64
	TensorS64
	TensorF16
	TensorF32
	TensorF64
	TensorBF16
	TensorF32Ftz
	TensorTF32
	TensorTF32Ftz
)

// Size is the size of an element in bytes, 0 for an unknown type.
func (t TensorType) Size() uint64 {
	switch t {
	case TensorU8:
		return 1
	case TensorU16, TensorF16, TensorBF16:
		return 2
	case TensorU32, TensorS32, TensorF32, TensorF32Ftz, TensorTF32, TensorTF32Ftz:
		return 4
	case TensorU64, TensorS64, TensorF64:
		return 8
	}
	return 0
}

// tensorMapMagic marks an encoded map: "HFtm" and a version.
const tensorMapMagic = 0x6d744648_00000001

// Check reports what about m no copy could use (cuTensorMapEncodeTiled's rules).
func (m *TensorMap) Check() error {
	size := m.Type.Size()
	switch {
	case size == 0:
		return fmt.Errorf("tensor map: type %d", m.Type)
	case m.Rank < 1 || m.Rank > 5:
		return fmt.Errorf("tensor map: %d dimensions", m.Rank)
	case m.Address%16 != 0:
		return fmt.Errorf("tensor map: address %#x is no multiple of 16", m.Address)
	case m.Interleave != 0:
		return fmt.Errorf("tensor map: interleaved layouts are not supported")
	case m.Swizzle > 3:
		return fmt.Errorf("tensor map: swizzle mode %d", m.Swizzle)
	}
	inner := uint64(m.Box[0]) * size
	if m.Im2col {
		if err := m.checkIm2col(); err != nil {
			return err
		}
		inner = uint64(m.Channels) * size
	}
	for i := range m.Rank {
		if m.Dim[i] == 0 || m.Dim[i] > 1<<32 {
			return fmt.Errorf("tensor map: dimension %d has %d elements", i, m.Dim[i])
		}
		if !m.Im2col && (m.Box[i] == 0 || m.Box[i] > 256) {
			return fmt.Errorf("tensor map: dimension %d of the box has %d elements", i, m.Box[i])
		}
		if m.Step[i] == 0 || m.Step[i] > 8 {
			return fmt.Errorf("tensor map: element stride %d", m.Step[i])
		}
		if i > 0 && (m.Stride[i-1]%16 != 0 || m.Stride[i-1] >= 1<<40) {
			return fmt.Errorf("tensor map: stride of %d bytes", m.Stride[i-1])
		}
	}
	if inner%16 != 0 {
		return fmt.Errorf("tensor map: a row of the box has %d bytes, want a multiple of 16", inner)
	}
	if m.Swizzle > 0 && inner > 16<<m.Swizzle {
		return fmt.Errorf("tensor map: a row of the box has %d bytes, more than the swizzle's %d", inner, 16<<m.Swizzle)
	}
	return nil
}

func (m *TensorMap) checkIm2col() error {
	switch {
	case m.Rank < 3:
		return fmt.Errorf("tensor map: %d dimensions, im2col wants 3 to 5", m.Rank)
	case m.Channels == 0 || m.Channels > 256:
		return fmt.Errorf("tensor map: %d channels of a place", m.Channels)
	case m.Pixels == 0 || m.Pixels > 1024:
		return fmt.Errorf("tensor map: %d places", m.Pixels)
	}
	limit := [6]int{3: 1 << 15, 4: 1 << 7, 5: 1 << 4}[m.Rank]
	for i := range m.Rank - 2 {
		for _, x := range []int{int(m.Lower[i]), int(m.Upper[i])} {
			if x < -limit || x >= limit {
				return fmt.Errorf("tensor map: corner %d of the box, want -%d to %d", x, limit, limit-1)
			}
		}
		if int64(m.Lower[i]) > int64(m.Dim[i+1])-1+int64(m.Upper[i]) {
			return fmt.Errorf("tensor map: the box is empty in dimension %d", i+1)
		}
	}
	return nil
}

// Encode gives the opaque form.
func (m *TensorMap) Encode() [TensorMapSize]byte {
	var b [TensorMapSize]byte
	le := binary.LittleEndian
	le.PutUint64(b[0:], tensorMapMagic)
	le.PutUint64(b[8:], m.Address)
	fill := uint8(0)
	if m.FillNaN {
		fill = 1
	}
	copy(b[16:], []byte{uint8(m.Type), uint8(m.Rank), m.Interleave, m.Swizzle, fill})
	for i := range 5 {
		b[21+i] = uint8(m.Step[i])
		le.PutUint16(b[26+2*i:], uint16(m.Box[i]))
		le.PutUint64(b[40+8*i:], m.Dim[i])
	}
	for i := range 4 {
		le.PutUint64(b[80+8*i:], m.Stride[i])
	}
	if m.Im2col {
		b[36] = 1
	}
	for i := range 3 {
		le.PutUint16(b[112+2*i:], uint16(m.Lower[i]))
		le.PutUint16(b[118+2*i:], uint16(m.Upper[i]))
	}
	le.PutUint16(b[124:], m.Channels)
	le.PutUint16(b[126:], m.Pixels)
	return b
}

// DecodeTensorMap reads the opaque form; the bytes may be anything.
func DecodeTensorMap(b []byte) (*TensorMap, error) {
	le := binary.LittleEndian
	if len(b) != TensorMapSize || le.Uint64(b) != tensorMapMagic {
		return nil, fmt.Errorf("these %d bytes are no tensor map", len(b))
	}
	m := &TensorMap{Type: TensorType(b[16]), Rank: int(b[17]), Address: le.Uint64(b[8:]), Interleave: b[18],
		Swizzle: b[19], FillNaN: b[20] != 0}
	for i := range 5 {
		m.Step[i] = uint32(b[21+i])
		m.Box[i] = uint32(le.Uint16(b[26+2*i:]))
		m.Dim[i] = le.Uint64(b[40+8*i:])
	}
	for i := range 4 {
		m.Stride[i] = le.Uint64(b[80+8*i:])
	}
	m.Im2col, m.Channels, m.Pixels = b[36] != 0, le.Uint16(b[124:]), le.Uint16(b[126:])
	for i := range 3 {
		m.Lower[i], m.Upper[i] = int16(le.Uint16(b[112+2*i:])), int16(le.Uint16(b[118+2*i:]))
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return m, nil
}

// swizzled is where the byte at address addr of shared memory lies: the number of a 16-byte
// chunk in its row of 32, 64 or 128 bytes is combined with the number of the row
// (bits 4–6 with bits 7–9, and fewer for the narrower modes).
func swizzled(addr uint64, mode uint8) uint64 {
	return addr ^ addr>>7&(1<<mode-1)<<4
}

// tensorTypes are the values of tensormap.replace.tile.elemtype: PTX ISA 9.7.9.27.3, table 33.
var tensorTypes = [...]TensorType{TensorU8, TensorU16, TensorU32, TensorS32, TensorU64, TensorS64, TensorF16, TensorF32,
	TensorF32Ftz, TensorF64,
	TensorBF16, TensorTF32, TensorTF32Ftz}

// replaceField changes a field of an encoded map. What is wrong about the value is found when the map is used.
// Zeros are a map that has no field yet.
func replaceField(b []byte, field string, ord int, x uint64) error {
	le := binary.LittleEndian
	switch magic := le.Uint64(b); {
	case magic == 0:
		le.PutUint64(b, tensorMapMagic)
	case magic != tensorMapMagic:
		return fmt.Errorf("these %d bytes are no tensor map", len(b))
	}
	small := uint8(min(x, 0xff))
	switch field {
	case "global_address":
		le.PutUint64(b[8:], x)
	case "elemtype":
		if x >= uint64(len(tensorTypes)) {
			return fmt.Errorf("element type %d is not supported", x)
		}
		b[16] = uint8(tensorTypes[x])
	case "rank":
		b[17] = uint8(min(x, 0xfe)) + 1
	case "interleave_layout":
		b[18] = small
	case "swizzle_mode":
		b[19] = small
	case "fill_mode":
		b[20] = small
	case "element_stride":
		b[21+ord] = small
	case "box_dim":
		le.PutUint16(b[26+2*ord:], uint16(min(x, 0xffff)))
	case "global_dim":
		le.PutUint64(b[40+8*ord:], x)
	case "global_stride":
		le.PutUint64(b[80+8*ord:], x)
	default:
		return fmt.Errorf("field .%s is not supported", field)
	}
	return nil
}

// mapBytes gives the bytes of a tensor map that is written or copied.
func (w *warp) mapBytes(in *inst, sp memSpace, lane int, addr uint64, need uint8) []byte {
	if sp == memGlobal && addr-sharedWindow < clusterSize {
		sp, addr = memShared, addr-sharedWindow
	}
	access := Read
	if need == pageWritable {
		access |= Written
	}
	w.observeSpace(sp, lane, addr, TensorMapSize, access)
	return w.region(in, sp, lane, addr, TensorMapSize, 64, need)
}

func (cp copies) tensormapReplace(in *isa.Inst) {
	sp := spaceOf(in.Space)
	at := cp.addressOperand(in.Args[0].X, sp)
	value := cp.read(in.Args[len(in.Args)-1].X, in.T)
	wide, field, ord := in.T == ptx.B64, in.Fn, 0
	if len(in.Args) > 2 {
		imm, ok := in.Args[1].X.(*ptx.Imm)
		if !ok || imm.Bits > 4 || field == "global_stride" && imm.Bits > 3 {
			cp.fail(in.Src.Pos, "ordinal %s", operandText(in.Args[1].X))
		}
		ord = int(imm.Bits)
	}
	// Up to PTX 8.4 a stride was given in units of 16 bytes.
	units := field == "global_stride" && (cp.m.version.Major < 8 || cp.m.version.Major == 8 && cp.m.version.Minor < 5)
	cp.emit(inst{kind: kindExec, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			addr, x := at.at(w, i), w.r.get(value, i, wide)
			if units {
				x <<= 4
			}
			if err := replaceField(w.mapBytes(in, sp, i, addr, pageWritable), field, ord, x); err != nil {
				w.fault(FaultUnsupported, in, i, addr, err.Error())
			}
		}
	}})
}

// tensormapCopy is tensormap.cp_fenceproxy.
func (cp copies) tensormapCopy(in *isa.Inst) {
	dst, src := cp.addressOperand(in.Args[0].X, memGlobal), cp.addressOperand(in.Args[1].X, memShared)
	if imm, ok := in.Args[2].X.(*ptx.Imm); !ok || imm.Bits != TensorMapSize {
		cp.fail(in.Src.Pos, "size %s, want %d", operandText(in.Args[2].X), TensorMapSize)
	}
	cp.warpWide(func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			from := w.mapBytes(in, memShared, i, src.at(w, i), pageReadOnly)
			to := dst.at(w, i)
			w.observe(i, to, TensorMapSize, Written)
			copy(w.region(in, memGlobal, i, to, TensorMapSize, 64, pageWritable), from)
		}
	})
}
