/*
 * The control thread and the conversation with the daemon. The program's threads only queue what there is to tell; this
 * thread exports, sends, freezes, lets go and maps again. It never waits at the gate.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

volatile int hf_attached;

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t attach_cond = PTHREAD_COND_INITIALIZER;
static enum { NEVER, TRYING, HELD, UNHELD } attach_state;

/* Held while the control thread works, so that the program's end can wait for a moment in which it does not. */
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static bool ending;
static pid_t self; /* who attached */

static char socket_path[sizeof ((struct sockaddr_un *)0)->sun_path];
static int sock = -1, page_fd = -1, wake_fd = -1;
static char program_name[256]; /* HOLDFAST_NAME, as it was at the start: the program may change its environment */
static uint32_t gpu_kind;
static uint8_t token[16];
/* RELEASED: memory is (partly) away. The control thread's, under work_lock; at_exit reads it. */
static enum { RUNNING, FROZEN, RELEASED } state;
static uint64_t frozen_since;
static uint32_t lease_ms; /* how long the program stays frozen when the daemon is silent; 0: without limit */
static bool stays_shut;   /* frozen, and its memory is not whole: only a daemon may open the gate */
static bool may_move;     /* WELCOME_MOVE */
static uint8_t buffer[HF_MAX_PACKET]; /* the control thread's */

/*
 * A child has none of our descriptors. A descriptor that is in no variable yet, or no longer, exists only while fd_lock
 * is held, which fork waits for; one that the control thread has received or is about to send is in passing_fd. Nothing
 * waits under fd_lock.
 */
static pthread_mutex_t fd_lock = PTHREAD_MUTEX_INITIALIZER;
static int passing_fd = -1;
/*
 * From RELEASED until it has hung up the control thread holds every lock that a thread of the program could hold when
 * it is parked, or when the driver is locked and it waits there: nothing in between may wait for one.
 */
static bool holds_all;

static void lock_fds(void)
{
	if (!holds_all)
		pthread_mutex_lock(&fd_lock);
}

static void unlock_fds(void)
{
	if (!holds_all)
		pthread_mutex_unlock(&fd_lock);
}

void hf_fd_lock(void) { pthread_mutex_lock(&fd_lock); }
void hf_fd_unlock(void) { pthread_mutex_unlock(&fd_lock); }

static void close_fd(int *fd)
{
	lock_fds();
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	unlock_fds();
}

/* ---- what is to be told ---- */

struct item {
	struct item *next;
	uint64_t alloc; /* ALLOC of that id, exported when sent */
	size_t len;
	uint8_t packet[];
};
static pthread_mutex_t box_lock = PTHREAD_MUTEX_INITIALIZER;
static struct item *box, **box_end = &box;
static bool box_open; /* somebody will read it */
static uint64_t last_free;

struct caveat { uint32_t code, flags, count; uint64_t subject; char text[512]; };
static pthread_mutex_t caveat_lock = PTHREAD_MUTEX_INITIALIZER;
static struct caveat **caveats;
static size_t ncaveats, caveat_room;
#define MAX_CAVEATS 512

