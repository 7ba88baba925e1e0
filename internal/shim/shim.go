// Package shim generates the regular part of libholdfast.so (shim/zshim.c, shim/zshim.h) from the table of the
// driver API: one wrapper for every exported symbol that passes the gate or that the shim answers itself, the
// pointers to the real functions, and the tables for dlsym and cuGetProcAddress. The rest of the shim is hand-written C in
// shim/; its tests are here, because a directory with C files cannot be a Go package.
//
// The package must import nothing of this module but internal/cuda/api (tests also internal/wire).
package shim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/cuda/api"
)

//go:generate go run ./gen

// hand lists the functions (base names) that hand-written code in shim/ answers: hf_NAME gets the parameters of the symbol.
// Symbols given by full name are served alone; a base name serves all its declared symbols.
var hand = map[string]bool{
	"cuInit": true, "cuGetProcAddress": true, "cuGetProcAddress_v2": true,
	"cuMemAlloc_v2": true, "cuMemAllocPitch_v2": true, "cuMemFree_v2": true, "cuMemGetAddressRange_v2": true, "cuMemGetInfo_v2": true,
	"cuMemAllocAsync": true, "cuMemAllocFromPoolAsync": true, "cuMemFreeAsync": true,
	"cuMemPoolCreate": true, "cuMemPoolDestroy": true, "cuMemPoolTrimTo": true, "cuMemPoolSetAttribute": true, "cuMemPoolGetAttribute": true,
	"cuMemPoolSetAccess": true, "cuDeviceSetMemPool": true,
	"cuPointerGetAttribute": true, "cuPointerGetAttributes": true,
	"cuMemCreate": true, "cuMemRelease": true, "cuMemMap": true, "cuMemUnmap": true, "cuMemSetAccess": true,
	"cuMemExportToShareableHandle": true, "cuMemImportFromShareableHandle": true, "cuMemGetAllocationPropertiesFromHandle": true,
	"cuMemRetainAllocationHandle": true, "cuMulticastBindMem": true, "cuMulticastCreate": true,
	"cuMemGetHandleForAddressRange": true,
	"cuCtxCreate_v2":                true, "cuCtxCreate_v3": true, "cuCtxCreate_v4": true, "cuCtxDestroy": true, "cuCtxDestroy_v2": true,
	"cuDevicePrimaryCtxRetain": true, "cuDevicePrimaryCtxRelease": true, "cuDevicePrimaryCtxRelease_v2": true,
	"cuDevicePrimaryCtxReset": true, "cuDevicePrimaryCtxReset_v2": true,
	"cuCtxEnablePeerAccess": true,
	"cuStreamBeginCapture":  true, "cuStreamBeginCapture_v2": true, "cuStreamBeginCaptureToGraph": true, "cuStreamEndCapture": true, "cuStreamDestroy_v2": true,
	"cuModuleLoad": true, "cuModuleLoadData": true, "cuModuleLoadDataEx": true, "cuModuleLoadFatBinary": true, "cuModuleUnload": true,
	"cuLibraryLoadData": true, "cuLibraryLoadFromFile": true, "cuLibraryUnload": true,
	"cuModuleGetGlobal_v2": true, "cuLibraryGetGlobal": true, "cuLibraryGetModule": true, "cuLibraryGetManaged": true,
	"cuMemAllocManaged": true, "cuIpcGetMemHandle": true, "cuIpcOpenMemHandle_v2": true, "cuIpcGetEventHandle": true, "cuIpcOpenEventHandle": true,
	"cuImportExternalMemory": true, "cuImportExternalSemaphore": true, "cuMemHostRegister_v2": true,
	"cuMemHostUnregister": true, "cuCtxDisablePeerAccess": true, "cuMemPoolExportToShareableHandle": true,
	"cuMemPoolImportFromShareableHandle": true,
	"cuArrayCreate_v2":                   true, "cuArray3DCreate_v2": true, "cuMipmappedArrayCreate": true,
	"cuGraphicsMapResources": true, "cuGreenCtxCreate": true, "cuGraphAddMemAllocNode": true,
	"cuModuleGetFunction": true, "cuLibraryGetKernel": true, "cuKernelGetFunction": true, "cuLibraryEnumerateKernels": true,
	"cuGraphInstantiate": true, "cuGraphInstantiate_v2": true, "cuGraphInstantiateWithFlags": true, "cuGraphInstantiateWithParams": true,
	"cuGraphExecUpdate": true, "cuGraphExecUpdate_v2": true, "cuGraphExecDestroy": true,
	"cuGraphExecKernelNodeSetParams": true, "cuGraphExecKernelNodeSetParams_v2": true, "cuGraphExecMemcpyNodeSetParams": true,
	"cuGraphExecMemsetNodeSetParams": true, "cuGraphExecChildGraphNodeSetParams": true, "cuGraphExecBatchMemOpNodeSetParams": true,
	"cuGraphExecNodeSetParams": true,
}

