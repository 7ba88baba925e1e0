package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/internal/criu"
	"holdfast/internal/daemon/api"
	"holdfast/internal/process"
)

// The keeper's record of a program, without the memory, also lies in a file of the runtime directory. If both daemon
// and keeper are killed, the next daemon learns from it which programs stand still with nobody having their memory.
// They would stand still for ever, so it ends them. The file need not be durable: no program outlives the machine.

// underwayDir is in the runtime directory: a file for each program that the keeper has, by its token.
const underwayDir = "underway"

// saveUnderway makes the file. The file only matters if both die, so an error does not stop anything.
func (e *Env) saveUnderway(r Record) {
	if e.Dir == "" {
		return
	}
	r.Boot = bootID()
	err := func() error {
		root, err := e.openPrivate(underwayDir)
		if err != nil {
			return err
		}
		defer root.Close()
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		name := key(r.Identity.Token) + ".json"
		tmp := "." + name
		err = root.WriteFile(tmp, b, 0o600)
		if err == nil {
			err = root.Rename(tmp, name)
		}
		if err != nil {
			root.Remove(tmp) // what there is of it
		}
		return err
	}()
	if err != nil {
		e.Log.Warn("only the keeper knows of a program that stands still", "pid", r.Identity.PID, "err", err)
	}
}

// removeUnderway removes the file of a token, if there is one. That comes before the keeper lets go: a program that
// only the file speaks of may be ended.
func (e *Env) removeUnderway(token string) error {
	if e.Dir == "" {
		return nil
	}
	err := os.Remove(filepath.Join(e.Dir, underwayDir, token+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RecoverLost looks for programs that stand still and that the keeper does not know of: it was killed too. It comes
// after [Env.Recover] and [Env.RecoverRecords]. kept are the keys of the keeper.
func (e *Env) RecoverLost(kept []string, reg Registry) {
	if e.Dir == "" {
		return
	}
	root, err := e.openPrivate(underwayDir)
	if err != nil {
		e.Log.Error("records of programs that stand still", "err", err)
		return
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		e.Log.Error("records of programs that stand still", "err", err)
		return
	}
	for _, entry := range list {
		token, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || strings.HasPrefix(token, ".") || slices.Contains(kept, token) {
			continue
		}
		r, err := readFile(root, token)
		if err == nil && key(r.Identity.Token) != token {
			err = fmt.Errorf("it is of program %s", key(r.Identity.Token))
		}
		if err == nil {
			err = e.recoverLost(r, reg)
		}
		if err != nil {
			e.Log.Error("a program whose memory is lost could not be ended", "entry", token, "err", err)
		}
	}
}

func (e *Env) recoverLost(r *Record, reg Registry) error {
	id := r.Identity
	token := key(id.Token)
	if r.Boot != bootID() || r.Doing != DoingRestore && !process.Alive(id.PID, id.StartTime) {
		return e.removeUnderway(token)
	}
	var err error
	switch r.Doing {
	case DoingRestore:
		err = endRestore(r, e.Log)
	case DoingRollback: // it comes back by itself, behind a shut gate, and its file says what to do
	default:
		p := process.New(id, api.StateRestoring, e.Log)
		p.SetImage(r.Image)
		p.SetRestorable(r.Restorable)
		p.Adopt(r.allocs(nil))
		if reg.Register(p) != nil {
			// It has come by itself, with its memory; or it is suspended to an image, and its file stays.
			if q := reg.Lookup(id.PID); q == nil || q.State() != api.StateSuspended {
				return e.removeUnderway(token)
			}
			return nil
		}
		p.TryLock() // it is new: nobody else has it
		go e.bringBack(p, r, reg, true)
		return nil
	}
	if err == nil {
		err = e.removeUnderway(token)
	}
	return err
}

// endLost ends a program that has come back for memory which nobody has.
func endLost(p *process.Program) error {
	id := p.Identity()
	p.Log().Error("both daemon and keeper were killed while the program's memory was in their keeping: it is ended")
	err := errors.New("its memory was lost with daemon and keeper")
	return errors.Join(err, criu.Kill(id.PID, id.StartTime, 10*time.Second))
}
