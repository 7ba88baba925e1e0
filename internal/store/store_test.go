package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdfast/internal/snapshot/digest"
)

// chunk makes a chunk with a content of its own.
func chunk(n byte) ([]byte, digest.Digest) {
	b := bytes.Repeat([]byte{n, 1, 2, 3}, digest.ChunkSize/4)
	return b, digest.Sum(b)
}

// writer is an image under way.
type writer struct {
	*Partial
	pool   *Pool
	chunks *os.File
}

func begin(t *testing.T, target string) *writer {
	t.Helper()
	p, err := NewPartial(target)
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{Partial: p}
	if w.pool, err = OpenPool(p.Parent(), true); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.Path, "chunks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if w.chunks, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.chunks.Close(); w.pool.Close() })
	return w
}

// put stores a chunk as image writers do, and says whether it came from the pool.
func (w *writer) put(t *testing.T, n byte) (shared bool) {
	t.Helper()
	data, d := chunk(n)
	name := ChunkPath(d)
	if err := os.MkdirAll(filepath.Join(w.chunks.Name(), name[:2]), 0o700); err != nil {
		t.Fatal(err)
	}
	shared, err := w.pool.Take(d, w.chunks, make([]byte, digest.ChunkSize))
	if err != nil {
		t.Fatal(err)
	}
	if !shared {
		if _, err := WriteChunk(w.chunks, d, data); err != nil {
			t.Fatal(err)
		}
		w.pool.Give(d, w.chunks)
	}
	return shared
}

func (w *writer) finish(t *testing.T) {
	t.Helper()
	if err := errors.Join(w.Sync(), w.Finish()); err != nil {
		t.Fatal(err)
	}
}

