package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/internal/cuda/api"
	"holdfast/internal/softgpu/gpuwire"
)

// A testServer is a server on a socket of its own.
type testServer struct {
	t    testing.TB
	path string
	log  *lockedBuffer
	done chan error
	stop context.CancelFunc
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serve(t testing.TB, cfg Config) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpu") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "gpu.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, path, l, cfg)
}

func serveOn(t testing.TB, path string, l net.Listener, cfg Config) *testServer {
	s := &testServer{t: t, path: path, log: &lockedBuffer{}, done: make(chan error, 1)}
	cfg.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.done <- Serve(ctx, l, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-s.done; err != nil {
			t.Errorf("serve: %v", err)
		}
		s.done <- nil
		if t.Failed() {
			t.Logf("server log:\n%s", s.log)
		}
	})
	return s
}

// A client plays the stub of one process.
type client struct {
	t       testing.TB
	s       *testServer
	nonce   uint64
	control *gpuwire.Conn
	ended   chan struct{}
	locked  atomic.Int32
	parked  atomic.Bool
	blob    []byte
	prints  lockedBuffer
	calls   chan [2]uint64 // callbacks: fn, user
	host    atomic.Pointer[func(op uint32, addr, n uint64, b []byte) []byte]
	pins    []pin

	// Of the process that is checkpointed.
	generation          atomic.Int32
	corrupted, keepOpen bool
}

type pin struct {
	id, addr uint64
	mem      []byte
}

// A conn is one thread of a client.
type conn struct {
	*gpuwire.Conn
	c          *client
	tid        uint64
	generation int32
}

var names = sync.OnceValue(func() map[string]uint32 {
	fns, err := api.Functions()
	if err != nil {
		panic(err)
	}
	m := make(map[string]uint32)
	for _, f := range fns {
		m[f.Name] = uint32(f.Op)
	}
	for n, op := range internal {
		m[op.name] = n
	}
	return m
})

func (s *testServer) dial() *gpuwire.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	return gpuwire.NewConn(c.(*net.UnixConn))
}

func (s *testServer) process() *client {
	s.t.Helper()
	c := &client{t: s.t, s: s, nonce: rand.Uint64(), calls: make(chan [2]uint64, 16)}
	c.connect(0)
	go c.serve()
	s.t.Cleanup(c.exit)
	return c
}

// connect opens the control connection.
func (c *client) connect(flags uint64) {
	c.t.Helper()
	c.control = c.s.dial()
	c.ended = make(chan struct{})
	hello(c.t, c.control, c.nonce, 0, gpuwire.HelloControl|flags)
}

func hello(t testing.TB, conn *gpuwire.Conn, nonce, tid, flags uint64) {
	t.Helper()
	var rep gpuwire.Reply
	if err := conn.WriteRequest(&gpuwire.Request{Op: gpuwire.OpHello,
		Args: []uint64{gpuwire.ProtocolVersion, uint64(os.Getpid()), tid, nonce, flags}}); err != nil {
		t.Fatal(err)
	}
	if err := conn.ReadReply(&rep); err != nil || rep.Status != 0 || len(rep.Outs) != 5 {
		t.Fatalf("hello: %v, status %d, outs %v", err, rep.Status, rep.Outs)
	}
}

// serve is the control thread.
func (c *client) serve() {
	defer close(c.ended)
	var req gpuwire.Request
	for {
		if err := c.control.ReadRequest(&req); err != nil {
			return
		}
		rep := gpuwire.Reply{}
		switch req.Op {
		case gpuwire.OpCallback:
			c.calls <- [2]uint64{req.Args[1], req.Args[2]}
		case gpuwire.OpHostRead, gpuwire.OpHostWrite:
			host := c.host.Load()
			switch {
			case host == nil: // no memory is there, as in a program that has unmapped it
				rep.Status = int32(IllegalAddress)
			case req.Op == gpuwire.OpHostRead:
				rep.Payload = (*host)(req.Op, req.Args[0], req.Args[1], nil)
			default:
				(*host)(req.Op, req.Args[0], 0, req.Payload)
			}
		case gpuwire.OpPrint:
			c.prints.Write(req.Payload)
		case gpuwire.OpLock:
			c.locked.Store(1)
		case gpuwire.OpUnlock:
			c.locked.Store(0)
		case gpuwire.OpCheckpointPart:
			c.blob = append(c.blob, req.Payload...)
		case gpuwire.OpCheckpointCommit:
			c.parked.Store(true)
		}
		if err := c.control.WriteReply(&rep); err != nil {
			return
		}
		if c.parked.Load() {
			if !c.keepOpen {
				c.control.Close()
			}
			return
		}
	}
}

