// Small kernels that mislead an analysis of what is read and written: each looks like another that
// behaves otherwise.
// variants: O0 O1

// One thread moves everything up by one, from the end.
//@ for(n=(1, 2, 33, 300), by=(1, 2)) launch(args=[u32(n + by), n, by])
extern "C" __global__ void shift_up_serial(int *a, int n, int by) {
  for (int i = n - 1; i >= 0; i--) a[i + by] = a[i];
}

// The sum i + off wraps in 32 bits: off is a negative number in disguise.
//@ for(n=(33, 1000), k=(1, 40)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), U(2**32 - k), n])
//@ for(n=(33, 1000), k=(1, 40)) launch(grid=up(n, 128), block=128, order="any", args=[(a := u32(n)), a, U(2**32 - k), n])
extern "C" __global__ void wraps_32(const unsigned *in, unsigned *out, unsigned off, int n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || i + off > i) return;
  out[i] = in[i + off];
}

// The same in 64 bits, in bytes: a pointer and a negative distance.
//@ for(n=(33, 1000), d=(-400, 4, 64)) launch(grid=up(n, 128), block=128, order="any" if abs(d) < 4*n and abs(d) != 4*n else None, args=[u32(2*n + 200) + 400, L(d), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[u32(2*n), L(4*n), n])
extern "C" __global__ void distance_in_bytes(int *a, long long distance, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *(int *)((char *)(a + i) + distance) = a[i] * 2;
}

// What is in and what is out is a matter of a flag.
//@ for(n=S, flag=(0, 1)) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), flag, n])
//@ for(n=(33, 1000), flag=(0, 1)) launch(grid=up(n, 128), block=128, args=[(a := f32(n)), a, flag, n])
extern "C" __global__ void either_way(float *a, float *b, int flag, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float *from = flag ? a : b, *to = flag ? b : a;
  if (i < n) to[i] = from[i] + 1;
}

// Even threads one way, odd threads the other: both are read and written, no byte is both.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), u32(n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[(a := u32(n + 1)), a + 4, n])
extern "C" __global__ void crosswise(int *a, int *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (i & 1) a[i] = b[i];
  else b[i] = a[i];
}

// Pointers go by way of shared memory.
//@ for(n=S) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 64), block=64, args=[(a := u32(n)), a, n])
extern "C" __global__ void pointers_in_shared(const int *in, int *out, int n) {
  __shared__ const int *from;
  __shared__ int *to;
  if (threadIdx.x == 0) {
    from = in + blockIdx.x * blockDim.x;
    to = out + blockIdx.x * blockDim.x;
  }
  __syncthreads();
  if (blockIdx.x * blockDim.x + threadIdx.x < n) to[threadIdx.x] = from[threadIdx.x] + 3;
}

// … or of an array of the thread's own, by an index from memory.
//@ for(n=(1, 33, 500)) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n), zero(4*n), zero(4*n), n])
extern "C" __global__ void pointers_in_local(const unsigned *which, int *a, int *b, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int *to[3] = {a, b, c};
  to[which[i] % 3][i] = i;
}

// A pointer in two halves.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[struct("P", f32(n)), struct("P", zero(4*n)), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[struct("P", (a := f32(n))), struct("P", a), n])
extern "C" __global__ void halves(uint2 in, uint2 out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float *from = (const float *)((unsigned long long)in.y << 32 | in.x);
  float *to = (float *)((unsigned long long)out.y << 32 | out.x);
  if (i < n) to[i] = from[i] * 3;
}

// The tag in the lowest bits of a pointer is taken off.
//@ for(n=S, tag=(0, 3)) launch(grid=up(n, 128), block=128, args=[f32(n) + tag, zero(4*n), n])
extern "C" __global__ void tagged(unsigned long long in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float *from = (const float *)(in & ~7ull);
  if (i < n) out[i] = from[i] + (in & 7);
}

