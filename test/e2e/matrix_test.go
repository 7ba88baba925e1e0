package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"
)

// An operation of the matrix is a command of holdfast on a program.
type operation struct {
	name  string
	args  []string // "PROGRAM" and "IMAGE" are replaced
	after string   // what must have been done before it: a checkpoint that ends the program, a suspend, an image
	// How long it takes, as a multiple of the start of a program. A fault strikes within about that time.
	usual float64
	criu  bool // CRIU takes part
	disk  bool // it writes an image to disk
	storm bool // it is also done to the storm program
}

var operations = []operation{
	{name: "checkpoint", args: strings.Fields("checkpoint PROGRAM -o IMAGE --leave-running"), usual: 2.5, criu: true,
		disk: true, storm: true},
	{name: "checkpoint, ends", args: strings.Fields("checkpoint PROGRAM -o IMAGE"), usual: 2, criu: true, disk: true},
	{name: "checkpoint, GPU only", args: strings.Fields("checkpoint PROGRAM -o IMAGE --gpu-only"), usual: 0.5,
		disk: true, storm: true},
	{name: "suspend to host", args: strings.Fields("suspend PROGRAM"), usual: 0.5, storm: true},
	{name: "suspend to disk", args: strings.Fields("suspend PROGRAM --to disk -o IMAGE"), usual: 0.5, disk: true},
	{name: "suspend to GPU", args: strings.Fields("suspend PROGRAM --to gpu"), usual: 0.4, storm: true},
	{name: "resume from host", args: strings.Fields("resume PROGRAM"), after: "suspend PROGRAM",
		usual: 0.5, storm: true},
	{name: "resume from disk", args: strings.Fields("resume PROGRAM"), after: "suspend PROGRAM --to disk -o IMAGE",
		usual: 0.5},
	{name: "resume on GPU", args: strings.Fields("resume PROGRAM"), after: "suspend PROGRAM --to gpu", usual: 0.4,
		storm: true},
	{name: "restore, warm", args: strings.Fields("restore IMAGE --detach"), after: "checkpoint PROGRAM -o IMAGE",
		usual: 2, criu: true},
	{name: "restore, cold", args: strings.Fields("restore IMAGE --detach"), after: "checkpoint PROGRAM -o IMAGE",
		usual: 2, criu: true},
	{name: "restore, on demand", args: strings.Fields("restore IMAGE --detach --on-demand"),
		after: "checkpoint PROGRAM -o IMAGE", usual: 2, criu: true},
	{name: "rollback", args: strings.Fields("rollback PROGRAM IMAGE"), after: "checkpoint PROGRAM -o IMAGE --gpu-only",
		usual: 0.5},
}

func (o operation) checkpoints() bool { return strings.HasPrefix(o.name, "checkpoint") }
func (o operation) suspends() bool    { return strings.HasPrefix(o.name, "suspend") }
func (o operation) resumes() bool     { return strings.HasPrefix(o.name, "resume") }
func (o operation) restores() bool    { return strings.HasPrefix(o.name, "restore") }
func (o operation) ends() bool        { return o.name == "checkpoint, ends" }

// A fault of the matrix strikes while an operation is under way.
type fault struct {
	name   string
	strike func(c *combination) (undo func())
	fits   func(o operation) bool // nil: every operation
	told   bool                   // by the program itself, which must be one that does what it is told
	gone   bool                   // the program may be gone because of it
	lost   bool                   // it may stand still for ever because of it, until somebody ends it
}

