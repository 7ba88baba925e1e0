package measure

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/internal/trace"
)

const copies = `.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 a, .param .u64 b)
{
	.reg .b32 %r1;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	ld.global.u32 %r1, [%rd4];
	st.global.u32 [%rd5], %r1;
	ret;
}
`

// A trace in which one kernel with PTX is launched by itself, in place, and twice by a graph, captured launches and
// nodes not counting by themselves; and one without PTX.
func TestTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.trace")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(f, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	one := [3]uint32{1, 1, 1}
	launch := func(kernel uint32, a, b uint64, flags uint16) *trace.Launch {
		p := binary.LittleEndian.AppendUint64(nil, a)
		return &trace.Launch{Flags: flags, Kernel: kernel, Cell: 5, Grid: one, Block: [3]uint32{64, 1, 1}, Cluster: one,
			Params: binary.LittleEndian.AppendUint64(p, b)}
	}
	d, err := w.WriteText(1, []byte(copies))
	params := []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}}
	errs := []error{err}
	for _, r := range []trace.Record{
		&trace.Program{PID: 7, Name: "train"},
		&trace.Image{ID: 1, Kind: trace.CodePTX, Digest: d, Texts: []trace.TextRef{{Digest: d}}},
		&trace.Alloc{Addr: 0x10000, Bytes: 0x1000, Kind: trace.MemLinear},
		&trace.Alloc{Addr: 0x20000, Bytes: 0x1000, Kind: trace.MemLinear},
		&trace.Kernel{ID: 1, Module: 1, Name: "copy", Params: params},
		&trace.Kernel{ID: 2, Name: "secret", Params: params},
		launch(1, 0x10000, 0x20000, 0),
		launch(1, 0x10000, 0x20000, 0),
		launch(1, 0x10000, 0x10004, 0),
		launch(1, 0x10000, 0x30000, trace.Captured),
		launch(2, 0x10000, 0x20000, 0),
		&trace.Graph{ID: 5, Nodes: 1},
		launch(1, 0x20000, 0x10000, trace.Node),
		&trace.GraphEnd{ID: 5},
		&trace.GraphLaunch{Graph: 5},
		&trace.GraphLaunch{Graph: 5},
	} {
		errs = append(errs, w.Write(1, r))
	}
	if err := errors.Join(append(errs, w.Finish(), f.Close())...); err != nil {
		t.Fatal(err)
	}
	m := New(Defaults())
	if err := m.Trace(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	r := m.Report()
	for _, row := range []*Row{r.Total, r.Applications[0]} {
		if row.Kernels != 1 || row.Launches != 5 || row.Verdicts.Total() != 3 || row.Verdicts.Idempotent != 2 ||
			row.Beside != 0 {
			t.Errorf("%s: %d kernels, %d launches, verdicts %+v", row.Application, row.Kernels, row.Launches,
				row.Verdicts)
		}
	}
	if r.Applications[0].Application != "x.trace: train" {
		t.Errorf("the process is %q", r.Applications[0].Application)
	}
	if r.Opaque.Kernels != 1 || r.Opaque.Launches != 1 || r.Opaque.Verdicts.Unknown != 1 {
		t.Errorf("without PTX: %+v", r.Opaque)
	}
	if r.Latency.Instances != 3 || r.Latency.P50 <= 0 {
		t.Errorf("latency %+v", r.Latency)
	}
}
