/* dags SEED OUT: random graphs of small works that do not commute, on an array of numbers, within an NVTX range. Those
 * that must come one after the other have a way of edges between them, through empty nodes too, and are made in any
 * order; the others have mostly none. Some works stand in child graphs. Each graph is launched a few times, and
 * changed in between. OUT gets the array. Prints how many steps all that takes if everything runs as early as it may.
 */
#include "../test.h"
#include <nvtx.h>

enum { CELLS = 24, GRAPHS = 4, NODES = 30, INNER = 5, WORKS = 1000 };
enum kind { STEP, SET, COPY, EMPTY, CHILD };

static const char code[] = HEAD /* x[dst] = (x[dst] ^ x[src]) * a + b */
	".visible .entry step(.param .u64 x, .param .u32 dst, .param .u32 src, .param .u32 a, .param .u32 b)\n{\n" REGS
	"	ld.param.u64 %d0, [x]; ld.param.u32 %r0, [dst]; ld.param.u32 %r1, [src]; ld.param.u32 %r2, [a]; "
	"ld.param.u32 %r3, [b];\n"
	"	mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d0, %d2;\n"
	"	ld.global.u32 %r4, [%d1]; ld.global.u32 %r5, [%d2]; xor.b32 %r4, %r4, %r5; mad.lo.u32 %r4, %r4, %r2, %r3; "
	"st.global.u32 [%d1], %r4;\n	ret;\n}\n";

struct work { enum kind kind; uint32_t dst, src, a, b; };
struct node {
	enum kind kind;
	CUgraphNode handle;
	struct work *work;
	CUgraph child;
	uint32_t reads, writes;   /* cells, a bit each */
	uint64_t deps, before;    /* nodes, a bit each; before: also by others */
	int level;                /* when it is complete at the earliest */
};
struct graph { struct node node[NODES]; int n, length; struct work *first; };

static CUcontext ctx;
static CUfunction step;
static CUdeviceptr x;
static uint64_t state;
static struct work works[WORKS];
static int nworks;

static uint32_t below(uint32_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

static CUDA_KERNEL_NODE_PARAMS kernel(const struct work *w, void **args)
{
	args[0] = &x, args[1] = (void *)&w->dst, args[2] = (void *)&w->src, args[3] = (void *)&w->a,
	args[4] = (void *)&w->b;
	return (CUDA_KERNEL_NODE_PARAMS){.func = step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
	                                 .blockDimY = 1, .blockDimZ = 1, .kernelParams = args};
}

static void numbers(struct work *w) { w->a = 2 * below(1u << 30) + 1, w->b = below(1u << 30); }

static void do_work(uint32_t *v, const struct work *w)
{
	v[w->dst] = w->kind == STEP ? (v[w->dst] ^ v[w->src]) * w->a + w->b : w->kind == SET ? w->a : v[w->src];
}

/* Makes the node, without edges. */
static void make(CUgraph g, struct node *n)
{
	const struct work *w = n->work;
	void *args[5];
	if (n->kind == STEP) {
		CUDA_KERNEL_NODE_PARAMS p = kernel(w, args);
		CU(cuGraphAddKernelNode_v2(&n->handle, g, NULL, 0, &p));
	} else if (n->kind == SET) {
		CUDA_MEMSET_NODE_PARAMS p = {.dst = x + 4 * w->dst, .value = w->a, .elementSize = 4, .width = 1, .height = 1};
		CU(cuGraphAddMemsetNode(&n->handle, g, NULL, 0, &p, ctx));
	} else if (n->kind == COPY) {
		CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = x + 4 * w->src,
			.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = x + 4 * w->dst,
			.WidthInBytes = 4, .Height = 1, .Depth = 1};
		CU(cuGraphAddMemcpyNode(&n->handle, g, NULL, 0, &p, ctx));
	} else if (n->kind == CHILD)
		CU(cuGraphAddChildGraphNode(&n->handle, g, NULL, 0, n->child));
	else
		CU(cuGraphAddEmptyNode(&n->handle, g, NULL, 0));
}

static void depend(struct graph *g, int j, int i)
{
	struct node *n = &g->node[j], *d = &g->node[i];
	n->deps |= 1ull << i;
	n->before |= d->before | 1ull << i;
	n->level = d->level > n->level ? d->level : n->level;
}

/* What node j comes after: all that it must not run beside, directly or by an empty node, and sometimes more. */
static void order(struct graph *g, int j)
{
	struct node *n = &g->node[j];
	for (int i = j - 1; i >= 0; i--) {
		struct node *d = &g->node[i];
		bool meets = d->writes & (n->reads | n->writes) || d->reads & n->writes;
		bool more = n->kind == EMPTY ? !below(4) : !below(60);
		if ((!meets && !more) || n->before >> i & 1)
			continue;
		for (int e = j - 1; e > i && below(2); e--)
			if (g->node[e].kind == EMPTY && g->node[e].before >> i & 1) {
				depend(g, j, e);
				break;
			}
		if (!(n->before >> i & 1) || !below(4))
			depend(g, j, i);
	}
}

