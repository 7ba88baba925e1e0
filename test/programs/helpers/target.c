// A program to dump: target MODE…; prints a line for every line or byte of state that the test asks for.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long count[64];

static void die(const char *what)
{
	perror(what);
	exit(3);
}

static void *spin(void *arg)
{
	uintptr_t i = (uintptr_t)arg;
	uint64_t x = i + 1;

	for (;;) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		if (x == 0)
			abort();
		count[i]++;
		if ((count[i] & 0xffff) == 0)
			usleep(500);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *tick = NULL;
	unsigned long n = 0;
	unsigned char *mem = NULL;
	size_t size = 0;
	int reopen = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++) {
		char *arg = strchr(argv[i], '=');
		if (arg)
			*arg++ = 0;
		if (!strcmp(argv[i], "threads")) {
			pthread_t t;
			for (long k = 0; k < atol(arg); k++)
				if (pthread_create(&t, NULL, spin, (void *)k))
					die("thread");
		} else if (!strcmp(argv[i], "memory")) {
			size = (size_t)atol(arg) << 20;
			mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (mem == MAP_FAILED)
				die("mmap");
			for (size_t k = 0; k < size; k++)
				mem[k] = (unsigned char)(k * 31 >> 3);
		} else if (!strcmp(argv[i], "child")) {
			pid_t p = fork();
			if (p == 0) {
				char line[64];
				int len;
				for (unsigned long k = 0;; k++) {
					len = snprintf(line, sizeof line, "child %lu\n", k);
					if (arg && write(1, line, (size_t)len) < 0 && errno != EIO)
						exit(1);
					usleep(20000);
				}
			}
		} else if (!strcmp(argv[i], "setsid")) {
			if (setsid() < 0)
				die("setsid");
		} else if (!strcmp(argv[i], "log")) {
			tick = arg; // appended to on every tick, without O_APPEND
		} else if (!strcmp(argv[i], "dup")) {
			dup2(1, 77);
		} else if (!strcmp(argv[i], "flock")) {
			int fd = open(arg, O_RDWR | O_CREAT, 0600);
			if (fd < 0 || flock(fd, LOCK_EX))
				die("flock");
		} else if (!strcmp(argv[i], "data")) {
			int fd = open(arg, O_RDWR | O_CREAT, 0600);
			if (fd < 0 || write(fd, "0123456789", 10) != 10)
				die("data");
		} else if (!strcmp(argv[i], "deleted")) {
			int fd = open(arg, O_RDWR | O_CREAT, 0600);
			if (fd < 0 || write(fd, "ghost", 5) != 5 || unlink(arg))
				die("deleted");
			reopen = fd;
		} else if (!strcmp(argv[i], "linked")) {
			char other[4096];
			int fd = open(arg, O_RDWR | O_CREAT, 0600);
			snprintf(other, sizeof other, "%s.other", arg);
			if (fd < 0 || link(arg, other) || unlink(arg))
				die("linked");
		} else if (!strcmp(argv[i], "pipe")) {
			int p[2];
			if (pipe(p) || write(p[1], "in the pipe", 11) != 11)
				die("pipe");
		} else if (!strcmp(argv[i], "eventfd")) {
			int e = eventfd(42, 0), t = timerfd_create(CLOCK_MONOTONIC, 0), in = inotify_init();
			struct itimerspec its = {{1, 0}, {1, 0}};
			if (e < 0 || t < 0 || timerfd_settime(t, 0, &its, NULL) || in < 0 ||
			    inotify_add_watch(in, "/etc/passwd", IN_MODIFY) < 0)
				die("eventfd");
		} else if (!strcmp(argv[i], "memfd")) {
			int fd = memfd_create("held", 0);
			if (fd < 0 || ftruncate(fd, 1 << 20))
				die("memfd");
		} else if (!strcmp(argv[i], "tcp")) {
			struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(arg)),
						.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
			int s = socket(AF_INET, SOCK_STREAM, 0);
			if (s < 0 || connect(s, (void *)&a, sizeof a))
				die("connect");
		} else if (!strcmp(argv[i], "unix")) {
			struct sockaddr_un a = {.sun_family = AF_UNIX};
			int s = socket(AF_UNIX, SOCK_STREAM, 0);
			strncpy(a.sun_path, arg, sizeof a.sun_path - 1);
			if (s < 0 || connect(s, (void *)&a, sizeof a))
				die("connect");
		} else if (!strcmp(argv[i], "shm")) {
			int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
			if (id < 0 || shmat(id, NULL, 0) == (void *)-1 || shmctl(id, IPC_RMID, NULL))
				die("shm");
		} else if (!strcmp(argv[i], "io_uring")) {
			char params[120] = {0};
			if (syscall(SYS_io_uring_setup, 4, params) < 0)
				die("io_uring");
		} else if (!strcmp(argv[i], "perf") || !strcmp(argv[i], "perf-map")) {
			struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a,
						    .config = PERF_COUNT_SW_CPU_CLOCK};
			int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
			if (fd < 0)
				die("perf");
			if (argv[i][4]) { // the mapping alone
				if (mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
					die("perf map");
				close(fd);
			}
		} else if (!strcmp(argv[i], "pidfd")) {
			if (syscall(SYS_pidfd_open, getppid(), 0) < 0)
				die("pidfd");
		} else if (!strcmp(argv[i], "device")) {
			if (open(arg, O_RDWR) < 0)
				die(arg);
		} else {
			fprintf(stderr, "target: %s?\n", argv[i]);
			return 2;
		}
	}
	int lfd = -1;
	if (tick && (lfd = open(tick, O_WRONLY | O_CREAT, 0600)) < 0)
		die(tick);
	for (;; n++) {
		char line[128];
		unsigned long long sum = 0;
		for (size_t k = 0; k < size; k += 4096)
			sum += mem[k];
		int len = snprintf(line, sizeof line, "tick %lu %d %llu %lu\n", n, getpid(), sum, count[0]);
		if (lfd >= 0 && write(lfd, line, (size_t)len) != len)
			die("write log");
		if (reopen) {
			char b[5];
			if (pread(reopen, b, 5, 0) != 5 || memcmp(b, "ghost", 5))
				die("deleted file");
		}
		// Nobody reads: not a reason to end.
		if (write(1, line, (size_t)len) < 0 && errno != EIO && errno != EPIPE)
			return 1;
		if (fcntl(77, F_GETFD) >= 0)
			write(77, "dup\n", 4);
		usleep(10000);
	}
}
