/* infer: runs a small neural network with the CUDA driver API, within an NVTX range. It knows
 * nothing of holdfast; "holdfast record" records the range.
 *
 *     infer [--in FILE] [--out FILE] [--passes N] [--how MODE] [--wait]
 *
 * --in has 64 numbers (float, little endian); without it they are made up. --out gets 16 floats
 * and a count of passes, whose bytes are printed as well. The range comes once for each pass.
 * MODE is how the work is submitted: stream (one), streams (two branches with events between
 * them), graph (the two branches, captured), whole (the copies too), managed, host, function
 * (what cannot be recorded, each for another reason). --wait waits in the range for a signal. */
#define _GNU_SOURCE
#include <cuda.h>
#include <nvtx.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kernels: infer.ptx as a C string. */
__asm__(".section .rodata\n"
        ".globl infer_ptx\n"
        "infer_ptx:\n"
        ".incbin \"infer.ptx\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char infer_ptx[];

enum { IN = 64, HIDDEN = 128, OUT = 16, BLOCK = 64 };

static void check(CUresult r, const char *call, int line)
{
	if (r == CUDA_SUCCESS)
		return;
	const char *name = "unknown error";
	cuGetErrorName(r, &name);
	fprintf(stderr, "infer: %s (line %d): %s (%d)\n", call, line, name, r);
	exit(1);
}
#define CU(call) check((call), #call, __LINE__)

static const char *in_file, *out_file, *how = "stream";
static int passes = 1, waits;

static void options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--wait"))
			waits = 1;
		else if (i + 1 < argc && !strcmp(argv[i], "--in"))
			in_file = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--out"))
			out_file = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--passes"))
			passes = atoi(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--how"))
			how = argv[++i];
		else {
			fprintf(stderr, "usage: infer [--in FILE] [--out FILE] [--passes N] [--how MODE] [--wait]\n");
			exit(2);
		}
	}
}

/* Numbers that are the same everywhere. */
static uint64_t state = 0x9e3779b97f4a7c15u;
static float number(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(state >> 40) / 8388608.0f - 1.0f;
}

static CUmodule module;
static CUfunction dense, join, spin;
static CUdeviceptr x, y, h, left, right, count, w[3], b[3];
static CUstream streams[2];
static CUevent forked, joined;
static struct { float y[OUT]; uint32_t count; } result;

static CUdeviceptr filled(size_t n, size_t pad)
{
	float *host = malloc(n * sizeof *host);
	CUdeviceptr p;
	CU(cuMemAlloc(&p, n * sizeof *host + pad));
	CU(cuMemsetD32(p, 0, n + pad / 4));
	for (size_t i = 0; i < n; i++)
		host[i] = number();
	CU(cuMemcpyHtoD(p, host, n * sizeof *host));
	free(host);
	return p;
}

static void setup(void)
{
	CUdevice dev;
	CUcontext ctx;
	CUdeviceptr slope;
	size_t bytes;
	const float tenth = 0.1f;
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuCtxCreate(&ctx, 0, dev));
	CU(cuModuleLoadData(&module, infer_ptx));
	CU(cuModuleGetFunction(&dense, module, "dense"));
	CU(cuModuleGetFunction(&join, module, "join"));
	CU(cuModuleGetFunction(&spin, module, "spin"));
	CU(cuModuleGetGlobal(&slope, &bytes, module, "slope"));
	CU(cuMemcpyHtoD(slope, &tenth, sizeof tenth));
	w[0] = filled(HIDDEN * IN, 3 << 20); /* more than a unit of memory, and zeros */
	w[1] = filled(OUT * HIDDEN, 0);
	w[2] = filled(OUT * HIDDEN, 0);
	b[0] = filled(HIDDEN, 0);
	b[1] = filled(OUT, 0);
	b[2] = filled(OUT, 0);
	x = filled(IN, 0);
	h = filled(HIDDEN, 0);
	left = filled(OUT, 0);
	right = filled(OUT, 0);
	CU(cuMemAlloc(&count, 4));
	CU(cuMemsetD32(count, 40, 1));
	for (int i = 0; i < 2; i++)
		CU(cuStreamCreate(&streams[i], 1));
	CU(cuEventCreate(&forked, 2));
	CU(cuEventCreate(&joined, 2));
	CU(cuCtxSynchronize());
}

