/* Contexts, stream captures, modules; and the calls whose results cannot be held. */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t hf_ctx_lock = PTHREAD_MUTEX_INITIALIZER;

static struct hf_ctx *contexts;
static size_t ncontexts, context_room;

/* Primary contexts that have ended, by device: each keeps its handle, and may stay current. */
enum { DEVICES = 64 };
static void *ended[DEVICES];

struct capture { void *stream; uint32_t tid; };
static struct capture *captures;
static size_t ncaptures, capture_room;
static int open_captures;

struct module { uint64_t id, size; uint32_t kind; const char *call; };
static struct module *modules;
static size_t nmodules, module_room;

struct part { void *module, *library; }; /* modules of libraries */
static struct part *parts;
static size_t nparts, part_room;

/* Room for one more element of *list, or false. */
static bool grow(void *list, size_t n, size_t *room, size_t element)
{
	if (n < *room)
		return true;
	size_t want = *room ? 2 * *room : 16;
	void *p = realloc(*(void **)list, want * element);
	if (!p)
		return false;
	*(void **)list = p;
	*room = want;
	return true;
}

/* ---- contexts ---- */

static void ctx_add(void *ctx, int device, bool primary)
{
	bool added = false;
	pthread_mutex_lock(&hf_ctx_lock);
	size_t i = 0;
	while (i < ncontexts && contexts[i].ctx != ctx)
		i++;
	if (primary && device >= 0 && device < DEVICES && ended[device] == ctx)
		ended[device] = NULL;
	if (i < ncontexts) {
		contexts[i].primary |= primary;
	} else if (grow(&contexts, ncontexts, &context_room, sizeof *contexts)) {
		contexts[ncontexts++] = (struct hf_ctx){ ctx, device, primary };
		added = true;
	}
	pthread_mutex_unlock(&hf_ctx_lock);
	if (added)
		hf_queue_context(ctx, device, true);
}

static void ctx_remove(void *ctx)
{
	int device = -1;
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < ncontexts; i++)
		if (contexts[i].ctx == ctx) {
			device = contexts[i].device;
			contexts[i] = contexts[--ncontexts];
			break;
		}
	pthread_mutex_unlock(&hf_ctx_lock);
	if (device < 0)
		return;
	hf_queue_context(ctx, device, false);
	hf_code_forget_ctx(ctx);
	pthread_mutex_lock(&hf_mem_lock);
	hf_globals_forget_ctx(ctx);
	hf_forget_ctx(ctx);
	pthread_mutex_unlock(&hf_mem_lock);
}

CUresult hf_current(void **ctx, int *device)
{
	*ctx = NULL;
	CUresult r = real_cuCtxGetCurrent(ctx);
	if (r != CUDA_SUCCESS)
		return r;
	if (!*ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	bool known = false, gone = false;
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < ncontexts && !known; i++)
		if (contexts[i].ctx == *ctx) {
			*device = contexts[i].device;
			known = true;
		}
	for (int i = 0; i < DEVICES && !known; i++)
		gone |= ended[i] == *ctx;
	pthread_mutex_unlock(&hf_ctx_lock);
	if (known)
		return CUDA_SUCCESS;
	if (gone)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = real_cuCtxGetDevice(device);
	if (r == CUDA_SUCCESS)
		ctx_add(*ctx, *device, false);
	return r;
}

size_t hf_contexts(struct hf_ctx *out, size_t room)
{
	pthread_mutex_lock(&hf_ctx_lock);
	size_t n = ncontexts < room ? ncontexts : room;
	if (n)
		memcpy(out, contexts, n * sizeof *out);
	pthread_mutex_unlock(&hf_ctx_lock);
	return n;
}

bool hf_push(void *ctx) { return real_cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS; }

void hf_pop(void)
{
	void *ctx;
	real_cuCtxPopCurrent_v2(&ctx);
}

/*
 * Waiting for a context while a stream of it captures is an error, and spoils the capture. So a thread that is about to
 * capture announces it and lets waits under way end; a thread that is about to wait announces that, too, and looks for
 * captures.
 */
