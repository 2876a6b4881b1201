// The edges of a colour picture: how steeply its brightness changes at each pixel, by Sobel's two filters.
//
// Each block of 16 x 16 threads first works out the brightness of its pixels and of one more around them, together and in shared
// memory; then every thread reads its eight neighbours there. Beyond the border the picture goes on with the pixels at the border.

#define BLOCK 16
#define TILE (BLOCK + 2)

// Brightness from 0 to 255, in whole numbers: red, green and blue weigh 77, 150 and 29 of 256.
__device__ int brightness(const unsigned char* photo, int width, int height, int x, int y) {
    x = min(max(x, 0), width - 1);
    y = min(max(y, 0), height - 1);
    const unsigned char* pixel = photo + 3 * (y * width + x);
    return (77 * pixel[0] + 150 * pixel[1] + 29 * pixel[2]) >> 8;
}

extern "C" __global__ void edges(const unsigned char* photo, unsigned char* drawing, int height, int width) {
    __shared__ int tile[TILE][TILE];
    const int left = blockIdx.x * BLOCK - 1;
    const int top = blockIdx.y * BLOCK - 1;
    for (int i = threadIdx.y * BLOCK + threadIdx.x; i < TILE * TILE; i += BLOCK * BLOCK) {
        tile[i / TILE][i % TILE] = brightness(photo, width, height, left + i % TILE, top + i / TILE);
    }
    __syncthreads();

    const int x = blockIdx.x * BLOCK + threadIdx.x;
    const int y = blockIdx.y * BLOCK + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    const int column = threadIdx.x + 1;
    const int row = threadIdx.y + 1;
    const int across = tile[row - 1][column + 1] + 2 * tile[row][column + 1] + tile[row + 1][column + 1]
                     - tile[row - 1][column - 1] - 2 * tile[row][column - 1] - tile[row + 1][column - 1];
    const int down = tile[row + 1][column - 1] + 2 * tile[row + 1][column] + tile[row + 1][column + 1]
                   - tile[row - 1][column - 1] - 2 * tile[row - 1][column] - tile[row - 1][column + 1];
    const int steepness = (int)sqrtf((float)(across * across + down * down));
    // Pencil on paper: steep is dark.
    drawing[y * width + x] = (unsigned char)(255 - min(steepness, 255));
}
