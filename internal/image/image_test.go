package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
)

// content makes chunk i of a stream.
func content(i uint64) []byte {
	b := make([]byte, digest.ChunkSize)
	rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}).Read(b)
	return b
}

var (
	cacheMu sync.Mutex
	cache   = map[uint64][]byte{}
)

func chunk(i uint64) ([]byte, digest.Digest) {
	cacheMu.Lock()
	defer cacheMu.Unlock()
	b, ok := cache[i]
	if !ok {
		b = content(i)
		cache[i] = b
	}
	return b, digest.Sum(b)
}

// manifest makes one whose regions have the chunks given; 0 is the zero chunk.
func manifest(regions ...[]uint64) *Manifest {
	m := &Manifest{Version: Version, Kind: KindFull, Created: time.Unix(1700000000, 0).UTC(), Tool: "test", Root: 10,
		GPU: GPU{Driver: 13000},
		Programs: []Program{{PID: 10, StartTime: 5, ControlTID: 11, GPU: 1, Name: "a", Exe: "/a",
			Command: []string{"a", "b"},
			Devices: [][16]byte{{1, 2}}, Token: [16]byte{9}}}}
	for i, r := range regions {
		ds := Digests{}
		for _, c := range r {
			if c == 0 {
				ds = append(ds, digest.ZeroDigest)
				continue
			}
			_, d := chunk(c)
			ds = append(ds, d)
		}
		m.Regions = append(m.Regions, Region{ID: uint64(i + 1), VA: 0x10_0000_0000 + uint64(i)<<32,
			Size: uint64(len(r)) * digest.ChunkSize, Kind: 1, Digests: ds})
	}
	return m
}

