package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/wire"

	"github.com/spf13/cobra"
)

const restoreLong = `Bring a program back from an image, under the PID it had. If the daemon still keeps
the GPU memory of the image (warm), it is mapped back; otherwise it is read from the
image (cold) and every chunk is verified. GPU, driver and free memory are checked
first; where something does not fit, nothing has been touched.

The program goes on in the foreground with this command's input and output, as with
"holdfast run", and its exit status becomes this command's. With --detach this command
returns once the program goes on, whose output then goes to a log file.

With --on-demand the program goes on as soon as its process is back, while its GPU
memory is still being read. Every launch and copy waits for the part that it needs; one
of which it is not known what it needs waits for everything. Should the image turn out
to be damaged the program is ended, and the image can be restored again.`

func (a *app) restoreVerb() *cobra.Command {
	var req api.RestoreRequest
	cmd := &cobra.Command{
		Use:   "restore DIR [--detach] [--on-demand]",
		Short: "Bring a program back from an image",
		Long:  restoreLong,
		Example: `  holdfast restore /ckpt/train-3
  holdfast restore /ckpt/train-3 --detach --json
  holdfast restore /ckpt/serve --on-demand`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(args[0])
			if err != nil {
				return err
			}
			req.Dir, req.ClientPID = dir, os.Getpid()
			return a.restore(cmd.Context(), req)
		},
	}
	cmd.Flags().BoolVarP(&req.Detach, "detach", "d", false, "return once the program goes on")
	cmd.Flags().BoolVar(&req.OnDemand, "on-demand", false,
		"go on before all GPU memory is there; launches wait for what they need")
	cmd.Flags().StringVar(&req.Name, "name", "", "give the program this name (default: the one it had)")
	cmd.Flags().BoolVar(&req.Trust, "trust", false,
		"although the image belongs to another user: its program will run as you")
	return cmd
}

func (a *app) restore(ctx context.Context, req api.RestoreRequest) error {
	failed := exitHoldfast
	if req.Detach {
		failed = exitFailed
	}
	if err := checkName(req.Name); err != nil {
		return err
	}
	if err := a.startFor(ctx, req.Dir); err != nil {
		return &exitError{failed, fmt.Errorf("restore %s: %w", req.Dir, err)}
	}
	m := a.meter()
	res, err := a.client.Restore(ctx, req, m.progress())
	m.clear()
	if err != nil {
		return &exitError{failed, fmt.Errorf("restore %s: %w", req.Dir, err)}
	}
	if req.Detach {
		if a.json {
			return a.printJSON(res)
		}
		return printRestore(a.stdout, res)
	}
	// Standard output is the program's from here on.
	b := *a
	b.stdout = a.stderr
	if a.json {
		b.printLine(res)
	}
	return a.attendRestored(res)
}

// attendRestored passes signals on to a restored program and returns as it ends. The
// program is the daemon's child, so its end is learnt from the daemon.
func (a *app) attendRestored(res api.RestoreResult) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				forward(res.PID, s.(syscall.Signal))
			case <-ended:
				return
			}
		}
	}()
	w, err := a.client.Wait(context.Background(), api.WaitRequest{PID: res.PID})
	if err != nil {
		// The daemon has died; the program has not. Only how it ends can no longer be learnt.
		fmt.Fprintf(a.stderr, "holdfast: warning: wait for %s (PID %d): %v; it goes on\n", res.Name, res.PID, err)
		if err := awaitEnd(context.Background(), res.PID); err != nil {
			return &exitError{exitHoldfast, fmt.Errorf("wait for %s (PID %d): %w", res.Name, res.PID, err)}
		}
		return &exitError{exitHoldfast, fmt.Errorf("%s (PID %d) has ended; with which status is not known",
			res.Name, res.PID)}
	}
	if w.Status == 0 {
		return nil
	}
	if w.Status == 128+int(syscall.SIGKILL) {
		if dir := a.checkpointOf(res.PID); dir != "" {
			fmt.Fprintf(a.stderr, "holdfast: %s (PID %d) was checkpointed and ended; it goes on with: holdfast "+
				"restore %s\n", res.Name, res.PID, dir)
		}
	}
	return &exitError{code: w.Status}
}

// startFor brings up what the program of an image needs. The image is only looked at
// here; the daemon checks it before it believes anything.
func (a *app) startFor(ctx context.Context, dir string) error {
	im, err := image.OpenForeign(dir)
	if err != nil {
		return err
	}
	defer im.Close()
	if im.Manifest.Kind == image.KindGPUOnly {
		return &api.Error{Code: "refused", Message: "it is a gpu-only image: it has no process",
			Remedy: "put it back into the live program with holdfast rollback"}
	}
	return a.startServers(ctx, imageGPU(im.Manifest))
}

// imageGPU says on which kind of GPU an image was taken.
func imageGPU(m *image.Manifest) string {
	for _, p := range m.Programs {
		if p.GPU == wire.GPUSoft {
			return gpuSoft
		}
	}
	return gpuNative
}

func printRestore(w io.Writer, r api.RestoreResult) error {
	fmt.Fprintf(w, "%s (PID %d) goes on: %s, %s of GPU memory, %s of it from the image, in %s\n",
		r.Name, r.PID, r.Source, bytesText(r.Bytes), bytesText(r.BytesFilled), msText(r.TotalMS))
	if r.Missing > 0 {
		fmt.Fprintf(w, "%s of it are still being read: launches wait for what they need\n", bytesText(r.Missing))
	}
	if r.Log != "" {
		fmt.Fprintf(w, "its output goes to %s\n", r.Log)
	}
	fmt.Fprintln(w)
	return printSteps(w, r.Steps, 0)
}
