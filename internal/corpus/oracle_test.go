package corpus

import (
	"strings"
	"testing"
)

// Kernels whose truth follows from the definition. %r1 is the thread, %rd3 the address of its element
// of a, %rd4 of b, %rd1 and %rd2 those of a and b; a and b are 1 KiB of random bits.
func TestJudge(t *testing.T) {
	zero := func(a *Application) { a.Buffers["b"] = Buffer{Bytes: 1024} }
	alias := func(offset int64) func(*Application) {
		return func(a *Application) { a.Launches[0].Args[1] = pointer("a", offset) }
	}
	for _, c := range []struct {
		name, body string
		change     func(*Application)
		want       Truth
		why        string
	}{
		{"copy", copyBody, nil, Idempotent, ""},
		{"increment", "ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, 1; st.global.u32 [%rd3], %r5;", nil, NotIdempotent,
			"changes buffer a, bytes 0 to 799"},
		{"copy onto itself", copyBody, alias(0), Undecided, "same values"},
		{"copy onto the next", copyBody, alias(4), NotIdempotent, "changes buffer a"},
		{"square in place", "ld.global.u32 %r5, [%rd3]; mul.lo.u32 %r5, %r5, %r5; st.global.u32 [%rd4], %r5;", alias(0),
			NotIdempotent, "changes"},
		{"halves", "ld.global.u16 %r5, [%rd3]; st.global.u16 [%rd4+2], %r5;", alias(0), Idempotent, ""},
		{"scratch", "st.global.u32 [%rd3], %r1; ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd4], %r5;", nil,
			Idempotent, ""},
		{"maximum", "red.global.max.u32 [%rd2], %r1;", nil, Idempotent, ""},
		{"maximum, nobody reads it", "atom.global.max.u32 %r6, [%rd2], %r1;", zero, Idempotent, ""},
		{"maximum, read", "atom.global.max.u32 %r6, [%rd2], %r1; st.global.u32 [%rd3], %r6;", zero, NotIdempotent,
			"buffer b, bytes 0 to 3"},
		{"minimum and maximum", "red.global.max.u32 [%rd2], %r1; red.global.min.u32 [%rd2], 7;", zero, NotIdempotent,
			"buffer b"},
		{"maximum of what is set", "red.global.max.u32 [%rd2], %r1; st.global.u32 [%rd2], 3;", zero, NotIdempotent,
			"buffer b"},
		{"minimum beside maximum", "red.global.max.u32 [%rd2], %r1; red.global.min.u32 [%rd2+4], %r1; " +
			"red.global.and.b32 [%rd2+8], %r1;", nil, Idempotent, ""},
		{"minimum over maximum", "red.global.max.u32 [%rd2], %r1; red.global.min.u64 [%rd2], %rd5; " +
			"red.global.and.b32 [%rd2+8], %r1;", nil, NotIdempotent, "bytes 0 to 3"},
		{"sum", "red.global.add.u32 [%rd2], %r1;", zero, NotIdempotent, "buffer b"},
		{"sum of nothing", "red.global.add.u32 [%rd2], 0;", zero, Undecided, "buffer b"},
		{"exchange", "atom.global.exch.b32 %r6, [%rd4], %r1;", nil, Idempotent, ""},
		// It ends at zero, as it began: only a launch that was stopped shows what it is.
		{"counter that resets itself", "atom.global.inc.u32 %r6, [%rd2], 199; setp.eq.u32 %p2, %r6, 7; @%p2 " +
			"st.global.u32 [%rd1], %r1;", zero, NotIdempotent, "re-executions"},
		{"bytes of a neighbour block", "st.global.u32 [%rd3], %r1; xor.b32 %r6, %r1, 64; mul.wide.u32 %rd6, %r6, 4; " +
			"add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r5, [%rd6]; st.global.u32 [%rd4], %r5;", nil, NotIdempotent,
			"buffer a"},
		{"clock", "mov.u32 %r5, %clock; st.global.u32 [%rd4], %r5;", nil, NotIdempotent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := NewMachine()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			a := application(t, c.body, c.change)
			f, err := m.Judge(a, &a.Launches[0], JudgeOptions{Prefixes: 20, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if f.Truth != c.want || !strings.Contains(f.Why, c.why) {
				t.Errorf("%v: %s; want %v, %q (%d of %d differ)", f.Truth, f.Why, c.want, c.why, f.Differ, f.Prefixes)
			}
			if f.Prefixes != 20 || len(f.Stray) > 0 {
				t.Errorf("%d re-executions, stray accesses %v", f.Prefixes, f.Stray)
			}
		})
	}
}

// With much memory only what was written is compared, until the last time.
func TestJudgeLarge(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		body string
		want Truth
	}{
		{copyBody, Idempotent},
		{"atom.global.inc.u32 %r6, [%rd2], 199; add.u32 %r6, %r6, 1000; mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, " +
			"%rd1, %rd6; st.global.u32 [%rd6], %r1;", NotIdempotent},
	} {
		a := application(t, c.body, func(a *Application) {
			a.Buffers["a"] = Buffer{40 << 20, Init{Kind: "u32"}}
			a.Buffers["b"] = Buffer{Bytes: 40 << 20}
		})
		f, err := m.Judge(a, &a.Launches[0], JudgeOptions{Prefixes: 3})
		if err != nil {
			t.Fatal(err)
		}
		if f.Truth != c.want || c.want == Idempotent && f.Differ != 0 || c.want != Idempotent && f.Differ < 2 {
			t.Errorf("%s: %v, %s, %d of %d differ", c.body, f.Truth, f.Why, f.Differ, f.Prefixes)
		}
	}
}

func TestStray(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a := application(t, copyBody, func(a *Application) { a.Buffers["b"] = Buffer{Bytes: 796} })
	f, err := m.Judge(a, &a.Launches[0], JudgeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lo := a.Address("b") + 796
	if len(f.Stray) != 1 || f.Stray[0] != (Range{lo, lo + 4}) {
		t.Errorf("stray accesses %x, want 4 bytes at %x", f.Stray, lo)
	}
}

// What a launch finds is compared where it was touched and where it was not.
func TestUnchanged(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a := application(t, copyBody, func(a *Application) { a.Buffers["b"] = Buffer{Bytes: 16 << 20} })
	p, err := m.prepare(a, &a.Launches[0])
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{Machine: m, p: p}
	all := Range{p.memory[0].Lo, p.memory[len(p.memory)-1].Hi}
	if same, err := j.unchanged(all); !same || err != nil {
		t.Fatal(same, err)
	}
	for _, name := range []string{"a", "b"} {
		for _, off := range []uint64{0, 5, 1023, 1 << 20, 16<<20 - 1} {
			if off >= a.Buffers[name].Bytes {
				continue
			}
			at := a.Address(name) + off
			b, err := m.space.Bytes(at, 1)
			if err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x80
			if same, err := j.unchanged(all); same || err != nil {
				t.Errorf("byte %d of %s: %v, %v", off, name, same, err)
			}
			if same, err := j.unchanged(Range{at + 1, all.Hi}); !same || err != nil {
				t.Errorf("behind byte %d of %s: %v, %v", off, name, same, err)
			}
			b[0] ^= 0x80
			if same, err := j.unchanged(all); !same || err != nil {
				t.Errorf("byte %d of %s is as before: %v, %v", off, name, same, err)
			}
		}
	}
}
