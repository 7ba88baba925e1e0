package main

import (
	"fmt"

	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

func (a *app) resumeVerb() *cobra.Command {
	return &cobra.Command{
		Use:               "resume PID|NAME",
		Short:             "Let a suspended program go on",
		Long:              `Bring a suspended program back onto the GPU and let it go on.`,
		Example:           "  holdfast resume train",
		Args:              exactly("PID|NAME"),
		ValidArgsFunction: a.completePrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.reach(cmd.Context()); err != nil {
				return err
			}
			m := a.meter()
			res, err := a.client.Resume(cmd.Context(), api.ResumeRequest{Target: args[0]}, m.progress())
			m.clear()
			if err != nil {
				return fmt.Errorf("resume %s: %w", args[0], err)
			}
			if a.json {
				return a.printJSON(res)
			}
			fmt.Fprintf(a.stdout, "%s (PID %d) goes on: %s of GPU memory back in %s\n\n", args[0], res.PID,
				bytesText(res.Bytes), msText(res.TotalMS))
			return printSteps(a.stdout, res.Steps, 0)
		},
	}
}