// Out is found by the distance between two pointers, neither of which is accessed.
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(3*n)), a + 4*n, a + 8*n, n])
extern "C" __global__ void by_difference(const char *a, const char *b, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *(int *)((char *)(c + i) - (b - a)) = c[i] + 1;
}

// One element beyond: reads 0 … n, writes n … 2n-1 with the second pointer n elements on.
//@ for(n=(1, 33, 1000), gap=(0, 1)) launch(grid=up(n, 128), block=128, order=None if gap else "any", args=[(a := u32(2*n + 2)), a + 4*(n + gap), n])
extern "C" __global__ void one_beyond(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + in[i + 1];
}

// The guard holds for the thread, not for the element.
//@ for(n=(2, 33, 500), gap=(0, 1)) launch(grid=up(n, 64), block=64, args=[(a := u32(4*n)), a + 4*n, n, gap])
//@ for(n=(33, 500), gap=(0, 1)) launch(grid=up(n, 64), block=64, order="any", args=[(a := u32(4*n)), a + 4*(n//2), n, gap])
extern "C" __global__ void guard_elsewhere(const int *in, int *out, int n, int gap) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[2 * i + gap] = in[i];
}

// All read the first element; all write, but for the first.
//@ for(n=(1, 33, 1000), first=(0, 1)) launch(grid=up(n, 128), block=128, order=None if first else "any", args=[u32(n), first, n])
extern "C" __global__ void broadcast(int *a, int first, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= first && i < n) a[i] = a[0] + i;
}

// A triangle is read, the diagonal's right neighbour written.
//@ for(n=(2, 17, 60)) launch(grid=up(n - 1, 32), block=32, args=[f32(n*n), n])
extern "C" __global__ void triangle(float *a, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n - 1) return;
  float sum = 0;
  for (int c = 0; c <= r; c++) sum += a[r * n + c];
  a[r * n + r + 1] = sum;
}

// Loops that end on equality.
//@ for(n=(0, 4, 100), step=(1, 2, 4)) launch(grid=1, block=32, args=[u32(32*n), zero(128*n), n, step])
extern "C" __global__ void until_equal(const int *in, int *out, int n, int step) {
  const int *p = in + threadIdx.x * n, *end = p + n;
  for (int *q = out + threadIdx.x * n; p != end; p += step, q += step) *q = *p;
}

// … and downwards, below zero in unsigned numbers.
//@ for(n=(1, 33, 100)) launch(grid=1, block=32, args=[u32(32*n), zero(128*n), U(n)])
extern "C" __global__ void below_zero(const unsigned *in, unsigned *out, unsigned n) {
  for (unsigned i = n - 1; i < n; i--) out[threadIdx.x * n + i] = in[threadIdx.x * n + i];
}

// Doubling steps.
//@ for(n=(1, 33, 1024)) launch(grid=1, block=32, args=[u32(n), zero(4*32*16), n])
extern "C" __global__ void doubling(const int *in, int *out, int n) {
  int k = 0;
  for (int i = 1; i <= n; i *= 2) out[k++ * 32 + threadIdx.x] = in[i - 1] + threadIdx.x;
}

// A permutation in place; only for swaps of neighbours is it sound.
//@ for(n=(32, 256, 1024), k=(1, 16)) launch(grid=n//128 or 1, block=min(n, 128), args=[u32(n), k])
extern "C" __global__ void exchange_lanes(int *a, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];
  __syncthreads();
  a[i ^ k] = x;
}

//@ for(n=(7, 100, 1000), m=(3, 7)) launch(grid=up(n, 128), block=128, order="any" if n % m == 0 else None, args=[u32(n), zero(4*n), m, n])
extern "C" __global__ void multiply_index(const int *in, int *out, int m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[(long long)i * m % n] = in[i];
}

