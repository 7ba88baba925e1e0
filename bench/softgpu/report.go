package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Report is the outcome of a run; it is the JSON file.
type Report struct {
	Device    string    `json:"device"`
	CUDA      string    `json:"cuda"` // of the driver
	Seed      uint64    `json:"seed"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	Jobs      int       `json:"jobs"`
	Restarts  int       `json:"restarts"` // jobs that ended and were replaced
	Complete  bool      `json:"complete"` // all units were run
	Units     int       `json:"units"`
	UnitsDone int       `json:"units_done"`
	SelfCheck selfCheck `json:"self_check"`
	Totals    Row       `json:"totals"`
	Rows      []Row     `json:"families"`
	Results   []Result  `json:"results"` // all that are not equal

	save string
}

// A Row is a line of the table.
type Row struct {
	Family    string  `json:"family"`
	Names     int     `json:"names"` // spellings and variants, or launches
	Pairs     int     `json:"pairs"` // that ran on both sides
	Equal     int     `json:"equal"`
	Within    int     `json:"within"`
	Worst     float64 `json:"worst"`
	Differ    int     `json:"differ"`
	NaNOnly   int     `json:"nan_only"` // of those that differ
	Unordered int     `json:"unordered"`
	Failed    int     `json:"failed"`
	Refused   int     `json:"refused"`     // by the driver
	Missing   int     `json:"unsupported"` // by the software GPU
	Skipped   int     `json:"skipped"`
}

func (r *Row) add(x Result) {
	switch x.Status {
	case equal:
		r.Equal++
	case within:
		r.Within++
		r.Worst = max(r.Worst, x.Worst)
	case differs:
		r.Differ++
		if x.NaNOnly {
			r.NaNOnly++
		}
	case unordered:
		r.Unordered++
	case failed:
		r.Failed++
	case refusedGPU:
		r.Refused++
	case refusedSoft:
		r.Missing++
	case skipped:
		r.Skipped++
	}
	switch x.Status {
	case equal, within, differs, unordered:
		r.Pairs++
	}
}

func (r Result) difference() string {
	if r.Soft == "" {
		return ""
	}
	return fmt.Sprintf("thread %d, offset %d: software %s, GPU %s, input %s", r.Thread, r.At, r.Soft, r.GPU, r.Input)
}

// result sums up; interrupted says that the run was ended by a signal.
func (c *comparison) result(interrupted bool) *Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Report{Device: c.device.Device, CUDA: c.device.CUDA, Seed: c.o.seed,
		Started: c.start.UTC().Truncate(time.Second), Seconds: time.Since(c.start).Seconds(), Jobs: c.o.jobs,
		Restarts: c.restarts, Units: len(c.units), UnitsDone: c.done, Complete: c.done == len(c.units) && !interrupted,
		SelfCheck: c.check, save: c.o.save}
	rows := map[string]*Row{}
	names := map[string]map[string]bool{}
	for _, x := range c.results {
		row := rows[x.Family]
		if row == nil {
			row = &Row{Family: x.Family}
			rows[x.Family], names[x.Family] = row, map[string]bool{}
		}
		row.add(x)
		r.Totals.add(x)
		names[x.Family][x.ID] = true
		if x.Status != equal {
			r.Results = append(r.Results, x)
		}
	}
	for f, row := range rows {
		row.Names = len(names[f])
		r.Totals.Names += row.Names
		r.Rows = append(r.Rows, *row)
	}
	r.Totals.Family = "all"
	slices.SortFunc(r.Rows, func(a, b Row) int { return strings.Compare(a.Family, b.Family) })
	slices.SortFunc(r.Results, func(a, b Result) int {
		return strings.Compare(a.Family+a.Status+key(a.ID, a.Round), b.Family+b.Status+key(b.ID, b.Round))
	})
	return r
}

// markdown writes the tables.
func (r *Report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s, driver for CUDA %s; seed %d; %.0f s with %d jobs, %s\n\n", r.Device, r.CUDA, r.Seed, r.Seconds,
		r.Jobs, r.Started.Format("2006-01-02"))
	if !r.Complete {
		fmt.Fprintf(w, "**Not complete**: %d of %d units of work were run.\n\n", r.UnitsDone, r.Units)
	}
	fmt.Fprintf(w, "Self-check: %s.\n\n", r.SelfCheck.Detail)
	fmt.Fprintln(w, "| family | names | pairs | equal | within bound | largest part of it | differ | of these NaN "+
		"bits only | order not defined | failed | refused by driver | not supported | skipped "+
		"|\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, x := range append(slices.Clone(r.Rows), r.Totals) {
		worst := ""
		if x.Within > 0 {
			worst = fmt.Sprintf("%.2f", x.Worst)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %s | %d | %d | %d | %d | %d | %d | %d |\n", x.Family, x.Names,
			x.Pairs, x.Equal, x.Within, worst, x.Differ, x.NaNOnly, x.Unordered, x.Failed, x.Refused, x.Missing,
			x.Skipped)
	}
	for _, s := range []struct{ status, title string }{{differs, "Differences"}, {failed, "Failures"}} {
		bad := slices.DeleteFunc(slices.Clone(r.Results), func(x Result) bool { return x.Status != s.status })
		if len(bad) == 0 {
			continue
		}
		const most = 60
		fmt.Fprintf(w, "\n%s:\n\n", s.title)
		for _, x := range bad[:min(most, len(bad))] {
			fmt.Fprintf(w, "- `%s`, input %d: %s %s\n", x.ID, x.Round, x.Detail, x.difference())
		}
		if len(bad) > most {
			fmt.Fprintf(w, "- and %d more: see the JSON file\n", len(bad)-most)
		}
	}
}

// writeJSON writes the report, and the PTX of what differs to files of its own.
func (r *Report) writeJSON(file string) error {
	written := map[string]string{}
	for i := range r.Results {
		x := &r.Results[i]
		if x.PTX == "" || r.save == "" {
			x.PTX = ""
			continue
		}
		if written[x.PTX] == "" {
			if err := os.MkdirAll(r.save, 0o777); err != nil {
				return err
			}
			name := filepath.Join(r.save, fmt.Sprintf("%04d.ptx", len(written)))
			if err := os.WriteFile(name, []byte(x.PTX), 0o666); err != nil {
				return err
			}
			written[x.PTX] = name
		}
		x.PTX = written[x.PTX]
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}
