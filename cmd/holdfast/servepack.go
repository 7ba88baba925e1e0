package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/driver"
	"holdfast/internal/engine/raw"
	"holdfast/internal/pack"
	packing "holdfast/internal/pack/machine"
	"holdfast/internal/pack/panel"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
	"holdfast/internal/serve"
)

// A packedModel is a model of serve --pack, as the configuration file has it.
type packedModel struct {
	Name      string  `json:"name,omitempty"` // default: the file's, without ".hfr"
	File      string  `json:"file"`
	Entry     string  `json:"entry,omitempty"`     // of several
	SLO       string  `json:"slo,omitempty"`       // as Go writes durations; none: as soon as others allow it
	Weight    float64 `json:"weight,omitempty"`    // default 1
	Instances int     `json:"instances,omitempty"` // default 1
	Queue     int     `json:"queue,omitempty"`     // default 64
	Keep      bool    `json:"keep,omitempty"`      // requests build on what earlier ones left
	Reset     bool    `json:"reset,omitempty"`     // memory is put back before each request
}

// A packConfig is the configuration file of serve --pack.
type packConfig struct {
	Models        []packedModel `json:"models"`
	Oversubscribe float64       `json:"oversubscribe,omitempty"` // see pack.Config
	Sure          float64       `json:"sure,omitempty"`
	Longest       string        `json:"longest,omitempty"` // of a part
}

// Defaults of serve --pack: what an H200 has answered the most requests in time with (docs/results/pack.md).
const (
	packSure    = 0.3
	packLongest = 500 * time.Microsecond
)

func readPackConfig(path string) (c packConfig, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, usageErrorf("%s: %v", path, err)
	}
	return c, nil
}

// parsePacked reads [NAME=]FILE[=OPTION:VALUE,…].
func parsePacked(arg string) (packedModel, error) {
	m := packedModel{File: arg}
	if at := strings.LastIndexByte(arg, '='); at >= 0 && arePackOptions(arg[at+1:]) {
		m.File = arg[:at]
		for _, option := range strings.Split(arg[at+1:], ",") {
			if err := m.set(option); err != nil {
				return m, usageErrorf("serve: %s: %v", arg, err)
			}
		}
	}
	if name, file, named := strings.Cut(m.File, "="); named {
		m.Name, m.File = name, file
	}
	return m, nil
}

func arePackOptions(text string) bool {
	key, _, _ := strings.Cut(text, ":")
	key, _, _ = strings.Cut(key, ",")
	return slices.Contains([]string{"slo", "weight", "instances", "queue", "keep", "reset", "entry"}, key)
}

func (m *packedModel) set(option string) (err error) {
	key, value, _ := strings.Cut(option, ":")
	switch key {
	case "slo":
		m.SLO = value
	case "weight":
		m.Weight, err = strconv.ParseFloat(value, 64)
	case "instances":
		m.Instances, err = strconv.Atoi(value)
	case "queue":
		m.Queue, err = strconv.Atoi(value)
	case "entry":
		m.Entry = value
	case "keep":
		m.Keep = true
	case "reset":
		m.Reset = true
	default:
		err = fmt.Errorf("%q: slo, weight, instances, queue, keep, reset or entry", key)
	}
	return err
}

// packed is the machine behind serve --pack, and what it serves.
type packed struct {
	m      *packing.Machine
	gpu    engine.Sharer
	undo   []func() error
	server *serve.Server
	dir    string                                     // of models that may be loaded by name; "": none
	read   func(path string) (*recording.File, error) // opens recordings, by --trust-key

	mu     sync.Mutex
	taken  []recording.Span // where one context has all of them
	shared bool
	files  map[string]*recording.File
}

