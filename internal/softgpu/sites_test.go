package softgpu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSites(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + observedDecl + `	ld.global.u32 %r6, [%rd4];
	red.global.max.u32 [%rd1+8], %r4;
	st.global.u32 [%rd5], %r6;
	setp.eq.u32 %p1, %r4, 100;
	@%p1 st.global.u8 [%rd1+13], %r6;
	ret;
}
`)
	p, q := d.alloc(512), d.alloc(512)
	o := &Observer{Focus: []Range{{p + 8, 2}, {p + 12, 4}, {q + 400, 8}, {q + 1000, 8}}}
	want := []string{"ld 1, red 3", "ld 1, st 2", "st 2", ""}
	for range 2 { // those of the last launch
		d.run(in, "k", LaunchConfig{Grid: dims(2), Block: dims(64), Params: params(p, q), Observer: o})
		for i, w := range want {
			var got []string
			for _, s := range o.Sites(i) {
				got = append(got, fmt.Sprintf("%s %d", s.Inst.Op, s.Access))
			}
			if strings.Join(got, ", ") != w {
				t.Errorf("range %d: %v, want %v", i, got, w)
			}
		}
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
