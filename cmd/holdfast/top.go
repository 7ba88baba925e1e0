package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/internal/daemon/api"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const topLong = `Show the held programs again and again, with their launches a second, until
interrupted. With --json, or where standard output is no terminal, each round is
printed below the last (with --json: one line each).`

func (a *app) topVerb() *cobra.Command {
	var interval time.Duration
	var rounds int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the held programs",
		Long:  topLong,
		Example: `  holdfast top
  holdfast top --interval 500ms -n 10 --json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 {
				return usageErrorf("top: --interval must be more than 0, not %v", interval)
			}
			return a.top(cmd, interval, rounds)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two rounds")
	cmd.Flags().IntVarP(&rounds, "rounds", "n", 0, "stop after this many rounds (0: never)")
	return cmd
}

// A topRow is a process with its rate.
type topRow struct {
	api.Process
	LaunchesPerSecond float64 `json:"launches_per_second"`
}

func (a *app) top(cmd *cobra.Command, interval time.Duration, rounds int) error {
	tty := false
	if f, ok := a.stdout.(*os.File); ok && !a.json {
		tty = term.IsTerminal(int(f.Fd()))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var before []api.Process
	var at time.Time
	for n := 1; ; n++ {
		list, err := a.processes(cmd.Context())
		if err != nil {
			return err
		}
		now := time.Now()
		rows := rates(before, list, now.Sub(at))
		if err := a.showTop(rows, now, tty); err != nil {
			return err
		}
		before, at = list, now
		if n == rounds {
			return nil
		}
		select {
		case <-cmd.Context().Done():
			return nil // an interrupt is how top ends
		case <-tick.C:
		}
	}
}

func rates(before, now []api.Process, d time.Duration) []topRow {
	launches := make(map[int]uint64)
	for _, p := range before {
		launches[p.PID] = p.Launches
	}
	rows := make([]topRow, 0, len(now))
	for _, p := range now {
		r := topRow{Process: p}
		if was, ok := launches[p.PID]; ok && p.Launches >= was && d > 0 {
			r.LaunchesPerSecond = float64(p.Launches-was) / d.Seconds()
		}
		rows = append(rows, r)
	}
	return rows
}

func (a *app) showTop(rows []topRow, now time.Time, tty bool) error {
	if a.json {
		return a.printLine(rows)
	}
	var b strings.Builder
	if tty {
		b.WriteString("\x1b[H\x1b[2J") // home, clear
	}
	resident := uint64(0)
	t := newTable(">PID", "NAME", "GPU", "STATE", ">RESIDENT", ">LAUNCHES/S", ">LAUNCHES", ">AGE", "COMMAND")
	for _, r := range rows {
		resident += r.ResidentBytes
		t.add(fmt.Sprint(r.PID), r.Name, r.GPU, r.State, bytesText(r.ResidentBytes),
			fmt.Sprintf("%.0f", r.LaunchesPerSecond),
			fmt.Sprint(r.Launches), ageText(now.Sub(r.Started)), commandText(r.Process))
	}
	fmt.Fprintf(&b, "%s  %d held, %s resident\n\n", now.Format(time.TimeOnly), len(rows), bytesText(resident))
	if err := t.print(&b); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}
