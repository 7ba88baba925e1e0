package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/test/corpus"
	"holdfast/test/corpus/measure"

	"github.com/spf13/cobra"
)

func (a *app) benchVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure what holdfast foresees",
		Long:    "Measurements whose results stand in docs/results.",
		Example: "  holdfast bench idempotence --oracle",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageErrorf("bench: no verb %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchIdempotenceVerb())
	return cmd
}

const benchIdempotenceLong = `Evaluate every launch of a corpus of applications, and count: kernels, instances
(launches that differ), how many have a verdict and which, why the others have none, and
how long an evaluation takes.

With --oracle launches are also executed, on the software GPU, and so are mutants of
them: launches whose buffers overlap and whose sizes are 0, 1 or a prime. Execution
shows what is true: which bytes are read and then changed, and whether a launch that was
stopped in the middle of a random schedule and started again ends with the same memory.
A false positive is a launch that is said to be idempotent, and was not shown to be. A
false negative is one that is, and is not said to be. Launches that are too large are
executed with fewer blocks; the table says how many.

A trace has arguments and allocations, but no contents of memory: its launches are
evaluated only.`

type benchFlags struct {
	corpus       string
	traces       []string
	applications []string
	oracle       bool
	prefixes     int
	mutants      int
	workers      int
}

