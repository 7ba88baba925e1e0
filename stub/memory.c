/* Pinned host memory, copies, sets, shareable handles, attributes. See stub.h. */
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- pinned host memory: memory files of the server, mapped here ---- */

struct pinned {
	uint64_t id, address, bytes;
	void *saved; /* its contents while the process is checkpointed */
	bool managed;
};
static struct {
	pthread_mutex_t lock;
	struct pinned *at; /* sorted by address */
	size_t n, room;
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { HOST = 0, MANAGED = 1 }; /* kinds of HOST_ALLOC */
enum { PAGEABLE = 0, KNOWN = 1 };
enum { ASYNC = 1 };

/* The index of the first range that ends behind p. The lock is held. */
static size_t pinned_index(uint64_t p)
{
	size_t lo = 0, hi = pinned.n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (pinned.at[mid].address + pinned.at[mid].bytes <= p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool pinned_add(struct pinned r)
{
	bool ok = true;
	pthread_mutex_lock(&pinned.lock);
	if (pinned.n == pinned.room) {
		size_t room = pinned.room ? 2 * pinned.room : 64;
		struct pinned *at = realloc(pinned.at, room * sizeof *at);
		if ((ok = at != NULL)) {
			pinned.at = at;
			pinned.room = room;
		}
	}
	if (ok) {
		size_t i = pinned_index(r.address);
		memmove(pinned.at + i + 1, pinned.at + i, (pinned.n - i) * sizeof r);
		pinned.at[i] = r;
		pinned.n++;
	}
	pthread_mutex_unlock(&pinned.lock);
	return ok;
}

/* The range that starts at p; with remove, it leaves the table. */
static bool pinned_find(uint64_t p, struct pinned *r, bool remove)
{
	pthread_mutex_lock(&pinned.lock);
	size_t i = pinned_index(p);
	bool found = i < pinned.n && pinned.at[i].address == p;
	if (found) {
		*r = pinned.at[i];
		if (remove)
			memmove(pinned.at + i, pinned.at + i + 1, (--pinned.n - i) * sizeof *r);
	}
	pthread_mutex_unlock(&pinned.lock);
	return found;
}

bool known_address(uint64_t p)
{
	if (p - process.window_lo < process.window_size)
		return true;
	pthread_mutex_lock(&pinned.lock);
	size_t i = pinned_index(p);
	bool found = i < pinned.n && pinned.at[i].address <= p;
	pthread_mutex_unlock(&pinned.lock);
	return found;
}

static int kind_of(uint64_t p) { return known_address(p) ? KNOWN : PAGEABLE; }

/*
 * For a checkpoint: the contents are put aside, and nothing is left at the addresses, as with the driver's. All of it
 * or, where memory is short, nothing. What has been put aside already stays so: a restore that failed begins anew.
 */
bool pinned_leave(void)
{
	pthread_mutex_lock(&pinned.lock);
	bool ok = true;
	size_t n = 0;
	for (; ok && n < pinned.n; n++) {
		struct pinned *r = &pinned.at[n];
		if (r->saved)
			continue;
		void *p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ok = p != MAP_FAILED;
		if (ok)
			r->saved = memcpy(p, (void *)(uintptr_t)r->address, r->bytes);
	}
	for (size_t i = 0; i < n; i++) {
		struct pinned *r = &pinned.at[i];
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
		if (ok)
			mmap((void *)(uintptr_t)r->address, r->bytes, PROT_NONE, flags, -1, 0);
		else if (r->saved) {
			munmap(r->saved, r->bytes);
			r->saved = NULL;
		}
	}
	pthread_mutex_unlock(&pinned.lock);
	return ok;
}

/* What was put aside is in its place again, for good. */
void pinned_returned(void)
{
	pthread_mutex_lock(&pinned.lock);
	for (size_t i = 0; i < pinned.n; i++)
		if (pinned.at[i].saved) {
			munmap(pinned.at[i].saved, pinned.at[i].bytes);
			pinned.at[i].saved = NULL;
		}
	pthread_mutex_unlock(&pinned.lock);
}

static bool write_all(int fd, const void *p, uint64_t n)
{
	for (uint64_t at = 0; at < n;) {
		ssize_t k = pwrite(fd, (const char *)p + at, n - at, (off_t)at);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += (uint64_t)k;
	}
	return true;
}

static bool map_pinned(void *at, uint64_t bytes, int fd, void **where)
{
	void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED)
		return false;
	madvise(p, bytes, MADV_DONTFORK); /* as the driver's pinned memory: a forked child has none */
	*where = p;
	return true;
}

/* In a restore, over the new control connection: memory files of the server again. */
bool pinned_return(int fd)
{
	bool ok = true;
	pthread_mutex_lock(&pinned.lock);
	for (size_t i = 0; ok && i < pinned.n; i++) {
		struct pinned *r = &pinned.at[i];
		void *at = (void *)(uintptr_t)r->address;
		struct call c;
		call_begin(&c, OP_HOST_REFETCH);
		arg(&c, r->id);
		ok = r->saved && exchange(fd, &c) == 0 && c.status == CUDA_SUCCESS && c.nfds == 1 && out(&c, 0) == r->bytes &&
		     write_all(c.fds[0], r->saved, r->bytes) && map_pinned(at, r->bytes, c.fds[0], &at);
		call_end(&c);
	}
	pthread_mutex_unlock(&pinned.lock);
	return ok;
}

void pinned_forget(void)
{
	pinned.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pinned.n = 0;
}

/* Gives back what the server has allocated and cannot be mapped here. It frees by address, so there has to be one. */
static void host_discard(struct pinned range)
{
	void *p = mmap(NULL, range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return;
	if (SIMPLE(OP_HOST_PLACED, range.id, PTR(p)) == CUDA_SUCCESS)
		SIMPLE(OP_HOST_FREE, PTR(p));
	munmap(p, range.bytes);
}

static CUresult host_alloc_inside(void **pp, size_t bytes, unsigned flags, int kind)
{
	struct call c;
	call_begin(&c, OP_HOST_ALLOC);
	arg(&c, bytes);
	arg(&c, flags);
	arg(&c, (uint64_t)kind);
	CUresult r = call_send(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct pinned range = {.id = out(&c, 0), .bytes = out(&c, 1), .managed = kind == MANAGED};
	void *p = NULL;
	if (c.nfds != 1 || !map_pinned(NULL, range.bytes, c.fds[0], &p)) {
		call_end(&c);
		host_discard(range);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	call_end(&c);
	range.address = PTR(p);
	r = SIMPLE(OP_HOST_PLACED, range.id, range.address);
	if (r == CUDA_SUCCESS && !pinned_add(range)) {
		SIMPLE(OP_HOST_FREE, range.address);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS)
		munmap(p, range.bytes);
	else
		*pp = p;
	return r;
}

static CUresult host_alloc(void **pp, size_t bytes, unsigned flags, int kind)
{
	if (!pp)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = call_enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = host_alloc_inside(pp, bytes, flags, kind);
	call_leave();
	return r;
}

static CUresult host_free(uint64_t p)
{
	struct pinned range;
	CUresult r = call_enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!pinned_find(p, &range, false))
		r = CUDA_ERROR_INVALID_VALUE;
	else if ((r = SIMPLE(OP_HOST_FREE, p)) == CUDA_SUCCESS && pinned_find(p, &range, true))
		munmap((void *)(uintptr_t)range.address, range.bytes);
	call_leave();
	return r;
}

EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) { return host_alloc(pp, bytesize, 0, HOST); }
EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
{
	return host_alloc(pp, bytesize, flags, HOST);
}
EXPORT CUresult cuMemFreeHost(void *p) { return host_free(PTR(p)); }

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	void *p = NULL;
	CUresult r = host_alloc(dptr ? &p : NULL, bytesize, flags, MANAGED);
	if (r == CUDA_SUCCESS)
		*dptr = PTR(p);
	return r;
}

/* Managed memory is pinned: it has no other place, and advice about it is not kept. */
EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr p,
                                       size_t n)
{
	enum { READ_MOSTLY = 1, PREFERRED_LOCATION = 2, ACCESSED_BY = 3, LAST_PREFETCH_LOCATION = 4, NO_DEVICE = -2 };
	if (!data || size == 0 || size % sizeof(int) != 0 || n == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pinned.lock);
	size_t i = pinned_index(p);
	bool managed = i < pinned.n && pinned.at[i].managed && pinned.at[i].address <= p &&
	               n <= pinned.at[i].address + pinned.at[i].bytes - p;
	pthread_mutex_unlock(&pinned.lock);
	if (!managed || (attribute != ACCESSED_BY && size != sizeof(int)))
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute < READ_MOSTLY || attribute > LAST_PREFETCH_LOCATION)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t k = 0; k < size / sizeof(int); k++)
		((int *)data)[k] = attribute == READ_MOSTLY ? 0 : NO_DEVICE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count,
                                        CUdeviceptr p, size_t n)
{
	if (!data || !sizes || !attributes || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], p, n);
	return r;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct pinned range;
	if (pinned_find(dptr, &range, false) && range.managed)
		return host_free(dptr);
	return SIMPLE(OP_cuMemFree, dptr);
}

