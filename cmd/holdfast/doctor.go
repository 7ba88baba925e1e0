package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

const doctorLong = `Say what holdfast can do on this machine, and why not: GPU and driver, CRIU,
privileges, kernel, limits, space. Each line is ok, warn (something is missing that
only some uses need) or fail, with the remedy.

Exit status 1 if a line says fail.`

func (a *app) doctorVerb() *cobra.Command {
	var gpu string
	cmd := &cobra.Command{
		Use:   "doctor [--gpu=auto|native|soft]",
		Short: "Say what this machine can do, and why not",
		Long:  doctorLong,
		Example: `  holdfast doctor
  holdfast doctor --json | jq -r '.checks[] | select(.status != "ok")'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := gpuKind(gpu)
			if err != nil {
				return err
			}
			report := examine(cmd.Context(), a.machine(), kind)
			if a.json {
				err = a.printJSON(report)
			} else {
				err = report.print(a.stdout)
			}
			if err == nil && !report.OK {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "auto", "for which GPU: auto, native or soft")
	registerValues(cmd, "gpu", "auto", "native", "soft")
	return cmd
}

// The states of a check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// A check is one line of doctor.
type check struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`           // what was found
	Remedy string `json:"remedy,omitempty"` // what to do, unless ok
}

type doctorReport struct {
	GPU    string  `json:"gpu"` // the kind that --gpu=auto takes here
	OK     bool    `json:"ok"`  // no check failed
	Checks []check `json:"checks"`
}

func examine(ctx context.Context, m machine, kind string) doctorReport {
	r := doctorReport{GPU: kind, OK: true}
	groups := [][]check{m.gpuChecks(kind), m.criuChecks(ctx), m.privilegeChecks(), m.kernelChecks(), m.limitChecks(),
		m.daemonChecks(ctx)}
	for _, g := range groups {
		for _, c := range g {
			if c.Status == checkFail {
				r.OK = false
			}
			if c.Status == checkOK {
				c.Remedy = ""
			}
			r.Checks = append(r.Checks, c)
		}
	}
	return r
}

func (r doctorReport) print(w io.Writer) error {
	group := ""
	warn, fail := 0, 0
	for _, c := range r.Checks {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(w, "%s\n", group)
		}
		fmt.Fprintf(w, "  %-4s  %-22s  %s\n", c.Status, c.Name, c.Detail)
		if c.Remedy != "" {
			fmt.Fprintf(w, "        %-22s  → %s\n", "", c.Remedy)
		}
		switch c.Status {
		case checkWarn:
			warn++
		case checkFail:
			fail++
		}
	}
	_, err := fmt.Fprintf(w, "\n%d checks: %d warn, %d fail; --gpu=auto means %s here\n", len(r.Checks),
		warn, fail, r.GPU)
	return err
}
