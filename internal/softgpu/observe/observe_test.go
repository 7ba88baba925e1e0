package observe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A watch against a list of accesses: threads and barriers in random order.
func TestWatchRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type event struct {
		thread, epoch int
		addr, n       uint64
		write         bool
	}
	for range 300 {
		o := &Observer{}
		o.Reset()
		c := NewWatch(o)
		c.Begin()
		if r.IntN(4) == 0 {
			c.epoch = maxEpoch - 1 // numbers that run out
		}
		const base = 1<<32 + shadowSpan - 40
		var log []event
		want := map[uint64]Access{}
		epoch := 0
		for range 60 {
			if r.IntN(8) == 0 {
				c.Barrier()
				epoch++
				continue
			}
			e := event{r.IntN(3), epoch, base + uint64(r.IntN(80)), 1 << r.IntN(5), r.IntN(2) == 0}
			for a := e.addr; a < e.addr+e.n; a++ {
				if e.write {
					if want[a] == 0 {
						want[a] |= WrittenFirst
					}
					want[a] |= Written
					continue
				}
				ordered := false
				for _, x := range log {
					if x.write && x.addr <= a && a < x.addr+x.n && (x.thread == e.thread || x.epoch < e.epoch) {
						ordered = true
					}
				}
				want[a] |= Read
				if !ordered {
					want[a] |= Exposed
				}
			}
			log = append(log, e)
			if e.write {
				c.Write(e.thread, e.addr, e.n)
			} else {
				c.Read(e.thread, e.addr, e.n)
			}
		}
		for a := uint64(base - 8); a < base+120; a++ {
			if got := o.At(a); got != want[a] {
				t.Fatalf("byte %#x: %04b, want %04b after %v", a, got, want[a], log)
			}
		}
	}
}

// Ranges are as long as they can be, and have what is wanted and nothing that is not.
func TestRanges(t *testing.T) {
	o := &Observer{Focus: []Range{{100, 4}, {1 << 20, 8}}}
	o.Reset()
	c := NewWatch(o)
	c.Begin()
	c.Write(0, 96, 8)
	c.Read(1, 100, 8)
	c.Barrier()
	c.Read(1, 96, 2)
	c.Note(nil, 102, 1, Read)
	c.Note(nil, 104, 4, Written)
	for _, x := range []struct {
		want, without Access
		ranges        []Range
	}{
		{Written, 0, []Range{{96, 8}}},
		{Read, Exposed, []Range{{96, 2}}},
		{Read | Exposed, Written, []Range{{104, 4}}},
		{Exposed, 0, []Range{{100, 8}}},
		{Written, Read, []Range{{98, 2}}},
	} {
		if got := o.Ranges(x.want, x.without); !slices.Equal(got, x.ranges) {
			t.Errorf("with %04b and without %04b: %v, want %v", x.want, x.without, got, x.ranges)
		}
	}
	if got := o.Sites(0); len(got) != 1 || got[0].Access != Read || len(o.Sites(1)) != 0 {
		t.Errorf("noted %v and %v", got, o.Sites(1))
	}
}

// Every word, or as good as: matching against one nibble after the other.
func TestMatching(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		word := r.Uint64() & r.Uint64()
		want, without := Access(r.IntN(16)), Access(r.IntN(16)&r.IntN(16))
		var expect uint64
		for k := range nibbles {
			if a := Access(word >> (4 * k) & 0xf); a != 0 && a&want == want && a&without == 0 {
				expect |= 1 << (4 * k)
			}
		}
		if got := matching(word, want, without); got != expect {
			t.Fatalf("matching(%#x, %b, %b) = %#x, want %#x", word, want, without, got, expect)
		}
	}
}