/* An array as the server lays it out: rows without gaps, then slices or layers. */
struct array_layout {
	uint64_t address, pitch, rows, slices;
};

/* ---- linear copies ---- */

static CUresult copy_message(uint64_t dst, uint64_t src, int dst_kind, int src_kind, uint64_t n, CUstream stream,
                             bool async)
{
	struct call c;
	call_begin(&c, OP_MEMCPY);
	arg(&c, dst);
	arg(&c, src);
	arg(&c, (uint64_t)dst_kind);
	arg(&c, (uint64_t)src_kind);
	arg(&c, n);
	arg(&c, PTR(stream));
	arg(&c, async ? ASYNC : 0);
	if (src_kind == PAGEABLE)
		raw_piece(&c, (void *)(uintptr_t)src, n);
	if (dst_kind == PAGEABLE) {
		c.into = (void *)(uintptr_t)dst;
		c.into_len = n;
	}
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS && c.reply_len > 0 && dst_kind == PAGEABLE && c.reply != c.into)
		memcpy((void *)(uintptr_t)dst, c.reply, c.reply_len < n ? c.reply_len : n);
	call_end(&c);
	return r;
}

static CUresult copy_linear(uint64_t dst, uint64_t src, int dst_kind, int src_kind, uint64_t n, CUstream stream,
                            bool async)
{
	if (dst_kind == KNOWN && src_kind == KNOWN)
		return copy_message(dst, src, dst_kind, src_kind, n, stream, async);
	if (dst_kind == PAGEABLE && src_kind == PAGEABLE) { /* in stream order, without the device */
		CUresult r = SIMPLE(OP_cuStreamSynchronize, PTR(stream));
		if (r == CUDA_SUCCESS)
			memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n);
		return r;
	}
	CUresult r;
	do {
		uint64_t part = n < MESSAGE_BYTES ? n : MESSAGE_BYTES;
		r = copy_message(dst, src, dst_kind, src_kind, part, stream, async);
		dst += part;
		src += part;
		n -= part;
	} while (r == CUDA_SUCCESS && n > 0);
	return r;
}

