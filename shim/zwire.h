/* Code generated from internal/wire by internal/cuda/gen (make generate); DO NOT EDIT. */
#ifndef HF_ZWIRE_H
#define HF_ZWIRE_H
#include <stdint.h>
#include <string.h>

#define HF_VERSION 5u
#define HF_MAX_PACKET 65536u
#define HF_HEADER_SIZE 16u
#define HF_MAX_FDS 4u
#define HF_SIGNAL_OFFSET 1
#define HF_RUN_OFFSET 3
#define HF_CONTROL_COMM "holdfast"
#define HF_RECONNECT_MS 500u
#define HF_ROOM_MS 1000u
#define HF_SHARE_MS 10000u
#define HF_TYPE_HELLO 1u
#define HF_TYPE_ALLOC 2u
#define HF_TYPE_FREE 3u
#define HF_TYPE_MAPPING 4u
#define HF_TYPE_CAVEAT 5u
#define HF_TYPE_MODULE 6u
#define HF_TYPE_CONTEXT 7u
#define HF_TYPE_ADOPTED 8u
#define HF_TYPE_BYE 9u
#define HF_TYPE_ROOM 10u
#define HF_TYPE_SHARE 11u
#define HF_TYPE_FROZEN 16u
#define HF_TYPE_THAWED 17u
#define HF_TYPE_RELEASED 18u
#define HF_TYPE_MAPPED 19u
#define HF_TYPE_FAILED 20u
#define HF_TYPE_DONE 21u
#define HF_TYPE_WELCOME 64u
#define HF_TYPE_FREEZE 65u
#define HF_TYPE_THAW 66u
#define HF_TYPE_RELEASE 67u
#define HF_TYPE_MAP 68u
#define HF_TYPE_MAPEND 69u
#define HF_TYPE_QUIT 70u
#define HF_TYPE_ROOMMADE 71u
#define HF_TYPE_SHARED 75u
#define HF_TYPE_CALM 76u
#define HF_TYPE_TAP 72u
#define HF_TYPE_ASK 73u
#define HF_TYPE_UNTAP 74u
#define HF_TYPE_PARK 77u
#define HF_TYPE_PARKED 22u
#define HF_TYPE_LEASE 78u
#define HF_HELLO_RESUME 1u
#define HF_HELLO_READOPT 2u
#define HF_HELLO_TRACE 4u
#define HF_HELLO_CALM 8u
#define HF_HELLO_PARK 16u
#define HF_HELLO_FROZEN 32u
#define HF_LEASE_SHUT 1u
#define HF_FAILED_PARK 11u
#define HF_FAILED_OPEN 12u
#define HF_WELCOME_MOVE 1u
#define HF_TAP_RECORD 1u
#define HF_TAP_NO_CODE 2u
#define HF_ASK_WRITES 1u
#define HF_ASK_READS 2u
#define HF_ASK_HOLD 4u
#define HF_GPU_NATIVE 0u
#define HF_GPU_SOFT 1u
#define HF_KIND_LINEAR 1u
#define HF_KIND_SLAB 2u
#define HF_KIND_POOL 3u
#define HF_KIND_VMM 4u
#define HF_KIND_MIRROR 5u
#define HF_CAVEAT_MANAGED 1u
#define HF_CAVEAT_IPC 2u
#define HF_CAVEAT_EXPORTED 3u
#define HF_CAVEAT_EXTERNAL 4u
#define HF_CAVEAT_GRAPHICS 5u
#define HF_CAVEAT_MULTICAST 6u
#define HF_CAVEAT_HOST_MEMORY 7u
#define HF_CAVEAT_ARRAY 8u
#define HF_CAVEAT_GLOBALS 9u
#define HF_CAVEAT_DRIVER_MEMORY 10u
#define HF_CAVEAT_GRAPH_MEMORY 11u
#define HF_CAVEAT_PEER 12u
#define HF_CAVEAT_GREEN 13u
#define HF_CAVEAT_BLOCKS_FULL 1u
#define HF_CAVEAT_BLOCKS_GPU_ONLY 2u
#define HF_MODULE_UNKNOWN 0u
#define HF_MODULE_PTX 1u
#define HF_MODULE_CUBIN 2u
#define HF_MODULE_FATBIN 3u
#define HF_FAILED_STATE 1u
#define HF_FAILED_INSIDE 2u
#define HF_FAILED_CAPTURE 3u
#define HF_FAILED_SYNC 4u
#define HF_FAILED_UNMAP 5u
#define HF_FAILED_MAP 6u
#define HF_FAILED_PROTOCOL 7u
#define HF_FAILED_RELEASE 8u
#define HF_FAILED_BLOCKED 9u
#define HF_FAILED_GLOBALS 10u
#define HF_THAW_GLOBALS 1u
#define HF_PAGE_MAGIC 827344456u
#define HF_PAGE_SIZE 1048576u
#define HF_PAGE_SLOTS 4096u
#define HF_SLOT_SIZE 64u
#define HF_MAX_SLOTS 16320u
#define HF_GATE_OPEN 0u
#define HF_GATE_CLOSED 1u
#define HF_GATE_WATCHED 2u
#define HF_TAP_MAGIC 827606600u
#define HF_TAP_SIZE 4263936u
#define HF_TAP_CELLS 4096u
#define HF_TAP_NCELLS 16384u
#define HF_TAP_RING 69632u
#define HF_TAP_RING_SIZE 4194304u
#define HF_TAP_HEAD 64u
#define HF_TAP_WAITS 72u
#define HF_TAP_WAIT_NANOS 80u
#define HF_TAP_TAIL 128u
#define HF_TAP_READER 136u
#define HF_TAP_WRITER 192u
#define HF_TAP_STOP 140u
#define HF_CELL_IDLE 0u
#define HF_CELL_ASKS 1u
#define HF_CELL_SLEEPS 2u
#define HF_OFF_GATE 8u
#define HF_OFF_SLOTS 12u
#define HF_OFF_BYTES 16u
#define HF_OFF_ALLOCS 24u
#define HF_OFF_REFUSED 32u
#define HF_OFF_WAITING 36u
#define HF_SLOT_INSIDE 0u
#define HF_SLOT_CALL 4u
#define HF_SLOT_LAUNCHES 8u
#define HF_SLOT_GRAPHS 16u
#define HF_SLOT_COPIES 24u
#define HF_SLOT_TID 32u

