/*
 * What code modules hold, and the kernels in it. Of code only what can be analysed is kept, PTX; programs free their
 * images right after loading, so it is a copy. ptxas leaves its input in a cubin when it keeps line numbers (-lineinfo,
 * as Triton does); by the digest of another cubin others may find the PTX that it was made from.
 *
 * The table of kernels is read without a lock: launches look into it. It only grows; a kernel that is gone leaves its
 * record behind, because a launch may hold it.
 */
#include "shim.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST_CUBIN (16u << 20)
#define LARGEST_CODE (256u << 20)  /* of one image */
#define KEPT (256u << 20)          /* of all, while nobody listens */
#define BEGINNING 512u             /* of what an outline shows */
#define PIECE (32u << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct code {
	struct code *next;
	uint64_t id, bytes, size; /* bytes of the image; of copy */
	void *handle, *ctx;       /* ctx NULL: a library */
	uint32_t kind, call;
	bool outline, assembled;   /* copy: the outline; the PTX that a cubin was assembled from */
	uint8_t *copy, digest[32]; /* digest: of a cubin, which is not copied */
};
static struct code *codes, **codes_end = &codes;
static uint64_t last_code, kept;

/* Open addressing; the size is a power of two. */
struct table { size_t size, used; struct hf_kernel *slot[]; };
static struct table *table;
static struct hf_kernel gone; /* in slots of kernels that are no more */
static uint32_t last_kernel;

static uint16_t u16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t u64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* ---- images ---- */

static const uint8_t *section(const uint8_t *elf, unsigned i)
{
	return elf + u64(elf + 40) + (uint64_t)i * u16(elf + 58); /* e_shoff, e_shentsize */
}

/*
 * The size of an ELF file that has been checked; 0: not sure. In ptxas's files the program headers come last. Some of
 * its section types have no contents although they have a size, so a section's size alone must not make us read on.
 */
static uint64_t elf_size(const uint8_t *elf)
{
	unsigned n = u16(elf + 60); /* e_shnum */
	uint64_t size = u64(elf + 40) + (uint64_t)u16(elf + 58) * n;
	uint64_t end = u64(elf + 32) + (uint64_t)u16(elf + 54) * u16(elf + 56); /* e_phoff, e_phentsize, e_phnum */
	if (elf[4] != 2 || u16(elf + 58) < 64) /* not of 64 bits */
		return 0;
	if (end > size)
		size = end;
	for (unsigned i = 1; i < n; i++) {
		const uint8_t *s = section(elf, i);
		uint64_t at = u64(s + 24), bytes = u64(s + 32); /* sh_offset, sh_size */
		if (u32(s + 4) == 8 || (at + bytes >= at && at + bytes <= size)) /* SHT_NOBITS */
			continue;
		if (at + bytes < at || u32(s + 4) >= 0x60000000) /* SHT_LOOS */
			return 0;
		size = at + bytes;
	}
	return size;
}

/* The PTX that the assembler left in a cubin: its lines, with zeros behind them. */
static const uint8_t *assembled_from(const uint8_t *elf, uint64_t size, uint64_t *length)
{
	static const char name[] = ".nv_debug_ptx_txt";
	unsigned n = u16(elf + 60), names = u16(elf + 62); /* e_shstrndx */
	if (names >= n)
		return NULL;
	uint64_t strings = u64(section(elf, names) + 24), room = u64(section(elf, names) + 32);
	if (strings > size || room > size - strings)
		return NULL;
	for (unsigned i = 1; i < n; i++) {
		const uint8_t *s = section(elf, i);
		uint64_t at = u64(s + 24);
		*length = u64(s + 32);
		if (u32(s) <= room && room - u32(s) >= sizeof name && !memcmp(elf + strings + u32(s), name, sizeof name))
			return u32(s + 4) != 8 && at <= size && *length <= size - at ? elf + at : NULL;
	}
	return NULL;
}

/*
 * What the program passes as code: an ELF, a fat binary (or its wrapper), or text. The driver has
 * read it just the same.
 */
