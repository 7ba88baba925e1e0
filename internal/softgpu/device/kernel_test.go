package device

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/softgpu/gpuwire"
)

// scale: p[i] = p[i]*factor + bias for i < n, and total counts the threads.
const scalePTX = `.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 total;
.global .align 8 .u64 seed = 12345;
.visible .entry scale(.param .u64 ptr, .param .u32 n, .param .u32 factor, .param .u32 bias)
{
	.reg .pred p;
	.reg .b32 r<8>;
	.reg .b64 d<6>;
	ld.param.u64 d1, [ptr];
	ld.param.u32 r1, [n];
	ld.param.u32 r2, [factor];
	ld.param.u32 r3, [bias];
	mov.u32 r4, %ctaid.x;
	mov.u32 r5, %ntid.x;
	mov.u32 r6, %tid.x;
	mad.lo.s32 r4, r4, r5, r6;
	setp.ge.u32 p, r4, r1;
	@p bra DONE;
	mul.wide.u32 d2, r4, 4;
	add.s64 d1, d1, d2;
	ld.global.u32 r7, [d1];
	mad.lo.s32 r7, r7, r2, r3;
	st.global.u32 [d1], r7;
	mov.u64 d3, total;
	atom.global.add.u32 r7, [d3], 1;
DONE:
	ret;
}
`

func (k *conn) load(text string) uint64 {
	k.c.t.Helper()
	st, rep := k.do("MODULE_LOAD", nil, blob([]byte(text)), blob(append(le32(5), le32(6)...)), words(0xdead, 4000))
	if st != Success {
		k.c.t.Fatalf("module: %v: %q", st, rep.Payload)
	}
	return rep.Outs[0]
}

func scaleParams(ptr uint64, n, factor, bias uint32) []byte {
	b := le64(ptr)
	for _, v := range []uint32{n, factor, bias} {
		b = append(b, le32(v)...)
	}
	return b
}

func (k *conn) scale(fn, stream, ptr uint64, n, factor, bias uint32) {
	k.c.t.Helper()
	k.must("LAUNCH", a(fn, uint64(n+127)/128, 1, 1, 128, 1, 1, 0, stream, 0),
		blob(scaleParams(ptr, n, factor, bias)), blob(nil))
}