struct hf_out { uint8_t *p, *end; int bad; };
struct hf_in { const uint8_t *p, *end; int bad; };
static inline void hf_put(struct hf_out *o, const void *v, size_t n)
{
	if (o->bad || (size_t)(o->end - o->p) < n) { o->bad = 1; return; }
	memcpy(o->p, v, n);
	o->p += n;
}
static inline void hf_get(struct hf_in *i, void *v, size_t n)
{
	if (i->bad || (size_t)(i->end - i->p) < n) { i->bad = 1; return; }
	memcpy(v, i->p, n);
	i->p += n;
}
static inline void hf_put_text(struct hf_out *o, const char *s, size_t max)
{
	uint16_t n = (uint16_t)strnlen(s, max);
	hf_put(o, &n, 2);
	hf_put(o, s, n);
}
static inline void hf_get_text(struct hf_in *i, char *s, size_t max)
{
	uint16_t n = 0;
	hf_get(i, &n, 2);
	if (n > max) { i->bad = 1; n = 0; }
	hf_get(i, s, n);
	s[n] = 0;
}
/* hf_begin and hf_end frame one packet in buf; hf_end returns its length, 0 if it did not fit. */
static inline struct hf_out hf_begin(uint8_t *buf, size_t cap, uint32_t type, uint64_t seq)
{
	struct hf_out o = { buf, buf + cap, 0 };
	uint32_t zero = 0;
	hf_put(&o, &type, 4);
	hf_put(&o, &zero, 4);
	hf_put(&o, &seq, 8);
	return o;
}
static inline size_t hf_end(struct hf_out *o, uint8_t *buf)
{
	if (o->bad) return 0;
	uint32_t n = (uint32_t)(o->p - buf) - HF_HEADER_SIZE;
	memcpy(buf + 4, &n, 4);
	return n + HF_HEADER_SIZE;
}
/* hf_open checks the frame of a received packet; the body is left in *i. */
static inline int hf_open(const uint8_t *buf, size_t len, struct hf_in *i, uint32_t *type, uint64_t *seq)
{
	uint32_t n = 0;
	i->p = buf; i->end = buf + len; i->bad = 0;
	hf_get(i, type, 4);
	hf_get(i, &n, 4);
	hf_get(i, seq, 8);
	return !i->bad && n == len - HF_HEADER_SIZE;
}

