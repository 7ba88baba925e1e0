package qmd

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/test/golden"
)

// otherwise are fields that libcuda sets for purposes of its own: the order of its streams, what it prefetches, its
// banks.
var otherwise = map[Field]string{DependenceCounter: "streams", ReleaseEnable: "streams",
	ReleaseStructureSize: "streams",
	ReleaseAddrLower:     "streams", ReleaseAddrUpper: "streams", ReleasePayloadLower: "streams",
	DependentEnable: "streams",
	DependentAction: "streams", DependentPrefetch: "streams", DependentPointer: "streams",
	BankValid: "its banks 1, 5 and 7", BankPrefetch: "prefetch", BankAddrLower: "addresses", BankAddrUpper: "addresses",
	BankSize: "its banks are longer", BankInvalidate: "one flag says it for all banks",
	ProgramLower: "addresses", ProgramUpper: "addresses", PrefetchAddrLower: "addresses",
	PrefetchAddrUpper: "addresses",
	PrefetchSize:      "prefetch", LocalHighSize: "its stacks have 1024 bytes at least"}

// What launches say is what libcuda says of the same launches.
func TestAsLibcuda(t *testing.T) {
	text, err := os.ReadFile("testdata/libcuda.txt")
	if err != nil {
		t.Fatal(err)
	}
	carve := map[string][2]uint32{"smem": {100, 132}, "dsmem_20K": {228, 228}, "regs": {8, 32}}
	compared := 0
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		var name string
		var n [12]uint32
		in := strings.NewReader(line)
		fmt.Fscan(in, &name)
		for i := range n {
			fmt.Fscan(in, &n[i])
		}
		theirs := Descriptor{&V4, make([]byte, V4.Size)}
		for i := range V4.Size / 4 {
			var w uint32
			if _, err := fmt.Fscanf(in, "%x", &w); err != nil {
				t.Fatal(name, err)
			}
			binary.LittleEndian.PutUint32(theirs.B[4*i:], w)
		}
		c, ok := carve[name]
		if !ok {
			c = [2]uint32{16, 32}
		}
		l := &Launch{Grid: [3]uint32(n[0:3]), Block: [3]uint32(n[3:6]), Shared: (n[6] + n[7] + 1024 + 127) &^ 127,
			Cluster: [3]uint32(n[8:11]), Registers: n[11], Barriers: 1, Carve: [3]uint32{c[0] << 10, c[1] << 10,
				228 << 10},
			Sass: 0x90, Invalidate: true}
		ours, err := V4.Build(l)
		if err != nil {
			t.Fatal(name, err)
		}
		for f := range numFields {
			if _, ok := otherwise[f]; ok || !V4.Has(f) {
				continue
			}
			compared++
			if a, b := (Descriptor{&V4, ours}).Get(f, 0), theirs.Get(f, 0); a != b {
				t.Errorf("%s: %v is %#x, libcuda's %#x", name, f, a, b)
			}
		}
	}
	if compared < 200 {
		t.Errorf("%d fields were compared", compared)
	}
}

// What a launch that starts the next one fetches, and waits for at its end, is what libcuda's graphs say.
func TestChainAsLibcuda(t *testing.T) {
	text, err := os.ReadFile("testdata/libcuda-graph.txt")
	if err != nil {
		t.Fatal(err)
	}
	bank := func(n int) Bank { return Bank{Addr: 0x7fed62010900 + uint64(n)*0x700, Size: 768} }
	compared := 0
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		theirs := Descriptor{&V4, make([]byte, V4.Size)}
		var n int
		fmt.Sscan(words[0], &n)
		for i, word := range words[1:] {
			var w uint32
			if _, err := fmt.Sscanf(word, "%x", &w); err != nil {
				t.Fatal(err)
			}
			binary.LittleEndian.PutUint32(theirs.B[4*i:], w)
		}
		l := &Launch{Grid: [3]uint32{uint32(1000 + n), 1, 1}, Block: [3]uint32{uint32(32 * (n + 1)), 1, 1},
			Program: 0x7fed637a0000, Code: 0x980, Registers: 16, Shared: 1024, Barriers: 1, Sass: 0x90, Whole: true,
			Counted: true}
		l.Bank[0] = bank(n)
		if n < 23 {
			l.Dependents = []Dependent{{Addr: theirs.Get(DependentPointer, 0) << 8, Action: ActionSchedule}}
			l.Next = &Next{Program: l.Program, Code: l.Code, Bank: bank(n + 1)}
		}
		b, err := V4.Build(l)
		if err != nil {
			t.Fatal(err)
		}
		ours := Descriptor{&V4, b}
		same := func(f Field, i int) {
			compared++
			if a, b := ours.Get(f, i), theirs.Get(f, i); a != b {
				t.Errorf("launch %d: %v[%d] is %#x, libcuda's %#x", n, f, i, a, b)
			}
		}
		fields := []Field{CWDMembarType, TaskChasing, SelfCopy, RequireSchedulingPCAS, DependenceCounter,
			EnableProgramPreExit, DependentEnable, DependentAction, DependentPrefetch, DependentPointer}
		if n < 23 {
			fields = append(fields, PrefetchAddrLower, PrefetchAddrUpper, PrefetchSize, PrefetchType)
		}
		for _, f := range fields {
			same(f, 0)
		}
		for _, f := range []Field{BankValid, BankPrefetch, BankAddrLower, BankAddrUpper, BankSize} {
			same(f, 0)
			same(f, nextBank)
		}
	}
	if compared < 50 {
		t.Errorf("%d fields were compared", compared)
	}
}

