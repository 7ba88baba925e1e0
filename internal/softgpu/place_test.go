package softgpu

import (
	"errors"
	"strings"
	"testing"

	"holdfast/ptx"
)

// Every way in which a kernel is refused names instruction and place.
func TestRefusalsHavePlaces(t *testing.T) {
	for body, want := range map[string]string{
		"tcgen05.fence::before_thread_sync;":           "10:2: tcgen05",
		"frobnicate.u32 %r1, %r2;":                     "10:2: frobnicate.u32",
		"add.u32 %r1, %r2;":                            "10:2: add.u32",
		"mov.u32 %r1, %nosuch;":                        "10:2: mov.u32",
		"ld.global.u32 %r1, [nosuch];":                 "10:2: ld.global.u32",
		"call nosuch;":                                 "10:2: call",
		"bra NOWHERE;":                                 "10:2: bra",
		".local .b8 big[2000000];":                     "10:2: local variable big",
		"@%r1 add.u32 %r1, %r1, %r1;":                  "10:2: add.u32",
		"add.u32 %rd1, %r1, %r2;":                      "10:2: add.u32",
		"ld.param.u32 %r1, [p+8];":                     "10:2: ld.param.u32",
		"mov.b32 %r1, {%r1, %r2, %r1};":                "10:2: mov.b32",
		"cp.async.ca.shared.global [%r1], [%rd1], 12;": "10:2: cp.async.ca.shared.global",
	} {
		m, err := ptx.Parse("place.ptx", []byte(header+".visible .entry k(.param .u64 p)\n{\n\t.reg .b32 %r<4>;\n"+
			"\t.reg .b64 %rd<4>;\n\t.reg .pred %p<2>;\n\n\t"+body+"\n\tret;\n}\n"))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		mod, err := Load(m)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if why := mod.Kernels()[0].Unsupported; !strings.Contains(why, "place.ptx:"+want) {
			t.Errorf("%s: refused as %q, want %q", body, why, want)
		}
		d := newDevice(t, 2)
		in, err := mod.Instantiate(d.space, d.alloc(mod.DataSize()))
		if err != nil {
			t.Fatal(err)
		}
		_, err = in.Launch("k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(0))})
		var f *Fault
		if !errors.As(err, &f) || f.Pos.Line != 10 || !strings.Contains(f.Error(), "place.ptx:10:") {
			t.Errorf("%s: launch: %v", body, err)
		}
	}
}
