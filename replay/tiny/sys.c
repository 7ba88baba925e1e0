#include "tiny.h"
#include <stdarg.h>

static i64 call(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
	register i64 r10 __asm__("r10") = d;
	register i64 r8 __asm__("r8") = e;
	register i64 r9 __asm__("r9") = f;
	i64 r;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

/* Numbers of system calls (asm/unistd_64.h). */
enum {
	NrWrite = 1, NrOpen = 2, NrClose = 3, NrLseek = 8, NrMmap = 9, NrIoctl = 16, NrPread = 17, NrNanosleep = 35,
	NrReadlink = 89, NrFadvise = 221, NrClockGettime = 228, NrExitGroup = 231
};

i64 sys_open(const char *path, int flags, int mode) { return call(NrOpen, (i64)path, flags, mode, 0, 0, 0); }
i64 sys_close(int fd) { return call(NrClose, fd, 0, 0, 0, 0, 0); }
i64 sys_pread(int fd, void *to, u64 n, u64 at) { return call(NrPread, fd, (i64)to, n, at, 0, 0); }
i64 sys_write(int fd, const void *from, u64 n) { return call(NrWrite, fd, (i64)from, n, 0, 0, 0); }
i64 sys_size(int fd) { return call(NrLseek, fd, 0, 2, 0, 0, 0); }
i64 sys_readlink(const char *path, char *to, u64 n) { return call(NrReadlink, (i64)path, (i64)to, n, 0, 0, 0); }
i64 sys_mmap(u64 n, int prot, int flags, int fd) { return call(NrMmap, 0, n, prot, flags, fd, 0); }
void sys_soon(int fd) { call(NrFadvise, fd, 0, 0, 3, 0, 0); }

i64 sys_ioctl(int fd, u32 request, void *arg)
{
	enum { Interrupted = -4, Again = -11 };
	for (;;) {
		i64 r = call(NrIoctl, fd, request, (i64)arg, 0, 0, 0);
		if (r != Interrupted && r != Again)
			return r;
	}
}

u64 now(void)
{
	u64 t[2];
	call(NrClockGettime, 1, (i64)t, 0, 0, 0, 0);
	return t[0] * 1000000000 + t[1];
}

void nap(u64 nanoseconds)
{
	u64 t[2] = {nanoseconds / 1000000000, nanoseconds % 1000000000};
	call(NrNanosleep, (i64)t, 0, 0, 0, 0, 0);
}

void leave(int status)
{
	for (;;)
		call(NrExitGroup, status, 0, 0, 0, 0, 0);
}

void *memcpy(void *to, const void *from, size_t n)
{
	void *r = to;
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return r;
}

void *memset(void *to, int c, size_t n)
{
	void *r = to;
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(c) : "memory");
	return r;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x < *y ? -1 : 1;
	return 0;
}

u64 length(const char *s)
{
	u64 n = 0;
	while (s[n])
		n++;
	return n;
}

/* A line is written at once. */
static struct { char b[4096]; u64 n; } line;

static void put(const char *s, u64 n)
{
	for (; n && line.n < sizeof line.b - 1; n--)
		line.b[line.n++] = *s++;
}

static void put_number(u64 v, u64 base)
{
	char b[24];
	u64 n = sizeof b;
	do
		b[--n] = "0123456789abcdef"[v % base];
	while (v /= base);
	if (base == 16)
		put("0x", 2);
	put(b + n, sizeof b - n);
}

static void put_errno(i64 e)
{
	static const struct { i64 e; const char *s; } names[] = {{-1, "not permitted"}, {-2, "no such file"},
		{-5, "input or output failed"}, {-6, "no such device"}, {-12, "no memory"}, {-13, "permission denied"},
		{-14, "bad address"}, {-16, "busy"}, {-19, "no such device"}, {-20, "not a directory"},
		{-21, "is a directory"}, {-22, "not valid"}, {-25, "not such a device"}, {-28, "no space left"},
		{-29, "cannot be read at any place"}, {-30, "read-only file system"}};
	for (u64 i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].e == e)
			return put(names[i].s, length(names[i].s));
	put("error ", 6);
	put_number(-e, 10);
}

static void format(const char *f, va_list a)
{
	for (; *f; f++) {
		if (*f != '%') {
			put(f, 1);
			continue;
		}
		switch (*++f) {
		case 's': {
			const char *s = va_arg(a, const char *);
			put(s, length(s));
			break;
		}
		case 'b': {
			u32 n = va_arg(a, u32);
			put(va_arg(a, const char *), n);
			break;
		}
		case 'u': put_number(va_arg(a, u64), 10); break;
		case 'x': put_number(va_arg(a, u64), 16); break;
		case 'm': put_errno(va_arg(a, i64)); break;
		}
	}
}

static void flush(void)
{
	for (u64 at = 0; at < line.n;) {
		i64 r = sys_write(2, line.b + at, line.n - at);
		if (r <= 0)
			break;
		at += r;
	}
	line.n = 0;
}

void say(const char *f, ...)
{
	va_list a;
	va_start(a, f);
	format(f, a);
	va_end(a);
	flush();
}

#define END(status)           \
	va_list a;            \
	va_start(a, f);       \
	format(f, a);         \
	va_end(a);            \
	line.b[line.n++] = '\n'; \
	flush();              \
	leave(status)

void fail(const char *f, ...) { END(1); }
void usage(const char *f, ...) { END(2); }
