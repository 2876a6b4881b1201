// reduce_sum: the sum of all values, the same bits at every run
//
// Two launches. In the first, each thread adds up values a whole grid apart, and each block folds its threads' sums in a tree, which
// gives one partial sum per block. In the second, a single block does the same with the partial sums. The grid depends on n alone and
// nothing is atomic, so the order of the additions is fixed, and with it the rounding.

#define THREADS 256

// Folds the block's values into the first thread's result.
static __device__ float fold(float value) {
    __shared__ float tree[THREADS];
    tree[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            tree[threadIdx.x] += tree[threadIdx.x + half];
        }
        __syncthreads();
    }
    return tree[0];
}

static __device__ void add_up(const float* __restrict__ values, float* __restrict__ sums, unsigned long long n) {
    const unsigned long long stride = (unsigned long long)gridDim.x * THREADS;
    float sum = 0.0f;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        sum += values[i];
    }
    sum = fold(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_sum_blocks(const float* __restrict__ values, float* __restrict__ partial_sums, unsigned long long n) {
    add_up(values, partial_sums, n);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_sum_total(const float* __restrict__ partial_sums, float* __restrict__ sum, unsigned long long blocks) {
    add_up(partial_sums, sum, blocks);
}
