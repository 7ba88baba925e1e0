package foresee

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"holdfast/internal/trace"
)

const fuzzText = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
	.reg .b64 %rd<4>;
	.reg .b32 %r<4>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}
`

// Whatever a program tells of itself, foreseeing its work neither fails nor gives ranges that are none.
func FuzzForesee(f *testing.F) {
	digest := trace.Digest(sha256.Sum256([]byte(fuzzText)))
	var seed []byte
	for _, r := range []trace.Record{
		&trace.Alloc{Addr: 1 << 36, Bytes: 1 << 20, Block: 1}, &trace.Image{ID: 1, Texts: []trace.TextRef{{Arch: 80,
			Digest: digest}}},
		&trace.Kernel{ID: 1, Module: 1, Name: "k", Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 4}}},
		&trace.Launch{Kernel: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Params: make([]byte, 12)},
		&trace.Copy{Dst: 1 << 36, Src: 1<<36 + 4096, Width: 64, Height: 1, Depth: 1}, &trace.Free{Addr: 1 << 36},
	} {
		var err error
		if seed, err = trace.Append(seed, r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		p := New()
		p.Text(digest, []byte(fuzzText))
		var e Effect
		var spans []Span
		for len(in) > 0 {
			n, err := trace.Size(in)
			if err != nil || n == 0 {
				return
			}
			rec, err := trace.Decode(bytes.Clone(in[:n]))
			if err != nil {
				return
			}
			in = in[n:]
			switch r := rec.(type) {
			case *trace.Launch:
				p.Work("launch", []Piece{{Launch: r}}, "", nil, &e)
			case *trace.Copy:
				p.Work("copy", []Piece{{Copy: r}}, "", nil, &e)
			default:
				p.Apply(rec)
				continue
			}
			for _, r := range append(e.Writes, e.Reads...) {
				if r.Hi <= r.Lo {
					t.Fatalf("%s touches [%#x, %#x)", e.Name, r.Lo, r.Hi)
				}
			}
			spans = p.Spans(spans[:0], e.Writes)
		}
	})
}
