/*
 * What executable graphs consist of. A graph is looked at when it is instantiated or updated, because afterwards the
 * driver does not show it any more; a launch of it names it. Nodes that only order others, or run on the host, are no
 * work.
 *
 * Programs change graphs before most of their launches (XLA sets the parameters of every node when its buffers take
 * turns), so as little as possible is told, and only at a launch. What a graph consisted of when it was launched is a
 * version, with an id of its own. A launch of a version that was told names it; another one is told by the nodes in
 * which it differs from the version before it. Contents of nodes are kept once for all versions: two that are equal
 * byte by byte are one object, so versions are compared exactly, by pointers. All of them have the same edges.
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
enum { DEEPEST = 8, MOST = 1 << 20, MOST_EDGES = 1 << 22 };
enum { CALL_KERNEL = 301, CALL_MEMCPY = 304, CALL_MEMSET = 307, CALL_NODE = 376 };

/* What a node does. */
struct content {
	uint32_t refs;       /* of versions, and of the graph as it is now */
	bool updatable;      /* by kernels */
	struct hf_kernel *k; /* of a launch */
	uint64_t record[];   /* whole; thread and cell are filled in when it is told */
};
struct edge { uint32_t from, to; };
struct version {
	struct version *next; /* that was launched before it */
	uint32_t id;
	bool incomplete;
	struct content *c[];
};
struct graph {
	struct graph *next;
	void *exec;
	uint32_t nodes;
	bool incomplete;
	bool device;     /* launched by kernels too: incomplete for ever */
	size_t n, room;
	struct content **now;
	void **node;
	void **top;      /* the child graph's node at the top that a node stands in, or NULL */
	struct edge *edges; /* between places, only for who records a range */
	size_t m, edge_room;
	size_t hint;     /* where the next node that is changed may be */
	/* What the tap of this epoch was told, the latest first. */
	uint32_t epoch;
	struct version *versions;
	size_t differ;   /* nodes in which now differs from the latest */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { BUCKETS = 256 };
static struct graph *graphs[BUCKETS];
static uint32_t last_id; /* of versions */

static struct graph **place(void *exec)
{
	struct graph **g = &graphs[((uintptr_t)exec >> 4) % BUCKETS];
	while (*g && (*g)->exec != exec)
		g = &(*g)->next;
	return g;
}

/* ---- contents and versions ---- */

static size_t size_of(const struct content *c) { return (uint32_t)c->record[0]; }
static bool equal(const struct content *a, const struct content *b)
{
	return a->record[0] == b->record[0] && a->k == b->k && !memcmp(a->record, b->record, size_of(a));
}

static void let_go(struct content *c)
{
	if (c && !--c->refs)
		free(c);
}

/* NULL: it cannot be told. */
static struct content *content(struct hf_kernel *k, uint32_t type, uint32_t flags, size_t size)
{
	size = (size + 7) & ~(size_t)7;
	struct content *c = size <= HF_MAX_RECORD ? calloc(1, sizeof *c + size) : NULL;
	if (!c)
		return NULL;
	c->refs = 1;
	c->k = k;
	c->record[0] = size | (uint64_t)type << 32 | (uint64_t)(flags | HF_REC_NODE_FLAG) << 48;
	return c;
}

/* How many versions of a graph are kept: the larger it is, the fewer. */
static size_t most_versions(const struct graph *g) { return g->n <= 4096 ? 8 : g->n <= 65536 ? 2 : 1; }

static void tell_free(uint32_t id)
{
	struct hf_rec_graph_free *f = hf_tap_begin(HF_REC_GRAPH_FREE, 0, sizeof *f);
	if (!f)
		return;
	f->id = id;
	f->spare = 0;
	hf_tap_end();
}

/* Forgets the versions from *at on; whoever was told of them is told that they are gone. */
static void forget(struct graph *g, struct version **at)
{
	struct version *v = *at;
	*at = NULL;
	while (v) {
		struct version *next = v->next;
		if (hf_tapped && g->epoch == hf_tap_epoch)
			tell_free(v->id);
		for (size_t i = 0; i < g->n; i++)
			let_go(v->c[i]);
		free(v);
		v = next;
	}
	if (!g->versions)
		g->differ = 0;
}

static void clear(struct graph *g)
{
	forget(g, &g->versions);
	for (size_t i = 0; i < g->n; i++)
		let_go(g->now[i]);
	g->n = g->m = g->hint = 0;
	g->nodes = 0;
}

static bool grow(struct graph *g, size_t room)
{
	struct content **now = realloc(g->now, room * sizeof *now);
	g->now = now ? now : g->now;
	void **node = now ? realloc(g->node, room * sizeof *node) : NULL;
	g->node = node ? node : g->node;
	void **top = node ? realloc(g->top, room * sizeof *top) : NULL;
	g->top = top ? top : g->top;
	return top;
}

/* Takes c, which may be NULL: then the graph is incomplete. */
static void add(struct graph *g, void *node, void *top, struct content *c)
{
	if (g->n == g->room && g->n < MOST) {
		size_t room = g->room ? 2 * g->room : 16;
		if (grow(g, room))
			g->room = room;
	}
	if (!c || g->n >= g->room) {
		let_go(c);
		g->incomplete = true;
		return;
	}
	g->incomplete |= c->updatable;
	g->now[g->n] = c;
	g->node[g->n] = node;
	g->top[g->n++] = top;
}

/* Node i does c now. Takes c, which may be NULL as above. */
static void set(struct graph *g, size_t i, struct content *c)
{
	if (!c) {
		g->incomplete = true;
		return;
	}
	g->incomplete |= c->updatable;
	struct content *same = equal(c, g->now[i]) ? g->now[i] : NULL;
	for (struct version *v = g->versions; v && !same; v = v->next)
		if (equal(c, v->c[i]))
			same = v->c[i];
	if (same) {
		same->refs++;
		let_go(c);
		c = same;
	}
	if (g->versions) {
		const struct content *last = g->versions->c[i];
		g->differ += (size_t)(c != last) - (size_t)(g->now[i] != last);
	}
	let_go(g->now[i]);
	g->now[i] = c;
}

/* ---- nodes ---- */

static int attribute(void *node, int id, void *value)
{
	memset(value, 0, 64);
	return hf_have(HF_SYM_cuGraphKernelNodeGetAttribute) &&
		real_cuGraphKernelNodeGetAttribute(node, id, value) == CUDA_SUCCESS ? *(int *)value : 0;
}

/*
 * was: what the node did, if it is changed. While its kernel stays, so do its attributes: nothing
 * sets those of an executable graph.
 */
static struct content *kernel_content(void *node, const struct kernel_node *p, bool v2, const struct content *was)
{
	struct hf_kernel *k = p->function ? hf_kernel(p->function) : v2 && p->kernel ? hf_kernel(p->kernel) : NULL;
	struct hf_dims d = { { p->grid[0], p->grid[1], p->grid[2] }, { p->block[0], p->block[1], p->block[2] },
		{ 1, 1, 1 } };
	bool known = false, updatable = false;
	size_t n = k ? hf_pack(k, p->params, p->extra, NULL, &known) : 0;
	uint32_t value[16], flags = known ? 0 : HF_REC_NOPARAMS_FLAG;
	const struct hf_rec_launch *w = was ? (const void *)was->record : NULL;
	if (w && k && was->k == k && w->type == HF_REC_LAUNCH) {
		flags |= w->flags & (HF_REC_COOPERATIVE_FLAG | HF_REC_PROGRAMMATIC_FLAG);
		memcpy(d.cluster, w->cluster, sizeof d.cluster);
		updatable = was->updatable;
	} else {
		if (attribute(node, COOPERATIVE, value))
			flags |= HF_REC_COOPERATIVE_FLAG;
		if (attribute(node, STREAM_SERIALIZATION, value))
			flags |= HF_REC_PROGRAMMATIC_FLAG;
		if (attribute(node, CLUSTER, value))
			memcpy(d.cluster, value, sizeof d.cluster);
		updatable = attribute(node, DEVICE_UPDATABLE, value);
	}
	struct content *c = content(k, HF_REC_LAUNCH, flags, sizeof(struct hf_rec_launch) + n);
	if (c) {
		c->updatable = updatable;
		hf_put_launch((struct hf_rec_launch *)c->record, k, &d, p->shared, p->params, p->extra);
	}
	return c;
}

static struct content *memcpy_content(const void *params)
{
	struct hf_rec_copy from;
	hf_put_copy3d(&from, params);
	struct content *c = content(NULL, HF_REC_COPY, from.flags, sizeof from);
	if (c) {
		struct hf_rec_copy *r = (struct hf_rec_copy *)c->record;
		size_t head = offsetof(struct hf_rec_copy, call);
		memcpy((char *)r + head, (char *)&from + head, sizeof from - head);
		r->call = CALL_MEMCPY;
	}
	return c;
}

static struct content *memset_content(const struct memset_node *p)
{
	struct content *c = content(NULL, HF_REC_COPY, HF_REC_SET_FLAG, sizeof(struct hf_rec_copy));
	if (c) {
		struct hf_rec_copy *r = (struct hf_rec_copy *)c->record;
		r->call = CALL_MEMSET;
		r->dst = p->dst;
		r->dst_pitch = p->pitch;
		r->src = p->value;
		r->src_pitch = p->element;
		r->width = p->width * p->element;
		r->height = p->height;
		r->depth = 1;
	}
	return c;
}

static struct content *other_content(void)
{
	struct content *c = content(NULL, HF_REC_OTHER, 0, sizeof(struct hf_rec_other));
	if (c)
		((struct hf_rec_other *)c->record)->call = CALL_NODE;
	return c;
}

static bool kernel_params(void *node, struct kernel_node *p, bool *v2)
{
	memset(p, 0, sizeof *p);
	*v2 = hf_have(HF_SYM_cuGraphKernelNodeGetParams_v2);
	return (*v2 ? real_cuGraphKernelNodeGetParams_v2(node, p) : real_cuGraphKernelNodeGetParams(node, p)) ==
		CUDA_SUCCESS;
}

/* ---- order ---- */

struct named { void *node; uint32_t index; };

static int by_node(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	return x->node < y->node ? -1 : x->node > y->node;
}

static uint32_t index_in(const struct named *names, size_t n, void *node)
{
	struct named key = { node, 0 };
	const struct named *found = bsearch(&key, names, n, sizeof *names, by_node);
	return found ? found->index : UINT32_MAX;
}

static bool get_edges(void *graph, void ***from, void ***to, size_t *m)
{
	bool v2 = hf_have(HF_SYM_cuGraphGetEdges_v2); /* the first one fails where edges have properties */
	for (int pass = 0; pass < 2; pass++) {
		CUresult r = v2 ? real_cuGraphGetEdges_v2(graph, *from, *to, NULL, m) :
			real_cuGraphGetEdges(graph, *from, *to, m);
		if (v2 && r != CUDA_SUCCESS) {
			uint64_t *data = pass ? calloc(*m + 1, 8) : NULL; /* CUgraphEdgeData */
			r = real_cuGraphGetEdges_v2(graph, *from, *to, data, m);
			free(data);
		}
		if (r != CUDA_SUCCESS)
			return false;
		if (!*m)
			return true; /* libcuda calls it an error to be asked for none */
		if (pass == 0 && (*m > MOST || !(*from = calloc(*m + 1, sizeof **from)) ||
				  !(*to = calloc(*m + 1, sizeof **to))))
			return false;
	}
	return true;
}

static int by_places(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;
	return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->to < y->to ? -1 : x->to > y->to;
}

/*
 * The edges between n nodes, by their places in nodes. One that lets a kernel begin before another ends is taken for
 * a whole one, which is stronger. NULL: they are not known.
 */
static struct edge *edges_between(void *graph, void **nodes, size_t n, size_t *m)
{
	void **from = NULL, **to = NULL;
	struct named *names = calloc(n, sizeof *names);
	bool ok = names && get_edges(graph, &from, &to, m);
	struct edge *edges = ok ? calloc(*m + 1, sizeof *edges) : NULL;
	for (size_t i = 0; edges && i < n; i++)
		names[i] = (struct named){ nodes[i], (uint32_t)i };
	if (edges)
		qsort(names, n, sizeof *names, by_node);
	for (size_t e = 0; ok && edges && e < *m; e++) {
		edges[e] = (struct edge){ index_in(names, n, from[e]), index_in(names, n, to[e]) };
		ok = edges[e].from != UINT32_MAX && edges[e].to != UINT32_MAX;
	}
	free(names);
	free(from);
	free(to);
	if (!ok) {
		free(edges);
		return NULL;
	}
	return edges;
}

/* Where each of n nodes comes in an order in which they may run. False: there is none, or no memory. */
static bool places_of(struct edge *edges, size_t m, size_t n, uint32_t *place)
{
	size_t done = 0, first = 0;
	uint32_t *waits = calloc(n, sizeof *waits), *ready = calloc(n, sizeof *ready);
	uint32_t *begin = calloc(n + 1, sizeof *begin); /* where the edges from a node begin */
	if (waits && ready && begin) {
		qsort(edges, m, sizeof *edges, by_places);
		for (size_t e = 0; e < m; e++) {
			waits[edges[e].to]++;
			begin[edges[e].from + 1]++;
		}
		for (size_t i = 0; i < n; i++) {
			begin[i + 1] += begin[i];
			if (!waits[i])
				ready[done++] = (uint32_t)i;
		}
		for (; first < done; first++) {
			uint32_t i = ready[first];
			place[i] = (uint32_t)first;
			for (uint32_t e = begin[i]; e < begin[i + 1]; e++)
				if (!--waits[edges[e].to])
					ready[done++] = edges[e].to;
		}
	}
	free(waits);
	free(ready);
	free(begin);
	return done == n;
}

/*
 * For who records a range: puts nodes into an order in which they may run; the driver gives them in any. Theirs is
 * kept if it is one: programs change nodes in the order in which they made them. The result is the edges between
 * them; NULL: they are not known.
 */
static struct edge *in_order(void *graph, void **nodes, size_t n, size_t *m)
{
	bool ordered = true;
	struct edge *edges = edges_between(graph, nodes, n, m);
	for (size_t e = 0; edges && e < *m; e++)
		ordered &= edges[e].from < edges[e].to;
	if (!edges || ordered)
		return edges;
	uint32_t *place = calloc(n, sizeof *place);
	void **out = calloc(n, sizeof *out);
	bool ok = place && out && places_of(edges, *m, n, place);
	for (size_t i = 0; ok && i < n; i++)
		out[place[i]] = nodes[i];
	for (size_t e = 0; ok && e < *m; e++)
		edges[e] = (struct edge){ place[edges[e].from], place[edges[e].to] };
	if (ok)
		memcpy(nodes, out, n * sizeof *nodes);
	free(place);
	free(out);
	if (!ok) {
		free(edges);
		return NULL;
	}
	return edges;
}

static void add_edge(struct graph *g, size_t from, size_t to)
{
	if (g->m == g->edge_room) {
		size_t room = g->edge_room ? 2 * g->edge_room : 16;
		struct edge *edges = room <= MOST_EDGES ? realloc(g->edges, room * sizeof *edges) : NULL;
		if (!edges) {
			g->incomplete = true;
			return;
		}
		g->edges = edges;
		g->edge_room = room;
	}
	g->edges[g->m++] = (struct edge){ (uint32_t)from, (uint32_t)to };
}

/* What only orders others is a node, too: a closure over it would be as many edges as it has pairs of neighbours. */
static size_t joint(struct graph *g, void *top)
{
	struct content *c = content(NULL, HF_REC_OTHER, HF_REC_JOINT_FLAG, sizeof(struct hf_rec_other));
	if (c)
		((struct hf_rec_other *)c->record)->call = CALL_NODE;
	size_t at = g->n;
	add(g, NULL, top, c);
	return at;
}

/* The nodes between two joints, whose edges are those from number m on, come after the first and before the second. */
static void enclose(struct graph *g, size_t first, size_t last, size_t m)
{
	enum { HAS_BEFORE = 1, HAS_AFTER = 2 };
	uint8_t *has = g->incomplete ? NULL : calloc(last - first, 1);
	if (!has) {
		g->incomplete = true;
		return;
	}
	for (; m < g->m; m++) {
		has[g->edges[m].to - first] |= HAS_BEFORE;
		has[g->edges[m].from - first] |= HAS_AFTER;
	}
	if (last == first + 1)
		add_edge(g, first, last);
	for (size_t i = first + 1; i < last; i++) {
		if (!(has[i - first] & HAS_BEFORE))
			add_edge(g, first, i);
		if (!(has[i - first] & HAS_AFTER))
			add_edge(g, i, last);
	}
	free(has);
}

static void walk(struct graph *g, void *graph, void *top, int depth);

/* A child graph's nodes stand where its own node would, within a pair of joints if a range is recorded. */
static void walk_child(struct graph *g, void *node, void *top, int depth)
{
	void *child, *inner = top ? top : node;
	if (real_cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) {
		g->incomplete = true;
		return;
	}
	if (!hf_range_wanted()) {
		walk(g, child, inner, depth);
		return;
	}
	size_t m = g->m, first = joint(g, top);
	walk(g, child, inner, depth);
	enclose(g, first, joint(g, top), m);
}

static void add_node(struct graph *g, void *node, void *top, int depth)
{
	int type = -1;
	bool v2;
	struct kernel_node kernel;
	struct memset_node set;
	uint64_t copy[32]; /* more than CUDA_MEMCPY3D has */
	real_cuGraphNodeGetType(node, &type);
	switch (type) {
	case KERNEL:
		add(g, node, top,
			kernel_params(node, &kernel, &v2) ? kernel_content(node, &kernel, v2, NULL) : other_content());
		break;
	case MEMCPY:
		add(g, node, top,
			real_cuGraphMemcpyNodeGetParams(node, copy) == CUDA_SUCCESS ? memcpy_content(copy) : other_content());
		break;
	case MEMSET:
		add(g, node, top,
			real_cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS ? memset_content(&set) : other_content());
		break;
	case CHILD:
		walk_child(g, node, top, depth + 1);
		break;
	case HOST: case WAIT_EVENT: case RECORD_EVENT: case SIGNAL: case WAIT: case ALLOC: case FREE:
		if (hf_range_wanted()) /* a recording has to refuse it */
			add(g, node, top, other_content());
		break;
	case EMPTY:
		if (hf_range_wanted())
			joint(g, top);
		break;
	default: /* batched memory operations, conditions, what is yet to come */
		add(g, node, top, other_content());
	}
}

static void walk(struct graph *g, void *graph, void *top, int depth)
{
	size_t n = 0, m = 0;
	void **nodes = NULL;
	if (depth == DEEPEST || real_cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n > MOST ||
	    (n && !(nodes = calloc(n, sizeof *nodes))) ||
	    (n && real_cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS)) {
		g->incomplete = true;
		free(nodes);
		return;
	}
	g->nodes += (uint32_t)n;
	bool ordered = n && hf_range_wanted();
	struct edge *edges = ordered ? in_order(graph, nodes, n, &m) : NULL;
	struct edge *at = edges ? calloc(n, sizeof *at) : NULL; /* where a node begins and ends in g */
	for (size_t i = 0; i < n; i++) {
		size_t first = g->n;
		add_node(g, nodes[i], top, depth);
		if (at)
			at[i] = (struct edge){ (uint32_t)first, (uint32_t)g->n - 1 };
	}
	g->incomplete |= ordered && !at;
	for (size_t e = 0; at && !g->incomplete && e < m; e++)
		add_edge(g, at[edges[e].from].to, at[edges[e].to].from);
	free(at);
	free(edges);
	free(nodes);
}

/* Graphs that are alike have the same list of edges. */
static void walk_all(struct graph *g, void *graph, void *top, int depth)
{
	walk(g, graph, top, depth);
	if (g->m)
		qsort(g->edges, g->m, sizeof *g->edges, by_places);
}

/* ---- telling ---- */

static bool tell_node(const struct content *c, uint32_t id, size_t i)
{
	uint64_t head = c->record[0];
	size_t size = size_of(c);
	struct hf_rec_launch *to = hf_tap_begin(head >> 32 & 0xffff, (uint32_t)(head >> 48), size);
	if (!to)
		return false;
	memcpy((uint8_t *)to + 8, c->record + 1, size - 8);
	/* These stand at the same place in all that can be a node. */
	_Static_assert(offsetof(struct hf_rec_launch, cell) == offsetof(struct hf_rec_copy, cell) &&
		offsetof(struct hf_rec_launch, cell) == offsetof(struct hf_rec_other, cell), "cell");
	_Static_assert(offsetof(struct hf_rec_launch, thread) == offsetof(struct hf_rec_copy, thread) &&
		offsetof(struct hf_rec_launch, thread) == offsetof(struct hf_rec_other, thread), "thread");
	to->cell = id;
	to->thread = (uint32_t)i;
	hf_tap_end();
	return true;
}

/* Tells which nodes come after which, once all of them were told. */
static bool tell_edges(const struct graph *g, uint32_t id)
{
	enum { PIECE = (HF_MAX_RECORD - sizeof(struct hf_rec_graph_edges)) / sizeof(struct edge) };
	size_t at = 0;
	do {
		size_t n = g->m - at < PIECE ? g->m - at : PIECE;
		struct hf_rec_graph_edges *r = hf_tap_begin(HF_REC_GRAPH_EDGES, 0, sizeof *r + n * sizeof(struct edge));
		if (!r)
			return false;
		r->id = id;
		r->edges = (uint32_t)n;
		if (n)
			memcpy(r + 1, g->edges + at, n * sizeof(struct edge));
		hf_tap_end();
		at += n;
	} while (at < g->m);
	return true;
}

/*
 * Tells the tap what g is now, as version id: all of it, or only what differs from base. False: the tap changed
 * meanwhile, so that no tap got all of it.
 */
static bool tell_as(const struct graph *g, uint32_t id, const struct version *base)
{
	uint32_t epoch = hf_tap_epoch, flags = g->incomplete ? HF_REC_INCOMPLETE_FLAG : 0;
	for (size_t i = 0; i < g->n; i++)
		if (g->now[i]->k && (!base || base->c[i] != g->now[i]))
			hf_kernel_told(g->now[i]->k);
	if (base) {
		struct hf_rec_graph_version *r = hf_tap_begin(HF_REC_GRAPH_VERSION, flags, sizeof *r);
		if (!r)
			return false;
		r->id = id;
		r->base = base->id;
		r->handle = (uint64_t)(uintptr_t)g->exec;
		hf_tap_end();
	} else {
		struct hf_rec_graph *r = hf_tap_begin(HF_REC_GRAPH, flags, sizeof *r);
		if (!r)
			return false;
		r->id = id;
		r->nodes = g->nodes;
		r->handle = (uint64_t)(uintptr_t)g->exec;
		hf_tap_end();
	}
	for (size_t i = 0; i < g->n; i++)
		if ((!base || base->c[i] != g->now[i]) && !tell_node(g->now[i], id, i))
			return false;
	if (!base && hf_range_wanted() && !tell_edges(g, id))
		return false;
	struct hf_rec_graph_end *e = hf_tap_begin(HF_REC_GRAPH_END, 0, sizeof *e);
	if (!e)
		return false;
	e->id = id;
	e->spare = 0;
	bool one = hf_tap_epoch == epoch; /* it does not change while a record is open */
	hf_tap_end();
	return one;
}

/*
 * With the lock held: makes sure that the tap knows the graph as it is now; returns the id of that, 0: it is not known.
 */
static uint32_t tell(struct graph *g)
{
	if (!hf_tapped)
		return 0;
	if (last_id == UINT32_MAX) { /* a tap must not take one version for another */
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct graph *h = graphs[i]; h; h = h->next)
				forget(h, &h->versions);
		last_id = 0;
	}
	if (g->epoch != hf_tap_epoch) { /* this tap knows nothing yet */
		forget(g, &g->versions);
		g->epoch = hf_tap_epoch;
	}
	struct version *latest = g->versions;
	if (latest && !g->differ && latest->incomplete == g->incomplete)
		return latest->id;
	size_t kept = 0;
	struct version **last = NULL;
	for (struct version **at = &g->versions, *v; (v = *at); at = &v->next, kept++) {
		last = at;
		if (v->incomplete != g->incomplete || memcmp(v->c, g->now, g->n * sizeof *v->c))
			continue;
		*at = v->next;
		v->next = g->versions;
		g->versions = v;
		g->differ = 0;
		return v->id;
	}
	struct version *v = malloc(sizeof *v + g->n * sizeof *v->c);
	if (!v)
		return 0;
	v->id = ++last_id;
	v->incomplete = g->incomplete;
	/* A version that is told by its difference from an incomplete one is incomplete as well. */
	if (!tell_as(g, v->id, latest && latest->incomplete && !g->incomplete ? NULL : latest)) {
		free(v);
		return 0;
	}
	for (size_t i = 0; i < g->n; i++) {
		v->c[i] = g->now[i];
		v->c[i]->refs++;
	}
	if (kept >= most_versions(g))
		forget(g, last);
	v->next = g->versions;
	g->versions = v;
	g->differ = 0;
	return v->id;
}