static CUgraph build(struct graph *g, int n, bool inner)
{
	CUgraph made;
	int at[NODES];
	memset(g, 0, sizeof *g);
	g->n = n;
	g->first = &works[nworks];
	CU(cuGraphCreate(&made, 0));
	for (int j = 0; j < n; j++) {
		struct node *q = &g->node[j];
		int length = 1;
		uint32_t kind = below(12);
		q->kind = kind < 7 ? STEP : kind == 7 ? SET : kind == 8 ? COPY : kind < 11 || inner ? EMPTY : CHILD;
		if (q->kind == CHILD) {
			struct graph child;
			q->child = build(&child, 1 + (int)below(INNER), true);
			length = child.length;
			q->work = child.first;
			for (int i = 0; i < child.n; i++)
				q->reads |= child.node[i].reads, q->writes |= child.node[i].writes;
		} else if (q->kind == EMPTY)
			length = 0;
		else {
			q->work = &works[nworks++];
			*q->work = (struct work){.kind = q->kind, .dst = below(CELLS), .src = below(CELLS)};
			if (q->kind == COPY && q->work->src == q->work->dst)
				q->work->src = (q->work->dst + 1) % CELLS;
			numbers(q->work);
			q->writes = 1u << q->work->dst;
			q->reads = q->kind == SET ? 0 : 1u << q->work->src;
		}
		order(g, j);
		q->level += length;
		g->length = q->level > g->length ? q->level : g->length;
	}
	for (int i = 0; i < n; i++) {
		int k = (int)below((uint32_t)i + 1);
		at[i] = at[k];
		at[k] = i;
	}
	for (int i = 0; i < n; i++)
		make(made, &g->node[at[i]]);
	for (int j = 0; j < n; j++)
		for (int i = 0; i < j; i++)
			if (g->node[j].deps >> i & 1)
				CU(cuGraphAddDependencies(made, &g->node[i].handle, &g->node[j].handle, 1));
	return made;
}

/* Gives some kernels other numbers: in the executable graph, or in the graph that it is updated by, or in a child. */
static void change(struct graph *g, CUgraph graph, CUgraphExec exec, int how)
{
	CUgraphExecUpdateResultInfo info;
	void *args[5];
	for (int i = 0; i < g->n; i++) {
		struct node *n = &g->node[i];
		if (n->kind == CHILD && how == 2) {
			CUgraphNode inner[INNER];
			size_t count = INNER;
			CU(cuGraphGetNodes(n->child, inner, &count));
			for (size_t k = 0; k < count; k++) {
				CUgraphNodeType type;
				CU(cuGraphNodeGetType(inner[k], &type));
				if (type != CU_GRAPH_NODE_TYPE_KERNEL)
					continue;
				CUDA_KERNEL_NODE_PARAMS p;
				CU(cuGraphKernelNodeGetParams_v2(inner[k], &p));
				for (struct work *w = n->work; w < works + nworks; w++)
					if (w->kind == STEP && w->a == *(uint32_t *)p.kernelParams[3] &&
					    w->b == *(uint32_t *)p.kernelParams[4]) {
						numbers(w);
						p = kernel(w, args);
						CU(cuGraphKernelNodeSetParams_v2(inner[k], &p));
						break;
					}
			}
			CU(cuGraphExecChildGraphNodeSetParams(exec, n->handle, n->child));
		}
		if (n->kind != STEP || how == 2 || below(2))
			continue;
		numbers(n->work);
		CUDA_KERNEL_NODE_PARAMS p = kernel(n->work, args);
		if (how == 0)
			CU(cuGraphExecKernelNodeSetParams_v2(exec, n->handle, &p));
		else
			CU(cuGraphKernelNodeSetParams_v2(n->handle, &p));
	}
	if (how == 1)
		CU(cuGraphExecUpdate_v2(exec, graph, &info));
}

int main(int argc, char **argv)
{
	static struct graph graphs[GRAPHS];
	static CUgraph graph[GRAPHS];
	static CUgraphExec exec[GRAPHS];
	static uint32_t in[CELLS], out[CELLS];
	CUstream s;
	int length = 2;
	CHECK(argc == 3);
	state = strtoull(argv[1], NULL, 10);
	ctx = start(NULL);
	CUmodule m;
	CU(cuModuleLoadData(&m, code));
	step = function(m, "step");
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&x, sizeof in));
	int first[GRAPHS + 1] = {0};
	for (int i = 0; i < GRAPHS; i++) {
		graph[i] = build(&graphs[i], 1 + (int)below(NODES), false);
		first[i + 1] = nworks;
		CU(cuGraphInstantiateWithFlags(&exec[i], graph[i], 0));
	}
	for (int i = 0; i < CELLS; i++)
		in[i] = below(1u << 30);
	nvtxRangePushA("holdfast");
	CU(cuMemcpyHtoDAsync_v2(x, in, sizeof in, s));
	for (int i = 0; i < GRAPHS; i++)
		for (int times = 1 + (int)below(3), how = (int)below(3); times > 0; times--) {
			CU(cuGraphLaunch(exec[i], s));
			length += graphs[i].length;
			for (int w = first[i]; w < first[i + 1]; w++)
				do_work(in, &works[w]);
			if (times > 1)
				change(&graphs[i], graph[i], exec[i], how);
		}
	CU(cuMemcpyDtoHAsync_v2(out, x, sizeof out, s));
	CU(cuStreamSynchronize(s));
	nvtxRangePop();
	CHECK(!memcmp(in, out, sizeof in));
	FILE *f = fopen(argv[2], "wb");
	CHECK(f && fwrite(out, sizeof out, 1, f) == 1 && fclose(f) == 0);
	printf("%d\n", length);
	return 0;
}
