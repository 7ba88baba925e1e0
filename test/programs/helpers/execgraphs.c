/* Executable graphs that are changed, driven by lines; answers one line each, whose first number is 0. Nodes 0-3 are
 * kernels on an address, node 4 a memset, node 5 a child graph with two kernels on one address. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ptr;
struct kernel { void *f; unsigned grid[3], block[3], shared; void **params; void **extra; void *kern, *ctx; };
struct set { ptr dst; size_t pitch; unsigned value, element; size_t width, height; };
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *),
	cuMemAlloc_v2(ptr *, size_t),
	cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *),
	cuStreamCreate(void **, unsigned),
	cuStreamSynchronize(void *), cuGraphCreate(void **, unsigned), cuGraphDestroy(void *),
	cuGraphAddKernelNode_v2(void **, void *, const void *, size_t, const struct kernel *),
	cuGraphKernelNodeSetParams_v2(void *, const struct kernel *),
	cuGraphAddMemsetNode(void **, void *, const void *, size_t, const struct set *, void *),
	cuGraphAddChildGraphNode(void **, void *, const void *, size_t, void *),
	cuGraphInstantiateWithFlags(void **, void *, unsigned long long),
	cuGraphExecKernelNodeSetParams_v2(void *, void *, const struct kernel *),
	cuGraphExecMemsetNodeSetParams(void *, void *, const struct set *, void *),
	cuGraphExecChildGraphNodeSetParams(void *, void *, void *), cuGraphExecUpdate_v2(void *, void *, void *),
	cuGraphLaunch(void *, void *),
	cuGraphExecDestroy(void *), cuGraphMemsetNodeSetParams(void *, const struct set *);

static const char inc[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
	".visible .entry inc(.param .u64 p)\n{\n.reg .u64 %a, %v;\nld.param.u64 %a, [p];\nld.global.u64 %v, [%a];\n"
	"add.u64 %v, %v, 1;\nst.global.u64 [%a], %v;\nret;\n}\n";
static void *ctx, *kernel, *stream, *graph, *node[6], *exec;
static ptr at, *list[1];

static struct kernel on(ptr *p)
{
	list[0] = p;
	return (struct kernel){ .f = kernel, .grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .params = (void **)list };
}

static struct set set(ptr p) { return (struct set){ .dst = p, .element = 1, .width = 8, .height = 1 }; }

static int child(void **g, ptr p)
{
	void *n[2];
	struct kernel k = on(&p);
	int r = cuGraphCreate(g, 0);
	r = r ? r : cuGraphAddKernelNode_v2(&n[0], *g, NULL, 0, &k);
	return r ? r : cuGraphAddKernelNode_v2(&n[1], *g, &n[0], 1, &k);
}

/* A graph of the same shape whose kernels, memset and child are on p. */
static int shape(void **g, void **n, ptr p)
{
	void *inner;
	struct kernel k = on(&p);
	struct set s = set(p);
	int r = cuGraphCreate(g, 0);
	for (int i = 0; i < 4 && !r; i++)
		r = cuGraphAddKernelNode_v2(&n[i], *g, &n[i - 1], i > 0, &k);
	r = r ? r : cuGraphAddMemsetNode(&n[4], *g, &n[3], 1, &s, ctx);
	r = r ? r : child(&inner, p);
	r = r ? r : cuGraphAddChildGraphNode(&n[5], *g, &n[4], 1, inner);
	return r ? r : cuGraphDestroy(inner);
}

int main(void)
{
	char line[256], word[64];
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		ptr a = 0, b = 0;
		int r = 0;
		void *m, *g, *n[6];
		char info[64];
		sscanf(line, "%63s %llu %llu", word, &a, &b);
		struct kernel k = on(&b);
		struct set s = set(a);
		if (!strcmp(word, "init")) {
			r = cuInit(0);
			r = r ? r : cuDevicePrimaryCtxRetain(&ctx, 0);
			r = r ? r : cuCtxSetCurrent(ctx);
			r = r ? r : cuMemAlloc_v2(&at, 4096);
			r = r ? r : cuModuleLoadData(&m, inc);
			r = r ? r : cuModuleGetFunction(&kernel, m, "inc");
			r = r ? r : cuStreamCreate(&stream, 1);
			r = r ? r : shape(&graph, node, at);
			printf("%d %llu\n", r, at);
			continue;
		} else if (!strcmp(word, "make")) {
			r = cuGraphInstantiateWithFlags(&exec, graph, 0);
		} else if (!strcmp(word, "kernel")) {
			r = cuGraphExecKernelNodeSetParams_v2(exec, node[a % 4], &k);
		} else if (!strcmp(word, "memset")) {
			r = cuGraphExecMemsetNodeSetParams(exec, node[4], &s, ctx);
		} else if (!strcmp(word, "child")) {
			r = child(&g, a);
			r = r ? r : cuGraphExecChildGraphNodeSetParams(exec, node[5], g);
			r = r ? r : cuGraphDestroy(g);
		} else if (!strcmp(word, "update")) {
			k = on(&a);
			for (int i = 0; i < 4 && !r; i++)
				r = cuGraphKernelNodeSetParams_v2(node[i], &k);
			r = r ? r : cuGraphMemsetNodeSetParams(node[4], &s);
			r = r ? r : cuGraphExecUpdate_v2(exec, graph, info);
		} else if (!strcmp(word, "other")) {
			r = shape(&g, n, a);
			r = r ? r : cuGraphExecUpdate_v2(exec, g, info);
			r = r ? r : cuGraphDestroy(g);
		} else if (!strcmp(word, "fail")) { /* an update by a graph of another shape */
			r = child(&g, a);
			r = r ? r : cuGraphExecUpdate_v2(exec, g, info) == 910 ? 0 : -1;
			r = r ? r : cuGraphDestroy(g);
		} else if (!strcmp(word, "launch")) {
			r = cuGraphLaunch(exec, stream);
			r = r ? r : cuStreamSynchronize(stream);
		} else if (!strcmp(word, "destroy")) {
			r = cuGraphExecDestroy(exec);
		} else if (!strcmp(word, "quit")) {
			return 0;
		} else
			r = -1;
		printf("%d\n", r < 0 ? 9999 : r);
	}
	return 0;
}
