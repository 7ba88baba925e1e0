package softgpu

import (
	"fmt"
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
	o := &Observer{Focus: []Range{{Addr: p + 8, Len: 2}, {Addr: p + 12, Len: 4}, {Addr: q + 400, Len: 8},
		{Addr: q + 1000, Len: 8}}}
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
