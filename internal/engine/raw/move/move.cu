// Copies and sets as kernels: rows of units of 1, 2, 4, 8 or 16 bytes, as everything is aligned to. A block takes
// columns of the rows blockIdx.y, blockIdx.y + gridDim.y, and so on. build.sh makes the cubins.

typedef unsigned long long u64;

template <typename T>
__device__ static void copy(char *dst, const char *src, u64 dst_pitch, u64 src_pitch, u64 width, u64 height)
{
	for (u64 row = blockIdx.y; row < height; row += gridDim.y) {
		T *d = (T *)(dst + row * dst_pitch);
		const T *s = (const T *)(src + row * src_pitch);
		for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < width; i += (u64)gridDim.x * blockDim.x)
			d[i] = s[i];
	}
}

template <typename T>
__device__ static void set(char *dst, u64 pitch, u64 width, u64 height, T value)
{
	for (u64 row = blockIdx.y; row < height; row += gridDim.y) {
		T *d = (T *)(dst + row * pitch);
		for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < width; i += (u64)gridDim.x * blockDim.x)
			d[i] = value;
	}
}

#define COPY(n, type)                                                                                                  \
	extern "C" __global__ void __launch_bounds__(256) hf_copy##n(char *dst, const char *src, u64 dst_pitch,        \
		u64 src_pitch, u64 width, u64 height)                                                                  \
	{                                                                                                              \
		copy<type>(dst, src, dst_pitch, src_pitch, width, height);                                             \
	}
COPY(1, unsigned char)
COPY(2, unsigned short)
COPY(4, unsigned)
COPY(8, uint2)
COPY(16, uint4)

// value is repeated to fill four bytes.
#define SET(n, type, made)                                                                                             \
	extern "C" __global__ void __launch_bounds__(256) hf_set##n(char *dst, u64 pitch, u64 width, u64 height,       \
		unsigned value)                                                                                        \
	{                                                                                                              \
		set<type>(dst, pitch, width, height, made);                                                            \
	}
SET(1, unsigned char, (unsigned char)value)
SET(2, unsigned short, (unsigned short)value)
SET(4, unsigned, value)
SET(8, uint2, make_uint2(value, value))
SET(16, uint4, make_uint4(value, value, value, value))
