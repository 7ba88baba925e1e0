// Package keeper is a process that does nothing but hold descriptors of device
// memory, so that the daemon's death costs nothing.
//
// While a program runs it has its memory mapped, and a new daemon gets fresh descriptors
// from it. While a program is released (between RELEASE and MAPPED), suspended on the
// GPU, or dead and kept for a warm restore, the descriptors are all there is: the
// daemon hands copies of them here first, with a record of what it is doing, and a new
// daemon takes them up again.
//
// The conversation is one packet a message over a SOCK_SEQPACKET unix socket: a
// JSON object, and descriptors beside it. An entry becomes visible only by commit;
// one that a dying daemon was still writing is dropped with its connection. The
// keeper ends when it holds nothing and nobody is connected. While it holds an entry that
// somebody has to act on (PutUrgent) and nobody is connected, it starts the next daemon.
//
// It must not import any other package of this module.
package keeper

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is the name of the keeper's socket in the runtime directory.
const Socket = "keeper.sock"

const (
	maxPacket  = 64 << 10
	maxFDs     = 64      // a packet
	maxEntries = 1 << 12 // of the whole keeper
	maxHeld    = 1 << 18 // descriptors of one entry
)

type message struct {
	Op    string   `json:"op,omitempty"` // put, fds, commit, get, list, del
	Key   string   `json:"key,omitempty"`
	IDs   []uint64 `json:"ids,omitempty"` // of the descriptors beside this packet
	Keys  []string `json:"keys,omitempty"`
	Count int      `json:"count,omitempty"` // descriptors that follow
	// Urgent, of a put: if the writer dies, the keeper must start a daemon for this entry.
	Urgent bool   `json:"urgent,omitempty"`
	Error  string `json:"error,omitempty"`
}

// An Entry is what is kept under one key.
type Entry struct {
	Record json.RawMessage     // what the daemon wrote
	Files  map[uint64]*os.File // by allocation ID
	urgent bool
}

// recordID is the ID under which the record travels, itself a memfd: a
// program can have more allocations than a packet has room for.
const (
	recordID  = 0
	maxRecord = 256 << 20
)

// Close closes the descriptors of e.
func (e *Entry) Close() {
	for _, f := range e.Files {
		f.Close()
	}
}

func send(c *net.UnixConn, m message, fds []int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		return fmt.Errorf("keeper: a record of %d bytes, limit %d", len(b), maxPacket)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, oob, nil)
	return err
}

func receive(c *net.UnixConn) (m message, fds []int, err error) {
	buf := make([]byte, maxPacket+1)
	oob := make([]byte, unix.CmsgSpace(4*(maxFDs+1)))
	n, oobn, flags, _, readErr := c.ReadMsgUnix(buf, oob)
	// Before anything else: a packet that is refused, or an empty one, which looks like the end, brings descriptors all
	// the same.
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err == nil {
		for i := range msgs {
			got, perr := unix.ParseUnixRights(&msgs[i])
			if perr == nil {
				fds = append(fds, got...)
			}
		}
	}
	if readErr == nil && n == 0 {
		readErr = io.EOF
	}
	if readErr != nil {
		closeAll(fds)
		return m, nil, readErr
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("keeper: packet cut off")
	}
	if err == nil {
		err = json.Unmarshal(buf[:n], &m)
	}
	if err == nil && len(m.IDs) != len(fds) {
		err = fmt.Errorf("keeper: %d descriptors for %d ids", len(fds), len(m.IDs))
	}
	if err != nil {
		closeAll(fds)
		return m, nil, err
	}
	return m, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// A Listener is what the keeper listens on: a *net.UnixListener, outside of tests.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Options of a keeper.
type Options struct {
	Path string // of the socket, which is removed at the end; "": left alone
	// Next starts a daemon and returns when that has ended. It is called when nobody is connected and an urgent entry
	// is held; nil: the keeper starts none.
	Next func() error
	// Pause is how long a keeper waits at first before it calls Next again; 0: a second.
	Pause time.Duration
}

type server struct {
	opt     Options
	l       Listener
	name    int // the socket's file, by a descriptor: nobody else gets its inode meanwhile; -1: not known
	mu      sync.Mutex
	entries map[string]*Entry
	clients int
	ended   bool // nothing is left to do
	calling bool // Next is being called
}

// Serve runs the keeper on l until it holds nothing and its last client has gone.
func Serve(l Listener, opt Options) error {
	s := &server{opt: opt, l: l, name: -1, entries: map[string]*Entry{}}
	if fd, err := unix.Open(opt.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		s.name = fd
		defer unix.Close(fd)
	}
	wait := firstWait
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if s.over(err) {
				return nil
			}
			if !s.stays(err) {
				return err
			}
			time.Sleep(wait) // descriptors may be free by then
			wait = min(2*wait, lastWait)
			continue
		}
		wait = firstWait
		s.mu.Lock()
		s.clients++
		s.mu.Unlock()
		go func() {
			s.serve(c)
			c.Close()
			s.gone()
		}()
	}
}

