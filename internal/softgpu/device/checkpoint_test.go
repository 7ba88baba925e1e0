package device

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/internal/softgpu/gpuwire"
)

const (
	helperSocket = "HOLDFAST_DEVICE_TEST_SOCKET" // set in the process that is checkpointed
	helperMode   = "HOLDFAST_DEVICE_TEST_MODE"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(helperSocket); path != "" {
		helper(path, os.Getenv(helperMode))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A fatalTB is a testing.TB for a process without tests: what fails ends it.
type fatalTB struct{ testing.TB }

func (fatalTB) Helper()                   {}
func (fatalTB) Cleanup(func())            {}
func (fatalTB) Fatal(v ...any)            { fmt.Println(append([]any{"failed:"}, v...)...); os.Exit(1) }
func (fatalTB) Errorf(f string, v ...any) { fatalTB{}.Fatalf(f, v...) }
func (fatalTB) Fatalf(f string, v ...any) {
	fmt.Printf("failed: "+f+"\n", v...)
	os.Exit(1)
}

// helper is a CUDA program with its stub: it makes one of everything, says so, and after each line
// on its input uses everything.
func helper(path, mode string) {
	t := fatalTB{}
	s := &testServer{t: t, path: path, log: &lockedBuffer{}}
	c := &client{t: t, s: s, nonce: uint64(os.Getpid()) << 20, calls: make(chan [2]uint64, 16)}
	ready := make(chan struct{})
	go c.controlThread(ready, mode)
	<-ready

	k := c.thread(101).start()
	m := k.load(scalePTX)
	fn := k.must("cuModuleGetFunction", a(m), blob([]byte("scale")))[0]
	total := k.must("cuModuleGetGlobal", a(m), blob([]byte("total")))[0]
	_, rep := k.do("LIBRARY_LOAD", nil, blob([]byte(scalePTX)), blob(nil), blob(nil), blob(nil), blob(nil))
	kern := k.must("cuLibraryGetKernel", rep.Outs[:1], blob([]byte("scale")))[0]
	limited := k.limited(30)
	const n = 1000
	small := k.must("cuMemAlloc", a(4*n))[0]
	large := k.must("cuMemAlloc", a(3<<20))[0]
	stream := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	async := k.must("cuMemAllocAsync", a(4*n, stream))[0]
	h := k.must("cuMemCreate", a(2<<20, 0), prop(handleTypeFD))[0]
	vmm := k.must("cuMemAddressReserve", a(4<<20, 0, 0, 0))[0]
	k.must("cuMemMap", a(vmm+2<<20, 2<<20, 0, h, 0))
	k.must("cuMemSetAccess", a(vmm+2<<20, 2<<20, 1), access(accessReadWrite))
	ev := k.must("cuEventCreate", a(0))[0]
	k.must("cuEventRecord", a(ev, stream))
	desc := arrayDesc{Width: 50, Height: 20, Format: 0x0a, Channels: 1, Flags: arraySurface}
	arr := k.must("cuArray3DCreate", nil, blob(desc.record()))[0]
	mip := k.must("cuMipmappedArrayCreate", a(3), blob(desc.record()))[0]
	level := k.must("cuMipmappedArrayGetLevel", a(mip, 2))[0]
	surface := k.must("cuSurfObjectCreate", nil, blob(resourceDesc(arr)))[0]
	texture := k.must("cuTexObjectCreate", nil, blob(resourceDesc(arr)),
		blob(make([]byte, sizeofTextureDesc)), le64(^uint64(0)))[0]
	place := k.must("ARRAY_LAYOUT", a(arr))[0]
	grow := k.must("cuModuleGetFunction", a(k.load(growPTX)), blob([]byte("grow")))[0]
	length := k.must("cuMemAlloc", a(4))[0]
	p := k.pin(4 * n)
	want := make([]uint32, n)
	for i := range want {
		want[i] = uint32(i * 7)
		binary.LittleEndian.PutUint32(p.mem[4*i:], want[i])
	}
	all := []uint64{small, large + 1<<20, async, vmm + 3<<20, place}
	for _, va := range all {
		k.must("MEMCPY", a(va, p.addr, 1, 1, 4*n, 0, 0))
	}
	// A graph that scales every region.
	k.must("cuStreamBeginCapture", a(stream, captureRelaxed))
	graphs := k.must("cuMemAllocAsync", a(5<<20, stream))[0]
	k.must("MEMSET", a(graphs, 0, 1, 4, n, 1, stream, gpuwire.FlagAsync))
	for _, va := range all {
		k.scale(fn, stream, va, n, 3, 1)
		k.scale(kern, stream, va, n, 5, 2)
	}
	g := k.must("cuStreamEndCapture", a(stream))[0]
	e := k.must("cuGraphInstantiate", a(g, 0))[0]
	k.must("cuGraphDestroy", a(g))
	cx2 := k.must("cuCtxCreate", a(0, 0))[0] // now current
	k.must("cuCtxGetCurrent", nil)
	fmt.Println("ready")

	in := bufio.NewScanner(os.Stdin)
	runs := uint32(0)
	for in.Scan() {
		if c.parked.Load() {
			c.t.Fatal("parked while it runs")
		}
		k = c.again(k)
		if cur := k.must("cuCtxGetCurrent", nil); cur[0] != cx2 {
			t.Fatalf("current context %#x, was %#x", cur[0], cx2)
		}
		k.must("cuCtxPopCurrent", nil)
		k.must("cuEventQuery", a(ev))
		k.must("cuGraphLaunch", a(e, stream))
		k.must("cuEventRecord", a(ev, stream))
		k.must("cuEventSynchronize", a(ev))
		runs++
		for i := range want {
			want[i] = (want[i]*3+1)*5 + 2
		}
		for _, va := range all {
			if got := k.u32s(va, n); !slices.Equal(got, want) {
				t.Fatalf("run %d: memory at %#x: %v…, want %v…", runs, va, got[:4], want[:4])
			}
		}
		if got := k.u32s(total, 1)[0]; got != runs*n*uint32(len(all)) {
			t.Fatalf("total %d after %d runs", got, runs)
		}
		// The pinned range is still the one that the device sees.
		p = c.pins[0]
		copy(p.mem, "pinned again")
		k.must("MEMCPY", a(large, p.addr, 1, 1, 16, stream, gpuwire.FlagAsync))
		k.must("cuStreamSynchronize", a(stream))
		if got := k.read(large, 12); string(got) != "pinned again" {
			t.Fatalf("pinned memory: %q", got)
		}
		if r := k.must("cuMemRetainAllocationHandle", a(vmm+2<<20)); r[0] != h {
			t.Fatalf("memory handle %#x, was %#x", r[0], h)
		}
		k.must("cuMemRelease", a(h))
		k.must("LAUNCH", a(grow, 1, 1, 1, 1, 1, 1, 0, 0, 0), blob(le64(length)), blob(nil))
		if got := k.u32s(length, 1)[0]; got != runs {
			t.Fatalf("the list on the device's heap has %d links after %d runs", got, runs)
		}
		if l := k.must("ARRAY_LAYOUT", a(arr)); l[0] != place || l[1] != 200 || l[2] != 20 || l[3] != 1 {
			t.Fatalf("array layout %v", l)
		}
		if l := k.must("cuMipmappedArrayGetLevel", a(mip, 2)); l[0] != level {
			t.Fatalf("level %#x, was %#x", l[0], level)
		}
		for name, h := range map[string]uint64{"cuSurfObjectGetResourceDesc": surface,
			"cuTexObjectGetResourceDesc": texture} {
			if _, rep := k.do(name, a(h)); !bytes.Equal(rep.Payload, blob(resourceDesc(arr))) {
				t.Fatalf("%s: %v", name, rep.Payload)
			}
		}
		if got := k.must("cuFuncGetAttribute", a(funcRegisters, limited))[0]; got != 30 {
			t.Fatalf("%d registers, limited to 30", got)
		}
		k.must("cuCtxPushCurrent", a(cx2))
		fmt.Println("ok")
	}
}

// grow puts a link at the head of a list on the device's heap and counts the links, to 1000 at most.
const growPTX = `.version 8.0
.target sm_90
.address_size 64
.global .align 8 .u64 head;
.extern .func (.param .b64 p) malloc(.param .b64 n);
.visible .entry grow(.param .u64 out)
{
	.reg .pred p<3>;
	.reg .b32 r<2>;
	.reg .b64 d<5>;
	.param .b64 size;
	.param .b64 link;
	ld.param.u64 d0, [out];
	st.param.b64 [size], 16;
	call (link), malloc, (size);
	ld.param.b64 d1, [link];
	ld.global.u64 d2, [head];
	st.u64 [d1], d2;
	st.global.u64 [head], d1;
	mov.u32 r0, 0;
AGAIN:
	add.u32 r0, r0, 1;
	ld.u64 d1, [d1];
	setp.ne.u64 p0, d1, 0;
	setp.lt.and.u32 p1, r0, 1000, p0;
	@p1 bra AGAIN;
	st.global.u32 [d0], r0;
	ret;
}
`

// resourceDesc is CUDA_RESOURCE_DESC of an array.
func resourceDesc(array uint64) []byte {
	b := make([]byte, sizeofResourceDesc)
	binary.LittleEndian.PutUint64(b[8:], array)
	return b
}

// again is the thread's connection, opened anew if a checkpoint closed it.
func (c *client) again(k *conn) *conn {
	if c.generation.Load() == k.generation {
		return k
	}
	n := c.thread(k.tid)
	n.generation = c.generation.Load()
	return n
}

// controlThread is the stub's: it serves, parks and comes back.
func (c *client) controlThread(ready chan struct{}, mode string) {
	runtime.LockOSThread()
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, wakeSignal)
	name := func(s string) {
		if err := os.WriteFile("/proc/thread-self/comm", []byte(s), 0); err != nil {
			c.t.Fatal(err)
		}
	}
	name(gpuwire.ControlThreadName)
	c.connect(0)
	close(ready)
	for {
		c.serveOn(c.control)
		if !c.parked.Load() {
			os.Exit(0) // the server is gone
		}
		c.generation.Add(1)
		name(gpuwire.ParkedThreadName)
		c.control.Close()
		for {
			<-wake
			name(gpuwire.ControlThreadName)
			if c.comeBack(mode) {
				break
			}
			name(gpuwire.ParkedThreadName)
		}
		c.blob = nil
		c.parked.Store(false)
	}
}

// serveOn is serve without closing at the end.
func (c *client) serveOn(k *gpuwire.Conn) {
	c.ended = make(chan struct{})
	c.keepOpen = true
	c.serve()
}

func (c *client) comeBack(mode string) bool {
	conn, err := net.Dial("unix", c.s.path)
	if err != nil {
		return false
	}
	c.control = gpuwire.NewConn(conn.(*net.UnixConn))
	hello(c.t, c.control, c.nonce, 0, gpuwire.HelloControl|gpuwire.HelloResume)
	do := func(op uint32, args []uint64, payload []byte) (gpuwire.Reply, bool) {
		var rep gpuwire.Reply
		if err := c.control.WriteRequest(&gpuwire.Request{Op: op, Args: args, Payload: payload}); err != nil {
			return rep, false
		}
		err := c.control.ReadReply(&rep)
		return rep, err == nil && rep.Status == 0
	}
	state := c.blob
	if mode == "corrupt once" && !c.corrupted {
		c.corrupted = true
		state = bytes.Clone(state)
		state[len(state)/3] ^= 0xff
		state = state[:len(state)-5]
	}
	for part := range slices.Chunk(state, 100_000) {
		if _, ok := do(gpuwire.OpRestorePart, nil, part); !ok {
			c.control.Close()
			return false
		}
	}
	if _, ok := do(gpuwire.OpRestoreCommit, nil, nil); !ok {
		c.control.Close()
		return false
	}
	for _, p := range c.pins {
		rep, ok := do(gpuwire.OpHostRefetch, a(p.id), nil)
		if !ok || len(rep.FDs) != 1 {
			c.t.Fatalf("refetch: %d", rep.Status)
		}
		// Same bytes, same address, shared again.
		if _, err := unix.Pwrite(rep.FDs[0], p.mem, 0); err != nil {
			c.t.Fatal(err)
		}
		if _, err := unix.MmapPtr(rep.FDs[0], 0, unsafe.Pointer(&p.mem[0]), uintptr(len(p.mem)),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			c.t.Fatal(err)
		}
		unix.Close(rep.FDs[0])
	}
	_, ok := do(gpuwire.OpRestoreDone, nil, nil)
	return ok
}

// A program is a helper process.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	pid uint64
}