// notes are what a tap is told of memory: before the call (what goes) or after it (what came).
var notes = map[string]struct{ before, after string }{
	"cuMemAlloc_v2":           {after: "hf_note_alloc(HF_MEM_LINEAR, *(CUdeviceptr *)dptr, bytesize)"},
	"cuMemAllocPitch_v2":      {after: "hf_note_alloc(HF_MEM_LINEAR, *(CUdeviceptr *)dptr, *(size_t *)pPitch * Height)"},
	"cuMemAllocAsync":         {after: "hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize)"},
	"cuMemAllocFromPoolAsync": {after: "hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize)"},
	"cuMemAllocManaged":       {after: "hf_note_alloc(HF_MEM_MANAGED, *(CUdeviceptr *)dptr, bytesize)"},
	"cuMemHostAlloc":          {after: "hf_note_alloc(HF_MEM_HOST, *(CUdeviceptr *)pp, bytesize)"},
	"cuMemAllocHost_v2":       {after: "hf_note_alloc(HF_MEM_HOST, *(CUdeviceptr *)pp, bytesize)"},
	"cuMemHostRegister_v2":    {after: "hf_note_alloc(HF_MEM_HOST, (CUdeviceptr)(uintptr_t)p, bytesize)"},
	"cuMemFree_v2":            {before: "hf_note_free(dptr, 0)"},
	"cuMemFreeAsync":          {before: "hf_note_free(dptr, 0)"},
	"cuMemFreeHost":           {before: "hf_note_free((CUdeviceptr)(uintptr_t)p, 0)"},
	"cuMemHostUnregister":     {before: "hf_note_free((CUdeviceptr)(uintptr_t)p, 0)"},
	"cuMemMap":                {after: "hf_note_map(ptr, size, offset)"},
	"cuMemUnmap":              {before: "hf_note_free(ptr, size)"},
}

// launches are the calls whose arguments a record of their own shows.
var launches = map[string]string{
	"cuLaunchKernel":            "hf_work_launch(f, " + dims + ", sharedMemBytes, %s, kernelParams, extra, 0)",
	"cuLaunchCooperativeKernel": "hf_work_launch(f, " + dims + ", sharedMemBytes, %s, kernelParams, NULL, HF_REC_COOPERATIVE_FLAG)",
	"cuLaunchKernelEx":          "hf_work_launch_ex(config, f, kernelParams, extra, %s)",
	"cuGraphLaunch":             "hf_work_graph(hGraphExec, %s)",
}

const dims = "&(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }"