var faults = []fault{
	{name: "none", strike: func(*combination) func() { return nil }},
	{name: "program killed", strike: func(c *combination) func() { return kill(c.living()...) }, gone: true},
	{name: "program stopped", strike: func(c *combination) func() { return stop(c.living()...) }},
	{name: "program exits", strike: tells("exit 7"), told: true, gone: true},
	{name: "program forks", strike: tells("fork"), told: true},
	// Neither daemon nor software GPU let another user in: whoever is away from them then does not come back.
	{name: "program changes user", strike: tells("user 65534"), told: true, gone: true, lost: true},
	{name: "command killed", strike: func(c *combination) func() { return kill(c.cmd.Process.Pid) }},
	{name: "daemon killed", strike: func(c *combination) func() { return kill(c.servers("daemon")...) }},
	{name: "daemon stopped", strike: func(c *combination) func() { return stop(c.servers("daemon")...) }},
	{name: "keeper killed", strike: func(c *combination) func() { return kill(c.servers("keeper")...) }},
	{name: "keeper stopped", strike: func(c *combination) func() { return stop(c.servers("keeper")...) }},
	// What no program has mapped just then is lost with both (docs/concepts.md).
	{name: "daemon and keeper killed", strike: func(c *combination) func() {
		return kill(append(c.servers("keeper"), c.servers("daemon")...)...)
	}, gone: true},
	// CRIU makes the program's threads run code of its own. Killed in such a moment it cannot put them back
	// (docs/criu.md).
	{name: "CRIU killed", strike: func(c *combination) func() { return kill(c.criu()...) },
		fits: func(o operation) bool { return o.criu }, gone: true},
	{name: "CRIU stopped", strike: func(c *combination) func() { return stop(c.criu()...) },
		fits: func(o operation) bool { return o.criu }},
	{name: "software GPU killed", strike: func(c *combination) func() {
		return kill(c.servers("softgpu")...)
	}, gone: true,
		lost: true},
	{name: "software GPU stopped", strike: func(c *combination) func() { return stop(c.servers("softgpu")...) }},
	{name: "daemon out of descriptors", strike: func(c *combination) func() { return starve(c.servers("daemon")) }},
	{name: "keeper out of descriptors", strike: func(c *combination) func() { return starve(c.servers("keeper")) }},
	// It ends the connection of the program, or of the daemon, that asks for one.
	{name: "software GPU out of descriptors", strike: func(c *combination) func() {
		return starve(c.servers("softgpu"))
	},
		gone: true, lost: true},
	{name: "program out of descriptors", strike: func(c *combination) func() { return starve(c.living()) }, gone: true},
	{name: "disk full", strike: func(c *combination) func() { return c.fill(c.s.path("images")) },
		fits: func(o operation) bool { return o.disk }},
	{name: "runtime directory full", strike: func(c *combination) func() { return c.fill(c.s.dir) }},
}

// kill returns when they are gone.
func kill(pids ...int) func() {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, pid := range pids {
		for end := time.Now().Add(limit); alive(pid) && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // between two looks
		}
	}
	return nil
}

func stop(pids ...int) func() {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	return func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

func tells(what string) func(*combination) func() {
	return func(c *combination) func() { c.r.send("%s", what); return nil }
}

// starve leaves processes no descriptor but those that they have.
func starve(pids []int) func() {
	had := map[int]unix.Rlimit{}
	for _, pid := range pids {
		var old unix.Rlimit
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil || unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old) != nil {
			continue
		}
		if unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: old.Max}, nil) == nil {
			had[pid] = old
		}
	}
	return func() {
		for pid, old := range had {
			unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)
		}
	}
}

// A combination is one operation with one fault, at a site of its own.
type combination struct {
	*testing.T
	s     *site
	rng   *rand.Rand
	op    operation
	fault fault
	mode  string
	name  string // of the program
	image string
	pid   int
	cmd   *exec.Cmd     // the operation
	ended chan struct{} // closed at its end
	r     *teller       // nil: it is the storm
	storm *program
	may   []string // checksums that the program's memory may have
	small []string // mounts
	// What came of it.
	says    strings.Builder
	worked  bool
	outcome string
	back    time.Duration // from the end of both, fault and operation, until the program had its memory
}

// combine returns combination n of a seed: it takes all pairs in turn, each time in another order.
func combine(seed uint64, n int) *combination {
	type pair struct {
		o operation
		f fault
	}
	var pairs []pair
	for _, o := range operations {
		for _, f := range faults {
			if (f.fits == nil || f.fits(o)) && strings.Contains(o.name+", "+f.name, os.Getenv("HOLDFAST_PAIR")) {
				pairs = append(pairs, pair{o, f})
			}
		}
	}
	order := rand.New(rand.NewPCG(seed, uint64(n/len(pairs)))).Perm(len(pairs))
	p := pairs[order[n%len(pairs)]]
	c := &combination{rng: rand.New(rand.NewPCG(seed, 1<<32+uint64(n))), op: p.o, fault: p.f, name: "teller"}
	if c.rng.IntN(24) == 0 && p.o.storm && !p.f.told {
		c.name = "storm"
	}
	if p.o.checkpoints() {
		c.mode = []string{"auto", "stage", "cow", "recopy", "stop"}[c.rng.IntN(5)]
	}
	return c
}