uint32_t hf_image_kind(const void **image, uint64_t *size)
{
	const uint8_t *p = *image;
	*size = 0;
	if (!p)
		return HF_MODULE_UNKNOWN;
	if (u32(p) == 0x466243b1) { /* fatbinary wrapper: magic, version, pointer */
		*image = p = (const uint8_t *)(uintptr_t)u64(p + 8);
		if (!p)
			return HF_MODULE_UNKNOWN;
	}
	if (u32(p) == 0xba55ed50) { /* magic, u16 version, u16 header size, u64 size of the rest */
		*size = u64(p + 8) + u16(p + 6);
		return HF_MODULE_FATBIN;
	}
	if (!memcmp(p, "\177ELF", 4)) {
		*size = elf_size(p);
		return HF_MODULE_CUBIN;
	}
	*size = strlen((const char *)p);
	return HF_MODULE_PTX;
}

/*
 * The entries of a fat binary that hold PTX, as a fat binary of their own; or (outline) the headers of all entries with
 * the first bytes behind them. With dst NULL only the size. An entry: u16 kind (1 is PTX), u16, u32 header size, u64
 * size.
 */
static uint64_t entries(const uint8_t *image, uint64_t size, bool outline, uint8_t *dst)
{
	uint64_t at = u16(image + 6), n = at;
	if (at < 16 || at > size)
		return 0;
	if (dst)
		memcpy(dst, image, at);
	bool any = false;
	while (at + 64 <= size) {
		const uint8_t *e = image + at;
		uint64_t header = u32(e + 4), payload = u64(e + 8);
		if (header < 64 || header > size - at || payload > size - at - header)
			break;
		bool ptx = u16(e) == 1;
		uint64_t take = outline ? header + (payload < BEGINNING ? payload : BEGINNING) : ptx ? header + payload : 0;
		if (dst)
			memcpy(dst + n, e, take);
		n += take;
		any |= take > 0;
		at += header + payload;
	}
	if (dst && !outline) {
		uint64_t rest = n - u16(image + 6);
		memcpy(dst + 8, &rest, 8);
	}
	return any ? n : 0;
}

/* Makes c->copy, if there is anything to keep. With the lock held. */
static void copy_code(struct code *c, const uint8_t *image, uint64_t size)
{
	uint64_t n = size;
	if (!n)
		return;
	switch (c->kind) {
	case HF_MODULE_FATBIN:
		n = entries(image, size, false, NULL);
		if (!n) {
			c->outline = true;
			n = entries(image, size, true, NULL);
		}
		break;
	case HF_MODULE_CUBIN:
		if (n > LARGEST_CUBIN) {
			c->outline = true;
			n = PIECE;
			break;
		}
		hf_sha256(image, n, c->digest);
		image = assembled_from(image, size, &n);
		if (!image)
			return;
		c->assembled = true;
		break;
	case HF_MODULE_PTX:
		break;
	default:
		return;
	}
	if (!n || n > LARGEST_CODE || (!hf_tapped && kept + n > KEPT))
		return;
	c->copy = malloc(n);
	if (!c->copy)
		return;
	if (c->kind == HF_MODULE_FATBIN)
		entries(image, size, c->outline, c->copy);
	else
		memcpy(c->copy, image, n);
	c->size = n;
	kept += n;
}

/* With the lock held. */
static void drop_copy(struct code *c)
{
	kept -= c->copy ? c->size : 0;
	free(c->copy);
	c->copy = NULL;
	c->size = 0;
}

