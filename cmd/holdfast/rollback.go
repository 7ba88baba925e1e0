package main

import (
	"fmt"

	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

const rollbackLong = `Put the GPU memory of an image back into the live program that it was taken of. Only
chunks that differ are written. The program's own memory is not touched: it goes on
where it is, with the GPU memory of then. Memory allocated since the checkpoint is left
alone; memory freed since is a reason to refuse.`

func (a *app) rollbackVerb() *cobra.Command {
	var req api.RollbackRequest
	cmd := &cobra.Command{
		Use:   "rollback PID|NAME DIR",
		Short: "Put GPU memory back into a live program",
		Long:  rollbackLong,
		Example: `  holdfast checkpoint train -o /ckpt/good --gpu-only
  holdfast rollback train /ckpt/good`,
		Args:              exactly("PID|NAME", "DIR"),
		ValidArgsFunction: a.completePrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(args[1])
			if err != nil {
				return err
			}
			req.Target, req.Dir = args[0], dir
			if err := a.reach(cmd.Context()); err != nil {
				return err
			}
			m := a.meter()
			res, err := a.client.Rollback(cmd.Context(), req, m.progress())
			m.clear()
			if err != nil {
				return fmt.Errorf("rollback %s: %w", args[0], err)
			}
			a.warn(res.Warnings)
			if a.json {
				return a.printJSON(res)
			}
			fmt.Fprintf(a.stdout, "%s (PID %d) is back at %s: stall %s, %s of %s of GPU memory differed\n\n",
				args[0], res.PID, dir, msText(res.StallMS), bytesText(res.BytesFilled), bytesText(res.Bytes))
			return printSteps(a.stdout, res.Steps, res.StallMS)
		},
	}
	cmd.Flags().BoolVar(&req.Trust, "trust", false, "although the image belongs to another user")
	return cmd
}
