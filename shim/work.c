/*
 * Work in the form of records. These functions run between entering a call and making it, while the gate is watched;
 * they look at the program's arguments as the driver is about to do.
 */
#include "shim.h"
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * cuda.h of CUDA 13.0: CUlaunchAttribute, CUlaunchConfig, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_v2 (CUDA_MEMCPY3D_PEER has
 * contexts where that has reserved fields).
 */
struct attribute { int id; int pad; union { int number; struct { unsigned x, y, z; } dim; char pad[64]; } value; };
struct config { unsigned grid[3], block[3], shared; void *stream; const struct attribute *attrs; unsigned nattrs; };
struct side2d { size_t x, y; int type; const void *host; CUdeviceptr device; void *array; size_t pitch; };
struct copy2d { struct side2d src, dst; size_t width, height; };
struct side3d {
	size_t x, y, z, lod;
	int type;
	const void *host;
	CUdeviceptr device;
	void *array, *context;
	size_t pitch, height;
};
struct copy3d { struct side3d src, dst; size_t width, height, depth; };
enum { COOPERATIVE = 2, CLUSTER = 4, STREAM_SERIALIZATION = 6, PROGRAMMATIC_EVENT = 7 };
enum { HOST = 1, ARRAY = 3 }; /* CUmemorytype; device and unified are addresses as they are */

static __thread uint32_t tid;

uint32_t hf_thread(void)
{
	struct hf_slot *s = hf_slot;
	if (HF_LIKELY(s && s != hf_page.slot))
		return s->tid;
	return tid ? tid : (tid = (uint32_t)syscall(SYS_gettid));
}

/* ---- launches ---- */

size_t hf_pack(const struct hf_kernel *k, void *params, void *extra, uint8_t *dst, bool *known)
{
	void **list = extra, **values = params;
	const void *from = NULL;
	size_t n = 0;
	*known = true;
	/* CU_LAUNCH_PARAM_END is 0, _BUFFER_POINTER 1, _BUFFER_SIZE 2 */
	for (unsigned i = 0; list && i < 8 && list[2 * i]; i++) {
		if (list[2 * i] == (void *)1)
			from = list[2 * i + 1];
		else if (list[2 * i] == (void *)2)
			n = *(size_t *)list[2 * i + 1];
	}
	if (from && n) {
		if (n > HF_MAX_RECORD / 2) {
			*known = false;
			return 0;
		}
		if (dst)
			memcpy(dst, from, n);
		return n;
	}
	if (k->nolayout || (k->nparams && !values)) {
		*known = false;
		return 0;
	}
	if (!dst)
		return k->bytes;
	for (uint32_t i = 0; i < k->nparams; i++) {
		uint8_t *to = dst + k->params[i].offset;
		const void *p = values[i];
		switch (k->params[i].size) {
		case 8:
			memcpy(to, p, 8);
			break;
		case 4:
			memcpy(to, p, 4);
			break;
		default:
			memcpy(to, p, k->params[i].size);
		}
	}
	return k->bytes;
}

/* Fills everything but thread, cell and stream; returns the size of the record. The room behind it is hf_pack's. */
size_t hf_put_launch(struct hf_rec_launch *l, const struct hf_kernel *k, const struct hf_dims *d, unsigned shared,
	void *params, void *extra)
{
	bool known;
	l->kernel = k ? k->id : 0;
	l->shared = shared;
	memcpy(l->grid, d->grid, sizeof *d); /* grid, block, cluster */
	l->bytes = k ? (uint32_t)hf_pack(k, params, extra, (uint8_t *)(l + 1), &known) : 0;
	return sizeof *l + l->bytes;
}
_Static_assert(offsetof(struct hf_rec_launch, cluster) - offsetof(struct hf_rec_launch, grid) ==
	offsetof(struct hf_dims, cluster), "dims");

