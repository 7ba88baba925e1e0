package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/softgpu/device"

	"github.com/spf13/cobra"
)

const softGPULong = `Play the hardware for programs that run with --gpu=soft. Started on demand.

HOLDFAST_SOFTGPU_MEM is the memory of a device in bytes (default 8 GiB),
HOLDFAST_SOFTGPU_DEVICES the number of devices (default 1).`

// softGPUVerb is hidden: nobody needs to start hardware by hand.
func (a *app) softGPUVerb() *cobra.Command {
	var idle time.Duration
	var level string
	var deterministic, stop bool
	cmd := &cobra.Command{
		Use:     "softgpu",
		Short:   "Be the software GPU (started on demand)",
		Long:    softGPULong,
		Example: "  holdfast softgpu --stop",
		Hidden:  true,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if stop {
				return a.softGPUStop(cmd.Context())
			}
			log, err := a.logger(level)
			if err != nil {
				return err
			}
			cfg := device.Config{Idle: idle, Deterministic: deterministic, Logger: log}
			if cfg.Memory, err = numberFromEnv("HOLDFAST_SOFTGPU_MEM", 1<<44); err != nil {
				return err
			}
			n, err := numberFromEnv("HOLDFAST_SOFTGPU_DEVICES", 16)
			if err != nil {
				return err
			}
			cfg.Devices = int(n)
			return a.softGPU(cmd.Context(), cfg)
		},
	}
	cmd.Flags().DurationVar(&idle, "idle", time.Minute, "end after so long without a client (0: never)")
	cmd.Flags().BoolVar(&deterministic, "deterministic", false, "run the blocks of a grid in order")
	cmd.Flags().BoolVar(&stop, "stop", false, "end the software GPU that runs")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// numberFromEnv reads a number of at least 1; 0 if the variable is not set.
func numberFromEnv(key string, limit uint64) (uint64, error) {
	text := os.Getenv(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > limit {
		return 0, usageErrorf("%s=%s: not a number from 1 to %d", key, text, limit)
	}
	return n, nil
}

func (a *app) softGPU(ctx context.Context, cfg device.Config) error {
	dir, err := a.serverDir()
	if err != nil {
		return err
	}
	// The lock says who serves the directory: a socket file alone may be a dead one's.
	d, err := client.OpenRuntimeDir(dir)
	if err != nil {
		return fmt.Errorf("software GPU: %w", err)
	}
	defer d.Close()
	lock, err := d.OpenFile("softgpu.pid", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("software GPU: %w", err)
	}
	defer lock.Close()
	if err := client.SoftGPU.Own(ctx, lock, dir); err != nil {
		return fmt.Errorf("another software GPU serves %s: %w", dir, err)
	}
	if err := lock.Truncate(0); err == nil {
		fmt.Fprintf(lock, "%d\n", os.Getpid())
	}
	path := filepath.Join(dir, client.SoftSocket)
	if err := d.Remove(client.SoftSocket); err != nil {
		return fmt.Errorf("software GPU: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("software GPU: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return fmt.Errorf("software GPU: %w", err)
	}
	return device.Serve(ctx, l, cfg)
}

func (a *app) softGPUStop(ctx context.Context) error {
	pid, err := client.SoftGPU.PID(ctx, a.runtimeDir())
	if errors.Is(err, client.ErrNoDaemon) {
		return a.stopped(a.stdout, "software GPU", 0)
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("software GPU (PID %d): %w", pid, err)
	}
	if err := awaitEnd(ctx, pid); err != nil {
		return fmt.Errorf("software GPU (PID %d): %w", pid, err)
	}
	return a.stopped(a.stdout, "software GPU", pid)
}
