/* Interposition: the exported dlsym, cuGetProcAddress, and finding the real functions. */
#include "shim.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *(*real_dlsym)(void *, const char *);
static void *libcuda; /* once found, never closed: the program's driver stays where it is */

static void *the_dlsym(void)
{
	void *(*p)(void *, const char *) = __atomic_load_n(&real_dlsym, __ATOMIC_RELAXED);
	if (p)
		return (void *)p;
	/* dlvsym is not hooked, so it finds the next dlsym after ours: glibc's. */
	void *f = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!f)
		f = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!f)
		abort(); /* no glibc that we know: the program could not resolve anything */
	__atomic_store_n((void **)&real_dlsym, f, __ATOMIC_RELAXED);
	return f;
}

/* The program's libcuda; it is opened only if the program calls one of our symbols without having it. */
static void *driver(bool open)
{
	void *h = __atomic_load_n(&libcuda, __ATOMIC_ACQUIRE);
	if (h)
		return h;
	h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!h && open)
		h = dlopen("libcuda.so.1", RTLD_LAZY);
	if (h)
		__atomic_store_n(&libcuda, h, __ATOMIC_RELEASE);
	return h;
}

static CUresult absent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
static CUresult no_driver(void) { return CUDA_ERROR_STUB_LIBRARY; }

void *hf_resolve(int symbol)
{
	void *h = driver(true);
	if (!h)
		return (void *)no_driver;
	void *p = ((void *(*)(void *, const char *))the_dlsym())(h, hf_symbols[symbol].name);
	/* A libcuda of an odd build could resolve the name back to us; that would never end. */
	if (!p || p == hf_symbols[symbol].wrapper)
		p = (void *)absent;
	__atomic_store_n(&hf_real[symbol], p, __ATOMIC_RELAXED);
	return p;
}

bool hf_have(int symbol)
{
	void *p = hf_fn(symbol);
	return p != (void *)absent && p != (void *)no_driver;
}

static int find_symbol(const char *name)
{
	int lo = 0, hi = HF_SYMBOLS - 1;
	while (lo <= hi) {
		int mid = (lo + hi) / 2, c = strcmp(name, hf_symbols[mid].name);
		if (c == 0)
			return mid;
		if (c < 0)
			hi = mid - 1;
		else
			lo = mid + 1;
	}
	return -1;
}

/* Whether p lies in the program's libcuda. */
static bool in_driver(void *p)
{
	Dl_info a, b;
	void *h = driver(false);
	if (!h || !dladdr(p, &a))
		return false;
	void *own = ((void *(*)(void *, const char *))the_dlsym())(h, "cuInit");
	return own && dladdr(own, &b) && a.dli_fbase == b.dli_fbase;
}

/*
 * What the exported dlsym does: value, or (jump set) go on there with the same arguments and the same return address.
 */
struct hf_route { void *value, *jump; };
__attribute__((used)) struct hf_route hf_dlsym_route(void *handle, const char *name);
struct hf_route hf_dlsym_route(void *handle, const char *name)
{
	void *(*next)(void *, const char *) = the_dlsym();
	struct hf_route pass = { 0, (void *)next };
	if (!name || name[0] != 'c' || name[1] != 'u')
		return pass;
	int i = find_symbol(name);
	if (i < 0 || !hf_symbols[i].wrapper)
		return pass;
	void *wrapper = hf_symbols[i].wrapper;
	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
		/*
		 * The search always finds our own symbol. That is right where the program has a driver, whose symbol ours
		 * stands for.
		 */
		void *p = next(RTLD_NEXT, name);
		if (p && !in_driver(p))
			return pass;
		if (p || driver(false))
			return (struct hf_route){ wrapper, 0 };
		return (struct hf_route){ 0, 0 }; /* dlerror is set by the search above */
	}
	void *p = next(handle, name);
	if (p == wrapper && !driver(false))
		p = next(RTLD_NEXT, name); /* a handle of the global scope in a program without CUDA: as if we were not there */
	else if (p && p != wrapper && in_driver(p))
		p = wrapper;
	return (struct hf_route){ p, 0 };
}

/*
 * RTLD_NEXT and RTLD_DEFAULT depend on who calls: glibc looks at the return address. So everything that is not ours
 * is passed on by a jump, with the stack as the caller left it.
 */
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	push %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	sub $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call hf_dlsym_route\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	test %rdx, %rdx\n"
	"	jz 1f\n"
	"	jmp *%rdx\n"
	"1:	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n");

/* Our wrapper for what cuGetProcAddress gave, or the same. */
static void *proc(const char *name, void *real, int version, unsigned long long flags)
{
	bool thread = flags & 2; /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
	int lo = 0, hi = (int)hf_nprocs;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (strcmp(hf_procs[mid].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	int newest = -1;
	for (unsigned i = (unsigned)lo; i < hf_nprocs && !strcmp(hf_procs[i].name, name); i++) {
		int a = hf_procs[i].plain, b = hf_procs[i].thread;
		int first = thread ? b : a, second = thread ? a : b;
		if (real == hf_fn(first) && hf_symbols[first].wrapper)
			return hf_symbols[first].wrapper;
		if (real == hf_fn(second) && hf_symbols[second].wrapper)
			return hf_symbols[second].wrapper;
		if (newest < 0 && hf_procs[i].since <= version)
			newest = first;
	}
	if (newest < 0 || !hf_symbols[newest].wrapper)
		return real;
	/* A driver may hand out an entry that it does not export; which one it stands for is said by the version. */
	return hf_symbols[newest].wrapper;
}

CUresult hf_cuGetProcAddress(void *symbol, void *pfn, int version, unsigned long long flags)
{
	CUresult r = real_cuGetProcAddress(symbol, pfn, version, flags);
	if (r == CUDA_SUCCESS && symbol && pfn && *(void **)pfn)
		*(void **)pfn = proc(symbol, *(void **)pfn, version, flags);
	return r;
}

CUresult hf_cuGetProcAddress_v2(void *symbol, void *pfn, int version, unsigned long long flags, void *status)
{
	CUresult r = real_cuGetProcAddress_v2(symbol, pfn, version, flags, status);
	if (r == CUDA_SUCCESS && symbol && pfn && *(void **)pfn)
		*(void **)pfn = proc(symbol, *(void **)pfn, version, flags);
	return r;
}
