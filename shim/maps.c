/*
 * Reading /proc/self/maps. Everything here is async-signal-safe: it is called where threads may hold any lock, malloc's
 * too, and in a child whose parent had threads.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

uintptr_t hf_hex(const char **s)
{
	uintptr_t n = 0;
	for (char c; (c = **s), (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); ++*s)
		n = n << 4 | (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	return n;
}

/* A line is: start-end perms offset device inode path. */
static struct hf_mapping mapping(const char *s)
{
	struct hf_mapping m = { .start = hf_hex(&s) };
	s += *s == '-';
	m.end = hf_hex(&s);
	s += *s == ' ';
	for (; *s && *s != ' '; s++) {
		m.access |= *s == 'r' || *s == 'w' || *s == 'x';
		m.shared |= *s == 's';
	}
	for (int field = 0; field < 4; field++) { /* up to the offset, and past three fields */
		while (*s == ' ')
			s++;
		while (field < 3 && *s && *s != ' ')
			s++;
	}
	m.path = s;
	return m;
}

void hf_mappings(bool (*enough)(const struct hf_mapping *m, void *arg), void *arg)
{
	char text[4096], line[512]; /* the end of a longer line is left out */
	size_t length = 0;
	bool done = false;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && !done) {
		ssize_t n = read(fd, text, sizeof text);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n && !done; i++) {
			if (text[i] != '\n') {
				if (length < sizeof line - 1)
					line[length++] = text[i];
				continue;
			}
			line[length] = 0;
			length = 0;
			struct hf_mapping m = mapping(line);
			done = enough(&m, arg);
		}
	}
	if (fd >= 0)
		close(fd);
}