/* The code of c is what from points to: what was kept of it, or (whole) all of it. */
static void tell_code(const struct code *c, bool code, const uint8_t *from, bool whole)
{
	uint64_t size = !code ? 0 : whole ? c->bytes : c->size;
	uint32_t flags = whole ? HF_REC_WHOLE_FLAG :
		(c->outline ? HF_REC_OUTLINE_FLAG : 0) | (c->assembled ? HF_REC_ASSEMBLED_FLAG : 0);
	struct hf_rec_module *m = hf_tap_begin(HF_REC_MODULE, flags, sizeof *m);
	if (!m)
		return;
	m->id = c->id;
	m->handle = (uint64_t)(uintptr_t)c->handle;
	m->bytes = c->bytes;
	m->code = size;
	m->kind = c->kind;
	m->call = c->call;
	memcpy(m->digest, c->digest, sizeof m->digest);
	uint32_t epoch = hf_tap_epoch;
	hf_tap_end();
	for (uint64_t at = 0; at < size; at += PIECE) {
		uint32_t n = size - at < PIECE ? (uint32_t)(size - at) : PIECE;
		struct hf_rec_code *p = hf_tap_begin(HF_REC_CODE, 0, sizeof *p + n);
		if (!p)
			return;
		if (hf_tap_epoch != epoch) { /* another tap, which knows nothing of the module yet and is told all of it */
			hf_tap_drop();
			return;
		}
		p->module = c->id;
		p->offset = at;
		p->bytes = n;
		p->spare = 0;
		memcpy(p + 1, from + at, n);
		hf_tap_end();
	}
}

static uint32_t call_number(const char *name)
{
	for (unsigned i = 0; i < hf_ncalls; i++)
		if (hf_call_names[i] && !strcmp(hf_call_names[i], name))
			return i;
	return 0;
}

/* The file that the driver has just read. */
static void *map_file(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *p = MAP_FAILED;
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 64) {
		/* A page more: text ends with a zero. */
		*size = (uint64_t)st.st_size;
		p = mmap(NULL, *size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (uint64_t at = 0; p != MAP_FAILED && at < *size;) {
			ssize_t n = pread(fd, (char *)p + at, *size - at, (off_t)at);
			if (n <= 0) {
				munmap(p, *size + 4096);
				p = MAP_FAILED;
			} else
				at += (uint64_t)n;
		}
	}
	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}

void hf_code_loaded(void *handle, void *ctx, const void *image, const char *file, const char *call)
{
	struct code *c = calloc(1, sizeof *c);
	if (!c)
		return;
	uint64_t mapped = 0, size;
	void *map = file ? map_file(file, &mapped) : NULL;
	if (map)
		image = map;
	c->handle = handle;
	c->ctx = ctx;
	c->call = call_number(call);
	c->kind = hf_image_kind(&image, &size);
	if (map && size > mapped)
		size = mapped;
	c->bytes = size;
	pthread_mutex_lock(&lock);
	c->id = ++last_code;
	bool whole = hf_range_wanted();
	if (!whole)
		copy_code(c, image, size);
	*codes_end = c;
	codes_end = &c->next;
	if (hf_tapped)
		tell_code(c, true, whole ? image : c->copy, whole);
	if (hf_tap_records())
		drop_copy(c); /* the recorder has it, and nobody else will ask */
	pthread_mutex_unlock(&lock);
	if (map)
		munmap(map, mapped + 4096);
}

/* ---- kernels ---- */

static size_t place(const struct table *t, const void *handle)
{
	uint64_t h = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15ull;
	return (size_t)(h >> 32) & (t->size - 1);
}

static struct hf_kernel *find(const void *handle)
{
	struct table *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	if (!t)
		return NULL;
	for (size_t i = place(t, handle);; i = (i + 1) & (t->size - 1)) {
		struct hf_kernel *k = __atomic_load_n(&t->slot[i], __ATOMIC_ACQUIRE);
		if (!k || (k != &gone && k->handle == handle))
			return k;
	}
}

