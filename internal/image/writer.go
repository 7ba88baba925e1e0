package image

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
)

// Names in an image.
const (
	ManifestName = "manifest.json"
	chunksName   = "chunks"
	criuName     = "criu"
	libsName     = "libs"
)

// CreateOptions configures a Writer.
type CreateOptions struct {
	Logger  *slog.Logger
	Private bool // share no chunks with other images: for one that is soon removed again
}

// Writer makes an image. PutChunk and Have may be called from any number of goroutines; the rest from one.
type Writer struct {
	partial *store.Partial
	pool    *store.Pool
	chunks  *os.File // the directory
	log     *slog.Logger
	libs    []Library

	subdirs [256]sync.Once
	buffers sync.Pool

	mu     sync.Mutex
	chunk  map[digest.Digest]chunkState
	err    error // the first failed write: then there will be no image
	closed bool

	written, reused atomic.Int64 // chunks
	sum             string       // of the manifest, after Commit
}

type chunkState byte

const (
	chunkBusy chunkState = iota + 1
	chunkDone
)

// Create begins an image that will be at dir, which must be absent or an empty directory.
func Create(dir string, opts CreateOptions) (*Writer, error) {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p, err := store.NewPartial(dir)
	if err != nil {
		return nil, fmt.Errorf("create image: %w", err)
	}
	w := &Writer{partial: p, log: log, chunk: map[digest.Digest]chunkState{}}
	w.buffers.New = func() any { b := make([]byte, digest.ChunkSize); return &b }
	fail := func(err error) (*Writer, error) {
		return nil, errors.Join(fmt.Errorf("create image %s: %w", dir, explainFull(err, dir)), w.Abort())
	}
	if err := os.Mkdir(filepath.Join(p.Path, chunksName), 0o700); err != nil {
		return fail(err)
	}
	if w.chunks, err = os.Open(filepath.Join(p.Path, chunksName)); err != nil {
		return fail(err)
	}
	if !opts.Private {
		if w.pool, err = store.OpenPool(p.Parent(), true); errors.Is(err, store.ErrForeignPool) {
			log.Warn("the image shares no chunks with others", "dir", dir, "why", err)
		} else if err != nil {
			return fail(err)
		}
	}
	return w, nil
}

// Dir returns where the image will be.
func (w *Writer) Dir() string { return w.partial.Target() }

// claim says whether the caller has to bring a chunk in.
func (w *Writer) claim(d digest.Digest) (mine bool, state chunkState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.chunk[d]; s != 0 {
		return false, s
	}
	w.chunk[d] = chunkBusy
	return true, 0
}

func (w *Writer) settle(d digest.Digest, have bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have {
		w.chunk[d] = chunkDone
	} else {
		delete(w.chunk, d)
	}
	if err != nil && w.err == nil {
		w.err = err
	}
}

func (w *Writer) subdir(d digest.Digest) {
	// An error shows up as that of the write.
	w.subdirs[d[0]].Do(func() { unix.Mkdirat(int(w.chunks.Fd()), d.String()[:2], 0o700) })
}

// Have reports whether the image has a chunk already, taking it from the pool if it is there. What is taken was read
// and compared with its digest.
func (w *Writer) Have(d digest.Digest) bool {
	mine, state := w.claim(d)
	if !mine {
		return state == chunkDone
	}
	w.subdir(d)
	buf := w.buffers.Get().(*[]byte)
	ok, err := w.pool.Take(d, w.chunks, *buf)
	w.buffers.Put(buf)
	if err != nil {
		w.log.Warn("chunk of the pool not used", "err", err)
	}
	if ok {
		w.reused.Add(1)
	}
	w.settle(d, ok, nil)
	return ok
}

// PutChunk writes a chunk. data is digest.ChunkSize bytes with digest d (which is believed here, and checked by every
// reader).
func (w *Writer) PutChunk(d digest.Digest, data []byte) error {
	if len(data) != digest.ChunkSize {
		return fmt.Errorf("chunk %v has %d bytes", d, len(data))
	}
	if d == digest.ZeroDigest {
		return nil
	}
	mine, _ := w.claim(d)
	if !mine {
		return nil // there, or another goroutine is at it: if that fails so does Commit
	}
	w.subdir(d)
	fresh, err := store.WriteChunk(w.chunks, d, data)
	if err != nil {
		err = explainFull(err, w.Dir())
	} else if fresh {
		w.pool.Give(d, w.chunks)
		w.written.Add(1)
	}
	w.settle(d, err == nil, err)
	return err
}

// Sum is that of the image that Commit has made: Image.Sum of who opens it.
func (w *Writer) Sum() string { return w.sum }

// Written returns how many chunks were written and how many were found in the pool.
func (w *Writer) Written() (written, reused int) { return int(w.written.Load()), int(w.reused.Load()) }

// CRIUDir returns the directory for CRIU's files, which it makes: empty.
func (w *Writer) CRIUDir() string {
	p := filepath.Join(w.partial.Path, criuName)
	if err := os.Mkdir(p, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		w.settle(digest.ZeroDigest, true, err)
	}
	return p
}

