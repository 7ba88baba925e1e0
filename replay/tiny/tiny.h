/* The smallest player of linked recordings (docs/hfx-format.md): Linux on x86-64, no libc, no library, no thread.
 *
 *   sys.c   system calls, what a compiler takes for granted, and how to say that something went wrong
 *   file.c  the linked recording: finding it, and checking all that it says before a device is opened
 *   rm.c    requests of the driver: structures and numbers are those of internal/rm, in zabi.h
 *   play.c  a channel of our own, the steps of the recording, and its program
 *   main.c  the command line and the files of inputs and outputs
 *
 * Whatever goes wrong ends the process: the driver takes back everything that its files had when they are closed.
 */
#ifndef HF_TINY_H
#define HF_TINY_H

#include "zabi.h"

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

/* sys.c. A result below 0 is an error, -errno. */
i64 sys_open(const char *path, int flags, int mode);
i64 sys_close(int fd);
i64 sys_pread(int fd, void *to, u64 n, u64 at);
i64 sys_write(int fd, const void *from, u64 n);
i64 sys_size(int fd); /* of a file that can be read at any place */
i64 sys_ioctl(int fd, u32 request, void *arg);
i64 sys_readlink(const char *path, char *to, u64 n);
i64 sys_mmap(u64 n, int prot, int flags, int fd);
void sys_soon(int fd);      /* the file will be read: begin */
u64 now(void);              /* nanoseconds */
void nap(u64 nanoseconds);

enum { ReadOnly = 0, WriteOnly = 1, ReadWrite = 2, Create = 0x40, Truncate = 0x200, CloseOnExec = 0x80000 };
enum { ProtRead = 1, ProtWrite = 2, MapShared = 1, MapPrivate = 2, MapAnonymous = 0x20 };

/* format: %s text, %b text of so many bytes (u32, then const char *), %u u64 in decimal, %x in hexadecimal, %m negative
 * errno in words. say writes to standard error; fail does too, with a newline, and ends with status 1. */
void say(const char *format, ...);
_Noreturn void fail(const char *format, ...);
_Noreturn void usage(const char *format, ...);
_Noreturn void leave(int status);

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
u64 length(const char *s);

/* file.c */
typedef struct model {
	int fd;
	u64 base; /* where in the file it begins: behind a player */
	const char *path;
	hfx_header h;
	const hfx_memory *memory;
	const hfx_group *groups;
	const hfx_op *ops;
	const hfx_port *ports;
	const u32 *words;
	const char *text;
} model;

void model_open(model *m, const char *path, u64 base, u64 bytes);
void model_find(model *m); /* the one that belongs to this executable */
void model_verify(const model *m);
u32 sum(const void *p, u64 n);
void read_all(int fd, void *to, u64 n, u64 at, const char *path);

/* rm.c */
typedef struct gpu {
	int control, dev; /* files */
	u32 major, minor; /* of the driver's version; of the device's file */
	u32 client, device, subdevice, vaspace, range;
	u32 last; /* handle */
	const char *doing;
} gpu;

void gpu_open(gpu *g, u32 index, const model *m);
u32 rm_alloc(gpu *g, u32 parent, u32 class, void *params, u32 size);
void rm_control(gpu *g, u32 object, u32 cmd, void *params, u32 size);
void *rm_map(gpu *g, u32 object, int via, u64 bytes, u32 flags); /* via stays open */
int rm_device_file(gpu *g);
int rm_control_file(void);
/* rm_memory makes memory at its device address, and is its handle; host becomes where it is seen here, or 0. */
u32 rm_memory(gpu *g, const hfx_memory *m, u8 **host);

/* play.c */
typedef struct port {
	const hfx_port *p;
	int fd;   /* of an input's data, or where an output goes; -1: none */
	u64 base; /* where an input's data begin */
	const char *path;
} port;

void play_start(const model *m, u32 index);
void play_group(const model *m, const port *p); /* 0: the first group */
void play_run(const model *m, u64 limit);       /* nanoseconds */

#endif
