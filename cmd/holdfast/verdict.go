package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"

	"github.com/spf13/cobra"
)

const verdictLong = `Say of one launch, without running it, which bytes of device memory it may read and
write, and whether it is idempotent: whether it may be stopped anywhere and started
again with the same result.

Every parameter of the kernel takes one --arg, in order. TYPE:VALUE is a number of type
u8, u16, u32, u64, s8, s16, s32, s64, f16, f32 or f64, or an address of type ptr;
bytes:HEX is anything else. --alloc names the program's allocations, as far as they
matter: they bound what an access of unknown size may touch. --known says what memory
holds, as a file: indices and pointers that the kernel loads from there then have
bounds. Nothing but the launch may change it before the launch has ended.

With --json the result is one line:

  {"verdict":"idempotent|not-idempotent|unknown","reason":"…",
   "reads":[[lo,hi],…],"writes":[[lo,hi],…]}

A range is the bytes from lo to below hi. Where the verdict is unknown because an access
has no bound, ranges are a guess, and the reason says so.`

const verdictExample = `  holdfast verdict vecadd.ptx --kernel vecadd --grid 4 --block 256 \
    --arg ptr:0x10000000 --arg ptr:0x10001000 --arg ptr:0x10002000 --arg u32:1024 --json
  holdfast verdict gather.ptx --kernel gather --grid 4 --block 256 --known 0x10000000=indices.bin \
    --arg ptr:0x10000000 --arg ptr:0x10001000 --arg ptr:0x10002000 --arg u32:1024`

type verdictFlags struct {
	kernel, grid, block, cluster string
	shared                       uint32
	allocs, args, known          []string
	explain                      bool
}