// AddLibrary copies a library that the program has mapped at path into the image. Libraries that are the same file are
// taken once.
func (w *Writer) AddLibrary(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if !validLibrary(abs) {
		return fmt.Errorf("library %s: its name is not that of a library", abs)
	}
	for _, l := range w.libs {
		if l.Path == abs {
			return nil
		}
	}
	in, err := os.Open(abs)
	if err != nil {
		return err
	}
	defer in.Close()
	dir := filepath.Join(w.partial.Path, libsName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	name := libsName + "/" + strconv.Itoa(len(w.libs)) + "-" + filepath.Base(abs)
	out, err := os.OpenFile(filepath.Join(w.partial.Path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("library %s: %w", abs, explainFull(err, w.Dir()))
	}
	w.libs = append(w.libs, Library{Path: abs, File: name})
	return nil
}

// Commit completes the image. It fills in what the manifest says of the files (Version, Nonce, Files, Libraries),
// checks that every chunk of it is there, makes all of it durable and puts it in place. After an error only Abort is of
// use.
func (w *Writer) Commit(m *Manifest) error {
	w.mu.Lock()
	err, closed := w.err, w.closed
	w.mu.Unlock()
	if closed {
		return errors.New("commit image: it is closed")
	}
	if err == nil {
		err = w.commit(m)
	}
	if err != nil {
		return fmt.Errorf("commit image %s: %w", w.Dir(), explainFull(err, w.Dir()))
	}
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.chunks.Close()
	w.pool.Close()
	return nil
}

func (w *Writer) commit(m *Manifest) error {
	m.Version, m.Libraries = m.version(), w.libs
	if m.Nonce == "" {
		var r [16]byte
		rand.Read(r[:])
		m.Nonce = hex.EncodeToString(r[:])
	}
	want := map[digest.Digest]bool{}
	w.mu.Lock()
	var missing []digest.Digest
	for _, d := range m.Chunks() {
		want[d] = true
		if w.chunk[d] != chunkDone {
			missing = append(missing, d)
		}
	}
	var extra []digest.Digest // written while the program ran and overtaken since
	for d := range w.chunk {
		if !want[d] && d != digest.ZeroDigest {
			extra = append(extra, d)
		}
	}
	w.mu.Unlock()
	if len(missing) > 0 {
		return fmt.Errorf("%d chunks of the manifest were not written, the first %v", len(missing), missing[0])
	}
	for _, d := range extra {
		if err := unix.Unlinkat(int(w.chunks.Fd()), store.ChunkPath(d), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	w.pool.Forget(extra)
	files, err := w.sumFiles()
	if err != nil {
		return err
	}
	m.Files = files
	b, sum, err := m.encode()
	if err != nil {
		return err
	}
	w.sum = sum
	if err := w.partial.Sync(); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(w.partial.Path, ManifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := w.partial.File.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return w.partial.Finish()
}

// sumFiles describes the files in criu and libs.
func (w *Writer) sumFiles() ([]File, error) {
	var files []File
	for _, dir := range []string{criuName, libsName} {
		ents, err := os.ReadDir(filepath.Join(w.partial.Path, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range ents {
			p := dir + "/" + e.Name()
			if !e.Type().IsRegular() || !validPath(p) {
				return nil, fmt.Errorf("%s is no plain file", p)
			}
			files = append(files, File{Path: p})
		}
	}
	err := parallel(len(files), func(i int, buf []byte) error {
		f, err := os.Open(filepath.Join(w.partial.Path, files[i].Path))
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if st.Mode().Perm() != 0o600 {
			if err := f.Chmod(0o600); err != nil {
				return err
			}
		}
		files[i].Size = st.Size()
		files[i].Sum, err = sumFile(f, st.Size(), buf)
		if err != nil {
			return fmt.Errorf("%s: %w", files[i].Path, err)
		}
		return nil
	})
	slices.SortFunc(files, func(a, b File) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	return files, err
}

// Abort gives the image up and removes what was written. After Commit it does nothing.
func (w *Writer) Abort() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	var all []digest.Digest
	for d := range w.chunk {
		all = append(all, d)
	}
	w.mu.Unlock()
	if w.chunks != nil {
		w.chunks.Close()
	}
	err := w.partial.Discard()
	w.pool.Forget(all)
	w.pool.Close()
	return err
}

// parallel calls f for 0 … n-1 from as many goroutines as there are processors, each with a buffer of
// digest.ChunkSize bytes, until one fails.
func parallel(n int, f func(i int, buf []byte) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	workers := min(n, runtime.GOMAXPROCS(0))
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			buf := make([]byte, digest.ChunkSize)
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[k] = f(i, buf); errs[k] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// explainFull says more where a disk is full.
func explainFull(err error, dir string) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	var st unix.Statfs_t
	for p := dir; unix.Statfs(p, &st) != nil; {
		up := filepath.Dir(p)
		if up == p {
			return err
		}
		p = up
	}
	return fmt.Errorf("the disk of %s is full (%d MiB free now): free some, or give a directory elsewhere: %w",
		dir, int64(st.Bavail)*st.Bsize>>20, err)
}