func (k *conn) u32s(va uint64, n int) []uint32 {
	k.c.t.Helper()
	b := k.read(va, uint64(n)*4)
	out := make([]uint32, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func TestKernelsRun(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	m := k.load(scalePTX)
	fn := k.must("cuModuleGetFunction", a(m), blob([]byte("scale")))[0]
	k.want(NotFound, "cuModuleGetFunction", a(m), blob([]byte("no")))
	g := k.must("cuModuleGetGlobal", a(m), blob([]byte("total")))
	if g[1] != 4 {
		t.Errorf("total has %d bytes", g[1])
	}
	seed := k.must("cuModuleGetGlobal", a(m), blob([]byte("seed")))
	if v := k.u32s(seed[0], 1)[0]; v != 12345 {
		t.Errorf("seed is %d", v)
	}
	_, rep := k.do("FUNCTION_LAYOUT", a(fn))
	if rep.Outs[0] != 4 || rep.Outs[1] != 20 || len(rep.Payload) != 64 {
		t.Errorf("layout %v, %d bytes", rep.Outs, len(rep.Payload))
	}
	if q := k.must("cuFuncGetParamInfo", a(fn, 2)); q[0] != 12 || q[1] != 4 {
		t.Errorf("parameter 2 at %v", q)
	}
	const n = 1000
	va := k.must("cuMemAlloc", a(4*n))[0]
	k.must("MEMSET", a(va, 0, 3, 4, n, 1, 0, 0))
	st := k.must("cuStreamCreate", a(0))[0]
	for range 10 {
		k.scale(fn, st, va, n, 3, 1)
	}
	k.must("cuStreamSynchronize", a(st))
	want := uint32(3)
	for range 10 {
		want = want*3 + 1
	}
	for i, v := range k.u32s(va, n) {
		if v != want {
			t.Fatalf("element %d is %d, want %d", i, v, want)
		}
	}
	if v := k.u32s(g[0], 1)[0]; v != 10*n {
		t.Errorf("total %d", v)
	}
	k.want(InvalidValue, "LAUNCH", a(fn, 0, 1, 1, 1, 1, 1, 0, 0, 0), blob(scaleParams(va, 1, 1, 1)), blob(nil))
	k.want(InvalidValue, "LAUNCH", a(fn, 1, 1, 1, 2048, 1, 1, 0, 0, 0), blob(scaleParams(va, 1, 1, 1)), blob(nil))
	k.want(InvalidValue, "LAUNCH", a(fn, 1, 1, 1, 1, 1, 1, 0, 0, 0), blob(nil), blob(nil))
	k.want(InvalidValue, "LAUNCH", a(fn, 1, 1, 1, 1, 1, 1, 60<<10, 0, 0), blob(scaleParams(va, 1, 1, 1)), blob(nil))
	k.must("cuFuncSetAttribute", a(fn, funcMaxDynamic, 100<<10))
	k.must("LAUNCH", a(fn, 1, 1, 1, 1, 1, 1, 60<<10, 0, 0), blob(scaleParams(va, 1, 1, 1)), blob(nil))
	if st := s.stats(k); st.Launches < 10 || st.ThreadInstructions == 0 {
		t.Errorf("%+v", st)
	}
	k.must("cuModuleUnload", a(m))
	k.want(InvalidHandle, "LAUNCH", a(fn, 1, 1, 1, 1, 1, 1, 0, 0, 0), blob(scaleParams(va, 1, 1, 1)), blob(nil))
}

func TestLibrariesAreModulesOfEachContext(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	st, rep := k.do("LIBRARY_LOAD", nil, blob([]byte(scalePTX)), blob(nil), blob(nil), blob(nil), blob(nil))
	if st != Success {
		t.Fatal(st)
	}
	lib := rep.Outs[0]
	kern := k.must("cuLibraryGetKernel", a(lib), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(400))[0]
	k.must("MEMSET", a(va, 0, 1, 4, 100, 1, 0, 0))
	k.scale(kern, 0, va, 100, 5, 0)
	g1 := k.must("cuLibraryGetGlobal", a(lib), blob([]byte("total")))[0]
	if k.u32s(g1, 1)[0] != 100 || k.u32s(va, 1)[0] != 5 {
		t.Error("kernel of the library did not run")
	}
	cx := k.must("cuCtxCreate", a(0, 0))[0]
	k.scale(kern, 0, va, 100, 5, 0)
	g2 := k.must("cuLibraryGetGlobal", a(lib), blob([]byte("total")))[0]
	if g1 == g2 || k.u32s(g2, 1)[0] != 100 || k.u32s(va, 1)[0] != 25 {
		t.Error("contexts share the library's data")
	}
	k.must("cuCtxDestroy", a(cx))
	if cur := k.must("cuCtxGetCurrent", nil); cur[0] == cx {
		t.Error("a destroyed context is current")
	}
	fn := k.must("cuKernelGetFunction", a(kern))[0]
	k.scale(fn, 0, va, 100, 2, 0)
	if k.u32s(va, 1)[0] != 50 {
		t.Error("function of the kernel did not run")
	}
	k.must("cuLibraryUnload", a(lib))
	k.want(InvalidHandle, "cuKernelGetFunction", a(kern))
}

func wrongPTX(line string) string {
	return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n" +
		".reg .b32 %r<4>;\n" + line + "\nret;\n}\n"
}

func TestModulesAreRefusedWithAReason(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	for _, c := range []struct {
		image string
		want  Status
		log   string
	}{
		{"\x7fELF\x02\x01\x01", NoBinaryForGPU, "cubin"},
		{".version 8.0\n.target sm_90\n.address_size 64\nnonsense", InvalidPTX, "nonsense"},
		{wrongPTX("frobnicate.b32 %r1, %r2;"), InvalidPTX, "module.ptx:7:1: frobnicate.b32: no such instruction"},
		{wrongPTX("add.u32 %r1, %r2, %r9;"), InvalidPTX, "module.ptx:7:19: %r9 is outside %r<4>"},
		{wrongPTX("add.u32 %r1, %r2, %rx; bra NOWHERE;"), InvalidPTX, "module.ptx:7:28: NOWHERE is not declared"},
	} {
		st, rep := k.do("MODULE_LOAD", nil, blob([]byte(c.image)),
			blob(append(le32(5), le32(6)...)), words(0xdead, 4000))
		if st != c.want {
			t.Errorf("%q: %v", c.image, st)
			continue
		}
		_, rest, err := gpuwire.TakeBlob(rep.Payload)
		if err != nil {
			t.Fatal(err)
		}
		log, _, err := gpuwire.TakeBlob(rest)
		if err != nil || !strings.Contains(string(log), c.log) {
			t.Errorf("%q: log %q, %v", c.image, log, err)
		}
	}
}

func TestFaultsStick(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	other := s.process().thread(2).start()
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(400))[0]
	st := k.must("cuStreamCreate", a(0))[0]
	ev := k.must("cuEventCreate", a(0))[0]
	k.scale(fn, st, 0xdead0000, 100, 1, 1)
	k.do("cuEventRecord", a(ev, st))
	k.want(IllegalAddress, "cuStreamSynchronize", a(st))
	k.want(IllegalAddress, "cuMemAlloc", a(100))
	k.want(IllegalAddress, "cuCtxSynchronize", nil)
	k.want(IllegalAddress, "MEMSET", a(va, 0, 0, 1, 4, 1, 0, 0))
	if !strings.Contains(s.log.String(), "scale") || !strings.Contains(s.log.String(), "0xdead0000") {
		t.Errorf("log does not name the fault:\n%s", s.log)
	}
	other.must("cuMemAlloc", a(100))
	k.must("cuDevicePrimaryCtxReset", a(0))
	k.want(ContextIsDestroyed, "cuMemAlloc", a(100))
	k.must("cuDevicePrimaryCtxRetain", a(0))
	k.must("cuMemAlloc", a(100)) // a new start
}

func TestCaptureMakesAGraph(t *testing.T) {
	c := serve(t, Config{}).process()
	k := c.thread(1).start()
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(400))[0]
	s1 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	s2 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	ev := k.must("cuEventCreate", a(eventDisableTiming))[0]
	back := k.must("cuEventCreate", a(eventDisableTiming))[0]
	p := k.pin(400)

	k.must("cuStreamBeginCapture", a(s1, captureThreadLocal))
	k.must("MEMSET", a(va, 0, 2, 4, 100, 1, s1, gpuwire.FlagAsync))
	k.must("cuEventRecord", a(ev, s1))
	k.must("cuStreamWaitEvent", a(s2, ev, 0))
	k.scale(fn, s2, va, 100, 10, 1)
	k.must("cuLaunchHostFunc", a(s2, 77, 78))
	k.must("cuEventRecord", a(back, s2))
	info := k.must("cuStreamGetCaptureInfo", a(s2))
	if info[0] != captureActive || info[3] != 1 {
		t.Errorf("capture info %v", info)
	}
	k.must("cuStreamWaitEvent", a(s1, back, 0))
	k.must("MEMCPY", a(p.addr, va, 1, 1, 400, s1, gpuwire.FlagAsync))
	g := k.must("cuStreamEndCapture", a(s1))[0]
	if v := k.must("cuStreamIsCapturing", a(s1)); v[0] != captureNone {
		t.Error("still capturing")
	}
	if n := k.must("cuGraphGetNodes", a(g, 0)); n[0] != 4 {
		t.Errorf("%d nodes", n[0])
	}
	if n := k.must("cuGraphGetEdges", a(g, 0)); n[0] != 4 { // the copy depends on the memset too
		t.Errorf("%d edges", n[0])
	}
	if v := k.u32s(va, 1)[0]; v != 0 {
		t.Errorf("capturing ran something: %d", v)
	}
	e := k.must("cuGraphInstantiate", a(g, 0))[0]
	for range 2 {
		clear(p.mem)
		k.must("cuGraphLaunch", a(e, s1))
		k.must("cuStreamSynchronize", a(s1))
		if v := binary.LittleEndian.Uint32(p.mem[396:]); v != 21 {
			t.Errorf("graph left %d", v)
		}
		if got := <-c.calls; got != [2]uint64{77, 78} {
			t.Errorf("callback %v", got)
		}
	}
	// An update with the same shape, another factor.
	k.must("cuStreamBeginCapture", a(s1, captureThreadLocal))
	k.must("MEMSET", a(va, 0, 2, 4, 100, 1, s1, gpuwire.FlagAsync))
	k.must("cuEventRecord", a(ev, s1))
	k.must("cuStreamWaitEvent", a(s2, ev, 0))
	k.scale(fn, s2, va, 100, 100, 1)
	k.must("cuLaunchHostFunc", a(s2, 77, 78))
	k.must("cuEventRecord", a(back, s2))
	k.must("cuStreamWaitEvent", a(s1, back, 0))
	k.must("MEMCPY", a(p.addr, va, 1, 1, 400, s1, gpuwire.FlagAsync))
	g2 := k.must("cuStreamEndCapture", a(s1))[0]
	k.must("cuGraphExecUpdate", a(e, g2))
	k.must("cuGraphDestroy", a(g2))
	k.must("cuGraphLaunch", a(e, s1))
	k.must("cuStreamSynchronize", a(s1))
	if v := binary.LittleEndian.Uint32(p.mem); v != 201 {
		t.Errorf("updated graph left %d", v)
	}
	empty := k.must("cuGraphCreate", a(0))[0]
	st, rep := k.do("cuGraphExecUpdate", a(e, empty))
	if st != GraphExecUpdateFailure || len(rep.Outs) != 3 || rep.Outs[0] == 0 {
		t.Errorf("update with another shape: %v, %v", st, rep.Outs)
	}
}

