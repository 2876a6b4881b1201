// histogram: how often each of the 256 byte values occurs
//
// Each block counts into bins of its own in shared memory, where an atomic addition is cheap, and adds them to the result once, at
// the end. Integer additions commute, so the result does not depend on their order.

#define BINS 256

extern "C" __global__ void __launch_bounds__(BINS)
    histogram(const unsigned char* __restrict__ data, unsigned* __restrict__ bins, unsigned long long n) {
    __shared__ unsigned counts[BINS];
    counts[threadIdx.x] = 0;
    __syncthreads();

    const unsigned long long stride = (unsigned long long)gridDim.x * BINS;
    for (unsigned long long i = (unsigned long long)blockIdx.x * BINS + threadIdx.x; i < n; i += stride) {
        atomicAdd(&counts[data[i]], 1u);
    }
    __syncthreads();

    if (counts[threadIdx.x] > 0) {
        atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
    }
}
