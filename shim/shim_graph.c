/*
 * What executable graphs consist of. A graph is looked at when it is instantiated or updated, because afterwards the driver does not
 * show it any more; a launch of it names it. Nodes that only order others, or run on the host, are no work.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

/* cuda.h of CUDA 13.0: CUDA_KERNEL_NODE_PARAMS_v2 (v1 ends before kernel), CUDA_MEMSET_NODE_PARAMS_v1. */
struct kernel_node { void *function; unsigned grid[3], block[3], shared; void *params, *extra; void *kernel, *ctx; };
struct memset_node { CUdeviceptr dst; size_t pitch; unsigned value, element; size_t width, height; };
enum { KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT_EVENT, RECORD_EVENT, SIGNAL, WAIT, ALLOC, FREE };
enum { COOPERATIVE = 2, CLUSTER = 4, STREAM_SERIALIZATION = 6, DEVICE_UPDATABLE = 13 }; /* CUlaunchAttributeID */
enum { DEVICE_LAUNCH = 4 };                     /* CUDA_GRAPH_INSTANTIATE_FLAG_ */
enum { DEEPEST = 8, MOST = 1 << 20, CALL_KERNEL = 301, CALL_MEMCPY = 304, CALL_MEMSET = 307, CALL_NODE = 376 };

struct work {
	void *node;
	struct hf_kernel *k; /* of a launch */
	uint8_t *record;     /* a whole record, whose cell is the graph's id */
};
struct graph {
	struct graph *next;
	void *exec;
	uint32_t id, told, nodes;
	bool incomplete;
	struct work *work;
	size_t n, room;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { BUCKETS = 256 };
static struct graph *graphs[BUCKETS];
static uint32_t last_id;

static struct graph **place(void *exec)
{
	struct graph **g = &graphs[((uintptr_t)exec >> 4) % BUCKETS];
	while (*g && (*g)->exec != exec)
		g = &(*g)->next;
	return g;
}

static void clear(struct graph *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->work[i].record);
	g->n = 0;
	g->nodes = 0;
	g->told = 0;
}

/* Room for a record of that size; NULL: the graph is incomplete now. */
static void *add(struct graph *g, void *node, struct hf_kernel *k, uint32_t type, uint32_t flags, size_t size)
{
	size = (size + 7) & ~(size_t)7;
	if (g->n == g->room && g->n < MOST) {
		size_t room = g->room ? 2 * g->room : 16;
		struct work *w = realloc(g->work, room * sizeof *w);
		if (w) {
			g->work = w;
			g->room = room;
		}
	}
	uint8_t *r = size <= HF_MAX_RECORD && g->n < g->room ? calloc(1, size) : NULL;
	if (!r) {
		g->incomplete = true;
		return NULL;
	}
	g->work[g->n++] = (struct work){ node, k, r };
	*(uint64_t *)r = size | (uint64_t)type << 32 | (uint64_t)(flags | HF_REC_NODE_FLAG) << 48;
	return r;
}

static int attribute(void *node, int id, void *value)
{
	memset(value, 0, 64);
	return hf_have(HF_SYM_cuGraphKernelNodeGetAttribute) && real_cuGraphKernelNodeGetAttribute(node, id, value) == CUDA_SUCCESS ? *(int *)value : 0;
}

static void add_kernel(struct graph *g, void *node, const struct kernel_node *p, bool v2)
{
	struct hf_kernel *k = p->function ? hf_kernel(p->function) : v2 && p->kernel ? hf_kernel(p->kernel) : NULL;
	struct hf_dims d = { { p->grid[0], p->grid[1], p->grid[2] }, { p->block[0], p->block[1], p->block[2] }, { 1, 1, 1 } };
	bool known = false;
	size_t n = k ? hf_pack(k, p->params, p->extra, NULL, &known) : 0;
	uint32_t value[16], flags = known ? 0 : HF_REC_NOPARAMS_FLAG;
	if (attribute(node, COOPERATIVE, value))
		flags |= HF_REC_COOPERATIVE_FLAG;
	if (attribute(node, STREAM_SERIALIZATION, value))
		flags |= HF_REC_PROGRAMMATIC_FLAG;
	if (attribute(node, CLUSTER, value))
		memcpy(d.cluster, value, sizeof d.cluster);
	if (attribute(node, DEVICE_UPDATABLE, value))
		g->incomplete = true;
	struct hf_rec_launch *l = add(g, node, k, HF_REC_LAUNCH, flags, sizeof *l + n);
	if (l)
		hf_put_launch(l, k, &d, p->shared, p->params, p->extra);
}

