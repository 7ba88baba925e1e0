// Compaction, partition, runs, text.
// variants: O0 O1

// A warp takes room for all its lanes at once: the order of warps is open.
//@ for(n=S) launch(grid=up(n, 128), block=128, order="any", args=[u32(n), zero(4*n), zero(4), n])
extern "C" __global__ void compact_warp(const int *in, int *out, int *count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, at = 0;
  bool keep = i < n && in[i] > 0;
  unsigned mask = __ballot_sync(~0u, keep);
  if (lane == 0 && mask) at = atomicAdd(count, __popc(mask));
  at = __shfl_sync(~0u, at, 0);
  if (keep) out[at + __popc(mask & ((1u << lane) - 1))] = in[i];
}

// One block keeps the order.
//@ for(n=S) launch(grid=1, block=256, args=[u32(n), zero(4*n), zero(4), n])
//@ for(n=(33, 1000)) launch(grid=1, block=256, args=[(a := u32(n)), a, zero(4), n])
extern "C" __global__ void compact_block(const int *in, int *out, int *count, int n) {
  __shared__ int warp[8];
  __shared__ int done;
  int t = threadIdx.x, lane = t % 32;
  if (t == 0) done = 0;
  for (int base = 0; base < n; base += 256) {
    int x = base + t < n ? in[base + t] : 0;
    unsigned mask = __ballot_sync(~0u, x > 0);
    if (lane == 0) warp[t / 32] = __popc(mask);
    __syncthreads();
    int at = done + __popc(mask & ((1u << lane) - 1));
    for (int w = 0; w < t / 32; w++) at += warp[w];
    if (x > 0) out[at] = x;
    __syncthreads();
    if (t == 0)
      for (int w = 0; w < 8; w++) done += warp[w];
    __syncthreads();
  }
  if (t == 0) *count = done;
}

// The three phases apart: flags, (a scan,) and the move.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), zero(4*n), n])
extern "C" __global__ void flag_positive(const int *in, int *flag, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) flag[i] = in[i] > 0;
}

//@ for(n=(1, 33, 1000)) launch(grid=up(n, 256), block=256, args=[u32(n), ints([i // 2 for i in range(n + 1)]), zero(4*n), n])
extern "C" __global__ void move_flagged(const int *in, const int *scan, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && scan[i + 1] != scan[i]) out[scan[i]] = in[i];
}

// Each block parts its segment in place: small ones to the front, order kept.
//@ for(n=S, pivot=(0, 1 << 30)) launch(grid=up(n, 128), block=128, args=[u32(n), pivot, n])
extern "C" __global__ void partition_block(int *a, int pivot, int n) {
  __shared__ int below[128];
  int t = threadIdx.x, base = blockIdx.x * 128, count = min(128, n - base);
  int x = t < count ? a[base + t] : 0;
  bool low = t < count && x < pivot;
  below[t] = low;
  for (int d = 1; d < 128; d *= 2) {
    __syncthreads();
    int y = t >= d ? below[t - d] : 0;
    __syncthreads();
    below[t] += y;
  }
  __syncthreads();
  int lows = below[127];
  if (t < count) a[base + (low ? below[t] - 1 : lows + t - below[t])] = x;
}

// Lengths of runs, by the thread at which each begins.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[index(n, 2), zero(4*n), n])
extern "C" __global__ void run_lengths(const int *in, int *length, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int len = 0;
  if (i == 0 || in[i] != in[i - 1])
    while (i + len < n && in[i + len] == in[i]) len++;
  length[i] = len;
}

// Neighbours that are equal are marked.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[index(n, 3), zero(n), n])
extern "C" __global__ void unique_flags(const int *in, unsigned char *flag, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) flag[i] = i == 0 || in[i] != in[i - 1];
}

//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u8(n), n])
extern "C" __global__ void upper_case(unsigned char *text, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && text[i] >= 'a' && text[i] <= 'z') text[i] -= 32;
}

// Lines, words and characters, as everybody counts them.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u8(n), zero(12), n])
extern "C" __global__ void word_count(const unsigned char *text, int *counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned char c = i < n ? text[i] & 31 : 1, before = i > 0 && i < n ? text[i - 1] & 31 : 0;
  int lines = __syncthreads_count(i < n && c == 10);
  int words = __syncthreads_count(i < n && c > 3 && before <= 3);
  int chars = __syncthreads_count(i < n);
  if (threadIdx.x == 0) {
    if (lines) atomicAdd(&counts[0], lines);
    if (words) atomicAdd(&counts[1], words);
    if (chars) atomicAdd(&counts[2], chars);
  }
}

// Where a pattern occurs; one thread of all may find the first.
//@ for(n=(8, 256, 1000), m=(1, 2)) launch(grid=up(n, 128), block=128, args=[u8(n), u8(m), ints([2**31 - 1]), n, m])
extern "C" __global__ void find_first(const unsigned char *text, const unsigned char *pattern, int *at, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + m > n) return;
  for (int k = 0; k < m; k++)
    if ((text[i + k] & 15) != (pattern[k] & 15)) return;
  atomicMin(at, i);
}

// Decimal digits of numbers, eleven places each.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[u32(n), zero(11*n), n])
extern "C" __global__ void to_decimal(const unsigned *in, char *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = in[i];
  char *p = out + 11 * i;
  p[10] = '\n';
  for (int k = 9; k >= 0; k--) {
    p[k] = x || k == 9 ? '0' + x % 10 : ' ';
    x /= 10;
  }
}

// Bits to bytes and back, eight at a time; the buffer of bits is packed with ballots.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u8(n), zero(16*up(n, 128)), n])
extern "C" __global__ void pack_bits(const unsigned char *in, unsigned *bits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned mask = __ballot_sync(~0u, i < n && (in[i] & 1));
  if (threadIdx.x % 32 == 0) bits[i / 32] = mask;
}

// Differences of neighbours in place within a block; undone by a scan.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void delta_encode(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int x = i < n ? a[i] : 0, before = i < n && threadIdx.x > 0 ? a[i - 1] : 0;
  __syncthreads();
  if (i < n) a[i] = x - before;
}
