/* The stub libcuda.so.1: the CUDA driver API for programs on the software GPU. It is thin: a call becomes a message to
 * the server (the protocol is the package documentation of internal/softgpu/gpuwire), all state but pinned host memory
 * lives there.
 *
 *   stub.c           processes, threads, connections, one call
 *   control.c        the control thread: callbacks, lock, checkpoint, restore
 *   memory.c         pinned host memory, copies, sets, shareable handles, attributes
 *   texture.c        texture and surface objects, requirements of arrays
 *   module.c         images, launches, occupancy
 *   link.c           linking of modules
 *   graph.c          capture and graphs where they are not regular
 *   query.c          what needs no server: error names, versions, cuGetProcAddress
 *   zstub.c          everything regular, generated from internal/cuda/api
 *
 * Locks, in the order they are taken: gate (calls inside, closed while a checkpoint runs), pinned, threads. None is
 * held while waiting for the server but the gate's count. */
#ifndef HOLDFAST_STUB_H
#define HOLDFAST_STUB_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "cudaabi.h"
#include "zstub.h"

#define EXPORT __attribute__((visibility("default")))

/* Internal operations: internal/softgpu/gpuwire/ops.go. */
enum {
	OP_HELLO = 0x10000,
	OP_HOST_ALLOC = 0x10002,
	OP_HOST_PLACED = 0x10003,
	OP_HOST_FREE = 0x10004,
	OP_HOST_REFETCH = 0x10005,
	OP_MEMCPY = 0x10006,
	OP_MEMCPY3D = 0x10007,
	OP_MEMSET = 0x10008,
	OP_MODULE_LOAD = 0x10009,
	OP_LIBRARY_LOAD = 0x1000a,
	OP_FUNCTION_LAYOUT = 0x1000b,
	OP_LAUNCH = 0x1000c,
	OP_GRAPH_ADD_KERNEL = 0x1000d,
	OP_GRAPH_KERNEL_GET = 0x1000e,
	OP_GRAPH_KERNEL_SET = 0x1000f,
	OP_GRAPH_EXEC_KERNEL_SET = 0x10010,
	OP_GRAPH_ADD_MEMCPY = 0x10011,
	OP_GRAPH_MEMCPY_GET = 0x10012,
	OP_GRAPH_MEMCPY_SET = 0x10013,
	OP_GRAPH_EXEC_MEMCPY_SET = 0x10014,
	OP_RESTORE_PART = 0x10015,
	OP_RESTORE_COMMIT = 0x10016,
	OP_RESTORE_DONE = 0x10017,
	OP_ARRAY_LAYOUT = 0x10018,
	OP_CALLBACK = 0x20000,
	OP_HOST_READ = 0x20001,
	OP_HOST_WRITE = 0x20002,
	OP_PRINT = 0x20003,
	OP_LOCK = 0x20004,
	OP_UNLOCK = 0x20005,
	OP_CHECKPOINT_PART = 0x20006,
	OP_CHECKPOINT_COMMIT = 0x20007,
};

enum {
	MAX_ARGS = 64,
	MAX_FDS = 8,
	MAX_PIECES = 24,
	INLINE_REPLY = 1024,
};
#define NULL_BLOB (~0ull)
#define MESSAGE_BYTES (16ull << 20) /* big copies are split into messages of this size */
#define MAX_PAYLOAD (1ull << 30)

/* One call: the request as it is built, then the reply. */
struct call {
	uint32_t op, nargs, npieces, nlens, nouts, nfds;
	int send_fd; /* -1: none */
	CUresult status;
	uint64_t payload;           /* bytes of the pieces */
	uint64_t reply_len, cursor; /* reply payload, and how much of it blob() has given out */
	uint8_t *reply;             /* inline_reply, the heap, or into */
	void *into;                 /* where a raw reply payload goes directly, if it fits */
	uint64_t into_len;
	uint64_t args[MAX_ARGS], outs[MAX_ARGS], lens[MAX_PIECES];
	struct iovec pieces[MAX_PIECES];
	int fds[MAX_FDS]; /* of the reply; the caller takes or call_end closes them */
	uint8_t inline_reply[INLINE_REPLY];
};

void call_begin(struct call *c, uint32_t op);
CUresult call_enter(void); /* around several messages of one call: see stub.c */
void call_leave(void);
CUresult call_send(struct call *c); /* sends, waits for the reply; the status */
void call_end(struct call *c);
void *thread_scratch(size_t bytes); /* zeroed memory that lives until this thread asks again */