static int waiting_for_ctx, beginning;

static void wait_end(void) { __atomic_sub_fetch(&waiting_for_ctx, 1, __ATOMIC_SEQ_CST); }

/* False: something captures, and nobody may wait. */
static bool wait_begin(void)
{
	__atomic_add_fetch(&waiting_for_ctx, 1, __ATOMIC_SEQ_CST);
	if (!hf_captures())
		return true;
	wait_end();
	return false;
}

CUresult hf_sync_ctx(void *ctx)
{
	void *now = NULL;
	if (!wait_begin())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	CUresult r = CUDA_SUCCESS;
	if (ctx && real_cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == ctx)
		ctx = NULL;
	if (ctx)
		r = real_cuCtxPushCurrent_v2(ctx);
	if (r == CUDA_SUCCESS) {
		r = real_cuCtxSynchronize();
		if (ctx)
			hf_pop();
	}
	wait_end();
	return r;
}

/*
 * Waiting for all contexts happens on a thread of its own, because it cannot be bounded: a host function on a stream
 * may want a lock whose owner waits at the gate. Whoever finishes last frees the job.
 */
struct sync_job {
	int state; /* futex: 0 running, 1 done, 2 given up */
	CUresult result;
	void *what;
	size_t n;
	struct hf_ctx ctx[];
};

