/* What a launch costs on the null driver, in ns: the best of some rounds. Waits for a line on standard input before it
 * begins. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern int cuInit(unsigned), cuModuleLoadData(void **, const void *),
	cuModuleGetFunction(void **, void *, const char *),
	cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
	void **);

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	/* launches a round, rounds, ns between launches */
	long n = argc > 1 ? atol(argv[1]) : 20000, rounds = argc > 2 ? atol(argv[2]) : 50;
	double gap = argc > 3 ? atof(argv[3]) : 0, best = 1e18, all = 0;
	void *m, *f, *params[10];
	uint64_t values[10] = { 0 };
	for (int i = 0; i < 10; i++)
		params[i] = &values[i];
	if (cuInit(0) || cuModuleLoadData(&m, ".version 8.0\n.target sm_90\n") || cuModuleGetFunction(&f, m, "k"))
		return 1;
	printf("ready\n");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (long r = 0; r < rounds; r++) {
		double begun = now(), next = begun;
		for (long i = 0; i < n; i++) {
			values[0]++;
			cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
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
