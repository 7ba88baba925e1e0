/*
 * A driver for the shim's tests: memory is memfds mapped into the process, kernels run at once on the caller's thread.
 * Like the real driver it refuses to export imported memory again. A launch adds 1 to the 64-bit word its first
 * parameter points at.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef unsigned long long ptr;
enum { OK = 0, INVALID = 1, OOM = 2, NOT_INIT = 3, NO_CTX = 201, NOT_READY = 600 };

static atomic_int inited, ctx_live, capturing, open_handles, direct_allocs, maps;
static atomic_llong physical;
static _Thread_local void *stack[16];
static _Thread_local int depth;
struct handle { int fd; uint64_t size; int imported, refs; };
static pid_t owner;

/* All memory in bytes: FAKE_TOTAL says it, or the file that FAKE_TOTAL_FILE names, whose contents may change. */
static long long total(void)
{
	const char *s = getenv("FAKE_TOTAL"), *name = getenv("FAKE_TOTAL_FILE");
	long long n = s ? atoll(s) : 1ll << 40;
	FILE *f = name ? fopen(name, "r") : NULL;
	if (f) {
		if (fscanf(f, "%lld", &n) != 1)
			abort();
		fclose(f);
	}
	return n;
}

/*
 * A device as the real driver has it mapped and open: FAKE_DEVICE names it, FAKE_MAPPINGS says how many pages, every
 * third one out of reach and all apart from each other, so that they are as many mappings.
 */
static char *device;
static size_t device_pages;

static void device_open(void)
{
	const char *path = getenv("FAKE_DEVICE"), *n = getenv("FAKE_MAPPINGS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0 || fcntl(fd, F_DUPFD_CLOEXEC, 300) < 0)
		return;
	device_pages = n ? (size_t)atoll(n) : 1;
	device = mmap(NULL, 2 * 4096 * device_pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (size_t i = 0; i < device_pages; i++) {
		char *p = mmap(device + 2 * 4096 * i, 4096, i % 3 ? PROT_READ | PROT_WRITE : PROT_NONE,
			MAP_FIXED | (i % 2 ? MAP_SHARED : MAP_PRIVATE), fd, 0);
		if (p == MAP_FAILED)
			abort();
		if (i % 3)
			*p = 1;
	}
}
/* As the driver's exit handlers do; false if something else is there. */
API int fake_device_touch(void)
{
	int sum = 0;
	for (size_t i = 0; i < device_pages; i++)
		if (i % 3)
			sum += device[2 * 4096 * i]++;
	return sum;
}

API int cuInit(unsigned f)
{
	(void)f;
	if (inited && owner != getpid())
		return NOT_INIT;
	if (!inited)
		device_open();
	inited = 1;
	owner = getpid();
	return OK;
}
API int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
API int cuGetErrorName(int e, const char **s)
{
	*s = e == INVALID ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR";
	return OK;
}
API int cuDeviceGetCount(int *n) { *n = 1; return inited ? OK : NOT_INIT; }
API int cuDeviceGet(int *d, int i) { *d = i; return i ? INVALID : OK; }
API int cuDeviceGetAttribute(int *v, int a, int d) { (void)a; (void)d; *v = 1; return OK; }
API int cuDeviceGetUuid_v2(char *u, int d) { memset(u, 0x42 + d, 16); return OK; }
API int cuCtxCreate_v2(void **c, unsigned flags, int d) { (void)flags; (void)d; *c = (void *)0xc0ffef; return OK; }
API int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; ctx_live++; *c = (void *)0xc0ffee; return OK; }
API int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return ctx_live-- > 0 ? OK : INVALID; }
API int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { (void)d; *f = 0; *a = ctx_live > 0; return OK; }
API int cuCtxSetCurrent(void *c) { if (!depth) depth = 1; stack[depth - 1] = c; return OK; }
API int cuCtxGetCurrent(void **c) { *c = depth ? stack[depth - 1] : NULL; return inited ? OK : NOT_INIT; }
API int cuCtxPushCurrent_v2(void *c) { stack[depth++] = c; return OK; }
API int cuCtxPopCurrent_v2(void **c) { *c = stack[--depth]; return OK; }
API int cuCtxGetDevice(int *d) { *d = 0; return depth && stack[depth - 1] ? OK : NO_CTX; }
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int waiting; /* threads that wait for the device */
static int spoiled; /* captures that a wait has met */
API int cuCtxSynchronize(void)
{
	bool spoils = capturing;
	spoiled += spoils;
	__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&busy);
	pthread_mutex_unlock(&busy);
	__atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	return spoils ? 900 : OK;
}
/* Makes the device busy until told otherwise. */
API void fake_busy(int on) { if (on) pthread_mutex_lock(&busy); else pthread_mutex_unlock(&busy); }

