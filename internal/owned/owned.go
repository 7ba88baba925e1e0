// Package owned opens directories and files that nobody but this user and root can change.
//
// A path is only as good as every directory on it: who may rename one of them decides what the path leads to. So [Open]
// and [Make] walk from the root, one component at a time, and refuse a directory of another user, one that others may
// write (a sticky one, such as /tmp, is allowed: others cannot rename what is not theirs there), and a symbolic link
// that another user made. After that a use of the same path leads to the same place, whatever other users do.
//
// In a user namespace that does not map every user, files of those it lacks (root's among them) have the overflow user:
// nobody can tell whose they are. These pass on the way, but not as a directory of our own.
//
// It imports the standard library and x/sys only.
package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links on one path, as the kernel does.
const maxLinks = 40

// A Dir is a directory that was reached safely. Files in it are opened by their name alone, never through a link.
type Dir struct {
	f    *os.File
	path string // without symbolic links
}

// Open opens a directory that other users cannot put another in the place of. It may be a sticky one.
func Open(path string) (*Dir, error) { return walk(path, false, 0) }

// Make opens a directory in which other users cannot make anything, and makes what is missing of the path, with these
// permissions.
func Make(path string, perm os.FileMode) (*Dir, error) {
	return makeDir(path, perm, func(st *unix.Stat_t) error {
		if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, neither you (%d) nor root", path, st.Uid, os.Geteuid())
		}
		if st.Mode&0o022 != 0 {
			return fmt.Errorf("%s can be written by others (mode %04o): use a directory of your own", path,
				st.Mode&0o7777)
		}
		return nil
	})
}

// Private opens a directory of this user that others cannot even enter, and makes it, and what is missing of the path.
// A symbolic link is refused.
func Private(path string) (*Dir, error) {
	if info, err := os.Lstat(filepath.Clean(path)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link", path)
	}
	return makeDir(path, 0o700, func(st *unix.Stat_t) error {
		if int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, not to you (%d)", path, st.Uid, os.Geteuid())
		}
		if st.Mode&0o077 != 0 {
			return fmt.Errorf("%s is open to others (mode %04o): chmod 700 it if you trust its content", path,
				st.Mode&0o7777)
		}
		return nil
	})
}

func makeDir(path string, perm os.FileMode, check func(*unix.Stat_t) error) (*Dir, error) {
	d, err := walk(path, true, perm)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(d.f.Fd()), &st); err == nil {
		err = check(&st)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Check says why other users could change the file at path, or what it leads to; nil if they cannot.
func Check(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for range maxLinks {
		dir, err := Open(filepath.Dir(abs))
		if err != nil {
			return err
		}
		link, err := dir.checkFile(filepath.Base(abs))
		dir.Close()
		if err != nil || link == "" {
			return err
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(dir.path, link)
		}
		abs = filepath.Clean(link)
	}
	return fmt.Errorf("%s: %w", path, unix.ELOOP)
}

// checkFile checks a file, or returns where a link leads.
func (d *Dir) checkFile(name string) (link string, err error) {
	fd, err := unix.Openat(int(d.f.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if err := mayPass(&st); err != nil {
			return "", fmt.Errorf("%s: the link %w", filepath.Join(d.path, name), err)
		}
		return readLink(fd)
	}
	if err := mayPass(&st); err != nil {
		return "", fmt.Errorf("%s %w", filepath.Join(d.path, name), err)
	}
	if st.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s can be written by others (mode %04o)", filepath.Join(d.path, name), st.Mode&0o7777)
	}
	return "", nil
}

// Path is where the directory is, without symbolic links.
func (d *Dir) Path() string { return d.path }

// Join is the path of something in it.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Close closes it.
func (d *Dir) Close() error { return d.f.Close() }

// OpenFile opens a regular file of this user in the directory. flags are of os.OpenFile.
func (d *Dir) OpenFile(name string, flags int, perm os.FileMode) (*os.File, error) {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return nil, &fs.PathError{Op: "open", Path: d.Join(name), Err: fs.ErrInvalid}
	}
	// Not blocking: a FIFO must not hold us up before it is refused.
	fd, err := unix.Openat(int(d.f.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK,
		uint32(perm.Perm()))
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: remove it: %w", d.Join(name), err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.Join(name), Err: err}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("no regular file: remove it")
	case int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("belongs to user %d, not to you (%d): remove it", st.Uid, os.Geteuid())
	case st.Nlink > 1:
		err = errors.New("has another name elsewhere (a hard link): remove it")
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", d.Join(name), err)
	}
	return os.NewFile(uintptr(fd), d.Join(name)), nil
}