// How long an accept that failed waits before the next one.
const (
	firstWait = time.Millisecond
	lastWait  = 500 * time.Millisecond
)

// Transient says of an error of accept that it may go away: no descriptor or memory is free just now, or the caller
// has left.
func Transient(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED, unix.EINTR,
		unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// over reports whether accept failed because the keeper has ended.
func (s *server) over(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && errors.Is(err, net.ErrClosed)
}

// stays reports whether the keeper goes on although accept fails. What it holds would be lost with it, whatever the
// error.
func (s *server) stays(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Transient(err) || len(s.entries)+s.clients > 0
}

// gone takes note that a client has left.
func (s *server) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
	switch {
	case s.clients > 0 || s.ended:
	case len(s.entries) == 0:
		s.end()
	case s.urgent() && s.opt.Next != nil && !s.calling:
		s.calling = true
		go s.callNext()
	}
}

// end stops listening. The name goes first, and only if it is still ours: as long as we listen nobody
// finds us gone and puts a socket of his own in its place.
func (s *server) end() {
	s.ended = true
	var own, now unix.Stat_t
	if s.name >= 0 && unix.Fstat(s.name, &own) == nil && unix.Lstat(s.opt.Path, &now) == nil &&
		now.Dev == own.Dev && now.Ino == own.Ino {
		os.Remove(s.opt.Path)
	}
	s.l.Close()
}

func (s *server) urgent() bool {
	for _, e := range s.entries {
		if e.urgent {
			return true
		}
	}
	return false
}

// callNext has daemons started until one is connected or nothing is urgent any more.
func (s *server) callNext() {
	const longest, settled = time.Minute, time.Minute
	pause := cmp.Or(s.opt.Pause, time.Second)
	for wait := pause; ; wait = min(2*wait, longest) {
		begun := time.Now()
		// It returns when that daemon has ended. If it failed, its log says why, and another one may succeed.
		_ = s.opt.Next()
		if time.Since(begun) > settled {
			wait = pause
		}
		time.Sleep(wait)
		s.mu.Lock()
		if s.ended || s.clients > 0 || !s.urgent() {
			s.calling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

func (s *server) serve(c *net.UnixConn) {
	if !sameUser(c) {
		send(c, message{Error: "the keeper belongs to another user"}, nil)
		return
	}
	var key string
	var pending *Entry
	defer func() {
		if pending != nil {
			pending.Close()
		}
	}()
	for {
		m, fds, err := receive(c)
		if err != nil {
			return
		}
		var reply message
		if m.Op != "fds" {
			closeAll(fds) // no other operation carries descriptors
		}
		switch m.Op {
		case "put":
			if pending != nil {
				pending.Close()
			}
			key, pending = m.Key, &Entry{Files: map[uint64]*os.File{}, urgent: m.Urgent}
			continue
		case "fds":
			if pending == nil || len(pending.Files)+len(fds) > maxHeld {
				closeAll(fds)
				return
			}
			for i, fd := range fds {
				if old := pending.Files[m.IDs[i]]; old != nil {
					old.Close()
				}
				pending.Files[m.IDs[i]] = os.NewFile(uintptr(fd), "device memory")
			}
			continue
		case "commit":
			reply = s.commit(key, pending)
			if reply.Error == "" {
				pending = nil
			}
		case "get":
			if err := s.get(c, m.Key); err != nil {
				return
			}
			continue
		case "list":
			s.mu.Lock()
			for k := range s.entries {
				reply.Keys = append(reply.Keys, k)
			}
			s.mu.Unlock()
			sort.Strings(reply.Keys)
		case "del":
			s.mu.Lock()
			if e := s.entries[m.Key]; e != nil {
				e.Close()
				delete(s.entries, m.Key)
			}
			s.mu.Unlock()
		default:
			reply.Error = fmt.Sprintf("no operation %q", m.Op)
		}
		if err := send(c, reply, nil); err != nil {
			return
		}
	}
}

func (s *server) commit(key string, e *Entry) message {
	if e == nil {
		return message{Error: "commit of nothing"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.entries[key]
	if old == nil && len(s.entries) >= maxEntries {
		return message{Error: fmt.Sprintf("more than %d entries", maxEntries)}
	}
	if old != nil {
		old.Close()
	}
	s.entries[key] = e
	return message{}
}

func (s *server) get(c *net.UnixConn, key string) error {
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		s.mu.Unlock()
		return send(c, message{Error: "nothing is kept under " + key}, nil)
	}
	// Copies, so that the entry may be deleted while we send.
	ids := make([]uint64, 0, len(e.Files))
	fds := make([]int, 0, len(e.Files))
	for id, f := range e.Files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			s.mu.Unlock()
			closeAll(fds)
			return send(c, message{Error: err.Error()}, nil)
		}
		ids, fds = append(ids, id), append(fds, fd)
	}
	s.mu.Unlock()
	defer closeAll(fds)
	if err := send(c, message{Count: len(fds)}, nil); err != nil {
		return err
	}
	for i := 0; i < len(fds); i += maxFDs {
		j := min(i+maxFDs, len(fds))
		if err := send(c, message{IDs: ids[i:j]}, fds[i:j]); err != nil {
			return err
		}
	}
	return nil
}

func sameUser(c *net.UnixConn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	rc.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Getuid())
	})
	return ok
}