// Whatever is done to a program, and whoever dies, stops or finds no room meanwhile: afterwards the program runs with
// its memory, or is gone where it may be, or is suspended or an image and can come back; and nothing is left behind.
// HOLDFAST_SEED and HOLDFAST_COMBINATION do one combination again, HOLDFAST_ROUNDS says how many there are,
// HOLDFAST_PAIR limits them to what is named so ("rollback, daemon"), HOLDFAST_WORKERS says how many are done at once,
// and HOLDFAST_MATRIX_OUT is a file for the table.
func TestFaultMatrix(t *testing.T) {
	needs(t)
	seed, first, n := newSeed(t), number(t, "HOLDFAST_COMBINATION", -1), rounds(t, 24)
	if first >= 0 {
		n = 1
	}
	shm := hostImages()
	results := &table{rows: map[[2]string]*row{}}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, number(t, "HOLDFAST_WORKERS", runtime.NumCPU())) {
		wg.Go(func() {
			for i := range next {
				c := combine(seed, i)
				what := fmt.Sprintf("%d: %s, %s", i, c.op.name, c.fault.name)
				t.Run(what, func(t *testing.T) {
					c.T = t
					c.do()
				})
				results.add(c)
			}
		})
	}
	end := time.Now().Add(time.Duration(number(t, "HOLDFAST_MINUTES", 1<<20)) * time.Minute)
	for i := max(first, 0); n > 0 && time.Now().Before(end); i, n = i+1, n-1 {
		next <- i
	}
	close(next)
	wg.Wait()
	t.Log("\n" + results.String())
	results.save(t)
	newImages := func() []string {
		return slices.DeleteFunc(hostImages(), func(name string) bool { return slices.Contains(shm, name) })
	}
	for end := time.Now().Add(limit); len(newImages()) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) { // another test beside this one may have some for as long as it runs
			t.Errorf("left in host memory: %v", newImages())
			break
		}
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hostImages lists the images, whole or partial, of programs that are suspended to the host.
func hostImages() []string {
	dir := fmt.Sprintf("/dev/shm/holdfast-%d", os.Getuid())
	whole, _ := filepath.Glob(filepath.Join(dir, "*"))
	partial, _ := filepath.Glob(filepath.Join(dir, ".*.partial-*"))
	return append(whole, partial...)
}

// patience is how long a command waits for a program that does not come back.
const patience = 5 * time.Second

func (c *combination) do() {
	c.s = newSite(c.T)
	c.image = c.s.path("images/one")
	if c.fault.name == "disk full" {
		c.mount(c.s.path("images"), 64<<20)
	}
	if c.fault.name == "runtime directory full" {
		c.mount(c.s.dir, 16<<20)
	}
	c.s.daemon("--patience", patience.String())
	begun := time.Now()
	c.start()
	pace := time.Since(begun) // how fast this machine is just now
	c.prepare()
	delay := time.Duration(c.rng.Float64() * 1.2 * c.op.usual * float64(pace))
	hold := time.Duration(c.rng.Float64() * 600 * float64(time.Millisecond))
	c.operate()
	select { // the random point
	case <-c.ended:
	case <-time.After(delay):
	}
	undo := c.fault.strike(c)
	if undo != nil {
		time.Sleep(hold) // how long it lasts
		undo()
	}
	c.wait()
	c.Logf("%s (%s), %s after %v, for %v: succeeded: %t; %s", c.op.name, cmp.Or(c.mode, c.name), c.fault.name,
		delay.Round(time.Millisecond), hold.Round(time.Millisecond), c.worked, strings.TrimSpace(c.says.String()))
	c.check()
}

func (c *combination) start() {
	if c.name == "storm" {
		c.storm = c.s.start("storm", built.storm, c.s.path("stop"))
		c.s.until("the storm is held", func() bool {
			p := c.s.process("storm")
			c.pid = pidOf(p)
			return p != nil && p.Launches > 100
		})
		return
	}
	var args []string
	if c.rng.IntN(2) == 0 {
		args = append(args, "plain")
	}
	c.r = c.s.tellerBy("teller", nil, args...)
	c.r.expect("ready")
	c.r.tell("alloc 6")
	c.r.tell("alloc 2")
	c.r.tell("fill %d", c.rng.IntN(1000))
	c.may = []string{c.r.tell("sum")}
	c.pid = c.s.process("teller").PID
}

func pidOf(p *api.Process) int {
	if p == nil {
		return 0
	}
	return p.PID
}

