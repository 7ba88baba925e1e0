package verify_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/replay/verify"
	"holdfast/internal/trace"
)

const staging = base + 64<<20

func port(name string, at uint64, n int64) recording.Port {
	return recording.Port{Addr: recording.Addr(at), Bytes: n, DType: "uint8", Name: name, Shape: []int{int(n)}}
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], 0x3f000000|r.Uint32()>>10) // floats below 2
	}
	return b
}

// perceptron is what examples/infer does within its range.
func perceptron(t testing.TB) *sketch {
	t.Helper()
	text, err := os.ReadFile("../../../examples/infer/infer.ptx")
	if err != nil {
		t.Fatal(err)
	}
	const in, hidden, out = 64, 128, 16
	at := uint64(base)
	s := &sketch{code: []string{string(text)}, kernels: []string{"dense", "join"}}
	const scratch, live, constant = 0, 1, 2
	take := func(n, class int) uint64 {
		r := region{addr: at, bytes: int64(n), constant: class == constant}
		if class != scratch {
			r.contents = noise(n)
		}
		s.regions = append(s.regions, r)
		at += uint64(n+511) / 512 * 512
		return r.addr
	}
	w := []uint64{take(4*hidden*in, constant), take(4*out*hidden, constant), take(4*out*hidden, live)}
	b := []uint64{take(4*hidden, constant), take(4*out, constant), take(4*out, live)}
	x, h, left, right := take(4*in, live), take(4*hidden, live), take(4*out, live), take(4*out, live)
	count, y := take(4, live), take(4*out, scratch)
	s.work = []trace.Record{
		&trace.Copy{Dst: x, Src: staging, Width: 4 * in, Height: 1, Depth: 1},
		&trace.Copy{Flags: trace.Set, Dst: h, SrcPitch: 4, Width: 4 * hidden, Height: 1, Depth: 1},
		after(0, 1), launch(0, 2, 64, x, w[0], b[0], h, uint32(in), uint32(hidden)),
		after(2), launch(0, 1, 64, h, w[1], b[1], left, uint32(hidden), uint32(out)),
		after(2), launch(0, 1, 64, h, w[2], b[2], right, uint32(hidden), uint32(out)),
		after(3, 4), launch(1, 1, 64, left, right, y, count, uint32(out)),
		after(5), &trace.Copy{Dst: staging + 512, Src: y, Width: 4 * out, Height: 1, Depth: 1},
		after(6), &trace.Copy{Dst: staging + 1024, Src: count, Width: 4, Height: 1, Depth: 1},
	}
	s.entry.Inputs = []recording.Port{port("x", staging, 4*in)}
	s.entry.Outputs = []recording.Port{port("y", staging+512, 4*out), port("count", staging+1024, 4)}
	return s
}

const tableText = head + `
// out[i] = in[index[i]] for i < n
.visible .entry gather(.param .u64 p_in, .param .u64 p_index, .param .u64 p_out, .param .u32 p_n)
{
	.reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<12>;
	ld.param.u64 %d0, [p_in];
	ld.param.u64 %d1, [p_index];
	ld.param.u64 %d2, [p_out];
	ld.param.u32 %r0, [p_n];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r4, %r1, %r2, %r3;
	setp.ge.u32 %p0, %r4, %r0;
	@%p0 bra DONE;
	mul.wide.u32 %d3, %r4, 4;
	add.u64 %d4, %d1, %d3;
	ld.global.u32 %r5, [%d4];
	mul.wide.u32 %d5, %r5, 4;
	add.u64 %d6, %d0, %d5;
	ld.global.u32 %r6, [%d6];
	add.u64 %d7, %d2, %d3;
	st.global.u32 [%d7], %r6;
DONE:
	ret;
}

// what the table points to is added up within a block, and goes where its second word points
.visible .entry total(.param .u64 p_table, .param .u32 p_n)
{
	.reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %d<12>;
	.shared .align 4 .b32 sum;
	ld.param.u64 %d0, [p_table];
	ld.param.u32 %r0, [p_n];
	ld.global.u64 %d1, [%d0];
	ld.global.u64 %d2, [%d0+8];
	mov.u32 %r3, %tid.x;
	setp.ne.u32 %p0, %r3, 0;
	@%p0 bra ADD;
	st.shared.u32 [sum], 0;
ADD:
	bar.sync 0;
	setp.ge.u32 %p1, %r3, %r0;
	@%p1 bra ADDED;
	mul.wide.u32 %d3, %r3, 4;
	add.u64 %d4, %d1, %d3;
	ld.global.u32 %r4, [%d4];
	red.shared.add.u32 [sum], %r4;
ADDED:
	bar.sync 0;
	@%p0 bra DONE;
	ld.shared.u32 %r5, [sum];
	st.global.u32 [%d2], %r5;
DONE:
	ret;
}
`

