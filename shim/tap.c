/*
 * The tap: a ring in memory that we share with whoever listens. Records go in under one lock, so that all listeners see
 * the order in which memory came and went around the launches; nothing of it allocates or makes a system call, unless
 * the ring is full or somebody sleeps.
 *
 * A piece of work that asks waits on the cell of its thread's slot. The lock is not held then.
 */
#include "shim.h"
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

volatile int hf_tapped;
uint32_t hf_tap_epoch;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t shared_cell = PTHREAD_MUTEX_INITIALIZER; /* of the threads without a slot in the page */
static uint8_t *tap;                       /* the ring stands there twice, so that no record is in two parts */
static uint64_t head, tail;                /* where we write; what the reader has read, as last seen */
static size_t open_record;                 /* bytes of the record between hf_tap_begin and hf_tap_end */
static bool recording;
static volatile uint32_t asking;           /* HF_ASK_* */
static volatile bool lost;                 /* the reader died */
static uint32_t waiting;                   /* threads that wait for an answer */

#define FIELD(type, at) ((type *)(tap + (at)))

static void futex(void *word, int op, uint32_t value, uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
	syscall(SYS_futex, word, op, value, op == FUTEX_WAIT ? &t : NULL, NULL, 0);
}

/* With the lock held: nobody listens any more. */
static void give_up(void)
{
	hf_tapped = 0;
	recording = false;
	asking = 0;
	hf_gate_watch(false);
}

/* Waits until n bytes fit; false: the reader reads no more. */
static bool room_slow(size_t n)
{
	int saved = errno;
	uint64_t start = 0;
	uint32_t *sleeps = FIELD(uint32_t, HF_TAP_WRITER);
	for (;;) {
		tail = __atomic_load_n(FIELD(uint64_t, HF_TAP_TAIL), __ATOMIC_ACQUIRE);
		if (head - tail > HF_TAP_RING_SIZE) /* no reader of ours does that */
			lost = true;
		else if (head + n - tail <= HF_TAP_RING_SIZE)
			break;
		if (!start) {
			start = hf_now();
			__atomic_store_n(FIELD(uint64_t, HF_TAP_WAITS), *FIELD(uint64_t, HF_TAP_WAITS) + 1, __ATOMIC_RELAXED);
		}
		bool hold = asking & HF_ASK_HOLD;
		if (__atomic_load_n(FIELD(uint32_t, HF_TAP_STOP), __ATOMIC_ACQUIRE) ||
		    ((lost || hf_recorder_gone()) && !hold)) {
			give_up();
			errno = saved;
			return false;
		}
		__atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
		if (head + n - __atomic_load_n(FIELD(uint64_t, HF_TAP_TAIL), __ATOMIC_SEQ_CST) > HF_TAP_RING_SIZE)
			futex(sleeps, FUTEX_WAIT, 1, 50000000);
	}
	if (start) {
		__atomic_store_n(sleeps, 0, __ATOMIC_RELAXED);
		__atomic_store_n(FIELD(uint64_t, HF_TAP_WAIT_NANOS),
			*FIELD(uint64_t, HF_TAP_WAIT_NANOS) + (hf_now() - start), __ATOMIC_RELAXED);
	}
	errno = saved;
	return true;
}

void *hf_tap_begin(uint32_t type, uint32_t flags, size_t size)
{
	size = (size + 7) & ~(size_t)7;
	if (!hf_tapped || size > HF_MAX_RECORD)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!hf_tapped || (HF_UNLIKELY(head + size - tail > HF_TAP_RING_SIZE) && !room_slow(size))) {
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	uint8_t *r = tap + HF_TAP_RING + head % HF_TAP_RING_SIZE;
	*(uint64_t *)(r + size - 8) = 0; /* what fills up */
	*(uint64_t *)r = size | (uint64_t)type << 32 | (uint64_t)flags << 48;
	open_record = size;
	return r;
}

void hf_tap_end(void)
{
	head += open_record;
	if (recording) /* the recorder looks by itself */
		__atomic_store_n(FIELD(uint64_t, HF_TAP_HEAD), head, __ATOMIC_RELEASE);
	else {
		__atomic_store_n(FIELD(uint64_t, HF_TAP_HEAD), head, __ATOMIC_SEQ_CST);
		uint32_t *sleeps = FIELD(uint32_t, HF_TAP_READER);
		if (__atomic_load_n(sleeps, __ATOMIC_SEQ_CST)) {
			int saved = errno;
			__atomic_store_n(sleeps, 0, __ATOMIC_RELAXED);
			futex(sleeps, FUTEX_WAKE, 1, 0);
			errno = saved;
		}
	}
	pthread_mutex_unlock(&lock);
}

void hf_tap_drop(void) { pthread_mutex_unlock(&lock); }

/* ---- asking ---- */

