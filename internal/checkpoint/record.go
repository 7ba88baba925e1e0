package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/internal/criu"
	"holdfast/internal/daemon/api"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
)

// What a Record's program was doing when the record was written.
const (
	DoingCheckpoint = "checkpoint" // it goes on in the same process
	DoingRestore    = "restore"    // it comes from an image: a failed restore can be tried again
	DoingSuspend    = "suspend"    // it stays released until it is resumed
	DoingRollback   = "rollback"   // its memory is being overwritten, behind a gate that stays shut
)

// A Record is what the keeper knows of a program that has no memory mapped, or only half of an overwritten one:
// enough for another daemon to bring it back.
type Record struct {
	Identity process.Identity `json:"identity"`
	Doing    string           `json:"doing"`
	Root     int              `json:"root"` // of its process tree
	// RootStart is when the root started. 0: a restore that has not made it yet, or died before it could say so.
	RootStart uint64 `json:"root_start,omitempty"`
	// Of a restore: the mark in the arguments of its CRIU, and when it began, in clock ticks since boot.
	Mark  string `json:"mark,omitempty"`
	Begun uint64 `json:"begun,omitempty"`
	Image string `json:"image,omitempty"`
	Trust bool   `json:"trust,omitempty"` // a rollback: the image may belong to another user
	Boot  string `json:"boot,omitempty"`  // of the kernel; in files
	// of a suspend or a rollback: Image.Sum of what has to be there
	ImageSum   string        `json:"image_sum,omitempty"`
	Restorable string        `json:"restorable,omitempty"` // Program.Restorable
	Allocs     []AllocRecord `json:"allocs"`
}

// AllocRecord is a process.Alloc without its descriptor.
type AllocRecord struct {
	ID     uint64 `json:"id"`
	VA     uint64 `json:"va"`
	Size   uint64 `json:"size"`
	Device uint32 `json:"device"`
	Kind   uint32 `json:"kind"`
	Used   uint64 `json:"used"`
}

func key(token [16]byte) string { return hex.EncodeToString(token[:]) }

// keepAll hands the memory of programs of one process tree, its root first, to the keeper: all or none.
func (e *Env) keepAll(programs []*process.Program, doing string) error {
	root := programs[0].Identity()
	for i, p := range programs {
		if err := e.keep(p, Record{Doing: doing, Root: root.PID, RootStart: root.StartTime,
			Image: p.Image()}); err != nil {
			for _, q := range programs[:i] {
				err = errors.Join(err, e.unkeep(q))
			}
			return err
		}
	}
	return nil
}

// keep hands the memory of a program to the keeper, with r completed.
func (e *Env) keep(p *process.Program, r Record) error {
	k, err := e.Keeper()
	if err != nil {
		return err
	}
	r, files := recordOf(p, r)
	e.saveUnderway(r)
	if r.Doing == DoingSuspend {
		return k.Put(key(r.Identity.Token), r, files)
	}
	return k.PutUrgent(key(r.Identity.Token), r, files)
}

func recordOf(p *process.Program, r Record) (Record, map[uint64]*os.File) {
	r.Identity, r.ImageSum, r.Restorable = p.Identity(), p.ImageSum(), p.Restorable()
	files := map[uint64]*os.File{}
	for _, a := range p.Allocs() {
		r.Allocs = append(r.Allocs, AllocRecord{a.ID, a.VA, a.Size, a.Device, a.Kind, a.Used})
		if a.File != nil {
			files[a.ID] = a.File
		}
	}
	return r, files
}

// allocs returns the allocations of r, with their descriptors, which it takes out of files.
func (r *Record) allocs(files map[uint64]*os.File) []*process.Alloc {
	var list []*process.Alloc
	for _, a := range r.Allocs {
		list = append(list, &process.Alloc{ID: a.ID, VA: a.VA, Size: a.Size, Device: a.Device, Kind: a.Kind,
			Used: a.Used, File: files[a.ID]})
		delete(files, a.ID)
	}
	return list
}

// unkeep makes the keeper let go of what it has of a program.
func (e *Env) unkeep(p *process.Program) error {
	k, err := e.Keeper()
	if err != nil {
		return err
	}
	if err := e.removeUnderway(key(p.Identity().Token)); err != nil {
		return err
	}
	return Forget(k, p)
}

