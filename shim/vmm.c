/*
 * The virtual memory API of the program. Its physical memory becomes exportable and is announced; the program gets a
 * name for each handle that stays the same when the memory goes away and comes back with another handle of the driver.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct hf_map **hf_maps;
size_t hf_nmaps;
static size_t map_room;

#define NAME_TAG (0x6866ull << 48) /* no handle of a driver looks like this: they are addresses */

static bool tagged(CUhandle name) { return name >> 48 == NAME_TAG >> 48; }

static struct hf_block *named(CUhandle name)
{
	if (!tagged(name))
		return NULL;
	struct hf_block *b = hf_block_by_id(name & ~NAME_TAG);
	return b && b->kind == HF_KIND_VMM ? b : NULL;
}

/* The driver's handle for what the program calls name; 0, which no driver accepts, for a name that is gone. */
static CUhandle real_handle(CUhandle name)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = named(name);
	CUhandle h = b ? b->handle : tagged(name) ? 0 : name;
	pthread_mutex_unlock(&hf_mem_lock);
	return h;
}

static size_t after(CUdeviceptr p)
{
	size_t lo = 0, hi = hf_nmaps;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (hf_maps[mid]->va <= p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct hf_map *map_at(CUdeviceptr p)
{
	size_t i = after(p);
	return i && p - hf_maps[i - 1]->va < hf_maps[i - 1]->size ? hf_maps[i - 1] : NULL;
}

bool hf_map_types(CUdeviceptr p, uint64_t *types)
{
	struct hf_map *m = map_at(p);
	if (m)
		*types = (uint64_t)m->b->prop.requestedHandleTypes;
	return m != NULL;
}

static void drop_unused(struct hf_block *b)
{
	if (b->refs || b->maps)
		return;
	if (b->handle)
		real_cuMemRelease(b->handle);
	hf_page.bytes -= b->size;
	hf_page.allocs--;
	hf_queue_free(b);
	hf_block_remove(b);
}

CUresult hf_cuMemCreate(void *handle, size_t size, void *prop, unsigned long long flags)
{
	CUmemAllocationProp *p = prop;
	/* Memory of the host, and tiles of sparse arrays, which are not mapped by address, are the driver's. */
	if (!hf_attached || !handle || !p || flags || p->type != 1 || p->location.type != 1 || p->allocFlags.usage) {
		CUresult r = real_cuMemCreate(handle, size, prop, flags);
		if (r == CUDA_SUCCESS && hf_attached)
			hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 190, *(CUhandle *)handle,
				"cuMemCreate: %zu bytes that are not plain device memory stay with the driver", size);
		return r;
	}
	CUhandle h = 0;
	CUresult r;
	bool asked = false;
	unsigned aside = 0;
	for (int round = 0; (r = hf_physical(&h, size, p->location.id, p)) == CUDA_ERROR_OUT_OF_MEMORY; round++) {
		if (round == 0) {
			pthread_mutex_lock(&hf_mem_lock);
			hf_pool_sweep(true);
			pthread_mutex_unlock(&hf_mem_lock);
		} else if (hf_step_aside(&aside))
			asked = false;
		else if (round <= 20 && hf_recent_free())
			nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
		else if (asked || (!(asked = hf_room(size, p->location.id)) && !hf_step_aside(&aside)))
			return r;
	}
	if (r != CUDA_SUCCESS) {
		CUresult why = r;
		r = real_cuMemCreate(handle, size, prop, flags);
		if (r == CUDA_SUCCESS)
			hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_GPU_ONLY, 190, *(CUhandle *)handle,
				"cuMemCreate: %zu bytes stay with the driver: not exportable, error %d", size, why);
		return r;
	}
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = hf_block_add();
	if (b) {
		b->handle = h;
		b->size = b->asked = size;
		b->device = p->location.id;
		b->kind = HF_KIND_VMM;
		b->prop = *p;
		b->refs = 1;
		b->name = NAME_TAG | b->id;
		hf_page.bytes += size;
		hf_page.allocs++;
		hf_queue_alloc(b);
		*(CUhandle *)handle = b->name;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	if (!b) {
		real_cuMemRelease(h);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult hf_cuMemRelease(CUhandle name)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = named(name);
	CUresult r = CUDA_SUCCESS;
	if (b && b->refs == 0)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (b) {
		/* The driver's handle stays until nothing is mapped, so that the memory can be announced to a new daemon. */
		b->refs--;
		drop_unused(b);
	}
	pthread_mutex_unlock(&hf_mem_lock);
	return b ? r : tagged(name) ? CUDA_ERROR_INVALID_VALUE : real_cuMemRelease(name);
}

CUresult hf_cuMemMap(CUdeviceptr va, size_t size, size_t offset, CUhandle name, unsigned long long flags)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = named(name);
	CUresult r;
	if (!b) {
		pthread_mutex_unlock(&hf_mem_lock);
		return tagged(name) ? CUDA_ERROR_INVALID_VALUE : real_cuMemMap(va, size, offset, name, flags);
	}
	struct hf_map *m = calloc(1, sizeof *m);
	if (m && hf_nmaps == map_room) {
		size_t room = map_room ? 2 * map_room : 64;
		struct hf_map **p = realloc(hf_maps, room * sizeof *p);
		if (p) {
			hf_maps = p;
			map_room = room;
		}
	}
	if (!m || hf_nmaps == map_room || b->refs == 0)
		r = m && hf_nmaps < map_room ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	else
		r = real_cuMemMap(va, size, offset, b->handle, flags);
	if (r != CUDA_SUCCESS) {
		free(m);
	} else {
		*m = (struct hf_map){ .va = va, .size = size, .offset = offset, .b = b, .mapped = true };
		size_t i = after(va);
		memmove(hf_maps + i + 1, hf_maps + i, (hf_nmaps - i) * sizeof *hf_maps);
		hf_maps[i] = m;
		hf_nmaps++;
		b->maps++;
		hf_queue_mapping(m, true);
	}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

CUresult hf_cuMemUnmap(CUdeviceptr va, size_t size)
{
	pthread_mutex_lock(&hf_mem_lock);
	CUresult r = real_cuMemUnmap(va, size);
	if (r == CUDA_SUCCESS) {
		size_t first = 0;
		while (first < hf_nmaps && hf_maps[first]->va < va)
			first++;
		size_t end = first;
		for (; end < hf_nmaps && hf_maps[end]->va - va < size; end++) {
			struct hf_map *m = hf_maps[end];
			hf_queue_mapping(m, false);
			m->b->maps--;
			drop_unused(m->b);
			free(m);
		}
		memmove(hf_maps + first, hf_maps + end, (hf_nmaps - end) * sizeof *hf_maps);
		hf_nmaps -= end - first;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

static void remember_access(struct hf_map *m, const CUmemAccessDesc *d)
{
	for (size_t i = 0; i < m->naccess; i++)
		if (m->access[i].location.type == d->location.type && m->access[i].location.id == d->location.id) {
			m->access[i] = *d;
			return;
		}
	if (m->naccess < sizeof m->access / sizeof *m->access)
		m->access[m->naccess++] = *d;
	else
		hf_caveat(HF_CAVEAT_PEER, HF_CAVEAT_BLOCKS_FULL, 195, m->va,
			"cuMemSetAccess: more than 16 locations may access 0x%llx", m->va);
}

CUresult hf_cuMemSetAccess(CUdeviceptr va, size_t size, void *desc, size_t n)
{
	pthread_mutex_lock(&hf_mem_lock);
	CUresult r = real_cuMemSetAccess(va, size, desc, n);
	if (r == CUDA_SUCCESS)
		for (size_t i = 0; i < hf_nmaps; i++)
			if (hf_maps[i]->va >= va && hf_maps[i]->va - va < size) {
				for (size_t k = 0; k < n; k++)
					remember_access(hf_maps[i], (CUmemAccessDesc *)desc + k);
				hf_queue_mapping(hf_maps[i], true);
			}
	pthread_mutex_unlock(&hf_mem_lock);
	return r;
}

CUresult hf_map_restore(struct hf_map *m)
{
	CUresult r = real_cuMemMap(m->va, m->size, m->offset, m->b->handle, 0);
	if (r != CUDA_SUCCESS) {
		CUdeviceptr va = 0; /* see hf_block_map */
		if (real_cuMemAddressReserve(&va, m->size, 0, m->va, 0) != CUDA_SUCCESS)
			return r;
		if (va != m->va) {
			real_cuMemAddressFree(va, m->size);
			return r;
		}
		r = real_cuMemMap(m->va, m->size, m->offset, m->b->handle, 0);
		if (r != CUDA_SUCCESS)
			return r;
	}
	if (m->naccess)
		r = real_cuMemSetAccess(m->va, m->size, m->access, m->naccess);
	if (r != CUDA_SUCCESS) {
		real_cuMemUnmap(m->va, m->size);
		return r;
	}
	m->mapped = true;
	return CUDA_SUCCESS;
}

CUresult hf_cuMemRetainAllocationHandle(void *handle, void *addr)
{
	struct hf_found f;
	CUdeviceptr p = (CUdeviceptr)(uintptr_t)addr;
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_map *m = map_at(p);
	bool plain = !m && hf_find(p, &f);
	if (m && handle) {
		m->b->refs++;
		*(CUhandle *)handle = m->b->name;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	if (m && handle)
		return CUDA_SUCCESS;
	if (plain)
		return CUDA_ERROR_INVALID_VALUE; /* as for memory of cuMemAlloc */
	return real_cuMemRetainAllocationHandle(handle, addr);
}

CUresult hf_cuMemGetAllocationPropertiesFromHandle(void *prop, CUhandle name)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = named(name);
	int types = b ? b->prop.requestedHandleTypes : 0;
	pthread_mutex_unlock(&hf_mem_lock);
	CUhandle h = real_handle(name);
	CUresult r = h ? real_cuMemGetAllocationPropertiesFromHandle(prop, h) : CUDA_ERROR_INVALID_VALUE;
	if (b && r == CUDA_SUCCESS)
		((CUmemAllocationProp *)prop)->requestedHandleTypes = types;
	return r;
}

/* From now on others use that very memory: no copy can take its place. */
static void note_exported(CUhandle name)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = named(name);
	if (b)
		b->exported = true;
	pthread_mutex_unlock(&hf_mem_lock);
}

static void note_exported_range(CUdeviceptr p, size_t size)
{
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = hf_block_at(p);
	if (b)
		b->exported = true;
	for (size_t i = 0; i < hf_nmaps; i++)
		if (hf_maps[i]->va < p + size && p < hf_maps[i]->va + hf_maps[i]->size)
			hf_maps[i]->b->exported = true;
	pthread_mutex_unlock(&hf_mem_lock);
}

CUresult hf_cuMemExportToShareableHandle(void *out, CUhandle name, int type, unsigned long long flags)
{
	struct hf_sharer sharer = { .left = HF_SHARE_MS * 1000000ull, .fd = -1 };
	uint64_t size = 0;
	CUresult r;
	for (;;) {
		pthread_mutex_lock(&hf_mem_lock);
		struct hf_block *b = named(name);
		bool refused = b && !(b->prop.requestedHandleTypes & type);
		CUhandle h = b ? b->handle : tagged(name) ? 0 : name;
		uint64_t id = b && b->imported ? b->id : 0;
		size = b ? b->size : 0;
		pthread_mutex_unlock(&hf_mem_lock);
		r = refused || !h ? CUDA_ERROR_INVALID_VALUE : real_cuMemExportToShareableHandle(out, h, type, flags);
		if (r != CUDA_SUCCESS && !refused && h && id && out && type == 1 && !flags) {
			/* It was away and came back by a descriptor; the daemon has it, and it is of the same memory. */
			int fd = hf_share(&sharer, id);
			if (fd == HF_SHARE_AGAIN) {
				hf_leave(hf_slot);
				hf_enter(197);
				continue;
			}
			if (fd >= 0) {
				*(int *)out = fd;
				r = CUDA_SUCCESS;
			}
		}
		if (r == CUDA_SUCCESS)
			note_exported(name);
		break;
	}
	hf_share_end(&sharer);
	if (r == CUDA_SUCCESS && hf_attached)
		hf_caveat(HF_CAVEAT_EXPORTED, HF_CAVEAT_BLOCKS_FULL, 197, name,
			"cuMemExportToShareableHandle: %llu bytes may be shared with another process", (unsigned long long)size);
	return r;
}

CUresult hf_cuMemImportFromShareableHandle(void *handle, void *os, int type)
{
	CUresult r = real_cuMemImportFromShareableHandle(handle, os, type);
	if (r == CUDA_SUCCESS && hf_attached)
		hf_caveat(HF_CAVEAT_EXPORTED, HF_CAVEAT_BLOCKS_FULL | HF_CAVEAT_BLOCKS_GPU_ONLY, 198, *(CUhandle *)handle,
			"cuMemImportFromShareableHandle: memory of another process");
	return r;
}

CUresult hf_cuMulticastCreate(void *handle, void *prop)
{
	CUresult r = real_cuMulticastCreate(handle, prop);
	if (r == CUDA_SUCCESS && hf_attached)
		hf_caveat(HF_CAVEAT_MULTICAST, HF_CAVEAT_BLOCKS_FULL, 219, *(CUhandle *)handle,
			"cuMulticastCreate: multicast objects cannot be let go");
	return r;
}

CUresult hf_cuMulticastBindMem(CUhandle mc, size_t mcOffset, CUhandle name, size_t offset, size_t size,
	unsigned long long flags)
{
	CUhandle h = real_handle(name);
	CUresult r = h ? real_cuMulticastBindMem(mc, mcOffset, h, offset, size, flags) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		note_exported(name);
	return r;
}

CUresult hf_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t size, int type, unsigned long long flags)
{
	CUresult r = real_cuMemGetHandleForAddressRange(handle, p, size, type, flags);
	if (r == CUDA_SUCCESS)
		note_exported_range(p, size);
	if (r == CUDA_SUCCESS && hf_attached)
		hf_caveat(HF_CAVEAT_EXPORTED, HF_CAVEAT_BLOCKS_FULL, 130, p,
			"cuMemGetHandleForAddressRange: %zu bytes at 0x%llx may be used by another device", size, p);
	return r;
}

void hf_vmm_fork_child(void) { hf_nmaps = 0; }