static void layer(CUstream s, CUdeviceptr from, int i, CUdeviceptr to, uint32_t nin, uint32_t nout)
{
	void *args[] = {&from, &w[i], &b[i], &to, &nin, &nout};
	CU(cuLaunchKernel(dense, (nout + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, s, args, NULL));
}

/* The branches are left and right of y; with two streams they are independent. */
static void network(CUstream s, CUstream t)
{
	uint32_t n = OUT;
	void *args[] = {&left, &right, &y, &count, &n};
	layer(s, x, 0, h, IN, HIDDEN);
	if (s != t) {
		CU(cuEventRecord(forked, s));
		CU(cuStreamWaitEvent(t, forked, 0));
	}
	layer(s, h, 1, left, HIDDEN, OUT);
	layer(t, h, 2, right, HIDDEN, OUT);
	if (s != t) {
		CU(cuEventRecord(joined, t));
		CU(cuStreamWaitEvent(s, joined, 0));
	}
	CU(cuLaunchKernel(join, 1, 1, 1, BLOCK, 1, 1, 0, s, args, NULL));
}

static void nothing(void *arg) { (void)arg; }

/* All that comes from the host and goes there, and what is between. */
static void everything(CUstream s, CUstream t, const float *from, float *to, uint32_t *passed)
{
	CU(cuMemcpyHtoDAsync(x, from, IN * sizeof(float), s));
	CU(cuMemsetD32Async(h, 0, HIDDEN, s));
	network(s, t);
	CU(cuMemcpyDtoHAsync(to, y, OUT * sizeof(float), s));
	CU(cuMemcpyDtoHAsync(passed, count, sizeof *passed, s));
}

static void launch_graph(CUstream s)
{
	CUgraph graph;
	CUgraphExec exec;
	CU(cuStreamEndCapture(s, &graph));
	CU(cuGraphInstantiate(&exec, graph, 0));
	CU(cuGraphLaunch(exec, s));
}

/* Everything from the host's input to the host's output. */
static void pass(const float *input)
{
	static struct { float in[IN], out[OUT]; uint32_t count; } *pinned; /* what a graph copies from and to */
	int one = strcmp(how, "streams") && strcmp(how, "graph") && strcmp(how, "whole");
	CUstream s = streams[0], t = one ? s : streams[1];
	if (!pinned)
		CU(cuMemHostAlloc((void **)&pinned, sizeof *pinned, 0));
	nvtxRangePushA("holdfast");
	CU(cuMemAlloc(&y, OUT * sizeof(float))); /* memory that comes within the range */
	if (!strcmp(how, "host")) {
		uint32_t times = 0;
		void *args[] = {&pinned, &times};
		CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	}
	if (!strcmp(how, "managed")) {
		CUdeviceptr managed;
		CU(cuMemAllocManaged(&managed, 4096, 1));
	}
	if (!strcmp(how, "function"))
		CU(cuLaunchHostFunc(s, nothing, NULL));
	if (!strcmp(how, "graph")) {
		CU(cuMemcpyHtoDAsync(x, input, IN * sizeof(float), s));
		CU(cuStreamBeginCapture(s, 0));
		network(s, t);
		launch_graph(s);
		CU(cuMemcpyDtoHAsync(result.y, y, sizeof result.y, s));
		CU(cuMemcpyDtoHAsync(&result.count, count, sizeof result.count, s));
	} else if (!strcmp(how, "whole")) {
		memcpy(pinned->in, input, sizeof pinned->in);
		CU(cuStreamBeginCapture(s, 0));
		everything(s, t, pinned->in, pinned->out, &pinned->count);
		launch_graph(s);
	} else
		everything(s, t, input, result.y, &result.count);
	CU(cuStreamSynchronize(s));
	if (!strcmp(how, "whole")) {
		memcpy(result.y, pinned->out, sizeof result.y);
		result.count = pinned->count;
	}
	if (waits) {
		printf("in the range\n");
		fflush(stdout);
		pause();
	}
	nvtxRangePop();
	CU(cuMemFree(y));
}

int main(int argc, char **argv)
{
	float input[IN];
	options(argc, argv);
	setup();
	for (int i = 0; i < IN; i++)
		input[i] = number();
	FILE *f = in_file ? fopen(in_file, "rb") : NULL;
	if (in_file && (!f || fread(input, sizeof *input, IN, f) != IN)) {
		fprintf(stderr, "infer: %s has not %d numbers\n", in_file, IN);
		return 1;
	}
	for (int i = 0; i < passes; i++)
		pass(input);
	f = out_file ? fopen(out_file, "wb") : NULL;
	if (out_file && (!f || fwrite(&result, sizeof result, 1, f) != 1 || fclose(f) != 0)) {
		perror(out_file);
		return 1;
	}
	for (size_t i = 0; i < sizeof result; i++)
		printf("%02x", ((unsigned char *)&result)[i]);
	printf("\n");
	return 0;
}