// The index is masked: threads beyond the mask come round again, and store the same.
//@ for(n=(64, 1000), size=(16, 64)) launch(grid=up(n, 128), block=128, args=[u32(size), zero(4*size), size - 1, n])
//@ for(n=(64,), size=(16,)) launch(grid=up(n, 128), block=128, order="any", args=[(a := u32(2*size)), a + 4*(size//2), size - 1, n])
extern "C" __global__ void comes_round(const int *in, int *out, int mask, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i & mask] = in[i & mask] ^ 5;
}

// Stride zero: all write one element, the same.
//@ for(n=(33, 1000), stride=(0, 1, 3)) launch(grid=up(n, 128), block=128, args=[zero(4*n*max(stride, 1)), stride, 9, n])
extern "C" __global__ void any_stride(int *a, int stride, int x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i * stride] = x;
}

// Rows that overlap where the pitch is less than the width.
//@ for(w=(8, 33), h=(1, 9), pitch=(8, 33, 40)) launch(grid=(up(w, 32), h), block=32, args=[u32(40), zero(4*(40*h + w)), w, pitch])
extern "C" __global__ void overlapping_rows(const int *in, int *out, int w, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < w) out[blockIdx.y * pitch + x] = in[0];
}

// High bytes are written, low halves read.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void high_byte(unsigned char *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[4 * i + 3] = *(unsigned short *)(a + 4 * i) % 251;
}

// Here they meet: the high half is written.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void high_half(unsigned char *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *(unsigned short *)(a + 4 * i + 2) = a[4 * i] + a[4 * i + 2];
}

// Stores of sixteen bytes over what others read four of.
//@ for(n=(1, 33, 200), gap=(0, 4)) launch(grid=up(n, 64), block=64, order=None if gap else "any", args=[(a := u32(8*n + 16)), a + 16*(n if gap else n//8), n])
extern "C" __global__ void wide_over_narrow(const int *in, int4 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = make_int4(in[i], i, i, i);
}

// Stored only where the data say so.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), a, n])
extern "C" __global__ void if_positive(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && in[i] > 0) out[i] = in[i] - 1;
}

// What is stored is what was there.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void as_it_was(volatile int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = a[i];
}

// A fixed point after the first time.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void keep_low_bits(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] &= 0xffff;
}

// Two buffers change places, element by element.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), u32(n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), a, n])
extern "C" __global__ void change_places(int *a, int *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i];
  a[i] = b[i];
  b[i] = x;
}

// Copied aside first, then changed from the copy: the copy is of what was there before.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
extern "C" __global__ void copied_aside(volatile int *a, volatile int *copy, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  copy[i] = a[i];
  a[i] = copy[i] + 1;
}

// Written before it is read, but by another block's thread of the same number.
//@ for(b=(1, 4)) launch(grid=b, block=64, order="any" if b > 1 else None, args=[u32(64*b), zero(256), zero(256*b)])
extern "C" __global__ void scratch_not_by_block(const int *in, volatile int *scratch, int *out) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  scratch[t] = in[i];
  __syncthreads();
  out[i] = scratch[t ^ 1];
}

// All but the last element of the scratch is written.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(64*b), u32(65*b), zero(256*b)])
extern "C" __global__ void scratch_short(const int *in, int *scratch, int *out) {
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  int *s = scratch + blockIdx.x * 65;
  s[t] = in[i];
  __syncthreads();
  out[i] = s[t + 1];
}

// The barrier comes one step late: in the first round nothing parts writing from reading.
//@ for(b=(1, 4), rounds=(1, 3)) launch(grid=b, block=64, order="any", args=[u32(64*b), zero(256*b), zero(256*b), rounds])
extern "C" __global__ void barrier_late(const int *in, volatile int *scratch, int *out, int rounds) {
  volatile int *s = scratch + blockIdx.x * 64;
  int t = threadIdx.x, i = blockIdx.x * 64 + t, sum = 0;
  s[t] = in[i];
  for (int r = 0; r < rounds; r++) {
    if (r > 0) __syncthreads();
    sum += s[(t + 37) % 64];
  }
  out[i] = sum;
}

