/*
 * Variables of modules. They stay with the driver, but the ones that the program has asked for by name have a mirror in
 * held memory: FREEZE copies them there, so that every image has them, and THAW copies them back when the daemon has
 * put another state into the mirror. Their places are found outside of a freeze, when the program asks.
 *
 * A mirror is a block of its own: a table, then the variables. The table says what is in it, because an image may be
 * older than a variable whose place it has. Mirrors are never given back: an image may want them.
 *
 * All functions but hf_global want hf_mem_lock held.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

#define LARGEST (1ull << 30)
#define ALIGN 512u
#define HEAD (64u << 10)
#define MAGIC 0x31524d4c41424f4cull

struct entry { uint64_t serial, va, size, offset; };
enum { ENTRIES = (HEAD - 16) / sizeof(struct entry) };
struct head { uint64_t magic, count; struct entry entry[ENTRIES]; };
_Static_assert(sizeof(struct head) <= HEAD, "the table fits");

struct variable {
	CUdeviceptr va;
	uint64_t size, serial, offset; /* serial: of this variable only, as long as the process lives */
	uint64_t module;               /* CUmodule or CUlibrary, whose end is its own */
	void *ctx;
	struct hf_block *mirror;
	char *name; /* kept only for a recorder of ranges */
};
struct mirror { struct hf_block *b; uint64_t end; uint32_t count; };

static struct variable *variables; /* by address */
static size_t nvariables, variable_room;
static struct mirror *mirrors;
static size_t nmirrors;
static uint64_t last_serial;
static struct head head; /* the control thread's */