func (c *combination) args(list []string) []string {
	list = slices.Clone(list)
	for i, a := range list {
		switch a {
		case "PROGRAM":
			list[i] = c.name
		case "IMAGE":
			list[i] = c.image
		}
	}
	return list
}

// prepare brings the program to where the operation can begin.
func (c *combination) prepare() {
	if c.op.after == "" {
		return
	}
	c.s.ok(c.args(strings.Fields(c.op.after))...)
	switch {
	case c.op.restores():
		c.r.wait()
		c.s.endProgram(c.pid)
		if c.op.name != "restore, warm" {
			c.s.ok("daemon", "stop", "--force")
			c.s.daemon("--patience", patience.String())
		}
	case c.op.name == "rollback":
		c.r.tell("fill %d", 1000+c.rng.IntN(1000))
		c.may = append(c.may, c.r.tell("sum"))
	}
}

func (c *combination) operate() {
	args := c.args(c.op.args)
	if c.mode != "" {
		args = append(args, "--mode", c.mode)
	}
	c.cmd = c.s.command(args...)
	c.cmd.Stderr = &c.says
	c.cmd.WaitDelay = time.Second // a daemon that it starts may have its standard error
	if err := c.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		c.worked = c.cmd.Wait() == nil
	}()
}

func (c *combination) wait() {
	select {
	case <-c.ended:
	case <-time.After(2 * limit):
		c.cmd.Process.Kill()
		<-c.ended
		c.Fatalf("%s does not end; it says: %s", c.op.name, c.says.String())
	}
}

// mount puts a small file system in the place of a directory.
func (c *combination) mount(dir string, size int) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.Fatal(err)
	}
	if err := syscall.Mount("holdfast-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size)); err != nil {
		c.Skipf("no small file system can be mounted: %v", err)
	}
	c.small = append(c.small, dir)
	c.Cleanup(func() {
		c.s.close()
		syscall.Unmount(dir, unix.MNT_DETACH)
	})
}

// fill leaves no room in a small file system.
func (c *combination) fill(dir string) func() {
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		return func() {}
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if n, err := f.Write(block); err != nil {
			block = block[:min(len(block)/2, len(block)-n)]
		}
	}
	return func() { os.Remove(name) }
}

// living is the program, if it is there.
func (c *combination) living() []int {
	if c.alive() {
		return []int{c.pid}
	}
	return nil
}

// alive says whether the program's process lives. It is one of this site, whoever had its number in between.
func (c *combination) alive() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	return err == nil && strings.Contains(string(line), c.s.work) && alive(c.pid)
}

// servers lists the processes of a kind.
func (c *combination) servers(verb string) []int {
	return slices.DeleteFunc(c.s.remains(), func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(string(line), "\x00")
		return len(words) < 3 || words[1] != verb
	})
}

// criu waits for CRIU, and then a moment.
func (c *combination) criu() []int {
	for {
		if list := c.s.criuProcesses(); len(list) > 0 {
			time.Sleep(time.Duration(c.rng.Int64N(int64(150 * time.Millisecond))))
			return c.s.criuProcesses()
		}
		select {
		case <-c.ended:
			return nil
		case <-time.After(2 * time.Millisecond): // between two looks
		}
	}
}

// check finds out what has become of the program, and that it is right.
func (c *combination) check() {
	since := time.Now()
	if c.fault.name == "daemon killed" && (c.op.checkpoints() && !c.op.ends() || c.op.name == "rollback") {
		c.mustAnswer("before anybody starts a daemon") // the keeper does that, if need be
	}
	// It brings a daemon up. A software GPU that was killed keeps its lock until the last of its threads is gone.
	c.s.until("a daemon runs", func() bool { _, err := c.s.try("run", "--gpu=soft", "--", "true"); return err == nil })
	c.outcome = c.settled()
	switch c.outcome {
	case "runs":
		c.outcome = "went on"
		if !c.mustAnswer("at the end") {
			c.outcome = "gone"
		}
	case "suspended":
		c.resume()
	}
	if c.outcome == "gone" {
		c.mayBeGone()
	}
	c.back = time.Since(since)
	c.checkImage()
	if c.outcome == "image" {
		c.restore()
	}
	c.finish()
	c.nothingLeft()
}

