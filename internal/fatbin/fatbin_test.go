package fatbin

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// An image is one entry for the writer below.
type image struct {
	kind          Kind
	arch          int
	specific      bool
	name, options string
	data          []byte
	how           Compression
}

// write makes a fat binary as fatbinary does.
func write(images ...image) []byte {
	var body []byte
	for _, im := range images {
		body = append(body, writeEntry(im)...)
	}
	le := binary.LittleEndian
	b := le.AppendUint32(nil, MagicContainer)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, 16)
	b = le.AppendUint64(b, uint64(len(body)))
	return append(b, body...)
}

func writeEntry(im image) []byte {
	le := binary.LittleEndian
	tail := append([]byte(im.name), 0)
	for len(tail)%8 != 0 {
		tail = append(tail, 0)
	}
	optionsAt := 64 + len(tail)
	tail = le.AppendUint32(tail, uint32(optionsAt+8))
	tail = le.AppendUint32(tail, uint32(len(im.options)))
	tail = append(tail, im.options...)
	for len(tail)%8 != 0 {
		tail = append(tail, 0)
	}
	flags, payload, compressed, size := uint64(0x11), im.data, 0, 0
	switch im.how {
	case LZ4:
		payload, flags = compressLZ4(im.data), flags|flagLZ4
	case Zstd:
		w, _ := zstd.NewWriter(nil)
		payload, flags = w.EncodeAll(im.data, nil), flags|flagZstd
	case Old:
		flags |= flagOldLZ
	}
	if im.how != Stored {
		compressed, size = len(payload), len(im.data)
	}
	if im.specific {
		flags |= flagFeature
	}
	payload = bytes.Clone(payload)
	for len(payload)%8 != 0 {
		payload = append(payload, 0)
	}
	h := le.AppendUint16(nil, uint16(im.kind))
	h = le.AppendUint16(h, 0x101)
	h = le.AppendUint32(h, uint32(64+len(tail)))
	h = le.AppendUint64(h, uint64(len(payload)))
	h = le.AppendUint32(h, uint32(compressed))
	h = le.AppendUint32(h, uint32(optionsAt))
	h = le.AppendUint16(h, 4)
	h = le.AppendUint16(h, 8)
	h = le.AppendUint32(h, uint32(im.arch))
	h = le.AppendUint32(h, 64)
	h = le.AppendUint32(h, uint32(len(im.name)))
	h = le.AppendUint64(h, flags)
	h = le.AppendUint64(h, 0)
	h = le.AppendUint64(h, uint64(size))
	return append(append(h, tail...), payload...)
}

// compressLZ4 writes one LZ4 block with greedy matches: enough to use long
// literal runs, long matches and overlaps.
func compressLZ4(src []byte) []byte {
	var out []byte
	seq := func(lit []byte, back, match int) {
		run := func(n int) {
			for n -= 15; n >= 0; n -= 255 {
				out = append(out, byte(min(n, 255)))
				if n < 255 {
					break
				}
			}
		}
		out = append(out, byte(min(len(lit), 15)<<4|min(max(match-4, 0), 15)))
		if len(lit) >= 15 {
			run(len(lit))
		}
		out = append(out, lit...)
		if match > 0 {
			out = append(out, byte(back), byte(back>>8))
			if match-4 >= 15 {
				run(match - 4)
			}
		}
	}
	last, seen := 0, map[uint32]int{}
	for i := 0; i+12 < len(src); {
		key := binary.LittleEndian.Uint32(src[i:])
		at, ok := seen[key]
		seen[key] = i
		if !ok || i-at > 65535 {
			i++
			continue
		}
		n := 4
		for i+n < len(src)-5 && src[at+n] == src[i+n] {
			n++
		}
		seq(src[last:i], i-at, n)
		i += n
		last = i
	}
	seq(src[last:], 0, 0)
	return out
}

func text(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString(".version 8.4\n.target sm_90\n.address_size 64\n")
	for b.Len() < n {
		b.WriteString([]string{"\tadd.s32 %r1, %r2, %r3;\n", "\tret;\n", strings.Repeat(" ", r.IntN(700)),
			string(rune('a' + r.IntN(26)))}[r.IntN(4)])
	}
	return []byte(b.String()[:n])
}

