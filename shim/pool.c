/*
 * Stream-ordered memory. Pools of the program exist in the driver, but hold nothing there: allocations are blocks like
 * any other. What is freed waits for an event on its stream; then it is reusable, or at once by the same stream.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct pool {
	void *pool;
	int device;
	bool driver; /* shareable or of host memory: the driver's own */
	bool dead;   /* destroyed; its allocations live on */
	uint64_t threshold, used, used_high, reserved, reserved_high;
};
static struct pool pools[256];
static size_t npools;
static void *current_pool[64]; /* of each device, once asked */

struct pending {
	struct pending *next;
	CUdeviceptr p;
	uint64_t size;
	void *stream, *event, *ctx, *pool;
	uint32_t tid; /* of per-thread streams */
};
static struct pending *oldest, **newest = &oldest;
struct event { struct event *next; void *event, *ctx; };
static struct event *events; /* for reuse */

static struct pool *find_pool(void *pool)
{
	for (size_t i = 0; i < npools; i++)
		if (pools[i].pool == pool && !pools[i].dead)
			return &pools[i];
	return NULL;
}

static struct pool *add_pool(void *pool, int device, bool driver)
{
	struct pool *p = NULL;
	for (size_t i = 0; i < npools && !p; i++)
		if (pools[i].dead && pools[i].reserved == 0)
			p = &pools[i];
	if (!p && npools < sizeof pools / sizeof *pools)
		p = &pools[npools++];
	if (p)
		*p = (struct pool){ .pool = pool, .device = device, .driver = driver };
	return p;
}

void hf_pool_account(void *pool, int64_t used, int64_t reserved)
{
	if (!pool)
		return;
	for (size_t i = 0; i < npools; i++) {
		struct pool *p = &pools[i];
		if (p->pool != pool)
			continue;
		p->used += (uint64_t)used;
		p->reserved += (uint64_t)reserved;
		if (p->used > p->used_high)
			p->used_high = p->used;
		if (p->reserved > p->reserved_high)
			p->reserved_high = p->reserved;
		return;
	}
}

static uint32_t owner(void *stream) { return stream == CU_STREAM_PER_THREAD ? (uint32_t)syscall(SYS_gettid) : 0; }

static void event_put(void *event, void *ctx)
{
	struct event *e = malloc(sizeof *e);
	if (!e) {
		real_cuEventDestroy_v2(event);
		return;
	}
	*e = (struct event){ events, event, ctx };
	events = e;
}

/* A reusable event of the current context, which is ctx. */
static void *event_get(void *ctx)
{
	for (struct event **l = &events; *l; l = &(*l)->next)
		if ((*l)->ctx == ctx) {
			struct event *e = *l;
			void *event = e->event;
			*l = e->next;
			free(e);
			return event;
		}
	void *event = NULL;
	return real_cuEventCreate(&event, 2) == CUDA_SUCCESS ? event : NULL; /* CU_EVENT_DISABLE_TIMING */
}

