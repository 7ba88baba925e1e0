// Package embedded carries the two C libraries inside the holdfast binary and
// unpacks them where a program's dynamic loader can find them: libholdfast.so,
// the shim that is preloaded into every held program, and libcuda.so.1, the
// stub through which a program uses the software GPU.
//
// The Makefile builds both into lib/ before it builds the binary. A binary built
// without them (go build or go vet on a fresh tree) still compiles; [Unpack] then
// says what to do.
//
// Code that other users could change is not loaded: the directory is refused unless it and all above it are this user's
// or root's (package owned). What is loaded into our own process comes from memory that nobody can write
// ([StubMemory]).
//
// The package imports the standard library, x/sys and owned.
package embedded

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holdfast/internal/owned"
)

//go:embed lib
var lib embed.FS

// The names of the libraries. The stub's is the soname that programs ask for.
const (
	ShimName = "libholdfast.so"
	StubName = "libcuda.so.1"
)

// ErrNotBuilt is returned when the binary was built without the libraries.
var ErrNotBuilt = errors.New("this holdfast was built without its C libraries: build it with make")

// Libraries are the paths of the unpacked libraries.
type Libraries struct {
	Shim    string // for LD_PRELOAD
	SoftDir string // for LD_LIBRARY_PATH: holds nothing but the stub libcuda.so.1
}

// Stub returns the path of the stub libcuda.so.1.
func (l Libraries) Stub() string { return filepath.Join(l.SoftDir, StubName) }

// Unpack writes the libraries below cacheDir, unless they are there already, and
// returns where they are. Their directory is named by their content, so versions do
// not disturb each other, a program that has them mapped is never
// rewritten under its feet, and an image finds the very same ones at the same path.
// The directory appears by a rename: it is complete or absent. Files found in it
// are compared with the embedded ones and replaced if they differ.
func Unpack(cacheDir string) (Libraries, error) {
	shim, err := content(ShimName)
	if err != nil {
		return Libraries{}, err
	}
	stub, err := content(StubName)
	if err != nil {
		return Libraries{}, err
	}
	h := sha256.New()
	h.Write(shim)
	h.Write(stub)
	dir := filepath.Join(cacheDir, "holdfast", "lib", hex.EncodeToString(h.Sum(nil)[:8]))
	l := Libraries{
		Shim:    filepath.Join(dir, ShimName),
		SoftDir: filepath.Join(dir, "soft"),
	}
	parent := filepath.Dir(dir)
	// From here on the path leads to the same place, whatever other users do.
	d, err := owned.Make(parent, 0o755)
	if err != nil {
		return Libraries{}, fmt.Errorf("unpack libraries: %w: set XDG_CACHE_HOME to a directory of your own", err)
	}
	defer d.Close()
	if same(l.Shim, shim) && same(l.Stub(), stub) {
		return l, nil
	}
	tmp, err := os.MkdirTemp(parent, ".unpack-")
	if err != nil {
		return Libraries{}, fmt.Errorf("unpack libraries: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Libraries{}, fmt.Errorf("unpack libraries: %w", err)
	}
	if err := os.Mkdir(filepath.Join(tmp, "soft"), 0o755); err != nil {
		return Libraries{}, fmt.Errorf("unpack libraries: %w", err)
	}
	for path, data := range map[string][]byte{
		filepath.Join(tmp, ShimName):         shim,
		filepath.Join(tmp, "soft", StubName): stub,
	} {
		if err := writeSynced(path, data); err != nil {
			return Libraries{}, fmt.Errorf("unpack libraries: %w", err)
		}
	}
	if err := place(tmp, dir, func() bool { return same(l.Shim, shim) && same(l.Stub(), stub) }); err != nil {
		return Libraries{}, fmt.Errorf("unpack libraries: %w", err)
	}
	return l, nil
}

// StubMemory is the stub libcuda.so.1 in memory, for our own process: what is loaded from its /proc/self/fd path are
// the bytes of this binary, which nobody can change any more.
func StubMemory() (_ *os.File, err error) {
	stub, err := content(StubName)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(StubName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", StubName, err)
	}
	f := os.NewFile(uintptr(fd), StubName)
	if _, err = f.Write(stub); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("memory for %s: %w", StubName, err)
	}
	return f, nil
}

// Path is where this process can open a file that it has open, by name.
func Path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// place renames tmp to dir. Another process may have placed its copy meanwhile:
// good() then says whether that one will do. A damaged one is moved aside first,
// never written over: a program may have it mapped.
func place(tmp, dir string, good func() bool) error {
	for range 3 {
		err := os.Rename(tmp, dir)
		if err == nil || good() {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		aside, err := os.MkdirTemp(filepath.Dir(dir), ".damaged-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(aside)
		if err := os.Rename(dir, filepath.Join(aside, "lib")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s: others keep replacing it", dir)
}

func content(name string) ([]byte, error) {
	data, err := lib.ReadFile("lib/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	return data, err
}

// same says whether a file has that content, and will: only this user or root can change it.
func same(path string, want []byte) bool {
	if owned.Check(path) != nil {
		return false
	}
	got, err := os.ReadFile(path)
	return err == nil && string(got) == string(want)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
