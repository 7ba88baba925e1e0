package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/wire"
)

// Rollback puts the device memory of an image back into the programs that it was
// taken from, which live on. Memory allocated since then is left alone; memory
// freed since then is a refusal. Before anything is overwritten, every chunk of the image
// has been read and found right. With trust the image may belong to another user.
//
// Some of the programs may stand behind a shut gate ([process.Program.Shut]) because an earlier rollback was not
// finished. For these, the image must have all the memory that may be half overwritten.
func (e *Env) Rollback(ctx context.Context, programs []*process.Program, dir string, trust bool,
	progress Progress) (*api.RollbackResult, error) {
	im, err := openImage(dir, trust)
	if err != nil {
		return nil, err
	}
	defer im.Close()
	if err := staysShut(programs); err != nil {
		return nil, err
	}
	if _, err := checkCaveats(programs, wire.CaveatBlocksGPUOnly); err != nil {
		return nil, err
	}
	var t timeline
	if err := t.do("verify", func() error { return verifyChunks(ctx, im, dir, progress) }); err != nil {
		return nil, err
	}
	r := &rollback{env: e, im: im, dir: dir, trust: trust, programs: programs, t: &t, progress: progress}
	for _, p := range programs {
		if !p.Shut() {
			r.frozen = append(r.frozen, p)
		} else if err := p.WaitAdopted(ctx); err != nil {
			return nil, err
		}
	}
	t.stall = true
	start := time.Now()
	if err := t.do("freeze", func() error { return e.freeze(ctx, r.frozen, DefaultTimeout) }); err != nil {
		return nil, err
	}
	err = r.run(ctx)
	r.res.PID = programs[0].Identity().PID
	r.res.StallMS, r.res.Steps = api.Millis(time.Since(start)), t.list()
	if err != nil {
		return nil, err
	}
	return &r.res, nil
}

func verifyChunks(ctx context.Context, im *image.Image, dir string, progress Progress) error {
	problems, err := im.VerifyChunks(ctx, func(done, total uint64) { progress("verify", done, total) })
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("image %s is damaged: %s", dir, problems[0])
	}
	return err
}

// staysShut refuses programs that would run with half of their memory if we died.
func staysShut(programs []*process.Program) error {
	for _, p := range programs {
		if p.Conversing() && !p.StaysShut() {
			return refusef("restore a whole image of it instead",
				"process %d comes from an image of an older holdfast: it would go on with half of its memory if this "+
					"daemon died",
				p.Identity().PID)
		}
	}
	return nil
}

// rollback is a rollback under way. Its programs stand still.
type rollback struct {
	env      *Env
	im       *image.Image
	dir      string
	trust    bool
	programs []*process.Program
	frozen   []*process.Program // frozen by us: they go on if the rollback fails before it writes. The others stay shut
	t        *timeline
	progress Progress
	res      api.RollbackResult
}

// run overwrites the memory and lets the programs go on. After an error they go on with what they had, or, after one
// that is a *HalfError, stay where they are.
func (r *rollback) run(ctx context.Context) (err error) {
	var fills []*deviceFill
	defer func() { closeFills(fills) }()
	// again, now that nothing can change any more
	r.res.Warnings, err = checkCaveats(r.programs, wire.CaveatBlocksGPUOnly)
	if err == nil {
		fills, err = r.env.match(r.programs, r.im.Manifest, &r.res, false)
	}
	if err == nil {
		err = r.coversHalf()
	}
	if err == nil {
		err = r.shut(ctx)
	}
	if err != nil {
		return errors.Join(err, r.t.do("thaw", func() error { return r.env.goOn(r.frozen, 0) }))
	}
	// Once begun it is finished: half of an image is worse than either.
	err = r.t.do("fill", func() error {
		return r.env.twice(r.programs[0], func() (err error) {
			r.res.BytesFilled, err = fillAll(context.WithoutCancel(ctx), fills, r.im, r.progress)
			return err
		})
	})
	if err == nil {
		err = r.t.do("thaw", func() error { return r.env.goOn(r.programs, wire.ThawGlobals) })
	}
	return half(r.programs, err)
}