// servePacked brings up a machine with the models that are named.
func (a *app) servePacked(ctx context.Context, args []string, f serveFlags, log *slog.Logger) (_ *packed, err error) {
	var c packConfig
	if f.config != "" {
		if c, err = readPackConfig(f.config); err != nil {
			return nil, err
		}
	}
	for _, arg := range args {
		m, err := parsePacked(arg)
		if err != nil {
			return nil, err
		}
		c.Models = append(c.Models, m)
	}
	if len(c.Models) == 0 && f.repository == "" {
		return nil, usageErrorf("serve: no model is named")
	}
	p := &packed{dir: f.repository, read: f.trusted, files: map[string]*recording.File{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := p.open(ctx, a, f); err != nil {
		return nil, err
	}
	longest := packLongest
	if c.Longest != "" {
		if longest, err = time.ParseDuration(c.Longest); err != nil {
			return nil, usageErrorf("%s: longest: %v", f.config, err)
		}
	}
	if c.Sure == 0 {
		c.Sure = packSure
	}
	p.m, err = packing.New(packing.Config{Pack: pack.Config{Oversubscribe: c.Oversubscribe, Sure: c.Sure},
		GPUs: []engine.Sharer{p.gpu}, Longest: longest, Patience: f.Timeout, Log: log})
	if err != nil {
		return nil, err
	}
	if p.server, err = serve.New(nil, version, log); err != nil {
		return nil, err
	}
	p.server.Handle("/pack/", panel.New(p.m))
	p.server.Metrics(func(w io.Writer) {
		if state, err := p.m.State(); err == nil {
			err = panel.WriteMetrics(w, state)
			if err != nil {
				log.Warn("metrics", "err", err)
			}
		}
	})
	if p.dir != "" {
		p.server.Manage(p)
	}
	for _, m := range c.Models {
		m.Reset = m.Reset || f.Reset
		if err := p.add(m); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// open opens the GPU.
func (p *packed) open(ctx context.Context, a *app, f serveFlags) error {
	if f.backend == backendRaw || f.backend == "auto" && exists("/dev/nvidiactl") {
		b, err := raw.Open(raw.Options{})
		if err == nil {
			p.gpu, p.undo = b, append(p.undo, b.Close)
			return nil
		}
		if f.backend == backendRaw {
			return err
		}
		fmt.Fprintf(a.stderr, "holdfast: not without a CUDA library: %v\n", err)
	}
	kind, err := gpuKind(map[string]string{"auto": "auto", "libcuda": gpuNative, "soft": gpuSoft}[f.backend])
	if err != nil {
		return err
	}
	open := func() (*driver.Backend, error) {
		b, err := openNative(false)
		if err != nil {
			return nil, err
		}
		return b.(*driver.Backend), nil
	}
	if p.shared = kind == gpuNative; !p.shared {
		if err := a.startSoftGPU(ctx); err != nil {
			return err
		}
		open = p.openCopy
	}
	b, err := driver.Share(open)
	if err != nil {
		return err
	}
	p.gpu, p.undo = b, append(p.undo, b.Close)
	return nil
}

// openCopy opens the software GPU with a library of its own.
func (p *packed) openCopy() (*driver.Backend, error) {
	b, stub, err := openStub(false)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undo = append(p.undo, stub.Close)
	return b, nil
}

// add serves a model from now on.
func (p *packed) add(c packedModel) (err error) {
	if c.Name == "" {
		c.Name = strings.TrimSuffix(filepath.Base(c.File), ".hfr")
	}
	if c.Name == "" || strings.ContainsAny(c.Name, "/\"\\ \n") {
		return usageErrorf("serve: %q cannot be a model's name: NAME=%s", c.Name, c.File)
	}
	var slo time.Duration
	if c.SLO != "" {
		if slo, err = time.ParseDuration(c.SLO); err != nil || slo <= 0 {
			return usageErrorf("serve: %s: a deadline of %q", c.Name, c.SLO)
		}
	}
	file, err := p.read(c.File)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", c.File, errors.Join(err, file.Close()))
		}
	}()
	entry, err := file.Manifest.Entry(c.Entry)
	if err != nil {
		return err
	}
	model, err := serve.NewModel(c.Name, file, entry, &packedAnswerer{p.m, c.Name})
	if err != nil {
		return err
	}
	tenant := pack.Tenant{Name: c.Name, SLO: slo, Weight: c.Weight, Instances: c.Instances, Queue: c.Queue}
	err = p.m.Add(packing.Spec{Tenant: tenant, Keep: c.Keep, Reset: c.Reset,
		Load: func(on engine.Sharer) (packing.Copy, error) { return p.load(on, file, entry.Name) }})
	if err != nil {
		return err
	}
	if err := p.server.Add(model); err != nil {
		return errors.Join(err, p.m.Drain(c.Name))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[c.Name] = file
	return nil
}

// load puts a copy on an address space.
func (p *packed) load(on engine.Sharer, f *recording.File, entry string) (packing.Copy, error) {
	at := f
	if p.shared {
		p.mu.Lock()
		var err error
		at, err = beside(f, &p.taken)
		p.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return replay.DivideOne(on, at, entry)
}

// Load serves a model of the directory.
func (p *packed) Load(name string, parameters map[string]string) error {
	c := packedModel{Name: name, File: filepath.Join(p.dir, name+".hfr")}
	for key, value := range parameters {
		if err := c.set(key + ":" + value); err != nil {
			return err
		}
	}
	return p.add(c)
}

// Unload answers what was taken in, and serves a model no more.
func (p *packed) Unload(name string) error {
	p.server.Remove(name)
	if err := p.m.Drain(name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[name]
	delete(p.files, name)
	if f == nil {
		return nil
	}
	return f.Close()
}

// Models are those of the directory.
func (p *packed) Models() ([]string, error) {
	list, err := filepath.Glob(filepath.Join(p.dir, "*.hfr"))
	for i := range list {
		list[i] = strings.TrimSuffix(filepath.Base(list[i]), ".hfr")
	}
	return list, err
}

func (p *packed) close() error {
	var errs []error
	if p.m != nil {
		errs = append(errs, p.m.Close())
	}
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	for _, f := range p.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// A packedAnswerer has a machine answer.
type packedAnswerer struct {
	m    *packing.Machine
	name string
}

// Answer has the machine answer, or refuse.
func (p *packedAnswerer) Answer(ctx context.Context, in map[string][]byte, want []string,
	within time.Duration) (map[string][]byte, serve.Took, error) {
	a, err := p.m.Infer(ctx, packing.Request{Tenant: p.name, In: in, Want: want, Within: within})
	var refused *packing.Refused
	switch {
	case errors.As(err, &refused):
		return nil, serve.Took{}, &serve.Refused{Why: refused.Error()}
	case errors.Is(err, packing.ErrFaulty), errors.Is(err, packing.ErrClosed):
		return nil, serve.Took{}, fmt.Errorf("%w: %w", serve.ErrDead, err)
	}
	return a.Out, serve.Took{Queue: a.Queue, Run: a.Run}, err
}

// Ready says whether the model has failed.
func (p *packedAnswerer) Ready() error { return p.m.Ready(p.name) }
