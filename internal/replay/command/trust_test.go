package command

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/recording/signature"
)

// A signed is a recording with a signature, and files of keys: the signer's, and another.
type signed struct {
	file, key, other string
	private          ed25519.PrivateKey
}

func sign(t *testing.T) signed {
	t.Helper()
	s := signed{file: echo(t), private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))}
	dir := t.TempDir()
	s.key, s.other = filepath.Join(dir, "key.pub"), filepath.Join(dir, "other.pub")
	second := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	f, err := recording.Open(s.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, s.key, signature.EncodePublic(s.private.Public().(ed25519.PublicKey)))
	write(t, s.other, signature.EncodePublic(second.Public().(ed25519.PublicKey)))
	write(t, SignatureOf(s.file), signature.Sign(s.private, f.Digest).Encode())
	return s
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Only what a trusted key has signed is opened; errors say what is wrong.
func TestTrust(t *testing.T) {
	s := sign(t)
	unsigned, moved := echo(t), filepath.Join(t.TempDir(), "elsewhere")
	b, err := os.ReadFile(SignatureOf(s.file))
	if err != nil {
		t.Fatal(err)
	}
	write(t, moved, b)
	cut := filepath.Join(t.TempDir(), "cut")
	write(t, cut, b[:len(b)-1])
	large := filepath.Join(t.TempDir(), "large")
	write(t, large, make([]byte, maxKey+1))
	open := filepath.Join(t.TempDir(), "open.pub")
	write(t, open, nil)
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		trust      Trust
		says       string // "": it is opened
	}{
		{"no key, no signature", unsigned, Trust{}, ""},
		{"its key", s.file, Trust{Keys: []string{s.key}}, ""},
		{"one of two", s.file, Trust{Keys: []string{s.other, s.key}}, ""},
		{"a signature elsewhere", s.file, Trust{[]string{s.key}, moved}, ""},
		{"no signature", unsigned, Trust{Keys: []string{s.key}}, "no signature: there is no " + unsigned + ".sig"},
		{"another key", s.file, Trust{Keys: []string{s.other}}, "signed with another key, 34750f98bd59fcfc"},
		{"cut", s.file, Trust{[]string{s.key}, cut}, "signature is damaged: 143 bytes"},
		{"large", s.file, Trust{[]string{s.key}, large}, "more than 16384 bytes"},
		{"no such key", s.file, Trust{Keys: []string{s.key + "x"}}, "no such file"},
		{"no name", s.file, Trust{Keys: []string{""}}, "key : "},
		{"a key that others can write", s.file, Trust{Keys: []string{open}}, "can be written by others"},
		{"no key at all", s.file, Trust{Keys: []string{s.file}}, "no PEM file"},
	} {
		f, err := c.trust.Open(c.file)
		if err == nil {
			f.Close()
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	var wrong *UsageError
	if _, err := (Trust{Signature: moved}).Open(s.file); !errors.As(err, &wrong) {
		t.Errorf("--signature without a key: %v", err)
	}
}

// Whichever byte of a signed recording is another: it is refused before a backend has a byte of it. Or nothing is
// changed by that: a zstd frame has bits that do not matter, and what is signed is what chunks hold.
func TestSignedFlipped(t *testing.T) {
	s := sign(t)
	good, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	var mem map[uint64][]byte
	way := func() (engine.Backend, string, error) {
		mem = map[uint64][]byte{}
		closed, breaks := 0, 0
		return &plain{mem: mem, closed: &closed, breaks: &breaks}, "plain", nil
	}
	o := Options{Runs: 1, Timeout: time.Minute, Trust: Trust{Keys: []string{s.key}}}
	if _, err := Replay(s.file, o, way); err != nil || len(written(mem)) != 8 {
		t.Fatalf("%v, written: %v", err, written(mem))
	}
	want, ran := written(mem), 0
	manifest := binary.LittleEndian.Uint64(good[16:])
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x20
		write(t, s.file, b)
		mem = nil
		_, err := Replay(s.file, o, way)
		switch {
		case err == nil && (uint64(i) < 64 || uint64(i) >= manifest || !maps.Equal(written(mem), want)):
			t.Errorf("byte %d: it ran", i)
		case err == nil:
			ran++
		case len(written(mem)) > 0:
			t.Errorf("byte %d: the backend has %v", i, written(mem))
		}
	}
	if ran > 4 {
		t.Errorf("%d bytes of chunks did not matter", ran)
	}
}

// written is what is not zero in memory, by address.
func written(mem map[uint64][]byte) map[uint64]byte {
	out := map[uint64]byte{}
	for at, m := range mem {
		for i, b := range m {
			if b != 0 {
				out[at+uint64(i)] = b
			}
		}
	}
	return out
}

// A recording that is whole, but not the one that was signed, is refused before a backend is opened.
func TestSignedReplaced(t *testing.T) {
	s := sign(t)
	b, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := recording.Create(s.file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := recording.NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	work, err := f.Read(f.Manifest.Entries[0].Work)
	if err != nil {
		t.Fatal(err)
	}
	m := *f.Manifest
	in := w.Put([]byte{4, 3, 2, 1})
	m.Entries[0].Work, m.Entries[0].Inputs[0].Recorded = w.Put(work), &in
	if _, err := w.Finish(&m); err != nil {
		t.Fatal(err)
	}
	o := Options{Runs: 1, Timeout: time.Minute}
	closed, breaks, opened := 0, 0, 0
	way := func() (engine.Backend, string, error) {
		opened++
		return &plain{mem: map[uint64][]byte{}, closed: &closed, breaks: &breaks}, "plain", nil
	}
	if _, err := Replay(s.file, o, way); err != nil || opened != 1 {
		t.Fatalf("without a key: %v, %d opened", err, opened)
	}
	o.Trust.Keys = []string{s.key}
	if _, err := Replay(s.file, o, way); !errors.Is(err, signature.ErrOtherFile) || opened != 1 {
		t.Errorf("%v, %d opened", err, opened)
	}
}
