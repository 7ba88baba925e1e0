package tap

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"holdfast/internal/trace"
)

// Triton loads cubins and leaves the PTX that each was assembled from beside it in its cache: NAME.cubin, NAME.ptx.

const (
	cacheDepth   = 4       // directories below a cache that are looked into
	cacheEntries = 1 << 20 // files that are looked at
)

// Caches lists the directories in which Triton, alone or under torch.compile, keeps what it has made for a program with
// this environment.
func Caches(env []string) []string {
	value := func(key string) string {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, key+"="); ok {
				return v
			}
		}
		return ""
	}
	var dirs []string
	add := func(dir string, sub ...string) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, filepath.Join(append([]string{dir}, sub...)...))
		}
	}
	add(value("TRITON_CACHE_DIR"))
	add(value("TRITON_HOME"), ".triton", "cache")
	add(value("HOME"), ".triton", "cache")
	add(value("TORCHINDUCTOR_CACHE_DIR"), "triton")
	name := value("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name != "" && !strings.Contains(name, "/") {
		add(os.TempDir(), "torchinductor_"+name, "triton")
	}
	return dirs
}

// Search looks in dirs for cubins of these digests and sizes and returns the PTX beside each that it finds. What cannot
// be read is as if it were not there.
func Search(dirs []string, want map[trace.Digest]uint64) map[trace.Digest][]byte {
	found := map[trace.Digest][]byte{}
	sizes := map[int64]bool{}
	for _, n := range want {
		sizes[int64(n)] = true
	}
	seen := 0
	for _, dir := range dirs {
		if len(found) == len(want) {
			break
		}
		filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if seen++; seen > cacheEntries || len(found) == len(want) {
				return filepath.SkipAll
			}
			if err != nil {
				return nil // of this directory nothing, of the others all
			}
			if e.IsDir() {
				if rel, err := filepath.Rel(dir, path); err == nil &&
					strings.Count(rel, string(filepath.Separator)) >= cacheDepth {
					return filepath.SkipDir
				}
				return nil
			}
			base, ok := strings.CutSuffix(path, ".cubin")
			if !ok || !e.Type().IsRegular() {
				return nil
			}
			info, err := e.Info()
			if err != nil || !sizes[info.Size()] {
				return nil
			}
			cubin, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			d := trace.Digest(sha256.Sum256(cubin))
			if _, ok := want[d]; !ok || found[d] != nil {
				return nil
			}
			info, err = os.Stat(base + ".ptx")
			if err != nil || !info.Mode().IsRegular() || info.Size() > trace.MaxText {
				return nil
			}
			if text, err := os.ReadFile(base + ".ptx"); err == nil && len(text) > 0 {
				found[d] = text
			}
			return nil
		})
	}
	return found
}
