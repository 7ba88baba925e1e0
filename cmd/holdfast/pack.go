package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/pack/sim"

	"github.com/spf13/cobra"
)

func (a *app) packVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pack",
		Short: "Many recordings on one GPU under deadlines: try it in simulated time",
		Long:  "How many recorded models share a GPU under deadlines.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageErrorf("unknown verb %q", "pack "+args[0])
			}
			return nil
		},
		Example: `  holdfast pack simulate`,
		RunE:    func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.packSimulateVerb())
	return cmd
}

const packSimulateLong = `Simulate requests of several models on shared GPUs, without a GPU, and compare policies:

  pack          the scheduler: admission control, earliest deadline first, parts of
                different models side by side
  time slicing  one request at a time on a GPU, models in turn for 2 ms
  spatial       everything at once, the requests of each model in order
  fifo          one request at a time, in the order of arrival
  bound         at most so many requests can be answered in time, by whatever policy,
                even one that knows the future. It is computed, and may be out of reach

GOODPUT is requests answered in time in a second. REFUSED are those that "pack" refuses
when they come; other policies drop what is too late before it has begun. P50 and P99 are
of what was answered.

--load is what is offered, of what the GPUs can do. CONFIG.json says which models there
are, of what parts; --print-config prints the one that is taken otherwise: eight models
with made-up figures. Fields that are left out have defaults, unknown ones are refused.
"arrivals" is "poisson" or "bursty" (all in the first 10 of every 50 ms); --trace takes
them from a file instead, lines of a moment in milliseconds and the name of a model.

A GPU is modelled as shared between what is under way: nothing is slowed until the parts'
widths, or their bandwidths, add up to more than 1. That compares decisions; it does not
predict a GPU. The same input gives the same result.`

type packSimulateFlags struct {
	load        []float64
	gpus        int
	seconds     float64
	seed        uint64
	arrivals    string
	trace       string
	printConfig bool
}

func (a *app) packSimulateVerb() *cobra.Command {
	var f packSimulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [CONFIG.json] [--load X,…] [--trace FILE]",
		Short: "Compare policies for many models on shared GPUs, in simulated time",
		Long:  packSimulateLong,
		Example: `  holdfast pack simulate
  holdfast pack simulate --load 1.2 --arrivals bursty --gpus 16 --json
  holdfast pack simulate --print-config > models.json
  holdfast pack simulate models.json --trace arrivals.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("simulate: %q is one argument too many", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.config(cmd, args)
			if err != nil {
				return err
			}
			if f.printConfig {
				return a.printPackConfig(c)
			}
			return a.packSimulate(c, f)
		},
	}
	fl := cmd.Flags()
	fl.Float64SliceVar(&f.load, "load", []float64{0.2, 0.5, 0.9, 1.2},
		"offered loads, `X,…`; 1 is what the GPUs can do")
	fl.IntVar(&f.gpus, "gpus", 0, "how many GPUs, 1 to 10,000 (default: what CONFIG.json says, or 1)")
	fl.Float64Var(&f.seconds, "seconds", 0, "how long requests arrive (default: what CONFIG.json says, or 2)")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of arrivals and times (default: what CONFIG.json says)")
	fl.StringVar(&f.arrivals, "arrivals", "", "poisson or bursty (default: what CONFIG.json says, or poisson)")
	fl.StringVar(&f.trace, "trace", "", "take arrivals from a `FILE`; --load is not used")
	fl.BoolVar(&f.printConfig, "print-config", false, "print the configuration instead")
	return cmd
}

// config is the configuration of the file, or the default one, with what flags say.
func (f *packSimulateFlags) config(cmd *cobra.Command, args []string) (sim.Config, error) {
	c := sim.Default()
	if len(args) > 0 {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return c, err
		}
		c = sim.Config{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return c, fmt.Errorf("%s: %w", args[0], err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return c, fmt.Errorf("%s: there is more after the configuration", args[0])
		}
	}
	set := cmd.Flags().Changed
	if set("gpus") {
		c.GPUs = f.gpus
	}
	if set("seconds") {
		c.Seconds = f.seconds
	}
	if set("seed") {
		c.Seed = f.seed
	}
	if set("arrivals") {
		c.Arrivals = f.arrivals
	}
	return c, nil
}

func (a *app) printPackConfig(c sim.Config) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", " ")
	return e.Encode(c)
}

func (a *app) packSimulate(c sim.Config, f packSimulateFlags) error {
	var results []*sim.Result
	if f.trace != "" {
		file, err := os.Open(f.trace)
		if err != nil {
			return err
		}
		defer file.Close()
		r, err := sim.Replay(c, file)
		if err != nil {
			return fmt.Errorf("%s: %w", f.trace, err)
		}
		results = append(results, r)
	} else {
		for _, x := range f.load {
			r, err := sim.Run(c, x)
			if err != nil {
				return err
			}
			results = append(results, r)
		}
	}
	if a.json {
		return a.printJSON(results)
	}
	return a.printSimulated(results)
}

func (a *app) printSimulated(results []*sim.Result) error {
	t := newTable(">LOAD", "POLICY", ">GOODPUT/s", ">OF BOUND", ">IN TIME", ">MISSED", ">REFUSED", ">P50", ">P99")
	for _, r := range results {
		load := "trace"
		if r.Offered > 0 {
			load = fmt.Sprintf("%.2f", r.Offered)
		}
		t.add(load, "bound", fmt.Sprintf("%.0f", r.Bound/r.Seconds), "", fmt.Sprintf("%.0f", r.Bound), "", "", "", "")
		for _, p := range r.Policies {
			t.add(load, p.Name, fmt.Sprintf("%.0f", p.Goodput), fmt.Sprintf("%.1f %%", p.OfBound*100),
				fmt.Sprint(p.Met), fmt.Sprint(p.Missed), fmt.Sprint(p.Refused), msText(p.P50), msText(p.P99))
		}
	}
	return t.print(a.stdout)
}
