// Command holdfast runs CUDA programs so that they can be checkpointed while they
// run, restored, rolled back and suspended. This package is the command line: one
// file a verb, each a thin layer over the daemon's interface (package client) or
// over a library. It is also the daemon and the software GPU, as verbs.
//
// # Exit status
//
//	0    done
//	1    refused or failed; the reason is on standard error
//	2    wrong usage
//
// run, and restore without --detach, end as the program does: with its status, or with
// 128 + the signal that ended it. When holdfast itself fails there, the status is
// 125; 126 means that the program could not be executed, 127 that it was not found.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

func main() {
	if err := refuseSecure(); err != nil {
		fmt.Fprintf(os.Stderr, "holdfast: %v\n", err)
		os.Exit(exitHoldfast)
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit statuses.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitHoldfast = 125 // run, restore: holdfast failed, not the program
	exitNoExec   = 126
	exitNotFound = 127
)

// An exitError ends holdfast with a certain status. Without err it is silent.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// An app is what every verb has at hand.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	client         client.Client
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	// Verbs that live long take their signals themselves; for the others an interrupt
	// ends the request, and the daemon undoes what it had begun.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		if exit.err == nil {
			return code
		}
	}
	a.fail(err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "try: %s --help\n", a.verb(root, args))
	}
	return code
}

func (a *app) verb(root *cobra.Command, args []string) string {
	if cmd, _, err := root.Find(args); err == nil {
		return cmd.CommandPath()
	}
	return root.Name()
}

// fail reports an error: on standard error for people, and with --json on standard
// output as well, as {"error": …}.
func (a *app) fail(err error) {
	fmt.Fprintf(a.stderr, "holdfast: %s\n", plain(err.Error()))
	if !a.json {
		return
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: "failed", Message: err.Error()}
		var exit *exitError
		if errors.As(err, &exit) && exit.code == exitUsage {
			e.Code = "bad_request"
		}
	}
	a.printJSON(struct {
		Error *api.Error `json:"error"`
	}{e})
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printLine prints one JSON value on a line of its own, for what prints many.
func (a *app) printLine(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
