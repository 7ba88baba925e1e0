package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
)

const stranger = 54321

func chown(t *testing.T, uid int, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Lchown(p, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
}

// Root does not take what another user has made, not even in part.
func TestForeignImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := filepath.Join(t.TempDir(), "one")
	write(t, dir, []uint64{1, 2})
	_, d := chunk(2)
	chunkFile := filepath.Join(dir, chunksName, store.ChunkPath(d))
	all := func(uid int) {
		if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(p, uid, uid)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	all(stranger)
	if im, err := Open(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("%v %v", im, err)
	}
	im, err := OpenForeign(dir)
	if err != nil {
		t.Fatal(err)
	}
	if ps, err := im.Verify(context.Background(), nil); err != nil || len(ps) > 0 {
		t.Errorf("%v %v", ps, err)
	}
	im.Close()
	if list, err := List(filepath.Dir(dir)); err != nil || len(list) != 1 || list[0].Err != nil {
		t.Errorf("%+v %v", list, err)
	}
	for _, name := range []string{ManifestName, criuName, chunksName} {
		all(0)
		chown(t, stranger, filepath.Join(dir, name))
		if im, err := Open(dir); err == nil || !strings.Contains(err.Error(), "belongs to user 54321") {
			t.Errorf("%s of another user: %v %v", name, im, err)
		}
	}
	all(0)
	chown(t, stranger, filepath.Join(dir, criuName, "core-10.img"), chunkFile)
	im = mustOpen(t, dir)
	err = im.CheckFiles(context.Background())
	if err == nil || !strings.Contains(err.Error(), "core-10.img belongs to user 54321") {
		t.Errorf("a file of another user: %v", err)
	}
	err = im.ReadChunk(d, make([]byte, digest.ChunkSize))
	if err == nil || !strings.Contains(err.Error(), "belongs to user 54321") {
		t.Errorf("a chunk of another user: %v", err)
	}
	all(0)
	if err := os.Chmod(filepath.Join(dir, criuName), 0o777); err != nil {
		t.Fatal(err)
	}
	if im, err := Open(dir); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("a directory that others can write: %v %v", im, err)
	}
}

