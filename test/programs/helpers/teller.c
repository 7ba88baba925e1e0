/* teller: a CUDA program that does what it is told, for the end-to-end tests. It reads
 * commands, a line each, from a named pipe and appends an answer for each to a file:
 *
 *     teller COMMANDS ANSWERS [plain]    (plain: its module has no variable, so bump and count are errors)
 *
 *     TAG alloc MIB          TAG ok INDEX
 *     TAG try MIB            TAG ok               (allocates and frees), or TAG error N
 *     TAG fill SEED          TAG ok               (all of its memory)
 *     TAG poke INDEX AT VAL  TAG ok               (one 32-bit word)
 *     TAG sum                TAG ok HEX           (over all of its memory)
 *     TAG free INDEX         TAG ok
 *     TAG bump N             TAG ok               (adds N to a variable of its module)
 *     TAG count              TAG ok VALUE         (of that variable)
 *     TAG stir INDEX         TAG ok WRITES        (until the next command: writes 1, 2, 3 … one after the
 *                                                other, to each 2 MiB in turn)
 *     TAG hide INDEX         TAG ok WRITES        (the same, through a pointer that lies in device memory)
 *     TAG table INDEX        TAG ok               (a table of where those writes go)
 *     TAG scatter INDEX      TAG ok WRITES        (the same, to where the table says)
 *     TAG shuffle INDEX      TAG ok WRITES        (the same, and the table changes before every write)
 *     TAG whole INDEX        TAG ok WRITES        (how many writes of those it has), or TAG error torn
 *     TAG churn N            TAG ok ROUNDS        (until the next command: frees and allocates 2 MiB, N times in turn)
 *     TAG managed            TAG ok, or TAG error N
 *     TAG user UID           TAG ok               (becomes that user)
 *     TAG fork               TAG ok PID           (a child that does nothing, until its parent ends)
 *     TAG exit STATUS        ends
 */
#define _GNU_SOURCE
#include <cuda.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char header[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
static const char variable[] =
	".visible .global .align 4 .u32 counter = 40;\n"
	".visible .entry bump(.param .u32 p_n)\n{\n .reg .b32 %r<3>;\n"
	" ld.param.u32 %r0, [p_n]; ld.global.u32 %r1, [counter]; add.u32 %r2, %r0, %r1; st.global.u32 [counter], %r2;\n"
	" ret;\n}\n";
static const char kernels[] =
	".visible .entry fill(.param .u64 p_at, .param .u64 p_n, .param .u32 p_seed)\n{\n"
	" .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %d<12>;\n"
	" ld.param.u64 %d0, [p_at]; ld.param.u64 %d1, [p_n]; ld.param.u32 %r8, [p_seed];\n"
	" mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
	" cvt.u64.u32 %d3, %r2; mad.wide.u32 %d2, %r0, %r1, %d3; mul.wide.u32 %d4, %r3, %r1;\n"
	"NEXT: setp.ge.u64 %p0, %d2, %d1; @%p0 bra DONE;\n"
	" cvt.u32.u64 %r4, %d2; add.u32 %r4, %r4, %r8; mul.lo.u32 %r5, %r4, 0x9E3779B1; xor.b32 %r6, %r5, %r8;\n"
	" mul.lo.u32 %r6, %r6, 0x85EBCA77; shf.l.wrap.b32 %r7, %r6, %r6, 13;\n"
	" shl.b64 %d5, %d2, 4; add.u64 %d5, %d5, %d0; st.global.v4.u32 [%d5], {%r4, %r5, %r6, %r7};\n"
	" add.u64 %d2, %d2, %d4; bra NEXT;\n"
	"DONE: ret;\n}\n"
	".visible .entry sum(.param .u64 p_at, .param .u64 p_n, .param .u64 p_out)\n{\n"
	" .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %d<16>;\n"
	" ld.param.u64 %d0, [p_at]; ld.param.u64 %d1, [p_n]; ld.param.u64 %d2, [p_out];\n"
	" mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
	" cvt.u64.u32 %d3, %r2; mad.wide.u32 %d4, %r0, %r1, %d3; mul.wide.u32 %d5, %r3, %r1; mov.u64 %d6, 0;\n"
	"NEXT: setp.ge.u64 %p0, %d4, %d1; @%p0 bra DONE;\n"
	" shl.b64 %d7, %d4, 4; add.u64 %d7, %d7, %d0; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d7];\n"
	" mad.lo.u32 %r4, %r5, 3, %r4; mad.lo.u32 %r6, %r7, 7, %r6; mov.b64 %d8, {%r4, %r6};\n"
	" shl.b64 %d9, %d4, 1; or.b64 %d9, %d9, 1; mad.lo.u64 %d6, %d8, %d9, %d6;\n"
	" add.u64 %d4, %d4, %d5; bra NEXT;\n"
	"DONE: red.global.add.u64 [%d2], %d6; ret;\n}\n"
	".visible .entry put(.param .u64 p_at, .param .u32 p_value)\n{\n .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
	" ld.param.u64 %d0, [p_at]; ld.param.u32 %r0, [p_value]; st.global.u32 [%d0], %r0; ret;\n}\n"
	".visible .entry chase(.param .u64 p_cell, .param .u32 p_value)\n{\n .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
	" ld.param.u64 %d0, [p_cell]; ld.param.u32 %r0, [p_value]; ld.global.u64 %d1, [%d0]; st.global.u32 [%d1], %r0; "
	"ret;\n}\n"
	".visible .entry spread(.param .u64 p_base, .param .u64 p_index, .param .u32 p_value)\n{\n .reg .b32 %r<2>; "
	".reg .b64 %d<4>;\n"
	" ld.param.u64 %d0, [p_base]; ld.param.u64 %d1, [p_index]; ld.param.u32 %r0, [p_value];\n"
	" ld.global.u64 %d2, [%d1]; add.s64 %d3, %d0, %d2; st.global.u32 [%d3], %r0; ret;\n}\n";