// A Client talks to a keeper. Its methods may be called from several goroutines.
type Client struct {
	mu sync.Mutex
	c  *net.UnixConn
}

// Dial connects to the keeper at socket.
func Dial(socket string) (*Client, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	return &Client{c: c}, nil
}

// Close ends the conversation. What was put stays.
func (k *Client) Close() error { return k.c.Close() }

func (k *Client) ask(m message) (message, error) {
	if err := send(k.c, m, nil); err != nil {
		return message{}, fmt.Errorf("keeper: %w", err)
	}
	r, fds, err := receive(k.c)
	closeAll(fds)
	if err != nil {
		return message{}, fmt.Errorf("keeper: %w", err)
	}
	if r.Error != "" {
		return message{}, fmt.Errorf("keeper: %s", r.Error)
	}
	return r, nil
}

// Put keeps copies of files, by allocation ID, and a record under key, in the
// place of what was there. When it returns, they are safe from the caller's death.
func (k *Client) Put(key string, record any, files map[uint64]*os.File) error {
	return k.put(message{Op: "put", Key: key}, record, files)
}

// PutUrgent is Put of something that cannot wait: should the caller die, the keeper starts a daemon.
func (k *Client) PutUrgent(key string, record any, files map[uint64]*os.File) error {
	return k.put(message{Op: "put", Key: key, Urgent: true}, record, files)
}

func (k *Client) put(begin message, record any, files map[uint64]*os.File) (err error) {
	key := begin.Key
	raw, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	rec, err := unix.MemfdCreate("holdfast-record", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("keeper: record: %w", err)
	}
	recFile := os.NewFile(uintptr(rec), "record")
	defer recFile.Close()
	if _, err := recFile.WriteAt(raw, 0); err != nil {
		return fmt.Errorf("keeper: record: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := send(k.c, begin, nil); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer func() {
		if err != nil { // else the keeper holds what it has of this until something else is put
			send(k.c, begin, nil)
		}
	}()
	if err := send(k.c, message{Op: "fds", Key: key, IDs: []uint64{recordID}}, []int{rec}); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	var ids []uint64
	var fds []int // copies, because a file may be closed meanwhile and its descriptor number reused
	defer func() { closeAll(fds) }()
	flush := func() error {
		if len(ids) == 0 {
			return nil
		}
		err := send(k.c, message{Op: "fds", Key: key, IDs: ids}, fds)
		closeAll(fds)
		ids, fds = ids[:0], fds[:0]
		return err
	}
	for id, f := range files {
		fd, err := dup(f)
		if err != nil {
			return fmt.Errorf("keeper: descriptor of allocation %d: %w", id, err)
		}
		ids, fds = append(ids, id), append(fds, fd)
		if len(ids) == maxFDs {
			if err := flush(); err != nil {
				return fmt.Errorf("keeper: %w", err)
			}
		}
	}
	if err := flush(); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	_, err = k.ask(message{Op: "commit", Key: key})
	return err
}

// dup returns a copy of f's descriptor. It fails if f is closed before, and holds a close that comes meanwhile.
func dup(f *os.File) (fd int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := rc.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(cerr, err)
}

// Get returns copies of what is kept under key; the caller closes them.
func (k *Client) Get(key string) (*Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.ask(message{Op: "get", Key: key})
	if err != nil {
		return nil, err
	}
	e := &Entry{Files: map[uint64]*os.File{}}
	for len(e.Files) < r.Count {
		m, fds, err := receive(k.c)
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("keeper: %w", err)
		}
		for i, fd := range fds {
			e.Files[m.IDs[i]] = os.NewFile(uintptr(fd), "device memory")
		}
	}
	rec := e.Files[recordID]
	delete(e.Files, recordID)
	if rec == nil {
		e.Close()
		return nil, fmt.Errorf("keeper: %s has no record", key)
	}
	defer rec.Close()
	e.Record, err = io.ReadAll(io.NewSectionReader(rec, 0, maxRecord))
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("keeper: record of %s: %w", key, err)
	}
	return e, nil
}

// Delete lets go of what is kept under key.
func (k *Client) Delete(key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.ask(message{Op: "del", Key: key})
	return err
}

// List returns the keys.
func (k *Client) List() ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.ask(message{Op: "list"})
	return r.Keys, err
}
