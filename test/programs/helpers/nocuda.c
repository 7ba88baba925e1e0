/* A program without CUDA: the shim must be invisible, and dlsym must keep its meaning. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Interposes getpid as libraries do: the next one is the C library's. */
pid_t getpid(void)
{
	pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "getpid");
	return next == getpid || !next ? -1 : next();
}

int main(void)
{
	void *self = dlopen(NULL, RTLD_LAZY);
	printf("default %d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL);
	printf("error %d\n", dlerror() != NULL);
	printf("handle %d\n", dlsym(self, "cuInit") != NULL);
	printf("missing %d\n", dlsym(self, "cuNoSuchThing") != NULL);
	printf("getpid %d\n", getpid() > 0);
	printf("strlen %d\n", ((size_t (*)(const char *))dlsym(RTLD_DEFAULT, "strlen"))("abc") == 3);
	return 0;
}
