/*
 * Device memory of the program. A block is physical memory made by cuMemCreate with an exportable handle, mapped at an
 * address of its own; allocations of less than 1 MiB share blocks of 2 MiB (slabs).
 */
#include "shim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t hf_mem_lock = PTHREAD_MUTEX_INITIALIZER;
struct hf_block *hf_blocks;
uint64_t hf_peers[64];

static struct hf_block **index_; /* blocks with an own mapping, by address */
static size_t indexed, index_room;
static struct hf_block **numbers; /* all blocks, by id */
static size_t numbered, number_room;
static struct hf_slab *slabs;
static uint64_t last_id;
static CUdeviceptr *later; /* cuMemFree while a capture was open */
static size_t nlater, later_room;

/* The first position whose block begins after p. */
static size_t after(CUdeviceptr p)
{
	size_t lo = 0, hi = indexed;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (index_[mid]->va <= p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct hf_block *hf_block_at(CUdeviceptr p)
{
	size_t i = after(p);
	if (i == 0)
		return NULL;
	struct hf_block *b = index_[i - 1];
	return p - b->va < b->size ? b : NULL;
}

static bool index_add(struct hf_block *b)
{
	if (indexed == index_room) {
		size_t room = index_room ? 2 * index_room : 256;
		struct hf_block **p = realloc(index_, room * sizeof *p);
		if (!p)
			return false;
		index_ = p;
		index_room = room;
	}
	size_t i = after(b->va);
	memmove(index_ + i + 1, index_ + i, (indexed - i) * sizeof *index_);
	index_[i] = b;
	indexed++;
	return true;
}

static void index_remove(struct hf_block *b)
{
	size_t i = after(b->va);
	if (i == 0 || index_[i - 1] != b)
		return;
	memmove(index_ + i - 1, index_ + i, (indexed - i) * sizeof *index_);
	indexed--;
}

/* The position of id, or of the first one beyond it. */
static size_t number(uint64_t id)
{
	size_t lo = 0, hi = numbered;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (numbers[mid]->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct hf_block *hf_block_by_id(uint64_t id)
{
	size_t i = number(id);
	return i < numbered && numbers[i]->id == id ? numbers[i] : NULL;
}

struct hf_block *hf_block_add(void)
{
	struct hf_block *b = calloc(1, sizeof *b);
	if (b && numbered == number_room) {
		size_t room = number_room ? 2 * number_room : 256;
		struct hf_block **p = realloc(numbers, room * sizeof *p);
		if (p) {
			numbers = p;
			number_room = room;
		}
	}
	if (!b || numbered == number_room) {
		free(b);
		return NULL;
	}
	b->id = ++last_id;
	numbers[numbered++] = b; /* ids only grow */
	b->next = hf_blocks;
	b->link = &hf_blocks;
	if (hf_blocks)
		hf_blocks->link = &b->next;
	hf_blocks = b;
	return b;
}

void hf_block_remove(struct hf_block *b)
{
	size_t i = number(b->id);
	memmove(numbers + i, numbers + i + 1, (numbered - i - 1) * sizeof *numbers);
	numbered--;
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
	if (b->slab) {
		for (struct hf_slab **l = &slabs; *l; l = &(*l)->next)
			if (*l == b->slab) {
				*l = b->slab->next;
				break;
			}
		free(b->slab);
	}
	free(b);
}

CUresult hf_physical(CUhandle *h, uint64_t size, int device, const CUmemAllocationProp *like)
{
	CUmemAllocationProp prop;
	if (like)
		prop = *like;
	else {
		memset(&prop, 0, sizeof prop);
		prop.type = 1;                                 /* CU_MEM_ALLOCATION_TYPE_PINNED */
		prop.location = (CUmemLocation){ 1, device };  /* CU_MEM_LOCATION_TYPE_DEVICE */
		int rdma = 0; /* memory of cuMemAlloc allows RDMA, so ours does, where the device can */
		if (real_cuDeviceGetAttribute(&rdma, 110, device) == CUDA_SUCCESS && rdma)
			prop.allocFlags.gpuDirectRDMACapable = 1;
	}
	prop.requestedHandleTypes |= 1; /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
	return real_cuMemCreate(h, size, &prop, 0);
}

CUresult hf_set_access(CUdeviceptr va, uint64_t size, int device)
{
	CUmemAccessDesc d[64];
	size_t n = 0;
	d[n++] = (CUmemAccessDesc){ { 1, device }, 3 }; /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
	for (int i = 0; i < 64 && device >= 0 && device < 64; i++)
		if (i != device && (hf_peers[device] >> i & 1) && n < 64)
			d[n++] = (CUmemAccessDesc){ { 1, i }, 3 };
	return real_cuMemSetAccess(va, size, d, n);
}

void hf_access_again(int device)
{
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		if (b->device == device && b->mapped)
			hf_set_access(b->va, b->size, device);
}

CUresult hf_block_map(struct hf_block *b)
{
	CUresult r = real_cuMemMap(b->va, b->size, 0, b->handle, 0);
	if (r != CUDA_SUCCESS) {
		/* A restored process may have lost the reservation: take the same addresses again, or nothing. */
		CUdeviceptr va = 0;
		if (real_cuMemAddressReserve(&va, b->size, 0, b->va, 0) == CUDA_SUCCESS) {
			if (va != b->va) {
				real_cuMemAddressFree(va, b->size);
				return r;
			}
			r = real_cuMemMap(b->va, b->size, 0, b->handle, 0);
		}
		if (r != CUDA_SUCCESS)
			return r;
	}
	r = hf_set_access(b->va, b->size, b->device);
	if (r != CUDA_SUCCESS) {
		real_cuMemUnmap(b->va, b->size);
		return r;
	}
	b->mapped = true;
	return CUDA_SUCCESS;
}

static uint64_t granularity(int device)
{
	static uint64_t known[64];
	if (device >= 0 && device < 64 && known[device])
		return known[device];
	CUmemAllocationProp prop;
	memset(&prop, 0, sizeof prop);
	prop.type = 1;
	prop.requestedHandleTypes = 1;
	prop.location = (CUmemLocation){ 1, device };
	size_t g = 0;
	if (real_cuMemGetAllocationGranularity(&g, &prop, 0) != CUDA_SUCCESS || g < HF_GRANULE || (g & (g - 1)))
		g = HF_GRANULE;
	if (device >= 0 && device < 64)
		known[device] = g;
	return g;
}

/*
 * Memory of a program that is recorded lies where few programs have anything, and where nothing was before: what
 * replays the recording needs the same addresses, and the driver's choice is of the kind that another process has in
 * use. The driver keeps to an address that it is asked for only if the request is too large for the 32 MiB at a time
 * that it reserves for itself (580.159): so it is asked for much.
 */
static struct { CUdeviceptr at, end, next; } arena;

static void new_arena(uint64_t size)
{
	CUdeviceptr hint = arena.next ? arena.next : hf_range_base;
	for (uint64_t want = 256ull << 30; want >= 64ull << 30 && want >= size && !(arena.next & 1); want >>= 2) {
		CUdeviceptr va = 0;
		if (real_cuMemAddressReserve(&va, want, 0, hint, 0) != CUDA_SUCCESS)
			continue;
		if (va == hint) {
			arena.at = va;
			arena.end = arena.next = va + want;
			return;
		}
		real_cuMemAddressFree(va, want);
	}
	arena.next = 1; /* do not try again */
}

static CUresult reserve(struct hf_block *b)
{
	if (hf_range_wanted()) {
		if (b->size > arena.end - arena.at)
			new_arena(b->size);
		if (b->size <= arena.end - arena.at) {
			b->va = arena.at;
			b->placed = true;
			arena.at += b->size;
			return CUDA_SUCCESS;
		}
	}
	return real_cuMemAddressReserve(&b->va, b->size, 0, 0, 0);
}

static void unreserve(struct hf_block *b)
{
	if (!b->placed)
		real_cuMemAddressFree(b->va, b->size);
}

CUresult hf_block_new(struct hf_block **out, uint64_t size, int device, uint32_t kind, void *ctx, void *pool)
{
	uint64_t g = granularity(device);
	if (size > UINT64_MAX - g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct hf_block *b = hf_block_add();
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->asked = size;
	b->size = (size + g - 1) / g * g;
	b->device = device;
	b->kind = kind;
	b->ctx = ctx;
	b->pool = pool;
	CUresult r = hf_physical(&b->handle, b->size, device, NULL);
	if (r != CUDA_SUCCESS)
		goto record;
	r = reserve(b);
	if (r != CUDA_SUCCESS)
		goto physical;
	r = hf_block_map(b);
	if (r != CUDA_SUCCESS)
		goto reservation;
	if (!index_add(b)) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
		real_cuMemUnmap(b->va, b->size);
		goto reservation;
	}
	hf_page.bytes += b->size;
	hf_pool_account(pool, 0, (int64_t)b->size);
	hf_queue_alloc(b);
	*out = b;
	return CUDA_SUCCESS;
reservation:
	unreserve(b);
physical:
	real_cuMemRelease(b->handle);
record:
	hf_block_remove(b);
	return r;
}

void hf_block_drop(struct hf_block *b)
{
	index_remove(b);
	if (b->mapped)
		real_cuMemUnmap(b->va, b->size);
	unreserve(b);
	if (b->handle)
		real_cuMemRelease(b->handle);
	hf_page.bytes -= b->size;
	hf_pool_account(b->pool, 0, -(int64_t)b->size);
	hf_queue_free(b);
	hf_block_remove(b);
}

/* ---- slabs ---- */

static uint32_t units(uint64_t bytes) { return (uint32_t)((bytes + HF_UNIT - 1) / HF_UNIT); }
static bool bit(const struct hf_slab *s, uint32_t i) { return s->bits[i / 64] >> (i % 64) & 1; }

/* First fit; -1 if there is no run of n free units, and then longest says how long the longest one is. */
static int slab_run(struct hf_slab *s, uint32_t n)
{
	uint32_t run = 0, longest = 0;
	for (uint32_t i = 0; i < HF_UNITS;) {
		if (i % 64 == 0 && s->bits[i / 64] == ~0ull) {
			run = 0;
			i += 64;
			continue;
		}
		if (i % 64 == 0 && s->bits[i / 64] == 0 && run + 64 < n) {
			run += 64;
			i += 64;
		} else {
			run = bit(s, i) ? 0 : run + 1;
			i++;
		}
		if (run > longest)
			longest = run;
		if (run >= n)
			return (int)(i - run);
	}
	s->longest = longest;
	return -1;
}

static void slab_mark(struct hf_slab *s, uint32_t at, uint32_t n, bool used)
{
	for (uint32_t i = at; i < at + n; i++)
		if (used)
			s->bits[i / 64] |= 1ull << (i % 64);
		else
			s->bits[i / 64] &= ~(1ull << (i % 64));
	if (used)
		s->free -= n;
	else
		s->free += n;
}

static CUdeviceptr slab_take(struct hf_slab *s, uint64_t bytes, bool keep)
{
	uint32_t n = units(bytes);
	if (s->free < n || s->longest < n)
		return 0;
	int at = slab_run(s, n);
	if (at < 0)
		return 0;
	slab_mark(s, (uint32_t)at, n, true);
	s->size[at] = (uint32_t)bytes;
	if (keep)
		s->keep[at / 8] |= (uint8_t)(1 << at % 8);
	return s->b->va + (uint64_t)at * HF_UNIT;
}

/* The unit at which the allocation that holds unit u begins; -1: u is free. */
static int slab_start(const struct hf_slab *s, uint32_t u)
{
	if (!bit(s, u))
		return -1;
	for (int i = (int)u; i >= 0; i--)
		if (s->size[i])
			return i;
	return -1;
}

static CUresult take(CUdeviceptr *p, uint64_t bytes, int device, void *ctx, void *pool, bool keep)
{
	struct hf_block *b;
	if (pool && !keep && hf_pool_take(p, bytes, device, pool))
		return CUDA_SUCCESS;
	if (bytes >= HF_SMALL) {
		CUresult r = hf_block_new(&b, bytes, device, pool ? HF_KIND_POOL : HF_KIND_LINEAR, ctx, pool);
		if (r != CUDA_SUCCESS)
			return r;
		b->keep = keep;
		*p = b->va;
		return CUDA_SUCCESS;
	}
	for (struct hf_slab *s = slabs; s; s = s->next)
		if (s->b->device == device && s->b->ctx == ctx && s->b->pool == pool && (*p = slab_take(s, bytes, keep)))
			return CUDA_SUCCESS;
	struct hf_slab *s = calloc(1, sizeof *s);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = hf_block_new(&b, HF_GRANULE, device, HF_KIND_SLAB, ctx, pool);
	if (r != CUDA_SUCCESS) {
		free(s);
		return r;
	}
	s->b = b;
	s->free = s->longest = HF_UNITS;
	s->next = slabs;
	slabs = s;
	b->slab = s;
	*p = slab_take(s, bytes, keep);
	return CUDA_SUCCESS;
}

static void drop_empty_slabs(void)
{
	for (struct hf_slab *s = slabs, *next; s; s = next) {
		next = s->next;
		if (s->free == HF_UNITS)
			hf_block_drop(s->b);
	}
}

CUresult hf_take(CUdeviceptr *p, uint64_t bytes, int device, void *ctx, void *pool, bool keep)
{
	CUresult r = take(p, bytes, device, ctx, pool, keep);
	if (r == CUDA_ERROR_OUT_OF_MEMORY) {
		hf_pool_sweep(true);
		drop_empty_slabs();
		r = take(p, bytes, device, ctx, pool, keep);
	}
	if (r == CUDA_SUCCESS) {
		hf_page.allocs++;
		hf_pool_account(pool, (int64_t)bytes, 0);
	}
	return r;
}

CUresult hf_take_wait(CUdeviceptr *p, uint64_t bytes, int device, void *ctx, void *pool, bool keep)
{
	bool asked = false;
	unsigned aside = 0;
	for (int round = 0;; round++) {
		/* A capture elsewhere is no reason to refuse memory. */
		int mode = hf_captures() ? hf_relax() : HF_NOT_RELAXED;
		pthread_mutex_lock(&hf_mem_lock);
		CUresult r = hf_take(p, bytes, device, ctx, pool, keep);
		pthread_mutex_unlock(&hf_mem_lock);
		hf_unrelax(mode);
		if (r != CUDA_ERROR_OUT_OF_MEMORY)
			return r;
		/* Freed memory exists until the daemon has closed its descriptor too, a moment later. */
		if (hf_step_aside(&aside))
			asked = false;
		else if (round < 20 && hf_recent_free())
			nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
		else if (asked || (!(asked = hf_room(bytes < HF_SMALL ? HF_GRANULE : bytes, device)) && !hf_step_aside(&aside)))
			return r;
	}
}

bool hf_find(CUdeviceptr p, struct hf_found *f)
{
	struct hf_block *b = hf_block_at(p);
	if (!b)
		return false;
	if (!b->slab) {
		if (b->idle || b->kind == HF_KIND_MIRROR)
			return false;
		*f = (struct hf_found){ b->va, b->asked, b, b->keep };
		return true;
	}
	int at = slab_start(b->slab, (uint32_t)((p - b->va) / HF_UNIT));
	if (at < 0)
		return false;
	*f = (struct hf_found){ b->va + (uint64_t)at * HF_UNIT, b->slab->size[at], b,
		b->slab->keep[at / 8] >> (at % 8) & 1 };
	return true;
}

bool hf_give(CUdeviceptr p)
{
	struct hf_found f;
	if (!hf_find(p, &f) || f.base != p)
		return false;
	hf_page.allocs--;
	struct hf_block *b = f.b;
	hf_pool_account(b->pool, -(int64_t)f.size, 0);
	if (!b->slab) {
		hf_block_drop(b);
		return true;
	}
	struct hf_slab *s = b->slab;
	uint32_t at = (uint32_t)((p - b->va) / HF_UNIT);
	slab_mark(s, at, units(s->size[at]), false);
	s->size[at] = 0;
	s->longest = s->free; /* a bound; the next search finds the truth */
	if (s->free == HF_UNITS) {
		/*
		 * One empty slab of a kind is kept, so that a program that allocates and frees one thing
		 * does not map each time.
		 */
		for (struct hf_slab *o = slabs; o; o = o->next)
			if (o != s && o->free == HF_UNITS && o->b->ctx == b->ctx && o->b->pool == b->pool &&
			    o->b->device == b->device) {
				hf_block_drop(b);
				break;
			}
	}
	return true;
}

void hf_forget_ctx(void *ctx)
{
	hf_pool_forget_ctx(ctx);
	for (struct hf_block *b = hf_blocks, *next; b; b = next) {
		next = b->next;
		if (!b->ctx || b->ctx != ctx)
			continue;
		if (!b->slab)
			hf_page.allocs--;
		else
			for (uint32_t i = 0; i < HF_UNITS; i++)
				if (b->slab->size[i])
					hf_page.allocs--;
		hf_block_drop(b);
	}
}

void hf_mem_fork_child(void)
{
	memset(&arena, 0, sizeof arena);
	pthread_mutex_init(&hf_mem_lock, NULL);
	/* The child owns none of the memory; what described it stays behind, unreachable but small. */
	hf_blocks = NULL;
	indexed = numbered = 0;
	slabs = NULL;
	nlater = 0;
	memset(hf_peers, 0, sizeof hf_peers);
}

/* ---- the program's calls ---- */

static void free_later(CUdeviceptr p)
{
	pthread_mutex_lock(&hf_mem_lock);
	if (nlater == later_room) {
		size_t room = later_room ? 2 * later_room : 64;
		CUdeviceptr *l = realloc(later, room * sizeof *l);
		if (!l) {
			pthread_mutex_unlock(&hf_mem_lock);
			return; /* it stays allocated: the safe side */
		}
		later = l;
		later_room = room;
	}
	later[nlater++] = p;
	pthread_mutex_unlock(&hf_mem_lock);
}

static void sweep_later(void)
{
	if (HF_LIKELY(!nlater) || hf_captures())
		return;
	if (hf_sync_ctx(NULL) != CUDA_SUCCESS)
		return;
	pthread_mutex_lock(&hf_mem_lock);
	for (size_t i = 0; i < nlater; i++)
		hf_give(later[i]);
	nlater = 0;
	pthread_mutex_unlock(&hf_mem_lock);
}

CUresult hf_cuMemAlloc_v2(void *dptr, size_t bytes)
{
	CUdeviceptr *out = dptr;
	void *ctx;
	int device;
	/* Let the driver itself return the error for a wrong call. */
	if (!hf_attached || !out || !bytes || hf_current(&ctx, &device) != CUDA_SUCCESS)
		return real_cuMemAlloc_v2(dptr, bytes);
	sweep_later();
	CUdeviceptr p = 0;
	pthread_mutex_lock(&hf_mem_lock);
	CUresult r = hf_ctx_error(ctx);
	pthread_mutex_unlock(&hf_mem_lock);
	if (r != CUDA_SUCCESS)
		return r;
	r = hf_take_wait(&p, bytes, device, ctx, NULL, false); /* a capture does not record cuMemAlloc */
	if (r == CUDA_SUCCESS) {
		*out = p;
		return r;
	}
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	CUresult why = r;
	r = real_cuMemAlloc_v2(dptr, bytes);
	if (r == CUDA_SUCCESS)
		hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 115, *out,
			"cuMemAlloc: %zu bytes at 0x%llx stay with the driver: memory mapping failed with error %d",
			bytes, *out, why);
	return r;
}

CUresult hf_cuMemAllocPitch_v2(void *dptr, void *pitch, size_t width, size_t height, unsigned int element)
{
	if (!hf_attached || !dptr || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return real_cuMemAllocPitch_v2(dptr, pitch, width, height, element);
	size_t row = (width + HF_UNIT - 1) / HF_UNIT * HF_UNIT, all;
	if (row < width || __builtin_mul_overflow(row, height, &all))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = hf_cuMemAlloc_v2(dptr, all);
	if (r == CUDA_SUCCESS)
		*(size_t *)pitch = row;
	return r;
}

CUresult hf_cuMemFree_v2(CUdeviceptr p)
{
	struct hf_found f;
	sweep_later();
	pthread_mutex_lock(&hf_mem_lock);
	bool ours = hf_find(p, &f) && f.base == p && !hf_pool_pending(p);
	void *ctx = ours ? f.b->ctx : NULL;
	pthread_mutex_unlock(&hf_mem_lock);
	if (!ours) {
		CUresult r = real_cuMemFree_v2(p);
		if (r == CUDA_SUCCESS && p)
			hf_caveat_gone(HF_CAVEAT_DRIVER_MEMORY, p);
		return r;
	}
	if (f.keep) {
		hf_note_kept(p, f.size);
		return CUDA_SUCCESS; /* a graph may use it as long as the process lives */
	}
	if (hf_captures()) {
		/* Waiting for the device would break the capture; real memory would outlive it too. */
		free_later(p);
		return CUDA_SUCCESS;
	}
	CUresult r = hf_sync_ctx(ctx);
	if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
		free_later(p); /* a capture has begun just now, in another thread */
		return CUDA_SUCCESS;
	}
	if (r == CUDA_ERROR_INVALID_CONTEXT && !ctx)
		r = CUDA_SUCCESS; /* memory of a pool, freed by a thread without a context */
	pthread_mutex_lock(&hf_mem_lock);
	bool given = hf_give(p);
	pthread_mutex_unlock(&hf_mem_lock);
	return given ? r : CUDA_ERROR_INVALID_VALUE;
}

CUresult hf_cuMemGetAddressRange_v2(void *base, void *size, CUdeviceptr p)
{
	struct hf_found f;
	pthread_mutex_lock(&hf_mem_lock);
	bool ours = hf_find(p, &f);
	pthread_mutex_unlock(&hf_mem_lock);
	if (!ours)
		return real_cuMemGetAddressRange_v2(base, size, p);
	if (base)
		*(CUdeviceptr *)base = f.base;
	if (size)
		*(size_t *)size = f.size;
	return CUDA_SUCCESS;
}

CUresult hf_cuMemGetInfo_v2(void *free, void *total)
{
	if (hf_attached && !hf_captures()) {
		/* What the driver would have given back by now counts as free. */
		pthread_mutex_lock(&hf_mem_lock);
		hf_pool_release_threshold();
		pthread_mutex_unlock(&hf_mem_lock);
	}
	return real_cuMemGetInfo_v2(free, total);
}

/* Attributes in which held memory would look different from cuMemAlloc's; false: the driver's answer is right. */
static bool attribute(void *data, int attribute, CUdeviceptr p)
{
	struct hf_found f;
	pthread_mutex_lock(&hf_mem_lock);
	bool ours = data && hf_find(p, &f);
	uint64_t types = 0;
	bool vmm = data && !ours && attribute == 14 && hf_map_types(p, &types);
	pthread_mutex_unlock(&hf_mem_lock);
	if (vmm)
		*(uint64_t *)data = types; /* the driver would name the types that we asked for, and none after a restore */
	if (!ours)
		return vmm;
	switch (attribute) {
	case 1: /* CU_POINTER_ATTRIBUTE_CONTEXT */
		if (!f.b->ctx)
			return false;
		*(void **)data = f.b->ctx;
		return true;
	case 11: /* RANGE_START_ADDR */
	case 19: /* MAPPING_BASE_ADDR */
		*(CUdeviceptr *)data = f.base;
		return true;
	case 12: /* RANGE_SIZE */
	case 18: /* MAPPING_SIZE */
		*(size_t *)data = f.size;
		return true;
	case 14: /* ALLOWED_HANDLE_TYPES */
		*(uint64_t *)data = 0;
		return true;
	case 17: /* MEMPOOL_HANDLE */
		*(void **)data = f.b->pool;
		return true;
	}
	return false;
}

CUresult hf_cuPointerGetAttribute(void *data, int attr, CUdeviceptr p)
{
	CUresult r = real_cuPointerGetAttribute(data, attr, p);
	return attribute(data, attr, p) ? CUDA_SUCCESS : r;
}

CUresult hf_cuPointerGetAttributes(unsigned int n, void *attrs, void *data, CUdeviceptr p)
{
	CUresult r = real_cuPointerGetAttributes(n, attrs, data, p);
	if (r == CUDA_SUCCESS)
		for (unsigned i = 0; i < n; i++)
			attribute(((void **)data)[i], ((int *)attrs)[i], p);
	return r;
}
