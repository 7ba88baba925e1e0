package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/recording"
)

// onPTX is a GPU on which the recording's PTX runs, of which all variables are known.
func onPTX() *memoryGPU {
	g := gpu()
	g.info.Arch = 120
	return g
}

// State that was saved is what a later player goes on from.
func TestState(t *testing.T) {
	f, path := open(t), filepath.Join(t.TempDir(), "s")
	g := onPTX()
	p, err := Load(g, f, "")
	if err != nil {
		t.Fatal(err)
	}
	want := func(p *Player, first byte, count byte) {
		t.Helper()
		if err := p.Entries[0].Run(time.Second); err != nil {
			t.Fatal(err)
		}
		if out, err := p.Entries[0].Output("out0"); err != nil || out[0] != first || out[16] != count {
			t.Errorf("%v, %v, want %d and %d", out, err, first, count)
		}
	}
	if err := p.Entries[0].SetInput("in0", []byte{5, 6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	want(p, 6, 8)
	copy(g.symbol, "other")
	size, err := p.SaveState(path, 12)
	if st, err2 := os.Stat(path); err != nil || err2 != nil || st.Size() != size {
		t.Fatal(size, err, err2)
	}
	want(p, 6, 9)
	again := onPTX()
	if p, err = Load(again, f, ""); err != nil {
		t.Fatal(err)
	}
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 { // a state may be loaded as often as one likes
		if err := p.LoadState(s); err != nil || s.Runs != 12 {
			t.Fatal(err, s.Runs)
		}
		if string(again.symbol) != "other" {
			t.Errorf("variable %q", again.symbol)
		}
		want(p, 6, 9)
	}
}

// Files that are no state of the recording are refused, and so is state that cannot be all there is.
func TestStateRefusals(t *testing.T) {
	f, path := open(t), filepath.Join(t.TempDir(), "s")
	p, err := Load(onPTX(), f, "")
	if err == nil {
		_, err = p.SaveState(path, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(change func(b []byte) []byte) []byte {
		b := change(bytes.Clone(good[:len(good)-sha256.Size]))
		sum := sha256.Sum256(b)
		return append(b, sum[:]...)
	}
	put := func(at int, with ...byte) []byte {
		return sealed(func(b []byte) []byte { copy(b[at:], with); return b })
	}
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"nothing", "too few", nil},
		{"cut short", "its digest is wrong", good[:len(good)-1]},
		{"a bit", "its digest is wrong", flipped},
		{"magic", "does not begin", put(0, 'x')},
		{"version", "does not begin", put(8, 2)},
		{"pieces", "", put(12, 0xff, 0xff, 0xff, 0xff)},
		{"fewer pieces", "another backend", put(12, 1)},
		{"recording", "another recording", put(24, 1, 2, 3)},
		{"a name", "another backend", put(stateHead+10, 'x')},
		{"its length", "another backend", put(stateHead+8, 0xff, 0xff)},
		{"a size", "another backend", put(stateHead, 1)},
		{"more", "more in it", sealed(func(b []byte) []byte { return append(b, 0) })},
		{"less", "shorter than it says", sealed(func(b []byte) []byte { return b[:len(b)-1] })},
		{"a chunk", "is damaged", put(bytes.LastIndex(good, []byte("variable v"))+len("variable v"), 9)},
	} {
		name := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(name, c.b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenState(name)
		if err == nil {
			err = p.LoadState(s)
			s.Close()
		}
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
			t.Errorf("%s: %v, want something about %q", c.name, err, c.want)
		}
	}
	// Machine code may have variables that have no names.
	if p, err = Load(gpu(), f, ""); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(path), "other")
	if _, err := p.SaveState(other, 1); !errors.Is(err, errHidden) {
		t.Errorf("saved: %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	s, err := OpenState(path)
	if err == nil {
		err = p.LoadState(s)
	}
	if !errors.Is(err, errHidden) {
		t.Errorf("loaded: %v", err)
	}
}

// Every declaration in global memory is seen.
func TestOnlyGlobals(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                                   true,
		"ld.global.u32 %r, [%d];":                            true,
		"cvta.to.global.u64 %d1, %d0;":                       true,
		".param .u64 .ptr .global .align 4 p":                true,
		".param .u64 .ptr\n\t.global p":                      true,
		".visible .global .align 4 .u32 known;":              true,
		".global .align 4 .b8 known[16] = {1, 2};":           true,
		".global .u32 known, other;":                         false,
		".global .u32 hidden;":                               false,
		".visible.global .u32 hidden;":                       false,
		"}.global .u32 hidden;":                              false,
		"ld.global.u32 %r, [%d];\n.weak .global .u32 h = 1;": false,
		".global .u32 known; .global .u32 hidden;":           false,
	} {
		if got := onlyGlobals(text, []string{"known"}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Whatever a file holds: there is no more in it than it has bytes for.
func FuzzState(f *testing.F) {
	le := binary.LittleEndian
	head := append([]byte(stateMagic), 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0)
	head = append(head, make([]byte, sha256.Size)...)
	head = append(le.AppendUint64(head, 20), 1, 0, 'a')
	head = append(le.AppendUint64(head, recording.ChunkSize+5), 1, 0, 'b')
	f.Add(slices.Concat(head, []byte{1}, make([]byte, 20), []byte{0, 0}))
	f.Add(head[:stateHead])
	path := filepath.Join(f.TempDir(), "s")
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := sha256.Sum256(b)
		if err := os.WriteFile(path, append(b, sum[:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenState(path)
		if err != nil {
			return
		}
		defer s.Close()
		chunks := 0
		if err := s.contents(s.pieces, func(_ uint64, b []byte) error { chunks++; return nil }); err == nil {
			if want := len(b) - stateHead; chunks > want {
				t.Errorf("%d chunks of %d bytes", chunks, want)
			}
		} else if !errors.Is(err, ErrState) {
			t.Error(err)
		}
	})
}
