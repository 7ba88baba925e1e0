package raw

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
)

// gpu opens the machine's GPU, if HOLDFAST_RAW is set. Without one of sm_90 the test is skipped, unless it is
// "required".
func gpu(t testing.TB) *Backend {
	t.Helper()
	if os.Getenv("HOLDFAST_RAW") == "" {
		t.Skip("HOLDFAST_RAW is not set")
	}
	b, err := Open(Options{})
	if err == nil && b.gen.arch != 90 {
		err = errors.Join(fmt.Errorf("%s is not sm_90", b.info.Name), b.Close())
	}
	if err != nil {
		if os.Getenv("HOLDFAST_RAW") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.Map(base, 64<<20); err != nil {
		t.Fatal(err)
	}
	return b
}

// Copies and sets do what they say on the GPU, too.
func TestDeviceMoves(t *testing.T) { tryMoves(t, gpu(t)) }

// Words of several launches begin in order on the GPU, too.
func TestDeviceCounted(t *testing.T) {
	b := gpu(t)
	tryCounted(t, b, loadOn(t, b), 200, 25)
}

// Kernels of all kinds give the bits that libcuda gives: testdata/cases.txt.
func TestDeviceCases(t *testing.T) {
	b := gpu(t)
	c := loadOn(t, b)
	at, size, err := c.Symbol("scalar")
	if err != nil || size != 4 {
		t.Fatal(size, err)
	}
	if err := b.Write(at, []byte{100, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); line[0] != '#' {
			runCase(t, b, c, f)
		}
	}
}

func runCase(t *testing.T, b *Backend, c *code, f []string) {
	t.Helper()
	var n [12]uint32
	for i := range n {
		v, err := strconv.ParseUint(f[i+1], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		n[i] = uint32(v)
	}
	out := make([]byte, 4<<20)
	for i := range uint32(1 << 20) {
		le.PutUint32(out[4*i:], i*2654435761)
	}
	if err := b.Write(base, out); err != nil {
		t.Fatal(err)
	}
	var params []byte
	for _, a := range f[13 : len(f)-1] {
		switch a {
		case "p":
			params = le.AppendUint64(params, base)
		case "q":
			params = le.AppendUint64(params, base+1<<20)
		default:
			v, err := strconv.ParseInt(a, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			params = le.AppendUint32(params, uint32(v))
		}
	}
	l := launchOf(t, c, f[0], params)
	l.Grid, l.Block, l.Shared, l.Cluster = [3]uint32(n[0:3]), [3]uint32(n[3:6]), n[6], [3]uint32(n[7:10])
	l.Cooperative = n[10] != 0
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{{Launch: l}}}})
	if err == nil {
		err = errors.Join(p.Run(5*time.Second), p.Close(), b.Read(base, out))
	}
	if err != nil {
		t.Fatal(f, err)
	}
	h := fnv.New64a()
	h.Write(out[:4*n[11]])
	if got := fmt.Sprintf("%016x", h.Sum64()); got != f[len(f)-1] {
		t.Errorf("%v: %s", f, got)
	}
}

func loadOn(t testing.TB, b *Backend) *code {
	t.Helper()
	image, err := os.ReadFile("../../cubin/testdata/sm_90.cubin")
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*code)
}

// A thousand launches that depend on each other, chained and not, run in order.
func TestDeviceOrder(t *testing.T) {
	b := gpu(t)
	c := loadOn(t, b)
	var words []engine.Word
	want := [2]uint32{1, 1}
	words = append(words, engine.Word{Ops: []engine.Op{{Set: &engine.Set{Dst: base, Width: 1 << 10, Height: 1,
		Value: 1, Size: 4}}}})
	for i := range uint32(1000) {
		w := engine.Word{Ops: []engine.Op{chainOp(t, c, base, i*2+3, i)}}
		want[0] = want[0]*(i*2+3) + i
		if i%16 > 12 {
			w.Ops = append(w.Ops, chainOp(t, c, base+4, 5, i))
			want[1] = want[1]*5 + i
		}
		words = append(words, w)
		if i%100 == 50 {
			words = append(words, engine.Word{Ops: []engine.Op{{Copy: &engine.Copy{Dst: base + 4096, Src: base,
				Width: 8, Height: 1}}}},
				engine.Word{Ops: []engine.Op{{Set: &engine.Set{Dst: base, Width: 8, Height: 1, Value: 9, Size: 1}}}},
				engine.Word{Ops: []engine.Op{{Copy: &engine.Copy{Dst: base, Src: base + 4096, Width: 8, Height: 1}}}})
		}
	}
	p, err := b.Prepare(words)
	if err != nil {
		t.Fatal(err)
	}
	wanted := le.AppendUint32(le.AppendUint32(nil, want[0]), want[1])
	for range 200 {
		got := make([]byte, 8)
		if err := errors.Join(p.Run(5*time.Second), b.Read(base, got)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, wanted) {
			t.Fatalf("%x, want %x", got, wanted)
		}
	}
}

// A fault is named, and the next channel works.
func TestDeviceFault(t *testing.T) {
	if os.Getenv("HOLDFAST_RAW") != "required" {
		t.Skip("HOLDFAST_RAW is not set: the fault would stand in the machine's log")
	}
	for _, w := range []struct {
		kernel string
		at     uint64
		addr   uint64
	}{{"stray", 0x1234_5678_9000, 0x1234_5678_9000}, {"trap", base, 0}, {"asserts", base, 0}} {
		b := gpu(t)
		c := loadOn(t, b)
		empty := engine.Op{Launch: launchOf(t, c, "empty", nil)}
		bad := engine.Op{Launch: launchOf(t, c, w.kernel, le.AppendUint64(nil, w.at))}
		p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{empty}}, {Ops: []engine.Op{empty, empty}},
			{Ops: []engine.Op{empty}},
			{Ops: []engine.Op{bad}}, {Ops: []engine.Op{empty}}})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Run(5 * time.Second)
		var f *engine.Fault
		if !errors.As(err, &f) || f.Word != 3 || f.Op != 0 || f.Kernel != w.kernel || f.Addr != w.addr {
			t.Errorf("%v", err)
		}
		t.Log(err)
	}
	TestDeviceOrder(t)
}

// Work that takes too long is given up. It ends by itself a little later, so that nothing hangs whatever the driver
// does.
func TestDeviceTimeout(t *testing.T) {
	if os.Getenv("HOLDFAST_RAW") != "required" {
		t.Skip("HOLDFAST_RAW is not set")
	}
	b := gpu(t)
	c := loadOn(t, b)
	busy := launchOf(t, c, "busy", le.AppendUint64(le.AppendUint64(nil, base), 4_000_000_000))
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{{Launch: busy}}}})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err = p.Run(500 * time.Millisecond)
	var out *engine.Timeout
	if !errors.As(err, &out) || out.Word != 0 || out.Kernel != "busy" {
		t.Errorf("%v", err)
	}
	t.Logf("given up after %v: %v", time.Since(begin), err)
	TestDeviceOrder(t)
}

// Many programs, one after the other: nothing is left behind.
func TestDeviceMany(t *testing.T) {
	b := gpu(t)
	for range 300 {
		c := loadOn(t, b)
		p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{chainOp(t, c, base, 3, 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Run(5*time.Second), p.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.own.free) > 1 {
		t.Errorf("addresses are in pieces: %v", b.own.free)
	}
}
