package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/owned"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/snapshot/digest"
	"holdfast/internal/store"
	"holdfast/internal/wire"
)

// Where the memory of a suspended program goes.
const (
	ToHost = "host" // an image in /dev/shm: host memory, and safe from the daemon's death
	ToDisk = "disk" // an image in a directory of the caller's choice
	ToGPU  = "gpu"  // nowhere: the keeper keeps it where it is
)

// hostRoot holds the directories of all users for the host.
const hostRoot = "/dev/shm"

// HostDir makes the place where the memory of a program goes that is suspended to the host. Everybody may write
// /dev/shm, so a directory that is there already may be somebody else's, who would get the memory and could put another
// in its place.
func HostDir(p *process.Program) (string, error) { return hostDir(hostRoot, p) }

func hostDir(root string, p *process.Program) (string, error) {
	d, err := owned.Private(hostPlace(root))
	if err != nil {
		return "", refusef("have that directory removed, or suspend --to disk", "the place for host memory: %v", err)
	}
	defer d.Close()
	return d.Join(key(p.Identity().Token)), nil
}

func hostPlace(root string) string {
	return filepath.Join(root, fmt.Sprintf("holdfast-%d", os.Getuid()))
}

// onHost reports whether dir is an image that only exists for a program that is suspended to the host.
func onHost(dir string) bool { return filepath.Dir(dir) == hostPlace(hostRoot) }

// ClearHost gives back the host memory of images that daemons were writing when they died, and returns how many there
// were. Whole images stay: a program may come back from each.
func ClearHost() (int, error) { return clearHost(hostRoot) }

func clearHost(root string) (int, error) {
	if _, err := os.Lstat(hostPlace(root)); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	d, err := owned.Private(hostPlace(root))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	c, err := store.GC(d.Path())
	return c.Partials, err
}

// Suspend takes programs, the held ones of one process tree, off the GPU: when
// it returns, the driver has nothing of theirs any more. Their processes stay: their
// next call to the driver waits until Resume. An image in dir holds the memory (not for ToGPU).
func (e *Env) Suspend(ctx context.Context, programs []*process.Program, to, dir string,
	progress Progress) (*api.SuspendResult, error) {
	begin := time.Now()
	// The driver saves its own state, so a caveat that blocks a gpu-only image does not block a suspend.
	if _, err := checkCaveats(programs, wire.CaveatBlocksFull); err != nil {
		return nil, err
	}
	if err := e.checkWayBack(programs); err != nil {
		return nil, err
	}
	drv, err := e.GPUs.Driver(programs[0].Identity().GPU)
	if err != nil {
		return nil, err
	}
	if _, err := e.Keeper(); err != nil {
		return nil, err
	}
	opt := Options{Dir: dir, GPUOnly: true, Mode: snapshot.Recopy, Timeout: DefaultTimeout, Progress: progress}
	c := &capture{env: e, programs: programs, driver: drv, opt: opt, res: newResult(programs, opt)}
	defer c.close()
	if to != ToGPU {
		if c.w, err = image.Create(dir, image.CreateOptions{Logger: e.Log, Private: to == ToHost}); err != nil {
			return nil, err
		}
	}
	before := make([]string, len(programs)) // their images
	for i, p := range programs {
		before[i] = p.Image()
	}
	committed := false
	fail := func(err error) (*api.SuspendResult, error) { return nil, c.giveUpSuspend(before, committed, err) }
	if c.w != nil {
		if err := c.precopy(ctx); err != nil {
			return fail(err)
		}
	}
	c.t.stall = true
	if err := c.t.do("freeze", func() error { return e.freeze(ctx, programs, c.opt.Timeout) }); err != nil {
		return fail(err)
	}
	if _, err := checkCaveats(programs, wire.CaveatBlocksFull); err != nil { // what came up since
		return fail(errors.Join(err, e.thaw(ctx, programs)))
	}
	if c.w != nil {
		if err := c.writeFrozen(ctx); err != nil {
			return fail(errors.Join(err, e.thaw(ctx, programs)))
		}
		committed = true
	}
	if err := c.t.do("keep", c.keepSuspended); err != nil {
		return fail(errors.Join(err, e.thaw(ctx, programs)))
	}
	undo, cancel := e.undo(ctx) // a new one: what came before may have taken long
	defer cancel()
	if err := c.takeDown(undo); err != nil {
		return fail(errors.Join(err, e.comeBack(programs, &c.t, nil)))
	}
	res := &api.SuspendResult{PID: programs[0].Identity().PID, To: to}
	c.close() // our own mappings hold the memory too
	if to != ToGPU {
		for _, p := range programs {
			n, _ := p.Resident()
			res.BytesFreed += n
		}
	}
	if err := e.settle(programs, to); err != nil {
		return nil, err
	}
	res.Steps, res.TotalMS = c.t.list(), api.Millis(time.Since(begin))
	return res, nil
}