// work gives the call that makes a record of f before it is made, with the stream's place as %s, or "" when f changes no memory of a
// device and looks at none. What is not known better may do anything.
func work(f *api.Function, s *api.Symbol) string {
	if !f.Submit {
		return ""
	}
	if l := launches[f.Name]; l != "" {
		return l
	}
	has := func(name string) bool {
		return slices.ContainsFunc(s.Params, func(p api.Param) bool { return p.Name == name })
	}
	other := fmt.Sprintf("hf_work_other(%d, %%s)", f.Op)
	switch f.Class {
	case api.Launch:
		return other
	case api.Copy:
		var flags []string
		dst, src := "", ""
		for _, p := range []struct{ name, flag string }{{"dst", ""}, {"dstDevice", ""}, {"dstHost", "HF_REC_DSTHOST_FLAG"}, {"dstArray", "HF_REC_DSTARRAY_FLAG"}} {
			if has(p.name) {
				dst, flags = p.name, append(flags, p.flag)
			}
		}
		for _, p := range []struct{ name, flag string }{{"src", ""}, {"srcDevice", ""}, {"srcHost", "HF_REC_SRCHOST_FLAG"}, {"srcArray", "HF_REC_SRCARRAY_FLAG"}} {
			if has(p.name) {
				src, flags = p.name, append(flags, p.flag)
			}
		}
		if flags = slices.DeleteFunc(flags, func(f string) bool { return f == "" }); len(flags) == 0 {
			flags = []string{"0"}
		}
		address := func(name string) string {
			if strings.HasSuffix(name, "Array") {
				return "0"
			}
			return "(uint64_t)(uintptr_t)" + name
		}
		switch {
		case dst != "" && src != "" && has("ByteCount"):
			return fmt.Sprintf("hf_work_copy(%d, %s, %s, %s, ByteCount, %%s)", f.Op, strings.Join(flags, " | "), address(dst), address(src))
		case has("pCopy") && strings.Contains(f.Name, "2D"):
			return fmt.Sprintf("hf_work_copy2d(%d, pCopy, %%s)", f.Op)
		case has("pCopy"):
			return fmt.Sprintf("hf_work_copy3d(%d, pCopy, %%s)", f.Op)
		}
		return other
	case api.Set:
		value, size := "uc", 1
		if has("us") {
			value, size = "us", 2
		} else if has("ui") {
			value, size = "ui", 4
		}
		if has("N") {
			return fmt.Sprintf("hf_work_set(%d, dstDevice, 0, %s, %d, N, 1, %%s)", f.Op, value, size)
		}
		return fmt.Sprintf("hf_work_set(%d, dstDevice, dstPitch, %s, %d, Width, Height, %%s)", f.Op, value, size)
	case api.MemOp:
		size := 4
		if strings.HasSuffix(f.Name, "64") {
			size = 8
		}
		switch {
		case strings.HasPrefix(f.Name, "cuStreamWriteValue"):
			return fmt.Sprintf("hf_work_set(%d, addr, 0, value, %d, 1, 1, %%s)", f.Op, size)
		case strings.HasPrefix(f.Name, "cuStreamWaitValue"):
			return fmt.Sprintf("hf_work_copy(%d, HF_REC_DSTHOST_FLAG, 0, addr, %d, %%s)", f.Op, size)
		}
		return other
	case api.VMM, api.Interop:
		return other
	case api.Managed:
		if strings.Contains(f.Name, "Discard") {
			return other
		}
	}
	return "" // moves, callbacks, memory that comes and goes
}

// gated says whether the calls of f wait while the program is frozen: everything that submits work, and what creates or
// destroys memory, contexts, code (asking for a variable may load it), graphs and captures, so that what a frozen program has does
// not change; and what looks
// at memory, which may be away. Waiting and other asking is never gated: it changes nothing, and a thread inside such a
// call must not hold up a freeze.
func gated(f *api.Function) bool {
	if f.Submit {
		return true
	}
	verb := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(f.Name, w) })
	}
	switch f.Class {
	case api.Query: // what is asked about memory that is away would be answered wrong
		return verb("cuPointer", "cuMemGet")
	case api.Alloc, api.Free, api.Managed, api.VMM, api.Multicast, api.Array, api.Pool, api.Texture, api.TensorMap, api.IPC, api.Interop, api.Graph:
		return true
	case api.HostMem:
		return verb("Alloc", "Free", "Register", "Unregister")
	case api.Ctx:
		return verb("Create", "Destroy", "Retain", "Release", "Reset", "EnablePeer", "DisablePeer", "Limit")
	case api.Module:
		return verb("Load", "LinkComplete", "LibraryGetModule", "KernelGetFunction", "GetGlobal") && !verb("GetLoadingMode", "IsLoaded")
	case api.Capture:
		return verb("BeginCapture", "EndCapture")
	case api.Stream:
		return verb("Create", "Destroy", "SetAttribute", "CopyAttributes") // an access window names memory
	}
	return false
}

