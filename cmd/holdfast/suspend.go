package main

import (
	"fmt"

	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

const suspendLong = `Take a program off the GPU. It stands still until "holdfast resume"; what it computed
stays:
  --to host   its GPU memory moves to host memory (the default)
  --to disk   its GPU memory moves to an image directory, -o DIR
  --to gpu    its GPU memory stays where it is; only the program's context goes`

func (a *app) suspendVerb() *cobra.Command {
	var req api.SuspendRequest
	cmd := &cobra.Command{
		Use:   "suspend PID|NAME [--to host|disk|gpu] [-o DIR]",
		Short: "Take a program off the GPU",
		Long:  suspendLong,
		Example: `  holdfast suspend train
  holdfast suspend train --to disk -o /ckpt/train-suspended`,
		Args:              exactly("PID|NAME"),
		ValidArgsFunction: a.completePrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Target = args[0]
			switch req.To {
			case "host", "gpu":
				if req.Dir != "" {
					return usageErrorf("suspend: -o DIR is for --to disk")
				}
			case "disk":
				if req.Dir == "" {
					return usageErrorf("suspend: --to disk needs -o DIR")
				}
				dir, err := absolute(req.Dir)
				if err != nil {
					return err
				}
				req.Dir = dir
			default:
				return usageErrorf("suspend: --to %s: host, disk or gpu", req.To)
			}
			if err := a.reach(cmd.Context()); err != nil {
				return err
			}
			m := a.meter()
			res, err := a.client.Suspend(cmd.Context(), req, m.progress())
			m.clear()
			if err != nil {
				return fmt.Errorf("suspend %s: %w", req.Target, err)
			}
			if a.json {
				return a.printJSON(res)
			}
			fmt.Fprintf(a.stdout, "%s (PID %d) is suspended (%s): %s of GPU memory freed in %s\n\n",
				req.Target, res.PID, res.To, bytesText(res.BytesFreed), msText(res.TotalMS))
			return printSteps(a.stdout, res.Steps, 0)
		},
	}
	cmd.Flags().StringVar(&req.To, "to", "host", "where its GPU memory goes: host, disk or gpu")
	cmd.Flags().StringVarP(&req.Dir, "output", "o", "", "directory of the image, for --to disk")
	registerValues(cmd, "to", "host", "disk", "gpu")
	return cmd
}