func TestCaptureMisuse(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	s1 := k.must("cuStreamCreate", a(0))[0]
	s2 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	ev := k.must("cuEventCreate", a(0))[0]
	va := k.must("cuMemAlloc", a(400))[0]
	begin := func() { t.Helper(); k.must("cuStreamBeginCapture", a(s1, captureGlobal)) }

	begin()
	k.want(IllegalState, "cuStreamBeginCapture", a(s1, captureGlobal))
	k.want(CaptureUnsupported, "cuStreamSynchronize", a(s1))
	k.want(CaptureInvalidated, "cuStreamEndCapture", a(s1))

	begin()
	k.want(CaptureImplicit, "MEMSET", a(va, 0, 0, 1, 4, 1, 0, gpuwire.FlagAsync))
	k.want(CaptureInvalidated, "cuStreamEndCapture", a(s1))

	begin()
	k.want(CaptureUnsupported, "cuMemAlloc", a(4))
	k.want(CaptureInvalidated, "cuStreamEndCapture", a(s1))

	begin()
	k.must("cuThreadExchangeStreamCaptureMode", a(captureRelaxed))
	k.must("cuMemAlloc", a(4))
	k.must("cuThreadExchangeStreamCaptureMode", a(captureGlobal))
	k.must("cuEventRecord", a(ev, s1))
	k.want(CapturedEvent, "cuEventQuery", a(ev))
	k.must("cuStreamWaitEvent", a(s2, ev, 0))
	k.must("MEMSET", a(va, 0, 0, 1, 4, 1, s2, gpuwire.FlagAsync))
	k.want(CaptureUnjoined, "cuStreamEndCapture", a(s1))
	if v := k.must("cuStreamIsCapturing", a(s2)); v[0] != captureNone {
		t.Error("the other stream is still capturing")
	}
	k.want(IllegalState, "cuStreamEndCapture", a(s1))
	k.want(CaptureUnsupported, "cuStreamBeginCapture", a(0, captureGlobal))
}

