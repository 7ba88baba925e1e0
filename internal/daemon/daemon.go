// Package daemon is the long-running process that holds programs: it accepts
// them on one socket (shim.sock), keeps their device memory, and serves the
// command line on another (daemon.sock, package api).
//
// One daemon serves one runtime directory: a lock file says so. It may be killed
// at any time: programs run on, the keeper holds what no program has mapped, and the
// next daemon takes both up again.
//
// Lock order: Daemon.mu (the registry) is never held while a program's own lock
// is taken, nor over anything that waits.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/checkpoint"
	"holdfast/internal/criu"
	"holdfast/internal/cuda"
	"holdfast/internal/daemon/api"
	"holdfast/internal/keeper"
	"holdfast/internal/owned"
	"holdfast/internal/process"
	"holdfast/internal/wire"
)

// The sockets in the runtime directory.
const (
	ShimSocket = "shim.sock"
	APISocket  = "daemon.sock"
)

// LogName is the log of a daemon that was started on demand or by the keeper, in the runtime directory.
const LogName = "daemon.log"

// Config says what a daemon serves and how.
type Config struct {
	Dir        string                 // runtime directory, 0700, exists
	SoftDriver func() (string, error) // path of a copy of the stub libcuda.so.1 that was not loaded before
	SoftGPU    func() error           // makes sure that there is a software GPU; nil: somebody else does
	Libraries  []string               // files that restored programs have mapped: put into images
	Version    string
	// how long the memory of a program that was killed after a checkpoint is kept for a warm restore
	Keep     time.Duration
	Idle     time.Duration // how long the daemon stays with nothing to hold; 0: for ever
	Patience time.Duration // how long a client waits for programs that do not come back; 0: as usual
	Lease    time.Duration // how long a frozen program waits for a daemon that hangs; 0: as usual
	Again    []string      // arguments with which the keeper starts the next daemon; none: it does not
	Log      *slog.Logger
}

// A Daemon holds programs.
type Daemon struct {
	cfg     Config
	dir     *owned.Dir // cfg.Dir
	log     *slog.Logger
	gpus    *gpus
	started time.Time
	criu    func() (*criu.Tool, error)
	fills   sync.WaitGroup // restores on demand that are not finished

	recovered chan struct{} // closed when what an earlier daemon has left is known

	mu       sync.Mutex
	programs map[int]*process.Program // by PID
	kept     map[[16]byte]*keptMemory // of dead programs, by token
	exits    map[int]*exit            // restored programs: our children, also after they ended
	keep     *keeper.Client
	requests int
	activity chan struct{}
	stop     context.CancelFunc
}

// keptMemory is what is left of a program for a warm restore.
type keptMemory struct {
	program *process.Program
	timer   *time.Timer
}

// Run serves until ctx ends, the daemon is told to shut down or it is idle for
// Config.Idle. It returns an error when another daemon serves the directory.
func Run(ctx context.Context, cfg Config) error {
	dir, err := owned.Private(cfg.Dir)
	if err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	defer dir.Close()
	lock, err := dir.OpenFile("daemon.pid", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	defer lock.Close()
	if err := own(ctx, lock, filepath.Join(cfg.Dir, APISocket)); err != nil {
		return fmt.Errorf("another daemon serves %s: %w", cfg.Dir, err)
	}
	if err := lock.Truncate(0); err == nil {
		fmt.Fprintf(lock, "%d\n", os.Getpid())
	}
	raiseFileLimit(cfg.Log)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := &Daemon{
		cfg: cfg, dir: dir, log: cfg.Log, gpus: newGPUs(cfg), started: time.Now(),
		criu: untilFound(func() (*criu.Tool, error) { return findCRIU(cfg) }), programs: map[int]*process.Program{},
		kept: map[[16]byte]*keptMemory{}, exits: map[int]*exit{}, activity: make(chan struct{}, 1), stop: stop,
		recovered: make(chan struct{}),
	}
	shims, err := d.listen(ShimSocket, "unixpacket")
	if err != nil {
		return err
	}
	defer shims.Close()
	go d.acceptShims(patient{shims, d.log}) // programs that recoverKept wakes connect there
	d.recoverKept()
	close(d.recovered)
	if n, err := checkpoint.ClearHost(); n > 0 || err != nil {
		d.log.Info("host memory that an earlier daemon was writing is given back", "images", n, "err", err)
	}
	apis, err := d.listen(APISocket, "unix")
	if err != nil {
		return err
	}
	defer apis.Close()
	srv := d.server(ctx)
	go srv.Serve(patient{apis, d.log})
	d.log.Info("daemon ready", "dir", cfg.Dir, "version", cfg.Version)
	d.waitIdle(ctx)
	// Requests under way end before the daemon does.
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	srv.Shutdown(shutdown)
	d.fills.Wait() // programs wait for memory that is still being filled
	d.gpus.close()
	d.removeDeadKeeper()
	d.log.Info("daemon ends")
	return nil
}

// removeDeadKeeper removes the socket of a keeper that was killed; one that ends by itself does that itself. Only the
// owner of the directory, as we are, starts another.
func (d *Daemon) removeDeadKeeper() {
	path := filepath.Join(d.cfg.Dir, keeper.Socket)
	k, err := keeper.Dial(path)
	if err == nil {
		k.Close()
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		os.Remove(path)
	}
}

// endLimit is how long a daemon that ends waits for requests that are under way.
const endLimit = 30 * time.Second

// own takes the lock of a runtime directory. A daemon that has it and cannot be called is about to end: then own waits.
func own(ctx context.Context, lock *os.File, socket string) error {
	for until := time.Now().Add(endLimit + 10*time.Second); ; {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			return err
		}
		if serving(socket) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// serving reports whether there is a daemon behind the socket. One that was killed takes connections until the last of
// its threads is gone, a little later than the first.
func serving(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer c.Close()
	cred, err := credentials(c)
	return err != nil || cred.Pid <= 0 || process.Alive(int(cred.Pid), 0)
}

// raiseFileLimit lifts the soft limit of open files: every allocation of every program is one descriptor here.
func raiseFileLimit(log *slog.Logger) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return
	}
	want := r.Max
	if os.Getuid() == 0 && want < 1<<20 {
		want = 1 << 20
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, r.Max)}); err != nil {
		log.Warn("open files stay limited", "limit", r.Cur, "err", err)
	}
}