func (s *testServer) program(t *testing.T, mode string) *program {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperSocket+"="+s.path, helperMode+"="+mode)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out), pid: uint64(cmd.Process.Pid)}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p.expect("ready")
	return p
}

func (p *program) expect(want string) {
	p.t.Helper()
	if !p.out.Scan() || strings.TrimSpace(p.out.Text()) != want {
		p.t.Fatalf("program says %q, want %q", p.out.Text(), want)
	}
}

func (p *program) use() {
	p.t.Helper()
	fmt.Fprintln(p.in, "use")
	p.expect("ok")
}

func TestCheckpointAndRestore(t *testing.T) {
	s := serve(t, Config{Memory: 64 << 20})
	k := s.process().thread(1).start()
	p := s.program(t, "")
	state := func(want uint64) {
		t.Helper()
		if st := k.must("cuCheckpointProcessGetState", a(p.pid)); st[0] != want {
			t.Fatalf("state %d, want %d", st[0], want)
		}
	}
	p.use()
	used := s.stats(k).UsedBytes[0]
	for round := range 3 {
		state(stateRunning)
		k.want(IllegalState, "cuCheckpointProcessCheckpoint", a(p.pid))
		k.want(IllegalState, "cuCheckpointProcessUnlock", a(p.pid))
		k.must("cuCheckpointProcessLock", a(p.pid, 1000))
		k.want(IllegalState, "cuCheckpointProcessLock", a(p.pid, 1000))
		state(stateLocked)
		k.must("cuCheckpointProcessCheckpoint", a(p.pid))
		state(stateCheckpointed)
		if st := s.stats(k); st.UsedBytes[0] != 0 || st.Processes != 1 {
			t.Fatalf("round %d: after the checkpoint: %+v", round, st)
		}
		tid := k.must("cuCheckpointProcessGetRestoreThreadId", a(p.pid))[0]
		if tid == 0 {
			t.Error("no restore thread")
		}
		k.must("cuCheckpointProcessRestore", a(p.pid))
		state(stateLocked)
		if now := k.must("cuCheckpointProcessGetRestoreThreadId", a(p.pid))[0]; now != tid {
			t.Errorf("restore thread %d, was %d", now, tid)
		}
		k.must("cuCheckpointProcessUnlock", a(p.pid))
		if st := s.stats(k); st.UsedBytes[0] != used {
			t.Fatalf("round %d: %d bytes used, before %d", round, st.UsedBytes[0], used)
		}
		p.use()
	}
	k.want(InvalidValue, "cuCheckpointProcessLock", a(uint64(os.Getpid()), 0)) // itself
	k.want(InvalidValue, "cuCheckpointProcessGetState", a(1<<30))
}