static CUresult copy_unified(uint64_t dst, uint64_t src, uint64_t n, CUstream stream, bool async)
{
	return copy_linear(dst, src, kind_of(dst), kind_of(src), n, stream, async);
}

CUresult hand_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_unified(dst, src, n, s, false);
}
CUresult hand_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return copy_linear(dst, PTR(src), KNOWN, kind_of(PTR(src)), n, s, false);
}
CUresult hand_cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_linear(PTR(dst), src, kind_of(PTR(dst)), KNOWN, n, s, false);
}
CUresult hand_cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_linear(dst, src, KNOWN, KNOWN, n, s, false);
}
CUresult hand_cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n, CUstream s)
{
	(void)dst_ctx, (void)src_ctx; /* one address space for all devices */
	return copy_linear(dst, src, KNOWN, KNOWN, n, s, false);
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_unified(dst, src, n, s, true);
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return copy_linear(dst, PTR(src), KNOWN, kind_of(PTR(src)), n, s, true);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_linear(PTR(dst), src, kind_of(PTR(dst)), KNOWN, n, s, true);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_linear(dst, src, KNOWN, KNOWN, n, s, true);
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n,
                                  CUstream s)
{
	(void)dst_ctx, (void)src_ctx;
	return copy_linear(dst, src, KNOWN, KNOWN, n, s, true);
}

