package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/embedded"
	"holdfast/internal/engine"
	"holdfast/internal/engine/driver"
	"holdfast/internal/npy"
	"holdfast/internal/recording"
	"holdfast/internal/replay"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const replayLong = `Do what "holdfast record" has recorded again, without the program: memory at the
addresses and with the contents of the recording, the same code, the same work. On the
recorded input, and with no other, the same bits come out.

--in NAME=FILE gives an input other data: a .npy file of its type and shape, or, if its
type is not known (uint8), of as many bytes; any other file is taken as raw bytes.
Inputs that are not given have those of the recording. --out NAME=FILE writes an output,
as .npy if it is named so. "holdfast inspect" lists inputs and outputs.

With -n it runs several times. What one run leaves in memory is what the next one finds,
as if the program had gone on; --reset puts memory back before each. The outputs are those
of the last run.

--backend libcuda needs the NVIDIA driver and a GPU of the recording's kind, soft runs
recordings with PTX on the software GPU; auto takes the first where there is one. --step
runs one word after the other: slower, but a fault names its kernel.`

type replayFlags struct {
	ins, outs      []string
	n              int
	backend, entry string
	reset, step    bool
	timeout        time.Duration
}

func (a *app) replayVerb() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay MODEL.hfr [--in NAME=FILE]… [--out NAME=FILE]… [-n N]",
		Short: "Run a recording without its program",
		Long:  replayLong,
		Example: `  holdfast replay resnet.hfr --in image=cat.npy --out scores=scores.npy
  holdfast replay resnet.hfr -n 1000 --json`,
		Args: exactly("MODEL.hfr"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.replay(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().StringArrayVar(&f.ins, "in", nil, "NAME=FILE: data of an input")
	cmd.Flags().StringArrayVar(&f.outs, "out", nil, "NAME=FILE: where an output goes")
	cmd.Flags().IntVarP(&f.n, "runs", "n", 1, "how many times")
	cmd.Flags().BoolVar(&f.reset, "reset", false, "put memory back before each run")
	cmd.Flags().BoolVar(&f.step, "step", false, "run one word after the other")
	cmd.Flags().StringVar(&f.entry, "entry", "", "which entry, if there are several")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long one run may take")
	cmd.Flags().StringVar(&f.backend, "backend", "auto", "auto, libcuda or soft")
	registerValues(cmd, "backend", "auto", "libcuda", "soft")
	return cmd
}

// A replayReport is what replay --json says.
type replayReport struct {
	Backend string       `json:"backend"`
	Device  string       `json:"device"`
	Runs    int          `json:"runs"`
	Open    float64      `json:"open_seconds"` // the device
	Start   replay.Times `json:"start_nanoseconds"`
	First   float64      `json:"first_run_seconds"`
	Median  float64      `json:"median_run_seconds"`
	Total   float64      `json:"total_seconds"` // from the process's beginning to the last output
}

func (a *app) replay(ctx context.Context, path string, f replayFlags) error {
	if f.n < 1 {
		return usageErrorf("replay: -n %d: at least 1", f.n)
	}
	file, err := recording.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	e, err := file.Manifest.Entry(f.entry)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	ins, err := readInputs(e, f.ins)
	if err != nil {
		return err
	}
	outs, err := namedFiles(f.outs, "out", e.Outputs)
	if err != nil {
		return err
	}
	report := &replayReport{Runs: f.n}
	type reading struct {
		p   *replay.Player
		err error
	}
	read := make(chan reading, 1)
	go func() { // while the device comes up
		p, err := replay.Read(file, f.entry)
		read <- reading{p, err}
	}()
	opening := time.Now()
	b, err := a.backend(ctx, f, report)
	r := <-read
	if err != nil {
		return err
	}
	if r.err != nil {
		return errors.Join(r.err, b.Close())
	}
	report.Open = time.Since(opening).Seconds()
	report.Device = b.Info().Name
	return errors.Join(a.play(b, r.p, f, ins, outs, report), b.Close())
}

// backend opens the one that is wanted.
func (a *app) backend(ctx context.Context, f replayFlags, report *replayReport) (engine.Backend, error) {
	kind := map[string]string{"auto": "auto", "libcuda": gpuNative, "soft": gpuSoft}[f.backend]
	if kind == "" {
		return nil, usageErrorf("replay: --backend=%s: auto, libcuda or soft", f.backend)
	}
	kind, err := gpuKind(kind)
	if err != nil {
		return nil, err
	}
	if kind == gpuNative {
		report.Backend = "libcuda"
		return openNative(f.step)
	}
	report.Backend = "soft"
	dir, err := a.serverDir() // the stub looks for the software GPU there
	if err != nil {
		return nil, err
	}
	if _, err := client.SoftGPU.Start(ctx, dir); err != nil {
		return nil, err
	}
	stub, err := embedded.StubMemory()
	if err != nil {
		return nil, err
	}
	defer stub.Close()
	return driver.Open(driver.Config{Library: embedded.Path(stub), PTXOnly: true, Step: f.step})
}

// openNative opens the machine's driver. The loader mostly finds it by its name; looking for it takes longer.
func openNative(step bool) (engine.Backend, error) {
	b, err := driver.Open(driver.Config{Step: step})
	if path := findDriverAfter(err); path != "" {
		b, err = driver.Open(driver.Config{Library: path, Step: step})
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func findDriverAfter(err error) string {
	if err == nil {
		return ""
	}
	return findDriver()
}

// processAge is how long ago this process began: to a hundredth of a second, as the kernel says it.
func processAge() time.Duration {
	const ticks = 100 // USER_HZ, of all that Linux tells of times
	stat, err := os.ReadFile("/proc/self/stat")
	_, rest, ok := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var now unix.Timespec
	if err != nil || !ok || len(fields) < 20 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	start, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(start)*time.Second/ticks
}

// play runs the recording and writes its outputs.
func (a *app) play(b engine.Backend, p *replay.Player, f replayFlags, ins map[string][]byte, outs map[string]string,
	report *replayReport) error {
	if err := p.Load(b); err != nil {
		return err
	}
	for name, data := range ins {
		if err := p.SetInput(name, data); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	times := make([]time.Duration, 0, f.n)
	for i := range f.n {
		if f.reset && i > 0 {
			if err := p.Reset(); err != nil {
				return errors.Join(err, p.Close())
			}
		}
		started := time.Now()
		if err := p.Run(f.timeout); err != nil {
			return explained(err, f)
		}
		times = append(times, time.Since(started))
	}
	for _, o := range p.Entry.Outputs {
		if outs[o.Name] == "" {
			continue
		}
		data, err := p.Output(o.Name)
		if err == nil {
			err = writeOutput(outs[o.Name], &o, data)
		}
		if err != nil {
			return errors.Join(err, p.Close())
		}
	}
	report.Start, report.Total = p.Times, processAge().Seconds()
	report.First = times[0].Seconds()
	report.Median = median(times).Seconds()
	return errors.Join(p.Close(), a.replayed(report))
}

func explained(err error, f replayFlags) error {
	var fault *engine.Fault
	if errors.As(err, &fault) && fault.Word < 0 && !f.step {
		return fmt.Errorf("%w; --step says where", err)
	}
	return err
}

func (a *app) replayed(r *replayReport) error {
	if a.json {
		return a.printJSON(r)
	}
	_, err := fmt.Fprintf(a.stderr, "holdfast: %d runs on %s (%s): first %v, median %v; %v in all\n", r.Runs,
		r.Device, r.Backend,
		seconds(r.First), seconds(r.Median), seconds(r.Total))
	return err
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// namedFiles reads NAME=FILE options, each for one of ports.
func namedFiles(list []string, flag string, ports []recording.Port) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" {
			return nil, usageErrorf("replay: --%s %s: want NAME=FILE", flag, text)
		}
		if out[name] != "" {
			return nil, usageErrorf("replay: --%s %s: given twice", flag, name)
		}
		if _, err := replay.Port(ports, name); err != nil {
			return nil, usageErrorf("replay: --%s %s: %v", flag, text, err)
		}
		out[name] = file
	}
	return out, nil
}

func readInputs(e *recording.Entry, list []string) (map[string][]byte, error) {
	files, err := namedFiles(list, "in", e.Inputs)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name, file := range files {
		p, err := replay.Port(e.Inputs, name)
		if err != nil {
			return nil, err
		}
		if out[name], err = readInput(file, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readInput reads what a file has for p.
func readInput(file string, p *recording.Port) ([]byte, error) {
	if !strings.HasSuffix(file, ".npy") {
		st, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if st.Mode().IsRegular() && st.Size() != p.Bytes {
			return nil, fmt.Errorf("%s: %d bytes, input %s has %d", file, st.Size(), p.Name, p.Bytes)
		}
		return os.ReadFile(file)
	}
	x, err := npy.ReadFile(file, p.Bytes)
	if err != nil {
		return nil, err
	}
	untyped := p.DType == "uint8" && len(p.Shape) == 1
	same := x.DType == npyType(p.DType) && fmt.Sprint(x.Shape) == fmt.Sprint(p.Shape)
	if int64(len(x.Data)) != p.Bytes || !untyped && !same {
		return nil, fmt.Errorf("%s: %s %v, input %s is %s %v", file, x.DType, x.Shape, p.Name, p.DType, p.Shape)
	}
	return x.Data, nil
}

// npyType is the type by which .npy files have one. They know no bfloat16: its bits are taken as uint16.
func npyType(dtype string) string {
	if dtype == "bfloat16" {
		return "uint16"
	}
	return dtype
}

func writeOutput(file string, p *recording.Port, data []byte) error {
	if strings.HasSuffix(file, ".npy") {
		return npy.WriteFile(file, &npy.Array{DType: npyType(p.DType), Shape: p.Shape, Data: data})
	}
	return os.WriteFile(file, data, 0o666)
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
