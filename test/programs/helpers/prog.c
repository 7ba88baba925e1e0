/* A CUDA program driven by lines on its standard input; answers one line each. */
#define _GNU_SOURCE
#include <signal.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long ptr;
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *),
	cuMemAlloc_v2(ptr *, size_t), cuMemFree_v2(ptr),
	cuMemcpyHtoD_v2(ptr, const void *, size_t), cuMemcpyDtoH_v2(void *, ptr, size_t),
	cuStreamBeginCapture_v2(void *, int),
	cuStreamEndCapture(void *, void **), cuMemGetAddressRange_v2(ptr *, size_t *, ptr),
	cuPointerGetAttribute(void *, int, ptr),
	cuMemAllocAsync(ptr *, size_t, void *), cuMemFreeAsync(ptr, void *), cuMemAllocManaged(ptr *, size_t, unsigned),
	cuMemGetInfo_v2(size_t *, size_t *),
	cuMemPoolGetAttribute(void *, int, void *), cuMemPoolSetAttribute(void *, int, void *),
	cuDeviceGetDefaultMemPool(void **, int),
	cuMemCreate(ptr *, size_t, void *, unsigned long long), cuMemRelease(ptr),
	cuMemAddressReserve(ptr *, size_t, size_t, ptr, unsigned long long),
	cuMemMap(ptr, size_t, size_t, ptr, unsigned long long), cuMemUnmap(ptr, size_t),
	cuMemSetAccess(ptr, size_t, void *, size_t),
	cuMemExportToShareableHandle(void *, ptr, int, unsigned long long),
	cuMemGetHandleForAddressRange(void *, ptr, size_t, int, unsigned long long),
	cuCtxCreate_v2(void **, unsigned, int), cuDevicePrimaryCtxRelease_v2(int), cuModuleLoadData(void **, const void *),
	cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
	void **);
/* of the fake driver only */
extern void fake_busy(int) __attribute__((weak)), fake_late(int) __attribute__((weak));
extern long long fake_count(const char *) __attribute__((weak));
extern int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *);
extern int fake_device_touch(void) __attribute__((weak));
extern int cuModuleGetFunction(void **, void *, const char *), cuStreamCreate(void **, unsigned),
	cuStreamSynchronize(void *),
	cuCtxSynchronize(void), cuGraphInstantiateWithFlags(void **, void *, unsigned long long),
	cuGraphLaunch(void *, void *),
	cuMemsetD8_v2(ptr, unsigned char, size_t), cuModuleGetGlobal_v2(ptr *, size_t *, void *, const char *),
	cuModuleUnload(void *);

