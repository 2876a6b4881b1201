// A tile whose address a swizzle relies on: 256 threads, 2048 bytes of dynamic shared memory.
extern __shared__ __align__(1024) unsigned char tile[];

extern "C" __global__ void swizzle(const unsigned *in, unsigned *out) {
    __shared__ unsigned count;
    int t = threadIdx.x;
    if (t == 0) count = 777;
    __syncthreads();
    unsigned base;
    asm volatile("mov.u32 %0, tile;" : "=r"(base));
    unsigned a = base + t * 4;
    a ^= (a >> 7 & 7) << 4;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(in[t]) : "memory");
    __syncthreads();
    unsigned off = t * 4;
    off ^= (off >> 7 & 7) << 4;
    asm volatile("" : "+r"(off));
    out[t] = *(unsigned *)(tile + off);
    if (t == 0) out[256] = count;
}

// Aligned variables in local memory, in a kernel and in a function below it.
struct __align__(64) Row {
    int values[16];
};

__device__ __noinline__ int below(int t) {
    Row row;
    for (int i = 0; i < 16; i++) ((volatile int *)row.values)[i] = t + i;
    return ((unsigned long long)&row & 63) ? -1 : row.values[t & 15];
}

extern "C" __global__ void local_rows(int *out) {
    volatile char odd[24];
    int t = threadIdx.x;
    odd[t % 24] = (char)t;
    out[t] = below(t) + odd[t % 24] - (char)t;
}