func (c *client) exit() {
	c.control.Close()
	<-c.ended
}

func (c *client) thread(tid uint64) *conn {
	c.t.Helper()
	k := &conn{Conn: c.s.dial(), c: c, tid: tid}
	hello(c.t, k.Conn, c.nonce, tid, 0)
	c.t.Cleanup(func() { k.Close() })
	return k
}

// do performs one operation by name. blobs are appended to the payload.
func (k *conn) do(name string, args []uint64, payload ...[]byte) (Status, gpuwire.Reply) {
	k.c.t.Helper()
	return k.doFD(name, args, nil, payload...)
}

func (k *conn) doFD(name string, args []uint64, fds []int, payload ...[]byte) (Status, gpuwire.Reply) {
	k.c.t.Helper()
	op, ok := names()[name]
	if !ok {
		k.c.t.Fatalf("no operation %s", name)
	}
	var p []byte
	for _, b := range payload {
		p = append(p, b...)
	}
	var rep gpuwire.Reply
	if err := k.WriteRequest(&gpuwire.Request{Op: op, Args: args, Payload: p, FDs: fds}); err != nil {
		k.c.t.Fatalf("%s: %v", name, err)
	}
	if err := k.ReadReply(&rep); err != nil {
		k.c.t.Fatalf("%s: %v\n%s", name, err, k.c.s.log)
	}
	rep.Outs, rep.Payload = slices.Clone(rep.Outs), bytes.Clone(rep.Payload) // the next reply's are the same
	return Status(rep.Status), rep
}

// must performs an operation that has to succeed, and returns the outputs.
func (k *conn) must(name string, args []uint64, payload ...[]byte) []uint64 {
	k.c.t.Helper()
	st, rep := k.do(name, args, payload...)
	if st != Success {
		k.c.t.Fatalf("%s(%v): %v", name, args, st)
	}
	return rep.Outs
}

func (k *conn) want(want Status, name string, args []uint64, payload ...[]byte) {
	k.c.t.Helper()
	if st, _ := k.do(name, args, payload...); st != want {
		k.c.t.Fatalf("%s(%v): %v, want %v", name, args, st, want)
	}
}

func a(v ...uint64) []uint64 { return v }

func blob(b []byte) []byte { return gpuwire.AppendBlob(nil, b) }

func words(w ...uint64) []byte { return gpuwire.AppendWords(nil, w) }

// start initialises the driver and makes the primary context current.
func (k *conn) start() *conn {
	k.c.t.Helper()
	k.must("cuInit", a(0))
	cx := k.must("cuDevicePrimaryCtxRetain", a(0))
	k.must("cuCtxSetCurrent", cx)
	return k
}

func (k *conn) write(va uint64, b []byte) {
	k.c.t.Helper()
	k.must("MEMCPY", a(va, 0x1234, gpuwire.KindKnown, gpuwire.KindPageable, uint64(len(b)), 0, 0), b)
}

func (k *conn) read(va, n uint64) []byte {
	k.c.t.Helper()
	st, rep := k.do("MEMCPY", a(0x1234, va, gpuwire.KindPageable, gpuwire.KindKnown, n, 0, 0))
	if st != Success {
		k.c.t.Fatalf("read of %d bytes at %#x: %v", n, va, st)
	}
	return bytes.Clone(rep.Payload)
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
	}
	return b
}

