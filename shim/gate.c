/* Threads, the gate and the shared page. */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct hf_slot) == HF_SLOT_SIZE, "slot");
_Static_assert(sizeof(struct hf_page) == HF_PAGE_SIZE, "page");
_Static_assert(offsetof(struct hf_slot, inside) == HF_SLOT_INSIDE && offsetof(struct hf_slot, call) == HF_SLOT_CALL &&
	offsetof(struct hf_slot, launches) == HF_SLOT_LAUNCHES && offsetof(struct hf_slot, graphs) == HF_SLOT_GRAPHS &&
	offsetof(struct hf_slot, copies) == HF_SLOT_COPIES && offsetof(struct hf_slot, tid) == HF_SLOT_TID, "slot layout");
_Static_assert(offsetof(struct hf_page, gate) == HF_OFF_GATE && offsetof(struct hf_page, slots) == HF_OFF_SLOTS &&
	offsetof(struct hf_page, bytes) == HF_OFF_BYTES && offsetof(struct hf_page, allocs) == HF_OFF_ALLOCS &&
	offsetof(struct hf_page, refused) == HF_OFF_REFUSED && offsetof(struct hf_page, waiting) == HF_OFF_WAITING &&
	offsetof(struct hf_page, slot) == HF_PAGE_SLOTS, "page layout");

struct hf_page hf_page __attribute__((aligned(4096)));
__thread struct hf_slot *hf_slot;
__thread unsigned hf_depth;

static pthread_mutex_t slot_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t slot_key;
static bool have_key;
static struct hf_slot *beyond; /* slots of threads that found the page full */

uint64_t hf_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* At thread exit. A destructor that runs after this one and calls the driver gets a new slot, and this runs again. */
static void slot_end(void *p)
{
	struct hf_slot *s = p;
	pthread_mutex_lock(&slot_lock);
	struct hf_slot *sum = &hf_page.slot[0];
	sum->launches += s->launches;
	sum->graphs += s->graphs;
	sum->copies += s->copies;
	s->launches = s->graphs = s->copies = 0;
	s->inside = 0;
	s->tid = 0;
	hf_slot = NULL;
	for (struct hf_slot **l = &beyond; *l; l = &(*l)->next)
		if (*l == s) {
			*l = s->next;
			free(s);
			break;
		}
	pthread_mutex_unlock(&slot_lock);
}

static struct hf_slot *slot_begin(void)
{
	struct hf_slot *s = NULL;
	pthread_mutex_lock(&slot_lock);
	if (!have_key)
		have_key = pthread_key_create(&slot_key, slot_end) == 0;
	if (hf_page.slots == 0)
		hf_page.slots = 1; /* slot 0 adds up the threads that ended */
	for (uint32_t i = 1; i < hf_page.slots && !s; i++)
		if (hf_page.slot[i].tid == 0)
			s = &hf_page.slot[i];
	if (!s && hf_page.slots < HF_MAX_SLOTS)
		s = &hf_page.slot[hf_page.slots++];
	if (!s) {
		s = calloc(1, sizeof *s);
		if (!s)
			s = &hf_page.slot[0]; /* counts may be lost, the gate still works for all but this thread's overlap */
		else {
			s->next = beyond;
			beyond = s;
		}
	}
	if (s != &hf_page.slot[0])
		s->tid = (uint32_t)syscall(SYS_gettid);
	hf_slot = s;
	pthread_mutex_unlock(&slot_lock);
	if (have_key)
		pthread_setspecific(slot_key, s);
	return s;
}

static uint32_t waiters;

