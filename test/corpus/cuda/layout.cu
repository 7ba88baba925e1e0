// Where bytes lie: strides, interleaving, tables of pointers, structs by value.
// variants: O0 sm_80

// Real parts are read, imaginary parts written: no byte is both.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(2*n), n])
extern "C" __global__ void imaginary_from_real(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[2 * i + 1] = a[2 * i] * 0.5f;
}

// As above by two pointers; with the second one 8 bytes on they would meet.
//@ for(n=(1, 33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := f32(2*n)), a + 4, 2, n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[(a := f32(2*n + 2)), a + 8, 2, n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[f32(3*n), zero(12*n), 3, n])
extern "C" __global__ void strided_copy(const float *in, float *out, int stride, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[(size_t)i * stride] = in[(size_t)i * stride] + 1;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(2*n), n])
extern "C" __global__ void conjugate(float2 *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i].y = -a[i].y;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(3*n), zero(12*n), n])
extern "C" __global__ void aos_to_soa(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < 3; k++) out[k * n + i] = in[3 * i + k];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(3*n), zero(12*n), n])
extern "C" __global__ void soa_to_aos(const float *in, float3 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = make_float3(in[i], in[n + i], in[2 * n + i]);
}

// Even elements come from odd ones of the same buffer.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(2*n), n])
extern "C" __global__ void even_from_odd(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[2 * i] = a[2 * i + 1] ^ 0x55;
}

// The lower half from the upper one: where they meet depends on n and shift.
//@ for(n=(1, 33, 1000), shift=(0, 1, 500, 1000)) launch(grid=up(n, 128), block=128, order="any" if 0 < shift < n else None, args=[u32(n + shift), shift, n])
extern "C" __global__ void shift_down(int *a, int shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = a[i + shift] + 1;
}

// Rows with a pitch; the gap belongs to nobody.
//@ for(d=((5, 7), (33, 17), (64, 8)), pitch=(256, 320)) launch(grid=(up(d[0], 32), up(d[1], 4)), block=(32, 4), args=[f32(d[1]*pitch//4), zero(d[1]*pitch), UL(pitch), d[0], d[1]])
extern "C" __global__ void copy_pitched(const char *in, char *out, size_t pitch, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) ((float *)(out + y * pitch))[x] = ((const float *)(in + y * pitch))[x];
}

// A window of an image is filled: a box inside the allocation.
//@ for(box=((0, 0, 64, 32), (3, 5, 10, 9), (60, 1, 4, 1))) launch(grid=(up(box[2], 16), up(box[3], 8)), block=(16, 8), args=[zero(4*64*32), 64, *box, 7])
extern "C" __global__ void fill_box(int *image, int width, int x0, int y0, int w, int h, int value) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) image[(y0 + y) * width + x0 + x] = value;
}

// A window moves inside the same image.
//@ for(to=((0, 16), (32, 0), (40, 20))) launch(grid=(2, 2), block=(16, 4), args=[u32(64*32), 64, 0, 0, *to, 20, 8])
//@ for(to=((0, 0), (1, 0), (0, 1), (19, 7))) launch(grid=(2, 2), block=(16, 4), order="any" if any(to) else None, args=[u32(64*32), 64, 0, 0, *to, 20, 8])
extern "C" __global__ void copy_box(int *image, int width, int sx, int sy, int dx, int dy, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) image[(dy + y) * width + dx + x] = image[(sy + y) * width + sx + x];
}

// A row of pointers: every block has a buffer of its own, or none.
//@ for(n=(1, 33, 200), k=(1, 3)) launch(grid=k, block=64, args=[table([u32(n) for _ in range(k)]), n])
//@ for(n=(33,)) launch(grid=4, block=64, args=[table([u32(n), None, u32(n), None]), n])
extern "C" __global__ void table_increment(int *const *table, int n) {
  int *p = table[blockIdx.x];
  if (!p) return;
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i]++;
}

//@ for(n=(1, 33, 200), k=(1, 3)) launch(grid=k, block=64, args=[table([u32(n) for _ in range(k)]), table([zero(4*n) for _ in range(k)]), n])
//@ for(n=(33,)) launch(grid=2, block=64, args=[(t := table([u32(n), u32(n)])), t, n])
extern "C" __global__ void table_copy(const int *const *in, int *const *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x][i] = in[blockIdx.x][i];
}

