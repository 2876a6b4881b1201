// What the lanes of a warp do with each other, whole and in part.
#include <cuda_fp16.h>
extern "C" __global__ void shuffles(const double* d, const long long* l, double* od, long long* ol, float* of, __half2* oh) {
    int i = threadIdx.x;
    od[i] = __shfl_xor_sync(~0u, d[i], 5) + __shfl_sync(~0u, d[i], i * 7 + 3, 8);
    ol[i] = __shfl_up_sync(~0u, l[i], 3, 16) ^ __shfl_down_sync(~0u, l[i], 9, 32);
    of[i] = __shfl_down_sync(~0u, (float)d[i], 31) - __shfl_sync(~0u, (float)l[i], 40);
    oh[i] = __shfl_xor_sync(~0u, __floats2half2_rn(i, -i), 16);
}
extern "C" __global__ void partial(const int* in, int* out) {
    int i = threadIdx.x, v = in[i];
    unsigned mask = __ballot_sync(~0u, v & 1);
    if (v & 1) {
        int sum = 0;
        for (unsigned left = mask; left; left &= left - 1) sum += __shfl_sync(mask, v, __ffs(left) - 1);
        __syncwarp(mask);
        out[i] = sum + 1000 * __popc(mask);
    } else {
        out[i] = __any_sync(~mask, v > 90) | __all_sync(~mask, v >= 0) << 1 | __popc(__ballot_sync(~mask, v > 50)) << 2;
    }
}
extern "C" __global__ void matches(const int* a, const unsigned long long* b, unsigned* o) {
    int i = threadIdx.x, all, both;
    o[i * 5] = __match_any_sync(~0u, a[i]);
    o[i * 5 + 1] = __match_any_sync(~0u, b[i]);
    o[i * 5 + 2] = __match_all_sync(~0u, a[i] & 0, &all);
    o[i * 5 + 3] = __match_all_sync(~0u, b[i], &both);
    o[i * 5 + 4] = all | both << 1;
}
extern "C" __global__ void reductions(const int* a, unsigned* o) {
    int i = threadIdx.x;
    unsigned u = a[i], mask = i < 20 ? 0xfffffu : 0xfff00000u;
    o[i * 8] = __reduce_add_sync(mask, u); o[i * 8 + 1] = __reduce_min_sync(mask, u); o[i * 8 + 2] = __reduce_max_sync(mask, u);
    o[i * 8 + 3] = __reduce_and_sync(mask, u); o[i * 8 + 4] = __reduce_or_sync(mask, u); o[i * 8 + 5] = __reduce_xor_sync(mask, u);
    o[i * 8 + 6] = __reduce_min_sync(mask, a[i]); o[i * 8 + 7] = __reduce_max_sync(mask, a[i]);
}
extern "C" __global__ void relay(int* out) {
    // The lanes of a warp take turns by a lock: hangs where a warp waits as one.
    __shared__ int lock, turn;
    if (threadIdx.x == 0) { lock = 0; turn = 0; }
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            out[threadIdx.x] = turn++;
            __threadfence_block();
            atomicExch(&lock, 0);
            done = true;
        }
        __nanosleep(20);
    }
}