enum { MOST = 256 };
static struct { CUdeviceptr at; unsigned long long bytes; } held[MOST];
static CUdeviceptr out, counter, table;
static CUfunction k_fill, k_sum, k_bump, k_put, k_chase, k_spread;
static int answers, commands;

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static void answer(const char *format, ...)
{
	char line[256];
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(line, sizeof line, format, ap);
	va_end(ap);
	if (n <= 0 || write(answers, line, (size_t)n) != n)
		exit(3);
}

#define CU(call)                                                                 \
	do {                                                                     \
		CUresult r = (call);                                             \
		if (r != CUDA_SUCCESS) {                                         \
			fprintf(stderr, "teller: %s: error %d\n", #call, (int)r); \
			exit(1);                                                 \
		}                                                                \
	} while (0)

enum { STRIDE = 2 << 20, MOST_STRIDES = 512 };

/* The last word of every stride is written in turn, from the last one down: memory is copied the other way. */
static CUdeviceptr cell(int i, unsigned n)
{
	unsigned strides = (unsigned)(held[i].bytes / STRIDE);
	return held[i].at + (CUdeviceptr)(strides - n % strides) * STRIDE - 4;
}

static unsigned stir(int i, bool hidden)
{
	struct pollfd next = {.fd = commands, .events = POLLIN};
	unsigned n = 0;
	for (unsigned strides = (unsigned)(held[i].bytes / STRIDE); n < strides || poll(&next, 1, 0) == 0; n++) {
		CUdeviceptr at = cell(i, n);
		unsigned value = n + 1;
		void *args[] = {hidden ? &out : &at, &value};
		if (hidden)
			CU(cuMemcpyHtoD(out, &at, sizeof at));
		CU(cuLaunchKernel(hidden ? k_chase : k_put, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		CU(cuCtxSynchronize());
	}
	return n;
}

/* Where those writes go, in that order, in bytes from the beginning. */
static void tabulate(int i)
{
	unsigned strides = (unsigned)(held[i].bytes / STRIDE);
	uint64_t list[MOST_STRIDES];
	for (unsigned n = 0; n < strides && n < MOST_STRIDES; n++)
		list[n] = cell(i, n) - held[i].at;
	CU(cuMemcpyHtoD(table, list, sizeof list));
}

static unsigned scatter(int i, bool changing)
{
	struct pollfd next = {.fd = commands, .events = POLLIN};
	unsigned n = 0;
	for (unsigned strides = (unsigned)(held[i].bytes / STRIDE); n < strides || poll(&next, 1, 0) == 0; n++) {
		CUdeviceptr index = table + (changing ? 0 : n % strides * sizeof(uint64_t));
		uint64_t where = cell(i, n) - held[i].at;
		unsigned value = n + 1;
		void *args[] = {&held[i].at, &index, &value};
		if (changing)
			CU(cuMemcpyHtoD(index, &where, sizeof where));
		CU(cuLaunchKernel(k_spread, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		CU(cuCtxSynchronize());
	}
	return n;
}

/* How many writes there were when memory was as it is; -1: it never was. */
static long whole(int i)
{
	unsigned strides = (unsigned)(held[i].bytes / STRIDE), last = 0, have[4096];
	if (strides > sizeof have / sizeof *have)
		return -1;
	for (unsigned n = 0; n < strides; n++) {
		CU(cuMemcpyDtoH(&have[n], cell(i, n), sizeof *have));
		if (have[n] > last)
			last = have[n];
	}
	for (unsigned n = 0; n < strides; n++) {
		unsigned want = last ? (last - 1) / strides * strides + n + 1 : 0;
		if (want > last)
			want = want > strides ? want - strides : 0;
		if (have[n] != want)
			return -1;
	}
	return last;
}

/* Their contents say which they are; a block that has another's is an error. */
static unsigned churn(unsigned blocks)
{
	struct pollfd next = {.fd = commands, .events = POLLIN};
	CUdeviceptr at[MOST] = {0};
	unsigned n = 0, has;
	for (; n < 2 * blocks || poll(&next, 1, 0) == 0; n++) {
		CUdeviceptr *p = &at[n % blocks];
		if (*p) {
			CU(cuMemcpyDtoH(&has, *p, sizeof has));
			if (has != n - blocks + 1) {
				fprintf(stderr, "teller: block %u holds %u, want %u\n", n % blocks, has, n - blocks + 1);
				exit(1);
			}
			CU(cuMemFree(*p));
		}
		CU(cuMemAlloc(p, STRIDE));
		CU(cuMemsetD32(*p, n + 1, STRIDE / 4));
	}
	for (unsigned i = 0; i < blocks; i++)
		CU(cuMemFree(at[i]));
	return n;
}

static void obey(char *line)
{
	char tag[32], verb[32];
	unsigned long long a = 0, b = 0, c = 0;
	if (sscanf(line, "%31s %31s %llu %llu %llu", tag, verb, &a, &b, &c) < 2)
		return;
	if (!strcmp(verb, "alloc")) {
		int i = 0;
		while (i < MOST && held[i].at)
			i++;
		if (i == MOST) {
			answer("%s error full\n", tag);
			return;
		}
		held[i].bytes = a << 20;
		CU(cuMemAlloc(&held[i].at, held[i].bytes));
		CU(cuMemsetD32(held[i].at, 0, held[i].bytes / 4));
		CU(cuCtxSynchronize());
		answer("%s ok %d\n", tag, i);
	} else if (!strcmp(verb, "try")) {
		CUdeviceptr p;
		CUresult r = cuMemAlloc(&p, a << 20);
		if (r != CUDA_SUCCESS) {
			answer("%s error %d\n", tag, (int)r);
		} else {
			CU(cuMemFree(p));
			answer("%s ok\n", tag);
		}
	} else if (!strcmp(verb, "fill")) {
		unsigned seed = (unsigned)a;
		for (int i = 0; i < MOST; i++)
			if (held[i].at) {
				unsigned long long n = held[i].bytes / 16;
				unsigned s = seed + (unsigned)i * 1000003;
				void *args[] = {&held[i].at, &n, &s};
				CU(cuLaunchKernel(k_fill, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
			}
		CU(cuCtxSynchronize());
		answer("%s ok\n", tag);
	} else if (!strcmp(verb, "poke")) {
		if (a >= MOST || !held[a].at || b > held[a].bytes - 4) {
			answer("%s error range\n", tag);
			return;
		}
		CU(cuMemsetD32(held[a].at + (b & ~3ull), (unsigned)c, 1));
		CU(cuCtxSynchronize());
		answer("%s ok\n", tag);
	} else if (!strcmp(verb, "sum")) {
		uint64_t sum = 0;
		CU(cuMemsetD32(out, 0, 2));
		for (int i = 0; i < MOST; i++)
			if (held[i].at) {
				unsigned long long n = held[i].bytes / 16;
				void *args[] = {&held[i].at, &n, &out};
				CU(cuLaunchKernel(k_sum, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
			}
		CU(cuMemcpyDtoH(&sum, out, sizeof sum));
		answer("%s ok %016llx\n", tag, (unsigned long long)sum);
	} else if (!strcmp(verb, "free")) {
		if (a >= MOST || !held[a].at) {
			answer("%s error range\n", tag);
			return;
		}
		CU(cuMemFree(held[a].at));
		held[a].at = 0;
		answer("%s ok\n", tag);
	} else if (!k_bump && (!strcmp(verb, "bump") || !strcmp(verb, "count"))) {
		answer("%s error plain\n", tag);
	} else if (!strcmp(verb, "bump")) {
		unsigned n = (unsigned)a;
		void *args[] = {&n};
		CU(cuLaunchKernel(k_bump, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		CU(cuCtxSynchronize());
		answer("%s ok\n", tag);
	} else if (!strcmp(verb, "count")) {
		unsigned n;
		CU(cuMemcpyDtoH(&n, counter, sizeof n));
		answer("%s ok %u\n", tag, n);
	} else if (!strcmp(verb, "stir") || !strcmp(verb, "hide")) {
		answer("%s ok %u\n", tag, stir((int)a, verb[0] == 'h'));
	} else if (!strcmp(verb, "churn") && a > 0 && a <= MOST) {
		answer("%s ok %u\n", tag, churn((unsigned)a));
	} else if (!strcmp(verb, "table")) {
		tabulate((int)a);
		answer("%s ok\n", tag);
	} else if (!strcmp(verb, "scatter") || !strcmp(verb, "shuffle")) {
		answer("%s ok %u\n", tag, scatter((int)a, verb[1] == 'h'));
	} else if (!strcmp(verb, "whole")) {
		long n = whole((int)a);
		if (n < 0)
			answer("%s error torn\n", tag);
		else
			answer("%s ok %ld\n", tag, n);
	} else if (!strcmp(verb, "managed")) {
		CUdeviceptr p;
		CUresult r = cuMemAllocManaged(&p, 1 << 20, 1);
		if (r != CUDA_SUCCESS)
			answer("%s error %d\n", tag, (int)r);
		else
			answer("%s ok\n", tag);
	} else if (!strcmp(verb, "user")) {
		if (setuid((uid_t)a))
			answer("%s error user\n", tag);
		else
			answer("%s ok\n", tag);
	} else if (!strcmp(verb, "fork")) {
		pid_t child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		if (child < 0)
			answer("%s error fork\n", tag);
		else
			answer("%s ok %d\n", tag, (int)child);
	} else if (!strcmp(verb, "exit")) {
		exit((int)a);
	} else {
		answer("%s error verb\n", tag);
	}
}

int main(int argc, char **argv)
{
	bool plain = argc == 4 && !strcmp(argv[3], "plain");
	if (argc != 3 && !plain) {
		fprintf(stderr, "usage: teller COMMANDS ANSWERS [plain]\n");
		return 2;
	}
	answers = open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0600);
	/* Read and write: so the pipe does not end when the one who commands closes it. */
	commands = open(argv[1], O_RDWR);
	FILE *in = commands < 0 ? NULL : fdopen(commands, "r");
	if (answers < 0 || !in) {
		perror("teller");
		return 1;
	}
	CUdevice dev;
	CUcontext ctx;
	CUmodule mod;
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuCtxCreate(&ctx, 0, dev));
	static char ptx[sizeof header + sizeof variable + sizeof kernels];
	snprintf(ptx, sizeof ptx, "%s%s%s", header, plain ? "" : variable, kernels);
	CU(cuModuleLoadData(&mod, ptx));
	CU(cuModuleGetFunction(&k_fill, mod, "fill"));
	CU(cuModuleGetFunction(&k_sum, mod, "sum"));
	CU(cuModuleGetFunction(&k_put, mod, "put"));
	CU(cuModuleGetFunction(&k_chase, mod, "chase"));
	CU(cuModuleGetFunction(&k_spread, mod, "spread"));
	if (!plain) {
		size_t size;
		CU(cuModuleGetFunction(&k_bump, mod, "bump"));
		CU(cuModuleGetGlobal(&counter, &size, mod, "counter"));
	}
	CU(cuMemAlloc(&out, sizeof(uint64_t)));
	CU(cuMemAlloc(&table, MOST_STRIDES * sizeof(uint64_t)));
	answer("ready\n");
	char line[256];
	while (fgets(line, sizeof line, in))
		obey(line);
	return 0;
}