// calms says whether a call of f waits for the device and does nothing else.
func calms(f *api.Function) bool {
	return f.Sync && !gated(f) && strings.HasSuffix(f.Name, "Synchronize")
}

// counter names the slot's counter that a call of f increments, or "".
func counter(f *api.Function) string {
	switch {
	case f.Name == "cuGraphLaunch":
		return "graphs"
	case f.Class == api.Launch && f.Submit:
		return "launches"
	case (f.Class == api.Copy || f.Class == api.Set) && f.Submit:
		return "copies"
	}
	return ""
}

// A symbol is one exported name: a declared symbol or its per-thread twin.
type symbol struct {
	f         *api.Function
	s         *api.Symbol
	name      string // with the suffix
	perThread bool
	hand      bool
	hooked    bool
}

func symbols(fns []api.Function) []symbol {
	var out []symbol
	for i := range fns {
		f := &fns[i]
		for j := range f.Symbols {
			s := &f.Symbols[j]
			if s.Legacy {
				continue
			}
			sym := symbol{f: f, s: s, name: s.Name, hand: hand[s.Name]}
			sym.hooked = sym.hand || gated(f) || calms(f)
			out = append(out, sym)
			if s.PerThread != "" {
				sym.name += s.PerThread
				sym.perThread = true
				out = append(out, sym)
			}
		}
	}
	slices.SortFunc(out, func(a, b symbol) int { return strings.Compare(a.name, b.name) })
	return out
}

// structs are the types passed by value that are not registers' width; their layout is declared in shim.h.
var structs = map[string]bool{"CUmemLocation": true, "CUipcMemHandle": true, "CUipcEventHandle": true}

var scalars = map[string]string{
	"int": "int", "unsigned": "unsigned int", "unsigned int": "unsigned int", "float": "float", "size_t": "size_t",
	"unsigned char": "unsigned char", "unsigned short": "unsigned short", "unsigned long long": "unsigned long long",
	"cuuint32_t": "unsigned int", "cuuint64_t": "unsigned long long", "CUdeviceptr": "CUdeviceptr", "CUdevice": "int",
	"CUmemGenericAllocationHandle": "CUhandle", "CUtexObject": "unsigned long long", "CUsurfObject": "unsigned long long",
	"CUgraphConditionalHandle": "unsigned long long", "CUresult": "int", "CUdeviceptr_v1": "unsigned int",
}

// handles are opaque pointers and callbacks; every other name is an enumeration or a 32-bit name.
const handles = ` CUcontext CUmodule CUfunction CUlibrary CUkernel CUarray CUmipmappedArray CUtexref CUsurfref
	CUevent CUstream CUgraph CUgraphNode CUgraphExec CUexternalMemory CUexternalSemaphore CUgraphicsResource CUlinkState
	CUuserObject CUmemoryPool CUgreenCtx CUdevResourceDesc CUgraphDeviceNode CUasyncCallbackHandle CUlogsCallbackHandle
	CUhostFn CUstreamCallback CUasyncCallback CUoccupancyB2DSize CUlogsCallback EGLImageKHR EGLSyncKHR EGLStreamKHR
	EGLDisplay CUeglStreamConnection `

