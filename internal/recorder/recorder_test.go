package recorder

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"testing"

	"holdfast/internal/tap"
	"holdfast/internal/trace"
)

// Whatever a program tells, what is written is a trace that can be read to its end.
func FuzzRecorder(f *testing.F) {
	var seed []byte
	for _, r := range []trace.Record{&trace.Image{ID: 1}, &trace.Kernel{ID: 1, Module: 1, Name: "k"},
		&trace.Launch{Kernel: 1, Params: []byte{1}},
		&trace.Graph{ID: 1}, &trace.GraphEnd{ID: 1}, &trace.GraphLaunch{Graph: 1}, &trace.Copy{Width: 1}} {
		var err error
		if seed, err = trace.Append(seed, r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		var file bytes.Buffer
		r, err := New(&file, func(int) []string { return nil }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s := &session{r: r, p: &Process{Number: 1}}
		written := 0
		for len(in) > 0 {
			n, err := trace.Size(in)
			if err != nil || n == 0 {
				break
			}
			rec, err := trace.Decode(bytes.Clone(in[:n]))
			if err != nil {
				break
			}
			if rec.Type() < trace.TypeProgram { // tap.Reader refuses the others
				if im, ok := rec.(*trace.Image); ok {
					err = s.Module(&tap.Module{Image: trace.Image{ID: im.ID, Kind: im.Kind, Flags: im.Flags},
						PTX: [][]byte{in[:n]}})
				} else {
					err = s.Record(rec, in[:n])
				}
				if err != nil {
					t.Fatal(err)
				}
				written++
			}
			in = in[n:]
		}
		if _, err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		back, err := trace.NewReader(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		read := 0
		for {
			rec, err := back.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec.Type() < trace.TypeProgram {
				read++
			}
		}
		if read < written {
			t.Fatalf("%d records written, %d read", written, read)
		}
	})
}