// write makes an image of the regions, with files of CRIU and a library.
func write(t testing.TB, dir string, regions ...[]uint64) *Manifest {
	t.Helper()
	w, err := Create(dir, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := fill(w, filepath.Dir(dir), regions...)
	if err == nil {
		err = w.Commit(m)
	}
	if err != nil {
		t.Fatal(errors.Join(err, w.Abort()))
	}
	return m
}

func fill(w *Writer, tmp string, regions ...[]uint64) (*Manifest, error) {
	for _, r := range regions {
		for _, c := range r {
			b, d := make([]byte, 0), digest.ZeroDigest
			if c != 0 {
				b, d = chunk(c)
			}
			if d != digest.ZeroDigest && !w.Have(d) {
				if err := w.PutChunk(d, b); err != nil {
					return nil, err
				}
			}
		}
	}
	dir := w.CRIUDir()
	for name, size := range map[string]int{"pages-1.img": 3<<20 + 17, "core-10.img": 900, "empty.img": 0} {
		if err := os.WriteFile(filepath.Join(dir, name), content(77)[:min(size, digest.ChunkSize)], 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(filepath.Join(dir, name), int64(size)); err != nil {
			return nil, err
		}
	}
	lib := filepath.Join(tmp, "libs", "libholdfast.so")
	if err := os.MkdirAll(filepath.Dir(lib), 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(lib); err != nil {
		if err := os.WriteFile(lib, []byte("a library"), 0o755); err != nil {
			return nil, err
		}
	}
	if err := w.AddLibrary(lib); err != nil {
		return nil, err
	}
	return manifest(regions...), nil
}

func mustOpen(t testing.TB, dir string) *Image {
	t.Helper()
	im, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { im.Close() })
	return im
}

func verify(t testing.TB, dir string) []Problem {
	t.Helper()
	im := mustOpen(t, dir)
	var last, total uint64
	ps, err := im.Verify(context.Background(), func(d, n uint64) { last, total = d, n })
	if err != nil {
		t.Fatal(err)
	}
	if last != total {
		t.Errorf("progress ends at %d of %d", last, total)
	}
	return ps
}

func partials(t testing.TB, parent string) []string {
	t.Helper()
	p, err := filepath.Glob(filepath.Join(parent, ".*.partial-*"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRoundTrip(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	want := write(t, dir, []uint64{1, 2, 0, 0, 0, 2}, []uint64{0}, []uint64{3})
	im := mustOpen(t, dir)
	if !reflect.DeepEqual(im.Manifest, want) {
		t.Errorf("manifest\n%+v\nwritten\n%+v", im.Manifest, want)
	}
	if ps := verify(t, dir); len(ps) > 0 {
		t.Errorf("problems: %v", ps)
	}
	buf := make([]byte, digest.ChunkSize)
	for _, c := range []uint64{1, 2, 3} {
		b, d := chunk(c)
		if err := im.ReadChunk(d, buf); err != nil || !bytes.Equal(buf, b) {
			t.Errorf("chunk %d: %v", c, err)
		}
	}
	if err := im.ReadChunk(digest.ZeroDigest, buf); err != nil || !bytes.Equal(buf, make([]byte, len(buf))) {
		t.Errorf("zero chunk: %v", err)
	}
	if err := im.ReadChunk(digest.Digest{1}, buf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a chunk that is not there: %v", err)
	}
	if u := im.Usage(); u.Chunks != 8 || u.ZeroChunks != 4 || u.ChunkFiles != 3 || u.SharedFiles != 0 ||
		u.OwnBytes != u.ChunkBytes+u.FileBytes {
		t.Errorf("usage %+v", u)
	}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		if err == nil && i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", p, i.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Libraries come back when they are gone, and nothing is overwritten.
	lib := want.Libraries[0].Path
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	if err := im.PlaceLibraries(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(lib); err != nil || string(b) != "a library" {
		t.Errorf("library: %q %v", b, err)
	}
	if err := os.WriteFile(lib, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := im.PlaceLibraries(); err == nil {
		t.Error("a different library was accepted")
	}
}

func TestSharing(t *testing.T) {
	parent := t.TempDir()
	one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
	write(t, one, []uint64{1, 2, 3})
	w, err := Create(two, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := fill(w, parent, []uint64{1, 4, 3})
	if err == nil {
		// A chunk that no region has in the end.
		b, d := chunk(5)
		err = errors.Join(w.PutChunk(d, b), w.Commit(m))
	}
	if err != nil {
		t.Fatal(err)
	}
	if wr, re := w.Written(); wr != 2 || re != 2 {
		t.Errorf("%d written, %d reused", wr, re)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	u := mustOpen(t, two).Usage()
	if u.SharedFiles != 2 || u.ChunkFiles != 3 {
		t.Errorf("usage %+v", u)
	}
	_, five := chunk(5)
	for _, root := range []string{filepath.Join(two, chunksName), filepath.Join(parent, store.PoolName)} {
		if _, err := os.Stat(filepath.Join(root, store.ChunkPath(five))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the overtaken chunk stays in %s: %v", root, err)
		}
	}
	d := Diff(mustOpen(t, one).Manifest, mustOpen(t, two).Manifest)
	if len(d) != 1 || d[0].Changed != 1 || d[0].Chunks[0] != 1 {
		t.Errorf("diff %+v", d)
	}
	l, err := List(parent)
	if err != nil || len(l) != 2 || l[0].Err != nil {
		t.Errorf("list %+v %v", l, err)
	}
	if err := Remove(one); err != nil {
		t.Fatal(err)
	}
	if ps := verify(t, two); len(ps) > 0 {
		t.Errorf("after the removal of the other image: %v", ps)
	}
	if n := poolFiles(t, parent); n != 3 {
		t.Errorf("%d chunks in the pool, not 3", n)
	}
	if err := Remove(filepath.Join(parent, "libs")); err == nil {
		t.Error("a directory that is no image was removed")
	}
	if c, err := store.GC(parent); err != nil || c.Chunks != 0 {
		t.Errorf("gc took %+v %v", c, err)
	}
	if err := os.RemoveAll(two); err != nil { // behind our back
		t.Fatal(err)
	}
	if c, err := store.GC(parent); err != nil || c.Chunks != 3 {
		t.Errorf("gc took %+v %v", c, err)
	}
	if n := poolFiles(t, parent); n != 0 {
		t.Errorf("%d chunks stay in the pool", n)
	}
}

func poolFiles(t testing.TB, parent string) int {
	t.Helper()
	f, err := filepath.Glob(filepath.Join(parent, store.PoolName, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(f)
}

// TestFlippedPool: damage in the pool is not inherited.
func TestFlippedPool(t *testing.T) {
	parent := t.TempDir()
	one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
	write(t, one, []uint64{1, 2})
	_, d := chunk(1)
	flip(t, filepath.Join(parent, store.PoolName, store.ChunkPath(d)), 12345)
	write(t, two, []uint64{1, 2})
	if ps := verify(t, two); len(ps) > 0 {
		t.Errorf("the new image: %v", ps)
	}
	if ps := verify(t, one); len(ps) != 1 || !strings.Contains(ps[0].Path, d.String()) {
		t.Errorf("the damaged image: %v", ps)
	}
	write(t, filepath.Join(parent, "three"), []uint64{1, 2})
	if u := mustOpen(t, two).Usage(); u.SharedFiles != 2 {
		t.Errorf("the good chunk is not shared: %+v", u)
	}
}

// flip changes one bit; with it the image's files are damaged in the tests.
func flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rand.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// TestDamage flips and truncates every file of an image at random places: always found, by the name of the file.
func TestDamage(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	write(t, dir, []uint64{1, 2, 0, 3})
	var files []string
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if e.Type().IsRegular() {
			files = append(files, p)
		}
		return err
	})
	if len(files) != 1+3+1+3 {
		t.Fatalf("files %q", files)
	}
	found := func(file, how string) {
		t.Helper()
		rel, _ := filepath.Rel(dir, file)
		im, err := Open(dir)
		if err != nil {
			if rel != ManifestName {
				t.Errorf("%s of %s: %v", how, rel, err)
			}
			return
		}
		defer im.Close()
		ps, err := im.Verify(context.Background(), nil)
		if err != nil || len(ps) != 1 || ps[0].Path != rel {
			t.Errorf("%s of %s: %v %v", how, rel, ps, err)
		}
		err = im.CheckFiles(context.Background())
		if isChunk := strings.HasPrefix(rel, chunksName); (err == nil) != isChunk {
			t.Errorf("%s of %s: %v", how, rel, err)
		}
	}
	for _, file := range files {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if len(good) == 0 {
				break
			}
			flip(t, file, rand.Int64N(int64(len(good))))
			found(file, "a flipped bit")
			put(good)
			put(good[:rand.IntN(len(good))])
			found(file, "truncation")
			put(good)
		}
		put(append(good[:len(good):len(good)], 'x'))
		if !strings.HasPrefix(file, filepath.Join(dir, chunksName)) { // what follows a chunk is not read
			found(file, "a byte more")
		}
		put(good)
		if err := os.Rename(file, file+"x"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file+"x", file); err != nil {
			t.Fatal(err)
		}
		im, err := Open(dir)
		if err == nil {
			ps, err := im.Verify(context.Background(), nil)
			if err != nil || len(ps) == 0 {
				t.Errorf("symbolic link instead of %s: %v %v", file, ps, err)
			}
			im.Close()
		} else if filepath.Base(file) != ManifestName {
			t.Error(err)
		}
		os.Remove(file)
		if im, err = Open(dir); err == nil {
			ps, _ := im.Verify(context.Background(), nil)
			if len(ps) == 0 {
				t.Errorf("%s missing: no problem found", file)
			}
			im.Close()
		}
		if err := os.Rename(file+"x", file); err != nil {
			t.Fatal(err)
		}
	}
	if ps := verify(t, dir); len(ps) > 0 {
		t.Errorf("in the end: %v", ps)
	}
}

func TestTarget(t *testing.T) {
	parent := t.TempDir()
	empty := filepath.Join(parent, "empty")
	os.Mkdir(empty, 0o755)
	write(t, empty, []uint64{1})
	for _, dir := range []string{empty, filepath.Join(empty, ManifestName), filepath.Join(parent, store.PoolName)} {
		if w, err := Create(dir, CreateOptions{}); err == nil {
			w.Abort()
			t.Errorf("an image at %s", dir)
		}
	}
	os.Symlink(parent, filepath.Join(parent, "link"))
	if w, err := Create(filepath.Join(parent, "link"), CreateOptions{}); err == nil {
		w.Abort()
		t.Error("an image at a symbolic link")
	}
	// Somebody is faster: one of the two wins, and nothing of the other stays.
	dir := filepath.Join(parent, "race")
	w, err := Create(dir, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, []uint64{1})
	m, err := fill(w, parent, []uint64{2})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(m); err == nil {
		t.Error("an image was replaced")
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if ps := verify(t, dir); len(ps) > 0 {
		t.Error(ps)
	}
	if p := partials(t, parent); len(p) > 0 {
		t.Errorf("left: %q", p)
	}
	// A manifest whose chunks are not there is no image.
	w, err = Create(filepath.Join(parent, "lacking"), CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(manifest([]uint64{8})); err == nil || !strings.Contains(err.Error(), "not written") {
		t.Errorf("commit without chunks: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
}

func TestOwner(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	write(t, dir, []uint64{1})
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("opened an image that others can write")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot be another user")
	}
	for _, p := range []string{filepath.Dir(parent), parent, dir} {
		os.Chmod(p, 0o755)
	}
	os.Chmod(filepath.Join(dir, ManifestName), 0o644)
	err := make(chan error)
	go func() {
		// The raw system call changes this thread alone, which ends with the goroutine.
		runtime.LockOSThread()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			err <- e
			return
		}
		_, e := Open(dir)
		err <- e
	}()
	if err := <-err; !errors.Is(err, ErrForeign) {
		t.Errorf("as another user: %v", err)
	}
	if _, err := Open(dir); err != nil {
		t.Errorf("as its owner: %v", err)
	}
}

// TestChild is what the tests start as another process.
func TestChild(t *testing.T) {
	dir := os.Getenv("IMAGE_TEST_WRITE")
	if dir == "" {
		t.Skip("only as a child")
	}
	for n := 0; ; n++ {
		w, err := Create(fmt.Sprintf("%s-%d-%d", dir, os.Getpid(), n), CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := fill(w, filepath.Dir(dir), []uint64{1, uint64(n%5) + 2, 0, 3}, []uint64{uint64(n%3) + 4})
		if err == nil {
			err = w.Commit(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("one more")
		if n > 2 {
			if err := Remove(fmt.Sprintf("%s-%d-%d", dir, os.Getpid(), n-2)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKilled kills writers at random points, several at once and with a collector beside them: every image there is is
// whole, and the collector leaves nothing else.
func TestKilled(t *testing.T) {
	if unix.Access("/dev/shm", unix.W_OK) != nil {
		t.Skip("no /dev/shm")
	}
	parent, err := os.MkdirTemp("/dev/shm", "image-test-") // the disk's speed is not the question here
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		var cmds []*exec.Cmd
		for range 2 {
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(os.Environ(), "IMAGE_TEST_WRITE="+filepath.Join(parent, "im"))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4096)
			for s := ""; !strings.Contains(s, "one more"); { // it has begun
				n, err := out.Read(b)
				if s += string(b[:n]); err != nil {
					t.Fatalf("%s %v", s, err)
				}
			}
			go io.Copy(io.Discard, out)
			cmds = append(cmds, cmd)
		}
		for range 3 {
			if _, err := store.GC(parent); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // the random point
		for _, cmd := range cmds {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	l, err := List(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l {
		if e.Err != nil {
			t.Errorf("%s: %v", e.Dir, e.Err)
			continue
		}
		if ps := verify(t, e.Dir); len(ps) > 0 {
			t.Errorf("%s: %v", e.Dir, ps)
		}
	}
	dead := len(partials(t, parent))
	c, err := store.GC(parent)
	if err != nil || c.Partials != dead || c.Busy != 0 {
		t.Errorf("gc %+v of %d dead, %v", c, dead, err)
	}
	t.Logf("%d images, collected %+v", len(l), c)
	for _, e := range l {
		if err := Remove(e.Dir); err != nil {
			t.Error(err)
		}
	}
	if n := poolFiles(t, parent); n != 0 {
		t.Errorf("%d chunks stay", n)
	}
	left, _ := os.ReadDir(parent)
	for _, e := range left {
		if n := e.Name(); n != store.PoolName && n != "libs" {
			t.Errorf("left: %s", n)
		}
	}
}

func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	parent := t.TempDir()
	if err := unix.Mount("tmpfs", parent, "tmpfs", 0, "size=20m"); err != nil {
		t.Skip(err)
	}
	defer unix.Unmount(parent, unix.MNT_DETACH)
	good := filepath.Join(parent, "good")
	write(t, good, []uint64{1, 2})
	w, err := Create(filepath.Join(parent, "bad"), CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(10); err == nil && i < 30; i++ {
		b, d := chunk(i)
		err = w.PutChunk(d, b)
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "full") {
		t.Errorf("full: %v", err)
	}
	if err := w.Commit(manifest([]uint64{10})); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("commit after a failed write: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if ps := verify(t, good); len(ps) > 0 {
		t.Error(ps)
	}
	if p := partials(t, parent); len(p) > 0 {
		t.Errorf("left: %q", p)
	}
	if n := poolFiles(t, parent); n != 2 {
		t.Errorf("%d chunks in the pool", n)
	}
	write(t, filepath.Join(parent, "again"), []uint64{1, 3})
}

// TestWriters: two writers of one image's content at once, in one process and pool.
func TestWriters(t *testing.T) {
	parent := t.TempDir()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			w, err := Create(filepath.Join(parent, fmt.Sprint(i)), CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			var in sync.WaitGroup
			for range 3 {
				in.Go(func() {
					for c := uint64(1); c < 6; c++ {
						b, d := chunk(c)
						if !w.Have(d) {
							if err := w.PutChunk(d, b); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			in.Wait()
			if err := w.Commit(manifest([]uint64{1, 2, 3, 4, 5})); err != nil {
				t.Error(err)
			}
		})
	}
	for range 20 {
		if _, err := store.GC(parent); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for i := range 3 {
		if ps := verify(t, filepath.Join(parent, fmt.Sprint(i))); len(ps) > 0 {
			t.Error(ps)
		}
	}
}

func TestExportImport(t *testing.T) {
	parent, other := t.TempDir(), t.TempDir()
	dir := filepath.Join(parent, "one")
	want := write(t, dir, []uint64{3, 1, 0, 2})
	im := mustOpen(t, dir)
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := im.Export(context.Background(), w, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two exports differ")
	}
	m, err := Import(context.Background(), filepath.Join(other, "one"), bytes.NewReader(a.Bytes()),
		CreateOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("imported %+v", m)
	}
	if ps := verify(t, filepath.Join(other, "one")); len(ps) > 0 {
		t.Error(ps)
	}
	x, _ := os.ReadFile(filepath.Join(dir, ManifestName))
	y, _ := os.ReadFile(filepath.Join(other, "one", ManifestName))
	if !bytes.Equal(x, y) {
		t.Error("the manifest has changed on the way")
	}
	// Imported beside its origin it shares everything.
	if _, err := Import(context.Background(), filepath.Join(parent, "two"), bytes.NewReader(a.Bytes()), CreateOptions{},
		nil); err != nil {
		t.Fatal(err)
	}
	if u := mustOpen(t, filepath.Join(parent, "two")).Usage(); u.SharedFiles != 3 {
		t.Errorf("usage %+v", u)
	}
	// Damage and truncation anywhere: no image, nothing left.
	bad := filepath.Join(other, "bad")
	for range 40 {
		s := bytes.Clone(a.Bytes())
		if rand.IntN(2) == 0 {
			s = s[:rand.IntN(len(s)-1024)] // the two zero blocks at the end say nothing
		} else {
			s[rand.IntN(len(s)-1024)] ^= 1 << rand.IntN(8)
		}
		m, err := Import(context.Background(), bad, bytes.NewReader(s), CreateOptions{}, nil)
		if err == nil {
			// Bits that say nothing: an owner, a date, padding. What was accepted must be right.
			if ps := verify(t, bad); len(ps) > 0 || m.Digest() != want.Digest() {
				t.Errorf("accepted: %v", ps)
			}
			if err := Remove(bad); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := os.Stat(bad); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("an image after %v", err)
		}
	}
	if p := partials(t, other); len(p) > 0 {
		t.Errorf("left: %q", p)
	}
	// A name that leads out.
	var evil bytes.Buffer
	tw := tar.NewWriter(&evil)
	tw.WriteHeader(&tar.Header{Name: "../../evil", Size: 1, Mode: 0o600, Typeflag: tar.TypeReg})
	tw.Write([]byte("x"))
	tw.Close()
	if _, err := Import(context.Background(), bad, &evil, CreateOptions{}, nil); err == nil {
		t.Error("imported a stranger")
	}
}

// sealed puts a manifest into an envelope with a right sum, whatever it says.
func sealed(body []byte) []byte { return sealedAs(Version, body) }

func sealedAs(version int, body []byte) []byte {
	sum := sha256.Sum256(body)
	b, err := json.Marshal(envelope{formatName, version, hex.EncodeToString(sum[:]), body})
	if err != nil {
		return nil
	}
	return b
}

func TestHostileManifests(t *testing.T) {
	good, err := json.Marshal(manifest([]uint64{1, 0, 0}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(sealed(good)); err != nil {
		t.Fatal(err)
	}
	for _, sub := range [][2]string{
		{`"version":1`, `"version":2`},
		{`"kind":"full"`, `"kind":"half"`},
		{`"root":10`, `"root":-1`},
		{`"pid":10`, `"pid":0`},
		{`"pid":10`, `"pid":99999999999999999999`},
		{`"program":0`, `"program":1`},
		{`"program":0`, `"program":-1`},
		{`"device":0`, `"device":7`},
		{`"size":6291456`, `"size":6291457`},
		{`"size":6291456`, `"size":4194304`},
		{`"size":6291456`, `"size":0`},
		{`"va":68719476736`, `"va":18446744073709551615`},
		{`*2"`, `*3"`},
		{`*2"`, `*8388609"`},
		{`*2"`, `*-2"`},
		{`*2"`, `*9999999999999999999999"`},
		{`"token":"09`, `"token":"0`},
		{`"kind":"full"`, `"kind":"full","files":[{"path":"../../etc/passwd","size":1,"sum":"` + strings.Repeat("0",
			64) + `"}]`},
		{`"kind":"full"`, `"kind":"full","files":[{"path":"criu/..","size":1,"sum":"` + strings.Repeat("0",
			64) + `"}]`},
		{`"kind":"full"`, `"kind":"full","files":[{"path":"chunks/x","size":1,"sum":"` + strings.Repeat("0",
			64) + `"}]`},
		{`"kind":"full"`, `"kind":"full","files":[{"path":"criu/x","size":-1,"sum":"` + strings.Repeat("0",
			64) + `"}]`},
		{`"kind":"full"`, `"kind":"full","libraries":[{"path":"/etc/passwd","file":"libs/0-x"}]`},
		{`"kind":"full"`, `"kind":"full","files":[{"path":"libs/a","size":1,"sum":"` + strings.Repeat("0", 64) +
			`"}],"libraries":[{"path":"/etc/passwd","file":"libs/a"}]`},
		{`"kind":"full"`, `"kind":"full","more":1`},
	} {
		b := bytes.Replace(good, []byte(sub[0]), []byte(sub[1]), 1)
		if bytes.Equal(b, good) {
			t.Fatalf("%s does not occur in %s", sub[0], good)
		}
		if _, err := DecodeManifest(sealed(b)); err == nil {
			t.Errorf("accepted with %s", sub[1])
		}
	}
	// Seven thousand million chunks in a short text.
	many := `["` + strings.Repeat(digest.ZeroDigest.String()+`*8388608","`, 900) + digest.ZeroDigest.String() + `"]`
	var ds Digests
	if err := json.Unmarshal([]byte(many), &ds); err == nil {
		t.Error("accepted too many chunks")
	}
}

// An image with an order is of a version of its own; one without is what it always was.
func TestOrder(t *testing.T) {
	m := manifest([]uint64{1, 0, 2}, []uint64{3, 4})
	plain, err := m.Encode()
	if err != nil || bytes.Contains(plain, []byte("order")) || !bytes.Contains(plain, []byte(`"version":1`)) {
		t.Fatalf("%s: %v", plain, err)
	}
	m.Order = []Run{{1, 1, 1}, {0, 0, 2}}
	if _, err := m.Encode(); err == nil {
		t.Error("an order in version 1")
	}
	m.Version = VersionOrder
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := DecodeManifest(b); err != nil || !slices.Equal(n.Order, m.Order) {
		t.Errorf("%+v: %v", n, err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(sealed(body)); err == nil {
		t.Error("versions 1 outside and 2 inside")
	}
	newer := bytes.Replace(body, []byte(`"version":2`), []byte(`"version":3`), 1)
	if _, err := DecodeManifest(sealedAs(3, newer)); err == nil {
		t.Error("a version that is not known")
	}
	for _, x := range []struct {
		order string
		says  string
	}{
		{`[]`, "version"},
		{`[{"region":2,"chunk":0,"count":1}]`, "region 2 of 2"},
		{`[{"region":-1,"chunk":0,"count":1}]`, "region -1"},
		{`[{"region":1,"chunk":2,"count":1}]`, "1 chunks from 2 on of 2"},
		{`[{"region":1,"chunk":-1,"count":1}]`, "chunks from -1"},
		{`[{"region":1,"chunk":1,"count":2}]`, "2 chunks from 1 on of 2"},
		{`[{"region":1,"chunk":1,"count":0}]`, "0 chunks"},
		{`[{"region":1,"chunk":1,"count":9223372036854775807}]`, "chunks from 1"},
		{`[{"region":1,"chunk":9223372036854775807,"count":1}]`, "chunks from"},
		{`[{"region":1,"chunk":9223372036854775808,"count":1}]`, "order"},
		{`[{"region":0,"chunk":1,"count":2},{"region":1,"chunk":0,"count":1},{"region":0,"chunk":2,"count":1}]`,
			"chunk 2 of region 0 is named twice"},
		{`[{"region":0,"chunk":1,"count":1,"more":1}]`, "more"},
		{`[` + strings.Repeat(`{"region":0,"chunk":0,"count":1},`, MaxOrder) + `{"region":0,"chunk":0,"count":1}]`,
			"65537 runs"},
	} {
		at := bytes.Index(body, []byte(`"order":`)) + len(`"order":`)
		end := at + bytes.IndexByte(body[at:], ']') + 1
		hostile := slices.Concat(body[:at], []byte(x.order), body[end:])
		if _, err := DecodeManifest(sealedAs(VersionOrder, hostile)); err == nil ||
			!strings.Contains(err.Error(), x.says) {
			t.Errorf("%.80s: %v", x.order, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	body, err := json.Marshal(manifest([]uint64{1, 0, 0, 2}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, true)
	f.Add(sealed(body), false)
	ordered := manifest([]uint64{1, 0, 0, 2})
	ordered.Version, ordered.Order = VersionOrder, []Run{{0, 3, 1}, {0, 0, 2}}
	if body, err = json.Marshal(ordered); err != nil {
		f.Fatal(err)
	}
	f.Add(body, true)
	f.Add(sealedAs(VersionOrder, body), false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			version := Version
			if bytes.Contains(b, []byte(`"version":2`)) {
				version = VersionOrder
			}
			if b = sealedAs(version, b); b == nil {
				return
			}
		}
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		// What is accepted can be used, and written again.
		m.Chunks()
		m.Digest()
		for _, r := range m.Regions {
			_ = m.Programs[r.Program].Devices[r.Device]
		}
		for _, r := range m.Order {
			_ = m.Regions[r.Region].Digests[r.Chunk+r.Count-1]
		}
		Diff(m, m)
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		n, err := DecodeManifest(again)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := n.Encode(); err != nil || !bytes.Equal(twice, again) {
			t.Fatalf("encoded twice: %v\n%s\n%s", err, again, twice)
		}
	})
}

// benchDir is on a file system in memory, so that the code is measured and not a disk.
func benchDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "image-bench-")
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func BenchmarkPutChunk(b *testing.B) {
	for _, where := range []string{"shm", "disk"} {
		b.Run(where, func(b *testing.B) {
			parent := b.TempDir()
			if where == "shm" {
				parent = benchDir(b)
			}
			data, _ := chunk(1)
			b.SetBytes(digest.ChunkSize)
			const most = 256 // chunks, then a new image
			var w *Writer
			for i := 0; b.Loop(); i++ {
				if i%most == 0 {
					b.StopTimer()
					if w != nil {
						w.Abort()
					}
					var err error
					if w, err = Create(filepath.Join(parent, "im"), CreateOptions{}); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if err := w.PutChunk(digest.Digest{byte(i), byte(i >> 8), 1}, data); err != nil {
					b.Fatal(err)
				}
			}
			w.Abort()
		})
	}
}

func BenchmarkReadChunk(b *testing.B) {
	parent := benchDir(b)
	var r []uint64
	for i := range uint64(64) {
		r = append(r, i+100)
	}
	m := write(b, filepath.Join(parent, "im"), r)
	im := mustOpen(b, filepath.Join(parent, "im"))
	chunks := m.Chunks()
	buf := make([]byte, digest.ChunkSize)
	b.SetBytes(digest.ChunkSize)
	for i := 0; b.Loop(); i++ {
		if err := im.ReadChunk(chunks[i%len(chunks)], buf); err != nil {
			b.Fatal(err)
		}
	}
}
