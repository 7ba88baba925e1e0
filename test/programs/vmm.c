/* Virtual memory management: reserve, create, map, access; the same physical memory twice; exported to another process
 * and back. */
#include "test.h"

#include <fcntl.h>

static size_t granularity(CUmemAllocationProp *prop)
{
	*prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	size_t g;
	CU(cuMemGetAllocationGranularity(&g, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(g > 0 && (g & (g - 1)) == 0);
	return g;
}

static CUmemAccessDesc access_of(unsigned flags) { return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags}; }

/* The other process: gets memory, checks and changes it, gives it back. */
static int peer(int socket)
{
	start(NULL);
	CUmemAllocationProp prop;
	size_t g = granularity(&prop);
	CUdeviceptr p;
	CUmemGenericAllocationHandle h;
	int fd = receive_fd(socket);
	CU(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemAddressReserve(&p, 2 * g, 0, 0, 0));
	CU(cuMemMap(p, 2 * g, 0, h, 0));
	CUmemAccessDesc rw = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemSetAccess(p, 2 * g, &rw, 1));
	CU(cuMemRelease(h)); /* the mapping keeps it */
	check_words(p, 1000, 500, "in the peer");
	fill(function(load(), "fill"), p + g, 1000, 700, NULL);
	CU(cuCtxSynchronize());
	tell(socket);
	await(socket); /* the creator has let go of everything */
	check_words(p + g, 1000, 700, "in the peer, orphaned");
	CU(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemRelease(h));
	send_fd(socket, fd);
	await(socket);
	CU(cuMemUnmap(p, 2 * g));
	CU(cuMemAddressFree(p, 2 * g));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return peer(atoi(argv[1]));
	int pair[2];
	char number[16];
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK(fcntl(pair[1], F_SETFD, 0) == 0); /* only this end goes to the child: it sees when we end */
	snprintf(number, sizeof number, "%d", pair[1]);
	pid_t pid = again((char *[]){argv[0], number, NULL});
	close(pair[1]);

	CUcontext ctx = start(NULL);
	CUmemAllocationProp prop, same;
	size_t g = granularity(&prop);
	CUfunction f_fill = function(load(), "fill");
	CUdeviceptr p, q;
	CUmemGenericAllocationHandle h, retained;
	unsigned long long flags;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, g / 2, &prop, 0));
	CU(cuMemCreate(&h, 2 * g, &prop, 0));
	CU(cuMemGetAllocationPropertiesFromHandle(&same, h));
	CHECK(same.type == prop.type && same.location.id == 0);
	CU(cuMemAddressReserve(&p, 4 * g, 0, 0, 0));
	CU(cuMemAddressReserve(&q, 2 * g, g, 0, 0));
	CHECK(p % g == 0 && q % g == 0);
	CU(cuMemMap(p, 2 * g, 0, h, 0));
	CU(cuMemMap(q, 2 * g, 0, h, 0)); /* an alias */
	CHECK(cuMemMap(p, 2 * g, 0, h, 0) != CUDA_SUCCESS); /* already mapped */
	CUmemAccessDesc rw = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemSetAccess(p, 2 * g, &rw, 1));
	CU(cuMemSetAccess(q, 2 * g, &rw, 1));
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CU(cuMemGetAccess(&flags, &here, p));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)p));
	CU(cuMemRelease(retained));
	fill(f_fill, p, 1000, 500, NULL);
	CU(cuCtxSynchronize());
	check_words(q, 1000, 500, "alias");

	int fd, back;
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(pair[0], fd);
	close(fd);
	await(pair[0]);
	check_words(p + g, 1000, 700, "from the peer");
	CU(cuMemUnmap(p, 2 * g));
	CU(cuMemUnmap(q, 2 * g));
	CU(cuMemRelease(h));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(h));
	tell(pair[0]);
	back = receive_fd(pair[0]);
	CU(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)back, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(back);
	CU(cuMemMap(p + 2 * g, 2 * g, 0, h, 0));
	CU(cuMemSetAccess(p + 2 * g, 2 * g, &rw, 1));
	check_words(p + 2 * g, 1000, 500, "taken back");
	check_words(p + 3 * g, 1000, 700, "taken back");
	tell(pair[0]);
	reap(pid);
	check_words(p + 2 * g, 1000, 500, "after the peer");
	CU(cuMemUnmap(p + 2 * g, 2 * g));
	CU(cuMemRelease(h));
	CU(cuMemAddressFree(p, 4 * g));
	CU(cuMemAddressFree(q, 2 * g));
	CU(cuCtxDestroy_v2(ctx));
	return finish("vmm");
}
