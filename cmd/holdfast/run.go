package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

const runLong = `Run a CUDA program so that it can be checkpointed, restored, rolled back and
suspended. The program is not changed: a library is preloaded into it. It runs in
the foreground with this command's input, output, environment and directory, and
signals are passed on to it.

It gets a session of its own, because only a whole session can be dumped and brought
back; so it has no controlling terminal (no /dev/tty), although its input and
output may be one.

--gpu=auto takes the GPU where there is one, and the software GPU otherwise.

The exit status is the program's, or 128 + the signal that ended it; 125 if holdfast
failed, 126 if the program cannot be executed, 127 if it is not found. With --json,
one line about the start and one about the end go to standard error.`

type runFlags struct {
	gpu, name string
}

func (a *app) runVerb() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [--gpu=auto|native|soft] [--name NAME] -- PROGRAM [ARGUMENT…]",
		Short: "Run a program and hold it",
		Long:  runLong,
		Example: `  holdfast run -- python3 train.py --epochs 90
  holdfast run --gpu=soft --name demo -- ./train --steps 1000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), f, args)
		},
	}
	runsProgram(cmd, &f.gpu)
	cmd.Flags().StringVar(&f.name, "name", "", "name of the program for the other verbs (default: its file name)")
	return cmd
}

// runsProgram makes cmd take PROGRAM and its arguments, and --gpu.
func runsProgram(cmd *cobra.Command, gpu *string) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageErrorf("%s: PROGRAM is missing", cmd.Name())
		}
		return nil
	}
	cmd.Flags().SetInterspersed(false) // what follows PROGRAM is the program's
	cmd.Flags().StringVar(gpu, "gpu", "auto", "which GPU the program sees: auto, native or soft")
	registerValues(cmd, "gpu", "auto", "native", "soft")
}

// registerValues completes a flag that takes one of a few words.
func registerValues(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such flag: a slip in this package
	}
}

func (a *app) run(ctx context.Context, f runFlags, args []string) error {
	kind, err := gpuKind(f.gpu)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(args[0], err)
	}
	if err := checkName(f.name); err != nil {
		return err
	}
	env, name, err := a.prepare(ctx, kind, f.name, path)
	if err != nil {
		return &exitError{exitHoldfast, err}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return a.attend(cmd, name, kind)
}

// prepare brings up what the program needs and returns its environment and name.
func (a *app) prepare(ctx context.Context, kind, name, path string) ([]string, string, error) {
	libs, err := unpackLibraries()
	if err != nil {
		return nil, "", err
	}
	dir := a.runtimeDir()
	if err := a.startServers(ctx, kind); err != nil {
		return nil, "", err
	}
	if name == "" {
		name = filepath.Base(path) // the daemon tells two of them apart
	} else if err := a.checkFree(ctx, name); err != nil {
		return nil, "", err
	}
	env := setEnv(os.Environ(), "HOLDFAST_DIR", dir)
	env = setEnv(env, "HOLDFAST_NAME", name)
	env = setEnv(env, "HOLDFAST_GPU", kind)
	env = prependEnv(env, "LD_PRELOAD", libs.Shim)
	if kind == gpuSoft {
		env = prependEnv(env, "LD_LIBRARY_PATH", libs.SoftDir)
	}
	return env, name, nil
}

// startServers brings up the daemon and, for that kind, the software GPU.
func (a *app) startServers(ctx context.Context, kind string) error {
	if kind == gpuSoft {
		if _, err := client.SoftGPU.Start(ctx, a.runtimeDir()); err != nil {
			return err
		}
	}
	_, err := client.Daemon.Start(ctx, a.runtimeDir())
	return err
}

func (a *app) runtimeDir() string {
	if a.client.Dir == "" {
		return client.RuntimeDir()
	}
	if abs, err := filepath.Abs(a.client.Dir); err == nil {
		return abs
	}
	return a.client.Dir
}

// checkName refuses names that the other verbs could not tell from a PID, or that
// would garble a table.
func checkName(name string) error {
	if name == "" {
		return nil
	}
	digits := true
	for _, r := range name {
		if r <= ' ' || r == 0x7f || r == '/' {
			return usageErrorf("run: --name %q: letters, digits and punctuation but no \"/\"", name)
		}
		digits = digits && '0' <= r && r <= '9'
	}
	if digits {
		return usageErrorf("run: --name %q looks like a PID", name)
	}
	if len(name) > 64 {
		return usageErrorf("run: --name %q is longer than 64 bytes", name)
	}
	return nil
}

func (a *app) checkFree(ctx context.Context, name string) error {
	list, err := a.client.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Name == name && p.State != api.StateDead {
			return &api.Error{
				Code:    "refused",
				Message: fmt.Sprintf("a program named %q is held already (PID %d)", name, p.PID),
				Remedy:  "choose another --name",
			}
		}
	}
	return nil
}

// A runRecord is what run --json says, once when the program starts and once when it ends.
type runRecord struct {
	Event      string `json:"event"` // "start", "end"
	PID        int    `json:"pid"`
	Name       string `json:"name"`
	GPU        string `json:"gpu"`
	Status     *int   `json:"status,omitempty"`
	Signal     string `json:"signal,omitempty"`
	Checkpoint string `json:"checkpoint,omitempty"` // it ended because it was checkpointed, into this image
}

// attend starts the program, passes signals on and returns as the program ends.
func (a *app) attend(cmd *exec.Cmd, name, kind string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return notRunnable(cmd.Path, err)
	}
	pid := cmd.Process.Pid
	rec := runRecord{Event: "start", PID: pid, Name: name, GPU: kind}
	a.record(rec)

	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				forward(pid, s.(syscall.Signal))
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	if cmd.ProcessState == nil {
		return &exitError{exitHoldfast, fmt.Errorf("wait for %s (PID %d): %w", name, pid, err)}
	}
	st := cmd.ProcessState.Sys().(syscall.WaitStatus)
	status := st.ExitStatus()
	if st.Signaled() {
		status = 128 + int(st.Signal())
		rec.Signal = st.Signal().String()
		if st.Signal() == syscall.SIGKILL {
			rec.Checkpoint = a.checkpointOf(pid)
		}
	}
	rec.Event, rec.Status = "end", &status
	a.record(rec)
	if rec.Checkpoint != "" && !a.json {
		fmt.Fprintf(a.stderr, "holdfast: %s (PID %d) was checkpointed and ended; it goes on with: holdfast restore "+
			"%s\n", name, pid, rec.Checkpoint)
	}
	if status == 0 {
		return nil
	}
	return &exitError{code: status}
}

func (a *app) record(r runRecord) {
	if a.json {
		b := *a
		b.stdout = a.stderr // standard output is the program's
		b.printLine(r)
	}
}

// checkpointOf returns the image into which a program that is gone was checkpointed. The
// program's end may be known here before the daemon has finished the image.
func (a *app) checkpointOf(pid int) string {
	const noticed = 5 * time.Second // the daemon hears of a death at once
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		list, err := a.client.Processes(context.Background())
		if err != nil {
			return ""
		}
		i := slices.IndexFunc(list, func(p api.Process) bool { return p.PID == pid })
		switch {
		case i < 0:
			return ""
		case list[i].State == api.StateDead:
			return list[i].LastCheckpoint
		case list[i].State != api.StateCheckpointing && time.Since(begun) > noticed:
			return ""
		}
	}
}

// notRunnable says, as a shell does, why a program was not started.
func notRunnable(name string, err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	code := exitNoExec
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, fmt.Errorf("%s: %w", name, err)}
}

func setEnv(env []string, key, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, key+"=") {
			out = append(out, kv)
		}
	}
	return append(out, key+"="+value)
}

func prependEnv(env []string, key, value string) []string {
	for _, kv := range env {
		if old, ok := strings.CutPrefix(kv, key+"="); ok && old != "" {
			value += ":" + old
		}
	}
	return setEnv(env, key, value)
}