// tables gathers by a table of indices and adds up by one of pointers, which are proven by what memory holds; its
// copies and sets have rows.
func tables(t testing.TB) *sketch {
	t.Helper()
	const n = 100
	in, index, out := uint64(base), uint64(base+8192), uint64(base+16384)
	table, result := uint64(base+20480), uint64(base+24576)
	var list []byte
	for i := range uint32(n) {
		list = append(list, words(i*37%512)...)
	}
	pointers := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, out), result)
	return &sketch{code: []string{tableText}, kernels: []string{"gather", "total"},
		regions: []region{{in, 2048, noise(2048), false}, {index, 4 * n, list, false}, {out, 4 * n, nil, false},
			{table, 16, pointers, true}, {result, 256, nil, false}},
		work: []trace.Record{
			&trace.Copy{Dst: in, DstPitch: 64, Src: staging, SrcPitch: 32, Width: 32, Height: 16, Depth: 1},
			&trace.Copy{Flags: trace.Set, Dst: result, DstPitch: 16, Src: 0x0102, SrcPitch: 2, Width: 8, Height: 16,
				Depth: 1},
			after(0), launch(0, 4, 32, in, index, out, uint32(n)),
			after(1, 2), launch(1, 1, 128, table, uint32(n)),
			after(3), &trace.Copy{Dst: staging + 512, Src: result, Width: 4, Height: 1, Depth: 1},
			after(2), &trace.Copy{Dst: staging + 1024, Src: out, Width: 4 * n, Height: 1, Depth: 1},
		},
		entry: recording.Entry{Inputs: []recording.Port{port("x", staging, 512)},
			Outputs: []recording.Port{port("sum", staging+512, 4), port("y", staging+1024, 4*n)}}}
}

// scatter gathers by a table that the range itself has made of its input, so its launch rests on its arguments.
func scatter(t testing.TB) *sketch {
	t.Helper()
	s := tables(t)
	s.work = append(s.work, after(4), &trace.Copy{Dst: base + 8192, Src: staging, Width: 400, Height: 1, Depth: 1})
	return s
}

// Weights that nothing writes may be declared constant, if every launch is proven.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		s    *sketch
		want []int
	}{{perceptron(t), []int{2, 5}}, {tables(t), []int{1}}, {scatter(t), nil}} {
		b := c.s.write(t)
		if got := verify.Constants(open(t, b)); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	s := perceptron(t)
	s.cubin = true
	if got := verify.Constants(open(t, s.write(t))); got != nil {
		t.Errorf("with machine code: %v", got)
	}
	// A launch whose output is where its weights are.
	s = perceptron(t)
	binary.LittleEndian.PutUint64(s.work[3].(*trace.Launch).Params[24:], s.regions[0].addr)
	r := verified(t, s.write(t))
	if x := r.Items[2]; x.Level != verify.Refused || !strings.Contains(x.Reason, "constant") {
		t.Errorf("%+v", x)
	}
}

// A recording that can be relocated is verified in two places. A word that was forgotten shows in the second.
func TestMovable(t *testing.T) {
	for _, s := range []*sketch{perceptron(t), tables(t)} {
		n := 0
		s.relocatable()
		b := s.write(t)
		if r := verified(t, b); r.Err(true) != nil {
			t.Errorf("it is refused: %v", r.Err(true))
		}
		there, err := open(t, b).At(base + 7<<33)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := verify.Verify(there); err != nil || r.Err(true) != nil {
			t.Errorf("in another place: %v, %v", err, r.Err(true))
		}
		all := s.patches
		for i := range all {
			s.patches = slices.Delete(slices.Clone(all), i, i+1)
			r := verified(t, s.write(t))
			if err := r.Err(true); err == nil || !strings.Contains(err.Error(), "with its memory from 0x") {
				t.Errorf("without %v: %v", &all[i], err)
			}
			if r.Err(false) != nil {
				n++
			}
		}
		if n == 0 {
			t.Error("no word that was forgotten is refused without --strict")
		}
	}
}

func levels(r *verify.Report) (list []string) {
	for _, x := range r.Items {
		if x.Kernel >= 0 {
			list = append(list, x.Level.String())
		}
	}
	return list
}

// What the models of the mutants are proven to be, or not, and that they run.
func TestModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     *sketch
		want  []string
		never int // regions that nothing writes
	}{
		{"perceptron", perceptron(t), []string{"proven", "proven", "proven", "proven"}, 6},
		{"tables", tables(t), []string{"proven", "proven"}, 2},
		{"scatter", scatter(t), []string{"by-arguments", "by-arguments"}, 0},
	} {
		b := c.s.write(t)
		r := verified(t, b)
		if got := levels(r); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %+v", c.name, got, c.want, r.Kernels)
		}
		never := 0
		for _, g := range r.Regions {
			if g.Written == verify.Never {
				never++
			}
		}
		if never != c.never {
			t.Errorf("%s: %d regions are never written, want %d: %+v", c.name, never, c.never, r.Regions)
		}
		out := played(t, open(t, b), base-window/2, window)
		if out.loaded != nil || out.ended != nil || len(out.strays) > 0 {
			t.Errorf("%s: %+v", c.name, out)
		}
		if got := levels(verified(t, takeApart(t, b).together())); !slices.Equal(got, c.want) {
			t.Errorf("%s: taken apart and put together, %v", c.name, got)
		}
	}
}
