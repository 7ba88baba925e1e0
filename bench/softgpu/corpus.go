package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"holdfast/internal/corpus"
	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// unordered is the outcome of a launch whose result depends on the order of blocks and warps, where the two sides
// differ.
const unordered = "order not defined"

// launchesPerUnit is how many launches of an application a job takes at a time.
const launchesPerUnit = 16

// sampled is how many launches of each application come before all others.
const sampled = 4

// applications splits the corpus into units: first a few launches of every application, each of another kernel as far
// as there are some, so that a run that is cut short has seen all applications; then the rest, cheap launches first,
// those of one module together.
func applications(apps []*corpus.Application) []unit {
	type costed struct {
		unit
		cost uint64
		rest bool
	}
	var us []costed
	for _, a := range apps {
		order := make([]int, len(a.Launches))
		for i := range order {
			order[i] = i
		}
		size := func(i int) int { return int(math.Log2(float64(a.Launches[i].Threads()))) / 3 }
		slices.SortStableFunc(order, func(x, y int) int {
			return cmp.Or(cmp.Compare(size(x), size(y)), strings.Compare(a.Launches[x].Module, a.Launches[y].Module))
		})
		first := sample(a, order)
		order = slices.DeleteFunc(order, func(i int) bool { return slices.Contains(first, i) })
		add := func(part []int, sample bool) {
			u := costed{unit: unit{app: a, launches: part}, rest: !sample}
			for _, i := range part {
				u.cost += a.Launches[i].Threads()
			}
			us = append(us, u)
		}
		add(first, true)
		for part := range slices.Chunk(order, launchesPerUnit) {
			add(part, false)
		}
	}
	slices.SortStableFunc(us, func(x, y costed) int {
		if x.rest != y.rest {
			return map[bool]int{false: -1, true: 1}[x.rest]
		}
		return cmp.Compare(x.cost, y.cost)
	})
	out := make([]unit, len(us))
	for i, u := range us {
		out[i] = u.unit
	}
	return out
}

// sample takes the first launches of an order that are of different kernels, in that order.
func sample(a *corpus.Application, order []int) []int {
	var out []int
	seen := map[string]bool{}
	for _, i := range order {
		if l := &a.Launches[i]; !seen[l.Kernel] && len(out) < sampled {
			seen[l.Kernel] = true
			out = append(out, i)
		}
	}
	return out
}

// A loaded module is one module on both sides.
type loaded struct {
	name string
	text []byte
	ast  *ptx.Module
	gpu  cuda.Module
	mod  *softgpu.Module
	in   *softgpu.Instance
	err  Result // why it could not be loaded
}

