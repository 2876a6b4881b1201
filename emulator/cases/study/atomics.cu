// Atomics beyond the common ones: 16 bits, packed halves, scopes, orders, and loops of compare and swap.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda/atomic>
extern "C" __global__ void narrow(unsigned short* counter, unsigned short* won, __half* h, __nv_bfloat16* b, __half2* h2, __nv_bfloat162* b2) {
    unsigned short seen = *(volatile unsigned short*)counter, old;
    do { old = seen; seen = atomicCAS(counter, old, (unsigned short)(old + 3)); } while (seen != old);
    if (atomicCAS(won, (unsigned short)0, (unsigned short)(threadIdx.x + 1)) == 0) counter[1] = threadIdx.x + 1;
    atomicAdd(h, __float2half(0.5f)); atomicAdd(b, __float2bfloat16(1.0f));
    atomicAdd(h2, __floats2half2_rn(1.0f, 0.25f)); atomicAdd(b2, __floats2bfloat162_rn(1.0f, -0.5f));
}
extern "C" __global__ void scoped(int* block, int* system, unsigned long long* wide, double* d) {
    __shared__ int s;
    __shared__ unsigned long long most;
    if (threadIdx.x == 0) { s = 0; most = 0; }
    __syncthreads();
    atomicAdd_block(&s, 2); atomicMax_block(&most, (unsigned long long)threadIdx.x << 40);
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd_system(system, s); atomicXor(wide, most); }
    atomicAdd(block, 1); atomicAdd_system(d, 0.25);
    atomicAnd(wide + 1, ~(1ull << threadIdx.x)); atomicOr(wide + 2, 1ull << threadIdx.x); atomicMin(wide + 3, 1000ull - threadIdx.x);
    atomicExch(wide + 4, 77ull); atomicMin((long long*)wide + 5, -(long long)threadIdx.x); atomicMax((long long*)wide + 6, (long long)threadIdx.x - 100);
}
extern "C" __global__ void ordered(int* data, int* flags, int n) {
    // Each block hands a value on to the next one.
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[blockIdx.x]), next(flags[blockIdx.x + 1]);
    if (threadIdx.x == 0) {
        while (flag.load(cuda::memory_order_acquire) == 0) {}
        data[blockIdx.x + 1] = data[blockIdx.x] * 2 + 1;
        next.store(1, cuda::memory_order_release);
    }
}
extern "C" __global__ void references(unsigned char* bytes, short* shorts, unsigned* words, float* f) {
    cuda::atomic_ref<unsigned char, cuda::thread_scope_device> byte(bytes[1]);
    cuda::atomic_ref<short, cuda::thread_scope_block> narrow(shorts[1]);
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> word(words[0]);
    cuda::atomic_ref<float, cuda::thread_scope_device> real(f[0]);
    byte.fetch_add(1); narrow.fetch_sub(2, cuda::memory_order_relaxed); word.fetch_xor(1u << (threadIdx.x & 31), cuda::memory_order_acq_rel);
    real.fetch_add(0.5f);
    cuda::atomic_ref<unsigned, cuda::thread_scope_device>(words[2]).fetch_max(threadIdx.x + 5);
    unsigned old = words[1];
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> other(words[1]);
    while (!other.compare_exchange_weak(old, old * 2 + 1)) {}
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
}
#if __CUDA_ARCH__ >= 900
struct alignas(16) Pair { unsigned long long low, high; };
extern "C" __global__ void wide(Pair* p, float2* v2, float4* v4) {
    Pair seen = {0, 0}, old;
    do {
        old = seen;
        Pair next = {old.low + 1, old.high + 2};
        seen = atomicCAS(p, old, next);
    } while (seen.low != old.low || seen.high != old.high);
    if (threadIdx.x == 0) p[2] = atomicExch(p + 1, Pair{5, 6});
    atomicAdd(v2, make_float2(1.0f, 2.0f));
    atomicAdd(v4, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
}
#endif