// coversHalf refuses an image that lacks memory which an unfinished rollback to another image may have half
// overwritten.
func (r *rollback) coversHalf() error {
	for _, p := range r.programs {
		if !p.Shut() || p.ImageSum() == r.im.Sum() {
			continue
		}
		have := map[uint64]bool{}
		for _, mr := range r.im.Manifest.Regions {
			if r.im.Manifest.Programs[mr.Program].Token == p.Identity().Token {
				have[mr.ID] = true
			}
		}
		for _, a := range p.Allocs() {
			if !have[a.ID] {
				return refusef("roll back to the image of the rollback that was cut short, or a later one",
					"process %d has %d bytes at %#x that may be half overwritten, and they are not in %s",
					p.Identity().PID, a.Size, a.VA, r.dir)
			}
		}
	}
	return nil
}

// shutLimit bounds how long a frozen program may take to answer.
const shutLimit = 10 * time.Second

// shut makes it safe to overwrite the memory: if we die, the gates stay shut, and the next daemon knows what to do.
// After an error nothing may be overwritten.
func (r *rollback) shut(ctx context.Context) error {
	err := r.t.do("keep", r.keep)
	if err != nil {
		return err
	}
	return r.t.do("shut", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
		defer cancel()
		return parallel(r.programs, func(p *process.Program) error {
			p.SetStuck("")
			err := p.KeepShut(ctx)
			if err == nil {
				p.Log().Debug("it is being overwritten", "image", r.dir)
			}
			return err
		})
	})
}

func (r *rollback) keep() error {
	root := r.programs[0].Identity()
	rec := Record{Doing: DoingRollback, Root: root.PID, RootStart: root.StartTime, Image: r.dir, Trust: r.trust}
	for _, p := range r.programs {
		p.SetImageSum(r.im.Sum())
		if err := r.env.keep(p, rec); err != nil {
			return err
		}
	}
	return r.env.saveRecords(r.programs, rec)
}

// A HalfError is a rollback that could not be finished: some of its programs stand behind a shut gate.
type HalfError struct{ cause error }

func (h *HalfError) Error() string {
	return "the memory is half overwritten, so the program does not go on (" + halfRemedy + "): " + h.cause.Error()
}

func (h *HalfError) Unwrap() error { return h.cause }

const halfRemedy = "roll it back again, to this image or another one, or end it"

// half turns err into a *HalfError if it leaves any program shut, and makes ps say so.
func half(programs []*process.Program, err error) error {
	var late *NotBackError
	if err == nil || errors.As(err, &late) {
		return err
	}
	stays := false
	for _, p := range programs {
		if id := p.Identity(); p.Shut() && process.Alive(id.PID, id.StartTime) {
			stays = true
			p.SetStuck("a rollback was not finished: " + halfRemedy)
			p.Log().Error("its memory is half overwritten, and its gate stays shut: "+halfRemedy, "err", err)
		}
	}
	if stays {
		return &HalfError{err}
	}
	return err
}

// twice runs fill, which must not stay half done, and runs it again if it fails.
func (e *Env) twice(p *process.Program, fill func() error) error {
	err := fill()
	if err != nil {
		p.Log().Warn("the memory of a program is half overwritten; it is tried again", "err", err)
		err = fill()
	}
	return err
}

// goOn opens the gates of programs that were rolled back, or were to be, however long that takes; only the wait for
// it is bounded, and ends with a *NotBackError.
func (e *Env) goOn(programs []*process.Program, flags uint32) error {
	if len(programs) == 0 {
		return nil
	}
	return e.patiently(programs, func() error {
		return parallel(programs, func(p *process.Program) error { return e.goesOn(p, flags) })
	}, func() {})
}

// goesOn returns when a program runs, is gone, or says why it cannot go on; in the last case it stays shut, and the
// keeper keeps its record. If the conversation breaks off meanwhile, the program comes back and says whether it is
// shut.
func (e *Env) goesOn(p *process.Program, flags uint32) error {
	for {
		arrived := p.Arrived()
		err := p.Thaw(context.Background(), flags)
		if err == nil || errors.Is(err, process.ErrNotFrozen) {
			break
		}
		var refused *process.Refusal
		if errors.As(err, &refused) {
			return err
		}
		p.Log().Warn("a program does not go on yet", "err", err)
		if gone := awaitArrival(p, arrived); gone != nil {
			return gone
		}
	}
	p.SetImageSum("")
	e.removeRecord(p.Identity().Token)
	err := e.unkeepAll([]*process.Program{p})
	if err != nil {
		p.Log().Error("the keeper keeps the record of a program that goes on", "err", err)
	}
	if p.ToldAll() {
		return nil
	}
	arrived := p.Arrived()
	p.Reconnect() // now it can move what it could not export, and tell of it
	if err := awaitArrival(p, arrived); err != nil {
		return err
	}
	return returned(p)
}

