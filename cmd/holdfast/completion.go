package main

import (
	"github.com/spf13/cobra"
)

const completionLong = `Print the completion script of a shell. Load it with, for example,

  source <(holdfast completion bash)

or write it where the shell looks for completions.`

func (a *app) completionVerb() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print the shell completion script",
		Long:      completionLong,
		Example:   "  holdfast completion bash > /etc/bash_completion.d/holdfast",
		Args:      exactly("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.stdout, true)
			}
			return usageErrorf("completion: no shell %q: bash, zsh or fish", args[0])
		},
	}
}

// completePrograms completes PID|NAME from the daemon's list.
func (a *app) completePrograms(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := a.client.Processes(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