// writeFrozen completes the image of frozen programs.
func (c *capture) writeFrozen(ctx context.Context) error {
	if err := c.captureFrozen(ctx); err != nil {
		return err
	}
	if err := c.drain(ctx); err != nil {
		return err
	}
	return c.t.do("commit", c.commit)
}

// keepSuspended hands the memory of frozen programs to the keeper, before the driver gives it up. With an image it
// first writes down where that lies, so that another daemon finds it.
func (c *capture) keepSuspended() error {
	for _, p := range c.programs {
		p.SetImage(c.opt.Dir)
		if c.w != nil {
			p.SetImageSum(c.w.Sum())
		}
	}
	if c.w != nil {
		if err := c.env.saveRecords(c.programs, Record{Doing: DoingSuspend, Image: c.opt.Dir}); err != nil {
			return err
		}
	}
	return c.env.keepAll(c.programs, DoingCheckpoint)
}

// giveUpSuspend takes away what a suspend has left that failed with err, and returns that. before are the images that
// the programs had.
func (c *capture) giveUpSuspend(before []string, committed bool, err error) error {
	for i, p := range c.programs {
		p.SetImage(before[i])
		c.env.removeRecord(p.Identity().Token)
	}
	switch {
	case c.w == nil:
	case committed:
		// A program that came back has removed it.
		if bad := image.Remove(c.opt.Dir); !errors.Is(bad, fs.ErrNotExist) {
			err = errors.Join(err, bad)
		}
	default:
		err = errors.Join(err, c.w.Abort())
	}
	return err
}

// settle ends a suspend: the programs are released, so they are suspended whatever happens here.
func (e *Env) settle(programs []*process.Program, to string) error {
	for _, p := range programs {
		if to != ToGPU {
			p.CloseFiles()
		}
		p.SetState(api.StateSuspended)
	}
	const tries = 5
	var err error
	for wait := 10 * time.Millisecond; wait < 10<<tries*time.Millisecond; wait *= 2 {
		if err = e.keepAll(programs, DoingSuspend); err == nil {
			return nil
		}
		time.Sleep(wait) // the keeper may have been killed, and is started again
	}
	return fmt.Errorf("process %d is suspended and can be resumed, but it may not outlive the daemon: %w",
		programs[0].Identity().PID, err)
}

// Resume puts suspended programs back on the GPU. When it fails they stay suspended, and it can be tried again.
func (e *Env) Resume(ctx context.Context, programs []*process.Program, progress Progress) (*api.ResumeResult,
	error) {
	begin := time.Now()
	var t timeline
	res := &api.ResumeResult{PID: programs[0].Identity().PID}
	if _, err := e.Keeper(); err != nil {
		return nil, err
	}
	dir := programs[0].Image()
	var fills []*deviceFill
	defer func() {
		for _, d := range fills {
			for _, r := range d.regions {
				r.Close()
			}
		}
	}()
	onGPU := true
	for _, p := range programs {
		for _, a := range p.Allocs() {
			res.Bytes += a.Size
			onGPU = onGPU && a.File != nil
		}
	}
	if !onGPU {
		im, err := suspended(programs[0], dir)
		if err != nil {
			return nil, err
		}
		defer im.Close()
		if err := e.mayResume(programs); err != nil {
			return nil, err
		}
		err = t.do("memory", func() (err error) { fills, err = e.recreate(programs, im.Manifest); return err })
		if err == nil {
			err = t.do("fill", func() error { _, err := fillAll(ctx, fills, im, progress); return err })
		}
		if err != nil {
			for _, p := range programs {
				p.CloseFiles()
			}
			return nil, err
		}
	}
	// From here on a new daemon brings them back with this memory.
	if err := e.keepAll(programs, DoingCheckpoint); err != nil {
		return nil, errors.Join(err, e.stay(programs, onGPU))
	}
	if err := e.comeBack(programs, &t, nil); err != nil {
		return nil, err
	}
	res.TotalMS, res.Steps = api.Millis(time.Since(begin)), t.list()
	return res, nil
}

