/*
 * libholdfast.so: interpose, gate, map, talk. Loaded with LD_PRELOAD into CUDA programs; does nothing until the
 * program's first successful cuInit, and nothing ever when no daemon answers then.
 *
 *   hook.c     dlsym, cuGetProcAddress, the real functions
 *   gate.c     threads, the gate, the shared page
 *   mem.c      device memory of the program, held in blocks
 *   vmm.c      cuMemCreate, cuMemMap … of the program
 *   pool.c     stream-ordered memory
 *   ctx.c      contexts, captures, modules
 *   globals.c  variables of modules
 *   stack.c    local memory, made small before a checkpoint
 *   tap.c      the tap: telling, recording and asking through a ring
 *   code.c     what code modules hold, and the kernels in it
 *   sha256.c   SHA-256, by which cubins are known
 *   work.c     work in the form of records
 *   graph.c    what executable graphs consist of
 *   range.c    ranges of the program that are recorded
 *   talk.c     the control thread: the conversation with the daemon
 *   park.c     threads that stand still while the driver is away
 *   fork.c     what a forked child inherits of the driver
 *   zshim.c    the wrappers (generated)
 *
 * Lock order: work, attach, range, graph, hf_ctx_lock, code, hf_mem_lock, tap, slot, caveat, box (the unnamed ones are
 * static in the parts they are named after; work, attach, caveat and box in talk.c, slot in gate.c). No lock is held
 * while a thread waits at the gate or for an answer. The real driver's functions are called through real_NAME only,
 * never through an exported cu symbol.
 *
 * Driver types and constants follow cuda.h of CUDA 13.0, reduced to what the calling convention needs.
 */
#ifndef HF_SHIM_H
#define HF_SHIM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zwire.h"
#include "ztrace.h"

#if !defined(__x86_64__) || !defined(__linux__)
#error "the shim knows x86-64 Linux only"
#endif

