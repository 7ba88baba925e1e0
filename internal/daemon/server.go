package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/checkpoint"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
)

const maxRequest = 1 << 20

type connKey struct{}

// A caller is the process at the other end of a connection, as the kernel says.
type caller struct {
	cred *unix.Ucred
	conn *net.UnixConn
}

// callerOf is who made the request of this context, or nil.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(connKey{}).(*caller)
	return c
}

// pidfd is a descriptor of the process that connected. Where the kernel is older than Linux 6.5 it is of the process
// that has its number now.
func (c *caller) pidfd() (int, error) {
	const soPeerPidfd = 77 // SO_PEERPIDFD of asm-generic/socket.h
	rc, err := c.conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var sockErr error
	if err := rc.Control(func(s uintptr) {
		fd, sockErr = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, soPeerPidfd)
	}); err != nil {
		return -1, err
	}
	if sockErr == nil {
		return fd, nil
	}
	if c.cred.Pid <= 0 {
		return -1, errors.New("it is in a PID namespace that this daemon does not see")
	}
	return unix.PidfdOpen(int(c.cred.Pid), 0)
}

// server is the HTTP side. Only the same user and root are served.
func (d *Daemon) server(ctx context.Context) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathVersion, func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		held := len(d.programs)
		d.mu.Unlock()
		writeJSON(w, api.Version{Version: d.cfg.Version, PID: unix.Getpid(), Started: d.started, Held: held})
	})
	mux.HandleFunc("GET "+api.PathProcesses, func(w http.ResponseWriter, r *http.Request) { writeJSON(w, d.list()) })
	mux.HandleFunc("GET "+api.PathMetrics, d.metrics)
	mux.HandleFunc("POST "+api.PathShutdown, d.shutdown)
	stream(mux, d, api.PathCheckpoint, d.checkpoint)
	stream(mux, d, api.PathRestore, d.restore)
	stream(mux, d, api.PathRollback, d.rollback)
	stream(mux, d, api.PathSuspend, d.suspend)
	stream(mux, d, api.PathResume, d.resume)
	stream(mux, d, api.PathWait, d.wait)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := callerOf(r.Context()); c == nil || !sameUser(c.cred) {
				writeError(w, http.StatusForbidden,
					&api.Error{Code: "denied", Message: "this daemon belongs to another user"})
				return
			}
			mux.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			cred, err := credentials(c)
			if err != nil {
				return ctx
			}
			return context.WithValue(ctx, connKey{}, &caller{cred, c.(*net.UnixConn)})
		},
		ReadHeaderTimeout: 10 * time.Second,
	}
}

func credentials(c net.Conn) (*unix.Ucred, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	rc, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := rc.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, cerr
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(e)
}

// stream serves one long operation: progress while it runs, then its result or its error. A
// client that goes away ends the operation, which then undoes what it began.
func stream[Req, Res any](mux *http.ServeMux, d *Daemon, path string,
	op func(context.Context, Req, checkpoint.Progress) (Res, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var req Req
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&req); err != nil {
			writeError(w, http.StatusBadRequest, &api.Error{Code: "bad_request", Message: err.Error()})
			return
		}
		io.Copy(io.Discard, r.Body) // only then does the server notice that the client goes away
		d.mu.Lock()
		d.requests++
		d.mu.Unlock()
		d.touch()
		defer func() {
			d.mu.Lock()
			d.requests--
			d.mu.Unlock()
			d.touch()
		}()
		w.Header().Set("Content-Type", "application/x-ndjson")
		var mu sync.Mutex
		enc := json.NewEncoder(w)
		send := func(e api.Event) {
			mu.Lock()
			defer mu.Unlock()
			enc.Encode(e)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}
		var last time.Time
		begun := time.Now()
		res, err := op(r.Context(), req, func(phase string, done, total uint64) {
			mu.Lock()
			skip := time.Since(last) < 50*time.Millisecond && done != total
			if !skip {
				last = time.Now()
			}
			mu.Unlock()
			if !skip {
				send(api.Event{Progress: &api.Progress{Phase: phase, Done: done, Total: total}})
			}
		})
		d.report(r.Context(), req, res, time.Since(begun), err)
		if err != nil {
			send(api.Event{Error: asError(err)})
			return
		}
		raw, err := json.Marshal(res)
		if err != nil {
			send(api.Event{Error: asError(err)})
			return
		}
		send(api.Event{Result: raw})
	})
}

func asError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	var refusal *checkpoint.Refused
	if errors.As(err, &refusal) {
		return &api.Error{Code: "refused", Message: refusal.Reason, Remedy: refusal.Remedy}
	}
	return &api.Error{Code: "failed", Message: err.Error()}
}

func busy(p *process.Program) error {
	if why := p.NotBack(); why != "" {
		return &api.Error{Code: "busy", Message: fmt.Sprintf("process %d does not come back: %s",
			p.Identity().PID, why)}
	}
	return &api.Error{Code: "busy", Message: fmt.Sprintf("process %d is %s", p.Identity().PID, p.State()),
		Remedy: "try again when that is done"}
}

func absolute(dir string) error {
	if !filepath.IsAbs(dir) {
		return &api.Error{Code: "bad_request", Message: fmt.Sprintf("%q is not an absolute path", dir)}
	}
	return nil
}

func (d *Daemon) env() *checkpoint.Env {
	return &checkpoint.Env{
		GPUs: d.gpus, Keeper: d.keeperClient, CRIU: d.criu, Libraries: d.cfg.Libraries, Log: d.log,
		Tool: "holdfast " + d.cfg.Version, Dir: d.cfg.Dir, Socket: filepath.Join(d.cfg.Dir, ShimSocket),
		Patience: d.cfg.Patience,
	}
}

