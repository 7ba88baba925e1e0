/* The driver's own checkpoint of another process, all steps: ckpt PID. Prints the milliseconds of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern int cuInit(unsigned), cuCheckpointProcessLock(int, void *), cuCheckpointProcessCheckpoint(int, void *),
	cuCheckpointProcessRestore(int, void *), cuCheckpointProcessUnlock(int, void *);

static double ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; int (*call)(int, void *); } steps[] = {
		{ "lock", cuCheckpointProcessLock }, { "checkpoint", cuCheckpointProcessCheckpoint },
		{ "restore", cuCheckpointProcessRestore }, { "unlock", cuCheckpointProcessUnlock },
	};
	if (argc != 2 || cuInit(0))
		return 2;
	for (unsigned i = 0; i < 4; i++) {
		unsigned long long args[16];
		memset(args, 0, sizeof args);
		if (i == 0)
			*(unsigned *)args = 10000; /* timeoutMs */
		double t = ms();
		int r = steps[i].call(atoi(argv[1]), args);
		printf("%s %.1f ms ", steps[i].name, ms() - t);
		if (r) {
			printf("error %d\n", r);
			return 1;
		}
	}
	printf("\n");
	return 0;
}
