/* What a graph launch costs on the null driver whose 200 kernel nodes all get parameters before each, in ns: the best
 * and the mean of some rounds. The argument says what takes turns: 1: the parameters stay; n: n sets of them; 0: they
 * are always new. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct kernel_node { void *f; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *ctx; };
extern int cuInit(unsigned), cuModuleLoadData(void **, const void *),
	cuModuleGetFunction(void **, void *, const char *),
	cuGraphInstantiateWithFlags(void **, void *, unsigned long long),
	cuGraphExecKernelNodeSetParams_v2(void *, void *, const struct kernel_node *),
	cuGraphLaunch(void *, void *);

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 200, rounds = argc > 2 ? atol(argv[2]) : 10,
		turns = argc > 3 ? atol(argv[3]) : 2, launches = 0;
	double gap = argc > 4 ? atof(argv[4]) : 0, best = 1e18, all = 0;
	unsigned long long values[10] = { 0 };
	void *m, *f, *x, *params[10];
	for (int i = 0; i < 10; i++)
		params[i] = &values[i];
	if (cuInit(0) || cuModuleLoadData(&m, ".version 8.0\n.target sm_90\n") || cuModuleGetFunction(&f, m, "k") ||
		cuGraphInstantiateWithFlags(&x, (void *)80, 0))
		return 1;
	struct kernel_node p = { .f = f, .grid = { 8, 1, 1 }, .block = { 128, 1, 1 }, .params = params };
	printf("ready\n");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (long r = 0; r < rounds; r++) {
		double begun = now(), next = begun;
		for (long i = 0; i < n; i++, launches++) {
			for (unsigned long long k = 0; k < 200; k++) {
				for (int v = 0; v < 10; v++)
					values[v] = 0x7f0000000000 +
						4096 * (k + 200 * (unsigned long long)(turns ? launches % turns : launches));
				cuGraphExecKernelNodeSetParams_v2(x, (void *)(k + 1), &p);
			}
			cuGraphLaunch(x, NULL);
			if (gap)
				for (next += gap; now() < next;)
					;
		}
		double t = (now() - begun) / (double)n;
		best = t < best ? t : best;
		all += t;
	}
	printf("%.1f %.1f\n", best, all / (double)rounds);
	return 0;
}
