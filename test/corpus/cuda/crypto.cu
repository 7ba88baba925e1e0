// Rounds of ciphers and hash functions.
// variants: O0 O1

__device__ __forceinline__ void quarter(unsigned *s, int a, int b, int c, int d) {
  s[a] += s[b];
  s[d] = __funnelshift_l(s[d] ^ s[a], s[d] ^ s[a], 16);
  s[c] += s[d];
  s[b] = __funnelshift_l(s[b] ^ s[c], s[b] ^ s[c], 12);
  s[a] += s[b];
  s[d] = __funnelshift_l(s[d] ^ s[a], s[d] ^ s[a], 8);
  s[c] += s[d];
  s[b] = __funnelshift_l(s[b] ^ s[c], s[b] ^ s[c], 7);
}

// ChaCha: a block of the key stream a thread.
//@ for(n=(1, 33, 128), rounds=(8, 20)) launch(grid=up(n, 64), block=64, args=[u32(12), zero(64*n), rounds, n])
extern "C" __global__ void chacha_stream(const unsigned *key, unsigned *out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned in[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u}, s[16];
  for (int k = 0; k < 8; k++) in[4 + k] = key[k];
  in[12] = i;
  for (int k = 0; k < 3; k++) in[13 + k] = key[8 + k];
  for (int k = 0; k < 16; k++) s[k] = in[k];
  for (int r = 0; r < rounds; r += 2) {
    quarter(s, 0, 4, 8, 12);
    quarter(s, 1, 5, 9, 13);
    quarter(s, 2, 6, 10, 14);
    quarter(s, 3, 7, 11, 15);
    quarter(s, 0, 5, 10, 15);
    quarter(s, 1, 6, 11, 12);
    quarter(s, 2, 7, 8, 13);
    quarter(s, 3, 4, 9, 14);
  }
  for (int k = 0; k < 16; k++) out[16 * i + k] = s[k] + in[k];
}

// States that lie in memory, permuted in place.
//@ for(n=(1, 33, 128)) launch(grid=up(n, 64), block=64, args=[u32(16*n), n])
extern "C" __global__ void chacha_permute(unsigned *state, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned s[16];
  for (int k = 0; k < 16; k++) s[k] = state[16 * i + k];
  for (int c = 0; c < 4; c++) quarter(s, c, c + 4, c + 8, c + 12);
  for (int k = 0; k < 16; k++) state[16 * i + k] = s[k];
}

// A stream cipher: text and key stream by exclusive or, in place or not.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), u32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), u32(n), a, n])
//@ for(n=(33,)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), a, a, n])
//@ for(n=2**18) launch(grid=n//128, block=128, count=3, args=[(a := u32(n)), u32(n), a, n])
extern "C" __global__ void xor_stream(const unsigned *in, const unsigned *key, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] ^ key[i];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(2*n), u32(4), n])
extern "C" __global__ void xtea(uint2 *text, const unsigned *key, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint2 v = text[i];
  unsigned sum = 0;
  for (int r = 0; r < 32; r++) {
    v.x += (((v.y << 4) ^ (v.y >> 5)) + v.y) ^ (sum + key[sum & 3]);
    sum += 0x9E3779B9u;
    v.y += (((v.x << 4) ^ (v.x >> 5)) + v.x) ^ (sum + key[sum >> 11 & 3]);
  }
  text[i] = v;
}

// Speck, 64-bit words, the round keys in shared memory.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[u32(4*n), u32(64), zero(16*n), n])
//@ for(n=(33,)) launch(grid=up(n, 64), block=64, args=[(a := u32(4*n)), u32(64), a, n])
extern "C" __global__ void speck(const ulonglong2 *in, const unsigned long long *keys, ulonglong2 *out, int n) {
  __shared__ unsigned long long k[32];
  if (threadIdx.x < 32) k[threadIdx.x] = keys[threadIdx.x];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = in[i].x, y = in[i].y;
  for (int r = 0; r < 32; r++) {
    x = (x >> 8 | x << 56) + y ^ k[r];
    y = (y << 3 | y >> 61) ^ x;
  }
  out[i] = make_ulonglong2(x, y);
}

__device__ unsigned rotr(unsigned x, int n) { return x >> n | x << (32 - n); }

// One block of SHA-256's compression a thread. The round constants are in memory.
//@ for(n=(1, 33, 64)) launch(grid=up(n, 32), block=32, args=[u32(16*n), u32(64), u32(8*n), n])
extern "C" __global__ void sha256_compress(const unsigned *message, const unsigned *constant, unsigned *digest, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned w[64], s[8];
  for (int k = 0; k < 16; k++) w[k] = message[16 * i + k];
  for (int k = 16; k < 64; k++) {
    unsigned a = w[k - 15], b = w[k - 2];
    w[k] = w[k - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[k - 7] + (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
  }
  for (int k = 0; k < 8; k++) s[k] = digest[8 * i + k];
  for (int k = 0; k < 64; k++) {
    unsigned t = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constant[k] + w[k];
    unsigned u = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    for (int j = 7; j > 0; j--) s[j] = s[j - 1];
    s[4] += t;
    s[0] = t + u;
  }
  for (int k = 0; k < 8; k++) digest[8 * i + k] += s[k];
}

// Bytes through a box, rows turned, in place: sixteen threads a state.
//@ for(states=(4, 12, 40)) launch(grid=states//4, block=(16, 4), args=[u8(16*states), u8(256)])
extern "C" __global__ void substitute_rows(unsigned char *state, const unsigned char *box) {
  unsigned char *s = state + 16 * (blockIdx.x * 4 + threadIdx.y);
  int t = threadIdx.x, row = t % 4, col = t / 4;
  unsigned char x = box[s[4 * ((col + row) % 4) + row]];
  __syncthreads();
  s[t] = x;
}

// A permutation of a sponge's lanes by table, from one buffer into another.
//@ for(n=(1, 8)) launch(grid=n, block=25, args=[u32(50*n), zero(200*n)])
extern "C" __global__ void sponge_round(const unsigned long long *in, unsigned long long *out) {
  __shared__ unsigned long long a[25], c[5], b[25];
  int t = threadIdx.x, x = t % 5, y = t / 5;
  a[t] = in[blockIdx.x * 25 + t];
  __syncthreads();
  if (t < 5) c[t] = a[t] ^ a[t + 5] ^ a[t + 10] ^ a[t + 15] ^ a[t + 20];
  __syncthreads();
  unsigned long long right = c[(x + 1) % 5], d = c[(x + 4) % 5] ^ (right << 1 | right >> 63);
  unsigned long long v = a[t] ^ d;
  int turn = (7 * t + 1) % 64;
  b[y + 5 * ((2 * x + 3 * y) % 5)] = v << turn | v >> (64 - turn);
  __syncthreads();
  out[blockIdx.x * 25 + t] = b[t] ^ (~b[(x + 1) % 5 + 5 * y] & b[(x + 2) % 5 + 5 * y]);
}

// Multiplication modulo 2^255-19's little sister: 61 bits, in place, by a factor in memory.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(2*n), UL(1234567890123456), n])
extern "C" __global__ void multiply_mod(unsigned long long *a, unsigned long long by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned long long p = (1ull << 61) - 1;
  unsigned long long x = a[i] & p, hi = __umul64hi(x, by), lo = x * by;
  unsigned long long r = (lo & p) + (lo >> 61 | hi << 3);
  r = (r & p) + (r >> 61);
  a[i] = r >= p ? r - p : r;
}