/* ---- changes ---- */

static void let_go_of_lists(struct graph *g)
{
	free(g->now);
	free(g->node);
	free(g->top);
	free(g->edges);
}

static void destroy(struct graph *g)
{
	clear(g);
	let_go_of_lists(g);
	free(g);
}

/* Whether the edges between the nodes of g from place at on are those of fresh, which is as long. */
static bool same_edges(const struct graph *g, size_t at, const struct graph *fresh)
{
	size_t k = 0;
	for (size_t i = 0; i < g->m; i++) {
		struct edge e = g->edges[i];
		if (e.from < at || e.to >= at + fresh->n)
			continue;
		if (k == fresh->m || fresh->edges[k].from != e.from - at || fresh->edges[k].to != e.to - at)
			return false;
		k++;
	}
	return k == fresh->m;
}

/* Moves the nodes of fresh into g. The versions of g stay if it has as many nodes, and the same edges. */
static void take(struct graph *g, struct graph *fresh)
{
	if (fresh->n != g->n || !same_edges(g, 0, fresh)) {
		clear(g);
		struct graph kept = *g;
		g->now = fresh->now, g->node = fresh->node, g->top = fresh->top, g->n = fresh->n, g->room = fresh->room;
		fresh->now = kept.now, fresh->node = kept.node, fresh->top = kept.top, fresh->n = 0, fresh->room = kept.room;
		g->edges = fresh->edges, g->m = fresh->m, g->edge_room = fresh->edge_room;
		fresh->edges = kept.edges, fresh->m = 0, fresh->edge_room = kept.edge_room;
	} else {
		for (size_t i = 0; i < g->n; i++) {
			set(g, i, fresh->now[i]);
			g->node[i] = fresh->node[i];
			g->top[i] = fresh->top[i];
		}
		fresh->n = 0;
	}
	g->nodes = fresh->nodes;
	g->incomplete = fresh->incomplete || g->device;
}

