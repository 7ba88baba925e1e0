package image

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"holdfast/internal/snapshot/digest"
)

// sumPrefix keeps sums of files apart from other uses of SHA-256.
const sumPrefix = "holdfast file 1\x00"

// sumFile returns the sum of the first size bytes of a file: SHA-256 over sumPrefix, the size as 64-bit little endian
// and the chunk digest of every 2 MiB, the last one filled up with zeros. So it runs at memory speed; like the chunk
// digest it finds damage, it does not withstand an attacker. buf is scratch, digest.ChunkSize bytes.
func sumFile(f io.ReaderAt, size int64, buf []byte) (string, error) {
	h := sha256.New()
	h.Write([]byte(sumPrefix))
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], uint64(size))
	h.Write(le[:])
	for off := int64(0); off < size; off += digest.ChunkSize {
		n := min(size-off, digest.ChunkSize)
		if k, err := f.ReadAt(buf[:n], off); int64(k) != n {
			if err == io.EOF || err == nil {
				err = fmt.Errorf("%d bytes instead of %d", off+int64(k), size)
			}
			return "", err
		}
		clear(buf[n:])
		d := digest.Sum(buf)
		h.Write(d[:])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
