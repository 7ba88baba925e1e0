/* Images, launches, occupancy. See stub.h. */
#include "stub.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- images ---- */

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN 0xba55ed50u

/* How many bytes an image has by its own account: it comes without a length. room is how many may be read. 0: not an
 * image. */
static uint64_t image_size(const void *image, uint64_t room)
{
	uint32_t magic;
	memcpy(&magic, image, sizeof magic);
	if (magic == FATBIN) {
		struct {
			uint32_t magic;
			uint16_t version, header;
			uint64_t size;
		} h;
		if (room < sizeof h)
			return 0;
		memcpy(&h, image, sizeof h);
		return h.size > MAX_PAYLOAD || h.header + h.size > room ? 0 : h.header + h.size;
	}
	if (memcmp(image, ELFMAG, SELFMAG) == 0) {
		const uint8_t *p = image;
		Elf64_Ehdr e;
		if (room < sizeof e)
			return 0;
		memcpy(&e, p, sizeof e);
		uint64_t end = e.e_shoff + (uint64_t)e.e_shnum * e.e_shentsize,
		         ph_end = e.e_phoff + (uint64_t)e.e_phnum * e.e_phentsize;
		if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_shentsize < sizeof(Elf64_Shdr) || e.e_shoff > MAX_PAYLOAD ||
		    end > room || ph_end > room)
			return 0;
		if (ph_end > end)
			end = ph_end;
		for (unsigned i = 0; i < e.e_shnum; i++) {
			Elf64_Shdr s;
			memcpy(&s, p + e.e_shoff + (uint64_t)i * e.e_shentsize, sizeof s);
			if (s.sh_type == SHT_NOBITS)
				continue;
			if (s.sh_offset > room || s.sh_size > room - s.sh_offset)
				return 0;
			if (s.sh_offset + s.sh_size > end)
				end = s.sh_offset + s.sh_size;
		}
		return end > room ? 0 : end;
	}
	return strnlen(image, room);
}

/* The next blob is a log: it goes into the buffer that an option names. */
void store_log(struct call *c, unsigned n, const CUjit_option *options, void **values, CUjit_option buffer,
               CUjit_option size)
{
	uint64_t len;
	const void *log = next_blob(c, &len);
	char *dst = NULL;
	unsigned at = n;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == buffer)
			dst = values[i];
		if (options[i] == size)
			at = i;
	}
	if (at == n)
		return;
	uint64_t room = (uint32_t)PTR(values[at]); /* an unsigned int in the place of a pointer */
	if (len > room)
		len = room;
	if (dst && room > 0 && len == room)
		len--;
	if (dst && log)
		memcpy(dst, log, len);
	if (dst && room > 0)
		dst[len] = 0;
	values[at] = (void *)(uintptr_t)len;
}

struct load {
	const void *image;
	uint64_t room; /* bytes that may be read at image; 0: no limit known */
	unsigned n, library_n;
	CUjit_option *options;
	CUlibraryOption *library_options;
	void **values, **library_values;
};

