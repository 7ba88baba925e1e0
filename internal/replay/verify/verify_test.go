package verify_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/replay/verify"
	"holdfast/internal/trace"
)

const opaqueText = head + `
.visible .entry k(.param .u64 p, .param .u32 n, .param .align 8 .b8 s[24]) { ret; }
`

// opaque is a launch of a kernel of which there is machine code, with an address, a number and a structure of three
// words.
func opaque(p uint64, n uint32, s ...uint64) *sketch {
	params := []any{p, n}
	for _, w := range s {
		params = append(params, w)
	}
	return &sketch{code: []string{opaqueText}, cubin: true, kernels: []string{"k"},
		regions: []region{{base, 4096, make([]byte, 4096), false}, {base + 8192, 4096, nil, false}},
		work:    []trace.Record{launch(0, 1, 32, params...)}}
}

// Of code that cannot be read, what looks like an address must point into memory.
func TestArguments(t *testing.T) {
	const none = uint64(0)
	for _, c := range []struct {
		name   string
		s      *sketch
		refuse string // "" if it is not
	}{
		{"a region", opaque(base, 7, none, none, none), ""},
		{"the middle of another", opaque(base+8192+100, 7, none, none, none), ""},
		{"the end", opaque(base+4096, 7, none, none, none), ""},
		{"staging memory", opaque(staging+8, 7, none, none, none), ""},
		{"null", opaque(0, 7, none, none, none), ""},
		{"a number", opaque(1<<30, 7, 1<<40, 0x3ff0000000000000, 1<<63), ""},
		{"behind the end", opaque(base+4097, 7, none, none, none), "byte 0 of its parameters is 0x800000001001"},
		{"far away", opaque(1<<44+5, 7, none, none, none), "byte 0 of its parameters is 0x100000000005"},
		{"the host's memory", opaque(0x7f1234567890, 7, none, none, none), ""}, // which no kernel can use
		{"in a structure", opaque(base, 7, none, base+6000, none), "byte 24 of its parameters is 0x800000001770"},
		{"in a structure, far away", opaque(base, 7, none, 1<<44, none), ""}, // it may be two numbers
	} {
		b := c.s.write(t)
		r := verified(t, b)
		x := &r.Items[0]
		switch {
		case c.refuse == "" && (x.Level != verify.ByArguments || !strings.Contains(x.Reason, "machine code")):
			t.Errorf("%s: %v (%s)", c.name, x.Level, x.Reason)
		case c.refuse != "" && (x.Level != verify.Refused || !strings.Contains(x.Reason, c.refuse)):
			t.Errorf("%s: %v (%s), want %q", c.name, x.Level, x.Reason, c.refuse)
		}
		if err := r.Err(false); (err != nil) != (c.refuse != "") {
			t.Errorf("%s: %v", c.name, err)
		}
		err := r.Err(true)
		if !errors.Is(err, verify.ErrRefused) || !strings.Contains(err.Error(), "work 0, kernel k: ") {
			t.Errorf("%s, strictly: %v", c.name, err)
		}
		if r.Regions[0].Written != verify.Unknown {
			t.Errorf("%s: %+v", c.name, r.Regions[0])
		}
	}
}

// What is larger than any GPU takes is refused before anything is made of it.
func TestLimits(t *testing.T) {
	for name, change := range map[string]func(l *trace.Launch){
		"blocks":        func(l *trace.Launch) { l.Grid = [3]uint32{1<<31 - 1, 3, 1} },
		"block":         func(l *trace.Launch) { l.Block = [3]uint32{1, 1, 65} },
		"shared memory": func(l *trace.Launch) { l.Shared = 256<<10 + 1 },
		"clusters":      func(l *trace.Launch) { l.Cluster = [3]uint32{2, 1, 1} },
	} {
		s := perceptron(t)
		change(s.work[5].(*trace.Launch))
		if x := verified(t, s.write(t)).Items[3]; x.Level != verify.Refused || !strings.Contains(x.Reason, name) {
			t.Errorf("%s: %v (%s)", name, x.Level, x.Reason)
		}
	}
	for _, c := range []struct {
		want   string
		change func(m *recording.Manifest)
	}{
		{"bytes of device memory", func(m *recording.Manifest) {
			m.Memory[11].Addr, m.Memory[11].Bytes = base+1<<30, 1<<40+1
		}},
		{"bytes of device memory", func(m *recording.Manifest) { m.Staging.Bytes = 1 << 40 }},
		{"no such addresses", func(m *recording.Manifest) { m.Memory[11].Addr = 1<<49 - 8 }},
		{"staging memory", func(m *recording.Manifest) { m.Staging.Addr = 1<<49 - 1<<20 }},
	} {
		p := takeApart(t, perceptron(t).write(t))
		p.m.Entries[0].Inputs, p.m.Entries[0].Outputs = []recording.Port{}, []recording.Port{}
		p.work = p.work[:0]
		c.change(&p.m)
		if _, err := verify.Verify(open(t, p.together())); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want something about %q", err, c.want)
		}
	}
}

// Parameters that the code does not have, code that is not there or cannot be read: nothing is proven.
func TestDoubts(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(p *parts)
	}{
		{"other parameters", "other parameters", func(p *parts) { p.m.Kernels[1].Params[4].Offset++ }},
		{"no such kernel", "no kernel of that name", func(p *parts) { p.m.Kernels[1].Name = "other" }},
		{"no PTX", "cannot be read", func(p *parts) { p.code[0] = []byte("nothing") }},
		{"too much", "too many to be read", func(p *parts) {
			p.code[0] = append(p.code[0], []byte(strings.Repeat("\n", 64<<20))...)
		}},
	} {
		p := takeApart(t, perceptron(t).write(t))
		c.change(p)
		if c.name == "other parameters" {
			l := p.work[9].(*trace.Launch)
			l.Params = append(l.Params, 0)
		}
		r := verified(t, p.together())
		if x := r.Items[5]; x.Level != verify.ByArguments || !strings.Contains(x.Reason, c.want) {
			t.Errorf("%s: %v (%s)", c.name, x.Level, x.Reason)
		}
	}
}

// A name that is to mess up a terminal, or to fill it, does not.
func TestShorten(t *testing.T) {
	if got := verify.Shorten("a\x1b[2Jb\nc"); strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%q", got)
	}
	if got := verify.Shorten(strings.Repeat("ü", 200)); len(got) > 200 {
		t.Errorf("%d bytes", len(got))
	}
	if got := verify.Shorten("dense"); got != "dense" {
		t.Error(got)
	}
}

// The report says of each piece of work what a scheduler wants to know.
func TestReport(t *testing.T) {
	r := verified(t, perceptron(t).write(t))
	if r.Launches != 4 || r.Copies != 4 || r.Proven != 4 || r.ByArguments+r.Refused != 0 || len(r.Items) != 8 {
		t.Errorf("%+v", r)
	}
	x := r.Items[2]
	if x.Kind != "launch" || x.Work != 2 || len(x.Writes) != 1 || x.Writes[0].Hi-x.Writes[0].Lo != 4*128 ||
		len(x.Reads) != 3 {
		t.Errorf("%+v", x)
	}
	if x := verified(t, tables(t).write(t)).Items[2]; len(x.Relied) != 1 || x.Relied[0].Hi-x.Relied[0].Lo != 400 {
		t.Errorf("what the gathering launch relies on: %+v", x.Relied)
	}
	text, err := json.Marshal(r)
	var back struct {
		Items []struct{ Level string }
	}
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || back.Items[2].Level != "proven" {
		t.Errorf("%v: %s", err, text)
	}
}
