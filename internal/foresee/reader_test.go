package foresee

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
)

const copies = `.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 a, .param .u64 b, .param .u32 n)
{
	.reg .pred %p1;
	.reg .b32 %r<5>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u32 %r4, [n];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r1, %r2, %r3, %r1;
	setp.ge.u32 %p1, %r1, %r4;
	@%p1 bra END;
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	ld.global.u32 %r1, [%rd4];
	st.global.u32 [%rd5], %r1;
END:
	ret;
}
`

// A trace of two processes: one loads PTX, the other machine code that was made from it, which is found at the end.
func writeTrace(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	params := func(a, b uint64, n uint32) []byte {
		p := binary.LittleEndian.AppendUint64(nil, a)
		p = binary.LittleEndian.AppendUint64(p, b)
		return binary.LittleEndian.AppendUint32(p, n)
	}
	one := [3]uint32{1, 1, 1}
	kernel := func(process uint32, im *trace.Image) {
		must(w.Write(process, im))
		must(w.Write(process, &trace.Alloc{Addr: 0x10000, Bytes: 0x1000, Kind: trace.MemLinear}))
		must(w.Write(process, &trace.Alloc{Addr: 0x20000, Bytes: 0x1000, Kind: trace.MemLinear}))
		must(w.Write(process, &trace.Kernel{ID: 7, Module: im.ID, Name: "copy",
			Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 4}}}))
		must(w.Write(process, &trace.Launch{Kernel: 7, Grid: one, Block: [3]uint32{64, 1, 1}, Cluster: one,
			Params: params(0x10000, 0x20000, 16)}))
	}
	d, err := w.WriteText(1, []byte(copies))
	must(err)
	kernel(1, &trace.Image{ID: 1, Kind: trace.CodePTX, Digest: d, Texts: []trace.TextRef{{Digest: d}}})
	cubin := trace.Digest{1, 2, 3}
	kernel(2, &trace.Image{ID: 1, Kind: trace.CodeCubin, Digest: cubin})
	must(w.Write(2, &trace.Found{Image: cubin, TextRef: trace.TextRef{Arch: 90, Digest: d}}))
	kernel(3, &trace.Image{ID: 1, Kind: trace.CodeCubin, Digest: trace.Digest{4}})
	kernel(4, &trace.Image{Flags: trace.Assembled, ID: 1, Kind: trace.CodeCubin, Digest: trace.Digest{5},
		Texts: []trace.TextRef{{Arch: 90, Digest: d}}})
	must(w.Finish())
	return file.Bytes()
}

func TestReader(t *testing.T) {
	file := writeTrace(t)
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type seen struct {
		exact   bool
		verdict footprint.Verdict
	}
	got := map[uint32]seen{}
	var in footprint.Instance
	for {
		rec, p, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if rec == nil {
			break
		}
		if l, ok := rec.(*trace.Launch); ok {
			_, s, exact := p.Kernel(l.Kernel)
			s.Evaluate(p.Footprint(l), &in)
			got[r.Process()] = seen{exact, in.Verdict}
		}
	}
	want := map[uint32]seen{1: {true, footprint.Idempotent}, 2: {false, footprint.Idempotent},
		3: {false, footprint.Unknown}, 4: {true, footprint.Idempotent}}
	for p, w := range want {
		if got[p] != w {
			t.Errorf("process %d: %v, want %v", p, got[p], w)
		}
	}
	if r.Early {
		t.Error("the trace ended early")
	}

	// Cut short, it says so; what is no trace is an error.
	r, err = NewReader(bytes.NewReader(file[:len(file)-1]))
	if err != nil {
		t.Fatal(err)
	}
	for rec, _, err := r.Next(); rec != nil || err != nil; rec, _, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !r.Early {
		t.Error("a trace without its end is complete")
	}
	if _, err := NewReader(bytes.NewReader([]byte("HFTRACE\nxxxxxxxx"))); !errors.Is(err, trace.ErrMalformed) {
		t.Errorf("error %v", err)
	}
}
