package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/recorder"
	"holdfast/internal/recording"
	"holdfast/internal/recording/relocate"
	"holdfast/internal/replay/verify"

	"github.com/spf13/cobra"
)

const recordLong = `Run a CUDA program and record what it does on the GPU within an NVTX range, so that
"holdfast replay" can do it again without the program: the code that ran, launches and
copies with their order, and what memory held when the range began.

The program marks the range: nvtxRangePushA("holdfast") and nvtxRangePop(), in PyTorch
"with torch.cuda.nvtx.range('holdfast'):". What it copies to the device within the range
are the inputs, what it copies back the outputs; so those copies belong into the range.
They are named in0, in1, …, out0, out1, … in their order, or as --in and --out say, which
also give them a type and a shape: --in image:float32:1,3,224,224.

If the range comes more than once, the first is recorded; --nth takes another, so that a
program can warm up.

Several ranges (--range prefill --range decode) become several entries of one recording,
which share memory: each goes on from what the one before has left. Recording begins with
the first-named range (--nth: which one of that name); of each other name the first that
comes after that is recorded. Between them nothing may write device memory, and they may
not lie within each other. --in and --out then say of which range:
--in prefill/ids:int64:1,16.

Memory is replayed at the addresses that it had. --relocatable runs the program twice,
with its memory elsewhere the second time, and finds out by that which words are
addresses: then "holdfast replay --base" may put it elsewhere. The program must do the
same both times, on the same input. If that cannot be shown, the recording is written all
the same, pinned to its addresses, and says why.

What cannot be
replayed (managed memory, kernels that are given host memory, host functions, CUDA
arrays) is refused by name; the program runs on to its end in any case. The format is
described in docs/recording-format.md.

The exit status is the program's, or 128 + the signal that ended it; 125 if holdfast
failed or nothing could be recorded, 126 if the program cannot be executed, 127 if it is
not found. Without a recording there is no file.`

type recordFlags struct {
	gpu, out  string
	ranges    []string
	nth       int
	ins, outs []string
	relocate  bool
}