/* The attributes of a batch are hints, and promises about when the sources change: they are read when the call is made
 * or in stream order here. */
static CUresult copy_batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                           const CUmemcpyAttributes *attrs, const size_t *indices, size_t n, size_t *fail, CUstream s)
{
	if (fail)
		*fail = SIZE_MAX; /* no single copy is to blame */
	if (!dsts || !srcs || !sizes || count == 0 || !attrs || !indices || n == 0 || n > count || indices[0] != 0 ||
	    s == NULL || s == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult r = copy_unified(dsts[i], srcs[i], sizes[i], s, true);
		if (r != CUDA_SUCCESS) {
			if (fail)
				*fail = i;
			return r;
		}
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                   CUmemcpyAttributes *attrs, size_t *indices, size_t n, size_t *fail, CUstream s)
{
	return copy_batch(dsts, srcs, sizes, count, attrs, indices, n, fail, s);
}
EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                      CUmemcpyAttributes *attrs, size_t *indices, size_t n, CUstream s)
{
	return copy_batch(dsts, srcs, sizes, count, attrs, indices, n, NULL, s);
}

/* ---- copies of bytes of arrays ---- */

static CUresult array_layout(CUarray array, struct array_layout *l)
{
	struct call c;
	call_begin(&c, OP_ARRAY_LAYOUT);
	arg(&c, PTR(array));
	CUresult r = call_send(&c);
	*l = (struct array_layout){out(&c, 0), out(&c, 1), out(&c, 2), out(&c, 3)};
	call_end(&c);
	return r;
}

/* The address of n bytes at an offset in an array. */
static CUresult in_array(CUarray array, size_t offset, size_t n, uint64_t *address)
{
	struct array_layout l;
	CUresult r = array_layout(array, &l);
	uint64_t bytes = l.pitch * l.rows * l.slices;
	if (r == CUDA_SUCCESS && (offset > bytes || n > bytes - offset))
		r = CUDA_ERROR_INVALID_VALUE;
	*address = l.address + offset;
	return r;
}

static CUresult to_array(CUarray array, size_t offset, uint64_t src, int kind, size_t n, CUstream s, bool async)
{
	uint64_t dst;
	CUresult r = in_array(array, offset, n, &dst);
	return r == CUDA_SUCCESS ? copy_linear(dst, src, KNOWN, kind, n, s, async) : r;
}

static CUresult from_array(uint64_t dst, int kind, CUarray array, size_t offset, size_t n, CUstream s, bool async)
{
	uint64_t src;
	CUresult r = in_array(array, offset, n, &src);
	return r == CUDA_SUCCESS ? copy_linear(dst, src, kind, KNOWN, n, s, async) : r;
}

