/* The control thread: callbacks, lock, checkpoint, restore. See stub.h and the package documentation of
 * internal/softgpu/gpuwire. */
#include "stub.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAKE (SIGRTMAX - 2)

/* The process's state on the server while it is checkpointed. */
static struct {
	uint8_t *bytes;
	uint64_t len, room;
} blob;

struct start {
	pthread_mutex_t lock;
	pthread_cond_t done;
	int fd;
	bool ready;
	CUresult result;
};

struct request {
	uint32_t magic, op, nargs, nfds;
	uint64_t payload;
};

static void reply(int fd, CUresult status, const void *p, uint64_t n)
{
	struct {
		int32_t status;
		uint32_t nouts, nfds, zero;
		uint64_t payload;
	} head = {.status = (int32_t)status, .payload = n};
	struct iovec iov[2] = {{&head, sizeof head}, {(void *)(uintptr_t)p, n}};
	send_all(fd, iov, n > 0 ? 2 : 1, NULL, 0); /* a broken connection shows at the next receive */
}

static bool blob_append(const void *p, uint64_t n)
{
	if (n > blob.room - blob.len) {
		uint64_t room = blob.room ? blob.room : 1 << 20;
		while (room - blob.len < n)
			room *= 2;
		void *m = blob.bytes ? mremap(blob.bytes, blob.room, room, MREMAP_MAYMOVE)
		                     : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (m == MAP_FAILED)
			return false;
		blob.bytes = m;
		blob.room = room;
	}
	memcpy(blob.bytes + blob.len, p, n);
	blob.len += n;
	return true;
}

static void blob_free(void)
{
	if (blob.bytes)
		munmap(blob.bytes, blob.room);
	memset(&blob, 0, sizeof blob);
}

/* Memory of the program, read or written without trusting the address. */
static bool program_memory(uint64_t address, void *p, uint64_t n, bool write)
{
	struct iovec local = {p, n}, remote = {(void *)(uintptr_t)address, n};
	while (remote.iov_len > 0) {
		ssize_t k = write ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0)
		                  : process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
		if (k < 0 && (errno == EPERM || errno == ENOSYS)) { /* forbidden in this sandbox: trust it */
			if (write)
				memcpy(remote.iov_base, local.iov_base, remote.iov_len);
			else
				memcpy(local.iov_base, remote.iov_base, remote.iov_len);
			return true;
		}
		if (k <= 0)
			return false;
		local.iov_base = (char *)local.iov_base + k;
		remote.iov_base = (char *)remote.iov_base + k;
		local.iov_len -= (size_t)k;
		remote.iov_len -= (size_t)k;
	}
	return true;
}

static void callback(const uint64_t *a)
{
	if (a[0] == 0)
		((CUhostFn)(uintptr_t)a[1])((void *)(uintptr_t)a[2]);
	else
		((CUstreamCallback)(uintptr_t)a[1])((CUstream)(uintptr_t)a[3], (CUresult)a[4], (void *)(uintptr_t)a[2]);
}

