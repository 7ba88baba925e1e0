package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/cuda"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/snapshot/digest"
)

// RestoreOptions say how a program comes back.
type RestoreOptions struct {
	Dir      string
	Name     string      // "" = as it was
	Trust    bool        // the image may belong to another user
	OnDemand bool        // the program runs before its memory is there, see RestoreResult.Finish
	Stdio    [3]*os.File // what becomes of its standard streams that were pipes, terminals or sockets
	Progress Progress
	// Warm gives away what is left of a program's memory from before it died, or nil.
	Warm func(token [16]byte) *process.Program
	// Room frees memory that is only kept for warm restores of other programs.
	Room func()
	// Register and Unregister tell the daemon of a program before its conversation
	// can begin, and that it will never come.
	Register   func(*process.Program) error
	Unregister func(*process.Program)
}

// RestoreResult is a restored tree: what its user is told, and its held programs, root first.
type RestoreResult struct {
	api.RestoreResult
	Programs []*process.Program

	// Finish is set after a restore on demand, and must be called. It returns when all the memory is there; an error
	// means that the program had to be ended. It adds to BytesFilled: copy what the user is told before it is
	// called. Missing is how much memory was not there when the program began to run,
	// Ordered how much of it has an order in the image. After Finish, Waits and Waited say how many pieces of work had
	// to wait, and for how long in all; Known, how many footprints needed the contents of memory; Guesses, how many
	// pieces had to wait for everything, and Guessed names some of them.
	Finish  func() error
	Ordered uint64
	Waits   int
	Waited  time.Duration
	Known   int
	Guesses int
	Guessed []string
}

// Restore brings the program tree of an image back. When it fails, nothing of the tree
// is left, and the image is as it was.
func (e *Env) Restore(ctx context.Context, opt RestoreOptions) (res *RestoreResult, err error) {
	begin := time.Now()
	r := &restoration{env: e, opt: opt, res: &RestoreResult{}, mark: rand.Text(), begun: ticks()}
	if err := r.t.do("check", func() error { return r.check(ctx) }); err != nil {
		return nil, err
	}
	if err = r.run(ctx); err != nil {
		err = errors.Join(err, r.undo())
	}
	if r.res.Finish == nil {
		r.close()
	}
	if err != nil {
		return nil, err
	}
	root := r.programs[0].Identity()
	r.res.PID, r.res.Name, r.res.Source = root.PID, root.Name, "cold"
	if r.res.Warm {
		r.res.Source = "warm"
	}
	r.res.Steps, r.res.TotalMS = r.t.list(), api.Millis(time.Since(begin))
	r.res.Programs = r.programs
	return r.res, nil
}

type restoration struct {
	env      *Env
	opt      RestoreOptions
	im       *image.Image
	criu     *criu.Tool
	driver   cuda.Driver
	programs []*process.Program
	devices  []*deviceFill
	started  bool          // CRIU has brought the tree back
	known    bool          // the daemon has been told
	start    atomic.Uint64 // when the root process started; 0: it is not there yet
	mark     string        // in the arguments of CRIU, and when it began: see endRestore
	begun    uint64
	waited   sync.Mutex // res, after the restore
	t        timeline
	res      *RestoreResult
}

// deviceFill is the memory of one device.
type deviceFill struct {
	engine  *snapshot.Engine
	regions []*snapshot.Region
	digests [][]digest.Digest
	places  []place         // of the regions
	order   []snapshot.Span // in which the program will need them, as far as the image says
	warm    bool            // some regions may hold the right contents already
}

// fillOf finds the entry of an engine, or adds it. There are as many as devices.
func fillOf(list *[]*deviceFill, engine *snapshot.Engine) *deviceFill {
	for _, d := range *list {
		if d.engine == engine {
			return d
		}
	}
	d := &deviceFill{engine: engine}
	*list = append(*list, d)
	return d
}

// openImage opens an image of this user, or with trust of any.
func openImage(dir string, trust bool) (*image.Image, error) {
	if trust {
		return image.OpenForeign(dir)
	}
	im, err := image.Open(dir)
	if errors.Is(err, image.ErrForeign) {
		return nil, refusef("add --trust if you trust that user with all that you may do: what is in it runs as you",
			"%v", err)
	}
	return im, err
}

// check refuses what cannot work, before anything is touched.
func (r *restoration) check(ctx context.Context) (err error) {
	if r.im, err = openImage(r.opt.Dir, r.opt.Trust); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.im.Close()
		}
	}()
	m := r.im.Manifest
	if m.Kind != image.KindFull {
		return refusef("holdfast rollback puts it back into the living program",
			"%s is a %s image: it has device memory, but no program", r.opt.Dir, m.Kind)
	}
	if r.criu, err = r.env.CRIU(); err != nil {
		return err
	}
	if err := r.criu.Check(); err != nil {
		return err
	}
	kind := m.Programs[0].GPU
	if r.driver, err = r.env.GPUs.Driver(kind); err != nil {
		return err
	}
	version, err := r.driver.DriverVersion()
	if err != nil {
		return err
	}
	if int(version) < m.GPU.Driver {
		return refusef("restore it where the driver is at least as new",
			"the image is of CUDA driver %v, this one is %v", cuda.Version(m.GPU.Driver), version)
	}
	for _, p := range m.Programs {
		if process.Alive(p.PID, 0) {
			return refusef("end it first, or use holdfast rollback for its device memory",
				"process %d is in use: the program of %s needs that number", p.PID, r.opt.Dir)
		}
		for _, u := range p.Devices {
			if _, err := r.env.GPUs.Engine(kind, u); err != nil {
				return fmt.Errorf("the image needs a GPU that is not here: %w", err)
			}
		}
	}
	return r.im.CheckFiles(ctx)
}

