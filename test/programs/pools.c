/* Stream-ordered memory: the default pool, a pool of our own, attributes, reuse, trimming. */
#include "test.h"

enum { N = 100000 };

int main(void)
{
	CUdevice dev;
	CUcontext ctx = start(&dev);
	CUfunction f_fill = function(load(), "fill");
	CUmemoryPool standard, current, own;
	CUstream s;
	CUdeviceptr a, b;
	cuuint64_t keep = ~0ull, bytes, high;
	int reuse = 0;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuDeviceGetDefaultMemPool(&standard, dev));
	CU(cuDeviceGetMemPool(&current, dev));
	CHECK(standard == current);
	CU(cuMemAllocAsync(&a, N * 4, s));
	fill(f_fill, a, N, 1, s);
	CU(cuStreamSynchronize(s));
	check_words(a, N, 1, "default pool");
	CU(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
	CHECK(bytes >= N * 4);
	CU(cuMemFreeAsync(a, s));
	CU(cuStreamSynchronize(s));
	CU(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
	CHECK(bytes == 0);

	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
	CU(cuMemPoolCreate(&own, &props));
	CU(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
	CHECK(bytes == keep);
	CU(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
	reuse = 5;
	CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
	CHECK(reuse == 0);
	CU(cuMemAllocFromPoolAsync(&a, N * 4, own, s));
	fill(f_fill, a, N, 2, s);
	CU(cuMemFreeAsync(a, s));
	CU(cuMemAllocFromPoolAsync(&b, N * 4, own, s));
	fill(f_fill, b, N, 3, s);
	CU(cuStreamSynchronize(s));
	check_words(b, N, 3, "own pool");
	CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
	CHECK(high >= N * 4);
	CUmemAccess_flags flags;
	CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
	CU(cuMemPoolGetAccess(&flags, own, &where));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuDeviceSetMemPool(dev, own));
	CU(cuDeviceGetMemPool(&current, dev));
	CHECK(current == own);
	CU(cuDeviceSetMemPool(dev, standard));
	CU(cuMemFree_v2(b)); /* frees pool memory too */
	CU(cuMemPoolTrimTo(own, 0));
	CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
	CHECK(bytes == 0);
	CU(cuMemPoolDestroy(own));
	CU(cuCtxDestroy_v2(ctx));
	return finish("pools");
}