CUresult hf_ctx_error(void *ctx)
{
	if (hf_captures())
		return CUDA_SUCCESS; /* a capture is worth more than an early error */
	void *event = event_get(ctx);
	int mode = hf_relax();
	CUresult r = event ? real_cuEventQuery(event) : CUDA_SUCCESS;
	hf_unrelax(mode);
	if (event)
		event_put(event, ctx);
	return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

/* The memory is nobody's any more: large blocks of pools are kept for reuse, the rest goes back. */
static void settle(CUdeviceptr p)
{
	struct hf_found f;
	if (!hf_find(p, &f) || f.base != p)
		return;
	struct pool *pool = f.b->pool ? find_pool(f.b->pool) : NULL;
	if (!pool || f.b->slab) {
		hf_give(p);
		return;
	}
	hf_page.allocs--;
	hf_pool_account(f.b->pool, -(int64_t)f.size, 0);
	f.b->idle = true;
}

static void unlink_pending(struct pending **l)
{
	struct pending *e = *l;
	*l = e->next;
	if (newest == &e->next)
		newest = l;
	free(e);
}

static void trim(struct pool *pool, uint64_t keep)
{
	for (struct hf_block *b = hf_blocks, *next; b && pool->reserved > keep; b = next) {
		next = b->next;
		if (b->pool == pool->pool && (b->idle || (b->slab && b->slab->free == HF_UNITS)))
			hf_block_drop(b);
	}
}

void hf_pool_sweep(bool release)
{
	if (hf_captures())
		return;
	int busy = 0, mode = oldest ? hf_relax() : HF_NOT_RELAXED;
	for (struct pending **l = &oldest; *l && (release || busy < 4);) {
		struct pending *e = *l;
		if (real_cuEventQuery(e->event) == CUDA_ERROR_NOT_READY) {
			busy++;
			l = &e->next;
			continue;
		}
		event_put(e->event, e->ctx);
		settle(e->p);
		unlink_pending(l);
	}
	hf_unrelax(mode);
	for (size_t i = 0; i < npools; i++)
		if (release)
			trim(&pools[i], 0);
}

static bool fits(uint64_t have, uint64_t want) { return have >= want && have - want <= want / 4 + HF_GRANULE; }

bool hf_pool_take(CUdeviceptr *p, uint64_t bytes, int device, void *pool)
{
	struct hf_block *best = NULL;
	if (bytes < HF_SMALL)
		return false;
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		if (b->idle && b->pool == pool && b->device == device && fits(b->size, bytes) &&
		    (!best || b->size < best->size))
			best = b;
	if (!best)
		return false;
	best->idle = false;
	best->asked = bytes;
	*p = best->va;
	return true;
}

/* Memory freed on the same stream, done or not: the stream's order is enough. */
static bool take_pending(CUdeviceptr *p, uint64_t bytes, void *pool, void *stream)
{
	uint32_t tid = owner(stream);
	int looked = 0;
	for (struct pending **l = &oldest; *l && looked++ < 256; l = &(*l)->next) {
		struct pending *e = *l;
		struct hf_found f;
		if (e->stream != stream || e->tid != tid || e->pool != pool || !hf_find(e->p, &f) || f.base != e->p)
			continue;
		if (f.b->slab ? (f.size + HF_UNIT - 1) / HF_UNIT != (bytes + HF_UNIT - 1) / HF_UNIT : !fits(f.b->size, bytes))
			continue;
		hf_pool_account(pool, (int64_t)bytes - (int64_t)f.size, 0);
		if (f.b->slab)
			f.b->slab->size[(e->p - f.b->va) / HF_UNIT] = (uint32_t)bytes;
		else
			f.b->asked = bytes;
		*p = e->p;
		event_put(e->event, e->ctx);
		unlink_pending(l);
		return true;
	}
	return false;
}

bool hf_pool_pending(CUdeviceptr p)
{
	for (struct pending *e = oldest; e; e = e->next)
		if (e->p == p)
			return true;
	return false;
}

void hf_pool_forget_ctx(void *ctx)
{
	for (struct event **l = &events; *l;) {
		struct event *e = *l;
		if (e->ctx != ctx) {
			l = &e->next;
			continue;
		}
		*l = e->next; /* the event went with its context */
		free(e);
	}
	for (struct pending **l = &oldest; *l;) {
		if ((*l)->ctx != ctx) {
			l = &(*l)->next;
			continue;
		}
		settle((*l)->p);
		unlink_pending(l);
	}
}

void hf_pool_fork_child(void)
{
	npools = 0;
	oldest = NULL;
	newest = &oldest;
	events = NULL;
	memset(current_pool, 0, sizeof current_pool);
}

/* The context and device of a stream. */
static CUresult stream_ctx(void *stream, void **ctx, int *device)
{
	if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
		CUresult r = real_cuStreamGetCtx(stream, ctx);
		if (r != CUDA_SUCCESS)
			return r;
		void *now = NULL;
		if (real_cuCtxGetCurrent(&now) != CUDA_SUCCESS || now != *ctx) {
			if (!hf_push(*ctx))
				return CUDA_ERROR_INVALID_CONTEXT;
			r = hf_current(ctx, device);
			hf_pop();
			return r;
		}
	}
	return hf_current(ctx, device);
}

static CUresult alloc(CUdeviceptr *out, size_t bytes, void *pool, int device, void *stream)
{
	bool capturing = hf_stream_captures(stream);
	CUdeviceptr p = 0;
	bool got = false;
	if (!capturing) {
		pthread_mutex_lock(&hf_mem_lock);
		got = take_pending(&p, bytes, pool, stream);
		if (!got)
			hf_pool_sweep(false);
		pthread_mutex_unlock(&hf_mem_lock);
	}
	CUresult r = got ? CUDA_SUCCESS : hf_take_wait(&p, bytes, device, NULL, pool, capturing);
	if (r == CUDA_SUCCESS)
		*out = p;
	return r;
}

