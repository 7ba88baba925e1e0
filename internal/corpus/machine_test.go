package corpus

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/internal/softgpu"
)

// source is a PTX module with one kernel, k(a, b, n): a thread has its number in %r1, the address of
// its element of a in %rd3 and of b in %rd4; it does body if its number is below n.
func source(body string) string {
	return `.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<16>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u32 %r4, [n];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r1, %r2, %r3, %r1;
	setp.ge.u32 %p1, %r1, %r4;
	@%p1 bra END;
	mul.wide.u32 %rd5, %r1, 4;
	add.u64 %rd3, %rd1, %rd5;
	add.u64 %rd4, %rd2, %rd5;
` + body + `
END:
	ret;
}
`
}

// application is one launch of such a module, of 4 blocks of 64 threads, on a and b of 1 KiB.
func application(t *testing.T, body string, change func(*Application)) *Application {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.ptx"), []byte(source(body)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Application{filled: &contents{}, Name: "t", Family: "test", Modules: map[string]string{"m": "m.ptx"},
		File:    filepath.Join(dir, "t.app.json"),
		Buffers: map[string]Buffer{"a": {1024, Init{Kind: "u32"}}, "b": {1024, Init{Kind: "u32"}}},
		Launches: []Launch{{Module: "m", Kernel: "k", Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{64, 1, 1}, Count: 1,
			Args: []Arg{pointer("a", 0), pointer("b", 0), {Type: "u32", Bytes: []byte{200, 0, 0, 0}}}}}}
	if change != nil {
		change(a)
	}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	return a
}

func pointer(buf string, offset int64) Arg {
	return Arg{Type: "buf", Bytes: make([]byte, 8), Patches: []Patch{{0, Pointer{buf, offset}}}}
}

const copyBody = "ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd4], %r5;"

func TestRun(t *testing.T) {
	a := application(t, copyBody, nil)
	err := Run(a, &a.Launches[0], RunOptions{Deterministic: true, Observe: true}, func(r *Result) error {
		from, to := a.Contents("a"), a.Contents("b")
		got, err := r.Buffer("b")
		if err != nil {
			return err
		}
		if string(got[:800]) != string(from[:800]) || string(got[800:]) != string(to[800:]) {
			t.Error("b is not a, up to the 200th element")
		}
		lo := a.Address("b")
		if w := r.Observer.Ranges(softgpu.Written, 0); len(w) != 1 || w[0] != (softgpu.Range{Addr: lo, Len: 800}) {
			t.Errorf("written: %v, want 800 bytes from %#x", w, lo)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A machine's memory begins anew for each launch.
func TestMachineForgets(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dirty := application(t, "st.global.u32 [%rd4], 7;", func(a *Application) { a.Buffers["b"] = Buffer{Bytes: 1024} })
	// What the launch before wrote is in the middle of this one's a, which is zero.
	clean := application(t, copyBody, func(a *Application) {
		a.Buffers["a"] = Buffer{Bytes: 4096}
		a.Launches[0].Args[0] = pointer("a", 1024)
	})
	for range 2 {
		if _, err := m.Run(dirty, &dirty.Launches[0], RunOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := m.Run(clean, &clean.Launches[0], RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Buffer("b")
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(got[:800], func(x byte) bool { return x != 0 }); i >= 0 {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
}

// Contents repeat, differ from buffer to buffer, and stay within their kind.
func TestContents(t *testing.T) {
	a := application(t, copyBody, func(a *Application) {
		a.Buffers["i"] = Buffer{4000, Init{Kind: "index", Below: 7}}
		a.Buffers["h"] = Buffer{1001, Init{Kind: "f16"}}
		a.Buffers["n"] = Buffer{20, Init{Kind: "iota", Wide: true}}
		a.Buffers["p"] = Buffer{32, Init{Kind: "pointers", Pointers: []*Pointer{nil, {"h", 8}}}}
	})
	first, again, other := a.Contents("a"), a.Contents("a"), a.Contents("b")
	if string(first) != string(again) || string(first) == string(other) {
		t.Error("random contents do not repeat, or repeat too much")
	}
	seen := map[byte]bool{}
	for i, x := range a.Contents("i") {
		if i%4 == 0 {
			seen[x] = true
		} else if x != 0 {
			t.Fatalf("byte %d of an index is %d", i, x)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d of 7 indices occur", len(seen))
	}
	if n := len(a.Contents("h")); n != 1001 {
		t.Errorf("%d bytes of 1001", n)
	}
	if x := a.Contents("n"); x[0] != 0 || x[8] != 1 {
		t.Errorf("iota: %v", x)
	}
	l := &a.Launches[0]
	l.Args[0] = pointer("p", 0)
	if r := a.Reached(l); len(r) != 3 || r[0] != "b" || r[1] != "h" || r[2] != "p" {
		t.Errorf("reached: %v", r)
	}
	if x := a.Contents("p"); len(x) != 16 || x[0] != 0 || x[9] != byte((a.Address("h")+8)>>8) {
		t.Errorf("pointers: %x", x)
	}
}
