/* What the test programs of the driver API share. Each is a whole CUDA program that prints "ok NAME" and exits 0, or
 * names what failed and exits 1. They run against any driver: nothing here knows the software GPU but soft(). */
#ifndef HOLDFAST_SHIM_TEST_H
#define HOLDFAST_SHIM_TEST_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stub/zcuda.h"

#define FAIL(...)                                                         \
	do {                                                              \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);           \
		fprintf(stderr, __VA_ARGS__);                             \
		fputc('\n', stderr);                                      \
		exit(1);                                                  \
	} while (0)
#define CHECK(cond)                                        \
	do {                                               \
		if (!(cond))                               \
			FAIL("not so: %s", #cond);         \
	} while (0)
#define EXPECT(want, call)                                                            \
	do {                                                                          \
		CUresult got_ = (call);                                               \
		if (got_ != (want))                                                   \
			FAIL("%s: %d, want %d", #call, (int)got_, (int)(want));       \
	} while (0)
#define CU(call) EXPECT(CUDA_SUCCESS, call)

static inline int finish(const char *name)
{
	printf("ok %s\n", name);
	return 0;
}

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"
#define INDEX /* %r4: the thread's index in the grid */ \
	"	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
#define REGS "	.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %d<16>;\n"

/* add: c = a + b; fill: p = v + index; inc: p += 1; copy: dst = src; poke: one store of v; all on n 32-bit words, but
 * poke. */
static const char kernels[] = HEAD
	".visible .global .align 4 .u32 counter = 7;\n"
	".visible .const .align 4 .u32 table[4] = {10, 20, 30, 40};\n"
	".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n" REGS
	"	ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; ld.param.u32 %r0, [n];\n" INDEX
	"	setp.ge.u32 %p0, %r4, %r0;\n	@%p0 ret;\n"
	"	mul.wide.u32 %d3, %r4, 4; add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; add.u64 %d6, %d2, %d3;\n"
	"	ld.global.f32 %f0, [%d4]; ld.global.f32 %f1, [%d5]; add.f32 %f2, %f0, %f1; st.global.f32 [%d6], %f2;\n"
	"	ret;\n}\n"
	".visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 v)\n{\n" REGS
	"	ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; ld.param.u32 %r5, [v];\n" INDEX
	"	setp.ge.u32 %p0, %r4, %r0;\n	@%p0 ret;\n"
	"	mul.wide.u32 %d3, %r4, 4; add.u64 %d4, %d0, %d3; add.u32 %r6, %r5, %r4; st.global.u32 [%d4], %r6;\n	ret;\n"
	"}\n"
	".visible .entry inc(.param .u64 p, .param .u32 n)\n{\n" REGS
	"	ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n];\n" INDEX
	"	setp.ge.u32 %p0, %r4, %r0;\n	@%p0 ret;\n"
	"	mul.wide.u32 %d3, %r4, 4; add.u64 %d4, %d0, %d3; ld.global.u32 %r6, [%d4]; add.u32 %r6, %r6, 1; "
	"st.global.u32 [%d4], %r6;\n	ret;\n}\n"
	".visible .entry copy(.param .u64 dst, .param .u64 src, .param .u32 n)\n{\n" REGS
	"	ld.param.u64 %d0, [dst]; ld.param.u64 %d1, [src]; ld.param.u32 %r0, [n];\n" INDEX
	"	setp.ge.u32 %p0, %r4, %r0;\n	@%p0 ret;\n"
	"	mul.wide.u32 %d3, %r4, 4; add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; ld.global.u32 %r6, [%d5]; "
	"st.global.u32 [%d4], %r6;\n	ret;\n}\n"
	".visible .entry poke(.param .u64 p, .param .u32 v)\n{\n" REGS
	"	ld.param.u64 %d0, [p]; ld.param.u32 %r5, [v]; st.global.u32 [%d0], %r5;\n	ret;\n}\n"
	/* bump: counter += table[2] */
	".visible .entry bump()\n{\n" REGS
	"	ld.global.u32 %r0, [counter]; ld.const.u32 %r1, [table+8]; add.u32 %r0, %r0, %r1; "
	"st.global.u32 [counter], %r0;\n	ret;\n}\n"
	/* mixed: parameters of every size at their alignments, summed into *p */
	".visible .entry mixed(.param .u8 a, .param .u16 b, .param .u64 p, .param .u32 c, .param .f64 d, .param .u8 e)\n"
	"{\n" REGS
	"	.reg .b16 %h<4>; .reg .f64 %g<4>;\n"
	"	ld.param.u8 %r0, [a]; ld.param.u16 %r1, [b]; ld.param.u64 %d0, [p]; ld.param.u32 %r2, [c]; "
	"ld.param.f64 %g0, [d]; ld.param.u8 %r3, [e];\n"
	"	cvt.rzi.u32.f64 %r4, %g0; add.u32 %r5, %r0, %r1; add.u32 %r5, %r5, %r2; add.u32 %r5, %r5, %r3; "
	"add.u32 %r5, %r5, %r4;\n"
	"	st.global.u32 [%d0], %r5;\n	ret;\n}\n"
	/* wait: until *p is not 0, which only the host can write */
	".visible .entry wait(.param .u64 p)\n{\n" REGS
	"	ld.param.u64 %d0, [p];\nagain:\n	ld.volatile.global.u32 %r0, [%d0];\n	setp.eq.u32 %p0, %r0, 0;\n"
	"	@%p0 bra again;\n	ret;\n}\n";

static inline CUcontext start(CUdevice *dev)
{
	CUdevice d;
	CUcontext ctx;
	CU(cuInit(0));
	CU(cuDeviceGet(&d, 0));
	CU(cuCtxCreate_v2(&ctx, 0, d));
	if (dev)
		*dev = d;
	return ctx;
}

static inline bool soft(void)
{
	char name[128];
	CU(cuDeviceGetName(name, sizeof name, 0));
	return strstr(name, "holdfast") != NULL;
}

static inline CUmodule load(void)
{
	CUmodule m;
	CU(cuModuleLoadData(&m, kernels));
	return m;
}

static inline CUfunction function(CUmodule m, const char *name)
{
	CUfunction f;
	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

#define LAUNCH(f, n, stream, ...) \
	do { \
		void *args_[] = {__VA_ARGS__}; \
		CU(cuLaunchKernel((f), ((n) + 127) / 128, 1, 1, 128, 1, 1, 0, (stream), args_, NULL)); \
	} while (0)
/* The kernels on words. */
static inline void fill(CUfunction f, CUdeviceptr p, uint32_t n, uint32_t v, CUstream s)
{
	LAUNCH(f, n, s, &p, &n, &v);
}
static inline void inc(CUfunction f, CUdeviceptr p, uint32_t n, CUstream s) { LAUNCH(f, n, s, &p, &n); }

/* Device words p[0..n) must be v + index. */
static inline void check_words(CUdeviceptr p, uint32_t n, uint32_t v, const char *what)
{
	uint32_t *h = malloc(n * sizeof *h);
	CU(cuMemcpyDtoH_v2(h, p, n * sizeof *h));
	for (uint32_t i = 0; i < n; i++)
		if (h[i] != v + i)
			FAIL("%s: word %u is %u, want %u", what, i, h[i], v + i);
	free(h);
}

/* A child process that runs this program again with the given arguments. */
static inline pid_t again(char *const argv[])
{
	pid_t pid = fork();
	if (pid == 0) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	CHECK(pid > 0);
	return pid;
}

static inline void reap(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		CHECK(errno == EINTR);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		FAIL("child %d ended with status %#x", (int)pid, (unsigned)status);
}

static inline void send_fd(int socket, int fd)
{
	char byte = 0;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof fd)];
	} control = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	CHECK(sendmsg(socket, &m, 0) == 1);
}

static inline int receive_fd(int socket)
{
	char byte;
	int fd;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof fd)];
	} control;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes};
	CHECK(recvmsg(socket, &m, 0) == 1);
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	CHECK(h && h->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(h), sizeof fd);
	return fd;
}

/* One byte from, to the process at the other end of a socket. */
static inline void tell(int fd) { CHECK(write(fd, "x", 1) == 1); }
static inline void await(int fd)
{
	char b;
	ssize_t k;
	do
		k = read(fd, &b, 1);
	while (k < 0 && errno == EINTR);
	CHECK(k == 1);
}

#endif
