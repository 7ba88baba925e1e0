package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/internal/owned"
	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
)

// Image is a complete image. Its methods may be called from any number of goroutines.
type Image struct {
	Manifest *Manifest
	path     string
	owner    uint32
	root     *os.Root
	chunks   *os.File
	criu     *os.File // nil: it has none
	sum      string
}

// ErrForeign is wrapped by the refusal of an image that belongs to another user.
var ErrForeign = errors.New("it belongs to another user")

// Open opens the image at dir, which must belong to this user, and checks its manifest, and nothing else: see
// CheckFiles and Verify. An image is code: what is in it runs as who restores it.
func Open(dir string) (*Image, error) {
	return named(dir, false)
}

// OpenForeign is Open of an image that may belong to another user: one that is only looked at, or one that the user
// vouches for. All of it must belong to one user, and nobody else may write it.
func OpenForeign(dir string) (*Image, error) {
	return named(dir, true)
}

func named(dir string, foreign bool) (*Image, error) {
	im, err := open(dir, foreign)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", dir, err)
	}
	return im, nil
}

func open(dir string, foreign bool) (_ *Image, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no such directory: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, errors.New("no directory")
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	im := &Image{path: abs, root: root}
	defer func() {
		if err != nil {
			im.Close()
		}
	}()
	// Everything from here on is reached from this one directory, whatever its path leads to meanwhile.
	if st, err = root.Stat("."); err != nil {
		return nil, err
	}
	im.owner = st.Sys().(*syscall.Stat_t).Uid
	if uid := os.Geteuid(); !foreign && int(im.owner) != uid {
		return nil, fmt.Errorf("%w: to user %d, not to %d", ErrForeign, im.owner, uid)
	}
	if err := im.checkOwner(filepath.Base(abs), st); err != nil {
		return nil, err
	}
	b, err := im.readManifest()
	if err != nil {
		return nil, err
	}
	if im.Manifest, im.sum, err = decodeManifest(b); err != nil {
		return nil, err
	}
	if im.chunks, err = im.directory(chunksName); err != nil {
		return nil, err
	}
	if im.criu, err = im.directory(criuName); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return im, err
}

// directory opens a directory of the image.
func (im *Image) directory(name string) (*os.File, error) {
	f, err := im.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = im.checkOwner(name, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkOwner refuses what another user than the image's could have made, or could change under our hands.
func (im *Image) checkOwner(name string, st fs.FileInfo) error {
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != im.owner {
		return fmt.Errorf("%s belongs to user %d, the image to %d", name, uid, im.owner)
	}
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %v): chmod go-w it if you trust its content", name,
			st.Mode().Perm())
	}
	return nil
}

