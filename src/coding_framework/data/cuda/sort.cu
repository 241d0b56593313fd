// Rows in order, by a bitonic network: the host calls one step after the other. Hole: SCALAR, the
// type of the values. A row has `padded` places, a power of two; those from `count` on stay last.
// NaN is larger than all others, and equal values keep their order.

__device__ bool sorts_before(SCALAR a, int i, SCALAR b, int j, int count, bool down) {
  if (i >= count || j >= count) return i < j;
  const bool no_a = a != a, no_b = b != b;
  if (no_a != no_b) return down == no_a;
  if (no_a || a == b) return i < j;
  return down ? a > b : a < b;
}

__global__ void sort_step_kernel(SCALAR* values, int* places, int rows, int padded, int count,
                                 int side, int apart, bool down) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= rows * (padded / 2)) return;
  const int k = t % (padded / 2);
  const int one = (k / apart) * 2 * apart + k % apart;
  const int first = t / (padded / 2) * padded + one, second = first + apart;
  const SCALAR a = values[first], b = values[second];
  const int i = places[first], j = places[second];
  const bool ascends = (one & side) == 0;
  if (sorts_before(b, j, a, i, count, down) != ascends) return;
  values[first] = b;
  values[second] = a;
  places[first] = j;
  places[second] = i;
}
