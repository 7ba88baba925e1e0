// Package checkpoint takes whole programs apart and puts them together again: it
// orders what package process (freeze, release, remap), package snapshot (the
// device memory), the driver's own checkpoint and package criu (the CPU side) do,
// and writes what comes out with package image.
//
// Two rules shape every function here. A program survives a failure: whatever was begun is
// undone in reverse order, and that is tried until the program runs or is gone (comeback.go). And the
// daemon survives its own death: before a program lets go of its memory, the keeper holds
// the descriptors and a record of what is going on ([Record]), from which the next
// daemon brings the program back.
package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/cuda"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/wire"
)

// GPUs gives drivers and engines by kind of GPU and device.
type GPUs interface {
	Driver(kind uint32) (cuda.Driver, error)
	Engine(kind uint32, uuid [16]byte) (*snapshot.Engine, error)
}

// Env is what the operations work with.
type Env struct {
	GPUs   GPUs
	Keeper func() (*keeper.Client, error)
	CRIU   func() (*criu.Tool, error)
	Dir    string // runtime directory: for records of suspended programs; "": none are kept
	Socket string // the socket that programs must find when they come back; "": not checked
	// how long an operation that failed waits for its programs to come back; 0: DefaultPatience
	Patience   time.Duration
	Standstill time.Duration // how long the driver's thread may do nothing; 0: as usual
	Libraries  []string      // our libraries that programs have mapped: images carry copies
	Tool       string        // "holdfast VERSION", for manifests
	Log        *slog.Logger
}

// Progress is told how far a phase is, in bytes; total 0 is unknown.
type Progress func(phase string, done, total uint64)

func (p Progress) snapshot() func(snapshot.Progress) {
	if p == nil {
		return nil
	}
	return func(s snapshot.Progress) { p(s.Step, s.Done, s.Total) }
}

// A Refused operation has touched nothing.
type Refused struct {
	Reason string
	Remedy string
}

func (r *Refused) Error() string {
	if r.Remedy == "" {
		return r.Reason
	}
	return r.Reason + " (" + r.Remedy + ")"
}

func refusef(remedy, format string, args ...any) error {
	return &Refused{Reason: fmt.Sprintf(format, args...), Remedy: remedy}
}

// timeline collects steps.
type timeline struct {
	mu    sync.Mutex
	steps []api.Step
	stall bool
}

func (t *timeline) do(name string, f func() error) error {
	start := time.Now()
	err := f()
	t.add(name, time.Since(start), t.stall)
	return err
}

func (t *timeline) add(name string, d time.Duration, stall bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, api.Step{Name: name, MS: api.Millis(d), Stall: stall})
}

// list returns the steps so far, never nil: in JSON it is a list, whatever was done.
func (t *timeline) list() []api.Step { return append([]api.Step{}, t.steps...) }

// Options of a checkpoint.
type Options struct {
	Dir          string
	LeaveRunning bool
	GPUOnly      bool
	Mode         snapshot.Mode
	TCPClose     bool          // leave TCP connections out: they are closed after a restore
	Timeout      time.Duration // of the freeze; 0: DefaultTimeout
	Progress     Progress
}

// DefaultTimeout is how long a freeze waits for calls inside the driver and for stream captures.
const DefaultTimeout = 10 * time.Second

// calmLimit is how long a checkpoint waits for a moment in which a program has little under way.
const calmLimit = 2 * time.Second

// watchLimit bounds how long a checkpoint in mode auto prepares for copying on write. If a program does not answer,
// the error of the freeze names it.
const watchLimit = time.Minute

// DefaultPatience is how long an operation that failed waits for its programs to come back.
const DefaultPatience = 2 * time.Minute

func (e *Env) patience() time.Duration { return cmp.Or(e.Patience, DefaultPatience) }

// undo is a context for undoing what a request began, even if its client has left by now.
func (e *Env) undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.patience())
}

// CaveatName is the word for a caveat's code.
func CaveatName(code uint32) string {
	names := map[uint32]string{
		wire.CaveatManaged: "managed", wire.CaveatIPC: "ipc", wire.CaveatExported: "exported",
		wire.CaveatExternal: "external", wire.CaveatGraphics: "graphics", wire.CaveatMulticast: "multicast",
		wire.CaveatHostMemory: "host-memory", wire.CaveatArray: "array", wire.CaveatGlobals: "globals",
		wire.CaveatDriverMemory: "driver-memory", wire.CaveatGraphMemory: "graph-memory", wire.CaveatPeer: "peer",
		wire.CaveatGreen: "green-context",
	}
	if n := names[code]; n != "" {
		return n
	}
	return fmt.Sprintf("caveat-%d", code)
}