CUresult hand_cuMemcpyDtoA_v2(CUarray dst, size_t at, CUdeviceptr src, size_t n, CUstream s)
{
	return to_array(dst, at, src, KNOWN, n, s, false);
}
CUresult hand_cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t at, size_t n, CUstream s)
{
	return from_array(dst, KNOWN, src, at, n, s, false);
}
CUresult hand_cuMemcpyHtoA_v2(CUarray dst, size_t at, const void *src, size_t n, CUstream s)
{
	return to_array(dst, at, PTR(src), kind_of(PTR(src)), n, s, false);
}
CUresult hand_cuMemcpyAtoH_v2(void *dst, CUarray src, size_t at, size_t n, CUstream s)
{
	return from_array(PTR(dst), kind_of(PTR(dst)), src, at, n, s, false);
}
CUresult hand_cuMemcpyAtoA_v2(CUarray dst, size_t at, CUarray src, size_t from, size_t n, CUstream s)
{
	uint64_t address;
	CUresult r = in_array(src, from, n, &address);
	return r == CUDA_SUCCESS ? to_array(dst, at, address, KNOWN, n, s, false) : r;
}
EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray dst, size_t at, const void *src, size_t n, CUstream s)
{
	return to_array(dst, at, PTR(src), kind_of(PTR(src)), n, s, true);
}
EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t at, size_t n, CUstream s)
{
	return from_array(PTR(dst), kind_of(PTR(dst)), src, at, n, s, true);
}

/* ---- copies of boxes: rows of a pitch, slices of a height ---- */

static uint8_t *box_row(const struct box *b, uint64_t y, uint64_t z)
{
	return (uint8_t *)(uintptr_t)(b->address + (z * b->height + y) * b->pitch);
}

/* One side of CUDA_MEMCPY2D and CUDA_MEMCPY3D. */
struct side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	uint64_t x, y, z, pitch, height;
};

static CUresult array_box(struct box *b, const struct side *s, const CUDA_MEMCPY3D *p)
{
	struct array_layout l;
	CUresult r = array_layout(s->array, &l);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->x > l.pitch || p->WidthInBytes > l.pitch - s->x || s->y > l.rows || p->Height > l.rows - s->y ||
	    s->z > l.slices || p->Depth > l.slices - s->z)
		return CUDA_ERROR_INVALID_VALUE;
	*b = (struct box){l.address + (s->z * l.rows + s->y) * l.pitch + s->x, l.pitch, l.rows, KNOWN};
	return CUDA_SUCCESS;
}

static CUresult make_box(struct box *b, const struct side *s, const CUDA_MEMCPY3D *p)
{
	switch (s->type) {
	case CU_MEMORYTYPE_HOST:
		b->address = PTR(s->host);
		b->kind = kind_of(b->address);
		break;
	case CU_MEMORYTYPE_DEVICE:
		b->address = s->device;
		b->kind = KNOWN;
		break;
	case CU_MEMORYTYPE_UNIFIED:
		b->address = s->device;
		b->kind = kind_of(s->device);
		break;
	case CU_MEMORYTYPE_ARRAY:
		return array_box(b, s, p);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	b->pitch = s->pitch ? s->pitch : p->WidthInBytes + s->x;
	b->height = s->height ? s->height : p->Height + s->y;
	if (b->pitch < p->WidthInBytes + s->x || b->height < p->Height + s->y)
		return CUDA_ERROR_INVALID_VALUE;
	b->address += (s->z * b->height + s->y) * b->pitch + s->x;
	return CUDA_SUCCESS;
}

CUresult boxes_of(const CUDA_MEMCPY3D *p, struct box *dst, struct box *src)
{
	struct side from = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY, p->srcZ,
		p->srcPitch, p->srcHeight};
	struct side to = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, p->dstZ,
		p->dstPitch, p->dstHeight};
	CUresult r = make_box(src, &from, p);
	return r == CUDA_SUCCESS ? make_box(dst, &to, p) : r;
}