/* With the lock held: k takes the place of the kernel with its handle. */
static bool put(struct hf_kernel *k)
{
	struct table *t = table;
	if (!t || t->used * 2 >= t->size) {
		size_t live = 0;
		for (size_t i = 0; t && i < t->size; i++)
			live += t->slot[i] && t->slot[i] != &gone;
		size_t size = 1024;
		while (size < live * 4 + 4)
			size *= 2;
		struct table *n = calloc(1, sizeof *n + size * sizeof n->slot[0]);
		if (!n)
			return false;
		n->size = size;
		for (size_t i = 0; t && i < t->size; i++) {
			if (!t->slot[i] || t->slot[i] == &gone)
				continue;
			size_t at = place(n, t->slot[i]->handle);
			while (n->slot[at])
				at = (at + 1) & (size - 1);
			n->slot[at] = t->slot[i];
			n->used++;
		}
		__atomic_store_n(&table, n, __ATOMIC_RELEASE); /* the old one stays: somebody may be looking into it */
		t = n;
	}
	size_t at = place(t, k->handle);
	while (t->slot[at] && (t->slot[at] == &gone || t->slot[at]->handle != k->handle))
		at = (at + 1) & (t->size - 1);
	t->used += !t->slot[at];
	__atomic_store_n(&t->slot[at], k, __ATOMIC_RELEASE);
	return true;
}

static uint64_t code_of(const void *handle)
{
	for (struct code *c = codes; c; c = c->next)
		if (handle && c->handle == handle)
			return c->id;
	return 0;
}

uint64_t hf_code_id(const void *handle)
{
	pthread_mutex_lock(&lock);
	uint64_t id = code_of(handle);
	pthread_mutex_unlock(&lock);
	return id;
}

/* With the lock held: takes note of a kernel, unless it is known. */
static struct hf_kernel *note(void *handle, const char *name, uint64_t module, void *ctx, bool kernel)
{
	struct hf_kernel *k = find(handle);
	if (k && k->module == module && k->kernel == kernel && k->ctx == ctx && !strcmp(k->name, name))
		return k;
	k = calloc(1, sizeof *k);
	if (!k || !(k->name = strdup(name))) {
		free(k);
		return NULL;
	}
	k->handle = handle;
	k->module = module;
	k->ctx = ctx;
	k->kernel = kernel;
	k->id = ++last_kernel;
	if (!put(k)) {
		free(k->name);
		free(k);
		return NULL;
	}
	return k;
}

/* With the lock held: the kernels of that module, or of that context, are no more. */
static void forget(uint64_t module, const void *ctx)
{
	for (size_t i = 0; table && i < table->size; i++) {
		struct hf_kernel *k = table->slot[i];
		if (k && k != &gone && ((module && k->module == module) || (ctx && k->ctx == ctx)))
			__atomic_store_n(&table->slot[i], &gone, __ATOMIC_RELEASE);
	}
}

static void end_code(struct code **link)
{
	struct code *c = *link;
	forget(c->id, NULL);
	*link = c->next;
	if (!c->next)
		codes_end = link;
	struct hf_rec_unload *u = hf_tap_begin(HF_REC_UNLOAD, 0, sizeof *u);
	if (u) {
		u->module = c->id;
		hf_tap_end();
	}
	drop_copy(c);
	free(c);
}

void hf_code_unloaded(void *handle)
{
	pthread_mutex_lock(&lock);
	for (struct code **l = &codes; *l; l = &(*l)->next)
		if ((*l)->handle == handle) {
			end_code(l);
			break;
		}
	pthread_mutex_unlock(&lock);
}

void hf_code_forget_ctx(void *ctx)
{
	pthread_mutex_lock(&lock);
	for (struct code **l = &codes; *l;)
		if ((*l)->ctx == ctx)
			end_code(l);
		else
			l = &(*l)->next;
	forget(0, ctx);
	pthread_mutex_unlock(&lock);
}

void hf_code_tell_all(bool code)
{
	pthread_mutex_lock(&lock);
	for (struct code *c = codes; c && hf_tapped; c = c->next)
		tell_code(c, code, c->copy, false);
	pthread_mutex_unlock(&lock);
}