static void warn(const char *format, ...)
{
	char line[640] = "holdfast: ";
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(line + 10, sizeof line - 11, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	size_t len = 10 + ((size_t)n < sizeof line - 11 ? (size_t)n : sizeof line - 12);
	line[len++] = '\n';
	if (write(2, line, len) < 0)
		return; /* nowhere to say it */
}

/* With box_lock held; takes over it. */
static void put_item(struct item *i)
{
	if (!i)
		return;
	if (!box_open) {
		free(i);
		return;
	}
	bool first = box == NULL;
	i->next = NULL;
	*box_end = i;
	box_end = &i->next;
	if (first && wake_fd >= 0) {
		uint64_t one = 1;
		if (write(wake_fd, &one, sizeof one) < 0)
			return; /* full: it is awake */
	}
}

static void queue_packet(const uint8_t *packet, size_t len)
{
	struct item *i = len ? malloc(sizeof *i + len) : NULL;
	if (!i)
		return;
	i->alloc = 0;
	i->len = len;
	memcpy(i->packet, packet, len);
	pthread_mutex_lock(&box_lock);
	put_item(i);
	pthread_mutex_unlock(&box_lock);
}

void hf_queue_alloc(struct hf_block *b)
{
	struct item *i = b->queued ? NULL : calloc(1, sizeof *i);
	if (!i)
		return;
	i->alloc = b->id;
	b->queued = true;
	pthread_mutex_lock(&box_lock);
	put_item(i);
	pthread_mutex_unlock(&box_lock);
}

void hf_queue_free(struct hf_block *b)
{
	uint8_t p[64];
	struct hf_msg_free m = { b->id };
	if (!b->told)
		return; /* the daemon never hears of it */
	pthread_mutex_lock(&box_lock);
	last_free = box_open ? hf_now() : 0;
	pthread_mutex_unlock(&box_lock);
	queue_packet(p, hf_put_free(p, sizeof p, 0, &m));
}

bool hf_recent_free(void)
{
	pthread_mutex_lock(&box_lock);
	bool recent = last_free && hf_now() - last_free < 2000000000u;
	pthread_mutex_unlock(&box_lock);
	return recent;
}

/*
 * The control thread sends the question and takes the answer. It may have been told to freeze meanwhile and wait for
 * us: then there is no answer, and we leave at once; the caller steps aside and asks again.
 */
static uint32_t room_asked, room_done; /* the last question, the last answer (futex) */

bool hf_room(uint64_t bytes, int device)
{
	uint8_t p[64];
	struct hf_msg_room m = { .bytes = bytes, .device = (uint32_t)device };
	uint64_t deadline = hf_now() + HF_ROOM_MS * 1000000ull;
	for (bool asked = false;;) {
		pthread_mutex_lock(&box_lock);
		bool there = box_open;
		pthread_mutex_unlock(&box_lock);
		if (!there || ending || hf_page.gate == HF_GATE_CLOSED || hf_now() >= deadline)
			return false;
		if (!asked) {
			m.id = __atomic_add_fetch(&room_asked, 1, __ATOMIC_RELAXED);
			queue_packet(p, hf_put_room(p, sizeof p, 0, &m));
			asked = true;
		}
		uint32_t done = __atomic_load_n(&room_done, __ATOMIC_ACQUIRE);
		if ((int32_t)(done - m.id) >= 0)
			return true;
		syscall(SYS_futex, &room_done, FUTEX_WAIT_PRIVATE, done, &(struct timespec){ 0, 5000000 }, NULL, 0);
	}
}

static void room_made(const struct hf_msg_roommade *m)
{
	if ((int32_t)(m->id - room_done) <= 0 || (int32_t)(m->id - __atomic_load_n(&room_asked, __ATOMIC_RELAXED)) > 0)
		return; /* nobody asked */
	__atomic_store_n(&room_done, m->id, __ATOMIC_RELEASE);
	syscall(SYS_futex, &room_done, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/*
 * A program's thread that wants a descriptor of memory that this driver will not export. The control thread sends the
 * question and brings the answer, as with hf_room; but the program's call must not fail because of a freeze, so a
 * waiting request stays in the list while its thread has left the call, and may be answered then.
 */
static struct hf_sharer *sharers; /* box_lock */
static uint32_t share_asked;

int hf_share(struct hf_sharer *me, uint64_t alloc)
{
	uint8_t p[64];
	uint64_t start = hf_now(); /* time in which the program is frozen does not count */
	pthread_mutex_lock(&box_lock);
	if (!me->waits) {
		me->waits = true;
		me->next = sharers;
		sharers = me;
	}
	while (!me->done && hf_page.gate != HF_GATE_CLOSED && !ending && hf_attached && hf_now() - start < me->left) {
		bool ask = box_open && !me->asked;
		if (ask) {
			me->asked = true;
			me->id = ++share_asked;
		}
		struct hf_msg_share m = { me->id, alloc };
		pthread_mutex_unlock(&box_lock);
		if (ask)
			queue_packet(p, hf_put_share(p, sizeof p, 0, &m));
		syscall(SYS_futex, &me->done, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){ 0, 5000000 }, NULL, 0);
		pthread_mutex_lock(&box_lock);
	}
	int fd = me->done ? me->fd : hf_page.gate == HF_GATE_CLOSED ? HF_SHARE_AGAIN : -1;
	if (me->done)
		me->fd = -1; /* the caller's */
	uint64_t spent = hf_now() - start;
	me->left -= spent < me->left ? spent : me->left;
	pthread_mutex_unlock(&box_lock);
	return fd;
}

/* Whether a thread waits for an answer, which comes no sooner than the control thread is done. */
bool hf_asked(void)
{
	pthread_mutex_lock(&box_lock);
	bool asked = sharers || room_asked != room_done;
	pthread_mutex_unlock(&box_lock);
	return asked;
}

void hf_share_end(struct hf_sharer *me)
{
	if (!me->waits)
		return;
	pthread_mutex_lock(&box_lock);
	struct hf_sharer **l = &sharers;
	while (*l != me)
		l = &(*l)->next;
	*l = me->next;
	if (me->fd >= 0)
		close(me->fd);
	pthread_mutex_unlock(&box_lock);
}

static void shared(const struct hf_msg_shared *m)
{
	pthread_mutex_lock(&box_lock);
	for (struct hf_sharer *s = sharers; s; s = s->next)
		if (s->asked && s->id == m->id && !s->done) {
			s->fd = passing_fd;
			passing_fd = -1; /* fork holds box_lock as well */
			s->done = 1; /* its thread goes on when it has the lock */
			syscall(SYS_futex, &s->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
			break;
		}
	pthread_mutex_unlock(&box_lock);
	close_fd(&passing_fd); /* if nobody waits for it any more */
}

/*
 * The conversation is over: the next daemon is asked anew, and what this one gave may be of memory
 * that is replaced meanwhile.
 */
static void shares_forget(void) /* with box_lock held */
{
	for (struct hf_sharer *s = sharers; s; s = s->next) {
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		s->done = 0;
		s->asked = false;
	}
}

static bool anybody_shares(void)
{
	pthread_mutex_lock(&box_lock);
	bool any = sharers != NULL;
	pthread_mutex_unlock(&box_lock);
	return any;
}

void hf_queue_mapping(const struct hf_map *m, bool mapped)
{
	uint8_t p[128];
	struct hf_msg_mapping msg = { m->b->id, m->va, m->offset, m->size, 0, mapped };
	for (size_t i = 0; i < m->naccess; i++)
		if (m->access[i].location.type == 1 && m->access[i].location.id == m->b->device)
			msg.access = (uint32_t)m->access[i].flags;
	queue_packet(p, hf_put_mapping(p, sizeof p, 0, &msg));
}

void hf_queue_context(void *ctx, int device, bool alive)
{
	uint8_t p[64];
	struct hf_msg_context m = { (uint64_t)(uintptr_t)ctx, (uint32_t)device, alive };
	queue_packet(p, hf_put_context(p, sizeof p, 0, &m));
}

void hf_queue_module(uint64_t id, uint32_t kind, bool loaded, uint64_t size, const char *call)
{
	uint8_t p[256];
	struct hf_msg_module m = { .id = id, .kind = kind, .loaded = loaded, .size = size };
	snprintf(m.call, sizeof m.call, "%s", call);
	queue_packet(p, hf_put_module(p, sizeof p, 0, &m));
}

static void queue_caveat(const struct caveat *c)
{
	uint8_t p[1024];
	struct hf_msg_caveat m = { .code = c->code, .flags = c->flags, .count = c->count, .subject = c->subject };
	memcpy(m.text, c->text, sizeof m.text);
	queue_packet(p, hf_put_caveat(p, sizeof p, 0, &m));
}

void hf_caveat(uint32_t code, uint32_t flags, uint32_t call, uint64_t subject, const char *format, ...)
{
	if (!hf_attached)
		return;
	if (call)
		hf_page.refused = call;
	va_list ap;
	pthread_mutex_lock(&caveat_lock);
	struct caveat *c = NULL;
	for (size_t i = 0; i < ncaveats && !c; i++)
		if (caveats[i]->code == code && caveats[i]->subject == subject)
			c = caveats[i];
	bool tell = !c;
	if (!c && ncaveats < MAX_CAVEATS) {
		if (ncaveats == caveat_room) {
			size_t room = caveat_room ? 2 * caveat_room : 16;
			struct caveat **p = realloc(caveats, room * sizeof *p);
			if (p) {
				caveats = p;
				caveat_room = room;
			}
		}
		c = ncaveats < caveat_room ? calloc(1, sizeof *c) : NULL;
		if (c) {
			c->code = code;
			c->flags = flags;
			c->subject = subject;
			va_start(ap, format);
			vsnprintf(c->text, sizeof c->text, format, ap);
			va_end(ap);
			caveats[ncaveats++] = c;
		}
	}
	if (c) {
		c->count++;
		if (tell)
			queue_caveat(c);
	}
	pthread_mutex_unlock(&caveat_lock);
}

void hf_caveat_gone(uint32_t code, uint64_t subject)
{
	if (!ncaveats)
		return;
	pthread_mutex_lock(&caveat_lock);
	for (size_t i = 0; i < ncaveats; i++)
		if (caveats[i]->code == code && caveats[i]->subject == subject) {
			caveats[i]->count = 0;
			queue_caveat(caveats[i]);
			free(caveats[i]);
			caveats[i] = caveats[--ncaveats];
			break;
		}
	pthread_mutex_unlock(&caveat_lock);
}

/* ---- the socket ---- */

static bool send_packet(const uint8_t *p, size_t len, int fd)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control;
	struct iovec v = { (void *)p, len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	if (sock < 0 || len == 0)
		return false;
	if (fd >= 0) {
		memset(&control, 0, sizeof control);
		m.msg_control = &control;
		m.msg_controllen = sizeof control.room;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t n;
	do
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

/*
 * One packet into buffer; its length, 0 when the daemon is gone or says nothing for timeout_ms (-1: for ever), -1 when
 * it broke the rules. One descriptor is kept, in passing_fd.
 */
static ssize_t recv_packet(int timeout_ms)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int) * (HF_MAX_FDS + 1))]; } control;
	struct iovec v = { buffer, sizeof buffer };
	struct msghdr m;
	ssize_t n;
	do {
		struct pollfd p = { sock, POLLIN, 0 };
		int ready = poll(&p, 1, timeout_ms);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return 0;
		lock_fds();
		m = (struct msghdr){ .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
			.msg_controllen = sizeof control.room };
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (n > 0)
			break;
		unlock_fds();
		if (n == 0 || (errno != EINTR && errno != EAGAIN))
			return 0;
	} while (true);
	bool bad = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			int got;
			memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
			if (passing_fd < 0)
				passing_fd = got;
			else {
				close(got);
				bad = true;
			}
		}
	}
	unlock_fds();
	if (bad)
		close_fd(&passing_fd);
	return bad ? -1 : n;
}

