/*
 * Ranges of the program that are to be recorded (holdfast record): how they come by NVTX, and what is told of them
 * beside work: what memory holds when the first begins, what copies bring from the host, and which calls order work.
 *
 * Several may be wanted. Recording begins with the nth of the first one's name; of each other name the first that
 * comes after that is recorded. They follow each other: one that begins within another is told as an error.
 *
 * NVTX, https://github.com/NVIDIA/NVTX: the header of a program loads the library that NVTX_INJECTION64_PATH names and
 * calls its InitializeInjectionNvtx2 (c/include/nvtx3/nvtxDetail/nvtxInit.h); the declarations here are those of
 * nvtxDetail/nvtxTypes.h and nvToolsExt.h there, reduced to what is needed. Ranges of domains other than the default
 * one are not ours.
 */
#include "shim.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (32u << 10)     /* of contents, in a record */
#define STAGE (1u << 20)      /* read from the device at once */
#define PATIENCE 60000000000u /* until all calls have ended and the device is idle */

volatile int hf_range_open;
uint64_t hf_range_base = 0x100000000000ull;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct wanted {
	char name[256];
	uint32_t seen; /* how many of that name have begun, up to the one that is recorded */
	bool taken;    /* it is, or was, recorded */
} wanted[16]; /* the same limit is in cmd/holdfast/record.go */
static int nwanted;
static unsigned long nth;
static struct wanted *open_range;  /* that is recorded just now, or pending */
static bool pending;               /* it began before there was anybody to tell */
static bool told;                  /* what memory holds */
static uint64_t started;           /* the start/end range that is open, 0: it is a push/pop range */
static uint64_t last_started;

/* HOLDFAST_RANGE has a name in each line, HOLDFAST_RANGE_BASE an address. */
static void read_environment(void)
{
	const char *names = getenv("HOLDFAST_RANGE"), *which = getenv("HOLDFAST_RANGE_NTH"),
		*socket = getenv("HOLDFAST_TRACE");
	if (!names || !socket || !*socket)
		return;
	int n = 0;
	for (const char *p = names; *p && n < (int)(sizeof wanted / sizeof *wanted); n++) {
		size_t length = strcspn(p, "\n");
		if (length == 0 || length >= sizeof wanted[n].name)
			return;
		memcpy(wanted[n].name, p, length);
		p += length;
		p += *p == '\n';
	}
	nth = which ? strtoul(which, NULL, 10) : 1;
	const char *base = getenv("HOLDFAST_RANGE_BASE");
	if (base && *base)
		hf_range_base = strtoull(base, NULL, 16);
	nwanted = n;
}

bool hf_range_wanted(void)
{
	pthread_once(&once, read_environment);
	return nwanted > 0;
}

/* ---- contents ---- */

static bool put_data(uint32_t flags, uint64_t addr, const void *from, size_t n)
{
	struct hf_rec_data *d = hf_tap_begin(HF_REC_DATA, flags, sizeof *d + n);
	if (!d)
		return false;
	d->addr = addr;
	d->thread = hf_thread();
	d->bytes = (uint32_t)n;
	memcpy(d + 1, from, n);
	hf_tap_end();
	return true;
}

struct telling { uint8_t *stage; int device; void *ctx; CUresult bad; CUdeviceptr at; };

static void tell_memory(CUdeviceptr p, uint64_t bytes, int device, void *arg)
{
	struct telling *t = arg;
	if (device != t->device) {
		if (t->ctx)
			hf_pop();
		t->ctx = hf_push_any(t->device = device);
	}
	for (uint64_t done = 0; done < bytes && t->bad == CUDA_SUCCESS;) {
		size_t n = bytes - done < STAGE ? bytes - done : STAGE;
		t->bad = real_cuMemcpyDtoH_v2(t->stage, p + done, n);
		t->at = p + done;
		for (size_t i = 0; i < n && t->bad == CUDA_SUCCESS; i += PIECE)
			if (!put_data(0, p + done + i, t->stage + i, n - i < PIECE ? n - i : PIECE))
				return; /* nobody listens any more */
		done += n;
	}
}

void hf_range_host_data(const void *from, uint64_t pitch, uint64_t slice, uint64_t width, uint64_t height,
	uint64_t depth)
{
	uint64_t at = 0;
	for (uint64_t z = 0; z < depth; z++)
		for (uint64_t y = 0; y < height; y++)
			for (uint64_t x = 0; x < width; x += PIECE) {
				size_t n = width - x < PIECE ? width - x : PIECE;
				if (!put_data(HF_REC_HOSTDATA_FLAG, at, (const uint8_t *)from + z * slice + y * pitch + x, n))
					return;
				at += n;
			}
}

