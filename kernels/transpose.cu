// transpose: transposed[column][row] <- matrix[row][column]
//
// A block turns a tile of 32 x 32 elements round in shared memory, so that it both reads and writes whole rows. The tile's rows are
// one element longer than they need to be: without that, a column of the tile would lie in one bank and be read one by one. A block
// has 8 rows of threads, each of which does 4 rows of the tile. Grids are limited in y, so blocks go on a whole grid further down.

#define TILE 32
#define BLOCK_ROWS 8

extern "C" __global__ void __launch_bounds__(TILE * BLOCK_ROWS)
    transpose(const float* __restrict__ matrix, float* __restrict__ transposed, unsigned rows, unsigned columns) {
    __shared__ float tile[TILE][TILE + 1];
    const unsigned long long left = (unsigned long long)blockIdx.x * TILE;

    for (unsigned long long top = (unsigned long long)blockIdx.y * TILE; top < rows; top += (unsigned long long)gridDim.y * TILE) {
        for (unsigned y = threadIdx.y; y < TILE; y += BLOCK_ROWS) {
            if (top + y < rows && left + threadIdx.x < columns) {
                tile[y][threadIdx.x] = matrix[(top + y) * columns + left + threadIdx.x];
            }
        }
        __syncthreads();
        for (unsigned y = threadIdx.y; y < TILE; y += BLOCK_ROWS) {
            if (left + y < columns && top + threadIdx.x < rows) {
                transposed[(left + y) * rows + top + threadIdx.x] = tile[threadIdx.x][y];
            }
        }
        // All threads must have read the tile before any thread refills it.
        __syncthreads();
    }
}
