// Command goodput serves recordings to the arrivals of a plan, for bench/pack/goodput.py: everything in one process,
// by pack's machine, without a CUDA library.
//
//	goodput [-oversubscribe X] [-sure X] [-longest D] [-instances N] PLAN.json
//
// It prints a JSON object for each run of the plan.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
	"holdfast/internal/pack"
	"holdfast/internal/pack/machine"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
)

// A plan is what goodput.py writes.
type plan struct {
	Tenants []struct {
		Case     string  `json:"case"`
		Dir      string  `json:"dir"`      // with m.hfr, and inputs and outputs as models.py wrote them
		Deadline float64 `json:"deadline"` // seconds
	} `json:"tenants"`
	Runs []struct {
		Load     float64     `json:"load"`
		Arrivals [][]float64 `json:"arrivals"` // of each tenant, in seconds from the begin
	} `json:"runs"`
}

func main() {
	var c machine.Config
	flag.Float64Var(&c.Pack.Oversubscribe, "oversubscribe", 0, "how far widths may go over 1")
	flag.Float64Var(&c.Pack.Sure, "sure", 0, "how much of the worst case counts")
	flag.DurationVar(&c.Longest, "longest", 0, "longest part")
	instances := flag.Int("instances", 1, "of each tenant")
	flag.Parse()
	if err := run(flag.Arg(0), c, *instances); err != nil {
		fmt.Fprintln(os.Stderr, "goodput:", err)
		os.Exit(1)
	}
}

// A tenant has what it is asked, and what it must answer.
type tenant struct {
	name     string
	what     string
	deadline time.Duration
	inputs   []map[string][]byte
	answers  []map[string][]byte
	want     []string
}

// A result is what became of a tenant's requests in a run.
type result struct {
	mu      sync.Mutex
	Case    string    `json:"case"`
	Offered int       `json:"offered"`
	Met     int       `json:"met"`
	Refused int       `json:"refused"`
	Late    []float64 `json:"-"`
	Wrong   int       `json:"wrong"`
	Errors  int       `json:"errors"`
	P50     float64   `json:"p50"` // seconds, of those answered
	P99     float64   `json:"p99"`
	Beyond  int       `json:"beyond"` // answered after the deadline
}

func run(path string, c machine.Config, instances int) (err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	b, err := raw.Open(raw.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	c.GPUs = []engine.Sharer{b}
	m, err := machine.New(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var tenants []*tenant
	for i, t := range p.Tenants {
		one := &tenant{name: fmt.Sprintf("%s.%d", t.Case, i), what: t.Case, deadline: time.Duration(t.Deadline * 1e9)}
		f, err := recording.Open(filepath.Join(t.Dir, "m.hfr"))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := one.read(f, t.Dir); err != nil {
			return err
		}
		err = m.Add(machine.Spec{Tenant: pack.Tenant{Name: one.name, SLO: one.deadline, Instances: instances},
			Load: func(on engine.Sharer) (machine.Copy, error) {
				return replay.DivideOne(on, f, "")
			}})
		if err != nil {
			return err
		}
		tenants = append(tenants, one)
	}
	for i, r := range p.Runs {
		before, err := m.State()
		if err != nil {
			return err
		}
		results := drive(m, tenants, r.Arrivals)
		after, err := m.State()
		if err != nil {
			return err
		}
		for _, x := range results {
			slices.Sort(x.Late)
			if n := len(x.Late); n > 0 {
				x.P50, x.P99 = x.Late[n/2], x.Late[n*99/100]
			}
		}
		out, err := json.Marshal(map[string]any{"run": i, "load": r.Load, "tenants": results,
			"busy":   (after.Busy - before.Busy).Seconds(),
			"filled": (after.Filled - before.Filled).Seconds(), "parts": after.Parts - before.Parts})
		if err != nil {
			return err
		}
		fmt.Println(string(out))
	}
	return nil
}

// read gets the inputs and outputs that models.py has left: of the recorded pass, and of others.
func (t *tenant) read(f *recording.File, dir string) error {
	e := &f.Manifest.Entries[0]
	for _, p := range e.Outputs {
		if !p.Untyped() {
			t.want = append(t.want, p.Name)
		}
	}
	for _, tag := range []string{"", "0", "1", "2", "3", "4"} {
		in, out := map[string][]byte{}, map[string][]byte{}
		for _, p := range e.Inputs {
			b, err := os.ReadFile(filepath.Join(dir, p.Name+tag))
			if errors.Is(err, os.ErrNotExist) && p.Recorded != nil {
				b, err = f.Read(*p.Recorded)
			}
			if err != nil {
				return err
			}
			in[p.Name] = b
		}
		for _, name := range t.want {
			b, err := os.ReadFile(filepath.Join(dir, name+tag))
			if err != nil {
				return err
			}
			out[name] = b
		}
		t.inputs, t.answers = append(t.inputs, in), append(t.answers, out)
	}
	return nil
}

// An arrival is a request that is due.
type arrival struct {
	at     time.Duration
	tenant int
	nth    int
}

// drive makes all requests when they are due, and waits for the last. It does not sleep by Go's timers, which are late
// by up to a millisecond.
func drive(m *machine.Machine, tenants []*tenant, arrivals [][]float64) []*result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	results := make([]*result, len(tenants))
	var list []arrival
	for i, t := range tenants {
		results[i] = &result{Case: t.what, Offered: len(arrivals[i])}
		for n, at := range arrivals[i] {
			list = append(list, arrival{time.Duration(at * 1e9), i, n})
		}
	}
	slices.SortFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	var all sync.WaitGroup
	begin := time.Now().Add(10 * time.Millisecond)
	for _, a := range list {
		due := begin.Add(a.at)
		for left := time.Until(due); left > 0; left = time.Until(due) {
			if left > 100*time.Microsecond {
				pause := unix.NsecToTimespec(int64(left - 80*time.Microsecond))
				unix.Nanosleep(&pause, nil)
			}
		}
		all.Go(func() { tenants[a.tenant].ask(m, due, a.nth, results[a.tenant]) })
	}
	all.Wait()
	return results
}

// ask makes one request.
func (t *tenant) ask(m *machine.Machine, due time.Time, nth int, r *result) {
	k := nth % len(t.inputs)
	within := max(1, t.deadline-time.Since(due))
	a, err := m.Infer(context.Background(), machine.Request{Tenant: t.name, In: t.inputs[k], Want: t.want,
		Within: within})
	took := time.Since(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	var refused *machine.Refused
	switch {
	case errors.As(err, &refused):
		r.Refused++
		return
	case err != nil:
		r.Errors++
		fmt.Fprintln(os.Stderr, "goodput:", t.name, err)
		return
	}
	for name, b := range t.answers[k] {
		if !bytes.Equal(a.Out[name], b) {
			r.Wrong++
			break
		}
	}
	r.Late = append(r.Late, took.Seconds())
	if took <= t.deadline {
		r.Met++
	} else {
		r.Beyond++
	}
}