func (w *worker) application(u unit) error {
	var m *loaded
	defer func() {
		if m != nil && m.gpu != 0 {
			_ = w.hw.k.ModuleUnload(m.gpu) // a failure shows in the next call
		}
	}()
	for _, i := range u.launches {
		l := &u.app.Launches[i]
		id := fmt.Sprintf("%s launch %d %s", u.app.Name, i, l.Kernel)
		if w.skip[key(id, 0)] || l.Module == "" {
			continue
		}
		if err := w.out.Encode(message{Start: key(id, 0)}); err != nil {
			return err
		}
		if m == nil || m.name != l.Module {
			if m != nil && m.gpu != 0 {
				if err := w.hw.k.ModuleUnload(m.gpu); err != nil {
					return fmt.Errorf("%w: %w", errBroken, err)
				}
			}
			var err error
			if m, err = w.loadModule(u.app, l.Module); err != nil {
				return err
			}
		} else if m.in != nil {
			// Module variables begin as they were: a fresh copy on both sides.
			if err := w.fresh(m); err != nil {
				return err
			}
		}
		r := m.err
		if r.Status == "" {
			var err error
			if r, err = w.launchPair(u.app, l, m); err != nil {
				return err
			}
		}
		r.ID, r.Family = id, "corpus: "+u.app.Family
		if r.Status == differs || r.Status == failed {
			r.PTX = string(m.text)
		}
		if err := w.report(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) loadModule(a *corpus.Application, name string) (*loaded, error) {
	m := &loaded{name: name}
	var err error
	if m.text, err = a.Source(name); err != nil {
		return nil, err
	}
	if m.ast, err = ptx.Parse(name, m.text); err != nil {
		m.err = Result{Status: refusedSoft, Detail: oneLine(err)}
		return m, nil
	}
	return m, w.fresh(m)
}

// fresh loads m on both sides.
func (w *worker) fresh(m *loaded) error {
	if m.gpu != 0 && !hasVariables(m.ast) {
		return nil
	}
	if m.gpu != 0 {
		if err := w.hw.k.ModuleUnload(m.gpu); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		m.gpu = 0
	}
	var err error
	if m.gpu, err = w.hw.k.Assemble(rounded(m.text)); err != nil {
		if !refusal(err) && w.hw.k.Synchronize() != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		m.err = Result{Status: refusedGPU, Detail: oneLine(err)}
		return nil
	}
	if m.mod, m.in, err = w.sw.load(m.name, m.text); err != nil {
		m.err = Result{Status: refusedSoft, Detail: oneLine(err)}
	}
	return nil
}

// contractible are the instructions that the driver's assembler may contract to fma: PTX leaves that open for those
// that name no rounding (ISA 9.0, 9.7.3.3: "mul/add sequences with no rounding modifiers may be optimized to use
// fused-multiply-add").
var contractible = regexp.MustCompile(`([\s;:{}]|^)(add|sub|mul)` +
	`((?:\.ftz)?(?:\.sat)?\.(?:f16x2|bf16x2|f16|bf16|f32|f64)\s)`)

// rounded names the rounding of every addition and multiplication, the one that they have anyway: such instructions are
// never contracted, so that their results are defined bit for bit.
func rounded(text []byte) []byte { return contractible.ReplaceAll(text, []byte("${1}${2}.rn${3}")) }

// hasVariables reports whether a module has variables that a launch can change.
func hasVariables(m *ptx.Module) bool {
	return slices.ContainsFunc(m.Decls, func(d ptx.Decl) bool {
		v, ok := d.(*ptx.Var)
		return ok && v.Space == ptx.SpaceGlobal
	})
}

// launchPair runs a launch on both sides on the same memory.
func (w *worker) launchPair(a *corpus.Application, l *corpus.Launch, m *loaded) (Result, error) {
	if why := unsupported(m.mod, l.Kernel); why != "" {
		return Result{Status: refusedSoft, Detail: why}, nil
	}
	// The buffers, with room between them.
	names := a.Reached(l)
	address := map[string]uint64{}
	var end uint64
	for _, n := range names {
		address[n] = w.sw.lo + end
		end = (end + a.Buffers[n].Bytes + guard + 511) &^ 511
	}
	if end > uint64(len(w.sw.mem)) {
		return Result{Status: skipped, Detail: fmt.Sprintf("needs %d MiB of device memory", end>>20)}, nil
	}
	at := func(n string) uint64 { return address[n] }
	image := w.sw.mem[:end]
	fill := func() {
		clear(image)
		for _, n := range names {
			copy(image[address[n]-w.sw.lo:], a.ContentsAt(n, at))
		}
	}
	fill()
	var info []softgpu.Param
	for _, k := range m.mod.Kernels() {
		if k.Name == l.Kernel {
			info = k.Params
		}
	}
	var offsets []uint32
	for _, p := range info {
		offsets = append(offsets, p.Offset)
	}
	params, err := l.Params(info, at)
	if err != nil {
		return Result{Status: failed, Detail: oneLine(err)}, nil
	}
	if err := w.hw.k.Write(w.hw.lo, image); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	// The software GPU first: what takes it too long, or what it finds to be out of bounds, is not given to the GPU.
	cfg := softgpu.LaunchConfig{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, SharedDynamic: l.Shared,
		Params: params, Workers: 1, MaxInstructions: w.longest}
	if _, err = m.in.Launch(l.Kernel, cfg); err != nil {
		status := failed
		if f, ok := err.(*softgpu.Fault); ok && f.Kind == softgpu.FaultLimit {
			status = skipped
		}
		return Result{Status: status, Detail: "software GPU: " + oneLine(err)}, nil
	}
	if err := w.hw.launch(m.gpu, l.Kernel, native.Shape{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster,
		Shared: l.Shared}, params, offsets); err != nil {
		r := Result{Status: failed, Detail: "GPU: " + oneLine(err)}
		if w.hw.k.Synchronize() == nil {
			return r, nil
		}
		return Result{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	gpu := make([]byte, end)
	if err := w.hw.k.Read(gpu, w.hw.lo); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	r := w.compareImages(a, l, m, names, address, image, gpu)
	if r.Status != differs {
		return r, nil
	}
	// Is it the kernel? Other orders of blocks and warps then give other results on the software GPU too.
	first := slices.Clone(image)
	for seed := range uint64(schedules) {
		fill()
		if hasVariables(m.ast) {
			if m.mod, m.in, err = w.sw.load(m.name, m.text); err != nil {
				return Result{}, err
			}
		}
		cfg.Prefix = &softgpu.Prefix{Seed: seed, Instructions: math.MaxUint64}
		if _, err := m.in.Launch(l.Kernel, cfg); err != nil {
			break // it says nothing about the order
		}
		if n, _ := compareBytes(first, image); n > 0 {
			r.Status = unordered
			r.Detail += fmt.Sprintf(" (another order changes %d bytes on the software GPU)", n)
			break
		}
	}
	return r, nil
}

// schedules is how many other orders of blocks and warps are tried when a result differs.
const schedules = 4

func (w *worker) compareImages(a *corpus.Application, l *corpus.Launch, m *loaded, names []string,
	address map[string]uint64, soft, gpu []byte) Result {
	n, first := compareBytes(soft, gpu)
	if n == 0 {
		return Result{Status: equal}
	}
	r := Result{Status: differs, Bytes: n, At: first, Soft: around(soft, first), GPU: around(gpu, first)}
	where := "between the buffers"
	for _, name := range names {
		if lo := int(address[name] - w.sw.lo); first >= lo && first < lo+int(a.Buffers[name].Bytes) {
			where = fmt.Sprintf("buffer %s at %d", name, first-lo)
		}
	}
	r.Detail = where
	if l.Order == "any" {
		r.Status = unordered
		return r
	}
	if colliding[a.Name] == l.Kernel {
		r.Status = unordered
		return r
	}
	tolerance, formats := approximate(m.ast, l.Kernel)
	if tolerance == 0 {
		return r
	}
	// Each buffer holds numbers of one format, each has its own; nothing may differ between them.
	worst, as := 0.0, ""
	left, right := slices.Clone(soft), slices.Clone(gpu)
	for _, name := range names {
		lo := int(address[name] - w.sw.lo)
		hi := lo + int(a.Buffers[name].Bytes)
		if string(left[lo:hi]) == string(right[lo:hi]) {
			continue
		}
		i := slices.IndexFunc(formats, func(f string) bool {
			part, ok := near(f, tolerance, left[lo:hi], right[lo:hi])
			if ok {
				worst, as = max(worst, part), as+" "+f
			}
			return ok
		})
		if i < 0 {
			return r
		}
		copy(left[lo:hi], right[lo:hi])
	}
	if n, _ := compareBytes(left, right); n > 0 {
		return r
	}
	return Result{Status: within, Worst: worst, Detail: fmt.Sprintf("as%s: %s", as, where)}
}

// colliding are kernels by application that store with several lanes of one instruction to the same place: which of
// them stays is not defined, and other orders of blocks and warps do not show it.
var colliding = map[string]string{
	"triton-kernels": "scatter", "triton-kernels-sm80": "scatter", "triton-kernels-small": "scatter",
	"triton-kernels-small-sm80": "scatter",
}

// The bounds of launches of kernels with approximate instructions, matrix products or floating-point atomics. An
// approximate instruction errs by about 2^-22; a kernel chains a few, multiplies up to some hundred and adds up what
// they give, so that the difference is bounded relative to the largest of the neighbouring results, not to each: 2^-14.
// Matrix products of 16-bit and TF32 inputs keep 2^-23 of the sum of magnitudes at each step (see probe.Rule) over at
// most some thousand steps: 2^-12; those of 8-bit floats 2^-13 a step: 2^-6. Floating-point atomics add in any order:
// 2^-12 for some thousand summands. Results that are stored in a narrower format may differ by one unit in its last
// place more.
const (
	approximateTolerance = 0x1p-14
	matrixTolerance      = 0x1p-12
	matrix8Tolerance     = 0x1p-6
)

// approximate gives the bound of a kernel's results, 0 for bit for bit, and the formats that they may have.
func approximate(m *ptx.Module, kernel string) (tolerance float64, formats []string) {
	seen := map[string]bool{}
	visit := func(in *ptx.Inst) {
		mods := "." + strings.Join(in.Mods, ".") + "."
		for _, f := range []string{"f16", "bf16", "f64"} {
			if strings.Contains(mods, "."+f+".") || strings.Contains(mods, "."+f+"x2.") {
				seen[f] = true
			}
		}
		switch {
		case in.Op == "mma" || in.Op == "wmma" || in.Op == "wgmma":
			switch {
			case strings.Contains(mods, ".e4m3.") || strings.Contains(mods, ".e5m2."):
				tolerance = max(tolerance, matrix8Tolerance)
			case !strings.Contains(mods, ".s32."):
				tolerance = max(tolerance, matrixTolerance)
			}
		case (in.Op == "atom" || in.Op == "red") && strings.Contains(mods, ".add.") &&
			(strings.HasSuffix(mods, "f32.") || strings.HasSuffix(mods, "f64.") || strings.Contains(mods, "f16")):
			tolerance = max(tolerance, matrixTolerance)
		case strings.Contains(mods, ".approx.") || strings.Contains(mods, ".full."), in.Op == "tanh":
			tolerance = max(tolerance, approximateTolerance)
		}
	}
	var walk func(b *ptx.Block)
	walk = func(b *ptx.Block) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ptx.Inst:
				visit(s)
			case *ptx.Block:
				walk(s)
			}
		}
	}
	for _, d := range m.Decls {
		// Functions count for every kernel: which are called is not looked at.
		if f, ok := d.(*ptx.Func); ok && f.Body != nil && (!f.Entry || f.Name == kernel) {
			walk(f.Body)
		}
	}
	formats = []string{"f32"}
	for _, f := range []string{"f16", "bf16", "f64"} {
		if seen[f] {
			formats = append(formats, f)
		}
	}
	return tolerance, formats
}

// near reports whether all elements that differ do so within the bound, read as a format.
func near(format string, tolerance float64, soft, gpu []byte) (worst float64, ok bool) {
	n := elemBytes[format]
	unit := map[string]float64{"f16": 0x1p-10, "bf16": 0x1p-7, "f32": 0x1p-23, "f64": 0x1p-52}[format]
	const neighbours = 1024 // bytes
	for lo := 0; lo < len(soft); lo += neighbours {
		hi := min(lo+neighbours, len(soft)) / n * n
		if string(soft[lo:hi]) == string(gpu[lo:hi]) {
			continue
		}
		var largest float64
		for at := lo; at < hi; at += n {
			if v, nan := number(format, element(soft[at:at+n])); !nan {
				largest = max(largest, math.Abs(v))
			}
		}
		for at := lo; at < hi; at += n {
			if string(soft[at:at+n]) == string(gpu[at:at+n]) {
				continue
			}
			s, sNaN := number(format, element(soft[at:at+n]))
			g, gNaN := number(format, element(gpu[at:at+n]))
			if sNaN || gNaN {
				if sNaN && gNaN {
					continue
				}
				return 0, false
			}
			limit := tolerance*largest + unit*max(math.Abs(s), math.Abs(g))
			diff := math.Abs(s - g)
			if diff > limit {
				return 0, false
			}
			worst = max(worst, diff/limit)
		}
	}
	return worst, true
}