static bool failed(uint64_t seq, uint32_t code, int result, const char *format, ...)
{
	uint8_t p[1024];
	struct hf_msg_failed m = { .code = code, .result = result > 0 ? (uint32_t)result : 0 };
	va_list ap;
	va_start(ap, format);
	vsnprintf(m.text, sizeof m.text, format, ap);
	va_end(ap);
	return send_packet(p, hf_put_failed(p, sizeof p, seq, &m), -1);
}

static const char *error_name(CUresult r)
{
	const char *name = NULL;
	return real_cuGetErrorName(r, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

/* ---- telling ---- */

void *hf_push_any(int device)
{
	struct hf_ctx c[64];
	size_t n = hf_contexts(c, 64);
	for (size_t i = 0; i < n; i++)
		if (c[i].device == device && hf_push(c[i].ctx))
			return c[i].ctx;
	return NULL;
}

static int export_block(struct hf_block *b, CUresult *r)
{
	int fd = -1;
	*r = real_cuMemExportToShareableHandle(&fd, b->handle, 1, 0);
	if (*r != CUDA_SUCCESS)
		return -1;
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

static bool tell_alloc(uint64_t id)
{
	uint8_t p[128];
	struct hf_msg_alloc m;
	CUresult r = CUDA_SUCCESS;
	int fd = -1;
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = hf_block_by_id(id);
	bool there = b && b->handle && !b->told;
	if (there) {
		fd = export_block(b, &r);
		if (fd < 0 && hf_push_any(b->device)) {
			fd = export_block(b, &r);
			hf_pop();
		}
		m = (struct hf_msg_alloc){ b->id, b->va, b->size, (uint32_t)b->device, b->kind, b->asked };
		b->told = fd >= 0;
		if (fd < 0)
			b->queued = false;
	}
	passing_fd = fd; /* fork holds hf_mem_lock as well */
	pthread_mutex_unlock(&hf_mem_lock);
	if (!there)
		return true; /* freed meanwhile; its FREE follows */
	if (fd < 0) {
		hf_caveat(HF_CAVEAT_DRIVER_MEMORY, HF_CAVEAT_BLOCKS_FULL | HF_CAVEAT_BLOCKS_GPU_ONLY, 197, m.va ? m.va : m.id,
			"cuMemExportToShareableHandle: %llu bytes at 0x%llx cannot be held: %s", (unsigned long long)m.size,
			(unsigned long long)m.va, error_name(r));
		return true;
	}
	hf_caveat_gone(HF_CAVEAT_DRIVER_MEMORY, m.va ? m.va : m.id);
	bool ok = send_packet(p, hf_put_alloc(p, sizeof p, 0, &m), fd);
	close_fd(&passing_fd);
	return ok;
}

/* Sends what is queued; false: the daemon is gone. */
static bool flush(void)
{
	for (;;) {
		pthread_mutex_lock(&box_lock);
		struct item *list = box;
		box = NULL;
		box_end = &box;
		pthread_mutex_unlock(&box_lock);
		if (!list)
			return true;
		bool ok = true;
		for (struct item *i = list, *next; i; i = next) {
			next = i->next;
			if (ok)
				ok = i->alloc ? tell_alloc(i->alloc) : send_packet(i->packet, i->len, -1);
			free(i);
		}
		if (!ok)
			return false;
	}
}

static void box_close(void)
{
	pthread_mutex_lock(&box_lock);
	box_open = false;
	while (box) {
		struct item *i = box;
		box = i->next;
		free(i);
	}
	box_end = &box;
	last_free = 0;
	shares_forget();
	pthread_mutex_unlock(&box_lock);
}

/* Queues everything that exists. */
static void tell_all(void)
{
	pthread_mutex_lock(&box_lock);
	box_open = true;
	pthread_mutex_unlock(&box_lock);
	hf_modules_tell();
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		b->queued = b->told = false;
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		hf_queue_alloc(b);
	for (size_t i = 0; i < hf_nmaps; i++)
		hf_queue_mapping(hf_maps[i], true);
	pthread_mutex_unlock(&hf_mem_lock);
	pthread_mutex_lock(&caveat_lock);
	for (size_t i = 0; i < ncaveats; i++)
		queue_caveat(caveats[i]);
	pthread_mutex_unlock(&caveat_lock);
}

/* ---- hello ---- */

static uint64_t start_time(void)
{
	char text[1024];
	ssize_t n = -1;
	pthread_mutex_lock(&fd_lock);
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof text - 1);
		close(fd);
	}
	pthread_mutex_unlock(&fd_lock);
	if (n <= 0)
		return 0;
	text[n] = 0;
	char *p = strrchr(text, ')'); /* the name may hold anything */
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static bool say_hello(uint32_t flags)
{
	struct hf_msg_hello m = {
		.proto = HF_VERSION,
		.flags = flags & HF_HELLO_TRACE ? flags : flags | HF_HELLO_CALM | HF_HELLO_PARK,
		.pid = (uint32_t)getpid(),
		.ppid = (uint32_t)getppid(),
	};
	m.control_tid = (uint32_t)syscall(SYS_gettid);
	m.gpu = gpu_kind;
	m.start_time = start_time();
	int version = 0, n = 0;
	if (real_cuDriverGetVersion(&version) == CUDA_SUCCESS)
		m.driver = (uint32_t)version;
	memcpy(m.token, token, sizeof token);
	ssize_t len = readlink("/proc/self/exe", m.exe, sizeof m.exe - 1);
	if (len > 0)
		m.exe[len] = 0;
	const char *base = strrchr(m.exe, '/');
	snprintf(m.name, sizeof m.name, "%.255s", program_name[0] ? program_name : base ? base + 1 : m.exe);
	real_cuDeviceGetCount(&n);
	for (int i = 0; i < n && i < (int)(sizeof m.devices / sizeof *m.devices); i++) {
		int dev;
		if (real_cuDeviceGet(&dev, i) != CUDA_SUCCESS ||
		    (real_cuDeviceGetUuid_v2(m.devices[i], dev) != CUDA_SUCCESS &&
		     real_cuDeviceGetUuid(m.devices[i], dev) != CUDA_SUCCESS))
			break;
		m.n_devices = (uint16_t)(i + 1);
	}
	return send_packet(buffer, hf_put_hello(buffer, sizeof buffer, 0, &m), page_fd);
}

static void fork_prepare(void);
static void fork_parent(void);

static void hang_up(void)
{
	close_fd(&sock);
	if (holds_all) {
		holds_all = false;
		fork_parent();
	}
}

/* Connects, says hello, waits for WELCOME; 0 or why not. */
static const char *call_daemon(uint32_t flags)
{
	static char why[128];
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	may_move = false;
	memcpy(a.sun_path, socket_path, sizeof a.sun_path);
	pthread_mutex_lock(&fd_lock);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_mutex_unlock(&fd_lock);
	if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof a) < 0) {
		snprintf(why, sizeof why, "%s", strerror(errno));
		hang_up();
		return why;
	}
	/* Somebody else's daemon at a guessable path gets nothing of ours. */
	struct ucred peer = { 0, 0, 0 };
	socklen_t len = sizeof peer;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || (peer.uid != 0 && peer.uid != geteuid())) {
		hang_up();
		return "the daemon belongs to another user";
	}
	struct hf_in in;
	uint32_t type;
	uint64_t seq;
	struct hf_msg_welcome w;
	ssize_t n = say_hello(flags) ? recv_packet(10000) : 0;
	close_fd(&passing_fd); /* a WELCOME brings none */
	if (n <= 0 || !hf_open(buffer, (size_t)n, &in, &type, &seq) || type != HF_TYPE_WELCOME ||
	    !hf_get_welcome(&in, &w) || w.proto != HF_VERSION) {
		hang_up();
		return n <= 0 ? "it did not welcome us" : "it speaks another version";
	}
	memcpy(token, w.token, sizeof token);
	may_move = w.flags & HF_WELCOME_MOVE;
	return NULL;
}