static CUresult load(uint32_t op, const struct load *l, uint64_t *handle)
{
	const void *image = l->image;
	uint32_t magic;
	if (!image || !handle || (l->n > 0 && (!l->options || !l->values)))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&magic, image, sizeof magic);
	if (magic == FATBIN_WRAPPER && l->room == 0)
		memcpy(&image, (const char *)image + 8, sizeof image);
	uint64_t n = image ? image_size(image, l->room ? l->room : MAX_PAYLOAD) : 0;
	if (n == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	struct call c;
	call_begin(&c, op);
	blob_piece(&c, image, n);
	blob_piece(&c, l->options, l->n * sizeof l->options[0]);
	blob_piece(&c, l->values, l->n * sizeof l->values[0]);
	if (op == OP_LIBRARY_LOAD) {
		blob_piece(&c, l->library_options, l->library_n * sizeof l->library_options[0]);
		blob_piece(&c, l->library_values, l->library_n * sizeof l->library_values[0]);
	}
	CUresult r = c.payload > MAX_PAYLOAD ? CUDA_ERROR_INVALID_IMAGE : call_send(&c);
	if (r == CUDA_SUCCESS)
		*handle = out(&c, 0);
	if (c.reply) {
		store_log(&c, l->n, l->options, l->values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
		store_log(&c, l->n, l->options, l->values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
	}
	call_end(&c);
	return r;
}

CUresult read_image(const char *path, char **image, uint64_t *n)
{
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	CUresult r = CUDA_ERROR_INVALID_SOURCE;
	*image = NULL;
	*n = 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size < MAX_PAYLOAD) {
		uint64_t size = (uint64_t)st.st_size;
		ssize_t k = 0;
		*image = calloc(1, size + sizeof(uint32_t));
		while (*image && *n < size && ((k = read(fd, *image + *n, size - *n)) > 0 || (k < 0 && errno == EINTR)))
			*n += k > 0 ? (uint64_t)k : 0;
		r = *image && *n == size ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	close(fd);
	if (r != CUDA_SUCCESS)
		free(*image);
	return r;
}

static CUresult load_file(uint32_t op, struct load l, const char *path, uint64_t *handle)
{
	char *image;
	CUresult r = read_image(path, &image, &l.room);
	if (r != CUDA_SUCCESS)
		return r;
	l.image = image;
	r = load(op, &l, handle);
	free(image);
	return r;
}

static CUresult load_module(CUmodule *module, struct load l)
{
	uint64_t h;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = load(OP_MODULE_LOAD, &l, &h);
	if (r == CUDA_SUCCESS)
		*module = (CUmodule)(uintptr_t)h;
	return r;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return load_module(module, (struct load){.image = image});
}
EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return load_module(module, (struct load){.image = image});
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n, CUjit_option *options,
                                   void **values)
{
	return load_module(module, (struct load){.image = image, .n = n, .options = options, .values = values});
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	uint64_t h;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = load_file(OP_MODULE_LOAD, (struct load){0}, path, &h);
	if (r == CUDA_SUCCESS)
		*module = (CUmodule)(uintptr_t)h;
	return r;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                                  unsigned int n, CUlibraryOption *library_options, void **library_values,
                                  unsigned int library_n)
{
	uint64_t h;
	struct load l = {code, 0, n, library_n, options, library_options, values, library_values};
	if (!library || (library_n > 0 && !library_options))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = load(OP_LIBRARY_LOAD, &l, &h);
	if (r == CUDA_SUCCESS)
		*library = (CUlibrary)(uintptr_t)h;
	return r;
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                                      unsigned int n, CUlibraryOption *library_options, void **library_values,
                                      unsigned int library_n)
{
	uint64_t h;
	struct load l = {NULL, 0, n, library_n, options, library_options, values, library_values};
	if (!library || (library_n > 0 && !library_options))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = load_file(OP_LIBRARY_LOAD, l, path, &h);
	if (r == CUDA_SUCCESS)
		*library = (CUlibrary)(uintptr_t)h;
	return r;
}

/* ---- parameter layouts, asked for once a function ---- */

struct layout {
	uint64_t function, count, bytes;
	uint64_t (*offset_size)[2];
	struct layout *next;
};
enum { LAYOUT_BUCKETS = 256 };
static pthread_mutex_t layouts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct layout *layouts[LAYOUT_BUCKETS];

static struct layout **layout_bucket(uint64_t function) { return &layouts[function * 0x9e3779b97f4a7c15ull >> 56]; }

static void forget_layouts(void)
{
	pthread_mutex_lock(&layouts_lock);
	for (int i = 0; i < LAYOUT_BUCKETS; i++)
		while (layouts[i]) {
			struct layout *l = layouts[i];
			layouts[i] = l->next;
			free(l->offset_size);
			free(l);
		}
	pthread_mutex_unlock(&layouts_lock);
}

CUresult function_layout(uint64_t function, uint64_t *count, uint64_t *bytes, uint64_t (**offset_size)[2])
{
	struct call c;
	call_begin(&c, OP_FUNCTION_LAYOUT);
	arg(&c, function);
	CUresult r = call_send(&c);
	*count = out(&c, 0);
	*bytes = out(&c, 1);
	*offset_size = NULL;
	if (r == CUDA_SUCCESS) {
		uint64_t n = c.reply_len / sizeof **offset_size;
		if (n < *count || *bytes > MAX_PARAM_BYTES)
			r = CUDA_ERROR_UNKNOWN;
		for (uint64_t i = 0; r == CUDA_SUCCESS && i < *count; i++) {
			uint64_t os[2];
			memcpy(os, c.reply + i * sizeof os, sizeof os);
			if (os[0] > *bytes || os[1] > *bytes - os[0])
				r = CUDA_ERROR_UNKNOWN;
		}
		if (r == CUDA_SUCCESS && !(*offset_size = malloc(*count * sizeof **offset_size + 1)))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r == CUDA_SUCCESS && *count > 0)
			memcpy(*offset_size, c.reply, *count * sizeof **offset_size);
	}
	call_end(&c);
	return r;
}

