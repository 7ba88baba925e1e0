// Command hfreplay runs recordings of "holdfast record" without the program that they were made of, and without a CUDA
// library: it opens the device files itself (internal/engine/raw). It is one static binary.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
	"holdfast/internal/replay/command"
)

const help = `hfreplay runs a recording that "holdfast record" has made, on a GPU, without the program
and without CUDA: all it needs are the device files of NVIDIA's open kernel modules
(/dev/nvidiactl, /dev/nvidia0, /dev/nvidia-uvm).

Usage:
  hfreplay MODEL.hfr [--in NAME=FILE]... [--out NAME=FILE]... [-n N]
  hfreplay pack MODEL.hfx -o FILE     (hfreplay pack --help)

Examples:
  hfreplay vit.hfr --in image=cat.npy --out scores=scores.npy
  hfreplay vit.hfr -n 1000 --json
  hfreplay gpt.hfr --entry prefill --entry decode --out decode/logits=logits.npy

Inputs that are not given have the data of the recording. Files are .npy, of the type and
shape of the input or output, or raw bytes. "holdfast inspect MODEL.hfr" lists both.

Entries share memory: one goes on from what the one before has left. A run is all that are
named, in their order; an entry may be named more than once.

With --trust-key only a recording that is signed with that key runs ("holdfast sign").

What the device files cannot do here (another driver, another GPU, kernels that print or
allocate) is refused by name. "holdfast replay --backend libcuda" does it where there is a
driver library.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.

Flags:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "pack" {
		return pack(args[1:], stderr)
	}
	fs := flag.NewFlagSet("hfreplay", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var o command.Options
	var r raw.Options
	fs.Var((*list)(&o.Ins), "in", "`[ENTRY/]NAME=FILE`: data of an input")
	fs.Var((*list)(&o.Outs), "out", "`[ENTRY/]NAME=FILE`: where an output goes")
	fs.IntVar(&o.Runs, "n", 1, "how many times")
	fs.BoolVar(&o.Reset, "reset", false, "put memory back before each run")
	fs.BoolVar(&o.Same, "same", false, "end with an error if a run leaves other bits in an output than the first")
	fs.Var((*list)(&o.Entries), "entry",
		"`NAME`: which entry, if there are several; given several times, they run in that order")
	fs.StringVar(&o.Base, "base", "", "`ADDRESS` where device memory is to begin, if the recording can be relocated")
	fs.Var((*list)(&o.Trust.Keys), "trust-key",
		"take the recording only if it is signed with the key of this `FILE`; given several times, with one of them")
	fs.StringVar(&o.Trust.Signature, "signature", "", "with --trust-key: the `FILE` (default MODEL.hfr.sig)")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long one run may take")
	fs.IntVar(&o.Retries, "retries", 0, "how often a run that fails is done again, with the same bits")
	fs.IntVar(&o.CopyEvery, "copy-every", 0,
		"with --retries: copy what runs carry on every so many `RUNS` (default 1); all since then are done again")
	fs.StringVar(&o.SaveState, "save-state", "", "the `FILE` that memory goes to after the last run")
	fs.IntVar(&o.SaveEvery, "save-every", 0, "with --save-state: after every so many `RUNS`, too")
	fs.StringVar(&o.LoadState, "load-state", "",
		"a `FILE` of --save-state to go on from; the runs before it count among those of -n")
	fs.IntVar(&r.Index, "gpu", 0, "which GPU, in the driver's order")
	asJSON := fs.Bool("json", false, "say what it did as JSON, on standard output")
	fs.Usage = func() {
		fmt.Fprint(stderr, help)
		fs.PrintDefaults()
	}
	files, status := parse(fs, args)
	if status >= 0 {
		return status
	}
	if len(files) != 1 {
		fmt.Fprintf(stderr, "hfreplay: %d recordings are named, it takes one (hfreplay --help)\n", len(files))
		return 2
	}
	report, err := command.Replay(files[0], o, func() (engine.Backend, string, error) {
		b, err := raw.Open(r)
		if err != nil {
			return nil, "", err
		}
		return b, "raw", nil
	})
	if err == nil {
		err = say(report, *asJSON, stdout, stderr)
	}
	var wrong *command.UsageError
	switch {
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "hfreplay: %v\n", err)
		return 2
	case err != nil:
		fmt.Fprintf(stderr, "hfreplay: %v\n", err)
		return 1
	}
	return 0
}

// parse reads flags, which may stand before files and after them. status is below 0 if all is well.
func parse(fs *flag.FlagSet, args []string) (files []string, status int) {
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, 0
		case err != nil:
			return nil, 2
		}
		if fs.NArg() == 0 {
			return files, -1
		}
		files, args = append(files, fs.Arg(0)), fs.Args()[1:]
	}
}

func say(r *command.Report, asJSON bool, stdout, stderr io.Writer) error {
	if !asJSON {
		return r.Print(stderr, "hfreplay")
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
