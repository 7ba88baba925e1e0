package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/daemon/api"
	"holdfast/internal/param"
	"holdfast/internal/softgpu"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const emulateLong = `Run one kernel of a PTX file on the software GPU, in this process: no driver, no daemon.

Every parameter of the kernel takes one --arg, in order. TYPE:VALUE is a number of type
u8, u16, u32, u64, s8, s16, s32, s64, f16, f32 or f64; bytes:HEX is anything else.
buf:BYTES is a pointer to so many bytes of device memory, zero, or with =FILE filled from
a raw or a .npy file. No other memory lies near, so an access far outside is an error.
--out I=FILE writes the buffer of argument I (from 0) afterwards; a FILE that ends in .npy
has the type and shape of the .npy file the buffer came from, else it is raw.

--observe prints ranges of bytes of the buffers and the module's variables: which were
read, which were written, and which of those that were read had not been written before.
Blocks then run one after the other, and several times slower.

What the kernel prints goes to standard output, with --json to standard error. A kernel
that does something wrong is an error that names instruction, line, block and thread.`

const emulateExample = `  holdfast emulate vecadd.ptx --kernel vecadd --grid 4 --block 256 \
    --arg buf:4096=a.npy --arg buf:4096=b.npy --arg buf:4096 --arg u32:1024 --out 2=c.npy`

// What emulate accepts.
const (
	emulateLo       = 0x10_0000_0000 // where device memory begins
	emulateWindow   = 256 << 30
	maxBuffer       = 64 << 30
	defaultMaxInsts = 100_000_000_000
)

type emulateFlags struct {
	kernel, grid, block, cluster string
	shared                       uint32
	args, outs                   []string
	maxInsts                     uint64
	observe                      bool
}

func (a *app) emulateVerb() *cobra.Command {
	var f emulateFlags
	cmd := &cobra.Command{
		Use:     "emulate FILE --kernel NAME --grid X[,Y,Z] --block X[,Y,Z]",
		Short:   "Run a kernel of a PTX file on the software GPU",
		Long:    emulateLong,
		Example: emulateExample,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.emulate(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.kernel, "kernel", "", "name of the kernel")
	fl.StringVar(&f.grid, "grid", "", "blocks of the grid, `X[,Y,Z]`")
	fl.StringVar(&f.block, "block", "", "threads of a block, `X[,Y,Z]`")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory")
	fl.StringVar(&f.cluster, "cluster", "", "blocks of a cluster, `X[,Y,Z]` (default: what the kernel asks for)")
	fl.StringArrayVar(&f.args, "arg", nil, "the next argument: `TYPE:VALUE`, bytes:HEX, or buf:BYTES[=FILE]")
	fl.StringArrayVar(&f.outs, "out", nil, "write the buffer of argument I to FILE afterwards (`I=FILE`)")
	fl.Uint64Var(&f.maxInsts, "max-instructions", defaultMaxInsts,
		"stop with an error after so many thread instructions (0: never)")
	fl.BoolVar(&f.observe, "observe", false, "print which bytes of device memory were read and written, and which "+
		"were read first")
	return cmd
}

// dimensions reads X[,Y,Z].
func dimensions(flag, text string) ([3]uint32, error) {
	d := [3]uint32{1, 1, 1}
	if text == "" {
		return d, usageErrorf("--%s is missing", flag)
	}
	parts := strings.Split(text, ",")
	if len(parts) > 3 {
		return d, usageErrorf("--%s %s: more than three numbers", flag, text)
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 32)
		if err != nil || n == 0 {
			return d, usageErrorf("--%s %s: %q is not a number from 1", flag, text, p)
		}
		d[i] = uint32(n)
	}
	return d, nil
}

