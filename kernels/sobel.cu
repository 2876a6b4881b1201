// sobel: the magnitude of a grey image's gradient, rounded to the nearest (halves to even) and at most 255
//
// Beyond the border the image goes on with the pixels at the border. The squares are whole numbers below 2^24, which a float holds
// exactly, so that only the square root rounds. One thread per pixel; grids are limited in y, so threads go on with rows a whole
// grid further down.

extern "C" __global__ void sobel(const unsigned char* __restrict__ image, unsigned char* __restrict__ edges, unsigned height,
                                 unsigned width) {
    const unsigned long long x = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) {
        return;
    }
    const unsigned long long left = x > 0 ? x - 1 : 0;
    const unsigned long long right = x + 1 < width ? x + 1 : x;
    const unsigned long long stride = (unsigned long long)gridDim.y * blockDim.y;
    for (unsigned long long y = (unsigned long long)blockIdx.y * blockDim.y + threadIdx.y; y < height; y += stride) {
        const unsigned char* above = image + (y > 0 ? y - 1 : 0) * width;
        const unsigned char* here = image + y * width;
        const unsigned char* below = image + (y + 1 < height ? y + 1 : y) * width;
        const int across = (above[right] + 2 * here[right] + below[right]) - (above[left] + 2 * here[left] + below[left]);
        const int down = (below[left] + 2 * below[x] + below[right]) - (above[left] + 2 * above[x] + above[right]);
        const float magnitude = sqrtf((float)(across * across + down * down));
        edges[y * width + x] = (unsigned char)min(__float2int_rn(magnitude), 255);
    }
}