func TestGraphsFromNodes(t *testing.T) {
	c := serve(t, Config{}).process()
	host := map[uint64][]byte{0x5000: bytes.Repeat(le32(4), 100)} // the program's pageable memory
	var mu sync.Mutex
	c.host.Store(new(func(op uint32, addr, n uint64, b []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if op == gpuwire.OpHostWrite {
			host[addr] = bytes.Clone(b)
			return nil
		}
		return host[addr][:n]
	}))
	k := c.thread(1).start()
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(400))[0]
	g := k.must("cuGraphCreate", a(0))[0]
	in := k.must("GRAPH_ADD_MEMCPY",
		a(g, 0, va, 0x5000, gpuwire.KindKnown, gpuwire.KindPageable, 400, 1, 1, 400, 1, 400, 1), words())[0]
	kn := k.must("GRAPH_ADD_KERNEL", a(g, 1, fn, 1, 1, 1, 128, 1, 1, 0, 0), words(in),
		blob(scaleParams(va, 100, 2, 1)), blob(nil))[0]
	ev := k.must("cuEventCreate", a(0))[0]
	rec := k.must("cuGraphAddEventRecordNode", a(g, 1, ev), words(kn))[0]
	out := k.must("GRAPH_ADD_MEMCPY",
		a(g, 1, 0x6000, va, gpuwire.KindPageable, gpuwire.KindKnown, 400, 1, 1, 400, 1, 400, 1), words(rec))[0]
	e := k.must("cuGraphInstantiate", a(g, 0))[0]
	s := k.must("cuStreamCreate", a(0))[0]
	run := func(want uint32) {
		t.Helper()
		k.must("cuGraphLaunch", a(e, s))
		k.must("cuEventSynchronize", a(ev))
		k.must("cuStreamSynchronize", a(s))
		mu.Lock()
		defer mu.Unlock()
		if v := binary.LittleEndian.Uint32(host[0x6000]); v != want {
			t.Errorf("left %d, want %d", v, want)
		}
	}
	run(9)
	k.must("GRAPH_EXEC_KERNEL_SET", a(e, kn, fn, 1, 1, 1, 128, 1, 1, 0), blob(scaleParams(va, 100, 3, 0)))
	run(12)
	k.must("cuGraphNodeSetEnabled", a(e, kn, 0))
	run(4)
	if p := k.must("GRAPH_KERNEL_GET", a(kn)); p[0] != fn || p[4] != 128 {
		t.Errorf("parameters of the node %v", p)
	}
	clone := k.must("cuGraphClone", a(g))[0]
	if n := k.must("cuGraphNodeFindInClone", a(kn, clone)); n[0] == kn {
		t.Error("the clone has the original's node")
	}
	parent := k.must("cuGraphCreate", a(0))[0]
	child := k.must("cuGraphAddChildGraphNode", a(parent, 0, clone), words())[0]
	k.must("cuGraphDestroy", a(clone))
	if n := k.must("cuGraphGetNodes", a(k.must("cuGraphChildGraphNodeGetGraph", a(child))[0], 0)); n[0] != 4 {
		t.Errorf("child has %d nodes", n[0])
	}
	e = k.must("cuGraphInstantiate", a(parent, 0))[0]
	run(9)
	k.must("cuGraphAddDependencies", a(g, 1), words(out), words(in))
	k.want(InvalidValue, "cuGraphInstantiate", a(g, 0)) // a cycle
	k.must("cuGraphRemoveDependencies", a(g, 1), words(out), words(in))
	k.must("cuGraphDestroyNode", a(kn))
	if n := k.must("cuGraphGetEdges", a(g, 0)); n[0] != 1 {
		t.Errorf("%d edges", n[0])
	}
}