// plain opens a file of the image that must be a regular file, not reached through a symbolic link.
func (im *Image) plain(name string) (*os.File, fs.FileInfo, error) {
	if st, err := im.root.Lstat(name); err != nil {
		return nil, nil, err
	} else if !st.Mode().IsRegular() {
		return nil, nil, errors.New("no regular file")
	}
	f, err := im.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	if err == nil {
		err = im.checkOwner(name, st)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func (im *Image) readManifest() ([]byte, error) {
	f, st, err := im.plain(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has no %s, so it is no image (or an incomplete one): %w", ManifestName,
			fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	defer f.Close()
	if st.Size() > maxManifest {
		return nil, fmt.Errorf("%s of %d bytes is too large", ManifestName, st.Size())
	}
	return io.ReadAll(io.LimitReader(f, maxManifest+1))
}

// Close closes it.
func (im *Image) Close() error {
	var err error
	for _, f := range []*os.File{im.chunks, im.criu} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return errors.Join(err, im.root.Close())
}

// Sum names the image: the sum of its manifest, which names all that is in it.
func (im *Image) Sum() string { return im.sum }

// Dir returns the directory of the image.
func (im *Image) Dir() string { return im.path }

// CRIUDir returns a path of the directory with CRIU's files, for this process and its children while the image is open.
// It is of the directory that was opened, whatever is at its old path by now.
func (im *Image) CRIUDir() string {
	if im.criu == nil {
		return filepath.Join(im.path, criuName) // there is none
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), im.criu.Fd())
}

// ReadChunk reads a chunk into buf, which has digest.ChunkSize bytes. It does not verify it: the reader does, where it
// can do so fastest.
func (im *Image) ReadChunk(d digest.Digest, buf []byte) error {
	if d == digest.ZeroDigest {
		clear(buf)
		return nil
	}
	if err := store.ReadChunk(im.chunks, d, buf); err != nil {
		return fmt.Errorf("image %s: %w", im.path, err)
	}
	return nil
}

// Problem is one thing that is wrong with an image.
type Problem struct {
	Path string `json:"path"` // in the image
	What string `json:"what"`
}

func (p Problem) String() string { return p.Path + ": " + p.What }

// problems collects from several goroutines.
type problems struct {
	mu   sync.Mutex
	list []Problem
}

func (ps *problems) add(path, format string, args ...any) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.list = append(ps.list, Problem{path, fmt.Sprintf(format, args...)})
}

func (ps *problems) sorted() []Problem {
	slices.SortFunc(ps.list, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return ps.list
}

// Verify reads the whole image and returns everything that is wrong with it. progress (may be nil) is told bytes, from
// one goroutine at a time. The error is one of reading on, such as the end of ctx.
func (im *Image) Verify(ctx context.Context, progress func(done, total uint64)) ([]Problem, error) {
	total := uint64(len(im.Manifest.Chunks())) * digest.ChunkSize
	var fileBytes uint64
	for _, f := range im.Manifest.Files {
		fileBytes += uint64(f.Size)
	}
	total += fileBytes
	ps, err := im.verifyFiles(ctx)
	if err != nil {
		return nil, err
	}
	if progress != nil {
		progress(fileBytes, total)
	}
	more, err := im.VerifyChunks(ctx, func(done, _ uint64) {
		if progress != nil {
			progress(fileBytes+done, total)
		}
	})
	return append(ps, more...), err
}

// CheckFiles verifies the files of CRIU and the libraries, which is quick, and returns an error that names the bad
// ones.
func (im *Image) CheckFiles(ctx context.Context) error {
	ps, err := im.verifyFiles(ctx)
	if err != nil {
		return err
	}
	if len(ps) == 0 {
		return nil
	}
	var s []string
	for _, p := range ps {
		s = append(s, p.String())
	}
	if len(s) > 8 {
		s = append(s[:8], fmt.Sprintf("and %d more", len(s)-8))
	}
	return fmt.Errorf("image %s is damaged: %s", im.path, strings.Join(s, "; "))
}

func (im *Image) verifyFiles(ctx context.Context) ([]Problem, error) {
	var ps problems
	files := im.Manifest.Files
	err := parallel(len(files), func(i int, buf []byte) error {
		want := files[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		f, st, err := im.plain(want.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			ps.add(want.Path, "missing")
			return nil
		case err != nil:
			ps.add(want.Path, "%v", err)
			return nil
		}
		defer f.Close()
		if st.Size() != want.Size {
			ps.add(want.Path, "%d bytes instead of %d", st.Size(), want.Size)
			return nil
		}
		if sum, err := sumFile(f, want.Size, buf); err != nil {
			ps.add(want.Path, "%v", err)
		} else if sum != want.Sum {
			ps.add(want.Path, "its content has changed")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// What CRIU would find besides could mislead it.
	known := map[string]bool{}
	for _, f := range files {
		known[f.Path] = true
	}
	for _, dir := range []string{criuName, libsName} {
		d, err := im.root.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			ps.add(dir, "%v", err)
			continue
		}
		names, err := d.Readdirnames(-1)
		d.Close()
		if err != nil {
			ps.add(dir, "%v", err)
		}
		for _, n := range names {
			if p := dir + "/" + n; !known[p] {
				ps.add(p, "does not belong to the image")
			}
		}
	}
	return ps.sorted(), nil
}

// VerifyChunks reads every chunk and compares it with its digest. progress (may be nil) is told bytes, from one
// goroutine at a time.
func (im *Image) VerifyChunks(ctx context.Context, progress func(done, total uint64)) ([]Problem, error) {
	var ps problems
	chunks := im.Manifest.Chunks()
	var mu sync.Mutex
	done := uint64(0)
	err := parallel(len(chunks), func(i int, buf []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		d := chunks[i]
		path := chunksName + "/" + store.ChunkPath(d)
		if err := store.ReadChunk(im.chunks, d, buf); errors.Is(err, fs.ErrNotExist) {
			ps.add(path, "missing")
		} else if err != nil {
			ps.add(path, "%v", err)
		} else if digest.Sum(buf) != d {
			ps.add(path, "its content has changed")
		}
		if progress != nil {
			mu.Lock()
			done += digest.ChunkSize
			progress(done, uint64(len(chunks))*digest.ChunkSize)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ps.sorted(), nil
}

// PlaceLibraries puts the libraries of the image where the processes have them mapped, if they are not there. It
// refuses to replace a file that differs.
func (im *Image) PlaceLibraries() error {
	sums := map[string]File{}
	for _, f := range im.Manifest.Files {
		sums[f.Path] = f
	}
	buf := make([]byte, digest.ChunkSize)
	for _, l := range im.Manifest.Libraries {
		// Otherwise the user vouches for the image, and its libraries lie where its user has them.
		if im.owner == uint32(os.Geteuid()) {
			if err := ownPlace(l.Path); err != nil {
				return fmt.Errorf("image %s: library %s: %w", im.path, l.Path, err)
			}
		}
		if err := im.placeLibrary(l, sums[l.File], buf); err != nil {
			return fmt.Errorf("image %s: library %s: %w", im.path, l.Path, err)
		}
	}
	return nil
}

// ownPlace makes the directory of a library, and refuses one in which others could swap it before it is mapped.
func ownPlace(path string) error {
	d, err := owned.Make(filepath.Dir(path), 0o755)
	if err != nil {
		return err
	}
	d.Close()
	if err := owned.Check(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (im *Image) placeLibrary(l Library, want File, buf []byte) error {
	if f, err := os.Open(l.Path); err == nil {
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if st.Size() == want.Size {
			if sum, err := sumFile(f, want.Size, buf); err != nil {
				return err
			} else if sum == want.Sum {
				return nil
			}
		}
		return errors.New("there is another one in its place: move it away")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, _, err := im.plain(l.File)
	if err != nil {
		return err
	}
	defer in.Close()
	dir := filepath.Dir(l.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(dir, "."+filepath.Base(l.Path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, in)
	var sum string
	if err == nil {
		sum, err = sumFile(out, want.Size, buf)
	}
	if err == nil && sum != want.Sum {
		err = fmt.Errorf("%s has changed", l.File)
	}
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), l.Path)
}

// Usage is what an image takes on disk.
type Usage struct {
	Bytes       uint64 `json:"bytes"`        // device memory that it stands for
	Chunks      int    `json:"chunks"`       // of 2 MiB, of that memory
	ZeroChunks  int    `json:"zero_chunks"`  // of them, all zero: not stored
	ChunkFiles  int    `json:"chunk_files"`  // distinct others
	SharedFiles int    `json:"shared_files"` // of them, in other images too
	ChunkBytes  uint64 `json:"chunk_bytes"`  // in chunk files
	FileBytes   uint64 `json:"file_bytes"`   // in CRIU's files and libraries
	OwnBytes    uint64 `json:"own_bytes"`    // what removing the image would free
}

// Usage measures it.
func (im *Image) Usage() Usage {
	u := Usage{Bytes: im.Manifest.Bytes()}
	for _, r := range im.Manifest.Regions {
		u.Chunks += len(r.Digests)
		for _, d := range r.Digests {
			if d == digest.ZeroDigest {
				u.ZeroChunks++
			}
		}
	}
	pool, _ := os.Stat(filepath.Join(filepath.Dir(im.path), store.PoolName))
	for _, d := range im.Manifest.Chunks() {
		u.ChunkFiles++
		u.ChunkBytes += digest.ChunkSize
		var st unix.Stat_t
		if err := unix.Fstatat(int(im.chunks.Fd()), store.ChunkPath(d), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue
		}
		links := uint64(st.Nlink)
		if pool != nil && links > 1 {
			links-- // the pool's
		}
		if links > 1 {
			u.SharedFiles++
		} else {
			u.OwnBytes += digest.ChunkSize
		}
	}
	for _, f := range im.Manifest.Files {
		u.FileBytes += uint64(f.Size)
	}
	u.OwnBytes += u.FileBytes
	return u
}

// Entry is one directory of a list of images.
type Entry struct {
	Dir      string
	Manifest *Manifest // nil when Err is not
	Err      error
}

// List returns the images in a directory, oldest first, and what looks like one but cannot be read. Whose they are does
// not matter. Their manifests come without what is large: digests, order and files.
func List(dir string) ([]Entry, error) {
	ents, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, e := range ents {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(filepath.Join(path, ManifestName)); err != nil {
			continue
		}
		im, err := OpenForeign(path)
		if err != nil {
			out = append(out, Entry{Dir: path, Err: err})
			continue
		}
		m := im.Manifest
		for i := range m.Regions {
			m.Regions[i].Digests = nil
		}
		m.Order, m.Files = nil, nil
		out = append(out, Entry{Dir: path, Manifest: m})
		im.Close()
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if a.Manifest == nil || b.Manifest == nil {
			return strings.Compare(a.Dir, b.Dir)
		}
		return a.Manifest.Created.Compare(b.Manifest.Created)
	})
	return out, nil
}

// Remove removes an image, and the chunks that no other has. It refuses a directory that is not an image; a damaged
// one it removes.
func Remove(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, ManifestName)); err != nil {
		return fmt.Errorf("remove image %s: it has no %s: %w", dir, ManifestName, err)
	}
	var chunks []digest.Digest
	sub, _ := filepath.Glob(filepath.Join(dir, chunksName, "??", "*"))
	for _, p := range sub {
		if d, err := digest.Parse(filepath.Base(p)); err == nil {
			chunks = append(chunks, d)
		}
	}
	p, err := store.Hide(dir)
	if err != nil {
		return fmt.Errorf("remove image %s: %w", dir, err)
	}
	if err := p.Discard(); err != nil {
		return fmt.Errorf("remove image %s: %w", dir, err)
	}
	pool, err := store.OpenPool(p.Parent(), false)
	if err != nil || pool == nil {
		return nil // no pool of ours: nothing to take out
	}
	defer pool.Close()
	pool.Forget(chunks)
	return nil
}

// RegionDiff compares one region of two images.
type RegionDiff struct {
	PID     int    `json:"pid"`
	VA      uint64 `json:"va"`
	Size    uint64 `json:"size"`
	In      string `json:"in"`      // "both", "first", "second"
	Changed int    `json:"changed"` // chunks that differ; all of them when it is in one only
	Chunks  []int  `json:"chunks,omitempty"`
}

// Diff compares the device memory of two images region by region: of the same program, at the same address, of the same
// size. Equal regions are left out.
func Diff(a, b *Manifest) []RegionDiff {
	type key struct {
		token    [16]byte
		va, size uint64
	}
	index := func(m *Manifest) (map[key]Region, []key) {
		out := map[key]Region{}
		var order []key
		for _, r := range m.Regions {
			k := key{m.Programs[r.Program].Token, r.VA, r.Size}
			if _, dup := out[k]; !dup {
				order = append(order, k)
			}
			out[k] = r
		}
		return out, order
	}
	ra, orderA := index(a)
	rb, orderB := index(b)
	var out []RegionDiff
	for _, k := range orderA {
		r := ra[k]
		d := RegionDiff{PID: a.Programs[r.Program].PID, VA: r.VA, Size: r.Size, In: "both"}
		other, ok := rb[k]
		if !ok {
			d.In, d.Changed = "first", len(r.Digests)
			out = append(out, d)
			continue
		}
		for i := range r.Digests {
			if r.Digests[i] != other.Digests[i] {
				d.Chunks = append(d.Chunks, i)
			}
		}
		if d.Changed = len(d.Chunks); d.Changed > 0 {
			out = append(out, d)
		}
	}
	for _, k := range orderB {
		if _, ok := ra[k]; !ok {
			r := rb[k]
			out = append(out, RegionDiff{PID: b.Programs[r.Program].PID, VA: r.VA, Size: r.Size, In: "second",
				Changed: len(r.Digests)})
		}
	}
	return out
}
