package device

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A physical is device memory: a sealed memfd, known by its inode, so that the
// same memory is recognised when its descriptor comes back.
//
// Descriptors of it that clients hold keep it alive, and so in use, when it has neither handle nor mapping any more:
// the memory of a program that died is still that of whoever keeps it. Nothing tells when the last descriptor is
// closed. So such memory stays on a list, and it is asked about when the answer matters: when memory runs short, or
// somebody wants to know how much is free. The question is a write lease, which Linux grants for a file that nobody
// else has open. Descriptors that are handed out are therefore of an open file of their own.
type physical struct {
	fd       int
	node     inode
	size     uint64
	dev      int
	refs     int  // handles and mappings in all processes; guarded by server.mu, like exported
	exported bool // others may have it open
}

type inode struct{ dev, ino uint64 }

const physicalName = "holdfast-gpu"

// newPhysical creates device memory with one reference.
func (s *server) newPhysical(dev int, size uint64) (*physical, error) {
	if err := s.charge(dev, size); err != nil {
		return nil, err
	}
	ph, err := createPhysical(dev, size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.used[dev] -= size
		return nil, err
	}
	s.physical[ph.node] = ph
	return ph, nil
}

func createPhysical(dev int, size uint64) (*physical, error) {
	made, err := memfd(fmt.Sprintf("%s%d", physicalName, dev), size)
	if err != nil {
		return nil, err
	}
	defer unix.Close(made)
	fd, err := reopen(made)
	if err != nil {
		return nil, err
	}
	node, err := identify(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &physical{fd: fd, node: node, size: size, dev: dev, refs: 1}, nil
}

// reopen opens the file of a descriptor once more.
func reopen(fd int) (int, error) {
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening device memory: %w", err)
	}
	return again, nil
}

// export gives a descriptor for others, which the caller closes once it is sent.
func (s *server) export(ph *physical) (int, error) {
	fd, err := reopen(ph.fd)
	if err == nil {
		s.mu.Lock()
		ph.exported = true
		s.mu.Unlock()
	}
	return fd, err
}

// kept reports whether somebody else has the memory open.
func (ph *physical) kept() bool {
	if _, err := unix.FcntlInt(uintptr(ph.fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return err == unix.EAGAIN // anything else: leases are not to be had here
	}
	_, _ = unix.FcntlInt(uintptr(ph.fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

func (s *server) charge(dev int, size uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits(dev, size) {
		return fmt.Errorf("device %d has %d of %d bytes free, not %d",
			dev, s.cfg.Memory-s.used[dev], s.cfg.Memory, size)
	}
	s.used[dev] += size
	return nil
}

// fits reports whether so much memory is free, once what nobody keeps any more is given back. server.mu is held.
func (s *server) fits(dev int, size uint64) bool {
	if size > s.cfg.Memory-min(s.used[dev], s.cfg.Memory) {
		s.collect()
	}
	return size <= s.cfg.Memory-min(s.used[dev], s.cfg.Memory)
}

// free is how much memory of a device is not used.
func (s *server) free(dev int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collect()
	return s.cfg.Memory - min(s.used[dev], s.cfg.Memory)
}

// collect gives back the memory that only descriptors kept, where there are none any more, and returns the bytes that
// are still kept so. server.mu is held.
func (s *server) collect() (kept uint64) {
	for _, ph := range s.orphans {
		if ph.kept() {
			kept += ph.size
			continue
		}
		s.drop(ph)
	}
	return kept
}

// drop forgets memory that nobody has. server.mu is held.
func (s *server) drop(ph *physical) {
	delete(s.orphans, ph.node)
	delete(s.physical, ph.node)
	s.used[ph.dev] -= ph.size
	_ = unix.Close(ph.fd)
}

func identify(fd int) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, fmt.Errorf("stat of device memory: %w", err)
	}
	return inode{uint64(st.Dev), st.Ino}, nil
}

// importPhysical recognises the memory of a descriptor and adds a reference. Memory of a device that was there before
// this one, or whose descriptor was out of sight for a moment, is charged again.
func (s *server) importPhysical(fd int) (*physical, error) {
	node, err := identify(fd)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ph := s.physical[node]; ph != nil {
		ph.refs++
		delete(s.orphans, node)
		return ph, nil
	}
	// Ours by its name, and sealed, so that nobody can shrink it under a mapping.
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || have&seals != seals {
		return nil, fmt.Errorf("descriptor is not device memory")
	}
	dev, ours, err := deviceOf(fd, physicalName)
	if err != nil {
		return nil, err
	}
	if !ours || dev >= s.cfg.Devices {
		return nil, fmt.Errorf("descriptor is not memory of a device that there is")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat of device memory: %w", err)
	}
	size := uint64(st.Size)
	if size == 0 || size%granularity != 0 || !s.fits(dev, size) {
		return nil, fmt.Errorf("no room for %d bytes of imported memory on device %d", size, dev)
	}
	again, err := reopen(fd)
	if err != nil {
		return nil, err
	}
	s.used[dev] += size
	ph := &physical{fd: again, node: node, size: size, dev: dev, refs: 1, exported: true}
	s.physical[node] = ph
	return ph, nil
}

// deviceOf reads the device off the name of a memfd that begins with prefix.
func deviceOf(fd int, prefix string) (dev int, ours bool, err error) {
	link, err := linkOf(fd)
	if err != nil {
		return 0, false, err
	}
	rest, ours := strings.CutPrefix(link, "/memfd:"+prefix)
	if n, _ := fmt.Sscanf(rest, "%d", &dev); !ours || n != 1 || dev < 0 {
		return 0, false, nil
	}
	return dev, true, nil
}

func linkOf(fd int) (string, error) {
	buf := make([]byte, 256)
	n, err := unix.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd), buf)
	if err != nil {
		return "", fmt.Errorf("name of descriptor: %w", err)
	}
	return string(buf[:n]), nil
}

func (s *server) hold(ph *physical) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ph.refs++
}

func (s *server) release(ph *physical) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ph.refs--
	if ph.refs > 0 {
		return
	}
	if ph.exported && ph.kept() {
		s.orphans[ph.node] = ph
		return
	}
	s.drop(ph)
}

// forgetPhysical closes what only descriptors of others keep alive: the device goes, the memory stays.
func (s *server) forgetPhysical() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ph := range s.orphans {
		s.drop(ph)
	}
}

func memfd(name string, size uint64) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("sealing memfd %s: %w", name, err)
	}
	return fd, nil
}

const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
