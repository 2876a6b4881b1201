// mandelbrot: for each pixel, how many iterations of z <- z^2 + c stay within the circle of radius 2
//
// Near the border of the set every rounding counts: a compiler that fuses operations, or does not, draws another picture. All
// operations are therefore written with the rounding that they have, and the picture is the same everywhere.
//
// One thread per pixel. Grids are limited in y, so threads go on with rows a whole grid further down.

// Where pixel `at` of `extent` lies. Twice the distance from the centre in whole pixels is exact, and symmetric about the centre.
static __device__ float place(unsigned long long at, unsigned extent, float centre, float step) {
    const long long twice = (long long)at * 2 + 1 - extent;
    return __fmaf_rn(__ll2float_rn(twice), __fmul_rn(0.5f, step), centre);
}

extern "C" __global__ void mandelbrot(unsigned* __restrict__ iterations, unsigned width, unsigned height, float centre_x,
                                      float centre_y, float step, unsigned max_iterations) {
    const unsigned long long x = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) {
        return;
    }
    const float c_x = place(x, width, centre_x, step);
    const unsigned long long stride = (unsigned long long)gridDim.y * blockDim.y;
    for (unsigned long long y = (unsigned long long)blockIdx.y * blockDim.y + threadIdx.y; y < height; y += stride) {
        const float c_y = place(y, height, centre_y, step);
        float z_x = 0.0f;
        float z_y = 0.0f;
        unsigned count = 0;
        while (count < max_iterations) {
            const float square_y = __fmul_rn(z_y, z_y);
            if (__fmaf_rn(z_x, z_x, square_y) > 4.0f) {
                break;
            }
            const float next_x = __fmaf_rn(z_x, z_x, __fsub_rn(c_x, square_y));
            z_y = __fmaf_rn(__fadd_rn(z_x, z_x), z_y, c_y);
            z_x = next_x;
            ++count;
        }
        iterations[y * width + x] = count;
    }
}
