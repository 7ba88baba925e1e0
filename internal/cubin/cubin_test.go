package cubin

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"holdfast/internal/fatbin"
)

func sample(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/sm_90.cubin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB) *Image {
	t.Helper()
	im, err := Open(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func (im *Image) must(t *testing.T, name string) *Function {
	t.Helper()
	fn, err := im.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

// all is every kernel of an image that can be told.
func (im *Image) all() (list []*Function) {
	for _, name := range im.Kernels {
		if fn, err := im.Function(name); err == nil {
			list = append(list, fn)
		}
	}
	return list
}

// What launches need is what cuobjdump -elf says, and ptxas when it compiled.
func TestFunctions(t *testing.T) {
	im := open(t)
	if im.Arch != 90 {
		t.Errorf("sm_%d", im.Arch)
	}
	for _, w := range []struct {
		name                      string
		regs, bars, shared, local uint32
		base, size, bank0         uint32
		cluster                   [3]uint32
		constants, table          uint32 // sizes of banks 2 and 3
		refused                   string
		params                    int
	}{
		{"empty", 4, 0, 0, 0, 0, 0, 0x210, [3]uint32{}, 0, 68, "", 0},
		{"add", 12, 0, 0, 0, 0x210, 28, 0x22c, [3]uint32{}, 0, 68, "", 4},
		{"smem", 12, 1, 4096, 0, 0x210, 8, 0x218, [3]uint32{}, 0, 68, "", 1},
		{"dsmem", 14, 1, 0, 0, 0x210, 12, 0x21c, [3]uint32{}, 0, 68, "", 2},
		{"local", 38, 0, 0, 800, 0x210, 12, 0x21c, [3]uint32{}, 0, 68, "", 2},
		{"cluster", 16, 0, 16, 0, 0x210, 8, 0x218, [3]uint32{2, 1, 1}, 0, 68, "", 1},
		{"indirect", 24, 0, 0, 0, 0x210, 8, 0x218, [3]uint32{}, 24, 68, "", 1},
		{"regs", 164, 0, 0, 600, 0x210, 8, 0x218, [3]uint32{}, 0, 68, "", 1},
		{"print", 24, 0, 0, 8, 0x210, 4, 0x214, [3]uint32{}, 0, 68, "it calls vprintf", 1},
		{"heap", 24, 0, 0, 0, 0x210, 8, 0x218, [3]uint32{}, 0, 68, "it calls malloc", 1},
	} {
		f := im.must(t, w.name)
		if f.Registers != w.regs || f.Barriers != w.bars || f.Shared != w.shared || f.Local != w.local ||
			f.ParamBase != w.base ||
			f.ParamSize != w.size || f.Bank0 != w.bank0 || f.Cluster != w.cluster || f.Bank[2].Size != w.constants ||
			f.Bank[3].Size != w.table || f.Refused != w.refused || len(f.Params) != w.params {
			t.Errorf("%+v, want %+v", *f, w)
		}
	}
	if f := im.must(t, "asserts"); f.Refused != "" {
		t.Errorf("a kernel with an assertion is refused: %s", f.Refused)
	}
	if f := im.must(t, "regs"); f.MaxBlock != [3]uint32{128, 1, 1} {
		t.Errorf("regs takes %v threads", f.MaxBlock)
	}
}

// Addresses stand where the code looks for them.
func TestPlace(t *testing.T) {
	im := open(t)
	const base = 0xa0_1234_0000
	b, err := im.Place(base)
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(b)) != im.Size || im.Size%4096 != 0 {
		t.Errorf("%d bytes of %d", len(b), im.Size)
	}
	at := map[string]Variable{}
	for _, v := range im.Variables {
		at[v.Name] = v
	}
	le := binary.LittleEndian
	// link_ = zeroed + 3, in .nv.global.init (R_CUDA_G64).
	if got, want := le.Uint64(b[at["link_"].Offset:]), base+at["zeroed"].Offset+12; got != want {
		t.Errorf("link_ is %#x, want %#x", got, want)
	}
	if v := at["counter"]; v.Size != 4 || le.Uint32(b[v.Offset:]) != 7 {
		t.Errorf("counter %+v", v)
	}
	if v := at["table"]; v.Size != 64 || le.Uint32(b[v.Offset+60:]) != 1597 {
		t.Errorf("table %+v", v)
	}
	if v := at["zeroed"]; v.Size != 128 || len(bytes.Trim(b[v.Offset:][:128], "\x00")) != 0 {
		t.Errorf("zeroed %+v", v)
	}
	// Bank 4 has the addresses of variables (R_CUDA_64), and of the code for failed assertions.
	bank := im.must(t, "globals").Bank[4]
	want := map[uint64]string{base + at["counter"].Offset: "counter", base + at["zeroed"].Offset: "zeroed",
		base + at["link_"].Offset: "link_", base + at["fns"].Offset: "fns", base + im.trap: "assertion"}
	for i := uint64(0); i < uint64(bank.Size); i += 8 {
		delete(want, le.Uint64(b[bank.Offset+i:]))
	}
	if len(want) != 0 {
		t.Errorf("bank 4 lacks %v", want)
	}
	if le.Uint64(b[im.trap:]) != trapCode[0] {
		t.Error("the code for failed assertions is not there")
	}
	f := im.must(t, "add")
	if f.Code%128 != 0 || bytes.Equal(b[f.Code:][:f.CodeSize], make([]byte, f.CodeSize)) {
		t.Errorf("code of add at %#x", f.Code)
	}
}

func TestFuncsOverlapNothing(t *testing.T) {
	im := open(t)
	list := im.all()
	for i, f := range list {
		for _, g := range list[i+1:] {
			if f.Code < g.Code+uint64(g.CodeSize) && g.Code < f.Code+uint64(f.CodeSize) {
				t.Errorf("%s and %s overlap", f.Name, g.Name)
			}
		}
		if f.Code+uint64(f.CodeSize)+codePad > im.Size {
			t.Errorf("%s ends %d bytes before the image", f.Name, im.Size-f.Code-uint64(f.CodeSize))
		}
	}
}

// Kernels that need textures, or launch others, are refused.
func TestRefusedNeeds(t *testing.T) {
	im := open(t)
	i := slices.IndexFunc(im.file.Sections, func(s fatbin.Section) bool { return s.Name == ".text.add" })
	code := slices.Clone(im.file.Sections[i].Data)
	le := binary.LittleEndian
	le.PutUint16(code[32:], le.Uint16(code[32:])&0xf000|0x361) // TEX
	im.file.Sections[i].Data = code
	f := *im.must(t, "add")
	if im.refuse(&f, i); f.Refused != usesTextures {
		t.Errorf("a texture: %q", f.Refused)
	}
	for _, id := range []uint8{0x02, 0x14, 0x1f} {
		f := *im.must(t, "chain")
		f.Attrs = append(slices.Clone(f.Attrs), fatbin.Attr{ID: id})
		if err := f.attributes(im.syms); err != nil || f.Refused == "" {
			t.Errorf("attribute %#x: %v, %q", id, err, f.Refused)
		}
	}
	refused := 0
	for _, f := range open(t).all() {
		if f.Refused != "" {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d kernels of the sample are refused, not print and heap alone", refused)
	}
}

// A relocation that is not known is not guessed: kernels that reach it are refused.
func TestUnknownRelocation(t *testing.T) {
	im := open(t)
	i := slices.IndexFunc(im.file.Sections, func(s fatbin.Section) bool { return s.Name == ".text.add" })
	im.relocs = append(im.relocs, fatbin.Relocation{Section: i, Symbol: 1, Type: 0x77})
	im.relocsOf[i] = append(im.relocsOf[i], len(im.relocs)-1)
	f := *im.must(t, "add")
	im.refuse(&f, i)
	if f.Refused == "" {
		t.Error("not refused")
	}
	if _, err := im.Place(0); err != nil {
		t.Error(err)
	}
	j := slices.IndexFunc(im.file.Sections, func(s fatbin.Section) bool { return s.Name == ".nv.constant4" })
	im.relocs = append(im.relocs, fatbin.Relocation{Section: j, Symbol: 1, Type: 0x77})
	if _, err := im.Place(0); err == nil {
		t.Error("a bank of all kernels is placed with an unknown relocation")
	}
}

// Cut or changed bytes give an error or an image, and no panic.
func FuzzOpen(f *testing.F) {
	b := sample(f)
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		im, err := Open(b)
		if err != nil {
			return
		}
		if im.Size > 64<<20 {
			return
		}
		out, err := im.Place(0xa0_0000_0000)
		if err != nil {
			return
		}
		for _, fn := range im.all() {
			if fn.Code+uint64(fn.CodeSize) > uint64(len(out)) {
				t.Errorf("code of %s ends outside", fn.Name)
			}
			for _, s := range fn.Bank {
				if s.Offset+uint64(s.Size) > uint64(len(out)) {
					t.Errorf("a bank of %s ends outside", fn.Name)
				}
			}
		}
		for _, v := range im.Variables {
			if v.Offset+v.Size > uint64(len(out)) {
				t.Errorf("%s ends outside", v.Name)
			}
		}
	})
}

// Every byte of the headers, and every word of attributes, is changed once.
func TestMutants(t *testing.T) {
	b := sample(t)
	step := 97
	if testing.Short() {
		step = 997
	}
	for at := 0; at < len(b); at += step {
		for _, x := range []byte{0xff, 0x80, 0x01} {
			m := bytes.Clone(b)
			m[at] ^= x
			im, err := Open(m)
			if err != nil || im.Size > 64<<20 {
				continue
			}
			if _, err := im.Place(0); err != nil {
				continue
			}
		}
	}
}
