package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"holdfast/internal/cuda/native"
	"holdfast/internal/softgpu/probe"
)

// options are the command line.
type options struct {
	library, corpus, json, table, save string
	seed                               uint64
	jobs                               int
	families                           []string
	limit, patience                    time.Duration
	memory, longest                    uint64
	only                               string
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("softgpu-compare", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, "usage: softgpu-compare [flags]\n\nRun the same PTX on a GPU and on the software GPU and "+
			"compare what both leave in memory.\nExit status: 0 all pairs agree, 1 some differ, 2 the comparison "+
			"could not be made.\n\n")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.library, "libcuda", native.DefaultPath, "the driver `library` of the GPU")
	fs.StringVar(&o.corpus, "corpus", "", "the kernel corpus, a `directory` with *.app.json files; empty: probes only")
	fs.Uint64Var(&o.seed, "seed", 1, "of all inputs")
	fs.StringVar(&o.json, "json", "", "write the results to this `file`")
	fs.StringVar(&o.table, "table", "", "write the tables as Markdown to this `file`")
	fs.StringVar(&o.save, "save", "", "`directory` for the PTX of kernels that differ; default: beside the JSON file")
	fs.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "`number` of processes")
	families := fs.String("families", "", "only families whose names contain one of these, `comma-separated`; "+
		"\"corpus\" is the applications")
	fs.StringVar(&o.only, "only", "", "only pairs whose names contain this `text`")
	limit := fs.Float64("limit-seconds", 0, "start nothing new after so many `seconds`; 0: no limit")
	patience := fs.Float64("patience", 60, "a pair that takes longer than so many `seconds` is given up")
	memory := fs.Int("memory-mib", 2048, "device memory of a job, in `MiB`")
	longest := fs.Float64("longest", 4e9, "leave out launches of the corpus that execute more than so many thread "+
		"`instructions`")
	short := fs.Bool("short", false, "a run of 150 seconds on 16 cores: all probes, some launches of every "+
		"application, then as many as there is time for (-limit-seconds 130 -longest 4e8 unless they are given)")
	emit := fs.String("emit", "", "write the modules of the probes to this `directory` and end")
	list := fs.Bool("list", false, "list the units of work and end")
	worker := fs.Bool("worker", false, "be a job (used by the command itself)")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "softgpu-compare: unexpected argument %q\n", fs.Arg(0))
		return 2
	}
	if *short {
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["limit-seconds"] {
			*limit = 130
		}
		if !given["longest"] {
			*longest = 4e8
		}
	}
	o.longest = uint64(max(1, *longest))
	if *families != "" {
		o.families = strings.Split(*families, ",")
	}
	o.limit, o.patience = seconds(*limit), seconds(*patience)
	o.memory = uint64(max(64, *memory)) << 20
	if o.save == "" && o.json != "" {
		o.save = strings.TrimSuffix(o.json, ".json") + "-kernels"
	}
	if err := dispatch(o, args, *worker, *list, *emit, stdin, stdout, stderr); err != nil {
		if err == errDiffer {
			return 1
		}
		fmt.Fprintln(stderr, "softgpu-compare:", err)
		return 2
	}
	return 0
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func dispatch(o options, args []string, worker, list bool, emit string, stdin io.Reader,
	stdout, stderr io.Writer) error {
	switch {
	case worker:
		messages, err := ownOutput()
		if err != nil {
			return err
		}
		return work(o, stdin, messages)
	case list:
		us, err := o.plan()
		for i, u := range us {
			fmt.Fprintf(stdout, "%d\t%s\n", i, u.describe())
		}
		return err
	case emit != "":
		return emitModules(o, emit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &comparison{o: o, args: args, progress: stderr, start: time.Now()}
	// What was compared before jobs could not be started any more is reported too.
	broken := c.run(ctx)
	if broken != nil && len(c.results) == 0 {
		return broken
	}
	r := c.result(ctx.Err() != nil)
	var table bytes.Buffer
	r.markdown(&table)
	if _, err := stdout.Write(table.Bytes()); err != nil {
		return err
	}
	if o.table != "" {
		if err := os.WriteFile(o.table, table.Bytes(), 0o666); err != nil {
			return err
		}
	}
	if o.json != "" {
		if err := r.writeJSON(o.json); err != nil {
			return err
		}
	}
	if broken != nil {
		return broken
	}
	if !r.SelfCheck.Caught {
		return fmt.Errorf("self-check: a flipped bit was not found: the results mean nothing: %s", r.SelfCheck.Detail)
	}
	if r.Totals.Differ+r.Totals.Failed > 0 {
		return errDiffer
	}
	return nil
}

// emitModules writes what would be given to the driver, for ptxas.
func emitModules(o options, dir string) error {
	us, err := o.plan()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for i, u := range us {
		if u.app != nil {
			continue
		}
		file := filepath.Join(dir, fmt.Sprintf("%04d-%s.ptx", i, u.probes[0].Target))
		if err := os.WriteFile(file, []byte(probe.Module(u.probes)), 0o666); err != nil {
			return err
		}
	}
	return nil
}
