/*
 * What a forked child inherits of the driver. CUDA cannot be used there (the driver says so itself), but the device
 * files stay mapped and open, and no process that has them can be dumped. So the child lets go of them: memory of its
 * own takes the place of the mappings, and the null device that of the descriptors, because the driver's exit handlers
 * may still reach for either. Everything here is async-signal-safe: the parent may have had threads, in malloc too.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef HF_DEVICE_PREFIX
#define HF_DEVICE_PREFIX "/dev/nvidia" /* the shim's tests have no such device and build with another one */
#endif
#define PREFIX (sizeof HF_DEVICE_PREFIX - 1)

struct range { uintptr_t start, end; bool dark; }; /* dark: no access at all */
enum { RANGES = 256 };
static struct range ranges[RANGES]; /* the child has one thread */
static size_t nranges;

/* Notes the range of a device, until there is no room. */
static bool note(const struct hf_mapping *m, void *arg)
{
	(void)arg;
	if (strncmp(m->path, HF_DEVICE_PREFIX, PREFIX))
		return false;
	struct range *last = nranges ? &ranges[nranges - 1] : NULL;
	if (last && last->end == m->start && last->dark == !m->access)
		last->end = m->end;
	else if (nranges < RANGES)
		ranges[nranges++] = (struct range){ m->start, m->end, !m->access };
	return nranges == RANGES;
}

/*
 * Notes the device mappings, as many as there is room for; whether that may be all. Without /proc
 * there is no dump either.
 */
static bool find_mappings(void)
{
	nranges = 0;
	hf_mappings(note, NULL);
	return nranges < RANGES;
}

static bool replace(const struct range *r)
{
	size_t size = r->end - r->start;
	void *at = (void *)r->start;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
	return mmap(at, size, r->dark ? PROT_NONE : PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED ||
		mmap(at, size, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

/* First all are found, then all are replaced: what /proc/self/maps shows does not change under the reading. */
static void leave_mappings(void)
{
	for (bool all = false; !all;) {
		all = find_mappings();
		for (size_t i = 0; i < nranges; i++)
			if (!replace(&ranges[i]))
				all = true; /* no use in trying again */
	}
}

static int number(const char *s)
{
	int n = 0;
	if (!*s)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || n > 100000000)
			return -1;
		n = n * 10 + (*s - '0');
	}
	return n;
}

static void leave_descriptors(void)
{
	char list[4096] __attribute__((aligned(8))), path[PREFIX];
	int null = -1, dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return;
	for (;;) {
		long n = syscall(SYS_getdents64, dir, list, sizeof list);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		for (long i = 0; i < n;) {
			const struct hf_dirent *e = (const void *)(list + i);
			i += e->size;
			int fd = number(e->name);
			if (fd < 0 || readlinkat(dir, e->name, path, PREFIX) != (ssize_t)PREFIX ||
			    memcmp(path, HF_DEVICE_PREFIX, PREFIX))
				continue;
			if (null < 0)
				null = open("/dev/null", O_RDWR | O_CLOEXEC);
			if (null >= 0)
				dup3(null, fd, O_CLOEXEC);
		}
	}
	if (null >= 0)
		close(null);
	close(dir);
}

void hf_devices_fork_child(void)
{
	int saved = errno;
	leave_mappings();
	leave_descriptors();
	errno = saved;
}
