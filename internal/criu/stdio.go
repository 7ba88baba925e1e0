package criu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// RecordFile is the file that Dump writes beside CRIU's, with what Restore must know.
const RecordFile = "holdfast.json"

// record is the content of RecordFile.
type record struct {
	Version  int            `json:"version"`
	CRIU     string         `json:"criu"`
	Root     int            `json:"root"`
	ShellJob bool           `json:"shell_job,omitempty"` // the root is not a session leader
	TCPClose bool           `json:"tcp_close,omitempty"`
	Stdio    []slotKey      `json:"stdio,omitempty"`
	Writable []writableFile `json:"writable,omitempty"`
	Caveats  []string       `json:"caveats,omitempty"`
}

// slotKey says which of the three standard files CRIU must be given under which key.
type slotKey struct {
	Slot int    `json:"slot"`
	Key  string `json:"key"`
}

// writableFile is a file that was open for writing: its size may differ when it is restored.
type writableFile struct {
	Path   string `json:"path"`
	Size   uint64 `json:"size"`
	Update bool   `json:"update"` // open for reading too: then it must not have shrunk
}

const recordVersion = 1

// File types and field numbers of images/fdinfo.proto, pipe.proto, tty.proto, sk-unix.proto, regfile.proto (CRIU
// 4.1.1).
const (
	typeReg, typePipe, typeUnix, typeTTY = 1, 2, 5, 11

	fileType, fileID                        = 1, 2
	fileReg, fileUnix, filePipe, fileTTYSub = 3, 16, 18, 19

	fdID, fdFlags, fdType, fdNum, fdSELinux = 1, 2, 3, 4, 5

	pipeInode, pipeFlags  = 2, 3
	ttyFlags, ttyRegFile  = 3, 6
	unixInode, unixUflags = 2, 6
	unixPeer              = 8
	regFlags, regName     = 2, 6
	regSize               = 8

	uskExtern = 1 // USK_EXTERN, criu/sk-unix.c
)

// slotInode is the socket inode number that slot 0 is known by in the images; 1 and 2 follow. CRIU only ever compares
// it.
const slotInode = 0xf01d_f000

