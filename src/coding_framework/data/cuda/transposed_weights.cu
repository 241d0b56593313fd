// taps by the residue of the outputs that they reach, and where each residue's begin
struct Order { int tap[$taps], first[$phases + 1]; };

constexpr Order sorted() {
  Order o = {};
  int n = 0;
  for (int phase = 0; phase < $phases; phase++) {
    for (int d = 0; d < $taps; d++)
      $keep
    o.first[phase + 1] = n;
  }
  return o;
}

__constant__ Order order = sorted();

// weights as [group][tap][channel in][channel out], rows of a multiple of 4
__global__ void pack(const float* u, float* w, int c, int n, int nw, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int r = i % nw, f = i / nw % c, d = i / nw / c % ($taps), g = i / nw / c / ($taps);
  w[i] = r < n ? u[((g * c + f) * n + r) * ($taps) + order.tap[d]] : 0.0f;
}