// stay marks programs that could not be resumed as suspended again.
func (e *Env) stay(programs []*process.Program, onGPU bool) error {
	if !onGPU {
		for _, p := range programs {
			p.CloseFiles()
		}
	}
	return e.keepAll(programs, DoingSuspend)
}

// mayResume refuses programs that have been on their way back with other memory.
func (e *Env) mayResume(programs []*process.Program) error {
	for _, p := range programs {
		id := p.Identity()
		drv, err := e.GPUs.Driver(id.GPU)
		if err != nil {
			return err
		}
		state, err := drv.CheckpointState(id.PID)
		if err != nil {
			return fmt.Errorf("process %d: %w", id.PID, err)
		}
		if state == cuda.ProcessRunning {
			return refusef("end it",
				"process %d was being resumed when both daemon and keeper were killed: "+
					"some of its memory may be back already, and nobody else has that",
				id.PID)
		}
	}
	return nil
}

// suspended opens the image of a suspended program: the very one that its suspend wrote, which the daemon and the
// keeper remember by its sum. No other will do, not even another good image of the same program.
func suspended(p *process.Program, dir string) (*image.Image, error) {
	im, err := openImage(dir, false)
	if err != nil {
		return nil, err
	}
	sum := p.ImageSum()
	if sum == "" { // by a daemon that did not remember it; the image is this user's at least
		p.Log().Warn("the image of a suspended program is taken by its place alone", "dir", dir)
		return im, nil
	}
	if im.Sum() != sum {
		im.Close()
		return nil, refusef("put the image of its suspend back there",
			"%s holds another image than the one that process %d was suspended to (manifest %.16s, not %.16s)",
			dir, p.Identity().PID, im.Sum(), sum)
	}
	return im, nil
}

// recreate makes new physical memory for every allocation, to be filled from m.
func (e *Env) recreate(programs []*process.Program, m *image.Manifest) ([]*deviceFill, error) {
	digests := map[[16]byte]map[uint64][]digest.Digest{}
	for _, r := range m.Regions {
		t := m.Programs[r.Program].Token
		if digests[t] == nil {
			digests[t] = map[uint64][]digest.Digest{}
		}
		digests[t][r.ID] = r.Digests
	}
	var fills []*deviceFill
	for _, p := range programs {
		id := p.Identity()
		for _, a := range p.Allocs() {
			want, ok := digests[id.Token][a.ID]
			if !ok || uint64(len(want))*digest.ChunkSize != a.Size {
				return fills, fmt.Errorf("process %d: the image has nothing for its %d bytes at %#x", id.PID, a.Size,
					a.VA)
			}
			engine, err := e.GPUs.Engine(id.GPU, id.Devices[a.Device])
			if err != nil {
				return fills, err
			}
			d := fillOf(&fills, engine)
			r, fd, err := engine.Create(a.Size)
			if err != nil {
				return fills, fmt.Errorf("%d bytes of device memory for process %d: %w", a.Size, id.PID, err)
			}
			d.regions = append(d.regions, r)
			d.digests = append(d.digests, want)
			p.SetFile(a.ID, os.NewFile(uintptr(fd), fmt.Sprintf("device memory %d of process %d", a.ID, id.PID)))
		}
	}
	return fills, nil
}
