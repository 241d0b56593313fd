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

// Overwrites the shared memory that an earlier candidate's blocks left behind.
extern "C" __global__ void scrub_shared(unsigned words, unsigned* sink) {
  extern __shared__ volatile unsigned shared[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xa5a5a5a5u;
  __syncthreads();
  if (shared[threadIdx.x] == 1u) *sink = 1u;
}

extern "C" __global__ void nothing() {}
