// Hash functions and tables.
// variants: O0 O1

__device__ unsigned mix(unsigned h) {
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ h >> 16;
}

// Open addressing: which of two keys gets the better place is open.
//@ for(n=(0, 1, 33, 400), cap=(512,)) launch(grid=up(n, 64), block=64, order="any", args=[ints([1 + k for k in shuffled(n)]), zero(4*cap), zero(4*cap), cap, n])
extern "C" __global__ void table_insert(const unsigned *keys, unsigned *slots, unsigned *values, int cap, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned key = keys[i], h = mix(key) & (cap - 1);
  for (;;) {
    unsigned was = atomicCAS(&slots[h], 0, key);
    if (was == 0 || was == key) break;
    h = (h + 1) & (cap - 1);
  }
  values[h] = i;
}

// No two keys of a launch fall together: the table is the same in any order.
//@ for(n=(1, 100, 512)) launch(grid=up(n, 64), block=64, args=[ints([1 + k for k in shuffled(n)]), zero(4*513), n])
extern "C" __global__ void table_direct(const unsigned *keys, unsigned *slots, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicExch(&slots[keys[i]], keys[i] * 7);
}

//@ for(n=(0, 1, 33, 400), cap=(16, 512)) launch(grid=up(n, 64), block=64, args=[u32(n), index(cap, 5), zero(4*n), cap, n])
extern "C" __global__ void table_lookup(const unsigned *keys, const unsigned *slots, int *found, int cap, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned key = 1 + keys[i] % 6, h = mix(key) & (cap - 1);
  int at = -1;
  for (int probe = 0; probe < cap && slots[h] != 0; probe++, h = (h + 1) & (cap - 1))
    if (slots[h] == key) {
      at = h;
      break;
    }
  found[i] = at;
}

// Deletes by a tombstone; several may delete the same.
//@ for(n=(1, 33, 400), cap=(64,)) launch(grid=up(n, 64), block=64, args=[u32(n), iota(cap), cap, n])
extern "C" __global__ void table_delete(const unsigned *keys, unsigned *slots, int cap, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && keys[i] % 3 == 0) slots[keys[i] & (cap - 1)] = ~0u;
}

// A murmur-like hash of rows of words.
//@ for(rows=(1, 33, 200), words=(0, 1, 9)) launch(grid=up(rows, 64), block=64, args=[u32(rows*words), zero(4*rows), rows, words, U(42)])
extern "C" __global__ void hash_rows(const unsigned *in, unsigned *out, int rows, int words, unsigned seed) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  unsigned h = seed;
  for (int w = 0; w < words; w++) {
    unsigned k = in[r * words + w] * 0xcc9e2d51u;
    k = __funnelshift_l(k, k, 15) * 0x1b873593u;
    h ^= k;
    h = __funnelshift_l(h, h, 13) * 5 + 0xe6546b64u;
  }
  out[r] = mix(h ^ 4 * words);
}

// FNV over strings of bytes between offsets.
//@ for(n=(1, 40)) launch(grid=up(n, 32), block=32, args=[u8(300), ints(sorted(noise(n + 1, 300))), zero(8*n), n])
extern "C" __global__ void hash_strings(const unsigned char *text, const int *start, unsigned long long *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long h = 14695981039346656037ull;
  for (int k = start[i]; k < start[i + 1]; k++) h = (h ^ text[k]) * 1099511628211ull;
  out[i] = h;
}

// A Bloom filter: bits are only ever set.
//@ for(n=S, words=(8, 64)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*words), words, n])
extern "C" __global__ void bloom_set(const unsigned *keys, unsigned *bits, int words, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = keys[i];
  for (int k = 0; k < 3; k++) {
    h = mix(h + k);
    atomicOr(&bits[(h >> 5) % words], 1u << (h & 31));
  }
}

//@ for(n=S, words=(8, 64)) launch(grid=up(n, 128), block=128, args=[u32(n), u32(words), zero(n), words, n])
extern "C" __global__ void bloom_test(const unsigned *keys, const unsigned *bits, unsigned char *maybe, int words, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = keys[i];
  bool all = true;
  for (int k = 0; k < 3 && all; k++) {
    h = mix(h + k);
    all = bits[(h >> 5) % words] >> (h & 31) & 1;
  }
  maybe[i] = all;
}

// CRC-32 of rows by a table that the block makes first.
//@ for(rows=(1, 33), len=(0, 1, 40)) launch(grid=up(rows, 64), block=64, args=[u8(rows*len), zero(4*rows), rows, len])
extern "C" __global__ void crc_rows(const unsigned char *in, unsigned *out, int rows, int len) {
  __shared__ unsigned table[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    unsigned c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  __syncthreads();
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  unsigned c = ~0u;
  for (int k = 0; k < len; k++) c = table[(c ^ in[r * len + k]) & 255] ^ c >> 8;
  out[r] = ~c;
}

// A sketch of distinct elements: the longest run of zeros by bucket.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), zero(256), n])
extern "C" __global__ void distinct_sketch(const unsigned *keys, int *rank, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = mix(keys[i]);
  atomicMax(&rank[h & 63], __clz(h) + 1);
}
