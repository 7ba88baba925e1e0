// Graphs in compressed rows: searches, shortest paths, ranks, components.
// variants: O0

//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9)), level=(0, 1, 3)) launch(grid=up(len(g[0])-1, 64), block=64, args=[ints(g[0]), ints(g[1]), ints([0] + [1]*4 + [-1]*(len(g[0])-6)), zero(4), level, len(g[0])-1])
//@ for(g=(mesh(32, 20),), level=range(0, 12)) launch(grid=10, block=64, args=[ints(g[0]), ints(g[1]), ints([i % 32 + i // 32 if i % 32 + i // 32 <= level else -1 for i in range(640)]), zero(4), level, 640])
extern "C" __global__ void bfs_level(const int *rows, const int *cols, int *depth, int *more, int level, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n || depth[v] != level) return;
  for (int e = rows[v]; e < rows[v + 1]; e++)
    if (depth[cols[e]] < 0) {
      depth[cols[e]] = level + 1;
      *more = 1;
    }
}

// Whoever takes a node puts it in the next queue: the order of the queue is open.
//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9)), f=(1, 5, 30)) launch(grid=up(f, 32), block=32, order="any", args=[ints(g[0]), ints(g[1]), iota(f), zero(4*len(g[0])), zero(4*len(g[0])), zero(4), f])
extern "C" __global__ void bfs_frontier(const int *rows, const int *cols, const int *frontier, int *visited, int *next, int *count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = frontier[i];
  for (int e = rows[v]; e < rows[v + 1]; e++) {
    int to = cols[e];
    if (atomicCAS(&visited[to], 0, 1) == 0) next[atomicAdd(count, 1)] = to;
  }
}

// Bottom up: a node without a depth looks for a parent. Reads one array, writes another.
//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9)), level=(0, 2)) launch(grid=up(len(g[0])-1, 64), block=64, args=[ints(g[0]), ints(g[1]), ints(noise(len(g[0])-1, 4, level + 1)), zero(4*len(g[0])), level, len(g[0])-1])
extern "C" __global__ void bfs_bottom_up(const int *rows, const int *cols, const int *depth, int *out, int level, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  int d = depth[v];
  if (d > level)
    for (int e = rows[v]; e < rows[v + 1]; e++)
      if (depth[cols[e]] == level) {
        d = level + 1;
        break;
      }
  out[v] = d;
}

// Bellman and Ford: distances only fall, so in the end they do not depend on the order. One round may.
//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9))) launch(grid=up(len(g[0])-1, 64), block=64, order="any", args=[ints(g[0]), ints(g[1]), ints([1 + x for x in noise(len(g[1]), 9)]), ints([0] + [1000000]*(len(g[0])-2)), len(g[0])-1])
extern "C" __global__ void relax_inplace(const int *rows, const int *cols, const int *weight, int *dist, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  int d = dist[v];
  for (int e = rows[v]; e < rows[v + 1]; e++) atomicMin(&dist[cols[e]], d + weight[e]);
}

//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9), mesh(1, 1))) launch(grid=up(len(g[0])-1, 64), block=64, args=[ints(g[0]), ints(g[1]), ints([1 + x for x in noise(len(g[1]), 9)]), ints(noise(len(g[0])-1, 100)), ints([1000000]*(len(g[0])-1)), len(g[0])-1])
extern "C" __global__ void relax(const int *rows, const int *cols, const int *weight, const int *dist, int *next, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  int d = dist[v];
  atomicMin(&next[v], d);
  for (int e = rows[v]; e < rows[v + 1]; e++) atomicMin(&next[cols[e]], d + weight[e]);
}

//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9))) launch(grid=up(len(g[0])-1, 128), block=128, args=[ints(g[0]), ints(g[1]), f32(len(g[0])), zero(4*len(g[0])), 0.85, len(g[0])-1])
extern "C" __global__ void rank_pull(const int *rows, const int *cols, const float *share, float *rank, float damping, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  float sum = 0;
  for (int e = rows[v]; e < rows[v + 1]; e++) sum += share[cols[e]];
  rank[v] = (1 - damping) / n + damping * sum;
}

