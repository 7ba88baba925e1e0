package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/gpuwire"
)

// A Config says what hardware to play. The zero value is one device of 8 GiB that
// stays for ever.
type Config struct {
	Memory        uint64        // bytes of each device; 0: 8 GiB
	Devices       int           // 0: 1
	Idle          time.Duration // without any client for so long, Serve returns; 0: never
	Workers       int           // goroutines of one launch; 0: one a CPU
	Deterministic bool          // run blocks in order
	Logger        *slog.Logger  // nil: discard
}

const (
	maxDevices   = 16
	maxProcesses = 4096
)

type procKey struct {
	pid   int32
	nonce uint64
}

type server struct {
	cfg     Config
	log     *slog.Logger
	ops     map[uint32]*operation
	started time.Time

	mu       sync.Mutex
	procs    map[procKey]*process
	conns    map[*gpuwire.Conn]struct{}
	closed   bool
	idle     *time.Timer
	physical map[inode]*physical
	orphans  map[inode]*physical // of physical: only descriptors of clients keep them
	used     []uint64            // bytes of physical memory a device
	counts   counters
	resuming map[int32]chan Status // who waits for the restore of a process

	codeMu sync.Mutex        // a leaf
	codes  map[codeKey]*code // translated modules
}

// Serve answers clients on l, a unix stream listener, until ctx ends or the server
// has been idle for Config.Idle. It closes l, which removes the socket, ends all
// connections and waits for their processes to be cleaned up.
func Serve(ctx context.Context, l net.Listener, cfg Config) error {
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("listener %s is not a unix listener", l.Addr())
	}
	ops, err := operations()
	if err != nil {
		return err
	}
	s := newServer(cfg)
	s.ops = ops
	cfg = s.cfg
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.Idle > 0 {
		s.idle = time.AfterFunc(cfg.Idle, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case len(s.conns) > 0:
			case s.collect() > 0: // the device knows best who has its memory
				s.idle.Reset(cfg.Idle)
			default:
				s.closed = true
				cancel(errIdle)
			}
		})
	}
	stop := context.AfterFunc(ctx, func() { ul.Close() })
	defer stop()

	var clients sync.WaitGroup
	for {
		c, err := ul.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, unix.EMFILE) {
				s.log.Warn("no descriptors left for a connection")
				time.Sleep(10 * time.Millisecond) // until another connection ends; nothing tells when
				continue
			}
			ul.Close()
			s.closeAll()
			clients.Wait()
			s.forgetPhysical()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		conn := gpuwire.NewConn(c)
		if !s.admit(conn) {
			c.Close()
			continue
		}
		clients.Go(func() {
			defer s.leave(conn)
			s.serveConn(conn)
		})
	}
}

// newServer fills in what the configuration leaves open. The operations are not set.
func newServer(cfg Config) *server {
	if cfg.Memory == 0 {
		cfg.Memory = 8 << 30
	}
	cfg.Memory &^= granularity - 1
	cfg.Devices = min(max(cfg.Devices, 1), maxDevices)
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &server{
		cfg: cfg, log: cfg.Logger, started: time.Now(),
		procs:    make(map[procKey]*process),
		conns:    make(map[*gpuwire.Conn]struct{}),
		physical: make(map[inode]*physical),
		orphans:  make(map[inode]*physical),
		used:     make([]uint64, cfg.Devices),
		counts:   newCounters(),
		resuming: make(map[int32]chan Status),
		codes:    make(map[codeKey]*code),
	}
}

var errIdle = errors.New("idle")

func (s *server) admit(conn *gpuwire.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[conn] = struct{}{}
	if s.idle != nil {
		s.idle.Stop()
	}
	return true
}

func (s *server) leave(conn *gpuwire.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	if len(s.conns) == 0 && s.idle != nil {
		s.idle.Reset(s.cfg.Idle)
	}
}

func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
}

// peer returns the credentials of the process at the other end, and refuses other
// users.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, fmt.Errorf("peer credentials: %w", credErr)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return nil, fmt.Errorf("process %d of user %d: %w", cred.Pid, cred.Uid, unix.EPERM)
	}
	return cred, nil
}

// process returns the live process with the newest control connection of that pid.
func (s *server) byPID(pid int32) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *process
	for k, p := range s.procs {
		if k.pid == pid && (newest == nil || p.born.After(newest.born)) {
			newest = p
		}
	}
	return newest
}