API int cuMemGetInfo_v2(size_t *f, size_t *t) { *t = (size_t)total(); *f = (size_t)(total() - physical); return OK; }
API int cuMemAlloc_v2(ptr *p, size_t n)
{
	if (!depth)
		return NO_CTX;
	if (!n)
		return INVALID;
	direct_allocs++;
	*p = (ptr)(uintptr_t)mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return OK;
}
API int cuMemFree_v2(ptr p) { if (!p) return OK; if (direct_allocs <= 0) return INVALID; direct_allocs--; return OK; }
API int cuMemGetAddressRange_v2(ptr *b, size_t *s, ptr p) { (void)b; (void)s; (void)p; return INVALID; }
API int cuPointerGetAttribute(void *d, int a, ptr p) { (void)p; if (a == 9) *(int *)d = 0; return OK; }

struct prop { int type, types, lt, lid; void *w; unsigned char z[8]; };
API int cuMemGetAllocationGranularity(size_t *g, const struct prop *p, int o)
{
	(void)p;
	(void)o;
	*g = 2 << 20;
	return OK;
}
API int cuMemCreate(ptr *h, size_t n, const struct prop *p, unsigned long long f)
{
	(void)f;
	if (n % (2 << 20) || p->type != 1)
		return INVALID;
	if (physical + (long long)n > total())
		return OOM;
	struct handle *x = calloc(1, sizeof *x);
	x->fd = (int)syscall(SYS_memfd_create, "gpu", 1);
	x->size = n;
	if (ftruncate(x->fd, (off_t)n))
		abort();
	physical += (long long)n;
	open_handles++;
	*h = (ptr)(uintptr_t)x;
	return OK;
}
API int cuMemRelease(ptr h)
{
	struct handle *x = (void *)(uintptr_t)h;
	close(x->fd);
	physical -= (long long)x->size;
	open_handles--;
	free(x);
	return OK;
}
API int cuMemAddressReserve(ptr *p, size_t n, size_t align, ptr at, unsigned long long f)
{
	(void)f; (void)align;
	char *m = mmap((void *)(uintptr_t)at, n + (2 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		(at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	if (m == MAP_FAILED)
		return OOM;
	uintptr_t a = ((uintptr_t)m + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1);
	*p = a;
	return OK;
}
API int cuMemAddressFree(ptr p, size_t n) { return munmap((void *)(uintptr_t)p, n) ? INVALID : OK; }
API int cuMemMap(ptr p, size_t n, size_t off, ptr h, unsigned long long f)
{
	(void)f;
	struct handle *x = (void *)(uintptr_t)h;
	if (mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_SHARED | MAP_FIXED, x->fd, (off_t)off) == MAP_FAILED)
		return INVALID;
	maps++;
	return OK;
}
API int cuMemUnmap(ptr p, size_t n)
{
	maps--;
	return mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		0) == MAP_FAILED ? INVALID : OK;
}
API int cuMemSetAccess(ptr p, size_t n, const void *d, size_t k)
{
	(void)d; (void)k;
	return mprotect((void *)(uintptr_t)p, n, PROT_READ | PROT_WRITE) ? INVALID : OK;
}
API int cuMemExportToShareableHandle(int *fd, ptr h, int t, unsigned long long f)
{
	(void)f;
	struct handle *x = (void *)(uintptr_t)h;
	if (x->imported || t != 1)
		return INVALID;
	*fd = dup(x->fd);
	return OK;
}
API int cuMemImportFromShareableHandle(ptr *h, void *os, int t)
{
	struct stat st;
	int fd = dup((int)(intptr_t)os);
	if (t != 1 || fd < 0 || fstat(fd, &st))
		return INVALID;
	struct handle *x = calloc(1, sizeof *x);
	*x = (struct handle){ fd, (uint64_t)st.st_size, 1, 0 };
	physical += st.st_size;
	open_handles++;
	*h = (ptr)(uintptr_t)x;
	return OK;
}
API int cuMemGetHandleForAddressRange(int *fd, ptr p, size_t n, int t, unsigned long long f)
{
	(void)p;
	(void)n;
	(void)t;
	(void)f;
	*fd = dup(0);
	return OK;
}
API int cuMemGetAllocationPropertiesFromHandle(struct prop *p, ptr h)
{
	(void)h;
	memset(p, 0, sizeof *p);
	p->type = 1;
	p->types = 1;
	return OK;
}

API int cuMemcpyHtoD_v2(ptr d, const void *s, size_t n) { memcpy((void *)(uintptr_t)d, s, n); return OK; }
API int cuMemcpyDtoH_v2(void *d, ptr s, size_t n) { memcpy(d, (void *)(uintptr_t)s, n); return OK; }
API int cuMemcpyDtoD_v2(ptr d, ptr s, size_t n) { memcpy((void *)(uintptr_t)d, (void *)(uintptr_t)s, n); return OK; }

API int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s,
	void *st, void **params, void **extra)
{
	(void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)s; (void)st; (void)extra;
	if (params)
		++**(uint64_t **)params[0];
	return OK;
}
API int cuLaunchKernel_ptsz(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s,
	void *st, void **params, void **extra)
{
	return cuLaunchKernel(f, a, b, c, d, e, g, s, st, params, extra);
}
/* The launch under a name that nobody hooks. */
API int fake_launch(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s,
	void *st, void **params, void **extra)
{
	(void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)s; (void)st; (void)extra;
	if (params)
		++**(uint64_t **)params[0];
	return OK;
}
API int cuStreamBeginCapture_v2(void *s, int m) { (void)s; (void)m; capturing++; return OK; }
API int cuStreamEndCapture(void *s, void **g) { (void)s; *g = (void *)1; capturing--; return OK; }
API int cuStreamIsCapturing(void *s, int *st) { (void)s; *st = capturing > 0; return OK; }
API int cuThreadExchangeStreamCaptureMode(int *m) { (void)m; return OK; }
API int cuStreamGetCtx(void *s, void **c) { (void)s; *c = (void *)0xc0ffee; return OK; }
API int cuEventCreate(void **e, unsigned f) { (void)f; *e = malloc(8); return OK; }
API int cuEventDestroy_v2(void *e) { free(e); return OK; }
API int cuEventRecord(void *e, void *s) { (void)e; (void)s; return OK; }
static atomic_int late;
API void fake_late(int on) { late = on; }
API int cuEventQuery(void *e) { (void)e; return late ? NOT_READY : OK; }
API int cuDeviceGetDefaultMemPool(void **p, int d) { *p = (void *)0x9001; return d ? INVALID : OK; }
API int cuDeviceGetMemPool(void **p, int d) { *p = (void *)0x9001; return d ? INVALID : OK; }
API int cuMemPoolSetAttribute(void *p, int a, void *v) { (void)p; (void)a; (void)v; return OK; }
API int cuMemPoolGetAttribute(void *p, int a, void *v) { (void)p; (void)a; *(uint64_t *)v = 0; return OK; }
API int cuMemPoolTrimTo(void *p, size_t n) { (void)p; (void)n; return OK; }
API int cuMemAllocAsync(ptr *p, size_t n, void *s) { (void)s; return cuMemAlloc_v2(p, n); }
API int cuMemFreeAsync(ptr p, void *s) { (void)s; return cuMemFree_v2(p); }
API int cuMemAllocManaged(ptr *p, size_t n, unsigned f)
{
	(void)f;
	direct_allocs++;
	*p = (ptr)(uintptr_t)malloc(n);
	return OK;
}
API int cuMemsetD8_v2(ptr p, unsigned char v, size_t n) { memset((void *)(uintptr_t)p, v, n); return OK; }
API int cuModuleGetFunction(void **f, void *m, const char *n) { (void)m; (void)n; *f = (void *)1; return OK; }
API int cuStreamCreate(void **s, unsigned f) { (void)f; *s = malloc(8); return OK; }
API int cuStreamSynchronize(void *s) { (void)s; return OK; }
API int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f)
{
	(void)g;
	(void)f;
	*e = (void *)2;
	return OK;
}
API int cuGraphLaunch(void *e, void *s) { (void)e; (void)s; return OK; }
API int cuModuleGetGlobal_v2(ptr *p, size_t *n, void *m, const char *name)
{
	(void)p;
	(void)n;
	(void)m;
	(void)name;
	return INVALID;
}
API int cuModuleUnload(void *m) { (void)m; return OK; }
API int cuModuleLoadData(void **m, const void *i) { (void)i; *m = (void *)0x30d; return OK; }

