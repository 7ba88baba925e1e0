/* A driver library that checks what it is called with, against declarations written after cuda.h (CUDA 13.0)
 * independently of the Go ones. It has every function but those of the checkpoint. A call with wrong arguments returns
 * CUDA_ERROR_INVALID_VALUE (1). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct { int type; int id; } CUmemLocation;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;

#define CHECK(x) if (!(x)) return 1
static int primary_flags = -1;
static uint64_t launched;

CUresult cuInit(unsigned flags) { CHECK(flags == 0); return 0; }
CUresult cuDriverGetVersion(int *v) { *v = 12040; return 0; }
CUresult cuDeviceGetCount(int *n) { *n = 3; return 0; }
CUresult cuDeviceGet(int *dev, int ordinal) { CHECK(ordinal == 2); *dev = 7; return 0; }
CUresult cuDeviceGetName(char *s, int n, int dev) { CHECK(dev == 7 && n > 20); strcpy(s, "checking device"); return 0; }
CUresult cuDeviceGetPCIBusId(char *s, int n, int dev)
{
	CHECK(dev == 7 && n >= 13);
	strcpy(s, "0000:0a:00.0");
	return 0;
}
CUresult cuDeviceGetUuid_v2(unsigned char u[16], int dev)
{
	CHECK(dev == 7);
	for (int i = 0; i < 16; i++)
		u[i] = i;
	return 0;
}
CUresult cuDeviceGetAttribute(int *v, int attr, int dev) { CHECK(dev == 7); *v = attr == 75 ? 9 : -1; return 0; }
CUresult cuDeviceTotalMem_v2(size_t *n, int dev) { CHECK(dev == 7); *n = 150ull << 30; return 0; }
CUresult cuDevicePrimaryCtxSetFlags_v2(int dev, unsigned flags) { CHECK(dev == 7); primary_flags = flags; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **c, int dev)
{
	CHECK(dev == 7 && primary_flags == 4);
	*c = (void *)0x7fffdeadbeef0ull;
	return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int dev) { CHECK(dev == 7); return 0; }
CUresult cuCtxSetCurrent(void *c) { CHECK(c == (void *)0x7fffdeadbeef0ull || !c); return 0; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 5ull << 32; *t = 9ull << 32; return 0; }
CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *p,
		unsigned long long flags)
{
	CHECK(size == 6ull << 30 && flags == 0 && p->type == 1 && p->location.type == 1 && p->location.id == 7);
	CHECK(!p->win32HandleMetaData && !p->allocFlags.compressionType && !p->allocFlags.usage);
	*h = 0xa000000000000000ull | (unsigned)p->requestedHandleTypes;
	return 0;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) { CHECK(h >> 60 == 0xa); return 0; }
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, int type, unsigned long long flags)
{
	CHECK(h == 0xa000000000000001ull && type == 1 && flags == 0);
	*(int *)out = 33;
	return 0;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *fd, int type)
{
	CHECK((uintptr_t)fd == 33 && type == 1);
	*h = 0xa000000000000009ull;
	return 0;
}
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags)
{
	CHECK(size == 6ull << 30 && !align && !at && !flags);
	*p = 0x7f1200000000ull;
	return 0;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t size) { CHECK(p == 0x7f1200000000ull && size == 6ull << 30); return 0; }
CUresult cuMemMap(CUdeviceptr p, size_t size, size_t off, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	CHECK(p == 0x7f1200000000ull && size == 6ull << 30 && !off && h == 0xa000000000000009ull && !flags);
	return 0;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t size) { CHECK(p == 0x7f1200000000ull && size == 6ull << 30); return 0; }
CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *d, size_t n)
{
	CHECK(p == 0x7f1200000000ull && size == 6ull << 30 && n == 1 && d->location.type == 1 && d->location.id == 7 &&
		d->flags == 3);
	return 0;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) { CHECK(flags == 1); *p = calloc(1, n); return *p ? 0 : 2; }
CUresult cuMemFreeHost(void *p) { free(p); return 0; }
CUresult cuStreamCreate(void **s, unsigned flags) { CHECK(flags == 1); *s = (void *)0x55; return 0; }
CUresult cuStreamDestroy_v2(void *s) { CHECK(s == (void *)0x55); return 0; }
CUresult cuStreamSynchronize(void *s) { CHECK(s == (void *)0x55); return 0; }
CUresult cuStreamQuery(void *s) { return s == (void *)0x55 ? 600 : s == (void *)0x66 ? 719 : 0; }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, void *st)
{
	CHECK(d == 0xd00000000ull && s == 0xe00000000ull && n == 1ull << 33 && st == (void *)0x55);
	return 0;
}
CUresult cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, void *st)
{
	CHECK(st == (void *)0x55);
	memset(d, (int)(s & 0xff), n);
	return 0;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, void *st)
{
	CHECK(st == (void *)0x55 && n == 8 && !memcmp(s, &d, 8));
	return 0;
}
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, void *st)
{
	CHECK(d == 0xd00000000ull && v == 0xdeadbeef && n == 1ull << 33 && st == (void *)0x55);
	return 0;
}
CUresult cuModuleLoadData(void **m, const void *image)
{
	CHECK(!strcmp(image, ".version 7.0"));
	*m = (void *)0x77;
	return 0;
}
CUresult cuModuleUnload(void *m) { CHECK(m == (void *)0x77); return 0; }
CUresult cuModuleGetFunction(void **f, void *m, const char *name)
{
	CHECK(m == (void *)0x77);
	if (strcmp(name, "k"))
		return 500;
	*f = (void *)0x88;
	return 0;
}
CUresult cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		unsigned shared, void *st, void **params, void **extra)
{
	CHECK(f == (void *)0x88 && gx == 100000 && gy == 1 && gz == 1 && bx == 256 && by == 1 && bz == 1 && !shared &&
		st == (void *)0x55 && !extra);
	CHECK(*(uint64_t *)params[0] == 0x1111222233334444ull && *(uint64_t *)params[1] == 2 &&
		*(uint64_t *)params[2] == 3);
	launched++;
	return 0;
}

/* What OpenKernels adds. */
typedef struct {
	int id;
	char pad[4];
	union { char pad[64]; struct { unsigned x, y, z; } cluster; } value;
} CUlaunchAttribute;
typedef struct {
	unsigned gx, gy, gz, bx, by, bz, shared;
	void *stream;
	CUlaunchAttribute *attrs;
	unsigned n;
} CUlaunchConfig;
static int max_shared, non_portable;

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { CHECK(n == 5ull << 32); *p = 0x7f3300000000ull; return 0; }
CUresult cuMemFree_v2(CUdeviceptr p) { CHECK(p == 0x7f3300000000ull); return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr p, const void *src, size_t n)
{
	CHECK(p == 0x7f3300000000ull && n == 3 && !memcmp(src, "abc", 3));
	return 0;
}
CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr p, size_t n)
{
	CHECK(p == 0x7f3300000000ull);
	memset(dst, 0x6b, n);
	return 0;
}
CUresult cuCtxSynchronize(void) { return 0; }
CUresult cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values)
{
	CHECK(n == 2 && options[0] == 5 && options[1] == 6 && (uintptr_t)values[1] == 4096);
	if (!strcmp(image, "bad")) {
		strcpy(values[0], "line 1: no\n");
		return 218;
	}
	CHECK(!strcmp(image, "good"));
	*m = (void *)0x99;
	return 0;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *n, void *m, const char *name)
{
	CHECK(m == (void *)0x99 && !strcmp(name, "g"));
	*p = 0x7f4400000000ull;
	*n = 40;
	return 0;
}
CUresult cuFuncSetAttribute(void *f, int attr, int v)
{
	CHECK(f == (void *)0x88 && (attr == 8 || attr == 14));
	*(attr == 8 ? &max_shared : &non_portable) = v;
	return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, void *f, void **params, void **extra)
{
	CHECK(f == (void *)0x88 && !extra && c->gx == 16 && c->gy == 2 && c->gz == 3 && c->bx == 64 && c->by == 4 &&
		c->bz == 1 && c->stream == (void *)0x55);
	CHECK(c->shared == 100000 && max_shared == 100000 && non_portable == 1 && c->n == 1);
	CHECK(c->attrs->id == 4 && c->attrs->value.cluster.x == 16 && c->attrs->value.cluster.y == 1 &&
		c->attrs->value.cluster.z == 1);
	CHECK(!memcmp(params[0], "hello", 5) && !memcmp(params[1], "lo", 2) && !params[2]);
	return 0;
}
CUresult cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *address, const uint64_t *dim,
		const uint64_t *strides, const unsigned *box, const unsigned *step, int interleave, int swizzle, int promotion,
		int fill)
{
	CHECK((uintptr_t)out % 64 == 0 && type == 7 && rank == 2 && address == (void *)0x7f3300000000ull && dim[0] == 64 &&
		dim[1] == 9 && strides[0] == 256);
	CHECK(box[0] == 32 && box[1] == 4 && step[0] == 1 && step[1] == 2 && !interleave && swizzle == 3 && !promotion &&
		fill == 1);
	memset(out, 0x7d, 128);
	return 0;
}