// Batched products by tables, as libraries take them.
//@ for(n=(1, 8, 16), k=(1, 4)) launch(grid=k, block=(n, n), args=[table([f32(n*n) for _ in range(k)]), table([f32(n*n) for _ in range(k)]), table([zero(4*n*n) for _ in range(k)])])
extern "C" __global__ void table_matmul(const float *const *a, const float *const *b, float *const *c) {
  int n = blockDim.x, x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int i = 0; i < n; i++) sum += a[blockIdx.x][y * n + i] * b[blockIdx.x][i * n + x];
  c[blockIdx.x][y * n + x] = sum;
}

struct Span {
  float *data;
  int n;
};

struct Job {
  Span out;
  const Span *in; // a table of spans in memory
  int spans;
  double scale;
};

// A struct with a struct, with a pointer to structs with pointers.
//@ for(sizes=((1,), (33, 20), (64, 1, 300))) launch(grid=up(max(sizes), 64), block=64, args=[struct("PiiPiid", f32(max(sizes)), max(sizes), 0, table([e for s in sizes for e in (f32(s), None)]), len(sizes), 0, 0.5)])
extern "C" __global__ void nested_spans(Job job) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= job.out.n) return;
  double sum = 0;
  for (int s = 0; s < job.spans; s++)
    if (i < job.in[s].n) sum += job.in[s].data[i];
  job.out.data[i] = sum * job.scale;
}

struct View {
  float *base;
  int shape[3];
  long long stride[3];
};

// Views of three dimensions with any strides.
//@ for(s=((4, 5, 6), (1, 1, 33), (16, 3, 9))) launch(grid=up(s[0]*s[1]*s[2], 64), block=64, args=[struct("Piiiiqqq", f32(s[0]*s[1]*s[2]), *s, 0, s[1]*s[2], s[2], 1), struct("Piiiiqqq", zero(4*s[0]*s[1]*s[2]), *s, 0, 1, s[0], s[0]*s[1])])
//@ for(s=((4, 5, 6), (16, 3, 9))) launch(grid=up(s[0]*s[1]*s[2], 64), block=64, args=[struct("Piiiiqqq", (a := f32(s[0]*s[1]*s[2])), *s, 0, s[1]*s[2], s[2], 1), struct("Piiiiqqq", a, *s, 0, s[1]*s[2], s[2], 1)])
extern "C" __global__ void view_copy(View in, View out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int z = i % in.shape[2], y = i / in.shape[2] % in.shape[1], x = i / in.shape[2] / in.shape[1];
  if (x >= in.shape[0]) return;
  out.base[x * out.stride[0] + y * out.stride[1] + z * out.stride[2]] = 2 * in.base[x * in.stride[0] + y * in.stride[1] + z * in.stride[2]];
}

struct Node {
  int value, next;
};

// Lists by index, followed to their end.
//@ for(n=(1, 40, 200)) launch(grid=up(n, 32), block=32, args=[ints([x for i in range(n) for x in (i, i + 5 if i + 5 < n else -1)]), zero(4*n), n])
extern "C" __global__ void follow_lists(const Node *nodes, int *sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int s = 0;
  for (int at = i; at >= 0; at = nodes[at].next) s += nodes[at].value;
  sum[i] = s;
}

// Wide accesses, the tail by bytes.
//@ for(n=(0, 1, 16, 100, 4096)) launch(grid=up(n, 1024), block=64, args=[u8(n), zero(n), L(n)])
//@ for(n=(100, 4096)) launch(grid=up(n, 1024), block=64, args=[u8(n + 16) + 16, zero(n), L(n)])
extern "C" __global__ void copy_wide(const char *in, char *out, long long n) {
  long long i = 16 * ((long long)blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 16 <= n) *(uint4 *)(out + i) = *(const uint4 *)(in + i);
  else
    for (; i < n; i++) out[i] = in[i];
}

// Widths of one, two and eight bytes, and one that is not used.
//@ for(n=S) launch(grid=up(n, 64), block=64, args=[u8(n), u32(n), zero(8*n), H(3), null, n])
extern "C" __global__ void widen(const signed char *a, const short *b, long long *out, unsigned short k, const int *unused, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (unused && i == 0) out[0] = *unused;
  if (i < n) out[i] = (long long)a[i] * b[i] * k;
}

// A ring: the place depends on a counter in memory, which moves on.
//@ for(head=(0, 5, 31), n=(1, 8)) launch(grid=1, block=n, args=[u32(n), zero(128), ints([head]), 32])
extern "C" __global__ void ring_push(const int *in, int *ring, int *head, int size) {
  int at = *head;
  __syncthreads();
  ring[(at + threadIdx.x) % size] = in[threadIdx.x];
  if (threadIdx.x == 0) *head = (at + blockDim.x) % size;
}