/* ---- freeze ---- */

static uint32_t calm_ms; /* of CALM, for the next FREEZE */

static bool freeze(uint64_t seq, uint32_t timeout_ms)
{
	uint32_t calm = calm_ms;
	calm_ms = 0;
	if (state != RUNNING)
		return failed(seq, HF_FAILED_STATE, 0, "FREEZE: the program is frozen already");
	uint64_t start = calm ? hf_gate_calm(hf_now() + calm * 1000000ull) : hf_now();
	uint64_t deadline = start + (timeout_ms ? timeout_ms : 10000) * 1000000ull;
	for (;;) {
		while (hf_captures()) {
			hf_gate_open(); /* hf_calm may have closed it, and what is being captured must be able to end */
			if (hf_now() >= deadline)
				return failed(seq, HF_FAILED_CAPTURE, 0,
					"a stream capture (cuStreamBeginCapture) stayed open for %u ms", timeout_ms);
			nanosleep(&(struct timespec){ 0, 200000 }, NULL);
		}
		const char *call = hf_gate_close(deadline);
		if (call) {
			hf_gate_open();
			return failed(seq, HF_FAILED_INSIDE, 0, "a thread is inside %s and did not leave it within %u ms",
				call, timeout_ms);
		}
		if (!hf_captures())
			break;
		hf_gate_open(); /* one began while the gate closed: it must be able to end */
	}
	uint64_t closed = hf_now();
	void *what = NULL;
	uint32_t count = 0;
	int r = hf_sync_all(deadline, &what, &count);
	if (r != CUDA_SUCCESS) {
		hf_gate_open();
		if (r == HF_SYNC_TIMEOUT)
			return failed(seq, HF_FAILED_SYNC, 0,
				"cuCtxSynchronize: the device is still busy after %u ms (context %p)", timeout_ms, what);
		return failed(seq, HF_FAILED_SYNC, r, "cuCtxSynchronize: context %p: %s", what, error_name(r));
	}
	pthread_mutex_lock(&hf_mem_lock);
	r = hf_globals_save();
	pthread_mutex_unlock(&hf_mem_lock);
	if (r != CUDA_SUCCESS) {
		hf_gate_open();
		return failed(seq, HF_FAILED_GLOBALS, r, "cuMemcpyDtoD: variables of the program's modules: %s", error_name(r));
	}
	frozen_since = closed;
	state = FROZEN;
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		hf_queue_alloc(b); /* those that could not be exported get another chance */
	pthread_mutex_unlock(&hf_mem_lock);
	if (!flush())
		return false;
	uint8_t p[128];
	struct hf_msg_frozen m = { closed - start, hf_now() - closed, hf_launches(), count, hf_waiting() };
	hf_page.waiting = m.waiting;
	return send_packet(p, hf_put_frozen(p, sizeof p, seq, &m), -1);
}

static void thaw(void)
{
	state = RUNNING;
	stays_shut = false;
	hf_page.waiting = 0;
	hf_gate_open();
	syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0); /* at_exit */
}

/* ---- release ---- */

/* Unmaps b, or with NULL every VMM mapping of announced blocks; what was unmapped is marked. */
static CUresult unmap_block(struct hf_block *b)
{
	CUresult r = CUDA_SUCCESS;
	if (b && b->kind != HF_KIND_VMM) {
		r = b->mapped ? real_cuMemUnmap(b->va, b->size) : CUDA_SUCCESS;
		if (r == CUDA_SUCCESS)
			b->mapped = false;
		return r;
	}
	for (size_t i = 0; i < hf_nmaps && r == CUDA_SUCCESS; i++) {
		struct hf_map *m = hf_maps[i];
		if (!m->mapped || (b ? m->b != b : !m->b->told))
			continue;
		r = real_cuMemUnmap(m->va, m->size);
		if (r == CUDA_SUCCESS)
			m->mapped = false;
	}
	return r;
}

/* Maps b, or with NULL every VMM mapping whose block has its memory. */
static CUresult map_block(struct hf_block *b)
{
	if (b && b->kind != HF_KIND_VMM)
		return b->mapped ? CUDA_SUCCESS : hf_block_map(b);
	for (size_t i = 0; i < hf_nmaps; i++) {
		struct hf_map *m = hf_maps[i];
		if (m->mapped || (b ? m->b != b : !m->b->handle))
			continue;
		CUresult r = hf_map_restore(m);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

/* The signals that wake a released program. */
static sigset_t wakes(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMAX - HF_SIGNAL_OFFSET);
	sigaddset(&set, SIGRTMAX - HF_RUN_OFFSET);
	return set;
}

static bool release(uint64_t seq)
{
	if (state != FROZEN)
		return failed(seq, HF_FAILED_STATE, 0, "RELEASE: the program is not frozen");
	hf_tap_detach(); /* it is somebody's memory */
	uint64_t start = hf_now();
	struct hf_msg_released m = { 0, 0, 0 };
	CUresult r = CUDA_SUCCESS;
	struct hf_block *bad = NULL;
	void *ctx = NULL;
	int device = -1;
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b && r == CUDA_SUCCESS; b = b->next) {
		if (!b->told)
			continue; /* the daemon has no descriptor of it: it stays */
		if (b->device != device) {
			if (ctx)
				hf_pop();
			ctx = hf_push_any(device = b->device);
		}
		r = b->kind == HF_KIND_VMM ? CUDA_SUCCESS : unmap_block(b);
		if (r != CUDA_SUCCESS)
			bad = b;
	}
	if (r == CUDA_SUCCESS)
		r = unmap_block(NULL);
	if (r != CUDA_SUCCESS)
		map_block(NULL);
	for (struct hf_block *b = hf_blocks; b; b = b->next) {
		if (!b->told)
			continue;
		if (r != CUDA_SUCCESS) {
			if (b->kind != HF_KIND_VMM)
				map_block(b);
			continue;
		}
		real_cuMemRelease(b->handle);
		b->handle = 0;
		m.count++;
		m.bytes += b->size;
	}
	if (ctx)
		hf_pop();
	pthread_mutex_unlock(&hf_mem_lock);
	if (r != CUDA_SUCCESS && bad)
		return failed(seq, HF_FAILED_UNMAP, r, "cuMemUnmap: %llu bytes at 0x%llx: %s",
			(unsigned long long)bad->size, bad->va, error_name(r));
	if (r != CUDA_SUCCESS)
		return failed(seq, HF_FAILED_UNMAP, r, "cuMemUnmap: a mapping of the program's own: %s", error_name(r));
	hf_stacks_shrink();
	state = RELEASED;
	/*
	 * Nothing of ours may be open when the process is dumped; the socket goes last, so that its end
	 * says that all is closed.
	 */
	box_close();
	hf_page_unshare();
	close_fd(&page_fd);
	pthread_mutex_lock(&box_lock);
	close_fd(&wake_fd);
	pthread_mutex_unlock(&box_lock);
	fork_prepare(); /* its order is that of the locks */
	holds_all = true;
	sigset_t set = wakes();
	while (sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) > 0)
		; /* sent before there was anything to wake for */
	m.nanos = hf_now() - start;
	uint8_t p[128];
	return send_packet(p, hf_put_released(p, sizeof p, seq, &m), -1);
}

