package main

import (
	"holdfast/internal/daemon"

	"github.com/spf13/cobra"
)

// keeperVerb is hidden: the daemon starts the keeper and gives it its socket, and the
// arguments of the next daemon.
func (a *app) keeperVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "keeper",
		Short:   "Hold descriptors for the daemon",
		Example: "  holdfast keeper",
		Hidden:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return daemon.RunKeeper(a.runtimeDir(), args)
		},
	}
}