void hf_work_launch(void *f, const struct hf_dims *d, unsigned shared, void *stream, void *params, void *extra,
	uint32_t flags)
{
	struct hf_kernel *k = hf_kernel(f);
	bool known = false, captured = hf_stream_captures(stream);
	size_t n = k ? hf_pack(k, params, extra, NULL, &known) : 0;
	if (k)
		hf_kernel_told(k);
	struct hf_asking a = hf_asks(true, captured);
	flags |= (captured ? HF_REC_CAPTURED_FLAG : 0) | (known ? 0 : HF_REC_NOPARAMS_FLAG) |
		(a.asks ? HF_REC_ASKS_FLAG : 0);
	struct hf_rec_launch *l = hf_tap_begin(HF_REC_LAUNCH, flags, sizeof *l + n);
	if (!l) {
		hf_asks_not(a);
		return;
	}
	l->thread = hf_thread();
	l->cell = a.cell;
	l->stream = (uint64_t)(uintptr_t)stream;
	if (k && k->nparams && n)
		memset(l + 1, 0, n & ~(size_t)7); /* between parameters */
	hf_put_launch(l, k, d, shared, params, extra);
	hf_tap_end_work(a);
}

void hf_work_launch_ex(const void *config, void *f, void *params, void *extra, void *null)
{
	const struct config *c = config;
	if (!c)
		return; /* the driver will say what it thinks of that */
	struct hf_dims d = { { c->grid[0], c->grid[1], c->grid[2] }, { c->block[0], c->block[1], c->block[2] },
		{ 1, 1, 1 } };
	uint32_t flags = 0;
	for (unsigned i = 0; c->attrs && i < c->nattrs; i++) {
		const struct attribute *at = &c->attrs[i];
		switch (at->id) {
		case COOPERATIVE:
			flags |= at->value.number ? HF_REC_COOPERATIVE_FLAG : 0;
			break;
		case CLUSTER:
			memcpy(d.cluster, &at->value.dim, sizeof d.cluster);
			break;
		case STREAM_SERIALIZATION:
			flags |= at->value.number ? HF_REC_PROGRAMMATIC_FLAG : 0;
			break;
		case PROGRAMMATIC_EVENT:
			flags |= HF_REC_PROGRAMMATIC_FLAG;
		}
	}
	hf_work_launch(f, &d, c->shared, HF_STREAM(c->stream, null), params, extra, flags);
}

/* ---- copies and sets ---- */

/* A range is recorded: says which side is the host's where the call leaves it open, and what comes from there. */
static uint32_t copy_in_range(uint32_t flags, const struct hf_rec_copy *c, bool captured)
{
	if (flags & HF_REC_SET_FLAG)
		return flags;
	if (!(flags & (HF_REC_SRCHOST_FLAG | HF_REC_SRCARRAY_FLAG)) && hf_range_on_host(c->src))
		flags |= HF_REC_SRCHOST_FLAG;
	if (!(flags & (HF_REC_DSTHOST_FLAG | HF_REC_DSTARRAY_FLAG)) && hf_range_on_host(c->dst))
		flags |= HF_REC_DSTHOST_FLAG;
	if (flags & HF_REC_SRCHOST_FLAG && !(flags & HF_REC_DSTHOST_FLAG) && !captured && c->src)
		hf_range_host_data((const void *)(uintptr_t)c->src, c->src_pitch, c->src_slice, c->width, c->height, c->depth);
	return flags;
}

static void put_copy(uint32_t call, uint32_t flags, struct hf_rec_copy *from, void *stream)
{
	bool captured = hf_stream_captures(stream);
	if (HF_UNLIKELY(hf_range_open))
		flags = copy_in_range(flags, from, captured);
	struct hf_asking a = hf_asks(!(flags & HF_REC_DSTHOST_FLAG), captured);
	flags |= (captured ? HF_REC_CAPTURED_FLAG : 0) | (a.asks ? HF_REC_ASKS_FLAG : 0);
	struct hf_rec_copy *c = hf_tap_begin(HF_REC_COPY, flags, sizeof *c);
	if (!c) {
		hf_asks_not(a);
		return;
	}
	size_t head = offsetof(struct hf_rec_copy, call);
	memcpy((char *)c + head, (char *)from + head, sizeof *c - head);
	c->call = call;
	c->thread = hf_thread();
	c->cell = a.cell;
	c->stream = (uint64_t)(uintptr_t)stream;
	hf_tap_end_work(a);
}

void hf_work_copy(uint32_t call, uint32_t flags, uint64_t dst, uint64_t src, uint64_t bytes, void *stream)
{
	struct hf_rec_copy c = { .dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1 };
	put_copy(call, flags, &c, stream);
}

