/* Texture and surface objects, requirements of arrays: structures that the table declares by void pointers. See
 * stub.h. */
#include "stub.h"

/* ---- objects ---- */

static CUresult create(uint32_t op, unsigned long long *object, const CUDA_RESOURCE_DESC *resource,
                       const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
	if (!object || !resource || (op == OP_cuTexObjectCreate && !texture))
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	blob_piece(&c, resource, sizeof *resource);
	if (op == OP_cuTexObjectCreate) {
		blob_piece(&c, texture, sizeof *texture);
		blob_piece(&c, view, sizeof *view);
	}
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*object = out(&c, 0);
	call_end(&c);
	return r;
}

EXPORT CUresult cuTexObjectCreate(CUtexObject *object, const void *resource, const void *texture, const void *view)
{
	return create(OP_cuTexObjectCreate, object, resource, texture, view);
}
EXPORT CUresult cuSurfObjectCreate(CUsurfObject *object, const void *resource)
{
	return create(OP_cuSurfObjectCreate, object, resource, NULL, NULL);
}

/* A structure that belongs to a handle. */
static CUresult get(uint32_t op, const uint64_t *args, uint32_t nargs, void *dst, uint64_t bytes)
{
	if (!dst)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	for (uint32_t i = 0; i < nargs; i++)
		arg(&c, args[i]);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		take_blob(&c, dst, bytes);
	call_end(&c);
	return r;
}

static CUresult get_desc(uint32_t op, uint64_t object, void *dst, uint64_t bytes)
{
	return get(op, &object, 1, dst, bytes);
}

EXPORT CUresult cuTexObjectGetResourceDesc(void *desc, CUtexObject object)
{
	return get_desc(OP_cuTexObjectGetResourceDesc, object, desc, sizeof(CUDA_RESOURCE_DESC));
}
EXPORT CUresult cuTexObjectGetTextureDesc(void *desc, CUtexObject object)
{
	return get_desc(OP_cuTexObjectGetTextureDesc, object, desc, sizeof(CUDA_TEXTURE_DESC));
}
EXPORT CUresult cuTexObjectGetResourceViewDesc(void *desc, CUtexObject object)
{
	return get_desc(OP_cuTexObjectGetResourceViewDesc, object, desc, sizeof(CUDA_RESOURCE_VIEW_DESC));
}
EXPORT CUresult cuSurfObjectGetResourceDesc(void *desc, CUsurfObject object)
{
	return get_desc(OP_cuSurfObjectGetResourceDesc, object, desc, sizeof(CUDA_RESOURCE_DESC));
}

/* ---- arrays ---- */

EXPORT CUresult cuArrayGetMemoryRequirements(void *requirements, CUarray array, CUdevice device)
{
	return get(OP_cuArrayGetMemoryRequirements, (uint64_t[]){PTR(array), SIGNED(device)}, 2, requirements,
	           sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS));
}
EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(void *requirements, CUmipmappedArray mipmap, CUdevice device)
{
	return get(OP_cuMipmappedArrayGetMemoryRequirements, (uint64_t[]){PTR(mipmap), SIGNED(device)}, 2, requirements,
	           sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS));
}
