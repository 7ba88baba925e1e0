package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/wire"
)

// RollbackResult describes a rollback.
type RollbackResult struct {
	Stall       time.Duration
	Bytes       uint64
	BytesFilled uint64
	Steps       []Step
	Warnings    []string // what stayed as it was, or may have
}

// Rollback puts the device memory of an image back into the programs that it was
// taken from, which live on. Memory allocated since then is left alone; memory
// freed since then is a refusal. Before anything is overwritten, every chunk of the image
// has been read and found right. With trust the image may belong to another user.
func (e *Env) Rollback(ctx context.Context, programs []*process.Program, dir string, trust bool,
	progress Progress) (*RollbackResult, error) {
	im, err := openImage(dir, trust)
	if err != nil {
		return nil, err
	}
	defer im.Close()
	if _, err := checkCaveats(programs, wire.CaveatBlocksGPUOnly); err != nil {
		return nil, err
	}
	var t timeline
	if err := t.do("verify", func() error {
		problems, err := im.VerifyChunks(ctx, func(done, total uint64) { progress("verify", done, total) })
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("image %s is damaged: %s", dir, problems[0])
		}
		return err
	}); err != nil {
		return nil, err
	}
	res := &RollbackResult{}
	t.stall = true
	start := time.Now()
	if err := t.do("freeze", func() error { return e.freeze(ctx, programs, DefaultTimeout) }); err != nil {
		return nil, err
	}
	var fills []*deviceFill
	if res.Warnings, err = checkCaveats(programs, wire.CaveatBlocksGPUOnly); err == nil { // nothing has come in between
		fills, err = e.match(programs, im.Manifest, res, false)
	}
	defer func() {
		for _, d := range fills {
			for _, r := range d.regions {
				r.Close()
			}
		}
	}()
	var flags uint32
	if err == nil {
		flags = wire.ThawGlobals
		err = e.overwrite(programs, dir, &t, func() (err error) {
			res.BytesFilled, err = fillAll(context.WithoutCancel(ctx), fills, im, progress)
			return err
		})
	}
	var ruined *ruinedError
	if errors.As(err, &ruined) {
		return nil, err
	}
	if err != nil {
		flags = 0
	}
	err = errors.Join(err, t.do("thaw", func() error { return e.thawWith(ctx, programs, flags) }),
		e.unkeepAll(programs))
	res.Stall, res.Steps = time.Since(start), t.steps
	return res, err
}

// ruinedError is a rollback that could be neither finished nor undone.
type ruinedError struct{ cause error }

func (r *ruinedError) Error() string {
	return "the memory was half overwritten, so the program was ended: " + r.cause.Error()
}

func (r *ruinedError) Unwrap() error { return r.cause }

// stopLimit bounds how long a program may take to stop, all threads of it.
const stopLimit = 10 * time.Second

// overwrite runs fill over frozen programs. Should we die, a frozen program opens its gate by itself, and must not
// run with memory that is half of each: so meanwhile its process is stopped, and the keeper's record says so. The
// next daemon finishes what we have begun (endRollback). An error other than a *ruinedError says that nothing was
// overwritten.
func (e *Env) overwrite(programs []*process.Program, dir string, t *timeline, fill func() error) error {
	if err := t.do("keep", func() error { return e.keepAll(programs, DoingCheckpoint) }); err != nil {
		return err
	}
	goOn := func() error {
		return parallel(programs, func(p *process.Program) error {
			return criu.Continue(p.Identity().PID,
				p.Identity().StartTime)
		})
	}
	err := t.do("stop", func() error {
		return parallel(programs, func(p *process.Program) error {
			return criu.Stop(p.Identity().PID,
				p.Identity().StartTime, stopLimit)
		})
	})
	if err == nil {
		err = e.keepRollback(programs, dir, false)
	}
	if err != nil {
		return errors.Join(err, goOn())
	}
	// Once begun it is finished: half of an image is worse than either.
	err = t.do("fill", fill)
	if err != nil {
		e.Log.Warn("the memory of a program is half overwritten; it is tried again", "pid",
			programs[0].Identity().PID, "err", err)
		err = fill()
	}
	if err == nil {
		err = e.keepRollback(programs, dir, true)
	}
	if err == nil {
		err = goOn()
	}
	if err == nil {
		return nil
	}
	for _, p := range programs {
		id := p.Identity()
		err = errors.Join(err, criu.Kill(id.PID, id.StartTime, stopLimit))
	}
	return &ruinedError{errors.Join(err, e.unkeepAll(programs))}
}

