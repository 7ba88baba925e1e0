/* What needs no server: error names, versions, cuGetProcAddress. See stub.h. */
#include "stub.h"

#include <string.h>

static const struct result *find_result(CUresult error)
{
	for (unsigned i = 0; i < result_count; i++)
		if (results[i].code == (int)error)
			return &results[i];
	return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	const struct result *r = find_result(error);
	*text = r ? r->name : NULL;
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	const struct result *r = find_result(error);
	*text = r ? r->text : NULL;
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = HF_CUDA_VERSION;
	return CUDA_SUCCESS;
}

/* There are no private tables here. */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
EXPORT CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

/* The first version with per-thread default streams. */
enum { PER_THREAD_SINCE = 7000 };

/* Answers as driver 580 does (compared for all functions and versions, 32-bit forms aside): a name that is not found is
 * no error of this form. The table has a base name's symbols together, oldest first. */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult ignored;
	if (!status)
		status = &ignored;
	if (!symbol || !pfn || version > HF_CUDA_VERSION ||
	    flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (const struct symbol *s = symbols; s->base; s++) {
		if (strcmp(s->base, symbol) != 0)
			continue;
		bool twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && s->per_thread;
		if (s->since <= version && (!twin || version >= PER_THREAD_SINCE)) {
			*pfn = twin ? s->per_thread : s->address;
			*status = CU_GET_PROC_ADDRESS_SUCCESS;
		} else if (!*pfn) {
			*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		}
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	void *p;
	if (!pfn)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuGetProcAddress_v2(symbol, &p, version, flags, NULL);
	if (r == CUDA_SUCCESS && !p)
		r = CUDA_ERROR_NOT_FOUND;
	if (r == CUDA_SUCCESS)
		*pfn = p;
	return r;
}