// checkCaveats refuses programs with a caveat that has flag (wire.CaveatBlocks…), which means that they cannot be
// held. It returns the other caveats as warnings.
func checkCaveats(programs []*process.Program, flag uint32) (warnings []string, err error) {
	for _, p := range programs {
		for _, c := range p.Caveats() {
			if c.Code == wire.CaveatDriverMemory && p.HoldsUntold(c.Subject) {
				continue // the program says that it cannot export it, and an earlier daemon has left it to us
			}
			if c.Code == wire.CaveatGlobals && flag == wire.CaveatBlocksFull {
				continue // the driver's own checkpoint has all variables
			}
			text := fmt.Sprintf("process %d: %s: %s", p.Identity().PID, CaveatName(c.Code), c.Text)
			if c.Flags&flag != 0 {
				return nil, refusef("docs/troubleshooting.md says what to do about each", "%s", text)
			}
			warnings = append(warnings, text)
		}
	}
	return warnings, nil
}

// Checkpoint writes an image of programs: the held processes of one process tree, the root first. The caller holds
// their operation locks.
func (e *Env) Checkpoint(ctx context.Context, programs []*process.Program, opt Options) (*api.CheckpointResult, error) {
	begin := time.Now()
	res, err := e.checkpoint(ctx, programs, opt)
	var lost *mispredicted
	if !errors.As(err, &lost) {
		return res, err
	}
	e.Log.Warn("copy on write was not foreseen right; taken again with recopy", "pid", programs[0].Identity().PID,
		"what", lost.what)
	opt.Mode = snapshot.Recopy
	if res, err = e.checkpoint(ctx, programs, opt); err != nil {
		return nil, err
	}
	res.TotalMS = api.Millis(time.Since(begin))
	res.Mispredictions++
	res.ModeReason = "copy on write met a write that was not foreseen"
	res.Warnings = append(res.Warnings, "cow: "+lost.what+"; the image was taken again with recopy")
	return res, nil
}

// checkpoint is Checkpoint in one mode.
func (e *Env) checkpoint(ctx context.Context, programs []*process.Program, opt Options) (res *api.CheckpointResult,
	err error) {
	begin := time.Now()
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	// A gpu-only image may be taken although it lacks something: Rollback is what refuses it.
	var flag uint32
	if !opt.GPUOnly {
		flag = wire.CaveatBlocksFull
	}
	warnings, err := checkCaveats(programs, flag)
	if err != nil {
		return nil, err
	}
	if !opt.GPUOnly {
		if err := e.checkWayBack(programs); err != nil {
			return nil, err
		}
	}
	c := &capture{env: e, programs: programs, opt: opt, res: newResult(programs, opt)}
	c.res.Warnings = warnings
	if !opt.GPUOnly {
		if c.criu, err = e.CRIU(); err != nil {
			return nil, err
		}
		if err := c.criu.Precheck(programs[0].Identity().PID); err != nil {
			return nil, precheckRefused(err)
		}
		if c.driver, err = e.GPUs.Driver(programs[0].Identity().GPU); err != nil {
			return nil, err
		}
	}
	if c.w, err = image.Create(opt.Dir, image.CreateOptions{Logger: e.Log}); err != nil {
		return nil, err
	}
	defer c.close()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.w.Abort())
		}
	}()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	c.res.Steps = c.t.list()
	c.res.TotalMS = api.Millis(time.Since(begin))
	return c.res, nil
}

// newResult says what is known of a checkpoint when it begins.
func newResult(programs []*process.Program, opt Options) *api.CheckpointResult {
	root := programs[0].Identity()
	res := &api.CheckpointResult{PID: root.PID, Name: root.Name, Dir: opt.Dir, Kind: image.KindFull,
		LeaveRunning: opt.LeaveRunning}
	if opt.GPUOnly {
		res.Kind = image.KindGPUOnly
	}
	return res
}

// A capture is one checkpoint under way.
type capture struct {
	env      *Env
	programs []*process.Program
	opt      Options
	w        *image.Writer
	criu     *criu.Tool
	driver   cuda.Driver
	snaps    []*deviceSnapshot
	watches  []*watch // one for each program; in mode cow
	t        timeline
	res      *api.CheckpointResult
	m        *image.Manifest // of what was captured
	order    *order          // what the programs have touched since; in mode cow
}