CUresult hf_cuMemAllocAsync(void *dptr, size_t bytes, void *stream)
{
	void *ctx;
	int device = -1;
	if (!hf_attached || !dptr || !bytes || stream_ctx(stream, &ctx, &device) != CUDA_SUCCESS || device < 0 ||
	    device >= 64)
		return real_cuMemAllocAsync(dptr, bytes, stream);
	pthread_mutex_lock(&hf_mem_lock);
	void *pool = current_pool[device];
	if (!pool && real_cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS)
		current_pool[device] = pool;
	struct pool *rec = pool ? find_pool(pool) : NULL;
	if (pool && !rec)
		rec = add_pool(pool, device, false);
	bool driver = !rec || rec->driver;
	pthread_mutex_unlock(&hf_mem_lock);
	CUresult r = driver ? CUDA_ERROR_NOT_SUPPORTED : alloc(dptr, bytes, pool, device, stream);
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	r = real_cuMemAllocAsync(dptr, bytes, stream);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 202, *(CUdeviceptr *)dptr,
			"cuMemAllocAsync: %zu bytes at 0x%llx stay with the driver", bytes, *(CUdeviceptr *)dptr);
	return r;
}

CUresult hf_cuMemAllocFromPoolAsync(void *dptr, size_t bytes, void *pool, void *stream)
{
	bool ours = false;
	int device = -1;
	if (hf_attached && dptr && bytes) {
		pthread_mutex_lock(&hf_mem_lock);
		struct pool *rec = find_pool(pool);
		if (!rec) { /* a default pool, which nobody created */
			int n = 0;
			void *d;
			real_cuDeviceGetCount(&n);
			for (int i = 0; i < n && i < 64 && !rec; i++)
				if (real_cuDeviceGetDefaultMemPool(&d, i) == CUDA_SUCCESS && d == pool)
					rec = add_pool(pool, i, false);
		}
		ours = rec && !rec->driver;
		if (rec)
			device = rec->device;
		pthread_mutex_unlock(&hf_mem_lock);
	}
	CUresult r = ours ? alloc(dptr, bytes, pool, device, stream) : CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	r = real_cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
	if (r == CUDA_SUCCESS && hf_attached)
		hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 204, *(CUdeviceptr *)dptr,
			"cuMemAllocFromPoolAsync: %zu bytes at 0x%llx stay with the driver", bytes, *(CUdeviceptr *)dptr);
	return r;
}

CUresult hf_cuMemFreeAsync(CUdeviceptr p, void *stream)
{
	struct hf_found f;
	pthread_mutex_lock(&hf_mem_lock);
	bool ours = hf_find(p, &f) && f.base == p;
	bool twice = ours && hf_pool_pending(p);
	pthread_mutex_unlock(&hf_mem_lock);
	if (!ours) {
		CUresult r = real_cuMemFreeAsync(p, stream);
		if (r == CUDA_SUCCESS)
			hf_caveat_gone(HF_CAVEAT_DRIVER_MEMORY, p);
		return r;
	}
	if (twice)
		return CUDA_ERROR_INVALID_VALUE;
	/* A graph may use it again: it lives as long as the process. */
	if (f.keep || hf_stream_captures(stream)) {
		hf_note_kept(p, f.size);
		return CUDA_SUCCESS;
	}
	void *ctx = NULL, *now = NULL;
	int device;
	CUresult r = stream_ctx(stream, &ctx, &device);
	if (r != CUDA_SUCCESS)
		return r;
	real_cuCtxGetCurrent(&now);
	bool pushed = now != ctx && hf_push(ctx);
	struct pending *e = malloc(sizeof *e);
	pthread_mutex_lock(&hf_mem_lock);
	void *event = e ? event_get(ctx) : NULL;
	r = event ? real_cuEventRecord(event, stream) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		*e = (struct pending){ NULL, p, f.size, stream, event, ctx, f.b->pool, owner(stream) };
		*newest = e;
		newest = &e->next;
	} else {
		if (event)
			event_put(event, ctx);
		free(e);
	}
	pthread_mutex_unlock(&hf_mem_lock);
	if (pushed)
		hf_pop();
	return r;
}

