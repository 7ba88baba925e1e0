/* Memory of one process in another: by memory handles, and by an exported pool. */
#include "test.h"

#include <fcntl.h>

enum { WORDS = 1000, LARGE = 3 << 20 };

/* What the first process tells the second. */
struct message {
	CUipcMemHandle small, large;
	CUmemPoolPtrExportData pointer;
};

static void transfer(int fd, void *p, size_t n, bool out)
{
	for (char *at = p; n > 0;) {
		ssize_t k = out ? write(fd, at, n) : read(fd, at, n);
		CHECK(k > 0 || errno == EINTR);
		if (k > 0)
			at += k, n -= (size_t)k;
	}
}

static void second(int fd)
{
	struct message m;
	CUdeviceptr small, large, again, p;
	CUmemoryPool pool;
	CUstream s;
	start(NULL);
	CUmodule module = load();
	CUfunction f = function(module, "inc");
	int pool_fd = receive_fd(fd);
	transfer(fd, &m, sizeof m, false);
	CU(cuIpcOpenMemHandle_v2(&small, m.small, 1));
	CU(cuIpcOpenMemHandle_v2(&again, m.small, 1));
	CHECK(small == again);
	CU(cuIpcOpenMemHandle_v2(&large, m.large, 1));
	check_words(small, WORDS, 100, "small");
	check_words(large + LARGE - WORDS * 4, WORDS, 7, "large");
	inc(f, small, WORDS, NULL);
	inc(f, large + LARGE - WORDS * 4, WORDS, NULL);
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)pool_fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		0));
	close(pool_fd);
	CHECK(cuMemAllocFromPoolAsync(&p, 64, pool, s) != CUDA_SUCCESS);
	CU(cuMemPoolImportPointer(&p, pool, &m.pointer));
	check_words(p, WORDS, 3, "pool");
	inc(f, p, WORDS, s);
	CU(cuCtxSynchronize());
	CU(cuMemFreeAsync(p, s));
	CU(cuStreamSynchronize(s));
	CU(cuIpcCloseMemHandle(small));
	check_words(small, WORDS, 101, "opened twice");
	CU(cuIpcCloseMemHandle(small));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(small));
	tell(fd);
	await(fd); /* the first process has freed its own */
	check_words(large + LARGE - WORDS * 4, WORDS, 8, "after its maker freed it");
	CU(cuIpcCloseMemHandle(large));
	memset(&m.small, 1, sizeof m.small);
	CHECK(cuIpcOpenMemHandle_v2(&small, m.small, 1) != CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		second(atoi(argv[1]));
		return 0;
	}
	int pair[2];
	char number[16];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && fcntl(pair[1], F_SETFD, 0) == 0);
	snprintf(number, sizeof number, "%d", pair[1]);
	pid_t pid = again((char *[]){argv[0], number, NULL});
	close(pair[1]);

	CUdevice dev;
	CUdeviceptr small, large, p;
	struct message m;
	start(&dev);
	CUmodule module = load();
	CUfunction f = function(module, "fill");
	CU(cuMemAlloc_v2(&small, WORDS * 4));
	CU(cuMemAlloc_v2(&large, LARGE));
	fill(f, small, WORDS, 100, NULL);
	fill(f, large + LARGE - WORDS * 4, WORDS, 7, NULL);
	CU(cuIpcGetMemHandle(&m.small, small));
	CU(cuIpcGetMemHandle(&m.large, large));
	CUmemoryPool pool;
	int fd;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                        .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
	CU(cuMemPoolCreate(&pool, &props));
	CU(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemAllocFromPoolAsync(&p, WORDS * 4, pool, NULL));
	fill(f, p, WORDS, 3, NULL);
	CU(cuCtxSynchronize());
	CU(cuMemPoolExportPointer(&m.pointer, p));
	send_fd(pair[0], fd);
	close(fd);
	transfer(pair[0], &m, sizeof m, true);
	await(pair[0]);
	check_words(small, WORDS, 101, "small, changed");
	check_words(p, WORDS, 4, "pool, changed");
	CU(cuMemFree_v2(large));
	tell(pair[0]);
	reap(pid);
	CU(cuMemFree_v2(small));
	CU(cuMemFree_v2(p));
	CU(cuMemPoolDestroy(pool));
	return finish("ipc");
}
