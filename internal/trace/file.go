package trace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// ErrEndedEarly says that a trace was not finished: whoever recorded it was killed or ran out of space. What came
// before is good.
var ErrEndedEarly = errors.New("the trace ended early")

// The file: 16 bytes (magic, version, zero), then blocks.
const (
	Magic       = "HFTRACE\n" // of a file
	fileVersion = 4           // 1 had no GraphVersion, 2 no ranges and what is in them, 3 no GraphEdges
	fileHeader  = 16

	blockMagic  = 0x6b6c4248 // "HBlk"
	blockHeader = 40
	blockTarget = 256 << 10 // a block is written when it has so many bytes
	blockMax    = blockTarget + MaxRecord
	blockZstd   = 1 << 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Writer appends a trace to a stream. Records of one process stay in their order; those of different processes may
// change places within a block's worth. It is not for several goroutines at once.
type Writer struct {
	w     io.Writer
	enc   *zstd.Encoder
	open  map[uint32]*block
	texts map[Digest]bool
	out   []byte
	err   error
	now   func() time.Time
	bytes int64
}

type block struct {
	began time.Time
	b     []byte
}

// NewWriter begins a trace. now gives the times of blocks.
func NewWriter(w io.Writer, now func() time.Time) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	t := &Writer{w: w, enc: enc, open: map[uint32]*block{}, texts: map[Digest]bool{}, now: now}
	head := append([]byte(Magic), fileVersion, 0, 0, 0, 0, 0, 0, 0)
	t.write(head)
	return t, t.err
}

// Bytes is how much was written.
func (t *Writer) Bytes() int64 { return t.bytes }

// Write appends one record of a process.
func (t *Writer) Write(process uint32, r Record) error {
	if t.err != nil {
		return t.err
	}
	b := t.block(process)
	grown, err := Append(b.b, r)
	if err != nil {
		return err
	}
	b.b = grown
	return t.full(process)
}

// WriteRaw appends one encoded record as it is.
func (t *Writer) WriteRaw(process uint32, record []byte) error {
	if t.err != nil {
		return t.err
	}
	b := t.block(process)
	b.b = append(b.b, record...)
	return t.full(process)
}

// WriteText appends a text unless the file has it.
func (t *Writer) WriteText(process uint32, text []byte) (Digest, error) {
	d := Digest(sha256.Sum256(text))
	if t.texts[d] {
		return d, t.err
	}
	const piece = 32 << 10
	for at := 0; at < len(text) || at == 0; at += piece {
		r := &Text{Digest: d, Total: uint64(len(text)), Offset: uint64(at), Bytes: text[at:min(at+piece, len(text))]}
		if err := t.Write(process, r); err != nil {
			return d, err
		}
	}
	if err := t.flush(process); err != nil { // before another process names it
		return d, err
	}
	t.texts[d] = true
	return d, nil
}

func (t *Writer) block(process uint32) *block {
	b := t.open[process]
	if b == nil {
		b = &block{}
		t.open[process] = b
	}
	if len(b.b) == 0 {
		b.began = t.now()
	}
	return b
}

func (t *Writer) full(process uint32) error {
	if len(t.open[process].b) < blockTarget {
		return nil
	}
	return t.flush(process)
}

// Flush writes what is pending of all processes.
func (t *Writer) Flush() error {
	for process := range t.open {
		if err := t.flush(process); err != nil {
			return err
		}
	}
	return t.err
}

func (t *Writer) flush(process uint32) error {
	b := t.open[process]
	if b == nil || len(b.b) == 0 || t.err != nil {
		return t.err
	}
	out := append(t.out[:0], make([]byte, blockHeader)...)
	flags := uint32(blockZstd)
	out = t.enc.EncodeAll(b.b, out)
	if len(out)-blockHeader >= len(b.b) {
		flags = 0
		out = append(out[:blockHeader], b.b...)
	}
	le := binary.LittleEndian
	le.PutUint32(out[0:], blockMagic)
	le.PutUint32(out[4:], uint32(len(out)-blockHeader))
	le.PutUint32(out[8:], uint32(len(b.b)))
	le.PutUint32(out[12:], flags)
	le.PutUint32(out[16:], process)
	le.PutUint64(out[24:], uint64(b.began.UnixNano()))
	le.PutUint32(out[36:], crc32.Checksum(out[blockHeader:], castagnoli))
	le.PutUint32(out[32:], crc32.Update(crc32.Checksum(out[:32], castagnoli), castagnoli, out[36:40]))
	t.out, b.b = out, b.b[:0]
	t.write(out)
	return t.err
}

func (t *Writer) write(b []byte) {
	if t.err != nil {
		return
	}
	n, err := t.w.Write(b)
	t.bytes += int64(n)
	t.err = err
}

