/* train: trains a small neural network with the CUDA driver API. It knows nothing of
 * holdfast. Several streams, asynchronous copies from pinned memory, dynamic shared
 * memory, atomics; every run on one GPU ends with the same bits.
 *
 *     train [--steps N] [--every N] [--out FILE] [--pad MIB] [--step-log FILE] [--device N]
 *
 * The task: tell four kinds of 16-dimensional points apart. Two layers, 64 hidden
 * units. The host makes each batch while the GPU works on the one before.
 *
 * --pad adds device memory that the network does not need but that changes as it
 * trains; its sum goes into the output file. --step-log appends the number of each step
 * and the time at which it was done (CLOCK_MONOTONIC, nanoseconds). */
#define _GNU_SOURCE
#include <cuda.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The kernels: train.ptx as a C string. */
__asm__(".section .rodata\n"
        ".globl train_ptx\n"
        "train_ptx:\n"
        ".incbin \"train.ptx\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char train_ptx[];

enum {
	BATCH = 64,
	IN = 16,
	HIDDEN = 64,
	OUT = 4,
	SLICES = 4, /* of a batch, in the gradient kernel */
	W1 = 0,
	B1 = W1 + HIDDEN * IN,
	W2 = B1 + HIDDEN,
	B2 = W2 + OUT * HIDDEN,
	PARAMS = B2 + OUT,
	CHUNK = 2 << 20,
};

static void check(CUresult r, const char *call, int line)
{
	if (r == CUDA_SUCCESS)
		return;
	const char *name = "unknown error", *text = "";
	cuGetErrorName(r, &name);
	cuGetErrorString(r, &text);
	fprintf(stderr, "train: %s (line %d): %s (%d): %s\n", call, line, name, r, text);
	exit(1);
}
#define CU(call) check((call), #call, __LINE__)

static void die(const char *what, const char *name)
{
	fprintf(stderr, "train: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

/* The data come from a generator of our own, so that they are the same everywhere. */
static uint64_t random_state = 0x243F6A8885A308D3u;

static uint32_t random_bits(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33);
}

static float random_unit(void) { return (float)(random_bits() & 0xffffff) / 16777216.0f; }

/* Somewhere between a triangle and a bell, mean 0. */
static float random_bell(void) { return random_unit() + random_unit() + random_unit() - 1.5f; }

static float centre[OUT][IN];

static void make_batch(float *x, uint32_t *label)
{
	for (int r = 0; r < BATCH; r++) {
		label[r] = random_bits() % OUT;
		for (int i = 0; i < IN; i++)
			x[r * IN + i] = centre[label[r]][i] + 1.2f * random_bell();
	}
}

static CUfunction k_layer, k_loss, k_back, k_grad, k_apply, k_fill, k_touch, k_sum;

static void launch(CUfunction f, unsigned gx, unsigned gy, unsigned bx, unsigned by, unsigned shared, CUstream s,
		void **args)
{
	CU(cuLaunchKernel(f, gx, gy, 1, bx, by, 1, shared, s, args, NULL));
}

static void layer(CUstream s, CUdeviceptr x, CUdeviceptr w, CUdeviceptr b, CUdeviceptr y, uint32_t nin, uint32_t nout,
		uint32_t relu)
{
	unsigned rows = nout >= 64 ? 4 : 16;
	void *args[] = {&x, &w, &b, &y, &nin, &nout, &relu};
	launch(k_layer, BATCH / rows, 1, nout, rows, rows * nin * sizeof(float), s, args);
}

static void grad(CUstream s, CUdeviceptr x, CUdeviceptr dy, CUdeviceptr gw, CUdeviceptr gb, uint32_t nin, uint32_t nout)
{
	uint32_t rows = BATCH / SLICES;
	unsigned o = nout >= 16 ? 16 : nout;
	void *args[] = {&x, &dy, &gw, &gb, &nin, &nout, &rows};
	launch(k_grad, nout / o, SLICES, nin, o, 0, s, args);
}

/* What the options say. */
static struct {
	long steps, every, pad;
	int device;
	const char *out, *step_log, *until;
} opt = {.steps = 2000, .every = 100};

static long number(const char *flag, const char *text, long max)
{
	char *end;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (errno || *end || end == text || v < 0 || v > max) {
		fprintf(stderr, "train: %s %s: not a number from 0 to %ld\n", flag, text, max);
		exit(2);
	}
	return v;
}

static void options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *flag = argv[i];
		if (i + 1 == argc || strncmp(flag, "--", 2) != 0) {
			fprintf(stderr, "usage: train [--steps N] [--every N] [--out FILE] [--pad MIB] [--step-log FILE] "
				"[--device N] [--until FILE]\n");
			exit(2);
		}
		const char *v = argv[++i];
		if (!strcmp(flag, "--steps"))
			opt.steps = number(flag, v, 1L << 40);
		else if (!strcmp(flag, "--every"))
			opt.every = number(flag, v, 1L << 40);
		else if (!strcmp(flag, "--pad"))
			opt.pad = number(flag, v, 1L << 24);
		else if (!strcmp(flag, "--device"))
			opt.device = (int)number(flag, v, 1023);
		else if (!strcmp(flag, "--out"))
			opt.out = v;
		else if (!strcmp(flag, "--step-log"))
			opt.step_log = v;
		else if (!strcmp(flag, "--until")) /* the last step waits until this file is there */
			opt.until = v;
		else {
			fprintf(stderr, "train: no option %s\n", flag);
			exit(2);
		}
	}
}

