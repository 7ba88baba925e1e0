// Command verdicts evaluates every launch of a corpus of applications, and counts: kernels, instances (launches that
// differ), how many have a verdict and which, why the others have none, and how long an evaluation takes.
//
//	verdicts [-corpus DIR] [-oracle] [-json] [-application NAME]… [-trace FILE]…
//
// With -oracle launches are also executed, on the software GPU, and so are mutants of them: launches whose buffers
// overlap and whose sizes are 0, 1 or a prime. Execution shows what is true: which bytes are read and then
// changed, and whether a launch that was stopped in the middle of a random schedule and started again ends with
// the same memory. A false positive is a launch that is said to be idempotent, and was not shown to be. A false
// negative is one that is, and is not said to be. Launches that are too large are executed with fewer blocks; the
// table says how many.
//
// A trace of "holdfast trace" has arguments and allocations, but no contents of memory: its launches are evaluated
// only.
//
// It exits with 1 after a failure or a false positive, with 2 where it was called wrongly. ../README.md says what
// else is measured, and how the page docs/results/foresee.md is made.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"holdfast/internal/corpus"
	"holdfast/internal/corpus/measure"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are what the command line says.
type options struct {
	corpus       string
	traces       list
	applications list
	oracle, json bool
	prefixes     int
	mutants      int
	workers      int
}

// A list is a flag that may be given more than once.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(args []string, stdout, stderr io.Writer) int {
	o, d := options{}, measure.Defaults()
	fs := flag.NewFlagSet("verdicts", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.corpus, "corpus", "", "`directory` with applications (test/corpus, if there is no -trace)")
	fs.Var(&o.traces, "trace", "a `file` of \"holdfast trace\"; may be repeated")
	fs.Var(&o.applications, "application", "only the application of this `name`; may be repeated")
	fs.BoolVar(&o.oracle, "oracle", false, "execute launches and mutants of them, and compare")
	fs.BoolVar(&o.json, "json", false, "print JSON")
	fs.IntVar(&o.prefixes, "prefixes", d.Prefixes, "how often a launch is stopped and started again")
	fs.IntVar(&o.mutants, "mutants", d.Mutants, "mutants of a launch, at most")
	fs.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "launches at a time")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if fs.NArg() > 0 || o.prefixes < 0 || o.mutants < 0 || o.workers < 1 {
		fmt.Fprintln(stderr, "verdicts: no arguments but flags; -prefixes and -mutants are at least 0, -workers at "+
			"least 1")
		return 2
	}
	if o.corpus == "" && len(o.traces) == 0 {
		o.corpus = "test/corpus"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := evaluate(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "verdicts: %v\n", err)
		return 1
	}
	return 0
}

// evaluate prints what was measured, also before an interrupt.
func evaluate(ctx context.Context, o options, stdout, stderr io.Writer) error {
	mo := measure.Defaults()
	mo.Oracle, mo.Prefixes, mo.Mutants, mo.Workers = o.oracle, o.prefixes, o.mutants, o.workers
	mo.Progress = func(application string, done, total int) {
		if done == total {
			fmt.Fprintf(stderr, "%s: %d launches\n", application, total)
		}
	}
	m := measure.New(mo)
	err := evaluateAll(ctx, m, o)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r := m.Report()
	if bad := o.print(stdout, r); bad != nil {
		return bad
	}
	switch {
	case err != nil:
		return fmt.Errorf("interrupted: %w", err)
	case len(r.FalsePositives) > 0:
		return fmt.Errorf("%d false positives", len(r.FalsePositives))
	}
	return nil
}

