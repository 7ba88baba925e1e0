// Package command is what the commands "holdfast replay" and "hfreplay" share: options, files of inputs and outputs,
// the run itself, and what is said of it. They differ in the engine's backends that they have.
package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/procstat"
	"holdfast/internal/recording"
	"holdfast/internal/replay"

	"golang.org/x/sys/unix"
)

// Options are a user's.
type Options struct {
	Ins, Outs []string // NAME=FILE
	Runs      int      // how many times
	Entry     string   // "": the only one
	Reset     bool     // put memory back before each run but the first
	Same      bool     // all runs must leave the same bits in the outputs
	Timeout   time.Duration
	Keeping
}

// A UsageError is a fault of the command line.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// A Report is what --json says. Times are seconds, but for those of the start.
type Report struct {
	Backend string       `json:"backend"`
	Refused []string     `json:"refused,omitempty"` // backends that did not take it, and why
	Device  string       `json:"device"`
	Runs    int          `json:"runs"`
	Open    float64      `json:"open_seconds"` // the device
	Start   replay.Times `json:"start_nanoseconds"`
	First   float64      `json:"first_run_seconds"`
	Median  float64      `json:"median_run_seconds"`
	Total   float64      `json:"total_seconds"` // from the process's beginning to the last output
	// Resident is how much memory of the host this process had in use at the end, and Grown how much more than when
	// half of the runs were done.
	Resident int64 `json:"resident_bytes"`
	Grown    int64 `json:"resident_grown_bytes"`
	Same     bool  `json:"same"` // all outputs of all runs were compared, and were the same
	// Before is how many of the runs had led to the state that was loaded.
	Before   uint64            `json:"runs_before,omitempty"`
	Saved    *Saved            `json:"saved,omitempty"`
	Recovery *replay.Recovered `json:"recovery,omitempty"` // with --retries
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer, program string) error {
	for _, why := range r.Refused {
		if _, err := fmt.Fprintf(w, "%s: not by %s\n", program, why); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %d runs on %s (%s): first %v, median %v; %v in all\n", program, r.Runs, r.Device,
		r.Backend, seconds(r.First), seconds(r.Median), seconds(r.Total))
	if err == nil {
		err = r.printKept(w, program)
	}
	return err
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// A Way opens a backend and says its name.
type Way func() (engine.Backend, string, error)

// Replay runs a recording on the first backend that takes it: one that cannot be opened, or refuses the recording
// before anything has run, is followed by the next. Everything that needs no device is checked before, and what can be
// read is read while a device is opened.
func Replay(path string, o Options, ways ...Way) (*Report, error) {
	if o.Runs < 1 {
		return nil, usage("-n %d: at least 1", o.Runs)
	}
	file, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	e, err := file.Manifest.Entry(o.Entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ins, err := readInputs(e, o.Ins)
	if err != nil {
		return nil, err
	}
	outs, err := namedFiles(o.Outs, "out", e.Outputs)
	if err != nil {
		return nil, err
	}
	state, err := o.open(file)
	if err != nil {
		return nil, err
	}
	if state != nil {
		defer state.Close()
	}
	report := &Report{Runs: o.Runs}
	var refused []error
	for _, open := range ways {
		b, p, err := ready(file, o.Entry, open, report)
		if err != nil {
			refused = append(refused, err)
			report.Refused = append(report.Refused, fmt.Sprintf("%s: %v", report.Backend, err))
			continue
		}
		a, closing, err := o.actor(file, p, b, open)
		if err == nil {
			err = play(a, p, o, state, ins, outs, report)
		}
		if err := errors.Join(err, closing()); err != nil {
			return nil, err
		}
		return report, nil
	}
	return nil, errors.Join(refused...)
}

// ready opens a backend and loads the recording on it.
func ready(file *recording.File, entry string, open Way, report *Report) (engine.Backend, *replay.Player, error) {
	type reading struct {
		p   *replay.Player
		err error
	}
	read := make(chan reading, 1)
	go func() {
		p, err := replay.Read(file, entry)
		read <- reading{p, err}
	}()
	opening := time.Now()
	b, name, err := open()
	r := <-read
	report.Backend = name
	if err != nil {
		return nil, nil, err
	}
	report.Open = time.Since(opening).Seconds()
	report.Device = b.Info().Name
	if err = r.err; err == nil {
		err = r.p.Load(b)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, r.p, nil
}

// keptTimes is of how many runs, the last, the median is.
const keptTimes = 1 << 16

// play runs the recording and writes its outputs.
func play(p actor, of *replay.Player, o Options, state *replay.State, ins map[string][]byte, outs map[string]string,
	report *Report) error {
	if state != nil {
		if err := p.LoadState(state); err != nil {
			return errors.Join(err, p.Close())
		}
		report.Before = state.Runs
	}
	for name, data := range ins {
		if err := p.SetInput(name, data); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	before := int(min(report.Before, uint64(o.Runs)))
	times := make([]time.Duration, min(o.Runs-before, keptTimes))
	var first [][]byte // outputs of the first run
	var half int64
	for i := range o.Runs - before {
		if o.Reset && i > 0 {
			if err := p.Reset(); err != nil {
				return errors.Join(err, p.Close())
			}
		}
		started := time.Now()
		if err := p.Run(o.Timeout); err != nil {
			return err // the backend is of no more use but to be closed
		}
		times[i%len(times)] = time.Since(started)
		if i == 0 {
			report.First = times[0].Seconds()
		}
		if i == (o.Runs-before)/2 {
			half = procstat.Resident()
		}
		if err := o.save(p, before+i+1, report); err != nil {
			return errors.Join(err, p.Close())
		}
		if !o.Same {
			continue
		}
		if err := compare(p, of.Entry.Outputs, &first, i); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	report.Same = o.Same
	report.Resident = procstat.Resident()
	report.Grown = report.Resident - half
	if err := writeOutputs(p, of.Entry.Outputs, outs); err != nil {
		return errors.Join(err, p.Close())
	}
	report.Start, report.Total = of.Times, processAge().Seconds()
	if slices.Sort(times); len(times) > 0 {
		report.Median = times[len(times)/2].Seconds()
	}
	if r, ok := p.(*replay.Recoverer); ok {
		report.Recovery = &r.Done
	}
	return p.Close()
}

// compare compares the outputs of a run with those of the first, which it keeps.
func compare(p actor, outputs []recording.Port, first *[][]byte, run int) error {
	for i, port := range outputs {
		data, err := p.Output(port.Name)
		switch {
		case err != nil:
			return err
		case run == 0:
			*first = append(*first, data)
		case !bytes.Equal(data, (*first)[i]):
			return fmt.Errorf("run %d left other bits in %s than the first", run+1, port.Name)
		}
	}
	return nil
}

func writeOutputs(p actor, outputs []recording.Port, files map[string]string) error {
	for _, port := range outputs {
		if files[port.Name] == "" {
			continue
		}
		data, err := p.Output(port.Name)
		if err == nil {
			err = writeOutput(files[port.Name], &port, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// processAge is how long ago this process began: to a hundredth of a second, as the kernel says it.
func processAge() time.Duration {
	const ticks = 100 // USER_HZ, of all that Linux tells of times
	stat, err := procstat.Read(os.Getpid())
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(stat.Start)*time.Second/ticks
}
