package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
)

const psLong = `List the programs that the daemon holds: those that run, those that are suspended,
and those that ended and whose GPU memory is kept for a restore.

A caveat is something of a program that cannot be held, such as managed memory; it
is found when it happens. With a "!" it rules out a whole-process checkpoint.`

func (a *app) psVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List the held programs",
		Long:  psLong,
		Example: `  holdfast ps
  holdfast ps --json | jq -r '.[] | select(.state == "running") | .name'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.processes(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			return printProcesses(a.stdout, list, time.Now())
		},
	}
}

// processes lists what is held. Where no daemon runs, nothing is.
func (a *app) processes(ctx context.Context) ([]api.Process, error) {
	list, err := a.client.Processes(ctx)
	if errors.Is(err, client.ErrNoDaemon) {
		err = nil
	}
	if list == nil {
		list = []api.Process{} // [] in JSON, not null
	}
	return list, err
}

func printProcesses(w io.Writer, list []api.Process, now time.Time) error {
	t := newTable(">PID", "NAME", "GPU", "STATE", ">RESIDENT", ">ALLOCS", ">LAUNCHES", ">AGE", "COMMAND")
	for _, p := range list {
		t.add(strconv.Itoa(p.PID), p.Name, p.GPU, p.State, bytesText(p.ResidentBytes), strconv.Itoa(p.Allocations),
			strconv.FormatUint(p.Launches, 10), ageText(now.Sub(p.Started)), commandText(p))
	}
	if err := t.print(w); err != nil {
		return err
	}
	for _, p := range list {
		for _, c := range p.Caveats {
			mark := " "
			if c.Fatal {
				mark = "!"
			}
			if _, err := fmt.Fprintf(w, "%s %s (%d): %s\n", mark, plain(p.Name), p.PID, plain(c.Text)); err != nil {
				return err
			}
		}
	}
	return nil
}

func commandText(p api.Process) string {
	if len(p.Command) == 0 {
		return p.Exe
	}
	s := strings.Join(p.Command, " ")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	return strings.NewReplacer("\n", "?", "\t", "?").Replace(s)
}
