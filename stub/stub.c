/* Processes, threads, connections, one call. See stub.h. */
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x31474648u /* HFG1 */
#define PROTOCOL_VERSION 1

struct process process = {.control = -1};

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool atfork_registered;

/* Connections, one a thread. */
struct thread {
	int fd, generation;
	int depth, cancel; /* calls this thread is inside; its cancel state before the outermost */
	void *scratch;     /* what the last call gave out by pointer */
	struct thread *next, *prev;
};
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread threads = {.next = &threads, .prev = &threads};
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static unsigned gate_inside;
static bool gate_shut;

void complain(const char *format, ...)
{
	char line[512];
	int n = snprintf(line, sizeof line, "holdfast: software GPU: ");
	va_list ap;
	va_start(ap, format);
	int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, ap);
	va_end(ap);
	n = m < 0 ? n : n + m;
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
	(void)ignored;
}

static int state(void) { return __atomic_load_n(&process.state, __ATOMIC_ACQUIRE); }
static void set_state(int s) { __atomic_store_n(&process.state, s, __ATOMIC_RELEASE); }

void server_gone(const char *why)
{
	int was = READY;
	if (__atomic_compare_exchange_n(&process.state, &was, GONE, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		complain("pid %d: lost its server (%s): every further call fails", (int)getpid(), why);
}

/* ---- the gate: counts calls inside; closed, it lets none in ---- */

static void gate_enter(void)
{
	pthread_mutex_lock(&gate_lock);
	while (gate_shut)
		pthread_cond_wait(&gate_changed, &gate_lock);
	gate_inside++;
	pthread_mutex_unlock(&gate_lock);
}

static void gate_leave(void)
{
	pthread_mutex_lock(&gate_lock);
	if (--gate_inside == 0 && gate_shut)
		pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

bool gate_close(uint64_t timeout_ms)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	uint64_t ns = (uint64_t)until.tv_nsec + timeout_ms % 1000 * 1000000;
	until.tv_sec += (time_t)(timeout_ms / 1000 + ns / 1000000000);
	until.tv_nsec = (long)(ns % 1000000000);
	bool empty = true;
	pthread_mutex_lock(&gate_lock);
	gate_shut = true;
	while (gate_inside > 0 && empty) {
		if (timeout_ms == 0)
			pthread_cond_wait(&gate_changed, &gate_lock);
		else if (pthread_cond_timedwait(&gate_changed, &gate_lock, &until) == ETIMEDOUT)
			empty = gate_inside == 0;
	}
	if (!empty) {
		gate_shut = false;
		pthread_cond_broadcast(&gate_changed);
	}
	pthread_mutex_unlock(&gate_lock);
	return empty;
}

void gate_open(void)
{
	pthread_mutex_lock(&gate_lock);
	gate_shut = false;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

bool gate_closed(void)
{
	pthread_mutex_lock(&gate_lock);
	bool shut = gate_shut;
	pthread_mutex_unlock(&gate_lock);
	return shut;
}

/* ---- framing ---- */

int send_all(int fd, struct iovec *iov, int n, const int *fds, int nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control;
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	if (nfds > 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)nfds);
	}
	while (m.msg_iovlen > 0) {
		ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL);
		if (k < 0) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		m.msg_control = NULL;
		m.msg_controllen = 0;
		while (m.msg_iovlen > 0 && (size_t)k >= m.msg_iov->iov_len) {
			k -= (ssize_t)m.msg_iov->iov_len;
			m.msg_iov++;
			m.msg_iovlen--;
		}
		if (m.msg_iovlen > 0) {
			m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + k;
			m.msg_iov->iov_len -= (size_t)k;
		}
	}
	return 0;
}

int receive_all(int fd, void *p, uint64_t n)
{
	for (uint8_t *at = p; n > 0;) {
		ssize_t k = recv(fd, at, n, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k == 0)
			errno = ECONNRESET;
		if (k <= 0)
			return -1;
		at += k;
		n -= (uint64_t)k;
	}
	return 0;
}