static size_t at_or_after(CUdeviceptr va)
{
	size_t lo = 0, hi = nvariables;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (variables[mid].va < va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void drop(size_t i)
{
	for (size_t k = 0; k < nmirrors; k++)
		if (mirrors[k].b == variables[i].mirror && --mirrors[k].count == 0)
			mirrors[k].end = HEAD;
	free(variables[i].name);
	memmove(variables + i, variables + i + 1, (--nvariables - i) * sizeof *variables);
}

/* An offset in m with size bytes free, behind all variables or in a gap; 0: there is none. */
static uint64_t place(const struct mirror *m, uint64_t size)
{
	if (m->count == ENTRIES || size > m->b->size - HEAD)
		return 0;
	uint64_t last = m->b->size - size;
	if (m->end <= last)
		return m->end;
	for (uint64_t at = HEAD, next; at <= last; at = next) {
		next = 0;
		for (size_t i = 0; i < nvariables && !next; i++) {
			const struct variable *v = &variables[i];
			if (v->mirror == m->b && v->offset < at + size && at < v->offset + v->size)
				next = (v->offset + v->size + ALIGN - 1) / ALIGN * ALIGN;
		}
		if (!next)
			return at;
	}
	return 0;
}

static struct mirror *find_place(int device, uint64_t size, uint64_t *offset)
{
	for (size_t i = 0; i < nmirrors; i++)
		if (mirrors[i].b->device == device && (*offset = place(&mirrors[i], size)))
			return &mirrors[i];
	struct mirror *list = realloc(mirrors, (nmirrors + 1) * sizeof *list);
	if (!list)
		return NULL;
	mirrors = list;
	struct hf_block *b;
	if (hf_block_new(&b, HEAD + size, device, HF_KIND_MIRROR, NULL, NULL) != CUDA_SUCCESS)
		return NULL;
	mirrors[nmirrors] = (struct mirror){ b, HEAD, 0 };
	*offset = HEAD;
	return &mirrors[nmirrors++];
}

/* Takes note of a variable: 1 if it is new, 0 if not, -1 if there is no memory for its mirror. */
static int note(CUdeviceptr va, uint64_t size, uint64_t module, void *ctx, int device, const char *name)
{
	size_t i = at_or_after(va);
	if (i < nvariables && variables[i].va == va) {
		struct variable *v = &variables[i];
		if (v->size == size && v->module == module && v->ctx == ctx)
			return 0;
		drop(i); /* of a module that ended unseen */
	}
	if (nvariables == variable_room) {
		size_t room = variable_room ? 2 * variable_room : 64;
		struct variable *p = realloc(variables, room * sizeof *p);
		if (!p)
			return -1;
		variables = p;
		variable_room = room;
	}
	uint64_t offset;
	struct mirror *m = find_place(device, size, &offset);
	if (!m)
		return -1;
	memmove(variables + i + 1, variables + i, (nvariables++ - i) * sizeof *variables);
	variables[i] = (struct variable){ va, size, ++last_serial, offset, module, ctx, m->b,
		hf_range_wanted() ? strdup(name) : NULL };
	m->count++;
	if (offset + size > m->end)
		m->end = (offset + size + ALIGN - 1) / ALIGN * ALIGN;
	return 1;
}

void hf_global(const char *call, uint32_t number, void *module, const char *name, CUdeviceptr va, uint64_t size)
{
	void *ctx;
	int device;
	if (hf_tapped)
		hf_note_alloc(HF_MEM_GLOBAL, va, size);
	if (!hf_attached || !va || !size || hf_current(&ctx, &device) != CUDA_SUCCESS)
		return;
	const char *why = "its module came in a way that is not followed";
	if (size > LARGEST)
		why = "it is too large";
	else if (module) {
		int mode = hf_captures() ? hf_relax() : HF_NOT_RELAXED; /* as hf_take_wait */
		pthread_mutex_lock(&hf_mem_lock);
		int r = note(va, size, (uint64_t)(uintptr_t)module, ctx, device, name);
		pthread_mutex_unlock(&hf_mem_lock);
		hf_unrelax(mode);
		if (r == 0)
			return;
		why = r > 0 ? NULL : "there is no memory for a copy";
	}
	if (why)
		hf_caveat(HF_CAVEAT_GLOBALS, 0, number, va,
			"%s: rollback leaves variable %.100s (%llu bytes) as it is: %s", call, name,
			(unsigned long long)size, why);
	else
		hf_caveat_gone(HF_CAVEAT_GLOBALS, va);
}

void hf_globals_each(void (*f)(CUdeviceptr, uint64_t, int, void *), void *arg)
{
	for (size_t i = 0; i < nvariables; i++) {
		const struct variable *v = &variables[i];
		size_t n = v->name ? strlen(v->name) : 0;
		struct hf_rec_variable *r = hf_tap_begin(HF_REC_VARIABLE, 0, sizeof *r + n);
		if (!r)
			return;
		r->module = hf_code_id((void *)(uintptr_t)v->module);
		r->addr = v->va;
		r->bytes = v->size;
		r->name = (uint32_t)n;
		r->spare = 0;
		if (n)
			memcpy(r + 1, v->name, n);
		hf_tap_end();
		f(v->va, v->size, v->mirror->device, arg);
	}
}

void hf_globals_forget(void *module)
{
	for (size_t i = nvariables; i-- > 0;)
		if (variables[i].module == (uint64_t)(uintptr_t)module)
			drop(i);
}

void hf_globals_forget_ctx(void *ctx)
{
	for (size_t i = nvariables; i-- > 0;)
		if (variables[i].ctx == ctx)
			drop(i);
}

/* Copies between v and its mirror, in the context of v, which *on says whether it is current already. */
static CUresult copy(const struct variable *v, bool back, void **on)
{
	if (*on != v->ctx) {
		if (*on) {
			real_cuCtxSynchronize();
			hf_pop();
		}
		*on = hf_push(v->ctx) ? v->ctx : NULL;
		if (!*on)
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	CUdeviceptr m = v->mirror->va + v->offset;
	return real_cuMemcpyDtoDAsync_v2(back ? v->va : m, back ? m : v->va, v->size, CU_STREAM_LEGACY);
}

static CUresult finish(void *on)
{
	if (!on)
		return CUDA_SUCCESS;
	CUresult r = real_cuCtxSynchronize();
	hf_pop();
	return r;
}

CUresult hf_globals_save(void)
{
	CUresult r = CUDA_SUCCESS;
	for (size_t k = 0; k < nmirrors && r == CUDA_SUCCESS; k++) {
		struct hf_block *b = mirrors[k].b;
		void *on = NULL;
		head.magic = MAGIC;
		head.count = 0;
		for (size_t i = 0; i < nvariables;) {
			struct variable *v = &variables[i];
			if (v->mirror != b) {
				i++;
				continue;
			}
			if (copy(v, false, &on) != CUDA_SUCCESS) {
				drop(i); /* the variable is gone; we did not see its module unloaded */
				continue;
			}
			head.entry[head.count++] = (struct entry){ v->serial, v->va, v->size, v->offset };
			i++;
		}
		r = finish(on);
		if (r == CUDA_SUCCESS &&
		    hf_push_any(b->device)) { /* else: no context is left on that device, and no variable */
			r = real_cuMemcpyHtoD_v2(b->va, &head, offsetof(struct head, entry) + head.count * sizeof(struct entry));
			/* From pageable memory it returns when the driver has the bytes; the mirror may be unmapped next. */
			if (r == CUDA_SUCCESS)
				r = real_cuCtxSynchronize();
			hf_pop();
		}
	}
	return r;
}

CUresult hf_globals_restore(void)
{
	CUresult first = CUDA_SUCCESS;
	for (size_t k = 0; k < nmirrors; k++) {
		struct hf_block *b = mirrors[k].b;
		if (!hf_push_any(b->device))
			continue;
		CUresult r = real_cuMemcpyDtoH_v2(&head, b->va, sizeof head);
		hf_pop();
		if (r == CUDA_SUCCESS && (head.magic != MAGIC || head.count > ENTRIES))
			r = CUDA_ERROR_INVALID_VALUE;
		void *on = NULL;
		for (uint64_t e = 0; r == CUDA_SUCCESS && e < head.count; e++) {
			size_t i = at_or_after(head.entry[e].va);
			const struct variable *v = &variables[i];
			if (i < nvariables && v->va == head.entry[e].va && v->serial == head.entry[e].serial &&
			    v->size == head.entry[e].size && v->offset == head.entry[e].offset && v->mirror == b)
				r = copy(v, true, &on);
		}
		CUresult end = finish(on);
		if (first == CUDA_SUCCESS)
			first = r != CUDA_SUCCESS ? r : end;
	}
	return first;
}

void hf_globals_fork_child(void)
{
	nvariables = nmirrors = 0;
	mirrors = NULL;
}
