// Dynamic programming: wavefronts, rows, closures.
// variants: O0 O1

// One antidiagonal of the longest common subsequence; the table has a border of zeros.
//@ for(n=(4, 30, 100), d=(2, 5, 37)) launch(grid=up(min(d, n), 64), block=64, args=[index(n, 4), index(n, 4), zero(4*(n+1)*(n+1)), n, d])
//@ for(n=20, d=range(2, 41)) launch(block=32, args=[index(n, 4), index(n, 4), zero(4*(n+1)*(n+1)), n, d])
extern "C" __global__ void lcs_diagonal(const int *a, const int *b, int *table, int n, int d) {
  int i = 1 + blockIdx.x * blockDim.x + threadIdx.x, j = d - i;
  if (i > n || j < 1 || j > n) return;
  int w = n + 1;
  table[i * w + j] = a[i - 1] == b[j - 1] ? table[(i - 1) * w + j - 1] + 1 : max(table[(i - 1) * w + j], table[i * w + j - 1]);
}

// A block does all diagonals of a pair of strings, three of them in shared memory.
//@ for(pairs=(1, 8), n=(1, 20, 60)) launch(grid=pairs, block=64, args=[index(pairs*n, 4), index(pairs*n, 4), zero(4*pairs), n])
extern "C" __global__ void smith_waterman(const int *as, const int *bs, int *score, int n) {
  __shared__ int h[3][65];
  __shared__ int best;
  const int *a = as + blockIdx.x * n, *b = bs + blockIdx.x * n;
  int i = threadIdx.x + 1;
  for (int k = 0; k < 3; k++) {
    h[k][threadIdx.x] = 0;
    h[k][64] = 0;
  }
  if (threadIdx.x == 0) best = 0;
  __syncthreads();
  for (int d = 2; d <= 2 * n; d++) {
    int j = d - i;
    int *now = h[d % 3], *one = h[(d + 2) % 3], *two = h[(d + 1) % 3], x = 0;
    if (i <= n && j >= 1 && j <= n) {
      x = max(0, two[i - 1] + (a[i - 1] == b[j - 1] ? 3 : -2));
      x = max(x, max(one[i - 1], one[i]) - 1);
      atomicMax(&best, x);
    }
    now[i] = x;
    __syncthreads();
  }
  if (threadIdx.x == 0) score[blockIdx.x] = best;
}

// Edit distance, a row at a time from the row before: the carry along the row is a scan of minima.
//@ for(n=(1, 31, 64)) launch(grid=1, block=64, args=[index(n, 4), index(n, 4), zero(4), n])
extern "C" __global__ void edit_distance(const int *a, const int *b, int *out, int n) {
  __shared__ int row[65], scan[65];
  int j = threadIdx.x + 1;
  row[j] = j;
  if (threadIdx.x == 0) row[0] = 0;
  __syncthreads();
  for (int i = 1; i <= n; i++) {
    int x = j <= n ? min(row[j] + 1, row[j - 1] + (a[i - 1] != b[j - 1])) : 1 << 20;
    scan[j] = x - j;
    if (threadIdx.x == 0) scan[0] = i;
    __syncthreads();
    for (int d = 1; d < 65; d *= 2) {
      int y = j >= d ? min(scan[j], scan[j - d]) : scan[j];
      __syncthreads();
      scan[j] = y;
      __syncthreads();
    }
    row[j] = scan[j] + j;
    if (threadIdx.x == 0) row[0] = i;
    __syncthreads();
  }
  if (j == n) *out = row[n];
}

// 0/1 knapsack, one item, from row to row …
//@ for(cap=(1, 64, 1000), w=(0, 5, 63), v=(7,)) launch(grid=up(cap + 1, 128), block=128, args=[index(cap + 1, 100), zero(4*(cap+1)), cap, w, v])
extern "C" __global__ void knapsack_row(const int *before, int *after, int cap, int w, int v) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c > cap) return;
  int x = before[c];
  if (c >= w) x = max(x, before[c - w] + v);
  after[c] = x;
}

// … and all items by one block, in place: a barrier parts reading and writing.
//@ for(cap=(1, 63, 200), items=(1, 9)) launch(grid=1, block=256, args=[index(items, 20), index(items, 50), zero(4*(cap+1)), cap, items])
extern "C" __global__ void knapsack_block(const int *w, const int *v, int *best, int cap, int items) {
  int c = threadIdx.x;
  for (int k = 0; k < items; k++) {
    int x = 0;
    if (c <= cap) {
      x = best[c];
      if (c >= w[k]) x = max(x, best[c - w[k]] + v[k]);
    }
    __syncthreads();
    if (c <= cap) best[c] = x;
    __syncthreads();
  }
}