// settled waits until the program runs, is suspended or is gone; where it may be, also until it is lost.
func (c *combination) settled() (state string) {
	daemon := client.Client{Dir: c.s.dir}
	begun := time.Now()
	c.s.until("the program runs, is suspended or is gone", func() bool {
		if !c.alive() {
			state = "gone"
			return true
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		list, err := daemon.Processes(ctx)
		if err != nil {
			return false
		}
		state = ""
		hopeless := false
		for _, p := range list {
			if p.PID == c.pid {
				hopeless = slices.ContainsFunc(p.Caveats, func(a api.Caveat) bool { // it is said, with what to do
					return a.Code == "not-back" || a.Code == "half-restored"
				})
				state = map[string]string{api.StateRunning: "runs", api.StateSuspended: "suspended",
					api.StateRestoring: "restoring"}[p.State]
			}
		}
		switch {
		case state == "" && c.fault.name == "program changes user":
			state = "runs" // no daemon of ours lets it in any more: it runs unheld
		case state == "restoring" && c.fault.lost && hopeless && time.Since(begun) > patience:
			state = "lost"
		case state == "restoring":
			state = ""
		}
		return state != ""
	})
	return state
}

// mustAnswer asks the program for the checksum of its memory. It returns false if the program is gone.
func (c *combination) mustAnswer(when string) bool {
	c.Helper()
	if c.r == nil {
		return c.alive() // it checks itself
	}
	tag := c.r.send("sum")
	var got string
	c.s.until("the program answers, "+when, func() bool {
		data, _ := os.ReadFile(c.r.answers)
		_, rest, ok := strings.Cut("\n"+string(data), "\n"+tag+" ")
		line, _, whole := strings.Cut(rest, "\n")
		got = strings.TrimPrefix(line, "ok ")
		return ok && whole || !c.alive()
	})
	if got == "" {
		return false
	}
	if !slices.Contains(c.may, got) {
		c.Fatalf("%s: sum %s, want one of %s", when, got, c.may)
	}
	return true
}

func (c *combination) resume() {
	if !c.op.suspends() && !c.op.resumes() {
		c.Fatalf("it is suspended after %s", c.op.name)
	}
	_, err := c.s.try("resume", c.name)
	switch {
	case err == nil && c.mustAnswer("after the resume"):
	case !c.alive():
		c.outcome = "gone"
	case c.fault.lost || c.fault.name == "daemon and keeper killed":
		c.Logf("it cannot be resumed: %v", err)
		c.outcome = "lost"
	default:
		c.Fatalf("it is suspended and cannot be resumed: %v", err)
	}
}

// mayBeGone fails the test of a program that is gone for no good reason.
func (c *combination) mayBeGone() {
	switch {
	case c.op.ends() && (c.worked || c.imageThere()), c.op.restores():
		// What is gone is in an image. If the fault has ended it, that is shown by the image's being whole.
		c.outcome = "image"
	case c.fault.gone:
	case c.op.name == "rollback" && c.fault.name == "daemon killed":
		// It has variables in its modules, which nobody else can put back (docs/concepts.md).
	default:
		text := ""
		if c.r != nil {
			text = c.r.text()
		} else {
			text = c.storm.text()
		}
		c.Fatalf("the program is gone; its output:\n%s", text)
	}
}

func (c *combination) imageThere() bool {
	_, err := os.Stat(c.image)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Fatal(err)
	}
	return err == nil
}

func (c *combination) checkImage() {
	switch {
	case c.op.suspends() || c.op.resumes():
	case c.imageThere():
		c.s.ok("images", "verify", c.image)
	case c.worked || !c.op.checkpoints():
		c.Fatal("there is no image")
	}
}

// restore brings a program back that is only an image.
func (c *combination) restore() {
	buf := make([]byte, 4096) // what the one that is gone was still told
	c.r.pipe.SetReadDeadline(time.Now().Add(time.Millisecond))
	for {
		if n, err := c.r.pipe.Read(buf); n == 0 || err != nil {
			break
		}
	}
	c.s.endProgram(c.pid)
	if _, err := c.s.try("restore", c.image, "--detach"); err != nil {
		// The image may be of a program that is another user's already, or that has no descriptors: it stays so.
		if c.fault.told || c.fault.name == "program out of descriptors" {
			c.Logf("it cannot be restored: %v", err)
			c.outcome = "lost"
			return
		}
		c.Fatal(err)
	}
	syscall.Kill(c.pid, syscall.SIGCONT) // as which it may have been dumped
	if !c.mustAnswer("after the restore") && !c.fault.told {
		c.Fatal("it was restored and is gone")
	}
}