static void changed(void *exec, void *node, int type, const void *params);

/* exec was made from graph: instantiated, or (update) given the parameters of graph. */
static CUresult made(CUresult r, void *exec, void *graph, bool device, bool update)
{
	if (r != CUDA_SUCCESS && update)
		changed(exec, NULL, 0, NULL); /* some nodes may have been updated before the one that could not be */
	if (r != CUDA_SUCCESS || !hf_watching())
		return r;
	pthread_mutex_lock(&lock);
	struct graph **at = place(exec), *g = *at, *fresh = calloc(1, sizeof *fresh);
	if (g && (!update || !fresh)) { /* its end was not seen */
		*at = g->next;
		destroy(g);
		g = NULL;
	}
	if (fresh) {
		fresh->exec = exec;
		walk_all(fresh, graph, NULL, 0);
		if (g) {
			take(g, fresh);
			destroy(fresh);
		} else {
			fresh->device = device;
			fresh->incomplete |= device;
			fresh->next = *(at = place(exec));
			*at = fresh;
		}
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* The index of a node of g, g->n: there is none. Programs change nodes in order. */
static size_t index_of(struct graph *g, void *node)
{
	for (size_t i = 0, at = g->hint; node && i < g->n; i++, at++) {
		at = at < g->n ? at : 0;
		if (g->node[at] == node) {
			g->hint = at + 1;
			return at;
		}
	}
	return g->n;
}

/* One node of exec was changed, or (no node given) nothing is sure any more. */
static void changed(void *exec, void *node, int type, const void *params)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec);
	size_t i = g ? index_of(g, node) : 0;
	if (g && i < g->n)
		set(g, i, type == KERNEL ? kernel_content(node, params, true, g->now[i]) :
			type == MEMCPY ? memcpy_content(params) : memset_content(params));
	else if (g)
		g->incomplete = true;
	pthread_mutex_unlock(&lock);
}

