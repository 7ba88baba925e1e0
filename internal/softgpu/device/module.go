package device

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/softgpu"
)

// modules puts code into contexts.
type modules struct{ *work }

// A module is a CUmodule: code, and data in one context.
type module struct {
	handle    uint64
	cx        *deviceContext
	lib       *library // if it belongs to one
	image     []byte   // as loaded: what a checkpoint keeps
	code      *code
	inst      *softgpu.Instance
	data      *allocation // nil without globals
	functions map[string]*function
}

// A code is a translated module; processes that load the same text share it.
type code struct {
	sm      *softgpu.Module
	limit   int // CU_JIT_MAX_REGISTERS it was loaded with; 0: none
	kernels map[string]softgpu.KernelInfo
	order   []string
	globals map[string]softgpu.Global
	mallocs bool // device code asks for memory
}

// A library is a CUlibrary: code that becomes a module in each context that uses it.
type library struct {
	handle  uint64
	image   []byte
	code    *code
	modules map[*deviceContext]*module
	kernels map[string]*kernel
}

// A kernel is a CUkernel: a kernel of a library, in whichever context.
type kernel struct {
	handle uint64
	lib    *library
	name   string
	attrs  map[uint64]int32
}

// A function is a CUfunction.
type function struct {
	handle uint64
	mod    *module
	name   string
	info   softgpu.KernelInfo
	attrs  map[uint64]int32
	kernel *kernel // whose attributes hold, for a library's
}

// Options of the compiler (CUjit_option).
const (
	jitMaxRegisters = 0
	jitInfoLogSize  = 4
	jitErrorLogSize = 6
)

const (
	maxImage     = 256 << 20
	maxCodeCache = 256
)

// A codeKey names what is translated: the hash of an image, and the registers that its kernels may have.
type codeKey struct {
	image [sha256.Size]byte
	limit int
}

// translate finds the PTX in an image and compiles it. limit is the most registers of a thread, as the program told the
// compiler; 0: any number.
func (s *server) translate(image []byte, limit int) (*code, Status, error) {
	if len(image) == 0 || len(image) > maxImage {
		return nil, InvalidValue, fmt.Errorf("image of %d bytes", len(image))
	}
	key := codeKey{sha256.Sum256(image), limit}
	s.codeMu.Lock()
	cached := s.codes[key]
	s.codeMu.Unlock()
	if cached != nil {
		return cached, Success, nil
	}
	text, st, err := ptxOf(image)
	if err != nil {
		return nil, st, err
	}
	m, err := parse(text)
	if err != nil {
		return nil, InvalidPTX, err
	}
	sm, err := softgpu.Load(m)
	if err != nil {
		return nil, InvalidPTX, err
	}
	cd := &code{sm: sm, limit: limit}
	cd.kernels, cd.globals = make(map[string]softgpu.KernelInfo), make(map[string]softgpu.Global)
	for _, k := range sm.Kernels() {
		if k.MaxRegs == 0 && limit > 0 {
			k.MaxRegs = limit
		}
		cd.kernels[k.Name] = k
		cd.order = append(cd.order, k.Name)
	}
	for _, g := range sm.Globals() {
		cd.globals[g.Name] = g
	}
	cd.mallocs = mallocs(m)
	s.codeMu.Lock()
	defer s.codeMu.Unlock()
	if len(s.codes) >= maxCodeCache {
		clear(s.codes)
	}
	s.codes[key] = cd
	return cd, Success, nil
}

// instantiate gives code a home in a context.
func (ms modules) instantiate(cx *deviceContext, cd *code, image []byte) (*module, error) {
	m := &module{cx: cx, image: image, code: cd, functions: make(map[string]*function)}
	var base uint64
	if n := cd.sm.DataSize(); n > 0 {
		a, err := ms.allocate(cx, n, allocModule)
		if err != nil {
			return nil, err
		}
		m.data, base = a, a.va
	}
	inst, err := cd.sm.Instantiate(ms.space, base)
	if err != nil {
		if m.data != nil {
			ms.quiesce(func() { ms.dropAllocation(m.data) })
		}
		return nil, err
	}
	m.inst = inst
	m.handle = ms.add(m)
	return m, nil
}

