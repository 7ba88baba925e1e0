package softgpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// im2colKernel loads a box from [rd3] at the coordinates and offsets at p, stores it at q, and copies it to
// the tensor again with im2col_no_offs if back is set.
func im2colKernel(rank int, back bool) string {
	var b strings.Builder
	b.WriteString(bulkHead)
	coords := []string{"%r10", "%r11", "%r12", "%r13", "%r14"}[:rank]
	offsets := []string{"%h1", "%h2", "%h3"}[:rank-2]
	for i, c := range coords {
		fmt.Fprintf(&b, "\tld.global.u32 %s, [%%rd1+%d];\n", c, 4*i)
	}
	for i, c := range offsets {
		fmt.Fprintf(&b, "\tld.global.u16 %s, [%%rd1+%d];\n", c, 20+4*i)
	}
	fmt.Fprintf(&b, `	ld.global.u32 %%r20, [%%rd1+32];
	@!%%p7 bra WAIT;
	mbarrier.arrive.expect_tx.shared.b64 _, [%%r1], %%r20;
	cp.async.bulk.tensor.%dd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%%r2], [%%rd3, {%s}], [%%r1], {%s};
`, rank, strings.Join(coords, ", "), strings.Join(offsets, ", "))
	b.WriteString(bulkWait + `	shl.b32 %r21, %r3, 2;
C:	add.u32 %r22, %r2, %r21;
	ld.shared.u32 %r23, [%r22];
	cvt.u64.u32 %rd4, %r21;
	add.u64 %rd4, %rd4, %rd2;
	st.global.u32 [%rd4], %r23;
	add.u32 %r23, %r23, 1;
	st.shared.u32 [%r22], %r23;
	add.u32 %r21, %r21, 128;
	setp.lt.u32 %p2, %r21, 16384;
	@%p2 bra C;
`)
	if back {
		fmt.Fprintf(&b, "\tbar.sync 0;\n"+
			"\t@%%p7 cp.async.bulk.tensor.%dd.global.shared::cta.im2col_no_offs.bulk_group [%%rd3, {%s}], [%%r2];\n",
			rank, strings.Join(coords, ", "))
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// The places that im2col visits are those that a convolution with padding, stride and dilation reads for one
// element of its filter, in the order of its outputs.
func TestIm2col(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	d := newDevice(t, 8)
	const args, dense, tensor = testLo + 1<<20, testLo + 1<<20 + 4096, testLo + 2<<20
	kernels := map[string]*Instance{}
	for round := range 150 {
		rank := 3 + round%3
		k := rank - 2
		m := &TensorMap{Type: TensorU32, Rank: rank, Address: tensor, Im2col: true, Channels: uint16(4 << r.IntN(3)),
			Pixels: uint16(1 + r.IntN(40))}
		m.Dim[0] = uint64(m.Channels) + r.Uint64N(6)
		m.Step[0], m.Step[rank-1] = 1, 1
		m.Dim[rank-1] = 1 + r.Uint64N(3) // images
		var pad, dilation, filter, outputs [3]int
		for i := range k {
			for outputs[i] <= 0 {
				pad[i], dilation[i], filter[i] = r.IntN(3), 1+r.IntN(2), 1+r.IntN(3)
				m.Dim[i+1], m.Step[i+1] = 1+r.Uint64N(7), 1+uint32(r.IntN(2))
				outputs[i] = (int(m.Dim[i+1])+2*pad[i]-dilation[i]*(filter[i]-1)-1)/int(m.Step[i+1]) + 1
				if int(m.Dim[i+1])+2*pad[i] < dilation[i]*(filter[i]-1)+1 {
					outputs[i] = 0
				}
			}
			m.Lower[i], m.Upper[i] = int16(-pad[i]), int16(pad[i]-dilation[i]*(filter[i]-1))
		}
		stride := (m.Dim[0]*4 + 15) / 16 * 16
		for i := 1; i < rank; i++ {
			m.Stride[i-1] = stride
			stride *= m.Dim[i]
		}
		enc := m.Encode()
		if back, err := DecodeTensorMap(enc[:]); err != nil || *back != *m {
			t.Fatalf("%+v is decoded as %+v: %v", m, back, err)
		}
		mem := view[uint32](d, tensor, int(stride/4))
		for i := range mem {
			mem[i] = r.Uint32()
		}
		// The first output and the element of the filter.
		var at, element [3]int
		start := make([]int32, 9)
		channel := r.IntN(int(m.Dim[0])) - 1
		image := r.IntN(int(m.Dim[rank-1]))
		start[0], start[rank-1] = int32(channel), int32(image)
		for i := range k {
			at[i], element[i] = r.IntN(outputs[i]), r.IntN(filter[i])
			start[i+1] = int32(at[i]*int(m.Step[i+1]) - pad[i])
			start[5+i] = int32(element[i] * dilation[i])
		}
		total := int(m.Channels) * int(m.Pixels) * 4
		if total > 16384 {
			continue
		}
		start[8] = int32(total)
		copy(view[int32](d, args, 9), start)
		back := round%2 == 0
		key := fmt.Sprint(rank, back)
		if kernels[key] == nil {
			kernels[key] = d.load(im2colKernel(rank, back))
		}
		before := slices.Clone(mem)
		d.run(kernels[key], "k", LaunchConfig{Grid: dims(1), Block: dims(32),
			Params: slices.Concat(params(uint64(args), uint64(dense)), make([]byte, 48), enc[:]), MaxInstructions: 1e6})
		want := slices.Clone(before)
		box := view[uint32](d, dense, 4096)
		for p := range int(m.Pixels) {
			for c := range int(m.Channels) {
				// Without the offsets, for the way back, and with them.
				index := func(offset bool) (int, bool) {
					off, inside := uint64(channel+c)*4, channel+c >= 0 && channel+c < int(m.Dim[0]) &&
						image < int(m.Dim[rank-1])
					for i := range k {
						x := at[i]*int(m.Step[i+1]) - pad[i]
						if offset {
							x += element[i] * dilation[i]
						}
						inside = inside && x >= 0 && x < int(m.Dim[i+1])
						off += uint64(x) * m.Stride[i]
					}
					return int(off+uint64(image)*m.Stride[rank-2]) / 4, inside
				}
				var x uint32
				if i, ok := index(true); ok {
					x = before[i]
				}
				if got := box[p*int(m.Channels)+c]; got != x {
					t.Fatalf("round %d, %+v: place %d channel %d: %#x, want %#x", round, m, p, c, got, x)
				}
				if i, ok := index(false); ok && back {
					want[i] = x + 1
				}
			}
			for i := range k + 1 {
				if i == k {
					image++
				} else if at[i]++; at[i] < outputs[i] {
					break
				} else {
					at[i] = 0
				}
			}
		}
		if !slices.Equal(mem, want) {
			t.Fatalf("round %d: the tensor differs", round)
		}
	}
}

func TestIm2colRefused(t *testing.T) {
	good := TensorMap{Type: TensorF16, Rank: 4, Dim: [5]uint64{64, 8, 8, 2}, Stride: [4]uint64{128, 1024, 8192},
		Step: [5]uint32{1, 1, 1, 1, 1}, Im2col: true, Channels: 64, Pixels: 32,
		Lower: [3]int16{-1, -1}, Upper: [3]int16{-1, -1}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func(*TensorMap){
		"rank":     func(m *TensorMap) { m.Rank = 2 },
		"channels": func(m *TensorMap) { m.Channels = 300 },
		"pixels":   func(m *TensorMap) { m.Pixels = 0 },
		"corner":   func(m *TensorMap) { m.Lower[0] = -129 },
		"empty":    func(m *TensorMap) { m.Upper[1] = -9 },
		"row":      func(m *TensorMap) { m.Channels = 4 },
		"swizzle":  func(m *TensorMap) { m.Swizzle, m.Channels = 1, 64 },
	} {
		m := good
		bad(&m)
		if m.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// A map of one mode does not serve the other.
	d := newDevice(t, 4)
	enc := good.Encode()
	in := d.load(bulkHead + "\tcp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes " +
		"[%r2], [%rd3, {%r3, %r3, %r3, %r3}], [%r1];\n\tret;\n}\n")
	d.fails(in, "k",
		LaunchConfig{Grid: dims(1), Block: dims(1), Params: slices.Concat(make([]byte, 64), enc[:])}, FaultUnsupported)
}
