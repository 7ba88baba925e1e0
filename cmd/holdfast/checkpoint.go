package main

import (
	"fmt"
	"io"
	"time"

	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

const checkpointLong = `Write an image of a running program into a directory that is empty or does not
exist: its GPU memory and, unless --gpu-only is given, the whole process, to be
brought back by "holdfast restore". Without --leave-running a whole-process
checkpoint ends the program. --gpu-only always leaves it running; such an image is
put back into the same live program by "holdfast rollback".

Images in the same parent directory share their chunks: a second checkpoint stores
only what changed since. An image is complete or absent, never half there.

Modes of copying the GPU memory:
  stage    stall while what changed is copied aside on the GPU; drain it afterwards
  cow      stall for digests alone; copy while the program runs, and let a launch
           wait until what it will write has been copied aside. Needs little GPU
           memory. A write that was not foreseen is found by its digest: then the
           image is taken again with recopy
  recopy   copy while the program runs, then stall for what changed meanwhile
  stop     stall for the whole copy
  auto     stage where the GPU has memory for a copy of everything, else cow if the
           program goes on, else recopy

The table says where the stall went. stall_ms is the time from gate closed to gate
open.`

func (a *app) checkpointVerb() *cobra.Command {
	var req api.CheckpointRequest
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "checkpoint PID|NAME -o DIR [--leave-running] [--gpu-only] [--mode MODE]",
		Short: "Write an image of a running program",
		Long:  checkpointLong,
		Example: `  holdfast checkpoint train -o /ckpt/train-1 --leave-running
  holdfast checkpoint 4711 -o /ckpt/before-experiment --gpu-only --json`,
		Args:              exactly("PID|NAME"),
		ValidArgsFunction: a.completePrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Target = args[0]
			if err := a.checkpointArgs(&req, timeout); err != nil {
				return err
			}
			if err := a.reach(cmd.Context()); err != nil {
				return err
			}
			m := a.meter()
			res, err := a.client.Checkpoint(cmd.Context(), req, m.progress())
			m.clear()
			if err != nil {
				return fmt.Errorf("checkpoint %s: %w", req.Target, err)
			}
			a.warn(res.Warnings)
			if a.json {
				return a.printJSON(res)
			}
			return printCheckpoint(a.stdout, res)
		},
	}
	cmd.Flags().StringVarP(&req.Dir, "output", "o", "", "directory of the image (empty or absent)")
	cmd.Flags().BoolVar(&req.LeaveRunning, "leave-running", false, "the program goes on afterwards")
	cmd.Flags().BoolVar(&req.GPUOnly, "gpu-only", false, "only the GPU memory, for rollback")
	cmd.Flags().StringVar(&req.Mode, "mode", "auto", "how to copy: auto, stage, cow, recopy or stop")
	cmd.Flags().BoolVar(&req.TCPClose, "tcp-close", false,
		"leave TCP connections out of the image: the restored program finds them closed")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait until the program can be frozen (default 10s)")
	registerValues(cmd, "mode", modes...)
	return cmd
}

var modes = []string{"auto", "stage", "cow", "recopy", "stop"}

func (a *app) checkpointArgs(req *api.CheckpointRequest, timeout time.Duration) error {
	if req.Dir == "" {
		return usageErrorf("checkpoint: -o DIR is missing")
	}
	ok := false
	for _, m := range modes {
		ok = ok || req.Mode == m
	}
	if !ok {
		return usageErrorf("checkpoint: --mode %s: auto, stage, cow, recopy or stop", req.Mode)
	}
	if timeout < 0 {
		return usageErrorf("checkpoint: --timeout %v is negative", timeout)
	}
	req.TimeoutMS = int(timeout.Milliseconds())
	dir, err := absolute(req.Dir)
	if err != nil {
		return err
	}
	req.Dir = dir
	return nil
}

func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(a.stderr, "holdfast: warning: %s\n", w)
	}
}

func printCheckpoint(w io.Writer, r api.CheckpointResult) error {
	after := "it runs on"
	if !r.LeaveRunning && r.Kind == "full" {
		after = "it has ended"
	}
	fmt.Fprintf(w, "%s (PID %d) → %s: %s image, %s\n", r.Name, r.PID, r.Dir, r.Kind, after)
	why := ""
	if r.ModeReason != "" {
		why = " (" + r.ModeReason + ")"
	}
	fmt.Fprintf(w, "stall %s, of it for GPU memory %s; drain %s; in all %s; mode %s%s\n",
		msText(r.StallMS), msText(r.DataStallMS), msText(r.DrainMS), msText(r.TotalMS), r.Mode, why)
	fmt.Fprintf(w, "%s of GPU memory in %d chunks: %d new (%s), %d stored before, %d zero; %d copied again\n",
		bytesText(r.Bytes), r.Chunks, r.ChunksNew, bytesText(r.BytesNew), r.ChunksReused, r.ChunksZero,
		r.ChunksRecopied)
	if r.Waits > 0 {
		fmt.Fprintf(w, "%d launches or copies waited, %s in all, until what they write was kept; %d chunks were "+
			"copied aside\n", r.Waits, msText(r.WaitedMS), r.ChunksAside)
	}
	fmt.Fprintf(w, "digest %s\n\n", r.Digest)
	return printSteps(w, r.Steps, r.StallMS)
}
