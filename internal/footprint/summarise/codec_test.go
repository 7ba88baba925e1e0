package summarise

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/ptx"
)

// kernelIn is the PTX of a golden file, and its first launch.
func kernelIn(t testing.TB, name string) (string, string) {
	a, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var src, launch string
	for _, f := range a.Files {
		switch f.Name {
		case "kernel.ptx":
			src = string(f.Data)
		case "launches":
			launch, _, _ = strings.Cut(string(f.Data), "\n")
		}
	}
	return src, strings.TrimPrefix(launch, "explain ")
}

func summaryOf(t testing.TB, name string) *footprint.Summary {
	src, _ := kernelIn(t, name)
	return summarised(t, name, src)
}

func TestCodec(t *testing.T) {
	for _, name := range []string{"axpy", "gridstride", "scratch", "atomics"} {
		s := summaryOf(t, name)
		b, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var d footprint.Summary
		if err := d.UnmarshalBinary(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := d.MarshalBinary()
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: encodes differently the second time (%v)", name, err)
		}
		_, line := kernelIn(t, name)
		l := launchOf(t, line)
		var x, y footprint.Instance
		s.Evaluate(l, &x)
		d.Evaluate(l, &y)
		if x.Verdict != y.Verdict || !reflect.DeepEqual(x.Writes, y.Writes) || !reflect.DeepEqual(x.Reads, y.Reads) ||
			x.Reason() != y.Reason() {
			t.Errorf("%s: %v and %v", name, x.Reason(), y.Reason())
		}
		for _, i := range []int{0, len(footprint.Magic), len(b) / 2, len(b) - 1} {
			bad := bytes.Clone(b)
			bad[i] ^= 4
			if err := new(footprint.Summary).UnmarshalBinary(bad); err == nil {
				t.Errorf("%s: byte %d changed, and nobody minds", name, i)
			}
		}
	}
}

// Operation 0 stands for an argument that is not there, so it must have none itself.
func TestDecodeOperationNone(t *testing.T) {
	s := summaryOf(t, "axpy")
	s.Path.Ops[0] = footprint.Instr{Op: form.OpAdd, W: 64, A: int32(len(s.Path.Ops)) + 8}
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := new(footprint.Summary).UnmarshalBinary(b); err == nil {
		t.Error("an operation 0 that computes something is accepted")
	}
}

// What decodes can be evaluated, whatever it is.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"axpy", "gridstride", "scratch", "atomics"} {
		b, err := summaryOf(f, name).MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[len(footprint.Magic)+1 : len(b)-32])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s footprint.Summary
		if s.Decode(b) != nil {
			return
		}
		l := &footprint.Launch{Grid: [3]uint32{2, 2, 1}, Block: [3]uint32{8, 1, 1}, Params: make([]byte, 64),
			Allocs: []footprint.Range{{Lo: 0, Hi: 1 << 20}}, Contained: true}
		var in footprint.Instance
		s.Evaluate(l, &in)
		_ = in.Reason()
	})
}

// Any PTX has summaries, and any launch of them a verdict.
func FuzzSummarise(f *testing.F) {
	for _, name := range []string{"axpy", "gridstride", "scratch", "atomics", "interleaved"} {
		src, _ := kernelIn(f, name)
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<16 {
			return
		}
		m, err := ptx.Parse("fuzz.ptx", src)
		if err != nil {
			return
		}
		list, err := Module(m)
		if err != nil {
			return
		}
		var in footprint.Instance
		for _, s := range list {
			l := &footprint.Launch{Grid: [3]uint32{2, 2, 1}, Block: [3]uint32{8, 1, 1},
				Params: make([]byte, max(0, min(s.ParamBytes, 1<<16)))}
			s.Evaluate(l, &in)
			b, err := s.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if err := new(footprint.Summary).UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}