func (a *app) emulate(ctx context.Context, file string, f emulateFlags) error {
	if f.kernel == "" {
		return usageErrorf("--kernel is missing")
	}
	cfg := softgpu.LaunchConfig{SharedDynamic: f.shared, MaxInstructions: f.maxInsts, Printf: a.stdout,
		Cancel: ctx.Done()}
	if a.json {
		cfg.Printf = a.stderr
	}
	var err error
	if cfg.Grid, err = dimensions("grid", f.grid); err != nil {
		return err
	}
	if cfg.Block, err = dimensions("block", f.block); err != nil {
		return err
	}
	if f.cluster != "" {
		if cfg.Cluster, err = dimensions("cluster", f.cluster); err != nil {
			return err
		}
	}
	if f.observe {
		// The order of accesses is then the same each time.
		cfg.Observer, cfg.Deterministic = &softgpu.Observer{}, true
	}
	outs, err := outFiles(f.outs, f.args)
	if err != nil {
		return err
	}
	parsed, err := a.checkedPTX(file)
	if err != nil {
		return err
	}
	mod, err := softgpu.Load(parsed)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mod.Kernels(), func(k softgpu.KernelInfo) bool { return k.Name == f.kernel })
	if i < 0 {
		return fmt.Errorf("%s has no kernel %q; it has: %s", file, f.kernel, kernelNames(mod.Kernels()))
	}
	kernel := mod.Kernels()[i]
	if kernel.Unsupported != "" {
		return fmt.Errorf("%s: kernel %s: %s", file, kernel.Name, kernel.Unsupported)
	}
	gpu, err := newEmulated()
	if err != nil {
		return err
	}
	defer gpu.space.Close()
	base, err := gpu.alloc(mod.DataSize())
	if err != nil {
		return err
	}
	in, err := mod.Instantiate(gpu.space, base)
	if err != nil {
		return err
	}
	values, err := gpu.bind(kernel, f.args)
	if err != nil {
		return err
	}
	cfg.Params = make([]byte, kernel.ParamBytes)
	for i, p := range kernel.Params {
		copy(cfg.Params[p.Offset:], values[i].bytes)
	}
	stats, err := in.Launch(kernel.Name, cfg)
	if err != nil {
		return emulateError(err)
	}
	for _, o := range outs {
		if err := gpu.write(values[o.arg], o.file); err != nil {
			return fmt.Errorf("--out %d=%s: %w", o.arg, o.file, err)
		}
	}
	var accesses []access
	if f.observe {
		accesses = observed(cfg.Observer, places(mod, base, values))
	}
	return a.emulated(kernel.Name, stats, accesses)
}

