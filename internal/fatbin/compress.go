package fatbin

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// decompressLZ4 decodes one LZ4 block of a known size (lz4_Block_format.md). Its
// output cannot exceed 255 bytes for each byte of input.
func decompressLZ4(src []byte, size int) ([]byte, error) {
	if size < 0 || size > MaxData || size/255 > len(src) {
		return nil, fmt.Errorf("lz4: %d bytes cannot hold %d bytes", len(src), size)
	}
	dst := make([]byte, 0, size)
	short := errors.New("lz4: block ends early")
	// length adds the bytes that follow a nibble of 15.
	length := func(n int) (int, error) {
		if n != 15 {
			return n, nil
		}
		for {
			if len(src) == 0 {
				return 0, short
			}
			b := src[0]
			src = src[1:]
			if n += int(b); n > size {
				return 0, fmt.Errorf("lz4: run of %d bytes exceeds %d bytes", n, size)
			}
			if b != 255 {
				return n, nil
			}
		}
	}
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		n, err := length(int(token >> 4))
		if err != nil {
			return nil, err
		}
		if n > len(src) {
			return nil, short
		}
		if n > size-len(dst) {
			return nil, fmt.Errorf("lz4: block holds more than %d bytes", size)
		}
		dst = append(dst, src[:n]...)
		src = src[n:]
		if len(src) == 0 {
			break // the last sequence has literals only
		}
		if len(src) < 2 {
			return nil, short
		}
		back := int(src[0]) | int(src[1])<<8
		src = src[2:]
		if n, err = length(int(token & 15)); err != nil {
			return nil, err
		}
		n += 4
		if back == 0 || back > len(dst) {
			return nil, fmt.Errorf("lz4: match %d bytes back at byte %d", back, len(dst))
		}
		if n > size-len(dst) {
			return nil, fmt.Errorf("lz4: block holds more than %d bytes", size)
		}
		// A match may overlap what it writes: copy what is there, again and again.
		from := len(dst) - back
		for n > 0 {
			k := min(n, len(dst)-from)
			dst = append(dst, dst[from:from+k]...)
			n -= k
		}
	}
	if len(dst) != size {
		return nil, fmt.Errorf("lz4: block holds %d bytes, not %d", len(dst), size)
	}
	return dst, nil
}

// maxWindow is the largest window of a zstd frame: that of its highest levels.
const maxWindow = 128 << 20

// decompressZstd decodes a zstd frame of a known size.
func decompressZstd(src []byte, size int) ([]byte, error) {
	if size < 0 || size > MaxData {
		return nil, fmt.Errorf("zstd: %d bytes exceed the limit", size)
	}
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if h.HasFCS && h.FrameContentSize != uint64(size) {
		return nil, fmt.Errorf("zstd: frame holds %d bytes, not %d", h.FrameContentSize, size)
	}
	// The limit also bounds the window, which may be larger than the data.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(uint64(max(size, maxWindow))))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	defer d.Close()
	dst, err := d.DecodeAll(src, nil)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if len(dst) != size {
		return nil, fmt.Errorf("zstd: frame holds %d bytes, not %d", len(dst), size)
	}
	return dst, nil
}