static CUresult pack_by(const struct layout *l, void **params, uint8_t *buffer, uint64_t *n)
{
	if (l->count > 0 && !params)
		return CUDA_ERROR_INVALID_VALUE;
	*n = l->bytes;
	memset(buffer, 0, l->bytes);
	for (uint64_t i = 0; i < l->count; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(buffer + l->offset_size[i][0], params[i], l->offset_size[i][1]);
	}
	return CUDA_SUCCESS;
}

/* Packs by a layout in the table; false if it is not there. The lock is held, so that an unload does not take it
 * away. */
static bool pack_by_table(uint64_t function, void **params, uint8_t *buffer, uint64_t *n, CUresult *r)
{
	pthread_mutex_lock(&layouts_lock);
	struct layout *l = *layout_bucket(function);
	while (l && l->function != function)
		l = l->next;
	if (l)
		*r = pack_by(l, params, buffer, n);
	pthread_mutex_unlock(&layouts_lock);
	return l != NULL;
}

static CUresult pack_extra(void **extra, uint8_t *buffer, uint64_t *n)
{
	const void *p = NULL;
	size_t size = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			p = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
			size = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (size > MAX_PARAM_BYTES || (size > 0 && !p))
		return CUDA_ERROR_INVALID_VALUE;
	if (size > 0)
		memcpy(buffer, p, size);
	*n = size;
	return CUDA_SUCCESS;
}

CUresult pack_params(uint64_t function, void **params, void **extra, uint8_t *buffer, uint64_t *n)
{
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return pack_extra(extra, buffer, n);
	CUresult r;
	if (pack_by_table(function, params, buffer, n, &r))
		return r;
	struct layout *l = calloc(1, sizeof *l);
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->function = function;
	if ((r = function_layout(function, &l->count, &l->bytes, &l->offset_size)) != CUDA_SUCCESS) {
		free(l);
		return r;
	}
	r = pack_by(l, params, buffer, n); /* once it is in the table, an unload in another thread may take it away */
	pthread_mutex_lock(&layouts_lock);
	l->next = *layout_bucket(function);
	*layout_bucket(function) = l;
	pthread_mutex_unlock(&layouts_lock);
	return r;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	CUresult r = SIMPLE(OP_cuModuleUnload, PTR(module));
	forget_layouts();
	return r;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	CUresult r = SIMPLE(OP_cuLibraryUnload, PTR(library));
	forget_layouts();
	return r;
}

/* ---- launches ---- */

static void launch_args(struct call *c, CUfunction f, const CUlaunchConfig *q)
{
	arg(c, PTR(f));
	arg(c, q->gridDimX);
	arg(c, q->gridDimY);
	arg(c, q->gridDimZ);
	arg(c, q->blockDimX);
	arg(c, q->blockDimY);
	arg(c, q->blockDimZ);
	arg(c, q->sharedMemBytes);
}

static void attribute_piece(struct call *c, const CUlaunchConfig *q)
{
	blob_piece(c, q->attrs ? (const void *)q->attrs : "", q->numAttrs * sizeof q->attrs[0]);
}