// adopt rewrites a finished dump. First, every descriptor of a pipe, terminal or socket that leads outside becomes a
// descriptor of one of three made-up unclaimed unix sockets: of all file types, an inherited socket is the one that
// CRIU takes over as it is, whatever it really is (open_unix_sk, criu/sk-unix.c), so that a program that was started in
// a terminal can go on with a log file or a pipe. Second, the recorded size of files that were open for writing is
// dropped: CRIU would refuse a log that has grown since (validate_file, criu/files-reg.c).
func adopt(dir string, x *external) (record, error) {
	path := filepath.Join(dir, "files.img")
	files, err := readImage(path, magicCommon, magicFiles)
	if err != nil {
		return record{}, err
	}
	a := adoption{x: x, out: map[uint32]outside{}, gonePeers: map[uint32]bool{}}
	for _, raw := range files {
		if err := a.file(raw); err != nil {
			return record{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	a.dropPeers()
	if len(a.out) > 0 {
		if err := a.redirect(dir); err != nil {
			return record{}, err
		}
		a.changed = true
	}
	if a.changed {
		if err := writeImage(path, magicCommon, magicFiles, a.keep); err != nil {
			return record{}, err
		}
	}
	a.rec.Caveats = x.caveats
	return a.rec, nil
}

// An adoption is what adopt has made of a dump so far.
type adoption struct {
	x         *external
	rec       record
	keep      [][]byte           // the files that stay, and the made-up sockets
	changed   bool               // keep is not what was read
	out       map[uint32]outside // the files that lead outside
	gonePeers map[uint32]bool    // inodes of the outside ends of sockets
	maxID     uint32             // of a file
}

// outside is a file that leads outside of the process tree.
type outside struct{ flags, slot int } // slot < 0: by descriptor number

// file takes one entry of files.img.
func (a *adoption) file(raw []byte) error {
	m, err := parseMessage(raw)
	if err != nil {
		return err
	}
	id := uint32(m.uint(fileID))
	a.maxID = max(a.maxID, id)
	switch m.uint(fileType) {
	case typePipe:
		p, err := m.sub(filePipe)
		if err != nil {
			return fmt.Errorf("pipe: %w", err)
		}
		if slot, ok := a.x.pipes[uint32(p.uint(pipeInode))]; ok {
			a.out[id] = outside{int(p.uint(pipeFlags)), slot}
			return nil
		}
	case typeTTY:
		t, err := m.sub(fileTTYSub)
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		if !t.has(ttyRegFile) { // dumped as external
			a.out[id] = outside{int(t.uint(ttyFlags)), -1}
			return nil
		}
	case typeUnix:
		s, err := m.sub(fileUnix)
		if err != nil {
			return fmt.Errorf("unix socket: %w", err)
		}
		if _, ok := a.x.sockets[uint32(s.uint(unixInode))]; ok {
			a.out[id] = outside{syscall.O_RDWR, -1}
			a.gonePeers[uint32(s.uint(unixPeer))] = true
			return nil
		}
	case typeReg:
		r, err := m.sub(fileReg)
		if err != nil {
			return fmt.Errorf("file: %w", err)
		}
		if acc := int(r.uint(regFlags)) & syscall.O_ACCMODE; acc != syscall.O_RDONLY && r.has(regSize) {
			a.rec.Writable = append(a.rec.Writable, writableFile{
				Path: string(r.bytes(regName)), Size: r.uint(regSize), Update: acc == syscall.O_RDWR})
			raw, a.changed = m.with(fileReg, r.without(regSize)), true
		}
	}
	a.keep = append(a.keep, raw)
	return nil
}

// dropPeers leaves out the outside ends of sockets, for which CRIU adds entries: without the inside end nobody refers
// to them.
func (a *adoption) dropPeers() {
	a.keep = slices.DeleteFunc(a.keep, func(raw []byte) bool {
		m, _ := parseMessage(raw)
		s, err := m.sub(fileUnix)
		return err == nil && m.uint(fileType) == typeUnix && s.uint(unixUflags)&uskExtern != 0 &&
			a.gonePeers[uint32(s.uint(unixInode))]
	})
}

// redirect turns the descriptors of files that lead outside into descriptors of the made-up sockets, and adds those
// that are used.
func (a *adoption) redirect(dir string) error {
	var used [3]bool
	infos, err := filepath.Glob(filepath.Join(dir, "fdinfo-*.img"))
	if err != nil {
		return err
	}
	for _, info := range infos {
		if err := a.redirectTable(info, &used); err != nil {
			return err
		}
	}
	for slot, u := range used {
		if u {
			a.keep = append(a.keep, slotEntry(a.maxID+1+uint32(slot), slotInode+uint32(slot)))
			a.rec.Stdio = append(a.rec.Stdio, slotKey{slot, "socket:[" + strconv.Itoa(slotInode+slot) + "]"})
		}
	}
	return nil
}

// redirectTable does it for one table of descriptors, and marks the slots that it used.
func (a *adoption) redirectTable(info string, used *[3]bool) error {
	entries, err := readImage(info, magicCommon, magicFdinfo)
	if err != nil {
		return err
	}
	hit := false
	for i, raw := range entries {
		m, err := parseMessage(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", info, err)
		}
		o, ok := a.out[uint32(m.uint(fdID))]
		if !ok {
			continue
		}
		slot := o.slot
		if slot < 0 {
			slot = slotOf(int(m.uint(fdNum)), o.flags)
		}
		used[slot], hit = true, true
		b := appendUint(nil, fdID, uint64(a.maxID)+1+uint64(slot))
		b = appendUint(b, fdFlags, m.uint(fdFlags))
		b = appendUint(b, fdType, typeUnix)
		b = appendUint(b, fdNum, m.uint(fdNum))
		if m.has(fdSELinux) {
			b = appendBytes(b, fdSELinux, m.bytes(fdSELinux))
		}
		entries[i] = b
	}
	if !hit {
		return nil
	}
	return writeImage(info, magicCommon, magicFdinfo, entries)
}

// slotEntry encodes a file_entry with a unix_sk_entry that has no peer, no name and is closed.
func slotEntry(id, inode uint32) []byte {
	const (
		sockStream = 1
		tcpClose   = 7 // TCP_CLOSE, linux/tcp_states.h
	)
	var fown, opts, sk []byte
	for n := uint32(1); n <= 5; n++ {
		fown = appendUint(fown, n, 0)
	}
	for n := uint32(1); n <= 6; n++ {
		opts = appendUint(opts, n, 0)
	}
	// id … peer: fields 1 to 8
	for n, v := range []uint64{uint64(id), uint64(inode), sockStream, tcpClose, 0, 0, 0, 0} {
		sk = appendUint(sk, uint32(n)+1, v)
	}
	sk = appendBytes(sk, 9, fown)
	sk = appendBytes(sk, 10, opts)
	sk = appendBytes(sk, 11, nil)
	b := appendUint(nil, fileType, typeUnix)
	b = appendUint(b, fileID, uint64(id))
	return appendBytes(b, fileUnix, sk)
}

func writeRecord(dir string, rec record) error {
	b, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, RecordFile), append(b, '\n'), 0o600)
}

func readRecord(dir string) (rec record, err error) {
	path := filepath.Join(dir, RecordFile)
	st, err := os.Stat(path)
	if err != nil {
		return rec, err
	}
	if st.Size() > 16<<20 {
		return rec, fmt.Errorf("%s: %d bytes are too many", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("%s: %w", path, err)
	}
	if rec.Version != recordVersion {
		return rec, fmt.Errorf("%s: version %d, this holdfast reads %d", path, rec.Version, recordVersion)
	}
	for _, s := range rec.Stdio {
		if s.Slot < 0 || s.Slot > 2 || strings.ContainsAny(s.Key, "\x00\n") || !strings.HasPrefix(s.Key, "socket:[") {
			return rec, fmt.Errorf("%s: bad standard stream %d %q", path, s.Slot, s.Key)
		}
	}
	return rec, nil
}

// pstreeItem is one process of a dump.
type pstreeItem struct {
	pid, ppid, pgid, sid int
	threads              []int
}

// readPstree reads the process tree of a dump, root first.
func readPstree(dir string) ([]pstreeItem, error) {
	path := filepath.Join(dir, "pstree.img")
	ms, err := readImage(path, magicCommon, magicPstree)
	if err != nil {
		return nil, err
	}
	var out []pstreeItem
	for _, raw := range ms {
		m, err := parseMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		it := pstreeItem{pid: int(uint32(m.uint(1))), ppid: int(uint32(m.uint(2))),
			pgid: int(uint32(m.uint(3))), sid: int(uint32(m.uint(4)))}
		ts, err := m.uints(5)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, t := range ts {
			it.threads = append(it.threads, int(uint32(t)))
		}
		if it.pid <= 0 {
			return nil, fmt.Errorf("%s: process %d", path, it.pid)
		}
		out = append(out, it)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no process", path)
	}
	return out, nil
}
