// scan_inclusive: sums[i] <- values[0] + ... + values[i], modulo 2^32
//
// Three launches. The first adds up each tile of 1024 values. The second turns the tiles' sums into what precedes each tile: one
// block walks over them, a tile of sums at a time, so that any number of them will do. The third scans each tile and adds what
// precedes it.

#define THREADS 256
#define PER_THREAD 4
#define TILE (THREADS * PER_THREAD)

// Replaces each thread's value by the sum of the values of all threads before it, and gives the sum over the block.
static __device__ unsigned scan_exclusive(unsigned& value) {
    __shared__ unsigned sums[THREADS];
    const unsigned own = value;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned distance = 1; distance < THREADS; distance *= 2) {
        const unsigned before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    value = sums[threadIdx.x] - own;
    const unsigned total = sums[THREADS - 1];
    // The next call writes to the same memory.
    __syncthreads();
    return total;
}

// Each thread's four values, zeros beyond the end, and their sum.
static __device__ unsigned load(const unsigned* __restrict__ from, unsigned long long first, unsigned long long n,
                                unsigned (&items)[PER_THREAD]) {
    unsigned sum = 0;
    for (unsigned item = 0; item < PER_THREAD; ++item) {
        items[item] = first + item < n ? from[first + item] : 0;
        sum += items[item];
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_inclusive_tiles(const unsigned* __restrict__ values, unsigned* __restrict__ tile_sums, unsigned long long n) {
    unsigned items[PER_THREAD];
    unsigned sum = load(values, (unsigned long long)blockIdx.x * TILE + threadIdx.x * PER_THREAD, n, items);
    const unsigned total = scan_exclusive(sum);
    if (threadIdx.x == 0) {
        tile_sums[blockIdx.x] = total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_inclusive_offsets(const unsigned* __restrict__ tile_sums, unsigned* __restrict__ offsets, unsigned long long tiles) {
    unsigned carry = 0;
    for (unsigned long long base = 0; base < tiles; base += TILE) {
        const unsigned long long first = base + threadIdx.x * PER_THREAD;
        unsigned items[PER_THREAD];
        unsigned before = load(tile_sums, first, tiles, items);
        const unsigned total = scan_exclusive(before);
        for (unsigned item = 0; item < PER_THREAD; ++item) {
            if (first + item < tiles) {
                offsets[first + item] = carry + before;
            }
            before += items[item];
        }
        carry += total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_inclusive_apply(const unsigned* __restrict__ values, const unsigned* __restrict__ offsets,
                         unsigned* __restrict__ sums, unsigned long long n) {
    const unsigned long long first = (unsigned long long)blockIdx.x * TILE + threadIdx.x * PER_THREAD;
    unsigned items[PER_THREAD];
    unsigned sum = load(values, first, n, items);
    scan_exclusive(sum);
    sum += offsets[blockIdx.x];
    for (unsigned item = 0; item < PER_THREAD; ++item) {
        sum += items[item];
        if (first + item < n) {
            sums[first + item] = sum;
        }
    }
}
