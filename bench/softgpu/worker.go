package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/softgpu"
	"holdfast/internal/softgpu/probe"
)

// A task is a line that a job reads.
type task struct {
	Unit int      `json:"unit"`
	Skip []string `json:"skip,omitempty"` // pairs that are done, or that ended an earlier job
	Flip bool     `json:"flip,omitempty"` // the self-check: flip one bit of what the GPU computed
}

// A message is a line that a job writes: the pair that starts, a result, or that a unit is done.
type message struct {
	Start  string  `json:"start,omitempty"`
	Result *Result `json:"result,omitempty"`
	Done   bool    `json:"done,omitempty"`
	Broken string  `json:"broken,omitempty"` // the device does not serve this job any more
	Ready  *ready  `json:"ready,omitempty"`
}

// ready is what a job says first.
type ready struct {
	Device string `json:"device"`
	CUDA   string `json:"cuda"`
}

// maxInstructions bounds what a probe may execute on the software GPU.
const maxInstructions = 200e6

// A worker is one job.
type worker struct {
	hw    *hardware
	sw    *software
	units []unit
	seed  uint64
	// longest is how many thread instructions of a launch of the corpus are executed before it is left out as too long.
	longest uint64
	flip    bool
	out     *json.Encoder
	skip    map[string]bool
	unit    int
}

// errBroken says that the context is lost: every call would fail.
var errBroken = errors.New("the device's context is lost")

func work(o options, in io.Reader, out io.Writer) error {
	w := &worker{seed: o.seed, longest: o.longest, out: json.NewEncoder(out)}
	var err error
	if w.units, err = o.plan(); err != nil {
		return err
	}
	if w.hw, err = openHardware(o.library, o.memory); err != nil {
		return err
	}
	if w.sw, err = openSoftware(uint64(w.hw.lo), o.memory); err != nil {
		return err
	}
	var hello ready
	if hello.Device, hello.CUDA, err = w.hw.describe(); err != nil {
		return err
	}
	if err := w.out.Encode(message{Ready: &hello}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var t task
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return fmt.Errorf("task: %w", err)
		}
		w.unit, w.flip, w.skip = t.Unit, t.Flip, map[string]bool{}
		for _, s := range t.Skip {
			w.skip[s] = true
		}
		u := w.units[t.Unit]
		if u.app != nil {
			err = w.application(u)
		} else {
			err = w.group(u.probes)
		}
		if errors.Is(err, errBroken) {
			return w.out.Encode(message{Broken: oneLine(err)})
		}
		if err != nil {
			return err
		}
		if err := w.out.Encode(message{Done: true}); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w *worker) report(r Result) error {
	r.Unit = w.unit
	return w.out.Encode(message{Result: &r})
}

// key names a pair within its unit.
func key(id string, round int) string { return fmt.Sprintf("%s#%d", id, round) }

