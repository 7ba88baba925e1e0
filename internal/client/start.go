package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/owned"
	"holdfast/internal/procstat"
)

// startLimit is how long a server may take until it answers. The daemon opens no GPU
// before it listens, so this is for slow machines only.
const startLimit = 30 * time.Second

// A Server is a process that serves the programs of a runtime directory: the daemon or
// the software GPU. Start brings it up.
type Server struct {
	Name   string   // "daemon", "softgpu": the log is NAME.log, the lock NAME.lock
	Args   []string // of this same executable
	Socket string   // name of its socket in the runtime directory
}

// The two servers. Both are verbs of the holdfast executable.
var (
	Daemon  = Server{Name: "daemon", Args: []string{"daemon"}, Socket: DaemonSocket}
	SoftGPU = Server{Name: "softgpu", Args: []string{"softgpu"}, Socket: SoftSocket}
)

// PID returns the process that listens on the socket of s, or an error that wraps
// [ErrNoDaemon].
func (s Server) PID(ctx context.Context, dir string) (int, error) {
	conn, err := dialUnix(ctx, filepath.Join(dir, s.Socket))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	cred, err := peer(conn)
	if err != nil {
		return 0, err
	}
	if ending(int(cred.Pid)) {
		return 0, fmt.Errorf("%w: process %d ends just now", ErrNoDaemon, cred.Pid)
	}
	return int(cred.Pid), nil
}

// ending says whether a process has been killed. Its sockets take connections until the
// last of its threads is gone, a little later than the first.
func ending(pid int) bool {
	stat, err := procstat.Read(pid)
	return errors.Is(err, fs.ErrNotExist) || err == nil && stat.Ended()
}

// Start makes sure that s runs for the runtime directory dir and returns its process
// ID. Any number of processes may call it at once: a lock lets one of them start the
// server, in a session of its own and with its output in a log file; the
// others find it running.
func (s Server) Start(ctx context.Context, dir string) (int, error) {
	if pid, err := s.PID(ctx, dir); err == nil {
		return pid, nil
	} else if !errors.Is(err, ErrNoDaemon) {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	d, err := OpenRuntimeDir(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	lock, err := d.OpenFile(s.Name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer lock.Close() // releases it
	if err := flock(ctx, lock); err != nil {
		return 0, fmt.Errorf("start %s: %s: %w", s.Name, lock.Name(), err)
	}
	if pid, err := s.PID(ctx, dir); err == nil {
		return pid, nil
	}
	pid, err := s.spawn(ctx, d, dir)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", s.Name, err)
	}
	return pid, nil
}

// ownLimit is how long Own waits: less than whoever starts a server waits for that.
const ownLimit = startLimit / 2

// Own takes lock, the lock of the runtime directory dir that says who is s, for this process. If its owner cannot be
// reached, it is about to end (or was killed and has threads left), and Own waits for that. If its owner serves, Own
// returns an error.
func (s Server) Own(ctx context.Context, lock *os.File, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, ownLimit)
	defer cancel()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if pid, err := s.PID(ctx, dir); err == nil {
			return fmt.Errorf("process %d: %w", pid, unix.EWOULDBLOCK)
		}
		select {
		case <-ctx.Done():
			return unix.EWOULDBLOCK
		case <-time.After(5 * time.Millisecond): // nothing tells when it is gone
		}
	}
}

func (s Server) spawn(ctx context.Context, d *owned.Dir, dir string) (int, error) {
	log, err := d.OpenFile(s.Name+".log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	logName := log.Name()
	logStart, err := log.Seek(0, 2)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self(), append(s.Args, "--dir", dir)...)
	cmd.Dir = "/"
	cmd.Env = serverEnv(os.Environ(), dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	for {
		pid, err := s.PID(ctx, dir)
		if err == nil {
			return pid, nil
		}
		if !errors.Is(err, ErrNoDaemon) {
			return 0, err
		}
		select {
		case err := <-ended:
			// A server ends at once if another one serves: the keeper may have started one just now.
			if pid, err := s.PID(ctx, dir); err == nil {
				return pid, nil
			}
			return 0, fmt.Errorf("it ended at once (%v); %s says:\n%s", err, logName, tail(logName, logStart))
		case <-limit.C:
			cmd.Process.Kill()
			return 0, fmt.Errorf("it did not listen within %v; see %s", startLimit, logName)
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// self is this executable: by its name, which ps shows, unless another file has that
// name by now.
func self() string {
	const proc = "/proc/self/exe"
	name, err := os.Executable()
	if err != nil {
		return proc
	}
	a, errA := os.Stat(name)
	b, errB := os.Stat(proc)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return proc
	}
	return name
}

// serverEnv is the environment of a server: that of the first program that needed it,
// less what belongs to a program.
func serverEnv(env []string, dir string) []string {
	out := []string{"HOLDFAST_DIR=" + dir}
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case "HOLDFAST_DIR", "HOLDFAST_NAME", "HOLDFAST_GPU", "LD_PRELOAD", "LD_LIBRARY_PATH",
			"CUDA_VISIBLE_DEVICES": // the daemon must see every device that any program uses
			continue
		}
		out = append(out, kv)
	}
	return out
}

// OpenRuntimeDir opens the runtime directory and makes it, for this user only. It refuses one that others could reach
// into, or put another in the place of. Files in it are opened through what it returns, never by their path.
func OpenRuntimeDir(dir string) (*owned.Dir, error) {
	d, err := owned.Private(dir)
	if err != nil {
		return nil, fmt.Errorf("runtime directory: %w: set HOLDFAST_DIR to a directory of your own", err)
	}
	return d, nil
}

func flock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// tail returns the end of what was written to a log since offset.
func tail(name string, offset int64) string {
	f, err := os.Open(name)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const limit = 2048
	if end, err := f.Seek(0, 2); err == nil && end-offset > limit {
		offset = end - limit
	}
	buf := make([]byte, limit)
	n, _ := f.ReadAt(buf, offset)
	return strings.TrimSpace(string(buf[:n]))
}