func (r *restoration) run(ctx context.Context) (err error) {
	if err := r.t.do("memory", r.memory); err != nil {
		return err
	}
	if err := r.register(); err != nil {
		return err
	}
	if r.opt.OnDemand {
		return r.onDemand(ctx)
	}
	// The CPU side and the device memory come back side by side.
	fillCtx, stopFill := context.WithCancel(ctx)
	defer stopFill()
	filled := make(chan error, 1)
	go func() {
		filled <- r.t.do("fill", func() error { return r.fill(fillCtx) })
	}()
	err = r.cpuSide(ctx)
	if err != nil {
		stopFill()
	}
	err = errors.Join(err, <-filled)
	if err != nil {
		return err
	}
	return r.t.do("thaw", r.goOn)
}

// goOn lets the programs run: their memory is whole. From here on the next daemon brings them back should we die, and
// does not end them.
func (r *restoration) goOn() error {
	if err := r.keep(DoingCheckpoint); err != nil {
		return err
	}
	ctx := context.Background() // whoever has asked may be gone, they go on
	if err := r.env.thaw(ctx, r.programs); err != nil {
		return err
	}
	return r.env.unkeepAll(r.programs)
}

// memory finds or makes the physical memory of every region.
func (r *restoration) memory() error {
	m := r.im.Manifest
	left := make([]map[uint64]*process.Alloc, len(m.Programs))
	r.res.Warm = true
	for i, mp := range m.Programs {
		id := process.Identity{
			PID: mp.PID, StartTime: mp.StartTime, ControlTID: mp.ControlTID, GPU: mp.GPU, Driver: m.GPU.Driver,
			Name: mp.Name, Exe: mp.Exe, Command: mp.Command, Devices: mp.Devices, Token: mp.Token,
		}
		if i == 0 && r.opt.Name != "" {
			id.Name = r.opt.Name
		}
		p := process.New(id, api.StateRestoring, r.env.Log)
		p.SetImage(r.opt.Dir)
		p.SetRestorable(r.opt.Dir)
		r.programs = append(r.programs, p)
		left[i] = map[uint64]*process.Alloc{}
		old := r.opt.Warm(id.Token)
		if old == nil {
			r.res.Warm = false
			continue
		}
		for _, a := range old.Take() {
			if a.File != nil { // it was not suspended when it died
				left[i][a.ID] = a
			}
		}
	}
	defer func() {
		for _, l := range left {
			for _, a := range l { // not part of this image
				a.File.Close()
			}
		}
	}()
	if !r.res.Warm {
		r.opt.Room()
	}
	at := make([]regionOf[*deviceFill], len(m.Regions))
	for i, mr := range m.Regions {
		p := r.programs[mr.Program]
		id := p.Identity()
		engine, err := r.env.GPUs.Engine(id.GPU, id.Devices[mr.Device])
		if err != nil {
			return err
		}
		d := fillOf(&r.devices, engine)
		a := &process.Alloc{ID: mr.ID, VA: mr.VA, Size: mr.Size, Device: mr.Device, Kind: mr.Kind, Used: mr.Used}
		var region *snapshot.Region
		if w := left[mr.Program][mr.ID]; w != nil && w.Size == mr.Size && w.Device == mr.Device {
			delete(left[mr.Program], mr.ID)
			a.File = w.File
			region, err = engine.Import(int(a.File.Fd()), a.Size) // nobody else has it
			d.warm = true
		} else {
			var fd int
			region, fd, err = engine.Create(a.Size)
			if err == nil {
				a.File = os.NewFile(uintptr(fd), fmt.Sprintf("device memory %d of process %d", a.ID, id.PID))
			}
		}
		p.Adopt([]*process.Alloc{a})
		if err != nil {
			return fmt.Errorf("%d bytes of device memory for process %d: %w", a.Size, id.PID, err)
		}
		at[i] = regionOf[*deviceFill]{d, len(d.regions)}
		d.regions = append(d.regions, region)
		d.digests = append(d.digests, mr.Digests)
		d.places = append(d.places, place{mr.Program, mr.ID})
		r.res.Bytes += a.Size
	}
	for _, run := range m.Order {
		d := at[run.Region]
		r.res.Ordered += uint64(run.Count) * snapshot.ChunkSize
		d.of.order = append(d.of.order, snapshot.Span{Region: d.index, Off: uint64(run.Chunk) * snapshot.ChunkSize,
			Len: uint64(run.Count) * snapshot.ChunkSize})
	}
	return nil
}

