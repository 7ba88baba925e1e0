package criu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// external is what the descriptors of a tree lead to outside of it, found before the dump. What counts in the end is
// what the dump holds (stdio.go); this only tells CRIU what to let pass, and finds what it would dump wrongly.
type external struct {
	ttys    map[string]bool // "tty[rdev:dev]", hexadecimal, as CRIU's --external wants it
	pipes   map[uint32]int  // inode of a one-ended pipe → slot
	sockets map[uint32]int  // inode of a unix socket whose peer is outside → slot
	caveats []string        // what will not come back as it was
}

// descriptor is one entry of /proc/PID/fd.
type descriptor struct {
	pid, fd int
	link    string
	flags   int
}

func (d descriptor) String() string {
	comm, _ := os.ReadFile(procPath(d.pid, "comm"))
	return fmt.Sprintf("process %d (%s) descriptor %d", d.pid, strings.TrimSpace(string(comm)), d.fd)
}

func descriptors(pid int) ([]descriptor, error) {
	ents, err := os.ReadDir(procPath(pid, "fd"))
	if err != nil {
		return nil, err
	}
	var out []descriptor
	for _, e := range ents {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		link, err := os.Readlink(procPath(pid, "fd/"+e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		info, err := os.ReadFile(procPath(pid, "fdinfo/"+e.Name()))
		if err != nil {
			continue
		}
		d := descriptor{pid: pid, fd: fd, link: link}
		for line := range strings.Lines(string(info)) {
			if v, ok := strings.CutPrefix(line, "flags:"); ok {
				f, _ := strconv.ParseInt(strings.TrimSpace(v), 8, 64)
				d.flags = int(f)
			}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b descriptor) int { return a.fd - b.fd })
	return out, nil
}

// inode takes the number out of "pipe:[123]".
func (d descriptor) inode(kind string) (uint32, bool) {
	s, ok := strings.CutPrefix(d.link, kind+":[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 32)
	return uint32(n), err == nil
}

// slotOf says which of the three standard files a descriptor is replaced by.
func slotOf(fd, flags int) int {
	switch {
	case fd >= 0 && fd <= 2:
		return fd
	case flags&syscall.O_ACCMODE == syscall.O_RDONLY:
		return 0
	}
	return 1
}

// findExternal looks through the descriptors of the tree.
func findExternal(pids []int) (*external, error) {
	x := &external{ttys: map[string]bool{}, pipes: map[uint32]int{}, sockets: map[uint32]int{}}
	var all []descriptor
	for _, p := range pids {
		ds, err := descriptors(p)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) && p != pids[0] {
				continue // a child that ended meanwhile
			}
			return nil, fmt.Errorf("descriptors of process %d: %w", p, err)
		}
		all = append(all, ds...)
	}
	reads, writes, unixInside, master := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}, false
	for _, d := range all {
		if n, ok := d.inode("pipe"); ok {
			acc := d.flags & syscall.O_ACCMODE
			reads[n] = reads[n] || acc != syscall.O_WRONLY
			writes[n] = writes[n] || acc != syscall.O_RDONLY
		}
		if n, ok := d.inode("socket"); ok {
			unixInside[n] = true
		}
		master = master || d.link == "/dev/ptmx" || d.link == "/dev/pts/ptmx"
	}
	var peers map[uint32]uint32
	if len(unixInside) > 0 {
		var err error
		if peers, err = unixPeers(); err != nil {
			return nil, fmt.Errorf("peers of unix sockets: %w", err)
		}
	}
	for _, d := range all {
		slot := slotOf(d.fd, d.flags)
		if n, ok := d.inode("pipe"); ok && !(reads[n] && writes[n]) {
			if _, known := x.pipes[n]; !known && d.fd > 2 {
				continue // looked at again below, when all standard descriptors are known
			} else if !known {
				x.pipes[n] = slot
			}
		}
		if n, ok := d.inode("socket"); ok && d.fd <= 2 {
			if peer, isUnix := peers[n]; isUnix && peer != 0 && !unixInside[peer] {
				if _, known := x.sockets[n]; !known {
					x.sockets[n] = slot
				}
			}
		}
		if !master && strings.HasPrefix(d.link, "/dev/") {
			var st unix.Stat_t
			if err := unix.Stat(procPath(d.pid, "fd/"+strconv.Itoa(d.fd)), &st); err == nil && isTTY(st) {
				x.ttys[fmt.Sprintf("tty[%x:%x]", st.Rdev, st.Dev)] = true
			}
		}
	}
	for _, d := range all {
		if n, ok := d.inode("pipe"); ok && !(reads[n] && writes[n]) {
			if _, known := x.pipes[n]; !known {
				x.caveats = append(x.caveats, fmt.Sprintf("%s is a pipe whose other end is outside the checkpointed "+
					"processes: after a restore it reads as ended, or breaks when written", d))
			}
		}
	}
	return x, nil
}

// isTTY says whether a device is a terminal other than a pty master, by the majors of linux/major.h.
func isTTY(st unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	switch major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev); major {
	case 4, 166, 188, 204, 229: // TTY, ACM, USB serial, low-density serial, hvc
		return true
	case 5: // /dev/tty, /dev/console; 2 is ptmx
		return minor != 2
	default:
		return major >= 136 && major <= 143 // UNIX98_PTY_SLAVE
	}
}

// unixPeers asks the kernel for the peer of every unix socket of this network namespace: sock_diag(7), unix_diag of
// linux/unix_diag.h. A socket without a peer maps to 0.
func unixPeers() (map[uint32]uint32, error) {
	const (
		sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
		showPeer         = 4  // UDIAG_SHOW_PEER
		attrPeer         = 2  // UNIX_DIAG_PEER
	)
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	// nlmsghdr, then unix_diag_req {u8 family, u8 protocol, u16 pad, u32 states, u32 ino, u32 show, u32 cookie[2]}
	req := make([]byte, 16+24)
	ne := binary.NativeEndian
	ne.PutUint32(req[0:], uint32(len(req)))
	ne.PutUint16(req[4:], sockDiagByFamily)
	ne.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req[16] = unix.AF_UNIX
	ne.PutUint32(req[20:], 0xffffffff)
	ne.PutUint32(req[28:], showPeer)
	if err := unix.Sendto(s, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	out := map[uint32]uint32{}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for b := buf[:n]; len(b) >= 16; {
			size := int(ne.Uint32(b))
			if size < 16 || size > len(b) {
				return nil, errTruncated
			}
			switch ne.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				if size < 20 {
					return nil, errTruncated
				}
				return nil, syscall.Errno(-int32(ne.Uint32(b[16:])))
			}
			// unix_diag_msg {u8 family, type, state, pad; u32 ino; u32 cookie[2]}, then attributes
			if m := b[16:size]; len(m) >= 16 {
				ino := ne.Uint32(m[4:])
				out[ino] = 0
				for a := m[16:]; len(a) >= 4; {
					l := int(ne.Uint16(a))
					if l < 4 || l > len(a) {
						break
					}
					if ne.Uint16(a[2:]) == attrPeer && l >= 8 {
						out[ino] = ne.Uint32(a[4:])
					}
					a = a[min((l+3)&^3, len(a)):]
				}
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}
