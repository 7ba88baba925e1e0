package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/embedded"
	"holdfast/internal/engine"
	"holdfast/internal/engine/driver"
	"holdfast/internal/engine/raw"
	"holdfast/internal/recording"
	"holdfast/internal/replay/command"
	"holdfast/internal/replay/verify"

	"github.com/spf13/cobra"
)

const replayLong = `Do what "holdfast record" has recorded again, without the program: memory at the
addresses and with the contents of the recording, the same code, the same work. On the
recorded input, and with no other, the same bits come out.

--in NAME=FILE gives an input other data: a .npy file of its type and shape, or, if its
type is not known (uint8), of as many bytes; any other file is taken as raw bytes.
Inputs that are not given have those of the recording. --out NAME=FILE writes an output,
as .npy if it is named so. "holdfast inspect" lists inputs and outputs.

A recording of several ranges has several entries, which share memory: one goes on from
what the one before has left. --entry says which; given several times, a run is all of
them in that order, and an entry may come more than once. Inputs and outputs are then
ENTRY/NAME, unless one entry alone has that name.

--base puts memory elsewhere; that takes a recording made with "record --relocatable".

With -n it runs several times. What one run leaves in memory is what the next one finds,
as if the program had gone on; --reset puts memory back before each. The outputs are those
of the last run; --same compares those of all runs.

--backend raw needs no CUDA library: it opens the device files itself, as hfreplay does.
What it cannot do (another driver, another GPU) it refuses by name. libcuda needs the
NVIDIA driver and a GPU of the recording's kind, soft runs recordings with PTX on the
software GPU. auto takes raw; if that refuses, libcuda, and says why; and soft where there
is no GPU. --step runs one word after the other, not by raw: slower, but a fault names its
kernel.

--retries N does a run that ends with a fault or takes too long again, up to N times, with
the bits that it would have had: what it starts from is copied before each run, on the
device with raw, else on the host. That is all memory but what the recording shows not to
be carried from run to run; --copy-every K copies it every K runs only, and does all since
then again. --json says what that cost. libcuda cannot end work that takes too long.

With --trust-key only a recording that is signed with that key runs ("holdfast sign"). The
signature is checked before a GPU is opened, and speaks for the recording: not for inputs,
nor for the state of --load-state.

--save-state FILE writes what runs carry on after the last one, with --save-every K after
every K. --load-state FILE goes on from there: -n counts the runs before, so the same
command does what is left.`

type replayFlags struct {
	command.Options
	backend string
	step    bool
}

const backendRaw = "raw"

func (a *app) replayVerb() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay MODEL.hfr [--entry ENTRY]… [--in NAME=FILE]… [--out NAME=FILE]… [-n N]",
		Short: "Run a recording without its program",
		Long:  replayLong,
		Example: `  holdfast replay resnet.hfr --in image=cat.npy --out scores=scores.npy
  holdfast replay resnet.hfr -n 1000 --json
  holdfast replay step.hfr -n 1000 --save-state s --save-every 50   # and, if it was killed:
  holdfast replay step.hfr -n 1000 --save-state s --save-every 50 --load-state s
  holdfast replay gpt.hfr --entry prefill --entry decode --out decode/logits=logits.npy`,
		Args: exactly("MODEL.hfr"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.replay(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().StringArrayVar(&f.Ins, "in", nil, "NAME=FILE: data of an input")
	cmd.Flags().StringArrayVar(&f.Outs, "out", nil, "NAME=FILE: where an output goes")
	cmd.Flags().IntVarP(&f.Runs, "runs", "n", 1, "how many times")
	cmd.Flags().BoolVar(&f.Reset, "reset", false, "put memory back before each run")
	cmd.Flags().BoolVar(&f.Same, "same", false,
		"end with an error if a run leaves other bits in an output than the first")
	cmd.Flags().BoolVar(&f.step, "step", false, "run one word after the other")
	entryFlag(cmd, &f.Entries, "which entry, if there are several; repeated, they run in that order")
	baseFlag(cmd, &f.Base)
	trustFlags(cmd, &f.Trust)
	cmd.Flags().DurationVar(&f.Timeout, "timeout", time.Minute, "how long one run may take")
	cmd.Flags().IntVar(&f.Retries, "retries", 0, "how often a run that fails is done again")
	cmd.Flags().IntVar(&f.CopyEvery, "copy-every", 0, "with --retries: runs from one copy to the next (default 1)")
	cmd.Flags().StringVar(&f.SaveState, "save-state", "", "`FILE` that memory goes to after the last run")
	cmd.Flags().IntVar(&f.SaveEvery, "save-every", 0, "with --save-state: after every so many runs, too")
	cmd.Flags().StringVar(&f.LoadState, "load-state", "", "`FILE` of --save-state to go on from")
	backendFlag(cmd, &f.backend)
	return cmd
}

// carried asks the verifier what runs of a recording both change and depend on.
func carried(f *recording.File) ([]recording.Span, bool, error) {
	r, err := verify.Verify(f)
	if err != nil {
		return nil, false, err
	}
	return verify.Carried(f, r)
}

func baseFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "base", "", "address where device memory is to begin, if the recording can be relocated")
}