func TestOpen(t *testing.T) {
	var images []image
	for i, n := range []int{60, 1000, 100_000, 3} {
		for how := Stored; how <= Zstd; how++ {
			images = append(images, image{kind: PTX, arch: 70 + 10*i, specific: i == 2, name: "kernels.cu",
				options: "-lineinfo ", data: text(n), how: how})
		}
	}
	images = append(images, image{kind: ELF, arch: 90, data: bytes.Repeat([]byte{1, 0}, 500), how: LZ4},
		image{kind: 8, arch: 0, data: make([]byte, 16)})
	f, err := Open(append(write(images...), "what follows is not ours"...))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Entries) != len(images) {
		t.Fatalf("%d entries, want %d", len(f.Entries), len(images))
	}
	for i, e := range f.Entries {
		im := images[i]
		data, err := e.Data()
		if err != nil {
			t.Errorf("entry %d: %v", i, err)
			continue
		}
		want := im.data
		if !bytes.Equal(data, want) {
			t.Errorf("entry %d (%s, %s): %d bytes, want %d", i, e.Kind, e.Compression, len(data), len(want))
		}
		if e.Kind != im.kind || e.Arch != im.arch || e.Specific != im.specific || e.Compression != im.how ||
			e.Name != im.name || e.Major != 8 || e.Minor != 4 {
			t.Errorf("entry %d: %+v, want %+v", i, e, im)
		}
		if e.Kind == PTX && e.Options != "-lineinfo" {
			t.Errorf("entry %d: options %q", i, e.Options)
		}
	}
}

func TestBestPTX(t *testing.T) {
	f, err := Open(write(
		image{kind: ELF, arch: 90, data: make([]byte, 8)},
		image{kind: PTX, arch: 70, data: []byte("70")},
		image{kind: PTX, arch: 80, data: []byte("80")},
		image{kind: PTX, arch: 90, data: []byte("90")},
		image{kind: PTX, arch: 90, specific: true, data: []byte("90a")},
		image{kind: PTX, arch: 100, data: []byte("100")},
	))
	if err != nil {
		t.Fatal(err)
	}
	for capability, want := range map[int]string{60: "", 75: "70", 80: "80", 89: "80", 90: "90a",
		99: "90", 120: "100"} {
		got := ""
		if e := f.BestPTX(capability); e != nil {
			b, _ := e.Data()
			got = string(b)
		}
		if got != want {
			t.Errorf("capability %d gets %q, want %q", capability, got, want)
		}
	}
}

