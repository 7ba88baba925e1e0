/* A fat binary that holds PTX, bare, in its wrapper and from a file; PTX from a file; what is no image. Layout of the
 * container: the header {magic 0xba55ed50, version 1, header bytes, payload bytes}, then entries {kind 1 (PTX),
 * version, header bytes, payload bytes, ..., arch}. */
#include "test.h"

static uint8_t image[16384];

static void put(size_t at, uint64_t v, size_t n) { memcpy(image + at, &v, n); }

static size_t build(void)
{
	size_t text = sizeof kernels, padded = (text + 7) & ~7ul;
	put(0, 0xba55ed50u, 4);
	put(4, 1, 2);
	put(6, 16, 2);
	put(8, 64 + padded, 8);
	put(16, 1, 2);          /* PTX */
	put(18, 0x101, 2);
	put(20, 64, 4);         /* header bytes */
	put(24, padded, 8);     /* payload bytes */
	put(16 + 28, 70, 4);    /* sm_70 */
	put(16 + 24, 7, 2);     /* PTX version 7.0: minor, major */
	put(16 + 24, 0, 2);
	put(16 + 26, 7, 2);
	put(16 + 32, 64, 4);    /* name offset */
	put(16 + 40, 0x11, 8);  /* 64-bit, Linux */
	memcpy(image + 16 + 64, kernels, text);
	return 16 + 64 + padded;
}

static void use(CUmodule m)
{
	CUdeviceptr p;
	CU(cuMemAlloc_v2(&p, 400));
	fill(function(m, "fill"), p, 100, 8, NULL);
	check_words(p, 100, 8, "fat binary");
	CU(cuMemFree_v2(p));
	CU(cuModuleUnload(m));
}

static void write_file(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "w");
	CHECK(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m;
	size_t n = build();
	if (!soft()) /* driver 580 crashes on a container as bare as this one */
		return finish("fatbinary");
	struct {
		int magic, version;
		const void *data;
		void *file;
	} wrapper = {0x466243b1, 1, image, NULL};
	CU(cuModuleLoadData(&m, image));
	use(m);
	CU(cuModuleLoadFatBinary(&m, image));
	use(m);
	CU(cuModuleLoadData(&m, &wrapper));
	use(m);
	char path[] = "/tmp/holdfast-test-XXXXXX";
	int fd = mkstemp(path);
	CHECK(fd >= 0);
	close(fd);
	write_file(path, image, n);
	CU(cuModuleLoad(&m, path));
	use(m);
	write_file(path, kernels, strlen(kernels)); /* without a NUL */
	CU(cuModuleLoad(&m, path));
	use(m);
	CUlibrary library;
	CU(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryUnload(library));
	put(8, 1ull << 60, 8); /* claims more than the file holds */
	write_file(path, image, n);
	CHECK(cuModuleLoad(&m, path) != CUDA_SUCCESS);
	unlink(path);
	EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, path));
	CU(cuCtxDestroy_v2(ctx));
	return finish("fatbinary");
}
