package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"holdfast/internal/client"
	"holdfast/internal/recorder"
	"holdfast/internal/tap"
	"holdfast/internal/wire"

	"github.com/spf13/cobra"
)

const traceLong = `Run a CUDA program and record what it launches: every kernel launch with its
arguments, the layout of its parameters, the PTX of its modules where there is any,
graphs with what they consist of, copies, and which memory there was when. The contents
of memory are not recorded. The format is described in docs/trace-format.md.

The program is not changed and not held. Processes that it starts are recorded as well,
each under a number of its own; the recording ends with PROGRAM. The PTX of a cubin is
what its assembler has left in it (ptxas -lineinfo; Triton's are made so), else it is
looked for in Triton's cache (TRITON_CACHE_DIR, ~/.triton/cache, and that of
torch.compile).

The exit status is the program's, or 128 + the signal that ended it; 125 if holdfast
failed or the trace could not be written (the program runs on to its end), 126 if the
program cannot be executed, 127 if it is not found.`

type traceFlags struct {
	gpu, out string
}

func (a *app) traceVerb() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace -o FILE [--gpu=auto|native|soft] -- PROGRAM [ARGUMENT…]",
		Short: "Record what a program launches",
		Long:  traceLong,
		Example: `  holdfast trace -o train.trace -- python3 train.py --steps 20
  holdfast trace ls train.trace
  holdfast trace show train.trace --json | head`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usageErrorf("trace: -o FILE is missing")
			}
			return a.trace(cmd.Context(), f, args)
		},
	}
	runsProgram(cmd, &f.gpu)
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "the file that is written")
	cmd.AddCommand(a.traceListVerb(), a.traceShowVerb())
	return cmd
}

func (a *app) trace(ctx context.Context, f traceFlags, args []string) error {
	kind, err := gpuKind(f.gpu)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(args[0], err)
	}
	file, err := os.Create(f.out)
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	defer file.Close()
	caches := func(pid int) []string { return tap.Caches(recorder.Environ(pid)) }
	rec, err := recorder.New(file, caches, a.warnings())
	if err != nil {
		return &exitError{exitHoldfast, fmt.Errorf("%s: %w", f.out, err)}
	}
	status, err := a.listenTo(ctx, listened{kind: kind, path: path, args: args}, rec.Serve)
	list, finish := rec.Finish()
	err = errors.Join(err, finish, file.Close())
	if err != nil {
		return &exitError{exitHoldfast, fmt.Errorf("%s: %w", f.out, err)}
	}
	return a.traced(f.out, rec.Bytes(), list, status)
}

func (a *app) warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// A listened is a program that runs under a recorder.
type listened struct {
	kind, path string
	args       []string          // the first is its name
	env        map[string]string // beside what its shim needs
}

// listenTo runs a program whose taps serve reads. status is how the program ended, err what holdfast could not do.
func (a *app) listenTo(ctx context.Context, p listened,
	serve func(context.Context, *net.UnixListener) error) (status, err error) {
	libs, err := unpackLibraries()
	if err != nil {
		return nil, err
	}
	if p.kind == gpuSoft {
		if _, err := client.SoftGPU.Start(ctx, a.runtimeDir()); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-trace-") // 0700: for the same user only
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "trace.sock")
	l, err := wire.Listen(socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l) }()

	env := setEnv(os.Environ(), "HOLDFAST_DIR", a.runtimeDir())
	env = setEnv(env, "HOLDFAST_GPU", p.kind)
	env = setEnv(env, "HOLDFAST_TRACE", socket)
	for key, value := range p.env {
		env = setEnv(env, key, value)
	}
	env = prependEnv(env, "LD_PRELOAD", libs.Shim)
	if p.kind == gpuSoft {
		env = prependEnv(env, "LD_LIBRARY_PATH", libs.SoftDir)
	}
	cmd := exec.Command(p.path, p.args[1:]...)
	cmd.Args[0] = p.args[0]
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	status = a.attend(cmd, filepath.Base(p.path), p.kind)
	cancel()
	return status, <-served
}

// traced says what was recorded, and where that is not all.
func (a *app) traced(out string, bytes int64, list []*recorder.Process, status error) error {
	var launches, graphs, waits uint64
	for _, p := range list {
		launches += p.Launches
		graphs += p.Graphs
		waits += p.Waits
		if p.Err != nil {
			return &exitError{exitHoldfast, fmt.Errorf("%s: process %d (PID %d): %w", out, p.Number, p.PID, p.Err)}
		}
		if p.Launches < p.Counted.Launches {
			fmt.Fprintf(a.stderr, "holdfast: process %d (PID %d, %s): %d launches, of which %d are not in the trace "+
				"as kernels\n",
				p.Number, p.PID, p.Name, p.Counted.Launches, p.Counted.Launches-p.Launches)
		}
	}
	if a.json {
		b := *a
		b.stdout = a.stderr // standard output is the program's
		b.printLine(struct {
			Event     string `json:"event"`
			File      string `json:"file"`
			Bytes     int64  `json:"bytes"`
			Processes int    `json:"processes"`
			Launches  uint64 `json:"launches"`
			Graphs    uint64 `json:"graph_launches"`
			Waits     uint64 `json:"waits"`
		}{"traced", out, bytes, len(list), launches, graphs, waits})
	} else {
		fmt.Fprintf(a.stderr, "holdfast: %s: %d processes, %d launches, %d graph launches, %s\n", out, len(list),
			launches, graphs, bytesText(uint64(bytes)))
	}
	return status
}