struct hf_msg_hello {
	uint32_t proto;
	uint32_t flags;
	uint32_t pid;
	uint32_t ppid;
	uint32_t control_tid;
	uint32_t gpu;
	uint64_t start_time;
	uint32_t driver;
	uint8_t token[16];
	char name[256];
	char exe[1024];
	uint16_t n_devices;
	uint8_t devices[32][16];
};
static inline size_t hf_put_hello(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_hello *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_HELLO, seq);
	hf_put(&s, &m->proto, 4);
	hf_put(&s, &m->flags, 4);
	hf_put(&s, &m->pid, 4);
	hf_put(&s, &m->ppid, 4);
	hf_put(&s, &m->control_tid, 4);
	hf_put(&s, &m->gpu, 4);
	hf_put(&s, &m->start_time, 8);
	hf_put(&s, &m->driver, 4);
	hf_put(&s, m->token, 16);
	hf_put_text(&s, m->name, 255);
	hf_put_text(&s, m->exe, 1023);
	hf_put(&s, &m->n_devices, 2);
	if (s.bad || m->n_devices > 32) return 0;
	hf_put(&s, m->devices, 16u * m->n_devices);
	return hf_end(&s, buf);
}
static inline int hf_get_hello(struct hf_in *body, struct hf_msg_hello *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->proto, 4);
	hf_get(&s, &m->flags, 4);
	hf_get(&s, &m->pid, 4);
	hf_get(&s, &m->ppid, 4);
	hf_get(&s, &m->control_tid, 4);
	hf_get(&s, &m->gpu, 4);
	hf_get(&s, &m->start_time, 8);
	hf_get(&s, &m->driver, 4);
	hf_get(&s, m->token, 16);
	hf_get_text(&s, m->name, 255);
	hf_get_text(&s, m->exe, 1023);
	hf_get(&s, &m->n_devices, 2);
	if (s.bad || m->n_devices > 32) return 0;
	hf_get(&s, m->devices, 16u * m->n_devices);
	return !s.bad && s.p == s.end;
}

