package tap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"holdfast/internal/trace"
)

type keeper struct {
	records []trace.Record
	modules []*Module
}

func (k *keeper) Record(rec trace.Record, _ []byte) error {
	k.records = append(k.records, rec)
	return nil
}

func (k *keeper) Module(m *Module) error {
	k.modules = append(k.modules, m)
	return nil
}

const text = ".version 8.0\n.target sm_90a, debug\n.address_size 64\n"

// container is a fat binary with stored entries: a kind and a payload each.
func container(entries ...any) []byte {
	var rest []byte
	le := binary.LittleEndian
	for i := 0; i < len(entries); i += 2 {
		payload := []byte(entries[i+1].(string))
		for len(payload)%8 != 0 {
			payload = append(payload, 0)
		}
		h := make([]byte, 64)
		le.PutUint16(h, uint16(entries[i].(int)))
		le.PutUint16(h[2:], 0x101)
		le.PutUint32(h[4:], 64)
		le.PutUint64(h[8:], uint64(len(payload)))
		le.PutUint32(h[28:], 80)
		rest = append(append(rest, h...), payload...)
	}
	b := make([]byte, 16)
	le.PutUint32(b, 0xba55ed50)
	le.PutUint16(b[4:], 1)
	le.PutUint16(b[6:], 16)
	le.PutUint64(b[8:], uint64(len(rest)))
	return append(b, rest...)
}

func TestModules(t *testing.T) {
	fat := container(2, "\x7fELF whatever", 1, text, 1, ".version 8.1\n")
	cubin := "\x7fELF and so on"
	for _, c := range []struct {
		name  string
		m     trace.Module
		code  string
		texts []string
		archs []uint32
		bad   bool
	}{
		{name: "text", m: trace.Module{Kind: trace.CodePTX}, code: text, texts: []string{text}, archs: []uint32{90}},
		{name: "fat binary", m: trace.Module{Kind: trace.CodeFatbin}, code: string(fat),
			texts: []string{text, ".version 8.1\n"}, archs: []uint32{80, 80}},
		{name: "large cubin", m: trace.Module{Kind: trace.CodeCubin, Flags: trace.Outline}, code: cubin},
		{name: "outline", m: trace.Module{Kind: trace.CodeFatbin, Flags: trace.Outline}, code: string(fat[:50])},
		{name: "broken", m: trace.Module{Kind: trace.CodeFatbin}, code: string(fat[:50]), bad: true},
		{name: "cubin", m: trace.Module{Kind: trace.CodeCubin, Digest: trace.Digest{1}}},
		{name: "untold", m: trace.Module{Kind: trace.CodeCubin}},
	} {
		k, a := &keeper{}, &assembly{}
		c.m.ID, c.m.Code = 7, uint64(len(c.code))
		if err := a.record(&c.m, nil, k); err != nil {
			t.Fatal(c.name, err)
		}
		for at := 0; at < len(c.code); at += 20 {
			// Other records may come between the pieces.
			for _, rec := range []trace.Record{&trace.Free{Addr: 1},
				&trace.Code{Module: 7, Offset: uint64(at), Bytes: []byte(c.code[at:min(at+20, len(c.code))])}} {
				if err := a.record(rec, nil, k); err != nil {
					t.Fatal(c.name, err)
				}
			}
		}
		if len(k.modules) != 1 {
			t.Fatalf("%s: %d modules", c.name, len(k.modules))
		}
		m := k.modules[0]
		var texts []string
		var archs []uint32
		for i, p := range m.PTX {
			texts = append(texts, string(p))
			archs = append(archs, m.Texts[i].Arch)
			if m.Texts[i].Digest != sha256.Sum256(p) {
				t.Errorf("%s: text %d has another digest", c.name, i)
			}
		}
		if !reflect.DeepEqual(texts, c.texts) || !reflect.DeepEqual(archs, c.archs) || (m.Err != nil) != c.bad {
			t.Errorf("%s: %q for %v, %v", c.name, texts, archs, m.Err)
		}
		if (m.Digest != trace.Digest{}) != (c.code != "" || c.m.Digest != trace.Digest{}) {
			t.Errorf("%s: digest %v", c.name, m.Digest)
		}
	}
}