// A barrier orders, whichever kind it is.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(64*b), zero(256*b), zero(256*b)])
extern "C" __global__ void barrier_with_vote(const int *in, int *scratch, int *out) {
  int *s = scratch + blockIdx.x * 64, t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = in[i];
  int any = __syncthreads_or(in[i] < 0);
  out[i] = s[63 - t] + any;
}

// The lanes of a warp exchange through memory, ordered by __syncwarp.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(64*b), zero(256*b), zero(256*b)])
extern "C" __global__ void exchange_by_warp(const int *in, volatile int *scratch, int *out) {
  int i = blockIdx.x * 64 + threadIdx.x;
  scratch[i] = in[i];
  __syncwarp();
  out[i] = scratch[i ^ 1];
}

// Ping and pong between two halves, rounds and all: an even number ends where it began.
//@ for(b=(1, 3), rounds=(1, 2, 5)) launch(grid=b, block=32, args=[u32(64*b), rounds])
extern "C" __global__ void ping_pong(int *a, int rounds) {
  int *half[2] = {a + blockIdx.x * 64, a + blockIdx.x * 64 + 32};
  for (int r = 0; r < rounds; r++) {
    half[(r + 1) & 1][threadIdx.x] = half[r & 1][31 - threadIdx.x] + 1;
    __syncthreads();
  }
}

// A maximum whose result is used.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, order="any", args=[u32(n), zero(4), zero(4*n), n])
extern "C" __global__ void used_maximum(const int *in, int *most, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = atomicMax(most, in[i]) < in[i];
}

// A maximum of one more than what is there.
//@ for(b=(1, 3)) launch(grid=b, block=32, order="any", args=[zero(4)])
extern "C" __global__ void climbing_maximum(int *most) { atomicMax(most, *(volatile int *)most + 1); }

// Minimum and maximum on the same bytes do not go together.
//@ for(n=(2, 33, 300)) launch(grid=up(n, 64), block=64, order="any", args=[u32(n), zero(4), n])
extern "C" __global__ void both_extremes(const int *in, int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (i & 1) atomicMax(a, in[i]);
  else atomicMin(a, in[i]);
}

// Signed and unsigned maxima of one word.
//@ for(n=(2, 33, 300)) launch(grid=up(n, 64), block=64, order="any", args=[u32(n), zero(4), n])
extern "C" __global__ void mixed_maxima(const int *in, int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (i & 1) atomicMax(a, in[i]);
  else atomicMax((unsigned *)a, (unsigned)in[i]);
}

// The maximum is taken, and then read by a plain load.
//@ for(n=(1, 33, 300)) launch(grid=1, block=64, args=[u32(n), zero(4), zero(4), n])
extern "C" __global__ void maximum_then_read(const int *in, int *most, int *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicMax(most, in[i]);
  __syncthreads();
  if (threadIdx.x == 0) *out = *most;
}