// deviceSnapshot is the memory on one device that was imported together.
type deviceSnapshot struct {
	engine *snapshot.Engine
	snap   *snapshot.Snapshot
	refs   []allocRef
	region []*snapshot.Region
	freed  []int // indices of refs that the program freed before the freeze
}

type allocRef struct {
	program int
	alloc   *process.Alloc
}

func (c *capture) close() {
	for _, d := range c.snaps {
		if d.snap != nil {
			d.snap.Close()
		}
		for _, r := range d.region {
			r.Close()
		}
	}
}

// importAlloc maps memory of a program. If the program has freed it meanwhile, the error wraps process.ErrFreed.
func importAlloc(engine *snapshot.Engine, p *process.Program, a *process.Alloc) (*snapshot.Region, error) {
	f, err := p.Dup(a)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := engine.Import(int(f.Fd()), a.Size)
	if err != nil {
		return nil, fmt.Errorf("process %d: %d bytes at %#x: %w", p.Identity().PID, a.Size, a.VA, err)
	}
	return r, nil
}

// open imports all memory that no snapshot covers yet and starts snapshots of it, one a device. What a running
// program frees meanwhile is left out; a frozen one frees nothing.
func (c *capture) open(running bool) error {
	have := map[allocRef]bool{}
	for _, d := range c.snaps {
		for _, r := range d.refs {
			have[r] = true
		}
	}
	byEngine := map[*snapshot.Engine]*deviceSnapshot{}
	var fresh []*deviceSnapshot
	for i, p := range c.programs {
		id := p.Identity()
		for _, a := range p.Allocs() {
			ref := allocRef{i, a}
			if have[ref] {
				continue
			}
			engine, err := c.env.GPUs.Engine(id.GPU, id.Devices[a.Device])
			if err != nil {
				return err
			}
			r, err := importAlloc(engine, p, a)
			if running && errors.Is(err, process.ErrFreed) {
				continue
			}
			if err != nil {
				return err
			}
			d := byEngine[engine]
			if d == nil {
				d = &deviceSnapshot{engine: engine}
				byEngine[engine] = d
				fresh = append(fresh, d)
				c.snaps = append(c.snaps, d) // so that close finds its regions
			}
			d.refs = append(d.refs, ref)
			d.region = append(d.region, r)
		}
	}
	for _, d := range fresh {
		d.snap = d.engine.Begin(d.region, snapshot.Options{Mode: c.opt.Mode, MayCow: len(c.watches) > 0, Have: c.w.Have,
			Logger: c.env.Log, Progress: c.opt.Progress.snapshot()})
	}
	return nil
}

