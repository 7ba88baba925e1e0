package digest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// reference computes the digest the way the package comment states it, lane by lane.
func reference(chunk []byte) Digest {
	var s states
	s.seed()
	for v := 0; v < ChunkSize/vectorSize; v++ {
		s[v%lanes].step(binary.LittleEndian.Uint64(chunk[v*vectorSize:]),
			binary.LittleEndian.Uint64(chunk[v*vectorSize+8:]))
	}
	return s.join()
}

// random returns a chunk of pseudo-random bytes that depends on seed alone.
func random(seed uint64) []byte {
	c := make([]byte, ChunkSize)
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	for i := 0; i < len(c); i += 8 {
		binary.LittleEndian.PutUint64(c[i:], r.Uint64())
	}
	return c
}

func TestSumIsTheStatedFunction(t *testing.T) {
	for seed := range uint64(3) {
		c := random(seed)
		if got, want := Sum(c), reference(c); got != want {
			t.Errorf("seed %d: Sum %v, stated function %v", seed, got, want)
		}
	}
}

// TestGenericAbsorb tries the portable code, which Sum does not use on every machine.
func TestGenericAbsorb(t *testing.T) {
	for seed := range uint64(3) {
		c := random(seed)
		var s states
		s.seed()
		absorbGeneric(&s, c)
		if got, want := s.join(), reference(c); got != want {
			t.Errorf("seed %d: %v, stated function %v", seed, got, want)
		}
	}
}

func TestZeroDigest(t *testing.T) {
	if got := Sum(make([]byte, ChunkSize)); got != ZeroDigest {
		t.Errorf("digest of zeros is %#v, ZeroDigest %#v", got, ZeroDigest)
	}
}

func BenchmarkSum(b *testing.B) {
	c := random(1)
	b.SetBytes(ChunkSize)
	for b.Loop() {
		Sum(c)
	}
}

func BenchmarkGeneric(b *testing.B) {
	c := random(1)
	b.SetBytes(ChunkSize)
	for b.Loop() {
		var s states
		s.seed()
		absorbGeneric(&s, c)
		s.join()
	}
}

func BenchmarkSumFromMemory(b *testing.B) {
	c := make([]byte, 256<<20)
	for i := range c {
		c[i] = byte(i * 7)
	}
	b.SetBytes(ChunkSize)
	at := 0
	for b.Loop() {
		Sum(c[at : at+ChunkSize])
		at = (at + ChunkSize) % len(c)
	}
}
