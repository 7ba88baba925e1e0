package measure

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/internal/footprint"
	"holdfast/internal/foresee"
	"holdfast/internal/trace"
)

// Trace measures the launches of a trace: those of each process are a row. Nothing is executed, since a trace has no
// contents of memory. An instance is a launch that differs in kernel, configuration or parameters; where memory lies is
// part of the parameters.
func (m *Measurement) Trace(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := foresee.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer r.Close()
	t := &traced{m: m, file: filepath.Base(file), r: r, rows: map[uint32]*tracedRow{}}
	for n := 0; ; n++ {
		rec, p, err := r.Next()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if rec == nil {
			break
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t.record(rec, p)
	}
	m.clock.measure(t.file, t.evaluations)
	for _, row := range t.order {
		row.finish()
		m.r.Applications = append(m.r.Applications, row.Row)
		m.recorded.measure(t.file, row.recorded)
	}
	return nil
}

// A traced is a trace that is being measured.
type traced struct {
	m           *Measurement
	file        string
	r           *foresee.Reader
	rows        map[uint32]*tracedRow // by process
	order       []*tracedRow
	in          footprint.Instance
	launches    int
	evaluations []evaluation
}

// A tracedRow is a process of a trace.
type tracedRow struct {
	*Row
	recorded []recorded
}

func (t *traced) record(rec trace.Record, p *foresee.Program) {
	switch rec := rec.(type) {
	case *trace.Program:
		t.row().Application = fmt.Sprintf("%s: %s", t.file, rec.Name)
	case *trace.Launch:
		if rec.Flags&(trace.Node|trace.Captured) == 0 {
			t.launch(rec, p)
		}
	case *trace.GraphLaunch:
		if g := p.State().Graph(rec.Graph); g != nil {
			for _, w := range g.Work {
				if l, ok := w.(*trace.Launch); ok {
					t.launch(l, p)
				}
			}
		}
	}
}

// row is that of the process of the last record.
func (t *traced) row() *tracedRow {
	n := t.r.Process()
	if t.rows[n] == nil {
		t.rows[n] = &tracedRow{Row: newRow(fmt.Sprintf("%s: process %d", t.file, n), "trace")}
		t.order = append(t.order, t.rows[n])
	}
	return t.rows[n]
}

func (t *traced) launch(l *trace.Launch, p *foresee.Program) {
	t.launches++
	told, s, exact := p.Kernel(l.Kernel)
	if s == nil || l.Flags&trace.NoParams != 0 {
		t.m.r.Opaque.Launches++
		return
	}
	fl := p.Footprint(l)
	s.Evaluate(fl, &t.in)
	opaque := s.Cause == footprint.NoCode
	d := kernelDigest(told, p)
	key := sha256.Sum256(fmt.Appendf(nil, "%x %v %v %v %d %x", d, l.Grid, l.Block, l.Cluster, l.Shared, l.Params))
	fresh := t.m.first(string(key[:]))
	if opaque {
		t.m.r.Opaque.instance(d, s.Class, 1, &t.in, fresh)
		return
	}
	e := evaluation{s, fl, t.launches - 1}
	process := t.row()
	if len(process.recorded) < maxRecorded {
		process.recorded = append(process.recorded, recorded{e, 1})
	}
	for _, row := range []*Row{process.Row, t.m.r.Total} {
		row.instance(d, s.Class, 1, &t.in, fresh)
		if fresh && !exact {
			row.Beside++
		}
	}
	if fresh && len(t.evaluations) < maxEvaluations {
		t.evaluations = append(t.evaluations, e)
	}
}

// What of a trace is evaluated again for its latency: so many instances, and of each process so many launches from its
// first on.
const maxEvaluations, maxRecorded = 1 << 16, 1 << 18

// kernelDigest tells kernels apart: by their module's code and their name.
func kernelDigest(k *trace.Kernel, p *foresee.Program) digest {
	var image trace.Digest
	if im := p.State().Image(k.Module); im != nil {
		image = im.Digest
		if n := len(im.Texts); n > 0 {
			image = im.Texts[n-1].Digest
		}
	}
	return sha256.Sum256(append(image[:], k.Name...))
}