// Remove removes a file of the directory; that there is none is no error.
func (d *Dir) Remove(name string) error {
	if err := unix.Unlinkat(int(d.f.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: d.Join(name), Err: err}
	}
	return nil
}

// walk opens path from the root, component by component.
func walk(path string, create bool, perm os.FileMode) (_ *Dir, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	at, err := openRoot()
	if err != nil {
		return nil, err
	}
	stack := []*os.File{at} // the directories down to at, for ".."
	defer func() {
		for _, f := range stack {
			f.Close()
		}
	}()
	names := components(abs)
	var real []string
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." { // of a link's target; at the root it stays there
			if len(real) > 0 {
				stack[len(stack)-1].Close()
				stack, real = stack[:len(stack)-1], real[:len(real)-1]
			}
			continue
		}
		where := "/" + filepath.Join(append(real[:len(real):len(real)], name)...)
		next, link, err := step(stack[len(stack)-1], name, where, create, perm)
		if err != nil {
			return nil, err
		}
		if next == nil {
			if links++; links > maxLinks {
				return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			if filepath.IsAbs(link) {
				for _, f := range stack[1:] {
					f.Close()
				}
				stack, real = stack[:1], nil
			}
			names = append(components(link), names...)
			continue
		}
		stack, real = append(stack, next), append(real, name)
	}
	d := &Dir{path: "/" + filepath.Join(real...)}
	// Not the O_PATH descriptor: this one can be locked, synced and read.
	fd, err := unix.Openat(int(stack[len(stack)-1].Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	d.f = os.NewFile(uintptr(fd), d.path)
	return d, nil
}

func openRoot() (*os.File, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	f := os.NewFile(uintptr(fd), "/")
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = checkDir(&st, "/")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// components are the names on a path, without those that mean nothing.
func components(path string) []string {
	var list []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}

// step goes into one directory, or returns where a link leads.
func step(at *os.File, name, where string, create bool, perm os.FileMode) (next *os.File, link string, err error) {
	open := func() (int, error) {
		return unix.Openat(int(at.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	fd, err := open()
	if errors.Is(err, unix.ENOENT) && create {
		if err := unix.Mkdirat(int(at.Fd()), name, uint32(perm.Perm())); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, "", &fs.PathError{Op: "mkdir", Path: where, Err: err}
		}
		fd, err = open()
	}
	if err != nil {
		return nil, "", &fs.PathError{Op: "open", Path: where, Err: err}
	}
	f := os.NewFile(uintptr(fd), where)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			if err = checkDir(&st, where); err == nil {
				return f, "", nil
			}
		case unix.S_IFLNK:
			if err = mayPass(&st); err != nil {
				err = fmt.Errorf("%s: the link %w", where, err)
			} else {
				link, err = readLink(fd)
			}
		default:
			err = &fs.PathError{Op: "open", Path: where, Err: unix.ENOTDIR}
		}
	}
	f.Close()
	return nil, link, err
}

func readLink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", fmt.Errorf("read a link: %w", err)
	}
	return string(buf[:n]), nil
}

// checkDir says why others can change what a path through this directory leads to.
func checkDir(st *unix.Stat_t, where string) error {
	if err := mayPass(st); err != nil {
		return fmt.Errorf("%s %w: what is below it could be anything", where, err)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("%s can be written by others (mode %04o): chmod go-w it, or use a directory elsewhere", where,
			st.Mode&0o7777)
	}
	return nil
}

// mayPass says whether something on the way may belong to whom it does.
func mayPass(st *unix.Stat_t) error {
	switch uid := int(st.Uid); {
	case uid == 0, uid == os.Geteuid():
		return nil
	case uid == overflow():
		return nil
	default:
		return fmt.Errorf("belongs to user %d, neither you (%d) nor root", uid, os.Geteuid())
	}
}

// overflow is the user that stands for those whom this user namespace does not know; -1 if it knows all.
var overflow = sync.OnceValue(func() int {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || knowsAll(string(b)) {
		return -1
	}
	b, err = os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return 65534
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 65534
	}
	return uid
})

// knowsAll reads /proc/self/uid_map.
func knowsAll(uidMap string) bool {
	var total uint64
	for line := range strings.Lines(uidMap) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return false
		}
		n, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			return false
		}
		total += n
	}
	return total >= 1<<32-1
}
