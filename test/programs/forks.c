/* A fork before the driver is initialised is a program of its own; after it, the child has no device and nothing of the
 * parent's, but may start another program. What the parent's other threads do meanwhile makes no difference. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>

/* Open descriptors, the one that counts left out; what they are, if there are more than expected. */
static int descriptors(int expected)
{
	int n = -1;
	DIR *d = opendir("/proc/self/fd");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	rewinddir(d);
	for (struct dirent *e; n > expected && (e = readdir(d));) {
		char to[256] = "";
		if (readlinkat(dirfd(d), e->d_name, to, sizeof to - 1) > 0)
			fprintf(stderr, "descriptor %s: %s\n", e->d_name, to);
	}
	closedir(d);
	return n;
}

static int program(void)
{
	CUcontext ctx = start(NULL);
	CUdeviceptr p;
	CU(cuMemAlloc_v2(&p, 400));
	fill(function(load(), "fill"), p, 100, 3, NULL);
	check_words(p, 100, 3, "program");
	CU(cuCtxDestroy_v2(ctx));
	return 0;
}

static volatile bool enough;

static void *allocate(void *ctx)
{
	CU(cuCtxSetCurrent(ctx));
	while (!enough) {
		CUdeviceptr p;
		CU(cuMemAlloc_v2(&p, 4 << 20));
		CU(cuMemFree_v2(p));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return program();
	pid_t pid = fork();
	if (pid == 0)
		_exit(program());
	reap(pid);

	int before = descriptors(INT_MAX);
	CUcontext ctx = start(NULL);
	void *pinned;
	CUdeviceptr p;
	CU(cuMemAllocHost_v2(&pinned, 4096));
	CU(cuMemAlloc_v2(&p, 400));
	fill(function(load(), "fill"), p, 100, 9, NULL);
	bool is_soft = soft();
	pid = fork();
	if (pid == 0) {
		CUdeviceptr q;
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&q, 400));
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
		if (is_soft)
			CHECK(descriptors(before) == before);
		int version;
		CU(cuDriverGetVersion(&version)); /* what needs no device still answers */
		reap(again((char *[]){argv[0], "program", NULL}));
		exit(0); /* with exit handlers */
	}
	reap(pid);
	check_words(p, 100, 9, "parent after fork");
	pthread_t busy;
	CHECK(!pthread_create(&busy, NULL, allocate, ctx));
	for (int i = 0; i < 100; i++) {
		pid = fork();
		if (pid == 0) {
			if (is_soft)
				CHECK(descriptors(before) == before);
			_exit(0);
		}
		reap(pid);
	}
	enough = true;
	CHECK(!pthread_join(busy, NULL));
	reap(again((char *[]){argv[0], "program", NULL}));
	check_words(p, 100, 9, "parent after exec");
	CU(cuCtxDestroy_v2(ctx));
	return finish("forks");
}