func entryFlag(cmd *cobra.Command, to *[]string, help string) {
	cmd.Flags().StringArrayVar(to, "entry", nil, help)
}

// backendFlag says where a recording runs.
func backendFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "backend", "auto", "auto, libcuda, soft or raw")
	registerValues(cmd, "backend", "auto", "libcuda", "soft", backendRaw)
}

func (a *app) replay(ctx context.Context, path string, f replayFlags) error {
	var ways []command.Way
	if f.backend == "auto" && !f.step && exists("/dev/nvidiactl") {
		ways = append(ways, openRaw)
	}
	ways = append(ways, func() (engine.Backend, string, error) { return a.backend(ctx, f) })
	f.Carried = carried
	report, err := command.Replay(path, f.Options, ways...)
	var wrong *command.UsageError
	var fault *engine.Fault
	switch {
	case errors.As(err, &wrong):
		return usageErrorf("replay: %v", err)
	case errors.As(err, &fault) && fault.Word < 0 && !f.step:
		return fmt.Errorf("%w; --step says where", err)
	case err != nil:
		return err
	case a.json:
		return a.printJSON(report)
	}
	return report.Print(a.stderr, "holdfast")
}

// backend opens the one that is wanted, and says its name.
func (a *app) backend(ctx context.Context, f replayFlags) (engine.Backend, string, error) {
	if f.backend == backendRaw {
		return openRaw()
	}
	kind := map[string]string{"auto": "auto", "libcuda": gpuNative, "soft": gpuSoft}[f.backend]
	if kind == "" {
		return nil, "", usageErrorf("replay: --backend=%s: auto, libcuda, soft or raw", f.backend)
	}
	kind, err := gpuKind(kind)
	if err != nil {
		return nil, "", err
	}
	if kind == gpuNative {
		b, err := openNative(f.step)
		return b, "libcuda", err
	}
	if err := a.startSoftGPU(ctx); err != nil {
		return nil, "", err
	}
	b, stub, err := openStub(f.step)
	if err != nil {
		return nil, "", err
	}
	stub.Close()
	return b, "soft", nil
}

// startSoftGPU starts the software GPU where the stub looks for it.
func (a *app) startSoftGPU(ctx context.Context) error {
	dir, err := a.serverDir()
	if err != nil {
		return err
	}
	_, err = client.SoftGPU.Start(ctx, dir)
	return err
}

// openStub loads the stub once more: another copy, and so another address space, while the files of those before it
// are open. The loader takes a path that it knows for a library that it has.
func openStub(step bool) (*driver.Backend, *os.File, error) {
	stub, err := embedded.StubMemory()
	if err != nil {
		return nil, nil, err
	}
	b, err := driver.Open(driver.Config{Library: embedded.Path(stub), PTXOnly: true, Step: step})
	if err != nil {
		return nil, nil, errors.Join(err, stub.Close())
	}
	return b, stub, nil
}

func openRaw() (engine.Backend, string, error) {
	b, err := raw.Open(raw.Options{})
	if err != nil {
		return nil, backendRaw, err
	}
	return b, backendRaw, nil
}

// openNative opens the machine's driver. The loader mostly finds it by its name; looking for it takes longer.
func openNative(step bool) (engine.Backend, error) {
	b, err := driver.Open(driver.Config{Step: step})
	if err != nil {
		if path := findDriver(); path != "" {
			b, err = driver.Open(driver.Config{Library: path, Step: step})
		}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