func (a *app) benchIdempotenceVerb() *cobra.Command {
	var f benchFlags
	d := measure.Defaults()
	cmd := &cobra.Command{
		Use:     "idempotence",
		Short:   "Compare verdicts with what executing launches shows",
		Long:    benchIdempotenceLong,
		Example: "  holdfast bench idempotence --oracle\n  holdfast bench idempotence --trace train.trace --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.benchIdempotence(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.corpus, "corpus", "", "`DIR` with applications (default test/corpus, if there is no --trace)")
	fl.StringArrayVar(&f.traces, "trace", nil, "a trace, `FILE`, of \"holdfast trace\"")
	fl.StringArrayVar(&f.applications, "application", nil, "only the application `NAME`")
	fl.BoolVar(&f.oracle, "oracle", false, "execute launches and mutants of them, and compare")
	fl.IntVar(&f.prefixes, "prefixes", d.Prefixes, "how often a launch is stopped and started again")
	fl.IntVar(&f.mutants, "mutants", d.Mutants, "mutants of a launch, at most")
	fl.IntVar(&f.workers, "workers", runtime.GOMAXPROCS(0), "launches at a time")
	return cmd
}

func (a *app) benchIdempotence(ctx context.Context, f benchFlags) error {
	if f.prefixes < 0 || f.mutants < 0 || f.workers < 1 {
		return usageErrorf("--prefixes and --mutants are at least 0, --workers at least 1")
	}
	if f.corpus == "" && len(f.traces) == 0 {
		f.corpus = "test/corpus"
	}
	o := measure.Defaults()
	o.Oracle, o.Prefixes, o.Mutants, o.Workers = f.oracle, f.prefixes, f.mutants, f.workers
	meter := a.meter()
	meter.unit = "launches"
	o.Progress = func(application string, done, total int) {
		meter.show(api.Progress{Phase: application, Done: uint64(done), Total: uint64(total)})
	}
	m := measure.New(o)
	err := a.benchAll(ctx, m, f)
	meter.clear()
	// What was measured before an interrupt is worth printing.
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r := m.Report()
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if err := printBench(a.stdout, r, f.oracle); err != nil {
		return err
	}
	switch {
	case err != nil:
		return fmt.Errorf("interrupted: %w", err)
	case len(r.FalsePositives) > 0:
		return fmt.Errorf("%d false positives", len(r.FalsePositives))
	}
	return nil
}

func (a *app) benchAll(ctx context.Context, m *measure.Measurement, f benchFlags) error {
	for _, t := range f.traces {
		if err := m.Trace(ctx, t); err != nil {
			return err
		}
	}
	if f.corpus == "" {
		return nil
	}
	apps, err := corpus.Load(f.corpus)
	if err != nil {
		return err
	}
	found := false
	for _, x := range apps {
		if len(f.applications) > 0 && !slices.Contains(f.applications, x.Name) {
			continue
		}
		found = true
		if err := m.Application(ctx, x); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no such application in %s", f.corpus)
	}
	return nil
}

func printBench(w io.Writer, r *measure.Report, oracle bool) error {
	p := &printer{w: w}
	rows := append(slices.Clone(r.Applications), r.Total)
	if r.Opaque.Kernels > 0 {
		rows = append(rows, r.Opaque)
	}
	t := newTable("APPLICATION", ">KERNELS", ">CONDITIONAL", ">LAUNCHES", ">INSTANCES", ">IDEMPOTENT", ">NOT", ">UNKNOWN", ">WITH VERDICT")
	for _, x := range rows {
		v := x.Verdicts
		t.add(x.Application, count(x.Kernels), count(x.Conditional), count(x.Launches), count(v.Total()), count(v.Idempotent), count(v.NotIdempotent), count(v.Unknown), share(v.Total()-v.Unknown, v.Total()))
	}
	p.table(t)
	if oracle {
		t := newTable("APPLICATION", ">EXECUTED", ">SMALLER", ">NOT", ">TRULY IDEMPOTENT", ">TRULY NOT", ">UNDECIDED", ">FALSE POSITIVES", ">FALSE NEGATIVES", ">", ">MUTANTS", ">TRULY NOT", ">FALSE POSITIVES", ">FALSE NEGATIVES", ">")
		for _, x := range append(slices.Clone(r.Applications), r.Total) {
			c, m := x.Truth, x.Mutants
			t.add(x.Application, count(x.Executed), count(x.Smaller), count(sum(x.NotExecuted)), count(c.Idempotent), count(c.NotIdempotent), count(c.Undecided), count(c.FalsePositives), count(c.FalseNegatives), share(c.FalseNegatives, c.Idempotent),
				count(m.Total()), count(m.NotIdempotent), count(m.FalsePositives), count(m.FalseNegatives), share(m.FalseNegatives, m.Idempotent))
		}
		p.table(t)
		x := r.Total
		p.say("Not executed: %s. Left their buffers: %d. Re-executions: %d.", causes(x.NotExecuted), x.Stray, x.Truth.Reexecutions+x.Mutants.Reexecutions)
		p.say("Set apart, because they are not idempotent by definition although nothing was clobbered: %s.", causes(x.Excluded))
		p.say("False negatives with contents of memory known: %d of %d, of mutants %d of %d.", x.Truth.FalseNegativesKnown, x.Truth.Idempotent, x.Mutants.FalseNegativesKnown, x.Mutants.Idempotent)
		p.say("Said not to be idempotent, and are: %d. Accessed a byte that was not foreseen: %d.", x.Truth.Refuted+x.Mutants.Refuted, x.Truth.Missed+x.Mutants.Missed)
	}
	if n := r.Total.Beside; n > 0 {
		p.say("Of machine code that lies beside the PTX that was analysed: %d.", n)
	}
	p.say("Kernels with instances of both verdicts: %d.", r.Total.Both)
	p.say("Not known to be idempotent: %s.", causes(r.Total.Causes))
	l := r.Latency
	ns := func(x float64) string { return time.Duration(x).String() }
	p.say("One evaluation, with nothing remembered: median %s, p99 %s, max %s (%s), %.3f allocations; %d instances.", ns(l.P50), ns(l.P99), ns(l.Max), l.Slowest, l.Allocations, l.Instances)
	if x := r.LatencyRecorded; x.All.Launches > 0 {
		times := func(d measure.Distribution) string {
			return fmt.Sprintf("%d launches, median %s, p99 %s, max %s", d.Launches, ns(d.P50), ns(d.P99), ns(d.Max))
		}
		p.say("In the order in which the programs made them: %s (%s), %.3f allocations.", times(x.All), x.All.Slowest, x.Allocations)
		p.say("Of them remembered from a launch before: %s. The others: %s.", times(x.Remembered), times(x.Others))
		p.say("When each program makes all of its launches a second time: %s; %d remembered.", times(x.Second), x.SecondRemembered)
	}
	for _, x := range r.FalsePositives {
		p.say("FALSE POSITIVE: %s: launch %d of %s%s: %s", x.Application, x.Launch, x.Kernel, mutant(x), x.Why)
	}
	return p.err
}

// A printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) table(t *table) {
	if p.err == nil {
		p.err = t.print(p.w)
	}
	p.say("")
}

func (p *printer) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func count[T int | uint64](n T) string { return fmt.Sprint(n) }

func share(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of))
}

func sum(m map[string]int) (n int) {
	for _, x := range m {
		n += x
	}
	return n
}

// causes lists numbers, the largest first.
func causes(m map[string]int) string {
	if len(m) == 0 {
		return "none"
	}
	keys := slices.SortedFunc(maps.Keys(m), func(x, y string) int {
		if m[x] != m[y] {
			return m[y] - m[x]
		}
		return strings.Compare(x, y)
	})
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

func mutant(x *measure.Mistake) string {
	if x.Mutant == "" {
		return ""
	}
	return " with " + x.Mutant
}