/* What is left of the conversation of a released program: one PARK, or the daemon's end of it. */
static bool park(uint64_t seq, const struct hf_msg_park *m)
{
	uint8_t p[128];
	struct hf_msg_parked parked = { 0, 0 };
	uint64_t start = hf_now();
	const char *why = hf_park((int)m->except,
		start + (m->timeout_millis ? m->timeout_millis : 10000) * 1000000ull, &parked.threads);
	if (why)
		failed(seq, HF_FAILED_PARK, 0, "PARK: %s", why);
	else {
		parked.nanos = hf_now() - start;
		send_packet(p, hf_put_parked(p, sizeof p, seq, &parked), -1);
	}
	return false; /* hang up */
}

/* ---- map ---- */

static char map_trouble[256];
static CUresult map_result;

static void map_failed(CUresult r, const char *format, ...)
{
	va_list ap;
	if (map_trouble[0])
		return; /* the first reason counts */
	map_result = r;
	va_start(ap, format);
	vsnprintf(map_trouble, sizeof map_trouble, format, ap);
	va_end(ap);
}

static void map(const struct hf_msg_map *m)
{
	int fd = passing_fd;
	pthread_mutex_lock(&hf_mem_lock);
	struct hf_block *b = hf_block_by_id(m->id);
	if (!b)
		map_failed(0, "MAP: there is no allocation %llu", (unsigned long long)m->id);
	else if (fd < 0 || b->size != m->size || b->va != m->va || (uint32_t)b->device != m->device)
		map_failed(0, "MAP: allocation %llu is %llu bytes at 0x%llx of device %d, not %llu at 0x%llx of device %u%s",
			(unsigned long long)m->id, (unsigned long long)b->size, b->va, b->device,
			(unsigned long long)m->size, (unsigned long long)m->va, m->device,
			fd < 0 ? " (and no descriptor came)" : "");
	else if (!b->handle) { /* else: mapped already, by an earlier attempt */
		void *ctx = hf_push_any(b->device);
		CUhandle h = 0;
		CUresult r = real_cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1);
		if (r != CUDA_SUCCESS)
			map_failed(r, "cuMemImportFromShareableHandle: allocation %llu, %llu bytes: %s", (unsigned long long)b->id,
				(unsigned long long)b->size, error_name(r));
		else {
			b->handle = h;
			b->imported = true;
			r = b->kind == HF_KIND_VMM ? CUDA_SUCCESS : map_block(b); /* VMM: all at MAPEND */
			if (r != CUDA_SUCCESS) {
				map_failed(r, "cuMemMap: %llu bytes at 0x%llx: %s", (unsigned long long)b->size, b->va, error_name(r));
				unmap_block(b);
				real_cuMemRelease(h);
				b->handle = 0;
			}
		}
		if (ctx)
			hf_pop();
	}
	pthread_mutex_unlock(&hf_mem_lock);
	close_fd(&passing_fd);
}

static bool map_end(uint64_t seq, uint64_t start)
{
	struct hf_msg_mapped m = { 0, 0, 0 };
	pthread_mutex_lock(&hf_mem_lock);
	CUresult r = map_block(NULL);
	if (r != CUDA_SUCCESS)
		map_failed(r, "cuMemMap: a mapping of the program's own: %s", error_name(r));
	for (struct hf_block *b = hf_blocks; b; b = b->next) {
		if (!b->handle)
			map_failed(0, "MAPEND: allocation %llu (%llu bytes at 0x%llx) did not come back", (unsigned long long)b->id,
				(unsigned long long)b->size, b->va);
		m.count++;
		m.bytes += b->size;
		b->queued = b->told = true;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	r = hf_stacks_restore();
	if (r != CUDA_SUCCESS)
		map_failed(r, "cuCtxSetLimit: the stack size of a context: %s", error_name(r));
	if (map_trouble[0]) {
		bool ok = failed(seq, HF_FAILED_MAP, map_result, "%s", map_trouble);
		map_trouble[0] = 0;
		return ok;
	}
	state = FROZEN;
	m.nanos = hf_now() - start;
	uint8_t p[128];
	return send_packet(p, hf_put_mapped(p, sizeof p, seq, &m), -1);
}

/* ---- a new daemon ---- */

/*
 * Imported memory cannot be exported again, so a new daemon could not hold it. Its contents move into memory of our
 * own, under the same address; the program stands still for that moment.
 */
static CUresult rehome(struct hf_block *b)
{
	CUhandle h = 0;
	CUdeviceptr from = 0, to = 0;
	CUresult r = hf_physical(&h, b->size, b->device, b->kind == HF_KIND_VMM ? &b->prop : NULL);
	if (r != CUDA_SUCCESS)
		return r;
	void *ctx = hf_push_any(b->device);
	bool mapped_from = false, mapped_to = false;
	r = ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = real_cuMemAddressReserve(&from, b->size, 0, 0, 0);
	if (r == CUDA_SUCCESS)
		r = real_cuMemAddressReserve(&to, b->size, 0, 0, 0);
	if (r == CUDA_SUCCESS)
		mapped_from = (r = real_cuMemMap(from, b->size, 0, b->handle, 0)) == CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		mapped_to = (r = real_cuMemMap(to, b->size, 0, h, 0)) == CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = hf_set_access(from, b->size, b->device);
	if (r == CUDA_SUCCESS)
		r = hf_set_access(to, b->size, b->device);
	if (r == CUDA_SUCCESS)
		r = real_cuMemcpyDtoD_v2(to, from, b->size);
	if (r == CUDA_SUCCESS)
		r = real_cuCtxSynchronize();
	if (mapped_from)
		real_cuMemUnmap(from, b->size);
	if (mapped_to)
		real_cuMemUnmap(to, b->size);
	if (from)
		real_cuMemAddressFree(from, b->size);
	if (to)
		real_cuMemAddressFree(to, b->size);
	if (r == CUDA_SUCCESS)
		r = unmap_block(b);
	if (r == CUDA_SUCCESS) {
		CUhandle old = b->handle;
		b->handle = h;
		r = map_block(b);
		if (r == CUDA_SUCCESS) {
			b->imported = false;
			h = old;
		} else {
			unmap_block(b);
			b->handle = old;
			map_block(b);
		}
	} else
		map_block(b);
	real_cuMemRelease(h);
	if (ctx)
		hf_pop();
	return r;
}

/* What others use as well stays where it is. */
static bool to_rehome(const struct hf_block *b, bool shareable)
{
	return b->imported && b->handle && !b->exported &&
		(!shareable || (b->kind == HF_KIND_VMM && b->prop.requestedHandleTypes & 1));
}

/*
 * Moves what a new daemon could not hold, or only what the program itself may want to export; waits some seconds for
 * the gate, and tries again at the next chance.
 */
static void rehome_all(bool shareable)
{
	bool any = false;
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b; b = b->next) {
		if (!to_rehome(b, shareable))
			continue;
		CUresult r;
		int fd = export_block(b, &r);
		if (fd >= 0) {
			close(fd);
			b->imported = false; /* this driver can export it again */
		} else
			any = true;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	bool shut = state == FROZEN; /* nothing is inside then, and somebody may be filling this very memory */
	if (!any || (shut && !may_move))
		return;
	void *what;
	uint32_t n;
	uint64_t deadline = hf_now() + 5000000000u;
	if (!shut && (hf_captures() || hf_gate_close(deadline) || hf_captures() ||
		      hf_sync_all(deadline, &what, &n) != CUDA_SUCCESS)) {
		hf_gate_open();
		return; /* tell_alloc names what cannot be held */
	}
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b; b = b->next)
		if (to_rehome(b, shareable) && rehome(b) != CUDA_SUCCESS)
			break;
	pthread_mutex_unlock(&hf_mem_lock);
	if (!shut)
		hf_gate_open();
}