/* A child graph of exec was changed: its nodes stand one behind the other. */
static void changed_child(void *exec, void *node, void *child)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec), fresh = { 0 };
	if (g)
		walk_all(&fresh, child, node, 1);
	size_t i = 0, n = 0;
	while (g && i < g->n && g->top[i] != node)
		i++;
	while (g && i + n < g->n && g->top[i + n] == node)
		n++;
	if (g && n && n == fresh.n && !fresh.incomplete && same_edges(g, i, &fresh)) {
		for (size_t k = 0; k < n; k++)
			set(g, i + k, fresh.now[k]);
		fresh.n = 0;
	} else if (g)
		g->incomplete = true;
	clear(&fresh);
	let_go_of_lists(&fresh);
	pthread_mutex_unlock(&lock);
}

/* ---- the program's calls ---- */

CUresult hf_cuGraphInstantiate(void *exec, void *graph, void *error, void *log, size_t size)
{
	CUresult r = real_cuGraphInstantiate(exec, graph, error, log, size);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, false, false) : r;
}

CUresult hf_cuGraphInstantiate_v2(void *exec, void *graph, void *error, void *log, size_t size)
{
	CUresult r = real_cuGraphInstantiate_v2(exec, graph, error, log, size);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, false, false) : r;
}

CUresult hf_cuGraphInstantiateWithFlags(void *exec, void *graph, unsigned long long flags)
{
	CUresult r = real_cuGraphInstantiateWithFlags(exec, graph, flags);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, flags & DEVICE_LAUNCH, false) : r;
}