//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9))) launch(grid=up(len(g[0])-1, 128), block=128, order="any", args=[ints(g[0]), ints(g[1]), f32(len(g[0])), zero(4*len(g[0])), len(g[0])-1])
extern "C" __global__ void rank_push(const int *rows, const int *cols, const float *rank, float *next, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n || rows[v] == rows[v + 1]) return;
  float share = rank[v] / (rows[v + 1] - rows[v]);
  for (int e = rows[v]; e < rows[v + 1]; e++) atomicAdd(&next[cols[e]], share);
}

// Connected components: an edge hangs the larger root under the smaller one.
//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9))) launch(grid=up(len(g[0])-1, 64), block=64, args=[ints(g[0]), ints(g[1]), iota(len(g[0])), ints(list(range(len(g[0])))), zero(4), len(g[0])-1])
extern "C" __global__ void hook(const int *rows, const int *cols, const int *label, int *parent, int *changed, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  for (int e = rows[v]; e < rows[v + 1]; e++) {
    int a = label[v], b = label[cols[e]];
    if (a > b) {
      atomicMin(&parent[a], b);
      *changed = 1;
    }
  }
}

// Pointer jumping, in place: parents only move towards the root, in any order.
//@ for(n=(1, 50, 300)) launch(grid=up(n, 64), block=64, args=[ints([0] + [noise(1, i, i)[0] for i in range(1, n)]), n])
extern "C" __global__ void compress(int *parent, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  volatile int *p = parent;
  int root = v;
  while (p[root] != root) root = p[root];
  p[v] = root;
}

// Triangles: intersections of sorted neighbour lists, one count for all.
//@ for(g=(graph(40, 8), graph(200, 10), mesh(16, 9))) launch(grid=up(len(g[0])-1, 32), block=32, args=[ints(g[0]), ints(g[1]), zero(8), len(g[0])-1])
extern "C" __global__ void triangles(const int *rows, const int *cols, unsigned long long *count, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned found = 0;
  if (v < n)
    for (int e = rows[v]; e < rows[v + 1]; e++) {
      int u = cols[e];
      if (u <= v) continue;
      for (int i = rows[v], j = rows[u]; i < rows[v + 1] && j < rows[u + 1];) {
        int a = cols[i], b = cols[j];
        found += a == b && a > u;
        i += a <= b;
        j += b <= a;
      }
    }
  for (int d = 16; d > 0; d /= 2) found += __shfl_xor_sync(~0u, found, d);
  if (threadIdx.x == 0 && found) atomicAdd(count, (unsigned long long)found);
}

// A node whose random number beats its uncoloured neighbours' takes this round's colour.
//@ for(g=(graph(40, 4), graph(300, 6), mesh(16, 9)), colour=(0, 2)) launch(grid=up(len(g[0])-1, 64), block=64, args=[ints(g[0]), ints(g[1]), ints([x % 4 - 2 for x in noise(len(g[0])-1, 4)]), zero(4*len(g[0])), colour, len(g[0])-1])
extern "C" __global__ void colour_round(const int *rows, const int *cols, const int *colours, int *out, int colour, int n) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  int c = colours[v];
  if (c < 0) {
    bool wins = true;
    unsigned mine = v * 2654435761u;
    for (int e = rows[v]; e < rows[v + 1]; e++) {
      unsigned theirs = cols[e] * 2654435761u;
      if (colours[cols[e]] < 0 && theirs > mine) wins = false;
    }
    if (wins) c = colour;
  }
  out[v] = c;
}

// Degrees from a list of edges.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[index(2*n, 64), zero(256), n])
extern "C" __global__ void degrees(const int2 *edges, int *degree, int n) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= n) return;
  atomicAdd(&degree[edges[e].x], 1);
  atomicAdd(&degree[edges[e].y], 1);
}
