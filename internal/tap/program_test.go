package tap_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/process"
	"holdfast/internal/recorder"
	"holdfast/internal/softgpu/device"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
	"holdfast/test/rig"
)

// patience bounds every wait of a test: it is reached only when something is broken.
const patience = time.Minute

// build is a directory with the shim's test program, that of graphs, and what the benchmark needs: programs, and in
// null a driver that does nothing.
func build(t testing.TB) string {
	t.Helper()
	names := map[string]string{"prog": "prog", "graphs": "execgraphs", "cost": "cost",
		"changes": "changes", "load": "load"}
	sources := []string{helpers + "null.c"}
	for _, c := range names {
		sources = append(sources, helpers+c+".c")
	}
	slices.Sort(sources)
	return rig.Build(t, "tap", sources, func(dir string) error {
		null, stub := filepath.Join(dir, "null"), rig.Stub(t)
		if err := os.Mkdir(null, 0o755); err != nil {
			return err
		}
		if err := rig.Run("gcc", "-O2", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
			rig.Path(t, helpers+"null.c"), "-o", filepath.Join(null, "libcuda.so.1")); err != nil {
			return err
		}
		for name, c := range names {
			lib := null
			if name == "prog" || name == "graphs" {
				lib = stub
			}
			if err := rig.Run("gcc", "-O2", rig.Path(t, helpers+c+".c"), "-o", filepath.Join(dir, name),
				"-L"+lib, "-l:libcuda.so.1", "-lpthread"); err != nil {
				return err
			}
		}
		return nil
	})
}

const helpers = "test/programs/helpers/"

// preload puts a program under the shim.
func preload(t testing.TB) string {
	t.Helper()
	return "LD_PRELOAD=" + filepath.Join(rig.Shim(t), "libholdfast.so")
}

// gpu starts a software GPU and gives the environment of its programs.
func gpu(t *testing.T) []string {
	t.Helper()
	socket, _ := rig.GPU(t, device.Config{Memory: 1 << 30, Devices: 1})
	return append(rig.Environment(t, socket), preload(t))
}

// A program is prog, driven by lines.
type program = rig.Driven

func start(t *testing.T, env ...string) *program {
	t.Helper()
	return startProgram(t, "prog", env...)
}

func startProgram(t *testing.T, name string, env ...string) *program {
	t.Helper()
	return rig.Drive(t, exec.Command(filepath.Join(build(t), name)), 4*patience, env...)
}

// A recording is a recorder with its socket and what it has written.
type recording struct {
	t      *testing.T
	rec    *recorder.Recorder
	file   bytes.Buffer
	socket string
	l      *net.UnixListener
	served chan error
}

func record(t *testing.T, caches ...string) *recording {
	t.Helper()
	r := &recording{t: t, socket: filepath.Join(t.TempDir(), "s"), served: make(chan error, 1)}
	var err error
	if r.l, err = wire.Listen(r.socket); err != nil {
		t.Fatal(err)
	}
	if r.rec, err = recorder.New(&r.file, func(int) []string {
		return caches
	}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.rec.Serve(context.Background(), r.l) }()
	return r
}

