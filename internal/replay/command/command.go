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
	"strconv"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/procstat"
	"holdfast/internal/recording"
	"holdfast/internal/replay"

	"golang.org/x/sys/unix"
)

// Options are a user's.
type Options struct {
	Ins, Outs []string // [ENTRY/]NAME=FILE
	Runs      int      // how many times
	Entries   []string // that a run consists of, in their order; none: the only one
	Base      string   // where memory is to begin; "": where it was
	Reset     bool     // put memory back before each run but the first
	Same      bool     // all runs must leave the same bits in the outputs
	Timeout   time.Duration
	Trust
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
	file, err := o.Trust.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file, err = Rebase(file, o.Base); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	j, err := newJob(path, file, o)
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
		b, p, err := j.ready(open, report)
		if err != nil {
			refused = append(refused, err)
			report.Refused = append(report.Refused, fmt.Sprintf("%s: %v", report.Backend, err))
			continue
		}
		a, closing, err := j.actor(p, b, open)
		if err == nil {
			err = j.play(a, p, state, report)
		}
		if err := errors.Join(err, closing()); err != nil {
			return nil, err
		}
		return report, nil
	}
	return nil, errors.Join(refused...)
}

// Rebase is the recording with its memory at an address that a user has written; "" is where it was.
func Rebase(f *recording.File, text string) (*recording.File, error) {
	if text == "" {
		return f, nil
	}
	base, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return nil, usage("--base %s: want an address, like 0x200000000000", text)
	}
	return f.At(recording.Addr(base))
}

// A job is what a user wants of a recording.
type job struct {
	Options
	file   *recording.File
	names  []string // of the entries that run, each once
	script []int    // places in names
	ins    []bound
	outs   []bound
	data   [][]byte // of ins
}

func newJob(path string, file *recording.File, o Options) (*job, error) {
	j := &job{Options: o, file: file}
	asked := o.Entries
	if len(asked) == 0 {
		asked = []string{""}
	}
	var entries []*recording.Entry
	for _, name := range asked {
		e, err := file.Manifest.Entry(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		i := slices.Index(j.names, e.Name)
		if i < 0 {
			i = len(j.names)
			j.names, entries = append(j.names, e.Name), append(entries, e)
		}
		j.script = append(j.script, i)
	}
	var ins, outs [][]recording.Port
	for _, e := range entries {
		ins, outs = append(ins, e.Inputs), append(outs, e.Outputs)
	}
	var err error
	if j.ins, err = j.bind(o.Ins, "in", ins); err != nil {
		return nil, err
	}
	if j.outs, err = j.bind(o.Outs, "out", outs); err != nil {
		return nil, err
	}
	for _, in := range j.ins {
		b, err := readInput(in.file, in.port)
		if err != nil {
			return nil, err
		}
		j.data = append(j.data, b)
	}
	return j, nil
}

// ready opens a backend and loads the recording on it.
func (j *job) ready(open Way, report *Report) (engine.Backend, *replay.Player, error) {
	type reading struct {
		p   *replay.Player
		err error
	}
	read := make(chan reading, 1)
	go func() {
		p, err := replay.Read(j.file, j.names...)
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
func (j *job) play(a *actor, p *replay.Player, state *replay.State, report *Report) error {
	if state != nil {
		if err := a.LoadState(state); err != nil {
			return errors.Join(err, a.Close())
		}
		report.Before = state.Runs
	}
	for i, in := range j.ins {
		if err := a.entries[in.entry].SetInput(in.port.Name, j.data[i]); err != nil {
			return errors.Join(err, a.Close())
		}
	}
	before := int(min(report.Before, uint64(j.Runs)))
	times := make([]time.Duration, min(j.Runs-before, keptTimes))
	var first [][]byte // outputs of the first run
	var half int64
	for i := range j.Runs - before {
		if j.Reset && i > 0 {
			if err := a.Reset(); err != nil {
				return errors.Join(err, a.Close())
			}
		}
		started := time.Now()
		for _, e := range j.script {
			if err := a.entries[e].Run(j.Timeout); err != nil {
				return j.named(e, err) // the backend is of no more use but to be closed
			}
		}
		times[i%len(times)] = time.Since(started)
		if i == 0 {
			report.First = times[0].Seconds()
		}
		if i == (j.Runs-before)/2 {
			half = procstat.Resident()
		}
		if err := j.save(a, before+i+1, report); err != nil {
			return errors.Join(err, a.Close())
		}
		if !j.Same {
			continue
		}
		if err := compare(p, a, &first, i); err != nil {
			return errors.Join(err, a.Close())
		}
	}
	report.Same = j.Same
	report.Resident = procstat.Resident()
	report.Grown = report.Resident - half
	if err := j.writeOutputs(a); err != nil {
		return errors.Join(err, a.Close())
	}
	report.Start, report.Total = p.Times, processAge().Seconds()
	if slices.Sort(times); len(times) > 0 {
		report.Median = times[len(times)/2].Seconds()
	}
	if r, ok := a.player.(*replay.Recoverer); ok {
		report.Recovery = &r.Done
	}
	return a.Close()
}

// named says which entry an error is of, if there are several.
func (j *job) named(entry int, err error) error {
	if len(j.names) == 1 {
		return err
	}
	return fmt.Errorf("entry %s: %w", j.names[entry], err)
}

// compare compares the outputs of a run with those of the first, which it keeps.
func compare(p *replay.Player, a *actor, first *[][]byte, run int) error {
	n := 0
	for k, e := range p.Entries {
		for _, port := range e.Outputs {
			data, err := a.entries[k].Output(port.Name)
			switch {
			case err != nil:
				return err
			case run == 0:
				*first = append(*first, data)
			case !bytes.Equal(data, (*first)[n]):
				return fmt.Errorf("run %d left other bits in %s than the first", run+1, port.Name)
			}
			n++
		}
	}
	return nil
}

func (j *job) writeOutputs(a *actor) error {
	for _, out := range j.outs {
		data, err := a.entries[out.entry].Output(out.port.Name)
		if err == nil {
			err = writeOutput(out.file, out.port, data)
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