// A server that knows nothing of the process, as after a reboot, restores it.
func TestRestoreByAnotherServer(t *testing.T) {
	s := serve(t, Config{})
	p := s.program(t, "")
	k := s.process().thread(1).start()
	k.must("cuCheckpointProcessLock", a(p.pid, 0))
	k.must("cuCheckpointProcessCheckpoint", a(p.pid))
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	next := serveOn(t, s.path, l, Config{})
	k = next.process().thread(1).start()
	k.must("cuCheckpointProcessRestore", a(p.pid))
	k.must("cuCheckpointProcessUnlock", a(p.pid))
	p.use()
}

func TestRestoreWithoutRoomLeavesTheProcessParked(t *testing.T) {
	s := serve(t, Config{Memory: 32 << 20})
	k := s.process().thread(1).start()
	p := s.program(t, "")
	p.use()
	k.must("cuCheckpointProcessLock", a(p.pid, 0))
	k.must("cuCheckpointProcessCheckpoint", a(p.pid))
	hog := k.must("cuMemAlloc", a(31<<20))[0]
	k.want(OutOfMemory, "cuCheckpointProcessRestore", a(p.pid))
	k.must("cuMemFree", a(hog))
	restoreWhenParked(k, p)
	k.must("cuCheckpointProcessUnlock", a(p.pid))
	p.use()
}

