package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/checkpoint"
	"holdfast/internal/daemon/api"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
)

// exit is how a restored program, a child of ours, has ended.
type exit struct {
	done   chan struct{}
	status int // valid once done is closed
}

func (d *Daemon) restore(ctx context.Context, req api.RestoreRequest,
	progress checkpoint.Progress) (*api.RestoreResult, error) {
	if err := absolute(req.Dir); err != nil {
		return nil, err
	}
	stdio, log, err := d.streams(callerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range stdio {
			if f != nil {
				f.Close()
			}
		}
	}()
	opt := checkpoint.RestoreOptions{
		Dir: req.Dir, Name: req.Name, Trust: req.Trust, OnDemand: req.OnDemand, Stdio: stdio, Progress: progress,
		Warm: d.takeKept, Room: func() { d.dropKept() }, Unregister: d.unregister,
	}
	// The programs are locked from Register on, so no other operation comes in between.
	var locked []*process.Program
	opt.Register = func(p *process.Program) error {
		if !p.TryLock() {
			return busy(p)
		}
		locked = append(locked, p)
		return d.registerRestored(ctx, p)
	}
	unlock := func() {
		for _, p := range locked {
			if id := p.Identity(); !process.Alive(id.PID, id.StartTime) {
				p.MarkEnded()
				d.forget(p)
			}
			p.Unlock()
		}
	}
	res, err := d.env().Restore(ctx, opt)
	if err != nil {
		for _, p := range locked {
			p.Unlock()
		}
		return nil, err
	}
	out := res.RestoreResult // before Finish, which goes on counting
	out.Log = log
	d.attend(res.PID)
	if res.Finish != nil {
		d.fills.Go(func() { d.finishRestore(res, unlock) })
	} else {
		for _, p := range res.Programs {
			p.SetState(api.StateRunning)
		}
		unlock()
	}
	return &out, nil
}

// finishRestore waits for the end of a restore on demand, for which the client does not wait.
func (d *Daemon) finishRestore(res *checkpoint.RestoreResult, unlock func()) {
	log := d.log.With("pid", res.PID)
	if err := res.Finish(); err != nil {
		log.Error("restore on demand failed", "err", err)
	} else {
		for _, p := range res.Programs {
			p.SetState(api.StateRunning)
		}
		log.Info("restored on demand", "bytes", res.BytesFilled, "missing_at_start", res.Missing, "waits", res.Waits,
			"waited", res.Waited, "guesses", res.Guesses, "guessed", strings.Join(res.Guessed, ","), "ordered",
			res.Ordered, "known", res.Known)
	}
	unlock()
	d.touch()
}

// streams are what a restored program gets for the standard streams that it cannot have back: those of the client, or
// for a detached one a log file. The client is the process at the other end of the connection, whatever process the
// request names: a client may only give away its own descriptors.
func (d *Daemon) streams(client *caller, req api.RestoreRequest) (files [3]*os.File, log string, err error) {
	if req.Detach || req.ClientPID <= 0 {
		return d.logStreams(req)
	}
	if client == nil {
		return files, "", errors.New("a restore of nobody's")
	}
	pid := client.cred.Pid
	pidfd, err := client.pidfd()
	if err != nil {
		return files, "", fmt.Errorf("the client, process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	for i := range files {
		fd, err := unix.PidfdGetfd(pidfd, i, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed there
		}
		if err != nil {
			for _, f := range files[:i] {
				if f != nil {
					f.Close()
				}
			}
			return files, "", fmt.Errorf("descriptor %d of the client, process %d: %w", i, pid, err)
		}
		files[i] = os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d of process %d", i, pid))
	}
	return files, "", nil
}

// logStreams are those of a detached program.
func (d *Daemon) logStreams(req api.RestoreRequest) (files [3]*os.File, log string, err error) {
	name := "restored-" + filepath.Base(req.Dir) + ".log"
	f, err := d.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return files, "", err
	}
	g, err := d.dir.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		f.Close()
		return files, "", err
	}
	return [3]*os.File{nil, f, g}, d.dir.Join(name), nil
}

func (d *Daemon) register(p *process.Program) error {
	id := p.Identity()
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.programs[id.PID]; old != nil {
		return fmt.Errorf("process %d is held already", id.PID)
	}
	d.programs[id.PID] = p
	return nil
}

// registerRestored is register for a program that comes back. Who had its number may have ended a moment ago, or the
// end of a restore of it may be under way, whose command was killed: such a one is waited for. Only one that lives is
// in the way.
func (d *Daemon) registerRestored(ctx context.Context, p *process.Program) error {
	pid := p.Identity().PID
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.cfg.Patience, checkpoint.DefaultPatience))
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		err := d.register(p)
		if err == nil {
			return nil
		}
		d.mu.Lock()
		old := d.programs[pid]
		d.mu.Unlock()
		if old != nil && process.Alive(pid, old.Identity().StartTime) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-look.C:
		}
	}
}