// full uses every part of a launch.
func full() *Launch {
	l := &Launch{Grid: [3]uint32{7, 5, 3}, Block: [3]uint32{64, 4, 2}, Program: 0x123456789a00, Code: 0x4000,
		Registers: 40,
		Barriers:  3, Shared: 0x2400, Carve: [3]uint32{64 << 10, 100 << 10, 228 << 10}, Local: 0x850, Sass: 0x90,
		Invalidate: true,
		Counter:    2, Dependents: []Dependent{{Addr: 0xab_cdef_0100, Action: ActionSchedule}},
		Releases: []Release{{Addr: 0x1122334450, Payload: 9, Add: true}, {Addr: 0x1122334460, Payload: 8}}}
	for i := range 4 {
		l.Bank[2*i] = Bank{Addr: 0x7_0000_0000 + uint64(i)<<16, Size: uint32(i+1) * 64}
	}
	return l
}

// The bytes of descriptors are those of testdata. Version 3.0 was never tried on a GPU: this is all that is known of
// it.
func TestGolden(t *testing.T) {
	clusters := full()
	clusters.Cluster = [3]uint32{7, 1, 1}
	ampere := full()
	ampere.Sass, ampere.Carve = 0x80, [3]uint32{64 << 10, 100 << 10, 164 << 10}
	for _, g := range []struct {
		name string
		v    *Version
		l    *Launch
	}{{"v4", &V4, full()}, {"v4-cluster", &V4, clusters}, {"v3", &V3, ampere}} {
		b, err := g.v.Build(g.l)
		if err != nil {
			t.Fatal(g.name, err)
		}
		golden.File(t, "testdata/"+g.name+".txt", []byte(hex.Dump(b)))
	}
}

// spelled3 are fields that version 3.0 spells otherwise.
var spelled3 = map[string]string{"RELEASE_ENABLE": "RELEASE0_ENABLE",
	"RELEASE_STRUCTURE_SIZE": "RELEASE0_STRUCTURE_SIZE",
	"RELEASE_MEMBAR_TYPE":    "RELEASE0_MEMBAR_TYPE", "RELEASE_PAYLOAD64B": "RELEASE0_PAYLOAD64B",
	"RELEASE_REDUCTION_ENABLE": "RELEASE0_REDUCTION_ENABLE", "RELEASE_REDUCTION_OP": "RELEASE0_REDUCTION_OP",
	"RELEASE_SEMAPHORE0_ADDR_LOWER":    "RELEASE0_ADDRESS_LOWER",
	"RELEASE_SEMAPHORE0_ADDR_UPPER":    "RELEASE0_ADDRESS_UPPER",
	"RELEASE_SEMAPHORE0_PAYLOAD_LOWER": "RELEASE0_PAYLOAD_LOWER",
	"RELEASE_SEMAPHORE0_PAYLOAD_UPPER": "RELEASE0_PAYLOAD_UPPER", "DEPENDENT_QMD_ENABLE": "DEPENDENT_QMD0_ENABLE",
	"DEPENDENT_QMD_ACTION": "DEPENDENT_QMD0_ACTION", "DEPENDENT_QMD_PREFETCH": "DEPENDENT_QMD0_PREFETCH",
	"CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6": "CONSTANT_BUFFER_ADDR_LOWER",
	"CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6": "CONSTANT_BUFFER_ADDR_UPPER", "QMD_MINOR_VERSION": "QMD_VERSION",
	"GRID_WIDTH": "CTA_RASTER_WIDTH", "GRID_HEIGHT": "CTA_RASTER_HEIGHT", "GRID_DEPTH": "CTA_RASTER_DEPTH",
	"REGISTER_COUNT": "REGISTER_COUNT_V"}

