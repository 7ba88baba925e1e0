/*
 * Parking: while the driver's own state is away, no thread of the program may run. From the driver's save to its
 * restore its mappings are holes: a thread that queries an event, which is not gated, or touches pinned memory would
 * die or lose what it writes. So every thread but the control thread and the driver's restore thread stands in a
 * signal handler of ours, in a futex: that needs no rights, no tracer whose death would let them go, and is dumped
 * and restored like any other thread.
 *
 * The signal is glibc's second one (33, SIGSETXID): no program can block it, because pthread_sigmask leaves it out of
 * every set. What is not ours goes on to glibc's handler, which looks for signals of another kind.
 *
 * The driver is locked before (its own calls have ended, or wait), and the control thread holds every lock of the shim.
 * What is left are locks of libc and of the driver, which its restore thread may want: a thread is not stopped in the
 * middle of a function of either, as far as that can be seen, but let run and signalled again a moment later.
 *
 * Nothing here allocates or takes a lock: the threads that stand still may hold any.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SIGNAL = 33, MOST_THREADS = 1 << 15 /* a power of two */ };

/* A thread as the control thread sees it; the handler moves it from SENT to STOPPED or BUSY. */
struct thread { int tid; uint32_t state; };
enum { FREE, SENT, BUSY, STOPPED, ENDED, KERNEL /* never runs code of the process */ };
static struct thread threads[MOST_THREADS];

static uint32_t parking;  /* futex: 0, or the number of the parking for which threads in the handler stay */
static uint32_t arrivals; /* futex: changes when a thread has come there */
static bool patient;      /* threads that are busy may go on */

/* ---- the handler ---- */

struct range { uintptr_t start, end; };
static struct range libc, libcuda;   /* their code */
static uintptr_t quick_calls[7];     /* functions of libc that do not wait: a thread inside one may hold a lock */

static bool in(const struct range *r, uintptr_t p) { return p >= r->start && p < r->end; }

/*
 * Whether a thread at pc may hold a lock that others want. In the kernel it waits, or is about to: the signal has made
 * the call end, or it stands before the instruction, to be made again.
 */
static bool busy(uintptr_t pc)
{
	static const uint8_t syscall_instruction[] = { 0x0f, 0x05 };
	if (!in(&libc, pc) && !in(&libcuda, pc))
		return false;
	if (!memcmp((const void *)pc, syscall_instruction, 2))
		return false;
	if (memcmp((const void *)(pc - 2), syscall_instruction, 2))
		return true;
	for (size_t i = 0; i < sizeof quick_calls / sizeof *quick_calls; i++)
		if (quick_calls[i] && pc - quick_calls[i] < 64)
			return true;
	return false;
}

/* As the kernel has it; glibc's has another layout and refuses this signal. */
struct action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};
enum { RESTORER = 0x04000000 };
static struct action before; /* glibc's */

static void stop(int number, siginfo_t *info, void *context)
{
	struct thread *t = info->si_value.sival_ptr;
	if (info->si_code != SI_QUEUE || (uintptr_t)t < (uintptr_t)threads ||
	    (uintptr_t)t >= (uintptr_t)(threads + MOST_THREADS)) {
		if ((uintptr_t)before.handler > 1)
			before.handler(number, info, context);
		return;
	}
	int saved = errno;
	const ucontext_t *u = context;
	uint32_t now = __atomic_load_n(&parking, __ATOMIC_ACQUIRE);
	if (now && t->tid == (int)syscall(SYS_gettid)) { /* else it was sent the last time, and is late */
		bool stay = !(patient && busy((uintptr_t)u->uc_mcontext.gregs[REG_RIP]));
		__atomic_store_n(&t->state, stay ? STOPPED : BUSY, __ATOMIC_RELEASE);
		__atomic_add_fetch(&arrivals, 1, __ATOMIC_RELEASE);
		syscall(SYS_futex, &arrivals, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		/* A thread that slept through the end of one parking and the beginning of the next must be stopped anew. */
		while (stay && __atomic_load_n(&parking, __ATOMIC_ACQUIRE) == now)
			syscall(SYS_futex, &parking, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
	}
	errno = saved;
}

void hf_park_return(void);
__asm__(".text\n"
	".globl hf_park_return\n"
	".hidden hf_park_return\n"
	".type hf_park_return, @function\n"
	"	nop\n" /* unwinders look one byte before a return address */
	"hf_park_return:\n"
	"	mov $15, %eax\n" /* rt_sigreturn */
	"	syscall\n"
	".size hf_park_return, .-hf_park_return\n");

/*
 * While a thread stands in the handler, no handler of the program may run in it. Signals that nobody handles stay open:
 * who kills a suspended program means it.
 */
static bool handle(void)
{
	struct action a = { stop, SA_SIGINFO | SA_RESTART | SA_ONSTACK | RESTORER, hf_park_return, 0 }, old;
	for (int n = 1; n <= 64; n++)
		if (syscall(SYS_rt_sigaction, n, NULL, &old, 8) == 0 && (uintptr_t)old.handler > 1)
			a.mask |= 1ull << (n - 1);
	if (syscall(SYS_rt_sigaction, SIGNAL, &a, &old, 8) != 0)
		return false;
	if (old.handler != stop)
		before = old;
	return true;
}

/* ---- what is in the process ---- */

struct search { uintptr_t p; struct range found; };

static bool holds(const struct hf_mapping *m, void *arg)
{
	struct search *s = arg;
	struct range r = { m->start, m->end };
	if (!in(&r, s->p))
		return false;
	s->found = r;
	return true;
}

static struct range mapping_of(uintptr_t p)
{
	struct search s = { .p = p };
	hf_mappings(holds, &s);
	return s.found;
}

static void look_around(void)
{
	const void *calls[] = { (void *)mmap, (void *)munmap, (void *)mprotect, (void *)madvise, (void *)mremap,
		(void *)brk, (void *)close };
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		quick_calls[i] = (uintptr_t)calls[i];
	libc = mapping_of((uintptr_t)calls[5]);
	libcuda = mapping_of((uintptr_t)hf_fn(HF_SYM_cuInit));
}

static int number(const char *s)
{
	int n = 0;
	for (; *s >= '0' && *s <= '9'; s++)
		n = n * 10 + (*s - '0');
	return n;
}

static ssize_t read_task(int tid, const char *name, char *text, size_t room)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, room - 1) : -1;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n;
}