// each runs f for all snapshots at once: devices do not wait for each other.
func each(list []*deviceSnapshot, f func(*deviceSnapshot) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, d := range list {
		wg.Go(func() { errs[i] = f(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *capture) run(ctx context.Context) error {
	if c.mayCow() {
		defer c.unwatch(ctx)
		watch, cancel := ctx, func() {}
		if c.opt.Mode == snapshot.Auto {
			watch, cancel = context.WithTimeout(ctx, watchLimit)
		}
		err := c.t.do("watch", func() error { return c.watchAll(watch) })
		cancel()
		if err != nil {
			if c.opt.Mode == snapshot.Cow || ctx.Err() != nil {
				return err
			}
			c.env.Log.Warn("no copy on write", "err", err)
			c.unwatch(ctx)
		}
	}
	if err := c.precopy(ctx); err != nil {
		return err
	}
	if !c.cows() {
		c.unwatch(ctx)
	}
	if err := c.stalled(ctx); err != nil {
		return err
	}
	drain := time.Now()
	err := c.drain(ctx)
	c.res.DrainMS = api.Millis(time.Since(drain))
	if err == nil {
		err = c.t.do("commit", c.commit)
	}
	if err != nil {
		return c.lost(err)
	}
	if !c.opt.LeaveRunning {
		root := c.programs[0].Identity()
		return c.t.do("kill", func() error {
			err := criu.Kill(root.PID, root.StartTime, 10*time.Second)
			if errors.Is(err, unix.ESRCH) {
				return nil // somebody else was faster
			}
			return err
		})
	}
	return nil
}

// precopy opens the memory and copies what it can while the programs run.
func (c *capture) precopy(ctx context.Context) error {
	if err := c.t.do("open", func() error { return c.open(true) }); err != nil {
		return err
	}
	return c.t.do("precopy", func() error {
		return each(c.snaps, func(d *deviceSnapshot) error { return d.snap.Precopy(ctx, c.w) })
	})
}

// captureFrozen takes the state of the frozen programs that the image will have.
func (c *capture) captureFrozen(ctx context.Context) error {
	start := time.Now()
	defer func() { c.res.DataStallMS = api.Millis(time.Since(start)) }()
	c.leaveFreed()
	if err := c.t.do("import", func() error { return c.open(false) }); err != nil { // memory allocated since precopy
		return err
	}
	if err := c.t.do("capture", func() error {
		return each(c.snaps, func(d *deviceSnapshot) error { return d.snap.Capture(ctx, c.w) })
	}); err != nil {
		return err
	}
	return c.describe()
}

// leaveFreed takes memory out of the snapshots that the programs have freed since the snapshots began. Our mappings
// have kept that memory alive, but nothing else has it any more, and its addresses may be others' by now.
func (c *capture) leaveFreed() {
	held := map[allocRef]bool{}
	for i, p := range c.programs {
		for _, a := range p.Allocs() {
			held[allocRef{i, a}] = true
		}
	}
	for _, d := range c.snaps {
		for i, ref := range d.refs {
			if !held[ref] {
				d.snap.Leave(i)
				d.freed = append(d.freed, i)
			}
		}
	}
}

// dropFreed lets go of that memory, so that the running program can allocate it again.
func (c *capture) dropFreed() {
	for _, d := range c.snaps {
		for _, i := range d.freed {
			if err := d.region[i].Close(); err != nil {
				c.env.Log.Warn("memory that a program has freed stays in use until the checkpoint ends", "err", err)
			}
		}
	}
}

func (c *capture) drain(ctx context.Context) error {
	c.dropFreed()
	return c.t.do("drain", func() error {
		return each(c.snaps, func(d *deviceSnapshot) error { return c.explain(d, d.snap.Drain(ctx, c.w)) })
	})
}

// stalled does what must happen while the programs stand still. When it returns, they run
// again, or (not LeaveRunning) stand stopped for good. After an error they run again.
func (c *capture) stalled(ctx context.Context) error {
	calm := calmLimit
	if len(c.programs) > 1 {
		calm = 0 // they may wait for each other
	}
	start := time.Now()
	stood, err := c.env.freezeCalm(ctx, c.programs, c.opt.Timeout, calm)
	if err != nil {
		return err
	}
	c.t.add("calm", time.Since(start)-stood, false)
	c.t.add("freeze", stood, true)
	c.programs[0].Log().Debug("it stands still")
	c.t.stall = true
	start = time.Now().Add(-stood)
	defer func() {
		c.t.stall = false
		c.res.StallMS = api.Millis(time.Since(start))
	}()
	if !c.opt.GPUOnly {
		if _, err := checkCaveats(c.programs, wire.CaveatBlocksFull); err != nil { // caveats that came up since
			return errors.Join(err, c.env.thaw(ctx, c.programs))
		}
	}
	if c.opt.GPUOnly {
		err := c.captureFrozen(ctx)
		for i := range c.watches {
			bad := c.arm(ctx, ctx, i)
			if bad != nil && c.opt.Mode == snapshot.Auto { // a write that was not announced is found by its digest
				c.env.Log.Warn("not prepared for running again", "pid", c.programs[i].Identity().PID, "err", bad)
				continue
			}
			err = errors.Join(err, bad)
		}
		return errors.Join(err, c.t.do("thaw", func() error { return c.thaw(ctx) }))
	}
	return c.whole(ctx)
}

// whole captures the memory and dumps the process tree. The daemon has the memory mapped too, so while it captures,
// the programs let go of it and the driver takes their contexts down.
func (c *capture) whole(ctx context.Context) error {
	undo, cancel := c.env.undo(ctx)
	defer cancel()
	if err := c.t.do("keep", func() error { return c.env.keepAll(c.programs, DoingCheckpoint) }); err != nil {
		return errors.Join(err, c.env.thaw(undo, c.programs))
	}
	captured := make(chan error, 1)
	go func() { captured <- c.captureFrozen(ctx) }()
	err := c.takeDown(undo)
	if err = errors.Join(err, <-captured); err == nil {
		err = c.dump(ctx)
	}
	if err != nil || c.opt.LeaveRunning {
		err = errors.Join(err, c.t.do("come back", func() error {
			return c.env.comeBack(c.programs, &c.t,
				c.rearm(ctx))
		}))
	}
	return err
}

// takeDown leaves frozen programs as almost empty processes in which nothing runs. ctx must not be one that a client
// can end: a program that lets go of its memory just after we stopped waiting for it could not be brought back.
func (c *capture) takeDown(ctx context.Context) error {
	if err := c.t.do("release", func() error {
		return parallel(c.programs, func(p *process.Program) error { _, err := p.Release(ctx); return err })
	}); err != nil {
		return errors.Join(err, hangUp(ctx, c.programs))
	}
	return c.t.do("driver checkpoint", func() error {
		err := parallel(c.programs, func(p *process.Program) error { return c.driverCheckpoint(ctx, p) })
		if err != nil {
			err = errors.Join(err, hangUp(ctx, c.programs))
		}
		return err
	})
}

func (c *capture) dump(ctx context.Context) error {
	return c.t.do("criu dump", func() error {
		st, err := c.criu.Dump(ctx, criu.DumpOptions{
			PID: c.programs[0].Identity().PID, Dir: c.w.CRIUDir(),
			LeaveRunning: c.opt.LeaveRunning, LeaveStopped: !c.opt.LeaveRunning, TCPClose: c.opt.TCPClose,
		})
		c.t.add("  frozen by criu", st.Frozen, true)
		c.t.add("  read pages", st.MemDump, true)
		c.t.add("  write pages", st.MemWrite, true)
		c.res.HostBytes = (st.PagesWritten + st.SharedWritten) * uint64(os.Getpagesize())
		c.res.Warnings = append(c.res.Warnings, st.Caveats...)
		return err
	})
}

// lost undoes a checkpoint that failed after the dump of a program that was to be
// killed: the image is no good, so the program runs on.
func (c *capture) lost(cause error) error {
	if c.opt.LeaveRunning {
		return cause
	}
	root := c.programs[0].Identity()
	err := criu.Resume(root.PID, root.StartTime)
	return errors.Join(cause, err, c.env.comeBack(c.programs, &c.t, nil))
}

func parallel(programs []*process.Program, f func(*process.Program) error) error {
	errs := make([]error, len(programs))
	var wg sync.WaitGroup
	for i, p := range programs {
		wg.Go(func() { errs[i] = f(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// freeze freezes all programs or none. A client that goes away does not end it: it is bounded by timeout, and the
// program must be known to be frozen or not.
func (e *Env) freeze(ctx context.Context, programs []*process.Program, timeout time.Duration) error {
	_, err := e.freezeCalm(ctx, programs, timeout, 0)
	return err
}

// freezeCalm first lets a program run on, for at most calm, until it has just waited for the device: with little work
// under way the stall is shorter. It returns how long the programs have stood still, the longest of them.
func (e *Env) freezeCalm(ctx context.Context, programs []*process.Program, timeout,
	calm time.Duration) (stood time.Duration, err error) {
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+calm+5*time.Second)
	defer cancel()
	var mu sync.Mutex
	var frozen []*process.Program
	err = parallel(programs, func(p *process.Program) error {
		f, err := p.Freeze(wait, timeout, calm)
		if err == nil || wait.Err() != nil { // a program that did not answer may still freeze, so it is thawed below
			mu.Lock()
			frozen = append(frozen, p)
			stood = max(stood, time.Duration(f.GateNanos+f.SyncNanos))
			mu.Unlock()
		}
		return err
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return stood, nil
	}
	return 0, errors.Join(err, e.thaw(ctx, frozen))
}

// thaw opens the gates, whatever has become of ctx.
func (e *Env) thaw(ctx context.Context, programs []*process.Program) error {
	return e.thawWith(ctx, programs, 0)
}

// thawWith opens the gates with the flags of wire.Thaw. A program that does not answer in time opens its gate when it
// can.
func (e *Env) thawWith(ctx context.Context, programs []*process.Program, flags uint32) error {
	ctx, cancel := e.undo(ctx)
	defer cancel()
	return parallel(programs, func(p *process.Program) error { return open(ctx, p, flags) })
}

// open opens the gate of one program, which may be open.
func open(ctx context.Context, p *process.Program, flags uint32) error {
	err := p.Thaw(ctx, flags)
	if errors.Is(err, process.ErrNotFrozen) {
		return nil
	}
	return err
}

// thaw opens the gates of programs that were captured frozen. If a gate is open already, the capture is not of one
// moment.
func (c *capture) thaw(ctx context.Context) error {
	ctx, cancel := c.env.undo(ctx)
	defer cancel()
	return parallel(c.programs, func(p *process.Program) error {
		err := p.Thaw(ctx, 0)
		id := p.Identity()
		if errors.Is(err, process.ErrNotFrozen) || errors.Is(err, process.ErrGone) &&
			process.Alive(id.PID, id.StartTime) {
			return fmt.Errorf("it did not stand still until its memory was captured, as when this daemon hangs: %w",
				err)
		}
		return err
	})
}