static CUresult launch(CUfunction f, const CUlaunchConfig *q, bool cooperative, void **params, void **extra)
{
	uint8_t buffer[MAX_PARAM_BYTES];
	uint64_t n = 0;
	if (q->numAttrs > 0 && !q->attrs)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = pack_params(PTR(f), params, extra, buffer, &n);
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, OP_LAUNCH);
	launch_args(&c, f, q);
	arg(&c, PTR(q->hStream));
	arg(&c, cooperative);
	blob_piece(&c, buffer, n);
	attribute_piece(&c, q);
	r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                               unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
                               void **extra)
{
	return launch(f, &(CUlaunchConfig){gx, gy, gz, bx, by, bz, shared, stream, NULL, 0}, false, params, extra);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                          unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                          CUstream stream, void **params)
{
	return launch(f, &(CUlaunchConfig){gx, gy, gz, bx, by, bz, shared, stream, NULL, 0}, true, params, NULL);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	return config ? launch(f, config, false, params, extra) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	CUlaunchConfig q = *config;
	if (!q.hStream)
		q.hStream = CU_STREAM_PER_THREAD;
	return launch(f, &q, false, params, extra);
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
	return fn ? SIMPLE(OP_cuLaunchHostFunc, PTR(stream), PTR(fn), PTR(data)) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback fn, void *data, unsigned int flags)
{
	return fn ? SIMPLE(OP_cuStreamAddCallback, PTR(stream), PTR(fn), PTR(data), flags) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- names, kept for ever ---- */

static const char *intern(const char *p, uint64_t n)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct name {
		struct name *next;
		uint64_t n;
		char text[];
	} *names;
	pthread_mutex_lock(&lock);
	struct name *at = names;
	while (at && (at->n != n || memcmp(at->text, p, n) != 0))
		at = at->next;
	if (!at && (at = malloc(sizeof *at + n + 1))) {
		at->n = n;
		memcpy(at->text, p, n);
		at->text[n] = 0;
		at->next = names;
		names = at;
	}
	pthread_mutex_unlock(&lock);
	return at ? at->text : NULL;
}

static CUresult name_of(uint32_t op, uint64_t handle, const char **name)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	arg(&c, handle);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		uint64_t n;
		const char *p = next_blob(&c, &n);
		*name = intern(p ? p : "", n);
		if (!*name)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction f) { return name_of(OP_cuFuncGetName, PTR(f), name); }
EXPORT CUresult cuKernelGetName(const char **name, CUkernel k) { return name_of(OP_cuKernelGetName, PTR(k), name); }

/* ---- occupancy ---- */

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of,
                                                 size_t shared, int limit)
{
	if (!grid || !block)
		return CUDA_ERROR_INVALID_VALUE;
	if (shared_of)
		shared = shared_of(limit > 0 && limit < 1024 ? limit : 1024);
	struct call c;
	call_begin(&c, OP_cuOccupancyMaxPotentialBlockSize);
	arg(&c, PTR(f));
	arg(&c, shared);
	arg(&c, SIGNED(limit));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		*grid = (int)out(&c, 0);
		*block = (int)out(&c, 1);
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f,
                                                          CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                          unsigned int flags)
{
	(void)flags;
	return cuOccupancyMaxPotentialBlockSize(grid, block, f, shared_of, shared, limit);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction f, int block, size_t shared,
                                                                     unsigned int flags)
{
	(void)flags;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, block, shared);
}

/* What could run of a launch: one number. */
static CUresult launch_query(uint32_t op, int *n, CUfunction f, const CUlaunchConfig *q)
{
	if (!n || !q || (q->numAttrs > 0 && !q->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	launch_args(&c, f, q);
	attribute_piece(&c, q);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*n = (int)out(&c, 0);
	call_end(&c);
	return r;
}

EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction f, const CUlaunchConfig *q)
{
	return launch_query(OP_cuOccupancyMaxPotentialClusterSize, size, f, q);
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *q)
{
	return launch_query(OP_cuOccupancyMaxActiveClusters, n, f, q);
}
