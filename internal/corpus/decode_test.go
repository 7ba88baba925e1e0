package corpus

import (
	"bytes"
	"strings"
	"testing"
)

const good = `{"application": "a", "family": "f", "target": "sm_90", "made": "by hand", "modules": {"m": "m.ptx"},
"buffers": {"x": {"bytes": 64, "init": "f32"}, "y": {"bytes": 16, "init": {"s32": [1, -1]}}, "t": {"bytes": 16, "init": {"pointers": [{"buf": "x", "offset": 4}, null]}},
 "i": {"bytes": 8, "init": {"index": "s32", "below": 7}}, "z": {"bytes": 4}, "g": {"bytes": 4, "init": {"gz": "H4sIAAAAAAACA0usqgIAW3FU0wMAAAA="}}},
"launches": [{"module": "m", "kernel": "k", "grid": [1,2,3], "block": [32,1,1], "cluster": [1,1,1], "order": "any", "spin": true,
 "args": [{"buf": "x", "offset": 4}, {"s32": -1}, {"f32": "nan"}, {"bytes": "00ff000000000000", "patch": [{"at": 0, "buf": "y"}]}]}]}`

func TestParse(t *testing.T) {
	a, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	l := a.Launches[0]
	if l.Count != 1 || l.Cluster != [3]uint32{} || l.Threads() != 192 {
		t.Errorf("count %d, cluster %v, %d threads", l.Count, l.Cluster, l.Threads())
	}
	if !bytes.Equal(l.Args[1].Bytes, []byte{255, 255, 255, 255}) ||
		!bytes.Equal(l.Args[2].Bytes, []byte{1, 0, 0xc0, 0x7f}) &&
			!bytes.Equal(l.Args[2].Bytes, []byte{0, 0, 0xc0, 0x7f}) {
		t.Errorf("arguments %x %x", l.Args[1].Bytes, l.Args[2].Bytes)
	}
	if x := a.Buffers["y"].Init.Data; !bytes.Equal(x, []byte{1, 0, 0, 0, 255, 255, 255, 255}) {
		t.Errorf("data %x", x)
	}
	if p := a.Buffers["t"].Init.Pointers; len(p) != 2 || *p[0] != (Pointer{"x", 4}) || p[1] != nil {
		t.Errorf("pointers %v", p)
	}
}

// Each case changes the good file in one place and names what the error must say.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"made"`, `"maid"`, "maid"},
		{`"m": "m.ptx"`, `"m": "../m.ptx"`, "beside"},
		{`"f32"}`, `"f31"}`, "f31"},
		{`[1, -1]`, `[1, -1, 2, 3, 4]`, "20 bytes of contents for 16"},
		{`"below": 7`, `"above": 7`, "at once"},
		{`"grid": [1,2,3]`, `"grid": [1,0,3]`, "zero"},
		{`"module": "m"`, `"module": "n"`, `no module "n"`},
		{`{"buf": "x", "offset": 4}, {"s32"`, `{"buf": "q"}, {"s32"`, `no buffer "q"`},
		{`{"s32": -1}`, `{"s32": -1, "u8": 1}`, "at once"},
		{`{"s32": -1}`, `{"u32": -1}`, "invalid"},
		{`{"s32": -1}`, `{"s33": -1}`, "s33"},
		{`"at": 0`, `"at": 1`, "a pointer at 1 of 8 bytes"},
		{`"any"`, `"none"`, "none"},
		{`"H4sI`, `"H4sJ`, "init"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%s is not in the file", c.old)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.new, err, c.want)
		}
	}
	if _, err := Parse([]byte(good + "{}")); err == nil {
		t.Error("a second value is accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, text []byte) { Parse(text) })
}