static void *sync_run(void *arg)
{
	struct sync_job *j = arg;
	hf_depth = 1; /* never waits at the gate */
	for (size_t i = 0; i < j->n && j->result == CUDA_SUCCESS; i++) {
		/* Once it was given up the program runs on, and may capture. */
		if (__atomic_load_n(&j->state, __ATOMIC_SEQ_CST) != 0 || !wait_begin()) {
			j->result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
			j->what = j->ctx[i].ctx;
			break;
		}
		CUresult r = real_cuCtxPushCurrent_v2(j->ctx[i].ctx);
		bool gone = r == CUDA_ERROR_CONTEXT_IS_DESTROYED || r == CUDA_ERROR_INVALID_CONTEXT;
		if (r == CUDA_SUCCESS) {
			r = real_cuCtxSynchronize();
			hf_pop();
		}
		wait_end();
		if (gone)
			continue;
		j->result = r;
		j->what = j->ctx[i].ctx;
	}
	int running = 0;
	if (__atomic_compare_exchange_n(&j->state, &running, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &j->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	else
		free(j);
	return NULL;
}

int hf_sync_all(uint64_t deadline, void **what, uint32_t *count)
{
	pthread_mutex_lock(&hf_ctx_lock);
	struct sync_job *j = calloc(1, sizeof *j + ncontexts * sizeof *contexts);
	if (j && ncontexts) {
		j->n = ncontexts;
		memcpy(j->ctx, contexts, ncontexts * sizeof *contexts);
	}
	pthread_mutex_unlock(&hf_ctx_lock);
	*what = NULL;
	if (!j)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*count = (uint32_t)j->n;
	if (j->n == 0) {
		free(j);
		return CUDA_SUCCESS;
	}
	void *first = j->ctx[0].ctx;
	pthread_attr_t attr;
	pthread_t t;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	int e = pthread_create(&t, &attr, sync_run, j); /* signals are blocked in the control thread, so in this one */
	pthread_attr_destroy(&attr);
	if (e) {
		free(j);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	while (__atomic_load_n(&j->state, __ATOMIC_ACQUIRE) == 0) {
		uint64_t now = hf_now();
		uint64_t left = now < deadline ? deadline - now : 0;
		struct timespec ts = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
		if (left == 0) {
			int running = 0;
			if (__atomic_compare_exchange_n(&j->state, &running, 2, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
				pthread_detach(t);
				*what = first;
				return HF_SYNC_TIMEOUT;
			}
			break;
		}
		syscall(SYS_futex, &j->state, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0);
	}
	pthread_join(t, NULL); /* gone before a checkpoint looks at the threads */
	CUresult r = j->result;
	*what = j->what;
	free(j);
	return r;
}

static CUresult created(CUresult r, void *pctx, int device)
{
	if (r == CUDA_SUCCESS && hf_watching())
		ctx_add(*(void **)pctx, device, false);
	return r;
}

CUresult hf_cuCtxCreate(void *pctx, unsigned int flags, int dev)
{
	return created(real_cuCtxCreate(pctx, flags, dev), pctx, dev);
}

CUresult hf_cuCtxCreate_v2(void *pctx, unsigned int flags, int dev)
{
	return created(real_cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult hf_cuCtxCreate_v3(void *pctx, void *params, int n, unsigned int flags, int dev)
{
	return created(real_cuCtxCreate_v3(pctx, params, n, flags, dev), pctx, dev);
}

CUresult hf_cuCtxCreate_v4(void *pctx, void *params, unsigned int flags, int dev)
{
	return created(real_cuCtxCreate_v4(pctx, params, flags, dev), pctx, dev);
}

CUresult hf_cuCtxDestroy_v2(void *ctx)
{
	CUresult r = real_cuCtxDestroy_v2(ctx);
	if (r == CUDA_SUCCESS)
		ctx_remove(ctx);
	return r;
}

CUresult hf_cuCtxDestroy(void *ctx)
{
	CUresult r = real_cuCtxDestroy(ctx);
	if (r == CUDA_SUCCESS)
		ctx_remove(ctx);
	return r;
}

CUresult hf_cuDevicePrimaryCtxRetain(void *pctx, int dev)
{
	CUresult r = real_cuDevicePrimaryCtxRetain(pctx, dev);
	if (r == CUDA_SUCCESS && hf_watching())
		ctx_add(*(void **)pctx, dev, true);
	return r;
}

/*
 * The driver says whether the primary context is still there: others than the hooked calls may hold it. A reset ends it
 * in any case.
 */
static CUresult primary_left(CUresult r, int dev, bool reset)
{
	unsigned flags = 0;
	int active = 1;
	if (r != CUDA_SUCCESS ||
	    (!reset && (real_cuDevicePrimaryCtxGetState(dev, &flags, &active) != CUDA_SUCCESS || active)))
		return r;
	void *gone = NULL;
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < ncontexts; i++)
		if (contexts[i].primary && contexts[i].device == dev)
			gone = contexts[i].ctx;
	if (gone && dev >= 0 && dev < DEVICES)
		ended[dev] = gone;
	pthread_mutex_unlock(&hf_ctx_lock);
	if (gone)
		ctx_remove(gone);
	return r;
}

CUresult hf_cuDevicePrimaryCtxRelease(int dev) { return primary_left(real_cuDevicePrimaryCtxRelease(dev), dev, false); }

CUresult hf_cuDevicePrimaryCtxRelease_v2(int dev)
{
	return primary_left(real_cuDevicePrimaryCtxRelease_v2(dev), dev, false);
}

CUresult hf_cuDevicePrimaryCtxReset(int dev) { return primary_left(real_cuDevicePrimaryCtxReset(dev), dev, true); }

CUresult hf_cuDevicePrimaryCtxReset_v2(int dev)
{
	return primary_left(real_cuDevicePrimaryCtxReset_v2(dev), dev, true);
}

/* For ordinary memory this call is enough to let a peer access it; our mappings each need cuMemSetAccess. */
CUresult hf_cuCtxEnablePeerAccess(void *peer, unsigned int flags)
{
	CUresult r = real_cuCtxEnablePeerAccess(peer, flags);
	void *ctx;
	int device, theirs = -1;
	if (r != CUDA_SUCCESS || !hf_attached || hf_current(&ctx, &device) != CUDA_SUCCESS || !hf_push(peer))
		return r;
	hf_current(&ctx, &theirs);
	hf_pop();
	if (theirs >= 0 && theirs < 64 && device >= 0 && device < 64 && theirs != device) {
		pthread_mutex_lock(&hf_mem_lock);
		hf_peers[theirs] |= 1ull << device;
		hf_access_again(theirs);
		pthread_mutex_unlock(&hf_mem_lock);
		hf_caveat(HF_CAVEAT_PEER, HF_CAVEAT_BLOCKS_FULL, 64, (uint64_t)device << 32 | (uint64_t)theirs,
			"cuCtxEnablePeerAccess: device %d may access memory of device %d", device, theirs);
	}
	return r;
}

CUresult hf_cuCtxDisablePeerAccess(void *peer)
{
	CUresult r = real_cuCtxDisablePeerAccess(peer);
	void *ctx;
	int device, theirs = -1;
	if (r != CUDA_SUCCESS || !hf_attached || hf_current(&ctx, &device) != CUDA_SUCCESS || !hf_push(peer))
		return r;
	hf_current(&ctx, &theirs);
	hf_pop();
	hf_caveat_gone(HF_CAVEAT_PEER, (uint64_t)device << 32 | (uint64_t)theirs);
	return r;
}

/* ---- captures ---- */

static uint32_t owner(void *stream) { return stream == CU_STREAM_PER_THREAD ? (uint32_t)syscall(SYS_gettid) : 0; }

static void capture_begin(void *stream)
{
	pthread_mutex_lock(&hf_ctx_lock);
	if (grow(&captures, ncaptures, &capture_room, sizeof *captures))
		captures[ncaptures++] = (struct capture){ stream, owner(stream) };
	__atomic_store_n(&open_captures, (int)ncaptures, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&hf_ctx_lock);
}

static void capture_end(void *stream)
{
	uint32_t tid = owner(stream);
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < ncaptures; i++)
		if (captures[i].stream == stream && captures[i].tid == tid) {
			captures[i] = captures[--ncaptures];
			break;
		}
	__atomic_store_n(&open_captures, (int)ncaptures, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&hf_ctx_lock);
}

/*
 * In this order: a capture that has begun between the two is among the open ones before it ceases
 * to be a beginning one.
 */
int hf_captures(void)
{
	int begin = __atomic_load_n(&beginning, __ATOMIC_SEQ_CST);
	return begin + __atomic_load_n(&open_captures, __ATOMIC_SEQ_CST);
}

int hf_relax(void)
{
	int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
	return real_cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : HF_NOT_RELAXED;
}

void hf_unrelax(int mode)
{
	if (mode != HF_NOT_RELAXED)
		real_cuThreadExchangeStreamCaptureMode(&mode);
}

bool hf_stream_captures(void *stream)
{
	int status = 0;
	return hf_captures() && stream != CU_STREAM_LEGACY &&
		real_cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != 0;
}

/* Work on the device may be waiting for this very thread, so after a moment it captures all the same. */
static void begins(void)
{
	const uint64_t moment = 5000000000;
	uint64_t start = hf_now();
	__atomic_add_fetch(&beginning, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&waiting_for_ctx, __ATOMIC_SEQ_CST) && hf_now() - start < moment)
		nanosleep(&(struct timespec){ 0, 50000 }, NULL);
}

static CUresult began(CUresult r, void *stream)
{
	if (r == CUDA_SUCCESS)
		capture_begin(stream);
	__atomic_sub_fetch(&beginning, 1, __ATOMIC_SEQ_CST);
	return r;
}

CUresult hf_cuStreamBeginCapture(void *s)
{
	begins();
	return began(real_cuStreamBeginCapture(s), s);
}

CUresult hf_cuStreamBeginCapture_v2(void *s, int mode)
{
	begins();
	return began(real_cuStreamBeginCapture_v2(s, mode), s);
}

CUresult hf_cuStreamBeginCaptureToGraph(void *s, void *graph, void *deps, void *data, size_t n, int mode)
{
	begins();
	return began(real_cuStreamBeginCaptureToGraph(s, graph, deps, data, n, mode), s);
}

CUresult hf_cuStreamEndCapture(void *s, void *graph)
{
	CUresult r = real_cuStreamEndCapture(s, graph);
	int status = 0;
	/* An invalidated capture ends with an error; one that another thread must end goes on. */
	if (r == CUDA_SUCCESS || (real_cuStreamIsCapturing(s, &status) == CUDA_SUCCESS && status == 0))
		capture_end(s);
	return r;
}

CUresult hf_cuStreamDestroy_v2(void *s)
{
	CUresult r = real_cuStreamDestroy_v2(s);
	if (r == CUDA_SUCCESS && hf_captures())
		capture_end(s);
	return r;
}

/* ---- modules ---- */

static uint32_t u32_at(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t u64_at(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/*
 * Whether kernels of the module may have variables to write to. A fat binary may be compressed:
 * what is in it is not looked at.
 */
static bool may_have_variables(const void *image, uint32_t kind)
{
	const char *p = image;
	if (kind == HF_MODULE_PTX) { /* a declaration, not an instruction as in ld.global */
		for (const char *at = p; (at = strstr(at, ".global")); at += 7)
			if ((at == p || strchr(" \t\r\n;", at[-1])) && strchr(" \t\r\n", at[7]))
				return true;
		return false;
	}
	if (kind != HF_MODULE_CUBIN)
		return true;
	const unsigned char *e = image;
	const unsigned char *headers = e + u64_at(e + 40);
	size_t step = u32_at(e + 58) & 0xffff, n = u32_at(e + 60) & 0xffff, strings = u32_at(e + 60) >> 16;
	if (step < 64 || strings >= n)
		return true;
	const char *names = (const char *)e + u64_at(headers + strings * step + 24);
	for (size_t i = 0; i < n; i++)
		if (!strncmp(names + u32_at(headers + i * step), ".nv.global", 10))
			return true;
	return false;
}

static CUresult loaded(CUresult r, void *pmod, const void *image, const char *file, const char *call)
{
	if (r != CUDA_SUCCESS || !hf_watching())
		return r;
	struct module m = { (uint64_t)(uintptr_t)*(void **)pmod, 0, HF_MODULE_UNKNOWN, call };
	void *ctx;
	int device;
	hf_current(&ctx, &device); /* learns of contexts that came about by calls we do not see */
	/* cuLibrary… belongs to no context */
	hf_code_loaded(*(void **)pmod, call[2] == 'L' ? NULL : ctx, image, file, call);
	m.kind = hf_image_kind(&image, &m.size);
	pthread_mutex_lock(&hf_ctx_lock);
	if (grow(&modules, nmodules, &module_room, sizeof *modules))
		modules[nmodules++] = m;
	pthread_mutex_unlock(&hf_ctx_lock);
	hf_queue_module(m.id, m.kind, true, m.size, call);
	if (may_have_variables(image, m.kind)) /* one note for all modules */
		hf_caveat(HF_CAVEAT_GLOBALS, 0, 0, 0,
			"%s: rollback leaves variables of modules as they are that the program never asks for", call);
	return r;
}

static CUresult unloaded(CUresult r, void *mod, const char *call)
{
	if (r != CUDA_SUCCESS || !hf_watching())
		return r;
	uint64_t id = (uint64_t)(uintptr_t)mod;
	bool known = false;
	hf_code_unloaded(mod);
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < nmodules && !known; i++)
		if (modules[i].id == id) {
			modules[i] = modules[--nmodules];
			known = true;
		}
	for (size_t i = nparts; i-- > 0;)
		if (parts[i].library == mod)
			parts[i] = parts[--nparts];
	pthread_mutex_unlock(&hf_ctx_lock);
	pthread_mutex_lock(&hf_mem_lock);
	hf_globals_forget(mod);
	pthread_mutex_unlock(&hf_mem_lock);
	if (known)
		hf_queue_module(id, HF_MODULE_UNKNOWN, false, 0, call);
	return r;
}

void hf_modules_tell(void)
{
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < ncontexts; i++)
		hf_queue_context(contexts[i].ctx, contexts[i].device, true);
	for (size_t i = 0; i < nmodules; i++)
		hf_queue_module(modules[i].id, modules[i].kind, true, modules[i].size, modules[i].call);
	pthread_mutex_unlock(&hf_ctx_lock);
}

CUresult hf_cuModuleLoad(void *mod, void *file)
{
	return loaded(real_cuModuleLoad(mod, file), mod, NULL, file, "cuModuleLoad");
}

CUresult hf_cuModuleLoadData(void *mod, void *image)
{
	return loaded(real_cuModuleLoadData(mod, image), mod, image, NULL, "cuModuleLoadData");
}

CUresult hf_cuModuleLoadFatBinary(void *mod, void *image)
{
	return loaded(real_cuModuleLoadFatBinary(mod, image), mod, image, NULL, "cuModuleLoadFatBinary");
}

CUresult hf_cuModuleLoadDataEx(void *mod, void *image, unsigned int n, void *options, void *values)
{
	return loaded(real_cuModuleLoadDataEx(mod, image, n, options, values), mod, image, NULL, "cuModuleLoadDataEx");
}

CUresult hf_cuModuleUnload(void *mod) { return unloaded(real_cuModuleUnload(mod), mod, "cuModuleUnload"); }

CUresult hf_cuLibraryLoadData(void *lib, void *code, void *jo, void *jv, unsigned int nj, void *lo, void *lv,
	unsigned int nl)
{
	return loaded(real_cuLibraryLoadData(lib, code, jo, jv, nj, lo, lv, nl), lib, code, NULL, "cuLibraryLoadData");
}

CUresult hf_cuLibraryLoadFromFile(void *lib, void *file, void *jo, void *jv, unsigned int nj, void *lo, void *lv,
	unsigned int nl)
{
	return loaded(real_cuLibraryLoadFromFile(lib, file, jo, jv, nj, lo, lv, nl), lib, NULL, file,
		"cuLibraryLoadFromFile");
}

CUresult hf_cuLibraryUnload(void *lib) { return unloaded(real_cuLibraryUnload(lib), lib, "cuLibraryUnload"); }

CUresult hf_cuLibraryGetModule(void *mod, void *lib)
{
	CUresult r = real_cuLibraryGetModule(mod, lib);
	if (r != CUDA_SUCCESS || !hf_watching())
		return r;
	struct part p = { *(void **)mod, lib };
	bool known = false;
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < nparts && !known; i++)
		known = parts[i].module == p.module && parts[i].library == p.library;
	if (!known && grow(&parts, nparts, &part_room, sizeof *parts))
		parts[nparts++] = p;
	pthread_mutex_unlock(&hf_ctx_lock);
	return r;
}

/* What has to be unloaded for the module to go: itself, or its library; NULL: we do not know. */
void *hf_owner_of(void *mod)
{
	void *owner = NULL;
	pthread_mutex_lock(&hf_ctx_lock);
	for (size_t i = 0; i < nmodules && !owner; i++)
		if (modules[i].id == (uint64_t)(uintptr_t)mod)
			owner = mod;
	for (size_t i = 0; i < nparts && !owner; i++)
		if (parts[i].module == mod)
			owner = parts[i].library;
	pthread_mutex_unlock(&hf_ctx_lock);
	return owner;
}

CUresult hf_cuModuleGetGlobal_v2(void *dptr, void *bytes, void *mod, void *name)
{
	CUdeviceptr p; /* the program may want only one of them */
	size_t n;
	CUresult r = real_cuModuleGetGlobal_v2(dptr ? dptr : &p, bytes ? bytes : &n, mod, name);
	if (r == CUDA_SUCCESS)
		hf_global("cuModuleGetGlobal", 88, hf_owner_of(mod), name, dptr ? *(CUdeviceptr *)dptr : p,
			bytes ? *(size_t *)bytes : n);
	return r;
}

CUresult hf_cuLibraryGetGlobal(void *dptr, void *bytes, void *lib, void *name)
{
	CUdeviceptr p;
	size_t n;
	CUresult r = real_cuLibraryGetGlobal(dptr ? dptr : &p, bytes ? bytes : &n, lib, name);
	if (r == CUDA_SUCCESS)
		hf_global("cuLibraryGetGlobal", 105, lib, name, dptr ? *(CUdeviceptr *)dptr : p, bytes ? *(size_t *)bytes : n);
	return r;
}

/* ---- what cannot be held ---- */

#define BOTH (HF_CAVEAT_BLOCKS_FULL | HF_CAVEAT_BLOCKS_GPU_ONLY)

CUresult hf_cuLibraryGetManaged(void *dptr, void *bytes, void *lib, void *name)
{
	CUresult r = real_cuLibraryGetManaged(dptr, bytes, lib, name);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_MANAGED, BOTH, 106, (uint64_t)(uintptr_t)lib,
			"cuLibraryGetManaged: variable %.100s is managed memory", (char *)name);
	return r;
}

CUresult hf_cuMemAllocManaged(void *dptr, size_t bytes, unsigned int flags)
{
	CUresult r = real_cuMemAllocManaged(dptr, bytes, flags);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_MANAGED, BOTH, 124, *(CUdeviceptr *)dptr,
			"cuMemAllocManaged: %zu bytes at 0x%llx are managed memory", bytes, *(CUdeviceptr *)dptr);
	return r;
}