CUresult hf_cuGraphInstantiateWithParams(void *exec, void *graph, void *params)
{
	CUresult r = real_cuGraphInstantiateWithParams(exec, graph, params);
	return r == CUDA_SUCCESS ? made(r, *(void **)exec, graph, *(uint64_t *)params & DEVICE_LAUNCH, false) : r;
}

CUresult hf_cuGraphExecUpdate(void *exec, void *graph, void *node, void *result)
{
	return made(real_cuGraphExecUpdate(exec, graph, node, result), exec, graph, false, true);
}

CUresult hf_cuGraphExecUpdate_v2(void *exec, void *graph, void *info)
{
	return made(real_cuGraphExecUpdate_v2(exec, graph, info), exec, graph, false, true);
}

CUresult hf_cuGraphExecKernelNodeSetParams(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecKernelNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS) {
		struct kernel_node p = { 0 };
		memcpy(&p, params, offsetof(struct kernel_node, kernel));
		changed(exec, node, KERNEL, &p);
	}
	return r;
}

CUresult hf_cuGraphExecKernelNodeSetParams_v2(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecKernelNodeSetParams_v2(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, node, KERNEL, params);
	return r;
}

CUresult hf_cuGraphExecMemcpyNodeSetParams(void *exec, void *node, void *params, void *ctx)
{
	CUresult r = real_cuGraphExecMemcpyNodeSetParams(exec, node, params, ctx);
	if (r == CUDA_SUCCESS)
		changed(exec, node, MEMCPY, params);
	return r;
}