// poolFile is where the pool has a chunk.
func poolFile(parent string, n byte) string {
	_, d := chunk(n)
	return filepath.Join(parent, PoolName, filepath.FromSlash(ChunkPath(d)))
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func TestImagesShareChunks(t *testing.T) {
	parent := t.TempDir()
	a := begin(t, filepath.Join(parent, "a"))
	if a.put(t, 1) || a.put(t, 2) {
		t.Error("an empty pool had chunks")
	}
	a.finish(t)
	b := begin(t, filepath.Join(parent, "b"))
	if !b.put(t, 1) || b.put(t, 3) {
		t.Error("chunk 1 was not shared, or chunk 3 was")
	}
	b.finish(t)
	if err := os.RemoveAll(filepath.Join(parent, "a")); err != nil {
		t.Fatal(err)
	}
	got, err := GC(parent)
	if err != nil || got.Chunks != 1 || got.Bytes != digest.ChunkSize || got.Partials != 0 {
		t.Errorf("%+v, %v; only chunk 2 belongs to no image", got, err)
	}
	for n, want := range map[byte]bool{1: true, 2: false, 3: true} {
		if exists(poolFile(parent, n)) != want {
			t.Errorf("chunk %d in the pool: %v", n, !want)
		}
	}
	data, d := chunk(1)
	buf := make([]byte, digest.ChunkSize)
	chunks, err := os.Open(filepath.Join(parent, "b", "chunks"))
	if err != nil {
		t.Fatal(err)
	}
	defer chunks.Close()
	if err := ReadChunk(chunks, d, buf); err != nil || !bytes.Equal(buf, data) {
		t.Errorf("chunk 1 of b: %v", err)
	}
}

// TestBrokenChunkIsNotShared: what is damaged in the pool gets into no further image, and out of the pool.
func TestBrokenChunkIsNotShared(t *testing.T) {
	parent := t.TempDir()
	a := begin(t, filepath.Join(parent, "a"))
	a.put(t, 1)
	a.finish(t)
	f, err := os.OpenFile(poolFile(parent, 1), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("damage"), 4711)
	f.Close()
	b := begin(t, filepath.Join(parent, "b"))
	if b.put(t, 1) {
		t.Error("a damaged chunk was shared")
	}
	c := begin(t, filepath.Join(parent, "c"))
	if !c.put(t, 1) {
		t.Error("the new chunk did not get into the pool")
	}
	data, d := chunk(1)
	buf := make([]byte, digest.ChunkSize)
	if err := ReadChunk(c.chunks, d, buf); err != nil || !bytes.Equal(buf, data) {
		t.Errorf("c has the damaged one: %v", err)
	}
}

// TestCollectorBesideWriters: collecting all the time takes nothing from a writer, nor from the images.
func TestCollectorBesideWriters(t *testing.T) {
	parent := t.TempDir()
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := GC(parent); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 6 {
		w := begin(t, filepath.Join(parent, string(rune('a'+i))))
		for n := range byte(6) {
			w.put(t, n)
		}
		for n := range byte(6) {
			data, d := chunk(n)
			buf := make([]byte, digest.ChunkSize)
			if err := ReadChunk(w.chunks, d, buf); err != nil || !bytes.Equal(buf, data) {
				t.Errorf("image %d chunk %d: %v", i, n, err)
			}
		}
		w.finish(t)
	}
	close(stop)
	collector.Wait()
}

func TestGCKnowsTheDead(t *testing.T) {
	parent := t.TempDir()
	alive := begin(t, filepath.Join(parent, "alive"))
	alive.put(t, 1)
	dead := begin(t, filepath.Join(parent, "dead"))
	dead.put(t, 2)
	dead.File.Close() // as the death of the process would
	got, err := GC(parent)
	if err != nil || got.Busy != 1 || got.Partials != 1 || got.Chunks != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if exists(dead.Path) || !exists(alive.Path) {
		t.Error("the wrong one was removed")
	}
	alive.finish(t)
}

func TestTargets(t *testing.T) {
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	full := filepath.Join(parent, "full")
	empty := filepath.Join(parent, "empty")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.MkdirAll(filepath.Join(full, "x"), 0o700),
		os.Mkdir(empty, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, full, filepath.Join(parent, PoolName), "/", "/proc"} {
		if p, err := NewPartial(bad); err == nil {
			t.Errorf("%s was accepted", bad)
			p.Discard()
		}
	}
	w := begin(t, empty)
	w.put(t, 1)
	w.finish(t)
	// Somebody puts something there while an image is written: neither is lost.
	late := begin(t, filepath.Join(parent, "late"))
	if err := os.MkdirAll(filepath.Join(parent, "late", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := late.Finish(); err == nil || !exists(late.Path) {
		t.Errorf("finished over what was there: %v", err)
	}
	if err := late.Discard(); err != nil || exists(late.Path) {
		t.Errorf("discard: %v", err)
	}
}

// TestHide: an image that is being removed is out of sight at once, and a second remover is told.
func TestHide(t *testing.T) {
	parent := t.TempDir()
	w := begin(t, filepath.Join(parent, "a"))
	w.put(t, 1)
	w.finish(t)
	p, err := Hide(filepath.Join(parent, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(parent, "a")) {
		t.Error("it is there still")
	}
	if _, err := Hide(filepath.Join(parent, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second time: %v", err)
	}
	if err := p.Discard(); err != nil {
		t.Error(err)
	}
}

func TestPoolOfAnotherUser(t *testing.T) {
	parent := t.TempDir()
	if err := os.Mkdir(filepath.Join(parent, PoolName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(parent, PoolName), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPool(parent, true); !errors.Is(err, ErrForeignPool) {
		t.Errorf("a pool that anybody may write: %v", err)
	}
	if p, err := OpenPool(t.TempDir(), false); p != nil || err != nil {
		t.Errorf("no pool: %v, %v", p, err)
	}
}

// TestHostileChunkNames: a chunk is a plain file below the image, whatever stands in its place.
func TestHostileChunkNames(t *testing.T) {
	parent := t.TempDir()
	w := begin(t, filepath.Join(parent, "a"))
	_, d := chunk(1)
	name := filepath.Join(w.chunks.Name(), filepath.FromSlash(ChunkPath(d)))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.Mkdir(filepath.Dir(name), 0o700), os.WriteFile(secret, make([]byte, digest.ChunkSize),
		0o600), os.Symlink(secret, name)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, digest.ChunkSize)
	if err := ReadChunk(w.chunks, d, buf); err == nil {
		t.Error("a link was followed")
	}
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("short"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := ReadChunk(w.chunks, d, buf); err == nil {
		t.Error("a short chunk was read")
	}
	if err := ReadChunk(w.chunks, d, buf[:10]); err == nil {
		t.Error("read into a short buffer")
	}
}