// Initialised by the block before it counts: a counter that starts anew each time.
//@ for(n=(0, 33, 300)) launch(grid=3, block=64, args=[u32(n), u32(3), n])
extern "C" __global__ void counter_reset_first(const int *in, int *count, int n) {
  if (threadIdx.x == 0) count[blockIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    if (in[i] > 0) atomicAdd(&count[blockIdx.x], 1);
}

// Reset after use: the next launch finds zero, a second try of this one might not.
//@ for(n=(0, 33, 300)) launch(grid=3, block=64, args=[u32(n), zero(12), zero(12), n])
extern "C" __global__ void counter_reset_last(const int *in, int *count, int *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    if (in[i] > 0) atomicAdd(&count[blockIdx.x], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    out[blockIdx.x] = count[blockIdx.x];
    count[blockIdx.x] = 0;
  }
}

// Done once and never again.
//@ for(b=(1, 4), done=(0, 1)) launch(grid=b, block=32, args=[ints([done]), zero(4*b*32)])
extern "C" __global__ void once(int *done, int *out) {
  if (*done == 0) out[blockIdx.x * 32 + threadIdx.x] = 7;
}

//@ for(done=(0, 1)) launch(grid=1, block=32, args=[ints([done]), u32(32)])
extern "C" __global__ void once_and_marked(int *done, int *a) {
  int d = *done;
  __syncthreads();
  if (d) return;
  a[threadIdx.x] += 1;
  if (threadIdx.x == 0) *done = 1;
}

// Who comes first does the work.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[zero(4), zero(128)])
extern "C" __global__ void first_block_only(int *taken, int *out) {
  __shared__ bool mine;
  if (threadIdx.x == 0) mine = atomicCAS(taken, 0, 1) == 0;
  __syncthreads();
  if (mine) out[threadIdx.x] = 3 * threadIdx.x;
}

// The indices lie in the buffer that is written, in another part …
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[ints(shuffled(n) + [0]*n), n])
extern "C" __global__ void indices_beside(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[n + a[i]] = i;
}

// … or in the same one: what is read says what is overwritten.
//@ for(n=(2, 33, 300)) launch(grid=1, block=1, args=[ints(shuffled(n)), n])
extern "C" __global__ void indices_within(int *a, int n) {
  for (int i = 0; i < n; i++) {
    int to = a[i];
    if (to >= 0) a[to] = ~a[to];
  }
}

// Read through the cache for constants, written as well.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), a, n])
extern "C" __global__ void by_constant_cache(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __ldg(in + i) + 1;
}

// Only some blocks do something.
//@ for(b=(1, 5), k=(0, 3)) launch(grid=b, block=64, args=[u32(64*b), k])
extern "C" __global__ void one_block(int *a, unsigned k) {
  if (blockIdx.x != k) return;
  a[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

// Blocks along y do the same again, side by side.
//@ for(n=(64, 256), y=(1, 3)) launch(grid=(n//64, y), block=64, args=[u32(n), zero(4*n)])
extern "C" __global__ void same_again(const int *in, int *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] / 3;
}

// In place along x, and along y again: added once for each.
//@ for(n=(64, 256), y=(1, 3)) launch(grid=(n//64, y), block=64, args=[u32(n)])
extern "C" __global__ void add_by_each(int *a) { atomicAdd(&a[blockIdx.x * blockDim.x + threadIdx.x], (int)blockIdx.y + 1); }

__device__ __noinline__ int *choose(int *a, int *b, int k) { return k & 1 ? a + 1 : b; }

// A function says where.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[zero(8*n), zero(8*n), n])
extern "C" __global__ void where_a_function_says(int *a, int *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) choose(a, b, i)[i] = i;
}

__device__ __noinline__ void fill_down(int *a, int n) {
  if (n <= 0) return;
  a[n - 1] = n;
  fill_down(a, n - 1);
}

// Recursion writes.
//@ for(n=(0, 1, 9)) launch(grid=2, block=4, args=[zero(4*8*max(n, 1)), n])
extern "C" __global__ void recursive_fill(int *a, int n) { fill_down(a + (blockIdx.x * 4 + threadIdx.x) * n, n); }

// The size lies in memory, and in one case in memory that is written.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[ints([n]), u32(n), zero(4*n)])
//@ for(n=(33,)) launch(grid=1, block=32, args=[(s := ints([n] + [0]*n)), u32(n), s])
extern "C" __global__ void size_in_memory(const int *size, const int *in, int *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < *size) out[i] = in[i] + 1;
}

// A result that nothing uses is still written.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), null, n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), zero(4*n), a, n])
extern "C" __global__ void optional_output(const int *in, int *out, int *extra, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = in[i] * 2;
  if (extra) extra[i] = in[i] * 3;
}