/* Adds 1 to the 64-bit word that its parameter points at. */
static const char inc[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
	".visible .entry inc(.param .u64 p)\n{\n.reg .u64 %a, %v;\nld.param.u64 %a, [p];\nld.global.u64 %v, [%a];\n"
	"add.u64 %v, %v, 1;\nst.global.u64 [%a], %v;\nret;\n}\n";
/* Adds 1 to the module's variable. */
static const char vars[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 8 .u64 counter = 7;\n"
	".visible .entry bump()\n{\n.reg .u64 %v;\nld.global.u64 %v, [counter];\nadd.u64 %v, %v, 1;\n"
	"st.global.u64 [counter], %v;\nret;\n}\n";
static void *kernel, *stream, *graph, *loaded[16], *bump[16];
static int nloaded;

static atomic_int stop;
static pthread_t threads[64];
static ptr counters[64];

static void *launcher(void *arg)
{
	void *ctx;
	ptr p = *(ptr *)arg;
	void *params[] = { &p };
	cuDevicePrimaryCtxRetain(&ctx, 0);
	cuCtxSetCurrent(ctx);
	while (!stop) {
		cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
		ptr q; /* memory calls join in */
		if (rand() % 64 == 0 && cuMemAlloc_v2(&q, 4096) == 0)
			cuMemFree_v2(q);
	}
	return NULL;
}

static void *nothing(void *arg)
{
	ptr p = *(ptr *)arg;
	void *params[] = { &p };
	cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	return NULL;
}

/* Waits for the device, then does something. */
static void *waits(void *arg)
{
	unsigned long long v = 5;
	void *ctx;
	cuDevicePrimaryCtxRetain(&ctx, 0);
	cuCtxSetCurrent(ctx);
	cuCtxSynchronize();
	cuMemcpyHtoD_v2(*(ptr *)arg, &v, 8);
	return NULL;
}

static double ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Mappings and descriptors of the device at path. */
static void device(const char *path, int *mappings, int *descriptors)
{
	char line[512], name[64], target[512];
	FILE *f = fopen("/proc/self/maps", "r");
	*mappings = *descriptors = 0;
	while (f && fgets(line, sizeof line, f))
		*mappings += strstr(line, path) != NULL;
	if (f)
		fclose(f);
	for (int i = 0; i < 1024; i++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", i);
		ssize_t n = readlink(name, target, sizeof target - 1);
		*descriptors += n > 0 && !strncmp(target, path, strlen(path));
	}
}

typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
	void **);

static double cost(launch f)
{
	double best = 1e18;
	for (int round = 0; round < 7; round++) {
		double t = ns();
		for (int i = 0; i < 2000000; i++)
			f((void *)1, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		t = (ns() - t) / 2000000;
		if (t < best)
			best = t;
	}
	return best;
}

/* Never waits, and blocks all signals that can be blocked. */
static void *spin(void *arg)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (volatile unsigned long n = 0;; n++)
		if (n % 1000 == 0)
			free(malloc(n % 5000 + 1));
	return arg;
}

static void handled(int n) { (void)n; }

/* Registered before the driver came up, so it runs after the shim has seen that the program ends. */
static void last_call(void)
{
	unsigned long long p = 0;
	if (getenv("PROG_LAST_CALL"))
		printf("last %d\n", cuMemAlloc_v2(&p, 4096));
}

int main(int argc, char **argv)
{
	atexit(last_call);
	char line[512], word[64];
	unsigned long long a = 0, b = 0, c = 0;
	void *ctx = NULL;
	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		a = b = c = 0;
		int n = sscanf(line, "%63s %llu %llu %llu", word, &a, &b, &c);
		if (n < 1)
			continue;
		int r = 0;
		ptr p = 0;
		uint64_t v = 0;
		size_t s = 0;
		if (!strcmp(word, "init")) {
			r = cuInit(0);
			if (!r) {
				r = cuDevicePrimaryCtxRetain(&ctx, 0);
				cuCtxSetCurrent(ctx);
			}
			void *mod;
			if (!r)
				r = cuModuleLoadData(&mod, inc);
			if (!r)
				r = cuModuleGetFunction(&kernel, mod, "inc");
			printf("%d\n", r);
		} else if (!strcmp(word, "alloc")) {
			r = cuMemAlloc_v2(&p, a);
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "free"))
			printf("%d\n", cuMemFree_v2(a));
		else if (!strcmp(word, "write"))
			printf("%d\n", cuMemcpyHtoD_v2(a, &b, 8));
		else if (!strcmp(word, "read")) {
			r = cuMemcpyDtoH_v2(&v, a, 8);
			printf("%d %llu\n", r, (unsigned long long)v);
		} else if (!strcmp(word, "range")) {
			r = cuMemGetAddressRange_v2(&p, &s, a);
			printf("%d %llu %zu\n", r, p, s);
		} else if (!strcmp(word, "context")) {
			void *got = NULL;
			r = cuPointerGetAttribute(&got, 1, a);
			printf("%d %d\n", r, got == ctx);
		} else if (!strcmp(word, "count")) {
			sscanf(line, "%*s %63s", word);
			printf("%lld\n", fake_count(word));
		} else if (!strcmp(word, "threads")) {
			stop = 0;
			for (unsigned i = 0; i < a; i++) {
				cuMemAlloc_v2(&counters[i], i % 2 ? 4096 : 3 << 20);
				cuMemcpyHtoD_v2(counters[i], &v, 8);
				cuCtxSynchronize();
				pthread_create(&threads[i], NULL, launcher, &counters[i]);
			}
			for (unsigned i = 0; i < a; i++)
				printf("%llu ", counters[i]);
			printf("\n");
		} else if (!strcmp(word, "waits")) {
			counters[0] = a;
			printf("%d\n", pthread_create(&threads[0], NULL, waits, &counters[0]));
		} else if (!strcmp(word, "waited"))
			printf("%d\n", pthread_join(threads[0], NULL));
		else if (!strcmp(word, "stop")) {
			stop = 1;
			for (unsigned i = 0; i < a; i++)
				pthread_join(threads[i], NULL);
			cuCtxSynchronize();
			for (unsigned i = 0; i < a; i++) {
				cuMemcpyDtoH_v2(&v, counters[i], 8);
				s += v;
				cuMemFree_v2(counters[i]);
			}
			printf("%zu\n", s);
		} else if (!strcmp(word, "churn")) { /* a launch each by threads that come and go */
			cuMemAlloc_v2(&p, 4096);
			for (unsigned i = 0; i < a; i++) {
				pthread_t t;
				pthread_create(&t, NULL, nothing, &p);
				pthread_join(t, NULL);
			}
			cuMemFree_v2(p);
			printf("0\n");
		} else if (!strcmp(word, "stream")) {
			r = cuStreamCreate(&stream, 1);
			printf("%d %llu\n", r, (ptr)(uintptr_t)stream);
		} else if (!strcmp(word, "graph")) {
			/* increments the word at a, and one in a buffer of its own; captured in mode b */
			void *g, *params[] = { &p };
			r = cuStreamBeginCapture_v2(stream, (int)b);
			if (!r)
				r = cuMemAllocAsync(&b, 1 << 20, stream);
			p = a;
			if (!r)
				r = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
			p = b;
			if (!r)
				r = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
			if (!r)
				r = cuMemFreeAsync(b, stream);
			int e = cuStreamEndCapture(stream, &g);
			if (!r && !(r = e))
				r = cuGraphInstantiateWithFlags(&graph, g, 0);
			printf("%d %llu\n", r, b);
		} else if (!strcmp(word, "glaunch")) {
			for (unsigned i = 0; i < a && !r; i++)
				r = cuGraphLaunch(graph, stream);
			printf("%d\n", r ? r : cuStreamSynchronize(stream));
		} else if (!strcmp(word, "launch")) { /* b times on the word at a, then waits */
			void *params[] = { &a };
			for (unsigned i = 0; i < b && !r; i++)
				r = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
			printf("%d\n", r ? r : cuCtxSynchronize());
		} else if (!strcmp(word, "fill"))
			printf("%d\n", cuMemsetD8_v2(a, (unsigned char)b, c));
		else if (!strcmp(word, "begin"))
			printf("%d\n", cuStreamBeginCapture_v2((void *)77, 0));
		else if (!strcmp(word, "end")) {
			void *g;
			printf("%d\n", cuStreamEndCapture((void *)77, &g));
		} else if (!strcmp(word, "async")) {
			r = cuMemAllocAsync(&p, a, (void *)b);
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "freeasync"))
			printf("%d\n", cuMemFreeAsync(a, (void *)b));
		else if (!strcmp(word, "late")) {
			fake_late((int)a);
			printf("0\n");
		} else if (!strcmp(word, "busy")) {
			fake_busy((int)a);
			printf("0\n");
		} else if (!strcmp(word, "pool")) {
			void *pool;
			cuDeviceGetDefaultMemPool(&pool, 0);
			r = cuMemPoolGetAttribute(pool, (int)a, &v);
			printf("%d %llu\n", r, (unsigned long long)v);
		} else if (!strcmp(word, "threshold")) {
			void *pool;
			cuDeviceGetDefaultMemPool(&pool, 0);
			printf("%d\n", cuMemPoolSetAttribute(pool, 4, &a));
		} else if (!strcmp(word, "free?")) {
			size_t t;
			r = cuMemGetInfo_v2(&s, &t);
			printf("%d %zu\n", r, s);
		} else if (!strcmp(word, "managed")) {
			r = cuMemAllocManaged(&p, a, 1);
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "module"))
			printf("%d\n", cuModuleLoadData(&ctx, inc));
		else if (!strcmp(word, "variable")) { /* of a new instance of vars */
			r = cuModuleLoadData(&loaded[nloaded], vars);
			if (!r)
				r = cuModuleGetFunction(&bump[nloaded], loaded[nloaded], "bump");
			if (!r)
				r = cuModuleGetGlobal_v2(&p, NULL, loaded[nloaded], "counter");
			nloaded++;
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "bump")) { /* instance a, b times */
			for (unsigned i = 0; i < b && !r; i++)
				r = cuLaunchKernel(bump[a], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
			printf("%d\n", r ? r : cuCtxSynchronize());
		} else if (!strcmp(word, "unload"))
			printf("%d\n", cuModuleUnload(loaded[a]));
		else if (!strcmp(word, "create")) {
			/* size, handle types */
			struct { int type, types, lt, lid; void *w; unsigned char z[8]; } prop = { 1, (int)b, 1, 0, 0, { 0 } };
			r = cuMemCreate(&p, a, &prop, 0);
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "export")) { /* handle: the file that its descriptor is of */
			struct stat st = { 0 };
			int fd = -1;
			r = cuMemExportToShareableHandle(&fd, a, 1, 0);
			if (!r && (fstat(fd, &st) || close(fd)))
				r = -1;
			printf("%d %llu\n", r, (unsigned long long)st.st_ino);
		} else if (!strcmp(word, "dmabuf")) { /* va size */
			int fd = -1;
			r = cuMemGetHandleForAddressRange(&fd, a, b, 1, 0);
			close(fd);
			printf("%d\n", r);
		} else if (!strcmp(word, "types")) { /* as which handles what is at a may be exported */
			r = cuPointerGetAttribute(&v, 14, a);
			printf("%d %llu\n", r, (unsigned long long)v);
		} else if (!strcmp(word, "reserve")) {
			r = cuMemAddressReserve(&p, a, 0, 0, 0);
			printf("%d %llu\n", r, p);
		} else if (!strcmp(word, "map")) { /* va size handle */
			struct { int lt, lid, flags; } d = { 1, 0, 3 };
			r = cuMemMap(a, b, 0, c, 0);
			if (!r)
				r = cuMemSetAccess(a, b, &d, 1);
			printf("%d\n", r);
		} else if (!strcmp(word, "unmap"))
			printf("%d\n", cuMemUnmap(a, b));
		else if (!strcmp(word, "release"))
			printf("%d\n", cuMemRelease(a));
		else if (!strcmp(word, "ctxcreate")) {
			void *ctx;
			printf("%d\n", cuCtxCreate_v2(&ctx, 0, 0));
		} else if (!strcmp(word, "ctxrelease"))
			printf("%d\n", cuDevicePrimaryCtxRelease_v2(0));
		else if (!strcmp(word, "fork")) { /* the child tries what a child may try */
			fflush(stdout);
			pid_t pid = fork();
			if (pid == 0) {
				r = cuMemAlloc_v2(&p, 4096); /* reaches the driver, whatever that says */
				int again = cuInit(0);
				char fds[160];
				snprintf(fds, sizeof fds, "ls -l /proc/%d/fd 2>/dev/null | grep -c 'memfd:holdfast\\|eventfd'",
					getpid());
				FILE *f = popen(fds, "r");
				int leaked = -1;
				if (f && fscanf(f, "%d", &leaked) == 1)
					pclose(f);
				printf("%d %d\n", again, leaked);
				exit(0);
			}
			waitpid(pid, &r, 0);
			if (r)
				printf("child died with %d\n", r);
		} else if (!strcmp(word, "device")) {
			/* here, then in a child: mappings, descriptors, what a stray access finds */
			int m, d;
			sscanf(line, "%*s %63s", word);
			device(word, &m, &d);
			printf("%d %d %d ", m, d, fake_device_touch());
			fflush(stdout);
			pid_t pid = fork();
			if (pid == 0) {
				device(word, &m, &d);
				printf("%d %d %d\n", m, d, fake_device_touch());
				exit(0);
			}
			waitpid(pid, &r, 0);
			if (r)
				printf("child died with %d\n", r);
		} else if (!strcmp(word, "exec")) {
			execl(argv[0], argv[0], NULL);
		} else if (!strcmp(word, "cost")) {
			launch hooked = cuLaunchKernel;
			void *h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
			launch direct = (launch)dlvsym(h, "cuLaunchKernel", "none");
			if (!direct) /* the fake has a second entry that does the same, unhooked under this name */
				direct = (launch)dlsym(h, "fake_launch");
			printf("%.2f %.2f\n", cost(hooked), direct ? cost(direct) : -1.0);
		} else if (!strcmp(word, "procs")) { /* as the CUDA runtime does it */
			void *h = dlopen("libcuda.so.1", RTLD_LAZY);
			int (*get)(const char *, void **, int, unsigned long long, int *) = dlsym(h, "cuGetProcAddress_v2");
			void *q = NULL, *t = NULL, *v1 = NULL;
			int st;
			get("cuLaunchKernel", &q, 13000, 0, &st);
			get("cuLaunchKernel", &t, 13000, 2, &st);
			get("cuMemAlloc", &v1, 13000, 0, &st);
			Dl_info i1, i2, i3, i4;
			dladdr(q, &i1);
			dladdr(t, &i2);
			dladdr(v1, &i3);
			dladdr(dlsym(h, "cuDeviceGetCount"), &i4);
			printf("%s:%s %s:%s %s:%s %s\n", strrchr(i1.dli_fname, '/') + 1, i1.dli_sname,
				strrchr(i2.dli_fname, '/') + 1, i2.dli_sname,
				strrchr(i3.dli_fname, '/') + 1, i3.dli_sname, strrchr(i4.dli_fname, '/') + 1);
		} else if (!strcmp(word, "spin")) {
			pthread_t t;
			for (r = 0; a && !r; a--)
				r = pthread_create(&t, NULL, spin, NULL);
			signal(SIGUSR1, handled);
			printf("%d\n", r);
		} else if (!strcmp(word, "setuid")) { /* as it is: all threads have to agree */
			printf("%d\n", setresuid(getuid(), geteuid(), -1));
		} else if (!strcmp(word, "register")) { /* a: 1: shared with others; 2: our own, of the file REGISTER */
			int fd = a == 2 ? open(getenv("REGISTER"), O_RDWR | O_CLOEXEC) : -1;
			void *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
				(a == 1 ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
			close(fd);
			r = cuMemHostRegister_v2(m, 8192, 0);
			printf("%d %llu\n", r, (unsigned long long)(uintptr_t)m);
		} else if (!strcmp(word, "unregister")) {
			printf("%d\n", cuMemHostUnregister((void *)(uintptr_t)a));
		} else if (!strcmp(word, "quit"))
			return 0;
		else
			printf("what? %s\n", word);
	}
	return 0;
}