static bool adopted(void)
{
	if (!flush())
		return false;
	struct hf_msg_adopted m = { 0, 0, 0 };
	pthread_mutex_lock(&hf_mem_lock);
	for (struct hf_block *b = hf_blocks; b; b = b->next) {
		m.allocations += b->told;
		m.bytes += b->told ? b->size : 0;
		m.lost += b->told ? 0 : b->size;
	}
	pthread_mutex_unlock(&hf_mem_lock);
	uint8_t p[128];
	return send_packet(p, hf_put_adopted(p, sizeof p, 0, &m), -1);
}

/* ---- the tap ---- */

static bool done(uint64_t seq)
{
	uint8_t p[32];
	struct hf_msg_done m = { 0 };
	return send_packet(p, hf_put_done(p, sizeof p, seq, &m), -1);
}

static bool tap(struct hf_in *in, uint64_t seq)
{
	struct hf_msg_tap m;
	bool ok = hf_get_tap(in, &m) && passing_fd >= 0;
	if (!ok)
		failed(seq, HF_FAILED_PROTOCOL, 0, "TAP: no descriptor, or malformed");
	else if (state == RELEASED)
		ok = failed(seq, HF_FAILED_STATE, 0, "TAP: the program has not got its memory");
	else if (!hf_tap_attach(passing_fd, m.flags & HF_TAP_RECORD, !(m.flags & HF_TAP_NO_CODE)))
		ok = failed(seq, HF_FAILED_PROTOCOL, 0, "TAP: the tap cannot be mapped: %s", strerror(errno));
	else
		ok = done(seq);
	close_fd(&passing_fd);
	return ok;
}

static bool recorded; /* a recorder listens, and no daemon */

