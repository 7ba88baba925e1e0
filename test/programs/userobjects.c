/* Objects that graphs keep: the destructor runs once, after the last graph that wants it. */
#include "test.h"

#include <sched.h>
#include <time.h>

static int destroyed;
static void destroy(void *p) { __atomic_add_fetch((int *)p, 1, __ATOMIC_SEQ_CST); }
static int count(void) { return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST); }

static void expect(int n, const char *what)
{
	for (time_t end = time(NULL) + 20; count() != n; sched_yield())
		if (time(NULL) > end)
			FAIL("%s: the destructor ran %d times, want %d", what, count(), n);
}

int main(void)
{
	CUuserObject o;
	CUgraph g, clone;
	CUgraphExec e;
	CUgraphNode node;
	enum { NO_SYNC = 1, MOVE = 1 };
	start(NULL);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &destroyed, destroy, 1, 0));
	CU(cuUserObjectCreate(&o, &destroyed, destroy, 1, NO_SYNC));
	CU(cuUserObjectRetain(o, 2));
	CU(cuUserObjectRelease(o, 1));
	CU(cuUserObjectRelease(o, 2));
	expect(1, "released");
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuUserObjectRetain(o, 1));

	CU(cuUserObjectCreate(&o, &destroyed, destroy, 1, NO_SYNC));
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddEmptyNode(&node, g, NULL, 0));
	CU(cuGraphRetainUserObject(g, o, 1, MOVE));
	CU(cuGraphClone(&clone, g));
	CU(cuGraphInstantiateWithFlags(&e, g, 0));
	CU(cuGraphDestroy(g));
	CU(cuGraphReleaseUserObject(clone, o, 1));
	CU(cuGraphDestroy(clone));
	CU(cuGraphLaunch(e, NULL));
	CU(cuCtxSynchronize());
	CHECK(count() == 1);
	CU(cuGraphExecDestroy(e));
	expect(2, "the last graph is gone");
	return finish("userobjects");
}