// pin allocates pinned memory as the stub does.
func (k *conn) pin(n uint64) pin {
	k.c.t.Helper()
	st, rep := k.do("HOST_ALLOC", a(n, 0, 0))
	if st != Success || len(rep.FDs) != 1 {
		k.c.t.Fatalf("HOST_ALLOC: %v, %d descriptors", st, len(rep.FDs))
	}
	defer unix.Close(rep.FDs[0])
	mem, err := unix.Mmap(rep.FDs[0], 0, int(rep.Outs[1]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		k.c.t.Fatal(err)
	}
	p := pin{rep.Outs[0], uint64(uintptr(unsafe.Pointer(&mem[0]))), mem}
	k.must("HOST_PLACED", a(p.id, p.addr))
	k.c.pins = append(k.c.pins, p)
	return p
}

func (s *testServer) stats(k *conn) Stats {
	s.t.Helper()
	_, rep := k.do("STATS", nil)
	var st Stats
	if err := json.Unmarshal(rep.Payload, &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// left waits until the server has cleaned up after all processes but n.
func (s *testServer) left(k *conn, n int) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		st := s.stats(k)
		if st.Processes == n {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%+v", st)
		}
	}
}

func TestCallsNeedInitialisationAndContext(t *testing.T) {
	k := serve(t, Config{}).process().thread(1)
	k.want(NotInitialized, "cuDeviceGetCount", nil)
	k.must("cuInit", a(0))
	if n := k.must("cuDeviceGetCount", nil); n[0] != 1 {
		t.Errorf("%d devices", n[0])
	}
	k.want(InvalidContext, "cuMemAlloc", a(100))
	k.want(InvalidDevice, "cuDeviceGet", a(1))
	if v := k.must("cuDeviceGetAttribute", a(75, 0)); v[0] != 9 {
		t.Errorf("compute capability %d", v[0])
	}
}

func TestMemoryComesAndGoes(t *testing.T) {
	s := serve(t, Config{Memory: 64 << 20})
	k := s.process().thread(1).start()
	k.want(InvalidValue, "cuMemAlloc", a(0))
	k.want(OutOfMemory, "cuMemAlloc", a(65<<20))
	var all []uint64
	for i := range 100 {
		n := uint64(1 + rand.IntN(300<<10))
		va := k.must("cuMemAlloc", a(n))[0]
		if va%512 != 0 {
			t.Fatalf("allocation %d at %#x", i, va)
		}
		b := random(int(n))
		k.write(va, b)
		if !bytes.Equal(k.read(va, n), b) {
			t.Fatalf("allocation %d of %d bytes reads back otherwise", i, n)
		}
		all = append(all, va)
		if len(all) > 20 {
			k.must("cuMemFree", all[:1])
			all = all[1:]
		}
	}
	base := k.must("cuMemGetAddressRange", a(all[0]+100))
	if base[0] != all[0] {
		t.Errorf("range of %#x begins at %#x", all[0], base[0])
	}
	for _, va := range all {
		k.must("cuMemFree", a(va))
		k.want(InvalidValue, "cuMemFree", a(va))
	}
	if info := k.must("cuMemGetInfo", nil); info[0] != info[1] {
		t.Errorf("after all is freed %d of %d bytes are free", info[0], info[1])
	}
	big := k.must("cuMemAlloc", a(64<<20))[0]
	k.want(OutOfMemory, "cuMemAlloc", a(1))
	k.must("cuMemFree", a(big))
	k.must("cuMemAlloc", a(1))
}

func prop(types uint32) []byte {
	b := make([]byte, sizeofProp)
	binary.LittleEndian.PutUint32(b, allocationPinned)
	binary.LittleEndian.PutUint32(b[4:], types)
	binary.LittleEndian.PutUint32(b[8:], locationDevice)
	return blob(b)
}

func access(flags uint32) []byte {
	b := make([]byte, sizeofAccessDesc)
	binary.LittleEndian.PutUint32(b, locationDevice)
	binary.LittleEndian.PutUint32(b[8:], flags)
	return blob(b)
}

func TestSharedMemoryOutlivesItsMaker(t *testing.T) {
	s := serve(t, Config{Memory: 16 << 20})
	maker, keeper := s.process(), s.process()
	m, k := maker.thread(1).start(), keeper.thread(2).start()
	const size = 4 << 20
	h := m.must("cuMemCreate", a(size, 0), prop(handleTypeFD))[0]
	va := m.must("cuMemAddressReserve", a(size, 0, 0, 0))[0]
	m.must("cuMemMap", a(va, size, 0, h, 0))
	m.want(InvalidValue, "cuMemMap", a(va, size, 0, h, 0))
	m.want(InvalidValue, "MEMSET", a(va, 0, 1, 1, 16, 1, 0, 0)) // no access yet
	m.must("cuMemSetAccess", a(va, size, 1), access(accessReadWrite))
	st, rep := m.do("cuMemExportToShareableHandle", a(h, handleTypeFD, 0))
	if st != Success || len(rep.FDs) != 1 {
		t.Fatalf("export: %v", st)
	}
	fd := rep.FDs[0]
	defer unix.Close(fd)
	b := random(size)
	m.write(va, b)
	maker.exit()
	s.left(k, 1)

	st, rep = k.doFD("cuMemImportFromShareableHandle", a(handleTypeFD), []int{fd})
	if st != Success {
		t.Fatalf("import: %v", st)
	}
	h2 := rep.Outs[0]
	k.want(InvalidValue, "cuMemExportToShareableHandle", a(h2, handleTypeFD, 0))
	va2 := k.must("cuMemAddressReserve", a(size, 0, 0, 0))[0]
	k.must("cuMemMap", a(va2, size, 0, h2, 0))
	k.must("cuMemRelease", a(h2))
	k.must("cuMemSetAccess", a(va2, size, 1), access(accessReadWrite))
	if !bytes.Equal(k.read(va2, size), b) {
		t.Error("imported memory has other bytes")
	}
	if used := s.stats(k).UsedBytes[0]; used != size {
		t.Errorf("%d bytes used, want %d", used, size)
	}
	if r := k.must("cuMemRetainAllocationHandle", a(va2+5)); r[0] != h2 {
		t.Errorf("handle %#x, was %#x", r[0], h2)
	}
	k.must("cuMemRelease", a(h2))
	k.must("cuMemUnmap", a(va2, size))
	k.must("cuMemAddressFree", a(va2, size))
	if st := s.stats(k); st.UsedBytes[0] != size || st.KeptBytes != size {
		t.Errorf("%d bytes used, %d of them kept by descriptors, after all is released", st.UsedBytes[0], st.KeptBytes)
	}
	// The descriptor alone brings the memory back.
	if st, _ := k.doFD("cuMemImportFromShareableHandle", a(handleTypeFD), []int{fd}); st != Success {
		t.Errorf("second import: %v", st)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if st, _ := k.doFD("cuMemImportFromShareableHandle", a(handleTypeFD), []int{int(null.Fd())}); st != InvalidValue {
		t.Errorf("import of %s: %v", os.DevNull, st)
	}
}

// The memory of a program that died is in use for as long as somebody keeps a descriptor of it.
func TestDescriptorsKeepMemoryInUse(t *testing.T) {
	s := serve(t, Config{Memory: 16 << 20})
	maker, other := s.process(), s.process()
	m, k := maker.thread(1).start(), other.thread(2).start()
	const size = 12 << 20
	h := m.must("cuMemCreate", a(size, 0), prop(handleTypeFD))[0]
	var fds []int
	for range 2 {
		st, rep := m.do("cuMemExportToShareableHandle", a(h, handleTypeFD, 0))
		if st != Success || len(rep.FDs) != 1 {
			t.Fatalf("export: %v", st)
		}
		fds = append(fds, rep.FDs[0])
	}
	dup, err := unix.Dup(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	fds = append(fds, dup)
	maker.exit()
	s.left(k, 1)
	for _, fd := range fds {
		if free := k.must("cuMemGetInfo", nil)[0]; free != 4<<20 {
			t.Errorf("%d bytes free while a descriptor is open", free)
		}
		k.want(OutOfMemory, "cuMemAlloc", a(8<<20))
		unix.Close(fd)
	}
	k.must("cuMemFree", a(k.must("cuMemAlloc", a(8<<20))[0]))
	if free := k.must("cuMemGetInfo", nil)[0]; free != 16<<20 {
		t.Errorf("%d bytes free once all descriptors are closed", free)
	}
}

func TestPinnedMemoryIsShared(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	p := k.pin(10000)
	va := k.must("cuMemAlloc", a(10000))[0]
	b := random(10000)
	copy(p.mem, b)
	s := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	k.must("MEMCPY", a(va, p.addr, gpuwire.KindKnown, gpuwire.KindKnown, 10000, s, gpuwire.FlagAsync))
	k.must("MEMSET", a(p.addr, 0, 0, 1, 10000, 1, s, gpuwire.FlagAsync))
	k.must("MEMCPY", a(p.addr+4, va+4, gpuwire.KindKnown, gpuwire.KindKnown, 100, s, gpuwire.FlagAsync))
	k.must("cuStreamSynchronize", a(s))
	if !bytes.Equal(p.mem[4:104], b[4:104]) || p.mem[3] != 0 || p.mem[104] != 0 {
		t.Error("pinned memory does not hold what was copied")
	}
	if !bytes.Equal(k.read(va, 10000), b) {
		t.Error("device memory does not hold what was copied")
	}
	k.must("HOST_FREE", a(p.addr))
	k.want(InvalidValue, "HOST_FREE", a(p.addr))
	k.want(InvalidValue, "MEMCPY", a(va, p.addr, gpuwire.KindKnown, gpuwire.KindKnown, 1, s, gpuwire.FlagAsync))
}

func TestPitchedCopies(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	out := k.must("cuMemAllocPitch", a(100, 30, 4))
	va, pitch := out[0], out[1]
	b := random(100 * 30)
	k.must("MEMCPY3D", a(va, 0, gpuwire.KindKnown, gpuwire.KindPageable, 100, 10, 3, pitch, 10, 100, 10, 0, 0), b)
	k.must("MEMSET", a(va+4, pitch, 0xabcd, 2, 3, 30, 0, 0))
	for i := range 30 {
		for j := range 3 {
			binary.LittleEndian.PutUint16(b[i*100+4+2*j:], 0xabcd)
		}
	}
	st, rep := k.do("MEMCPY3D", a(0, va, gpuwire.KindPageable, gpuwire.KindKnown, 100, 10, 3, 100, 10, pitch, 10, 0, 0))
	if st != Success || !bytes.Equal(rep.Payload, b) {
		t.Errorf("%v; %d bytes, equal %v", st, len(rep.Payload), bytes.Equal(rep.Payload, b))
	}
	k.want(InvalidValue, "MEMCPY3D", a(va, va, 1, 1, 1<<63, 2, 2, 1<<63, 2, 1<<63, 2, 0, 0))
	k.want(InvalidValue, "MEMCPY3D", a(va, va, 1, 1, 100, 1<<30, 1<<30, 1<<39, 1<<39, 1<<39, 1<<39, 0, 0))
}

func TestStreamsKeepOrder(t *testing.T) {
	c := serve(t, Config{}).process()
	k := c.thread(1).start()
	s1 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	s2 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	ev := k.must("cuEventCreate", a(eventDisableTiming))[0]
	// A callback that cannot end, because nobody takes note of it, keeps stream 1 busy.
	for range cap(c.calls) {
		c.calls <- [2]uint64{}
	}
	k.must("cuLaunchHostFunc", a(s1, 7, 8))
	k.must("cuEventRecord", a(ev, s1))
	k.must("cuStreamWaitEvent", a(s2, ev, 0))
	k.want(NotReady, "cuStreamQuery", a(s1))
	k.want(NotReady, "cuStreamQuery", a(s2))
	k.want(NotReady, "cuEventQuery", a(ev))
	s3 := k.must("cuStreamCreate", a(0))[0]
	k.must("cuStreamSynchronize", a(s3))
	k.must("cuStreamSynchronize", a(0)) // the legacy stream does not wait for non-blocking ones
	for range cap(c.calls) {
		<-c.calls
	}
	k.must("cuStreamSynchronize", a(s2))
	k.must("cuStreamQuery", a(s1))
	if got := <-c.calls; got != [2]uint64{7, 8} {
		t.Errorf("callback %v", got)
	}
}

func TestLegacyStreamWaitsForBlockingOnes(t *testing.T) {
	c := serve(t, Config{}).process()
	k := c.thread(1).start()
	s1 := k.must("cuStreamCreate", a(0))[0]
	for range cap(c.calls) {
		c.calls <- [2]uint64{}
	}
	k.must("cuLaunchHostFunc", a(s1, 1, 1))
	va := k.must("cuMemAlloc", a(64))[0]
	k.must("MEMSET", a(va, 0, 5, 1, 64, 1, 0, gpuwire.FlagAsync))
	k.want(NotReady, "cuStreamQuery", a(0))
	s2 := k.must("cuStreamCreate", a(0))[0]
	k.must("MEMSET", a(va, 0, 6, 1, 64, 1, s2, gpuwire.FlagAsync))
	k.want(NotReady, "cuStreamQuery", a(s2)) // behind the legacy stream
	for range cap(c.calls) {
		<-c.calls
	}
	k.must("cuCtxSynchronize", nil)
	if b := k.read(va, 1); b[0] != 6 {
		t.Errorf("byte %d", b[0])
	}
}

func TestStreamOrderedMemory(t *testing.T) {
	s := serve(t, Config{Memory: 8 << 20})
	k := s.process().thread(1).start()
	st := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	for range 20 {
		va := k.must("cuMemAllocAsync", a(6<<20, st))[0]
		k.must("MEMSET", a(va, 0, 1, 4, 1<<20, 1, st, gpuwire.FlagAsync))
		k.must("cuMemFreeAsync", a(va, st))
	}
	k.must("cuStreamSynchronize", a(st))
	pool := k.must("cuDeviceGetDefaultMemPool", a(0))[0]
	_, rep := k.do("cuMemPoolGetAttribute", a(pool, poolUsedCurrent))
	if b, _, _ := gpuwire.TakeBlob(rep.Payload); u64(b, 0) != 0 {
		t.Errorf("pool uses %d bytes", u64(b, 0))
	}
	k.must("cuMemPoolSetAttribute", a(pool, poolReleaseThreshold), blob(le64(77)))
	_, rep = k.do("cuMemPoolGetAttribute", a(pool, poolReleaseThreshold))
	if b, _, _ := gpuwire.TakeBlob(rep.Payload); u64(b, 0) != 77 {
		t.Errorf("threshold %d", u64(b, 0))
	}
}

func TestDeadClientLeavesNothing(t *testing.T) {
	s := serve(t, Config{})
	c := s.process()
	k := c.thread(1).start()
	for range 10 {
		k.must("cuMemAlloc", a(3<<20))
		k.must("cuMemAlloc", a(1000))
		k.pin(5000)
	}
	h := k.must("cuMemCreate", a(2<<20, 0), prop(handleTypeFD))[0]
	va := k.must("cuMemAddressReserve", a(2<<20, 0, 0, 0))[0]
	k.must("cuMemMap", a(va, 2<<20, 0, h, 0))
	k.must("cuMemSetAccess", a(va, 2<<20, 1), access(accessReadWrite))
	c.exit()
	// The server ends the thread's connection when all is cleaned up or about to be.
	if _, err := k.Unix().Read(make([]byte, 1)); err != io.EOF && !isReset(err) {
		t.Errorf("thread connection: %v", err)
	}
	other := s.process().thread(2)
	s.left(other, 1)
	if st := s.stats(other); st.UsedBytes[0] != 0 {
		t.Errorf("%+v", st)
	}
}

func isReset(err error) bool {
	return err != nil && bytes.Contains([]byte(err.Error()), []byte("reset"))
}

func TestServerEndsWhenIdle(t *testing.T) {
	s := serve(t, Config{Idle: 2 * time.Second}) // a busy machine takes a while to say hello
	c := s.process()
	c.exit()
	err := <-s.done
	s.done <- err
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.path); !os.IsNotExist(err) {
		t.Errorf("socket: %v", err)
	}
}

// What the stub sends and what the server answers come from two tables.
func TestServedFunctionsAreSent(t *testing.T) {
	ops, err := operations()
	if err != nil {
		t.Fatal(err)
	}
	fns, err := api.Functions()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fns {
		op := ops[uint32(f.Op)]
		if op.run != nil && (f.None || f.Local) {
			t.Errorf("%s is served, but the stub does not send it", f.Name)
		}
		if op.run == nil && !f.None && !f.Local && !f.Hand {
			t.Logf("%s is sent and not served", f.Name)
		}
	}
}

func TestUnservedFunctionsAreCounted(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	k.want(NotSupported, "cuTexRefCreate", nil)
	k.want(NotSupported, "cuTexRefCreate", nil)
	if n := s.stats(k).NotServed["cuTexRefCreate"]; n != 2 {
		t.Errorf("counted %d", n)
	}
}

func TestManyShortLivedClients(t *testing.T) {
	s := serve(t, Config{})
	watch := s.process().thread(1)
	fds := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := fds()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 12 {
				c := s.process()
				k := c.thread(rand.Uint64N(1 << 30)).start()
				k.must("cuMemAlloc", a(5<<20))
				p := k.pin(1000)
				fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
				k.scale(fn, 0, p.addr, 100, 1, 1)
				if rand.IntN(2) == 0 {
					k.must("cuCtxSynchronize", nil)
				}
				k.Close()
				c.exit()
				_ = unix.Munmap(p.mem)
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(20 * time.Second); s.stats(watch).Processes != 1 || fds() > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%+v; %d descriptors, before %d", s.stats(watch), fds(), before)
		}
	}
	if st := s.stats(watch); st.UsedBytes[0] != 0 || st.ProcessesTotal != 16*12+1 {
		t.Errorf("%+v", st)
	}
}

// Whatever arguments a client sends, the server lives, and so do other clients.
func TestHostileArguments(t *testing.T) {
	s := serve(t, Config{Memory: 64 << 20})
	good := s.process().thread(1).start()
	k := s.process().thread(2).start()
	go func() { // a stream whose host functions nobody takes stands still
		for {
			select {
			case <-k.c.calls:
			case <-k.c.ended:
				return
			}
		}
	}()
	skip := map[string]bool{"cuCheckpointProcessRestore": true, "cuCheckpointProcessCheckpoint": true,
		"cuCheckpointProcessLock": true,
		"cuStreamWaitValue32":     true, "cuStreamWaitValue64": true, // may wait for ever, as asked
		"cuStreamBatchMemOp": true}
	va := k.must("cuMemAlloc", a(4096))[0]
	interesting := []uint64{0, 1, 2, 3, 4, 64, 4096, 2 << 20, va, firstHandle, firstHandle + 16, firstHandle + 32,
		firstHandle + 48, 1 << 31, 1 << 63, ^uint64(0)}
	for name := range names() {
		if skip[name] {
			continue
		}
		for range 30 {
			args := make([]uint64, rand.IntN(16))
			for i := range args {
				args[i] = interesting[rand.IntN(len(interesting))]
			}
			var payload []byte
			switch rand.IntN(3) {
			case 1:
				payload = random(rand.IntN(20) * 8)
			case 2:
				payload = append(blob(random(rand.IntN(10)*8)), blob(random(rand.IntN(10)*8))...)
			}
			_, rep := k.do(name, args, payload)
			closeFDs(rep.FDs)
		}
		k.do("cuInit", a(0))
		if _, rep := k.do("cuDevicePrimaryCtxRetain", a(0)); len(rep.Outs) > 0 {
			k.do("cuCtxSetCurrent", rep.Outs)
		}
	}
	if bytes.Contains([]byte(s.log.String()), []byte("operation failed")) {
		t.Errorf("an operation panicked:\n%s", s.log)
	}
	good.must("cuMemGetInfo", nil)
}