API int cuGetProcAddress_v2(const char *name, void **p, int v, unsigned long long f, int *st)
{
	char n[128];
	static const char *const v2[] = { "cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemGetInfo", 0 };
	const char *suffix = "";
	for (int i = 0; v2[i]; i++)
		if (!strcmp(v2[i], name))
			suffix = "_v2";
	if (!strcmp(name, "cuGetProcAddress") && v >= 12000)
		suffix = "_v2";
	if (!strcmp(name, "cuLaunchKernel") && (f & 2))
		suffix = "_ptsz";
	snprintf(n, sizeof n, "%s%s", name, suffix);
	Dl_info self;
	dladdr((void *)cuInit, &self);
	void *h = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	*p = dlsym(h, n);
	dlclose(h);
	if (st)
		*st = *p ? 0 : 1;
	return *p ? OK : 500;
}

API int cuCheckpointProcessLock(int p, void *a) { (void)p; (void)a; return 801; }
API int cuCheckpointProcessCheckpoint(int p, void *a) { (void)p; (void)a; return 801; }
API int cuCheckpointProcessRestore(int p, void *a) { (void)p; (void)a; return 801; }
API int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { (void)p; (void)n; (void)flags; return 0; }
API int cuMemHostUnregister(void *p) { (void)p; return 0; }
API int cuCheckpointProcessGetRestoreThreadId(int p, int *a) { (void)p; (void)a; return 801; }
API int cuCheckpointProcessUnlock(int p, void *a) { (void)p; (void)a; return 801; }

/* What the tests look at: fields as named. */
API long long fake_count(const char *what)
{
	return !strcmp(what, "handles") ? open_handles : !strcmp(what, "direct") ? direct_allocs : !strcmp(what, "maps") ?
		maps :
		!strcmp(what, "physical") ? physical : !strcmp(what, "waiting") ? waiting :
		!strcmp(what, "spoiled") ? spoiled : -1;
}