// restoreWhenParked restores a process whose last restore has just failed: it may not have
// parked itself again yet.
func restoreWhenParked(k *conn, p *program) {
	k.c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		st, _ := k.do("cuCheckpointProcessRestore", a(p.pid))
		if st == Success {
			return
		}
		if st != IllegalState && st != InvalidValue || time.Now().After(deadline) {
			k.c.t.Fatalf("restore: %v", st)
		}
	}
}

func TestCorruptStateIsRefused(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	p := s.program(t, "corrupt once")
	k.must("cuCheckpointProcessLock", a(p.pid, 0))
	k.must("cuCheckpointProcessCheckpoint", a(p.pid))
	k.want(InvalidValue, "cuCheckpointProcessRestore", a(p.pid))
	restoreWhenParked(k, p)
	k.must("cuCheckpointProcessUnlock", a(p.pid))
	p.use()
}

// Nobody waits out the time that a process has to come back when it has ended.
func TestRestoreOfAProcessThatEnds(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	p := s.program(t, "")
	k.must("cuCheckpointProcessLock", a(p.pid, 0))
	k.must("cuCheckpointProcessCheckpoint", a(p.pid))
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // so that it does not come back
		t.Fatal(err)
	}
	begin := time.Now()
	time.AfterFunc(50*time.Millisecond, func() { p.cmd.Process.Kill() })
	k.want(InvalidValue, "cuCheckpointProcessRestore", a(p.pid))
	if d := time.Since(begin); d > restoreTimeout/2 {
		t.Errorf("it took %v", d)
	}
}