// fill brings every region to what the image says. What is there already is left alone.
func (r *restoration) fill(ctx context.Context) (err error) {
	r.res.BytesFilled, err = fillAll(ctx, r.devices, r.im, r.opt.Progress)
	return err
}

// fillAll fills the memory of each device, and says how many bytes were not there already.
func fillAll(ctx context.Context, devices []*deviceFill, im *image.Image,
	progress Progress) (filled uint64, err error) {
	for _, d := range devices {
		st, err := d.engine.Fill(ctx, d.regions, d.digests, im.ReadChunk,
			snapshot.FillOptions{Compare: d.warm, Progress: progress.snapshot()})
		filled += uint64(st.Chunks-st.Kept) * snapshot.ChunkSize
		if err != nil {
			return filled, err
		}
	}
	return filled, nil
}

func (r *restoration) register() error {
	r.known = true
	if err := r.keep(DoingRestore); err != nil {
		return err
	}
	for _, p := range r.programs {
		if err := r.opt.Register(p); err != nil {
			return err
		}
	}
	return nil
}

// keep tells the keeper of the programs, so that the next daemon ends them if we do not get to the end, or, once their
// memory is whole, brings them back.
func (r *restoration) keep(doing string) error {
	for _, p := range r.programs {
		rec := Record{Doing: doing, Root: r.im.Manifest.Root, RootStart: r.start.Load(), Mark: r.mark,
			Begun: r.begun, Image: r.opt.Dir}
		if err := r.env.keep(p, rec); err != nil {
			return err
		}
	}
	return nil
}

// born is called as soon as the root process exists. Until then the record has only its process ID, which may be
// another process's by the time the next daemon looks.
func (r *restoration) born(start uint64) {
	r.start.Store(start)
	if err := r.keep(DoingRestore); err != nil {
		r.env.Log.Error("the keeper does not know of a process that is being restored", "pid", r.im.Manifest.Root,
			"err", err)
	}
}

func (r *restoration) cpuSide(ctx context.Context) error {
	if err := r.im.PlaceLibraries(); err != nil {
		return err
	}
	if err := r.t.do("criu restore", func() error {
		pid, err := r.criu.Restore(ctx, criu.RestoreOptions{Dir: r.im.CRIUDir(), Stdio: r.opt.Stdio, Born: r.born,
			Mark: r.mark})
		if err != nil {
			return err
		}
		r.started = true
		if want := r.programs[0].Identity().PID; pid != want && len(r.programs) == 1 && r.im.Manifest.Root == want {
			return fmt.Errorf("criu restored process %d, the image is of %d", pid, want)
		}
		for _, p := range r.programs {
			if err := p.Restored(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return parallel(r.programs, func(p *process.Program) error {
		if err := r.t.do("driver restore", func() error { return r.env.driverRestore(r.driver, p) }); err != nil {
			return err
		}
		return r.giveMemory(ctx, p)
	})
}

// giveMemory wakes a program and gives it its memory. A program that was not welcomed within ten seconds, or had no
// descriptor for a moment, breaks off the conversation and lives: it is woken again.
func (r *restoration) giveMemory(ctx context.Context, p *process.Program) error {
	// The program may be stopped, or have become another user: do not let the caller wait for ever.
	wake, cancel := context.WithTimeout(ctx, r.env.patience())
	defer cancel()
	for {
		if err := r.t.do("wake", func() error { return p.Wake(wake) }); err != nil {
			return err
		}
		err := r.t.do("map", func() error { _, err := p.Remap(ctx, true); return err })
		id := p.Identity()
		if !errors.Is(err, process.ErrGone) || !process.Alive(id.PID, id.StartTime) || wake.Err() != nil {
			return err
		}
		p.Log().Warn("a program that is being restored has broken off its conversation: it is woken again", "err", err)
	}
}

func (r *restoration) close() {
	r.im.Close()
	for _, d := range r.devices {
		for _, g := range d.regions {
			g.Close()
		}
	}
}

// undo leaves nothing of a restore that failed.
func (r *restoration) undo() error {
	var err error
	if r.started {
		root := r.im.Manifest.Root
		tree, _ := criu.Tree(root) // none if it has ended
		err = criu.Kill(root, r.start.Load(), 10*time.Second)
		if errors.Is(err, unix.ESRCH) {
			tree, err = nil, nil // it has ended, and another process has its ID
		}
		if err != nil {
			r.env.Log.Error("what is left of a restore could not be ended", "pid", root, "err", err)
		}
		// They are our children, or became so with the death of their parents. Until somebody takes their
		// status their process IDs stay in use, and the next restore needs those.
		for _, pid := range tree {
			if r.res.Finish == nil || pid != r.res.PID { // whoever was given the result waits for its root
				unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}
	k, kerr := r.env.Keeper()
	for _, p := range r.programs {
		p.Drop()
		if r.known {
			r.opt.Unregister(p)
			err = errors.Join(err, r.env.removeUnderway(key(p.Identity().Token)))
			if kerr == nil {
				kerr = k.Delete(key(p.Identity().Token))
			}
		}
	}
	return errors.Join(err, kerr)
}
