package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// hostELF is an ELF file for a CPU with one section.
func hostELF(section string, data []byte) []byte {
	names := "\x00" + section + "\x00.shstrtab\x00"
	var b bytes.Buffer
	le := binary.LittleEndian
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shentsize: 64,
		Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	dataAt := uint64(64)
	namesAt := dataAt + uint64(len(data))
	h.Shoff = namesAt + uint64(len(names))
	binary.Write(&b, le, h)
	b.Write(data)
	b.WriteString(names)
	binary.Write(&b, le, []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: dataAt, Size: uint64(len(data)), Addralign: 8},
		{Name: uint32(len(section)) + 2, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names)),
			Addralign: 1}})
	return b.Bytes()
}

func collect(b []byte) (list []*Embedded, err error) {
	for e, x := range Files(bytes.NewReader(b), int64(len(b))) {
		if x != nil {
			return list, x
		}
		list = append(list, e)
	}
	return list, nil
}

func TestFiles(t *testing.T) {
	one, two := write(image{kind: PTX, arch: 90, data: []byte(".version 8.0")}),
		write(image{kind: PTX, arch: 80, data: []byte("//"), how: LZ4})
	pad := make([]byte, 24)
	both := bytes.Join([][]byte{one, pad, two, pad}, nil)
	for name, b := range map[string][]byte{"fat binaries": both, "shared object": hostELF(".nv_fatbin", both),
		"relocatable object": hostELF("__nv_relfatbin", both)} {
		list, err := collect(b)
		if err != nil || len(list) != 2 || !bytes.Equal(list[0].Data, one) || !bytes.Equal(list[1].Data, two) ||
			!bytes.Equal(b[list[1].Offset:][:len(two)], two) {
			t.Errorf("%s: %d pieces of code, error %v", name, len(list), err)
		}
	}
	huge := bytes.Clone(one)
	binary.LittleEndian.PutUint64(huge[8:], 1<<39)
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "offset 0"},
		{"text", []byte("hello, world"), "offset 0"},
		{"no code", hostELF(".text", both), "without a section"},
		{"cut short", both[:len(both)-len(pad)-1], "claims"},
		{"huge", huge, "claims 549755813904 bytes"},
		{"garbage behind", append(bytes.Clone(one), "0123456789abcdef"...), "not a fat binary"},
		{"garbage in a section", hostELF(".nv_fatbin", bytes.Repeat([]byte("x"), 64)), "offset 0x40"},
	} {
		if _, err := collect(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzFiles(f *testing.F) {
	one := write(image{kind: PTX, arch: 90, data: []byte(".version 8.0")})
	f.Add(one)
	f.Add(hostELF(".nv_fatbin", one))
	f.Fuzz(func(t *testing.T, b []byte) { collect(b) })
}