// Forget makes the keeper let go of what it has of a program that has ended.
func Forget(k *keeper.Client, p *process.Program) error { return k.Delete(key(p.Identity().Token)) }

// A Registry is told of programs that an earlier daemon left.
type Registry struct {
	// Register is called with a program before it is woken, so that its conversation finds it. It returns an error
	// for a program that is there already.
	Register func(*process.Program) error
	// Lookup returns the program that is registered for a process, or nil.
	Lookup func(pid int) *process.Program
	// Gone is called, with its operation lock held, of a registered program that has ended before it was brought back.
	Gone func(*process.Program)
}

// Recover looks at what an earlier daemon left with the keeper and begins to bring every
// program back to life; it does not wait until they are.
func (e *Env) Recover(k *keeper.Client, reg Registry) error {
	keys, err := k.List()
	if err != nil {
		return err
	}
	for _, key := range keys {
		log := e.Log.With("entry", key)
		if err := e.recoverOne(k, key, reg, log); err != nil {
			log.Error("a program of an earlier daemon could not be brought back", "err", err)
		}
	}
	return nil
}

func (e *Env) recoverOne(k *keeper.Client, key string, reg Registry, log *slog.Logger) error {
	entry, err := k.Get(key)
	if err != nil {
		return err
	}
	defer entry.Close() // closes what nobody has taken
	var r Record
	if err := json.Unmarshal(entry.Record, &r); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	id := r.Identity
	switch {
	case r.Doing == DoingRestore:
		if err := errors.Join(endRestore(&r, log), e.removeUnderway(key)); err != nil {
			return err
		}
		return k.Delete(key)
	case !process.Alive(id.PID, id.StartTime):
		log.Info("the program has ended meanwhile", "pid", id.PID)
		e.dropRecord(&r)
		return k.Delete(key)
	}
	p := process.New(id, api.StateRestoring, e.Log)
	p.SetImageSum(r.ImageSum)
	p.SetRestorable(r.Restorable)
	p.Adopt(r.allocs(entry.Files))
	if r.Doing == DoingRollback {
		return e.endRollback(&r, p, reg)
	}
	p.SetImage(r.Image)
	if err := reg.Register(p); err != nil {
		// It has come to us by itself, so it was not released: it has its memory.
		p.Drop()
		log.Info("the program has come back by itself", "pid", id.PID, "why", err)
		if err := e.removeUnderway(key); err != nil {
			return err
		}
		return k.Delete(key)
	}
	if r.Doing == DoingSuspend {
		p.SetState(api.StateSuspended)
		return nil
	}
	p.TryLock() // it is new: nobody else has it
	go e.bringBack(p, &r, reg, false)
	return nil
}

// bringBack brings a program of an earlier daemon back, however long that takes. With lost set, a program that has no
// memory is ended: nobody has it.
func (e *Env) bringBack(p *process.Program, r *Record, reg Registry, lost bool) {
	defer p.Unlock()
	waitForDump(r)
	var t timeline
	b := &comeback{env: e, programs: []*process.Program{p}, t: &t, lost: lost}
	if err := b.all(); err != nil {
		p.Log().Error("a program of an earlier daemon could not be brought back", "err", err)
		reg.Gone(p)
		return
	}
	p.SetState(api.StateRunning)
	p.Log().Info("brought back after the death of an earlier daemon")
}

// waitForDump waits until nobody traces the process any more (a dump that outlived the
// daemon which started it), and lets it run if that dump left it stopped.
func waitForDump(r *Record) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for traced(r.Root) && process.Alive(r.Identity.PID, r.Identity.StartTime) {
		<-tick.C
	}
	root, start := r.Root, r.RootStart
	if start == 0 { // records of older daemons do not say it
		root, start = r.Identity.PID, r.Identity.StartTime
	}
	criu.Resume(root, start) // it fails for what has ended, which the comeback notices
}

func traced(pid int) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && !strings.Contains(string(b), "\nTracerPid:\t0\n") {
			return true
		}
	}
	return false
}