struct hf_msg_alloc {
	uint64_t id;
	uint64_t va;
	uint64_t size;
	uint32_t device;
	uint32_t kind;
	uint64_t used;
};
static inline size_t hf_put_alloc(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_alloc *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_ALLOC, seq);
	hf_put(&s, &m->id, 8);
	hf_put(&s, &m->va, 8);
	hf_put(&s, &m->size, 8);
	hf_put(&s, &m->device, 4);
	hf_put(&s, &m->kind, 4);
	hf_put(&s, &m->used, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_alloc(struct hf_in *body, struct hf_msg_alloc *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	hf_get(&s, &m->va, 8);
	hf_get(&s, &m->size, 8);
	hf_get(&s, &m->device, 4);
	hf_get(&s, &m->kind, 4);
	hf_get(&s, &m->used, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_free {
	uint64_t id;
};
static inline size_t hf_put_free(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_free *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_FREE, seq);
	hf_put(&s, &m->id, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_free(struct hf_in *body, struct hf_msg_free *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_mapping {
	uint64_t id;
	uint64_t va;
	uint64_t offset;
	uint64_t size;
	uint32_t access;
	uint32_t mapped;
};
static inline size_t hf_put_mapping(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_mapping *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_MAPPING, seq);
	hf_put(&s, &m->id, 8);
	hf_put(&s, &m->va, 8);
	hf_put(&s, &m->offset, 8);
	hf_put(&s, &m->size, 8);
	hf_put(&s, &m->access, 4);
	hf_put(&s, &m->mapped, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_mapping(struct hf_in *body, struct hf_msg_mapping *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	hf_get(&s, &m->va, 8);
	hf_get(&s, &m->offset, 8);
	hf_get(&s, &m->size, 8);
	hf_get(&s, &m->access, 4);
	hf_get(&s, &m->mapped, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_caveat {
	uint32_t code;
	uint32_t flags;
	uint32_t count;
	uint64_t subject;
	char text[512];
};
static inline size_t hf_put_caveat(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_caveat *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_CAVEAT, seq);
	hf_put(&s, &m->code, 4);
	hf_put(&s, &m->flags, 4);
	hf_put(&s, &m->count, 4);
	hf_put(&s, &m->subject, 8);
	hf_put_text(&s, m->text, 511);
	return hf_end(&s, buf);
}
static inline int hf_get_caveat(struct hf_in *body, struct hf_msg_caveat *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->code, 4);
	hf_get(&s, &m->flags, 4);
	hf_get(&s, &m->count, 4);
	hf_get(&s, &m->subject, 8);
	hf_get_text(&s, m->text, 511);
	return !s.bad && s.p == s.end;
}

struct hf_msg_module {
	uint64_t id;
	uint32_t kind;
	uint32_t loaded;
	uint64_t size;
	char call[64];
};
static inline size_t hf_put_module(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_module *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_MODULE, seq);
	hf_put(&s, &m->id, 8);
	hf_put(&s, &m->kind, 4);
	hf_put(&s, &m->loaded, 4);
	hf_put(&s, &m->size, 8);
	hf_put_text(&s, m->call, 63);
	return hf_end(&s, buf);
}
static inline int hf_get_module(struct hf_in *body, struct hf_msg_module *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	hf_get(&s, &m->kind, 4);
	hf_get(&s, &m->loaded, 4);
	hf_get(&s, &m->size, 8);
	hf_get_text(&s, m->call, 63);
	return !s.bad && s.p == s.end;
}

struct hf_msg_context {
	uint64_t id;
	uint32_t device;
	uint32_t alive;
};
static inline size_t hf_put_context(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_context *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_CONTEXT, seq);
	hf_put(&s, &m->id, 8);
	hf_put(&s, &m->device, 4);
	hf_put(&s, &m->alive, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_context(struct hf_in *body, struct hf_msg_context *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	hf_get(&s, &m->device, 4);
	hf_get(&s, &m->alive, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_adopted {
	uint64_t allocations;
	uint64_t bytes;
	uint64_t lost;
};
static inline size_t hf_put_adopted(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_adopted *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_ADOPTED, seq);
	hf_put(&s, &m->allocations, 8);
	hf_put(&s, &m->bytes, 8);
	hf_put(&s, &m->lost, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_adopted(struct hf_in *body, struct hf_msg_adopted *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->allocations, 8);
	hf_get(&s, &m->bytes, 8);
	hf_get(&s, &m->lost, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_bye {
	char none;
};
static inline size_t hf_put_bye(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_bye *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_BYE, seq);
	(void)m;
	return hf_end(&s, buf);
}
static inline int hf_get_bye(struct hf_in *body, struct hf_msg_bye *m)
{
	struct hf_in s = *body;
	(void)m;
	return !s.bad && s.p == s.end;
}

struct hf_msg_room {
	uint32_t id;
	uint32_t device;
	uint64_t bytes;
};
static inline size_t hf_put_room(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_room *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_ROOM, seq);
	hf_put(&s, &m->id, 4);
	hf_put(&s, &m->device, 4);
	hf_put(&s, &m->bytes, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_room(struct hf_in *body, struct hf_msg_room *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 4);
	hf_get(&s, &m->device, 4);
	hf_get(&s, &m->bytes, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_share {
	uint32_t id;
	uint64_t alloc;
};
static inline size_t hf_put_share(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_share *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_SHARE, seq);
	hf_put(&s, &m->id, 4);
	hf_put(&s, &m->alloc, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_share(struct hf_in *body, struct hf_msg_share *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 4);
	hf_get(&s, &m->alloc, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_frozen {
	uint64_t gate_nanos;
	uint64_t sync_nanos;
	uint64_t launches;
	uint32_t contexts;
	uint32_t waiting;
};
static inline size_t hf_put_frozen(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_frozen *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_FROZEN, seq);
	hf_put(&s, &m->gate_nanos, 8);
	hf_put(&s, &m->sync_nanos, 8);
	hf_put(&s, &m->launches, 8);
	hf_put(&s, &m->contexts, 4);
	hf_put(&s, &m->waiting, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_frozen(struct hf_in *body, struct hf_msg_frozen *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->gate_nanos, 8);
	hf_get(&s, &m->sync_nanos, 8);
	hf_get(&s, &m->launches, 8);
	hf_get(&s, &m->contexts, 4);
	hf_get(&s, &m->waiting, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_thawed {
	uint64_t frozen_nanos;
};
static inline size_t hf_put_thawed(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_thawed *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_THAWED, seq);
	hf_put(&s, &m->frozen_nanos, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_thawed(struct hf_in *body, struct hf_msg_thawed *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->frozen_nanos, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_released {
	uint64_t count;
	uint64_t bytes;
	uint64_t nanos;
};
static inline size_t hf_put_released(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_released *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_RELEASED, seq);
	hf_put(&s, &m->count, 8);
	hf_put(&s, &m->bytes, 8);
	hf_put(&s, &m->nanos, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_released(struct hf_in *body, struct hf_msg_released *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->count, 8);
	hf_get(&s, &m->bytes, 8);
	hf_get(&s, &m->nanos, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_mapped {
	uint64_t count;
	uint64_t bytes;
	uint64_t nanos;
};
static inline size_t hf_put_mapped(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_mapped *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_MAPPED, seq);
	hf_put(&s, &m->count, 8);
	hf_put(&s, &m->bytes, 8);
	hf_put(&s, &m->nanos, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_mapped(struct hf_in *body, struct hf_msg_mapped *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->count, 8);
	hf_get(&s, &m->bytes, 8);
	hf_get(&s, &m->nanos, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_failed {
	uint32_t code;
	uint32_t result;
	char text[512];
};
static inline size_t hf_put_failed(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_failed *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_FAILED, seq);
	hf_put(&s, &m->code, 4);
	hf_put(&s, &m->result, 4);
	hf_put_text(&s, m->text, 511);
	return hf_end(&s, buf);
}
static inline int hf_get_failed(struct hf_in *body, struct hf_msg_failed *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->code, 4);
	hf_get(&s, &m->result, 4);
	hf_get_text(&s, m->text, 511);
	return !s.bad && s.p == s.end;
}

struct hf_msg_done {
	char none;
};
static inline size_t hf_put_done(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_done *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_DONE, seq);
	(void)m;
	return hf_end(&s, buf);
}
static inline int hf_get_done(struct hf_in *body, struct hf_msg_done *m)
{
	struct hf_in s = *body;
	(void)m;
	return !s.bad && s.p == s.end;
}

struct hf_msg_welcome {
	uint32_t proto;
	uint32_t flags;
	uint8_t token[16];
};
static inline size_t hf_put_welcome(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_welcome *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_WELCOME, seq);
	hf_put(&s, &m->proto, 4);
	hf_put(&s, &m->flags, 4);
	hf_put(&s, m->token, 16);
	return hf_end(&s, buf);
}
static inline int hf_get_welcome(struct hf_in *body, struct hf_msg_welcome *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->proto, 4);
	hf_get(&s, &m->flags, 4);
	hf_get(&s, m->token, 16);
	return !s.bad && s.p == s.end;
}

struct hf_msg_freeze {
	uint32_t timeout_millis;
};
static inline size_t hf_put_freeze(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_freeze *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_FREEZE, seq);
	hf_put(&s, &m->timeout_millis, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_freeze(struct hf_in *body, struct hf_msg_freeze *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->timeout_millis, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_thaw {
	uint32_t flags;
};
static inline size_t hf_put_thaw(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_thaw *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_THAW, seq);
	hf_put(&s, &m->flags, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_thaw(struct hf_in *body, struct hf_msg_thaw *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->flags, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_release {
	char none;
};
static inline size_t hf_put_release(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_release *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_RELEASE, seq);
	(void)m;
	return hf_end(&s, buf);
}
static inline int hf_get_release(struct hf_in *body, struct hf_msg_release *m)
{
	struct hf_in s = *body;
	(void)m;
	return !s.bad && s.p == s.end;
}

struct hf_msg_map {
	uint64_t id;
	uint64_t va;
	uint64_t size;
	uint32_t device;
	uint32_t access;
};
static inline size_t hf_put_map(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_map *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_MAP, seq);
	hf_put(&s, &m->id, 8);
	hf_put(&s, &m->va, 8);
	hf_put(&s, &m->size, 8);
	hf_put(&s, &m->device, 4);
	hf_put(&s, &m->access, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_map(struct hf_in *body, struct hf_msg_map *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 8);
	hf_get(&s, &m->va, 8);
	hf_get(&s, &m->size, 8);
	hf_get(&s, &m->device, 4);
	hf_get(&s, &m->access, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_mapend {
	uint64_t count;
};
static inline size_t hf_put_mapend(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_mapend *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_MAPEND, seq);
	hf_put(&s, &m->count, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_mapend(struct hf_in *body, struct hf_msg_mapend *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->count, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_quit {
	char none;
};
static inline size_t hf_put_quit(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_quit *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_QUIT, seq);
	(void)m;
	return hf_end(&s, buf);
}
static inline int hf_get_quit(struct hf_in *body, struct hf_msg_quit *m)
{
	struct hf_in s = *body;
	(void)m;
	return !s.bad && s.p == s.end;
}

struct hf_msg_roommade {
	uint32_t id;
	uint64_t bytes;
};
static inline size_t hf_put_roommade(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_roommade *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_ROOMMADE, seq);
	hf_put(&s, &m->id, 4);
	hf_put(&s, &m->bytes, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_roommade(struct hf_in *body, struct hf_msg_roommade *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 4);
	hf_get(&s, &m->bytes, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_shared {
	uint32_t id;
};
static inline size_t hf_put_shared(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_shared *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_SHARED, seq);
	hf_put(&s, &m->id, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_shared(struct hf_in *body, struct hf_msg_shared *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->id, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_calm {
	uint32_t millis;
};
static inline size_t hf_put_calm(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_calm *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_CALM, seq);
	hf_put(&s, &m->millis, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_calm(struct hf_in *body, struct hf_msg_calm *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->millis, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_tap {
	uint32_t flags;
};
static inline size_t hf_put_tap(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_tap *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_TAP, seq);
	hf_put(&s, &m->flags, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_tap(struct hf_in *body, struct hf_msg_tap *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->flags, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_ask {
	uint32_t flags;
};
static inline size_t hf_put_ask(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_ask *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_ASK, seq);
	hf_put(&s, &m->flags, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_ask(struct hf_in *body, struct hf_msg_ask *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->flags, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_untap {
	char none;
};
static inline size_t hf_put_untap(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_untap *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_UNTAP, seq);
	(void)m;
	return hf_end(&s, buf);
}
static inline int hf_get_untap(struct hf_in *body, struct hf_msg_untap *m)
{
	struct hf_in s = *body;
	(void)m;
	return !s.bad && s.p == s.end;
}

struct hf_msg_park {
	uint32_t except;
	uint32_t timeout_millis;
};
static inline size_t hf_put_park(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_park *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_PARK, seq);
	hf_put(&s, &m->except, 4);
	hf_put(&s, &m->timeout_millis, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_park(struct hf_in *body, struct hf_msg_park *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->except, 4);
	hf_get(&s, &m->timeout_millis, 4);
	return !s.bad && s.p == s.end;
}

struct hf_msg_parked {
	uint64_t threads;
	uint64_t nanos;
};
static inline size_t hf_put_parked(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_parked *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_PARKED, seq);
	hf_put(&s, &m->threads, 8);
	hf_put(&s, &m->nanos, 8);
	return hf_end(&s, buf);
}
static inline int hf_get_parked(struct hf_in *body, struct hf_msg_parked *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->threads, 8);
	hf_get(&s, &m->nanos, 8);
	return !s.bad && s.p == s.end;
}

struct hf_msg_lease {
	uint32_t millis;
	uint32_t flags;
};
static inline size_t hf_put_lease(uint8_t *buf, size_t cap, uint64_t seq, const struct hf_msg_lease *m)
{
	struct hf_out s = hf_begin(buf, cap, HF_TYPE_LEASE, seq);
	hf_put(&s, &m->millis, 4);
	hf_put(&s, &m->flags, 4);
	return hf_end(&s, buf);
}
static inline int hf_get_lease(struct hf_in *body, struct hf_msg_lease *m)
{
	struct hf_in s = *body;
	hf_get(&s, &m->millis, 4);
	hf_get(&s, &m->flags, 4);
	return !s.bad && s.p == s.end;
}

#endif