/* The head of a message, with the descriptors that came with its first byte. */
int receive_first(int fd, void *p, size_t n, int *fds, uint32_t *nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control;
	struct iovec iov = {.iov_base = p, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes};
	ssize_t k;
	do
		k = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k == 0)
		errno = ECONNRESET;
	if (k <= 0)
		return -1;
	*nfds = 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
			uint32_t got = (uint32_t)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(h), got * sizeof(int));
			*nfds = got;
		}
	return receive_all(fd, (uint8_t *)p + k, n - (size_t)k);
}

static void close_received(struct call *c)
{
	for (uint32_t i = 0; i < c->nfds; i++)
		if (c->fds[i] >= 0)
			close(c->fds[i]);
	c->nfds = 0;
}

int exchange(int fd, struct call *c)
{
	struct {
		uint32_t magic, op, nargs, nfds;
		uint64_t payload;
	} head = {MAGIC, c->op, c->nargs, c->send_fd >= 0, c->payload};
	struct iovec iov[MAX_PIECES + 2] = {{&head, sizeof head}, {c->args, c->nargs * sizeof c->args[0]}};
	memcpy(iov + 2, c->pieces, c->npieces * sizeof iov[0]);
	if (send_all(fd, iov, 2 + (int)c->npieces, &c->send_fd, c->send_fd >= 0) < 0)
		return -1;

	struct {
		int32_t status;
		uint32_t nouts, nfds, zero;
		uint64_t payload;
	} reply;
	if (receive_first(fd, &reply, sizeof reply, c->fds, &c->nfds) < 0)
		return -1;
	if (reply.nouts > MAX_ARGS || reply.payload > MAX_PAYLOAD || reply.nfds < c->nfds) {
		errno = EPROTO;
		return -1;
	}
	if (reply.nfds > c->nfds)
		/* This process has no room for them: that is an error of this call, and the connection is whole. */
		close_received(c);
	c->status = (CUresult)reply.status;
	c->nouts = reply.nouts;
	if (receive_all(fd, c->outs, reply.nouts * sizeof c->outs[0]) < 0)
		return -1;
	if (c->into && reply.payload <= c->into_len)
		c->reply = c->into;
	else if (reply.payload <= sizeof c->inline_reply)
		c->reply = c->inline_reply;
	else if (!(c->reply = malloc(reply.payload)))
		return -1;
	c->reply_len = reply.payload;
	return receive_all(fd, c->reply, reply.payload);
}

/* ---- connecting ---- */

static void find_socket(void)
{
	const char *path = getenv("HOLDFAST_SOFTGPU_SOCKET"), *dir = getenv("HOLDFAST_DIR"),
	           *run = getenv("XDG_RUNTIME_DIR");
	size_t room = sizeof process.socket;
	if (path && *path)
		snprintf(process.socket, room, "%s", path);
	else if (dir && *dir)
		snprintf(process.socket, room, "%s/gpu.sock", dir);
	else if (run && *run)
		snprintf(process.socket, room, "%s/holdfast/gpu.sock", run);
	else if (getuid() == 0)
		snprintf(process.socket, room, "/run/holdfast/gpu.sock");
	else
		snprintf(process.socket, room, "/tmp/holdfast-%u/gpu.sock", (unsigned)getuid());
}

/* A connection to the server, or -1 with errno. A path that does not fit into an address goes through a descriptor of
 * its directory. */