func (o options) print(w io.Writer, r *measure.Report) error {
	if !o.json {
		return printReport(w, r, o.oracle)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

func evaluateAll(ctx context.Context, m *measure.Measurement, o options) error {
	for _, t := range o.traces {
		if err := m.Trace(ctx, t); err != nil {
			return err
		}
	}
	if o.corpus == "" {
		return nil
	}
	apps, err := corpus.Load(o.corpus)
	if err != nil {
		return err
	}
	found := false
	for _, x := range apps {
		if len(o.applications) > 0 && !slices.Contains(o.applications, x.Name) {
			continue
		}
		found = true
		if err := m.Application(ctx, x); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no such application in %s", o.corpus)
	}
	return nil
}

func printReport(w io.Writer, r *measure.Report, oracle bool) error {
	p := &printer{w: w}
	rows := append(slices.Clone(r.Applications), r.Total)
	if r.Opaque.Kernels > 0 {
		rows = append(rows, r.Opaque)
	}
	t := newTable("APPLICATION", "KERNELS", "CONDITIONAL", "LAUNCHES", "INSTANCES", "IDEMPOTENT", "NOT", "UNKNOWN",
		"WITH VERDICT")
	for _, x := range rows {
		v := x.Verdicts
		t.add(x.Application, count(x.Kernels), count(x.Conditional), count(x.Launches), count(v.Total()),
			count(v.Idempotent), count(v.NotIdempotent), count(v.Unknown), share(v.Total()-v.Unknown, v.Total()))
	}
	p.table(t)
	if oracle {
		t := newTable("APPLICATION", "EXECUTED", "SMALLER", "NOT", "TRULY IDEMPOTENT", "TRULY NOT", "UNDECIDED",
			"FALSE POSITIVES", "FALSE NEGATIVES", "", "MUTANTS", "TRULY NOT", "FALSE POSITIVES", "FALSE NEGATIVES", "")
		for _, x := range append(slices.Clone(r.Applications), r.Total) {
			c, m := x.Truth, x.Mutants
			t.add(x.Application, count(x.Executed), count(x.Smaller), count(sum(x.NotExecuted)), count(c.Idempotent),
				count(c.NotIdempotent), count(c.Undecided), count(c.FalsePositives), count(c.FalseNegatives),
				share(c.FalseNegatives, c.Idempotent),
				count(m.Total()), count(m.NotIdempotent), count(m.FalsePositives), count(m.FalseNegatives),
				share(m.FalseNegatives, m.Idempotent))
		}
		p.table(t)
		x := r.Total
		p.say("Not executed: %s. Left their buffers: %d. Re-executions: %d.", causes(x.NotExecuted),
			x.Stray, x.Truth.Reexecutions+x.Mutants.Reexecutions)
		p.say("Set apart, because they are not idempotent by definition although nothing was clobbered: %s.",
			causes(x.Excluded))
		p.say("False negatives with contents of memory known: %d of %d, of mutants %d of %d.",
			x.Truth.FalseNegativesKnown, x.Truth.Idempotent, x.Mutants.FalseNegativesKnown, x.Mutants.Idempotent)
		p.say("Said not to be idempotent, and are: %d. Accessed a byte that was not foreseen: %d.",
			x.Truth.Refuted+x.Mutants.Refuted, x.Truth.Missed+x.Mutants.Missed)
	}
	if n := r.Total.Beside; n > 0 {
		p.say("Of machine code that lies beside the PTX that was analysed: %d.", n)
	}
	p.say("Kernels with instances of both verdicts: %d.", r.Total.Both)
	p.say("Not known to be idempotent: %s.", causes(r.Total.Causes))
	l := r.Latency
	ns := func(x float64) string { return time.Duration(x).String() }
	p.say("One evaluation, with nothing remembered: median %s, p99 %s, max %s (%s), %.3f allocations; %d instances.",
		ns(l.P50), ns(l.P99), ns(l.Max), l.Slowest, l.Allocations, l.Instances)
	if x := r.LatencyRecorded; x.All.Launches > 0 {
		times := func(d measure.Distribution) string {
			return fmt.Sprintf("%d launches, median %s, p99 %s, max %s", d.Launches, ns(d.P50), ns(d.P99), ns(d.Max))
		}
		p.say("In the order in which the programs made them: %s (%s), %.3f allocations.",
			times(x.All), x.All.Slowest, x.Allocations)
		p.say("Of them remembered from a launch before: %s. The others: %s.",
			times(x.Remembered), times(x.Others))
		p.say("When each program makes all of its launches a second time: %s; %d remembered.",
			times(x.Second), x.SecondRemembered)
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
	for _, line := range t.lines() {
		p.say("%s", line)
	}
	p.say("")
}

// A table has its first column to the left, and numbers to the right.
type table [][]string

func newTable(head ...string) *table { return &table{head} }

func (t *table) add(cells ...string) { *t = append(*t, cells) }

func (t *table) lines() (lines []string) {
	width := make([]int, len((*t)[0]))
	for _, row := range *t {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range *t {
		line := fmt.Sprintf("%-*s", width[0], row[0])
		for i, c := range row[1:] {
			line += fmt.Sprintf("  %*s", width[i+1], c)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
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
