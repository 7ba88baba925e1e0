package summarise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/footprint"
)

// Reads of variables of the module are told apart from reads of who knows what, as long as they stay in the variable.
func TestReadsVariables(t *testing.T) {
	for _, x := range []struct {
		name, variable, body string
		variables, unknown   bool
	}{
		{"all of it", ".global .align 4 .b32 v[64];", "ld.global.u32 %r2, [%rd2];", true, true},
		{"of constants", ".const .align 4 .b32 v[64];", "ld.const.u32 %r2, [%rd2];", true, true},
		{"no variable", ".global .align 4 .b32 v[64];", "ld.global.u32 %r2, [%rd3];", false, false},
		{"one word too many", ".global .align 4 .b32 v[63];", "ld.global.u32 %r2, [%rd2];", false, true},
		{"before it", ".global .align 4 .b32 v[64];", "ld.global.u32 %r2, [%rd2+-4];", false, true},
		{"of a size that is not known", ".extern .global .align 4 .b32 v[];",
			"ld.global.u32 %r2, [%rd2];", false, true},
		{"and of somewhere", ".global .align 4 .b32 v[64];",
			"ld.global.u32 %r2, [%rd2]; ld.global.u64 %rd4, [%rd3]; ld.global.u32 %r2, [%rd4];", false, true},
		{"at an index from memory", ".global .align 4 .b32 v[64];",
			"ld.global.u32 %r2, [%rd3]; mul.wide.u32 %rd4, %r2, 4; mov.u64 %rd5, v; add.s64 %rd5, %rd5, %rd4; " +
				"ld.global.u32 %r2, [%rd5];", false, true},
		{"that is changed", ".global .align 4 .b32 v[64];", "atom.global.add.u32 %r2, [%rd2], 1;", false, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := summarised(t, x.name, `
.version 8.0
.target sm_80
.address_size 64
`+x.variable+`
.visible .entry k(.param .u64 a, .param .u64 b) {
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd1, %r1, 4;
	mov.u64 %rd2, v;
	add.s64 %rd2, %rd2, %rd1;
	ld.param.u64 %rd3, [a];
	add.s64 %rd3, %rd3, %rd1;
	ld.param.u64 %rd6, [b];
	add.s64 %rd6, %rd6, %rd1;
	`+x.body+`
	st.global.u32 [%rd6], %r2;
	ret;
}`)
			params := make([]byte, 16)
			params[5], params[13] = 1, 2 // 1<<40, 2<<40
			l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Params: params,
				Allocs: []footprint.Range{{Lo: 1 << 40, Hi: 1<<40 + 4096}, {Lo: 2 << 40, Hi: 2<<40 + 4096}}}
			var in, again footprint.Instance
			var recent footprint.Recent
			s.Evaluate(l, &in)
			for range 2 { // the second is remembered
				recent.Evaluate(s, l, &again)
				if d := different(&again, &in); d != "" {
					t.Error(d)
				}
			}
			if in.ReadsVariables != x.variables || in.ReadsUnknown != x.unknown {
				t.Errorf("reads variables: %v, unknown: %v", in.ReadsVariables, in.ReadsUnknown)
			}
			if x.variables && (len(in.Reads) > 0 ||
				!slices.Equal(in.Writes, []footprint.Range{{Lo: 2 << 40, Hi: 2<<40 + 256}}) || in.WritesUnknown) {
				t.Errorf("reads %x, writes %x (%v)", in.Reads, in.Writes, in.WritesUnknown)
			}
			l.Globals = []footprint.Range{{Lo: 3 << 40, Hi: 3<<40 + 256}}
			if s.Evaluate(l, &in); x.variables && (in.ReadsUnknown || in.ReadsVariables ||
				!slices.Equal(in.Reads, []footprint.Range{{Lo: 3 << 40, Hi: 3<<40 + 256}})) {
				t.Errorf("at a place that is known: reads %x (%v)", in.Reads, in.ReadsUnknown)
			}
		})
	}
}

// Random kernels that read a variable as well, within it and beside it.
func TestRandomVariables(t *testing.T) {
	own, beyond := 0, 0
	var in, again footprint.Instance
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 31))
		g := &generator{r: r, regs: regFirst,
			known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}, variables: true}
		list := g.block(1)
		src := kernelText(list, g.regs)
		s := summarised(t, fmt.Sprintf("seed %d", seed), src)
		var recent footprint.Recent
		for range 4 {
			l, x := randomLaunch(r, list, g.regs)
			if x == nil {
				continue
			}
			if r.IntN(2) == 0 {
				l.Known = nil
			}
			s.Evaluate(l, &in)
			mustAgree(t, seed, src, s, l, &in, x)
			for range 2 {
				if recent.Evaluate(s, l, &again); different(&again, &in) != "" {
					t.Fatalf("seed %d: %s\n%s", seed, different(&again, &in), src)
				}
			}
			if in.ReadsVariables {
				own++
			}
			if x.beyond {
				beyond++
			}
		}
	}
	t.Logf("%d read nothing else that has no place, %d read beside the variable", own, beyond)
	if own < 500 || beyond < 100 {
		t.Error("the test has become weak")
	}
}