int connect_server(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int dir = -1;
	if (strlen(process.socket) < sizeof a.sun_path) {
		strcpy(a.sun_path, process.socket);
	} else {
		char *slash = strrchr(process.socket, '/');
		char parent[sizeof process.socket];
		size_t n = (size_t)(slash - process.socket);
		memcpy(parent, process.socket, n);
		parent[n] = 0;
		dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			return -1;
		if (snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d%.80s", dir, slash) >= (int)sizeof a.sun_path ||
		    strlen(slash) > 80) {
			close(dir);
			errno = ENAMETOOLONG;
			return -1;
		}
	}
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = -1;
	if (fd >= 0) {
		do
			r = connect(fd, (struct sockaddr *)&a, sizeof a);
		while (r < 0 && errno == EINTR);
	}
	int e = errno;
	if (dir >= 0)
		close(dir);
	if (r < 0 && fd >= 0)
		close(fd);
	errno = e;
	return r < 0 ? -1 : fd;
}

/* Starts the server with the command of HOLDFAST_SOFTGPU_EXEC, in a session of its own and out of reach of the
 * libraries of this program. */
static bool start_server(const char *command)
{
	char line[8192];
	if (snprintf(line, sizeof line, "unset LD_PRELOAD LD_LIBRARY_PATH; %s </dev/null >/dev/null 2>&1 &", command) >=
	    (int)sizeof line)
		return false;
	char *argv[] = {"sh", "-c", line, NULL};
	posix_spawnattr_t attr;
	posix_spawnattr_init(&attr);
	sigset_t none;
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	pid_t pid;
	int e = posix_spawn(&pid, "/bin/sh", NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	if (e != 0)
		return false;
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return true;
}

static int connect_or_start(void)
{
	int fd = connect_server();
	const char *command = getenv("HOLDFAST_SOFTGPU_EXEC");
	if (fd >= 0 || !command || !*command || (errno != ENOENT && errno != ECONNREFUSED))
		return fd;
	if (!start_server(command))
		return -1;
	for (int i = 0; fd < 0 && i < 1000; i++) { /* ten seconds */
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		fd = connect_server();
	}
	return fd;
}

CUresult hello(int fd, uint64_t flags, struct call *c)
{
	call_begin(c, OP_HELLO);
	arg(c, PROTOCOL_VERSION);
	arg(c, (uint64_t)getpid());
	arg(c, (uint64_t)syscall(SYS_gettid));
	arg(c, process.nonce);
	arg(c, flags);
	if (exchange(fd, c) < 0)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	return c->status;
}

/* ---- threads ---- */

static void thread_exit(void *p)
{
	struct thread *t = p;
	pthread_mutex_lock(&threads_lock);
	t->prev->next = t->next;
	t->next->prev = t->prev;
	if (t->fd >= 0)
		close(t->fd);
	pthread_mutex_unlock(&threads_lock);
	free(t->scratch);
	free(t);
}

static void make_thread_key(void) { pthread_key_create(&thread_key, thread_exit); }

static struct thread *this_thread(void)
{
	struct thread *t = pthread_getspecific(thread_key);
	if (!t && (t = calloc(1, sizeof *t))) {
		t->fd = -1;
		pthread_mutex_lock(&threads_lock);
		t->next = &threads;
		t->prev = threads.prev;
		t->prev->next = t->next->prev = t;
		pthread_mutex_unlock(&threads_lock);
		pthread_setspecific(thread_key, t);
	}
	return t;
}

void *thread_scratch(size_t bytes)
{
	struct thread *t = this_thread();
	if (!t)
		return NULL;
	free(t->scratch);
	return t->scratch = calloc(1, bytes + 1);
}

static void thread_close(struct thread *t)
{
	pthread_mutex_lock(&threads_lock);
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	pthread_mutex_unlock(&threads_lock);
}

void drop_connections(void)
{
	pthread_mutex_lock(&threads_lock);
	for (struct thread *t = threads.next; t != &threads; t = t->next) {
		if (t->fd >= 0)
			close(t->fd);
		t->fd = -1;
	}
	process.generation++;
	pthread_mutex_unlock(&threads_lock);
}

static CUresult thread_open(struct thread *t)
{
	if (t->fd >= 0 && t->generation == process.generation)
		return CUDA_SUCCESS;
	thread_close(t);
	pthread_mutex_lock(&threads_lock); /* fork holds it as well: a child knows the descriptor */
	int fd = t->fd = connect_server();
	t->generation = process.generation;
	pthread_mutex_unlock(&threads_lock);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			return CUDA_ERROR_OPERATING_SYSTEM;
		server_gone(strerror(errno));
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	struct call c;
	CUresult r = hello(fd, 0, &c);
	call_end(&c);
	if (r != CUDA_SUCCESS) {
		thread_close(t);
		server_gone("it refused a thread");
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	return CUDA_SUCCESS;
}

/* ---- fork: the child has no device; its copies of descriptors go, its calls fail ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&gate_lock);
	pthread_mutex_lock(&threads_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&threads_lock);
	pthread_mutex_unlock(&gate_lock);
}

static void after_fork_child(void)
{
	if (state() != UNINITIALISED)
		set_state(FORKED);
	for (struct thread *t = threads.next; t != &threads; t = t->next) {
		if (t->fd >= 0)
			close(t->fd);
		t->fd = -1;
	}
	if (process.control >= 0)
		close(process.control);
	process.control = -1;
	process.control_tid = 0;
	gate_inside = 0;
	gate_shut = false;
	gate_changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	init_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pinned_forget();
	pthread_mutex_unlock(&threads_lock);
	pthread_mutex_unlock(&gate_lock);
}

/* ---- initialisation ---- */

static CUresult initialise(void)
{
	if (!atfork_registered) {
		if (pthread_atfork(before_fork, after_fork_parent, after_fork_child) != 0)
			return CUDA_ERROR_OPERATING_SYSTEM;
		atfork_registered = true;
	}
	pthread_once(&thread_once, make_thread_key);
	find_socket();
	int fd = connect_or_start();
	if (fd < 0) {
		complain("no server at %s: %s", process.socket, strerror(errno));
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	if (getrandom(&process.nonce, sizeof process.nonce, 0) != sizeof process.nonce)
		process.nonce = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
	tables_return();
	CUresult r = start_control(fd);
	if (r == CUDA_SUCCESS)
		set_state(READY);
	else
		complain("the server at %s refused this process (%d)", process.socket, (int)r);
	return r;
}

/* The server counts the process as initialised from here on. */
static CUresult announce(void)
{
	struct call c;
	call_begin(&c, OP_cuInit);
	arg(&c, 0);
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&init_lock);
	CUresult r = CUDA_SUCCESS;
	switch (state()) {
	case UNINITIALISED:
		r = initialise();
		if (r == CUDA_SUCCESS)
			r = announce();
		break;
	case GONE:
		r = CUDA_ERROR_DEVICE_UNAVAILABLE;
		break;
	case FORKED:
		r = CUDA_ERROR_NOT_INITIALIZED;
		break;
	}
	pthread_mutex_unlock(&init_lock);
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, OP_cuInit);
	arg(&c, flags);
	r = call_send(&c);
	call_end(&c);
	return r;
}

/* ---- one call ---- */

void call_begin(struct call *c, uint32_t op)
{
	c->op = op;
	c->nargs = c->npieces = c->nlens = c->nouts = c->nfds = 0;
	c->send_fd = -1;
	c->status = CUDA_SUCCESS;
	c->payload = c->reply_len = c->cursor = c->into_len = 0;
	c->reply = NULL;
	c->into = NULL;
}

/*
 * A page of the driver's own that is not there while the process is checkpointed. The driver of a GPU has many, and
 * reads some of them before it looks whether it is locked: a thread that calls it in that time dies, on the software
 * GPU as on any other.
 */
static volatile uint32_t *tables;

static void tables_map(int protection)
{
	void *p = mmap((void *)(uintptr_t)tables, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS | (tables ? MAP_FIXED : 0),
	               -1, 0);
	if (p != MAP_FAILED)
		tables = p;
}

void tables_leave(void) { tables_map(PROT_NONE); }
void tables_return(void) { tables_map(PROT_READ); }

static CUresult may_call(void)
{
	switch (state()) {
	case READY:
		if (tables && *tables)
			return CUDA_ERROR_UNKNOWN;
		break;
	case GONE:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	default:
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	/* Host functions must not call the API; here they would wait for their own thread. */
	if (process.control_tid == (pid_t)syscall(SYS_gettid))
		return CUDA_ERROR_NOT_PERMITTED;
	return CUDA_SUCCESS;
}

/* A call that takes several messages stays inside the gate from the first to the last, so that no checkpoint falls
 * between them. */
CUresult call_enter(void)
{
	CUresult r = may_call();
	struct thread *t = r == CUDA_SUCCESS ? this_thread() : NULL;
	if (!t)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_OPERATING_SYSTEM;
	if (t->depth++ == 0) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &t->cancel);
		gate_enter();
	}
	return CUDA_SUCCESS;
}

