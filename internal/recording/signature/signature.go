// Package signature signs recordings and says whose signature one has: Ed25519 (RFC 8032) over the digest of the
// manifest, which has the digest of every chunk. The file is described in docs/recording-format.md.
//
// It is pure: bytes of keys and signatures in, bytes out. It knows no recordings and imports the standard library
// alone.
// Keys are the PEM files of RFC 8410, as openssl makes them. Of their DER it knows the one form that a key of this
// kind has: crypto/x509 would read it too, and is 0.7 MB that hfreplay would carry.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Version is that of the file.
const Version = 1

const (
	magic = "HFRSIGN\n"
	// domain begins what is signed, so that no signature of the same key for another purpose is taken for one of a
	// recording.
	domain = "holdfast recording v1\x00"
)

// Size is that of a signature file, in bytes.
const Size = 8 + 4 + 4 + sha256.Size + sha256.Size + ed25519.SignatureSize

// A Digest is the SHA-256 of a manifest.
type Digest = [sha256.Size]byte

// An ID is the SHA-256 of the 32 bytes of a public key.
type ID [sha256.Size]byte

func (id ID) String() string { return fmt.Sprintf("%x", id[:]) }

// IDOf is the ID of a public key.
func IDOf(key ed25519.PublicKey) ID { return sha256.Sum256(key) }

// A Signature is what a signature file holds. Key and Digest say what to expect of Bytes; they prove nothing.
type Signature struct {
	Key    ID
	Digest Digest // of the manifest that was signed
	Bytes  [ed25519.SignatureSize]byte
}

// Errors of Decode and Check.
var (
	ErrDamaged   = errors.New("the signature is damaged")
	ErrOtherKey  = errors.New("signed with another key")
	ErrOtherFile = errors.New("the signature is not of this recording")
)

func message(d Digest) []byte { return append([]byte(domain), d[:]...) }

// Sign signs the manifest of that digest.
func Sign(key ed25519.PrivateKey, d Digest) *Signature {
	s := &Signature{Key: IDOf(key.Public().(ed25519.PublicKey)), Digest: d}
	copy(s.Bytes[:], ed25519.Sign(key, message(d)))
	return s
}

// Check says why it is no signature of that manifest by one of these keys; nil if it is.
func (s *Signature) Check(d Digest, keys []ed25519.PublicKey) error {
	var ids []string
	for _, key := range keys {
		id := IDOf(key)
		if id != s.Key {
			ids = append(ids, id.String())
			continue
		}
		switch {
		case s.Digest != d:
			return fmt.Errorf("%w: its manifest is %x, the signed one %x", ErrOtherFile, d, s.Digest)
		case !ed25519.Verify(key, message(d), s.Bytes[:]):
			return fmt.Errorf("%w: it is none by key %v", ErrDamaged, id)
		}
		return nil
	}
	return fmt.Errorf("%w, %v; trusted: %s", ErrOtherKey, s.Key, strings.Join(ids, ", "))
}

// Encode is the signature's file.
func (s *Signature) Encode() []byte {
	b := append(make([]byte, 0, Size), magic...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, s.Key[:]...)
	b = append(b, s.Digest[:]...)
	return append(b, s.Bytes[:]...)
}

// Decode reads a signature's file.
func Decode(b []byte) (*Signature, error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: the file does not begin as one does", ErrDamaged)
	}
	if len(b) != Size {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrDamaged, len(b), Size)
	}
	if v, zero := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]); v != Version || zero != 0 {
		return nil, fmt.Errorf("%w: version %d, this holdfast reads %d", ErrDamaged, v, Version)
	}
	b = b[16:]
	s := &Signature{Key: ID(b[:32]), Digest: Digest(b[32:64])}
	copy(s.Bytes[:], b[64:])
	return s, nil
}

// DER of keys up to their 32 bytes (RFC 8410, sections 4 and 7): everything before those is the same in all of them.
var (
	publicDER  = []byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00")
	privateDER = []byte("\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20")
)

const (
	publicPEM  = "PUBLIC KEY"
	privatePEM = "PRIVATE KEY"
)

// Public reads a public key, and Private a private one. Keys of other kinds, encrypted ones and files with anything but
// one key are refused.
func Public(text []byte) (ed25519.PublicKey, error) {
	b, err := keyBytes(text, publicPEM, publicDER)
	return ed25519.PublicKey(b), err
}

// Private reads a private key; see Public.
func Private(text []byte) (ed25519.PrivateKey, error) {
	seed, err := keyBytes(text, privatePEM, privateDER)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func keyBytes(text []byte, kind string, head []byte) ([]byte, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, fmt.Errorf("no PEM file, want one with a %s", kind)
	case block.Type != kind:
		return nil, fmt.Errorf("a PEM file with a %.40q, want a %s", block.Type, kind)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("there is more in the file than one key")
	case len(block.Bytes) != len(head)+32 || !bytes.HasPrefix(block.Bytes, head):
		return nil, errors.New(`not an Ed25519 key, as "holdfast sign --new-key" makes them`)
	}
	return block.Bytes[len(head):], nil
}

// EncodePublic is the file of a public key.
func EncodePublic(key ed25519.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: publicPEM, Bytes: append(bytes.Clone(publicDER), key...)})
}

// EncodePrivate is the file of a private key.
func EncodePrivate(key ed25519.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: privatePEM, Bytes: append(bytes.Clone(privateDER), key.Seed()...)})
}