CUresult hf_cuIpcGetMemHandle(void *handle, CUdeviceptr p)
{
	hf_caveat(HF_CAVEAT_IPC, BOTH, 133, p,
		"cuIpcGetMemHandle: memory at 0x%llx is wanted by another process; held memory cannot be shared this way", p);
	return real_cuIpcGetMemHandle(handle, p);
}

CUresult hf_cuIpcOpenMemHandle_v2(void *dptr, CUipcMemHandle handle, unsigned int flags)
{
	CUresult r = real_cuIpcOpenMemHandle_v2(dptr, handle, flags);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_IPC, BOTH, 134, *(CUdeviceptr *)dptr,
			"cuIpcOpenMemHandle: memory at 0x%llx belongs to another process", *(CUdeviceptr *)dptr);
	return r;
}

CUresult hf_cuIpcGetEventHandle(void *handle, void *event)
{
	CUresult r = real_cuIpcGetEventHandle(handle, event);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_IPC, HF_CAVEAT_BLOCKS_FULL, 131, (uint64_t)(uintptr_t)event,
			"cuIpcGetEventHandle: an event is shared with another process");
	return r;
}

CUresult hf_cuIpcOpenEventHandle(void *event, CUipcEventHandle handle)
{
	CUresult r = real_cuIpcOpenEventHandle(event, handle);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_IPC, HF_CAVEAT_BLOCKS_FULL, 132, *(uint64_t *)event,
			"cuIpcOpenEventHandle: an event belongs to another process");
	return r;
}