static void add_memcpy(struct graph *g, void *node, const void *params)
{
	struct hf_rec_copy c;
	hf_put_copy3d(&c, params);
	struct hf_rec_copy *r = add(g, node, NULL, HF_REC_COPY, c.flags, sizeof *r);
	if (!r)
		return;
	size_t head = offsetof(struct hf_rec_copy, call);
	memcpy((char *)r + head, (char *)&c + head, sizeof c - head);
	r->call = CALL_MEMCPY;
}

static void add_memset(struct graph *g, void *node, const struct memset_node *p)
{
	struct hf_rec_copy *r = add(g, node, NULL, HF_REC_COPY, HF_REC_SET_FLAG, sizeof *r);
	if (!r)
		return;
	r->call = CALL_MEMSET;
	r->dst = p->dst;
	r->dst_pitch = p->pitch;
	r->src = p->value;
	r->src_pitch = p->element;
	r->width = p->width * p->element;
	r->height = p->height;
	r->depth = 1;
}

static void add_other(struct graph *g, void *node)
{
	struct hf_rec_other *o = add(g, node, NULL, HF_REC_OTHER, 0, sizeof *o);
	if (o)
		o->call = CALL_NODE;
}

static bool kernel_params(void *node, struct kernel_node *p, bool *v2)
{
	memset(p, 0, sizeof *p);
	*v2 = hf_have(HF_SYM_cuGraphKernelNodeGetParams_v2);
	return (*v2 ? real_cuGraphKernelNodeGetParams_v2(node, p) : real_cuGraphKernelNodeGetParams(node, p)) == CUDA_SUCCESS;
}