func (d *Daemon) unregister(p *process.Program) {
	p.MarkEnded()
	p.Forget() // its memory is not kept
	d.mu.Lock()
	defer d.mu.Unlock()
	if pid := p.Identity().PID; d.programs[pid] == p {
		delete(d.programs, pid)
	}
}

// attend waits for the end of a restored root, which is our child.
func (d *Daemon) attend(pid int) {
	e := &exit{done: make(chan struct{})}
	d.mu.Lock()
	d.exits[pid] = e
	d.mu.Unlock()
	go func() {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, 0, nil)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Wait4(pid, &ws, 0, nil)
		}
		switch {
		case err != nil:
			d.log.Error("a restored program's end is unknown", "pid", pid, "err", err)
			e.status = 255
		case ws.Signaled():
			e.status = 128 + int(ws.Signal())
		default:
			e.status = ws.ExitStatus()
		}
		d.log.Info("restored program ended", "pid", pid, "status", e.status)
		close(e.done)
		d.touch()
	}()
}

func (d *Daemon) wait(ctx context.Context, req api.WaitRequest, _ checkpoint.Progress) (*api.WaitResult, error) {
	d.mu.Lock()
	e := d.exits[req.PID]
	d.mu.Unlock()
	if e == nil {
		return nil, &api.Error{Code: "not_found",
			Message: fmt.Sprintf("process %d was not restored by this daemon", req.PID)}
	}
	select {
	case <-e.done:
		return &api.WaitResult{PID: req.PID, Status: e.status}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *Daemon) suspend(ctx context.Context, req api.SuspendRequest,
	progress checkpoint.Progress) (res *api.SuspendResult, err error) {
	to := req.To
	if to == "" {
		to = checkpoint.ToHost
	}
	if !slices.Contains([]string{checkpoint.ToHost, checkpoint.ToDisk, checkpoint.ToGPU}, to) {
		return nil, &api.Error{Code: "bad_request", Message: fmt.Sprintf("suspend to %q: host, disk or gpu", req.To)}
	}
	if to == checkpoint.ToDisk {
		if err := absolute(req.Dir); err != nil {
			return nil, err
		}
	}
	group, done, err := d.lockGroup(ctx, req.Target, api.StateCheckpointing)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	dir := req.Dir
	if to == checkpoint.ToHost {
		if dir, err = checkpoint.HostDir(group[0]); err != nil {
			return nil, err
		}
	}
	res, err = d.env().Suspend(ctx, group, to, dir, progress)
	for _, p := range group {
		if p.State() == api.StateSuspended { // also after some errors
			go d.watchEnd(p)
		}
	}
	return res, err
}

func (d *Daemon) resume(ctx context.Context, req api.ResumeRequest,
	progress checkpoint.Progress) (res *api.ResumeResult, err error) {
	group, done, err := d.lockGroup(ctx, req.Target, api.StateRestoring, api.StateSuspended)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	res, err = d.env().Resume(ctx, group, progress)
	if err != nil {
		return nil, err
	}
	for _, p := range group {
		p.SetState(api.StateRunning)
	}
	return res, nil
}

// watchEnd cleans up after a program that ends while it has no conversation: it is suspended, or on its way back, or
// its conversation broke off. Then no end of a conversation tells the daemon.
func (d *Daemon) watchEnd(p *process.Program) {
	for d.has(p) {
		err := process.AwaitEnd(context.Background(), p.Identity())
		if err == nil {
			break
		}
		p.Log().Warn("the end of a program cannot be awaited just now", "err", err)
		time.Sleep(time.Second)
	}
	d.clearUp(p)
}

// has reports whether a program is held still.
func (d *Daemon) has(p *process.Program) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.programs[p.Identity().PID] == p
}

// recoverKept takes up what an earlier daemon left: with the keeper, and of suspended programs in files.
func (d *Daemon) recoverKept() {
	reg := checkpoint.Registry{
		Register: func(p *process.Program) error {
			err := d.register(p)
			if err == nil {
				go d.watchEnd(p)
			}
			return err
		},
		Lookup: func(pid int) *process.Program {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.programs[pid]
		},
		Gone: func(p *process.Program) {
			p.MarkEnded()
			d.forget(p)
		},
	}
	var kept []string
	// without a keeper's socket nothing was under way
	if _, err := os.Stat(filepath.Join(d.cfg.Dir, keeper.Socket)); err == nil {
		k, err := d.keeperClient()
		if err == nil {
			kept, err = k.List()
		}
		if err == nil {
			err = d.env().Recover(k, reg)
		}
		if err != nil {
			d.log.Error("the keeper cannot be asked", "err", err)
			d.env().RecoverRecords(reg)
			return // nothing is known to be lost
		}
	}
	d.env().RecoverRecords(reg)
	d.env().RecoverLost(kept, reg)
}