CUresult hf_cuImportExternalMemory(void *mem, void *desc)
{
	CUresult r = real_cuImportExternalMemory(mem, desc);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_EXTERNAL, BOTH, 267, *(uint64_t *)mem, "cuImportExternalMemory: memory of another API");
	return r;
}

CUresult hf_cuImportExternalSemaphore(void *sem, void *desc)
{
	CUresult r = real_cuImportExternalSemaphore(sem, desc);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_EXTERNAL, HF_CAVEAT_BLOCKS_FULL, 271, *(uint64_t *)sem,
			"cuImportExternalSemaphore: a semaphore of another API");
	return r;
}

struct sharing { uintptr_t start, end; bool found; char path[400]; }; /* "": no file */

static bool shares(const struct hf_mapping *m, void *arg)
{
	struct sharing *s = arg;
	if (!m->shared || m->start >= s->end || m->end <= s->start)
		return false;
	snprintf(s->path, sizeof s->path, "%s", *m->path == '/' ? m->path : "");
	return s->found = true;
}

/* Whether a part of the memory is shared with whoever maps the same file. */
static struct sharing sharing_of(uintptr_t p, size_t bytes)
{
	struct sharing s = { .start = p, .end = p + bytes };
	hf_fd_lock();
	hf_mappings(shares, &s);
	hf_fd_unlock();
	return s;
}

