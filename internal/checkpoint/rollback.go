package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

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
// has been read and found right.
func (e *Env) Rollback(ctx context.Context, programs []*process.Program, dir string, progress Progress) (*RollbackResult, error) {
	im, err := image.Open(dir)
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
	if err := t.do("freeze", func() error { return freeze(ctx, programs, DefaultTimeout) }); err != nil {
		return nil, err
	}
	var fills []*deviceFill
	if res.Warnings, err = checkCaveats(programs, wire.CaveatBlocksGPUOnly); err == nil { // nothing has come in between
		fills, err = e.match(programs, im.Manifest, res)
	}
	defer func() {
		for _, d := range fills {
			for _, r := range d.regions {
				r.Close()
			}
		}
	}()
	if err == nil {
		// Once begun it is finished: half of an image is worse than either.
		err = t.do("fill", func() (err error) {
			res.BytesFilled, err = fillAll(context.WithoutCancel(ctx), fills, im, progress)
			return err
		})
	}
	var flags uint32
	if err == nil {
		flags = wire.ThawGlobals
	}
	err = errors.Join(err, t.do("thaw", func() error { return thawWith(ctx, programs, flags) }))
	res.Stall, res.Steps = time.Since(start), t.steps
	return res, err
}

// match finds the region of every allocation that the image has.
func (e *Env) match(programs []*process.Program, m *image.Manifest, res *RollbackResult) ([]*deviceFill, error) {
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