bool hf_recorder_gone(void)
{
	char c;
	return recorded && recv(sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/*
 * Instead of attaching: the recorder gets the page and sends the tap. There is no control thread;
 * the socket only says who lives.
 */
static const char *call_recorder(void)
{
	struct hf_in in;
	uint32_t type;
	uint64_t seq;
	bool closed = hf_gate_close(hf_now() + 1000000000u) == NULL; /* see provide */
	if (closed)
		hf_page_share(&page_fd);
	hf_gate_open();
	if (page_fd < 0)
		return "its page cannot be shared";
	const char *why = call_daemon(HF_HELLO_TRACE);
	close_fd(&page_fd);
	if (why)
		return why;
	ssize_t n = recv_packet(-1);
	if (n <= 0 || !hf_open(buffer, (size_t)n, &in, &type, &seq) || type != HF_TYPE_TAP) {
		close_fd(&passing_fd);
		hang_up();
		return "it sends no tap";
	}
	recorded = true;
	if (!tap(&in, seq) || !hf_tapped) {
		hang_up();
		recorded = false;
		return "its tap cannot be used";
	}
	return NULL;
}

/* ---- the thread ---- */

static uint64_t map_start;

/* One packet of the daemon; false: hang up. */
static bool obey(void)
{
	ssize_t n = recv_packet(-1);
	struct hf_in in;
	uint32_t type;
	uint64_t seq = 0;
	if (n == 0)
		return false;
	if (n < 0 || !hf_open(buffer, (size_t)n, &in, &type, &seq)) {
		close_fd(&passing_fd);
		failed(seq, HF_FAILED_PROTOCOL, 0, "a packet of the daemon is malformed");
		return false;
	}
	struct hf_msg_calm calm;
	struct hf_msg_freeze f;
	struct hf_msg_thaw w;
	struct hf_msg_ask ask;
	struct hf_msg_roommade room;
	struct hf_msg_map m;
	struct hf_msg_park stop;
	struct hf_msg_lease lease;
	if (ending) { /* the program is ending, and the driver must not be called any more */
		close_fd(&passing_fd);
		return failed(seq, type == HF_TYPE_THAW ? HF_FAILED_OPEN : HF_FAILED_STATE, 0, "the program is ending");
	}
	if (holds_all && type != HF_TYPE_PARK) { /* everything else would want one of the locks */
		close_fd(&passing_fd);
		return !seq || failed(seq, HF_FAILED_STATE, 0, "the program has let go of its memory");
	}
	if (type == HF_TYPE_MAP) {
		if (!hf_get_map(&in, &m) || state != RELEASED) {
			close_fd(&passing_fd);
			return failed(seq, state == RELEASED ? HF_FAILED_PROTOCOL : HF_FAILED_STATE, 0,
				"MAP: the program has its memory");
		}
		map(&m);
		return true;
	}
	if (type == HF_TYPE_TAP)
		return tap(&in, seq);
	struct hf_msg_shared share;
	if (type == HF_TYPE_SHARED && hf_get_shared(&in, &share)) {
		shared(&share);
		return true;
	}
	close_fd(&passing_fd);
	switch (type) {
	case HF_TYPE_ASK:
		if (!hf_get_ask(&in, &ask))
			break;
		if (ask.flags && !hf_tapped)
			return failed(seq, HF_FAILED_STATE, 0, "ASK: there is no tap");
		hf_tap_ask(ask.flags);
		return done(seq);
	case HF_TYPE_UNTAP:
		hf_tap_detach();
		return done(seq);
	case HF_TYPE_FREEZE:
		if (!hf_get_freeze(&in, &f))
			break;
		return freeze(seq, f.timeout_millis);
	case HF_TYPE_CALM:
		if (!hf_get_calm(&in, &calm))
			break;
		calm_ms = calm.millis;
		return true;
	case HF_TYPE_THAW:
		if (!hf_get_thaw(&in, &w))
			break;
		if (state == RELEASED)
			return failed(seq, HF_FAILED_STATE, 0, "THAW: the program has not got its memory back");
		if (state != FROZEN)
			return failed(seq, HF_FAILED_OPEN, 0, "THAW: the program is not frozen");
		CUresult r = CUDA_SUCCESS;
		if (w.flags & HF_THAW_GLOBALS) {
			pthread_mutex_lock(&hf_mem_lock);
			r = hf_globals_restore();
			pthread_mutex_unlock(&hf_mem_lock);
		}
		uint64_t now = hf_now(); /* the clock of another machine may be behind */
		struct hf_msg_thawed t = { now > frozen_since ? now - frozen_since : 0 };
		if (r == CUDA_SUCCESS || !stays_shut)
			thaw();
		if (r != CUDA_SUCCESS)
			return failed(seq, HF_FAILED_GLOBALS, r, "cuMemcpyDtoD: variables of the program's modules: %s",
				error_name(r));
		return send_packet(buffer, hf_put_thawed(buffer, sizeof buffer, seq, &t), -1);
	case HF_TYPE_RELEASE:
		return release(seq);
	case HF_TYPE_PARK:
		if (!hf_get_park(&in, &stop))
			break;
		return holds_all ? park(seq, &stop) : failed(seq, HF_FAILED_STATE, 0, "PARK: the program has its memory");
	case HF_TYPE_LEASE:
		if (!hf_get_lease(&in, &lease))
			break;
		if (seq && state != FROZEN)
			return failed(seq, HF_FAILED_STATE, 0, "LEASE: the program is not frozen");
		lease_ms = lease.millis;
		stays_shut = (lease.flags & HF_LEASE_SHUT) && state != RUNNING;
		return !seq || done(seq);
	case HF_TYPE_MAPEND:
		if (state != RELEASED)
			return failed(seq, HF_FAILED_STATE, 0, "MAPEND: the program has its memory");
		return map_end(seq, map_start);
	case HF_TYPE_ROOMMADE:
		if (!hf_get_roommade(&in, &room))
			break;
		room_made(&room);
		return true;
	case HF_TYPE_QUIT:
		if (state == RELEASED)
			return failed(seq, HF_FAILED_STATE, 0, "QUIT: the program has not got its memory back");
		if (state == FROZEN)
			thaw();
		rehome_all(true); /* nobody will be there to ask (see hf_share) */
		hf_attached = 0;
		return false;
	}
	failed(seq, HF_FAILED_PROTOCOL, 0, "message %u is unknown or malformed", type);
	return false;
}

/* How long to wait for the daemon, for poll. */
static int patience(uint64_t heard)
{
	if (state != FROZEN || !lease_ms || stays_shut)
		return -1;
	uint64_t end = heard + lease_ms * 1000000ull, now = hf_now();
	return now >= end ? 0 : (int)((end - now) / 1000000 + 1);
}

/* Until the daemon is gone, or the memory is. */
static void converse(void)
{
	calm_ms = lease_ms = 0;
	uint64_t heard = hf_now();
	for (bool go = true; go;) {
		struct pollfd p[2] = { { sock, POLLIN, 0 }, { wake_fd, POLLIN, 0 } };
		int ready = poll(p, 2, patience(heard));
		if (ready < 0 && errno != EINTR)
			break;
		if (ready == 0 && patience(heard) == 0) {
			warn("the daemon says nothing for %u ms while the program is frozen: it goes on", lease_ms);
			break;
		}
		pthread_mutex_lock(&work_lock);
		if (p[1].revents & POLLIN) {
			uint64_t n;
			if (read(wake_fd, &n, sizeof n) < 0 && errno != EAGAIN && errno != EINTR)
				go = false;
			go = go && (ending || flush());
		}
		if (go && (p[0].revents & (POLLIN | POLLHUP | POLLERR))) {
			go = obey();
			heard = hf_now();
		}
		pthread_mutex_unlock(&work_lock);
	}
	pthread_mutex_lock(&work_lock);
	hang_up();
	pthread_mutex_unlock(&work_lock);
	if (state != RELEASED) /* then there is no tap, and parked threads may hold its lock */
		hf_tap_lost();
}

/* Opens what the conversation needs beside the socket; false if the system has none left. */
static bool provide(void)
{
	if (wake_fd < 0) {
		pthread_mutex_lock(&box_lock); /* fork holds it as well */
		wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		pthread_mutex_unlock(&box_lock);
	}
	if (page_fd < 0) {
		/* Exchanging the page under threads that count could lose what they write: everybody stays out for it. */
		bool closed = hf_page.gate == HF_GATE_CLOSED;
		if (!closed && hf_gate_close(hf_now() + 1000000000u)) {
			hf_gate_open();
			return false;
		}
		hf_page_share(&page_fd);
		if (!closed)
			hf_gate_open();
	}
	return wake_fd >= 0 && page_fd >= 0;
}

static void nap(unsigned ms) { nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL); }

/* Released: waits to be woken, then for the daemon; true once it talks to us. */
static bool wait_for_return(void)
{
	sigset_t set = wakes();
	siginfo_t info;
	for (int n; (n = sigwaitinfo(&set, &info)) != SIGRTMAX - HF_SIGNAL_OFFSET;) {
		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0)
			hf_unpark(); /* the driver waits for a lock that a parked thread holds */
	}
	hf_unpark(); /* the driver is whole again */
	/* Try for a minute: descriptors may be short for a while, and the daemon sends no second signal before that. */
	for (int i = 0; i < 600; i++) {
		if (provide() && !call_daemon(HF_HELLO_RESUME))
			return true;
		nap(100);
	}
	return false;
}

static void *control(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, HF_CONTROL_COMM);
	hf_depth = 1;
	const char *why = provide() ? call_daemon(0) : "out of descriptors or memory";
	if (why) /* before the program goes on: it may end at once */
		warn("no daemon at %s (%s): this program runs unheld", socket_path, why);
	pthread_mutex_lock(&attach_lock);
	attach_state = why ? UNHELD : HELD;
	hf_attached = !why;
	if (!why) {
		pthread_mutex_lock(&box_lock);
		box_open = true;
		pthread_mutex_unlock(&box_lock);
	}
	pthread_cond_broadcast(&attach_cond);
	pthread_mutex_unlock(&attach_lock);
	if (why) {
		close_fd(&page_fd); /* the mapping stays; nobody reads it */
		close_fd(&wake_fd);
		return NULL;
	}
	if (adopted())
		converse();
	for (;;) {
		hang_up();
		if (!hf_attached)
			break; /* QUIT */
		if (state == RELEASED) {
			if (!wait_for_return())
				continue;
			map_start = hf_now();
			pthread_mutex_lock(&box_lock);
			box_open = true;
			pthread_mutex_unlock(&box_lock);
			converse();
			if (state == FROZEN && !stays_shut)
				thaw();
			continue;
		}
		/* The daemon died. The program goes on, and looks for the next one. */
		if (state == FROZEN && !stays_shut)
			thaw();
		box_close();
		nap(HF_RECONNECT_MS);
		pthread_mutex_lock(&work_lock);
		bool again = !ending && provide() && !call_daemon(HF_HELLO_READOPT | (state == FROZEN ? HF_HELLO_FROZEN : 0));
		if (again) {
			rehome_all(false);
			tell_all();
			again = adopted();
		} else if (!ending && anybody_shares())
			rehome_all(true); /* there is nobody to ask: memory of our own can be exported */
		pthread_mutex_unlock(&work_lock);
		if (again)
			converse();
	}
	box_close();
	return NULL;
}