func TestGraphsAllocate(t *testing.T) {
	s := serve(t, Config{})
	k := s.process().thread(1).start()
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	out := k.must("cuMemAlloc", a(400))[0]
	st := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	before := s.stats(k).UsedBytes[0]
	k.must("cuStreamBeginCapture", a(st, captureGlobal))
	tmp := k.must("cuMemAllocAsync", a(3<<20, st))[0]
	k.must("MEMSET", a(tmp, 0, 6, 4, 100, 1, st, gpuwire.FlagAsync))
	k.scale(fn, st, tmp, 100, 7, 0)
	k.must("MEMCPY", a(out, tmp, 1, 1, 400, st, gpuwire.FlagAsync))
	k.must("cuMemFreeAsync", a(tmp, st))
	g := k.must("cuStreamEndCapture", a(st))[0]
	if n := k.must("cuGraphGetNodes", a(g, 0)); n[0] != 5 {
		t.Errorf("%d nodes", n[0])
	}
	e := k.must("cuGraphInstantiate", a(g, 0))[0]
	k.must("cuGraphDestroy", a(g))
	for range 3 {
		k.must("MEMSET", a(out, 0, 0, 4, 100, 1, st, gpuwire.FlagAsync))
		k.must("cuGraphLaunch", a(e, st))
		k.must("cuStreamSynchronize", a(st))
		if v := k.u32s(out, 100)[99]; v != 42 {
			t.Errorf("graph left %d", v)
		}
	}
	k.must("cuGraphLaunch", a(e, st))
	k.must("cuGraphExecDestroy", a(e))
	k.must("cuStreamSynchronize", a(st))
	if u := s.stats(k).UsedBytes[0]; u != before {
		t.Errorf("%d bytes used, before %d", u, before)
	}
}