static void host_read(int fd, uint64_t address, uint64_t n)
{
	void *p = n <= MAX_PAYLOAD ? malloc(n + 1) : NULL;
	if (!p)
		reply(fd, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	else if (!program_memory(address, p, n, false))
		reply(fd, CUDA_ERROR_INVALID_VALUE, NULL, 0);
	else
		reply(fd, CUDA_SUCCESS, p, n);
	free(p);
}

/*
 * Opens a connection and gives the server the process back; returns the connection, or -1. The server waits for a
 * minute and cannot know that we have given up, so we wait nearly as long for a descriptor to become free.
 */
static int reopen(void)
{
	enum { TRIES = 3, TRIES_LACKING = 500 };
	int fd = -1;
	bool lacking = false;
	for (int try = 0; fd < 0 && try < (lacking ? TRIES_LACKING : TRIES); try++) {
		if (try > 0)
			nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
		fd = connect_server();
		lacking = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
	}
	if (fd < 0)
		return -1;
	prctl(PR_SET_NAME, "cuda-softgpu");
	struct call c;
	CUresult r = hello(fd, 3, &c);
	call_end(&c);
	for (uint64_t at = 0; r == CUDA_SUCCESS && at < blob.len; at += MESSAGE_BYTES) {
		call_begin(&c, OP_RESTORE_PART);
		raw_piece(&c, blob.bytes + at, blob.len - at < MESSAGE_BYTES ? blob.len - at : MESSAGE_BYTES);
		r = exchange(fd, &c) < 0 ? CUDA_ERROR_SYSTEM_NOT_READY : c.status;
		call_end(&c);
	}
	static const uint32_t finish[] = {OP_RESTORE_COMMIT, OP_RESTORE_DONE};
	for (int i = 0; r == CUDA_SUCCESS && i < 2; i++) {
		if (finish[i] == OP_RESTORE_DONE && !pinned_return(fd)) {
			r = CUDA_ERROR_OPERATING_SYSTEM;
			break;
		}
		call_begin(&c, finish[i]);
		r = exchange(fd, &c) < 0 ? CUDA_ERROR_SYSTEM_NOT_READY : c.status;
		call_end(&c);
	}
	if (r == CUDA_SUCCESS) {
		pinned_returned();
		tables_return();
		return fd;
	}
	complain("pid %d: could not be restored (%d)", (int)getpid(), (int)r);
	close(fd);
	pinned_leave(); /* the rest is away still */
	return -1;
}

/* Parks until the process is restored; the new control connection. */
static int park(int fd)
{
	sigset_t wake;
	sigemptyset(&wake);
	sigaddset(&wake, WAKE);
	while (sigtimedwait(&wake, NULL, &(struct timespec){0, 0}) > 0)
		; /* a second one of the last restore */
	drop_connections();
	prctl(PR_SET_NAME, "cuda-softgpu-p");
	reply(fd, CUDA_SUCCESS, NULL, 0);
	close(fd);
	process.control = -1;
	do {
		siginfo_t info;
		while (sigwaitinfo(&wake, &info) != WAKE)
			;
		fd = reopen();
		if (fd < 0)
			prctl(PR_SET_NAME, "cuda-softgpu-p");
	} while (fd < 0);
	process.control = fd;
	blob_free();
	return fd;
}

/* Serves one request. The connection for the next one; -1 if it broke. */
static int serve(int fd, const struct request *q, const uint64_t *a, void *payload)
{
	CUresult r = CUDA_SUCCESS;
	switch (q->op) {
	case OP_CALLBACK:
		callback(a);
		break;
	case OP_HOST_READ:
		host_read(fd, a[0], a[1]);
		return fd;
	case OP_HOST_WRITE:
		if (!program_memory(a[0], payload, q->payload, true))
			r = CUDA_ERROR_INVALID_VALUE;
		break;
	case OP_PRINT:
		fwrite(payload, 1, q->payload, stdout);
		fflush(stdout);
		break;
	case OP_LOCK:
		r = gate_close(a[0]) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		break;
	case OP_UNLOCK:
		blob_free();
		gate_open();
		break;
	case OP_CHECKPOINT_PART:
		if (!blob_append(payload, q->payload)) {
			blob_free();
			r = CUDA_ERROR_OPERATING_SYSTEM;
		}
		break;
	case OP_CHECKPOINT_COMMIT:
		if (gate_closed() && pinned_leave()) {
			tables_leave();
			return park(fd);
		}
		blob_free();
		r = CUDA_ERROR_OPERATING_SYSTEM;
		break;
	default:
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	reply(fd, r, NULL, 0);
	return fd;
}

static int serve_next(int fd)
{
	struct request q;
	int fds[MAX_FDS];
	uint32_t nfds;
	uint64_t a[MAX_ARGS] = {0};
	if (receive_first(fd, &q, sizeof q, fds, &nfds) < 0)
		return -1;
	while (nfds > 0)
		close(fds[--nfds]); /* none is expected */
	if (q.nargs > MAX_ARGS || q.payload > MAX_PAYLOAD || receive_all(fd, a, q.nargs * sizeof a[0]) < 0)
		return -1;
	void *payload = malloc(q.payload + 1);
	if (!payload || receive_all(fd, payload, q.payload) < 0) {
		free(payload);
		return -1;
	}
	fd = serve(fd, &q, a, payload);
	free(payload);
	return fd;
}

static void *control(void *p)
{
	struct start *s = p;
	int fd = s->fd;
	prctl(PR_SET_NAME, "cuda-softgpu");
	struct call c;
	CUresult r = hello(fd, 1, &c);
	if (r == CUDA_SUCCESS) {
		process.window_lo = out(&c, 2);
		process.window_size = out(&c, 3);
		process.control = fd;
		process.control_tid = (pid_t)syscall(SYS_gettid);
	}
	call_end(&c);
	pthread_mutex_lock(&s->lock);
	s->result = r;
	s->ready = true;
	pthread_cond_signal(&s->done);
	pthread_mutex_unlock(&s->lock);
	if (r != CUDA_SUCCESS) {
		close(fd);
		return NULL;
	}
	while ((fd = serve_next(fd)) >= 0)
		;
	server_gone("its connection ended");
	if (process.control >= 0)
		close(process.control);
	process.control = -1;
	gate_open();
	return NULL;
}

/* Starts the control thread on a fresh connection, which it takes. */
CUresult start_control(int fd)
{
	struct start s = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .fd = fd};
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_t thread;
	int e = pthread_create(&thread, &attr, control, &s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e != 0) {
		close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	pthread_mutex_lock(&s.lock);
	while (!s.ready)
		pthread_cond_wait(&s.done, &s.lock);
	pthread_mutex_unlock(&s.lock);
	return s.result;
}
