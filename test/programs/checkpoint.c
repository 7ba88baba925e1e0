/* A process checkpointed and restored by another one, with every piece of its state alive, twice. The other process
 * drives; the two talk over a socket. While it is locked, its calls wait. */
#include "test.h"

#include <fcntl.h>
#include <poll.h>

enum { N = 6000 };

/* ---- the process that is checkpointed ---- */

static struct {
	CUcontext a, b;
	CUmodule module;
	CUlibrary library;
	CUfunction fill, inc;
	CUkernel kernel;
	CUstream plain, blocking;
	CUevent recorded, later;
	CUdeviceptr linear, pooled, virtual, counter, small[64];
	CUmemoryPool pool;
	CUmemGenericAllocationHandle handle;
	uint32_t *pinned, registered[100];
	CUgraph graph;
	CUgraphExec exec;
	int called;
} st;

static void called(void *p) { ++*(int *)p; }

static void make(void)
{
	st.a = start(NULL);
	st.module = load();
	st.fill = function(st.module, "fill");
	st.inc = function(st.module, "inc");
	CU(cuLibraryLoadData(&st.library, kernels, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&st.kernel, st.library, "inc"));
	CU(cuModuleGetGlobal_v2(&st.counter, NULL, st.module, "counter"));
	CU(cuStreamCreate(&st.plain, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreateWithPriority(&st.blocking, CU_STREAM_DEFAULT, -1));
	CU(cuEventCreate(&st.recorded, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&st.later, CU_EVENT_DEFAULT));
	CU(cuMemAlloc_v2(&st.linear, N * 4));
	for (int i = 0; i < 64; i++) {
		CU(cuMemAlloc_v2(&st.small[i], 256));
		CU(cuMemsetD32_v2(st.small[i], (unsigned)i, 64));
	}
	CU(cuMemAllocHost_v2((void **)&st.pinned, N * 4));
	CU(cuMemHostRegister_v2(st.registered, sizeof st.registered, 0));
	CU(cuMemHostGetDevicePointer_v2(&(CUdeviceptr){0}, st.registered, 0));
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CU(cuMemPoolCreate(&st.pool, &props));
	CU(cuMemAllocFromPoolAsync(&st.pooled, N * 4, st.pool, st.plain));
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	size_t g;
	CU(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CU(cuMemCreate(&st.handle, g, &prop, 0));
	CU(cuMemAddressReserve(&st.virtual, g, 0, 0, 0));
	CU(cuMemMap(st.virtual, g, 0, st.handle, 0));
	CUmemAccessDesc rw = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CU(cuMemSetAccess(st.virtual, g, &rw, 1));
	fill(st.fill, st.linear, N, 10, st.plain);
	fill(st.fill, st.pooled, N, 20, st.plain);
	fill(st.fill, st.virtual, N, 30, st.plain);
	CU(cuMemcpyDtoHAsync_v2(st.pinned, st.linear, N * 4, st.plain));
	CU(cuEventRecord(st.recorded, st.plain));

	CU(cuStreamBeginCapture_v2(st.plain, CU_STREAM_CAPTURE_MODE_GLOBAL));
	inc(st.inc, st.linear, N, st.plain);
	CU(cuMemcpyDtoDAsync_v2(st.virtual, st.linear, N * 4, st.plain));
	CU(cuLaunchHostFunc(st.plain, called, &st.called));
	CU(cuStreamEndCapture(st.plain, &st.graph));
	CU(cuGraphInstantiateWithFlags(&st.exec, st.graph, 0));
	CU(cuCtxCreate_v2(&st.b, 0, 0)); /* on top of a */
	CU(cuCtxPopCurrent_v2(&(CUcontext){0}));
}

static void verify(uint32_t round)
{
	CUcontext top;
	uint32_t v;
	float ms;
	int prio;
	CU(cuCtxGetCurrent(&top));
	CHECK(top == st.a);
	check_words(st.linear, N, 10 + round, "linear");
	check_words(st.pooled, N, 20, "pool");
	check_words(st.virtual, N, round ? 10 + round : 30, "virtual");
	for (uint32_t i = 0; i < N; i++)
		CHECK(st.pinned[i] == 10 + i);
	for (int i = 0; i < 64; i++) {
		CU(cuMemcpyDtoH_v2(&v, st.small[i] + 252, 4));
		CHECK(v == (uint32_t)i);
	}
	CU(cuMemcpyDtoH_v2(&v, st.counter, 4));
	CHECK(v == 7 + 30 * round);
	CU(cuEventQuery(st.recorded));
	CU(cuEventRecord(st.later, st.plain));
	CU(cuEventSynchronize(st.later));
	CU(cuEventElapsedTime(&ms, st.recorded, st.later));
	CHECK(ms >= 0);
	CU(cuStreamGetPriority(st.blocking, &prio));
	CHECK(prio == -1);
	CU(cuGraphLaunch(st.exec, st.plain));
	CU(cuStreamSynchronize(st.plain));
	CHECK(st.called == (int)round + 1);
	CU(cuLaunchKernel(function(st.module, "bump"), 1, 1, 1, 1, 1, 1, 0, st.blocking, NULL, NULL));
	CU(cuStreamSynchronize(st.blocking));
	/* pinned memory is the device's again: a kernel writes it, the host sees it */
	fill(st.fill, (CUdeviceptr)(uintptr_t)st.pinned, N, 4000 + round, st.plain);
	CU(cuStreamSynchronize(st.plain));
	for (uint32_t i = 0; i < N; i++)
		CHECK(st.pinned[i] == 4000 + round + i);
	fill(st.fill, (CUdeviceptr)(uintptr_t)st.pinned, N, 10, st.plain);
	CU(cuStreamSynchronize(st.plain));
	/* and so is registered memory */
	st.registered[5] += 1000;
	inc(st.inc, (CUdeviceptr)(uintptr_t)st.registered, 100, st.plain);
	CU(cuStreamSynchronize(st.plain));
	for (uint32_t i = 0; i < 100; i++)
		CHECK(st.registered[i] == (round + 1) * (i == 5 ? 1001 : 1));
	CU(cuCtxPushCurrent_v2(st.b));
	CUdeviceptr p;
	CU(cuMemAlloc_v2(&p, 4096));
	CU(cuMemFree_v2(p));
	CU(cuCtxPopCurrent_v2(&top));
	CHECK(top == st.b);
}

static int socket_of_subject;
static volatile bool stop_calling;

/* Calls the driver all the time; says once that it has begun. */
static void *caller(void *arg)
{
	(void)arg;
	CUdeviceptr p;
	uint32_t v;
	CU(cuCtxSetCurrent(st.a));
	CU(cuMemAlloc_v2(&p, 4096));
	for (uint32_t i = 0; !stop_calling; i++) {
		CU(cuMemcpyHtoD_v2(p, &i, 4));
		CU(cuMemcpyDtoH_v2(&v, p, 4));
		CHECK(v == i);
		if (i == 10)
			tell(socket_of_subject);
	}
	CU(cuMemFree_v2(p));
	return NULL;
}

static int subject(int socket)
{
	pthread_t t;
	socket_of_subject = socket;
	make();
	CU(cuStreamSynchronize(st.plain));
	for (uint32_t round = 0; round < 3; round++) {
		verify(round);
		if (round == 2)
			break;
		CHECK(pthread_create(&t, NULL, caller, NULL) == 0); /* tells */
		await(socket);                                       /* checkpointed and restored meanwhile */
		stop_calling = true;
		CHECK(pthread_join(t, NULL) == 0);
		stop_calling = false;
	}
	tell(socket);
	return 0;
}

/* ---- the process that checkpoints it ---- */

static void state(int pid, CUprocessState want)
{
	CUprocessState s = 99;
	CU(cuCheckpointProcessGetState(pid, &s));
	if (s != want)
		FAIL("state %d, want %d", (int)s, (int)want);
}

/* Whether a file under /proc has a line with the word. */
static bool mentions(int pid, const char *file, const char *word)
{
	char path[64], line[4096];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	FILE *f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof line, f))
		found = found || strstr(line, word);
	fclose(f);
	return found;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return subject(atoi(argv[1]));
	int pair[2], tid;
	char number[16];
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK(fcntl(pair[1], F_SETFD, 0) == 0); /* only this end goes to the child: it sees when we end */
	snprintf(number, sizeof number, "%d", pair[1]);
	pid_t pid = again((char *[]){argv[0], number, NULL});
	close(pair[1]);
	start(NULL);
	for (int round = 0; round < 2; round++) {
		await(pair[0]);
		state(pid, CU_PROCESS_STATE_RUNNING);
		CHECK(cuCheckpointProcessCheckpoint(pid, NULL) != CUDA_SUCCESS); /* not locked */
		CUcheckpointLockArgs lock = {.timeoutMs = 20000};
		CU(cuCheckpointProcessLock(pid, &lock));
		state(pid, CU_PROCESS_STATE_LOCKED);
		CU(cuCheckpointProcessUnlock(pid, NULL));
		CU(cuCheckpointProcessLock(pid, &lock));
		CU(cuCheckpointProcessCheckpoint(pid, NULL));
		state(pid, CU_PROCESS_STATE_CHECKPOINTED);
		if (soft())
			CHECK(!mentions(pid, "maps", "holdfast-pinned"));
		CU(cuCheckpointProcessGetRestoreThreadId(pid, &tid));
		char task[64];
		snprintf(task, sizeof task, "task/%d/status", tid);
		CHECK(mentions(pid, task, "Name:"));
		CHECK(cuCheckpointProcessUnlock(pid, NULL) != CUDA_SUCCESS); /* not restored */
		CU(cuCheckpointProcessRestore(pid, NULL));
		state(pid, CU_PROCESS_STATE_LOCKED);
		struct pollfd quiet = {pair[0], POLLIN, 0};
		CHECK(poll(&quiet, 1, 0) == 0);
		CU(cuCheckpointProcessUnlock(pid, NULL));
		state(pid, CU_PROCESS_STATE_RUNNING);
		tell(pair[0]);
	}
	await(pair[0]);
	reap(pid);
	return finish("checkpoint");
}
