package main

import (
	"github.com/spf13/cobra"
)

const rootLong = `holdfast runs unmodified CUDA programs and holds them: a program can be
checkpointed while it runs, killed, and restored as if nothing had happened; its
GPU memory can be rolled back; it can be suspended to free the GPU, and resumed.

Start programs with "holdfast run". A daemon, started on demand, keeps their GPU
memory. Without a GPU, "--gpu=soft" runs them on a software GPU.`

const rootExample = `  holdfast run --name train -- python3 train.py
  holdfast ps
  holdfast checkpoint train -o /ckpt/train-1 --leave-running
  holdfast restore /ckpt/train-1`

const exitStatusHelp = `Exit status: 0 done, 1 refused or failed (the reason is on standard error), 2 wrong
usage. "run", and "restore" without --detach, end as the program does: with its
status, or with 128 + the signal that ended it; 125 if holdfast itself failed,
126 if the program cannot be executed, 127 if it is not found.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Checkpoint, restore, roll back and suspend CUDA programs",
		Long:          rootLong + "\n\n" + exitStatusHelp,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageErrorf("unknown verb %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "help [VERB]", Short: "Help about a verb",
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, _, err := root.Find(args)
			if err != nil {
				return usageErrorf("%v", err)
			}
			return verb.Help()
		}})
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print the result as JSON")
	root.PersistentFlags().StringVar(&a.client.Dir, "dir", "",
		"runtime directory of the daemon (default $HOLDFAST_DIR, else $XDG_RUNTIME_DIR/holdfast, else /run/holdfast "+
			"for root)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	root.AddCommand(
		a.runVerb(),
		a.psVerb(),
		a.topVerb(),
		a.checkpointVerb(),
		a.restoreVerb(),
		a.rollbackVerb(),
		a.suspendVerb(),
		a.resumeVerb(),
		a.imagesVerb(),
		a.exportVerb(),
		a.importVerb(),
		a.recordVerb(),
		a.replayVerb(),
		a.serveVerb(),
		a.inspectVerb(),
		a.signVerb(),
		a.linkVerb(),
		a.verifyRecordingVerb(),
		a.packVerb(),
		a.traceVerb(),
		a.ptxVerb(),
		a.emulateVerb(),
		a.analyzeVerb(),
		a.verdictVerb(),
		a.doctorVerb(),
		a.daemonVerb(),
		a.softGPUVerb(),
		a.keeperVerb(),
		a.versionVerb(),
		a.completionVerb(),
	)
	return root
}

// exactly is cobra.ExactArgs with an error that names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usageErrorf("%s: %s is missing", cmd.Name(), names[len(args)])
		}
		if len(args) > len(names) {
			return usageErrorf("%s: %q is one argument too many", cmd.Name(), args[len(names)])
		}
		return nil
	}
}