void box_args(struct call *c, const struct box *dst, const struct box *src, uint64_t w, uint64_t h, uint64_t d)
{
	arg(c, dst->address);
	arg(c, src->address);
	arg(c, (uint64_t)dst->kind);
	arg(c, (uint64_t)src->kind);
	arg(c, w);
	arg(c, h);
	arg(c, d);
	arg(c, dst->pitch);
	arg(c, dst->height);
	arg(c, src->pitch);
	arg(c, src->height);
}

static CUresult box_message(const struct box *dst, const struct box *src, uint64_t w, uint64_t h, uint64_t d,
                            CUstream stream, bool async, uint8_t *packed)
{
	struct call c;
	call_begin(&c, OP_MEMCPY3D);
	box_args(&c, dst, src, w, h, d);
	arg(&c, PTR(stream));
	arg(&c, async ? ASYNC : 0);
	uint8_t *at = packed;
	if (src->kind == PAGEABLE) {
		for (uint64_t z = 0; z < d; z++)
			for (uint64_t y = 0; y < h; y++, at += w)
				memcpy(at, box_row(src, y, z), w);
		raw_piece(&c, packed, w * h * d);
	}
	c.into = packed;
	c.into_len = packed ? w * h * d : 0;
	CUresult r = call_send(&c);
	at = packed;
	if (r == CUDA_SUCCESS && dst->kind == PAGEABLE && c.reply == packed && c.reply_len == w * h * d)
		for (uint64_t z = 0; z < d; z++)
			for (uint64_t y = 0; y < h; y++, at += w)
				memcpy(box_row(dst, y, z), at, w);
	call_end(&c);
	return r;
}

static CUresult copy_box(struct box dst, struct box src, uint64_t w, uint64_t h, uint64_t d, CUstream stream,
                         bool async)
{
	if (w == 0 || h == 0 || d == 0)
		return CUDA_SUCCESS;
	if (dst.kind == KNOWN && src.kind == KNOWN)
		return box_message(&dst, &src, w, h, d, stream, async, NULL);
	if (dst.kind == PAGEABLE && src.kind == PAGEABLE) {
		CUresult r = SIMPLE(OP_cuStreamSynchronize, PTR(stream));
		for (uint64_t z = 0; r == CUDA_SUCCESS && z < d; z++)
			for (uint64_t y = 0; y < h; y++)
				memmove(box_row(&dst, y, z), box_row(&src, y, z), w);
		return r;
	}
	if (w > MAX_PAYLOAD)
		return CUDA_ERROR_INVALID_VALUE;
	/* Rows a message, and slices where all rows of one fit. */
	uint64_t rows = MESSAGE_BYTES / w > 0 ? MESSAGE_BYTES / w : 1, slices = rows / h;
	if (rows > h)
		rows = h;
	if (slices == 0)
		slices = 1;
	if (slices > d)
		slices = d;
	uint8_t *packed = malloc(w * rows * slices);
	if (!packed)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CUDA_SUCCESS;
	for (uint64_t z = 0; r == CUDA_SUCCESS && z < d; z += slices)
		for (uint64_t y = 0; r == CUDA_SUCCESS && y < h; y += rows) {
			struct box to = dst, from = src;
			to.address = PTR(box_row(&dst, y, z));
			from.address = PTR(box_row(&src, y, z));
			r = box_message(&to, &from, w, h - y < rows ? h - y : rows, d - z < slices ? d - z : slices, stream, async,
			                packed);
		}
	free(packed);
	return r;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	struct box dst, src;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = boxes_of(p, &dst, &src);
	return r == CUDA_SUCCESS ? copy_box(dst, src, p->WidthInBytes, p->Height, p->Depth, stream, async) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D q = {
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost,
		.srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost,
		.dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = 1,
	};
	return copy_3d(&q, stream, async);
}

