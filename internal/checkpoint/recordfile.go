package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
)

// The keeper's record of a program whose memory lies in an image, because it is suspended to that or is being rolled
// back to it, also lies in a file of the runtime directory. So such a program can be resumed, and its rollback
// finished, although both the daemon and the keeper were killed. A program does not outlive its process or the
// kernel, so the file counts only as long as both are those that it names.

// recordsDir is in the runtime directory: a file for each such program, by its token.
const recordsDir = "records"

const maxRecordFile = 256 << 20 // bytes of a file: as much as the keeper takes

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// openRecords opens the directory of the files. It is our user's alone.
func (e *Env) openRecords() (*os.Root, error) { return e.openPrivate(recordsDir) }

// openPrivate opens a directory of the runtime directory, which it makes, and which must be our user's alone.
func (e *Env) openPrivate(name string) (*os.Root, error) {
	dir, err := os.OpenRoot(e.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := dir.Lstat(name)
	if err == nil {
		err = private(info, fs.ModeDir)
	}
	if err != nil {
		return nil, err
	}
	return dir.OpenRoot(name)
}

// private refuses a file of another type, or one that others can reach.
func private(info fs.FileInfo, kind fs.FileMode) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != kind || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a %s of this user alone", info.Name(), map[fs.FileMode]string{0: "file",
			fs.ModeDir: "directory"}[kind])
	}
	return nil
}

// saveRecords makes the files of programs of one process tree, its root first, durably. r says what is done to them.
func (e *Env) saveRecords(programs []*process.Program, r Record) error {
	if e.Dir == "" {
		return nil
	}
	root, err := e.openRecords()
	if err != nil {
		return fmt.Errorf("records of programs: %w", err)
	}
	defer root.Close()
	first := programs[0].Identity()
	r.Root, r.RootStart, r.Boot = first.PID, first.StartTime, bootID()
	for _, p := range programs {
		r, _ := recordOf(p, r)
		b, err := json.Marshal(r)
		if err == nil {
			err = writeDurably(root, key(r.Identity.Token)+".json", b)
		}
		if err != nil {
			return fmt.Errorf("record of process %d: %w", r.Identity.PID, err)
		}
	}
	return nil
}