/* Whether a thread that has not stopped needs to, by what the kernel says of it. comm and state are for messages. */
static uint32_t kind_of(int tid, char comm[32], char *run)
{
	char text[2048];
	*run = '?';
	comm[0] = 0;
	if (read_task(tid, "status", text, sizeof text) <= 0)
		return ENDED;
	const char *name = strstr(text, "Name:\t"), *state = strstr(text, "\nState:\t");
	const char *blocked = strstr(text, "\nSigBlk:\t");
	for (size_t i = 0; name && i < 31 && name[6 + i] && name[6 + i] != '\n'; i++)
		comm[i + 1] = 0, comm[i] = name[6 + i];
	if (state)
		*run = state[8];
	if (*run == 'Z' || *run == 'X')
		return ENDED;
	const char *p = blocked ? blocked + 9 : "";
	uint64_t set = hf_hex(&p);
	/* io_uring's workers, which only the kernel runs. */
	return set >> (SIGNAL - 1) & 1 && !strncmp(comm, "iou-", 4) ? KERNEL : SENT;
}

static struct thread *thread_of(int tid)
{
	for (unsigned i = 0, at = (unsigned)tid * 2654435761u; i < MOST_THREADS; i++, at++) {
		struct thread *t = &threads[at % MOST_THREADS];
		if (t->tid == tid || t->tid == 0)
			return t;
	}
	return NULL;
}

static void send_stop(struct thread *t)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_signo = SIGNAL;
	info.si_code = SI_QUEUE;
	info.si_pid = getpid();
	info.si_value.sival_ptr = t;
	__atomic_store_n(&t->state, SENT, __ATOMIC_RELEASE);
	/* No such thread: it has ended. Out of queued signals: the next round tries again. */
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), t->tid, SIGNAL, &info) != 0)
		__atomic_store_n(&t->state, errno == ESRCH ? ENDED : BUSY, __ATOMIC_RELEASE);
}

/*
 * Signals whoever is not known yet or was busy. The number of threads that have not stopped, -1 if they cannot be told.
 */
static int round_of(int except, uint64_t *stopped, int *waits_for)
{
	char list[4096] __attribute__((aligned(8)));
	int left = 0, self = (int)syscall(SYS_gettid);
	int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	*stopped = 0;
	for (long n; (n = syscall(SYS_getdents64, dir, list, sizeof list)) > 0;)
		for (long i = 0; i < n;) {
			const struct hf_dirent *e = (const void *)(list + i);
			i += e->size;
			int tid = number(e->name);
			if (!tid || tid == self || tid == except)
				continue;
			struct thread *t = thread_of(tid);
			if (!t) {
				close(dir);
				return -1;
			}
			uint32_t now = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
			if (now == STOPPED)
				++*stopped;
			if (now == STOPPED || now == ENDED || now == KERNEL)
				continue;
			if (t->tid == 0 || now == BUSY) {
				t->tid = tid;
				send_stop(t);
			}
			left++;
			*waits_for = tid;
		}
	close(dir);
	return left;
}

/* ---- the control thread ---- */

const char *hf_park(int except, uint64_t deadline, uint64_t *stopped)
{
	static char why[256];
	static uint32_t times;
	uint64_t start = hf_now();
	int left, tid = 0, clean = 0;
	memset(threads, 0, sizeof threads);
	look_around();
	if (!handle())
		return "rt_sigaction refuses signal 33";
	patient = true;
	times += times + 1 == 0 ? 2 : 1;
	__atomic_store_n(&parking, times, __ATOMIC_SEQ_CST);
	for (;;) {
		uint32_t seen = __atomic_load_n(&arrivals, __ATOMIC_ACQUIRE);
		left = round_of(except, stopped, &tid);
		/* Twice: one that stopped while we looked may have started another just before. */
		clean = left == 0 ? clean + 1 : 0;
		if (left < 0 || clean == 2)
			break;
		if (clean)
			continue;
		uint64_t now = hf_now();
		if (now >= deadline)
			break;
		patient = now < start + (deadline - start) / 4; /* one that is always in the middle of something stops there */
		if (now >= start + 20000000) {
			char comm[32], run;
			struct thread *t = thread_of(tid);
			uint32_t kind = kind_of(tid, comm, &run);
			if (kind != SENT)
				__atomic_store_n(&t->state, kind, __ATOMIC_RELEASE);
		}
		syscall(SYS_futex, &arrivals, FUTEX_WAIT_PRIVATE, seen, &(struct timespec){ 0, 500000 }, NULL, 0);
	}
	if (left == 0)
		return NULL;
	char comm[32] = "", run = '?';
	if (left > 0)
		kind_of(tid, comm, &run);
	hf_unpark();
	if (left < 0)
		return "its threads cannot be listed";
	snprintf(why, sizeof why, "thread %d (%s, state %c) does not stop: it blocks all signals, or is traced",
		tid, comm, run);
	return why;
}

void hf_unpark(void)
{
	__atomic_store_n(&parking, 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &parking, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/* In a child: it has one thread, which is in none of this. */
void hf_park_fork_child(void) { parking = 0; }