// Unlimited items: a chain along the residues of the weight, a thread a residue.
//@ for(cap=(10, 300), w=(1, 7, 32)) launch(grid=up(w, 32), block=32, args=[index(cap + 1, 100), cap, w, 3])
extern "C" __global__ void knapsack_unbounded(int *best, int cap, int w, int v) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= w) return;
  for (int c = r + w; c <= cap; c += w) best[c] = max(best[c], best[c - w] + v);
}

// Floyd and Warshall, one intermediate node, in place: row and column k do not change.
//@ for(n=(1, 16, 33, 60), k=(0, 7)) launch(grid=(up(n, 16), up(n, 16)), block=(16, 16), args=[index(n*n, 1000), n, min(k, n - 1)])
//@ for(n=120, k=range(0, 120, 5)) launch(grid=(8, 8), block=(16, 16), args=[index(n*n, 1000), n, k])
extern "C" __global__ void floyd(int *d, int n, int k) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= n) return;
  int via = d[i * n + k] + d[k * n + j];
  if (via < d[i * n + j]) d[i * n + j] = via;
}

// The blocked form's first phase: one tile closes itself.
//@ for(n=(16, 48), b=(0, 1)) launch(grid=1, block=(16, 16), args=[index(n*n, 1000), n, min(b, n//16 - 1)])
extern "C" __global__ void floyd_tile(int *d, int n, int b) {
  __shared__ int t[16][16];
  int x = threadIdx.x, y = threadIdx.y, at = (b * 16 + y) * n + b * 16 + x;
  t[y][x] = d[at];
  __syncthreads();
  for (int k = 0; k < 16; k++) {
    int via = t[y][k] + t[k][x];
    __syncthreads();
    t[y][x] = min(t[y][x], via);
    __syncthreads();
  }
  d[at] = t[y][x];
}

// One step of Viterbi's algorithm.
//@ for(states=(1, 8, 40), obs=(0, 3)) launch(grid=up(states, 32), block=32, args=[f32(states), f32(states*states), f32(4*states), zero(4*states), zero(4*states), states, obs])
//@ for(obs=(0, 1, 2, 3)) launch(grid=4, block=32, count=25, args=[f32(128), f32(128*128), f32(512), zero(512), zero(512), 128, obs])
extern "C" __global__ void viterbi(const float *before, const float *step, const float *emit, float *after, int *back, int n, int seen) {
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= n) return;
  float best = -1e30f;
  int from = 0;
  for (int p = 0; p < n; p++) {
    float x = before[p] + step[p * n + s];
    if (x > best) {
      best = x;
      from = p;
    }
  }
  after[s] = best + emit[seen * n + s];
  back[s] = from;
}

// Chains of matrices: one diagonal of the table.
//@ for(n=(2, 12, 40), len=(2, 5)) launch(grid=up(n, 32), block=32, args=[index(n + 1, 30), index(n*n, 5000), n, min(len, n)])
//@ for(n=20, len=range(2, 21)) launch(block=32, args=[index(n + 1, 30), index(n*n, 5000), n, len])
extern "C" __global__ void matrix_chain(const int *dims, int *cost, int n, int len) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = i + len - 1;
  if (j >= n) return;
  int best = 0x7fffffff;
  for (int k = i; k < j; k++) best = min(best, cost[i * n + k] + cost[(k + 1) * n + j] + dims[i] * dims[k + 1] * dims[j + 1]);
  cost[i * n + j] = best;
}

// The least path through a grid, a row from the one above, in place in one block.
//@ for(h=(1, 5, 20), w=(1, 64, 100)) launch(grid=1, block=128, args=[index(h*w, 100), h, w])
extern "C" __global__ void path_rows(int *cost, int h, int w) {
  int x = threadIdx.x;
  for (int y = 1; y < h; y++) {
    if (x < w) {
      int *above = cost + (y - 1) * w, best = above[x];
      if (x > 0) best = min(best, above[x - 1]);
      if (x < w - 1) best = min(best, above[x + 1]);
      cost[y * w + x] += best;
    }
    __syncthreads();
  }
}
