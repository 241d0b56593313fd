// Accesses of global memory that nothing orders, and their twins that a rule of CUDA orders.
extern "C" {

__device__ unsigned arrived = 0, turn = 0, generation = 0, waiting = 0;
__device__ float part[1024];

// `y[r] += s` by blocks r and r + rows, which seldom meet
__global__ void two_blocks_a_row(const float* x, float* y, int rows) {
  int r = blockIdx.x % rows;
  if (threadIdx.x == 0) y[r] += x[blockIdx.x];
}
__global__ void two_blocks_a_row_volatile(const float* x, volatile float* y, int rows) {
  int r = blockIdx.x % rows;
  if (threadIdx.x == 0) y[r] += x[blockIdx.x];
}
__global__ void two_blocks_a_row_atomic(const float* x, float* y, int rows) {
  if (threadIdx.x == 0) atomicAdd(&y[blockIdx.x % rows], x[blockIdx.x]);
}
__global__ void begun_by_one_block(const float* x, float* y, int rows) {
  if (blockIdx.x == 0 && threadIdx.x < rows) y[threadIdx.x] = 0;
  if (threadIdx.x == 0) atomicAdd(&y[blockIdx.x % rows], x[blockIdx.x]);
}

// ways: 0 right, 1 no fence, 2 no barrier before the ticket, 3 all threads fence before the barrier
__global__ void last_block(const float* x, float* y, int n, int way) {
  __shared__ bool last;
  int t = threadIdx.x, b = blockIdx.x;
  if (t == 64) part[b] = x[b];
  if (way == 3) __threadfence();
  if (way != 2) __syncthreads();
  if (t == 0) {
    if (way == 0 || way == 2) __threadfence();
    last = atomicAdd(&arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float s = 0;
    for (int i = 0; i < gridDim.x; i++) s += part[i];
    *y = s;
    arrived = 0;
  }
}

// each block waits for the one before it; ways: 0 volatile flag, 1 without a fence, 2 release and acquire
__global__ void look_back(const float* x, float* y, volatile int* flag, float* sums, int way) {
  if (threadIdx.x) return;
  int b = blockIdx.x;
  float before = 0;
  if (b) {
    int seen = 0;
    if (way == 2) do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(seen) : "l"(flag + b - 1) : "memory"); while (!seen);
    else while (!flag[b - 1]) {}
    before = sums[b - 1];
  }
  sums[b] = y[b] = before + x[b];
  if (way == 2) asm volatile("st.release.gpu.s32 [%0], %1;" :: "l"(flag + b), "r"(1) : "memory");
  else {
    if (way == 0) __threadfence();
    flag[b] = 1;
  }
}

// value and state in one word, which is read before anything orders it
__global__ void look_back_packed(const float* x, float* y, volatile unsigned long long* state) {
  if (threadIdx.x) return;
  int b = blockIdx.x;
  float before = 0;
  if (b) {
    unsigned long long got;
    do got = state[b - 1]; while (!(got >> 32));
    before = __uint_as_float((unsigned)got);
  }
  y[b] = before + x[b];
  __threadfence();
  state[b] = 1ull << 32 | __float_as_uint(before + x[b]);
}

__global__ void spin_lock(const float* x, float* y, int* lock, int fence) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *y += x[blockIdx.x];
    if (fence) __threadfence();
    *(volatile int*)lock = 0;
  }
}

__global__ void take_turns(const float* x, float* y) {
  if (threadIdx.x == 0) {
    while (*(volatile unsigned*)&turn != blockIdx.x) {}
    __threadfence();
    *y += x[blockIdx.x];
    __threadfence();
    atomicAdd(&turn, 1);
    if (blockIdx.x == gridDim.x - 1) turn = 0;
  }
}

// a barrier of all blocks, written by hand
__device__ void all_blocks() {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    unsigned mine = *(volatile unsigned*)&generation;
    __threadfence();
    if (atomicAdd(&waiting, 1) == gridDim.x - 1) {
      waiting = 0;
      __threadfence();
      atomicAdd(&generation, 1);
    } else {
      while (*(volatile unsigned*)&generation == mine) {}
    }
    __threadfence();
  }
  __syncthreads();
}
__global__ void reversed(const float* x, float* t, float* y, int n, int together) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) t[i] = x[i];
  if (together) all_blocks(); else __syncthreads();
  if (i < n) y[i] = t[n - 1 - i];
  if (together) all_blocks(); else __syncthreads();
  if (i < n) t[i] = 0;
}

__global__ void overlapping_tails(const float* x, float* y, int n) {
  int start = min((int)(blockIdx.x * blockDim.x), n - (int)blockDim.x);
  y[start + threadIdx.x] = x[start + threadIdx.x];
}
__global__ void neighbouring_bytes(const unsigned char* x, unsigned char* y, int each) {
  for (int i = threadIdx.x; i < each; i += blockDim.x) y[blockIdx.x * each + i] = x[blockIdx.x * each + i];
}
__global__ void warps_of_a_block(const float* x, float* t, float* y, int wait) {
  t[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncthreads();
  y[threadIdx.x] = t[blockDim.x - 1 - threadIdx.x];
}
__global__ void largest(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int* at = (int*)y;
  int old = *at, was;
  do {
    was = old;
    if (__int_as_float(was) >= x[i]) break;
    old = atomicCAS(at, was, __float_as_int(x[i]));
  } while (old != was);
}
__global__ void waits_for_a_later_block(int* flag, int* out) {
  if (threadIdx.x) return;
  if (blockIdx.x == gridDim.x - 1) { __threadfence(); atomicExch(flag, 1); }
  else while (*(volatile int*)flag == 0) {}
  out[blockIdx.x] = 1;
}
// The threads behind the first 64 read what those update, and do with it what `way` says.
__global__ void spare_threads(float* t, float* y, int way, float known) {
  int i = threadIdx.x % 64;
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(t + i));
  if (threadIdx.x < 64) t[i] = 2.0f * v;
  else if (way == 1) y[threadIdx.x] = v;
  else if (way == 2 && v == known) y[threadIdx.x] = 1.0f;
  else if (way == 3) y[(int)v] = 1.0f;
}
// They read it in another way, and keep it.
__global__ void spare_threads_copy(float* t, float* y, int way) {
  __shared__ __align__(16) float room[256];
  int i = threadIdx.x % 64;
  if (threadIdx.x < 64) { t[i] = 2.0f * t[i]; return; }
  if (way == 0) {
    unsigned at = (unsigned)__cvta_generic_to_shared(room + threadIdx.x);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(t + i));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    y[threadIdx.x] = room[threadIdx.x];
  } else if (way == 1) {
    float4 v = ((float4*)t)[threadIdx.x % 16];
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
  } else if (way == 2) {
    y[threadIdx.x] = __ldcg(t + i);
  } else if (way == 3) {
    y[threadIdx.x] = (float)((unsigned char*)t)[4 * i + 3];
  } else if (way == 4) {
    y[threadIdx.x] = *(volatile float*)(t + i);
  } else {
    y[threadIdx.x] = __int_as_float(atomicCAS((int*)t + i, 1, 1));
  }
}
}
