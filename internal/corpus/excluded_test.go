package corpus

import (
	"testing"

	"holdfast/ptx"
)

func TestExcluded(t *testing.T) {
	const functions = `.version 8.5
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func elsewhere ();
.func deeper () { .reg .b32 %r; mov.u32 %r, %clock; ret; }
.func here () { call.uni deeper; ret; }
.func plain () { ret; }
.visible .entry k(.param .u64 a)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [a];
`
	for _, c := range []struct{ body, want string }{
		{"st.global.u32 [%rd1], 1;", ""},
		{"call.uni plain;", ""},
		{"fence.acq_rel.sys; ld.relaxed.sys.global.u32 %r1, [%rd1];", ""},
		{"{ .param .b64 x; .param .b32 r; call.uni (r), vprintf, (x, x); }", "printf, assert or malloc"},
		{"call.uni elsewhere;", "calls what is not in the module"},
		{"call.uni here;", "looks at a clock"},
		{"mov.u64 %rd2, %globaltimer;", "looks at a clock"},
		{"griddepcontrol.wait;", "may overlap with another launch"},
		{"{ red.relaxed.sys.global.add.u32 [%rd1], 1; }", "writes with the scope of the system"},
		{"mov.u64 %rd2, plain; p: .callprototype _ (); call %rd2, (), p;", "calls what is not in the module"},
	} {
		m, err := ptx.Parse("x.ptx", []byte(functions+c.body+"\nret;\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		mod := &Module{Source: m}
		if got := mod.Excluded(&Launch{Kernel: "k"}); got != c.want {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
		if got := mod.Excluded(&Launch{Kernel: "k", Spin: true}); got != "blocks wait for one another" {
			t.Errorf("spinning: %q", got)
		}
	}
}
