package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"holdfast/internal/newfile"
)

// The header: magic, u32 version, u32 0, u64 offset of the manifest, u64 its bytes, its SHA-256.
const (
	magic      = "HFRECRD\n"
	headerSize = 64
)

// A Writer makes a recording. It is for one goroutine. The file has another name until Finish; Abort, or a Finish
// that fails, leaves nothing.
type Writer struct {
	path   string
	f      *newfile.File
	enc    *zstd.Encoder
	at     int64
	known  map[Digest]int
	chunks []Chunk
	packed []byte
	err    error
}

// Create begins a recording that is to become the file at path.
func Create(path string) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	f, err := newfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, f: f, enc: enc, known: map[Digest]int{}}
	w.write(make([]byte, headerSize))
	return w, nil
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.f.Write(b)
		w.at += int64(len(b))
	}
}

// put stores a chunk unless it is there.
func (w *Writer) put(b []byte) int {
	if IsZero(b) {
		return Zero
	}
	d := Digest(sha256.Sum256(b))
	if i, ok := w.known[d]; ok {
		return i
	}
	w.packed = w.enc.EncodeAll(b, w.packed[:0])
	stored := w.packed
	if len(stored) > len(b)/10*9 { // what compresses so little costs more to unpack than to read
		stored = b
	}
	i := len(w.chunks)
	w.known[d] = i
	w.chunks = append(w.chunks, Chunk{Offset: w.at, SHA256: d, Size: int64(len(b)), Stored: int64(len(stored))})
	w.write(stored)
	return i
}

// IsZero reports whether all bytes are zero.
func IsZero(b []byte) bool {
	var none [4096]byte
	for len(b) > len(none) {
		if !bytes.Equal(b[:len(none)], none[:]) {
			return false
		}
		b = b[len(none):]
	}
	return bytes.Equal(b, none[:len(b)])
}

// A BlobWriter takes the bytes of a blob.
type BlobWriter struct {
	w    *Writer
	b    Blob
	part []byte
}

// Blob begins a blob. Several may be written side by side.
func (w *Writer) Blob() *BlobWriter { return &BlobWriter{w: w, b: Blob{Chunks: []int{}}} }

// Write implements io.Writer. It fails when the file cannot be written.
func (b *BlobWriter) Write(p []byte) (int, error) {
	n := len(p)
	b.b.Bytes += int64(n)
	for len(p) > 0 {
		if b.part == nil {
			b.part = make([]byte, 0, min(ChunkSize, len(p)))
		}
		take := min(ChunkSize-len(b.part), len(p))
		b.part, p = append(b.part, p[:take]...), p[take:]
		if len(b.part) == ChunkSize {
			b.flush()
		}
	}
	return n, b.w.err
}

func (b *BlobWriter) flush() {
	b.b.Chunks = append(b.b.Chunks, b.w.put(b.part))
	b.part = b.part[:0]
}

// Finish is the blob of what was written.
func (b *BlobWriter) Finish() Blob {
	if len(b.part) > 0 {
		b.flush()
	}
	b.part = nil
	return b.b
}

// Put makes a blob of bytes.
func (w *Writer) Put(p []byte) Blob {
	b := w.Blob()
	_, _ = b.Write(p) // Finish says it
	return b.Finish()
}

// Finish writes the manifest, whose chunks are the writer's, and gives the file its name. It returns the file's size.
func (w *Writer) Finish(m *Manifest) (int64, error) {
	size, err := w.finish(m)
	if err != nil {
		w.Abort()
		return 0, fmt.Errorf("%s: %w", w.path, err)
	}
	return size, nil
}

func (w *Writer) finish(m *Manifest) (int64, error) {
	size, err := w.seal(m)
	if err != nil {
		return 0, err
	}
	if err := w.readable(size); err != nil {
		return 0, err
	}
	return size, w.f.Finish(0o666)
}

// Preview is what Finish would write, to be read before that: who looks at it may change the manifest. It is good
// until the writer is used again; closing it leaves the writer as it is.
func (w *Writer) Preview(m *Manifest) (*File, error) {
	size, err := w.seal(m)
	if err != nil {
		return nil, err
	}
	return NewFile(w.f, size)
}

// seal writes manifest and header, over those that there may be. It returns the size of the file.
func (w *Writer) seal(m *Manifest) (int64, error) {
	m.Version, m.Chunks = m.lowest(), append([]Chunk{}, w.chunks...)
	at := w.at
	if err := m.check(headerSize, at); err != nil {
		return 0, fmt.Errorf("what was recorded cannot be described: %w", err)
	}
	text, err := m.encode()
	if err != nil {
		return 0, err
	}
	if len(text) > MaxManifest {
		return 0, fmt.Errorf("a manifest of %d bytes, limit %d", len(text), MaxManifest)
	}
	if w.err != nil {
		return 0, w.err
	}
	size := at + int64(len(text))
	if _, err := w.f.WriteAt(text, at); err != nil {
		return 0, err
	}
	if err := w.f.Truncate(size); err != nil {
		return 0, err
	}
	head := append([]byte(magic), make([]byte, headerSize-len(magic))...)
	sum := sha256.Sum256(text)
	binary.LittleEndian.PutUint32(head[8:], uint32(m.Version))
	binary.LittleEndian.PutUint64(head[16:], uint64(at))
	binary.LittleEndian.PutUint64(head[24:], uint64(len(text)))
	copy(head[32:], sum[:])
	_, err = w.f.WriteAt(head, 0)
	return size, err
}

// readable makes sure that what was written can be read: a reader checks more than the writer knows.
func (w *Writer) readable(size int64) error {
	f, err := NewFile(w.f, size)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range f.Manifest.Entries {
		if _, err := f.Work(&f.Manifest.Entries[i]); err != nil {
			return err
		}
	}
	_, err = f.Patches()
	return err
}

// Abort removes what was written. After Finish it does nothing.
func (w *Writer) Abort() { w.f.Abort() }

var _ io.Writer = (*BlobWriter)(nil)
