/* Linking of modules. The result that a program gets as a cubin is PTX; it hands it to a load call as it would hand a
 * cubin. See stub.h. */
#include "stub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What the program's options name lives as long as the link; so does the image. */
struct linking {
	struct linking *next;
	CUlinkState state;
	unsigned n;
	CUjit_option *options;
	void **values, **given; /* the program's values, and copies: the driver overwrites buffer sizes with lengths */
	char *image;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct linking *links;

static struct linking *find(CUlinkState state, bool remove)
{
	pthread_mutex_lock(&lock);
	struct linking **at = &links;
	while (*at && (*at)->state != state)
		at = &(*at)->next;
	struct linking *l = *at;
	if (l && remove)
		*at = l->next;
	pthread_mutex_unlock(&lock);
	return l;
}

static void forget(struct linking *l)
{
	free(l->options);
	free(l->given);
	free(l->image);
	free(l);
}

/* Takes the log off the reply. If it says something, the program gets it; else what it got before stays. */
static void log_of(const struct linking *l, struct call *c)
{
	uint64_t len = 0;
	if (c->reply_len >= sizeof len)
		memcpy(&len, c->reply, sizeof len);
	if (len == 0 || len == NULL_BLOB) {
		next_blob(c, &len);
		return;
	}
	for (unsigned i = 0; i < l->n; i++)
		if (l->options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			l->values[i] = l->given[i];
	store_log(c, l->n, l->options, l->values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

EXPORT CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *options, void **values, CUlinkState *state)
{
	if (!state || (n > 0 && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	struct linking *l = calloc(1, sizeof *l);
	if (!l || !(l->options = malloc(n * sizeof *options + 1)) || !(l->given = malloc(n * sizeof *values + 1))) {
		if (l)
			forget(l);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	uint64_t limit = 0; /* of registers */
	for (unsigned i = 0; i < n; i++)
		if (options[i] == CU_JIT_MAX_REGISTERS)
			limit = (uint32_t)PTR(values[i]);
	l->n = n;
	l->values = values;
	if (n > 0) {
		memcpy(l->options, options, n * sizeof *options);
		memcpy(l->given, values, n * sizeof *values);
	}
	struct call c;
	call_begin(&c, OP_cuLinkCreate);
	arg(&c, limit);
	CUresult r = call_send(&c);
	l->state = (CUlinkState)(uintptr_t)out(&c, 0);
	call_end(&c);
	if (r != CUDA_SUCCESS) {
		forget(l);
		return r;
	}
	pthread_mutex_lock(&lock);
	l->next = links;
	links = l;
	pthread_mutex_unlock(&lock);
	*state = l->state;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkCreate(unsigned int n, CUjit_option *options, void **values, CUlinkState *state)
{
	return cuLinkCreate_v2(n, options, values, state);
}

/* Options of one input are for its compilation, and nothing is compiled here. */
EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                                 unsigned int n, CUjit_option *options, void **values)
{
	(void)n, (void)options, (void)values;
	const struct linking *l = find(state, false);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || size == 0 || size > MAX_PAYLOAD / 2)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuLinkAddData);
	arg(&c, PTR(state));
	arg(&c, type);
	blob_piece(&c, data, size);
	string_piece(&c, name ? name : "");
	CUresult r = call_send(&c);
	log_of(l, &c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                              unsigned int n, CUjit_option *options, void **values)
{
	return cuLinkAddData_v2(state, type, data, size, name, n, options, values);
}

EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int n,
                                 CUjit_option *options, void **values)
{
	char *image;
	uint64_t size;
	CUresult r = read_image(path, &image, &size);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuLinkAddData_v2(state, type, image, size, path, n, options, values);
	free(image);
	return r;
}

EXPORT CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int n,
                              CUjit_option *options, void **values)
{
	return cuLinkAddFile_v2(state, type, path, n, options, values);
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
	struct linking *l = find(state, false);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuLinkComplete);
	arg(&c, PTR(state));
	CUresult r = call_send(&c);
	log_of(l, &c);
	if (r == CUDA_SUCCESS) {
		uint64_t n;
		const void *p = next_blob(&c, &n);
		char *copy = calloc(1, n + 1); /* text ends with a NUL */
		if (p && copy) {
			memcpy(copy, p, n);
			free(l->image);
			*image = l->image = copy;
			if (size)
				*size = n + 1;
		} else {
			free(copy);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
	struct linking *l = find(state, true);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	forget(l);
	return SIMPLE(OP_cuLinkDestroy, PTR(state));
}