func (e *Env) keepRollback(programs []*process.Program, dir string, filled bool) error {
	root := programs[0].Identity()
	for _, p := range programs {
		if err := e.keep(p, Record{Doing: DoingRollback, Root: root.PID, RootStart: root.StartTime, Image: dir,
			Filled: filled}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) unkeepAll(programs []*process.Program) (err error) {
	for range 3 {
		if err = parallel(programs, e.unkeep); err == nil {
			return nil
		}
	}
	return err
}

// endRollback finishes a rollback that was cut short, or ends the program where that cannot be done. p is made of r.
func (e *Env) endRollback(r *Record, p *process.Program, reg Registry) error {
	id := r.Identity
	// Copies of variables reach the variables by the program's own hand, with the THAW that never came.
	mirrors := slices.ContainsFunc(r.Allocs, func(a AllocRecord) bool { return a.Kind == wire.KindMirror })
	whole := r.Filled && !mirrors
	if !whole && (mirrors || !criu.Stopped(id.PID, id.StartTime)) {
		p.Drop()
		p.Log().Error("a rollback was cut short, with part of its memory as it was; it is ended", "image", r.Image)
		err := criu.Kill(id.PID, id.StartTime, stopLimit)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		return e.unkeep(p)
	}
	if err := reg.Register(p); err != nil { // it is not stopped any more, and whole
		p.Drop()
		return e.unkeep(p)
	}
	p.TryLock() // it is new: nobody else has it
	go e.finishRollback(p, r, whole, reg)
	return nil
}

// finishRollback fills the memory of a stopped program, unless that has been done, and lets it run: its gate opens by
// itself.
func (e *Env) finishRollback(p *process.Program, r *Record, whole bool, reg Registry) {
	defer p.Unlock()
	id := p.Identity()
	var err error
	if !whole {
		err = e.refill(p, r.Image)
	}
	if err == nil {
		err = e.unkeep(p)
	}
	if err == nil {
		err = criu.Continue(id.PID, id.StartTime)
	}
	if err == nil {
		p.SetState(api.StateRunning)
		p.Log().Info("rolled back, after the death of an earlier daemon", "image", r.Image)
		return
	}
	p.Log().Error("a rollback was cut short and could not be finished; its program is ended", "image", r.Image, "err",
		err)
	if err := errors.Join(criu.Kill(id.PID, id.StartTime, stopLimit), e.unkeep(p)); err != nil {
		p.Log().Error("it could not be ended", "err", err)
	}
	reg.Gone(p)
}

// refill gives a program the memory of an image that was taken of it.
func (e *Env) refill(p *process.Program, dir string) error {
	im, err := image.Open(dir)
	if err != nil {
		return err
	}
	defer im.Close()
	fills, err := e.match([]*process.Program{p}, im.Manifest, &RollbackResult{}, true)
	defer func() {
		for _, d := range fills {
			for _, r := range d.regions {
				r.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	_, err = fillAll(context.Background(), fills, im, nil)
	return err
}

// match finds the region of every allocation that the image has. With some it leaves out those of other programs.
func (e *Env) match(programs []*process.Program, m *image.Manifest, res *RollbackResult, some bool) ([]*deviceFill,
	error) {
	byToken := map[[16]byte]map[uint64]*process.Alloc{}
	owner := map[[16]byte]*process.Program{}
	for _, p := range programs {
		t := p.Identity().Token
		owner[t] = p
		byToken[t] = map[uint64]*process.Alloc{}
		for _, a := range p.Allocs() {
			byToken[t][a.ID] = a
		}
	}
	var fills []*deviceFill
	for _, mr := range m.Regions {
		mp := m.Programs[mr.Program]
		p := owner[mp.Token]
		if p == nil && some {
			continue
		}
		if p == nil {
			return fills, refusef("rollback works on the program that the image was taken from", "the image is of %s (process %d), another program", mp.Name, mp.PID)
		}
		a := byToken[mp.Token][mr.ID]
		if a == nil || a.VA != mr.VA || a.Size != mr.Size || a.Device != mr.Device {
			return fills, refusef("restore the whole program from a full image instead", "the program has freed %d bytes at %#x since the image was taken", mr.Size, mr.VA)
		}
		id := p.Identity()
		engine, err := e.GPUs.Engine(id.GPU, id.Devices[a.Device])
		if err != nil {
			return fills, err
		}
		d := fillOf(&fills, engine)
		d.warm = true
		r, err := importAlloc(engine, p, a)
		if err != nil {
			return fills, err
		}
		d.regions = append(d.regions, r)
		d.digests = append(d.digests, mr.Digests)
		res.Bytes += a.Size
	}
	return fills, nil
}