/* Where the parameters are; the driver says it for every kernel, also those without PTX. */
static void resolve(struct hf_kernel *k)
{
	struct hf_param *list = NULL;
	size_t n = 0, room = 0;
	bool direct = k->kernel && hf_have(HF_SYM_cuKernelGetParamInfo);
	void *f = k->handle;
	if (k->kernel && !direct && real_cuKernelGetFunction(&f, k->handle) != CUDA_SUCCESS)
		k->nolayout = true;
	if (!direct && !hf_have(HF_SYM_cuFuncGetParamInfo))
		k->nolayout = true;
	while (!k->nolayout) {
		size_t offset = 0, size = 0;
		CUresult r = direct ? real_cuKernelGetParamInfo(f, n, &offset, &size) :
			real_cuFuncGetParamInfo(f, n, &offset, &size);
		if (r == CUDA_ERROR_INVALID_VALUE)
			break; /* that was the last */
		if (r != CUDA_SUCCESS || n == HF_MAX_PARAMS || offset > HF_MAX_RECORD / 2 || size > HF_MAX_RECORD / 2) {
			k->nolayout = true;
			break;
		}
		if (n == room) {
			room = room ? 2 * room : 16;
			struct hf_param *p = realloc(list, room * sizeof *p);
			if (!p) {
				k->nolayout = true;
				break;
			}
			list = p;
		}
		list[n++] = (struct hf_param){ (uint32_t)offset, (uint32_t)size };
		if (offset + size > k->bytes)
			k->bytes = (uint32_t)(offset + size);
	}
	if (k->nolayout) {
		k->bytes = 0;
		n = 0;
	}
	k->params = list;
	k->nparams = (uint32_t)n;
	__atomic_store_n(&k->resolved, true, __ATOMIC_RELEASE);
}

/* A function that the program got by a call that we do not follow: ask the driver what it is. */
static struct hf_kernel *unknown(void *handle)
{
	const char *name = NULL;
	void *module = NULL, *ctx = NULL;
	uint64_t id = 0;
	if (!hf_have(HF_SYM_cuFuncGetName) || real_cuFuncGetName(&name, handle) != CUDA_SUCCESS || !name)
		name = "";
	if (hf_have(HF_SYM_cuFuncGetModule) && real_cuFuncGetModule(&module, handle) == CUDA_SUCCESS)
		module = hf_owner_of(module);
	real_cuCtxGetCurrent(&ctx);
	pthread_mutex_lock(&lock);
	id = code_of(module);
	/* The driver makes modules of its own from libraries: take the kernel of that name, if there is only one. */
	for (size_t i = 0; !id && *name && table && i < table->size; i++) {
		struct hf_kernel *k = table->slot[i];
		if (!k || k == &gone || !k->module || strcmp(k->name, name))
			continue;
		for (size_t j = i + 1; j < table->size; j++) {
			struct hf_kernel *o = table->slot[j];
			if (o && o != &gone && o->module && o->module != k->module && !strcmp(o->name, name))
				goto several;
		}
		id = k->module;
	}
several:;
	struct hf_kernel *k = note(handle, name, id, ctx, false);
	pthread_mutex_unlock(&lock);
	return k;
}

struct hf_kernel *hf_kernel(void *handle)
{
	struct hf_kernel *k = find(handle);
	if (HF_UNLIKELY(!k))
		k = unknown(handle);
	if (HF_LIKELY(k && __atomic_load_n(&k->resolved, __ATOMIC_ACQUIRE)))
		return k;
	pthread_mutex_lock(&lock);
	if (k && !k->resolved)
		resolve(k);
	pthread_mutex_unlock(&lock);
	return k;
}

/* What the driver says of a kernel beside its parameters. */
static void tell_function(const struct hf_kernel *k)
{
	enum { ATTRIBUTES = 16 }; /* CUfunction_attribute of CUDA 13.0 */
	struct hf_rec_function *r = hf_tap_begin(HF_REC_FUNCTION, 0, sizeof *r + ATTRIBUTES * sizeof(uint32_t));
	if (!r)
		return;
	uint32_t *to = (uint32_t *)(r + 1);
	r->kernel = k->id;
	r->attributes = ATTRIBUTES;
	for (int i = 0; i < ATTRIBUTES; i++) {
		void *f = k->handle;
		int v = -1;
		if (!k->kernel || real_cuKernelGetFunction(&f, k->handle) == CUDA_SUCCESS)
			if (real_cuFuncGetAttribute(&v, i, f) != CUDA_SUCCESS)
				v = -1;
		to[i] = (uint32_t)v;
	}
	hf_tap_end();
}