func (a *app) emulated(kernel string, s softgpu.Stats, accesses []access) error {
	if a.json {
		return a.printJSON(struct {
			Kernel             string   `json:"kernel"`
			Blocks             uint64   `json:"blocks"`
			ThreadInstructions uint64   `json:"thread_instructions"`
			WarpInstructions   uint64   `json:"warp_instructions"`
			ElapsedMS          float64  `json:"elapsed_ms"`
			Accesses           []access `json:"accesses,omitempty"`
		}{kernel, s.Blocks, s.ThreadInstructions, s.WarpInstructions,
			float64(s.Elapsed.Microseconds()) / 1000, accesses})
	}
	for _, x := range accesses {
		if _, err := fmt.Fprintf(a.stdout, "%s: bytes %d to %d %s\n", x.Where, x.Offset, x.Offset+x.Bytes-1,
			strings.ReplaceAll(x.Kind, "_", " ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %d blocks, %d thread instructions (%d of warps) in %s\n",
		kernel, s.Blocks, s.ThreadInstructions, s.WarpInstructions, msText(float64(s.Elapsed.Microseconds())/1000))
	return err
}

// emulateError adds what a user can do about a fault.
func emulateError(err error) error {
	var fault *softgpu.Fault
	if !errors.As(err, &fault) {
		return err
	}
	e := &api.Error{Code: "fault", Message: err.Error()}
	if fault.Kind == softgpu.FaultLimit {
		e.Remedy = "--max-instructions sets the limit"
	}
	return e
}

func kernelNames(ks []softgpu.KernelInfo) string {
	var names []string
	for _, k := range ks {
		names = append(names, k.Name)
	}
	return someNames(names)
}

// someNames lists names, but not thousands.
func someNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if n := len(names) - 20; n > 0 {
		names = append(slices.Clone(names[:20]), fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// An outFile is one --out.
type outFile struct {
	arg  int
	file string
}

func outFiles(flags, args []string) ([]outFile, error) {
	var outs []outFile
	for _, text := range flags {
		index, file, ok := strings.Cut(text, "=")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || file == "" {
			return nil, usageErrorf("--out %s: want I=FILE, I the number of an argument from 0", text)
		}
		if i < 0 || i >= len(args) || !strings.HasPrefix(args[i], "buf:") {
			return nil, usageErrorf("--out %s: argument %d is not a buffer", text, i)
		}
		outs = append(outs, outFile{i, file})
	}
	return outs, nil
}

// An emulated GPU is the device memory of one run. Every allocation has pages of its own,
// with an unmapped one behind.
type emulatedGPU struct {
	space *softgpu.Space
	next  uint64
}

func newEmulated() (*emulatedGPU, error) {
	space, err := softgpu.NewSpace(emulateLo, emulateWindow)
	if err != nil {
		return nil, err
	}
	return &emulatedGPU{space: space, next: emulateLo}, nil
}

func (g *emulatedGPU) alloc(n uint64) (uint64, error) {
	size := (max(n, 1) + softgpu.PageSize - 1) &^ (softgpu.PageSize - 1)
	if n > maxBuffer || g.next+size+softgpu.PageSize > emulateLo+emulateWindow {
		return 0, fmt.Errorf("%d bytes of device memory: a buffer may have %d, all together %d", n, uint64(maxBuffer),
			uint64(emulateWindow))
	}
	fd, err := unix.MemfdCreate("holdfast-emulate", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("device memory: %w", err)
	}
	defer unix.Close(fd) // the mapping keeps it
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return 0, fmt.Errorf("%d bytes of device memory: %w", n, err)
	}
	va := g.next
	if err := g.space.Map(va, fd, 0, size, true); err != nil {
		return 0, err
	}
	g.next += size + softgpu.PageSize
	return va, nil
}

// A value is an argument: its bytes in the parameter buffer, and what they point to.
type value struct {
	bytes    []byte
	va, size uint64 // of a buffer
	npy      []byte // header of the .npy file that a buffer came from
}

// bind makes the arguments of a kernel.
func (g *emulatedGPU) bind(k softgpu.KernelInfo, args []string) ([]value, error) {
	if len(args) != len(k.Params) {
		var want []string
		for _, p := range k.Params {
			want = append(want, fmt.Sprintf("%s (%d bytes)", p.Name, p.Size))
		}
		return nil, usageErrorf("kernel %s has %d parameters, --arg is there %d times; it takes: %s", k.Name,
			len(k.Params), len(args), strings.Join(want, ", "))
	}
	var values []value
	for i, text := range args {
		v, err := g.argument(text)
		if err != nil {
			return nil, fmt.Errorf("argument %d, --arg %s: %w", i, text, err)
		}
		if p := k.Params[i]; len(v.bytes) != int(p.Size) {
			return nil, usageErrorf("argument %d, --arg %s: has %d bytes, parameter %s has %d", i, text, len(v.bytes),
				p.Name, p.Size)
		}
		values = append(values, v)
	}
	return values, nil
}

func (g *emulatedGPU) argument(text string) (value, error) {
	if kind, rest, _ := strings.Cut(text, ":"); kind == "buf" {
		return g.buffer(rest)
	}
	b, err := plainArgument(text)
	if err != nil {
		return value{}, &exitError{exitUsage, err}
	}
	return value{bytes: b}, nil
}

// plainArgument encodes TYPE:VALUE or bytes:HEX.
func plainArgument(text string) ([]byte, error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok {
		return nil, errors.New("want TYPE:VALUE or bytes:HEX, or buf:BYTES[=FILE] where there is memory")
	}
	if kind == "bytes" {
		return hex.DecodeString(rest)
	}
	return param.Encode(kind, rest)
}

// buffer allocates BYTES[=FILE].
func (g *emulatedGPU) buffer(text string) (value, error) {
	length, file, filled := strings.Cut(text, "=")
	n, err := strconv.ParseUint(length, 0, 64)
	if err != nil {
		return value{}, usageErrorf("%q is not a number of bytes", length)
	}
	va, err := g.alloc(n)
	if err != nil {
		return value{}, err
	}
	v := value{bytes: binary.LittleEndian.AppendUint64(nil, va), va: va, size: n}
	if !filled {
		return v, nil
	}
	mem, err := g.space.Bytes(va, n)
	if err != nil {
		return value{}, err
	}
	if v.npy, err = readBuffer(mem, file); err != nil {
		return value{}, err
	}
	return v, nil
}
