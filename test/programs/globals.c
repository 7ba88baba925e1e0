/* Module globals and constants: addresses, sizes, initial values, kernels that use them; two instances of one
 * module. */
#include "test.h"

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m = load(), other = load();
	CUdeviceptr p, q, t;
	size_t n;
	uint32_t v, table[4];
	CU(cuModuleGetGlobal_v2(&p, &n, m, "counter"));
	CHECK(n == 4);
	CU(cuModuleGetGlobal_v2(&q, NULL, other, "counter"));
	CHECK(p != q);
	CU(cuModuleGetGlobal_v2(&t, &n, m, "table"));
	CHECK(n == 16);
	CU(cuMemcpyDtoH_v2(table, t, 16));
	CHECK(table[0] == 10 && table[3] == 40);
	CUfunction bump = function(m, "bump");
	CU(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CU(cuMemcpyDtoH_v2(&v, p, 4));
	CHECK(v == 37);
	CU(cuMemcpyDtoH_v2(&v, q, 4));
	CHECK(v == 7);
	v = 1000;
	CU(cuMemcpyHtoD_v2(p, &v, 4));
	table[2] = 5;
	CU(cuMemcpyHtoD_v2(t, table, 16));
	CU(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CU(cuMemcpyDtoH_v2(&v, p, 4));
	CHECK(v == 1005);
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&p, &n, m, "no such"));
	unsigned count;
	CU(cuModuleGetFunctionCount(&count, m));
	CHECK(count == 8);
	CUfunction fs[8];
	CU(cuModuleEnumerateFunctions(fs, 8, m));
	CHECK(fs[0] && fs[7]);
	CU(cuModuleUnload(m));
	CU(cuModuleUnload(other));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(other));
	CU(cuCtxDestroy_v2(ctx));
	return finish("globals");
}