static inline void arg(struct call *c, uint64_t v) { c->args[c->nargs++] = v; }
void raw_piece(struct call *c, const void *p, uint64_t n);
void blob_piece(struct call *c, const void *p, uint64_t n); /* p null: a null blob */
void string_piece(struct call *c, const char *s);

static inline uint64_t out(const struct call *c, uint32_t i) { return i < c->nouts ? c->outs[i] : 0; }
/* The next blob of the reply; null, and *n 0, if there is none left or it is a null pointer. */
const void *next_blob(struct call *c, uint64_t *n);
/* Copies the next blob to dst, at most room bytes; a dst of null skips it. */
void take_blob(struct call *c, void *dst, uint64_t room);
void take_string(struct call *c, char *dst, int64_t room); /* with a NUL, cut to room */

#define PTR(p) ((uint64_t)(uintptr_t)(p))
#define SIGNED(v) ((uint64_t)(int64_t)(v))
static inline uint64_t float_bits(float f)
{
	union { float f; uint32_t u; } x = {.f = f};
	return x.u;
}
static inline float bits_float(uint64_t v)
{
	union { uint32_t u; float f; } x = {.u = (uint32_t)v};
	return x.f;
}

/* A request with only scalar arguments and no outputs. */
#define SIMPLE(op, ...)                                                                      \
	simple_call((op), (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
CUresult simple_call(uint32_t op, const uint64_t *args, uint32_t nargs);

/* The process. */
enum state { UNINITIALISED, READY, GONE, FORKED };
struct process {
	int state;      /* enum state, atomic */
	int generation; /* of connections: a restore makes all of them stale */
	char socket[4096];
	uint64_t nonce;
	uint64_t window_lo, window_size; /* device addresses */
	int control;                     /* the control connection */
	pid_t control_tid;
};
extern struct process process;

void complain(const char *format, ...) __attribute__((format(printf, 1, 2))); /* one line on stderr */
void server_gone(const char *why);
int connect_server(void);
/*
 * The framing, over any connection. 0, or -1 with errno; exchange leaves the status in c->status. Of the descriptors of
 * a reply it gives all or, where this process may have no more, none.
 */
int exchange(int fd, struct call *c);
CUresult hello(int fd, uint64_t flags, struct call *c);
int send_all(int fd, struct iovec *iov, int n, const int *fds, int nfds);
int receive_all(int fd, void *p, uint64_t n);
int receive_first(int fd, void *p, size_t n, int *fds, uint32_t *nfds);

/* What the driver has mapped into the process, which every call looks at before anything else. */
void tables_leave(void);
void tables_return(void);

/* The gate of calls. */
/* False: calls were still inside after the timeout (0: none), the gate is open again. */
bool gate_close(uint64_t timeout_ms);
void gate_open(void);
bool gate_closed(void);
void drop_connections(void); /* of all threads; the gate is closed */

/* The control thread. */
CUresult start_control(int fd);

/* Pinned host memory. */
bool known_address(uint64_t p); /* the server knows it: a device address or pinned memory */
bool pinned_leave(void);
bool pinned_return(int fd);
void pinned_returned(void);
void pinned_forget(void); /* in a forked child */

/* One side of a copy of rows. kind 0: pageable memory, 1: an address that the server knows. */
struct box {
	uint64_t address, pitch, height; /* bytes from row to row, rows from slice to slice */
	int kind;
};
CUresult boxes_of(const CUDA_MEMCPY3D *p, struct box *dst, struct box *src);
void box_args(struct call *c, const struct box *dst, const struct box *src, uint64_t w, uint64_t h, uint64_t d);

/* Images. */
CUresult read_image(const char *path, char **image, uint64_t *n); /* the caller frees; some zeros follow the n bytes */
void store_log(struct call *c, unsigned n, const CUjit_option *options, void **values, CUjit_option buffer,
               CUjit_option size);

/* Kernel parameters as the device wants them. */
enum { MAX_PARAM_BYTES = 32764 };
CUresult pack_params(uint64_t function, void **params, void **extra, uint8_t *buffer, uint64_t *n);
/* The caller frees *offset_size. */
CUresult function_layout(uint64_t function, uint64_t *count, uint64_t *bytes, uint64_t (**offset_size)[2]);

#endif
