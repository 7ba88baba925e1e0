package shim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/softgpu/device"
	"holdfast/internal/wire"
	"holdfast/test/rig"
)

// driverEnv names the directory of the libcuda.so.1 that TestDriver runs on; unset: the stub and a software GPU.
const driverEnv = "HOLDFAST_TEST_LIBCUDA"

// driver gives the environment of programs that use a whole driver, and whether that is the software GPU.
func driver(t *testing.T) (env []string, soft bool) {
	t.Helper()
	if dir := os.Getenv(driverEnv); dir != "" {
		return []string{"LD_LIBRARY_PATH=" + dir}, false
	}
	socket, _ := rig.GPU(t, device.Config{Memory: 1 << 30, Devices: 1, Deterministic: true})
	return rig.Environment(t, socket), true
}

// driverCheckpoint has the driver take down a released program and bring it back; it stands still all that time.
func (h *held) driverCheckpoint(tool string, env []string) (log string) {
	h.t.Helper()
	step := func(names ...string) string {
		h.t.Helper()
		cmd := exec.Command(tool, append([]string{strconv.Itoa(int(h.hello.PID))}, names...)...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			h.t.Fatalf("driver checkpoint: %v\n%s", err, out)
		}
		return string(out)
	}
	log = step("lock")
	tid, err := strconv.Atoi(strings.TrimSpace(step("thread")))
	if err != nil {
		h.t.Fatal(err)
	}
	p := h.park(tid)
	return fmt.Sprintf("%s%d threads parked in %d µs %s", log, p.Threads, p.Nanos/1000,
		step("checkpoint", "restore", "unlock"))
}

// TestDriver runs a program with real kernels through freezing, letting go, coming back and the death of the daemon.
func TestDriver(t *testing.T) {
	dir := build(t)
	env, soft := driver(t)
	const threads = 4
	d, p, h := attach(t, env...)
	big := p.OK("alloc %d", 64<<20)[0]
	small := p.OK("alloc 1000")[0]
	p.OK("stream")
	p.OK("fill %d 17 %d", big, 64<<20)
	p.OK("fill %d 0 8", small)
	word := p.OK("alloc 8")[0]
	p.OK("fill %d 0 8", word)
	if r := p.OK("context %d", small); r[0] != 1 {
		t.Error("the memory does not belong to its context")
	}
	if r := p.OK("range %d", small+999); r[0] != small || r[1] != 1000 {
		t.Errorf("range %v", r)
	}
	p.OK("graph %d 0", word)
	scratch := p.OK("graph %d 2", word)[0]
	p.OK("fill %d 0 8", scratch)
	pool := p.OK("async %d 0", 5<<20)[0]
	p.OK("fill %d 34 %d", pool, 5<<20)
	handle := p.OK("create %d", 4<<20)[0]
	va := p.OK("reserve %d", 8<<20)[0]
	p.OK("map %d %d %d", va, 4<<20, handle)
	p.OK("map %d %d %d", va+4<<20, 4<<20, handle)
	p.OK("fill %d 51 %d", va, 4<<20)
	p.Do("threads %d", threads)
	launched, graphs := uint64(0), uint64(0)
	check := func(when string) {
		t.Helper()
		for at, want := range map[uint64]uint64{big: 0x1111111111111111, big + 64<<20 - 8: 0x1111111111111111,
			small: launched, word: graphs,
			scratch: graphs, pool + 5<<20 - 8: 0x2222222222222222, va + 4<<20: 0x3333333333333333} {
			if got := p.OK("read %d", at)[0]; got != want {
				t.Fatalf("%s: at %#x: %#x, want %#x", when, at, got, want)
			}
		}
	}
	work := func() {
		p.OK("launch %d 10", small)
		p.OK("glaunch 3")
		launched += 10
		graphs += 3
	}
	work()
	check("at first")
	for round := range 4 {
		before := h.page.Read().Launches
		h.eventually("launches", func() bool { return h.page.Read().Launches > before })
		started := time.Now()
		h.letGo()
		t.Logf("round %d: %d allocations let go after %v", round, len(h.allocs), time.Since(started))
		if soft {
			if got := h.word(small); got != launched {
				t.Errorf("held memory says %d, want %d", got, launched)
			}
		}
		if round > 0 {
			// As in a whole-process checkpoint: the driver's own state goes away and comes back while the memory is
			// with us.
			t.Logf("round %d: %s", round, h.driverCheckpoint(filepath.Join(dir, "ckpt"), env))
		} else {
			h.hangUp()
		}
		started = time.Now()
		h = d.giveBack(h)
		t.Logf("round %d: back after %v", round, time.Since(started))
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
		check("after coming back")
		work()
		check("after going on")
		if round%2 == 1 {
			h.drop()
			h = d.take()
			h.until("ADOPTED", func() bool { return h.adopted != nil })
			if h.hello.Flags != wire.HelloReadopt|can || h.adopted.Lost != 0 {
				t.Fatalf("round %d: %+v, %+v", round, h.hello, h.adopted)
			}
			check("under a new daemon")
			work()
		}
	}
	total := p.Do("stop %d", threads)[0]
	if c := h.page.Read(); c.Launches-4 != total+launched || c.Graphs != graphs { // 4 went into graphs
		t.Errorf("%d and %d launches and %d graphs done, page %+v", total, launched, graphs, c)
	}
	p.OK("freeasync %d 0", pool)
	p.OK("free %d", big)
	h.until("FREE", func() bool { return !h.holds(big) })
	if i := slices.IndexFunc(h.caveats, func(c *wire.Caveat) bool {
		return c.Code == wire.CaveatDriverMemory
	}); i >= 0 {
		t.Errorf("memory stays with the driver: %s", h.caveats[i].Text)
	}
	p.Quit()
	if s := p.Stderr.String(); s != "" {
		t.Errorf("stderr:\n%s", s)
	}
}