static uint32_t *cell_of(uint32_t cell) { return FIELD(uint32_t, HF_TAP_CELLS) + cell; }

static void asked(struct hf_asking *a)
{
	__atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	if (a->shared)
		pthread_mutex_unlock(&shared_cell);
	a->asks = false;
}

struct hf_asking hf_asks(bool writes, bool captured)
{
	struct hf_asking a = { false, false, 0 };
	uint32_t flags = asking;
	a.asks = !captured && (flags & HF_ASK_READS || (writes && flags & HF_ASK_WRITES));
	if (!a.asks)
		return a;
	size_t i = (size_t)(hf_slot - hf_page.slot);
	a.shared = hf_slot < hf_page.slot || i == 0 || i >= HF_TAP_NCELLS;
	a.cell = a.shared ? 0 : (uint32_t)i;
	if (a.shared)
		pthread_mutex_lock(&shared_cell);
	/* The tap is not unmapped while somebody waits. */
	__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&asking, __ATOMIC_SEQ_CST)) {
		asked(&a);
		return a;
	}
	__atomic_store_n(cell_of(a.cell), HF_CELL_ASKS, __ATOMIC_RELAXED); /* published with the record */
	return a;
}

static void pause_cpu(void) { __asm__ volatile("pause" ::: "memory"); }

void hf_tap_end_work(struct hf_asking a)
{
	hf_tap_end();
	if (HF_LIKELY(!a.asks))
		return;
	int saved = errno;
	uint32_t *c = cell_of(a.cell);
	for (unsigned spin = 0; __atomic_load_n(c, __ATOMIC_ACQUIRE) != HF_CELL_IDLE; spin++) {
		if (!asking)
			break; /* the daemon is gone, or has ended it */
		if (spin < 1000) {
			pause_cpu();
			continue;
		}
		uint32_t asks = HF_CELL_ASKS;
		if (__atomic_compare_exchange_n(c, &asks, HF_CELL_SLEEPS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
		    asks == HF_CELL_SLEEPS)
			futex(c, FUTEX_WAIT, HF_CELL_SLEEPS, 20000000);
	}
	asked(&a);
	errno = saved;
}

void hf_asks_not(struct hf_asking a)
{
	if (a.asks)
		asked(&a);
}

void hf_tap_ask(uint32_t flags)
{
	pthread_mutex_lock(&lock);
	if (!hf_tapped || !(flags & (HF_ASK_WRITES | HF_ASK_READS)))
		flags = 0;
	asking = flags;
	hf_gate_watch(recording || flags);
	pthread_mutex_unlock(&lock);
}

/* ---- beginning and end ---- */

/* With the lock held. Nobody writes any more, and who still waits for an answer leaves. */
static void unmap(void)
{
	if (!tap)
		return;
	for (int i = 0; i < 100 && __atomic_load_n(&waiting, __ATOMIC_SEQ_CST); i++)
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	if (!__atomic_load_n(&waiting, __ATOMIC_SEQ_CST)) /* else it stays mapped: the safe side */
		munmap(tap, HF_TAP_SIZE + HF_TAP_RING_SIZE);
	tap = NULL;
}

bool hf_tap_attach(int fd, bool record, bool code)
{
	uint8_t *p = mmap(NULL, HF_TAP_SIZE + HF_TAP_RING_SIZE, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	int rw = PROT_READ | PROT_WRITE, fixed = MAP_SHARED | MAP_FIXED;
	if (mmap(p, HF_TAP_SIZE, rw, fixed, fd, 0) == MAP_FAILED ||
	    mmap(p + HF_TAP_SIZE, HF_TAP_RING_SIZE, rw, fixed, fd, HF_TAP_RING) == MAP_FAILED ||
	    madvise(p, HF_TAP_SIZE + HF_TAP_RING_SIZE, MADV_DONTFORK) < 0 || *(uint32_t *)p != HF_TAP_MAGIC) {
		munmap(p, HF_TAP_SIZE + HF_TAP_RING_SIZE);
		return false;
	}
	pthread_mutex_lock(&lock);
	give_up();
	unmap();
	tap = p;
	head = tail = 0;
	lost = false;
	recording = record;
	hf_tap_epoch++;
	hf_tapped = 1;
	hf_gate_watch(record);
	pthread_mutex_unlock(&lock);
	hf_code_tell_all(code);
	hf_graphs_tell_all();
	pthread_mutex_lock(&hf_mem_lock);
	hf_note_blocks();
	pthread_mutex_unlock(&hf_mem_lock);
	if (hf_tap_begin(HF_REC_READY, 0, sizeof(struct hf_rec_ready)))
		hf_tap_end();
	return true;
}

bool hf_tap_records(void) { return recording; }

/* Does not take the lock: its owner may be waiting for room. */
void hf_tap_lost(void)
{
	lost = true;
	if (!(asking & HF_ASK_HOLD))
		asking = 0;
	if (pthread_mutex_trylock(&lock) == 0) {
		if (!asking)
			give_up();
		pthread_mutex_unlock(&lock);
	}
}

void hf_tap_detach(void)
{
	__atomic_store_n(&asking, 0, __ATOMIC_SEQ_CST);
	lost = true; /* whoever waits for room has to let go of the lock */
	pthread_mutex_lock(&lock);
	give_up();
	unmap();
	pthread_mutex_unlock(&lock);
}

/* The child has none of it: the mapping is not inherited. */
void hf_tap_fork_prepare(void) { pthread_mutex_lock(&lock); }
void hf_tap_fork_parent(void) { pthread_mutex_unlock(&lock); }
void hf_tap_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&shared_cell, NULL);
	tap = NULL;
	hf_tapped = 0;
	recording = false;
	asking = 0;
	lost = false;
	waiting = 0;
	hf_gate_watch(false);
}

