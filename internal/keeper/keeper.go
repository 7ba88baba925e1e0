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
// keeper ends when it holds nothing and nobody is connected.
//
// It must not import any other package of this module.
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"

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
	Error string   `json:"error,omitempty"`
}

// An Entry is what is kept under one key.
type Entry struct {
	Record json.RawMessage     // what the daemon wrote
	Files  map[uint64]*os.File // by allocation ID
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
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return m, nil, err
	}
	if n == 0 {
		return m, nil, io.EOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err == nil {
		for i := range msgs {
			got, perr := unix.ParseUnixRights(&msgs[i])
			if perr == nil {
				fds = append(fds, got...)
			}
		}
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

type server struct {
	mu      sync.Mutex
	entries map[string]*Entry
	clients int
	empty   chan struct{} // closed when nothing is left to do
}

// Serve runs the keeper on l until it holds nothing and its last client has gone.
func Serve(l *net.UnixListener) error {
	s := &server{entries: map[string]*Entry{}, empty: make(chan struct{})}
	go func() {
		<-s.empty
		l.Close()
	}()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			select {
			case <-s.empty:
				return nil
			default:
				return err
			}
		}
		s.mu.Lock()
		s.clients++
		s.mu.Unlock()
		go func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.clients--
			if s.clients == 0 && len(s.entries) == 0 {
				select {
				case <-s.empty:
				default:
					close(s.empty)
				}
			}
		}()
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
		switch m.Op {
		case "put":
			closeAll(fds)
			if pending != nil {
				pending.Close()
			}
			key, pending = m.Key, &Entry{Files: map[uint64]*os.File{}}
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
		if m.Op != "commit" {
			closeAll(fds)
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
	if err := send(k.c, message{Op: "put", Key: key}, nil); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	if err := send(k.c, message{Op: "fds", Key: key, IDs: []uint64{recordID}}, []int{rec}); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	var ids []uint64
	var fds []int // copies, because a file may be closed meanwhile, and its number be another's
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
