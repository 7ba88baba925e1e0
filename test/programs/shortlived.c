/* Many short-lived programs, some of which end without a word: shortlived [COUNT]. */
#include "test.h"

static int program(int i)
{
	CUcontext ctx = start(NULL);
	CUdeviceptr p;
	void *pinned;
	CU(cuMemAlloc_v2(&p, 3 << 20));
	CU(cuMemAllocHost_v2(&pinned, 10000));
	fill(function(load(), "fill"), p, 100, (uint32_t)i, NULL);
	if (i % 7 == 3)
		_exit(0); /* with work under way, everything allocated */
	check_words(p, 100, (uint32_t)i, "program");
	if (i % 7 == 5)
		kill(getpid(), 9);
	if (i % 2)
		CU(cuCtxDestroy_v2(ctx));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return program(atoi(argv[2]));
	int count = argc > 1 ? atoi(argv[1]) : 1000, running = 0;
	for (int i = 0; i < count || running > 0;) {
		if (i < count && running < 8) {
			char number[16];
			snprintf(number, sizeof number, "%d", i++);
			again((char *[]){argv[0], "program", number, NULL});
			running++;
			continue;
		}
		int status;
		CHECK(wait(&status) > 0);
		if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == 9))
			FAIL("a program ended with status %#x", (unsigned)status);
		running--;
	}
	return finish("shortlived");
}