// listen makes a socket of the runtime directory, in the place of one that a dead daemon left.
func (d *Daemon) listen(name, network string) (*net.UnixListener, error) {
	path := filepath.Join(d.cfg.Dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (d *Daemon) acceptShims(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		go d.converse(wire.NewConn(c.(*net.UnixConn)))
	}
}

// converse holds one conversation with a program.
func (d *Daemon) converse(conn *wire.Conn) {
	defer conn.Close()
	cred, err := conn.Peer()
	if err != nil {
		d.log.Warn("program refused", "err", err)
		return
	}
	if !sameUser(cred) {
		d.log.Warn("program refused: another user's", "pid", cred.Pid, "uid", cred.Uid)
		return
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, m, fds, err := conn.Recv()
	conn.SetDeadline(time.Time{})
	if err != nil {
		d.log.Warn("program refused", "pid", cred.Pid, "err", err)
		return
	}
	hello, ok := m.(*wire.Hello)
	if !ok || len(fds) != 1 || hello.Proto != wire.Version {
		wire.CloseAll(fds)
		d.log.Warn("program refused: no HELLO of this protocol", "pid", cred.Pid)
		return
	}
	if hello.Flags&wire.HelloFrozen != 0 {
		<-d.recovered // what an earlier daemon left may say what is to happen to this program
	}
	p, err := d.admit(hello, int(cred.Pid))
	if err != nil {
		wire.CloseAll(fds)
		d.log.Warn("program refused", "pid", cred.Pid, "name", hello.Name, "err", err)
		return
	}
	p.SetLease(d.cfg.Lease)
	if err := p.Attach(conn, hello, fds[0]); err != nil {
		d.log.Warn("program refused", "pid", cred.Pid, "name", hello.Name, "err", err)
		return
	}
	p.Log().Info("held", "flags", hello.Flags, "gpu", gpuName(hello.GPU))
	if hello.Flags&wire.HelloReadopt != 0 && !p.Shut() {
		d.readopted(p)
	}
	if err := p.Serve(d.room); err != nil {
		p.Log().Error("conversation broken off", "err", err)
	}
	d.conversationOver(p)
}

// readopted records that a program has all its memory. If we took it for suspended, its daemon died before it was.
func (d *Daemon) readopted(p *process.Program) {
	if p.State() != api.StateSuspended || !p.TryLock() {
		return
	}
	defer p.Unlock()
	if p.State() == api.StateSuspended {
		d.env().CameBack(p)
		p.SetState(api.StateRunning)
	}
}

// untilFound remembers what find returns once it succeeds. After a failure find is called again next time:
// descriptors or memory may be free by then, or CRIU installed.
func untilFound(find func() (*criu.Tool, error)) func() (*criu.Tool, error) {
	var mu sync.Mutex
	var found *criu.Tool
	return func() (*criu.Tool, error) {
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return found, nil
		}
		t, err := find()
		if err == nil {
			found = t
		}
		return t, err
	}
}

func findCRIU(cfg Config) (*criu.Tool, error) {
	t, err := criu.Find(cfg.Log)
	if err != nil {
		return nil, err
	}
	return t, t.WorkIn(filepath.Join(cfg.Dir, "criu"))
}

func sameUser(c *unix.Ucred) bool { return c.Uid == 0 || int(c.Uid) == os.Getuid() }

func gpuName(kind uint32) string {
	if kind == wire.GPUSoft {
		return "soft"
	}
	return "native"
}

// admit finds the record that a HELLO belongs to, or makes one.
func (d *Daemon) admit(h *wire.Hello, pid int) (*process.Program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.programs[pid]
	if p != nil && h.Flags&wire.HelloResume == 0 && !process.Alive(pid, p.Identity().StartTime) {
		p = nil // another process has this PID, and we had not noticed the end of the first
	}
	if h.Flags&wire.HelloResume != 0 {
		if p == nil || p.Identity().Token != h.Token {
			return nil, fmt.Errorf("process %d comes back, but nothing is kept for it", pid)
		}
		return p, nil
	}
	if p != nil && h.Flags&wire.HelloReadopt == 0 {
		// A new image in an old process: exec.
		p = nil
	}
	if p == nil {
		token := h.Token
		if token == [16]byte{} {
			if _, err := rand.Read(token[:]); err != nil {
				return nil, err
			}
		}
		h.Name = d.uniqueName(h.Name, pid)
		id, err := process.Identify(h, pid, token)
		if err != nil {
			return nil, err
		}
		p = process.New(id, api.StateRunning, d.log)
		d.programs[pid] = p
	}
	// in other states an operation is under way, or the reason is known
	if h.Flags&wire.HelloFrozen != 0 && p.State() == api.StateRunning {
		p.SetState(api.StateRestoring)
		p.SetStuck(lostRecord)
		p.Log().Error("its gate stays shut: " + lostRecord)
	}
	return p, nil
}

// uniqueName tells two programs of one name apart.
func (d *Daemon) uniqueName(name string, pid int) string {
	for _, p := range d.programs {
		if p.Identity().Name == name && p.Identity().PID != pid {
			return name + "." + strconv.Itoa(pid)
		}
	}
	return name
}

// What ps and the log say of a program that stands behind a shut gate, and of which nothing else is known.
const (
	shutRemedy = "roll it back to an image that has all its memory (holdfast rollback), or end it"
	lostRecord = "its memory may be half overwritten: a rollback or restore was cut short, " +
		"and what was known of that is lost; " + shutRemedy
)

// conversationOver finds out what the end of a conversation means. The program may come back, because it was released
// or its daemon hung; or it has ended, and is forgotten or its memory kept. A program that lives but cannot come back
// is no longer held.
func (d *Daemon) conversationOver(p *process.Program) {
	arrived := p.Arrived()
	if p.Conversing() || !d.leaves(p, arrived) {
		return
	}
	d.clearUp(p)
}

// clearUp forgets a program that has ended, unless an operation under way on it notices first and does so.
func (d *Daemon) clearUp(p *process.Program) {
	p.MarkEnded()
	for !p.Forgotten() {
		if p.TryLock() {
			d.forget(p)
			p.Unlock()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// leaves waits until it is known whether a program without a conversation is gone or has come back, and reports
// whether it is gone.
func (d *Daemon) leaves(p *process.Program, arrived <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := process.End(ctx, p.Identity())
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-arrived:
			return false
		case err := <-ended:
			if err != nil {
				p.Log().Error("the end of a program would not be noticed", "err", err)
			}
			return err == nil
		case <-look.C:
			if p.State() == api.StateRunning && !p.MayReturn() {
				return true
			}
		}
	}
}

// forget drops a program that is gone; its memory is kept for a while if there is
// an image to restore it from, unless it came to its own end.
func (d *Daemon) forget(p *process.Program) {
	if !p.Forget() {
		return
	}
	id := p.Identity()
	d.mu.Lock()
	k, last := d.keep, true
	for _, q := range d.programs {
		if q != p && q.Identity().Token == id.Token {
			last = false // the program was restored meanwhile: kept memory belongs to the restored one
		}
	}
	d.mu.Unlock()
	if k != nil && last {
		// It may have ended while it was released: at the end of a checkpoint that was to end it, or by itself.
		if err := checkpoint.Forget(k, p); err != nil {
			p.Log().Warn("the keeper keeps memory of a program that has ended", "err", err)
		}
	}
	if last {
		d.env().Ended(p)
	}
	// Both in one step, so that the program is always found, among the living or the dead.
	d.mu.Lock()
	if d.programs[id.PID] == p {
		delete(d.programs, id.PID)
	}
	if p.Restorable() != "" && d.cfg.Keep > 0 && !p.SaidBye() && p.State() != api.StateSuspended {
		d.keepFor(p)
	} else {
		p.Drop()
	}
	d.mu.Unlock()
	p.Log().Info("gone")
	d.touch()
}

// keepFor keeps the memory of a dead program for a while. The lock is held.
func (d *Daemon) keepFor(p *process.Program) {
	token := p.Identity().Token
	p.SetState(api.StateDead)
	if old := d.kept[token]; old != nil && old.program != p {
		old.timer.Stop()
		old.program.Drop()
	}
	d.kept[token] = &keptMemory{program: p, timer: time.AfterFunc(d.cfg.Keep, func() {
		if k := d.takeKept(token); k != nil {
			k.Drop()
		}
	})}
}

// takeKept gives away the kept memory of a dead program, or nil.
func (d *Daemon) takeKept(token [16]byte) *process.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kept[token]
	if k == nil {
		return nil
	}
	k.timer.Stop()
	delete(d.kept, token)
	d.touch()
	return k.program
}

// room frees what is kept for warm restores, for a program that finds no memory: the living come first.
func (d *Daemon) room(p *process.Program, m *wire.Room) uint64 {
	freed := d.dropKept()
	if freed > 0 {
		p.Log().Info("a program has found no memory: what was kept for warm restores is free", "wanted", m.Bytes,
			"freed", freed)
	}
	return freed
}

// dropKept frees the memory of all dead programs, for a restore that needs the room, and returns the bytes.
func (d *Daemon) dropKept() (freed uint64) {
	d.mu.Lock()
	list := d.kept
	d.kept = map[[16]byte]*keptMemory{}
	d.mu.Unlock()
	for _, k := range list {
		k.timer.Stop()
		n, _ := k.program.Resident()
		freed += n
		k.program.Drop()
	}
	return freed
}

// find returns the program that a PID or a name means.
func (d *Daemon) find(target string) (*process.Program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pid, err := strconv.Atoi(target); err == nil {
		if p := d.programs[pid]; p != nil {
			return p, nil
		}
		// A wrapper: the one held program below that process.
		var found *process.Program
		for _, q := range below(pid) {
			if p := d.programs[q]; p != nil {
				if found != nil {
					return nil, &api.Error{Code: "bad_request",
						Message: fmt.Sprintf("process %d has more than one held program below it", pid),
						Remedy:  "name one of them: holdfast ps"}
				}
				found = p
			}
		}
		if found != nil {
			return found, nil
		}
		if process.Alive(pid, 0) {
			return nil, &api.Error{Code: "not_found", Message: fmt.Sprintf("process %d is not held", pid),
				Remedy: "start it with holdfast run; a program is held from its first CUDA call on"}
		}
		return nil, &api.Error{Code: "not_found", Message: fmt.Sprintf("no process %d", pid),
			Remedy: "holdfast ps lists what is held"}
	}
	for _, p := range d.programs {
		if p.Identity().Name == target {
			return p, nil
		}
	}
	return nil, &api.Error{Code: "not_found", Message: fmt.Sprintf("no program named %q is held", target),
		Remedy: "holdfast ps lists what is held"}
}

// adoption is how long a new daemon waits for the programs of the one before it to come back.
const adoption = 3 * wire.ReconnectMillis * time.Millisecond

// await is find with patience: a daemon that has just started waits for programs to come back to it, and any daemon
// waits for a conversation that has broken off to be taken up again (a program whose lease has ended looks for its
// daemon anew).
func (d *Daemon) await(ctx context.Context, target string) (*process.Program, error) {
	begun := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := d.find(target)
		switch {
		case err != nil && time.Since(d.started) > adoption:
			return nil, err
		case err == nil && (p.Conversing() || p.State() != api.StateRunning || time.Since(begun) > adoption):
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// below lists the descendants of a process.
func below(pid int) []int {
	pids, err := criu.Tree(pid)
	if err != nil {
		return nil // gone
	}
	return pids[1:]
}

// group returns the held programs of the process tree of p: they are frozen and dumped together.
func (d *Daemon) group(p *process.Program) []*process.Program {
	list := []*process.Program{p}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pid := range below(p.Identity().PID) {
		if q := d.programs[pid]; q != nil {
			list = append(list, q)
		}
	}
	return list
}

func (d *Daemon) list() []api.Process {
	d.mu.Lock()
	programs := make([]*process.Program, 0, len(d.programs)+len(d.kept))
	for _, p := range d.programs {
		programs = append(programs, p)
	}
	for _, k := range d.kept {
		programs = append(programs, k.program)
	}
	d.mu.Unlock()
	sort.Slice(programs, func(i, j int) bool { return programs[i].Identity().PID < programs[j].Identity().PID })
	out := make([]api.Process, 0, len(programs))
	for _, p := range programs {
		id := p.Identity()
		bytes, n := p.Resident()
		a := api.Process{
			PID: id.PID, Name: id.Name, GPU: gpuName(id.GPU), State: p.State(), ResidentBytes: bytes,
			MissingBytes: p.Missing(), Allocations: n, Launches: p.Counters().Launches + p.Counters().Graphs,
			Exe: id.Exe, Command: id.Command, Started: p.Since(), LastCheckpoint: p.Restorable(),
			Devices: make([]string, 0, len(id.Devices)),
		}
		for _, u := range id.Devices {
			a.Devices = append(a.Devices, cuda.UUID(u).String())
		}
		for _, c := range p.Caveats() {
			a.Caveats = append(a.Caveats, api.Caveat{Code: checkpoint.CaveatName(c.Code), Text: c.Text,
				Fatal: c.Flags&wire.CaveatBlocksFull != 0})
		}
		if why := p.Stuck(); why != "" {
			a.Caveats = append(a.Caveats, api.Caveat{Code: "half-restored", Text: why, Fatal: true})
		}
		if why := p.NotBack(); why != "" {
			a.Caveats = append(a.Caveats, api.Caveat{Code: "not-back", Text: why, Fatal: true})
		}
		if why := p.Unfollowed(); why != "" {
			a.Caveats = append(a.Caveats, api.Caveat{Code: "not-followed", Text: why})
		}
		out = append(out, a)
	}
	return out
}

func (d *Daemon) touch() {
	select {
	case d.activity <- struct{}{}:
	default:
	}
}

// waitIdle returns when ctx ends or there has been nothing to hold or serve for Config.Idle.
func (d *Daemon) waitIdle(ctx context.Context) {
	if d.cfg.Idle <= 0 {
		<-ctx.Done()
		return
	}
	busy := func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.programs)+len(d.kept)+d.requests > 0
	}
	for {
		var expired <-chan time.Time
		if !busy() {
			expired = time.After(d.cfg.Idle)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.activity:
		case <-expired:
			if !busy() { // a request may have come meanwhile
				return
			}
		}
	}
}

// keeperClient connects to the keeper, and starts it when there is none.
func (d *Daemon) keeperClient() (*keeper.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keep != nil {
		if _, err := d.keep.List(); err == nil {
			return d.keep, nil
		}
		d.keep.Close()
		d.keep = nil
	}
	socket := filepath.Join(d.cfg.Dir, keeper.Socket)
	k, err := keeper.Dial(socket)
	if err == nil {
		if _, err := k.List(); err == nil {
			d.keep = k
			return k, nil
		}
		k.Close() // it was about to end
	} else if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		return nil, err // there may be a keeper, with memory that nobody else has
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	f, err := l.File() // the keeper inherits the socket: it listens before it runs
	l.SetUnlinkOnClose(false)
	l.Close()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, err
	}
	args := []string{"keeper", "--dir", d.cfg.Dir}
	if len(d.cfg.Again) > 0 {
		args = append(append(args, "--"), d.cfg.Again...)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.ExtraFiles = []*os.File{f}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	go cmd.Wait()
	if k, err = keeper.Dial(socket); err != nil {
		return nil, err
	}
	d.keep = k
	return k, nil
}

// RunKeeper is the keeper process: it serves the listening socket that it inherited as descriptor 3. next are the
// arguments with which this executable becomes the next daemon; none: somebody else starts it.
func RunKeeper(dir string, next []string) error {
	f := os.NewFile(3, "keeper socket")
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("keeper: no inherited socket: %w", err)
	}
	f.Close()
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return errors.New("keeper: descriptor 3 is not a unix socket")
	}
	opt := keeper.Options{Path: filepath.Join(dir, keeper.Socket)}
	if len(next) > 0 {
		opt.Next = func() error { return runNext(dir, next) }
	}
	return keeper.Serve(ul, opt)
}

// runNext runs a daemon until it ends. If another daemon serves by then, it has the lock of the directory, and ours
// ends at once.
func runNext(dir string, args []string) error {
	log, err := os.OpenFile(filepath.Join(dir, LogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "holdfast"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Run()
}