func isHandle(t string) bool { return slices.Contains(strings.Fields(handles), t) }

// ctype is the type of a parameter reduced to what the calling convention needs.
func ctype(t string) string {
	t = strings.TrimSpace(strings.TrimPrefix(t, "const "))
	switch {
	case strings.HasSuffix(t, "*"), isHandle(t):
		return "void *"
	case structs[t]:
		return t
	case scalars[t] != "":
		return scalars[t]
	}
	return "int" // an enumeration, or a GL/VDPAU 32-bit name
}

func params(s *api.Symbol) (decl, args string) {
	if len(s.Params) == 0 {
		return "void", ""
	}
	var d, a []string
	for _, p := range s.Params {
		t := ctype(p.Type)
		if !strings.HasSuffix(t, "*") {
			t += " "
		}
		d = append(d, t+p.Name)
		a = append(a, p.Name)
	}
	return strings.Join(d, ", "), strings.Join(a, ", ")
}

const banner = "/* Code generated from internal/cuda/api by internal/shim; DO NOT EDIT. Regenerate: go generate ./internal/shim */\n"

// Header prints zshim.h: the numbers of the symbols and typed calls of the real functions.
func Header(fns []api.Function) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	syms := symbols(fns)
	p(banner + "#ifndef HF_ZSHIM_H\n#define HF_ZSHIM_H\n\nenum {\n")
	for _, s := range syms {
		p("\tHF_SYM_%s,\n", s.name)
	}
	p("\tHF_SYMBOLS\n};\n\n/* the real functions, 0 until first used */\nextern void *hf_real[HF_SYMBOLS];\n\n")
	for _, s := range syms {
		decl, args := params(s.s)
		p("static inline CUresult real_%s(%s)\n{\n\treturn ((CUresult (*)(%s))hf_fn(HF_SYM_%s))(%s);\n}\n", s.name, decl, decl, s.name, args)
	}
	p("\n/* answered by hand-written code */\n")
	for _, s := range syms {
		if s.hand && !s.perThread {
			decl, _ := params(s.s)
			p("CUresult hf_%s(%s);\n", s.s.Name, decl)
		}
	}
	p("\n#endif\n")
	return b.Bytes()
}

// Source prints zshim.c: the wrappers and the tables.
func Source(fns []api.Function) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	syms := symbols(fns)
	p(banner + "#include \"shim.h\"\n\nvoid *hf_real[HF_SYMBOLS];\n")
	for _, s := range syms {
		if s.hooked {
			wrapper(p, s)
		}
	}
	p("\n/* sorted by name */\nconst struct hf_symbol hf_symbols[HF_SYMBOLS] = {\n")
	for _, s := range syms {
		w := "0"
		if s.hooked {
			w = "(void *)" + s.name
		}
		p("\t{ \"%s\", %s, %d },\n", s.name, w, s.f.Op)
	}
	p("};\n\n/* what cuGetProcAddress gives for a base name, sorted by name, newest first */\nconst struct hf_proc hf_procs[] = {\n")
	index := map[string]string{}
	for _, s := range syms {
		index[s.name] = "HF_SYM_" + s.name
	}
	n := 0
	byName := slices.Clone(fns)
	slices.SortFunc(byName, func(a, b api.Function) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range byName {
		for i := len(f.Symbols) - 1; i >= 0; i-- {
			s := f.Symbols[i]
			if s.Legacy {
				continue
			}
			name := s.Name
			thread := index[name]
			for _, suffix := range []string{"_ptsz", "_ptds"} {
				if t, ok := index[name+suffix]; ok {
					thread = t
				}
			}
			p("\t{ \"%s\", %d, %s, %s },\n", f.Name, s.Since, index[name], thread)
			n++
		}
	}
	p("};\nconst unsigned hf_nprocs = %d;\n\n/* base names by operation number */\nconst char *const hf_call_names[] = {\n", n)
	last := api.Op(0)
	for _, f := range fns {
		p("\t[%d] = \"%s\",\n", f.Op, f.Name)
		last = max(last, f.Op)
	}
	p("};\nconst unsigned hf_ncalls = %d;\n", last+1)
	return b.Bytes()
}

