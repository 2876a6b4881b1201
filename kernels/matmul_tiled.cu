// matmul_tiled: c <- a * b, where a has m rows of k and b has k rows of n
//
// A block computes a tile of 16 x 16 results, one per thread. It walks along k, a tile of a and a tile of b at a time; both lie in
// shared memory, so that each value is fetched once per block and used 16 times. Beyond the edges the tiles hold zeros. Grids are
// limited in y, so blocks go on with rows a whole grid further down.

#define TILE 16

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    matmul_tiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, unsigned m, unsigned k,
                 unsigned n) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const unsigned long long column = (unsigned long long)blockIdx.x * TILE + threadIdx.x;

    for (unsigned long long top = (unsigned long long)blockIdx.y * TILE; top < m; top += (unsigned long long)gridDim.y * TILE) {
        const unsigned long long row = top + threadIdx.y;
        float sum = 0.0f;
        for (unsigned long long inner = 0; inner < k; inner += TILE) {
            const unsigned long long a_column = inner + threadIdx.x;
            const unsigned long long b_row = inner + threadIdx.y;
            a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0.0f;
            b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0.0f;
            __syncthreads();
            for (unsigned i = 0; i < TILE; ++i) {
                sum = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
            }
            // All threads must have read the tiles before any thread refills them.
            __syncthreads();
        }
        if (row < m && column < n) {
            c[row * n + column] = sum;
        }
    }
}