CUresult hf_cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUresult r = real_cuMemHostRegister_v2(p, bytes, flags);
	if (r != CUDA_SUCCESS || !hf_attached)
		return r;
	if (flags & 4) { /* CU_MEMHOSTREGISTER_IOMEMORY */
		hf_caveat(HF_CAVEAT_HOST_MEMORY, HF_CAVEAT_BLOCKS_FULL, 125, (uint64_t)(uintptr_t)p,
			"cuMemHostRegister: %zu bytes of device (I/O) memory at %p", bytes, p);
		return r;
	}
	struct sharing s = sharing_of((uintptr_t)p, bytes);
	if (s.found)
		hf_caveat(HF_CAVEAT_HOST_MEMORY, HF_CAVEAT_BLOCKS_FULL, 125, (uint64_t)(uintptr_t)p,
			"cuMemHostRegister: %zu bytes at %p are shared with other processes (%s), "
			"which the driver saves and cannot restore",
			bytes, p, *s.path ? s.path : "anonymous");
	return r;
}

CUresult hf_cuMemHostUnregister(void *p)
{
	CUresult r = real_cuMemHostUnregister(p);
	if (r == CUDA_SUCCESS)
		hf_caveat_gone(HF_CAVEAT_HOST_MEMORY, (uint64_t)(uintptr_t)p);
	return r;
}