CUresult hf_cuMemPoolCreate(void *pool, void *props)
{
	CUmemPoolProps *p = props;
	CUresult r = real_cuMemPoolCreate(pool, props);
	if (r == CUDA_SUCCESS && hf_attached) {
		pthread_mutex_lock(&hf_mem_lock);
		add_pool(*(void **)pool, p->location.id, p->allocType != 1 || p->location.type != 1 || p->handleTypes != 0);
		pthread_mutex_unlock(&hf_mem_lock);
	}
	return r;
}

CUresult hf_cuMemPoolDestroy(void *pool)
{
	CUresult r = real_cuMemPoolDestroy(pool);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&hf_mem_lock);
	struct pool *p = find_pool(pool);
	if (p) {
		hf_pool_sweep(false);
		trim(p, 0);
		p->dead = true;
	}
	for (int i = 0; i < 64; i++)
		if (current_pool[i] == pool)
			current_pool[i] = NULL; /* the device is back at its default pool */
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

CUresult hf_cuDeviceSetMemPool(int device, void *pool)
{
	CUresult r = real_cuDeviceSetMemPool(device, pool);
	if (r == CUDA_SUCCESS && device >= 0 && device < 64) {
		pthread_mutex_lock(&hf_mem_lock);
		current_pool[device] = pool;
		pthread_mutex_unlock(&hf_mem_lock);
	}
	return r;
}

CUresult hf_cuMemPoolTrimTo(void *pool, size_t keep)
{
	CUresult r = real_cuMemPoolTrimTo(pool, keep);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&hf_mem_lock);
	struct pool *p = find_pool(pool);
	if (p) {
		hf_pool_sweep(false);
		trim(p, keep);
	}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

enum { ATTR_THRESHOLD = 4, ATTR_RESERVED, ATTR_RESERVED_HIGH, ATTR_USED, ATTR_USED_HIGH };

CUresult hf_cuMemPoolSetAttribute(void *pool, int attr, void *value)
{
	CUresult r = real_cuMemPoolSetAttribute(pool, attr, value);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&hf_mem_lock);
	struct pool *p = find_pool(pool);
	if (!p) {
		void *d;
		for (int i = 0; i < 64 && !p; i++)
			if (real_cuDeviceGetDefaultMemPool(&d, i) != CUDA_SUCCESS)
				break;
			else if (d == pool)
				p = add_pool(pool, i, false);
	}
	if (p && attr == ATTR_THRESHOLD)
		p->threshold = *(uint64_t *)value;
	else if (p && attr == ATTR_RESERVED_HIGH)
		p->reserved_high = p->reserved;
	else if (p && attr == ATTR_USED_HIGH)
		p->used_high = p->used;
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

CUresult hf_cuMemPoolGetAttribute(void *pool, int attr, void *value)
{
	CUresult r = real_cuMemPoolGetAttribute(pool, attr, value);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&hf_mem_lock);
	struct pool *p = find_pool(pool);
	if (p && !p->driver) {
		if (attr >= ATTR_RESERVED)
			hf_pool_sweep(false);
		uint64_t *v = value;
		switch (attr) {
		case ATTR_RESERVED: *v = p->reserved; break;
		case ATTR_RESERVED_HIGH: *v = p->reserved_high; break;
		case ATTR_USED: *v = p->used; break;
		case ATTR_USED_HIGH: *v = p->used_high; break;
		}
	}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

CUresult hf_cuMemPoolSetAccess(void *pool, void *map, size_t n)
{
	CUresult r = real_cuMemPoolSetAccess(pool, map, n);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&hf_mem_lock);
	struct pool *p = find_pool(pool);
	const CUmemAccessDesc *d = map;
	for (size_t i = 0; p && i < n; i++)
		if (d[i].location.type == 1 && d[i].flags && d[i].location.id >= 0 && d[i].location.id < 64 && p->device < 64 &&
		    d[i].location.id != p->device) {
			hf_peers[p->device] |= 1ull << d[i].location.id;
			hf_access_again(p->device);
		}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

/*
 * Before free memory is asked for: blocks beyond the release threshold go back, as the driver's
 * would have at the last sync.
 */
void hf_pool_release_threshold(void)
{
	hf_pool_sweep(false);
	for (size_t i = 0; i < npools; i++)
		trim(&pools[i], pools[i].threshold);
}
