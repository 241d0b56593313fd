// A product by tiles of 16 x 16 outputs, a thread for each. left(row)(k) and right(column)(k)
// give elements within the extents; store(column)(row, sum) takes an output. Launched with 256
// threads.
template <typename T, typename Left, typename Right, typename Store>
__device__ void product_by_tiles(int rows, int columns, int inner, int tile, Left left, Right right,
                                 Store store) {
  __shared__ T s[16][17], t[16][17];
  const int across = (columns + 15) / 16, x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int row = tile / across * 16 + y, column = tile % across * 16 + x;
  T sum = 0;
  for (int first = 0; first < inner; first += 16) {
    s[y][x] = row < rows && first + x < inner ? T(left(row)(first + x)) : T(0);
    t[y][x] = first + y < inner && column < columns ? T(right(column)(first + y)) : T(0);
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += s[y][k] * t[k][x];
    __syncthreads();
  }
  if (row < rows && column < columns) store(column)(row, sum);
}