/* CU_POINTER_ATTRIBUTE_MEMORY_TYPE; the driver knows no pageable memory. */
bool hf_range_on_host(uint64_t p)
{
	unsigned type = 0;
	return real_cuPointerGetAttribute(&type, 2, p) != CUDA_SUCCESS || type == 1;
}

/* ---- order ---- */

void hf_order(uint32_t kind, void *stream, void *event)
{
	uint32_t flags = kind != HF_ORDER_SYNCED && hf_stream_captures(stream) ? HF_REC_CAPTURED_FLAG : 0;
	struct hf_rec_order *o = hf_tap_begin(HF_REC_ORDER, flags, sizeof *o);
	if (!o)
		return;
	o->thread = hf_thread();
	o->kind = kind;
	o->stream = (uint64_t)(uintptr_t)stream;
	o->event = (uint64_t)(uintptr_t)event;
	hf_tap_end();
}

static CUresult ordered(CUresult r, uint32_t kind, void *stream, void *event)
{
	if (HF_UNLIKELY(hf_range_open) && r == CUDA_SUCCESS)
		hf_order(kind, stream, event);
	return r;
}

CUresult hf_cuEventRecord(void *event, void *stream)
{
	return ordered(real_cuEventRecord(event, stream), HF_ORDER_RECORDED, stream, event);
}

CUresult hf_cuEventRecordWithFlags(void *event, void *stream, unsigned int flags)
{
	return ordered(real_cuEventRecordWithFlags(event, stream, flags), HF_ORDER_RECORDED, stream, event);
}

CUresult hf_cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	return ordered(real_cuStreamWaitEvent(stream, event, flags), HF_ORDER_WAITS, stream, event);
}

/* Those that say that something is complete. */
CUresult hf_cuStreamQuery(void *stream) { return ordered(real_cuStreamQuery(stream), HF_ORDER_SYNCED, NULL, NULL); }
CUresult hf_cuEventQuery(void *event) { return ordered(real_cuEventQuery(event), HF_ORDER_SYNCED, NULL, NULL); }

CUresult hf_cuEventElapsedTime(void *ms, void *start, void *end)
{
	return ordered(real_cuEventElapsedTime(ms, start, end), HF_ORDER_SYNCED, NULL, NULL);
}

CUresult hf_cuEventElapsedTime_v2(void *ms, void *start, void *end)
{
	return ordered(real_cuEventElapsedTime_v2(ms, start, end), HF_ORDER_SYNCED, NULL, NULL);
}

/* ---- textures ---- */

static uint32_t objects; /* texture and surface objects: numbers that kernels are given, others in a replay */

static CUresult made(CUresult r, uint32_t call)
{
	if (r == CUDA_SUCCESS && hf_range_wanted()) {
		__atomic_add_fetch(&objects, 1, __ATOMIC_SEQ_CST);
		if (hf_range_open)
			hf_work_other(call, NULL);
	}
	return r;
}

static CUresult ended(CUresult r)
{
	if (r == CUDA_SUCCESS && hf_range_wanted())
		__atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST);
	return r;
}

CUresult hf_cuTexObjectCreate(void *object, void *resource, void *texture, void *view)
{
	return made(real_cuTexObjectCreate(object, resource, texture, view), 416);
}

CUresult hf_cuSurfObjectCreate(void *object, void *resource) { return made(real_cuSurfObjectCreate(object, resource),
	421); }
CUresult hf_cuTexObjectDestroy(unsigned long long object) { return ended(real_cuTexObjectDestroy(object)); }
CUresult hf_cuSurfObjectDestroy(unsigned long long object) { return ended(real_cuSurfObjectDestroy(object)); }

/* ---- beginning and end ---- */

static bool put_range(const struct wanted *w, const char *why)
{
	size_t name = strlen(w->name), reason = why ? strlen(why) : 0;
	struct hf_rec_range *r = hf_tap_begin(HF_REC_RANGE, 0, sizeof *r + name + reason);
	if (!r)
		return false;
	r->thread = hf_thread();
	r->nth = w->seen;
	r->name = (uint32_t)name;
	r->reason = (uint32_t)reason;
	memcpy(r + 1, w->name, name);
	if (reason)
		memcpy((char *)(r + 1) + name, why, reason);
	hf_tap_end();
	return true;
}