func (a *app) verdictVerb() *cobra.Command {
	var f verdictFlags
	cmd := &cobra.Command{
		Use:     "verdict FILE --kernel NAME --grid X[,Y,Z] --block X[,Y,Z]",
		Short:   "Say what a launch reads and writes, and whether it is idempotent",
		Long:    verdictLong,
		Example: verdictExample,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.verdict(args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.kernel, "kernel", "", "name of the kernel")
	fl.StringVar(&f.grid, "grid", "", "blocks of the grid, `X[,Y,Z]`")
	fl.StringVar(&f.block, "block", "", "threads of a block, `X[,Y,Z]`")
	fl.StringVar(&f.cluster, "cluster", "", "blocks of a cluster, `X[,Y,Z]` (default: none)")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory")
	fl.StringArrayVar(&f.allocs, "alloc", nil, "an allocation of device memory, `ADDR+BYTES`")
	fl.StringArrayVar(&f.known, "known", nil, "what memory holds from an address on, `ADDR=FILE`")
	fl.StringArrayVar(&f.args, "arg", nil, "the next argument: `TYPE:VALUE` or bytes:HEX")
	fl.BoolVar(&f.explain, "explain", false, "print how the range of each access was found")
	return cmd
}

func (a *app) verdict(file string, f verdictFlags) error {
	if f.kernel == "" {
		return usageErrorf("--kernel is missing")
	}
	l := &footprint.Launch{Shared: f.shared}
	var err error
	if l.Grid, err = dimensions("grid", f.grid); err != nil {
		return err
	}
	if l.Block, err = dimensions("block", f.block); err != nil {
		return err
	}
	if f.cluster != "" {
		if l.Cluster, err = dimensions("cluster", f.cluster); err != nil {
			return err
		}
	}
	if l.Allocs, err = allocations(f.allocs); err != nil {
		return err
	}
	if l.Known, err = contents(f.known); err != nil {
		return err
	}
	m, err := a.checkedPTX(file)
	if err != nil {
		return err
	}
	list, err := summarise.Module(m)
	if err != nil {
		return a.ptxErrors(err)
	}
	i := slices.IndexFunc(list, func(s *footprint.Summary) bool { return s.Name == f.kernel })
	if i < 0 {
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		return fmt.Errorf("%s has no kernel %q; it has: %s", file, f.kernel, someNames(names))
	}
	s := list[i]
	if l.Params, err = parameters(s, f.args); err != nil {
		return err
	}
	if f.explain && !a.json {
		return s.Explain(l, a.stdout)
	}
	var in footprint.Instance
	s.Evaluate(l, &in)
	return a.printVerdict(&in)
}

// allocations reads ADDR+BYTES, and sorts.
func allocations(flags []string) ([]footprint.Range, error) {
	var out []footprint.Range
	for _, text := range flags {
		at, size, ok := strings.Cut(text, "+")
		lo, err := strconv.ParseUint(at, 0, 64)
		n, err2 := strconv.ParseUint(size, 0, 64)
		if !ok || err != nil || err2 != nil || n == 0 || lo+n < lo {
			return nil, usageErrorf("--alloc %s: want ADDR+BYTES", text)
		}
		out = append(out, footprint.Range{Lo: lo, Hi: lo + n})
	}
	slices.SortFunc(out, func(a, b footprint.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	for i := 1; i < len(out); i++ {
		if out[i].Lo < out[i-1].Hi {
			return nil, usageErrorf("--alloc: %#x+%d and %#x+%d overlap", out[i-1].Lo, out[i-1].Hi-out[i-1].Lo,
				out[i].Lo, out[i].Hi-out[i].Lo)
		}
	}
	return out, nil
}

// contents reads ADDR=FILE, and sorts.
func contents(flags []string) ([]footprint.Known, error) {
	var out []footprint.Known
	for _, text := range flags {
		at, file, ok := strings.Cut(text, "=")
		lo, err := strconv.ParseUint(at, 0, 64)
		if !ok || err != nil || file == "" {
			return nil, usageErrorf("--known %s: want ADDR=FILE", text)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--known %s: %w", text, err)
		}
		n := uint64(len(b))
		if n == 0 || lo+n < lo {
			return nil, usageErrorf("--known %s: the file has %d bytes", text, n)
		}
		out = append(out, footprint.Known{Range: footprint.Range{Lo: lo, Hi: lo + n},
			Contents: footprint.NewContents(b, n)})
	}
	slices.SortFunc(out, func(a, b footprint.Known) int { return cmp.Compare(a.Lo, b.Lo) })
	for i := 1; i < len(out); i++ {
		if out[i].Lo < out[i-1].Hi {
			return nil, usageErrorf("--known: %#x+%d and %#x+%d overlap", out[i-1].Lo, out[i-1].Hi-out[i-1].Lo,
				out[i].Lo, out[i].Hi-out[i].Lo)
		}
	}
	return out, nil
}

// parameters lays out arguments as a kernel wants them.
func parameters(s *footprint.Summary, args []string) ([]byte, error) {
	if len(args) != len(s.Params) {
		var want []string
		for _, p := range s.Params {
			want = append(want, fmt.Sprintf("%s (%d bytes)", p.Name, p.Size))
		}
		return nil, usageErrorf("kernel %s has %d parameters, --arg is there %d times; it takes: %s", s.Name,
			len(s.Params), len(args), strings.Join(want, ", "))
	}
	var out []byte
	for i, p := range s.Params {
		b, err := plainArgument(args[i])
		if err != nil {
			return nil, &exitError{exitUsage, fmt.Errorf("argument %d, --arg %s: %w", i, args[i], err)}
		}
		if len(b) != p.Size {
			return nil, usageErrorf("argument %d, --arg %s: has %d bytes, parameter %s has %d", i, args[i], len(b),
				p.Name, p.Size)
		}
		out = append(out, make([]byte, p.Off-len(out))...)
		out = append(out, b...)
	}
	return out, nil
}

func (a *app) printVerdict(in *footprint.Instance) error {
	if a.json {
		return a.printLine(struct {
			Verdict string      `json:"verdict"`
			Reason  string      `json:"reason"`
			Reads   [][2]uint64 `json:"reads"`
			Writes  [][2]uint64 `json:"writes"`
		}{in.Verdict.String(), in.Reason(), bounds(in.Reads), bounds(in.Writes)})
	}
	var errs []error
	say := func(format string, args ...any) {
		_, err := fmt.Fprintf(a.stdout, format, args...)
		errs = append(errs, err)
	}
	say("%s: %s\n", in.Verdict, in.Reason())
	list := func(what string, ranges []footprint.Range, unknown bool) {
		for _, r := range ranges {
			say("%s %#x to %#x (%d bytes)\n", what, r.Lo, r.Hi-1, r.Hi-r.Lo)
		}
		if unknown {
			say("%s more than is known\n", what)
		}
	}
	list("reads", in.Reads, in.ReadsUnknown)
	list("writes", in.Writes, in.WritesUnknown)
	return errors.Join(errs...)
}

func bounds(ranges []footprint.Range) [][2]uint64 {
	out := [][2]uint64{}
	for _, r := range ranges {
		out = append(out, [2]uint64{r.Lo, r.Hi})
	}
	return out
}
