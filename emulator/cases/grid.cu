// The CUDA C of grid.ptx, which the tests of cooperative launches load. Built with NVRTC 12.9 for compute_75.
// The barrier keeps to what device code and driver agree on: the environment registers 1 and 2 hold the address of two
// words, of which the second is the barrier. It is complete when its top bit changes.

__device__ unsigned *barrier_word() {
    unsigned high, low;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    return (unsigned *)((unsigned long long)high << 32 | low) + 1;
}

__device__ void grid_barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *word = barrier_word(), before, now;
        unsigned mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
        asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(mine) : "memory");
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        } while (((now ^ before) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// Each round takes over the right neighbour's value and adds one: any block that runs ahead spoils it.
extern "C" __global__ void rounds(unsigned *values, unsigned count) {
    unsigned n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned round = 0; round < count; round++) {
        unsigned next = values[(i + 1) % n];
        grid_barrier();
        values[i] = next + 1;
        grid_barrier();
    }
}

// The first block never comes to the barrier.
extern "C" __global__ void absent(unsigned *values) {
    if (blockIdx.x == 0) return;
    grid_barrier();
    values[0] = 1;
}

// Each block sleeps until the one before has passed on a token.
extern "C" __global__ void relay(volatile unsigned *token) {
    if (threadIdx.x == 0) {
        while (*token != gridDim.x - 1 - blockIdx.x) __nanosleep(1000);
        *token += 1;
    }
}

// The words that the environment registers point to, or nothing in an ordinary launch.
extern "C" __global__ void workspace(unsigned *out) {
    unsigned *word = barrier_word();
    out[0] = word == (unsigned *)4 ? 0 : word[-1];
    out[1] = word == (unsigned *)4 ? 0 : word[0];
    asm("mov.u32 %0, %%envreg0;" : "=r"(out[2]));
}