// finish ends the program.
func (c *combination) finish() {
	if c.storm != nil && c.alive() && c.outcome == "went on" {
		if err := os.WriteFile(c.s.path("stop"), nil, 0o600); err != nil {
			c.Fatal(err)
		}
		c.storm.done()
	}
	c.s.endProgram(c.pid)
}

// nothingLeft checks that of all this nothing stays behind.
func (c *combination) nothingLeft() {
	s := c.s
	var left string
	defer func() {
		if left != "" {
			c.Log("left: " + left)
		}
	}()
	s.until("nothing is held any more", func() bool {
		live, kept, suspended, criu := s.live(), s.kept(), s.suspended(), s.criuProcesses()
		left = fmt.Sprintf("%d programs, %d descriptors with the keeper, records %v, CRIU %v", len(live), kept,
			suspended, criu)
		return len(live)+kept+len(suspended)+len(criu) == 0
	})
	left = ""
	if left, _ := filepath.Glob(filepath.Join(s.dir, "underway", "*")); len(left) > 0 {
		c.Errorf("records of programs that stand still: %v", left)
	}
	if !strings.Contains(c.fault.name, "killed") && !strings.Contains(c.fault.name, "descriptors") {
		if left, _ := filepath.Glob(s.path("images/.*.partial-*")); len(left) > 0 {
			c.Errorf("partial images: %v", left)
		}
	}
	if _, err := os.Stat(s.path("images")); err == nil {
		s.ok("images", "gc", s.path("images"))
	}
	if left, _ := filepath.Glob(s.path("images/.*.partial-*")); len(left) > 0 {
		c.Errorf("gc left partial images: %v", left)
	}
	s.ok("daemon", "stop", "--force")
	s.try("softgpu", "--stop")
	s.until("no process is left", func() bool {
		return len(slices.DeleteFunc(s.remains(), func(pid int) bool { return !alive(pid) })) == 0
	})
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*.sock")); len(left) > 0 {
		c.Errorf("sockets: %v", left)
	}
}

// A row of the table says what came of one operation with one fault.
type row struct {
	Operation  string  `json:"operation"`
	Fault      string  `json:"fault"`
	Runs       int     `json:"runs"`
	WentOn     int     `json:"went_on"`
	Suspended  int     `json:"suspended"` // and resumed then
	Image      int     `json:"image"`     // only that was left, and it was restored
	Gone       int     `json:"gone"`
	Lost       int     `json:"lost"` // it stood still until it was killed, or its image cannot be restored
	Succeeded  int     `json:"succeeded"`
	Failed     int     `json:"failed"` // the operation
	Wrong      int     `json:"wrong"`  // the test
	LongestSec float64 `json:"longest_seconds"`
}

type table struct {
	mu   sync.Mutex
	rows map[[2]string]*row
}

func (t *table) add(c *combination) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{c.op.name, c.fault.name}
	r := t.rows[key]
	if r == nil {
		r = &row{Operation: key[0], Fault: key[1]}
		t.rows[key] = r
	}
	r.Runs++
	if c.worked {
		r.Succeeded++
	} else {
		r.Failed++
	}
	if c.T == nil || c.Failed() || c.Skipped() {
		r.Wrong++
		return
	}
	*map[string]*int{"went on": &r.WentOn, "suspended": &r.Suspended, "image": &r.Image, "gone": &r.Gone,
		"lost": &r.Lost}[c.outcome]++
	r.LongestSec = max(r.LongestSec, c.back.Seconds())
}

func (t *table) list() []*row {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*row
	for _, o := range operations {
		for _, f := range faults {
			if r := t.rows[[2]string{o.name, f.name}]; r != nil {
				list = append(list, r)
			}
		}
	}
	return list
}

func (t *table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tfault\truns\twent "+
		"on\tsuspended\timage\tgone\tlost\tsucceeded\tfailed\twrong\tlongest\t")
	for _, r := range t.list() {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t\n", r.Operation, r.Fault, r.Runs, r.WentOn,
			r.Suspended, r.Image, r.Gone, r.Lost, r.Succeeded, r.Failed, r.Wrong, r.LongestSec)
	}
	w.Flush()
	return b.String()
}

func (t *table) save(tt *testing.T) {
	name := os.Getenv("HOLDFAST_MATRIX_OUT")
	if name == "" {
		return
	}
	data, err := json.MarshalIndent(t.list(), "", "\t")
	if err == nil {
		err = os.WriteFile(name, append(data, '\n'), 0o644)
	}
	if err != nil {
		tt.Error(err)
	}
}
