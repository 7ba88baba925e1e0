package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/ptx"
)

// Limits of an application file.
const (
	maxFile     = 64 << 20
	maxLaunches = 1 << 20
	maxBuffers  = 1 << 16
	maxArgs     = 4096
	maxBuffer   = 1 << 40 // bytes; only what is executed needs memory
	maxData     = 64 << 20
	maxAll      = 1 << 44 // bytes of all buffers of an application
)

// An Application is what one program did on the GPU.
type Application struct {
	Name     string            `json:"application"`
	Family   string            `json:"family"`
	Target   string            `json:"target"`
	Made     string            `json:"made"`
	Modules  map[string]string `json:"modules"` // files, by the names that launches use
	Buffers  map[string]Buffer `json:"buffers"`
	Launches []Launch          `json:"launches"`

	File string `json:"-"` // where it was read from

	placed layoutOnce
	filled *contents
}

// A Buffer is an allocation of device memory.
type Buffer struct {
	Bytes uint64 `json:"bytes"`
	Init  Init   `json:"init"`
}

// A Launch is one instance of a kernel.
type Launch struct {
	Module  string    `json:"module"` // "" = there is no PTX
	Kernel  string    `json:"kernel"`
	Grid    [3]uint32 `json:"grid"`
	Block   [3]uint32 `json:"block"`
	Cluster [3]uint32 `json:"cluster"` // zero = none
	Shared  uint32    `json:"shared"`  // bytes of dynamic shared memory
	Args    []Arg     `json:"args"`
	Count   uint64    `json:"count"`
	Order   string    `json:"order"` // "any": the result depends on the order of blocks and warps
	Spin    bool      `json:"spin"`  // blocks wait for one another
}

// Threads is the number of threads of a launch.
func (l *Launch) Threads() uint64 {
	n := uint64(1)
	for _, d := range [...][3]uint32{l.Grid, l.Block} {
		for _, x := range d {
			if x != 0 && n > 1<<62/uint64(x) {
				return 1 << 62
			}
			n *= uint64(x)
		}
	}
	return n
}

// Load reads every *.app.json below dir, or the file that dir names.
func Load(dir string) ([]*Application, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".app.json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("corpus: no *.app.json below %s", dir)
	}
	slices.Sort(files)
	var apps []*Application
	for _, f := range files {
		a, err := load(f)
		if err != nil {
			return nil, fmt.Errorf("corpus: %s: %w", f, err)
		}
		apps = append(apps, a)
	}
	return apps, nil
}

func load(file string) (*Application, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	a, err := Parse(text)
	if err != nil {
		return nil, err
	}
	a.File = file
	for name, m := range a.Modules {
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(m))); err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
	}
	return a, nil
}

// Parse decodes and checks an application file. Errors name the place.
func Parse(text []byte) (*Application, error) {
	a := &Application{filled: &contents{}}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(a); err != nil {
		return nil, at(text, dec.InputOffset(), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, at(text, dec.InputOffset(), errors.New("there is more after the application"))
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return a, nil
}

// at adds the line at which decoding stopped.
func at(text []byte, pos int64, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		pos = syntax.Offset
	case errors.As(err, &kind):
		pos = kind.Offset
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:min(max(pos, 0), int64(len(text)))], []byte("\n")), err)
}

func (a *Application) check() error {
	if a.Name == "" || a.Family == "" {
		return errors.New("application and family must be named")
	}
	if len(a.Buffers) > maxBuffers || len(a.Launches) > maxLaunches {
		return fmt.Errorf("%d buffers and %d launches: at most %d and %d", len(a.Buffers), len(a.Launches), maxBuffers,
			maxLaunches)
	}
	for name, m := range a.Modules {
		if !filepath.IsLocal(filepath.FromSlash(m)) || !strings.HasSuffix(m, ".ptx") &&
			!strings.HasSuffix(m, ".ptx.gz") {
			return fmt.Errorf("module %s: %q is not a .ptx or .ptx.gz file beside the application", name, m)
		}
	}
	var all uint64
	for name, b := range a.Buffers {
		if b.Bytes > maxBuffer {
			return fmt.Errorf("buffer %s: %d bytes, at most %d", name, b.Bytes, uint64(maxBuffer))
		}
		if all += b.Bytes; all > maxAll {
			return fmt.Errorf("all buffers together exceed %d bytes", uint64(maxAll))
		}
		if err := a.checkInit(b); err != nil {
			return fmt.Errorf("buffer %s: %w", name, err)
		}
	}
	for i := range a.Launches {
		if err := a.checkLaunch(&a.Launches[i]); err != nil {
			return fmt.Errorf("launch %d of %s: %w", i, a.Launches[i].Kernel, err)
		}
	}
	return nil
}

func (a *Application) checkInit(b Buffer) error {
	if n := uint64(len(b.Init.Data)); n > b.Bytes {
		return fmt.Errorf("%d bytes of contents for %d bytes", n, b.Bytes)
	}
	if n := uint64(len(b.Init.Pointers)) * 8; n > b.Bytes {
		return fmt.Errorf("%d bytes of pointers for %d bytes", n, b.Bytes)
	}
	for _, p := range b.Init.Pointers {
		if p == nil {
			continue
		}
		if err := a.checkPointer(*p); err != nil {
			return err
		}
	}
	return nil
}

func (a *Application) checkPointer(p Pointer) error {
	b, ok := a.Buffers[p.Buf]
	if !ok {
		return fmt.Errorf("no buffer %q", p.Buf)
	}
	if p.Offset > 0 && uint64(p.Offset) > b.Bytes {
		return fmt.Errorf("offset %d is behind buffer %s of %d bytes", p.Offset, p.Buf, b.Bytes)
	}
	return nil
}

func (a *Application) checkLaunch(l *Launch) error {
	if l.Kernel == "" {
		return errors.New("the kernel has no name")
	}
	if l.Module != "" && a.Modules[l.Module] == "" {
		return fmt.Errorf("no module %q", l.Module)
	}
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 {
			return fmt.Errorf("grid %v, block %v: a dimension is zero", l.Grid, l.Block)
		}
	}
	if l.Cluster == ([3]uint32{1, 1, 1}) {
		l.Cluster = [3]uint32{}
	}
	if l.Count == 0 {
		l.Count = 1
	}
	if l.Order != "" && l.Order != "any" {
		return fmt.Errorf(`order %q: want "any" or nothing`, l.Order)
	}
	if len(l.Args) > maxArgs {
		return fmt.Errorf("%d arguments, at most %d", len(l.Args), maxArgs)
	}
	for i, x := range l.Args {
		for _, p := range x.Patches {
			if err := a.checkPointer(p.Pointer); err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
		}
	}
	return nil
}

// Source reads the PTX of a module.
func (a *Application) Source(module string) ([]byte, error) {
	name := a.Modules[module]
	file := filepath.Join(filepath.Dir(a.File), filepath.FromSlash(name))
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		r = z
	}
	text, err := io.ReadAll(io.LimitReader(r, ptx.MaxSource+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return text, nil
}
