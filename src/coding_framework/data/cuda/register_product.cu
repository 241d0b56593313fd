// A product by tiles of 64 x 64 outputs, 4 x 4 a thread in registers. left(row)(k) and
// right(column)(k) give elements within the extents; store(column)(row, sum) takes an output.
// LEFT_ALONG, RIGHT_ALONG: whether neighbours in memory differ in k. Launched with 256 threads.
template <typename T, bool LEFT_ALONG, bool RIGHT_ALONG, typename Left, typename Right,
          typename Store>
__device__ void product_by_registers(int rows, int columns, int inner, int tile, Left left,
                                     Right right, Store store) {
  __shared__ T s[32][68], t[32][68];
  const int across = (columns + 63) / 64, x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  const int row = tile / across * 64, column = tile % across * 64;
  T sums[4][4] = {};
  for (int first = 0; first < inner; first += 32) {
    for (int e = threadIdx.x; e < 2048; e += 256) {
      const int k = LEFT_ALONG ? e % 32 : e / 64, r = row + (LEFT_ALONG ? e / 32 : e % 64);
      s[k][r - row] = r < rows && first + k < inner ? T(left(r)(first + k)) : T(0);
    }
    for (int e = threadIdx.x; e < 2048; e += 256) {
      const int k = RIGHT_ALONG ? e % 32 : e / 64, c = column + (RIGHT_ALONG ? e / 32 : e % 64);
      t[k][c - column] = c < columns && first + k < inner ? T(right(c)(first + k)) : T(0);
    }
    __syncthreads();
    for (int k = 0; k < 32; k++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] += s[k][y + i] * t[k][x + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (row + y + i < rows && column + x + j < columns)
        store(column + x + j)(row + y + i, sums[i][j]);
}
