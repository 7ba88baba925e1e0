package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"holdfast/internal/recorder"
	"holdfast/internal/recording"
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
program can warm up. Memory is replayed at the addresses that it had. What cannot be
replayed (managed memory, kernels that are given host memory, host functions, CUDA
arrays) is refused by name; the program runs on to its end in any case. The format is
described in docs/recording-format.md.

The exit status is the program's, or 128 + the signal that ended it; 125 if holdfast
failed or nothing could be recorded, 126 if the program cannot be executed, 127 if it is
not found. Without a recording there is no file.`

type recordFlags struct {
	gpu, out, rangeName string
	nth                 int
	ins, outs           []string
}

func (a *app) recordVerb() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record -o MODEL.hfr [--range NAME] [--in NAME[:TYPE:SHAPE]]… [--out …]… -- PROGRAM [ARGUMENT…]",
		Short: "Record what a program computes, to replay it without the program",
		Long:  recordLong,
		Example: `  holdfast record -o resnet.hfr --in image:float32:1,3,224,224 --out scores:float32:1,1000 -- python3 infer.py
  holdfast inspect resnet.hfr
  holdfast replay resnet.hfr --in image=cat.npy --out scores=scores.npy`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usageErrorf("record: -o FILE is missing")
			}
			return a.recordRange(cmd.Context(), f, args)
		},
	}
	runsProgram(cmd, &f.gpu)
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "the file that is written")
	cmd.Flags().StringVar(&f.rangeName, "range", "holdfast", "name of the NVTX range")
	cmd.Flags().IntVar(&f.nth, "nth", 1, "which of the ranges of that name, from 1")
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

func parseHints(flag string, list []string) (out []recorder.Hint, err error) {
	for _, text := range list {
		h, err := parseHint(flag, text)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

func (a *app) recordRange(ctx context.Context, f recordFlags, args []string) error {
	kind, err := gpuKind(f.gpu)
	if err != nil {
		return err
	}
	ins, err := parseHints("in", f.ins)
	if err != nil {
		return err
	}
	outs, err := parseHints("out", f.outs)
	if err != nil {
		return err
	}
	if f.nth < 1 || f.rangeName == "" || len(f.rangeName) > 255 {
		return usageErrorf("record: --range %q --nth %d: a name of at most 255 bytes, and a number from 1",
			f.rangeName, f.nth)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(args[0], err)
	}
	w, err := recording.Create(f.out)
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	defer w.Abort()
	// Code goes through a file without a name: nothing is left of it whatever happens.
	spill, err := os.CreateTemp(filepath.Dir(f.out), ".holdfast-code-*")
	if err == nil {
		defer spill.Close()
		err = os.Remove(spill.Name())
	}
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	rec, err := recorder.NewRanges(w, spill, ins, outs, a.warnings())
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	libs, err := unpackLibraries()
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	status, err := a.listenTo(ctx, listened{kind: kind, path: path, args: args, env: map[string]string{
		"HOLDFAST_RANGE": f.rangeName, "HOLDFAST_RANGE_NTH": strconv.Itoa(f.nth), "NVTX_INJECTION64_PATH": libs.Shim,
	}}, rec.Serve)
	m, finish := rec.Finish()
	if err = errors.Join(err, finish); err != nil {
		return notRecorded(f, status, err)
	}
	declareConstant(w, m)
	size, err := w.Finish(m)
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	return a.recordedRange(f.out, size, m, status)
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
	var exit *exitError
	if errors.As(status, &exit) && exit.code > 128 && exit.code < 160 {
		return status
	}
	if errors.Is(err, recorder.ErrNoRange) {
		err = fmt.Errorf("%w: no NVTX range %q (number %d) while a CUDA context was there", err, f.rangeName, f.nth)
	}
	return &exitError{exitHoldfast, fmt.Errorf("%s is not written: %w", f.out, err)}
}

func (a *app) recordedRange(out string, size int64, m *recording.Manifest, status error) error {
	for _, w := range m.Warnings {
		fmt.Fprintf(a.stderr, "holdfast: %s\n", w)
	}
	e := m.Entries[0]
	if a.json {
		b := *a
		b.stdout = a.stderr // standard output is the program's
		b.printLine(struct {
			Event    string `json:"event"`
			File     string `json:"file"`
			Bytes    int64  `json:"bytes"`
			Launches int    `json:"launches"`
			Inputs   int    `json:"inputs"`
			Outputs  int    `json:"outputs"`
		}{"recorded", out, size, e.Launches, len(e.Inputs), len(e.Outputs)})
	} else {
		fmt.Fprintf(a.stderr, "holdfast: %s: %d launches of %d kernels, %d inputs, %d outputs, %s\n", out, e.Launches,
			len(m.Kernels), len(e.Inputs),
			len(e.Outputs), bytesText(uint64(size)))
	}
	return status
}