static void walk(struct graph *g, void *graph, int depth)
{
	size_t n = 0;
	void **nodes = NULL;
	if (depth == DEEPEST || real_cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n > MOST || (n && !(nodes = calloc(n, sizeof *nodes))) ||
	    (n && real_cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS)) {
		g->incomplete = true;
		free(nodes);
		return;
	}
	g->nodes += (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		int type = -1;
		bool v2;
		struct kernel_node kernel;
		struct memset_node set;
		uint64_t copy[32]; /* more than CUDA_MEMCPY3D has */
		void *child;
		real_cuGraphNodeGetType(nodes[i], &type);
		switch (type) {
		case KERNEL:
			if (kernel_params(nodes[i], &kernel, &v2))
				add_kernel(g, nodes[i], &kernel, v2);
			else
				add_other(g, nodes[i]);
			break;
		case MEMCPY:
			if (real_cuGraphMemcpyNodeGetParams(nodes[i], copy) == CUDA_SUCCESS)
				add_memcpy(g, nodes[i], copy);
			else
				add_other(g, nodes[i]);
			break;
		case MEMSET:
			if (real_cuGraphMemsetNodeGetParams(nodes[i], &set) == CUDA_SUCCESS)
				add_memset(g, nodes[i], &set);
			else
				add_other(g, nodes[i]);
			break;
		case CHILD:
			if (real_cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
				walk(g, child, depth + 1);
			else
				g->incomplete = true;
			break;
		case HOST: case EMPTY: case WAIT_EVENT: case RECORD_EVENT: case SIGNAL: case WAIT: case ALLOC: case FREE:
			break;
		default: /* batched memory operations, conditions, what is yet to come */
			add_other(g, nodes[i]);
		}
	}
	free(nodes);
}

/* With the lock held: tells a graph and the kernels in it. */
static void tell(struct graph *g)
{
	if (!hf_tapped || g->told == hf_tap_epoch)
		return;
	for (size_t i = 0; i < g->n; i++)
		if (g->work[i].k)
			hf_kernel_told(g->work[i].k);
	struct hf_rec_graph *r = hf_tap_begin(HF_REC_GRAPH, g->incomplete ? HF_REC_INCOMPLETE_FLAG : 0, sizeof *r);
	if (!r)
		return;
	r->id = g->id;
	r->nodes = g->nodes;
	r->handle = (uint64_t)(uintptr_t)g->exec;
	hf_tap_end();
	for (size_t i = 0; i < g->n; i++) {
		const uint8_t *w = g->work[i].record;
		uint64_t head = *(const uint64_t *)w;
		size_t size = (uint32_t)head;
		uint8_t *to = hf_tap_begin(head >> 32 & 0xffff, (uint32_t)(head >> 48), size);
		if (!to)
			return;
		memcpy(to + 8, w + 8, size - 8);
		/* The cell stands at the same place in all that can be a node. */
		_Static_assert(offsetof(struct hf_rec_launch, cell) == offsetof(struct hf_rec_copy, cell) &&
			offsetof(struct hf_rec_launch, cell) == offsetof(struct hf_rec_other, cell), "cell");
		((struct hf_rec_launch *)to)->cell = g->id;
		hf_tap_end();
	}
	struct hf_rec_graph_end *e = hf_tap_begin(HF_REC_GRAPH_END, 0, sizeof *e);
	if (!e)
		return;
	e->id = g->id;
	e->spare = 0;
	g->told = hf_tap_epoch;
	hf_tap_end();
}

/* The graph exec is made of, anew. */
static CUresult made(CUresult r, void *exec, void *graph, bool incomplete)
{
	if (r != CUDA_SUCCESS || !hf_watching())
		return r;
	pthread_mutex_lock(&lock);
	struct graph **at = place(exec), *g = *at;
	if (!g && (g = calloc(1, sizeof *g))) {
		g->exec = exec;
		g->id = ++last_id;
		*at = g;
	}
	if (g) {
		clear(g);
		g->incomplete = incomplete;
		walk(g, graph, 0);
		tell(g);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* One node of exec was changed: its record is told again, or (no node given) nothing is sure any more. */
static void changed(void *exec, void *node, void (*put)(struct graph *g, void *node, const void *params), const void *params)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec);
	size_t i = 0;
	while (g && node && i < g->n && g->work[i].node != node)
		i++;
	if (g && node && i < g->n && put) {
		size_t before = g->n;
		put(g, node, params);
		if (g->n > before) { /* the new one takes the place of the old */
			free(g->work[i].record);
			g->work[i] = g->work[--g->n];
		}
	} else if (g)
		g->incomplete = true;
	if (g) {
		g->told = 0;
		tell(g);
	}
	pthread_mutex_unlock(&lock);
}

static void put_kernel(struct graph *g, void *node, const void *params) { add_kernel(g, node, params, true); }
static void put_memset(struct graph *g, void *node, const void *params) { add_memset(g, node, params); }

/* ---- the program's calls ---- */

CUresult hf_cuGraphInstantiate(void *exec, void *graph, void *error, void *log, size_t size)
{
	CUresult r = real_cuGraphInstantiate(exec, graph, error, log, size);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, false) : r;
}

CUresult hf_cuGraphInstantiate_v2(void *exec, void *graph, void *error, void *log, size_t size)
{
	CUresult r = real_cuGraphInstantiate_v2(exec, graph, error, log, size);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, false) : r;
}

CUresult hf_cuGraphInstantiateWithFlags(void *exec, void *graph, unsigned long long flags)
{
	CUresult r = real_cuGraphInstantiateWithFlags(exec, graph, flags);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, flags & DEVICE_LAUNCH) : r;
}

CUresult hf_cuGraphInstantiateWithParams(void *exec, void *graph, void *params)
{
	CUresult r = real_cuGraphInstantiateWithParams(exec, graph, params);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, *(uint64_t *)params & DEVICE_LAUNCH) : r;
}