// load is the common part of MODULE_LOAD and LIBRARY_LOAD: the code and the image, or
// a status with the logs in the reply.
func (c *call) load() (*code, []byte, Status) {
	image := bytes.Clone(c.blob())
	options, values := c.words32(), c.words()
	option := func(which uint32) (uint64, bool) {
		i := slices.Index(options, which)
		if i < 0 || i >= len(values) {
			return 0, false
		}
		return uint64(uint32(values[i])), true
	}
	most, _ := option(jitMaxRegisters)
	c.unlock() // compiling takes long and touches nothing of the process
	cd, st, err := c.p.srv.translate(image, int(most))
	c.lock()
	var infoLog, errorLog []byte
	if most > 0 && most < minReportedRegs {
		const text = "warning : adjusting per thread register count of %d to lower bound of %d"
		infoLog = fmt.Appendf(nil, text, most, minReportedRegs)
	}
	if err != nil {
		c.p.srv.log.Warn("module refused", "pid", c.p.key.pid, "err", err)
		c.p.srv.counts.refused(err)
		errorLog = fmt.Appendf(nil, "%+v", err) // of a list, every one
	}
	fitting := func(log []byte, room uint32) []byte {
		n, _ := option(room)
		return log[:min(uint64(len(log)), max(n, 1)-1)]
	}
	c.retBlob(fitting(infoLog, jitInfoLogSize))
	c.retBlob(fitting(errorLog, jitErrorLogSize))
	return cd, image, st
}

func moduleLoad(c *call) Status {
	cd, image, st := c.load()
	if st != Success {
		return st
	}
	cx := c.th.current()
	var m *module
	if st := c.fit(func() (err error) { m, err = c.p.instantiate(cx, cd, image); return }); st != Success {
		return st
	}
	return c.ret(m.handle)
}

func moduleUnload(c *call) Status {
	m := must[*module](c, c.args[0])
	if m.lib != nil {
		return NotPermitted
	}
	if m.cx.sticky != Success {
		return m.cx.sticky
	}
	if st := c.wait(c.p.lasts(m.cx)...); st != Success {
		return st
	}
	c.flush()
	c.p.quiesce(func() { c.p.dropModule(m) })
	return Success
}

// dropModule takes a module away. Nothing of the process may be running.
func (ms modules) dropModule(m *module) {
	if _, ok := ms.objects[m.handle]; !ok {
		return
	}
	for _, f := range m.functions {
		delete(ms.objects, f.handle)
	}
	delete(ms.objects, m.handle)
	if m.data != nil {
		ms.dropAllocation(m.data)
	}
}

func (ms modules) functionOf(m *module, name string) *function {
	if f := m.functions[name]; f != nil {
		return f
	}
	info, ok := m.code.kernels[name]
	if !ok {
		return nil
	}
	f := &function{mod: m, name: name, info: info, attrs: make(map[uint64]int32)}
	f.handle = ms.add(f)
	m.functions[name] = f
	return f
}

func moduleGetFunction(c *call) Status {
	m := must[*module](c, c.args[0])
	f := c.p.functionOf(m, string(c.blob()))
	if f == nil {
		return NotFound
	}
	return c.ret(f.handle)
}

func moduleFunctionCount(c *call) Status {
	return c.ret(uint64(len(must[*module](c, c.args[0]).code.kernels)))
}

func moduleEnumerate(c *call) Status {
	m := must[*module](c, c.args[1])
	var b []byte
	for _, name := range m.code.order {
		b = append(b, le64(c.p.functionOf(m, name).handle)...)
	}
	c.retBlob(b)
	return Success
}

func (c *call) global(m *module, name string) Status {
	g, ok := m.code.globals[name]
	if !ok || m.data == nil {
		return NotFound
	}
	return c.ret(m.data.va+g.Offset, g.Size)
}

func moduleGetGlobal(c *call) Status {
	return c.global(must[*module](c, c.args[0]), string(c.blob()))
}

func libraryLoad(c *call) Status {
	cd, image, st := c.load()
	if st != Success {
		return st
	}
	l := &library{image: image, code: cd, modules: make(map[*deviceContext]*module), kernels: make(map[string]*kernel)}
	l.handle = c.p.add(l)
	return c.ret(l.handle)
}

func libraryUnload(c *call) Status {
	l := must[*library](c, c.args[0])
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	c.flush()
	c.p.quiesce(func() {
		for _, m := range l.modules {
			c.p.dropModule(m)
		}
		for _, k := range l.kernels {
			delete(c.p.objects, k.handle)
		}
		delete(c.p.objects, l.handle)
	})
	return Success
}

