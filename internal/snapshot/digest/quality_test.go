package digest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// distinct fails when two different labels get one digest.
type distinct struct {
	t    *testing.T
	seen map[Digest]string
}

func (d *distinct) add(label string, chunk []byte) {
	d.t.Helper()
	v := Sum(chunk)
	if other, ok := d.seen[v]; ok {
		d.t.Fatalf("%s and %s have the digest %v", other, label, v)
	}
	d.seen[v] = label
}

// bases are contents that weak functions fail on: constant, sparse and random ones.
func bases() map[string][]byte {
	ones := make([]byte, ChunkSize)
	floats := make([]byte, ChunkSize)
	counter := make([]byte, ChunkSize)
	for i := 0; i < ChunkSize; i += 4 {
		binary.LittleEndian.PutUint32(ones[i:], math.MaxUint32)
		binary.LittleEndian.PutUint32(floats[i:], math.Float32bits(1))
		binary.LittleEndian.PutUint32(counter[i:], uint32(i/4))
	}
	return map[string][]byte{"zeros": make([]byte, ChunkSize), "ones": ones, "floats": floats, "counter": counter,
		"random": random(7)}
}

func TestEverySmallChangeChangesTheDigest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, c := range bases() {
		d := &distinct{t, map[Digest]string{}}
		d.add(name, c)
		flip := func(label string, bitsToFlip ...int) {
			for _, b := range bitsToFlip {
				c[b/8] ^= 1 << (b % 8)
			}
			d.add(label, c)
			for _, b := range bitsToFlip {
				c[b/8] ^= 1 << (b % 8)
			}
		}
		const last = 8*ChunkSize - 1
		for _, b := range []int{0, 1, 31, 32, 63, 64, 127, 128, 8 * rowSize, last - 127, last - 63, last} {
			flip("edge", b)
		}
		for range 60 {
			b := r.IntN(last + 1)
			flip("one bit", b)
			flip("two bits, one lane's next vector", b, (b+8*rowSize)%(last+1))
			flip("two bits, neighbouring lane", b, (b+8*vectorSize)%(last+1))
		}
		// The top bits of all words of a vector and of the lane's next ones: what negating floats does.
		for n := 1; n <= 8; n++ {
			var top []int
			for v := range n {
				for w := range 4 {
					top = append(top, v*8*rowSize+w*32+31)
				}
			}
			flip("signs", top...)
		}
	}
}

func TestEveryRearrangementChangesTheDigest(t *testing.T) {
	for _, name := range []string{"counter", "random"} {
		c := bases()[name]
		d := &distinct{t, map[Digest]string{}}
		d.add(name, c)
		swap := func(label string, i, j, n int) {
			old := append([]byte(nil), c...)
			copy(c[i:i+n], old[j:j+n])
			copy(c[j:j+n], old[i:i+n])
			if !bytes.Equal(c, old) {
				d.add(label, c)
			}
			copy(c, old)
		}
		swap("words of one vector", 0, 8, 8)
		swap("half words", 0, 4, 4)
		swap("first and last byte", 0, ChunkSize-1, 1)
		swap("vectors of neighbouring lanes", 0, vectorSize, vectorSize)
		swap("vectors of one lane", 0, rowSize, vectorSize)
		swap("rows", 0, rowSize, rowSize)
		swap("half rows", 0, rowSize/2, rowSize/2)
		swap("halves of the chunk", 0, ChunkSize/2, ChunkSize/2)
		swap("pages", 0, 64<<10, 4<<10)
		// two lanes exchange everything they absorb
		old := append([]byte(nil), c...)
		for row := 0; row < ChunkSize; row += rowSize {
			copy(c[row:row+16], old[row+2048:row+2064])
			copy(c[row+2048:row+2064], old[row:row+16])
		}
		d.add("lanes 0 and 128", c)
		for i, v := range old {
			c[ChunkSize-1-i] = v
		}
		d.add("reversed", c)
	}
}

func TestZeroRunsOfEveryPlaceDiffer(t *testing.T) {
	base := bases()["floats"]
	d := &distinct{t, map[Digest]string{}}
	d.add("no run", base)
	for _, n := range []int{1 << 4, 1 << 8, 1 << 12, 1 << 16, 1 << 20} {
		for _, at := range []int{0, 4, n, 2 * n, ChunkSize - n} {
			if n == 1<<20 && (at == 2*n || at == ChunkSize-n) { // at == n already
				continue
			}
			c := append([]byte(nil), base...)
			clear(c[at : at+n])
			d.add("run", c)
		}
	}
	// Zeros with one vector that is not, in a sample of places: translations of one content.
	c := make([]byte, ChunkSize)
	for v := 0; v < ChunkSize/vectorSize; v += 997 {
		c[v*vectorSize] = 1
		d.add("lone one", c)
		c[v*vectorSize] = 0
	}
}