CUresult hf_cuGraphExecUpdate(void *exec, void *graph, void *node, void *result)
{
	return made(real_cuGraphExecUpdate(exec, graph, node, result), exec, graph, false);
}

CUresult hf_cuGraphExecUpdate_v2(void *exec, void *graph, void *info)
{
	return made(real_cuGraphExecUpdate_v2(exec, graph, info), exec, graph, false);
}

CUresult hf_cuGraphExecKernelNodeSetParams(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecKernelNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS) {
		struct kernel_node p = { 0 };
		memcpy(&p, params, offsetof(struct kernel_node, kernel));
		changed(exec, node, put_kernel, &p);
	}
	return r;
}

CUresult hf_cuGraphExecKernelNodeSetParams_v2(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecKernelNodeSetParams_v2(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, node, put_kernel, params);
	return r;
}

CUresult hf_cuGraphExecMemcpyNodeSetParams(void *exec, void *node, void *params, void *ctx)
{
	CUresult r = real_cuGraphExecMemcpyNodeSetParams(exec, node, params, ctx);
	if (r == CUDA_SUCCESS)
		changed(exec, node, add_memcpy, params);
	return r;
}

CUresult hf_cuGraphExecMemsetNodeSetParams(void *exec, void *node, void *params, void *ctx)
{
	CUresult r = real_cuGraphExecMemsetNodeSetParams(exec, node, params, ctx);
	if (r == CUDA_SUCCESS)
		changed(exec, node, put_memset, params);
	return r;
}

CUresult 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(void *exec, void *node, void *child)
{
	CUresult r = real_cuGraphExecChildGraphNodeSetParams(exec, node, child);
	if (r == CUDA_SUCCESS)
		changed(exec, NULL, NULL, NULL);
	return r;
}

CUresult 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(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecBatchMemOpNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, NULL, NULL, NULL);
	return r;
}

CUresult hf_cuGraphExecNodeSetParams(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, NULL, NULL, NULL);
	return r;
}

CUresult hf_cuGraphExecDestroy(void *exec)
{
	pthread_mutex_lock(&lock);
	struct graph **at = place(exec), *g = *at;
	if (g) {
		*at = g->next;
		struct hf_rec_graph_free *f = hf_tap_begin(HF_REC_GRAPH_FREE, 0, sizeof *f);
		if (f) {
			f->id = g->id;
			f->spare = 0;
			hf_tap_end();
		}
		clear(g);
		free(g->work);
		free(g);
	}
	pthread_mutex_unlock(&lock);
	return real_cuGraphExecDestroy(exec);
}

/* ---- launches ---- */

void hf_work_graph(void *exec, void *stream)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec);
	if (g)
		tell(g);
	uint32_t id = g ? g->id : 0;
	pthread_mutex_unlock(&lock);
	bool captured = hf_stream_captures(stream);
	struct hf_asking a = hf_asks(true, captured);
	uint32_t flags = (captured ? HF_REC_CAPTURED_FLAG : 0) | (a.asks ? HF_REC_ASKS_FLAG : 0);
	struct hf_rec_graph_launch *l = hf_tap_begin(HF_REC_GRAPH_LAUNCH, flags, sizeof *l);
	if (!l) {
		hf_asks_not(a);
		return;
	}
	l->graph = id;
	l->thread = hf_thread();
	l->cell = a.cell;
	l->spare = 0;
	l->stream = (uint64_t)(uintptr_t)stream;
	hf_tap_end_work(a);
}

void hf_graphs_tell_all(void)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct graph *g = graphs[i]; g; g = g->next)
			tell(g);
	pthread_mutex_unlock(&lock);
}

/* ---- fork ---- */

void hf_graph_fork_prepare(void) { pthread_mutex_lock(&lock); }
void hf_graph_fork_parent(void) { pthread_mutex_unlock(&lock); }
void hf_graph_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(graphs, 0, sizeof graphs);
}
