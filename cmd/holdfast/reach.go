package main

import (
	"context"
	"errors"
	"path/filepath"

	"holdfast/internal/client"
)

// reach makes sure that a daemon is there for a verb that means a running program. Where
// one has died, its programs run on and report to the next, which is started here and waits
// for them. Where none ever ran, nothing is held, and the verb will say so.
func (a *app) reach(ctx context.Context) error {
	dir := a.runtimeDir()
	_, err := client.Daemon.PID(ctx, dir)
	if !errors.Is(err, client.ErrNoDaemon) || !exists(filepath.Join(dir, client.DaemonSocket)) {
		return nil // the call itself finds out
	}
	_, err = client.Daemon.Start(ctx, dir)
	return err
}