static FILE *step_log;

static void log_step(long step)
{
	if (!step_log)
		return;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	fprintf(step_log, "%ld %lld\n", step, t.tv_sec * 1000000000LL + t.tv_nsec);
	fflush(step_log);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (opt.step_log && !(step_log = fopen(opt.step_log, "a")))
		die("cannot append to", opt.step_log);

	CUdevice dev;
	CUcontext ctx;
	CUmodule mod;
	char name[128];
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, opt.device));
	CU(cuDeviceGetName(name, sizeof name, dev));
	CU(cuCtxCreate(&ctx, 0, dev));
	CU(cuModuleLoadData(&mod, train_ptx));
	CU(cuModuleGetFunction(&k_layer, mod, "layer"));
	CU(cuModuleGetFunction(&k_loss, mod, "loss"));
	CU(cuModuleGetFunction(&k_back, mod, "back"));
	CU(cuModuleGetFunction(&k_grad, mod, "grad"));
	CU(cuModuleGetFunction(&k_apply, mod, "apply"));
	CU(cuModuleGetFunction(&k_fill, mod, "pad_fill"));
	CU(cuModuleGetFunction(&k_touch, mod, "pad_touch"));
	CU(cuModuleGetFunction(&k_sum, mod, "pad_sum"));
	printf("train: %d parameters, %ld steps, %ld MiB of padding on %s\n", PARAMS, opt.steps, opt.pad, name);

	CUstream compute, upload, report;
	CU(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&upload, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&report, CU_STREAM_NON_BLOCKING));
	CUevent uploaded[2], consumed[2];
	for (int b = 0; b < 2; b++) {
		CU(cuEventCreate(&uploaded[b], CU_EVENT_DISABLE_TIMING));
		CU(cuEventCreate(&consumed[b], CU_EVENT_DISABLE_TIMING));
	}

	/* Device memory: two batches, activations and their gradients, parameters,
	 * momentum, gradients in fixed point, statistics. */
	CUdeviceptr x[2], label[2], h, dh, y, dy, p, v, g, stats, pad = 0;
	for (int b = 0; b < 2; b++) {
		CU(cuMemAlloc(&x[b], BATCH * IN * sizeof(float)));
		CU(cuMemAlloc(&label[b], BATCH * sizeof(uint32_t)));
	}
	CU(cuMemAlloc(&h, BATCH * HIDDEN * sizeof(float)));
	CU(cuMemAlloc(&dh, BATCH * HIDDEN * sizeof(float)));
	CU(cuMemAlloc(&y, BATCH * OUT * sizeof(float)));
	CU(cuMemAlloc(&dy, BATCH * OUT * sizeof(float)));
	CU(cuMemAlloc(&p, PARAMS * sizeof(float)));
	CU(cuMemAlloc(&v, PARAMS * sizeof(float)));
	CU(cuMemAlloc(&g, PARAMS * sizeof(int64_t)));
	CU(cuMemAlloc(&stats, 3 * sizeof(uint64_t)));

	/* Pinned host memory for what is copied asynchronously. */
	float *host_x[2];
	uint32_t *host_label[2];
	uint64_t *host_stats;
	for (int b = 0; b < 2; b++) {
		CU(cuMemHostAlloc((void **)&host_x[b], BATCH * IN * sizeof(float), CU_MEMHOSTALLOC_PORTABLE));
		CU(cuMemHostAlloc((void **)&host_label[b], BATCH * sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE));
	}
	CU(cuMemHostAlloc((void **)&host_stats, 3 * sizeof(uint64_t), CU_MEMHOSTALLOC_PORTABLE));

	/* The beginning. */
	static float params[PARAMS];
	for (int i = 0; i < HIDDEN * IN; i++)
		params[W1 + i] = 0.3f * random_bell();
	for (int i = 0; i < OUT * HIDDEN; i++)
		params[W2 + i] = 0.2f * random_bell();
	for (int c = 0; c < OUT; c++)
		for (int i = 0; i < IN; i++)
			centre[c][i] = random_bell();
	CU(cuMemcpyHtoD(p, params, sizeof params));
	CU(cuMemsetD32(v, 0, PARAMS));
	CU(cuMemsetD32(g, 0, PARAMS * 2));
	CU(cuMemsetD32(stats, 0, 6));
	unsigned long long pad_bytes = (unsigned long long)opt.pad << 20, pad_units = pad_bytes / 16;
	unsigned long long pad_chunks = pad_bytes / CHUNK;
	if (pad_bytes) {
		CU(cuMemAlloc(&pad, pad_bytes));
		void *args[] = {&pad, &pad_units};
		launch(k_fill, 256, 1, 256, 1, 0, compute, args);
	}
	CU(cuCtxSynchronize());

	float rate = 0.02f / BATCH, mu = 0.9f;
	uint32_t n = PARAMS;
	for (long s = 0; s < opt.steps; s++) {
		while (opt.until && s == opt.steps - 1 && access(opt.until, F_OK) != 0)
			usleep(1000);
		int b = s & 1;
		/* Step s-2 is done (waited for below), so its buffers are free. */
		make_batch(host_x[b], host_label[b]);
		CU(cuMemcpyHtoDAsync(x[b], host_x[b], BATCH * IN * sizeof(float), upload));
		CU(cuMemcpyHtoDAsync(label[b], host_label[b], BATCH * sizeof(uint32_t), upload));
		CU(cuEventRecord(uploaded[b], upload));
		CU(cuStreamWaitEvent(compute, uploaded[b], 0));

		CUdeviceptr w1 = p + W1 * 4, b1 = p + B1 * 4, w2 = p + W2 * 4, b2 = p + B2 * 4;
		layer(compute, x[b], w1, b1, h, IN, HIDDEN, 1);
		layer(compute, h, w2, b2, y, HIDDEN, OUT, 0);
		void *loss_args[] = {&y, &label[b], &dy, &stats};
		launch(k_loss, BATCH / 32, 1, 32, 1, 0, compute, loss_args);
		uint32_t nin = HIDDEN, nout = OUT;
		void *back_args[] = {&dy, &w2, &h, &dh, &nin, &nout};
		launch(k_back, BATCH / 4, 1, HIDDEN, 4, 0, compute, back_args);
		grad(compute, h, dy, g + W2 * 8, g + B2 * 8, HIDDEN, OUT);
		grad(compute, x[b], dh, g + W1 * 8, g + B1 * 8, IN, HIDDEN);
		void *apply_args[] = {&p, &v, &g, &n, &rate, &mu};
		launch(k_apply, (PARAMS + 127) / 128, 1, 128, 1, 0, compute, apply_args);
		if (pad_chunks && s % 64 == 0) {
			CUdeviceptr chunk = pad + (unsigned long long)(s / 64) % pad_chunks * CHUNK;
			uint32_t step = (uint32_t)s;
			void *args[] = {&chunk, &step};
			launch(k_touch, 4, 1, 128, 1, 0, compute, args);
		}
		CU(cuEventRecord(consumed[b], compute));

		if (s > 0) {
			CU(cuEventSynchronize(consumed[!b]));
			log_step(s - 1);
		}
		if (opt.every && (s + 1) % opt.every == 0) {
			CU(cuStreamWaitEvent(report, consumed[b], 0));
			CU(cuMemcpyDtoHAsync(host_stats, stats, 2 * sizeof(uint64_t), report));
			CU(cuStreamSynchronize(report));
			double samples = (double)opt.every * BATCH;
			printf("step %6ld  loss %.6f  right %6.2f %%\n", s + 1, (int64_t)host_stats[0] / 1048576.0 / samples,
			       (double)host_stats[1] / samples * 100);
			CU(cuMemsetD32Async(stats, 0, 4, compute));
		}
	}
	CU(cuCtxSynchronize());
	if (opt.steps > 0)
		log_step(opt.steps - 1);

	/* The end: parameters, momentum and the sum of the padding. */
	static float momentum[PARAMS];
	uint64_t sum = 0;
	if (pad_bytes) {
		CUdeviceptr out = stats + 16;
		void *args[] = {&pad, &pad_units, &out};
		launch(k_sum, 256, 1, 256, 1, 0, compute, args);
		CU(cuStreamSynchronize(compute));
		CU(cuMemcpyDtoH(&sum, out, sizeof sum));
	}
	CU(cuMemcpyDtoH(params, p, sizeof params));
	CU(cuMemcpyDtoH(momentum, v, sizeof momentum));
	if (opt.out) {
		FILE *f = fopen(opt.out, "wb");
		if (!f || fwrite(params, sizeof params, 1, f) != 1 || fwrite(momentum, sizeof momentum, 1, f) != 1 ||
		    fwrite(&sum, sizeof sum, 1, f) != 1 || fclose(f) != 0)
			die("cannot write", opt.out);
	}
	printf("train: done; padding sums to %016" PRIx64 "\n", sum);
	CU(cuCtxDestroy(ctx));
	return 0;
}