/* CUDA_MEMCPY3D_PEER is CUDA_MEMCPY3D with contexts where that has reserved fields. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async)
{
	CUDA_MEMCPY3D q;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&q, p, sizeof q);
	return copy_3d(&q, stream, async);
}

CUresult hand_cuMemcpy2D_v2(const CUDA_MEMCPY2D *p, CUstream s) { return copy_2d(p, s, false); }
CUresult hand_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p, CUstream s) { return copy_2d(p, s, false); }
CUresult hand_cuMemcpy3D_v2(const CUDA_MEMCPY3D *p, CUstream s) { return copy_3d(p, s, false); }
CUresult hand_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p, CUstream s) { return copy_peer(p, s, false); }
EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream s) { return copy_2d(p, s, true); }
EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream s) { return copy_3d(p, s, true); }
EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream s) { return copy_peer(p, s, true); }

/* ---- sets ---- */

static CUresult set(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element, size_t w, size_t h, CUstream s,
                    bool async)
{
	return SIMPLE(OP_MEMSET, dst, pitch, value, element, w, h, PTR(s), async ? ASYNC : 0);
}

CUresult hand_cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n, CUstream s)
{
	return set(d, 0, v, 1, n, 1, s, false);
}
CUresult hand_cuMemsetD16_v2(CUdeviceptr d, unsigned short v, size_t n, CUstream s)
{
	return set(d, 0, v, 2, n, 1, s, false);
}
CUresult hand_cuMemsetD32_v2(CUdeviceptr d, unsigned int v, size_t n, CUstream s)
{
	return set(d, 0, v, 4, n, 1, s, false);
}
CUresult hand_cuMemsetD2D8_v2(CUdeviceptr d, size_t p, unsigned char v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 1, w, h, s, false);
}
CUresult hand_cuMemsetD2D16_v2(CUdeviceptr d, size_t p, unsigned short v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 2, w, h, s, false);
}
CUresult hand_cuMemsetD2D32_v2(CUdeviceptr d, size_t p, unsigned int v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 4, w, h, s, false);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s)
{
	return set(d, 0, v, 1, n, 1, s, true);
}
EXPORT CUresult cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream s)
{
	return set(d, 0, v, 2, n, 1, s, true);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr d, unsigned int v, size_t n, CUstream s)
{
	return set(d, 0, v, 4, n, 1, s, true);
}
EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr d, size_t p, unsigned char v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 1, w, h, s, true);
}
EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr d, size_t p, unsigned short v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 2, w, h, s, true);
}
EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr d, size_t p, unsigned int v, size_t w, size_t h, CUstream s)
{
	return set(d, p, v, 4, w, h, s, true);
}

/* ---- shareable handles ---- */

static CUresult export_fd(uint32_t op, void *shareable, uint64_t handle, CUmemAllocationHandleType type,
                          unsigned long long flags)
{
	if (!shareable)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	arg(&c, handle);
	arg(&c, type);
	arg(&c, flags);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS && c.nfds != 1)
		r = CUDA_ERROR_OPERATING_SYSTEM;
	if (r == CUDA_SUCCESS) {
		*(int *)shareable = c.fds[0];
		c.fds[0] = -1;
	}
	call_end(&c);
	return r;
}

static CUresult import_fd(uint32_t op, uint64_t *handle, void *os_handle, CUmemAllocationHandleType type)
{
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	int fd = (int)(intptr_t)os_handle;
	if (fcntl(fd, F_GETFD) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	arg(&c, type);
	c.send_fd = fd;
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*handle = out(&c, 0);
	call_end(&c);
	return r;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type, unsigned long long flags)
{
	return export_fd(OP_cuMemExportToShareableHandle, shareable, handle, type, flags);
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                               CUmemAllocationHandleType type)
{
	uint64_t h;
	CUresult r = handle ? import_fd(OP_cuMemImportFromShareableHandle, &h, os_handle, type) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*handle = h;
	return r;
}

EXPORT CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
	return export_fd(OP_cuMemPoolExportToShareableHandle, shareable, PTR(pool), type, flags);
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *os_handle, CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
	uint64_t h;
	CUresult r = pool && flags == 0 ? import_fd(OP_cuMemPoolImportFromShareableHandle, &h, os_handle, type)
	                                : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pool = (CUmemoryPool)(uintptr_t)h;
	return r;
}