func wrapper(p func(string, ...any), s symbol) {
	decl, args := params(s.s)
	if gated(s.f) && work(s.f, s.s) != "" {
		watched(p, s)
	}
	p("\nHF_EXPORT CUresult %s(%s)\n{\n", s.name, decl)
	target := "real_" + s.name
	if s.hand {
		target = "hf_" + s.s.Name
	}
	handArgs := args
	if s.perThread && s.s.Stream() >= 0 {
		handArgs = streamArgs(s.s, "HF_STREAM(%s, CU_STREAM_PER_THREAD)")
	} else if s.s.Stream() >= 0 && s.s.PerThread != "" {
		handArgs = streamArgs(s.s, "HF_STREAM(%s, CU_STREAM_LEGACY)")
	}
	if calms(s.f) {
		p("\thf_wait_begin();\n\tCUresult r = %s(%s);\n\thf_wait_end();\n\treturn r;\n}\n", target, args)
		return
	}
	if !gated(s.f) {
		p("\tif (hf_depth)\n\t\treturn real_%s(%s);\n\treturn %s(%s);\n}\n", s.name, args, target, handArgs)
		return
	}
	if work(s.f, s.s) != "" {
		p("\tstruct hf_slot *slot = hf_enter_work(%d);\n\tif (HF_UNLIKELY(!slot))\n\t\treturn watched_%s(%s);\n", s.f.Op, s.name, args)
	} else {
		p("\tstruct hf_slot *slot = hf_enter(%d);\n", s.f.Op)
	}
	note := notes[s.s.Name]
	if note.before != "" {
		p("\tif (HF_UNLIKELY(hf_tapped) && hf_depth == 1)\n\t\t%s;\n", note.before)
	}
	if c := counter(s.f); c != "" {
		p("\tslot->%s++;\n", c)
	}
	if s.hand {
		p("\tCUresult r = hf_depth > 1 ? real_%s(%s) : %s(%s);\n", s.name, args, target, handArgs)
	} else {
		p("\tCUresult r = %s(%s);\n", target, args)
	}
	if note.after != "" {
		p("\tif (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)\n\t\t%s;\n", note.after)
	}
	p("\thf_leave(slot);\n\treturn r;\n}\n")
}

// watched prints what the wrapper of a piece of work becomes while the gate is watched.
func watched(p func(string, ...any), s symbol) {
	decl, args := params(s.s)
	stream := "CU_STREAM_LEGACY"
	if s.perThread {
		stream = "CU_STREAM_PER_THREAD"
	}
	if i := s.s.Stream(); i >= 0 {
		stream = fmt.Sprintf("HF_STREAM(%s, %s)", s.s.Params[i].Name, stream)
	}
	p("\nstatic __attribute__((cold, noinline)) CUresult watched_%s(%s)\n{\n", s.name, decl)
	if c := counter(s.f); c != "" {
		p("\thf_slot->%s++;\n", c)
	}
	target := "real_" + s.name
	if s.hand {
		target = "hf_" + s.s.Name
	}
	p("\t%s;\n\tCUresult r = %s(%s);\n", fmt.Sprintf(work(s.f, s.s), stream), target, args)
	p("\tif (HF_UNLIKELY(r != CUDA_SUCCESS))\n\t\thf_work_failed(r);\n\thf_leave(hf_slot);\n\treturn r;\n}\n")
}

// streamArgs is the argument list with the stream wrapped in format.
func streamArgs(s *api.Symbol, format string) string {
	var a []string
	for i, p := range s.Params {
		if i == s.Stream() {
			a = append(a, fmt.Sprintf(format, p.Name))
		} else {
			a = append(a, p.Name)
		}
	}
	return strings.Join(a, ", ")
}