func TestPrintfReachesTheProgram(t *testing.T) {
	c := serve(t, Config{}).process()
	k := c.thread(1).start()
	m := k.load(`.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[7] = {104, 105, 32, 37, 100, 10, 0};
.visible .entry hello()
{
	.local .align 8 .b8 depot[8];
	.reg .b64 d<4>;
	.reg .b32 r<4>;
	mov.u64 d1, depot;
	mov.u32 r1, 42;
	st.local.u32 [d1], r1;
	cvta.local.u64 d2, d1;
	mov.u64 d1, text;
	cvta.global.u64 d1, d1;
	{
	.param .b64 p0;
	.param .b64 p1;
	.param .b32 q;
	st.param.b64 [p0], d1;
	st.param.b64 [p1], d2;
	call.uni (q), vprintf, (p0, p1);
	ld.param.b32 r2, [q];
	}
	ret;
}
`)
	fn := k.must("cuModuleGetFunction", a(m), blob([]byte("hello")))[0]
	k.must("LAUNCH", a(fn, 1, 1, 1, 2, 1, 1, 0, 0, 0), blob([]byte{}), blob(nil))
	k.must("cuCtxSynchronize", nil)
	if got := c.prints.String(); got != "hi 42\nhi 42\n" {
		t.Errorf("printed %q", got)
	}
}

const spinPTX = `.version 8.0
.target sm_90
.address_size 64
.visible .entry spin()
{
LOOP:
	bra LOOP;
}
`

func TestAClientThatDiesEndsItsKernels(t *testing.T) {
	s := serve(t, Config{})
	c := s.process()
	k := c.thread(1).start()
	fn := k.must("cuModuleGetFunction", a(k.load(spinPTX)), blob([]byte("spin")))[0]
	k.must("LAUNCH", a(fn, 100, 1, 1, 128, 1, 1, 0, 0, 0), blob([]byte{}), blob(nil))
	k.want(NotReady, "cuStreamQuery", a(0))
	c.exit()
	s.left(s.process().thread(2), 1)
}

func TestStreamsWaitForValues(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	s1 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	s2 := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	va := k.must("cuMemAlloc", a(64))[0]
	k.must("MEMSET", a(va, 0, 0, 1, 64, 1, 0, 0))
	k.must("cuCtxSynchronize", nil) // streams that do not block do not wait for the memset
	k.must("cuStreamWaitValue32", a(s1, va, 5, waitGEQ))
	k.must("cuStreamWriteValue64", a(s1, va+8, 1<<40, 0))
	k.want(NotReady, "cuStreamQuery", a(s1))
	k.must("cuStreamWriteValue32", a(s2, va, 4, 0))
	k.must("cuStreamSynchronize", a(s2))
	k.want(NotReady, "cuStreamQuery", a(s1))
	k.must("cuStreamWriteValue32", a(s2, va, 6, 0))
	k.must("cuStreamSynchronize", a(s1))
	if v := k.u32s(va+8, 2); v[1] != 1<<8 {
		t.Errorf("wrote %v", v)
	}
	k.want(InvalidValue, "cuStreamWaitValue32", a(s1, va+2, 5, 0))
	k.want(InvalidValue, "cuStreamWaitValue32", a(s1, 0x1000, 5, 0))
}

func TestEventsMeasureTime(t *testing.T) {
	k := serve(t, Config{}).process().thread(1).start()
	e1, e2 := k.must("cuEventCreate", a(0))[0], k.must("cuEventCreate", a(0))[0]
	k.want(InvalidHandle, "cuEventElapsedTime", a(e1, e2))
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(4<<16))[0]
	begin := time.Now()
	k.must("cuEventRecord", a(e1, 0))
	k.scale(fn, 0, va, 1<<16, 1, 1)
	k.must("cuEventRecord", a(e2, 0))
	k.must("cuEventSynchronize", a(e2))
	most := time.Since(begin)
	ms := math.Float32frombits(uint32(k.must("cuEventElapsedTime", a(e1, e2))[0]))
	if ms <= 0 || time.Duration(ms*1e6) > most {
		t.Errorf("%v ms, in all it took %v", ms, most)
	}
}

func BenchmarkLaunch(b *testing.B) {
	k := serve(b, Config{}).process().thread(1).start()
	fn := k.must("cuModuleGetFunction", a(k.load(scalePTX)), blob([]byte("scale")))[0]
	va := k.must("cuMemAlloc", a(4))[0]
	for b.Loop() {
		k.scale(fn, 0, va, 1, 1, 1)
	}
	k.must("cuCtxSynchronize", nil)
}