void call_leave(void)
{
	struct thread *t = this_thread();
	if (--t->depth == 0) {
		gate_leave();
		pthread_setcancelstate(t->cancel, NULL);
	}
}

static CUresult send_inside(struct call *c)
{
	struct thread *t = this_thread();
	CUresult r = thread_open(t);
	if (r != CUDA_SUCCESS || exchange(t->fd, c) == 0)
		return r != CUDA_SUCCESS ? r : c->status;
	int e = errno;
	thread_close(t); /* half a message may be under way; the server finds the thread's contexts again by its id */
	if (e == EFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	if (e == ENOMEM)
		return CUDA_ERROR_OPERATING_SYSTEM;
	server_gone(strerror(e));
	return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult call_send(struct call *c)
{
	if ((c->status = call_enter()) != CUDA_SUCCESS)
		return c->status;
	c->status = send_inside(c);
	call_leave();
	return c->status;
}

void call_end(struct call *c)
{
	if (c->reply && c->reply != c->inline_reply && c->reply != c->into)
		free(c->reply);
	c->reply = NULL;
	close_received(c);
}

CUresult simple_call(uint32_t op, const uint64_t *args, uint32_t nargs)
{
	struct call c;
	call_begin(&c, op);
	for (uint32_t i = 0; i < nargs; i++)
		arg(&c, args[i]);
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}

void raw_piece(struct call *c, const void *p, uint64_t n)
{
	if (n == 0)
		return;
	c->pieces[c->npieces++] = (struct iovec){.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	c->payload += n;
}

void blob_piece(struct call *c, const void *p, uint64_t n)
{
	c->lens[c->nlens] = p ? n : NULL_BLOB;
	raw_piece(c, &c->lens[c->nlens++], sizeof c->lens[0]);
	if (p)
		raw_piece(c, p, n);
}

void string_piece(struct call *c, const char *s) { blob_piece(c, s, s ? strlen(s) : 0); }

const void *next_blob(struct call *c, uint64_t *n)
{
	uint64_t len, left = c->reply_len - c->cursor;
	*n = 0;
	if (left < sizeof len)
		return NULL;
	memcpy(&len, c->reply + c->cursor, sizeof len);
	c->cursor += sizeof len;
	left -= sizeof len;
	if (len == NULL_BLOB || len > left)
		return NULL;
	const void *p = c->reply + c->cursor;
	c->cursor += len;
	*n = len;
	return p;
}

void take_blob(struct call *c, void *dst, uint64_t room)
{
	uint64_t n;
	const void *p = next_blob(c, &n);
	if (p && dst)
		memcpy(dst, p, n < room ? n : room);
}

void take_string(struct call *c, char *dst, int64_t room)
{
	uint64_t n;
	const void *p = next_blob(c, &n);
	if (!dst || room <= 0)
		return;
	if (n > (uint64_t)room - 1)
		n = (uint64_t)room - 1;
	if (p)
		memcpy(dst, p, n);
	dst[n] = 0;
}