// shut reports whether a program, whose lock is held, stands behind a shut gate and nobody else is busy with it.
func shut(p *process.Program) bool { return p.State() == api.StateRestoring && p.Shut() }

// settle sets the state of a program after an operation. One whose gate is still shut does not run.
func (d *Daemon) settle(p *process.Program, next string) {
	if !p.Shut() {
		p.SetState(next)
		return
	}
	p.SetState(api.StateRestoring)
	if p.Stuck() == "" {
		p.SetStuck("its memory may be half overwritten; " + shutRemedy)
	}
}

// lockGroup takes the operation locks of all held programs of a process tree and sets their state. They must be
// running, or in the first state of from; if from also has StateRestoring, programs behind a shut gate are accepted
// too. done ends the operation, with its error: it puts the state back unless the operation has set another. Programs
// that are still on their way back stay locked until they are there.
func (d *Daemon) lockGroup(ctx context.Context, target, state string, from ...string) (group []*process.Program,
	done func(error), err error) {
	p, err := d.await(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	want := api.StateRunning
	if len(from) > 0 {
		want = from[0]
	}
	group = d.group(p)
	for i, q := range group {
		if !q.TryLock() {
			for _, r := range group[:i] {
				r.Unlock()
			}
			return nil, nil, busy(q)
		}
	}
	unlock := func(state, next string) {
		for _, q := range group {
			if q.State() == state {
				d.settle(q, next)
			}
			if id := q.Identity(); !process.Alive(id.PID, id.StartTime) {
				q.MarkEnded()
				d.forget(q)
			}
			q.Unlock()
		}
	}
	done = func(err error) {
		var late *checkpoint.NotBackError
		if !errors.As(err, &late) {
			unlock(state, want)
			return
		}
		for _, q := range group {
			q.SetState(api.StateRestoring)
		}
		go func() {
			<-late.Done
			for _, q := range group {
				q.Log().Info("not restoring any more", "alive", process.Alive(q.Identity().PID, q.Identity().StartTime))
			}
			unlock(api.StateRestoring, api.StateRunning)
			d.touch()
		}()
	}
	for _, q := range group {
		if s := q.State(); s != want && !(shut(q) && slices.Contains(from, api.StateRestoring)) {
			err := &api.Error{Code: "busy", Message: fmt.Sprintf("process %d is %s, not %s", q.Identity().PID, s, want)}
			if shut(q) {
				err.Remedy = q.Stuck()
			}
			for _, r := range group {
				r.Unlock()
			}
			return nil, nil, err
		}
	}
	for _, q := range group {
		q.SetState(state)
	}
	return group, done, nil
}

func (d *Daemon) checkpoint(ctx context.Context, req api.CheckpointRequest,
	progress checkpoint.Progress) (res *api.CheckpointResult, err error) {
	if err := absolute(req.Dir); err != nil {
		return nil, err
	}
	mode := snapshot.Auto
	if err := mode.UnmarshalText([]byte(cmp.Or(req.Mode, "auto"))); err != nil {
		return nil, &api.Error{Code: "bad_request", Message: err.Error()}
	}
	group, done, err := d.lockGroup(ctx, req.Target, api.StateCheckpointing)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	res, err = d.env().Checkpoint(ctx, group, checkpoint.Options{
		Dir: req.Dir, LeaveRunning: req.LeaveRunning || req.GPUOnly, GPUOnly: req.GPUOnly, Mode: mode,
		TCPClose: req.TCPClose, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond, Progress: progress,
	})
	if err != nil {
		return nil, err
	}
	for _, p := range group {
		p.SetImage(req.Dir)
		if res.Kind == image.KindFull {
			p.SetRestorable(req.Dir)
		}
	}
	return res, nil
}

func (d *Daemon) rollback(ctx context.Context, req api.RollbackRequest,
	progress checkpoint.Progress) (res *api.RollbackResult, err error) {
	if err := absolute(req.Dir); err != nil {
		return nil, err
	}
	group, done, err := d.lockGroup(ctx, req.Target, api.StateRestoring, api.StateRunning, api.StateRestoring)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	return d.env().Rollback(ctx, group, req.Dir, req.Trust, progress)
}

func (d *Daemon) shutdown(w http.ResponseWriter, r *http.Request) {
	var req api.ShutdownRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, &api.Error{Code: "bad_request", Message: err.Error()})
		return
	}
	d.mu.Lock()
	held := len(d.programs)
	d.mu.Unlock()
	if held > 0 && !req.Force {
		writeError(w, http.StatusConflict, &api.Error{Code: "busy", Message: fmt.Sprintf("%d programs are held", held),
			Remedy: "they would run on; add --force if that is meant"})
		return
	}
	writeJSON(w, struct{}{})
	d.stop()
}

// metrics writes the Prometheus text format, version 0.0.4.
func (d *Daemon) metrics(w http.ResponseWriter, r *http.Request) {
	list := d.list()
	var bytes, launches uint64
	states := map[string]int{}
	for _, p := range list {
		bytes += p.ResidentBytes
		launches += p.Launches
		states[p.State]++
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# HELP holdfast_held_bytes Device memory held.\n# TYPE holdfast_held_bytes "+
		"gauge\nholdfast_held_bytes %d\n", bytes)
	fmt.Fprintf(w, "# HELP holdfast_launches Kernel and graph launches of the programs held now.\n# TYPE "+
		"holdfast_launches gauge\nholdfast_launches %d\n", launches)
	fmt.Fprintf(w, "# HELP holdfast_programs Held programs by state.\n# TYPE holdfast_programs gauge\n")
	for _, s := range []string{api.StateRunning, api.StateCheckpointing, api.StateSuspended, api.StateRestoring,
		api.StateDead} {
		fmt.Fprintf(w, "holdfast_programs{state=%q} %d\n", s, states[s])
	}
}