/*
 * The program ends: the driver's own handlers come after this, and must not meet us inside the driver. A program that
 * is frozen, or has not got its memory, ends when it runs again: until then its daemon must be able to give it back
 * what it has taken.
 */
static void at_exit(void)
{
	if (self != getpid())
		return; /* a child has no control thread, and nothing to say */
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 60; /* it may be inside a driver that hangs */
	while (pthread_mutex_timedlock(&work_lock, &t) == 0) {
		uint32_t now = state;
		ending = now == RUNNING;
		if (ending) {
			/* Nobody needs to keep our memory. What cannot be said at once stays unsaid. */
			uint8_t p[32];
			struct hf_msg_bye m = { 0 };
			if (sock >= 0)
				send(sock, p, hf_put_bye(p, sizeof p, 0, &m), MSG_NOSIGNAL | MSG_DONTWAIT);
		}
		pthread_mutex_unlock(&work_lock);
		if (ending)
			return;
		syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, now, &(struct timespec){ 1, 0 }, NULL, 0);
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_sec += 60;
	}
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&attach_lock);
	hf_range_fork_prepare();
	hf_graph_fork_prepare();
	hf_code_fork_prepare();
	pthread_mutex_lock(&hf_mem_lock);
	pthread_mutex_lock(&hf_ctx_lock); /* the control thread looks for a context while it has hf_mem_lock */
	hf_tap_fork_prepare();
	hf_gate_fork_prepare();
	pthread_mutex_lock(&caveat_lock);
	pthread_mutex_lock(&box_lock);
	pthread_mutex_lock(&fd_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&fd_lock);
	pthread_mutex_unlock(&box_lock);
	pthread_mutex_unlock(&caveat_lock);
	hf_gate_fork_parent();
	hf_tap_fork_parent();
	pthread_mutex_unlock(&hf_ctx_lock);
	pthread_mutex_unlock(&hf_mem_lock);
	hf_code_fork_parent();
	hf_graph_fork_parent();
	hf_range_fork_parent();
	pthread_mutex_unlock(&attach_lock);
}

/* The child holds nothing and is told nothing; if it brings up the driver itself, it attaches like any program. */
static void fork_child(void)
{
	if (hf_attached)
		hf_devices_fork_child();
	hf_attached = 0;
	hf_gate_fork_child();
	hf_tap_fork_child();
	hf_code_fork_child();
	hf_graph_fork_child();
	hf_range_fork_child();
	hf_mem_fork_child();
	hf_pool_fork_child();
	hf_vmm_fork_child();
	hf_ctx_fork_child();
	hf_globals_fork_child();
	hf_park_fork_child();
	pthread_mutex_init(&attach_lock, NULL);
	pthread_mutex_init(&box_lock, NULL);
	pthread_mutex_init(&fd_lock, NULL);
	pthread_mutex_init(&caveat_lock, NULL);
	pthread_mutex_init(&work_lock, NULL);
	pthread_cond_init(&attach_cond, NULL);
	int *fds[] = { &sock, &page_fd, &wake_fd, &passing_fd };
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		close_fd(fds[i]);
	for (struct hf_sharer *s = sharers; s; s = s->next)
		if (s->fd >= 0)
			close(s->fd);
	attach_state = NEVER;
	recorded = false;
	state = RUNNING;
	stays_shut = holds_all = false;
	ending = false;
	box = NULL;
	box_end = &box;
	box_open = false;
	last_free = 0;
	room_asked = room_done = 0;
	sharers = NULL;
	share_asked = 0;
	ncaveats = 0;
	memset(token, 0, sizeof token);
}

static bool traced; /* HOLDFAST_TRACE says so */

static void read_environment(void)
{
	const char *name = getenv("HOLDFAST_NAME"), *gpu = getenv("HOLDFAST_GPU");
	snprintf(program_name, sizeof program_name, "%s", name ? name : "");
	gpu_kind = gpu && !strcmp(gpu, "soft") ? HF_GPU_SOFT : HF_GPU_NATIVE;
	const char *dir = getenv("HOLDFAST_DIR"), *run = getenv("XDG_RUNTIME_DIR"), *trace = getenv("HOLDFAST_TRACE");
	int n;
	traced = trace && *trace;
	if (traced)
		n = snprintf(socket_path, sizeof socket_path, "%s", trace);
	else if (dir && *dir)
		n = snprintf(socket_path, sizeof socket_path, "%s/shim.sock", dir);
	else if (run && *run)
		n = snprintf(socket_path, sizeof socket_path, "%s/holdfast/shim.sock", run);
	else if (geteuid() == 0)
		n = snprintf(socket_path, sizeof socket_path, "/run/holdfast/shim.sock");
	else
		n = snprintf(socket_path, sizeof socket_path, "/tmp/holdfast-%u/shim.sock", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= sizeof socket_path)
		socket_path[0] = 0; /* connect says that it cannot */
}

void hf_attach(void)
{
	static bool hooked;
	pthread_mutex_lock(&attach_lock);
	if (attach_state == NEVER) {
		attach_state = TRYING;
		self = getpid();
		read_environment();
		if (!hooked)
			hooked = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0 && atexit(at_exit) == 0;
		if (traced) {
			hf_depth++; /* what we ask the driver is not the program's */
			const char *why = call_recorder();
			/* Its memory is made as that of a held program, without a daemon: the recorder is told of every byte. */
			hf_attached = !why && hf_range_wanted();
			if (!why)
				hf_range_attached();
			hf_depth--;
			attach_state = UNHELD;
			if (why)
				warn("no recorder at %s (%s): this program is not traced", socket_path, why);
			pthread_mutex_unlock(&attach_lock);
			return;
		}
		pthread_attr_t attr;
		pthread_t t;
		sigset_t all, before;
		sigfillset(&all);
		/* The thread inherits it: no handler of the program ever runs there. */
		pthread_sigmask(SIG_SETMASK, &all, &before);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		pthread_attr_setstacksize(&attr, 1 << 20);
		int e = pthread_create(&t, &attr, control, NULL);
		pthread_attr_destroy(&attr);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (e) {
			attach_state = UNHELD;
			warn("cannot start the control thread (%s): this program runs unheld", strerror(e));
		}
	}
	while (attach_state == TRYING)
		pthread_cond_wait(&attach_cond, &attach_lock);
	pthread_mutex_unlock(&attach_lock);
}

CUresult hf_cuInit(unsigned int flags)
{
	CUresult r = real_cuInit(flags);
	if (r == CUDA_SUCCESS && attach_state != HELD && attach_state != UNHELD)
		hf_attach();
	return r;
}