// Finish writes what is pending and the end. The stream stays open.
func (t *Writer) Finish() error {
	if err := t.Flush(); err != nil {
		return err
	}
	if err := t.Write(0, &End{}); err != nil {
		return err
	}
	return t.flush(0)
}

// A Reader reads a trace from its beginning.
type Reader struct {
	r       io.Reader
	dec     *zstd.Decoder
	at      int64 // in the file, of the next block
	process uint32
	began   time.Time
	stored  []byte
	rest    []byte // of the block
	ended   bool
	err     error
}

// NewReader checks the file's header.
func NewReader(r io.Reader) (*Reader, error) {
	var head [fileHeader]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if n > 0 && bytes.HasPrefix([]byte(Magic), head[:min(n, len(Magic))]) && err == io.ErrUnexpectedEOF {
			return nil, ErrEndedEarly
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, n)
		}
		return nil, err
	}
	if string(head[:len(Magic)]) != Magic {
		return nil, fmt.Errorf("%w: it does not begin as a trace does", ErrMalformed)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v < 1 || v > fileVersion {
		return nil, fmt.Errorf("%w: version %d, want at most %d", ErrMalformed, v, fileVersion)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(blockMax))
	if err != nil {
		return nil, err
	}
	return &Reader{r: r, dec: dec, at: fileHeader}, nil
}

// Process is the number of the process of the last record.
func (t *Reader) Process() uint32 { return t.process }

// Began is about when the last record was made: when its block was begun.
func (t *Reader) Began() time.Time { return t.began }

// Next returns the next record. At the end it is io.EOF, or ErrEndedEarly when the trace was not finished; other errors
// name the block. What it returned is good for ever.
func (t *Reader) Next() (Record, error) {
	if t.err != nil {
		return nil, t.err
	}
	r, err := t.next()
	t.err = err
	return r, err
}

func (t *Reader) next() (Record, error) {
	for len(t.rest) == 0 {
		at := t.at
		if err := t.load(); err != nil {
			if err == io.EOF || errors.Is(err, ErrEndedEarly) {
				return nil, err
			}
			return nil, fmt.Errorf("block at byte %d: %w", at, err)
		}
	}
	n, err := Size(t.rest)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: a record is cut short", ErrMalformed)
	}
	if err != nil {
		return nil, fmt.Errorf("block before byte %d: %w", t.at, err)
	}
	r, err := Decode(t.rest[:n:n])
	if err != nil {
		return nil, fmt.Errorf("block before byte %d: %w", t.at, err)
	}
	t.rest = t.rest[n:]
	_, t.ended = r.(*End)
	return r, nil
}

// load reads the next block.
func (t *Reader) load() error {
	var head [blockHeader]byte
	switch _, err := io.ReadFull(t.r, head[:]); {
	case err == io.EOF && t.ended:
		return io.EOF
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return ErrEndedEarly
	case err != nil:
		return err
	}
	le := binary.LittleEndian
	stored, raw, flags := le.Uint32(head[4:]), le.Uint32(head[8:]), le.Uint32(head[12:])
	sum := crc32.Update(crc32.Checksum(head[:32], castagnoli), castagnoli, head[36:40])
	switch {
	case t.ended:
		return fmt.Errorf("%w: something follows its end", ErrMalformed)
	case le.Uint32(head[:]) != blockMagic || le.Uint32(head[32:]) != sum:
		return fmt.Errorf("%w: its header is damaged", ErrMalformed)
	case raw == 0 || raw > blockMax || stored > raw || flags&^blockZstd != 0 || flags == 0 && stored != raw:
		return fmt.Errorf("%w: %d bytes stored, %d unpacked, flags %#x", ErrMalformed, stored, raw, flags)
	}
	if cap(t.stored) < int(stored) {
		t.stored = make([]byte, stored)
	}
	b := t.stored[:stored]
	if _, err := io.ReadFull(t.r, b); err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrEndedEarly
	} else if err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != le.Uint32(head[36:]) {
		return fmt.Errorf("%w: its checksum is wrong", ErrMalformed)
	}
	plain := make([]byte, 0, raw)
	if flags&blockZstd == 0 {
		plain = append(plain, b...)
	} else {
		var err error
		if plain, err = t.dec.DecodeAll(b, plain); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if len(plain) != int(raw) {
		return fmt.Errorf("%w: %d bytes unpacked, not %d", ErrMalformed, len(plain), raw)
	}
	t.rest = plain
	t.process, t.began = le.Uint32(head[16:]), time.Unix(0, int64(le.Uint64(head[24:])))
	t.at += blockHeader + int64(stored)
	return nil
}

// Close lets go of what the reader needs beside the stream.
func (t *Reader) Close() { t.dec.Close() }
