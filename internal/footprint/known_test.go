package footprint

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/interval"
)

func readingBytes(r int) int { return [numReadings]int{1, 1, 2, 2, 4, 8}[r] }

// TestContents compares bounds of contents with those that reading every word gives.
func TestContents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		b := make([]byte, 1+r.IntN(1<<r.IntN(16)))
		for i := range b {
			if r.IntN(8) > 0 {
				b[i] = byte(r.Uint32())
			}
		}
		size := uint64(len(b)) + r.Uint64N(2)*r.Uint64N(200)
		c := NewContents(b, size)
		b = append(b, make([]byte, size+8-uint64(len(b)))...)
		for range 50 {
			how := r.IntN(numReadings)
			n := uint64(readingBytes(how))
			if size < n {
				continue
			}
			lo := r.Uint64N(size/n) * n
			hi := lo + n + r.Uint64N((size-lo)/n)*n
			hi = min(hi, size/n*n)
			got, want := c.bounds(how, lo, hi), interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
			for at := lo; at < hi; at += n {
				x := readWord(how, b[at:])
				want = want.Join(interval.Bounds{Lo: x, Hi: x})
				if c.small != nil && c.at(how, at) != x {
					t.Fatalf("word at %d: %d, want %d", at, c.at(how, at), x)
				}
			}
			if !want.In(got) {
				t.Fatalf("reading %d of bytes %d to %d: %v, want %v", how, lo, hi, got, want)
			}
			if hi-lo >= size/n*n && got.Lo < 0 && want.Lo >= 0 {
				t.Errorf("reading %d of all: %v, want %v", how, got, want)
			}
		}
	}
}