func TestAKilledProcessIsForgotten(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	p := s.program(t, "")
	k.must("cuCheckpointProcessLock", a(p.pid, 0))
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	s.left(k, 1)
	k.want(InvalidValue, "cuCheckpointProcessUnlock", a(p.pid))
	if u := s.stats(k).UsedBytes[0]; u != 0 {
		t.Errorf("%d bytes used", u)
	}
}

func FuzzProcessImage(f *testing.F) {
	var b bytes.Buffer
	enc := gob.NewEncoder(&b)
	_ = enc.Encode(processImage{Magic: imageMagic, Version: imageVersion, Next: firstHandle + 160,
		Contexts: []contextImage{{Handle: firstHandle, Primary: true, Active: true}}, Primaries: []uint64{firstHandle},
		Physicals: []physicalImage{{0, granularity}}, Slabs: []slabImage{{windowLo, 0, 0}},
		Allocs: []allocImage{{VA: windowLo, Size: 100, Extent: 512, Kind: allocDevice,
			Cx: firstHandle, Slab: 0, Phys: -1}},
	})
	_ = enc.Encode(memoryPiece{0, 0, []byte("abc")})
	_ = enc.Encode(memoryPiece{Phys: -1})
	f.Add(b.Bytes())
	s := newServer(Config{Memory: 16 << 20})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := s.newProcess(procKey{1, 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.readImage(bytes.NewReader(b))
		p.end()
		if s.used[0] != 0 || len(s.physical) != 0 {
			t.Errorf("%d bytes and %d memories are left", s.used[0], len(s.physical))
		}
	})
}

// limited loads a kernel that needs some 60 registers with a limit to their number, and returns it.
func (k *conn) limited(most uint64) uint64 {
	k.c.t.Helper()
	var text strings.Builder
	text.WriteString(".version 7.0\n.target sm_70\n.address_size 64\n.entry many(.param .u64 p)\n{\n")
	text.WriteString(".reg .b64 d; .reg .b32 %r<60>; ld.param.u64 d, [p];\n")
	for i := range 60 {
		fmt.Fprintf(&text, "ld.global.u32 %%r%d, [d+%d];\n", i, 4*i)
	}
	for i := range 60 {
		fmt.Fprintf(&text, "st.global.u32 [d+%d], %%r%d;\n", 4*i, 59-i)
	}
	text.WriteString("ret; }\n")
	st, rep := k.do("MODULE_LOAD", nil, blob([]byte(text.String())), blob(le32(jitMaxRegisters)), words(most))
	if st != Success {
		k.c.t.Fatalf("module: %v: %q", st, rep.Payload)
	}
	return k.must("cuModuleGetFunction", rep.Outs[:1], blob([]byte("many")))[0]
}
