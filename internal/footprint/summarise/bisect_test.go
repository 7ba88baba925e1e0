package summarise

import (
	"testing"

	"holdfast/internal/footprint"
)

// TestBisect: what a binary search of n words at %rd1 reads, and where it ends, and near misses.
func TestBisect(t *testing.T) {
	const mid = "add.s32 %r22, %r20, %r21; shr.u32 %r23, %r22, 31; add.s32 %r22, %r22, %r23; shr.s32 %r22, %r22, 1;"
	const up = "add.s32 %r23, %r22, 1;"
	type search struct {
		init, test, mid, up, down string
		rotated                   bool
		n                         uint32
	}
	good := search{"mov.u32 %r20, 0; mov.u32 %r21, %r5;", "setp.lt.s32 %p4, %r20, %r21;", mid, up,
		"mov.u32 %r24, %r22;", false, 64}
	for _, x := range []struct {
		name  string
		is    func(s search) search
		least footprint.Range
		want  bool
	}{
		{"lower bound", func(s search) search { return s }, footprint.Range{Lo: 0, Hi: 256}, true},
		{"with the test at the end", func(s search) search { s.rotated = true; return s },
			footprint.Range{Lo: 0, Hi: 256}, true},
		{"of nothing", func(s search) search { s.n = 0; return s }, footprint.Range{Lo: 0, Hi: 4}, true},
		{"unsigned", func(s search) search {
			s.mid, s.test = "add.s32 %r22, %r20, %r21; shr.u32 %r22, %r22, 1;", "setp.lt.u32 %p4, %r20, %r21;"
			return s
		}, footprint.Range{Lo: 0, Hi: 256}, true},
		{"from the lower end", func(s search) search {
			s.mid = "sub.s32 %r22, %r21, %r20; shr.s32 %r22, %r22, 1; add.s32 %r22, %r22, %r20;"
			return s
		}, footprint.Range{Lo: 0, Hi: 256}, true},
		{"until they are neighbours", func(s search) search {
			s.test, s.up = "sub.s32 %r25, %r21, %r20; setp.gt.s32 %p4, %r25, 1;", "mov.u32 %r23, %r22;"
			return s
		}, footprint.Range{Lo: 0, Hi: 256}, true},
		{"a thread's own part", func(s search) search { s.init = "mov.u32 %r20, %r1; add.s32 %r21, %r1, 4;"; return s },
			footprint.Range{Lo: 0, Hi: 4 * 35}, true},
		{"until they have passed each other", func(s search) search {
			s.test, s.down = "setp.le.s32 %p4, %r20, %r21;", "add.s32 %r24, %r22, -1;"
			return s
		}, footprint.Range{}, false},
		{"too far up", func(s search) search { s.up = "add.s32 %r23, %r22, 2;"; return s }, footprint.Range{}, false},
		{"above the middle", func(s search) search { s.down = "add.s32 %r24, %r22, 1;"; return s },
			footprint.Range{}, false},
		{"not the middle", func(s search) search { s.mid = "add.s32 %r22, %r20, %r21;"; return s },
			footprint.Range{}, false},
		{"another test", func(s search) search { s.test = "setp.lt.s32 %p4, %r20, %r1;"; return s },
			footprint.Range{}, false},
		{"their sum overflows", func(s search) search { s.n = 1 << 30; return s }, footprint.Range{}, false},
		{"negative", func(s search) search { s.init = "mov.u32 %r20, -1; mov.u32 %r21, %r5;"; return s },
			footprint.Range{}, false},
	} {
		s := x.is(good)
		body := s.init
		if s.rotated {
			body += s.test + "@!%p4 bra L8; L7:"
		} else {
			body += "L7:" + s.test + "@!%p4 bra L8;"
		}
		body += s.mid + `
	mul.wide.s32 %rd20, %r22, 4;
	add.s64 %rd21, %rd1, %rd20;
	ld.global.u32 %r30, [%rd21];
	setp.lt.s32 %p5, %r30, %r1;` + s.up + s.down + `
	selp.b32 %r20, %r23, %r20, %p5;
	selp.b32 %r21, %r21, %r24, %p5;`
		if s.rotated {
			body += s.test + "@%p4 bra L7; L8:"
		} else {
			body += "bra L7; L8:"
		}
		body += "mul.wide.s32 %rd20, %r20, 4; add.s64 %rd21, %rd2, %rd20; st.global.u32 [%rd21], %r1;"
		k := scratchKernel(t, body)
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
		l.Params = appendUint(appendUint(appendUint(nil, 1<<32, 8), 1<<33, 8), uint64(s.n), 4)
		var in footprint.Instance
		k.Evaluate(l, &in)
		if got := !in.ReadsUnknown && !in.WritesUnknown; got != x.want && (got || x.want) {
			if !x.want && in.Reads[len(in.Reads)-1].Hi-in.Reads[0].Lo > 1<<30 {
				continue // of any index of 32 bits
			}
			t.Errorf("%s: %v, reads %x, writes %x", x.name, in.Verdict, in.Reads, in.Writes)
			continue
		}
		if !x.want {
			continue
		}
		reads := []footprint.Range{{Lo: 1<<32 + x.least.Lo, Hi: 1<<32 + x.least.Hi}}
		if x.least.Hi == 0 {
			reads = nil
		}
		if len(in.Reads) != len(reads) || len(reads) > 0 && in.Reads[0] != reads[0] {
			t.Errorf("%s: reads %x, not %x", x.name, in.Reads, reads)
		}
		if x.name == "lower bound" &&
			(len(in.Writes) != 1 || in.Writes[0] != footprint.Range{Lo: 1 << 33, Hi: 1<<33 + 4*65}) {
			t.Errorf("%s: writes %x", x.name, in.Writes)
		}
	}
}