// group runs probes that share a module. One that the driver refuses is found by halving.
func (w *worker) group(ps []*probe.Probe) error {
	ps = slices.DeleteFunc(slices.Clone(ps), func(p *probe.Probe) bool {
		for r := range p.Rounds {
			if !w.skip[key(p.ID(), r)] {
				return false
			}
		}
		return true
	})
	if len(ps) == 0 {
		return nil
	}
	text := []byte(probe.Module(ps))
	if err := w.out.Encode(message{Start: key(ps[0].ID(), 0)}); err != nil {
		return err
	}
	m, err := w.hw.k.Assemble(text)
	if err != nil {
		if !refusal(err) && w.hw.k.Synchronize() != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		if len(ps) == 1 {
			return w.report(Result{ID: ps[0].ID(), Family: ps[0].Family, Status: refusedGPU, Detail: oneLine(err),
				PTX: string(text)})
		}
		if err := w.group(ps[:len(ps)/2]); err != nil {
			return err
		}
		return w.group(ps[len(ps)/2:])
	}
	defer func() { _ = w.hw.k.ModuleUnload(m) }() // a failure shows in the next call
	mod, in, err := w.sw.load("probes.ptx", text)
	if err != nil {
		if len(ps) == 1 {
			return w.report(Result{ID: ps[0].ID(), Family: ps[0].Family, Status: refusedSoft, Detail: oneLine(err)})
		}
		if err := w.group(ps[:len(ps)/2]); err != nil {
			return err
		}
		return w.group(ps[len(ps)/2:])
	}
	for _, p := range ps {
		if why := unsupported(mod, p.Name); why != "" {
			if err := w.report(Result{ID: p.ID(), Family: p.Family, Status: refusedSoft, Detail: why}); err != nil {
				return err
			}
			continue
		}
		for round := range p.Rounds {
			if w.skip[key(p.ID(), round)] {
				continue
			}
			if err := w.out.Encode(message{Start: key(p.ID(), round)}); err != nil {
				return err
			}
			r, err := w.pair(p, round, m, in)
			if err != nil {
				return err
			}
			if err := w.report(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// guard is the number of bytes before and behind the output that must not change.
const guard = 256

// pair runs one probe on one input on both sides.
func (w *worker) pair(p *probe.Probe, round int, m cuda.Module, in *softgpu.Instance) (Result, error) {
	input := p.Input(w.seed, round)
	image := slices.Concat(input, make([]byte, guard+(-len(input)&255)))
	outAt := len(image)
	image = slices.Concat(image, p.Output(w.seed, round), make([]byte, guard))
	params := make([]byte, 16, 64+p.Extra)
	putAddress(params, w.sw.lo)
	putAddress(params[8:], w.sw.lo+uint64(outAt))
	softParams := params
	offsets := []uint32{0, 8}
	if p.Extra > 0 {
		offsets = append(offsets, 64)
		params = append(params[:64], p.Params()...)
		softParams = params
	}
	if p.Map != nil {
		var err error
		if params, softParams, err = w.tensorMaps(p.Map, params, uint64(outAt)); err != nil {
			return Result{ID: p.ID(), Family: p.Family, Round: round, Status: skipped, Detail: oneLine(err)}, nil
		}
	}
	fail := func(side string, err error) Result {
		return Result{ID: p.ID(), Family: p.Family, Round: round, Status: failed, Detail: side + ": " + oneLine(err),
			Seed: w.seed, PTX: probe.Module([]*probe.Probe{p})}
	}
	soft := func(input []byte) ([]byte, error) {
		copy(w.sw.mem, image)
		copy(w.sw.mem, input)
		_, err := in.Launch(p.Name, softgpu.LaunchConfig{Grid: p.Grid, Block: p.Block, Cluster: p.Cluster,
			Params: softParams, Workers: 1, MaxInstructions: maxInstructions})
		return slices.Clone(w.sw.mem[:len(image)]), err
	}
	if err := w.hw.k.Write(w.hw.lo, image); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	if err := w.hw.launch(m, p.Name, native.Shape{Grid: p.Grid, Block: p.Block, Cluster: p.Cluster}, params,
		offsets); err != nil {
		if w.hw.k.Synchronize() == nil {
			return fail("GPU", err), nil
		}
		if err := w.report(fail("GPU", err)); err != nil {
			return Result{}, err
		}
		return Result{}, errBroken
	}
	gpu := make([]byte, len(image))
	if err := w.hw.k.Read(gpu, w.hw.lo); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	want, err := soft(input)
	if err != nil {
		return fail("software GPU", err), nil
	}
	var magnitudes []byte
	if p.Rule.Scale > 0 && round >= p.Rule.ExactRounds {
		all, err := soft(p.Magnitudes(input))
		if err != nil {
			return fail("software GPU", err), nil
		}
		magnitudes = all[outAt:]
	}
	end := outAt + p.OutBytes()
	if w.flip {
		// The highest bit but one of one result, which no bound lets pass.
		n := 4
		if e := elemBytes[p.Rule.Elem]; e > 0 {
			n = e
		}
		th := rand.New(rand.NewPCG(w.seed, 1)).IntN(p.NumThreads())
		gpu[outAt+th*p.OutStride+n-1] ^= 0x40
	}
	if n, first := compareBytes(slices.Concat(want[:outAt], want[end:]), slices.Concat(gpu[:outAt], gpu[end:])); n > 0 {
		return Result{ID: p.ID(), Family: p.Family, Round: round, Status: differs, Detail: "outside the output",
			Bytes: n, At: first, Seed: w.seed, PTX: probe.Module([]*probe.Probe{p})}, nil
	}
	r := compareProbe(p, round, want[outAt:end], gpu[outAt:end], magnitudes)
	if r.Status == differs {
		r.Seed, r.PTX = w.seed, probe.Module([]*probe.Probe{p})
		stride := p.InStride()
		if lo := r.Thread * stride; lo+stride <= len(input) {
			r.Input = hex.EncodeToString(input[lo : lo+min(stride, 128)])
		}
	}
	return r, nil
}

// tensorMaps puts a tensor map behind the first two parameters: the driver's form, and the software GPU's.
func (w *worker) tensorMaps(m *probe.Map, params []byte, outAt uint64) (gpu, soft []byte, err error) {
	at := w.sw.lo
	if m.Output {
		at += outAt
	}
	s := softgpu.TensorMap{Type: softgpu.TensorU32, Rank: len(m.Dim), Address: at, Swizzle: m.Swizzle,
		FillNaN: m.FillNaN}
	if m.Float {
		s.Type = softgpu.TensorF32
	}
	copy(s.Dim[:], m.Dim)
	copy(s.Stride[:], m.Strides())
	copy(s.Box[:], m.Box)
	copy(s.Step[:], m.Step)
	if err := s.Check(); err != nil {
		return nil, nil, err
	}
	h := native.Tensor{DataType: int32(s.Type), Address: cuda.DevicePtr(at), Dim: m.Dim, Strides: m.Strides(),
		Box: m.Box, Step: m.Step, Swizzle: int32(m.Swizzle)}
	if m.FillNaN {
		h.Fill = 1
	}
	theirs, err := w.hw.k.EncodeTensor(h)
	if err != nil {
		return nil, nil, err
	}
	ours := s.Encode()
	return append(params[:64:64], theirs[:]...), append(params[:64:64], ours[:]...), nil
}

func putAddress(b []byte, a uint64) {
	for i := range 8 {
		b[i] = byte(a >> (8 * i))
	}
}