func TestHostile(t *testing.T) {
	for name, records := range map[string][]trace.Record{
		"too much":        {&trace.Module{ID: 1, Code: trace.MaxText + 1}},
		"no module":       {&trace.Code{Module: 1, Bytes: []byte("x")}},
		"of another":      {&trace.Module{ID: 1, Code: 2}, &trace.Code{Module: 2, Bytes: []byte("x")}},
		"not in order":    {&trace.Module{ID: 1, Code: 2}, &trace.Code{Module: 1, Offset: 1, Bytes: []byte("x")}},
		"more than told":  {&trace.Module{ID: 1, Code: 2}, &trace.Code{Module: 1, Bytes: []byte("xyz")}},
		"within a module": {&trace.Module{ID: 1, Code: 2}, &trace.Module{ID: 2}},
	} {
		a := &assembly{}
		var err error
		for _, rec := range records {
			if err == nil {
				err = a.record(rec, nil, &keeper{})
			}
		}
		if !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTarget(t *testing.T) {
	for in, want := range map[string]uint32{text: 90, ".target sm_100\n": 100, ".target texmode_independent\nsm_70": 0,
		"": 0, ".target sm_": 0, ".target sm_99999999999": 9999} {
		if got := Target([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func TestSearch(t *testing.T) {
	dir := t.TempDir()
	put := func(name, what string) trace.Digest {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(what), 0o600); err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256([]byte(what))
	}
	a := put("X/add.cubin", "cubin a")
	put("X/add.ptx", "ptx a")
	b := put("Y/mul.cubin", "cubin b") // of the same size
	put("Y/mul.ptx", "ptx b")
	lonely := put("Z/lonely.cubin", "cubin without ptx")
	put("1/2/3/4/5/deep.cubin", "deep")
	deep := trace.Digest(sha256.Sum256([]byte("deep")))
	got := Search([]string{filepath.Join(dir, "none"), dir}, map[trace.Digest]uint64{a: 7, lonely: 17, deep: 4, {1}: 7})
	if len(got) != 1 || string(got[a]) != "ptx a" || got[b] != nil {
		t.Errorf("%q", got)
	}
	env := []string{"HOME=/h", "TRITON_CACHE_DIR=/c", "TORCHINDUCTOR_CACHE_DIR=relative"}
	if dirs := Caches(env); len(dirs) < 2 || dirs[0] != "/c" || dirs[1] != "/h/.triton/cache" {
		t.Errorf("%q", dirs)
	}
}

// A stream of records, whatever it holds, is read or refused.
func FuzzRecords(f *testing.F) {
	var seed []byte
	for _, r := range []trace.Record{&trace.Module{ID: 1, Code: uint64(len(text)), Kind: trace.CodePTX},
		&trace.Code{Module: 1, Bytes: []byte(text)},
		&trace.Kernel{ID: 1, Module: 1, Name: "k"}, &trace.Launch{Kernel: 1, Params: []byte{1}}} {
		var err error
		if seed, err = trace.Append(seed, r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed)
	fat := container(1, text)
	seed, _ = trace.Append(nil, &trace.Module{ID: 1, Code: uint64(len(fat)), Kind: trace.CodeFatbin})
	seed, _ = trace.Append(seed, &trace.Code{Module: 1, Bytes: fat})
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		k, a := &keeper{}, &assembly{}
		for len(b) > 0 {
			n, err := trace.Size(b)
			if err != nil || n == 0 {
				return
			}
			rec, err := trace.Decode(bytes.Clone(b[:n]))
			if err != nil {
				return
			}
			if a.record(rec, b[:n], k) != nil {
				return
			}
			b = b[n:]
		}
		for _, m := range k.modules {
			if len(m.PTX) != len(m.Texts) {
				t.Fatal("a text without a reference")
			}
		}
	})
}