// An entry that cannot be read leaves the others readable.
func TestOldCompression(t *testing.T) {
	f, err := Open(write(image{kind: PTX, arch: 30, data: text(100), how: Old},
		image{kind: PTX, arch: 70, data: []byte("70")}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Entries[0].Data(); err == nil || !strings.Contains(err.Error(), "sm_30") ||
		!strings.Contains(err.Error(), "CUDA before 7") {
		t.Errorf("old entry: %v", err)
	}
	if b, err := f.BestPTX(90).Data(); err != nil || string(b) != "70" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestDamaged: every cut and every flipped byte of a fat binary is an error or
// still opens, and never more data comes out than was promised.
func TestDamaged(t *testing.T) {
	good := write(
		image{kind: PTX, arch: 80, name: "a.cu", options: "-g", data: text(300), how: LZ4},
		image{kind: PTX, arch: 90, data: text(300), how: Zstd},
		image{kind: ELF, arch: 90, data: writeCubin()},
	)
	for n := range good {
		if _, err := Open(good[:n]); err == nil {
			t.Fatalf("opened %d of %d bytes", n, len(good))
		}
		for _, bit := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[n] ^= bit
			use(bad)
		}
	}
}

// use does with an image all that the package can do with it.
func use(b []byte) {
	ReadWrapper(b)
	ContainerSize(b)
	ELFSize(b)
	OpenCubin(b)
	f, err := Open(b)
	if err != nil {
		return
	}
	f.BestPTX(90)
	for _, e := range f.Entries {
		if data, err := e.Data(); err == nil && Detect(data) == Object {
			OpenCubin(data)
		}
	}
}

func TestLZ4Hostile(t *testing.T) {
	for name, c := range map[string]struct {
		src  []byte
		size int
	}{
		"empty":           {nil, 4},
		"bomb":            {[]byte{0x10, 'a'}, MaxData},
		"literals missed": {[]byte{0xf0}, 20},
		"short literals":  {[]byte{0x40, 'a'}, 4},
		"no offset":       {[]byte{0x11, 'a', 1}, 20},
		"zero offset":     {[]byte{0x11, 'a', 0, 0, 0}, 20},
		"far offset":      {[]byte{0x11, 'a', 2, 0, 0}, 20},
		"too much":        {[]byte{0x1f, 'a', 1, 0, 255, 255, 0}, 20},
		"too little":      {[]byte{0x10, 'a'}, 2},
		"endless":         {bytes.Repeat([]byte{255}, 1000), 100},
	} {
		if b, err := decompressLZ4(c.src, c.size); err == nil {
			t.Errorf("%s: %d bytes accepted", name, len(b))
		}
	}
	got, err := decompressLZ4([]byte{0x1f, 'a', 1, 0, 3, 0x20, 'b', 'c'}, 1+22+2)
	if want := strings.Repeat("a", 23) + "bc"; err != nil || string(got) != want {
		t.Errorf("overlapping match: %q, %v", got, err)
	}
}

func TestZstdHostile(t *testing.T) {
	w, _ := zstd.NewWriter(nil)
	bomb := w.EncodeAll(make([]byte, 64<<20), nil)
	for _, size := range []int{0, 10, 1 << 20} {
		if b, err := decompressZstd(bomb, size); err == nil {
			t.Errorf("a frame of 64 MiB gave %d bytes for %d", len(b), size)
		}
	}
	// A stream does not know its size and declares a window larger than its data.
	var stream bytes.Buffer
	sw, _ := zstd.NewWriter(&stream)
	sw.Write(text(5000))
	sw.Flush()
	sw.Write(text(10))
	sw.Close()
	if b, err := decompressZstd(stream.Bytes(), 5010); err != nil || !bytes.Equal(b[:5000], text(5000)) {
		t.Errorf("stream: %d bytes, %v", len(b), err)
	}
}

func TestDetect(t *testing.T) {
	for want, src := range map[Format]string{
		Container: "\x50\xed\x55\xba", Wrapper: "\xb1\x43\x62\x46", Object: "\x7fELF", Text: "\n\n//\n.version",
		Unknown: "\x00",
	} {
		if got := Detect([]byte(src)); got != want {
			t.Errorf("%q is %s, want %s", src, got, want)
		}
	}
	b := make([]byte, WrapperSize)
	binary.LittleEndian.PutUint32(b, MagicWrapper)
	binary.LittleEndian.PutUint32(b[4:], 1)
	binary.LittleEndian.PutUint64(b[8:], 0x7fff12345678)
	w, err := ReadWrapper(b)
	if err != nil || w.Data != 0x7fff12345678 || w.Version != 1 {
		t.Errorf("wrapper %+v, %v", w, err)
	}
}

// writeCubin makes an ELF file with one kernel and two variables, as ptxas lays it out.
func writeCubin() []byte {
	le := binary.LittleEndian
	words := func(w ...uint32) (b []byte) {
		for _, x := range w {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	type sec struct {
		name string
		typ  uint32
		link uint32
		data []byte
		size int
	}
	names := "\x00_Z1kPfi\x00counter\x00coeff\x00"
	symbol := func(name uint32, info, other byte, sec uint16, value, size uint64) []byte {
		b := le.AppendUint32(nil, name)
		b = append(b, info, other)
		b = le.AppendUint16(b, sec)
		b = le.AppendUint64(b, value)
		return le.AppendUint64(b, size)
	}
	symtab := append(make([]byte, 24), symbol(1, 0x12, 0x10, 4, 0, 128)...)
	symtab = append(symtab, symbol(9, 0x11, 0, 7, 4, 4)...)
	symtab = append(symtab, symbol(17, 0x11, 0, 8, 0, 16)...)
	attr := func(id byte, value []byte) []byte {
		return append([]byte{4, id, byte(len(value)), byte(len(value) >> 8)}, value...)
	}
	info := bytes.Join([][]byte{
		attr(attrParam, words(0, 1|8<<16, 0x1f000|4<<18)),
		attr(attrParam, words(0, 0, 0x1f000|8<<18)),
		attr(attrParamV2, words(0, 2|16<<16, 20000)),
		attr(attrMaxThreads, words(256, 1, 1)),
		{3, 0x1b, 0xff, 0},
		attr(attrParamCBank, words(2, 0x210|12<<16)),
	}, nil)
	secs := []sec{
		{}, {".shstrtab", 3, 0, nil, 0}, {".strtab", 3, 0, []byte(names), 0}, {".symtab", 2, 2, symtab, 0},
		{".text._Z1kPfi", 1, 3, make([]byte, 128), 0},
		{".nv.info", 0x70000000, 3, bytes.Join([][]byte{attr(attrRegisters, words(1, 24)),
			attr(attrFrameSize, words(1, 8)), attr(attrMinStack, words(1, 40))}, nil), 0},
		{".nv.info._Z1kPfi", 0x70000000, 3, info, 0},
		{".nv.global.init", 1, 0, words(0, 7), 0},
		{".nv.constant3", 1, 0, make([]byte, 16), 0},
		{".nv.shared._Z1kPfi", sectionNoBits, 0, nil, 1056},
		{".nv_debug_ptx_txt", 1, 0, []byte(".version 8.4\x00.target sm_90a\x00"), 0},
	}
	strs := []byte{}
	var at []uint32
	for _, s := range secs {
		at = append(at, uint32(len(strs)))
		strs = append(append(strs, s.name...), 0)
	}
	secs[1].data = strs
	b := make([]byte, 64)
	var table []byte
	for i, s := range secs {
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		table = append(table, words(at[i], s.typ)...)
		table = le.AppendUint64(table, 0)
		table = le.AppendUint64(table, 0)
		table = le.AppendUint64(table, uint64(len(b)))
		table = le.AppendUint64(table, uint64(len(s.data)+s.size))
		table = append(table, words(s.link, 0)...)
		table = le.AppendUint64(table, 1)
		table = le.AppendUint64(table, 0)
		b = append(b, s.data...)
	}
	copy(b, "\x7fELF\x02\x01\x01\x33\x07")
	le.PutUint16(b[16:], 2)
	le.PutUint16(b[18:], elfMachineCUDA)
	le.PutUint32(b[20:], 0x7c)
	le.PutUint64(b[40:], uint64(len(b)))
	le.PutUint32(b[48:], 0x5a0d5a)
	le.PutUint16(b[58:], 64)
	le.PutUint16(b[60:], uint16(len(secs)))
	le.PutUint16(b[62:], 1)
	return append(b, table...)
}

func TestCubin(t *testing.T) {
	b := writeCubin()
	c, err := OpenCubin(b)
	if err != nil {
		t.Fatal(err)
	}
	if c.Arch != 90 || !c.Specific {
		t.Errorf("architecture %d %v", c.Arch, c.Specific)
	}
	if len(c.Kernels) != 1 || len(c.Globals) != 2 {
		t.Fatalf("%d kernels, %d globals", len(c.Kernels), len(c.Globals))
	}
	k := c.Kernels[0]
	k.Code, k.Attrs = nil, nil
	want := Kernel{
		Name: "_Z1kPfi", Entry: true, Regs: 24, Shared: 1056, Frame: 8, Stack: 40,
		MaxThreads: [3]uint32{256, 1, 1}, ParamBase: 0x210, ParamBytes: 12,
		Params: []Param{{0, 0, 8}, {1, 8, 4}, {2, 16, 20000}},
	}
	if !reflect.DeepEqual(k, want) {
		t.Errorf("kernel\n%+v, want\n%+v", k, want)
	}
	if g := c.Globals[0]; g.Name != "counter" || g.Section != ".nv.global.init" ||
		!bytes.Equal(g.Init, []byte{7, 0, 0, 0}) {
		t.Errorf("global %+v", g)
	}
	if text := string(c.PTX()); text != ".version 8.4\n.target sm_90a\n" {
		t.Errorf("PTX %q", text)
	}
	if n, err := ELFSize(b); err != nil || n != int64(len(b)) {
		t.Errorf("size %d, %v, want %d", n, err, len(b))
	}
	le := binary.LittleEndian
	bad := bytes.Clone(b)
	le.PutUint16(bad[18:], 62)
	if _, err := OpenCubin(bad); err == nil || !strings.Contains(err.Error(), "machine") {
		t.Errorf("a host ELF file: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(writeCubin())
	f.Add(write(image{kind: PTX, arch: 80, name: "a.cu", options: "-g", data: text(300), how: LZ4},
		image{kind: PTX, arch: 90, data: text(300), how: Zstd}))
	f.Add(write(image{kind: ELF, arch: 90, data: writeCubin()}))
	f.Fuzz(func(t *testing.T, b []byte) { use(b) })
}

func FuzzLZ4(f *testing.F) {
	f.Add(compressLZ4(text(1000)), 1000)
	f.Fuzz(func(t *testing.T, src []byte, size int) {
		if b, err := decompressLZ4(src, size%(1<<20)); err == nil && len(b) != size%(1<<20) {
			t.Fatalf("%d bytes for %d", len(b), size)
		}
		b, err := decompressLZ4(compressLZ4(src), len(src))
		if err != nil || !bytes.Equal(b, src) {
			t.Fatalf("%d bytes came back as %d: %v", len(src), len(b), err)
		}
	})
}