/* ---- memory ---- */

static void put_alloc(uint32_t kind, CUdeviceptr p, uint64_t bytes, uint64_t block, uint64_t offset, int device)
{
	struct hf_rec_alloc *a = hf_tap_begin(HF_REC_ALLOC, 0, sizeof *a);
	if (!a)
		return;
	a->addr = p;
	a->bytes = bytes;
	a->block = block;
	a->offset = offset;
	a->kind = kind;
	a->device = (uint32_t)device;
	hf_tap_end();
}

void hf_note_alloc(uint32_t kind, CUdeviceptr p, uint64_t bytes)
{
	struct hf_found f = { 0 };
	void *ctx;
	int device = 0;
	if (!p || !bytes)
		return;
	pthread_mutex_lock(&hf_mem_lock);
	bool ours = hf_find(p, &f);
	uint64_t id = ours ? f.b->id : 0, offset = ours ? p - f.b->va : 0;
	if (ours)
		device = f.b->device;
	pthread_mutex_unlock(&hf_mem_lock);
	if (!ours && kind != HF_MEM_HOST)
		hf_current(&ctx, &device);
	put_alloc(kind, p, bytes, id, offset, device);
}

void hf_note_map(CUdeviceptr va, uint64_t size, uint64_t offset)
{
	uint64_t id = 0;
	int device = 0;
	pthread_mutex_lock(&hf_mem_lock);
	for (size_t i = 0; i < hf_nmaps; i++)
		if (hf_maps[i]->va == va) {
			id = hf_maps[i]->b->id;
			device = hf_maps[i]->b->device;
		}
	pthread_mutex_unlock(&hf_mem_lock);
	put_alloc(HF_MEM_MAPPED, va, size, id, offset, device);
}

void hf_note_free(CUdeviceptr p, uint64_t bytes)
{
	struct hf_rec_free *f = p ? hf_tap_begin(HF_REC_FREE, 0, sizeof *f) : NULL;
	if (!f)
		return;
	f->addr = p;
	f->bytes = bytes;
	hf_tap_end();
}

/* What was noted as freed stays: a graph may use it. */
void hf_note_kept(CUdeviceptr p, uint64_t bytes)
{
	if (HF_UNLIKELY(hf_tapped))
		hf_note_alloc(HF_MEM_ASYNC, p, bytes);
}

static void note_block(CUdeviceptr p, uint64_t bytes, int device, void *arg)
{
	const struct hf_block *b = hf_block_at(p);
	(void)arg;
	put_alloc(b->pool ? HF_MEM_ASYNC : HF_MEM_LINEAR, p, bytes, b->id, p - b->va, device);
}

static void own_blocks(void (*f)(CUdeviceptr, uint64_t, int, void *), void *arg)
{
	for (struct hf_block *b = hf_blocks; b && hf_tapped; b = b->next) {
		if (b->kind == HF_KIND_VMM || b->kind == HF_KIND_MIRROR || b->idle)
			continue;
		if (!b->slab)
			f(b->va, b->asked, b->device, arg);
		for (uint32_t i = 0; b->slab && i < HF_UNITS; i++)
			if (b->slab->size[i])
				f(b->va + (uint64_t)i * HF_UNIT, b->slab->size[i], b->device, arg);
	}
}

void hf_blocks_each(void (*f)(CUdeviceptr, uint64_t, int, void *), void *arg)
{
	own_blocks(f, arg);
	for (size_t i = 0; i < hf_nmaps && hf_tapped; i++)
		f(hf_maps[i]->va, hf_maps[i]->size, hf_maps[i]->b->device, arg);
}

void hf_note_blocks(void)
{
	own_blocks(note_block, NULL);
	for (size_t i = 0; i < hf_nmaps && hf_tapped; i++)
		put_alloc(HF_MEM_MAPPED, hf_maps[i]->va, hf_maps[i]->size, hf_maps[i]->b->id, hf_maps[i]->offset,
			hf_maps[i]->b->device);
}
