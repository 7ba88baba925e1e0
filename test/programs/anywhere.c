/* Host memory may have any address of user space before the driver starts, as the heaps of runtimes that choose theirs
 * at random do: the driver's own addresses are others. */
#include "test.h"
#include <sys/mman.h>

enum { BYTES = 1 << 20 };

int main(void)
{
	unsigned char *host[40];
	size_t n = 0;
	for (int bit = 33; bit < 47; bit++)
		for (int part = 0; part < 2; part++) {
			uintptr_t at = (UINT64_C(2) + (uint64_t)part) << (bit - 1);
			void *p = mmap((void *)at, BYTES, PROT_READ | PROT_WRITE,
			               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			if (p == (void *)at) /* else something else is there */
				host[n++] = p;
		}
	CHECK(n > 10);
	start(NULL);
	CUdeviceptr d;
	CU(cuMemAlloc_v2(&d, BYTES));
	for (size_t i = 0; i < n; i++) {
		CHECK(d + BYTES <= (uintptr_t)host[i] || d >= (uintptr_t)host[i] + BYTES);
		memset(host[i], (int)i + 1, BYTES);
		CU(cuMemcpyHtoD_v2(d, host[i], BYTES));
		memset(host[i], 0, BYTES);
		CU(cuMemcpyDtoH_v2(host[i], d, BYTES));
		CHECK(host[i][0] == i + 1 && host[i][BYTES - 1] == i + 1);
		memset(host[i], (int)i + 100, BYTES);
		CU(cuMemcpy(d, (CUdeviceptr)(uintptr_t)host[i], BYTES));
		memset(host[i], 0, BYTES);
		CU(cuMemcpy((CUdeviceptr)(uintptr_t)host[i], d, BYTES));
		CHECK(host[i][0] == i + 100 && host[i][BYTES - 1] == i + 100);
	}
	return finish("anywhere");
}
