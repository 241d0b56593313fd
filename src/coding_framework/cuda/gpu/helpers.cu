// Kernels of ours in the device process, beside the candidate's: what the copy engine cannot do.

// Reads all of `data`, so that afterwards the L2 holds nothing else, and nothing unwritten.
extern "C" __global__ void read_all(const uint4* data, unsigned long long n, unsigned* sink) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  const unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
  unsigned sum = 0;
  for (; i < n; i += step) {
    const uint4 v = __ldcg(data + i);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9e3779b9u) *sink = sum;  // keeps the loads; the data are all zero
}

// An element of `itemsize` bytes from `from`, with these extents and strides, to each place of `to`.
struct Axes {
  unsigned long long shape[16], strides[16];
};
template <class T>
__device__ void gather_of(T* to, const T* from, unsigned long long count, unsigned dims,
                          const Axes& axes) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  const unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
  for (; i < count; i += step) {
    unsigned long long left = i, at = 0;
    for (int axis = dims - 1; axis >= 0; axis--) {
      at += left % axes.shape[axis] * axes.strides[axis];
      left /= axes.shape[axis];
    }
    to[i] = from[at];
  }
}
extern "C" __global__ void gather(void* to, const void* from, unsigned long long count,
                                  unsigned itemsize, unsigned dims, const Axes axes) {
  auto copy = [&](auto one) {
    using T = decltype(one);
    gather_of(static_cast<T*>(to), static_cast<const T*>(from), count, dims, axes);
  };
  switch (itemsize) {
    case 1: return copy((unsigned char)0);
    case 2: return copy((unsigned short)0);
    case 4: return copy(0u);
    case 8: return copy(0ull);
  }
}

// Overwrites the shared memory that an earlier candidate's blocks left behind.
extern "C" __global__ void scrub_shared(unsigned words, unsigned* sink) {
  extern __shared__ volatile unsigned shared[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xa5a5a5a5u;
  __syncthreads();
  if (shared[threadIdx.x] == 1u) *sink = 1u;
}

extern "C" __global__ void nothing() {}