/*
 * The gate is closed and all is idle: tells that the range begins and, of the first, what memory holds. What it holds
 * when another begins is what those before it have left.
 */
static void tell_all(char *why, size_t room)
{
	if (told) {
		put_range(open_range, NULL);
		return;
	}
	told = true;
	struct telling t = { malloc(STAGE), -1, NULL, CUDA_SUCCESS, 0 };
	if (!put_range(open_range, NULL) || !t.stage) {
		snprintf(why, room, "there is no memory to copy through");
		free(t.stage);
		return;
	}
	pthread_mutex_lock(&hf_mem_lock);
	hf_blocks_each(tell_memory, &t);
	hf_globals_each(tell_memory, &t);
	pthread_mutex_unlock(&hf_mem_lock);
	if (t.ctx)
		hf_pop();
	free(t.stage);
	if (t.bad != CUDA_SUCCESS)
		snprintf(why, room, "cuMemcpyDtoH from 0x%llx: error %d", t.at, t.bad);
}

/* With the lock held. */
static void begin(void)
{
	char why[256] = "";
	void *what;
	uint32_t n;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the program meets the closed gate in this thread */
	uint64_t deadline = hf_now() + PATIENCE;
	const char *busy = NULL;
	hf_depth++;
	if (hf_captures())
		snprintf(why, sizeof why, "a stream is being captured when it begins");
	else if (objects)
		snprintf(why, sizeof why, "the program has texture or surface objects (cuTexObjectCreate)");
	else if ((busy = hf_gate_close(deadline)))
		snprintf(why, sizeof why, "%s does not end", busy);
	else if (hf_sync_all(deadline, &what, &n) != CUDA_SUCCESS)
		snprintf(why, sizeof why, "the device does not become idle");
	else
		tell_all(why, sizeof why);
	if (*why)
		put_range(open_range, why);
	else
		hf_range_open = 1;
	hf_gate_open();
	hf_depth--;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static struct wanted *ours(const char *name)
{
	if (name && hf_range_wanted())
		for (int i = 0; i < nwanted; i++)
			if (!strcmp(name, wanted[i].name))
				return &wanted[i];
	return NULL;
}

/* With the lock held: whether this one is to be recorded. */
static bool takes(struct wanted *w)
{
	if (w->taken || hf_depth != 0 || (w != wanted && !wanted->taken))
		return false;
	return ++w->seen == nth || w != wanted;
}

/* A range of a name of ours begins; whether it is recorded. */
static bool range_begins(struct wanted *w, uint64_t id)
{
	bool taken = false;
	pthread_mutex_lock(&lock);
	if (takes(w)) {
		w->taken = true;
		if (open_range) {
			char why[320];
			snprintf(why, sizeof why, "it begins before range \"%s\" has ended", open_range->name);
			put_range(w, why);
		} else {
			taken = true;
			open_range = w;
			started = id;
			if (hf_tapped)
				begin();
			else
				pending = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static void range_ends(void)
{
	pthread_mutex_lock(&lock);
	pending = false;
	open_range = NULL;
	if (hf_range_open) {
		hf_range_open = 0;
		struct hf_rec_range_end *e = hf_tap_begin(HF_REC_RANGE_END, 0, sizeof *e);
		if (e) {
			e->thread = hf_thread();
			e->spare = 0;
			hf_tap_end();
		}
	}
	pthread_mutex_unlock(&lock);
}

void hf_range_attached(void)
{
	pthread_mutex_lock(&lock);
	if (pending)
		begin();
	pending = false;
	pthread_mutex_unlock(&lock);
}

/* ---- NVTX ---- */

typedef void (*function)(void);
struct nvtx_callbacks { /* NvtxExportTableCallbacks */
	size_t size;
	int (*table)(int module, function ***out, unsigned *n);
};
struct nvtx_attributes { /* nvtxEventAttributes_v2 */
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved0;
	uint64_t payload;
	int32_t message_type, reserved1;
	const void *message;
};
enum { CALLBACKS = 1 };                                      /* NvtxExportTableID */
enum { CORE = 1, CORE2 = 5 };                                /* NvtxCallbackModule */
enum { START_EX = 4, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP }; /* NvtxCallbackIdCore */
enum { /* NvtxCallbackIdCore2 */
	DOMAIN_START_EX = 2, DOMAIN_END, DOMAIN_PUSH_EX, DOMAIN_POP, REGISTER_A = 10, REGISTER_W, CREATE_A, CREATE_W,
};
enum { ASCII = 1, REGISTERED = 3 };                          /* nvtxMessageType_t */

static __thread int level;         /* push/pop ranges of the default domain that are open */
static __thread int ours_at = -1;  /* the level of the one that is recorded */

static const char *message(const struct nvtx_attributes *a)
{
	if (!a || a->size < sizeof *a)
		return NULL;
	/* A registered one is what register_a has returned. */
	return a->message_type == ASCII || a->message_type == REGISTERED ? a->message : NULL;
}

static int push(const char *name)
{
	struct wanted *w = ours(name);
	if (w && range_begins(w, 0))
		ours_at = level;
	return level++;
}

static int pop(void)
{
	if (level == 0)
		return -2; /* NVTX_NO_PUSH_POP_TRACKING */
	if (--level == ours_at) {
		ours_at = -1;
		range_ends();
	}
	return level;
}

static uint64_t start(const char *name)
{
	uint64_t id = __atomic_add_fetch(&last_started, 1, __ATOMIC_RELAXED);
	struct wanted *w = ours(name);
	if (w)
		range_begins(w, id);
	return id;
}

static void end(uint64_t id)
{
	if (id && __atomic_load_n(&started, __ATOMIC_RELAXED) == id)
		range_ends();
}

static uint64_t start_ex(const struct nvtx_attributes *a) { return start(message(a)); }
static uint64_t start_a(const char *name) { return start(name); }
static uint64_t start_w(const void *name) { (void)name; return start(NULL); }
static int push_ex(const struct nvtx_attributes *a) { return push(message(a)); }
static int push_w(const void *name) { (void)name; return push(NULL); }
static uint64_t domain_start_ex(void *domain, const struct nvtx_attributes *a)
{
	return domain ? 0 : start(message(a));
}
static void domain_end(void *domain, uint64_t id) { if (!domain) end(id); }
static int domain_push_ex(void *domain, const struct nvtx_attributes *a) { return domain ? 0 : push(message(a)); }
static int domain_pop(void *domain) { return domain ? 0 : pop(); }
static void *register_a(void *domain, const char *text) { (void)domain; return text ? strdup(text) : NULL; }
static void *register_w(void *domain, const void *text) { (void)domain; (void)text; return strdup(""); }
/* Any handle but that of the default domain. */
static void *create(const void *name) { (void)name; static char domain; return &domain; }

static void take(function **table, unsigned n, unsigned at, function f)
{
	if (at < n && table[at])
		*table[at] = f;
}

HF_EXPORT int InitializeInjectionNvtx2(const void *(*get)(uint32_t));
HF_EXPORT int InitializeInjectionNvtx2(const void *(*get)(uint32_t))
{
	const struct nvtx_callbacks *c = hf_range_wanted() ? get(CALLBACKS) : NULL;
	function **t = NULL;
	unsigned n = 0;
	if (!c || c->size < sizeof *c || !c->table(CORE, &t, &n) || !t)
		return 0;
	take(t, n, START_EX, (function)start_ex);
	take(t, n, START_A, (function)start_a);
	take(t, n, START_W, (function)start_w);
	take(t, n, END, (function)end);
	take(t, n, PUSH_EX, (function)push_ex);
	take(t, n, PUSH_A, (function)push);
	take(t, n, PUSH_W, (function)push_w);
	take(t, n, POP, (function)pop);
	if (!c->table(CORE2, &t, &n) || !t)
		return 1;
	take(t, n, DOMAIN_START_EX, (function)domain_start_ex);
	take(t, n, DOMAIN_END, (function)domain_end);
	take(t, n, DOMAIN_PUSH_EX, (function)domain_push_ex);
	take(t, n, DOMAIN_POP, (function)domain_pop);
	take(t, n, REGISTER_A, (function)register_a);
	take(t, n, REGISTER_W, (function)register_w);
	take(t, n, CREATE_A, (function)create);
	take(t, n, CREATE_W, (function)create);
	return 1;
}

/* ---- fork ---- */

void hf_range_fork_prepare(void) { pthread_mutex_lock(&lock); }
void hf_range_fork_parent(void) { pthread_mutex_unlock(&lock); }
void hf_range_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	hf_range_open = 0;
	open_range = NULL;
	pending = told = false;
	for (int i = 0; i < nwanted; i++) {
		wanted[i].seen = 0;
		wanted[i].taken = false;
	}
	objects = 0;
	level = 0;
	ours_at = -1;
}
