// convolve_2d: result[y][x] <- sum over the filter of filter[i][j] * image[y + rows/2 - i][x + columns/2 - j]
//
// A convolution proper: it runs over the image in the opposite direction from the filter. Beyond the border the image goes on with
// the pixels at the border. One thread per pixel; neighbours share their reads through the cache. Grids are limited in y, so
// threads go on with rows a whole grid further down.

static __device__ unsigned clamped(long long at, unsigned extent) {
    return at < 0 ? 0 : at >= extent ? extent - 1 : (unsigned)at;
}

extern "C" __global__ void convolve_2d(const float* __restrict__ image, const float* __restrict__ filter, float* __restrict__ result,
                                       unsigned height, unsigned width, unsigned rows, unsigned columns) {
    const unsigned long long x = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) {
        return;
    }
    const unsigned long long stride = (unsigned long long)gridDim.y * blockDim.y;
    for (unsigned long long y = (unsigned long long)blockIdx.y * blockDim.y + threadIdx.y; y < height; y += stride) {
        float sum = 0.0f;
        for (unsigned i = 0; i < rows; ++i) {
            const unsigned long long line = clamped((long long)y + rows / 2 - i, height);
            for (unsigned j = 0; j < columns; ++j) {
                const unsigned pixel = clamped((long long)x + columns / 2 - j, width);
                sum = fmaf(filter[(unsigned long long)i * columns + j], image[line * width + pixel], sum);
            }
        }
        result[y * width + x] = sum;
    }
}