#define HF_EXPORT __attribute__((visibility("default")))
#define HF_LIKELY(x) __builtin_expect(!!(x), 1)
#define HF_UNLIKELY(x) __builtin_expect(!!(x), 0)

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;
typedef struct { int type, id; } CUmemLocation;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct {
	int allocType, handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

enum {
	CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_STUB_LIBRARY = 34, CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};
#define CU_STREAM_LEGACY ((void *)1)
#define CU_STREAM_PER_THREAD ((void *)2)
#define HF_STREAM(s, null) ((s) ? (s) : (null))

/* ---- hook.c ---- */
struct hf_symbol { const char *name; void *wrapper; unsigned call; };
struct hf_proc { const char *name; int since; int plain, thread; };
extern const struct hf_symbol hf_symbols[];
extern const struct hf_proc hf_procs[];
extern const unsigned hf_nprocs, hf_ncalls;
extern const char *const hf_call_names[];
extern void *hf_real[];
void *hf_resolve(int symbol);
bool hf_have(int symbol); /* whether the driver has it */
static inline void *hf_fn(int symbol)
{
	void *p = __atomic_load_n(&hf_real[symbol], __ATOMIC_RELAXED);
	return HF_LIKELY(p) ? p : hf_resolve(symbol);
}

/* ---- gate.c ---- */
/* A thread's slot of the shared page; layout checked against zwire.h in gate.c. */
struct hf_slot {
	volatile uint32_t inside, call;
	uint64_t launches, graphs, copies;
	uint32_t tid, spare;
	struct hf_slot *next; /* of slots beyond the page */
	uint64_t spare2[2];
};
/* The shared page: private memory until the program is attached, then a memfd that the daemon maps too. */
struct hf_page {
	uint32_t magic, version;
	volatile uint32_t gate;
	uint32_t slots;
	uint64_t bytes, allocs;
	uint32_t refused;
	volatile uint32_t waiting;
	uint8_t spare[HF_PAGE_SLOTS - 40];
	struct hf_slot slot[HF_MAX_SLOTS];
};
extern struct hf_page hf_page __attribute__((visibility("hidden")));
extern __thread struct hf_slot *hf_slot __attribute__((visibility("hidden")));
extern __thread unsigned hf_depth __attribute__((visibility("hidden")));
struct hf_slot *hf_enter_slow(uint32_t call);

/*
 * Entering a hooked call. The thread says that it is inside, then looks at the gate; the freezer closes the gate, makes
 * every thread pass a barrier (membarrier) and then looks who is inside. So no fence is needed here.
 */
static inline __attribute__((always_inline)) struct hf_slot *hf_enter(uint32_t call)
{
	struct hf_slot *s = hf_slot;
	if (HF_UNLIKELY(!s || hf_page.gate))
		return hf_enter_slow(call);
	if (hf_depth++ == 0) {
		s->call = call;
		s->inside = 1;
		__asm__ volatile("" ::: "memory");
		if (HF_UNLIKELY(hf_page.gate)) {
			s->inside = 0;
			hf_depth = 0;
			return hf_enter_slow(call);
		}
	}
	return s;
}
/*
 * The same for a call that is work. NULL: the gate is watched; the call is entered all the same, and the slot is
 * hf_slot. So watching costs the calls of an open gate nothing.
 */
struct hf_slot *hf_enter_work_slow(uint32_t call);
static inline __attribute__((always_inline)) struct hf_slot *hf_enter_work(uint32_t call)
{
	struct hf_slot *s = hf_slot;
	if (HF_UNLIKELY(!s || hf_page.gate))
		return hf_enter_work_slow(call);
	if (hf_depth++ == 0) {
		s->call = call;
		s->inside = 1;
		__asm__ volatile("" ::: "memory");
		if (HF_UNLIKELY(hf_page.gate)) {
			s->inside = 0;
			hf_depth = 0;
			return hf_enter_work_slow(call);
		}
	}
	return s;
}
static inline __attribute__((always_inline)) void hf_leave(struct hf_slot *s)
{
	__asm__ volatile("" ::: "memory");
	if (--hf_depth == 0)
		s->inside = 0;
}
/*
 * Around a call that only waits for the device. A thread that comes back from one has nothing under way: when a freezer
 * looks for such a moment (calm_wanted), it closes the gate itself.
 */
extern volatile uint32_t hf_waits, hf_calm_wanted;
void hf_calm(void);
static inline __attribute__((always_inline)) void hf_wait_begin(void)
{
	__atomic_add_fetch(&hf_waits, 1, __ATOMIC_RELAXED);
}
static inline __attribute__((always_inline)) void hf_wait_end(void)
{
	__atomic_sub_fetch(&hf_waits, 1, __ATOMIC_RELAXED);
	if (HF_UNLIKELY(hf_calm_wanted))
		hf_calm();
}
/* Backs the page by a memfd; its descriptor, or -1, in *fd before another thread can fork. */
void hf_page_share(int *fd);
void hf_page_unshare(void); /* backs it by private memory again, same contents */
/* Closes the gate and waits until nobody is inside; NULL, or the name of the call that did not end in time. */
const char *hf_gate_close(uint64_t deadline);
void hf_gate_open(void);
/*
 * Lets the program run on until a thread has waited for the device, or nothing happens, or it is too late. The gate may
 * be closed then; the time when it was, or now.
 */
uint64_t hf_gate_calm(uint64_t deadline);
bool hf_asked(void);
/*
 * From inside a call, without any lock: if the gate is closed, leaves the call and comes back when it is open. For
 * calls that wait for what only the control thread brings about, which does nothing else while it freezes. times: how
 * often the call has done so; a few times are enough, or a program that is frozen all the time would never be told that
 * there is no memory.
 */
bool hf_step_aside(unsigned *times);
void hf_gate_watch(bool on);   /* what open means from now on */
uint64_t hf_launches(void);
uint32_t hf_waiting(void);
void hf_gate_fork_prepare(void);
void hf_gate_fork_parent(void);
void hf_gate_fork_child(void);
uint64_t hf_now(void); /* ns, CLOCK_MONOTONIC */

/* ---- mem.c ---- */
#define HF_GRANULE (2ull << 20)
#define HF_UNIT 512u
#define HF_UNITS (HF_GRANULE / HF_UNIT)
#define HF_SMALL (1ull << 20)

/* Allocations that share one block of 2 MiB: a bit a unit of 512 bytes. */
struct hf_slab {
	struct hf_block *b;
	struct hf_slab *next;
	uint64_t bits[HF_UNITS / 64];
	uint32_t size[HF_UNITS]; /* at the first unit of an allocation: the bytes asked for */
	uint32_t free;           /* units */
	uint32_t longest;        /* an upper bound of the longest free run */
	uint8_t keep[HF_UNITS / 8]; /* allocations made inside a capture: never freed */
};

/* One physical allocation. */
struct hf_block {
	uint64_t id;
	struct hf_block *next, **link; /* in hf_blocks */
	CUhandle handle;       /* 0 while released */
	CUdeviceptr va;        /* 0: the program maps it itself (VMM) */
	uint64_t size, asked;  /* rounded; as the program said */
	uint64_t serial;       /* as of CU_POINTER_ATTRIBUTE_BUFFER_ID */
	int device;
	uint32_t kind;
	void *ctx;             /* whose destruction ends it; 0: none (pools, VMM) */
	void *pool;            /* stream-ordered: the pool */
	struct hf_slab *slab;
	bool queued, told;     /* ALLOC is in the outbox; was sent */
	bool imported;         /* came by MAP: the real driver does not export it again */
	bool exported;         /* by the program: others use this very memory */
	bool mapped;           /* our own mapping is in place */
	bool keep;             /* allocated inside a capture: lives as long as the process */
	bool idle;             /* pool: freed and ready for reuse */
	bool placed;           /* its addresses are part of a larger reservation, which stays */
	/* VMM */
	uint32_t refs, maps;
	CUmemAllocationProp prop; /* as the program asked */
	CUhandle name;         /* what the program calls it */
};
/* All functions of this part but hf_take_wait want hf_mem_lock held. */
extern pthread_mutex_t hf_mem_lock;
extern struct hf_block *hf_blocks;
extern uint64_t hf_peers[64]; /* devices that may access memory of device i, a bit each */

CUresult hf_block_new(struct hf_block **out, uint64_t size, int device, uint32_t kind, void *ctx, void *pool);
void hf_block_drop(struct hf_block *b);        /* unmaps, releases, tells the daemon */
struct hf_block *hf_block_at(CUdeviceptr p);   /* whose own mapping holds p */
struct hf_block *hf_block_by_id(uint64_t id);
CUresult hf_block_map(struct hf_block *b);     /* handle is set: map at va, give access */
struct hf_block *hf_block_add(void);           /* a new empty record, with an id, in hf_blocks */
void hf_block_remove(struct hf_block *b);      /* the record only */
CUresult hf_physical(CUhandle *h, uint64_t size, int device, const CUmemAllocationProp *like);
CUresult hf_set_access(CUdeviceptr va, uint64_t size, int device);
/* Memory of the program, small ones from slabs; only allocations of one context or pool share a slab. */
CUresult hf_take(CUdeviceptr *p, uint64_t bytes, int device, void *ctx, void *pool, bool keep);
/*
 * The same without the lock held: when memory runs out, waits a moment for the daemon to close what was freed, and asks
 * it for more.
 */
CUresult hf_take_wait(CUdeviceptr *p, uint64_t bytes, int device, void *ctx, void *pool, bool keep);
bool hf_give(CUdeviceptr p);                   /* takes it back at once; false: not the start of one of ours */
struct hf_found { CUdeviceptr base; uint64_t size; struct hf_block *b; bool keep; };
bool hf_find(CUdeviceptr p, struct hf_found *f); /* the allocation that holds p */
void hf_forget_ctx(void *ctx);                 /* the context is gone, and with it its memory */
void hf_access_again(int device);              /* hf_peers[device] changed */
void hf_mem_fork_child(void);

/* ---- pool.c ---- (hf_mem_lock held) */
void hf_pool_sweep(bool release);              /* what is freed and done becomes reusable; release: or goes back */
bool hf_pool_take(CUdeviceptr *p, uint64_t bytes, int device, void *pool);
/* Of the current context: an error that stays, which our own memory would not show. */
CUresult hf_ctx_error(void *ctx);
bool hf_pool_pending(CUdeviceptr p);           /* freed, waiting for its stream */
void hf_pool_release_threshold(void);         /* idle blocks beyond the pools' thresholds go back */
void hf_pool_account(void *pool, int64_t used, int64_t reserved);
void hf_pool_forget_ctx(void *ctx);
void hf_pool_fork_child(void);

/* ---- vmm.c ---- (hf_mem_lock held) */
struct hf_map {
	CUdeviceptr va;
	uint64_t size, offset;
	struct hf_block *b;
	size_t naccess;
	CUmemAccessDesc access[16];
	bool mapped;
};
extern struct hf_map **hf_maps; /* by address */
extern size_t hf_nmaps;
bool hf_map_types(CUdeviceptr p, uint64_t *types); /* as the program asked for, of the VMM memory that is mapped at p */
CUresult hf_map_restore(struct hf_map *m);     /* b->handle is set: maps m with its access again */
void hf_vmm_fork_child(void);

struct hf_dirent { /* linux_dirent64, of getdents64 */
	uint64_t inode;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

/* ---- ctx.c ---- */
struct hf_ctx { void *ctx; int device; bool primary; };
extern pthread_mutex_t hf_ctx_lock;
CUresult hf_current(void **ctx, int *device); /* the calling thread's */
size_t hf_contexts(struct hf_ctx *out, size_t room);
int hf_captures(void);       /* open stream captures */
/*
 * Until hf_unrelax no call of this thread breaks a capture of another one, also one that begins meanwhile
 * (CU_STREAM_CAPTURE_MODE_RELAXED). Returns what hf_unrelax is to be given.
 */
enum { HF_NOT_RELAXED = -1 };
int hf_relax(void);
void hf_unrelax(int mode);
bool hf_stream_captures(void *stream);
/* Waits until every context is idle, 0 or the CUresult; *what is the context. */
enum { HF_SYNC_TIMEOUT = -1 };
int hf_sync_all(uint64_t deadline, void **what, uint32_t *count);
CUresult hf_sync_ctx(void *ctx); /* NULL: the current one */
bool hf_push(void *ctx);     /* makes ctx current; false if it cannot */
void hf_pop(void);
void hf_ctx_fork_child(void);
void hf_modules_tell(void);

/* ---- globals.c ---- (hf_mem_lock held, but for hf_global) */
void hf_global(const char *call, uint32_t number, void *module, const char *name, CUdeviceptr va,
	uint64_t size); /* the program asked for it */
/* Tells the recorder of every variable, calling f for it. */
void hf_globals_each(void (*f)(CUdeviceptr p, uint64_t bytes, int device, void *arg), void *arg);
void hf_globals_forget(void *module);
void hf_globals_forget_ctx(void *ctx);
CUresult hf_globals_save(void);    /* the program is frozen: variables to mirrors */

/* stack.c */
void hf_stacks_shrink(void);
CUresult hf_stacks_restore(void);
CUresult hf_globals_restore(void); /* the same: mirrors to variables */
void hf_globals_fork_child(void);

/* ---- tap.c ---- */
extern volatile int hf_tapped; /* somebody wants to be told */
extern uint32_t hf_tap_epoch;  /* of the tap: what was told to an earlier one is told again */
/* A record of that many bytes to be filled, or NULL. The tap is locked until hf_tap_end. */
void *hf_tap_begin(uint32_t type, uint32_t flags, size_t size);
void hf_tap_end(void);
void hf_tap_drop(void); /* instead: the record is not told */
/* For a piece of work: its cell is set, and hf_tap_end_work waits for the answer if this kind asks. */
struct hf_asking { bool asks, shared; uint32_t cell; };
struct hf_asking hf_asks(bool writes, bool captured);
void hf_tap_end_work(struct hf_asking a);
void hf_asks_not(struct hf_asking a); /* instead, when hf_tap_begin gave nothing */
/* Maps the tap and tells everything; false: it cannot be mapped. fd stays the caller's. */
bool hf_tap_attach(int fd, bool record, bool code);
void hf_tap_ask(uint32_t flags);
void hf_tap_lost(void);       /* the reader is gone */
void hf_tap_detach(void);
bool hf_tap_records(void);
void hf_note_alloc(uint32_t kind, CUdeviceptr p, uint64_t bytes);
void hf_note_map(CUdeviceptr va, uint64_t size, uint64_t offset);
void hf_note_free(CUdeviceptr p, uint64_t bytes);
void hf_note_kept(CUdeviceptr p, uint64_t bytes);
void hf_note_blocks(void);    /* all memory */
/* Calls f for every allocation and mapping, hf_mem_lock held. */
void hf_blocks_each(void (*f)(CUdeviceptr p, uint64_t bytes, int device, void *arg), void *arg);
void hf_tap_fork_prepare(void);
void hf_tap_fork_parent(void);
void hf_tap_fork_child(void);

/* ---- code.c ---- */
struct hf_param { uint32_t offset, size; };
struct hf_kernel {
	void *handle;
	char *name;
	uint64_t module;  /* id of its code; 0: not known */
	void *ctx;        /* NULL: of a library */
	uint32_t id, told;
	bool kernel;      /* a CUkernel */
	bool resolved, nolayout;
	uint32_t nparams, bytes;
	struct hf_param *params;
};
void hf_code_loaded(void *handle, void *ctx, const void *image, const char *file, const char *call);
void hf_code_unloaded(void *handle);
void hf_code_forget_ctx(void *ctx);
void hf_code_tell_all(bool code);
uint32_t hf_image_kind(const void **image, uint64_t *size); /* sees through a wrapper */
struct hf_kernel *hf_kernel(void *handle);      /* with its parameters; NULL: out of memory */
void hf_sha256(const void *data, uint64_t size, uint8_t digest[32]); /* shim_sha256.c */
void hf_kernel_tell(struct hf_kernel *k);
uint64_t hf_code_id(const void *handle);
static inline void hf_kernel_told(struct hf_kernel *k)
{
	if (HF_UNLIKELY(__atomic_load_n(&k->told, __ATOMIC_ACQUIRE) != hf_tap_epoch))
		hf_kernel_tell(k);
}
void *hf_owner_of(void *module); /* ctx.c */
void hf_code_fork_prepare(void);
void hf_code_fork_parent(void);
void hf_code_fork_child(void);

/* ---- work.c ---- */
struct hf_dims { unsigned grid[3], block[3], cluster[3]; };
/* The parameters of a launch in bytes; returns how many, with dst NULL only that. */
size_t hf_pack(const struct hf_kernel *k, void *params, void *extra, uint8_t *dst, bool *known);
size_t hf_put_launch(struct hf_rec_launch *l, const struct hf_kernel *k, const struct hf_dims *d, unsigned shared,
	void *params, void *extra);
void hf_work_launch(void *f, const struct hf_dims *d, unsigned shared, void *stream, void *params, void *extra,
	uint32_t flags);
void hf_work_launch_ex(const void *config, void *f, void *params, void *extra, void *null);
void hf_work_copy(uint32_t call, uint32_t flags, uint64_t dst, uint64_t src, uint64_t bytes, void *stream);
void hf_work_set(uint32_t call, CUdeviceptr dst, uint64_t pitch, uint64_t value, uint32_t element, uint64_t n,
	uint64_t height, void *stream);
void hf_work_copy2d(uint32_t call, const void *copy, void *stream);
void hf_work_copy3d(uint32_t call, const void *copy, void *stream);
void hf_work_other(uint32_t call, void *stream);
void hf_work_failed(CUresult r);
uint32_t hf_thread(void);
void hf_put_copy3d(struct hf_rec_copy *c, const void *copy); /* fills a record, flags included, from a CUDA_MEMCPY3D */

/* ---- graph.c ---- */
void hf_work_graph(void *exec, void *stream);
void hf_graphs_tell_all(void);
void hf_graph_fork_prepare(void);
void hf_graph_fork_parent(void);
void hf_graph_fork_child(void);

/* ---- range.c ---- */
extern volatile int hf_range_open; /* a range is being recorded */
extern uint64_t hf_range_base;     /* where device memory is to begin; good after hf_range_wanted */
bool hf_range_wanted(void);      /* somebody records a range of this program, now or later */
void hf_range_attached(void);    /* the recorder listens from now on */
bool hf_range_on_host(uint64_t p);
/* Before a copy from the host: what it takes. */
void hf_range_host_data(const void *from, uint64_t pitch, uint64_t slice, uint64_t width, uint64_t height,
	uint64_t depth);
void hf_order(uint32_t kind, void *stream, void *event); /* a call that orders work was made */
static inline void hf_range_synced(CUresult r)
{
	if (HF_UNLIKELY(hf_range_open) && r == CUDA_SUCCESS)
		hf_order(HF_ORDER_SYNCED, NULL, NULL);
}
void hf_work_host(uint32_t call, void *stream); /* work that the host does */
void hf_range_fork_prepare(void);
void hf_range_fork_parent(void);
void hf_range_fork_child(void);

/* ---- maps.c ---- */
struct hf_mapping {
	uintptr_t start, end;
	bool access;      /* any at all */
	bool shared;      /* with whoever maps the same file */
	const char *path; /* "" where it has none; "[…]" is no file. Its end may be missing */
};
/* Calls enough for each mapping of the process, by address, until it returns true. It may not map anything. */
void hf_mappings(bool (*enough)(const struct hf_mapping *m, void *arg), void *arg);
uintptr_t hf_hex(const char **s); /* the number that s begins with, in lower case; s is then behind it */

/* ---- talk.c ---- */
bool hf_recorder_gone(void);     /* the program is traced, and nobody is there any more */
void hf_fd_lock(void);           /* around a descriptor of ours in a thread of the program: fork waits for it */
void hf_fd_unlock(void);
/* A context of the device, now current, so that calls that want one have it; NULL: there is none. */
void *hf_push_any(int device);
extern volatile int hf_attached; /* 1: memory of the program is held (also while the daemon is away) */
static inline bool hf_watching(void) { return hf_attached || hf_tapped; } /* code and memory are of interest */
void hf_attach(void);            /* after the first successful cuInit */
void hf_queue_alloc(struct hf_block *b);  /* with hf_mem_lock held, like the next two */
void hf_queue_free(struct hf_block *b);
bool hf_recent_free(void);    /* the daemon may not have closed everything yet */
/* Without any lock: asks the daemon for memory that it could do without; whether to try again. */
bool hf_room(uint64_t bytes, int device);
/*
 * From inside a call, without any lock: a descriptor of the daemon's for an allocation, -1 when there is none, or
 * HF_SHARE_AGAIN: the gate closes, so leave the call, enter it again, look at the allocation again. At the end, in any
 * case, hf_share_end.
 */
struct hf_sharer {
	uint64_t left; /* ns to wait */
	int fd;
	uint32_t id, done;
	bool waits, asked;
	struct hf_sharer *next;
};
enum { HF_SHARE_AGAIN = -2 };
int hf_share(struct hf_sharer *me, uint64_t alloc);
void hf_share_end(struct hf_sharer *me);
void hf_queue_mapping(const struct hf_map *m, bool mapped);
void hf_queue_context(void *ctx, int device, bool alive);
void hf_queue_module(uint64_t id, uint32_t kind, bool loaded, uint64_t size, const char *call);
void hf_caveat(uint32_t code, uint32_t flags, uint32_t call, uint64_t subject, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
void hf_caveat_gone(uint32_t code, uint64_t subject);

/* ---- park.c ---- */
/*
 * Stops every thread of the process but the caller and except, until hf_unpark; NULL, or which does not stop (then none
 * stands still). The caller holds all locks of the shim. How many there are in *stopped.
 */
const char *hf_park(int except, uint64_t deadline, uint64_t *stopped);
void hf_unpark(void);
void hf_park_fork_child(void);

/* ---- fork.c ---- */
void hf_devices_fork_child(void); /* in the child of a held program: lets go of the device files */

#include "zshim.h"
#endif