// finish ends the recording and gives the processes, and the records in the file by process.
func (r *recording) finish() ([]*recorder.Process, map[uint32][]trace.Record) {
	r.t.Helper()
	r.l.Close()
	if err := <-r.served; err != nil {
		r.t.Fatal(err)
	}
	list, err := r.rec.Finish()
	if err != nil {
		r.t.Fatal(err)
	}
	tr, err := trace.NewReader(&r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	defer tr.Close()
	records := map[uint32][]trace.Record{}
	for {
		rec, err := tr.Next()
		if err == io.EOF {
			return list, records
		}
		if err != nil {
			r.t.Fatal(err)
		}
		records[tr.Process()] = append(records[tr.Process()], rec)
	}
}

func word(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func TestRecord(t *testing.T) {
	env := gpu(t)
	r := record(t)
	p := start(t, append(env, "HOLDFAST_TRACE="+r.socket)...)
	p.OK("init")
	at := p.OK("alloc 64")[0]
	p.OK("fill %d 0 64", at)
	p.OK("stream")
	p.OK("launch %d 10", at)
	p.OK("graph %d 0", at+8)
	p.OK("glaunch 3")
	handle := p.OK("create %d", 2<<20)[0]
	va := p.OK("reserve %d", 2<<20)[0]
	p.OK("map %d %d %d", va, 2<<20, handle)
	p.OK("launch %d 1", va)
	p.OK("unmap %d %d", va, 2<<20)
	p.Send("fork") // the child has nothing to record
	p.Numbers()
	p.OK("variable")
	p.OK("bump 0 2")
	p.OK("unload 0")
	p.OK("free %d", at)
	other := p.OK("alloc 4096")[0]
	p.OK("launch %d 1", other)
	if got := p.OK("read %d", other)[0]; got == 0 {
		t.Error("nothing was launched")
	}
	p.Quit()
	list, records := r.finish()
	if len(list) != 1 {
		t.Fatalf("%d processes", len(list))
	}
	q := list[0]
	if q.Launches != 16 || q.Launches != q.Counted.Launches || q.Graphs != 3 || q.Counted.Graphs != 3 ||
		q.Copies != q.Counted.Copies || !q.Clean || q.Err != nil {
		t.Errorf("%+v", q)
	}
	s := trace.NewState()
	texts := map[trace.Digest][]byte{}
	on := map[uint64]int{}
	var captured, nodes, graphs int
	for _, rec := range records[q.Number] {
		s.Apply(rec)
		switch rec := rec.(type) {
		case *trace.Text:
			texts[rec.Digest] = append(texts[rec.Digest], rec.Bytes...)
		case *trace.GraphLaunch:
			graphs++
			g := s.Graph(rec.Graph)
			if g == nil || !g.Done || g.Flags&trace.Incomplete != 0 || len(g.Work) < 2 {
				t.Fatalf("graph %+v", g)
			}
		case *trace.Launch:
			k := s.Kernel(rec.Kernel)
			if k == nil || rec.Grid != [3]uint32{1, 1, 1} || rec.Block != [3]uint32{1, 1, 1} ||
				rec.Cluster != [3]uint32{1, 1, 1} || rec.Flags&trace.NoParams != 0 {
				t.Fatalf("launch %+v of %+v", rec, k)
			}
			m := s.Image(k.Module)
			if m == nil || len(m.Texts) != 1 ||
				!bytes.Contains(texts[m.Texts[0].Digest], []byte(".entry "+k.Name+"(")) || m.Texts[0].Arch == 0 {
				t.Fatalf("kernel %s of %+v", k.Name, m)
			}
			if k.Name == "bump" {
				if len(k.Params) != 0 || len(rec.Params) != 0 {
					t.Errorf("bump takes %v, given %x", k.Params, rec.Params)
				}
				on[0]++
				continue
			}
			if len(k.Params) != 1 || k.Params[0] != (trace.Param{Offset: 0, Size: 8}) {
				t.Fatalf("kernel %+v", k)
			}
			arg := word(rec.Params)
			switch {
			case rec.Flags&trace.Node != 0:
				nodes++
			case rec.Flags&trace.Captured != 0:
				captured++
			default:
				on[arg]++
				if s.At(arg) == nil {
					t.Errorf("%#x was launched on, and there is no memory", arg)
				}
			}
		}
	}
	if on[at] != 10 || on[va] != 1 || on[other] == 0 || on[0] != 2 || captured != 2 || nodes != 2 || graphs != 3 {
		t.Errorf("launches on %v, %d captured, %d nodes, %d graphs", on, captured, nodes, graphs)
	}
	if s.At(va) != nil || s.At(other) == nil {
		t.Errorf("memory at the end: %+v", s.Allocs())
	}
	if e, ok := records[q.Number][len(records[q.Number])-1].(*trace.Exit); !ok || e.Flags&trace.Clean == 0 ||
		e.Launches != 16 {
		t.Errorf("at the end %+v", records[q.Number][len(records[q.Number])-1])
	}
	if s := p.Stderr.String(); s != "" {
		t.Errorf("stderr: %s", s)
	}
}

// Threads, and a program that is killed while they launch: what is in the file is whole.
func TestKilled(t *testing.T) {
	env := gpu(t)
	r := record(t)
	p := start(t, append(env, "HOLDFAST_TRACE="+r.socket)...)
	p.OK("init")
	p.Send("threads 4")
	p.Numbers()
	for n := int64(0); n < 4096; n = r.rec.Bytes() { // some blocks
		p.OK("alloc 512")
	}
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	list, records := r.finish()
	q := list[0]
	// A thread that was killed may have counted a launch that it did not come to record.
	if q.Clean || q.Err != nil || q.Launches == 0 || q.Counted.Launches < q.Launches ||
		q.Counted.Launches > q.Launches+4 {
		t.Errorf("%+v", q)
	}
	threads := map[uint32]bool{}
	for _, rec := range records[q.Number] {
		if l, ok := rec.(*trace.Launch); ok {
			threads[l.Thread] = true
		}
	}
	if len(threads) != 4 {
		t.Errorf("launches of threads %v", threads)
	}
}

// dial plays the recorder's end of the conversation up to the tap.
func dial(t *testing.T, l *net.UnixListener) (*wire.Conn, *tap.Reader) {
	t.Helper()
	l.SetDeadline(time.Now().Add(patience))
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	conn := wire.NewConn(c)
	t.Cleanup(func() { conn.Close() })
	_, m, fds, err := conn.Recv()
	if err != nil {
		t.Fatal(err)
	}
	wire.CloseAll(fds)
	if h, ok := m.(*wire.Hello); !ok || h.Flags != wire.HelloTrace {
		t.Fatalf("%+v", m)
	}
	r, err := tap.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	for _, err := range []error{conn.Send(0, &wire.Welcome{Proto: wire.Version}),
		conn.Send(1, &wire.Tap{Flags: wire.TapRecord}, r.FD())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return conn, r
}

type counter struct {
	launches int
	values   []uint64 // of the first parameter that counts
}

func (c *counter) Module(*tap.Module) error { return nil }
func (c *counter) Record(rec trace.Record, _ []byte) error {
	if l, ok := rec.(*trace.Launch); ok {
		c.launches++
		c.values = append(c.values, word(l.Params))
	}
	return nil
}

// costs starts the program that only launches, on the driver that does nothing, and returns when it is ready to.
func costs(t testing.TB, launches, rounds int, gap float64, env ...string) (in io.Writer,
	out *bufio.Reader, ready func()) {
	t.Helper()
	return onNull(t, []string{"cost", strconv.Itoa(launches), strconv.Itoa(rounds), fmt.Sprint(gap)}, env...)
}

// onNull starts a program on the null driver.
func onNull(t testing.TB, args []string, env ...string) (in io.Writer, out *bufio.Reader, ready func()) {
	t.Helper()
	dir := build(t)
	cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
	cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(dir, "null")), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(4*patience, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	})
	out = bufio.NewReader(stdout)
	return stdin, out, func() {
		t.Helper()
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// A program that is ahead of its recorder waits, loses nothing, and says how often; one whose recorder is gone runs on.
func TestFull(t *testing.T) {
	l, err := wire.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const launches = 3 * wire.TapRing / 72
	in, out, ready := costs(t, launches, 2, 0, preload(t), "HOLDFAST_TRACE="+l.Addr().String())
	conn, r := dial(t, l)
	ready()
	fmt.Fprintln(in)
	for n := uint64(0); n == 0; n, _ = r.Waits() {
		runtime.Gosched()
	}
	c := &counter{}
	for c.launches < launches {
		if _, err := r.Read(c); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range c.values[:launches] {
		if v != uint64(i)+1 {
			t.Fatalf("the %dth launch is launch %d", i, v)
		}
	}
	if n, total := r.Waits(); n == 0 || total <= 0 {
		t.Errorf("waited %d times, %v", n, total)
	}
	conn.Close() // in the second round
	if line, err := out.ReadString('\n'); err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

// cubin is an ELF file laid out as ptxas does: sections, their headers, program headers. Between the names of the
// sections and the text that it was assembled from (none if empty) it has nothing but payload.
func cubin(payload int, text string) []byte {
	le := binary.LittleEndian
	names := "\x00.shstrtab\x00.nv_debug_ptx_txt\x00"
	b := make([]byte, 64, 64+len(names)+payload+len(text)+3*64+56)
	copy(b, "\x7fELF\x02\x01\x01")
	b = append(b, names...)
	for i := range payload {
		b = append(b, byte(i*i>>3))
	}
	at := len(b)
	b = append(b, strings.ReplaceAll(text, "\n", "\x00")...)
	sections := [][3]int{{}, {1, 64, len(names)}, {11, at, len(text)}} // name, offset, size
	if text == "" {
		sections = sections[:2]
	}
	le.PutUint64(b[40:], uint64(len(b)))                  // e_shoff
	le.PutUint64(b[32:], uint64(len(b)+64*len(sections))) // e_phoff
	le.PutUint16(b[54:], 56)                              // e_phentsize
	le.PutUint16(b[56:], 1)                               // e_phnum
	le.PutUint16(b[58:], 64)                              // e_shentsize
	le.PutUint16(b[60:], uint16(len(sections)))           // e_shnum
	le.PutUint16(b[62:], 1)                               // e_shstrndx
	for _, s := range sections {
		h := make([]byte, 64)
		le.PutUint32(h, uint32(s[0]))
		le.PutUint32(h[4:], 1) // SHT_PROGBITS
		le.PutUint64(h[24:], uint64(s[1]))
		le.PutUint64(h[32:], uint64(s[2]))
		b = append(b, h...)
	}
	return append(b, make([]byte, 56)...)
}

// Cubins of all lengths around a block of SHA-256, what Triton has left beside one of them, and what ptxas has left in
// another.
func TestCubins(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	var files []string
	digests := map[trace.Digest]int{}
	const inside = ".version 8.4\n.target sm_89\n"
	for _, payload := range []int{1, 54, 55, 56, 63, 64, 65, 119, 120, 5000, 6000, 17 << 20} {
		name := filepath.Join(dir, fmt.Sprintf("%d.cubin", payload))
		b := cubin(payload, "")
		if payload == 6000 {
			b = cubin(payload, inside)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
		if payload <= 16<<20 {
			digests[sha256.Sum256(b)] = len(b)
		}
	}
	// A section without contents, by a type that is not known to be of such: it must not be read.
	shared := cubin(7000, inside)
	header := shared[binary.LittleEndian.Uint64(shared[40:])+2*64:]
	binary.LittleEndian.PutUint32(header[4:], 0x7000000a)
	binary.LittleEndian.PutUint64(header[32:], 15<<20)
	files = append(files, filepath.Join(dir, "shared.cubin"))
	if err := os.WriteFile(files[len(files)-1], shared, 0o600); err != nil {
		t.Fatal(err)
	}
	ptx := []byte(".version 8.0\n.target sm_90\n")
	for name, b := range map[string][]byte{"h/k.cubin": cubin(5000, ""), "h/k.ptx": ptx} {
		name = filepath.Join(cache, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := record(t, cache)
	cmd := exec.Command(filepath.Join(build(t), "load"), files...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(build(t), "null"), preload(t),
		"HOLDFAST_TRACE="+r.socket)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	_, records := r.finish()
	images, texts, unsure := 0, 0, 0
	for _, rec := range records[1] {
		switch rec := rec.(type) {
		case *trace.Image:
			images++
			if rec.Bytes == 0 && rec.Digest == (trace.Digest{}) && rec.Flags == 0 {
				unsure++
				continue
			}
			size, ok := digests[rec.Digest]
			if outline := rec.Flags&trace.Outline != 0; rec.Kind != trace.CodeCubin || ok == outline ||
				ok && rec.Bytes != uint64(size) || rec.Digest == (trace.Digest{}) {
				t.Errorf("%+v", rec)
			}
			if has := size == len(cubin(6000, inside)); has != (rec.Flags&trace.Assembled != 0) ||
				has && !slices.Equal(rec.Texts, []trace.TextRef{{Arch: 89, Digest: sha256.Sum256([]byte(inside))}}) {
				t.Errorf("%+v", rec)
			}
		case *trace.Launch:
			want := make([]byte, 76) // the last is of 4 bytes; what is between parameters is zero
			for i := range 10 {
				want[8*i] = 1
			}
			if !bytes.Equal(rec.Params, want) {
				t.Errorf("parameters %x", rec.Params)
			}
		case *trace.Text:
			texts++
			if string(rec.Bytes) != inside {
				t.Errorf("text %q", rec.Bytes)
			}
		}
	}
	for _, rec := range records[0] {
		switch rec := rec.(type) {
		case *trace.Text:
			texts++
		case *trace.Found:
			if digests[rec.Image] != len(cubin(5000, "")) || rec.TextRef.Digest != sha256.Sum256(ptx) ||
				rec.Arch != 90 {
				t.Errorf("%+v", rec)
			}
		}
	}
	if images != len(files) || texts != 2 || unsure != 1 {
		t.Errorf("%d images of %d, %d texts, %d of no size", images, len(files), texts, unsure)
	}
}

func TestNoRecorder(t *testing.T) {
	env := gpu(t)
	p := start(t, append(env, "HOLDFAST_TRACE="+filepath.Join(t.TempDir(), "none"))...)
	p.OK("init")
	at := p.OK("alloc 8")[0]
	p.OK("launch %d 1", at)
	p.Quit()
	if s := p.Stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "is not traced") {
		t.Errorf("stderr: %q", s)
	}
}

// A watched is a held program, and what its watcher was told.
type watched struct {
	t       *testing.T
	p       *program
	held    *process.Program
	conn    *wire.Conn
	l       *net.UnixListener
	modules chan *tap.Module
	work    chan *process.Work
	broken  chan error
}

func (w *watched) Module(m *tap.Module)    { w.modules <- m }
func (w *watched) Record(trace.Record)     {}
func (w *watched) Work(work *process.Work) { w.work <- work }
func (w *watched) Broken(err error)        { w.broken <- err }

// hold starts a program and plays its daemon.
func hold(t *testing.T) *watched {
	t.Helper()
	w, _ := holdProgram(t, "prog")
	return w
}

// holdProgram gives the answer to init, too.
func holdProgram(t *testing.T, name string) (*watched, []uint64) {
	t.Helper()
	env := gpu(t)
	dir := t.TempDir()
	l, err := wire.Listen(filepath.Join(dir, "shim.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := startProgram(t, name, append(env, "HOLDFAST_DIR="+dir)...)
	p.Send("init")
	w := adopt(t, l)
	w.t, w.p = t, p
	got := p.Numbers()
	if got[0] != 0 {
		t.Fatal(got)
	}
	return w, got[1:]
}

// adopt takes a program that says hello.
func adopt(t testing.TB, l *net.UnixListener) *watched {
	t.Helper()
	w := &watched{l: l, modules: make(chan *tap.Module, 100), work: make(chan *process.Work, 100),
		broken: make(chan error, 10)}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	w.conn = wire.NewConn(c)
	_, m, fds, err := w.conn.Recv()
	if err != nil {
		t.Fatal(err)
	}
	hello := m.(*wire.Hello)
	id, err := process.Identify(hello, int(hello.PID), [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	w.held = process.New(id, "running", slog.New(slog.DiscardHandler))
	if err := w.held.Attach(w.conn, hello, fds[0]); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- w.held.Serve(func(*process.Program, *wire.Room) uint64 { return 0 }) }()
	t.Cleanup(func() {
		w.conn.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watched) tap(cfg process.TapConfig) *process.Tap {
	w.t.Helper()
	t, err := w.held.Tap(w.t.Context(), cfg, w)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func (w *watched) ask(t *process.Tap, flags uint32) {
	w.t.Helper()
	if err := t.Ask(w.t.Context(), flags); err != nil {
		w.t.Fatal(err)
	}
}

func next[T any](t *testing.T, what string, c chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// value reads device memory behind the program's back.
func (w *watched) value(addr uint64) uint64 {
	w.t.Helper()
	for _, a := range w.held.Allocs() {
		if addr-a.VA < a.Size {
			var b [8]byte
			if _, err := unix.Pread(int(a.File.Fd()), b[:], int64(addr-a.VA)); err != nil {
				w.t.Fatal(err)
			}
			return word(b[:])
		}
	}
	w.t.Fatalf("nobody holds %#x", addr)
	return 0
}

// A program that tells without end is not followed any more, and runs on.
func TestToldTooMuch(t *testing.T) {
	for name, most := range map[string]int64{"at once": 1, "later": 20 << 10} {
		t.Run(name, func(t *testing.T) {
			w := hold(t)
			at := w.p.OK("alloc 64")[0]
			w.p.OK("stream")
			w.p.OK("launch %d 1", at)
			if most == 1 {
				if _, err := w.held.Tap(t.Context(), process.TapConfig{Most: most}, w); err == nil {
					t.Error("more than nothing was taken")
				}
			} else {
				w.ask(w.tap(process.TapConfig{Most: most}), wire.AskWrites)
				for range 400 {
					w.p.OK("alloc 64")
				}
			}
			if err := next(t, "the end of the tap", w.broken); !strings.Contains(err.Error(),
				"more code, kernels, graphs or memory") {
				t.Error(err)
			}
			w.p.OK("launch %d 1", at) // nobody answers, and it does not ask
			if why := w.held.Unfollowed(); !strings.Contains(why, "no longer foreseen") {
				t.Errorf("%q", why)
			}
			if _, err := w.held.Tap(t.Context(), process.TapConfig{}, w); err == nil || !strings.Contains(err.Error(),
				"no longer foreseen") {
				t.Errorf("followed again: %v", err)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	w := hold(t)
	p := w.p
	at := p.OK("alloc 64")[0]
	p.OK("fill %d 0 64", at)
	p.OK("stream")
	p.OK("graph %d 0", at+8)
	p.OK("launch %d 1", at)
	tp := w.tap(process.TapConfig{Spin: time.Millisecond})
	m := next(t, "the module", w.modules)
	if m.Kind != trace.CodePTX || len(m.PTX) != 1 || !bytes.Contains(m.PTX[0], []byte(".entry inc(")) || m.Err != nil {
		t.Fatalf("module %+v", m)
	}
	p.OK("launch %d 1", at) // nothing asks yet

	// While frozen: nothing that comes after runs unasked.
	if _, err := w.held.Freeze(t.Context(), patience, 0); err != nil {
		t.Fatal(err)
	}
	w.ask(tp, wire.AskWrites)
	p.Send("launch %d 1", at)
	if err := w.held.Thaw(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	work := next(t, "the launch", w.work)
	if len(work.Parts) != 1 || work.Parts[0].Launch == nil || work.Parts[0].Kernel == nil ||
		work.Parts[0].Kernel.Name != "inc" || work.Parts[0].Module != m ||
		word(work.Parts[0].Launch.Params) != at || work.Opaque != "" {
		t.Fatalf("%+v", work)
	}
	if v := w.value(at); v != 2 {
		t.Errorf("it has run unanswered: %d", v)
	}
	work.Go()
	work.Go()
	if got := p.Numbers(); got[0] != 0 {
		t.Fatal(got)
	}
	if v := w.value(at); v != 3 {
		t.Errorf("%d launches ran, want 3", v)
	}
	if v := p.OK("read %d", at)[0]; v != 3 { // only reads: does not ask
		t.Errorf("read %d", v)
	}
	p.Send("fill %d 7 16", at+16)
	work = next(t, "the memset", w.work)
	if len(work.Parts) != 1 || work.Parts[0].Copy == nil || work.Parts[0].Copy.Dst != at+16 ||
		work.Parts[0].Copy.Width != 16 || work.Parts[0].Copy.Flags&trace.Set == 0 {
		t.Fatalf("%+v", work)
	}
	work.Go()
	p.Numbers()
	p.Send("glaunch 1")
	work = next(t, "the graph", w.work)
	if len(work.Parts) != 2 || work.Opaque != "" || word(work.Parts[0].Launch.Params) != at+8 ||
		work.Parts[1].Module != m {
		t.Fatalf("%+v", work)
	}
	work.Go()
	p.Numbers()

	w.ask(tp, wire.AskWrites|wire.AskReads)
	p.Send("read %d", at)
	work = next(t, "the copy", w.work)
	if len(work.Parts) != 1 || work.Parts[0].Copy.Src != at || work.Parts[0].Copy.Flags&trace.DstHost == 0 {
		t.Fatalf("%+v", work)
	}
	work.Go()
	if got := p.Numbers(); got[1] != 3 {
		t.Errorf("read %v", got)
	}
	w.ask(tp, 0)
	p.OK("launch %d 5", at)

	// What waits runs when the watching ends.
	w.ask(tp, wire.AskWrites)
	p.Send("launch %d 1", at)
	work = next(t, "the launch", w.work)
	if err := tp.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Numbers()
	work.Go() // too late, and harmless
	if v := p.OK("read %d", at)[0]; v != 9 {
		t.Errorf("%d launches ran, want 9", v)
	}
	// Again, without code.
	tp = w.tap(process.TapConfig{NoCode: true})
	if m := next(t, "the module", w.modules); len(m.PTX) != 0 {
		t.Errorf("told with PTX: %+v", m)
	}
	w.ask(tp, wire.AskWrites)
	p.Send("launch %d 1", at)
	next(t, "the launch", w.work).Go()
	p.Numbers()
	select {
	case err := <-w.broken:
		t.Error(err)
	default:
	}
	for range 2 {
		if err := tp.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	work.Go()
	p.Quit()
}

// Nobody answers in time: everything runs on, and it is said.
func TestPatience(t *testing.T) {
	w := hold(t)
	at := w.p.OK("alloc 64")[0]
	tp := w.tap(process.TapConfig{Patience: 20 * time.Millisecond})
	w.ask(tp, wire.AskWrites)
	w.p.Send("launch %d 3", at)
	next(t, "the launch", w.work)
	if err := next(t, "the end of patience", w.broken); !strings.Contains(err.Error(), "not answered") {
		t.Error(err)
	}
	if got := w.p.Numbers(); got[0] != 0 {
		t.Error(got)
	}
	w.p.Quit()
}

// The daemon dies while a launch waits for it.
func TestDaemonDies(t *testing.T) {
	w := hold(t)
	at := w.p.OK("alloc 64")[0]
	tp := w.tap(process.TapConfig{})
	w.ask(tp, wire.AskWrites)
	w.p.Send("launch %d 3", at)
	next(t, "the launch", w.work)
	w.conn.Close()
	if err := next(t, "the broken tap", w.broken); !errors.Is(err, process.ErrGone) {
		t.Error(err)
	}
	if got := w.p.Numbers(); got[0] != 0 {
		t.Error(got)
	}
	w.p.Quit()
}

// The same where memory may not be complete: what waits goes on waiting, whoever comes next.
func TestHold(t *testing.T) {
	w := hold(t)
	at := w.p.OK("alloc 64")[0]
	w.p.OK("write %d 5", at)
	tp := w.tap(process.TapConfig{})
	w.ask(tp, wire.AskWrites|wire.AskHold)
	w.p.Send("launch %d 1", at)
	next(t, "the launch", w.work)
	w.conn.Close()
	next(t, "the broken tap", w.broken)
	again := adopt(t, w.l)
	if err := again.held.WaitAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.t = t
	if v := again.value(at); v != 5 {
		t.Errorf("the launch has run: %d", v)
	}
	w.p.Cmd.Process.Kill()
}

// Many threads ask at once, and are answered out of order and late.
func TestManyAsk(t *testing.T) {
	const threads = 8
	w := hold(t)
	tp := w.tap(process.TapConfig{Spin: 100 * time.Microsecond})
	w.ask(tp, wire.AskWrites)
	stop, ended := make(chan struct{}), make(chan struct{})
	answered := 0
	go func() {
		defer close(ended)
		var late []*process.Work
		flush := func() {
			for i := len(late) - 1; i >= 0; i-- {
				late[i].Go()
			}
			late = late[:0]
		}
		for {
			select {
			case work := <-w.work:
				answered++
				late = append(late, work)
				if len(late) == 3 {
					flush()
				}
			case <-stop:
				flush()
				return
			default:
				flush()
			}
		}
	}()
	w.p.Send("threads %d", threads)
	w.p.Numbers()
	for w.held.Counters().Launches < 2000 {
		w.p.OK("alloc 512")
	}
	w.p.Send("stop %d", threads)
	total := w.p.Numbers()[0]
	launches := w.held.Counters().Launches
	if err := tp.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(stop)
	<-ended
	if total != launches || uint64(answered) < launches {
		t.Errorf("%d launches ran, %d were counted, %d things asked", total, launches, answered)
	}
	w.p.Quit()
}

// willing answers at once.
type willing struct{ *watched }

func (willing) Work(w *process.Work) { w.Go() }
func (willing) Module(*tap.Module)   {}

// BenchmarkLaunch says what a launch costs the program on a driver that does nothing: ns/launch is the best round,
// mean-ns the mean. At full speed a recorded program is soon as fast as its recorder; with 2 µs between launches, about
// what a GPU takes, it should not notice it.
func BenchmarkLaunch(b *testing.B) {
	dir := build(b)
	shim := "LD_PRELOAD=" + filepath.Join(dir, "libholdfast.so")
	report := func(b *testing.B, in io.Writer, out *bufio.Reader) {
		b.Helper()
		b.ResetTimer()
		fmt.Fprintln(in)
		line, err := out.ReadString('\n')
		var best, mean float64
		if _, e := fmt.Sscan(line, &best, &mean); err != nil || e != nil {
			b.Fatal(line, err, e)
		}
		b.ReportMetric(best, "ns/launch")
		b.ReportMetric(mean, "mean-ns")
		b.ReportMetric(0, "ns/op")
	}
	for _, gap := range []float64{0, 2000} {
		launches, rounds := 10000, 100
		if gap > 0 {
			rounds = 20
		}
		name := fmt.Sprintf("gap=%v/", gap)
		b.Run(name+"plain", func(b *testing.B) {
			in, out, ready := costs(b, launches, rounds, gap)
			ready()
			report(b, in, out)
		})
		b.Run(name+"held", func(b *testing.B) {
			home := b.TempDir()
			l, err := wire.Listen(filepath.Join(home, "shim.sock"))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			in, out, ready := costs(b, launches, rounds, gap, shim, "HOLDFAST_DIR="+home)
			adopt(b, l)
			ready()
			report(b, in, out)
		})
		b.Run(name+"recorded", func(b *testing.B) {
			l, err := wire.Listen(filepath.Join(b.TempDir(), "s"))
			if err != nil {
				b.Fatal(err)
			}
			rec, err := recorder.New(io.Discard, func(int) []string { return nil }, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- rec.Serve(context.Background(), l) }()
			in, out, ready := costs(b, launches, rounds, gap, shim, "HOLDFAST_TRACE="+l.Addr().String())
			ready()
			report(b, in, out)
			l.Close()
			<-served
			list, err := rec.Finish()
			if err != nil || len(list) != 1 || list[0].Launches != uint64(launches*rounds) {
				b.Fatal(err, list)
			}
			b.ReportMetric(float64(list[0].Waits), "waits")
		})
		b.Run(name+"asking", func(b *testing.B) {
			home := b.TempDir()
			l, err := wire.Listen(filepath.Join(home, "shim.sock"))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			in, out, ready := costs(b, launches, rounds, gap, shim, "HOLDFAST_DIR="+home)
			w := adopt(b, l)
			ready()
			tp, err := w.held.Tap(b.Context(), process.TapConfig{Spin: 100 * time.Microsecond}, willing{w})
			if err != nil {
				b.Fatal(err)
			}
			if err := tp.Ask(b.Context(), wire.AskWrites); err != nil {
				b.Fatal(err)
			}
			report(b, in, out)
			tp.Close(b.Context()) // the program has ended
		})
	}
}

// TestPrograms runs the C programs of the driver API, which check their own results, recorded, and held with everything
// asking.
func TestPrograms(t *testing.T) {
	env := gpu(t)
	for _, name := range rig.Programs(t) {
		var args []string
		switch name {
		case "gone", "checkpoint", "starved":
			continue // lose their GPU; drive the driver's checkpoint themselves; need every descriptor to be their own
		case "shortlived":
			args = []string{"40"}
		}
		t.Run(name, func(t *testing.T) {
			exe := rig.Program(t, name)
			run := func(more string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), exe, args...)
				cmd.Env = append(append(os.Environ(), env...), more)
				timer := time.AfterFunc(2*patience, func() { cmd.Process.Kill() })
				cmd.WaitDelay = patience // its children may keep the pipes open
				out, err := cmd.CombinedOutput()
				timer.Stop()
				if want := "ok " + name + "\n"; err != nil || !strings.HasSuffix(string(out), want) {
					t.Errorf("%s: %v, printed %q, want %q at the end", more, err, out, want)
				}
			}
			r := record(t)
			run("HOLDFAST_TRACE=" + r.socket)
			list, _ := r.finish()
			for _, q := range list {
				if q.Err != nil || q.Launches != q.Counted.Launches || q.Graphs != q.Counted.Graphs ||
					q.Copies > q.Counted.Copies || q.Copies+q.Others < q.Counted.Copies {
					t.Errorf("recorded %+v", q)
				}
			}

			if name == "ipc" {
				return // held memory has no handles
			}
			home := t.TempDir()
			l, err := wire.Listen(filepath.Join(home, "shim.sock"))
			if err != nil {
				t.Fatal(err)
			}
			var held sync.WaitGroup
			held.Go(func() {
				for {
					c, err := l.AcceptUnix()
					if err != nil {
						return
					}
					held.Go(func() { askAll(t, wire.NewConn(c)) })
				}
			})
			run("HOLDFAST_DIR=" + home)
			l.Close()
			held.Wait()
		})
	}
}

// askAll holds one program to its end: everything asks, and is answered at once.
func askAll(t *testing.T, conn *wire.Conn) {
	_, m, fds, err := conn.Recv()
	hello, ok := m.(*wire.Hello)
	if err != nil || !ok || len(fds) != 1 {
		wire.CloseAll(fds)
		conn.Close()
		return // killed while it said hello
	}
	id, err := process.Identify(hello, int(hello.PID), [16]byte{1})
	if err != nil {
		conn.Close()
		return
	}
	p := process.New(id, "running", slog.New(slog.DiscardHandler))
	if err := p.Attach(conn, hello, fds[0]); err != nil {
		return
	}
	served := make(chan struct{})
	go func() {
		p.Serve(func(*process.Program, *wire.Room) uint64 { return 0 })
		close(served)
	}()
	// It never leaves the program alone: tapped, asking, frozen meanwhile, untapped, and again.
	w := willing{&watched{broken: make(chan error, 100)}}
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	var flags = []uint32{wire.AskWrites | wire.AskReads, wire.AskWrites, 0}
	for round := 0; ; round++ {
		tp, err := p.Tap(t.Context(), process.TapConfig{Spin: 20 * time.Microsecond, NoCode: round%2 == 1}, w)
		if err != nil {
			break
		}
		tp.Ask(t.Context(), flags[round%3])
		<-pace.C
		if round%4 == 3 {
			if _, err := p.Freeze(t.Context(), 100*time.Millisecond, 0); err == nil {
				tp.Ask(t.Context(), flags[(round+1)%3])
				p.Thaw(t.Context(), 0)
			}
			<-pace.C
		}
		tp.Close(t.Context())
		if round%2 == 0 {
			<-pace.C
		}
	}
	<-served
	for len(w.broken) > 0 {
		if err := <-w.broken; !errors.Is(err, process.ErrGone) {
			t.Errorf("%s: %v", id.Name, err)
		}
	}
	p.Drop()
}