struct hf_slot *hf_enter_slow(uint32_t call)
{
	int saved = errno;
	struct hf_slot *s = hf_slot;
	if (!s)
		s = slot_begin();
	if (hf_depth++ == 0) {
		for (;;) {
			if (hf_page.gate != HF_GATE_CLOSED) {
				s->call = call;
				s->inside = 1;
				__asm__ volatile("" ::: "memory");
				if (hf_page.gate != HF_GATE_CLOSED)
					break;
			}
			/*
			 * Stored again each round: the page is exchanged (same contents) while the gate is closed, and a
			 * store that falls between copy and exchange is lost.
			 */
			s->inside = 0;
			__atomic_add_fetch(&waiters, 1, __ATOMIC_RELAXED);
			/* Private: keyed by address, so it outlives what the page is backed by, and a checkpoint. */
			syscall(SYS_futex, &hf_page.gate, FUTEX_WAIT_PRIVATE, HF_GATE_CLOSED, NULL, NULL, 0);
			__atomic_sub_fetch(&waiters, 1, __ATOMIC_RELAXED);
		}
	}
	errno = saved;
	return s;
}

static uint32_t when_open = HF_GATE_OPEN;

/* The gate itself may be closed again by now, with us inside. */
struct hf_slot *hf_enter_work_slow(uint32_t call)
{
	struct hf_slot *s = hf_enter_slow(call);
	return hf_depth == 1 && __atomic_load_n(&when_open, __ATOMIC_RELAXED) == HF_GATE_WATCHED ? NULL : s;
}

uint32_t hf_waiting(void) { return __atomic_load_n(&waiters, __ATOMIC_RELAXED); }