CUresult hf_cuMemPoolExportToShareableHandle(void *handle, void *pool, int type, unsigned long long flags)
{
	CUresult r = real_cuMemPoolExportToShareableHandle(handle, pool, type, flags);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_IPC, BOTH, 212, (uint64_t)(uintptr_t)pool,
			"cuMemPoolExportToShareableHandle: a memory pool is shared with another process");
	return r;
}

CUresult 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(void *pool, void *handle, int type, unsigned long long flags)
{
	CUresult r = real_cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_IPC, BOTH, 213, *(uint64_t *)pool,
			"cuMemPoolImportFromShareableHandle: a memory pool belongs to another process");
	return r;
}

CUresult hf_cuArrayCreate_v2(void *array, void *desc)
{
	CUresult r = real_cuArrayCreate_v2(array, desc);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_ARRAY, HF_CAVEAT_BLOCKS_GPU_ONLY, 175, 0, "cuArrayCreate: arrays stay with the driver");
	return r;
}

CUresult hf_cuArray3DCreate_v2(void *array, void *desc)
{
	CUresult r = real_cuArray3DCreate_v2(array, desc);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_ARRAY, HF_CAVEAT_BLOCKS_GPU_ONLY, 183, 0, "cuArray3DCreate: arrays stay with the driver");
	return r;
}