// CRIU reads the files that were checked, although another image has taken the place of this one since.
func TestSwappedImage(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	write(t, dir, []uint64{1})
	im := mustOpen(t, dir)
	if err := im.CheckFiles(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(parent, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, criuName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, criuName, "core-10.img"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(im.CRIUDir(), "core-10.img")); err != nil || string(b) == "evil" {
		t.Errorf("%.20q %v", b, err)
	}
}

// A library is placed and used only where nobody else can swap it.
func TestLibraryInForeignPlace(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	m := write(t, dir, []uint64{1})
	if len(m.Libraries) == 0 {
		t.Fatal("the image of the test has no library")
	}
	im := mustOpen(t, dir)
	place := filepath.Dir(m.Libraries[0].Path)
	if err := os.Chmod(place, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := im.PlaceLibraries(); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := im.PlaceLibraries(); err != nil {
		t.Error(err)
	}
}

// No manifest makes much more of itself than it is, whatever it repeats and wherever.
func TestManifestBudget(t *testing.T) {
	digests := `"digests":["` + strings.Repeat("ab", 16) + `*8388608"]`
	region := `{"program":0,"id":1,"va":0,"size":2097152,"device":0,"kind":1,` + digests + `}`
	body := func(field, element string, n int) []byte {
		return []byte(`{"version":1,"` + field + `":[` + strings.Repeat(element+",", n) + element + `]}`)
	}
	for name, b := range map[string][]byte{
		"chunks of many regions":  body("regions", region, 4000),
		"a region again":          []byte(`{"id":1` + strings.Repeat(`,"regions":[`+region+`]`, 4000) + `}`),
		"digests again":           []byte(`{"regions":[{` + strings.Repeat(digests+",", 4000) + `"id":1}]}`),
		"empty regions":           body("regions", `{}`, 4<<20),
		"empty programs":          body("programs", `{}`, 4<<20),
		"arguments of a program":  []byte(`{"programs":[{"command":[""` + strings.Repeat(`,""`, 20<<20) + `]}]}`),
		"caveats":                 body("caveats", `""`, 20<<20),
		"what is unknown":         body("nonsense", `[]`, 20<<20),
		"with escapes in digests": body("regions", strings.Replace(region, "*", "\\u002a", 1), 4000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		// Not sealed: nothing is decoded before the price is known, and decoding is what costs.
		e := []byte(`{"format":"holdfast-image","version":1,"sha256":"","manifest":`)
		_, err := DecodeManifest(append(append(e, b...), '}'))
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), "MiB of memory") && name != "with escapes in digests" {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := DecodeManifest(sealedRaw(b)); err == nil || name == "with escapes in digests" &&
			!strings.Contains(err.Error(), "an escape") {
			t.Errorf("%s, sealed: %v", name, err)
		}
	}
	// What there may really be fits: 2 TiB of device memory, all of it different, and as much of zeros.
	m := manifest([]uint64{0})
	for i := range 32 {
		r := Region{ID: uint64(i), VA: uint64(i+1) << 40, Size: 32768 * digest.ChunkSize, Digests: make(Digests, 32768)}
		for k := range r.Digests {
			r.Digests[k] = digest.Digest{1, byte(i), byte(k), byte(k >> 8)}
		}
		m.Regions = append(m.Regions, r)
	}
	m.Regions = append(m.Regions, Region{ID: 99, Size: 1 << 41, Digests: make(Digests, 1<<20)})
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(b); err != nil {
		t.Error(err)
	}
}

// sealedRaw puts a body into an envelope as it stands.
func sealedRaw(body []byte) []byte {
	sum := fmt.Sprintf("%x", sha256.Sum256(body))
	return []byte(`{"format":"holdfast-image","version":1,"sha256":"` + sum + `","manifest":` + string(body) + `}`)
}

// tarEntry is a header of a tar stream with its content.
func tarEntry(kind byte, name string, content []byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000600\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", len(content), 0))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	out := append(h, content...)
	return append(out, make([]byte, -len(out)&511)...)
}

func paxRecord(key, value string) string {
	for n := 0; ; n++ {
		if s := fmt.Sprintf("%d %s=%s\n", n, key, value); len(s) == n {
			return s
		}
	}
}

// A few bytes that stand for a file of 64 MiB (or of an exabyte) are no export of an image.
func TestSparseEntry(t *testing.T) {
	const size = 64 << 20
	m := manifest([]uint64{0})
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	sum, err := sumFile(f, size, make([]byte, digest.ChunkSize))
	if err != nil {
		t.Fatal(err)
	}
	m.Files = []File{{Path: "criu/zeros.img", Size: size, Sum: sum}}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	pax := paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.minor", "0") +
		paxRecord("GNU.sparse.name", "criu/zeros.img") + paxRecord("GNU.sparse.realsize", fmt.Sprint(size))
	holes := make([]byte, 512)
	copy(holes, fmt.Sprintf("1\n%d\n0\n", size))
	stream := bytes.Join([][]byte{
		tarEntry('0', ManifestName, b), tarEntry('x', "pax", []byte(pax)),
		tarEntry('0', "GNUSparseFile.0/zeros.img", holes), make([]byte, 1024),
	}, nil)
	parent := t.TempDir()
	if _, err := Import(context.Background(), filepath.Join(parent, "im"), bytes.NewReader(stream), CreateOptions{},
		nil); err == nil ||
		!strings.Contains(err.Error(), "sparse") {
		t.Errorf("%v", err)
	}
	if left := partials(t, parent); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// FuzzImport reads streams: whatever they are, there is an image or nothing.
func FuzzImport(f *testing.F) {
	m := manifest([]uint64{0, 0})
	m.Files = []File{}
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(tarEntry('0', ManifestName, b), make([]byte, 1024)...), true)
	var im bytes.Buffer
	dir := filepath.Join(f.TempDir(), "one")
	write(f, dir, []uint64{0})
	if err := mustOpen(f, dir).Export(context.Background(), &im, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(im.Bytes(), false)
	body, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, true)
	where := filepath.Join("/dev/shm", fmt.Sprintf("holdfast-fuzz-import-%d", os.Getpid()))
	if err := os.MkdirAll(where, 0o700); err != nil {
		f.Skip(err)
	}
	f.Cleanup(func() { os.RemoveAll(where) })
	f.Fuzz(func(t *testing.T, b []byte, asManifest bool) {
		if asManifest {
			if b = sealed(b); b == nil {
				return
			}
			b = append(tarEntry('0', ManifestName, b), make([]byte, 1024)...)
		}
		dir := filepath.Join(where, "im")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := Import(ctx, dir, bytes.NewReader(b), CreateOptions{Private: true}, nil)
		if err != nil {
			if left, _ := filepath.Glob(filepath.Join(where, "*")); len(left) > 0 {
				t.Fatalf("left: %q", left)
			}
			return
		}
		im, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		ps, err := im.Verify(ctx, nil)
		im.Close()
		if err != nil || len(ps) > 0 {
			t.Fatalf("%v %v", ps, err)
		}
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	})
}
