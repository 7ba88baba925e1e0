// Sorting networks, radix passes, merging, ranking.
// variants: O0 O1

// A step of the bitonic network over global memory.
//@ for(n=(2, 64, 1024), k=(2, 16, 64), j=(1, 4, 32)) launch(grid=up(n, 256), block=256, args=[u32(n), n, k, min(j, k//2)])
//@ for(s=[(2**k, 2**j) for k in range(1, 12) for j in reversed(range(k))]) launch(grid=8, block=256, args=[u32(2048), 2048, s[0], s[1]])
extern "C" __global__ void bitonic_step(int *a, int n, int k, int j) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
  if (i >= n || other <= i || other >= n) return;
  int x = a[i], y = a[other];
  bool ascending = (i & k) == 0;
  if (ascending == (x > y)) {
    a[i] = y;
    a[other] = x;
  }
}

// A block sorts 256 elements; what lies past the end counts as the largest number.
//@ for(n=S) launch(grid=up(n, 256), block=128, args=[u32(n), n])
extern "C" __global__ void bitonic_block(int *a, int n) {
  __shared__ int s[256];
  int base = blockIdx.x * 256;
  for (int i = threadIdx.x; i < 256; i += 128) s[i] = base + i < n ? a[base + i] : 0x7fffffff;
  for (int k = 2; k <= 256; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      int i = 2 * threadIdx.x - (threadIdx.x & (j - 1)), o = i + j;
      int x = s[i], y = s[o];
      if ((x > y) == ((i & k) == 0)) {
        s[i] = y;
        s[o] = x;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 128)
    if (base + i < n) a[base + i] = s[i];
}

//@ for(n=S, odd=(0, 1)) launch(grid=up(n//2, 128), block=128, args=[u32(n), n, odd])
//@ for(odd=(0, 1)) launch(grid=4, block=128, count=512, args=[u32(1021), 1021, odd])
extern "C" __global__ void odd_even_step(int *a, int n, int odd) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + odd;
  if (i + 1 >= n || a[i] <= a[i + 1]) return;
  int x = a[i];
  a[i] = a[i + 1];
  a[i + 1] = x;
}

// One block sorts everything, in place in global memory.
//@ for(n=(0, 1, 2, 33, 100)) launch(grid=1, block=64, args=[u32(n), n])
extern "C" __global__ void odd_even_sort(int *a, int n) {
  for (int round = 0; round < n; round++) {
    for (int i = 2 * threadIdx.x + (round & 1); i + 1 < n; i += 2 * blockDim.x) {
      int x = a[i], y = a[i + 1];
      if (x > y) {
        a[i] = y;
        a[i + 1] = x;
      }
    }
    __syncthreads();
  }
}

// Radix sort, four bits a pass: counts a block and digit, digit-major.
//@ for(n=S, shift=(0, 28)) launch(grid=up(n, 256), block=256, args=[u32(n), zero(64*up(n, 256)), n, shift])
//@ for(n=50021, shift=range(0, 32, 4)) launch(grid=up(n, 256), block=256, args=[u32(n), zero(64*up(n, 256)), n, shift])
extern "C" __global__ void radix_count(const unsigned *keys, int *counts, int n, int shift) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[keys[i] >> shift & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}

// A block of 256 sorts itself by one digit, stably, with ballots, in place.
//@ for(n=S, shift=(0, 13)) launch(grid=up(n, 256), block=256, args=[u32(n), n, shift])
extern "C" __global__ void radix_block(unsigned *keys, int n, int shift) {
  __shared__ int counts[16][8];
  __shared__ int start[16];
  int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % 32, w = threadIdx.x / 32;
  int count = min(256, n - blockIdx.x * 256);
  unsigned key = i < n ? keys[i] : 0;
  int digit = key >> shift & 15, rank = 0;
  for (int d = 0; d < 16; d++) {
    unsigned same = __ballot_sync(~0u, i < n && digit == d);
    if (digit == d) rank = __popc(same & ((1u << lane) - 1));
    if (lane == 0) counts[d][w] = __popc(same);
  }
  __syncthreads();
  if (threadIdx.x < 16) {
    int sum = 0;
    for (int k = 0; k < 8; k++) {
      int c = counts[threadIdx.x][k];
      counts[threadIdx.x][k] = sum;
      sum += c;
    }
    start[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int d = 0; d < 16; d++) {
      int c = start[d];
      start[d] = sum;
      sum += c;
    }
  }
  __syncthreads();
  int to = start[digit] + counts[digit][w] + rank;
  if (threadIdx.x < count) keys[blockIdx.x * 256 + to] = key;
}

// The scatter of a radix pass: offsets come from a scan of the counts.
//@ for(n=(1, 33, 512, 1000)) launch(grid=up(n, 256), block=256, args=[u32(n), ints(shuffled(n)), zero(4*n), n])
extern "C" __global__ void scatter(const unsigned *keys, const int *where, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[where[i]] = keys[i];
}

// Each element looks for its place in the other list.
//@ for(na=(1, 33, 500), nb=(0, 64, 301)) launch(grid=up(na + nb, 128), block=128, args=[ints(sorted(noise(na, 900))), ints(sorted(noise(nb, 900, 2))), zero(4*(na + nb)), na, nb])
extern "C" __global__ void merge_lists(const int *a, const int *b, int *out, int na, int nb) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= na + nb) return;
  bool first = i < na;
  int x = first ? a[i] : b[i - na], own = first ? i : i - na;
  const int *other = first ? b : a;
  int lo = 0, hi = first ? nb : na;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (first ? other[mid] < x : other[mid] <= x) lo = mid + 1;
    else hi = mid;
  }
  out[own + lo] = x;
}

// Every thread counts the smaller ones, with equal ones before it, tile by tile.
//@ for(n=(1, 33, 256, 401)) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n), n])
extern "C" __global__ void rank_sort(const int *in, int *out, int n) {
  __shared__ int tile[64];
  int i = blockIdx.x * 64 + threadIdx.x, x = i < n ? in[i] : 0, rank = 0;
  for (int base = 0; base < n; base += 64) {
    tile[threadIdx.x] = base + threadIdx.x < n ? in[base + threadIdx.x] : 0;
    __syncthreads();
    for (int k = 0; k < 64 && base + k < n; k++) rank += tile[k] < x || (tile[k] == x && base + k < i);
    __syncthreads();
  }
  if (i < n) out[rank] = x;
}

// Keys and values, insertion sort of short rows by one thread each.
//@ for(rows=(1, 40), cols=(1, 7, 24)) launch(grid=up(rows, 32), block=32, args=[f32(rows*cols), u32(rows*cols), rows, cols])
extern "C" __global__ void insertion_rows(float *keys, int *values, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  keys += row * cols;
  values += row * cols;
  for (int i = 1; i < cols; i++) {
    float k = keys[i];
    int v = values[i], j = i;
    for (; j > 0 && keys[j - 1] > k; j--) {
      keys[j] = keys[j - 1];
      values[j] = values[j - 1];
    }
    keys[j] = k;
    values[j] = v;
  }
}
