// Package store is where images live: a directory of images that share their chunks.
//
//	PARENT/NAME                     an image, complete
//	PARENT/.NAME.partial-XXXXXXXX   one that is being written, or whose writer died
//	PARENT/.holdfast-chunks/ab/…    the pool: one name for every chunk, by its digest
//
// A chunk in the pool and in images is one file with several hard links, so that an image is complete in itself (it can
// be moved or removed by any tool) and the pool needs no counters: a pool file with one link belongs to no image.
//
// Three rules make it safe for any number of writers and collectors at once, and against being killed at any point:
// a chunk gets its pool name only after it has a name in a partial directory, so a file in the pool with one link is
// garbage and no writer is about to need that very link; who reuses a chunk links it first and verifies it then; and a
// partial directory is locked (flock) for as long as its writer lives. Whoever loses a race loses sharing, never data.
//
// It imports package digest and no other of holdfast.
package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/internal/snapshot/digest"
)

// PoolName is the directory of the pool, beside the images.
const PoolName = ".holdfast-chunks"

const partialMark = ".partial-"

// Partial is the directory of an image that is being written. Its lock is held until Finish or Discard, or the death
// of the process.
type Partial struct {
	Path   string
	File   *os.File // the directory
	target string
}

// NewPartial makes the partial directory of an image that is to be at target, which must be absent or an empty
// directory.
func NewPartial(target string) (*Partial, error) {
	abs, err := filepath.Abs(target)
	if err != nil {
		return nil, err
	}
	parent, name := filepath.Dir(abs), filepath.Base(abs)
	if strings.HasPrefix(name, PoolName) || name == "/" || name == "." {
		return nil, fmt.Errorf("%s cannot be an image", abs)
	}
	if err := checkTarget(abs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	for {
		var r [8]byte
		rand.Read(r[:])
		p := filepath.Join(parent, "."+name+partialMark+hex.EncodeToString(r[:]))
		if err := os.Mkdir(p, 0o700); err != nil {
			return nil, err
		}
		f, err := os.Open(p)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // a collector removed it before we had the lock
			}
			return nil, err
		}
		if lock(f) && same(f, p) {
			return &Partial{Path: p, File: f, target: abs}, nil
		}
		f.Close()
	}
}

// checkTarget refuses what an image cannot be renamed to.
func checkTarget(abs string) error {
	st, err := os.Lstat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s exists and is no directory", abs)
	}
	ents, err := os.ReadDir(abs)
	if err != nil {
		return err
	}
	if len(ents) > 0 {
		return fmt.Errorf("%s is not empty: an image needs a directory of its own, absent or empty", abs)
	}
	up, err := os.Stat(filepath.Dir(abs))
	if err != nil {
		return err
	}
	if a, b := st.Sys().(*syscall.Stat_t), up.Sys().(*syscall.Stat_t); a.Dev != b.Dev {
		return fmt.Errorf("%s is a mount point: give a directory inside it", abs)
	}
	return nil
}

// Target returns where the image will be.
func (p *Partial) Target() string { return p.target }

// Parent returns the directory that holds the images and the pool.
func (p *Partial) Parent() string { return filepath.Dir(p.target) }

// Sync makes everything that was written to the file system durable.
func (p *Partial) Sync() error {
	// One syncfs for tens of thousands of files; it reports failed writes since Linux 5.8.
	if _, _, e := unix.Syscall(unix.SYS_SYNCFS, p.File.Fd(), 0, 0); e != 0 {
		return fmt.Errorf("sync %s: %w", p.Path, e)
	}
	return nil
}

// Finish puts the directory in its place, durably and at once.
func (p *Partial) Finish() error {
	// Not os.Rename: that refuses an empty directory, too.
	if err := unix.Rename(p.Path, p.target); err != nil {
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s is no longer empty: somebody else has put something there: %w", p.target, err)
		}
		return fmt.Errorf("put the image in place at %s: %w", p.target, err)
	}
	defer p.File.Close()
	return syncDir(p.Parent())
}