func (ms modules) kernelOf(l *library, name string) *kernel {
	if k := l.kernels[name]; k != nil {
		return k
	}
	if _, ok := l.code.kernels[name]; !ok {
		return nil
	}
	k := &kernel{lib: l, name: name, attrs: make(map[uint64]int32)}
	k.handle = ms.add(k)
	l.kernels[name] = k
	return k
}

func libraryGetKernel(c *call) Status {
	k := c.p.kernelOf(must[*library](c, c.args[0]), string(c.blob()))
	if k == nil {
		return NotFound
	}
	return c.ret(k.handle)
}

func libraryKernelCount(c *call) Status {
	return c.ret(uint64(len(must[*library](c, c.args[0]).code.kernels)))
}

func libraryEnumerate(c *call) Status {
	l := must[*library](c, c.args[1])
	var b []byte
	for _, name := range l.code.order {
		b = append(b, le64(c.p.kernelOf(l, name).handle)...)
	}
	c.retBlob(b)
	return Success
}

// moduleIn is the library's module in a context, made when first used.
func (c *call) moduleIn(l *library, cx *deviceContext) *module {
	if m := l.modules[cx]; m != nil {
		return m
	}
	var m *module
	st := c.fit(func() (err error) {
		if m = l.modules[cx]; m == nil {
			if m, err = c.p.instantiate(cx, l.code, nil); err == nil {
				m.lib = l
				l.modules[cx] = m
			}
		}
		return err
	})
	if st != Success {
		panic(st)
	}
	return m
}

func libraryGetModule(c *call) Status {
	return c.ret(c.moduleIn(must[*library](c, c.args[0]), c.th.current()).handle)
}

func libraryGetGlobal(c *call) Status {
	l := must[*library](c, c.args[0])
	name := string(c.blob())
	if _, ok := l.code.globals[name]; !ok {
		return NotFound
	}
	return c.global(c.moduleIn(l, c.th.current()), name)
}

func libraryGetManaged(c *call) Status {
	must[*library](c, c.args[0])
	return NotFound // PTX has no managed variables apart from an attribute that is ignored
}

// function resolves a CUfunction or, in the current context, a CUkernel.
func (c *call) function(h uint64) *function {
	switch v := c.p.objects[h].(type) {
	case *function:
		return v
	case *kernel:
		cx := c.th.current()
		if cx == nil {
			panic(InvalidContext)
		}
		f := c.p.functionOf(c.moduleIn(v.lib, cx), v.name)
		f.kernel = v
		return f
	}
	panic(InvalidHandle)
}

func kernelGetFunction(c *call) Status {
	must[*kernel](c, c.args[0])
	return c.ret(c.function(c.args[0]).handle)
}

func kernelGetLibrary(c *call) Status {
	return c.ret(must[*kernel](c, c.args[0]).lib.handle)
}

// kernelInfo is what is known of a function or kernel without a context.
func (c *call) kernelInfo(h uint64) (softgpu.KernelInfo, map[uint64]int32) {
	switch v := c.p.objects[h].(type) {
	case *function:
		return v.info, v.attributes()
	case *kernel:
		return v.lib.code.kernels[v.name], v.attrs
	}
	panic(InvalidHandle)
}

func (f *function) attributes() map[uint64]int32 {
	if f.kernel != nil && len(f.attrs) == 0 {
		return f.kernel.attrs
	}
	return f.attrs
}

func functionName(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	c.retBlob([]byte(info.Name))
	return Success
}

func functionModule(c *call) Status { return c.ret(c.function(c.args[0]).mod.handle) }

func functionParamInfo(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	if c.args[1] >= uint64(len(info.Params)) {
		return InvalidValue
	}
	q := info.Params[c.args[1]]
	return c.ret(uint64(q.Offset), uint64(q.Size))
}

func functionLayout(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	for _, q := range info.Params {
		c.out = append(append(c.out, le64(uint64(q.Offset))...), le64(uint64(q.Size))...)
	}
	return c.ret(uint64(len(info.Params)), uint64(info.ParamBytes))
}