// awaitArrival returns nil when arrived is closed, or an error when the program has ended.
func awaitArrival(p *process.Program, arrived <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := process.End(ctx, p.Identity())
	select {
	case <-arrived:
		return nil
	case err := <-ended:
		return errors.Join(fmt.Errorf("process %d: %w", p.Identity().PID, process.ErrGone), err)
	}
}

func (e *Env) unkeepAll(programs []*process.Program) (err error) {
	for range 3 {
		if err = parallel(programs, e.unkeep); err == nil {
			return nil
		}
	}
	return err
}

// recoverRollback takes up a rollback that only a file knows of.
func (e *Env) recoverRollback(r *Record, reg Registry) {
	q := reg.Lookup(r.Identity.PID)
	switch {
	case q == nil:
		// We have none of its memory: the program is asked to tell of all of it.
		p := process.New(r.Identity, api.StateRestoring, e.Log)
		p.SetImageSum(r.ImageSum)
		if err := e.endRollback(r, p, reg); err != nil {
			p.Log().Error("a rollback was cut short and is not finished", "err", err)
		}
	case q.Identity().Token == r.Identity.Token && q.State() == api.StateRunning:
		e.dropRecord(r)
	}
}

// endRollback finishes a rollback that was cut short; p was made from r. No program that says it is shut is admitted
// before this has returned.
func (e *Env) endRollback(r *Record, p *process.Program, reg Registry) error {
	p.TryLock() // it is new: nobody else has it
	if err := reg.Register(p); err != nil {
		// It has come by itself and was admitted, so it was not shut, and its memory is whole.
		p.Drop()
		e.dropRecord(r)
		return e.unkeep(p)
	}
	go e.finishRollback(p, r, reg)
	return nil
}

// finishRollback waits for a program, and fills its memory if it says that it is shut.
func (e *Env) finishRollback(p *process.Program, r *Record, reg Registry) {
	defer p.Unlock()
	err := returned(p)
	if err == nil && p.Shut() {
		err = e.twice(p, func() error { return e.refill(p, r) })
	}
	if err == nil {
		err = e.goesOn(p, wire.ThawGlobals)
	}
	switch id := p.Identity(); {
	case err == nil:
		p.SetState(api.StateRunning)
		p.Log().Info("a rollback was cut short by the death of an earlier daemon; it is done now", "image", r.Image)
	case process.Alive(id.PID, id.StartTime):
		half([]*process.Program{p}, err)
	default:
		reg.Gone(p)
	}
}

// returned waits until a program has come by itself and told its memory, or is gone.
func returned(p *process.Program) error {
	for {
		arrived := p.Arrived()
		if p.Conversing() && p.WaitAdopted(context.Background()) == nil {
			return nil
		}
		if err := awaitArrival(p, arrived); err != nil {
			return err
		}
	}
}

// refill gives a program the memory of the image that it was being rolled back to.
func (e *Env) refill(p *process.Program, r *Record) error {
	im, err := openImage(r.Image, r.Trust)
	if err != nil {
		return err
	}
	defer im.Close()
	if im.Sum() != r.ImageSum {
		return fmt.Errorf("%s holds another image by now (manifest %.16s, not %.16s)", r.Image, im.Sum(), r.ImageSum)
	}
	fills, err := e.match([]*process.Program{p}, im.Manifest, &api.RollbackResult{}, true)
	defer func() { closeFills(fills) }()
	if err != nil {
		return err
	}
	_, err = fillAll(context.Background(), fills, im, nil)
	return err
}

func closeFills(fills []*deviceFill) {
	for _, d := range fills {
		for _, r := range d.regions {
			r.Close()
		}
	}
}

// match finds the allocation of every region of the image. With some set, regions of programs that are not in the
// list are left out.
func (e *Env) match(programs []*process.Program, m *image.Manifest, res *api.RollbackResult, some bool) (
	[]*deviceFill, error) {
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
			return fills, refusef("rollback works on the program that the image was taken from",
				"the image is of %s (process %d), another program", mp.Name, mp.PID)
		}
		a := byToken[mp.Token][mr.ID]
		if a == nil || a.VA != mr.VA || a.Size != mr.Size || a.Device != mr.Device {
			return fills, refusef("restore the whole program from a full image instead",
				"the program has freed %d bytes at %#x since the image was taken", mr.Size, mr.VA)
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
