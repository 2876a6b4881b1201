// monte_carlo_pi: how many of `samples` random points of the unit square lie within the unit circle
//
// The points come from Philox 4x32-10 (Salmon et al., 2011), whose numbers are a function of a counter and a key. Block i of the
// stream gives points 2i and 2i + 1, whichever thread computes it; coordinates are 31-bit integers, so inside and outside are exact; and
// integer additions commute. The count therefore depends on the seed and the number of samples alone.

#define THREADS 256

static __device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = 0xD2511F53ull * counter.x;
        const unsigned long long b = 0xCD9E8D57ull * counter.z;
        counter = make_uint4((unsigned)(b >> 32) ^ counter.y ^ key.x, (unsigned)b, (unsigned)(a >> 32) ^ counter.w ^ key.y, (unsigned)a);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

static __device__ unsigned is_inside(unsigned x, unsigned y) {
    const unsigned long long x31 = x >> 1;
    const unsigned long long y31 = y >> 1;
    return x31 * x31 + y31 * y31 < 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    monte_carlo_pi(unsigned long long* __restrict__ hits, unsigned long long samples, unsigned long long seed) {
    const uint2 key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
    const unsigned long long pairs = samples / 2 + samples % 2;
    const unsigned long long stride = (unsigned long long)gridDim.x * THREADS;
    unsigned long long count = 0;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < pairs; i += stride) {
        const uint4 random = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 0, 0), key);
        count += is_inside(random.x, random.y);
        if (2 * i + 1 < samples) {
            count += is_inside(random.z, random.w);
        }
    }

    // One addition per block to the result, where all blocks meet.
    __shared__ unsigned long long total;
    if (threadIdx.x == 0) {
        total = 0;
    }
    __syncthreads();
    atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(hits, total);
    }
}
