/* Code generated from internal/trace by internal/cuda/gen (make generate); DO NOT EDIT. */
#ifndef HF_ZTRACE_H
#define HF_ZTRACE_H
#include <stdint.h>

#define HF_MAX_RECORD 65536u
#define HF_MAX_PARAMS 4096u
#define HF_REC_MODULE 1u
#define HF_REC_CODE 2u
#define HF_REC_UNLOAD 3u
#define HF_REC_KERNEL 4u
#define HF_REC_ALLOC 5u
#define HF_REC_FREE 6u
#define HF_REC_LAUNCH 7u
#define HF_REC_COPY 8u
#define HF_REC_GRAPH 9u
#define HF_REC_GRAPH_END 10u
#define HF_REC_GRAPH_LAUNCH 11u
#define HF_REC_GRAPH_FREE 12u
#define HF_REC_OTHER 13u
#define HF_REC_FAILED 14u
#define HF_REC_READY 15u
#define HF_REC_GRAPH_VERSION 16u
#define HF_REC_DATA 17u
#define HF_REC_RANGE 18u
#define HF_REC_RANGE_END 19u
#define HF_REC_VARIABLE 20u
#define HF_REC_FUNCTION 21u
#define HF_REC_ORDER 22u
#define HF_REC_GRAPH_EDGES 23u
#define HF_REC_ASKS_FLAG 1u
#define HF_REC_NODE_FLAG 2u
#define HF_REC_CAPTURED_FLAG 4u
#define HF_REC_COOPERATIVE_FLAG 8u
#define HF_REC_NOPARAMS_FLAG 16u
#define HF_REC_PROGRAMMATIC_FLAG 32u
#define HF_REC_SET_FLAG 8u
#define HF_REC_DSTHOST_FLAG 16u
#define HF_REC_SRCHOST_FLAG 32u
#define HF_REC_DSTARRAY_FLAG 64u
#define HF_REC_SRCARRAY_FLAG 128u
#define HF_REC_NOLAYOUT_FLAG 8u
#define HF_REC_INCOMPLETE_FLAG 8u
#define HF_REC_JOINT_FLAG 8u
#define HF_REC_OUTLINE_FLAG 8u
#define HF_REC_ASSEMBLED_FLAG 16u
#define HF_REC_WHOLE_FLAG 32u
#define HF_REC_HOSTDATA_FLAG 8u
#define HF_MEM_LINEAR 1u
#define HF_MEM_ASYNC 2u
#define HF_MEM_MAPPED 3u
#define HF_MEM_MANAGED 4u
#define HF_MEM_HOST 5u
#define HF_MEM_GLOBAL 6u
#define HF_ORDER_RECORDED 1u
#define HF_ORDER_WAITS 2u
#define HF_ORDER_SYNCED 3u

struct hf_rec_module {
	uint32_t size;
	uint16_t type, flags;
	uint64_t id;
	uint64_t handle;
	uint64_t bytes;
	uint64_t code;
	uint32_t kind;
	uint32_t call;
	uint8_t digest[32];
};
_Static_assert(sizeof(struct hf_rec_module) == 80, "layout");

struct hf_rec_code {
	uint32_t size;
	uint16_t type, flags;
	uint64_t module;
	uint64_t offset;
	uint32_t bytes;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_code) == 32, "layout");

struct hf_rec_unload {
	uint32_t size;
	uint16_t type, flags;
	uint64_t module;
};
_Static_assert(sizeof(struct hf_rec_unload) == 16, "layout");

struct hf_rec_kernel {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t params;
	uint64_t module;
	uint64_t handle;
	uint32_t name;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_kernel) == 40, "layout");

struct hf_rec_alloc {
	uint32_t size;
	uint16_t type, flags;
	uint64_t addr;
	uint64_t bytes;
	uint64_t block;
	uint64_t offset;
	uint32_t kind;
	uint32_t device;
};
_Static_assert(sizeof(struct hf_rec_alloc) == 48, "layout");

struct hf_rec_free {
	uint32_t size;
	uint16_t type, flags;
	uint64_t addr;
	uint64_t bytes;
};
_Static_assert(sizeof(struct hf_rec_free) == 24, "layout");