/* ---- attributes whose size depends on which one it is ---- */

enum { ATTRIBUTE_BYTES = 64 };

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuPointerGetAttribute);
	arg(&c, attribute);
	arg(&c, ptr);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, data, ATTRIBUTE_BYTES);
	call_end(&c);
	return r;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	if (n == 0 || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuPointerGetAttributes);
	arg(&c, n);
	arg(&c, ptr);
	blob_piece(&c, attributes, n * sizeof attributes[0]);
	CUresult r = call_send(&c);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++)
		take_blob(&c, data[i], ATTRIBUTE_BYTES);
	call_end(&c);
	return r;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuPointerSetAttribute);
	arg(&c, attribute);
	arg(&c, ptr);
	blob_piece(&c, value, sizeof(int));
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuMemPoolGetAttribute);
	arg(&c, PTR(pool));
	arg(&c, attr);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, value, sizeof(cuuint64_t));
	call_end(&c);
	return r;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuMemPoolSetAttribute);
	arg(&c, PTR(pool));
	arg(&c, attr);
	blob_piece(&c, value, attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? sizeof(int) : sizeof(cuuint64_t));
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}

/* ---- tensor maps: how a bulk copy walks a tensor; what is in them is the executor's ---- */

enum { MAX_TENSOR_RANK = 5 };

static void tensor_args(struct call *c, int type, cuuint32_t rank, const void *address, const cuuint64_t *dim,
                        const cuuint64_t *strides, int interleave, int swizzle, int promotion, int fill)
{
	arg(c, SIGNED(type));
	arg(c, rank);
	arg(c, PTR(address));
	arg(c, SIGNED(interleave));
	arg(c, SIGNED(swizzle));
	arg(c, SIGNED(promotion));
	arg(c, SIGNED(fill));
	blob_piece(c, dim, rank * sizeof *dim);
	blob_piece(c, strides ? strides : dim, (rank - 1) * sizeof *strides);
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, cuuint32_t rank, void *address,
                                       const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *steps, int interleave, int swizzle, int promotion, int fill)
{
	if (!map || PTR(map) % _Alignof(CUtensorMap) != 0 || rank == 0 || rank > MAX_TENSOR_RANK || !dim ||
	    (rank > 1 && !strides) || !box || !steps)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuTensorMapEncodeTiled);
	tensor_args(&c, type, rank, address, dim, strides, interleave, swizzle, promotion, fill);
	blob_piece(&c, box, rank * sizeof *box);
	blob_piece(&c, steps, rank * sizeof *steps);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, map, sizeof *map);
	call_end(&c);
	return r;
}

EXPORT CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, int type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dim, const cuuint64_t *strides, const int *lower,
                                        const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                        const cuuint32_t *steps, int interleave, int swizzle, int promotion, int fill)
{
	if (!map || PTR(map) % _Alignof(CUtensorMap) != 0 || rank < 3 || rank > MAX_TENSOR_RANK || !dim || !strides ||
	    !lower || !upper || !steps)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuTensorMapEncodeIm2col);
	tensor_args(&c, type, rank, address, dim, strides, interleave, swizzle, promotion, fill);
	arg(&c, channels);
	arg(&c, pixels);
	blob_piece(&c, lower, (rank - 2) * sizeof *lower);
	blob_piece(&c, upper, (rank - 2) * sizeof *upper);
	blob_piece(&c, steps, rank * sizeof *steps);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, map, sizeof *map);
	call_end(&c);
	return r;
}

EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	if (!map || PTR(map) % _Alignof(CUtensorMap) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuTensorMapReplaceAddress);
	arg(&c, PTR(address));
	blob_piece(&c, map, sizeof *map);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, map, sizeof *map);
	call_end(&c);
	return r;
}
