package digest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// ChunkSize is the unit of memory that has a digest: the granularity of physical GPU memory, so that every region is
// a whole number of chunks.
const ChunkSize = 2 << 20

// Size is the length of a digest in bytes.
const Size = 16

const (
	lanes      = 256                // one per thread of a block
	vectorSize = 16                 // bytes a lane absorbs in one step
	rowSize    = lanes * vectorSize // bytes all lanes absorb in one step
	rows       = ChunkSize / rowSize
)

// Constants of the function: the fractional part of π (as in Blowfish), the multipliers made odd. The kernels in
// digest.ptx repeat them.
const (
	seedMulA = 0x243f6a8885a308d3
	seedXorA = 0x13198a2e03707344
	seedMulB = 0xa4093822299f31d1
	seedXorB = 0x082efa98ec4e6c89
	joinX    = 0x452821e638d01377
	joinY    = 0xbe5466cf34e90c6c
	closeX   = 0xc0ac29b7c97c50dd
	closeY   = 0x3f84d5b5b5470917
	mixMul1  = 0xff51afd7ed558ccd // the 64-bit finalizer of MurmurHash3
	mixMul2  = 0xc4ceb9fe1a85ec53
)

// closeSteps is the number of steps with constants after the tree.
const closeSteps = 4

// Digest names the content of one chunk.
type Digest [Size]byte

// ZeroDigest is the digest of a chunk of zero bytes.
var ZeroDigest = Digest{
	0xb3, 0xa4, 0xee, 0x6b, 0xb4, 0x12, 0xeb, 0xc6,
	0xb2, 0x63, 0x96, 0x54, 0x06, 0x49, 0x59, 0x6f,
}

// IsZero reports whether d names the chunk of zero bytes.
func (d Digest) IsZero() bool { return d == ZeroDigest }

// String returns d as 32 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements [encoding.TextMarshaler]: 32 hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) {
	return hex.AppendEncode(make([]byte, 0, 2*Size), d[:]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts exactly what MarshalText writes: 32 lower-case
// hexadecimal digits, so that a digest has one spelling (it is also a file name).
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*Size {
		return fmt.Errorf("digest of %d characters, want %d", len(text), 2*Size)
	}
	for i, c := range text {
		if c >= 'A' && c <= 'F' {
			return fmt.Errorf("digest with upper-case digit %q at %d", c, i)
		}
	}
	var v Digest
	if _, err := hex.Decode(v[:], text); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	*d = v
	return nil
}

// Parse reads a digest as String writes it.
func Parse(s string) (Digest, error) {
	var d Digest
	err := d.UnmarshalText([]byte(s))
	return d, err
}

// Sum returns the digest of chunk. It panics when len(chunk) is not ChunkSize: there are no other chunks.
func Sum(chunk []byte) Digest {
	if len(chunk) != ChunkSize {
		panic(fmt.Sprintf("digest: chunk of %d bytes, want %d", len(chunk), ChunkSize))
	}
	var s states
	s.seed()
	s.absorb(chunk)
	return s.join()
}

// states holds the states of all lanes.
type states [lanes]state

// state is the state of one lane.
type state struct{ a, b uint64 }

func (s *states) seed() {
	for i := range s {
		n := uint64(i) + 1
		s[i] = state{a: n*seedMulA ^ seedXorA, b: n*seedMulB ^ seedXorB}
	}
}

// step absorbs one vector.
func (s *state) step(x, y uint64) {
	a, b := s.a^x, s.b^y
	b += (a & 0xffffffff) * (a >> 32)
	a += (b & 0xffffffff) * (b >> 32)
	b += (a & 0xffffffff) * (a >> 32)
	s.a, s.b = a, b
}

// join combines the lanes into the digest. It destroys the states.
func (s *states) join() Digest {
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			s[i].step(joinX, joinY)
			s[i].step(s[i+n].a, s[i+n].b)
		}
	}
	for range closeSteps {
		s[0].step(closeX, closeY)
	}
	a := mix(s[0].a + bits.RotateLeft64(s[0].b, 32))
	b := mix(s[0].b + a)
	var d Digest
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return d
}

// mix is a permutation of 64 bits in which every bit of the input changes every bit of the result half of the time.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= mixMul1
	x ^= x >> 33
	x *= mixMul2
	x ^= x >> 33
	return x
}
