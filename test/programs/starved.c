/*
 * Descriptors that the program, or the device, has no room for: the call that wanted one fails, and everything else
 * goes on. The test takes the device's when told "starve" and gives them back when told "feed"; each time it answers
 * with a line.
 */
#include "test.h"

#include <fcntl.h>
#include <sys/resource.h>

static void set_limit(struct rlimit l) { CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0); }

static void ask(const char *what)
{
	char line[16];
	printf("%s\n", what);
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin));
}

int main(int argc, char **argv)
{
	(void)argv;
	start(NULL);
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	size_t g;
	CUmemGenericAllocationHandle h, again;
	CU(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CU(cuMemCreate(&h, g, &prop, 0));
	int fd = -1;
	void *pinned = NULL;
	struct rlimit had, none;
	CHECK(getrlimit(RLIMIT_NOFILE, &had) == 0);
	int first = dup(0);
	CHECK(first >= 0 && close(first) == 0);
	none = (struct rlimit){(rlim_t)first, had.rlim_max};
	for (int i = 0; i < 3; i++) {
		set_limit(none);
		EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuMemExportToShareableHandle(&fd, h,
			CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuMemAllocHost_v2(&pinned, 4096));
		set_limit(had);
		CU(cuMemAllocHost_v2(&pinned, 4096));
		CU(cuMemFreeHost(pinned));
	}
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (argc > 1) {
		ask("starve");
		EXPECT(CUDA_ERROR_OPERATING_SYSTEM,
		       cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		ask("feed");
	}
	CU(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemRelease(again));
	CU(cuMemRelease(h));
	close(fd);
	return finish("starved");
}
