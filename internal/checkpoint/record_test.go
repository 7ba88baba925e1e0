package checkpoint

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
)

// keeping returns an Env with a keeper, which fails so many times when it is asked for.
func keeping(t *testing.T, failures int) *Env {
	t.Helper()
	socket := filepath.Join(t.TempDir(), keeper.Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	go keeper.Serve(l, keeper.Options{})
	k, err := keeper.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return &Env{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Keeper: func() (*keeper.Client, error) {
		if failures > 0 {
			failures--
			return nil, errors.New("no keeper just now")
		}
		return k, nil
	}}
}

// noGPU has no driver.
type noGPU struct{}

func (noGPU) Driver(uint32) (cuda.Driver, error)                { return nil, errors.New("no driver just now") }
func (noGPU) Engine(uint32, [16]byte) (*snapshot.Engine, error) { return nil, errors.New("no engine") }

func newProgram(t *testing.T, pid int) *process.Program {
	t.Helper()
	start, err := process.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	id := process.Identity{PID: pid, StartTime: start, ControlTID: pid, Token: [16]byte{1, byte(pid)},
		Devices: make([][16]byte, 1)}
	p := process.New(id, api.StateCheckpointing, slog.New(slog.DiscardHandler))
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	p.Adopt([]*process.Alloc{{ID: 1, Size: 2 << 20, File: f}})
	return p
}

// When the last step of a suspend fails, its program is suspended all the same, and the step is tried again.
func TestSettle(t *testing.T) {
	p := newProgram(t, sleeper(t, nil))
	e := keeping(t, 2)
	if err := e.settle([]*process.Program{p}, ToHost); err != nil {
		t.Errorf("the keeper failed twice: %v", err)
	}
	k, err := e.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	entry, err := k.Get(key(p.Identity().Token))
	if err != nil {
		t.Fatal(err)
	}
	defer entry.Close()
	var r Record
	if err := json.Unmarshal(entry.Record, &r); err != nil || r.Doing != DoingSuspend {
		t.Errorf("the keeper has %s (%v)", entry.Record, err)
	}

	p = newProgram(t, sleeper(t, nil))
	err = keeping(t, 1000).settle([]*process.Program{p}, ToHost)
	if err == nil || !strings.Contains(err.Error(), "can be resumed") {
		t.Errorf("without any keeper: %v", err)
	}
	if p.State() != api.StateSuspended {
		t.Errorf("it is released and %s", p.State())
	}
}

// A restored program is known until it runs: should the daemon die before it does, the next one brings it back, and
// does not end it.
func TestRestoredIsKnown(t *testing.T) {
	h := newHeld(t, newGPU(t, 8))
	e := keeping(t, 0)
	k, err := e.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.p.Freeze(t.Context(), time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	doing := ""
	h.thaws = func() {
		entry, err := k.Get(key(h.p.Identity().Token))
		if err != nil {
			return
		}
		defer entry.Close()
		var r Record
		if json.Unmarshal(entry.Record, &r) == nil {
			doing = r.Doing
		}
	}
	r := &restoration{env: e, im: &image.Image{Manifest: &image.Manifest{Root: h.p.Identity().PID}},
		programs: []*process.Program{h.p}}
	if err := r.keep(DoingRestore); err != nil {
		t.Fatal(err)
	}
	if err := r.goOn(); err != nil {
		t.Fatal(err)
	}
	if doing != DoingCheckpoint {
		t.Errorf("when it is told to run, the keeper says %q, want %q", doing, DoingCheckpoint)
	}
	if keys, err := k.List(); err != nil || len(keys) != 0 {
		t.Errorf("once it runs, the keeper has %v (%v)", keys, err)
	}
}

// All programs of a tree are with the keeper, or none is.
func TestKeepAll(t *testing.T) {
	a, b := newProgram(t, sleeper(t, nil)), newProgram(t, sleeper(t, nil))
	e := keeping(t, 0)
	k, err := e.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	e.Keeper = func() (*keeper.Client, error) {
		if calls++; calls == 2 {
			return nil, errors.New("no keeper just now")
		}
		return k, nil
	}
	if err := e.keepAll([]*process.Program{a, b}, DoingCheckpoint); err == nil {
		t.Fatal("it does not say that the second one failed")
	}
	if keys, err := k.List(); err != nil || len(keys) != 0 {
		t.Errorf("left with the keeper: %v %v", keys, err)
	}
}

// The process of a restore that was cut short is ended; another one that has its number by now is not, nor one of
// which it is not known.
func TestEndRestore(t *testing.T) {
	pid := sleeper(t, nil)
	start, err := process.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	for _, s := range []uint64{start - 1, 0} {
		if err := endRestore(&Record{Root: pid, RootStart: s}, log); err != nil {
			t.Error(err)
		}
		if !process.Alive(pid, start) {
			t.Fatalf("start %d: another process was killed", s)
		}
	}
	if !strings.Contains(text.String(), "level=ERROR") {
		t.Errorf("what may be left is not told: %s", text.String())
	}
	if err := endRestore(&Record{Root: pid, RootStart: start}, log); err != nil {
		t.Error(err)
	}
	if process.Alive(pid, start) {
		t.Error("the process of the restore lives")
	}
}

// What the file of a suspended program says counts only for the very process that it was written of.
func TestSuspendedFiles(t *testing.T) {
	e := keeping(t, 0)
	lives, reused, broken := newProgram(t, sleeper(t, nil)), newProgram(t, sleeper(t, nil)), newProgram(t, sleeper(t,
		nil))
	for _, p := range []*process.Program{lives, reused, broken} {
		p.SetImageSum("sum")
	}
	if err := e.saveRecords([]*process.Program{lives}, Record{Doing: DoingSuspend, Image: "/img"}); err != nil {
		t.Fatal(err)
	}
	other := reused.Identity()
	other.StartTime-- // it was a process before that one
	before := process.New(other, "", e.Log)
	before.SetImageSum("sum")
	if err := e.saveRecords([]*process.Program{before}, Record{Doing: DoingSuspend, Image: "/img"}); err != nil {
		t.Fatal(err)
	}
	if err := e.saveRecords([]*process.Program{broken}, Record{Doing: DoingSuspend, Image: "/img"}); err != nil {
		t.Fatal(err)
	}
	name := func(p *process.Program) string {
		return filepath.Join(e.Dir, recordsDir, key(p.Identity().Token)+".json")
	}
	if err := os.WriteFile(name(broken), []byte(`{"doing":"suspend"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name(lives), filepath.Join(e.Dir, recordsDir, strings.Repeat("0", 32)+".json")); err != nil {
		t.Fatal(err)
	}
	runs := newProgram(t, sleeper(t, nil)) // it came back by itself
	runs.SetState(api.StateRunning)
	runs.SetImageSum("sum")
	if err := e.saveRecords([]*process.Program{runs}, Record{Doing: DoingSuspend, Image: "/img"}); err != nil {
		t.Fatal(err)
	}
	var found []int
	half := filepath.Join(e.Dir, recordsDir, ".half.json") // of a daemon that died while it wrote
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.RecoverRecords(Registry{
		Register: func(p *process.Program) error {
			if p.Identity().PID == runs.Identity().PID {
				return errors.New("it is here")
			}
			found = append(found, p.Identity().PID)
			return nil
		},
		Lookup: func(int) *process.Program { return runs },
	})
	if len(found) != 1 || found[0] != lives.Identity().PID {
		t.Errorf("found %v, want %d", found, lives.Identity().PID)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a record: %v", err)
	}
	for _, p := range []*process.Program{reused, runs} {
		if _, err := os.Stat(name(p)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record of a process that has ended, or runs: %v", err)
		}
	}
	// Open to others, they are no records of ours.
	if err := os.Chmod(name(lives), 0o644); err != nil {
		t.Fatal(err)
	}
	e.eachRecord(func(r *Record) { t.Errorf("read from a file that is open to others: %+v", r) })
	if err := os.Chmod(filepath.Join(e.Dir, recordsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := e.saveRecords([]*process.Program{lives}, Record{Doing: DoingSuspend, Image: "/img"}); err == nil {
		t.Error("written into a directory that is open to others")
	}
}

// A comeback that takes too long goes on without the one who asked for it.
func TestNotBack(t *testing.T) {
	e := keeping(t, 0)
	e.Patience = time.Millisecond
	e.GPUs = noGPU{}
	p := newProgram(t, sleeper(t, nil))
	var tl timeline
	err := e.comeBack([]*process.Program{p}, &tl, nil)
	var late *NotBackError
	if !errors.As(err, &late) {
		t.Fatalf("comeBack = %v", err)
	}
	select {
	case <-late.Done:
		t.Fatal("it was given up")
	default:
	}
	p.MarkEnded()
	proc, err := os.FindProcess(p.Identity().PID)
	if err != nil {
		t.Fatal(err)
	}
	proc.Kill()
	<-late.Done // the program is gone
}