// Fields stand where the headers say.
func TestHeaders(t *testing.T) {
	for file, v := range map[string]*Version{"testdata/fields-v4.txt": &V4, "testdata/fields-v3.txt": &V3} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		header := map[string]span{}
		for line := range strings.Lines(string(text)) {
			var name string
			var s span
			if line[0] == '#' {
				continue
			}
			fmt.Sscan(line, &name, &s.high, &s.low, &s.stride)
			header[name] = s
		}
		for f := range numFields {
			name := names[f]
			if other, ok := spelled3[name]; ok && v == &V3 {
				name = other
			}
			got, want := v.spans[f], header[name]
			if got.missing() {
				continue
			}
			// Of fields that the header numbers by hand the first one says nothing of a stride.
			if second, ok := header[strings.Replace(name, "0", "1", 1)]; want.stride == 0 && ok && got.stride != 0 {
				want.stride = second.low - want.low
			}
			if got != want {
				t.Errorf("%s: %s is %v, in the header %v", v.Name, name, got, want)
			}
		}
	}
}

// No two fields of a version share a bit, but for a field's own index.
func TestFieldsApart(t *testing.T) {
	count := map[Field]int{ReleaseEnable: 2, ReleaseStructureSize: 2, ReleaseMembarType: 2, ReleasePayload64B: 2,
		ReleaseReduction:   2,
		ReleaseReductionOp: 2, ReleaseAddrLower: 2, ReleaseAddrUpper: 2, ReleasePayloadLower: 2, ReleasePayloadUpper: 2,
		DependentEnable: 2, DependentAction: 2, DependentPrefetch: 2, BankValid: 8, BankPrefetch: 8, BankInvalidate: 8,
		BankAddrLower: 8, BankAddrUpper: 8, BankSize: 8}
	for _, v := range []*Version{&V3, &V4} {
		owner := map[int]string{}
		for f := range numFields {
			s := v.spans[f]
			if s.missing() {
				continue
			}
			for i := range max(count[f], 1) {
				if i > 0 && s.stride == 0 {
					break
				}
				for bit := s.low + i*s.stride; bit <= s.high+i*s.stride; bit++ {
					me := fmt.Sprintf("field %d[%d]", f, i)
					if other, ok := owner[bit]; ok {
						t.Errorf("%s: bit %d is of %s and %s", v.Name, bit, other, me)
					}
					owner[bit] = me
				}
			}
		}
	}
}

func TestSetGet(t *testing.T) {
	for _, v := range []*Version{&V3, &V4} {
		for f := range numFields {
			s := v.spans[f]
			if s.missing() {
				continue
			}
			d := Descriptor{v, make([]byte, v.Size)}
			width := s.high - s.low + 1
			ones := uint64(1)<<width - 1
			if err := d.Set(f, 0, ones); err != nil || d.Get(f, 0) != ones {
				t.Errorf("%s: field %d: %v, %#x", v.Name, f, err, d.Get(f, 0))
			}
			if err := d.Set(f, 0, ones+1); err == nil {
				t.Errorf("%s: field %d takes %#x", v.Name, f, ones+1)
			}
			if err := d.Set(f, 0, 0); err != nil || strings.Trim(string(d.B), "\x00") != "" {
				t.Errorf("%s: field %d: %v leaves bits", v.Name, f, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*Launch){
		"empty grid":          func(l *Launch) { l.Grid[1] = 0 },
		"empty block":         func(l *Launch) { l.Block[2] = 0 },
		"part of a cluster":   func(l *Launch) { l.Cluster = [3]uint32{2, 1, 1} },
		"flat cluster":        func(l *Launch) { l.Cluster = [3]uint32{7, 0, 1} },
		"registers":           func(l *Launch) { l.Registers = 512 },
		"bank not aligned":    func(l *Launch) { l.Bank[3] = Bank{Addr: 32, Size: 64} },
		"three dependents":    func(l *Launch) { l.Dependents = make([]Dependent, 3) },
		"dependent too far":   func(l *Launch) { l.Dependents = []Dependent{{Addr: 1 << 40}} },
		"dependent unaligned": func(l *Launch) { l.Dependents = []Dependent{{Addr: 128}} },
		"program too far":     func(l *Launch) { l.Program = 1 << 60 },
	} {
		l := full()
		change(l)
		if _, err := V4.Build(l); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	l := full()
	l.Cluster = [3]uint32{7, 1, 1}
	if _, err := V3.Build(l); err == nil {
		t.Error("version 3.0 takes a cluster")
	}
}
