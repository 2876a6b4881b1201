// Integers of 128 bits.
extern "C" __global__ void wide_integers(const __int128* a, const __int128* b, __int128* o, int* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __int128 x = a[i], y = b[i];
    unsigned __int128 u = (unsigned __int128)x, w = (unsigned __int128)y;
    o[i * 8] = x + y; o[i * 8 + 1] = x - y; o[i * 8 + 2] = x * y; o[i * 8 + 3] = x / y; o[i * 8 + 4] = u % w;
    o[i * 8 + 5] = x << (i % 128); o[i * 8 + 6] = x >> (i % 128); o[i * 8 + 7] = (__int128)(double)(long long)x ^ ~y;
    c[i] = (x < y) | (u < w) << 1 | (x == y) << 2;
}