// Attributes of functions (CUfunction_attribute).
const (
	funcMaxThreads         = 0
	funcShared             = 1
	funcConst              = 2
	funcLocal              = 3
	funcRegisters          = 4
	funcPTXVersion         = 5
	funcBinaryVersion      = 6
	funcCacheCA            = 7
	funcMaxDynamic         = 8
	funcCarveout           = 9
	funcClusterMustBe      = 10
	funcClusterWidth       = 11 // and height, depth
	funcClusterDepth       = 13
	funcClusterNonPortable = 14
	funcClusterPreference  = 15
	maxReportedRegs        = 255
	minReportedRegs        = 24 // no limit goes below
	defaultReportedReg     = 32
)

func maxThreads(info *softgpu.KernelInfo) int {
	if info.MaxThreads > 0 {
		return min(int(info.MaxThreads), maxThreadsPerBlock)
	}
	return maxThreadsPerBlock
}

// registers is what an occupancy computation takes: PTX registers are virtual, so
// their number says little; the hardware's limit for the block size holds, and the program's.
func registers(info *softgpu.KernelInfo) int {
	n := int(info.NumRegs)
	if n <= 0 {
		n = defaultReportedReg
	}
	n = min(n, maxReportedRegs, registersPerSM/maxThreads(info))
	if info.MaxRegs > 0 {
		n = min(n, max(info.MaxRegs, minReportedRegs))
	}
	return n
}

func functionAttribute(attr uint64, info softgpu.KernelInfo, set map[uint64]int32) (int32, Status) {
	switch attr {
	case funcMaxThreads:
		return int32(maxThreads(&info)), Success
	case funcShared:
		return int32(info.SharedStatic), Success
	case funcConst:
		return int32(info.ConstBytes), Success
	case funcCacheCA:
		return 0, Success
	case funcLocal:
		return int32(info.LocalBytes), Success
	case funcRegisters:
		return int32(registers(&info)), Success
	case funcPTXVersion:
		return int32(info.Target), Success
	case funcBinaryVersion:
		return capabilityMajor*10 + capabilityMinor, Success
	case funcMaxDynamic:
		if v, ok := set[attr]; ok {
			return v, Success
		}
		return max(sharedPerBlock-int32(info.SharedStatic), 0), Success
	case funcCarveout:
		if v, ok := set[attr]; ok {
			return v, Success
		}
		return -1, Success
	}
	switch {
	case attr == funcClusterMustBe:
		return int32(truth(info.NeedsCluster)), Success
	case attr >= funcClusterWidth && attr <= funcClusterDepth:
		return int32(clusterOf([3]uint32{}, &info, set)[attr-funcClusterWidth]), Success
	case attr == funcClusterNonPortable, attr == funcClusterPreference:
		return set[attr], Success
	}
	return 0, InvalidValue
}

func setFunctionAttribute(attr uint64, v int32, info softgpu.KernelInfo, set map[uint64]int32) Status {
	switch attr {
	case funcMaxDynamic:
		if v < 0 || int64(v)+int64(info.SharedStatic) > sharedPerBlockMax {
			return InvalidValue
		}
	case funcCarveout:
		if v < -1 || v > 100 {
			return InvalidValue
		}
	case funcClusterWidth, funcClusterWidth + 1, funcClusterDepth:
		if info.Cluster != [3]uint32{} {
			return NotPermitted // compiled in
		}
		if v < 0 || v > largestCluster {
			return InvalidValue
		}
	case funcClusterNonPortable:
		if v != 0 && v != 1 {
			return InvalidValue
		}
	case funcClusterPreference:
	default:
		return InvalidValue
	}
	set[attr] = v
	return Success
}

func funcGetAttribute(c *call) Status {
	info, set := c.kernelInfo(c.args[1])
	v, st := functionAttribute(c.args[0], info, set)
	if st != Success {
		return st
	}
	return c.ret32(v)
}

func funcSetAttribute(c *call) Status {
	info, set := c.kernelInfo(c.args[0])
	return setFunctionAttribute(c.args[1], int32(c.args[2]), info, set)
}

func kernelSetAttribute(c *call) Status {
	info, set := c.kernelInfo(c.args[2])
	return setFunctionAttribute(c.args[0], int32(c.args[1]), info, set)
}

// requireFunction is for settings that have no effect here.
func requireFunction(c *call) Status {
	c.kernelInfo(c.args[0])
	return Success
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
