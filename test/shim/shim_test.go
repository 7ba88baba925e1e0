package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
	"holdfast/test/rig"
)

func TestWithoutCUDA(t *testing.T) {
	dir := build(t)
	output := func(env ...string) string {
		cmd := exec.Command(filepath.Join(dir, "nocuda"))
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	plain, hooked := output(), output("LD_PRELOAD="+filepath.Join(dir, "libholdfast.so"), "HOLDFAST_DIR="+t.TempDir())
	if plain != hooked {
		t.Errorf("without the shim:\n%swith it:\n%s", plain, hooked)
	}
}

func TestWithoutDaemon(t *testing.T) {
	p := start(t, t.TempDir())
	p.OK("init")
	a := p.OK("alloc 4096")[0]
	p.OK("write %d 7", a)
	if v := p.OK("read %d", a)[0]; v != 7 {
		t.Errorf("read %d", v)
	}
	if n := p.Do("count direct")[0]; n != 1 {
		t.Errorf("%d allocations of the driver's own", n)
	}
	p.OK("free %d", a)
	p.OK("init")
	p.Quit()
	if n := strings.Count(p.Stderr.String(), "\n"); n != 1 || !strings.Contains(p.Stderr.String(), "runs unheld") {
		t.Errorf("warnings:\n%s", p.Stderr)
	}
}

// The warning comes before cuInit returns: a program that ends at once has said it. Both of its outputs are one pipe,
// which keeps their order.
func TestWarningBeforeInit(t *testing.T) {
	dir := build(t)
	cmd := exec.Command(filepath.Join(dir, "prog"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "LD_PRELOAD="+filepath.Join(dir, "libholdfast.so"),
		"HOLDFAST_DIR="+t.TempDir())
	cmd.Stdin = strings.NewReader("init\nquit\n")
	out, err := cmd.CombinedOutput()
	if err != nil || !regexp.MustCompile(`^holdfast: no daemon .* runs unheld\n0\n`).Match(out) {
		t.Errorf("%v, %q", err, out)
	}
}

// attach starts a program with a daemon and brings the driver up.
func attach(t testing.TB, env ...string) (*daemon, *program, *held) {
	t.Helper()
	d := listen(t, t.TempDir())
	p := start(t, d.dir, env...)
	p.Send("init")
	h := d.take()
	if r := p.Line(); r != "0" {
		t.Fatalf("init: %s", r)
	}
	h.until("ADOPTED", func() bool { return h.adopted != nil })
	return d, p, h
}

func TestHello(t *testing.T) {
	_, p, h := attach(t, "HOLDFAST_NAME=fred", "HOLDFAST_GPU=soft")
	e := h.hello
	if e.Proto != wire.Version || e.Flags != can || int(e.PID) != p.Cmd.Process.Pid || e.ControlTID == e.PID ||
		e.GPU != wire.GPUSoft ||
		e.Name != "fred" || filepath.Base(e.Exe) != "prog" || len(e.Devices) != 1 || e.Devices[0][0] != 0x42 ||
		e.Driver != 13000 || e.StartTime == 0 {
		t.Errorf("%+v", e)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", e.PID, e.ControlTID))
	if err != nil || strings.TrimSpace(string(comm)) != wire.ControlComm {
		t.Errorf("%q, %v", comm, err)
	}
	h.eventually("the module", func() bool { return len(h.modules) > 0 })
	p.Quit()
	h.ended()
	if len(h.contexts) != 1 || h.contexts[0].Alive != 1 || len(h.modules) != 1 ||
		h.modules[0].Call != "cuModuleLoadData" {
		t.Errorf("contexts %v, modules %v", h.contexts, h.modules)
	}
}

func TestMemory(t *testing.T) {
	_, p, h := attach(t)
	big := p.OK("alloc %d", 5<<20)[0]
	small := p.OK("alloc 100")[0]
	other := p.OK("alloc 513")[0]
	p.OK("write %d 1001", big+8)
	p.OK("write %d 1002", small)
	p.OK("write %d 1003", other)
	h.until("three allocations", func() bool { return h.holds(big) && h.holds(small) && h.holds(other) })
	if len(h.allocs) != 2 {
		t.Errorf("%d blocks, want one big and one slab", len(h.allocs))
	}
	for va, want := range map[uint64]uint64{big + 8: 1001, small: 1002, other: 1003} {
		if got := h.word(va); got != want {
			t.Errorf("at %#x: %d, want %d", va, got, want)
		}
	}
	if other%512 != 0 || small%512 != 0 || other-small != 512 {
		t.Errorf("small allocations at %#x, %#x", small, other)
	}
	if r := p.OK("range %d", other+9); r[0] != other || r[1] != 513 {
		t.Errorf("range %v", r)
	}
	if r := p.OK("range %d", big+(4<<20)); r[0] != big || r[1] != 5<<20 {
		t.Errorf("range %v", r)
	}
	if r := p.OK("context %d", small); r[0] != 1 {
		t.Error("the memory does not belong to its context")
	}
	if r := p.Do("free %d", big+512); r[0] != 1 {
		t.Errorf("freeing an inner address: %v", r)
	}
	if r := p.Do("alloc 0"); r[0] != 1 {
		t.Errorf("allocating nothing: %v", r)
	}
	c := h.page.Read()
	if c.Bytes != 8<<20 || c.Allocations != 3 {
		t.Errorf("counters %+v", c)
	}
	p.OK("free %d", big)
	h.until("FREE", func() bool { return !h.holds(big) })
	if r := p.Do("free %d", big); r[0] != 1 {
		t.Errorf("freeing twice: %v", r)
	}
	p.OK("free %d", small)
	if again := p.OK("alloc 400")[0]; again != small {
		t.Errorf("the first gap is at %#x, given %#x", small, again)
	}
	if n := p.Do("count direct")[0]; n != 0 {
		t.Errorf("%d allocations of the driver's own", n)
	}
	// The context goes, and its memory with it.
	p.OK("ctxrelease")
	h.until("all to be freed", func() bool { return len(h.allocs) == 0 })
	if n := p.Do("count physical")[0]; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	p.Quit()
}

func TestOutOfMemory(t *testing.T) {
	_, p, h := attach(t, "FAKE_TOTAL=16777216")
	a := p.OK("alloc %d", 8<<20)[0]
	if r := p.Do("alloc %d", 10<<20); r[0] != 2 {
		t.Errorf("more than there is: %v", r)
	}
	p.OK("free %d", a)
	p.OK("alloc %d", 10<<20)
	h.until("FREE", func() bool { return h.allocs[1] == nil && len(h.allocs) == 1 })
	p.Quit()
}

// A program that finds no memory asks the daemon for some, once, and tries again.
func TestRoom(t *testing.T) {
	const mib = 1 << 20
	total := filepath.Join(t.TempDir(), "total")
	set := func(n int) {
		t.Helper()
		if err := os.WriteFile(total+".new", []byte(strconv.Itoa(n)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(total+".new", total); err != nil {
			t.Fatal(err)
		}
	}
	set(16 * mib)
	d, p, h := attach(t, "FAKE_TOTAL_FILE="+total)
	asked := 0
	question := func(bytes uint64) *wire.Room {
		t.Helper()
		h.until("ROOM", func() bool { return len(h.rooms) > asked })
		asked++
		m := h.rooms[asked-1]
		if m.Bytes != bytes || m.Device != 0 {
			t.Fatalf("%+v, want %d bytes", m, bytes)
		}
		return m
	}
	answer := func(m *wire.Room) {
		t.Helper()
		if err := h.c.Send(0, &wire.RoomMade{ID: m.ID, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	// answered does what ends with an allocation that was answered, again if that took so long that the program may
	// have waited for the answer in vain.
	answered := func(do func() string) string {
		t.Helper()
		for n := 0; ; n++ {
			began := time.Now()
			r := do()
			if strings.HasPrefix(r, "0 ") || n == 5 || time.Since(began) < wire.RoomMillis*time.Millisecond {
				return r
			}
			set(16 * mib)
		}
	}
	for i, call := range []string{"alloc %d", "create %d", "async %d 16"} {
		size := uint64(20+10*i) * mib
		r := answered(func() string {
			p.Send(call, size)
			m := question(size)
			set(1000 * mib)
			answer(m)
			return p.Line()
		})
		if !strings.HasPrefix(r, "0 ") {
			t.Errorf(call+": %s", size, r)
		}
		set(16 * mib)
		p.Send(call, size)
		answer(question(size))
		if r := p.Line(); !strings.HasPrefix(r, "2 ") {
			t.Errorf(call+" without memory: %s", size, r)
		}
	}
	// A freeze does not wait for a thread that waits for an answer, which the freezing thread would have to take.
	r := answered(func() string {
		p.Send("alloc %d", 2000*mib)
		m := question(2000 * mib)
		f := must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
		if f.GateNanos > wire.RoomMillis*1e6/2 {
			t.Errorf("the gate took %d µs to close", f.GateNanos/1000)
		}
		answer(m)                                                           // too late
		if err := h.c.Send(0, &wire.RoomMade{ID: m.ID + 100}); err != nil { // to nobody
			t.Fatal(err)
		}
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
		// The program has not noticed: it asks again.
		m = question(2000 * mib)
		set(4000 * mib)
		answer(m)
		return p.Line()
	})
	if !strings.HasPrefix(r, "0 ") {
		t.Errorf("after a freeze: %s", r)
	}
	set(16 * mib)
	// No answer, or no daemon: there is no memory.
	p.Send("alloc %d", 2000*mib)
	question(2000 * mib)
	if r := p.Line(); !strings.HasPrefix(r, "2 ") {
		t.Errorf("without an answer: %s", r)
	}
	p.Send("alloc %d", 2000*mib)
	question(2000 * mib)
	h.drop()
	if r := p.Line(); !strings.HasPrefix(r, "2 ") {
		t.Errorf("without a daemon: %s", r)
	}
	h = d.take()
	h.until("ADOPTED", func() bool { return h.adopted != nil })
	if len(h.rooms) != 0 || asked != 10 {
		t.Errorf("%d questions", asked+len(h.rooms))
	}
	p.Quit()
}

func TestFreezeUnderLaunches(t *testing.T) {
	const threads = 8
	_, p, h := attach(t)
	counters := p.Do("threads %d", threads)
	for round := range 20 {
		f := must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
		// Nobody is inside: what was launched is what was done, exactly, and it stays so.
		sum := func() (n uint64) {
			for _, va := range counters {
				n += h.word(va)
			}
			return n
		}
		first := sum()
		c := h.page.Read()
		if first != f.Launches || c.Launches != first || !c.GateClosed || c.Inside != 0 {
			t.Fatalf("round %d: %d done, FROZEN says %d, page %+v", round, first, f.Launches, c)
		}
		must[*wire.Failed](t, h.ask(&wire.Freeze{TimeoutMillis: 1000}))
		if again := sum(); again != first {
			t.Fatalf("round %d: %d launches ran while frozen", round, again-first)
		}
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	total := p.Do("stop %d", threads)[0]
	if c := h.page.Read(); c.Launches != total || c.GateClosed {
		t.Errorf("%d launches done, page %+v", total, c)
	}
	p.Quit()
}

func TestReleaseAndMap(t *testing.T) {
	const threads = 8
	d, p, h := attach(t)
	counters := p.Do("threads %d", threads)
	before := uint64(0)
	for round := range 10 {
		h.eventually("launches", func() bool { return h.page.Read().Launches > before })
		h.release()
		for _, what := range []string{"handles", "maps"} {
			if n := p.Do("count %s", what)[0]; n != 0 {
				t.Fatalf("round %d: %d %s are left", round, n, what)
			}
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.hello.PID))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", h.hello.PID, e.Name()))
			if strings.Contains(link, "memfd") || strings.Contains(link, "socket") ||
				strings.Contains(link, "eventfd") {
				t.Fatalf("round %d: descriptor %s is open: %s", round, e.Name(), link)
			}
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", h.hello.PID))
		if err != nil || bytes.Contains(maps, []byte("memfd:holdfast")) {
			t.Fatalf("round %d: the shared page is still mapped (%v)", round, err)
		}
		sum := uint64(0)
		for _, va := range counters {
			sum += h.word(va)
		}
		if sum <= before {
			t.Fatalf("round %d: nothing was launched since the last", round)
		}
		before = sum
		h = d.giveBack(h)
		if c := h.page.Read(); c.Launches != sum || !c.GateClosed {
			t.Fatalf("round %d: %d launched, page %+v", round, sum, c)
		}
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	total := p.Do("stop %d", threads)[0]
	if c := h.page.Read(); c.Launches != total {
		t.Errorf("%d launches done, page %+v", total, c)
	}
	p.Quit()
}

// A give-back that lacks something fails by name, and can be repeated.
func TestMapFails(t *testing.T) {
	d, p, h := attach(t)
	a := p.OK("alloc %d", 2<<20)[0]
	b := p.OK("alloc %d", 4<<20)[0]
	p.OK("write %d 5", b)
	h.until("both", func() bool { return len(h.allocs) == 2 })
	h.release()
	wake(t, h)
	h2 := d.take()
	for id, al := range h.allocs {
		if al.VA == a {
			h2.c.Send(0, &wire.Map{ID: id, VA: al.VA, Size: al.Size, Access: 3}, h.fds[id])
		} else {
			h2.c.Send(0, &wire.Map{ID: id, VA: al.VA, Size: al.Size / 2, Access: 3}, h.fds[id])
		}
	}
	f := must[*wire.Failed](t, h2.ask(&wire.MapEnd{}))
	if f.Code != wire.FailedMap || !strings.Contains(f.Text, "4194304 bytes") {
		t.Errorf("%+v", f)
	}
	must[*wire.Failed](t, h2.ask(&wire.Thaw{}))
	for id, al := range h.allocs {
		if al.VA == b {
			h2.c.Send(0, &wire.Map{ID: id, VA: al.VA, Size: al.Size, Access: 3}, h.fds[id])
		}
	}
	must[*wire.Mapped](t, h2.ask(&wire.MapEnd{}))
	must[*wire.Thawed](t, h2.ask(&wire.Thaw{}))
	if v := p.OK("read %d", b)[0]; v != 5 {
		t.Errorf("read %d", v)
	}
	p.Quit()
}

func TestDaemonDies(t *testing.T) {
	const threads = 4
	d, p, h := attach(t)
	kept := p.OK("alloc %d", 2<<20)[0]
	p.OK("write %d 4711", kept)
	p.OK("managed 4096")
	p.OK("module") // besides the program's own
	counters := p.Do("threads %d", threads)
	for round, die := range []func(){
		func() {},
		func() { must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime})) }, // frozen: it thaws itself
		func() { // its memory is imported, which this driver does not export again
			h.release()
			h = d.giveBack(h)
			must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
		},
		func() { // in the middle of giving back
			h.release()
			wake(t, h)
			half := d.take()
			for id, a := range h.allocs {
				half.c.Send(0, &wire.Map{ID: id, VA: a.VA, Size: a.Size, Access: 3}, h.fds[id])
				break
			}
			half.drop()
			h = d.giveBack(h)
			must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
		},
	} {
		die()
		launches := h.page.Read().Launches
		h.drop()
		h = d.take()
		if h.hello.Flags != wire.HelloReadopt|can || h.hello.Token != token {
			t.Fatalf("round %d: %+v", round, h.hello)
		}
		h.until("ADOPTED", func() bool { return h.adopted != nil })
		if h.adopted.Lost != 0 || h.word(kept) != 4711 {
			t.Fatalf("round %d: %+v, word %d", round, h.adopted, h.word(kept))
		}
		for _, va := range counters {
			if !h.holds(va) {
				t.Fatalf("round %d: %#x is not announced", round, va)
			}
		}
		if len(h.caveats) != 1 || h.caveats[0].Code != wire.CaveatManaged || len(h.modules) != 2 ||
			h.modules[0].Kind != wire.ModulePTX {
			t.Fatalf("round %d: caveats %v, modules %v", round, h.caveats, h.modules)
		}
		h.eventually("launches", func() bool { return h.page.Read().Launches > launches })
	}
	total := p.Do("stop %d", threads)[0]
	if c := h.page.Read(); c.Launches != total {
		t.Errorf("%d launches done, page %+v", total, c)
	}
	if v := p.OK("read %d", kept)[0]; v != 4711 {
		t.Errorf("read %d", v)
	}
	p.Quit()
}

func TestCaptureRefusesFreeze(t *testing.T) {
	_, p, h := attach(t)
	a := p.OK("alloc %d", 2<<20)[0]
	p.OK("begin")
	f := must[*wire.Failed](t, h.ask(&wire.Freeze{TimeoutMillis: 50}))
	if f.Code != wire.FailedCapture || !strings.Contains(f.Text, "cuStreamBeginCapture") {
		t.Errorf("%+v", f)
	}
	p.OK("free %d", a) // waiting for the device now would break the capture
	if n := p.Do("count handles")[0]; n != 1 {
		t.Errorf("%d handles: the memory was not kept until the capture ends", n)
	}
	g := p.OK("alloc %d", 2<<20)[0]
	p.OK("free %d", g)
	p.OK("end")
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.OK("alloc 512")
	h.until("the deferred FREEs", func() bool { return !h.holds(a) && !h.holds(g) })
	p.Quit()
}

func TestBusyDeviceRefusesFreeze(t *testing.T) {
	_, p, h := attach(t)
	a := p.OK("alloc 4096")[0]
	p.OK("busy 1")
	f := must[*wire.Failed](t, h.ask(&wire.Freeze{TimeoutMillis: 50}))
	if f.Code != wire.FailedSync || !strings.Contains(f.Text, "cuCtxSynchronize") {
		t.Errorf("%+v", f)
	}
	p.OK("write %d 3", a) // the gate is open
	p.OK("busy 0")
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.Quit()
}

// The wait of a freeze that was given up goes on for a while. It ends with the context that it is at: the program may
// capture meanwhile, which a wait would spoil.
func TestGivenUpFreezeSparesCaptures(t *testing.T) {
	_, p, h := attach(t)
	p.OK("ctxcreate")
	tasks := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := tasks()
	p.OK("busy 1")
	if f := must[*wire.Failed](t, h.ask(&wire.Freeze{TimeoutMillis: 50})); f.Code != wire.FailedSync {
		t.Errorf("%+v", f)
	}
	p.OK("begin")
	p.OK("busy 0")
	h.eventually("the end of the wait", func() bool { return tasks() == before })
	if n := p.Do("count spoiled")[0]; n != 0 {
		t.Errorf("%d waits within the capture", n)
	}
	p.OK("end")
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.Quit()
}

// A freeze that may wait for a calm moment leaves the gate open while the program waits for the device, and shuts it
// when that ends.
func TestCalm(t *testing.T) {
	_, p, h := attach(t)
	a, b := p.OK("alloc 4096")[0], p.OK("alloc 4096")[0]
	p.OK("write %d 1", a)
	p.OK("busy 1")
	p.OK("waits %d", a)
	h.eventually("the thread to wait", func() bool { return p.Do("count waiting")[0] == 1 })
	h.seq++
	err := errors.Join(h.c.Send(0, &wire.Calm{Millis: 600000}), h.c.Send(h.seq, &wire.Freeze{TimeoutMillis: inTime}))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		p.OK("write %d 1", b)
		time.Sleep(time.Millisecond)
	}
	p.OK("busy 0")
	f := must[*wire.Frozen](t, h.answer(h.seq))
	if f.GateNanos > uint64(patience) {
		t.Errorf("%+v", f)
	}
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.OK("waited")
	if v := p.OK("read %d", a)[0]; v != 5 {
		t.Errorf("read %d", v)
	}
	p.Quit()
}

// A program that does nothing is calm.
func TestCalmIdle(t *testing.T) {
	_, p, h := attach(t)
	if err := h.c.Send(0, &wire.Calm{Millis: 600000}); err != nil {
		t.Fatal(err)
	}
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.Quit()
}

// A thread that does not leave the driver stops the freeze, by name, and nothing else.
func TestInsideRefusesFreeze(t *testing.T) {
	_, p, h := attach(t)
	a := p.OK("alloc %d", 2<<20)[0]
	p.OK("busy 1")
	p.Send("free %d", a) // waits for the device
	h.eventually("the thread to be inside", func() bool { return h.page.Read().Inside > 0 })
	f := must[*wire.Failed](t, h.ask(&wire.Freeze{TimeoutMillis: 50}))
	if f.Code != wire.FailedInside || !strings.Contains(f.Text, "cuMemFree") {
		t.Errorf("%+v", f)
	}
	p.Cmd.Process.Kill()
}

func TestPools(t *testing.T) {
	d, p, h := attach(t)
	a := p.OK("async %d 16", 3<<20)[0]
	s := p.OK("async 1000 16")[0]
	h.until("both", func() bool { return h.holds(a) && h.holds(s) })
	if n := p.Do("count direct")[0]; n != 0 {
		t.Errorf("%d allocations of the driver's own", n)
	}
	const reserved, used, usedHigh = 5, 7, 8
	if v := p.OK("pool %d", used)[0]; v != 3<<20+1000 {
		t.Errorf("used %d", v)
	}
	if v := p.OK("pool %d", reserved)[0]; v != 4<<20+2<<20 {
		t.Errorf("reserved %d", v)
	}
	p.OK("late 1")
	p.OK("freeasync %d 16", a)
	if r := p.Do("freeasync %d 16", a); r[0] != 1 {
		t.Errorf("freed twice: %v", r)
	}
	// The same stream may have it at once, another one not before its event.
	if b := p.OK("async %d 32", 3<<20)[0]; b == a {
		t.Error("another stream got memory that is still in use")
	}
	if b := p.OK("async %d 16", 3<<20)[0]; b != a {
		t.Error("the same stream did not get its memory back")
	}
	p.OK("freeasync %d 16", a)
	p.OK("late 0")
	if b := p.OK("async %d 48", 3<<20)[0]; b != a {
		t.Error("idle memory was not used again")
	}
	if v := p.OK("pool %d", usedHigh)[0]; v != 6<<20+1000 {
		t.Errorf("high water mark of use %d", v)
	}
	// Over the release threshold (0), what is free goes back when free memory is asked for.
	p.OK("freeasync %d 48", a)
	before := p.Do("count physical")[0]
	p.OK("free?")
	if after := p.Do("count physical")[0]; before-after != 4<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
	p.OK("begin")
	g := p.OK("async %d 77", 2<<20)[0]
	p.OK("freeasync %d 77", g)
	p.OK("end")
	p.OK("freeasync %d 77", g)
	h.release()
	h = d.giveBack(h)
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	if !h.holds(g) {
		t.Error("memory of a captured graph is gone")
	}
	p.OK("write %d 1", g)
	p.Quit()
}

func TestVMM(t *testing.T) {
	d, p, h := attach(t)
	const mib = 1 << 20
	handle := p.OK("create %d", 4*mib)[0]
	va := p.OK("reserve %d", 16*mib)[0]
	p.OK("map %d %d %d", va, 4*mib, handle)
	p.OK("map %d %d %d", va+8*mib, 4*mib, handle)
	p.OK("write %d 99", va+8)
	if v := p.OK("read %d", va+8*mib+8)[0]; v != 99 {
		t.Errorf("the second mapping shows %d", v)
	}
	p.OK("release %d", handle) // stays while it is mapped
	mapped := func() (n int) {
		seen := map[uint64]bool{}
		for _, m := range h.mappings {
			seen[m.VA] = m.Mapped == 1 && m.Access == 3
		}
		for _, on := range seen {
			if on {
				n++
			}
		}
		return n
	}
	h.until("two mappings", func() bool { return mapped() == 2 && len(h.allocs) == 1 })
	for range 3 {
		h.release()
		if n := p.Do("count handles")[0]; n != 0 {
			t.Fatalf("%d handles are left", n)
		}
		h = d.giveBack(h)
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	if v := p.OK("read %d", va+8*mib+8)[0]; v != 99 {
		t.Errorf("after coming back: %d", v)
	}
	p.OK("unmap %d %d", va, 4*mib)
	if v := p.OK("read %d", va+8*mib+8)[0]; v != 99 {
		t.Errorf("after unmapping the first: %d", v)
	}
	p.OK("unmap %d %d", va+8*mib, 4*mib)
	h.until("FREE", func() bool { return len(h.allocs) == 0 })
	if n := p.Do("count physical")[0]; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	if r := p.Do("map %d %d %d", va, 4*mib, handle); r[0] == 0 {
		t.Error("a released handle was mapped")
	}
	p.Quit()
}

func TestFork(t *testing.T) {
	_, p, h := attach(t)
	counters := p.Do("threads 4")
	for range 5 {
		// The child may not come up (as with the real driver), holds none of our descriptors and does not disturb the
		// parent.
		if r := p.Do("fork"); r[0] != 3 || r[1] != 0 {
			t.Fatalf("in the child: %v", r)
		}
		must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
		sum := uint64(0)
		for _, va := range counters {
			sum += h.word(va)
		}
		if c := h.page.Read(); c.Launches != sum {
			t.Fatalf("%d launched, page %+v", sum, c)
		}
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	p.Do("stop 4")
	p.Quit()
	if s := p.Stderr.String(); s != "" {
		t.Errorf("stderr:\n%s", s)
	}
}

// A child lets go of the device, so that it can be dumped; the parent does not, nor does a child of a program that
// nobody holds.
func TestForkLeavesDevice(t *testing.T) {
	const mappings = 1000
	shim := filepath.Join(build(t), "device", "libholdfast.so")
	env := []string{"LD_PRELOAD=" + shim, "FAKE_DEVICE=" + rig.Device, "FAKE_MAPPINGS=" + strconv.Itoa(mappings)}
	_, p, _ := attach(t, env...)
	for range 2 {
		r := p.Do("device %s", rig.Device)
		if len(r) != 6 || r[0] != mappings || r[1] != 2 || r[2] == 0 {
			t.Fatalf("in the parent: %v", r)
		}
		if r[3] != 0 || r[4] != 0 || r[5] != 0 {
			t.Errorf("in the child: %d mappings, %d descriptors, sum %d", r[3], r[4], r[5])
		}
	}
	p.Quit()

	unheld := start(t, t.TempDir(), env...)
	unheld.OK("init")
	if r := unheld.Do("device %s", rig.Device); len(r) != 6 || r[3] != mappings || r[4] != 2 {
		t.Errorf("unheld: %v", r)
	}
	unheld.Quit()
}

// A child forked before the driver is up is a program of its own; so is what is executed.
func TestForkBeforeInitAndExec(t *testing.T) {
	d, p, h := attach(t)
	p.Send("exec")
	h.ended()
	p.Send("init")
	h2 := d.take()
	if r := p.Line(); r != "0" || h2.hello.Flags != can || h2.hello.PID != h.hello.PID || h2.hello.Token == token {
		t.Errorf("init %s, %+v", r, h2.hello)
	}
	p.Quit()
}

func TestThreadsComeAndGo(t *testing.T) {
	_, p, h := attach(t)
	p.OK("churn 3000")
	if c := h.page.Read(); c.Launches != 3000 {
		t.Errorf("%+v", c)
	}
	p.Quit()
}

func TestHostileDaemon(t *testing.T) {
	for name, m := range map[string]wire.Message{
		"a message of the wrong direction": &wire.Hello{},
		"RELEASE when not frozen":          &wire.Release{},
		"MAP when nothing is away":         &wire.Map{ID: 1, Size: 2 << 20},
		"MAPEND":                           &wire.MapEnd{},
		"THAW":                             &wire.Thaw{},
	} {
		t.Run(name, func(t *testing.T) {
			d, p, h := attach(t)
			a := p.OK("alloc 4096")[0]
			f := must[*wire.Failed](t, h.ask(m))
			if f.Code != wire.FailedState && f.Code != wire.FailedProtocol && f.Code != wire.FailedOpen {
				t.Errorf("%+v", f)
			}
			p.OK("write %d 1", a)
			if f.Code == wire.FailedProtocol {
				d.take() // it hung up and looks for a better one
			}
			p.Quit()
		})
	}
}

func TestQuit(t *testing.T) {
	_, p, h := attach(t)
	a := p.OK("alloc 4096")[0]
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	if err := h.c.Send(1, &wire.Quit{}); err != nil {
		t.Fatal(err)
	}
	h.ended()
	p.OK("write %d 8", a)
	p.OK("alloc 4096")
	if n := p.Do("count direct")[0]; n != 1 {
		t.Errorf("%d allocations of the driver's own", n)
	}
	p.OK("free %d", a)
	p.Quit()
}

// Memory that was away is imported when it is back, and the driver does not export that: the daemon has a descriptor to
// give.
func TestExport(t *testing.T) {
	const mib = 1 << 20
	d, p, h := attach(t)
	inode := func(fd int) uint64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	descriptors := func() int {
		t.Helper()
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.hello.PID))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	asked := 0 // of this conversation
	move := func() {
		t.Helper()
		h.release()
		h, asked = d.giveBack(h), 0
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	// Mapped allocations of the program, which may be exported, and one that may not.
	var handles, vas, ids []uint64
	create := func(types int) {
		t.Helper()
		had := maps.Clone(h.allocs)
		handle := p.OK("create %d %d", 2*mib, types)[0]
		va := p.OK("reserve %d", 2*mib)[0]
		p.OK("map %d %d %d", va, 2*mib, handle)
		h.until("ALLOC", func() bool { return len(h.allocs) == len(had)+1 })
		for id := range h.allocs {
			if had[id] == nil {
				ids = append(ids, id)
			}
		}
		handles, vas = append(handles, handle), append(vas, va)
	}
	for range 6 {
		create(1)
	}
	create(0)
	const private = 6
	question := func(i int) *wire.Share {
		t.Helper()
		h.until("SHARE", func() bool { return len(h.shares) > asked })
		asked++
		m := h.shares[asked-1]
		if m.Alloc != ids[i] {
			t.Fatalf("%+v, want allocation %d", m, ids[i])
		}
		return m
	}
	answer := func(m *wire.Share, fds ...int) {
		t.Helper()
		if err := h.c.Send(0, &wire.Shared{ID: m.ID}, fds...); err != nil {
			t.Fatal(err)
		}
	}
	exported := func(when string, want uint64) {
		t.Helper()
		if r := p.Line(); r != fmt.Sprintf("0 %d", want) {
			t.Fatalf("%s: %s, want file %d", when, r, want)
		}
	}
	p.Send("export %d", handles[0])
	exported("never moved", inode(h.fds[ids[0]]))
	move()
	for i, want := range []uint64{1, 1, 1, 1, 1, 1, 0} {
		if got := p.OK("types %d", vas[i])[0]; got != want {
			t.Errorf("allocation %d may be exported as %d, want %d", i, got, want)
		}
	}
	had := descriptors()
	p.Send("export %d", handles[0])
	m := question(0)
	answer(m, h.fds[ids[0]])
	exported("moved", inode(h.fds[ids[0]]))
	p.Send("export %d", handles[1])
	answer(question(1))
	if r := p.Line(); !strings.HasPrefix(r, "1 ") {
		t.Errorf("the daemon has none: %s", r)
	}
	if r := p.Do("export %d", handles[private]); r[0] != 1 {
		t.Errorf("what may not be exported: %d", r)
	}

	// A freeze does not wait for who waits; the answer may come while everything stands still.
	p.Send("export %d", handles[1])
	m = question(1)
	f := must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	if f.GateNanos > wire.ShareMillis*1e6/2 || f.Waiting != 1 {
		t.Errorf("%+v", f)
	}
	answer(m, h.fds[ids[1]])
	answer(m, h.fds[ids[1]]) // twice
	answer(&wire.Share{ID: m.ID + 100}, h.fds[ids[1]])
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	exported("frozen meanwhile", inode(h.fds[ids[1]]))

	// An answer from before a move may be of other memory.
	p.Send("export %d", handles[2])
	m = question(2)
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	answer(m, h.fds[ids[1]])
	must[*wire.Released](t, h.ask(&wire.Release{}))
	h.hangUp()
	h, asked = d.giveBack(h), 0
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	m = question(2)
	answer(m, h.fds[ids[2]])
	exported("moved meanwhile", inode(h.fds[ids[2]]))
	if n := descriptors(); n != had {
		t.Errorf("%d descriptors are open, %d before", n, had)
	}

	// The next daemon gets what was not exported, moved to memory that can be. What was exported stays where the others
	// have it.
	theirs, err := unix.FcntlInt(uintptr(h.fds[ids[0]]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(theirs)
	p.OK("dmabuf %d 4096", vas[5]+mib)
	p.OK("write %d 17", vas[3])
	p.Send("export %d", handles[3])
	question(3)
	h.drop()
	h, asked = d.take(), 0
	h.until("ADOPTED", func() bool { return h.adopted != nil })
	if h.adopted.Lost != 4*2*mib || h.allocs[ids[0]] != nil || h.allocs[ids[5]] != nil || h.allocs[ids[3]] == nil {
		t.Errorf("%+v", h.adopted)
	}
	exported("by the next daemon", inode(h.fds[ids[3]]))
	if v := p.OK("read %d", vas[3])[0]; v != 17 {
		t.Errorf("read %d", v)
	}
	p.OK("write %d 4711", vas[0])
	var word [8]byte
	if _, err := unix.Pread(theirs, word[:], 0); err != nil || binary.LittleEndian.Uint64(word[:]) != 4711 {
		t.Errorf("exported memory is not shared any more: %v, %v", word, err)
	}
	for _, i := range []int{0, 1, 2, 5} { // let go of, so that nothing stays behind when all is released
		p.OK("unmap %d %d", vas[i], 2*mib)
		p.OK("release %d", handles[i])
	}

	// Without any daemon, too; and with none from now on.
	move()
	p.Send("export %d", handles[4])
	question(4)
	d.l.Close()
	h.drop()
	if r := p.Line(); !strings.HasPrefix(r, "0 ") {
		t.Errorf("without a daemon: %s", r)
	}
	p.Quit()
}

func TestQuitExport(t *testing.T) {
	d, p, h := attach(t)
	handle := p.OK("create %d 1", 2<<20)[0]
	h.until("ALLOC", func() bool { return len(h.allocs) == 1 })
	h.release()
	h = d.giveBack(h)
	if err := h.c.Send(1, &wire.Quit{}); err != nil {
		t.Fatal(err)
	}
	h.ended()
	p.OK("export %d", handle)
	p.Quit()
}

// A program that ends by itself says so; one that is killed cannot, and its children do not say it for it.
func TestBye(t *testing.T) {
	_, p, h := attach(t)
	p.Do("fork") // the child exits
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	if h.bye {
		t.Error("the child said it")
	}
	p.Quit()
	h.ended()
	if !h.bye {
		t.Error("the program ended without BYE")
	}
	_, p, h = attach(t)
	p.Cmd.Process.Kill()
	h.ended()
	if h.bye {
		t.Error("a killed program said BYE")
	}
}

// A program may end at any moment, frozen or without its memory: it ends when it has been given back what was taken,
// and its last calls are made then.
func TestExit(t *testing.T) {
	frozen := func(t *testing.T) (*daemon, *program, *held) {
		d, p, h := attach(t, "PROG_LAST_CALL=1")
		p.OK("alloc 4096")
		must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
		return d, p, h
	}
	end := func(p *program, h *held) {
		p.t.Helper()
		must[*wire.Thawed](p.t, h.ask(&wire.Thaw{}))
		h.ended()
		if !h.bye {
			p.t.Error("no BYE")
		}
		if r := p.Line(); r != "last 0" {
			p.t.Errorf("its last call: %s", r)
		}
		if err := p.Cmd.Wait(); err != nil {
			p.t.Errorf("%v\n%s", err, p.Stderr)
		}
	}
	quit := func(p *program) {
		p.t.Helper()
		p.Send("quit")
		p.waits()
	}
	t.Run("frozen", func(t *testing.T) {
		_, p, h := frozen(t)
		quit(p)
		end(p, h)
	})
	t.Run("released", func(t *testing.T) {
		d, p, h := frozen(t)
		must[*wire.Released](t, h.ask(&wire.Release{}))
		h.hangUp()
		quit(p)
		end(p, d.giveBack(h))
	})
	t.Run("on its way back", func(t *testing.T) {
		d, p, h := frozen(t)
		must[*wire.Released](t, h.ask(&wire.Release{}))
		h.park(0)
		h = d.giveBack(h)
		quit(p)
		end(p, h)
	})
	t.Run("without a daemon", func(t *testing.T) {
		_, p, h := frozen(t)
		quit(p)
		h.drop()
		if r := p.Line(); r != "last 0" {
			t.Errorf("its last call: %s", r)
		}
		if err := p.Cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, p.Stderr)
		}
	})
}

// Host memory that other processes have too, and the driver knows: it saves such a process and cannot restore it.
func TestSharedHostMemory(t *testing.T) {
	// Its line of /proc/self/maps does not fit our buffer; what is behind that looks like a line of shared memory.
	dir := t.TempDir()
	dir = filepath.Join(dir, strings.Repeat("a", 218), strings.Repeat("b", 437-1-218-1-len(dir)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "0-ffffffffffffffff rw-s")
	if err := os.WriteFile(file, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	_, p, h := attach(t, "REGISTER="+file)
	p.OK("register 0")
	p.OK("register 2")
	shared := p.OK("register 1")[0]
	h.until("a caveat", func() bool { return len(h.caveats) > 0 })
	c := h.caveats[0]
	if c.Code != wire.CaveatHostMemory || c.Flags != wire.CaveatBlocksFull || c.Subject != shared || c.Count != 1 {
		t.Errorf("%+v", c)
	}
	p.OK("unregister %d", shared)
	h.until("its end", func() bool { return len(h.caveats) > 1 })
	if c := h.caveats[1]; c.Subject != shared || c.Count != 0 {
		t.Errorf("%+v", c)
	}
	p.Quit()
}

func TestProcAddress(t *testing.T) {
	_, p, _ := attach(t)
	p.Send("procs")
	want := "libholdfast.so:cuLaunchKernel libholdfast.so:cuLaunchKernel_ptsz libholdfast.so:cuMemAlloc_v2 libcuda.so.1"
	if got := p.Line(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	p.Quit()
}

// BenchmarkLaunch prints what a hooked launch costs beside a direct one (the fake driver does nothing).
func BenchmarkLaunch(b *testing.B) {
	_, p, _ := attach(b)
	for b.Loop() {
		p.Send("cost")
		var hooked, direct float64
		if _, err := fmt.Sscanf(p.Line(), "%f %f", &hooked, &direct); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(hooked, "ns/hooked")
		b.ReportMetric(direct, "ns/direct")
	}
}
