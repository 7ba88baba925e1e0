package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
)

// Export writes the image as one tar stream: the manifest, the files in its order, then the chunks in the order of
// their names. The same image gives the same bytes. Every chunk is verified on the way; progress (may be nil) is told
// bytes.
func (im *Image) Export(ctx context.Context, w io.Writer, progress func(done, total uint64)) error {
	if err := im.export(ctx, w, progress); err != nil {
		return fmt.Errorf("export image %s: %w", im.path, err)
	}
	return nil
}

// steps returns what is told of each piece of an image that has gone through, in bytes. It fails when ctx has ended.
func steps(ctx context.Context, m *Manifest, chunks []digest.Digest,
	progress func(done, total uint64)) func(n uint64) error {
	total := uint64(len(chunks)) * digest.ChunkSize
	for _, f := range m.Files {
		total += uint64(f.Size)
	}
	var done uint64
	return func(n uint64) error {
		done += n
		if progress != nil {
			progress(done, total)
		}
		return ctx.Err()
	}
}

func (im *Image) export(ctx context.Context, w io.Writer, progress func(done, total uint64)) error {
	chunks := sortedChunks(im.Manifest)
	step := steps(ctx, im.Manifest, chunks, progress)
	if err := im.CheckFiles(ctx); err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	head := func(name string, size int64) error {
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600,
			ModTime: im.Manifest.Created.UTC().Truncate(time.Second), Format: tar.FormatPAX})
	}
	b, err := im.Manifest.Encode()
	if err != nil {
		return err
	}
	if err := head(ManifestName, int64(len(b))); err != nil {
		return err
	}
	if _, err := tw.Write(b); err != nil {
		return err
	}
	for _, f := range im.Manifest.Files {
		if err := head(f.Path, f.Size); err != nil {
			return err
		}
		in, _, err := im.plain(f.Path)
		if err != nil {
			return err
		}
		_, err = io.CopyN(tw, in, f.Size)
		in.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if err := step(uint64(f.Size)); err != nil {
			return err
		}
	}
	buf := make([]byte, digest.ChunkSize)
	for _, d := range chunks {
		if err := store.ReadChunk(im.chunks, d, buf); err != nil {
			return err
		}
		if digest.Sum(buf) != d {
			return fmt.Errorf("%s/%s: its content has changed", chunksName, store.ChunkPath(d))
		}
		if err := head(chunksName+"/"+store.ChunkPath(d), digest.ChunkSize); err != nil {
			return err
		}
		if _, err := tw.Write(buf); err != nil {
			return err
		}
		if err := step(digest.ChunkSize); err != nil {
			return err
		}
	}
	return tw.Close()
}

func sortedChunks(m *Manifest) []digest.Digest {
	chunks := m.Chunks()
	slices.SortFunc(chunks, func(a, b digest.Digest) int { return bytes.Compare(a[:], b[:]) })
	return chunks
}

// Import makes an image at dir from a stream that Export wrote. Every file and chunk is verified; there is no image
// before all of them are good. Chunks that the pool of dir's parent has are shared.
func Import(ctx context.Context, dir string, r io.Reader, opts CreateOptions,
	progress func(done, total uint64)) (*Manifest, error) {
	m, err := importTar(ctx, dir, r, opts, progress)
	if err != nil {
		return nil, fmt.Errorf("import image %s: %w", dir, err)
	}
	return m, nil
}

func importTar(ctx context.Context, dir string, r io.Reader, opts CreateOptions,
	progress func(done, total uint64)) (m *Manifest, err error) {
	w, err := Create(dir, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort())
		}
	}()
	tr := tar.NewReader(r)
	next := func(name string, size int64) error {
		h, err := tr.Next()
		if err == io.EOF {
			return fmt.Errorf("it ends before %s", name)
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || h.Name != name || size >= 0 && h.Size != size {
			return fmt.Errorf("%.200q of %d bytes where %s should be: no export of an image, or a damaged one", h.Name,
				h.Size, name)
		}
		// A sparse entry of a few bytes can stand for a file that no disk holds.
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return fmt.Errorf("%s is a sparse entry: no export of an image", name)
			}
		}
		return nil
	}
	if err := next(ManifestName, -1); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(tr, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if m, err = DecodeManifest(b); err != nil {
		return nil, err
	}
	chunks := sortedChunks(m)
	step := steps(ctx, m, chunks, progress)
	buf := make([]byte, digest.ChunkSize)
	for _, f := range m.Files {
		if err := next(f.Path, f.Size); err != nil {
			return nil, err
		}
		if err := w.importFile(f, tr, buf); err != nil {
			return nil, err
		}
		if err := step(uint64(f.Size)); err != nil {
			return nil, err
		}
	}
	for _, d := range chunks {
		name := chunksName + "/" + store.ChunkPath(d)
		if err := next(name, digest.ChunkSize); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(tr, buf); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if digest.Sum(buf) != d {
			return nil, fmt.Errorf("%s is damaged", name)
		}
		if !w.Have(d) {
			if err := w.PutChunk(d, buf); err != nil {
				return nil, err
			}
		}
		if err := step(digest.ChunkSize); err != nil {
			return nil, err
		}
	}
	if h, err := tr.Next(); err == nil {
		return nil, fmt.Errorf("%.200q follows the image", h.Name)
	} else if err != io.EOF {
		return nil, err
	}
	w.libs = m.Libraries
	files := m.Files
	if err := w.Commit(m); err != nil {
		return nil, err
	}
	m.Files = files
	return m, nil
}

func (w *Writer) importFile(f File, r io.Reader, buf []byte) error {
	path := filepath.Join(w.partial.Path, filepath.FromSlash(f.Path))
	dir, _, _ := strings.Cut(f.Path, "/")
	if err := os.MkdirAll(filepath.Join(w.partial.Path, dir), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, r, f.Size)
	if err == nil {
		var sum string
		if sum, err = sumFile(out, f.Size, buf); err == nil && sum != f.Sum {
			err = errors.New("damaged")
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Path, explainFull(err, w.Dir()))
	}
	return nil
}