CUresult hf_cuMipmappedArrayCreate(void *array, void *desc, unsigned int levels)
{
	CUresult r = real_cuMipmappedArrayCreate(array, desc, levels);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_ARRAY, HF_CAVEAT_BLOCKS_GPU_ONLY, 185, 0,
			"cuMipmappedArrayCreate: arrays stay with the driver");
	return r;
}

CUresult hf_cuGraphicsMapResources(unsigned int n, void *resources, void *stream)
{
	CUresult r = real_cuGraphicsMapResources(n, resources, stream);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_GRAPHICS, BOTH, 433, 0, "cuGraphicsMapResources: memory shared with a graphics API");
	return r;
}

CUresult hf_cuGreenCtxCreate(void *ctx, void *desc, int dev, unsigned int flags)
{
	CUresult r = real_cuGreenCtxCreate(ctx, desc, dev, flags);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_GREEN, HF_CAVEAT_BLOCKS_FULL, 66, 0,
			"cuGreenCtxCreate: green contexts cannot be checkpointed");
	return r;
}

CUresult hf_cuGraphAddMemAllocNode(void *node, void *graph, void *deps, size_t n, void *params)
{
	CUresult r = real_cuGraphAddMemAllocNode(node, graph, deps, n, params);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_GRAPH_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 332, 0,
			"cuGraphAddMemAllocNode: memory of graphs stays with the driver");
	return r;
}

void hf_ctx_fork_child(void)
{
	pthread_mutex_init(&hf_ctx_lock, NULL);
	ncontexts = ncaptures = nmodules = nparts = 0;
	open_captures = waiting_for_ctx = beginning = 0;
}
