package foresee

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
	"holdfast/ptx"
)

// maxTexts bounds the PTX of a trace, in bytes.
const maxTexts = 1 << 30

// A Reader reads a trace and foresees the work of its processes.
type Reader struct {
	// Early says, at the end, that the trace was not finished.
	Early bool

	r        *trace.Reader
	texts    map[trace.Digest][]byte
	found    map[trace.Digest]trace.TextRef
	programs map[uint32]*Program
}

// NewReader goes through a trace once, for its PTX, which may be found after the kernels that were made from it.
func NewReader(f io.ReadSeeker) (*Reader, error) {
	t := &Reader{texts: map[trace.Digest][]byte{}, found: map[trace.Digest]trace.TextRef{},
		programs: map[uint32]*Program{}}
	err := t.begin(f)
	total := 0
	for err == nil {
		var rec trace.Record
		if rec, err = t.next(); rec == nil {
			break
		}
		switch rec := rec.(type) {
		case *trace.Found:
			t.found[rec.Image] = rec.TextRef
		case *trace.Text:
			have := t.texts[rec.Digest]
			total += len(rec.Bytes)
			if rec.Total > ptx.MaxSource || total > maxTexts {
				err = fmt.Errorf("%w: more than %d bytes of PTX", trace.ErrMalformed, maxTexts)
			} else if uint64(len(have)) == rec.Offset {
				t.texts[rec.Digest] = append(have, rec.Bytes...)
			}
		}
	}
	if t.r != nil {
		t.r.Close()
	}
	if err == nil {
		err = t.begin(f)
	}
	if err != nil {
		return nil, err
	}
	for d, text := range t.texts {
		if sha256.Sum256(text) != d {
			delete(t.texts, d) // a piece is missing
		}
	}
	return t, nil
}

func (t *Reader) begin(f io.ReadSeeker) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var err error
	t.r, err = trace.NewReader(bufio.NewReaderSize(f, 1<<20))
	return err
}

// next is the next record; nil at the end.
func (t *Reader) next() (trace.Record, error) {
	rec, err := t.r.Next()
	if errors.Is(err, trace.ErrEndedEarly) {
		t.Early = true
		return nil, nil
	}
	if err == io.EOF {
		return nil, nil
	}
	return rec, err
}

// Next is the next record with the program that it is of, to which it has been applied. At the end it is nil.
func (t *Reader) Next() (trace.Record, *Program, error) {
	rec, err := t.next()
	if rec == nil {
		return nil, nil, err
	}
	p := t.programs[t.r.Process()]
	if p == nil {
		p = New()
		t.programs[t.r.Process()] = p
	}
	if im, ok := rec.(*trace.Image); ok {
		if ref, ok := t.found[im.Digest]; ok && len(im.Texts) == 0 && im.Digest != (trace.Digest{}) {
			im.Texts = []trace.TextRef{ref}
		}
		for _, ref := range im.Texts {
			if text, ok := t.texts[ref.Digest]; ok {
				p.Text(ref.Digest, text)
			}
		}
	}
	p.Apply(rec)
	return rec, p, nil
}

// Process is the number of the process of the last record.
func (t *Reader) Process() uint32 { return t.r.Process() }

// Close lets go of what the reader holds. The file stays open.
func (t *Reader) Close() { t.r.Close() }

// Text is a PTX text of the trace, or nil.
func (t *Reader) Text(d trace.Digest) []byte { return t.texts[d] }

// Kernel is what is known of a kernel: the summary is of the very code that runs, or of PTX that lies beside it, or of
// nothing but its parameters. It is nil if the trace does not tell of the kernel.
func (p *Program) Kernel(id uint32) (told *trace.Kernel, s *footprint.Summary, exact bool) {
	k := p.kernels[id]
	if k == nil {
		return nil, nil, false
	}
	return k.told, k.summary, k.exact
}

// Footprint is a launch as its summary wants it.
func (p *Program) Footprint(l *trace.Launch) *footprint.Launch {
	f := p.footprint(l)
	return &f
}