struct hf_rec_launch {
	uint32_t size;
	uint16_t type, flags;
	uint32_t kernel;
	uint32_t thread;
	uint32_t cell;
	uint32_t shared;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3];
	uint32_t bytes;
	uint64_t stream;
};
_Static_assert(sizeof(struct hf_rec_launch) == 72, "layout");

struct hf_rec_copy {
	uint32_t size;
	uint16_t type, flags;
	uint32_t call;
	uint32_t thread;
	uint32_t cell;
	uint32_t spare;
	uint64_t stream;
	uint64_t dst;
	uint64_t dst_pitch;
	uint64_t dst_slice;
	uint64_t src;
	uint64_t src_pitch;
	uint64_t src_slice;
	uint64_t width;
	uint64_t height;
	uint64_t depth;
};
_Static_assert(sizeof(struct hf_rec_copy) == 104, "layout");

struct hf_rec_graph {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t nodes;
	uint64_t handle;
};
_Static_assert(sizeof(struct hf_rec_graph) == 24, "layout");

struct hf_rec_graph_end {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_graph_end) == 16, "layout");

struct hf_rec_graph_launch {
	uint32_t size;
	uint16_t type, flags;
	uint32_t graph;
	uint32_t thread;
	uint32_t cell;
	uint32_t spare;
	uint64_t stream;
};
_Static_assert(sizeof(struct hf_rec_graph_launch) == 32, "layout");

struct hf_rec_graph_free {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_graph_free) == 16, "layout");

struct hf_rec_other {
	uint32_t size;
	uint16_t type, flags;
	uint32_t call;
	uint32_t thread;
	uint32_t cell;
	uint32_t spare;
	uint64_t stream;
};
_Static_assert(sizeof(struct hf_rec_other) == 32, "layout");

struct hf_rec_failed {
	uint32_t size;
	uint16_t type, flags;
	uint32_t thread;
	uint32_t result;
};
_Static_assert(sizeof(struct hf_rec_failed) == 16, "layout");

struct hf_rec_ready {
	uint32_t size;
	uint16_t type, flags;
	uint64_t spare;
};
_Static_assert(sizeof(struct hf_rec_ready) == 16, "layout");

struct hf_rec_graph_version {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t base;
	uint64_t handle;
};
_Static_assert(sizeof(struct hf_rec_graph_version) == 24, "layout");

struct hf_rec_data {
	uint32_t size;
	uint16_t type, flags;
	uint64_t addr;
	uint32_t thread;
	uint32_t bytes;
};
_Static_assert(sizeof(struct hf_rec_data) == 24, "layout");

struct hf_rec_range {
	uint32_t size;
	uint16_t type, flags;
	uint32_t thread;
	uint32_t nth;
	uint32_t name;
	uint32_t reason;
};
_Static_assert(sizeof(struct hf_rec_range) == 24, "layout");

struct hf_rec_range_end {
	uint32_t size;
	uint16_t type, flags;
	uint32_t thread;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_range_end) == 16, "layout");

struct hf_rec_variable {
	uint32_t size;
	uint16_t type, flags;
	uint64_t module;
	uint64_t addr;
	uint64_t bytes;
	uint32_t name;
	uint32_t spare;
};
_Static_assert(sizeof(struct hf_rec_variable) == 40, "layout");

struct hf_rec_function {
	uint32_t size;
	uint16_t type, flags;
	uint32_t kernel;
	uint32_t attributes;
};
_Static_assert(sizeof(struct hf_rec_function) == 16, "layout");

struct hf_rec_order {
	uint32_t size;
	uint16_t type, flags;
	uint32_t thread;
	uint32_t kind;
	uint64_t stream;
	uint64_t event;
};
_Static_assert(sizeof(struct hf_rec_order) == 32, "layout");

struct hf_rec_graph_edges {
	uint32_t size;
	uint16_t type, flags;
	uint32_t id;
	uint32_t edges;
};
_Static_assert(sizeof(struct hf_rec_graph_edges) == 16, "layout");

#endif