CUresult hf_cuGraphExecMemsetNodeSetParams(void *exec, void *node, void *params, void *ctx)
{
	CUresult r = real_cuGraphExecMemsetNodeSetParams(exec, node, params, ctx);
	if (r == CUDA_SUCCESS)
		changed(exec, node, MEMSET, params);
	return r;
}

CUresult 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(void *exec, void *node, void *child)
{
	CUresult r = real_cuGraphExecChildGraphNodeSetParams(exec, node, child);
	if (r == CUDA_SUCCESS)
		changed_child(exec, node, child);
	return r;
}

CUresult 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(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecBatchMemOpNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, NULL, 0, NULL);
	return r;
}

CUresult hf_cuGraphExecNodeSetParams(void *exec, void *node, void *params)
{
	CUresult r = real_cuGraphExecNodeSetParams(exec, node, params);
	if (r == CUDA_SUCCESS)
		changed(exec, NULL, 0, NULL);
	return r;
}

CUresult hf_cuGraphExecDestroy(void *exec)
{
	pthread_mutex_lock(&lock);
	struct graph **at = place(exec), *g = *at;
	if (g) {
		*at = g->next;
		destroy(g);
	}
	pthread_mutex_unlock(&lock);
	return real_cuGraphExecDestroy(exec);
}

/* ---- launches ---- */

/* A range is recorded: what the copies of the graph take from the host. */
static void host_data(void *exec)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec);
	for (size_t i = 0; g && i < g->n; i++) {
		const struct hf_rec_copy *c = (const void *)g->now[i]->record;
		if (c->type == HF_REC_COPY && !(c->flags & (HF_REC_SET_FLAG | HF_REC_SRCARRAY_FLAG | HF_REC_DSTHOST_FLAG)) &&
		    (c->flags & HF_REC_SRCHOST_FLAG || hf_range_on_host(c->src)) && !hf_range_on_host(c->dst))
			hf_range_host_data((const void *)(uintptr_t)c->src, c->src_pitch, c->src_slice, c->width, c->height,
				c->depth);
	}
	pthread_mutex_unlock(&lock);
}

void hf_work_graph(void *exec, void *stream)
{
	pthread_mutex_lock(&lock);
	struct graph *g = *place(exec);
	uint32_t id = g ? tell(g) : 0;
	pthread_mutex_unlock(&lock);
	bool captured = hf_stream_captures(stream);
	if (HF_UNLIKELY(hf_range_open) && !captured)
		host_data(exec);
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