// Discard removes it.
func (p *Partial) Discard() error {
	defer p.File.Close()
	return os.RemoveAll(p.Path)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// lock takes the writer's lock if nobody has it.
func lock(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// same says whether path still leads to f.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Hide takes an image out of sight at once, so that it can be removed at leisure: until then it is a partial directory
// of its remover.
func Hide(dir string) (*Partial, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, err
	}
	var r [8]byte
	rand.Read(r[:])
	p := &Partial{Path: filepath.Join(filepath.Dir(abs), "."+filepath.Base(abs)+partialMark+hex.EncodeToString(r[:])),
		File: f, target: abs}
	if !lock(f) {
		f.Close()
		return nil, fmt.Errorf("%s is in use", abs)
	}
	if err := os.Rename(abs, p.Path); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// Pool is the chunk pool of one directory of images. A nil Pool shares nothing.
type Pool struct {
	dir  *os.File
	path string
	made [256]sync.Once
}

// ErrForeignPool says that the pool belongs to another user. Images can be written without it.
var ErrForeignPool = errors.New("the chunk pool belongs to another user")

// OpenPool opens the pool of a directory of images. Unless create, the pool may be absent: then it returns nil.
func OpenPool(parent string, create bool) (*Pool, error) {
	path := filepath.Join(parent, PoolName)
	if create {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) && !create {
			return nil, nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := os.NewFile(uintptr(fd), path)
	st, err := d.Stat()
	if err != nil {
		d.Close()
		return nil, err
	}
	if sys := st.Sys().(*syscall.Stat_t); int(sys.Uid) != os.Geteuid() || sys.Mode&0o022 != 0 {
		d.Close()
		return nil, fmt.Errorf("%s: %w", path, ErrForeignPool)
	}
	return &Pool{dir: d, path: path}, nil
}

// Close closes it.
func (p *Pool) Close() error {
	if p == nil {
		return nil
	}
	return p.dir.Close()
}

// ChunkPath is the name of a chunk, relative to a pool or to the directory chunks of an image.
func ChunkPath(d digest.Digest) string {
	h := d.String()
	return h[:2] + "/" + h
}

// Take links a chunk of the pool into an image: to the file name d's ChunkPath below the directory chunks, whose
// subdirectory must exist. It reports false when the pool does not have the chunk, or not intact: then a new one has to
// be written, and the broken one is out of the pool. buf is scratch, digest.ChunkSize bytes.
func (p *Pool) Take(d digest.Digest, chunks *os.File, buf []byte) (bool, error) {
	if p == nil {
		return false, nil
	}
	name := ChunkPath(d)
	err := unix.Linkat(int(p.dir.Fd()), name, int(chunks.Fd()), name, 0)
	switch {
	case err == nil:
	case errors.Is(err, unix.EEXIST):
		return true, nil // the image has it already
	case errors.Is(err, unix.ENOENT), unsharable(err):
		return false, nil
	default:
		return false, fmt.Errorf("link chunk %v: %w", d, err)
	}
	if err := ReadChunk(chunks, d, buf); err == nil && digest.Sum(buf) == d {
		return true, nil
	}
	p.drop(name)
	if err := unix.Unlinkat(int(chunks.Fd()), name, 0); err != nil {
		return false, fmt.Errorf("unlink broken chunk %v: %w", d, err)
	}
	return false, nil
}

// unsharable says that a file system or its limits do not let files be linked: then images do not share.
func unsharable(err error) bool {
	for _, e := range []error{unix.EMLINK, unix.EPERM, unix.EOPNOTSUPP, unix.EXDEV, unix.ENOSYS, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Give puts the finished chunk of an image into the pool. That it cannot is no error: it is then just not shared.
func (p *Pool) Give(d digest.Digest, chunks *os.File) {
	if p == nil {
		return
	}
	name := ChunkPath(d)
	p.made[d[0]].Do(func() { unix.Mkdirat(int(p.dir.Fd()), name[:2], 0o700) })
	unix.Linkat(int(chunks.Fd()), name, int(p.dir.Fd()), name, 0)
}

func (p *Pool) drop(name string) { unix.Unlinkat(int(p.dir.Fd()), name, 0) }

// Forget takes chunks out of the pool that no image has any more.
func (p *Pool) Forget(ds []digest.Digest) (bytes uint64) {
	if p == nil {
		return 0
	}
	for _, d := range ds {
		if p.dropUnused(ChunkPath(d)) {
			bytes += digest.ChunkSize
		}
	}
	return bytes
}

func (p *Pool) dropUnused(name string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(int(p.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Nlink > 1 ||
		st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return unix.Unlinkat(int(p.dir.Fd()), name, 0) == nil
}

// ReadChunk reads a chunk below the directory chunks of an image into buf. It does not verify it: digests find damage,
// and are no protection against somebody who chooses what has them. So the file must be of the directory's owner, and
// nobody else's to write.
func ReadChunk(chunks *os.File, d digest.Digest, buf []byte) error {
	if len(buf) != digest.ChunkSize {
		return fmt.Errorf("chunk %v: buffer of %d bytes", d, len(buf))
	}
	name := ChunkPath(d)
	fd, err := openBeneath(int(chunks.Fd()), name)
	if err != nil {
		return fmt.Errorf("chunk %v: %w", d, err)
	}
	defer unix.Close(fd)
	var dir, st unix.Stat_t
	if err := errors.Join(unix.Fstat(int(chunks.Fd()), &dir), unix.Fstat(fd, &st)); err != nil {
		return fmt.Errorf("chunk %v: %w", d, err)
	}
	if st.Uid != dir.Uid || st.Mode&0o022 != 0 {
		return fmt.Errorf("chunk %v belongs to user %d (mode %04o), its directory to %d", d, st.Uid, st.Mode&0o7777,
			dir.Uid)
	}
	for n := 0; n < len(buf); {
		k, err := unix.Pread(fd, buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("chunk %v: %w", d, err)
		}
		if k == 0 {
			return fmt.Errorf("chunk %v: %d bytes instead of %d", d, n, len(buf))
		}
		n += k
	}
	return nil
}

// openBeneath opens a file for reading without following any link.
func openBeneath(dir int, name string) (int, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// Older than Linux 5.6, or a sandbox that does not know the call.
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	}
	return fd, err
}

// WriteChunk writes a chunk below the directory chunks of an image. It reports false when the chunk is there already.
func WriteChunk(chunks *os.File, d digest.Digest, data []byte) (bool, error) {
	name := ChunkPath(d)
	fd, err := unix.Openat(int(chunks.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|
		unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err == nil {
		err = writeAll(fd, data)
		if e := unix.Close(fd); err == nil {
			err = e
		}
		if err != nil {
			unix.Unlinkat(int(chunks.Fd()), name, 0)
		}
	}
	if err != nil {
		return false, fmt.Errorf("write chunk %v: %w", d, err)
	}
	return true, nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Collected is what GC has removed.
type Collected struct {
	Chunks   int    `json:"chunks"`
	Bytes    uint64 `json:"bytes"`
	Partials int    `json:"partials"` // directories of writers that died
	Busy     int    `json:"busy"`     // directories of writers at work, left alone
}

// GC removes from a directory of images what belongs to none: the directories of dead writers, then pool files that no
// image has. It may run beside writers.
func GC(parent string) (Collected, error) {
	var c Collected
	ents, err := os.ReadDir(parent)
	if err != nil {
		return c, err
	}
	var errs []error
	for _, e := range ents {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), ".") || !strings.Contains(e.Name(), partialMark) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !lock(f) {
			c.Busy++
		} else if same(f, path) {
			if err := os.RemoveAll(path); err != nil {
				errs = append(errs, err)
			} else {
				c.Partials++
			}
		}
		f.Close()
	}
	p, err := OpenPool(parent, false)
	if p == nil || err != nil {
		return c, errors.Join(append(errs, err)...)
	}
	defer p.Close()
	dirs, err := p.dir.ReadDir(-1)
	if err != nil {
		return c, errors.Join(append(errs, err)...)
	}
	for _, d := range dirs {
		files, err := os.ReadDir(filepath.Join(p.path, d.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range files {
			if _, err := digest.Parse(f.Name()); err == nil && p.dropUnused(d.Name()+"/"+f.Name()) {
				c.Chunks++
				c.Bytes += digest.ChunkSize
			}
		}
		// The pool's subdirectories stay: a writer at work relies on those that it has made.
	}
	return c, errors.Join(errs...)
}