void hf_gate_watch(bool on)
{
	uint32_t now = on ? HF_GATE_WATCHED : HF_GATE_OPEN, before = on ? HF_GATE_OPEN : HF_GATE_WATCHED;
	__atomic_store_n(&when_open, now, __ATOMIC_SEQ_CST);
	/* A closed gate stays so until it is opened. */
	__atomic_compare_exchange_n(&hf_page.gate, &before, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void hf_gate_open(void)
{
	__atomic_store_n(&hf_page.gate, __atomic_load_n(&when_open, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &hf_page.gate, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/* Every running thread of the process passes a full barrier. */
static void barrier_all(void)
{
	static int registered;
	if (!registered) {
		if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
			registered = 1;
		else
			registered = -1;
	}
	if (registered == 1 && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return;
	registered = 0; /* a restored process must register anew */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
	    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) {
		registered = 1;
		return;
	}
	/* No membarrier (an old kernel or a seccomp filter): changing a protection interrupts every CPU that runs us. */
	static char page[4096] __attribute__((aligned(4096)));
	page[0]++;
	mprotect(page, sizeof page, PROT_READ);
	mprotect(page, sizeof page, PROT_READ | PROT_WRITE);
}

volatile uint32_t hf_waits, hf_calm_wanted;
static uint64_t calm_at;

static bool calm_taken(void)
{
	uint32_t wanted = 1;
	return __atomic_compare_exchange_n(&hf_calm_wanted, &wanted, 2, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void hf_calm(void)
{
	if (hf_depth || !calm_taken())
		return;
	int saved = errno;
	__atomic_store_n(&hf_page.gate, HF_GATE_CLOSED, __ATOMIC_SEQ_CST);
	calm_at = hf_now();
	__atomic_store_n(&hf_calm_wanted, 0, __ATOMIC_RELEASE);
	syscall(SYS_futex, &hf_calm_wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

uint64_t hf_gate_calm(uint64_t deadline)
{
	const uint64_t idle = 20000000; /* a program that neither launches nor waits for so long has nothing under way */
	uint64_t launches = hf_launches(), since = hf_now();
	__atomic_store_n(&hf_calm_wanted, 1, __ATOMIC_RELEASE);
	for (uint32_t wanted; (wanted = __atomic_load_n(&hf_calm_wanted, __ATOMIC_ACQUIRE)) != 0;) {
		uint64_t now = hf_now(), n = hf_launches();
		if (n != launches || __atomic_load_n(&hf_waits, __ATOMIC_RELAXED)) {
			launches = n;
			since = now;
		}
		if ((now >= deadline || now - since >= idle || hf_asked()) && calm_taken()) {
			hf_calm_wanted = 0;
			return now;
		}
		syscall(SYS_futex, &hf_calm_wanted, FUTEX_WAIT_PRIVATE, wanted, &(struct timespec){ 0, 2000000 }, NULL, 0);
	}
	return calm_at;
}

bool hf_step_aside(unsigned *times)
{
	if (hf_page.gate != HF_GATE_CLOSED || hf_depth != 1 || *times >= 4)
		return false;
	++*times;
	uint32_t call = hf_slot->call;
	hf_leave(hf_slot);
	hf_enter(call);
	return true;
}

static struct hf_slot *inside(void)
{
	struct hf_slot *found = NULL;
	pthread_mutex_lock(&slot_lock);
	for (uint32_t i = 0; i < hf_page.slots && !found; i++)
		if (hf_page.slot[i].inside && &hf_page.slot[i] != hf_slot)
			found = &hf_page.slot[i];
	for (struct hf_slot *s = beyond; s && !found; s = s->next)
		if (s->inside && s != hf_slot)
			found = s;
	pthread_mutex_unlock(&slot_lock);
	return found;
}

const char *hf_gate_close(uint64_t deadline)
{
	__atomic_store_n(&hf_page.gate, HF_GATE_CLOSED, __ATOMIC_SEQ_CST);
	barrier_all();
	for (unsigned round = 0;; round++) {
		struct hf_slot *s = inside();
		if (!s)
			return NULL;
		uint32_t call = s->call;
		if (hf_now() >= deadline)
			return call < hf_ncalls && hf_call_names[call] ? hf_call_names[call] : "a driver call";
		struct timespec t = { 0, round < 100 ? 10000 : 500000 };
		nanosleep(&t, NULL);
	}
}

uint64_t hf_launches(void)
{
	uint64_t n = 0;
	pthread_mutex_lock(&slot_lock);
	for (uint32_t i = 0; i < hf_page.slots; i++)
		n += hf_page.slot[i].launches;
	for (struct hf_slot *s = beyond; s; s = s->next)
		n += s->launches;
	pthread_mutex_unlock(&slot_lock);
	return n;
}

void hf_page_share(int *into)
{
	int e = 0;
	pthread_mutex_lock(&slot_lock); /* fork holds it as well: a child knows the descriptor */
	int fd = (int)syscall(SYS_memfd_create, "holdfast", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	hf_page.magic = HF_PAGE_MAGIC;
	hf_page.version = HF_VERSION;
	if (fd < 0 || ftruncate(fd, HF_PAGE_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		e = errno;
	else {
		size_t used = HF_PAGE_SLOTS + hf_page.slots * sizeof(struct hf_slot);
		for (size_t at = 0; at < used && !e;) {
			ssize_t n = pwrite(fd, (char *)&hf_page + at, used - at, (off_t)at);
			if (n > 0)
				at += (size_t)n;
			else if (n < 0 && errno != EINTR)
				e = errno;
		}
		if (!e && mmap(&hf_page, HF_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			e = errno;
	}
	if (e && fd >= 0) {
		close(fd);
		fd = -1;
	}
	*into = fd;
	pthread_mutex_unlock(&slot_lock);
}

void hf_page_unshare(void)
{
	pthread_mutex_lock(&slot_lock);
	size_t used = HF_PAGE_SLOTS + hf_page.slots * sizeof(struct hf_slot);
	char *copy = mmap(NULL, HF_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy != MAP_FAILED) {
		memcpy(copy, &hf_page, used);
		/* Moved over in one step: there is no moment in which a thread could find nothing there. */
		if (mremap(copy, HF_PAGE_SIZE, HF_PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, &hf_page) == MAP_FAILED)
			munmap(copy, HF_PAGE_SIZE);
	}
	pthread_mutex_unlock(&slot_lock);
}

void hf_gate_fork_prepare(void) { pthread_mutex_lock(&slot_lock); }
void hf_gate_fork_parent(void) { pthread_mutex_unlock(&slot_lock); }

/* The child has one thread, counts nothing and must not write into the parent's page. */
void hf_gate_fork_child(void)
{
	pthread_mutex_init(&slot_lock, NULL);
	mmap(&hf_page, HF_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	beyond = NULL;
	waiters = 0;
	when_open = HF_GATE_OPEN;
	hf_slot = NULL;
	hf_depth = 0;
	hf_waits = hf_calm_wanted = 0;
	if (have_key)
		pthread_setspecific(slot_key, NULL);
}