// TestAvalanche flips bits and counts how often each bit of the digest changes: half of the time, wherever the flipped
// bit was. The lane's last vectors get the fewest steps, so they are tried separately.
func TestAvalanche(t *testing.T) {
	const flips = 300
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name  string
		chunk []byte
		bit   func() int
	}{
		{"random, anywhere", random(11), func() int { return r.IntN(8 * ChunkSize) }},
		{"random, last row", random(12), func() int { return 8*(ChunkSize-rowSize) + r.IntN(8*rowSize) }},
		{"random, last lane's last vector", random(13), func() int {
			return 8*(ChunkSize-vectorSize) + r.IntN(8*vectorSize)
		}},
		{"zeros, anywhere", make([]byte, ChunkSize), func() int { return r.IntN(8 * ChunkSize) }},
		{"zeros, lane 0's last vector", make([]byte, ChunkSize), func() int {
			return 8*(ChunkSize-rowSize) + r.IntN(8*vectorSize)
		}},
	} {
		var changed [8 * Size]int
		total, least, most := 0, 8*Size, 0
		for range flips {
			// another base each time: some cases have few bits to flip
			binary.LittleEndian.PutUint64(c.chunk[64:], r.Uint64())
			base := Sum(c.chunk)
			b := c.bit()
			c.chunk[b/8] ^= 1 << (b % 8)
			d := Sum(c.chunk)
			c.chunk[b/8] ^= 1 << (b % 8)
			n := 0
			for i := range d {
				x := d[i] ^ base[i]
				n += bits.OnesCount8(x)
				for j := range 8 {
					changed[8*i+j] += int(x >> j & 1)
				}
			}
			total += n
			least, most = min(least, n), max(most, n)
		}
		if mean := float64(total) / flips; mean < 62.5 || mean > 65.5 {
			t.Errorf("%s: a flip changes %.2f of 128 bits on average", c.name, mean)
		}
		if least < 64-32 || most > 64+32 { // 5.7 standard deviations
			t.Errorf("%s: flips change between %d and %d bits", c.name, least, most)
		}
		for i, n := range changed {
			if n < flips/2-48 || n > flips/2+48 { // 5.5 standard deviations
				t.Errorf("%s: digest bit %d changed in %d of %d flips", c.name, i, n, flips)
			}
		}
	}
}

// TestStepHasNoCertainDifference looks for what a function without data-dependent products has: a change of one
// vector whose effect on the lane's state is the same for every state, so that a fixed change of the next vector undoes
// it. All changes of one and two bits are tried on many states.
func TestStepHasNoCertainDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const tries = 24
	var from [tries]state
	for i := range from {
		from[i] = state{r.Uint64(), r.Uint64()}
	}
	word := func(b int) (x, y uint64) {
		if b < 64 {
			return 1 << b, 0
		}
		return 0, 1 << (b - 64)
	}
	for i := range 128 {
		for j := i; j < 128; j++ {
			x, y := word(i)
			if j != i {
				jx, jy := word(j)
				x, y = x|jx, y|jy
			}
			seen := make(map[state]bool, tries)
			for _, s := range from {
				plain, changed := s, s
				plain.step(0, 0)
				changed.step(x, y)
				delta := state{plain.a ^ changed.a, plain.b ^ changed.b}
				if seen[delta] {
					t.Fatalf("bits %d and %d: two of %d states answer with the same difference %x", i, j, tries, delta)
				}
				seen[delta] = true
			}
		}
	}
}

// TestStepIsInvertible undoes steps: a step that lost information would let different contents meet.
func TestStepIsInvertible(t *testing.T) {
	product := func(v uint64) uint64 { return (v & 0xffffffff) * (v >> 32) }
	r := rand.New(rand.NewPCG(8, 9))
	for range 10000 {
		s := state{r.Uint64(), r.Uint64()}
		x, y := r.Uint64(), r.Uint64()
		v := s
		v.step(x, y)
		v.b -= product(v.a)
		v.a -= product(v.b)
		v.b -= product(v.a)
		v.a ^= x
		v.b ^= y
		if v != s {
			t.Fatalf("state %x after absorbing %x %x and undoing it: %x", s, x, y, v)
		}
	}
}

func TestTextForm(t *testing.T) {
	d := Sum(random(5))
	text, err := d.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(string(text)); err != nil || got != d || string(text) != d.String() {
		t.Errorf("%s read back as %v, %v", text, got, err)
	}
	for _, bad := range []string{"", "00", string(text) + "0", "0x" + string(text)[2:], "AB" + string(text)[2:],
		"zz" + string(text)[2:]} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ZeroDigest.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := Parse(s); err == nil && d.String() != s {
			t.Errorf("%q was read as %v", s, d)
		}
	})
}

// TestFormatIsFrozen holds the digests of fixed contents: images on disk depend on them.
func TestFormatIsFrozen(t *testing.T) {
	for name, want := range map[string]string{
		"zeros":   "b3a4ee6bb412ebc6b26396540649596f",
		"counter": "090e71fc5ce3e668a7e5406c39719b6e",
		"floats":  "c4ecf4632729c899e7af9d28b51933c5",
	} {
		if got := Sum(bases()[name]).String(); got != want {
			t.Errorf("%s: %s, images have %s", name, got, want)
		}
	}
}
