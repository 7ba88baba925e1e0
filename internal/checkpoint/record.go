package checkpoint

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/internal/criu"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
)

// What a Record's program was doing when the record was written.
const (
	DoingCheckpoint = "checkpoint" // its life goes on in the process that it is
	DoingRestore    = "restore"    // it comes from an image: if that fails it can be tried again
	DoingSuspend    = "suspend"    // it stays released until it is resumed
)

// A Record is what the keeper has about a program that has no memory mapped: enough for
// another daemon to bring it back.
type Record struct {
	Identity process.Identity `json:"identity"`
	Doing    string           `json:"doing"`
	Root     int              `json:"root"` // of its process tree
	Image    string           `json:"image,omitempty"`
	ImageSum string           `json:"image_sum,omitempty"` // of a suspend: Image.Sum of what resume has to find there
	Allocs   []AllocRecord    `json:"allocs"`
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

func keepAll(k *keeper.Client, programs []*process.Program) error {
	for _, p := range programs {
		if err := keep(k, p, DoingCheckpoint, programs[0].Identity().PID); err != nil {
			return err
		}
	}
	return nil
}

func keep(k *keeper.Client, p *process.Program, doing string, root int) error {
	r := Record{Identity: p.Identity(), Doing: doing, Root: root, Image: p.Image(), ImageSum: p.ImageSum()}
	files := map[uint64]*os.File{}
	for _, a := range p.Allocs() {
		r.Allocs = append(r.Allocs, AllocRecord{a.ID, a.VA, a.Size, a.Device, a.Kind, a.Used})
		if a.File != nil {
			files[a.ID] = a.File
		}
	}
	return k.Put(key(r.Identity.Token), r, files)
}

// Forget makes the keeper let go of what it has of a program that has ended.
func Forget(k *keeper.Client, p *process.Program) error { return k.Delete(key(p.Identity().Token)) }

// Recover looks at what an earlier daemon left with the keeper and begins to bring every
// program back to life; it does not wait until they are. register is called with a program before it is woken, so that its
// conversation finds it; it returns an error for a program that is there already.
func (e *Env) Recover(ctx context.Context, k *keeper.Client, register func(*process.Program) error) error {
	keys, err := k.List()
	if err != nil {
		return err
	}
	for _, key := range keys {
		log := e.Log.With("entry", key)
		if err := e.recoverOne(ctx, k, key, register, log); err != nil {
			log.Error("a program of an earlier daemon could not be brought back", "err", err)
		}
	}
	return nil
}

func (e *Env) recoverOne(ctx context.Context, k *keeper.Client, key string, register func(*process.Program) error, log *slog.Logger) error {
	entry, err := k.Get(key)
	if err != nil {
		return err
	}
	var r Record
	if err := json.Unmarshal(entry.Record, &r); err != nil {
		entry.Close()
		return fmt.Errorf("record: %w", err)
	}
	id := r.Identity
	if !process.Alive(id.PID, id.StartTime) && !(r.Doing == DoingRestore && process.Alive(id.PID, 0)) {
		entry.Close()
		log.Info("the program has ended meanwhile", "pid", id.PID)
		return k.Delete(key)
	}
	if r.Doing == DoingRestore {
		// Its memory may not be whole. The image is: it can be restored again.
		entry.Close()
		log.Warn("a restore was cut short: its process is ended; restore the image again", "pid", id.PID, "image", r.Image)
		if err := criu.Kill(r.Root, 10*time.Second); err != nil {
			return err
		}
		return k.Delete(key)
	}
	p := process.New(id, "restoring", e.Log)
	p.SetImage(r.Image)
	p.SetImageSum(r.ImageSum)
	var allocs []*process.Alloc
	for _, a := range r.Allocs {
		allocs = append(allocs, &process.Alloc{ID: a.ID, VA: a.VA, Size: a.Size, Device: a.Device, Kind: a.Kind, Used: a.Used, File: entry.Files[a.ID]})
		delete(entry.Files, a.ID)
	}
	entry.Close()
	p.Adopt(allocs)
	if err := register(p); err != nil {
		// It has come to us by itself, so it was not released: it has its memory.
		p.Drop()
		log.Info("the program has come back by itself", "pid", id.PID, "why", err)
		return k.Delete(key)
	}
	if r.Doing == DoingSuspend {
		p.SetState("suspended")
		return nil
	}
	p.TryLock() // it is new: nobody else has it
	go func() {
		defer p.Unlock()
		// Nobody waits for it: a program whose memory is taken gets some time.
		ctx, cancel := context.WithTimeout(ctx, undoTimeout)
		defer cancel()
		if err := e.bringBack(ctx, k, p, r.Root); err != nil {
			log.Error("a program of an earlier daemon could not be brought back", "pid", id.PID, "err", err)
			return
		}
		p.SetState("running")
		p.Log().Info("brought back after the death of an earlier daemon")
	}()
	return nil
}

func (e *Env) bringBack(ctx context.Context, k *keeper.Client, p *process.Program, root int) error {
	drv, err := e.GPUs.Driver(p.Identity().GPU)
	if err != nil {
		return err
	}
	if err := waitForDump(ctx, root); err != nil {
		return err
	}
	var t timeline
	return e.comeBack(ctx, k, drv, []*process.Program{p}, &t, nil)
}

// waitForDump waits until nobody traces the process any more (a dump that outlived the
// daemon which started it), and lets it run if that dump left it stopped.
func waitForDump(ctx context.Context, pid int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for traced(pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d is still traced: %w", pid, ctx.Err())
		case <-tick.C:
		}
	}
	return criu.Resume(pid)
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
