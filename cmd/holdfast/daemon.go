package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"holdfast/internal/checkpoint"
	"holdfast/internal/client"
	"holdfast/internal/daemon"
	"holdfast/internal/daemon/api"
	"holdfast/internal/embedded"
	"holdfast/internal/process"

	"github.com/spf13/cobra"
)

const daemonLong = `Hold programs: keep their GPU memory, and checkpoint and restore them when asked to.
"holdfast run" starts the daemon when it is needed, and it ends by itself when it
has held nothing for a while; this verb runs it in the foreground, logging to
standard error, for instance as a service.

Its death takes no program with it. Programs run on, and the next daemon takes them
over. A program that stood still just then, without its memory, cannot wait for
somebody to start one: a second process, which keeps that memory, does it with the
arguments of this one, and lets it log to daemon.log in the runtime directory. With
--supervised it does not. Only the same user, or root, may talk to the daemon.`

func (a *app) daemonVerb() *cobra.Command {
	var keep, idle, patience, lease time.Duration
	var level string
	var supervised bool
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Hold programs (started on demand)",
		Long:  daemonLong,
		Example: `  holdfast daemon --idle 0
  holdfast daemon stop`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := a.logger(level)
			if err != nil {
				return err
			}
			cfg := daemon.Config{Keep: keep, Idle: idle, Patience: patience, Lease: lease, Log: log}
			if !supervised {
				cfg.Again = []string{"daemon", "--dir", a.runtimeDir(), "--keep", keep.String(), "--idle",
					idle.String(),
					"--patience", patience.String(), "--lease", lease.String(), "--log-level", level,
					fmt.Sprintf("--json=%t", a.json)}
			}
			return a.daemon(cmd.Context(), cfg)
		},
	}
	cmd.Flags().DurationVar(&keep, "keep", 30*time.Second,
		"how long the GPU memory of a program that ended is kept for a warm restore")
	cmd.Flags().DurationVar(&idle, "idle", time.Minute, "end after so long with nothing to hold (0: never)")
	cmd.Flags().DurationVar(&patience, "patience", checkpoint.DefaultPatience,
		"how long a failed operation waits for its program to come back; that is tried on afterwards, too")
	// For tests: nobody else knows how long his daemon may hang.
	cmd.Flags().DurationVar(&lease, "lease", process.DefaultLease,
		"how long a frozen program waits for a daemon that hangs")
	if err := cmd.Flags().MarkHidden("lease"); err != nil {
		panic(err)
	}
	cmd.Flags().BoolVar(&supervised, "supervised", false, "somebody else starts the next daemon when this one dies")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	registerValues(cmd, "log-level", "debug", "info", "warn", "error")
	cmd.AddCommand(a.daemonStopVerb())
	return cmd
}

// logger logs to standard error: as text, or with --json one object a line.
func (a *app) logger(level string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageErrorf("--log-level %s: debug, info, warn or error", level)
	}
	opts.Level = l
	var h slog.Handler = slog.NewTextHandler(a.stderr, &opts)
	if a.json {
		h = slog.NewJSONHandler(a.stderr, &opts)
	}
	return slog.New(h), nil
}

func (a *app) daemon(ctx context.Context, cfg daemon.Config) error {
	dir, err := a.serverDir()
	if err != nil {
		return err
	}
	libs, err := unpackLibraries()
	if err != nil {
		return err
	}
	cfg.Dir = dir
	cfg.Version = version
	cfg.Libraries = []string{libs.Shim, libs.Stub()}
	// Each copy stays open: the loader knows a library by its path, and must not take the next one for it.
	var stubs []*os.File
	defer func() {
		for _, f := range stubs {
			f.Close()
		}
	}()
	cfg.SoftDriver = func() (string, error) {
		stub, err := embedded.StubMemory()
		if err != nil {
			return "", err
		}
		stubs = append(stubs, stub)
		return embedded.Path(stub), nil
	}
	cfg.SoftGPU = func() error {
		_, err := client.SoftGPU.Start(ctx, dir)
		return err
	}
	return daemon.Run(ctx, cfg)
}

// serverDir makes the runtime directory of a server. The driver library that a server
// opens reads HOLDFAST_DIR from the environment that the process was started with, so
// the process starts itself anew where that one is another.
func (a *app) serverDir() (string, error) {
	dir := a.runtimeDir()
	d, err := client.OpenRuntimeDir(dir)
	if err != nil {
		return "", err
	}
	d.Close()
	if os.Getenv("HOLDFAST_DIR") != dir {
		env := setEnv(os.Environ(), "HOLDFAST_DIR", dir)
		return "", fmt.Errorf("start anew for %s: %w", dir, syscall.Exec("/proc/self/exe", os.Args, env))
	}
	return dir, nil
}

func (a *app) daemonStopVerb() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the daemon",
		Long: `End the daemon, if it holds nothing. With --force end it anyway: programs run on, and the
next daemon takes them over.`,
		Example: "  holdfast daemon stop --force",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := client.Daemon.PID(cmd.Context(), a.runtimeDir())
			if errors.Is(err, client.ErrNoDaemon) {
				return a.stopped(a.stdout, "daemon", 0)
			}
			if err != nil {
				return err
			}
			if err := a.client.Shutdown(cmd.Context(), api.ShutdownRequest{Force: force}); err != nil {
				return err
			}
			if err := awaitEnd(cmd.Context(), pid); err != nil {
				return fmt.Errorf("daemon (PID %d): %w", pid, err)
			}
			return a.stopped(a.stdout, "daemon", pid)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "although it holds programs")
	return cmd
}

// stopped reports that a server is no more; pid 0: it did not run.
func (a *app) stopped(w io.Writer, name string, pid int) error {
	if a.json {
		return a.printJSON(struct {
			PID int `json:"pid"`
		}{pid})
	}
	text := fmt.Sprintf("the %s did not run", name)
	if pid != 0 {
		text = fmt.Sprintf("the %s (PID %d) has ended", name, pid)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
