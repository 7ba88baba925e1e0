package main

import (
	"slices"
	"strings"
)

// What the generators know of C types.

// byValue are the structures passed by value; their layout is declared in shim.h.
var byValue = map[string]bool{"CUmemLocation": true, "CUipcMemHandle": true, "CUipcEventHandle": true}

var scalars = map[string]string{
	"int": "int", "unsigned": "unsigned int", "unsigned int": "unsigned int", "float": "float", "size_t": "size_t",
	"unsigned char": "unsigned char", "unsigned short": "unsigned short", "unsigned long long": "unsigned long long",
	"cuuint32_t": "unsigned int", "cuuint64_t": "unsigned long long", "CUdeviceptr": "CUdeviceptr", "CUdevice": "int",
	"CUmemGenericAllocationHandle": "CUhandle", "CUtexObject": "unsigned long long",
	"CUsurfObject": "unsigned long long", "CUgraphConditionalHandle": "unsigned long long", "CUresult": "int",
	"CUdeviceptr_v1": "unsigned int",
}

// handles are opaque pointers and callbacks; every other name is an enumeration or a 32-bit name.
const handles = ` CUcontext CUmodule CUfunction CUlibrary CUkernel CUarray CUmipmappedArray CUtexref CUsurfref
	CUevent CUstream CUgraph CUgraphNode CUgraphExec CUexternalMemory CUexternalSemaphore CUgraphicsResource CUlinkState
	CUuserObject CUmemoryPool CUgreenCtx CUdevResourceDesc CUgraphDeviceNode CUasyncCallbackHandle CUlogsCallbackHandle
	CUhostFn CUstreamCallback CUasyncCallback CUoccupancyB2DSize CUlogsCallback EGLImageKHR EGLSyncKHR EGLStreamKHR
	EGLDisplay CUeglStreamConnection `

var handleList = strings.Fields(handles)

func isHandle(t string) bool { return slices.Contains(handleList, t) }

// ctype is the type of a parameter reduced to what the calling convention needs.
func ctype(t string) string {
	t = strings.TrimSpace(strings.TrimPrefix(t, "const "))
	switch {
	case strings.HasSuffix(t, "*"), isHandle(t):
		return "void *"
	case byValue[t]:
		return t
	case scalars[t] != "":
		return scalars[t]
	}
	return "int" // an enumeration, or a GL/VDPAU 32-bit name
}

// structs travel as blobs.
var structs = set("CUuuid CUdevprop CUexecAffinityParam CUctxCreateParams CUdevResource CUmemLocation " +
	"CUmemAllocationProp " +
	"CUmemAccessDesc CUmemPoolProps CUmemPoolPtrExportData CUipcMemHandle CUipcEventHandle CUmulticastObjectProp " +
	"CUDA_ARRAY_DESCRIPTOR CUDA_ARRAY3D_DESCRIPTOR CUDA_MEMSET_NODE_PARAMS CUDA_MEM_ALLOC_NODE_PARAMS " +
	"CUlaunchAttributeValue CUstreamBatchMemOpParams")

func set(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}