void hf_work_set(uint32_t call, CUdeviceptr dst, uint64_t pitch, uint64_t value, uint32_t element, uint64_t n,
	uint64_t height, void *stream)
{
	struct hf_rec_copy c = { .dst = dst, .dst_pitch = pitch, .src = value, .src_pitch = element,
		.width = n * element, .height = height, .depth = 1 };
	put_copy(call, HF_REC_SET_FLAG, &c, stream);
}

static uint64_t start(int type, const void *host, CUdeviceptr device, uint64_t offset, uint32_t host_flag,
	uint32_t array_flag, uint32_t *flags)
{
	if (type == ARRAY) {
		*flags |= array_flag;
		return 0;
	}
	*flags |= type == HOST ? host_flag : 0;
	return (type == HOST ? (uint64_t)(uintptr_t)host : device) + offset;
}

static uint32_t put2d(struct hf_rec_copy *c, const struct copy2d *p)
{
	uint32_t flags = 0;
	memset(c, 0, sizeof *c);
	c->dst = start(p->dst.type, p->dst.host, p->dst.device, p->dst.y * p->dst.pitch + p->dst.x,
		HF_REC_DSTHOST_FLAG, HF_REC_DSTARRAY_FLAG, &flags);
	c->src = start(p->src.type, p->src.host, p->src.device, p->src.y * p->src.pitch + p->src.x,
		HF_REC_SRCHOST_FLAG, HF_REC_SRCARRAY_FLAG, &flags);
	c->dst_pitch = p->dst.pitch;
	c->src_pitch = p->src.pitch;
	c->width = p->width;
	c->height = p->height;
	c->depth = 1;
	return flags;
}

static uint32_t put3d(struct hf_rec_copy *c, const struct copy3d *p)
{
	uint32_t flags = 0;
	memset(c, 0, sizeof *c);
	c->dst_slice = p->dst.pitch * p->dst.height;
	c->src_slice = p->src.pitch * p->src.height;
	c->dst = start(p->dst.type, p->dst.host, p->dst.device,
		p->dst.z * c->dst_slice + p->dst.y * p->dst.pitch + p->dst.x,
		HF_REC_DSTHOST_FLAG, HF_REC_DSTARRAY_FLAG, &flags);
	c->src = start(p->src.type, p->src.host, p->src.device,
		p->src.z * c->src_slice + p->src.y * p->src.pitch + p->src.x,
		HF_REC_SRCHOST_FLAG, HF_REC_SRCARRAY_FLAG, &flags);
	c->dst_pitch = p->dst.pitch;
	c->src_pitch = p->src.pitch;
	c->width = p->width;
	c->height = p->height;
	c->depth = p->depth;
	return flags;
}

void hf_put_copy3d(struct hf_rec_copy *c, const void *copy) { c->flags = (uint16_t)put3d(c, copy); }

void hf_work_copy2d(uint32_t call, const void *copy, void *stream)
{
	struct hf_rec_copy c;
	if (copy)
		put_copy(call, put2d(&c, copy), &c, stream);
}

void hf_work_copy3d(uint32_t call, const void *copy, void *stream)
{
	struct hf_rec_copy c;
	if (copy)
		put_copy(call, put3d(&c, copy), &c, stream);
}

/* ---- the rest ---- */

void hf_work_other(uint32_t call, void *stream)
{
	bool captured = hf_stream_captures(stream);
	struct hf_asking a = hf_asks(true, captured);
	struct hf_rec_other *o = hf_tap_begin(HF_REC_OTHER,
		(captured ? HF_REC_CAPTURED_FLAG : 0) | (a.asks ? HF_REC_ASKS_FLAG : 0), sizeof *o);
	if (!o) {
		hf_asks_not(a);
		return;
	}
	o->call = call;
	o->thread = hf_thread();
	o->cell = a.cell;
	o->spare = 0;
	o->stream = (uint64_t)(uintptr_t)stream;
	hf_tap_end_work(a);
}

void hf_work_host(uint32_t call, void *stream)
{
	if (HF_UNLIKELY(hf_range_open))
		hf_work_other(call, stream);
}

void hf_work_failed(CUresult r)
{
	struct hf_rec_failed *f = hf_tap_begin(HF_REC_FAILED, 0, sizeof *f);
	if (!f)
		return;
	f->thread = hf_thread();
	f->result = (uint32_t)r;
	hf_tap_end();
}