func (a *app) recordVerb() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use: "record -o MODEL.hfr [--range NAME]… [--in [RANGE/]NAME[:TYPE:SHAPE]]… [--out …]… " +
			"-- PROGRAM [ARGUMENT…]",
		Short: "Record what a program computes, to replay it without the program",
		Long:  recordLong,
		Example: `  holdfast record -o resnet.hfr --in image:float32:1,3,224,224 --out scores:float32:1,1000 -- python3 infer.py
  holdfast inspect resnet.hfr
  holdfast replay resnet.hfr --in image=cat.npy --out scores=scores.npy
  holdfast record -o gpt.hfr --range prefill --range decode -- python3 generate.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usageErrorf("record: -o FILE is missing")
			}
			return a.recordRange(cmd.Context(), f, args)
		},
	}
	runsProgram(cmd, &f.gpu)
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "the file that is written")
	cmd.Flags().StringArrayVar(&f.ranges, "range", []string{"holdfast"}, "name of an NVTX range")
	cmd.Flags().IntVar(&f.nth, "nth", 1, "which of the ranges of the first name, from 1")
	cmd.Flags().BoolVar(&f.relocate, "relocatable", false,
		"run the program twice, so that memory can be elsewhere in a replay")
	cmd.Flags().StringArrayVar(&f.ins, "in", nil, "name, and type and shape, of the next input")
	cmd.Flags().StringArrayVar(&f.outs, "out", nil, "name, and type and shape, of the next output")
	return cmd
}

// parseHint reads NAME or NAME:TYPE:SHAPE, a shape being numbers with commas between them, or nothing.
func parseHint(flag, text string) (recorder.Hint, error) {
	name, rest, typed := strings.Cut(text, ":")
	h := recorder.Hint{Name: name, Shape: []int{}}
	if name == "" || strings.ContainsAny(name, "= \t\n/") {
		return h, usageErrorf("record: --%s %s: a name without blanks, \"=\" and \"/\"", flag, text)
	}
	if !typed {
		return h, nil
	}
	dtype, shape, _ := strings.Cut(rest, ":")
	h.DType = dtype
	for _, d := range strings.Split(shape, ",") {
		if shape == "" {
			break
		}
		n, err := strconv.Atoi(d)
		if err != nil {
			return h, usageErrorf("record: --%s %s: %q is no dimension", flag, text, d)
		}
		h.Shape = append(h.Shape, n)
	}
	if _, err := recording.ArrayBytes(h.DType, h.Shape); err != nil {
		return h, usageErrorf("record: --%s %s: %v", flag, text, err)
	}
	return h, nil
}

// wanted is the ranges, each with its hints.
func (f *recordFlags) wanted() ([]recorder.Wanted, error) {
	const most = 16 // the same limit is in shim/range.c
	var list []recorder.Wanted
	for _, name := range f.ranges {
		known := slices.ContainsFunc(list, func(w recorder.Wanted) bool { return w.Name == name })
		if name == "" || len(name) > 255 || strings.Contains(name, "\n") || known || len(list) == most || f.nth < 1 {
			return nil, usageErrorf("record: --range %q --nth %d: at most %d different names, each a line of at most "+
				"255 bytes, and a number from 1", name, f.nth, most)
		}
		list = append(list, recorder.Wanted{Name: name})
	}
	for _, text := range f.ins {
		w, h, err := hintOf(list, "in", text)
		if err != nil {
			return nil, err
		}
		w.In = append(w.In, h)
	}
	for _, text := range f.outs {
		w, h, err := hintOf(list, "out", text)
		if err != nil {
			return nil, err
		}
		w.Out = append(w.Out, h)
	}
	return list, nil
}

// hintOf reads a hint, and finds the range that it is for.
func hintOf(list []recorder.Wanted, flag, text string) (*recorder.Wanted, recorder.Hint, error) {
	for i := range list {
		if rest, ok := strings.CutPrefix(text, list[i].Name+"/"); ok {
			h, err := parseHint(flag, rest)
			return &list[i], h, err
		}
	}
	if len(list) > 1 {
		return nil, recorder.Hint{}, usageErrorf("record: --%s %s: of which range? --%s %s/%s", flag, text, flag,
			list[0].Name, text)
	}
	h, err := parseHint(flag, text)
	return &list[0], h, err
}

func (a *app) recordRange(ctx context.Context, f recordFlags, args []string) error {
	kind, err := gpuKind(f.gpu)
	if err != nil {
		return err
	}
	wanted, err := f.wanted()
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(args[0], err)
	}
	base, second := uint64(0), uint64(0)
	if f.relocate {
		base, second = twoBases(kind)
	}
	run := recordedRun{recordFlags: f, kind: kind, path: path, args: args, wanted: wanted}
	w, m, status, err := a.recordOnce(ctx, run, f.out, base)
	if err != nil {
		return notRecorded(f, status, err)
	}
	defer w.Abort()
	if f.relocate {
		if err := a.relocate(ctx, run, second, w, m); err != nil {
			return notRecorded(f, err, err)
		}
	}
	declareConstant(w, m)
	size, err := w.Finish(m)
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	return a.recordedRange(f.out, size, m, status)
}

// A recordedRun is what is run, once or twice.
type recordedRun struct {
	recordFlags
	kind, path string
	args       []string
	wanted     []recorder.Wanted
}

// twoBases is where device memory begins in the first and in the second run. No word of an address in one may be taken
// for one in the other, nor half a word; and it should be no number that programs have otherwise.
func twoBases(kind string) (first, second uint64) {
	if kind == gpuSoft { // whose addresses are the 256 GiB from 2^47 on
		return 0x8010_0000_0000, 0x8022_3460_0000
	}
	return 0x1a5c_c000_0000, 0x1b80_0560_0000
}

// recordOnce runs the program and records it into a file that is to be called out. base, if it is not 0, is where its
// memory begins. status is how the program has ended.
func (a *app) recordOnce(ctx context.Context, r recordedRun, out string, base uint64) (w *recording.Writer,
	m *recording.Manifest, status, err error) {
	if w, err = recording.Create(out); err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	// Code goes through a file without a name: nothing is left of it whatever happens.
	spill, err := os.CreateTemp(filepath.Dir(out), ".holdfast-code-*")
	if err == nil {
		defer spill.Close()
		err = os.Remove(spill.Name())
	}
	if err != nil {
		return nil, nil, nil, err
	}
	rec, err := recorder.NewRanges(w, spill, r.wanted, a.warnings())
	if err != nil {
		return nil, nil, nil, err
	}
	libs, err := unpackLibraries()
	if err != nil {
		return nil, nil, nil, err
	}
	env := map[string]string{"HOLDFAST_RANGE": strings.Join(r.ranges, "\n"),
		"HOLDFAST_RANGE_NTH": strconv.Itoa(r.nth), "NVTX_INJECTION64_PATH": libs.Shim, "HOLDFAST_RANGE_BASE": ""}
	if base != 0 {
		env["HOLDFAST_RANGE_BASE"] = strconv.FormatUint(base, 16)
	}
	status, err = a.listenTo(ctx, listened{kind: r.kind, path: r.path, args: r.args, env: env}, rec.Serve)
	m, finish := rec.Finish()
	err = errors.Join(err, finish)
	return w, m, status, err
}

// relocate runs the program once more, with memory at another base, and has m say which words are addresses, or why
// that is not known. Its error says that the user has ended it, or that a file cannot be read.
func (a *app) relocate(ctx context.Context, r recordedRun, base uint64, w *recording.Writer,
	m *recording.Manifest) error {
	again, second, status, err := a.recordOnce(ctx, r, r.out, base)
	if interrupted(status) {
		return status
	}
	var why *relocate.Pinned
	if err != nil {
		why = &relocate.Pinned{Reason: fmt.Sprintf("the second run could not be recorded: %v", err)}
	} else {
		defer again.Abort()
		t, err := compared(w, m, again, second)
		switch {
		case err == nil:
			b := recording.AppendPatches(nil, t.Patches)
			if len(b) > recording.MaxTable {
				why = &relocate.Pinned{Reason: fmt.Sprintf("a table of its addresses would have %d bytes, limit %d",
					len(b), recording.MaxTable)}
				break
			}
			table := w.Put(b)
			m.Relocations = &table
			if t.Differs > 0 {
				m.Warnings = append(m.Warnings, fmt.Sprintf("%d bytes of memory held something else in the second "+
					"run, which is no address: a replay has what the first run had", t.Differs))
			}
		case !errors.As(err, &why):
			return err
		}
	}
	if why != nil {
		m.Warnings = append(m.Warnings, "pinned to its addresses: "+why.Reason)
	}
	return nil
}

// compared compares two recordings that are being made.
func compared(w *recording.Writer, m *recording.Manifest, again *recording.Writer,
	second *recording.Manifest) (*relocate.Table, error) {
	a, err := w.Preview(m)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := again.Preview(second)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return relocate.Find(a, b)
}

// interrupted says whether a program was ended by a signal.
func interrupted(status error) bool {
	var exit *exitError
	return errors.As(status, &exit) && exit.code > 128 && exit.code < 160
}

// declareConstant says of memory that no work of the recording can write that it is constant: weights, mostly. It is
// known only of code that can be read; all other memory stays live.
func declareConstant(w *recording.Writer, m *recording.Manifest) {
	f, err := w.Preview(m)
	if err != nil {
		return // and Finish says why
	}
	defer f.Close()
	for _, i := range verify.Constants(f) {
		m.Memory[i].Class = recording.Constant
	}
}

// notRecorded says why there is no recording. A program that was interrupted needs no explanation.
func notRecorded(f recordFlags, status, err error) error {
	if interrupted(status) {
		return status
	}
	if errors.Is(err, recorder.ErrNoRange) {
		err = fmt.Errorf("%w: no NVTX range of that name while a CUDA context was there (of %q it is number %d)", err,
			f.ranges[0], f.nth)
	}
	return &exitError{exitHoldfast, fmt.Errorf("%s is not written: %w", f.out, err)}
}

func (a *app) recordedRange(out string, size int64, m *recording.Manifest, status error) error {
	for _, w := range m.Warnings {
		fmt.Fprintf(a.stderr, "holdfast: %s\n", w)
	}
	if a.json {
		type entry struct {
			Name     string `json:"name"`
			Launches int    `json:"launches"`
			Inputs   int    `json:"inputs"`
			Outputs  int    `json:"outputs"`
		}
		var list []entry
		for _, e := range m.Entries {
			list = append(list, entry{e.Name, e.Launches, len(e.Inputs), len(e.Outputs)})
		}
		b := *a
		b.stdout = a.stderr // standard output is the program's
		b.printLine(struct {
			Event       string  `json:"event"`
			File        string  `json:"file"`
			Bytes       int64   `json:"bytes"`
			Entries     []entry `json:"entries"`
			Relocatable bool    `json:"relocatable"`
		}{"recorded", out, size, list, m.Relocations != nil})
		return status
	}
	if len(m.Entries) == 1 {
		e := m.Entries[0]
		fmt.Fprintf(a.stderr, "holdfast: %s: %d launches of %d kernels, %d inputs, %d outputs, %s\n", out, e.Launches,
			len(m.Kernels), len(e.Inputs), len(e.Outputs), bytesText(uint64(size)))
		return status
	}
	for _, e := range m.Entries {
		fmt.Fprintf(a.stderr, "holdfast: entry %s: %d launches, %d inputs, %d outputs\n", e.Name, e.Launches,
			len(e.Inputs), len(e.Outputs))
	}
	fmt.Fprintf(a.stderr, "holdfast: %s: %d entries, %d kernels, %s\n", out, len(m.Entries), len(m.Kernels),
		bytesText(uint64(size)))
	return status
}