// writeDurably puts a file in place, whole or not at all.
func writeDurably(root *os.Root, name string, b []byte) error {
	tmp := "." + name
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readRecord returns what the file of a token says, if saveRecords may have written it.
func readRecord(root *os.Root, token string) (*Record, error) {
	r, err := readFile(root, token)
	if err != nil {
		return nil, err
	}
	return r, r.checkFile(token)
}

// readFile returns what the file of a token says.
func readFile(root *os.Root, token string) (*Record, error) {
	f, err := root.OpenFile(token+".json", os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = private(info, 0)
	}
	if err == nil && info.Size() > maxRecordFile {
		err = fmt.Errorf("%d bytes", info.Size())
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRecordFile))
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// checkFile refuses what saveRecords does not write.
func (r *Record) checkFile(token string) error {
	id := r.Identity
	switch {
	case r.Doing != DoingSuspend && r.Doing != DoingRollback:
		return fmt.Errorf("it is of a %q", r.Doing)
	case key(id.Token) != token:
		return fmt.Errorf("it is of program %s", key(id.Token))
	case id.PID <= 1 || id.StartTime == 0 || id.ControlTID <= 1:
		return fmt.Errorf("process %d that started at %d, thread %d", id.PID, id.StartTime, id.ControlTID)
	case !filepath.IsAbs(r.Image) || r.ImageSum == "":
		return fmt.Errorf("image %q with the sum %q", r.Image, r.ImageSum)
	}
	for _, a := range r.Allocs {
		if a.ID == 0 || a.Size == 0 || a.Size > 1<<46 || int(a.Device) >= len(id.Devices) {
			return fmt.Errorf("allocation %d: %d bytes on device %d of %d", a.ID, a.Size, a.Device, len(id.Devices))
		}
	}
	return nil
}

// removeRecord removes the file of a token, if there is one.
func (e *Env) removeRecord(token [16]byte) {
	if e.Dir == "" {
		return
	}
	err := os.Remove(filepath.Join(e.Dir, recordsDir, key(token)+".json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.Log.Warn("the record of a program that needs it no longer stays", "err", err)
	}
}

// resumed forgets that a program was suspended, or being rolled back.
func (e *Env) resumed(p *process.Program) {
	e.removeRecord(p.Identity().Token)
	if err := e.removeUnderway(key(p.Identity().Token)); err != nil {
		e.Log.Warn("the record of a program that does not stand still any more stays", "err", err)
	}
	dir := p.Image()
	if !onHost(dir) {
		return
	}
	p.SetImage("")
	if e.wanted(dir) {
		return
	}
	if err := image.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.Log.Warn("the image of a program that is not suspended any more stays", "dir", dir, "err", err)
	}
}

// CameBack says that a program that was thought suspended has its memory: it had not been released when both daemon
// and keeper died.
func (e *Env) CameBack(p *process.Program) { e.resumed(p) }

// Ended removes what is left of a program that ended while it was suspended, or rolled back: its record, and its
// image if that is in host memory and no other program needs it.
func (e *Env) Ended(p *process.Program) { e.resumed(p) }

// dropRecord does what Ended does, for a program that was not registered.
func (e *Env) dropRecord(r *Record) {
	p := process.New(r.Identity, "", e.Log)
	if r.Doing == DoingSuspend { // the image of any other operation belongs to the user
		p.SetImage(r.Image)
	}
	e.Ended(p)
}

// wanted reports whether a program lives whose record names the image dir.
func (e *Env) wanted(dir string) bool {
	found := false
	e.eachRecord(func(r *Record) {
		found = found || r.Image == dir && r.lives()
	})
	return found
}

// lives reports whether the process that a record names still runs.
func (r *Record) lives() bool {
	return r.Boot == bootID() && process.Alive(r.Identity.PID, r.Identity.StartTime)
}

// eachRecord calls f for each file that can be read.
func (e *Env) eachRecord(f func(*Record)) {
	if e.Dir == "" {
		return
	}
	root, err := e.openRecords()
	if err != nil {
		e.Log.Error("records of programs", "err", err)
		return
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		e.Log.Error("records of programs", "err", err)
		return
	}
	for _, entry := range list {
		token, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || strings.HasPrefix(token, ".") {
			continue
		}
		r, err := readRecord(root, token)
		if err != nil {
			e.Log.Error("the record of a program is no good", "file", entry.Name(), "err", err)
			continue
		}
		f(r)
	}
}

// removeHalfWritten removes the files that a daemon was writing when it died. There is no other daemon, and this one
// writes none yet.
func (e *Env) removeHalfWritten(dir string) error {
	if e.Dir == "" {
		return nil
	}
	root, err := e.openPrivate(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range list {
		if strings.HasPrefix(entry.Name(), ".") {
			err = errors.Join(err, root.Remove(entry.Name()))
		}
	}
	return err
}

// RecoverRecords takes up programs of which no keeper knows any more. What is left of those that have ended is removed.
func (e *Env) RecoverRecords(reg Registry) {
	for _, dir := range []string{recordsDir, underwayDir} {
		if err := e.removeHalfWritten(dir); err != nil {
			e.Log.Error("what an earlier daemon was writing stays", "directory", dir, "err", err)
		}
	}
	var dead, alive []*Record
	e.eachRecord(func(r *Record) {
		if r.lives() {
			alive = append(alive, r)
		} else {
			dead = append(dead, r)
		}
	})
	for _, r := range dead {
		e.dropRecord(r)
	}
	for _, r := range alive {
		if r.Doing == DoingRollback {
			e.recoverRollback(r, reg)
			continue
		}
		p := process.New(r.Identity, api.StateSuspended, e.Log)
		p.SetImage(r.Image)
		p.SetImageSum(r.ImageSum)
		p.SetRestorable(r.Restorable)
		p.Adopt(r.allocs(nil))
		if err := reg.Register(p); err != nil {
			// The keeper has told of it, or it has come by itself, with all its memory.
			q := reg.Lookup(r.Identity.PID)
			if q != nil && q.Identity().Token == r.Identity.Token && q.State() == api.StateRunning {
				e.dropRecord(r)
			}
			continue
		}
		if im, err := suspended(p, r.Image); err != nil {
			p.Log().Error("a suspended program cannot be resumed", "err", err)
		} else {
			im.Close()
		}
		p.Log().Info("a suspended program was found by its record")
	}
}
