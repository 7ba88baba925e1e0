package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// key is a key of our own, another for each n.
func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(n byte) ed25519.PublicKey { return key(n).Public().(ed25519.PublicKey) }

func digest() (d Digest) {
	for i := range d {
		d[i] = byte(i)
	}
	return d
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A signature is good for its manifest and key, read back from its file or not, whichever of the keys it is.
func TestCheck(t *testing.T) {
	s, err := Decode(Sign(key(1), digest()).Encode())
	if err != nil {
		t.Fatal(err)
	}
	other := digest()
	other[31] ^= 1
	lying := *s // says that it is of the other manifest
	lying.Digest = other
	renamed := *s // says that it is by the other key
	renamed.Key = IDOf(public(2))
	for _, c := range []struct {
		name string
		s    *Signature
		of   Digest
		keys []ed25519.PublicKey
		want error
		says string
	}{
		{"good", s, digest(), []ed25519.PublicKey{public(1)}, nil, ""},
		{"the second key", s, digest(), []ed25519.PublicKey{public(2), public(1)}, nil, ""},
		{"another key", s, digest(), []ed25519.PublicKey{public(2)}, ErrOtherKey, s.Key.String()},
		{"no key", s, digest(), nil, ErrOtherKey, s.Key.String()},
		{"another manifest", s, other, []ed25519.PublicKey{public(1)}, ErrOtherFile, "1e1e"},
		{"another manifest, named", &lying, other, []ed25519.PublicKey{public(1)}, ErrDamaged, s.Key.String()},
		{"another key, named", &renamed, digest(), []ed25519.PublicKey{public(2)}, ErrDamaged, ""},
	} {
		err := c.s.Check(c.of, c.keys)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v, %q", c.name, err, c.want, c.says)
		}
	}
}

// No byte of the file or of the digest can be another, and none be missing.
func TestFlipped(t *testing.T) {
	good := Sign(key(1), digest()).Encode()
	check := func(b []byte, d Digest) error {
		s, err := Decode(b)
		if err != nil {
			return err
		}
		return s.Check(d, []ed25519.PublicKey{public(1)})
	}
	if err := check(good, digest()); err != nil || len(good) != Size {
		t.Fatalf("%d bytes, %v", len(good), err)
	}
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			if check(b, digest()) == nil {
				t.Errorf("byte %d, bit %d: taken", i, bit)
			}
		}
		if err := check(good[:i], digest()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	for i := range digest() {
		d := digest()
		d[i] ^= 0x10
		if err := check(good, d); !errors.Is(err, ErrOtherFile) {
			t.Errorf("byte %d of the digest: %v", i, err)
		}
	}
	if err := check(append(bytes.Clone(good), 0), digest()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// Keys of openssl are ours, and a signature by it of the documented message is the one that we make. See
// testdata/keys.sh.
func TestOpenSSL(t *testing.T) {
	private, err := Private(read(t, "openssl.key"))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := Public(read(t, "openssl.pub"))
	if err != nil || !pub.Equal(private.Public()) {
		t.Errorf("%v: not the key's own", err)
	}
	if s := Sign(private, digest()); !bytes.Equal(s.Bytes[:], read(t, "openssl.sig")) {
		t.Errorf("signed %x, openssl %x", s.Bytes, read(t, "openssl.sig"))
	}
	if b := EncodePrivate(private); !bytes.Equal(b, read(t, "openssl.key")) {
		t.Errorf("written %s", b)
	}
	if b := EncodePublic(pub); !bytes.Equal(b, read(t, "openssl.pub")) {
		t.Errorf("written %s", b)
	}
}

// What is no key of this kind is refused, and said to be none.
func TestKeys(t *testing.T) {
	whole := read(t, "openssl.key")
	long := pem.EncodeToMemory(&pem.Block{Type: privatePEM,
		Bytes: append(bytes.Clone(privateDER), make([]byte, 33)...)})
	for _, c := range []struct {
		name            string
		text            []byte
		private, public string // what their errors say
	}{
		{"nothing", nil, "no PEM file", "no PEM file"},
		{"text", []byte("ssh-ed25519 AAAA"), "no PEM file", "no PEM file"},
		{"cut short", whole[:60], "no PEM file", "no PEM file"},
		{"openssl.key", whole, "", `want a PUBLIC KEY`},
		{"openssl.pub", read(t, "openssl.pub"), `want a PRIVATE KEY`, ""},
		{"x25519.key", read(t, "x25519.key"), "not an Ed25519 key", "want a PUBLIC KEY"},
		{"x25519.pub", read(t, "x25519.pub"), "want a PRIVATE KEY", "not an Ed25519 key"},
		{"encrypted.key", read(t, "encrypted.key"), `"ENCRYPTED PRIVATE KEY"`, `"ENCRYPTED PRIVATE KEY"`},
		{"ec.key", read(t, "ec.key"), `"EC PRIVATE KEY"`, `"EC PRIVATE KEY"`},
		{"two", slices.Concat(whole, whole), "more in the file than one key", "want a PUBLIC KEY"},
		{"long", long, "not an Ed25519 key", "want a PUBLIC KEY"},
	} {
		_, err := Private(c.text)
		if says := text(err); says != c.private && (c.private == "" || !strings.Contains(says, c.private)) {
			t.Errorf("%s as a private key: %v, want %q", c.name, err, c.private)
		}
		_, err = Public(c.text)
		if says := text(err); says != c.public && (c.public == "" || !strings.Contains(says, c.public)) {
			t.Errorf("%s as a public key: %v, want %q", c.name, err, c.public)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What is read is written the same, and nothing that is made up is a signature.
func FuzzDecode(f *testing.F) {
	f.Add(Sign(key(1), digest()).Encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(s.Encode(), b) {
			t.Errorf("%x is written %x", b, s.Encode())
		}
		if s.Check(Digest{}, []ed25519.PublicKey{public(1)}) == nil {
			t.Errorf("%x: a signature of what nobody signed", b)
		}
	})
}

// A key that is read is written as one that is read the same.
func FuzzKeys(f *testing.F) {
	f.Add(EncodePrivate(key(1)))
	f.Add(EncodePublic(public(1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := Private(b); err == nil {
			if again, err := Private(EncodePrivate(k)); err != nil || !again.Equal(k) {
				t.Errorf("%x: %v", b, err)
			}
		}
		if k, err := Public(b); err == nil {
			if again, err := Public(EncodePublic(k)); err != nil || !again.Equal(k) {
				t.Errorf("%x: %v", b, err)
			}
		}
	})
}