void hf_kernel_tell(struct hf_kernel *k)
{
	pthread_mutex_lock(&lock);
	size_t params = k->nparams * sizeof(struct hf_param), name = strlen(k->name);
	size_t most = HF_MAX_RECORD - sizeof(struct hf_rec_kernel) - params;
	if (name > most)
		name = most;
	struct hf_rec_kernel *r = k->told == hf_tap_epoch ? NULL :
		hf_tap_begin(HF_REC_KERNEL, k->nolayout ? HF_REC_NOLAYOUT_FLAG : 0, sizeof *r + params + name);
	if (r) {
		r->id = k->id;
		r->params = k->nparams;
		r->module = k->module;
		r->handle = (uint64_t)(uintptr_t)k->handle;
		r->name = (uint32_t)name;
		r->spare = 0;
		if (params)
			memcpy(r + 1, k->params, params);
		memcpy((char *)(r + 1) + params, k->name, name);
		__atomic_store_n(&k->told, hf_tap_epoch, __ATOMIC_RELEASE);
		hf_tap_end();
		if (hf_range_wanted())
			tell_function(k);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- the program's calls ---- */

/* Kernels that were unloaded are forgotten, so a handle that still has its name is the same kernel. */
static bool known(void *handle, const char *name, bool kernel)
{
	struct hf_kernel *k = find(handle);
	return k && k->kernel == kernel && !strcmp(k->name, name);
}

CUresult hf_cuModuleGetFunction(void *f, void *mod, void *name)
{
	CUresult r = real_cuModuleGetFunction(f, mod, name);
	if (r == CUDA_SUCCESS && hf_watching() && !known(*(void **)f, name, false)) {
		void *owner = hf_owner_of(mod), *ctx = NULL;
		real_cuCtxGetCurrent(&ctx);
		pthread_mutex_lock(&lock);
		note(*(void **)f, name, code_of(owner), ctx, false);
		pthread_mutex_unlock(&lock);
	}
	return r;
}

CUresult hf_cuLibraryGetKernel(void *kernel, void *lib, void *name)
{
	CUresult r = real_cuLibraryGetKernel(kernel, lib, name);
	if (r == CUDA_SUCCESS && hf_watching() && !known(*(void **)kernel, name, true)) {
		pthread_mutex_lock(&lock);
		note(*(void **)kernel, name, code_of(lib), NULL, true);
		pthread_mutex_unlock(&lock);
	}
	return r;
}

CUresult hf_cuKernelGetFunction(void *f, void *kernel)
{
	CUresult r = real_cuKernelGetFunction(f, kernel);
	if (r == CUDA_SUCCESS && hf_watching()) {
		void *ctx = NULL;
		real_cuCtxGetCurrent(&ctx);
		pthread_mutex_lock(&lock);
		struct hf_kernel *k = find(kernel);
		if (k)
			note(*(void **)f, k->name, k->module, ctx, false);
		pthread_mutex_unlock(&lock);
	}
	return r;
}

CUresult hf_cuLibraryEnumerateKernels(void *kernels, unsigned int n, void *lib)
{
	CUresult r = real_cuLibraryEnumerateKernels(kernels, n, lib);
	const char *name;
	if (r == CUDA_SUCCESS && hf_watching())
		for (unsigned i = 0; i < n; i++) {
			void *k = ((void **)kernels)[i];
			if (!k || !hf_have(HF_SYM_cuKernelGetName) || real_cuKernelGetName(&name, k) != CUDA_SUCCESS)
				continue;
			pthread_mutex_lock(&lock);
			note(k, name, code_of(lib), NULL, true);
			pthread_mutex_unlock(&lock);
		}
	return r;
}

/* ---- fork ---- */

void hf_code_fork_prepare(void) { pthread_mutex_lock(&lock); }
void hf_code_fork_parent(void) { pthread_mutex_unlock(&lock); }

/* The child has no driver; what described its parent's stays behind, unreachable. */
void hf_code_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	codes = NULL;
	codes_end = &codes;
	kept = 0;
	table = NULL;
}
