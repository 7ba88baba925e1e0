/*
 * The driver's own checkpoint of another process: ckpt PID STEP…, of lock, checkpoint, restore and unlock. Prints the
 * milliseconds of each; of the step "thread" the thread in which the driver restores that process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern int cuInit(unsigned), cuCheckpointProcessLock(int, void *), cuCheckpointProcessCheckpoint(int, void *),
	cuCheckpointProcessRestore(int, void *), cuCheckpointProcessUnlock(int, void *),
	cuCheckpointProcessGetRestoreThreadId(int, int *);

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
	if (argc < 3 || cuInit(0))
		return 2;
	for (int i = 2; i < argc; i++) {
		unsigned long long args[16];
		int tid, r = -1;
		double t = ms();
		memset(args, 0, sizeof args);
		if (!strcmp(argv[i], "thread")) {
			if ((r = cuCheckpointProcessGetRestoreThreadId(atoi(argv[1]), &tid)) == 0)
				printf("%d ", tid);
		} else
			for (unsigned j = 0; j < 4; j++) {
				if (strcmp(argv[i], steps[j].name))
					continue;
				if (j == 0)
					*(unsigned *)args = 10000; /* timeoutMs */
				r = steps[j].call(atoi(argv[1]), args);
				printf("%s %.1f ms ", steps[j].name, ms() - t);
			}
		if (r) {
			printf("error %d\n", r);
			return 1;
		}
	}
	printf("\n");
	return 0;
}