func BenchmarkCall(b *testing.B) {
	k := serve(b, Config{}).process().thread(1).start()
	for b.Loop() {
		k.must("cuCtxGetCurrent", nil)
	}
}

func BenchmarkPageableToDevice(b *testing.B) {
	k := serve(b, Config{}).process().thread(1).start()
	const n = 16 << 20
	va, p := k.must("cuMemAlloc", a(n))[0], make([]byte, n)
	b.SetBytes(n)
	for b.Loop() {
		k.write(va, p)
	}
}

func BenchmarkPinnedToDevice(b *testing.B) {
	k := serve(b, Config{}).process().thread(1).start()
	const n = 64 << 20
	va, p := k.must("cuMemAlloc", a(n))[0], k.pin(n)
	b.SetBytes(n)
	for b.Loop() {
		k.must("MEMCPY", a(va, p.addr, 1, 1, n, 0, 0))
	}
}

// stamp: p[i] = how many stamps there are now. await: until p[i] is not 0.
const stampPTX = `.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 stamps;
.visible .entry stamp(.param .u64 p, .param .u32 i)
{
	.reg .b32 r<4>;
	.reg .b64 d<3>;
	ld.param.u64 d0, [p];
	ld.param.u32 r0, [i];
	mul.wide.u32 d1, r0, 4;
	add.u64 d0, d0, d1;
	atom.global.add.u32 r1, [stamps], 1;
	add.u32 r1, r1, 1;
	st.global.u32 [d0], r1;
	ret;
}
.visible .entry await(.param .u64 p, .param .u32 i)
{
	.reg .pred p0;
	.reg .b32 r<4>;
	.reg .b64 d<3>;
	ld.param.u64 d0, [p];
	ld.param.u32 r0, [i];
	mul.wide.u32 d1, r0, 4;
	add.u64 d0, d0, d1;
AGAIN:
	ld.volatile.global.u32 r1, [d0];
	setp.eq.u32 p0, r1, 0;
	@p0 bra AGAIN;
	ret;
}
`

// Nodes of a graph run after those that they depend on, and beside the others.
func TestGraphOrder(t *testing.T) {
	k := serve(t, Config{Workers: 2}).process().thread(1).start()
	m := k.load(stampPTX)
	stamp := k.must("cuModuleGetFunction", a(m), blob([]byte("stamp")))[0]
	await := k.must("cuModuleGetFunction", a(m), blob([]byte("await")))[0]
	stream := k.must("cuStreamCreate", a(streamNonBlocking))[0]
	const n = 60
	p := k.must("cuMemAlloc", a(4*n))[0]
	g := k.must("cuGraphCreate", a(0))[0]
	add := func(fn, i uint64, deps ...uint64) uint64 {
		params := append(le64(p), le32(uint32(i))...)
		return k.must("GRAPH_ADD_KERNEL", a(g, uint64(len(deps)), fn, 1, 1, 1, 1, 1, 1, 0, 0), words(deps...),
			blob(params), blob(nil))[0]
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var nodes []uint64
	deps := make([][]int, n)
	for i := range n {
		var on []uint64
		for j := range i {
			if rng.IntN(10) == 0 {
				on = append(on, nodes[j])
				deps[i] = append(deps[i], j)
			}
		}
		nodes = append(nodes, add(stamp, uint64(i), on...))
	}
	launch := func() []uint32 {
		t.Helper()
		e := k.must("cuGraphInstantiate", a(g, 0))[0]
		k.must("MEMSET", a(p, 0, 0, 4, n, 1, stream, 0))
		k.must("cuGraphLaunch", a(e, stream))
		k.must("cuStreamSynchronize", a(stream))
		k.must("cuGraphExecDestroy", a(e))
		return k.u32s(p, n)
	}
	for range 10 {
		at := launch()
		for i, on := range deps {
			for _, j := range on {
				if at[i] == 0 || at[j] >= at[i] {
					t.Fatalf("node %d ran as number %d, node %d before it as number %d", i, at[i], j, at[j])
				}
			}
		}
	}
	// One that comes first waits for what another one does that it does not depend on.
	k.must("cuGraphDestroy", a(g))
	g = k.must("cuGraphCreate", a(0))[0]
	add(await, 1)
	add(stamp, 1)
	if launch()[1] == 0 {
		t.Error("the second node has not run")
	}
}
